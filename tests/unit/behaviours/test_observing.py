"""Observations from commits, events, notes and reverts; invalid content does not hide anything else."""

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
def test_only_clear_values_are_verdicts_or_outcomes(value: Any, verdict: str, outcome: str | None) -> None:
    assert (verdict_of(value), outcome_of(value)) == (verdict, outcome)


def test_tokens_are_counted_by_either_name_and_bounded() -> None:
    entries: list[Any] = [
        {"data": {"usage": {"input_tokens": 5, "output_tokens": 2}}},
        {"data": {"usage": {"prompt_tokens": 7, "completion_tokens": 10**30}}},
        {"data": {"usage": {"input_tokens": -9, "output_tokens": 1.5}}},
        {"data": {"usage": {"input_tokens": True, "output_tokens": "7"}}},
        {"data": {"usage": [1]}},
        {"data": None},
        "text",
    ]
    assert tokens_of(entries) == {"input": 12, "output": 2}


@pytest.mark.parametrize("at", [-(2**63), -1, 0, 2**40, 2**63])
def test_any_commit_time_has_a_day(at: int) -> None:
    assert "1970-01-01" <= day_of(at) <= "9999-12-31"


@pytest.mark.parametrize("wrong", [None, 7, [], {}, "x", True, "../../x"])
def test_an_event_with_a_wrong_type_in_a_field_is_ignored_or_counts_as_other(wrong: Any) -> None:
    ended = {"event": "session-ended", "session": "1", "flow": AN_ID, "status": "finished"}
    landed = {"event": "landed", "cid": AN_ID, "head": AN_ID, "onto": "refs/heads/main", "base": AN_ID}
    for field in ended:
        session_end = ended_of(ended | {field: wrong})
        assert session_end is None or session_end.status in ("finished", "other")
    for field in landed:
        landing = landing_of(landed | {field: wrong}, 5)
        assert landing is None or (field == "base" and landing.base is None)
    assert ended_of(ended) == ("1", AN_ID, "finished")
    assert landing_of(landed, 5) == LandedWork(AN_ID, AN_ID, "refs/heads/main", AN_ID, 5)
    assert landing_of(landed | {"onto": "refs/heads/agents/ada"}, 5) is None


def test_a_revert_is_effective_unless_an_effective_one_reverts_it() -> None:
    assert effective_reverts({}) == set()
    assert effective_reverts({"r1": "work"}) == {"r1"}
    assert effective_reverts({"r1": "work", "r2": "r1"}) == {"r2"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "r2"}) == {"r1", "r3"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "work"}) == {"r2", "r3"}
    assert effective_reverts({"r1": "work", "r2": "r1", "r3": "r1", "r4": "r3"}) == {"r2", "r4"}
    chain = {f"{number + 1}": f"{number}" for number in range(50_001)}
    assert len(effective_reverts(chain)) == 25_001  # without deep recursion


def test_sums_do_not_depend_on_order_and_subtracting_undoes_adding() -> None:
    observations = [Observation("v", f"{OUTCOME}passed", number * 40_000, f"{number:040x}") for number in range(30)]
    total, accumulated = sum_observations(observations)["v"], ObservationSum({}, {})
    for observation in reversed(observations):
        add_sum(accumulated, sum_observations([observation])["v"])
    assert accumulated == total
    assert [origin for _, origin in total.commits[f"{OUTCOME}passed"]] == [
        f"{number:040x}" for number in range(29, 29 - COMMITS_KEPT, -1)
    ]
    add_sum(accumulated, total, -1)
    assert accumulated.days == {}
    assert totals(total.days) == {f"{OUTCOME}passed": 30}


def test_a_revert_counts_on_the_day_of_the_landing() -> None:
    """So a rate over time describes that day's work, not when it was reverted."""
    days = {"2026-05-01": {LANDED: 4, REVERTED: 1}, "2026-05-09": {LANDED: 1}}
    assert [(period.start, period.rates[0].good, period.rates[0].n) for period in series(days, "week")] == [
        ("2026-04-27", 3, 4),
        ("2026-05-04", 1, 1),
    ]
    assert count_of({REVERTED: 9, LANDED: 2}, "kept") == Count(0, 2)
    assert all(count_of({}, measure) == Count() for measure in MEASURES)


# Hostile repositories


class HostileRepository:
    """Commits and events of an agent with arbitrary content."""

    def __init__(self, root: Path) -> None:
        self.space = started(root)
        self.space.spawn("ada", BRIEFING)
        self.repo = pygit2.Repository(str(root))
        self.flow = self.space.behaviours.version("review").cid

    def put(self, ref: str, trailers: list[tuple[str, str]], at: int = 1_780_000_000) -> str:
        """Write a raw commit, because libgit2 refuses such dates."""
        tip = self.repo.references[ref].target if ref in self.repo.references else None
        by = f"x <x@example.org> {at} +0000"
        lines = [f"tree {pygit2.Index().write_tree(self.repo)}", *([f"parent {tip}"] if tip else [])]
        text = "\n".join([*lines, f"author {by}", f"committer {by}", "", messages.compose("x", trailers, "x")])
        commit_id = self.repo.write(pygit2.enums.ObjectType.COMMIT, text.encode())
        self.repo.references.create(ref, commit_id, force=True)
        return str(commit_id)

    def commit(self, *trailers: tuple[str, str], kind: str = "test", at: int = 1_780_000_000) -> str:
        return self.put(refs.head("ada"), [(AGENT, "ada"), (TYPE, kind), *trailers], at)

    def event(self, body: dict[str, Any] | str) -> None:
        self.put(refs.events("ada"), [(EVENT, body if isinstance(body, str) else json.dumps(body))])


def test_invalid_commits_events_and_notes_hide_nothing_else(tmp_path: Path) -> None:
    """Invalid ids, outcomes of the wrong type, impossible dates, and values too deep or too large to parse."""
    hostile = HostileRepository(tmp_path / "repo")
    behaviour_trailer = (BEHAVIOUR, hostile.flow)
    for behaviour in ("x" * 5000, "../../sum", "ü" * 40, hostile.flow.upper()):
        hostile.commit((BEHAVIOUR, behaviour))
    for meta in ('{"outcome": {"status": ["passed"]}}', '{"outcome": 1e308}', DEEP, '{"outcome": ' + "9" * 5000 + "}", "[]", "{"):
        hostile.commit(behaviour_trailer, (META, meta))
    for at in (-5, 0, 2**33, 2**40):
        hostile.commit(behaviour_trailer, (META, '{"outcome": "passed"}'), at=at)
    hostile.commit(behaviour_trailer, kind="a kind\t" + "y" * 5000)
    hostile.commit(behaviour_trailer, (VALUE, DEEP), kind="decision")
    head = hostile.commit(behaviour_trailer, (VALUE, '"yes"'), kind="decision")
    ended = {"event": "session-ended", "session": "1", "flow": hostile.flow, "status": "finished"}
    landed = {"event": "landed", "cid": head, "head": head, "onto": "refs/heads/main", "base": None}
    for text in ("{}", "[]", DEEP, '{"event": ["landed"]}', "{"):
        hostile.event(text)
    hostile.event(ended | {"flow": 7})
    hostile.event(ended | {"session": [DEEP[:100]], "status": {"a": 1}})
    for onto in ("..", "a b", "x\0", "\ud800", "x" * 5000, "main"):
        hostile.event(landed | {"onto": f"refs/heads/{onto}"})
    for theirs in (7, "\ud800", "\0", head[:39]):
        hostile.event({"event": "merge-refused", "ours": head, "theirs": theirs})
    for session in ("\ud800", "\0", "x" * 5000):
        hostile.event(ended | {"session": session})
    hostile.event(ended | {"session": "2"})
    blob = hostile.repo.create_blob(DEEP.encode())
    git("notes", f"--ref={refs.traces('ada')}", "add", "-C", str(blob), head, cwd=tmp_path / "repo")
    stats = hostile.space.behaviours.stats("review", over="day")[0]
    assert (stats.commits, stats.outcomes) == ({"test": 10, "decision": 2, "other": 1}, {"passed": 4})
    assert (stats.decisions, stats.sessions) == ({"approved": 1, "other": 1}, {"finished": 4, "other": 1})
    assert (stats.landed, stats.reverted, stats.trace) == (2, 0, {"bytes": len(DEEP)})
    assert (stats.first, stats.last) == ("1970-01-01", "9999-12-31")
    assert hostile.space.behaviours.suggest("review", "passed").action == "not-enough-data"
    assert rebuilt(hostile.space) == observed(hostile.space)


def test_a_commit_counts_once_even_if_other_agents_have_it_in_their_history(tmp_path: Path) -> None:
    """A sub-agent that started there, another branch at the same commit, and two agents that merged it."""
    space = started(tmp_path / "repo")
    space.spawn("ada", BRIEFING)
    space.start("ada", "review", 1)
    space.commit("ada", "test", changes={"a": b"1"}, meta={"outcome": "passed"})
    space.spawn_from("bob", BRIEFING, "ada")
    git("branch", "agents/cleo", space.head("ada"), cwd=tmp_path / "repo")
    for name in ("dan", "eve"):
        space.spawn(name, BRIEFING)
        space.merge(name, "ada")
    stats = space.behaviours.stats("review")[0]
    assert (stats.commits, stats.outcomes) == ({"test": 1}, {"passed": 1})
    assert stats.merges == {"merged": 2}  # each merge counts
    assert space.behaviours.gaps() == 0


def test_sessions_without_commits_count_and_a_repeated_refusal_counts_once(tmp_path: Path) -> None:
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
    stats = space.behaviours.stats("review")[0]
    assert stats.sessions == {"failed": 1, "cancelled": 1}
    assert stats.merges == {"refused": 1}
    space.commit("ada", "test", changes={"same": b"once more"})
    space.merge("bob", "ada")
    assert space.behaviours.stats("review")[0].merges == {"refused": 2}  # the work has changed


def _land_work(space: clia.Space, number: int, *, squash: bool = False, no_ff: bool = False) -> str:
    """Land work of a session: of the second version for the fourth number, of the first for earlier ones."""
    space.start("ada", space.behaviours.get("review").versions[number > 3].cid, number)
    space.commit("ada", "test", changes={f"f{number}": b"x"})
    space.decide("ada", "yes")
    landing = space.land("ada", "main", squash=squash, no_ff=no_ff)
    assert isinstance(landing, Landed)
    return landing.cid


def test_landings_count_by_their_new_commits_and_git_reverts_cancel_them(tmp_path: Path) -> None:
    """Fast-forward, merge, and two squashes; reverted by ``git revert``, and reverts that are reverted again."""
    root = tmp_path / "repo"
    space = started(root)
    space.spawn("ada", BRIEFING)
    git("worktree", "add", "-q", str(tmp_path / "main"), "main", cwd=root)
    cids = [
        _land_work(space, 1),
        _land_work(space, 2, no_ff=True),
        _land_work(space, 3, squash=True),
        _land_work(space, 4, squash=True),
    ]
    first, second = space.behaviours.stats("review")
    assert (first.landed, second.landed) == (3, 1)  # the second squash has nothing new of the first version

    def reverted(*words: str) -> int:
        git("reset", "-q", "--hard", cwd=tmp_path / "main")
        git("revert", "--no-edit", *words, cwd=tmp_path / "main")
        return sum(stats.reverted for stats in space.behaviours.stats("review"))

    assert reverted(cids[3]) == 1
    assert reverted("-m", "1", cids[1]) == 2
    assert reverted("HEAD") == 1  # the revert of the merge is reverted
    assert reverted("HEAD") == 2
    assert reverted("HEAD~3") == 1  # the revert of the squash is reverted
    git("reset", "-q", "--hard", "HEAD~4", cwd=tmp_path / "main")
    assert sum(stats.reverted for stats in space.behaviours.stats("review")) == 1  # only the first revert remains
    git("reset", "-q", "--hard", "HEAD~1", cwd=tmp_path / "main")
    assert sum(stats.reverted for stats in space.behaviours.stats("review")) == 0
    assert rebuilt(space) == observed(space)
