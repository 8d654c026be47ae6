"""Taking out a leak that got through.

Invariant: afterwards neither the agent's traces nor their history nor the buffer hold the text, in any object or row that
we can reach; what may still hold it elsewhere is said, never passed over.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.kernel import refs as names
from clia.kernel.typed_objects import as_bytes, parse
from clia.space.events import PURGED, append_event
from clia.space.traces import redaction, stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from clia.ports.repository import Commit
    from clia.ports.workbench import Workbench
    from clia.space.core import Core
    from clia.space.envelope import Envelope

MARK = "[purged]"


class Purged(NamedTuple):
    """What was changed, and what may still hold the text."""

    agent: str
    traces: int
    pending: int
    remaining: tuple[str, ...]


class Purging:
    def __init__(self, core: Core, envelope: Envelope, workbench: Workbench) -> None:
        self._core = core
        self._envelope = envelope
        self._workbench = workbench

    def purge(self, agent: str, text: str) -> Purged:
        if self._core.refs.get(names.archived(names.check_name(agent))) is None:
            self._core.require_head(agent)
        if len(text) < 4:
            raise InvalidInput("a text of fewer than four characters would match too much", code="text-too-short")
        ref = names.traces(agent)
        with self._envelope.alone():
            before = self._objects(ref)
            replaced = self._replacements(before, text)
            pending = self._clean_buffer(agent, text)
            remaining = self._rewrite(agent, ref, before, replaced) if replaced else []
        return Purged(agent, len(replaced), pending, (*remaining, *self._elsewhere(ref)))

    def _rewrite(self, agent: str, ref: str, before: set[str], replaced: dict[str, str]) -> list[str]:
        core = self._core
        tip = core.refs.get(ref)
        old = list(core.graph.walk([tip])) if tip else []
        core.notes.rewrite(ref, replaced)
        core.refs.forget_past(ref)
        self._remember(agent, ref, old)
        for tracked, cid in core.refs.under(names.TRACKING):
            if tracked.endswith(f"/notes/trace/{agent}"):
                core.refs.move(tracked, cid, None, "clia: purge")
                core.refs.forget_past(tracked)
        gone = before - self._objects(ref)
        return [f"object {cid}: it could not be removed" for cid in self._workbench.drop_objects(sorted(gone))]

    def _remember(self, agent: str, ref: str, old: list[Commit]) -> None:
        """Says which history is not to come back: that of another clone may still hold the text."""
        core = self._core
        tip = core.refs.get(ref)
        kept = {each.cid for each in core.graph.walk([tip])} if tip else set()
        first = [each.cid for each in old if each.cid not in kept and all(parent in kept for parent in each.parents)]
        body = {"event": PURGED, "ref": ref, "gone": first}
        append_event(core, names.events(agent), core.person_stamp(), body, f"purge of {ref}")

    def _objects(self, ref: str) -> set[str]:
        """Every commit, tree and blob in the history of a notes ref."""
        core = self._core
        tip = core.refs.get(ref)
        found: set[str] = set()
        for commit in core.graph.walk([tip]) if tip else ():
            found.add(commit.cid)
            if commit.tree not in found:
                found.update(core.objects.below(commit.tree, found))
        return found

    def _replacements(self, cids: Iterable[str], text: str) -> dict[str, str]:
        """Old and new blob of every trace that holds the text."""
        core = self._core
        found = {}
        for cid in sorted(cids):
            made = parse(core.objects.blob(cid)) if core.objects.kind(cid) == "blob" else None
            clean = without(made, text)
            if made is not None and clean != made:
                found[cid] = core.objects.write_blob(as_bytes(clean))
        return found

    def _clean_buffer(self, agent: str, text: str) -> int:
        count = 0
        with self._core.store.writing() as transaction:
            for entry in transaction.streams.read(stream(agent)):
                clean = without(entry.body, text)
                if clean != entry.body:
                    transaction.streams.replace(stream(agent), entry.position, clean)
                    count += 1
            for key, _ in transaction.values.scan(redaction(agent)):
                transaction.values.delete(key)  # the end of what was traced last, for the sake of tokens cut in two
        self._core.store.scrub()
        return count

    def _elsewhere(self, ref: str) -> list[str]:
        found = [f"remote {each}: if {ref} was published, ask its owner to purge it too" for each in self._workbench.remotes()]
        return [*found, "clones, backups and disk snapshots made before now", "terminals and logs where the text was shown"]


def without(value: Any, text: str) -> Any:
    """The JSON value with a text taken out of every string in it."""
    if isinstance(value, str):
        return value.replace(text, MARK)
    if isinstance(value, dict):
        return {without(key, text): without(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [without(each, text) for each in value]
    return value
