"""Behaviour pages: versions, observations, suggestions and actions.

Invariant: viewing changes nothing and reads the observation index once. Only an administrator can adopt, try or retire a version,
and only if the current version is still the one that the page showed. Version contents are shown as text.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from starlette.routing import Route

from clia.behaviours.library import NOTHING
from clia.behaviours.measures import COMMITS_KEPT, MEASURES, SPANS, WEEK, ObservationSum, compared, stats_of, usual_measure
from clia.behaviours.model import ADOPT, CURRENT, FOREIGN, MAY_RUN, PROPOSED, RETIRE, RETIRED, TRIAL, Comparison
from clia.behaviours.suggesting import suggest
from clia.errors import CliaError, InvalidInput
from clia.forge.pages.common import ADMIN, Posted, RefusedForm, carry_out, core_of, first, form, link, optional, page, show, text_of
from clia.forge.pages.traces import cited
from clia.forge.rendering import diffs, plots, texts
from clia.space.behaviour_chains import PROPOSE
from clia.space.core import AGENT_EMAIL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import BehaviourLibrary
    from clia.behaviours.model import BehaviourStats, BehaviourVersion, Compared, KnownBehaviour, Rate, Suggestion
    from clia.behaviours.suggesting import Policy
    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.forge.rendering.diffs import FileView

LISTED, VERSIONS, EVENTS, EVIDENCE, STRAYS, TRIALS = 300, 100, 100, 60, 50, 5
BODY_MAX = 200_000
"""Maximum characters of a body on its page."""
DEEDS = (ADOPT, "trial", RETIRE)
_SURE = 0.9999  # shown probabilities stay below 100 %
_DEPTH = 8  # maximum indentation


class BehaviourRow(NamedTuple):
    """A row of the behaviour list."""

    known: KnownBehaviour
    proposals: int
    trials: Sequence[BehaviourVersion]
    rate: Rate | None  # of the current version, by the default measure
    suggestion: Suggestion | None  # None: no current version


class VersionView(NamedTuple):
    """A version with its statistics."""

    version: BehaviourVersion
    stats: BehaviourStats
    by_agent: bool  # proposed by an agent


class SuggestedAction(NamedTuple):
    """The suggested action and version; empty if there is none."""

    deed: str = ""
    cid: str = ""


class VersionBranch(NamedTuple):
    """A version in the tree of versions."""

    version: BehaviourVersion
    depth: int


class OverTime(NamedTuple):
    """Rates over time by one measure: a plot and the same numbers as a table."""

    picture: Markup
    periods: Sequence[str]
    cells: Mapping[tuple[str, str], plots.Point]  # by version and period
    shown: Sequence[BehaviourVersion]
    rest: int  # versions not shown


class JudgedMeasure(NamedTuple):
    """The comparison of two versions by one measure, in words."""

    made: Compared
    probable: str
    verdict: str


class ComparisonResult(NamedTuple):
    """A comparison or an error."""

    found: Comparison | None = None
    judged: Sequence[JudgedMeasure] = ()
    error: CliaError | None = None


def routes() -> list[Route]:
    at = "/s/{space}/behaviours"
    return [
        Route(at, _behaviours, methods=["GET"], name="behaviours"),
        Route(f"{at}/{{name}}", _behaviour, methods=["GET"], name="behaviour"),
        Route(f"{at}/{{name}}/compare", _compare, methods=["GET"], name="behaviour:compare"),
        Route(f"{at}/{{name}}/change", _change, methods=["POST"], name="behaviour:change"),
        Route("/s/{space}/behaviour-versions/{cid}", _version, methods=["GET"], name="behaviour:version"),
    ]


def _inside(space: Space) -> tuple[BehaviourLibrary, ObservationIndex]:
    return space.behaviours.library, space.behaviours.observations


def _policy(space: Space, name: str) -> Policy:
    return space.behaviours.policy(name)


# List


@page
def _behaviours(visit: Visit) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    behaviours, sums = library.all(), index.every()
    ours = {version.cid for behaviour in behaviours for version in behaviour.versions}
    strays = sorted(cid for cid in sums.keys() - ours if cid)
    return show(
        visit,
        "behaviours.html",
        rows=[_row(space, behaviour, sums) for behaviour in behaviours[:LISTED]],
        rest=max(0, len(behaviours) - LISTED),
        strays=[stats_of(cid, None, None, sums[cid]) for cid in strays[:STRAYS]],
        stray_count=len(strays),
        most=TRIALS,
        gaps=space.observation_gaps(),
        told=told,
    )


def _row(space: Space, behaviour: KnownBehaviour, sums: Mapping[str, ObservationSum]) -> BehaviourRow:
    proposals = sum(version.state == PROPOSED for version in behaviour.versions)
    suggestion = _suggestion(space, behaviour, sums)
    return BehaviourRow(behaviour, proposals, _on_trial(behaviour), suggestion.current if suggestion else None, suggestion)


def _on_trial(behaviour: KnownBehaviour) -> list[BehaviourVersion]:
    """The versions on trial, newest first."""
    return [version for version in reversed(behaviour.versions) if version.state == TRIAL]


def _suggestion(space: Space, behaviour: KnownBehaviour, sums: Mapping[str, ObservationSum]) -> Suggestion | None:
    current = next((version for version in behaviour.versions if version.cid == behaviour.current), None)
    if current is None:
        return None
    sums_by_version = {version.cid: sums.get(version.cid, ObservationSum({}, {})) for version in behaviour.versions}
    return suggest(behaviour, current, sums_by_version, _policy(space, behaviour.name))


def advised(suggestion: Suggestion | None) -> SuggestedAction:
    """The action for a suggestion; "keep" needs none."""
    if suggestion is None or suggestion.action not in (ADOPT, RETIRE):
        return SuggestedAction()
    return SuggestedAction(suggestion.action, suggestion.cid or "")


# One behaviour


@page
def _behaviour(visit: Visit) -> Response:
    return _shown(visit)


def _shown(visit: Visit, refused: RefusedForm | None = None) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    behaviour = library.get(visit.param("name"))
    sums = index.sums(version.cid for version in behaviour.versions)
    suggestion = _suggestion(space, behaviour, sums)
    over = visit.query("over") if visit.query("over") in SPANS else WEEK
    usual = suggestion.measure if suggestion else usual_measure(behaviour.kind)
    measure = visit.query("measure") if visit.query("measure") in MEASURES else usual
    every = [_told(behaviour, version, sums[version.cid], over) for version in behaviour.versions]
    advice = advised(suggestion)
    listed = _listed(every, advice.cid)
    return show(
        visit,
        "behaviour.html",
        refused.status if refused else 200,
        known=behaviour,
        versions=listed,
        version_rest=len(every) - len(listed),
        current=next((version for version in behaviour.versions if version.cid == behaviour.current), None),
        trials=_on_trial(behaviour),
        most=TRIALS,
        suggestion=suggestion,
        advice=advice,
        waiting_for=[candidate for candidate in suggestion.candidates if candidate.needed and candidate.state in MAY_RUN]
        if suggestion
        else [],
        evidence=cited(visit, suggestion.evidence if suggestion else ()),
        kept=COMMITS_KEPT,
        measure=measure,
        measures=MEASURES,
        observed={rate.measure for item in every for rate in item.stats.rates},
        over=over,
        spans=SPANS,
        time=_over_time(listed, measure, over),
        beside=_beside(listed),
        lineage=descent(behaviour.versions)[:VERSIONS],
        events=behaviour.history[:EVENTS],
        event_rest=max(0, len(behaviour.history) - EVENTS),
        event_evidence={event.commit: cited(visit, event.evidence[:10]) for event in behaviour.history[:EVENTS]},
        gaps=space.observation_gaps(),
        told=told,
        plots=plots,
        refused=refused,
    )


def _told(behaviour: KnownBehaviour, version: BehaviourVersion, sums: ObservationSum, over: str | None = None) -> VersionView:
    stats = stats_of(version.cid, version.name, version.state, sums, over)
    proposed = next((event for event in reversed(behaviour.history) if event.cid == version.cid), None)
    return VersionView(version, stats, proposed is not None and proposed.event == PROPOSE and is_agents(proposed.by))


def is_agents(by: str) -> bool:
    """Whether an author is an agent."""
    return by.endswith(f"{AGENT_EMAIL.format('')}>")


def _listed(every: Sequence[VersionView], suggested: str) -> list[VersionView]:
    """Versions for the page: current, suggested, on trial, then the others, newest first."""

    def place(version_view: VersionView) -> int:
        version = version_view.version
        return 0 if version.state == CURRENT else 1 if version.cid == suggested else 2 if version.state == TRIAL else 3

    newest = every[::-1]
    return sorted(newest, key=place)[:VERSIONS]


def told(rate: Rate | None) -> str:
    """A rate with its interval and sample size, as text."""
    return "never observed" if rate is None or rate.rate is None else _point("", rate).told()


def _point(at: str, rate: Rate) -> plots.Point:
    return plots.Point(at, rate.rate or 0.0, rate.low, rate.high, rate.n)


def _label(version: BehaviourVersion) -> str:
    return f"{version.cid[:8]} {version.state}"


def _over_time(listed: Sequence[VersionView], measure: str, over: str) -> OverTime:
    """Rates over time of the first versions with data."""
    all_series: list[tuple[BehaviourVersion, list[plots.Point]]] = []
    for item in listed:
        points = [_point(period.start, rate) for period in item.stats.series for rate in period.rates if rate.measure == measure]
        all_series += [(item.version, points)] if points else []
    shown = all_series[: plots.SERIES]
    series = [plots.Series(_label(version), points) for version, points in shown]
    cells = {(version.cid, point.at): point for version, points in shown for point in points}
    picture = plots.over_time("plot-time", series, measure, over)
    return OverTime(picture, plots.periods_of(series), cells, [version for version, _ in shown], len(all_series) - len(shown))


def _beside(listed: Sequence[VersionView]) -> dict[str, Markup]:
    """One plot per measure with data."""
    plots_by_measure = {}
    for measure in MEASURES:
        points = [_point(_label(item.version), rate) for item in listed for rate in item.stats.rates if rate.measure == measure]
        if points:
            plots_by_measure[measure] = plots.side_by_side(f"plot-{measure}", points, measure)
    return plots_by_measure


def descent(versions: Sequence[BehaviourVersion]) -> list[VersionBranch]:
    """Each version below its parent, exactly once, even if the chain contains cycles."""
    cids = {version.cid for version in versions}
    below: dict[str | None, list[BehaviourVersion]] = {}
    for version in versions:
        below.setdefault(version.parent if version.parent in cids else None, []).append(version)
    branches: list[VersionBranch] = []
    visited: set[str] = set()
    waiting = [VersionBranch(version, 0) for version in reversed(below.get(None, []))]
    rest = list(versions)
    while waiting or rest:
        branch = waiting.pop() if waiting else VersionBranch(rest.pop(0), 0)
        if branch.version.cid in visited:
            continue
        visited.add(branch.version.cid)
        branches.append(branch)
        deeper = min(branch.depth + 1, _DEPTH)
        waiting += [VersionBranch(version, deeper) for version in reversed(below.get(branch.version.cid, []))]
    return branches


# One version


@page
def _version(visit: Visit) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    version = space.behaviour_version(visit.param("cid"))
    behaviour = library.get(version.name) if version.state != FOREIGN else None
    versions = {sibling.cid: sibling for sibling in behaviour.versions} if behaviour else {}
    current = versions.get(behaviour.current or "") if behaviour else None
    parent = versions.get(version.parent or "")
    against = current if visit.query("against") == CURRENT or parent is None else parent
    sums = index.sums({version.cid, *versions})
    stats = stats_of(version.cid, version.name, version.state, sums[version.cid])
    return show(
        visit,
        "behaviour_version.html",
        version=version,
        known=behaviour,
        by_agent=behaviour is not None and _told(behaviour, version, sums[version.cid]).by_agent,
        stats=stats,
        rates=_beside([VersionView(version, stats, by_agent=False)]),
        advice=advised(_suggestion(space, behaviour, sums) if behaviour else None),
        evidence=cited(visit, version.evidence[:EVIDENCE]),
        evidence_rest=max(0, len(version.evidence) - EVIDENCE),
        body_max=BODY_MAX,
        parent=parent,
        current=current,
        against=against,
        changes=_changes(library, against, version) if against and against.cid != version.cid else None,
        children=[sibling for sibling in versions.values() if sibling.parent == version.cid],
        span=lambda seconds: texts.ago(0, seconds),
        gaps=space.observation_gaps(),
        told=told,
    )


def _changes(library: BehaviourLibrary, one: BehaviourVersion, other: BehaviourVersion) -> FileView | None:
    """The diff between two versions; None if they are equal."""
    patch = library.diff(one, other)
    if not patch:
        return None
    hunks = patch.split("\n", 2)[2]
    names = f"{one.name}@{one.cid[:12]}", f"{other.name}@{other.cid[:12]}"
    views = diffs.view(f"diff --git a/{names[0]} b/{names[1]}\n--- a/{names[0]}\n+++ b/{names[1]}\n{hunks}").files
    return views[0] if views else None


# Two versions


@page
def _compare(visit: Visit) -> Response:
    space = visit.site.space
    library, _ = _inside(space)
    behaviour = library.get(visit.param("name"))
    before = _whole(library, behaviour, visit.query("before") or behaviour.current or "")
    others = [version.cid for version in behaviour.versions if version.cid != before and version.state != RETIRED]
    after = _whole(library, behaviour, visit.query("after") or next(reversed(others), ""))
    return show(
        visit,
        "behaviour_compare.html",
        known=behaviour,
        before=before,
        after=after,
        story=_story(space, behaviour, before, after) if before and after else None,
        least=_policy(space, behaviour.name).least,
        measures=MEASURES,
        gaps=space.observation_gaps(),
        told=told,
        signed=plots.signed,
    )


def _whole(library: BehaviourLibrary, behaviour: KnownBehaviour, text: str) -> str:
    """Expand an id prefix; an unknown one is kept, and its use raises the error."""
    with suppress(CliaError):
        return library.version(text, behaviour.name).cid
    return text


def _story(space: Space, behaviour: KnownBehaviour, before: str, after: str) -> ComparisonResult:
    library, index = _inside(space)
    policy = _policy(space, behaviour.name)
    try:
        one, other = library.version(before, behaviour.name), library.version(after, behaviour.name)
        if one.cid == other.cid:
            raise InvalidInput("cannot compare a version with itself", code="same-version", fields={"cid": one.cid})
    except CliaError as err:
        return ComparisonResult(error=err)
    sums = index.sums([one.cid, other.cid])
    stats = [stats_of(version.cid, version.name, version.state, sums[version.cid]) for version in (one, other)]
    comparisons = compared(sums[one.cid], sums[other.cid], policy.error)
    return ComparisonResult(
        Comparison(stats[0], stats[1], comparisons), [judged(comparison, policy.least) for comparison in comparisons]
    )


def judged(comparison: Compared, least: int) -> JudgedMeasure:
    """The probability and the verdict in words."""
    if comparison.better is None:
        which = "later" if comparison.before.n else "earlier"
        return JudgedMeasure(comparison, "", f"not enough data: the {which} one was never observed")
    later = comparison.better >= 0.5
    sure = plots.percent(min(_SURE, comparison.better if later else 1 - comparison.better))
    probable = f"{sure} likely that the {'later' if later else 'earlier'} is better"
    if min(comparison.before.n, comparison.after.n) < least:
        return JudgedMeasure(comparison, probable, f"not enough data: {least} observations of each are needed")
    verdict = {1: "the later is better", -1: "the earlier is better"}
    return JudgedMeasure(comparison, probable, verdict.get(comparison.proven, "no difference"))


# Actions


@form(ADMIN)
def _change(visit: Visit, posted: Posted) -> Response:
    space, name = visit.site.space, visit.param("name")

    def deed() -> str:
        _changed(visit, name, posted)
        return link("s", visit.site.name, "behaviours", name)

    library, _ = _inside(space)
    library.get(name)  # 404 if the behaviour does not exist
    return carry_out("change", posted, deed, lambda refused: _shown(visit, refused))


def _changed(visit: Visit, name: str, posted: Posted) -> None:
    space = visit.site.space
    what, version, expect = first(posted, "deed"), first(posted, "version"), optional(posted, "expect")
    if what not in DEEDS:
        raise InvalidInput(f"the action must be one of {', '.join(DEEDS)}", code="no-such-deed", fields={"field": "deed"})
    if not version:
        raise InvalidInput("select a version", code="version-needed", fields={"field": "version"})
    order: dict[str, Any] = {"expect": expect or NOTHING, "why": text_of(posted, "why"), "by": visit.user.by}
    if what == RETIRE:
        space.retire_behaviour(name, version, **order)
    else:
        order |= _evidence(visit, name, version) if what == ADOPT else {}
        space.adopt_behaviour(name, version, trial=what == "trial", **order)


def _evidence(visit: Visit, name: str, version: str) -> dict[str, Any]:
    """The evidence for adopting a suggested version, recorded in the chain as far as this clone has it."""
    objects = core_of(visit).objects
    with suppress(CliaError):
        suggestion = visit.site.space.suggest_behaviour(name)
        if suggestion.action == ADOPT and suggestion.cid == version:
            return {
                "evidence": [cid for cid in suggestion.evidence if objects.kind(cid) == "commit"],
                "measure": suggestion.measure,
            }
    return {}
