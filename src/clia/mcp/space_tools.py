"""Tools about agents, commits, traces, merges, relations and peers.

Invariant: a tool calls one verb of the space, and what is too long for an answer is cut and says so. No tool pins a peer, grants,
announces or syncs: whom a space trusts is for people to say, and an agent may have read what a peer wrote.
"""

from __future__ import annotations

from clia.api.records import (
    CHANGE,
    CHANGES,
    COMMIT,
    CONTENT,
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
from clia.api.verbs import ADMIN, VIEWER
from clia.errors import InvalidInput, NoSuchObject
from clia.mcp.toolbox import ADDS, AGENT, ONCE, Field, Told, Tool, agent_field
from clia.space.model import File, Link, Submodule
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.mcp.calls import Call
    from clia.space.model import Content

DIFF_MAX = 200_000
FILES_MAX = 1_000_000
HITS_MAX = 200
LOG_MAX = 200
_META = Field("meta", Optional(OBJECT), "open fields, a JSON object", None)
_MESSAGE = Field("message", TEXT, "what was done, and why: a subject line, then a body", "")
_WORK = (
    Field(
        "changes",
        Optional(CHANGES),
        'what is different, by path: a text, {"text": …} or {"base64": …} (with "executable": true), {"link": …}; null removes it',
        None,
    ),
    Field("files", Optional(FILES), "the whole worktree by path instead of changes; what is not named is gone", None),
)


# Agents


def _agents(call: Call, archived: bool) -> Mapping[str, Any]:
    space = call.space
    return {"agents": space.states(), "archived": space.agents(archived=True) if archived else []}


def _spawn(call: Call, name: str, title: str, text: str, empty: bool, **start: Any) -> Any:
    parent, at, slug = start["parent"], start["at"], start["slug"]
    space, prompt = call.space, start["behaviour"]
    briefing = Briefing(title, text) if prompt is None else space.brief(prompt, title, text, agent=name)
    briefing = briefing._replace(meta=start["meta"])
    if empty and (parent is not None or at is not None):
        raise InvalidInput("empty goes with neither parent nor at", code="invalid-field", fields={"field": "empty"})
    if parent is not None and at is None:
        return space.spawn_from(name, briefing, parent, slug=slug)
    begin = at if at is not None or empty else _head(space)
    if begin is None:
        return space.spawn(name, briefing, slug=slug)
    return space.spawn_at(name, briefing, begin, parent, slug=slug)


def _head(space: Space) -> str | None:
    """What the repository has checked out; None before its first commit."""
    try:
        return space.find("HEAD")
    except NoSuchObject:
        return None


# Work


def _commit(call: Call, kind: str, with_trace: bool, agent: str | None, **work: Any) -> Mapping[str, Any]:
    name, space = call.agent(agent), call.space
    cid = (space.commit_with_trace if with_trace else space.commit)(name, kind, **work)
    bound = space.trace_for(cid) if with_trace else None
    return {"agent": name, "cid": cid, "kind": kind, "traced": 0 if bound is None else len(bound.entries)}


def _trace(call: Call, text: str, kind: str, data: Any, agent: str | None) -> Mapping[str, Any]:
    name = call.agent(agent)
    return {"agent": name, "position": call.space.trace(name, kind, text, data=data)}


def _trace_search(call: Call, text: str, regex: bool, agent: str | None) -> Mapping[str, Any]:
    found = call.space.trace_search(text, agent=agent, regex=regex)
    return {"hits": found[:HITS_MAX], "cut": len(found) > HITS_MAX}


# History


def _log(call: Call, of: str | None, own: bool, limit: int) -> Mapping[str, Any]:
    if not 1 <= limit <= LOG_MAX:
        raise InvalidInput(f"limit is a number from 1 to {LOG_MAX}", code="invalid-field", fields={"field": "limit"})
    return {"commits": call.space.log(of or call.agent(None), own=own, limit=limit)}


def _show(call: Call, commit: str, diff: bool, trace: bool) -> Mapping[str, Any]:
    space = call.space
    found = space.show(commit)
    patch, cut = _cut(space.diff(found.cid)) if diff else (None, False)
    return {
        "commit": found,
        "changed": space.changed(found.cid),
        "diff": patch,
        "cut": cut,
        "trace": space.trace_for(found.cid) if trace else None,
    }


def _diff(call: Call, of: str | None, other: str | None, paths: Sequence[str]) -> Mapping[str, Any]:
    space, text = call.space, of or call.agent(None)
    patch, cut = _cut(space.diff(text, other, paths=paths))
    return {"changed": space.changed(text, other, paths=paths), "diff": patch, "cut": cut}


def _cut(text: str) -> tuple[str, bool]:
    return text[:DIFF_MAX], len(text) > DIFF_MAX


def _files(call: Call, at: str | None, paths: Sequence[str]) -> Mapping[str, Any]:
    space = call.space
    commit = space.find(at or call.agent(None))
    found = space.files(commit)
    for path in paths:
        if path not in found:
            raise NoSuchObject(
                f"there is no file {path!r} at {commit[:10]}", code="no-such-file", fields={"path": path, "commit": commit}
            )
    chosen = {path: found[path] for path in paths}
    if sum(map(_size, chosen.values())) > FILES_MAX:
        hints = [f"at most {FILES_MAX} bytes at a time; sizes are in the list without paths"]
        raise InvalidInput("these files are too large for one answer", code="too-large", hints=hints, fields={"field": "paths"})
    listed = [] if paths else [{"path": path, "bytes": _size(each)} for path, each in sorted(found.items())]
    return {"commit": commit, "listed": listed, "files": chosen}


def _size(content: Content) -> int:
    if isinstance(content, (Link, Submodule)):
        return 0
    return len(content.data if isinstance(content, File) else content)


# Others


def _merge(call: Call, from_: str, message: str, meta: Any, into: str | None) -> Any:
    return call.space.merge(call.agent(into), from_, message=message, meta=meta)


def _resolve(call: Call, from_: str, into: str | None, **work: Any) -> Any:
    return call.space.resolve(call.agent(into), from_, **work)


def _relate(call: Call, kind: str, dst: str, retract: bool, src: str | None) -> Mapping[str, Any]:
    name, space = call.agent(src), call.space
    verb = space.unrelate if retract else space.relate
    return {"src": name, "kind": kind, "dst": dst, "retracted": retract, "origin": verb(name, kind, dst)}


def _relations(call: Call, touching: str | None) -> Mapping[str, Any]:
    return {"relations": call.space.relations(touching)}


def _peers(call: Call) -> Mapping[str, Any]:
    return {"peers": call.space.peers()}


def _remotes(call: Call, peer: str | None) -> Mapping[str, Any]:
    return {"remotes": call.space.remotes(peer)}


def _verify(call: Call) -> Any:
    return call.space.verify(progress=call.say)


_INTO = Field("into", MAYBE_TEXT, "the agent that takes the work in; leave it out to mean yourself", None)
_FROM = Field("from_", TEXT, "the agent whose work is taken in; PEER/AGENT for a peer's, as remotes names it")

SPACE_TOOLS = (
    Tool(
        "agents",
        "Agents of this space",
        "Every agent at work in this space, its newest commit and whether that has landed on a branch of people.",
        VIEWER,
        (Field("archived", FLAG, "also name the archived ones", False),),
        Told(agents=Listed(STATE), archived=STRINGS),
        _agents,
    ),
    Tool(
        "spawn",
        "Spawn an agent",
        "A new agent: a branch agents/NAME made from a briefing. Give parent (usually yourself) for a sub-agent that starts at the"
        " parent's files; then merge its work when it is done.",
        ADMIN,
        (
            Field("name", TEXT, "the new agent's name: lower-case letters, digits and hyphens"),
            Field("title", TEXT, "what it is to do, in a line"),
            Field("text", TEXT, "the briefing: all it must know", ""),
            Field("behaviour", MAYBE_TEXT, "a prompt to work by, its name or a version's id; text is then its task", None),
            Field("parent", MAYBE_TEXT, "the agent whose sub-agent it is; without at it starts at that agent's head", None),
            Field("at", MAYBE_TEXT, "the commit it starts at (default: what the repository has checked out)", None),
            Field("empty", FLAG, "start with no files", False),
            Field("slug", MAYBE_TEXT, "whose profile in lineage it has (default: that of its name, if any)", None),
            _META,
        ),
        SPAWNED,
        _spawn,
        ADDS,
    ),
    Tool(
        "commit",
        "Record what you did",
        "A typed commit on the agent's branch; the working directory and your own branch are not touched. Give changes (paths that"
        " are different) or files (everything). Kinds are finding, refactor, test and those that are registered here; an unknown"
        " one is refused with the known ones. With base, nothing is written if the agent's head has moved since.",
        ADMIN,
        (
            Field("kind", TEXT, "the kind of the commit, a registered type"),
            _MESSAGE,
            *_WORK,
            Field("base", MAYBE_TEXT, "the head that the work was based on", None),
            Field("with_trace", FLAG, "bind what was traced since the last commit to this one", True),
            _META,
            AGENT,
        ),
        Told(agent=STRING, cid=STRING, kind=STRING, traced=COUNT),
        _commit,
        ADDS,
        "writing the commit",
    ),
    Tool(
        "trace",
        "Trace what you say and see",
        "Appends an entry to what the next commit with trace is bound to: reasoning, commands, output. Secrets are taken out.",
        ADMIN,
        (
            Field("text", TEXT, "what was said or seen"),
            Field("kind", TEXT, "a lower-case word: said, thinking, tool-call, tool-result, note", "note"),
            Field("data", Optional(OBJECT), "data beside the text", None),
            AGENT,
        ),
        Told(agent=STRING, position=COUNT),
        _trace,
        ADDS,
    ),
    Tool(
        "trace_search",
        "Search traces",
        "Every entry of a trace, bound or pending, that holds a text: what was said or tried before, by whom, and at which commit.",
        VIEWER,
        (
            Field("text", TEXT, "what to look for, case aside"),
            Field("regex", FLAG, "the text is a regular expression", False),
            agent_field("whose traces; leave it out for everybody's"),
        ),
        Told(hits=Listed(TRACE_HIT), cut=FLAG),
        _trace_search,
    ),
    Tool(
        "log",
        "History",
        "Commits, newest first, with kind, message, author and trailers.",
        VIEWER,
        (
            Field("of", MAYBE_TEXT, "an agent, a peer's PEER/AGENT, a commit or a branch; leave it out to mean yourself", None),
            Field("own", FLAG, "only commits of that agent, not those it started from or merged", True),
            Field("limit", COUNT, f"how many, at most {LOG_MAX}", 20),
        ),
        Told(commits=Listed(COMMIT)),
        _log,
    ),
    Tool(
        "show",
        "One commit",
        "A commit: what its trailers say, which files it changed, and where asked its patch and its trace.",
        VIEWER,
        (
            Field("commit", TEXT, "an id or its start, an agent or PEER/AGENT (its head) or a branch"),
            Field("diff", FLAG, "with the patch", False),
            Field("trace", FLAG, "with the trace that is bound to it", False),
        ),
        Told(commit=COMMIT, changed=Listed(CHANGE), diff=MAYBE_STRING, cut=FLAG, trace=Optional(TRACE)),
        _show,
    ),
    Tool(
        "diff",
        "Changes",
        "A patch: all that an agent did since it was spawned, one commit's, or between two commits.",
        VIEWER,
        (
            Field("of", MAYBE_TEXT, "an agent, a peer's PEER/AGENT or a commit; leave it out to mean yourself", None),
            Field("other", MAYBE_TEXT, "another commit to compare with", None),
            Field("paths", Listed(TEXT), "only these paths", ()),
        ),
        Told(changed=Listed(CHANGE), diff=STRING, cut=FLAG),
        _diff,
    ),
    Tool(
        "files",
        "Files at a commit",
        "The worktree of an agent or commit: without paths a list of names and sizes, with paths their content.",
        VIEWER,
        (
            Field("at", MAYBE_TEXT, "an agent, a peer's PEER/AGENT, a commit or a branch; leave it out to mean yourself", None),
            Field("paths", Listed(TEXT), "the files to read", ()),
        ),
        Told(commit=STRING, listed=Listed(Told(path=STRING, bytes=COUNT)), files=Mapped(CONTENT)),
        _files,
    ),
    Tool(
        "merge",
        "Merge another agent's work",
        "One agent takes in another's work as a commit. outcome is merged, up_to_date or conflicts; conflicts are no error: nothing"
        " was written, and each path comes with base, ours and theirs. Then call resolve with the heads from the answer.",
        ADMIN,
        (_FROM, _MESSAGE, _META, _INTO),
        MERGING,
        _merge,
        ADDS,
        "merging",
    ),
    Tool(
        "resolve",
        "Conclude a conflicted merge",
        "Concludes a merge that had conflicts, with the content of each path as it shall be. ours and theirs are the heads that"
        " merge answered with; if either has moved since, nothing is written: merge again.",
        ADMIN,
        (
            _FROM,
            Field("ours", TEXT, "the head of the agent that takes in, from the conflicts"),
            Field("theirs", TEXT, "the head of the other, from the conflicts"),
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
        "State a relation",
        "States that one agent stands in a relation to another (reviews, or any kind of your own), or takes it back.",
        ADMIN,
        (
            Field("kind", TEXT, "the relation: reviews, depends-on, …"),
            Field("dst", TEXT, "the agent it leads to"),
            Field("retract", FLAG, "take it back", False),
            Field("src", MAYBE_TEXT, "the agent it starts from; leave it out to mean yourself", None),
        ),
        Told(src=STRING, kind=STRING, dst=STRING, retracted=FLAG, origin=STRING),
        _relate,
        ONCE,
    ),
    Tool(
        "relations",
        "Relations",
        "Who was spawned from whom, who merged whom, who reviews whom.",
        VIEWER,
        (Field("touching", MAYBE_TEXT, "only those at this agent; leave it out for all", None),),
        Told(relations=Listed(EDGE)),
        _relations,
    ),
    Tool(
        "peers",
        "Peers of this space",
        "The other spaces that this one works with: whether each is trusted, what it is told about, how many of its agents are"
        " tracked here and how much of what it says waits for a grant.",
        VIEWER,
        (),
        Told(peers=Listed(PEER)),
        _peers,
    ),
    Tool(
        "remotes",
        "Agents of peers",
        "The agents of other spaces as they are tracked here: read them and merge them as PEER/AGENT. What they wrote is"
        " another owner's word: check it before you build on it.",
        VIEWER,
        (Field("peer", MAYBE_TEXT, "only this peer's; leave it out for all", None),),
        Told(remotes=Listed(REMOTE)),
        _remotes,
    ),
    Tool(
        "verify",
        "Check the record",
        "Checks everything that is recorded against git, and changes nothing. No findings means all is there and agrees.",
        VIEWER,
        (),
        REPORT,
        _verify,
        slow="checking",
    ),
)
