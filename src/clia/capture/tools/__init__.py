"""The supported tools: a module each, with ``NAME``, ``PREFIX``, ``from_hook``, ``from_line`` and ``owner``, or a row of a table.

``from_sub_line`` (default: ``from_line``) parses a line of a sub-agent's transcript, ``sub_label`` names a sub-agent by a line of
it, and ``sub_folder`` is where the transcripts of a session's sub-agents are.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.capture.tools import claude_code, claude_family, codex, gemini
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
    owner: Callable[[Mapping[str, Any]], tuple[str, str]]  # the session that a transcript line names, and its directory
    from_sub_line: Callable[[Mapping[str, Any]], list[ToolEvent]]
    sub_label: Callable[[Mapping[str, Any]], str]
    sub_folder: Callable[[str, str], tuple[str, str]]  # of a transcript and a session: the folder, and the files' prefix


def _reader(tool: Any) -> ToolReader:
    name, prefix = (tool.NAME, tool.PREFIX) if hasattr(tool, "NAME") else (tool.name, tool.prefix)
    from_sub_line = getattr(tool, "from_sub_line", tool.from_line)
    sub_label, sub_folder = getattr(tool, "sub_label", lambda _: ""), getattr(tool, "sub_folder", lambda *_: ("", ""))
    return ToolReader(name, prefix, tool.from_hook, tool.from_line, tool.owner, from_sub_line, sub_label, sub_folder)


TOOLS = {reader.name: reader for reader in map(_reader, (claude_code, codex, gemini, *claude_family.TOOLS))}


def tool_of(name: str) -> ToolReader:
    tool = TOOLS.get(name)
    if tool is None:
        raise InvalidInput(
            f"{name!r} is not a supported tool", code="unknown-tool", hints=[f"known: {', '.join(TOOLS)}"], fields={"tool": name}
        )
    return tool
