"""The files of a ref's commit, read without opening a space.

Refs of idle agents are in the archive repository beside the main one; they are read there without being moved.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.errors import NoSuchObject
from clia.git.archive import FOLDER
from clia.git.libgit2 import GitHandle, git_error
from clia.git.ref_files import read_packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pygit2


def files_at(common_dir: str, ref: str) -> dict[str, bytes] | None:
    """Return the files at the top of a ref's tree; None if the ref does not exist."""
    import pygit2

    handle = GitHandle(common_dir)
    archive = os.path.join(common_dir, "clia", FOLDER)
    try:
        value = handle.repo.references.get(ref)
        cid = None if value is None else str(value.resolve().target)
        if cid is None:
            cid = next((packed for name, packed in read_packed(archive, ref, limit=1) if name == ref), None)
        if cid is None:
            return None
        tree = handle.repo[cid].peel(pygit2.Commit).tree
        return {entry.name or "": entry.data for entry in tree if isinstance(entry, pygit2.Blob)}
    except KeyError as err:
        raise NoSuchObject(f"an object of {ref} is missing: {err}", fields={"ref": ref}) from None
    except (pygit2.GitError, OSError, ValueError) as err:
        raise git_error(f"reading {ref}", err, ref=ref) from None


class CommitReader(NamedTuple):
    """Reads commits of a repository as bytes."""

    handle: GitHandle

    def read(self, cid: str) -> bytes | None:
        """The bytes of a commit; None if it is not there."""
        import pygit2

        try:
            kind, data = self.handle.repo.odb.read(pygit2.Oid(hex=cid))
        except (KeyError, ValueError):
            return None
        except (pygit2.GitError, OSError) as err:
            raise git_error(f"reading {cid}", err, cid=cid) from None
        return data if kind == pygit2.enums.ObjectType.COMMIT else None

    def tip(self, ref: str) -> str | None:
        """The commit that a ref names."""
        import pygit2

        try:
            value = self.handle.repo.references.get(ref)
        except (pygit2.GitError, ValueError):
            return None
        return None if value is None else str(value.resolve().target)


def commits_in(top: str) -> CommitReader:
    """The commits of the repository at a directory."""
    return CommitReader(GitHandle(top))


def files_in_head(top: str, directories: list[str], limit: int) -> dict[str, dict[str, bytes | None]]:
    """Return the files in those directories of the commit that a worktree has checked out; none for a branch without commits.

    A file of more than ``limit`` bytes, or anything else, has no content.
    """
    import pygit2

    repo = GitHandle(top).repo
    try:
        if repo.head_is_unborn:
            return {}
        tree = repo.head.peel(pygit2.Commit).tree
    except (pygit2.GitError, KeyError, OSError, ValueError) as err:
        raise git_error(f"reading the last commit of {top}", err, path=top) from None
    return {directory: _files(tree, directory, limit) for directory in directories}


def _files(tree: pygit2.Tree, directory: str, limit: int) -> dict[str, bytes | None]:
    import pygit2

    try:
        entry = tree[directory] if directory else tree
    except KeyError:
        return {}
    if not isinstance(entry, pygit2.Tree):
        return {}
    return {child.name or "": child.data if isinstance(child, pygit2.Blob) and child.size <= limit else None for child in entry}
