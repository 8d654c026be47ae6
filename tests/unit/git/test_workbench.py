from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from clia.errors import Conflict, FileError, GitError, InvalidInput, NotFound, TransportError
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.git.records import Checkout, FileChange, LineOrigin, Pushed
from clia.git.workbench import GitWorkbench
from support import git

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Tree

ODD = [
    "with space",
    'quo"te',
    "new\nline",
    "tab\there",
    "back\\slash",
    "é",
    "*",
    ":colon",
    "-dash",
    "bell\a\x01",
    "not-utf8-\udcff",
]
NOBODY = "0123456789012345678901234567890123456789"


class Bench(NamedTuple):
    """A repository with one commit, and a workbench on it."""

    root: Path
    home: Path
    git_dir: Path
    bench: GitWorkbench

    def commit(self, message: str = "more", **files: str) -> str:
        for name, text in files.items():
            self.write(name.replace("__", "/"), text)
        git("add", "-A", cwd=self.root)
        git("commit", "-q", "--allow-empty", "-m", message, cwd=self.root)
        return self.head()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def head(self, name: str = "HEAD") -> str:
        return git("rev-parse", name, cwd=self.root).strip()

    def config(self, text: str) -> None:
        """What a person has in ``~/.gitconfig``."""
        (self.home / ".gitconfig").write_text(text)


def open_bench(path: Path, home: Path, **more: str) -> GitWorkbench:
    handle = GitHandle(str(path), durable=False)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **more}
    return GitWorkbench(handle, GitCommand(handle.common_dir, environment, durable=False))


@pytest.fixture
def at(tree: Tree) -> Bench:
    root, home = tree.directory("repo"), tree.directory("home")
    git("init", "-q", "-b", "main", cwd=root)
    tree.write("repo/a.txt", "one\ntwo\n")
    tree.write("repo/sub/b.txt", "b\n")
    git("add", "-A", cwd=root)
    git("commit", "-q", "-m", "first", cwd=root)
    return Bench(root, home, root / ".git", open_bench(root, home))


def state(root: Path) -> tuple[object, ...]:
    """What a person sees of their worktree, down to the bytes of the index."""
    files = {
        str(path.relative_to(root)): (path.lstat().st_mtime_ns, b"" if path.is_symlink() or path.is_dir() else path.read_bytes())
        for path in sorted(root.rglob("*"))
        if ".git" not in path.relative_to(root).parts
    }
    own = root / ".git"
    return (own / "index").read_bytes(), (own / "HEAD").read_bytes(), (own / "logs/HEAD").read_bytes(), files


@pytest.fixture
def dirty(at: Bench) -> Iterator[Bench]:
    """A person at work: something staged, something changed, something new. The test may not change any of it."""
    at.write("staged.txt", "staged\n")
    git("add", "staged.txt", cwd=at.root)
    at.write("a.txt", "one\ntwo\nmine\n")
    at.write("untracked.txt", "mine\n")
    before, status = state(at.root), git("status", "--porcelain", cwd=at.root)
    yield at
    assert state(at.root) == before
    assert git("status", "--porcelain", cwd=at.root) == status


def files_of(at: Bench, tree: str) -> dict[str, str]:
    """Path to content, of a tree."""
    listed = git("ls-tree", "-r", "-z", "--name-only", tree, cwd=at.root).split("\0")[:-1]
    return {path: git("cat-file", "-p", f"{tree}:{path}", cwd=at.root) for path in listed}


def modes_of(at: Bench, tree: str) -> dict[str, str]:
    listed = git("ls-tree", "-r", tree, cwd=at.root).splitlines()
    return {line.split("\t")[1]: line.split()[0] for line in listed}


def test_the_workbench_is_one(at: Bench) -> None:
    bench: GitWorkbench = at.bench  # mypy compares the signatures
    assert bench.remotes() == []


# Worktrees


def test_a_worktree_has_the_commits_files_and_remembers_its_agent_and_base(dirty: Bench, tree: Tree) -> None:
    place, head = tree.path("w"), dirty.head()
    dirty.bench.add_worktree(place, "scout", head)
    assert Path(place, "a.txt").read_text() == "one\ntwo\n"
    assert git("rev-parse", "HEAD", cwd=place).strip() == head
    assert git("branch", "--show-current", cwd=place) == ""
    assert git("status", "--porcelain", cwd=place) == ""
    assert dirty.bench.checkout_of(place) == Checkout("scout", head, place)
    assert json.loads((dirty.git_dir / "worktrees/w/clia.json").read_text()) == {"agent": "scout", "base": head}
    assert dirty.bench.check() == []


def test_a_worktree_can_be_made_from_a_bare_repository_and_from_another_worktree(at: Bench, tree: Tree) -> None:
    git("clone", "-q", "--bare", "repo", "bare.git", cwd=tree.root)
    git("worktree", "add", "-q", "-b", "mine", "../linked", cwd=at.root)
    for name in ("bare.git", "linked"):
        bench = open_bench(tree.root / name, at.home)
        place = tree.path(f"w-{name}")
        bench.add_worktree(place, "scout", at.head())
        assert bench.checkout_of(place) == Checkout("scout", at.head(), place)
        Path(place, "new.txt").write_text("new\n")
        assert "new.txt" in git("ls-tree", "--name-only", bench.snapshot(place, at.head()), cwd=tree.root / name)
    assert at.bench.checkout_of(tree.path("w-linked")) is not None
    assert at.bench.checkout_of(tree.path("w-bare.git")) is None


def test_no_hook_runs_when_a_worktree_is_made(at: Bench, tree: Tree) -> None:
    hook = at.git_dir / "hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tree.path('ran')}\n")
    hook.chmod(0o755)
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    at.bench.move_worktree(tree.path("w"), "scout", at.commit(a__x="x"))
    assert not (tree.root / "ran").exists()


def test_a_directory_in_use_is_refused_and_left_as_it_is(at: Bench, tree: Tree) -> None:
    tree.write("full/file", "mine")
    tree.write("file", "mine")
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    before = tree.snapshot()
    for name in ("full", "file", "w", "repo"):
        with pytest.raises(Conflict) as caught:
            at.bench.add_worktree(tree.path(name), "other", at.head())
        assert caught.value.code == "directory-in-use"
        assert caught.value.fields["directory"] == tree.path(name)
    assert tree.snapshot() == before


def test_an_empty_directory_may_become_a_worktree(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(str(tree.directory("w")), "scout", at.head())
    assert at.bench.checkout_of(tree.path("w")) is not None


def test_a_worktree_whose_directory_was_deleted_does_not_block_its_place_nor_go_elsewhere(at: Bench, tree: Tree) -> None:
    for name in ("w", "other"):
        at.bench.add_worktree(tree.path(name), "scout", at.head())
        shutil.rmtree(tree.path(name))
    assert at.bench.checkout_of(tree.path("w")) is None
    at.bench.add_worktree(tree.path("w"), "second", at.head())
    assert at.bench.checkout_of(tree.path("w")) == Checkout("second", at.head(), tree.path("w"))
    assert tree.path("other") in git("worktree", "list", cwd=at.root)


def test_a_locked_worktree_keeps_its_place_while_its_disk_is_away(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    git("worktree", "lock", tree.path("w"), cwd=at.root)
    shutil.rmtree(tree.path("w"))
    with pytest.raises(Conflict, match="locked") as caught:
        at.bench.add_worktree(tree.path("w"), "scout", at.head())
    assert caught.value.code == "directory-in-use"


def test_a_worktree_of_no_commit_is_an_error_and_leaves_nothing(at: Bench, tree: Tree) -> None:
    with pytest.raises(GitError, match="worktree failed"):
        at.bench.add_worktree(tree.path("w"), "scout", NOBODY)
    assert not (tree.root / "w").exists()
    assert not list(at.git_dir.glob("worktrees/*"))


def test_a_worktree_that_cannot_be_recorded_is_taken_away_again(at: Bench, tree: Tree) -> None:
    # The name of the temporary file is taken by a folder as soon as git has made the worktree's git directory.
    filters = at.home / "smudge"
    filters.write_text(f"#!/bin/sh\nmkdir -p {at.git_dir}/worktrees/w/clia.json.{os.getpid()}/x\ncat\n")
    filters.chmod(0o755)
    git("config", "filter.f.smudge", str(filters), cwd=at.root)
    head = at.commit(**{".gitattributes": "a.txt filter=f\n"})
    with pytest.raises(FileError) as caught:
        at.bench.add_worktree(tree.path("w"), "scout", head)
    assert caught.value.fields["path"].endswith("clia.json")
    assert not (tree.root / "w").exists()


def test_what_is_no_worktree_of_ours_is_told_without_an_error(at: Bench, tree: Tree) -> None:
    git("worktree", "add", "-q", "--detach", "../theirs", cwd=at.root)
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    tree.repository("broken", as_file=True)
    tree.write("odd/.git", b"\xff\x00 nothing")
    tree.write("loop/.git", f"gitdir: {tree.path('loop')}\n")
    (tree.root / "w2").symlink_to("w")
    for name in ("repo", "theirs", "w/sub", "broken", "odd", "loop", "missing", "home", "nul\0byte", "repo/.git", "repo/a.txt"):
        assert at.bench.checkout_of(os.path.join(tree.path(), name)) is None, name
    assert at.bench.checkout_of(tree.path("w2")) == Checkout("scout", at.head(), tree.path("w2"))
    for bad in ("", "[]", '{"agent": "scout"}', "\udcff"):
        (at.git_dir / "worktrees/w/clia.json").write_bytes(bad.encode("utf-8", "surrogateescape"))
        assert at.bench.checkout_of(tree.path("w")) is None


def test_a_copy_of_a_worktree_is_not_the_worktree_and_a_moved_one_is(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    shutil.copytree(tree.path("w"), tree.path("copy"))
    assert at.bench.checkout_of(tree.path("copy")) is None
    tree.write("copy/new.txt", "new\n")
    assert set(files_of(at, at.bench.snapshot(tree.path("copy"), at.head()))) == {"a.txt", "new.txt", "sub/b.txt"}
    shutil.rmtree(tree.path("copy"))
    os.rename(tree.path("w"), tree.path("moved"))
    assert at.bench.checkout_of(tree.path("moved")) == Checkout("scout", at.head(), tree.path("moved"))


def test_a_worktree_moves_to_another_commit_and_takes_unrelated_work_along(at: Bench, tree: Tree) -> None:
    place, old = tree.path("w"), at.head()
    at.bench.add_worktree(place, "scout", old)
    new = at.commit(**{"a.txt": "three\n"})
    tree.write("w/sub/b.txt", "my work\n")
    at.bench.move_worktree(place, "scout", new)
    assert Path(place, "a.txt").read_text() == "three\n"
    assert Path(place, "sub/b.txt").read_text() == "my work\n"
    assert at.bench.checkout_of(place) == Checkout("scout", new, place)


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "ignored.txt"])
def test_a_worktree_does_not_move_over_uncommitted_work(at: Bench, tree: Tree, name: str) -> None:
    at.commit(**{".gitignore": "ignored.txt\n"})
    place, old = tree.path("w"), at.head()
    at.bench.add_worktree(place, "scout", old)
    at.write(name, "theirs\n")
    git("add", "-f", name, cwd=at.root)
    new = at.commit()
    tree.write(f"w/{name}", "my work\n")
    with pytest.raises(Conflict) as caught:
        at.bench.move_worktree(place, "scout", new)
    assert caught.value.code == "uncommitted-work"
    assert caught.value.fields["files"] == [name]
    assert Path(place, name).read_text() == "my work\n"
    assert at.bench.checkout_of(place) == Checkout("scout", old, place)
    assert git("rev-parse", "HEAD", cwd=place).strip() == old


def test_moving_to_no_commit_or_moving_what_is_not_ours_is_an_error(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    with pytest.raises(GitError, match="checkout failed"):
        at.bench.move_worktree(tree.path("w"), "scout", NOBODY)
    with pytest.raises(InvalidInput) as moving:
        at.bench.move_worktree(str(at.root), "scout", at.head())
    with pytest.raises(InvalidInput) as settling:
        at.bench.settle(str(at.root), "scout", at.head(), at.head())
    assert moving.value.code == settling.value.code == "not-a-checkout"


# Snapshots


def test_a_snapshot_is_what_add_would_stage_and_leaves_a_persons_index_alone(dirty: Bench) -> None:
    taken = dirty.bench.snapshot(str(dirty.root), dirty.head())
    assert files_of(dirty, taken) == {
        "a.txt": "one\ntwo\nmine\n",
        "staged.txt": "staged\n",
        "sub/b.txt": "b\n",
        "untracked.txt": "mine\n",
    }


def test_a_snapshot_honours_ignore_rules_modes_and_links(at: Bench, tree: Tree) -> None:
    place = tree.path("w")
    at.commit(**{".gitignore": "*.log\n", "tracked.log": "x"})
    git("add", "-f", "tracked.log", cwd=at.root)
    at.bench.add_worktree(place, "scout", at.commit())
    tree.write("w/run", "#!/bin/sh\n").chmod(0o755)
    (tree.root / "w/link").symlink_to("nowhere/at all")
    tree.write("w/build.log", "noise")
    tree.write("w/tracked.log", "changed")
    os.unlink(tree.path("w/a.txt"))
    os.mkfifo(tree.path("w/pipe"))
    index = (at.git_dir / "worktrees/w/index").read_bytes()
    taken = at.bench.snapshot(place, at.head())
    assert modes_of(at, taken) == {
        ".gitignore": "100644",
        "link": "120000",
        "run": "100755",
        "sub/b.txt": "100644",
        "tracked.log": "100644",
    }
    assert files_of(at, taken)["link"] == "nowhere/at all"
    assert files_of(at, taken)["tracked.log"] == "changed"
    assert (at.git_dir / "worktrees/w/index").read_bytes() == index


def test_a_snapshot_has_every_odd_name(at: Bench, tree: Tree) -> None:
    place = tree.path("w")
    at.bench.add_worktree(place, "scout", at.head())
    for name in ODD:
        Path(place, name).write_text("odd\n")
    taken = at.bench.snapshot(place, at.head())
    listed = subprocess.run(["git", "ls-tree", "-z", "--name-only", taken], cwd=at.root, capture_output=True, check=True).stdout
    assert {os.fsdecode(each) for each in listed.split(b"\0")[:-1]} == {*ODD, "a.txt", "sub"}


def test_a_snapshot_runs_the_clean_filter(at: Bench, tree: Tree) -> None:
    at.config('[filter "up"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n')
    place = tree.path("w")
    at.bench.add_worktree(place, "scout", at.commit(**{".gitattributes": "*.up filter=up\n"}))
    tree.write("w/x.up", "loud\n")
    assert files_of(at, at.bench.snapshot(place, at.head()))["x.up"] == "LOUD\n"


def test_a_snapshot_of_a_sparse_worktree_keeps_what_is_not_there(at: Bench, tree: Tree) -> None:
    place = tree.path("w")
    head = at.commit(other__c="c\n")
    at.bench.add_worktree(place, "scout", head)
    git("sparse-checkout", "set", "sub", cwd=place)
    assert not Path(place, "other").exists()
    tree.write("w/sub/b.txt", "changed\n")
    taken = at.bench.snapshot(place, head)
    assert files_of(at, taken) == {"a.txt": "one\ntwo\n", "other/c": "c\n", "sub/b.txt": "changed\n"}
    tree.write("w/other/outside", "work is work\n")
    assert files_of(at, at.bench.snapshot(place, head))["other/outside"] == "work is work\n"
    new = git("commit-tree", "-p", head, "-m", "x", taken, cwd=at.root).strip()
    os.unlink(tree.path("w/other/outside"))
    at.bench.settle(place, "scout", head, new)
    assert at.bench.snapshot(place, new) == taken  # what is not there is not deleted after settling either
    assert git("status", "--porcelain", cwd=place) == ""


def test_a_nested_repository_is_a_gitlink_and_a_missing_submodule_stays(at: Bench, tree: Tree) -> None:
    place = tree.path("w")
    at.bench.add_worktree(place, "scout", at.head())
    inner = tree.directory("w/inner")
    git("init", "-q", cwd=inner)
    tree.write("w/inner/file", "x")
    git("add", "-A", cwd=inner)
    git("commit", "-q", "-m", "inner", cwd=inner)
    taken = at.bench.snapshot(place, at.head())
    assert modes_of(at, taken)["inner"] == "160000"
    assert git("rev-parse", "HEAD", cwd=inner).strip() in git("ls-tree", taken, "inner", cwd=at.root)
    new = git("commit-tree", "-p", at.head(), "-m", "x", taken, cwd=at.root).strip()
    at.bench.add_worktree(tree.path("w2"), "scout", new)
    assert at.bench.snapshot(tree.path("w2"), new) == taken
    git("init", "-q", tree.path("w/empty"), cwd=inner)
    with pytest.raises(GitError, match=r"add failed.*does not have a commit"):
        at.bench.snapshot(place, at.head())


@pytest.mark.parametrize("kind", ["plain", "other repository"])
def test_a_directory_outside_the_repository_is_taken_over_the_given_tree(dirty: Bench, tree: Tree, kind: str) -> None:
    git("config", "core.sparseCheckout", "true", cwd=dirty.root)
    (dirty.git_dir / "info/sparse-checkout").write_text("/sub/\n")
    place = tree.directory("elsewhere")
    if kind == "other repository":
        git("init", "-q", cwd=place)
    tree.write("elsewhere/a.txt", "theirs\n")
    tree.write("elsewhere/deep/er/file", "x")
    assert files_of(dirty, dirty.bench.snapshot(str(place), dirty.head())) == {"a.txt": "theirs\n", "deep/er/file": "x"}
    git("config", "--unset", "core.sparseCheckout", cwd=dirty.root)


def test_a_directory_inside_another_repository_is_plain(at: Bench, tree: Tree) -> None:
    git("init", "-q", "other", cwd=tree.root)
    tree.write("other/in/file", "x")
    assert files_of(at, at.bench.snapshot(tree.path("other/in"), at.head())) == {"file": "x"}


def test_a_snapshot_needs_the_top_of_a_worktree_or_a_directory(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    for name in ("w/sub", "repo/sub", "repo/.git"):
        with pytest.raises(InvalidInput) as caught:
            at.bench.snapshot(tree.path(name), at.head())
        assert caught.value.code == "not-a-worktree-top"
    for name in ("missing", "repo/a.txt"):
        with pytest.raises(FileError) as missing:
            at.bench.snapshot(tree.path(name), at.head())
        assert missing.value.fields["path"] == tree.path(name)


def test_a_change_in_the_very_moment_of_the_checkout_is_seen(at: Bench, tree: Tree) -> None:
    place, moment = tree.path("w"), (1_000_000_000, 1_000_000_000)
    at.bench.add_worktree(place, "scout", at.head())
    git("config", "core.trustctime", "false", cwd=at.root)
    os.utime(tree.path("w/a.txt"), moment)
    git("update-index", "--refresh", cwd=place)
    tree.write("w/a.txt", "ONE\nTWO\n")  # as long as before
    for path in (tree.path("w/a.txt"), at.git_dir / "worktrees/w/index"):
        os.utime(path, moment)
    assert files_of(at, at.bench.snapshot(place, at.head()))["a.txt"] == "ONE\nTWO\n"


def test_a_worktree_without_an_index_yet_is_taken_over_the_given_tree(at: Bench, tree: Tree) -> None:
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    (at.git_dir / "worktrees/w/index").unlink()
    assert at.bench.snapshot(tree.path("w"), at.head()) == at.head("HEAD^{tree}")


def test_a_split_index_is_read_and_not_added_to(at: Bench, tree: Tree) -> None:
    git("update-index", "--split-index", cwd=at.root)
    at.write("new.txt", "new\n")
    before = sorted(os.listdir(at.git_dir))
    assert "new.txt" in files_of(at, at.bench.snapshot(str(at.root), at.head()))
    assert sorted(os.listdir(at.git_dir)) == before


def test_a_worktree_named_by_configuration_is_worked_on(at: Bench, tree: Tree) -> None:
    os.rename(at.git_dir, tree.path("only.git"))
    git("config", "core.worktree", str(at.root), cwd=tree.path("only.git"))
    bench = open_bench(tree.root / "only.git", at.home)
    at.write("a.txt", "changed\n")
    taken = bench.snapshot(str(at.root), "main")
    tip = git("rev-parse", "main", cwd=tree.path("only.git")).strip()
    new = git("commit-tree", "-p", tip, "-m", "x", taken, cwd=tree.path("only.git")).strip()
    at.write("a.txt", "in the way\n")
    assert "a.txt" in str(bench.can_follow(str(at.root), tip, new))
    at.write("a.txt", "one\ntwo\n")
    assert bench.can_follow(str(at.root), tip, new) is None
    bench.follow(str(at.root), tip, new)
    assert (at.root / "a.txt").read_text() == "changed\n"


# Settling


def test_settling_makes_a_worktree_clean_without_touching_its_files(at: Bench, tree: Tree) -> None:
    place, old = tree.path("w"), at.head()
    at.bench.add_worktree(place, "scout", old)
    tree.write("w/a.txt", "changed\n")
    tree.write("w/new.txt", "new\n")
    os.unlink(tree.path("w/sub/b.txt"))
    taken = at.bench.snapshot(place, old)
    new = git("commit-tree", "-p", old, "-m", "x", taken, cwd=at.root).strip()
    tree.write("w/a.txt", "changed again\n")
    times = {path: path.stat().st_mtime_ns for path in Path(place).rglob("*")}
    for _ in range(2):  # doing it again is fine
        at.bench.settle(place, "scout", old, new)
        assert git("status", "--porcelain", cwd=place) == " M a.txt\n"
        assert at.bench.checkout_of(place) == Checkout("scout", new, place)
        assert git("rev-parse", "HEAD", cwd=place).strip() == new
    assert {path: path.stat().st_mtime_ns for path in Path(place).rglob("*")} == times
    assert at.head() == old


def test_settling_detaches_from_a_branch_and_never_moves_it(at: Bench, tree: Tree) -> None:
    place, old = tree.path("w"), at.head()
    at.bench.add_worktree(place, "scout", old)
    git("switch", "-q", "-c", "feature", cwd=place)
    tree.write("w/a.txt", "changed\n")
    new = git("commit-tree", "-p", old, "-m", "x", at.bench.snapshot(place, old), cwd=at.root).strip()
    at.bench.settle(place, "scout", old, new)
    assert at.head("feature") == old
    assert git("rev-parse", "HEAD", cwd=place).strip() == new


def test_after_a_death_behind_the_record_the_next_snapshot_is_right(at: Bench, tree: Tree) -> None:
    place, old = tree.path("w"), at.head()
    at.bench.add_worktree(place, "scout", old)
    tree.write("w/new.txt", "new\n")
    taken = at.bench.snapshot(place, old)
    new = git("commit-tree", "-p", old, "-m", "x", taken, cwd=at.root).strip()
    at.bench.record(place, "scout", new)  # and no more
    assert at.bench.snapshot(place, new) == taken
    at.bench.settle(place, "scout", new, new)
    assert git("status", "--porcelain", cwd=place) == ""


# Following


def test_a_worktree_follows_its_branch_and_keeps_unrelated_work(at: Bench) -> None:
    old = at.head()
    new = at.commit(**{"a.txt": "three\n", "new.txt": "n\n"})
    git("reset", "-q", "--hard", old, cwd=at.root)
    at.write("sub/b.txt", "my work\n")
    at.write("staged.txt", "mine\n")
    git("add", "staged.txt", cwd=at.root)
    before = state(at.root)
    assert at.bench.can_follow(str(at.root), old, new) is None
    assert state(at.root) == before
    git("update-ref", "refs/heads/main", new, cwd=at.root)
    for _ in range(2):
        at.bench.follow(str(at.root), old, new)
        assert git("status", "--porcelain", cwd=at.root) == "A  staged.txt\n M sub/b.txt\n"
    assert (at.root / "a.txt").read_text() == "three\n"


def test_a_file_that_was_only_touched_does_not_stand_in_the_way(at: Bench) -> None:
    old = at.head()
    new = at.commit(**{"a.txt": "three\n"})
    git("reset", "-q", "--hard", old, cwd=at.root)
    os.utime(at.root / "a.txt", (1, 1))
    before = state(at.root)
    assert at.bench.can_follow(str(at.root), old, new) is None
    assert state(at.root) == before
    at.bench.follow(str(at.root), old, new)
    assert (at.root / "a.txt").read_text() == "three\n"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("a.txt", "a.txt"),
        ("new.txt", "new.txt"),
        ("ignored", "ignored"),
        ("ignored", "ignored/below"),
        ("ignored/below", "ignored"),
        ("other.ignored\nodd", "other.ignored\nodd"),
    ],
)
def test_work_in_the_way_is_told_and_nothing_is_changed(at: Bench, mine: str, theirs: str) -> None:
    old = at.commit(**{".gitignore": "*ignored*\n"})
    at.write(theirs, "theirs\n")
    git("add", "-f", theirs, cwd=at.root)
    new = at.commit()
    git("reset", "-q", "--hard", old, cwd=at.root)
    at.write(mine, "my work\n")
    before = state(at.root)
    complaint = at.bench.can_follow(str(at.root), old, new)
    assert complaint is not None
    assert mine in complaint
    assert state(at.root) == before


def test_an_ignored_file_nearby_does_not_stand_in_the_way(at: Bench) -> None:
    old = at.commit(**{".gitignore": "*.log\n"})
    new = at.commit(sub__c="c\n", folder__d="d\n")
    git("reset", "-q", "--hard", old, cwd=at.root)
    at.write("sub/x.log", "noise\n")
    at.write("folder/y.log", "noise\n")
    assert at.bench.can_follow(str(at.root), old, new) is None


def test_following_over_work_is_an_error_and_keeps_it(at: Bench) -> None:
    old = at.head()
    new = at.commit(**{"a.txt": "three\n"})
    git("reset", "-q", "--hard", old, cwd=at.root)
    at.write("a.txt", "my work\n")
    with pytest.raises(GitError, match=r"a\.txt"):
        at.bench.follow(str(at.root), old, new)
    assert (at.root / "a.txt").read_text() == "my work\n"


def test_a_worktree_that_is_gone_has_nothing_to_lose(at: Bench, tree: Tree) -> None:
    assert at.bench.can_follow(tree.path("gone"), at.head(), at.head()) is None
    at.bench.follow(tree.path("gone"), at.head(), at.head())
    assert not (tree.root / "gone").exists()


# Reading history


def test_blame_names_commit_line_and_path_there(at: Bench) -> None:
    first = at.commit(**{"a.txt": "one is the first\ntwo is the second\n"})
    git("mv", "a.txt", "z.txt", cwd=at.root)
    second = at.commit(**{"z.txt": "zero\none is the first\ntwo is the second\nno newline"})
    assert at.bench.blame(second, "z.txt") == [
        LineOrigin(second, 1, "z.txt", "zero"),
        LineOrigin(first, 1, "a.txt", "one is the first"),
        LineOrigin(first, 2, "a.txt", "two is the second"),
        LineOrigin(second, 4, "z.txt", "no newline"),
    ]


def test_blame_reads_any_path_and_any_bytes(at: Bench) -> None:
    content = b"\xff\x00\ttab\r\n\n\tauthor x\nfilename y\n"
    for name in ODD:
        at.write(name, content)
    at.write("empty", b"")
    commit = at.commit()
    for name in ODD:
        texts = ["�\0\ttab\r", "", "\tauthor x", "filename y"]
        assert at.bench.blame(commit, name) == [LineOrigin(commit, at + 1, name, text) for at, text in enumerate(texts)]
    assert at.bench.blame(commit, "empty") == []


def test_blame_of_what_is_not_there_is_told(at: Bench) -> None:
    for path in ("nowhere", "sub", "*"):
        with pytest.raises(NotFound) as caught:
            at.bench.blame(at.head(), path)
        assert caught.value.code == "no-such-path"
        assert caught.value.fields["path"] == path
    with pytest.raises(GitError, match="blame failed"):
        at.bench.blame(NOBODY, "a.txt")


HABITS = """
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    algorithm = patience
    context = 0
    renames = false
    orderFile = {home}/order
    suppressBlankEmpty = true
    relative = true
[diff "loud"]
    textconv = tr a-z A-Z <
    command = false
[core]
    attributesFile = {home}/attributes
    quotePath = true
    pager = false
[color]
    ui = always
[blame]
    ignoreRevsFile = {home}/ignored
[patchid]
    stable = false
"""


def test_habits_of_a_person_change_nothing_that_is_read(at: Bench) -> None:
    first = at.head()
    git("mv", "sub/b.txt", "sub/c.txt", cwd=at.root)
    second = at.commit(**{"a.txt": "one\n\nthree\n", "é.txt": "x\n"})

    def everything() -> list[object]:
        bench = at.bench
        return [
            bench.blame(second, "a.txt"),
            bench.patch(first, second),
            bench.changes(first, second),
            bench.patch_ids([first, second]),
        ]

    before = everything()
    for attributes in (at.home / "attributes", at.git_dir / "info/attributes"):
        attributes.write_text("a.txt diff=loud\n")
    with (at.home / "attributes").open("a") as more:
        more.write("é.txt -diff\n")
    (at.home / "ignored").write_text(f"{second}\n")
    (at.home / "order").write_text("*é*\nsub/*\n")
    at.config(HABITS.format(home=at.home))
    assert everything() == before


def test_a_patch_applies_and_is_between_commits_trees_or_nothing(at: Bench, tree: Tree) -> None:
    first = at.head()
    git("mv", "sub/b.txt", "sub/c.txt", cwd=at.root)
    second = at.commit(**{"a.txt": "one\nthree"})
    patch = at.bench.patch(first, second)
    assert b"rename from sub/b.txt" in patch
    assert f"index {at.head(f'{first}:a.txt')}..".encode() in patch
    assert at.bench.patch(f"{first}^{{tree}}", f"{second}^{{tree}}") == patch
    git("checkout", "-q", first, cwd=at.root)
    subprocess.run(["git", "apply", "--index"], input=patch, cwd=at.root, check=True)
    assert git("write-tree", cwd=at.root).strip() == at.head(f"{second}^{{tree}}")
    assert at.bench.patch(None, first, ["sub"]).count(b"+++ ") == 1
    assert at.bench.patch(second, second) == b""
    with pytest.raises(GitError, match="diff-tree failed"):
        at.bench.patch(NOBODY, first)


def test_changes_have_status_paths_and_counts(at: Bench) -> None:
    first = at.commit(**{"long.txt": "1\n2\n3\n4\n5\n6\n", "gone": "farewell\n", "kind": "file\n", "bin": "\0a"})
    git("mv", "long.txt", "moved here.txt", cwd=at.root)
    (at.root / "gone").unlink()
    (at.root / "kind").unlink()
    (at.root / "kind").symlink_to("a.txt")
    at.write("bin", b"\0b")
    at.write(":odd\tname\n", "x\ny\n")
    at.write("not-utf8-\udcff", "x\n")
    second = at.commit(**{"moved here.txt": "1\n2\n3\n4\n5\n6\n7\n", "a.txt": "one\n2\n3\n"})
    assert sorted(at.bench.changes(first, second)) == [
        FileChange("A", ":odd\tname\n", None, 2, 0),
        FileChange("A", "not-utf8-\udcff", None, 1, 0),
        FileChange("D", "gone", None, 0, 1),
        FileChange("M", "a.txt", None, 2, 1),
        FileChange("M", "bin", None, None, None),
        FileChange("R", "moved here.txt", "long.txt", 1, 0),
        FileChange("T", "kind", None, 1, 1),
    ]
    assert at.bench.changes(first, second, ["a.txt"]) == [FileChange("M", "a.txt", None, 2, 1)]
    assert at.bench.changes(first, second, ["*"]) == []
    assert [each.path for each in at.bench.changes(None, second, [":odd\tname\n"])] == [":odd\tname\n"]


def test_patch_ids_are_equal_for_equal_changes_and_leave_out_merges_and_nothing(at: Bench) -> None:
    first = at.head()
    on_main = at.commit(new="x\n")
    git("checkout", "-q", "-b", "side", first, cwd=at.root)
    at.commit(other="y\n")
    picked = at.commit(new="x\n")
    nothing = at.commit("nothing")
    git("merge", "-q", "-s", "ours", "-m", "merge", "main", cwd=at.root)
    ids = at.bench.patch_ids([first, on_main, picked, nothing, at.head()])
    assert set(ids) == {first, on_main, picked}
    assert ids[on_main] == ids[picked] != ids[first]
    assert at.bench.patch_ids([]) == {}


def test_patch_ids_tell_changes_of_binary_files_apart(at: Bench) -> None:
    commits = []
    for data in (b"\0one", b"\0two"):
        at.write("bin", data)
        commits.append(at.commit())
    assert len(set(at.bench.patch_ids(commits).values())) == 2


# Upkeep


def test_a_sound_repository_has_no_complaints_and_a_damaged_one_has(at: Bench) -> None:
    dangling = subprocess.run(["git", "hash-object", "-w", "--stdin"], input=b"x", cwd=at.root, capture_output=True, check=True)
    assert dangling.stdout
    said: list[str] = []
    assert at.bench.check(said.append) == []
    assert said != []
    blob = at.head("HEAD:a.txt")
    (at.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    assert any(blob in each for each in at.bench.check())


def test_a_new_repository_has_no_complaints(at: Bench, tree: Tree) -> None:
    git("init", "-q", "--bare", "new.git", cwd=tree.root)
    assert open_bench(tree.root / "new.git", at.home).check() == []


def test_a_check_that_does_not_get_going_is_a_complaint(at: Bench) -> None:
    (at.git_dir / "HEAD").write_text("nonsense\n")
    assert at.bench.check() != []


def clone(at: Bench, tree: Tree, *words: str) -> GitWorkbench:
    git("config", "uploadpack.allowFilter", "true", cwd=at.root)
    git("clone", "-q", "--no-local", *words, f"file://{at.root}", "clone", cwd=tree.root)
    return open_bench(tree.root / "clone", at.home)


def test_a_partial_clone_is_known_and_checked_without_fetching(at: Bench, tree: Tree) -> None:
    at.commit(**{"a.txt": "three\n"})
    bench = clone(at, tree, "--filter=blob:none")
    assert bench.is_partial()
    assert not bench.is_shallow()
    before = sorted((tree.root / "clone/.git/objects").rglob("*"))
    assert bench.check() == []
    assert sorted((tree.root / "clone/.git/objects").rglob("*")) == before


def test_a_shallow_clone_is_known(at: Bench, tree: Tree) -> None:
    at.commit(**{"a.txt": "three\n"})
    bench = clone(at, tree, "--depth=1")
    assert bench.is_shallow()
    assert not bench.is_partial()
    assert not at.bench.is_shallow()


def test_a_remote_that_promises_nothing_makes_no_partial_clone(at: Bench) -> None:
    git("config", "remote.x.promisor", "false", cwd=at.root)
    assert not at.bench.is_partial()
    git("config", "remote.y.promisor", "true", cwd=at.root)
    assert at.bench.is_partial()


def loose(at: Bench, text: str) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=text.encode(), cwd=at.root, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def exists(at: Bench, cid: str) -> bool:
    return subprocess.run(["git", "cat-file", "-e", cid], cwd=at.root, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("grace", [None, "now", "never"])
def test_packing_keeps_fresh_objects_that_nothing_reaches_and_absent_worktrees(at: Bench, tree: Tree, grace: str | None) -> None:
    git("config", "gc.packRefs", "false", cwd=at.root)
    if grace:
        git("config", "gc.pruneExpire", grace, cwd=at.root)
    at.bench.add_worktree(tree.path("w"), "scout", at.head())
    os.rename(tree.path("w"), tree.path("away"))
    old, fresh = loose(at, "old"), loose(at, "fresh")
    os.utime(at.git_dir / "objects" / old[:2] / old[2:], (1, 1))
    size = at.bench.size()
    at.bench.pack()
    assert exists(at, fresh)
    assert exists(at, old) == (grace == "never")
    assert list((at.git_dir / "objects/pack").glob("*.pack"))
    assert not (at.git_dir / "refs/heads/main").exists()
    assert at.bench.size() != size
    os.rename(tree.path("away"), tree.path("w"))
    assert at.bench.checkout_of(tree.path("w")) is not None


def test_the_size_is_that_of_the_files_under_objects(at: Bench) -> None:
    files = [path for path in (at.git_dir / "objects").rglob("*") if path.is_file()]
    assert at.bench.size() == sum(path.stat().st_blocks * 512 for path in files) > 0


def pack_everything(at: Bench, *cids: str) -> str:
    """All of the objects into one pack, whether or not anything reaches them; its name."""
    ids = git("rev-list", "--objects", "--all", cwd=at.root).split("\n")
    data = "".join(f"{each.split()[0]}\n" for each in [*ids, *cids] if each).encode()
    done = subprocess.run(
        ["git", "pack-objects", "-q", ".git/objects/pack/pack"], input=data, cwd=at.root, capture_output=True, check=True
    )
    git("prune-packed", cwd=at.root)
    return done.stdout.decode().strip()


@pytest.mark.parametrize("packed", [False, True])
def test_dropped_objects_are_gone_and_all_others_stay(at: Bench, packed: bool) -> None:
    doomed, other = [loose(at, "doomed"), loose(at, "doomed too")], loose(at, "other")
    if packed:
        pack_everything(at, *doomed, other)
    assert at.bench.drop_objects(doomed) == []
    assert not any(exists(at, each) for each in doomed)
    assert exists(at, other)
    assert at.bench.check() == []
    assert at.bench.drop_objects(doomed) == []


def test_an_object_both_loose_and_packed_is_gone(at: Bench) -> None:
    doomed = loose(at, "doomed")
    path = at.git_dir / "objects" / doomed[:2] / doomed[2:]
    data = path.read_bytes()
    pack_everything(at, doomed)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert at.bench.drop_objects([doomed]) == []
    assert not exists(at, doomed)


@pytest.mark.parametrize("split", [False, True])
def test_dropped_commits_leave_no_trace_in_the_commit_graph(at: Bench, split: bool) -> None:
    base, doomed = at.head(), at.commit("doomed", hidden="x")
    git("commit-graph", "write", "--reachable", *(["--split"] if split else []), cwd=at.root)
    git("reset", "-q", "--hard", base, cwd=at.root)
    shutil.rmtree(at.git_dir / "logs")
    (at.git_dir / "ORIG_HEAD").unlink()
    assert at.bench.drop_objects([doomed]) == []
    assert not exists(at, doomed)
    assert at.bench.check() == []


def test_what_cannot_be_removed_is_told(at: Bench, tree: Tree) -> None:
    kept = loose(at, "kept")
    name = pack_everything(at, kept)
    (at.git_dir / f"objects/pack/pack-{name}.keep").touch()
    borrowed = loose(at, "borrowed")
    git("clone", "-q", "--shared", "repo", "sharer", cwd=tree.root)
    sharer = open_bench(tree.root / "sharer", at.home)
    at.commit(later="x")
    before = sorted((at.git_dir / "objects").rglob("*"))
    assert at.bench.drop_objects([kept]) == [kept]
    assert sorted((at.git_dir / "objects").rglob("*")) == before  # no repacking that cannot help
    assert sharer.drop_objects([borrowed, kept]) == sorted([borrowed, kept])
    assert exists(at, borrowed)


def test_dropping_what_is_no_id_touches_nothing(at: Bench) -> None:
    doomed = loose(at, "doomed")
    for bad in ("../../HEAD", doomed[:10], "", doomed.upper()):
        with pytest.raises(InvalidInput) as caught:
            at.bench.drop_objects([doomed, bad])
        assert caught.value.code == "invalid-id"
    assert exists(at, doomed)


def test_an_object_that_the_disk_will_not_give_up_is_an_error(at: Bench) -> None:
    cid = NOBODY
    (at.git_dir / "objects" / cid[:2] / cid[2:] / "a folder").mkdir(parents=True)
    with pytest.raises(GitError, match="cannot remove object"):
        at.bench.drop_objects([cid])


# Remotes


@pytest.fixture
def hub(at: Bench, tree: Tree) -> Bench:
    """The same, with a bare repository beside it as its origin, by a relative address."""
    git("init", "-q", "--bare", "hub.git", cwd=tree.root)
    git("remote", "add", "origin", "../hub.git", cwd=at.root)
    return at


def refs_of(root: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=root).splitlines()
    return dict(line.split() for line in lines)


def test_remotes_and_their_addresses(hub: Bench) -> None:
    git("remote", "add", "another", "https://example.org/x", cwd=hub.root)
    assert hub.bench.remotes() == ["another", "origin"]
    assert hub.bench.remote_url("origin") == "../hub.git"
    assert hub.bench.remote_url("nobody") is None


def test_fetch_rules_are_added_once(hub: Bench) -> None:
    rules = ["+refs/clia/*:refs/clia/tracking/origin/*", "+refs/x/*:refs/y/*"]
    assert hub.bench.add_fetch_rules("origin", [rules[0], rules[0]]) == rules[:1]
    assert hub.bench.add_fetch_rules("origin", rules) == rules[1:]
    found = git("config", "--get-all", "remote.origin.fetch", cwd=hub.root).splitlines()
    assert found == ["+refs/heads/*:refs/remotes/origin/*", *rules]
    before = (hub.git_dir / "config").read_bytes()
    with pytest.raises(NotFound) as caught:
        hub.bench.add_fetch_rules("nobody", rules)
    assert caught.value.code == "no-such-remote"
    assert (hub.git_dir / "config").read_bytes() == before


def test_a_push_tells_what_became_of_each_ref(hub: Bench, tree: Tree) -> None:
    first = hub.head()
    git("update-ref", "refs/clia/x", first, cwd=hub.root)
    refs = ["refs/heads/main", "refs/clia/x"]
    assert hub.bench.push("origin", refs) == [Pushed(ref, "new", "") for ref in refs]
    hub.commit()
    assert hub.bench.push("origin", refs) == [Pushed(refs[0], "moved", ""), Pushed(refs[1], "same", "")]
    assert refs_of(tree.root / "hub.git") == {"refs/heads/main": hub.head(), "refs/clia/x": first}
    assert hub.bench.push("origin", []) == []


def test_a_push_is_all_or_nothing_and_forces_nothing(hub: Bench, tree: Tree) -> None:
    first = hub.head()
    git("update-ref", "refs/clia/x", hub.commit(), cwd=hub.root)
    git("config", "push.followTags", "true", cwd=hub.root)
    git("config", "--add", "remote.origin.push", "+refs/*:refs/*", cwd=hub.root)
    hub.bench.push("origin", ["refs/heads/main", "refs/clia/x"])
    before = refs_of(tree.root / "hub.git")
    git("update-ref", "refs/clia/x", first, cwd=hub.root)
    git("tag", "-a", "-m", "x", "v1", cwd=hub.root)
    hub.commit()
    done = hub.bench.push("origin", ["refs/heads/main", "refs/clia/x"])
    assert [(each.ref, each.state) for each in done] == [("refs/heads/main", "refused"), ("refs/clia/x", "refused")]
    assert done[0].reason == "atomic push failed"
    assert done[1].reason in ("non-fast-forward", "fetch first")
    assert refs_of(tree.root / "hub.git") == before


def test_a_refusal_of_the_other_side_is_told_with_its_reason(hub: Bench, tree: Tree) -> None:
    hook = tree.write("hub.git/hooks/update", "#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert hub.bench.push("origin", ["refs/heads/main"]) == [Pushed("refs/heads/main", "refused", "hook declined")]


def test_a_push_of_what_is_no_ref_is_refused_before_anything_is_sent(hub: Bench, tree: Tree) -> None:
    for bad in ("main", "+refs/heads/main", "refs/heads/main:refs/heads/x", "refs/heads/*", ":refs/heads/main", "--force"):
        with pytest.raises(InvalidInput) as caught:
            hub.bench.push("origin", ["refs/heads/main", bad])
        assert caught.value.code == "invalid-ref"
    with pytest.raises(NotFound) as missing:
        hub.bench.push("origin", ["refs/heads/main", "refs/heads/nope"])
    assert missing.value.code == "no-such-ref"
    assert refs_of(tree.root / "hub.git") == {}


def test_a_fetch_writes_what_its_rules_name_and_prunes_nothing(hub: Bench, tree: Tree) -> None:
    git("push", "-q", "origin", "main", "main:refs/clia/x", cwd=hub.root)
    git("update-ref", "-d", "refs/remotes/origin/main", cwd=hub.root)
    git("update-ref", "refs/clia/tracking/mine", hub.head(), cwd=hub.root)
    git("config", "fetch.prune", "true", cwd=hub.root)
    before = refs_of(hub.root)
    hub.bench.fetch("origin", [])
    assert refs_of(hub.root) == before
    hub.bench.fetch("origin", ["+refs/clia/*:refs/clia/tracking/*", "+refs/heads/*:refs/clia/heads/*"])
    assert refs_of(hub.root) == before | {"refs/clia/tracking/x": hub.head(), "refs/clia/heads/main": hub.head()}
    assert not (hub.git_dir / "FETCH_HEAD").exists()


def test_a_fetch_works_in_a_bare_repository(hub: Bench, tree: Tree) -> None:
    git("push", "-q", "origin", "main", cwd=hub.root)
    git("init", "-q", "--bare", "bare.git", cwd=tree.root)
    bench = open_bench(tree.root / "bare.git", hub.home)
    bench.fetch(tree.path("hub.git"), ["refs/heads/main:refs/heads/main"])
    assert refs_of(tree.root / "bare.git") == {"refs/heads/main": hub.head()}


def test_a_fetch_that_would_lose_something_moves_nothing(hub: Bench) -> None:
    git("push", "-q", "origin", "main", cwd=hub.root)
    git("update-ref", "refs/mine/x", hub.commit(), cwd=hub.root)
    before = refs_of(hub.root)
    with pytest.raises(Conflict) as caught:
        hub.bench.fetch("origin", ["refs/heads/main:refs/mine/x", "refs/heads/main:refs/mine/y"])
    assert caught.value.code == "fetch-refused"
    assert refs_of(hub.root) == before


def test_a_remote_out_of_reach_is_a_transport_error_without_passwords(hub: Bench, tree: Tree) -> None:
    address = f"file://tess:p@ss@{tree.path('nowhere')}"
    git("remote", "add", "away", address, cwd=hub.root)
    for remote in ("away", address):
        for call in (lambda to: hub.bench.fetch(to, ["refs/x:refs/y"]), lambda to: hub.bench.push(to, ["refs/heads/main"])):
            with pytest.raises(TransportError) as caught:
                call(remote)
            told = json.dumps(caught.value.to_json())
            assert "p@ss" not in told
            assert "tess" not in told
            assert caught.value.retryable


def test_a_person_says_how_servers_are_reached(hub: Bench, tree: Tree) -> None:
    ssh = tree.write("ssh", f'#!/bin/sh\nfor last; do :; done\ncd {tree.path()} && eval "$last"\n')
    ssh.chmod(0o755)
    bench = open_bench(hub.root, hub.home, GIT_SSH_COMMAND=str(ssh), GIT_SSH_VARIANT="simple", GIT_DIR="/nowhere")
    bench.push("example.org:hub.git", ["refs/heads/main"])
    assert refs_of(tree.root / "hub.git") == {"refs/heads/main": hub.head()}


# Running git


def test_a_machine_without_git_is_told_what_to_do(at: Bench, tree: Tree) -> None:
    command = GitCommand(str(at.git_dir), {"PATH": tree.path("home")})
    with pytest.raises(GitError, match="cannot run git") as caught:
        command.run("status")
    assert caught.value.hints


def test_an_error_names_the_subcommand_behind_gits_own_options(at: Bench) -> None:
    command = GitCommand(str(at.git_dir), {"PATH": os.environ["PATH"]})
    with pytest.raises(GitError) as caught:
        command.run("--literal-pathspecs", "-c", "a.b=c", "rev-parse", "--verify", "nothing")
    assert caught.value.fields["command"] == "rev-parse"
    with pytest.raises(GitError, match="exit code 1"):
        command.run("config", "--get", "no.such.key")
