"""One verb of a history: what it is done with."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import clia
    from support.fuzzer.place import Place

Facts = list[tuple[Any, ...]]
MANY = 12
"""Agents from which on no more are spawned."""


class Skipped(Exception):
    """There is nothing to do this verb with."""


class Act:
    """One verb: the open space, the choices of its step, and its text, which is unique."""

    def __init__(self, place: Place, space: clia.Space, seed: str) -> None:
        self.place = place
        self.space = space
        self.order = Random(seed)  # noqa: S311  # not a secret
        self.text = place.token
        self.path = f"file-{self.order.randrange(4)}"

    def one_of(self, things: list[Any]) -> Any:
        if not things:
            raise Skipped
        return self.order.choice(things)

    def agent(self) -> str:
        return str(self.one_of(self.space.agents()))

    def two_agents(self) -> tuple[str, str]:
        if len(self.space.agents()) < 2:
            raise Skipped
        one, two = self.order.sample(self.space.agents(), 2)
        return one, two

    def head(self, name: str) -> str:
        """The commit that was just made."""
        return str(self.space.head(name))
