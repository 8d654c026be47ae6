"""Proving what people do here: who signs a statement, and statements that wait for more people.

Where the policy asks for several people, the first one's statement and proof are kept in ``refs/clia/statements``. A person who
then does the same signs that statement; the act is recorded once enough people have. A statement names the commit that it follows,
so it counts only until that has changed.

Invariant: an agent proves nothing. An act that does not meet the policy is refused, and nothing but its statement is recorded.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from clia.errors import AwaitsOthers, BadSignature, CliaError, Conflict, Denied, StaleRef
from clia.trust.event_chains import EVENT, append_event
from clia.trust.key_chain import Proved, is_person
from clia.trust.policy import PolicyAct
from clia.trust.statements import (
    ADOPT,
    ATTESTED,
    DECIDE,
    GRANT,
    LAND,
    PURGE,
    RETIRE,
    UNGRANT,
    PersonalStatement,
    StatementProof,
    is_weaker,
    read_proof,
    read_statement,
    stated_value,
    trailers_of,
)
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import parse
from clia.values.refs import BEHAVIOURS, CAPABILITIES, EVENTS, HEADS, KEYS, STATEMENTS, STATEMENTS_LOCK
from clia.verbs import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clia.space.core import Core
    from clia.trust.key_chain import KeyChain
    from clia.trust.policy import ProofRequirement
    from clia.trust.statements import EnrolledKey, RecordedAct

    Prover = Callable[[PersonalStatement, Sequence[EnrolledKey]], Sequence[StatementProof]]

STATEMENT_SECONDS, WAITING_SECONDS = 15 * 60, 14 * 86400
"""How long a statement can be recorded after it was made: by one person, and while it waits for others."""
_READ_MAX = 1000
_OF_SIGNER = ("person", "at", "reason", "channel")
"""The fields in which statements of several people about one act may differ."""


class WaitingStatement(NamedTuple):
    """A statement that more people have to prove."""

    statement: PersonalStatement
    proofs: tuple[StatementProof, ...]
    threshold: int  # how many people were needed then
    people: tuple[str, ...] = ()  # who has proved it


class SuppliedProof(NamedTuple):
    """A statement that a person signed elsewhere, such as in a browser. ``proofs`` is None: only make the statement."""

    person: str
    statement: PersonalStatement | None = None
    proofs: tuple[StatementProof, ...] | None = None


class StatementPreview(Exception):
    """Carries the statement of an act that is not carried out. Nothing has been recorded.

    Not a ``BaseException``: what the act has opened, such as a batch of the log, must be closed as after an error.
    """

    def __init__(self, statement: PersonalStatement) -> None:
        super().__init__(statement)
        self.statement = statement


_supplied: ContextVar[SuppliedProof | None] = ContextVar("supplied", default=None)


def preview(person: str, act: Callable[[], object]) -> PersonalStatement | None:
    """The statement that a person has to sign for an act; None if the act needs none. The act is not carried out."""
    token = _supplied.set(SuppliedProof(person))
    try:
        act()
    except StatementPreview as stopped:
        return stopped.statement
    finally:
        _supplied.reset(token)
    return None


@contextmanager
def supplied(person: str, statement: PersonalStatement, proofs: Sequence[StatementProof]) -> Iterator[None]:
    """Use this statement and these proofs for the act of the block; ``Conflict`` if the act is another one."""
    token = _supplied.set(SuppliedProof(person, statement, tuple(proofs)))
    try:
        yield
    finally:
        _supplied.reset(token)


class StatementProver:
    """Makes the trailers that prove an act, as the policy asks."""

    def __init__(self, core: Core, chain: Callable[[], KeyChain], prove: Prover | None) -> None:
        self._core = core
        self._chain = chain
        self._prove = prove

    def act(self, act: RecordedAct) -> list[tuple[str, str]]:
        """The trailers of the commit that records an act."""
        chain = self._chain()
        own = _supplied.get()
        if chain.root is None and own is None:
            return []
        policy_act = PolicyAct((act.verb,), act.about, paths=act.paths)
        if act.by_agent:
            self._check(chain.missing(_NOBODY, chain.requirement(chain.position, policy_act)), act.verb, act.about, "an agent")
            return []
        person = self._core.person
        name = act.person or (own.person if own is not None else f"{person.name} <{person.email}>")
        fields = {"parent": act.parent, "tree": act.tree, "value": stated_value(act.value), "reason": act.reason}
        statement = PersonalStatement(self._core.space_id, act.verb, name, act.about, self._core.now(), channel=channel(), **fields)
        if own is None:
            return self.trailers(statement, policy_act)
        if own.proofs == ():
            raise Conflict("done; the next part has to be signed by itself", code="sign-next", hints=["submit the form again"])
        waiting = self.waiting(statement)
        if own.statement is None or own.proofs is None:
            raise StatementPreview(statement if waiting is None else waiting.statement)
        check_same(statement, own.statement, None if waiting is None else waiting.statement, self._core.now())
        trailers = self.trailers(own.statement, policy_act, own.proofs, own.person)
        _supplied.set(own._replace(proofs=()))  # it counts once
        return trailers

    def trailers(
        self,
        statement: PersonalStatement,
        act: PolicyAct,
        proofs: Sequence[StatementProof] | None = None,
        person: str | None = None,
        *,
        only_count: bool = False,
    ) -> list[tuple[str, str]]:
        """The trailers that prove a statement. ``proofs``: made before; None: ask the keys of ``person``.

        ``AwaitsOthers`` if more people have to prove it, ``Denied`` (proof-required) if the proofs are not what the policy asks;
        with ``only_count`` the caller checks the latter.
        """
        chain, who = self._chain(), person or statement.person
        if chain.root is None:
            return trailers_of(statement, list(proofs)) if proofs else []
        requirement = chain.requirement(chain.position, act)
        waiting = self.waiting(statement) if requirement.threshold > 1 else None
        statement = statement if waiting is None else waiting.statement
        new = list(proofs) if proofs is not None else self.proofs_of(statement, who)
        earlier = () if waiting is None else waiting.proofs
        every = list({proof.key: proof for proof in (*new, *earlier)}.values())[::-1]
        trailers = trailers_of(statement, every) if every else []
        proved = chain.proved_by(trailers, chain.position, statement.verb)
        if proved.people and not any(is_person(owner, who) for owner in proved.people):
            raise BadSignature(f"the statement is recorded for {who!r}, who did not prove it", code="wrong-person")
        problem = chain.missing(proved, requirement)
        if problem is not None and proved.people and not is_weaker(proved.strength, requirement.strength):
            if len(every) > len(earlier):
                self._keep(statement, every, requirement.threshold)
            raise _awaits_others(statement, proved.people, requirement)
        if not only_count:
            self._check(problem, statement.verb, statement.about, who, requirement)
        return trailers

    def proofs_of(self, statement: PersonalStatement, person: str) -> list[StatementProof]:
        """Proofs by the keys of a person that are here."""
        chain = self._chain()
        keys = [key for key in chain.people_at(chain.position) if is_person(key.owner, person)]
        return list(self._prove(statement, keys)) if keys and self._prove is not None else []

    def _check(self, problem: str | None, verb: str, about: str, who: str, requirement: ProofRequirement | None = None) -> None:
        if problem is not None:
            hints = ["add your key to the ssh-agent: ssh-add", "clia key list shows the enrolled keys; clia policy show the policy"]
            fields = {"strength": requirement.strength, "threshold": requirement.threshold} if requirement else {}
            raise Denied(f"{who} cannot {verb} {about!r}: {problem}", code="proof-required", hints=hints, fields=fields)

    # Statements that wait for more people

    def waiting(self, statement: PersonalStatement) -> WaitingStatement | None:
        """The statement of another person about the same act, on the same commit, that still counts."""
        same = (item for item in self.all_waiting() if _act_of(item.statement) == _act_of(statement))
        return next(same, None)

    def all_waiting(self) -> list[WaitingStatement]:
        """Every statement that was kept lately, newest first, with the proofs that hold now."""
        core, chain = self._core, self._chain()
        tip, by_text = core.refs.get(STATEMENTS), dict[str, WaitingStatement]()
        oldest = core.now() - WAITING_SECONDS
        for number, commit in enumerate(core.graph.walk([tip]) if tip is not None else ()):
            if number >= _READ_MAX or commit.committer.at < oldest:
                break
            item = _read(commit.message)
            if item is None or item.statement.at < oldest:
                continue
            if (core.refs.get(_chain_of(item.statement)) or "") != item.statement.parent:
                continue  # what it is about has changed, or it was done
            text = item.statement.data().decode("utf-8")
            every = {proof.key: proof for proof in (*item.proofs, *(by_text[text].proofs if text in by_text else ()))}
            by_text[text] = item._replace(proofs=tuple(every.values()))
        return [item for item in (_proved(chain, item) for item in by_text.values()) if item is not None]

    def _keep(self, statement: PersonalStatement, proofs: Sequence[StatementProof], threshold: int) -> None:
        core, by = self._core, self._core.person_stamp()
        listed = [json.loads(proof.text()) for proof in proofs]
        body = {"event": "statement", "statement": statement.as_json(), "proofs": listed, "threshold": threshold}
        with core.locks.hold(STATEMENTS_LOCK):
            append_event(core, STATEMENTS, by, body, f"statement: {statement.verb} {statement.about}")


_NOBODY = Proved((), ATTESTED)


def check_same(expected: PersonalStatement, signed: PersonalStatement, waiting: PersonalStatement | None, now: int) -> None:
    """Raise ``Conflict`` unless a person signed what would be recorded now; another person may have stated it first."""
    other = expected if waiting is None or signed != waiting else waiting
    limit = STATEMENT_SECONDS if other is expected else WAITING_SECONDS
    if signed.parent != expected.parent:
        fields = {"expected": signed.parent, "actual": expected.parent}
        what = "made a commit since the answer" if expected.verb == DECIDE else "changed since the statement"
        message = f"{expected.about} has {what} was signed"
        raise StaleRef(message, code="stale-statement", hints=["look at it again, and sign again"], fields=fields)
    if abs(now - signed.at) > limit:
        raise Conflict("the statement was signed too long ago", code="stale-statement", hints=["sign again"])
    if other._replace(at=signed.at).data() != signed.data():
        ours, theirs = other._replace(at=signed.at).as_json(), signed.as_json()
        differing = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        message = f"the signed statement is about something else: {', '.join(differing)}"
        raise Conflict(message, code="other-statement", hints=["sign again"], fields={"fields": differing})


def _chain_of(statement: PersonalStatement) -> str:
    """The ref whose value a statement names as its parent."""
    of_verb = {DECIDE: HEADS, LAND: HEADS, PURGE: EVENTS, ADOPT: BEHAVIOURS, RETIRE: BEHAVIOURS}
    if statement.verb in (GRANT, UNGRANT):
        return CAPABILITIES
    prefix = of_verb.get(statement.verb)
    return KEYS if prefix is None else prefix + statement.about


def _act_of(statement: PersonalStatement) -> bytes:
    """What a statement says, without who said it and when."""
    return canonical_bytes({key: value for key, value in statement.as_json().items() if key not in _OF_SIGNER})


def _proved(chain: KeyChain, item: WaitingStatement) -> WaitingStatement | None:
    """The statement with those who proved it, if all proofs hold now."""
    try:
        proved = chain.proved_by(trailers_of(item.statement, list(item.proofs)), chain.position, item.statement.verb)
    except CliaError:
        return None
    return item._replace(people=proved.people)


def _read(message: str) -> WaitingStatement | None:
    text = next((value for key, value in parse(message)[1] if key == EVENT), "")
    try:
        body = json.loads(text)
        statement = read_statement(canonical_bytes(body["statement"]).decode("utf-8"))
        proofs = tuple(read_proof(canonical_bytes(proof).decode("utf-8")) for proof in body["proofs"])
        return WaitingStatement(statement, proofs, int(body["threshold"]))
    except (ValueError, KeyError, TypeError, RecursionError, CliaError):
        return None


def _awaits_others(statement: PersonalStatement, people: Sequence[str], requirement: ProofRequirement) -> AwaitsOthers:
    message = f"recorded {len(people)} of {requirement.threshold}: {', '.join(people)}; more people have to {statement.verb} this"
    hints = ["another person does the same, with a key of their own"]
    fields = {"verb": statement.verb, "about": statement.about, "people": list(people), "threshold": requirement.threshold}
    return AwaitsOthers(message, hints=hints, fields=fields)
