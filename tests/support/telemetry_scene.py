"""A small space with everything that an export includes; ``MARK`` is in every text by an agent or a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support.session_flows import APPROVAL, PRODUCT
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

MARK = "blue-harbour"
TOOL_SESSION = "0b1c2d3e-0000-4000-8000-000000000001"


def scene(root: Path) -> clia.Space:
    """``scout`` is captured from a tool and has a sub-agent. ``lead`` has two sessions, an aide spawned in the first, and ``twin``,
    whose session is a fork of the first."""
    space = clia.init(root, settings=settings())
    captured = {"tool": "claude-code", "session": TOOL_SESSION, "model": "claude-model"}
    space.spawn("scout", clia.Briefing(f"Look {MARK}", MARK, meta=captured))
    space.trace("scout", "prompt", f"find the {MARK}")
    _tool(space, "scout", "tool-call", "Bash", "t1", input={"command": f"grep {MARK}"})
    _tool(space, "scout", "tool-call", "Read", "t2", input={"path": MARK})
    _tool(space, "scout", "tool-result", "Bash", "t1")
    _tool(space, "scout", "tool-failure", "Edit", "t3")
    space.commit_with_trace("scout", "finding", changes={"a.txt": b"a\n"}, message=f"Found {MARK}")
    space.spawn_from("helper", clia.Briefing(MARK, MARK), "scout")
    _tool(space, "helper", "tool-call", "Write", "t1", input=MARK)
    _tool(space, "helper", "tool-failure", "Write", "t1")
    space.commit_with_trace("helper", "test", changes={"b.txt": b"b\n"}, message=MARK)
    space.trace("scout", "said", f"there is {MARK} é")
    _sessions(space)
    return space


def _sessions(space: clia.Space) -> None:
    space.spawn("lead", clia.Briefing(MARK, MARK))
    space.sessions.define("approval", APPROVAL)
    space.sessions.define("product", PRODUCT)
    space.trace("lead", "console", f"before {MARK}")
    space.start("lead", "approval", {"goal": MARK})
    answer = {"text": MARK, "model": "m-1", "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
    space.resume("lead", answer)
    space.spawn_from("aide", clia.Briefing(MARK, MARK), "lead")
    finding = space.commit("lead", "finding", changes={"c.txt": b"c\n"}, message=MARK)
    space.decide("lead", "approve", MARK)
    space.commit("lead", "refactor", changes={"c.txt": b"d\n"}, message=MARK)
    space.start("lead", "product", None)
    space.sessions.give_up("lead", MARK)
    space.fork("lead", "twin", finding)


def _tool(space: clia.Space, agent: str, kind: str, tool: str, call: str, **more: object) -> None:
    space.trace(agent, kind, f"{tool} {MARK}", data={"tool": tool, "id": call, **more})
