"""Staging a directory under rules: what is stored, what is left out, and that nothing else reaches the object database."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

from clia.git.staging import StagingRules
from support import git
from support.other_users import FIRST, GROUP, give, needs_root, public_directory, run_as
from support.porcelain import UNUSUAL_NAMES, open_bench

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clia.git.staging import StagedFiles
    from support.porcelain import BenchRepository

MARK = b"made-up-secret"
LIMIT = 1000


class Rules(StagingRules):
    """All files up to a size that do not contain the mark."""

    def __init__(self, *unwanted: str) -> None:
        self.unwanted = unwanted

    def wants(self, path: str, status: os.stat_result) -> bool:
        assert stat.S_IFMT(status.st_mode)
        return path not in self.unwanted

    def size_max(self, path: str) -> int | None:
        return None if path.startswith("any/") else LIMIT

    def secrets(self, path: str, pieces: Iterable[bytes]) -> Mapping[str, str]:
        content = b"".join(pieces)
        return {str(number): "a mark" for number in range(content.count(MARK))}

    def secret_in_path(self, path: str) -> str | None:
        return "a mark" if MARK.decode() in path else None


def stage(repository: BenchRepository, *unwanted: str) -> StagedFiles:
    tree = git("rev-parse", "HEAD^{tree}", cwd=repository.root).strip()
    return repository.bench.staged(str(repository.root), tree, Rules(*unwanted))


def listed(repository: BenchRepository, tree: str) -> dict[str, str]:
    """The mode of each path of a tree."""
    out = subprocess.run(["git", "ls-tree", "-r", "-z", tree], cwd=repository.root, capture_output=True, check=True).stdout
    lines = (line.split(b"\t", 1) for line in out.split(b"\0")[:-1])
    return {os.fsdecode(path): fields.split()[0].decode() for fields, path in lines}


def blob(repository: BenchRepository, tree: str, path: str) -> bytes:
    return subprocess.run(
        ["git", "cat-file", "blob", f"{tree}:{path}"], cwd=repository.root, capture_output=True, check=True
    ).stdout


def objects(repository: BenchRepository) -> bytes:
    words = ["git", "cat-file", "--batch-all-objects", "--unordered", "--batch"]
    return subprocess.run(words, cwd=repository.root, capture_output=True, check=True).stdout


def left_out(staged: StagedFiles) -> dict[str, str]:
    return {file.path: file.code for file in staged.left_out}


def is_empty(repository: BenchRepository) -> bool:
    return not os.listdir(repository.git_dir / "clia" / "staging")


def test_it_stages_what_git_add_stages(repository: BenchRepository) -> None:
    """New, changed and deleted files, modes, links, folders in place of files, ignored files, and staged ones."""
    repository.commit(gone="1\n", changed="1\n", turned="1\n", folder__inner="1\n", mode="1\n", ignored="1\n")
    for name in UNUSUAL_NAMES:
        repository.write(f"odd/{name}", "x\n")
    repository.write(".gitignore", "*.log\n")
    repository.write("b.log", "x\n")
    for name in ("gone", "turned", "folder/inner"):
        (repository.root / name).unlink()
    (repository.root / "folder").rmdir()
    repository.write("folder", "a file now\n")
    repository.write("turned/inner", "a folder now\n")
    repository.write("changed", "2\n")
    (repository.root / "mode").chmod(0o755)
    (repository.root / "link").symlink_to("../outside")
    repository.write("staged", "1\n")
    git("add", "staged", cwd=repository.root)
    repository.write("staged", "2\n")
    expected = repository.bench.snapshot(str(repository.root), repository.head())
    before = git("ls-files", "--stage", cwd=repository.root)
    staged = stage(repository)
    assert (staged.tree, staged.left_out) == (expected, ())
    assert git("ls-files", "--stage", cwd=repository.root) == before
    assert is_empty(repository)
    git("fsck", "--strict", cwd=repository.root)


def test_a_file_that_is_not_wanted_reaches_no_object(repository: BenchRepository) -> None:
    repository.write("notes", MARK + b" in notes\n")
    repository.write("new", "new\n")
    staged = stage(repository, "notes")
    assert "notes" not in listed(repository, staged.tree)
    assert "new" in listed(repository, staged.tree)
    assert (left_out(staged), MARK in objects(repository)) == ({}, False)


def test_refused_files_reach_no_object_and_keep_their_version(repository: BenchRepository) -> None:
    repository.commit(tracked="one\n", grown="one\n")
    for name in ("tracked", "fresh", "deep/fresh"):
        repository.write(name, b"changed\n" + MARK)
    repository.write("grown", b"g" * (LIMIT + 1))
    repository.write("large", b"l" * (LIMIT + 1))
    repository.write("fits", b"f" * LIMIT)
    repository.write("any/large", b"a" * (LIMIT + 1))
    staged = stage(repository)
    assert left_out(staged) == {
        "tracked": "secret",
        "fresh": "secret",
        "deep/fresh": "secret",
        "grown": "too-large",
        "large": "too-large",
    }
    assert {"fits", "any/large"} == listed(repository, staged.tree).keys() - listed(repository, "HEAD").keys()
    assert blob(repository, staged.tree, "tracked") == blob(repository, staged.tree, "grown") == b"one\n"
    assert (MARK in objects(repository), b"g" * LIMIT in objects(repository)) == (False, False)
    assert is_empty(repository)


def test_secrets_that_the_recorded_version_has_do_not_count(repository: BenchRepository) -> None:
    repository.commit(fixture=f"one\n{MARK.decode()}\n")
    git("checkout", "-q", "--orphan", "other", cwd=repository.root)  # so that HEAD does not have them
    repository.write("fixture", b"two\n" + MARK)
    tree = git("rev-parse", "main^{tree}", cwd=repository.root).strip()
    staged = repository.bench.staged(str(repository.root), tree, Rules())
    assert staged.left_out == ()
    repository.write("fixture", b"three\n" + MARK + MARK)
    staged = repository.bench.staged(str(repository.root), tree, Rules())
    assert left_out(staged) == {"fixture": "secret"}


def test_what_the_commit_at_head_has_is_not_checked(repository: BenchRepository) -> None:
    before = git("rev-parse", "HEAD^{tree}", cwd=repository.root).strip()
    repository.commit(pulled=MARK.decode() * 1000)
    staged = repository.bench.staged(str(repository.root), before, Rules())
    assert staged.left_out == ()
    assert "pulled" in listed(repository, staged.tree)


def test_a_staged_file_is_checked(repository: BenchRepository) -> None:
    repository.write("staged", MARK)
    git("add", "staged", cwd=repository.root)
    assert left_out(stage(repository)) == {"staged": "secret"}


def test_the_checked_content_is_what_a_filter_writes(repository: BenchRepository) -> None:
    """A small file that a filter makes large is refused, a large file that it makes small is stored, a secret may be encrypted."""
    repository.write(".gitattributes", "*.grow filter=grow\n*.shrink filter=shrink\n")
    git("config", "filter.grow.clean", f"cat; printf '%{LIMIT}d' 1", cwd=repository.root)
    git("config", "filter.shrink.clean", "wc -c", cwd=repository.root)
    repository.commit()
    repository.write("a.grow", "small\n")
    repository.write("b.shrink", b"x" * 50_000)
    repository.write("c.shrink", MARK)
    staged = stage(repository)
    assert left_out(staged) == {"a.grow": "too-large"}
    assert blob(repository, staged.tree, "b.shrink").strip() == b"50000"
    assert b" 1" * 100 not in objects(repository)


def test_a_failing_filter_of_one_file_leaves_out_that_file(repository: BenchRepository) -> None:
    repository.write(".gitattributes", "bad* filter=none\n")
    git("config", "filter.none.clean", "false", cwd=repository.root)
    git("config", "filter.none.required", "true", cwd=repository.root)
    repository.commit()
    for name in ("a", "bad1", "b", "bad2", "c"):
        repository.write(name, name)
    staged = stage(repository)
    assert left_out(staged) == {"bad1": "unreadable", "bad2": "unreadable"}
    assert {"a", "b", "c"} < listed(repository, staged.tree).keys()


def test_special_files_and_broken_repositories_are_named(repository: BenchRepository) -> None:
    repository.commit(pipe="1\n", target="1\n")
    (repository.root / "pipe").unlink()
    os.mkfifo(repository.root / "pipe")
    os.mkfifo(repository.root / "other-pipe")
    git("init", "-q", "empty", cwd=repository.root)
    repository.write("new", "new\n")
    staged = stage(repository)
    assert left_out(staged) == {"pipe": "special-file", "empty": "unreadable"}
    assert blob(repository, staged.tree, "pipe") == b"1\n"
    assert "new" in listed(repository, staged.tree)


def test_a_link_in_place_of_a_folder_is_stored_as_a_link(repository: BenchRepository) -> None:
    repository.commit(folder__inner="1\n")
    outside = repository.root.parent / "outside"
    outside.mkdir()
    (outside / "inner").write_bytes(MARK)
    (repository.root / "folder" / "inner").unlink()
    (repository.root / "folder").rmdir()
    (repository.root / "folder").symlink_to(outside)
    staged = stage(repository)
    assert (left_out(staged), listed(repository, staged.tree)["folder"]) == ({}, "120000")
    assert MARK not in objects(repository)


def test_a_nested_repository_is_stored_as_its_commit(repository: BenchRepository) -> None:
    git("init", "-q", "inner", cwd=repository.root)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=repository.root / "inner")
    assert listed(repository, stage(repository).tree)["inner"] == "160000"
    assert "inner" not in listed(repository, stage(repository, "inner").tree)


@needs_root
def test_an_unreadable_file_is_named(repository: BenchRepository) -> None:
    """As another user, because root can read everything."""
    repository.commit(tracked="1\n")
    for name in ("closed", "tracked"):
        repository.write(name, MARK)
    repository.write("open", "open\n")
    tree = repository.head("HEAD^{tree}")
    with public_directory() as place:
        moved = place / "repo"
        shutil.copytree(repository.root, moved)
        for name in ("closed", "tracked"):
            (moved / name).chmod(0)
        bench = open_bench(moved, repository.home)
        give(moved, FIRST, GROUP)
        staged = run_as(FIRST, GROUP, lambda: bench.staged(str(moved), tree, Rules()))
        give(moved, os.geteuid(), os.getegid())
        other = repository._replace(root=moved)
        assert left_out(staged) == {"closed": "unreadable", "tracked": "unreadable"}
        assert "open" in listed(other, staged.tree)
        assert blob(other, staged.tree, "tracked") == b"1\n"


def test_what_a_killed_process_left_is_removed(repository: BenchRepository) -> None:
    abandoned = repository.git_dir / "clia" / "staging" / "tmpdead"
    (abandoned / "ab").mkdir(parents=True)
    (abandoned / "ab" / "cd").write_bytes(MARK)
    stage(repository)
    assert is_empty(repository)


def test_an_unusual_path_and_a_split_index_are_supported(repository: BenchRepository) -> None:
    repository.commit(one="1\n")
    git("update-index", "--split-index", cwd=repository.root)
    moved = repository.root.parent / 'new"line\n\\x'
    repository.root.rename(moved)
    other = repository._replace(root=moved, git_dir=moved / ".git", bench=open_bench(moved, repository.home))
    (moved / "two").write_text("2\n")
    assert set(listed(other, stage(other).tree)) >= {"one", "two"}
