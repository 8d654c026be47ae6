"""Worktrees of agents: adding and moving them, snapshots, settling and following."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.errors import Conflict, FileError, GitError, InvalidInput
from clia.git.records import Checkout
from support import git
from support.porcelain import MISSING, UNUSUAL_NAMES, BenchRepository, open_bench, state

if TYPE_CHECKING:
    from support import Tree


def files_of(repository: BenchRepository, tree: str) -> dict[str, str]:
    """The files of a tree, by path."""
    paths = git("ls-tree", "-r", "-z", "--name-only", tree, cwd=repository.root).split("\0")[:-1]
    return {path: git("cat-file", "-p", f"{tree}:{path}", cwd=repository.root) for path in paths}


def modes_of(repository: BenchRepository, tree: str) -> dict[str, str]:
    lines = git("ls-tree", "-r", tree, cwd=repository.root).splitlines()
    return {line.split("\t")[1]: line.split()[0] for line in lines}


# Worktrees


def test_a_worktree_has_the_files_of_the_commit_and_records_agent_and_base(dirty: BenchRepository, tree: Tree) -> None:
    place, head = tree.path("w"), dirty.head()
    dirty.bench.add_worktree(place, "scout", head)
    assert Path(place, "a.txt").read_text() == "one\ntwo\n"
    assert git("rev-parse", "HEAD", cwd=place).strip() == head
    assert git("branch", "--show-current", cwd=place) == ""
    assert git("status", "--porcelain", cwd=place) == ""
    assert dirty.bench.checkout_of(place) == Checkout("scout", head, place)
    assert json.loads((dirty.git_dir / "worktrees/w/clia.json").read_text()) == {"agent": "scout", "base": head}
    assert dirty.bench.check() == []


def test_a_worktree_can_be_added_from_a_bare_repository_and_from_another_worktree(repository: BenchRepository, tree: Tree) -> None:
    git("clone", "-q", "--bare", "repo", "bare.git", cwd=tree.root)
    git("worktree", "add", "-q", "-b", "mine", "../linked", cwd=repository.root)
    for name in ("bare.git", "linked"):
        bench = open_bench(tree.root / name, repository.home)
        place = tree.path(f"w-{name}")
        bench.add_worktree(place, "scout", repository.head())
        assert bench.checkout_of(place) == Checkout("scout", repository.head(), place)
        Path(place, "new.txt").write_text("new\n")
        assert "new.txt" in git("ls-tree", "--name-only", bench.snapshot(place, repository.head()), cwd=tree.root / name)
    assert repository.bench.checkout_of(tree.path("w-linked")) is not None
    assert repository.bench.checkout_of(tree.path("w-bare.git")) is None


def test_no_hook_runs_when_a_worktree_is_added(repository: BenchRepository, tree: Tree) -> None:
    hook = repository.git_dir / "hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tree.path('ran')}\n")
    hook.chmod(0o755)
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    repository.bench.move_worktree(tree.path("w"), "scout", repository.commit(a__x="x"))
    assert not (tree.root / "ran").exists()


def test_a_directory_in_use_is_refused_and_not_changed(repository: BenchRepository, tree: Tree) -> None:
    tree.write("full/file", "mine")
    tree.write("file", "mine")
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    before = tree.snapshot()
    for name in ("full", "file", "w", "repo"):
        with pytest.raises(Conflict) as caught:
            repository.bench.add_worktree(tree.path(name), "other", repository.head())
        assert caught.value.code == "directory-in-use"
        assert caught.value.fields["directory"] == tree.path(name)
    assert tree.snapshot() == before


def test_an_empty_directory_may_become_a_worktree(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(str(tree.directory("w")), "scout", repository.head())
    assert repository.bench.checkout_of(tree.path("w")) is not None


def test_a_deleted_worktree_frees_its_path_and_no_other_entry_is_pruned(repository: BenchRepository, tree: Tree) -> None:
    for name in ("w", "other"):
        repository.bench.add_worktree(tree.path(name), "scout", repository.head())
        shutil.rmtree(tree.path(name))
    assert repository.bench.checkout_of(tree.path("w")) is None
    repository.bench.add_worktree(tree.path("w"), "second", repository.head())
    assert repository.bench.checkout_of(tree.path("w")) == Checkout("second", repository.head(), tree.path("w"))
    assert tree.path("other") in git("worktree", "list", cwd=repository.root)


def test_a_locked_worktree_keeps_its_path_while_its_disk_is_unmounted(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    git("worktree", "lock", tree.path("w"), cwd=repository.root)
    shutil.rmtree(tree.path("w"))
    with pytest.raises(Conflict, match="locked") as caught:
        repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    assert caught.value.code == "directory-in-use"


def test_a_worktree_of_a_missing_commit_is_an_error_and_leaves_nothing(repository: BenchRepository, tree: Tree) -> None:
    with pytest.raises(GitError, match="worktree failed"):
        repository.bench.add_worktree(tree.path("w"), "scout", MISSING)
    assert not (tree.root / "w").exists()
    assert not list(repository.git_dir.glob("worktrees/*"))


def test_a_worktree_that_cannot_be_recorded_is_removed(repository: BenchRepository, tree: Tree) -> None:
    # The smudge filter creates a folder with the name of the temporary file as soon as git has created the worktree.
    filters = repository.home / "smudge"
    filters.write_text(f"#!/bin/sh\nmkdir -p {repository.git_dir}/worktrees/w/clia.json.{os.getpid()}/x\ncat\n")
    filters.chmod(0o755)
    git("config", "filter.f.smudge", str(filters), cwd=repository.root)
    head = repository.commit(**{".gitattributes": "a.txt filter=f\n"})
    with pytest.raises(FileError) as caught:
        repository.bench.add_worktree(tree.path("w"), "scout", head)
    assert caught.value.fields["path"].endswith("clia.json")
    assert not (tree.root / "w").exists()


def test_other_directories_are_not_checkouts(repository: BenchRepository, tree: Tree) -> None:
    git("worktree", "add", "-q", "--detach", "../theirs", cwd=repository.root)
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    tree.repository("broken", as_file=True)
    tree.write("odd/.git", b"\xff\x00 nothing")
    tree.write("loop/.git", f"gitdir: {tree.path('loop')}\n")
    (tree.root / "w2").symlink_to("w")
    for name in ("repo", "theirs", "w/sub", "broken", "odd", "loop", "missing", "home", "nul\0byte", "repo/.git", "repo/a.txt"):
        assert repository.bench.checkout_of(os.path.join(tree.path(), name)) is None, name
    assert repository.bench.checkout_of(tree.path("w2")) == Checkout("scout", repository.head(), tree.path("w2"))
    for bad in ("", "[]", '{"agent": "scout"}', "\udcff"):
        (repository.git_dir / "worktrees/w/clia.json").write_bytes(bad.encode("utf-8", "surrogateescape"))
        assert repository.bench.checkout_of(tree.path("w")) is None


def test_a_copy_of_a_worktree_is_not_the_worktree_and_a_moved_one_is(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    shutil.copytree(tree.path("w"), tree.path("copy"))
    assert repository.bench.checkout_of(tree.path("copy")) is None
    tree.write("copy/new.txt", "new\n")
    assert set(files_of(repository, repository.bench.snapshot(tree.path("copy"), repository.head()))) == {
        "a.txt",
        "new.txt",
        "sub/b.txt",
    }
    shutil.rmtree(tree.path("copy"))
    os.rename(tree.path("w"), tree.path("moved"))
    assert repository.bench.checkout_of(tree.path("moved")) == Checkout("scout", repository.head(), tree.path("moved"))


def test_a_worktree_moves_to_another_commit_and_keeps_unrelated_work(repository: BenchRepository, tree: Tree) -> None:
    place, old = tree.path("w"), repository.head()
    repository.bench.add_worktree(place, "scout", old)
    new = repository.commit(**{"a.txt": "three\n"})
    tree.write("w/sub/b.txt", "my work\n")
    repository.bench.move_worktree(place, "scout", new)
    assert Path(place, "a.txt").read_text() == "three\n"
    assert Path(place, "sub/b.txt").read_text() == "my work\n"
    assert repository.bench.checkout_of(place) == Checkout("scout", new, place)


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "ignored.txt"])
def test_a_worktree_does_not_move_over_uncommitted_work(repository: BenchRepository, tree: Tree, name: str) -> None:
    repository.commit(**{".gitignore": "ignored.txt\n"})
    place, old = tree.path("w"), repository.head()
    repository.bench.add_worktree(place, "scout", old)
    repository.write(name, "theirs\n")
    git("add", "-f", name, cwd=repository.root)
    new = repository.commit()
    tree.write(f"w/{name}", "my work\n")
    with pytest.raises(Conflict) as caught:
        repository.bench.move_worktree(place, "scout", new)
    assert caught.value.code == "uncommitted-work"
    assert caught.value.fields["files"] == [name]
    assert Path(place, name).read_text() == "my work\n"
    assert repository.bench.checkout_of(place) == Checkout("scout", old, place)
    assert git("rev-parse", "HEAD", cwd=place).strip() == old


def test_moving_to_a_missing_commit_or_moving_another_worktree_is_an_error(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    with pytest.raises(GitError, match="checkout failed"):
        repository.bench.move_worktree(tree.path("w"), "scout", MISSING)
    with pytest.raises(InvalidInput) as moving:
        repository.bench.move_worktree(str(repository.root), "scout", repository.head())
    with pytest.raises(InvalidInput) as settling:
        repository.bench.settle(str(repository.root), "scout", repository.head(), repository.head())
    assert moving.value.code == settling.value.code == "not-a-checkout"


# Snapshots


def test_a_snapshot_is_what_git_add_would_stage_and_does_not_change_the_index(dirty: BenchRepository) -> None:
    snapshot = dirty.bench.snapshot(str(dirty.root), dirty.head())
    assert files_of(dirty, snapshot) == {
        "a.txt": "one\ntwo\nmine\n",
        "staged.txt": "staged\n",
        "sub/b.txt": "b\n",
        "untracked.txt": "mine\n",
    }


def test_a_snapshot_honours_ignore_rules_modes_and_links(repository: BenchRepository, tree: Tree) -> None:
    place = tree.path("w")
    repository.commit(**{".gitignore": "*.log\n", "tracked.log": "x"})
    git("add", "-f", "tracked.log", cwd=repository.root)
    repository.bench.add_worktree(place, "scout", repository.commit())
    tree.write("w/run", "#!/bin/sh\n").chmod(0o755)
    (tree.root / "w/link").symlink_to("nowhere/at all")
    tree.write("w/build.log", "noise")
    tree.write("w/tracked.log", "changed")
    os.unlink(tree.path("w/a.txt"))
    os.mkfifo(tree.path("w/pipe"))
    index = (repository.git_dir / "worktrees/w/index").read_bytes()
    snapshot = repository.bench.snapshot(place, repository.head())
    assert modes_of(repository, snapshot) == {
        ".gitignore": "100644",
        "link": "120000",
        "run": "100755",
        "sub/b.txt": "100644",
        "tracked.log": "100644",
    }
    assert files_of(repository, snapshot)["link"] == "nowhere/at all"
    assert files_of(repository, snapshot)["tracked.log"] == "changed"
    assert (repository.git_dir / "worktrees/w/index").read_bytes() == index


def test_a_snapshot_has_files_with_unusual_names(repository: BenchRepository, tree: Tree) -> None:
    place = tree.path("w")
    repository.bench.add_worktree(place, "scout", repository.head())
    for name in UNUSUAL_NAMES:
        Path(place, name).write_text("odd\n")
    snapshot = repository.bench.snapshot(place, repository.head())
    listed = subprocess.run(
        ["git", "ls-tree", "-z", "--name-only", snapshot], cwd=repository.root, capture_output=True, check=True
    ).stdout
    assert {os.fsdecode(name) for name in listed.split(b"\0")[:-1]} == {*UNUSUAL_NAMES, "a.txt", "sub"}


def test_a_snapshot_runs_the_clean_filter(repository: BenchRepository, tree: Tree) -> None:
    repository.config('[filter "up"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n')
    place = tree.path("w")
    repository.bench.add_worktree(place, "scout", repository.commit(**{".gitattributes": "*.up filter=up\n"}))
    tree.write("w/x.up", "loud\n")
    assert files_of(repository, repository.bench.snapshot(place, repository.head()))["x.up"] == "LOUD\n"


def test_a_snapshot_of_a_sparse_worktree_keeps_files_that_are_not_checked_out(repository: BenchRepository, tree: Tree) -> None:
    place = tree.path("w")
    head = repository.commit(other__c="c\n")
    repository.bench.add_worktree(place, "scout", head)
    git("sparse-checkout", "set", "sub", cwd=place)
    assert not Path(place, "other").exists()
    tree.write("w/sub/b.txt", "changed\n")
    snapshot = repository.bench.snapshot(place, head)
    assert files_of(repository, snapshot) == {"a.txt": "one\ntwo\n", "other/c": "c\n", "sub/b.txt": "changed\n"}
    tree.write("w/other/outside", "work is work\n")
    assert files_of(repository, repository.bench.snapshot(place, head))["other/outside"] == "work is work\n"
    new = git("commit-tree", "-p", head, "-m", "x", snapshot, cwd=repository.root).strip()
    os.unlink(tree.path("w/other/outside"))
    repository.bench.settle(place, "scout", head, new)
    assert repository.bench.snapshot(place, new) == snapshot  # after settling, missing files still do not count as deleted
    assert git("status", "--porcelain", cwd=place) == ""


def test_a_nested_repository_is_a_gitlink_and_a_missing_submodule_is_kept(repository: BenchRepository, tree: Tree) -> None:
    place = tree.path("w")
    repository.bench.add_worktree(place, "scout", repository.head())
    inner = tree.directory("w/inner")
    git("init", "-q", cwd=inner)
    tree.write("w/inner/file", "x")
    git("add", "-A", cwd=inner)
    git("commit", "-q", "-m", "inner", cwd=inner)
    snapshot = repository.bench.snapshot(place, repository.head())
    assert modes_of(repository, snapshot)["inner"] == "160000"
    assert git("rev-parse", "HEAD", cwd=inner).strip() in git("ls-tree", snapshot, "inner", cwd=repository.root)
    new = git("commit-tree", "-p", repository.head(), "-m", "x", snapshot, cwd=repository.root).strip()
    repository.bench.add_worktree(tree.path("w2"), "scout", new)
    assert repository.bench.snapshot(tree.path("w2"), new) == snapshot
    git("init", "-q", tree.path("w/empty"), cwd=inner)
    with pytest.raises(GitError, match=r"add failed.*does not have a commit"):
        repository.bench.snapshot(place, repository.head())


def test_a_worktree_of_the_same_repository_inside_a_directory_is_left_out(repository: BenchRepository, tree: Tree) -> None:
    place = tree.path("w")
    repository.bench.add_worktree(place, "scout", repository.head())
    before = repository.bench.snapshot(place, repository.head())
    git("worktree", "add", "-q", "--detach", f"{place}/.claude/worktrees/a*b", cwd=repository.root)
    tree.write("w/.claude/settings.json", "{}")
    snapshot = repository.bench.snapshot(place, repository.head())
    assert modes_of(repository, snapshot) == modes_of(repository, before) | {".claude/settings.json": "100644"}


@pytest.mark.parametrize("kind", ["plain", "other repository"])
def test_a_snapshot_of_a_directory_outside_the_repository_is_based_on_the_tree(
    dirty: BenchRepository, tree: Tree, kind: str
) -> None:
    git("config", "core.sparseCheckout", "true", cwd=dirty.root)
    (dirty.git_dir / "info/sparse-checkout").write_text("/sub/\n")
    place = tree.directory("elsewhere")
    if kind == "other repository":
        git("init", "-q", cwd=place)
    tree.write("elsewhere/a.txt", "theirs\n")
    tree.write("elsewhere/deep/er/file", "x")
    assert files_of(dirty, dirty.bench.snapshot(str(place), dirty.head())) == {"a.txt": "theirs\n", "deep/er/file": "x"}
    git("config", "--unset", "core.sparseCheckout", cwd=dirty.root)


def test_a_directory_inside_another_repository_is_a_plain_directory(repository: BenchRepository, tree: Tree) -> None:
    git("init", "-q", "other", cwd=tree.root)
    tree.write("other/in/file", "x")
    assert files_of(repository, repository.bench.snapshot(tree.path("other/in"), repository.head())) == {"file": "x"}


def test_a_snapshot_needs_the_top_of_a_worktree_or_a_directory(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    for name in ("w/sub", "repo/sub", "repo/.git"):
        with pytest.raises(InvalidInput) as caught:
            repository.bench.snapshot(tree.path(name), repository.head())
        assert caught.value.code == "not-a-worktree-top"
    for name in ("missing", "repo/a.txt"):
        with pytest.raises(FileError) as missing:
            repository.bench.snapshot(tree.path(name), repository.head())
        assert missing.value.fields["path"] == tree.path(name)


def test_a_change_at_the_time_of_the_checkout_is_noticed(repository: BenchRepository, tree: Tree) -> None:
    place, moment = tree.path("w"), (1_000_000_000, 1_000_000_000)
    repository.bench.add_worktree(place, "scout", repository.head())
    git("config", "core.trustctime", "false", cwd=repository.root)
    os.utime(tree.path("w/a.txt"), moment)
    git("update-index", "--refresh", cwd=place)
    tree.write("w/a.txt", "ONE\nTWO\n")  # same length
    for path in (tree.path("w/a.txt"), repository.git_dir / "worktrees/w/index"):
        os.utime(path, moment)
    assert files_of(repository, repository.bench.snapshot(place, repository.head()))["a.txt"] == "ONE\nTWO\n"


def test_a_snapshot_of_a_worktree_without_an_index_is_based_on_the_tree(repository: BenchRepository, tree: Tree) -> None:
    repository.bench.add_worktree(tree.path("w"), "scout", repository.head())
    (repository.git_dir / "worktrees/w/index").unlink()
    assert repository.bench.snapshot(tree.path("w"), repository.head()) == repository.head("HEAD^{tree}")


def test_a_split_index_is_read_and_not_extended(repository: BenchRepository, tree: Tree) -> None:
    git("update-index", "--split-index", cwd=repository.root)
    repository.write("new.txt", "new\n")
    before = sorted(os.listdir(repository.git_dir))
    assert "new.txt" in files_of(repository, repository.bench.snapshot(str(repository.root), repository.head()))
    assert sorted(os.listdir(repository.git_dir)) == before


def test_a_worktree_set_in_the_configuration_is_used(repository: BenchRepository, tree: Tree) -> None:
    os.rename(repository.git_dir, tree.path("only.git"))
    git("config", "core.worktree", str(repository.root), cwd=tree.path("only.git"))
    bench = open_bench(tree.root / "only.git", repository.home)
    repository.write("a.txt", "changed\n")
    snapshot = bench.snapshot(str(repository.root), "main")
    tip = git("rev-parse", "main", cwd=tree.path("only.git")).strip()
    new = git("commit-tree", "-p", tip, "-m", "x", snapshot, cwd=tree.path("only.git")).strip()
    repository.write("a.txt", "in the way\n")
    assert "a.txt" in str(bench.can_follow(str(repository.root), tip, new))
    repository.write("a.txt", "one\ntwo\n")
    assert bench.can_follow(str(repository.root), tip, new) is None
    bench.follow(str(repository.root), tip, new)
    assert (repository.root / "a.txt").read_text() == "changed\n"


# Settling


def test_settling_makes_a_worktree_clean_without_touching_its_files(repository: BenchRepository, tree: Tree) -> None:
    place, old = tree.path("w"), repository.head()
    repository.bench.add_worktree(place, "scout", old)
    tree.write("w/a.txt", "changed\n")
    tree.write("w/new.txt", "new\n")
    os.unlink(tree.path("w/sub/b.txt"))
    snapshot = repository.bench.snapshot(place, old)
    new = git("commit-tree", "-p", old, "-m", "x", snapshot, cwd=repository.root).strip()
    tree.write("w/a.txt", "changed again\n")
    times = {path: path.stat().st_mtime_ns for path in Path(place).rglob("*")}
    for _ in range(2):  # idempotent
        repository.bench.settle(place, "scout", old, new)
        assert git("status", "--porcelain", cwd=place) == " M a.txt\n"
        assert repository.bench.checkout_of(place) == Checkout("scout", new, place)
        assert git("rev-parse", "HEAD", cwd=place).strip() == new
    assert {path: path.stat().st_mtime_ns for path in Path(place).rglob("*")} == times
    assert repository.head() == old


def test_settling_leaves_a_worktree_on_its_branch(repository: BenchRepository, tree: Tree) -> None:
    place, old = tree.path("w"), repository.head()
    repository.bench.add_worktree(place, "scout", old)
    git("switch", "-q", "-c", "feature", cwd=place)
    tree.write("w/a.txt", "changed\n")
    new = git("commit-tree", "-p", old, "-m", "x", repository.bench.snapshot(place, old), cwd=repository.root).strip()
    repository.bench.settle(place, "scout", old, new)
    assert repository.head("feature") == old
    assert git("symbolic-ref", "HEAD", cwd=place).strip() == "refs/heads/feature"
    assert repository.bench.checkout_of(place) == Checkout("scout", new, place, own=old)


def test_after_a_crash_before_settling_the_next_snapshot_is_correct(repository: BenchRepository, tree: Tree) -> None:
    place, old = tree.path("w"), repository.head()
    repository.bench.add_worktree(place, "scout", old)
    tree.write("w/new.txt", "new\n")
    snapshot = repository.bench.snapshot(place, old)
    new = git("commit-tree", "-p", old, "-m", "x", snapshot, cwd=repository.root).strip()
    repository.bench.record(place, "scout", new)  # as after a crash
    assert repository.bench.snapshot(place, new) == snapshot
    repository.bench.settle(place, "scout", old, new)
    assert git("status", "--porcelain", cwd=place) == ""


# Following


def test_a_worktree_follows_its_branch_and_keeps_unrelated_work(repository: BenchRepository) -> None:
    old = repository.head()
    new = repository.commit(**{"a.txt": "three\n", "new.txt": "n\n"})
    git("reset", "-q", "--hard", old, cwd=repository.root)
    repository.write("sub/b.txt", "my work\n")
    repository.write("staged.txt", "mine\n")
    git("add", "staged.txt", cwd=repository.root)
    before = state(repository.root)
    assert repository.bench.can_follow(str(repository.root), old, new) is None
    assert state(repository.root) == before
    git("update-ref", "refs/heads/main", new, cwd=repository.root)
    for _ in range(2):
        repository.bench.follow(str(repository.root), old, new)
        assert git("status", "--porcelain", cwd=repository.root) == "A  staged.txt\n M sub/b.txt\n"
    assert (repository.root / "a.txt").read_text() == "three\n"


def test_a_file_with_only_a_new_timestamp_does_not_block_following(repository: BenchRepository) -> None:
    old = repository.head()
    new = repository.commit(**{"a.txt": "three\n"})
    git("reset", "-q", "--hard", old, cwd=repository.root)
    os.utime(repository.root / "a.txt", (1, 1))
    before = state(repository.root)
    assert repository.bench.can_follow(str(repository.root), old, new) is None
    assert state(repository.root) == before
    repository.bench.follow(str(repository.root), old, new)
    assert (repository.root / "a.txt").read_text() == "three\n"


@pytest.mark.parametrize(
    ("blocking", "incoming"),
    [
        ("a.txt", "a.txt"),
        ("new.txt", "new.txt"),
        ("ignored", "ignored"),
        ("ignored", "ignored/below"),
        ("ignored/below", "ignored"),
        ("other.ignored\nodd", "other.ignored\nodd"),
    ],
)
def test_work_that_blocks_following_is_reported_and_nothing_is_changed(
    repository: BenchRepository, blocking: str, incoming: str
) -> None:
    old = repository.commit(**{".gitignore": "*ignored*\n"})
    repository.write(incoming, "theirs\n")
    git("add", "-f", incoming, cwd=repository.root)
    new = repository.commit()
    git("reset", "-q", "--hard", old, cwd=repository.root)
    repository.write(blocking, "my work\n")
    before = state(repository.root)
    complaint = repository.bench.can_follow(str(repository.root), old, new)
    assert complaint is not None
    assert blocking in complaint
    assert state(repository.root) == before


def test_an_unrelated_ignored_file_does_not_block_following(repository: BenchRepository) -> None:
    old = repository.commit(**{".gitignore": "*.log\n"})
    new = repository.commit(sub__c="c\n", folder__d="d\n")
    git("reset", "-q", "--hard", old, cwd=repository.root)
    repository.write("sub/x.log", "noise\n")
    repository.write("folder/y.log", "noise\n")
    assert repository.bench.can_follow(str(repository.root), old, new) is None


def test_following_does_not_overwrite_uncommitted_work(repository: BenchRepository) -> None:
    old = repository.head()
    new = repository.commit(**{"a.txt": "three\n"})
    git("reset", "-q", "--hard", old, cwd=repository.root)
    repository.write("a.txt", "my work\n")
    with pytest.raises(GitError, match=r"a\.txt"):
        repository.bench.follow(str(repository.root), old, new)
    assert (repository.root / "a.txt").read_text() == "my work\n"


def test_a_missing_worktree_does_not_block_following(repository: BenchRepository, tree: Tree) -> None:
    assert repository.bench.can_follow(tree.path("gone"), repository.head(), repository.head()) is None
    repository.bench.follow(tree.path("gone"), repository.head(), repository.head())
    assert not (tree.root / "gone").exists()
