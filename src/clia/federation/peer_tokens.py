"""What a peer shows at our forge: a pass to fetch what it was told about, and a knock to say that there is news.

Invariant: both are tokens of the peer's newest key, made out to this space and good for minutes; neither moves anything. A pass
opens the view of the peer that signed it and no other, in which it can have commits that the refs reach; a knock makes us listen
to the peer where it was pinned.
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
    def __init__(self, core: Core, peers: Peers, signing: SigningKeys, view: tuple[Announcer, GitTransport]) -> None:
        self._core = core
        self._peers = peers
        self._keys, self._ring, self._verifier = signing
        self._announcing, self._transport = view

    def untold(self) -> str | None:
        """A fingerprint of all that peers may be told about; None where there is nobody to tell, or nothing to sign with."""
        chain = self._keys.chain() if any(peer.share != Share() for peer in self._peers.all()) else ()
        return self._announcing.fingerprint() if chain and self._ring.has(chain[-1]) else None

    def token(self, peer: PinnedPeer, typ: str) -> str | None:
        """A pass or a knock for a peer's forge; None where this clone cannot sign."""
        chain = self._keys.chain()
        if not chain or not self._ring.has(chain[-1]):
            return None
        said = {"space": self._core.space_id, "aud": peer.space, "exp": self._core.now() + TOKEN_SECONDS}
        return self._ring.sign(chain[-1], typ, canonical_bytes(said))

    def visitor(self, token: str, typ: str) -> PinnedPeer:
        """The peer that shows a token; ``Denied`` where it is nobody's, for someone else, or too old."""
        known = self._peers.all()
        signed = self._verifier.read(token, typ, {each.keys[-1] for each in known})
        said = _payload_body(signed.payload)
        peer = next((each for each in known if (each.keys[-1], each.space) == (signed.key, said.get("space"))), None)
        if peer is None or said.get("aud") != self._core.space_id:
            raise refusal("wrong-audience", "the token is made out to another space")
        end, now = said.get("exp"), self._core.now()
        if not isinstance(end, int) or isinstance(end, bool) or not now - CLOCK_SKEW < end <= now + TOKEN_SECONDS + CLOCK_SKEW:
            raise refusal("expired", "the token is too old, or the clocks differ")
        if not peer.trusted:
            raise UntrustedPeer(f"the peer {peer.name} is not trusted", fields={"peer": peer.name})
        return peer

    def advertised(self, peer: PinnedPeer) -> UploadCommand:
        """What tells a peer which refs it can fetch: as the chain to it says now."""
        self._announcing.show_again(peer)
        return self._transport.upload(peer.space, advertise=True)

    def told(self, peer: PinnedPeer) -> Container[str]:
        """The ids that a peer may ask for and speak of: those it was told. Of any other it must not even learn whether it is here.

        Git looks whether its refs reach a commit that is asked for, but gives any other object away, and says of each id that
        the other side claims to have whether we have it too: the view holds all of our objects.
        """
        return self._announcing.told(peer.space)

    def upload(self, peer: PinnedPeer) -> UploadCommand:
        """What answers a peer's request."""
        return self._transport.upload(peer.space, advertise=False)


def _payload_body(payload: bytes) -> dict[str, object]:
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}
