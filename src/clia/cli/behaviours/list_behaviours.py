"""``clia behaviour list``."""

from __future__ import annotations

from clia.behaviours.model import PROPOSED
from clia.cli.behaviours.common import known_json
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, write
from clia.cli.space.common import add_space, moment, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.behaviours.model import KnownBehaviour


_HEADINGS = ("behaviour", "kind", "current", "versions", "proposed", "changed (UTC)")
_SPARE = ("changed (UTC)", "versions", "kind")
"""What is left out first where names are long: they stand whole, so that they can be copied."""


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.behaviours()
    if args.json:
        emit_json([known_json(each) for each in found])
    elif found:
        headings, rows = _fitting([_row(each) for each in found])
        show_rows(headings, rows, right=("versions", "proposed"))
    else:
        write("no behaviours yet; add one: clia behaviour add NAME FILE\n")
    return 0


def _fitting(rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """The columns that there is room for."""
    columns = dict(zip(_HEADINGS, zip(*rows, strict=True), strict=True))
    for spare in _SPARE:
        widths = [max(len(heading), *(len(str(cell)) for cell in cells)) for heading, cells in columns.items()]
        if sum(widths) + 2 * (len(widths) - 1) > console().width:
            del columns[spare]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _row(behaviour: KnownBehaviour) -> tuple[object, ...]:
    waiting = sum(each.state == PROPOSED for each in behaviour.versions)
    changed = moment(behaviour.history[0].at) if behaviour.history else ""
    name, kind, current, versions, _ = behaviour
    return name, kind, short(current) or "none", len(versions), waiting or "", changed
