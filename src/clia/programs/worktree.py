"""An agent's worktree that a program works in.

Invariant: what counts is what lies in the worktree, whatever the program did with git there: files that it committed itself
are changes too. Nothing that others committed meanwhile is undone.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.errors import Conflict, GitError, StaleRef
from clia.programs.runner import CANCELLED, ProgramCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.space import Space
    from clia.programs.runner import ProgramRunner


SEEN = ("PATH", "HOME", "LANG")
"""What a program needs of the environment to run at all."""
_QUIET = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_GIT_SECONDS = 300.0


class ProgramWorktree(NamedTuple):
    """A directory, and the place (see ``Programs.alone``) that is held for it."""

    space: Space
    agent: str
    directory: str
    place: str
    programs: ProgramRunner
    environment: Mapping[str, str]
    cancelled: Callable[[], bool] = lambda: False

    def git(self, *words: str, said: bytearray | None = None, directory: str | None = None) -> int:
        """The exit code of stock git in the worktree, or elsewhere, away from hooks."""
        kept = {name: self.environment[name] for name in SEEN if name in self.environment}
        environment = {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        order = ProgramCommand((*_QUIET, *words), directory or self.directory, environment, b"", _GIT_SECONDS)
        into = bytearray() if said is None else said
        ended = self.programs.run(order, self.place, into.extend, self.cancelled)
        if ended.how == CANCELLED:
            raise Conflict(f"git was cancelled in {order.directory}", code="cancelled", fields={"path": order.directory})
        return ended.code

    def has_changed(self, base: str) -> bool:
        """Compared with the base: the program may have made commits of its own in the worktree."""
        compared = self.git("diff", "--quiet", "--no-ext-diff", "--no-textconv", base, "--")
        printed = bytearray()
        listed = self.git("ls-files", "--others", "--exclude-standard", "-z", said=printed)
        if compared > 1 or listed:
            raise GitError(f"git cannot compare the files in {self.directory}", fields={"path": self.directory})
        return bool(compared or printed)

    def commit(self, base: str, kind: str, message: str, meta: Mapping[str, Any]) -> str:
        """The files as a commit with trace on the base; also where others committed meanwhile, if that changed no file."""
        space, agent = self.space, self.agent
        try:
            return space.commit_dir(agent, kind, self.directory, message=message, meta=meta, base=base, with_trace=True)
        except StaleRef:
            head = space.head(agent)
            if space.show(head).tree != space.show(base).tree:
                raise
            # Decisions were made meanwhile, say.
            return space.commit_dir(agent, kind, self.directory, message=message, meta=meta, base=head, with_trace=True)
