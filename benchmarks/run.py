"""``make bench``: one table, every row with its floor, ratio and bar. Exit 1 where a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import lineage, space

if TYPE_CHECKING:
    from benchmarks.measure import Row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="rounds a row (default: 25)")
    parser.add_argument("--json", action="store_true", help="print JSON for a program")
    args = parser.parse_args()
    rows = [*lineage.rows(args.rounds), *space.rows(args.rounds)]
    if args.json:
        print(json.dumps([row._asdict() | {"ratio": row.ratio, "met": row.met} for row in rows], indent=2))
    else:
        show(rows)
    return 0 if all(row.met for row in rows) else 1


def show(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="clia benchmarks (medians, taken in turns)", title_justify="left")
    for heading in ("work", "ours", "floor", "peer", "ratio", "bar", ""):
        table.add_column(heading, justify="left" if heading in ("work", "floor", "peer", "") else "right")
    for row in rows:
        bar = f"≤ {row.bar:g} ms" if row.absolute else f"≤ {row.bar:g}x"
        verdict = "[green]met[/]" if row.met else "[red]not met[/]"
        floor = f"{row.floor:.1f} ms  {row.floor_name}"
        peer = "" if row.peer is None else f"{row.peer:.1f} ms  {row.peer_name}"
        table.add_row(row.work, f"{row.ours:.1f} ms", floor, peer, f"{row.ratio:.2f}x", bar, verdict)
    out = Console(width=150)
    out.print(table)
    for row in rows:
        if row.peer_name and row.peer is None:
            note = (
                row.peer_name
                if row.peer_name.startswith("`")
                else f"{row.peer_name} skipped, not installed (make bench PEERS=1 installs it)"
            )
            out.print(f"peer: {note}")


if __name__ == "__main__":
    sys.exit(main())
