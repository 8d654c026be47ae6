"""Peers that are replaced, removed or added again, and the limit of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from clia.testing import components, replace_parts
from support import git
from support.federation import OTHER, Late, Pair, codes
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupting(Late):
    """A transport that calls a function after the tips are read, or before objects are fetched."""

    def __init__(self, inner: Any, meanwhile: Callable[[], object], verb: str) -> None:
        super().__init__(inner, meanwhile)
        self._verb = verb

    def __enter__(self) -> Any:
        return Interrupting(self._inner.__enter__(), self._meanwhile, self._verb)

    def open(self, *words: Any) -> Any:
        return Interrupting(self._inner.open(*words), self._meanwhile, self._verb)

    def tips(self, *words: Any) -> Any:
        tips = self._inner.tips(*words)
        if self._verb == "tips":
            self._meanwhile()
        return tips

    def fetch(self, *words: Any) -> Any:
        if self._verb == "fetch":
            self._meanwhile()
        return self._inner.fetch(*words)


@pytest.mark.parametrize("verb", ["tips", "fetch"])
def test_statements_of_a_replaced_or_removed_peer_have_no_effect(pair: Pair, verb: str) -> None:
    """The peer is removed during a sync, with or without another one added under its name; after it is added again, all works."""
    new = pair.announce_commit()
    syncing = components(pair.hearer).syncing
    original_transport = syncing.resources.transport
    states: list[object] = []

    def use(transport: object) -> None:
        resources = syncing.resources._replace(transport=cast("Any", transport))
        replace_parts(pair.hearer, syncing=syncing._replace(resources=resources))

    def replace_peer() -> None:
        pair.hearer.peers.remove("ay")
        pair.hearer.peers.add("ay", f"clia:{OTHER}:{pair.owner.peers.key().key}", pair.place("owner"))
        states.append((components(pair.hearer).peers.get("ay"), pair.state()))

    use(Interrupting(original_transport, replace_peer, verb))
    refused("peer-changed", pair.sync)
    assert states == [(components(pair.hearer).peers.get("ay"), pair.state())]
    use(original_transport)
    pair.hearer.peers.remove("ay")
    pair.hearer.peers.add("ay", pair.owner.peers.key().text, pair.place("owner"))
    pair.grant()
    assert codes(pair.sync().refused) == []
    assert pair.tracked_heads() == {"scout": new}
    new = pair.announce_commit("again")
    use(Interrupting(original_transport, lambda: pair.hearer.peers.remove("ay"), verb))
    refused("no-such-peer", pair.sync)
    assert git("for-each-ref", "refs/clia/remotes/", "refs/clia/peers/", cwd=pair.place("hearer")) == ""


def test_a_peer_added_again_by_an_older_key_continues_where_it_was(pair: Pair) -> None:
    """Its newest key and position are kept; refs that git left under its name are ignored."""
    old = pair.owner.peers.key().text
    pair.owner.peers.rotate_key()
    pair.sync()
    peer = pair.hearer.peers.get("ay")
    assert len(peer.keys) == 2
    pair.hearer.peers.remove("ay")
    pair.update_ref("hearer", "refs/clia/remotes/ay/agents/left", pair.hearer.spawn("left", BRIEFING).genesis)
    added_peer = pair.hearer.peers.add("ay", old, pair.place("owner"))
    assert (added_peer.keys, added_peer.seq, added_peer.agents) == (peer.keys, peer.seq, 0)
    pair.grant()
    assert (pair.sync().accepted, pair.tracked_heads()) == (0, {"scout": pair.owner.head("scout")})


def test_a_space_with_the_maximum_of_keys_keeps_the_last_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.federation.keys.CHAIN_MAX", 3)
    for _ in range(2):
        pair.owner.peers.rotate_key()
    key = pair.owner.peers.key()
    refused("too-many-keys", pair.owner.peers.rotate_key)
    assert (pair.owner.peers.key(), key.mine) == (key, True)
    new = pair.announce_commit()
    assert (pair.sync().keys, pair.tracked_heads()) == (2, {"scout": new})
    assert len(pair.owner.peers.rotate_key(lost=True).chain) == 1  # as the hint says
