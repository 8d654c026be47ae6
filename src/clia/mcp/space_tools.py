"""Tools for agents, commits, traces, merges, relations and peers.

Invariant: a tool calls one verb of the space and truncates results that are too long, with a note. No tool pins, grants,
announces or syncs: people decide whom a space trusts, because an agent may have read what a peer wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from clia.api.shapes import Listed
from clia.errors import InvalidInput, NoSuchObject
from clia.federation.model import Peer, Remote
from clia.git.records import FileChange
from clia.mcp.toolbox import AgentName, ResultShape, tool
from clia.space.model import AgentCommit, AgentState, Content, File, Link, Submodule, TraceHit
from clia.store.interface import Edge
from clia.values.typed_objects import Briefing, ConsoleTrace
from clia.verbs import ADMIN, Count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.mcp.calls import ToolCall
    from clia.space.model import Conflicts, Merged, Spawned, UpToDate
    from clia.space.verification import Report

DIFF_MAX = 200_000
FILES_MAX = 1_000_000
HITS_MAX = 200
LOG_MAX = 200
Meta = Annotated[Mapping[str, Any] | None, "additional fields, a JSON object"]
Message = Annotated[str, "what you did and why: a subject line, then a body"]
Changes = Annotated[
    Mapping[str, Content | None] | None,
    'changed files by path: a text, {"text": …} or {"base64": …} (with "executable": true), {"link": …}; null deletes the file',
]
Files = Annotated[Mapping[str, Content] | None, "the complete worktree by path, instead of changes; other files are deleted"]
From = Annotated[str, "the agent to merge; PEER/AGENT for a peer's agent, as listed by remotes"]
Into = Annotated[str | None, "the agent to merge into (default: yourself)"]


@tool("Agents of this space", returns=ResultShape(agents=list[AgentState], archived=list[str]))
def agents(call: ToolCall, archived: Annotated[bool, "include archived agents"] = False) -> Mapping[str, Any]:
    """Lists the active agents of this space, the newest commit of each, and whether it has landed on a human branch."""
    space = call.space
    return {"agents": space.states(), "archived": space.agents(archived=True) if archived else []}


@tool("Spawn an agent", ADMIN)
def spawn(
    call: ToolCall,
    name: Annotated[str, "name of the new agent: lowercase letters, digits and hyphens"],
    title: Annotated[str, "one-line title"],
    text: Annotated[str, "the briefing, self-contained"] = "",
    behaviour: Annotated[str | None, "prompt to use, by name or version id; text is then its task"] = None,
    parent: Annotated[str | None, "the parent agent; the new agent starts at its head unless at is set"] = None,
    at: Annotated[str | None, "the commit to start at (default: the repository's checked-out commit)"] = None,
    empty: Annotated[bool, "start without files"] = False,
    slug: Annotated[str | None, "identity to work under (default: the one with the agent's name, if it exists)"] = None,
    meta: Meta = None,
) -> Spawned:
    """Creates an agent: a branch agents/NAME with a briefing. Set parent (usually yourself) for a sub-agent that starts with the
    parent's files; merge its work when it is done."""
    space = call.space
    briefing = Briefing(title, text) if behaviour is None else space.brief(behaviour, title, text, agent=name)
    briefing = briefing._replace(meta=meta)
    if empty and (parent is not None or at is not None):
        raise InvalidInput("empty cannot be combined with parent or at", code="invalid-field", fields={"field": "empty"})
    if parent is not None and at is None:
        return space.spawn_from(name, briefing, parent, slug=slug)
    if at is None and not empty:
        with suppress(NoSuchObject):  # the repository may have no commit yet
            at = space.find("HEAD")
    return space.spawn(name, briefing, slug=slug) if at is None else space.spawn_at(name, briefing, at, parent, slug=slug)


# Work


@tool(
    "Commit your work",
    ADMIN,
    returns=ResultShape(agent=str, cid=str, kind=str, traced=Count),
    slow="writing the commit",
)
def commit(
    call: ToolCall,
    kind: Annotated[str, "commit kind, a registered type"],
    message: Message = "",
    changes: Changes = None,
    files: Files = None,
    base: Annotated[str | None, "the head that the work is based on"] = None,
    with_trace: Annotated[bool, "attach the trace entries since the last commit"] = True,
    meta: Meta = None,
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Creates a typed commit on the agent's branch; the working directory and checkout do not change. Set changes (paths that
    differ) or files (everything). Kinds are finding, refactor, test and types registered in this space; an unknown kind is refused
    with a list of known ones. With base, nothing is written if the agent's head has moved."""
    name, space = call.agent(agent), call.space
    verb = space.commit_with_trace if with_trace else space.commit
    cid = verb(name, kind, files, message=message, meta=meta, base=base, changes=changes)
    trace = space.trace_for(cid) if with_trace else None
    return {"agent": name, "cid": cid, "kind": kind, "traced": 0 if trace is None else len(trace.entries)}


@tool("Add a trace entry", ADMIN, returns=ResultShape(agent=str, position=Count))
def trace(
    call: ToolCall,
    text: Annotated[str, "the text of the entry"],
    kind: Annotated[str, "lowercase word: said, thinking, tool-call, tool-result, note"] = "note",
    data: Annotated[Mapping[str, Any] | None, "structured data"] = None,
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Appends an entry to the pending trace, which the next commit attaches: reasoning, commands, output. Secrets are redacted."""
    name = call.agent(agent)
    return {"agent": name, "position": call.space.trace(name, kind, text, data=data)}


@tool("Search traces", returns=ResultShape(hits=list[TraceHit], cut=bool))
def trace_search(
    call: ToolCall,
    text: Annotated[str, "text to find, ignoring case"],
    regex: Annotated[bool, "the text is a regular expression"] = False,
    agent: Annotated[str | None, "only traces of this agent (default: all)"] = None,
) -> Mapping[str, Any]:
    """Finds trace entries, attached or pending, that contain a text: what was said or tried before, by whom, at which commit."""
    hits = call.space.trace_search(text, agent=agent, regex=regex)
    return {"hits": hits[:HITS_MAX], "cut": len(hits) > HITS_MAX}


# History


@tool("History", returns=ResultShape(commits=list[AgentCommit]))
def log(
    call: ToolCall,
    of: Annotated[str | None, "an agent, PEER/AGENT, a commit or a branch (default: yourself)"] = None,
    own: Annotated[bool, "only commits made by this agent, not those that it started from or merged"] = True,
    limit: Annotated[Count, f"maximum number of commits, at most {LOG_MAX}"] = 20,
) -> Mapping[str, Any]:
    """Lists commits, newest first, with kind, message, author and trailers."""
    if not 1 <= limit <= LOG_MAX:
        raise InvalidInput(f"limit must be between 1 and {LOG_MAX}", code="invalid-field", fields={"field": "limit"})
    return {"commits": call.space.log(of or call.agent(None), own=own, limit=limit)}


@tool(
    "One commit",
    returns=ResultShape(commit=AgentCommit, changed=list[FileChange], diff=str | None, cut=bool, trace=ConsoleTrace | None),
)
def show(
    call: ToolCall,
    commit: Annotated[str, "a commit id or prefix, an agent or PEER/AGENT (for its head), or a branch"],
    diff: Annotated[bool, "include the patch"] = False,
    trace: Annotated[bool, "include the trace"] = False,
) -> Mapping[str, Any]:
    """Shows a commit: its trailers, changed files and, on request, its patch and trace."""
    space = call.space
    details = space.show(commit)
    patch = _cut(space.diff(details.cid)) if diff else {"diff": None, "cut": False}
    attached = space.trace_for(details.cid) if trace else None
    return {"commit": details, "changed": space.changed(details.cid), "trace": attached, **patch}


@tool("Changes", returns=ResultShape(changed=list[FileChange], diff=str, cut=bool))
def diff(
    call: ToolCall,
    of: Annotated[str | None, "an agent, PEER/AGENT or a commit (default: yourself)"] = None,
    other: Annotated[str | None, "another commit to compare with"] = None,
    paths: Annotated[Sequence[str], "only these paths"] = (),
) -> Mapping[str, Any]:
    """Returns a patch: everything that an agent did since it was spawned, one commit, or the difference between two commits."""
    space, text = call.space, of or call.agent(None)
    return {"changed": space.changed(text, other, paths=paths), **_cut(space.diff(text, other, paths=paths))}


def _cut(patch: str) -> dict[str, Any]:
    return {"diff": patch[:DIFF_MAX], "cut": len(patch) > DIFF_MAX}


@tool(
    "Files at a commit",
    returns=ResultShape(commit=str, listed=Listed(ResultShape(path=str, bytes=Count)), files=dict[str, Content]),
)
def files(
    call: ToolCall,
    at: Annotated[str | None, "an agent, PEER/AGENT, a commit or a branch (default: yourself)"] = None,
    paths: Annotated[Sequence[str], "the files to read"] = (),
) -> Mapping[str, Any]:
    """Reads the worktree of an agent or commit: a list of names and sizes without paths, contents with paths."""
    space = call.space
    cid = space.find(at or call.agent(None))
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


@tool("Merge another agent's work", ADMIN, slow="merging")
def merge(
    call: ToolCall, from_: From, message: Message = "", meta: Meta = None, into: Into = None
) -> Merged | UpToDate | Conflicts:
    """Merges another agent's work as a commit. outcome is merged, up_to_date or conflicts. Conflicts are not an error: nothing was
    written, and each path has base, ours and theirs. Then call resolve with the heads from the result."""
    return call.space.merge(call.agent(into), from_, message=message, meta=meta)


@tool("Resolve merge conflicts", ADMIN, slow="merging")
def resolve(
    call: ToolCall,
    from_: From,
    ours: Annotated[str, "the head of the agent to merge into, from the conflicts"],
    theirs: Annotated[str, "the head of the other agent, from the conflicts"],
    message: Message = "",
    changes: Changes = None,
    files: Files = None,
    meta: Meta = None,
    into: Into = None,
) -> Merged:
    """Completes a merge that had conflicts, with the final content of each path. ours and theirs are the heads that merge returned;
    if either has moved, nothing is written: merge again."""
    return call.space.resolve(call.agent(into), from_, files, ours=ours, theirs=theirs, message=message, meta=meta, changes=changes)


@tool(
    "Add or remove a relation",
    ADMIN,
    returns=ResultShape(src=str, kind=str, dst=str, retracted=bool, origin=str),
    idempotent=True,
)
def relate(
    call: ToolCall,
    kind: Annotated[str, "the relation: reviews, depends-on, …"],
    dst: Annotated[str, "the target agent"],
    retract: Annotated[bool, "remove the relation"] = False,
    src: Annotated[str | None, "the source agent (default: yourself)"] = None,
) -> Mapping[str, Any]:
    """Adds a relation from one agent to another (reviews, or any other kind), or removes it."""
    name, space = call.agent(src), call.space
    verb = space.unrelate if retract else space.relate
    return {"src": name, "kind": kind, "dst": dst, "retracted": retract, "origin": verb(name, kind, dst)}


@tool("Relations", returns=ResultShape(relations=list[Edge]))
def relations(
    call: ToolCall, touching: Annotated[str | None, "only relations of this agent (default: all)"] = None
) -> Mapping[str, Any]:
    """Lists relations: spawns, merges, reviews and others."""
    return {"relations": call.space.relations(touching)}


@tool("Peers of this space", returns=ResultShape(peers=list[Peer]))
def peers(call: ToolCall) -> Mapping[str, Any]:
    """Lists the peers of this space: trust, what is shared with each, how many of its agents are tracked here, and how many
    announcements wait for a grant."""
    return {"peers": call.space.peers()}


@tool("Agents of peers", returns=ResultShape(remotes=list[Remote]))
def remotes(call: ToolCall, peer: Annotated[str | None, "only agents of this peer (default: all)"] = None) -> Mapping[str, Any]:
    """Lists the tracked agents of peers: read and merge them as PEER/AGENT. Their content is from another owner: check it before
    you use it."""
    return {"remotes": call.space.remotes(peer)}


@tool("Check the record", slow="checking")
def verify(call: ToolCall) -> Report:
    """Verifies the record against git without changing anything. No findings means that the record is complete and consistent."""
    return call.space.verify(progress=call.say)
