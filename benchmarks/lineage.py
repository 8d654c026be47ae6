"""Lineage: in process, and from a cold start."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import NOT_INSTALLED, Peer, Row, command, has_package, in_turns
from benchmarks.trees import plant, size
from clia import lineage


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "tree"
        inner = str(plant(root))
        found = [*_in_process(root, inner, rounds), *_cold(inner, rounds)]
        print(f"lineage tree: 20 levels, {size(root) / 1e6:.2f} MB in 60 documents, 200 submodules")
    return found


def _in_process(root: Path, inner: str, rounds: int) -> list[Row]:
    files = sorted(root.rglob("*.triad.json"))
    agents = [each for each in files if ".agent." in each.name]

    def parse(paths: list[Path]) -> None:
        for path in paths:
            json.loads(path.read_bytes())

    def all_three() -> None:
        here = lineage(inner, "scout")
        here.profile(), here.plan(), here.agency()

    one, floor_one, three, floor_three = in_turns(
        [lambda: lineage(inner, "scout").profile(), lambda: parse(agents), all_three, lambda: parse(files)], rounds
    )
    return [
        Row("merged profile, 20 levels, 200 submodules", one, floor_one, "json.loads of the same files", 5.0, absolute=True),
        Row("profile, plan and agency of it", three, floor_three, "json.loads of the same files", 35.0, absolute=True),
    ]


def _cold(inner: str, rounds: int) -> list[Row]:
    program = str(Path(sys.executable).parent / "clia")
    bare = command([sys.executable, "-c", "pass"])
    ours = command([program, "agents", "profile", "--slug", "scout", "--path", inner, "--json"])
    version = command([program, "--version"])
    floor, profile, shown = in_turns([bare, ours, version], rounds)
    peer = Peer("import langgraph", None, NOT_INSTALLED)
    if has_package("langgraph.graph"):
        (cost,) = in_turns([command([sys.executable, "-c", "import langgraph.graph"])], max(3, rounds // 5))
        peer = Peer(peer.name, cost)
    return [
        Row("cold start: clia agents profile --json", profile, floor, "python -c pass", 5.0, peers=(peer,)),
        Row("cold start: clia --version", shown, floor, "python -c pass", 5.0),
    ]
