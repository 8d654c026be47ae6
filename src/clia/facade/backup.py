"""Back up a space while work continues: git and the store as they were at one moment.

Invariant: in a backup the store is neither ahead of git nor behind it. The view of the store begins between two readings of all
refs that give the same values. If refs move too often for that, running verbs are waited for and new ones wait, for the time of one
reading. An operation of a process that runs or died at that moment is in the backup as after a crash: opening the restored space
completes or undoes it.

Hook events are copied first: an event that is ingested meanwhile is in both, and an event counts once.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import NamedTuple

from clia import __version__
from clia.errors import CliaError, GitError, InvalidInput
from clia.facade import backup_files
from clia.facade.backup_files import CLIA, GIT, REPOSITORY, STORE, Manifest
from clia.git.repository_copy import RefValues, RepositoryCopy, read_refs
from clia.space.envelope import Envelope
from clia.store.export import PROCESS_KEYS, REBUILT, StoreExport, write_rows
from clia.store.private_files import FileLocks
from clia.store.sqlite_store import SqliteStore
from clia.trust.superseded_logs import READING, kept_objects
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from clia.facade.components import Components

    Progress = Callable[[int, int, str], None]

STEPS = ("backup-begun", "spool-copied", "refs-read", "view-begun", "state-fixed", "store-copied", "git-copied", "backup-described")
"""The named crash points of a backup, in order."""
_TRIES, _TRIES_WITH_HUB = 3, 10
_PATIENCE = 30
"""Seconds to wait for running verbs: new ones wait, too."""
_SETTINGS = ("config", "config.worktree", "description", "info", "hooks")
# What belongs to processes or to this directory, is part of another copy, or is made again.
_NOT_COPIED = (
    *(
        "archive.git",
        "clone",
        "clone-place",
        "fetches",
        "forge.json",
        "locks",
        "moves",
        "packs",
        "quarantine",
        READING,
        "ref-locks",
    ),
    *(
        "run",
        "shared",
        "space.db",
        "space.db-shm",
        "space.db-wal",
        "space.db.lock",
        "spool/tmp",
        "store-mark",
        "moves.done",
        "work",
    ),
    "worktrees",
)


class Backup(NamedTuple):
    """A backup of a space."""

    path: str  # its directory
    space: str  # id of the space
    at: str  # when the state that it has was current
    refs: int  # refs, those of idle agents included
    agents: int  # active and archived agents
    bytes: int  # size of its files


class BackupMoment(NamedTuple):
    """A state of git and the store that belong together."""

    refs: RefValues
    rows: StoreExport
    at: str


def back_up(components: Components, directory: str, progress: Progress | None = None) -> Backup:
    """Write a backup to a new or empty directory."""
    directory = os.path.abspath(directory)
    _check_place(components, directory)
    backup_files.require_free(directory)
    reached, report = components.core.reached, progress or (lambda *_: None)
    components.core.store.require_sound(look=True)
    with backup_files.draft(directory) as place, kept_objects(components.git):
        reached("backup-begun")
        report(0, 4, "hook events")
        home = components.home
        spool = os.path.join("spool", "")
        backup_files.copy_tree(os.path.join(home, spool), os.path.join(place, CLIA, spool), ("tmp",))
        reached("spool-copied")
        with _moment(components) as moment:
            reached("state-fixed")
            report(1, 4, "store")
            _copy_store(os.path.join(place, STORE), components.core.space_id, moment.rows)
            epoch = moment.rows.epoch()
        reached("store-copied")
        report(2, 4, "git")
        try:
            RepositoryCopy(components.git, moment.refs, os.path.join(place, GIT)).write([] if epoch is None else [epoch.epoch])
        except GitError as err:
            err.hints = (*err.hints, "if objects are missing or damaged, list them with: clia verify")
            raise
        common = components.git.handle.common_dir
        for name in _SETTINGS:
            path, target = os.path.join(common, name), os.path.join(place, REPOSITORY, name)
            (backup_files.copy_tree if os.path.isdir(path) else backup_files.copy_file)(path, target)
        backup_files.copy_tree(home, os.path.join(place, CLIA), _NOT_COPIED)
        backup_files.make_private(place)
        reached("git-copied")
        report(3, 4, "digests")
        agents, idle = _agents(moment.refs)
        manifest = backup_files.describe(
            place,
            clia=__version__,
            space=components.core.space_id,
            at=moment.at,
            store="sqlite" if isinstance(components.core.store, SqliteStore) else "postgresql",
            shared=components.core.clone is not None,
            bare=components.git.handle.work_dir is None,
            partial=components.git.handle.is_partial(),
            epoch=None if epoch is None else epoch.epoch,
            changes=0 if epoch is None else epoch.number,
            refs=len(moment.refs.all()),
            agents=agents,
            idle=idle,
        )
        reached("backup-described")
    report(4, 4, "")
    return _summary(directory, manifest)


def check_backup(directory: str) -> Backup:
    """Verify a backup: every file has its digest, git has all objects, and the store can be read."""
    directory = os.path.abspath(directory)
    manifest = backup_files.read_manifest(directory)
    problems = backup_files.check_files(directory, manifest) or [*_git_problems(directory, manifest), *_store_problems(directory)]
    if problems:
        raise backup_files.damaged(directory, problems)
    return _summary(directory, manifest)


def _summary(directory: str, manifest: Manifest) -> Backup:
    return Backup(directory, manifest.space, manifest.at, manifest.refs, manifest.agents, manifest.bytes)


def _check_place(components: Components, directory: str) -> None:
    """Refuse a directory where agents would commit the backup, or git would take it for its own files."""
    handle, parent = components.git.handle, os.path.realpath(os.path.dirname(directory))
    place = os.path.join(parent, os.path.basename(directory))
    for owner in filter(None, (handle.work_dir, handle.common_dir)):
        if place == owner or place.startswith(f"{owner}/"):
            message = f"{directory} is inside the repository {handle.path}"
            hints = ["choose a directory outside of it, best on another disk"]
            raise InvalidInput(message, code="backup-inside", hints=hints, fields={"path": directory})


@contextmanager
def _moment(components: Components) -> Iterator[BackupMoment]:
    """Fix one moment of git and the store; the rows can be read until the block ends."""
    with ExitStack() as stack:
        for number in range(_TRIES if components.hub_sync is None else _TRIES_WITH_HUB):
            _sync_with_hub(components, report=number == 0)
            before = _read_refs(components)
            with ExitStack() as attempt:
                rows = attempt.enter_context(components.core.store.snapshot((*PROCESS_KEYS, *REBUILT)))
                moment = _look(components, rows)
                if moment.refs == before:
                    stack.push(attempt.pop_all())
                    break
        else:
            with _alone(components):
                rows = stack.enter_context(components.core.store.snapshot((*PROCESS_KEYS, *REBUILT)))
                moment = _look(components, rows)
        yield moment


def _look(components: Components, rows: StoreExport) -> BackupMoment:
    """Read all refs after a view of the store has begun; those of the hub are among the tracking refs."""
    components.core.reached("view-begun")
    at = timestamp(components.core.clock())
    if components.hub_sync is not None:
        with suppress(CliaError):  # it was reported before
            components.hub_sync.hub.fetch(retry_now=True)
    return BackupMoment(read_refs(components.git), rows, at)


def _sync_with_hub(components: Components, *, report: bool) -> None:
    """Get the work of other machines: they may share the store."""
    if components.hub_sync is None:
        return
    reason = None
    try:
        components.hub_sync.sync()
        if components.hub_sync.hub.outage() is not None:
            reason = "the hub is unreachable"
    except CliaError as err:
        reason = err.message
    if report and reason is not None:
        components.core.notify(f"the backup lacks what other machines did since the last sync: {reason}")


def _read_refs(components: Components) -> RefValues:
    refs = read_refs(components.git)
    components.core.reached("refs-read")
    return refs


def _alone(components: Components) -> AbstractContextManager[None]:
    """Lock out the verbs of this clone."""
    core = components.core
    patience = min(_PATIENCE, components.git.positive_number("clia.lockSeconds") or _PATIENCE)
    locks = FileLocks(os.path.join(components.home, "locks"), patience, core.notify)
    return Envelope(core._replace(locks=locks), lambda: components.porcelain).alone()


def _copy_store(path: str, space: str, rows: StoreExport) -> None:
    with closing(SqliteStore(path, space, durable=False)) as store, store.transaction() as connection:
        write_rows(connection, rows, space)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.lock")


def _agents(refs: RefValues) -> tuple[int, list[str]]:
    """Return the number of agents, and those that were idle."""
    records = {name for name in refs.all() if name.startswith(names.RECORDS)}
    idle = {names.agent_of(name) for name, _ in refs.archived} - {names.agent_of(name) for name, _, _ in refs.present}
    return len(records), sorted(name for name in idle if name is not None)


def _git_problems(directory: str, manifest: Manifest) -> list[str]:
    from clia.git.command import GitCommand

    git = GitCommand(os.path.join(directory, GIT), os.environ)
    if manifest.partial:
        return []  # git would ask the remote for what is missing
    result = git.attempt("fsck", "--connectivity-only", "--no-dangling", "--no-reflogs")
    return [f"git: {line}" for line in result.err.splitlines()[:100]] or ["git fsck failed"] if result.code else []


def _store_problems(directory: str) -> list[str]:
    import sqlite3
    from urllib.parse import quote

    address = f"file:{quote(os.path.join(directory, STORE))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            return [] if answer == "ok" else [f"{STORE}: {answer}"]
    except sqlite3.Error as err:
        return [f"{STORE}: {err}"]
