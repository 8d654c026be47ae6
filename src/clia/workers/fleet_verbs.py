"""The verb of a space that is about its fleet.

Invariant: nothing is decided here, and whoever does not ask for the fleet does not pay for it when a program starts.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.meeting import Meeting
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.service import Running
    from clia.space.core import Core
    from clia.workers.fleet import Fleet, Watch


class FleetVerbs:
    """A small part of ``Space``."""

    _core: Core
    _running: Running
    _lifecycle: Lifecycle
    _meeting: Meeting | None
    _watch: Watch | None = None

    def fleet(self) -> Fleet:
        """Which machines and workers work on the space, who has what until when, and what waits and since when."""
        from clia.workers.fleet import Watch, Work, look  # its records take milliseconds to make

        self._watch = self._watch or Watch(time.monotonic)
        pending = self._lifecycle.pending(None)
        elsewhere = frozenset() if self._meeting is None else self._meeting.elsewhere(each.agent for each in pending)
        return look(self._core, self._watch, Work(pending, self._running.queue.waiting(), elsewhere))
