"""Record a session as a golden journal: ``python tools/record_golden.py RECIPE.json``, or ``-`` for standard input.

A recipe has: name, shows (one line), source, input, started_at, timezone, and answers, a list of [call number, value] or
[call number, null, error]. Tests replay the journals forever, so an existing one is never overwritten: record a new engine's run
under another name.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import clia
from clia.errors import CliaError
from clia.sessions.model import is_human

JOURNALS = Path(__file__).resolve().parent.parent / "tests" / "golden_journals"
FORMAT = 1
AGENT = "golden"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Record a session as a golden journal. Existing journals are never overwritten.")
    parser.add_argument("recipe", help="a JSON file; - for standard input")
    parser.add_argument("--to", type=Path, default=JOURNALS, help="the directory of the journals")
    args = parser.parse_args(words)
    recipe = json.loads(sys.stdin.read() if args.recipe == "-" else Path(args.recipe).read_text(encoding="utf-8"))
    path = args.to / f"{recipe['name']}.json"
    if path.exists():
        print(f"{path} already exists and is never overwritten; choose another name", file=sys.stderr)
        return 1
    try:
        recording = recorded(recipe)
    except CliaError as err:
        print(f"{recipe['name']}: {err.message}", file=sys.stderr)
        return 1
    with open(path, "x", encoding="utf-8") as file:
        file.write(json.dumps(recording, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    print(f"{path}: {len(recording['turns'])} turns, {recording['end'] and recording['end']['status']}")
    return 0


def recorded(recipe: dict[str, Any]) -> dict[str, Any]:
    """The journal of a real session in a new space, and its state after each answer."""
    now = datetime.fromisoformat(recipe.get("started_at", "2026-01-31T23:30:00+00:00"))
    chosen = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=lambda: now)
    with tempfile.TemporaryDirectory() as place, clia.init(place, settings=chosen) as space:
        space.spawn(AGENT, clia.Briefing(title="Golden"))
        space.sessions.define(recipe["name"], recipe["source"])
        session = space.start(AGENT, recipe["name"], recipe.get("input"), timezone=recipe.get("timezone", "UTC"))
        turns = [_turn(session)]
        for answer in recipe["answers"]:
            turns.append(_turn(_answered(space, session, *answer)))
        events = space.sessions.journal(AGENT)
        return {
            "format": FORMAT,
            "name": recipe["name"],
            "shows": recipe["shows"],
            "source": recipe["source"],
            "events": events,
            "turns": turns,
            "end": events[-1] if events[-1]["event"] == "ended" else None,
        }


def _answered(space: clia.Space, session: Any, call: int, value: Any, error: str | None = None) -> Any:
    request = f"{session.id}.{call}"
    kind = next(pending.kind for pending in space.pending(AGENT) if pending.id == request)
    if error is not None:
        return space.sessions.give_up(AGENT, error, request)
    if is_human(kind):
        return space.decide(AGENT, value, "golden", request_id=request).session
    return space.resume(AGENT, value, request)


def _turn(session: Any) -> list[list[Any]]:
    """The pending requests of the session: number, kind, tag, payload and line of each."""
    return [
        [int(request.id.rpartition(".")[2]), request.kind, request.tag, request.payload, request.line]
        for request in session.pending
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
