"""Transfer: chosen journal entries, copied to an enclosing directory.

Invariant: an entry is copied as it is, source and all, so that merging still sees one entry; running it again copies
nothing twice; the receipt names every entry and is the last thing written.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from clia.errors import InvalidInput, NotFound, UnsafePath
from clia.identities import agency_file
from clia.identities.file_interface import MISSING
from clia.identities.places import inside
from clia.values.canonical import digest
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.identities.file_interface import Files, WritableFiles
    from clia.identities.targets import Target
    from clia.values.clock import Clock

_DIGEST = re.compile(r"[0-9a-f]{6,64}")


class TransferPlan(NamedTuple):
    slug: str
    source: Target
    source_file: str
    target: Target
    entries: tuple[dict[str, Any], ...]  # chosen
    missing: tuple[dict[str, Any], ...]  # of them, those not at the target yet
    receipt: str

    def to_json(self) -> dict[str, Any]:
        new = {digest(each) for each in self.missing}
        return {
            "slug": self.slug,
            "from": self.source_file,
            "to": self.target.home,
            "entries": [_listed(each) | {"new": digest(each) in new} for each in self.entries],
            "receipt": self.receipt,
        }


def plan(files: Files, slug: str, source: Target, target: Target, selectors: Sequence[str]) -> TransferPlan:
    """What a transfer would do; changes nothing."""
    if source.directory == target.directory or not inside(source.directory, target.directory):
        raise InvalidInput(
            f"{target.directory} does not enclose {source.directory}: entries are copied up, never sideways or down",
            code="not-enclosing",
            fields={"from": source.directory, "to": target.directory},
        )
    path = agency_file.selected(files, source)
    if path is None:
        raise NotFound(f"{source.home} has no agency document, so there is nothing to transfer", fields={"path": source.home})
    present, _ = agency_file.entries_of(files, path)
    chosen = _choose([each for each in present if isinstance(each, dict)], selectors, path)
    there = agency_file.selected(files, target)
    known = {digest(each) for each in (agency_file.entries_of(files, there)[0] if there else ())}
    name = digest([source.prefix, slug, [digest(each) for each in chosen]])[:16]
    receipt = f"{target.home}/receipts/transfer-{name}.json"
    if files.real(receipt) != receipt:
        raise UnsafePath(f"{receipt} lies behind a link, so nothing is copied", fields={"path": receipt})
    missing = tuple(each for each in chosen if digest(each) not in known)
    return TransferPlan(slug, source, path, target, tuple(chosen), missing, receipt)


def apply(files: WritableFiles, planned: TransferPlan, clock: Clock) -> tuple[dict[str, Any], ...]:
    """Copies what is missing and leaves the receipt; returns what was copied."""

    def choose(present: list[Any]) -> list[dict[str, Any]]:
        known = {digest(each) for each in present}
        return [each for each in planned.entries if digest(each) not in known]

    done = agency_file.append(files, planned.target, planned.slug, choose)
    if files.kind(planned.receipt) == MISSING:
        files.make_directory(planned.receipt.rpartition("/")[0])
        files.replace(planned.receipt, _receipt(planned, timestamp(clock())))
    return done.added


def _receipt(planned: TransferPlan, moment: str) -> bytes:
    body = {
        "type": "transfer-receipt",
        "slug": planned.slug,
        "timestamp": moment,
        "from": planned.source.directory.removeprefix(planned.target.directory).lstrip("/"),
        "file": planned.source_file.rpartition("/")[2],
        "entries": [_listed(each) for each in planned.entries],
    }
    return (json.dumps(body, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def _listed(entry: dict[str, Any]) -> dict[str, Any]:
    shown = {key: entry.get(key) for key in ("timestamp", "summary", "source")}
    return {"sha256": digest(entry), **shown}


def _choose(entries: list[dict[str, Any]], selectors: Sequence[str], path: str) -> list[dict[str, Any]]:
    """The entries that any selector names, in the order of the file; all of them where none is given."""
    if not selectors or "all" in selectors:
        return entries
    chosen: set[int] = set()
    for selector in selectors:
        hits = [index for index, entry in enumerate(entries) if _matches(entry, selector)]
        if not hits:
            raise NotFound(
                f"{path}: no entry matches {selector!r}",
                code="no-such-entry",
                hints=["an entry is named by its sha256 (six digits or more), its timestamp or the start of it, or tag:NAME"],
                fields={"selector": selector, "path": path},
            )
        chosen.update(hits)
    return [entries[index] for index in sorted(chosen)]


def _matches(entry: dict[str, Any], selector: str) -> bool:
    if selector.startswith("tag:"):
        tags = entry.get("tags")
        return isinstance(tags, list) and selector.removeprefix("tag:") in tags
    moment = entry.get("timestamp")
    if len(selector) >= 4 and isinstance(moment, str) and moment.startswith(selector):
        return True
    return bool(_DIGEST.fullmatch(selector)) and digest(entry).startswith(selector)
