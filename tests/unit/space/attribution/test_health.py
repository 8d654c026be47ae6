"""Why lines have no author, or the wrong one: ``doctor`` names each reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.attribution.notes import CommitAttribution, to_bytes
from clia.space.core import UNREADABLE
from clia.testing import components
from clia.values import refs as names
from support import git
from support.captured import new_space
from support.plain_git import commit_file, rev
from support.space_driver import settings
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[4]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "repo")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened


def codes(space: clia.Space) -> list[str]:
    return [finding.code for finding in space.local.line_findings()]


def agent_writes(space: clia.Space, text: bytes = b"plums\npears\n") -> None:
    space.spawn("scout", BRIEFING)
    space.commit("scout", "finding", {"list.txt": text}, message="A list")


def note(space: clia.Space, commit: str, data: bytes) -> None:
    core = components(space).core
    core.notes.bind_all(names.ATTRIBUTION, {commit: data}, core.person_stamp(), "a note\n", lambda _, new: new)


def test_every_reason_is_in_the_documentation() -> None:
    source = (PROJECT / "src/clia/space/attribution/health.py").read_text()
    in_code = set(re.findall(r'LineFinding\(\s*"([a-z-]+)"', source))
    page = (PROJECT / "docs/how-to/authorship.md").read_text().partition("| code |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == in_code


def test_a_clone_with_everything_has_no_finding(space: clia.Space, root: Path) -> None:
    agent_writes(space)
    commit_file(root, "list.txt", "plums\npears\nmine\n")
    assert [line.agent for line in space.blame("main", "list.txt")] == ["scout", "scout", None]
    assert codes(space) == []


def test_commits_that_were_not_compared_yet_are_found_until_a_command_compares_them(space: clia.Space, root: Path) -> None:
    agent_writes(space)
    space.history.authorship("main")
    commit_file(root, "list.txt", "plums\npears\n")
    assert codes(space) == ["lines-not-compared"]
    space.history.authorship("main")
    assert codes(space) == []


def test_agents_of_a_remote_that_were_not_adopted_are_named(space: clia.Space, root: Path) -> None:
    git("update-ref", "refs/remotes/origin/agents/scout", "HEAD", cwd=root)
    (finding,) = space.local.line_findings()
    assert (finding.code, finding.severity) == ("agents-not-here", "warning")
    assert "scout" in finding.message
    agent_writes(space)
    assert "agents-not-here" not in codes(space)


def test_a_shallow_clone_is_found(space: clia.Space, root: Path) -> None:
    commit_file(root, "list.txt", "plums\n")
    (root / ".git/shallow").write_text(f"{rev(root, 'HEAD')}\n")
    assert codes(space) == ["shallow-clone"]


def test_a_partial_clone_that_lacks_files_of_agents_is_found(space: clia.Space, root: Path) -> None:
    agent_writes(space)
    git("config", "remote.origin.promisor", "true", cwd=root)
    assert codes(space) == ["partial-clone"]
    space.history.authorship("main")
    assert codes(space) == []


def test_notes_of_a_later_version_and_files_that_were_not_compared_are_found(space: clia.Space, root: Path) -> None:
    first, second = commit_file(root, "a.txt", "1\n"), commit_file(root, "b.txt", "1\n")
    note(space, first, b'{"type":"attribution","version":99}')
    note(space, second, to_bytes(CommitAttribution({}, frozenset({"b.txt"}))))
    assert codes(space) == ["notes-unreadable", "files-not-compared"]
    assert first[:12] in space.local.line_findings()[0].message


def test_damage_does_not_stop_the_other_checks(space: clia.Space, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise UNREADABLE[0]("damaged")

    agent_writes(space)
    (root / ".git/shallow").write_text(f"{rev(root, 'HEAD')}\n")
    monkeypatch.setattr(components(space).line_diffs, "is_partial", fail)
    assert codes(space) == ["shallow-clone"]
