"""The hub verbs of a space."""

from __future__ import annotations

from clia.errors import InvalidInput, NotFound
from clia.hub.records import FORK
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clia.hub.records import HubStatus, Synced
    from clia.hub.sync import HubSync
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope

    Progress = Callable[[int, int], None]


class HubVerbs:
    """A mixin of ``Space``."""

    _core: Core
    _envelope: Envelope
    _agents: Agents
    _hub_sync: HubSync | None

    @property
    def has_hub(self) -> bool:
        """Whether this clone shares its refs with other machines."""
        return self._hub_sync is not None

    def hub_status(self) -> HubStatus:
        """The status of this clone relative to its hub, as of the last fetch; the hub is not contacted."""
        return self._hub().status()

    def hub_sync(
        self, *, forks: Mapping[str, str] | None = None, abandon: Sequence[str] = (), progress: Progress | None = None
    ) -> list[Synced]:
        """Fetches what the hub has and publishes what it lacks; returns the result for each ref that differed.

        ``forks``: new names for our line of agents that diverged. ``abandon``: agents whose unpublished work is on a machine
        that will not return; that work is given up.
        """
        hub = self._hub()
        hub.abandon(abandon)
        results = hub.sync(progress)
        for name, new in (forks or {}).items():
            results = [result for result in results if (result.ref, result.what) != (names.head(name), FORK)]
            results += self._fork_off(hub, names.check_name(name), names.check_name(new))
        return results

    def meet(self, name: str) -> None:
        """Syncs an agent with the hub, as every verb that works on it does first; no effect without a hub.

        ``Conflict`` if nobody can work on it here: it diverged, or its last work is elsewhere and the hub is unreachable.
        """
        if self._hub_sync is not None:
            with self._envelope.at_work(names.check_name(name)):
                pass

    def elsewhere(self, agents: Iterable[str] = ()) -> frozenset[str]:
        """Agents with unpublished work on another machine: nobody can work on them here.

        Of ``agents``, also those whose last work was not fetched before the hub became unreachable.
        """
        return frozenset() if self._hub_sync is None else self._hub_sync.agents_elsewhere(agents)

    def _fork_off(self, hub: HubSync, name: str, new: str) -> list[Synced]:
        """Keep our line of a fork as a new agent, then give the name to the hub's line."""
        if new == name:
            raise InvalidInput(
                f"our line of {name!r} needs a new name", code="invalid-name", hints=["choose an unused name"], fields={"name": new}
            )
        fork = hub.fork(name)
        if fork is None:
            raise NotFound(
                f"agent {name!r} has not diverged", code="no-fork", hints=["clia hub status shows forks"], fields={"agent": name}
            )
        head = self._core.refs.get(names.head(new))
        if head is None or not self._core.graph.descends(head, fork.ours):
            self._agents.spawn(new, self._agents.briefing_of(name), at=fork.ours)
        with self._envelope.held(name):
            return hub.follow_hub(name)

    def _hub(self) -> HubSync:
        if self._hub_sync is None:
            raise NotFound("this space has no hub", code="no-hub", hints=["clia hub set URL"])
        return self._hub_sync
