"""Other spaces: keys, peers, capabilities, announcements, sync.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.federation`` that implements it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.federation.acceptance import unsettled
from clia.federation.keys import fingerprint
from clia.federation.model import Peer, Share, Synced
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.verbs import ADMIN, VIEWER, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Annotated

    from clia.api.parameters import AnyPeer, Execute, GrantedType, PeerName, Trigger
    from clia.facade.components import Components
    from clia.federation.announcing import PeerTokens
    from clia.federation.model import Announced, Explained, Grant, Key, Refused, Remote, RemoteBehaviour, Untaken
    from clia.federation.peers import PinnedPeer
    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.federation.transport import GitTransport
    from clia.git.records import TransferLimits

    Progress = Callable[[int, int], None]


class FederationResources(NamedTuple):
    """The resources that federation needs in addition to the space."""

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

    # Not for viewers: the first call creates the key.
    @verb("GET", "/key", ADMIN, "federation")
    def key(self) -> Key:
        """The public key of this space, which peers pin. The first call creates it."""
        return self._components.keys.show(self._components.resources.address())

    @verb("POST", "/key/rotate", ADMIN, "federation")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def rotate_key(self, *, lost: bool = False) -> Key:
        """Replace the key by a new one, signed by the old one. ``lost``: a new identity, which every peer has to pin again."""
        # Signed by the old key: peers know that one until they have synced.
        notifications = [(peer, self._notification(peer)) for peer in self._components.peers.all()]
        self._components.keys.rotate(lost=lost)
        for peer, notification in notifications:
            try:
                if self._components.announcing.announced(peer.space).tip is not None:
                    self._components.announcing.announce(peer, snapshot=True)
                self._notify(peer, notification)
            except CliaError as err:  # an error would make the caller rotate again
                todo = f"clia announce {peer.name} --snapshot does that"
                self._components.core.notify(f"the key is replaced, but not announced to {peer.name} ({err.message}); {todo}")
        return self.key()

    # Peers

    @verb("POST", "/peers", ADMIN, "federation", "add_peer")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def add(self, name: PeerName, key: str, url: str | None = None, *, trusted: bool = True) -> Peer:
        """Pin another space by the output of its ``clia key show``."""
        return self._shown(self._components.peers.add(name, key, url, trusted=trusted))

    @verb("POST", "/peers/{name}", ADMIN, "federation", "change_peer")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def change(self, name: PeerName, *, url: str | None = None, trusted: bool | None = None) -> Peer:
        """Change the address of a peer, or its trust. Nothing is accepted from an untrusted peer, even with a grant."""
        return self._shown(self._components.peers.change(name, url=url, trusted=trusted))

    @verb("PUT", "/peers/{name}/share", ADMIN, "federation")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def share(
        self,
        name: PeerName,
        *,
        agents: Sequence[str] = (),
        traces: bool = False,
        sessions: bool = False,
        behaviours: Sequence[str] = (),
    ) -> Peer:
        """Set what is announced to a peer from now on; ``*`` means all."""
        share = Share(_listed(agents, "agents"), traces, sessions, _listed(behaviours, "behaviours"))
        return self._shown(self._components.peers.change(name, share=share))

    @verb("POST", "/peers/{name}/remove", ADMIN, "federation", "remove_peer")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def remove(self, name: PeerName) -> None:
        """Remove a peer with its grants and everything tracked of it."""
        peer = next((peer for peer in self._components.peers.all() if peer.name == name), None)
        if peer is not None:
            self._components.capabilities.revoke_all(peer.space)
        self._components.peers.remove(name)

    @verb("GET", "/peers", VIEWER, "federation", "peers")
    def __call__(self) -> list[Peer]:
        """Every peer, sorted by name."""
        return [self._shown(peer) for peer in self._components.peers.all()]

    @verb("GET", "/peers/{name}", VIEWER, "federation", "peer")
    def get(self, name: PeerName) -> Peer:
        """One peer."""
        return self._shown(self._components.peers.get(name))

    def _shown(self, peer: PinnedPeer) -> Peer:
        tracked, position = self._components.syncing.tracked(peer), peer.position
        return Peer(
            *(peer.name, peer.space, peer.keys, fingerprint(peer.keys[-1]), peer.url, peer.trusted, peer.share),
            seq=position.seq,
            heard=position.at or None,
            level=position.level,
            forked=position.forked,
            waiting=len(unsettled(position.waiting, tracked)),
            agents=sum(ref.startswith(names.HEADS) for ref in tracked),
        )

    @verb("GET", "/peers/{name}/refusals", VIEWER, "federation")
    def refusals(self, name: PeerName) -> list[Refused]:
        """What was refused from a peer, and why; newest first."""
        return self._components.syncing.refusals(self._components.peers.get(name).space)

    @verb("GET", "/peers/{name}/waiting", VIEWER, "federation")
    def waiting(self, name: PeerName) -> list[Untaken]:
        """The announcements of a peer that are not accepted here, why, and what would change that."""
        return sorted(self._components.syncing.pending(self._components.peers.get(name)))

    # Capabilities

    @verb("POST", "/capabilities", ADMIN, "federation")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def grant(
        self, peer: PeerName, type_: GrantedType, trigger: Trigger, *, execute: Execute = False, expires: int | None = None
    ) -> Grant:
        """Allow something from a peer, including subtypes."""
        return self._components.capabilities.grant(peer, type_, trigger, execute=execute, expires=expires)

    @verb("POST", "/capabilities/revoke", ADMIN, "federation")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def revoke(
        self, peer: PeerName, type_: str | None = None, trigger: str | None = None, *, cid: str | None = None
    ) -> list[Grant]:
        """Revoke grants at once; return those that were revoked."""
        return self._components.capabilities.revoke(peer, type_, trigger, cid)

    @verb("GET", "/capabilities", VIEWER, "federation")
    def grants(self, peer: AnyPeer = None) -> list[Grant]:
        """The grants to one peer, or to all."""
        space = None if peer is None else self._components.peers.get(peer).space
        return [grant for grant in self._components.capabilities.all() if space in (None, grant.space)]

    @verb("GET", "/capabilities/explain", VIEWER, "federation")
    def explain(self, peer: PeerName, type_: GrantedType, trigger: Trigger, *, execute: Execute = False) -> Explained:
        """Which grant, trust and subtype allow something, or what is missing."""
        return self._components.capabilities.explain(peer, type_, trigger, execute=execute)

    @verb("GET", "/capabilities/allowed", VIEWER, "federation")
    def allowed(self, peer: PeerName, type_: GrantedType, trigger: Trigger, *, execute: Execute = False) -> bool:
        """Whether something from a peer is accepted now."""
        return self._components.capabilities.explain(peer, type_, trigger, execute=execute).allowed

    # Announcements and sync

    @verb("POST", "/announcements", ADMIN, "federation")
    def announce(self, peer: AnyPeer = None, *, snapshot: bool = False, push: str | None = None) -> list[Announced]:
        """Announce changes of everything that is shared with a peer, or with all peers.

        ``push``: the remote to push the announcement to, where the peer reads it.
        """
        from clia.federation.announcing import NOTHING_SHARED

        if push is not None:
            self._components.resources.transport.check_remote(check_text(push, "push"))
        if peer is not None:
            return [self._announce(self._components.peers.get(peer), snapshot, push)]
        announced = []
        for pinned in self._components.peers.all():
            if pinned.share == Share() and self._components.announcing.announced(pinned.space).tip is None:
                continue
            try:
                announced.append(self._announce(pinned, snapshot, push))
            except InvalidInput as err:
                if err.code != NOTHING_SHARED:  # names may be shared that no agent has yet
                    raise
        return announced

    def _announce(self, peer: PinnedPeer, snapshot: bool, push: str | None) -> Announced:
        announced = self._components.announcing.announce(peer, snapshot=snapshot)
        if push is not None:
            self._components.resources.transport.push(peer.space, push)
        return announced._replace(rung=self._notify(peer, self._notification(peer))) if announced.statements else announced

    def _notification(self, peer: PinnedPeer) -> str | None:
        from clia.federation.announcing import NOTIFY_TOKEN

        return None if peer.url is None else self._components.peer_tokens.token(peer, NOTIFY_TOKEN)

    def _notify(self, peer: PinnedPeer, notification: str | None) -> bool | None:
        """Whether the peer's forge accepts a notification; None if it has no forge, or this clone cannot sign."""
        if peer.url is None or notification is None:
            return None
        return self._components.resources.transport.notify(peer.url, notification)

    @verb("POST", "/sync", ADMIN, "federation")
    def sync(self, peer: AnyPeer = None, *, progress: Progress | None = None) -> list[Synced]:
        """Fetch the announcements of one peer, or of all; a peer that fails is reported and does not stop the others."""
        if peer is not None:
            return [self._components.syncing.sync(peer, progress)]
        results = []
        for pinned in self._components.peers.all():
            try:
                results += [self._components.syncing.sync(pinned.name, progress)] if pinned.url is not None else []
            except CliaError as err:
                results.append(Synced(pinned.name, 0, pinned.position.seq, (), (), 0, err.to_json()))
        return results

    @verb("GET", "/remotes", VIEWER, "federation")
    def remotes(self, peer: Annotated[str | None, "only agents of this peer (default: all)"] = None) -> list[Remote]:
        """The tracked agents of one peer, or of all."""
        return self._components.tracking.remotes(peer)

    @verb("GET", "/remote-behaviours", VIEWER, "federation", "remote_behaviours")
    def behaviours(self, peer: AnyPeer = None) -> list[RemoteBehaviour]:
        """The tracked behaviours of one peer, or of all; each can be read, and run if a grant allows it."""
        return self._components.tracking.behaviours(peer)


def _listed(listed: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(listed, (list, tuple)):
        return tuple(check_text(name, field) for name in listed)
    raise InvalidInput(f"{field} must be a list of names", code="invalid-names", fields={"field": field})
