"""Keys, policy, and checking the record.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.trust`` that implements it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import InvalidInput
from clia.trust.checkpoints.signed_notes import check_key_name
from clia.trust.key_chain import MACHINE_KEY, MACHINE_ROLES, WITNESS_KEY
from clia.trust.policy import OWNER, check_roles, read_policy
from clia.trust.ssh_format import read_public_key
from clia.trust.statements import ACCEPT, DECIDE, ENROL, LAND, PASSKEY_KEY, POLICY, SSH_KEY, EnrolledKey
from clia.values.commit_messages import check_text
from clia.values.refs import check_name
from clia.verbs import ADMIN, VIEWER, Count, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Annotated

    from clia.errors import CliaError
    from clia.facade.components import Components
    from clia.trust.enrolling import TrustKeys
    from clia.trust.policy import PolicyAct, ProofRequirement
    from clia.trust.statements import PersonalStatement, StatementProof
    from clia.trust.verification import TrustReport

_ASK = "ask a person: clia ask AGENT QUESTION"
_DEFAULT_ROLES = (DECIDE, LAND)


class ListedKey(NamedTuple):
    """A key in the chain of keys."""

    fingerprint: str  # as `ssh-keygen -l` prints it
    kind: str  # machine, ssh, passkey or witness
    owner: str  # the person, or the name of the machine
    roles: Sequence[str]  # what it may do
    public: str  # of SSH: type and base64; of a passkey: base64url
    current: bool  # whether it is in force
    here: bool  # whether it is the key of this clone


class KeyList(NamedTuple):
    """The keys of a space."""

    signing: bool  # whether commits are signed
    root: str | None  # fingerprint of the first key, which others pin; null: commits are not signed
    machine: str | None  # fingerprint of the key of this clone; null: it has none
    enrolled: bool  # whether the key of this clone is enrolled
    keys: Sequence[ListedKey]  # in the order in which they were enrolled
    problem: str | None  # why entries of the chain do not count; null: all of them do


class WaitingAct(NamedTuple):
    """An act that some people have stated and that waits for more."""

    verb: str  # what they do, such as decide or adopt
    about: str  # the agent, behaviour, peer or key
    request: str  # the id of the request that a decision answers, else empty
    value: Any  # the answer, or the event as it will be recorded
    reason: str  # why
    people: Sequence[str]  # who has stated it
    threshold: Count  # how many people are needed
    at: int  # when the first one did, in seconds since the epoch
    channel: str  # how it came: cli, forge, mcp


class SigningState(NamedTuple):
    """Whether this clone can record: in a space that signs, nothing is recorded without a signature."""

    signing: bool  # whether commits are signed
    code: str | None  # why nothing can be signed now, such as no-signing-key; null: it can
    problem: str | None  # the same in a sentence
    hints: Sequence[str]  # what to do about it
    enrolled: bool  # whether the key of this clone counts


class TrustService:
    """Keys, policy, and checking the record."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def statements(self) -> TrustKeys:
        """The statements that people make here, for forms that ask for a proof."""
        return self._components.trust_keys

    @verb("GET", "/trust/keys", VIEWER, "trust", "trust_keys")
    def keys(self) -> KeyList:
        """The keys that sign commits and statements: of machines, people and witnesses."""
        trust = self._components.trust_keys
        chain, has_key = trust.chain(), trust.machine.exists()
        own = trust.machine.public().fingerprint if has_key else None
        listed = [
            ListedKey(key.fingerprint, key.kind, key.owner, key.roles, key.public, entry.until is None, key.fingerprint == own)
            for entry in chain.enrolments
            for key in [entry.key]
        ]
        root = None if chain.root is None else chain.root.fingerprint
        problem = None if chain.problem is None else chain.problem.message
        return KeyList(root is not None, root, own, any(key.here and key.current for key in listed), listed, problem)

    @verb("GET", "/trust/signing", VIEWER, "trust", "signing_state")
    def signing(self) -> SigningState:
        """Whether this clone can sign what it records. Nothing is lost meanwhile: tools' events, traces and questions wait."""
        problem, signs = self.signing_problem(), self.is_signing()
        is_enrolled = problem is None and signs and self.keys().enrolled
        if problem is None:
            return SigningState(signs, None, None, (), is_enrolled)
        return SigningState(signs, problem.code, problem.message, problem.hints, is_enrolled)

    def signing_problem(self) -> CliaError | None:
        """Why nothing can be signed now; None if it can."""
        return self._components.trust_keys.machine.problem()

    def require_signing(self) -> None:
        """Raise the problem if nothing can be signed now."""
        problem = self.signing_problem()
        if problem is not None:
            raise problem

    @verb("POST", "/trust/keys/init", ADMIN, "trust", "init_trust")
    @for_people(_ASK)
    def init(self) -> KeyList:
        """Start to sign commits, and create the key of this clone if it has none. What exists is listed as unsigned history."""
        self._components.trust_keys.start()
        return self.keys()

    @verb("POST", "/trust/keys", ADMIN, "trust", "enrol_key")
    @for_people(_ASK)
    def enrol(
        self,
        owner: Annotated[str, "the person, as in the commits that they make: the name or the address; of a machine any text"],
        public: Annotated[str, "the public key: one line as in ~/.ssh/id_ed25519.pub; of a passkey base64url"],
        kind: Annotated[str, "ssh, machine, witness or passkey"] = SSH_KEY,
        *,
        roles: Annotated[Sequence[str], "what the key may do; default: decide and land; of the first person: owner"] = (),
        details: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> KeyList:
        """Enrol the key of a person, a machine or a witness."""
        trust = self._components.trust_keys
        name = check_text(owner, "owner").strip()
        if not name or "\n" in name:
            raise InvalidInput("the owner of a key must be one line", code="invalid-owner", fields={"field": "owner"})
        if kind in (SSH_KEY, PASSKEY_KEY):
            allowed = check_roles(roles) or ((OWNER,) if not trust.chain().people_at(trust.chain().position) else _DEFAULT_ROLES)
        elif kind in (MACHINE_KEY, WITNESS_KEY):
            allowed = MACHINE_ROLES if kind == MACHINE_KEY else ("witness",)
            if kind == WITNESS_KEY:
                check_key_name(name, "owner")  # cosignatures carry it
        else:
            raise InvalidInput(f"unknown kind of key {kind!r}", code="invalid-key", fields={"field": "kind"})
        if kind == PASSKEY_KEY:
            from clia.trust.key_chain import passkey_fingerprint

            key = EnrolledKey(passkey_fingerprint(public), kind, public, name, allowed, details or {})
        else:
            ssh_key = read_public_key(public)
            key = EnrolledKey(ssh_key.fingerprint, kind, ssh_key.text, name, allowed)
        trust.append({"entry": ENROL, "key": key}, self._person(by))
        return self.keys()

    @verb("POST", "/trust/keys/revoke", ADMIN, "trust", "revoke_key")
    @for_people(_ASK)
    def revoke(self, fingerprint: str, reason: str = "", *, by: str | None = None) -> KeyList:
        """Revoke a key. What was logged with it until now stays valid."""
        self._components.trust_keys.revoke(check_text(fingerprint, "fingerprint"), self._person(by), check_text(reason, "reason"))
        return self.keys()

    @verb("POST", "/trust/keys/rotate", ADMIN, "trust", "rotate_machine_key")
    @for_people(_ASK)
    def rotate_machine(self) -> KeyList:
        """Replace the key of this clone; the old key signs the new one."""
        self._components.trust_keys.rotate_machine()
        return self.keys()

    @verb("GET", "/trust/allowed-signers", VIEWER, "trust", "allowed_signers")
    def allowed_signers(self) -> str:
        """The file that lets stock git verify the commits: ``gpg.ssh.allowedSignersFile``."""
        return self._components.trust_keys.allowed_signers()

    @verb("GET", "/trust/policy", VIEWER, "trust", "trust_policy")
    def policy(self) -> dict[str, Any]:
        """The policy in force: which acts need how many people and how strong proofs."""
        chain = self._components.trust_keys.chain()
        return chain.policy_at(chain.position).as_json()

    @verb("PUT", "/trust/policy", ADMIN, "trust", "set_trust_policy")
    @for_people(_ASK)
    def set_policy(self, policy: dict[str, Any], reason: str = "", *, by: str | None = None) -> dict[str, Any]:
        """Replace the policy. It must meet the policy that it replaces."""
        body = {"entry": POLICY, "policy": read_policy(policy).as_json()}
        self._components.trust_keys.append(body, self._person(by), check_text(reason, "reason"))
        return self.policy()

    @verb("POST", "/trust/accepted", ADMIN, "trust", "accept_finding")
    @for_people(_ASK)
    def accept(self, finding: str, object: str, reason: str, *, by: str | None = None) -> KeyList:  # noqa: A002  # as in the chain
        """Accept a finding about a commit or a ref: from now on it is listed as accepted, with who did it and why."""
        if not check_text(reason, "reason").strip():
            raise InvalidInput("say why the finding is acceptable", code="reason-missing", fields={"field": "reason"})
        body = {
            "entry": ACCEPT,
            "finding": check_text(finding, "finding"),
            "object": check_text(object, "object"),
            "reason": reason,
        }
        self._components.trust_keys.append(body, self._person(by), reason)
        return self.keys()

    @verb("GET", "/trust/verify", VIEWER, "trust", "verify_trust")
    def verify(
        self,
        *,
        root: Annotated[str | None, "the fingerprint that the space must have"] = None,
        strict: bool = False,
        since: Annotated[str | None, "a checkpoint that the record must contain; only what came after it is checked"] = None,
        witnesses: Annotated[Sequence[str], "keys of witnesses that count in addition to the enrolled ones"] = (),
    ) -> TrustReport:
        """Check signatures, statements, logs and checkpoints, as a stranger does from a clone."""
        return self.verify_again(None, root=root, strict=strict, since=since, witnesses=witnesses)

    def verify_again(
        self,
        cache: str | None,
        *,
        root: str | None = None,
        strict: bool = False,
        since: str | None = None,
        witnesses: Sequence[str] = (),
    ) -> TrustReport:
        """The same; what this account verified before, as its ``cache`` directory says, is not verified again."""
        from clia.trust.verification import verify_trust

        git, now = self._components.git, self._components.core.now()
        return verify_trust(git, root=root, strict=strict, since=since, witnesses=witnesses, now=now, cache=cache)

    @verb("GET", "/trust/waiting", VIEWER, "trust", "waiting_statements")
    def waiting(self) -> list[WaitingAct]:
        """Acts that some people have stated and that wait for more people, newest first."""
        waiting = self._components.trust_keys.prover.all_waiting()
        acts = [(item, item.statement) for item in waiting if not self._is_landed(item.statement)]
        return [
            WaitingAct(act.verb, act.about, act.request, act.value, act.reason, item.people, item.threshold, act.at, act.channel)
            for item, act in acts
        ]

    def _is_landed(self, statement: PersonalStatement) -> bool:
        """Whether a landing that waited is done: unlike other acts, it leaves the commit that it follows as it is."""
        onto = statement.value.get("onto") if isinstance(statement.value, dict) else None
        landing = self._components.landing
        return statement.verb == LAND and isinstance(onto, str) and landing.has_landed(statement.about, onto)

    # Keys of agents' sessions

    def start_agent_key(self, agent: str) -> str | None:
        """Certify a key for a run of an agent, in a file for its programs; None if there is none. Sign its commits with it."""
        return self._components.trust_keys.start_agent_key(check_name(agent))

    def end_agent_key(self, path: str) -> None:
        """End the key of a run: nothing that is signed with it from now on counts."""
        self._components.trust_keys.end_agent_key(path)

    # For forms, where people prove with passkeys

    def enrolled(self, fingerprint: str) -> EnrolledKey | None:
        """The key in force with a fingerprint."""
        chain = self._components.trust_keys.chain()
        enrolment = chain.key_at(fingerprint, chain.position)
        return None if enrolment is None else enrolment.key

    def known(self, fingerprint: str) -> EnrolledKey | None:
        """The key with a fingerprint, also one that was revoked."""
        enrolment = self._components.trust_keys.chain().enrolment_of(fingerprint)
        return None if enrolment is None else enrolment.key

    def is_signing(self) -> bool:
        """Whether the commits of this space are signed."""
        return self._components.trust_keys.chain().root is not None

    def has_people(self) -> bool:
        """Whether people have enrolled keys."""
        chain = self._components.trust_keys.chain()
        return bool(chain.people_at(chain.position))

    def needed(self, act: PolicyAct) -> ProofRequirement:
        """How many people and how strong a proof an act needs."""
        chain = self._components.trust_keys.chain()
        return chain.requirement(chain.position, act)

    def state_enrolment(self, key: EnrolledKey, person: str) -> PersonalStatement:
        """The statement with which a person enrols a key. Nothing is recorded."""
        return self._components.trust_keys.state({"entry": ENROL, "key": key}, person)

    @for_people(_ASK)
    def enrol_key(self, key: EnrolledKey, by: str, signed: tuple[PersonalStatement, StatementProof] | None = None) -> None:
        """Enrol a key as a person; ``signed``: the statement about it, if the person signed it."""
        self._components.trust_keys.append({"entry": ENROL, "key": key}, by, signed=signed)

    def _person(self, by: str | None) -> str:
        if by is not None:
            return check_text(by, "by")
        person = self._components.core.person
        return f"{person.name} <{person.email}>"
