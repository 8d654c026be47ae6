"""Corners of behaviours that a change in the code could turn round without another test noticing: what runs, what counts, what is
suggested."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.behaviours import sources
from clia.behaviours.library import EVIDENCE_MAX, NOTES_MAX, checked_evidence
from clia.behaviours.measures import ObservationSum
from clia.behaviours.model import ADOPT, KEEP, NOT_ENOUGH, RETIRE, BehaviourVersion, KnownBehaviour, Suggestion
from clia.behaviours.observing import OUTCOME
from clia.behaviours.statistics import Count, proven, rounded
from clia.behaviours.suggesting import Policy, suggest
from clia.cli import behaviour_versions as lineage
from clia.git.records import FILE, Stamp, TreeEntry
from clia.space.model import EVENT
from clia.testing import components
from clia.values.commit_messages import compose
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.behaviour_walks import observed, rebuilt, started
from support.federation import Pair, plumbed
from support.session_spaces import Place, root_of, with_agents
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHAINS, EVENTS = "refs/clia/behaviours/", "refs/clia/events/"
AT = 1_780_000_000


def flow(number: int) -> str:
    return f"def main(input):\n    return [request('check', {number}), request('check', 'more')]\n"


def put(
    space: clia.Space,
    ref: str,
    changes: Mapping[str, bytes | None],
    message: str = "by hand",
    *,
    at: int = AT,
    parents: Sequence[str] | None = None,
) -> str:
    """A commit that whoever has plain git could make: a ref's tree with some files changed, on top of it unless told."""
    objects, refs = space.core.objects, space.core.refs
    tip = refs.get(ref)
    files = {path: None if data is None else TreeEntry(FILE, objects.write_blob(data)) for path, data in changes.items()}
    tree = objects.update_tree(objects.commit(tip).tree if tip else None, files)
    by = Stamp("Tess", "tess@example.org", at)
    made = objects.write_commit(tree, ([tip] if tip else []) if parents is None else parents, by, by, message)
    refs.move(ref, tip, made, "by hand")
    return made


def event(space: clia.Space, agent: str, body: Mapping[str, Any], **more: Any) -> str:
    return put(space, f"{EVENTS}{agent}", {}, compose("x", [(EVENT, json.dumps(body))], "x"), **more)


def states(space: clia.Space, name: str) -> dict[str, str]:
    return {each.cid: each.state for each in space.behaviour(name).versions}


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with started(tmp_path.resolve() / "repo") as made:
        yield made


# A peer's versions


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A peer with four flows, each with a proposal of its own, and a prompt; a grant lets its behaviours run here."""
    made = Pair(tmp_path_factory.mktemp("survivors").resolve())
    for number, name in enumerate(("hello", "forked", "twice", "past")):
        made.owner.add_behaviour(name, flow(10 + number), SESSION_FLOW)
        made.owner.propose_behaviour(name, flow(20 + number))
    made.owner.add_behaviour("review", "Look twice.", PROMPT)
    made.owner.announce("bee")
    made.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    assert not made.sync().refused
    with_agents(made.hearer, "one", "two")
    made.hearer.add_behaviour("review", flow(1), SESSION_FLOW)
    yield made
    made.owner.close()
    made.hearer.close()


def test_a_session_of_a_peers_is_not_forked_with_what_may_not_run(pair: Pair) -> None:
    """Whatever a note says that the peer's version is, and what was retired here, though the peer goes on with it."""
    space, root = pair.hearer, pair.place("hearer")
    theirs = space.behaviour_version("ay/forked").cid
    proposed = space.propose_behaviour("review", flow(2), agent="one").cid
    foreign = pair.owner.behaviour("forked").versions[1].cid
    space.start("one", "ay/forked")
    head = space.commit("one", "finding", {"a.txt": b"a"})
    assert space.fork("one", "honest", at=head).flow == "ay/forked"
    said = git("notes", "--ref=clia/session/one", "show", head, cwd=root)
    for claimed, code in ((proposed, "not-adopted"), (foreign, "execute-denied")):
        blob = plumbed("hash-object", "-w", "--stdin", cwd=root, stdin=said.replace(theirs, claimed))
        git("notes", "--ref=clia/session/one", "add", "-f", "-C", blob, head, cwd=root)
        refused(code, partial(space.fork, "one", "other", at=head))
    space.adopt_behaviour("ay/forked")
    space.retire_behaviour("forked")
    refused("retired", lambda: space.fork("one", "other"))
    assert "other" not in space.agents()


def test_what_a_peer_itself_does_not_let_run_does_not_run_here(pair: Pair) -> None:
    """A grant with execute is for what the peer lets run: not its proposals, nor what it calls both current and retired."""
    space = pair.hearer
    refused("execute-denied", lambda: space.start("two", pair.owner.behaviour("hello").versions[1].cid))
    cid = space.behaviour_version("ay/hello").cid
    put(space, "refs/clia/remotes/ay/behaviours/hello", {f"retired/{cid}": b""})
    refused("retired", lambda: space.behaviour_version("ay/hello"))
    refused("retired", lambda: space.start("two", "ay/hello"))


def test_what_was_retired_under_one_name_runs_by_another_that_people_let_it_run_under(pair: Pair) -> None:
    space, root = pair.hearer, pair.place("hearer")
    space.adopt_behaviour("ay/twice")
    git("update-ref", f"{CHAINS}second", f"{CHAINS}twice", cwd=root)
    space.retire_behaviour("twice")
    assert space.start("two", "ay/twice").status == "suspended"
    space.retire_behaviour("second")
    space.cancel("two")
    refused("retired", lambda: space.start("two", "ay/twice"))


def test_a_peers_version_is_checked_before_it_is_adopted(pair: Pair) -> None:
    """It is of the kind that the name has here, and what could not be added here is not adopted either."""
    space, root = pair.hearer, pair.place("hearer")
    refused("wrong-kind", lambda: space.adopt_behaviour("ay/review"))
    wrong = as_bytes(Behaviour("wrong", SESSION_FLOW, "def main(:\n").to_object())
    cid = space.core.objects.blob_id(wrong)
    put(space, "refs/clia/remotes/ay/behaviours/wrong", {f"versions/{cid}.json": wrong, "current": cid.encode()})
    refused("invalid-flow", lambda: space.adopt_behaviour("ay/wrong"))
    assert git("for-each-ref", f"{CHAINS}wrong", cwd=root) == ""


def test_a_peers_session_is_not_replayed_without_execute_whatever_it_is_replayed_with(pair: Pair) -> None:
    """The recorded flow runs, too."""
    space = with_agents(pair.hearer, "three")
    space.start("three", "ay/past")
    mine = space.behaviour_version("review").cid
    assert space.replay_behaviour("three", mine).departs_at == 1
    space.revoke("ay", "behaviour")
    refused("execute-denied", lambda: space.replay_behaviour("three", mine))
    space.grant("ay", "behaviour", "behaviour", execute=True)


# Chains that plain git wrote


def test_a_chain_with_marks_of_any_sort_is_none_from_before_there_were_marks(space: clia.Space) -> None:
    old = [space.add_behaviour("plan", f"Look {each}.", PROMPT).cid for each in range(3)]
    put(space, f"{CHAINS}plan", {f"adopted/{cid}": None for cid in old} | {f"retired/{old[0]}": b""})
    assert states(space, "plan") == dict(zip(old, ("retired", "proposed", "current"), strict=True))
    put(space, f"{CHAINS}plan", {f"retired/{old[0]}": None})
    assert states(space, "plan") == dict(zip(old, ("former", "former", "current"), strict=True))


def test_a_ref_below_a_name_is_no_behaviour_and_lets_nothing_run(space: clia.Space) -> None:
    root = root_of(space)
    space.spawn("scout", BRIEFING)
    hidden = space.propose_behaviour("review", flow(1), agent="scout").cid
    space.adopt_behaviour("review", hidden, trial=True)
    git("update-ref", f"{CHAINS}deep/er", f"{CHAINS}review", cwd=root)
    space.retire_behaviour("review", hidden)
    assert [each.name for each in space.behaviours()] == ["review"]
    refused("retired", lambda: space.start("scout", hidden))


def test_retiring_mends_a_chain_that_calls_one_version_both_current_and_retired(space: clia.Space) -> None:
    cid = space.add_behaviour("plan", "Look.", PROMPT).cid
    put(space, f"{CHAINS}plan", {f"retired/{cid}": b""})
    space.retire_behaviour("plan", cid)
    assert "current" not in git("ls-tree", "--name-only", f"{CHAINS}plan", cwd=root_of(space)).split()


def test_no_version_comes_from_itself_where_only_its_end_is_known(space: clia.Space) -> None:
    """What was current when it was retired was that very version: what came before is told by older commits, which are lacking."""
    space.add_behaviour("plan", "Look.", PROMPT)
    space.retire_behaviour("plan")
    put(space, f"{CHAINS}plan", {}, git("log", "-1", "--format=%B", f"{CHAINS}plan", cwd=root_of(space)), parents=[])
    assert [(each.state, each.parent) for each in space.behaviour("plan").versions] == [("retired", None)]


def test_what_is_expected_counts_also_where_nothing_is_current(space: clia.Space) -> None:
    cid = space.add_behaviour("plan", "Look.", PROMPT).cid
    refused("stale-behaviour", lambda: space.adopt_behaviour("plan", cid, expect="none"))
    space.retire_behaviour("plan", expect=cid)
    refused("stale-behaviour", lambda: space.adopt_behaviour("plan", cid, expect=cid))
    refused("stale-behaviour", lambda: space.retire_behaviour("plan", cid, expect=cid))
    assert space.adopt_behaviour("plan", cid, expect="none").state == "current"


def test_notes_and_evidence_go_to_their_limit_and_no_further(space: clia.Space) -> None:
    assert len(space.add_behaviour("plan", "Look.", PROMPT, notes="x" * NOTES_MAX).notes) == NOTES_MAX
    refused("too-long", lambda: space.add_behaviour("plan", "Look!", notes="x" * (NOTES_MAX + 1)))
    some = [f"{each:040x}" for each in range(EVIDENCE_MAX + 1)]
    assert checked_evidence([*some[1:], some[1]], str) == some[1:]
    refused("too-much", lambda: checked_evidence(some, str))


def test_a_session_starts_by_the_start_of_a_versions_id(space: clia.Space) -> None:
    trial = with_agents(space, "scout").behaviour("review").versions[1].cid
    refused("no-such-flow", lambda: space.start("scout", "0123abc"))
    assert space.start("scout", trial[:12], 1).status == "suspended"
    assert space.commit("scout", "test", {"a": b"1"})
    assert space.session_log("scout")[0].behaviour == trial


# What is observed


def test_only_what_was_done_with_a_prompt_is_merged_work_and_its_age_is_that_of_the_first(space: clia.Space) -> None:
    """Whoever was briefed and did nothing yet has brought nothing."""
    space.add_behaviour("idle", "Wait.", PROMPT)
    space.add_behaviour("busy", "Work.", PROMPT)
    space.spawn("ada", BRIEFING)
    space.spawn_at("bob", space.brief("busy", "work"), "main")
    first = space.commit("bob", "finding", {"a": b"1"})
    for _ in range(20):
        space.trace("bob", "model", "thinks, while time passes")
    space.commit("bob", "finding", {"a": b"2"})
    space.spawn_from("cleo", space.brief("idle", "wait"), "bob")
    space.merge("ada", "cleo")
    (idle,), (busy,) = space.behaviour_stats("idle"), space.behaviour_stats("busy")
    assert (idle.commits, idle.merges, busy.merges) == ({"spawn": 1}, {}, {"merged": 1})
    times = [space.core.objects.commit(cid).committer.at for cid in (first, space.head("ada"))]
    assert busy.merge_seconds == {"n": 1, "median": rounded(times[1] - times[0]), "p90": rounded(times[1] - times[0])}


def _prompted(space: clia.Space, name: str) -> str:
    """An agent whose prompt is its own, with one commit; that."""
    space.add_behaviour(name, f"Look twice, {name}.", PROMPT)
    space.spawn_at(name, space.brief(name, "work"), "main")
    return space.commit(name, "finding", {f"{name}.txt": b"1"})


def _reverts(space: clia.Space, branch: str, target: str) -> None:
    put(space, f"refs/heads/{branch}", {}, f'Revert "it"\n\nThis reverts commit {target}.\n')


def _landed(space: clia.Space, name: str, onto: str = "main") -> str:
    made = space.land(name, onto, squash=True)
    assert isinstance(made, clia.Landed)
    return made.cid


def _kept(space: clia.Space, name: str) -> tuple[int, int]:
    found = space.behaviour_stats(name)[0]
    return found.landed, found.reverted


def test_reverts_are_found_before_a_later_landing_on_the_branch_or_on_one_made_from_it(space: clia.Space) -> None:
    """Where to stop looking is told by the first landing on all branches, not by the last, nor by each branch's own."""
    _prompted(space, "one")
    _reverts(space, "main", _landed(space, "one"))
    _prompted(space, "two")
    _landed(space, "two")
    assert _kept(space, "one") == (1, 1)
    git("branch", "later", "main", cwd=root_of(space))
    _prompted(space, "three")
    _landed(space, "three", "later")
    assert _kept(space, "one") == (1, 1)
    assert observed(space) == rebuilt(space)  # what landed is forgotten, too, and found again


def test_a_revert_of_a_commit_is_about_the_landing_that_brought_it_first_and_no_other(space: clia.Space) -> None:
    """Not about a later one that has it too, and about none where the commit never landed."""
    work = _prompted(space, "one")
    first = _landed(space, "one")
    space.commit("one", "finding", {"more.txt": b"1"})
    _landed(space, "one")
    never = space.commit("one", "finding", {"never.txt": b"1"})
    _reverts(space, "main", never)
    assert _kept(space, "one") == (2, 0)
    _reverts(space, "main", work)
    _reverts(space, "main", first)
    assert _kept(space, "one") == (2, 1)


def test_an_archived_agents_work_counts_as_before(space: clia.Space) -> None:
    _prompted(space, "one")
    before = observed(space)
    space.archive("one")
    assert observed(space) == before
    assert rebuilt(space) == before
    assert [each.commits for each in space.behaviour_stats("one")] == [{"finding": 1, "spawn": 1}]


def test_an_object_that_is_lost_is_a_gap_also_where_the_clone_is_not_shallow(space: clia.Space) -> None:
    root = root_of(space)
    lost = _prompted(space, "one")
    space.commit("one", "finding", {"more.txt": b"1"})
    space.close()
    Path(root, "objects", lost[:2], lost[2:]).unlink()
    with clia.open(root, settings=settings()) as again:
        assert again.behaviour_stats("one")[0].commits == {"finding": 1}
        assert again.observation_gaps() == 1


def test_a_session_that_ends_again_and_a_chain_that_comes_in_are_read_as_if_for_the_first_time(space: clia.Space) -> None:
    """The last end of a session counts, and of a refusal that two clones have seen, the earlier one."""
    cid = space.behaviour_version("review").cid
    space.spawn("ada", BRIEFING)
    ended = {"event": "session-ended", "session": "1", "flow": cid, "status": "finished"}
    event(space, "ada", ended)
    assert space.behaviour_stats("review")[0].sessions == {"finished": 1}
    event(space, "ada", ended | {"status": "failed"}, at=AT + 10)
    assert space.behaviour_stats("review")[0].sessions == {"failed": 1}
    space.spawn("bob", BRIEFING)
    space.start("bob", "review", 1)
    work = space.commit("bob", "test", {"a": b"1"})
    refusal = {"event": "merge-refused", "ours": space.head("ada"), "theirs": work}
    base = space.core.refs.get(f"{EVENTS}ada") or ""
    ours = event(space, "ada", refusal, at=AT + 86400 * 9)
    assert space.behaviour_stats("review")[0].last == "2026-06-06"
    theirs = event(space, "ada", refusal, at=AT + 86400, parents=[base])
    git("update-ref", f"{EVENTS}ada", ours, cwd=root_of(space))
    put(space, f"{EVENTS}ada", {}, at=AT + 86400 * 10, parents=[ours, theirs])
    found = space.behaviour_stats("review")[0]
    assert (found.merges, found.last) == ({"refused": 1}, "2026-05-29")
    assert observed(space) == rebuilt(space)


def test_no_answer_leaves_out_a_landing_that_another_process_reads_meanwhile(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before it has looked for reverts; whoever looked for them at that moment looks again."""
    _prompted(space, "one")
    _prompted(space, "two")
    _landed(space, "one")
    of_people = sources.of_people
    turns: list[str] = []

    def meanwhile(*given: Any) -> Any:
        if not turns:
            turns.append("once")
            _reverts(space, "main", _landed(space, "two"))
            with clia.open(root_of(space), settings=settings()) as other:
                monkeypatch.setattr(components(other).observations, "_catch_up_reverts", lambda: None)
                components(other).observations.catch_up()
        return of_people(*given)

    monkeypatch.setattr(sources, "of_people", meanwhile)
    assert {each.name: each.reverted for each in space.behaviour_stats() if each.landed} == {"one": 0, "two": 1}
    assert turns


# What is suggested


def test_a_proof_has_the_values_that_are_worked_out_by_hand() -> None:
    """60 and 90 of 100: the score is 24, the bar (1 + 1/4.5) (ln 5.5 + 2 ln 20). 995 of 1000 and 18 of 20: the ratio is 7.7335."""
    assert proven(Count(60, 40), Count(90, 10)).reached == pytest.approx(2.55143, abs=1e-5)
    assert proven(Count(995, 5), Count(18, 2)).reached == pytest.approx(0.70433, abs=1e-5)


def _suggested(own: Count, *others: tuple[str, Count], policy: Policy = Policy("passed")) -> Suggestion:  # noqa: B008  # a constant
    """What is suggested of a current version and others, each with its state; their ids are 1, 2, 3."""
    listed = [("current", own), *others]
    versions = tuple(BehaviourVersion("review", str(at), PROMPT, state, "") for at, (state, _) in enumerate(listed))
    sums = {
        str(at): ObservationSum({"2026-05-01": {f"{OUTCOME}passed": count.good, f"{OUTCOME}failed": count.bad}}, {})
        for at, (_, count) in enumerate(listed)
    }
    return suggest(KnownBehaviour("review", PROMPT, "0", versions, ()), versions[0], sums, policy)


def test_the_error_is_shared_among_those_that_may_run_and_no_others() -> None:
    """48 of 60 beside 30 of 60 is a proof for one alone, and none for one of two; what nobody let run does not count."""
    half, more = Count(30, 30), Count(48, 12)
    assert proven(half, more, 0.05).reached > 1 > proven(half, more, 0.025).reached
    idle = [(state, Count()) for state in ("proposed", "proposed", "retired")]
    found = _suggested(half, ("trial", more), *idle)
    assert (found.action, found.cid, [each.cid for each in found.candidates]) == (ADOPT, "1", ["1", "2", "3"])
    assert _suggested(half, ("trial", more), ("former", Count())).action == KEEP


def test_of_several_the_best_is_adopted_and_the_worst_retired_and_enough_is_asked_of_the_current_one_too() -> None:
    half, few = Count(100, 100), Count(0, 19)
    good, better = ("trial", Count(170, 30)), ("trial", Count(195, 5))
    bad, worse = ("former", Count(30, 170)), ("former", Count(5, 195))
    assert [_suggested(half, *each)[1:3] for each in ((good, better), (better, good))] == [(ADOPT, "2"), (ADOPT, "1")]
    assert [_suggested(half, *each)[1:3] for each in ((bad, worse), (worse, bad))] == [(RETIRE, "2"), (RETIRE, "1")]
    assert _suggested(few, ("trial", Count(1000, 0))).action == NOT_ENOUGH


def test_a_names_own_policy_comes_before_the_one_for_all(tmp_path: Path) -> None:
    text = '[behaviours."*"]\nleast = 30\n[behaviours.review]\nleast = 40\n'
    with Place(tmp_path.resolve() / "repo").configured(text).open() as space:
        for name in ("review", "plan"):
            space.add_behaviour(name, "Look.", PROMPT)
        assert [space.suggest_behaviour(name).least for name in ("review", "plan")] == [40, 30]


# What is drawn


def test_a_long_line_of_versions_is_drawn_in_pieces_that_say_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    """Else what is deep stands beyond the edge of every screen. What goes in a circle is left as it is."""
    line = [f"{each:04x}" * 10 for each in range(100)]
    children = {cid: line[at + 1 : at + 2] for at, cid in enumerate(line)} | {"a": ["b"], "b": ["a"]}
    pieces, cut = lineage.split_deep_branches(children, children)
    assert cut == {line[at]: line[at - 1] for at in range(9, 100, 9)}
    assert pieces == {cid: [each for each in found if each not in cut] for cid, found in children.items()}
    versions = tuple(BehaviourVersion("review", cid, PROMPT, "former", "", by="Tess <tess@example.org>") for cid in children)
    lineage._show_lineage(KnownBehaviour("review", PROMPT, None, versions, ()), {}, children, ascii_only=True)
    said = capsys.readouterr().out.splitlines()
    assert [each.split(" former")[0] for each in said[7:11]] == [
        f"{' ' * 24}`-- {line[7][:10]}",
        f"{' ' * 28}`-- {line[8][:10]}",
        f"from {line[8][:10]}: {line[9][:10]}",
        f"`-- {line[10][:10]}",
    ]
    assert [cid for cid, drawn in zip(line, said, strict=False) if f"{cid[:10]} former" not in drawn] == []
