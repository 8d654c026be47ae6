"""Purging a text from traces, notes and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.plain_git import all_recorded_bytes
from support.spaces import commit_with_trace, refused, trace_texts

if TYPE_CHECKING:
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


@pytest.mark.parametrize("text", ["console", "text", "entries", "scout", "tool-call"])
def test_a_purge_changes_only_the_text_of_entries(scout: clia.Space, text: str) -> None:
    entry = {"kind": "tool-call", "text": f"say {text}!", "data": {"note": f"{text}?"}}
    commit = scout.commit("scout", "finding", {"a": b"1"})
    scout.attach_trace(commit, [entry, {"text": "other"}])
    scout.trace("scout", "console", f"pending {text}")
    before = scout.trace_for(commit)
    report = scout.trace_purge("scout", text)
    after = scout.trace_for(commit)
    assert before is not None
    assert after is not None
    assert (report.traces, report.pending) == (1, 1)
    assert (after.commit, after.agent) == (commit, "scout")
    purged = {**before.entries[0], "text": "say [purged]!", "data": {"note": "[purged]?"}}
    assert after.entries == (purged, before.entries[1])
    assert [(pending["kind"], pending["text"]) for pending in scout.trace_pending("scout")] == [("console", "pending [purged]")]
    assert scout.verify().clean


def test_a_purge_that_failed_to_delete_objects_is_finished_by_the_next(
    scout: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = commit_with_trace(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    porcelain = components(scout).porcelain

    def fails(cids: object, *_: object) -> list[str]:
        raise errors.GitError(f"no room to drop {cids}")

    with monkeypatch.context() as patch:
        patch.setattr(porcelain, "drop_objects", fails)
        refused("git-error", lambda: scout.trace_purge("scout", "swordfish"))
    assert b"swordfish" in all_recorded_bytes(repo)
    scout.trace_purge("scout", "swordfish")
    assert b"swordfish" not in all_recorded_bytes(repo)
    assert git("for-each-ref", "refs/clia-tracking", cwd=repo) == ""
    assert not (repo / ".git/logs" / NOTES).exists()
    assert trace_texts(scout, commit) == ["the pass phrase is [purged]"]
    assert scout.verify().clean


def test_a_purge_deletes_the_tracking_refs_that_hold_the_text(scout: clia.Space, repo: Path) -> None:
    commit_with_trace(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    git("update-ref", "refs/clia-tracking/hub/notes/trace/other", "agents/scout", cwd=repo)
    scout.trace_purge("scout", "swordfish")
    assert git("for-each-ref", "--format=%(refname)", "refs/clia-tracking", cwd=repo).split() == [
        "refs/clia-tracking/hub/notes/trace/other"
    ]
    assert b"swordfish" not in all_recorded_bytes(repo)


def test_a_note_that_git_appended_to_is_purged_too(scout: clia.Space, repo: Path) -> None:
    commit = commit_with_trace(scout, 'the pass phrase is "sword\\fish"', a=b"1")
    git("notes", "--ref=clia/trace/scout", "append", "-m", 'still "sword\\fish"', commit, cwd=repo)
    assert scout.trace_purge("scout", "sword\\fish").traces == 2
    content = all_recorded_bytes(repo)
    assert b"sword\\fish" not in content
    assert b"sword\\\\fish" not in content
    assert git("notes", "--ref=clia/trace/scout", "show", commit, cwd=repo).count("[purged]") == 2


def test_a_purge_lists_the_commits_whose_message_has_the_text(scout: clia.Space) -> None:
    named = scout.commit("scout", "finding", {"a": b"1"}, message="it is swordfish")
    unnamed = scout.commit("scout", "finding", {"a": b"2"}, message="nothing")
    remaining = scout.trace_purge("scout", "swordfish").remaining
    assert any(named in line for line in remaining)
    assert not any(unnamed in line for line in remaining)
