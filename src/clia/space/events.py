"""Event chains: records that are not commits of an agent's work.

Invariant: an event is a commit on the empty tree whose ``Clia-Event`` trailer holds the event as canonical JSON. Order has no
meaning, so diverged chains are united by a commit with both as parents.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import StaleRef
from clia.space.model import EVENT, json_object
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.git.records import Commit, Stamp
    from clia.space.core import Core

PURGED = "purge"
"""Notes history was rewritten; ``gone`` lists its first commits, which must not come back."""


class RecordedEvent(NamedTuple):
    cid: str
    at: int
    body: Mapping[str, Any]


def write_event(
    core: Core, tip: str | None, author: Stamp, body: Mapping[str, Any], subject: str, proofs: Sequence[tuple[str, str]] = ()
) -> str:
    """Write the commit that follows a chain's tip. ``proofs``: the trailers with a person's statement about the event."""
    message = compose(subject, [(EVENT, canonical_bytes(dict(body)).decode("utf-8")), *proofs], "event")
    return core.objects.write_commit(core.empty_tree(), [tip] if tip else [], author, core.person_stamp(), message)


def append_event(
    core: Core, ref: str, author: Stamp, body: Mapping[str, Any], subject: str, proofs: Sequence[tuple[str, str]] = ()
) -> str:
    """Append to a chain; the caller holds its lock, so only plain git can interfere."""
    while True:
        tip = core.refs.get(ref)
        event = write_event(core, tip, author, body, subject, proofs)
        try:
            core.refs.move(ref, tip, event, "clia: event")
        except StaleRef:
            continue
        return event


def read_events(core: Core, tip: str | None, after: str | None = None) -> Iterator[RecordedEvent]:
    """The events of a chain, newest first, without those reachable from ``after``; none if there is no chain."""
    for commit in core.graph.walk([tip], [after] if after else []) if tip else ():
        body = event_of(commit)
        if body is not None:
            yield RecordedEvent(commit.cid, commit.committer.at, body)


def event_of(commit: Commit) -> dict[str, Any] | None:
    trailer = next((value for key, value in parse(commit.message)[1] if key == EVENT), "")
    return json_object(trailer)


def texts_in(body: Mapping[str, Any], event: str, field: str) -> list[str]:
    """The texts that an event of this kind lists in a field; none for other events."""
    listed = body.get(field) if body.get("event") == event else None
    return [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []


def revoked_by(body: Mapping[str, Any]) -> list[str]:
    """The grants that an event revokes."""
    return texts_in(body, "revoke", "grants")


def unite(core: Core, ref: str, theirs: str) -> bool:
    """Unite our chain with another clone's; returns whether anything changed."""
    tip = core.refs.get(ref)
    if tip is not None and core.graph.descends(tip, theirs):
        return False
    new = theirs
    if tip is not None and not core.graph.descends(theirs, tip):
        by = core.person_stamp()
        new = core.objects.write_commit(core.empty_tree(), [tip, theirs], by, by, "Chains of two clones united by clia\n")
    core.refs.move(ref, tip, new, "clia: adopt")
    return True
