"""A worker over the space at a path: where the worker's parts come together.

Invariant: the worker works on the store of the space itself, with the configuration that the space was opened with.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

from clia.app.effects import Effects, installed
from clia.app.settings import clock_of
from clia.app.spaces import open_space
from clia.app.worker import Parts, Worker, make_tools, new_name
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clia.app.config import Config
    from clia.app.settings import Settings
    from clia.app.worker import Status


class Wishes(NamedTuple):
    """What whoever starts a worker may decide; None: as the operator's configuration says."""

    name: str | None = None  # another one for each worker
    kinds: frozenset[str] | None = None  # only these
    concurrency: int | None = None


@contextmanager
def open_worker(
    path: str,
    settings: Settings,
    wishes: Wishes,
    tell: Callable[[Status], None],
    *,
    environment: Mapping[str, str],
) -> Iterator[Worker]:
    """A worker over the space at or above a path; the space is closed with it."""
    if wishes.name is not None and (not wishes.name.strip() or not wishes.name.isprintable()):
        raise InvalidInput("a worker's name is a word or a few, in one line", code="invalid-name", fields={"field": "name"})
    with open_space(path, settings=settings) as space:
        running = space.running
        config = _wished(running.config, wishes)
        effects = Effects(config, environment, entry_points=installed())
        _check_kinds(wishes, effects)
        tools = make_tools(clock_of(settings), environment, running.workplace, redact=settings.redact)
        yield Worker(Parts(space, effects, running.queue, tools, config, wishes.name or new_name(), tell, kinds=wishes.kinds))


def _wished(config: Config, wishes: Wishes) -> Config:
    if wishes.concurrency is None:
        return config
    return config._replace(worker=config.worker._replace(concurrency=wishes.concurrency))


def _check_kinds(wishes: Wishes, effects: Effects) -> None:
    """A kind that was mistyped would only make the worker wait for ever."""
    for kind in sorted(wishes.kinds or ()):
        if kind not in effects:
            why = effects.problems.get(kind, "nothing handles it")
            raise InvalidInput(
                f"requests of the kind {kind!r} cannot be answered here: {why}",
                code="unknown-effect",
                hints=[f"handled here: {', '.join(effects)}"],
                fields={"kind": kind, "handled": list(effects)},
            )
