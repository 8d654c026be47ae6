"""What goes along with an agent's commits: a session, where it has one.

Invariant: the space knows that something goes along, and not what it is.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.space.envelope import Binding


class Beside(NamedTuple):
    """What is bound and kept together with a commit."""

    notes: tuple[Binding, ...] = ()
    puts: tuple[tuple[str, Any], ...] = ()


class Companion(Protocol):
    def behaviour(self, name: str) -> str | None:
        """The behaviour that an agent runs at this moment."""

    def beside(self, name: str, commit: str) -> Beside:
        """What is to be kept with a commit of the agent; the caller holds its lock."""

    def at_work(self, name: str) -> str | None:
        """Why an agent cannot be put away now, if so."""


class Alone:
    """Nothing goes along."""

    def behaviour(self, name: str) -> str | None:
        del name
        return None

    def beside(self, name: str, commit: str) -> Beside:
        del name, commit
        return Beside()

    def at_work(self, name: str) -> str | None:
        del name
        return None
