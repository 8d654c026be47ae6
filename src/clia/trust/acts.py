"""Checking what people did: that each act is stated and proved as the policy of its time asks, and is about what it says.

A decision is a commit of an agent. Adoptions and retirements are on the chains of behaviours, grants to peers and their revocations
on the chain of capabilities, landings and purges on the events of an agent. What the chain of keys records is checked there.

Invariant: a statement counts for one commit. It names what the commit is about, the answer or event, the commit before and the
tree. What a behaviour's chain allows to run is compared with its events, so that no commit allows more than it states.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from clia.errors import BadSignature
from clia.trust.behaviour_checks import BehaviourChecks
from clia.trust.key_chain import is_person
from clia.trust.passkeys import counter_in
from clia.trust.policy import PolicyAct, decided_act
from clia.trust.statements import (
    ADOPT,
    ATTESTED,
    DECIDE,
    GRANT,
    LAND,
    PASSKEY_KEY,
    PURGE,
    RETIRE,
    UNGRANT,
    UNSIGNED,
    is_weaker,
    recorded_question,
    stated_in,
    stated_landing,
    stated_value,
)
from clia.trust.traces import TraceChecks
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import STATEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.trust.key_chain import KeyChain, Proved
    from clia.trust.log_checks import LogChecks
    from clia.trust.raw_commits import RawCommit
    from clia.trust.statements import PersonalStatement, StatementProof
    from clia.trust.verification import TrustChecks

DECISION_TYPE = "decision"
_EVENT, _VALUE = "Clia-Event", "Clia-Value"
_VERBS = {
    names.BEHAVIOURS: {"define": ADOPT, "adopt": ADOPT, "trial": ADOPT, "retire": RETIRE},
    names.CAPABILITIES: {"grant": GRANT, "revoke": UNGRANT},
    names.EVENTS: {"landed": LAND, "purge": PURGE},
}
"""The acts of people by the kind of chain and the event."""


class _Act(NamedTuple):
    """An act that a commit of a chain records."""

    verb: str
    about: str
    body: dict[str, Any]


class ActChecks:
    """Checks the acts of people, and counts how strongly each is proved."""

    def __init__(self, checks: TrustChecks, chain: KeyChain, logs: LogChecks, *, strict: bool) -> None:
        self._checks = checks
        self._chain = chain
        self._logs = logs
        self._strict = strict
        self._traces = TraceChecks(checks)
        self._behaviours = BehaviourChecks(checks)
        self._statements: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        self._decisions: list[tuple[RawCommit, str]] = []
        self._counters: dict[tuple[str, int], str] = {}
        self.strengths: Counter[str] = Counter()
        self.acts: Counter[str] = Counter()

    def check(self, commit: RawCommit, ref: str, position: int) -> None:
        """Check a commit whose signature holds."""
        self._positions[commit.cid] = position
        text = commit.trailer(STATEMENT)
        if text is not None:
            other = self._statements.setdefault(text, commit.cid)
            if other != commit.cid:
                self._checks.found("replayed-statement", f"{commit.cid} repeats the statement of {other}", ref, commit.cid)
        if commit.trailer("Clia-Type") == DECISION_TYPE:
            self._decisions.append((commit, ref))
        self._traces.check(commit)

    def check_decisions(self) -> None:
        """Check the decisions. One is judged by the newest policy that it or a commit before it was logged with."""
        floors: dict[str, int] = {}
        for commit, ref in self._decisions:
            self._decision(commit, ref, self._floor(commit.cid, floors))

    def _floor(self, cid: str, floors: dict[str, int]) -> int:
        """The highest position of a commit and of those that it follows."""
        stack = [cid]
        while stack:
            top = stack[-1]
            commit = self._checks.commit(top, quiet=True) if top in self._positions else None
            parents = [parent for parent in commit.parents if parent in self._positions] if commit is not None else []
            waiting = [parent for parent in parents if parent not in floors]
            if waiting and top not in floors:
                stack += waiting
                continue
            floors[top] = max([self._positions.get(top, 0), *(floors[parent] for parent in parents)])
            stack.pop()
        return floors[cid]

    def check_chains(self) -> None:
        """Check the acts on chains, of the commits whose signatures hold. A commit counts where it is, for each ref that has it."""
        for ref, tip in sorted(self._checks.refs.items()):
            kind = next((prefix for prefix in _VERBS if ref.startswith(prefix)), "")
            for commit in self._checks.walk(ref, tip, set(), quiet=True) if kind else ():
                position = self._positions.get(commit.cid)
                if position is None:
                    continue
                body = _object(commit.trailer(_EVENT))
                verb = _VERBS[kind].get(str(body.get("event")))
                if kind == names.BEHAVIOURS:
                    self._behaviours.check(commit, ref, body)
                    verb = None if body.get("automatic") is True else verb
                if verb is not None:
                    self._act(commit, ref, position, _Act(verb, _about(ref, body), body))

    def _decision(self, commit: RawCommit, ref: str, position: int) -> None:
        agent, meta = commit.trailer("Clia-Agent") or "", meta_of(commit)
        act = decided_act(agent, meta, _answer(commit))

        def check(statement: PersonalStatement, proved: Proved) -> None:
            check_statement(statement, proved, commit, agent, meta)

        self._judge(commit, ref, position, act, check, self.strengths)

    def _act(self, commit: RawCommit, ref: str, position: int, act: _Act) -> None:
        paths: tuple[str, ...] | None = ()
        if act.verb == LAND:
            paths = self._landed_paths(act.body)
            problem = self._landing_problem(act.body)
            if problem is not None:
                self._checks.found("wrong-landing", f"the landing {commit.cid} is not what it says: {problem}", ref, commit.cid)
                return

        def check(statement: PersonalStatement, _: Proved) -> None:
            if act.verb == LAND:
                landed = self._checks.commit(str(act.body.get("cid")), quiet=True)
                # Branches of people are not published: a clone may have the event of a landing without its commit.
                tree = landed.tree if landed is not None else statement.tree
                place = str(act.body.get("head")), tree, stated_landing(act.body)
            else:
                place = commit.parents[0] if commit.parents else "", commit.tree, act.body
            _check_act(statement, act, place)
            if act.verb in (ADOPT, RETIRE) and statement.reason.strip() and statement.reason.split() != commit.text.split():
                raise _other("reason")

        self._judge(commit, ref, position, PolicyAct((act.verb,), act.about, paths=paths), check, self.acts)

    def _judge(  # one row of the checks
        self, commit: RawCommit, ref: str, position: int, act: PolicyAct, check: Any, strengths: Counter[str]
    ) -> None:
        """Judge an act by the policy in force then; ``check`` compares its statement with the commit."""
        requirement, what = self._chain.requirement(position, act), f"{_NOUNS[act.verbs[0]]} {commit.cid}"
        try:
            proved = self._chain.proved(commit, position, act.verbs[0])
            stated = stated_in(commit.trailers)
            if stated is not None and stated.statement is not None:
                check(stated.statement, proved)
                self._check_counters(stated.proofs, commit.cid)
        except BadSignature as err:
            strengths[UNSIGNED] += 1
            self._checks.found(err.code, f"the {what} is not proved: {err.message}", ref, commit.cid)
            return
        strengths[proved.strength] += 1
        problem = self._chain.missing(proved, requirement)
        if problem is not None:
            code = "weak-proof" if is_weaker(proved.strength, requirement.strength) else "too-few-people"
            self._checks.found(code, f"the {what} does not meet the policy: {problem}", ref, commit.cid)
        elif self._strict and proved.strength == ATTESTED and act.verbs[0] != LAND:  # agents land their work, too
            message = f"the {what} has no proof of its own: the machine that recorded it vouches for a login"
            self._checks.found("weak-proof", message, ref, commit.cid)

    def _check_counters(self, proofs: Sequence[StatementProof], cid: str) -> None:
        """An authenticator counts what it signs, unless it has no counter; so no two statements have one number."""
        for proof in proofs:
            counter = counter_in(proof) if proof.method == PASSKEY_KEY else 0
            other = self._counters.setdefault((proof.key, counter), cid) if counter else cid
            if other != cid:
                message = f"a passkey proved {cid} and {other} with one counter: the key was copied"
                raise BadSignature(message, code="copied-key")

    def _landing_problem(self, body: Mapping[str, Any]) -> str | None:
        """Why a landing's commit is not made from the heads that the event names; None if it is, or is missing."""
        landed = self._checks.commit(str(body.get("cid")), quiet=True)
        head, base, how = (body.get(name) for name in ("head", "base", "how"))
        if landed is None or how is None:
            return None
        parents = {"squash": (base,), "merge": (base, head)}.get(str(how))
        if how == "fast-forward" or parents is None:
            return None if landed.cid == head else "its commit is another one than the head"
        expected = tuple(parent for parent in parents if parent is not None)
        return None if landed.parents == expected else "its commit has other parents"

    def _landed_paths(self, body: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The paths that a landing changed on its branch; None if they cannot be read. Empty if its commit is not in this clone."""
        if self._checks.commit(str(body.get("cid")), quiet=True) is None:
            return ()
        commits = [self._checks.commit(str(body[key]), quiet=True) for key in ("base", "cid") if body.get(key) is not None]
        if None in commits or not commits:
            return None
        trees = [commit.tree for commit in commits if commit is not None]
        return self._checks.changed_paths(trees[0] if len(trees) > 1 else None, trees[-1])


_NOUNS = {DECIDE: "decision", ADOPT: "adoption", RETIRE: "retirement", GRANT: "grant", UNGRANT: "revocation", LAND: "landing"}
_NOUNS[PURGE] = "purge"


def _about(ref: str, body: Mapping[str, Any]) -> str:
    """What an act is about: the behaviour or agent of the ref, or the peer."""
    if ref != names.CAPABILITIES:
        return ref.rpartition("/")[2]
    grant = body.get("capability")
    peer = grant.get("peer") if isinstance(grant, dict) else body.get("peer")
    return peer if isinstance(peer, str) else ""


def _check_act(statement: PersonalStatement, act: _Act, place: tuple[str, str, dict[str, Any]]) -> None:
    """Check that a statement is about this act. ``place``: the commit before, the tree, and the event as it is stated."""
    parent, tree, body = place
    expected = {"about": act.about, "parent": parent, "tree": tree, "value": stated_value(body)}
    _compare(statement, expected)


def check_statement(statement: PersonalStatement, proved: Proved, commit: RawCommit, agent: str, meta: Mapping[str, Any]) -> None:
    """Check that a statement is about this decision."""
    kind = meta.get("kind", "")
    expected = {
        "about": agent,
        "parent": commit.parents[0] if commit.parents else "",
        "tree": commit.tree,
        "request": commit.trailer("Clia-Request") or "",
        "question": recorded_question(meta),
        "kind": kind if isinstance(kind, str) else None,
    }
    _compare(statement, expected)
    if commit.trailer(_VALUE) != canonical_bytes(statement.value).decode("utf-8"):
        raise _other("value")
    text = " ".join(commit.text.split())
    if text != " ".join(statement.reason.split()) and (statement.reason.strip() or not text.startswith("decision: ")):
        raise _other("reason")
    by = commit.trailer("Clia-By") or ""
    if not any(person == by or is_person(person, by) for person in (statement.person, *proved.people)):
        raise _other("person")


def _compare(statement: PersonalStatement, expected: Mapping[str, Any]) -> None:
    for field, value in expected.items():
        if canonical_bytes(getattr(statement, field)) != canonical_bytes(value):  # in Python, True equals 1
            raise _other(field)


def _other(field: str) -> BadSignature:
    return BadSignature(f"the statement names another {field}", code="wrong-statement", fields={"field": field})


def _answer(commit: RawCommit) -> Any:
    """The answer that a decision records; None if it cannot be read."""
    try:
        return json.loads(commit.trailer(_VALUE) or "null")
    except (ValueError, RecursionError):
        return None


def meta_of(commit: RawCommit) -> dict[str, Any]:
    """The open fields of a commit."""
    return _object(commit.trailer("Clia-Meta"))


def _object(text: str | None) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        body = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {}
