"""``make bench``: one table, every row with its floor, peers, ratios and bars. Exit 1 if a bar is missed or a row fails.

A failing part does not stop the others, and every expected row is in the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import places
from benchmarks.machine import facts
from benchmarks.measure import attempted
from benchmarks.page import page, shown_reason, ticks
from benchmarks.plot import plot
from benchmarks.results import FAILED, MET, NOT_MET, NOT_RUN, BenchmarkRun, as_json, from_json, joined
from benchmarks.works import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.measure import NotRun, Row
    from benchmarks.results import Result

ROUNDS = 25
_LATE = ("round-trip-durable",)
# In this order. Durable spaces last: libgit2 has one durability setting per process, which they turn on permanently.
STEPS = (
    ("lineage", "rows"),
    ("hooks", "rows"),
    ("prompts", "rows"),
    ("mcp", "rows"),
    ("sessions", "rows"),
    ("graph", "rows"),
    ("forge", "rows"),
    ("federation", "rows"),
    ("behaviours", "rows"),
    ("hub", "rows"),
    ("gate", "rows"),
    ("workers", "rows"),
    ("attribution", "rows"),
    ("trust", "rows"),
    ("plain_git", "rows"),
    ("space", "rows"),
    ("sessions", "durable_rows"),
)
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, PLOT = DOCS / "benchmarks.md", DOCS / "images/benchmarks.svg"
_COLOURS = {MET: "green", NOT_MET: "red", FAILED: "red", NOT_RUN: "yellow"}


def main() -> int:
    args = _parser().parse_args()
    if args.docs and args.only:
        _parser().error("--docs needs a complete run: omit --only")
    if args.stored:
        run = from_json(json.loads(Path(args.stored).read_text(encoding="utf-8")))
    else:
        parts = [args.only] if args.only else list(TABLE)
        results = joined(measured(parts, args.rounds), parts)
        run = BenchmarkRun(
            facts() | places.facts(), args.date or datetime.now(UTC).date().isoformat(), args.rounds, _command(args.rounds), results
        )
    if args.docs:
        PAGE.write_text(page(run), encoding="utf-8")
        PLOT.write_text(plot(run.results), encoding="utf-8")
    if args.json:
        print(json.dumps(as_json(run), indent=2))
    else:
        show(run.results)
    return 0 if run.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds a row (default: {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="print JSON for a program")
    parser.add_argument("--only", choices=sorted(TABLE), help="one part of the table")
    parser.add_argument("--docs", action="store_true", help="also write the page and the plot of the documentation")
    parser.add_argument("--date", help="date of the run (default: today)")
    parser.add_argument(
        "--from", dest="stored", metavar="FILE", help="measure nothing; show the output of an earlier run with --json"
    )
    return parser


def _command(rounds: int) -> str:
    options = [] if rounds == ROUNDS else [f"--rounds {rounds}"]
    return f'make bench PEERS=1 ARGS="{" ".join(["--docs", *options])}"'


def measured(parts: Iterable[str], rounds: int) -> Iterator[Row | NotRun]:
    for part, name in STEPS:
        if part in parts:
            started = time.monotonic()
            print(f"bench: {part} …", file=sys.stderr, flush=True)
            keys = [work.key for work in TABLE[part] if (work.key in _LATE) == (name == "durable_rows")]
            yield from attempted(keys, lambda: getattr(import_module(f"benchmarks.{part}"), name)(rounds))  # noqa: B023  # called at once
            print(f"bench: {part} took {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def show(results: Iterable[Result]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="clia benchmarks (medians, alternating)", title_justify="left", show_lines=True)
    for heading in ("work", "ours", "floor", "peers", "ratio", "bar", ""):
        table.add_column(heading, justify="right" if heading in ("ours", "ratio", "bar") else "left")
    out = Console(width=190)
    notes = []
    for result in results:
        cells = [Text("\n".join(lines)) for lines in ticks(result)]
        cells[-1].stylize(_COLOURS.get(result.status, ""))
        table.add_row(*cells)
        notes += [f"{result.work.title}: {result.note}"] if result.note else []
    out.print(table)
    for line in notes:
        out.print(shown_reason(line), markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
