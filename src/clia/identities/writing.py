"""Writing to lineage on the local file system: journal, transfer, consolidate, init."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import CliaError
from clia.identities import consolidate as consolidation
from clia.identities import transfer as transferring
from clia.identities.diagnostics import diagnostic
from clia.identities.directives import ROOT, root_directives
from clia.identities.files import WritableLocalFiles
from clia.identities.journal import auto_signature
from clia.identities.journal import journal as append_note
from clia.identities.resolve import lineage, place
from clia.identities.scaffold import scaffold
from clia.identities.targets import SUBMODULE, target_at, write_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.identities.consolidate import ConsolidationPlan
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import WritableFiles
    from clia.identities.journal import Journaled, Note
    from clia.identities.places import Place
    from clia.identities.scaffold import Wishes
    from clia.identities.transfer import TransferPlan
    from clia.values.clock import Clock

    Path = str | os.PathLike[str]


def now() -> datetime:
    """The real clock."""
    return datetime.now(UTC)


class Where(NamedTuple):
    """Where a write starts from, and how far up it goes."""

    path: Path = "."
    scope: str = SUBMODULE
    agents_dir: Path | None = None


HERE = Where()


def journal(
    slug: str, note: Note, where: Where = HERE, *, clock: Clock = now, files: WritableFiles | None = None
) -> tuple[Journaled, list[Diagnostic]]:
    """Appends one entry to the agent's agency."""
    at = place(where.path)
    writer = files or WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(writer, at, slug, where.scope, agents_dir)
    found = []
    if agents_dir is not None and not target.used_agents_dir:
        found.append(diagnostic("agents-dir-unused", target.home, f"the entry goes to {target.home}"))
    done = append_note(writer, target, slug, note, signature=_signature(where.path, slug), clock=clock)
    return done, found


def _signature(path: Path, slug: str) -> str:
    """Signing must not fail because a profile cannot be read: the journal is where trouble gets written down."""
    try:
        return auto_signature(lineage(path, slug).profile().document, slug)
    except CliaError:
        return auto_signature(None, slug)


def transfer(
    slug: str, to: Path, selectors: Sequence[str], where: Where = HERE, *, apply: bool, clock: Clock = now
) -> tuple[TransferPlan, tuple[dict[str, Any], ...]]:
    """Copies entries up; without ``apply`` only says which."""
    at = place(where.path)
    files = WritableLocalFiles()
    source = write_target(files, at, slug, where.scope)
    destination = place(to)
    target = target_at(files, destination, destination.path, slug)
    planned = transferring.plan(files, slug, source, target, selectors)
    return planned, transferring.apply(files, planned, clock) if apply else ()


def consolidate(slug: str, into: str, where: Where = HERE, *, apply: bool, clock: Clock = now) -> ConsolidationPlan:
    """Archives ``slug`` inside ``into`` and removes it; without ``apply`` only says what would happen."""
    at = place(where.path)
    files = WritableLocalFiles()
    source = write_target(files, at, slug, where.scope)
    target = write_target(files, at, into, where.scope)
    planned = consolidation.plan(files, slug, into, source, target)
    if apply:
        consolidation.apply(files, planned, clock)
    return planned


def init(slug: str, wishes: Wishes, where: Where = HERE, *, clock: Clock = now) -> list[str]:
    """Scaffolds an agent; it inherits the root directives where there are some and nothing else is wished."""
    at = place(where.path)
    files = WritableLocalFiles()
    agents_dir = None if where.agents_dir is None else os.path.abspath(where.agents_dir)
    target = write_target(files, at, slug, where.scope, agents_dir)
    if not wishes.inherits and slug != ROOT:
        wishes = wishes._replace(inherits=_inherited(files, at))
    return scaffold(files, target, slug, wishes, clock)


def _inherited(files: WritableFiles, at: Place) -> list[str]:
    directives = root_directives(files, at)
    return [] if directives is None else [directives.path.removeprefix(f"{directives.repository}/")]
