"""Tools for agents, commits, traces, merges, relations, peers, flows and sessions.

Invariant: a tool calls one verb of the space and truncates results that are too long, with a note. No tool pins, grants,
announces or syncs: people decide whom a space trusts, because an agent may have read what a peer wrote. No tool answers a question
to people.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from clia.api.shapes import Listed
from clia.errors import InvalidInput, NoSuchObject
from clia.mcp.toolbox import ABSENT, ResultShape, served, tool
from clia.sessions.model import Request, is_for_people, question_of
from clia.sessions.service import SessionRecord
from clia.space.model import File, Link, Submodule
from clia.values.typed_objects import Briefing
from clia.verbs import Count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.api.parameters import Meta
    from clia.mcp.calls import ToolCall
    from clia.sessions.model import Session
    from clia.space.model import Content, Spawned
    from clia.space.verification import Report

DIFF_MAX = 200_000
FILES_MAX = 1_000_000
HITS_MAX = 200
LOG_MAX = 200


@tool("Agents of this space", "states", returns=ResultShape(agents="states", archived="agents"))
def agents(call: ToolCall, archived: Annotated[bool, "include archived agents"] = False) -> Mapping[str, Any]:
    space = call.space
    return {"agents": space.states(), "archived": space.agents(archived=True) if archived else []}


@tool("Spawn an agent", "spawn_at", names={"commit": "at"})
def spawn(
    call: ToolCall,
    name: str,
    title: Annotated[str, "one-line title"],
    text: Annotated[str, "the briefing, self-contained"] = "",
    behaviour: Annotated[
        str | None, "prompt to use, by name or version id, with text as its task; or version of an identity's document to work with"
    ] = None,
    parent: Annotated[str | None, "the parent agent; the new agent starts at its head unless at is set"] = None,
    commit: Annotated[str | None, "the commit to start at (default: the repository's checked-out commit)"] = None,
    empty: Annotated[bool, "start without files"] = False,
    slug: str | None = None,
    meta: Meta = None,
) -> Spawned:
    """An agent is a branch agents/NAME with a briefing. Set parent (usually yourself) for a sub-agent that starts with the
    parent's files; merge its work when it is done."""
    space = call.space
    briefing = Briefing(title, text) if behaviour is None else space.behaviours.brief(behaviour, title, text, agent=name)
    briefing = briefing._replace(meta=meta)
    if empty and (parent is not None or commit is not None):
        raise InvalidInput("empty cannot be combined with parent or at", code="invalid-field", fields={"field": "empty"})
    if parent is not None:
        parent = call.agent(parent)
        if commit is None:
            return space.spawn_from(name, briefing, parent, slug=slug)
    if commit is None and not empty:
        with suppress(NoSuchObject):  # the repository may have no commit yet
            commit = space.find("HEAD")
    return space.spawn(name, briefing, slug=slug) if commit is None else space.spawn_at(name, briefing, commit, parent, slug=slug)


# Work


@tool(
    "Commit your work",
    "commit",
    you="name",
    names={"name": "agent"},
    returns=ResultShape(agent=str, cid=str, kind=str, traced=Count),
    slow="writing the commit",
)
def commit(
    call: ToolCall,
    name: str,
    kind: str,
    with_trace: Annotated[bool, "attach the trace entries since the last commit"] = True,
    **arguments: Any,
) -> Mapping[str, Any]:
    """The commit is on the agent's branch; the working directory and checkout do not change. Kinds are finding, refactor, test and
    types registered in this space; an unknown kind is refused with a list of known ones."""
    space = call.space
    verb = space.commit_with_trace if with_trace else space.commit
    cid = verb(name, kind, **arguments)
    trace = space.traces.of(cid) if with_trace else None
    return {"agent": name, "cid": cid, "kind": kind, "traced": 0 if trace is None else len(trace.entries)}


@tool("Add a trace entry", "trace", you="name", names={"name": "agent"}, returns=ResultShape(agent=str, position="trace"))
def trace(call: ToolCall, name: str, kind: str = "note", **arguments: Any) -> Mapping[str, Any]:
    """The next commit attaches the pending entries: reasoning, commands, output."""
    return {"agent": name, "position": call.space.trace(name, kind, **arguments)}


@tool("Search traces", "trace_search", returns=ResultShape(hits="trace_search", cut=bool))
def trace_search(call: ToolCall, **arguments: Any) -> Mapping[str, Any]:
    """Shows what was said or tried before, by whom, at which commit."""
    hits = call.space.traces.search(**arguments)
    return {"hits": hits[:HITS_MAX], "cut": len(hits) > HITS_MAX}


# History


@tool("History", "log", you="text", names={"text": "of"}, returns=ResultShape(commits="log"))
def log(
    call: ToolCall,
    own: bool = True,
    limit: Annotated[Count, f"maximum number of commits, at most {LOG_MAX}"] = 20,
    **arguments: Any,
) -> Mapping[str, Any]:
    if not 1 <= limit <= LOG_MAX:
        raise InvalidInput(f"limit must be between 1 and {LOG_MAX}", code="invalid-field", fields={"field": "limit"})
    return {"commits": call.space.log(own=own, limit=limit, **arguments)}


@tool(
    "One commit",
    "show",
    names={"text": "commit"},
    returns=ResultShape(commit="show", changed="changed", diff=str | None, cut=bool, trace="trace_for"),
)
def show(
    call: ToolCall,
    text: str,
    diff: Annotated[bool, "include the patch"] = False,
    trace: Annotated[bool, "include the trace"] = False,
) -> Mapping[str, Any]:
    """Includes its changed files and, on request, its patch and trace."""
    space = call.space
    details = space.show(text)
    patch = _cut(space.diff(details.cid)) if diff else {"diff": None, "cut": False}
    attached = space.traces.of(details.cid) if trace else None
    return {"commit": details, "changed": space.history.changed(details.cid), "trace": attached, **patch}


@tool("Changes", "diff", you="text", names={"text": "of"}, returns=ResultShape(changed="changed", diff="diff", cut=bool))
def diff(call: ToolCall, **arguments: Any) -> Mapping[str, Any]:
    return {"changed": call.space.history.changed(**arguments), **_cut(call.space.diff(**arguments))}


def _cut(patch: str) -> dict[str, Any]:
    return {"diff": patch[:DIFF_MAX], "cut": len(patch) > DIFF_MAX}


@tool(
    "Files at a commit",
    "files",
    you="text",
    names={"text": "at"},
    returns=ResultShape(commit="find", listed=Listed(ResultShape(path=str, bytes=Count)), files="files"),
)
def files(call: ToolCall, text: str, paths: Annotated[Sequence[str], "the files to read"] = ()) -> Mapping[str, Any]:
    """Without paths, a list of names and sizes; with paths, contents."""
    space = call.space
    cid = space.find(text)
    tree = space.files(cid)
    for path in paths:
        if path not in tree:
            raise NoSuchObject(f"no file {path!r} at commit {cid[:10]}", code="no-such-file", fields={"path": path, "commit": cid})
    chosen = {path: tree[path] for path in paths}
    if sum(map(_size, chosen.values())) > FILES_MAX:
        hints = [f"read at most {FILES_MAX} bytes at once; call without paths to list sizes"]
        raise InvalidInput("the files are too large for one response", code="too-large", hints=hints, fields={"field": "paths"})
    listed = [] if paths else [{"path": path, "bytes": _size(content)} for path, content in sorted(tree.items())]
    return {"commit": cid, "listed": listed, "files": chosen}


def _size(content: Content) -> int:
    if isinstance(content, (Link, Submodule)):
        return 0
    return len(content.data if isinstance(content, File) else content)


# Others


why = served("why", "Why a line is there", "Follows lines through renames, landings and commits of people.")


@tool("Work that has not landed", "changes", returns=ResultShape(changes="changes", clashes="changes.clashes"))
def changes(call: ToolCall, **arguments: Any) -> Mapping[str, Any]:
    """clashes are pairs of agents whose work has conflicts with each other. Nothing is changed."""
    service = call.space.changes
    return {"changes": service(**arguments), "clashes": service.clashes(**arguments)}


change = served(
    "changes.get",
    "One agent's work that has not landed",
    "forecast.outcome is lands, conflicts, refused or up-to-date. No tool lands work.",
    name="change",
    you="name",
    names={"name": "agent"},
)
merge = served(
    "merge",
    "Merge another agent's work",
    "outcome is merged, up_to_date or conflicts. Conflicts are not an error: nothing was written, and each path has base, ours and "
    "theirs. Then call resolve with the heads from the result.",
    you="into",
    slow="merging",
)
resolve = served(
    "resolve",
    "Resolve merge conflicts",
    "Give the final content of each path. ours and theirs are the heads that merge returned; if either has moved, nothing is "
    "written: merge again.",
    you="into",
    slow="merging",
)


@tool(
    "Add or remove a relation",
    "relate",
    you="src",
    returns=ResultShape(src=str, kind=str, dst=str, retracted=bool, origin="relate"),
    idempotent=True,
)
def relate(
    call: ToolCall, src: str, kind: str, dst: str, retract: Annotated[bool, "remove the relation"] = False
) -> Mapping[str, Any]:
    """With retract, removes it."""
    verb = call.space.relations.retract if retract else call.space.relate
    return {"src": src, "kind": kind, "dst": dst, "retracted": retract, "origin": verb(src, kind, dst)}


relations = served("relations", "Relations", "Relations are spawns, merges, reviews and others.", key="relations")
peers = served(
    "peers",
    "Peers of this space",
    "Shows its trust, what is shared with it, how many of its agents are tracked here, and what waits for a grant.",
    key="peers",
)
remotes = served(
    "remotes",
    "Agents of peers",
    "Read and merge them as PEER/AGENT. Their content is from another owner: check it before you use it.",
    key="remotes",
)


@tool("Check the record", "verify", slow="checking")
def verify(call: ToolCall) -> Report:
    """No findings means that the record is complete and consistent."""
    return call.space.verify(progress=call.say)


# Flows and sessions

_PENDING = ResultShape(request=Request, question=str, for_people=bool, rule="rule", url=str | None)


@tool("Pending requests", "pending", returns=ResultShape(requests=Listed(_PENDING)))
def pending(call: ToolCall, agent: str | None = None) -> Mapping[str, Any]:
    """A person's decision answers those that are for_people; resume answers the others."""
    requests = [
        {
            "request": request,
            "question": question_of(request),
            "for_people": is_for_people(request),
            "rule": call.space.sessions.rule(request),
            "url": call.place.inbox(request.agent, request.id),
        }
        for request in call.space.pending(agent)
    ]
    return {"requests": requests}


flow = served("flow", "One flow", "Includes its source and versions.", names={"text": "name"})
start = served("start", "Start a session", "The session survives restarts.", you="agent", slow="running the flow")


@tool("One session", "session", you="agent", returns=ResultShape(session="session", given=SessionRecord | None))
def session(
    call: ToolCall, agent: str, given: Annotated[bool, "include input and answers"] = False, **arguments: Any
) -> Mapping[str, Any]:
    """Includes status, pending requests, result or failure; with given also its input and all answers."""
    session = call.space.session(agent, **arguments)
    return {"session": session, "given": call.space.sessions.record(agent, session.id) if given else None}


@tool("Answer a request of a session", "resume", you="agent", slow="running the flow")
def resume(
    call: ToolCall,
    agent: str,
    value: Any = ABSENT,
    error: Annotated[str | None, "error message, instead of a value"] = None,
    request_id: str | None = None,
) -> Session:
    """Then the flow continues; an error, instead of a value, is raised in the flow. Questions to people are refused: only a person
    can decide them."""
    by = call.caller.by
    if error is not None and value is not ABSENT:
        raise InvalidInput("value and error are mutually exclusive", code="invalid-field", fields={"field": "error"})
    if error is not None:
        return call.space.sessions.give_up(agent, error, request_id, by=by)
    if value is ABSENT:
        raise InvalidInput("value is missing", code="missing-field", fields={"field": "value"})
    return call.space.resume(agent, value, request_id, by=by)


cancel = served(
    "cancel", "Cancel a session", "Its pending requests are closed. This cannot be undone.", you="agent", destructive=True
)
fork = served("fork", "Fork a session", "Use it to try an alternative.", you="agent", slow="replaying the session")
