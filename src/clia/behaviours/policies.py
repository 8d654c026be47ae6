"""Following the operator's policies: what the record suggests is adopted where nobody needs to be asked.

Invariant: only behaviours whose policy says so are looked at, and only versions that people let run are adopted. One that cannot be
judged now is left for the next time, and keeps no other from its turn.
"""

from __future__ import annotations

from clia.errors import NotFound
from clia.sessions.handover import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from clia.facade.config import Config
    from clia.facade.space import Space


class Policies:
    """What a worker does with them, in a thread of its own: no request waits for it."""

    def __init__(self, space: Space, config: Config, wait: Callable[[threading.Event, float], bool]) -> None:
        self._space = space
        self._policies = config.behaviours
        self._seconds = config.worker.behaviours_seconds
        self._wait = wait
        self.adopted: tuple[str, ...] = ()  # since it was started: each version with its name
        self.trouble: str | None = None  # why it could not look the last time

    def any(self) -> bool:
        """Whether any policy adopts by itself."""
        return any(policy.adopt for policy in self._policies.values())

    def keep_following(self, over: threading.Event, tell: Callable[[], None]) -> None:
        """At once, so that also a worker that works only once does it, and then every so often."""
        while True:
            self.trouble = self._followed(tell)
            if self.trouble is not None:
                tell()
            if self._wait(over, self._seconds):
                return

    def _followed(self, tell: Callable[[], None]) -> str | None:
        """Judges each behaviour once; what was in the way, if anything was."""
        trouble = None
        try:
            names = [each.name for each in self._space.behaviours() if self._adopts(each.name)]
        except Exception as err:  # noqa: BLE001  # whatever it is: the thread goes on, and looks again
            return f"policies: {describe(err)}"
        for name in names:
            try:
                made = self._space.follow_policy(name)
            except NotFound:  # nothing of it is current, or it is gone
                continue
            except Exception as err:  # noqa: BLE001  # as above
                trouble = f"policy of {name}: {describe(err)}"
                continue
            if made is not None:
                self.adopted += (f"{name} {made.cid}",)
                tell()
        return trouble

    def _adopts(self, name: str) -> bool:
        policy = self._policies.get(name) or self._policies.get("*")
        return policy is not None and policy.adopt
