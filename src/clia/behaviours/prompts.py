"""How a prompt becomes a briefing, or a text for whoever reads it.

Invariant: what a prompt says is said word for word; only the places that it leaves open are filled, and only once: what is filled
in is never itself searched for such places.
"""

from __future__ import annotations

import re

from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TASK, AGENT, TITLE = "task", "agent", "title"
_PLACEHOLDER = re.compile(r"\{\{ ?(task|agent|title) ?\}\}")
_DEFAULT_WORDS = {TASK: "the task that you are given", AGENT: "the agent that reads this", TITLE: "the task at hand"}
_TASK_ALONE = "The task is the one that you are given."


def placeholders(body: str) -> frozenset[str]:
    """What a prompt leaves open: task, agent, title, or nothing."""
    return frozenset(found[1] for found in _PLACEHOLDER.finditer(body))


def rendered(body: str, task: str = "", *, agent: str = "", title: str = "") -> str:
    """A prompt's text with its open places filled. Where it has none for the task, the task follows it."""
    given = {TASK: task, AGENT: agent, TITLE: title}
    return _filled(body, task, lambda found: given[found[1]])


def readable(body: str, task: str = "", *, agent: str = "", title: str = "") -> str:
    """The same for whoever reads a prompt before all is known: what nobody has said is filled with words that read well."""
    given = {TASK: task, AGENT: agent, TITLE: title}
    return _filled(body, task, lambda found: given[found[1]] or _default_text(found))


def _filled(body: str, task: str, fill: Callable[[re.Match[str]], str]) -> str:
    text = _PLACEHOLDER.sub(fill, body)
    if not task or TASK in placeholders(body):
        return text
    return f"{text.rstrip()}\n\n{task}"


def _default_text(place: re.Match[str]) -> str:
    """A task mostly has a line of its own: there a few words would stand about, and it takes a sentence."""
    before, after = place.string[: place.start()].rpartition("\n")[2], place.string[place.end() :].partition("\n")[0]
    return _TASK_ALONE if place[1] == TASK and not (before + after).strip() else _DEFAULT_WORDS[place[1]]


def briefing(cid: str, body: str, title: str, task: str = "", agent: str = "") -> Briefing:
    """The briefing that a prompt makes; it says which prompt that was."""
    return Briefing(title, rendered(body, task, agent=agent, title=title), cid)
