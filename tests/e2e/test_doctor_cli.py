"""``clia doctor`` and ``clia agents doctor`` as installed."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import clia as library
from support import clia, git

if TYPE_CHECKING:
    from support import Tree


def test_agents_doctor_shows_chain_inheritance_and_findings(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root")
    tree.agent("w", title="Scout", inherits=[".clia/agents/root/root@w.agent.triad.json"])
    tree.agent("w/s", tags=[5])
    tree.agent("w", "idle", status="paused")
    ran = clia("agents", "doctor", "--path", tree.path("w/s"), "--ceiling", tree.path(), env={"COLUMNS": "400"})
    assert ran.code == 1
    for part in (
        "scout  Scout",
        f"scout@w  {tree.path('w')}  agent",
        f"scout@s  {tree.path('w/s')}  agent",
        "/.clia/agents/root/root@w.agent.triad.json  ← ",
        "/.clia/agents/scout/scout@w.agent.triad.json (agent)",
        "schema  /tags/0",
        "idle    paused, skipped by lint",
    ):
        assert part in ran.out
    assert ran.out.splitlines()[-1].startswith(f"2 identities visible from {tree.path('w/s')}: 1 error")


def test_agents_doctor_as_json(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="Scout")
    ran = clia("agents", "doctor", "--path", tree.path("w"), "--ceiling", tree.path(), "--json")
    assert ran.code == 0
    report = ran.json()
    assert list(report) == ["path", "repository", "agents", "findings", "summary"]
    (agent,) = report["agents"]
    assert list(agent) == ["slug", "title", "status", "active", "mode", "chain", "inherits", "findings"]
    assert [layer["path"] for layer in agent["chain"]] == [tree.path("w")]


def test_doctor_reports_versions_and_agents(tree: Tree) -> None:
    tree.directory("w/s")
    git("init", "-q", cwd=tree.root / "w")
    tree.agent("w")
    ran = clia("doctor", "--path", tree.path("w/s"), "--ceiling", tree.path(), "--json")
    assert ran.code == 0
    report = ran.json()
    assert report["clia"] == library.__version__
    assert report["python"] == platform.python_version()
    assert report["git"] == git("version", cwd=tree.root).split()[2]
    assert (report["path"], report["repository"]) == (tree.path("w/s"), tree.path("w"))
    assert [agent["slug"] for agent in report["agents"]["agents"]] == ["scout"]


def test_doctor_reports_missing_git_and_repository(tree: Tree) -> None:
    empty = str(tree.directory("empty"))
    ran = clia("doctor", "--path", empty, "--ceiling", tree.path(), env={"PATH": empty, "COLUMNS": "300"})
    assert ran.code == 0
    assert "not found: the history of repositories cannot be checked" in ran.out
    assert "none: not inside a git repository" in ran.out
    report = clia("doctor", "--path", empty, "--ceiling", tree.path(), "--json", env={"PATH": empty}).json()
    assert (report["git"], report["repository"]) == (None, None)


def test_doctors_fail_on_errors_and_refuse_missing_paths(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", tags=[5])
    for arguments in (("doctor",), ("agents", "doctor")):
        assert clia(*arguments, "--path", tree.path("w"), "--ceiling", tree.path()).code == 1
        result = clia(*arguments, "--path", tree.path("gone"))
        assert (result.code, result.out) == (2, "")


def test_a_checkout_of_a_renamed_repository_is_reported_with_the_repair(tree: Tree) -> None:
    root, renamed, checkout = tree.path("shop"), tree.path("store"), tree.path("desk")
    assert clia("init", root, cwd=tree.path()).code == 0
    assert clia("spawn", "scout", "-t", "Count", cwd=root).code == 0
    assert clia("checkout", "scout", checkout, cwd=root).code == 0
    assert clia("doctor", cwd=root).code == 0
    os.rename(root, renamed)
    for words in (["list"], ["init"]):
        ran = clia(*words, cwd=checkout)
        assert (ran.code, ran.out) == (2, "")
        assert "error: broken-worktree: " in ran.err
        assert f"hint: run in the repository, if it was moved: git worktree repair {checkout}\n" in ran.err
    for directory in (renamed, checkout):
        ran = clia("doctor", cwd=directory, env={"COLUMNS": "600"})
        assert ran.code == 1
        assert f"git worktree repair {checkout}" in ran.out
        assert "clia init" not in ran.out
    assert clia("doctor", "--json", cwd=renamed).json()["space"]["broken_checkouts"] == [checkout]
    git("worktree", "repair", checkout, cwd=renamed)
    assert clia("list", cwd=checkout).code == 0
    assert clia("doctor", cwd=renamed).code == 0
