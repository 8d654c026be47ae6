"""``run_program``: invalid options, and failures while the program runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture import run_program as run_module
from clia.capture.run_program import SpawnOptions
from clia.errors import StoreError
from support import git, program
from support.effects import made_space
from support.fake_secrets import ALNUM
from support.plain_git import commit_file
from support.programs import run
from support.spaces import refused, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import clia


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with made_space(tmp_path / "shop", "parent") as opened:
        yield opened


def test_invalid_options_are_refused_before_anything_is_created(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine\n")
    refs = git("for-each-ref", cwd=root)
    refused("no-program", lambda: run(space))
    refused("invalid-name", lambda: run(space, "true", agent="No Name"))
    refused("unknown-kind", lambda: run(space, "true", kind="nonsense"))
    refused("invalid-text", lambda: run(space, "true", message="\udcff"))
    refused("directory-in-use", lambda: run(space, "true", directory=str(tmp_path / "full")))
    refused("invalid-option", lambda: run(space, "true", birth=SpawnOptions(parent="parent", empty=True)))
    refused("no-such-agent", lambda: run(space, "true", birth=SpawnOptions(parent="nobody")))
    refused("agent-not-found", lambda: run(space, "true", birth=SpawnOptions(slug="nobody")))
    refused("program-not-found", lambda: run(space, "./none"))
    refused("program-not-found", lambda: run(space, "../none"))
    assert git("for-each-ref", cwd=root) == refs
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_the_program_continues_while_the_store_is_unavailable_and_no_output_is_lost(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, errors_left = space.trace, [StoreError("away")]

    def trace_or_fail(name: str, kind: str, text: str, **more: Any) -> int:
        if kind == "console" and errors_left:
            raise errors_left.pop()
        return trace(name, kind, text, **more)

    monkeypatch.setattr(space, "trace", trace_or_fail)
    report = run(space, "sh", "-c", "echo one; echo two; exit 3")
    assert errors_left == []
    assert (report.exit_code, report.problem) == (3, None)
    commit_trace = space.trace_for(report.commit or "")
    assert commit_trace is not None
    assert "".join(texts(commit_trace.entries)) == "$ sh -c 'echo one; echo two; exit 3'one\ntwo\nexit code 3"


def test_a_key_on_one_stream_is_redacted_despite_lines_of_the_other_in_between(space: clia.Space) -> None:
    """Tests an internal class, because the order in which two streams are read is not deterministic."""
    console = run_module.ConsoleRecorder(space, "parent")
    key_lines = [f"{ALNUM[:40]}{number:02}{ALNUM[:22]}" for number in range(4)]
    for line in ("-----BEGIN RSA PRIVATE KEY-----", *key_lines, "-----END RSA PRIVATE KEY-----", "behind"):
        console.heard("stdout", f"{line}\n".encode())
        console.heard("stderr", b"these words are beside it\n")
    console.end(0)
    text = "".join(texts(space.trace_pending("parent")))
    assert text.count("these words are beside it\n") == 7
    assert "behind\n" in text
    assert [key_line for key_line in key_lines if key_line in text] == []


def test_output_is_recorded_in_order_across_streams(space: clia.Space) -> None:
    """Tests an internal class, as above. An unfinished line takes its place when it ends."""
    console = run_module.ConsoleRecorder(space, "parent")
    for stream, text in (("out", "1\n"), ("err", "2\n"), ("err", "3\nhalf "), ("out", "4\n"), ("err", "5\n"), ("out", "6\n")):
        console.heard(f"std{stream}", text.encode())
    console.end(0)
    assert "".join(texts(space.trace_pending("parent"))) == "1\n2\n3\n4\nhalf 5\n6\nexit code 0"


def test_a_run_that_cannot_be_recorded_is_reported_and_recorded_by_the_next(
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
    next_run = run(space, "true")
    assert next_run.left is not None
    assert space.files(next_run.left)["made.txt"] == b"made\n"
    commit_trace = space.trace_for(next_run.left)
    assert commit_trace is not None
    assert texts(commit_trace.entries)[1:] == ["said\n"]


def test_commits_made_meanwhile_are_kept_and_conflicting_work_is_reported_with_its_location(
    space: clia.Space, tmp_path: Path
) -> None:
    """A commit from inside the worktree does not conflict, nor does one if no file was changed; another's change of a file does."""
    outside = f"{program()} commit scout finding --path {tmp_path / 'shop'} --message"
    inside = f"{program()} commit scout finding --trace --message inside"
    assert run(space, "sh", "-c", f"echo 1 > one; echo early; {inside}; echo 2 > two").problem is None
    assert run(space, "sh", "-c", f"{outside} other --set three=two; echo only said").problem is None
    report = run(space, "sh", "-c", f"echo 4 > four; {outside} again --set three=one")
    assert report.problem is not None
    assert report.problem.code == "stale-ref"
    refused("stale-ref", lambda: run(space, "true"))  # nothing runs on top of it
    git("config", "user.name", "Tess", cwd=tmp_path / "shop")
    git("config", "user.email", "tess@example.org", cwd=tmp_path / "shop")
    commands = "\n".join(hint.partition(": ")[2] for hint in report.problem.hints).replace("clia commit", f"{program()} commit")
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    assert run(space, "true").left is None
    assert space.files("scout") == {"one": b"1\n", "two": b"2\n", "three": b"1\n", "four": b"4\n"}
    assert {"inside", "other", "again"} < {commit.subject for commit in space.session_log("scout")}
    assert space.verify().findings == ()


def left_out(space: clia.Space, commit: str | None) -> dict[str, str]:
    """The files that the trace of a commit names as not recorded, and why."""
    trace = space.traces.of(commit or "")
    notes = [entry["data"]["left_out"] for entry in (trace.entries if trace else ()) if "left_out" in entry.get("data", {})]
    return {file["path"]: file["code"] for note in notes for file in note}


def test_large_files_and_secrets_of_a_program_stay_in_its_worktree(space: clia.Space, tmp_path: Path) -> None:
    """They are named in the trace, and the next run does not commit again because of them."""
    key = "ghp_" + ALNUM[:36]
    script = f"truncate -s 300000000 data.bin; echo KEY={key} > .env; git add .env; echo made > made.txt"
    report = run(space, "sh", "-c", script)
    assert (report.problem, report.files) == (None, 1)
    assert left_out(space, report.commit) == {".env": "secret", "data.bin": "too-large"}
    assert {"data.bin", ".env", "made.txt"} < set(os.listdir(report.directory))
    tree = space.show(report.commit or "").tree
    again = run(space, "true")
    assert (again.left, again.files, space.show(again.commit or "").tree) == (None, 0, tree)
    reasons = (
        ".env: it seems to contain a secret: github-token in line 1",
        "data.bin: 300 MB, more than the limit of 10 MB",
    )
    assert report.left_out == again.left_out == reasons, "each run is told"
    words = ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objectsize)"]
    sizes = subprocess.run(words, cwd=tmp_path / "shop", capture_output=True, check=True).stdout.split()
    assert max(map(int, sizes)) < 100_000


def test_a_commit_that_a_program_made_itself_is_adopted_as_it_is(space: clia.Space) -> None:
    """It is history. Further changes of its files are checked again."""
    key, other = "ghp_" + ALNUM[:36], "ghp_" + ALNUM[36:][::-1] + ALNUM[:20]
    commit = "git -c user.name=x -c user.email=x@example.com commit -qm keys"
    report = run(space, "sh", "-c", f"echo KEY={key} > .env; git add .env; {commit}; echo MORE={other} >> .env")
    assert (report.adopted, report.problem) == (1, None)
    assert left_out(space, report.commit) == {".env": "secret"}
    assert space.files(report.commit or "")[".env"] == f"KEY={key}\n".encode()


WORKTREES = {
    "kept": ("../beside", ""),
    "inside its own": (".tool/beside", ""),
    "removed again": ("../beside", "git worktree remove ../beside"),
    "merged and removed": ("../beside", "git merge -q topic && git worktree remove ../beside"),
}


@pytest.mark.parametrize("kind", WORKTREES)
def test_commits_in_a_worktree_that_a_program_adds_are_its_agents(space: clia.Space, tmp_path: Path, kind: str) -> None:
    """A person has a worktree before, and adds one meanwhile, with commits that stay theirs."""
    root = tmp_path / "shop"
    commit_file(root, "stock.txt", "figs 2\n")
    for name in ("old", "new"):
        git("worktree", "add", "-q", "-b", name, str(tmp_path / name), cwd=root)
    git("worktree", "remove", str(tmp_path / "new"), cwd=root)
    place, end = WORKTREES[kind]
    commit = "git -c user.name=x -c user.email=x@example.com commit -q"
    persons = f"git -C {root} worktree add -q {tmp_path / 'new'} new"
    for name in ("old", "new"):
        persons += f" && (cd {tmp_path / name} && echo {name} >> stock.txt && {commit} -am {name})"
    tools = f"git worktree add -q -b topic {place} && (cd {place} && echo plums 3 >> stock.txt && {commit} -am Plums)"
    report = run(space, "sh", "-ec", f"{persons}; {tools}; {end or 'true'}", birth=SpawnOptions(at="HEAD"))
    assert (report.exit_code, report.problem, report.adopted) == (0, None, 1)
    assert [line.agent for line in space.blame("topic", "stock.txt")] == [None, "scout"]
    for name in ("old", "new"):
        assert [line.agent for line in space.blame(name, "stock.txt")] == [None, None]
    assert run(space, "true").adopted == 0
    assert space.verify().findings == ()


def test_commits_in_a_worktree_of_a_killed_program_are_adopted_by_the_next_run(space: clia.Space, tmp_path: Path) -> None:
    commit_file(tmp_path / "shop", "stock.txt", "figs 2\n")
    report = run(space, "true", birth=SpawnOptions(at="HEAD"))
    space.captures.watch_programs(report.directory, running=True)  # the program starts, and clia is killed before it ends
    beside = tmp_path / "beside"
    git("worktree", "add", "-q", "-b", "topic", str(beside), cwd=Path(report.directory))
    commit_file(beside, "stock.txt", "figs 2\nplums 3\n")
    again = run(space, "true")
    assert space.show(again.left or "").adopted
    commit_file(beside, "stock.txt", "figs 2\nplums 3\nmine\n")  # a person's, between two runs
    assert run(space, "true").adopted == 0
    assert [line.agent for line in space.blame("topic", "stock.txt")] == [None, "scout", None]


def test_a_stash_of_a_person_that_a_program_pops_is_kept(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    commit_file(root, "stock.txt", "figs 2\n")
    (root / "stock.txt").write_text("figs 3\n")
    git("stash", "-q", cwd=root)
    stash = git("rev-parse", "refs/stash", cwd=root).strip()
    report = run(space, "git", "stash", "pop", "-q", birth=SpawnOptions(at="HEAD"))
    assert report.problem is None
    assert git("stash", "list", cwd=root) == ""
    assert stash in git("rev-list", f"refs/clia/own/{report.agent}", cwd=root).split()
    assert stash not in git("fsck", "--unreachable", "--no-reflogs", cwd=root)


def test_a_program_gets_the_guardrails_of_its_agent_in_a_file(space: clia.Space, tmp_path: Path) -> None:
    write_rules(tmp_path / "shop", "Never deploy.")
    report = run(space, "sh", "-c", 'cat "$CLIA_INSTRUCTIONS" > seen.txt', birth=SpawnOptions(text="Fix the till.", slug="worker"))
    seen = seen_by(space, report.commit)
    assert seen.index("- Never deploy.") < seen.index("Fix the till.")
    file = os.path.join(os.path.dirname(report.directory), f"{report.agent}.instructions.md")
    assert os.stat(file).st_mode & 0o777 == 0o600
    write_rules(tmp_path / "shop", "Ask first.")
    told: list[str] = []
    report = run(space, "sh", "-c", 'cat "$CLIA_INSTRUCTIONS" > seen.txt', tell=told.append)
    seen = seen_by(space, report.commit)
    assert "- Never deploy.\n- Ask first.\n" in seen
    assert any("Never deploy." in line for line in told)


def test_no_program_runs_while_documents_of_its_agents_identity_cannot_be_read(space: clia.Space, tmp_path: Path) -> None:
    path = write_rules(tmp_path / "shop", "Never deploy.")
    run(space, "true", birth=SpawnOptions(slug="worker"))
    head = space.head("scout")
    path.write_text("{")
    refused("incomplete-profile", lambda: run(space, "true"))
    refused("empty-value", lambda: run(space, "true", birth=SpawnOptions(accept_incomplete=" ")))
    assert space.head("scout") == head
    report = run(space, "true", birth=SpawnOptions(accept_incomplete="it is mended tomorrow"))
    trace = space.trace_for(report.commit or "")
    assert trace is not None
    assert any("it is mended tomorrow" in entry["text"] for entry in trace.entries)


def write_rules(root: Path, *guardrails: str) -> Path:
    path = root / ".clia/agents/worker/worker@shop.agent.triad.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"slug": "worker", "guardrails": guardrails}))
    return path


def seen_by(space: clia.Space, commit: str | None) -> str:
    data = space.files(commit or "")["seen.txt"]
    assert isinstance(data, bytes)
    return data.decode()
