"""Announcing: telling a peer which refs of ours have moved.

Invariant: one chain of statements for each audience, each commit of it one statement; it only grows, and by one writer at a
time. What was announced is what the chain says since its last snapshot, so nothing else has to be remembered. A chain starts
with a snapshot, and a snapshot's number is the time in milliseconds: should a chain be lost, the next one is newer all the same.
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
"""How long a statement holds."""
_ANNOUNCED_MAX = 1024
"""So many statements back a peer may still ask for what they name."""
SNAPSHOT_EVERY = 256
"""So many statements after a snapshot there is another: whoever comes late has no more than these to read."""


class AnnouncedState(NamedTuple):
    """Where our chain to an audience ends, and what it has told so far."""

    tip: str | None
    seq: int
    last: str | None
    claims: dict[str, RefClaim]
    since: int  # statements since the last snapshot
    at: int  # when that was
    key: str | None = None  # that the last statement is signed with


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
        """Says what is new to a peer. ``snapshot``: say everything, whatever was said before."""
        core = self._core
        self._keys.show()  # the first is made under a lock that is only shared from here on: nobody replaces a key meanwhile
        with self._envelope.among_others(), core.locks.hold(KEYS_LOCK, shared=True), core.locks.hold(f"@announce-{peer.space}"):
            key = self._keys.current()
            state = self.said(peer.space)
            now = self._claims(peer, state.claims)
            moves = list(self._moves(state.claims, now))
            # What an older key has said last is refused by whoever has not heard it: only a snapshot by the new one heals that.
            whole = snapshot or state.tip is None or state.key != key or self._is_due(state, len(moves))
            if not moves and not whole:
                self.show(peer, state.claims, state.tip)  # whoever announced it may have died before, and notes may be purged
                return Announced(peer.name, state.seq, 0, snapshot=False, moves=())
            if state.tip is None and not now:
                raise InvalidInput(
                    f"nothing is shared with {peer.name}",
                    code=NOTHING_SHARED,
                    hints=[f"clia peer share {peer.name} --agent '*' says what it is told about"],
                    fields={"peer": peer.name},
                )
            single = moves if state.tip and len(moves) < SNAPSHOT_EVERY else []  # so many are said at once
            new = self._append(peer, key, state, single, list(now.values()) if whole else None)
            self.show(peer, new.claims, new.tip)
        told = tuple(_as_move(old, claim) for old, claim in moves)
        return Announced(peer.name, new.seq, len(single) + whole, whole, told)

    def fingerprint(self) -> str:
        """Another one whenever there may be something new to tell: of every ref that is told about, and of the peers themselves."""
        told = (names.HEADS, names.ARCHIVE, names.RECORDS, names.TRACES, names.SESSIONS, names.BEHAVIOURS, names.TYPES, names.PEERS)
        return text_digest(repr([self._core.refs.under(each) for each in told]))

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
            # A snapshot is newer than whatever a second writer with our key, or a chain that is lost, may have said before.
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
        """What the peer may fetch from our forge: the chain to it, our keys, and the commits that the chain names."""
        refs = {names.announce(peer.space): tip, names.KEYS: self._core.refs.get(names.KEYS)}
        top = names.announced(peer.space)
        refs |= {top + claim.place: claim.new for claim in claims.values() if not claim.ref.startswith(TYPES_PREFIX)}
        self._transport.show(peer.space, {ref: cid for ref, cid in refs.items() if cid is not None})

    def show_again(self, peer: PinnedPeer) -> None:
        """Makes what the peer may fetch anew from the chain to it: it may be lost, or older than the chain."""
        with self._core.locks.hold(f"@announce-{peer.space}"):
            state = self.said(peer.space)
            self.show(peer, state.claims, state.tip)

    def said(self, space: str) -> AnnouncedState:
        """What a chain of ours has told so far."""
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

    def told(self, space: str) -> set[str]:
        """Every id that an audience was told of late: what the chain names, its own commits, and those of our keys."""
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
        """What is different, types first: whoever hears of a commit then knows its type."""
        for ref in sorted(before.keys() | now.keys(), key=lambda each: (not each.startswith(TYPES_PREFIX), each)):
            old, new = before.get(ref), now.get(ref)
            if new is not None and (old is None or old.new != new.new):
                yield (old.new if old else None), new
            elif new is None and old is not None and not ref.startswith(TYPES_PREFIX):
                yield old.new, RefClaim(ref, None, old.type, old.trigger)

    def _claims(self, peer: PinnedPeer, claims: Mapping[str, RefClaim]) -> dict[str, RefClaim]:
        """Where everything is that is shared with a peer."""
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
                # Plain git moved the branch to what is no agent-commit: of that nothing can be said, and what was said stays.
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
    """The statements of a chain, newest first."""
    for commit in graph.first_parents(tip):
        token = commit_token(commit)
        if token is not None:
            yield token


def commit_token(commit: Commit) -> str | None:
    """The statement that a commit of a chain carries."""
    values = [value for key, value in parse(commit.message)[1] if key == ANNOUNCEMENT]
    return values[0] if len(values) == 1 else None


def token_payload(token: str) -> bytes:
    """What a token of ours says; it is in our own chain."""
    return token_part(token, 1)


def _as_move(old: str | None, claim: RefClaim) -> dict[str, Any]:
    return {"ref": claim.ref, "old": old, "new": claim.new, "type": claim.type, "trigger": claim.trigger}
