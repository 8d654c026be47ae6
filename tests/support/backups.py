"""Backups of a space, and spaces restored from them."""

from __future__ import annotations

import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.facade.restore import restore
from clia.testing import components
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.facade.backup import Backup
    from clia.facade.restore import Restored


def backed_up(root: Path, directory: Path, **more: Any) -> Backup:
    """Back up the space of a repository, as another process would."""
    with clia.open(root, settings=settings(**more)) as space:
        return space.local.back_up(str(directory))


class RestoredSpace(NamedTuple):
    """A repository with a restored space."""

    root: Path
    result: Restored
    store: str | None = None

    @contextmanager
    def open(self) -> Iterator[clia.Space]:
        with clia.open(self.root, settings=settings(store=self.store)) as space:
            yield space


def restored(backup: Path, root: Path, store: str | None = None, **more: Any) -> RestoredSpace:
    """Restore a backup, and check that nothing is wrong with the space."""
    result = restore(str(backup), str(root), settings(store=store), **more)
    place = RestoredSpace(root, result, store)
    with place.open() as space:
        check_sound(space)
    return place


def check_sound(space: clia.Space) -> None:
    """Check that nothing is wrong with a space, and nothing unfinished."""
    report = space.verify()
    assert report.clean, report.findings
    ailments = [ailment.message for ailment in space.doctor()]
    assert not ailments, ailments
    assert space.local.store_problem() is None
    assert not components(space).envelope.unfinished()


def state_of(space: clia.Space) -> dict[str, Any]:
    """What a restored space has in common with the original: refs, sessions, pending traces and relations."""
    parts = components(space)
    refs = {ref: cid for ref, cid in parts.git.refs.under("refs/") if not ref.startswith("refs/clia-local/")}
    return {
        "refs": refs,
        "sessions": [_facts(space, name) for name in space.agents() if space.sessions(agent=name)],
        "pending": {name: space.trace_pending(name) for name in space.agents()},
        "relations": space.relations(),
    }


def _facts(space: clia.Space, agent: str) -> tuple[Any, ...]:
    session = space.session(agent)
    return agent, session.id, session.flow, session.status, [(request.id, request.kind) for request in session.pending]


def exposed(directory: Path) -> list[str]:
    """The files and directories that other users can access."""
    return [str(path) for path in (directory, *directory.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]
