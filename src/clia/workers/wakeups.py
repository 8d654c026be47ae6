"""What wakes a worker: the space's bell and the queue's, where the store rings.

Invariant: a ring is only a reason to look, and the worker looks by itself now and then: one that is lost delays what it told
of, and nothing worse. However often it rings, the worker is woken no more than some times a second.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

from clia.errors import CliaError
from clia.store.feed_interface import FEED
from clia.store.notifications import ListeningBell, bell_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space
    from clia.store.feed_interface import Bell
    from clia.store.interface import Store
    from clia.store.queue_interface import Queue

_LISTEN_SECONDS = 30.0
_AGAIN_SECONDS = 1.0  # after an error
_PAUSE = 0.05  # between two wakes
_GOODBYE = 3.0  # whoever is held up by a database that does not answer is not waited for longer


@contextmanager
def waking(space: Space, queue: Queue, wake: Callable[[], None]) -> Iterator[None]:
    """Meanwhile ``wake`` is called when something has happened in the space; never where nothing rings by itself."""
    store = space._core.store  # noqa: SLF001  # the space's other face: what a worker needs is no verb of it
    bell = bell_of(store)
    if not isinstance(bell, ListeningBell):
        bell.close()
        yield
        return
    over, rung = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=_listen, args=(store, bell, rung, over), name="clia-bell", daemon=True),
        threading.Thread(target=_watch, args=(queue, rung, over), name="clia-watching", daemon=True),
        threading.Thread(target=_pass_on, args=(wake, rung, over), name="clia-waking", daemon=True),
    ]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        rung.set()
        bell.close()
        for each in threads:
            each.join(_GOODBYE)


def _listen(store: Store, bell: Bell, rung: threading.Event, over: threading.Event) -> None:
    """The bell's thread. Where positions begin anew, because the store was lost, that is news too."""
    seen: int | None = None
    while not over.is_set():
        try:
            end = _end(store)
            if end != seen:
                rung.set()
            seen = end
            bell.wait(lambda: _end(store) > end, _LISTEN_SECONDS)  # noqa: B023  # called at once
        except CliaError:
            over.wait(_AGAIN_SECONDS)


def _end(store: Store) -> int:
    with store.reading() as view:
        return view.streams.end(FEED)


def _watch(queue: Queue, rung: threading.Event, over: threading.Event) -> None:
    while not over.is_set():
        with suppress(CliaError):  # the database is away
            queue.watch(rung.set)
            return
        over.wait(_AGAIN_SECONDS)


def _pass_on(wake: Callable[[], None], rung: threading.Event, over: threading.Event) -> None:
    while rung.wait() and not over.is_set():
        rung.clear()
        wake()
        over.wait(_PAUSE)
