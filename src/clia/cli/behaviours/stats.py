"""``clia behaviour stats``: what was observed of versions, from the record alone."""

from __future__ import annotations

from clia.cli.behaviours.charts import axis, interval_line
from clia.cli.behaviours.common import (
    add_measure,
    counts_words,
    known,
    note_gaps,
    rate_by,
    rate_words,
    reading,
    state_text,
)
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.sessions.common import rows_of
from clia.cli.space.common import add_space, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from clia.behaviours.model import BehaviourStats
    from clia.facade.space import Space

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", nargs="?", metavar="NAME|CID", help="a behaviour, or one version (default: all that ever ran)")
    parser.add_argument("--over", choices=("day", "week", "month"), help="the rates over time too")
    add_measure(parser, "only this one")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.behaviours.measures import check_measure

    measure = check_measure(args.measure) if args.measure else None
    with space_of(args) as space, reading(args) as watch:
        found = space.behaviour_stats(args.what, over=args.over, progress=watch)
        gaps = space.observation_gaps()
        alone = bool(args.what) and known(space, args.what) is None
        kinds = {} if args.json or not args.over else _kinds(space)
    if measure is not None:
        found = [_only(each, measure) for each in found]
    if args.json:
        emit_json({"measure": measure, "over": args.over, "gaps": gaps, "versions": as_json(found)})
        return 0
    _show(found, args.over, kinds, alone=alone)
    note_gaps(gaps)
    return 0


def _kinds(space: Space) -> dict[str, str]:
    return {each.cid: behaviour.kind for behaviour in space.behaviours() for each in behaviour.versions}


def _only(stats: BehaviourStats, measure: str) -> BehaviourStats:
    series = [each._replace(rates=tuple(rate for rate in each.rates if rate.measure == measure)) for each in stats.series]
    rates = tuple(each for each in stats.rates if each.measure == measure)
    return stats._replace(rates=rates, series=tuple(each for each in series if each.rates))


def _show(found: Sequence[BehaviourStats], over: str | None, kinds: Mapping[str, str], *, alone: bool) -> None:
    if not found:
        write("nothing was observed yet; add a behaviour: clia behaviour add NAME FILE\n")
        return
    for number, name in enumerate(dict.fromkeys(each.name for each in found)):
        if number:
            console().print()
        group = [each for each in found if each.name == name]
        _show_group(name, group, alone=alone)
        if over:
            _show_over_time(group, over, kinds)
    _note_few(found)
    if not alone:
        write("\nkinds, times, tokens and traces: clia behaviour stats CID, or --json\n")


def _show_group(name: str | None, group: Sequence[BehaviourStats], *, alone: bool) -> None:
    from rich.text import Text  # only people see it

    console().print(Text(one_line(name or "of no behaviour here"), style="bold"), soft_wrap=True)
    if alone:
        for each in group:
            console().print(rows_of(_facts(each)))
    else:
        numbers = ("commits", "sessions", "decisions", "merges", "landed", "reverted")
        show_rows(("version", "state", *numbers), [_counts(each) for each in group], right=numbers)
        _show_uncounted(group)
    console().print()
    rows = [(short(each.cid), rate.measure, rate_words(rate), interval_line(rate)) for each in group for rate in each.rates]
    rows += [(short(each.cid), "", "never observed: not enough data", "") for each in group if not each.rates]
    show_rows(("version", "measure", "rate (95 % interval)", axis()), rows)


def _counts(stats: BehaviourStats) -> tuple[object, ...]:
    listed = (stats.commits, stats.sessions, stats.decisions, stats.merges)
    sums = [f"{sum(each.values()):,}" for each in listed]
    return short(stats.cid), state_text(stats.state), *sums, f"{stats.landed:,}", f"{stats.reverted:,}"


def _show_uncounted(group: Sequence[BehaviourStats]) -> None:
    """What went neither well nor badly: it stands in the table, and counts for no rate."""
    sessions, decisions = (sum(_uncounted(each)[place] for each in group) for place in (0, 1))
    said = [counted(sessions, "cancelled session", "cancelled sessions")] if sessions else []
    said += [f"{counted(decisions, 'decision', 'decisions')} that said neither yes nor no"] if decisions else []
    if said:
        write(f"in no rate: {', '.join(said)}\n")


def _uncounted(stats: BehaviourStats) -> tuple[int, int]:
    """How many sessions and decisions no measure counts."""
    from clia.behaviours.measures import MEASURES

    found = []
    for measure, counts in (("finished", stats.sessions), ("approved", stats.decisions)):
        each = MEASURES[measure]
        taken = {key.rpartition("/")[2] for key in (*each.good, *each.bad)}
        found.append(sum(count for name, count in counts.items() if name not in taken))
    return found[0], found[1]


def _facts(stats: BehaviourStats) -> list[tuple[str, object]]:
    """All that was seen of one version."""
    seen = stats.first if stats.first == stats.last else f"{stats.first} to {stats.last}"
    landed = f"{stats.landed:,}" + (f", {stats.reverted:,} of them reverted" if stats.reverted else "")
    return [
        ("version", stats.cid),
        ("state", state_text(stats.state)),
        ("observed", seen or "never"),
        ("commits", counts_words(stats.commits)),
        ("sessions", counts_words(stats.sessions)),
        ("decisions", counts_words(stats.decisions)),
        ("merges", counts_words(stats.merges)),
        ("outcomes", counts_words(stats.outcomes)),
        ("landed", landed if stats.landed else ""),
        ("time to merge", _durations(stats.merge_seconds)),
        ("time to land", _durations(stats.land_seconds)),
        ("traces", counts_words(stats.trace)),
        ("tokens", counts_words(stats.tokens)),
    ]


def _durations(seconds: Mapping[str, int]) -> str:
    if not seconds:
        return ""
    return f"half within {_duration(seconds['median'])}, nine in ten within {_duration(seconds['p90'])} (n={seconds['n']:,})"


def _duration(seconds: int) -> str:
    size, unit = next(each for each in _UNITS if seconds >= each[0] or each[0] == 1)
    return f"{seconds / size:.3g} {unit}"


def _show_over_time(group: Sequence[BehaviourStats], over: str, kinds: Mapping[str, str]) -> None:
    for each in group:
        measure = _drawn(each, kinds.get(each.cid))
        if measure is None:
            continue
        console().print()
        write(f"{short(each.cid)}  {measure} by {over}\n")
        dated = [(period.start, rate_by(period.rates, measure)) for period in each.series]
        rows = [(start, rate_words(rate), interval_line(rate)) for start, rate in dated if rate is not None]
        show_rows((over, "rate (95 % interval)", axis()), rows, indent=2)


def _drawn(stats: BehaviourStats, kind: str | None) -> str | None:
    """Which measure is drawn over time: the usual one, else the first that there is something of."""
    from clia.behaviours.measures import usual_measure

    usual = usual_measure(kind) if kind else ""
    return usual if rate_by(stats.rates, usual) else next((each.measure for each in stats.rates), None)


def _note_few(found: Sequence[BehaviourStats]) -> None:
    from clia.behaviours.statistics import LEAST

    if any(rate.n < LEAST for each in found for rate in each.rates):
        write(f"\nfewer than {LEAST} observations are not enough data: nothing is suggested on them\n")
