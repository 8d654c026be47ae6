"""The fleet verb of a space."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.sync import HubSync
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.service import Running
    from clia.space.core import Core
    from clia.workers.fleet import Fleet, LivenessMonitor


class FleetVerbs:
    """A mixin of ``Space``."""

    _core: Core
    _running: Running
    _lifecycle: Lifecycle
    _hub_sync: HubSync | None
    _monitor: LivenessMonitor | None = None

    def fleet(self) -> Fleet:
        """Which machines and workers work on the space, who holds which request until when, and what waits since when."""
        from clia.workers.fleet import LivenessMonitor, Workload, read_fleet  # its records take milliseconds to build

        self._monitor = self._monitor or LivenessMonitor(time.monotonic)
        pending = self._lifecycle.pending(None)
        elsewhere = frozenset() if self._hub_sync is None else self._hub_sync.agents_elsewhere(each.agent for each in pending)
        return read_fleet(self._core, self._monitor, Workload(pending, self._running.queue.waiting(), elsewhere))
