"""What the three tools have in common.

Invariant: a tool turns what happens into its own hook events and transcript lines, and hands both to the stage; it neither
touches a file of the working directory nor knows of scripts.
"""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from typing import NamedTuple

from clia.capture.rehearsal.stage import uuid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.capture.rehearsal.stage import Stage
    from clia.capture.rehearsal.work import Job, Outcome


class Who:
    """One who acts: the session itself, whose id is empty, or a sub-agent of it."""

    def __init__(self, transcript: str, name: str = "", kind: str = "") -> None:
        self.id = name
        self.type = kind
        self.transcript = transcript
        self.tip: str | None = None  # the transcript's last message
        self.message: Any = None  # the model's message that is being written
        self.said = ""  # what the model said last
        self.uses = 0


class Use(NamedTuple):
    """A call of one of the tool's tools."""

    id: str
    name: str
    input: Any
    source: str = ""  # the line that made it
    report: str = ""  # what is asked of a sub-agent


class Tool(ABC):
    """A coding tool, as the world outside sees it."""

    version: str
    forks = True

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sessions: list[str] = []
        self.agents: list[Who] = []
        self.session = ""
        self.main = Who("")
        self.prompt_text = ""
        self.new_session()

    def new_session(self) -> None:
        """A session of its own for this start, with an id that only the seed and the start's number decide."""
        self.session = self.name_session()
        self.sessions.append(self.session)
        self.main = Who(self.transcript_of(self.session))

    def name_session(self) -> str:
        return uuid_of(self.stage.digest("session", self.stage.run))

    def resumed(self) -> None:
        """The tool was started again: what it had in memory is gone."""
        self.prompt_text = ""

    @abstractmethod
    def transcript_of(self, session: str) -> str: ...

    @abstractmethod
    def start(self, source: str) -> None: ...

    @abstractmethod
    def prompt(self, text: str) -> None: ...

    @abstractmethod
    def say(self, who: Who, text: str) -> None: ...

    @abstractmethod
    def think(self, who: Who, text: str) -> None: ...

    @abstractmethod
    def call(self, who: Who, job: Job) -> Use:
        """A job is about to be done."""

    @abstractmethod
    def result(self, who: Who, use: Use, job: Job, outcome: Outcome) -> None:
        """The job was done, or failed."""

    @abstractmethod
    def delegate(self, kind: str, task: str, about: str) -> tuple[Use, Who]:
        """A sub-agent is asked for."""

    @abstractmethod
    def launch(self, use: Use, child: Who) -> None:
        """It starts."""

    @abstractmethod
    def settle(self, use: Use, child: Who) -> None:
        """It is done."""

    def gather(self, done: Sequence[Who]) -> None:
        """All that worked at the same time are done; most tools make nothing of it."""
        del done

    @abstractmethod
    def stop(self, error: str = "") -> None: ...

    @abstractmethod
    def compact(self, trigger: str, summary: str) -> None: ...

    @abstractmethod
    def end(self, reason: str) -> None: ...

    @abstractmethod
    def fork(self) -> None:
        """The session's copy goes on under another id."""

    @abstractmethod
    def base(self, name: str) -> dict[str, Any]:
        """What every hook's payload has."""

    def unknown_event(self, name: str, fields: dict[str, Any]) -> None:
        self.stage.happen("note", text=name, hook={**self.base(name), **fields}, session=self.session)

    def unknown_line(self, who: Who, record: Any) -> None:
        self.stage.happen("line", who.id, lines=[(who.transcript, record)], session=self.session)


def earlier(pattern: str) -> str | None:
    """The transcript of an earlier rehearsal whose name has its time in it."""
    found = sorted(glob.glob(pattern))
    return found[-1] if found else None


def lines_of(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        return file.read().splitlines()
