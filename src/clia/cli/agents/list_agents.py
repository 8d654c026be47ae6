"""``clia agents list``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_path
from clia.cli.output import console, emit_json, plain, show_diagnostics, write
from clia.identities.diagnostics import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.identities.roster import Roster


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug  # it is always about all agents seen here
    add_path(parser)
    parser.add_argument("--all", action="store_true", help="also root, templates and names with a leading underscore")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 2 where a document could not be used, as in every read; a directory that is no agent is only mentioned."""
    from clia.identities.checks import roster

    found = roster(args.path, ceiling=args.ceiling, everything=args.all)
    if args.json:
        emit_json(found.to_json())
    else:
        _show(found)
        show_diagnostics(found.diagnostics, as_json=False)
    return 2 if any(each.severity == ERROR and each.code != "invalid-slug" for each in found.diagnostics) else 0


def _show(found: Roster) -> None:
    if not found.agents:
        write(f"no agents at {plain(found.path)} or above; create one: clia agents init SLUG\n")
        return
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "agent", "title", "role", "status", "contexts", "directory"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "contexts" else "left")
    for each in found.agents:
        mark = " ".join(plain(part) for part in (each.emoji, each.badge) if part)
        facts = (each.title, each.role, each.status)
        shown = [Text(plain(fact or "")) for fact in facts]
        table.add_row(
            Text(mark), Text(plain(each.slug), style="bold"), *shown, str(each.contexts), Text(plain(each.directory), style="cyan")
        )
    console().print(table)
