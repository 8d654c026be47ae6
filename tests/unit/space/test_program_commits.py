"""Commits that a program makes itself in an agent's worktree."""

from __future__ import annotations

from subprocess import CalledProcessError
from typing import TYPE_CHECKING

import pytest

from support import git
from support.plain_git import commit_file, rev
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

    import clia


@pytest.fixture
def space(space: clia.Space, people: Path) -> clia.Space:
    """A space with the agent ``scout``, which started at a commit of people."""
    return space


@pytest.fixture
def desk(space: clia.Space, tmp_path: Path) -> Path:
    space.checkout("scout", tmp_path / "desk")
    return tmp_path / "desk"


def subjects(space: clia.Space) -> list[str]:
    """The subjects of the agent's own commits after its genesis, oldest first."""
    return [commit.subject for commit in reversed(space.log("scout", own=True))][1:]


def has_own_commits(space: clia.Space, directory: Path) -> bool:
    return space.captures.has_own_commits(str(directory))


def test_each_commit_of_the_program_is_adopted_in_order_and_the_rest_is_the_last_commit(space: clia.Space, desk: Path) -> None:
    originals = [commit_file(desk, "b", "1\n", "add b\n\nWith a body."), commit_file(desk, "a", "2\n", "change a")]
    (desk / "c").write_text("not committed\n")
    last = space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space) == ["add b", "change a", "done"]
    commits = space.log("scout", own=True)[:3]
    assert [commit.own for commit in commits] == [None, *reversed(originals)]
    assert {commit.kind for commit in commits} == {"finding"}
    assert commits[2].message == "add b\n\nWith a body."
    assert sorted(space.files(commits[2].cid)) == ["a", "b"]
    assert space.files(last) == {"a": b"2\n", "b": b"1\n", "c": b"not committed\n"}
    assert rev(desk, "HEAD") == last
    assert git("status", "--porcelain", cwd=desk) == ""
    assert space.verify().findings == ()


def test_an_adopted_commit_keeps_its_author_date_and_loses_forged_trailers(space: clia.Space, desk: Path) -> None:
    (desk / "b").write_text("1\n")
    git("add", "b", cwd=desk)
    forged = "fix\n\nClia-Agent: other\nClia-Type: decision\nClia-By: admin"
    git("commit", "-qm", forged, "--date", "2020-02-03T04:05:06 +0200", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    adopted = space.log("scout", own=True)[1]
    assert (adopted.agent, adopted.kind, adopted.by) == ("scout", "finding", None)
    assert adopted.author.at == 1580695506
    assert adopted.message == forged


def test_notes_name_the_agents_commit_for_each_original_and_gc_keeps_the_originals(space: clia.Space, desk: Path) -> None:
    original = commit_file(desk, "b", "1\n")
    space.commit_dir("scout", "finding", desk)
    adopted = space.log("scout", own=True)[1].cid
    assert git("notes", "--ref=clia/own", "show", original, cwd=desk) == f"scout {adopted}\n"
    git("reflog", "expire", "--expire=now", "--all", cwd=desk)
    git("gc", "--prune=now", "--quiet", cwd=desk)
    assert git("cat-file", "-t", original, cwd=desk) == "commit\n"


def test_a_merge_stays_a_merge_and_the_merged_commits_of_people_stay_theirs(space: clia.Space, repo: Path, desk: Path) -> None:
    persons_commit = commit_file(repo, "x", "people\n")
    commit_file(desk, "b", "1\n")
    git("merge", "-q", "--no-edit", "main", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    last, merge, first = space.log("scout", own=True)[:3]
    assert merge.parents == (first.cid, persons_commit)
    assert first.own is not None
    assert space.show(persons_commit).agent is None
    assert [line.agent for line in space.blame("scout", "x")] == [None]
    assert last.tree == merge.tree


def test_a_side_branch_that_the_program_merged_is_adopted_with_its_shape(space: clia.Space, desk: Path) -> None:
    base = rev(desk, "HEAD")
    one = commit_file(desk, "b", "1\n")
    git("checkout", "-q", "-b", "side", base, cwd=desk)
    commit_file(desk, "c", "1\n")
    git("checkout", "-q", "--detach", one, cwd=desk)
    git("merge", "-q", "--no-ff", "--no-edit", "side", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    merge = space.log("scout", own=True)[1]
    assert [space.show(parent).subject for parent in merge.parents] == ["b: 1", "c: 1"]
    assert all(space.show(parent).agent == "scout" for parent in merge.parents)
    assert space.show("scout").kept == ()


def test_lines_of_a_merged_side_branch_keep_their_author_on_a_branch_of_people(space: clia.Space, repo: Path, desk: Path) -> None:
    base = rev(desk, "HEAD")
    one = commit_file(desk, "b", "1\n")
    git("checkout", "-q", "-b", "side", base, cwd=desk)
    commit_file(desk, "c", "side\n")
    git("checkout", "-q", "--detach", one, cwd=desk)
    git("merge", "-q", "--no-ff", "--no-edit", "side", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    merge = space.log("scout", own=True)[1]
    assert space.show("scout").adopted == merge.parents[1:]
    assert [line.agent for line in space.blame("scout", "c")] == ["scout"]
    commit_file(repo, "c", "side\nmine\n")
    assert [line.agent for line in space.blame("main", "c")] == ["scout", None]


def test_a_commit_on_another_branch_is_adopted_beside_the_work_and_once(space: clia.Space, repo: Path, desk: Path) -> None:
    start = rev(desk, "HEAD")
    git("checkout", "-q", "-b", "side", cwd=desk)
    side = commit_file(desk, "c", "side\n")
    git("checkout", "-q", "--detach", start, cwd=desk)
    (desk / "b").write_text("1\n")
    last = space.show(space.commit_dir("scout", "finding", desk, message="done"))
    (adopted,) = last.adopted
    assert (space.show(adopted).own, last.kept) == (side, ())
    assert (last.parents[1:], sorted(space.files("scout"))) == ((adopted,), ["a", "b"])
    assert not has_own_commits(space, desk)
    assert [line.agent for line in space.blame("side", "c")] == ["scout"]
    git("checkout", "-q", "side", cwd=desk)  # the program continues there
    commit_file(desk, "c", "side\nmore\n")
    space.commit_dir("scout", "finding", desk, message="more")
    own = [commit.own for commit in space.log("scout") if commit.own is not None]
    assert (len(own), own.count(side)) == (2, 1)
    assert space.files("scout") == {"a": b"1\n", "c": b"side\nmore\n"}
    assert [line.agent for line in space.blame("side", "c")] == ["scout", "scout"]
    assert git("rev-list", "--first-parent", "agents/scout", cwd=repo).split().count(last.cid) == 1
    assert space.verify().findings == ()


def test_a_commit_of_a_person_on_top_of_one_of_the_program_stays_the_persons(space: clia.Space, repo: Path, desk: Path) -> None:
    commit_file(desk, "b", "1\n")
    git("branch", "review", cwd=desk)
    git("checkout", "-q", "review", cwd=repo)
    commit_file(repo, "x", "people\n")
    git("merge", "-q", "--ff-only", "review", cwd=desk)
    commit_file(desk, "c", "1\n")
    space.commit_dir("scout", "finding", desk)
    assert [line.agent for line in space.blame("scout", "x")] == [None]
    assert [line.agent for path in "bc" for line in space.blame("scout", path)] == ["scout", "scout"]
    assert subjects(space) == ["b: 1", "c: 1", "finding by scout"]


def test_a_branch_that_was_adopted_beside_the_work_is_not_adopted_again_when_it_is_merged(
    space: clia.Space, repo: Path, desk: Path
) -> None:
    space.captures.watch_programs(str(desk), running=True)
    git("worktree", "add", "-q", "-b", "side", str(desk / "beside"), cwd=desk)
    side = commit_file(desk / "beside", "c", "side\n")
    git("worktree", "remove", str(desk / "beside"), cwd=desk)
    space.commit_dir("scout", "finding", desk)
    space.captures.watch_programs(str(desk), running=False)
    commit_file(desk, "b", "1\n")
    git("merge", "-q", "--no-edit", "side", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    assert [commit.own for commit in space.log("scout")].count(side) == 1
    assert space.files("scout") == {"a": b"1\n", "b": b"1\n", "c": b"side\n"}
    assert [line.agent for line in space.blame("scout", "c")] == ["scout"]


@pytest.mark.parametrize("agent", ["scout", "ranger"])
def test_a_pick_of_an_agents_commit_beside_its_work_is_its_own_and_does_not_adopt_the_original_again(
    space: clia.Space, desk: Path, agent: str
) -> None:
    original, adopted = commit_beside(space, desk)
    if agent != "scout":
        space.agents.rename("scout", agent)
        desk = desk.parent / agent
        space.checkout(agent, desk)
    git("cherry-pick", adopted, cwd=desk)
    copy = rev(desk, "HEAD")
    space.commit_dir(agent, "finding", desk, message="two")
    assert [commit.own for commit in space.log(agent) if commit.own is not None] == [copy, original]
    assert sorted(space.files(agent)) == ["a", "c"]
    assert [line.agent for line in space.blame(agent, "c")] == [agent]
    assert space.verify().findings == ()


def test_a_rebase_of_commits_beside_the_work_does_not_adopt_the_originals_again(space: clia.Space, repo: Path, desk: Path) -> None:
    original, adopted = commit_beside(space, desk)
    commit_file(repo, "x", "people\n")
    git("checkout", "-q", "-b", "again", adopted, cwd=desk)
    git("rebase", "-q", "main", cwd=desk)
    git("checkout", "-q", "--detach", "agents/scout", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="two")
    assert [commit.own for commit in space.log("scout") if commit.own is not None] == [rev(desk, "again"), original]
    assert sorted(space.files("scout")) == ["a"]
    assert [line.agent for path in "cx" for line in space.blame("again", path)] == ["scout", None]
    assert space.verify().findings == ()


def commit_beside(space: clia.Space, desk: Path) -> tuple[str, str]:
    """A commit of the program on another branch, and the agent's for it, which a branch of people has, too."""
    git("checkout", "-q", "-b", "side", cwd=desk)
    original = commit_file(desk, "c", "side\n")
    git("checkout", "-q", "--detach", "agents/scout", cwd=desk)
    last = space.show(space.commit_dir("scout", "finding", desk, message="one"))
    git("branch", "people", last.cid, cwd=desk)
    (adopted,) = last.adopted
    return original, adopted


def test_a_picked_commit_that_the_program_amends_keeps_the_authors_lines(space: clia.Space, repo: Path, desk: Path) -> None:
    picked = commit_file(repo, "x", "people\n")
    git("cherry-pick", picked, cwd=desk)
    (desk / "x").write_text("people\nprogram\n")
    git("commit", "-qa", "--amend", "--no-edit", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    assert [line.agent for line in space.blame("scout", "x")] == [None, "scout"]
    assert space.show("scout").adopted == ()


def test_lines_that_a_revert_brings_back_stay_their_authors(space: clia.Space, repo: Path, desk: Path) -> None:
    commit_file(repo, "a", "1\npeople\n")
    commit_file(repo, "a", "1\n")
    git("merge", "-q", "--no-edit", "main", cwd=desk)
    git("revert", "--no-edit", "main", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    assert [line.agent for line in space.blame("scout", "a")] == [None, None]
    assert 'Revert "a: 1"' in subjects(space)


@pytest.mark.parametrize("amends", [False, True])
def test_lines_of_an_older_commit_that_the_program_goes_back_to_stay_their_authors(
    space: clia.Space, repo: Path, desk: Path, amends: bool
) -> None:
    git("checkout", "-q", "-b", "feature", cwd=desk)
    commit_file(desk, "b", "1\n")
    space.commit_dir("scout", "finding", desk, message="one")
    git("checkout", "-q", "--detach", "agents/scout", cwd=desk)
    git("rm", "-q", "a", cwd=desk)
    git("commit", "-qm", "Remove a", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="two")
    git("checkout", "-q", "feature", cwd=desk)
    if amends:
        (desk / "b").write_text("2\n")
        git("commit", "-qa", "--amend", "--no-edit", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="three")
    assert sorted(space.files("scout")) == ["a", "b"]
    assert [line.agent for line in space.blame("scout", "a")] == [None]
    assert [line.agent for line in space.blame("scout", "b")] == ["scout"]


def test_amended_and_reset_commits_are_kept_under_a_ref_and_named(space: clia.Space, repo: Path, desk: Path) -> None:
    amended_commit = commit_file(desk, "b", "1\n")
    git("commit", "-q", "--amend", "-m", "better", cwd=desk)
    reset_commit = commit_file(desk, "c", "1\n")
    git("reset", "-q", "--hard", "HEAD~1", cwd=desk)
    last = space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space) == ["better", "done"]
    assert sorted(space.show(last).kept) == sorted([amended_commit, reset_commit])
    kept_commits = git("rev-list", "refs/clia/own/scout", cwd=repo).split()
    assert {amended_commit, reset_commit} <= set(kept_commits)
    (desk / "d").write_text("1\n")
    assert space.show(space.commit_dir("scout", "finding", desk)).kept == ()


def test_a_commit_that_was_reset_at_once_is_kept(space: clia.Space, repo: Path, desk: Path) -> None:
    reset_commit = commit_file(desk, "b", "1\n")
    git("reset", "-q", "--hard", "HEAD~1", cwd=desk)
    assert has_own_commits(space, desk)
    assert space.show(space.commit_dir("scout", "finding", desk)).kept == (reset_commit,)
    assert not has_own_commits(space, desk)


@pytest.mark.parametrize("branch", [False, True])
def test_a_commit_after_a_reset_over_recorded_commits_has_the_files_of_the_programs(
    space: clia.Space, repo: Path, desk: Path, branch: bool
) -> None:
    commit_file(desk, "b", "1\n2\n")
    first = space.commit_dir("scout", "finding", desk, message="one")
    commit_file(desk, "b", "1\n")
    commit_file(desk, "c", "1\n")
    space.commit_dir("scout", "finding", desk, message="two")
    git(*(("checkout", "-q", "-b", "again", first) if branch else ("reset", "-q", "--hard", first)), cwd=desk)
    originals = [commit_file(desk, "d", "1\n"), commit_file(desk, "b", "1\n2\n3\n")]
    (desk / "e").write_text("1\n")
    last = space.commit_dir("scout", "finding", desk, message="three")
    adopted = [space.show(cid) for cid in space.captures.adopted(last)]
    assert [commit.own for commit in adopted] == originals
    assert [commit.tree for commit in adopted] == [rev(desk, f"{cid}^{{tree}}") for cid in originals]
    for commit in adopted:
        assert space.diff(commit.cid) == git("diff", "-M", "--full-index", f"{commit.own}~1", str(commit.own), cwd=repo)
    assert sorted(space.files(last)) == ["a", "b", "d", "e"]
    lines = [(line.text, line.commit) for line in space.blame("scout", "b")]
    assert lines[:2] == [(text, space.history.own("scout")[-2].cid) for text in ("1", "2")], "the lines that came back"
    assert subjects(space)[-3:] == ["d: 1", "b: 1", "three"]
    assert space.verify().findings == ()


def test_a_stash_of_the_program_is_kept_and_those_of_people_are_not(space: clia.Space, repo: Path, desk: Path) -> None:
    (repo / "a").write_text("person\n")
    git("stash", "-q", cwd=repo)
    (desk / "a").write_text("program\n")
    git("stash", "-q", cwd=desk)
    stash = rev(desk, "refs/stash")
    assert space.show(space.commit_dir("scout", "finding", desk)).kept == (stash,)
    assert not has_own_commits(space, desk)


def test_a_rebase_is_adopted_as_the_rebased_commits(space: clia.Space, repo: Path, desk: Path) -> None:
    persons_commit = commit_file(repo, "x", "people\n")
    commit_file(desk, "b", "1\n")
    old = commit_file(desk, "c", "1\n")
    git("rebase", "-q", "main", cwd=desk)
    last = space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space)[-3:] == ["b: 1", "c: 1", "done"]
    assert space.show(last).kept == (old,)
    assert git("merge-base", "--is-ancestor", persons_commit, last, cwd=repo) == ""
    assert [line.agent for line in space.blame("scout", "x")] == [None]
    assert [line.agent for line in space.blame("scout", "b")] == ["scout"]


def colleagues_commit(repo: Path) -> str:
    """A commit of a colleague on a branch of its own; a second one, before it, is not picked."""
    git("switch", "-qc", "colleague", cwd=repo)
    (repo / "other").write_text("other\n")
    (repo / "x").write_text("top\nmiddle\ncolleague\n")
    git("add", "-A", cwd=repo)
    git("commit", "-qm", "A colleague's", "--author=Col <col@example.com>", cwd=repo)
    commit = rev(repo, "HEAD")
    git("switch", "-q", "main", cwd=repo)
    return commit


def test_another_authors_commit_that_the_program_picks_stays_the_authors(space: clia.Space, repo: Path, desk: Path) -> None:
    picked = colleagues_commit(repo)
    commit_file(desk, "b", "1\n")
    git("cherry-pick", picked, cwd=desk)
    (desk / "x").write_text("top\nmiddle\ncolleague\nprogram\n")
    last = space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space)[-2:] == ["b: 1", "done"]
    assert [space.show(commit).subject for commit in space.captures.adopted(last)] == ["b: 1"]
    assert [(line.text, line.agent, line.author) for line in space.blame("scout", "x")][2:] == [
        ("colleague", None, "Col"),
        ("program", "scout", "scout"),
    ]
    assert space.verify().findings == ()
    assert git("status", "--porcelain", cwd=desk) == ""


def test_what_the_program_writes_to_resolve_a_picked_commit_is_its_own(space: clia.Space, repo: Path, desk: Path) -> None:
    picked = colleagues_commit(repo)
    commit_file(desk, "x", "top\nmiddle\nmine\n")
    with pytest.raises(CalledProcessError):
        git("cherry-pick", picked, cwd=desk)
    (desk / "x").write_text("top\nmiddle\nmine\ncolleague\nresolved\n")
    git("add", "-A", cwd=desk)
    git("-c", "core.editor=true", "cherry-pick", "--continue", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space)[-3:] == ["x: top", "A colleague's", "done"]
    authors = {line.text: line.agent for line in space.blame("scout", "x")}
    assert {text: authors[text] for text in ("mine", "colleague", "resolved")} == {
        "mine": "scout",
        "colleague": None,
        "resolved": "scout",
    }
    assert [line.agent for line in space.blame("scout", "other")] == [None]


def test_a_program_that_works_on_its_own_branch_stays_on_it(space: clia.Space, desk: Path) -> None:
    git("checkout", "-q", "-b", "feature", cwd=desk)
    first = commit_file(desk, "b", "1\n")
    (desk / "c").write_text("1\n")
    space.commit_dir("scout", "finding", desk, message="one")
    assert git("symbolic-ref", "HEAD", cwd=desk) == "refs/heads/feature\n"
    assert rev(desk, "HEAD") == first
    commit_file(desk, "d", "1\n")
    space.commit_dir("scout", "finding", desk, message="two")
    assert subjects(space) == ["b: 1", "one", "d: 1", "two"]
    assert sorted(space.files("scout")) == ["a", "b", "c", "d"]
    assert space.show("scout").kept == ()


def test_a_checked_out_commit_of_people_is_merged_and_not_adopted(space: clia.Space, repo: Path, desk: Path) -> None:
    persons_commit = commit_file(repo, "x", "people\n")
    git("checkout", "-q", "--detach", "main", cwd=desk)
    (desk / "b").write_text("1\n")
    last = space.commit_dir("scout", "finding", desk)
    assert space.show(last).parents[1:] == (persons_commit,)
    assert subjects(space) == ["finding by scout"]
    assert [line.agent for line in space.blame("scout", "x")] == [None]


def test_a_rebase_in_progress_is_left_alone(space: clia.Space, repo: Path, desk: Path) -> None:
    commit_file(repo, "a", "people\n")
    commit_file(desk, "b", "1\n")
    commit_file(desk, "a", "program\n")
    with pytest.raises(CalledProcessError):  # a conflict
        git("rebase", "-q", "main", cwd=desk)
    head = rev(desk, "HEAD")
    space.commit_dir("scout", "finding", desk, message="in between")
    assert rev(desk, "HEAD") == head
    (desk / "a").write_text("both\n")
    git("add", "a", cwd=desk)
    git("-c", "core.editor=true", "rebase", "--continue", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space)[-1] == "done"
    assert space.files("scout")["a"] == b"both\n"
    assert sum(commit.subject == "b: 1" for commit in space.log("scout")) == 1


@pytest.mark.parametrize("on_branch", [True, False])
def test_recorded_commits_that_the_program_rebases_are_not_recorded_again(
    space: clia.Space, repo: Path, desk: Path, on_branch: bool
) -> None:
    if on_branch:
        git("checkout", "-q", "-b", "feature", cwd=desk)
    commit_file(desk, "b", "1\n")
    commit_file(desk, "c", "1\n")
    recorded = space.commit_dir("scout", "finding", desk, message="one")
    persons_commit = commit_file(repo, "x", "people\n")
    git("rebase", "-q", "main", cwd=desk)
    commit_file(desk, "d", "1\n")
    last = space.commit_dir("scout", "finding", desk, message="two")
    assert subjects(space) == ["b: 1", "c: 1", "one", "d: 1", "two"]
    assert space.show("scout~1").parents == (recorded, persons_commit)
    assert sorted(space.files(last)) == ["a", "b", "c", "d", "x"]
    assert {path: space.blame("scout", path)[0].agent for path in "bcdx"} == {"b": "scout", "c": "scout", "d": "scout", "x": None}
    assert space.blame("scout", "b")[0].commit == space.log("scout", own=True)[-2].cid
    if on_branch:  # HEAD stays on the program's commits, which are kept
        assert rev(desk, "HEAD") in git("rev-list", "refs/clia/own/scout", cwd=repo).split()


def test_a_rebase_of_recorded_commits_that_is_left_open_is_not_recorded_twice(space: clia.Space, repo: Path, desk: Path) -> None:
    commit_file(desk, "b", "1\n")
    commit_file(desk, "c", "1\n")
    space.commit_dir("scout", "finding", desk, message="one")
    commit_file(repo, "x", "people\n")
    commit_file(repo, "c", "people\n")
    with pytest.raises(CalledProcessError):  # a conflict in c
        git("rebase", "-q", "main", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="left open")
    assert subjects(space) == ["b: 1", "c: 1", "one", "left open"]
    (desk / "c").write_text("people\n1\n")
    git("add", "c", cwd=desk)
    git("-c", "core.editor=true", "rebase", "--continue", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="done")
    assert subjects(space)[:4] == ["b: 1", "c: 1", "one", "left open"]
    assert subjects(space)[4:] in (["done"], ["c: 1", "done"])
    assert [(line.text, line.agent) for line in space.blame("scout", "c")] == [("people", None), ("1", "scout")]
    assert sorted(space.files("scout")) == ["a", "b", "c", "x"]


@pytest.mark.parametrize("on_branch", [True, False])
def test_a_recorded_commit_that_is_amended_in_a_rebase_is_recorded_as_its_change(
    space: clia.Space, desk: Path, on_branch: bool
) -> None:
    base = rev(desk, "HEAD")
    if on_branch:
        git("checkout", "-q", "-b", "feature", cwd=desk)
    commit_file(desk, "b", "1\n")
    commit_file(desk, "c", "1\n")
    space.commit_dir("scout", "finding", desk, message="one")
    git("-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-q", "-i", base, cwd=desk)
    (desk / "b").write_text("1\n2\n")
    git("commit", "-qa", "--amend", "-m", "better b", cwd=desk)
    git("-c", "core.editor=true", "rebase", "--continue", cwd=desk)
    space.commit_dir("scout", "finding", desk, message="two")
    assert subjects(space) == ["b: 1", "c: 1", "one", "better b", "two"]
    assert space.files("scout~1") == {"a": b"1\n", "b": b"1\n2\n", "c": b"1\n"}
    assert [line.commit for line in space.blame("scout", "c")] == [space.log("scout", own=True)[3].cid]


def test_commits_are_found_without_a_reflog(space: clia.Space, repo: Path, desk: Path) -> None:
    persons_commit = commit_file(repo, "x", "people\n")
    commit_file(desk, "b", "1\n")
    git("merge", "-q", "--no-edit", "main", cwd=desk)
    log = git("rev-parse", "--git-path", "logs/HEAD", cwd=desk).strip()
    (desk / log).unlink()
    space.commit_dir("scout", "finding", desk)
    merge, first = space.log("scout", own=True)[1:3]
    assert merge.parents == (first.cid, persons_commit)
    assert space.show(persons_commit).agent is None


def test_a_checkout_with_unrecorded_commits_is_not_moved(space: clia.Space, desk: Path) -> None:
    original = commit_file(desk, "b", "1\n")
    space.commit("scout", "finding", changes={"z": b"1\n"})
    refused("uncommitted-work", lambda: space.checkout("scout", desk))
    assert rev(desk, "HEAD") == original


def test_a_checkout_whose_program_is_on_a_branch_follows_other_commits_of_the_agent(space: clia.Space, desk: Path) -> None:
    git("checkout", "-q", "-b", "feature", cwd=desk)
    commit_file(desk, "b", "1\n")
    (desk / "b").write_text("2\n")
    space.commit_dir("scout", "finding", desk)
    new = space.commit("scout", "finding", changes={"b": b"3\n"})
    space.checkout("scout", desk)
    assert (desk / "b").read_text() == "3\n"
    assert rev(desk, "HEAD") == new
    assert not has_own_commits(space, desk)
    assert git("log", "-1", "--format=%s", "feature", cwd=desk) == "b: 1\n"
