"""No secret leaks from a stream, however it is cut into chunks, and no other text is changed."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clia.redaction.secrets import START, mark, redact, redact_chunk, swallowed
from support.fake_secrets import ALNUM, FAKES, PEM_KEYS, Fake

_RUN = 6  # this many consecutive characters of a secret are a leak

_LINES = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "commit 9f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
    "index 77ab01fe..c0ffee12 100644",
    "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    "    def get_token(self, name: str) -> str | None:",
    "        return self._tokens.get(name)  # sk-learn, task-list, disk-usage",
    "request 123e4567-e89b-12d3-a456-426614174000 took 12.5 ms",
    "see https://example.com:8443/a/b?c=d#e or ssh://git@host:22/x.git",
    "jane@example.org wrote: http://localhost:3000/ is up",
    "password = input()",
    "token = self.tokenizer.next()",
    "npm_config_registry=https://registry.example.org/ npm ci",
    'import { key } from "./key.js"; const key2 = keys["a"];',
    '{"name": "x", "tokens": 12, "key": "v1.0", "ok": true}',
    "INFO 2026-07-01T12:00:00Z worker: 14 of 20 done, MB free: 512",
    "-rw-r--r-- 1 user group 4096 Jan 1 12:00 secrets.py",
    "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "grüße aus Köln, 東京 🚀 \x1b[32mgreen\x1b[0m",
    "PASSWORD=${PASSWORD} TOKEN=$TOKEN API_KEY=<key>",
)
ordinary = st.lists(st.sampled_from(_LINES), max_size=4).map("\n".join)
fakes = st.sampled_from(FAKES)


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """The text in chunks: single characters, or cut at random positions."""
    if draw(st.booleans()):
        return list(text)
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def stream(chunks: list[str]) -> tuple[str, int, list[str]]:
    """The output, the number of secrets, and every intermediate state as text."""
    state, output, count, states = START, "", 0, []
    for chunk in chunks:
        redaction, state = redact_chunk(chunk, state)
        output, count = output + redaction.text, count + redaction.count
        states.append("".join(state))
    return output, count, states


def leaks(secret: str, output: str) -> list[str]:
    return [run for at in range(len(secret) - _RUN + 1) if (run := secret[at : at + _RUN]) in output]


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.before[:12] + fake.public)
def test_a_token_cut_at_one_or_all_positions_does_not_leak(fake: Fake) -> None:
    text = f"first {fake.text} last\n"
    for chunks in [list(text), *([text[:at], text[at:]] for at in range(len(text)))]:
        output, count, states = stream(chunks)
        assert (leaks(fake.secret, output), leaks(fake.secret, "\n".join(states)), count) == ([], [], 1), chunks
        assert output.startswith(f"first {fake.before}")
        assert output.endswith(" last\n")


@given(fakes, ordinary, ordinary, st.data())
def test_a_token_cut_at_random_positions_does_not_leak(fake: Fake, before: str, after: str, data: st.DataObject) -> None:
    text = f"{before}\n{fake.text} {after}" if data.draw(st.booleans()) else f"{before} {fake.text}\n{after}"
    output, count, states = stream(data.draw(cuts(text)))
    assert leaks(fake.secret, output) == []
    assert [state for state in states if leaks(fake.secret, state)] == []
    assert count >= 1
    assert f"[redacted:{fake.kind}]" in output or "[redacted:assigned]" in output or "[redacted:authorization]" in output


@given(st.sampled_from(PEM_KEYS), ordinary, ordinary, st.sampled_from(["\n", "\r\n", "\\n", "\n  "]), st.data())
def test_a_private_key_cut_at_random_positions_does_not_leak(
    fake: Fake, before: str, after: str, newline: str, data: st.DataObject
) -> None:
    key = fake.text.replace("\n", newline)
    output, count, states = stream(data.draw(cuts(f"{before}\n{key}\ndone\n{after}")))
    body = ALNUM + ALNUM
    assert leaks(body, output) == []
    assert [state for state in states if leaks(body, state)] == []
    assert count == 1
    assert output.startswith(f"{before}\n")
    assert output.endswith(f"[redacted:private-key]\ndone\n{after}")


@given(fakes, st.sampled_from(["word", "x", "1", "_", "-", "/", "key", '"']))
def test_a_token_at_the_start_of_a_chunk_does_not_leak(fake: Fake, end: str) -> None:
    """Entries of a trace need not end with a newline, and the next one need not continue the last one."""
    output, count, states = stream([f"first {end}", f"{fake.text} last\n"])
    assert leaks(fake.secret, output) == []
    assert [state for state in states if leaks(fake.secret, state)] == []
    assert count >= 1


@given(st.text("abcdefXYZ0123456789", min_size=36, max_size=36), st.data())
def test_tokens_of_any_characters_do_not_leak(secret: str, data: st.DataObject) -> None:
    output, count, _ = stream(data.draw(cuts(f"use ghp_{secret} or gho_{secret}\n")))
    assert count == 2
    assert re.fullmatch(r"use (g|gh|ghp|ghp_)?MARK or (g|gh|gho|gho_)?MARK\n", output.replace("[redacted:github-token]", "MARK"))


@given(st.text("abcdefXYZ0123456789", min_size=20, max_size=36), st.data())
def test_a_token_of_any_length_that_is_cut_once_loses_at_most_a_word(secret: str, data: st.DataObject) -> None:
    """Text after a possibly complete token stays only if it is an ordinary word or a number."""
    at = data.draw(st.integers(1, len(secret)))
    output, count, _ = stream([f"use glpat-{secret[:at]}", f"{secret[at:]} now\n"])
    rest = output.removeprefix("use [redacted:gitlab-token]").removesuffix(" now\n")
    assert count == 1
    assert rest == "" or (at >= 20 and rest == secret[at:] and re.fullmatch("[a-z]+|[A-Z]+|[A-Z][a-z]+|[0-9]+", rest))


@given(st.sampled_from(FAKES), st.sampled_from(["passed", "Refunds retry twice", "ERROR: build failed", "HTTP/1.1 200 OK", "404"]))
def test_the_entry_after_a_text_that_ends_in_a_token_is_kept_or_marked(fake: Fake, second: str) -> None:
    _, state = redact_chunk(fake.text, START)
    redaction, _ = redact_chunk(second, state)
    length = swallowed(second, state)
    assert redaction == (second[length:], 0)
    # A token of 1Password contains a JWT, whose end is not known.
    marks = {f"[redacted:{kind}]" for kind in (fake.kind, "assigned", "url-password", "jwt")}
    assert (mark(state) if length else "") in {"", *marks}


@given(ordinary, st.data())
def test_ordinary_text_in_chunks_is_unchanged(text: str, data: st.DataObject) -> None:
    assert stream(data.draw(cuts(text)))[:2] == (text, 0)


@given(st.text(max_size=200), st.data())
@example("[redacted:jwt]=abcdef123456", None)
def test_random_text_without_secrets_is_unchanged(text: str, data: st.DataObject | None) -> None:
    chunks = data.draw(cuts(text)) if data else list(text)
    assert stream(chunks)[:2] == (text, 0)


@given(
    st.lists(st.one_of(fakes, st.sampled_from(PEM_KEYS)).map(lambda fake: fake.text) | st.sampled_from(_LINES), max_size=5),
    st.data(),
)
def test_redacting_twice_changes_nothing(parts: list[str], data: st.DataObject) -> None:
    glue = data.draw(st.sampled_from([" ", "\n", "", "=", '"', ":", "@", "/", "-", ", "]))
    text = glue.join(parts)
    redacted = redact(text).text
    assert redact(redacted) == (redacted, 0)
    streamed = stream(data.draw(cuts(text)))[0]
    assert redact(redact(streamed).text).count == 0


@given(st.lists(fakes.map(lambda fake: fake.text) | st.sampled_from(_LINES), max_size=6))
def test_a_stream_of_complete_lines_is_redacted_line_by_line(lines: list[str]) -> None:
    output, count, _ = stream([f"{line}\n" for line in lines])
    redactions = [redact(f"{line}\n") for line in lines]
    assert (output, count) == (
        "".join(redaction.text for redaction in redactions),
        sum(redaction.count for redaction in redactions),
    )


_CODES = (
    *("\x1b[31m", "\x1b[0m", "\x1b[m", "\x1b[1;38;5;208m", "\x1b[38:2::1:2:3m", "\x1b[K", "\x1b[0K", "\x1b[2J"),
    *("\x1b[01;31m\x1b[K", "\x1b(B\x1b[m"),
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:]*[A-Za-z]|\(B)")


@st.composite
def coloured(draw: st.DrawFn, text: str) -> str:
    """The text with colour and erase codes at some positions, or after every character."""
    if draw(st.integers(0, 9)) == 0:
        return "".join(char + draw(st.sampled_from(_CODES)) for char in text)
    places = draw(st.dictionaries(st.integers(0, len(text)), st.sampled_from(_CODES), max_size=8))
    for at in sorted(places, reverse=True):
        text = text[:at] + places[at] + text[at:]
    return text


@given(fakes, ordinary, ordinary, st.data())
def test_a_coloured_token_does_not_leak_whole_or_in_chunks(fake: Fake, before: str, after: str, data: st.DataObject) -> None:
    text = f"{before}\n{data.draw(coloured(fake.text))} {after}\n"
    redaction = redact(text)
    assert leaks(fake.secret, _ESCAPES.sub("", redaction.text)) == []
    assert redaction.count >= 1
    assert redact(redaction.text) == (redaction.text, 0)
    output, count, states = stream(data.draw(cuts(text)))
    assert leaks(fake.secret, _ESCAPES.sub("", output)) == []
    assert [state for state in states if leaks(fake.secret, _ESCAPES.sub("", state))] == []
    assert count >= 1
    assert _ESCAPES.sub("", output).endswith(f" {_ESCAPES.sub('', after)}\n")


@given(st.sampled_from(PEM_KEYS), ordinary, st.data())
def test_a_coloured_private_key_does_not_leak(fake: Fake, after: str, data: st.DataObject) -> None:
    text = f"cat key\n{data.draw(coloured(fake.text))}\ndone\n{after}"
    for output in (redact(text).text, stream(data.draw(cuts(text)))[0]):
        assert leaks(ALNUM + ALNUM, _ESCAPES.sub("", output)) == []
        assert output.endswith(f"\ndone\n{after}")


@given(ordinary.flatmap(coloured), st.data())
def test_coloured_ordinary_text_is_unchanged(text: str, data: st.DataObject) -> None:
    assert redact(text) == (text, 0)
    assert stream(data.draw(cuts(text)))[:2] == (text, 0)


@given(fakes, st.data())
def test_every_escape_sequence_of_a_redacted_text_is_kept(fake: Fake, data: st.DataObject) -> None:
    """A colour that starts before or inside a secret must end at the same position."""
    text = f"first {data.draw(coloured(fake.text))} last\n"
    for output in (redact(text).text, stream(data.draw(cuts(text)))[0]):
        assert _ESCAPES.findall(output) == _ESCAPES.findall(text)
