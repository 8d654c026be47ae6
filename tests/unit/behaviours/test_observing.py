"""What a commit, an event, a note or a revert is taken for; and that nobody who writes nonsense into them hides anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pygit2
import pytest

from clia.behaviours.measures import COMMITS_KEPT, MEASURES, ObservationSum, add_sum, count_of, series, sum_observations, totals
from clia.behaviours.observing import (
    LANDED,
    OUTCOME,
    REVERTED,
    LandedWork,
    Observation,
    day_of,
    ended_of,
    landing_of,
    outcome_of,
    tokens_of,
    verdict_of,
)
from clia.behaviours.sources import effective_reverts
from clia.behaviours.statistics import Count
from clia.space.model import AGENT, BEHAVIOUR, EVENT, META, TYPE, VALUE, Landed
from clia.values import commit_messages as messages
from clia.values import refs
from support import git
from support.behaviour_walks import observed, rebuilt, started
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    import clia

AN_ID = "ab" * 20
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("value", "verdict", "outcome"),
    [
        ("yes", "approved", None),
        (" OK\n", "approved", "passed"),
        (True, "approved", "passed"),
        (1, "approved", None),
        (0, "rejected", None),
        ("Denied", "rejected", None),
        ("failed", "other", "failed"),
        ({"approved": False, "why": "yes"}, "rejected", None),
        ({"status": "green"}, "other", "passed"),
        ({"status": {"status": "green"}}, "other", None),
        ({"value": ["yes"]}, "other", None),
        (1.0, "other", None),
        (1e308, "other", None),
        (10**4000, "other", None),
        (None, "other", None),
        ([], "other", None),
    ],
)
def test_only_what_says_yes_or_no_is_a_verdict_or_an_outcome(value: Any, verdict: str, outcome: str | None) -> None:
    assert (verdict_of(value), outcome_of(value)) == (verdict, outcome)


def test_tokens_are_counted_by_either_name_and_never_beyond_belief() -> None:
    said: list[Any] = [
        {"data": {"usage": {"input_tokens": 5, "output_tokens": 2}}},
        {"data": {"usage": {"prompt_tokens": 7, "completion_tokens": 10**30}}},
        {"data": {"usage": {"input_tokens": -9, "output_tokens": 1.5}}},
        {"data": {"usage": {"input_tokens": True, "output_tokens": "7"}}},
        {"data": {"usage": [1]}},
        {"data": None},
        "text",
    ]
    assert tokens_of(said) == {"input": 12, "output": 2}


@pytest.mark.parametrize("at", [-(2**63), -1, 0, 2**40, 2**63])
def test_any_moment_that_a_commit_claims_has_a_day(at: int) -> None:
    assert "1970-01-01" <= day_of(at) <= "9999-12-31"


@pytest.mark.parametrize("wrong", [None, 7, [], {}, "x", True, "../../x"])
def test_an_event_with_a_wrong_type_in_a_field_says_nothing_or_something_else(wrong: Any) -> None:
    ended = {"event": "session-ended", "session": "1", "flow": AN_ID, "status": "finished"}
    landed = {"event": "landed", "cid": AN_ID, "head": AN_ID, "onto": "refs/heads/main", "base": AN_ID}
    for field in ended:
        found = ended_of(ended | {field: wrong})
        assert found is None or found.status in ("finished", "other")
    for field in landed:
        made = landing_of(landed | {field: wrong}, 5)
        assert made is None or (field == "base" and made.base is None)
    assert ended_of(ended) == ("1", AN_ID, "finished")
    assert landing_of(landed, 5) == LandedWork(AN_ID, AN_ID, "refs/heads/main", AN_ID, 5)
    assert landing_of(landed | {"onto": "refs/heads/agents/ada"}, 5) is None


def test_a_revert_stands_unless_one_that_stands_has_undone_it() -> None:
    assert effective_reverts({}) == set()
    assert effective_reverts({"r1": "work"}) == {"r1"}
    assert effective_reverts({"r1": "work", "r2": "r1"}) == {"r2"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "r2"}) == {"r1", "r3"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "work"}) == {"r2", "r3"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "r1", "r4": "r3"}) == {"r2", "r4"}
    chain = {f"{number + 1}": f"{number}" for number in range(50_001)}
    assert len(effective_reverts(chain)) == 25_001  # and no deep recursion


def test_sums_are_the_same_in_any_order_and_taking_away_undoes_adding() -> None:
    seen = [Observation("v", f"{OUTCOME}passed", at * 40_000, f"{at:040x}") for at in range(30)]
    whole, bit_by_bit = sum_observations(seen)["v"], ObservationSum({}, {})
    for each in reversed(seen):
        add_sum(bit_by_bit, sum_observations([each])["v"])
    assert bit_by_bit == whole
    assert [origin for _, origin in whole.commits[f"{OUTCOME}passed"]] == [f"{at:040x}" for at in range(29, 29 - COMMITS_KEPT, -1)]
    add_sum(bit_by_bit, whole, -1)
    assert bit_by_bit.days == {}
    assert totals(whole.days) == {f"{OUTCOME}passed": 30}


def test_a_revert_is_told_of_the_day_on_which_the_work_landed() -> None:
    """So that a rate over time says what became of that day's work, not what people were busy with later."""
    days = {"2026-05-01": {LANDED: 4, REVERTED: 1}, "2026-05-09": {LANDED: 1}}
    assert [(each.start, each.rates[0].good, each.rates[0].n) for each in series(days, "week")] == [
        ("2026-04-27", 3, 4),
        ("2026-05-04", 1, 1),
    ]
    assert count_of({REVERTED: 9, LANDED: 2}, "kept") == Count(0, 2)
    assert all(count_of({}, measure) == Count() for measure in MEASURES)


# A repository that somebody else wrote


class Hostile:
    """Commits and events of an agent with whatever in them."""

    def __init__(self, root: Path) -> None:
        self.space = started(root)
        self.space.spawn("ada", BRIEFING)
        self.repo = pygit2.Repository(str(root))
        self.flow = self.space.behaviour_version("review").cid

    def put(self, ref: str, trailers: list[tuple[str, str]], at: int = 1_780_000_000) -> str:
        """Raw: libgit2 itself would write no such date."""
        tip = self.repo.references[ref].target if ref in self.repo.references else None
        by = f"x <x@example.org> {at} +0000"
        lines = [f"tree {pygit2.Index().write_tree(self.repo)}", *([f"parent {tip}"] if tip else [])]
        text = "\n".join([*lines, f"author {by}", f"committer {by}", "", messages.compose("x", trailers, "x")])
        made = self.repo.write(pygit2.enums.ObjectType.COMMIT, text.encode())
        self.repo.references.create(ref, made, force=True)
        return str(made)

    def commit(self, *trailers: tuple[str, str], kind: str = "test", at: int = 1_780_000_000) -> str:
        return self.put(refs.head("ada"), [(AGENT, "ada"), (TYPE, kind), *trailers], at)

    def event(self, body: dict[str, Any] | str) -> None:
        self.put(refs.events("ada"), [(EVENT, body if isinstance(body, str) else json.dumps(body))])


def test_nonsense_in_commits_events_and_notes_hides_nothing_else(tmp_path: Path) -> None:
    """Behaviours that are no ids, outcomes that are objects, dates beyond all calendars, depths and numbers beyond all parsers."""
    evil = Hostile(tmp_path / "repo")
    ran = (BEHAVIOUR, evil.flow)
    for behaviour in ("x" * 5000, "../../sum", "ü" * 40, evil.flow.upper()):
        evil.commit((BEHAVIOUR, behaviour))
    for meta in ('{"outcome": {"status": ["passed"]}}', '{"outcome": 1e308}', DEEP, '{"outcome": ' + "9" * 5000 + "}", "[]", "{"):
        evil.commit(ran, (META, meta))
    for at in (-5, 0, 2**33, 2**40):
        evil.commit(ran, (META, '{"outcome": "passed"}'), at=at)
    evil.commit(ran, kind="a kind\t" + "y" * 5000)
    evil.commit(ran, (VALUE, DEEP), kind="decision")
    head = evil.commit(ran, (VALUE, '"yes"'), kind="decision")
    ended = {"event": "session-ended", "session": "1", "flow": evil.flow, "status": "finished"}
    landed = {"event": "landed", "cid": head, "head": head, "onto": "refs/heads/main", "base": None}
    for text in ("{}", "[]", DEEP, '{"event": ["landed"]}', "{"):
        evil.event(text)
    evil.event(ended | {"flow": 7})
    evil.event(ended | {"session": [DEEP[:100]], "status": {"a": 1}})
    for onto in ("..", "a b", "x\0", "\ud800", "x" * 5000, "main"):
        evil.event(landed | {"onto": f"refs/heads/{onto}"})
    for theirs in (7, "\ud800", "\0", head[:39]):
        evil.event({"event": "merge-refused", "ours": head, "theirs": theirs})
    for session in ("\ud800", "\0", "x" * 5000):
        evil.event(ended | {"session": session})
    evil.event(ended | {"session": "2"})
    blob = evil.repo.create_blob(DEEP.encode())
    git("notes", f"--ref={refs.traces('ada')}", "add", "-C", str(blob), head, cwd=tmp_path / "repo")
    found = evil.space.behaviour_stats("review", over="day")[0]
    assert (found.commits, found.outcomes) == ({"test": 10, "decision": 2, "other": 1}, {"passed": 4})
    assert (found.decisions, found.sessions) == ({"approved": 1, "other": 1}, {"finished": 4, "other": 1})
    assert (found.landed, found.reverted, found.trace) == (2, 0, {"bytes": len(DEEP)})
    assert (found.first, found.last) == ("1970-01-01", "9999-12-31")
    assert evil.space.suggest_behaviour("review", "passed").action == "not-enough-data"
    assert rebuilt(evil.space) == observed(evil.space)


def test_a_commit_counts_once_whoever_else_has_it_in_their_history(tmp_path: Path) -> None:
    """A sub-agent that started at another's head, a branch of another name at the same commit, and two agents that merged it."""
    space = started(tmp_path / "repo")
    space.spawn("ada", BRIEFING)
    space.start("ada", "review", 1)
    space.commit("ada", "test", changes={"a": b"1"}, meta={"outcome": "passed"})
    space.spawn_from("bob", BRIEFING, "ada")
    git("branch", "agents/cleo", space.head("ada"), cwd=tmp_path / "repo")
    for name in ("dan", "eve"):
        space.spawn(name, BRIEFING)
        space.merge(name, "ada")
    found = space.behaviour_stats("review")[0]
    assert (found.commits, found.outcomes) == ({"test": 1}, {"passed": 1})
    assert found.merges == {"merged": 2}  # each of the two merges is a trial of its own
    assert space.observation_gaps() == 0


def test_what_never_committed_counts_and_a_refusal_counts_once_however_often_it_is_tried(tmp_path: Path) -> None:
    space = started(tmp_path / "repo")
    for name in ("ada", "bob"):
        space.spawn(name, BRIEFING)
    space.start("bob", "review", 1)
    space.decide("bob", "break")  # its only commit is the decision
    space.start("bob", "review", 2)
    space.cancel("bob")
    space.start("ada", "review", 3)
    space.commit("ada", "test", changes={"same": b"ada"})
    space.commit("bob", "test", changes={"same": b"bob"})
    for _ in range(3):
        space.merge("bob", "ada")
    found = space.behaviour_stats("review")[0]
    assert found.sessions == {"failed": 1, "cancelled": 1}
    assert found.merges == {"refused": 1}
    space.commit("ada", "test", changes={"same": b"once more"})
    space.merge("bob", "ada")
    assert space.behaviour_stats("review")[0].merges == {"refused": 2}  # other work than before


def _landed(space: clia.Space, number: int, *, squash: bool = False, no_ff: bool = False) -> str:
    """Work of the second version the fourth time, of the first before."""
    space.start("ada", space.behaviour("review").versions[number > 3].cid, number)
    space.commit("ada", "test", changes={f"f{number}": b"x"})
    space.decide("ada", "yes")
    made = space.land("ada", "main", squash=squash, no_ff=no_ff)
    assert isinstance(made, Landed)
    return made.cid


def test_landings_count_by_what_was_new_in_them_and_reverts_of_stock_git_take_them_back(tmp_path: Path) -> None:
    """Fast-forward, merge, and squash twice; reverted by ``git revert``, that reverted again, and once more."""
    root = tmp_path / "repo"
    space = started(root)
    space.spawn("ada", BRIEFING)
    git("worktree", "add", "-q", str(tmp_path / "main"), "main", cwd=root)
    cids = [_landed(space, 1), _landed(space, 2, no_ff=True), _landed(space, 3, squash=True), _landed(space, 4, squash=True)]
    first, second = space.behaviour_stats("review")
    assert (first.landed, second.landed) == (3, 1)  # the second squash brought nothing new of the first version's

    def reverted(*words: str) -> int:
        git("reset", "-q", "--hard", cwd=tmp_path / "main")
        git("revert", "--no-edit", *words, cwd=tmp_path / "main")
        return sum(each.reverted for each in space.behaviour_stats("review"))

    assert reverted(cids[3]) == 1
    assert reverted("-m", "1", cids[1]) == 2
    assert reverted("HEAD") == 1  # the revert of the merge is reverted
    assert reverted("HEAD") == 2
    assert reverted("HEAD~3") == 1  # what took back the squash is taken back
    git("reset", "-q", "--hard", "HEAD~4", cwd=tmp_path / "main")
    assert sum(each.reverted for each in space.behaviour_stats("review")) == 1  # only the first revert is still there
    git("reset", "-q", "--hard", "HEAD~1", cwd=tmp_path / "main")
    assert sum(each.reverted for each in space.behaviour_stats("review")) == 0
    assert rebuilt(space) == observed(space)
