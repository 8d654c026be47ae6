"""``clia doctor``: what clia runs on, and everything that ``clia agents doctor`` says."""

from __future__ import annotations

import os

from clia import __version__
from clia.cli.agents.doctor import show_report
from clia.cli.arguments import add_json, add_path
from clia.cli.output import console, counted, emit_json, one_line, plain
from clia.triads.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.app.checks import Health, SpaceHealth


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_path(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where there is an error."""
    from clia.app.checks import health

    found = health(args.path, environment=os.environ, ceiling=args.ceiling, store=os.environ.get("CLIA_STORE") or None)
    if args.json:
        emit_json({"clia": __version__, **found.to_json()})
    else:
        _show(found)
        show_report(found.agents)
    broken = found.space is not None and found.space.error is not None
    return 1 if broken or has_errors(found.agents.all_findings()) else 0


def _show(found: Health) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    rows = (
        ("clia", __version__, True),
        ("python", found.python, True),
        ("git", found.git or "not found: the past of repositories cannot be checked", found.git is not None),
        ("path", found.agents.path, True),
        ("repository", found.agents.repository or "none: the path lies in no repository", found.agents.repository is not None),
        _space_row(found.space),
    )
    for name, value, good in rows:
        table.add_row(Text("✓" if good else "!", style="green" if good else "yellow"), name, Text(plain(value)))
    console().print(table)


def _space_row(space: SpaceHealth | None) -> tuple[str, str, bool]:
    if space is None:
        return "space", "none: clia init makes a repository one", True  # a repository need not be one
    if space.error is not None:
        return "space", one_line(f"{space.error.code}: {space.error.message}"), False
    return "space", f"{space.id}, {counted(space.agents, 'agent', 'agents')} at work", True
