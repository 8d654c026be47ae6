"""The hub: a git server where the machines of one space meet.

Invariant: a ref moves at the hub by compare and swap, several all at once or not at all, and nothing is forced. What was read
there last is kept here; where the hub cannot be reached that is said, and changes nothing. What a machine did alone meanwhile
it owes, and the ledger says so before it is done.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.errors import TransportError
    from clia.git.records import Refs

Move = tuple[str, str | None, str | None]
"""A ref, what it is expected to point at, and what it is to point at; None: nothing."""
BRANCHES, APART = "branches", "published"
"""Where the hub keeps agents' heads: as branches, or apart from them, so that a forge offers no pull requests."""


class Away(NamedTuple):
    """The hub cannot be reached."""

    since: float  # seconds since the epoch
    reason: str


class Hub(Protocol):
    remote: str
    """What git calls it here."""
    heads: str
    """``BRANCHES`` or ``APART``."""

    @property
    def here(self) -> Refs:
        """The refs of this clone alone."""

    def address(self) -> str:
        """Where it is, without any password."""

    def away(self) -> Away | None:
        """Whether it could not be reached when somebody tried last."""

    def rests(self) -> bool:
        """Whether it was away a moment ago, and is not asked again yet."""

    def fetch(self, agent: str | None = None, *, insist: bool = False) -> bool:
        """Reads what the hub has of one agent and of what all share, or of everything; False where it cannot be reached.

        A hub that was away a moment ago is not asked again at once, unless one insists.
        """

    def read(self, *refs: str) -> bool:
        """Reads what the hub has at some refs; False where it cannot be reached, or was not a moment ago."""

    def known(self, ref: str) -> str | None:
        """What a shared ref was at the hub when it was read last."""

    def known_under(self, prefix: str) -> list[tuple[str, str]]:
        """The shared refs below a prefix as they were at the hub when it was read last, sorted by name."""

    def known_all(self) -> dict[str, str]:
        """Every shared ref as it was at the hub when it was read last."""

    def send(self, moves: Sequence[Move], *, patient: bool = False) -> None:
        """Moves refs at the hub: all, or none and ``StaleRef``. ``TransportError`` (hub-away) where it cannot be reached.

        What the hub itself does not allow is ``Denied`` (hub-refused). Here nothing moves but what is known of it. ``patient``:
        it may take as long as it takes.
        """

    def gone(self) -> TransportError:
        """Why the hub cannot be reached, for whoever cannot go on without it."""


class Ledger(Protocol):
    """Who has done what that the hub does not know yet."""

    def owes(self, ref: str) -> bool:
        """Whether this machine owes anything that goes along with a ref."""

    def owe(self, ref: str) -> None:
        """Notes it down, before the ref is moved."""

    def expect(self, moves: Sequence[Move]) -> None:
        """Notes what refs are to be, before they are moved anywhere: a machine that has something else has not seen the last."""
