"""How a prompt becomes a briefing.

Invariant: what a prompt says is said word for word; only the places that it leaves open are filled, and only once: what is filled
in is never itself searched for such places.
"""

from __future__ import annotations

import re

from clia.kernel.typed_objects import Briefing

TASK, AGENT, TITLE = "task", "agent", "title"
_OPEN = re.compile(r"\{\{ ?(task|agent|title) ?\}\}")


def places(body: str) -> frozenset[str]:
    """What a prompt leaves open: task, agent, title, or nothing."""
    return frozenset(found[1] for found in _OPEN.finditer(body))


def rendered(body: str, task: str = "", *, agent: str = "", title: str = "") -> str:
    """A prompt's text with its open places filled. Where it has none for the task, the task follows it."""
    given = {TASK: task, AGENT: agent, TITLE: title}
    text = _OPEN.sub(lambda found: given[found[1]], body)
    if not task or TASK in places(body):
        return text
    return f"{text.rstrip()}\n\n{task}"


def briefing(cid: str, body: str, title: str, task: str = "", agent: str = "") -> Briefing:
    """The briefing that a prompt makes; it says which prompt that was."""
    return Briefing(title, rendered(body, task, agent=agent, title=title), cid)
