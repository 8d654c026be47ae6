"""Who moved last: the newest heads of a space, of agents at work or archived, kept as a short list.

Invariant: the list holds the heads with the newest commits, in order, as far as it goes; where it holds all agents it says so.
What leaves it is not made up for: once it is too short to tell, it is made anew.
"""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

KEPT, FEWEST = 1_000, 500


class Newest(NamedTuple):
    heads: list[tuple[int, str]]  # when, and the agent; the newest first
    whole: bool  # there are no other agents

    def to_json(self) -> dict[str, Any]:
        return {"heads": [list(each) for each in self.heads], "whole": self.whole}

    def moved(self, heads: Mapping[str, int | None]) -> Newest | None:
        """The list after some agents moved: when each one's head was made; None for one that went. None: it cannot tell."""
        last = self.heads[-1][0] if self.heads else 0
        came = [(at, name) for name, at in heads.items() if at is not None and (self.whole or at >= last)]
        found = sorted([*(each for each in self.heads if each[1] not in heads), *came], key=_newest_first)
        if not self.whole and len(found) < FEWEST:
            return None
        return Newest(found[:KEPT], self.whole and len(found) <= KEPT)


def made(heads: Iterable[tuple[int, str]]) -> Newest:
    """The list, made anew from all agents."""
    found = nlargest(KEPT + 1, heads)
    return Newest(sorted(found[:KEPT], key=_newest_first), len(found) <= KEPT)


def from_json(value: Any) -> Newest | None:
    try:
        heads = [(at, name) for at, name in value["heads"] if type(at) is int and type(name) is str]
        return Newest(heads, bool(value["whole"]))
    except (TypeError, KeyError, ValueError):
        return None  # an index that cannot be read is none


def _newest_first(head: tuple[int, str]) -> tuple[int, str]:
    return -head[0], head[1]
