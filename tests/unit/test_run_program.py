"""``run_program``: what is refused before anything is made, and what goes wrong while the program runs."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from clia.app import run_program as run_module
from clia.app.run_program import Birth, RunReport, Wishes, World, run_program
from clia.errors import StoreError
from clia.ports.programs import User
from support import git, program
from support.effects import made_space
from support.fake_secrets import ALNUM
from support.spaces import refused, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import clia


@contextmanager
def deaf(listener: Callable[[int], None]) -> Iterator[None]:
    """Nobody sends signals to a test."""
    del listener
    yield


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with made_space(tmp_path / "shop", "parent") as made:
        yield made


def run(
    space: clia.Space, *words: str, agent: str = "scout", environment: dict[str, str] | None = None, **wishes: Any
) -> RunReport:
    """A run whose user neither types nor reads."""
    with open(os.devnull, "r+b", 0) as nothing:
        user = User(nothing.fileno(), nothing.fileno(), nothing.fileno(), False, deaf)
        world = World(user, environment or os.environ, lambda _: None)
        return run_program(space, Wishes(agent, words, **wishes), world)


def test_bad_wishes_are_refused_before_anything_is_made(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine\n")
    refs = git("for-each-ref", cwd=root)
    refused("no-program", lambda: run(space))
    refused("invalid-name", lambda: run(space, "true", agent="No Name"))
    refused("unknown-kind", lambda: run(space, "true", kind="nonsense"))
    refused("invalid-text", lambda: run(space, "true", message="\udcff"))
    refused("directory-in-use", lambda: run(space, "true", directory=str(tmp_path / "full")))
    refused("invalid-option", lambda: run(space, "true", birth=Birth(parent="parent", empty=True)))
    refused("no-such-agent", lambda: run(space, "true", birth=Birth(parent="nobody")))
    refused("agent-not-found", lambda: run(space, "true", birth=Birth(slug="nobody")))
    refused("program-not-found", lambda: run(space, "./none"))
    refused("program-not-found", lambda: run(space, "../none"))
    assert git("for-each-ref", cwd=root) == refs
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_while_the_store_is_away_the_program_goes_on_and_nothing_that_it_printed_is_lost(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, away = space.trace, [StoreError("away")]

    def once_away(name: str, kind: str, text: str, **more: Any) -> int:
        if kind == "console" and away:
            raise away.pop()
        return trace(name, kind, text, **more)

    monkeypatch.setattr(space, "trace", once_away)
    report = run(space, "sh", "-c", "echo one; echo two; exit 3")
    assert away == []
    assert (report.exit_code, report.problem) == (3, None)
    bound = space.trace_for(report.commit or "")
    assert bound is not None
    assert "".join(texts(bound.entries)) == "$ sh -c 'echo one; echo two; exit 3'one\ntwo\nexit code 3"


def test_a_line_of_one_stream_in_the_middle_of_a_key_on_the_other_does_not_let_its_rest_through(space: clia.Space) -> None:
    """White-box: which of two streams is read first is otherwise a matter of luck."""
    console = run_module._Console(space, "parent")
    key = [f"{ALNUM[:40]}{number:02}{ALNUM[:22]}" for number in range(4)]
    for line in ("-----BEGIN RSA PRIVATE KEY-----", *key, "-----END RSA PRIVATE KEY-----", "behind"):
        console.heard("stdout", f"{line}\n".encode())
        console.heard("stderr", b"these words are beside it\n")
    console.end(0)
    told = "".join(texts(space.trace_pending("parent")))
    assert told.count("these words are beside it\n") == 7
    assert "behind\n" in told
    assert [each for each in key if each in told] == []


def test_a_run_that_cannot_be_recorded_says_so_and_the_next_one_records_it(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = space.trace

    def full(name: str, kind: str, text: str, **more: Any) -> int:
        if text.startswith("exit code"):
            raise StoreError("full")
        return trace(name, kind, text, **more)

    with monkeypatch.context() as patched:
        patched.setattr(space, "trace", full)
        report = run(space, "sh", "-c", "echo said; echo made > made.txt")
    assert (report.exit_code, report.commit) == (0, None)
    assert report.problem is not None
    assert report.problem.message == "full"
    again = run(space, "true")
    assert again.left is not None
    assert space.files(again.left)["made.txt"] == b"made\n"
    bound = space.trace_for(again.left)
    assert bound is not None
    assert texts(bound.entries)[1:] == ["said\n"]


def test_commits_made_meanwhile_are_kept_and_work_that_cannot_go_on_top_is_said_to_be_where_it_is(
    space: clia.Space, tmp_path: Path
) -> None:
    """A commit from inside the worktree is no obstacle, nor is any where no file was changed; a file of another is."""
    outside = f"{program()} commit scout finding --path {tmp_path / 'shop'} --message"
    inside = f"{program()} commit scout finding --trace --message inside"
    assert run(space, "sh", "-c", f"echo 1 > one; echo early; {inside}; echo 2 > two").problem is None
    assert run(space, "sh", "-c", f"{outside} other --set three=two; echo only said").problem is None
    report = run(space, "sh", "-c", f"echo 4 > four; {outside} again --set three=one")
    assert report.problem is not None
    assert report.problem.code == "stale-ref"
    refused("stale-ref", lambda: run(space, "true"))  # nothing is run on top of it
    git("config", "user.name", "Tess", cwd=tmp_path / "shop")
    git("config", "user.email", "tess@example.org", cwd=tmp_path / "shop")
    how = "\n".join(hint.partition(": ")[2] for hint in report.problem.hints).replace("clia commit", f"{program()} commit")
    subprocess.run(["sh", "-ec", how], cwd=tmp_path, check=True, capture_output=True)
    assert run(space, "true").left is None
    assert space.files("scout") == {"one": b"1\n", "two": b"2\n", "three": b"1\n", "four": b"4\n"}
    assert {"inside", "other", "again"} < {each.subject for each in space.session_log("scout")}
    assert space.verify().findings == ()
