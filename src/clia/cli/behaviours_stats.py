"""``clia behaviour``, measuring versions: stats, compare, suggest; and ``clia agents stats``."""

from __future__ import annotations

from typing import NamedTuple

from clia.behaviours.measures import COMMITS_KEPT
from clia.behaviours.model import ADOPT, CURRENT, KEEP, NOT_ENOUGH, PROPOSED, RETIRE
from clia.cli.behaviours_versions import (
    find_behaviour,
    measure_option,
    note_gaps,
    rate_by,
    rate_text,
    reading,
    some_ids,
    state_text,
)
from clia.cli.command import Answer, arg, command, opt
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import facts_table, largest_unit, only_ascii, short, show_block, show_line, show_rows
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.behaviours.model import BehaviourStats, Candidate, Compared, Comparison, Rate, Suggestion
    from clia.facade.space import Space

_ACTION_STYLES = {ADOPT: "green", KEEP: "cyan", RETIRE: "red", NOT_ENOUGH: "yellow"}
CHART_WIDTH = 25
BETTER, WORSE, NO_DIFFERENCE, TOO_FEW = "better", "worse", "no-difference", "not-enough-data"


class ShownStats(NamedTuple):
    measure: str | None  # the measure that was asked for
    over: str | None  # `day`, `week` or `month`, if asked for
    gaps: int  # parts of the record that this clone lacks, which are not counted
    versions: list[BehaviourStats]  # the statistics of each version


@command("behaviour stats")
def behaviour_stats(
    space: Space,
    json_output: bool,
    name: str | None = arg("NAME|CID", "behaviour or version (default: everything that ever ran)", nargs="?"),
    over: str | None = opt(None, "also show rates over time", choices=("day", "week", "month")),
    measure: str | None = measure_option("show only this measure"),
) -> Answer[ShownStats]:
    """Show what was observed of versions, with rates and intervals."""
    from clia.behaviours.measures import check_measure

    measure = check_measure(measure) if measure else None
    with reading(hidden=json_output) as progress:
        stats = space.behaviours.stats(name, over=over, progress=progress)
        gaps = space.behaviours.gaps()
    if measure is not None:
        stats = [_only_measure(version, measure) for version in stats]

    def show() -> None:
        single = name is not None and find_behaviour(space, name) is None
        behaviours = space.behaviours() if over else []
        kinds = {version.cid: behaviour.kind for behaviour in behaviours for version in behaviour.versions}
        _show_stats(stats, over, kinds, single=single)
        note_gaps(gaps)

    return Answer(ShownStats(measure, over, gaps, stats), show)


@command("agents stats")
def agents_stats(
    space: Space,
    json_output: bool,
    slug: str | None = arg("SLUG", "identity (default: all)", nargs="?"),
    over: str | None = opt(None, "also show rates over time", choices=("day", "week", "month")),
) -> Answer[list[BehaviourStats]]:
    """Show what was observed of agents under each profile of an identity."""
    with reading(hidden=json_output) as progress:
        stats = space.behaviours.of_identities(slug, over=over, progress=progress)
    if not stats:
        return Answer([], "no agent has worked under an identity yet" if slug is None else f"no agent has worked under {slug} yet")
    return Answer(stats, lambda: _show_stats(stats, over, {}, single=False, more="--json"))


def _only_measure(stats: BehaviourStats, measure: str) -> BehaviourStats:
    series = [period._replace(rates=tuple(rate for rate in period.rates if rate.measure == measure)) for period in stats.series]
    rates = tuple(rate for rate in stats.rates if rate.measure == measure)
    return stats._replace(rates=rates, series=tuple(period for period in series if period.rates))


def _show_stats(
    stats: Sequence[BehaviourStats],
    over: str | None,
    kinds: Mapping[str, str],
    *,
    single: bool,
    more: str = "clia behaviour stats CID, or --json",
) -> None:
    from clia.behaviours.statistics import LEAST

    if not stats:
        write("nothing was observed yet; add a behaviour with: clia behaviour add NAME FILE\n")
        return
    for number, name in enumerate(dict.fromkeys(version.name for version in stats)):
        if number:
            console().print()
        versions = [version for version in stats if version.name == name]
        _show_behaviour(name, versions, single=single)
        if over:
            _show_over_time(versions, over, kinds)
    if any(rate.n < LEAST for version in stats for rate in version.rates):
        write(f"\nfewer than {LEAST} observations are not enough data for a suggestion\n")
    if not single:
        write(f"\nkinds, times, tokens and traces: {more}\n")


def _show_behaviour(name: str | None, versions: Sequence[BehaviourStats], *, single: bool) -> None:
    show_line((one_line(name or "not a behaviour of this space"), "bold"))
    if single:
        for stats in versions:
            console().print(facts_table(_version_facts(stats)))
    else:
        numbers = ("commits", "sessions", "decisions", "merges", "landed", "reverted")
        counts = []
        for stats in versions:
            sums = [sum(kinds.values()) for kinds in (stats.commits, stats.sessions, stats.decisions, stats.merges)]
            cells = (f"{number:,}" for number in (*sums, stats.landed, stats.reverted))
            counts.append((short(stats.cid), state_text(stats.state), *cells))
        show_rows(("version", "state", *numbers), counts, right=numbers)
        _show_uncounted(versions)
    console().print()
    rows = [(short(stats.cid), rate.measure, rate_text(rate), interval_line(rate)) for stats in versions for rate in stats.rates]
    rows += [(short(stats.cid), "", "never observed: not enough data", "") for stats in versions if not stats.rates]
    show_rows(("version", "measure", "rate (95 % interval)", chart_axis()), rows)


def _show_uncounted(versions: Sequence[BehaviourStats]) -> None:
    """Print how many observations were neither good nor bad, and are in no rate."""
    sessions = sum(_uncounted(stats.sessions, "finished") for stats in versions)
    decisions = sum(_uncounted(stats.decisions, "approved") for stats in versions)
    parts = [counted(sessions, "cancelled session")] if sessions else []
    parts += [f"{counted(decisions, 'decision')} that said neither yes nor no"] if decisions else []
    if parts:
        write(f"in no rate: {', '.join(parts)}\n")


def _uncounted(counts: Mapping[str, int], measure_name: str) -> int:
    from clia.behaviours.measures import MEASURES

    measure = MEASURES[measure_name]
    judged = {key.rpartition("/")[2] for key in (*measure.good, *measure.bad)}
    return sum(count for name, count in counts.items() if name not in judged)


def _version_facts(stats: BehaviourStats) -> list[tuple[str, object]]:
    observed = stats.first if stats.first == stats.last else f"{stats.first} to {stats.last}"
    landed = f"{stats.landed:,}" + (f", {stats.reverted:,} of them reverted" if stats.reverted else "")
    counts = ("commits", "sessions", "decisions", "merges", "outcomes")
    return [
        ("version", stats.cid),
        ("state", state_text(stats.state)),
        ("observed", observed or "never"),
        *((name, count_text(getattr(stats, name))) for name in counts),
        ("landed", landed if stats.landed else ""),
        ("time to merge", _durations(stats.merge_seconds)),
        ("time to land", _durations(stats.land_seconds)),
        ("traces", count_text(stats.trace)),
        ("tokens", count_text(stats.tokens)),
    ]


def _durations(seconds: Mapping[str, int]) -> str:
    if not seconds:
        return ""
    return f"half within {_duration(seconds['median'])}, nine in ten within {_duration(seconds['p90'])} (n={seconds['n']:,})"


def _duration(seconds: int) -> str:
    size, unit = largest_unit(seconds)
    return f"{seconds / size:.3g} {unit}"


def _show_over_time(versions: Sequence[BehaviourStats], over: str, kinds: Mapping[str, str]) -> None:
    """Draw the usual measure of each version, else the first with observations."""
    from clia.behaviours.measures import usual_measure

    for stats in versions:
        if not stats.rates:
            continue
        usual = usual_measure(kinds[stats.cid]) if stats.cid in kinds else ""
        measure = usual if rate_by(stats.rates, usual) else stats.rates[0].measure
        console().print()
        write(f"{short(stats.cid)}  {measure} by {over}\n")
        dated = [(period.start, rate_by(period.rates, measure)) for period in stats.series]
        rows = [(start, rate_text(rate), interval_line(rate)) for start, rate in dated if rate is not None]
        show_rows((over, "rate (95 % interval)", chart_axis()), rows, indent=2)


@json_form(compared=EMBED)
class JudgedMeasure(NamedTuple):
    """One measure of two versions, and what it shows."""

    compared: Compared
    verdict: str  # `better`, `worse` or `no-difference`, of the later one; `not-enough-data` below 20 observations of each


@json_form(comparison=EMBED)
class ShownComparison(NamedTuple):
    comparison: Comparison
    measures: list[JudgedMeasure]  # measures with observations
    gaps: int  # parts of the record that this clone lacks, which are not counted


@command("behaviour compare")
def behaviour_compare(
    space: Space,
    json_output: bool,
    before: str = arg("A", "version by its id or the start of it, or a name for its current version"),
    after: str = arg("B", "the other version, which may be better"),
) -> Answer[ShownComparison]:
    """Compare two versions by every measure."""
    with reading(hidden=json_output) as progress:
        comparison = space.behaviours.compare(before, after, progress=progress)
        gaps = space.behaviours.gaps()

    def show() -> None:
        _show_comparison(comparison)
        note_gaps(gaps)

    measures = [JudgedMeasure(compared, verdict(compared)) for compared in comparison.measures]
    return Answer(ShownComparison(comparison, measures, gaps), show)


def verdict(compared: Compared) -> str:
    """What two rates show about B; as for a suggestion, each needs a minimum number of observations."""
    from clia.behaviours.statistics import LEAST

    if min(compared.before.n, compared.after.n) < LEAST:
        return TOO_FEW
    return (NO_DIFFERENCE, BETTER, WORSE)[compared.proven]


def _show_comparison(comparison: Comparison) -> None:
    from clia.behaviours.statistics import LEAST

    for letter, stats in (("A", comparison.before), ("B", comparison.after)):
        name = one_line(stats.name or "not a behaviour of this space")
        show_line((letter, "bold"), "  ", (short(stats.cid), "yellow"), f"  {name}  ", state_text(stats.state))
    if not comparison.measures:
        write("\nneither was ever observed: not enough data\n")
        return
    console().print()
    rates = [(compared.measure, rate_text(compared.before), rate_text(compared.after)) for compared in comparison.measures]
    show_rows(("measure", "A", "B"), rates)
    console().print()
    verdicts = {BETTER: "B is shown to be better", WORSE: "A is shown to be better", NO_DIFFERENCE: "no difference is shown"}
    verdicts[TOO_FEW] = f"not enough data: {LEAST} of each are needed"
    rows = [
        (compared.measure, chance(compared.better), _difference(compared), verdicts[verdict(compared)])
        for compared in comparison.measures
    ]
    show_rows(("measure", "B is better", "by (points)", "verdict"), rows, wrapped=("verdict",), right=("B is better",))


def _difference(compared: Compared) -> str:
    """The difference of the rates in percentage points, with its interval."""
    if compared.before.rate is None or compared.after.rate is None:
        return ""
    difference, low, high = (100 * value for value in (compared.after.rate - compared.before.rate, compared.low, compared.high))
    return f"{difference:+.0f} ({_points(low)} to {_points(high)})"


def _points(value: float) -> str:
    """An end of an interval; one that is almost 100 is not rounded to it."""
    is_near = 99.5 <= abs(value) < 100
    return f"{max(min(value, 99.9), -99.9):+.1f}" if is_near else f"{value:+.0f}"


@json_form(suggestion=EMBED)
class ShownSuggestion(NamedTuple):
    suggestion: Suggestion
    next: str | None  # the command that follows; null: nothing to do
    gaps: int  # parts of the record that this clone lacks, which are not counted


@command("behaviour suggest")
def behaviour_suggest(
    space: Space,
    json_output: bool,
    name: str = arg("NAME", "behaviour name"),
    measure: str | None = measure_option(
        "measure to judge by (default: the operator's policy, else finished for a flow, merged for a prompt)"
    ),
) -> Answer[ShownSuggestion]:
    """Suggest to adopt, keep or retire a version, based on the record."""
    with reading(hidden=json_output) as progress:
        suggestion = space.behaviours.suggest(name, measure, progress=progress)
        gaps = space.behaviours.gaps()

    def show() -> None:
        _show_suggestion(suggestion)
        note_gaps(gaps)

    return Answer(ShownSuggestion(suggestion, next_command(suggestion, str), gaps), show)


def next_command(suggestion: Suggestion, format_id: Callable[[str], str]) -> str | None:
    """The command that follows a suggestion; None if there is nothing to do."""
    if suggestion.action in (ADOPT, RETIRE) and suggestion.cid and suggestion.expect:
        ids = f"{format_id(suggestion.cid)} --expect {format_id(suggestion.expect)}"
        return f"clia behaviour {suggestion.action} {suggestion.name} {ids}"
    proposed = [candidate for candidate in suggestion.candidates if candidate.state == PROPOSED]
    if suggestion.action == NOT_ENOUGH and proposed:
        return f"clia behaviour adopt {suggestion.name} {format_id(proposed[-1].cid)} --trial"
    return None


def _show_suggestion(suggestion: Suggestion) -> None:
    action = (_action_text(suggestion), _ACTION_STYLES.get(suggestion.action, ""))
    show_line((one_line(suggestion.name), "bold"), "  ", action)
    show_block(suggestion.why, indent=2)
    console().print()
    rows: list[tuple[object, ...]] = [(short(suggestion.expect), state_text(CURRENT), rate_text(suggestion.current), "", "")]
    for candidate in suggestion.candidates:
        compared = candidate.compared
        rates = (rate_text(compared.after), chance(compared.better), _needed_text(suggestion, candidate))
        rows.append((short(candidate.cid), state_text(candidate.state), *rates))
    headings = ("version", "state", suggestion.measure, "better", "more needed")
    show_rows(headings, rows, right=("better",), wrapped=("more needed",))
    if suggestion.evidence:
        write(f"\nevidence: {some_ids(suggestion.evidence, 5)}\n")
        write(f"          the newest {COMMITS_KEPT} commits of each kind; --json lists them all\n")
    following = next_command(suggestion, short)
    if following is not None:
        if suggestion.action == NOT_ENOUGH:
            write("a proposal is observed only after a person lets it run\n")
        write(one_line(f"next: {following}") + "\n")


def _action_text(suggestion: Suggestion) -> str:
    current, other = short(suggestion.expect), short(suggestion.cid)
    if suggestion.action == ADOPT:
        return f"adopt {other} instead of {current}"
    if suggestion.action == RETIRE:
        return f"keep {current}, and retire {other}"
    return f"keep {current}: nothing to change" if suggestion.action == KEEP else "nothing is suggested yet"


def _needed_text(suggestion: Suggestion, candidate: Candidate) -> str:
    """How many more observations a suggestion needs, judging by the difference so far."""
    missing = suggestion.least - min(suggestion.current.n, candidate.compared.after.n)
    if missing > 0:
        return f"about {max(missing, candidate.needed or 0):,} of each" if candidate.needed else f"at least {missing:,}"
    if candidate.compared.proven:
        return "none: it is shown"
    return f"about {candidate.needed:,} of each" if candidate.needed else "no difference to see"


def chance(value: float | None) -> str:
    """A probability; observations never make it certain."""
    if value is None:
        return ""
    text = f"{100 * value:.0f}"
    return f"{text} %" if text not in ("0", "100") else ">99 %" if value > 0.5 else "<1 %"


def count_text(counts: Mapping[str, int]) -> str:
    """``4 finished, 2 failed``, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def chart_axis() -> str:
    """The scale above interval lines: 0 to 100 %."""
    return "0" + "50".center(CHART_WIDTH - 4) + "100"


def interval_line(rate: Rate | None) -> str:
    """The interval of a rate as a line, with a dot at the rate; empty without observations."""
    if rate is None or rate.rate is None:
        return ""
    start, line, end, dot = "[-]*" if only_ascii() else "├─┤●"
    low, at, high = (round(min(max(value, 0.0), 1.0) * (CHART_WIDTH - 1)) for value in (rate.low, rate.rate, rate.high))
    cells = [" "] * low + [line] * (high - low + 1)
    cells[low], cells[high] = start, end
    cells[at] = dot
    return "".join(cells)
