"""Built-in effects on agents, identities and sessions.

Invariant: an effect that is attempted several times takes effect once.
"""

from __future__ import annotations

from clia.errors import AlreadyExists, Conflict, NotFound
from clia.space.model import Conflicts, Merged
from clia.values.clock import timestamp
from clia.values.typed_objects import Briefing
from clia.verbs import acting_as
from clia.workers.due_requests import circles, timer_due
from clia.workers.effects.context import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.errors import CliaError
    from clia.workers.effects.context import Context


def commit(context: Context, value: Any) -> dict[str, str]:
    """Commit files of the agent: ``{"kind": …, "changes": {PATH: TEXT or null}, "message": …}``."""
    payload = Payload("commit", value, "kind", "changes", "message")
    changes: dict[str, bytes | None] = {}
    for path, text in payload.object("changes").items():
        if text is not None and not isinstance(text, str):
            raise payload.refusal(f"changes[{path!r}]", "must be a string, or null to delete the file")
        changes[path] = None if text is None else text.encode("utf-8")
    kind, message = payload.text("kind", "finding"), payload.text("message", "")

    def commit_on(head: str) -> str:
        mark = context.mark()
        return context.space.commit_with_trace(context.agent, kind, changes=changes, message=message, meta=mark, base=head)

    return {"commit": context.once(commit_on)}


def merge(context: Context, value: Any) -> dict[str, Any]:
    """Merge another agent's work: ``{"from": NAME, "message": …}``.

    If there are conflicts, they are returned as the answer and nothing is committed.
    """
    payload = Payload("merge", value, "from", "message")
    other, message = payload.text("from"), payload.text("message", "")
    earlier = context.marked()
    if earlier is not None:
        return {"merged": earlier.cid}
    result = context.space.merge(context.agent, other, message=message, meta=context.mark())
    if isinstance(result, Merged):
        return {"merged": result.cid}
    if isinstance(result, Conflicts):
        return {"conflicts": [conflict.path for conflict in result.paths]}
    return {"up_to_date": result.head}


def profile(context: Context, value: Any) -> dict[str, Any]:
    """Return the identity of the agent: its slug, the guardrails that bind it, and its merged profile."""
    Payload("profile", {} if value is None else value)
    identity = context.space.identities.of_agent(context.agent)
    return {"slug": identity.slug, "guardrails": list(identity.guardrails), "profile": dict(identity.document)}


def plan(context: Context, value: Any) -> dict[str, Any]:
    """Return the merged agenda of the agent's identity; null if it has none."""
    Payload("plan", {} if value is None else value)
    identities = context.space.identities
    slug = identities.of_agent(context.agent).slug
    agenda = None if slug is None else dict(identities.at_place_of(context.agent, slug).plan().document)
    return {"slug": slug, "agenda": agenda}


def journal(context: Context, value: Any) -> dict[str, Any]:
    """Append to the journal of the agent's identity, in its branch: ``{"note": …, "tags": […], "dirs_touched": […]}``."""
    payload = Payload("journal", value, "note", "tags", "dirs_touched")
    note, tags, touched = payload.text("note"), payload.texts("tags"), payload.texts("dirs_touched")
    entry = context.space.agents.journal(context.agent, note, tags=tags, dirs_touched=touched, key=context.key)
    return {"path": entry.path, "sha256": entry.sha256, "entry": entry.entry}


def timer(context: Context, value: Any) -> dict[str, str]:
    """Answer when the time is up: ``{"seconds": 5}`` or ``{"until": "2026-05-01T12:00:00Z"}``.

    The queue does not hand it out before its time, so no worker waits for it.
    """
    del value  # the request has it
    timer_due(context.request)
    return {"at": timestamp(context.tools.clock())}


def session(context: Context, value: Any) -> dict[str, Any]:
    """Return how another agent's session ended: ``{"agent": NAME}``; with ``"wait": false``, its current state.

    The request becomes a task when that session ends, so no worker waits for it. Two sessions that wait for each other
    are refused. A failed or cancelled session is an answer, not an error.
    """
    payload = Payload("session", value, "agent", "wait")
    agent, waits = payload.text("agent"), payload.truth("wait", True)
    if agent == context.agent and waits:
        raise payload.refusal("agent", "cannot be the agent itself: it would wait forever")
    other = context.space.session(agent)
    if waits and other.live:
        raise _still_live(context, payload, agent)
    answer = {"agent": agent, "session": other.id, "status": other.status, "result": other.result}
    return answer if other.failure is None else {**answer, "error": str(other.failure.get("message", ""))}


def _still_live(context: Context, payload: Payload, agent: str) -> CliaError:
    """Return the error for a cycle, or for a session that started after the request became a task."""
    circle = circles(context.space.pending()).get((context.agent, context.request.id))
    if circle is None:
        return Conflict(f"session: the session of {agent!r} is still live", code="session-live", fields={"agent": agent})
    cycle = ", ".join(f"{waiter} waits for {target}" for waiter, target in zip(circle, (*circle[1:], circle[0]), strict=True))
    return payload.refusal("agent", f"cannot be waited for: the sessions wait for each other ({cycle})")


def spawn(context: Context, value: Any) -> dict[str, Any]:
    """Spawn a sub-agent, and start its session if a flow is named.

    ``{"name": …, "briefing": {"title": …, "text": …}, "from": true | false | AGENT, "slug": …, "flow": …, "input": …}``.
    ``from``: start with the agent's files (default), with another agent's, or (``false``) with none.
    """
    payload = Payload("spawn", value, "name", "briefing", "from", "slug", "flow", "input")
    name, space = payload.text("name"), context.space
    inner = Payload("spawn: briefing", payload.object("briefing"), "title", "text")
    # With the full key: the briefing belongs to another agent.
    mark = {**context.mark(), "request": context.key}
    briefing = Briefing(inner.text("title"), inner.text("text", ""), meta=mark)
    flow = payload.text("flow") if payload.has("flow") else None
    if payload.has("input") and flow is None:
        raise payload.refusal("input", "needs a flow")
    if flow is not None and not _spawned_earlier(context, name, mark):
        space.sessions.flow(flow)  # check before creating an agent that could not run it
        space.behaviours.check_runnable(flow)
    slug, source = payload.text("slug") if payload.has("slug") else None, payload.value("from")
    try:
        with acting_as(context.agent):  # so that it works under the agent's identity, whatever files it starts with
            if source is None or source is True:
                space.spawn_from(name, briefing, context.agent, slug=slug)
            elif source is False:
                space.spawn(name, briefing, slug=slug)
            else:
                space.spawn_at(name, briefing, space.head(payload.text("from")), context.agent, slug=slug)
    except AlreadyExists:
        if not _spawned_earlier(context, name, mark):
            raise
    answer = {"agent": name, "genesis": space.agents.genesis(name)}
    return answer if flow is None else {**answer, "session": _first_session(context, name, flow, payload.value("input"))}


def _spawned_earlier(context: Context, name: str, mark: dict[str, str]) -> bool:
    """Whether an earlier attempt at this request spawned the agent."""
    try:
        return mark.items() <= (context.space.agents.briefing(name).meta or {}).items()
    except NotFound:
        return False


def _first_session(context: Context, name: str, flow: str, value: Any) -> str:
    """Return the agent's first session; start it unless an earlier attempt did."""
    sessions = context.space.sessions(name)
    if sessions:
        return min(sessions, key=lambda session: (len(session.id), session.id)).id
    try:
        return context.space.start(name, flow, value).id
    except Conflict as err:
        if err.code != "session-live":
            raise
        return context.space.session(name).id
