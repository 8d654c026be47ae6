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
def history() -> GitHistory:
    return GitHistory(os.environ)


def commit(root: Path) -> None:
    git("add", "-A", cwd=root)
    branch = git("branch", "--show-current", cwd=root)  # commits on two branches must differ
    git("commit", "-q", "--allow-empty", "-m", branch, cwd=root)


@pytest.fixture
def root(tree: Tree) -> Path:
    directory = tree.directory("w")
    git("init", "-q", "-b", "main", cwd=directory)
    tree.agent("w", title="first")
    tree.agent("w", "keeper")
    commit(directory)
    return directory


def paths(history: GitHistory, root: Path) -> list[str] | None:
    removed = history.removed_documents(str(root))
    return None if removed is None else [document.path for document in removed]


def test_a_removed_document_is_reported_with_its_last_content(history: GitHistory, tree: Tree, root: Path) -> None:
    assert history.removed_documents(str(root)) == []
    tree.agent("w", title="last")
    commit(root)
    last_content = (root / SCOUT).read_bytes()
    (root / SCOUT).unlink()
    expected = [RemovedDocument(SCOUT, history.content_id(str(root), last_content))]
    assert history.removed_documents(str(root)) == expected  # not committed yet
    git("rm", "-q", "--cached", SCOUT, cwd=root)
    assert history.removed_documents(str(root)) == expected  # in the index
    commit(root)
    assert history.removed_documents(str(root)) == expected
    assert git("cat-file", "-p", expected[0].content, cwd=root).encode() == last_content


def test_the_newest_removal_is_reported(history: GitHistory, tree: Tree, root: Path) -> None:
    last_content = b""
    for title in ("one", "two"):
        tree.agent("w", title=title)
        commit(root)
        last_content = (root / SCOUT).read_bytes()
        (root / SCOUT).unlink()
        commit(root)
    assert history.removed_documents(str(root)) == [RemovedDocument(SCOUT, history.content_id(str(root), last_content))]


def test_other_files_are_not_reported(history: GitHistory, tree: Tree, root: Path) -> None:
    names = ("src/x.agent.triad.json", ".clia/agents/scout/notes.json", ".clia/agents/a/legacy-imports/b/x.agent.triad.json")
    for name in names:
        tree.write(f"w/{name}", "{}")
    tree.write("w/deep/er/.clia/agents/old/old.agency.json", "{}")
    tree.write("w/.clia/agents/odd/n\nl é.agenda.triad.json", "{}")
    commit(root)
    for name in names:
        (root / name).unlink()
    shutil.rmtree(root / "deep")
    shutil.rmtree(root / ".clia/agents/odd")
    commit(root)
    assert paths(history, root) == [".clia/agents/odd/n\nl é.agenda.triad.json", "deep/er/.clia/agents/old/old.agency.json"]


def test_a_document_that_moved_with_its_agents_directory_is_not_removed(history: GitHistory, tree: Tree, root: Path) -> None:
    (root / "lib/.clia/agents/scout").mkdir(parents=True)
    git("mv", SCOUT, "lib/.clia/agents/scout/scout@lib.agent.triad.json", cwd=root)
    assert paths(history, root) == []
    commit(root)
    tree.document("w/lib", "scout", "agent", {"slug": "scout", "title": "changed since"})
    commit(root)
    assert paths(history, root) == []
    git("mv", ".clia/agents/keeper", ".clia/agents/other", cwd=root)  # under another agent's name, the document counts as removed
    commit(root)
    assert paths(history, root) == [".clia/agents/keeper/keeper@w.agent.triad.json"]


def test_a_document_added_and_removed_on_a_merged_branch_is_reported(history: GitHistory, tree: Tree, root: Path) -> None:
    git("switch", "-q", "-c", "side", cwd=root)
    tree.agent("w", "brief")
    commit(root)
    shutil.rmtree(root / ".clia/agents/brief")
    commit(root)
    git("switch", "-q", "main", cwd=root)
    commit(root)
    git("merge", "-q", "--no-ff", "--no-edit", "side", cwd=root)  # the merge itself changes nothing
    assert paths(history, root) == [".clia/agents/brief/brief@w.agent.triad.json"]


def test_a_document_removed_by_a_merge_commit_is_reported(history: GitHistory, tree: Tree, root: Path) -> None:
    git("switch", "-q", "-c", "side", cwd=root)
    commit(root)
    git("switch", "-q", "main", cwd=root)
    commit(root)
    git("merge", "-q", "--no-ff", "--no-commit", "side", cwd=root)
    (root / SCOUT).unlink()
    commit(root)
    assert paths(history, root) == [SCOUT]


def test_only_the_root_of_a_repository_has_a_history(history: GitHistory, tree: Tree, root: Path) -> None:
    inner = tree.repository("w/inner")  # an empty .git folder, where git itself would use the outer repository
    assert paths(history, inner) is None
    assert paths(history, tree.directory("w/plain")) is None
    assert paths(history, tree.root) is None
    assert history.is_shallow(str(inner)) is False
    git("config", "core.worktree", tree.path("w/plain"), cwd=root)
    assert paths(GitHistory(os.environ), root) is None


def test_a_repository_without_commits_has_no_removed_documents(history: GitHistory, tree: Tree) -> None:
    directory = tree.directory("fresh")
    git("init", "-q", cwd=directory)
    assert paths(history, directory) == []


def test_a_shallow_clone_is_recognised(history: GitHistory, tree: Tree, root: Path) -> None:
    commit(root)
    git("clone", "-q", "--depth", "1", f"file://{root}", tree.path("clone"), cwd=tree.root)
    assert history.is_shallow(tree.path("clone")) is True
    assert history.is_shallow(str(root)) is False


def test_a_worktree_has_its_own_removals(history: GitHistory, tree: Tree, root: Path) -> None:
    git("worktree", "add", "-q", tree.path("tree"), cwd=root)
    (tree.root / "tree" / SCOUT).unlink()
    assert paths(history, tree.root / "tree") == [SCOUT]
    assert paths(history, root) == []


def test_repositories_with_sha256_are_read(history: GitHistory, tree: Tree) -> None:
    directory = tree.directory("new")
    git("init", "-q", "--object-format=sha256", cwd=directory)
    document = tree.agent("new")
    commit(directory)
    last_content = document.read_bytes()
    document.unlink()
    (removed,) = history.removed_documents(str(directory)) or [RemovedDocument("", "")]
    assert len(removed.content) == 64
    assert removed.content == history.content_id(str(directory), last_content)


def test_a_damaged_repository_has_no_history(history: GitHistory, root: Path) -> None:
    first = git("rev-parse", "HEAD", cwd=root).strip()
    commit(root)
    (root / ".git/objects" / first[:2] / first[2:]).unlink()
    assert paths(history, root) is None


def test_without_git_no_history_is_available(root: Path, tree: Tree) -> None:
    history = GitHistory({"PATH": tree.path("empty")})
    assert paths(history, root) is None
    assert history.version() is None
    assert history.content_id(str(root), b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_git_variables_of_the_caller_are_ignored(root: Path, tree: Tree) -> None:
    decoy = tree.directory("other")
    git("init", "-q", cwd=decoy)
    (root / SCOUT).unlink()
    history = GitHistory({**os.environ, "GIT_DIR": str(decoy / ".git"), "GIT_WORK_TREE": str(decoy), "GIT_LITERAL_PATHSPECS": "1"})
    assert paths(history, root) == [SCOUT]


def test_configured_programs_are_not_run_and_nothing_is_written(history: GitHistory, root: Path, tree: Tree) -> None:
    script = tree.write("trap", f"#!/bin/sh\necho ran >> {tree.path('ran')}\n")
    script.chmod(0o755)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        shutil.copy(script, root / ".git/hooks" / hook)
    for key in ("core.fsmonitor", "core.pager", "pager.log", "gpg.program", "diff.external", "core.sshCommand", "core.editor"):
        git("config", key, str(script), cwd=root)
    for key, value in (
        ("log.showSignature", "true"),
        ("log.follow", "true"),
        ("diff.orderFile", "gone"),
        ("diff.relative", "true"),
    ):
        git("config", key, value, cwd=root)
    tree.write("w/.gitattributes", "* diff=trap\n")
    git("config", "diff.trap.textconv", str(script), cwd=root)
    (root / SCOUT).unlink()
    before = tree.snapshot()
    assert paths(history, root) == [SCOUT]
    assert history.is_shallow(str(root)) is False
    assert tree.snapshot() == before


def test_filters_of_the_repository_are_not_run_on_a_changed_document(history: GitHistory, root: Path, tree: Tree) -> None:
    tree.write("w/.gitattributes", "* filter=trap\n")
    git("config", "filter.trap.clean", f"touch {tree.path('ran')}; cat", cwd=root)
    (root / SCOUT).write_text("changed")
    assert paths(history, root) == []
    assert not (tree.root / "ran").exists()


def test_missing_objects_of_a_partial_clone_are_not_fetched(history: GitHistory, root: Path, tree: Tree) -> None:
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
    missing_tree = git("rev-parse", "HEAD~1^{tree}", cwd=root).strip()
    (root / ".git/objects" / missing_tree[:2] / missing_tree[2:]).unlink()
    assert paths(history, root) is None
    assert not (tree.root / "ran").exists()


def test_the_version_of_git_is_known(history: GitHistory) -> None:
    assert (history.version() or "")[0].isdigit()
