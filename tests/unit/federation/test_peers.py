from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from clia.testing import components, replace_parts
from support import git
from support.federation import OTHER, Late, Pair, codes
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """One agent of two commits is told and tracked."""
    made = Pair(tmp_path)
    made.agent(made.owner, "scout", "one")
    made.owner.announce("bee")
    made.grant()
    assert codes(made.sync().refused) == []
    yield made
    made.owner.close()
    made.hearer.close()


def moved_on(pair: Pair, text: str = "more") -> str:
    cid = pair.owner.commit("scout", "finding", {"a.txt": text.encode()})
    pair.owner.announce("bee")
    return cid


def pointed(pair: Pair, side: str, ref: str, to: str) -> None:
    git("update-ref", ref, to, cwd=pair.place(side))


def tracked(pair: Pair) -> dict[str, str]:
    return {each.agent: each.head for each in pair.hearer.remotes("ay")}


class Meanwhile(Late):
    """A transport during which something happens once: after the first words, or with the objects."""

    def __init__(self, inner: Any, meanwhile: Callable[[], object], verb: str) -> None:
        super().__init__(inner, meanwhile)
        self._verb = verb

    def __enter__(self) -> Any:
        return Meanwhile(self._inner.__enter__(), self._meanwhile, self._verb)

    def open(self, *words: Any) -> Any:
        return Meanwhile(self._inner.open(*words), self._meanwhile, self._verb)

    def tips(self, *words: Any) -> Any:
        found = self._inner.tips(*words)
        if self._verb == "tips":
            self._meanwhile()
        return found

    def fetch(self, *words: Any) -> Any:
        if self._verb == "fetch":
            self._meanwhile()
        return self._inner.fetch(*words)


@pytest.mark.parametrize("verb", ["tips", "fetch"])
def test_what_was_heard_of_a_peer_counts_for_no_other_that_has_its_name(pair: Pair, verb: str) -> None:
    """It is removed, and another one added; or it is gone. Nothing is written, and once it is back all is as ever."""
    new = moved_on(pair)
    syncing = components(pair.hearer).syncing
    usual = syncing.resources.transport
    before: list[object] = []

    def use(transport: object) -> None:
        resources = syncing.resources._replace(transport=cast("Any", transport))
        replace_parts(pair.hearer, syncing=syncing._replace(resources=resources))

    def replaced() -> None:
        pair.hearer.remove_peer("ay")
        pair.hearer.add_peer("ay", f"clia:{OTHER}:{pair.owner.key().key}", pair.place("owner"))
        before.append((components(pair.hearer).peers.get("ay"), pair.state()))

    use(Meanwhile(usual, replaced, verb))
    refused("peer-changed", pair.sync)
    assert before == [(components(pair.hearer).peers.get("ay"), pair.state())]
    use(usual)
    pair.hearer.remove_peer("ay")
    pair.hearer.add_peer("ay", pair.owner.key().text, pair.place("owner"))
    pair.grant()
    assert codes(pair.sync().refused) == []
    assert tracked(pair) == {"scout": new}
    new = moved_on(pair, "again")
    use(Meanwhile(usual, lambda: pair.hearer.remove_peer("ay"), verb))
    refused("no-such-peer", pair.sync)
    assert git("for-each-ref", "refs/clia/remotes/", "refs/clia/peers/", cwd=pair.place("hearer")) == ""


def test_a_peer_that_is_added_again_by_an_older_key_goes_on_from_where_it_was(pair: Pair) -> None:
    """Neither its newest key nor what was heard is forgotten; what plain git left under its name is not taken for its own."""
    old = pair.owner.key().text
    pair.owner.rotate_key()
    pair.sync()
    known = pair.hearer.peer("ay")
    assert len(known.keys) == 2
    pair.hearer.remove_peer("ay")
    pointed(pair, "hearer", "refs/clia/remotes/ay/agents/left", pair.hearer.spawn("left", BRIEFING).genesis)
    again = pair.hearer.add_peer("ay", old, pair.place("owner"))
    assert (again.keys, again.seq, again.agents) == (known.keys, known.seq, 0)
    pair.grant()
    assert (pair.sync().accepted, tracked(pair)) == (0, {"scout": pair.owner.head("scout")})


def test_a_space_that_has_had_all_its_keys_goes_on_with_the_last(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.federation.keys.CHAIN_MAX", 3)
    for _ in range(2):
        pair.owner.rotate_key()
    key = pair.owner.key()
    refused("too-many-keys", pair.owner.rotate_key)
    assert (pair.owner.key(), key.mine) == (key, True)
    new = moved_on(pair)
    assert (pair.sync().keys, tracked(pair)) == (2, {"scout": new})
    assert len(pair.owner.rotate_key(lost=True).chain) == 1  # as the hint says
