"""What of a run takes time: tool calls, found by their two ends, and requests, from asking to answer.

Invariant: every entry that is an end of a tool call is in exactly one use of a tool; a request is told of once,
when it is answered.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import NamedTuple

from clia.sessions.runs import SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.sessions.runs import Placed

CALL, RESULT, FAILURE = "tool-call", "tool-result", "tool-failure"
TOOL_ENDS = frozenset((CALL, RESULT, FAILURE))
TEXT_MAX = 8 * 1024
NAME_MAX = 200
_WAITS = re.compile(r"([a-z][a-z0-9_-]*) \(([^()\s]+\.\d+)\)")


class Use(NamedTuple):
    """A tool call and how it ended, as far as either was traced: one of the two may be missing."""

    key: str
    call: Placed | None
    end: Placed | None

    @property
    def ends(self) -> list[Placed]:
        return [each for each in (self.call, self.end) if each is not None]

    def said(self, field: str) -> str | None:
        """A text that both ends may have."""
        return next((found for found in (text_of(each.data.get(field)) for each in self.ends) if found), None)

    @property
    def outcome(self) -> str:
        """``result`` or ``failure``; ``unknown`` where no end was traced."""
        return "unknown" if self.end is None else self.end.kind.removeprefix("tool-")


class Answered(NamedTuple):
    """A request of a session: when and of what kind it was asked, as far as that is known, and the entry that answers it."""

    id: str
    entry: Placed
    asked: int
    kind: str | None


def uses_of(entries: Iterable[Placed]) -> list[Use]:
    """Every use of a tool, in the order they began. Ends are matched by id; without one, a tool's oldest call ends first."""
    found: list[list[Placed | None]] = []
    waiting: dict[tuple[str, str | None], deque[int]] = {}
    for entry in entries:
        if entry.kind not in TOOL_ENDS:
            continue
        given, tool = text_of(entry.data.get("id")), text_of(entry.data.get("tool"))
        mark = ("id", given) if given else ("tool", tool)
        open_calls = waiting.setdefault(mark, deque())
        if entry.kind == CALL:
            open_calls.append(len(found))
            found.append([entry, None])
        elif open_calls and mark != ("tool", None):
            found[open_calls.popleft()][1] = entry
        else:
            found.append([None, entry])
    return _keyed(found)


def _keyed(found: Sequence[Sequence[Placed | None]]) -> list[Use]:
    """The tool's own id of a call makes its key: it is the same whichever end was traced first."""
    seen: Counter[str] = Counter()
    uses = []
    for call, end in found:
        use = Use("", call, end)
        given = use.said("id")
        key = f"id:{given}" if given else use.ends[0].identity
        seen[key] += 1
        uses.append(use._replace(key=f"{key}#{seen[key]}"))
    return uses


def answers_in(entries: Iterable[Placed]) -> list[Answered]:
    """The requests that were answered; what a session waits for stands at the end of what it says of itself."""
    asked: dict[str, tuple[int, str]] = {}
    found: dict[str, Answered] = {}
    for entry in entries:
        if entry.kind != SESSION:
            continue
        request = text_of(entry.data.get("request"))
        if request is not None and request not in found:
            at, kind = asked.get(request, (entry.at, None))
            found[request] = Answered(request, entry, min(at, entry.at), kind)
        _, waits, listed = entry.text.rpartition("; waits for ")
        for kind, name in _WAITS.findall(listed) if waits else ():
            asked.setdefault(name, (entry.at, kind))
    return list(found.values())


def text_of(value: object) -> str | None:
    """A short text; anything else counts as none."""
    return cut(value, NAME_MAX) if isinstance(value, str) and value else None


def cut(text: str, limit: int = TEXT_MAX) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def present(made: Mapping[str, Any]) -> dict[str, str | int]:
    """What there is to say; a collector takes only text that is Unicode."""
    return {
        key: value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
        for key, value in made.items()
        if value is not None and value != ""
    }
