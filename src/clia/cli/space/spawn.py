"""``clia spawn``."""

from __future__ import annotations

from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_meta, add_redaction, add_space, meta_of, read_text, short, space_of
from clia.errors import InvalidInput, NoSuchObject
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.space.model import Spawned
    from clia.values.typed_objects import Briefing


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="the new agent: lower-case letters, digits and hyphens")
    parser.add_argument("-t", "--title", required=True, help="what it is to do, in a line")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("-b", "--text", metavar="TEXT", help="the briefing")
    text.add_argument("--file", metavar="FILE", help="a file with the briefing ('-': standard input)")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from", dest="from_", metavar="AGENT", help="start at another agent's head, as its sub-agent")
    start.add_argument("--at", metavar="COMMIT", help="start at any commit (default: your HEAD)")
    start.add_argument("--empty", action="store_true", help="start with no files")
    parser.add_argument("--parent", metavar="AGENT", help="with --at: whose sub-agent it is")
    parser.add_argument("--as", dest="slug", metavar="SLUG", help="whose profile it has (default: that of its name, if any)")
    parser.add_argument(
        "--behaviour", metavar="PROMPT", help="a prompt that makes the briefing, with the text as its task: a name or an id"
    )
    add_meta(parser)
    add_redaction(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.parent is not None and args.at is None:
        hints = ["--from AGENT starts at the parent's head"]
        raise InvalidInput("--parent goes with --at", code="invalid-option", hints=hints, fields={"option": "--parent"})
    text = read_text(args.file) if args.file is not None else args.text or ""
    meta = meta_of(args)
    with space_of(args) as space:
        made = _spawn(space, args, _briefing(space, args, text)._replace(meta=meta))
    if args.json:
        emit_json(as_json(made))
    else:
        _show(made)
    return 0


def _briefing(space: Space, args: argparse.Namespace, text: str) -> Briefing:
    """The text itself, or what a prompt makes of it."""
    from clia.values.typed_objects import Briefing

    if args.behaviour is None:
        return Briefing(args.title, text)
    return space.brief(args.behaviour, args.title, text, agent=args.name)


def _spawn(space: Space, args: argparse.Namespace, briefing: Briefing) -> Spawned:
    if args.from_ is not None:
        return space.spawn_from(args.name, briefing, args.from_, slug=args.slug)
    at = args.at
    if at is None and not args.empty:
        at = _head(space)
    if at is None:
        return space.spawn(args.name, briefing, slug=args.slug)
    return space.spawn_at(args.name, briefing, at, args.parent, slug=args.slug)


def _head(space: Space) -> str | None:
    """Where the person at work is: most want their code in it. None before the first commit."""
    try:
        return space.find("HEAD")
    except NoSuchObject:
        return None


def _show(made: Spawned) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    line = Text.assemble("spawned ", (made.agent, "bold"), " at ", (short(made.genesis), "yellow"), f", branch {made.branch}")
    terminal.print(line, soft_wrap=True)
    terminal.print(f"briefing {short(made.briefing)}" + (f", profile {short(made.profile)}" if made.profile else ""))
    terminal.print(Text(f"next: clia checkout {one_line(made.agent)} DIR", style="dim"), soft_wrap=True)
