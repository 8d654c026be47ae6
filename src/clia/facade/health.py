"""The report of ``clia doctor``: versions of programs, the space at a path, and its identities.

Opening a space completes or undoes operations of crashed processes. Nothing else is written, unless ``repair`` is set.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import CliaError, NotFound
from clia.identities.checks import doctor
from clia.identities.git_history import GitHistory
from clia.values.records import ReportedError, json_form

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from clia.facade.settings import Settings
    from clia.identities.checks import DoctorReport
    from clia.sessions.health import Ailment

    Path = str | os.PathLike[str]


@json_form("id", "agents", "ailments", "beside")
class SpaceHealth(NamedTuple):
    """The space at a path: its id, its agents and broken sessions, or the error that prevents opening it."""

    id: str | None = None  # id of the space
    agents: int = 0  # number of active agents
    error: CliaError | None = None
    ailments: tuple[Ailment, ...] = ()  # problems of sessions
    beside: int = 0  # live sessions in the repository's own store while another store is in use

    @property
    def sound(self) -> bool:
        """Whether the space opens and every problem found has been repaired."""
        return self.error is None and all(ailment.repaired for ailment in self.ailments)


@json_form("python", "git", "path", "repository", "opened", "agents", opened="space")
class HealthReport(NamedTuple):
    """The versions of Python and git, and the health of the identities and the space at a path."""

    python: str  # version of Python
    git: str | None  # version of git; null: it was not found
    agents: DoctorReport  # as `clia agents doctor` prints it
    space: SpaceHealth | None  # None: no space encloses the path

    @property
    def path(self) -> str:
        """The working path."""
        return self.agents.path

    @property
    def repository(self) -> str | None:
        """The innermost repository that contains the path."""
        return self.agents.repository

    @property
    def opened(self) -> SpaceHealth | ReportedError | None:
        """The space that encloses the path, or why it cannot be opened; null: there is none."""
        return self.space if self.space is None or self.space.error is None else ReportedError(self.space.error)


def health(
    path: Path,
    *,
    environment: Mapping[str, str],
    ceiling: Path | None = None,
    settings: Settings | None = None,
    repair: bool = False,
) -> HealthReport:
    """Examine a path; with ``repair``, also repair broken sessions where possible."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    report = doctor(path, environment=environment, ceiling=ceiling)
    return HealthReport(python, GitHistory(environment).version(), report, _space_health(path, settings, repair=repair))


def _space_health(path: Path, settings: Settings | None, *, repair: bool) -> SpaceHealth | None:
    from clia.facade.opening import open_space
    from clia.facade.store_migration import left_behind

    try:
        with open_space(path, settings=settings) as space:
            ailments = tuple(space.doctor(repair=repair))
            return SpaceHealth(space.id, len(space.agents()), ailments=ailments, beside=left_behind(space))
    except NotFound as err:
        return None if err.code in ("no-such-repository", "no-such-space") else SpaceHealth(error=err)
    except CliaError as err:
        return SpaceHealth(error=err)
