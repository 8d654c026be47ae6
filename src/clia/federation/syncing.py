"""Syncing from a peer: read its statements, fetch what the gate allows, and track it.

Invariant: ``refs/clia/peers/<peer>`` moves before anything is fetched, so that no statement is accepted twice. Tracking refs move
only to commits that were claimed in an accepted statement, are allowed at that moment and passed every check. If the process dies,
unapplied claims still wait, and the next sync continues.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import NamedTuple

from clia.errors import CliaError, Conflict, Denied, InvalidInput, NotFound
from clia.federation import acceptance
from clia.federation.acceptance import Follow, Forget, ListenerContext, Withheld, accept, is_clash, outstanding, unsettled
from clia.federation.announcing import chain_tokens, commit_token
from clia.federation.claim_checks import ClaimChecker
from clia.federation.keys import continue_chain, key_tokens
from clia.federation.model import Move, Refused, Synced, Untaken
from clia.federation.peers import peer_lock
from clia.federation.statements import TOKEN_MAX, TYPES_PREFIX, claimed_seq, define_cid, digest
from clia.git.records import TransferLimits
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Peers, PinnedPeer
    from clia.federation.service import FederationResources, Progress
    from clia.federation.statements import RefClaim
    from clia.git.quarantine import GitQuarantine
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.type_registry import Registry

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
_REFUSALS_KEPT = 500
_TEXT_MAX = 500
_REFUSALS = "federation/refused/"


class _ReadStatements(NamedTuple):
    """The result of reading statements, before anything is fetched."""

    peer: PinnedPeer
    accepted: int
    new_keys: int
    claimed: dict[str, int]  # ref -> number of the statement that claimed it
    refused: list[Refused]
    chain: str | None


class PeerSync(NamedTuple):
    core: Core
    envelope: Envelope
    registry: Registry
    peers: Peers
    capabilities: Capabilities
    resources: FederationResources
    fetch_token: Callable[[PinnedPeer], str | None]

    def sync(self, name: str, progress: Progress | None = None) -> Synced:
        """Sync from one peer."""
        self.peers.get(name)  # validates the name before it becomes part of a lock
        with self.core.locks.hold(f"@sync-{name}"):
            peer = self.peers.get(name)
            if peer.url is None:
                hints = [f"clia peer change {name} --url URL"]
                raise InvalidInput(f"peer {name} has no URL", code="no-url", hints=hints, fields={"peer": name})
            with self.resources.transport.open(peer.url, self.fetch_token(peer), names.remote(name)) as quarantine:
                read = self._read_statements(peer, quarantine)
                moves, refused = self._apply(read, quarantine, progress)
            refused = read.refused + refused
            self._log(peer.space, refused)
            peer = self.peers.get(name)
        seq = read.peer.position.seq
        waiting = len(unsettled(peer.position.waiting, self.tracked(peer)))
        silent = not seq and not refused
        return Synced(name, read.accepted, seq, tuple(moves), tuple(refused), read.new_keys, waiting=waiting, silent=silent)

    def _refused(self, code: str, message: str, ref: str | None = None, seq: int | None = None) -> Refused:
        return Refused(code, message, ref, seq, self.core.now())

    def _read_statements(self, peer: PinnedPeer, quarantine: GitQuarantine) -> _ReadStatements:
        core, chain_ref = self.core, names.announce(self.core.space_id)
        tips = quarantine.tips([names.KEYS, chain_ref], _CHAIN_LIMITS)
        others = [ref for ref, tip in tips.items() if quarantine.objects.kind(tip) != "commit"]
        refused = [self._refused("not-a-commit", f"{ref} is not a commit", ref) for ref in others]
        keys = self._keys(peer, quarantine, None if names.KEYS in others else tips.get(names.KEYS), refused)
        chain = None if chain_ref in others else tips.get(chain_ref)
        if chain is not None and not self._is_pure(peer, quarantine, chain, refused):
            chain = None
        listener = ListenerContext(core.space_id, peer.space, keys, core.now(), self.resources.verifier)
        tracked = self.tracked(peer)
        position, accepted, claimed = peer.position, 0, dict[str, int]()
        for token in self._unread(peer, quarantine, chain) if chain else ():
            position, statement, error = accept(position, token, listener, tracked)
            if error is not None:
                ref = statement.claims[0].ref if statement and len(statement.claims) == 1 else None
                refused.append(self._refused(error.code, error.message, ref, statement and statement.seq))
            elif statement is not None:
                accepted += 1
                if statement.is_snapshot:  # it replaces everything before it
                    refused = [refusal for refusal in refused if refusal.code not in _HEALED_BY_SNAPSHOT]
                claimed |= {claim.ref: statement.seq for claim in statement.claims}
        # The first refusal of each code: after a gap, every statement is refused for the same reason.
        refused = list({refusal.code: refusal for refusal in reversed(refused)}.values())[::-1]
        position = position._replace(waiting=unsettled(position.waiting, tracked))
        new_keys = len(keys) - len(peer.keys)
        if (keys, position) != (peer.keys, peer.position):
            failed = {ref: cid for ref, cid in peer.failed.items() if ref in position.waiting and position.waiting[ref].new == cid}
            with self.envelope.among_others(), core.locks.hold(peer_lock(peer.name)):
                self._check_same(peer)
                why = f"peer {peer.name}: {accepted} accepted"
                peer = self.peers.update(peer.name, lambda now: now._replace(keys=keys, position=position, failed=failed), why)
        core.reached("accepted")
        # Keep the chain only if it was accepted to its end, also after a crash.
        newest = next(chain_tokens(quarantine.graph, chain), None) if chain else None
        fresh = newest is not None and digest(newest) == position.last
        own_tip = core.refs.get(names.remote(peer.name, "announce"))
        return _ReadStatements(peer, accepted, new_keys, claimed, refused, chain if fresh and chain != own_tip else None)

    def _check_same(self, peer: PinnedPeer) -> None:
        """Check that the peer was not removed or replaced during the sync."""
        now = self.peers.get(peer.name)
        if (now.space, now.keys, now.position) != (peer.space, peer.keys, peer.position):
            message, hints = f"peer {peer.name} was removed and added again during the sync", [f"clia sync {peer.name}"]
            raise Conflict(message, code="peer-changed", hints=hints, fields={"peer": peer.name})

    def _keys(self, peer: PinnedPeer, quarantine: GitQuarantine, tip: str | None, refused: list[Refused]) -> tuple[str, ...]:
        """The pinned keys of the peer, and those that continue them."""
        if tip is not None:
            try:
                return continue_chain(peer.keys, key_tokens(quarantine.graph, tip), peer.space, self.resources.verifier)
            except Denied as err:
                refused.append(self._refused(err.code, err.message, names.KEYS))
        return peer.keys

    def _is_pure(self, peer: PinnedPeer, quarantine: GitQuarantine, chain: str, refused: list[Refused]) -> bool:
        """Whether each new commit of a chain holds exactly one statement."""
        tip, empty = self.core.refs.get(names.remote(peer.name, "announce")), self.core.empty_tree()
        for commit in quarantine.graph.first_parents(chain):
            if commit.cid == tip:
                break
            if commit_token(commit) is None or commit.tree != empty or len(commit.parents) > 1:
                message = f"commit {commit.cid} of the chain does not hold exactly one statement"
                refused.append(self._refused("malformed-chain", message))
                return False
        return True

    def _unread(self, peer: PinnedPeer, quarantine: GitQuarantine, chain: str) -> list[str]:
        """The statements after the last accepted one, oldest first, and the one with the same number."""
        tokens: list[str] = []
        size = 0
        for commit in islice(quarantine.graph.first_parents(chain), STATEMENTS_MAX):
            token = commit_token(commit) or ""
            size += len(token)
            if digest(token) == peer.position.last or size > _CHAIN_MAX:
                break
            tokens.append(token)
            seq = claimed_seq(token)
            if seq is not None and seq <= peer.position.seq:
                break
        return tokens[::-1]

    def tracked(self, peer: PinnedPeer) -> dict[str, str]:
        """The tracked commit of each of the peer's refs, and the types known here with the same definition."""
        types = self.registry.types().known().items()
        defined = {TYPES_PREFIX + name: define_cid(name, parent) for name, parent in types if parent}
        return self.peers.tracked(peer.name) | defined

    def _apply(
        self, read: _ReadStatements, quarantine: GitQuarantine, progress: Progress | None
    ) -> tuple[list[Move], list[Refused]]:
        peer = read.peer
        moves, refused = self._learn(read)
        effects = outstanding(list(peer.position.waiting.values()), self.tracked(peer), self.capabilities.asking(peer))
        withheld = [effect for effect in effects if isinstance(effect, Withheld) and effect.claim.ref in read.claimed]
        refused += [self._withheld_refusal(effect, read) for effect in withheld]
        follow = [effect for effect in effects if isinstance(effect, Follow)]
        follow = [effect for effect in follow if peer.failed.get(effect.claim.ref) != effect.claim.new]
        if any(refusal.code == "malformed-chain" for refusal in read.refused):
            follow = []  # objects that came with the chain must not be admitted
        good, bad = self._fetch(peer, follow, quarantine)
        if good or read.chain is not None:
            quarantine.admit()
        self.core.reached("transferred")
        with self.envelope.among_others(), self.core.locks.hold(peer_lock(peer.name)):
            self._check_same(peer)
            forget = [effect for effect in effects if isinstance(effect, Forget)]
            failed = {refusal.ref: cid for refusal, cid in bad if refusal.ref and refusal.code not in _TEMPORARY_REFUSALS}
            left = {effect.claim.ref: effect.tracked for effect in forget if effect.claim.ref.startswith(names.HEADS)}
            if failed or left:  # before the refs are removed, to survive a crash in between
                why = f"peer {peer.name}: {len(failed)} refused, {len(left)} no longer shared"
                self.peers.update(peer.name, lambda now: now._replace(failed=now.failed | failed, left=now.left | left), why)
            moves += self._track(peer, [*good, *forget], progress)
            if read.chain is not None:  # evidence, and it makes the next fetch incremental
                ref = names.remote(peer.name, "announce")
                self.core.refs.move(ref, self.core.refs.get(ref), read.chain, "clia: heard")
        for refusal, _ in bad:
            if refusal.code != "claims-anothers-agent" or refusal.ref in read.claimed or self._is_new(peer, refusal):
                refused.append(refusal)
        return moves, refused

    def _withheld_refusal(self, withheld: Withheld, read: _ReadStatements) -> Refused:
        claim = withheld.claim
        message = f"{claim.ref}: no grant allows {claim.parent or claim.type} by {claim.trigger} from {read.peer.name}"
        if withheld.code == acceptance.CLASH:
            message = f"{claim.ref}: type {claim.type} has another meaning here"
        return self._refused(withheld.code, message, claim.ref, read.claimed.get(claim.ref))

    def _learn(self, read: _ReadStatements) -> tuple[list[Move], list[Refused]]:
        """Register types, parents before children, up to the limit."""
        moves: list[Move] = []
        refused: list[Refused] = []
        peer, allowed, tracked = read.peer, self.capabilities.asking(read.peer), self.tracked(read.peer)
        claims = (claim for claim in peer.position.waiting.values() if claim.ref.startswith(TYPES_PREFIX))
        for claim in _parents_first([claim for claim in claims if claim.new != tracked.get(claim.ref)]):
            # Ask for each: a newly registered type may allow the next one, and a revocation applies at once.
            if len(moves) == LEARNED_MAX or not allowed(claim.parent or "", claim.trigger):
                continue
            try:
                if self.registry.learn(claim.type, claim.parent or "", claim.new or "", peer.space):
                    moves.append(Move(claim.ref, None, claim.new, claim.type, claim.trigger))
            except CliaError as err:
                refusal = self._refused(err.code, err.message, claim.ref, read.claimed.get(claim.ref))
                refused += [refusal] if claim.ref in read.claimed or self._is_new(peer, refusal) else []
        return moves, refused

    def _is_new(self, peer: PinnedPeer, refused: Refused) -> bool:
        """Whether a refusal differs from the last one logged for its ref."""
        last = next((refusal.code for refusal in self.refusals(peer.space) if refusal.ref == refused.ref), None)
        return last != refused.code

    def _fetch(
        self, peer: PinnedPeer, follow: Sequence[Follow], quarantine: GitQuarantine
    ) -> tuple[list[Follow], list[tuple[Refused, str]]]:
        """The claims whose objects arrived and passed the checks, and refusals with ids for the others."""
        if not follow:
            return [], []
        tips = list(dict.fromkeys(claim.new for claim, _ in follow if claim.new is not None))
        fetched = quarantine.fetch(tips, self.resources.limits)
        checker = ClaimChecker(self.core, self.core._replace(objects=quarantine.objects, graph=quarantine.graph), peer.name)
        good: list[Follow] = []
        bad: list[tuple[Refused, str]] = []
        for effect in follow:
            claim, new = effect.claim, effect.claim.new or ""
            try:
                if new in fetched.refused:
                    code, reason = fetched.refused[new]
                    raise Denied(f"{claim.ref}: {reason}", code=code)
                checker.check(claim, effect.tracked or peer.left.get(claim.ref))
                good.append(effect)
            except (Denied, NotFound) as err:
                code = err.code if isinstance(err, Denied) else "unreadable-object"
                bad.append((self._refused(code, err.message, claim.ref), new))
        return good, bad

    def _track(self, peer: PinnedPeer, effects: Sequence[Follow | Forget], progress: Progress | None) -> list[Move]:
        allowed, moves = self.capabilities.asking(peer), []
        for number, effect in enumerate(effects, 1):
            claim = effect.claim
            # Ask again: a revocation during the transfer still applies.
            if isinstance(effect, Follow) and not allowed(claim.type, claim.trigger):
                continue
            ref, why = names.remote(peer.name, claim.place), f"clia: {claim.trigger} of {peer.name}"
            self.core.refs.move(ref, effect.tracked, claim.new, why)
            self.core.reached("tracked")
            moves.append(Move(claim.place, effect.tracked, claim.new, claim.type, claim.trigger))
            if progress is not None:
                progress(number, len(effects))
        return moves

    # Claims that were not applied. The log of refusals is for people; syncing only reads it to skip repeated entries.

    def _log(self, space: str, refused: Sequence[Refused]) -> None:
        # Text from a peer has any length.
        rows = [
            refusal._replace(message=refusal.message[:_TEXT_MAX], ref=refusal.ref and refusal.ref[:_TEXT_MAX])
            for refusal in refused
        ]
        if rows:
            with self.core.store.writing() as transaction:
                end = transaction.streams.append(_REFUSALS + space, [row._asdict() for row in rows[-_REFUSALS_KEPT:]])
                transaction.streams.forget(_REFUSALS + space, max(0, end - _REFUSALS_KEPT))

    def refusals(self, space: str) -> list[Refused]:
        """What was refused from a peer, newest first."""
        with self.core.store.reading() as view:
            return [Refused(**entry.body) for entry in reversed(view.streams.read(_REFUSALS + space))]

    def pending(self, peer: PinnedPeer) -> Iterator[Untaken]:
        """The announced claims of a peer that are not applied here.

        Each has the reason that a sync would give: the gate's answer first, then the problem of the object.
        """
        tracked = self.tracked(peer)
        last = {refusal.ref: refusal for refusal in reversed(self.refusals(peer.space))}
        # Thousands of claims have few types: ask once per type.
        denied = cache(lambda type_, trigger: self.capabilities.explain(peer.name, type_, trigger).missing)
        claims = peer.position.waiting.values()
        clashing = {claim.type for claim in claims if is_clash(claim, tracked)}
        for claim in unsettled(peer.position.waiting, tracked).values():
            missing = denied(claim.parent or claim.type, claim.trigger) if claim.new is not None else ()
            refused = last.get(claim.ref)
            if claim.type in clashing:
                why = (acceptance.CLASH, f"type {claim.type} has another meaning here", "")
            elif missing:
                why = (acceptance.DENIED, "; ".join(reason.message for reason in missing), missing[0].hint)
            elif refused is not None and refused.code != acceptance.DENIED:
                why = (refused.code, refused.message, "")
            else:
                state = "allowed; it will be fetched" if claim.new is not None else "no longer shared; it will be removed"
                why = ("not-synced", f"{state} by the next sync", f"clia sync {peer.name}")
            yield Untaken(claim.place, tracked.get(claim.ref), claim.new, claim.type, claim.trigger, *why)


def _parents_first(claims: Sequence[RefClaim]) -> list[RefClaim]:
    """Types sorted so that parents come before subtypes; cycles keep their order."""
    waiting = {claim.type: claim for claim in claims}
    ordered: dict[str, RefClaim] = {}
    for claim in claims:
        line = {claim.type: claim}
        at = claim
        while (above := waiting.get(at.parent or "")) is not None and above.type not in line and above.type not in ordered:
            line[above.type] = at = above
        for ancestor in reversed(line.values()):
            ordered.setdefault(ancestor.type, ancestor)
    return list(ordered.values())
