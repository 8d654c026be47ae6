"""Export of what agents did, as spans.

Invariant: only git and the store are read, nothing is changed, and nothing leaves this machine without a sender. Trees are
built from whole families of agents, so a span does not depend on which agents were selected.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.errors import NoSuchAgent, NotFound, ReplayError, TransportError
from clia.sessions.runs import AgentRecord, SessionRun, TracedEntry
from clia.space.relations import SUB_AGENT
from clia.telemetry.spans import SpanBuilder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.sessions.model import Session
    from clia.sessions.records import Resumed
    from clia.telemetry.otlp import OtlpSender
    from clia.telemetry.spans import Attributes, Span, SpanTree

BATCH_SPANS = 512
BATCH_WEIGHT = 4 * 1024 * 1024
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_FLAGS = 0x100  # the parent is known to be local


class ExportSelection(NamedTuple):
    """Which agents and times to export."""

    agents: Sequence[str] = ()  # these and their sub-agents; empty: all
    since: int | None = None  # only trees with something at or after this time, in nanoseconds
    content: bool = False


class ExportResult(NamedTuple):
    """How much was sent, and what the collector rejected."""

    trees: int
    spans: int
    rejected: int
    reason: str


def trees_of(space: Space, selection: ExportSelection, progress: Callable[[int, int], None] | None = None) -> Iterator[SpanTree]:
    """Yield the selected trees, family by family, sorted by name."""
    builder = SpanBuilder(space.id, content=selection.content)
    parents, families = _families(space, selection.agents)
    for number, (members, selected) in enumerate(families):
        stories = [_story(space, name, parents.get(name)) for name in members]
        for tree in builder.trees([story for story in stories if story is not None], selected):
            if selection.since is None or tree.end >= selection.since:
                yield tree
        if progress is not None:
            progress(number + 1, len(families))


def resource_of(space: Space, version: str) -> Attributes:
    """Return the resource attributes of every document and request; ``version`` is clia's."""
    return {"service.name": "clia", "service.version": version, "clia.space.id": space.id, "clia.version": version}


def sender_of(url: str, headers: Mapping[str, str], resource: Attributes, *, seconds: float) -> OtlpSender:
    """Return a sender to a collector; needs the extra ``clia[otlp]``."""
    from clia.telemetry.otlp import OtlpSender  # importing OpenTelemetry takes half a second

    return OtlpSender(url, headers, resource, ("clia", str(resource["clia.version"])), seconds=seconds)


def send(sender: OtlpSender, trees: Iterable[SpanTree]) -> ExportResult:
    """Send trees in batches that collectors accept. A ``TransportError`` says how many spans were sent before it."""
    count = spans = rejected = 0
    reasons: list[str] = []

    def counted() -> Iterator[SpanTree]:
        nonlocal count
        for tree in trees:
            count += 1
            yield tree

    for batch in _batches(counted()):
        try:
            response = sender.send(batch)
        except TransportError as err:
            err.fields["sent"] = spans
            raise
        spans += len(batch)
        rejected += response.rejected
        reasons += [response.reason] if response.reason and response.reason not in reasons else []
    return ExportResult(count, spans, rejected, "; ".join(reasons))


def _batches(trees: Iterable[SpanTree]) -> Iterator[list[Span]]:
    batch: list[Span] = []
    weight = 0
    for tree in trees:
        for span in tree.spans:
            size = _weight(span)
            if batch and (len(batch) >= BATCH_SPANS or weight + size > BATCH_WEIGHT):
                yield batch
                batch, weight = [], 0
            batch.append(span)
            weight += size
    if batch:
        yield batch


def _weight(span: Span) -> int:
    """Return about how many bytes a span takes in a request."""
    attributes = [*span.attributes.items(), *(pair for event in span.events for pair in event.attributes.items())]
    lengths = (len(key) + (len(value.encode("utf-8")) if isinstance(value, str) else 8) + 10 for key, value in attributes)
    return 100 + 50 * len(span.events) + sum(lengths)


# Reading the space


def _families(space: Space, selected: Sequence[str]) -> tuple[dict[str, str], list[tuple[list[str], set[str]]]]:
    """Return the parent of each agent, and each family: its members, parents first, and the selected ones."""
    agents = {*space.agents(), *space.agents(archived=True)}
    for name in selected:
        if name not in agents:
            space.head(name)  # raises NoSuchAgent
    parents = parents_of(space, agents)
    below: dict[str, list[str]] = {}
    for name in sorted(parents):
        below.setdefault(parents[name], []).append(name)
    families = []
    for first in sorted(agents - parents.keys()):
        members = _descendants(first, below)
        chosen = [name for name in members if name in selected]
        chosen_names = {name for top in chosen for name in _descendants(top, below)} if selected else set(members)
        if chosen_names:
            families.append((members, chosen_names))
    return parents, families


def parents_of(space: Space, agents: set[str]) -> dict[str, str]:
    """Return the parent of each agent. Reused names may form a cycle; it is broken at its first name."""
    parents: dict[str, str] = {}
    for edge in sorted(space.relations()):
        spawned = edge.kind == SUB_AGENT and edge.source == f"agents/{edge.dst}"  # not one that was only stated
        if spawned and edge.src in agents and edge.dst in agents:
            parents.setdefault(edge.dst, edge.src)
    for name in sorted(agents):
        passed, above = {name}, parents.get(name)
        while above is not None and above not in passed:
            passed.add(above)
            above = parents.get(above)
        if above == name:
            del parents[name]
    return parents


def _descendants(first: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """Return an agent and its descendants, parents first."""
    names = [first]
    for name in names:
        names.extend(below.get(name, ()))
    return names


def _story(space: Space, name: str, parent: str | None) -> AgentRecord | None:
    """Return the history of an agent; None if it was removed since."""
    try:
        commits = tuple(reversed(space.history.own(name)))
        traces = [bound.trace for bound in reversed(space.traces.of_agent(name))]
        attached = [TracedEntry(entry, trace.commit) for trace in traces for entry in trace.entries]
        pending = [TracedEntry(entry) for entry in space.traces.pending(name)]
        sessions = tuple(map(_ran, space.sessions(name)))
    except NoSuchAgent:
        return None
    # A note may come from anywhere: what is not an entry counts as text.
    entries = tuple(
        traced if isinstance(traced.entry, dict) else traced._replace(entry={"text": str(traced.entry)})
        for traced in (*attached, *pending)
    )
    story = AgentRecord(name, parent, commits, entries, sessions)
    with suppress(NotFound):  # the briefing is in another clone
        briefing = space.agents.briefing(name)
        return story._replace(title=briefing.title, meta=briefing.meta if isinstance(briefing.meta, dict) else {})
    return story


def _ran(session: Session) -> SessionRun:
    forked = session.forked if isinstance(session.forked, dict) else {}
    answers: tuple[Resumed, ...] = ()
    with suppress(ReplayError):  # ``clia doctor`` reports an unreadable journal
        answers = tuple(session.given())
    return SessionRun(
        session.id,
        session.status,
        str(forked.get("at") or session.started_at),
        session.ended_at,
        session.flow,
        session.flow_cid,
        f"{forked.get('agent')}/{forked.get('session')}" if forked else None,
        str((session.failure or {}).get("message", "")),
        answers,
    )


# OTLP/JSON


def as_otlp_json(tree: SpanTree, resource: Attributes) -> str:
    """Return a tree as one line of OTLP/JSON: an ``ExportTraceServiceRequest``."""
    scope, spans = {"name": "clia", "version": resource["clia.version"]}, [_span(span) for span in tree.spans]
    document = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
    return json.dumps({"resourceSpans": [document]}, ensure_ascii=False, separators=(",", ":"))


def _span(span: Span) -> dict[str, Any]:
    document: dict[str, Any] = {"traceId": span.trace, "spanId": span.id}
    if span.parent is not None:
        document["parentSpanId"] = span.parent
    document |= {
        "flags": _FLAGS,
        "name": span.name,
        "kind": _CLIENT if span.is_client else _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.events:
        document["events"] = [
            {"timeUnixNano": str(event.at), "name": event.name, "attributes": _attributes(event.attributes)}
            for event in span.events
        ]
    document["status"] = ({"message": span.reason} if span.reason else {}) | {"code": _ERROR} if span.failed else {}
    return document


def _attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
        for key, value in attributes.items()
    ]
