"""The engine that runs flows, on pydantic-monty.

Invariant: each flow runs in a worker process that has no files, no network and no clock but the program's, within limits; the
worker may die of it, this process never does. Threads share one pool of workers, made when the first flow runs.
"""

from __future__ import annotations

import sysconfig
import threading
from datetime import datetime

from clia.engine import forking as forks
from clia.engine.records import EngineLimits
from clia.engine.runs import MontyRun, PreparedProgram
from clia.errors import CliaError, EngineError, InvalidFlow, InvalidInput
from clia.values.json_values import CannotCross, copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pydantic_monty import Monty, MontySession, OSPolicy

    from clia.engine.records import FlowCall, FlowProgram, Problem

RULES = 1
"""Raised where something changes that a flow can see: an exception's words, a default, a limit on depth."""

MAX_WORKERS = 64
"""More runs than this at one time wait for each other. Idle workers cost about 6 MB each."""
_CHECKOUT_SECONDS = 60.0
_GRACE_SECONDS = 5.0

sysconfig.get_config_vars()
"""The engine's program is looked for by this table, which Python 3.11 fills without a lock: a second thread finds it half
filled, and fails. What a module does while it is imported, other threads wait for."""


class MontyEngine:
    """``Engine`` on pydantic-monty."""

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self._limits = limits or EngineLimits()
        self._pool: Monty | None = None
        self._lock = threading.Lock()
        forks.register(self)

    @property
    def version(self) -> str:
        from pydantic_monty import __version__

        return f"pydantic-monty {__version__} rules {RULES}"

    def start(self, program: FlowProgram, *, patient: bool = False) -> MontyRun:
        job, policy = self._job(program, patient=patient), _policy(program)
        return MontyRun(self._session(policy, job), job).begin()

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> MontyRun:
        """A dump brings its own limits along: those of the run that made it, patient or not."""
        job, policy = self._job(program), _policy(program)
        run = MontyRun(self._session(policy, job), job)
        try:
            return run.come_back(dump, pending)
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
        """In a process that was forked off: the pool is the parent's, and its lock may be held by a thread that is not here."""
        parts = [] if self._pool is None else [self._pool]
        self._pool, self._lock = None, threading.Lock()
        return parts

    def _job(self, program: FlowProgram, *, patient: bool = False) -> PreparedProgram:
        try:
            program.source.encode()
            value = copied(program.input, "input")
        except UnicodeEncodeError:
            raise InvalidFlow("the flow's text holds half of a surrogate pair", fields={"field": "source"}) from None
        except CannotCross as refused:
            raise InvalidInput(refused.problem, fields={"field": "input"}) from None
        return PreparedProgram(program._replace(input=value), self.version, self._limits, patient=patient)

    def _session(self, policy: OSPolicy, job: PreparedProgram) -> MontySession:
        """A session of a worker. The engine knows the zones, and says which it does not know."""
        try:
            return self._open(limits=job.limits.of_a_session(), os_policy=policy)
        except ValueError as err:
            zone = policy.get("timezone")
            raise InvalidInput(f"timezone {zone!r}: {err}", code="unknown-timezone", fields={"field": "timezone"}) from None

    def _open(self, **options: Any) -> MontySession:
        """A session, entered. That a worker died while nobody used it is found out only here, and it is replaced."""
        from pydantic_monty import MontyCrashedError

        pool = self._workers()
        for _ in range(MAX_WORKERS):
            try:
                return pool.checkout(**options).__enter__()
            except MontyCrashedError:
                continue
            except ValueError:
                raise  # of the options
            except Exception as err:  # noqa: BLE001 - no worker to be had: whatever the reason, it may be there later
                raise _no_worker(str(err)) from None
        raise _no_worker("each one ended at once")

    def _workers(self) -> Monty:
        """The pool, made when it is first needed."""
        with self._lock:
            if self._pool is None:
                forks.claim()
                self._pool = _new_pool(self._limits)
            return self._pool


def _new_pool(limits: EngineLimits) -> Monty:
    from pydantic_monty import Monty

    pool = Monty(
        min_processes=1,
        max_processes=MAX_WORKERS,
        checkout_timeout=_CHECKOUT_SECONDS,
        request_timeout=limits.watchdog(),
        turn_duration_limit_grace=_GRACE_SECONDS,
    )
    try:
        return pool.__enter__()
    except Exception as err:  # noqa: BLE001 - no worker to be had: whatever the reason, it may be there later
        raise _no_worker(str(err)) from None


def _policy(program: FlowProgram) -> OSPolicy:
    """A flow's clocks stand still at the start, and its random numbers come from the seed."""
    try:
        started_at = datetime.fromisoformat(program.started_at)
        program.seed.encode()
        program.timezone.encode()
    except UnicodeEncodeError:
        raise InvalidInput("seed and timezone must be valid text", fields={"field": "seed"}) from None
    except ValueError:
        raise _bad_instant(program) from None
    if started_at.tzinfo is None:
        raise _bad_instant(program)
    return {
        "datetime": started_at,
        "timezone": program.timezone,
        "sleep": "call_host",
        "process_time": "zero",
        "random_start": {"seed": program.seed},
    }


def _bad_instant(program: FlowProgram) -> CliaError:
    return InvalidInput(
        f"started_at {program.started_at!r} must be an instant with its offset, such as 2026-01-31T12:00:00+00:00",
        fields={"field": "started_at"},
    )


def _no_worker(reason: str) -> EngineError:
    error = EngineError(f"no process to run a flow in: {reason}", code="engine-unavailable")
    error.retryable = True
    return error
