"""How much a flow may use.

Invariant: where time or memory runs out is not the same on every machine, so that a flow cannot catch it and go on; depth
is the same everywhere, and a flow may catch its RecursionError: another depth is another engine.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pydantic_monty import ResourceLimits

PATIENCE = 10
"""How many times as long a replay may take."""
_ENDLESS = 2**31 - 1


class Limits(NamedTuple):
    turn_seconds: float = 5.0  # between two answers
    memory: int = 64 * 1024 * 1024
    depth: int = 200
    printed: int = 1024 * 1024  # characters a turn; what is beyond is cut

    def patient(self) -> Limits:
        return self._replace(turn_seconds=self.turn_seconds * PATIENCE)

    def of_a_session(self) -> ResourceLimits:
        """As the engine wants them. No limit on a whole feed: its clock travels in the dump, and ends long sessions at random."""
        return {
            "max_turn_duration_secs": self.turn_seconds,
            "max_memory": self.memory,
            "max_recursion_depth": self.depth,
            "max_suspensions": _ENDLESS,
        }

    def watchdog(self) -> float:
        """When a worker that does not even keep its own limits is ended: one number for all, hence the patient one."""
        return self.patient().turn_seconds + 30

    def time_message(self) -> str:
        return f"time: a turn ran longer than {self.turn_seconds:g} seconds"

    def memory_message(self) -> str:
        return f"memory: it took more than {self.memory / 1024 / 1024:g} MiB"
