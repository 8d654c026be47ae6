"""Something that goes on beside something else.

Invariant: what goes on ends with what it goes on beside, and is waited for no longer than it was given.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def meanwhile(name: str, go_on: Callable[[threading.Event], None], grace: float | None = None) -> Iterator[None]:
    """Runs ``go_on`` in a thread of its own until the block ends; it is given an event that tells when that is.

    ``grace``: so many seconds it may take then; None: as many as it takes.
    """
    over = threading.Event()
    thread = threading.Thread(target=go_on, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(grace)
