"""``clia agents smoke``."""

from __future__ import annotations

import os

from clia.cli.arguments import add_json, add_path
from clia.cli.findings import count, progress, relative, show
from clia.cli.output import console, emit_json, one_line, write
from clia.identities.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.identities.checks import ResolvedIdentity
    from clia.identities.lint import FindingsReport


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug  # it is always about all agents
    add_path(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where any agent does not resolve as it should."""
    from clia.identities.checks import smoke

    with progress("Resolving agents", wanted=not args.json) as watch:
        report = smoke(args.path, environment=os.environ, ceiling=args.ceiling, watch=watch)
    if args.json:
        emit_json(report.to_json())
    else:
        _show(report)
    return 1 if has_errors(report.findings) else 0


def _show(report: FindingsReport[ResolvedIdentity]) -> None:
    from rich.text import Text  # only people see it

    out = console()
    for each in report.agents:
        mark = ("ok  ", "green") if each.ok else ("FAIL", "bold red")
        contexts = f"{each.contexts} context{'' if each.contexts == 1 else 's'}"
        where = one_line(relative(each.directory, report.path))
        out.print(Text.assemble(mark, f"  {each.slug}  ", (f"{where}  {contexts}", "dim")), soft_wrap=True)
    show(report.findings, report.path)
    good = sum(each.ok for each in report.agents)
    write(f"{good} of {len(report.agents)} resolve: {count(report.findings)}\n")
