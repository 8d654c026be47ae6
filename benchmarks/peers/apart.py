"""A peer in its own process.

Its threads and memory do not affect other measurements. A call costs about 0.05 ms, once per measurement. A peer that fails,
dies or does not answer reports why, and ends.
"""

from __future__ import annotations

import gc
import multiprocessing
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_END = "end"
_AGAIN = "again"
_SECONDS = 60
_PATIENCE = 180  # seconds for the longest call of a peer


class PeerFailed(Exception):
    """The error of a peer that could not do its work."""


class Apart:
    """The session operations of a peer whose class is ``module:name``."""

    def __init__(self, name: str, maker: str, *args: Any) -> None:
        self.name = name
        processes = multiprocessing.get_context("spawn")
        self._pipe, theirs = processes.Pipe()
        self._process = processes.Process(target=_serve, args=(theirs, maker, args), daemon=True)
        self._process.start()
        theirs.close()
        self._answer()

    def close(self) -> None:
        with suppress(PeerFailed):
            self._do(_END)
        self._process.join(_SECONDS)
        self._process.kill()

    def once(self) -> None:
        """Start a session that suspends; a fresh handle resumes it to its end."""
        self._do("once")

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        self._do("long_session", count)
        return lambda times: self._do(_AGAIN, times)

    def forks(self, resumes: int) -> Callable[[], None]:
        """Resume a session this often; the returned function forks it at its current state."""
        self._do("forks", resumes)
        return lambda: self._do(_AGAIN)

    def suspend(self, count: int) -> None:
        """Create waiting sessions."""
        self._do("suspend", count)

    def fill(self, count: int) -> None:
        """Create waiting sessions in the fastest way."""
        self._do("fill", count)

    def pending(self) -> None:
        """List all waiting sessions."""
        self._do("pending")

    def size(self) -> int:
        """The size of its store, in bytes."""
        return int(self._do("size"))

    def _do(self, verb: str, *args: Any) -> Any:
        try:
            self._pipe.send((verb, args))
        except OSError:
            raise PeerFailed("it has ended") from None
        return self._answer()

    def _answer(self) -> Any:
        if not self._pipe.poll(_PATIENCE):
            self._process.kill()
            raise PeerFailed(f"no answer within {_PATIENCE} s")
        try:
            failure, value = self._pipe.recv()
        except (EOFError, OSError):
            raise PeerFailed("it died") from None
        if failure is not None:
            raise PeerFailed(failure)
        return value


def _serve(pipe: Connection, maker: str, args: tuple[Any, ...]) -> None:
    module, _, name = maker.partition(":")
    try:
        peer = getattr(import_module(module), name)(*args)
        gc.collect()
        gc.freeze()  # as before every measurement: exclude imported objects from garbage collection
        pipe.send((None, None))
        state: Any = None
        while True:
            verb, words = pipe.recv()
            if verb == _END:
                peer.close()
                pipe.send((None, None))
                return
            value = state(*words) if verb == _AGAIN else getattr(peer, verb)(*words)
            state, value = (value, None) if callable(value) else (state, value)
            pipe.send((None, value))
    except Exception as err:
        pipe.send((f"{type(err).__name__}: {err}", None))
        raise
