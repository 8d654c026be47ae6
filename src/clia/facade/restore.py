"""Restore a backup into a directory, or into the repository of a new clone.

Invariant: the repository appears under its name complete, or not at all. It is built beside, and opened there once, which
completes or undoes what was under way at the moment of the backup. It is another clone of the space: it has its own clone id, and
the restored store begins a new epoch, so that neither store is taken for a copy of the other one.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import closing, suppress
from typing import NamedTuple

from clia.errors import AlreadyExists, InvalidInput
from clia.facade import backup_files
from clia.facade.backends import connect, ignore_step
from clia.facade.backup import check_backup
from clia.facade.backup_files import CLIA, GIT, REPOSITORY, STORE, Manifest, copy_file, copy_tree, draft, files_below
from clia.facade.opening import assemble, open_space
from clia.facade.settings import check_address
from clia.git.repository import STORE as STORE_SETTING
from clia.git.repository_copy import PARTS
from clia.space.envelope import GATE, SPACE_LOCK
from clia.store.private_files import FileLocks
from clia.store.sqlite_store import STORE_FILE, SqliteStore
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.git.command import GitCommand
    from clia.git.repository import Git

    Progress = Callable[[int, int, str], None]

STEPS = ("restore-begun", "repository-laid-out", "store-restored", "space-opened", "files-checked-out", "restored")
"""The named crash points of a restore, in order."""
EXCHANGE_STEPS = ("repository-complete", "git-directory-moved")
"""Those of the exchange of git directories, before the last one."""
_NEW = "-new"
_PATIENCE = 30
_REPLACED = "replaced"
"""The former git directory, in the one that replaced it."""
_UNSET = ("core.worktree", STORE_SETTING)


class Restored(NamedTuple):
    """A restored space."""

    path: str  # the repository
    space: str  # id of the space
    at: str  # when the state that it has was current
    agents: int  # active and archived agents
    store: str  # where the live state is
    replaced: str | None  # where the former git directory is; null: there was none
    notes: list[str]  # what was not restored


class Target(NamedTuple):
    """Where a backup is restored."""

    path: str  # the repository
    git_dir: str  # its git directory, or the bare repository itself
    exists: bool  # whether a git directory is replaced


def restore(
    backup: str,
    path: str,
    settings: Settings,
    *,
    replace: bool = False,
    keep_store: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Restore a backup. ``replace``: also over an existing space. ``keep_store``: save the address of the store."""
    backup, report = os.path.abspath(backup), progress or (lambda *_: None)
    report(0, 4, "check")
    check_backup(backup)
    manifest = backup_files.read_manifest(backup)
    check_address(settings.store)
    if manifest.shared and settings.store is None:
        message = "machines shared the store of this backup, so it must be restored to a server"
        hints = ["clia restore BACKUP DIR --store postgresql://…"]
        raise InvalidInput(message, code="store-required", hints=hints, fields={"field": "store"})
    target = _target(backup, os.path.abspath(path), manifest, settings, replace=replace)
    reached = settings.reached or ignore_step
    notes: list[str] = []
    outer = target.git_dir if target.exists else target.path
    with draft(outer + _NEW if target.exists else outer) as place:
        git_dir = place if target.exists or manifest.bare else os.path.join(place, ".git")
        reached("restore-begun")
        report(1, 4, "git")
        _lay_out(backup, git_dir)
        reached("repository-laid-out")
        report(2, 4, "store")
        git = _repository(git_dir, settings, keep_store=keep_store)
        _restore_store(backup, git, manifest, settings)
        reached("store-restored")
        report(3, 4, "index")
        with assemble(git, manifest.space, settings, git_dir) as space:
            _rebuild(space, manifest)
        reached("space-opened")
        if not manifest.bare:
            notes = _check_out(git.command, None if target.exists else place)
        reached("files-checked-out")
    if target.exists:
        reached("repository-complete")
        _exchange(target.git_dir, settings)
    report(4, 4, "")
    with open_space(target.path, settings=settings) as space:
        guard = space.local.store.guard
        if guard is not None:
            guard.begin(f"restored from the backup of {manifest.at}")
        reached("restored")
        replaced = os.path.join(target.git_dir, _REPLACED) if target.exists else None
        return Restored(target.path, manifest.space, manifest.at, manifest.agents, space.local.store.location, replaced, notes)


def _target(backup: str, path: str, manifest: Manifest, settings: Settings, *, replace: bool) -> Target:
    """Find out what would be replaced, and refuse what must not be."""
    if path == backup or path.startswith(f"{backup}/"):
        raise InvalidInput(f"{path} is inside the backup", code="backup-inside", fields={"path": path})
    git_dir = os.path.join(path, ".git")
    _finish_exchange(git_dir)
    if manifest.bare or not os.path.isdir(git_dir):
        backup_files.require_free(path)
        return Target(path, path if manifest.bare else git_dir, exists=False)
    if not replace:
        git = connect(path, settings)
        if git.refs.get(names.SPACE) is not None:
            message = f"{path} has a space"
            hints = ["restore into a new directory, or replace its git directory with --replace"]
            raise AlreadyExists(message, code="space-exists", hints=hints, fields={"path": path})
        _require_contained(git, backup)
    return Target(path, git_dir, exists=True)


def _require_contained(git: Git, backup: str) -> None:
    """Refuse to replace a clone that has commits which neither the backup nor its remotes have."""
    out = git.command.run("rev-list", "--branches", "--tags", "--not", "--remotes")
    out += git.command.run("rev-parse", "--verify", "--quiet", "refs/stash") if git.refs.get("refs/stash") else b""
    checked = git.command.run(
        f"--git-dir={os.path.join(backup, GIT)}", "cat-file", "--batch-check=%(objectname) %(objecttype)", data=out
    )
    missing = [line.split()[0].decode("ascii") for line in checked.splitlines() if line.endswith(b" missing")]
    if missing:
        message = f"{git.handle.path} has {len(missing)} commits that the backup does not have, such as {missing[0][:12]}"
        hints = ["push them first, restore into a new directory, or replace its git directory with --replace"]
        raise AlreadyExists(
            message, code="commits-in-the-way", hints=hints, fields={"path": git.handle.path, "commits": missing[:20]}
        )


def _lay_out(backup: str, git_dir: str) -> None:
    """Write a git directory with everything but the store. Clia's own files are private, the others as the umask says."""
    for part in PARTS:
        os.makedirs(os.path.join(git_dir, *part.split("/")), exist_ok=True)
    for tree in (GIT, REPOSITORY):  # the configuration of the second one replaces that of the first one
        for name in files_below(os.path.join(backup, tree)):
            source, path = os.path.join(backup, tree, name), os.path.join(git_dir, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(source, path)
            mode = os.stat(path).st_mode
            if name.startswith("objects/pack/"):
                os.chmod(path, mode & 0o444)
            elif os.access(source, os.X_OK):
                os.chmod(path, mode | (mode & 0o444) >> 2)
    for place in {git_dir, os.path.dirname(git_dir)} if git_dir.endswith("/.git") else {git_dir}:
        os.chmod(place, stat.S_IMODE(os.stat(os.path.join(git_dir, "objects")).st_mode))
    copy_tree(os.path.join(backup, CLIA), os.path.join(git_dir, "clia"))


def _repository(git_dir: str, settings: Settings, *, keep_store: bool) -> Git:
    """Open the new repository, without the settings that belong to the original one."""
    git = connect(git_dir, settings)
    for key in _UNSET:
        git.command.attempt("config", "--local", "--unset-all", key)
    if keep_store and settings.store:
        git.command.run("config", "--local", STORE_SETTING, settings.store)
    return connect(git_dir, settings)


def _restore_store(backup: str, git: Git, manifest: Manifest, settings: Settings) -> None:
    path = os.path.join(git.handle.common_dir, "clia", STORE_FILE)
    copy_file(os.path.join(backup, STORE), path)
    if settings.store is None:
        return
    from clia.store.clone_ids import clone_id
    from clia.store.postgres_store import PostgresStore

    space, own = manifest.space, f"{manifest.space}/{clone_id(git.handle.common_dir)}"
    with (
        closing(SqliteStore(path, space)) as old,
        closing(PostgresStore(settings.store, space if manifest.shared else own, own=own)) as new,
        old.snapshot(()) as rows,
    ):
        new.import_store(rows)
        new.confirm_import()
    for suffix in ("", "-wal", "-shm", ".lock"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def _rebuild(space: Space, manifest: Manifest) -> None:
    """Rebuild the indexes, and put idle agents away again."""
    space.rebuild()
    if manifest.idle:
        space.local.put_away(manifest.idle)


def _check_out(command: GitCommand, work_dir: str | None) -> list[str]:
    """Check out the files of HEAD, or only fill the index if there are files already. Returns what could not be done."""
    if command.attempt("rev-parse", "--verify", "--quiet", "HEAD^{commit}").code:
        return []
    if work_dir is None:
        result = command.attempt("read-tree", "HEAD")
    else:
        result = command.attempt("read-tree", "--reset", "-u", "HEAD", cwd=work_dir)
    return [f"the files were not checked out ({result.err}); to do it: git checkout HEAD -- ."] if result.code else []


def _exchange(git_dir: str, settings: Settings) -> None:
    """Put the new git directory in the place of the old one, which moves into it. Running verbs are waited for."""
    locks = FileLocks(os.path.join(git_dir, "clia", "locks"), _PATIENCE, settings.notify)
    with locks.hold(GATE), locks.hold(SPACE_LOCK):
        os.rename(git_dir, os.path.join(git_dir + _NEW, _REPLACED))
        (settings.reached or ignore_step)("git-directory-moved")
        os.rename(git_dir + _NEW, git_dir)


def _finish_exchange(git_dir: str) -> None:
    """Finish or undo the exchange of a process that was killed."""
    new = git_dir + _NEW
    if os.path.isdir(os.path.join(new, _REPLACED)) and not os.path.lexists(git_dir):
        os.rename(new, git_dir)
    elif os.path.isdir(os.path.join(new, "clia")):
        shutil.rmtree(new)
