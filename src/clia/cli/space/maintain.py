"""``clia maintain``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, space_of, working
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "--archive-idle",
        type=int,
        metavar="DAYS",
        help="archive agents that did nothing for so long and whose work was merged or landed",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, working(args, "Packing"):
        done = space.maintain(archive_idle_days=args.archive_idle, dry_run=args.dry_run)
    if args.json:
        emit_json({**as_json(done), "dry_run": args.dry_run})
        return 0
    from rich.filesize import decimal  # only people see it

    if args.archive_idle is not None:
        write(f"{'would archive' if args.dry_run else 'archived'}: {', '.join(done.archived) or 'no agent'}\n")
    if args.dry_run:
        write(f"objects take {decimal(done.before)}; nothing was changed\n")
    else:
        write(f"objects took {decimal(done.before)}, now {decimal(done.after)}\n")
    return 0
