"""``clia rebuild``."""

from __future__ import annotations

from clia.cli.findings import progress
from clia.cli.output import counted, emit_json, write
from clia.cli.space.common import add_space, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, progress("Reading git", wanted=not args.json) as watch:
        edges = space.rebuild(progress=None if watch is None else lambda done, total: watch(done, total, ""))
        known = not args.json and bool(space.behaviours())
    if args.json:
        emit_json({"edges": edges})
    else:
        write(f"the index was made anew: {counted(edges, 'relation', 'relations')}\n")
        if known:
            write("what was observed of behaviours was read anew, too\n")
    return 0
