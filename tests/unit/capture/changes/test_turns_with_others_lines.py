"""Turns in which the tool brings lines of other people into the directory: they stay theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support import git
from support.plain_git import rev
from support.tool_turns import (
    agent_of,
    agents_lines,
    bash,
    commit_all,
    commit_changes,
    failing_call,
    people_lines,
    prompt,
    start,
    state_of,
    stop,
    subjects,
)

if TYPE_CHECKING:
    from pathlib import Path

    import clia


@pytest.fixture
def far(root: Path, tmp_path: Path) -> Path:
    """A colleague's clone, which is the remote of the repository."""
    (root / "list.txt").write_text("".join(f"{number}\n" for number in range(12)))
    commit_changes(root, "A list")
    far = tmp_path.resolve() / "far"
    git("clone", "-q", str(root), str(far), cwd=tmp_path)
    git("remote", "add", "origin", str(far), cwd=root)
    git("fetch", "-q", "origin", cwd=root)
    git("branch", "-q", "--set-upstream-to=origin/main", "main", cwd=root)
    return far


def edit(place: Path, *, top: str = "", bottom: str = "", path: str = "list.txt") -> None:
    """Add a line at the top or the bottom of a file."""
    file = place / path
    text = file.read_text() if file.exists() else ""
    file.write_text((f"{top}\n" if top else "") + text + (f"{bottom}\n" if bottom else ""))


def colleague_commits(far: Path, message: str = "A colleague's") -> None:
    git("add", "-A", cwd=far)
    git("commit", "-qm", message, "--author=Colleague <colleague@example.com>", cwd=far)


def by_agents(space: clia.Space, revision: str) -> int:
    return space.history.authorship(revision).by_agents


def test_pulled_lines_stay_the_colleagues_beside_the_tools_in_one_file(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    edit(far, bottom="colleague", path="far.txt")
    colleague_commits(far)
    start(root)
    bash(root, ("pull", "-q", "--ff-only"))
    edit(root, bottom="tool")
    before = state_of(root)
    stop(root)
    assert state_of(root) == before
    assert agents_lines(space, "list.txt") == ["tool"]
    assert [line.commit for line in space.blame(agent_of(space), "far.txt")] == [rev(far, "main")]
    assert agents_lines(space, "far.txt", "main") == []
    assert subjects(space) == ["Do it."]
    assert space.verify().findings == ()


def test_pulled_lines_stay_the_colleagues_beside_those_that_the_tool_commits(root: Path, far: Path, space: clia.Space) -> None:
    edit(root, top="person")
    edit(far, top="colleague")
    colleague_commits(far)
    start(root)
    bash(root, ("stash", "-q"), ("pull", "-q", "--ff-only"))
    edit(root, top="tool")
    bash(root, *commit_all("The tool's"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert agents_lines(space, "list.txt", "main") == ["tool"]


@pytest.mark.parametrize("how", ["--no-rebase", "--rebase"])
def test_pulled_lines_stay_the_colleagues_if_the_tool_has_commits_of_its_own(
    root: Path, far: Path, space: clia.Space, how: str
) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    start(root)
    edit(root, bottom="tool")
    bash(root, *commit_all("The tool's"), ("pull", "-q", "--no-edit", how))
    before = state_of(root)
    stop(root)
    assert state_of(root) == before
    assert agents_lines(space, "list.txt") == ["tool"]
    assert agents_lines(space, "list.txt", "main") == ["tool"]
    assert by_agents(space, "main") == 1
    assert sum("The tool's" in subject for subject in subjects(space)) == 1


def test_a_merged_branch_stays_its_authors(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    start(root)
    edit(root, bottom="tool")
    bash(root, *commit_all("The tool's"), ("fetch", "-q"), ("merge", "-q", "--no-edit", "origin/main"))
    edit(root, bottom="more")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool", "more"]
    assert agents_lines(space, "list.txt", "main") == ["tool"]
    (merge,) = [commit for commit in space.log(agent_of(space), own=True) if commit.subject.startswith("Merge")]
    assert rev(far, "main") in merge.parents
    assert space.blame(agent_of(space), "list.txt")[0].commit == rev(far, "main")


def test_lines_that_the_tool_writes_to_resolve_a_merge_are_the_tools(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    edit(root, top="person")
    commit_changes(root, "A person's")
    start(root)
    failing_call(root, "pull", "-q", "--no-rebase")
    numbers = "".join(f"{number}\n" for number in range(12))
    (root / "list.txt").write_text(f"person\nresolved\ncolleague\n{numbers}")
    bash(root, *commit_all("Merge both"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["resolved"]
    assert agents_lines(space, "list.txt", "main") == ["resolved"]
    assert by_agents(space, "main") == 1


def test_a_merge_that_the_tool_leaves_unfinished_gives_it_only_its_own_lines(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    edit(far, bottom="colleague", path="far.txt")
    colleague_commits(far)
    edit(root, top="person")
    commit_changes(root, "A person's")
    start(root)
    failing_call(root, "pull", "-q", "--no-rebase")
    stop(root)
    assert "colleague" not in agents_lines(space, "list.txt")
    assert agents_lines(space, "far.txt") == []


def test_another_branch_that_the_tool_checks_out_stays_its_authors(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    start(root)
    bash(root, ("switch", "-q", "--detach", "origin/main"))
    edit(root, bottom="tool")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    prompt(root)
    git("stash", "-q", cwd=root)
    bash(root, ("switch", "-q", "main"))
    edit(root, top="second")
    stop(root)
    assert agents_lines(space, "list.txt") == ["second"]


def test_a_cherry_picked_commit_stays_its_authors(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    start(root)
    bash(root, ("fetch", "-q"), ("cherry-pick", "origin/main"))
    edit(root, bottom="tool")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert agents_lines(space, "list.txt", "main") == []
    assert subjects(space) == ["Do it."]


@pytest.mark.parametrize("how", ["cherry-pick", "rebase"])
def test_lines_that_the_tool_writes_to_resolve_a_picked_commit_are_the_tools(
    root: Path, far: Path, space: clia.Space, how: str
) -> None:
    edit(far, top="colleague")
    edit(far, bottom="colleague", path="far.txt")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    edit(root, top="person")
    commit_changes(root, "A person's")
    start(root)
    commands = {"cherry-pick": ("cherry-pick", "origin/main"), "rebase": ("rebase", "main", "origin/main")}
    failing_call(root, *commands[how])
    numbers = "".join(f"{number}\n" for number in range(12))
    (root / "list.txt").write_text(f"person\nresolved\ncolleague\n{numbers}")
    bash(root, ("add", "-A"), ("-c", "core.editor=true", how, "--continue"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["resolved"]
    assert agents_lines(space, "list.txt", rev(root, "HEAD")) == ["resolved"]
    assert agents_lines(space, "far.txt") == []


@pytest.mark.parametrize("words", [("pop",), ("apply",), ("pop", "stash@{1}"), ("apply", "1")])
def test_a_persons_stash_that_the_tool_applies_stays_the_persons(
    root: Path, far: Path, space: clia.Space, words: tuple[str, ...]
) -> None:
    if len(words) > 1:
        edit(root, top="person")
        edit(root, bottom="person", path="new.txt")
        git("stash", "-qu", cwd=root)
        edit(root, top="another")
        git("stash", "-q", cwd=root)
    else:
        edit(root, top="another")
        git("stash", "-q", cwd=root)
        edit(root, top="person")
        edit(root, bottom="person", path="new.txt")
        git("stash", "-qu", cwd=root)
    start(root)
    edit(root, bottom="tool", path="tool.txt")
    bash(root, ("stash", *words[:1], "-q", *words[1:]))
    edit(root, bottom="tool")
    before = state_of(root)
    stop(root)
    assert state_of(root) == before
    assert agents_lines(space, "list.txt") == ["tool"]
    assert people_lines(space, "list.txt")[0] == "person"
    assert agents_lines(space, "new.txt") == []
    assert agents_lines(space, "tool.txt") == ["tool"]


def test_a_persons_changes_that_the_tool_stashes_and_applies_in_a_later_turn_stay_the_persons(
    root: Path, far: Path, space: clia.Space
) -> None:
    """Also if the tool commits something else between."""
    edit(root, top="person")
    start(root)
    bash(root, ("stash", "-q"))
    edit(root, bottom="tool", path="tool.txt")
    bash(root, *commit_all("Mine"))
    stop(root)
    prompt(root)
    bash(root, ("stash", "pop", "-q"))
    edit(root, bottom="tool")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert people_lines(space, "list.txt")[0] == "person"
    assert space.verify().findings == ()


def test_lines_that_the_tool_commits_at_another_place_are_not_doubled(root: Path, far: Path, space: clia.Space) -> None:
    """A person had them, uncommitted, before lines that HEAD has."""
    edit(root, top="colleague")
    commit_changes(root, "A colleague's")
    edit(root, top="person")
    start(root)
    lines = (root / "list.txt").read_text().splitlines(keepends=True)
    (root / "list.txt").write_text("".join([lines[1], lines[0], *lines[2:]]))
    bash(root, *commit_all("Move it"))
    stop(root)
    adopted = next(commit for commit in space.log(agent_of(space), own=True) if commit.own is not None)
    assert space.files(adopted.cid)["list.txt"] == (root / "list.txt").read_bytes()


@pytest.mark.parametrize("in_one_turn", [True, False])
def test_lines_that_the_tool_stashes_and_applies_again_are_the_tools(
    root: Path, far: Path, space: clia.Space, in_one_turn: bool
) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    edit(root, bottom="person", path="mine.txt")
    start(root)
    edit(root, bottom="tool")
    edit(root, bottom="tool", path="mine.txt")
    git("add", "-A", cwd=root)
    bash(root, ("stash", "-q"))
    if not in_one_turn:
        stop(root)
        prompt(root)
    bash(root, ("pull", "-q", "--ff-only"))
    bash(root, ("stash", "pop", "-q"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert people_lines(space, "list.txt")[0] == "colleague"
    assert agents_lines(space, "mine.txt") == ["tool"]


@pytest.mark.parametrize(
    "words",
    [
        ("checkout", "origin/main", "--", "list.txt", "far.txt"),
        ("restore", "--source=origin/main", "list.txt", "far.txt"),
        ("merge", "-q", "--squash", "origin/main"),
        ("cherry-pick", "-n", "origin/main"),
    ],
)
@pytest.mark.parametrize("commits", [False, True])
def test_files_that_the_tool_takes_from_a_commit_stay_its_authors(
    root: Path, far: Path, space: clia.Space, words: tuple[str, ...], commits: bool
) -> None:
    edit(far, top="colleague")
    edit(far, bottom="colleague", path="far.txt")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    start(root)
    bash(root, words)
    edit(root, bottom="tool")
    if commits:
        bash(root, *commit_all("Take and add"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert agents_lines(space, "far.txt") == []
    assert agents_lines(space, "list.txt", "main") == (["tool"] if commits else [])


@pytest.mark.parametrize("commits", [False, True])
def test_a_file_that_the_tool_takes_from_a_commit_and_moves_stays_its_authors(
    root: Path, far: Path, space: clia.Space, commits: bool
) -> None:
    edit(far, top="colleague", bottom="a colleague's")
    edit(far, top="colleague 1", bottom="colleague 2", path="far.txt")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    start(root)
    bash(root, ("checkout", "origin/main", "--", "far.txt"))
    (root / "far.txt").rename(root / "moved.txt")
    edit(root, bottom="tool", path="moved.txt")
    if commits:
        bash(root, *commit_all("Take and move"))
    stop(root)
    assert agents_lines(space, "moved.txt") == ["tool"]
    if commits:
        assert agents_lines(space, "moved.txt", "main") == ["tool"]


def test_a_moved_file_into_which_the_tool_merges_a_colleagues_lines_gives_it_only_its_own(
    root: Path, far: Path, space: clia.Space
) -> None:
    edit(far, top="colleague 1", bottom="colleague 2")
    colleague_commits(far)
    start(root)
    git("mv", "list.txt", "moved.txt", cwd=root)
    (root / "moved.txt").write_text("tool 1\n" + (root / "moved.txt").read_text())
    bash(root, *commit_all("Move"))
    failing_call(root, "pull", "-q", "--no-rebase")
    numbers = "".join(f"{number}\n" for number in range(12))
    (root / "moved.txt").write_text(f"tool 1\ntool 2\ncolleague 1\n{numbers}colleague 2\n")
    bash(root, *commit_all("Merge both"))
    (root / "moved.txt").rename(root / "again.txt")
    stop(root)
    assert agents_lines(space, "again.txt") == ["tool 1", "tool 2"]
    assert agents_lines(space, "moved.txt", "main") == ["tool 1", "tool 2"]


def test_a_persons_stash_that_conflicts_when_the_tool_pops_it_stays_the_persons(root: Path, far: Path, space: clia.Space) -> None:
    edit(root, top="person")
    git("stash", "-q", cwd=root)
    edit(root, top="committed")
    git("commit", "-qam", "A person's", cwd=root)
    start(root)
    failing_call(root, "stash", "pop", "-q")
    numbers = "".join(f"{number}\n" for number in range(12))
    (root / "list.txt").write_text(f"person\ntool\ncommitted\n{numbers}")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("words", [("revert", "--no-edit", "HEAD"), ("checkout", "HEAD~1", "--", "list.txt")])
def test_deleted_lines_that_the_tool_restores_stay_their_authors(
    root: Path, far: Path, space: clia.Space, words: tuple[str, ...], commits: bool
) -> None:
    (root / "list.txt").write_text("0\n")
    for words_of_person in commit_all("Shorter"):
        git(*words_of_person, cwd=root)
    start(root)
    bash(root, words)
    edit(root, bottom="tool")
    if commits:
        bash(root, *commit_all("Restore and add"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert len(people_lines(space, "list.txt")) == 12


def test_a_deleted_file_that_the_tool_takes_from_another_branch_stays_its_authors(root: Path, far: Path, space: clia.Space) -> None:
    git("rm", "-q", "list.txt", cwd=root)
    git("commit", "-qm", "Remove the list", cwd=root)
    edit(far, bottom="colleague", path="far.txt")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    start(root)
    bash(root, ("checkout", "origin/main", "--", "list.txt"))
    stop(root)
    assert agents_lines(space, "list.txt") == []


def test_a_commit_that_the_tool_only_looks_at_changes_nothing(root: Path, far: Path, space: clia.Space) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    git("fetch", "-q", cwd=root)
    edit(root, top="person")
    git("stash", "-q", cwd=root)
    start(root)
    edit(root, bottom="tool")
    bash(root, ("diff", "origin/main"), ("show", "origin/main"), ("stash", "show", "-p"))
    stop(root)
    commits = space.log(agent_of(space))
    assert [commit.subject for commit in commits if commit.kind == "turn" or commit.agent is None][:2] == ["Do it.", "A list"]
    assert agents_lines(space, "list.txt") == ["tool"]


@pytest.mark.parametrize("commits", [False, True])
def test_files_that_stay_when_the_tool_resets_head_stay_their_authors(
    root: Path, far: Path, space: clia.Space, commits: bool
) -> None:
    edit(far, top="colleague")
    colleague_commits(far)
    start(root)
    bash(root, ("pull", "-q", "--ff-only"))
    edit(root, bottom="tool")
    bash(root, ("reset", "-q", "--soft", "HEAD~2"))
    if commits:
        bash(root, *commit_all("All in one"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert len(people_lines(space, "list.txt")) == 13
    if commits:
        assert agents_lines(space, "list.txt", "main") == ["tool"]


def test_changes_of_a_person_that_the_tool_commits_stay_the_persons(root: Path, far: Path, space: clia.Space) -> None:
    edit(root, top="person")
    start(root)
    edit(root, bottom="tool")
    bash(root, *commit_all("Both"))
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool"]
    assert agents_lines(space, "list.txt", "main") == ["tool"]


def test_a_pull_between_two_turns_is_the_persons(root: Path, far: Path, space: clia.Space) -> None:
    start(root)
    edit(root, bottom="tool")
    bash(root, *commit_all("The tool's"))
    stop(root)
    edit(far, top="colleague")
    colleague_commits(far)
    git("pull", "-q", "--rebase", cwd=root)
    prompt(root)
    edit(root, bottom="second")
    stop(root)
    assert agents_lines(space, "list.txt") == ["tool", "second"]
    assert people_lines(space, "list.txt")[0] == "colleague"
