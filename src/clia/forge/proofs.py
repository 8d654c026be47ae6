"""Answers that a person signs with a passkey, and how strongly decisions are proved.

Invariant: what is recorded is what was signed: the answer is read from the statement, which names the question as it was shown. A
proof is shown as such only after it was checked against a known key; any other is shown as not checked.
"""

from __future__ import annotations

import ipaddress
import secrets
from functools import cached_property
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import JSONResponse

from clia.approvals.evidence import answer_of
from clia.errors import BadSignature, CliaError, Conflict, InvalidInput, StaleRequest
from clia.forge.problems import PROBLEM, problem, status_of
from clia.trust.key_chain import is_person
from clia.trust.passkeys import PasskeyPlace
from clia.trust.policy import decided_act
from clia.trust.proving import preview, supplied
from clia.trust.statements import (
    ATTESTED,
    DECIDE,
    UNSIGNED,
    is_weaker,
    question_digest,
    read_proof,
    read_statement,
    verify_proof,
)
from clia.users.passkeys import Passkeys, request_options
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from clia.forge.forge import Forge
    from clia.forge.pages.common import Visit
    from clia.sessions.model import Decision, Request
    from clia.space.model import AgentCommit
    from clia.trust.policy import PolicyAct
    from clia.trust.service import WaitingAct
    from clia.trust.statements import PersonalStatement, StatementProof
    from clia.users.passkeys import StoredPasskey

STATEMENT_FIELD, ASSERTION_FIELD, QUESTION_FIELD = "_statement", "_assertion", "_asked"
PREVIEW_FIELD = "_preview"
"""Set by the script of a form that asks what the person has to sign."""


def passkeys_of(forge: Forge) -> Passkeys:
    return Passkeys(forge.home, forge.clock, forge.secret, secrets.token_bytes)


def place_of(forge: Forge) -> PasskeyPlace | None:
    """The host name and origin of this forge's passkeys; None where browsers allow none: under an IP address, or without TLS."""
    parts = urlsplit(forge.options.address)
    host = parts.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_name = bool(host)
    else:
        is_name = False
    if not is_name or (parts.scheme != "https" and host != "localhost" and not host.endswith(".localhost")):
        return None
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return PasskeyPlace(host, (f"{parts.scheme}://{host}{port}",))


class ShownProof(NamedTuple):
    """How strongly a decision is proved."""

    strength: str
    person: str = ""  # who signed it
    key: str = ""  # the fingerprint of the key
    problem: str | None = None  # why the proof does not hold, or was not checked


class Signing:
    """What the user of a page can sign with."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    @cached_property
    def keys(self) -> list[StoredPasskey]:
        """The passkeys that sign for the user here: those under the forge's host name and the user's present name."""
        place = place_of(self._visit.forge)
        if place is None:
            return []
        user, trust = self._visit.user, self._visit.space.trust
        keys = [key for key in passkeys_of(self._visit.forge).of(user.name, place.rp_id) if key.info.owner == user.by]
        return [key for key in keys if trust.enrolled(key.info.fingerprint) is not None] if trust.is_signing() else keys

    def question(self, request: Request) -> str:
        """The digest of a question as it is shown; empty if it cannot be signed."""
        try:
            return question_digest(self._visit.space.local.redacted({"payload": request.payload})["payload"])
        except InvalidInput:
            return ""

    def warning(self, request: Request) -> str | None:
        """What the user is told before an answer that is weaker than the policy asks."""
        needed = self._visit.space.trust.needed(self._act(request))
        asks = f"The policy asks for a proof by {needed.strength}"
        if not is_weaker(ATTESTED, needed.strength) and needed.threshold <= 1:
            return None
        if needed.threshold > 1 and self.can_sign(request):
            return f"This needs {needed.threshold} people: your answer waits until as many have given the same."
        if self.can_sign(request):
            return f"{asks}: an answer without your passkey is refused."
        return f"{asks}, and you have no enrolled passkey here: your answer is refused. Click your name to add one."

    def _act(self, request: Request) -> PolicyAct:
        """The act as rules match it, before the answer is known."""
        meta = {"asked": self._visit.space.local.redacted({"payload": request.payload})["payload"], "kind": request.kind}
        return decided_act(request.agent, meta, None)

    def waiting(self, request: Request) -> list[WaitingAct]:
        """What others have answered to a question that needs several people."""
        return [act for act in self._all_waiting if act.verb == DECIDE and (act.about, act.request) == (request.agent, request.id)]

    @cached_property
    def _all_waiting(self) -> list[WaitingAct]:
        return self._visit.space.trust.waiting()

    def can_sign(self, request: Request) -> bool:
        return bool(self.keys) and bool(self.question(request))


def statement_options(visit: Visit, request: Request | None, answer: Callable[[Request], object], rationale: str) -> Response:
    """What the browser needs to sign an answer: the statement, and whose keys may sign it."""
    try:
        if request is None:
            raise StaleRequest("the question has been answered", hints=["reload the page"])
        signing, place = Signing(visit), place_of(visit.forge)
        if not signing.can_sign(request) or place is None:
            hints = ["add a passkey on your page: click your name"]
            raise InvalidInput("you have no passkey for this forge", code="no-passkeys", hints=hints)
        by, sessions = visit.user.by, visit.space.sessions
        statement = sessions.state(request.agent, answer(request), rationale, person=by, by=by, request_id=request.id)
        if visit.field(QUESTION_FIELD) != statement.question:
            raise Conflict("the question has changed since the page was loaded", code="question-changed", hints=["reload the page"])
    except CliaError as err:
        return JSONResponse(problem(err), status_code=status_of(err), media_type=PROBLEM)
    options = request_options(statement.challenge(), place.rp_id, signing.keys)
    return JSONResponse({"statement": statement.data().decode("utf-8"), "publicKey": options})


def act_options(visit: Visit, act: Callable[[Visit], object]) -> Response:
    """What the browser needs to sign the act of a form; nothing to sign if it needs no statement. The act is not carried out."""
    try:
        keys, place = Signing(visit).keys, place_of(visit.forge)
        statement = preview(visit.user.by, lambda: act(visit)) if keys and place is not None else None
    except CliaError as err:
        return JSONResponse(problem(err), status_code=status_of(err), media_type=PROBLEM)
    if statement is None or place is None:
        return JSONResponse({"statement": None})
    options = request_options(statement.challenge(), place.rp_id, keys)
    return JSONResponse({"statement": statement.data().decode("utf-8"), "publicKey": options})


def signed_act(visit: Visit, act: Callable[[Visit], str]) -> str:
    """Carry out the act of a form that the user signed."""
    statement = read_statement(visit.field(STATEMENT_FIELD))
    proof = passkeys_of(visit.forge).sign(visit.user.name, visit.field(ASSERTION_FIELD), statement, by=visit.user.by)
    with supplied(visit.user.by, statement, [proof]):
        return act(visit)


def signed_decision(visit: Visit, request: Request) -> Decision:
    """Record the answer that the user signed."""
    statement = read_statement(visit.field(STATEMENT_FIELD))
    if (statement.about, statement.request) != (request.agent, request.id):
        message, fields = "the signed answer is for another question", {"request": statement.request}
        raise Conflict(message, code="other-statement", hints=["answer the question again"], fields=fields)
    if statement.person != visit.user.by and not visit.space.trust.is_signing():
        raise BadSignature("the signed answer is by another person", code="wrong-person", fields={"person": statement.person})
    proof = passkeys_of(visit.forge).sign(visit.user.name, visit.field(ASSERTION_FIELD), statement, by=visit.user.by)
    return visit.space.sessions.decide_signed(statement, [proof], by=visit.user.by)


# How strongly decisions are proved


def shown_proof(visit: Visit, commit: AgentCommit) -> ShownProof | None:
    """The strength of a decision's proof; None for any other commit."""
    if commit.kind != DECISION:
        return None
    if commit.statement is None:
        is_vouched = visit.space.trust.is_signing() or commit.channel in _VOUCHED
        return ShownProof(ATTESTED if is_vouched else UNSIGNED)
    try:
        statement, proofs = read_statement(commit.statement), list(map(read_proof, commit.proofs))
        _check_about(statement, commit)
        if not proofs:
            raise BadSignature("the statement has no proof", code="no-proof")
        return _checked(visit, statement, proofs[0])
    except BadSignature as err:
        return ShownProof(UNSIGNED, problem=err.message)


_VOUCHED = ("forge", "api", "form")
"""Channels whose users are logged in."""


def _checked(visit: Visit, statement: PersonalStatement, proof: StatementProof) -> ShownProof:
    key = visit.space.trust.known(proof.key)
    stored = None if key is not None else passkeys_of(visit.forge).by_fingerprint(proof.key)
    if key is None and stored is not None:
        key = stored.passkey.enrolled(stored.info.owner)
    if key is None:
        return ShownProof(proof.method, statement.person, proof.key, "not checked: the key is not enrolled")
    verified = verify_proof(statement, proof, key)
    if not is_person(key.owner, statement.person):
        raise BadSignature("the key belongs to another person", code="wrong-person")
    return ShownProof(verified.strength, statement.person, proof.key)


def _check_about(statement: PersonalStatement, commit: AgentCommit) -> None:
    """Check that a statement is about its commit."""
    parents = commit.parents[0] if commit.parents else ""
    actual = (statement.about, statement.request, statement.parent, statement.tree, statement.person, statement.value)
    if actual != (commit.agent, commit.request, parents, commit.tree, commit.by, answer_of(commit)):
        raise BadSignature("the statement is about something else", code="wrong-statement")
