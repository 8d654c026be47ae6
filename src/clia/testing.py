"""The seam for tests: the components of an open space, and how to stop it at a named step.

Crash points and the clock are settings: ``Settings(reached=crash_at("intent-recorded"), clock=...)``. ``work`` runs a worker with
fake effects. ``components`` returns the components of a space, to inspect or replace them.
"""

from __future__ import annotations

from clia.errors import InvalidInput
from clia.facade.settings import Settings
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.components import Components
    from clia.facade.space import Space
    from clia.sessions.service import SessionBackend
    from clia.workers.effects.context import Context, Handler
    from clia.workers.worker import WorkerStatus

__all__ = [
    "Crash",
    "ScriptedEffect",
    "Settings",
    "command_result",
    "components",
    "crash_at",
    "llm_result",
    "replace_parts",
    "use_backend",
    "work",
]
_OF_SESSIONS = ("flows", "replay", "lifecycle", "decisions", "reopening", "repairs", "health", "forks", "library")


class Crash(BaseException):
    """The death of a process without clean-up. No ``except Exception`` handles it."""


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
    """The components of an open space."""
    return space._components  # noqa: SLF001  # the one place that may


class ScriptedEffect:
    """An effect that returns prepared answers in turn; an exception is raised. ``payloads`` has the payloads that it received."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.payloads: list[Any] = []

    def __call__(self, context: Context, payload: Any) -> Any:
        self.payloads.append(payload)
        if not self._answers:
            raise InvalidInput(f"no prepared answer left for {context.request.kind} {context.request.id}", code="script-ended")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def llm_result(text: str, model: str = "fake") -> dict[str, Any]:
    """An answer of the ``llm`` effect."""
    return {"text": text, "model": model, "finish_reason": "stop", "usage": None}


def command_result(output: str = "", exit_code: int = 0, commit: str | None = None) -> dict[str, Any]:
    """An answer of the ``command`` effect."""
    return {"exit_code": exit_code, "output": output, "commit": commit}


def work(space: Space, effects: Mapping[str, Handler] | None = None) -> WorkerStatus:
    """Run a worker in this thread until no request is left that it can handle. Timers are due at once.

    ``effects``: handlers by kind; they also replace built-in ones.
    """
    from clia.facade.config import Config, WorkerOptions
    from clia.workers.effects import Effects
    from clia.workers.setup import make_tools
    from clia.workers.worker import Worker, WorkerDependencies

    clock = space.local.clock
    config = Config(worker=WorkerOptions(backoff_seconds=0.01, backoff_max_seconds=0.05, poll_seconds=0.05))
    tools, handlers = make_tools(clock, {}), Effects(config, {}, others=effects)
    kinds = frozenset(handlers) - {"timer"}
    worker = Worker(WorkerDependencies(space, handlers, space.local.queue, tools, config, "fake", kinds=kinds))
    while True:
        status = worker.run(until_idle=True)
        timers = [request for request in space.pending() if request.kind == "timer"]
        if not timers:
            return status
        for request in timers:
            space.resume(request.agent, {"at": timestamp(clock())}, request.id, by="worker fake")


def replace_parts(space: Space, **parts: object) -> None:
    """Replace components of a space by name, for example ``syncing`` by one with another transport."""
    vars(components(space)).update(parts)


def use_backend(space: Space, backend: SessionBackend) -> None:
    """Run the sessions of a space on another backend, for example with an engine that counts its calls."""
    parts = components(space)
    parts.replay.close()
    for name in _OF_SESSIONS:
        parts.__dict__.pop(name, None)
    parts.__dict__["session_backend"] = backend
