"""Prompt placeholders, and briefings made from prompts.

Invariant: a prompt's text is used unchanged; only its placeholders are filled, once, and filled text is not searched again.
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
    """The placeholders in a prompt: task, agent, title."""
    return frozenset(match[1] for match in _PLACEHOLDER.finditer(body))


def rendered(body: str, task: str = "", *, agent: str = "", title: str = "") -> str:
    """The prompt with its placeholders filled; without a task placeholder, the task is appended."""
    values = {TASK: task, AGENT: agent, TITLE: title}
    return _filled(body, task, lambda match: values[match[1]])


def readable(body: str, task: str = "", *, agent: str = "", title: str = "") -> str:
    """The same as ``rendered``, with readable default words for missing values."""
    values = {TASK: task, AGENT: agent, TITLE: title}
    return _filled(body, task, lambda match: values[match[1]] or _default_text(match))


def _filled(body: str, task: str, fill: Callable[[re.Match[str]], str]) -> str:
    text = _PLACEHOLDER.sub(fill, body)
    if not task or TASK in placeholders(body):
        return text
    return f"{text.rstrip()}\n\n{task}"


def _default_text(match: re.Match[str]) -> str:
    """The default for a missing value: a sentence if the task has its own line, otherwise a phrase."""
    before, after = match.string[: match.start()].rpartition("\n")[2], match.string[match.end() :].partition("\n")[0]
    return _TASK_ALONE if match[1] == TASK and not (before + after).strip() else _DEFAULT_WORDS[match[1]]


def briefing(cid: str, body: str, title: str, task: str = "", agent: str = "") -> Briefing:
    """The briefing made from a prompt, with the prompt's id."""
    return Briefing(title, rendered(body, task, agent=agent, title=title), cid)
