"""Planning and writing exports: managed blocks, whole files and the manifest of files that clia owns.

Invariant: only managed blocks and files listed in the manifest are rewritten; every other byte stays. A file with unbalanced
markers is refused. Every target is checked before the first write, and one refused target stops the export. Checks and writes
happen under one lock on the root, and everything written stays below it.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import FileError, InvalidDocument, NotAllowed, NotFound, UnsupportedFormat
from clia.files import DIRECTORY, FILE, LINK, MISSING, LocalFiles, WritableLocalFiles
from clia.identities.contexts import AGENTS
from clia.identities.diagnostics import Diagnostic, diagnostic, in_order
from clia.identities.exports.formats import FORMATS, ExportOptions, ExportSource, check_complete, chosen_formats, shown_from
from clia.identities.working_path import inside, no_repository, parents, repositories_above
from clia.values import documents
from clia.values.documents import MAX_BYTES
from clia.values.json_text import pretty_bytes
from clia.values.pointer import token
from clia.values.records import as_json, json_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.identities.lineage import Lineage

    Path = str | os.PathLike[str]

_MARKER = re.compile(rb"<!-- clia:(begin|end) ([a-z0-9]+(?:-[a-z0-9]+)*)(?:: [^\r\n]*)? -->[ \t]*")
_MARKER_PART = re.compile(rb"<!--\s*/?\s*clia:", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"


class DamagedMarkers(Exception):
    """The markers of a file are unbalanced; the message names the line."""


def with_block(data: bytes, slug: str, body: str) -> bytes:
    """The file with the identity's block replaced, or appended if it had none. ``body`` ends with a newline."""
    begin = f'<!-- clia:begin {slug}: made by "clia agents export", edits inside are lost -->'
    first_line, end, _ = data.partition(b"\n")
    newline = b"\r\n" if end and first_line.endswith(b"\r") else b"\n"
    block = f"{begin}\n\n{body}\n<!-- clia:end {slug} -->".encode().replace(b"\n", newline)
    place = find_blocks(data).get(slug)
    if place is not None:
        return data[: place[0]] + block + data[place[1] :]
    if data in (b"", _BOM):
        return data + block + newline
    return data + (b"" if data.endswith((b"\n", b"\r")) else newline) + newline + block + newline


def find_blocks(data: bytes) -> dict[str, tuple[int, int]]:
    """Slug -> start and end of its block, with both markers; ``DamagedMarkers`` if they are unbalanced."""
    blocks: dict[str, tuple[int, int]] = {}
    opened: tuple[str, int, int] | None = None
    at = len(_BOM) if data.startswith(_BOM) else 0
    for number, line in enumerate(data[at:].splitlines(keepends=True), 1):
        start, end = at, at + len(line.rstrip(b"\r\n"))
        at += len(line)
        marker = _MARKER.fullmatch(data, start, end)
        if marker is None:
            if _MARKER_PART.search(line):
                raise DamagedMarkers(f"line {number} contains part of a clia marker")
            continue
        verb, slug = marker.group(1).decode(), marker.group(2).decode()
        if verb == "begin":
            if opened is not None:
                raise DamagedMarkers(f"line {number} begins the block of {slug} inside that of {opened[0]}")
            if slug in blocks:
                raise DamagedMarkers(f"line {number} begins a second block of {slug}")
            opened = (slug, start, number)
        elif opened is None or opened[0] != slug:
            raise DamagedMarkers(f"line {number} ends a block of {slug} that was not begun")
        else:
            blocks[slug] = (opened[1], end)
            opened = None
    if opened is not None:
        raise DamagedMarkers(f"the block of {opened[0]} that begins on line {opened[2]} does not end")
    return blocks


MANIFEST_PATH = ".clia/exports/manifest.json"
_MANIFEST_VERSION = 1


class ManifestEntry(NamedTuple):
    format: str
    sha256: str
    slug: str


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parse_manifest(data: bytes, path: str) -> dict[str, ManifestEntry]:
    """Path below the root -> its entry; errors name ``path`` and the pointer."""
    manifest = documents.parse(data, path)
    if manifest.get("version") != _MANIFEST_VERSION:
        message = f"{path}: /version is {manifest.get('version')!r}, this version of clia supports {_MANIFEST_VERSION}"
        hints = ["nothing was changed; it is not a manifest, or from another version of clia"]
        raise UnsupportedFormat(message, hints=hints, fields={"path": path, "pointer": "/version"})
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise _invalid_manifest(path, "/files", "must be an object")
    return {name: _manifest_entry(path, name, value) for name, value in files.items()}


def _manifest_entry(path: str, name: str, value: Any) -> ManifestEntry:
    at = f"/files/{token(name)}"
    if not isinstance(value, dict):
        raise _invalid_manifest(path, at, "must be an object")
    for field in ManifestEntry._fields:
        if not isinstance(value.get(field), str):
            raise _invalid_manifest(path, f"{at}/{field}", "must be a string")
    return ManifestEntry(*(value[field] for field in ManifestEntry._fields))


def _invalid_manifest(path: str, pointer: str, problem: str) -> InvalidDocument:
    hints = ["nothing was changed; restore the manifest from git"]
    return InvalidDocument(f"{path}: {pointer} {problem}", hints=hints, fields={"path": path, "pointer": pointer})


FRESH, NEW, STALE, EDITED, REFUSED = "fresh", "missing", "stale", "edited", "refused"
MAX_BLOCK_FILE_BYTES = 32 * 1024


class ExportOutcome(NamedTuple):
    """The state of an exported file, before anything was written."""

    path: str  # below the root
    format: str  # its format
    state: str  # `fresh`, `refused` if it cannot be written, or `missing`, `stale` or `edited`
    reason: str = ""  # why it is not fresh


class ExportTarget(NamedTuple):
    """A file to export; ``whole``: owned by clia, otherwise a managed block."""

    path: str  # below the root
    format: str
    whole: bool
    render: Callable[[], str | bytes]


class PlannedWrite(NamedTuple):
    path: str  # real
    data: bytes
    new: bool


@json_form("slug", "root", "outcomes", "diagnostics", outcomes="files")
class ExportPlan(NamedTuple):
    """The files of an export."""

    slug: str  # the identity
    root: str  # the directory that paths are relative to
    outcomes: tuple[ExportOutcome, ...]  # a file for each format
    writes: tuple[PlannedWrite, ...]  # in order; the manifest is last
    diagnostics: tuple[Diagnostic, ...]  # problems of the export

    def is_fresh(self) -> bool:
        return all(outcome.state == FRESH for outcome in self.outcomes)

    def blocked(self, *, force: bool) -> list[ExportOutcome]:
        return [outcome for outcome in self.outcomes if outcome.state == REFUSED or (outcome.state == EDITED and not force)]


def plan_export(files: LocalFiles, root: str, source: ExportSource) -> ExportPlan:
    """Plan the export of a profile; changes nothing."""
    slug = source.merged["slug"]
    targets = []
    for name in chosen_formats(source.options):
        path, whole, render = FORMATS[name]
        targets.append(ExportTarget(path.format(slug=slug), name, whole, partial(render, source)))
    return plan_targets(files, root, slug, "profile", targets)


def plan_targets(files: LocalFiles, root: str, slug: str, origin: str, targets: Sequence[ExportTarget]) -> ExportPlan:
    """Plan an export of several targets; changes nothing. ``origin`` names what they are copies of."""
    planner = _ExportPlanner(files, root, slug, origin)
    outcomes = [planner.look(target) for target in targets]
    if planner.listed != planner.known:
        entries = {path: entry._asdict() for path, entry in sorted(planner.listed.items())}
        manifest = pretty_bytes({"files": entries, "version": _MANIFEST_VERSION})
        planner.writes.append(PlannedWrite(planner.manifest_path, manifest, False))
    return ExportPlan(slug, root, tuple(outcomes), tuple(planner.writes), tuple(in_order(planner.diagnostics)))


def apply_export(files: WritableLocalFiles, planned: ExportPlan, *, force: bool) -> None:
    """Write the planned files; ``NotAllowed``, with nothing written, if a target is blocked. The caller holds the root."""
    blocked = planned.blocked(force=force)
    if blocked:
        problems = [f"{outcome.path} {outcome.reason}" for outcome in blocked]
        hints = [*problems[1:], "nothing was written"]
        if any(outcome.state == EDITED for outcome in blocked):
            hints.append("overwrite files that were edited by hand with --force")
        raise NotAllowed(problems[0], hints=hints, fields={"root": planned.root, "files": as_json(blocked)})
    for write in planned.writes:
        write_file(files, planned.root, write)


def write_file(files: WritableLocalFiles, root: str, write: PlannedWrite) -> None:
    """Write a planned file below ``root``, whose lock the caller holds."""
    directory = write.path.rpartition("/")[0]
    files.make_directory(directory)
    with nullcontext() if directory == root else files.exclusive(directory):
        (files.create if write.new else files.replace)(write.path, write.data)


class _TargetRefused(Exception):
    """A target cannot be written; internal to this module."""


class _ExportPlanner:
    def __init__(self, files: LocalFiles, root: str, slug: str, origin: str) -> None:
        self.files = files
        self.root = root
        self.slug = slug
        self.origin = origin
        self.writes: list[PlannedWrite] = []
        self.diagnostics: list[Diagnostic] = []
        try:
            self.manifest_path = self._place(MANIFEST_PATH)
            data = self._current(self.manifest_path)
        except _TargetRefused as err:
            raise NotAllowed(f"{MANIFEST_PATH} {err}", hints=["nothing was written"], fields={"root": root}) from None
        self.known = {} if data is None else parse_manifest(data, self.manifest_path)
        self.listed = dict(self.known)
        self._planned = {self.manifest_path: (MANIFEST_PATH, True)}  # real path -> its target, and whether whole

    def look(self, target: ExportTarget) -> ExportOutcome:
        path, name = target.path, target.format
        try:
            real = self._place(path)
            other, whole = self._planned.setdefault(real, (path, target.whole))
            if other != path and (whole or target.whole):
                raise _TargetRefused(f"is the same file as {other}")
            if other != path:  # CLAUDE.md is often a link to AGENTS.md, whose block is enough
                return ExportOutcome(path, name, FRESH, f"is the same file as {other}")
            current = self._current(real)
            content = target.render()
            fresh = ExportOutcome(path, name, FRESH)
            if not target.whole:
                return self._managed(fresh, real, current, str(content))
            if self.files.kind(self._absolute(path)) == LINK:
                raise _TargetRefused("is a link to a file that clia does not own")
            return self._whole(fresh, real, current, content if isinstance(content, bytes) else content.encode("utf-8"))
        except _TargetRefused as err:
            return ExportOutcome(path, name, REFUSED, str(err))
        except FileError as err:
            return ExportOutcome(path, name, REFUSED, f"cannot be read: {err.fields.get('reason', err.message)}")

    def _whole(self, about: ExportOutcome, real: str, current: bytes | None, data: bytes) -> ExportOutcome:
        entry = self.known.get(about.path)
        if current is not None and entry is None and current != data:
            raise _TargetRefused("exists and is not listed in the manifest")
        if current is not None and entry is not None and entry.format != about.format:
            raise _TargetRefused(f"is another export with that name ({entry.format}): remove it, or use another name")
        self.listed[about.path] = ManifestEntry(about.format, sha256(data), self.slug)
        # An up-to-date file need not be listed: a crash before the manifest was written leaves one.
        outcome = self._change(about, real, current, data)
        if outcome.state == STALE and entry is not None and sha256(current or b"") != entry.sha256:
            return outcome._replace(state=EDITED, reason="was edited by hand")
        return outcome

    def _managed(self, about: ExportOutcome, real: str, current: bytes | None, body: str) -> ExportOutcome:
        before = current or b""
        try:
            before.decode("utf-8")
            data = with_block(before, self.slug, body)
        except UnicodeDecodeError:
            raise _TargetRefused("is not UTF-8 text") from None
        except DamagedMarkers as err:
            raise _TargetRefused(f"has damaged markers: {err}") from None
        if len(data) > MAX_BLOCK_FILE_BYTES:
            path = self._absolute(about.path)
            message = f"{path} has {len(data)} bytes, more than {MAX_BLOCK_FILE_BYTES}"
            self.diagnostics.append(diagnostic("export-too-long", path, message))
        return self._change(about, real, current, data)

    def _change(self, about: ExportOutcome, real: str, current: bytes | None, data: bytes) -> ExportOutcome:
        if current == data:
            return about
        self.writes.append(PlannedWrite(real, data, current is None))
        if current is None:
            return about._replace(state=NEW, reason="does not exist")
        return about._replace(state=STALE, reason=f"differs from the {self.origin}")

    def _current(self, real: str) -> bytes | None:
        data = self.files.read(real, MAX_BYTES)
        if data is not None and len(data) > MAX_BYTES:
            raise _TargetRefused(f"is larger than {MAX_BYTES} bytes")
        return data

    def _place(self, path: str) -> str:
        """The real path of a target; refused if clia must not write there."""
        real = self.files.real(self._absolute(path))
        if not inside(real, self.root) or real == self.root:
            raise _TargetRefused("is a link that leaves the root")
        below = real.removeprefix(self.root).removeprefix("/")
        if any(f"/{name}/" in f"/{below}/" for name in (".git", AGENTS)):
            raise _TargetRefused("is a link to a file that exports must not change")
        if self.files.kind(real) not in (FILE, MISSING):
            raise _TargetRefused("is not a file")
        for parent in parents(real)[1:]:
            if parent == self.root:
                break
            if self.files.kind(parent) not in (DIRECTORY, MISSING):
                raise _TargetRefused(f"cannot be created: {parent.removeprefix(self.root).removeprefix('/')} is not a directory")
        return real

    def _absolute(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"


def export(
    lineage: Lineage, options: ExportOptions, *, output_root: Path | None = None, write: bool = True, force: bool = False
) -> ExportPlan:
    """Export a profile below ``output_root``, by default the enclosing repository; without ``write`` only plan it.

    ``force`` overwrites files of clia that were edited by hand.
    """
    files = WritableLocalFiles()
    root = output_directory(files, lineage.place.path, output_root)
    merged = lineage.profile()
    check_complete(merged)
    source = ExportSource(merged, shown_from(root, repositories_above(files, lineage.place.path)[::-1]), options)
    with files.exclusive(root) if write else nullcontext():
        planned = plan_export(files, root, source)
        if write:
            apply_export(files, planned, force=force)
    return planned


def output_directory(files: WritableLocalFiles, path: Path, output_root: Path | None) -> str:
    """The real path of ``output_root``, by default the root of the repository that encloses ``path``."""
    if output_root is not None:
        root = files.real(os.path.abspath(output_root))
        if files.kind(root) != DIRECTORY:
            raise NotFound(f"{output_root} is not a directory", code="no-such-path", fields={"path": str(output_root)})
        return root
    start = files.real(os.path.abspath(path))
    repositories = repositories_above(files, start)
    if not repositories:
        hints = ("run the command inside a git repository", "or name the directory to write to: --output-root DIR")
        raise no_repository(start, "is not inside a repository", *hints)
    return repositories[0]
