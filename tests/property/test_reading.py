"""A read is pure: its bytes depend on the files alone, and it leaves no trace."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clia.files import LocalFiles
from clia.identities.lineage import Lineage
from clia.identities.working_path import survey
from support import Tree, clia
from support.documents import agencies, agendas, agents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.files import DirectoryEntry


class ShuffledFiles(LocalFiles):
    """Lists every directory in another order each time."""

    def __init__(self, seed: int) -> None:
        self._order = random.Random(seed)  # noqa: S311  # an order, not a secret

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        found = super().entries(directory)
        if found is not None:
            self._order.shuffle(found)
        return found


layers = st.lists(
    st.fixed_dictionaries({}, optional={"agent": agents(), "agenda": agendas(), "agency": agencies(), "second": agents()}),
    min_size=1,
    max_size=4,
)


def planted(root: Path, documents: Sequence[dict[str, Any]]) -> str:
    tree = Tree(root.resolve())
    tree.repository("w")
    tree.agent("w", title="outermost")
    where = "w"
    for number, kinds in enumerate(documents):
        where = f"{where}/{number}"
        tree.directory(where)
        for kind, content in kinds.items():
            named = f"z.{kind}.triad.json" if kind != "second" else "a.agent.triad.json"
            content.pop("rootChain", None)  # most are refused, and then there is nothing to compare
            tree.document(where, "scout", "agent" if kind == "second" else kind, content, name=named)
    return tree.path(where)


def everything(files: LocalFiles, path: str) -> str:
    found = Lineage(files, survey(files, path), "scout")
    shown = [found.merged(kind).to_json(root_chain=True, show_origin=True) for kind in ("agent", "agenda", "agency")]
    return json.dumps([found.context().to_json(), *shown])


@given(layers, st.integers(0, 2**32), st.integers(0, 2**32))
def test_shuffled_listings_give_identical_bytes(documents: list[dict[str, Any]], one: int, two: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        assert everything(ShuffledFiles(one), path) == everything(ShuffledFiles(two), path) == everything(LocalFiles(), path)


@given(layers)
def test_a_read_changes_nothing_on_disk(documents: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        tree = Tree(Path(root).resolve())
        before = tree.snapshot()
        everything(LocalFiles(), path)
        assert tree.snapshot() == before


moments = st.integers(0, 4_000_000_000)


@given(layers, moments)
def test_moved_clocks_give_identical_bytes(documents: list[dict[str, Any]], moment: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        before = everything(LocalFiles(), path)
        for each in [Path(root), *Path(root).rglob("*")]:
            os.utime(each, (moment, moment))
        assert everything(LocalFiles(), path) == before


@settings(max_examples=12)
@given(layers, st.lists(st.integers(0, 4_294_967_295), min_size=2, max_size=2, unique=True))
def test_random_hash_seeds_give_identical_bytes(documents: list[dict[str, Any]], seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        command = ("agents", "profile", "--slug", "scout", "--json", "--root-chain", "--show-origin", "--path", path)
        one, other = (clia(*command, env={"PYTHONHASHSEED": str(seed)}) for seed in seeds)
        assert one.out
        assert one == other


def test_other_places_and_languages_give_identical_bytes(tree: Tree) -> None:
    tree.repository("w")
    mix = [{"type": kind, "weight": 1} for kind in ("code", "doc", "test")]
    tree.agent("w", guardrails=["a", "b"], contributionMix=mix, x={"k1": 1, "k2": 2}, extensions={"q": 1, "r": 2})
    tree.agent("w/in", guardrails=["c"], contributionMix=mix[::-1], x={"k3": 1}, links=[{"url": "u"}])
    command = ("agents", "profile", "--slug", "scout", "--json", "--show-origin", "--path", tree.path("w/in"))
    settings_ = [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "12345"},
        {"TZ": "Asia/Kathmandu", "LC_ALL": "C"},
        {"LANG": "tr_TR.UTF-8"},
    ]
    runs = [clia(*command, env=each) for each in settings_]
    assert runs[0].code == 0
    assert all(each == runs[0] for each in runs)
