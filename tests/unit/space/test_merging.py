from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as made:
        yield made


def rev(where: Path, name: str) -> str:
    return git("rev-parse", name, cwd=where).strip()


def fed(where: Path, data: str | bytes, *words: str) -> str:
    """Stock git with something on its standard input."""
    given = data.encode() if isinstance(data, str) else data
    command = ["git", "-c", "user.name=Tess", "-c", "user.email=tess@example.org", *words]
    return subprocess.run(command, cwd=where, input=given, capture_output=True, check=True).stdout.decode().strip()


def imported(where: Path, ref: str, files: dict[bytes, bytes], parent: str | None = None) -> None:
    """A commit of files under any paths, on top of a parent."""
    lines = [b"commit " + ref.encode(), b"committer Tess <tess@example.org> 1790000000 +0000", b"data 5", b"made\n"]
    lines += [b"from " + parent.encode()] if parent else []
    for path, data in files.items():
        lines += [b"M 100644 inline " + path, b"data %d" % len(data), data]
    fed(where, b"\n".join(lines) + b"\n", "fast-import", "--quiet", "--force")


def test_a_merge_conflict_on_a_path_that_is_no_text_is_an_answer(space: clia.Space, repo: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.spawn_from("scout", BRIEFING, "lead")
    for name, data in (("lead", b"1\n"), ("scout", b"2\n")):
        ref = f"refs/heads/agents/{name}"
        imported(repo, ref, {b"caf\xe9": data}, rev(repo, ref))
    found = space.merge("lead", "scout")
    assert isinstance(found, clia.Conflicts)
    assert [(each.path, each.ours, each.theirs) for each in found.paths] == [("caf\udce9", b"1\n", b"2\n")]
    assert space.last_refused("lead", "scout") == (found.ours, found.theirs)
