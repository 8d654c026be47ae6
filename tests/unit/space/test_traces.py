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


NOTES = "refs/notes/clia/trace/scout"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as made:
        yield made


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    space.spawn("scout", BRIEFING)
    return space


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


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_note_is_read_under_every_fan_out_that_git_uses(scout: clia.Space, repo: Path, depth: int) -> None:
    made = scout.commit("scout", "finding", {"a": b"1"})
    note = scout.write(clia.ConsoleTrace(made, "scout", ({"text": "x", "kind": "console", "at": "now"},)))
    imported(repo, NOTES, {fanned(made, depth): git("cat-file", "blob", note, cwd=repo).encode()})
    assert scout.trace_cid_for(made) == note
    assert [each.cid for each in scout.session_traces("scout")] == [note]
    assert scout.verify().traces == 1


def test_binding_leaves_one_spelling_of_a_note(scout: clia.Space, repo: Path) -> None:
    made = scout.commit("scout", "finding", {"a": b"1"})
    imported(repo, NOTES, {fanned(made, depth): b"%d" % depth for depth in (0, 2)})
    cid = scout.attach_trace(made, [{"text": "x"}])
    listed = [line.split("\t") for line in git("ls-tree", "-r", NOTES, cwd=repo).splitlines()]
    assert [(facts.split()[2], path.replace("/", "")) for facts, path in listed] == [(cid, made)]
    assert git("notes", "--ref=clia/trace/scout", "list", made, cwd=repo).strip() == cid


def fanned(commit: str, depth: int) -> bytes:
    return "/".join([*(commit[2 * each : 2 * each + 2] for each in range(depth)), commit[2 * depth :]]).encode()
