from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.behaviours import sources
from clia.behaviours.statistics import rounded
from clia.git.records import FILE, Stamp, TreeEntry
from clia.space.model import EVENT
from clia.testing import components
from clia.values.commit_messages import compose
from clia.values.typed_objects import PROMPT
from support import git
from support.behaviour_walks import observed, rebuilt, started
from support.session_spaces import root_of
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


CHAINS, EVENTS = "refs/clia/behaviours/", "refs/clia/events/"


AT = 1_780_000_000


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


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with started(tmp_path.resolve() / "repo") as made:
        yield made


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
                monkeypatch.setattr(components(other).observations, "catch_up_reverts", lambda: None)
                components(other).observations.catch_up()
        return of_people(*given)

    monkeypatch.setattr(sources, "of_people", meanwhile)
    assert {each.name: each.reverted for each in space.behaviour_stats() if each.landed} == {"one": 0, "two": 1}
    assert turns
