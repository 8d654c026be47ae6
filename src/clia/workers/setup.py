"""A worker over the space at a path: where the worker's parts come together.

Invariant: the worker works on the store of the space itself, with the configuration that the space was opened with.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from clia.capture.ingest import has_events, ingest
from clia.errors import CliaError, InvalidInput
from clia.facade.opening import open_space
from clia.hub.periodic_sync import kept_in_step
from clia.values.background import background_thread
from clia.workers.effects import Effects, installed
from clia.workers.fleet import WORKER
from clia.workers.heartbeats import About, beating
from clia.workers.tools import make_tools, new_name
from clia.workers.wakeups import waking
from clia.workers.worker import Parts, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from clia.facade.config import Config
    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.workers.worker import Status


_INGEST_EVERY = 2.0


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
        tools = make_tools(running.clock, environment, running.workplace, redact=settings.redact)
        name = wishes.name or new_name()
        worker = Worker(Parts(space, effects, running.queue, tools, config, name, tell, kinds=wishes.kinds))
        kinds = tuple(each for each in effects if wishes.kinds is None or each in wishes.kinds)
        about = About(WORKER, name, kinds, config.worker.concurrency)
        with (
            closing(running.queue),
            _ingesting(space, settings, environment),
            beating(space, about, worker.status),
            kept_in_step(space, config.worker.hub_seconds),
            waking(space, running.queue, worker.wake),
        ):
            yield worker


@contextmanager
def _ingesting(space: Space, settings: Settings, environment: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile what hooks put down is recorded, once at the start and then as it comes."""

    def go_on(over: threading.Event) -> None:
        while not over.wait(_INGEST_EVERY):
            _ingest(space, settings, environment)

    _ingest(space, settings, environment)
    with background_thread("clia-ingest", go_on):
        yield


def _ingest(space: Space, settings: Settings, environment: Mapping[str, str]) -> None:
    """Where it fails, everything stays in the spool, and doctor says why."""
    with suppress(CliaError):
        if has_events(space, environment):
            ingest(space, settings, environment, wait=False)


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
