"""Fires hooks as a tool does, and reads a spool by its documented format alone."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from support import git, program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EVENT = b'{"session_id": "5f0c1f6e-8f3b", "hook_event_name": "PostToolUse", "tool_use_id": "toolu_01"}'


class Fired(NamedTuple):
    code: int
    out: bytes
    err: bytes


QUIET = Fired(0, b"", b"")


def environment(home: Path | None, **more: str) -> dict[str, str]:
    """The environment of a tool's process; hooks do not start ingest unless a test enables it."""
    dropped = ("GIT_", "CLIA_", "CLAUDE", "CODEX", "GEMINI", "XDG_", "HOME", "COVERAGE")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return (
        inherited
        | ({} if home is None else {"HOME": str(home), "XDG_STATE_HOME": f"{home}/.local/state"})
        | {"CLIA_HOOK_INGEST": "off"}
        | more
    )


def fire(
    cwd: str | bytes | Path,
    event: bytes = EVENT,
    tool: str = "claude-code",
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Fired:
    """Send an event through the installed program."""
    result = subprocess.run(
        [program(), "hook", tool, *arguments], cwd=cwd, input=event, env=env or environment(None), capture_output=True, check=False
    )
    return Fired(result.returncode, result.stdout, result.stderr)


def new_space(path: Path) -> Path:
    """A repository that a hook recognizes as a space."""
    path.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=path)
    git("commit", "--quiet", "--allow-empty", "--message=first", cwd=path)
    (path / ".git/clia").mkdir()
    return path


def spool_of(root: Path) -> Path:
    return root / ".git/clia/spool"


class SpooledEvent(NamedTuple):
    name: str
    head: dict[str, bytes]
    payload: bytes


def events(spool: Path) -> list[SpooledEvent]:
    """The events in a spool, oldest first; asserts that no partly written file is left."""
    if not spool.exists():
        return []
    assert os.listdir(spool / "tmp") == []
    return [SpooledEvent(name, *parse((spool / "new" / name).read_bytes())) for name in sorted(os.listdir(spool / "new"))]


def parse(content: bytes) -> tuple[dict[str, bytes], bytes]:
    head, _, payload = content.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    assert first == b"clia-hook 1"
    fields = {}
    for line in lines:
        key, _, value = line.partition(b"=")
        fields[key.decode()] = value.replace(b"%0A", b"\n").replace(b"%25", b"%")
    return fields, payload
