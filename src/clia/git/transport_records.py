"""How another space is reached: by git, into a place apart from the repository, and by a bell.

Invariant: nothing that a peer sends is seen by the repository before ``admit``; no ref of the repository is ever written here.
Each transfer has limits in bytes and seconds, and every object passes git's own check.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from clia.git.records import Graph, Objects


class Limits(NamedTuple):
    """What one transfer may take."""

    bytes: int = 1024 * 1024 * 1024
    seconds: float = 600.0


class Fetched(NamedTuple):
    """What became of the ids that were asked for; those ``refused`` with code and reason."""

    arrived: tuple[str, ...]
    refused: Mapping[str, tuple[str, str]]


class Upload(NamedTuple):
    """A program that answers whoever fetches, over its standard input and output; and all that it sees of the environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


class Quarantine(Protocol):
    """A repository of its own that also sees ours; gone with everything in it when its block ends."""

    @property
    def objects(self) -> Objects: ...

    @property
    def graph(self) -> Graph: ...

    def tips(self, refs: Sequence[str], limits: Limits) -> dict[str, str]:
        """Fetches refs of the other side by name, with all they reach; those that it has, with their targets.

        ``TransportError`` where it cannot be reached; ``Denied`` with the codes of ``fetch`` where what it sends is refused.
        """

    def fetch(self, cids: Sequence[str], limits: Limits) -> Fetched:
        """Fetches commits by id with all they reach, each on its own merits: one that is refused spoils no other.

        Codes: ``missing-object``, ``not-a-commit``, ``bad-objects`` (git's check), ``too-large`` (by itself, also when unpacked),
        ``too-much`` (there was no room left beside the others: another transfer may bring it), ``too-slow``. The limits are those
        of the whole call. ``TransportError`` as above.
        """

    def admit(self) -> None:
        """Lets everything that arrived into the repository: it passed git's check, is complete, and no ref reaches it yet."""


class Transport(Protocol):
    def open(self, url: str, pass_: str | None = None, told: str | None = None) -> AbstractContextManager[Quarantine]:
        """A quarantine for what comes from an address. ``pass_``: the token that a forge of ours is shown.

        ``told``: below it are the refs that the other side may know we have: they need not be sent again. Of no other is it told.
        """

    def ring(self, url: str, knock: str) -> bool:
        """Tells a forge of ours that there is news; whether it took notice. Never an error: who is away will look later."""

    def show(self, audience: str, refs: Mapping[str, str]) -> None:
        """Makes what an audience may fetch from our forge: these names and targets, and nothing beyond what they reach.

        All at once; a target that is not there any more is left out.
        """

    def upload(self, audience: str, *, advertise: bool) -> Upload:
        """What answers an audience that fetches over HTTP, from what ``show`` made: with the refs, or to a request."""

    def check_remote(self, remote: str) -> None:
        """``NotFound`` (no-such-remote) where git knows no such remote."""

    def push(self, audience: str, remote: str) -> None:
        """Sends what ``show`` made for an audience to a remote of git's, any server. ``TransportError``: it does not take it."""
