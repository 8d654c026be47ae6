"""``clia flow check``."""

from __future__ import annotations

from clia.cli.arguments import add_json
from clia.cli.output import emit_json, one_line, write
from clia.cli.sessions.common import source_text
from clia.cli.sessions.problems import ERROR, count, show_problems

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("file", metavar="FILE", help="the source of a flow ('-': standard input)")
    parser.add_argument("--no-types", action="store_true", help="leave the types unchecked")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where there is an error."""
    source = source_text(args.file, "source")
    from clia.sessions.flows import check_flow  # the engine: a hundred milliseconds

    problems = check_flow(source, types=not args.no_types)
    works = not any(each.severity == ERROR for each in problems)
    if args.json:
        emit_json({"file": args.file, "works": works, "problems": [each._asdict() for each in problems]})
    else:
        show_problems(problems, source, args.file)
        write(f"{one_line(args.file)}: {count(problems)}\n")
    return 0 if works else 1
