"""Lines of agents in commits that people make with stock git."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.attribution.notes import CommitAttribution, LineAuthor, from_bytes, merge, merge_notes, to_bytes
from clia.testing import components
from support import git
from support.plain_git import commit_file, fast_import, git_with_input, rev
from support.spaces import BRIEFING, commit_with_trace, settings

if TYPE_CHECKING:
    from pathlib import Path

    from clia.space.model import Content

WORK = "".join(f"work_{number}()\n" for number in range(6))
BY_AGENT = ["scout"] * 6
NOTES = "refs/notes/clia/attribution"


@pytest.fixture
def turn(space: clia.Space, people: Path) -> str:
    """A turn of ``scout`` that writes ``b``; the person has the same file in the worktree, uncommitted."""
    (people / "b").write_text(WORK)
    return commit_with_trace(space, "why", b=WORK.encode())


def agents_of(space: clia.Space, path: str = "b", text: str = "main") -> list[str | None]:
    return [line.agent for line in space.blame(text, path)]


def commit_all(people: Path, message: str = "mine") -> str:
    git("add", "-A", cwd=people)
    git("commit", "-qm", message, cwd=people)
    return rev(people, "HEAD")


def test_a_commit_of_a_person_keeps_the_agent_its_briefing_and_trace(space: clia.Space, people: Path, turn: str) -> None:
    (people / "b").write_text(WORK + "mine()\n")
    commit = commit_all(people)
    *lines, last = space.blame("main", "b")
    assert {(line.agent, line.commit, line.via, line.by, line.title) for line in lines} == {
        ("scout", turn, commit, "agent", BRIEFING.title)
    }
    assert {line.trace for line in lines} == {space.traces.id_of(turn)}
    assert (last.agent, last.commit, last.via, last.by, last.author) == (None, commit, None, "person", "Tess")


def test_lines_that_another_process_has_indexed_are_found(space: clia.Space, people: Path, turn: str) -> None:
    commit_all(people)
    assert agents_of(space) == BY_AGENT
    with clia.open(people, settings=settings()) as other:
        other.commit("scout", "finding", changes={"b": f"{WORK}more()\n".encode()})
        other.history.attribute()
    commit_file(people, "b", f"{WORK}more()\n")
    assert agents_of(space) == [*BY_AGENT, "scout"]


def test_lines_staged_in_part_keep_their_author(space: clia.Space, people: Path, turn: str) -> None:
    commit_file(people, "b", "work_0()\n")
    space.commit("scout", "finding", changes={"b": WORK.encode()})
    (people / "b").write_text("first()\nwork_0()\nwork_1()\n" + "kept()\n" * 8 + "work_2()\n")
    git_with_input(people, "s\ny\nn\n", "add", "-p", "b")
    git("commit", "-qm", "a part", cwd=people)
    assert [(line.text, line.agent) for line in space.blame("main", "b")][:2] == [("first()", None), ("work_0()", "scout")]
    commit_all(people)
    authors = {line.text: line.agent for line in space.blame("main", "b")}
    assert authors == {"first()": None, "work_0()": "scout", "work_1()": "scout", "kept()": None, "work_2()": "scout"}


def rebase(people: Path) -> None:
    commit_all(people)
    git("switch", "-qc", "side", "HEAD~1", cwd=people)
    commit_file(people, "c", "other\n")
    git("rebase", "-q", "side", "main", cwd=people)


def squash(people: Path) -> None:
    git("switch", "-qc", "side", cwd=people)
    commit_file(people, "b", "work_0()\nwork_1()\n")
    commit_file(people, "b", WORK)
    git("switch", "-q", "main", cwd=people)
    git("merge", "-q", "--squash", "side", cwd=people)
    git("commit", "-qm", "squashed", cwd=people)


def cherry_pick(people: Path) -> None:
    git("switch", "-qc", "side", cwd=people)
    commit_all(people)
    git("switch", "-q", "main", cwd=people)
    commit_file(people, "c", "other\n")
    git("cherry-pick", "side", cwd=people)


def amend(people: Path) -> None:
    commit_file(people, "b", "work_0()\n")
    (people / "b").write_text(WORK)
    git("commit", "-qa", "--amend", "-m", "amended", cwd=people)


def revert(people: Path) -> None:
    commit_all(people)
    git("rm", "-q", "b", cwd=people)
    git("commit", "-qm", "away", cwd=people)
    git("revert", "--no-edit", "HEAD", cwd=people)


def merge_commit(people: Path) -> None:
    git("switch", "-qc", "side", cwd=people)
    commit_all(people)
    git("switch", "-q", "main", cwd=people)
    commit_file(people, "c", "other\n")
    git("merge", "-q", "--no-ff", "--no-edit", "side", cwd=people)


def reformat(people: Path) -> None:
    commit_all(people)
    commit_file(people, "b", "".join(f"    {line}\n" for line in WORK.splitlines()))


def crlf(people: Path) -> None:
    commit_all(people)
    (people / "b").write_bytes(WORK.replace("\n", "\r\n").encode())
    commit_all(people, "with CRLF")


@pytest.mark.parametrize("act", [rebase, squash, cherry_pick, amend, revert, merge_commit, reformat, crlf])
def test_lines_keep_their_author(space: clia.Space, people: Path, turn: str, act: object) -> None:
    assert callable(act)
    act(people)
    assert agents_of(space) == BY_AGENT


@pytest.mark.parametrize("new", ["moved", "B", "folder/b", "b b", "ü"])
def test_a_file_that_is_moved_before_or_after_its_commit_keeps_its_authors(
    space: clia.Space, people: Path, turn: str, new: str
) -> None:
    (people / new).parent.mkdir(exist_ok=True)
    os.rename(people / "b", people / new)
    commit_all(people)
    assert agents_of(space, new) == BY_AGENT
    git("mv", new, "again", cwd=people)
    (people / "again").write_text(WORK + "mine()\n")
    commit_all(people, "moved")
    assert agents_of(space, "again") == [*BY_AGENT, None]


def test_a_file_that_is_moved_between_two_turns_keeps_the_authors_of_both(space: clia.Space, people: Path) -> None:
    first = "".join(f"first_{number}()\n" for number in range(6))
    second = "".join(f"second_{number}()\n" for number in range(6))
    space.commit("scout", "finding", changes={"b": first.encode()})
    git("checkout", "-q", "-b", "side", cwd=people)
    commit_file(people, "moved", first)
    space.spawn_at("other", BRIEFING, "side")
    space.commit("other", "finding", changes={"moved": (first + second).encode()})
    git("checkout", "-q", "main", cwd=people)
    commit_file(people, "moved", first + second)
    assert agents_of(space, "moved") == ["scout"] * 6 + ["other"] * 6


def test_lines_that_another_file_has_too_do_not_make_a_deleted_file_the_earlier_one(space: clia.Space, people: Path) -> None:
    """Common lines stand in many files: a person's new file shares them with a file that an agent wrote and that is gone."""
    common = "import os\nimport sys\nreturn None\n"
    commit_file(people, "base", "base\n")
    space.commit("scout", "finding", changes={"gone": (common + "one\n").encode(), "kept": (common + "two\n").encode()})
    commit_file(people, "kept", common + "two\n")
    commit_file(people, "own", common + "three\n")
    assert agents_of(space, "own") == [None] * 4


def test_a_file_that_is_moved_twice_between_two_commits_keeps_its_authors(space: clia.Space, people: Path) -> None:
    own = "".join(f"own_{number}()\n" for number in range(12))
    work = "".join(f"work_{number}()\n" for number in range(6))
    commit_file(people, "first", own)
    space.spawn_at("other", BRIEFING, "main")
    space.commit("other", "finding", changes={"first": None, "second": (own + work).encode()})
    git("mv", "first", "third", cwd=people)
    commit_file(people, "third", own + work)
    assert agents_of(space, "third") == [None] * 12 + ["other"] * 6


def test_a_copy_of_an_agents_commit_with_a_line_of_a_person_keeps_both(space: clia.Space, people: Path, turn: str) -> None:
    """The copy has the agent's trailer, but it is not the agent's commit."""
    os.unlink(people / "b")
    git("cherry-pick", turn, cwd=people)
    commit_file(people, "b", WORK + "mine()\n")
    git("reset", "-q", "--soft", "HEAD~1", cwd=people)
    git("commit", "-q", "--amend", "--no-edit", cwd=people)
    assert agents_of(space) == [*BY_AGENT, None]


def test_an_agent_is_not_given_lines_from_before_its_time(space: clia.Space, people: Path) -> None:
    commit_file(people, "b", "same()\n")
    space.spawn_at("late", BRIEFING, "main")
    space.commit("late", "finding", changes={"b": b"same()\nsame()\n"})
    assert agents_of(space) == [None]


def test_the_note_is_one_canonical_record_that_git_shows_and_gc_keeps(space: clia.Space, people: Path, turn: str) -> None:
    commit = commit_all(people)
    space.blame("main", "b")
    expected = {"type": "attribution", "version": 1, "files": {"b": [[1, 6, "scout", turn]]}, "unknown": []}
    tip = rev(people, NOTES)
    git("gc", "-q", "--prune=now", cwd=people)
    assert json.loads(git("log", "-1", "--format=%N", "--notes=clia/attribution", commit, cwd=people)) == expected
    space.blame("main", "b")
    space.history.attribute()
    space.traces.relink()
    assert rev(people, NOTES) == tip, "a second look changes nothing"


def test_every_clone_writes_the_same_note(space: clia.Space, people: Path, turn: str, tmp_path: Path) -> None:
    git("init", "-q", "--bare", "-b", "main", str(tmp_path / "hub.git"), cwd=people)
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=people)
    commit = commit_all(people)
    git("push", "-q", "origin", "main", cwd=people)
    space.publish(["scout"])
    git("clone", "-q", str(tmp_path / "hub.git"), str(tmp_path / "other"), cwd=people)
    with clia.init(tmp_path / "other", settings=settings()) as other:
        assert agents_of(other) == BY_AGENT
    assert agents_of(space) == BY_AGENT
    notes = [git("notes", "--ref=clia/attribution", "show", commit, cwd=place) for place in (people, tmp_path / "other")]
    assert notes[0] == notes[1]


def test_notes_travel_and_diverged_ones_are_united(space: clia.Space, people: Path, turn: str, tmp_path: Path) -> None:
    git("init", "-q", "--bare", "-b", "main", str(tmp_path / "hub.git"), cwd=people)
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=people)
    first = commit_all(people)
    agents_of(space)
    git("push", "-q", "origin", "main", cwd=people)
    assert NOTES in [pushed.ref for pushed in space.publish(["scout"])]
    git("clone", "-q", str(tmp_path / "hub.git"), str(tmp_path / "other"), cwd=people)
    with clia.init(tmp_path / "other", settings=settings()) as other:
        other.adopt()
        assert first in git("notes", "--ref=clia/attribution", "list", cwd=tmp_path / "other")
        theirs = commit_file(tmp_path / "other", "b", f"{WORK}new()\nwork_1()\n")
        agents_of(other, text=theirs)
        ours = commit_file(people, "b", f"{WORK}ours()\n")
        agents_of(space)
        assert [pushed.state for pushed in space.publish(["scout"]) if pushed.ref == NOTES] == ["moved"]
        assert [pushed.state for pushed in other.publish(["scout"]) if pushed.ref == NOTES] == ["moved"]
    noted = git("notes", "--ref=clia/attribution", "list", cwd=tmp_path / "hub.git")
    assert all(commit in noted for commit in (first, theirs, ours))


def test_a_file_too_large_to_compare_is_unknown(
    space: clia.Space, people: Path, turn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clia.space.attribution.attributions.FILE_MAX", 10)
    commit_all(people)
    assert {line.by for line in space.blame("main", "b")} == {"unknown"}
    assert space.history.authorship("main", limit=1)[:4] == (6, 0, {}, 6)


def test_binary_files_links_and_submodules_are_skipped(space: clia.Space, people: Path, turn: str) -> None:
    changes: dict[str, Content | None] = {"bin": b"\0\1\n", "link": clia.Link("b"), "sub": clia.Submodule("1" * 40)}
    space.commit("scout", "finding", changes=changes)
    (people / "bin").write_bytes(b"\0\1\n")
    (people / "link").symlink_to("b")
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", cwd=people)
    git("add", "b", "bin", "link", cwd=people)
    git("commit", "-qm", "all", cwd=people)
    assert agents_of(space) == BY_AGENT
    assert {line.by for line in space.blame("main", "bin")} == {"unknown"}
    assert agents_of(space, "link") == [None]


def test_a_changed_mode_adds_no_line_and_keeps_the_authors(space: clia.Space, people: Path, turn: str) -> None:
    commit_all(people)
    (people / "b").chmod(0o755)
    only_mode = commit_all(people, "executable")
    space.commit("scout", "finding", changes={"b": clia.File(WORK.encode(), executable=True)})
    assert agents_of(space) == agents_of(space, text="scout") == BY_AGENT
    assert space.history.authorship(f"{only_mode}~1..{only_mode}").lines == 0
    (people / "b").write_text(f"{WORK}more()\n")
    (people / "b").chmod(0o644)
    commit_all(people, "a line and the mode")
    assert agents_of(space) == [*BY_AGENT, None]


def test_a_file_of_an_agent_that_was_a_link_in_between_keeps_its_author(space: clia.Space, people: Path, turn: str) -> None:
    commit_all(people)
    (people / "b").unlink()
    (people / "b").symlink_to("elsewhere")
    linked = commit_all(people, "a link")
    assert [(line.agent, line.by, line.text) for line in space.blame("main", "b")] == [(None, "person", "elsewhere")]
    assert space.history.authorship(f"{linked}~1..{linked}").lines == 0
    (people / "b").unlink()
    (people / "b").write_text(f"{WORK}more()\n")
    commit_all(people, "a file again")
    assert agents_of(space) == [*BY_AGENT, None]


def test_a_link_of_an_agent_counts_as_the_work_of_who_commits_it(space: clia.Space, people: Path, turn: str) -> None:
    space.commit("scout", "finding", changes={"link": clia.Link("b")})
    assert agents_of(space, "link", "scout") == ["scout"]
    (people / "link").symlink_to("b")
    commit = commit_all(people)
    assert agents_of(space, "link") == [None]
    assert space.history.authorship(f"{commit}~1..{commit}")[:3] == (6, 6, {"scout": 6})


def test_a_path_that_is_not_utf8_is_compared(space: clia.Space, people: Path, tmp_path: Path) -> None:
    space.checkout("scout", tmp_path / "work")
    (tmp_path / "work" / os.fsdecode(b"na\xefve%")).write_text("x()\n")
    turn = space.commit_dir("scout", "finding", tmp_path / "work")
    fast_import(people, "refs/heads/odd", {b"na\xefve%": b"x()\n"}, parent=rev(people, "main"))
    assert space.history.authorship("odd", limit=1).agents == {"scout": 1}
    note = json.loads(git("notes", "--ref=clia/attribution", "show", rev(people, "odd"), cwd=people))
    assert note["files"] == {"na%EFve%25": [[1, 1, "scout", turn]]}


def test_the_last_commit_of_a_shallow_clone_is_unknown(space: clia.Space, people: Path, turn: str, tmp_path: Path) -> None:
    commit_all(people)
    commit_file(people, "c", "mine\n")
    git("clone", "-q", "--depth=1", f"file://{people}", str(tmp_path / "shallow"), cwd=people)
    git("fetch", "-q", "origin", "+refs/heads/agents/*:refs/heads/agents/*", cwd=tmp_path / "shallow")
    with clia.init(tmp_path / "shallow", settings=settings()) as shallow:
        git("fetch", "-q", "--depth=1", "origin", "main", cwd=tmp_path / "shallow")
        assert {line.by for line in shallow.blame("HEAD", "b")} <= {"unknown", "agent"}


def test_summaries_count_lines_by_agents_people_and_unknown(space: clia.Space, people: Path, turn: str) -> None:
    base = rev(people, "main")
    (people / "b").write_text(WORK + "mine()\nmine_too()\n")
    commit = commit_all(people)
    commit_file(people, "a", "2\n")
    summary = space.history.authorship(f"{base}..main")
    assert (summary.lines, summary.by_agents, summary.agents, summary.unknown, summary.more) == (9, 6, {"scout": 6}, 0, False)
    assert [(row.lines, row.agents) for row in summary.commits] == [(1, {}), (8, {"scout": 6})]
    assert summary.commits[1].commit == commit
    assert space.history.authorship("scout", limit=1).agents == {"scout": 6}
    assert space.history.authorship("main", limit=1).more


def test_lines_are_unknown_until_all_agents_are_read(space: clia.Space, people: Path, turn: str) -> None:
    """The index is built in bounded steps; lines are not called a person's before it is complete."""
    commit_all(people)
    index = components(space).attribution_index
    assert not index.update(0).complete
    assert index.update(1).complete
    assert index.update(0).complete
    assert agents_of(space) == BY_AGENT


def test_merging_notes_is_commutative_associative_and_idempotent() -> None:
    first, second, third = (
        CommitAttribution({"f": {1: LineAuthor("a", "1" * 40), 2: LineAuthor("a", "1" * 40)}}, frozenset({"g", "h"})),
        CommitAttribution({"f": {2: LineAuthor("b", "2" * 40)}, "g": {1: LineAuthor("b", "2" * 40)}}, frozenset({"h"})),
        CommitAttribution({"f": {2: LineAuthor("a", "3" * 40), 9: LineAuthor("c", "4" * 40)}}, frozenset({"h", "k"})),
    )
    assert merge(merge(first, second), third) == merge(first, merge(second, third)) == merge(merge(third, second), first)
    assert merge(first, first) == first
    assert from_bytes(to_bytes(merge(first, second))) == merge(first, second)
    assert merge_notes(b"not a note", to_bytes(first)) == to_bytes(first)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{}", b"\xff", b'{"type":"attribution","version":2,"files":{},"unknown":[]}'),
        b'{"type":"attribution","version":1,"files":{"f":[[1,99999999999,"scout","' + b"1" * 40 + b'"]]},"unknown":[]}',
        b'{"type":"attribution","version":1,"files":{"f":[[1,1,"../x","1"]]},"unknown":[]}',
    ],
)
def test_a_note_of_another_program_or_version_is_ignored(data: bytes) -> None:
    assert from_bytes(data) is None
