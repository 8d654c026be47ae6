"""Clones of one repository that share refs through a hub, without a space or store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clia.git.command import GitCommand
from clia.git.graph import GitGraph
from clia.git.libgit2 import GitHandle
from clia.git.objects import GitObjects
from clia.git.records import Stamp
from clia.git.refs import GitRefs
from clia.hub.model import BRANCHES
from clia.hub.refs import HubRefs, UnpublishedWork
from clia.hub.remote import RemoteHub, RemoteHubOptions
from support import git
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clia.git.records import Refs
    from support.git_hubs import Hub

BY = Stamp("Tess", "tess@example.org", 1_777_000_000)
SECONDS = 60.0


class RecordedWork(UnpublishedWork):
    """Unpublished work in memory: the refs that were moved only here."""

    def __init__(self) -> None:
        self.refs: set[str] = set()

    def has(self, ref: str) -> bool:
        return ref in self.refs

    def record(self, ref: str) -> None:
        self.refs.add(ref)

    def announce(self, moves: object) -> None:
        """Not shared with other machines."""


class Clone(NamedTuple):
    """One party that moves refs: a repository, its refs, and its unpublished work."""

    root: Path
    objects: GitObjects
    refs: Refs
    unpublished: RecordedWork
    hub: RemoteHub | None = None

    def commit(self, text: str, *parents: str) -> str:
        return self.objects.write_commit(self.objects.update_tree(None, {}), parents, BY, BY, text)


class _Parts(NamedTuple):
    handle: GitHandle
    command: GitCommand
    objects: GitObjects
    refs: GitRefs


def alone(root: Path) -> Clone:
    """A party on a repository without a hub."""
    parts = _parts(root)
    return Clone(root, parts.objects, parts.refs, RecordedWork())


def sharing(root: Path, hub: Hub, heads: str = BRANCHES, seconds: float = SECONDS) -> Clone:
    """A clone with a hub; ``seconds``: the timeout of the hub."""
    parts = _parts(root, hub.environment)
    if not git("remote", cwd=root):
        git("remote", "add", "hub", hub.url, cwd=root)
    remote = RemoteHub(
        parts.handle, parts.command, parts.refs, RemoteHubOptions("hub", heads, seconds, str(root / ".git/hub-away"))
    )
    unpublished = RecordedWork()
    refs = HubRefs(remote, GitGraph(parts.handle, parts.objects), unpublished, lambda _: None, lambda _: None)
    return Clone(root, parts.objects, refs, unpublished, remote)


def _parts(root: Path, more: Mapping[str, str] | None = None) -> _Parts:
    if not root.exists():
        git("init", "--quiet", "--initial-branch=main", str(root), cwd=root.parent)
    handle = GitHandle(str(root), durable=False)
    command = GitCommand(handle.common_dir, {**(settings().environment or {}), **(more or {})}, durable=False)
    return _Parts(handle, command, GitObjects(handle, command), GitRefs(handle, command, lambda _: None))
