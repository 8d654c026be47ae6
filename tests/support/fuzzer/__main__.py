"""Play histories of faults: ``PYTHONPATH=tests .venv/bin/python -m support.fuzzer --seed 7``.

Without a seed, histories of new seeds are played for ``--minutes``; each that breaks a promise is shortened and printed, and at the
end what happened, and how often.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import support.preloaded  # noqa: F401  # once, before the processes of histories are forked
from support import postgres
from support.fuzzer.history import Broken, play, replay_command, shortened
from support.fuzzer.planning import STEPS, plan
from support.own_postgres import own_server

if TYPE_CHECKING:
    from support.fuzzer.history import Databases


def main() -> int:
    args = _parser().parse_args()
    os.environ[postgres.RUN] = str(os.getpid())  # the server ends with this process
    with ExitStack() as stack:
        databases = cache(lambda: stack.enter_context(own_server()))
        if args.seed:
            return _one(args, databases)
        until, number, broken, counts = time.monotonic() + 60 * args.minutes, args.first, 0, Counter[str]()
        while time.monotonic() < until and broken < args.most:
            broken += not _is_kept(f"{args.prefix}{number}", args, databases, counts)
            number += 1
    print(f"\n{number - args.first} histories, {broken} broke a promise; {_resources()}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", help="play one history; one that begins with alone, server, hub or fleet chooses what it has")
    parser.add_argument("--only", help="numbers of its steps, with commas")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a history")
    parser.add_argument("--shorten", action="store_true", help="look for fewer steps that break the same promise")
    parser.add_argument("--keep", help="an empty directory to play in, which is kept")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--prefix", default="", help="start of the seeds")
    parser.add_argument("--first", type=int, default=1, help="number of the first seed")
    parser.add_argument("--most", type=int, default=5, help="broken histories after which to end")
    return parser


def _one(args: argparse.Namespace, databases: Databases) -> int:
    steps = plan(args.seed, args.steps)
    if args.only:
        wanted = set(map(int, args.only.split(",")))
        steps = [step for step in steps if step.number in wanted]
    if args.shorten:
        with tempfile.TemporaryDirectory(prefix="clia-fuzz-", ignore_cleanup_errors=True) as directory:
            steps = shortened(args.seed, Path(directory, "shorter"), steps, databases=databases)
        print(replay_command(args.seed, steps, args.steps), flush=True)
    top = Path(args.keep or tempfile.mkdtemp(prefix="clia-fuzz-"))
    top.mkdir(exist_ok=True)
    try:
        play(args.seed, top, steps, say=lambda text: print(text, flush=True), databases=databases)
    except Broken as broken:
        print("\n".join(["", "BROKEN", *broken.problems]))
        return 1
    finally:
        if not args.keep:
            shutil.rmtree(top, ignore_errors=True)
    return 0


def _is_kept(seed: str, args: argparse.Namespace, databases: Databases, counts: Counter[str]) -> bool:
    steps = plan(seed, args.steps)
    with tempfile.TemporaryDirectory(prefix="clia-fuzz-", ignore_cleanup_errors=True) as top:
        directory = Path(top, "history")
        directory.mkdir()
        try:
            counts.update(play(seed, directory, steps, databases=databases))
        except Broken as broken:
            print(f"\n--- seed {seed} broke a promise\n{broken}", flush=True)
            few = shortened(seed, Path(top, "shorter"), steps, databases=databases) if args.shorten else steps
            print(f"--- replay: {replay_command(seed, few, args.steps)}", flush=True)
            return False
    print(".", end="", flush=True)
    return True


def _resources() -> str:
    """What all processes needed: the largest one, and the time of all."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    return f"{seconds:.0f} s of processor time, largest process {max(own.ru_maxrss, children.ru_maxrss) // 1024} MB"


if __name__ == "__main__":
    sys.exit(main())
