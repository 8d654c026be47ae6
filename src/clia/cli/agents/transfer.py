"""``clia agents transfer``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_slug, add_target, where
from clia.cli.output import console, counted, emit_json, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_slug(parser, slug)
    parser.add_argument("--to", required=True, metavar="DIR", help="an enclosing directory")
    parser.add_argument(
        "--entries",
        action="extend",
        nargs="+",
        default=[],
        metavar="ENTRY",
        help="sha256 (six digits or more), timestamp or its start, tag:NAME, or all (default: all)",
    )
    parser.add_argument("--apply", action="store_true", help="do it; without this, only say what would be done")
    add_target(parser, agents_dir=False)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.writing import transfer

    planned, copied = transfer(args.slug, args.to, args.entries, where(args), apply=args.apply)
    if args.json:
        emit_json({**planned.to_json(), "applied": args.apply, "copied": len(copied)})
        return 0
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=f"{planned.slug}: {counted(len(planned.entries), 'entry', 'entries')} to {plain(planned.target.directory)}",
        title_justify="left",
    )
    for heading in ("entry", "when", "what", ""):
        table.add_column(heading)
    for each in planned.to_json()["entries"]:
        state = "copied" if args.apply and each["new"] else "new" if each["new"] else "there already"
        table.add_row(each["sha256"][:12], Text(plain(each["timestamp"] or "")), Text(plain(each["summary"] or "")), state)
    out = console()
    out.print(table)
    out.print(plain(f"receipt: {planned.receipt}" if args.apply else "nothing was written; add --apply to do it"), soft_wrap=True)
    return 0
