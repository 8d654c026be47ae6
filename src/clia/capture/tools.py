"""The supported tools: one module each, with ``NAME``, ``PREFIX``, ``from_hook`` and ``from_line``."""

from __future__ import annotations

from typing import NamedTuple

from clia.capture import claude_code, codex, gemini
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.capture.events import HookReport, ToolEvent


class ToolReader(NamedTuple):
    name: str
    prefix: str  # prefix of its agents' names
    from_hook: Callable[[object], HookReport]
    from_line: Callable[[Mapping[str, Any]], list[ToolEvent]]


TOOLS = {tool.NAME: ToolReader(tool.NAME, tool.PREFIX, tool.from_hook, tool.from_line) for tool in (claude_code, codex, gemini)}


def tool_of(name: str) -> ToolReader:
    tool = TOOLS.get(name)
    if tool is None:
        raise InvalidInput(
            f"{name!r} is not a supported tool", code="unknown-tool", hints=[f"known: {', '.join(TOOLS)}"], fields={"tool": name}
        )
    return tool
