"""``clia run`` with unusual files and clones: nothing is lost or changed, and nothing of the user's is touched."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.programs import run
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERSON = ("-c", "user.name=T", "-c", "user.email=t@t")


def add_files(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    git("add", "-A", cwd=root)
    git(*PERSON, "commit", "--quiet", "-m", "Files", cwd=root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "shop"
    with clia.init(root, settings=settings()):
        add_files(root, {"in/a.txt": b"a\n", "out/b.txt": b"b\n", "Case.txt": b"case\n"})
    return root


def mode_and_name(root: Path, commit: str) -> dict[bytes, bytes]:
    """The mode of each path of a commit, as bytes."""
    words = ["git", "ls-tree", "-r", "-z", commit]
    out = subprocess.run(words, cwd=root, check=True, capture_output=True).stdout
    return {entry.partition(b"\t")[2]: entry[:6] for entry in out.split(b"\0")[:-1]}


def sparse(root: Path, tmp_path: Path) -> Path:
    del tmp_path
    git("sparse-checkout", "set", "--cone", "in", cwd=root)
    return root


def partial(root: Path, tmp_path: Path) -> Path:
    """A partial clone without the objects of another directory, and sparse, so that nothing asks for them."""
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=root)
    clone = tmp_path.resolve() / "partial"
    git("clone", "--quiet", "--filter=blob:none", "--sparse", f"file://{root}", str(clone), cwd=tmp_path)
    git("sparse-checkout", "set", "--cone", "in", cwd=clone)
    clia.init(clone, settings=settings()).close()
    return clone


@pytest.mark.parametrize("made", [sparse, partial])
def test_a_run_in_a_sparse_or_partial_clone_follows_it_and_deletes_nothing(
    root: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    clone = made(root, tmp_path)
    before = git("status", "--porcelain", cwd=clone)
    with clia.open(clone, settings=settings()) as space:
        report = run(space, "sh", "-c", "test ! -e out && echo new > in/new.txt && rm Case.txt")
        assert (report.exit_code, report.problem) == (0, None)
        assert report.commit is not None
        assert mode_and_name(clone, report.commit).keys() == {b"in/a.txt", b"in/new.txt", b"out/b.txt"}
        assert run(space, "true").left is None
    assert git("status", "--porcelain", cwd=clone) == before


def test_every_kind_of_file_is_committed_as_git_would(root: Path) -> None:
    before = git("status", "--porcelain", cwd=root)
    script = r"""
        printf '\000\001\377\r\n' > binary.bin
        printf 'x' > "$(printf 'not-utf8-\377')"
        printf 'x' > "$(printf 'new\nline')"
        ln -s binary.bin link
        ln -s /nowhere dangling
        printf '#!/bin/sh\n' > tool; chmod +x tool
        mv Case.txt case-tmp; mv case-tmp case.txt
        mkdir empty
    """
    with clia.open(root, settings=settings()) as space:
        report = run(space, "sh", "-c", script)
        assert report.problem is None
        assert report.commit is not None
        modes = mode_and_name(root, report.commit)
        assert modes == {
            **dict.fromkeys((b"in/a.txt", b"out/b.txt", b"case.txt", b"binary.bin", b"not-utf8-\xff", b"new\nline"), b"100644"),
            b"link": b"120000",
            b"dangling": b"120000",
            b"tool": b"100755",
        }
        assert space.files(report.commit)["binary.bin"] == b"\0\1\xff\r\n"
        assert git("status", "--porcelain", cwd=report.directory) == ""
        assert space.verify().findings == ()
    assert git("status", "--porcelain", cwd=root) == before


def test_line_ends_follow_the_attributes_and_settings_of_the_repository(root: Path) -> None:
    git("config", "core.autocrlf", "true", cwd=root)
    add_files(root, {".gitattributes": b"*.bat text eol=crlf\n*.raw -text\n", "plain.txt": b"one\r\n"})
    with clia.open(root, settings=settings()) as space:
        assert run(space, "true").files == 0, "conversion is no change"
        report = run(space, "sh", "-c", r"for name in a.bat b.raw c.txt; do printf 'x\r\ny\r\n' > $name; done")
        assert report.commit is not None
        files = space.files(report.commit)
        assert (files["a.bat"], files["b.raw"], files["c.txt"]) == (b"x\ny\n", b"x\r\ny\r\n", b"x\ny\n")
        assert files["plain.txt"] == b"one\n"
        assert git("status", "--porcelain", cwd=report.directory) == ""


def test_a_large_file_is_committed_without_loading_it(root: Path, soak: bool) -> None:
    size = (300 if soak else 40) << 20
    (root / ".git/clia/config.toml").write_text('[capture]\nallow = ["large.bin"]\n')
    with clia.open(root, settings=settings()) as space:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = run(space, "sh", "-c", f"yes 0123456789 | head -c {size} > large.bin")
        assert report.problem is None
        assert report.commit is not None
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < size / 2
    digest = f"git cat-file blob {report.commit}:large.bin | sha256sum"
    recorded = subprocess.run(["sh", "-c", digest], cwd=root, check=True, capture_output=True, text=True).stdout.split()[0]
    with open(os.path.join(report.directory, "large.bin"), "rb") as file:
        assert recorded == hashlib.file_digest(file, "sha256").hexdigest()
