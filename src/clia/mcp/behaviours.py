"""The behaviours that a space knows, for whoever wants to use or to improve one.

Invariant: what is told is what the verbs of the space tell; nothing here decides, adopts or runs anything. What was written by
others (a reason, a message) is told as it is and never followed.


Tools about behaviours: what an agent needs to find out how one does, and to propose a better version.

Invariant: nothing is adopted, retired, replayed or run here. A proposal is by the agent that makes it, never by a person, and what
lets a version run is a person's adoption: no tool here does it.
"""

from __future__ import annotations

from urllib.parse import quote

from clia.api.behaviour_records import BEHAVIOUR_STATS, BEHAVIOUR_VERSION, COMPARISON, SUGGESTION
from clia.api.records import MAYBE_STRING, MAYBE_TEXT, STRINGS
from clia.api.shapes import COUNT, FLAG, STRING, TEXT, WHOLE, Listed
from clia.api.verbs import ADMIN, VIEWER
from clia.behaviours.measures import MEASURES
from clia.behaviours.model import CURRENT, PROPOSED, RETIRED
from clia.behaviours.observing import REVERTED
from clia.errors import CliaError
from clia.mcp.toolbox import AGENT, ONCE, Field, Told, Tool
from clia.space.events import event_of
from clia.values import refs as names
from clia.values.typed_objects import PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour
    from clia.facade.space import Space
    from clia.mcp.calls import Call

BAD: dict[str, str] = {key: name for name, measure in MEASURES.items() for key in measure.bad} | {REVERTED: "kept"}
"""What was seen of work that went badly, and the measure that it counts against."""
_TOLD = 50
_WORDS = 2000


def current(known: KnownBehaviour) -> BehaviourVersion | None:
    return next((each for each in known.versions if each.state == CURRENT), None)


def prompts(space: Space) -> list[BehaviourVersion]:
    """What every prompt says now; those of which nothing is adopted say nothing."""
    found = [current(each) for each in space.behaviours() if each.kind == PROMPT]
    return [each for each in found if each is not None]


def summary(known: KnownBehaviour) -> dict[str, Any]:
    """A behaviour in a list."""
    now = current(known)
    told = now or known.versions[-1]
    return {
        "name": known.name,
        "kind": known.kind,
        "cid": None if now is None else now.cid,
        "by": told.by,
        "at": told.at,
        "why": told.why,
        "versions": len(known.versions),
        "proposed": sum(each.state == PROPOSED for each in known.versions),
    }


def outline(version: BehaviourVersion) -> dict[str, Any]:
    """A version without its body."""
    made = {key: value for key, value in version._asdict().items() if key not in ("name", "kind", "body")}
    return made | {"evidence": list(version.evidence)}


# Evidence


def evidence(space: Space, name: str) -> dict[str, Any]:
    """What the record says of a behaviour: each version with its rates, what follows, and what went badly of late."""
    known = space.behaviour(name)
    stats = {each.cid: BEHAVIOUR_STATS.encode(each) for each in space.behaviour_stats(name)}
    versions = [outline(each) | {"observed": stats.get(each.cid), "body": body_address(name, each.cid)} for each in known.versions]
    return {
        "behaviour": name,
        "kind": known.kind,
        "current": known.current,
        "measures": {each: measure.says for each, measure in MEASURES.items()},
        "versions": versions,
        "suggestion": None if current(known) is None else SUGGESTION.encode(space.suggest_behaviour(name)),
        "went_badly": _went_badly(space, known),
        "gaps": space.observation_gaps(),
    }


def evidence_address(name: str) -> str:
    return f"clia://behaviours/{quote(name, safe='')}/evidence"


def body_address(name: str, cid: str) -> str:
    return f"clia://behaviours/{quote(name, safe='')}/versions/{cid}"


def _went_badly(space: Space, known: KnownBehaviour) -> list[dict[str, Any]]:
    """The newest commits and events that count against a version that may still run, newest first."""
    cids = [each.cid for each in known.versions if each.state != RETIRED]
    sums = space._observed.sums(cids)  # noqa: SLF001  # the verbs name only the commits that a suggestion rests on
    found = {
        (at, origin, key, cid) for cid, made in sums.items() for key, seen in made.seen.items() if key in BAD for at, origin in seen
    }
    newest = sorted(found, reverse=True)[:_TOLD]
    return [{"version": cid, "measure": BAD[key], "saw": key, "at": at, **_told(space, origin)} for at, origin, key, cid in newest]


def _told(space: Space, origin: str) -> dict[str, Any]:
    """A commit or an event as whoever wants to know why reads it."""
    made: dict[str, Any] = {"commit": origin, "agent": None, "subject": "", "why": "", "outcome": None, "session": None}
    made["trace"] = None
    try:
        commit = space.show(origin)
        body = event_of(space._core.objects.commit(origin)) or {}  # noqa: SLF001  # events are commits that no verb reads one by one
    except CliaError:
        return made  # this clone has it no more
    made["agent"] = commit.agent or _text(body.get("from")) or _text(body.get("agent"))
    made["subject"] = commit.subject[:_WORDS]
    made["why"] = (_reason(body) or commit.message.partition("\n")[2].strip())[:_WORDS]
    made["outcome"] = commit.meta.get("outcome", commit.value)
    made["session"] = _text(body.get("session"))
    made["trace"] = next((f"clia://traces/{cid}" for cid in _traced(commit.cid, body) if _has_trace(space, cid)), None)
    return made


def _reason(body: Mapping[str, Any]) -> str:
    paths = body.get("paths")
    if isinstance(paths, list):
        return f"conflicts in {', '.join(map(str, paths))}"
    return _text(body.get("reason")) or ""


def _traced(cid: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Where the trace of it may be: at the commit, or at the head whose merge was refused."""
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
NEXT = "a person lets it run: clia behaviour adopt {name} {cid}; until then nothing runs it"

_SUMMARY = Told(name=STRING, kind=STRING, cid=MAYBE_STRING, by=STRING, at=WHOLE, why=STRING, versions=COUNT, proposed=COUNT)
_OUTLINE = Told(
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
_WHICH = "a behaviour's name (its current version), a version's id or the start of it, or PEER/NAME"


def _behaviours(call: Call, kind: str | None) -> Mapping[str, Any]:
    return {"behaviours": [summary(each) for each in call.space.behaviours() if kind in (None, each.kind)]}


def _show(call: Call, behaviour: str) -> Mapping[str, Any]:
    space = call.space
    known = _by_name(call, behaviour)
    if known is None:
        version = space.behaviour_version(behaviour)
        known = _by_name(call, version.name)
        listed = () if known is None or version.cid not in {each.cid for each in known.versions} else known.versions
    else:
        version, listed = current(known) or known.versions[-1], known.versions
    address = evidence_address(version.name) if listed else None
    return {"version": version, "versions": [outline(each) for each in listed], "evidence": address}


def _by_name(call: Call, name: str) -> KnownBehaviour | None:
    """A behaviour, where a text is the name of one: it may also be the start of a version's id."""
    if not names.is_name(name):
        return None
    return next((each for each in call.space.behaviours() if each.name == name), None)


def _stats(call: Call, behaviour: str | None, over: str | None) -> Mapping[str, Any]:
    found = call.space.behaviour_stats(behaviour, over=over)
    return {"stats": found, "gaps": call.space.observation_gaps()}


def _compare(call: Call, before: str, after: str) -> Mapping[str, Any]:
    space = call.space
    found, patch = space.compare_behaviours(before, after), space.behaviour_diff(before, after)
    return {"comparison": found, "diff": patch[:PATCH_MAX], "cut": len(patch) > PATCH_MAX}


def _suggest(call: Call, behaviour: str, measure: str | None) -> Any:
    return call.space.suggest_behaviour(behaviour, measure)


def _propose(call: Call, behaviour: str, body: str, evidence: Sequence[str], agent: str | None, **said: Any) -> Mapping[str, Any]:
    made = call.space.propose_behaviour(behaviour, body, evidence=evidence, agent=call.agent(agent), **said)
    return {"version": made, "next": NEXT.format(name=made.name, cid=made.cid[:12]) if made.state == "proposed" else None}


BEHAVIOUR_TOOLS = (
    Tool(
        "behaviours",
        "Behaviours of this space",
        "The skills that are kept here: flows, which sessions run, and prompts. Each with the version that is current (cid is null"
        " where people have let none run, or retired it) and how many proposals wait.",
        VIEWER,
        (Field("kind", MAYBE_TEXT, "session-flow or prompt; leave it out for all", None),),
        Told(behaviours=Listed(_SUMMARY)),
        _behaviours,
    ),
    Tool(
        "behaviour_show",
        "One behaviour",
        "A version with its whole body, and what other versions there are: how each stands (current, trial, former, proposed,"
        " retired, foreign), who brought it, why, and on which commits. evidence is the address of what was observed: read it"
        " before you propose.",
        VIEWER,
        (Field("behaviour", TEXT, _WHICH),),
        Told(version=BEHAVIOUR_VERSION, versions=Listed(_OUTLINE), evidence=MAYBE_STRING),
        _show,
    ),
    Tool(
        "behaviour_stats",
        "What was observed",
        "Counts and rates (with their 95 % intervals and how many they rest on) of each version: sessions, decisions, merges,"
        " outcomes, landings, reverts, traces, tokens. gaps above 0: this clone has only a part of the record.",
        VIEWER,
        (
            Field("behaviour", MAYBE_TEXT, f"{_WHICH}; leave it out for everything that ever ran", None),
            Field("over", MAYBE_TEXT, "day, week or month: with the rates over time", None),
        ),
        Told(stats=Listed(BEHAVIOUR_STATS), gaps=COUNT),
        _stats,
        slow="reading what is new in git",
    ),
    Tool(
        "behaviour_compare",
        "Two versions side by side",
        "By each measure: both rates, the probability that the later is better, and whether that is shown (proven is 1: the later,"
        " -1: the earlier, 0: neither); with what the later changes in the text.",
        VIEWER,
        (Field("before", TEXT, _WHICH), Field("after", TEXT, "the version to hold against it, named alike")),
        Told(comparison=COMPARISON, diff=STRING, cut=FLAG),
        _compare,
        slow="reading what is new in git",
    ),
    Tool(
        "behaviour_suggest",
        "What the record speaks for",
        "Whether to adopt, keep or retire a version, or that there is not enough data; with the newest commits that it rests on. It"
        " is advice to people: nothing is changed.",
        VIEWER,
        (
            Field("behaviour", TEXT, "its name"),
            Field(
                "measure", MAYBE_TEXT, "finished, approved, merged, passed or kept (default: the operator's, or the usual)", None
            ),
        ),
        SUGGESTION,
        _suggest,
        slow="reading what is new in git",
    ),
    Tool(
        "behaviour_propose",
        "Propose a better version",
        "Keeps a candidate for a behaviour, with the commits that prompted it, for people to look at. It does not run: a person"
        " adopts it, or puts it on trial; you cannot. The same text twice is one version.",
        ADMIN,
        (
            Field("behaviour", TEXT, "its name; a new one takes kind too"),
            Field(
                "body",
                TEXT,
                "the whole text of the version: a flow's source, or a prompt (may have {{task}}, {{agent}}, {{title}})",
            ),
            Field("why", TEXT, "what is wrong with the version it is to replace, and what this one does about it"),
            Field("evidence", Listed(TEXT), "the commits that show it: ids, as in the behaviour's evidence", ()),
            Field("notes", TEXT, "what it is for, and when to use it: kept with the version", ""),
            Field("kind", MAYBE_TEXT, "prompt or session-flow; only for a new name", None),
            Field("parent", MAYBE_TEXT, "the version that it was made from (default: the current one)", None),
            AGENT,
        ),
        Told(version=BEHAVIOUR_VERSION, next=MAYBE_STRING),
        _propose,
        ONCE,
    ),
)
