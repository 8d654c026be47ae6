"""A chain of keys can only be continued: every way to replace a key is refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from clia.errors import CliaError
from clia.federation.keys import (
    CHAIN_MAX,
    KEY_TOKEN_TYPE,
    PROOF_TYPE,
    SpaceIdentity,
    continue_chain,
    read_chain,
    read_identity,
    sign_link,
)
from clia.values.canonical import canonical_bytes
from support.federation import OTHER, OWNER, VERIFIER, Speaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.federation.signing import KeyFiles


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyFiles:
    return Speaker.new(tmp_path_factory.mktemp("keys")).ring


@pytest.fixture(scope="module")
def keys(ring: KeyFiles) -> tuple[str, ...]:
    return tuple(ring.make() for _ in range(4))


def chain(ring: KeyFiles, keys: Sequence[str], space: str = OWNER) -> list[str]:
    signers = [keys[0], *keys]
    return [sign_link(ring, space, number, key, signers[number - 1]) for number, key in enumerate(keys, 1)]


def error_code(call: Callable[[], object]) -> str:
    with pytest.raises(CliaError) as caught:
        call()
    return caught.value.code


def test_a_chain_is_read_and_continued(ring: KeyFiles, keys: tuple[str, ...]) -> None:
    """From the first key, from a later one, and with a chain that has nothing new or is older."""
    tokens = chain(ring, keys)
    assert read_chain(tokens, OWNER, VERIFIER) == keys
    assert continue_chain(keys[:1], tokens, OWNER, VERIFIER) == keys
    assert continue_chain(keys[1:2], tokens, OWNER, VERIFIER) == keys[1:]
    assert continue_chain(keys, tokens, OWNER, VERIFIER) == keys
    assert continue_chain(keys[1:], tokens[:3], OWNER, VERIFIER) == keys[1:]


def test_a_chain_that_does_not_continue_the_pinned_keys_is_refused(ring: KeyFiles, keys: tuple[str, ...]) -> None:
    """Another first key, a fork after the first or at the newest key, an empty chain, and one that ends before the pin."""
    a, b, c, d = keys
    for pinned, chain_keys in (
        ((a,), [b, c]),
        ((a, b), [a, c]),
        ((a, b), [a, c, b]),
        ((a, b, c), [a, b, d]),
        ((a, b), [b]),
        ((a, b), [c, b]),
        ((a,), []),
        ((c,), [a, b]),
        ((b, c), [a, c]),
        ((b, c), [a, b, d, c]),
    ):
        tokens = chain(ring, chain_keys) if chain_keys else []
        assert error_code(partial(continue_chain, pinned, tokens, OWNER, VERIFIER)) == "key-not-continued"


def signed(ring: KeyFiles, signer: str, payload: Any, typ: str = KEY_TOKEN_TYPE) -> str:
    return ring.sign(signer, typ, canonical_bytes(payload))


def test_every_invalid_link_is_refused(ring: KeyFiles, keys: tuple[str, ...]) -> None:
    a, b, c, _ = keys
    first, second = chain(ring, (a, b))
    proof = {"space": OWNER, "number": 3, "after": b}
    good = {"space": OWNER, "number": 3, "key": c, "proof": signed(ring, c, proof, PROOF_TYPE)}
    assert read_chain([first, second, signed(ring, b, good)], OWNER, VERIFIER) == (a, b, c)

    def proved(by: str, typ: str = PROOF_TYPE, **change: Any) -> list[str]:
        return [first, second, signed(ring, b, good | {"proof": signed(ring, by, proof | change, typ)})]

    respelled = c[:-1] + LETTERS[LETTERS.index(c[-1]) + 1]  # the same 32 bytes in another encoding
    broken = {
        "signed by itself": [first, second, signed(ring, c, good)],
        "signed by the one before the last": [first, second, signed(ring, a, good)],
        "of another space": [first, second, signed(ring, b, good | {"space": OTHER})],
        "another number": [first, second, signed(ring, b, good | {"number": 2})],
        "a number that is a text": [first, second, signed(ring, b, good | {"number": "3"})],
        "an extra field": [first, second, signed(ring, b, good | {"more": 1})],
        "an invalid key": [first, second, signed(ring, b, good | {"key": "x"})],
        "a key in another encoding": [first, second, signed(ring, b, good | {"key": respelled})],
        "nothing": [first, second, signed(ring, b, None)],
        "not JSON": [first, second, ring.sign(b, KEY_TOKEN_TYPE, b"\xff")],
        "JSON that is too deep": [first, second, ring.sign(b, KEY_TOKEN_TYPE, b"[" * 10_000)],
        "a statement": [first, second, signed(ring, b, good, "clia-announcement")],
        "back to the first": [first, second, signed(ring, b, good | {"key": a, "proof": signed(ring, a, proof, PROOF_TYPE)})],
        "a null proof": [first, second, signed(ring, b, {**good, "proof": None})],
        "a missing proof": [first, second, signed(ring, b, {key: good[key] for key in ("space", "number", "key")})],
        "a proof by the key before": proved(b),
        "a proof by another key": proved(a),
        "a proof for another space": proved(c, space=OTHER),
        "a proof for another number": proved(c, number=2),
        "a proof after another key": proved(c, after=a),
        "a proof with more in it": proved(c, more=1),
        "a proof of another kind": proved(c, KEY_TOKEN_TYPE),
        "out of order": [second, first],
        "twice": [first, second, second],
        "without its first": [second],
        "a first that another signed": [signed(ring, b, {"space": OWNER, "number": 1, "key": a})],
        "a first of another space": chain(ring, (a, b), OTHER),
        "not a token": [first, "x"],
        "too long": [first] * (CHAIN_MAX + 1),
    }
    for name, tokens in broken.items():
        assert error_code(partial(continue_chain, (a,), tokens, OWNER, VERIFIER)) == "malformed-key-chain", name


def test_the_number_of_keys_in_a_chain_is_limited(ring: KeyFiles, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.federation.keys.CHAIN_MAX", 3)
    assert read_chain(chain(ring, keys[:3]), OWNER, VERIFIER) == keys[:3]
    assert error_code(partial(read_chain, chain(ring, keys), OWNER, VERIFIER)) == "malformed-key-chain"


def test_an_identity_names_a_space_and_its_key(keys: tuple[str, ...]) -> None:
    good = SpaceIdentity(OWNER, keys[0])
    assert read_identity(f" {good.text}\n", VERIFIER) == good
    respelled = keys[0][:-1] + LETTERS[LETTERS.index(keys[0][-1]) + 1]
    for text in (
        "",
        keys[0],
        f"clia:{OWNER}",
        f"clia:{OWNER}:{keys[0]}x",
        f"clia:x:{keys[0]}",
        f"clia:{OWNER}:{'!' * 43}",
        good.text * 2,
    ):
        assert error_code(partial(read_identity, text, VERIFIER)) == "invalid-key"
    assert error_code(lambda: read_identity(f"clia:{OWNER}:{respelled}", VERIFIER)) == "invalid-key"
