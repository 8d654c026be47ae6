"""The cold start of a hook, which a tool waits for at each step, and the ingest of a turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import clia
from benchmarks.measure import Row, beside, command
from benchmarks.peers import import_of
from benchmarks.works import IMPORT_LANGGRAPH
from clia.capture import spool
from clia.capture.ingest import ingest

if TYPE_CHECKING:
    from collections.abc import Callable

TYPICAL, LARGE = 4_000, 1_000_000


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "space"
        clia.init(root, settings=clia.Settings(durable=False)).close()
        bare = command([sys.executable, "-c", "pass"])
        works = [bare, _hook(root, _event(TYPICAL)), _hook(root, _event(LARGE))]
        (floor, typical, large), theirs = beside(works, {IMPORT_LANGGRAPH: import_of("langgraph.graph")}, rounds)
        waiting = len(os.listdir(root / ".git/clia/spool/new"))
        assert waiting == 2 * (rounds + 1), f"{waiting} events were stored"
    return [
        Row("cold-hook", typical, floor, theirs),
        Row("cold-hook-large", large, floor),
        *_baseline_rows(rounds),
        *_ingest_rows(rounds),
    ]


def _baseline_rows(rounds: int) -> list[Row]:
    """A hook that waits for its ingest, beside ``clia ingest`` of the same event, which was stored before."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "space"
        clia.init(root, settings=clia.Settings(durable=False)).close()
        ingest_alone = command([str(Path(sys.executable).parent / "clia"), "ingest", "--json", "--path", str(root)])

        def floor() -> None:
            place = spool.spool_of(os.fsencode(root / ".git"))
            spool.put([place], [spool.head(b"claude-code", os.fsencode(root)), _prompt(root)])
            ingest_alone()

        def hook() -> None:
            _hook(root, _prompt(root), ingest="")()

        (alone, waiting), _ = beside([floor, hook], {}, rounds)
        left = os.listdir(root / ".git/clia/spool/new")
        assert not left, f"{len(left)} events were not waited for"
    return [Row("hook-baseline", waiting, alone)]


def _prompt(root: Path) -> bytes:
    """A prompt of a new session, before which a person changed a file."""
    name = os.urandom(8).hex()
    (root / "notes.txt").write_text(f"{name}\n")
    return json.dumps({"session_id": name, "cwd": str(root), "hook_event_name": "UserPromptSubmit", "prompt": name}).encode()


def _ingest_rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        root, options = Path(directory).resolve() / "space", clia.Settings(durable=False)
        with clia.init(root, settings=options) as space:
            commit = command(["git", "-C", str(root), "commit", "--quiet", "--allow-empty", "--message=turn"])
            (floor, turn), _ = beside([commit, lambda: _turn(root, space, options)], {}, rounds)
    return [Row("ingest-turn", turn, floor)]


def _turn(root: Path, space: clia.Space, options: clia.Settings) -> None:
    """A turn of 20 tool calls in the spool, one of which wrote a file; its ingest commits it."""
    place = spool.spool_of(os.fsencode(root / ".git"))
    head = spool.head(b"claude-code", os.fsencode(root))
    name = os.urandom(8).hex()
    (root / "notes.txt").write_text(f"{name}\n")
    common = {"session_id": "5f0c1f6e-8f3b-4b7e-9d0b-0c6f7a1d2e3f", "cwd": str(root)}
    events: list[dict[str, object]] = [{"hook_event_name": "UserPromptSubmit", "prompt": name}]
    for number in range(20):
        call = {"tool_name": "Read", "tool_use_id": f"{name}-{number}", "tool_input": {}, "tool_response": "text"}
        events += [{"hook_event_name": "PreToolUse", **call}, {"hook_event_name": "PostToolUse", **call}]
    events.append({"hook_event_name": "Stop"})
    for event in events:
        spool.put([place], [head, json.dumps({**common, **event}).encode()])
    result = ingest(space, options, {})
    assert result.done.commits, f"the turn was not committed: {result}"


def _hook(root: Path, event: bytes, ingest: str = "off") -> Callable[[], object]:
    """Run the installed program as a tool does. An ingest in the background would be measured too, so it is off by default."""
    program = str(Path(sys.executable).parent / "clia")
    environment = {**os.environ, "CLIA_HOOK_INGEST": ingest}
    words = [program, "hook", "claude-code"]
    return lambda: subprocess.run(words, cwd=root, env=environment, input=event, check=True, stdout=subprocess.DEVNULL)


def _event(size: int) -> bytes:
    """An event in the shape that Claude Code documents, padded to a size."""
    event = {
        "session_id": "5f0c1f6e-8f3b-4b7e-9d0b-0c6f7a1d2e3f",
        "transcript_path": "/home/tess/.claude/projects/-home-tess-shop/5f0c1f6e.jsonl",
        "cwd": "/home/tess/shop",
        "permission_mode": "default",
        "hook_event_name": "PostToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": "/home/tess/shop/parser.py"},
        "tool_use_id": "toolu_01A2b3C4d5E6f7G8h9",
        "tool_response": {"content": ""},
    }
    event["tool_response"] = {"content": "x" * (size - len(json.dumps(event)))}
    return json.dumps(event).encode()
