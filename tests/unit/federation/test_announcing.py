"""Tokens with which peers authenticate for fetching and notifying."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clia.federation.announcing import CLOCK_SKEW, FETCH_TOKEN, NOTIFY_TOKEN, TOKEN_SECONDS
from clia.values.canonical import canonical_bytes
from support.federation import (
    OTHER,
    OWNER,
    Pair,
    Speaker,
)
from support.spaces import refused

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import clia


def test_a_fetch_token_is_valid_to_the_second_and_bound_to_its_space(
    pair: Pair, stopped_clock: tuple[clia.Space, list[datetime]]
) -> None:
    """Another peer pinned with the same key does not interfere."""
    space, clock = stopped_clock
    now, owner = int(clock[0].timestamp()), pair.speaker()

    def peer_of(exp: int, of: str = owner.space) -> str:
        payload = canonical_bytes({"space": of, "aud": space.id, "exp": exp})
        return space.peers.tokens.authenticate(owner.signed(payload, owner.header(typ=FETCH_TOKEN)), FETCH_TOKEN).name

    assert {peer_of(exp) for exp in (now - CLOCK_SKEW + 1, now + TOKEN_SECONDS + CLOCK_SKEW)} == {"ay"}
    for exp in (now - CLOCK_SKEW, now + TOKEN_SECONDS + CLOCK_SKEW + 1):
        refused("expired", partial(peer_of, exp))
    for name, of in (("aa", OTHER), ("zz", OWNER)):
        space.peers.add(name, f"clia:{of}:{owner.key}")
        assert (peer_of(now), peer_of(now, of)) == ("ay", name)


def test_only_the_newest_key_of_a_trusted_peer_authenticates(pair: Pair, tmp_path: Path) -> None:
    """Tokens for fetching and notifying are signed by the peer's newest key, for this space, and valid for some minutes."""
    peer_tokens, owner = pair.hearer.peers.tokens, pair.speaker()
    stranger = Speaker.new(tmp_path / "keys", owner.space)
    me, now = pair.hearer.peers.key().space, int(pair.clock.at.timestamp())
    good = {"space": owner.space, "aud": me, "exp": now + TOKEN_SECONDS}

    def token(by: Speaker = owner, typ: str = FETCH_TOKEN, **change: Any) -> str:
        return by.signed(canonical_bytes(good | change), by.header(typ=typ))

    for typ in (FETCH_TOKEN, NOTIFY_TOKEN):
        assert peer_tokens.authenticate(token(typ=typ), typ).name == "ay"
    for code, refused_token in (
        ("wrong-audience", token(aud=OTHER)),
        ("wrong-audience", token(aud=owner.space)),
        ("wrong-audience", token(space=OTHER)),
        ("wrong-audience", owner.signed(b"[]", owner.header(typ=FETCH_TOKEN))),
        ("wrong-audience", owner.signed(b"[" * 10_000, owner.header(typ=FETCH_TOKEN))),
        ("expired", token(exp=now - CLOCK_SKEW)),
        ("expired", token(exp=now + TOKEN_SECONDS + CLOCK_SKEW + 100)),  # valid for too long
        ("expired", token(exp=True)),
        ("expired", token(exp=str(now + TOKEN_SECONDS))),
        ("unknown-key", token(by=stranger)),
        ("unknown-key", token(by=pair.speaker("hearer"))),
        ("wrong-token-type", token(typ=NOTIFY_TOKEN)),
        ("wrong-token-type", pair.tokens()[0]),
        ("malformed-token", ""),
        ("malformed-token", "Bearer x"),
        ("bad-signature", token()[:-4] + "AAAA"),
    ):
        refused(code, partial(peer_tokens.authenticate, refused_token, FETCH_TOKEN))
    old = token(exp=now + TOKEN_SECONDS + 60)
    pair.owner.peers.rotate_key()
    pair.sync()
    refused("unknown-key", lambda: peer_tokens.authenticate(old, FETCH_TOKEN))
    newest = pair.speaker()
    assert peer_tokens.authenticate(token(by=newest), FETCH_TOKEN).name == "ay"
    pair.hearer.peers.change("ay", trusted=False)
    refused("untrusted-peer", lambda: peer_tokens.authenticate(token(by=newest), FETCH_TOKEN))
    pair.hearer.peers.remove("ay")
    refused("unknown-key", lambda: peer_tokens.authenticate(token(by=newest), FETCH_TOKEN))
