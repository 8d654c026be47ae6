"""``clia peer list``."""

from __future__ import annotations

from clia.cli.federation.common import share_words
from clia.cli.federation.tables import is_wide, show_rows
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, moment, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.federation.model import Peer


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.peers()
    if args.json:
        emit_json(as_json(found))
    elif found:
        _show(found)
    else:
        write("no peers yet; add one: clia peer add NAME --key KEY --url URL\n")
    return 0


def _show(found: Sequence[Peer]) -> None:
    from rich.text import Text  # only people see it

    wide = is_wide()
    rows = []
    for each in found:
        trust = ("forked", "red") if each.forked else ("trusted", "green") if each.trusted else ("not trusted", "yellow")
        rows.append(
            (
                Text(one_line(each.name), style="bold"),
                Text(trust[0], style=trust[1]),
                str(each.agents or ""),
                Text(str(each.waiting or ""), style="yellow"),
                Text("never" if each.heard is None else moment(each.heard), style="dim"),
                *((share_words(each.share),) if wide else ()),
                each.url or "",
            )
        )
    told = ("it is told",) if wide else ()
    headings = ("peer", "trust", "agents", "waiting", "heard (UTC)", *told, "url")
    show_rows(headings, rows, cut=(*told, "url"), right=("agents", "waiting"))
