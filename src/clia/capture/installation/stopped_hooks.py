"""Hooks in settings that do not run clia, or not in time, although they seem to be installed.

A hook that is commented out does nothing. An asynchronous one lets the tool continue before its event is in the spool, so events
lose their order and files their authors. One without time is killed. A settings file with a syntax error is ignored by its tool.
"""

from __future__ import annotations

import json
import re

from clia.capture.installation.findings import ERROR, WARNING, HookFinding
from clia.capture.installation.hook_tools import commented_events, placed_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.capture.installation.hook_tools import HookTool
    from clia.errors import CliaError

_TOKENS = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def stopped_hooks(tool: HookTool, scope: str, path: str, settings: Mapping[str, Any]) -> Iterator[HookFinding]:
    """The hooks of a settings file that do not run clia, or not in time."""
    again = f"clia hook install {tool.name} --scope {scope}"
    commented = commented_events(settings, tool)
    if commented:
        message = f"{path} has hooks that no longer run clia, because they are commented out: {', '.join(commented)}"
        yield HookFinding("hooks-commented-out", ERROR, tool.name, message, f"take them out, then: {again}")
    flaws = [(placed.flaw, placed.event) for placed in placed_in(settings) if placed.hook.tool == tool.name]
    late, killed = (list(dict.fromkeys(event for flaw, event in flaws if flaw == kind)) for kind in ("async", "timeout"))
    if late:
        message = f"{path} has asynchronous hooks: {tool.title} continues before their event is stored: {', '.join(late)}"
        yield HookFinding("hooks-asynchronous", WARNING, tool.name, message, f"{again} replaces them")
    if killed:
        message = (
            f"{path} gives hooks less than a second: {tool.title} can kill them before their event is stored: {', '.join(killed)}"
        )
        yield HookFinding("hooks-without-time", ERROR, tool.name, message, f"{again} replaces them")


def broken_settings(tool: HookTool, data: bytes, error: CliaError) -> HookFinding | None:
    """A settings file that no tool can read; None if it may have comments only, which some tools accept."""
    text = _LAST_COMMA.sub(r"\1", _TOKENS.sub(r"\1", data.decode("utf-8-sig", "replace")))
    try:
        json.loads(text)
    except ValueError:
        message = f"{error.message}: {tool.title} cannot read it either, and runs none of its hooks"
        hint = f"correct the file, or restore it from git; then: clia hook install {tool.name}"
        return HookFinding("settings-broken", ERROR, tool.name, message, hint)
    return None
