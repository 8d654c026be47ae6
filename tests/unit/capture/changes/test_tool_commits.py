"""Commits that a captured tool makes on a person's branch."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.testing import Crash, crash_at
from support import git
from support.captured import new_space, run_ingest
from support.plain_git import rev
from support.space_driver import settings
from support.tool_turns import (
    adopted_turns,
    agent_of,
    agents_lines,
    bash,
    begin_call,
    commit_all,
    commit_changes,
    end_call,
    prompt,
    send,
    start,
    state_of,
    stop,
    subjects,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_commit_that_the_tool_makes_is_adopted_and_the_persons_branch_stays(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    (root / "b.txt").write_text("1\n")
    original = rev(root, "main")
    stop(root)
    assert adopted_turns(space) == [("Add a", original), ("Do it.", None)]
    (agent,) = space.agents()
    adopted, turn = reversed(space.log(agent, own=True)[:2])
    assert sorted(space.files(adopted.cid)) == ["README.md", "a.txt"]
    assert sorted(space.files(turn.cid)) == ["README.md", "a.txt", "b.txt"]
    assert rev(root, "HEAD") == original
    assert git("notes", "--ref=clia/own", "show", original, cwd=root) == f"{agent} {adopted.cid}\n"
    assert space.verify().findings == ()


def test_files_that_were_changed_before_the_session_are_not_part_of_an_adopted_commit(root: Path, space: clia.Space) -> None:
    (root / "README.md").write_text("a person's\n")
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("add", "a.txt"), ("commit", "-qm", "Add a"))
    stop(root)
    (agent,) = space.agents()
    adopted = next(commit for commit in space.log(agent, own=True) if commit.own)
    assert {file.path for file in space.changed(adopted.cid)} == {"a.txt"}
    assert space.files(adopted.cid)["README.md"] == b"a person's\n"


def test_commits_of_a_person_during_the_session_are_not_adopted(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "tool.txt").write_text("1\n")
    bash(root)
    (root / "person.txt").write_text("1\n")
    git("add", "person.txt", cwd=root)
    git("commit", "-qm", "A person's", cwd=root)
    bash(root)
    stop(root)
    assert adopted_turns(space) == [("Do it.", None)]


def test_a_file_of_the_tool_that_a_person_commits_during_the_turn_stays_the_tools(root: Path, space: clia.Space) -> None:
    start(root)
    write = {"tool_name": "Write", "tool_use_id": "w1"}
    send(root, "PreToolUse", None, **write, tool_input={"file_path": str(root / "a.txt"), "content": "tool\n"})
    (root / "a.txt").write_text("tool\n")
    send(root, "PostToolUse", None, **write, tool_response="")
    (root / "person.txt").write_text("person\n")
    commit_changes(root, "Both")
    bash(root)
    stop(root)
    assert subjects(space) == ["Do it."]
    assert agents_lines(space, "a.txt") == ["tool"]
    assert agents_lines(space, "person.txt") == []
    assert agents_lines(space, "a.txt", "main") == ["tool"]


def test_commits_that_the_tool_fetches_are_not_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    git("clone", "-q", str(root), str(tmp_path / "other"), cwd=tmp_path)
    (tmp_path / "other" / "far.txt").write_text("1\n")
    commit_changes(tmp_path / "other", "From afar")
    start(root)
    bash(root, ("pull", "-q", "--ff-only", str(tmp_path / "other"), "main"))
    stop(root)
    assert all(original is None for _, original in adopted_turns(space))


def test_an_amended_commit_is_adopted_once_with_its_new_content_and_the_old_one_is_kept(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    old = rev(root, "HEAD")
    (root / "a.txt").write_text("2\n")
    bash(root, ("commit", "-qa", "--amend", "-m", "Add a, better"))
    stop(root)
    assert subjects(space) == ["Add a, better", "Do it."]
    agent = agent_of(space)
    assert space.files(agent)["a.txt"] == b"2\n"
    assert space.show(agent).kept == (old,)
    assert old in git("rev-list", f"refs/clia/own/{agent}", cwd=root).split()


def test_amending_a_commit_of_an_earlier_turn_records_only_what_is_new(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    stop(root)
    prompt(root)
    (root / "a.txt").write_text("1\n2\n")
    bash(root, ("commit", "-qa", "--amend", "-m", "Add a, better"))
    stop(root)
    assert subjects(space) == ["Add a", "Do it.", "Add a, better", "Do it."]
    first, _, amended, _ = reversed(space.log(agent_of(space), own=True)[:4])
    assert [line.commit for line in space.blame(agent_of(space), "a.txt")] == [first.cid, amended.cid]


def test_amending_a_persons_commit_twice_without_another_change_keeps_the_lines(root: Path, space: clia.Space) -> None:
    """The same second and content: git creates the same commit again."""
    start(root)
    (root / "README.md").write_text("people\ntool\n")
    amend = ("-c", "core.editor=true", "commit", "-qa", "--amend", "--date=@1790000000 +0000")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_COMMITTER_DATE", "@1790000000 +0000")
        bash(root, amend, amend)
    stop(root)
    assert agents_lines(space, "README.md") == ["tool"]


def test_amending_a_persons_commit_leaves_the_person_the_old_lines(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "README.md").write_text("people\ntool\n")
    bash(root, ("commit", "-qa", "--amend", "-m", "first, better"))
    stop(root)
    assert subjects(space) == ["first, better", "Do it."]
    assert agents_lines(space, "README.md") == ["tool"]


def test_a_commit_that_was_reset_is_kept_and_not_adopted(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    old = rev(root, "HEAD")
    bash(root, ("reset", "-q", "--hard", "HEAD~1"))
    stop(root)
    assert subjects(space) == ["Do it."]
    assert space.show(agent_of(space)).kept == (old,)
    assert "a.txt" not in space.files(agent_of(space))


def test_a_commit_after_a_reset_over_recorded_commits_adds_what_the_tools_adds(root: Path, space: clia.Space) -> None:
    start(root)
    for name in ("a.txt", "b.txt"):
        (root / name).write_text("1\n")
        bash(root, *commit_all(f"Add {name}"))
    stop(root)
    prompt(root)
    bash(root, ("reset", "-q", "--hard", "HEAD~1"))
    (root / "c.txt").write_text("1\n")
    bash(root, *commit_all("Add c.txt"))
    stop(root)
    (adopted,) = [commit for commit in space.log(agent_of(space), own=True) if commit.subject == "Add c.txt"]
    assert space.diff(adopted.cid) == git("diff", "--full-index", "HEAD~1", "HEAD", cwd=root)
    assert space.files(agent_of(space)).keys() == {"README.md", "a.txt", "c.txt"}


def test_a_commit_on_another_branch_is_adopted_and_the_files_stay_those_of_the_directory(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "README.md").write_text("people, changed\n")
    bash(root, ("switch", "-qc", "topic"), *commit_all("On a topic"), ("switch", "-q", "main"))
    before = state_of(root)
    stop(root)
    assert state_of(root) == before
    assert adopted_turns(space) == [("On a topic", rev(root, "topic")), ("Do it.", None)]
    assert space.files(agent_of(space)) == {"README.md": b"people\n"}
    assert agents_lines(space, "README.md") == []
    assert space.verify().findings == ()


def test_a_branch_that_is_merged_in_a_later_turn_is_not_recorded_again(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("switch", "-qc", "topic"), *commit_all("On a topic"), ("switch", "-q", "main"))
    stop(root)
    prompt(root)
    bash(root, ("merge", "-q", "topic"))
    stop(root)
    assert subjects(space) == ["On a topic", "Do it.", "Do it."]
    adopted = next(commit for commit in space.log(agent_of(space), own=True) if commit.own)
    assert [line.commit for line in space.blame(agent_of(space), "a.txt")] == [adopted.cid]


def test_commits_in_a_worktree_that_the_tool_adds_are_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    start(root)
    bash(root, ("worktree", "add", "-q", "-b", "topic", str(tmp_path / "other")))
    (tmp_path / "other" / "a.txt").write_text("1\n")
    bash(root, ("-C", str(tmp_path / "other"), "add", "-A"), ("-C", str(tmp_path / "other"), "commit", "-qm", "Elsewhere"))
    stop(root)
    assert subjects(space) == ["Elsewhere", "Do it."]
    assert "a.txt" not in space.files(agent_of(space))


def test_commits_of_scripts_in_a_worktree_that_the_tool_created_are_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    start(root)
    call = begin_call(root, "make setup")
    git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "other"), cwd=root)
    end_call(root, call)
    call = begin_call(root, "make release")
    (tmp_path / "other" / "a.txt").write_text("1\n")
    commit_changes(tmp_path / "other", "Elsewhere")
    end_call(root, call)
    stop(root)
    assert subjects(space) == ["Elsewhere", "Do it."]


@pytest.mark.parametrize("merged", [False, True])
def test_commits_in_a_worktree_that_the_tool_removes_again_are_adopted(
    root: Path, space: clia.Space, tmp_path: Path, merged: bool
) -> None:
    start(root)
    place = str(tmp_path / "other")
    call = begin_call(root, f"git worktree add -b topic {place} && …; git worktree remove {place}")
    git("worktree", "add", "-q", "-b", "topic", place, cwd=root)
    (tmp_path / "other" / "a.txt").write_text("1\n")
    commit_changes(tmp_path / "other", "Elsewhere")
    if merged:
        git("merge", "-q", "--ff-only", "topic", cwd=root)
    git("worktree", "remove", place, cwd=root)
    end_call(root, call)
    stop(root)
    assert adopted_turns(space) == [("Elsewhere", rev(root, "topic")), ("Do it.", None)]


def test_commits_after_the_tool_changed_to_another_worktree_are_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git("worktree", "add", "-q", "-b", "topic", str(other), cwd=root)
    (other / "p.txt").write_text("1\n")
    commit_changes(other, "A person's")
    start(root)
    bash(root, ("status",), cwd=other)
    (other / "a.txt").write_text("1\n")
    bash(root, *commit_all("Elsewhere"), cwd=other)
    stop(root)
    assert subjects(space) == ["Elsewhere", "Do it."]
    assert list(space.files(agent_of(space))) == ["README.md"]


def test_a_persons_commit_in_another_worktree_during_a_call_is_not_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git("worktree", "add", "-q", "-b", "topic", str(other), cwd=root)
    start(root)
    call = begin_call(root, "git status && make test")
    (other / "p.txt").write_text("1\n")
    commit_changes(other, "A person's")
    end_call(root, call)
    stop(root)
    assert subjects(space) == ["Do it."]


def test_a_stash_of_the_tool_is_kept_and_stays_in_the_list(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "README.md").write_text("stashed\n")
    bash(root, ("stash", "-q"))
    before = state_of(root)
    stop(root)
    assert state_of(root) == before
    assert space.show(agent_of(space)).kept == (rev(root, "refs/stash"),)


def test_a_cherry_pick_of_the_tools_own_commit_is_recorded_once(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("switch", "-qc", "topic"), *commit_all("Add a"), ("switch", "-q", "main"))
    (root / "b.txt").write_text("1\n")
    bash(root, *commit_all("Add b"), ("cherry-pick", "topic"))
    stop(root)
    assert sorted(subjects(space)) == ["Add a", "Add b", "Do it."]
    assert agents_lines(space, "a.txt") == ["1"]


@pytest.mark.parametrize("in_one_turn", [True, False])
def test_commits_that_the_tool_rebases_are_recorded_once(root: Path, space: clia.Space, in_one_turn: bool) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("switch", "-qc", "topic"), *commit_all("Add a"))
    (root / "b.txt").write_text("1\n")
    bash(root, *commit_all("Add b"))
    if not in_one_turn:
        stop(root)
        prompt(root)
    (root / "c.txt").write_text("1\n")
    bash(root, ("switch", "-q", "main"), *commit_all("Add c"), ("rebase", "-q", "main", "topic"))
    stop(root)
    assert sorted(subject for subject in subjects(space) if subject != "Do it.") == ["Add a", "Add b", "Add c"]
    assert [agents_lines(space, path) for path in ("a.txt", "b.txt", "c.txt")] == [["1"]] * 3
    assert [agents_lines(space, path, "topic") for path in ("a.txt", "b.txt", "c.txt")] == [["1"]] * 3


@pytest.mark.parametrize("in_one_turn", [True, False])
@pytest.mark.parametrize("action", ["fixup", "squash", "reword", "edit"])
def test_commits_that_the_tool_combines_or_renames_keep_its_lines(
    root: Path, space: clia.Space, in_one_turn: bool, action: str
) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    if not in_one_turn:
        stop(root)
        prompt(root)
    (root / "a.txt").write_text("1\n2\n")
    bash(root, *commit_all("Add to a"))
    edits = {"sequence.editor": f"sed -i '2s/pick/{action}/'", "core.editor": "sed -i '1s/^/Better: /'"}
    options = [word for key, value in edits.items() for word in ("-c", f"{key}={value}")]
    bash(root, (*options, "rebase", "-q", "-i", "HEAD~2"))
    if action == "edit":
        (root / "a.txt").write_text("1\n2\n3\n")
        bash(root, ("commit", "-qa", "--amend", "-m", "Add more to a"), ("rebase", "--continue"))
    stop(root)
    lines = ["1", "2", "3"] if action == "edit" else ["1", "2"]
    assert agents_lines(space, "a.txt") == lines
    assert agents_lines(space, "a.txt", "main") == lines
    assert rev(root, "main") in [commit.own for commit in space.log(agent_of(space), own=True)]


def test_commits_on_a_detached_head_and_a_deleted_branch_are_not_lost(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("switch", "-qc", "gone"), *commit_all("Gone"))
    gone = rev(root, "HEAD")
    bash(root, ("switch", "-q", "main"), ("branch", "-qD", "gone"), ("switch", "-q", "--detach"))
    (root / "b.txt").write_text("1\n")
    bash(root, *commit_all("Detached"))
    stop(root)
    assert subjects(space) == ["Detached", "Do it."]
    assert space.show(agent_of(space)).kept == (gone,)


def test_the_first_commit_of_a_repository_is_adopted(tmp_path: Path) -> None:
    root = new_space(tmp_path / "unborn", commit=False)
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("First"))
    stop(root)
    with clia.open(root, settings=settings()) as space:
        assert subjects(space) == ["First", "Do it."]
        assert agents_lines(space, "a.txt") == ["1"]


@pytest.mark.parametrize("has_remote", [False, True])
def test_commits_are_found_without_reflogs(root: Path, space: clia.Space, tmp_path: Path, has_remote: bool) -> None:
    git("config", "core.logAllRefUpdates", "false", cwd=root)
    shutil.rmtree(root / ".git" / "logs")
    other = tmp_path / "far"
    git("clone", "-q", str(root), str(other), cwd=tmp_path)
    (other / "far.txt").write_text("far\n")
    commit_changes(other, "From afar")
    if has_remote:
        git("remote", "add", "origin", str(other), cwd=root)
    start(root)
    bash(root, ("pull", "-q", "--ff-only", "origin" if has_remote else str(other), "main"))
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    stop(root)
    assert subjects(space) == ["Add a", "Do it."]
    assert agents_lines(space, "far.txt") == []


def test_a_session_in_a_linked_worktree_has_its_commits_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    linked = tmp_path.resolve() / "linked"
    git("worktree", "add", "-q", "-b", "topic", str(linked), cwd=root)
    start(linked)
    (linked / "a.txt").write_text("1\n")
    bash(linked, *commit_all("In the linked one"))
    (root / "b.txt").write_text("1\n")
    commit_changes(root, "A person's in the main one")
    stop(linked)
    assert subjects(space) == ["In the linked one", "Do it."]


def test_a_commit_of_a_sub_agent_is_adopted_by_it_alone(root: Path, space: clia.Space) -> None:
    start(root)
    task: dict[str, Any] = {"tool_name": "Task", "tool_use_id": "task"}
    send(root, "PreToolUse", **task, tool_input={"prompt": "git commit"})
    send(root, "SubagentStart", agent_id="sub1", agent_type="worker")
    run_ingest(root)
    send(root, "PreToolUse", agent_id="sub1", tool_name="Bash", tool_use_id="s1", tool_input={"command": "git commit"})
    (root / "a.txt").write_text("1\n")
    commit_changes(root, "The sub-agent's")
    send(root, "PostToolUse", agent_id="sub1", tool_name="Bash", tool_use_id="s1", tool_response="")
    send(root, "SubagentStop", agent_id="sub1", last_assistant_message="Done.")
    send(root, "PostToolUse", **task, tool_response="")
    stop(root)
    adopted = [commit.agent for name in space.agents() for commit in space.log(name, own=True) if commit.own]
    assert len(adopted) == 1
    assert "worker" in str(adopted[0])


@pytest.mark.parametrize("step", ["event-recorded", "turn-recorded", "entries-recorded", "finished"])
def test_an_interrupted_ingest_adopts_each_commit_once(root: Path, space: clia.Space, step: str) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    send(root, "Stop", last_assistant_message="Done.")
    with pytest.raises(Crash):
        run_ingest(root, reached=crash_at(step))
    run_ingest(root)
    run_ingest(root)
    assert subjects(space) == ["Add a", "Do it."]


@pytest.mark.parametrize("step", ["objects-written", "committed", "turn-recorded"])
def test_an_interrupted_ingest_tells_what_is_kept(root: Path, space: clia.Space, step: str) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    old = rev(root, "HEAD")
    bash(root, ("commit", "-q", "--amend", "-m", "Add a, better"))
    (root / "README.md").write_text("stashed\n")
    bash(root, ("stash", "-q"))
    send(root, "Stop", last_assistant_message="Done.")
    with pytest.raises(Crash):
        run_ingest(root, reached=crash_at(step))
    run_ingest(root)
    run_ingest(root)
    assert subjects(space) == ["Add a, better", "Do it."]
    assert set(space.show(agent_of(space)).kept) == {old, rev(root, "refs/stash")}


def test_commits_are_adopted_if_the_session_has_gone_on_before_the_ingest(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("switch", "-qc", "topic"), *commit_all("On a topic"), ("switch", "-q", "main"))
    (root / "b.txt").write_text("1\n")
    bash(root, *commit_all("On main"))
    send(root, "Stop", last_assistant_message="Done.")
    send(root, "UserPromptSubmit", prompt="More.", prompt_id="more")
    call = begin_call(root)
    run_ingest(root)
    assert sorted(subjects(space)) == ["Do it.", "On a topic", "On main"]
    (root / "c.txt").write_text("1\n")
    end_call(root, call)
    stop(root)
    assert sorted(space.files(agent_of(space))) == ["README.md", "b.txt", "c.txt"]
    assert [agents_lines(space, path) for path in ("b.txt", "c.txt")] == [["1"], ["1"]]
    assert agents_lines(space, "a.txt", "topic") == ["1"]
