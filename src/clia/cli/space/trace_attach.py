"""``clia trace attach``."""

from __future__ import annotations

import json

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_redaction, add_space, read_bytes, read_text, require_agent, short, space_of
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("commit", metavar="COMMIT", help="the commit, or an agent for its newest")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a text that becomes one entry (default, or '-': standard input)")
    parser.add_argument("--entries", metavar="FILE", help="a JSON list of entries, each with a text ('-': standard input)")
    parser.add_argument("--agent", metavar="AGENT", help="whose trace it is, where the commit does not say")
    parser.add_argument("--kind", metavar="KIND", help="the kind of the one entry (default: console)")
    add_redaction(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    if args.file is not None and args.entries is not None:
        raise InvalidInput("give a text or --entries, not both", code="invalid-option")
    if args.kind is not None and args.entries is not None:
        raise InvalidInput("--kind is for a text; the entries of --entries say their own", code="invalid-option")
    with space_of(args) as space:
        commit = space.find(args.commit)
        if args.agent is not None:
            require_agent(space, args.agent)  # notes of nobody would never be found again
        cid = space.attach_trace(commit, _entries(args), agent=args.agent)
    if args.json:
        emit_json({"commit": commit, "cid": cid})
    else:
        write(f"bound to {commit}: trace {short(cid)}\n")
    return 0


def _entries(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.entries is None:
        return [{"kind": args.kind or "console", "text": read_text(args.file or "-")}]
    try:
        found = json.loads(read_bytes(args.entries))
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"{args.entries}: no JSON: {err}", code="invalid-entry", fields={"path": args.entries}) from None
    if not isinstance(found, list):
        raise InvalidInput(f"{args.entries}: not a list of entries", code="invalid-entry", fields={"path": args.entries})
    return found
