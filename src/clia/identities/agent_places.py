"""Places of agents: where an agent was spawned, and lineage as if asked there.

Invariant: in an agent's worktree, the contexts that enclose the place of spawn in the main worktree count, wherever the agent's
worktree is. The worktree's own documents are the innermost layer: they replace the text of the originals, never their guardrails.
An agent spawned before places were recorded has the top of its repository as its place.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clia.errors import CliaError, FileError
from clia.files import DIRECTORY, LocalFiles
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.merge import same
from clia.identities.merge_rules import projected_text
from clia.identities.working_path import (
    LinkedWorktree,
    WorkingPath,
    WorktreeLayer,
    below,
    domain_name,
    inside,
    is_repository,
    linked_worktree,
    parents,
    survey,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PLACE_FILE, PROFILE_FILE = "place.json", "profile.json"


class SpawnPlace(NamedTuple):
    """Where an agent was spawned. It is the same in every clone."""

    repository: str  # name of the outermost repository
    submodule: str = ""  # path of the agent's repository in it; empty: it is that repository
    path: str = ""  # directory in the agent's repository; empty: its top


def read_place(value: object) -> SpawnPlace | None:
    """The place in an agent's record; None if it has none that can be used."""
    if not isinstance(value, dict):
        return None
    fields = [value.get(name) for name in SpawnPlace._fields]
    texts = [field for field in fields if isinstance(field, str)]
    safe = len(texts) == len(fields) and not texts[2].startswith("/") and ".." not in texts[2].split("/")
    return SpawnPlace(*texts) if safe else None


class FrozenProfile(NamedTuple):
    """What an agent's record says about its place and profile."""

    agent: str
    recorded_place: Mapping[str, Any] | None
    profile: Mapping[str, Any] | None
    trouble: tuple[Diagnostic, ...] = ()

    @property
    def place(self) -> SpawnPlace | None:
        """The place; None if none is recorded, or it cannot be used."""
        return read_place(self.recorded_place)

    @property
    def path(self) -> str:
        """The place in the repository."""
        return "" if self.place is None else self.place.path

    @property
    def slug(self) -> str | None:
        slug = (self.profile or {}).get("slug")
        return slug if isinstance(slug, str) else None

    def binds(self, slug: str | None) -> bool:
        """Whether an identity must have the guardrails of the profile."""
        return self.profile is not None and self.slug in (None, slug)

    def losses(self, document: Mapping[str, Any]) -> list[Diagnostic]:
        """A finding for each guardrail of the profile that a document lacks."""
        return [*self.trouble, *missing_guardrails(self.agent, lost_guardrails(self.profile, document))]


def missing_guardrails(agent: str, guardrails: Iterable[Any]) -> list[Diagnostic]:
    """A finding for each guardrail of an agent's record that is missing."""
    message = f"a guardrail of the agent {agent} is missing here"
    return [diagnostic("guardrails-missing", None, f"{message}: {projected_text(item)}") for item in guardrails]


def guardrails_of(document: object) -> list[Any]:
    """The guardrails of a merged document."""
    guardrails = document.get("guardrails") if isinstance(document, dict) else None
    return guardrails if isinstance(guardrails, list) else []


def lost_guardrails(profile: Mapping[str, Any] | None, document: Mapping[str, Any]) -> list[Any]:
    """The guardrails of a recorded profile that a document lacks. Records are redacted, so the document is compared redacted."""
    before = guardrails_of((profile or {}).get("document"))
    lost = without(before, guardrails_of(document))
    if lost:
        from clia.redaction.secrets import redact_value  # profiles are redacted before they are recorded

        lost = without(lost, redact_value(guardrails_of(document))[0])
    return lost


def without(items: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The items that equal none of the others."""
    return [item for item in items if not any(same(item, other) for other in others)]


def read_frozen(worktree: LinkedWorktree) -> FrozenProfile | None:
    """The record of the agent in a worktree; None for a person's."""
    if worktree.agent is None:
        return None
    from clia.git.ref_contents import files_at  # libgit2: only in worktrees of agents
    from clia.values.refs import is_name, record

    agent = worktree.agent
    try:
        files = files_at(worktree.common, record(agent)) if is_name(agent) else None
        if files is None:
            raise FileError(f"{worktree.common} has no record of the agent {agent}")
        values = {name: json.loads(files[name]) for name in (PLACE_FILE, PROFILE_FILE) if name in files}
    except (CliaError, ValueError) as err:
        message = f"the record of the agent {agent} cannot be read: {err}"
        return FrozenProfile(agent, None, {}, (diagnostic("agent-record-unreadable", None, message),))
    place, profile = (value if isinstance(value := values.get(name), dict) else None for name in (PLACE_FILE, PROFILE_FILE))
    return FrozenProfile(agent, place, profile)


def survey_at_place(files: LocalFiles, path: str, worktree: LinkedWorktree, at: str, trusted: frozenset[int] | None) -> WorkingPath:
    """Survey a path in a linked worktree as if it were at the directory ``at`` of the main worktree."""
    main = worktree.main(files)
    local = survey(files, path, ceiling=worktree.top, trusted=trusted)
    outer = survey(files, worktree.common if main is None else existing(files, main, at), trusted=trusted)
    above = [ancestor for ancestor in outer.ancestors if not inside(ancestor, worktree.top)]
    own = [parent for parent in reversed(parents(existing(files, worktree.top, at))) if inside(parent, worktree.top)]
    return WorkingPath(
        local.path,
        tuple(dict.fromkeys([*above, *own, *local.ancestors])),
        tuple(dict.fromkeys([*outer.repositories, *local.repositories])),
        outer.submodules | local.submodules,
        tuple(sorted({*outer.siblings, *local.siblings})),
        trusted,
        tuple(dict.fromkeys([*outer.diagnostics, *local.diagnostics])),
        WorktreeLayer(worktree.top, main),
    )


def existing(files: LocalFiles, top: str, path: str) -> str:
    """The innermost directory that exists on the way from ``top`` to ``path`` below it; links are not followed."""
    directory = top
    for part in path.split("/") if path else ():
        inner = below(directory, part)
        if files.kind(inner) != DIRECTORY:
            break
        directory = inner
    return directory


def spawn_place(files: LocalFiles, path: str) -> SpawnPlace:
    """The place of a real path: the outermost repository, the innermost one, and the path in it."""
    worktree = linked_worktree(files, path)
    if worktree is not None:
        top, main = worktree.top, worktree.main(files) or worktree.top
    else:
        top = main = next((parent for parent in parents(path) if is_repository(files, parent)), path)
    roots = [parent for parent in parents(main) if is_repository(files, parent)] or [main]
    outermost = roots[-1]
    return SpawnPlace(*map(_unicode, (domain_name(files, outermost), _relative(main, outermost), _relative(path, top))))


def _relative(path: str, top: str) -> str:
    return path.removeprefix(top).lstrip("/") if inside(path, top) else ""


def _unicode(name: str) -> str:
    """A name with bytes that are not Unicode escaped, because it becomes part of a record."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
