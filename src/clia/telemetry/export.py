"""Exporting what agents did, as spans.

Invariant: only what git and the store hold is read, nothing is changed, and nothing leaves this machine unless a sender is given.
Trees are made of whole families, so that a span is the same whichever agents were asked for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.errors import NoSuchAgent, NotFound, ReplayError, TransportError
from clia.sessions.runs import Ran, Story, Traced
from clia.space.relations import SUB_AGENT
from clia.telemetry.spans import Teller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.sessions.model import Session
    from clia.sessions.records import Resumed
    from clia.telemetry.records import Attributes, Span, SpanEvent, SpanSender
    from clia.telemetry.spans import Tree

BATCH_SPANS = 512
BATCH_WEIGHT = 4 * 1024 * 1024
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_FLAGS = 0x100  # it is known that the parent was in the same process


class Chosen(NamedTuple):
    """What to export."""

    agents: Sequence[str] = ()  # these and their sub-agents; none: all
    since: int | None = None  # only trees in which something happened at or after this time, in nanoseconds
    content: bool = False


class Exported(NamedTuple):
    """What was sent, and what the collector did not want of it."""

    trees: int
    spans: int
    rejected: int
    reason: str


def trees_of(space: Space, chosen: Chosen, progress: Callable[[int, int], None] | None = None) -> Iterator[Tree]:
    """Every tree that was asked for, family by family in the order of names."""
    teller = Teller(space.id, content=chosen.content)
    families = _families(space, chosen.agents)
    for number, family in enumerate(families):
        stories = [each for each in (_story(space, name, family.parents.get(name)) for name in family.members) if each is not None]
        for tree in teller.trees(stories, family.wanted):
            if chosen.since is None or tree.end >= chosen.since:
                yield tree
        if progress is not None:
            progress(number + 1, len(families))


def resource_of(space: Space, version: str) -> Attributes:
    """Who speaks, in every document and request; ``version`` is clia's."""
    return {"service.name": "clia", "service.version": version, "clia.space.id": space.id, "clia.version": version}


def sender_of(url: str, headers: Mapping[str, str], resource: Attributes, *, seconds: float) -> SpanSender:
    """What sends spans to a collector; needs the extra ``clia[otlp]``."""
    from clia.telemetry.otlp import OtlpSender  # OpenTelemetry's packages take half a second

    return OtlpSender(url, headers, resource, _scope(resource), seconds=seconds)


def _scope(resource: Attributes) -> tuple[str, str]:
    """Who made the spans."""
    return "clia", str(resource["clia.version"])


def send(sender: SpanSender, trees: Iterable[Tree]) -> Exported:
    """Sends trees in requests of a size that collectors take; ``TransportError`` says how many spans went before it."""
    count = spans = rejected = 0
    reasons: list[str] = []

    def counted() -> Iterator[Tree]:
        nonlocal count
        for tree in trees:
            count += 1
            yield tree

    for batch in _batches(counted()):
        try:
            said = sender.send(batch)
        except TransportError as err:
            err.fields["sent"] = spans
            raise
        spans += len(batch)
        rejected += said.rejected
        reasons += [said.reason] if said.reason and said.reason not in reasons else []
    return Exported(count, spans, rejected, "; ".join(reasons))


def _batches(trees: Iterable[Tree]) -> Iterator[list[Span]]:
    batch: list[Span] = []
    weight = 0
    for tree in trees:
        for span in tree.spans:
            more = _weight(span)
            if batch and (len(batch) >= BATCH_SPANS or weight + more > BATCH_WEIGHT):
                yield batch
                batch, weight = [], 0
            batch.append(span)
            weight += more
    if batch:
        yield batch


def _weight(span: Span) -> int:
    """About how many bytes a span takes in a request."""
    return 100 + _length(span.attributes) + sum(50 + _length(each.attributes) for each in span.events)


def _length(attributes: Attributes) -> int:
    return sum(len(key) + (len(value.encode("utf-8")) if isinstance(value, str) else 8) + 10 for key, value in attributes.items())


# Reading the space


class _Family(NamedTuple):
    """Agents that descend from one, parents before children; ``wanted`` are those that were asked for."""

    members: list[str]
    parents: Mapping[str, str]
    wanted: frozenset[str]


def _families(space: Space, asked: Sequence[str]) -> list[_Family]:
    known = {*space.agents(), *space.agents(archived=True)}
    for name in asked:
        if name not in known:
            space.head(name)  # says that there is none
    parents = _parents(space, known)
    below: dict[str, list[str]] = {}
    for name in sorted(parents):
        below.setdefault(parents[name], []).append(name)
    found = []
    for first in sorted(known - parents.keys()):
        members = _descendants(first, below)
        wanted = {each for name in members if not asked or name in asked for each in _descendants(name, below if asked else {})}
        if wanted:
            found.append(_Family(members, parents, frozenset(wanted)))
    return found


def _parents(space: Space, known: set[str]) -> dict[str, str]:
    """The agent that each one was spawned from. Where names were used again they may make a circle: its first is nobody's."""
    parents: dict[str, str] = {}
    for edge in sorted(space.relations()):
        spawned = edge.kind == SUB_AGENT and edge.source == f"agents/{edge.dst}"  # an edge that is only stated has no moment
        if spawned and edge.src in known and edge.dst in known:
            parents.setdefault(edge.dst, edge.src)
    for name in sorted(known):
        passed, above = {name}, parents.get(name)
        while above is not None and above not in passed:
            passed.add(above)
            above = parents.get(above)
        if above == name:
            del parents[name]
    return parents


def _descendants(first: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """An agent and all below it, parents before children."""
    found = [first]
    for name in found:
        found.extend(below.get(name, ()))
    return found


def _story(space: Space, name: str, parent: str | None) -> Story | None:
    """What is recorded of an agent; None where it has gone since it was listed."""
    try:
        commits = tuple(reversed(space.session_log(name)))
        bound = [Traced(entry, each.trace.commit) for each in reversed(space.session_traces(name)) for entry in each.trace.entries]
        pending = [Traced(entry) for entry in space.trace_pending(name)]
        sessions = tuple(map(_ran, space.sessions(name)))
    except NoSuchAgent:
        return None
    story = Story(name, parent, commits, tuple(map(_sound, [*bound, *pending])), sessions)
    with suppress(NotFound):  # a briefing that another clone has
        briefing = space.briefing_of(name)
        return story._replace(title=briefing.title, meta=briefing.meta if isinstance(briefing.meta, dict) else {})
    return story


def _sound(traced: Traced) -> Traced:
    """Notes may come from anywhere: what is no entry is a text."""
    entry: Any = traced.entry
    return traced if isinstance(entry, dict) else traced._replace(entry={"text": str(entry)})


def _ran(session: Session) -> Ran:
    forked = session.forked if isinstance(session.forked, dict) else {}
    given: tuple[Resumed, ...] = ()
    with suppress(ReplayError):  # a journal that cannot be read is for ``doctor`` to tell of
        given = tuple(session.given())
    return Ran(
        session.id,
        session.status,
        str(forked.get("at") or session.started_at),
        session.ended_at,
        session.flow,
        session.flow_cid,
        f"{forked.get('agent')}/{forked.get('session')}" if forked else None,
        str((session.failure or {}).get("message", "")),
        given,
    )


# OTLP/JSON


def as_otlp_json(tree: Tree, resource: Attributes) -> str:
    """A tree as one line, in the form of a collector's files: an ``ExportTraceServiceRequest`` in the JSON of OTLP."""
    name, version = _scope(resource)
    scope, spans = {"name": name, "version": version}, [_span(each) for each in tree.spans]
    made = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
    return json.dumps({"resourceSpans": [made]}, ensure_ascii=False, separators=(",", ":"))


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {"traceId": span.trace, "spanId": span.id}
    if span.parent is not None:
        made["parentSpanId"] = span.parent
    made |= {
        "flags": _FLAGS,
        "name": span.name,
        "kind": _CLIENT if span.is_client else _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.events:
        made["events"] = [_event(each) for each in span.events]
    made["status"] = ({"message": span.reason} if span.reason else {}) | {"code": _ERROR} if span.failed else {}
    return made


def _event(event: SpanEvent) -> dict[str, Any]:
    return {"timeUnixNano": str(event.at), "name": event.name, "attributes": _attributes(event.attributes)}


def _attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
        for key, value in attributes.items()
    ]
