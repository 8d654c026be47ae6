"""Objects of submodules, read from the repository's copies of them.

Invariant: read-only; nothing is fetched. A copy counts if it has the commit: ``.git/modules/NAME``, the submodule's own repository
in the user's worktree, or that of a linked worktree, such as an agent's.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.errors import CliaError
from clia.git import worktree_links
from clia.git.libgit2 import GitHandle
from clia.git.objects import GitObjects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.command import GitCommand


class SubmoduleObjects(NamedTuple):
    handle: GitHandle
    command: GitCommand

    def tree(self, path: str, commit: str) -> tuple[GitObjects, str] | None:
        """The objects of the submodule at a path, and the tree of one of its commits; None if it is not here."""
        for directory in self._copies(path):
            try:
                objects = GitObjects(GitHandle(directory, durable=False), self.command)
                if objects.kind(commit) == "commit":
                    return objects, objects.commit(commit).tree
            except CliaError:
                continue  # not a repository, or a damaged one
        return None

    def _copies(self, path: str) -> Iterator[str]:
        if any(part in ("", ".", "..", ".git") for part in path.split("/")):
            return
        names = (path, path.replace("/", "/modules/"))
        admins = (self.handle.common_dir, *worktree_links.admin_dirs(self.handle.common_dir))
        places = [os.path.join(admin, "modules", *name.split("/")) for admin in admins for name in names]
        if self.handle.work_dir is not None:
            places.append(os.path.join(self.handle.work_dir, *path.split("/")))
        for place in dict.fromkeys(places):
            if os.path.lexists(os.path.join(place, ".git")) or os.path.isfile(os.path.join(place, "HEAD")):
                yield place
