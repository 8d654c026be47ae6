"""Every shape of secret is redacted: as a whole text, coloured, and in chunks."""

from __future__ import annotations

import re

import pytest

from clia.redaction.secrets import START, redact, redact_chunk
from support.secret_shapes import SHAPES, SecretShape

_LEAK = 6  # this many consecutive characters of a secret
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[mK]")
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


def _leaks(shape: SecretShape, output: str) -> list[str]:
    plain = _ESCAPE.sub("", output)
    return [part for secret in shape.secrets for at in range(len(secret) - _LEAK + 1) if (part := secret[at : at + _LEAK]) in plain]


def _stream(text: str, size: int) -> str:
    state, output = START, ""
    for at in range(0, len(text), size):
        redaction, state = redact_chunk(text[at : at + size], state)
        output += redaction.text
    return output


def _coloured(shape: SecretShape) -> dict[str, str]:
    """The text as `grep --color` (a match in the secret, and one before it) and `jq -C` print it, and with a colour everywhere."""
    at = shape.text.index(shape.secrets[0])
    match, end = at + len(shape.secrets[0]) // 3, at + len(shape.secrets[0]) // 2
    text = shape.text
    return {
        "within": f"{text[:match]}\x1b[01;31m\x1b[K{text[match:end]}\x1b[m\x1b[K{text[end:]}",
        "before": f"{text[: at - 3]}\x1b[01;31m\x1b[K{text[at - 3 : at]}\x1b[m\x1b[K{text[at:]}"
        if at > 2
        else f"\x1b[1m{text}\x1b[m",
        "around": text.replace(shape.secrets[0], f"\x1b[0;32m{shape.secrets[0]}\x1b[0m"),
        "everywhere": "".join(f"\x1b[3{index % 8}m{char}" for index, char in enumerate(text)),
    }


def test_the_table_has_the_shapes_of_135_and_more() -> None:
    assert len({shape.name for shape in SHAPES}) == len({shape.text for shape in SHAPES}) == len(SHAPES) >= 240


@shapes
def test_a_shape_is_redacted(shape: SecretShape) -> None:
    for text in (shape.text, f"first {shape.text} last\n", f"+{shape.text}\n"):
        redaction = redact(text)
        assert _leaks(shape, redaction.text) == []
        assert redaction.count >= 1
        assert redact(redaction.text) == (redaction.text, 0)


@pytest.mark.parametrize("form", ["/home/ada/{}.txt", "backup-{}.sql", "notes_{}.md", "src/{}/a.py", " M {}", "rename {} => b"])
def test_a_token_in_a_file_name_is_redacted(form: str) -> None:
    """Except two whose characters also occur around them: a key of Mailgun after a word, and a secret of Azure."""
    tokens = [shape for shape in SHAPES[:92] if shape.name not in {"Azure client secret", "Mailgun key"}]
    assert [shape.name for shape in tokens if _leaks(shape, redact(form.format(shape.text)).text)] == []


@shapes
def test_a_shape_in_chunks_is_redacted(shape: SecretShape) -> None:
    for size in (1, 2, 7, 16):
        output = _stream(f"first {shape.text} last\n", size)
        assert _leaks(shape, output) == [], size
        assert output.startswith("first ")


@shapes
def test_a_coloured_shape_is_redacted(shape: SecretShape) -> None:
    for way, text in _coloured(shape).items():
        assert _leaks(shape, redact(f"first {text} last\n").text) == [], way
        assert _leaks(shape, _stream(f"first {text} last\n", 7)) == [], way
