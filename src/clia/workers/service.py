"""The fleet of a space."""

from __future__ import annotations

import time

from clia.verbs import VIEWER, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.components import Components
    from clia.workers.fleet import Fleet, LivenessMonitor


class FleetService:
    """The machines, workers and forges of a space."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._monitor: LivenessMonitor | None = None

    @verb("GET", "/fleet", VIEWER, "upkeep", "fleet")
    def __call__(self) -> Fleet:
        """The machines and workers of the space, their leases, and what waits since when."""
        from clia.workers.fleet import LivenessMonitor, Workload, read_fleet

        self._monitor = self._monitor or LivenessMonitor(time.monotonic)
        hub_sync = self._components.hub_sync
        pending = self._components.lifecycle.pending(None)
        elsewhere = frozenset() if hub_sync is None else hub_sync.agents_elsewhere(request.agent for request in pending)
        return read_fleet(self._components.core, self._monitor, Workload(pending, self._components.queue.waiting(), elsewhere))
