"""Other spaces: keys, peers, capabilities, announcements, sync.

Invariant: nothing is decided here. The rules of a verb are in the module of ``clia.federation`` that implements it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.federation.model import Share, Synced
from clia.values.commit_messages import check_text
from clia.verbs import ADMIN, VIEWER, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.facade.components import Components
    from clia.federation.model import Announced, Explained, Grant, Key, Peer, Refused, Remote, RemoteBehaviour, Untaken
    from clia.federation.peer_tokens import PeerTokens
    from clia.federation.peers import PinnedPeer
    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.federation.transport import GitTransport
    from clia.git.records import TransferLimits

    Progress = Callable[[int, int], None]


class FederationResources(NamedTuple):
    """What federation needs beside the space."""

    ring: KeyFiles
    verifier: Ed25519Verifier
    transport: GitTransport
    limits: TransferLimits
    nonce: Callable[[], str]
    address: Callable[[], str | None]  # where peers reach the forge of this clone, if one serves it


class PeerService:
    """Keys, peers, grants, announcements and sync."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def tokens(self) -> PeerTokens:
        """The tokens that peers show at the forge."""
        return self._components.peer_tokens

    # Keys

    # Not for viewers: the first look makes the key.
    @verb("GET", "/key", ADMIN, "federation")
    def key(self) -> Key:
        """The public key of this space, which peers pin. The first call creates it."""
        return self._components.keys.show(self._components.resources.address())

    @verb("POST", "/key/rotate", ADMIN, "federation")
    def rotate_key(self, *, lost: bool = False) -> Key:
        """Replace the key by a new one, signed by the old one. ``lost``: a new identity, which every peer has to pin again."""
        from clia.federation.peer_tokens import NOTIFY_TOKEN

        # Knocks are signed by the old key: peers know that one until they have synced.
        notifications = [(peer, self._components.peer_tokens.token(peer, NOTIFY_TOKEN)) for peer in self._components.peers.all()]
        self._components.keys.rotate(lost=lost)
        for peer, notification in notifications:
            if self._components.announcing.said(peer.space).tip is not None:
                self._components.announcing.announce(peer, snapshot=True)
            if notification is not None and peer.url is not None:
                self._components.resources.transport.notify(peer.url, notification)
        return self.key()

    # Peers

    @verb("POST", "/peers", ADMIN, "federation", "add_peer")
    def add(self, name: str, key: str, url: str | None = None, *, trusted: bool = True) -> Peer:
        """Pin another space by the output of its ``clia key show``."""
        return self._shown(self._components.peers.add(name, key, url, trusted=trusted))

    @verb("POST", "/peers/{name}", ADMIN, "federation", "change_peer")
    def change(self, name: str, *, url: str | None = None, trusted: bool | None = None) -> Peer:
        """Change the address of a peer, or its trust. Nothing is accepted from an untrusted peer, whatever was granted."""
        from clia.federation.peers import PeerChanges

        return self._shown(self._components.peers.change(name, PeerChanges(url, trusted)))

    @verb("PUT", "/peers/{name}/share", ADMIN, "federation")
    def share(
        self,
        name: str,
        *,
        agents: Sequence[str] = (),
        traces: bool = False,
        sessions: bool = False,
        behaviours: Sequence[str] = (),
    ) -> Peer:
        """Set what is announced to a peer from now on; ``*`` means all."""
        from clia.federation.peers import PeerChanges

        share = Share(_listed(agents, "agents"), traces, sessions, _listed(behaviours, "behaviours"))
        return self._shown(self._components.peers.change(name, PeerChanges(share=share)))

    @verb("POST", "/peers/{name}/remove", ADMIN, "federation", "remove_peer")
    def remove(self, name: str) -> None:
        """Remove a peer with its grants and everything tracked of it."""
        peer = next((peer for peer in self._components.peers.all() if peer.name == name), None)
        if peer is not None:
            self._components.capabilities.revoke_all(peer.space)
        self._components.peers.remove(name)

    @verb("GET", "/peers", VIEWER, "federation", "peers")
    def __call__(self) -> list[Peer]:
        """Every peer, sorted by name."""
        return [self._shown(each) for each in self._components.peers.all()]

    @verb("GET", "/peers/{name}", VIEWER, "federation", "peer")
    def get(self, name: str) -> Peer:
        """One peer."""
        return self._shown(self._components.peers.get(name))

    def _shown(self, peer: PinnedPeer) -> Peer:
        return self._components.peers.show(peer, self._components.syncing.tracked(peer))

    @verb("GET", "/peers/{name}/refusals", VIEWER, "federation")
    def refusals(self, name: str) -> list[Refused]:
        """What was refused from a peer, and why; newest first."""
        return self._components.refusals.of(self._components.peers.get(name).space)

    @verb("GET", "/peers/{name}/waiting", VIEWER, "federation")
    def waiting(self, name: str) -> list[Untaken]:
        """What a peer announced and is not accepted here, why, and what would change that."""
        peer = self._components.peers.get(name)
        return self._components.pending_moves.of(peer, self._components.syncing.tracked(peer))

    # Capabilities

    @verb("POST", "/capabilities", ADMIN, "federation")
    def grant(self, peer: str, type_: str, trigger: str, *, execute: bool = False, expires: int | None = None) -> Grant:
        """Allow something from a peer, including subtypes."""
        from clia.federation.capabilities import GrantRequest

        return self._components.capabilities.grant(GrantRequest(peer, type_, trigger, execute, expires))

    @verb("POST", "/capabilities/revoke", ADMIN, "federation")
    def revoke(self, peer: str, type_: str | None = None, trigger: str | None = None, *, cid: str | None = None) -> list[Grant]:
        """Revoke grants at once; return those that were revoked."""
        return self._components.capabilities.revoke(peer, type_, trigger, cid)

    @verb("GET", "/capabilities", VIEWER, "federation")
    def grants(self, peer: str | None = None) -> list[Grant]:
        """The grants to one peer, or to all."""
        space = None if peer is None else self._components.peers.get(peer).space
        return [each for each in self._components.capabilities.all() if space in (None, each.space)]

    @verb("GET", "/capabilities/explain", VIEWER, "federation")
    def explain(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> Explained:
        """Which grant, trust and subtype allow something, or what is missing."""
        return self._components.capabilities.explain(peer, type_, trigger, execute=execute)

    @verb("GET", "/capabilities/allowed", VIEWER, "federation")
    def allowed(self, peer: str, type_: str, trigger: str, *, execute: bool = False) -> bool:
        """Whether something from a peer is accepted now."""
        return self._components.capabilities.explain(peer, type_, trigger, execute=execute).allowed

    # Announcements and sync

    @verb("POST", "/announcements", ADMIN, "federation")
    def announce(self, peer: str | None = None, *, snapshot: bool = False, push: str | None = None) -> list[Announced]:
        """Announce to one peer, or to all, what is new in what is shared with it.

        ``push``: the remote to push the announcement to, where the peer reads it.
        """
        from clia.federation.announcing import NOTHING_SHARED

        if push is not None:
            self._components.resources.transport.check_remote(check_text(push, "push"))
        if peer is not None:
            return [self._announce(self._components.peers.get(peer), snapshot, push)]
        said = self._components.announcing.said
        told = [peer for peer in self._components.peers.all() if peer.share != Share() or said(peer.space).tip is not None]
        announced = []
        for pinned in told:
            try:
                announced.append(self._announce(pinned, snapshot, push))
            except InvalidInput as err:
                if err.code != NOTHING_SHARED:  # names may be shared that no agent has yet
                    raise
        return announced

    def _announce(self, peer: PinnedPeer, snapshot: bool, push: str | None) -> Announced:
        from clia.federation.peer_tokens import NOTIFY_TOKEN

        transport = self._components.resources.transport
        announced = self._components.announcing.announce(peer, snapshot=snapshot)
        if push is not None:
            transport.push(peer.space, push)
        notification = self._components.peer_tokens.token(peer, NOTIFY_TOKEN) if announced.statements and peer.url else None
        if notification is None or peer.url is None:
            return announced
        return announced._replace(rung=transport.notify(peer.url, notification))

    @verb("POST", "/sync", ADMIN, "federation")
    def sync(self, peer: str | None = None, *, progress: Progress | None = None) -> list[Synced]:
        """Fetch the announcements of one peer, or of all; a peer that fails is reported and does not stop the others."""
        if peer is not None:
            return [self._components.syncing.sync(peer, progress)]
        found = []
        for each in self._components.peers.all():
            if each.url is None:
                continue
            try:
                found.append(self._components.syncing.sync(each.name, progress))
            except CliaError as err:
                found.append(Synced(each.name, 0, each.position.seq, (), (), 0, err.to_json()))
        return found

    @verb("GET", "/remotes", VIEWER, "federation")
    def remotes(self, peer: str | None = None) -> list[Remote]:
        """The tracked agents of one peer, or of all."""
        return self._components.tracking.remotes(peer)

    @verb("GET", "/remote-behaviours", VIEWER, "federation", "remote_behaviours")
    def behaviours(self, peer: str | None = None) -> list[RemoteBehaviour]:
        """The tracked behaviours of one peer, or of all; each can be read, and run if a grant allows it."""
        return self._components.tracking.behaviours(peer)


def _listed(names: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(names, (list, tuple)):
        return tuple(check_text(each, field) for each in names)
    raise InvalidInput(f"{field} is a list of names", code="invalid-names", fields={"field": field})
