"""A tree reads as a checkout of it does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import FileError
from clia.files import DIRECTORY, FILE, LINK, MISSING, LocalFiles
from clia.identities.guardrails.changes import no_submodules
from clia.identities.tree_files import TOP, TreeFiles
from clia.space.model import Link, Submodule
from support.memory_trees import memory_trees

if TYPE_CHECKING:
    from pathlib import Path

CONTENT: dict[str, Any] = {
    "a/file": "text",
    "a/b/c": "deep",
    "to-file": Link("a/file"),
    "to-folder": Link("a/b"),
    "a/b/up": Link("../../to-file"),
    "loop": Link("loop"),
    "one": Link("two"),
    "two": Link("one"),
    "broken": Link("nowhere/at/all"),
}
PATHS = ("a", "a/file", "to-file", "to-folder", "to-folder/c", "a/b/up", "broken", "none", "a/file/below", "a/../a/./file", "")


def files() -> TreeFiles:
    trees = memory_trees()
    return TreeFiles(trees, trees.tree({**CONTENT, "sub": Submodule("a" * 40)}), no_submodules)


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    for path, content in CONTENT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            (tmp_path / path).symlink_to(content.target)
        else:
            (tmp_path / path).write_text(content)
    return os.path.realpath(tmp_path)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_reads_as_in_a_checkout(checkout: str, path: str) -> None:
    local, tree = LocalFiles(), files()
    there, here = (f"{top}/{path}" if path else top for top in (checkout, TOP))
    assert tree.real(here).removeprefix(TOP) == local.real(there).removeprefix(checkout)
    assert tree.kind(tree.real(here)) == local.kind(local.real(there))
    assert (tree.kind(here) == LINK) == (local.kind(there) == LINK)
    names = [sorted(entry for entry in reader.entries(where) or () if entry.name not in (".git", "sub"))
             for reader, where in ((tree, here), (local, there))]  # fmt: skip
    assert names[0] == names[1]
    if local.kind(local.real(there)) in (FILE, MISSING):
        assert tree.read(here, 100) == local.read(there, 100)


@pytest.mark.parametrize("path", ["loop", "one", "two"])
def test_a_cycle_of_links_leads_nowhere(path: str) -> None:
    tree = files()
    with pytest.raises(FileError):
        tree.read(f"{TOP}/{path}", 10)
    assert tree.entries(f"{TOP}/{path}") is None


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd", "../..", "\0", "/"])
def test_a_link_out_of_the_tree_reads_nothing(target: str) -> None:
    trees = memory_trees()
    tree = TreeFiles(trees, trees.tree({"out": Link(target)}), no_submodules)
    assert not tree.entries(f"{TOP}/out")
    assert not tree.real(f"{TOP}/out").startswith(f"{TOP}/") or "\0" in target
    assert tree.kind(f"{tree.real(f'{TOP}/out')}/x") == MISSING


def test_a_submodule_is_an_empty_repository() -> None:
    tree = files()
    assert tree.kind(f"{TOP}/sub") == DIRECTORY
    assert [entry.name for entry in tree.entries(f"{TOP}/sub") or ()] == [".git"]


def test_a_directory_is_not_read_as_a_file() -> None:
    with pytest.raises(FileError):
        files().read(f"{TOP}/a", 10)


def test_at_most_one_byte_beyond_the_limit_is_read() -> None:
    assert files().read(f"{TOP}/a/file", 2) == b"tex"
