"""Playing a script.

Invariant: steps run in order, and parallel sub-agents take turns. Playing ends in one of four ways: the script's end,
``stop_after``, a crash, or an error that names the step. The events so far are always reported.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import NamedTuple

from clia.capture.rehearsal.claude_code import ClaudeCode
from clia.capture.rehearsal.codex import Codex
from clia.capture.rehearsal.gemini import Gemini
from clia.capture.rehearsal.script import ScriptError
from clia.capture.rehearsal.stage import Stage, Stopped, job_of, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.capture.rehearsal.script import ScriptStep
    from clia.capture.rehearsal.stage import Actor, RehearsedTool, Setting, ToolUse

TOOLS: Mapping[str, type[RehearsedTool]] = {"claude-code": ClaudeCode, "codex": Codex, "gemini": Gemini}
_WORK = ("read", "write", "edit", "bash", "fail")


class _Crash(Exception):
    """The script asks for the tool to be killed."""


class Played(NamedTuple):
    """The result. ``ended``: ``done``, ``stopped`` or ``crashed``; the caller carries out the crash."""

    ended: str
    told: dict[str, Any]


def play(setting: Setting, steps: Sequence[ScriptStep]) -> Played:
    """Play a parsed script; ``ScriptError`` if a step cannot be played."""
    stage = Stage(setting)
    tool = TOOLS[setting.tool](stage)
    ended = "done"
    try:
        if not steps or steps[0].verb not in ("resume", "fork"):
            tool.start("startup")
        _play_all(tool, steps)
        stage.release()
    except Stopped:
        ended = "stopped"
    except _Crash:
        ended = "crashed"
    return Played(ended, _told(tool, ended))


def rehearsed(setting: Setting) -> bool:
    """Whether a session of this tool and seed was played here before."""
    return os.path.exists(TOOLS[setting.tool](Stage(setting)).main.transcript)


def _told(tool: RehearsedTool, ended: str) -> dict[str, Any]:
    setting = tool.stage.setting
    agents = [{"id": each.id, "type": each.type, "transcript": each.transcript} for each in tool.agents]
    return {
        "tool": setting.tool,
        "version": tool.version,
        "seed": setting.seed,
        "session": tool.session,
        "sessions": tool.sessions,
        "directory": setting.directory,
        "home": setting.home,
        "transcript": tool.main.transcript,
        "agents": agents,
        "ended": ended,
        "events": tool.stage.events,
    }


def _play_all(tool: RehearsedTool, steps: Sequence[ScriptStep]) -> None:
    waiting: list[ScriptStep] = []
    for step in steps:
        if waiting and not _parallel(step):
            _play_team(tool, waiting)
            waiting = []
        if _parallel(step):
            waiting.append(step)
        else:
            _play_one(tool, tool.main, step)
    if waiting:
        _play_team(tool, waiting)


def _parallel(step: ScriptStep) -> bool:
    return step.verb == "subagent" and bool(step.more.get("parallel"))


def _play_team(tool: RehearsedTool, team: Sequence[ScriptStep]) -> None:
    """Play parallel sub-agents, one step each in turn."""
    asked = [tool.delegate(step.value, step.more["task"], step.more.get("about", step.value)) for step in team]
    tool.stage.step_done()
    for use, child in asked:
        tool.launch(use, child)
    left = {child.id: len(step.steps) for step, (_, child) in zip(team, asked, strict=True)}
    _leave(tool, asked, left)
    for turn in zip_longest(*(step.steps for step in team)):
        for (use, child), step in zip(asked, turn, strict=True):
            if step is not None:
                _play_one(tool, child, step)
                left[child.id] -= 1
                _leave(tool, [(use, child)], left)
    tool.gather([child for _, child in asked])


def _leave(tool: RehearsedTool, asked: Sequence[tuple[ToolUse, Actor]], left: Mapping[str, int]) -> None:
    for use, child in asked:
        if not left[child.id]:
            tool.settle(use, child)


def _play_one(tool: RehearsedTool, who: Actor, step: ScriptStep) -> None:
    stage = tool.stage
    if step.verb in ("miss", "truncated", "lag"):
        name = {"miss": "missing", "truncated": "truncating", "lag": "lagging"}[step.verb]
        setattr(stage, name, step.value)
        return  # such a step does not count for ``lag``
    if step.verb == "crash":
        raise _Crash
    if step.verb in _WORK:
        _do(tool, who, step)
    elif step.verb == "subagent":
        _play_team(tool, [step])
    else:
        _act(tool, who, step)
    stage.step_done()


def _do(tool: RehearsedTool, who: Actor, step: ScriptStep) -> None:
    setting = tool.stage.setting
    job = job_of(step, setting.directory)
    use = tool.call(who, job)
    outcome = perform(job, setting.directory, setting.environment)
    if step.verb == "fail" and outcome.ok:
        raise ScriptError(step.where, f"{step.value!r} was to fail, and did not")
    tool.result(who, use, job, outcome)


def _act(tool: RehearsedTool, who: Actor, step: ScriptStep) -> None:
    value = step.value
    acts = {
        "prompt": lambda: tool.prompt(value),
        "say": lambda: tool.say(who, value),
        "think": lambda: tool.think(who, value),
        "stop": lambda: tool.stop("" if value is True else value),
        "compact": lambda: tool.compact(value, step.more.get("summary", "What was done so far.")),
        "end": lambda: tool.end(value),
        "resume": lambda: _again(tool, step),
        "fork": lambda: _again(tool, step),
        "unknown-event": lambda: tool.unknown_event(value, step.more.get("fields", {})),
        "unknown-line": lambda: tool.unknown_line(who, value),
    }
    acts[step.verb]()


def _again(tool: RehearsedTool, step: ScriptStep) -> None:
    if not os.path.exists(tool.main.transcript):
        raise ScriptError(step.where, f"there is no session to {step.verb}: {tool.main.transcript} is not there")
    if step.verb == "fork" and not tool.forks:
        raise ScriptError(step.where, f"{tool.stage.setting.tool} forks no sessions")
    tool.stage.run = step.value
    tool.resumed()
    if step.verb == "fork":
        tool.fork()
    else:
        tool.start("resume")
