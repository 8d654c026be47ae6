"""``clia behaviour lineage``: which version came from which, and how each does."""

from __future__ import annotations

from clia.cli.behaviours.common import add_measure, note_gaps, person, rate_by, rate_words, reading, state_text
from clia.cli.output import console, emit_json, one_line
from clia.cli.space.common import add_space, only_ascii, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from rich.text import Text

    from clia.behaviours.model import KnownBehaviour, Rate

_DEEPEST = 8
"""So many steps down a line is indented; what comes from there begins at the left again. A line may be longer than any screen."""


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="which behaviour")
    add_measure(parser, "the rate to tell (default: finished for a flow, merged for a prompt)")
    parser.add_argument("--ascii", action="store_true", help="draw with plain characters")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.behaviours.measures import check_measure, usual_measure

    with space_of(args) as space, reading(args) as watch:
        known = space.behaviour(args.name)
        measure = check_measure(args.measure) if args.measure else usual_measure(known.kind)
        rates = {each.cid: rate_by(each.rates, measure) for each in space.behaviour_stats(args.name, progress=watch)}
        gaps = space.observation_gaps()
    children = _children(known)
    if args.json:
        emit_json(_json(known, measure, rates, children) | {"gaps": gaps})
    else:
        _show(known, measure, rates, children, plain_characters=args.ascii or only_ascii())
        note_gaps(gaps)
    return 0


def _children(known: KnownBehaviour) -> dict[str, list[str]]:
    here = {each.cid for each in known.versions}
    found: dict[str, list[str]] = {cid: [] for cid in here}
    for each in known.versions:
        if each.parent in here and each.parent is not None:
            found[each.parent].append(each.cid)
    return found


def _in_pieces(versions: Iterable[str], children: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The children without those of the deepest versions, and of each child that was left out the version it comes from."""
    pieces = {cid: list(found) for cid, found in children.items()}
    cut: dict[str, str] = {}
    below = {child for found in children.values() for child in found}
    waiting = [(cid, 0) for cid in versions if cid not in below]
    while waiting:  # what goes in a circle is never met, and stays as it is
        cid, depth = waiting.pop()
        if depth == _DEEPEST:
            cut |= dict.fromkeys(pieces[cid], cid)
            pieces[cid] = []
        waiting += [(child, 0 if child in cut else depth + 1) for child in children[cid]]
    return pieces, cut


def _json(
    known: KnownBehaviour, measure: str, rates: Mapping[str, Rate | None], children: Mapping[str, list[str]]
) -> dict[str, object]:
    versions = [
        {
            "cid": each.cid,
            "state": each.state,
            "parent": each.parent,
            "children": children[each.cid],
            "by": each.by,
            "at": each.at,
            "why": each.why,
            "rate": as_json(rates.get(each.cid)),
        }
        for each in known.versions
    ]
    return {"name": known.name, "kind": known.kind, "current": known.current, "measure": measure, "versions": versions}


def _show(
    known: KnownBehaviour,
    measure: str,
    rates: Mapping[str, Rate | None],
    children: Mapping[str, list[str]],
    *,
    plain_characters: bool,
) -> None:
    from rich.text import Text  # only people see it

    from clia.cli.drawing import tree_lines

    versions = {each.cid: each for each in known.versions}
    pieces, cut = _in_pieces(versions, children)

    def label(cid: str) -> Text:
        each = versions[cid]
        said = f"{person(each.by)}: {each.why.partition(chr(10))[0]}" if each.why else person(each.by)
        before = f"from {short(cut[cid])}: " if cid in cut else ""
        made = Text.assemble((before, "dim"), (short(cid), "yellow"), " ", state_text(each.state))
        made.append(f"  {rate_words(rates.get(cid))}")
        return made.append(f"  {one_line(said)}", style="dim")

    terminal = console()
    terminal.print(Text.assemble((one_line(known.name), "bold"), f"  {known.kind}, by {measure}"), soft_wrap=True)
    for line in tree_lines(versions, pieces, label, ascii=plain_characters):
        line.truncate(terminal.width, overflow="ellipsis")
        terminal.print(line, soft_wrap=True)
