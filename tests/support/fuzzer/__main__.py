"""Play histories of faults: ``PYTHONPATH=tests .venv/bin/python -m support.fuzzer --seed 7``.

Without a seed, histories of new seeds are played for ``--minutes``; each that breaks a promise is shortened and printed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import support.preloaded  # noqa: F401  # once, before the processes of histories are forked
from support.fuzzer.history import STEPS, Broken, plan, play, replay_command, shortened


def main() -> int:
    args = _parser().parse_args()
    if args.seed:
        return _one(args)
    until, number, broken = time.monotonic() + 60 * args.minutes, args.first, 0
    while time.monotonic() < until and broken < args.most:
        broken += not _is_kept(f"{args.prefix}{number}", args)
        number += 1
    print(f"{number - args.first} histories, {broken} broke a promise")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", help="play one history")
    parser.add_argument("--only", help="numbers of its steps, with commas")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a history")
    parser.add_argument("--shorten", action="store_true", help="look for fewer steps that break the same promise")
    parser.add_argument("--keep", help="an empty directory to play in, which is kept")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--prefix", default="", help="start of the seeds")
    parser.add_argument("--first", type=int, default=1, help="number of the first seed")
    parser.add_argument("--most", type=int, default=5, help="broken histories after which to end")
    return parser


def _one(args: argparse.Namespace) -> int:
    steps = plan(args.seed, args.steps)
    if args.only:
        wanted = set(map(int, args.only.split(",")))
        steps = [step for step in steps if step.number in wanted]
    top = Path(args.keep or tempfile.mkdtemp(prefix="clia-fuzz-"))
    top.mkdir(exist_ok=True)
    try:
        play(args.seed, top, steps, say=lambda text: print(text, flush=True))
    except Broken as broken:
        print("\n".join(["", "BROKEN", *broken.problems]))
        return 1
    finally:
        if not args.keep:
            shutil.rmtree(top, ignore_errors=True)
    return 0


def _is_kept(seed: str, args: argparse.Namespace) -> bool:
    steps = plan(seed, args.steps)
    with tempfile.TemporaryDirectory(prefix="clia-fuzz-", ignore_cleanup_errors=True) as top:
        directory = Path(top, "history")
        directory.mkdir()
        try:
            play(seed, directory, steps)
        except Broken as broken:
            print(f"\n--- seed {seed} broke a promise\n{broken}", flush=True)
            few = shortened(seed, Path(top, "shorter"), steps) if args.shorten else steps
            print(f"--- replay: {replay_command(seed, few, args.steps)}", flush=True)
            return False
    print(".", end="", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
