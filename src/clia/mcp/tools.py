"""The one list of tools."""

from __future__ import annotations

from clia.mcp.behaviour_tools import BEHAVIOUR_TOOLS
from clia.mcp.decisions import DECISION_TOOLS
from clia.mcp.lineage_tools import LINEAGE_TOOLS
from clia.mcp.session_tools import SESSION_TOOLS
from clia.mcp.space_tools import SPACE_TOOLS

TOOLS = {tool.name: tool for tool in (*LINEAGE_TOOLS, *SPACE_TOOLS, *DECISION_TOOLS, *SESSION_TOOLS, *BEHAVIOUR_TOOLS)}
