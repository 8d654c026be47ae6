"""The feed: how changed refs become events, and what a look reads and writes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from clia.git.records import RefScan
from clia.space.feed import BUCKET, SEEN, agent_event
from clia.testing import components
from support.session_spaces import root_of

if TYPE_CHECKING:
    import clia


@pytest.fixture
def space(scout: clia.Space) -> clia.Space:
    return scout


@pytest.mark.parametrize(
    ("old", "new", "event"),
    [
        ((None, None), ("a", None), ("head", None, "a")),
        (("a", None), ("b", None), ("head", "a", "b")),
        (("a", None), (None, "a"), ("archived", "a", "a")),
        (("a", None), (None, "b"), ("archived", "a", "b")),
        ((None, None), (None, "a"), ("archived", None, "a")),
        ((None, "a"), (None, "b"), ("archived", "a", "b")),
        (("a", "a"), (None, "a"), ("archived", "a", "a")),
        ((None, "a"), ("a", None), ("restored", "a", "a")),
        ((None, "a"), ("b", "a"), ("restored", "a", "b")),
        (("a", "b"), ("c", "b"), ("head", "a", "c")),
        (("a", None), (None, None), ("gone", "a", None)),
        ((None, "a"), (None, None), ("gone", "a", None)),
        (("a", "a"), ("a", None), None),
        (("a", None), ("a", "a"), None),
    ],
)
def test_the_event_of_an_agent_follows_from_its_old_and_new_refs(old: Any, new: Any, event: Any) -> None:
    """From the branch and the archive ref; both exist for a moment while the agent is moved."""
    assert agent_event(old, new) == event


@pytest.mark.parametrize("moved", [None, ["refs/clia/archive/agents/scout"]], ids=["all refs", "what moved"])
def test_an_agent_restored_during_a_look_is_not_reported_gone(space: clia.Space, moved: list[str] | None) -> None:
    """Read in that order, neither ref has it, whether all refs are listed or only those that moved are read."""
    refs = components(space).core.refs
    under, get = refs.under, refs.get

    restored: list[str] = []

    def restored_after(refs_read: Any) -> Any:
        if not refs_read and not restored:
            restored.append("scout")  # before restoring, which reads the head too
            space.agents.restore("scout")
        return refs_read

    space.agents.archive("scout")
    with closing(space.local.open_feed()) as feed:
        feed.look()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refs, "look", lambda prefixes, since: RefScan(None, moved))
            patch.setattr(refs, "under", lambda prefix: restored_after(under(prefix)))
            patch.setattr(refs, "get", lambda name: restored_after(get(name)) if name == "refs/heads/agents/scout" else get(name))
            assert feed.look() == 1
        assert feed.read(0)[0].body["event"] == "restored"
        assert feed.look() == 0


def test_a_head_that_cannot_be_read_is_an_event_without_a_kind(space: clia.Space) -> None:
    missing = "1" * 40
    with closing(space.local.open_feed()) as feed:
        feed.look()
        (root_of(space) / "refs/heads/agents/odd").write_text(f"{missing}\n")
        assert feed.look() == 1
        body = feed.read(0)[0].body
        assert {key: body[key] for key in body if key != "at"} == {"event": "head", "agent": "odd", "cid": missing}


def test_a_look_without_changes_reads_no_bucket_and_writes_nothing(space: clia.Space) -> None:
    with closing(space.local.open_feed()) as feed:
        feed.look()
        with space.local.store.writing() as change:
            keys = [key for key, _ in change.values.scan(BUCKET)]
            for key in keys:
                change.values.put(key, "nobody reads this")
        assert keys
        record = space.local.store.get(SEEN)
        assert feed.look() == 0
        assert space.local.store.get(SEEN) == record


@pytest.mark.parametrize("damage", ["record", "part of it", "bucket"])
def test_a_damaged_record_is_rebuilt_without_events(space: clia.Space, damage: str) -> None:
    with closing(space.local.open_feed()) as feed:
        feed.look()
    with space.local.store.writing() as change:
        if damage == "bucket":
            change.values.put(change.values.scan(BUCKET)[0][0], [1, 2])
        else:
            change.values.put(SEEN, "?" if damage == "record" else {"since": "x", "versions": ["00"]})
    with closing(space.local.open_feed()) as feed:
        assert (feed.look(), feed.end()) == (0, 0)
        space.commit("scout", "finding", changes={"a": b"a"})
        assert (feed.look(), feed.end()) == (1, 1)
