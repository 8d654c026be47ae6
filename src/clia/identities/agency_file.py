"""The agency file of one agent at one place, as something that only ever grows.

Invariant: entries are added at the end of the file that reading would select, under the directory's lock, by one atomic
replacement; what was there before stays byte for byte.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import FileError, InvalidDocument, UnsafePath
from clia.identities.contexts import AGENCY, candidates
from clia.identities.file_interface import FILE, LINK, Entry
from clia.identities.places import inside
from clia.values import documents
from clia.values.json_splice import append_to_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.identities.file_interface import Files, WritableFiles
    from clia.identities.targets import Target

SCHEMA_VERSION = "0.4.0"


class Appended(NamedTuple):
    path: str
    created: bool
    added: tuple[dict[str, Any], ...]


def selected(files: Files, target: Target) -> str | None:
    """The agency document that reading would pick here, links resolved; None where there is none yet."""
    names, _ = candidates(files.entries(target.home) or (), AGENCY)
    for name, kind in names:
        path = f"{target.home}/{name}"
        real = files.real(path) if kind == LINK else path
        if not inside(real, target.boundary) or not candidates([Entry(real.rpartition("/")[2], FILE)], AGENCY)[0]:
            raise UnsafePath(f"{path} leads to {real}, outside {target.boundary} or to no agency", fields={"path": path})
        if files.kind(real) == FILE:
            return real
    return None


def entries_of(files: Files, path: str) -> tuple[list[Any], str]:
    """The entries of an agency file and the text they stand in."""
    data = files.read(path, documents.MAX_BYTES) or b""
    document = documents.parse(data, path)
    entries = document.get("entries")
    if entries is not None and not isinstance(entries, list):
        raise InvalidDocument(
            f"{path}: /entries must be an array, not {documents.type_name(entries)}",
            code="wrong-type",
            hints=["nothing was written: fix the document first"],
            fields={"path": path, "pointer": "/entries"},
        )
    return entries or [], data.decode("utf-8")


def append(files: WritableFiles, target: Target, slug: str, choose: Callable[[list[Any]], Sequence[dict[str, Any]]]) -> Appended:
    """Adds what ``choose`` makes of the entries that are there; it runs under the lock and may return nothing."""
    files.make_directory(target.home)
    path = selected(files, target)
    # The lock is on the file's own directory: two links to one file share it.
    with files.exclusive(path.rpartition("/")[0] if path else target.home):
        path = selected(files, target)
        if path is None:
            path = f"{target.home}/{slug}@{target.prefix}.agency.triad.json"
            added = tuple(choose([]))
            document = {"schemaVersion": SCHEMA_VERSION, "slug": slug, "entries": list(added)}
            if added:
                files.create(path, _checked(json.dumps(document, ensure_ascii=False, indent=2) + "\n", path))
            return Appended(path, bool(added), added)
        present, text = entries_of(files, path)
        added = tuple(choose(present))
        if added:
            data = _checked(append_to_array(text, "entries", added), path)
            if documents.parse(data, path).get("entries") != [*present, *added]:
                raise FileError(f"{path}: the new text would not say what it should; nothing was written", fields={"path": path})
            files.replace(path, data)
        return Appended(path, False, added)


def _checked(text: str, path: str) -> bytes:
    data = text.encode("utf-8")
    documents.check_size(len(data), path)
    return data
