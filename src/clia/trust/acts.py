"""Checking what people did: that a decision is stated and proved as the policy of its time asks, and is about what it says.

Invariant: a statement counts for one commit. It names the agent, the request, the answer, the parent and the tree of that commit.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from clia.errors import BadSignature
from clia.trust.key_chain import is_person
from clia.trust.statements import ATTESTED, DECIDE, UNSIGNED, is_weaker, recorded_question, stated_in
from clia.trust.traces import TraceChecks
from clia.values.commit_messages import STATEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.trust.key_chain import KeyChain
    from clia.trust.log_checks import LogChecks
    from clia.trust.raw_commits import RawCommit
    from clia.trust.statements import PersonalStatement
    from clia.trust.verification import TrustChecks

_DECISION = "decision"


class ActChecks:
    """Checks the acts of people, and counts how strongly each is proved."""

    def __init__(self, checks: TrustChecks, chain: KeyChain, logs: LogChecks, *, strict: bool) -> None:
        self._checks = checks
        self._chain = chain
        self._logs = logs
        self._strict = strict
        self._traces = TraceChecks(checks)
        self._statements: dict[str, str] = {}
        self.strengths: Counter[str] = Counter()

    def check(self, commit: RawCommit, ref: str, position: int) -> None:
        """Check a commit whose signature holds."""
        text = commit.trailer(STATEMENT)
        if text is not None:
            other = self._statements.setdefault(text, commit.cid)
            if other != commit.cid:
                self._checks.found("replayed-statement", f"{commit.cid} repeats the statement of {other}", ref, commit.cid)
        if commit.trailer("Clia-Type") == _DECISION:
            self._decision(commit, ref, position)
        self._traces.check(commit)

    def _decision(self, commit: RawCommit, ref: str, position: int) -> None:
        agent, meta = commit.trailer("Clia-Agent") or "", meta_of(commit)
        question = meta.get("asked")
        kind = question.get("kind") if isinstance(question, dict) else None
        requirement = self._chain.requirement(position, DECIDE, agent, kind if isinstance(kind, str) else "")
        try:
            proved = self._chain.proved(commit, position, DECIDE)
            stated = stated_in(commit.trailers)
            if stated is not None and stated.statement is not None:
                check_statement(stated.statement, commit, agent, meta)
        except BadSignature as err:
            self.strengths[UNSIGNED] += 1
            self._checks.found(err.code, f"the decision {commit.cid} is not proved: {err.message}", ref, commit.cid)
            return
        self.strengths[proved.strength] += 1
        problem = self._chain.missing(proved, requirement)
        if problem is not None:
            code = "weak-proof" if is_weaker(proved.strength, requirement.strength) else "too-few-people"
            self._checks.found(code, f"the decision {commit.cid} does not meet the policy: {problem}", ref, commit.cid)
        elif self._strict and proved.strength == ATTESTED:
            message = f"the decision {commit.cid} has no proof of its own: the machine that recorded it vouches for a login"
            self._checks.found("weak-proof", message, ref, commit.cid)


def check_statement(statement: PersonalStatement, commit: RawCommit, agent: str, meta: Mapping[str, Any]) -> None:
    """Check that a statement is about this commit."""
    expected = {
        "about": agent,
        "parent": commit.parents[0] if commit.parents else "",
        "tree": commit.tree,
        "request": commit.trailer("Clia-Request") or "",
        "question": recorded_question(meta),
        "value": _json(commit.trailer("Clia-Value")),
    }
    by = commit.trailer("Clia-By") or ""
    differing = [field for field, value in expected.items() if getattr(statement, field) != value]
    if statement.person != by and not is_person(statement.person, by):
        differing.append("person")
    for field in differing:
        raise BadSignature(f"the statement names another {field}", code="wrong-statement", fields={"field": field})


def meta_of(commit: RawCommit) -> dict[str, Any]:
    """The open fields of a commit."""
    meta = _json(commit.trailer("Clia-Meta"))
    return meta if isinstance(meta, dict) else {}


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
