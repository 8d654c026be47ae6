"""Pushes of many refs: from a temporary repository, as git would push them from this one."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import GitError, InvalidInput, NotFound
from clia.git.archive import RefArchive
from clia.git.command import GitCommand
from clia.git.libgit2 import GitHandle
from clia.git.lock_files import LockFiles
from clia.git.pushing import PREFIX
from clia.git.ref_files import edited
from support import git
from support.porcelain import BenchRepository, open_bench

if TYPE_CHECKING:
    from pathlib import Path

    from support import Tree


@pytest.fixture
def hub(repository: BenchRepository, tree: Tree) -> Path:
    """The remote ``origin`` of the repository."""
    git("init", "-q", "--bare", "hub.git", cwd=tree.root)
    git("remote", "add", "origin", "../hub.git", cwd=repository.root)  # relative to the top of the worktree
    return tree.root / "hub.git"


def archive_of(repository: BenchRepository) -> RefArchive:
    handle = GitHandle(str(repository.root), durable=False)
    return RefArchive(handle, LockFiles(handle.common_dir, handle.sharing))


def refs_of(root: Path) -> dict[str, str]:
    return dict(line.split()[::-1] for line in git("for-each-ref", "--format=%(objectname) %(refname)", cwd=root).splitlines())


def test_any_number_of_refs_is_pushed_by_one_short_command(
    repository: BenchRepository, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    attempt = GitCommand.attempt

    def recorded(self: GitCommand, *words: str, **more: Any) -> Any:
        commands.append(words)
        return attempt(self, *words, **more)

    head = repository.head()
    refs = [f"refs/heads/agents/{'long-name-' * 15}{number}" for number in range(300)]
    refs += [ref.replace("refs/heads", "refs/clia") for ref in refs]
    (repository.git_dir / "packed-refs").write_bytes(edited(b"", dict.fromkeys(refs, head)) or b"")
    monkeypatch.setattr(GitCommand, "attempt", recorded)
    assert {pushed.state for pushed in repository.bench.push("origin", refs)} == {"new"}
    assert refs_of(hub) == dict.fromkeys(refs, head)
    assert max(len(words) for words in commands) < 20
    pushed = repository.bench.push("origin", refs[::-1])
    assert [(ref.ref, ref.state) for ref in pushed] == [(ref, "same") for ref in refs[::-1]]


def test_only_the_named_refs_are_pushed(repository: BenchRepository, hub: Path) -> None:
    head = repository.head()
    for ref in ("refs/heads/mine", "refs/clia/x", "refs/clia/private", "refs/tags/v1"):
        git("update-ref", ref, head, cwd=repository.root)
    repository.bench.push("origin", ["refs/heads/main", "refs/clia/x"])
    assert refs_of(hub) == {"refs/heads/main": head, "refs/clia/x": head}
    assert not list((repository.git_dir / "clia").glob(f"{PREFIX}*"))


def test_tracking_refs_follow_as_for_git(repository: BenchRepository, hub: Path) -> None:
    repository.bench.push("origin", ["refs/heads/main"])
    head = repository.commit()
    git("update-ref", "refs/heads/side", head, cwd=repository.root)
    repository.bench.push("origin", ["refs/heads/main", "refs/heads/side"])
    tracked = {ref: cid for ref, cid in refs_of(repository.root).items() if ref.startswith("refs/remotes/")}
    assert tracked == {"refs/remotes/origin/main": head, "refs/remotes/origin/side": head}
    git("update-ref", "refs/heads/main", f"{head}~1", cwd=repository.root)
    assert {pushed.state for pushed in repository.bench.push("origin", ["refs/heads/main"])} == {"refused"}
    assert refs_of(repository.root)["refs/remotes/origin/main"] == head == refs_of(hub)["refs/heads/main"]


def test_refs_of_the_archive_repository_are_pushed_and_get_no_tracking_refs(repository: BenchRepository, hub: Path) -> None:
    old = repository.head()
    archive_of(repository).edit({"refs/heads/idle": old, "refs/heads/both": old})
    new = repository.commit()
    git("update-ref", "refs/heads/both", new, cwd=repository.root)
    repository.bench.push("origin", ["refs/heads/idle", "refs/heads/both"])
    assert refs_of(hub) == {"refs/heads/idle": old, "refs/heads/both": new}
    assert refs_of(repository.root) == {
        "refs/heads/both": new,
        "refs/heads/main": new,
        "refs/remotes/origin/both": new,
    }


def test_the_configuration_of_the_repository_holds(repository: BenchRepository, hub: Path) -> None:
    git("remote", "add", "far", "there:hub.git", cwd=repository.root)
    git("config", f"url.{hub.parent}/.insteadOf", "there:", cwd=repository.root)
    git("config", "core.worktree", str(repository.root), cwd=repository.root)
    repository.bench.push("far", ["refs/heads/main"])
    assert refs_of(hub) == {"refs/heads/main": repository.head()}


def test_a_shallow_clone_pushes_its_commits(repository: BenchRepository, hub: Path, tree: Tree) -> None:
    repository.commit()
    git("push", "-q", "origin", "main", cwd=repository.root)
    git("clone", "-q", "--branch", "main", "--depth", "1", f"file://{hub}", "shallow", cwd=tree.root)
    (tree.root / "shallow/more.txt").write_text("more\n")
    git("add", "-A", cwd=tree.root / "shallow")
    git("commit", "-q", "-m", "more", cwd=tree.root / "shallow")
    pushed = open_bench(tree.root / "shallow", repository.home).push("origin", ["refs/heads/main"])
    assert [ref.state for ref in pushed] == ["moved"]
    assert refs_of(hub)["refs/heads/main"] == refs_of(tree.root / "shallow")["refs/heads/main"]


_HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_what_killed_pushes_left_is_removed_but_not_what_others_use(repository: BenchRepository, hub: Path) -> None:
    home = repository.git_dir / "clia"
    left, used = (home / f"{PREFIX}{name}" for name in ("left", "used"))
    for directory in (left, used):
        (directory / "objects/info").mkdir(parents=True)
    words = [sys.executable, "-c", _HOLD, str(used)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        repository.bench.push("origin", ["refs/heads/main"])
        assert list(home.glob(f"{PREFIX}*")) == [used]
        holder.send_signal(signal.SIGKILL)
    repository.bench.push("origin", ["refs/heads/main"])
    assert not list(home.glob(f"{PREFIX}*"))


def test_a_push_that_cannot_be_prepared_sends_nothing(repository: BenchRepository, hub: Path) -> None:
    (repository.git_dir / "clia").write_text("in the way")
    with pytest.raises(GitError, match="cannot prepare a push"):
        repository.bench.push("origin", ["refs/heads/main"])
    assert refs_of(hub) == {}


def test_a_missing_or_invalid_ref_is_refused(repository: BenchRepository, hub: Path) -> None:
    with pytest.raises(NotFound, match="no ref refs/heads/nope"):
        repository.bench.push("origin", ["refs/heads/main", "refs/heads/nope"])
    with pytest.raises(InvalidInput, match="not a full ref name"):
        repository.bench.push("origin", ["refs/heads/main", "refs/heads/*"])
    assert refs_of(hub) == {}
