"""``clia behaviour add``."""

from __future__ import annotations

from clia.cli.behaviours.common import (
    add_kind,
    changed_line,
    explaining,
    last_event,
    note_unfilled,
    version_json,
    written_in,
)
from clia.cli.output import console, emit_json
from clia.cli.sessions.common import add_why
from clia.cli.space.common import add_space, require_person, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="the behaviour's name; a new one is made")
    parser.add_argument("file", metavar="FILE", help="the body: a prompt's text, or a flow's source ('-': standard input)")
    add_kind(parser)
    add_why(parser)
    parser.add_argument("--notes", default="", metavar="TEXT", help="what there is to know of this version; kept with it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    require_person(f"propose it instead: clia behaviour propose {args.name} --from FILE --agent AGENT")
    with space_of(args) as space:
        before = last_event(space, args.name)
        body, kind, why = written_in(args, args.file, space)
        with explaining(args, body, args.file):
            made = space.add_behaviour(args.name, body, kind, why=why, notes=args.notes)
        changed = last_event(space, args.name) != before
    if args.json:
        emit_json({**version_json(made), "changed": changed})
    else:
        said = f"is the current version of this {made.kind}" if changed else "as it was: nothing is written"
        console().print(changed_line(made, said), soft_wrap=True)
        note_unfilled(made)
    return 0
