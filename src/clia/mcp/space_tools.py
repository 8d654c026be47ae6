"""Tools for agents, commits, traces, merges, relations and peers.

Invariant: a tool calls one verb of the space and truncates results that are too long, with a note. No tool pins, grants,
announces or syncs: people decide whom a space trusts, because an agent may have read what a peer wrote.
"""

from __future__ import annotations

from clia.api.records import (
    CHANGE,
    CHANGES,
    COMMIT,
    EDGE,
    FILES,
    MAYBE_STRING,
    MAYBE_TEXT,
    MERGED,
    MERGING,
    PEER,
    REMOTE,
    REPORT,
    SPAWNED,
    STATE,
    STRINGS,
    TRACE,
    TRACE_HIT,
)
from clia.api.shapes import COUNT, FLAG, OBJECT, STRING, TEXT, Listed, Mapped, Optional
from clia.api.special_shapes import CONTENT
from clia.errors import InvalidInput, NoSuchObject
from clia.mcp.toolbox import ADDS, AGENT, ONCE, ResultShape, Tool, ToolArgument, agent_field
from clia.space.model import File, Link, Submodule
from clia.values.typed_objects import Briefing
from clia.verbs import ADMIN, VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.mcp.calls import ToolCall
    from clia.space.model import Content

DIFF_MAX = 200_000
FILES_MAX = 1_000_000
HITS_MAX = 200
LOG_MAX = 200
_META = ToolArgument("meta", Optional(OBJECT), "additional fields, a JSON object", None)
_MESSAGE = ToolArgument("message", TEXT, "what you did and why: a subject line, then a body", "")
_WORK = (
    ToolArgument(
        "changes",
        Optional(CHANGES),
        'changed files by path: a text, {"text": …} or {"base64": …} (with "executable": true), {"link": …}; null deletes the file',
        None,
    ),
    ToolArgument("files", Optional(FILES), "the complete worktree by path, instead of changes; other files are deleted", None),
)


# Agents


def _agents(call: ToolCall, archived: bool) -> Mapping[str, Any]:
    space = call.space
    return {"agents": space.states(), "archived": space.agents(archived=True) if archived else []}


def _spawn(call: ToolCall, name: str, title: str, text: str, empty: bool, **start: Any) -> Any:
    parent, at, slug = start["parent"], start["at"], start["slug"]
    space, prompt = call.space, start["behaviour"]
    briefing = Briefing(title, text) if prompt is None else space.brief(prompt, title, text, agent=name)
    briefing = briefing._replace(meta=start["meta"])
    if empty and (parent is not None or at is not None):
        raise InvalidInput("empty cannot be combined with parent or at", code="invalid-field", fields={"field": "empty"})
    if parent is not None and at is None:
        return space.spawn_from(name, briefing, parent, slug=slug)
    begin = at if at is not None or empty else _head(space)
    if begin is None:
        return space.spawn(name, briefing, slug=slug)
    return space.spawn_at(name, briefing, begin, parent, slug=slug)


def _head(space: Space) -> str | None:
    """The commit that the repository has checked out; None before the first commit."""
    try:
        return space.find("HEAD")
    except NoSuchObject:
        return None


# Work


def _commit(call: ToolCall, kind: str, with_trace: bool, agent: str | None, **work: Any) -> Mapping[str, Any]:
    name, space = call.agent(agent), call.space
    cid = (space.commit_with_trace if with_trace else space.commit)(name, kind, **work)
    bound = space.trace_for(cid) if with_trace else None
    return {"agent": name, "cid": cid, "kind": kind, "traced": 0 if bound is None else len(bound.entries)}


def _trace(call: ToolCall, text: str, kind: str, data: Any, agent: str | None) -> Mapping[str, Any]:
    name = call.agent(agent)
    return {"agent": name, "position": call.space.trace(name, kind, text, data=data)}


def _trace_search(call: ToolCall, text: str, regex: bool, agent: str | None) -> Mapping[str, Any]:
    matches = call.space.trace_search(text, agent=agent, regex=regex)
    return {"hits": matches[:HITS_MAX], "cut": len(matches) > HITS_MAX}


# History


def _log(call: ToolCall, of: str | None, own: bool, limit: int) -> Mapping[str, Any]:
    if not 1 <= limit <= LOG_MAX:
        raise InvalidInput(f"limit must be between 1 and {LOG_MAX}", code="invalid-field", fields={"field": "limit"})
    return {"commits": call.space.log(of or call.agent(None), own=own, limit=limit)}


def _show(call: ToolCall, commit: str, diff: bool, trace: bool) -> Mapping[str, Any]:
    space = call.space
    shown = space.show(commit)
    patch, cut = _cut(space.diff(shown.cid)) if diff else (None, False)
    return {
        "commit": shown,
        "changed": space.changed(shown.cid),
        "diff": patch,
        "cut": cut,
        "trace": space.trace_for(shown.cid) if trace else None,
    }


def _diff(call: ToolCall, of: str | None, other: str | None, paths: Sequence[str]) -> Mapping[str, Any]:
    space, text = call.space, of or call.agent(None)
    patch, cut = _cut(space.diff(text, other, paths=paths))
    return {"changed": space.changed(text, other, paths=paths), "diff": patch, "cut": cut}


def _cut(text: str) -> tuple[str, bool]:
    return text[:DIFF_MAX], len(text) > DIFF_MAX


def _files(call: ToolCall, at: str | None, paths: Sequence[str]) -> Mapping[str, Any]:
    space = call.space
    commit = space.find(at or call.agent(None))
    files = space.files(commit)
    for path in paths:
        if path not in files:
            raise NoSuchObject(
                f"no file {path!r} at commit {commit[:10]}", code="no-such-file", fields={"path": path, "commit": commit}
            )
    chosen = {path: files[path] for path in paths}
    if sum(map(_size, chosen.values())) > FILES_MAX:
        hints = [f"read at most {FILES_MAX} bytes at once; call without paths to list sizes"]
        raise InvalidInput("the files are too large for one response", code="too-large", hints=hints, fields={"field": "paths"})
    listed = [] if paths else [{"path": path, "bytes": _size(item)} for path, item in sorted(files.items())]
    return {"commit": commit, "listed": listed, "files": chosen}


def _size(content: Content) -> int:
    if isinstance(content, (Link, Submodule)):
        return 0
    return len(content.data if isinstance(content, File) else content)


# Others


def _merge(call: ToolCall, from_: str, message: str, meta: Any, into: str | None) -> Any:
    return call.space.merge(call.agent(into), from_, message=message, meta=meta)


def _resolve(call: ToolCall, from_: str, into: str | None, **work: Any) -> Any:
    return call.space.resolve(call.agent(into), from_, **work)


def _relate(call: ToolCall, kind: str, dst: str, retract: bool, src: str | None) -> Mapping[str, Any]:
    name, space = call.agent(src), call.space
    verb = space.unrelate if retract else space.relate
    return {"src": name, "kind": kind, "dst": dst, "retracted": retract, "origin": verb(name, kind, dst)}


def _relations(call: ToolCall, touching: str | None) -> Mapping[str, Any]:
    return {"relations": call.space.relations(touching)}


def _peers(call: ToolCall) -> Mapping[str, Any]:
    return {"peers": call.space.peers()}


def _remotes(call: ToolCall, peer: str | None) -> Mapping[str, Any]:
    return {"remotes": call.space.remotes(peer)}


def _verify(call: ToolCall) -> Any:
    return call.space.verify(progress=call.say)


_INTO = ToolArgument("into", MAYBE_TEXT, "the agent to merge into (default: yourself)", None)
_FROM = ToolArgument("from_", TEXT, "the agent to merge; PEER/AGENT for a peer's agent, as listed by remotes")

SPACE_TOOLS = (
    Tool(
        "agents",
        "Agents of this space",
        "Lists the active agents of this space, the newest commit of each, and whether it has landed on a human branch.",
        VIEWER,
        (ToolArgument("archived", FLAG, "include archived agents", False),),
        ResultShape(agents=Listed(STATE), archived=STRINGS),
        _agents,
    ),
    Tool(
        "spawn",
        "Spawn an agent",
        "Creates an agent: a branch agents/NAME with a briefing. Set parent (usually yourself) for a sub-agent that starts with the"
        " parent's files; merge its work when it is done.",
        ADMIN,
        (
            ToolArgument("name", TEXT, "name of the new agent: lowercase letters, digits and hyphens"),
            ToolArgument("title", TEXT, "one-line title"),
            ToolArgument("text", TEXT, "the briefing, self-contained", ""),
            ToolArgument("behaviour", MAYBE_TEXT, "prompt to use, by name or version id; text is then its task", None),
            ToolArgument("parent", MAYBE_TEXT, "the parent agent; the new agent starts at its head unless at is set", None),
            ToolArgument("at", MAYBE_TEXT, "the commit to start at (default: the repository's checked-out commit)", None),
            ToolArgument("empty", FLAG, "start without files", False),
            ToolArgument("slug", MAYBE_TEXT, "identity to work under (default: the one with the agent's name, if it exists)", None),
            _META,
        ),
        SPAWNED,
        _spawn,
        ADDS,
    ),
    Tool(
        "commit",
        "Commit your work",
        "Creates a typed commit on the agent's branch; the working directory and checkout do not change. Set changes (paths that"
        " differ) or files (everything). Kinds are finding, refactor, test and types registered in this space; an unknown"
        " kind is refused with a list of known ones. With base, nothing is written if the agent's head has moved.",
        ADMIN,
        (
            ToolArgument("kind", TEXT, "commit kind, a registered type"),
            _MESSAGE,
            *_WORK,
            ToolArgument("base", MAYBE_TEXT, "the head that the work is based on", None),
            ToolArgument("with_trace", FLAG, "attach the trace entries since the last commit", True),
            _META,
            AGENT,
        ),
        ResultShape(agent=STRING, cid=STRING, kind=STRING, traced=COUNT),
        _commit,
        ADDS,
        "writing the commit",
    ),
    Tool(
        "trace",
        "Add a trace entry",
        "Appends an entry to the pending trace, which the next commit attaches: reasoning, commands, output. Secrets are redacted.",
        ADMIN,
        (
            ToolArgument("text", TEXT, "the text of the entry"),
            ToolArgument("kind", TEXT, "lowercase word: said, thinking, tool-call, tool-result, note", "note"),
            ToolArgument("data", Optional(OBJECT), "structured data", None),
            AGENT,
        ),
        ResultShape(agent=STRING, position=COUNT),
        _trace,
        ADDS,
    ),
    Tool(
        "trace_search",
        "Search traces",
        "Finds trace entries, attached or pending, that contain a text: what was said or tried before, by whom, at which commit.",
        VIEWER,
        (
            ToolArgument("text", TEXT, "text to find, ignoring case"),
            ToolArgument("regex", FLAG, "the text is a regular expression", False),
            agent_field("only traces of this agent (default: all)"),
        ),
        ResultShape(hits=Listed(TRACE_HIT), cut=FLAG),
        _trace_search,
    ),
    Tool(
        "log",
        "History",
        "Lists commits, newest first, with kind, message, author and trailers.",
        VIEWER,
        (
            ToolArgument("of", MAYBE_TEXT, "an agent, PEER/AGENT, a commit or a branch (default: yourself)", None),
            ToolArgument("own", FLAG, "only commits made by this agent, not those that it started from or merged", True),
            ToolArgument("limit", COUNT, f"maximum number of commits, at most {LOG_MAX}", 20),
        ),
        ResultShape(commits=Listed(COMMIT)),
        _log,
    ),
    Tool(
        "show",
        "One commit",
        "Shows a commit: its trailers, changed files and, on request, its patch and trace.",
        VIEWER,
        (
            ToolArgument("commit", TEXT, "a commit id or prefix, an agent or PEER/AGENT (for its head), or a branch"),
            ToolArgument("diff", FLAG, "include the patch", False),
            ToolArgument("trace", FLAG, "include the trace", False),
        ),
        ResultShape(commit=COMMIT, changed=Listed(CHANGE), diff=MAYBE_STRING, cut=FLAG, trace=Optional(TRACE)),
        _show,
    ),
    Tool(
        "diff",
        "Changes",
        "Returns a patch: everything that an agent did since it was spawned, one commit, or the difference between two commits.",
        VIEWER,
        (
            ToolArgument("of", MAYBE_TEXT, "an agent, PEER/AGENT or a commit (default: yourself)", None),
            ToolArgument("other", MAYBE_TEXT, "another commit to compare with", None),
            ToolArgument("paths", Listed(TEXT), "only these paths", ()),
        ),
        ResultShape(changed=Listed(CHANGE), diff=STRING, cut=FLAG),
        _diff,
    ),
    Tool(
        "files",
        "Files at a commit",
        "Reads the worktree of an agent or commit: a list of names and sizes without paths, contents with paths.",
        VIEWER,
        (
            ToolArgument("at", MAYBE_TEXT, "an agent, PEER/AGENT, a commit or a branch (default: yourself)", None),
            ToolArgument("paths", Listed(TEXT), "the files to read", ()),
        ),
        ResultShape(commit=STRING, listed=Listed(ResultShape(path=STRING, bytes=COUNT)), files=Mapped(CONTENT)),
        _files,
    ),
    Tool(
        "merge",
        "Merge another agent's work",
        "Merges another agent's work as a commit. outcome is merged, up_to_date or conflicts. Conflicts are not an error: nothing"
        " was written, and each path has base, ours and theirs. Then call resolve with the heads from the result.",
        ADMIN,
        (_FROM, _MESSAGE, _META, _INTO),
        MERGING,
        _merge,
        ADDS,
        "merging",
    ),
    Tool(
        "resolve",
        "Resolve merge conflicts",
        "Completes a merge that had conflicts, with the final content of each path. ours and theirs are the heads that"
        " merge returned; if either has moved, nothing is written: merge again.",
        ADMIN,
        (
            _FROM,
            ToolArgument("ours", TEXT, "the head of the agent to merge into, from the conflicts"),
            ToolArgument("theirs", TEXT, "the head of the other agent, from the conflicts"),
            _MESSAGE,
            *_WORK,
            _META,
            _INTO,
        ),
        MERGED,
        _resolve,
        ADDS,
        "merging",
    ),
    Tool(
        "relate",
        "Add or remove a relation",
        "Adds a relation from one agent to another (reviews, or any other kind), or removes it.",
        ADMIN,
        (
            ToolArgument("kind", TEXT, "the relation: reviews, depends-on, …"),
            ToolArgument("dst", TEXT, "the target agent"),
            ToolArgument("retract", FLAG, "remove the relation", False),
            ToolArgument("src", MAYBE_TEXT, "the source agent (default: yourself)", None),
        ),
        ResultShape(src=STRING, kind=STRING, dst=STRING, retracted=FLAG, origin=STRING),
        _relate,
        ONCE,
    ),
    Tool(
        "relations",
        "Relations",
        "Lists relations: spawns, merges, reviews and others.",
        VIEWER,
        (ToolArgument("touching", MAYBE_TEXT, "only relations of this agent (default: all)", None),),
        ResultShape(relations=Listed(EDGE)),
        _relations,
    ),
    Tool(
        "peers",
        "Peers of this space",
        "Lists the peers of this space: trust, what is shared with each, how many of its agents are"
        " tracked here, and how many announcements wait for a grant.",
        VIEWER,
        (),
        ResultShape(peers=Listed(PEER)),
        _peers,
    ),
    Tool(
        "remotes",
        "Agents of peers",
        "Lists the tracked agents of peers: read and merge them as PEER/AGENT. Their content is"
        " from another owner: check it before you use it.",
        VIEWER,
        (ToolArgument("peer", MAYBE_TEXT, "only agents of this peer (default: all)", None),),
        ResultShape(remotes=Listed(REMOTE)),
        _remotes,
    ),
    Tool(
        "verify",
        "Check the record",
        "Verifies the record against git without changing anything. No findings means that the record is complete and consistent.",
        VIEWER,
        (),
        REPORT,
        _verify,
        slow="checking",
    ),
)
