"""``clia agents journal``."""

from __future__ import annotations

from clia.cli.arguments import add_json, add_slug, add_target, where
from clia.cli.output import console, emit_json, plain, show_diagnostics

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    add_slug(parser, slug)
    parser.add_argument("--note", required=True, metavar="TEXT", help="what happened")
    parser.add_argument("--tags", action="extend", nargs="+", default=[], metavar="TAG", help="tags, apart or joined by commas")
    parser.add_argument("--signature", default="auto", metavar="auto|SIG", help="who signs (default: the profile's signature)")
    parser.add_argument(
        "--dirs-touched", action="extend", nargs="+", default=[], metavar="DIR", help="directories the work touched"
    )
    parser.add_argument("--idempotency-key", metavar="KEY", help="the same key twice makes one entry")
    add_target(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.identities.journal import Note
    from clia.identities.writing import journal

    tags = [tag for word in args.tags for tag in word.split(",")]
    note = Note(args.note, tags, args.signature, args.dirs_touched, args.idempotency_key)
    done, found = journal(args.slug, note, where(args))
    if args.json:
        emit_json(done.to_json())
    else:
        what = "appended to" if done.appended else "already in"
        console().print(plain(f"{what} {done.path}\nsha256 {done.sha256}"), soft_wrap=True)
    show_diagnostics(found, as_json=args.json)
    return 0
