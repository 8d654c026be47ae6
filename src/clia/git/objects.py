"""Blobs, trees and commits through libgit2.

Invariant: when a call returns an object's id, the object is in the repository, and on disk if the space is durable. A tree
never has a file and a folder with the same name, nor a mode that git does not have.
"""

from __future__ import annotations

import hashlib
import re
from typing import cast

from clia.errors import Ambiguous, NoSuchObject, NotFound, UnsafePath
from clia.git.libgit2 import NOT_WRITTEN, message_of, reading, tried_again, writing
from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK, SUBMODULE, Commit, Stamp, TreeEntry
from clia.values.paths import clash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import pygit2

    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle

    Change = TreeEntry | None
    # A folder's changes by name: an entry set, an entry removed (None), or changes in a subfolder.
    Changes = dict[str, "Change | Changes"]

_SIGNATURE = "gpgsig"
_COMMIT = 1
_KINDS = {_COMMIT: "commit", 2: "tree", 3: "blob", 4: "tag"}
_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
"""An entry in the data of a tree: mode, name and id."""


class GitObjects:
    """The objects of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command
        config = handle.repo.config
        self.signed_by_git = "commit.gpgsign" in config and config.get_bool("commit.gpgsign")
        """Whether the repository's owner lets git sign commits."""
        self.sign: Callable[[bytes], str | None] = lambda _: None
        """Signs a commit's bytes for the space; None: the space does not sign."""
        self._folds_case = "core.ignorecase" in config and config.get_bool("core.ignorecase")
        self.fetch: Callable[[set[str]], None] = lambda _: None
        """Fetches objects that a partial clone lacks, in one step; those that cannot be fetched stay missing."""

    def kind(self, cid: str) -> str | None:
        """Return ``blob``, ``tree``, ``commit`` or ``tag``, or None if there is no such object."""
        try:
            with reading(cid):
                obj = self._handle.repo.get(cid)
        except NoSuchObject:
            return None  # malformed id
        return None if obj is None else _KINDS[int(obj.type)]

    def size(self, cid: str) -> int:
        """Return an object's size in bytes. Only its header is read."""
        with reading(cid):
            return int(self._handle.repo.odb.read_header(cid)[1])

    def has_all(self, cids: Iterable[str]) -> bool:
        """Whether all of these objects exist here. None is fetched."""
        odb = self._handle.repo.odb
        with reading("an object"):
            return all(cid in odb for cid in cids)

    def expand(self, text: str) -> str | None:
        """Return the full id of an abbreviated id or a revision such as ``main~2``; None if unknown, ``Ambiguous`` if several."""
        import pygit2

        try:
            obj = self._handle.repo.revparse_single(text)
            return str(obj.peel(pygit2.Commit).id if isinstance(obj, pygit2.Tag) else obj.id)
        except (KeyError, ValueError, pygit2.GitError) as err:
            if isinstance(err, ValueError) and "ambiguous" in message_of(err).lower():
                hints = ["use more characters of the id"]
                raise Ambiguous(f"{text!r} matches several objects", hints=hints, fields={"text": text}) from None
            return None

    def is_unborn(self, text: str) -> bool:
        """Return whether a revision names HEAD, or its branch, before the first commit there."""
        repo = self._handle.repo
        if not repo.head_is_unborn:
            return False
        branch = str(repo.lookup_reference("HEAD").target)
        return text in ("HEAD", "@", branch, branch.removeprefix("refs/heads/"))

    def blob(self, cid: str) -> bytes:
        with reading(cid):
            kind, data = self._handle.repo.read(cid)
            if _KINDS[kind] != "blob":
                raise NoSuchObject(f"object {cid} is a {_KINDS[kind]}, not a blob", fields={"cid": cid})
            return bytes(data)

    def require(self, ids: Iterable[str]) -> None:
        """Fetch those of the objects that a partial clone lacks; an error if they cannot be fetched."""
        if not self._handle.is_partial():
            return
        missing = {cid for cid in ids if cid not in self._handle.repo}
        if missing:
            self.fetch(missing)
        missing = {cid for cid in missing if cid not in self._handle.repo}
        if missing:
            count = "1 object is" if len(missing) == 1 else f"{len(missing)} objects are"
            hints = ["make its remote available, or fetch all objects: git fetch --refetch --no-filter"]
            message = f"{count} missing in this partial clone and cannot be fetched now"
            raise NoSuchObject(message, code="not-fetched", hints=hints, fields={"cids": sorted(missing)[:10]})

    def require_files(self, *trees: str) -> None:
        """Fetch the files of trees that a partial clone lacks."""
        if self._handle.is_partial():
            self.require(trees)
            self.require(entry.cid for tree in trees for entry in self.entries(tree).values() if entry.mode != SUBMODULE)

    @tried_again
    def write_blob(self, data: bytes) -> str:
        with writing("a file's content"):
            return self._written(self._handle.repo.create_blob(data))

    def _written(self, oid: pygit2.Oid) -> str:
        self._handle.share(oid)
        return str(oid)

    def blob_id(self, data: bytes) -> str:
        """Return the id that a blob with this data would have. Nothing is written."""
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def commit(self, cid: str) -> Commit:
        import pygit2

        with reading(cid):
            obj = self._handle.repo[cid]
            if not isinstance(obj, pygit2.Commit):
                raise NoSuchObject(f"object {cid} is not a commit", fields={"cid": cid})
            return as_commit(obj)

    @tried_again
    def write_commit(self, tree: str, parents: Sequence[str], author: Stamp, committer: Stamp, message: str) -> str:
        """Write a commit, signed if the space or the repository's owner signs commits."""
        import pygit2

        with writing("a commit"):
            by, committed_by = (pygit2.Signature(stamp.name, stamp.email, stamp.at, 0) for stamp in (author, committer))
            parent_ids: list[str | pygit2.Oid] = [pygit2.Oid(hex=parent) for parent in parents]
            repo = self._handle.repo
            # The type stubs are wrong: it returns text.
            content = cast("str", repo.create_commit_string(by, committed_by, message, pygit2.Oid(hex=tree), parent_ids))
            signature = self.sign(content.encode("utf-8"))
            if signature is not None:
                oid = repo.create_commit_with_signature(content, signature, _SIGNATURE)
            elif self.signed_by_git:
                return self._write_signed(tree, parents, author, committer, message)
            else:
                oid = repo.create_commit(None, by, committed_by, message, pygit2.Oid(hex=tree), parent_ids)
            if oid not in self._handle.repo:  # libgit2 1.9 does not report that it could not write a commit
                raise OSError(NOT_WRITTEN)
            return self._written(oid)

    @tried_again
    def write_raw_commit(self, data: bytes) -> str:
        """Write a commit from its bytes, which the caller has signed."""
        with writing("a commit"):
            oid = self._handle.repo.write(_COMMIT, data)
            if oid not in self._handle.repo:  # as above
                raise OSError(NOT_WRITTEN)
            return self._written(oid)

    def raw(self, cid: str) -> bytes:
        """The bytes of a commit, as they are stored."""
        with reading(cid):
            kind, data = self._handle.repo.read(cid)
        if _KINDS[kind] != "commit":
            raise NoSuchObject(f"object {cid} is a {_KINDS[kind]}, not a commit", fields={"cid": cid})
        return bytes(data)

    def _write_signed(self, tree: str, parents: Sequence[str], author: Stamp, committer: Stamp, message: str) -> str:
        """Let the git command sign, with the program and key that its owner configured."""
        identity: dict[str, str] = {}
        for role, stamp in (("AUTHOR", author), ("COMMITTER", committer)):
            identity |= {f"GIT_{role}_NAME": stamp.name, f"GIT_{role}_EMAIL": stamp.email, f"GIT_{role}_DATE": f"{stamp.at} +0000"}
        words = [word for parent in parents for word in ("-p", parent)]
        settings = ("-c", "i18n.commitEncoding=UTF-8")
        out = self._command.run(*settings, "commit-tree", "-S", *words, tree, data=message.encode("utf-8"), variables=identity)
        return out.decode("ascii").strip()

    def entries(self, tree: str) -> dict[str, TreeEntry]:
        """Return every path below a tree."""
        entries: dict[str, TreeEntry] = {}
        queue = [("", tree)]  # not recursive: a tree may be deeper than Python's stack
        while queue:
            prefix, folder = queue.pop()
            for name, entry in self.listing(folder):
                if entry.mode == FOLDER:
                    queue.append((f"{prefix}{name}/", entry.cid))
                else:
                    # Very old trees have other modes for plain files than git writes today.
                    plain = EXECUTABLE if entry.mode & 0o100 else FILE
                    entries[prefix + name] = entry if entry.mode in (LINK, SUBMODULE) else TreeEntry(plain, entry.cid)
        return entries

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        """Yield the name and entry of everything directly in a tree."""
        data = self._tree_data(tree)
        at = 0
        while at < len(data):
            space, end = data.index(b" ", at), data.index(b"\0", at)
            name = data[space + 1 : end].decode("utf-8", "surrogateescape")
            yield name, TreeEntry(int(data[at:space], 8), data[end + 1 : end + 21].hex())
            at = end + 21

    def _tree_data(self, tree: str) -> bytes:
        with reading(tree):
            kind, data = self._handle.repo.read(tree)
        if _KINDS[kind] != "tree":
            raise NoSuchObject(f"object {tree} is a {_KINDS[kind]}, not a tree", fields={"cid": tree})
        return data

    def below(self, tree: str, known_trees: Container[str] = ()) -> set[str]:
        """Return the ids of a tree and of everything below it, without the content of ``known_trees``."""
        ids, queue = {tree}, [tree]
        while queue:
            for _, entry in self.listing(queue.pop()):
                if entry.mode == FOLDER and entry.cid not in known_trees and entry.cid not in ids:
                    queue.append(entry.cid)
                if entry.mode != FOLDER or entry.cid not in known_trees:
                    ids.add(entry.cid)
        return ids

    def differ_in(self, names: Container[str], before: str, after: str) -> bool:
        """Return whether two trees differ in something of these names (in lower case), in a link or in a submodule."""
        queue: list[tuple[str | None, str | None]] = [(before, after)] if before != after else []
        while queue:
            sides = [set(_ENTRY.findall(b"" if tree is None else self._tree_data(tree))) for tree in queue.pop()]
            folders: dict[bytes, list[str | None]] = {}
            for side, other in ((0, 1), (1, 0)):
                for mode, name, cid in sides[side] - sides[other]:
                    if name.decode("utf-8", "surrogateescape").casefold() in names or int(mode, 8) in (LINK, SUBMODULE):
                        return True
                    if int(mode, 8) == FOLDER:
                        folders.setdefault(name, [None, None])[side] = cid.hex()
            queue += [(folder[0], folder[1]) for folder in folders.values()]
        return False

    @tried_again
    def with_entries(self, base: pygit2.Tree | str | None, entries: Mapping[str, TreeEntry]) -> str:
        """Return the id of a tree, or of a new one, with some entries set directly in it."""
        with writing("a tree"):
            builder = self._handle.repo.TreeBuilder(base) if base is not None else self._handle.repo.TreeBuilder()
            for name, entry in entries.items():
                builder.insert(name, entry.cid, entry.mode)
            return self._written(builder.write())

    def entry(self, tree: str, path: str) -> TreeEntry | None:
        import pygit2

        with reading(tree):
            top = self._handle.repo[tree]
        if not isinstance(top, pygit2.Tree):
            raise NoSuchObject(f"object {tree} is not a tree", fields={"cid": tree})
        try:
            obj = top[path]
        except KeyError:
            return None
        return TreeEntry(int(obj.filemode), str(obj.id))

    @tried_again
    def update_tree(self, tree: str | None, changes: Mapping[str, TreeEntry | None]) -> str:
        """Return the id of a tree with paths set or, with None, removed. The cost depends on the changed folders only.

        Raise ``UnsafePath`` if a file and a folder would share a name, ``NotFound`` if a path to remove does not exist.
        """
        import pygit2

        with writing("a tree"):
            base = self._handle.repo[tree] if tree else None
            if base is not None and not isinstance(base, pygit2.Tree):
                raise NoSuchObject(f"object {tree} is not a tree", fields={"cid": str(tree)})
            try:
                oid = self._build(base, _nested(changes), "")
            except RecursionError:
                raise UnsafePath("a path has too many folders") from None
            return str(oid) if oid is not None else self._written(self._handle.repo.TreeBuilder().write())

    def _build(self, base: pygit2.Tree | None, changes: Changes, prefix: str) -> pygit2.Oid | None:
        """Write a folder with its changes; return None if nothing is left in it."""
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
        oid = builder.write() if len(builder) else None
        if oid is not None:
            self._handle.share(oid)
        if self._folds_case and oid is not None:
            _check_case(repo[oid], prefix)  # type: ignore[arg-type]  # it is the tree just written
        return oid

    def _descend(self, builder: pygit2.TreeBuilder, present: object, changes: Changes, path: str) -> None:
        import pygit2

        name = path.rpartition("/")[2]
        # The change to a file of the same name: removed (None), or put in the folder's place.
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
        """Parse a file in git's configuration format; return None if git cannot read it."""
        result = self._command.attempt("config", "--file", "-", "-z", "--list", data=data)
        if result.code:
            return None
        items = result.out.decode("utf-8", "replace").split("\0")[:-1]
        return [(key, value) for key, _, value in (item.partition("\n") for item in items)]


def as_commit(commit: pygit2.Commit) -> Commit:
    raw = commit.raw_message
    try:  # a commit may name any encoding, even an unknown one
        message = raw.decode(commit.message_encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        message = raw.decode("utf-8", "replace")
    parents = tuple(map(str, commit.parent_ids))
    return Commit(str(commit.id), str(commit.tree_id), parents, _stamp(commit.author), _stamp(commit.committer), message)


def _stamp(signature: pygit2.Signature) -> Stamp:
    return Stamp(signature.raw_name.decode("utf-8", "replace"), signature.raw_email.decode("utf-8", "replace"), signature.time)


def _nothing_at(path: str) -> NotFound:
    return NotFound(f"cannot remove {path!r}: no such path", code="no-such-path", fields={"path": path})


def _nested(changes: Mapping[str, TreeEntry | None]) -> Changes:
    """Group changes by folder. The change to a file with the folder's own name is stored under the empty name."""
    top: Changes = {}
    for path, change in changes.items():
        folder = top
        *folders, name = path.split("/")
        for part in folders:
            inner = folder.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = folder[part] = {"": inner}
            folder = inner
        present = folder.get(name)
        if isinstance(present, dict):
            present[""] = change
        else:
            folder[name] = change
    return top


def _check_case(tree: pygit2.Tree, prefix: str) -> None:
    """Raise if a tree holds ``A`` and ``a``, which a case-insensitive disk cannot tell apart."""
    names: dict[str, str] = {}
    for entry in tree:
        name = entry.name or ""
        other = names.setdefault(name.casefold(), name)
        if other != name:
            raise clash(prefix + name, prefix + other)
