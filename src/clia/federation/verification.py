"""Verification of everything about other spaces: keys, peers, tracking refs, announcements and grants.

Invariant: nothing is changed. Every finding names its ref or file and what to do. What a shallow or partial clone cannot see is
listed separately, not reported as damage. Concurrent changes are checked again before they count.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import BadSignature, CliaError, NoSuchObject
from clia.federation.announcing import commit_token
from clia.federation.capabilities import is_capability
from clia.federation.claim_checks import ClaimChecker
from clia.federation.statements import TOKEN_TYPE, TRIGGERS, claim_of, digest, read_statement, token_part, tracked_ref
from clia.space.events import event_of
from clia.space.verification import Finding
from clia.store.interface import GateQuestion
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clia.federation.capabilities import Capabilities
    from clia.federation.keys import SpaceKeys
    from clia.federation.peers import Peers, PinnedPeer
    from clia.federation.service import FederationResources
    from clia.federation.statements import Statement
    from clia.git.records import Commit
    from clia.space.core import Core
    from clia.store.interface import GateFacts

_RESTORE_HINT = "restore an earlier commit from its history: git update-ref {} COMMIT"
_CUT_OFF_CODES = frozenset(("no-genesis", "missing-object"))


class FederationChecks(NamedTuple):
    core: Core
    keys: SpaceKeys
    peers: Peers
    capabilities: Capabilities
    resources: FederationResources

    def verify(self, progress: Callable[[str], None] | None = None, *, complete: bool = True) -> tuple[list[Finding], list[str]]:
        """The findings, and what this clone cannot see; ``complete``: whether it has the complete history."""
        run = _FederationCheckRun(self, complete=complete)
        checks = {"keys": run.keys, "peers": run.peers, "announcements": run.chains, "capabilities": run.capabilities}
        for name, check in checks.items():
            if progress is not None:
                progress(name)
            check()
        return run.findings, run.unseen


class _FederationCheckRun:
    """One run: its findings, and what it could not see."""

    def __init__(self, parts: FederationChecks, *, complete: bool) -> None:
        self._core = parts.core
        self._parts = parts
        self._whole = complete
        self._keys: tuple[str, ...] = ()
        self.findings: list[Finding] = []
        self.unseen: list[str] = []

    def _found(self, code: str, message: str, ref: str | None = None, cid: str | None = None) -> None:
        self.findings.append(Finding(code, message, ref, cid))

    def _broken(self, err: CliaError, ref: str, effect: str) -> None:
        if not self._whole and (isinstance(err, NoSuchObject) or err.code in _CUT_OFF_CODES):
            self.unseen.append(f"{ref}: {err.message}")
        else:
            self._found(err.code, f"{err.message}; {effect}", ref, err.fields.get("cid"))

    def keys(self) -> None:
        try:
            self._keys = self._parts.keys.chain()
        except CliaError as err:
            self._broken(err, names.KEYS, _RESTORE_HINT.format(names.KEYS))
        for path in self._parts.resources.ring.exposed():
            self._found("key-exposed", f"{path} can be read by others: run chmod 600; if it leaked: clia key rotate")

    # Peers, and what is tracked of them

    def peers(self) -> None:
        tracked = self._core.refs.under(names.REMOTES)  # before the peers, because one may be added meanwhile
        spaces: dict[str, str] = {}
        for ref, tip in self._core.refs.under(names.PEERS):
            peer = self._peer(ref, tip)
            if peer is not None and spaces.setdefault(peer.space, ref) != ref:
                message = f"same space as {spaces[peer.space]}; run: clia peer remove {peer.name}"
                self._found("peer-twice", message, ref, tip)
        for ref, tip in self._core.refs.under(names.PEERS_REMOVED):
            self._peer(ref, tip)
        for ref, cid in tracked:
            self._tracked(ref, cid)

    def _peer(self, ref: str, tip: str) -> PinnedPeer | None:
        name = ref.removeprefix(names.PEERS)
        if ref.startswith(names.PEERS) and not names.is_name(name):
            self._found("invalid-name", f"invalid peer name {name!r}; run: git update-ref -d {ref}", ref)
            return None
        try:
            return self._parts.peers.at(name, tip)
        except CliaError as err:
            self._broken(err, ref, _RESTORE_HINT.format(ref))
            return None

    def _tracked(self, ref: str, cid: str) -> None:
        peer, _, place = ref.removeprefix(names.REMOTES).partition("/")
        if self._core.refs.get(names.peer(peer)) is None:
            if self._core.refs.get(ref) == cid:  # a removal deletes tracking refs first
                self._found("unknown-peer", f"{peer!r} is not a peer; clia maintain removes the ref", ref, cid)
            return
        theirs = tracked_ref(place)
        if theirs is None:
            if place != "announce":
                self._found("unknown-place", f"not a tracking ref; run: git update-ref -d {ref}", ref, cid)
            return
        try:
            kind = self._core.read(cid).kind if theirs.startswith(names.HEADS) else None
            ClaimChecker(self._core, self._core, peer).check(claim_of(theirs, cid, kind), None)
        except CliaError as err:
            again = f"run git update-ref -d {ref}, ask {peer} to run clia announce --snapshot, then run clia sync {peer}"
            self._broken(err, ref, again)

    # Announcements

    def chains(self) -> None:
        for ref, tip in self._core.refs.under(names.ANNOUNCE):
            again = f"run git update-ref -d {ref}; the next clia announce starts with a snapshot"
            try:
                broken = self._break(ref, tip)
                if broken is not None:
                    self._found("chain-broken", f"commit {broken[0]} {broken[1]}; {again}", ref, broken[0])
            except CliaError as err:
                self._broken(err, ref, again)

    def _break(self, ref: str, tip: str) -> tuple[str, str] | None:
        """Check a chain from its newest statement to its first; return the commit that breaks it, and why."""
        later: Statement | None = None
        for commit in self._core.graph.first_parents(tip):
            token = commit_token(commit)
            statement = token and self._statement(token)
            between = (self._core.space_id, ref.removeprefix(names.ANNOUNCE))
            if not token or not statement or (statement.space, statement.aud) != between:
                return commit.cid, "has no statement of this space to that audience"
            if later is not None:
                step = later.seq - statement.seq
                follows = step > 0 if later.is_snapshot else step == 1  # a snapshot may skip some
                if not follows or later.prev != digest(token):
                    return commit.cid, f"is not the statement before {later.seq}"
            later = statement
        if later is not None and not (later.is_snapshot and later.prev is None) and self._whole:
            return tip, "does not lead back to an initial snapshot"
        return None

    def _statement(self, token: str) -> Statement | None:
        try:
            try:
                payload = self._parts.resources.verifier.read(token, TOKEN_TYPE, self._keys).payload
            except BadSignature as err:
                if err.code != "unknown-key":
                    raise
                payload = token_part(token, 1)  # signed by a lost identity
            return read_statement(payload)
        except (CliaError, ValueError):
            return None

    # Capabilities

    def capabilities(self) -> None:
        ref = names.CAPABILITIES
        tip = self._core.refs.get(ref)
        try:
            if tip:
                for commit in self._core.graph.walk([tip]):
                    self._event(commit)
                self._grants(tip)
            self._facts()
        except CliaError as err:
            self._broken(err, ref, _RESTORE_HINT.format(ref))

    def _event(self, commit: Commit) -> None:
        body = event_of(commit) or {}
        kind, grant = body.get("event"), body.get("capability")
        united = len(commit.parents) == 2 and not body
        read = kind == "revoke" if kind != "grant" else isinstance(grant, dict) and is_capability(grant)
        if not (united or read):
            message = f"{commit.cid} is not a readable grant or revocation, and is ignored"
            self._found("not-a-capability", message, names.CAPABILITIES, commit.cid)

    def _grants(self, tip: str) -> None:
        """Check that the tree of the newest commit matches its history."""
        core = self._core
        actual = {path: entry.cid for path, entry in core.objects.entries(core.objects.commit(tip).tree).items()}
        expected = {f"{grant.cid}.json": grant.cid for grant in self._parts.capabilities.standing(tip)}
        if actual != expected:
            odd = ", ".join(sorted(path for path, _ in actual.items() ^ expected.items()))
            message = f"the files of {tip} do not match the grants in its history: {odd}"
            self._found("capabilities-differ", f"{message}; {_RESTORE_HINT.format(names.CAPABILITIES)}", names.CAPABILITIES, tip)

    def _facts(self) -> None:
        """Check that the compiled gate answers as the refs say, for every peer, type and trigger."""
        core, capabilities = self._core, self._parts.capabilities
        wrong = []
        with core.store.reading() as view:
            if capabilities.is_compiled(view):
                facts = capabilities.facts()
                questions = _questions(facts, core.now())
                wrong = [question for question in questions if view.gate.allowing(question) != _allowing(facts, question)]
                wrong = wrong if capabilities.is_compiled(view) else []  # otherwise grants are changing right now
        for question in wrong:
            message = f"the gate gives a wrong answer for {question.type} by {question.trigger} from {question.peer}"
            self._found("gate-differs", f"{message}; run: clia rebuild", names.CAPABILITIES)


def _questions(facts: GateFacts, now: int) -> Iterator[GateQuestion]:
    types = sorted({*(grant.type for grant in facts.grants), *(name for pair in facts.parents for name in pair)})
    for peer in sorted({*facts.trusted, *(grant.peer for grant in facts.grants)}):
        for trigger in TRIGGERS:
            for type_ in types:
                yield GateQuestion(peer, type_, trigger, now)
                yield GateQuestion(peer, type_, trigger, now, execute=True)


def _allowing(facts: GateFacts, question: GateQuestion) -> list[str]:
    """The expected answer of the gate."""
    above: Mapping[str, str] = dict(facts.parents)
    wider = [question.type]
    while (parent := above.get(wider[-1])) is not None and parent not in wider:
        wider.append(parent)
    return sorted(
        grant.cid
        for grant in facts.grants
        if (grant.peer, grant.trigger) == (question.peer, question.trigger)
        and grant.peer in facts.trusted
        and grant.type in wider
        and (grant.expires is None or grant.expires > question.at)
        and (grant.execute or not question.execute)
    )
