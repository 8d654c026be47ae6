"""Tokens that peers present at the forge: one to fetch, one to notify.

Invariant: both are signed with the peer's newest key, addressed to this space and valid for minutes; neither moves a ref. A fetch
token gives access to the view of the peer that signed it; a notification makes us sync from the peer's pinned URL.
"""

from __future__ import annotations

import json

from clia.errors import UntrustedPeer
from clia.federation.model import Share
from clia.federation.statements import refusal
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from clia.federation.announcing import Announcer, SigningKeys
    from clia.federation.peers import Peers, PinnedPeer
    from clia.federation.transport import GitTransport
    from clia.git.records import UploadCommand
    from clia.space.core import Core

FETCH_TOKEN, NOTIFY_TOKEN = "clia-pass", "clia-knock"
TOKEN_SECONDS = 900
CLOCK_SKEW = 300


class PeerTokens:
    """Makes and checks tokens, and serves the view of an authenticated peer."""

    def __init__(self, core: Core, peers: Peers, signing: SigningKeys, view: tuple[Announcer, GitTransport]) -> None:
        self._core = core
        self._peers = peers
        self._keys, self._ring, self._verifier = signing
        self._announcing, self._transport = view

    def shared_fingerprint(self) -> str | None:
        """A fingerprint of everything shared with peers; None if nothing is shared or this clone cannot sign."""
        chain = self._keys.chain() if any(peer.share != Share() for peer in self._peers.all()) else ()
        return self._announcing.fingerprint() if chain and self._ring.has(chain[-1]) else None

    def token(self, peer: PinnedPeer, typ: str) -> str | None:
        """A token for a peer's forge; None if this clone cannot sign."""
        chain = self._keys.chain()
        if not chain or not self._ring.has(chain[-1]):
            return None
        said = {"space": self._core.space_id, "aud": peer.space, "exp": self._core.now() + TOKEN_SECONDS}
        return self._ring.sign(chain[-1], typ, canonical_bytes(said))

    def authenticate(self, token: str, typ: str) -> PinnedPeer:
        """The peer that presents a token; ``Denied`` if it is unknown, for another space, or expired."""
        known = self._peers.all()
        signed = self._verifier.read(token, typ, {each.keys[-1] for each in known})
        said = _payload_body(signed.payload)
        peer = next((each for each in known if (each.keys[-1], each.space) == (signed.key, said.get("space"))), None)
        if peer is None or said.get("aud") != self._core.space_id:
            raise refusal("wrong-audience", "the token is addressed to another space")
        end, now = said.get("exp"), self._core.now()
        if not isinstance(end, int) or isinstance(end, bool) or not now - CLOCK_SKEW < end <= now + TOKEN_SECONDS + CLOCK_SKEW:
            raise refusal("expired", "the token has expired, or the clocks differ")
        if not peer.trusted:
            raise UntrustedPeer(f"peer {peer.name} is not trusted", fields={"peer": peer.name})
        return peer

    def advertise(self, peer: PinnedPeer) -> UploadCommand:
        """The git process that advertises the refs of a peer, after refreshing its view."""
        self._announcing.show_again(peer)
        return self._transport.upload(peer.space, advertise=True)

    def announced_ids(self, peer: PinnedPeer) -> Container[str]:
        """The ids that a peer may request and mention: those announced to it.

        The view borrows all of our objects. Git checks that refs reach a requested commit, but would serve any other object and
        confirm which ids exist here.
        """
        return self._announcing.announced_ids(peer.space)

    def upload(self, peer: PinnedPeer) -> UploadCommand:
        """The git process that answers a peer's fetch."""
        return self._transport.upload(peer.space, advertise=False)


def _payload_body(payload: bytes) -> dict[str, object]:
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}
