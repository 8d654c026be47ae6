"""The files of a backup.

```text
manifest.json   what the backup is of, and the size and digest of every other file
git/            a bare repository with all refs and reflogs, which stock git can read
store.db        the live state, in an SQLite store
repository/     the configuration, hooks and exclusions of the original repository
clia/           keys, configuration and hook events of the space
```

Invariant: a directory appears under its name complete, or not at all: it is written beside, flushed and renamed. Only the account
that writes it can read it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import AlreadyExists, CliaError, FileError, InvalidInput, NotFound, UnsupportedFormat
from clia.git.archive import sync_directory
from clia.store.private_files import make_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FORMAT = 1
MANIFEST, GIT, STORE, REPOSITORY, CLIA = "manifest.json", "git", "store.db", "repository", "clia"
_DRAFT = ".clia-draft-"
_LOCK = "draft.lock"
_BLOCK = 1 << 20


class FileDigest(NamedTuple):
    """The content of a file of a backup."""

    size: int
    sha256: str


class Manifest(NamedTuple):
    """What a backup is of."""

    format: int
    clia: str  # version of clia that wrote it
    space: str  # id of the space
    at: str  # when the state that it has was current
    store: str  # sqlite or postgresql
    shared: bool  # whether machines shared the store
    bare: bool
    partial: bool  # objects that the partial clone lacked are missing here, too
    epoch: str | None  # of the store; null: the store had no live state yet
    changes: int  # of live state in this epoch
    refs: int
    agents: int  # active and archived
    idle: list[str]  # agents whose refs were in the archive repository
    files: dict[str, FileDigest]  # by path

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files.values())


@contextmanager
def draft(directory: str) -> Iterator[str]:
    """A private directory that gets its name when the block ends, and is removed if the block fails.

    Drafts of killed processes with the same name are removed. The new name must be free, or an empty directory.
    """
    parent, name = os.path.split(os.path.abspath(directory))
    try:
        os.makedirs(parent, exist_ok=True)
        _remove_dead_drafts(parent, name)
        path = os.path.join(parent, f"{_DRAFT}{name}-{os.getpid()}-{os.urandom(4).hex()}")
        os.mkdir(path, 0o700)
    except OSError as err:
        raise _failure(parent, err) from None
    lock = None
    try:
        lock = _locked(path)
        yield path
        os.unlink(os.path.join(path, _LOCK))
        flush(path)
        os.rename(path, directory)
        sync_directory(parent)
    except OSError as err:
        shutil.rmtree(path, ignore_errors=True)
        raise _failure(err.filename or directory, err) from None
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def require_free(directory: str) -> None:
    """Refuse a directory that has files."""
    try:
        if not os.path.lexists(directory) or (os.path.isdir(directory) and not os.listdir(directory)):
            return
    except OSError as err:
        raise _failure(directory, err) from None
    message = f"{directory} exists and is not an empty directory"
    raise AlreadyExists(message, code="not-empty", hints=["choose a new directory"], fields={"path": directory})


def copy_file(source: str, target: str) -> None:
    """Copy a file, if it still exists; it is readable by its owner only."""
    with suppress(FileNotFoundError), open(source, "rb") as original:
        make_directory(os.path.dirname(target))
        executable = os.fstat(original.fileno()).st_mode & stat.S_IXUSR
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600 | executable)
        with open(handle, "wb") as copy:
            shutil.copyfileobj(original, copy, _BLOCK)


def copy_tree(source: str, target: str, without: tuple[str, ...] = ()) -> None:
    """Copy the regular files of a directory, except some paths below it."""
    for path in files_below(source):
        if not any(path == name or path.startswith(f"{name}/") for name in without):
            copy_file(os.path.join(source, path), os.path.join(target, path))


def files_below(directory: str) -> list[str]:
    """Return the regular files below a directory, sorted."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(directory) for name in names)
    return sorted(os.path.relpath(path, directory) for path in paths if os.path.isfile(path) and not os.path.islink(path))


def make_private(directory: str) -> None:
    """Take the permissions of others from everything in a directory, and let its owner write."""
    for parent, folders, names in os.walk(directory):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if not os.path.islink(path):
                os.chmod(path, mode & 0o700 | 0o600)


def flush(directory: str) -> None:
    """Flush every file below a directory to disk, and the directories."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        sync_directory(parent)


def describe(directory: str, **about: Any) -> Manifest:
    """Write the manifest of a complete backup."""
    digests = {path: _digest(os.path.join(directory, path)) for path in files_below(directory) if path not in (_LOCK, MANIFEST)}
    manifest = Manifest(format=FORMAT, files=digests, **about)
    content = manifest._asdict() | {"files": {path: digest._asdict() for path, digest in digests.items()}}
    path = os.path.join(directory, MANIFEST)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
    return manifest


def read_manifest(directory: str) -> Manifest:
    """Read what a backup is of; ``NotFound`` if a directory is not a backup."""
    path = os.path.join(directory, MANIFEST)
    fields = {"path": directory}
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        raise NotFound(f"{directory} is not a backup of clia", code="not-a-backup", fields=fields) from None
    except OSError as err:
        raise _failure(path, err) from None
    except ValueError:
        raise damaged(directory, [f"{MANIFEST} cannot be read"]) from None
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        message = f"{directory} has format {version}, but this version of clia supports format {FORMAT}"
        raise UnsupportedFormat(message, code="unsupported-backup", hints=["upgrade clia"], fields={**fields, "format": version})
    try:
        files = {path: FileDigest(**digest) for path, digest in content.pop("files").items()}
        return Manifest(files=files, **content)
    except (KeyError, TypeError, AttributeError):
        raise damaged(directory, [f"{MANIFEST} cannot be read"]) from None


def check_files(directory: str, manifest: Manifest) -> list[str]:
    """Return what is wrong with the files of a backup."""
    present = set(files_below(directory)) - {MANIFEST}
    problems = [f"{path} is missing" for path in sorted(manifest.files.keys() - present)]
    problems += [f"{path} is not part of the backup" for path in sorted(present - manifest.files.keys())]
    for path in sorted(present & manifest.files.keys()):
        try:
            if _digest(os.path.join(directory, path)) != manifest.files[path]:
                problems.append(f"{path} has changed")
        except OSError as err:
            problems.append(f"{path}: {err.strerror}")
    return problems


def damaged(directory: str, problems: list[str]) -> CliaError:
    more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
    message = f"the backup {directory} is damaged: {'; '.join(problems[:3])}{more}"
    hints = ["use another backup; a part that is whole can be read with git and sqlite3"]
    return InvalidInput(message, code="backup-damaged", hints=hints, fields={"path": directory, "problems": problems[:100]})


def _digest(path: str) -> FileDigest:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return FileDigest(size, digest.hexdigest())


def _locked(draft_path: str) -> int:
    handle = os.open(os.path.join(draft_path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _remove_dead_drafts(parent: str, name: str) -> None:
    for entry in os.listdir(parent):
        if not entry.startswith(f"{_DRAFT}{name}-"):
            continue
        path = os.path.join(parent, entry)
        with suppress(OSError):
            handle = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)


def _failure(path: str, err: OSError) -> FileError:
    reason = err.strerror or str(err)
    hints = ["free some space on its disk, or choose another directory; nothing was left behind"] if err.errno == 28 else []
    return FileError(f"{path}: {reason}", hints=hints, fields={"path": str(path), "reason": reason})
