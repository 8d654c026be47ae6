"""``clia behaviour retire``."""

from __future__ import annotations

from clia.cli.behaviours.common import add_expect, changed_line, last_event, version_json
from clia.cli.output import console, emit_json
from clia.cli.sessions.common import add_why
from clia.cli.space.common import add_space, message_of, require_person, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="which behaviour")
    parser.add_argument(
        "version", nargs="?", metavar="CID", help="which version, by its id or its start (default: the current one)"
    )
    add_expect(parser)
    add_why(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    require_person(f"propose a better one: clia behaviour propose {args.name} --from FILE --agent AGENT")
    with space_of(args) as space:
        before = last_event(space, args.name)
        made = space.retire_behaviour(args.name, args.version, expect=args.expect, why=message_of(args))
        changed = last_event(space, args.name) != before
        current = space.behaviour(args.name).current
    if args.json:
        emit_json({**version_json(made), "changed": changed, "current": current})
    else:
        said = "starts no more" if changed else "was retired already: nothing is written"
        nothing = "" if current else f"; {args.name} has no current version now: clia behaviour adopt {args.name} CID"
        console().print(changed_line(made, said + nothing), soft_wrap=True)
    return 0
