"""Identity tools; they work in any directory, with or without a space.

Invariant: documents are returned as merged, guardrails first. An unusable document is reported next to the result and hides
nothing else.
"""

from __future__ import annotations

import os

from clia.api.records import BRIEFING, COMMIT, MAYBE_STRING, MAYBE_TEXT, REQUEST, STRINGS
from clia.api.shapes import ANY, COUNT, FLAG, OBJECT, STRING, TEXT, Listed, Optional
from clia.api.special_shapes import SESSION
from clia.errors import AgentNotFound, CliaError, InvalidInput, NoSuchAgent
from clia.identities.contexts import AGENDA
from clia.identities.journal import Note
from clia.identities.lineage import lineage
from clia.identities.writing import WriteLocation
from clia.identities.writing import journal as append
from clia.mcp.toolbox import ADDS, AGENT, ResultShape, Tool, ToolArgument
from clia.values.names import is_slug
from clia.verbs import ADMIN, VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lineage import Lineage, MergedDocument
    from clia.mcp.calls import ToolCall
    from clia.sessions.model import Session

_DIAGNOSTIC = ResultShape(severity=STRING, code=STRING, message=STRING, hint=STRING, path=MAYBE_STRING, pointer=MAYBE_STRING)
_STANDING = ResultShape(
    head=COMMIT,
    trace_pending=COUNT,
    briefing=Optional(BRIEFING),
    parent=MAYBE_STRING,
    sub_agents=STRINGS,
    session=Optional(SESSION),
    waits_for=Listed(REQUEST),
)
_WHO = ResultShape(
    agent=STRING,
    guardrails=Listed(ANY),
    slug=MAYBE_STRING,
    profile=Optional(OBJECT),
    contexts=STRINGS,
    space=MAYBE_STRING,
    standing=Optional(_STANDING),
    diagnostics=Listed(_DIAGNOSTIC),
)
_PLAN = ResultShape(slug=STRING, agenda=OBJECT, contexts=STRINGS, diagnostics=Listed(_DIAGNOSTIC))
_JOURNALED = ResultShape(slug=STRING, path=STRING, entry=OBJECT, sha256=STRING, appended=FLAG)


def slug_of(space: Space | None, agent: str) -> str:
    """The slug of an agent: the one it was spawned with, else its name."""
    if space is not None:
        try:
            profile = space.record_of(agent).get("profile.json")
        except NoSuchAgent:
            profile = None
        if isinstance(profile, dict) and isinstance(profile.get("slug"), str):
            return str(profile["slug"])
    return agent


def _whoami(call: ToolCall, agent: str | None) -> Mapping[str, Any]:
    name = call.agent(agent)
    space = call.space_or_none()
    slug = slug_of(space, name)
    merged = _profile(call, slug)
    standing = None if space is None else _standing(space, name, is_known=merged is not None)
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


def _standing(space: Space, name: str, *, is_known: bool) -> dict[str, Any] | None:
    """The state of an agent in the space; None for one that only has documents."""
    try:
        head = space.show(space.head(name))
    except NoSuchAgent:
        if is_known:
            return None
        raise
    return {
        "head": head,
        "trace_pending": len(space.trace_pending(name)),
        "briefing": _briefing(space, name),
        "parent": space.parent_agent(name),
        "sub_agents": space.sub_agents(name),
        "session": _session(space, name),
        "waits_for": space.pending(name),
    }


def _briefing(space: Space, name: str) -> Any:
    try:
        return space.briefing_of(name)
    except CliaError:  # the clone that recorded it has not pushed
        return None


def _session(space: Space, name: str) -> Session | None:
    return next(iter(space.sessions(name, live=True)), None)


def _contexts(call: ToolCall, merged: MergedDocument) -> list[str]:
    directories: list[str] = call.place.said([context.directory for context in merged.chain])
    return directories


def diagnostics(call: ToolCall, items: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    keys = ("severity", "code", "message", "hint", "path", "pointer")
    listed: list[dict[str, Any]] = call.place.said([{key: getattr(diagnostic, key) for key in keys} for diagnostic in items])
    return listed


def lineage_here(call: ToolCall, slug: str) -> Lineage:
    """The lineage of a slug in the server's directory."""
    return lineage(call.place.path, slug)


def _plan(call: ToolCall, agent: str | None) -> Mapping[str, Any]:
    slug = slug_of(call.space_or_none(), call.agent(agent))
    merged = lineage_here(call, slug).merged(AGENDA)
    return {
        "slug": slug,
        "agenda": dict(merged.document),
        "contexts": _contexts(call, merged),
        "diagnostics": diagnostics(call, merged.diagnostics),
    }


def _journal(
    call: ToolCall, note: str, tags: Sequence[str], dirs_touched: Sequence[str], key: str | None, agent: str | None
) -> Any:
    slug = slug_of(call.space_or_none(), call.agent(agent))
    if not note.strip():
        raise InvalidInput("note must not be empty", code="empty-value", fields={"field": "note"})
    done, _ = append(slug, Note(note, tags, dirs_touched=dirs_touched, idempotency_key=key), WriteLocation(call.place.path))
    shown = os.path.relpath(done.path, call.place.path)
    return {"slug": slug, "path": shown, "entry": done.entry, "sha256": done.sha256, "appended": done.appended}


LINEAGE_TOOLS = (
    Tool(
        "whoami",
        "Who you are here",
        "Call this first. Returns who the agent is here: its guardrails, which are binding, then its merged profile; and its"
        " state in the space: newest commit, briefing, parent and sub-agents, live session and pending requests.",
        VIEWER,
        (AGENT,),
        _WHO,
        _whoami,
    ),
    Tool(
        "plan",
        "Your agenda",
        "Returns the agent's agenda, merged from every enclosing directory and repository: what to do, and in which order.",
        VIEWER,
        (AGENT,),
        _PLAN,
        _plan,
    ),
    Tool(
        "journal",
        "Write to your journal",
        "Appends an entry to the agent's agency document, a file in the repository. Use it for what the next session must"
        " know: decisions, dead ends, open questions. Using the same key twice adds one entry.",
        ADMIN,
        (
            ToolArgument("note", TEXT, "what happened, in a few sentences"),
            ToolArgument("tags", Listed(TEXT), "search tags", ()),
            ToolArgument("dirs_touched", Listed(TEXT), "directories that the work changed", ()),
            ToolArgument("key", MAYBE_TEXT, "idempotency key: a second entry with the same key is ignored", None),
            AGENT,
        ),
        _JOURNALED,
        _journal,
        ADDS,
    ),
)
