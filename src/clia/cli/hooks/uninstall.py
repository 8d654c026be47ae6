"""``clia hook uninstall``: takes out of tools' settings what ``clia hook install`` put in, and nothing else."""

from __future__ import annotations

import os

from clia.cli.hooks.common import add_hooks, carry_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_hooks(parser, "all")


def run(args: argparse.Namespace) -> int:
    from clia.capture.hook_settings import target, uninstall
    from clia.capture.hook_tools import TOOLS, tool_named

    where = target(args.scope, args.path, os.environ)
    every = [each for each in TOOLS.values() if args.scope in each.files]
    tools = [tool_named(name) for name in dict.fromkeys(args.tools)] or every
    return carry_out(args, uninstall(tools, where), f"nothing of clia is in the settings of scope {args.scope}")
