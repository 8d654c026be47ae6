"""Push any number of refs at once.

Git compares each refspec with each ref, so thousands of refspecs take minutes, and the length of a command line is limited. So refs
are pushed by patterns, from a temporary repository that has no others. It has no objects of its own, and includes the configuration
of the main repository.

Invariant: a push is atomic and, except for values that the caller names, never forced. Values come from the main repository, else
from the archive repository.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress

from clia.errors import GitError, InvalidInput, NotFound
from clia.git.command import unreachable, without_credentials
from clia.git.records import Pushed
from clia.git.ref_files import edited, read_loose, read_packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clia.git.archive import RefArchive
    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle

PREFIX = "push-"
"""Start of the names of temporary repositories, in the directory ``clia`` of the git directory."""
_BRANCHES, _REMOTES = "refs/heads/", "refs/remotes/"
_STATES = {"*": "new", " ": "moved", "+": "moved", "=": "same", "!": "refused"}
_SUMMARY = re.compile(r"\[(?P<what>[^\]]*)\](?: \((?P<reason>.*)\))?")
_REF = re.compile(r"refs/[^\s:*?\[\\^~]+")
_PUSH = ("push", "--atomic", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules")


class RefPush:
    """Pushes of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand, archive: RefArchive) -> None:
        self._handle = handle
        self._command = command
        self._archive = archive
        self._home = os.path.join(handle.common_dir, "clia")

    def push(
        self, remote: str, refs: Sequence[str], named: Callable[[str], str] = str, replaced: Mapping[str, str] | None = None
    ) -> list[Pushed]:
        """Push all of the refs or none, each to the name that ``named`` returns. Nothing is forced, except that the values of
        ``replaced`` refs at the remote may be replaced.
        """
        for ref in refs:
            if not _REF.fullmatch(ref):
                raise InvalidInput(f"{ref!r} is not a full ref name", code="invalid-ref", fields={"ref": ref})
        if not refs:
            return []  # git would push what is configured
        present_values, present = self._values(refs)
        values = {named(ref): cid for ref, cid in present_values.items()}
        tracked = {ref: cid for ref, cid in present.items() if ref.startswith(_REMOTES)}
        if remote in self._handle.repo.remotes.names():
            # Git writes no tracking refs of idle agents, which would slow down a person's git: they have their values already.
            idle = {ref: cid for ref, cid in values.items() if ref.startswith(_BRANCHES) and ref not in present}
            tracked |= {f"{_REMOTES}{remote}/{ref.removeprefix(_BRANCHES)}": cid for ref, cid in idle.items()}
        patterns = sorted({"/".join(ref.split("/")[:2]) for ref in values})
        with self._repository(values | tracked) as directory:
            words = (
                f"--git-dir={directory}",
                "-c",
                "core.fsync=none",
                *_PUSH,
                *(f"--force-with-lease={named(ref)}:{cid}" for ref, cid in (replaced or {}).items()),
                "--",
                remote,
                *(f"{top}/*:{top}/*" for top in patterns),
            )
            # An address such as ../other.git is relative to the top of the worktree.
            result = self._command.attempt(*words, cwd=self._handle.work_dir, variables=self._command.reaching)
            self._take_over(directory, tracked)
        lines = result.out.decode("utf-8", "replace").splitlines()
        results = {pushed.ref: pushed for pushed in map(_pushed, lines) if pushed}
        if results:
            return [results[ref] for ref in values if ref in results]
        raise unreachable("push to", remote, without_credentials(result.err))

    def replace(self, remote: str, moves: Sequence[tuple[str, str | None, str]]) -> list[Pushed]:
        """Replace refs of a remote that still have the values that the caller expects, all of them or none."""
        if not moves:
            return []
        leases = [f"--force-with-lease={ref}:{old or ''}" for ref, old, _ in moves]
        words = (*_PUSH, *leases, "--", remote, *(f"{new}:{ref}" for ref, _, new in moves))
        result = self._command.attempt(*words, cwd=self._handle.work_dir, variables=self._command.reaching)
        pushed = [item for line in result.out.decode("utf-8", "replace").splitlines() if (item := _pushed(line))]
        if pushed:
            return pushed
        raise unreachable("push to", remote, without_credentials(result.err))

    def _values(self, refs: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The values of the refs, and all refs of the main repository."""
        archived = dict(self._archive.under("refs/")) if self._archive.exists() else {}
        loose = dict(read_loose(self._handle.common_dir, "refs"))  # first: git packs a ref before it removes the loose one
        present = dict(read_packed(self._handle.common_dir, "refs/")) | loose
        values = archived | present
        missing = [ref for ref in refs if ref not in values]
        values |= self._archive.among(missing) if self._archive.exists() else {}  # they may have been put away in between
        missing = [ref for ref in missing if ref not in values]
        if missing:
            raise NotFound(f"nothing was pushed: no ref {missing[0]}", code="no-such-ref", fields={"refs": missing})
        return {ref: values[ref] for ref in refs}, present

    @contextmanager
    def _repository(self, refs: Mapping[str, str]) -> Iterator[str]:
        """A temporary repository with these refs. Those of dead processes are removed."""
        try:
            self._handle.sharing.make_directory(self._home)
            for name in os.listdir(self._home):
                if name.startswith(PREFIX):
                    _remove_unless_held(os.path.join(self._home, name))
            directory, handle = _new_directory(self._home)
        except OSError as err:
            raise GitError(f"cannot prepare a push in {self._home}: {err.strerror}", fields={"path": self._home}) from None
        try:
            self._write(directory, refs)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(handle)

    def _write(self, directory: str, refs: Mapping[str, str]) -> None:
        main_config = os.path.join(self._handle.common_dir, "config").replace("\\", "\\\\").replace('"', '\\"')
        files = {
            "HEAD": "ref: refs/heads/none\n",
            "config": f'[include]\n\tpath = "{main_config}"\n[core]\n\trepositoryformatversion = 0\n\tbare = true\n',
            "objects/info/alternates": "../../../objects\n",
        }
        try:
            for folder in ("objects/info", "refs"):
                os.makedirs(os.path.join(directory, folder))
            for name, text in files.items():
                with open(os.path.join(directory, name), "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(text)
            with open(os.path.join(directory, "packed-refs"), "wb") as packed:
                packed.write(edited(b"", dict(refs)) or b"")
            with suppress(FileNotFoundError):
                shutil.copyfile(os.path.join(self._handle.common_dir, "shallow"), os.path.join(directory, "shallow"))
        except OSError as err:
            raise GitError(f"cannot prepare a push in {directory}: {err.strerror}", fields={"path": directory}) from None

    def _take_over(self, directory: str, tracked: Mapping[str, str]) -> None:
        """Bring the tracking refs that git has updated to the main repository. As in git, a failure is not an error."""
        moved = {ref: cid for ref, cid in read_loose(directory, _REMOTES) if tracked.get(ref) != cid}
        if moved:
            lines = "".join(f"update {ref} {cid}\n" for ref, cid in moved.items())
            words = ("-c", "core.fsync=none", "update-ref", "-m", "update by push", "--stdin")
            self._command.attempt(*words, data=lines.encode("utf-8", "surrogateescape"))


def _new_directory(home: str) -> tuple[str, int]:
    """Create a directory and hold a lock on it."""
    import fcntl  # POSIX only, and only writers need it

    while True:
        directory = tempfile.mkdtemp(prefix=PREFIX, dir=home)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.isdir(directory):
            return directory, handle
        os.close(handle)  # another process removed it before it was locked


def _remove_unless_held(directory: str) -> None:
    """Remove the temporary repository of a dead process: it no longer holds the lock on the directory."""
    import fcntl

    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)


def _pushed(line: str) -> Pushed | None:
    """Parse a line of `git push --porcelain`; return None if it is not about a ref."""
    parts = line.split("\t", 2)
    if len(parts) != 3 or parts[0] not in _STATES:
        return None
    state = _STATES[parts[0]]
    summary = _SUMMARY.match(parts[2])
    reason = "" if summary is None or state != "refused" else summary["reason"] or summary["what"]
    return Pushed(parts[1].partition(":")[2], state, reason)
