"""Messages of agent commits: the agent's text, then trailers.

Invariant: a composed message is read back unchanged, by clia and by git (``git log --format=%(trailers)``, ``git interpret-trailers
--no-divider --parse``), whatever its text. Only leading and trailing newlines are removed; a blank message counts as empty.
"""

from __future__ import annotations

import re

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "Clia-"
TRACE, STATEMENT, PROOF = "Clia-Trace", "Clia-Statement", "Clia-Proof"
"""Trailers of evidence: the digest of the commit's trace, what a person stated, and its proofs."""
# A divider ends a message for `git interpret-trailers`; with a scissors line after it, git loops forever.
_SPECIAL = re.compile(r" *(?:---(?:\s.*)?|.{0,4}-{3,} *(?:>8|8<) *-{3,}.*)")
_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*): (.*)")


def compose(text: str, trailers: Iterable[tuple[str, str]], default: str) -> str:
    """Return the complete commit message. ``default`` is the subject if the text is empty."""
    check_text(text, "message")
    # Git skips blank lines before the subject, and would take the trailers as the subject.
    body = text.strip("\n") if text.strip(" \t\r\n") else default
    lines = [f" {line}" if _SPECIAL.fullmatch(line) else line for line in body.split("\n")]
    return "\n".join([*lines, "", *(f"{key}: {value}" for key, value in trailers)]) + "\n"


def parse(message: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text and its trailers. Without a trailer of clia's in the last paragraph, there are none."""
    lines = message.rstrip("\n").split("\n")
    start = len(lines)
    while start and lines[start - 1]:
        start -= 1
    matches = [_TRAILER.fullmatch(line) for line in lines[start:]]
    trailers = [(match.group(1), match.group(2)) for match in matches if match]
    if start == 0 or len(trailers) != len(matches) or not any(key.startswith(PREFIX) for key, _ in trailers):
        return message, []
    text = [line[1:] if line.startswith(" ") and _SPECIAL.fullmatch(line) else line for line in lines[: start - 1]]
    return "\n".join(text), trailers


def check_text(text: object, field: str, *, nul: bool = False, escaped: bool = False) -> str:
    """Return the text; ``InvalidInput`` if git (or, with ``nul``, JSON) cannot store it.

    ``escaped``: bytes that are not UTF-8 may be escaped, as in a path that Python reads from the system.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"the {field} must be text", code="invalid-text", fields={"field": field})
    if "\0" in text and not nul:
        raise InvalidInput(f"the {field} contains a NUL character", code="invalid-text", fields={"field": field})
    try:
        text.encode("utf-8", "surrogateescape" if escaped else "strict")
    except UnicodeEncodeError:
        raise InvalidInput(f"the {field} is not valid Unicode", code="invalid-text", fields={"field": field}) from None
    return text


def check_flag(value: object, field: str) -> bool:
    """Return the value if it is a boolean."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{field} must be true or false", code="invalid-flag", fields={"field": field, "value": repr(value)})
    return value


def check_count(value: object, field: str) -> int:
    """Return the value if it is an integer and not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"{field} must be a number from 0", code=f"invalid-{field}", fields={field: repr(value)})
    return value
