"""Versions without permission do not run in any way: proposals, retired and merely written versions, and those of peers."""

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
from support.behaviour_walks import CHAINS, FLOW, check_flow, remove_marks, started
from support.effects import asked, context_for, tools_for
from support.federation import Pair, plumbed
from support.mcp_client import PROTOCOLS, talking
from support.session_spaces import with_agents
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class VersionsScene(NamedTuple):
    """A space with a peer, and versions of every state."""

    pair: Pair
    flows: dict[str, tuple[str, str]]  # by state: the text that names the version, and the code of its refusal
    prompts: dict[str, tuple[str, str]]

    @property
    def space(self) -> clia.Space:
        return self.pair.hearer

    @property
    def root(self) -> str:
        return self.pair.place("hearer")

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


def versions_of_each_state(space: clia.Space, name: str, kind: str, bodies: list[str]) -> dict[str, tuple[str, str]]:
    """Add a behaviour; its versions that may not run, by the reason."""
    space.behaviours.add(name, bodies[0], kind)
    proposed = space.behaviours.propose(name, bodies[1], agent="mine").cid
    retired = space.behaviours.propose(name, bodies[2], agent="mine").cid
    space.behaviours.adopt(name, retired, trial=True)
    space.behaviours.retire(name, retired)
    only = space.behaviours.propose(f"{name}-only", bodies[3], kind, agent="mine").cid
    written = space.types.write(Behaviour(name, kind, bodies[4]))
    return {
        "proposed": (proposed, "not-adopted"),
        "retired": (retired, "retired"),
        "only proposed": (only, "not-adopted"),
        "only written": (written, "execute-denied"),
    }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersionsScene]:
    pair = Pair(tmp_path_factory.mktemp("guard").resolve())
    theirs, tone = (
        pair.owner.behaviours.add("hello", check_flow(10), SESSION_FLOW),
        pair.owner.behaviours.add("tone", "Whistle.", PROMPT),
    )
    hidden = pair.owner.behaviours.propose("hello", check_flow(11))
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour")
    assert not pair.sync().refused
    pair.hearer.spawn("mine", BRIEFING)
    flows = versions_of_each_state(pair.hearer, "review", SESSION_FLOW, [check_flow(number) for number in range(5)])
    flows |= {"a peer's": (theirs.cid, "execute-denied"), "a peer's by name": ("ay/hello", "execute-denied")}
    flows |= {"a peer's proposal": (hidden.cid, "execute-denied"), "a name of it": ("review-only", "nothing-adopted")}
    prompts = versions_of_each_state(pair.hearer, "careful", PROMPT, [f"Be careful, {number}." for number in range(5)])
    prompts |= {"a peer's": (tone.cid, "execute-denied")}
    yield VersionsScene(pair, flows, prompts)
    pair.owner.close()
    pair.hearer.close()


def test_a_flow_without_permission_starts_no_session(scene: VersionsScene) -> None:
    before = scene.refs()
    for text, code in scene.flows.values():
        refused(code, partial(scene.space.start, "mine", text))
    assert scene.space.sessions("mine") == []
    assert scene.refs() == before


def test_a_worker_spawns_no_agent_for_a_flow_without_permission(scene: VersionsScene) -> None:
    """Such a request cannot name a prompt."""
    before = scene.refs()
    payload = {"name": "child", "briefing": {"title": "Dig"}}
    context = context_for(scene.space, asked("spawn", {}, "mine"), Config(), tools_for())
    for text, code in scene.flows.values():
        refused(code, partial(builtin.spawn, context, payload | {"flow": text}))
    prompt, _ = scene.prompts["proposed"]
    with_prompt = payload | {"briefing": {"title": "Dig", "behaviour": prompt}}
    refused("invalid-payload", partial(builtin.spawn, context, with_prompt))
    assert scene.refs() == before


def test_a_prompt_without_permission_cannot_be_used_in_a_briefing(scene: VersionsScene) -> None:
    """Neither rendered, nor named in a hand-written briefing."""
    space = scene.space
    other, before = space.types.write(BRIEFING), scene.refs()
    for text, code in scene.prompts.values():
        refused(code, partial(space.behaviours.brief, text, "Dig"))
        briefing = clia.Briefing("Dig", "Be careless.", text)
        refused(code, partial(space.spawn, "digger", briefing))
        refused(code, partial(space.spawn_from, "digger", briefing, "mine"))
        refused(code, partial(space.spawn_at, "digger", briefing, space.head("mine")))
    refused("nothing-adopted", lambda: space.behaviours.brief("careful-only", "Dig"))
    refused("execute-denied", lambda: space.behaviours.brief("ay/tone", "Dig"))
    refused("not-a-prompt", lambda: space.spawn("digger", clia.Briefing("Dig", "", space.behaviours.version("review").cid)))
    refused("not-a-behaviour", lambda: space.spawn("digger", clia.Briefing("Dig", "", other)))
    assert scene.refs() == before


def test_only_administrators_can_permit_behaviours_and_agents_cannot_over_mcp(scene: VersionsScene) -> None:
    verbs = {"add_behaviour", "adopt_behaviour", "retire_behaviour", "follow_policy", "define"}
    assert {verb.name: verb.role for verb in all_verbs() if verb.name in verbs} == dict.fromkeys(verbs, ADMIN)
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


def test_a_peers_version_runs_with_an_execute_grant_or_after_adoption(tmp_path: Path) -> None:
    """Revoking the grant stops sessions that ran by it; an adopted version is ours and continues."""
    pair = Pair(tmp_path.resolve())
    theirs = pair.owner.behaviours.add("hello", check_flow(1), SESSION_FLOW).cid
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    for name in ("one", "two", "three"):
        pair.hearer.spawn(name, BRIEFING)
    assert pair.hearer.start("one", theirs).flow == "ay/hello"
    pair.hearer.peers.revoke("ay", "behaviour")
    refused("execute-denied", lambda: pair.hearer.resume("one", 1))
    refused("execute-denied", lambda: pair.hearer.fork("one", "other"))
    refused("execute-denied", lambda: pair.hearer.fork("one", "other", at=pair.hearer.head("one")))
    refused("execute-denied", lambda: pair.hearer.behaviours.replay("one", theirs))
    adopted = pair.hearer.behaviours.adopt("ay/hello", why="read it")
    assert (adopted.cid, adopted.state, adopted.origin) == (theirs, "current", "ay")
    assert pair.hearer.start("two", "hello").flow == "hello"
    assert pair.hearer.fork("two", "other").flow == "hello"
    pair.hearer.behaviours.retire("hello")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour", execute=True)
    for text in ("ay/hello", theirs):  # a version retired here is refused by any name
        refused("retired", partial(pair.hearer.start, "three", text))
    assert pair.hearer.resume("two", 1).status == "suspended"  # a running session continues
    assert pair.hearer.verify().clean


def test_a_peers_marks_apply_to_its_own_versions_only(tmp_path: Path) -> None:
    """A mark in a peer's chain does not permit one of our versions, or one that the chain does not have."""
    pair = Pair(tmp_path.resolve())
    pair.owner.behaviours.add("hello", check_flow(1), SESSION_FLOW)
    pair.hearer.spawn("mine", BRIEFING)
    ours = pair.hearer.behaviours.propose("review", check_flow(2), SESSION_FLOW, agent="mine").cid
    repo, blob = pair.place("owner"), pair.blob("")
    tree_listing = git("ls-tree", f"{CHAINS}hello", cwd=repo)
    marks = plumbed("mktree", "--missing", cwd=repo, stdin=f"100644 blob {blob}\t{ours}\n")
    lines = [line for line in tree_listing.splitlines() if not line.endswith("\tadopted")]
    tree = plumbed("mktree", "--missing", cwd=repo, stdin="\n".join([*lines, f"040000 tree {marks}\tadopted", ""]))
    commit = git("commit-tree", tree, "-p", f"{CHAINS}hello", "-m", "all mine", cwd=repo).strip()
    git("update-ref", f"{CHAINS}hello", commit, cwd=repo)
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    assert git("rev-parse", "refs/clia/remotes/ay/behaviours/hello", cwd=pair.place("hearer")).strip() == commit
    refused("not-adopted", lambda: pair.hearer.start("mine", ours))
    assert pair.hearer.start("mine", "ay/hello").status == "suspended"


def test_a_session_of_a_retired_version_continues_and_cannot_be_forked(tmp_path: Path) -> None:
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        space.behaviours.add("review", check_flow(1), SESSION_FLOW)
        space.start("mine", "review")
        work = space.commit("mine", "finding", {"a.txt": b"a"})
        space.behaviours.retire("review")
        refused("retired", lambda: space.fork("mine", "other"))
        refused("retired", lambda: space.fork("mine", "other", at=work))
        assert space.agents() == ["mine"]
        space.resume("mine", 1)
        assert space.resume("mine", 2).result == [1, 2]
        space.behaviours.adopt("review", space.behaviours.get("review").versions[0].cid)
        assert space.fork("mine", "other", at=work).status == "suspended"


def test_all_versions_of_a_chain_without_marks_may_run_until_a_change_adds_marks(tmp_path: Path) -> None:
    """A chain of proposals alone has no marks either, but permits nothing."""
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        old = [space.behaviours.add("review", check_flow(number), SESSION_FLOW).cid for number in (1, 2)]
        remove_marks(tmp_path, "review")
        assert [version.state for version in space.behaviours.get("review").versions] == ["former", "current"]
        new = space.behaviours.propose("review", check_flow(3), agent="mine").cid
        assert sorted(git("ls-tree", "--name-only", f"{CHAINS}review:adopted", cwd=tmp_path).split()) == sorted(old)
        refused("not-adopted", lambda: space.start("mine", new))
        assert space.start("mine", old[0]).status == "suspended"
        alone = space.behaviours.propose("other", check_flow(4), SESSION_FLOW)
        assert alone.state == "proposed"
        space.spawn("yours", BRIEFING)
        refused("not-adopted", lambda: space.start("yours", alone.cid))


def test_an_inconsistent_or_unreadable_chain_permits_nothing_and_hides_no_other(tmp_path: Path) -> None:
    with clia.init(tmp_path.resolve(), settings=settings()) as space:
        space.spawn("mine", BRIEFING)
        version = space.behaviours.add("review", check_flow(1), SESSION_FLOW)
        good = space.behaviours.add("sound", check_flow(2), SESSION_FLOW)
        tree_listing = git("ls-tree", f"{CHAINS}review", cwd=tmp_path)
        blob = plumbed("hash-object", "-w", "--stdin", cwd=str(tmp_path))
        marks = plumbed("mktree", cwd=str(tmp_path), stdin=f"100644 blob {blob}\t{version.cid}\n")
        tree = plumbed("mktree", cwd=str(tmp_path), stdin=f"{tree_listing}040000 tree {marks}\tretired\n")
        git("update-ref", f"{CHAINS}review", git("commit-tree", tree, "-m", "both", cwd=tmp_path).strip(), cwd=tmp_path)
        git("update-ref", f"{CHAINS}broken", blob, cwd=tmp_path)
        refused("retired", lambda: space.start("mine", "review"))
        refused("retired", lambda: space.start("mine", version.cid))
        assert [behaviour.name for behaviour in space.behaviours()] == ["review", "sound"]
        assert space.start("mine", good.cid).status == "suspended"


# Other clones


def test_a_session_known_only_by_a_note_is_not_restored_with_a_flow_without_permission(tmp_path: Path) -> None:
    """Anyone who can write notes could name any flow; ``doctor --repair`` checks the permission as a start does."""
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout")
    current = space.behaviours.version("review").cid
    proposal = space.behaviours.propose("review", FLOW.replace("return answer", "return 'ran'"), agent="scout").cid
    space.start("scout", "review", 1)
    head = space.commit("scout", "finding", changes={"a.txt": b"a"})
    space.close()
    note = git("notes", "--ref=clia/session/scout", "show", head, cwd=root)
    for flow, restored in ((proposal, 0), (current, 1)):  # only the flow differs: any other change makes the checkpoint invalid
        blob = plumbed("hash-object", "-w", "--stdin", cwd=str(root), stdin=note.replace(current, flow))
        git("notes", "--ref=clia/session/scout", "add", "-f", "-C", blob, head, cwd=root)
        shutil.rmtree(root / ".git/clia")
        with clia.open(root, settings=settings()) as again:
            again.doctor(repair=True)
            assert (len(again.sessions()), len(again.pending())) == (restored, restored)


def test_the_built_in_question_cannot_be_replaced_by_a_chain(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    space = with_agents(started(root), "scout")
    git("update-ref", "refs/clia/behaviours/ask", "refs/clia/behaviours/review", cwd=root)
    assert space.ask("scout", {"question": "Well?"}).payload == {"question": "Well?"}
