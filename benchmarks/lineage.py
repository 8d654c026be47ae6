"""Lineage: in process, and from a cold start."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import REPETITIONS, Row, attempted, beside, command, in_turns
from benchmarks.peers import import_of
from benchmarks.trees import plant
from benchmarks.works import IMPORT_LANGGRAPH
from clia import lineage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import NotRun


def rows(rounds: int) -> Iterator[Row | NotRun]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "tree"
        inner = str(plant(root))
        yield from attempted(["profile", "profile-all"], lambda: _in_process(root, inner, rounds))
        yield from attempted(["cold-profile", "cold-version"], lambda: _cold(inner, rounds))


def _in_process(root: Path, inner: str, rounds: int) -> list[Row]:
    files = sorted(root.rglob("*.triad.json"))
    agents = [file for file in files if ".agent." in file.name]

    def parse(paths: list[Path]) -> None:
        for path in paths:
            json.loads(path.read_bytes())

    def all_three() -> None:
        scout = lineage(inner, "scout")
        scout.profile(), scout.plan(), scout.agency()

    single, floor_one, three, floor_three = in_turns(
        [lambda: lineage(inner, "scout").profile(), lambda: parse(agents), all_three, lambda: parse(files)], rounds, REPETITIONS
    )
    return [
        Row("profile", single, floor_one),
        Row("profile-all", three, floor_three),
    ]


def _cold(inner: str, rounds: int) -> list[Row]:
    program = str(Path(sys.executable).parent / "clia")
    bare = command([sys.executable, "-c", "pass"])
    ours = command([program, "agents", "profile", "--slug", "scout", "--path", inner, "--json"])
    version = command([program, "--version"])
    (floor, profile, shown), theirs = beside([bare, ours, version], {IMPORT_LANGGRAPH: import_of("langgraph.graph")}, rounds)
    return [Row("cold-profile", profile, floor, theirs), Row("cold-version", shown, floor, theirs)]
