"""A read is pure: its output depends only on the files, and it changes nothing."""

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
    """Lists directories in a random order."""

    def __init__(self, seed: int) -> None:
        self._order = random.Random(seed)  # noqa: S311  # an order, not a secret

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        entries = super().entries(directory)
        if entries is not None:
            self._order.shuffle(entries)
        return entries


layers = st.lists(
    st.fixed_dictionaries({}, optional={"agent": agents(), "agenda": agendas(), "agency": agencies(), "second": agents()}),
    min_size=1,
    max_size=4,
)


def planted(root: Path, documents: Sequence[dict[str, Any]]) -> str:
    tree = Tree(root.resolve())
    tree.repository("w")
    tree.agent("w", title="outermost")
    directory = "w"
    for number, kinds in enumerate(documents):
        directory = f"{directory}/{number}"
        tree.directory(directory)
        for kind, content in kinds.items():
            name = f"z.{kind}.triad.json" if kind != "second" else "a.agent.triad.json"
            content.pop("rootChain", None)  # most are refused, and a refusal has no output to compare
            tree.document(directory, "scout", "agent" if kind == "second" else kind, content, name=name)
    return tree.path(directory)


def everything(files: LocalFiles, path: str) -> str:
    scout = Lineage(files, survey(files, path), "scout")
    documents = [scout.merged(kind).to_json(root_chain=True, show_origin=True) for kind in ("agent", "agenda", "agency")]
    return json.dumps([scout.context().to_json(), *documents])


@given(layers, st.integers(0, 2**32), st.integers(0, 2**32))
def test_shuffled_listings_give_identical_bytes(documents: list[dict[str, Any]], first_seed: int, second_seed: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        assert (
            everything(ShuffledFiles(first_seed), path)
            == everything(ShuffledFiles(second_seed), path)
            == everything(LocalFiles(), path)
        )


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
        for file in [Path(root), *Path(root).rglob("*")]:
            os.utime(file, (moment, moment))
        assert everything(LocalFiles(), path) == before


@settings(max_examples=12)
@given(layers, st.lists(st.integers(0, 4_294_967_295), min_size=2, max_size=2, unique=True))
def test_random_hash_seeds_give_identical_bytes(documents: list[dict[str, Any]], seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = planted(Path(root), documents)
        command = ("agents", "profile", "--slug", "scout", "--json", "--root-chain", "--show-origin", "--path", path)
        first, second = (clia(*command, env={"PYTHONHASHSEED": str(seed)}) for seed in seeds)
        assert first.out
        assert first == second


def test_time_zones_and_locales_give_identical_bytes(tree: Tree) -> None:
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
    runs = [clia(*command, env=environment) for environment in settings_]
    assert runs[0].code == 0
    assert all(ran == runs[0] for ran in runs)
