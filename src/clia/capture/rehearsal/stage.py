"""Where a rehearsal takes place: its clock, its ids, its transcripts, its hooks, and the list of all that happened.

Invariant: everything that happens goes through ``happen``, which writes the lines, runs the hook and puts the event on the list,
in this order: so the list says exactly what a recorder could have seen, and what was kept from it on purpose.
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

    Line = tuple[str, Any]  # a transcript's path, and what goes into it

    from typing import Any

    from clia.capture.rehearsal.script import ScriptStep

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Setting(NamedTuple):
    """What a rehearsal is given from outside."""

    tool: str
    directory: str  # where the tool works
    home: str  # where it keeps its transcripts
    start: datetime
    seed: int = 1
    branch: str = ""
    environment: Mapping[str, str] | None = None  # of the commands it runs
    send: Callable[[bytes], int] | None = None  # runs the hook with a payload, and gives its exit code; None: no hooks
    stop_after: int | None = None
    clock: Callable[[], datetime] | None = None  # the real time; None: time goes on by itself from the start


class Stopped(Exception):
    """The session was left where it was asked to be."""


class Stage:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.events: list[dict[str, Any]] = []
        self.run = 0  # which start of the session this is: ids of another start are others
        self.missing = self.truncating = self.lagging = 0
        self._now = setting.start.astimezone(UTC)
        self._counts: Counter[str] = Counter()
        self._held: list[Line] = []

    # Ids and times.

    def digest(self, *names: object) -> str:
        """64 hex digits, the same for the same seed, tool and names."""
        return hashlib.sha256("/".join(map(str, (self.setting.seed, self.setting.tool, *names))).encode()).hexdigest()

    def fresh(self, label: str) -> str:
        """64 hex digits that no other call gives."""
        self._counts[label] += 1
        return self.digest(self.run, label, self._counts[label])

    def uuid(self, label: str) -> str:
        return uuid_of(self.fresh(label))

    def word(self, label: str, length: int) -> str:
        """Letters and digits, as ids of APIs are."""
        number = int(self.fresh(label), 16)
        return "".join(_ALPHABET[number // 62**place % 62] for place in range(length))

    def number(self, label: str, below: int) -> int:
        return int(self.fresh(label), 16) % below

    def now(self) -> datetime:
        """The next moment: later than the last one, and where there is a clock, as the clock says."""
        if self.setting.clock is None:
            self._now += timedelta(milliseconds=10 + self.number("tick", 110))
        else:
            self._now = max(self._now + timedelta(milliseconds=1), self.setting.clock().astimezone(UTC))
        return self._now

    def stamp(self) -> str:
        return stamp_of(self.now())

    # What happens.

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
        """One event: its lines, then its hook; ``agent`` is the tool's id of the sub-agent, empty for the session itself."""
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
        """A step of the script is over: lines that lagged behind may come now."""
        if self.lagging:
            self.lagging -= 1
            if not self.lagging:
                self.release()

    def release(self) -> None:
        held, self._held, self.lagging = self._held, [], 0
        self._put(held)


def append(path: str, record: Any) -> None:
    """One more line; a text goes in as it is, so that a line can be broken on purpose."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    line = record if isinstance(record, str) else as_json(record)
    with open(path, "a", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.write(line + "\n")


def as_json(value: Any) -> str:
    """JSON as the tools write it: no blanks, no escapes that are not needed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def uuid_of(digits: str, version: str = "4") -> str:
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{'89ab'[int(digits[16], 16) % 4]}{digits[17:20]}-{digits[20:32]}"


def stamp_of(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


# What a rehearsal needs from the machine: where the repository is, and how a hook is run.

_PROJECT = {"claude-code": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR"}
_SECONDS = 60
_TIMED_OUT = 124
_THINKING, _INSTANT = 5.0, 0.02


class GitPlace(NamedTuple):
    common: str  # the git directory that all worktrees share
    branch: str  # empty where there is none


def place_of(directory: str, environment: Mapping[str, str]) -> GitPlace | None:
    """Where the repository of a directory is; None: it is in none."""
    found = _git(("rev-parse", "--path-format=absolute", "--git-common-dir"), directory, environment)
    if found is None:
        return None
    return GitPlace(found, _git(("symbolic-ref", "--quiet", "--short", "HEAD"), directory, environment) or "")


def _git(words: Sequence[str], directory: str, environment: Mapping[str, str]) -> str | None:
    variables = {key: value for key, value in environment.items() if not key.startswith("GIT_")}
    done = subprocess.run(["git", *words], cwd=directory, env=variables, capture_output=True, text=True, check=False)
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def own_hook(tool: str) -> list[str]:
    """This program as the tool's hook; ``-P``: a file of the repository cannot pass for a module of ours."""
    return [sys.executable, "-P", "-m", "clia", "hook", tool]


def sender(tool: str, command: Sequence[str], directory: str, environment: Mapping[str, str]) -> Callable[[bytes], int]:
    """Runs a hook with a payload and gives its exit code; what it prints to the tool is dropped, complaints are shown."""
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
    """A model thinks for seconds before it goes on, and what a hook started is done by then: here it is waited for."""
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
        return b""  # cut on purpose


def in_shell(command: str) -> list[str]:
    return ["/bin/sh", "-c", command]


def free_directory(directory: str, name: str) -> str:
    """Makes the first of ``name``, ``name-2``, … that is not there, so that nobody's files are in the way; its name."""
    number = 1
    while True:
        chosen = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(os.path.join(directory, chosen))
        except FileExistsError:
            number += 1
        else:
            return chosen


# What a tool does to the working directory.

_SECONDS = 60


class FileJob(NamedTuple):
    kind: str  # read, write, edit or bash
    path: str = ""  # absolute
    name: str = ""  # the same, from the working directory
    old: str = ""
    new: str = ""
    command: str = ""
    about: str = ""


class JobOutcome(NamedTuple):
    ok: bool
    output: str = ""  # what a command printed, what was read, or why it failed
    before: str | None = None  # the file's text; None: there was none
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
    """A command in a shell, without a terminal; ``python3`` is found even where only ours is installed."""
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


# What the three tools have in common.


class Actor:
    """One who acts: the session itself, whose id is empty, or a sub-agent of it."""

    def __init__(self, transcript: str, name: str = "", kind: str = "") -> None:
        self.id = name
        self.type = kind
        self.transcript = transcript
        self.tip: str | None = None  # the transcript's last message
        self.message: Any = None  # the model's message that is being written
        self.said = ""  # what the model said last
        self.uses = 0


class ToolUse(NamedTuple):
    """A call of one of the tool's tools."""

    id: str
    name: str
    input: Any
    source: str = ""  # the line that made it
    report: str = ""  # what is asked of a sub-agent


class RehearsedTool(ABC):
    """A coding tool, as the world outside sees it."""

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
        """A session of its own for this start, with an id that only the seed and the start's number decide."""
        self.session = self.name_session()
        self.sessions.append(self.session)
        self.main = Actor(self.transcript_of(self.session))

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
    def say(self, who: Actor, text: str) -> None: ...

    @abstractmethod
    def think(self, who: Actor, text: str) -> None: ...

    @abstractmethod
    def call(self, who: Actor, job: FileJob) -> ToolUse:
        """A job is about to be done."""

    @abstractmethod
    def result(self, who: Actor, use: ToolUse, job: FileJob, outcome: JobOutcome) -> None:
        """The job was done, or failed."""

    @abstractmethod
    def delegate(self, kind: str, task: str, about: str) -> tuple[ToolUse, Actor]:
        """A sub-agent is asked for."""

    @abstractmethod
    def launch(self, use: ToolUse, child: Actor) -> None:
        """It starts."""

    @abstractmethod
    def settle(self, use: ToolUse, child: Actor) -> None:
        """It is done."""

    def gather(self, done: Sequence[Actor]) -> None:
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

    def unknown_line(self, who: Actor, record: Any) -> None:
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
