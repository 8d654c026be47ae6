"""Suggestions from observations.

Invariant: nothing is suggested with fewer observations than required. Among equally good versions, a change is suggested with
at most the stated probability, however often suggestions are requested. The evidence lists commits.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.behaviours.measures import MEASURES, check_measure, compare, count_of, newest_commits, rate_of, totals, usual_measure
from clia.behaviours.model import ADOPT, KEEP, MAY_RUN, NOT_ENOUGH, RETIRE, RETIRED, Candidate, Suggestion
from clia.behaviours.observing import LANDED, REVERTED
from clia.behaviours.statistics import ERROR, LEAST, Count, still_needed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.behaviours.measures import ObservationSum
    from clia.behaviours.model import BehaviourVersion, KnownBehaviour, Rate


class Policy(NamedTuple):
    """How a behaviour is judged. ``adopt``: adopt without asking a person."""

    measure: str | None = None
    least: int = LEAST
    error: float = ERROR
    adopt: bool = False


def suggest(behaviour: KnownBehaviour, current: BehaviourVersion, sums: Mapping[str, ObservationSum], policy: Policy) -> Suggestion:
    """Compare the current version with every other that can be adopted."""
    measure = check_measure(policy.measure or usual_measure(behaviour.kind))
    others = [version for version in behaviour.versions if version.cid != current.cid and version.state != RETIRED]
    # Divide the error among the comparisons. Proposals are not counted, so that they do not raise the threshold,
    error = policy.error / max(1, sum(version.state in MAY_RUN for version in others))
    own = count_of(totals(sums[current.cid].days), measure)
    candidates = [_candidate(version, measure, own, sums[version.cid], error) for version in others]
    # and are never suggested.
    enough = [
        candidate
        for candidate in candidates
        if candidate.state in MAY_RUN and min(own.n, candidate.compared.after.n) >= policy.least
    ]
    action, chosen = _chosen(enough, own.n >= policy.least, candidates)
    cids = [current.cid] + [candidate.cid for candidate in ([chosen] if chosen else enough or candidates)]
    return Suggestion(
        name=behaviour.name,
        action=action,
        cid=chosen.cid if chosen else None if action == NOT_ENOUGH else current.cid,
        measure=measure,
        current=rate_of(measure, own),
        candidates=tuple(candidates),
        why=_why(action, rate_of(measure, own), chosen, candidates, policy),
        evidence=_evidence([sums[cid] for cid in cids], measure),
        least=policy.least,
        error=policy.error,
        expect=current.cid,
    )


def _candidate(version: BehaviourVersion, measure: str, own: Count, observed: ObservationSum, error: float) -> Candidate:
    count = count_of(totals(observed.days), measure)
    comparison = compare(measure, own, count, error)
    return Candidate(version.cid, version.state, comparison, None if comparison.proven else still_needed(own, count, error))


def _chosen(enough: Sequence[Candidate], is_known: bool, all_: Sequence[Candidate]) -> tuple[str, Candidate | None]:
    ahead = [candidate for candidate in enough if candidate.compared.proven > 0]
    if ahead:
        return ADOPT, max(ahead, key=_rate)
    behind = [candidate for candidate in enough if candidate.compared.proven < 0]
    if behind:
        return RETIRE, min(behind, key=_rate)
    return (KEEP if enough or (is_known and not all_) else NOT_ENOUGH), None


def _rate(candidate: Candidate) -> float:
    return candidate.compared.after.rate or 0.0


def _why(action: str, own: Rate, chosen: Candidate | None, candidates: Sequence[Candidate], policy: Policy) -> str:
    criterion = f"{own.measure} ({MEASURES[own.measure].says})"
    if chosen is not None:
        side = "better" if action == ADOPT else "worse"
        rate = chosen.compared.after
        return f"{chosen.cid[:12]} is proven {side} by {criterion}: {rate_text(rate)}, the current version {rate_text(own)}"
    if action == KEEP:
        if not candidates:
            return f"no other version; the current one by {criterion}: {rate_text(own)}"
        return f"no version is proven better or worse than the current one by {criterion}: {rate_text(own)}"
    singular = policy.least == 1
    needed = f"{policy.least} observation{'' if singular else 's'} of each {'is' if singular else 'are'} needed by {criterion}"
    others = "".join(f", {candidate.cid[:12]} {candidate.compared.after.n}" for candidate in candidates) or ", no other version"
    return f"not enough data: {needed}; the current version has {own.n or 'none'}{others}"


def rate_text(rate: Rate) -> str:
    """A rate with its interval and count, as text."""
    if rate.rate is None:
        return "never observed"
    return f"{percentage(rate.rate)} % of {rate.n} ({percentage(rate.low)} to {percentage(rate.high)} %)"


def percentage(value: float) -> str:
    """A share in percent; only exact 0 and 1 are shown as 0 and 100."""
    text = f"{100 * value:.0f}"
    if text not in ("0", "100") or value in (0, 1):
        return text
    closer = f"{100 * value:.1f}"
    return {"0.0": "<0.1", "100.0": ">99.9"}.get(closer, closer)


def _evidence(sums: Sequence[ObservationSum], measure: str) -> tuple[str, ...]:
    """The newest good and bad commits of each version."""
    definition = MEASURES[measure]
    keys = (*definition.good, *definition.bad) if measure != "kept" else (LANDED, REVERTED)
    commits: list[Sequence[Any]] = []
    for observed in sums:
        for key in keys:
            commits += newest_commits(observed.commits.get(key, ()))
    return tuple(dict.fromkeys(origin for _, origin in sorted(map(tuple, commits), reverse=True)))
