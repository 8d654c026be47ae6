"""One repository: its objects, refs, graph, notes and worktrees, and clia's settings in git's configuration."""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.git.command import GitCommand
from clia.git.graph import GitGraph
from clia.git.libgit2 import GitHandle
from clia.git.notes import GitNotes
from clia.git.objects import GitObjects
from clia.git.porcelain import GitPorcelain
from clia.git.refs import GitRefs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DURABLE, STORE, HUB, HUB_HEADS = "clia.durable", "clia.store", "clia.hub", "clia.hubHeads"
"""Git settings: whether writes are synced to disk, the address of the store, the remote that is the hub, and where the hub keeps
agents' heads."""


class Git(NamedTuple):
    """One repository: its handle, and the objects, refs, graph, notes and worktrees in it."""

    handle: GitHandle
    objects: GitObjects
    refs: GitRefs
    graph: GitGraph
    notes: GitNotes
    porcelain: GitPorcelain
    command: GitCommand

    def setting(self, key: str) -> str | None:
        """A value of git's configuration, as git reads it."""
        config = self.handle.repo.config
        return config[key] if key in config else None  # noqa: SIM401  # libgit2's configuration has no get

    def positive_number(self, key: str) -> int | None:
        """A setting that must be a positive number; None if it is not set."""
        text = self.setting(key)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise InvalidInput(f"the setting {key} must be a positive number, not {text!r}", code="invalid-setting")
        return int(text)


def open_repository(root: str, environment: Mapping[str, str], reached: Callable[[str], None], *, durable: bool | None) -> Git:
    """The repository at a path. ``durable``: None for the repository's own setting, which is on by default."""
    handle = GitHandle(root, durable=False)
    if durable is None:
        config = handle.repo.config
        durable = config.get_bool(DURABLE) if DURABLE in config else True
    handle.set_durable(durable)
    command = GitCommand(handle.common_dir, environment, durable=durable)
    objects = GitObjects(handle, command)
    refs = GitRefs(handle, command, reached)
    graph = GitGraph(handle, objects)
    return Git(handle, objects, refs, graph, GitNotes(handle, objects, refs, graph), GitPorcelain(handle, command), command)


def is_on(value: str | None) -> bool:
    """Whether a setting that is on by default is on."""
    return (value or "true").lower() not in ("false", "no", "off", "0")
