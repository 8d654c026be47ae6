"""``clia ingest``: what hooks put down becomes agents, traces and commits."""

from __future__ import annotations

import os
import sys

from clia.cli.findings import progress
from clia.cli.output import console, emit_json, one_line, show_error, write
from clia.cli.space.common import add_space, settings_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.capture.recording import IngestCounts


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--quiet", action="store_true", help="say nothing, and leave it to another process that is at it already")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.capture.ingest import ingest  # with git and the store: a tenth of a second
    from clia.facade.opening import open_space

    settings = settings_of(args)
    with open_space(args.path, settings=settings) as space:
        if args.quiet:
            return 1 if ingest(space, settings, os.environ, wait=False).trouble else 0
        with progress("Reading events", wanted=not args.json) as watch:
            told = None if watch is None else lambda done, total: watch(done, total, "")
            made = ingest(space, settings, os.environ, progress=told)
    if args.json:
        emit_json(as_json(made.done) | {"trouble": [each.to_json() for each in made.trouble]})
    else:
        write(f"{one_line(summary(made.done))}\n")
        for each in made.trouble:
            show_error(each, as_json=False)
        if made.done.rejected:
            console(stderr=True).print("some events could not be understood; clia doctor says which, and why", style="yellow")
    sys.stdout.flush()
    return 1 if made.trouble else 0


_WORDS = (
    ("events", "event", "events"),
    ("entries", "trace entry", "trace entries"),
    ("agents", "new agent", "new agents"),
    ("sub_agents", "new sub-agent", "new sub-agents"),
    ("commits", "commit", "commits"),
    ("merges", "merge", "merges"),
    ("rejected", "event put aside", "events put aside"),
    ("left", "event waiting", "events waiting"),
)


def summary(done: IngestCounts) -> str:
    """What was done, in one line."""
    found = [(getattr(done, name), one, many) for name, one, many in _WORDS]
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in found if count) or "nothing to ingest"
