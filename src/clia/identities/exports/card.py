"""The A2A AgentCard, version 1.0 of the protocol.

Invariant: every field that the specification requires is there, and every required list has an item.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from clia.errors import InvalidInput
from clia.identities.exports import profile, text
from clia.identities.projection import lines, name_of

if TYPE_CHECKING:
    from typing import Any

    from clia.identities.view import MergedDocument

PROTOCOL = "1.0"
_BINDING = "JSONRPC"
_MODES = ["text/plain"]


def card(merged: MergedDocument, url: str) -> bytes:
    """The card as JSON; text is one line each, since clients show it as names and descriptions."""
    made = {
        "name": text.line(merged.get("title") or merged["slug"]),
        "description": profile.summary(merged),
        "version": profile.content_hash(merged),
        "supportedInterfaces": [{"url": url, "protocolBinding": _BINDING, "protocolVersion": PROTOCOL}],
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": _skills(merged),
    }
    return (json.dumps(made, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def checked_url(url: str | None) -> str:
    """The address of the agent, or ``InvalidInput``."""
    from urllib.parse import urlsplit

    if url is None:
        raise InvalidInput(
            "an a2a-card needs the agent's address",
            code="url-needed",
            hints=["add --url https://…; without an address, leave a2a-card out of --to"],
            fields={"option": "--url"},
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        # A card is public: a password in it would be, too.
        usable = usable and parts.username is None and parts.password is None
    if not usable or not url.isprintable() or " " in url:
        raise InvalidInput(
            "--url must be an absolute http or https address without a user name",
            code="invalid-url",
            hints=["for example https://agents.example.org/scout"],
            fields={"option": "--url"},
        )
    return url


def _skills(merged: MergedDocument) -> list[dict[str, Any]]:
    """One skill a focus domain; an agent that names none has one skill, itself."""
    tags = [text.line(each) for each in merged.get("tags") or () if isinstance(each, str)]
    found: list[dict[str, Any]] = []
    taken: set[str] = set()
    for item in merged.get("focusDomains") or ():
        name = text.line(name_of(item) if isinstance(item, dict) else "") or text.line(" ".join(lines(item)))
        if name:
            own = _identifier(name, len(found) + 1, taken)
            found.append({"id": own, "name": name, "description": _described(item) or name, "tags": tags or [own]})
    if found:
        return found
    slug, name = merged["slug"], text.line(merged.get("title") or merged["slug"])
    return [{"id": slug, "name": name, "description": profile.summary(merged), "tags": tags or [slug]}]


def _described(item: Any) -> str:
    """What a focus domain says about itself beyond its name."""
    if not isinstance(item, dict):
        return ""
    given = [item[key] for key in ("description", "summary", "notes") if isinstance(item.get(key), str)]
    return next((text.line(each) for each in given if each.strip()), "")


def _identifier(name: str, position: int, taken: set[str]) -> str:
    plain = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:64].strip("-") or f"skill-{position}"
    found, copy = plain, 2
    while found in taken:
        found, copy = f"{plain}-{copy}", copy + 1
    taken.add(found)
    return found
