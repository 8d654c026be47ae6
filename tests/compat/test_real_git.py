"""Boundaries of repositories made by real git: submodules and worktrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clia import lineage
from support import clia, git

if TYPE_CHECKING:
    from support import Tree

ROOT = Path(__file__).resolve().parents[2]


def committed(tree: Tree, name: str) -> Path:
    root = tree.directory(name)
    git("init", "--quiet", "--initial-branch=main", cwd=root)
    tree.agent(name, title=f"Scout of {name}", guardrails=[f"rule of {name}"])
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", "agents", cwd=root)
    return root


def test_a_real_submodule_is_labelled_and_is_the_write_target(tree: Tree) -> None:
    committed(tree, "lib")
    mono = committed(tree, "mono")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", tree.path("lib"), "parts/lib", cwd=mono)
    assert (mono / "parts/lib/.git").is_file()
    identity = lineage(mono / "parts/lib", "scout")
    assert [layer.reasons for layer in identity.context().chain] == [("ancestor",), ("ancestor", "submodule-root")]
    assert identity.profile()["guardrails"] == ["rule of mono", "rule of lib"]
    wrote = clia("agents", "journal", "--slug", "scout", "--note", "n", "--json", cwd=mono / "parts/lib")
    assert wrote.json()["path"] == str(mono / "parts/lib/.clia/agents/scout/scout@lib.agency.triad.json")
    assert "scout@lib.agency.triad.json" in git("status", "--short", "--untracked-files=all", cwd=mono / "parts/lib")


def test_a_linked_worktree_is_a_separate_repository(tree: Tree) -> None:
    mono = committed(tree, "mono")
    git("worktree", "add", "--quiet", tree.path("beside"), cwd=mono)
    assert lineage(tree.path("beside"), "scout").profile()["title"] == "Scout of mono"
    wrote = clia("agents", "journal", "--slug", "scout", "--note", "n", "--json", cwd=tree.path("beside"))
    assert wrote.json()["path"].startswith(tree.path("beside/.clia"))


def test_a_journal_entry_is_a_small_diff(tree: Tree) -> None:
    mono = committed(tree, "mono")
    for note in ("one", "two"):
        assert clia("agents", "journal", "--slug", "scout", "--note", note, cwd=mono).code == 0
        git("add", "--all", cwd=mono)
        git("commit", "--quiet", "--message", note, cwd=mono)
    assert clia("agents", "journal", "--slug", "scout", "--note", "three", cwd=mono).code == 0
    added, removed, _ = git("diff", "--numstat", cwd=mono).split("\t")
    assert int(removed) <= 1, "only the line that gets a comma"
    assert int(added) < 25
