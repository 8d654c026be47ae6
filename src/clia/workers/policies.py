"""Adoption of behaviour versions by policy.

Invariant: a policy only adopts versions that people allowed to run. A behaviour that cannot be judged is tried again the next time.
"""

from __future__ import annotations

from clia.errors import NotFound
from clia.sessions.handover import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from clia.behaviours.service import BehaviourService
    from clia.facade.config import Config


class PolicyFollower:
    """Adopts versions by policy, in a background thread of a worker."""

    def __init__(self, behaviours: BehaviourService, config: Config, wait: Callable[[threading.Event, float], bool]) -> None:
        self._behaviours = behaviours
        self._policies = config.behaviours
        self._seconds = config.worker.behaviours_seconds
        self._wait = wait
        self.adopted: tuple[str, ...] = ()  # names and versions, since the start
        self.trouble: str | None = None  # the last error

    def any(self) -> bool:
        """Whether any policy adopts without a person."""
        return any(policy.adopt for policy in self._policies.values())

    def keep_following(self, stop: threading.Event, notify: Callable[[], None]) -> None:
        """Judge at the start, so that ``clia worker --once`` also does it, then periodically."""
        while True:
            self.trouble = self._follow_once(notify)
            if self.trouble is not None:
                notify()
            if self._wait(stop, self._seconds):
                return

    def _follow_once(self, notify: Callable[[], None]) -> str | None:
        """Judge each behaviour once; returns the last error."""
        trouble = None
        try:
            names = [behaviour.name for behaviour in self._behaviours() if self._adopts(behaviour.name)]
        except Exception as err:  # noqa: BLE001  # the thread continues and tries again
            return f"policies: {describe(err)}"
        for name in names:
            try:
                version = self._behaviours.follow_policy(name)
            except NotFound:  # no current version, or removed
                continue
            except Exception as err:  # noqa: BLE001  # as above
                trouble = f"policy of {name}: {describe(err)}"
                continue
            if version is not None:
                self.adopted += (f"{name} {version.cid}",)
                notify()
        return trouble

    def _adopts(self, name: str) -> bool:
        policy = self._policies.get(name) or self._policies.get("*")
        return policy is not None and policy.adopt
