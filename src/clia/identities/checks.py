"""Checks on agents: list, lint, smoke, doctor, schemas.

Invariant: nothing here writes, save that opening a space settles what a dead process left, that ``health`` takes over agents of
other machines whose sessions it looks at, and that it repairs sessions where it is told to; the caller's identity enters here, and
the environment is handed in for git alone.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import CliaError, NotFound
from clia.identities import lint as linting
from clia.identities import roster as rosters
from clia.identities.contexts import KINDS
from clia.identities.files import LocalFiles
from clia.identities.git_history import GitHistory
from clia.identities.lint import doctor as doctoring
from clia.identities.lint import smoke as smoking
from clia.identities.lint.lines import line_of
from clia.identities.places import survey
from clia.identities.resolve import place, trusted_owners
from clia.identities.schemas import schema
from clia.values import documents
from clia.values.names import check_slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.facade.settings import Settings
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint.report import Report
    from clia.identities.places import Place
    from clia.identities.roster import AgentTree, Roster
    from clia.sessions.health import Ailment

    Path = str | os.PathLike[str]


def roster(path: Path = ".", *, ceiling: Path | None = None, everything: bool = False) -> Roster:
    """The agents visible at a path."""
    return rosters.roster(LocalFiles(), place(path, ceiling=ceiling), everything=everything)


def lint(
    path: Path,
    *,
    environment: Mapping[str, str],
    slugs: Sequence[str] = (),
    ceiling: Path | None = None,
    watch: linting.Watch | None = None,
) -> Report[linting.Checked]:
    """Every finding on the agents visible at a path or declared below it."""
    for slug in slugs:
        check_slug(slug)
    return linting.lint(LocalFiles(), GitHistory(environment), _tree(path, ceiling), slugs, watch)


def smoke(
    path: Path, *, environment: Mapping[str, str], ceiling: Path | None = None, watch: linting.Watch | None = None
) -> Report[smoking.Resolved]:
    """Whether every agent of a tree resolves as it should."""
    return smoking.smoke(LocalFiles(), GitHistory(environment), _tree(path, ceiling), watch)


def doctor(path: Path, *, environment: Mapping[str, str], ceiling: Path | None = None) -> doctoring.DoctorReport:
    """Chain, inheritance and findings of each agent visible at a path."""
    files = LocalFiles()
    return doctoring.examine(files, GitHistory(environment), rosters.seen_from(files, place(path, ceiling=ceiling)))


class SpaceHealth(NamedTuple):
    """The space at a path: which one it is, who is at work in it and what ails sessions, or why it cannot be opened."""

    id: str | None = None
    agents: int = 0
    error: CliaError | None = None
    ailments: tuple[Ailment, ...] = ()
    beside: int = 0  # live sessions in the store beside the repository, while another one is in use

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong, or no longer."""
        return self.error is None and all(each.repaired for each in self.ailments)

    def to_json(self) -> dict[str, Any]:
        if self.error is not None:
            return {"error": self.error.to_json()}
        ailments = [each._asdict() for each in self.ailments]
        return {"id": self.id, "agents": self.agents, "ailments": ailments, "beside": self.beside}


class Health(NamedTuple):
    """What clia runs on, and what it finds at a path."""

    python: str
    git: str | None
    agents: doctoring.DoctorReport
    space: SpaceHealth | None  # None: the path lies in none

    def to_json(self) -> dict[str, Any]:
        return {
            "python": self.python,
            "git": self.git,
            "path": self.agents.path,
            "repository": self.agents.repository,
            "space": None if self.space is None else self.space.to_json(),
            "agents": self.agents.to_json(),
        }


def health(
    path: Path,
    *,
    environment: Mapping[str, str],
    ceiling: Path | None = None,
    settings: Settings | None = None,
    repair: bool = False,
) -> Health:
    """``repair``: puts right what ails sessions, as far as that can be done."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    report = doctor(path, environment=environment, ceiling=ceiling)
    return Health(python, GitHistory(environment).version(), report, _space(path, settings, repair=repair))


def _space(path: Path, settings: Settings | None, *, repair: bool) -> SpaceHealth | None:
    from clia.facade.opening import open_space  # libgit2 and a store, which no other check needs
    from clia.facade.store_migration import left_behind

    try:
        with open_space(path, settings=settings) as space:
            return SpaceHealth(
                space.id, len(space.agents()), ailments=tuple(space.doctor(repair=repair)), beside=left_behind(space)
            )
    except NotFound as err:
        return None if err.code in ("no-such-repository", "no-such-space") else SpaceHealth(error=err)
    except CliaError as err:
        return SpaceHealth(error=err)


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of the documents, by kind."""
    return {kind: schema(kind) for kind in KINDS}


def lines_of(findings: Iterable[Diagnostic]) -> dict[Diagnostic, int]:
    """The line that each finding is about; those whose file cannot be read stand at no line."""
    files = LocalFiles()
    known: dict[str, bytes | None] = {}
    lines: dict[Diagnostic, int] = {}
    for each in findings:
        if each.path is None:
            continue
        if each.path not in known:
            known[each.path] = _read(files, each.path)
        data = known[each.path]
        if data is not None:
            lines[each] = line_of(data, each.path, each.pointer)
    return lines


def _read(files: LocalFiles, path: str) -> bytes | None:
    try:
        return files.read(path, documents.MAX_BYTES)
    except CliaError:
        return None


def _tree(path: Path, ceiling: Path | None) -> AgentTree:
    files, trusted = LocalFiles(), trusted_owners()
    top = None if ceiling is None else os.path.abspath(ceiling)

    def survey_at(directory: str) -> Place:
        return survey(files, directory, ceiling=top, trusted=trusted)

    return rosters.tree_of(files, place(path, ceiling=ceiling), survey_at)
