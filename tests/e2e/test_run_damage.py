"""``clia run`` of programs that damage their worktree, and in repositories that are moved: trace and files are in git."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import clia
from clia.testing import Crash, crash_at
from support import git, program, scripted_tool
from support.machine_logs import superseded_commits
from support.programs import run
from support.spaces import settings, trace_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAMAGE = {
    "link deleted": ("rm .git", "the .git of the worktree was deleted"),
    "link broken": ("echo gitdir: /nowhere > .git", "the .git of the worktree named a missing repository"),
    "own repository": (
        "rm .git; git init -q .; git add -A; git -c user.name=x -c user.email=x@x commit -qm own",
        "the .git of the worktree was replaced by another repository",
    ),
    "unregistered": ('rm -r "$(git rev-parse --git-dir)"', "the worktree was removed from the repository"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "shop"


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.init(root, settings=settings()) as opened:
        (root / "kept.txt").write_text("kept\n")
        (root / ".gitignore").write_text("cache\n")
        git("add", ".", cwd=root)
        git("-c", "user.name=T", "-c", "user.email=t@t", "commit", "--quiet", "-m", "One", cwd=root)
        yield opened


@pytest.mark.parametrize("case", DAMAGE)
def test_a_program_that_damages_its_git_link_leaves_files_and_trace_with_a_note(space: clia.Space, case: str) -> None:
    script, note = DAMAGE[case]
    report = run(space, "sh", "-c", f"echo said; echo new > new.txt; echo x > cache; {script}")
    assert report.problem is None
    assert report.commit is not None
    assert space.files(report.commit) == {"kept.txt": b"kept\n", ".gitignore": b"cache\n", "new.txt": b"new\n"}
    assert space.show(report.commit).meta["worktree"].startswith(note)
    texts = trace_texts(space, report.commit)
    assert "said\n" in texts
    assert any(text.startswith(note) for text in texts)
    second = run(space, "sh", "-c", "git status --porcelain; rm new.txt")
    assert (second.problem, second.left) == (None, None)
    assert second.commit is not None
    assert space.files(second.commit).keys() == {"kept.txt", ".gitignore"}
    assert space.verify().findings == ()


def test_a_program_that_deletes_its_worktree_leaves_its_trace_and_no_deletion(space: clia.Space) -> None:
    report = run(space, "sh", "-c", 'echo said; rm -r "$PWD"')
    assert report.problem is None
    assert report.commit is not None
    assert space.files(report.commit).keys() == {"kept.txt", ".gitignore"}
    assert space.show(report.commit).meta["worktree"].startswith("the worktree was deleted")
    assert run(space, "test", "-f", "kept.txt").exit_code == 0


REMOVALS = {
    "link deleted": "rm .git",
    "worktree deleted": 'rm -r "$PWD"',
    "unregistered": 'rm -r "$(git rev-parse --git-dir)"',
    "unregistered and link deleted": 'rm -r "$(git rev-parse --git-dir)" .git',
    "everything deleted": 'rm -r "$(git rev-parse --git-dir)" "$PWD"',
    "removed by git": 'git worktree remove --force "$PWD"',
    "removed by git and added again": 'D=$PWD; cd "$(git rev-parse --git-common-dir)"; git worktree remove --force $D; '
    "git worktree add -q --detach $D $TIP; cd $D; echo last > last.txt",
    "own repository and unregistered": 'rm -r "$(git rev-parse --git-dir)" .git; git init -q .',
}
OWN_COMMITS = (
    "git config user.name T; git config user.email t@t; echo 1 > a.txt; git add a.txt; git commit -qm first; "
    "echo 2 > b.txt; git add b.txt; git commit -qm draft; git commit -q --amend -m second; TIP=$(git rev-parse HEAD)"
)


def lost_commits(root: Path) -> set[str]:
    """The commits that no ref reaches, except former ones of the log, which clia removes after a minute."""
    lines = git("fsck", "--no-reflogs", "--unreachable", cwd=root).splitlines()
    unreachable = {line.removeprefix("unreachable commit ") for line in lines if line.startswith("unreachable commit ")}
    return unreachable - set(superseded_commits(root))


@pytest.mark.parametrize("case", REMOVALS)
def test_commits_of_a_program_that_removes_its_worktree_are_adopted(space: clia.Space, root: Path, case: str) -> None:
    report = run(space, "sh", "-c", f"{OWN_COMMITS}; {REMOVALS[case]}")
    assert report.problem is None
    assert report.commit is not None
    assert space.show(report.commit).meta["worktree"]
    own = [commit.message.partition("\n")[0] for commit in space.history.own("scout") if commit.own is not None]
    assert own == ["second", "first"]
    assert len(report.kept) == 1  # the draft
    assert space.files("scout").keys() - {"last.txt"} == {"kept.txt", ".gitignore", "a.txt", "b.txt"}
    assert [line.agent for line in space.blame("scout", "b.txt")] == ["scout"]
    assert lost_commits(root) == set()
    assert run(space, "test", "-f", "b.txt").exit_code == 0
    assert space.verify().findings == ()


def test_commits_of_a_killed_run_whose_worktree_was_removed_are_adopted_by_the_next(space: clia.Space, root: Path) -> None:
    script = f'{OWN_COMMITS}; git worktree remove --force "$PWD"'
    with clia.open(root, settings=settings(reached=crash_at("program-ended"))) as killed, pytest.raises(Crash):
        run(killed, "sh", "-c", script)
    assert run(space, "true").left is not None
    own = [commit.message.partition("\n")[0] for commit in space.history.own("scout") if commit.own is not None]
    assert own == ["second", "first"]
    assert lost_commits(root) == set()


def test_a_killed_program_leaves_its_files_and_its_exit_code(space: clia.Space) -> None:
    report = run(space, "sh", "-c", "echo new > new.txt; kill -9 $$")
    assert report.exit_code == 128 + signal.SIGKILL
    assert report.commit is not None
    assert "new.txt" in space.files(report.commit)


def test_events_of_a_tool_that_deletes_its_git_link_are_recorded(space: clia.Space) -> None:
    tool = (sys.executable, scripted_tool.__file__, program(), "s-1", "1", "1")
    report = run(space, "sh", "-c", f"rm .git; {shlex.join(tool)}")
    assert report.problem is None
    assert space.files("scout").keys() == {"kept.txt", ".gitignore", "before.txt", "t1-0.txt", "after.txt"}
    traces = [space.traces.of(commit.cid) for commit in space.history.own("scout")]
    kinds = [entry["kind"] for trace in traces if trace for entry in trace.entries]
    assert (kinds.count("tool-call"), kinds.count("prompt")) == (1, 1)
    assert space.agents() == ["scout"]


def test_a_repository_that_is_moved_during_a_run_records_the_run_at_the_next(root: Path, space: clia.Space) -> None:
    moved = root.parent / "moved"
    report = run(space, "sh", "-c", f"echo new > new.txt; mv {root} {moved}")
    assert report.problem is not None
    with clia.open(moved, settings=settings()) as after:
        second = run(after, "true")
        assert second.problem is None
        assert second.left is not None
        assert after.files(second.left)["new.txt"] == b"new\n"
        assert after.verify().findings == ()


def test_a_repository_and_a_head_that_are_unusual_are_recorded_alike(space: clia.Space, root: Path) -> None:
    """A rebase that is in progress in the worktree, and a detached HEAD in the user's one."""
    git("checkout", "--quiet", "--detach", cwd=root)
    identity = "git config user.name T; git config user.email t@t; "
    script = identity + "echo 1 > f; git add f; git commit -qm a; echo 2 > f; git commit -qam b; git rebase -q -x false HEAD~1"
    report = run(space, "sh", "-c", f"{script}; echo mine > mine.txt")
    assert report.problem is None
    assert report.commit is not None
    assert space.files(report.commit).keys() >= {"f", "mine.txt"}
    assert os.path.isdir(git("rev-parse", "--git-path", "rebase-merge", cwd=report.directory).strip())
    assert run(space, "git", "rebase", "--abort").problem is None
    assert space.verify().findings == ()
    assert report.adopted >= 1
