"""Observations from rewritten, archived, lost and concurrently changed history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from clia.behaviours import sources
from clia.behaviours.statistics import rounded
from clia.space.model import EVENT
from clia.testing import components
from clia.values.commit_messages import compose
from clia.values.typed_objects import PROMPT
from support import git
from support.behaviour_walks import AT, EVENTS, commit_to_ref, landed_and_reverted, observed, rebuilt, spawn_with_prompt
from support.session_spaces import root_of
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest


def event(space: clia.Space, agent: str, body: Mapping[str, Any], **more: Any) -> str:
    return commit_to_ref(space, f"{EVENTS}{agent}", {}, compose("x", [(EVENT, json.dumps(body))], "x"), **more)


def test_only_commits_with_a_prompt_count_as_merged_work_and_their_age_is_that_of_the_first(space: clia.Space) -> None:
    """An agent that was briefed and has no commit contributes nothing."""
    space.behaviours.add("idle", "Wait.", PROMPT)
    space.behaviours.add("busy", "Work.", PROMPT)
    space.spawn("ada", BRIEFING)
    space.spawn_at("bob", space.behaviours.brief("busy", "work"), "main")
    first = space.commit("bob", "finding", {"a": b"1"})
    for _ in range(20):
        space.trace("bob", "model", "thinks, while time passes")
    space.commit("bob", "finding", {"a": b"2"})
    space.spawn_from("cleo", space.behaviours.brief("idle", "wait"), "bob")
    space.merge("ada", "cleo")
    (idle,), (busy,) = space.behaviours.stats("idle"), space.behaviours.stats("busy")
    assert (idle.commits, idle.merges, busy.merges) == ({"spawn": 1}, {}, {"merged": 1})
    times = [components(space).core.objects.commit(cid).committer.at for cid in (first, space.head("ada"))]
    assert busy.merge_seconds == {"n": 1, "median": rounded(times[1] - times[0]), "p90": rounded(times[1] - times[0])}


def _revert(space: clia.Space, branch: str, target: str) -> None:
    commit_to_ref(space, f"refs/heads/{branch}", {}, f'Revert "it"\n\nThis reverts commit {target}.\n')


def _land_squashed(space: clia.Space, name: str, onto: str = "main") -> str:
    landing = space.land(name, onto, squash=True)
    assert isinstance(landing, clia.Landed)
    return landing.cid


def test_reverts_before_a_later_landing_are_found_on_the_branch_and_on_its_descendants(space: clia.Space) -> None:
    """The search ends at the first landing on any branch, not at the last one or at that of the branch."""
    spawn_with_prompt(space, "one")
    _revert(space, "main", _land_squashed(space, "one"))
    spawn_with_prompt(space, "two")
    _land_squashed(space, "two")
    assert landed_and_reverted(space, "one") == (1, 1)
    git("branch", "later", "main", cwd=root_of(space))
    spawn_with_prompt(space, "three")
    _land_squashed(space, "three", "later")
    assert landed_and_reverted(space, "one") == (1, 1)
    assert observed(space) == rebuilt(space)  # landings are rebuilt, too


def test_a_revert_counts_for_the_first_landing_of_its_commit_only(space: clia.Space) -> None:
    """Not for a later landing that contains it, and for none if the commit never landed."""
    work = spawn_with_prompt(space, "one")
    first = _land_squashed(space, "one")
    space.commit("one", "finding", {"more.txt": b"1"})
    _land_squashed(space, "one")
    never = space.commit("one", "finding", {"never.txt": b"1"})
    _revert(space, "main", never)
    assert landed_and_reverted(space, "one") == (2, 0)
    _revert(space, "main", work)
    _revert(space, "main", first)
    assert landed_and_reverted(space, "one") == (2, 1)


def test_the_work_of_an_archived_agent_still_counts(space: clia.Space) -> None:
    spawn_with_prompt(space, "one")
    before = observed(space)
    space.agents.archive("one")
    assert observed(space) == before
    assert rebuilt(space) == before
    assert [stats.commits for stats in space.behaviours.stats("one")] == [{"finding": 1, "spawn": 1}]


def test_a_missing_object_is_a_gap_even_if_the_clone_is_not_shallow(space: clia.Space) -> None:
    root = root_of(space)
    lost = spawn_with_prompt(space, "one")
    space.commit("one", "finding", {"more.txt": b"1"})
    space.close()
    Path(root, "objects", lost[:2], lost[2:]).unlink()
    with clia.open(root, settings=settings()) as again:
        assert again.behaviours.stats("one")[0].commits == {"finding": 1}
        assert again.behaviours.gaps() == 1


def test_a_session_that_ends_again_and_a_merged_chain_are_read_as_if_new(space: clia.Space) -> None:
    """The last end of a session counts, and the earlier of a refusal that two clones recorded."""
    cid = space.behaviours.version("review").cid
    space.spawn("ada", BRIEFING)
    ended = {"event": "session-ended", "session": "1", "flow": cid, "status": "finished"}
    event(space, "ada", ended)
    assert space.behaviours.stats("review")[0].sessions == {"finished": 1}
    event(space, "ada", ended | {"status": "failed"}, at=AT + 10)
    assert space.behaviours.stats("review")[0].sessions == {"failed": 1}
    space.spawn("bob", BRIEFING)
    space.start("bob", "review", 1)
    work = space.commit("bob", "test", {"a": b"1"})
    refusal = {"event": "merge-refused", "ours": space.head("ada"), "theirs": work}
    base = components(space).core.refs.get(f"{EVENTS}ada") or ""
    ours = event(space, "ada", refusal, at=AT + 86400 * 9)
    assert space.behaviours.stats("review")[0].last == "2026-06-06"
    theirs = event(space, "ada", refusal, at=AT + 86400, parents=[base])
    git("update-ref", f"{EVENTS}ada", ours, cwd=root_of(space))
    commit_to_ref(space, f"{EVENTS}ada", {}, at=AT + 86400 * 10, parents=[ours, theirs])
    stats = space.behaviours.stats("review")[0]
    assert (stats.merges, stats.last) == ({"refused": 1}, "2026-05-29")
    assert observed(space) == rebuilt(space)


def test_statistics_include_a_landing_that_another_process_reads_meanwhile(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process dies before it looks for reverts, so this one looks again."""
    spawn_with_prompt(space, "one")
    spawn_with_prompt(space, "two")
    _land_squashed(space, "one")
    of_people = sources.of_people
    interruptions: list[str] = []

    def land_meanwhile(*args: Any) -> Any:
        if not interruptions:
            interruptions.append("once")
            _revert(space, "main", _land_squashed(space, "two"))
            with clia.open(root_of(space), settings=settings()) as other:
                monkeypatch.setattr(components(other).observations, "catch_up_reverts", lambda: None)
                components(other).observations.catch_up()
        return of_people(*args)

    monkeypatch.setattr(sources, "of_people", land_meanwhile)
    assert {stats.name: stats.reverted for stats in space.behaviours.stats() if stats.landed} == {"one": 0, "two": 1}
    assert interruptions
