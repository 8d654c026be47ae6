"""Writing the chain of keys: its start, and what people and machines add to it."""

from __future__ import annotations

import os
import secrets

from clia.errors import Denied, NotFound, StaleRef
from clia.git.records import FILE, TreeEntry
from clia.trust.agent_keys import (
    DIRECTORY,
    KEY_ENDED,
    AgentKeys,
    certify,
    read_agent_key,
    remove_agent_key,
    sign_as_agents,
    write_agent_key,
)
from clia.trust.event_chains import append_event
from clia.trust.key_chain import (
    ATTEST,
    MACHINE_KEY,
    RECORD,
    ROOT,
    KeyChain,
    about_entry,
    entry_digest,
    entry_text,
    is_person,
    read_key_chain,
    rotation_data,
)
from clia.trust.machine_keys import ENTRY, machine_key_of, machine_name
from clia.trust.machine_log import log_end
from clia.trust.policy import OWNER, PolicyAct
from clia.trust.proving import StatementProver, check_same
from clia.trust.raw_commits import raw_commit
from clia.trust.ssh_format import read_public_key
from clia.trust.ssh_signatures import signer_of
from clia.trust.statements import REVOKE, ROTATE, EnrolledKey, PersonalStatement, trailers_of
from clia.values.commit_messages import compose
from clia.values.refs import HEADS, KEYS, NOTES, events, is_shared
from clia.values.refs import log as log_ref
from clia.verbs import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.git.objects import GitObjects
    from clia.git.records import Stamp
    from clia.git.repository import Git
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.trust.agent_keys import AgentKey
    from clia.trust.machine_keys import MachineKey
    from clia.trust.proving import Prover
    from clia.trust.ssh_format import PublicKey
    from clia.trust.statements import StatementProof

KEYS_LOCK = "@keys"
HISTORY = "refs"
"""The file of the root's tree that lists the refs from before the space was signed."""


def read_chain_at(objects: GitObjects, tip: str | None, space: str) -> KeyChain:
    """Read the chain of keys that ends at a commit."""
    return read_key_chain(lambda cid: raw_commit(cid, objects.raw(cid)), tip, space)


def start_chain(git: Git, machine: MachineKey, space: str, by: Stamp) -> str:
    """Enrol the machine as the root of a new space; returns the id of the space.

    A process that died, or one that runs at the same time, may have started the chain already: then its id counts.
    """
    key = machine.make()
    root = root_entry(space, machine_key(key, (ATTEST, OWNER, RECORD)))
    commit = write_entry(git.objects, git.objects.update_tree(None, {}), [], by, root)
    try:
        git.refs.move(KEYS, None, commit, "clia: key")
    except StaleRef as err:
        return _space_of(git.objects, err.fields["actual"]) or space
    return space


def root_entry(space: str, key: EnrolledKey) -> dict[str, Any]:
    return {"entry": ROOT, "space": space, "key": key}


def machine_key(key: PublicKey, roles: Sequence[str]) -> EnrolledKey:
    return EnrolledKey(key.fingerprint, MACHINE_KEY, key.text, machine_name(key), tuple(sorted(roles)))


def write_entry(
    objects: GitObjects,
    tree: str,
    parents: Sequence[str],
    by: Stamp,
    body: Mapping[str, Any],
    proofs: Sequence[tuple[str, str]] = (),
) -> str:
    """Write the commit of an entry; no ref points at it yet."""
    key = body.get("key")
    subject = f"keys: {body['entry']} {key.owner if isinstance(key, EnrolledKey) else key or ''}".strip()
    return objects.write_commit(tree, parents, by, by, compose(subject, [(ENTRY, entry_text(body)), *proofs], "keys"))


def _space_of(objects: GitObjects, tip: str) -> str | None:
    """The space of a chain that was just started."""
    import json

    commit = raw_commit(tip, objects.raw(tip))
    text = commit.trailer(ENTRY)
    space = json.loads(text).get("space") if text is not None else None
    return space if isinstance(space, str) else None


class TrustKeys:
    """The keys of a space as this clone has them, and the statements of people that are recorded here."""

    def __init__(self, core: Core, envelope: Envelope, git: Git, prove: Prover | None) -> None:
        """``prove`` makes the proofs of a statement with the keys of the person who states it."""
        self._core = core
        self._envelope = envelope
        self._git = git
        self.prover = StatementProver(core, self.chain, prove)
        self._read: tuple[str | None, KeyChain] = None, KeyChain(core.space_id)
        self.machine = machine_key_of(git)

    def chain(self) -> KeyChain:
        """The chain of keys; empty in a space that does not sign."""
        tip = self._core.refs.get(KEYS)
        if self._read[0] != tip:
            self._read = tip, read_chain_at(self._git.objects, tip, self._core.space_id)
        return self._read[1]

    def own_logs(self) -> list[str]:
        """The logs that this clone writes, also those of its former keys."""
        chain = self.chain()
        if chain.root is None or not self.machine.exists():
            return []
        key = self.machine.public()
        current = chain.enrolment_of(key.fingerprint)
        keys = [entry.key.public for entry in chain.enrolments if current and entry.key.owner == current.key.owner]
        names = dict.fromkeys([*(machine_name(read_public_key(public)) for public in keys), machine_name(key)])
        return [ref for ref in map(log_ref, names) if self._core.refs.get(ref) is not None]

    # Changing the chain

    def start(self) -> KeyChain:
        """Start to sign: enrol the machine as the root, after the history that exists."""
        core = self._core
        if self.chain().root is not None:
            self.machine.make()
            return self.chain()
        with self._envelope.alone(), core.locks.hold(KEYS_LOCK):
            tip = core.refs.get(KEYS)
            refs = [(ref, cid) for prefix in (HEADS, "refs/clia/", NOTES) for ref, cid in core.refs.under(prefix) if is_shared(ref)]
            text = "".join(f"{cid} {ref}\n" for ref, cid in sorted(refs) if ref != KEYS or tip is not None)
            blob = core.objects.write_blob(text.encode("utf-8"))
            tree = core.objects.update_tree(None, {HISTORY: TreeEntry(FILE, blob)})
            key = machine_key(self.machine.make(), (ATTEST, OWNER, RECORD))
            commit = write_entry(core.objects, tree, [tip] if tip else [], core.person_stamp(), root_entry(core.space_id, key))
            core.refs.move(KEYS, tip, commit, "clia: key")
        return self.chain()

    def state(self, body: Mapping[str, Any], person: str, reason: str = "") -> PersonalStatement:
        """The statement about an entry, as of now, which a person signs. Nothing is written."""
        return self._statement({"space": self._core.space_id, **body}, person, reason)

    def append(
        self, body: Mapping[str, Any], person: str, reason: str = "", signed: tuple[PersonalStatement, StatementProof] | None = None
    ) -> KeyChain:
        """Add an entry that a person states, or has ``signed``. ``Denied`` if it would not count."""
        with self._envelope.among_others(), self._core.locks.hold(KEYS_LOCK):
            self._add({"space": self._core.space_id, **body}, person, reason, signed)
        return self.chain()

    def _statement(self, body: Mapping[str, Any], person: str, reason: str) -> PersonalStatement:
        core, tip = self._core, self._core.refs.get(KEYS)
        if tip is None or self.chain().root is None:
            raise NotFound("the commits of this space are not signed", code="not-signing", hints=["clia key init starts it"])
        act = (str(body["entry"]), person, about_entry(body), core.now(), tip)
        return PersonalStatement(core.space_id, *act, value=entry_digest(body), reason=reason, channel=channel())

    def _add(
        self,
        body: Mapping[str, Any],
        person: str,
        reason: str = "",
        signed: tuple[PersonalStatement, StatementProof] | None = None,
    ) -> None:
        """Write an entry, check that it counts, and move the ref."""
        core, statement = self._core, self._statement(body, person, reason)
        tip = statement.parent
        act = PolicyAct((statement.verb,), statement.about)
        if body["entry"] == ROTATE and signed is None:
            trailers = []  # a machine replaces its own key, which that key signs
        elif signed is None:
            trailers = self._trailers(statement, act, body)
        else:
            waiting = self.prover.waiting(statement)
            check_same(statement, signed[0], None if waiting is None else waiting.statement, core.now())
            trailers = self._trailers(signed[0], act, body, [signed[1]])
        commit = write_entry(core.objects, core.empty_tree(), [tip], core.person_stamp(), body, trailers)
        problem = read_chain_at(self._git.objects, commit, core.space_id).problem
        if problem is not None:
            raise Denied(problem.message, code=problem.code, fields={"entry": body["entry"]})
        core.reached("entry-written")
        core.refs.move(KEYS, tip, commit, "clia: key")
        core.reached("committed")

    def _trailers(
        self, statement: PersonalStatement, act: PolicyAct, body: Mapping[str, Any], proofs: Sequence[StatementProof] | None = None
    ) -> list[tuple[str, str]]:
        """The trailers that prove an entry; whether they suffice is judged with the entry. A person revokes their own key alone."""
        enrolment = self.chain().enrolment_of(str(body["key"])) if statement.verb == REVOKE else None
        if enrolment is not None and is_person(enrolment.key.owner, statement.person):
            own = list(proofs) if proofs is not None else self.prover.proofs_of(statement, statement.person)
            return trailers_of(statement, own) if own else []
        return self.prover.trailers(statement, act, proofs, only_count=True)

    def revoke(self, fingerprint: str, person: str, reason: str) -> KeyChain:
        """Revoke a key. What its machine logged until now stays valid."""
        enrolment = self.chain().enrolment_of(fingerprint)
        if enrolment is None or enrolment.until is not None:
            raise NotFound(f"the key {fingerprint} is not enrolled", code="unknown-key", hints=["clia key show lists the keys"])
        log = None
        if enrolment.key.kind == MACHINE_KEY:
            log = self._end_of_log(machine_name(read_public_key(enrolment.key.public)))
        return self.append({"entry": REVOKE, "key": fingerprint, "log": log, "reason": reason}, person, reason)

    def _end_of_log(self, machine: str) -> str | None:
        """How far the log of a machine goes here; None: there is none."""
        tip = self._core.refs.get(log_ref(machine))
        return None if tip is None else log_end(self._git.objects, machine, tip).text

    def rotate_machine(self) -> KeyChain:
        """Replace the machine's key; the old one signs the new one."""
        core, old, seed = self._core, self.machine.public(), secrets.token_bytes(32)
        new = signer_of(seed)
        with self._envelope.alone(), core.locks.hold(KEYS_LOCK):
            enrolment = self.chain().enrolment_of(old.fingerprint)
            if enrolment is None or enrolment.until is not None:
                raise NotFound(f"the key of this clone, {old.fingerprint}, is not enrolled", code="unknown-key")
            self.machine.keep_next(seed)
            key = EnrolledKey(new.public.fingerprint, MACHINE_KEY, new.public.text, enrolment.key.owner, enrolment.key.roles)
            proof = new.sign(rotation_data(core.space_id, old.fingerprint))
            body = {"entry": ROTATE, "key": old.fingerprint, "new": key, "proof": proof}
            self._add({"space": core.space_id, **body, "log": self._end_of_log(machine_name(old))}, core.person.name)
            self.machine.take_next()  # the move of the chain is logged with the new key
        return self.chain()

    # Keys of agents' sessions

    def start_agent_key(self, agent: str) -> str | None:
        """Certify a key for a run of an agent; returns its file, None if the commits of this space are not signed."""
        if self.chain().root is None:
            return None
        key, seed = certify(self.machine, self._core.space_id, agent, self._core.now())
        if key is None:
            return None
        path = write_agent_key(os.path.join(self.machine.directory, DIRECTORY), key, seed)
        sign_as_agents(self._git, self.machine, AgentKeys(path))
        return path

    def end_agent_key(self, path: str) -> None:
        """End the key of a run: remove its file, and record that it does not count any more."""
        key = read_agent_key(path)
        self._git.objects.sign = self.machine.sign
        remove_agent_key(path)
        if key is not None:
            self.end_agent_keys([key])

    def end_agent_keys(self, keys: Sequence[AgentKey]) -> None:
        """Record that keys do not count any more."""
        core = self._core
        for key in keys:
            body = {"event": KEY_ENDED, "key": key.signer.public.fingerprint}
            with self._envelope.at_work(key.agent):
                append_event(core, events(key.agent), core.person_stamp(), body, f"the key of a session of {key.agent} ended")

    def allowed_signers(self) -> str:
        """A file for ``gpg.ssh.allowedSignersFile``: who may sign commits of this space."""
        lines = []
        for enrolment in self.chain().enrolments:
            key = enrolment.key
            if key.kind == MACHINE_KEY:
                lines.append(f'* namespaces="git" {key.public}')
                lines.append(f'*@agents.clia.invalid cert-authority,namespaces="git" {key.public}')
        return "".join(f"{line}\n" for line in lines)
