"""Appending to chains of events what people and keys do."""

from __future__ import annotations

from clia.errors import StaleRef
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.git.records import Stamp
    from clia.space.core import Core

EVENT = "Clia-Event"


def append_event(core: Core, ref: str, by: Stamp, body: Mapping[str, Any], subject: str) -> None:
    """Append an event; the caller holds the lock of the chain, so only plain git can interfere."""
    message = compose(subject, [(EVENT, canonical_bytes(dict(body)).decode("utf-8"))], "event")
    while True:
        tip = core.refs.get(ref)
        commit = core.objects.write_commit(core.empty_tree(), [tip] if tip else [], by, by, message)
        core.reached("event-written")
        try:
            core.refs.move(ref, tip, commit, "clia: event")
        except StaleRef:
            continue
        return
