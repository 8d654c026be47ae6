from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import BadSignature
from clia.federation.announcing import CLOCK_SKEW, FETCH_TOKEN, TOKEN_SECONDS
from clia.values.canonical import canonical_bytes
from support.federation import OTHER, OWNER, VERIFIER, Pair, Speaker, codes, encoded
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@pytest.fixture
def still(pair: Pair) -> Iterator[tuple[clia.Space, list[datetime]]]:
    """The hearer, by a clock that stands; and that clock."""
    clock = [datetime(2027, 1, 1, tzinfo=UTC)]
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=lambda: clock[0])
    with clia.open(pair.place("hearer"), settings=settings) as space:
        yield space, clock


def test_a_pass_is_good_to_the_second_and_is_its_spaces_not_its_keys(pair: Pair, still: tuple[clia.Space, list[datetime]]) -> None:
    """Another peer that is pinned with the same key shuts nobody out."""
    space, clock = still
    now, owner = int(clock[0].timestamp()), pair.speaker()

    def shown(exp: int, of: str = owner.space) -> str:
        said = canonical_bytes({"space": of, "aud": space.id, "exp": exp})
        return space.peer_tokens.authenticate(owner.signed(said, owner.header(typ=FETCH_TOKEN)), FETCH_TOKEN).name

    assert {shown(exp) for exp in (now - CLOCK_SKEW + 1, now + TOKEN_SECONDS + CLOCK_SKEW)} == {"ay"}
    for exp in (now - CLOCK_SKEW, now + TOKEN_SECONDS + CLOCK_SKEW + 1):
        refused("expired", partial(shown, exp))
    for name, of in (("aa", OTHER), ("zz", OWNER)):
        space.add_peer(name, f"clia:{of}:{owner.key}")
        assert (shown(now), shown(now, of)) == ("ay", name)


def test_a_token_has_one_spelling(tmp_path: Path) -> None:
    """Base64 has several for the same bytes; a statement is known by its token, and would be heard as another one."""
    speaker = Speaker.new(tmp_path)
    payload = b"{}"  # two bytes: three characters, with bits to spare
    header = encoded(canonical_bytes(speaker.header(typ="x")))

    def signed(*body: str) -> str:
        return f"{'.'.join(body)}.{encoded(speaker.private().sign('.'.join(body).encode()))}"

    def respelled(text: str) -> list[str]:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spare = text[:-1] + letters[letters.index(text[-1]) + 1]
        return [*([spare] if len(text) % 4 else []), text + "=" * (-len(text) % 4 or 4), text + "\n", f"{text[:2]}\n{text[2:]}"]

    good = signed(header, encoded(payload))
    assert VERIFIER.read(good, "x", [speaker.key]).payload == payload
    body, _, signature = good.rpartition(".")
    spelled = [signed(each, encoded(payload)) for each in respelled(header)]
    spelled += [signed(header, each) for each in respelled(encoded(payload))]
    spelled += [f"{body}.{each}" for each in respelled(signature)]
    for token in spelled:
        with pytest.raises(BadSignature):
            VERIFIER.read(token, "x", [speaker.key])
