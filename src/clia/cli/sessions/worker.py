"""``clia worker``: answers requests that are no questions to people.

Invariant: told to stop, it lets what runs end, and gives back the rest; told again, it stops at once. Whatever it was doing is
done by another worker then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress

from clia.cli.output import console, one_line, write
from clia.cli.space.common import add_space, positive, settings_of
from clia.errors import InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from clia.workers.worker import RunningAttempt, Worker, WorkerStatus

    Tell = Callable[[WorkerStatus], None]

_COUNTS = ("answered", "retried", "given_up", "gone")


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="try all that is due now, then end")
    how.add_argument("--until-idle", action="store_true", help="end when nothing is left that it could answer, now or later")
    parser.add_argument("--concurrency", type=positive, metavar="N", help="so many requests at a time (default: as configured)")
    parser.add_argument("--kinds", metavar="A,B,…", help="only requests of these kinds")
    parser.add_argument("--name", metavar="NAME", help="what the worker is called; no two may be called alike (default: made up)")
    parser.add_argument(
        "--config", metavar="FILE", help="the operator's configuration (default: CLIA_CONFIG, else .git/clia/config.toml)"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    from clia.workers.setup import WorkerOverrides, open_worker  # a hundred milliseconds, with the effects

    wishes = WorkerOverrides(args.name, _kinds(args), args.concurrency)
    with _telling(args) as tell, open_worker(args.path, settings_of(args), wishes, tell, environment=os.environ) as worker:
        with stopped_by_signals(worker):
            last = worker.run(once=args.once, until_idle=args.until_idle)
        tell(last)
    if not args.json:
        write(f"ended: {counts(last)}\n")
    return 0


def _kinds(args: argparse.Namespace) -> frozenset[str] | None:
    if args.kinds is None:
        return None
    found = frozenset(each.strip() for each in args.kinds.split(","))
    if "" in found:
        raise InvalidInput("--kinds takes kinds between commas", code="invalid-option", fields={"field": "kinds"})
    return found


@contextmanager
def stopped_by_signals(worker: Worker) -> Iterator[None]:
    """Lets SIGINT and SIGTERM stop the worker: at the first in order, at the second at once, and at a third as always."""
    told = 0

    def stop(number: int, frame: object) -> None:
        nonlocal told
        del frame
        told += 1
        if told > 1:
            signal.signal(number, signal.SIG_DFL)
        # In a thread of its own: this one may just hold the lock that telling the worker takes.
        threading.Thread(target=worker.stop, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _telling(args: argparse.Namespace) -> Iterator[Tell]:
    """How what the worker does is shown: JSON lines for a program, a status line at a terminal, else a line for each change."""
    if args.json:
        yield _changes(lambda before, now: _json_line(now) if now != before else [])
    elif sys.stderr.isatty():
        with console(stderr=True).status("starting") as line:
            yield lambda status: line.update(one_line(status_line(status)))
    else:
        yield _changes(news)


def _changes(told: Callable[[WorkerStatus | None, WorkerStatus], list[str]]) -> Tell:
    """Writes a line for whatever is new; several threads may tell at once. A reader that went away does not stop the work."""
    mutex = threading.Lock()
    last: WorkerStatus | None = None

    def tell(status: WorkerStatus) -> None:
        nonlocal last
        with mutex, suppress(BrokenPipeError):
            before, last = last, status
            for line in told(before, status):
                write(f"{line}\n")

    return tell


def _json_line(status: WorkerStatus) -> list[str]:
    problems = [{"kind": kind, "why": why} for kind, why in status.problems]
    return [json.dumps(as_json(status) | {"problems": problems}, ensure_ascii=False)]


def news(before: WorkerStatus | None, now: WorkerStatus) -> list[str]:
    """What to tell that was not told before, a line each."""
    lines = [] if before is not None and before.problems == now.problems else [f"{kind}: {why}" for kind, why in now.problems]
    known = {each[:4] for each in before.running} if before is not None else set()
    lines += [_doing(each) for each in now.running if each[:4] not in known]
    lines += [f"adopted by policy: {each}" for each in now.adopted[len(before.adopted) if before is not None else 0 :]]
    if now.last and (before is None or before.last != now.last):
        lines.append(now.last)
    if now.trouble and (before is None or before.trouble != now.trouble):
        lines.append(f"waiting: {now.trouble}")
    if before is not None and any(getattr(before, name) != getattr(now, name) for name in _COUNTS):
        lines.append(counts(now))
    return [one_line(line) for line in lines]


def status_line(status: WorkerStatus) -> str:
    """What the worker does, in one line."""
    if status.trouble:
        return f"waiting: {status.trouble}"
    doing = "; ".join(f"{_doing(each)}{f': {each.said}' if each.said else ''}" for each in status.running) or "nothing to do"
    waiting = f", {status.waiting} waiting" if status.waiting else ""
    hanging = f", {status.hanging} hanging" if status.hanging else ""
    adopted = f", {len(status.adopted)} adopted by policy" if status.adopted else ""
    last = f"  last: {status.last}" if status.last else ""
    return f"{doing}{waiting}{hanging}  ({counts(status)}{adopted}){last}"


def _doing(each: RunningAttempt) -> str:
    again = f", attempt {each.attempt}" if each.attempt > 1 else ""
    return f"{each.agent} {each.request} {each.kind}{again}"


def counts(status: WorkerStatus) -> str:
    """What came of the attempts so far."""
    said = [f"{getattr(status, name)} {name.replace('_', ' ')}" for name in _COUNTS if getattr(status, name)]
    return ", ".join(said) or "nothing answered"
