"""Checkpoints and witnesses of a space.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.trust.checkpoints`` that implements it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput, NotFound
from clia.trust.checkpoints.checks import CheckpointChecks, log_key, machine_enrolments, witness_keys
from clia.trust.checkpoints.signed_notes import read_note_key
from clia.trust.key_chain import WITNESS_KEY
from clia.trust.ssh_format import ed25519_key
from clia.trust.statements import ENDORSE, ENROL, EnrolledKey
from clia.values.commit_messages import check_text
from clia.verbs import ADMIN, VIEWER, Count, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Annotated

    from clia.facade.components import Components
    from clia.trust.checkpoints.checks import EndorsedHistory
    from clia.trust.checkpoints.making import MadeCheckpoint

_ASK = "ask a person: clia ask AGENT QUESTION"


class ListedWitness(NamedTuple):
    """A witness whose cosignatures count."""

    name: str  # its name
    key: str  # its key, as witnesses exchange it
    fingerprint: str  # as `clia key list` shows it


class ListedCheckpoint(NamedTuple):
    """The newest checkpoint of a machine, or one that was cosigned."""

    machine: str  # the machine
    size: Count  # how many checkpoints it has made up to this one
    at: int  # when it was made, by the clock of the machine
    checkpoint: str  # origin, size and root: what clia verify --since takes
    witnesses: Sequence[str]  # the trusted witnesses that cosigned it
    log_key: str  # the key with which the machine signs: what clia witness serve --log takes


class WitnessList(NamedTuple):
    """The witnesses of a space, and the checkpoints of its machines."""

    witnesses: Sequence[ListedWitness]  # those whose cosignatures count
    checkpoints: Sequence[ListedCheckpoint]  # the newest of each machine
    cosigned: str | None  # the newest checkpoint that a witness cosigned
    age: int | None  # seconds since then
    later: Count  # log entries after it


class WitnessService:
    """Checkpoints, and the witnesses that cosign them."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("POST", "/trust/checkpoints", ADMIN, "trust", "make_checkpoint")
    def checkpoint(self) -> MadeCheckpoint:
        """Sign a checkpoint of the record as this clone has it, unless the last one shows the same."""
        return self._components.checkpoint_writer.make()

    @verb("GET", "/trust/checkpoints", VIEWER, "trust", "list_checkpoints")
    def list(self) -> WitnessList:
        """The witnesses whose cosignatures count, and the newest checkpoint of each machine."""
        from clia.trust.verification import TrustChecks  # reads the chain and the logs

        git = self._components.git
        checks = TrustChecks(git)
        chain = checks.key_chain()
        checkpoints = CheckpointChecks(checks, chain, git)
        checkpoints.check()
        state, cosigned, machines = (
            checkpoints.state(self._components.core.now()),
            checkpoints.cosigned(),
            machine_enrolments(chain),
        )
        listed = [
            ListedCheckpoint(
                *(log.newest.machine, log.head.size, log.newest.at, log.head.name, cosigned.get(log.head.name, ())),
                log_key(log.head.origin, machines[log.newest.machine]).text,
            )
            for log in checkpoints.logs()
        ]
        witnesses = [ListedWitness(key.name, key.text, ed25519_key(key.public).fingerprint) for key in witness_keys(chain)]
        return WitnessList(witnesses, listed, state.cosigned, state.age, state.later)

    @verb("POST", "/trust/witnesses", ADMIN, "trust", "trust_witness")
    @for_people(_ASK)
    def trust(
        self, key: Annotated[str, "the key of the witness, as clia witness key prints it"], *, by: str | None = None
    ) -> WitnessList:
        """Let the cosignatures of a witness count. It becomes part of the chain of keys."""
        note_key = read_note_key(key)
        public = ed25519_key(note_key.public)
        enrolled = EnrolledKey(public.fingerprint, WITNESS_KEY, public.text, note_key.name, ("witness",))
        self._components.trust_keys.append({"entry": ENROL, "key": enrolled}, self._person(by))
        return self.list()

    @verb("POST", "/trust/endorsements", ADMIN, "trust", "endorse_history")
    @for_people(_ASK)
    def endorse(
        self, reason: Annotated[str, "why the history is believed to be complete and true"], *, by: str | None = None
    ) -> EndorsedHistory:
        """Vouch for the history from before the space was signed: as a person, up to a checkpoint of now."""
        from clia.trust.checkpoints.checks import EndorsedHistory

        text = check_text(reason, "reason").strip()
        if not text:
            raise InvalidInput("say why the history can be relied on", code="reason-missing", fields={"field": "reason"})
        trust = self._components.trust_keys
        if not trust.chain().root_tree or not self._has_history():
            message = "every commit of this space is signed, so there is no older history to endorse"
            raise NotFound(message, code="no-older-history", hints=["clia verify shows what is signed"])
        checkpoint = self.checkpoint()
        chain = trust.append({"entry": ENDORSE, "until": checkpoint.checkpoint, "reason": text}, self._person(by), text)
        item = chain.endorsements[-1]
        return EndorsedHistory(item.by, item.strength, item.until, item.reason)

    def _has_history(self) -> bool:
        from clia.trust.enrolling import HISTORY

        return self._components.git.objects.entry(self._components.trust_keys.chain().root_tree, HISTORY) is not None

    def request(self, url: str, *, seconds: float = 30.0) -> Sequence[str]:
        """Ask a witness over HTTP to cosign the newest checkpoint of this machine; returns the trusted witnesses that did."""
        from clia.trust.checkpoints.witness_client import request_cosignatures

        trust, writer = self._components.trust_keys, self._components.checkpoint_writer
        keys = witness_keys(trust.chain())
        if not keys:
            hints = ["trust it with the key that it prints: clia witness trust KEY"]
            raise NotFound("no witness is trusted here, so no cosignature would count", code="no-witness", hints=hints)
        log = writer.made()
        signatures = request_cosignatures(url, log, keys, seconds)
        writer.add_cosignatures(log.head, signatures)
        return sorted({signature.name for signature in signatures})

    def _person(self, by: str | None) -> str:
        if by is not None:
            return check_text(by, "by")
        person = self._components.core.person
        return f"{person.name} <{person.email}>"
