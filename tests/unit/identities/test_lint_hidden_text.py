"""Hidden text: characters that a reader cannot see."""

from __future__ import annotations

import pytest

from clia.identities.inheritance import CONTEXT, Layer
from clia.identities.lint import check_texts, hidden_characters


@pytest.mark.parametrize(
    "text",
    ["a\u200bb", "a\u200cb", "a\u200db", "\ufeffa", "a\u2060b", "a\u00adb", "a\u202eb", "\u2066a\u2069", "a\u200fb", "a\u061cb",
     "a\U000e0061b", "👍" + "\ufe0f\ufe0e", "👍" + "\U000e0101", "a\ufe0fb", "👩\u200d", "\u200d💻", "a\x07b", "a\x00b", "a\u3164b",
     "\U0001f3f4\U000e0061\U000e0062\U000e0063\U000e0064\U000e0065\U000e0066\U000e0067\U000e0068\U000e007f"],
)  # fmt: skip
def test_invisible_characters_are_found(text: str) -> None:
    assert hidden_characters(text)


@pytest.mark.parametrize(
    "text",
    ["plain\n\ttext\r\n", "naïve café", "👩‍💻", "👩🏽‍💻", "❤️", "🏳️‍🌈", "👨‍👩‍👧‍👦", "1️⃣ #️⃣", "🙂‍↔️", "‼️ \u2139\ufe0f ©️", "שלום",
     "مرحبا", "日本語",
     "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"],
)  # fmt: skip
def test_emoji_and_other_scripts_are_allowed(text: str) -> None:
    assert hidden_characters(text) == []


def test_keys_and_nested_strings_are_checked_and_have_a_pointer() -> None:
    document = {"a/b": [{"x\u200by": 1}, "z\u202e"], "fine": "ok"}
    diagnostics = list(check_texts("agent", Layer("p", document, "d", CONTEXT, None)))
    assert [(diagnostic.code, diagnostic.pointer) for diagnostic in diagnostics] == [
        ("hidden-text", "/a~1b/0/x\u200by"),
        ("hidden-text", "/a~1b/1"),
    ]
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in diagnostics[1].message
    assert "\u202e" not in diagnostics[1].message
