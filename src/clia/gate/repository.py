"""Objects and refs of a repository through the git command, for a server's hook.

Invariant: read-only, and starts few processes: one ``git cat-file`` serves all objects. The caller's ``GIT_*`` variables count,
because git hands the pushed objects to a hook in a quarantine that only they name. Replacements of objects are ignored.
"""

from __future__ import annotations

import os
import subprocess

from clia.errors import GitError, NoSuchObject
from clia.git.records import Commit, Stamp, TreeEntry
from clia.git.tree_changes import changed_paths
from clia.space.model import agent_commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from clia.space.model import AgentCommit

ZERO = "0" * 40
_FOLDER = 0o040000
_SYMBOLIC_DEPTH = 5


class GateRepository:
    """The repository in a directory."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._environment = {**environment, "GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
        self._environment["GIT_ALLOW_PROTOCOL"] = "none"  # older versions of git know no other way to fetch nothing
        self._batch: Any = None
        self._trees: dict[str, list[tuple[str, TreeEntry]]] = {}
        self._commits: dict[str, AgentCommit] = {}

    def close(self) -> None:
        if self._batch is not None:
            self._batch.stdin.close()
            self._batch.stdout.close()
            self._batch.wait()
            self._batch = None

    # Objects

    def read(self, name: str) -> tuple[str, str, bytes] | None:
        """The id, kind and content of an object by its id or a revision; None if it is missing."""
        if "\n" in name:
            return None
        if self._batch is None:
            words = ["git", "cat-file", "--batch"]
            pipe = subprocess.PIPE
            self._batch = subprocess.Popen(words, cwd=self.directory, env=self._environment, stdin=pipe, stdout=pipe)
        self._batch.stdin.write(os.fsencode(name) + b"\n")
        self._batch.stdin.flush()
        header = self._batch.stdout.readline().split()
        if len(header) != 3 or header[1] not in (b"blob", b"tree", b"commit", b"tag"):
            return None
        data = self._batch.stdout.read(int(header[2]))
        self._batch.stdout.read(1)
        return header[0].decode(), header[1].decode(), data

    def _object(self, cid: str, kind: str) -> bytes:
        obj = self.read(cid)
        if obj is None or obj[1] != kind:
            raise NoSuchObject(f"the {kind} {cid} is missing", fields={"cid": cid})
        return obj[2]

    def blob(self, cid: str) -> bytes:
        return self._object(cid, "blob")

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        if tree not in self._trees:
            self._trees[tree] = _checked(tree, list(_entries(self._object(tree, "tree"))))
        return iter(self._trees[tree])

    def entry(self, tree: str, path: str) -> TreeEntry | None:
        """What a tree has at a path."""
        entry: TreeEntry | None = TreeEntry(_FOLDER, tree)
        for name in path.split("/"):
            if entry is None or entry.mode != _FOLDER:
                return None
            entry = dict(self.listing(entry.cid)).get(name)
        return entry

    def commit(self, cid: str) -> AgentCommit:
        if cid not in self._commits:
            self._commits[cid] = agent_commit(_commit(cid, self._object(cid, "commit")))
        return self._commits[cid]

    def raw(self, cid: str) -> bytes:
        """The bytes of a commit."""
        return self._object(cid, "commit")

    def has_commit(self, cid: str) -> bool:
        obj = self.read(cid)
        return obj is not None and obj[1] == "commit"

    def resolve(self, name: str) -> str | None:
        """The id of the commit that a revision names."""
        obj = self.read(f"{name}^{{commit}}")
        return None if obj is None else obj[0]

    def changed(self, before: str, after: str) -> list[str]:
        """The paths that differ between two trees, sorted. A renamed file is two paths."""
        return changed_paths(self, before, after)

    # History

    def commits(self, tips: list[str], hidden: list[str]) -> list[str]:
        """The commits that are reachable from ``tips`` and not from ``hidden``, newest first."""
        words = ["rev-list", "--topo-order", "--stdin"]
        return self._run(words, "".join(f"{tip}\n" for tip in [*tips, *(f"^{cid}" for cid in hidden)])).split()

    def descends(self, cid: str, ancestor: str) -> bool:
        if cid == ancestor:
            return True
        # Not by rev-list: it takes dates as a hint, and commits may be older than their parents.
        words = ["git", "merge-base", "--is-ancestor", ancestor, cid]
        ran = subprocess.run(words, cwd=self.directory, env=self._environment, capture_output=True, check=False)
        if ran.returncode not in (0, 1):
            raise GitError(f"git merge-base failed: {ran.stderr.decode('utf-8', 'replace').strip()}")
        return ran.returncode == 0

    def merge_base(self, one: str, other: str) -> str | None:
        return next(iter(self._run(["merge-base", one, other], "", fails=True).split()), None)

    def head_branch(self) -> str | None:
        """The branch that HEAD names."""
        return self._run(["symbolic-ref", "--quiet", "HEAD"], "", fails=True).strip() or None

    def symbolic_targets(self, refs: Iterable[str]) -> dict[str, str]:
        """The refs among these that stand for another one, with that one: a push to them moves it."""
        targets: dict[str, str] = {}
        waiting = {ref: ref for ref in refs}  # what is looked up -> what was asked about
        for _ in range(_SYMBOLIC_DEPTH):
            words = ["for-each-ref", "--format=%(refname)%00%(symref)", *waiting] if waiting else []
            rows = (line.split("\0") for line in (self._run(words, "").splitlines() if words else ()))
            resolved = {waiting[ref]: target for ref, target in rows if target and ref in waiting}
            targets |= resolved
            waiting = {target: ref for ref, target in resolved.items()}
        return targets

    def hooks_directory(self) -> str | None:
        """Where git looks for hooks; None if this is not a repository."""
        path = self._run(["rev-parse", "--git-path", "hooks"], "", fails=True).rstrip("\n") if os.path.isdir(self.directory) else ""
        return os.path.join(self.directory, path) if path else None

    def _run(self, words: list[str], data: str, *, fails: bool = False) -> str:
        result = subprocess.run(
            ["git", *words], cwd=self.directory, env=self._environment, input=data.encode(), capture_output=True, check=False
        )
        if result.returncode and not fails:
            raise GitError(f"git {words[0]} failed: {result.stderr.decode('utf-8', 'replace').strip()}")
        return "" if result.returncode else result.stdout.decode("utf-8", "surrogateescape")


def _entries(data: bytes) -> Iterator[tuple[str, TreeEntry]]:
    at = 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        name = data[space + 1 : end].decode("utf-8", "surrogateescape")
        yield name, TreeEntry(int(data[at:space], 8), data[end + 1 : end + 21].hex())
        at = end + 21


def _checked(tree: str, entries: list[tuple[str, TreeEntry]]) -> list[tuple[str, TreeEntry]]:
    """The entries of a tree that every reader of git understands in the same way."""
    names = [name for name, _ in entries]
    wrong = next((name for name in names if name in ("", ".", "..") or "/" in name or name.casefold() == ".git"), None)
    if wrong is not None or len(set(names)) != len(names):
        problem = f"the name {wrong!r}" if wrong is not None else "a name twice"
        raise GitError(f"the tree {tree} has {problem}", fields={"cid": tree})
    return entries


def _commit(cid: str, data: bytes) -> Commit:
    head, _, message = data.partition(b"\n\n")
    fields: dict[str, list[str]] = {}
    for line in head.decode("utf-8", "replace").split("\n"):
        key, _, value = line.partition(" ")
        fields.setdefault(key, []).append(value)
    author, committer = (_stamp(fields.get(key, [""])[0]) for key in ("author", "committer"))
    return Commit(cid, fields["tree"][0], tuple(fields.get("parent", ())), author, committer, message.decode("utf-8", "replace"))


def _stamp(text: str) -> Stamp:
    name, _, rest = text.partition("<")
    email, _, moment = rest.partition(">")
    seconds = moment.split()[0] if moment.split() else "0"
    return Stamp(name.strip(), email, int(seconds) if seconds.lstrip("-").isdigit() else 0)
