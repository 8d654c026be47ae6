"""``clia agents doctor``."""

from __future__ import annotations

import os

from clia.cli.arguments import add_json, add_path
from clia.cli.findings import count, show
from clia.cli.output import console, counted, emit_json, plain, write
from clia.identities.diagnostics import has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.identities.checks import DoctorReport, ExaminedIdentity


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug  # it is always about all agents seen here
    add_path(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where there is an error."""
    from clia.identities.checks import doctor

    report = doctor(args.path, environment=os.environ, ceiling=args.ceiling)
    if args.json:
        emit_json(report.to_json())
    else:
        show_report(report)
    return 1 if has_errors(report.all_findings()) else 0


def show_report(report: DoctorReport) -> None:
    """Agent by agent, then what belongs to no one agent."""
    for each in report.agents:
        _show_agent(each, report.path)
    if report.findings:
        show(report.findings, report.path)
    write(f"{counted(len(report.agents), 'agent', 'agents')} seen from {plain(report.path)}: {count(report.all_findings())}\n")


def _show_agent(agent: ExaminedIdentity, base: str) -> None:
    from rich.text import Text  # only people see it
    from rich.tree import Tree

    from clia.cli.cards import shorten

    head = Text.assemble((agent.slug, "bold"), f"  {plain(agent.title or '')}")
    head.append("" if agent.active else f"  {plain(agent.status)}, left alone by lint", style="yellow")
    tree = Tree(head, guide_style="dim")
    chain = tree.add(Text(f"chain ({agent.mode or 'its root chain cannot be used; this is the default one'})", style="dim"))
    for context in agent.chain:
        kinds = ", ".join(kind for kind, path in context.documents.items() if path)
        chain.add(Text.assemble((plain(context.prefix), "bold"), "  ", (plain(context.directory), "cyan"), (f"  {kinds}", "dim")))
    if agent.inherits:
        inherits = tree.add(Text("inherits", style="dim"))
        for each in agent.inherits:
            inherits.add(Text.assemble((shorten(each.path), "cyan"), (f"  ← {shorten(each.by)} ({each.document})", "dim")))
    console().print(tree)
    show(agent.findings, base)
