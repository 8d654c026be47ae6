"""``clia hook install``: the settings of tools, so that each of their events runs ``clia hook``.

Invariant: what will change is shown before anything is written; a second run changes nothing.
"""

from __future__ import annotations

import os

from clia.cli.hooks.common import add_hooks, carry_out, this_program
from clia.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.capture.hook_settings import SettingsFile
    from clia.capture.hook_tools import HookTool


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_hooks(parser, "those whose folder or program is found")
    parser.add_argument("--mcp", action="store_true", help="also give the tools clia's MCP server")


def run(args: argparse.Namespace) -> int:
    from clia.capture.hook_settings import install, target
    from clia.capture.hook_tools import tool_named

    where = target(args.scope, args.path, os.environ)
    tools = [tool_named(name) for name in dict.fromkeys(args.tools)] or _found(where)
    plan = install(tools, where, this_program(), mcp=args.mcp)
    return carry_out(args, plan, f"installed already: {', '.join(each.title for each in tools)}")


def _found(where: SettingsFile) -> list[HookTool]:
    import shutil

    from clia.capture.hook_settings import tools_here
    from clia.capture.hook_tools import TOOLS

    found = tools_here(where, [each.program for each in TOOLS.values() if shutil.which(each.program)])
    if not found:
        known = ", ".join(f"{each.name} ({each.title})" for each in TOOLS.values() if where.scope in each.files)
        raise NotFound("no tool was found that clia knows", code="no-tool-found", hints=[f"name one: {known}"])
    return found
