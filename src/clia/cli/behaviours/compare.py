"""``clia behaviour compare``: two versions side by side, by every measure."""

from __future__ import annotations

from clia.cli.behaviours.common import chance, note_gaps, rate_words, reading, state_text
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.space.common import add_space, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.behaviours.model import Compared, Comparison

BETTER, WORSE, NOTHING, NOT_ENOUGH = "better", "worse", "no-difference", "not-enough-data"


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    text = "a version by its id or its start, or a name: its current version"
    parser.add_argument("before", metavar="A", help=text)
    parser.add_argument("after", metavar="B", help="the other, which may be better")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, reading(args) as watch:
        found = space.compare_behaviours(args.before, args.after, progress=watch)
        gaps = space.observation_gaps()
    if args.json:
        measures = [{**as_json(each), "verdict": verdict(each)} for each in found.measures]
        emit_json({**as_json(found), "measures": measures, "gaps": gaps})
    else:
        _show(found)
        note_gaps(gaps)
    return 0


def verdict(found: Compared) -> str:
    """What two rates show of B, in a word; as a suggestion does, it takes a number of observations of each."""
    from clia.behaviours.statistics import LEAST

    if min(found.before.n, found.after.n) < LEAST:
        return NOT_ENOUGH
    return (NOTHING, BETTER, WORSE)[found.proven]


def _show(found: Comparison) -> None:
    from rich.text import Text  # only people see it

    for letter, each in (("A", found.before), ("B", found.after)):
        name = one_line(each.name or "of no behaviour here")
        line = Text.assemble((letter, "bold"), "  ", (short(each.cid), "yellow"), f"  {name}  ", state_text(each.state))
        console().print(line, soft_wrap=True)
    if not found.measures:
        write("\nneither was ever observed: not enough data\n")
        return
    console().print()
    show_rows(("measure", "A", "B"), [(each.measure, rate_words(each.before), rate_words(each.after)) for each in found.measures])
    console().print()
    rows = [(each.measure, chance(each.better), _difference(each), _words(each)) for each in found.measures]
    show_rows(("measure", "B is better", "by (points)", "verdict"), rows, wrapped=("verdict",), right=("B is better",))


def _difference(found: Compared) -> str:
    """What B's rate has over A's, in points of a hundred, with its interval."""
    if found.before.rate is None or found.after.rate is None:
        return ""
    apart, low, high = (100 * value for value in (found.after.rate - found.before.rate, found.low, found.high))
    return f"{apart:+.0f} ({_points(low)} to {_points(high)})"


def _points(value: float) -> str:
    """The end of an interval; one that is not quite all of it is not told as if it were."""
    is_near = 99.5 <= abs(value) < 100
    return f"{max(min(value, 99.9), -99.9):+.1f}" if is_near else f"{value:+.0f}"


def _words(found: Compared) -> str:
    from clia.behaviours.statistics import LEAST

    return {
        NOT_ENOUGH: f"not enough data: {LEAST} of each are needed",
        BETTER: "B is shown to be better",
        WORSE: "A is shown to be better",
        NOTHING: "no difference is shown",
    }[verdict(found)]
