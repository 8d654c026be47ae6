"""Fetch from another space into a quarantine repository.

Invariant: a transfer writes into a repository that borrows our objects and has none of our refs. The objects that stay in it passed
git's check, are complete and within the limits, also when unpacked; others are removed before the next attempt. Our packs are never
replaced. The only programs run are git and what its owner configured to reach servers. Inspecting a pack reads object headers and
trees only, in time proportional to the pack: a small pack can unpack to a huge file or to 10**10 paths.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from clia.errors import Denied, TransportError
from clia.git.command import GitCommand, GitResult, cut_at, refused_transport, run_limited, without_credentials
from clia.git.graph import GitGraph
from clia.git.libgit2 import GitHandle
from clia.git.objects import GitObjects
from clia.git.records import FetchResult, TransferLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pygit2

_SETTINGS = {
    "protocol.version": "2",  # others serve ids only if configured
    "transfer.fsckObjects": "true",
    "fetch.fsckObjects": "true",
    "fetch.fsck.badFilemode": "error",
    "fetch.unpackLimit": "1",  # keep it as one pack, which can be limited and moved
    "core.bigFileThreshold": "8m",  # stream larger objects
    "pack.threads": "2",  # each thread holds objects in memory
    "http.followRedirects": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
FORGE = "/federation/"
"""Marks the address of a clia forge, which accepts fetch tokens and notifications."""
_SHUT_OUT = ("could not read Username", "Authentication failed", "returned error: 401", "returned error: 403")
_NO_REFS = "refs/clia/none/"
_FETCH = (
    *("fetch", "--no-tags", "--no-prune", "--no-auto-maintenance", "--no-recurse-submodules", "--no-write-fetch-head"),
    *("--refmap=", "--quiet", "--stdin"),
    # The whole history. With a depth git reports a history that ends too early, and refuses dumb servers, whose objects it does
    # not check.
    "--depth=2147483647",
)
_ID = "([0-9a-f]{40})"
_NOT_THERE = re.compile(f"(?:not our ref|no such remote ref|unadvertised object|want) {_ID}")
_NOT_WHOLE = ("repository corruption on the remote side", "pack-objects died")
_TOO_LARGE = ("died of signal 25", "File size limit exceeded", "File too large", "over limit", "ut of memory")
_CUT_OFF = ("early EOF", "unexpected disconnect", "hung up unexpectedly", "RPC failed")
_BAD = (
    *("fsck error", "index-pack failed", "invalid index-pack output", "index-pack died", "pack has bad object"),
    *("did not send all necessary objects", "missing necessary objects"),
)
_SUFFIXES = (".pack", ".rev", ".idx")
"""A pack's files, in the order in which they are moved: the index makes the pack visible."""


class RemoteAddress(NamedTuple):
    """How to reach the other side."""

    url: str
    pass_: str | None
    known_prefix: str | None = None  # prefix of our refs that the other side may know


class _TransferProblem(NamedTuple):
    code: str
    reason: str
    cid: str | None = None  # the object, if git names one


def first_line(text: str) -> str:
    """Return git's first line, which is the error; the rest is advice."""
    return text.strip().partition("\n")[0] or "git gives no reason"


class GitQuarantine:
    """A quarantine repository in a directory that the caller removes."""

    def __init__(self, remote: RemoteAddress, where: str, ours: GitHandle, command: GitCommand) -> None:
        self._way = remote
        self._where = where
        self._pack_folder = os.path.join(where, "objects", "pack")
        self._ours = ours
        self._reaching = command.reaching
        self._handle = GitHandle(where, durable=False)
        self._command = GitCommand(where, command.environment, durable=ours.durable)
        self.objects = GitObjects(self._handle, self._command)
        self.graph = GitGraph(self._handle, self.objects)

    def tips(self, refs: Sequence[str], limits: TransferLimits) -> dict[str, str]:
        """Fetch refs by name with everything they reach; return those that exist, with their targets.

        Raise ``TransportError`` if the other side cannot be reached, ``Denied`` with the codes of ``fetch`` if its data is refused.
        """
        end = monotonic() + limits.seconds
        result = self._git(limits, "ls-remote", "--refs", "--", self._way.url, *refs)
        if result.late or result.code:
            raise self._unreachable(f"no answer within {limits.seconds:g} seconds" if result.late else result.err)
        lines = (line.split("\t", 1) for line in result.out.decode("utf-8", "replace").splitlines())
        tips = {line[1]: line[0] for line in lines if len(line) == 2 and line[1] in refs}
        problem = self._attempt(list(tips.values()), limits._replace(seconds=end - monotonic()))
        if problem is not None:
            shown = without_credentials(self._way.url)
            raise Denied(f"refused data from {shown}: {problem.reason}", code=problem.code, fields={"url": shown})
        return tips

    def fetch(self, cids: Sequence[str], limits: TransferLimits) -> FetchResult:
        """Fetch commits by id with everything they reach. A refused id does not affect the others.

        Codes: ``missing-object``, ``not-a-commit``, ``bad-objects`` (git's check), ``too-large`` (on its own, also unpacked),
        ``too-much`` (no room beside the others: try again later), ``too-slow``. The limits apply to the whole call.
        """
        arrived: list[str] = []
        refused: dict[str, tuple[str, str]] = {}
        end, before = monotonic() + limits.seconds, self._size()
        waiting = [list(dict.fromkeys(cids))]
        while waiting:
            batch = waiting.pop()
            left = TransferLimits(limits.bytes - self._size() + before, end - monotonic())
            problem = self._attempt(batch, left)
            if problem is None:
                arrived += batch
            elif problem.code == "too-slow":  # no time is left for the others
                late = [cid for cids in (batch, *waiting) for cid in cids]
                refused |= dict.fromkeys(late, ("too-slow", f"took longer than {limits.seconds:g} seconds"))
                break
            elif problem.cid in batch:
                refused[problem.cid] = (problem.code, problem.reason)
                waiting.append([cid for cid in batch if cid != problem.cid])
            elif len(batch) > 1:
                middle = len(batch) // 2
                waiting += [batch[middle:], batch[:middle]]
            elif problem.code == "too-large" and left.bytes < limits.bytes:
                refused[batch[0]] = ("too-much", f"larger than {limits.bytes} bytes together with the others")
            else:
                refused[batch[0]] = (problem.code, problem.reason)
        for cid in arrived:
            if kind_of(self._handle.repo, cid) != _COMMIT:
                refused[cid] = ("not-a-commit", "not a commit")
        return FetchResult(tuple(cid for cid in arrived if cid not in refused), refused)

    def admit(self) -> None:
        """Move everything that arrived into the repository. No ref reaches it yet."""
        target = os.path.join(self._ours.common_dir, "objects", "pack")
        os.makedirs(target, exist_ok=True)
        arrived = [name for name in self._packs() if name.endswith(_SUFFIXES)]
        for suffix in _SUFFIXES:
            for name in (name for name in arrived if name.endswith(suffix)):
                # A pack's name is a hash of its content.
                if not os.path.exists(os.path.join(target, name)):
                    os.rename(os.path.join(self._pack_folder, name), os.path.join(target, name))
            if self._ours.durable and arrived:
                folder = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def _attempt(self, cids: Sequence[str], limits: TransferLimits) -> _TransferProblem | None:
        """Fetch ids with everything they reach. Return None, or the problem; then nothing of the transfer is kept."""
        complete_here = ("rev-list", "--objects", "--quiet", "--stdin", "--not", "--alternate-refs")
        present = all(kind_of(self._handle.repo, cid) is not None for cid in cids)
        if present and (not cids or self._git(limits, *complete_here, stdin=cids).code == 0):
            return None  # nothing to fetch
        if limits.seconds <= 0:
            return _TransferProblem("too-slow", "no time is left")
        if limits.bytes <= 0:
            return _TransferProblem("too-large", "no room is left")
        before = self._packs()
        complete = False
        try:
            result = self._git(limits, *_FETCH, "--", self._way.url, stdin=cids)
            arrived = self._packs() - before
            problem = self._complaint(result, arrived, limits) or self._objection(arrived, limits)
            complete = problem is None
        finally:
            if not complete:
                self._remove(self._packs() - before)
        return problem

    def _complaint(self, result: GitResult, arrived: set[str], limits: TransferLimits) -> _TransferProblem | None:
        """Return the problem that git reports, if any."""
        if result.late:
            return _TransferProblem("too-slow", f"took longer than {limits.seconds:g} seconds")
        if not result.code:
            return None
        reason = without_credentials(result.err)
        missing = _NOT_THERE.search(reason)
        if missing is not None:
            return _TransferProblem("missing-object", "the other side does not serve it", missing.group(1))
        # Git does not say why its helper died, but a file that was cut off has exactly this size.
        if any(self._size({name}) >= cut_at(limits) for name in arrived) or _has_any(reason, _TOO_LARGE):
            return _TransferProblem("too-large", f"larger than {limits.bytes} bytes")
        if _has_any(reason, _NOT_WHOLE):
            return _TransferProblem("missing-object", "the other side has only a part of it")
        if _has_any(reason, _BAD) and not _has_any(reason, _CUT_OFF):
            return _TransferProblem("bad-objects", f"git refused it: {reason.splitlines()[0]}")
        raise self._unreachable(reason)

    def _objection(self, names: set[str], limits: TransferLimits) -> _TransferProblem | None:
        """Return our own objection to a transfer that git accepted, if any."""
        if os.path.exists(os.path.join(self._where, "shallow")):
            return _TransferProblem("missing-object", "the other side has a shallow history")
        if self._loose():
            return _TransferProblem("bad-objects", "not sent as a pack")
        if self._size(names) > limits.bytes:
            return _TransferProblem("too-large", f"larger than {limits.bytes} bytes")
        indexes = [os.path.join(self._pack_folder, name) for name in sorted(names) if name.endswith(".idx")]
        excess = oversized(self._handle.repo, indexes, limits)
        return None if excess is None else _TransferProblem("too-large", excess)

    def _packs(self) -> set[str]:
        return set(os.listdir(self._pack_folder))

    def _size(self, names: set[str] | None = None) -> int:
        return sum(os.path.getsize(os.path.join(self._pack_folder, name)) for name in (self._packs() if names is None else names))

    def _loose(self) -> list[str]:
        return [name for name in os.listdir(os.path.join(self._where, "objects")) if name not in ("info", "pack")]

    def _remove(self, packs: set[str]) -> None:
        """Remove what a refused transfer left behind."""
        for name in packs:
            os.unlink(os.path.join(self._pack_folder, name))
        for name in self._loose():
            shutil.rmtree(os.path.join(self._where, "objects", name))
        for name in ("shallow", "shallow.lock"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._where, name))
        self._handle.renew()  # libgit2 would still see open packs

    def _git(self, limits: TransferLimits, *words: str, stdin: Sequence[str] = ()) -> GitResult:
        # Otherwise git tells the other side the targets of all our refs.
        settings = _SETTINGS | {"core.alternateRefsPrefixes": self._way.known_prefix or _NO_REFS}
        if self._way.pass_ is not None:
            settings["http.extraHeader"] = f"Authorization: Bearer {self._way.pass_}"
        env = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_NO_LAZY_FETCH": "1", **self._reaching}
        for number, (key, value) in enumerate(settings.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        command, environment = self._command.whole(*words)
        listed = os.path.join(self._where, "given")
        with open(listed, "w", encoding="ascii") as file:
            file.writelines(f"{cid}\n" for cid in stdin)
        # An address such as ../other.git is relative to the top of the worktree.
        return run_limited(command, environment | env, self._ours.work_dir or self._ours.git_dir, limits, listed)

    def _unreachable(self, reason: str) -> TransportError:
        refused = refused_transport(reason)
        if refused is not None:
            return refused
        reason, url = without_credentials(reason), without_credentials(self._way.url)
        if FORGE in url and _has_any(reason, _SHUT_OUT):
            return TransportError(
                f"the forge at {url} denied access to this space",
                code="pass-refused",
                hints=[
                    "the forge must trust this space's key: run clia peer add there with the output of clia key show here",
                    "check that the forge serves the space at the end of the address",
                    "use the clone that has the private key: the pass is signed with it",
                ],
                fields={"url": url, "reason": reason},
            )
        return TransportError(f"cannot reach {url}: {first_line(reason)}", fields={"url": url, "reason": reason})


def _has_any(text: str, parts: Iterable[str]) -> bool:
    return any(part in text for part in parts)


SUM = 64
"""All objects together may unpack to this many times the limit, because packs store differences."""
STRUCTURE_MAX = 64 * 1024 * 1024
"""Limit for commits, trees and tags, which are read into memory."""
PATHS_MAX = 1_000_000
DEPTH_MAX = 2048
"""No file system can store deeper paths."""
_LARGE = 65536  # smaller files cannot make a tree too large
_TREE_ENTRY = re.compile(rb"([0-7]+) [^\0]+\0(.{20})", re.DOTALL)
_COMMIT, _TREE, _BLOB = 1, 2, 3


def oversized(repo: pygit2.Repository, indexes: Iterable[str], limits: TransferLimits) -> str | None:
    """Return what exceeds the limits in the packs of these indexes, or None."""
    import pygit2

    total = 0
    trees: list[bytes] = []
    large: dict[bytes, int] = {}
    for raw in _names(indexes):
        kind, size = map(int, repo.odb.read_header(pygit2.Oid(raw=raw)))
        total += size
        if size > (limits.bytes if kind == _BLOB else STRUCTURE_MAX):
            return f"object {raw.hex()} has {size} bytes"
        if total > SUM * limits.bytes:
            return f"its objects have more than {SUM * limits.bytes} bytes"
        if kind == _TREE:
            trees.append(raw)
        elif kind == _BLOB and size > _LARGE:
            large[raw] = size
    return _oversized_tree(repo, trees, large, SUM * limits.bytes)


def kind_of(repo: pygit2.Repository, cid: str) -> int | None:
    """Return the kind of an object from its header; the object may be large."""
    import pygit2

    try:
        return int(repo.odb.read_header(pygit2.Oid(hex=cid))[0])
    except (KeyError, ValueError):
        return None


def _names(indexes: Iterable[str]) -> Iterator[bytes]:
    """Yield the ids in pack indexes of version 2: a header, 256 counts, then the ids."""
    for path in indexes:
        with open(path, "rb") as file:
            count = int.from_bytes(file.read(8 + 1024)[-4:], "big")
            for _ in range(count):
                yield file.read(20)


def _oversized_tree(repo: pygit2.Repository, trees: Iterable[bytes], large: dict[bytes, int], most: int) -> str | None:
    sizes: dict[bytes, tuple[int, int, int]] = {}  # paths, depth and bytes of large files, when checked out
    for top in trees:
        stack = [top]  # not recursive: it may be deep
        while stack:
            raw = stack[-1]
            entries = [] if raw in sizes else _entries(repo, raw)
            unknown = [cid for is_folder, cid in entries if is_folder and cid not in sizes]
            if unknown:
                stack += unknown
                continue
            stack.pop()
            if raw in sizes:
                continue
            inner = [sizes[cid] if is_folder else (0, 0, large.get(cid, 0)) for is_folder, cid in entries]
            paths, size = len(inner) + sum(row[0] for row in inner), sum(row[2] for row in inner)
            depth = 1 + max((row[1] for row in inner), default=0)
            sizes[raw] = (paths, depth, size)
            if paths > PATHS_MAX or depth > DEPTH_MAX or size > most:
                return f"tree {raw.hex()} has {paths} paths, {depth} levels and {size} bytes"
    return None


def _entries(repo: pygit2.Repository, raw: bytes) -> list[tuple[bool, bytes]]:
    """Return the entries of a tree as (is folder, id). A missing tree is empty: git has checked completeness."""
    try:
        kind, data = repo.read(raw.hex())
    except KeyError:
        return []
    if int(kind) != _TREE:
        return []
    return [(int(entry[1], 8) == 0o40000, entry[2]) for entry in _TREE_ENTRY.finditer(bytes(data))]
