"""Writing identities on the local file system: init, journal, transfer, consolidate.

Invariant: init never touches an existing document. Consolidation archives a directory inside another identity's and removes it only
after every byte is in the archive and listed in the receipt; an interrupted run can be repeated and ends in the same state.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import AgentNotFound, AlreadyExists, CliaError, FileError, InvalidInput, UnsafePath
from clia.identities.contexts import AGENCY, AGENDA, AGENT, AGENTS, ARCHIVE, KINDS, ROOT, candidates, root_directives
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.files import DIRECTORY, FILE, LocalFiles, WritableLocalFiles
from clia.identities.journal import (
    SCHEMA_VERSION,
    SUBMODULE,
    JournalResult,
    Note,
    TransferPlan,
    WriteTarget,
    append_note,
    apply_transfer,
    auto_signature,
    plan_transfer,
    target_at,
    write_target,
)
from clia.identities.lineage import lineage, survey_path
from clia.identities.working_path import below
from clia.values.clock import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.values.clock import Clock

    Path = str | os.PathLike[str]


class NewIdentity(NamedTuple):
    """The content of a new identity's documents."""

    title: str | None = None
    role: str | None = None
    purpose: str | None = None
    guardrails: Sequence[str] = ()
    inherits: Sequence[str] = ()
    operator: bool = False


def scaffold(files: WritableLocalFiles, target: WriteTarget, slug: str, content: NewIdentity, clock: Clock) -> list[str]:
    """Create the three documents and return their paths."""
    files.make_directory(target.home)
    with files.exclusive(target.home):
        entries = files.entries(target.home) or ()
        for kind in KINDS:
            taken, _ = candidates(entries, kind)
            if taken:
                raise AlreadyExists(
                    f"{target.home}/{taken[0].name} already exists",
                    hints=["edit it, or choose another slug"],
                    fields={"path": f"{target.home}/{taken[0].name}"},
                )
        paths = []
        for kind, document in _new_documents(slug, content, timestamp(clock())).items():
            path = f"{target.home}/{slug}@{target.prefix}.{kind}.triad.json"
            files.create(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8"))
            paths.append(path)
        return paths


def _new_documents(slug: str, content: NewIdentity, moment: str) -> dict[str, dict[str, Any]]:
    title = content.title or slug.replace("-", " ").capitalize()
    common = {"schemaVersion": SCHEMA_VERSION, "slug": slug}
    agent: dict[str, Any] = {
        **common,
        "title": title,
        "role": content.role or slug,
        "status": "active",
        "updated": moment,
        "profileType": "operator" if content.operator else "agent",
        "purpose": content.purpose or "",
        "inherits": list(content.inherits),
        "guardrails": list(content.guardrails),
        "responsibilities": [],
        "tags": [],
    }
    if slug == ROOT:
        # Identities inherit every field of the directives, so only the given ones are written.
        said = {"title": content.title, "role": content.role, "purpose": content.purpose}
        agent = {**common, **{key: value for key, value in said.items() if value}, "guardrails": list(content.guardrails)}
    agenda = {
        **common,
        "title": f"{title}: agenda",
        "status": "active",
        "updated": moment,
        "principles": [],
        "milestones": [],
        "backlog": [],
    }
    agency = {**common, "title": f"{title}: agency", "updated": moment, "entries": []}
    return {AGENT: agent, AGENDA: agenda, AGENCY: agency}


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


def plan_consolidation(files: LocalFiles, slug: str, into: str, source: WriteTarget, target: WriteTarget) -> ConsolidationPlan:
    """Plan a consolidation; changes nothing."""
    if source.home == target.home:
        raise InvalidInput(f"{slug} cannot be consolidated into itself", fields={"slug": slug})
    archive = f"{target.home}/{ARCHIVE}/{slug}"
    for path in (below(source.directory, f"{AGENTS}/{slug}"), below(target.directory, f"{AGENTS}/{into}"), archive):
        # A link could lead the archive into the removed directory, or out of the repository.
        if files.real(path) != path:
            raise UnsafePath(f"{path} is a link or behind one; nothing was archived or removed", fields={"path": path})
    interrupted = files.kind(f"{archive}.receipt.json") == FILE and files.kind(source.home) == DIRECTORY
    for name, home in ((slug, source.home), (into, target.home)):
        entries = files.entries(home) or ()
        if not any(candidates(entries, kind)[0] for kind in KINDS) and not (interrupted and name == slug):
            raise AgentNotFound(f"{home} has no documents of identity {name!r}", fields={"slug": name, "searched": [home]})
    return ConsolidationPlan(
        slug, into, source.home, archive, f"{archive}.receipt.json", tuple(sorted(_files_below(files, source.home, "")))
    )


def apply_consolidation(files: WritableLocalFiles, planned: ConsolidationPlan, clock: Clock) -> None:
    """Archive, write the receipt, then remove; both directories are locked."""
    with files.exclusive(planned.home), files.exclusive(planned.archive.rpartition(f"/{ARCHIVE}/")[0]):
        contents = {name: _file_content(files, f"{planned.home}/{name}") for name in sorted(_files_below(files, planned.home, ""))}
        for name, data in contents.items():
            _check_archived(files, f"{planned.archive}/{name}", data)
        for name, data in contents.items():
            _archive(files, f"{planned.archive}/{name}", data)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        _write_receipt(files, planned, hashes, timestamp(clock()))
        for name, expected in hashes.items():
            if hashlib.sha256(_file_content(files, f"{planned.archive}/{name}")).hexdigest() != expected:
                raise FileError(f"{planned.archive}/{name} differs from the archived content; nothing was removed")
        files.remove_tree(planned.home)


def _write_receipt(files: WritableLocalFiles, planned: ConsolidationPlan, hashes: dict[str, str], moment: str) -> None:
    """Write one receipt for all attempts; a later attempt keeps the files of earlier ones."""
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


def _check_archived(files: LocalFiles, path: str, data: bytes) -> None:
    there = files.read(path, MAX_FILE_BYTES)
    if there is not None and there != data:
        raise AlreadyExists(
            f"{path} exists with other content; nothing was removed",
            hints=["move the earlier archive away, then try again"],
            fields={"path": path},
        )


def _archive(files: WritableLocalFiles, path: str, data: bytes) -> None:
    if files.read(path, MAX_FILE_BYTES) is None:
        files.make_directory(path.rpartition("/")[0])
        files.replace(path, data)


def _files_below(files: LocalFiles, directory: str, below: str) -> Iterator[str]:
    for entry in files.entries(directory) or ():
        path = f"{directory}/{entry.name}"
        if entry.kind == DIRECTORY:
            yield from _files_below(files, path, f"{below}{entry.name}/")
        elif entry.kind == FILE:
            yield f"{below}{entry.name}"
        else:
            raise UnsafePath(f"{path} is neither a file nor a directory and cannot be archived", fields={"path": path})


def _file_content(files: LocalFiles, path: str) -> bytes:
    data = files.read(path, MAX_FILE_BYTES)
    if data is None or len(data) > MAX_FILE_BYTES:
        raise FileError(f"{path} cannot be archived: it is missing or larger than {MAX_FILE_BYTES} bytes", fields={"path": path})
    return data


def now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


class WriteLocation(NamedTuple):
    """The path that a write starts from, and its scope."""

    path: Path = "."
    scope: str = SUBMODULE
    agents_dir: Path | None = None


DEFAULT_LOCATION = WriteLocation()


def journal(
    slug: str, note: Note, where: WriteLocation = DEFAULT_LOCATION, *, clock: Clock = now, files: WritableLocalFiles | None = None
) -> tuple[JournalResult, list[Diagnostic]]:
    """Append an entry to the identity's agency."""
    at = survey_path(where.path)
    writer = files or WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(writer, at, slug, where.scope, agents_dir)
    found = []
    if agents_dir is not None and not target.used_agents_dir:
        found.append(diagnostic("agents-dir-unused", target.home, f"the entry is written to {target.home}"))
    done = append_note(writer, target, slug, note, signature=_journal_signature(where.path, slug), clock=clock)
    return done, found


def _journal_signature(path: Path, slug: str) -> str:
    """The signature of the identity; an unreadable profile must not prevent journaling."""
    try:
        return auto_signature(lineage(path, slug).profile().document, slug)
    except CliaError:
        return auto_signature(None, slug)


def transfer(
    slug: str, to: Path, selectors: Sequence[str], where: WriteLocation = DEFAULT_LOCATION, *, apply: bool, clock: Clock = now
) -> tuple[TransferPlan, tuple[dict[str, Any], ...]]:
    """Copy entries to an enclosing directory; without ``apply`` only plan it."""
    at = survey_path(where.path)
    files = WritableLocalFiles()
    source = write_target(files, at, slug, where.scope)
    destination = survey_path(to)
    target = target_at(files, destination, destination.path, slug)
    planned = plan_transfer(files, slug, source, target, selectors)
    return planned, apply_transfer(files, planned, clock) if apply else ()


def consolidate(
    slug: str, into: str, where: WriteLocation = DEFAULT_LOCATION, *, apply: bool, clock: Clock = now
) -> ConsolidationPlan:
    """Archive ``slug`` inside ``into`` and remove it; without ``apply`` only plan it."""
    at = survey_path(where.path)
    files = WritableLocalFiles()
    source = write_target(files, at, slug, where.scope)
    target = write_target(files, at, into, where.scope)
    planned = plan_consolidation(files, slug, into, source, target)
    if apply:
        apply_consolidation(files, planned, clock)
    return planned


def init(slug: str, content: NewIdentity, where: WriteLocation = DEFAULT_LOCATION, *, clock: Clock = now) -> list[str]:
    """Create an identity; by default it inherits the root directives if they exist."""
    at = survey_path(where.path)
    files = WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(files, at, slug, where.scope, agents_dir)
    if not content.inherits and slug != ROOT and (directives := root_directives(files, at)):
        repository, path = directives
        content = content._replace(inherits=[path.removeprefix(f"{repository}/")])
    return scaffold(files, target, slug, content, clock)
