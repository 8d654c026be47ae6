"""What nobody has let run does not run, by no way there is: no proposal, nothing retired or merely written, nothing of a peer's."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest
from mcp.server.request_state import RequestStateSecurity

import clia
from clia.api.derivation import all_verbs
from clia.facade.config import Config
from clia.mcp.calls import Caller, SpaceContext
from clia.mcp.server import server_of
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Behaviour
from clia.verbs import ADMIN
from clia.workers.effects import builtin
from support import git
from support.behaviour_walks import FLOW, started
from support.effects import asked, context_for, tools_for
from support.federation import Pair, plumbed
from support.mcp_client import PROTOCOLS, talking
from support.session_spaces import with_agents
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAINS = "refs/clia/behaviours/"


def flow(number: int) -> str:
    return f"def main(input):\n    return [request('check', {number}), request('check', 'more')]\n"


class Scene(NamedTuple):
    """A space with a peer, and versions of every standing."""

    pair: Pair
    flows: dict[str, tuple[str, str]]  # by what is wrong with each: how it is named, and the code it is refused with
    prompts: dict[str, tuple[str, str]]

    @property
    def space(self) -> clia.Space:
        return self.pair.hearer

    @property
    def root(self) -> str:
        return self.pair.place("hearer")

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


def of_each_standing(space: clia.Space, name: str, kind: str, bodies: list[str]) -> dict[str, tuple[str, str]]:
    """A behaviour with a version that is current, and the others by why they do not run."""
    space.add_behaviour(name, bodies[0], kind)
    proposed = space.propose_behaviour(name, bodies[1], agent="mine").cid
    retired = space.propose_behaviour(name, bodies[2], agent="mine").cid
    space.adopt_behaviour(name, retired, trial=True)
    space.retire_behaviour(name, retired)
    only = space.propose_behaviour(f"{name}-only", bodies[3], kind, agent="mine").cid
    written = space.write(Behaviour(name, kind, bodies[4]))
    return {
        "proposed": (proposed, "not-adopted"),
        "retired": (retired, "retired"),
        "only proposed": (only, "not-adopted"),
        "only written": (written, "execute-denied"),
    }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pair = Pair(tmp_path_factory.mktemp("guard").resolve())
    theirs, tone = pair.owner.add_behaviour("hello", flow(10), SESSION_FLOW), pair.owner.add_behaviour("tone", "Whistle.", PROMPT)
    hidden = pair.owner.propose_behaviour("hello", flow(11))
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "behaviour", "behaviour")
    assert not pair.sync().refused
    pair.hearer.spawn("mine", BRIEFING)
    flows = of_each_standing(pair.hearer, "review", SESSION_FLOW, [flow(each) for each in range(5)])
    flows |= {"a peer's": (theirs.cid, "execute-denied"), "a peer's by name": ("ay/hello", "execute-denied")}
    flows |= {"a peer's proposal": (hidden.cid, "execute-denied"), "a name of it": ("review-only", "nothing-adopted")}
    prompts = of_each_standing(pair.hearer, "careful", PROMPT, [f"Be careful, {each}." for each in range(5)])
    prompts |= {"a peer's": (tone.cid, "execute-denied")}
    yield Scene(pair, flows, prompts)
    pair.owner.close()
    pair.hearer.close()


def test_a_flow_that_nobody_let_run_starts_no_session(scene: Scene) -> None:
    before = scene.refs()
    for text, code in scene.flows.values():
        refused(code, partial(scene.space.start, "mine", text))
    assert scene.space.sessions("mine") == []
    assert scene.refs() == before


def test_a_worker_spawns_nobody_for_a_flow_that_may_not_run(scene: Scene) -> None:
    """And there is no way to name a prompt in such a request."""
    before = scene.refs()
    given = {"name": "child", "briefing": {"title": "Dig"}}
    context = context_for(scene.space, asked("spawn", {}, "mine"), Config(), tools_for(scene.pair.root))
    for text, code in scene.flows.values():
        refused(code, partial(builtin.spawn, context, given | {"flow": text}))
    prompt, _ = scene.prompts["proposed"]
    with_prompt = given | {"briefing": {"title": "Dig", "behaviour": prompt}}
    refused("invalid-payload", partial(builtin.spawn, context, with_prompt))
    assert scene.refs() == before


def test_a_prompt_that_nobody_let_run_briefs_nobody(scene: Scene) -> None:
    """Neither rendered, nor named in a briefing that somebody else has written."""
    space = scene.space
    other, before = space.write(BRIEFING), scene.refs()
    for text, code in scene.prompts.values():
        refused(code, partial(space.brief, text, "Dig"))
        told = clia.Briefing("Dig", "Be careless.", text)
        refused(code, partial(space.spawn, "digger", told))
        refused(code, partial(space.spawn_from, "digger", told, "mine"))
        refused(code, partial(space.spawn_at, "digger", told, space.head("mine")))
    refused("nothing-adopted", lambda: space.brief("careful-only", "Dig"))
    refused("execute-denied", lambda: space.brief("ay/tone", "Dig"))
    refused("not-a-prompt", lambda: space.spawn("digger", clia.Briefing("Dig", "", space.behaviour_version("review").cid)))
    refused("not-a-behaviour", lambda: space.spawn("digger", clia.Briefing("Dig", "", other)))
    assert scene.refs() == before


def test_an_agent_cannot_let_itself_run_over_mcp_and_no_user_below_an_administrator_can(scene: Scene) -> None:
    letting = {"add_behaviour", "adopt_behaviour", "retire_behaviour", "follow_policy", "define"}
    assert {verb.name: verb.role for verb in all_verbs() if verb.name in letting} == dict.fromkeys(letting, ADMIN)
    before, server = (
        scene.refs(),
        server_of(SpaceContext(scene.root, lambda: scene.space), "1", lambda _: Caller(), RequestStateSecurity.ephemeral()),
    )

    async def main() -> None:
        async with talking(server, PROTOCOLS[0]) as driver:
            for text, code in scene.prompts.values():
                await driver.refused(code, "spawn", name="digger", title="Dig", behaviour=text)
            for text, code in scene.flows.values():
                await driver.refused(code, "start", flow=text, agent="mine")

    anyio.run(main)
    assert scene.refs() == before


def test_a_peers_version_runs_with_execute_or_once_a_person_has_adopted_it(tmp_path: Path) -> None:
    """Taking the grant back stops what ran by it, as before; what was adopted goes on, and is ours."""
    pair = Pair(tmp_path.resolve())
    theirs = pair.owner.add_behaviour("hello", flow(1), SESSION_FLOW).cid
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    for name in ("one", "two", "three"):
        pair.hearer.spawn(name, BRIEFING)
    assert pair.hearer.start("one", theirs).flow == "ay/hello"
    pair.hearer.revoke("ay", "behaviour")
    refused("execute-denied", lambda: pair.hearer.resume("one", 1))
    refused("execute-denied", lambda: pair.hearer.fork("one", "other"))
    refused("execute-denied", lambda: pair.hearer.fork("one", "other", at=pair.hearer.head("one")))
    refused("execute-denied", lambda: pair.hearer.replay_behaviour("one", theirs))
    made = pair.hearer.adopt_behaviour("ay/hello", why="read it")
    assert (made.cid, made.state, made.origin) == (theirs, "current", "ay")
    assert pair.hearer.start("two", "hello").flow == "hello"
    assert pair.hearer.fork("two", "other").flow == "hello"
    pair.hearer.retire_behaviour("hello")
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    for text in ("ay/hello", theirs):  # what was retired here does not come back by another door
        refused("retired", partial(pair.hearer.start, "three", text))
    assert pair.hearer.resume("two", 1).status == "suspended"  # what is under way goes on
    assert pair.hearer.verify().clean


def test_a_peer_that_calls_everything_adopted_speaks_of_its_own_chain_only(tmp_path: Path) -> None:
    """Marks are no versions: neither one of ours nor one of nobody's runs since a peer's chain says so."""
    pair = Pair(tmp_path.resolve())
    pair.owner.add_behaviour("hello", flow(1), SESSION_FLOW)
    pair.hearer.spawn("mine", BRIEFING)
    ours = pair.hearer.propose_behaviour("review", flow(2), SESSION_FLOW, agent="mine").cid
    where, blob = pair.place("owner"), pair.blob("")
    listed = git("ls-tree", f"{CHAINS}hello", cwd=where)
    marks = plumbed("mktree", "--missing", cwd=where, stdin=f"100644 blob {blob}\t{ours}\n")
    kept = [line for line in listed.splitlines() if not line.endswith("\tadopted")]
    tree = plumbed("mktree", "--missing", cwd=where, stdin="\n".join([*kept, f"040000 tree {marks}\tadopted", ""]))
    made = git("commit-tree", tree, "-p", f"{CHAINS}hello", "-m", "all mine", cwd=where).strip()
    git("update-ref", f"{CHAINS}hello", made, cwd=where)
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    assert git("rev-parse", "refs/clia/remotes/ay/behaviours/hello", cwd=pair.place("hearer")).strip() == made
    refused("not-adopted", lambda: pair.hearer.start("mine", ours))
    assert pair.hearer.start("mine", "ay/hello").status == "suspended"


def test_a_session_of_what_was_retired_goes_on_and_is_not_forked(tmp_path: Path) -> None:
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        space.add_behaviour("review", flow(1), SESSION_FLOW)
        space.start("mine", "review")
        work = space.commit("mine", "finding", {"a.txt": b"a"})
        space.retire_behaviour("review")
        refused("retired", lambda: space.fork("mine", "other"))
        refused("retired", lambda: space.fork("mine", "other", at=work))
        assert space.agents() == ["mine"]
        space.resume("mine", 1)
        assert space.resume("mine", 2).result == [1, 2]
        space.adopt_behaviour("review", space.behaviour("review").versions[0].cid)
        assert space.fork("mine", "other", at=work).status == "suspended"


def without_marks(root: Path, name: str) -> None:
    """A chain as it was written before there were proposals."""
    ref = f"{CHAINS}{name}"
    kept = [line for line in git("ls-tree", ref, cwd=root).splitlines() if not line.endswith("\tadopted")]
    tree = plumbed("mktree", cwd=str(root), stdin="\n".join([*kept, ""]))
    git("update-ref", ref, git("commit-tree", tree, "-p", ref, "-m", "as it was", cwd=root).strip(), cwd=root)


def test_of_a_chain_from_before_all_versions_run_until_a_change_says_which(tmp_path: Path) -> None:
    """Such a chain knows no marks. One of proposals alone has none either, and lets nothing run."""
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        old = [space.add_behaviour("review", flow(each), SESSION_FLOW).cid for each in (1, 2)]
        without_marks(tmp_path, "review")
        assert [each.state for each in space.behaviour("review").versions] == ["former", "current"]
        new = space.propose_behaviour("review", flow(3), agent="mine").cid
        assert sorted(git("ls-tree", "--name-only", f"{CHAINS}review:adopted", cwd=tmp_path).split()) == sorted(old)
        refused("not-adopted", lambda: space.start("mine", new))
        assert space.start("mine", old[0]).status == "suspended"
        alone = space.propose_behaviour("other", flow(4), SESSION_FLOW)
        assert alone.state == "proposed"
        space.spawn("yours", BRIEFING)
        refused("not-adopted", lambda: space.start("yours", alone.cid))


def test_a_chain_that_contradicts_itself_or_cannot_be_read_runs_nothing_and_hides_no_other(tmp_path: Path) -> None:
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        version = space.add_behaviour("review", flow(1), SESSION_FLOW)
        good = space.add_behaviour("sound", flow(2), SESSION_FLOW)
        listed = git("ls-tree", f"{CHAINS}review", cwd=tmp_path)
        blob = plumbed("hash-object", "-w", "--stdin", cwd=str(tmp_path))
        marks = plumbed("mktree", cwd=str(tmp_path), stdin=f"100644 blob {blob}\t{version.cid}\n")
        tree = plumbed("mktree", cwd=str(tmp_path), stdin=f"{listed}040000 tree {marks}\tretired\n")
        git("update-ref", f"{CHAINS}review", git("commit-tree", tree, "-m", "both", cwd=tmp_path).strip(), cwd=tmp_path)
        git("update-ref", f"{CHAINS}broken", blob, cwd=tmp_path)
        refused("retired", lambda: space.start("mine", "review"))
        refused("retired", lambda: space.start("mine", version.cid))
        assert [each.name for each in space.behaviours()] == ["review", "sound"]
        assert space.start("mine", good.cid).status == "suspended"


# Other clones


class Clones(NamedTuple):
    """Two clones of a space, with a bare repository between them."""

    here: clia.Space
    there: clia.Space

    def exchanged(self) -> None:
        """What each did is brought to the other, until both have the same."""
        for giver, taker in ((self.here, self.there), (self.there, self.here)):
            giver.publish([])
            taker.adopt()

    def states(self, name: str) -> list[dict[str, str]]:
        return [{each.body: each.state for each in space.behaviour(name).versions} for space in (self.here, self.there)]


@pytest.fixture
def clones(tmp_path: Path) -> Iterator[Clones]:
    top, bare = tmp_path.resolve(), tmp_path / "between.git"
    git("init", "--quiet", "--bare", str(bare), cwd=top)
    with clia.init(top / "here", settings=settings()) as here:
        git("remote", "add", "origin", str(bare), cwd=top / "here")
        for name in ("tone", "voice", "song"):
            here.add_behaviour(name, "a", PROMPT)
            here.propose_behaviour(name, "b")
        here.publish([])
        git("clone", "--quiet", str(bare), str(top / "there"), cwd=top)
        git("fetch", "--quiet", "origin", "refs/clia/space:refs/clia/space", cwd=top / "there")
        with clia.open(top / "there", settings=settings()) as there:
            there.adopt()
            yield Clones(here, there)


def cid_of(space: clia.Space, name: str, body: str) -> str:
    return next(each.cid for each in space.behaviour(name).versions if each.body == body)


def test_what_was_retired_in_either_clone_stays_so_whatever_the_other_does_meanwhile(clones: Clones) -> None:
    """Retired wins over current, adopted and on trial; also over a clone that only went on beside it."""
    here, there = clones
    here.retire_behaviour("tone")  # and there somebody only proposes
    there.propose_behaviour("tone", "c")
    here.adopt_behaviour("voice", cid_of(here, "voice", "b"))  # and there that one is retired
    there.retire_behaviour("voice", cid_of(there, "voice", "b"))
    here.retire_behaviour("song")  # and there something else is adopted
    there.adopt_behaviour("song", cid_of(there, "song", "b"))
    clones.exchanged()
    assert clones.states("tone") == [{"a": "retired", "b": "proposed", "c": "proposed"}] * 2
    assert clones.states("voice") == [{"a": "former", "b": "retired"}] * 2
    assert clones.states("song") == [{"a": "retired", "b": "current"}] * 2
    for space in clones:
        refused("retired", partial(space.brief, cid_of(space, "tone", "a"), "Sing"))
        refused("retired", partial(space.brief, cid_of(space, "voice", "b"), "Sing"))
        assert space.verify().clean


def test_what_a_person_adopted_in_one_clone_is_adopted_in_the_other_and_proposals_stay_proposals(clones: Clones) -> None:
    here, there = clones
    here.propose_behaviour("tone", "c")
    there.adopt_behaviour("tone", cid_of(there, "tone", "b"))  # only one made something current: that is
    here.adopt_behaviour("voice", cid_of(here, "voice", "b"))
    there.add_behaviour("voice", "c")  # both did: that of who united them
    clones.exchanged()
    assert clones.states("tone") == [{"a": "former", "b": "current", "c": "proposed"}] * 2
    assert clones.states("voice") == [{"a": "former", "b": "former", "c": "current"}] * 2


def test_what_another_clone_has_without_marks_was_adopted_there(clones: Clones, tmp_path: Path) -> None:
    """Such a clone knew no proposals; uniting makes none of what it could run a proposal, and none of ours an adoption."""
    here, there = clones
    there.add_behaviour("tone", "b")  # what was proposed before is a person's now
    there.add_behaviour("tone", "c")
    without_marks(tmp_path.resolve() / "there", "tone")
    here.propose_behaviour("tone", "d")
    Clones(there, here).exchanged()  # united here
    assert clones.states("tone") == [{"a": "former", "b": "former", "c": "current", "d": "proposed"}] * 2


def test_a_retired_version_that_a_person_adopted_again_is_not_retired_by_an_old_clone(clones: Clones) -> None:
    here, there = clones
    here.retire_behaviour("tone")
    clones.exchanged()
    here.adopt_behaviour("tone", cid_of(here, "tone", "a"))
    there.propose_behaviour("tone", "c")
    clones.exchanged()
    assert clones.states("tone") == [{"a": "current", "b": "proposed", "c": "proposed"}] * 2


def test_only_what_is_retired_in_the_end_is_retired_and_what_another_clone_made_current_is_current(clones: Clones) -> None:
    """Retired and adopted again since they parted, in either clone; and ours retired while theirs adopted another."""
    here, there = clones
    for space, name in ((here, "tone"), (there, "voice")):
        space.retire_behaviour(name)
        space.adopt_behaviour(name, cid_of(space, name, "a"))
    here.propose_behaviour("voice", "c")
    there.propose_behaviour("tone", "c")
    there.retire_behaviour("song")
    here.adopt_behaviour("song", cid_of(here, "song", "b"))
    clones.exchanged()  # united there
    assert clones.states("tone") == clones.states("voice") == [{"a": "current", "b": "proposed", "c": "proposed"}] * 2
    assert clones.states("song") == [{"a": "retired", "b": "current"}] * 2


def test_chains_of_two_kinds_under_one_name_are_not_united(clones: Clones) -> None:
    here, there = clones
    here.add_behaviour("new", "Sing.", PROMPT)
    there.add_behaviour("new", flow(1), SESSION_FLOW)
    there.publish([])
    assert (f"{CHAINS}new", "diverged") in [each[:2] for each in here.adopt()]
    assert here.behaviour("new").kind == PROMPT


def test_a_session_that_only_a_note_tells_of_is_not_begun_again_with_a_flow_that_nobody_let_run(tmp_path: Path) -> None:
    """Whoever can write notes could name any flow in them; ``doctor --repair`` asks as a start would."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout")
    current = space.behaviour_version("review").cid
    evil = space.propose_behaviour("review", FLOW.replace("return answer", "return 'ran'"), agent="scout").cid
    space.start("scout", "review", 1)
    head = space.commit("scout", "finding", changes={"a.txt": b"a"})
    space.close()
    note = git("notes", "--ref=clia/session/scout", "show", head, cwd=root)
    for flow, begun in ((evil, 0), (current, 1)):  # byte for byte, but for the flow: else it is no checkpoint at all
        blob = plumbed("hash-object", "-w", "--stdin", cwd=str(root), stdin=note.replace(current, flow))
        git("notes", "--ref=clia/session/scout", "add", "-f", "-C", blob, head, cwd=root)
        shutil.rmtree(root / ".git/clia")
        with clia.open(root, settings=settings()) as again:
            again.doctor(repair=True)
            assert (len(again.sessions()), len(again.pending())) == (begun, begun)


def test_the_built_in_question_stays_built_in_whatever_a_chain_is_called(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout")
    git("update-ref", "refs/clia/behaviours/ask", "refs/clia/behaviours/review", cwd=root)
    assert space.ask("scout", {"question": "Well?"}).payload == {"question": "Well?"}
