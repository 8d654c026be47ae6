"""What a tool does to the working directory.

Invariant: a job is described before it is done, as the tools do, and what came of it afterwards. Only files of the working
directory are written, and no job of ours is a git command.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.capture.rehearsal.script import Step

_SECONDS = 60


class Job(NamedTuple):
    kind: str  # read, write, edit or bash
    path: str = ""  # absolute
    name: str = ""  # the same, from the working directory
    old: str = ""
    new: str = ""
    command: str = ""
    about: str = ""


class Outcome(NamedTuple):
    ok: bool
    output: str = ""  # what a command printed, what was read, or why it failed
    before: str | None = None  # the file's text; None: there was none
    after: str | None = None
    code: int = 0


def job_of(step: Step, directory: str) -> Job:
    if step.verb in ("bash", "fail"):
        return Job("bash", command=step.value, about=step.more.get("about", "Run a command"))
    path = os.path.join(directory, step.value)
    old, new = step.more.get("old", ""), step.more.get("new", step.more.get("text", ""))
    return Job(step.verb, path, step.value, old, new)


def perform(job: Job, directory: str, environment: Mapping[str, str] | None) -> Outcome:
    if job.kind == "bash":
        return _run(job.command, directory, environment)
    before = _text_of(job.path)
    if job.kind == "read":
        return Outcome(True, before, before, before) if before is not None else Outcome(False, f"File does not exist: {job.path}")
    if job.kind == "edit" and (before is None or job.old not in before):
        return Outcome(False, f"String to replace not found in file: {job.path}", before, before)
    after = job.new if job.kind == "write" else (before or "").replace(job.old, job.new, 1)
    try:
        os.makedirs(os.path.dirname(job.path), exist_ok=True)
        with open(job.path, "w", encoding="utf-8", newline="") as file:
            file.write(after)
    except OSError as err:
        return Outcome(False, f"{job.path}: {err.strerror}", before, before)
    return Outcome(True, "", before, after)


def _text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None


def _run(command: str, directory: str, environment: Mapping[str, str] | None) -> Outcome:
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
        return Outcome(False, f"Command timed out after {_SECONDS}s", code=124)
    output = done.stdout.decode("utf-8", "replace").rstrip("\n")
    return Outcome(done.returncode == 0, output, code=done.returncode)
