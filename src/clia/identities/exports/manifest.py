"""clia's manifest: which whole files are its own, and what it last wrote there.

Invariant: a file that is not listed is somebody else's. Entries are only ever looked up by a path that clia built.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import InvalidDocument, UnsupportedFormat
from clia.values import documents
from clia.values.pointer import token

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PATH = ".clia/exports/manifest.json"
_VERSION = 1


class Listed(NamedTuple):
    format: str
    sha256: str
    slug: str


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes, path: str) -> dict[str, Listed]:
    """Path below the root -> what is known about the file; errors name ``path`` and the place in it."""
    found = documents.parse(data, path)
    if found.get("version") != _VERSION:
        raise UnsupportedFormat(
            f"{path}: /version is {found.get('version')!r}, this clia knows {_VERSION}",
            hints=["it was written by another version of clia, or is no manifest; nothing was changed"],
            fields={"path": path, "pointer": "/version"},
        )
    files = found.get("files")
    if not isinstance(files, dict):
        raise _invalid(path, "/files", "must be an object")
    return {name: _entry(path, name, value) for name, value in files.items()}


def dump(files: Mapping[str, Listed]) -> bytes:
    shown = {"files": {name: files[name]._asdict() for name in sorted(files)}, "version": _VERSION}
    return (json.dumps(shown, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _entry(path: str, name: str, value: Any) -> Listed:
    at = f"/files/{token(name)}"
    if not isinstance(value, dict):
        raise _invalid(path, at, "must be an object")
    for field in Listed._fields:
        if not isinstance(value.get(field), str):
            raise _invalid(path, f"{at}/{field}", "must be a string")
    return Listed(value["format"], value["sha256"], value["slug"])


def _invalid(path: str, pointer: str, problem: str) -> InvalidDocument:
    return InvalidDocument(
        f"{path}: {pointer} {problem}",
        hints=["restore the manifest from git; nothing was changed"],
        fields={"path": path, "pointer": pointer},
    )
