"""A program that behaves as a coding agent with hooks: it runs ``clia hook claude-code`` for each step, and changes files.

``python scripted_tool.py CLIA SESSION TURNS CALLS``: each turn makes that many calls at the same time, and each call writes a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class ScriptedTool:
    def __init__(self, clia: str, session: str) -> None:
        self._clia = clia
        self._fields = {"session_id": session, "transcript_path": "", "cwd": os.getcwd()}

    def start(self, event: str, **fields: Any) -> subprocess.Popen[bytes]:
        """Start the hook of an event."""
        hook = subprocess.Popen([self._clia, "hook", "claude-code"], stdin=subprocess.PIPE)
        assert hook.stdin is not None
        hook.stdin.write(json.dumps({**self._fields, "hook_event_name": event, **fields}).encode())
        hook.stdin.close()
        return hook

    def fire(self, event: str, **fields: Any) -> None:
        assert self.start(event, **fields).wait() == 0

    def turn(self, turn: int, calls: int) -> None:
        self.fire("UserPromptSubmit", prompt=f"turn {turn}")
        inputs = {f"t{turn}-{call}": {"command": f"write {turn}-{call}"} for call in range(calls)}
        for event in ("PreToolUse", "PostToolUse"):
            hooks = [
                self.start(event, tool_name="Bash", tool_use_id=key, tool_input=given, tool_response={"stdout": key})
                for key, given in inputs.items()
            ]
            assert [hook.wait() for hook in hooks] == [0] * calls
            if event == "PreToolUse":
                for key in inputs:
                    Path(f"{key}.txt").write_text(f"{key}\n")
        self.fire("Stop", stop_hook_active=False)

    def delegate(self) -> None:
        """A turn in which a sub-agent writes a file."""
        fields = {"agent_id": "a1b2c3d4", "agent_type": "general-purpose"}
        self.fire("UserPromptSubmit", prompt="delegate")
        self.fire("SubagentStart", **fields)
        written = {"file_path": os.path.abspath("sub.txt")}
        self.fire("PreToolUse", tool_name="Write", tool_use_id="sub", tool_input=written, **fields)
        Path("sub.txt").write_text("sub\n")
        self.fire("SubagentStop", stop_hook_active=False, agent_transcript_path="", **fields)
        self.fire("Stop", stop_hook_active=False)


def main() -> None:
    clia, session, turns, calls = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    tool = ScriptedTool(clia, session)
    Path("before.txt").write_text("before\n")
    tool.fire("SessionStart", source="startup")
    for turn in range(1, turns + 1):
        tool.turn(turn, calls)
        if turn == 1 and "sub-agent" in sys.argv:
            tool.delegate()
    tool.fire("SessionEnd", reason="other")
    Path("after.txt").write_text("after\n")
    sys.stdout.write("tool ended\n")


if __name__ == "__main__":
    main()
