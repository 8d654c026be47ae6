"""An agent's worktree that a program works in, and the program's output.

Invariant: commits that the program made itself are adopted, and what it did not commit becomes the last commit. Commits that
others made meanwhile are never undone.
"""

from __future__ import annotations

import codecs
import os
from functools import partial
from typing import NamedTuple

from clia.errors import Conflict, StaleRef
from clia.git.command import ALLOWED, allowed_protocols
from clia.programs.runner import CANCELLED, ProgramCommand
from clia.redaction.secrets import START
from clia.space.core import CommitText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.space import Space
    from clia.git.records import Checkout
    from clia.programs.runner import ProgramRunner
    from clia.redaction.secrets import RedactionState

SEEN = ("PATH", "HOME", "LANG")
"""Variables that a program needs to run at all."""
_QUIET = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_GIT_SECONDS = 300.0
TAIL = 64 * 1024
ENTRY = 16 * 1024
TRACED_MAX = 8 * 1024 * 1024


class ProgramWorktree(NamedTuple):
    """A directory, and the place (see ``ProgramRunner.alone``) that is held for it."""

    space: Space
    agent: str
    directory: str
    place: str
    programs: ProgramRunner
    environment: Mapping[str, str]
    cancelled: Callable[[], bool] = lambda: False

    def git(self, *words: str, output: bytearray | None = None, directory: str | None = None) -> int:
        """Run git without hooks in the worktree, or elsewhere, and return its exit code."""
        environment = {name: self.environment[name] for name in SEEN if name in self.environment}
        environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", ALLOWED: allowed_protocols(self.environment)}
        command = ProgramCommand((*_QUIET, *words), directory or self.directory, environment, b"", _GIT_SECONDS)
        into = bytearray() if output is None else output
        result = self.programs.run(command, self.place, into.extend, self.cancelled)
        if result.how == CANCELLED:
            raise Conflict(f"git was cancelled in {command.directory}", code="cancelled", fields={"path": command.directory})
        return result.code

    def checkout(self) -> Checkout | None:
        """Return the record of the worktree; None if the directory is not the agent's worktree."""
        checkout = self.space.checkout_at(self.directory)
        if checkout is None or (checkout.directory, checkout.agent) != (self.directory, self.agent):
            return None
        return self.space.captures.completed(checkout)

    def repair(self) -> str | None:
        """Restore the worktree if the program removed it, or deleted or replaced its ``.git``; return what was wrong."""
        if self.checkout() is not None:
            return None
        was_deleted = not os.path.isdir(self.directory)
        problem = self.space.captures.repair(self.directory, self.agent)
        if was_deleted:
            return "the worktree was deleted; the files are those of the last commit"
        return problem or "the worktree was removed from the repository"

    def has_changed(self, base: str) -> bool:
        """Return whether files differ from the base, or the program made commits itself."""
        captures = self.space.captures
        return captures.has_own_commits(self.directory) or captures.has_changed(self.agent, self.directory, base)

    def commit(self, base: str, kind: str, message: str, meta: Mapping[str, Any]) -> str:
        """Commit the files with the trace on the base, or on a newer head that changed only journals or no file."""
        space, agent = self.space, self.agent
        if self.checkout() is not None:  # first: what a moved submodule brings is compared when the commit is recorded
            space.captures.keep_submodules(self.directory, agent)
        commit = partial(space.captures.commit_worktree, agent, kind, self.directory, CommitText(message, meta))
        try:
            new = commit(base)
        except StaleRef:
            new = commit(None)  # succeeds if the commits since the base added journal entries or changed no file
        return new


class TracedOutput:
    """Collects a program's output for a trace.

    Invariant: the trace has every line in order, several lines per entry, up to a limit that is noted when it is reached. The last
    64 kB stay available, redacted before they are cut, because half a secret would not be recognised. Invalid UTF-8 is replaced,
    and memory use does not grow with the output.
    """

    def __init__(
        self,
        trace: Callable[[str], None],
        clean: Callable[[str, RedactionState], tuple[str, RedactionState]],
        limit: int = TRACED_MAX,
    ) -> None:
        self._trace = trace
        self._clean = clean
        self._state = START
        self._left = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._tail = ""

    def add(self, data: bytes) -> None:
        """Add output; an empty chunk means that the program is silent, and flushes whole lines."""
        self._waiting += self._decoder.decode(data)
        end = self._waiting.rfind("\n") + 1
        if len(self._waiting) >= ENTRY:
            self._flush(end or len(self._waiting))
        elif end and not data:
            self._flush(end)

    def end(self) -> None:
        self.add(self._decoder.decode(b"", final=True).encode("utf-8"))
        self._flush(len(self._waiting))

    def tail(self) -> str:
        return self.tail_of(self._tail)

    @staticmethod
    def tail_of(text: str) -> str:
        """Return the last 64 kB."""
        return text.encode("utf-8", "replace")[-TAIL:].decode("utf-8", "ignore")

    def _flush(self, upto: int) -> None:
        text, self._waiting = self._waiting[:upto], self._waiting[upto:]
        clean, self._state = self._clean(text, self._state)
        self._tail = (self._tail + clean)[-TAIL:]
        if not text or not self._left:
            return
        if len(text) > self._left:
            text = f"{text[: self._left]}\n[cut: the program printed more than is kept]\n"
            self._left = 0
        else:
            self._left -= len(text)
        self._trace(text)
