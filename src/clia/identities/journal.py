"""The journal: one entry, added to an agent's agency.

Invariant: history is never changed and ancestors are never touched; the same idempotency key gives one entry.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.identities import agency_file
from clia.values.canonical import digest
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.identities.file_interface import WritableFiles
    from clia.identities.targets import Target
    from clia.values.clock import Clock

AUTO = "auto"


class Note(NamedTuple):
    """What is to be remembered."""

    text: str
    tags: Sequence[str] = ()
    signature: str = AUTO
    dirs_touched: Sequence[str] = ()
    idempotency_key: str | None = None
    kind: str = "log"


class Journaled(NamedTuple):
    path: str
    entry: dict[str, Any]
    sha256: str  # of the entry: what a waiver names an approval by
    appended: bool  # False: an entry with this idempotency key was there already
    created: bool  # whether the file is new

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def journal(files: WritableFiles, target: Target, slug: str, note: Note, *, signature: str, clock: Clock) -> Journaled:
    """Appends ``note`` to the agency at ``target``; ``signature`` is what ``auto`` stands for."""
    _check(note)
    entry = _entry(slug, note, signature if note.signature == AUTO else note.signature, target.prefix, timestamp(clock()))
    known: list[dict[str, Any]] = []

    def choose(present: list[Any]) -> list[dict[str, Any]]:
        known.extend(each for each in present if note.idempotency_key and _key_of(each) == note.idempotency_key)
        return [] if known else [entry]

    done = agency_file.append(files, target, slug, choose)
    kept = known[0] if known else entry
    return Journaled(done.path, kept, digest(kept), bool(done.added), done.created)


def _check(note: Note) -> None:
    for field, value in (("note", note.text), ("signature", note.signature), ("idempotency-key", note.idempotency_key)):
        if value is not None and not value.strip():
            raise InvalidInput(f"{field} must not be empty", code="empty-value", fields={"field": field})
    texts = [note.text, note.signature, note.idempotency_key or "", *note.tags, *note.dirs_touched]
    if any("\0" in each or not _is_unicode(each) for each in texts):
        raise InvalidInput("a journal entry is Unicode text without NUL", code="invalid-text")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _entry(slug: str, note: Note, signature: str, source: str, moment: str) -> dict[str, Any]:
    evidence = {"type": note.kind, "weight": 1, "evidence": note.text}
    entry: dict[str, Any] = {
        "timestamp": moment,
        "kind": note.kind,
        "summary": note.text,
        "signature": signature,
        "source": source,
        "contributions": [{"by": slug, "types": [evidence]}],
    }
    tags = list(dict.fromkeys(each.strip() for each in note.tags if each.strip()))
    if tags:
        entry["tags"] = tags
    extensions: dict[str, Any] = {}
    if note.dirs_touched:
        extensions["x-dirsTouched"] = list(dict.fromkeys(note.dirs_touched))
    if note.idempotency_key:
        extensions["x-idempotencyKey"] = note.idempotency_key
    if extensions:
        entry["extensions"] = extensions
    return entry


def _key_of(entry: Any) -> Any:
    extensions = entry.get("extensions") if isinstance(entry, dict) else None
    return extensions.get("x-idempotencyKey") if isinstance(extensions, dict) else None


def auto_signature(profile: dict[str, Any] | None, slug: str) -> str:
    """What an agent signs with: its merged ``extensions.journalSignature``, else its slug behind a dash."""
    extensions = (profile or {}).get("extensions")
    found = extensions.get("journalSignature") if isinstance(extensions, dict) else None
    return found if isinstance(found, str) and found.strip() else f"-{slug}"
