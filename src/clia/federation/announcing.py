"""Announcing: telling peers which of our refs moved.

Invariant: there is one chain of statements per audience, one statement per commit; it only grows, with one writer at a time. What
was announced follows from the chain since its last snapshot. A chain starts with a snapshot, and a snapshot's number is the time in
milliseconds, so that the chain that replaces a lost one is newer.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.federation.model import Announced
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
    token_part,
)
from clia.space.adoption import KEYS_LOCK
from clia.values import refs as names
from clia.values.canonical import text_digest
from clia.values.commit_messages import compose, parse
from clia.values.types import BUILT_IN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.federation.keys import SpaceKeys
    from clia.federation.peers import PinnedPeer
    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.federation.transport import GitTransport
    from clia.git.graph import GitGraph
    from clia.git.records import Commit
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.registry import Registry

ANNOUNCEMENT = "Clia-Announcement"
NOTHING_SHARED = "nothing-shared"
STATEMENT_SECONDS = 30 * 86400
"""Lifetime of a statement."""
_ANNOUNCED_MAX = 1024
"""Number of recent statements whose commits a peer may request."""
SNAPSHOT_EVERY = 256
"""Statements between two snapshots, which limits what a late peer has to read."""


class AnnouncedState(NamedTuple):
    """The tip of our chain to an audience, and what it has announced."""

    tip: str | None
    seq: int
    last: str | None
    claims: dict[str, RefClaim]
    since: int  # statements since the last snapshot
    at: int  # time of the snapshot
    key: str | None = None  # signer of the last statement


class SigningKeys(NamedTuple):
    keys: SpaceKeys
    ring: KeyFiles
    verifier: Ed25519Verifier


class Announcer:
    def __init__(self, core: Core, envelope: Envelope, registry: Registry, signing: SigningKeys, transport: GitTransport) -> None:
        self._core = core
        self._envelope = envelope
        self._registry = registry
        self._keys, self._ring, _ = signing
        self._transport = transport

    def announce(self, peer: PinnedPeer, *, snapshot: bool = False) -> Announced:
        """Announce what changed to a peer; with ``snapshot``, announce everything."""
        core = self._core
        self._keys.show()  # creates the first key before the lock below is taken shared
        with self._envelope.among_others(), core.locks.hold(KEYS_LOCK, shared=True), core.locks.hold(f"@announce-{peer.space}"):
            key = self._keys.current()
            state = self.said(peer.space)
            now = self._claims(peer, state.claims)
            moves = list(self._moves(state.claims, now))
            # Peers refuse unread statements of an older key; only a snapshot with the new key repairs that.
            whole = snapshot or state.tip is None or state.key != key or self._is_due(state, len(moves))
            if not moves and not whole:
                self.show(peer, state.claims, state.tip)  # the announcer may have died before this, and notes may be purged
                return Announced(peer.name, state.seq, 0, snapshot=False, moves=())
            if state.tip is None and not now:
                raise InvalidInput(
                    f"nothing is shared with {peer.name}",
                    code=NOTHING_SHARED,
                    hints=[f"choose what to share: clia peer share {peer.name} --agent '*'"],
                    fields={"peer": peer.name},
                )
            single = moves if state.tip and len(moves) < SNAPSHOT_EVERY else []  # more than this goes into a snapshot
            new = self._append(peer, key, state, single, list(now.values()) if whole else None)
            self.show(peer, new.claims, new.tip)
        announced = tuple(_as_move(old, claim) for old, claim in moves)
        return Announced(peer.name, new.seq, len(single) + whole, whole, announced)

    def fingerprint(self) -> str:
        """A digest of every announced ref and of the peers, which changes whenever there may be news."""
        prefixes = (
            names.HEADS,
            names.ARCHIVE,
            names.RECORDS,
            names.TRACES,
            names.SESSIONS,
            names.BEHAVIOURS,
            names.TYPES,
            names.PEERS,
        )
        return text_digest(repr([self._core.refs.under(prefix) for prefix in prefixes]))

    def _is_due(self, state: AnnouncedState, more: int) -> bool:
        return state.since + more >= SNAPSHOT_EVERY or state.at + STATEMENT_SECONDS // 2 <= self._core.now()

    def _append(
        self,
        peer: PinnedPeer,
        key: str,
        state: AnnouncedState,
        moves: Sequence[tuple[str | None, RefClaim]],
        heads: Sequence[RefClaim] | None,
    ) -> AnnouncedState:
        core = self._core
        at = core.now()
        seq = state.seq
        tip, last, claims = state.tip, state.last, dict(state.claims)
        wanted: list[tuple[str, tuple[RefClaim, ...], str | None]] = [(claim.trigger, (claim,), old) for old, claim in moves]
        wanted += [(SNAPSHOT, tuple(heads), None)] if heads is not None else []
        for trigger, each, old in wanted:
            # A snapshot must be newer than statements of a second writer with our key, or of a lost chain.
            seq = max(seq + 1, int(core.clock().timestamp() * 1000)) if trigger == SNAPSHOT else seq + 1
            statement = Statement(core.space_id, peer.space, seq, last, at, at + STATEMENT_SECONDS, trigger, each, old)
            token = self._ring.sign(key, TOKEN_TYPE, statement.payload())
            subject = trigger if statement.is_snapshot else f"{trigger} {each[0].ref}"
            tip, last = self._write(tip, token, subject), digest(token)
            claims = {one.ref: one for one in each} if statement.is_snapshot else claims | {each[0].ref: each[0]}
        core.reached("objects-written")
        core.refs.move(names.announce(peer.space), state.tip, tip, "clia: announce")
        core.reached("committed")
        return AnnouncedState(tip, seq, last, {ref: one for ref, one in claims.items() if one.new is not None}, 0, at, key)

    def _write(self, tip: str | None, token: str, subject: str) -> str:
        core = self._core
        by = core.person_stamp()
        text = compose(subject, [(ANNOUNCEMENT, token)], "announcement")
        return core.objects.write_commit(core.empty_tree(), [tip] if tip else [], by, by, text)

    def show(self, peer: PinnedPeer, claims: dict[str, RefClaim], tip: str | None) -> None:
        """Publish what the peer may fetch from our forge: its chain, our keys, and the announced commits."""
        refs = {names.announce(peer.space): tip, names.KEYS: self._core.refs.get(names.KEYS)}
        top = names.announced(peer.space)
        refs |= {top + claim.place: claim.new for claim in claims.values() if not claim.ref.startswith(TYPES_PREFIX)}
        self._transport.show(peer.space, {ref: cid for ref, cid in refs.items() if cid is not None})

    def show_again(self, peer: PinnedPeer) -> None:
        """Rebuild what the peer may fetch from its chain; it may be missing or outdated."""
        with self._core.locks.hold(f"@announce-{peer.space}"):
            state = self.said(peer.space)
            self.show(peer, state.claims, state.tip)

    def said(self, space: str) -> AnnouncedState:
        """The state of our chain to an audience."""
        tip = self._core.refs.get(names.announce(space))
        claims: dict[str, RefClaim] = {}
        later: list[Statement] = []
        seq, last, key = 0, None, None
        for token in chain_tokens(self._core.graph, tip) if tip else ():
            statement = read_statement(token_payload(token))
            if not later:
                seq, last, key = statement.seq, digest(token), json.loads(token_part(token, 0)).get("kid")
            later.append(statement)
            if statement.is_snapshot:
                break
        for statement in reversed(later):
            claims = {} if statement.is_snapshot else claims
            claims |= {claim.ref: claim for claim in statement.claims}
        kept = {ref: each for ref, each in claims.items() if each.new is not None}
        return AnnouncedState(tip, seq, last, kept, len(later), later[-1].at if later else 0, key)

    def announced_ids(self, space: str) -> set[str]:
        """The ids recently announced to an audience: those in the chain, its commits, and those of our keys."""
        graph, refs = self._core.graph, self._core.refs
        tip, keys = refs.get(names.announce(space)), refs.get(names.KEYS)
        found = {each.cid for each in graph.first_parents(keys)} if keys else set()
        for commit in islice(graph.first_parents(tip), _ANNOUNCED_MAX) if tip else ():
            found.add(commit.cid)
            token = commit_token(commit)
            if token is not None:
                found.update(claim.new for claim in read_statement(token_payload(token)).claims if claim.new is not None)
        return found

    def _moves(self, before: dict[str, RefClaim], now: dict[str, RefClaim]) -> Iterator[tuple[str | None, RefClaim]]:
        """The differences, types first, so that a peer knows the type of each commit."""
        for ref in sorted(before.keys() | now.keys(), key=lambda each: (not each.startswith(TYPES_PREFIX), each)):
            old, new = before.get(ref), now.get(ref)
            if new is not None and (old is None or old.new != new.new):
                yield (old.new if old else None), new
            elif new is None and old is not None and not ref.startswith(TYPES_PREFIX):
                yield old.new, RefClaim(ref, None, old.type, old.trigger)

    def _claims(self, peer: PinnedPeer, claims: Mapping[str, RefClaim]) -> dict[str, RefClaim]:
        """The claims for everything that is shared with a peer."""
        found = [*self._agent_claims(peer, claims), *self._behaviour_claims(peer)]
        if found:
            found += self._type_claims()
        return {each.ref: each for each in found}

    def _agent_claims(self, peer: PinnedPeer, claims: Mapping[str, RefClaim]) -> Iterator[RefClaim]:
        core, share = self._core, peer.share
        heads: dict[str, str] = {}
        for prefix in (names.ARCHIVE, names.HEADS):
            heads |= {ref.removeprefix(prefix): cid for ref, cid in core.refs.under(prefix)}
        for name, cid in sorted(heads.items()):
            if not names.is_name(name) or not shares(share.agents, name):
                continue
            commit = core.read(cid)
            if commit.agent != name or commit.kind is None:
                # Plain git moved the branch to something else than an agent's commit: keep what was announced.
                if names.head(name) not in claims:
                    continue
                yield claims[names.head(name)]
            else:
                yield claim_of(names.head(name), cid, commit.kind)
            wanted = [names.record(name)]
            wanted += [names.traces(name)] if share.traces else []
            wanted += [names.sessions(name)] if share.sessions else []
            for ref in wanted:
                at = core.refs.get(ref)
                if at is not None:
                    yield claim_of(ref, at)

    def _behaviour_claims(self, peer: PinnedPeer) -> Iterator[RefClaim]:
        for ref, cid in self._core.refs.under(names.BEHAVIOURS):
            name = ref.removeprefix(names.BEHAVIOURS)
            if names.is_name(name) and shares(peer.share.behaviours, name):
                yield claim_of(ref, cid)

    def _type_claims(self) -> Iterator[RefClaim]:
        for name, parent in self._registry.types().known().items():
            if name not in BUILT_IN and parent is not None:
                yield RefClaim(TYPES_PREFIX + name, define_cid(name, parent), name, "type", parent)


def chain_tokens(graph: GitGraph, tip: str) -> Iterator[str]:
    """The tokens of a chain, newest first."""
    for commit in graph.first_parents(tip):
        token = commit_token(commit)
        if token is not None:
            yield token


def commit_token(commit: Commit) -> str | None:
    """The token in a commit of a chain."""
    values = [value for key, value in parse(commit.message)[1] if key == ANNOUNCEMENT]
    return values[0] if len(values) == 1 else None


def token_payload(token: str) -> bytes:
    """The payload of a token of our own chain, unverified."""
    return token_part(token, 1)


def _as_move(old: str | None, claim: RefClaim) -> dict[str, Any]:
    return {"ref": claim.ref, "old": old, "new": claim.new, "type": claim.type, "trigger": claim.trigger}
