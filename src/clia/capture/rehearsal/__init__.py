"""Rehearsals: scripted sessions of a coding tool, for tests, demos and trying things out.

Invariant: a rehearsal changes the working directory, writes the transcript and sends the hook events as the tool would; it runs
no git command. The same seed and script give the same ids, texts and files; only times and paths differ. Steps run in order, and
parallel sub-agents take turns. Like a hook, it loads only this package, the hook's module and the standard library.
"""

from __future__ import annotations

import os
from itertools import groupby

from clia.capture import hook
from clia.capture.rehearsal.claude_code import ClaudeCode
from clia.capture.rehearsal.codex import Codex
from clia.capture.rehearsal.gemini import Gemini
from clia.capture.rehearsal.script import ScriptError, parse, story
from clia.capture.rehearsal.stage import Setting, Stage, Stopped, job_of, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.capture.rehearsal.script import ScriptStep
    from clia.capture.rehearsal.stage import Actor

    Tool = ClaudeCode | Codex | Gemini

__all__ = ["TOOLS", "ScriptError", "Setting", "parse", "play", "rehearsed", "story"]


class _SimilarTool(ClaudeCode):
    """A tool that also understands the events of Claude Code."""

    version = "as Claude Code"


TOOLS: Mapping[str, type[ClaudeCode | Codex | Gemini]] = {
    **dict.fromkeys(hook.TOOLS, _SimilarTool),
    "claude-code": ClaudeCode,
    "codex": Codex,
    "gemini": Gemini,
}


class _ScriptedCrash(Exception):
    """The script asks for the tool to be killed."""


def play(setting: Setting, steps: Sequence[ScriptStep]) -> dict[str, Any]:
    """Play a parsed script and report what happened; ``ScriptError`` if a step cannot be played.

    ``ended`` of the report is ``done``, ``stopped`` or ``crashed``; the caller carries out the crash.
    """
    stage = Stage(setting)
    tool = TOOLS[setting.tool](stage)
    ended = "done"
    try:
        if not steps or steps[0].verb not in ("resume", "fork"):
            tool.start("startup")
        for parallel, group in groupby(steps, lambda step: bool(step.more.get("parallel"))):
            if parallel:
                _play_team(tool, list(group))
            else:
                for step in group:
                    _play_step(tool, tool.main, step)
        stage.release()
    except Stopped:
        ended = "stopped"
    except _ScriptedCrash:
        ended = "crashed"
    return {
        "tool": setting.tool,
        "version": tool.version,
        "seed": setting.seed,
        "session": tool.session,
        "sessions": tool.sessions,
        "directory": setting.directory,
        "home": setting.home,
        "transcript": tool.main.transcript,
        "agents": [{"id": agent.id, "type": agent.type, "transcript": agent.transcript} for agent in tool.agents],
        "ended": ended,
        "events": stage.events,
    }


def rehearsed(setting: Setting) -> bool:
    """Whether a session of this tool and seed was played here before."""
    return os.path.exists(TOOLS[setting.tool](Stage(setting)).main.transcript)


def _play_team(tool: Tool, team: Sequence[ScriptStep]) -> None:
    """Play parallel sub-agents, one step each in turn."""
    started = [tool.delegate(step.value, step.more["task"], step.more.get("about", step.value)) for step in team]
    tool.stage.step_done()
    for use, child in started:
        tool.launch(use, child)
    for turn in range(-1, max(len(step.steps) for step in team)):  # -1: sub-agents without steps end at once
        for step, (use, child) in zip(team, started, strict=True):
            if 0 <= turn < len(step.steps):
                _play_step(tool, child, step.steps[turn])
            if turn == len(step.steps) - 1:
                tool.settle(use, child)
    if isinstance(tool, Codex):
        tool.gather([child for _, child in started])


def _play_step(tool: Tool, actor: Actor, step: ScriptStep) -> None:
    match step.verb:
        case "miss" | "truncated" | "lag":
            tool.stage.faults[step.verb] = step.value
            return  # such a step does not count for ``lag``
        case "crash":
            raise _ScriptedCrash
        case "read" | "write" | "edit" | "bash" | "fail":
            _use_tool(tool, actor, step)
        case "subagent":
            _play_team(tool, [step])
        case "resume" | "fork":
            _restart(tool, step)
        case "unknown-event":
            hook = {**tool.base(step.value), **step.more.get("fields", {})}
            tool.stage.happen("note", text=step.value, hook=hook, session=tool.session)
        case "unknown-line":
            tool.stage.happen("line", actor.id, lines=[(actor.transcript, step.value)], session=tool.session)
        case _:
            _converse(tool, actor, step)
    tool.stage.step_done()


def _converse(tool: Tool, actor: Actor, step: ScriptStep) -> None:
    match step.verb:
        case "prompt":
            tool.prompt(step.value)
        case "say":
            tool.say(actor, step.value)
        case "think":
            tool.think(actor, step.value)
        case "stop":
            tool.stop("" if step.value is True else step.value)
        case "compact":
            tool.compact(step.value, step.more.get("summary", "What was done so far."))
        case "end":
            tool.end(step.value)


def _use_tool(tool: Tool, actor: Actor, step: ScriptStep) -> None:
    setting = tool.stage.setting
    job = job_of(step, setting.directory)
    use = tool.call(actor, job)
    outcome = perform(job, setting.directory, setting.environment)
    if step.verb == "fail" and outcome.ok:
        raise ScriptError(step.where, f"{step.value!r} did not fail as expected")
    tool.result(actor, use, job, outcome)


def _restart(tool: Tool, step: ScriptStep) -> None:
    if not os.path.exists(tool.main.transcript):
        raise ScriptError(step.where, f"no session to {step.verb}: {tool.main.transcript} does not exist")
    tool.stage.run = step.value
    tool.turn = tool.prompt_text = ""
    if step.verb == "resume":
        tool.start("resume")
    elif isinstance(tool, Gemini):
        raise ScriptError(step.where, "gemini does not support forks")
    else:
        tool.fork()
