"""Snapshots of directories, blame, diffs, remotes and maintenance through the git command.

Invariant: results depend on the objects alone, not on the user's diff settings. A fetch writes only the refs that its rules
name, all or none, and prunes nothing; a push forces nothing. Objects are removed only by ``drop_objects`` and when git's grace
period is over; checks change and fetch nothing. Errors never contain the password of an address.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from clia.errors import Conflict, FileError, GitError, InvalidInput, NotFound
from clia.git import worktree_links
from clia.git.command import unreachable, without_credentials
from clia.git.libgit2 import find_repository
from clia.git.records import FileChange, LineOrigin
from clia.git.worktrees import PRIVATE, GitWorktrees
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clia.git.archive import RefArchive
    from clia.git.command import GitResult
    from clia.git.lock_files import LockFiles
    from clia.git.records import Pushed
    from clia.git.staging import StagedFiles, StagingRules

_ID = re.compile(r"[0-9a-f]{40}")
# With --strict, a "warning" is only a remark, such as a link in place of a file.
_NOTICES = ("notice: ", "dangling ", "Checking ", "Verifying ", "warning in ")
# In a partial clone git would fetch missing objects. The second variable is for older versions.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
_GC = ("-c", "gc.autoDetach=false", "-c", "gc.worktreePruneExpire=never")
_NOT_IN_GRAPH = re.compile(r"failed to parse commit ([0-9a-f]+) from object database for commit-graph")
# Packs that repacking keeps.
_KEPT = (".keep", ".promisor")
LARGE_REPOSITORY = 1_000_000
"""Number of packed objects beyond which git gc takes too long: it reads all of them (half an hour for 3 million).

Each has 28 bytes in an index."""
MANY_LOOSE = 32
"""Loose objects from which they are packed: git opens a file for each that it reads, and starts a gc at about 6,700."""
_FAN_OUT = 2  # hexadecimal digits of a directory of loose objects
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PLAIN = (
    *("--literal-pathspecs", "-c", f"core.attributesFile={os.devnull}", "-c", "diff.algorithm=default"),
    *("-c", "diff.renameLimit=1000", "-c", "diff.suppressBlankEmpty=false", "-c", "diff.orderFile="),
    *("-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false"),
)
_DIFF = (
    *_PLAIN,
    *("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--submodule=short"),
    *("--diff-algorithm=default", "--indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/", "--no-relative"),
)
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_AT_ONCE = 1000  # commits whose patches are in memory together
_FETCH = (
    *("fetch", "--no-tags", "--no-prune", "--no-auto-maintenance", "--no-recurse-submodules", "--no-write-fetch-head", "--atomic"),
    "--refmap=",  # otherwise git also applies the remote's own rules
)
_STREAM = ("-c", "core.bigFileThreshold=32m")  # larger files are not loaded into memory
# Nested repositories become gitlinks, as in git; files outside the sparse cone are added too (`--sparse`).
_ADD = (*_STREAM, "-c", "advice.addEmbeddedRepo=false", "-c", "add.ignoreErrors=false", "add", "-A", "--sparse", "--", ".")


class GitPorcelain(GitWorktrees):
    """Operations of the git command on one repository. The user's HEAD, index and files change only where a method states it."""

    @property
    def _archive(self) -> RefArchive:
        from clia.git.archive import RefArchive

        return RefArchive(self._handle, self._locks)

    @property
    def _locks(self) -> LockFiles:
        from clia.git.lock_files import LockFiles

        return LockFiles(self._handle.common_dir, self._handle.sharing)

    def snapshot(self, directory: str, tree: str) -> str:
        """Return the tree of a directory's files as ``git add -A`` would stage them over ``tree``. No index is changed."""
        place, admin = self._place_to_stage(directory)
        with self._private_index(place, admin) as variables:
            if not os.path.exists(variables["GIT_INDEX_FILE"]):
                self._command.run(*PRIVATE, "read-tree", tree, cwd=place, variables=variables)
            self._command.run(*PRIVATE, *_ADD, *self._excluded(place), cwd=place, variables=variables)
            provided = [path for path in self.prepared(place).paths if not self._is_in(tree, path)]
            if provided:  # the program may have staged them
                words = (*PRIVATE, "--literal-pathspecs", "rm", "-r", "--quiet", "--cached", "--sparse", "--ignore-unmatch", "--")
                self._command.run(*words, *provided, cwd=place, variables=variables)
            return self._command.run(*PRIVATE, "write-tree", cwd=place, variables=variables).decode("ascii").strip()

    def staged(self, directory: str, tree: str, rules: StagingRules) -> StagedFiles:
        """As ``snapshot``, but only with files that the rules accept."""
        from clia.git.objects import GitObjects  # only for what programs changed
        from clia.git.staging import DirectoryPlace, DirectoryStaging

        place, admin = self._place_to_stage(directory)
        with self._private_index(place, admin) as variables:
            inside = DirectoryPlace(place, variables, self._nested(place), self.prepared(place).paths)
            objects = GitObjects(self._handle, self._command)
            return DirectoryStaging(self._handle, objects, self._command, inside, rules).stage(tree, lambda: self.head_of(place))

    def _place_to_stage(self, directory: str) -> tuple[str, str | None]:
        """Return a directory and its git directory; an error if it is not the top of a worktree."""
        place = os.path.abspath(directory)
        if not os.path.isdir(place):
            raise FileError(f"{place} is not a directory", fields={"path": place, "reason": "not a directory"})
        admin = self._admin_of(place)
        above = find_repository(place)
        inside = admin is None and above is not None and above != os.path.realpath(place) and self._admin_of(above)
        if inside or os.path.realpath(place) == self._handle.common_dir:
            hints = ["name the directory that holds the worktree's .git"]
            message = f"{place} is not the top of a worktree"
            raise InvalidInput(message, code="not-a-worktree-top", hints=hints, fields={"path": place})
        return place, admin

    def _is_in(self, tree: str, path: str) -> bool:
        return bool(self._command.run("--literal-pathspecs", "ls-tree", "-z", tree, "--", path))

    def _excluded(self, place: str) -> list[str]:
        """Return pathspecs of what is not to be committed: worktrees inside the directory, and what was put into it."""
        # Escaped, because `git add` fails if a pathspec starts with the literal name of an ignored file, even to exclude it.
        escaped = [re.sub(r"[^/]", r"\\\g<0>", path) for path in (*self._nested(place), *self.prepared(place).paths)]
        return [f":(exclude,top,glob){path}{end}" for path in escaped for end in ("", "/**")]

    def _nested(self, place: str) -> list[str]:
        """Return the paths of the worktrees inside a directory."""
        top = os.path.realpath(place) + "/"
        pointers = [worktree_links.link_back(admin) for admin in worktree_links.admin_dirs(self._handle.common_dir)]
        paths = [os.path.realpath(os.path.dirname(pointer)) for pointer in pointers if pointer is not None]
        return [path.removeprefix(top) for path in sorted(paths) if path.startswith(top)]

    def check(self, progress: Callable[[str], None] | None = None) -> list[str]:
        """Return the complaints of ``git fsck --strict``."""
        if progress is not None:
            progress("git fsck: every object and ref")
        result = self._command.attempt("fsck", "--strict", "--no-dangling", "--no-progress", variables=_NO_FETCH)
        lines = [*result.out.decode("utf-8", "replace").splitlines(), *result.err.splitlines()]
        if self._archive.exists():
            words = (f"--git-dir={self._archive.directory}", "fsck", "--connectivity-only", "--no-dangling", "--no-progress")
            archive = self._command.attempt(*words, variables=_NO_FETCH)
            lines += [*archive.out.decode("utf-8", "replace").splitlines(), *archive.err.splitlines()]
        complaints = {line.strip() for line in lines if line.strip() and not line.startswith(_NOTICES)}
        if result.code and not complaints:
            complaints.add(f"git fsck exited with {result.code}")
        return sorted(complaints - _stale_in_graph(complaints))

    def dangling_commits(self) -> list[str]:
        """Return the commits that no ref or other commit reaches, sorted."""
        words = ("fsck", "--connectivity-only", "--no-reflogs", "--dangling", "--no-progress")
        lines = self._command.attempt(*words, variables=_NO_FETCH).out.decode("utf-8", "replace").splitlines()
        return sorted(line.removeprefix("dangling commit ") for line in lines if line.startswith("dangling commit "))

    def is_partial(self) -> bool:
        """Return whether objects may be missing on purpose."""
        return self._handle.is_partial()

    def is_shallow(self) -> bool:
        try:
            return os.path.getsize(os.path.join(self._handle.common_dir, "shallow")) > 0
        except OSError:
            return False

    def fetch_promised(self, commits: Sequence[str], others: Sequence[str]) -> None:
        """Fetch the files that commits changed, and other objects, to a partial clone. Objects that cannot be fetched stay
        missing."""
        self.fetch_missing(self._trees(commits))
        words = ("diff-tree", "--stdin", "--root", "-r", "-m", "--raw", "--no-renames", "--no-abbrev")
        changes = self._command.attempt(*words, data="".join(f"{cid}\n" for cid in commits).encode("ascii")).out
        sides = [side for line in changes.split(b"\n") if line.startswith(b":") for side in _sides(line)]
        self.fetch_missing({*others, *(cid for mode, cid in sides if mode.startswith("100"))})

    def _trees(self, commits: Sequence[str]) -> set[str]:
        """Return the trees of commits and of their parents."""
        words = ("rev-list", "--stdin", "--no-walk=unsorted", "--parents")
        out = self._command.attempt(*words, data="".join(f"{cid}\n" for cid in commits).encode("ascii")).out
        commits_and_parents = out.decode("ascii").split()
        words = ("log", "--stdin", "--no-walk=unsorted", "--format=%T")
        ids = "".join(f"{cid}\n" for cid in dict.fromkeys(commits_and_parents)).encode("ascii")
        return set(self._command.attempt(*words, data=ids).out.decode("ascii").split()) if ids else set()

    def fetch_missing(self, ids: set[str]) -> None:
        """Fetch objects from the remotes that promised them. Those that cannot be fetched stay missing."""
        missing = "".join(f"{cid}\n" for cid in sorted(ids) if cid not in self._handle.repo)
        for remote in self.remotes() if missing else ():
            if self._settings_of(remote, "promisor"):
                # As git itself fetches missing objects: all of them in one step, without a search for common commits.
                fetching = ("-c", "fetch.negotiationAlgorithm=noop", *_FETCH, "--filter=blob:none", "--stdin", "--", remote)
                self._transfer(*fetching, data=missing.encode("ascii"))

    def pack(self) -> None:
        """Pack objects and refs, with git's grace period for unreachable objects."""
        self._locks.break_if_dead(os.path.join(self._handle.common_dir, "packed-refs.lock"))  # git cannot tell who made it
        self._command.run("pack-refs", "--all")
        index_bytes = 0
        for path in self._pack_indexes():
            with suppress(FileNotFoundError):  # repacked meanwhile
                index_bytes += os.path.getsize(path)
        if index_bytes > LARGE_REPOSITORY * 28 and not self.is_partial():
            # Only new objects and small packs. Unreachable objects stay until someone runs git gc.
            self._command.run("repack", "-d", "-l", "-q", "--geometric=2")
            return
        configured = self._command.attempt("config", "--get", "gc.pruneExpire").out.strip()
        # A shorter period than git's could remove objects that are being written.
        grace = "never" if configured == b"never" else "2.weeks.ago"
        self._command.run(*_GC, "-c", f"gc.pruneExpire={grace}", "gc", "--quiet")

    def drop_objects(self, cids: Sequence[str], drop_kept: Callable[[Sequence[str]], None] | None = None) -> list[str]:
        """Remove those of the objects that nothing reaches; return the ids that still exist.

        ``drop_kept`` removes unreachable objects from packs that git keeps.
        """
        for cid in cids:
            if not _ID.fullmatch(cid):
                raise InvalidInput(f"{cid!r} is not an object id", code="invalid-id", fields={"id": cid})
        # Removing an object that a ref, reflog or index reaches would break the repository.
        words = ("rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--indexed-objects")
        reached = set(self._command.run(*words, variables=_NO_FETCH).decode("ascii").split())
        if self._archive.exists():
            archive = (f"--git-dir={self._archive.directory}", "rev-list", "--objects", "--no-object-names", "--all")
            reached |= set(self._command.run(*archive, variables=_NO_FETCH).decode("ascii").split())
        unreachable = [cid for cid in cids if cid not in reached]
        if drop_kept is not None:
            drop_kept(unreachable)
        self._unlink(unreachable)
        packed = [bytes.fromhex(cid) for cid in self._present(unreachable)]
        if any(_mentions(index, packed) for index in self._pack_indexes()):
            # -A makes unreachable objects loose, with the age of their pack, so that the others keep their grace period.
            self._command.run("repack", "-A", "-d", "-q", variables=_NO_FETCH)
            self._unlink(unreachable)
        if any(_mentions(graph, [bytes.fromhex(cid) for cid in unreachable]) for graph in self._commit_graphs()):
            self._command.run("commit-graph", "write", "--reachable", "--no-progress", variables=_NO_FETCH)
        return self._present(cids)

    def prune_packed(self) -> None:
        """Remove loose objects that are in a pack."""
        self._command.run("prune-packed", "-q")

    def pack_loose(self) -> None:
        """Pack loose objects, if they are many. Then git reads them faster, and starts no ``gc`` in a person's commit."""
        if self._loose_objects() >= MANY_LOOSE and not self.is_partial():
            self._command.run("repack", "-d", "-l", "-q", "--geometric=2")

    def _loose_objects(self) -> int:
        number, folder = 0, self._objects_folder()
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):  # git removes empty directories
                number += len(os.listdir(os.path.join(folder, name))) if len(name) == _FAN_OUT else 0
        return number

    def size(self) -> int:
        """Return the size of the repository's objects on disk, in bytes."""
        total = 0
        for directory, _, files in os.walk(self._objects_folder()):
            for name in files:
                with suppress(FileNotFoundError):  # packed meanwhile
                    total += os.lstat(os.path.join(directory, name)).st_blocks * 512
        return total

    def _objects_folder(self, *below: str) -> str:
        return os.path.join(self._handle.common_dir, "objects", *below)

    def _unlink(self, cids: Sequence[str]) -> None:
        for cid in cids:
            path = self._objects_folder(cid[:2], cid[2:])
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise GitError(f"cannot remove object {cid}: {err.strerror}", fields={"path": path}) from None

    def _present(self, cids: Sequence[str]) -> list[str]:
        """Return the ids that still exist, also in alternates. A fresh handle, because an open one remembers removed packs."""
        import pygit2  # 95 ms, and only spaces need it

        odb = pygit2.Odb(self._objects_folder())
        return sorted(cid for cid in set(cids) if cid in odb)

    def _pack_indexes(self) -> Iterator[str]:
        """Yield the indexes of packs that git may rewrite."""
        folder = self._objects_folder("pack")
        names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        for name in sorted(names):
            stem = name.removesuffix(".idx")
            if stem != name and not any(stem + end in names for end in _KEPT):
                yield os.path.join(folder, name)

    def _commit_graphs(self) -> Iterator[str]:
        yield self._objects_folder("info", "commit-graph")
        folder = self._objects_folder("info", "commit-graphs")
        if os.path.isdir(folder):
            yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".graph"))

    def blame(self, commit: str | None, path: str, *, start: int = 1, limit: int | None = None) -> list[LineOrigin]:
        """Return ``limit`` lines of a file from ``start`` on, with their commits; None: in the worktree, which must exist."""
        if limit == 0:
            return []
        part = () if start <= 1 and limit is None else (f"-L{max(1, start)},{'' if limit is None else f'+{limit}'}",)
        # The option resets the configured lists; an empty setting would not, because git reads it first.
        words = (
            *_PLAIN,
            "blame",
            "--porcelain",
            "--no-textconv",
            "--ignore-revs-file=",
            *part,
            *filter(None, [commit]),
            "--",
            path,
        )
        # At the top of the worktree, because the file of revisions to ignore may be relative to it.
        result = self._command.attempt(*words, cwd=self._handle.work_dir)
        if result.code and part and "has only" in result.err:
            return []
        if result.code and ("no such path" in result.err or (commit is None and "no such ref" in result.err)):
            where = commit or "HEAD"
            raise NotFound(f"no file {path!r} in {where}", code="no-such-path", fields={"path": printable(path), "commit": where})
        if result.code:
            raise result.failure(*words)
        return list(_origins(result.out))

    @property
    def worktree(self) -> str | None:
        """The top of the worktree in which the space was opened; None in a bare repository."""
        return self._handle.work_dir

    def worktree_file(self, path: str) -> bytes:
        """Return the content of a file of the worktree."""
        if self.worktree is None:
            raise NotFound("a bare repository has no worktree", code="no-worktree", hints=["name a commit"])
        from clia.git.worktree_files import read_worktree_file  # most commands read no single file

        return read_worktree_file(self.worktree, path)

    def patch(self, old: str | None, new: str, paths: Sequence[str] = ()) -> bytes:
        """Return the diff between two commits or trees; None is the empty tree."""
        return self._command.run(*_DIFF, "-p", "-M", old or _EMPTY_TREE, new, "--", *paths)

    def changes(self, old: str | None, new: str, paths: Sequence[str] = (), *, copies: int = 0) -> list[FileChange]:
        """Return the files that differ; ``copies``: percentage from which a file counts as renamed or copied."""
        out = self._command.run(
            *_DIFF, "-z", f"-C{copies}%" if copies else "-M", "--raw", "--numstat", old or _EMPTY_TREE, new, "--", *paths
        )
        return _changes(iter([os.fsdecode(part) for part in out.split(b"\0")[:-1]]))

    def patch_ids(self, commits: Sequence[str]) -> dict[str, str]:
        """Return the patch id of each commit that changes something."""
        patch_ids: dict[str, str] = {}
        for start in range(0, len(commits), _AT_ONCE):
            ids = "".join(f"{cid}\n" for cid in commits[start : start + _AT_ONCE]).encode("ascii")
            # Without -m or -c git shows no patch for a merge.
            patches = self._command.run(*_DIFF, "--stdin", "--root", "-p", "--no-renames", data=ids)
            lines = self._command.run("patch-id", "--stable", data=patches).decode("ascii").splitlines()
            patch_ids |= {commit: patch for patch, commit in (line.split() for line in lines)}
        return patch_ids

    def remotes(self) -> list[str]:
        """The names of the remotes that have an address."""
        return sorted(str(name) for name in self._handle.repo.remotes.names())

    def remote_url(self, remote: str) -> str | None:
        urls = self._settings_of(remote, "url")
        return urls[0] if urls else None

    def push_address(self, remote: str) -> str | None:
        """Where pushes to a remote go, if fetches come from elsewhere: ``pushurl`` and ``pushInsteadOf`` in git's configuration."""
        configured = self._handle.repo.remotes[remote]
        address = configured.push_url
        return address if address and address != configured.url else None

    def remove_fetch_rules(self, remote: str, rules: Sequence[str]) -> list[str]:
        """Remove fetch rules from the configuration of a remote; return those removed."""
        if remote not in self.remotes():
            raise NotFound(f"no such remote: {remote!r}", code="no-such-remote", fields={"remote": remote})
        present = [rule for rule in dict.fromkeys(self._settings_of(remote, "fetch")) if rule in rules]
        for rule in present:
            pattern = re.sub(r"[][.*^$+?(){}|\\]", r"\\\g<0>", rule)  # git matches values with a POSIX pattern
            self._command.run("config", "--unset-all", f"remote.{remote}.fetch", f"^{pattern}$")
        return present

    def fetch(self, remote: str, rules: Sequence[str]) -> None:
        if not rules:
            return  # git would use the remote's own rules
        result = self._transfer(*_FETCH, "--", remote, *rules)
        if not result.code:
            return
        reason = without_credentials(result.err)
        if "[rejected]" in reason:
            message = f"nothing was fetched from {remote}: {reason}"
            raise Conflict(message, code="fetch-refused", fields={"remote": without_credentials(remote), "reason": reason})
        raise unreachable("fetch from", remote, reason)

    def forget_fetched(self, refs: Mapping[str, str]) -> None:
        """Remove tracking refs that still have these values, all or none: another process may be fetching."""
        lines = "".join(f"delete {ref} {cid}\n" for ref, cid in refs.items())
        self._command.attempt("update-ref", "--stdin", data=lines.encode("utf-8"))

    def push(
        self, remote: str, refs: Sequence[str], named: Callable[[str], str] = str, replaced: Mapping[str, str] | None = None
    ) -> list[Pushed]:
        """Push all of the refs or none, each to the name that ``named`` returns. Nothing is forced, except that the values of
        ``replaced`` refs at the remote may be replaced.
        """
        from clia.git.pushing import RefPush  # few commands push

        return RefPush(self._handle, self._command, self._archive).push(remote, refs, named, replaced or {})

    def replace(self, remote: str, moves: Sequence[tuple[str, str | None, str]]) -> list[Pushed]:
        """Replace refs of a remote that still have their old values, all of them or none. They need not be descendants."""
        from clia.git.pushing import RefPush

        return RefPush(self._handle, self._command, self._archive).replace(remote, moves)

    def _transfer(self, *words: str, data: bytes = b"") -> GitResult:
        # An address such as ../other.git is relative to the top of the worktree.
        return self._command.attempt(*words, data=data, cwd=self._handle.work_dir, variables=self._command.reaching)

    def _settings_of(self, remote: str, name: str) -> list[str]:
        result = self._command.attempt("config", "-z", "--get-all", f"remote.{remote}.{name}")
        return result.out.decode("utf-8", "replace").split("\0")[:-1]


def _stale_in_graph(complaints: set[str]) -> set[str]:
    """The complaints about commits that only a commit-graph lists. They were removed after git wrote it, which is not damage."""
    stale: set[str] = set()
    for cid in {match[1] for match in map(_NOT_IN_GRAPH.fullmatch, complaints) if match}:
        lines = {line for line in complaints if cid in line}
        if all(line == f"error: Could not read {cid}" or _NOT_IN_GRAPH.fullmatch(line) for line in lines):
            stale |= lines
    return stale


def _mentions(file: str, ids: Sequence[bytes]) -> bool:
    """Return whether an index file contains one of the ids. A chance match only costs a repack."""
    if not ids:
        return False
    try:
        with open(file, "rb") as content:
            data = content.read()
    except FileNotFoundError:
        return False
    return any(cid in data for cid in ids)


def _origins(out: bytes) -> Iterator[LineOrigin]:
    """Parse `git blame --porcelain`, which describes a commit once, and gives its path again when that differs."""
    paths: dict[str, str] = {}
    commit, number = "", 0
    at_start = True
    for line in out.split(b"\n")[:-1]:
        if at_start:
            words = line.decode("ascii").split()
            commit, number = words[0], int(words[1])
            at_start = False
        elif line.startswith(b"\t"):
            yield LineOrigin(commit, number, paths[commit], line[1:].decode("utf-8", "replace"))
            at_start = True
        elif line.startswith(b"filename "):
            name = line.removeprefix(b"filename ")  # quoted and escaped if it has unusual characters
            paths[commit] = os.fsdecode(_ESCAPED.sub(_unescaped, name[1:-1]) if name.startswith(b'"') else name)


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else _ESCAPES.get(code, code)


def _changes(parts: Iterator[str]) -> list[FileChange]:
    """Parse `--raw --numstat -z`: first the status of each path, then its line counts."""
    states: list[tuple[str, str, str | None]] = []
    counts: dict[str, tuple[int | None, int | None]] = {}
    for part in parts:
        if part.startswith(":"):
            status = part.rpartition(" ")[2][0]
            first = next(parts)
            states.append((status, next(parts), first) if status in "RC" else (status, first, None))
            continue
        added, removed, path = part.split("\t", 2)
        if not path:  # a rename: old and new path follow
            next(parts)
            path = next(parts)
        counts[path] = (None, None) if added == "-" else (int(added), int(removed))
    return [FileChange(status, path, old, *counts.get(path, (None, None))) for status, path, old in states]


def _sides(line: bytes) -> list[tuple[str, str]]:
    """Parse a line of `--raw`: the mode and the blob of a file before and after."""
    old_mode, new_mode, old, new = line[1:].decode("utf-8", "replace").split()[:4]
    return [(old_mode, old), (new_mode, new)]
