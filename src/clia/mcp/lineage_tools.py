"""Identity tools; they work in any directory, with or without a space.

Invariant: documents are returned as merged, guardrails first. An unusable document is reported next to the result and hides
nothing else.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, cast

from clia.api.derivation import record_of
from clia.api.shapes import Listed, Optional
from clia.errors import AgentNotFound, CliaError, InvalidInput, NoSuchAgent
from clia.identities.contexts import AGENDA
from clia.identities.diagnostics import Diagnostic
from clia.identities.journal import Note
from clia.identities.lineage import lineage
from clia.identities.writing import WriteLocation
from clia.identities.writing import journal as append
from clia.mcp.toolbox import AgentName, ResultShape, tool
from clia.sessions.model import Session
from clia.values.slugs import is_slug
from clia.values.typed_objects import Briefing
from clia.verbs import ADMIN, Count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.facade.space import Space
    from clia.identities.lineage import MergedDocument
    from clia.mcp.calls import ToolCall

_DIAGNOSTIC = ResultShape(**record_of(Diagnostic).fields)
STANDING = ResultShape(
    head="show",
    trace_pending=Count,
    briefing=Briefing | None,
    parent="parent_agent",
    sub_agents="sub_agents",
    session=Session | None,
    waits_for="pending",
)
_WHO = ResultShape(
    agent=str,
    guardrails=list[Any],
    slug=str | None,
    profile=dict[str, Any] | None,
    contexts=list[str],
    space=str | None,
    standing=Optional(STANDING),
    diagnostics=Listed(_DIAGNOSTIC),
)


def slug_of(space: Space | None, agent: str) -> str:
    """The slug of an agent: the one it was spawned with, else its name."""
    if space is not None:
        try:
            profile = space.agents.record(agent).get("profile.json")
        except NoSuchAgent:
            profile = None
        if isinstance(profile, dict) and isinstance(profile.get("slug"), str):
            return str(profile["slug"])
    return agent


@tool("Who you are here", returns=_WHO)
def whoami(call: ToolCall, agent: AgentName = None) -> Mapping[str, Any]:
    """Call this first. Returns who the agent is here: its guardrails, which are binding, then its merged profile; and its state in
    the space: newest commit, briefing, parent and sub-agents, live session and pending requests."""
    name = call.agent(agent)
    space = call.space_or_none()
    slug = slug_of(space, name)
    merged = _profile(call, slug)
    standing = None if space is None else _standing_or_none(space, name, is_known=merged is not None)
    if merged is None and standing is None:
        lineage(call.place.path, slug)  # the error names the searched directories
    document = {} if merged is None else dict(merged.document)
    guardrails = document.get("guardrails")
    return {
        "agent": name,
        "guardrails": guardrails if isinstance(guardrails, list) else [],
        "slug": None if merged is None else slug,
        "profile": None if merged is None else document,
        "contexts": [] if merged is None else _contexts(call, merged),
        "space": None if space is None else space.id,
        "standing": standing,
        "diagnostics": [] if merged is None else diagnostics(call, merged.diagnostics),
    }


def _profile(call: ToolCall, slug: str) -> MergedDocument | None:
    """The identity of an agent; None for an agent that only the space knows."""
    if not is_slug(slug):
        return None
    try:
        return lineage(call.place.path, slug).profile()
    except AgentNotFound:
        return None


def _standing_or_none(space: Space, name: str, *, is_known: bool) -> dict[str, Any] | None:
    """The state of an agent in the space; None for one that only has documents."""
    try:
        return standing_of(space, name)
    except NoSuchAgent:
        if is_known:
            return None
        raise


def standing_of(space: Space, name: str) -> dict[str, Any]:
    """The state of an agent in the space."""
    return {
        "head": space.show(space.head(name)),
        "trace_pending": len(space.traces.pending(name)),
        "briefing": _briefing(space, name),
        "parent": space.relations.parent(name),
        "sub_agents": space.relations.sub_agents(name),
        "session": next(iter(space.sessions(name, live=True)), None),
        "waits_for": space.pending(name),
    }


def _briefing(space: Space, name: str) -> Briefing | None:
    try:
        return space.agents.briefing(name)
    except CliaError:  # the clone that recorded it has not pushed
        return None


def _contexts(call: ToolCall, merged: MergedDocument) -> list[str]:
    return cast("list[str]", call.place.in_json([context.directory for context in merged.chain]))


def diagnostics(call: ToolCall, items: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", call.place.in_json([diagnostic._asdict() for diagnostic in items]))


@tool(
    "Your agenda",
    returns=ResultShape(slug=str, agenda=dict[str, Any], contexts=list[str], diagnostics=Listed(_DIAGNOSTIC)),
)
def plan(call: ToolCall, agent: AgentName = None) -> Mapping[str, Any]:
    """Returns the agent's agenda, merged from every enclosing directory and repository: what to do, and in which order."""
    slug = slug_of(call.space_or_none(), call.agent(agent))
    merged = lineage(call.place.path, slug).merged(AGENDA)
    return {
        "slug": slug,
        "agenda": dict(merged.document),
        "contexts": _contexts(call, merged),
        "diagnostics": diagnostics(call, merged.diagnostics),
    }


@tool(
    "Write to your journal",
    role=ADMIN,
    returns=ResultShape(slug=str, path=str, entry=dict[str, Any], sha256=str, appended=bool),
)
def journal(
    call: ToolCall,
    note: Annotated[str, "what happened, in a few sentences"],
    tags: Annotated[Sequence[str], "search tags"] = (),
    dirs_touched: Annotated[Sequence[str], "directories that the work changed"] = (),
    key: Annotated[str | None, "idempotency key: a second entry with the same key is ignored"] = None,
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Appends an entry to the agent's agency document, a file in the repository. Use it for what the next session must know:
    decisions, dead ends, open questions. Using the same key twice adds one entry."""
    slug = slug_of(call.space_or_none(), call.agent(agent))
    if not note.strip():
        raise InvalidInput("note must not be empty", code="empty-value", fields={"field": "note"})
    appended, _ = append(slug, Note(note, tags, dirs_touched=dirs_touched, idempotency_key=key), WriteLocation(call.place.path))
    return {"slug": slug, **appended._asdict(), "path": os.path.relpath(appended.path, call.place.path)}
