"""The records that a space returns, and how a commit is read as an agent's."""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.values import commit_messages as messages
from clia.values.commit_messages import PROOF, STATEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.git.records import Commit, Stamp
    from clia.values.typed_objects import ConsoleTrace, TraceEntry
    from clia.verbs import Count

AGENT, TYPE, BRIEFING, PROFILE, BEHAVIOUR = "Clia-Agent", "Clia-Type", "Clia-Briefing", "Clia-Profile", "Clia-Behaviour"
PARENT, MERGED, META, EVENT = "Clia-Parent", "Clia-Merged", "Clia-Meta", "Clia-Event"
LANDED, RANGE, DECISION = "Clia-Landed", "Clia-Range", "Clia-Decision"
REQUEST, TAG, VALUE, BY, FORKED = "Clia-Request", "Clia-Tag", "Clia-Value", "Clia-By", "Clia-Forked"
OWN, KEPT, ADOPTED, CHANNEL, FORMERLY = "Clia-Own", "Clia-Kept", "Clia-Adopted", "Clia-Channel", "Clia-Formerly"
COUNTING = "counts"
"""The metadata field of a commit that names a decision which counts, if a request was decided twice."""


class AgentCommit(NamedTuple):
    """A commit and its trailers; ``agent`` and ``kind`` are None if no agent made it."""

    cid: str  # commit id
    parents: tuple[str, ...]  # ids of its parents
    tree: str  # id of its tree
    agent: str | None  # the agent that made it; null: people
    kind: str | None  # its kind; null: a commit of people
    message: str  # without trailers
    author: Stamp  # the agent
    committer: Stamp  # the accountable person
    briefing: str | None = None  # id of the briefing that the agent was spawned with
    profile: str | None = None  # id of the profile that it was spawned with
    behaviour: str | None = None  # id of the version of the flow or prompt that it worked by
    parent: str | None = None  # the agent it was spawned from
    merged: str | None = None  # the agent that was merged
    landed: str | None = None  # the agent whose work was landed
    range: str | None = None  # base..head of the landed work
    decisions: tuple[str, ...] = ()  # commits of the decisions that led to the landed work
    request: str | None = None  # the request that a decision answers
    tag: str | None = None  # the tag of the request
    value: str | None = None  # the answer as JSON
    by: str | None = None  # who decided
    channel: str | None = None  # how the decision came: `command-line`, `forge`, `api`, `form` (of an MCP client) or `library`
    forked: str | None = None  # the run that the agent was forked from
    statement: str | None = None  # what a person signed, as canonical JSON
    proofs: tuple[str, ...] = ()  # the proofs of the statement, as canonical JSON
    own: str | None = None  # the commit that the program made itself, which this one stands for
    kept: tuple[str, ...] = ()  # commits that the program made and left, for example amended ones; refs/clia/own keeps them
    adopted: tuple[str, ...] = ()  # the agent's commits for those that the program made on other branches
    formerly: str | None = None  # of the first commit of a renamed agent: its former name
    meta: Mapping[str, Any] = {}  # additional fields of the commit

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


def question_of(decision: AgentCommit) -> tuple[str | None, str]:
    """Identify what a decision answers. The number of a request may be used again for another question, if the store was lost."""
    return decision.request, json.dumps(decision.meta.get("asked"), sort_keys=True)


class Spawned(NamedTuple):
    """A new agent."""

    agent: str  # its name
    branch: str  # its branch
    briefing: str  # id of the briefing
    genesis: str  # its first commit
    profile: str | None = None  # id of its profile
    warnings: tuple[str, ...] = ()  # such as an identity that is not active


class Renamed(NamedTuple):
    """An agent under its new name."""

    agent: str  # its name
    former: str  # its former name
    commit: str  # the first commit under the new name
    checkouts: tuple[str, ...] = ()  # directories that are now checkouts of the new name


class File(NamedTuple):
    """The content of a file that may be executable."""

    data: bytes  # its content
    executable: bool = False  # whether it is executable


class Link(NamedTuple):
    """A symbolic link."""

    target: str  # where it leads


class Submodule(NamedTuple):
    """A commit of another repository, as a gitlink."""

    commit: str  # the commit


Content = bytes | File | Link | Submodule


class Merged(NamedTuple):
    """The merge succeeded."""

    cid: str  # the session-merge commit


class UpToDate(NamedTuple):
    """Nothing to merge."""

    head: str  # the head that already contains it


class ConflictPath(NamedTuple):
    """A path that both sides changed."""

    path: str  # the path
    base: Content | None  # content before; null: no such file
    ours: Content | None  # content of `into`; null: no such file
    theirs: Content | None  # content of `from`; null: no such file


class Conflicts(NamedTuple):
    """The merge has conflicts and nothing was committed. Conclude it with ``resolve``, naming both heads."""

    into: str  # the agent to merge into; of a landing: the branch
    from_: str  # the agent to merge
    ours: str  # the head of the first
    theirs: str  # the head of the other
    paths: tuple[ConflictPath, ...]  # paths that both sides changed


class Landed(NamedTuple):
    """The agent's work is on the branch."""

    cid: str  # the branch's new head
    how: str  # merge, squash or fast-forward
    warnings: tuple[str, ...] = ()  # worktrees with the branch checked out that could not be updated


class AgentState(NamedTuple):
    """An agent and its last commit."""

    agent: str  # its name
    head: str  # its newest commit
    kind: str | None  # of the head; None if no agent made it
    subject: str  # first line of the message of the head
    at: int  # time of the head, in seconds since the epoch
    pending: Count  # trace entries since its last commit
    landed: str | None  # the branch that contains all of its work
    problem: str | None = None  # why its last commit or its events cannot be read; null: they can


class Maintained(NamedTuple):
    """The result of maintenance."""

    archived: tuple[str, ...]  # agents that were archived
    before: Count  # bytes of objects on disk
    after: Count  # the same, after the clean-up
    moved: tuple[str, ...] = ()  # worktrees of programs that were moved out of the git directory
    left: tuple[str, ...] = ()  # agents whose worktree could not be moved, for example because a program uses it
    put_away: tuple[str, ...] = ()  # idle agents whose refs were moved to the archive repository


class BlamedLine(NamedTuple):
    """One line and its origin; the fields of an agent are None if a person wrote it."""

    number: Count  # from 1
    text: str  # the line
    commit: str  # the commit that it comes from: the agent's own, if an agent wrote it
    agent: str | None  # the agent that wrote it; null: a person, or unknown
    kind: str | None  # kind of the commit
    briefing: str | None  # id of the briefing of the agent
    behaviour: str | None  # id of the flow or prompt that the agent worked by
    trace: str | None  # id of the commit's trace
    by: str = "person"  # who wrote it: agent, person or unknown
    author: str = ""  # name of the agent, or of the author of the commit
    title: str | None = None  # title of the briefing
    via: str | None = None  # the commit on this branch, if a person committed a line of an agent


class TraceChange(NamedTuple):
    """One binding of a trace to a commit, from the history of the notes."""

    notes_commit: str  # the commit of the notes ref
    trace: str | None  # id of the trace; None if it was removed
    by: Stamp  # who attached it
    message: str  # why


class TraceHit(NamedTuple):
    """An entry found by a search."""

    agent: str  # the agent of the trace
    commit: str | None  # the commit of the trace; null: it is pending
    position: Count  # in its trace, from 0
    entry: TraceEntry  # the entry itself


class BoundTrace(NamedTuple):
    """A commit's trace and its id."""

    cid: str  # id of the trace
    trace: ConsoleTrace  # the trace


_OPTIONAL = (
    *(BRIEFING, PROFILE, BEHAVIOUR, PARENT, MERGED, LANDED, RANGE, REQUEST, TAG, VALUE, BY, CHANNEL, FORKED, STATEMENT, OWN),
    FORMERLY,
)
_FIELDS = {trailer: trailer.removeprefix(messages.PREFIX).lower() for trailer in _OPTIONAL}


def agent_commit(commit: Commit) -> AgentCommit:
    """Read a commit; foreign and malformed trailers are ignored."""
    text, trailers = messages.parse(commit.message)
    first = dict(reversed(trailers))  # of several trailers with one key, the first counts
    return AgentCommit(
        commit.cid,
        commit.parents,
        commit.tree,
        first.get(AGENT),
        first.get(TYPE),
        text,
        commit.author,
        commit.committer,
        decisions=tuple([value for key, value in trailers if key == DECISION]),
        kept=tuple([value for key, value in trailers if key == KEPT]),
        adopted=tuple([value for key, value in trailers if key == ADOPTED]),
        proofs=tuple([value for key, value in trailers if key == PROOF]),
        meta=(json_object(first[META]) or {}) if META in first else {},
        **{_FIELDS[key]: value for key, value in first.items() if key in _FIELDS},
    )


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None if it holds anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
