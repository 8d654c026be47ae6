"""Notes with traces, as git writes and reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.plain_git import fast_import

if TYPE_CHECKING:
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_note_is_read_under_every_fan_out_of_git(scout: clia.Space, repo: Path, depth: int) -> None:
    commit = scout.commit("scout", "finding", {"a": b"1"})
    note = scout.types.write(clia.ConsoleTrace(commit, "scout", ({"text": "x", "kind": "console", "at": "now"},)))
    fast_import(repo, NOTES, {fan_out_path(commit, depth): git("cat-file", "blob", note, cwd=repo).encode()})
    assert scout.traces.id_of(commit) == note
    assert [trace.cid for trace in scout.traces.of_agent("scout")] == [note]
    assert scout.verify().traces == 1


def test_attaching_a_trace_leaves_one_path_for_its_note(scout: clia.Space, repo: Path) -> None:
    commit = scout.commit("scout", "finding", {"a": b"1"})
    fast_import(repo, NOTES, {fan_out_path(commit, depth): b"%d" % depth for depth in (0, 2)})
    cid = scout.traces.attach(commit, [{"text": "x"}])
    rows = [line.split("\t") for line in git("ls-tree", "-r", NOTES, cwd=repo).splitlines()]
    assert [(entry.split()[2], path.replace("/", "")) for entry, path in rows] == [(cid, commit)]
    assert git("notes", "--ref=clia/trace/scout", "list", commit, cwd=repo).strip() == cid


def fan_out_path(commit: str, depth: int) -> bytes:
    return "/".join([*(commit[2 * level : 2 * level + 2] for level in range(depth)), commit[2 * depth :]]).encode()
