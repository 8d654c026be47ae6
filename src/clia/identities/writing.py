"""Writing identities on the local file system: init, journal, transfer, consolidate.

Invariant: init never touches an existing document. Consolidation archives a directory inside another identity's and removes it only
after every byte is in the archive and listed in the receipt; an interrupted run can be repeated and ends in the same state.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import AgentNotFound, AlreadyExists, CliaError, FileError, InvalidInput, UnsafePath
from clia.files import DIRECTORY, FILE, LocalFiles, WritableLocalFiles
from clia.identities import journal as journals
from clia.identities.contexts import AGENCY, AGENDA, AGENT, AGENTS, ARCHIVE, KINDS, ROOT, candidates, root_directives
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.lineage import lineage, survey_path
from clia.identities.working_path import WorkingPath, below
from clia.values.clock import timestamp
from clia.values.json_text import pretty_bytes
from clia.values.records import json_form

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


def _new_documents(slug: str, content: NewIdentity, moment: str) -> dict[str, dict[str, Any]]:
    title = content.title or slug.replace("-", " ").capitalize()
    common = {"schemaVersion": journals.SCHEMA_VERSION, "slug": slug}
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
        texts = {"title": content.title, "role": content.role, "purpose": content.purpose}
        agent = {**common, **{key: value for key, value in texts.items() if value}, "guardrails": list(content.guardrails)}
    agenda = {"title": f"{title}: agenda", "status": "active", "updated": moment, "principles": [], "milestones": [], "backlog": []}
    agency = {"title": f"{title}: agency", "updated": moment, "entries": []}
    return {AGENT: agent, AGENDA: {**common, **agenda}, AGENCY: {**common, **agency}}


MAX_FILE_BYTES = 256 * 1024 * 1024


@json_form(home="from")
class ConsolidationPlan(NamedTuple):
    """How an identity is archived inside another."""

    slug: str  # the identity that is archived and removed
    into: str  # the identity that keeps the archive
    home: str  # directory of the first
    archive: str  # where its files go
    receipt: str  # file that records the consolidation
    files: tuple[str, ...]  # names of its files, relative to its directory


def plan_consolidation(
    files: LocalFiles, slug: str, into: str, source: journals.WriteTarget, target: journals.WriteTarget
) -> ConsolidationPlan:
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
    names = tuple(sorted(_files_below(files, source.home, "")))
    return ConsolidationPlan(slug, into, source.home, archive, f"{archive}.receipt.json", names)


def apply_consolidation(files: WritableLocalFiles, planned: ConsolidationPlan, clock: Clock) -> None:
    """Archive, write the receipt, then remove; both directories are locked."""
    with files.exclusive(planned.home), files.exclusive(planned.archive.rpartition(f"/{ARCHIVE}/")[0]):
        contents = {name: _file_content(files, f"{planned.home}/{name}") for name in sorted(_files_below(files, planned.home, ""))}
        missing = [name for name, data in contents.items() if not _is_archived(files, f"{planned.archive}/{name}", data)]
        for name in missing:
            path = f"{planned.archive}/{name}"
            files.make_directory(path.rpartition("/")[0])
            files.replace(path, contents[name])
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        # One receipt for all attempts: a later attempt keeps the files of earlier ones.
        before = json.loads(files.read(planned.receipt, MAX_FILE_BYTES) or b"{}")
        receipt = {
            "type": "consolidation-receipt",
            "slug": planned.slug,
            "into": planned.into,
            "timestamp": before.get("timestamp", timestamp(clock())),
            "files": dict(sorted({**before.get("files", {}), **hashes}.items())),
        }
        files.replace(planned.receipt, pretty_bytes(receipt))
        for name, expected in hashes.items():
            if hashlib.sha256(_file_content(files, f"{planned.archive}/{name}")).hexdigest() != expected:
                raise FileError(f"{planned.archive}/{name} differs from the archived content; nothing was removed")
        files.remove_tree(planned.home)


def _is_archived(files: LocalFiles, path: str, data: bytes) -> bool:
    """Whether the archive has the file; ``AlreadyExists`` if it has another of that name."""
    archived = files.read(path, MAX_FILE_BYTES)
    if archived not in (None, data):
        hints = ["move the earlier archive away, then try again"]
        raise AlreadyExists(f"{path} exists with other content; nothing was removed", hints=hints, fields={"path": path})
    return archived is not None


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
    scope: str = journals.SUBMODULE
    agents_dir: Path | None = None


DEFAULT_LOCATION = WriteLocation()


def is_operator(slug: str, where: WriteLocation = DEFAULT_LOCATION) -> bool:
    """Whether an identity is that of a person, whose journal entries can approve waivers."""
    try:
        return bool(lineage(where.path, slug).profile().get("profileType") == "operator")
    except CliaError:
        return False  # an unreadable profile approves nothing


def journal(
    slug: str,
    note: journals.Note,
    where: WriteLocation = DEFAULT_LOCATION,
    *,
    clock: Clock = now,
    files: WritableLocalFiles | None = None,
) -> tuple[journals.JournalResult, list[Diagnostic]]:
    """Append an entry to the identity's agency; ``auto`` signs with the profile's ``extensions.journalSignature``, or the slug."""
    writer = files or WritableLocalFiles()
    _, target = _target(writer, slug, where)
    diagnostics = []
    if where.agents_dir is not None and not target.used_agents_dir:
        diagnostics.append(diagnostic("agents-dir-unused", target.home, f"the entry is written to {target.home}"))
    signature = f"-{slug}"
    with suppress(CliaError):  # an unreadable profile must not prevent journaling
        own = (lineage(where.path, slug).profile().get("extensions") or {}).get("journalSignature")
        signature = own if isinstance(own, str) and own.strip() else signature
    return journals.append_note(writer, target, slug, _redacted(note), signature=signature, clock=clock), diagnostics


def journal_directory(slug: str, where: WriteLocation) -> str:
    """The directory whose agency document gets an entry of an identity."""
    _, target = _target(LocalFiles(), slug, where)
    return target.directory


def _redacted(note: journals.Note) -> journals.Note:
    """A note without secrets, as traces are recorded."""
    from clia.redaction.secrets import redact  # reading a profile does not load it

    return note._replace(text=redact(note.text).text, tags=[redact(tag).text for tag in note.tags])


def _target(files: LocalFiles, slug: str, where: WriteLocation) -> tuple[WorkingPath, journals.WriteTarget]:
    place = survey_path(where.path)
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    return place, journals.write_target(files, place, slug, where.scope, agents_dir)


def transfer(
    slug: str, to: Path, selectors: Sequence[str], where: WriteLocation = DEFAULT_LOCATION, *, apply: bool, clock: Clock = now
) -> tuple[journals.TransferPlan, tuple[dict[str, Any], ...]]:
    """Copy entries to an enclosing directory; without ``apply`` only plan it."""
    files = WritableLocalFiles()
    _, source = _target(files, slug, where._replace(agents_dir=None))
    destination = survey_path(to)
    target = journals.target_at(files, destination, destination.path, slug)
    planned = journals.plan_transfer(files, slug, source, target, selectors)
    return planned, journals.apply_transfer(files, planned, clock) if apply else ()


def consolidate(
    slug: str, into: str, where: WriteLocation = DEFAULT_LOCATION, *, apply: bool, clock: Clock = now
) -> ConsolidationPlan:
    """Archive ``slug`` inside ``into`` and remove it; without ``apply`` only plan it."""
    files = WritableLocalFiles()
    place = where._replace(agents_dir=None)
    _, source = _target(files, slug, place)
    _, target = _target(files, into, place)
    planned = plan_consolidation(files, slug, into, source, target)
    if apply:
        apply_consolidation(files, planned, clock)
    return planned


def init(slug: str, content: NewIdentity, where: WriteLocation = DEFAULT_LOCATION, *, clock: Clock = now) -> list[str]:
    """Create the three documents of an identity and return their paths; by default it inherits existing root directives."""
    from clia.redaction.secrets import check_public_name  # reading a profile does not load it

    check_public_name(slug, "the slug")
    files = WritableLocalFiles()
    place, target = _target(files, slug, where)
    if not content.inherits and slug != ROOT and (directives := root_directives(files, place)):
        repository, path = directives
        content = content._replace(inherits=[path.removeprefix(f"{repository}/")])
    files.make_directory(target.home)
    with files.exclusive(target.home):
        entries = files.entries(target.home) or ()
        present = [entry.name for kind in KINDS for entry in candidates(entries, kind)[0]]
        if present:
            path = f"{target.home}/{present[0]}"
            raise AlreadyExists(f"{path} already exists", hints=["edit it, or choose another slug"], fields={"path": path})
        documents = _new_documents(slug, content, timestamp(clock()))
        paths = {kind: f"{target.home}/{slug}@{target.prefix}.{kind}.triad.json" for kind in documents}
        for kind, document in documents.items():
            files.create(paths[kind], pretty_bytes(document))
    return list(paths.values())
