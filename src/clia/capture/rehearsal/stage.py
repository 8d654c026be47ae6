"""The stage of a rehearsal: clock, ids, transcripts, hooks, the event list, and the common parts of all tools.

Invariant: every event goes through ``happen``, which writes the lines, runs the hook and then lists the event. So the list shows
exactly the events that a recorder could see, and those that were withheld on purpose.
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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from clia.capture.hook import PROJECTS, starts_ingest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.capture.rehearsal.script import ScriptStep

    Line = tuple[str, Any]  # the path of a transcript, and a record for it

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECONDS, _TIMED_OUT = 60, 124
_THINKING, _INSTANT = 5.0, 0.02


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
        self.faults = {"miss": 0, "truncated": 0, "lag": 0}  # hooks, hooks and steps that are still to be affected
        self._now = setting.start.astimezone(UTC)
        self._counts: Counter[str] = Counter()
        self._late: list[Line] = []

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
        event["line"] = ("late" if self.faults["lag"] else "written") if lines else "none"
        self._late += lines
        if not self.faults["lag"]:
            self.release()
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
        if self.faults["miss"]:
            self.faults["miss"] -= 1
            event["sent"] = "missed"
            return
        event["sent"] = "whole"
        data = as_json(hook).encode("utf-8", "surrogatepass")
        if self.faults["truncated"]:
            self.faults["truncated"] -= 1
            event["sent"] = "truncated"
            data = data[: len(data) // 2]
        event["exit"] = self.setting.send(data)

    def step_done(self) -> None:
        """End a step of the script; delayed lines may be written now."""
        if self.faults["lag"]:
            self.faults["lag"] -= 1
            if not self.faults["lag"]:
                self.release()

    def release(self) -> None:
        """Write the delayed lines."""
        self.faults["lag"] = 0
        for path, record in self._late:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            line = record if isinstance(record, str) else as_json(record)  # a text can be malformed on purpose
            with open(path, "a", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
                file.write(line + "\n")
        self._late.clear()


def as_json(value: Any) -> str:
    """Compact JSON, as the tools write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def uuid_of(digits: str, version: str = "4") -> str:
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{'89ab'[int(digits[16], 16) % 4]}{digits[17:20]}-{digits[20:32]}"


def stamp_of(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


# The machine: the repository, and running hooks


def repository_of(directory: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The shared git directory of a directory's repository, and its branch or ""; None if there is no repository."""
    variables = {key: value for key, value in environment.items() if not key.startswith("GIT_")}
    outputs = []
    for words in (("rev-parse", "--path-format=absolute", "--git-common-dir"), ("symbolic-ref", "--quiet", "--short", "HEAD")):
        git = subprocess.run(["git", *words], cwd=directory, env=variables, capture_output=True, text=True, check=False)
        outputs.append(git.stdout.rstrip("\n") if git.returncode == 0 else "")
    return (outputs[0], outputs[1]) if outputs[0] else None


def sender(
    tool: str, command: Sequence[str], directory: str, environment: Mapping[str, str], common: str
) -> Callable[[bytes], int]:
    """Returns a function that runs a hook with a payload and returns its exit code; its output is dropped.

    If the event starts an ingest, it waits until the spool is empty: a model thinks for seconds, and ingest finishes meanwhile.
    """
    project = {PROJECTS[tool].decode(): directory} if tool in PROJECTS else {}
    ingests = environment.get("CLIA_HOOK_INGEST") != "off"
    in_run = environment.get("CLIA_RUN") == common
    new = os.path.join(common, "clia", "spool", "new")

    def send(payload: bytes) -> int:
        try:
            code = subprocess.run(
                command,
                cwd=directory,
                env={**environment, **project},
                input=payload,
                stdout=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = _TIMED_OUT
        until = time.monotonic() + _THINKING
        waits = ingests and starts_ingest(payload, in_run=in_run)
        while waits and time.monotonic() < until and os.path.isdir(new) and os.listdir(new):
            time.sleep(_INSTANT)
        return code

    return send


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
        missing = JobOutcome(False, f"File does not exist: {job.path}")
        return missing if before is None else JobOutcome(True, before, before, before)
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
        process = subprocess.run(
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
    output = process.stdout.decode("utf-8", "replace").rstrip("\n")
    return JobOutcome(process.returncode == 0, output, code=process.returncode)


def input_of(job: FileJob, edit: Mapping[str, Any]) -> dict[str, Any]:
    """A job as the input of a tool of Claude Code or Gemini CLI; ``edit`` has the fields that differ."""
    match job.kind:
        case "bash":
            return {"command": job.command, "description": job.about}
        case "write":
            return {"file_path": job.path, "content": job.new}
        case "edit":
            return {"file_path": job.path, "old_string": job.old, "new_string": job.new, **edit}
    return {"file_path": job.path}


# What the tools have in common


@dataclass
class Actor:
    """The session itself, with an empty id, or a sub-agent."""

    transcript: str
    id: str = ""
    type: str = ""
    task: str = ""
    tip: str | None = None  # the last message in the transcript
    message: Any = None  # the message being written
    last_text: str = ""  # of the model
    uses: int = 0


class PlayedToolUse(NamedTuple):
    """A tool call."""

    id: str
    name: str
    input: Any
    source: str = ""  # the line that made it


class RehearsedTool(ABC):
    """A coding tool, as seen from outside."""

    version: str
    turn = ""  # the tool's id of the current turn

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sessions: list[str] = []
        self.agents: list[Actor] = []
        self.prompt_text = ""
        self.new_session()

    def new_session(self) -> None:
        """Start a session; its id depends only on the seed and the start's number."""
        self.session = self.name_session()
        self.sessions.append(self.session)
        self.main = Actor(self.transcript_of(self.session))

    def name_session(self) -> str:
        return uuid_of(self.stage.digest("session", self.stage.run))

    @abstractmethod
    def transcript_of(self, session: str) -> str: ...

    @abstractmethod
    def base(self, name: str) -> dict[str, Any]:
        """The fields of every hook payload."""

    def add_agent(self, transcript: str, name: str, kind: str, task: str) -> Actor:
        self.agents.append(Actor(transcript, name, kind, task))
        return self.agents[-1]


def earlier(folder: str, pattern: str) -> str | None:
    """The transcript of an earlier rehearsal whose file name contains its time."""
    return max(glob.glob(f"{glob.escape(folder)}/{pattern}"), default=None)


def lines_of(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        return file.read().splitlines()
