"""A process of the same account has the repository, the store, git and the machine's key, but no person's authenticator.

Each attack makes a decision, or another act of a person, with clia's own parts: signed by the machine, logged, with the store in
agreement. ``clia verify`` accepts none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.errors import AwaitsOthers, CliaError
from clia.facade.backends import connect
from clia.git.records import FILE, TreeEntry
from clia.testing import components
from clia.trust.enrolling import machine_key, root_entry, write_entry
from clia.trust.key_chain import rotation_data
from clia.trust.log_writer import LogWriter
from clia.trust.machine_keys import read_key
from clia.trust.machine_log import LogEntry, LoggedMove, read_machine_log
from clia.trust.passkeys import Passkey, PasskeyPlace
from clia.trust.ssh_signatures import CLIA, GIT, signer_of
from clia.trust.statements import (
    EnrolledKey,
    PersonalStatement,
    StatementProof,
    read_proof,
    read_statement,
    trailers_of,
)
from clia.trust.superseded_logs import SupersededLogs
from clia.trust.verification import verify_trust
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import PROOF, STATEMENT, parse
from support.authenticator import PRESENT, VERIFIED, SoftAuthenticator, b64url
from support.people import key_of, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.space.core import Core
    from clia.trust.enrolling import TrustKeys

Trailers = list[tuple[str, str]]
HEAD, KEYS = "refs/heads/agents/scout", "refs/clia/keys"
THIEF = signer_of(b"\x09" * 32)
RP_ID, ORIGIN = "forge.example", "https://forge.example"


def passkey_proof(authenticator: SoftAuthenticator, statement: PersonalStatement, **wrong: Any) -> StatementProof:
    """What a browser would send for a statement, with single things wrong."""
    response = json.loads(authenticator.answer(statement.challenge(), **wrong))["response"]
    fields = {"authenticator_data": "authenticatorData", "client_data": "clientDataJSON", "signature": "signature"}
    passkey = Passkey(b64url(authenticator.credential), authenticator.public, PasskeyPlace(RP_ID, (ORIGIN,)))
    return StatementProof("passkey", passkey.fingerprint, {name: response[source] for name, source in fields.items()})


class Intruder(NamedTuple):
    """Writes commits as clia does: signed by the machine and logged."""

    space: clia.Space
    home: Path  # of the people: used only for what they really signed
    cid: SoftAuthenticator

    @property
    def inner(self) -> Core:
        return components(self.space).core

    @property
    def keys(self) -> TrustKeys:
        return components(self.space).trust_keys

    def head(self, ref: str = HEAD) -> str:
        tip = self.inner.refs.get(ref)
        assert tip is not None
        return tip

    def trailers(self, commit: str) -> Trailers:
        return parse(self.inner.objects.commit(commit).message)[1]

    def write(self, trailers: Trailers, *parents: str, text: str = "because", tree: str | None = None, agent: str = "scout") -> str:
        core = self.inner
        tree = tree or core.objects.commit(parents[0]).tree
        lines = "\n".join(f"{key}: {value}" for key, value in trailers)
        return core.objects.write_commit(tree, parents, core.agent_stamp(agent), core.person_stamp(), f"{text}\n\n{lines}\n")

    def move(self, new: str, ref: str = HEAD) -> None:
        core = self.inner
        core.refs.move(ref, core.refs.get(ref), new, "clia: decision")

    def record(self, trailers: Trailers, *, ref: str = HEAD, text: str = "because", agent: str = "scout") -> None:
        self.move(self.write(trailers, self.head(ref), text=text, agent=agent), ref)

    def decision(self, value: Any = "yes", **fields: str) -> Trailers:
        """The trailers of a decision on the request that waits, without a statement."""
        answered = [pair for pair in self.trailers(self.genuine()) if pair[0] not in (STATEMENT, PROOF, "Clia-Trace")]
        changes = {"Clia-Request": self.waiting().id, "Clia-Value": canonical_bytes(value).decode(), **fields}
        changes["Clia-Meta"] = fields.get("Clia-Meta") or self.meta()
        return [(key, changes.get(key, text)) for key, text in answered]

    def meta(self, **changes: Any) -> str:
        payload = dict(self.waiting().payload) | changes
        return canonical_bytes({"asked": payload, "kind": "human"}).decode()

    def waiting(self) -> clia.Request:
        return self.space.pending("scout")[0]

    def genuine(self) -> str:
        """The commit of the decision that Ada made."""
        commits = self.space.log("scout", own=True)
        return next(commit.cid for commit in commits if commit.kind == "decision")

    def stated(self) -> tuple[PersonalStatement, StatementProof]:
        """What Ada signed for her decision."""
        texts = dict(self.trailers(self.genuine()))
        return read_statement(texts[STATEMENT]), read_proof(texts[PROOF])

    def statement(self, **changes: Any) -> PersonalStatement:
        """The statement that would be about the request that waits."""
        statement = self.space.sessions.state("scout", "yes", "because", person="Ada <ada@example.org>", by="Ada <ada@example.org>")
        return statement._replace(**changes)

    def proof_by(self, who: str, statement: PersonalStatement, namespace: str = CLIA) -> StatementProof:
        """A proof that a person really gives: for another purpose, or without looking."""
        signer = read_key(str(self.home / who / ".ssh" / "id_ed25519"))
        return StatementProof("ssh", signer.public.fingerprint, {"signature": signer.sign(statement.data(), namespace)})

    def with_proof(self, statement: PersonalStatement, *proofs: StatementProof, **fields: str) -> None:
        self.record([*self.decision(**fields), *trailers_of(statement, list(proofs))])

    def append_entry(self, body: dict[str, Any], *more: tuple[str, str]) -> None:
        """Add an entry to the chain of keys, signed by the machine only."""
        core = self.inner
        entry = {"space": core.space_id, **body}
        commit = write_entry(core.objects, core.empty_tree(), [self.head(KEYS)], core.person_stamp(), entry, more)
        assert self.keys.chain().problem is None
        core.refs.move(KEYS, self.head(KEYS), commit, "clia: key")


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SoftAuthenticator]:
    """A space in which Ada and Bob decide with SSH keys and Cid with a passkey, and a question waits."""
    base, authenticator = tmp_path_factory.mktemp("stolen"), SoftAuthenticator(ORIGIN, RP_ID)
    with clia.init(base / "project", settings=settings(base / "ada")) as space:
        for name in ("scout", "rover"):
            space.spawn(name, clia.Briefing("look"))
        space.trust.enrol("Ada", key_of(base / "ada"))
        space.trust.enrol("Bob", key_of(base / "bob"), roles=["decide"])
        lost = space.trust.enrol("Dan", key_of(base / "dan"), roles=["decide"]).keys[-1]
        space.trust.revoke(lost.fingerprint, "lost")
        passkey = Passkey(b64url(authenticator.credential), authenticator.public, PasskeyPlace(RP_ID, (ORIGIN,)))
        details = {"credential": passkey.credential, "rp_id": RP_ID, "origins": [ORIGIN]}
        space.trust.enrol("Cid", passkey.public, "passkey", roles=["decide"], details=details)
        rules = [{"verbs": ["decide"], "kinds": ["deploy"], "threshold": 2}, {"verbs": ["land"], "strength": "ssh"}]
        space.trust.set_policy({"rules": rules})
        space.ask("scout", {"question": "go?", "choices": ["yes", "no"]})
        space.decide("scout", "yes", "because")
        space.ask("scout", {"question": "deploy it?", "choices": ["yes", "no"], "kind": "deploy"})
        with pytest.raises(AwaitsOthers):
            space.decide("scout", "yes", "because")
        assert space.trust.verify(strict=False).findings == ()
    return base, authenticator


@pytest.fixture
def intruder(stolen: tuple[Path, SoftAuthenticator], tmp_path: Path) -> Iterator[Intruder]:
    base, authenticator = stolen
    shutil.copytree(base / "project", tmp_path / "project", symlinks=True)
    with clia.open(tmp_path / "project", settings=settings(base / "ada", prove=None)) as space:
        yield Intruder(space, base, copy(authenticator))


def found(intruder: Intruder) -> set[str]:
    return {finding.code for finding in intruder.space.trust.verify().findings}


# Without a proof


def no_statement(intruder: Intruder) -> None:
    intruder.record(intruder.decision())


def statement_without_proof(intruder: Intruder) -> None:
    intruder.with_proof(intruder.statement())


def own_key(intruder: Intruder) -> None:
    statement = intruder.statement()
    fields = {"signature": THIEF.sign(statement.data(), CLIA)}
    intruder.with_proof(statement, StatementProof("ssh", THIEF.public.fingerprint, fields))


def own_key_in_the_name_of_a_person(intruder: Intruder) -> None:
    statement, (_, proof) = intruder.statement(), intruder.stated()
    intruder.with_proof(statement, proof._replace(fields={"signature": THIEF.sign(statement.data(), CLIA)}))


def the_machines_key(intruder: Intruder) -> None:
    statement, machine = intruder.statement(), intruder.keys.machine.certifier()
    assert machine is not None
    signature = machine.sign(statement.data(), CLIA)
    intruder.with_proof(statement, StatementProof("ssh", machine.public.fingerprint, {"signature": signature}))


def the_machines_key_as_a_machine(intruder: Intruder) -> None:
    statement, machine = intruder.statement(), intruder.keys.machine.certifier()
    assert machine is not None
    signature = machine.sign(statement.data(), CLIA)
    intruder.with_proof(statement, StatementProof("machine", machine.public.fingerprint, {"signature": signature}))


def a_proof_of_an_unknown_kind(intruder: Intruder) -> None:
    intruder.with_proof(intruder.statement(), intruder.stated()[1]._replace(method="login"))


# With a proof of something else


def replayed_to_another_request(intruder: Intruder) -> None:
    intruder.with_proof(*intruder.stated())


def replayed_on_a_later_commit(intruder: Intruder) -> None:
    trailers = intruder.trailers(intruder.genuine())
    intruder.record([pair for pair in trailers if pair[0] != "Clia-Trace"])


def replayed_to_another_agent(intruder: Intruder) -> None:
    statement, proof = intruder.stated()
    trailers = [(key, "rover" if key == "Clia-Agent" else text) for key, text in intruder.decision()]
    intruder.record([*trailers, *trailers_of(statement, [proof])], ref="refs/heads/agents/rover", agent="rover")


def proof_of_another_statement(intruder: Intruder) -> None:
    intruder.with_proof(intruder.statement(), intruder.stated()[1])


def signed_for_another_space(intruder: Intruder) -> None:
    statement = intruder.statement(space="another")
    intruder.with_proof(statement, intruder.proof_by("ada", statement))


def signed_for_another_verb(intruder: Intruder) -> None:
    statement = intruder.statement(verb="adopt")
    intruder.with_proof(statement, intruder.proof_by("ada", statement))


def flipped_answer(intruder: Intruder) -> None:
    statement = intruder.statement(value="no", kind="human")
    intruder.with_proof(statement, intruder.proof_by("ada", statement))


def answer_of_another_type(intruder: Intruder) -> None:
    statement = intruder.statement(value=True)
    trailers = intruder.decision(value=1)
    intruder.record([*trailers, *trailers_of(statement, [intruder.proof_by("ada", statement)])])


def answer_that_readers_parse_otherwise(intruder: Intruder) -> None:
    statement = intruder.statement(value=None)
    trailers = intruder.decision(**{"Clia-Value": "{no"})
    intruder.record([*trailers, *trailers_of(statement, [intruder.proof_by("ada", statement)])])


def other_question(intruder: Intruder) -> None:
    statement = intruder.statement()
    shown = intruder.meta(question="delete everything?")
    intruder.with_proof(statement, intruder.proof_by("ada", statement), **{"Clia-Meta": shown})


def other_kind_of_request(intruder: Intruder) -> None:
    statement = intruder.statement()
    shown = canonical_bytes({"asked": dict(intruder.waiting().payload), "kind": "human-talk"}).decode()
    intruder.with_proof(statement, intruder.proof_by("ada", statement), **{"Clia-Meta": shown})


def other_tree(intruder: Intruder) -> None:
    statement, core = intruder.statement(), intruder.inner
    tree = core.objects.update_tree(None, {"evil.txt": TreeEntry(FILE, core.objects.write_blob(b"evil"))})
    trailers = [*intruder.decision(), *trailers_of(statement, [intruder.proof_by("ada", statement)])]
    intruder.move(intruder.write(trailers, intruder.head(), tree=tree))


def other_parent(intruder: Intruder) -> None:
    """What waits for a second person is recorded after another commit."""
    item = intruder.keys.prover.all_waiting()[0]
    trailers = [*intruder.decision(), *trailers_of(item.statement, list(item.proofs))]
    intruder.move(intruder.write([("Clia-Agent", "scout"), ("Clia-Type", "finding")], intruder.head()))
    intruder.record(trailers)


def other_reason(intruder: Intruder) -> None:
    statement = intruder.statement(reason="only on Fridays")
    intruder.with_proof(statement, intruder.proof_by("ada", statement))


def other_person(intruder: Intruder) -> None:
    statement = intruder.statement()
    intruder.with_proof(statement, intruder.proof_by("ada", statement), **{"Clia-By": "Bob <bob@example.org>"})


def signed_by_another_person(intruder: Intruder) -> None:
    statement = intruder.statement()
    intruder.with_proof(statement, intruder.proof_by("bob", statement))


def a_commits_signature(intruder: Intruder) -> None:
    """A person signs a commit whose bytes are those of a statement."""
    statement = intruder.statement()
    intruder.with_proof(statement, intruder.proof_by("ada", statement, GIT))


def a_files_signature(intruder: Intruder) -> None:
    statement = intruder.statement()
    intruder.with_proof(statement, intruder.proof_by("ada", statement, "file"))


def a_revoked_key_with_an_earlier_time(intruder: Intruder) -> None:
    statement = intruder.statement(person="Dan", at=1)
    intruder.with_proof(statement, intruder.proof_by("dan", statement), **{"Clia-By": "Dan"})


# Passkeys


def phished(**wrong: Any) -> Callable[[Intruder], None]:
    def attack(intruder: Intruder) -> None:
        statement = intruder.statement(person="Cid <cid@example.org>")
        proofs = (passkey_proof(intruder.cid, statement, **wrong), intruder.proof_by("ada", statement))
        intruder.with_proof(statement, *proofs, **{"Clia-By": "Cid <cid@example.org>"})

    attack.__name__ = "phished " + ", ".join(wrong)
    return attack


def a_copied_passkey(intruder: Intruder) -> None:
    """Two decisions with one counter of the authenticator."""
    for _ in range(2):
        statement = intruder.statement(person="Cid <cid@example.org>")
        proofs = (passkey_proof(intruder.cid, statement, count=7), intruder.proof_by("ada", statement))
        intruder.with_proof(statement, *proofs, **{"Clia-By": "Cid <cid@example.org>"})


# Malformed


def an_oversized_proof(intruder: Intruder) -> None:
    statement = intruder.statement()
    proof = intruder.stated()[1]
    intruder.with_proof(statement, proof._replace(fields={"signature": "x" * 20_000}))


def two_statements(intruder: Intruder) -> None:
    statement, (other, proof) = intruder.statement(), intruder.stated()
    intruder.record([*intruder.decision(), *trailers_of(other, [proof]), (STATEMENT, statement.data().decode())])


def a_statement_that_is_not_canonical(intruder: Intruder) -> None:
    statement = intruder.statement()
    text = json.dumps(statement.as_json())
    intruder.record([*intruder.decision(), (STATEMENT, text), (PROOF, intruder.proof_by("ada", statement).text())])


# The policy


def one_of_two(intruder: Intruder) -> None:
    item = intruder.keys.prover.all_waiting()[0]
    intruder.with_proof(item.statement, *item.proofs)


def one_person_twice(intruder: Intruder) -> None:
    item = intruder.keys.prover.all_waiting()[0]
    intruder.with_proof(item.statement, *item.proofs, *item.proofs)


def another_request_kind_to_evade_a_rule(intruder: Intruder) -> None:
    statement = intruder.statement()
    payload = {key: value for key, value in intruder.waiting().payload.items() if key != "kind"}
    shown = canonical_bytes({"asked": payload, "kind": "human"}).decode()
    intruder.with_proof(statement, intruder.proof_by("ada", statement), **{"Clia-Meta": shown})


def a_question_that_is_not_recorded(intruder: Intruder) -> None:
    statement = intruder.statement(question="", kind="human")
    shown = canonical_bytes({"kind": "human"}).decode()
    intruder.with_proof(statement, intruder.proof_by("ada", statement), **{"Clia-Meta": shown})


def a_weaker_policy(intruder: Intruder) -> None:
    intruder.append_entry({"entry": "policy", "policy": {"rules": [{"verbs": ["decide"], "strength": "attested"}]}})
    intruder.record(intruder.decision())


def a_policy_weakened_and_restored(intruder: Intruder) -> None:
    policy = intruder.space.trust.policy()
    a_weaker_policy(intruder)
    core = intruder.inner
    entry = {"space": core.space_id, "entry": "policy", "policy": policy}
    commit = write_entry(core.objects, core.empty_tree(), [intruder.head(KEYS)], core.person_stamp(), entry)
    core.refs.move(KEYS, intruder.head(KEYS), commit, "clia: key")


def enrolled_by_the_machine(intruder: Intruder) -> None:
    key = EnrolledKey(THIEF.public.fingerprint, "ssh", THIEF.public.text, "Ada", ("owner",))
    intruder.append_entry({"entry": "enrol", "key": key})
    own_key(intruder)


def rotated_by_the_machine(intruder: Intruder) -> None:
    """The key of a person is replaced by another one, which signs that."""
    old = next(key for key in intruder.space.trust.keys().keys if key.owner == "Ada")
    new = EnrolledKey(THIEF.public.fingerprint, "ssh", THIEF.public.text, "Ada", ("owner",))
    proof = THIEF.sign(rotation_data(intruder.space.id, old.fingerprint))
    intruder.append_entry({"entry": "rotate", "key": old.fingerprint, "new": new, "proof": proof, "log": None})
    own_key(intruder)


def revoked_by_the_machine(intruder: Intruder) -> None:
    for key in intruder.space.trust.keys().keys:
        if key.kind != "machine" and key.current:
            intruder.append_entry({"entry": "revoke", "key": key.fingerprint, "reason": "", "log": None})
            break
    intruder.record(intruder.decision())


def a_finding_accepted_by_the_machine(intruder: Intruder) -> None:
    intruder.record(intruder.decision())
    body = {"entry": "accept", "finding": "weak-proof", "object": intruder.head(), "reason": "fine"}
    intruder.append_entry(body)


def a_new_chain_with_the_same_root(intruder: Intruder) -> None:
    """The chain of keys starts again with the machine's own key: there were never any people."""
    core, machine = intruder.inner, intruder.keys.machine
    root = root_entry(core.space_id, machine_key(machine.public(), ("attest", "owner", "record")))
    commit = write_entry(core.objects, core.empty_tree(), [], core.person_stamp(), root)
    core.refs.move(KEYS, intruder.head(KEYS), commit, "clia: key")
    intruder.record(intruder.decision())


def the_chain_goes_back(intruder: Intruder) -> None:
    """The chain of keys ends before people were enrolled; the move is logged."""
    core = intruder.inner
    first = [commit.cid for commit in core.graph.walk([intruder.head(KEYS)])][-1]
    core.refs.move(KEYS, intruder.head(KEYS), first, "clia: key")
    intruder.record(intruder.decision())


def an_entry_of_the_chain_that_is_a_decision(intruder: Intruder) -> None:
    """A machine replaces its own key alone; the same commit claims to be a decision."""
    core, machine = intruder.inner, intruder.keys.machine
    old, seed = machine.public(), b"\x0b" * 32
    new = signer_of(seed)
    enrolment = intruder.keys.chain().enrolment_of(old.fingerprint)
    assert enrolment is not None
    key = enrolment.key._replace(fingerprint=new.public.fingerprint, public=new.public.text)
    proof = new.sign(rotation_data(core.space_id, old.fingerprint))
    log = core.refs.get(next(ref for ref, _ in core.refs.under("refs/clia/log/")))
    entry = {"space": core.space_id, "entry": "rotate", "key": old.fingerprint, "new": key, "proof": proof, "log": log}
    commit = write_entry(core.objects, core.empty_tree(), [intruder.head(KEYS)], core.person_stamp(), entry, intruder.decision())
    core.refs.move(KEYS, intruder.head(KEYS), commit, "clia: key")
    core.refs.move(HEAD, intruder.head(), commit, "clia: decision")


def first_keys(intruder: Intruder) -> str:
    """The root of the chain of keys: then there were no people."""
    return [commit.cid for commit in intruder.inner.graph.walk([intruder.head(KEYS)])][-1]


def log_as_of(intruder: Intruder, keys: str, moves: list[LoggedMove], place: Path) -> None:
    """Append an entry to the log of the machine that names other keys."""
    git, machine = components(intruder.space).git, intruder.keys.machine
    writer = LogWriter(git, machine, SupersededLogs(git, str(place)))
    entry = LogEntry(keys, intruder.inner.now(), tuple(moves))
    log, git.refs.log = git.refs.log, None
    try:
        for move in moves:
            if git.refs.get(move.ref) != move.new:
                git.refs.move(move.ref, move.old, move.new, move.why)
        writer.append(machine.name(), [entry], intruder.inner.person_stamp())
    finally:
        git.refs.log = log


def a_log_entry_with_older_keys(intruder: Intruder) -> None:
    """The decision is logged as of a time when there were no people."""
    old, new = intruder.head(), intruder.write(intruder.decision(), intruder.head())
    move = LoggedMove(HEAD, old, new, "clia: decision")
    log_as_of(intruder, first_keys(intruder), [move], Path(intruder.space.home, "writer"))


def a_new_machine_key_whose_log_starts_with_older_keys(intruder: Intruder) -> None:
    intruder.space.trust.rotate_machine()
    git, name = components(intruder.space).git, intruder.keys.machine.name()
    tip = git.refs.get(f"refs/clia/log/{name}")
    assert tip is not None
    moves = [move for entry in read_machine_log(git.objects, name, tip).entries for move in entry.moves]
    subprocess.run(["git", "update-ref", "-d", f"refs/clia/log/{name}"], cwd=root_of(intruder), check=True)
    old, new = intruder.head(), intruder.write(intruder.decision(), intruder.head())
    moves.append(LoggedMove(HEAD, old, new, "clia: decision"))
    log_as_of(intruder, first_keys(intruder), moves, Path(intruder.space.home, "writer"))


def a_decision_below_a_commit_of_a_person(intruder: Intruder) -> None:
    """git wrote the decision; a commit that clia did not write covers it."""
    core = intruder.inner
    sign, core.objects.sign = core.objects.sign, lambda _: None
    try:
        forged = intruder.write(intruder.decision(), intruder.head())
        tree, by = core.objects.commit(forged).tree, core.person_stamp()
        cover = core.objects.write_commit(tree, [forged], by, by, "tidy up\n")
    finally:
        core.objects.sign = sign
    intruder.move(cover)


ATTACKS: list[tuple[Callable[[Intruder], None], set[str]]] = [
    (no_statement, {"weak-proof"}),
    (statement_without_proof, {"no-proof"}),
    (own_key, {"unknown-key"}),
    (own_key_in_the_name_of_a_person, {"wrong-key"}),
    (the_machines_key, {"wrong-key"}),
    (the_machines_key_as_a_machine, {"unknown-method"}),
    (a_proof_of_an_unknown_kind, {"unknown-method"}),
    (replayed_to_another_request, {"replayed-statement", "wrong-statement"}),
    (replayed_on_a_later_commit, {"replayed-statement", "wrong-statement"}),
    (replayed_to_another_agent, {"replayed-statement", "wrong-statement"}),
    (proof_of_another_statement, {"bad-signature"}),
    (signed_for_another_space, {"wrong-statement"}),
    (signed_for_another_verb, {"wrong-statement"}),
    (flipped_answer, {"wrong-statement"}),
    (answer_of_another_type, {"wrong-statement"}),
    (answer_that_readers_parse_otherwise, {"wrong-statement"}),
    (other_question, {"wrong-statement"}),
    (other_kind_of_request, {"wrong-statement"}),
    (other_tree, {"wrong-statement"}),
    (other_parent, {"wrong-statement"}),
    (other_reason, {"wrong-statement"}),
    (other_person, {"wrong-statement"}),
    (signed_by_another_person, {"wrong-person"}),
    (a_commits_signature, {"wrong-namespace"}),
    (a_files_signature, {"wrong-namespace"}),
    (a_revoked_key_with_an_earlier_time, {"revoked-key"}),
    (phished(origin="https://evil.example"), {"bad-assertion"}),
    (phished(rp_id="evil.example"), {"bad-assertion"}),
    (phished(flags=PRESENT), {"bad-assertion"}),
    (phished(flags=VERIFIED), {"bad-assertion"}),
    (phished(type="webauthn.create"), {"bad-assertion"}),
    (phished(crossOrigin=True), {"bad-assertion"}),
    (phished(challenge=b"a login"), {"bad-assertion"}),
    (phished(client={"topOrigin": "https://evil.example"}), {"bad-assertion"}),
    (a_copied_passkey, {"copied-key"}),
    (an_oversized_proof, {"malformed-statement"}),
    (two_statements, {"malformed-statement", "repeated-trailer"}),
    (a_statement_that_is_not_canonical, {"malformed-statement"}),
    (one_of_two, {"too-few-people"}),
    (one_person_twice, {"too-few-people"}),
    (another_request_kind_to_evade_a_rule, {"wrong-statement"}),
    (a_question_that_is_not_recorded, {"too-few-people"}),
    (a_weaker_policy, {"not-authorized", "weak-proof"}),
    (a_policy_weakened_and_restored, {"not-authorized", "weak-proof"}),
    (enrolled_by_the_machine, {"not-authorized", "unknown-key"}),
    (rotated_by_the_machine, {"not-authorized", "unknown-key"}),
    (revoked_by_the_machine, {"not-authorized", "weak-proof"}),
    (a_finding_accepted_by_the_machine, {"not-authorized", "weak-proof"}),
    (a_new_chain_with_the_same_root, {"rewound-ref"}),
    (the_chain_goes_back, {"backdated-log"}),
    (an_entry_of_the_chain_that_is_a_decision, {"weak-proof"}),
    (a_log_entry_with_older_keys, {"backdated-log"}),
    (a_new_machine_key_whose_log_starts_with_older_keys, {"weak-proof"}),
    (a_decision_below_a_commit_of_a_person, {"unsigned-commit"}),
]


@pytest.mark.parametrize(("attack", "expected"), ATTACKS, ids=[attack.__name__.replace(" ", "-") for attack, _ in ATTACKS])
def test_verify_names_each_decision_that_no_person_made(
    intruder: Intruder, tmp_path: Path, attack: Callable[[Intruder], None], expected: set[str]
) -> None:
    attack(intruder)
    assert found(intruder) >= expected
    clone = tmp_path / "clone"
    for words in (
        ["clone", "-q", "--bare", str(tmp_path / "project"), str(clone)],
        ["-C", str(clone), "fetch", "-q", "origin", "+refs/*:refs/*"],
    ):
        subprocess.run(["git", *words], check=True)
    assert {finding.code for finding in verify_trust(connect(str(clone), settings(intruder.home))).findings} >= expected


# Through clia itself


def no_prover(intruder: Intruder) -> None:
    intruder.space.decide("scout", "yes")


def a_prover_that_makes_up_a_proof(intruder: Intruder) -> None:
    fields = {"signature": THIEF.sign(intruder.statement().data(), CLIA)}
    proof = intruder.stated()[1]._replace(fields=fields)
    with clia.open(root_of(intruder), settings=settings(intruder.home / "ada", prove=lambda *_: [proof])) as space:
        space.decide("scout", "yes")


def a_signed_statement_about_another_answer(intruder: Intruder) -> None:
    statement, proof = intruder.stated()
    intruder.space.sessions.decide_signed(statement._replace(request=intruder.waiting().id), [proof])


def another_name(intruder: Intruder) -> None:
    intruder.space.decide("scout", "yes", by="Mallory <m@example.org>")


def root_of(intruder: Intruder) -> str:
    return os.path.dirname(os.path.dirname(intruder.space.home))


@pytest.mark.parametrize(
    "attack", [no_prover, a_prover_that_makes_up_a_proof, a_signed_statement_about_another_answer, another_name]
)
def test_clia_itself_records_no_decision_without_a_proof(intruder: Intruder, attack: Callable[[Intruder], None]) -> None:
    before = intruder.head()
    with pytest.raises(CliaError):
        attack(intruder)
    assert intruder.head() == before
    assert found(intruder) == set()
