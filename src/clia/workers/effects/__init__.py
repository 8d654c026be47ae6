"""The effects a worker can run: built-in ones and those of other packages (entry points ``clia.effects``).

Invariant: a handler is loaded when the first request of its kind is handled. An effect that cannot be used is reported in
``problems``; its requests wait and every other effect works.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import iscoroutine

from clia.errors import InvalidInput
from clia.sessions.model import is_human
from clia.workers.retries import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import Any

    from clia.facade.config import Config
    from clia.workers.effects.context import Context, Handler

GROUP = "clia.effects"
BUILT_IN = ("command", "commit", "journal", "llm", "merge", "plan", "profile", "session", "spawn", "timer")
_OWN_MODULES = ("command", "llm")  # each with ``handle`` and ``seconds``; the others are functions of ``builtin``
_REPLACEABLE = frozenset(("journal", "plan", "profile"))  # packages may have handled them before they were built in
EXCLUSIVE = frozenset(("command",))
"""Kinds that run one at a time per agent: they share its worktree."""


class Effects(Mapping[str, "Handler"]):
    """Handlers by request kind. ``problems`` says which kinds cannot be used, and why."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        *,
        others: Mapping[str, Handler] | None = None,
        entry_points: Iterable[EntryPoint] = (),
    ) -> None:
        self._config = config
        self._sources: dict[str, Handler | EntryPoint | str] = {kind: _module_of(kind) for kind in BUILT_IN}
        self._loaded: dict[str, Handler] = {}
        self.problems: dict[str, str] = {}
        for point in entry_points:
            self._add(point)
        self._sources.update(others or {})
        self._check_configured(environment)

    def _add(self, point: EntryPoint) -> None:
        """Add an entry point. If two packages claim a kind, neither is used; built-in kinds cannot be replaced."""
        kind, package = point.name, f"{point.value} ({point.dist.name if point.dist else 'unknown package'})"
        if kind in BUILT_IN and kind not in _REPLACEABLE:
            self.problems[f"{kind}: {package}"] = "ignored: the kind is built in"
        elif is_human(kind):
            self.problems[kind] = f"{package}: questions to people cannot have a handler"
        elif kind in self.problems or (kind in self._sources and not self._is_built_in(kind)):
            self._sources.pop(kind, None)
            self.problems[kind] = f"{package} and another package both handle it"
        else:
            self._sources[kind] = point

    def _is_built_in(self, kind: str) -> bool:
        source = self._sources[kind]  # an entry point cannot be compared with a text
        return isinstance(source, str) and source == _module_of(kind)

    def _check_configured(self, environment: Mapping[str, str]) -> None:
        from clia.workers.effects import llm  # small, and the only one that needs configuration

        problem = llm.problem(self._config, environment)
        if problem is not None and self._is_built_in("llm"):
            self.drop("llm", problem)
        for name, rule in self._config.programs.items():
            from clia.workers.effects.program_arguments import bare_program, how_to_limit

            program = bare_program(rule)
            if program is not None:
                self.problems[f"command: {name}"] = how_to_limit(name, program)
        for kind in sorted(self._config.effects.keys() - self._sources.keys() - self.problems.keys()):
            self.problems[kind] = f"[effects.{kind}] is configured, but no package handles that kind"

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._sources))

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, kind: object) -> bool:
        return kind in self._sources

    def __getitem__(self, kind: str) -> Handler:
        source = self._sources[kind]
        if kind not in self._loaded:
            if isinstance(source, str):
                self._loaded[kind] = getattr(import_module(source), "handle" if kind in _OWN_MODULES else kind)
            else:
                self._loaded[kind] = _awaited(source if callable(source) else _load(kind, source))
        return self._loaded[kind]

    def drop(self, kind: str, problem: str) -> None:
        """Stop handling a kind; its requests wait."""
        # New dicts: another thread may be iterating over the old ones.
        self._sources = {other: source for other, source in self._sources.items() if other != kind}
        self.problems = {**self.problems, kind: problem}

    def seconds(self, kind: str, payload: Any) -> float | None:
        """Return the time limit of one attempt; None if the handler enforces its own."""
        configured = self._config.effects.get(kind, {}).get("timeout_seconds")
        if configured is not None:
            return float(configured)
        source = self._sources.get(kind)
        own = getattr(import_module(source), "seconds", None) if isinstance(source, str) else None
        return self._config.worker.timeout_seconds if own is None else own(self._config, payload)

    def options(self, kind: str) -> Mapping[str, Any]:
        return self._config.effects.get(kind, {})


def installed() -> Iterable[EntryPoint]:
    """Return the entry points of every installed package."""
    from importlib.metadata import entry_points  # 20 ms, and only workers need it

    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))


def _module_of(kind: str) -> str:
    return f"{__name__}.{kind if kind in _OWN_MODULES else 'builtin'}"


def _load(kind: str, point: EntryPoint) -> Handler:
    try:
        target = point.load()
    except (Exception, SystemExit) as err:  # third-party code may raise anything
        raise _broken(kind, point, describe(err)) from err
    handler: Handler | None = target if callable(target) else getattr(target, "handle", None)
    if not callable(handler):
        raise _broken(kind, point, "expected a function handle(context, payload) or a module with one")
    return handler


def _awaited(handler: Handler) -> Handler:
    """A handler that may be async: what it returns is awaited in an event loop of the attempt's thread."""

    def handle(context: Context, payload: Any) -> Any:
        result = handler(context, payload)
        if not iscoroutine(result):
            return result
        from asyncio import run  # few handlers are async

        return run(result)

    return handle


def _broken(kind: str, point: EntryPoint, reason: str) -> InvalidInput:
    message, hints = f"cannot load the effect {kind!r} ({point.value}): {reason}", ["repair or remove the package that provides it"]
    fields = {"kind": kind, "entry_point": point.value, "reason": reason}
    return InvalidInput(message, code="broken-effect", hints=hints, fields=fields)
