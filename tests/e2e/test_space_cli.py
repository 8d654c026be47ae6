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

if TYPE_CHECKING:
    from collections.abc import Iterator

RED = "\x1b[31mred\x1b[0m"
HARMLESS = "\\u{1b}[31mred\\u{1b}[0m"
UTF8 = {"LC_ALL": "C.UTF-8"}


class Place:
    """One repository with a space in it; commands run there and must end as said."""

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
        """The error, as a program reads it; nothing stands on standard output."""
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
    """A repository of people with one commit; its owner can wait for the disk elsewhere."""
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


def spawned(root: Path, *names: str) -> Place:
    """A space with agents, each at the people's HEAD; made by the library, which is quicker than the program."""
    with library.init(repository(root)) as space:
        for name in names:
            space.spawn_at(name, library.Briefing(f"Task of {name}"), "HEAD")
    return Place(root)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return spawned(tmp_path.resolve() / "w", "scout")


# init


def test_init_makes_a_space_once(tmp_path: Path) -> None:
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


def test_init_puts_nobodys_files_under_git(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for where, code in ((tmp_path, "no-such-repository"), (tmp_path / "file", "not-a-directory")):
        ran = clia("init", str(where))
        assert (ran.code, ran.out) == (2, "")
        assert f"error: {code}: " in ran.err
    assert os.listdir(tmp_path) == ["file"]


def test_init_in_a_clone_adopts_the_space_and_later_what_is_new(place: Place, tmp_path: Path) -> None:
    hub, clone = tmp_path / "hub.git", Place(tmp_path.resolve() / "clone")
    git("clone", "-q", "--bare", str(place.root), str(hub), cwd=tmp_path)
    place.git("remote", "add", "origin", str(hub))
    place.run("publish", "scout")
    git("clone", "-q", str(hub), str(clone.root), cwd=tmp_path)
    settle(clone.root)
    first = clone.run("init", env={"COLUMNS": "40"})  # lines are never cut or broken
    assert first.out.startswith(f"adopted the space {library.open(place.root).id} in {clone.root}\n")
    assert f"  new      refs/heads/agents/scout  {place.git('rev-parse', '--short=10', 'agents/scout')}\n" in first.out
    rules = [f"+refs/{each}" for each in ("clia/*", "notes/clia/*", "heads/agents/*")]
    assert "git fetch origin also fetches\n" in first.out
    assert [line.strip().split(":")[0] for line in first.out.splitlines()[-3:]] == rules
    assert clone.run("list").out.splitlines()[1].startswith("scout  spawn  spawn: Task of scout")
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    head = place.json("publish", "scout")
    assert {"ref": "refs/heads/agents/scout", "state": "moved", "reason": ""} in head
    assert clone.json("init", "--no-adopt")["adopted"] == []
    found = clone.json("init")
    assert (found["created"], found["adopted"]) == (
        False,
        [{"ref": "refs/heads/agents/scout", "what": "ahead", "cid": place.git("rev-parse", "agents/scout")}],
    )
    assert [(each["name"], [rule.split(":")[0] for rule in each["fetch"]]) for each in found["remotes"]] == [("origin", rules)]
    refused = clone.run("commit", "scout", "finding", "--set", f"c={place.write('c', 'clone')}", code=1)
    assert "error: foreign-agent: " in refused.err
    clone.run("init", "--claim", "scout")
    for each in (place, clone):
        each.run("commit", "scout", "finding", "--set", f"c={place.write('c', each.root.name)}")
    place.run("publish", "scout")
    assert "  diverged refs/heads/agents/scout  " in clone.run("init").out


def test_init_tells_a_clone_of_an_empty_origin_that_the_space_is_new(place: Place, tmp_path: Path) -> None:
    """Adopted is what the remote had, not what was made here."""
    git("init", "-q", "--bare", str(tmp_path / "hub.git"), cwd=tmp_path)
    other = repository(tmp_path / "other")
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=other)
    found = clia("init", "--json", cwd=other).json()
    assert (found["created"], found["adopted"]) == (True, [])
    assert [each["name"] for each in found["remotes"]] == ["origin"]


def test_init_with_a_remote_out_of_reach_says_how_to_go_on(place: Place) -> None:
    place.git("remote", "add", "gone", str(place.root / "nowhere"))
    ran = place.run("init", code=1)
    assert "error: transport-error: git could not fetch from gone" in ran.err
    assert "  hint: ask no remote with: clia init --no-adopt\n" in ran.err
    place.run("init", "--no-adopt")
    fresh = Place(repository(place.root.parent / "fresh"))
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
def test_init_refuses_a_store_that_cannot_be_remembered(tmp_path: Path, address: str, code: str) -> None:
    ran = clia("init", str(tmp_path / "new"), "--store", address)
    assert (ran.code, ran.out) == (2, "")
    assert f"error: {code}: " in ran.err
    assert "secret" not in ran.err
    assert not (tmp_path / "new").exists()


def test_init_remembers_the_store_for_everyone(tmp_path: Path, postgres_address: str) -> None:
    host, user, base, options = (part.partition("=")[2].strip("'") for part in postgres_address.split(" ", 3))
    address = f"postgresql://{user}@/{base}?host={quote(host, safe='')}&options={quote(options, safe='')}"
    root = repository(tmp_path / "w")
    assert clia("init", "--store", address, cwd=root).code == 0
    assert git("config", "clia.store", cwd=root).strip() == address
    assert clia("spawn", "scout", "-t", "x", cwd=root).code == 0
    assert clia("list", "--json", cwd=root).json()[0]["agent"] == "scout"
    assert not (root / ".git/clia/space.db").exists()


# spawn


def test_spawn_forks_at_head_unless_told_otherwise(place: Place) -> None:
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
    made = place.json("spawn", "two", "-t", "x", "--empty")
    assert list(made) == ["agent", "branch", "briefing", "genesis", "profile"]
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


def test_spawn_forks_at_the_head_of_the_worktree_that_path_names(place: Place) -> None:
    other = place.root.parent / "linked"
    place.git("worktree", "add", "-q", "-b", "topic", str(other))
    git("commit", "-q", "--allow-empty", "-m", "topic", cwd=other)
    place.run("spawn", "one", "-t", "x", "--path", str(other))
    assert place.git("rev-parse", "agents/one^") == place.git("rev-parse", "topic")


def test_spawn_freezes_the_profile_and_show_puts_its_guardrails_first(place: Place) -> None:
    Tree(place.root.parent).agent("w", "sentry", guardrails=["Never push", {"text": f"MUST ask {RED}"}])
    made = place.json("spawn", "guard", "-t", "x", "--as", "sentry")
    assert made["profile"] is not None
    shown = place.json("show", "guard")["profile"]
    assert (shown["slug"], shown["document"]["guardrails"][0]) == ("sentry", "Never push")
    lines = place.run("show", "guard").out.splitlines()
    assert lines[:3] == ["guard", "  ! Never push", f"  ! MUST ask {HARMLESS}"]
    assert lines[3].split() == ["profile", "sentry"]
    assert place.refused("spawn", "other", "-t", "x", "--as", "nobody")["code"] == "agent-not-found"


def test_spawn_names_the_behaviour_behind_a_briefing(place: Place) -> None:
    with library.open(place.root) as space:
        prompt = space.add_behaviour("first-ask", "Ask first.", "prompt").cid
    place.run("spawn", "one", "-t", "x", "--behaviour", prompt)
    assert place.json("show", "agents/one")["behaviour"] == prompt
    assert place.json("show", "one")["briefing"]["behaviour"] == prompt


def test_secrets_stay_out_of_briefings_and_commits_unless_told_otherwise(place: Place) -> None:
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
        (["one", "-t", "x", "--behaviour", "abc"], 2, "no-such-version"),
        (["one", "-t", "x", "--meta", "word"], 2, "invalid-meta"),
        (["one", "-t", "x", "--file", "gone"], 1, "file-error"),
    ],
)
def test_a_spawn_that_is_refused_changes_nothing(told: Told, words: list[str], exit_code: int, error: str) -> None:
    before = told.place.refs()
    assert told.place.refused("spawn", *words, code=exit_code)["code"] == error
    assert told.place.refs() == before


@pytest.mark.parametrize(
    "words",
    [
        ["spawn", "one"],
        ["spawn", "one", "-t", "x", "-b", "x", "--file", "x"],
        ["spawn", "one", "-t", "x", "--empty", "--at", "HEAD"],
        ["land", "scout"],
        ["log", "scout", "-n", "0"],
        ["graph", "-n", "many"],
    ],
)
def test_options_that_do_not_go_together_get_a_usage_message(tmp_path: Path, words: list[str]) -> None:
    ran = clia(*words, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"usage: clia {words[0]} ")


# commit and checkout


def test_work_in_a_checkout_is_committed_from_anywhere_in_it(place: Place, tmp_path: Path) -> None:
    there = Place(tmp_path.resolve() / "co")
    head = place.git("rev-parse", "agents/scout")
    assert place.json("checkout", "scout", "../co") == {"agent": "scout", "directory": str(there.root), "commit": head}
    (there.root / "deep").mkdir()
    (there.root / "deep/new.txt").write_text("new\n")
    (there.root / "a.txt").unlink()
    with library.open(place.root) as space:
        space.trace("scout", "console", "hello")
    inside = Place(there.root / "deep")
    ran = inside.run("commit", "scout", "finding", "-m", "found it\n\nin the cellar", "--meta", "where=cellar", "--trace")
    made = place.git("rev-parse", "agents/scout")
    assert ran.out == f"{made[:10]} finding by scout: found it  (1 traced)\n"
    assert place.git("ls-tree", "-r", "--name-only", "agents/scout") == "deep/new.txt"
    assert there.git("status", "--short") == ""
    shown = place.json("show", made)
    assert (shown["parents"], shown["message"], shown["meta"]) == ([head], "found it\n\nin the cellar", {"where": "cellar"})
    (there.root / "b").write_text("b")
    assert place.json("commit", "scout", "test", "--path", str(inside.root)) == {
        "commit": place.git("rev-parse", "agents/scout"),
        "parent": made,
        "agent": "scout",
        "kind": "test",
        "adopted": [],
        "kept": [],
        "traced": 0,
    }
    assert place.run("log", "scout", "-n", "1").out.endswith("  scout  test  test by scout\n")


def test_a_checkout_is_brought_to_the_head_and_belongs_to_one_agent(place: Place, tmp_path: Path) -> None:
    co = tmp_path.resolve() / "co"
    place.run("checkout", "scout", str(co))
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    (co / "c").write_text("c")
    assert Place(co).refused("commit", "scout", "finding", code=1)["code"] == "stale-ref"
    head = place.git("rev-parse", "--short=10", "agents/scout")
    assert place.run("checkout", "scout", str(co), env={"COLUMNS": "20"}).out == f"checked out scout at {head} in {co}\n"
    assert (co / "b").read_text() == "b"
    place.run("spawn", "other", "-t", "x")
    assert place.refused("checkout", "other", str(co), code=1)["code"] == "other-checkout"
    assert Place(co).refused("commit", "other", "finding")["code"] == "nothing-to-commit"
    assert place.refused("commit", "other", "finding", "--dir", str(co), code=1)["code"] == "other-checkout"
    assert place.refused("checkout", "scout", ".", code=1)["code"] == "directory-in-use"
    assert place.refused("checkout", "nobody", "../else")["code"] == "no-such-agent"
    assert not (tmp_path / "else").exists()


def test_commit_takes_the_files_of_a_directory(place: Place, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/only.txt").write_text("x")
    place.run("commit", "scout", "refactor", "--dir", str(tmp_path / "plain"), "--base", "scout")
    assert place.git("ls-tree", "-r", "--name-only", "agents/scout") == "only.txt"
    ran = place.refused("commit", "scout", "refactor", "--dir", str(tmp_path / "plain"), "--base", "agents/scout~1", code=1)
    assert ran["code"] == "stale-ref"


def test_commit_takes_single_files_links_and_programs(place: Place, tmp_path: Path) -> None:
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


def test_commit_binds_the_pending_trace_only_when_asked(place: Place) -> None:
    with library.open(place.root) as space:
        space.trace("scout", "console", "hello")
    words = ("commit", "scout", "finding", "--set")
    assert place.json(*words, f"b={place.write('b', 'b')}")["traced"] == 0
    assert place.json("list")[0]["pending"] == 1
    made = place.json(*words, f"b={place.write('b', 'bb')}", "--trace")
    assert made["traced"] == 1
    assert place.json("list")[0]["pending"] == 0
    assert place.json("show", made["commit"])["trace"]["entries"] == 1


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
def test_a_commit_that_is_refused_changes_nothing(told: Told, words: list[str], exit_code: int, error: str) -> None:
    before = told.place.refs()
    assert told.place.refused("commit", *words, code=exit_code)["code"] == error
    assert told.place.refs() == before


# land and publish


def test_land_brings_the_work_to_a_branch_and_list_shows_it(place: Place) -> None:
    place.run("commit", "scout", "finding", "--set", f"b={place.write('b', 'b')}")
    head = place.git("rev-parse", "agents/scout")
    ran = place.run("land", "scout", "--onto", "main")
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
    made = place.json("land", "scout", "--onto", "main", "--no-ff", "-m", "Take it")
    assert (made["result"], made["how"]) == ("landed", "merge")
    assert place.git("log", "-1", "--format=%s", "main") == "Take it"
    place.run("commit", "scout", "finding", "--set", f"c={place.write('c', 'c')}")
    made = place.json("land", "scout", "--onto", "main", "--squash")
    assert made["how"] == "squash"
    assert place.git("rev-list", "--count", "main~1..main") == "1"
    shown = place.json("show", "main")
    assert (shown["landed"], shown["cid"]) == ("scout", made["cid"])


def test_land_with_conflicts_lists_them_and_leaves_the_branch(place: Place) -> None:
    place.run("commit", "scout", "finding", "--set", f"a.txt={place.write('x', 'theirs')}")
    (place.root / "a.txt").write_text("ours\n")
    place.git("commit", "-q", "-a", "-m", "ours")
    before = place.refs()
    ran = place.run("land", "scout", "--onto", "main", code=1)
    assert ran.out.splitlines()[:2] == ["conflicts; main is unchanged", "  a.txt"]
    found = place.json("land", "scout", "--onto", "main", code=1)
    assert (found["result"], found["into"], found["from"]) == ("conflicts", "main", "scout")
    assert found["paths"] == [{"path": "a.txt", "base": "one\n", "ours": "ours\n", "theirs": "theirs"}]
    assert place.refs() == before
    assert place.refused("land", "scout", "--onto", "nothing")["code"] == "no-such-branch"
    assert place.refused("land", "nobody", "--onto", "main")["code"] == "no-such-agent"
    assert place.refused("land", "scout", "--onto", "agents/scout")["code"] == "not-a-branch-of-people"


def test_publish_sends_agents_and_says_what_was_refused(place: Place, tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    place.git("remote", "add", "hub", str(hub))
    with library.open(place.root) as space:
        space.spawn("other", library.Briefing("x"))
        space.archive("other")
        space.trace("scout", "console", "hello")
        space.commit_with_trace("scout", "finding", {"a": b""})
    first = place.json("publish", "scout", "--remote", "hub", "--no-traces")
    assert {each["ref"]: each["state"] for each in first} == dict.fromkeys(
        ["refs/clia/space", "refs/heads/agents/scout", "refs/clia/agents/scout"], "new"
    )
    shown = place.run("publish", "--all", "--remote", "hub").out.splitlines()
    assert shown[0].split() == ["state", "ref"]
    sent = {line.split()[1]: line.split()[0] for line in shown[1:]}
    assert sent["refs/heads/agents/scout"] == "same"
    assert sent["refs/notes/clia/trace/scout"] == sent["refs/clia/archive/agents/other"] == "new"
    git("update-ref", "refs/heads/agents/scout", tip_of_another(hub), cwd=hub)
    refused = place.run("publish", "scout", "--remote", "hub", code=1)
    (line,) = (each for each in refused.out.splitlines() if "refs/heads/agents/scout" in each)
    assert line.split()[0] == "refused"
    assert len(line.split()) > 2
    states = {each["ref"]: each["state"] for each in place.json("publish", "scout", "--remote", "hub", code=1)}
    assert states["refs/heads/agents/scout"] == "refused"


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
def test_publish_refuses_what_is_not_there(told: Told, words: list[str], error: str) -> None:
    assert told.place.refused("publish", *words)["code"] == error


# Reading: one space for all, since nothing here writes


class Told(NamedTuple):
    """A space with a story: scout found something, told by a trace; helper is its sub-agent and merged it; one is archived."""

    place: Place
    base: str  # where all fork
    genesis: str
    found: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    place = spawned(tmp_path_factory.mktemp("told").resolve() / "w", "scout")
    place.git("remote", "add", "hub", "nowhere")
    minutes = count(1)
    start = datetime(2035, 1, 1, tzinfo=UTC)  # after the commits of people, or the order of commits would be a matter of luck
    with library.open(place.root, settings=library.Settings(clock=lambda: start + timedelta(minutes=next(minutes)))) as space:
        genesis = space.head("scout")
        space.spawn_from("helper", library.Briefing("Help"), "scout")
        space.spawn_from("gone", library.Briefing("Over"), "scout")
        space.spawn_from("below", library.Briefing("Deep"), "gone")
        space.archive("gone")
        space.spawn("alone", library.Briefing("Alone"))
        space.trace("scout", "console", f"saw {RED}")
        evil = {"a.txt": b"one\ntwo\n", f"e{RED}": b"x\x1b[31mred\x1b[0m\r\n", "bin": b"\0\1"}
        found = space.commit_with_trace("scout", "finding", evil, message=f"found {RED}\n\nmore {RED}", meta={"k": 0, RED: RED})
        space.merge("helper", "scout")
        space.trace("scout", "console", "pending")
        return Told(place, space.find("main"), genesis, found)


def test_list_shows_who_is_at_work_and_who_is_archived(told: Told) -> None:
    lines = told.place.run("list").out.splitlines()
    assert lines[0].split() == ["agent", "last", "subject", "when", "(UTC)", "pending", "landed", "on"]
    assert [line.split()[0] for line in lines[1:]] == ["alone", "below", "helper", "scout"]
    assert lines[4].startswith(f"scout   finding        found {HARMLESS}")
    states = told.place.json("list")
    assert [(each["agent"], each["kind"], each["pending"]) for each in states] == [
        ("alone", "spawn", 0),
        ("below", "spawn", 0),
        ("helper", "session-merge", 0),
        ("scout", "finding", 1),
    ]
    assert list(states[0]) == ["agent", "head", "kind", "subject", "at", "pending", "landed"]
    (archived,) = told.place.json("list", "--archived")
    assert (archived["agent"], archived["subject"], archived["landed"]) == ("gone", "spawn: Over", None)
    assert told.place.run("list", "--archived").out.splitlines()[1].startswith("gone   spawn")


def test_a_space_without_agents_says_how_to_begin(tmp_path: Path) -> None:
    library.init(tmp_path).close()
    for command in ("list", "tree", "graph"):
        assert clia(command, cwd=tmp_path).out == "no agents yet; create one with: clia spawn NAME --title TITLE\n"
    assert clia("list", "--archived", cwd=tmp_path).out == "no archived agents\n"
    assert clia("graph", "--json", cwd=tmp_path).json() == {"nodes": [], "edges": []}
    assert clia("tree", "--json", cwd=tmp_path).json() == clia("list", "--json", cwd=tmp_path).json() == []


def test_log_goes_from_any_commit_to_the_root_or_stays_with_the_agent(told: Told) -> None:
    lines = told.place.run("log", "scout").out.splitlines()
    assert [line.split()[0] for line in lines] == [told.found[:10], told.genesis[:10], told.base[:10]]
    assert lines[0].endswith(f"  scout  finding  found {HARMLESS}")
    assert lines[2].endswith("  Tess  first")
    assert [each["cid"] for each in told.place.json("log", told.found[:8])] == [told.found, told.genesis, told.base]
    assert [each["cid"] for each in told.place.json("log", "scout", "--own")] == [told.found, told.genesis]
    (newest,) = told.place.json("log", "scout", "-n", "1", "--trace")
    assert (newest["agent"], newest["kind"], newest["meta"]) == ("scout", "finding", {"k": 0, RED: RED})
    assert [entry["text"] for entry in newest["trace"]] == [f"saw {RED}"]
    traced = told.place.run("log", "scout", "--trace").out.splitlines()
    assert traced[2].strip() == f"saw {HARMLESS}"
    assert "trace" not in told.place.json("log", "main")[0]


def test_show_tells_all_about_an_agent(told: Told) -> None:
    out = told.place.run("show", "scout").out
    facts = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith("  ")}
    assert facts["head"] == [told.found]
    assert facts["genesis"] == [told.genesis]
    assert facts["sub-agents"] == ["gone,", "helper"]
    assert "Briefing: Task of scout" in out
    assert "pending     1 trace entry" in out
    found = told.place.json("show", "scout")
    assert list(found) == [
        *("agent", "archived", "branch", "head", "genesis", "parent", "sub_agents", "briefing", "profile", "pending", "landings"),
        *("session", "asks"),
    ]
    assert (found["branch"], found["parent"], found["pending"], found["profile"]) == ("agents/scout", None, 1, None)
    gone = told.place.json("show", "gone")
    assert (gone["archived"], gone["branch"], gone["parent"], gone["pending"]) == (True, None, "scout", 0)
    assert told.place.run("show", "gone").out.startswith("gone  archived\n")


def test_show_tells_all_about_a_commit(told: Told) -> None:
    out = told.place.run("show", told.found).out
    assert out.startswith(f"commit {told.found}\n")
    for part in ("agent", "kind", "briefing", "author", "committer", "on top of", "meta k"):
        assert f"\n  {part}" in out
    assert f"\n    found {HARMLESS}\n" in out
    assert f"\n  A  e{HARMLESS}" in out
    assert "binary" in out
    found = told.place.json("show", told.found[:12])
    assert (found["cid"], found["parents"], found["message"]) == (told.found, [told.genesis], f"found {RED}\n\nmore {RED}")
    assert found["trace"]["entries"] == 1
    assert {each["path"]: (each["status"], each["added"], each["removed"]) for each in found["files"]} == {
        "a.txt": ("M", 1, 0),
        "bin": ("A", None, None),
        f"e{RED}": ("A", 1, 0),
    }
    people = told.place.json("show", "main")
    assert (people["agent"], people["trace"], people["author"]["name"]) == (None, None, "Tess")


def test_show_bears_branches_that_plain_git_made(place: Place) -> None:
    place.git("branch", "agents/wild", "main")
    found = place.json("show", "wild")
    assert (found["head"], found["genesis"], found["briefing"]) == (place.git("rev-parse", "main"), None, None)
    assert place.run("show", "wild").out.startswith("wild\n")


def test_diff_gives_a_patch_that_git_takes(told: Told, tmp_path: Path) -> None:
    words = [warm.program(), "diff", "scout", "--paths", "a.txt", f"e{RED}"]
    patch = subprocess.run(words, cwd=told.place.root, capture_output=True, check=True).stdout
    copy = tmp_path / "copy"
    git("clone", "-q", str(told.place.root), str(copy), cwd=tmp_path)
    (tmp_path / "patch").write_bytes(patch)
    git("apply", str(tmp_path / "patch"), cwd=copy)
    assert (copy / "a.txt").read_text() == "one\ntwo\n"
    assert (copy / f"e{RED}").read_bytes() == b"x\x1b[31mred\x1b[0m\r\n"
    found = told.place.json("diff", "main", "scout", "--paths", "a.txt")
    assert found["patch"].endswith("@@ -1 +1,2 @@\n one\n+two\n")
    assert [(each["path"], each["added"]) for each in found["files"]] == [("a.txt", 1)]
    assert told.place.json("diff", told.found)["files"] == told.place.json("diff", "scout")["files"]
    stat = told.place.run("diff", "scout", "--stat").out.splitlines()
    assert [line.split() for line in stat] == [
        ["M", "a.txt", "+1", "-0"],
        ["A", "bin", "binary"],
        ["A", f"e{HARMLESS}", "+1", "-0"],
    ]
    assert told.place.json("diff", "scout", "--stat")["patch"] is None
    assert told.place.run("diff", "scout", "scout").out == ""


def test_blame_names_agent_kind_and_trace_of_each_line(told: Told) -> None:
    lines = told.place.run("blame", "helper", "a.txt").out.splitlines()
    assert lines == [f"1  -               {told.base[:10]}   one", f"2  scout  finding  {told.found[:10]}*  two"]
    first, second = told.place.json("blame", "scout", "a.txt")
    assert (first["agent"], first["commit"], first["trace"]) == (None, told.base, None)
    assert (second["number"], second["agent"], second["kind"], second["text"]) == (2, "scout", "finding", "two")
    assert second["briefing"] is not None
    assert second["trace"] is not None
    assert told.place.refused("blame", "scout", "nothing")["code"] == "no-such-path"


def test_tree_draws_agents_above_their_sub_agents(told: Told) -> None:
    drawn = told.place.run("tree").out.splitlines()
    assert drawn == [
        "alone  spawn: Alone",
        f"scout  found {HARMLESS}",
        "├── gone  archived",
        "│   └── below  spawn: Deep",
        "└── helper  session-merge: scout into helper",
    ]
    assert told.place.run("tree", "gone", "--ascii").out.splitlines() == ["gone  archived", "`-- below  spawn: Deep"]
    assert told.place.run("tree", "gone", env={"LC_ALL": "C"}).out.splitlines()[1].startswith("`-- ")
    members = {each["agent"]: each for each in told.place.json("tree")}
    assert members["gone"] == {"agent": "gone", "archived": True, "parents": ["scout"], "children": ["below"]}
    assert [each["agent"] for each in told.place.json("tree", "gone")] == ["below", "gone"]


def test_graph_draws_commits_in_lanes(told: Told) -> None:
    drawn = told.place.run("graph", "scout", "helper").out.splitlines()
    merge, helper = (told.place.git("rev-parse", "--short=10", each) for each in ("agents/helper", "agents/helper^"))
    assert drawn == [
        f"●─╮ {merge} [helper] session-merge: scout into helper",
        f"│ ● {told.found[:10]} [scout] finding found {HARMLESS}",
        f"●─┤ {helper} helper spawn: Help",
        f"  ● {told.genesis[:10]} scout spawn: Task of scout",
        f"  ● {told.base[:10]} first",
    ]
    for more, env in (({"--ascii"}, {}), (set(), {"LC_ALL": "C"})):
        out = told.place.run("graph", *more, env=env).out
        assert out.isascii()
        assert "* " in out
    found = told.place.json("graph", "scout", "helper")
    lanes = {node["id"]: node["lane"] for node in found["nodes"]}
    assert list(lanes)[-1] == told.base
    assert {(edge["from"], edge["to"]) for edge in found["edges"]} >= {(told.found, told.genesis), (told.genesis, told.base)}
    (scout,) = (node for node in found["nodes"] if node["id"] == told.found)
    assert (scout["agent"], scout["kind"], scout["heads"]) == ("scout", "finding", ["scout"])
    assert len(told.place.json("graph", "-n", "2")["nodes"]) == 2
    assert told.place.run("graph", "scout", "-n", "1").out.splitlines()[1:] == ["┆"]


def test_fork_point_is_what_two_share(told: Told) -> None:
    assert told.place.run("fork-point", "below", "scout").out == f"{told.genesis}\n"
    assert told.place.json("fork-point", "scout", "main") == {"fork_point": told.base}
    nothing = told.place.run("fork-point", "alone", "scout", code=1)
    assert (nothing.out, nothing.err) == ("", "alone and scout share no commit\n")
    assert told.place.json("fork-point", "alone", "scout", code=1) == {"fork_point": None}


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


def test_no_text_of_a_repository_acts_on_a_terminal(told: Told) -> None:
    """Red is never used for a word by us; so where the terminal turns red before "red", the repository did it."""
    for words in READS:
        shown = at_terminal(told.place.root, *words)
        assert "red" in shown or words == ["show", "scout"], words
        assert RED not in shown, words
        assert "\x1b[31mred" not in shown, words
        assert "x\r\r\n" not in shown, words


def test_a_patch_has_colours_at_a_terminal(told: Told) -> None:
    shown = at_terminal(told.place.root, "diff", "scout", "--paths", "a.txt")
    assert "\x1b[32m+two\x1b[0m" in shown
    assert "\x1b[36m@@ -1 +1,2 @@\x1b[0m" in shown
    assert "\x1b[1m+++ b/a.txt\x1b[0m" in shown


def at_terminal(cwd: Path, *words: str) -> str:
    """What a person sees: standard output and error on one pseudo-terminal."""
    reading, writing = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_", "NO_COLOR"))}
    environment |= {"TERM": "xterm", "COLUMNS": "200", **UTF8}
    with subprocess.Popen(
        [warm.program(), *words], cwd=cwd, env=environment, stdin=writing, stdout=writing, stderr=writing
    ) as running:
        os.close(writing)
        shown = b"".join(_until_closed(reading))
        running.wait()
    os.close(reading)
    return shown.decode()


def _until_closed(reading: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(reading, 65536)
        except OSError:  # how Linux says that the other end is closed
            return
        if not data:
            return
        yield data


EVERY = (
    *(["spawn", "one", "-t", "x"], ["commit", "scout", "finding", "--remove", "a"], ["checkout", "scout", "co"]),
    *(["land", "scout", "--onto", "main"], ["publish", "--all"], ["list"], ["log", "scout"], ["show", "scout"], ["diff", "scout"]),
    *(["blame", "scout", "a"], ["tree"], ["graph"], ["fork-point", "a", "b"]),
)


def test_outside_a_space_every_command_says_so_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    root = repository(tmp_path / "people")
    before = git("for-each-ref", cwd=root)
    for words in EVERY:
        for where, error in (("none", "no-such-repository"), ("people", "no-such-space")):
            ran = clia(*words, "--path", str(tmp_path / where), cwd=tmp_path)
            assert (ran.code, ran.out) == (2, ""), words
            assert f"error: {error}: " in ran.err
            assert "\n  hint: " in ran.err
    assert git("for-each-ref", cwd=root) == before
    assert sorted(os.listdir(tmp_path)) == ["none", "people"]
    assert not (root / ".git/clia").exists()


def test_whoever_is_unknown_is_named(told: Told) -> None:
    for words in (["log", "nobody"], ["diff", "scout", "nobody"], ["graph", "nobody"], ["fork-point", "nobody", "scout"]):
        error = told.place.refused(*words)
        assert (error["code"], error["fields"]) == ("no-such-object", {"text": "nobody"})
    for words in (["tree", "nobody"], ["log", "main", "--own"]):
        assert told.place.refused(*words)["code"] == "no-such-agent"
    assert told.place.refused("tree", "No Body")["code"] == "invalid-name"
    for store in ("mysql://x", ""):
        for verb in ("list", "doctor"):
            error = told.place.refused(verb, "--store", store)
            assert (error["code"], error["fields"]) == ("invalid-store", {"field": "store"})
