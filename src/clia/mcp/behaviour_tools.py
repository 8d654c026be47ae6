"""Behaviour tools: read evidence and propose better versions.

Invariant: no tool adopts, retires, replays or runs a version; only a person can. A proposal is recorded under the agent's name.
Text written by others is passed through and never followed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote

from clia.api.derivation import record_of
from clia.api.shapes import Listed
from clia.behaviours.measures import MEASURES
from clia.behaviours.model import CURRENT, PROPOSED, RETIRED, BehaviourStats, BehaviourVersion, Suggestion
from clia.behaviours.observing import REVERTED
from clia.errors import CliaError
from clia.mcp.toolbox import ResultShape, served, tool
from clia.values import refs as names
from clia.values.typed_objects import PROMPT
from clia.verbs import Count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.behaviours.model import KnownBehaviour
    from clia.facade.space import Space
    from clia.mcp.calls import ToolCall

BAD: dict[str, str] = {key: name for name, measure in MEASURES.items() for key in measure.bad} | {REVERTED: "kept"}
"""Observations of failed work, and the measure that each counts against."""
FAILURES_MAX = 50
TEXT_MAX = 2000
PATCH_MAX = 200_000
_SUMMARY = ResultShape(name=str, kind=str, cid=str | None, by=str, at=int, why=str, versions=Count, proposed=Count)
_OUTLINE = ResultShape(
    **{name: shape for name, shape in record_of(BehaviourVersion).fields.items() if name not in ("name", "kind", "body")}
)


def current(behaviour: KnownBehaviour) -> BehaviourVersion | None:
    return next((version for version in behaviour.versions if version.state == CURRENT), None)


def prompts(space: Space) -> list[BehaviourVersion]:
    """The current version of every prompt that has one."""
    versions = [current(behaviour) for behaviour in space.behaviours() if behaviour.kind == PROMPT]
    return [version for version in versions if version is not None]


def address(name: str, suffix: str = "evidence") -> str:
    return f"clia://behaviours/{quote(name, safe='')}/{suffix}"


# Evidence


def evidence(space: Space, name: str) -> dict[str, Any]:
    """The evidence on a behaviour: the rates of each version, the suggestion, and recent failures."""
    behaviour = space.behaviours.get(name)
    stats = {stat.cid: record_of(BehaviourStats).encode(stat) for stat in space.behaviours.stats(name)}
    versions = [
        _OUTLINE.encode(version._asdict()) | {"observed": stats.get(version.cid), "body": address(name, f"versions/{version.cid}")}
        for version in behaviour.versions
    ]
    adopted = current(behaviour) is not None
    return {
        "behaviour": name,
        "kind": behaviour.kind,
        "current": behaviour.current,
        "measures": {key: measure.says for key, measure in MEASURES.items()},
        "versions": versions,
        "suggestion": record_of(Suggestion).encode(space.behaviours.suggest(name)) if adopted else None,
        "went_badly": _failures(space, behaviour),
        "gaps": space.behaviours.gaps(),
    }


def _failures(space: Space, behaviour: KnownBehaviour) -> list[dict[str, Any]]:
    """The newest commits and events that count against a runnable version, newest first."""
    sums = space.behaviours.observations.sums([version.cid for version in behaviour.versions if version.state != RETIRED])
    bad = {
        (at, origin, key, cid)
        for cid, counts in sums.items()
        for key, observed in counts.commits.items()
        if key in BAD
        for at, origin in observed
    }
    newest = sorted(bad, reverse=True)[:FAILURES_MAX]
    return [
        {"version": cid, "measure": BAD[key], "saw": key, "at": at, "commit": origin, **_failure(space, origin)}
        for at, origin, key, cid in newest
    ]


def _failure(space: Space, origin: str) -> dict[str, Any]:
    """The reason for a failure, from its commit or event."""
    try:
        commit = space.show(origin)
        event = space.views.event(origin) or {}
    except CliaError:  # no longer in this clone
        return {"agent": None, "subject": "", "why": "", "outcome": None, "session": None, "trace": None}
    text = {key: value for key, value in event.items() if isinstance(value, str)}
    paths = event.get("paths")
    reason = f"conflicts in {', '.join(map(str, paths))}" if isinstance(paths, list) else text.get("reason")
    return {
        "agent": commit.agent or text.get("from") or text.get("agent"),
        "subject": commit.subject[:TEXT_MAX],
        "why": (reason or commit.message.partition("\n")[2].strip())[:TEXT_MAX],
        "outcome": commit.meta.get("outcome", commit.value),
        "session": text.get("session"),
        "trace": _trace_address(space, commit.cid, text.get("theirs")),  # theirs: the head whose merge was refused
    }


def _trace_address(space: Space, *cids: str | None) -> str | None:
    for cid in cids:
        with suppress(CliaError):
            if cid is not None and space.traces.of(cid) is not None:
                return f"clia://traces/{cid}"
    return None


# Tools


@tool("Behaviours of this space", "behaviours", returns=ResultShape(behaviours=Listed(_SUMMARY)))
def behaviours(call: ToolCall, kind: Annotated[str | None, "session-flow or prompt (default: both)"] = None) -> Mapping[str, Any]:
    """A behaviour is a flow, which sessions run, or a prompt. Shows its current version (cid is null if none is adopted) and the
    number of versions and open proposals."""
    return {"behaviours": [_summary(behaviour) for behaviour in call.space.behaviours() if kind in (None, behaviour.kind)]}


def _summary(behaviour: KnownBehaviour) -> dict[str, Any]:
    adopted = current(behaviour)
    return {
        **(adopted or behaviour.versions[-1])._asdict(),
        "cid": None if adopted is None else adopted.cid,
        "versions": len(behaviour.versions),
        "proposed": sum(version.state == PROPOSED for version in behaviour.versions),
    }


@tool(
    "One behaviour",
    "behaviour_version",
    names={"text": "behaviour"},
    returns=ResultShape(version="behaviour_version", versions=Listed(_OUTLINE), evidence=str | None),
)
def behaviour_show(call: ToolCall, text: str) -> Mapping[str, Any]:
    """Includes its full body and a list of the other versions: state (current, trial, former, proposed, retired, foreign), author,
    reason and evidence commits. evidence is the URI of the observations: read it before you propose a change."""
    named = _by_name(call, text)
    if named is not None:
        version, versions = current(named) or named.versions[-1], named.versions
    else:
        version = call.space.behaviours.version(text)
        owner = _by_name(call, version.name)
        versions = owner.versions if owner is not None and version.cid in {item.cid for item in owner.versions} else ()
    listed = [item._asdict() for item in versions]
    return {"version": version, "versions": listed, "evidence": address(version.name) if listed else None}


def _by_name(call: ToolCall, name: str) -> KnownBehaviour | None:
    """The behaviour with a name; None if the text is something else, such as an id prefix."""
    if not names.is_name(name):
        return None
    return next((behaviour for behaviour in call.space.behaviours() if behaviour.name == name), None)


@tool(
    "Behaviour statistics",
    "behaviour_stats",
    names={"text": "behaviour"},
    returns=ResultShape(stats="behaviour_stats", gaps="observation_gaps"),
    slow="reading new commits",
)
def behaviour_stats(call: ToolCall, **arguments: Any) -> Mapping[str, Any]:
    """Counts and rates (with 95 % intervals and sample sizes): sessions, decisions, merges, outcomes, landings, reverts, traces,
    tokens. If gaps is above 0, this clone has only part of the record."""
    return {"stats": call.space.behaviours.stats(**arguments), "gaps": call.space.behaviours.gaps()}


@tool(
    "Compare two versions",
    "compare_behaviours",
    returns=ResultShape(comparison="compare_behaviours", diff="behaviour_diff", cut=bool),
    slow="reading new commits",
)
def behaviour_compare(call: ToolCall, before: str, after: str) -> Mapping[str, Any]:
    """For each measure, proven says which is better (1: the later, -1: the earlier, 0: neither). Includes a diff of the text."""
    comparison, patch = call.space.behaviours.compare(before, after), call.space.behaviours.diff(before, after)
    return {"comparison": comparison, "diff": patch[:PATCH_MAX], "cut": len(patch) > PATCH_MAX}


behaviour_suggest = served(
    "suggest_behaviour",
    "Suggest an action",
    "This is advice for people: nothing is changed.",
    name="behaviour_suggest",
    names={"name": "behaviour"},
    slow="reading new commits",
)


@tool(
    "Propose a better version",
    "propose_behaviour",
    you="agent",
    names={"name": "behaviour"},
    returns=ResultShape(version="propose_behaviour", next=str | None),
    idempotent=True,
)
def behaviour_propose(call: ToolCall, why: str, **arguments: Any) -> Mapping[str, Any]:
    """You cannot adopt it or put it on trial. Proposing the same text twice creates one version."""
    version = call.space.behaviours.propose(why=why, **arguments)
    adopt = f"it does not run until a person adopts it: clia behaviour adopt {version.name} {version.cid[:12]}"
    return {"version": version, "next": adopt if version.state == PROPOSED else None}
