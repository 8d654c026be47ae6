"""``clia behaviour list``."""

from __future__ import annotations

from clia.behaviours.model import PROPOSED
from clia.cli.behaviours.common import known_json
from clia.cli.federation.tables import show_rows
from clia.cli.output import emit_json, write
from clia.cli.space.common import add_space, moment, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.behaviours.model import KnownBehaviour


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.behaviours()
    if args.json:
        emit_json([known_json(each) for each in found])
    elif found:
        show_rows(
            ("behaviour", "kind", "current", "versions", "proposed", "changed (UTC)"),
            [_row(each) for each in found],
            cut=("behaviour",),
            right=("versions", "proposed"),
        )
    else:
        write("no behaviours yet; add one: clia behaviour add NAME FILE\n")
    return 0


def _row(behaviour: KnownBehaviour) -> tuple[object, ...]:
    waiting = sum(each.state == PROPOSED for each in behaviour.versions)
    changed = moment(behaviour.history[0].at) if behaviour.history else ""
    name, kind, current, versions, _ = behaviour
    return name, kind, short(current) or "none", len(versions), waiting or "", changed
