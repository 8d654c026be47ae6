"""The records that explain lines and commits."""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.trust.verification import TrustFinding  # noqa: TC001  # the annotations of records are read at run time
from clia.values.typed_objects import TraceEntry  # noqa: TC001
from clia.verbs import Count  # noqa: TC001

VERIFIED, UNSIGNED, FAILED, PERSONS, UNCHECKED = "verified", "unsigned", "failed", "person", "unchecked"
"""Results: everything holds; signatures are missing; something is wrong; a person wrote it with plain git; there are no keys."""
DECISION, LANDING, REVIEW = "decision", "landing", "review"
LINE, FILE, TRACE = "line", "file", "trace"
"""How well entries of a trace match: they have the text of the line, they name the file, or they are only of the same trace."""


class AgentOfCommit(NamedTuple):
    """The agent that wrote lines, as it was then."""

    name: str  # the agent
    identity: str | None  # the identity that it worked under
    profile: str | None  # id of its recorded profile
    program: str | None  # the program or tool that ran
    model: str | None  # the model that the tool reported
    briefing: str | None  # id of its briefing
    title: str | None  # title of the briefing
    behaviour: str | None  # the flow or prompt that it worked by: name, or id if this clone does not have it


class CommitStory(NamedTuple):
    """A commit, and what the record shows about its signature."""

    commit: str  # the commit
    subject: str  # first line of its message
    kind: str | None  # its kind; null: a commit of people
    at: int  # when, in seconds since the epoch
    accountable: str  # the person who is accountable: its committer
    state: str  # signed, unsigned, older (than the chain of keys), person (plain git) or no-keys
    signer: str | None  # the machine, agent or person that signed it
    key: str | None  # fingerprint of the key
    findings: tuple[TrustFinding, ...]  # problems


class ShownTrace(NamedTuple):
    """The trace of a commit, and its entries that explain a line."""

    cid: str  # id of the trace
    digest: str | None  # the digest that the commit names; null: it names none
    entries: Count  # number of its entries
    matched: str  # line: entries have the text of the line; file: they name the file; trace: the last ones of the trace
    shown: tuple[TraceEntry, ...]  # the entries that explain the line, oldest first; texts are cut
    positions: tuple[Count, ...]  # their positions in the trace, from 0


class LineApproval(NamedTuple):
    """An act of a person or a review that stands behind lines."""

    kind: str  # decision, landing or review
    by: str  # who: a person, or the agent that reviews
    at: int | None  # when, in seconds since the epoch; null: unknown
    commit: str | None  # its commit
    answer: Any  # of a decision: the answer
    question: str | None  # of a decision: the question
    reason: str | None  # why, as the person wrote
    onto: str | None  # of a landing: the branch
    strength: str | None  # how strongly it is proved; null: a review
    covers: bool  # of a decision: whether the file had this content then
    before: bool  # of a decision: whether it was made before the commit
    findings: tuple[TrustFinding, ...]  # problems


class LineReason(NamedTuple):
    """Lines with the same origin, and why they are there."""

    start: Count  # number of the first line, from 1
    lines: tuple[str, ...]  # their texts
    by: str  # agent, person or unknown
    author: str  # name of the agent or person
    committed: bool  # whether they are committed
    origin: CommitStory | None  # the commit that wrote them; null: not committed
    path: str  # the path of the file in that commit
    via: CommitStory | None  # the commit that brought an agent's lines to this branch, if it is another one
    agent: AgentOfCommit | None  # null: a person, or unknown
    trace: ShownTrace | None  # null: the commit has none
    approvals: tuple[LineApproval, ...]  # newest first
    result: str  # verified, unsigned, failed, person or unchecked (there are no keys here)

    @property
    def end(self) -> int:
        return self.start + len(self.lines) - 1


class ExplainedLines(NamedTuple):
    """Lines of a file, and why they are there."""

    path: str  # the file
    commit: str | None  # the commit whose file it is; null: the worktree
    root: str | None  # fingerprint of the root of the space; null: it is not signed, or its keys are not here
    reasons: tuple[LineReason, ...]  # in the order of the lines
