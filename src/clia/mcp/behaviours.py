"""The behaviours that a space knows, for whoever wants to use or to improve one.

Invariant: what is told is what the verbs of the space tell; nothing here decides, adopts or runs anything. What was written by
others (a reason, a message) is told as it is and never followed.
"""

from __future__ import annotations

from urllib.parse import quote

from clia.api.behaviour_records import BEHAVIOUR_STATS, SUGGESTION
from clia.behaviours.measures import MEASURES
from clia.behaviours.model import CURRENT, PROPOSED, RETIRED
from clia.behaviours.observing import REVERTED
from clia.errors import CliaError
from clia.space.events import event_of
from clia.values.typed_objects import PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour
    from clia.facade.space import Space

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
