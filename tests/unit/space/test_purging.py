from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.spaces import BRIEFING, refused, settings, texts

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


def bound(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.trace_for(commit)
    assert trace is not None
    return texts(trace.entries)


def traced(space: clia.Space, text: str, **changes: bytes) -> str:
    space.trace("scout", "console", text)
    return space.commit_with_trace("scout", "finding", changes=changes)


def recorded(where: Path) -> bytes:
    """Every byte that a space has written, unpacked: all objects, logs and the store's files."""
    listed = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered", cwd=where)
    ids = [line.split()[0] for line in listed.splitlines() if line.endswith(("blob", "commit"))]
    batch = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=where, input="\n".join(ids).encode(), capture_output=True, check=True
    ).stdout
    return batch + b"".join(file.read_bytes() for file in sorted((where / ".git/clia").glob("space.db*")))


@pytest.mark.parametrize("text", ["console", "text", "entries", "scout", "tool-call"])
def test_a_purge_changes_only_what_was_said(scout: clia.Space, text: str) -> None:
    entry = {"kind": "tool-call", "text": f"say {text}!", "data": {"note": f"{text}?"}}
    made = scout.commit("scout", "finding", {"a": b"1"})
    scout.attach_trace(made, [entry, {"text": "other"}])
    scout.trace("scout", "console", f"pending {text}")
    before = scout.trace_for(made)
    done = scout.trace_purge("scout", text)
    after = scout.trace_for(made)
    assert before is not None
    assert after is not None
    assert (done.traces, done.pending) == (1, 1)
    assert (after.commit, after.agent) == (made, "scout")
    purged = {**before.entries[0], "text": "say [purged]!", "data": {"note": "[purged]?"}}
    assert after.entries == (purged, before.entries[1])
    assert [(each["kind"], each["text"]) for each in scout.trace_pending("scout")] == [("console", "pending [purged]")]
    assert scout.verify().clean


def test_a_purge_that_failed_to_sweep_is_finished_by_the_next(
    scout: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = traced(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    bench = components(scout).workbench

    def fails(cids: object) -> list[str]:
        raise errors.GitError(f"no room to drop {cids}")

    with monkeypatch.context() as patch:
        patch.setattr(bench, "drop_objects", fails)
        refused("git-error", lambda: scout.trace_purge("scout", "swordfish"))
    assert b"swordfish" in recorded(repo)
    scout.trace_purge("scout", "swordfish")
    assert b"swordfish" not in recorded(repo)
    assert git("for-each-ref", "refs/clia-tracking", cwd=repo) == ""
    assert not (repo / ".git/logs" / NOTES).exists()
    assert bound(scout, made) == ["the pass phrase is [purged]"]
    assert scout.verify().clean


def test_tracking_refs_go_with_what_is_purged(scout: clia.Space, repo: Path) -> None:
    traced(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    git("update-ref", "refs/clia-tracking/hub/notes/trace/other", "agents/scout", cwd=repo)
    scout.trace_purge("scout", "swordfish")
    assert git("for-each-ref", "--format=%(refname)", "refs/clia-tracking", cwd=repo).split() == [
        "refs/clia-tracking/hub/notes/trace/other"
    ]
    assert b"swordfish" not in recorded(repo)


def test_a_note_that_git_has_added_to_is_purged_too(scout: clia.Space, repo: Path) -> None:
    made = traced(scout, 'the pass phrase is "sword\\fish"', a=b"1")
    git("notes", "--ref=clia/trace/scout", "append", "-m", 'still "sword\\fish"', made, cwd=repo)
    assert scout.trace_purge("scout", "sword\\fish").traces == 2
    held = recorded(repo)
    assert b"sword\\fish" not in held
    assert b"sword\\\\fish" not in held
    assert git("notes", "--ref=clia/trace/scout", "show", made, cwd=repo).count("[purged]") == 2


def test_a_purge_names_the_commits_whose_message_holds_the_text(scout: clia.Space) -> None:
    said = scout.commit("scout", "finding", {"a": b"1"}, message="it is swordfish")
    quiet = scout.commit("scout", "finding", {"a": b"2"}, message="nothing")
    remaining = scout.trace_purge("scout", "swordfish").remaining
    assert any(said in line for line in remaining)
    assert not any(quiet in line for line in remaining)
