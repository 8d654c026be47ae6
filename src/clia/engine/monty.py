"""The engine that runs flows, on pydantic-monty.

Invariant: each flow runs in a worker process without files, network or a clock other than the program's, within limits; it may
kill the worker, never this process. Threads share one pool of workers, created when the first flow runs.
"""

from __future__ import annotations

import sysconfig
import threading
from datetime import datetime

from clia.engine.records import PATIENCE, EngineLimits
from clia.engine.runs import MontyRun, PreparedProgram, claim_threads, fork_sensitive
from clia.errors import EngineError, InvalidFlow, InvalidInput
from clia.values.json_values import CannotCross, copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pydantic_monty import Monty, MontySession, OSPolicy

    from clia.engine.records import FlowCall, FlowProgram, Problem

RULES = 1
"""Raise it when something changes that a flow can see: the text of an exception, a default, a limit on depth."""

MAX_WORKERS = 64
"""More concurrent runs wait for each other. An idle worker takes about 6 MB."""
_CHECKOUT_SECONDS = 60.0
GRACE_SECONDS = 5.0

sysconfig.get_config_vars()
"""The engine finds its program with this table, which Python 3.11 fills without a lock: a second thread would find it
incomplete and fail. Other threads wait while a module is imported."""


class MontyEngine:
    """``Engine`` on pydantic-monty."""

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self._limits = limits or EngineLimits()
        self._pool: Monty | None = None
        self._lock = threading.Lock()
        fork_sensitive.add(self)

    @property
    def version(self) -> str:
        from pydantic_monty import __version__

        return f"pydantic-monty {__version__} rules {RULES}"

    def start(self, program: FlowProgram, *, patience: float = 1) -> MontyRun:
        return self._run(program, patience).begin()

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> MontyRun:
        """As ``Engine.load``. A dump contains its own limits: those of its run, with its patience."""
        run = self._run(program)
        try:
            return run.restore(dump, pending)
        except BaseException:
            run.__exit__()
            raise

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        from clia.engine.flow_check import check_flow

        return check_flow(source, self._open, types=types)

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def abandon(self) -> list[Any]:
        """In a forked process: the pool is the parent's, and a thread that exists only there may hold its lock."""
        parts = [] if self._pool is None else [self._pool]
        self._pool, self._lock = None, threading.Lock()
        return parts

    def _run(self, program: FlowProgram, patience: float = 1) -> MontyRun:
        """Return a run that has not started, with the session of a worker."""
        try:
            program.source.encode()
            value = copied(program.input, "input")
        except UnicodeEncodeError:
            raise InvalidFlow("the flow's text contains a lone surrogate", fields={"field": "source"}) from None
        except CannotCross as refused:
            raise InvalidInput(refused.problem, fields={"field": "input"}) from None
        prepared = PreparedProgram(program._replace(input=value), self.version, self._limits, patience)
        # No limit for a whole feed: its clock is saved in the dump and would end long sessions at random.
        limits = {
            "max_turn_duration_secs": prepared.limits.turn_seconds,
            "max_memory": prepared.limits.memory,
            "max_recursion_depth": prepared.limits.depth,
            "max_suspensions": 2**31 - 1,
        }
        policy = _policy(program)
        try:
            session = self._open(limits=limits, os_policy=policy)
        except ValueError as err:  # the engine knows the zones
            message = f"timezone {program.timezone!r}: {err}"
            raise InvalidInput(message, code="unknown-timezone", fields={"field": "timezone"}) from None
        return MontyRun(session, prepared)

    def _open(self, **options: Any) -> MontySession:
        """Return an entered session. A worker that died while it was idle is noticed only here, and replaced."""
        from pydantic_monty import MontyCrashedError

        with self._lock:
            if self._pool is None:
                claim_threads()
                self._pool = _new_pool(self._limits)
            pool = self._pool
        for _ in range(MAX_WORKERS):
            try:
                return pool.checkout(**options).__enter__()
            except MontyCrashedError:
                continue
            except ValueError:
                raise  # of the options
            except Exception as err:  # noqa: BLE001 - no worker is available; whatever the reason, one may be later
                raise _no_worker(str(err)) from None
        raise _no_worker("each one ended at once")


def _new_pool(limits: EngineLimits) -> Monty:
    from pydantic_monty import Monty

    pool = Monty(
        min_processes=1,
        max_processes=MAX_WORKERS,
        checkout_timeout=_CHECKOUT_SECONDS,
        # A worker that ignores its limits is killed. One value for all runs, so the highest one counts.
        request_timeout=limits.patient(PATIENCE).turn_seconds + 30,
        turn_duration_limit_grace=GRACE_SECONDS,
    )
    try:
        return pool.__enter__()
    except Exception as err:  # noqa: BLE001 - as above
        raise _no_worker(str(err)) from None


def _policy(program: FlowProgram) -> OSPolicy:
    """A flow's clocks stay at its start, and its random numbers come from the seed."""
    try:
        started_at = datetime.fromisoformat(program.started_at)
        program.seed.encode()
        program.timezone.encode()
        if started_at.tzinfo is None:
            raise ValueError
    except UnicodeEncodeError:
        raise InvalidInput("seed and timezone must be valid text", fields={"field": "seed"}) from None
    except ValueError:
        message = f"started_at {program.started_at!r} must be an instant with its offset, such as 2026-01-31T12:00:00+00:00"
        raise InvalidInput(message, fields={"field": "started_at"}) from None
    clocks: OSPolicy = {"datetime": started_at, "timezone": program.timezone, "sleep": "call_host", "process_time": "zero"}
    return {**clocks, "random_start": {"seed": program.seed}}


def _no_worker(reason: str) -> EngineError:
    error = EngineError(f"no process to run a flow in: {reason}", code="engine-unavailable")
    error.retryable = True
    return error
