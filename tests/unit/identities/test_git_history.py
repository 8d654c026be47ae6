from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from clia.identities.git_history import GitHistory, RemovedDocument
from support import git

if TYPE_CHECKING:
    from pathlib import Path

    from support import Tree

SCOUT = ".clia/agents/scout/scout@w.agent.triad.json"


@pytest.fixture
def past() -> GitHistory:
    return GitHistory(os.environ)


def commit(root: Path) -> None:
    git("add", "-A", cwd=root)
    branch = git("branch", "--show-current", cwd=root)  # two branches must not make the very same commit
    git("commit", "-q", "--allow-empty", "-m", branch, cwd=root)


@pytest.fixture
def root(tree: Tree) -> Path:
    made = tree.directory("w")
    git("init", "-q", "-b", "main", cwd=made)
    tree.agent("w", title="first")
    tree.agent("w", "keeper")
    commit(made)
    return made


def paths(past: GitHistory, root: Path) -> list[str] | None:
    found = past.removed_documents(str(root))
    return None if found is None else [each.path for each in found]


def test_a_removed_document_is_told_with_its_last_content(past: GitHistory, tree: Tree, root: Path) -> None:
    assert past.removed_documents(str(root)) == []
    tree.agent("w", title="last")
    commit(root)
    last = (root / SCOUT).read_bytes()
    (root / SCOUT).unlink()
    expected = [RemovedDocument(SCOUT, past.content_id(str(root), last))]
    assert past.removed_documents(str(root)) == expected  # not committed yet
    git("rm", "-q", "--cached", SCOUT, cwd=root)
    assert past.removed_documents(str(root)) == expected  # in the index
    commit(root)
    assert past.removed_documents(str(root)) == expected
    assert git("cat-file", "-p", expected[0].content, cwd=root).encode() == last


def test_the_newest_removal_counts(past: GitHistory, tree: Tree, root: Path) -> None:
    last = b""
    for title in ("one", "two"):
        tree.agent("w", title=title)
        commit(root)
        last = (root / SCOUT).read_bytes()
        (root / SCOUT).unlink()
        commit(root)
    assert past.removed_documents(str(root)) == [RemovedDocument(SCOUT, past.content_id(str(root), last))]


def test_other_files_are_not_told(past: GitHistory, tree: Tree, root: Path) -> None:
    others = ("src/x.agent.triad.json", ".clia/agents/scout/notes.json", ".clia/agents/a/legacy-imports/b/x.agent.triad.json")
    for name in others:
        tree.write(f"w/{name}", "{}")
    tree.write("w/deep/er/.clia/agents/old/old.agency.json", "{}")
    tree.write("w/.clia/agents/odd/n\nl é.agenda.triad.json", "{}")
    commit(root)
    for name in others:
        (root / name).unlink()
    shutil.rmtree(root / "deep")
    shutil.rmtree(root / ".clia/agents/odd")
    commit(root)
    assert paths(past, root) == [".clia/agents/odd/n\nl é.agenda.triad.json", "deep/er/.clia/agents/old/old.agency.json"]


def test_a_document_that_moved_with_its_agents_directory_was_not_removed(past: GitHistory, tree: Tree, root: Path) -> None:
    (root / "lib/.clia/agents/scout").mkdir(parents=True)
    git("mv", SCOUT, "lib/.clia/agents/scout/scout@lib.agent.triad.json", cwd=root)
    assert paths(past, root) == []
    commit(root)
    tree.document("w/lib", "scout", "agent", {"slug": "scout", "title": "changed since"})
    commit(root)
    assert paths(past, root) == []
    git("mv", ".clia/agents/keeper", ".clia/agents/other", cwd=root)  # another agent's name: that one is gone
    commit(root)
    assert paths(past, root) == [".clia/agents/keeper/keeper@w.agent.triad.json"]


def test_a_document_that_came_and_went_on_a_merged_branch_is_found(past: GitHistory, tree: Tree, root: Path) -> None:
    git("switch", "-q", "-c", "side", cwd=root)
    tree.agent("w", "brief")
    commit(root)
    shutil.rmtree(root / ".clia/agents/brief")
    commit(root)
    git("switch", "-q", "main", cwd=root)
    commit(root)
    git("merge", "-q", "--no-ff", "--no-edit", "side", cwd=root)  # the merge itself changes nothing
    assert paths(past, root) == [".clia/agents/brief/brief@w.agent.triad.json"]


def test_a_document_that_only_a_merge_took_away_is_found(past: GitHistory, tree: Tree, root: Path) -> None:
    git("switch", "-q", "-c", "side", cwd=root)
    commit(root)
    git("switch", "-q", "main", cwd=root)
    commit(root)
    git("merge", "-q", "--no-ff", "--no-commit", "side", cwd=root)
    (root / SCOUT).unlink()
    commit(root)
    assert paths(past, root) == [SCOUT]


def test_only_a_repository_of_its_own_has_a_past(past: GitHistory, tree: Tree, root: Path) -> None:
    inner = tree.repository("w/inner")  # an empty .git folder: git itself would go on to the outer repository
    assert paths(past, inner) is None
    assert paths(past, tree.directory("w/plain")) is None
    assert paths(past, tree.root) is None
    assert past.is_shallow(str(inner)) is False
    git("config", "core.worktree", tree.path("w/plain"), cwd=root)
    assert paths(GitHistory(os.environ), root) is None


def test_a_repository_without_commits_has_lost_nothing(past: GitHistory, tree: Tree) -> None:
    made = tree.directory("fresh")
    git("init", "-q", cwd=made)
    assert paths(past, made) == []


def test_a_shallow_clone_says_so(past: GitHistory, tree: Tree, root: Path) -> None:
    commit(root)
    git("clone", "-q", "--depth", "1", f"file://{root}", tree.path("clone"), cwd=tree.root)
    assert past.is_shallow(tree.path("clone")) is True
    assert past.is_shallow(str(root)) is False


def test_a_worktree_and_its_git_file_work(past: GitHistory, tree: Tree, root: Path) -> None:
    git("worktree", "add", "-q", tree.path("tree"), cwd=root)
    (tree.root / "tree" / SCOUT).unlink()
    assert paths(past, tree.root / "tree") == [SCOUT]
    assert paths(past, root) == []


def test_repositories_with_sha256_are_read(past: GitHistory, tree: Tree) -> None:
    made = tree.directory("new")
    git("init", "-q", "--object-format=sha256", cwd=made)
    document = tree.agent("new")
    commit(made)
    last = document.read_bytes()
    document.unlink()
    (found,) = past.removed_documents(str(made)) or [RemovedDocument("", "")]
    assert len(found.content) == 64
    assert found.content == past.content_id(str(made), last)


def test_a_repository_that_git_cannot_read_has_no_past(past: GitHistory, root: Path) -> None:
    first = git("rev-parse", "HEAD", cwd=root).strip()
    commit(root)
    (root / ".git/objects" / first[:2] / first[2:]).unlink()
    assert paths(past, root) is None


def test_without_git_there_is_no_past(root: Path, tree: Tree) -> None:
    past = GitHistory({"PATH": tree.path("empty")})
    assert paths(past, root) is None
    assert past.version() is None
    assert past.content_id(str(root), b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_variables_of_the_caller_lead_nowhere_else(root: Path, tree: Tree) -> None:
    other = tree.directory("other")
    git("init", "-q", cwd=other)
    (root / SCOUT).unlink()
    past = GitHistory({**os.environ, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_LITERAL_PATHSPECS": "1"})
    assert paths(past, root) == [SCOUT]


def test_no_program_that_a_repository_names_is_run_and_nothing_is_written(past: GitHistory, root: Path, tree: Tree) -> None:
    trap = tree.write("trap", f"#!/bin/sh\necho ran >> {tree.path('ran')}\n")
    trap.chmod(0o755)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        shutil.copy(trap, root / ".git/hooks" / hook)
    for key in ("core.fsmonitor", "core.pager", "pager.log", "gpg.program", "diff.external", "core.sshCommand", "core.editor"):
        git("config", key, str(trap), cwd=root)
    for key, value in (
        ("log.showSignature", "true"),
        ("log.follow", "true"),
        ("diff.orderFile", "gone"),
        ("diff.relative", "true"),
    ):
        git("config", key, value, cwd=root)
    tree.write("w/.gitattributes", "* diff=trap\n")
    git("config", "diff.trap.textconv", str(trap), cwd=root)
    (root / SCOUT).unlink()
    before = tree.snapshot()
    assert paths(past, root) == [SCOUT]
    assert past.is_shallow(str(root)) is False
    assert tree.snapshot() == before


def test_no_filter_of_a_repository_is_run_on_a_changed_document(past: GitHistory, root: Path, tree: Tree) -> None:
    tree.write("w/.gitattributes", "* filter=trap\n")
    git("config", "filter.trap.clean", f"touch {tree.path('ran')}; cat", cwd=root)
    (root / SCOUT).write_text("changed")
    assert paths(past, root) == []
    assert not (tree.root / "ran").exists()


def test_nothing_is_fetched_by_a_program_that_a_partial_clone_names(past: GitHistory, root: Path, tree: Tree) -> None:
    (root / SCOUT).unlink()
    git("commit", "--quiet", "--all", "--message", "gone", cwd=root)
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", str(root)),
        ("remote.origin.uploadpack", f"touch {tree.path('ran')}; false"),
        ("protocol.file.allow", "always"),
    ):
        git("config", key, value, cwd=root)
    missing = git("rev-parse", "HEAD~1^{tree}", cwd=root).strip()
    (root / ".git/objects" / missing[:2] / missing[2:]).unlink()
    assert paths(past, root) is None
    assert not (tree.root / "ran").exists()


def test_the_version_of_git_is_known(past: GitHistory) -> None:
    assert (past.version() or "")[0].isdigit()
