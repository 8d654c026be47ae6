"""Values given to a name that says secret: ``password=…``, ``"api_key": "…"``, ``--token …``.

Invariant: every such value is found once, in one pass over the lower-case text; whether it is a secret is judged elsewhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.redaction.patterns import ASSIGNED, ASSIGNMENT, compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.redaction.patterns import Row

HINTS = ("pass", "secret", "token", "key", "pwd")
_NAME = r"(?P<name>pass(?:word|wd|phrase)?|pwd|secret|key|token)"
_HEAD = re.compile(rf"{_NAME}(?:{ASSIGNMENT}|(?P<gap>[ \t]{{1,4}}))(?P<quote>\\?[\"'`])?")
_AT_END = re.compile(rf"{_NAME}\Z")
_BEFORE_MAX = 48
_BEFORE_KEY = re.compile(r"(?:api|access|secret|private|auth|encryption|signing|master|account|shared)[_-]?\Z")
_BEFORE_TOKEN = re.compile(
    r"(?:access|auth|refresh|bearer|api|secret|bot|session|security|personal|private|deploy|oauth|git(?:hub|lab)|npm|slack)[_-]?\Z"
)
_LETTER = re.compile(r"[a-z]\Z")
_FLAG = re.compile(r"--[a-z-]*\Z")
_MARK = re.compile(r"\[redacted:[a-z0-9-]*\Z")


class Named(NamedTuple):
    """A value and how it was named."""

    start: int
    end: int
    row: Row
    faint: bool
    shell: bool


def lower_case(text: str) -> str:
    """As long as ``text``: the one letter that grows in lower case is no part of any name."""
    return text.replace("\u0130", "I").lower()


def named_values(text: str) -> Iterator[Named]:
    lower = lower_case(text)
    at = 0
    for head in _HEAD.finditer(lower):
        if head.end() <= at:
            continue
        before = lower[max(0, head.start() - _BEFORE_MAX) : head.start()]
        faint = _faint(head["name"], before)
        if faint is None or _MARK.search(before) or (head["gap"] and not _FLAG.search(before)):
            continue
        row = ASSIGNED[(head["quote"] or "")[:1]]
        value = compiled(row.find).match(text, head.end())
        if value:
            at = value.end()
            name_end = head.end("name")
            shell = lower[name_end : head.end()] == "=" and text[head.start() : name_end].isupper()
            yield Named(value.start(), at, row, faint and not shell, shell)


def secret_name(key: str) -> bool | None:
    """Does a name say that its value is a secret? None: no; True: only faintly, it is often that of something else."""
    lower = lower_case(key)
    name = _AT_END.search(lower)
    return _faint(name["name"], lower[: name.start()]) if name else None


def _faint(name: str, before: str) -> bool | None:
    if name == "key":
        return False if _BEFORE_KEY.search(before) else None
    if name == "token":
        return not _BEFORE_TOKEN.search(before)  # a lexer has tokens too
    if name in {"pass", "pwd"}:
        return None if _LETTER.search(before) else name == "pass"  # compass, a test's pass
    return False
