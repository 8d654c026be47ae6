"""Redact secrets in text, JSON values and streams.

Invariant: no part of a secret is emitted, however a stream is cut or coloured. A fragment that may start a token is replaced at
once and the rest is swallowed; only public parts (a prefix, a name, a few characters of a weak token) are emitted before that
is known. Everything else is unchanged, and redacting twice changes nothing. The next chunk may be a separate text: after a
complete token its ordinary words stay.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.redaction.named_values import HINTS as NAME_HINTS
from clia.redaction.named_values import (
    SHORT,
    SecretCandidate,
    is_ordinary,
    is_placeholder,
    is_secret,
    is_secret_so_far,
    looks_random,
    looks_typed,
    named_values,
    secret_name,
)
from clia.redaction.patterns import HINTS, ROWS, TOKEN_HEAD
from clia.redaction.private_keys import PEM, pem_spans, swallow_pem
from clia.redaction.vendor_tokens import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.redaction.vendor_tokens import SecretPattern

# Terminal escape sequences. `grep --color` and `jq -C` print them anywhere, even inside a secret, so secrets are matched on text
# without them.
ESC = "\x1b"
# SGR, erase (J, K, X) and the character set that `tput sgr0` selects; at the end of the text also an incomplete one.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,64}+(?:[mJKX]|\Z)|\([0AB]|\(?\Z)")
_RUN = re.compile(rf"(?:{_ESCAPE.pattern})+")
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-9;:]{0,64}|\(?)\Z")
_WORD = re.compile("[A-Za-z0-9_-]")
_SHORTEST = f"{ESC}[m"
MARK = "[redacted:{kind}]"
_MARKS = re.compile(r"\[redacted:[a-z0-9-]+\]")
_TAIL_MAX = 256  # longer than any name, user or prefix that makes what follows it a secret
_COLOURED_TAIL_MAX = 4 * _TAIL_MAX  # with the shortest sequence after each character
_WHOLE = " whole"
# Shorter ones are more likely cut in two; a quoted one continues until the closing quote.
_WHOLE_LEAST = {"": 8, "credential": 16, "basic": 1 << 30}
# Lines of .netrc before the password, and `- name: DB_PASSWORD` before `value: …`.
_CONTEXT_LINES = re.compile(
    r"(?:machine\s{1,8}\S{1,64}(?:\s{1,8}login\s{1,8}\S{1,64})?"
    r"|name:[ \t]{1,4}[\"']?(?ai:\w{0,48}(?:password|secret|token|key))[\"']?)[ \t\r]{0,4}\n[^\n]{0,64}\Z"
)
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z_-]*")
_JWK_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})
_ORDER = {name: index for index, name in enumerate((PEM, *ROWS))}


class Redacted(NamedTuple):
    """A text without secrets, and the number of secrets replaced."""

    text: str
    count: int  # type: ignore[assignment] # hides tuple.count, which a pair does not need


class RedactionState(NamedTuple):
    """State between two chunks of a stream. It never contains a part of a secret, so it may be stored."""

    tail: str  # the end of the current line as emitted, or an incomplete escape sequence inside a token
    inside: str  # the row of the token the chunk ended in, with `` whole`` where it had enough characters to be one, or ""


class _SecretSpan(NamedTuple):
    start: int
    end: int
    name: str  # of the row whose kind is shown
    inside: str  # what the stream is in after it, should the chunk end here


START = RedactionState("", "")


def redact(text: str) -> Redacted:
    """Redact a whole text, with nothing before or after it."""
    if ESC in text:
        return _redact_coloured(text)
    spans = _spans(text, cut=False)
    return _replace(text, spans, 0) if spans else Redacted(text, 0)


def secret_spans(text: str) -> list[tuple[int, int, str]]:
    """Where the secrets of a text without escape sequences start and end, and their kinds."""
    return [(span.start, span.end, _kind(span.name)) for span in _spans(text, cut=False)]


def _redact_coloured(text: str) -> Redacted:
    coloured = ColouredText(text)
    spans = _merge_overlaps(_coloured_spans(coloured, cut=False))
    return _replace(text, spans, 0, coloured) if spans else Redacted(text, 0)


def redact_chunk(text: str, state: RedactionState) -> tuple[Redacted, RedactionState]:
    """Redact one chunk of a stream; also return the state for the next chunk."""
    if not text:
        return Redacted("", 0), state
    if ESC in text or ESC in state.tail:
        return _redact_coloured_chunk(text, state)
    tail, inside = state
    consumed, inside = _swallow(text, inside) if inside else (0, "")
    if consumed:
        text, tail = text[consumed:], ""
    if not text:
        return Redacted("", 0), RedactionState("", inside)
    text_so_far = tail + text
    spans = [span for span in _spans(text_so_far, cut=True) if span.end > len(tail)]
    if tail:
        # The chunk may continue the last one or be a separate text: a secret in either reading is redacted.
        spans = _merge_overlaps(spans + [_moved(span, len(tail)) for span in _spans(text, cut=True)])
    redacted = _replace(text_so_far, spans, len(tail)) if spans else Redacted(text, 0)
    if spans and spans[-1].end == len(text_so_far):
        return redacted, RedactionState("", spans[-1].inside)
    context = _context_start(text_so_far)
    line = text_so_far.rfind("\n") + 1 if context is None else context
    start = max(line, spans[-1].end if spans else 0, len(text_so_far) - _TAIL_MAX)
    return redacted, RedactionState(text_so_far[start:], inside)


def _context_start(text: str) -> int | None:
    """The start of the lines that announce the value on the next line, if the text ends in or after them."""
    context = _CONTEXT_LINES.search(text) if "machine" in text or "name:" in text else None
    return context.start() if context else None


def _redact_coloured_chunk(text: str, state: RedactionState) -> tuple[Redacted, RedactionState]:
    """As ``redact_chunk``, for a chunk with escape sequences, or one that starts within such a sequence."""
    tail, inside = state
    escapes = ""  # of the part that is swallowed: colours must still end where they ended
    if inside:
        coloured = ColouredText(tail + text)
        consumed, inside = _swallow(coloured.plain, inside)
        if consumed == len(coloured.plain):
            shown = coloured.escapes(len(tail), len(coloured.text))
            return Redacted(shown, 0), RedactionState(incomplete_escape(coloured.text), inside)
        if consumed:
            _, end = coloured.span(0, consumed)
            escapes, text, tail = coloured.escapes(len(tail), end), coloured.text[end:], ""
    coloured = ColouredText(tail + text)
    spans = _coloured_spans(coloured, cut=True)
    if tail:
        start = coloured.escape_end(len(tail))
        spans += [_moved(span, start) for span in _coloured_spans(ColouredText(coloured.text[start:]), cut=True)]
    spans = _merge_overlaps([span for span in spans if span.end > len(tail)])
    redacted = _replace(coloured.text, spans, len(tail), coloured) if spans else Redacted(text, 0)
    redacted = redacted._replace(text=escapes + redacted.text)
    end = spans[-1].end if spans else 0
    after = coloured.text[end:]
    if spans and not ColouredText(after).plain:
        return redacted, RedactionState(incomplete_escape(after), spans[-1].inside)
    context = _context_start(coloured.plain)
    line = coloured.text.rfind("\n") + 1 if context is None else coloured.span(context, context + 1)[0]
    return redacted, RedactionState(shortened(coloured.text[max(line, end) :], _COLOURED_TAIL_MAX), inside)


def _coloured_spans(coloured: ColouredText, *, cut: bool) -> list[_SecretSpan]:
    """The secrets of a text with escape sequences, by their place in it."""
    spans = []
    for view in (coloured, coloured.with_boundaries()):
        if view is not None:
            for span in _spans(view.plain, cut=cut):
                start, end = view.span(span.start, span.end)
                spans.append(span._replace(start=start, end=end))
    return spans


def swallowed(text: str, state: RedactionState) -> int:
    """How many characters at the start of this chunk belong to the token that the last chunk ended in."""
    if not text or not state.inside:
        return 0
    if ESC not in text and ESC not in state.tail:
        return _swallow(text, state.inside)[0]
    coloured = ColouredText(state.tail + text)
    consumed, _ = _swallow(coloured.plain, state.inside)
    return coloured.span(0, consumed)[1] - len(state.tail) if consumed else 0


def mark(state: RedactionState) -> str:
    """Return the mark for the rest of a token, for a chunk that is shown by itself."""
    return MARK.format(kind=_kind(state.inside.removesuffix(_WHOLE)))


def redact_entry(text: str, state: Sequence[str] | None) -> tuple[str, int, RedactionState]:
    """Redact one trace entry of a stream. It is read alone, so a mark shows what it lost."""
    before = RedactionState(*state) if state else START
    clean, after = redact_chunk(text, before)
    return (mark(before) + clean.text, clean.count + 1, after) if swallowed(text, before) else (*clean, after)


def _kind(name: str) -> str:
    return PEM if name.startswith(PEM) else ROWS[name].kind


def check_public_name(name: object, what: str, redact_text: Callable[[str], tuple[str, int]] = redact) -> None:
    """Raise ``InvalidInput`` if a new name contains a secret: names are in refs, file names and messages, which stay."""
    clean, count = redact_text(name) if isinstance(name, str) else ("", 0)
    if count:
        hints = ["choose a name without it; names are public and stay in the history"]
        raise InvalidInput(f"{what} {clean!r} contains a secret", code="secret-in-name", hints=hints, fields={"name": clean})


def redact_value(value: Any) -> tuple[Any, int]:
    """Redact every string of a JSON value, also keys, and keep its structure."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return _redact_object(value)
    if isinstance(value, (list, tuple)):
        return _redact_list(value, "")
    return value, 0


def _redact_list(items: Sequence[Any], name: str) -> tuple[list[Any], int]:
    """``name``: the name of the values. An item that follows a flag (``--password``) is that flag's value."""
    result, total, flag = [], 0, ""
    for item in items:
        is_flag = isinstance(item, str) and _FLAG.fullmatch(item) is not None
        redacted, count = redact_value(item) if is_flag else _redact_member(flag or name, item)
        result.append(redacted)
        total += count
        flag = item if is_flag else ""
    return result, total


def _redact_member(name: str, value: Any) -> tuple[Any, int]:
    """The value of a name, which may say that it is a secret."""
    if name and isinstance(value, (list, tuple)):
        return _redact_list(value, name)
    redacted, count = redact_value(value)
    if name and isinstance(value, str) and _is_named_secret(name, value) and not _MARKS.fullmatch(redacted.strip()):
        return MARK.format(kind="assigned"), 1
    return redacted, count


def _redact_object(members: dict[Any, Any]) -> tuple[dict[Any, Any], int]:
    result: dict[Any, Any] = {}
    total = 0
    title = members.get("name", members.get("key"))  # {"name": "DB_PASSWORD", "value": "…"}
    for key, value in members.items():
        name, in_name = redact(key) if isinstance(key, str) else (key, 0)
        if key in _JWK_PRIVATE and "kty" in members and isinstance(value, str):
            redacted, count = MARK.format(kind="jwk"), int(_MARKS.fullmatch(value) is None)
        else:
            key_or_title = title if key == "value" else key
            redacted, count = _redact_member(key_or_title if isinstance(key_or_title, str) else "", value)
        while in_name and (name in result or name in members):  # two secret names may not become one
            name += "'"
        result[name] = redacted
        total += in_name + count
    return result, total


def _is_named_secret(name: str, value: str) -> bool:
    if ESC in name or ESC in value:
        name, value = ColouredText(name).plain, ColouredText(value).plain
    faint = secret_name(name)
    if faint is None or not value.strip() or is_placeholder(value):
        return False
    return not faint or looks_random(value) or (name.lower().endswith("pass") and looks_typed(value))


def _spans(text: str, *, cut: bool) -> list[_SecretSpan]:
    """The secrets of a text, in order and not overlapping. ``cut``: its end may be the middle of a token."""
    keys = pem_spans(text, cut=cut) if "PRIVATE KEY" in text or "Private-Lines" in text else []
    spans = [_SecretSpan(start, end, PEM, inside) for start, end, inside in keys]
    rows = [row for gate, hints in HINTS if gate in text for hint, hinted in hints if hint in text for row in hinted]
    for row in dict.fromkeys(rows):
        spans += _row_spans(row, text, cut=cut)
    if "=" in text or ":" in text or "--" in text or "_" in text:
        lower = text.lower()
        if any(hint in lower for hint in NAME_HINTS):
            spans += _named_spans(text, cut=cut)
    return _merge_overlaps(spans) if len(spans) > 1 else spans


def _moved(span: _SecretSpan, by: int) -> _SecretSpan:
    return span._replace(start=span.start + by, end=span.end + by)


def _row_spans(row: SecretPattern, text: str, *, cut: bool) -> list[_SecretSpan]:
    spans = []
    for match in compiled(row.find).finditer(text):
        start, end = match.span("s")
        complete = bool(compiled(row.full).fullmatch(match["s"])) if row.full else len(match["b"]) >= row.least
        at_end = cut and end == len(text)
        value = SecretCandidate(match["b"], row.value)
        complete = complete and (not row.value or is_secret(value))
        if complete or (at_end and (not row.value or is_secret_so_far(value))):
            spans.append(_SecretSpan(start, end, row.name, _inside(row, match["b"], complete=complete)))
    return spans


def _inside(row: SecretPattern, secret: str, *, complete: bool) -> str:
    """The state of a stream whose chunk ends after these characters; no state if the secret cannot continue."""
    if row.exact and compiled(row.exact).fullmatch(secret):
        return ""
    return row.name + _WHOLE if complete and len(secret) >= _WHOLE_LEAST.get(row.value, _WHOLE_LEAST[""]) else row.name


def _named_spans(text: str, *, cut: bool) -> list[_SecretSpan]:
    spans = []
    for start, end, row, faint, shell in named_values(text):
        value = SecretCandidate(text[start:end], row.value, text[end : end + 1], faint, shell)
        complete = is_secret(value)
        if is_secret_so_far(value) if cut and end == len(text) else complete:
            # A quote that is not closed yet says that more will come.
            spans.append(_SecretSpan(start, end, row.name, _inside(row, value.text, complete=complete and row.value != "quoted")))
    return spans


def _merge_overlaps(spans: list[_SecretSpan]) -> list[_SecretSpan]:
    """Merge overlapping spans. The first row of the table names the result; the last and widest span determines the stream's
    state."""
    merged: list[_SecretSpan] = []
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            name = min(last.name, span.name, key=_ORDER.__getitem__)
            inside = _wider(last, span) if last.end == span.end else max(last, span, key=lambda span: span.end).inside
            span = _SecretSpan(last.start, max(last.end, span.end), name, inside)  # noqa: PLW2901 - the union takes its place
        merged.append(span)
    return merged


def _wider(first: _SecretSpan, second: _SecretSpan) -> str:
    """The state of a stream after two spans that end at the same position."""
    if first.start == second.start and not (first.inside and second.inside):
        return ""  # the value is a token of one length, and it is complete
    return max(first.inside, second.inside, key=lambda inside: _ORDER.get(inside.removesuffix(_WHOLE), 0))


def _replace(text: str, spans: list[_SecretSpan], consumed: int, coloured: ColouredText | None = None) -> Redacted:
    """``text`` from ``consumed`` on with a mark for each span, and the span's escape sequences behind the mark."""
    at = consumed if coloured is None else coloured.escape_end(consumed)  # a mark must not split a sequence
    parts = [text[consumed:at]]
    for span in spans:
        parts += [text[at : span.start], MARK.format(kind=_kind(span.name))]
        if coloured is not None:
            parts.append(coloured.escapes(max(span.start, at), span.end))
        at = span.end
    parts.append(text[at:])
    return Redacted("".join(parts), len(spans))


def _swallow(text: str, inside: str) -> tuple[int, str]:
    """How much of a chunk that starts inside a token belongs to it, and the token that the stream is in at the chunk's end, or
    ""."""
    if inside.startswith(PEM):
        left, inside = swallow_pem(text, inside)
        return len(text) - len(left), inside
    row = ROWS.get(inside.removesuffix(_WHOLE))
    continuation = compiled(row.rest).match(text) if row else None
    if row is None or continuation is None:
        return 0, ""
    end = continuation.end()
    if inside.endswith(_WHOLE) and is_ordinary(text, end):
        return 0, inside if end == len(text) < SHORT else ""
    if row.after_comma and "," in continuation[0]:
        inside = row.after_comma
    return end, inside if end == len(text) else ""


class ColouredText:
    """A text with escape sequences, and ``plain``, the same text without them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._escapes = [match.span() for match in _ESCAPE.finditer(text)]
        self._remove(self._escapes)

    def _remove(self, removed: list[tuple[int, int]]) -> None:
        parts, at, length = [], 0, 0
        self._places: list[int] = []  # in ``plain``, of what was removed
        self._lengths = [0]  # of all that was removed up to and including each
        for start, end in removed:
            parts.append(self.text[at:start])
            self._places.append(start - length)
            length += end - start
            self._lengths.append(length)
            at = end
        parts.append(self.text[at:])
        self.plain = "".join(parts)

    def with_boundaries(self) -> ColouredText | None:
        """The same text, with an ESC kept in ``plain`` where a token starts at a colour in the middle of a word.

        None if there is no such place.
        """
        head = compiled(TOKEN_HEAD)
        starts = {place for place in self._places if place and _WORD.match(self.plain, place - 1) and head.match(self.plain, place)}
        if not starts:
            return None
        other = ColouredText(self.text)
        removed = zip(self._escapes, self._places, strict=True)
        other._remove([(start + (place in starts), end) for (start, end), place in removed])
        return other

    def span(self, start: int, end: int) -> tuple[int, int]:
        """A span of ``plain`` as a span of ``text``."""
        return self._index(start), self._index(end - 1) + 1

    def _index(self, at: int) -> int:
        return at + self._lengths[bisect_right(self._places, at)]

    def escape_end(self, at: int) -> int:
        """An index in ``text``, moved to the end of the sequence that it is inside of."""
        number = bisect_left(self._escapes, (at, 0))
        return max(at, self._escapes[number - 1][1]) if number else at

    def escapes(self, start: int, end: int) -> str:
        """The sequences, or the parts of them, between two indexes of ``text``."""
        first, last = bisect_left(self._escapes, (start, 0)), bisect_left(self._escapes, (end, 0))
        parts = [self.text[start : self.escape_end(start)]]
        return "".join([*parts, *(self.text[low:high] for low, high in self._escapes[first:last])])


def incomplete_escape(text: str) -> str:
    """The start of an escape sequence that a text ends with, or ""."""
    match = _INCOMPLETE.search(text)
    return match[0] if match else ""


def shortened(text: str, limit: int) -> str:
    """The end of a text, about ``limit`` characters, with every run of escape sequences as short as possible."""
    incomplete = incomplete_escape(text)
    body = _RUN.sub(_SHORTEST, text[: len(text) - len(incomplete)])
    return (body[-limit:].removeprefix("[m") if len(body) > limit else body) + incomplete
