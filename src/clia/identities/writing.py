"""Scaffolding: three documents for a new agent.

Invariant: an existing document is never touched; where any of the three kinds is there already, nothing is written.

=====

Consolidation: one agent's directory, archived whole inside another's, then removed.

Invariant: nothing is removed before every byte of it stands in the archive and the receipt says so. Interrupted at any
point it can be run again, and ends in the same state.

=====

Writing to lineage on the local file system: journal, transfer, consolidate, init.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import AgentNotFound, AlreadyExists, CliaError, FileError, InvalidInput, UnsafePath
from clia.identities.contexts import AGENCY, AGENDA, AGENT, AGENTS, ARCHIVE, KINDS, ROOT, candidates, root_directives
from clia.identities.diagnostics import diagnostic
from clia.identities.files import DIRECTORY, FILE, WritableLocalFiles
from clia.identities.journal import (
    SCHEMA_VERSION,
    SUBMODULE,
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
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.files import LocalFiles
    from clia.identities.journal import JournalResult, Note, TransferPlan, WriteTarget
    from clia.identities.working_path import WorkingPath
    from clia.values.clock import Clock

    Path = str | os.PathLike[str]


class NewIdentity(NamedTuple):
    """What a new agent is told about itself."""

    title: str | None = None
    role: str | None = None
    purpose: str | None = None
    guardrails: Sequence[str] = ()
    inherits: Sequence[str] = ()
    operator: bool = False


def scaffold(files: WritableLocalFiles, target: WriteTarget, slug: str, wishes: NewIdentity, clock: Clock) -> list[str]:
    """Creates the three documents and returns their paths."""
    files.make_directory(target.home)
    with files.exclusive(target.home):
        entries = files.entries(target.home) or ()
        for kind in KINDS:
            taken, _ = candidates(entries, kind)
            if taken:
                raise AlreadyExists(
                    f"{target.home}/{taken[0].name} exists already",
                    hints=["edit it, or choose another slug"],
                    fields={"path": f"{target.home}/{taken[0].name}"},
                )
        paths = []
        for kind, document in _new_documents(slug, wishes, timestamp(clock())).items():
            path = f"{target.home}/{slug}@{target.prefix}.{kind}.triad.json"
            files.create(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8"))
            paths.append(path)
        return paths


def _new_documents(slug: str, wishes: NewIdentity, moment: str) -> dict[str, dict[str, Any]]:
    title = wishes.title or slug.replace("-", " ").capitalize()
    common = {"schemaVersion": SCHEMA_VERSION, "slug": slug}
    agent: dict[str, Any] = {
        **common,
        "title": title,
        "role": wishes.role or slug,
        "status": "active",
        "updated": moment,
        "profileType": "operator" if wishes.operator else "agent",
        "purpose": wishes.purpose or "",
        "inherits": list(wishes.inherits),
        "guardrails": list(wishes.guardrails),
        "responsibilities": [],
        "tags": [],
    }
    if slug == ROOT:
        # Whatever else the directives say, every agent that inherits them would say of itself.
        said = {"title": wishes.title, "role": wishes.role, "purpose": wishes.purpose}
        agent = {**common, **{key: value for key, value in said.items() if value}, "guardrails": list(wishes.guardrails)}
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
        slug, into, source.home, archive, f"{archive}.receipt.json", tuple(sorted(_files_below(files, source.home, "")))
    )


def apply_consolidation(files: WritableLocalFiles, planned: ConsolidationPlan, clock: Clock) -> None:
    """Archives, writes the receipt, removes. Both directories are held against other writers."""
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
                raise FileError(f"{planned.archive}/{name} does not hold what was archived; nothing was removed")
        files.remove_tree(planned.home)


def _write_receipt(files: WritableLocalFiles, planned: ConsolidationPlan, hashes: dict[str, str], moment: str) -> None:
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


def _check_archived(files: LocalFiles, path: str, data: bytes) -> None:
    there = files.read(path, MAX_FILE_BYTES)
    if there is not None and there != data:
        raise AlreadyExists(
            f"{path} holds something else already; nothing was removed",
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
            raise UnsafePath(f"{path} is neither a file nor a directory, so it cannot be archived whole", fields={"path": path})


def _file_content(files: LocalFiles, path: str) -> bytes:
    data = files.read(path, MAX_FILE_BYTES)
    if data is None or len(data) > MAX_FILE_BYTES:
        raise FileError(f"{path} cannot be archived: it is gone, or larger than {MAX_FILE_BYTES} bytes", fields={"path": path})
    return data


def now() -> datetime:
    """The real clock."""
    return datetime.now(UTC)


class WriteLocation(NamedTuple):
    """Where a write starts from, and how far up it goes."""

    path: Path = "."
    scope: str = SUBMODULE
    agents_dir: Path | None = None


DEFAULT_LOCATION = WriteLocation()


def journal(
    slug: str, note: Note, where: WriteLocation = DEFAULT_LOCATION, *, clock: Clock = now, files: WritableLocalFiles | None = None
) -> tuple[JournalResult, list[Diagnostic]]:
    """Appends one entry to the agent's agency."""
    at = survey_path(where.path)
    writer = files or WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(writer, at, slug, where.scope, agents_dir)
    found = []
    if agents_dir is not None and not target.used_agents_dir:
        found.append(diagnostic("agents-dir-unused", target.home, f"the entry goes to {target.home}"))
    done = append_note(writer, target, slug, note, signature=_journal_signature(where.path, slug), clock=clock)
    return done, found


def _journal_signature(path: Path, slug: str) -> str:
    """Signing must not fail because a profile cannot be read: the journal is where trouble gets written down."""
    try:
        return auto_signature(lineage(path, slug).profile().document, slug)
    except CliaError:
        return auto_signature(None, slug)


def transfer(
    slug: str, to: Path, selectors: Sequence[str], where: WriteLocation = DEFAULT_LOCATION, *, apply: bool, clock: Clock = now
) -> tuple[TransferPlan, tuple[dict[str, Any], ...]]:
    """Copies entries up; without ``apply`` only says which."""
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
    """Archives ``slug`` inside ``into`` and removes it; without ``apply`` only says what would happen."""
    at = survey_path(where.path)
    files = WritableLocalFiles()
    source = write_target(files, at, slug, where.scope)
    target = write_target(files, at, into, where.scope)
    planned = plan_consolidation(files, slug, into, source, target)
    if apply:
        apply_consolidation(files, planned, clock)
    return planned


def init(slug: str, wishes: NewIdentity, where: WriteLocation = DEFAULT_LOCATION, *, clock: Clock = now) -> list[str]:
    """Scaffolds an agent; it inherits the root directives where there are some and nothing else is wished."""
    at = survey_path(where.path)
    files = WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(files, at, slug, where.scope, agents_dir)
    if not wishes.inherits and slug != ROOT:
        wishes = wishes._replace(inherits=_default_inherits(files, at))
    return scaffold(files, target, slug, wishes, clock)


def _default_inherits(files: WritableLocalFiles, at: WorkingPath) -> list[str]:
    directives = root_directives(files, at)
    return [] if directives is None else [directives.path.removeprefix(f"{directives.repository}/")]
