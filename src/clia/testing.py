"""The seam for tests: what is behind an open space, and how to stop it at a named step.

Crash points and the clock are settings: ``Settings(reached=crash_at("after-intent"), clock=...)``. Effects of workers are given
to the worker. ``components`` gives the parts of a space, to look at them or to replace one.
"""

from __future__ import annotations

from clia.facade.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.components import Components
    from clia.facade.space import Space
    from clia.sessions.service import SessionBackend

__all__ = ["Crash", "Settings", "components", "crash_at", "replace_parts", "use_backend"]
_OF_SESSIONS = ("flows", "replay", "lifecycle", "decisions", "health", "forks", "library")


class Crash(BaseException):
    """The end of a process, without cleaning up: no ``except Exception`` handles it."""


def crash_at(step: str, times: int = 1) -> Callable[[str], None]:
    """A ``Settings.reached`` that raises ``Crash`` when a named step is reached for the given time."""
    left = times

    def reached(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if not left:
                raise Crash(step)

    return reached


def components(space: Space) -> Components:
    """The parts that an open space is made of."""
    return space._components  # noqa: SLF001  # the one place that may


def replace_parts(space: Space, **parts: object) -> None:
    """Replace parts of a space by name, for example ``syncing`` by one with another transport."""
    vars(components(space)).update(parts)


def use_backend(space: Space, backend: SessionBackend) -> None:
    """Run the sessions of a space on another backend, for example with an engine that counts its calls."""
    parts = components(space)
    parts.replay.close()
    for name in _OF_SESSIONS:
        parts.__dict__.pop(name, None)
    parts.__dict__["session_backend"] = backend
