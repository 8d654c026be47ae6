"""``make bench``: one table, every row with its floor, ratio and bar. Exit 1 where a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import behaviours, federation, forge, graph, hooks, lineage, sessions, space

if TYPE_CHECKING:
    from benchmarks.measure import Row

# Durable spaces last: libgit2 has one setting for the whole process, and they turn it on for good.
PARTS = (
    ("lineage", lineage.rows),
    ("hooks", hooks.rows),
    ("sessions", sessions.rows),
    ("graph", graph.rows),
    ("forge", forge.rows),
    ("federation", federation.rows),
    ("behaviours", behaviours.rows),
    ("space", space.rows),
    ("sessions", sessions.durable_rows),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="rounds a row (default: 25)")
    parser.add_argument("--json", action="store_true", help="print JSON for a program")
    parser.add_argument("--only", choices=sorted({name for name, _ in PARTS}), help="one part of the table")
    args = parser.parse_args()
    rows = [row for name, part in PARTS if args.only in (None, name) for row in part(args.rounds)]
    if args.json:
        print(json.dumps([as_json(row) for row in rows], indent=2))
    else:
        show(rows)
    return 0 if all(row.met for row in rows) else 1


def as_json(row: Row) -> dict[str, Any]:
    return row._asdict() | {"ratio": row.ratio, "met": row.met, "peers": [each._asdict() for each in row.peers]}


def show(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="clia benchmarks (medians, taken in turns)", title_justify="left")
    for heading in ("work", "ours", "floor", "peers", "ratio", "bar", ""):
        table.add_column(heading, justify="left" if heading in ("work", "floor", "peers", "") else "right")
    for row in rows:
        table.add_row(*cells(row))
    out = Console(width=170)
    out.print(table)
    for line in dict.fromkeys(f"{each.name}: {each.note}" for row in rows for each in row.peers if each.note):
        out.print(line, markup=False, highlight=False)


def cells(row: Row) -> list[str]:
    def cost(value: float) -> str:
        return f"{value:.{0 if row.unit == 'B' else 1}f} {row.unit}"

    peers = "\n".join(f"{cost(each.cost)}  {each.name}" for each in row.peers if each.cost is not None)
    bar, verdict = "", ""
    if row.bar is not None:
        bar = f"≤ {row.bar:.3g} {row.unit}" if row.absolute else f"≤ {row.bar:.3g}x"
        verdict = "[green]met[/]" if row.met else "[red]not met[/]"
    return [row.work, cost(row.ours), f"{cost(row.floor)}  {row.floor_name}", peers, f"{row.ratio:.2f}x", bar, verdict]


if __name__ == "__main__":
    sys.exit(main())
