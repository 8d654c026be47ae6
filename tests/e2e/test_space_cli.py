"""The commands of a space as installed: from ``init`` and ``spawn`` to ``graph``, on real repositories."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pytest

import clia as library
from support import Ran, Tree, clia, git, warm
from support.fake_secrets import ALNUM
from support.plain_git import commit_file

if TYPE_CHECKING:
    from collections.abc import Iterator

RED = "\x1b[31mred\x1b[0m"
HARMLESS = "\\u{1b}[31mred\\u{1b}[0m"
UTF8 = {"LC_ALL": "C.UTF-8"}


class SpaceCli:
    """Commands in a repository with a space; their exit code is checked."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> Ran:
        ran = clia(*words, cwd=self.root, env=UTF8 | (env or {}))
        assert ran.code == code, ran
        return ran

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self.run(*words, "--json", code=code)
        assert ran.err == ""
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error as JSON; standard output must be empty."""
        ran = self.run(*words, "--json", code=code)
        assert ran.out == ""
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

    def git(self, *words: str) -> str:
        return git(*words, cwd=self.root).strip()

    def write(self, name: str, text: str) -> str:
        path = self.root.parent / name
        path.write_text(text)
        return str(path)

    def refs(self) -> str:
        return self.git("for-each-ref")


def repository(root: Path) -> Path:
    """A user's repository with one commit and without waits for the disk."""
    root.mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=root)
    settle(root)
    (root / "a.txt").write_text("one\n")
    git("add", ".", cwd=root)
    git("commit", "-q", "-m", "first", cwd=root)
    return root


def settle(root: Path) -> None:
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)


def spawned(root: Path, *names: str) -> SpaceCli:
    """A space with agents at the user's HEAD, made by the library, which is faster than the program."""
    with library.init(repository(root)) as space:
        for name in names:
            space.spawn_at(name, library.Briefing(f"Task of {name}"), "HEAD")
    return SpaceCli(root)


@pytest.fixture
def place(tmp_path: Path) -> SpaceCli:
    return spawned(tmp_path.resolve() / "w", "scout")


# init


def test_init_creates_a_space_once(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "new"
    ran = clia("init", str(root))
    assert ran.code == 0
    identity = library.open(root).id
    assert ran.out.splitlines() == [f"new space {identity} in {root}", "next: clia spawn NAME --title TITLE"]
    assert git("symbolic-ref", "HEAD", cwd=root).strip() == "refs/heads/main"
    again = clia("init", "--json", cwd=root)
    nothing: dict[str, list[str]] = {"adopted": [], "remotes": [], "published": []}
    assert again.json() == {"space": identity, "path": str(root), "created": False, "hub": None, "moved": None, **nothing}
    assert clia("init", cwd=root).out == f"space {identity} in {root}\n"
    below = root / "sub"
    below.mkdir()
    assert clia("init", "sub", "--json", cwd=root).json()["path"] == str(root)


def test_init_does_not_create_a_git_repository(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for directory, code in ((tmp_path, "no-such-repository"), (tmp_path / "file", "not-a-directory")):
        ran = clia("init", str(directory))
        assert (ran.code, ran.out) == (2, "")
        assert f"error: {code}: " in ran.err
    assert os.listdir(tmp_path) == ["file"]


def test_init_in_a_clone_adopts_the_space_and_later_what_is_new(place: SpaceCli, tmp_path: Path) -> None:
    hub, clone = tmp_path / "hub.git", SpaceCli(tmp_path.resolve() / "clone")
    git("clone", "-q", "--bare", str(place.root), str(hub), cwd=tmp_path)
    place.git("remote", "add", "origin", str(hub))
    place.run("publish", "scout")
    git("clone", "-q", str(hub), str(clone.root), cwd=tmp_path)
    settle(clone.root)
    first = clone.run("init", env={"COLUMNS": "40"})  # lines are never truncated or wrapped
    assert first.out.startswith(f"adopted the space {library.open(place.root).id} in {clone.root}\n")
    assert f"  new      refs/heads/agents/scout  {place.git('rev-parse', '--short=10', 'agents/scout')}\n" in first.out
    rules = [f"+refs/{pattern}" for pattern in ("clia/*", "notes/clia/*", "heads/agents/*")]
    assert clone.git("config", "--get-all", "remote.origin.fetch") == "+refs/heads/*:refs/remotes/origin/*"
    assert clone.git("for-each-ref", "refs/clia-tracking") == ""  # everything is adopted
    assert clone.run("list").out.splitlines()[1].startswith("scout  spawn  spawn: Task of scout")
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    head = place.json("publish", "scout")
    assert {"ref": "refs/clia/agents-published/scout", "state": "moved", "reason": ""} in head
    assert clone.json("init", "--no-adopt")["adopted"] == []
    report = clone.json("init")
    assert (report["created"], report["adopted"]) == (
        False,
        [{"ref": "refs/heads/agents/scout", "what": "ahead", "cid": place.git("rev-parse", "agents/scout")}],
    )
    assert [(remote["name"], [rule.split(":")[0] for rule in remote["fetch"]]) for remote in report["remotes"]] == [
        ("origin", rules)
    ]
    refused = clone.run("commit", "scout", "finding", "--set", f"c={place.write('c', 'clone')}", code=1)
    assert "error: foreign-agent: " in refused.err
    clone.run("init", "--claim", "scout")
    for clone_or_origin in (place, clone):
        clone_or_origin.run("commit", "scout", "finding", "--set", f"c={place.write('c', clone_or_origin.root.name)}")
    place.run("publish", "scout")
    assert "  diverged refs/heads/agents/scout  " in clone.run("init").out


def test_init_in_a_clone_of_an_empty_origin_creates_a_space(place: SpaceCli, tmp_path: Path) -> None:
    """Only refs of the remote count as adopted."""
    git("init", "-q", "--bare", str(tmp_path / "hub.git"), cwd=tmp_path)
    other_repository = repository(tmp_path / "other")
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=other_repository)
    report = clia("init", "--json", cwd=other_repository).json()
    assert (report["created"], report["adopted"]) == (True, [])
    assert [remote["name"] for remote in report["remotes"]] == ["origin"]


def test_init_with_an_unreachable_remote_has_a_hint(place: SpaceCli) -> None:
    place.git("remote", "add", "gone", str(place.root / "nowhere"))
    ran = place.run("init", code=1)
    assert "error: transport-error: git could not fetch from gone" in ran.err
    assert "  hint: ask no remote with: clia init --no-adopt\n" in ran.err
    place.run("init", "--no-adopt")
    fresh = SpaceCli(repository(place.root.parent / "fresh"))
    fresh.git("remote", "add", "gone", "nowhere")
    assert fresh.refused("init", code=1)["hints"] == ["ask no remote with: clia init --no-adopt"]
    assert "refs/clia" not in fresh.refs()
    assert fresh.json("init", "--no-adopt")["created"] is True


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("mysql://host/db", "invalid-store"),
        ("://[", "invalid-store"),
        ("", "invalid-store"),
        ("postgresql://me:secret@host/db", "password-in-store"),
        ("postgresql://host/db?password=secret", "password-in-store"),
    ],
)
def test_init_refuses_invalid_store_addresses_and_passwords(tmp_path: Path, address: str, code: str) -> None:
    ran = clia("init", str(tmp_path / "new"), "--store", address)
    assert (ran.code, ran.out) == (2, "")
    assert f"error: {code}: " in ran.err
    assert "secret" not in ran.err
    assert not (tmp_path / "new").exists()


def test_init_stores_the_address_of_the_store_for_all_processes(tmp_path: Path, postgres_address: str) -> None:
    host, user, base, options = (part.partition("=")[2].strip("'") for part in postgres_address.split(" ", 3))
    address = f"postgresql://{user}@/{base}?host={quote(host, safe='')}&options={quote(options, safe='')}"
    root = repository(tmp_path / "w")
    assert clia("init", "--store", address, cwd=root).code == 0
    assert git("config", "clia.store", cwd=root).strip() == address
    assert clia("spawn", "scout", "-t", "x", cwd=root).code == 0
    assert clia("list", "--json", cwd=root).json()[0]["agent"] == "scout"
    assert not (root / ".git/clia/space.db").exists()


# spawn


def test_spawn_forks_at_head_by_default(place: SpaceCli) -> None:
    head = place.git("rev-parse", "HEAD")
    ran = place.run("spawn", "one", "-t", "Find the leak", "-b", "look\nhard", "--meta", "n=1", "--meta", "who=Tess")
    genesis, briefing = place.git("rev-parse", "agents/one"), library.open(place.root).show("one").briefing
    assert briefing is not None
    assert ran.out.splitlines() == [
        f"spawned one at {genesis[:10]}, branch agents/one",
        f"briefing {briefing[:10]}",
        "next: clia checkout one DIR",
    ]
    assert place.git("rev-parse", "agents/one^") == head
    assert place.json("show", "one")["briefing"] == {
        "title": "Find the leak",
        "text": "look\nhard",
        "behaviour": None,
        "meta": {"n": 1, "who": "Tess"},
    }
    spawned = place.json("spawn", "two", "-t", "x", "--empty")
    assert list(spawned) == ["agent", "branch", "briefing", "genesis", "profile", "warnings"]
    assert place.git("ls-tree", "agents/two") == ""
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    place.run("spawn", "three", "-t", "x", "--from", "scout")
    assert place.git("rev-parse", "agents/three^") == place.git("rev-parse", "agents/scout")
    place.run(
        "spawn", "four", "-t", "x", "--at", "agents/scout~1", "--parent", "scout", "--file", place.write("text", "from a file")
    )
    assert place.git("rev-parse", "agents/four^") == place.git("rev-parse", "agents/scout~1")
    assert place.json("show", "four")["briefing"]["text"] == "from a file"
    assert place.json("show", "scout")["sub_agents"] == ["four", "three"]


def test_spawn_before_the_first_commit_starts_empty(tmp_path: Path) -> None:
    clia("init", cwd=tmp_path)
    assert clia("spawn", "scout", "-t", "x", cwd=tmp_path).code == 0
    assert git("log", "--format=%s%n%P", "agents/scout", cwd=tmp_path) == "spawn: x\n\n"


def test_spawn_forks_at_the_head_of_the_worktree_that_path_names(place: SpaceCli) -> None:
    linked = place.root.parent / "linked"
    place.git("worktree", "add", "-q", "-b", "topic", str(linked))
    git("commit", "-q", "--allow-empty", "-m", "topic", cwd=linked)
    place.run("spawn", "one", "-t", "x", "--path", str(linked))
    assert place.git("rev-parse", "agents/one^") == place.git("rev-parse", "topic")


def test_spawn_freezes_the_profile_and_show_puts_its_guardrails_first(place: SpaceCli) -> None:
    Tree(place.root.parent).agent("w", "sentry", guardrails=["Never push", {"text": f"MUST ask {RED}"}])
    spawned = place.json("spawn", "guard", "-t", "x", "--as", "sentry")
    assert spawned["profile"] is not None
    profile = place.json("show", "guard")["profile"]
    assert (profile["slug"], profile["document"]["guardrails"][0]) == ("sentry", "Never push")
    lines = place.run("show", "guard").out.splitlines()
    assert lines[:3] == ["guard", "  ! Never push", f"  ! MUST ask {HARMLESS}"]
    assert lines[3].split() == ["profile", "sentry"]
    assert place.refused("spawn", "other", "-t", "x", "--as", "nobody")["code"] == "agent-not-found"


def test_spawn_refuses_an_unreadable_identity_unless_a_reason_is_given(place: SpaceCli) -> None:
    tree = Tree(place.root.parent)
    tree.agent("w", "sentry", guardrails=["Never push"], inherits=["root.agent.triad.json"])
    tree.write("w/root.agent.triad.json", "{")
    refusal = place.refused("spawn", "guard", "-t", "x", "--as", "sentry", code=1)
    assert refusal["code"] == "incomplete-profile"
    assert refusal["hints"][-1] == "or accept it: --accept-incomplete REASON"
    place.run("spawn", "guard", "-t", "x", "--as", "sentry", "--accept-incomplete", "the root is being rewritten")
    assert "incomplete  the root is being rewritten" in place.run("show", "guard").out


def test_spawn_names_the_behaviour_behind_a_briefing(place: SpaceCli) -> None:
    with library.open(place.root) as space:
        prompt = space.add_behaviour("first-ask", "Ask first.", "prompt").cid
    place.run("spawn", "one", "-t", "x", "--behaviour", prompt)
    assert place.json("show", "agents/one")["behaviour"] == prompt
    assert place.json("show", "one")["briefing"]["behaviour"] == prompt


def test_secrets_are_refused_in_briefings_and_commits_by_default(place: SpaceCli) -> None:
    token = "ghp_" + ALNUM[:36]
    place.run("spawn", "one", "-t", "x", "-b", token)
    assert token not in place.json("show", "one")["briefing"]["text"]
    place.run("spawn", "two", "-t", "x", "-b", token, "--no-redact")
    assert place.json("show", "two")["briefing"]["text"] == token
    words = ("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}", "-m", token)
    assert token not in place.run(*words).out
    place.run("commit", "scout", "finding", "--remove", "b", "-m", token, "--no-redact")
    assert place.json("log", "scout", "-n", "1")[0]["message"] == token


@pytest.mark.parametrize(
    ("words", "exit_code", "error"),
    [
        (["scout", "-t", "x"], 1, "already-exists"),
        (["Scout", "-t", "x"], 2, "invalid-name"),
        (["one", "-t", " "], 2, "invalid-object"),
        (["one", "-t", "x", "--parent", "scout"], 2, "invalid-option"),
        (["one", "-t", "x", "--from", "nobody"], 2, "no-such-agent"),
        (["one", "-t", "x", "--at", "nothing"], 2, "no-such-object"),
        (["one"], 2, "invalid-option"),
        (["one", "--agenda", "refunds"], 2, "agent-not-found"),
        (["one", "-t", "x", "--behaviour", "abc"], 2, "no-such-version"),
        (["one", "-t", "x", "--meta", "word"], 2, "invalid-meta"),
        (["one", "-t", "x", "--file", "gone"], 1, "file-error"),
    ],
)
def test_a_spawn_that_is_refused_changes_nothing(history: RecordedHistory, words: list[str], exit_code: int, error: str) -> None:
    before = history.place.refs()
    assert history.place.refused("spawn", *words, code=exit_code)["code"] == error
    assert history.place.refs() == before


@pytest.mark.parametrize(
    "words",
    [
        ["spawn", "one", "-t", "x", "-b", "x", "--file", "x"],
        ["spawn", "one", "-t", "x", "--empty", "--at", "HEAD"],
        ["land", "scout", "--ff", "--squash"],
        ["log", "scout", "-n", "0"],
        ["graph", "-n", "many"],
    ],
)
def test_conflicting_options_print_a_usage_message(tmp_path: Path, words: list[str]) -> None:
    ran = clia(*words, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: usage: ")
    assert ran.err.endswith(f"  hint: clia {words[0]} --help\n")


# commit and checkout


def test_work_in_a_checkout_is_committed_from_anywhere_in_it(place: SpaceCli, tmp_path: Path) -> None:
    checkout = SpaceCli(tmp_path.resolve() / "co")
    head = place.git("rev-parse", "agents/scout")
    assert place.json("checkout", "scout", "../co") == {"agent": "scout", "directory": str(checkout.root), "commit": head}
    (checkout.root / "deep").mkdir()
    (checkout.root / "deep/new.txt").write_text("new\n")
    (checkout.root / "a.txt").unlink()
    with library.open(place.root) as space:
        space.trace("scout", "console", "hello")
    inside = SpaceCli(checkout.root / "deep")
    ran = inside.run("commit", "scout", "finding", "-m", "found it\n\nin the cellar", "--meta", "where=cellar", "--trace")
    cid = place.git("rev-parse", "agents/scout")
    assert ran.out == f"{cid[:10]} finding by scout: found it  (1 traced)\n"
    assert place.git("ls-tree", "-r", "--name-only", "agents/scout") == "deep/new.txt"
    assert checkout.git("status", "--short") == ""
    commit = place.json("show", cid)
    assert (commit["parents"], commit["message"], commit["meta"]) == ([head], "found it\n\nin the cellar", {"where": "cellar"})
    (checkout.root / "b").write_text("b")
    assert place.json("commit", "scout", "test", "--path", str(inside.root)) == {
        "commit": place.git("rev-parse", "agents/scout"),
        "parent": cid,
        "agent": "scout",
        "kind": "test",
        "adopted": [],
        "kept": [],
        "traced": 0,
    }
    assert place.run("log", "scout", "-n", "1").out.endswith("  scout  test  test by scout\n")


def test_a_checkout_is_updated_to_the_head_and_belongs_to_one_agent(place: SpaceCli, tmp_path: Path) -> None:
    co = tmp_path.resolve() / "co"
    place.run("checkout", "scout", str(co))
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    (co / "c").write_text("c")
    assert SpaceCli(co).refused("commit", "scout", "finding", code=1)["code"] == "stale-ref"
    head = place.git("rev-parse", "--short=10", "agents/scout")
    assert place.run("checkout", "scout", str(co), env={"COLUMNS": "20"}).out == f"checked out scout at {head} in {co}\n"
    assert (co / "b").read_text() == "b"
    place.run("spawn", "other", "-t", "x")
    assert place.refused("checkout", "other", str(co), code=1)["code"] == "other-checkout"
    assert SpaceCli(co).refused("commit", "other", "finding")["code"] == "nothing-to-commit"
    assert place.refused("commit", "other", "finding", "--dir", str(co), code=1)["code"] == "other-checkout"
    assert place.refused("checkout", "scout", ".", code=1)["code"] == "directory-in-use"
    assert place.refused("checkout", "nobody", "../else")["code"] == "no-such-agent"
    assert not (tmp_path / "else").exists()


def test_commit_takes_the_files_of_a_directory(place: SpaceCli, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/only.txt").write_text("x")
    call = ("commit", "scout", "refactor", "--dir", str(tmp_path / "plain"), "--base")
    commit = place.json(*call, "scout")["commit"]
    assert place.git("ls-tree", "-r", "--name-only", "agents/scout") == "only.txt"
    assert place.json(*call, "agents/scout~1")["commit"] == commit  # a repeated call
    assert place.refused(*call, "agents/scout~1", "--message", "other", code=1)["code"] == "stale-ref"


def test_a_checkout_that_cannot_be_updated_is_not_an_error(place: SpaceCli, tmp_path: Path) -> None:
    place.run("checkout", "scout", str(tmp_path / "co"))
    (tmp_path / "co/new").write_text("1")
    (place.root / ".git/worktrees/co/index.lock").touch()
    before = place.git("rev-parse", "agents/scout")
    for _ in range(2):
        ran = place.run("commit", "scout", "finding", "--dir", str(tmp_path / "co"))
        assert ran.err.startswith("recorded, but the checkout could not be updated: ")
    assert place.git("rev-parse", "agents/scout~1") == before


def test_commit_takes_single_files_links_and_executables(place: SpaceCli, tmp_path: Path) -> None:
    text, tool = place.write("text", "text"), Path(place.write("tool", "#!/bin/sh\n"))
    tool.chmod(0o755)
    (tmp_path / "link").symlink_to("some/where")
    words = [f"--set=link={tmp_path / 'link'}", f"--set=tool={tool}", f"--set=run={text}", "--executable", "run"]
    place.run("commit", "scout", "finding", *words, "--remove", "a.txt")
    tree = {line.split("\t")[1]: line.split()[0] for line in place.git("ls-tree", "agents/scout").splitlines()}
    assert tree == {"link": "120000", "run": "100755", "tool": "100755"}
    assert place.git("cat-file", "blob", "agents/scout:link") == "some/where"
    fed = subprocess.run(
        [warm.program(), "commit", "scout", "test", "--set", "fed=-", "-m", "fed"], cwd=place.root, input=b"by pipe", check=True
    )
    assert fed.returncode == 0
    assert place.git("cat-file", "blob", "agents/scout:fed") == "by pipe"


def test_commit_binds_the_pending_trace_only_on_request(place: SpaceCli) -> None:
    with library.open(place.root) as space:
        space.trace("scout", "console", "hello")
    words = ("commit", "scout", "finding", "--set")
    assert place.json(*words, f"b={place.write('b', 'b')}")["traced"] == 0
    assert place.json("list")[0]["pending"] == 1
    commit = place.json(*words, f"b={place.write('b', 'bb')}", "--trace")
    assert commit["traced"] == 1
    assert place.json("list")[0]["pending"] == 0
    assert place.json("show", commit["commit"])["trace"]["entries"] == 1


@pytest.mark.parametrize(
    ("words", "exit_code", "error"),
    [
        (["scout", "finding"], 2, "nothing-to-commit"),
        (["nobody", "finding"], 2, "no-such-agent"),
        (["nobody", "finding", "--remove", "a.txt"], 2, "no-such-agent"),
        (["scout", "nonsense", "--remove", "a.txt"], 2, "unknown-kind"),
        (["scout", "decision", "--remove", "a.txt"], 2, "reserved-kind"),
        (["scout", "finding", "--set", "a"], 2, "invalid-option"),
        (["scout", "finding", "--set", "a=/nowhere/at/all"], 1, "file-error"),
        (["scout", "finding", "--set", "../a=/dev/null"], 2, "unsafe-path"),
        (["scout", "finding", "--set", "a=/dev/null", "--remove", "a"], 2, "invalid-option"),
        (["scout", "finding", "--set", "a=/dev/null", "--executable", "b"], 2, "invalid-option"),
        (["scout", "finding", "--remove", "gone"], 2, "no-such-path"),
        (["scout", "finding", "--dir", ".", "--remove", "a.txt"], 2, "invalid-option"),
        (["scout", "finding", "--dir", "nowhere"], 1, "file-error"),
        (["scout", "finding", "--remove", "a.txt", "--base", "nothing"], 2, "no-such-object"),
        (["scout", "finding", "--remove", "a.txt", "--base", "HEAD"], 1, "stale-ref"),
        (["scout", "finding", "--remove", "a.txt", "--meta", "=x"], 2, "invalid-meta"),
    ],
)
def test_a_commit_that_is_refused_changes_nothing(history: RecordedHistory, words: list[str], exit_code: int, error: str) -> None:
    before = history.place.refs()
    assert history.place.refused("commit", *words, code=exit_code)["code"] == error
    assert history.place.refs() == before


# land and publish


def test_land_merges_the_work_into_a_branch_and_list_shows_it(place: SpaceCli) -> None:
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    head = place.git("rev-parse", "agents/scout")
    ran = place.run("land", "scout", "--ff")
    assert ran.out == f"landed scout on main as {head[:10]} (fast-forward)\n"
    assert place.git("rev-parse", "main") == head
    assert (place.root / "b").read_text() == "b"
    assert place.git("status", "--short") == ""
    assert place.run("land", "scout", "--onto", "main").out == "main already has all work of scout\n"
    assert place.json("land", "scout", "--onto", "main") == {"result": "up-to-date", "head": head}
    assert place.json("list")[0]["landed"] == "main"
    assert place.run("list").out.splitlines()[1].split()[-1] == "main"
    assert "landed on  refs/heads/main as " in place.run("show", "scout").out
    place.run("commit", "scout", "finding", "--remove", "b")
    assert place.json("list")[0]["landed"] is None
    landing = place.json("land", "scout", "--onto", "main", "--no-ff", "-m", "Take it")
    assert (landing["result"], landing["how"]) == ("landed", "merge")
    assert place.git("log", "-1", "--format=%s", "main") == "Take it"
    place.run("commit", "scout", "finding", "--set", f"c={place.write('c', 'c')}")
    landing = place.json("land", "scout", "--onto", "main", "--squash")
    assert landing["how"] == "squash"
    assert place.git("rev-list", "--count", "main~1..main") == "1"
    commit = place.json("show", "main")
    assert (commit["landed"], commit["cid"]) == ("scout", landing["cid"])


def test_land_with_conflicts_lists_them_and_leaves_the_branch(place: SpaceCli) -> None:
    place.run("commit", "scout", "finding", "--set", f"a.txt={place.write('x', 'theirs')}")
    (place.root / "a.txt").write_text("ours\n")
    place.git("commit", "-q", "-a", "-m", "ours")
    before = place.refs()
    ran = place.run("land", "scout", "--onto", "main", code=1)
    assert ran.out.splitlines()[:2] == ["conflicts; main is unchanged", "  a.txt"]
    conflict = place.json("land", "scout", "--onto", "main", code=1)
    assert (conflict["result"], conflict["into"], conflict["from"]) == ("conflicts", "main", "scout")
    assert conflict["paths"] == [{"path": "a.txt", "base": "one\n", "ours": "ours\n", "theirs": "theirs"}]
    assert place.refs() == before
    assert place.refused("land", "scout", "--onto", "nothing")["code"] == "no-such-branch"
    assert place.refused("land", "nobody", "--onto", "main")["code"] == "no-such-agent"
    assert place.refused("land", "scout", "--onto", "agents/scout")["code"] == "not-a-branch-of-people"


def test_publish_pushes_agents_and_reports_refused_refs(place: SpaceCli, tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    place.git("remote", "add", "hub", str(hub))
    with library.open(place.root) as space:
        space.spawn("other", library.Briefing("x"))
        space.archive("other")
        space.trace("scout", "console", "hello")
        space.commit_with_trace("scout", "finding", {"a": b""})
    first = place.json("publish", "scout", "--remote", "hub", "--no-traces")
    checkpoints, log = place.git("for-each-ref", "--format=%(refname)", "refs/clia/checkpoints/", "refs/clia/log/").split()
    of_all = ["refs/clia/space", "refs/clia/keys", log, checkpoints]
    assert {row["ref"]: row["state"] for row in first} == dict.fromkeys(
        [*of_all, "refs/clia/agents-published/scout", "refs/clia/agents/scout"], "new"
    )
    output_lines = place.run("publish", "--all", "--remote", "hub").out.splitlines()
    assert output_lines[0].split() == ["state", "ref"]
    states_by_ref = {line.split()[1]: line.split()[0] for line in output_lines[1:]}
    assert states_by_ref["refs/clia/agents-published/scout"] == "same"
    assert states_by_ref["refs/notes/clia/trace/scout"] == states_by_ref["refs/clia/archive/agents/other"] == "new"
    git("update-ref", "refs/clia/agents-published/scout", tip_of_another(hub), cwd=hub)
    refused = place.run("publish", "scout", "--remote", "hub", code=1)
    (line,) = (output_line for output_line in refused.out.splitlines() if "refs/clia/agents-published/scout" in output_line)
    assert line.split()[0] == "refused"
    assert len(line.split()) > 2
    states = {row["ref"]: row["state"] for row in place.json("publish", "scout", "--remote", "hub", code=1)}
    assert states["refs/clia/agents-published/scout"] == "refused"


def tip_of_another(hub: Path) -> str:
    """A commit that the publishing clone does not have."""
    return git("commit-tree", "-m", "another", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", cwd=hub).strip()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "invalid-option"),
        (["scout", "--all"], "invalid-option"),
        (["nobody", "--remote", "hub"], "no-such-agent"),
        (["a b", "--remote", "hub"], "invalid-name"),
        (["scout"], "no-such-remote"),
    ],
)
def test_publish_refuses_unknown_agents_and_remotes(history: RecordedHistory, words: list[str], error: str) -> None:
    assert history.place.refused("publish", *words)["code"] == error


# Reading: one space for all tests, because they do not write


class RecordedHistory(NamedTuple):
    """A space with a finding of scout and its trace, the sub-agent helper that merged it, and an archived agent."""

    place: SpaceCli
    base: str  # the fork point of all agents
    genesis: str
    finding: str


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> RecordedHistory:
    place = spawned(tmp_path_factory.mktemp("told").resolve() / "w", "scout")
    place.git("remote", "add", "hub", "nowhere")
    minutes = count(1)
    start = datetime(2035, 1, 1, tzinfo=UTC)  # after the user's commits; otherwise the order of commits would be random
    with library.open(place.root, settings=library.Settings(clock=lambda: start + timedelta(minutes=next(minutes)))) as space:
        genesis = space.head("scout")
        space.spawn_from("helper", library.Briefing("Help"), "scout")
        space.spawn_from("gone", library.Briefing("Over"), "scout")
        space.spawn_from("below", library.Briefing("Deep"), "gone")
        space.archive("gone")
        space.spawn("alone", library.Briefing("Alone"))
        space.trace("scout", "console", f"saw {RED}")
        evil = {"a.txt": b"one\ntwo\n", f"e{RED}": b"x\x1b[31mred\x1b[0m\r\n", "bin": b"\0\1"}
        finding = space.commit_with_trace("scout", "finding", evil, message=f"found {RED}\n\nmore {RED}", meta={"k": 0, RED: RED})
        space.merge("helper", "scout")
        space.trace("scout", "console", "pending")
        return RecordedHistory(place, space.find("main"), genesis, finding)


def test_list_shows_active_and_archived_agents(history: RecordedHistory) -> None:
    lines = history.place.run("list").out.splitlines()
    assert lines[0].split() == ["agent", "last", "subject", "when", "(UTC)", "pending", "landed", "on"]
    assert [line.split()[0] for line in lines[1:]] == ["alone", "below", "helper", "scout"]
    assert lines[4].startswith(f"scout   finding        found {HARMLESS}")
    states = history.place.json("list")
    assert [(state["agent"], state["kind"], state["pending"]) for state in states] == [
        ("alone", "spawn", 0),
        ("below", "spawn", 0),
        ("helper", "session-merge", 0),
        ("scout", "finding", 1),
    ]
    assert list(states[0]) == ["agent", "head", "kind", "subject", "at", "pending", "landed", "problem"]
    (archived,) = history.place.json("list", "--archived")
    assert (archived["agent"], archived["subject"], archived["landed"]) == ("gone", "spawn: Over", None)
    assert history.place.run("list", "--archived").out.splitlines()[1].startswith("gone   spawn")


def test_list_without_agents_has_a_hint(tmp_path: Path) -> None:
    library.init(tmp_path).close()
    for command in ("list", "tree", "graph"):
        assert clia(command, cwd=tmp_path).out == "no agents yet; create one with: clia spawn NAME --title TITLE\n"
    assert clia("list", "--archived", cwd=tmp_path).out == "no archived agents\n"
    assert clia("graph", "--json", cwd=tmp_path).json() == {"nodes": [], "edges": []}
    assert clia("tree", "--json", cwd=tmp_path).json() == clia("list", "--json", cwd=tmp_path).json() == []


def test_log_goes_from_any_commit_to_the_root_or_is_limited_to_the_agent(history: RecordedHistory) -> None:
    lines = history.place.run("log", "scout").out.splitlines()
    assert [line.split()[0] for line in lines] == [history.finding[:10], history.genesis[:10], history.base[:10]]
    assert lines[0].endswith(f"  scout  finding  found {HARMLESS}")
    assert lines[2].endswith("  Tess  first")
    assert [commit["cid"] for commit in history.place.json("log", history.finding[:8])] == [
        history.finding,
        history.genesis,
        history.base,
    ]
    assert [commit["cid"] for commit in history.place.json("log", "scout", "--own")] == [history.finding, history.genesis]
    (newest,) = history.place.json("log", "scout", "-n", "1", "--trace")
    assert (newest["agent"], newest["kind"], newest["meta"]) == ("scout", "finding", {"k": 0, RED: RED})
    assert [entry["text"] for entry in newest["trace"]] == [f"saw {RED}"]
    traced = history.place.run("log", "scout", "--trace").out.splitlines()
    assert traced[2].strip() == f"saw {HARMLESS}"
    assert "trace" not in history.place.json("log", "main")[0]


def test_show_describes_an_agent(history: RecordedHistory) -> None:
    out = history.place.run("show", "scout").out
    facts = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith("  ")}
    assert facts["head"] == [history.finding]
    assert facts["genesis"] == [history.genesis]
    assert facts["sub-agents"] == ["gone,", "helper"]
    assert "Briefing: Task of scout" in out
    assert "pending     1 trace entry" in out
    agent = history.place.json("show", "scout")
    assert list(agent) == [
        *("agent", "archived", "branch", "head", "genesis", "parent", "sub_agents", "briefing", "profile", "identity"),
        *("pending", "landings", "session", "asks"),
    ]
    assert (agent["branch"], agent["parent"], agent["pending"], agent["profile"]) == ("agents/scout", None, 1, None)
    archived = history.place.json("show", "gone")
    assert (archived["archived"], archived["branch"], archived["parent"], archived["pending"]) == (True, None, "scout", 0)
    assert history.place.run("show", "gone").out.startswith("gone  archived\n")


def test_show_describes_a_commit(history: RecordedHistory) -> None:
    out = history.place.run("show", history.finding).out
    assert out.startswith(f"commit {history.finding}\n")
    for part in ("agent", "kind", "briefing", "author", "committer", "on top of", "meta k"):
        assert f"\n  {part}" in out
    assert f"\n    found {HARMLESS}\n" in out
    assert f"\n  A  e{HARMLESS}" in out
    assert "binary" in out
    commit = history.place.json("show", history.finding[:12])
    assert (commit["cid"], commit["parents"], commit["message"]) == (
        history.finding,
        [history.genesis],
        f"found {RED}\n\nmore {RED}",
    )
    assert commit["trace"]["entries"] == 1
    assert {file["path"]: (file["status"], file["added"], file["removed"]) for file in commit["files"]} == {
        "a.txt": ("M", 1, 0),
        "bin": ("A", None, None),
        f"e{RED}": ("A", 1, 0),
    }
    people = history.place.json("show", "main")
    assert (people["agent"], people["trace"], people["author"]["name"]) == (None, None, "Tess")


def test_show_handles_branches_created_by_plain_git(place: SpaceCli) -> None:
    place.git("branch", "agents/wild", "main")
    agent = place.json("show", "wild")
    assert (agent["head"], agent["genesis"], agent["briefing"]) == (place.git("rev-parse", "main"), None, None)
    assert place.run("show", "wild").out.startswith("wild\n")


def test_diff_prints_a_patch_that_git_applies(history: RecordedHistory, tmp_path: Path) -> None:
    words = [warm.program(), "diff", "scout", "--paths", "a.txt", f"e{RED}"]
    patch = subprocess.run(words, cwd=history.place.root, capture_output=True, check=True).stdout
    copy = tmp_path / "copy"
    git("clone", "-q", str(history.place.root), str(copy), cwd=tmp_path)
    (tmp_path / "patch").write_bytes(patch)
    git("apply", str(tmp_path / "patch"), cwd=copy)
    assert (copy / "a.txt").read_text() == "one\ntwo\n"
    assert (copy / f"e{RED}").read_bytes() == b"x\x1b[31mred\x1b[0m\r\n"
    diff = history.place.json("diff", "main", "scout", "--paths", "a.txt")
    assert diff["patch"].endswith("@@ -1 +1,2 @@\n one\n+two\n")
    assert [(file["path"], file["added"]) for file in diff["files"]] == [("a.txt", 1)]
    assert history.place.json("diff", history.finding)["files"] == history.place.json("diff", "scout")["files"]
    stat = history.place.run("diff", "scout", "--stat").out.splitlines()
    assert [line.split() for line in stat] == [
        ["M", "a.txt", "+1", "-0"],
        ["A", "bin", "binary"],
        ["A", f"e{HARMLESS}", "+1", "-0"],
    ]
    assert history.place.json("diff", "scout", "--stat")["patch"] is None
    assert history.place.run("diff", "scout", "scout").out == ""


def agents_lines_in_a_persons_commit(tmp_path: Path) -> Path:
    """A space with a commit of a person that has two lines of ``scout`` and one of the person."""
    root = tmp_path / "shop"
    assert clia("init", str(root), cwd=tmp_path).code == 0
    assert clia("spawn", "scout", "-t", "Count", cwd=root).code == 0
    (tmp_path / "work.txt").write_text("one\ntwo\n")
    assert clia("commit", "scout", "finding", "--set", f"a.txt={tmp_path}/work.txt", cwd=root).code == 0
    commit_file(root, "a.txt", "one\ntwo\nthree\n")
    return root


def test_blame_takes_the_path_first_and_head_by_default_and_authorship_counts(tmp_path: Path) -> None:
    root = agents_lines_in_a_persons_commit(tmp_path)
    texts = [clia("blame", *words, cwd=root).out for words in (["a.txt"], ["main", "a.txt"], ["a.txt", "main"])]
    assert texts[0] == texts[1] == texts[2]
    assert [line.split()[1] for line in texts[0].splitlines()] == ["scout", "scout", "(Tess)"]
    assert clia("authorship", cwd=root).out.splitlines()[-1] == "2 of 3 lines by 1 agent"
    assert clia("authorship", "main", "--json", cwd=root).json()["agents"] == {"scout": 2}


def test_spawn_and_run_take_a_briefing_by_the_same_names(tmp_path: Path) -> None:
    assert clia("init", "shop", cwd=tmp_path).code == 0
    for number, option in enumerate(("-b", "--briefing", "--text")):
        assert clia("spawn", f"a{number}", "-t", "Count", option, "Every box.", cwd=tmp_path / "shop").code == 0
        assert clia("run", f"b{number}", option, "Every box.", "--", "true", cwd=tmp_path / "shop").code == 0
        for agent in (f"a{number}", f"b{number}"):
            assert clia("show", agent, "--json", cwd=tmp_path / "shop").json()["briefing"]["text"] == "Every box."


def test_authorship_prints_agent_trace_records(tmp_path: Path) -> None:
    root = agents_lines_in_a_persons_commit(tmp_path)
    ran = clia("authorship", "--format", "agent-trace", "--forge", "https://forge.example.org/s/shop", cwd=root)
    (record,) = map(json.loads, ran.out.splitlines())
    agent, person = record["files"][0]["conversations"]
    assert (agent["contributor"], person["contributor"]) == ({"type": "ai"}, {"type": "human"})
    assert agent["url"].startswith("https://forge.example.org/s/shop/commits/")
    for words in (["--forge", "https://forge.example.org"], ["--format", "agent-trace", "--forge", "forge.example"]):
        refused = clia("authorship", *words, cwd=root)
        assert refused.code == 2
        assert "--forge" in refused.err


def test_blame_takes_paths_as_git_does(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    assert clia("init", str(root), cwd=tmp_path).code == 0
    commit_file(root, "a.txt", "top\n")
    (root / "sub").mkdir()
    commit_file(root, "sub/a.txt", "below\r\n")
    (root / "new").mkdir()
    name = os.fsdecode(b"caf\xe9.txt")
    commit_file(root, name, "latin\n")

    def shown(*words: str, cwd: Path) -> str:
        return clia("blame", *words, cwd=cwd).out.splitlines()[0].split()[-1]

    assert shown("a.txt", cwd=root) == "top"
    assert shown("a.txt", cwd=root / "sub") == shown("HEAD", "sub/a.txt", cwd=root) == "below"
    assert shown("../a.txt", cwd=root / "sub") == shown(str(root / "a.txt"), "main", cwd=root) == "top"
    assert shown("a.txt", "--path", "shop/sub", cwd=tmp_path) == "below"
    assert shown(name, cwd=root) == shown(f"../{name}", cwd=root / "sub") == "latin"
    git("clone", "-q", "--bare", str(root), "bare.git", cwd=tmp_path)
    assert clia("init", "bare.git", cwd=tmp_path).code == 0
    assert shown("main", "sub/a.txt", cwd=tmp_path / "bare.git") == "below"
    for words, hint in (
        (["main"], "name a path: clia blame main PATH"),
        (["sub/a.txt"], "a path is relative to the current directory"),
    ):
        ran = clia("blame", *words, cwd=root / "sub")
        assert (ran.code, hint in ran.err) == (2, True), ran.err
    missing = clia("blame", os.fsdecode(b"\xe9"), "--json", cwd=root)
    assert (missing.code, "no-such-path" in missing.err) == (2, True)
    assert clia("blame", "../a.txt", cwd=root).code == 2
    assert "[AGENT|COMMIT] PATH" in " ".join(clia("blame", "--help", cwd=root).out.split())


def test_blame_without_a_commit_marks_lines_that_are_not_committed_and_refuses_what_is_not_text(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    assert clia("init", str(root), cwd=tmp_path).code == 0
    commit_file(root, "a.txt", "one\n")
    (root / "a.txt").write_text("one\ntwo\n")
    assert clia("spawn", "scout", "-t", "Count", cwd=root).code == 0
    assert clia("commit", "scout", "finding", "--set", "a.txt=a.txt", cwd=root).code == 0
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    lines = [line.split() for line in clia("blame", "a.txt", cwd=root).out.splitlines()]
    assert [("(" if line[1].startswith("(") else line[1], line[-2][10:], line[-1]) for line in lines] == [
        ("(", "", "one"),
        ("scout", "+", "two"),
        ("(", "+", "three"),
    ]
    assert [line["by"] for line in clia("blame", "-L", "2,9", "--json", "a.txt", cwd=root).json()] == ["agent", "person"]
    assert len(clia("blame", "HEAD", "a.txt", cwd=root).out.splitlines()) == 1
    (root / "bin").write_bytes(b"\0")
    (tmp_path / "out").write_text("out\n")
    for words, message in (
        (["bin"], "'bin' is a binary file"),
        ([str(tmp_path / "out")], "is outside of the repository"),
        (["main", "."], "'.' is not a file"),
        (["-L", "3,2", "a.txt"], "the last line must not be before the first one"),
        (["-L", "0", "a.txt"], "must be a positive number"),
    ):
        ran = clia("blame", *words, cwd=root)
        assert (ran.code, message in ran.err) == (2, True), ran.err


def test_blame_names_agent_kind_and_trace_of_each_line(history: RecordedHistory) -> None:
    lines = history.place.run("blame", "helper", "a.txt").out.splitlines()
    assert lines == [
        f"1  (Tess)                          {history.base[:10]}   one",
        f"2  scout   finding  Task of scout  {history.finding[:10]}*  two",
    ]
    first, second = history.place.json("blame", "scout", "a.txt")
    assert (first["agent"], first["commit"], first["trace"]) == (None, history.base, None)
    assert (second["number"], second["agent"], second["kind"], second["text"]) == (2, "scout", "finding", "two")
    assert second["briefing"] is not None
    assert second["trace"] is not None
    assert history.place.refused("blame", "scout", "nothing")["code"] == "no-such-path"


def test_tree_draws_agents_above_their_sub_agents(history: RecordedHistory) -> None:
    drawn = history.place.run("tree").out.splitlines()
    assert drawn == [
        "alone  spawn: Alone",
        f"scout  found {HARMLESS}",
        "├── gone  archived",
        "│   └── below  spawn: Deep",
        "└── helper  session-merge: scout into helper",
    ]
    assert history.place.run("tree", "gone", "--ascii").out.splitlines() == ["gone  archived", "`-- below  spawn: Deep"]
    assert history.place.run("tree", "gone", env={"LC_ALL": "C"}).out.splitlines()[1].startswith("`-- ")
    members = {member["agent"]: member for member in history.place.json("tree")}
    assert members["gone"] == {"agent": "gone", "archived": True, "parents": ["scout"], "children": ["below"]}
    assert [member["agent"] for member in history.place.json("tree", "gone")] == ["below", "gone"]


def test_graph_draws_commits_in_lanes(history: RecordedHistory) -> None:
    drawn = history.place.run("graph", "scout", "helper").out.splitlines()
    merge, helper = (history.place.git("rev-parse", "--short=10", revision) for revision in ("agents/helper", "agents/helper^"))
    assert drawn == [
        f"●─╮ {merge} [helper] session-merge: scout into helper",
        f"│ ● {history.finding[:10]} [scout] finding found {HARMLESS}",
        f"●─┤ {helper} helper spawn: Help",
        f"  ● {history.genesis[:10]} scout spawn: Task of scout",
        f"  ● {history.base[:10]} first",
    ]
    for more, env in (({"--ascii"}, {}), (set(), {"LC_ALL": "C"})):
        out = history.place.run("graph", *more, env=env).out
        assert out.isascii()
        assert "* " in out
    graph = history.place.json("graph", "scout", "helper")
    lanes = {node["id"]: node["lane"] for node in graph["nodes"]}
    assert list(lanes)[-1] == history.base
    assert {(edge["from"], edge["to"]) for edge in graph["edges"]} >= {
        (history.finding, history.genesis),
        (history.genesis, history.base),
    }
    (scout,) = (node for node in graph["nodes"] if node["id"] == history.finding)
    assert (scout["agent"], scout["kind"], scout["heads"]) == ("scout", "finding", ["scout"])
    assert len(history.place.json("graph", "-n", "2")["nodes"]) == 2
    assert history.place.run("graph", "scout", "-n", "1").out.splitlines()[1:] == ["┆"]


def test_fork_point_is_the_last_common_commit(history: RecordedHistory) -> None:
    assert history.place.run("fork-point", "below", "scout").out == f"{history.genesis}\n"
    assert history.place.json("fork-point", "scout", "main") == {"fork_point": history.base}
    nothing = history.place.run("fork-point", "alone", "scout", code=1)
    assert (nothing.out, nothing.err) == ("", "alone and scout share no commit\n")
    assert history.place.json("fork-point", "alone", "scout", code=1) == {"fork_point": None}


READS = (
    *(
        ["list"],
        ["log", "scout", "--trace"],
        ["show", "scout"],
        ["show", "agents/scout"],
        ["diff", "scout"],
        ["diff", "scout", "--stat"],
    ),
    *(["blame", "scout", f"e{RED}"], ["tree"], ["graph"], ["log", RED], ["fork-point", "scout", RED], ["blame", "scout", RED]),
    *(["publish", RED, "--remote", "hub"], ["checkout", RED, "co"], ["land", "scout", "--onto", RED]),
)


def test_text_of_a_repository_cannot_control_the_terminal(history: RecordedHistory) -> None:
    """clia never prints a word in red, so a red "red" would come from the repository."""
    for words in READS:
        screen = at_terminal(history.place.root, *words)
        assert "red" in screen or words == ["show", "scout"], words
        assert RED not in screen, words
        assert "\x1b[31mred" not in screen, words
        assert "x\r\r\n" not in screen, words


def test_a_patch_has_colours_at_a_terminal(history: RecordedHistory) -> None:
    screen = at_terminal(history.place.root, "diff", "scout", "--paths", "a.txt")
    assert "\x1b[32m+two\x1b[0m" in screen
    assert "\x1b[36m@@ -1 +1,2 @@\x1b[0m" in screen
    assert "\x1b[1m+++ b/a.txt\x1b[0m" in screen


def at_terminal(cwd: Path, *words: str) -> str:
    """The screen of a command: standard output and error on one pseudo-terminal."""
    reading, writing = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_", "NO_COLOR"))}
    environment |= {"TERM": "xterm", "COLUMNS": "200", **UTF8}
    with subprocess.Popen(
        [warm.program(), *words], cwd=cwd, env=environment, stdin=writing, stdout=writing, stderr=writing
    ) as running:
        os.close(writing)
        data = b"".join(_until_closed(reading))
        running.wait()
    os.close(reading)
    return data.decode()


def _until_closed(reading: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(reading, 65536)
        except OSError:  # on Linux, the other end is closed
            return
        if not data:
            return
        yield data


EVERY = (
    *(["spawn", "one", "-t", "x"], ["commit", "scout", "finding", "--remove", "a"], ["checkout", "scout", "co"]),
    *(["land", "scout", "--onto", "main"], ["publish", "--all"], ["list"], ["log", "scout"], ["show", "scout"], ["diff", "scout"]),
    *(["blame", "scout", "a"], ["tree"], ["graph"], ["fork-point", "a", "b"]),
)


def test_every_command_fails_outside_a_space_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    root = repository(tmp_path / "people")
    before = git("for-each-ref", cwd=root)
    for words in EVERY:
        for directory, error in (("none", "no-such-repository"), ("people", "no-such-space")):
            ran = clia(*words, "--path", str(tmp_path / directory), cwd=tmp_path)
            assert (ran.code, ran.out) == (2, ""), words
            assert f"error: {error}: " in ran.err
            assert "\n  hint: " in ran.err
    assert git("for-each-ref", cwd=root) == before
    assert sorted(os.listdir(tmp_path)) == ["none", "people"]
    assert not (root / ".git/clia").exists()


def test_errors_name_the_unknown_agent(history: RecordedHistory) -> None:
    for words in (["log", "nobody"], ["diff", "scout", "nobody"], ["graph", "nobody"], ["fork-point", "nobody", "scout"]):
        error = history.place.refused(*words)
        assert (error["code"], error["fields"]) == ("no-such-object", {"text": "nobody"})
    for words in (["tree", "nobody"], ["log", "main", "--own"]):
        assert history.place.refused(*words)["code"] == "no-such-agent"
    assert history.place.refused("tree", "No Body")["code"] == "invalid-name"
    for store in ("mysql://x", ""):
        for verb in ("list", "doctor"):
            error = history.place.refused(verb, "--store", store)
            assert (error["code"], error["fields"]) == ("invalid-store", {"field": "store"})
