"""``clia agents init``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_target, where
from clia.cli.output import console, emit_json, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    parser.add_argument("slug", nargs="?" if slug else None, default=slug, help="the new agent; `root` makes the root directives")
    parser.add_argument("--title", help="what people call it")
    parser.add_argument("--role", help="what it is")
    parser.add_argument("--purpose", help="what it is for")
    parser.add_argument("--guardrail", action="append", default=[], metavar="TEXT", help="a rule it must keep; may be repeated")
    parser.add_argument(
        "--inherits", action="append", default=[], metavar="FILE", help="a document it builds on (default: the root directives)"
    )
    parser.add_argument("--operator", action="store_true", help="a person's profile, whose approvals count")
    add_target(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.writing import NewIdentity, init

    wishes = NewIdentity(args.title, args.role, args.purpose, args.guardrail, args.inherits, args.operator)
    created = init(args.slug, wishes, where(args))
    if args.json:
        emit_json({"slug": args.slug, "created": created})
    else:
        for path in created:
            console().print(plain(f"created {path}"), soft_wrap=True)
    return 0
