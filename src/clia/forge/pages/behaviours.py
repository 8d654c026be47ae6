"""Behaviour pages: versions, observations, suggestions and actions.

Invariant: viewing changes nothing and reads the observation index once. Only an administrator can adopt, try or retire a version,
and only if the current version is still the one that the page showed. Version contents are shown as text.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from clia.behaviours.library import NOTHING
from clia.behaviours.measures import COMMITS_KEPT, MEASURES, SPANS, WEEK, ObservationSum, compared, stats_of, usual_measure
from clia.behaviours.model import ADOPT, CURRENT, FOREIGN, MAY_RUN, RETIRE, RETIRED, TRIAL
from clia.behaviours.suggesting import suggest
from clia.errors import CliaError, InvalidInput
from clia.forge.pages.common import action, page, render
from clia.forge.pages.traces import cited
from clia.forge.rendering import diffs, plots, texts
from clia.space.behaviour_chains import PROPOSE
from clia.space.core import AGENT_EMAIL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response
    from starlette.routing import Route

    from clia.behaviours.library import BehaviourLibrary
    from clia.behaviours.model import BehaviourStats, BehaviourVersion, Compared, KnownBehaviour, Rate, Suggestion
    from clia.facade.space import Space
    from clia.forge.pages.common import RefusedForm, Visit
    from clia.forge.rendering.diffs import FileView

LISTED, VERSIONS, EVENTS, EVIDENCE, STRAYS, TRIALS = 300, 100, 100, 60, 50, 5
BODY_MAX = 200_000
"""Maximum characters of a body on its page."""
ACTIONS = (ADOPT, "trial", RETIRE)
_SURE = 0.9999  # shown probabilities stay below 100 %
_DEPTH = 8  # maximum indentation


class VersionView(NamedTuple):
    """A version with its statistics."""

    version: BehaviourVersion
    stats: BehaviourStats
    by_agent: bool  # proposed by an agent


def routes() -> list[Route]:
    at = "/behaviours/{name}"
    return [
        page("/behaviours", "behaviours", _behaviours),
        page(at, "behaviour", _behaviour),
        page(f"{at}/compare", "behaviour:compare", _compare),
        action(f"{at}/change", "behaviour:change", _change, _behaviour),
        page("/behaviour-versions/{cid}", "behaviour:version", _version),
    ]


# List


def _behaviours(visit: Visit) -> Response:
    service = visit.space.behaviours
    behaviours, sums = service.library.all(), service.observations.every()
    ours = {version.cid for behaviour in behaviours for version in behaviour.versions}
    strays = sorted(cid for cid in sums.keys() - ours if cid)
    return render(
        visit,
        "behaviours.html",
        rows=[(behaviour, _on_trial(behaviour), _suggestion(visit.space, behaviour, sums)) for behaviour in behaviours[:LISTED]],
        rest=max(0, len(behaviours) - LISTED),
        strays=[stats_of(cid, None, None, sums[cid]) for cid in strays[:STRAYS]],
        stray_count=len(strays),
        most=TRIALS,
        gaps=service.gaps(),
        rate_text=rate_text,
    )


def _on_trial(behaviour: KnownBehaviour) -> list[BehaviourVersion]:
    """The versions on trial, newest first."""
    return [version for version in reversed(behaviour.versions) if version.state == TRIAL]


def _current(behaviour: KnownBehaviour) -> BehaviourVersion | None:
    return next((version for version in behaviour.versions if version.cid == behaviour.current), None)


def _suggestion(space: Space, behaviour: KnownBehaviour, sums: Mapping[str, ObservationSum]) -> Suggestion | None:
    """The suggestion for a behaviour; None without a current version."""
    current = _current(behaviour)
    if current is None:
        return None
    sums_by_version = {version.cid: sums.get(version.cid, ObservationSum({}, {})) for version in behaviour.versions}
    return suggest(behaviour, current, sums_by_version, space.behaviours.policy(behaviour.name))


def _advice(suggestion: Suggestion | None) -> dict[str, str]:
    """The suggested action and version, empty if there is none: "keep" needs no action."""
    if suggestion is None or suggestion.action not in (ADOPT, RETIRE):
        return {"action": "", "cid": ""}
    return {"action": suggestion.action, "cid": suggestion.cid or ""}


# One behaviour


def _behaviour(visit: Visit, refused: RefusedForm | None = None) -> Response:
    service = visit.space.behaviours
    behaviour = service.library.get(visit.param("name"))
    sums = service.observations.sums(version.cid for version in behaviour.versions)
    suggestion = _suggestion(visit.space, behaviour, sums)
    over = visit.query("over") if visit.query("over") in SPANS else WEEK
    usual = suggestion.measure if suggestion else usual_measure(behaviour.kind)
    measure = visit.query("measure") if visit.query("measure") in MEASURES else usual
    every = [_version_view(behaviour, version, sums[version.cid], over) for version in behaviour.versions]
    advice = _advice(suggestion)
    listed = _listed(every, advice["cid"])
    candidates = suggestion.candidates if suggestion else ()
    return render(
        visit,
        "behaviour.html",
        behaviour=behaviour,
        versions=listed,
        version_rest=len(every) - len(listed),
        current=_current(behaviour),
        trials=_on_trial(behaviour),
        most=TRIALS,
        suggestion=suggestion,
        advice=advice,
        waiting_for=[candidate for candidate in candidates if candidate.needed and candidate.state in MAY_RUN],
        evidence=cited(visit, suggestion.evidence if suggestion else ()),
        kept=COMMITS_KEPT,
        measure=measure,
        measures=MEASURES,
        over=over,
        spans=SPANS,
        time=_over_time(listed, measure, over),
        beside=_beside(listed),
        lineage=descent(behaviour.versions)[:VERSIONS],
        events=behaviour.history[:EVENTS],
        event_rest=max(0, len(behaviour.history) - EVENTS),
        event_evidence={event.commit: cited(visit, event.evidence[:10]) for event in behaviour.history[:EVENTS]},
        gaps=service.gaps(),
        rate_text=rate_text,
        plots=plots,
        refused=refused,
    )


def _version_view(
    behaviour: KnownBehaviour, version: BehaviourVersion, sums: ObservationSum, over: str | None = None
) -> VersionView:
    stats = stats_of(version.cid, version.name, version.state, sums, over)
    proposed = next((event for event in reversed(behaviour.history) if event.cid == version.cid), None)
    by_agent = proposed is not None and proposed.event == PROPOSE and proposed.by.endswith(f"{AGENT_EMAIL.format('')}>")
    return VersionView(version, stats, by_agent)


def _listed(every: Sequence[VersionView], suggested: str) -> list[VersionView]:
    """Versions for the page: current, suggested, on trial, then the others, newest first."""

    def place(version_view: VersionView) -> int:
        version = version_view.version
        return 0 if version.state == CURRENT else 1 if version.cid == suggested else 2 if version.state == TRIAL else 3

    newest = every[::-1]
    return sorted(newest, key=place)[:VERSIONS]


def rate_text(rate: Rate | None) -> str:
    """A rate with its interval and sample size, as text."""
    return "never observed" if rate is None or rate.rate is None else _point("", rate).summary()


def _point(at: str, rate: Rate) -> plots.Point:
    return plots.Point(at, rate.rate or 0.0, rate.low, rate.high, rate.n)


def _label(version: BehaviourVersion) -> str:
    return f"{version.cid[:8]} {version.state}"


def _over_time(listed: Sequence[VersionView], measure: str, over: str) -> dict[str, Any]:
    """Rates over time of the first versions with data: a plot, and the same numbers as a table."""
    observed = []
    for version, stats, _ in listed:
        points = [_point(period.start, rate) for period in stats.series for rate in period.rates if rate.measure == measure]
        observed += [(version, points)] if points else []
    shown = observed[: plots.SERIES]
    series = [plots.Series(_label(version), points) for version, points in shown]
    return {
        "picture": plots.over_time("plot-time", series, measure, over),
        "periods": plots.periods_of(series),
        "cells": {(version.cid, point.at): point for version, points in shown for point in points},
        "versions": [version for version, _ in shown],
        "rest": len(observed) - len(shown),
    }


def _beside(listed: Sequence[VersionView]) -> dict[str, Markup]:
    """One plot per measure with data."""
    rates = [(_label(view.version), rate) for view in listed for rate in view.stats.rates]
    points = {measure: [_point(label, rate) for label, rate in rates if rate.measure == measure] for measure in MEASURES}
    return {
        measure: plots.side_by_side(f"plot-{measure}", by_version, measure) for measure, by_version in points.items() if by_version
    }


def descent(versions: Sequence[BehaviourVersion]) -> list[tuple[BehaviourVersion, int]]:
    """Each version below its parent, with its depth; exactly once, even if the chain contains cycles."""
    cids = {version.cid for version in versions}
    below: dict[str | None, list[BehaviourVersion]] = {}
    for version in versions:
        below.setdefault(version.parent if version.parent in cids else None, []).append(version)
    depths: dict[str, tuple[BehaviourVersion, int]] = {}
    waiting = [(version, 0) for version in (*reversed(versions), *reversed(below.get(None, [])))]
    while waiting:
        version, depth = waiting.pop()
        if version.cid not in depths:
            depths[version.cid] = version, depth
            waiting += [(child, min(depth + 1, _DEPTH)) for child in reversed(below.get(version.cid, []))]
    return list(depths.values())


# One version


def _version(visit: Visit) -> Response:
    service = visit.space.behaviours
    version = service.version(visit.param("cid"))
    behaviour = service.library.get(version.name) if version.state != FOREIGN else None
    versions = {sibling.cid: sibling for sibling in behaviour.versions} if behaviour else {}
    current = _current(behaviour) if behaviour else None
    parent = versions.get(version.parent or "")
    against = current if visit.query("against") == CURRENT or parent is None else parent
    sums = service.observations.sums({version.cid, *versions})
    stats = stats_of(version.cid, version.name, version.state, sums[version.cid])
    return render(
        visit,
        "behaviour_version.html",
        version=version,
        behaviour=behaviour,
        by_agent=behaviour is not None and _version_view(behaviour, version, sums[version.cid]).by_agent,
        stats=stats,
        rates=_beside([VersionView(version, stats, by_agent=False)]),
        advice=_advice(_suggestion(visit.space, behaviour, sums) if behaviour else None),
        evidence=cited(visit, version.evidence[:EVIDENCE]),
        evidence_rest=max(0, len(version.evidence) - EVIDENCE),
        body_max=BODY_MAX,
        parent=parent,
        current=current,
        against=against,
        changes=_changes(service.library, against, version) if against and against.cid != version.cid else None,
        children=[sibling for sibling in versions.values() if sibling.parent == version.cid],
        span=lambda seconds: texts.ago(0, seconds),
        gaps=service.gaps(),
        rate_text=rate_text,
    )


def _changes(library: BehaviourLibrary, before: BehaviourVersion, after: BehaviourVersion) -> FileView | None:
    """The diff between two versions; None if they are equal."""
    patch = library.diff(before, after)
    if not patch:
        return None
    hunks = patch.split("\n", 2)[2]
    names = f"{before.name}@{before.cid[:12]}", f"{after.name}@{after.cid[:12]}"
    views = diffs.view(f"diff --git a/{names[0]} b/{names[1]}\n--- a/{names[0]}\n+++ b/{names[1]}\n{hunks}").files
    return views[0] if views else None


# Two versions


def _compare(visit: Visit) -> Response:
    service = visit.space.behaviours
    behaviour = service.library.get(visit.param("name"))
    before = _whole(service.library, behaviour, visit.query("before") or behaviour.current or "")
    others = [version.cid for version in behaviour.versions if version.cid != before and version.state != RETIRED]
    after = _whole(service.library, behaviour, visit.query("after") or next(reversed(others), ""))
    comparison: dict[str, Any] = {"stats": None, "judgements": [], "problem": None}
    if before and after:
        try:
            comparison |= _compared(visit.space, behaviour, before, after)
        except CliaError as err:
            comparison["problem"] = err
    return render(
        visit,
        "behaviour_compare.html",
        behaviour=behaviour,
        before=before,
        after=after,
        least=service.policy(behaviour.name).least,
        gaps=service.gaps(),
        rate_text=rate_text,
        signed=plots.signed,
        **comparison,
    )


def _whole(library: BehaviourLibrary, behaviour: KnownBehaviour, text: str) -> str:
    """Expand an id prefix; an unknown one is kept, and its use raises the error."""
    with suppress(CliaError):
        return library.version(text, behaviour.name).cid
    return text


def _compared(space: Space, behaviour: KnownBehaviour, before: str, after: str) -> dict[str, Any]:
    """The statistics of two versions, and their comparison by each measure, in words."""
    service, policy = space.behaviours, space.behaviours.policy(behaviour.name)
    one, other = (service.library.version(text, behaviour.name) for text in (before, after))
    if one.cid == other.cid:
        raise InvalidInput("cannot compare a version with itself", code="same-version", fields={"cid": one.cid})
    sums = service.observations.sums([one.cid, other.cid])
    stats = [stats_of(version.cid, version.name, version.state, sums[version.cid]) for version in (one, other)]
    measures = compared(sums[one.cid], sums[other.cid], policy.error)
    return {"stats": stats, "judgements": [(measure, *judged(measure, policy.least)) for measure in measures]}


def judged(comparison: Compared, least: int) -> tuple[str, str]:
    """The probability and the verdict in words."""
    if comparison.better is None:
        which = "later" if comparison.before.n else "earlier"
        return "", f"not enough data: the {which} one was never observed"
    later = comparison.better >= 0.5
    sure = plots.percent(min(_SURE, comparison.better if later else 1 - comparison.better))
    probable = f"{sure} likely that the {'later' if later else 'earlier'} is better"
    if min(comparison.before.n, comparison.after.n) < least:
        return probable, f"not enough data: {least} observations of each are needed"
    return probable, {1: "the later is better", -1: "the earlier is better"}.get(comparison.proven, "no difference")


# Actions


def _change(visit: Visit) -> str:
    service, name = visit.space.behaviours, visit.param("name")
    service.library.get(name)  # 404 if the behaviour does not exist
    action, version = visit.field("action"), visit.field("version")
    if action not in ACTIONS:
        raise InvalidInput(f"the action must be one of {', '.join(ACTIONS)}", code="no-such-deed", fields={"field": "action"})
    if not version:
        raise InvalidInput("select a version", code="version-needed", fields={"field": "version"})
    expect = visit.field("expect").strip() or NOTHING
    order: dict[str, Any] = {"expect": expect, "why": visit.text("why"), "by": visit.user.by}
    if action == RETIRE:
        service.retire(name, version, **order)
    else:
        order |= _evidence(visit, name, version) if action == ADOPT else {}
        service.adopt(name, version, trial=action == "trial", **order)
    return visit.address("behaviours", name)


def _evidence(visit: Visit, name: str, version: str) -> dict[str, Any]:
    """The evidence for adopting a suggested version, recorded in the chain as far as this clone has it."""
    with suppress(CliaError):
        suggestion = visit.space.behaviours.suggest(name)
        if suggestion.action == ADOPT and suggestion.cid == version:
            evidence = [cid for cid in suggestion.evidence if visit.space.views.has_commit(cid)]
            return {"evidence": evidence, "measure": suggestion.measure}
    return {}
