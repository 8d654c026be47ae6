"""Announcing: telling peers which of our refs moved, and serving them what was announced.

Invariant: there is one chain of statements per audience, one statement per commit; it only grows, with one writer at a time. What
was announced follows from the chain since its last snapshot. A chain starts with a snapshot, and a snapshot's number is the time in
milliseconds, so that the chain that replaces a lost one is newer.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import NamedTuple

from clia.errors import InvalidInput, UntrustedPeer
from clia.federation.model import Announced, Share
from clia.federation.peers import shares
from clia.federation.statements import (
    SNAPSHOT,
    TOKEN_TYPE,
    TYPES_PREFIX,
    RefClaim,
    Statement,
    claim_of,
    define_cid,
    digest,
    read_statement,
    refusal,
    token_part,
)
from clia.space.model import json_object
from clia.space.remotes import KEYS_LOCK
from clia.values import refs as names
from clia.values.canonical import canonical_bytes, text_digest
from clia.values.commit_messages import compose, parse
from clia.values.types import BUILT_IN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from clia.federation.keys import SpaceKeys
    from clia.federation.peers import Peers, PinnedPeer
    from clia.federation.service import FederationResources
    from clia.git.graph import GitGraph
    from clia.git.records import Commit, UploadCommand
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.type_registry import Registry

ANNOUNCEMENT = "Clia-Announcement"
NOTHING_SHARED = "nothing-shared"
STATEMENT_SECONDS = 30 * 86400
"""Lifetime of a statement."""
SNAPSHOT_EVERY = 256
"""Statements between two snapshots, which limits what a late peer has to read."""
FETCH_TOKEN, NOTIFY_TOKEN = "clia-pass", "clia-knock"
TOKEN_SECONDS = 900
CLOCK_SKEW = 300
_ANNOUNCED_MAX = 1024
"""Number of recent statements whose commits a peer may request."""
_ANNOUNCED_KINDS = (names.HEADS, names.ARCHIVE, names.RECORDS, names.TRACES, names.SESSIONS, names.BEHAVIOURS, names.TYPES)


class AnnouncedState(NamedTuple):
    """The tip of our chain to an audience, and what it has announced."""

    tip: str | None
    seq: int
    last: str | None
    claims: dict[str, RefClaim]
    since: int  # statements since the last snapshot
    at: int  # time of the snapshot
    key: str | None = None  # signer of the last statement


class Announcer(NamedTuple):
    core: Core
    envelope: Envelope
    registry: Registry
    keys: SpaceKeys
    resources: FederationResources

    def announce(self, peer: PinnedPeer, *, snapshot: bool = False) -> Announced:
        """Announce what changed to a peer; with ``snapshot``, announce everything."""
        locks = self.core.locks
        self.keys.show()  # creates the first key before the lock below is taken shared
        with self.envelope.among_others(), locks.hold(KEYS_LOCK, shared=True), locks.hold(f"@announce-{peer.space}"):
            key = self.keys.current()
            state = self.announced(peer.space)
            claims = self._claims(peer, state.claims)
            moves = _moves(state.claims, claims)
            due = state.since + len(moves) >= SNAPSHOT_EVERY or state.at + STATEMENT_SECONDS // 2 <= self.core.now()
            # Peers refuse unread statements of an older key; only a snapshot with the new key repairs that.
            is_snapshot = snapshot or state.tip is None or state.key != key or due
            if not moves and not is_snapshot:
                self._show(peer, state)  # the announcer may have died before this, and notes may be purged
                return Announced(peer.name, state.seq, 0, snapshot=False, moves=())
            if state.tip is None and not claims:
                message, hint = f"nothing is shared with {peer.name}", f"clia peer share {peer.name} --agent '*'"
                hints, fields = [f"choose what to share: {hint}"], {"peer": peer.name}
                raise InvalidInput(message, code=NOTHING_SHARED, hints=hints, fields=fields)
            single = moves if state.tip and len(moves) < SNAPSHOT_EVERY else []  # more than this goes into a snapshot
            state = self._append(peer, key, state, single, tuple(claims.values()) if is_snapshot else None)
            self._show(peer, state)
        announced = [
            {"ref": claim.ref, "old": old, "new": claim.new, "type": claim.type, "trigger": claim.trigger} for old, claim in moves
        ]
        return Announced(peer.name, state.seq, len(single) + is_snapshot, is_snapshot, tuple(announced))

    def fingerprint(self) -> str:
        """A digest of every announced ref and of the peers, which changes whenever there may be news."""
        return text_digest(repr([self.core.refs.under(prefix) for prefix in (*_ANNOUNCED_KINDS, names.PEERS)]))

    def _append(
        self,
        peer: PinnedPeer,
        key: str,
        state: AnnouncedState,
        moves: Sequence[tuple[str | None, RefClaim]],
        snapshot: tuple[RefClaim, ...] | None,
    ) -> AnnouncedState:
        core = self.core
        at, by = core.now(), core.person_stamp()
        tip, seq, last, announced = state.tip, state.seq, state.last, dict(state.claims)
        statements: list[tuple[str, tuple[RefClaim, ...], str | None]] = [(move.trigger, (move,), old) for old, move in moves]
        statements += [(SNAPSHOT, snapshot, None)] if snapshot is not None else []
        for trigger, claims, old in statements:
            # A snapshot must be newer than statements of a second writer with our key, or of a lost chain.
            seq = max(seq + 1, int(core.clock().timestamp() * 1000)) if trigger == SNAPSHOT else seq + 1
            statement = Statement(core.space_id, peer.space, seq, last, at, at + STATEMENT_SECONDS, trigger, claims, old)
            token = self.resources.ring.sign(key, TOKEN_TYPE, statement.payload())
            subject = trigger if statement.is_snapshot else f"{trigger} {claims[0].ref}"
            message = compose(subject, [(ANNOUNCEMENT, token)], "announcement")
            tip, last = core.objects.write_commit(core.empty_tree(), [tip] if tip else [], by, by, message), digest(token)
            announced = ({} if statement.is_snapshot else announced) | {claim.ref: claim for claim in claims}
        core.reached("objects-written")
        core.refs.move(names.announce(peer.space), state.tip, tip, "clia: announce")
        core.reached("committed")
        return AnnouncedState(tip, seq, last, _shared(announced), 0, at, key)

    def _show(self, peer: PinnedPeer, state: AnnouncedState) -> None:
        """Publish what the peer may fetch from our forge: its chain, our keys, and the announced commits."""
        refs = {names.announce(peer.space): state.tip, names.KEYS: self.core.refs.get(names.KEYS)}
        top = names.announced(peer.space)
        refs |= {top + claim.place: claim.new for claim in state.claims.values() if not claim.ref.startswith(TYPES_PREFIX)}
        self.resources.transport.show(peer.space, {ref: cid for ref, cid in refs.items() if cid is not None})

    def show_again(self, peer: PinnedPeer) -> None:
        """Rebuild what the peer may fetch from its chain; it may be missing or outdated."""
        with self.core.locks.hold(f"@announce-{peer.space}"):
            self._show(peer, self.announced(peer.space))

    def announced(self, space: str) -> AnnouncedState:
        """The state of our chain to an audience."""
        tip = self.core.refs.get(names.announce(space))
        claims: dict[str, RefClaim] = {}
        statements: list[Statement] = []  # newest first
        seq, last, key = 0, None, None
        for token in chain_tokens(self.core.graph, tip) if tip else ():
            statement = read_statement(token_part(token, 1))
            if not statements:
                seq, last, key = statement.seq, digest(token), json.loads(token_part(token, 0)).get("kid")
            statements.append(statement)
            if statement.is_snapshot:
                break
        for statement in reversed(statements):
            claims |= {claim.ref: claim for claim in statement.claims}
        return AnnouncedState(tip, seq, last, _shared(claims), len(statements), statements[-1].at if statements else 0, key)

    def announced_ids(self, space: str) -> set[str]:
        """The ids recently announced to an audience: those in the chain, its commits, and those of our keys."""
        graph, refs = self.core.graph, self.core.refs
        tip, keys = refs.get(names.announce(space)), refs.get(names.KEYS)
        ids = {commit.cid for commit in graph.first_parents(keys)} if keys else set()
        for commit in islice(graph.first_parents(tip), _ANNOUNCED_MAX) if tip else ():
            ids.add(commit.cid)
            token = commit_token(commit)
            if token is not None:
                ids.update(claim.new for claim in read_statement(token_part(token, 1)).claims if claim.new is not None)
        return ids

    def _claims(self, peer: PinnedPeer, announced: Mapping[str, RefClaim]) -> dict[str, RefClaim]:
        """The claims for everything that is shared with a peer."""
        claims = list(self._agent_claims(peer.share, announced))
        for ref, cid in self.core.refs.under(names.BEHAVIOURS):
            name = ref.removeprefix(names.BEHAVIOURS)
            claims += [claim_of(ref, cid)] if names.is_name(name) and shares(peer.share.behaviours, name) else []
        for name, parent in self.registry.types().known().items() if claims else ():
            if name not in BUILT_IN and parent is not None:
                claims.append(RefClaim(TYPES_PREFIX + name, define_cid(name, parent), name, "type", parent))
        return {claim.ref: claim for claim in claims}

    def _agent_claims(self, share: Share, announced: Mapping[str, RefClaim]) -> Iterator[RefClaim]:
        core = self.core
        heads: dict[str, str] = {}
        for prefix in (names.ARCHIVE, names.HEADS):
            heads |= {ref.removeprefix(prefix): cid for ref, cid in core.refs.under(prefix)}
        for name, cid in sorted(heads.items()):
            if not names.is_name(name) or not shares(share.agents, name):
                continue
            commit = core.read(cid)
            if commit.agent == name and commit.kind is not None:
                yield claim_of(names.head(name), cid, commit.kind)
            elif names.head(name) in announced:
                # Plain git moved the branch to something else than an agent's commit: keep what was announced.
                yield announced[names.head(name)]
            else:
                continue
            refs = [(names.record(name), True), (names.traces(name), share.traces), (names.sessions(name), share.sessions)]
            for ref, shared in refs:
                at = core.refs.get(ref) if shared else None
                if at is not None:
                    yield claim_of(ref, at)


def _shared(claims: Mapping[str, RefClaim]) -> dict[str, RefClaim]:
    return {ref: claim for ref, claim in claims.items() if claim.new is not None}


def _moves(before: Mapping[str, RefClaim], now: Mapping[str, RefClaim]) -> list[tuple[str | None, RefClaim]]:
    """The differences, types first, so that a peer knows the type of each commit."""
    moves: list[tuple[str | None, RefClaim]] = []
    for ref in sorted(before.keys() | now.keys(), key=lambda ref: (not ref.startswith(TYPES_PREFIX), ref)):
        old, new = before.get(ref), now.get(ref)
        if new is not None and (old is None or old.new != new.new):
            moves.append((old and old.new, new))
        elif new is None and old is not None and not ref.startswith(TYPES_PREFIX):
            moves.append((old.new, RefClaim(ref, None, old.type, old.trigger)))
    return moves


def chain_tokens(graph: GitGraph, tip: str) -> Iterator[str]:
    """The tokens of a chain, newest first."""
    return (token for commit in graph.first_parents(tip) if (token := commit_token(commit)) is not None)


def commit_token(commit: Commit) -> str | None:
    """The token in a commit of a chain."""
    values = [value for key, value in parse(commit.message)[1] if key == ANNOUNCEMENT]
    return values[0] if len(values) == 1 else None


class PeerTokens(NamedTuple):
    """Makes and checks the tokens that peers present at a forge, and serves the view of an authenticated peer.

    Invariant: a token is signed with the peer's newest key, addressed to this space and valid for minutes; it moves no ref. A fetch
    token gives access to the view of the peer that signed it; a notification makes us sync from the peer's pinned URL.
    """

    core: Core
    peers: Peers
    keys: SpaceKeys
    announcer: Announcer
    resources: FederationResources

    def shared_fingerprint(self) -> str | None:
        """A fingerprint of everything shared with peers; None if nothing is shared or this clone cannot sign."""
        shared = any(peer.share != Share() for peer in self.peers.all())
        return self.announcer.fingerprint() if shared and self._signer() else None

    def _signer(self) -> str | None:
        """The newest key of the space, if this clone has it."""
        chain = self.keys.chain()
        return chain[-1] if chain and self.resources.ring.has(chain[-1]) else None

    def token(self, peer: PinnedPeer, typ: str) -> str | None:
        """A token for a peer's forge; None if this clone cannot sign."""
        key = self._signer()
        if key is None:
            return None
        body = {"space": self.core.space_id, "aud": peer.space, "exp": self.core.now() + TOKEN_SECONDS}
        return self.resources.ring.sign(key, typ, canonical_bytes(body))

    def authenticate(self, token: str, typ: str) -> PinnedPeer:
        """The peer that presents a token; ``Denied`` if it is unknown, for another space, or expired."""
        peers = self.peers.all()
        signed = self.resources.verifier.read(token, typ, {peer.keys[-1] for peer in peers})
        body = json_object(signed.payload) or {}
        peer = next((peer for peer in peers if (peer.keys[-1], peer.space) == (signed.key, body.get("space"))), None)
        if peer is None or body.get("aud") != self.core.space_id:
            raise refusal("wrong-audience", "the token is addressed to another space")
        end, now = body.get("exp"), self.core.now()
        if not isinstance(end, int) or isinstance(end, bool) or not now - CLOCK_SKEW < end <= now + TOKEN_SECONDS + CLOCK_SKEW:
            raise refusal("expired", "the token has expired, or the clocks differ")
        if not peer.trusted:
            raise UntrustedPeer(f"peer {peer.name} is not trusted", fields={"peer": peer.name})
        return peer

    def advertise(self, peer: PinnedPeer) -> UploadCommand:
        """The git process that advertises the refs of a peer, after refreshing its view."""
        self.announcer.show_again(peer)
        return self.resources.transport.upload(peer.space, advertise=True)

    def announced_ids(self, peer: PinnedPeer) -> Container[str]:
        """The ids that a peer may request and mention: those announced to it.

        The view borrows all of our objects. Git checks that refs reach a requested commit, but would serve any other object and
        confirm which ids exist here.
        """
        return self.announcer.announced_ids(peer.space)

    def upload(self, peer: PinnedPeer) -> UploadCommand:
        """The git process that answers a peer's fetch."""
        return self.resources.transport.upload(peer.space, advertise=False)
