"""What the installed programs run: the way in for a hook, and the one for everything else.

Invariant: for a hook no parser and no other command is loaded, and the exit code is 0: it is the tool's own step that would fail.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run() -> int:
    if sys.argv[1:2] == ["hook"] and _is_event(sys.argv[2:]) and not _is_agents_own():
        try:
            from clia.capture.hook import record

            record(sys.argv[2])
        finally:
            # Nothing that runs at an interpreter's end may have a say in the exit code, or take its time.
            os._exit(0)
    from clia.cli.main import entry_point

    return entry_point()


def _is_event(words: Sequence[str]) -> bool:
    """Whether a tool speaks: ``clia hook TOOL``. A tool that we do not know may be one of a newer version's settings."""
    if not words or words[0].startswith("-") or "-h" in words or "--help" in words:
        return False
    from clia.capture.hook import TOOLS

    if words[0] in TOOLS:
        return True
    from clia.cli.registry import TREE, Group

    group = TREE.commands.get("hook")
    return not (isinstance(group, Group) and words[0] in group.commands)


def _is_agents_own() -> bool:
    """Whether this is the program of one agent, which has commands of its own."""
    name = os.path.basename(sys.argv[0])
    return name.endswith("-agent-cli") and name != "clia-agent-cli"
