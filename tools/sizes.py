"""The size check of ``make lint``: functions and modules stay small enough to read."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "clia"
FUNCTION_MAX, FUNCTION_95TH, MODULE_MAX = 60, 40, 500
# Lines a function (median, 95th percentile) and the largest module of well-kept peers, counted the same way.
PEERS = (("pre-commit", 8, 44, 551), ("structlog", 7, 38, 1249), ("procrastinate", 8, 45, 1042))


class Function(NamedTuple):
    lines: int
    where: str


def functions(path: Path) -> list[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions_found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            where = f"{path.relative_to(SOURCE.parent)}:{node.lineno} {node.name}"
            functions_found.append(Function((node.end_lineno or node.lineno) - node.lineno + 1, where))
    return functions_found


def main() -> int:
    modules = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(SOURCE.rglob("*.py"))}
    every = [function for path in modules for function in functions(path)]
    sizes = [function.lines for function in every]
    middle, ninety_fifth = statistics.median(sizes), statistics.quantiles(sizes, n=20)[-1]
    print(f"{'':16}{'median':>8}{'95th':>8}{'largest module':>18}")
    print(f"{'clia':16}{middle:>8.0f}{ninety_fifth:>8.0f}{max(modules.values()):>18}")
    for name, *numbers in PEERS:
        print(f"{name:16}{numbers[0]:>8}{numbers[1]:>8}{numbers[2]:>18}")
    print(f"{'bar':16}{'':>8}{FUNCTION_95TH:>8}{MODULE_MAX:>18}   and no function over {FUNCTION_MAX} lines")
    print(f"{len(modules)} modules, {len(every)} functions, {sum(modules.values())} lines")
    faults = [f"{function.where}: {function.lines} lines" for function in every if function.lines > FUNCTION_MAX]
    faults += [f"{path.relative_to(SOURCE.parent)}: {lines} lines" for path, lines in modules.items() if lines > MODULE_MAX]
    if ninety_fifth > FUNCTION_95TH:
        faults.append(f"the 95th percentile of functions has {ninety_fifth:.0f} lines")
    for fault in faults:
        print(f"too large: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
