"""Behaviours: their versions, what was observed of each, what that suggests, and what a person does about it.

Invariant: looking changes nothing of the record, and reads the index of observations once. What lets a version run, or stops
it, takes an administrator, and insists on what was current when the page was made. All that a version holds is shown as text.
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
from clia.forge.pages.common import ADMIN, Posted, Refused, carry_out, core_of, first, form, link, optional, page, show, text_of
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
"""Characters of a body on its own page."""
DEEDS = (ADOPT, "trial", RETIRE)
_SURE = 0.9999  # no observation makes anything certain
_DEPTH = 8  # how far a lineage is indented


class Row(NamedTuple):
    """A behaviour in the list."""

    known: KnownBehaviour
    proposals: int
    trials: Sequence[BehaviourVersion]
    rate: Rate | None  # by the usual measure, of the current version
    suggestion: Suggestion | None  # None: nothing is current


class Told(NamedTuple):
    """A version, and what was observed of it."""

    version: BehaviourVersion
    stats: BehaviourStats
    by_agent: bool  # an agent proposed it


class Advised(NamedTuple):
    """What is suggested that somebody does, and to which version; both empty where nothing is."""

    deed: str = ""
    cid: str = ""


class Branch(NamedTuple):
    """A version in the lineage."""

    version: BehaviourVersion
    depth: int


class OverTime(NamedTuple):
    """The rates of some versions by one measure over time: the picture, and the table that says the same."""

    picture: Markup
    periods: Sequence[str]
    cells: Mapping[tuple[str, str], plots.Point]  # by version and period
    shown: Sequence[BehaviourVersion]
    rest: int  # versions that are in neither


class Judged(NamedTuple):
    """One measure of two versions, in words."""

    made: Compared
    probable: str
    verdict: str


class Story(NamedTuple):
    """What a comparison came to; one of both."""

    found: Comparison | None = None
    judged: Sequence[Judged] = ()
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
    return space._library, space._observed  # noqa: SLF001  # each verb reads the index anew, and a page needs several


def _policy(space: Space, name: str) -> Policy:
    return space._policy(name)  # noqa: SLF001  # as above


# All of them


@page
def _behaviours(visit: Visit) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    known, sums = library.all(), index.every()
    ours = {each.cid for behaviour in known for each in behaviour.versions}
    strays = sorted(cid for cid in sums.keys() - ours if cid)
    return show(
        visit,
        "behaviours.html",
        rows=[_row(space, each, sums) for each in known[:LISTED]],
        rest=max(0, len(known) - LISTED),
        strays=[stats_of(cid, None, None, sums[cid]) for cid in strays[:STRAYS]],
        stray_count=len(strays),
        most=TRIALS,
        gaps=space.observation_gaps(),
        told=told,
    )


def _row(space: Space, known: KnownBehaviour, sums: Mapping[str, ObservationSum]) -> Row:
    proposals = sum(each.state == PROPOSED for each in known.versions)
    suggestion = _suggestion(space, known, sums)
    return Row(known, proposals, _on_trial(known), suggestion.current if suggestion else None, suggestion)


def _on_trial(known: KnownBehaviour) -> list[BehaviourVersion]:
    """The versions that run by their id only, newest first."""
    return [each for each in reversed(known.versions) if each.state == TRIAL]


def _suggestion(space: Space, known: KnownBehaviour, sums: Mapping[str, ObservationSum]) -> Suggestion | None:
    current = next((each for each in known.versions if each.cid == known.current), None)
    if current is None:
        return None
    found = {each.cid: sums.get(each.cid, ObservationSum({}, {})) for each in known.versions}
    return suggest(known, current, found, _policy(space, known.name))


def advised(suggestion: Suggestion | None) -> Advised:
    """To keep a version takes no deed."""
    if suggestion is None or suggestion.action not in (ADOPT, RETIRE):
        return Advised()
    return Advised(suggestion.action, suggestion.cid or "")


# One of them


@page
def _behaviour(visit: Visit) -> Response:
    return _shown(visit)


def _shown(visit: Visit, refused: Refused | None = None) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    known = library.get(visit.param("name"))
    sums = index.sums(each.cid for each in known.versions)
    suggestion = _suggestion(space, known, sums)
    over = visit.query("over") if visit.query("over") in SPANS else WEEK
    usual = suggestion.measure if suggestion else usual_measure(known.kind)
    measure = visit.query("measure") if visit.query("measure") in MEASURES else usual
    every = [_told(known, each, sums[each.cid], over) for each in known.versions]
    advice = advised(suggestion)
    listed = _listed(every, advice.cid)
    return show(
        visit,
        "behaviour.html",
        refused.status if refused else 200,
        known=known,
        versions=listed,
        version_rest=len(every) - len(listed),
        current=next((each for each in known.versions if each.cid == known.current), None),
        trials=_on_trial(known),
        most=TRIALS,
        suggestion=suggestion,
        advice=advice,
        waiting_for=[each for each in suggestion.candidates if each.needed and each.state in MAY_RUN] if suggestion else [],
        evidence=cited(visit, suggestion.evidence if suggestion else ()),
        kept=COMMITS_KEPT,
        measure=measure,
        measures=MEASURES,
        observed={rate.measure for each in every for rate in each.stats.rates},
        over=over,
        spans=SPANS,
        time=_over_time(listed, measure, over),
        beside=_beside(listed),
        lineage=descent(known.versions)[:VERSIONS],
        events=known.history[:EVENTS],
        event_rest=max(0, len(known.history) - EVENTS),
        event_evidence={each.commit: cited(visit, each.evidence[:10]) for each in known.history[:EVENTS]},
        gaps=space.observation_gaps(),
        told=told,
        plots=plots,
        refused=refused,
    )


def _told(known: KnownBehaviour, version: BehaviourVersion, found: ObservationSum, over: str | None = None) -> Told:
    stats = stats_of(version.cid, version.name, version.state, found, over)
    proposed = next((each for each in reversed(known.history) if each.cid == version.cid), None)
    return Told(version, stats, proposed is not None and proposed.event == PROPOSE and is_agents(proposed.by))


def is_agents(by: str) -> bool:
    """Whether an agent and no person signed something."""
    return by.endswith(f"{AGENT_EMAIL.format('')}>")


def _listed(every: Sequence[Told], suggested: str) -> list[Told]:
    """The current version first, what is suggested, what is on trial, then the others, newest first; as many as a page holds."""

    def place(each: Told) -> int:
        version = each.version
        return 0 if version.state == CURRENT else 1 if version.cid == suggested else 2 if version.state == TRIAL else 3

    newest = every[::-1]
    return sorted(newest, key=place)[:VERSIONS]


def told(rate: Rate | None) -> str:
    """A rate in words, with its interval and its count."""
    return "never observed" if rate is None or rate.rate is None else _point("", rate).told()


def _point(at: str, rate: Rate) -> plots.Point:
    return plots.Point(at, rate.rate or 0.0, rate.low, rate.high, rate.n)


def _label(version: BehaviourVersion) -> str:
    return f"{version.cid[:8]} {version.state}"


def _over_time(listed: Sequence[Told], measure: str, over: str) -> OverTime:
    """Of the versions of which there is something to tell, the first few."""
    found: list[tuple[BehaviourVersion, list[plots.Point]]] = []
    for each in listed:
        points = [_point(period.start, rate) for period in each.stats.series for rate in period.rates if rate.measure == measure]
        found += [(each.version, points)] if points else []
    shown = found[: plots.SERIES]
    series = [plots.Series(_label(version), points) for version, points in shown]
    cells = {(version.cid, point.at): point for version, points in shown for point in points}
    picture = plots.over_time("plot-time", series, measure, over)
    return OverTime(picture, plots.periods_of(series), cells, [version for version, _ in shown], len(found) - len(shown))


def _beside(listed: Sequence[Told]) -> dict[str, Markup]:
    """A plot a measure of which any version has something."""
    made = {}
    for measure in MEASURES:
        points = [_point(_label(each.version), rate) for each in listed for rate in each.stats.rates if rate.measure == measure]
        if points:
            made[measure] = plots.side_by_side(f"plot-{measure}", points, measure)
    return made


def descent(versions: Sequence[BehaviourVersion]) -> list[Branch]:
    """Each version below the one that it came from, once, whatever somebody wrote into a chain."""
    known = {each.cid for each in versions}
    below: dict[str | None, list[BehaviourVersion]] = {}
    for each in versions:
        below.setdefault(each.parent if each.parent in known else None, []).append(each)
    made: list[Branch] = []
    seen: set[str] = set()
    waiting = [Branch(each, 0) for each in reversed(below.get(None, []))]
    rest = list(versions)
    while waiting or rest:
        branch = waiting.pop() if waiting else Branch(rest.pop(0), 0)
        if branch.version.cid in seen:
            continue
        seen.add(branch.version.cid)
        made.append(branch)
        deeper = min(branch.depth + 1, _DEPTH)
        waiting += [Branch(each, deeper) for each in reversed(below.get(branch.version.cid, []))]
    return made


# One version


@page
def _version(visit: Visit) -> Response:
    space = visit.site.space
    library, index = _inside(space)
    version = space.behaviour_version(visit.param("cid"))
    known = library.get(version.name) if version.state != FOREIGN else None
    there = {each.cid: each for each in known.versions} if known else {}
    current = there.get(known.current or "") if known else None
    parent = there.get(version.parent or "")
    against = current if visit.query("against") == CURRENT or parent is None else parent
    sums = index.sums({version.cid, *there})
    stats = stats_of(version.cid, version.name, version.state, sums[version.cid])
    return show(
        visit,
        "behaviour_version.html",
        version=version,
        known=known,
        by_agent=known is not None and _told(known, version, sums[version.cid]).by_agent,
        stats=stats,
        rates=_beside([Told(version, stats, by_agent=False)]),
        advice=advised(_suggestion(space, known, sums) if known else None),
        evidence=cited(visit, version.evidence[:EVIDENCE]),
        evidence_rest=max(0, len(version.evidence) - EVIDENCE),
        body_max=BODY_MAX,
        parent=parent,
        current=current,
        against=against,
        changes=_changes(library, against, version) if against and against.cid != version.cid else None,
        children=[each for each in there.values() if each.parent == version.cid],
        span=lambda seconds: texts.ago(0, seconds),
        gaps=space.observation_gaps(),
        told=told,
    )


def _changes(library: BehaviourLibrary, one: BehaviourVersion, other: BehaviourVersion) -> FileView | None:
    """What a version changes in another; None where nothing."""
    patch = library.diff(one, other)
    if not patch:
        return None
    hunks = patch.split("\n", 2)[2]
    names = f"{one.name}@{one.cid[:12]}", f"{other.name}@{other.cid[:12]}"
    found = diffs.view(f"diff --git a/{names[0]} b/{names[1]}\n--- a/{names[0]}\n+++ b/{names[1]}\n{hunks}").files
    return found[0] if found else None


# Two versions


@page
def _compare(visit: Visit) -> Response:
    space = visit.site.space
    library, _ = _inside(space)
    known = library.get(visit.param("name"))
    before = _whole(library, known, visit.query("before") or known.current or "")
    others = [each.cid for each in known.versions if each.cid != before and each.state != RETIRED]
    after = _whole(library, known, visit.query("after") or next(reversed(others), ""))
    return show(
        visit,
        "behaviour_compare.html",
        known=known,
        before=before,
        after=after,
        story=_story(space, known, before, after) if before and after else None,
        least=_policy(space, known.name).least,
        measures=MEASURES,
        gaps=space.observation_gaps(),
        told=told,
        signed=plots.signed,
    )


def _whole(library: BehaviourLibrary, known: KnownBehaviour, text: str) -> str:
    """The version that the start of an id means; what means none stays, and is told where it is used."""
    with suppress(CliaError):
        return library.version(text, known.name).cid
    return text


def _story(space: Space, known: KnownBehaviour, before: str, after: str) -> Story:
    library, index = _inside(space)
    policy = _policy(space, known.name)
    try:
        one, other = library.version(before, known.name), library.version(after, known.name)
        if one.cid == other.cid:
            raise InvalidInput("a version cannot be compared with itself", code="same-version", fields={"cid": one.cid})
    except CliaError as err:
        return Story(error=err)
    sums = index.sums([one.cid, other.cid])
    stats = [stats_of(each.cid, each.name, each.state, sums[each.cid]) for each in (one, other)]
    made = compared(sums[one.cid], sums[other.cid], policy.error)
    return Story(Comparison(stats[0], stats[1], made), [judged(each, policy.least) for each in made])


def judged(made: Compared, least: int) -> Judged:
    """The probability in words, and what may be concluded."""
    if made.better is None:
        which = "later" if made.before.n else "earlier"
        return Judged(made, "", f"not enough data: the {which} one was never observed")
    later = made.better >= 0.5
    sure = plots.percent(min(_SURE, made.better if later else 1 - made.better))
    probable = f"{sure} probable that the {'later' if later else 'earlier'} is better"
    if min(made.before.n, made.after.n) < least:
        return Judged(made, probable, f"not enough data: {least} observations of each are needed")
    verdict = {1: "the later is shown to be better", -1: "the earlier is shown to be better"}
    return Judged(made, probable, verdict.get(made.proven, "no difference is shown"))


# What can be done


@form(ADMIN)
def _change(visit: Visit, posted: Posted) -> Response:
    space, name = visit.site.space, visit.param("name")

    def deed() -> str:
        _changed(visit, name, posted)
        return link("s", visit.site.name, "behaviours", name)

    library, _ = _inside(space)
    library.get(name)  # the address of a form may be wrong too
    return carry_out("change", posted, deed, lambda refused: _shown(visit, refused))


def _changed(visit: Visit, name: str, posted: Posted) -> None:
    space = visit.site.space
    what, version, expect = first(posted, "deed"), first(posted, "version"), optional(posted, "expect")
    if what not in DEEDS:
        raise InvalidInput(f"one can {', '.join(DEEDS)}", code="no-such-deed", fields={"field": "deed"})
    if not version:
        raise InvalidInput("no version is chosen: say which one you mean", code="version-needed", fields={"field": "version"})
    order: dict[str, Any] = {"expect": expect or NOTHING, "why": text_of(posted, "why"), "by": visit.user.by}
    if what == RETIRE:
        space.retire_behaviour(name, version, **order)
    else:
        order |= _evidence(visit, name, version) if what == ADOPT else {}
        space.adopt_behaviour(name, version, trial=what == "trial", **order)


def _evidence(visit: Visit, name: str, version: str) -> dict[str, Any]:
    """What speaks for a version where that is what is suggested: it stays in the chain, as far as this clone has it."""
    objects = core_of(visit).objects
    with suppress(CliaError):
        found = visit.site.space.suggest_behaviour(name)
        if found.action == ADOPT and found.cid == version:
            return {"evidence": [cid for cid in found.evidence if objects.kind(cid) == "commit"], "measure": found.measure}
    return {}
