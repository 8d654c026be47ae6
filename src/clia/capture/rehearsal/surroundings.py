"""What a rehearsal needs from the machine: where the repository is, and how a hook is run.

Invariant: git is only asked; nothing here changes a repository. A hook is run as the tools run it: in a shell, with the payload on
standard input and the project's directory in the variable that the tool documents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

from clia.capture.hook import TURNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PROJECT = {"claude-code": "CLAUDE_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR"}
_SECONDS = 60
_TIMED_OUT = 124
_THINKING, _INSTANT = 5.0, 0.02


class Place(NamedTuple):
    common: str  # the git directory that all worktrees share
    branch: str  # empty where there is none


def place_of(directory: str, environment: Mapping[str, str]) -> Place | None:
    """Where the repository of a directory is; None: it is in none."""
    found = _git(("rev-parse", "--path-format=absolute", "--git-common-dir"), directory, environment)
    if found is None:
        return None
    return Place(found, _git(("symbolic-ref", "--quiet", "--short", "HEAD"), directory, environment) or "")


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
