"""Consolidation: one agent's directory, archived whole inside another's, then removed.

Invariant: nothing is removed before every byte of it stands in the archive and the receipt says so. Interrupted at any
point it can be run again, and ends in the same state.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from clia.errors import AgentNotFound, AlreadyExists, FileError, InvalidInput, UnsafePath
from clia.identities.contexts import AGENTS, KINDS, candidates
from clia.identities.file_interface import DIRECTORY, FILE
from clia.identities.places import below
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.identities.file_interface import Files, WritableFiles
    from clia.identities.targets import Target
    from clia.values.clock import Clock

ARCHIVE = "legacy-imports"
MAX_FILE_BYTES = 256 * 1024 * 1024


class ConsolidationPlan(NamedTuple):
    slug: str
    into: str
    home: str
    archive: str
    receipt: str
    files: tuple[str, ...]  # relative to home, sorted

    def to_json(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "into": self.into,
            "from": self.home,
            "archive": self.archive,
            "receipt": self.receipt,
            "files": list(self.files),
        }


def plan(files: Files, slug: str, into: str, source: Target, target: Target) -> ConsolidationPlan:
    """What a consolidation would do; changes nothing."""
    if source.home == target.home:
        raise InvalidInput(f"{slug} cannot be consolidated into itself", fields={"slug": slug})
    archive = f"{target.home}/{ARCHIVE}/{slug}"
    for path in (below(source.directory, f"{AGENTS}/{slug}"), below(target.directory, f"{AGENTS}/{into}"), archive):
        # A link here could lead the archive into what is removed, or out of the repository.
        if files.real(path) != path:
            raise UnsafePath(f"{path} is or lies behind a link, so nothing is archived or removed", fields={"path": path})
    interrupted = files.kind(f"{archive}.receipt.json") == FILE and files.kind(source.home) == DIRECTORY
    for name, home in ((slug, source.home), (into, target.home)):
        entries = files.entries(home) or ()
        if not any(candidates(entries, kind)[0] for kind in KINDS) and not (interrupted and name == slug):
            raise AgentNotFound(f"{home} holds no documents of agent {name!r}", fields={"slug": name, "searched": [home]})
    return ConsolidationPlan(
        slug, into, source.home, archive, f"{archive}.receipt.json", tuple(sorted(_walk(files, source.home, "")))
    )


def apply(files: WritableFiles, planned: ConsolidationPlan, clock: Clock) -> None:
    """Archives, writes the receipt, removes. Both directories are held against other writers."""
    with files.exclusive(planned.home), files.exclusive(planned.archive.rpartition(f"/{ARCHIVE}/")[0]):
        contents = {name: _content(files, f"{planned.home}/{name}") for name in sorted(_walk(files, planned.home, ""))}
        for name, data in contents.items():
            _check_archived(files, f"{planned.archive}/{name}", data)
        for name, data in contents.items():
            _archive(files, f"{planned.archive}/{name}", data)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        _write_receipt(files, planned, hashes, timestamp(clock()))
        for name, expected in hashes.items():
            if hashlib.sha256(_content(files, f"{planned.archive}/{name}")).hexdigest() != expected:
                raise FileError(f"{planned.archive}/{name} does not hold what was archived; nothing was removed")
        files.remove_tree(planned.home)


def _write_receipt(files: WritableFiles, planned: ConsolidationPlan, hashes: dict[str, str], moment: str) -> None:
    """One receipt for all attempts: a second one adds to it and never forgets a file that is gone by then."""
    before = files.read(planned.receipt, MAX_FILE_BYTES)
    known = json.loads(before)["files"] if before else {}
    body = {
        "type": "consolidation-receipt",
        "slug": planned.slug,
        "into": planned.into,
        "timestamp": json.loads(before)["timestamp"] if before else moment,
        "files": dict(sorted({**known, **hashes}.items())),
    }
    files.replace(planned.receipt, (json.dumps(body, ensure_ascii=False, indent=2) + "\n").encode("utf-8"))


def _check_archived(files: Files, path: str, data: bytes) -> None:
    there = files.read(path, MAX_FILE_BYTES)
    if there is not None and there != data:
        raise AlreadyExists(
            f"{path} holds something else already; nothing was removed",
            hints=["move the earlier archive away, then try again"],
            fields={"path": path},
        )


def _archive(files: WritableFiles, path: str, data: bytes) -> None:
    if files.read(path, MAX_FILE_BYTES) is None:
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, data)


def _walk(files: Files, directory: str, below: str) -> Iterator[str]:
    for entry in files.entries(directory) or ():
        path = f"{directory}/{entry.name}"
        if entry.kind == DIRECTORY:
            yield from _walk(files, path, f"{below}{entry.name}/")
        elif entry.kind == FILE:
            yield f"{below}{entry.name}"
        else:
            raise UnsafePath(f"{path} is neither a file nor a directory, so it cannot be archived whole", fields={"path": path})


def _content(files: Files, path: str) -> bytes:
    data = files.read(path, MAX_FILE_BYTES)
    if data is None or len(data) > MAX_FILE_BYTES:
        raise FileError(f"{path} cannot be archived: it is gone, or larger than {MAX_FILE_BYTES} bytes", fields={"path": path})
    return data
