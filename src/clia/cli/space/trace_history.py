"""``clia trace history``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, moment, short, show_table, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("commit", metavar="COMMIT", help="the commit, or an agent for its newest")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        commit = space.find(args.commit)
        found = space.trace_history(commit)
    if args.json:
        emit_json(as_json(found))
    elif found:
        rows = (
            (short(each.notes_commit), short(each.trace) or "none", moment(each.by.at), each.by.name, each.message)
            for each in found
        )
        show_table(("notes commit", "trace", "when", "by", "why"), rows)
    else:
        write(f"no trace was ever bound to {commit}\n")
    return 0
