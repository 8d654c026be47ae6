"""The hub of a space.

Invariant: this module contains no rules except the order of resolving a fork: our line becomes an agent with another name before
the hub's line takes the old name.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

from clia.errors import InvalidInput, NotFound
from clia.hub.model import FORK
from clia.values import refs as names
from clia.values.background import background_thread
from clia.verbs import ADMIN, VIEWER, require_person, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from clia.facade.components import Components
    from clia.facade.space import Space
    from clia.hub.model import HubStatus, HubSynced
    from clia.hub.sync import HubSync

    Progress = Callable[[int, int], None]

_GRACE_SECONDS = 10.0  # a process that stops does not wait longer for a silent hub


class HubService:
    """The hub: the git server that the machines of a space share."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def exchange(self) -> HubSync | None:
        """The exchange with the hub: for the fleet and the checks of a clone."""
        return self._components.hub_sync

    @verb("GET", "/hub", VIEWER, "upkeep", "hub_status")
    def status(self) -> HubStatus:
        """The known differences between this clone and its hub; the hub is not contacted."""
        return self._hub().status()

    @verb("POST", "/hub/sync", ADMIN, "upkeep", "hub_sync")
    def sync(
        self, *, forks: Mapping[str, str] | None = None, abandon: Sequence[str] = (), progress: Progress | None = None
    ) -> list[HubSynced]:
        """Fetch what the hub has and push what it lacks; return the outcome for each ref that differed.

        ``forks``: new names for our line of agents that have forked. ``abandon``: agents whose last work is on a machine that is
        lost; that work is given up.
        """
        if forks or abandon:
            require_person(self._components.options.agent, "run clia hub sync without --fork and --abandon")
        hub = self._hub()
        hub.abandon(abandon)
        results = hub.sync(progress)
        for name, new in (forks or {}).items():
            results = [result for result in results if (result.ref, result.what) != (names.head(name), FORK)]
            results += self._fork_off(hub, names.check_name(name), names.check_name(new))
        return results

    def meet(self, name: str) -> None:
        """Sync one agent with the hub, as every write to it does first; do nothing without a hub.

        ``Conflict`` if it cannot be worked on here: it has forked, or its last work is elsewhere and the hub is unreachable.
        """
        if self._components.hub_sync is not None:
            with self._components.envelope.at_work(names.check_name(name)):
                pass

    def elsewhere(self, agents: Iterable[str] = ()) -> frozenset[str]:
        """Agents whose last work is on another machine and was not pushed: they cannot be worked on here.

        Of ``agents``, also those whose last work was not fetched before the hub became unreachable.
        """
        return frozenset() if self._components.hub_sync is None else self._components.hub_sync.agents_elsewhere(agents)

    def _fork_off(self, hub: HubSync, name: str, new: str) -> list[HubSynced]:
        """Keep our line of a fork as a new agent, then give the name to the hub's line."""
        parts = self._components
        if new == name:
            message, hints = f"our line of {name!r} needs a new name", ["choose an unused name"]
            raise InvalidInput(message, code="invalid-name", hints=hints, fields={"name": new})
        fork = hub.fork(name)
        if fork is None:
            hints = ["clia hub status shows forks"]
            raise NotFound(f"agent {name!r} has not diverged", code="no-fork", hints=hints, fields={"agent": name})
        head = parts.core.refs.get(names.head(new))
        if head is None or not parts.core.graph.descends(head, fork.ours):
            briefing = parts.agents.briefing_at(name, fork.ours, fork.theirs)
            parts.agents.spawn(new, briefing, at=fork.ours, origin=parts.agents.origin_of(name))
        with parts.envelope.held(name):
            return hub.follow_hub(name)

    def _hub(self) -> HubSync:
        if self._components.hub_sync is None:
            raise NotFound("this space has no hub", code="no-hub", hints=["clia hub set URL"])
        return self._components.hub_sync


@contextmanager
def periodic_sync(
    space: Space, interval: float, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[None]:
    """Sync the space with its hub every ``interval`` seconds while the block runs. No effect without a hub.

    A failed sync never ends the loop; the next one retries, and ``clia hub status`` shows the reason.
    """
    if not space.has_hub:
        yield
        return
    succeeded = threading.Event()  # the last sync

    def sync() -> None:
        succeeded.clear()
        with suppress(Exception):
            space.hub.sync()
            succeeded.set()

    def run(stop: threading.Event) -> None:
        while not wait(stop, interval):
            sync()

    try:
        with background_thread("clia-hub", run, _GRACE_SECONDS):
            yield
    finally:
        if succeeded.is_set():
            sync()  # publish the last work
