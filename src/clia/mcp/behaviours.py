"""Behaviour tools: read evidence and propose better versions.

Invariant: no tool adopts, retires, replays or runs a version; only a person can. A proposal is recorded under the agent's name.
Text written by others is passed through and never followed.
"""

from __future__ import annotations

from urllib.parse import quote

from clia.api.records import BEHAVIOUR_STATS, BEHAVIOUR_VERSION, COMPARISON, MAYBE_STRING, MAYBE_TEXT, STRINGS, SUGGESTION
from clia.api.shapes import COUNT, FLAG, STRING, TEXT, WHOLE, Listed
from clia.behaviours.measures import MEASURES
from clia.behaviours.model import CURRENT, PROPOSED, RETIRED
from clia.behaviours.observing import REVERTED
from clia.errors import CliaError
from clia.mcp.toolbox import AGENT, ONCE, ResultShape, Tool, ToolArgument
from clia.space.events import event_of
from clia.values import refs as names
from clia.values.typed_objects import PROMPT
from clia.verbs import ADMIN, VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour
    from clia.facade.space import Space
    from clia.mcp.calls import ToolCall

BAD: dict[str, str] = {key: name for name, measure in MEASURES.items() for key in measure.bad} | {REVERTED: "kept"}
"""Observations of failed work, and the measure that each counts against."""
_TOLD = 50
_WORDS = 2000


def current(behaviour: KnownBehaviour) -> BehaviourVersion | None:
    return next((version for version in behaviour.versions if version.state == CURRENT), None)


def prompts(space: Space) -> list[BehaviourVersion]:
    """The current version of every prompt that has one."""
    versions = [current(behaviour) for behaviour in space.behaviours() if behaviour.kind == PROMPT]
    return [version for version in versions if version is not None]


def summary(behaviour: KnownBehaviour) -> dict[str, Any]:
    """One entry of the list of behaviours."""
    now = current(behaviour)
    version = now or behaviour.versions[-1]
    return {
        "name": behaviour.name,
        "kind": behaviour.kind,
        "cid": None if now is None else now.cid,
        "by": version.by,
        "at": version.at,
        "why": version.why,
        "versions": len(behaviour.versions),
        "proposed": sum(item.state == PROPOSED for item in behaviour.versions),
    }


def outline(version: BehaviourVersion) -> dict[str, Any]:
    """A version without its body."""
    fields = {key: value for key, value in version._asdict().items() if key not in ("name", "kind", "body")}
    return fields | {"evidence": list(version.evidence)}


# Evidence


def evidence(space: Space, name: str) -> dict[str, Any]:
    """The evidence on a behaviour: the rates of each version, the suggestion, and recent failures."""
    behaviour = space.behaviour(name)
    stats = {behaviour_stat.cid: BEHAVIOUR_STATS.encode(behaviour_stat) for behaviour_stat in space.behaviour_stats(name)}
    versions = [
        outline(version) | {"observed": stats.get(version.cid), "body": body_address(name, version.cid)}
        for version in behaviour.versions
    ]
    return {
        "behaviour": name,
        "kind": behaviour.kind,
        "current": behaviour.current,
        "measures": {each: measure.says for each, measure in MEASURES.items()},
        "versions": versions,
        "suggestion": None if current(behaviour) is None else SUGGESTION.encode(space.suggest_behaviour(name)),
        "went_badly": _went_badly(space, behaviour),
        "gaps": space.observation_gaps(),
    }


def evidence_address(name: str) -> str:
    return f"clia://behaviours/{quote(name, safe='')}/evidence"


def body_address(name: str, cid: str) -> str:
    return f"clia://behaviours/{quote(name, safe='')}/versions/{cid}"


def _went_badly(space: Space, behaviour: KnownBehaviour) -> list[dict[str, Any]]:
    """The newest commits and events that count against a runnable version, newest first."""
    cids = [version.cid for version in behaviour.versions if version.state != RETIRED]
    sums = space.behaviours.observations.sums(cids)
    bad = {
        (at, origin, key, cid)
        for cid, counts in sums.items()
        for key, observed in counts.seen.items()
        if key in BAD
        for at, origin in observed
    }
    newest = sorted(bad, reverse=True)[:_TOLD]
    return [{"version": cid, "measure": BAD[key], "saw": key, "at": at, **_told(space, origin)} for at, origin, key, cid in newest]


def _told(space: Space, origin: str) -> dict[str, Any]:
    """A commit or an event with the reason for its failure."""
    entry: dict[str, Any] = {"commit": origin, "agent": None, "subject": "", "why": "", "outcome": None, "session": None}
    entry["trace"] = None
    try:
        commit = space.show(origin)
        body = event_of(space.core.objects.commit(origin)) or {}
    except CliaError:
        return entry  # no longer in this clone
    entry["agent"] = commit.agent or _text(body.get("from")) or _text(body.get("agent"))
    entry["subject"] = commit.subject[:_WORDS]
    entry["why"] = (_reason(body) or commit.message.partition("\n")[2].strip())[:_WORDS]
    entry["outcome"] = commit.meta.get("outcome", commit.value)
    entry["session"] = _text(body.get("session"))
    entry["trace"] = next((f"clia://traces/{cid}" for cid in _traced(commit.cid, body) if _has_trace(space, cid)), None)
    return entry


def _reason(body: Mapping[str, Any]) -> str:
    paths = body.get("paths")
    if isinstance(paths, list):
        return f"conflicts in {', '.join(map(str, paths))}"
    return _text(body.get("reason")) or ""


def _traced(cid: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Commits that may have its trace: the commit itself, or the head whose merge was refused."""
    yield cid
    theirs = _text(body.get("theirs"))
    if theirs is not None:
        yield theirs


def _has_trace(space: Space, cid: str) -> bool:
    try:
        return space.trace_for(cid) is not None
    except CliaError:
        return False


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


PATCH_MAX = 200_000
NEXT = "it does not run until a person adopts it: clia behaviour adopt {name} {cid}"

_SUMMARY = ResultShape(name=STRING, kind=STRING, cid=MAYBE_STRING, by=STRING, at=WHOLE, why=STRING, versions=COUNT, proposed=COUNT)
_OUTLINE = ResultShape(
    cid=STRING,
    state=STRING,
    parent=MAYBE_STRING,
    notes=STRING,
    by=STRING,
    at=WHOLE,
    why=STRING,
    evidence=STRINGS,
    origin=MAYBE_STRING,
)
_WHICH = "a behaviour name (for its current version), a version id or id prefix, or PEER/NAME"


def _behaviours(call: ToolCall, kind: str | None) -> Mapping[str, Any]:
    return {"behaviours": [summary(behaviour) for behaviour in call.space.behaviours() if kind in (None, behaviour.kind)]}


def _show(call: ToolCall, behaviour: str) -> Mapping[str, Any]:
    space = call.space
    known_behaviour = _by_name(call, behaviour)
    if known_behaviour is None:
        version = space.behaviour_version(behaviour)
        known_behaviour = _by_name(call, version.name)
        listed = (
            ()
            if known_behaviour is None or version.cid not in {version.cid for version in known_behaviour.versions}
            else known_behaviour.versions
        )
    else:
        version, listed = current(known_behaviour) or known_behaviour.versions[-1], known_behaviour.versions
    address = evidence_address(version.name) if listed else None
    return {"version": version, "versions": [outline(item) for item in listed], "evidence": address}


def _by_name(call: ToolCall, name: str) -> KnownBehaviour | None:
    """The behaviour with a name; None if the text is something else, such as an id prefix."""
    if not names.is_name(name):
        return None
    return next((candidate for candidate in call.space.behaviours() if candidate.name == name), None)


def _stats(call: ToolCall, behaviour: str | None, over: str | None) -> Mapping[str, Any]:
    stats = call.space.behaviour_stats(behaviour, over=over)
    return {"stats": stats, "gaps": call.space.observation_gaps()}


def _compare(call: ToolCall, before: str, after: str) -> Mapping[str, Any]:
    space = call.space
    comparison, patch = space.compare_behaviours(before, after), space.behaviour_diff(before, after)
    return {"comparison": comparison, "diff": patch[:PATCH_MAX], "cut": len(patch) > PATCH_MAX}


def _suggest(call: ToolCall, behaviour: str, measure: str | None) -> Any:
    return call.space.suggest_behaviour(behaviour, measure)


def _propose(
    call: ToolCall, behaviour: str, body: str, evidence: Sequence[str], agent: str | None, **provenance: Any
) -> Mapping[str, Any]:
    version = call.space.propose_behaviour(behaviour, body, evidence=evidence, agent=call.agent(agent), **provenance)
    return {
        "version": version,
        "next": NEXT.format(name=version.name, cid=version.cid[:12]) if version.state == "proposed" else None,
    }


BEHAVIOUR_TOOLS = (
    Tool(
        "behaviours",
        "Behaviours of this space",
        "Lists the behaviours of this space: flows, which sessions run, and prompts. Each has its current version (cid is null"
        " if none is adopted) and the number of open proposals.",
        VIEWER,
        (ToolArgument("kind", MAYBE_TEXT, "session-flow or prompt (default: both)", None),),
        ResultShape(behaviours=Listed(_SUMMARY)),
        _behaviours,
    ),
    Tool(
        "behaviour_show",
        "One behaviour",
        "Shows a version with its full body, and lists the other versions: state (current, trial, former, proposed,"
        " retired, foreign), author, reason and evidence commits. evidence is the URI of the observations: read it"
        " before you propose a change.",
        VIEWER,
        (ToolArgument("behaviour", TEXT, _WHICH),),
        ResultShape(version=BEHAVIOUR_VERSION, versions=Listed(_OUTLINE), evidence=MAYBE_STRING),
        _show,
    ),
    Tool(
        "behaviour_stats",
        "Behaviour statistics",
        "Counts and rates (with 95 % intervals and sample sizes) for each version: sessions, decisions, merges,"
        " outcomes, landings, reverts, traces, tokens. If gaps is above 0, this clone has only part of the record.",
        VIEWER,
        (
            ToolArgument("behaviour", MAYBE_TEXT, f"{_WHICH} (default: everything that ran)", None),
            ToolArgument("over", MAYBE_TEXT, "day, week or month: include rates over time", None),
        ),
        ResultShape(stats=Listed(BEHAVIOUR_STATS), gaps=COUNT),
        _stats,
        slow="reading new commits",
    ),
    Tool(
        "behaviour_compare",
        "Compare two versions",
        "Compares two versions by each measure: both rates, the probability that the later is better, and proven (1: the later,"
        " -1: the earlier, 0: neither). Includes a diff of the text.",
        VIEWER,
        (ToolArgument("before", TEXT, _WHICH), ToolArgument("after", TEXT, "the version to compare with, named the same way")),
        ResultShape(comparison=COMPARISON, diff=STRING, cut=FLAG),
        _compare,
        slow="reading new commits",
    ),
    Tool(
        "behaviour_suggest",
        "Suggest an action",
        "Suggests whether to adopt, keep or retire a version, with the newest supporting commits, if there is enough data. This"
        " is advice for people: nothing is changed.",
        VIEWER,
        (
            ToolArgument("behaviour", TEXT, "its name"),
            ToolArgument("measure", MAYBE_TEXT, "finished, approved, merged, passed or kept (default: as configured)", None),
        ),
        SUGGESTION,
        _suggest,
        slow="reading new commits",
    ),
    Tool(
        "behaviour_propose",
        "Propose a better version",
        "Records a candidate version, with the commits that motivate it, for people to review. It does not run: a person"
        " must adopt it or put it on trial; you cannot. Proposing the same text twice creates one version.",
        ADMIN,
        (
            ToolArgument("behaviour", TEXT, "behaviour name; a new name also needs kind"),
            ToolArgument(
                "body",
                TEXT,
                "the full text of the version: flow source, or a prompt (may contain {{task}}, {{agent}}, {{title}})",
            ),
            ToolArgument("why", TEXT, "what is wrong with the version that it replaces, and how this one fixes it"),
            ToolArgument("evidence", Listed(TEXT), "commit ids that show the problem, as in the behaviour's evidence", ()),
            ToolArgument("notes", TEXT, "purpose and when to use it; stored with the version", ""),
            ToolArgument("kind", MAYBE_TEXT, "prompt or session-flow; only for a new behaviour", None),
            ToolArgument("parent", MAYBE_TEXT, "the version that it derives from (default: the current one)", None),
            AGENT,
        ),
        ResultShape(version=BEHAVIOUR_VERSION, next=MAYBE_STRING),
        _propose,
        ONCE,
    ),
)
