"""The verbs of a space that are about other spaces: keys, peers, capabilities, announcing, listening.

Invariant: nothing is decided here. A verb's rules live in the module of ``clia.federation`` that its line names.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.federation.announcing import NOTHING_SHARED, Announcer, SigningKeys
from clia.federation.capabilities import Capabilities, GrantRequest
from clia.federation.checks import CheckDependencies as CheckParts
from clia.federation.checks import FederationChecks
from clia.federation.keys import SpaceKeys
from clia.federation.model import Share, Synced
from clia.federation.peer_tokens import FETCH_TOKEN, NOTIFY_TOKEN, PeerTokens
from clia.federation.peers import PeerChanges, Peers
from clia.federation.pending import PendingMoves, RefusalLog
from clia.federation.syncing import PeerSync
from clia.federation.syncing import SyncDependencies as SyncParts
from clia.federation.tracking import PeerTracking
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.federation.model import Announced, Explained, Grant, Key, Peer, Refused, Remote, RemoteBehaviour, Untaken
    from clia.federation.peers import PinnedPeer
    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.federation.transport import GitTransport
    from clia.git.records import TransferLimits
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.registry import Registry

    Progress = Callable[[int, int], None]


class FederationResources(NamedTuple):
    """What federation needs beside the space."""

    ring: KeyFiles
    verifier: Ed25519Verifier
    transport: GitTransport
    limits: TransferLimits
    nonce: Callable[[], str]
    address: Callable[[], str | None]  # where the forge of this clone is reached by peers, if one serves it


class FederationVerbs:
    """A part of ``Space``."""

    _core: Core
    _envelope: Envelope
    _registry: Registry
    _chains: BehaviourChains

    def _set_up_federation(self, abroad: FederationResources) -> None:
        core, envelope = self._core, self._envelope
        self._abroad = abroad
        self._keys = SpaceKeys(core, envelope, abroad.ring, abroad.verifier)
        self._peers = Peers(core, envelope, abroad.verifier)
        self._capabilities = Capabilities(core, envelope, self._registry, self._peers, abroad.nonce)
        signing = SigningKeys(self._keys, abroad.ring, abroad.verifier)
        self._announcing = Announcer(core, envelope, self._registry, signing, abroad.transport)
        self._peer_tokens = PeerTokens(core, self._peers, signing, (self._announcing, abroad.transport))
        self._refusals = RefusalLog(core)
        self._tracking = PeerTracking(core, self._peers, self._capabilities, self._chains)
        parts = SyncParts(
            registry=self._registry,
            peers=self._peers,
            capabilities=self._capabilities,
            refusals=self._refusals,
            verifier=abroad.verifier,
            transport=abroad.transport,
            pass_for=lambda peer: self._peer_tokens.token(peer, FETCH_TOKEN),
            limits=abroad.limits,
        )
        self._syncing = PeerSync(core, envelope, parts)
        self._standing = PendingMoves(self._capabilities, self._refusals)
        self._abroad_checks = FederationChecks(
            core, CheckParts(self._keys, self._peers, self._capabilities, abroad.ring, abroad.verifier)
        )

    @property
    def peer_tokens(self) -> PeerTokens:
        """What peers show at the forge."""
        return self._peer_tokens

    # Keys

    def key(self) -> Key:
        """Who this space is to others: what they pin. Its first key is made when it is first asked for."""
        return self._keys.show(self._abroad.address())

    def rotate_key(self, *, lost: bool = False) -> Key:
        """A new key, signed by the one before it. ``lost``: a new identity, which every peer has to pin anew."""
        # Knocks of the old key: it is the one that peers know, until they have looked.
        knocks = [(peer, self._peer_tokens.token(peer, NOTIFY_TOKEN)) for peer in self._peers.all()]
        self._keys.rotate(lost=lost)
        for peer, knock in knocks:
            if self._announcing.said(peer.space).tip is not None:
                self._announcing.announce(peer, snapshot=True)
            if knock is not None and peer.url is not None:
                self._abroad.transport.ring(peer.url, knock)
        return self.key()

    # Peers

    def add_peer(self, name: str, key: str, url: str | None = None, *, trusted: bool = True) -> Peer:
        """Pins another space by what its ``clia key show`` prints."""
        return self._shown(self._peers.add(name, key, url, trusted=trusted))

    def change_peer(self, name: str, *, url: str | None = None, trusted: bool | None = None) -> Peer:
        """Another address for a peer, or other trust. Who is not trusted has nothing taken in, whatever was granted."""
        return self._shown(self._peers.change(name, PeerChanges(url, trusted)))

    def share(
        self,
        name: str,
        *,
        agents: Sequence[str] = (),
        traces: bool = False,
        sessions: bool = False,
        behaviours: Sequence[str] = (),
    ) -> Peer:
        """Says what a peer is told about from now on, and nothing else; ``*`` stands for all."""
        share = Share(_listed(agents, "agents"), traces, sessions, _listed(behaviours, "behaviours"))
        return self._shown(self._peers.change(name, PeerChanges(share=share)))

    def remove_peer(self, name: str) -> None:
        """Takes a peer away with its grants and everything tracked of it."""
        known = next((each for each in self._peers.all() if each.name == name), None)
        if known is not None:
            self._capabilities.revoke_all(known.space)
        self._peers.remove(name)

    def peers(self) -> list[Peer]:
        """Every peer, sorted by name."""
        return [self._shown(each) for each in self._peers.all()]

    def peer(self, name: str) -> Peer:
        """One peer."""
        return self._shown(self._peers.get(name))

    def _shown(self, peer: PinnedPeer) -> Peer:
        return self._peers.show(peer, self._syncing.tracked(peer))

    def refusals(self, name: str) -> list[Refused]:
        """What was not taken from a peer, and why; newest first."""
        return self._refusals.of(self._peers.get(name).space)

    def waiting(self, name: str) -> list[Untaken]:
        """What a peer says and is not carried out here, why, and what would change it."""
        peer = self._peers.get(name)
        return self._standing.of(peer, self._syncing.tracked(peer))

    # Capabilities

    def grant(self, peer: str, type_: str, trigger: str, *, execute: bool = False, expires: int | None = None) -> Grant:
        """Lets a peer have something taken in here; what is a subtype of it, too."""
        return self._capabilities.grant(GrantRequest(peer, type_, trigger, execute, expires))

    def revoke(self, peer: str, type_: str | None = None, trigger: str | None = None, *, cid: str | None = None) -> list[Grant]:
        """Takes grants back, at once; those that it took."""
        return self._capabilities.revoke(peer, type_, trigger, cid)

    def grants(self, peer: str | None = None) -> list[Grant]:
        """What is granted, to one peer or to all."""
        space = None if peer is None else self._peers.get(peer).space
        return [each for each in self._capabilities.all() if space in (None, each.space)]

    def explain(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> Explained:
        """Which grant, trust and subtype allow something, or what is missing."""
        return self._capabilities.explain(peer, type_, trigger, execute=execute)

    def allowed(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> bool:
        """Whether the gate lets something of a peer's in, now."""
        return self._capabilities.explain(peer, type_, trigger, execute=execute).allowed

    # Speaking and listening

    def announce(self, peer: str | None = None, *, snapshot: bool = False, push: str | None = None) -> list[Announced]:
        """Tells one peer, or all, what is new of what is shared with it.

        ``push``: a remote that takes it to where the peer looks.
        """
        if push is not None:
            self._abroad.transport.check_remote(check_text(push, "push"))
        if peer is not None:
            return [self._announce(self._peers.get(peer), snapshot, push)]
        told = [each for each in self._peers.all() if each.share != Share() or self._announcing.said(each.space).tip is not None]
        found = []
        for each in told:
            try:
                found.append(self._announce(each, snapshot, push))
            except InvalidInput as err:
                if err.code != NOTHING_SHARED:  # names may be shared that no agent has yet
                    raise
        return found

    def _announce(self, peer: PinnedPeer, snapshot: bool, push: str | None) -> Announced:
        found = self._announcing.announce(peer, snapshot=snapshot)
        if push is not None:
            self._abroad.transport.push(peer.space, push)
        knock = self._peer_tokens.token(peer, NOTIFY_TOKEN) if found.statements and peer.url else None
        return found if knock is None or peer.url is None else found._replace(rung=self._abroad.transport.ring(peer.url, knock))

    def sync(self, peer: str | None = None, *, progress: Progress | None = None) -> list[Synced]:
        """Listens to one peer, or to all that can be reached; of several, one that fails says so and keeps no other back."""
        if peer is not None:
            return [self._syncing.sync(peer, progress)]
        found = []
        for each in self._peers.all():
            if each.url is None:
                continue
            try:
                found.append(self._syncing.sync(each.name, progress))
            except CliaError as err:
                found.append(Synced(each.name, 0, each.position.seq, (), (), 0, err.to_json()))
        return found

    def remotes(self, peer: str | None = None) -> list[Remote]:
        """The agents of one peer, or of all, as they are tracked here."""
        return self._tracking.remotes(peer)

    def remote_behaviours(self, peer: str | None = None) -> list[RemoteBehaviour]:
        """The behaviours of one peer, or of all, as they are tracked here; each can be read, and run where a grant says so."""
        return self._tracking.behaviours(peer)


def _listed(names: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(names, (list, tuple)):
        return tuple(check_text(each, field) for each in names)
    raise InvalidInput(f"{field} is a list of names", code="invalid-names", fields={"field": field})
