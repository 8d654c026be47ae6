"""Names of a space for verbs of its services."""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clia.facade.space import Space

T = TypeVar("T")


class alias(Generic[T]):  # noqa: N801  # reads as a declaration
    """Another name for a verb of a service: ``trace_pending = alias(lambda space: space.traces.pending)``."""

    def __init__(self, find: Callable[[Space], T]) -> None:
        self._find = find

    def __get__(self, space: Space | None, owner: type) -> T:
        if space is not None:
            return self._find(space)
        member = self._find(owner)  # type: ignore[arg-type]  # on the class: the service's own function
        return self._unbound(member) if isinstance(member, FunctionType) else member

    def _unbound(self, function: Any) -> Any:
        """The function as ``Space.verb(space, ...)`` calls it."""

        @wraps(function)
        def call(space: Space, *args: Any, **options: Any) -> Any:
            verb: Any = self._find(space)
            return verb(*args, **options)

        return call
