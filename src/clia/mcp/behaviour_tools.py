"""Tools about behaviours: what an agent needs to find out how one does, and to propose a better version.

Invariant: nothing is adopted, retired, replayed or run here. A proposal is by the agent that makes it, never by a person, and what
lets a version run is a person's adoption: no tool here does it.
"""

from __future__ import annotations

from clia.api.behaviour_records import BEHAVIOUR_STATS, BEHAVIOUR_VERSION, COMPARISON, SUGGESTION
from clia.api.records import MAYBE_STRING, MAYBE_TEXT, STRINGS
from clia.api.shapes import COUNT, FLAG, STRING, TEXT, WHOLE, Listed
from clia.api.verbs import ADMIN, VIEWER
from clia.mcp.behaviours import current, evidence_address, outline, summary
from clia.mcp.shapes import Field, Told
from clia.mcp.toolbox import AGENT, ONCE, Tool
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.behaviours.model import KnownBehaviour
    from clia.mcp.place import Call

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
