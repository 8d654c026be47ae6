"""Permission prompts of tools: the time from a person's decision until the tool has the answer."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import clia
from benchmarks.measure import Row
from clia.capture.permissions.prompts import PermissionPrompt, PromptedCall
from clia.rules.evaluation import RuledAction, evaluate
from clia.rules.model import parse_rule

PROMPTS, AGENTS = 200, 40
_SINGLE = 5


def rows(rounds: int) -> list[Row]:
    del rounds  # many prompts are one round
    alone = statistics.median(_delays(_SINGLE, together=False))
    delays = sorted(_delays(PROMPTS, together=True))
    return [Row("prompts-p95", delays[round(0.95 * PROMPTS)], alone)]


def _delays(number: int, *, together: bool) -> list[float]:
    """The milliseconds from each decision to its tool, with all prompts waiting at once or one after the other."""
    verdict = evaluate([parse_rule({"on": "tool", "do": "ask"}, "Ask.", "f", "")], RuledAction("tool", tool="Bash"))
    answered: dict[int, float] = {}
    decided: dict[int, float] = {}
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory() as directory:
        space = clia.init(Path(directory).resolve() / "space", settings=clia.Settings(durable=False))
        for agent in range(AGENTS):
            space.spawn(f"agent-{agent}", clia.Briefing(title="Work"))

        def ask(call: int) -> None:
            fields = {
                "session_id": f"{call}",
                "tool_name": "Bash",
                "tool_input": {"command": f"{call}"},
                "tool_use_id": f"toolu_{call}",
            }
            prompted = PromptedCall("claude-code", "PreToolUse", fields, f"agent-{call % AGENTS}")
            PermissionPrompt(space, prompted, verdict, 60.0).answer(600.0, write_end)
            answered[call] = time.monotonic()

        for group in [range(number)] if together else [[call] for call in range(number)]:
            threads = [threading.Thread(target=ask, args=(call,)) for call in group]
            for thread in threads:
                thread.start()
            while len(waiting := space.pending()) < len(group):
                time.sleep(0.05)
            for request in waiting:
                space.decide(request.agent, "allow", request_id=request.id)
                decided[int(request.payload["command"])] = time.monotonic()
            for thread in threads:
                thread.join()
        space.close()
    os.close(read_end)
    os.close(write_end)
    return [max(0.0, answered[call] - decided[call]) * 1000 for call in range(number)]
