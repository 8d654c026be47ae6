"""One repository: its objects, refs, graph, notes and worktrees, and clia's settings in git's configuration."""

from __future__ import annotations

from functools import cached_property

from clia.errors import InvalidInput
from clia.git.command import PROTOCOLS, GitCommand
from clia.git.graph import GitGraph
from clia.git.libgit2 import GitHandle
from clia.git.notes import GitNotes
from clia.git.objects import GitObjects
from clia.git.refs import GitRefs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pygit2

    from clia.git.porcelain import GitPorcelain

DURABLE, STORE, HUB, HUB_HEADS = "clia.durable", "clia.store", "clia.hub", "clia.hubHeads"
"""Git settings: whether writes are synced to disk, the address of the store, the remote that is the hub, and where the hub keeps
agents' heads."""
LAND = "clia.land"
"""Git setting: how work lands (squash, merge or fast-forward)."""


class Git:
    """One repository: its handle, and the objects, refs, graph, notes and worktrees in it."""

    def __init__(self, handle: GitHandle, command: GitCommand, reached: Callable[[str], None]) -> None:
        self.handle = handle
        self.command = command
        self.objects = GitObjects(handle, command)
        self.refs = GitRefs(handle, command, reached)
        self.graph = GitGraph(handle, self.objects)
        self.notes = GitNotes(handle, self.objects, self.refs, self.graph)
        self.objects.fetch = self._fetch_missing

    def _fetch_missing(self, ids: set[str]) -> None:
        self.porcelain.fetch_missing(ids)

    @cached_property
    def porcelain(self) -> GitPorcelain:
        """The git command, on worktrees, remotes and other repositories."""
        from clia.git.porcelain import GitPorcelain  # a commit of given files needs none of it

        return GitPorcelain(self.handle, self.command)

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
    return Git(
        handle, GitCommand(handle.common_dir, environment, durable=durable, refused=_refused_protocols(handle.repo.config)), reached
    )


def _refused_protocols(config: pygit2.Config) -> list[str]:
    """The transports that git's configuration never allows. Otherwise it has no effect: clia states what git may use."""
    default = config["protocol.allow"] if "protocol.allow" in config else "user"  # noqa: SIM401  # it has no get
    keys = {protocol: f"protocol.{protocol}.allow" for protocol in PROTOCOLS}
    return [protocol for protocol, key in keys.items() if (config[key] if key in config else default) == "never"]  # noqa: SIM401


def is_on(value: str | None) -> bool:
    """Whether a setting that is on by default is on."""
    return (value or "true").lower() not in ("false", "no", "off", "0")
