"""The fields of users, and their checks. Each check names the field in its error."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clia.errors import InvalidInput
from clia.values.commit_messages import check_text

VIEWER, AGENT, DECIDER, ADMIN = ROLES = ("viewer", "agent", "decider", "admin")
"""In ascending order: each role includes those before it. An agent also records and asks, for the agents it is bound to."""
_EMAIL_MAX = 254


def invalid(field: str, message: str, code: str, *hints: str) -> InvalidInput:
    return InvalidInput(message, code=code, hints=list(hints), fields={"field": field})


def checked_role(role: str) -> str:
    if role in ROLES:
        return role
    raise invalid("role", f"{role!r} is not a role", "invalid-role", f"the roles are {', '.join(ROLES)}")


def checked_email(email: str) -> str:
    text = checked_line(email, "email", _EMAIL_MAX)
    local, _, domain = text.rpartition("@")
    if text and (not local or not domain or " " in text):
        raise invalid("email", f"{text!r} is not an e-mail address", "invalid-email")
    return text


def checked_line(value: str, field: str, longest: int) -> str:
    """Return one stripped line of text. No angle brackets: a decision puts the address in them, and it must not be forged."""
    text = check_text(value, field).strip()
    if len(text) > longest:
        raise invalid(field, f"{field} must have at most {longest} characters", "invalid-text")
    if not text.isprintable() or "<" in text or ">" in text:
        raise invalid(field, f"{field} must be one line of plain text without < and >", "invalid-text")
    return text


def checked_number(value: object, field: str, largest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise invalid(field, f"{field} must be a number from 1 to {largest}", f"invalid-{field}")
    return value


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_time(value: Any) -> bool:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return time.tzinfo is not None and 1 < time.year < 9999  # room for date arithmetic


def is_time_or_none(value: Any) -> bool:
    return value is None or is_time(value)


def lower_role(role: str, other: str) -> str:
    return min(role, other, key=ROLES.index)
