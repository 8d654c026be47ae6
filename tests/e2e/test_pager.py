"""The pager at a terminal: which one runs, for which commands, and what its reader sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia as library
from clia.cli.pager import PAGED, pager_of
from clia.cli.registry import TREE, Command, Group
from support import clia, git
from support.spaces import settings
from support.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK = "sed s/^/paged:/"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=tmp_path)
    with library.init(tmp_path, settings=settings()) as space:
        space.spawn("scout", library.Briefing("Count"))
        for number in range(30):
            space.commit("scout", "finding", changes={"n.txt": f"{number}\n".encode()}, message=f"commit number {number}")
    return tmp_path


def shown(shop: Path, *words: str, **env: str) -> list[str]:
    with Terminal(shop, *words, env=env) as person:
        assert person.ends() == 0
        return person.plain.splitlines()


def test_a_long_log_goes_to_the_pager_that_git_uses(shop: Path) -> None:
    git("config", "core.pager", MARK, cwd=shop)
    lines = shown(shop, "log", "scout")
    assert lines[0].startswith("paged:")
    assert [line.count("paged:") for line in lines] == [1] * len(lines)
    assert sum("commit number" in line for line in lines) == 30


def test_clia_pager_wins_over_gits(shop: Path) -> None:
    git("config", "core.pager", "sed s/^/gits:/", cwd=shop)
    assert shown(shop, "log", "scout", CLIA_PAGER=MARK)[0].startswith("paged:")
    for none in ("", "cat"):
        assert "commit number 29" in "\n".join(shown(shop, "log", "scout", CLIA_PAGER=none))


@pytest.mark.parametrize("words", [("--no-pager", "log", "scout"), ("log", "--no-pager", "scout")])
def test_no_pager_prints_directly(shop: Path, words: tuple[str, ...]) -> None:
    assert not any("paged:" in line for line in shown(shop, *words, CLIA_PAGER=MARK))


def test_no_pager_where_standard_output_is_no_terminal_or_a_dumb_one(shop: Path) -> None:
    assert "paged:" not in clia("log", "scout", cwd=shop, env={"CLIA_PAGER": MARK, "TERM": "xterm"}).out
    assert not any("paged:" in line for line in shown(shop, "log", "scout", CLIA_PAGER=MARK, TERM="dumb"))


def test_a_pager_that_is_missing_is_left_out(shop: Path) -> None:
    assert sum("commit number" in line for line in shown(shop, "log", "scout", CLIA_PAGER="no-such-pager -x")) == 30


def test_a_reader_who_leaves_early_ends_the_command_quietly(shop: Path) -> None:
    lines = shown(shop, "log", "scout", CLIA_PAGER="head -n 2")
    assert len(lines) == 2
    assert "Traceback" not in "\n".join(lines)


def test_colours_reach_the_pager_unless_no_color_is_set(shop: Path) -> None:
    with Terminal(shop, "log", "scout", env={"CLIA_PAGER": MARK}) as person:
        person.ends()
        assert "\x1b[" in person.shown
    with Terminal(shop, "log", "scout", env={"CLIA_PAGER": MARK, "NO_COLOR": "1"}) as person:
        person.ends()
        assert "\x1b[3" not in person.shown


def test_less_prints_short_output_and_ends(shop: Path) -> None:
    assert any("scout" in line for line in shown(shop, "list", CLIA_PAGER="less", LINES="40"))


def test_every_paged_command_exists() -> None:
    def names(group: Group, before: str = "") -> Iterator[str]:
        for name, entry in group.commands.items():
            if isinstance(entry, Command):
                yield f"{before}{name}"
            else:
                yield from names(entry, f"{before}{name} ")

    assert set(names(TREE)) >= PAGED


def test_the_pager_of_git_is_asked_only_if_clia_pager_is_unset() -> None:
    assert pager_of({"CLIA_PAGER": "more", "PATH": "/usr/bin:/bin"}) == "more"
    assert pager_of({"GIT_PAGER": "more", "PATH": "/usr/bin:/bin"}) == "more"
    assert pager_of({"GIT_PAGER": "cat", "PATH": "/usr/bin:/bin"}) == ""
