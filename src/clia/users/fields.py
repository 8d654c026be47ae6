"""Validation of the fields of users, tokens and login links."""

from __future__ import annotations

from clia.errors import InvalidInput
from clia.values.commit_messages import check_text
from clia.values.names import SLUG_MAX, is_slug

DISPLAY_MAX, EMAIL_MAX, LABEL_MAX = 100, 254, 100
MINUTES_MAX, DAYS_MAX = 24 * 60, 3650


def check_user_name(name: str) -> str:
    if is_slug(name):
        return name
    raise InvalidInput(
        f"{name!r} is not a valid user name",
        code="invalid-name",
        hints=[f"lower-case letters, digits and single hyphens, at most {SLUG_MAX} characters: ada-lovelace"],
        fields={"field": "name"},
    )


def check_email(email: str) -> str:
    text = check_line(email, "email", EMAIL_MAX)
    local, at, domain = text.rpartition("@")
    if text and (not local or not at or not domain or " " in text):
        raise InvalidInput(f"{text!r} is not an e-mail address", code="invalid-email", fields={"field": "email"})
    return text


def check_line(value: str, field: str, longest: int) -> str:
    """Return one stripped line of text. No angle brackets: a decision puts the address in them, and it must not be forged."""
    text = check_text(value, field).strip()
    if len(text) > longest:
        raise InvalidInput(f"{field} must have at most {longest} characters", code="invalid-text", fields={"field": field})
    if not text.isprintable() or "<" in text or ">" in text:
        raise InvalidInput(f"{field} must be one line of plain text without < and >", code="invalid-text", fields={"field": field})
    return text


def check_number(value: object, field: str, largest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise InvalidInput(f"{field} must be a number from 1 to {largest}", code=f"invalid-{field}", fields={"field": field})
    return value
