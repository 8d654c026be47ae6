"""Signed tokens have one encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.errors import BadSignature
from clia.values.canonical import canonical_bytes
from support.federation import VERIFIER, Speaker, encoded

if TYPE_CHECKING:
    from pathlib import Path


def test_a_token_has_one_valid_encoding(tmp_path: Path) -> None:
    """Base64 has several texts for the same bytes, and a statement is identified by its token."""
    speaker = Speaker.new(tmp_path)
    payload = b"{}"  # two bytes: three characters with unused bits
    header = encoded(canonical_bytes(speaker.header(typ="x")))

    def signed(*body: str) -> str:
        return f"{'.'.join(body)}.{encoded(speaker.private().sign('.'.join(body).encode()))}"

    def other_encodings(text: str) -> list[str]:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spare = text[:-1] + letters[letters.index(text[-1]) + 1]
        return [*([spare] if len(text) % 4 else []), text + "=" * (-len(text) % 4 or 4), text + "\n", f"{text[:2]}\n{text[2:]}"]

    good = signed(header, encoded(payload))
    assert VERIFIER.read(good, "x", [speaker.key]).payload == payload
    body, _, signature = good.rpartition(".")
    tokens = [signed(variant, encoded(payload)) for variant in other_encodings(header)]
    tokens += [signed(header, variant) for variant in other_encodings(encoded(payload))]
    tokens += [f"{body}.{variant}" for variant in other_encodings(signature)]
    for token in tokens:
        with pytest.raises(BadSignature):
            VERIFIER.read(token, "x", [speaker.key])
