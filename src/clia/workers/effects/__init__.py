"""Which effects there are: the built-in ones, and those that other packages bring.

Invariant: nothing is loaded before a request of its kind is answered. An effect that cannot be used is named with the
reason, its requests wait, and every other effect works.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from clia.errors import InvalidInput
from clia.sessions.handover import describe
from clia.sessions.model import is_human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import Any

    from clia.facade.config import Config
    from clia.workers.effects.context import Handler

GROUP = "clia.effects"
BUILT_IN = ("command", "commit", "llm", "merge", "session", "spawn", "timer")
ALONE = frozenset(("command",))
"""Kinds of which an agent has one at a time: they share its worktree."""


class Effects(Mapping[str, "Handler"]):
    """The handlers by kind of request. ``problems`` says what cannot be used, and why."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        *,
        others: Mapping[str, Handler] | None = None,
        entry_points: Iterable[EntryPoint] = (),
    ) -> None:
        self._config = config
        self._found: dict[str, Handler | EntryPoint | str] = {kind: f"{__name__}.{kind}" for kind in BUILT_IN}
        self._loaded: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        for point in entry_points:
            self._add(point)
        self._found.update(others or {})
        self._check_configured(environment)

    def _add(self, point: EntryPoint) -> None:
        """A kind has one handler; of two that claim it neither is taken, and a built-in one stays."""
        kind, who = point.name, f"{point.value} ({point.dist.name if point.dist else 'unknown package'})"
        if kind in BUILT_IN:
            self.problems[f"{kind}: {who}"] = "the kind is built in, and this one is not used"
        elif is_human(kind):
            self.problems[kind] = f"{who}: a question to people has no handler"
        elif kind in self._found or kind in self.problems:
            self._found.pop(kind, None)
            self.problems[kind] = f"{who} and another package both handle it"
        else:
            self._found[kind] = point

    def _check_configured(self, environment: Mapping[str, str]) -> None:
        from clia.workers.effects import llm  # light, and the only one that may have nothing to work with

        why = llm.problem(self._config, environment)
        if why is not None and self._found["llm"] == f"{__name__}.llm":
            self.drop("llm", why)
        for kind in sorted(self._config.effects.keys() - self._found.keys() - self.problems.keys()):
            self.problems[kind] = f"[effects.{kind}] is configured, and nothing handles that kind"

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._found))

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, kind: object) -> bool:
        return kind in self._found

    def __getitem__(self, kind: str) -> Handler:
        found = self._found[kind]
        if callable(found):
            return found
        handle: Handler = self._module(kind).handle if isinstance(found, str) else self._entry(kind, found)
        return handle

    def drop(self, kind: str, why: str) -> None:
        """From now on requests of a kind wait."""
        # Whoever goes through the old ones in another thread is not disturbed.
        self._found = {each: found for each, found in self._found.items() if each != kind}
        self.problems = {**self.problems, kind: why}

    def seconds(self, kind: str, payload: Any) -> float | None:
        """How long one attempt may take; None: its handler sees to that."""
        said = self._config.effects.get(kind, {}).get("timeout_seconds")
        if said is not None:
            return float(said)
        own = getattr(self._module(kind), "seconds", None) if isinstance(self._found.get(kind), str) else None
        return self._config.worker.timeout_seconds if own is None else own(self._config, payload)

    def options(self, kind: str) -> Mapping[str, Any]:
        return self._config.effects.get(kind, {})

    def _module(self, kind: str) -> Any:
        if kind not in self._loaded:
            self._loaded[kind] = import_module(str(self._found[kind]))
        return self._loaded[kind]

    def _entry(self, kind: str, point: EntryPoint) -> Handler:
        if kind not in self._loaded:
            try:
                made = point.load()
            except (Exception, SystemExit) as err:  # another's module: it may raise anything
                raise _broken(kind, point, describe(err)) from err
            handle = made if callable(made) else getattr(made, "handle", None)
            if not callable(handle):
                raise _broken(kind, point, "it is no function handle(context, payload), nor a module with one")
            self._loaded[kind] = handle
        loaded: Handler = self._loaded[kind]
        return loaded


def installed() -> Iterable[EntryPoint]:
    """The entry points of every installed package."""
    from importlib.metadata import entry_points  # 20 ms, and only workers need it

    return sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value))


def _broken(kind: str, point: EntryPoint, reason: str) -> InvalidInput:
    return InvalidInput(
        f"the effect {kind!r} ({point.value}) cannot be loaded: {reason}",
        code="broken-effect",
        hints=["repair or remove the package that brings it"],
        fields={"kind": kind, "entry_point": point.value, "reason": reason},
    )
