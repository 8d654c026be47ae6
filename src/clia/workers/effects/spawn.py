"""``spawn``: a sub-agent of the asking agent, and its session where a flow is named.

``{"name": …, "briefing": {"title": …, "text": …}, "from": true | false | AGENT, "slug": …, "flow": …, "input": …}``. It
starts from the asking agent's files, from another agent's, or (``false``) from none.

Invariant: however often it is tried, there is one such agent, and one session of it for the request.
"""

from __future__ import annotations

from clia.errors import AlreadyExists, Conflict, NotFound
from clia.values.typed_objects import Briefing
from clia.workers.effects.payloads import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.workers.effects.context import Context

_KNOWN = ("name", "briefing", "from", "slug", "flow", "input")


def handle(context: Context, payload: Any) -> dict[str, Any]:
    said = Payload("spawn", payload, *_KNOWN)
    name = said.text("name")
    briefing = _briefing(context, said)
    flow = said.text("flow") if said.has("flow") else None
    if said.has("input") and flow is None:
        raise said.refusal("input", "is for a flow, and none is named")
    if flow is not None and not _is_ours(context, name):
        _check_flow(context, flow)
    try:
        _spawn(context, said, name, briefing)
    except AlreadyExists:
        if not _is_ours(context, name):
            raise
    made = {"agent": name, "genesis": context.space.genesis(name)}
    return made if flow is None else {**made, "session": _session(context, name, flow, said.value("input"))}


def _briefing(context: Context, said: Payload) -> Briefing:
    inner = Payload("spawn: briefing", said.object("briefing"), "title", "text")
    return Briefing(inner.text("title"), inner.text("text", ""), meta=_mark(context))


def _check_flow(context: Context, flow: str) -> None:
    """Before there is an agent that has nothing to do: the flow is there, and it may run."""
    context.space.flow(flow)
    context.space._tracking.runnable(flow)  # noqa: SLF001  # else it is seen only by starting it


def _mark(context: Context) -> dict[str, str]:
    """As a commit's, with the whole key: the briefing is another agent's."""
    return {**context.mark(), "request": context.key}


def _spawn(context: Context, said: Payload, name: str, briefing: Briefing) -> None:
    slug = said.text("slug") if said.has("slug") else None
    source = said.value("from")
    space = context.space
    if source is None or source is True:
        space.spawn_from(name, briefing, context.agent, slug=slug)
    elif source is False:
        space.spawn(name, briefing, slug=slug)
    else:
        space.spawn_at(name, briefing, space.head(said.text("from")), context.agent, slug=slug)


def _is_ours(context: Context, name: str) -> bool:
    """Whether an agent was spawned by an earlier attempt at this request."""
    try:
        meta = context.space.briefing_of(name).meta or {}
    except NotFound:
        return False
    return _mark(context).items() <= meta.items()


def _session(context: Context, name: str, flow: str, value: Any) -> str:
    """The new agent's first session: started here, or by an earlier attempt."""
    found = context.space.sessions(name)
    if found:
        return min(found, key=lambda each: (len(each.id), each.id)).id
    try:
        return context.space.start(name, flow, value).id
    except Conflict as err:
        if err.code != "session-live":
            raise
        return context.space.session(name).id
