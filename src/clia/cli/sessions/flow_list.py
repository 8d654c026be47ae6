"""``clia flow list``."""

from __future__ import annotations

from clia.cli.output import emit_json, write
from clia.cli.sessions.flow_define import flow_json
from clia.cli.space.common import add_space, moment, short, show_table, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.flows()
    if args.json:
        emit_json([flow_json(each) for each in found])
    elif found:
        rows = [
            (each.name, short(each.cid), len(each.versions), each.why.split("\n")[0], each.by, moment(each.at)) for each in found
        ]
        show_table(("flow", "id", "versions", "why", "by", "when (UTC)"), rows)
    else:
        write("no flows yet; define one: clia flow define NAME FILE\n")
    return 0
