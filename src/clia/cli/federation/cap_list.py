"""``clia cap list``."""

from __future__ import annotations

from datetime import UTC, datetime

from clia.cli.federation.common import add_peer
from clia.cli.federation.tables import is_wide, show_rows
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, moment, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Grant


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "only what this one is granted", nargs="?")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.grants(args.peer)
    if args.json:
        emit_json(as_json(found))
    elif found:
        show_grants(found)
    else:
        who = args.peer or "PEER"
        write(one_line(f"nothing is granted, so nothing is taken in; to follow agents: clia cap grant {who} --follow") + "\n")
    return 0


def show_grants(found: Sequence[Grant]) -> None:
    wide = is_wide()
    rows = [
        (each.peer, each.type, each.trigger, *_terms(each), short(each.cid), *(_origin(each) if wide else ())) for each in found
    ]
    origin = ("by", "since (UTC)") if wide else ()
    show_rows(("peer", "type", "trigger", "execute", "expires (UTC)", "id", *origin), rows, cut=("by",))


def _origin(grant: Grant) -> tuple[str, str]:
    """Who granted it, without the address that takes up half a line, and when."""
    return grant.by.partition(" <")[0], moment(grant.at)


def _terms(grant: Grant) -> tuple[str, str]:
    return "may run" if grant.execute else "", _end(grant)


def _end(grant: Grant) -> str:
    if grant.expires is None:
        return "never"
    expired = grant.expires <= int(datetime.now(UTC).timestamp())
    return f"{moment(grant.expires)}{', expired' if expired else ''}"
