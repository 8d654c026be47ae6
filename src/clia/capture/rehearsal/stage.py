"""The stage of a rehearsal: clock, ids, transcripts, hooks, the event list, and what all tools have in common.

Invariant: every event goes through ``happen``, which writes the lines, runs the hook and then lists the event. So the list tells
exactly what a recorder could see, and what was withheld on purpose.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from clia.capture.hook import TURNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Line = tuple[str, Any]  # the path of a transcript, and a record for it

    from typing import Any

    from clia.capture.rehearsal.script import ScriptStep

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Setting(NamedTuple):
    """The inputs of a rehearsal."""

    tool: str
    directory: str  # working directory
    home: str  # directory of its transcripts
    start: datetime
    seed: int = 1
    branch: str = ""
    environment: Mapping[str, str] | None = None  # of commands
    send: Callable[[bytes], int] | None = None  # runs the hook with a payload and returns its exit code; None: no hooks
    stop_after: int | None = None
    clock: Callable[[], datetime] | None = None  # None: simulated time from ``start``


class Stopped(Exception):
    """The rehearsal reached ``stop_after``."""


class Stage:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.events: list[dict[str, Any]] = []
        self.run = 0  # number of the session's start: ids differ between starts
        self.missing = self.truncating = self.lagging = 0
        self._now = setting.start.astimezone(UTC)
        self._counts: Counter[str] = Counter()
        self._held: list[Line] = []

    # Ids and times

    def digest(self, *names: object) -> str:
        """64 hex digits, determined by seed, tool and names."""
        return hashlib.sha256("/".join(map(str, (self.setting.seed, self.setting.tool, *names))).encode()).hexdigest()

    def fresh(self, label: str) -> str:
        """64 unique hex digits."""
        self._counts[label] += 1
        return self.digest(self.run, label, self._counts[label])

    def uuid(self, label: str) -> str:
        return uuid_of(self.fresh(label))

    def word(self, label: str, length: int) -> str:
        """Letters and digits, like API ids."""
        number = int(self.fresh(label), 16)
        return "".join(_ALPHABET[number // 62**place % 62] for place in range(length))

    def number(self, label: str, below: int) -> int:
        return int(self.fresh(label), 16) % below

    def now(self) -> datetime:
        """The next time: later than the last one and, with a clock, not before its time."""
        if self.setting.clock is None:
            self._now += timedelta(milliseconds=10 + self.number("tick", 110))
        else:
            self._now = max(self._now + timedelta(milliseconds=1), self.setting.clock().astimezone(UTC))
        return self._now

    def stamp(self) -> str:
        return stamp_of(self.now())

    # Events

    def happen(
        self,
        kind: str,
        agent: str = "",
        *,
        text: str = "",
        lines: Sequence[Line] = (),
        hook: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        """One event: its lines, then its hook. ``agent`` is the tool's id of the sub-agent; empty: the session."""
        event: dict[str, Any] = {"n": len(self.events) + 1, "kind": kind, "agent": agent, "text": text, **keys}
        event["line"] = ("late" if self.lagging else "written") if lines else "none"
        self._put(lines)
        event["hook"] = None if hook is None else str(hook.get("hook_event_name"))
        event["sent"] = "none"
        self.events.append(event)
        if hook is not None:
            self._send(hook, event)
        if self.setting.stop_after is not None and len(self.events) >= self.setting.stop_after:
            raise Stopped

    def _send(self, hook: Mapping[str, Any], event: dict[str, Any]) -> None:
        if self.setting.send is None:
            event["sent"] = "off"
            return
        if self.missing:
            self.missing -= 1
            event["sent"] = "missed"
            return
        data = as_json(hook).encode("utf-8", "surrogatepass")
        event["sent"] = "whole"
        if self.truncating:
            self.truncating -= 1
            event["sent"] = "truncated"
            data = data[: len(data) // 2]
        event["exit"] = self.setting.send(data)

    def _put(self, lines: Sequence[Line]) -> None:
        if self.lagging:
            self._held.extend(lines)
        else:
            for path, record in lines:
                append(path, record)

    def step_done(self) -> None:
        """End a step of the script; delayed lines may be written now."""
        if self.lagging:
            self.lagging -= 1
            if not self.lagging:
                self.release()

    def release(self) -> None:
        held, self._held, self.lagging = self._held, [], 0
        self._put(held)


def append(path: str, record: Any) -> None:
    """Append a line; a text is written as it is, so a line can be malformed on purpose."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    line = record if isinstance(record, str) else as_json(record)
    with open(path, "a", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.write(line + "\n")


def as_json(value: Any) -> str:
    """Compact JSON, as the tools write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def uuid_of(digits: str, version: str = "4") -> str:
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{'89ab'[int(digits[16], 16) % 4]}{digits[17:20]}-{digits[20:32]}"


def stamp_of(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


# The machine: the repository, and running hooks

_PROJECT = {"claude-code": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR"}
_SECONDS = 60
_TIMED_OUT = 124
_THINKING, _INSTANT = 5.0, 0.02


class GitPlace(NamedTuple):
    common: str  # shared git directory
    branch: str  # empty: none


def place_of(directory: str, environment: Mapping[str, str]) -> GitPlace | None:
    """The repository of a directory, if any."""
    found = _git(("rev-parse", "--path-format=absolute", "--git-common-dir"), directory, environment)
    if found is None:
        return None
    return GitPlace(found, _git(("symbolic-ref", "--quiet", "--short", "HEAD"), directory, environment) or "")


def _git(words: Sequence[str], directory: str, environment: Mapping[str, str]) -> str | None:
    variables = {key: value for key, value in environment.items() if not key.startswith("GIT_")}
    done = subprocess.run(["git", *words], cwd=directory, env=variables, capture_output=True, text=True, check=False)
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def own_hook(tool: str) -> list[str]:
    """The hook command of this clia; ``-P``: a file in the repository cannot shadow a module."""
    return [sys.executable, "-P", "-m", "clia", "hook", tool]


def sender(tool: str, command: Sequence[str], directory: str, environment: Mapping[str, str]) -> Callable[[bytes], int]:
    """Returns a function that runs a hook with a payload and returns its exit code; its output is dropped."""
    variables = dict(environment)
    if tool in _PROJECT:
        variables[_PROJECT[tool]] = directory

    def send(payload: bytes) -> int:
        try:
            done = subprocess.run(
                command, cwd=directory, env=variables, input=payload, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return _TIMED_OUT
        return done.returncode

    return send


def thoughtful(send: Callable[[bytes], int], common: str) -> Callable[[bytes], int]:
    """Wait after each turn until the spool is empty: a model thinks for seconds, and ingest finishes meanwhile."""
    new = os.path.join(common, "clia", "spool", "new")

    def sent(payload: bytes) -> int:
        code = send(payload)
        until = time.monotonic() + _THINKING
        while _event_name(payload) in TURNS and time.monotonic() < until and os.path.isdir(new) and os.listdir(new):
            time.sleep(_INSTANT)
        return code

    return sent


def _event_name(payload: bytes) -> bytes:
    try:
        return str(json.loads(payload)["hook_event_name"]).encode()
    except (ValueError, KeyError, TypeError):
        return b""  # truncated on purpose


def in_shell(command: str) -> list[str]:
    return ["/bin/sh", "-c", command]


def free_directory(directory: str, name: str) -> str:
    """Create the first free directory of ``name``, ``name-2``, …; returns its name."""
    number = 1
    while True:
        chosen = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(os.path.join(directory, chosen))
        except FileExistsError:
            number += 1
        else:
            return chosen


# What a tool does to the working directory

_SECONDS = 60


class FileJob(NamedTuple):
    kind: str  # read, write, edit or bash
    path: str = ""  # absolute
    name: str = ""  # relative to the working directory
    old: str = ""
    new: str = ""
    command: str = ""
    about: str = ""


class JobOutcome(NamedTuple):
    ok: bool
    output: str = ""  # output of a command, content that was read, or why it failed
    before: str | None = None  # the file's text; None: no file
    after: str | None = None
    code: int = 0


def job_of(step: ScriptStep, directory: str) -> FileJob:
    if step.verb in ("bash", "fail"):
        return FileJob("bash", command=step.value, about=step.more.get("about", "Run a command"))
    path = os.path.join(directory, step.value)
    old, new = step.more.get("old", ""), step.more.get("new", step.more.get("text", ""))
    return FileJob(step.verb, path, step.value, old, new)


def perform(job: FileJob, directory: str, environment: Mapping[str, str] | None) -> JobOutcome:
    if job.kind == "bash":
        return _run(job.command, directory, environment)
    before = _text_of(job.path)
    if job.kind == "read":
        return (
            JobOutcome(True, before, before, before)
            if before is not None
            else JobOutcome(False, f"File does not exist: {job.path}")
        )
    if job.kind == "edit" and (before is None or job.old not in before):
        return JobOutcome(False, f"String to replace not found in file: {job.path}", before, before)
    after = job.new if job.kind == "write" else (before or "").replace(job.old, job.new, 1)
    try:
        os.makedirs(os.path.dirname(job.path), exist_ok=True)
        with open(job.path, "w", encoding="utf-8", newline="") as file:
            file.write(after)
    except OSError as err:
        return JobOutcome(False, f"{job.path}: {err.strerror}", before, before)
    return JobOutcome(True, "", before, after)


def _text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None


def _run(command: str, directory: str, environment: Mapping[str, str] | None) -> JobOutcome:
    """Run a shell command without a terminal; our own ``python3`` is found last."""
    variables = {key: value for key, value in (environment or {}).items() if not key.startswith("GIT_")}
    variables["PATH"] = os.pathsep.join(filter(None, (variables.get("PATH", os.defpath), os.path.dirname(sys.executable))))
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return JobOutcome(False, f"Command timed out after {_SECONDS}s", code=124)
    output = done.stdout.decode("utf-8", "replace").rstrip("\n")
    return JobOutcome(done.returncode == 0, output, code=done.returncode)


# What the tools have in common


class Actor:
    """The session itself, with an empty id, or a sub-agent."""

    def __init__(self, transcript: str, name: str = "", kind: str = "") -> None:
        self.id = name
        self.type = kind
        self.transcript = transcript
        self.tip: str | None = None  # the last message in the transcript
        self.message: Any = None  # the message being written
        self.said = ""  # the model's last text
        self.uses = 0


class ToolUse(NamedTuple):
    """A tool call."""

    id: str
    name: str
    input: Any
    source: str = ""  # the line that made it
    report: str = ""  # the task of a sub-agent


class RehearsedTool(ABC):
    """A coding tool, as seen from outside."""

    version: str
    forks = True

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sessions: list[str] = []
        self.agents: list[Actor] = []
        self.session = ""
        self.main = Actor("")
        self.prompt_text = ""
        self.new_session()

    def new_session(self) -> None:
        """Start a session; its id depends only on the seed and the start's number."""
        self.session = self.name_session()
        self.sessions.append(self.session)
        self.main = Actor(self.transcript_of(self.session))

    def name_session(self) -> str:
        return uuid_of(self.stage.digest("session", self.stage.run))

    def resumed(self) -> None:
        """The tool restarted: its memory is empty."""
        self.prompt_text = ""

    @abstractmethod
    def transcript_of(self, session: str) -> str: ...

    @abstractmethod
    def start(self, source: str) -> None: ...

    @abstractmethod
    def prompt(self, text: str) -> None: ...

    @abstractmethod
    def say(self, who: Actor, text: str) -> None: ...

    @abstractmethod
    def think(self, who: Actor, text: str) -> None: ...

    @abstractmethod
    def call(self, who: Actor, job: FileJob) -> ToolUse:
        """Announce a job."""

    @abstractmethod
    def result(self, who: Actor, use: ToolUse, job: FileJob, outcome: JobOutcome) -> None:
        """Report a job's outcome."""

    @abstractmethod
    def delegate(self, kind: str, task: str, about: str) -> tuple[ToolUse, Actor]:
        """Request a sub-agent."""

    @abstractmethod
    def launch(self, use: ToolUse, child: Actor) -> None:
        """Start the sub-agent."""

    @abstractmethod
    def settle(self, use: ToolUse, child: Actor) -> None:
        """Finish the sub-agent."""

    def gather(self, done: Sequence[Actor]) -> None:
        """All parallel sub-agents are finished; most tools do nothing."""
        del done

    @abstractmethod
    def stop(self, error: str = "") -> None: ...

    @abstractmethod
    def compact(self, trigger: str, summary: str) -> None: ...

    @abstractmethod
    def end(self, reason: str) -> None: ...

    @abstractmethod
    def fork(self) -> None:
        """Continue a copy of the session under another id."""

    @abstractmethod
    def base(self, name: str) -> dict[str, Any]:
        """The fields of every hook payload."""

    def unknown_event(self, name: str, fields: dict[str, Any]) -> None:
        self.stage.happen("note", text=name, hook={**self.base(name), **fields}, session=self.session)

    def unknown_line(self, who: Actor, record: Any) -> None:
        self.stage.happen("line", who.id, lines=[(who.transcript, record)], session=self.session)


def earlier(pattern: str) -> str | None:
    """The transcript of an earlier rehearsal whose file name contains its time."""
    found = sorted(glob.glob(pattern))
    return found[-1] if found else None


def lines_of(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        return file.read().splitlines()
