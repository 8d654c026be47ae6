"""Blame of the worktree, of parts of a file, and of paths that are not text files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import InvalidInput, NotFound
from clia.git.records import NOT_COMMITTED
from support import git
from support.captured import hook, new_space, rehearse, run_ingest
from support.plain_git import commit_file
from support.space_driver import settings
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path / "shop")


def blamed(root: Path, path: str) -> list[tuple[str, str, bool]]:
    """The text, author and whether it is committed, of each line in the worktree."""
    with clia.open(root, settings=settings()) as space:
        lines = space.history.blame_worktree(path, space.captures.running_turns(path))
        return [(line.text, f"{line.by} {line.author}", NOT_COMMITTED not in (line.commit, line.via)) for line in lines]


def captured(root: Path, content: str, path: str = "new.py") -> str:
    """Play a session that writes a file in one turn; return its agent."""
    script: list[dict[str, Any]] = [{"prompt": "Write"}, {"write": path, "text": content}, {"say": "done"}, {"stop": True}]
    report = rehearse(root, script, after=lambda: run_ingest(root))
    run_ingest(root)
    return f"claude-{report['session'][:8]}"


def test_lines_that_are_not_committed_yet_belong_to_the_turn_that_wrote_them_or_to_the_person(root: Path) -> None:
    agent = captured(root, "one()\ntwo()\n")
    (root / "new.py").write_text("one()\nmine()\ntwo()\n")
    (root / "README.md").write_text("people\nmore people\n")
    theirs, person = f"agent {agent}", "person Tess"
    assert blamed(root, "new.py") == [("one()", theirs, False), ("mine()", person, False), ("two()", theirs, False)]
    assert blamed(root, "README.md") == [("people", person, True), ("more people", person, False)]
    git("add", "new.py", cwd=root)
    assert [line[1] for line in blamed(root, "new.py")] == [theirs, person, theirs]
    git("commit", "--quiet", "--message=all", cwd=root)
    (root / "new.py").write_text("one()\nmine()\ntwo()\nlast()\n")
    assert [line[1:] for line in blamed(root, "new.py")] == [(theirs, True), (person, True), (theirs, True), (person, False)]


def test_lines_that_appeared_during_a_running_turn_are_its_agents(root: Path) -> None:
    (root / "README.md").write_text("people\nby hand\n")
    hook(root, "SessionStart", source="startup")
    hook(root, "UserPromptSubmit", prompt="Write")
    run_ingest(root)
    (root / "README.md").write_text("people\nby hand\nby the turn\n")
    (root / "made.py").write_text("made()\n")
    assert [line[1:] for line in blamed(root, "README.md")] == [
        ("person Tess", True),
        ("person Tess", False),
        ("agent claude-abcdef12", False),
    ]
    assert blamed(root, "made.py") == [("made()", "agent claude-abcdef12", False)]
    with clia.open(root, settings=settings()) as space:
        (line,) = space.history.blame_worktree("made.py", space.captures.running_turns("made.py"))
    assert (line.commit, line.title, line.trace) == (NOT_COMMITTED, "claude-code session abcdef12", None)


def test_new_lines_are_unknown_if_two_sessions_are_writing_and_neither_named_the_file(root: Path) -> None:
    for session in ("abcdef12-9", "fedcba98-1"):
        hook(root, "SessionStart", session, source="startup")
        hook(root, "UserPromptSubmit", session, prompt="Write")
    run_ingest(root)
    (root / "made.py").write_text("made()\n")
    assert [line[1].split()[0] for line in blamed(root, "made.py")] == ["unknown"]


def test_a_moved_file_keeps_the_agents_lines_before_it_is_committed(root: Path) -> None:
    agent = captured(root, "one()\ntwo()\nthree()\n")
    (root / "new.py").rename(root / "other.py")
    assert {line[1] for line in blamed(root, "other.py")} == {f"agent {agent}"}


def test_the_worktree_of_an_unborn_branch_has_blame(tmp_path: Path) -> None:
    root = new_space(tmp_path / "empty", commit=False)
    (root / "a.txt").write_bytes(b"caf\xe9\r\nlast")
    assert blamed(root, "a.txt") == [("caf\ufffd\r", "person Tess", False), ("last", "person Tess", False)]
    with clia.open(root, settings=settings()) as space:
        for text in ("HEAD", "main"):
            with pytest.raises(NotFound, match=f"'{text}' has no commits yet"):
                space.blame(text, "a.txt")


def test_what_is_not_a_text_file_is_named(root: Path, tmp_path: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "f").write_text("f\n")
    (root / "link").symlink_to("folder")
    git("add", ".", cwd=root)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", cwd=root)
    git("commit", "--quiet", "--message=odd", cwd=root)
    (root / "away").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("secret\n")
    os.mkfifo(root / "pipe")
    new_space(root / "nested")
    with clia.open(root, settings=settings()) as space:
        for path, message in (
            ("folder", "'folder' in 'main' is a directory"),
            ("sub", "'sub' in 'main' is a submodule"),
            ("sub/a", "no file 'sub/a' in 'main': 'sub' is a submodule"),
            ("link/f", "no file 'link/f' in 'main': 'link' is a symbolic link"),
            ("nothing", "no file 'nothing' in 'main'"),
            ("folder//f", "no file 'folder//f' in 'main'"),
        ):
            with pytest.raises((InvalidInput, NotFound), match=message):
                space.blame("main", path)
        for path, message in (
            ("folder", "'folder' is a directory"),
            ("link/f", "beyond the symbolic link 'link'"),
            ("away/secret", "beyond the symbolic link 'away'"),
            ("nested/README.md", "in another repository, 'nested'"),
            (".git/config", "in a .git directory"),
            ("pipe", "'pipe' is a special file"),
            ("nothing", "no file 'nothing' in the worktree"),
            ("../secret", "is not a path in a commit"),
        ):
            with pytest.raises((InvalidInput, NotFound), match=message):
                space.history.blame_worktree(path)
    assert blamed(root, "link") == [("folder", "person Tess", True)]


def test_a_part_of_a_file_is_blamed_alone(root: Path) -> None:
    (root / "long").write_text("".join(f"{number}\n" for number in range(1, 10)))
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message=long", cwd=root)
    with clia.open(root, settings=settings()) as space:
        assert [line.number for line in space.blame("main", "long", start=4, limit=2)] == [4, 5]
        assert [line.text for line in space.blame("main", "long", start=8)] == ["8", "9"]
        assert space.blame("main", "long", start=10) == space.blame("main", "long", limit=0) == []
        with pytest.raises(InvalidInput, match="limit must be a number"):
            space.blame("main", "long", limit=-1)


def test_a_range_with_three_dots_is_refused(root: Path) -> None:
    with clia.open(root, settings=settings()) as space, pytest.raises(InvalidInput, match="two dots"):
        space.history.authorship("main...main")


def test_all_lines_of_a_very_large_file_are_refused_and_some_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_file(root, "large.txt", "1\n2\n3\n")
    monkeypatch.setattr("clia.space.attribution.blame.FILE_MAX", 5)
    with clia.open(root, settings=settings()) as space:
        for read in (lambda: space.blame("main", "large.txt"), lambda: space.history.blame_worktree("large.txt")):
            error = refused("file-too-large", read)
            assert error.fields["bytes"] == 6
        assert [line.text for line in space.blame("main", "large.txt", start=2, limit=1)] == ["2"]
