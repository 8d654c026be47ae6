"""Blobs, trees and commits through libgit2.

Invariant: an object that a call has returned the id of is in the repository, on disk where the space is durable. A tree
never holds a file and a folder of one name, and holds no mode that git does not have.
"""

from __future__ import annotations

import hashlib

from clia.errors import Ambiguous, NoSuchObject, NotFound, UnsafePath
from clia.git.libgit2 import NOT_WRITTEN, message_of, reading, tried_again, writing
from clia.git.records import FOLDER, LINK, SUBMODULE, Commit, Stamp, TreeEntry
from clia.values.paths import clash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import pygit2

    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle

    Change = TreeEntry | None
    # A folder's changes by name: something set, something removed (None), or changes further down.
    Changes = dict[str, "Change | Changes"]

_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}


class GitObjects:
    """``Objects`` of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command
        config = handle.repo.config
        self._signs = "commit.gpgsign" in config and config.get_bool("commit.gpgsign")
        self._folds_case = "core.ignorecase" in config and config.get_bool("core.ignorecase")

    def kind(self, cid: str) -> str | None:
        try:
            with reading(cid):
                found = self._handle.repo.get(cid)
        except NoSuchObject:
            return None  # not even the form of an id
        return None if found is None else _KINDS[int(found.type)]

    def size(self, cid: str) -> int:
        with reading(cid):
            return int(self._handle.repo.odb.read_header(cid)[1])

    def expand(self, text: str) -> str | None:
        import pygit2

        try:
            found = self._handle.repo.revparse_single(text)
            return str(found.peel(pygit2.Commit).id if isinstance(found, pygit2.Tag) else found.id)
        except (KeyError, pygit2.InvalidSpecError):
            return None
        except ValueError as err:
            if "ambiguous" in message_of(err).lower():
                hints = ["give more characters of the id"]
                raise Ambiguous(f"{text!r} is the start of several ids", hints=hints, fields={"text": text}) from None
            return None
        except pygit2.GitError:
            return None

    def blob(self, cid: str) -> bytes:
        with reading(cid):
            kind, data = self._handle.repo.read(cid)
            if _KINDS[kind] != "blob":
                raise NoSuchObject(f"the object {cid} is a {_KINDS[kind]}, not a blob", fields={"cid": cid})
            return bytes(data)

    @tried_again
    def write_blob(self, data: bytes) -> str:
        with writing("a file's content"):
            return str(self._handle.repo.create_blob(data))

    def blob_id(self, data: bytes) -> str:
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def commit(self, cid: str) -> Commit:
        import pygit2

        with reading(cid):
            found = self._handle.repo[cid]
            if not isinstance(found, pygit2.Commit):
                raise NoSuchObject(f"the object {cid} is no commit", fields={"cid": cid})
            return as_commit(found)

    @tried_again
    def write_commit(self, tree: str, parents: Sequence[str], author: Stamp, committer: Stamp, message: str) -> str:
        if self._signs:
            return self._write_signed(tree, parents, author, committer, message)
        import pygit2

        with writing("a commit"):
            made_by, committed_by = (pygit2.Signature(each.name, each.email, each.at, 0) for each in (author, committer))
            ids = [pygit2.Oid(hex=each) for each in parents]
            made = self._handle.repo.create_commit(None, made_by, committed_by, message, pygit2.Oid(hex=tree), ids)
            if made not in self._handle.repo:  # libgit2 (1.9) keeps it to itself when it could not write a commit
                raise OSError(NOT_WRITTEN)
            return str(made)

    def _write_signed(self, tree: str, parents: Sequence[str], author: Stamp, committer: Stamp, message: str) -> str:
        """Stock git signs, with whatever program and key its owner has configured."""
        who: dict[str, str] = {}
        for role, stamp in (("AUTHOR", author), ("COMMITTER", committer)):
            who |= {f"GIT_{role}_NAME": stamp.name, f"GIT_{role}_EMAIL": stamp.email, f"GIT_{role}_DATE": f"{stamp.at} +0000"}
        words = [word for parent in parents for word in ("-p", parent)]
        settings = ("-c", "i18n.commitEncoding=UTF-8")
        out = self._command.run(*settings, "commit-tree", "-S", *words, tree, data=message.encode("utf-8"), more=who)
        return out.decode("ascii").strip()

    def entries(self, tree: str) -> dict[str, TreeEntry]:
        found: dict[str, TreeEntry] = {}
        waiting = [("", tree)]  # not by recursion: a tree may be deeper than Python's stack
        while waiting:
            prefix, folder = waiting.pop()
            for name, entry in self.listing(folder):
                if entry.mode == FOLDER:
                    waiting.append((f"{prefix}{name}/", entry.cid))
                else:
                    found[prefix + name] = TreeEntry(_known_mode(entry.mode), entry.cid)
        return found

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        """What stands directly in a tree, by name."""
        with reading(tree):
            kind, data = self._handle.repo.read(tree)
        if _KINDS[kind] != "tree":
            raise NoSuchObject(f"the object {tree} is a {_KINDS[kind]}, not a tree", fields={"cid": tree})
        at = 0
        while at < len(data):
            space, end = data.index(b" ", at), data.index(b"\0", at)
            name = data[space + 1 : end].decode("utf-8", "surrogateescape")
            yield name, TreeEntry(int(data[at:space], 8), data[end + 1 : end + 21].hex())
            at = end + 21

    def below(self, tree: str, known: Container[str] = ()) -> set[str]:
        found, waiting = {tree}, [tree]
        while waiting:
            for _, entry in self.listing(waiting.pop()):
                if entry.mode == FOLDER and entry.cid not in known and entry.cid not in found:
                    waiting.append(entry.cid)
                if entry.mode != FOLDER or entry.cid not in known:
                    found.add(entry.cid)
        return found

    @tried_again
    def with_entry(self, base: pygit2.Tree | None, name: str, entry: TreeEntry) -> str:
        """A tree, or none, with one thing set directly in it."""
        with writing("a tree"):
            builder = self._handle.repo.TreeBuilder(base) if base is not None else self._handle.repo.TreeBuilder()
            builder.insert(name, entry.cid, entry.mode)
            return str(builder.write())

    @tried_again
    def replace_entries(self, tree: str, entries: Mapping[str, TreeEntry]) -> str:
        """A tree with some of what stands directly in it replaced."""
        with writing("a tree"):
            builder = self._handle.repo.TreeBuilder(tree)
            for name, entry in entries.items():
                builder.insert(name, entry.cid, entry.mode)
            return str(builder.write())

    def entry(self, tree: str, path: str) -> TreeEntry | None:
        import pygit2

        with reading(tree):
            top = self._handle.repo[tree]
        if not isinstance(top, pygit2.Tree):
            raise NoSuchObject(f"the object {tree} is no tree", fields={"cid": tree})
        try:
            found = top[path]
        except KeyError:
            return None
        return TreeEntry(int(found.filemode), str(found.id))

    @tried_again
    def update_tree(self, tree: str | None, changes: Mapping[str, TreeEntry | None]) -> str:
        import pygit2

        with writing("a tree"):
            base = self._handle.repo[tree] if tree else None
            if base is not None and not isinstance(base, pygit2.Tree):
                raise NoSuchObject(f"the object {tree} is no tree", fields={"cid": str(tree)})
            try:
                made = self._build(base, _nested(changes), "")
            except RecursionError:
                raise UnsafePath("a path is deeper than can be written") from None
            return str(made or self._handle.repo.TreeBuilder().write())

    def _build(self, base: pygit2.Tree | None, changes: Changes, prefix: str) -> pygit2.Oid | None:
        """The folder with its changes; None where nothing is left in it."""
        repo = self._handle.repo
        builder = repo.TreeBuilder(base) if base is not None else repo.TreeBuilder()
        for name, change in changes.items():
            present = base[name] if base is not None and name in base else None
            if isinstance(change, dict):
                self._descend(builder, present, change, prefix + name)
            elif change is not None:
                if present is not None and int(present.filemode) == FOLDER:
                    raise clash(prefix + name, prefix + name + "/…")
                builder.insert(name, change.cid, change.mode)
            elif present is None:
                raise _nothing_at(prefix + name)
            else:
                builder.remove(name)
        made = builder.write() if len(builder) else None
        if self._folds_case and made is not None:
            _check_case(repo[made], prefix)  # type: ignore[arg-type]  # it is the tree just written
        return made

    def _descend(self, builder: pygit2.TreeBuilder, present: object, changes: Changes, path: str) -> None:
        import pygit2

        name = path.rpartition("/")[2]
        # What becomes of a file of this name in the same change: it goes (None), or comes in the folder's place.
        itself = changes.pop("", ...)
        if itself is None and (present is None or isinstance(present, pygit2.Tree)):
            raise _nothing_at(path)
        if present is not None and not isinstance(present, pygit2.Tree) and itself is not None:
            raise clash(path, f"{path}/{next(iter(changes))}")
        inner = self._build(present if isinstance(present, pygit2.Tree) else None, changes, f"{path}/")
        if inner is not None and isinstance(itself, TreeEntry):
            raise clash(path, f"{path}/…")
        if isinstance(itself, TreeEntry):
            if present is not None:
                builder.remove(name)
            builder.insert(name, itself.cid, itself.mode)
        elif inner is not None:
            builder.insert(name, inner, FOLDER)
        elif present is not None:
            builder.remove(name)

    def config_entries(self, data: bytes) -> list[tuple[str, str]] | None:
        done = self._command.attempt("config", "--file", "-", "-z", "--list", data=data)
        if done.code:
            return None
        items = done.out.decode("utf-8", "replace").split("\0")[:-1]
        return [(key, value) for key, _, value in (item.partition("\n") for item in items)]


def as_commit(found: pygit2.Commit) -> Commit:
    message = _decoded(found.raw_message, found.message_encoding)
    return Commit(
        str(found.id),
        str(found.tree_id),
        tuple(str(each) for each in found.parent_ids),
        _stamp(found.author),
        _stamp(found.committer),
        message,
    )


def _decoded(raw: bytes, encoding: str | None) -> str:
    """A commit may name any encoding, also one that nobody knows."""
    try:
        return raw.decode(encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        return raw.decode("utf-8", "replace")


def _stamp(signature: pygit2.Signature) -> Stamp:
    name, email = (raw.decode("utf-8", "replace") for raw in (signature.raw_name, signature.raw_email))
    return Stamp(name, email, signature.time)


def _known_mode(mode: int) -> int:
    """The mode as git has it today; very old trees hold others for plain files."""
    if mode in (LINK, SUBMODULE):
        return mode
    return 0o100755 if mode & 0o100 else 0o100644


def _nothing_at(path: str) -> NotFound:
    return NotFound(f"there is no {path!r} to remove", code="no-such-path", fields={"path": path})


def _nested(changes: Mapping[str, TreeEntry | None]) -> Changes:
    """Changes by folder. What becomes of a file of the folder's own name stands in it under the empty name."""
    top: Changes = {}
    for path, change in changes.items():
        folder = top
        *folders, name = path.split("/")
        for each in folders:
            inner = folder.setdefault(each, {})
            if not isinstance(inner, dict):
                inner = folder[each] = {"": inner}
            folder = inner
        present = folder.get(name)
        if isinstance(present, dict):
            present[""] = change
        else:
            folder[name] = change
    return top


def _check_case(tree: pygit2.Tree, prefix: str) -> None:
    """Where the disk does not tell ``A`` from ``a``, a tree must not hold both."""
    seen: dict[str, str] = {}
    for each in tree:
        name = each.name or ""
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise clash(prefix + name, prefix + other)
