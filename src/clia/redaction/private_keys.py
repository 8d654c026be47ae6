"""Private keys between BEGIN and END lines, or in PuTTY's Private-Lines, whose lines may come one by one.

Invariant: a key's lines are never emitted; a text that only mentions a BEGIN line loses only that line. The state of a stream is a
word: `private-key` at the start of a line; `private-key.` and `private-key!header` within a line, followed by the hyphens at the
end of the chunk; `private-key!end` within the END line.
"""

from __future__ import annotations

import re

PEM = "private-key"
_MIDDLE, _HEADER, _END = f"{PEM}.", f"{PEM}!header", f"{PEM}!end"

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-Lines: ?[0-9]{1,4}")
_ENDED = re.compile(r"(?:KEY|BLOCK)(?:-----| ----)\Z")  # the complete END line: the next text is not part of it
_PUTTY_END = re.compile(r"[\s>|+#*]*+Private-(?:MAC|Hash): ?[a-f0-9]{40,64}+")
_LINE_END = re.compile(r"\n|\\n")  # escaped too: a key within JSON
_END_LINE = re.compile(r"[-A-Z0-9 ]*+")
_HEADER_LINE = re.compile(r"[\s>|+#*]*+(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject|X-[A-Za-z-]{1,30}):")
_HEADER_REST = re.compile(r"[\s>|+#*]*+[A-Za-z-]{0,16}:")  # of a name that was cut in two
_BODY_LINE = re.compile(r"[\s\"'>|+#*,:;.\\A-Za-z0-9/=-]*+")
_WORDS = re.compile(r"[A-Za-z]{2} +[A-Za-z]{2}")
_LONG = re.compile(r"[A-Za-z0-9+/]{60}")
_MIXED = re.compile(r"[a-z][^a-z]*[A-Z]|[A-Z][^A-Z]*[a-z]")
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/]{16}")
_LEADING = re.compile(r"(?:[\s\"'>|+#*,]*+[A-Za-z0-9+/=\\]{16,}+)*")
_RUN = re.compile(r"[A-Za-z0-9+/=\\]*+")


def pem_spans(text: str, *, cut: bool) -> list[tuple[int, int, str]]:
    """Where keys start and end, and the kind of key that the text ends in. ``cut``: the text continues elsewhere."""
    spans = []
    at = 0
    while begin := _BEGIN.search(text, at):
        end, inside = _body(text, begin.end(), PEM)
        at = end
        if _KEY_TEXT.search(text, begin.end(), end) or (cut and end == len(text)):
            spans.append((begin.start(), end, inside))
    return spans


def swallow_pem(text: str, inside: str) -> tuple[str, str]:
    """The rest of a chunk that starts inside a key, and the state at its end: "" if the key has ended."""
    end, inside = _body(text, 0, inside)
    return text[end:], inside


def _body(text: str, at: int, inside: str) -> tuple[int, str]:
    """The end of the key that continues at ``at``, and the state at the end of the text if the key continues beyond it."""
    while at < len(text):
        if inside == _END:
            return _after_end(text, at)
        stop = _LINE_END.search(text, at)
        line = text[at : stop.start() if stop else len(text)]
        dashes = inside.count("-") - PEM.count("-")
        dashed = "-" * dashes + line
        closing = dashed.find("----")
        if closing >= 0:
            return _after_end(text, at + max(0, closing - dashes))
        putty = _PUTTY_END.match(line)
        if putty:
            return at + putty.end(), ""
        pattern = _HEADER_REST if inside.startswith(_MIDDLE) else _HEADER_LINE
        header = inside.startswith(_HEADER) or pattern.match(line) is not None
        if not header and not _is_body(line):
            start = _RUN.match(text, at) if inside.startswith(_MIDDLE) else None
            return _end_of(_LEADING, text, start.end() if start else at), ""
        if stop is None:
            return len(text), (_HEADER if header else _MIDDLE) + "-" * (len(dashed) - len(dashed.rstrip("-")))
        at, inside = stop.end(), PEM
    return at, inside


def _after_end(text: str, at: int) -> tuple[int, str]:
    end = _end_of(_END_LINE, text, at)
    return end, _END if end == len(text) and not _ENDED.search(text, max(at, end - 12)) else ""


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _is_body(line: str) -> bool:
    """A line of a key: base64, possibly indented, quoted or numbered; not a line of words."""
    long = _LONG.search(line)
    return (long and _MIXED.search(long[0]) is not None) or (_BODY_LINE.fullmatch(line) is not None and not _WORDS.search(line))
