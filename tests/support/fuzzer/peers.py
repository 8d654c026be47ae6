"""A second space that is a peer of the history's: it follows what is announced, while processes of both sides are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support.federation import USUAL
from support.fuzzer.act import Skipped
from support.fuzzer.place import be_impatient

if TYPE_CHECKING:
    from pathlib import Path

    from clia.federation.model import Synced
    from support.fuzzer.act import Act, Facts
    from support.fuzzer.oracle import Expected
    from support.fuzzer.place import Place

OURS, THEIRS = "ours", "theirs"
"""The name of each space at the other one."""
_AGAIN = 3
"""Syncs after which the peer must have everything: the first may repeat what a killed process began."""


def root_of(place: Place) -> Path:
    return place.beside("peer")


def _open(place: Place) -> clia.Space:
    return clia.open(root_of(place), settings=place.settings())


def make_peer(place: Place) -> None:
    """Create the peer: it may fetch everything that the space of the history announces."""
    with place.open() as space, clia.init(root_of(place), settings=place.settings()) as peer:
        space.peers.add(THEIRS, peer.peers.key().text)
        space.peers.share(THEIRS, agents=["*"], traces=True, behaviours=["*"])
        peer.peers.add(OURS, space.peers.key().text, str(place.root))
        for kind, trigger in USUAL:
            peer.peers.grant(OURS, kind, trigger)


def announce(act: Act) -> Facts:
    act.space.peers.announce(snapshot=act.order.random() < 0.3)
    return []


def sync_peer(act: Act) -> Facts:
    """Sync the peer, while this process also has the space of the history open."""
    with _open(act.place) as peer:
        _synced(peer)
    return []


def merge_theirs(act: Act) -> Facts:
    """Let an agent of the peer merge what it has of the history's."""
    with _open(act.place) as peer:
        remote = act.one_of(sorted(f"{remote.peer}/{remote.agent}" for remote in peer.peers.remotes(OURS)))
        if "reader" not in peer.agents():
            peer.spawn("reader", clia.Briefing("Read"))
        outcome = peer.merge("reader", remote)
        if isinstance(outcome, clia.Conflicts):
            raise Skipped
    return []


def _synced(peer: clia.Space) -> Synced:
    (synced,) = peer.peers.sync(OURS)
    return synced


def peer_problems(place: Place, expected: Expected) -> list[str]:
    """What the peer lacks after it was told everything, and what is wrong in its own space."""
    be_impatient(place)
    with place.open() as space, _open(place) as peer:
        synced = None
        for _ in range(_AGAIN):
            space.peers.announce()
            synced = _synced(peer)
        heads = {remote.agent: remote.head for remote in peer.peers.remotes(OURS)}
        wrong = [
            f"the peer has {heads.get(name)} of {name}, not {space.head(name)}: {synced}"
            for name in space.agents()
            if name not in expected.disturbed and heads.get(name) != space.head(name)
        ]
        findings = [*peer.trust.verify().findings, *peer.verify().findings]
        return [*wrong, *(f"at the peer: {finding}" for finding in findings)]
