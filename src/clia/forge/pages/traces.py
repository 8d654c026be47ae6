"""Trace pages, and links to evidence commits and events.

Invariant: a page shows one window of entries, however long the trace is. Every window, match and entry has a URL that works without
scripts. Search covers all entries. Evidence links only to existing pages; an unknown event is shown as a short id.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from clia.errors import CliaError, NoSuchObject, NotFound
from clia.forge.pages.commits import find
from clia.forge.pages.common import agent_at, known_agent, page, redirect, render, short
from clia.forge.rendering import traces
from clia.forge.rendering.texts import one_line
from clia.sessions.model import STATUSES
from clia.values.refs import is_name, remote_agent
from clia.values.typed_objects import ConsoleTrace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import Visit
    from clia.forge.rendering.traces import EntryView, TraceWindow
    from clia.space.model import AgentCommit

SIZE = 200
_SOUGHT_MAX = 200
_KEPT = ("q", "wrap", "unfold", "version")
_ID_MAX = 100  # maximum characters of an invalid id


class TraceBlock(NamedTuple):
    """The entries of one trace; ``start`` is the number of the first. Without a commit they are pending."""

    commit: str | None
    start: int
    entries: Sequence[Any]


class TraceSearch(NamedTuple):
    """A search and its matches; ``current``, ``before`` and ``after`` are indexes in ``hits``."""

    text: str
    hits: Sequence[int] = ()
    current: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def number(self) -> int | None:
        return None if self.current is None else self.hits[self.current]


class EvidenceLink(NamedTuple):
    """An evidence commit. ``words``: a description or the short id; ``page``: its URL, if there is one."""

    id: str
    words: str
    page: str | None
    is_event: bool  # ``words`` is a description, not an id


def routes() -> list[Route]:
    return [
        page("/agents/{agent}/trace", "agent:trace", _of_agent),
        page("/commits/{cid:path}/trace", "commit:trace", _of_commit),
    ]


def _of_agent(visit: Visit) -> Response:
    """Pending entries, then the traces of the commits, newest first."""
    agent = known_agent(visit)
    pending = visit.space.traces.pending(agent.name)
    blocks = [TraceBlock(None, 0, pending)]
    for bound in visit.space.traces.of_agent(agent.name):
        last = blocks[-1]
        blocks.append(TraceBlock(bound.trace.commit, last.start + len(last.entries), bound.trace.entries))
    where = ("agents", agent.name, "trace")
    return _shown(visit, "trace_agent.html", where, blocks, agent=agent, pending=len(pending), bound=len(blocks) - 1)


def _of_commit(visit: Visit) -> Response:
    commit = find(visit)
    where = ("commits", commit.cid, "trace")
    if commit.cid != visit.param("cid"):
        return redirect(_address(visit, where))
    trace, cid = _trace(visit, commit)
    block = TraceBlock(commit.cid, 0, trace.entries if trace is not None else ())
    return _shown(visit, "trace_commit.html", where, [block], commit=commit, trace=trace, cid=cid)


def _trace(visit: Visit, commit: AgentCommit) -> tuple[ConsoleTrace | None, str | None]:
    """The trace of a commit, or an earlier version of it."""
    service, version = visit.space.traces, visit.query("version")
    if not version:
        return service.of(commit.cid), service.id_of(commit.cid)
    if version not in {entry.trace for entry in service.history(commit.cid)}:
        raise NoSuchObject(f"{version!r} was never the trace of {commit.cid[:12]}", fields={"cid": version})
    document = visit.space.types.read(version)
    if not isinstance(document, ConsoleTrace):
        raise NoSuchObject(f"{version!r} is not a trace", fields={"cid": version})
    return document, version


def _shown(visit: Visit, template: str, where: tuple[str, ...], blocks: Sequence[TraceBlock], **context: Any) -> Response:
    """Render the requested window; with ``part`` only its entries, for htmx to append."""
    count = sum(len(block.entries) for block in blocks)
    context |= {"wrap": visit.query("wrap") != "0", "here": lambda **change: _address(visit, where, **change)}
    if visit.query("entry"):
        return _one(visit, blocks, count, **context)
    search = _search(visit, blocks)
    if search.hits and not visit.query("hit") and not visit.query("at"):
        return redirect(_address(visit, where, hit=0) + f"#e{search.hits[0]}")
    part = traces.window(count, search.number if search.number is not None else visit.number("at", 0), SIZE)
    return render(
        visit,
        "trace_entries.html" if visit.query("part") == "1" else template,
        part=part,
        count=count,
        pieces=_pieces(blocks, part, search.text),
        search=search,
        unfold=visit.query("unfold") == "1",
        headed=where[0] == "agents",  # else all entries belong to one commit
        **context,
    )


def _one(visit: Visit, blocks: Sequence[TraceBlock], count: int, **context: Any) -> Response:
    """Render one complete entry."""
    number = visit.number("entry", count)
    block = next((candidate for candidate in blocks if candidate.start <= number < candidate.start + len(candidate.entries)), None)
    if block is None:
        raise NotFound(f"the trace has no entry {visit.query('entry')!r}", code="no-such-entry")
    at = number - block.start
    entries = traces.view(block.entries[at : at + 1], number, find=visit.query("q")[:_SOUGHT_MAX], complete=True)
    return render(visit, "trace_entry.html", entries=entries, number=number, at=number - number % SIZE, **context)


def _search(visit: Visit, blocks: Sequence[TraceBlock]) -> TraceSearch:
    text = visit.query("q")[:_SOUGHT_MAX]
    hits = traces.hits(chain.from_iterable(block.entries for block in blocks), text) if text.strip() else []
    if not hits:
        return TraceSearch(text)
    if visit.query("hit"):
        current = visit.number("hit", 0, len(hits) - 1)
        after = current + 1 if current + 1 < len(hits) else None
        return TraceSearch(text, hits, current, current - 1 if current else None, after)
    at = visit.number("at", 0)
    after = next((index for index, number in enumerate(hits) if number >= at + SIZE), None)
    before = next((index for index, number in reversed([*enumerate(hits)]) if number < at), None)
    return TraceSearch(text, hits, None, before, after)


def _pieces(blocks: Sequence[TraceBlock], part: TraceWindow, text: str) -> list[tuple[TraceBlock, list[EntryView]]]:
    """The parts of the blocks in a window."""
    pieces = []
    for block in blocks:
        first, last = max(part.first, block.start), min(part.last, block.start + len(block.entries))
        if first < last:
            entries = block.entries[first - block.start : last - block.start]
            pieces.append((block, traces.view(entries, first, find=text)))
    return pieces


def _address(visit: Visit, where: tuple[str, ...], **change: str | int | None) -> str:
    """The URL of this page with changed parameters."""
    query = {name: visit.query(name)[:_SOUGHT_MAX] for name in _KEPT if visit.query(name)}
    return visit.address(*where, **(query | change))


# Evidence


def cited(visit: Visit, cids: Iterable[str]) -> list[EvidenceLink]:
    return [_cited(visit, cid) for cid in cids]


def _cited(visit: Visit, cid: str) -> EvidenceLink:
    text, page = one_line(cid)[:_ID_MAX], None
    with suppress(CliaError):  # not in this clone, or not an id
        body = visit.space.views.event(cid)
        if body is None:
            page = visit.address("commits", cid)
        else:
            event = _session(visit, body) or _refusal(visit, body)
            if event is not None:
                return EvidenceLink(text, *event, is_event=True)
    return EvidenceLink(text, short(text), page, is_event=False)


def _session(visit: Visit, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """A session-ended event, linked to the session or, if the store lost it, to the agent."""
    agent, session, status = body.get("agent"), body.get("session"), body.get("status")
    if body.get("event") != "session-ended" or not (is_name(agent) and is_name(session)) or status not in STATUSES:
        return None
    page = agent_at(visit, agent)
    with suppress(CliaError):
        visit.space.session(str(agent), str(session))
        page = visit.address("sessions", str(agent), str(session))
    return f"session {session} of {agent} {status}", page


def _refusal(visit: Visit, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    into, from_ = body.get("into"), body.get("from")
    if body.get("event") != "merge-refused" or not is_name(into) or not (is_name(from_) or remote_agent(str(from_))):
        return None
    return f"merge of {from_} into {into} refused", agent_at(visit, into) or agent_at(visit, from_)
