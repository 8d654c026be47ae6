"""Syncing from a peer: read its statements, fetch what the gate allows, and track it.

Invariant: ``refs/clia/peers/<peer>`` moves before anything is fetched, so that no statement is accepted twice. Tracking refs move
only to commits that were claimed in an accepted statement, are allowed at that moment and passed every check. If the process dies,
unapplied claims still wait, and the next sync continues.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from clia.errors import CliaError, Conflict, Denied, InvalidInput, NotFound
from clia.federation.acceptance import (
    CLASH,
    AcceptResult,
    Follow,
    Forget,
    ListenerContext,
    Withheld,
    accept,
    outstanding,
    unsettled,
)
from clia.federation.announcing import chain_tokens, commit_token
from clia.federation.claim_checks import ClaimChecker
from clia.federation.keys import continue_chain, key_tokens
from clia.federation.model import Move, Refused, Synced
from clia.federation.peers import peer_lock
from clia.federation.statements import TOKEN_MAX, TYPES_PREFIX, claimed_seq, define_cid, digest, tracking_path
from clia.git.records import TransferLimits
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Peers, PinnedPeer
    from clia.federation.pending import RefusalLog
    from clia.federation.signing import Ed25519Verifier
    from clia.federation.statements import RefClaim
    from clia.federation.transport import GitTransport
    from clia.git.quarantine import GitQuarantine
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.registry import Registry

LEARNED_MAX = 200
"""Maximum number of types registered per sync; types are permanent."""
STATEMENTS_MAX = 20_000
"""Maximum number of statements read per sync, newest first; they include a snapshot."""
_CHAIN_MAX = 2 * TOKEN_MAX
"""Maximum size of the statements read per sync, in characters."""
_CHAIN_LIMITS = TransferLimits(256 * 1024 * 1024, 300.0)
_HEALED_BY_SNAPSHOT = frozenset(("gap", "expired", "revoked-key"))
_TEMPORARY_REFUSALS = frozenset(("missing-object", "too-slow", "too-much", "claims-anothers-agent"))
"""Refusals that may succeed next time; others stand until the peer announces something else."""


class SyncDependencies(NamedTuple):
    registry: Registry
    peers: Peers
    capabilities: Capabilities
    refusals: RefusalLog
    verifier: Ed25519Verifier
    transport: GitTransport
    fetch_token: Callable[[PinnedPeer], str | None]
    limits: TransferLimits


class _ReadStatements(NamedTuple):
    """The result of reading statements, before anything is fetched."""

    peer: PinnedPeer
    accepted: int
    new_keys: int
    claimed: dict[str, int]  # ref -> number of the statement that claimed it
    refused: list[Refused]
    chain: str | None


class PeerSync:
    def __init__(self, core: Core, envelope: Envelope, parts: SyncDependencies) -> None:
        self._core = core
        self._envelope = envelope
        self._parts = parts

    def sync(self, name: str, progress: Callable[[int, int], None] | None = None) -> Synced:
        """Sync from one peer."""
        parts = self._parts
        parts.peers.get(name)  # validates the name before it becomes part of a lock
        with self._core.locks.hold(f"@sync-{name}"):
            peer = parts.peers.get(name)
            if peer.url is None:
                hints = [f"clia peer change {name} --url URL"]
                raise InvalidInput(f"peer {name} has no URL", code="no-url", hints=hints, fields={"peer": name})
            with parts.transport.open(peer.url, parts.fetch_token(peer), names.remote(name)) as quarantine:
                heard = self._listen(peer, quarantine)
                moves, refused = self._carry_out(heard, quarantine, progress)
            found = heard.refused + refused
            parts.refusals.add(peer.space, found)
            now = parts.peers.get(name)
        position = heard.peer.position
        waiting = len(unsettled(now.position.waiting, self.tracked(now)))
        return Synced(
            peer=name,
            accepted=heard.accepted,
            seq=position.seq,
            moves=tuple(moves),
            refused=tuple(found),
            keys=heard.new_keys,
            waiting=waiting,
            silent=not position.seq and not found,
        )

    def _listen(self, peer: PinnedPeer, quarantine: GitQuarantine) -> _ReadStatements:
        chain_ref = names.announce(self._core.space_id)
        tips = quarantine.tips([names.KEYS, chain_ref], _CHAIN_LIMITS)
        refused: list[Refused] = []
        for ref in [each for each, tip in tips.items() if quarantine.objects.kind(tip) != "commit"]:
            refused.append(Refused("not-a-commit", f"{ref} is not a commit", ref, None, self._core.now()))
            del tips[ref]
        keys = self._keys(peer, quarantine, tips.get(names.KEYS), refused)
        new_keys = len(keys) - len(peer.keys)
        chain = tips.get(chain_ref)
        if chain is not None and not self._is_pure(peer, quarantine, chain, refused):
            chain = None
        said = self._unheard(peer, quarantine, chain) if chain else []
        listener = ListenerContext(self._core.space_id, peer.space, keys, self._core.now(), self._parts.verifier)
        tracked = self.tracked(peer)
        position, accepted, claimed = peer.position, 0, dict[str, int]()
        for token in said:
            heard = accept(position, token, listener, tracked)
            position = heard.position
            if heard.refusal is not None:
                refused.append(_statement_refusal(heard, self._core.now()))
            elif heard.statement is not None:
                accepted += 1
                if heard.statement.is_snapshot:  # it replaces everything before it
                    refused = [refusal for refusal in refused if refusal.code not in _HEALED_BY_SNAPSHOT]
                claimed |= {claim.ref: heard.statement.seq for claim in heard.statement.claims}
        refused = _first_of_each(refused)
        position = position._replace(waiting=unsettled(position.waiting, tracked))
        if (keys, position) != (peer.keys, peer.position):
            failed = {ref: cid for ref, cid in peer.failed.items() if ref in position.waiting and position.waiting[ref].new == cid}
            with self._envelope.among_others(), self._core.locks.hold(peer_lock(peer.name)):
                self._check_same(peer)
                peer = self._parts.peers.update(
                    peer.name,
                    lambda now: now._replace(keys=keys, position=position, failed=failed),
                    f"peer {peer.name}: {accepted} accepted",
                )
        self._core.reached("accepted")
        # Keep the chain only if it was accepted to its end, also after a crash.
        newest = next(chain_tokens(quarantine.graph, chain), None) if chain else None
        fresh = newest is not None and digest(newest) == position.last
        known = self._core.refs.get(names.remote(peer.name, "announce"))
        return _ReadStatements(peer, accepted, new_keys, claimed, refused, chain if fresh and chain != known else None)

    def _check_same(self, peer: PinnedPeer) -> None:
        """Check that the peer was not removed or replaced during the sync."""
        now = self._parts.peers.get(peer.name)
        if (now.space, now.keys, now.position) != (peer.space, peer.keys, peer.position):
            raise Conflict(
                f"peer {peer.name} was removed and added again during the sync",
                code="peer-changed",
                hints=[f"clia sync {peer.name}"],
                fields={"peer": peer.name},
            )

    def _keys(self, peer: PinnedPeer, quarantine: GitQuarantine, tip: str | None, refused: list[Refused]) -> tuple[str, ...]:
        """The pinned keys of the peer, and those that continue them."""
        if tip is None:
            return peer.keys
        try:
            return continue_chain(peer.keys, key_tokens(quarantine.graph, tip), peer.space, self._parts.verifier)
        except Denied as err:
            refused.append(Refused(err.code, err.message, names.KEYS, None, self._core.now()))
            return peer.keys

    def _is_pure(self, peer: PinnedPeer, quarantine: GitQuarantine, chain: str, refused: list[Refused]) -> bool:
        """Whether each new commit of a chain holds exactly one statement."""
        known, empty = self._core.refs.get(names.remote(peer.name, "announce")), self._core.empty_tree()
        for commit in quarantine.graph.first_parents(chain):
            if commit.cid == known:
                break
            if commit_token(commit) is None or commit.tree != empty or len(commit.parents) > 1:
                why = f"commit {commit.cid} of the chain does not hold exactly one statement"
                refused.append(Refused("malformed-chain", why, None, None, self._core.now()))
                return False
        return True

    def _unheard(self, peer: PinnedPeer, quarantine: GitQuarantine, chain: str) -> list[str]:
        """The statements after the last accepted one, oldest first, and the one with the same number."""
        found: list[str] = []
        size = 0
        for commit in islice(quarantine.graph.first_parents(chain), STATEMENTS_MAX):
            token = commit_token(commit) or ""
            size += len(token)
            if digest(token) == peer.position.last or size > _CHAIN_MAX:
                break
            found.append(token)
            seq = claimed_seq(token)
            if seq is not None and seq <= peer.position.seq:
                break
        return found[::-1]

    def tracked(self, peer: PinnedPeer) -> dict[str, str]:
        """The tracked commit of each of the peer's refs, and the types known here with the same definition."""
        known = self._parts.registry.types().known().items()
        types = {TYPES_PREFIX + name: define_cid(name, parent) for name, parent in known if parent}
        return self._parts.peers.tracked(peer.name) | types

    def _carry_out(
        self, heard: _ReadStatements, quarantine: GitQuarantine, progress: Callable[[int, int], None] | None
    ) -> tuple[list[Move], list[Refused]]:
        peer = heard.peer
        moves, refused = self._learn(heard)
        todo = outstanding(list(peer.position.waiting.values()), self.tracked(peer), self._parts.capabilities.asking(peer))
        follow = [each for each in todo if isinstance(each, Follow) and peer.failed.get(each.claim.ref) != each.claim.new]
        denied = [each for each in todo if isinstance(each, Withheld)]
        refused += [_withheld_refusal(each, heard, self._core.now()) for each in denied if each.claim.ref in heard.claimed]
        if any(refusal.code == "malformed-chain" for refusal in heard.refused):
            follow = []  # objects that came with the chain must not be admitted
        good, bad = self._fetched(peer, follow, quarantine)
        if good or heard.chain is not None:
            quarantine.admit()
        self._core.reached("transferred")
        with self._envelope.among_others(), self._core.locks.hold(peer_lock(peer.name)):
            self._check_same(peer)
            forget = [each for each in todo if isinstance(each, Forget)]
            lasting = {each.ref: cid for each, cid in bad if each.ref is not None and each.code not in _TEMPORARY_REFUSALS}
            left = {each.claim.ref: each.tracked for each in forget if each.claim.ref.startswith(names.HEADS)}
            if lasting or left:  # before the refs are removed, to survive a crash in between
                why = f"peer {peer.name}: {len(lasting)} refused, {len(left)} no longer shared"
                self._parts.peers.update(
                    peer.name,
                    lambda now: now._replace(failed={**now.failed, **lasting}, left={**now.left, **left}),
                    why,
                )
            moves += self._track(peer, good, forget, progress)
            self._keep_chain(peer, heard.chain)
        refusals = [refusal for refusal, _ in bad]
        squatted = [each for each in refusals if each.code == "claims-anothers-agent" and each.ref not in heard.claimed]
        return moves, refused + [each for each in refusals if each not in squatted or self._is_new(peer, each)]

    def _learn(self, heard: _ReadStatements) -> tuple[list[Move], list[Refused]]:
        """Register types, parents before children, up to the limit."""
        moves: list[Move] = []
        peer = heard.peer
        problems: list[Refused] = []
        allowed = self._parts.capabilities.asking(peer)
        known = self.tracked(peer)
        claims = (each for each in peer.position.waiting.values() if each.ref.startswith(TYPES_PREFIX))
        for claim in _parents_first([each for each in claims if each.new != known.get(each.ref)]):
            # Ask for each: a newly registered type may allow the next one, and a revocation applies at once.
            if len(moves) == LEARNED_MAX or not allowed(claim.parent or "", claim.trigger):
                continue
            try:
                if self._parts.registry.learn(claim.type, claim.parent or "", claim.new or "", peer.space):
                    moves.append(Move(claim.ref, None, claim.new, claim.type, claim.trigger))
            except CliaError as err:
                problems.append(Refused(err.code, err.message, claim.ref, heard.claimed.get(claim.ref), self._core.now()))
        return moves, [problem for problem in problems if problem.ref in heard.claimed or self._is_new(peer, problem)]

    def _is_new(self, peer: PinnedPeer, refused: Refused) -> bool:
        """Whether a refusal differs from the last one logged for its ref."""
        last = next((each for each in self._parts.refusals.of(peer.space) if each.ref == refused.ref), None)
        return last is None or last.code != refused.code

    def _fetched(
        self, peer: PinnedPeer, follow: Sequence[Follow], quarantine: GitQuarantine
    ) -> tuple[list[Follow], list[tuple[Refused, str]]]:
        """The claims whose objects arrived and passed the checks, and refusals with ids for the others."""
        if not follow:
            return [], []
        wanted = list(dict.fromkeys(each.claim.new for each in follow if each.claim.new is not None))
        fetched = quarantine.fetch(wanted, self._parts.limits)
        there = self._core._replace(objects=quarantine.objects, graph=quarantine.graph)
        arrivals = ClaimChecker(self._core, there, peer.name)
        good: list[Follow] = []
        bad: list[tuple[Refused, str]] = []
        for each in follow:
            new = each.claim.new or ""
            try:
                if new in fetched.refused:
                    code, reason = fetched.refused[new]
                    raise Denied(f"{each.claim.ref}: {reason}", code=code)
                arrivals.check(each.claim, each.tracked or peer.left.get(each.claim.ref))
                good.append(each)
            except (Denied, NotFound) as err:
                code = err.code if isinstance(err, Denied) else "unreadable-object"
                bad.append((Refused(code, err.message, each.claim.ref, None, self._core.now()), new))
        return good, bad

    def _track(
        self, peer: PinnedPeer, good: Sequence[Follow], forget: Sequence[Forget], progress: Callable[[int, int], None] | None
    ) -> list[Move]:
        core, allowed = self._core, self._parts.capabilities.asking(peer)
        moves = []
        every: list[Follow | Forget] = [*good, *forget]
        for number, each in enumerate(every, 1):
            claim = each.claim
            # Ask again: a revocation during the transfer still applies.
            if isinstance(each, Follow) and not allowed(claim.type, claim.trigger):
                continue
            core.refs.move(names.remote(peer.name, claim.place), each.tracked, claim.new, f"clia: {claim.trigger} of {peer.name}")
            core.reached("tracked")
            moves.append(Move(tracking_path(claim.ref), each.tracked, claim.new, claim.type, claim.trigger))
            if progress is not None:
                progress(number, len(every))
        return moves

    def _keep_chain(self, peer: PinnedPeer, chain: str | None) -> None:
        """Keep the peer's chain as evidence, and to make the next fetch incremental."""
        ref = names.remote(peer.name, "announce")
        if chain is not None:
            self._core.refs.move(ref, self._core.refs.get(ref), chain, "clia: heard")


def _statement_refusal(heard: AcceptResult, now: int) -> Refused:
    error, statement = heard.refusal, heard.statement
    assert error is not None  # noqa: S101  # checked by the caller
    ref = statement.claims[0].ref if statement is not None and len(statement.claims) == 1 else None
    return Refused(error.code, error.message, ref, statement.seq if statement else None, now)


def _first_of_each(refused: list[Refused]) -> list[Refused]:
    """The first refusal of each code: after a gap, every statement is refused for the same reason."""
    return list({refusal.code: refusal for refusal in reversed(refused)}.values())[::-1]


def _withheld_refusal(held: Withheld, heard: _ReadStatements, now: int) -> Refused:
    claim, peer = held.claim, heard.peer.name
    message = f"{claim.ref}: no grant allows {claim.parent or claim.type} by {claim.trigger} from {peer}"
    if held.code == CLASH:
        message = f"{claim.ref}: type {claim.type} has another meaning here"
    return Refused(held.code, message, claim.ref, heard.claimed.get(claim.ref), now)


def _parents_first(claims: Sequence[RefClaim]) -> list[RefClaim]:
    """Types sorted so that parents come before subtypes; cycles keep their order."""
    waiting = {each.type: each for each in claims}
    found: dict[str, RefClaim] = {}
    for claim in claims:
        line = {claim.type: claim}
        at = claim
        while (above := waiting.get(at.parent or "")) is not None and above.type not in line and above.type not in found:
            line[above.type] = at = above
        for each in reversed(line.values()):
            found.setdefault(each.type, each)
    return list(found.values())
