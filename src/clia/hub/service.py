"""The verbs of a space that are about its hub.

Invariant: nothing is decided here but the order of things: our line of a fork is an agent of its own before the hub's line takes
the name.
"""

from __future__ import annotations

from clia.errors import InvalidInput, NotFound
from clia.hub.records import FORK
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clia.hub.meeting import Meeting
    from clia.hub.records import HubStatus, Synced
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope

    Progress = Callable[[int, int], None]


class HubVerbs:
    """A part of ``Space``."""

    _core: Core
    _envelope: Envelope
    _agents: Agents
    _meeting: Meeting | None

    @property
    def has_hub(self) -> bool:
        """Whether this clone shares its refs with other machines."""
        return self._meeting is not None

    def hub_status(self) -> HubStatus:
        """How this clone and its hub stand to each other, as far as is known; nothing is asked."""
        return self._hub().status()

    def hub_sync(
        self, *, forks: Mapping[str, str] | None = None, abandon: Sequence[str] = (), progress: Progress | None = None
    ) -> list[Synced]:
        """Takes over what the hub has, and publishes what it has not; what became of each ref that differed.

        ``forks``: agents that went two ways, and under which new name ours goes on. ``abandon``: agents whose last work is on a
        machine that does not come back; it is given up.
        """
        hub = self._hub()
        hub.take_over(abandon)
        done = hub.sync(progress)
        for name, new in (forks or {}).items():
            done = [each for each in done if (each.ref, each.what) != (names.head(name), FORK)]
            done += self._fork_off(hub, names.check_name(name), names.check_name(new))
        return done

    def meet(self, name: str) -> None:
        """Brings an agent and the hub together, as whoever works on it does first; nothing where there is no hub.

        ``Conflict`` where nobody can work on it here: there is a fork, or the last work is elsewhere and the hub is away.
        """
        if self._meeting is not None:
            with self._envelope.at_work(names.check_name(name)):
                pass

    def elsewhere(self, agents: Iterable[str] = ()) -> frozenset[str]:
        """Agents whose last work is on another machine that has not published it: nobody can work on them here.

        Of ``agents``, also those whose last work has not come here before the hub went away.
        """
        return frozenset() if self._meeting is None else self._meeting.elsewhere(agents)

    def _fork_off(self, hub: Meeting, name: str, new: str) -> list[Synced]:
        if new == name:
            raise InvalidInput(
                f"our line of {name!r} needs a name of its own",
                code="invalid-name",
                hints=["one that no agent has"],
                fields={"name": new},
            )
        fork = hub.fork(name)
        if fork is None:
            raise NotFound(
                f"the agent {name!r} has not gone two ways",
                code="no-fork",
                hints=["clia hub status shows forks"],
                fields={"agent": name},
            )
        kept = self._core.refs.get(names.head(new))
        if kept is None or not self._core.graph.descends(kept, fork.ours):
            self._agents.spawn(new, self._agents.briefing_of(name), at=fork.ours)
        with self._envelope.held(name):
            return hub.yield_to_hub(name)

    def _hub(self) -> Meeting:
        if self._meeting is None:
            raise NotFound("this space has no hub", code="no-hub", hints=["clia hub set URL"])
        return self._meeting
