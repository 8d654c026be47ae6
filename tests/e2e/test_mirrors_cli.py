"""``clia agents mirrors`` as people and CI run it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from support import clia, program

if TYPE_CHECKING:
    from support import Ran, Tree

GENERATED = ".clia/agents/scout/.generated"


@pytest.fixture
def repository(tree: Tree) -> Tree:
    tree.repository()
    tree.agent("", title="Scout", guardrails=["Never force-push."])
    tree.agency("", entries=[{"summary": "began"}])
    return tree


def mirrors(tree: Tree, *words: str) -> Ran:
    return clia("agents", "mirrors", "--path", tree.path(), *words)


def test_mirrors_are_written_and_only_under_generated(repository: Tree) -> None:
    before = set(repository.snapshot())
    ran = mirrors(repository, "--merged")
    assert (ran.code, ran.err) == (0, "")
    name = repository.root.name
    mirror_paths = [
        f"scout@{name}.agent.triad.md", f"scout@{name}.agency.triad.md", "scout.merged.agent.md", "scout.merged.agency.md",
    ]  # fmt: skip
    assert set(repository.snapshot()) - before == {GENERATED, *(f"{GENERATED}/{path}" for path in mirror_paths)}


def test_check_exits_1_until_the_mirrors_are_written(repository: Tree) -> None:
    before = repository.snapshot()
    ran = mirrors(repository, "--check", "--json")
    assert ran.code == 1
    assert [file["state"] for file in ran.json()["files"]] == ["missing", "missing"]
    assert repository.snapshot() == before
    assert mirrors(repository, "--slug", "scout").code == 0
    assert mirrors(repository, "--check").code == 0
    repository.agent("", title="Ranger")
    assert mirrors(repository, "--check").code == 1


def test_a_file_without_the_mark_is_refused(repository: Tree) -> None:
    repository.write(f"{GENERATED}/scout@{repository.root.name}.agent.triad.md", "my notes\n")
    before = repository.snapshot()
    ran = mirrors(repository)
    assert ran.code == 1
    assert "not-allowed" in ran.err
    assert repository.snapshot() == before


def test_processes_that_mirror_at_the_same_time_all_succeed(repository: Tree) -> None:
    words = [program(), "agents", "mirrors", "--path", repository.path(), "--merged", "--json"]
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [process.wait() for process in running] == [0] * 6
    assert mirrors(repository, "--merged", "--check").code == 0


@pytest.mark.parametrize(("slug", "code"), [("../x", "invalid-slug"), ("nobody", "agent-not-found")])
def test_bad_input_exits_2(repository: Tree, slug: str, code: str) -> None:
    before = repository.snapshot()
    ran = mirrors(repository, "--slug", slug)
    assert ran.code == 2
    assert code in ran.err
    assert "Traceback" not in ran.err
    assert repository.snapshot() == before
