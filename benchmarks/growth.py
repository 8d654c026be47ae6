"""``make growth``: the cost of a space of up to 100,000 agents, 1,000,000 commits and 1,000,000 trace entries.

Each size is generated, indexed, packed by ``maintain``, and measured in its own processes. Growth is the exponent over the number
of agents: 0 is flat, 1 is proportional.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import growth_page
from benchmarks.growth_space import COMMITS, FAMILY, generate, name_of
from benchmarks.growth_works import PAGES, WAITING, works
from benchmarks.machine import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Say = Callable[[str], None]

HERE = Path(__file__).resolve().parent
SIZES = (1_000, 10_000, 100_000)
TURNS, WARM, ROUNDS, WORKED = 5, 7, 2, 1_000
"""Turns over all sizes, rounds per process, rounds of work and maintenance, and commits per round."""
CROWD = 10
"""In a crowded inbox, one agent in this many waits."""


class Unusable(Exception):
    """The options cannot be measured; the message is one line."""


class Place(NamedTuple):
    """One space, and the commands to run on it."""

    path: Path
    size: int

    def run(self, kind: str, *words: object) -> Any:
        command = [sys.executable, str(HERE / "growth_works.py"), kind, str(self.path), *map(str, words)]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(process.stdout)

    def git(self, *words: str, rounds: int = 1) -> float:
        """The median time of a git command, in seconds."""
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            subprocess.run(["git", *words], cwd=self.path, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    def disk(self, *below: str) -> int:
        """The size of a directory on disk, in bytes."""
        return sum(
            os.lstat(os.path.join(directory, file)).st_blocks * 512
            for directory, _, files in os.walk(self.path.joinpath(".git", *below))
            for file in files
        )


def prepared(place: Place, say: Say) -> dict[str, Any]:
    """Prepare a space as after maintenance, with pending questions."""
    say(f"{place.size:,} agents: generating")
    generate(place.path, place.size)
    result: dict[str, Any] = {"agents": place.size, "commits": place.size * COMMITS, "generated": place.disk("objects")}
    say("the index, from git")
    result["index"] = place.run("index")
    say("upkeep")
    result["asked"] = place.run("ask", place.size, WAITING)
    result["maintain"] = place.run("maintain")
    result["disk"] = {"git": place.disk(), "objects": place.disk("objects"), "store": place.disk("clia")}
    return result


def timed(places: Sequence[Place], say: Say) -> dict[int, dict[str, dict[str, float]]]:
    """The cost of verbs at each size. Sizes alternate, because the load of the machine may change."""
    times: dict[tuple[int, str, str], list[float]] = {}
    for turn in range(TURNS):
        for place in places:
            say(f"turn {turn + 1} of {TURNS}, {place.size:,} agents")
            for key, value in place.run("warm", place.size, WARM).items():
                times.setdefault((place.size, "warm", key), []).append(value)
            for work in works():
                times.setdefault((place.size, "cold", work.key), []).append(place.run("cold", place.size, work.key, turn))
    results: dict[int, dict[str, dict[str, float]]] = {place.size: {"warm": {}, "cold": {}} for place in places}
    for (size, kind, key), values in times.items():
        results[size][kind][key] = statistics.median(values)
    return results


def kept_up(place: Place, say: Say) -> dict[str, Any]:
    """The cost of plain git, of work alternating with maintenance, and of reading everything."""
    say(f"{place.size:,} agents: git by itself")
    result: dict[str, Any] = {"git": _by_git(place)}
    say("work and maintenance")
    result["rounds"] = [_round(place) for _ in range(ROUNDS)]
    result["crowded"] = place.run("ask", place.size, place.size // CROWD)
    say("verify")
    result["verify"] = place.run("verify")
    return result


def _by_git(place: Place) -> dict[str, float]:
    """The time of plain git commands on all refs, in seconds."""
    agent = name_of(place.size // 2)
    place.git("update-ref", "refs/heads/loose", "refs/heads/main")
    url = f"file://{place.path}"
    times = {
        "pack-refs": place.git("pack-refs", "--all"),
        "for-each-ref": place.git("for-each-ref", "--count=1", "--sort=-refname", rounds=3),
        "ls-remote, all refs": place.git("ls-remote", url, rounds=3),
        "ls-remote, one agent": place.git("ls-remote", url, f"refs/heads/agents/{agent}", rounds=3),
    }
    with tempfile.TemporaryDirectory(prefix="clia-growth-") as other:
        subprocess.run(["git", "init", "--quiet", "--bare", other], check=True)
        words = ("-C", other, "fetch", "--quiet", url, f"+refs/heads/agents/{agent}:refs/heads/one")
        times |= {"fetch, one agent": place.git(*words), "fetch again, nothing new": place.git(*words, rounds=3)}
    return times


def _round(place: Place) -> dict[str, Any]:
    """Work, then maintenance, and the size on disk after each."""
    before = place.disk()
    work = place.run("work", place.size, WORKED)
    worked = place.disk()
    upkeep = place.run("maintain")
    return {"before": before, "worked": worked, "after": place.disk(), "seconds": work["seconds"], "maintain": upkeep}


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope on logarithmic axes, by least squares."""
    xs, ys = [math.log(value) for value in sizes], [math.log(value) for value in costs]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def joined(results: Sequence[dict[str, Any]], machine: dict[str, str]) -> dict[str, Any]:
    """One run: every row with its costs by size and its exponent."""
    sizes = [result["agents"] for result in results]
    rows = []
    for key, title in [*((work.key, work.said) for work in works()), *PAGES.items()]:
        row: dict[str, Any] = {"key": key, "said": title, "warm": [result["warm"][key] for result in results]}
        row["exponent"] = exponent(sizes, row["warm"])
        if key in results[0]["cold"]:
            row["cold"] = [result["cold"][key] for result in results]
        rows.append(row)
    return {"sizes": sizes, "rows": rows, "results": results, "machine": machine, "command": "make growth"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", default=",".join(map(str, SIZES)), help=f"numbers of agents, at least {FAMILY} each, separated by commas"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a program")
    parser.add_argument("--docs", action="store_true", help="write the plot and the tables into docs/")
    parser.add_argument("--from", dest="stored", metavar="FILE", help="use the output of an earlier run with --json")
    parser.add_argument("--note", metavar="TEXT", help="note on the machine, shown after its versions")
    parser.add_argument("--at", metavar="DIR", help="directory of the spaces (default: a temporary directory)")
    args = parser.parse_args()
    try:
        run = _stored(args.stored) if args.stored else _run(sizes_of(args.sizes), args.at)
    except Unusable as err:
        _say(str(err))
        return 2
    if args.note:
        run["note"] = f", {args.note}"
    if args.json:
        print(json.dumps(run, indent=1))
    else:
        growth_page.show(run)
    if args.docs:
        growth_page.write(run, HERE.parent / "docs")
    return 0


def sizes_of(text: str) -> list[int]:
    """Distinct sizes of at least one complete family: smaller spaces have no full page of agents and no descendants."""
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < FAMILY or len(set(sizes)) < len(sizes):
        raise Unusable(f"--sizes takes distinct numbers of agents, at least {FAMILY} each, separated by commas, not {text!r}")
    return sizes


def _stored(file: str) -> dict[str, Any]:
    try:
        run: dict[str, Any] = json.loads(Path(file).read_text())
    except (OSError, ValueError) as err:
        raise Unusable(f"--from takes the output of an earlier run with --json: {err}") from None
    return run


def _run(sizes: Sequence[int], where: str | None) -> dict[str, Any]:
    try:
        top = Path(tempfile.mkdtemp(prefix="clia-growth-", dir=where)).resolve()
    except OSError as err:
        raise Unusable(f"--at takes a writable directory, not {where!r}: {err.strerror}") from None
    places = [Place(top / str(size), size) for size in sizes]
    try:
        results = [prepared(place, _say) for place in places]
        costs = timed(places, _say)
        for place, result in zip(places, results, strict=True):
            result.update(costs[place.size] | kept_up(place, _say))
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return joined(results, facts())


def _say(text: str) -> None:
    print(f"growth: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
