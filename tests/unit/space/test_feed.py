"""The feed, piece by piece: what became of an agent, what a look reads, and how waiting ends."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import StoreError
from clia.git.records import RefScan
from clia.space.feed import BUCKET, SEEN, agent_event
from clia.store.notifications import PollingNotifier
from support.session_spaces import root_of
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "repo", settings=settings()) as made:
        made.spawn("scout", BRIEFING)
        yield made


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
def test_what_became_of_an_agent(old: Any, new: Any, event: Any) -> None:
    """By its head at work and its head in the archive; both are there for a moment while it is moved."""
    assert agent_event(old, new) == event


@pytest.mark.parametrize("moved", [None, ["refs/clia/archive/agents/scout"]], ids=["all refs", "what moved"])
def test_an_agent_that_is_restored_in_the_middle_of_a_look_is_not_gone(space: clia.Space, moved: list[str] | None) -> None:
    """It is in neither place where one looks at heads first, whether all refs are listed or the few that moved are read."""
    refs = space.core.refs
    under, get = refs.under, refs.get

    restored: list[str] = []

    def restored_after(found: Any) -> Any:
        if not found and not restored:
            restored.append("scout")  # at once: restoring asks for the head, too
            space.restore("scout")
        return found

    space.archive("scout")
    with closing(space.local.open_feed()) as feed:
        feed.look()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refs, "look", lambda prefixes, since: RefScan(None, moved))
            patch.setattr(refs, "under", lambda prefix: restored_after(under(prefix)))
            patch.setattr(refs, "get", lambda name: restored_after(get(name)) if name == "refs/heads/agents/scout" else get(name))
            assert feed.look() == 1
        assert feed.read(0)[0].body["event"] == "restored"
        assert feed.look() == 0


def test_a_head_that_cannot_be_read_is_told_without_its_kind(space: clia.Space) -> None:
    missing = "1" * 40
    with closing(space.local.open_feed()) as feed:
        feed.look()
        (root_of(space) / "refs/heads/agents/odd").write_text(f"{missing}\n")
        assert feed.look() == 1
        body = feed.read(0)[0].body
        assert {key: body[key] for key in body if key != "at"} == {"event": "head", "agent": "odd", "cid": missing}


def test_a_look_where_nothing_happened_reads_no_bucket_and_writes_nothing(space: clia.Space) -> None:
    with closing(space.local.open_feed()) as feed:
        feed.look()
        with space.core.store.writing() as change:
            keys = [key for key, _ in change.values.scan(BUCKET)]
            for key in keys:
                change.values.put(key, "nobody reads this")
        assert keys
        record = space.core.store.get(SEEN)
        assert feed.look() == 0
        assert space.core.store.get(SEEN) == record


@pytest.mark.parametrize("damage", ["record", "part of it", "bucket"])
def test_a_damaged_record_is_made_anew_and_nothing_is_told_of_it(space: clia.Space, damage: str) -> None:
    with closing(space.local.open_feed()) as feed:
        feed.look()
    with space.core.store.writing() as change:
        if damage == "bucket":
            change.values.put(change.values.scan(BUCKET)[0][0], [1, 2])
        else:
            change.values.put(SEEN, "?" if damage == "record" else {"since": "x", "versions": ["00"]})
    with closing(space.local.open_feed()) as feed:
        assert (feed.look(), feed.end()) == (0, 0)
        space.commit("scout", "finding", changes={"a": b"a"})
        assert (feed.look(), feed.end()) == (1, 1)


class Away:
    """A store that is away for some looks."""

    def __init__(self, looks: int, *, retryable: bool = True) -> None:
        self.left = looks
        self._retryable = retryable

    def has_more(self) -> bool:
        if not self.left:
            return True
        self.left -= 1
        error = StoreError("away", code="store-unavailable")
        error.retryable = self._retryable
        raise error


def test_who_waits_outlasts_a_store_that_comes_back() -> None:
    away = Away(3)
    with closing(PollingNotifier(every=0)) as bell:
        assert bell.wait(away.has_more, 30) is True
    assert not away.left


def test_who_waits_hears_of_a_store_that_does_not_come_back() -> None:
    with closing(PollingNotifier(every=0)) as bell:
        refused("store-unavailable", lambda: bell.wait(Away(1, retryable=False).has_more, 30))


def test_a_bell_that_is_closed_while_someone_looks_ends_the_waiting() -> None:
    bell = PollingNotifier()
    looks = threading.Semaphore(0)

    def has_more() -> bool:
        bell.close()
        looks.release()
        return False

    assert bell.wait(has_more, 30) is False
    assert looks.acquire(blocking=False)
    assert not looks.acquire(blocking=False)
