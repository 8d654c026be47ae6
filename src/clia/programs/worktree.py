"""An agent's worktree that a program works in.

Invariant: only the files in the worktree count, whatever the program did with git there: files that it committed itself are
changes too. Commits that others made meanwhile are never undone.
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
"""Variables that a program needs to run at all."""
_QUIET = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_GIT_SECONDS = 300.0


class ProgramWorktree(NamedTuple):
    """A directory, and the place (see ``ProgramRunner.alone``) that is held for it."""

    space: Space
    agent: str
    directory: str
    place: str
    programs: ProgramRunner
    environment: Mapping[str, str]
    cancelled: Callable[[], bool] = lambda: False

    def git(self, *words: str, said: bytearray | None = None, directory: str | None = None) -> int:
        """Run git without hooks in the worktree, or elsewhere, and return its exit code."""
        kept = {name: self.environment[name] for name in SEEN if name in self.environment}
        environment = {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        order = ProgramCommand((*_QUIET, *words), directory or self.directory, environment, b"", _GIT_SECONDS)
        into = bytearray() if said is None else said
        ended = self.programs.run(order, self.place, into.extend, self.cancelled)
        if ended.how == CANCELLED:
            raise Conflict(f"git was cancelled in {order.directory}", code="cancelled", fields={"path": order.directory})
        return ended.code

    def has_changed(self, base: str) -> bool:
        """Return whether files differ from the base; the program may have made commits itself."""
        compared = self.git("diff", "--quiet", "--no-ext-diff", "--no-textconv", base, "--")
        printed = bytearray()
        listed = self.git("ls-files", "--others", "--exclude-standard", "-z", said=printed)
        if compared > 1 or listed:
            raise GitError(f"git cannot compare the files in {self.directory}", fields={"path": self.directory})
        return bool(compared or printed)

    def commit(self, base: str, kind: str, message: str, meta: Mapping[str, Any]) -> str:
        """Commit the files with the trace on the base, or on a newer head that changed no file."""
        space, agent = self.space, self.agent
        try:
            return space.commit_dir(agent, kind, self.directory, message=message, meta=meta, base=base, with_trace=True)
        except StaleRef:
            head = space.head(agent)
            if space.show(head).tree != space.show(base).tree:
                raise
            # For example decisions.
            return space.commit_dir(agent, kind, self.directory, message=message, meta=meta, base=head, with_trace=True)
