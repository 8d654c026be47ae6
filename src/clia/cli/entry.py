"""The entry point of the installed programs.

Invariant: a hook loads no parser and no other command, and exits with code 0, because a failure would stop the tool.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run() -> int:
    name = os.path.basename(sys.argv[0])
    is_clia = name == "clia-agent-cli" or not name.endswith("-agent-cli")  # the program of an identity has other commands
    if sys.argv[1:2] == ["hook"] and _is_event(sys.argv[2:]) and is_clia:
        try:
            from clia.capture.hook import record

            record(sys.argv[2])
        finally:
            # Skip interpreter shutdown, which costs time and could change the exit code.
            os._exit(0)
    from clia.cli.main import entry_point

    return entry_point()


def _is_event(words: Sequence[str]) -> bool:
    """Whether this is an event of a tool: ``clia hook TOOL``. An unknown tool may come from the settings of a newer version."""
    if not words or words[0].startswith("-") or "-h" in words or "--help" in words:
        return False
    from clia.capture.hook import TOOLS

    if words[0] in TOOLS:
        return True
    from clia.cli.registry import TREE, Group

    group = TREE.commands.get("hook")
    return not (isinstance(group, Group) and words[0] in group.commands)
