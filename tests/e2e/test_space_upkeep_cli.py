"""Merges, relations, traces and upkeep of a space, through the installed program."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.cli.main import main
from support import Ran, Tree, clia, git, warm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ESCAPE = "\x1b[31m"
HARMLESS = "\\u{1b}[31m"
KEY = "AKIA" + "IOSFODNN7QQQQQQQ"  # in two parts, or scanners would take this file for a leak
QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))


class Here(NamedTuple):
    """A space: ``base``, and ``left`` and ``right`` spawned from it."""

    root: Path

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Ran:
        return clia(*words, cwd=self.root, env={"COLUMNS": "200"} | (env or {}))

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self(*words, "--json")
        assert ran.code == code, ran
        return ran.json()

    def error(self, *words: str, code: int = 2) -> str:
        """The code of the error; there is no answer beside it. In this process: there are many errors, and starting takes long."""
        out, err = StringIO(), StringIO()
        where = () if "--path" in words else ("--path", str(self.root))
        with redirect_stdout(out), redirect_stderr(err):
            done = main([*words, *where, "--json"])
        assert (done, out.getvalue()) == (code, ""), (words, out.getvalue(), err.getvalue())
        said: str = json.loads(err.getvalue())["error"]["code"]
        return said

    def fed(self, text: str | bytes, *words: str) -> Ran:
        """Run with something on standard input."""
        data = text.encode() if isinstance(text, str) else text
        done = subprocess.run([warm.program(), *words], cwd=self.root, input=data, capture_output=True, check=False)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def space(self) -> library.Space:
        return library.open(self.root, settings=QUICK)

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    root = tmp_path.resolve() / "w"
    with library.init(root, settings=QUICK) as space:
        space.spawn("base", library.Briefing("start"))
        space.commit("base", "finding", {"a.txt": b"a\n", "gone.txt": b"1\n", "same.txt": b"same\n"}, message="base")
        space.spawn_from("left", library.Briefing("left"), "base")
        space.spawn_from("right", library.Briefing("right"), "base")
    git("config", "clia.durable", "false", cwd=root)
    return Here(root)


def change(here: Here, agent: str, **changes: library.File | bytes | None) -> str:
    with here.space() as space:
        named = {path.replace("_", "."): value for path, value in changes.items()}
        return space.commit(agent, "finding", changes=named, message=f"by {agent}")


def conflict(here: Here) -> None:
    """``left`` and ``right`` disagree on three paths: both changed, one deleted, both added."""
    with here.space() as space:
        for agent, gone in (("left", None), ("right", b"2\n")):
            changes = {"a.txt": f"{agent}\n".encode(), "gone.txt": gone, f"new{ESCAPE}.txt": agent.encode()}
            space.commit(agent, "finding", changes=changes, message=f"by {agent}")


def tree_of(here: Here, agent: str) -> dict[str, str]:
    """Mode and content of every path, as stock git has them."""
    found = {}
    for line in git("ls-tree", "-r", "-z", f"agents/{agent}", cwd=here.root).split("\0")[:-1]:
        facts, path = line.split("\t")
        mode, kind, cid = facts.split()
        found[path] = f"{mode} {git('cat-file', 'blob', cid, cwd=here.root) if kind == 'blob' else cid}"
    return found


def at_terminal(here: Here, words: Sequence[str], talk: Sequence[tuple[str, str]]) -> tuple[int, str, str]:
    """Runs the program with a terminal as standard input and error; ``talk``: what to wait for, and what to type then."""
    terminal, inner = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))} | {"TERM": "xterm"}
    # In a session of its own it has no controlling terminal: what is typed comes from ours and from no other.
    with subprocess.Popen(
        [warm.program(), *words],
        cwd=here.root,
        env=environment,
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=inner,
        start_new_session=True,
        text=True,
    ) as running:
        os.close(inner)
        seen = _talk(terminal, talk)
        out = running.communicate()[0]
    os.close(terminal)
    return running.returncode, out, seen


def _talk(terminal: int, talk: Sequence[tuple[str, str]]) -> str:
    """Everything that was shown, to the end."""
    seen, waiting = "", list(talk)
    read = 0
    while True:
        try:
            seen += os.read(terminal, 4096).decode()
        except OSError:
            return seen  # how a terminal says that its other side is closed
        if waiting and waiting[0][0] in seen[read:]:
            read = len(seen)
            os.write(terminal, waiting.pop(0)[1].encode())


# Merges


def test_a_merge_is_a_commit_with_two_parents_and_a_second_one_finds_nothing_to_do(here: Here) -> None:
    change(here, "left", left_txt=b"l\n")
    theirs = change(here, "right", right_txt=b"r\n")
    made = here.json("merge", "left", "right", "-m", "take it", "--meta", "why=review", "--meta", "n=3")
    assert made["result"] == "merged"
    subject, parents = git("log", "-1", "--format=%s%n%P", "agents/left", cwd=here.root).splitlines()
    assert (subject, parents.split()[1]) == ("take it", theirs)
    assert git("rev-parse", "agents/left", cwd=here.root).strip() == made["cid"]
    with here.space() as space:
        assert space.show("left").meta == {"why": "review", "n": 3}
    assert here.json("merge", "left", "right") == {"result": "up-to-date", "head": made["cid"]}
    again = here("merge", "left", "right")
    assert (again.code, again.out) == (0, f"left already has all work of right, at {made['cid'][:10]}\n")
    ran = here("merge", "right", "left")
    assert (ran.code, ran.out) == (0, f"merged left into right: {here.json('merge', 'right', 'left')['head']}\n")


def test_conflicts_are_told_with_who_did_what_and_the_next_step(here: Here) -> None:
    conflict(here)
    heads = git("for-each-ref", "refs/heads", cwd=here.root)
    ran = here("merge", "left", "right")
    assert (ran.code, ran.err) == (1, "")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ran.out.startswith("3 conflicts: left at ")
    assert rows[1:5] == [
        ["path", "left", "right"],
        ["a.txt", "changed", "changed"],
        ["gone.txt", "deleted", "changed"],
        [f"new{HARMLESS}.txt", "added", "added"],
    ]
    assert "nothing was committed; resolve the conflicts with: clia resolve left right --file PATH=FILE" in ran.out
    found = here.json("merge", "left", "right", code=1)
    assert list(found) == ["result", "into", "from", "ours", "theirs", "paths"]
    assert (found["result"], found["into"], found["from"]) == ("conflicts", "left", "right")
    assert found["paths"][1] == {"path": "gone.txt", "base": "1\n", "ours": None, "theirs": "2\n"}
    assert [each["base"] for each in found["paths"]] == ["a\n", "1\n", None]
    assert git("for-each-ref", "refs/heads", cwd=here.root) == heads


def test_resolve_without_an_answer_lists_the_conflicts_and_commits_nothing(here: Here) -> None:
    assert here.error("resolve", "left", "right") == "no-conflict"
    conflict(here)
    assert here.error("resolve", "left", "right", "--take", "ours") == "no-refused-merge"
    here("merge", "left", "right")
    before = here.refs()
    ran = here("resolve", "left", "right")
    assert ran.code == 2
    assert f"new{HARMLESS}.txt" in ran.out
    assert "error: unresolved" in ran.err
    assert "hint: clia resolve left right --file PATH=FILE" in ran.err
    asked = here("resolve", "left", "right", "--json")
    assert (asked.code, asked.json()["result"]) == (2, "conflicts")
    assert json.loads(asked.err)["error"]["fields"]["paths"][0] == "a.txt"
    (here.root / "x").write_text("x")
    part = here("resolve", "left", "right", "--file", "a.txt=x", "--json")
    assert (part.code, json.loads(part.err)["error"]["fields"]["paths"]) == (2, ["gone.txt", f"new{ESCAPE}.txt"])
    assert here.refs() == before


def test_conflicts_are_settled_by_files_removals_and_a_side_for_the_rest(here: Here) -> None:
    conflict(here)
    theirs = git("rev-parse", "agents/right", cwd=here.root).strip()
    here("merge", "left", "right")
    tool = here.root / "tool"
    tool.write_text("both\n")
    tool.chmod(0o755)
    words = ("--file", "a.txt=tool", "--remove", "gone.txt", "--take", "theirs", "-m", "settled", "--meta", "by=hand")
    made = here.json("resolve", "left", "right", *words)
    assert made["result"] == "merged"
    assert tree_of(here, "left") == {
        "a.txt": "100755 both\n",
        f"new{ESCAPE}.txt": "100644 right",
        "same.txt": "100644 same\n",
    }
    subject, parents = git("log", "-1", "--format=%s%n%P", made["cid"], cwd=here.root).splitlines()
    assert (subject, parents.split()[1]) == ("settled", theirs)


def test_taking_a_side_keeps_modes_links_submodules_and_deletions(here: Here) -> None:
    with here.space() as space:
        for agent, digit in (("left", "1"), ("right", "2")):
            changes: dict[str, Any] = {
                "run": library.File(f"run {agent}".encode(), executable=True),
                "link": library.Link(agent),
                "sub": library.Submodule(digit * 40),
                "a.txt": library.File(f"{agent}\n".encode(), executable=agent == "right"),
                "odd [x]*.txt": agent.encode(),
                "same.txt": None if agent == "right" else b"left\n",
                "gone.txt": None if agent == "left" else library.Link("right"),
            }
            space.commit(agent, "finding", changes=changes, message=agent)
    here("merge", "left", "right")
    ran = here("resolve", "left", "right", "--take", "theirs")
    assert (ran.code, ran.out.startswith("merged right into left: ")) == (0, True)
    assert tree_of(here, "left") == tree_of(here, "right")
    assert tree_of(here, "left") == {
        "a.txt": "100755 right\n",
        "gone.txt": "120000 right",
        "link": "120000 right",
        "odd [x]*.txt": "100644 right",
        "run": "100755 run right",
        "sub": f"160000 {'2' * 40}",
    }


def test_taking_ours_keeps_what_the_agent_had(here: Here) -> None:
    conflict(here)
    change(here, "right", extra_txt=b"e\n")
    before = tree_of(here, "left")
    here("merge", "left", "right")
    assert here("resolve", "left", "right", "--take", "ours").code == 0
    assert tree_of(here, "left") == before | {"extra.txt": "100644 e\n"}


def test_a_head_that_moved_since_the_refusal_is_stale_unless_it_is_named(here: Here) -> None:
    conflict(here)
    here("merge", "left", "right")
    moved = change(here, "right", later_txt=b"later\n")
    before = here.refs()
    assert here.error("resolve", "left", "right", "--take", "ours", code=1) == "stale-ref"
    assert here.error("resolve", "left", "right", "--take", "ours", "--theirs", "no-such") == "no-such-object"
    assert here.refs() == before
    made = here.json("resolve", "left", "right", "--take", "ours", "--ours", "left", "--theirs", moved[:12])
    assert made["result"] == "merged"
    assert tree_of(here, "left")["later.txt"] == "100644 later\n"


@pytest.mark.parametrize("own", [".git", ".git/config"])
def test_a_directory_can_be_the_whole_outcome(here: Here, tmp_path: Path, own: str) -> None:
    conflict(here)
    here("merge", "left", "right")
    tree = Tree(tmp_path / "out")
    tree.write("deep/in/it.txt", "it")
    tree.write("run", "#!/bin/sh\n").chmod(0o755)
    tree.write(own, "not for the tree")
    (tree.root / "link").symlink_to("run")
    (tree.root / "folder").symlink_to("deep")
    assert here("resolve", "left", "right", "--dir", tree.path()).code == 0
    assert tree_of(here, "left") == {
        "deep/in/it.txt": "100644 it",
        "folder": "120000 deep",
        "link": "120000 run",
        "run": "100755 #!/bin/sh\n",
    }


def test_directories_that_are_no_worktree_value_are_refused(here: Here, tmp_path: Path) -> None:
    conflict(here)
    here("merge", "left", "right")
    before = here.refs()
    tree = Tree(tmp_path / "out")
    tree.write("file", "x")
    assert here.error("resolve", "left", "right", "--dir", tree.path("file")) == "not-a-directory"
    assert here.error("resolve", "left", "right", "--dir", tree.path(), "--take", "ours") == "invalid-option"
    os.mkfifo(tree.path("pipe"))
    assert here.error("resolve", "left", "right", "--dir", tree.path()) == "invalid-content"
    os.unlink(tree.path("pipe"))
    tree.write(".gitmodules", "")
    assert here.error("resolve", "left", "right", "--dir", tree.path()) == "submodules"
    os.unlink(tree.path(".gitmodules"))
    tree.write("vendored/.git", "gitdir: elsewhere\n")
    assert here.error("resolve", "left", "right", "--dir", tree.path()) == "submodules"
    assert here.refs() == before


def test_bad_merges_are_refused_and_change_nothing(here: Here) -> None:
    conflict(here)
    here("merge", "left", "right")
    before = here.refs()
    assert here.error("merge", "left", "left") == "same-agent"
    assert here.error("merge", "left", "nobody") == "no-such-agent"
    assert here.error("merge", "No Name", "right") == "invalid-name"
    assert here.error("merge", "left", "right", "--meta", "novalue") == "invalid-meta"
    assert here.error("resolve", "left", "nobody", "--take", "ours") == "no-such-agent"
    assert here.error("resolve", "left", "right", "--file", "a.txt") == "invalid-option"
    assert here.error("resolve", "left", "right", "--file", "a.txt=x", "--remove", "a.txt") == "invalid-option"
    assert here.error("resolve", "left", "right", "--file", "a.txt=gone", code=1) == "file-error"
    assert here.refs() == before


# Relations and types


def test_relations_are_stated_shown_and_retracted(here: Here) -> None:
    said = here.json("relate", "left", "reviews", "right")
    assert list(said) == ["src", "kind", "dst", "origin", "retracted"]
    assert here("relate", "left", "reviews", "right").out == f"recorded: left reviews right ({said['origin'][:10]})\n"
    ran = here("relations")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["src", "kind", "dst", "stated", "by"]
    assert [row[:3] for row in rows[1:]] == [
        ["base", "sub-agent-of", "left"],
        ["base", "sub-agent-of", "right"],
        ["left", "reviews", "right"],
    ]
    assert rows[3][3] == said["origin"][:10]
    found = here.json("relations", "left")
    assert [(each["src"], each["kind"], each["dst"]) for each in found] == [
        ("base", "sub-agent-of", "left"),
        ("left", "reviews", "right"),
    ]
    assert found[1]["origin"] == said["origin"]
    taken = here.json("relate", "left", "reviews", "right", "--retract")
    assert taken["retracted"] is True
    assert [each["kind"] for each in here.json("relations", "right")] == ["sub-agent-of"]


def test_relations_of_nobody_and_bad_relations_are_refused(here: Here) -> None:
    with here.space() as space:
        space.spawn("alone", library.Briefing("alone"))
        space.spawn("put-away", library.Briefing("put away"))
        space.archive("put-away")
    assert here("relations", "alone").out == "no relations; record one with: clia relate SRC reviews DST\n"
    assert here.json("relations", "put-away") == []
    assert here.error("relations", "nobody") == "no-such-agent"
    assert here.error("relate", "left", "No Kind", "right") == "invalid-relation"
    assert here.error("relate", "left", "reviews", "nobody") == "no-such-agent"
    assert here.error("relate", "left", "reviews", "right", "--retract") == "no-such-edge"


def test_types_are_a_tree_and_more_can_be_registered(here: Here) -> None:
    assert here("types", "--add", "review", "--parent", "agent-commit").out == "registered review, a subtype of agent-commit\n"
    found = here.json("types", "--add", "security-review", "--parent", "review")
    assert (found["security-review"], found["review"], found["agent-commit"]) == ("review", "agent-commit", None)
    shown = here("types").out
    assert "\n│   └── security-review\n" in shown or "\n    └── security-review\n" in shown
    assert shown.index("agent-commit") < shown.index("review")
    assert "security-review" in here("types", env={"LC_ALL": "C", "PYTHONUTF8": "0"}).out
    before = here.refs()
    assert here.error("types", "--add", "review", "--parent", "agent-commit", code=1) == "already-exists"
    assert here.error("types", "--add", "other", "--parent", "nothing") == "no-such-type"
    assert here.error("types", "--add", "Other", "--parent", "review") == "invalid-type"
    assert here.error("types", "--add", "other") == "invalid-option"
    assert here.error("types", "--parent", "review") == "invalid-option"
    assert here.refs() == before


# Traces


def test_what_is_traced_waits_and_is_shown_harmless(here: Here) -> None:
    assert here("trace", "pending", "left").out == "no entries since the last commit of left with a trace\n"
    first = here.fed(f"line one {ESCAPE}\r\nline two, key {KEY}\n", "trace", "add", "left")
    assert (first.code, first.out) == (0, "added entry 1 to the trace of left\n")
    said = here.json("trace", "add", "left", "ran a tool", "--kind", "tool-call")
    assert said == {"agent": "left", "kind": "tool-call", "position": 2}
    assert here.fed("as it is " + KEY, "trace", "add", "left", "-", "--no-redact").code == 0
    with here.space() as space:
        space.trace("left", "console", "with data", data={"odd": ESCAPE})
    found = here.json("trace", "pending", "left")
    assert [each["kind"] for each in found] == ["console", "tool-call", "console", "console"]
    assert found[0]["text"].startswith(f"line one {ESCAPE}\r\n")
    assert (found[0]["redacted"], KEY in found[0]["text"]) == (1, False)
    assert (found[2]["text"], "redacted" in found[2]) == ("as it is " + KEY, False)
    lines = here("trace", "pending", "left").out.splitlines()
    assert lines[0] == f"{found[0]['at']}  console  redacted: 1"
    assert lines[1] == f"  line one {HARMLESS}"
    assert lines[2].startswith("  line two, key [redacted:")
    assert lines[3:5] == [f"{found[1]['at']}  tool-call", "  ran a tool"]
    assert lines[-1] == '  {"odd": "\\\\u001b[31m"}'.replace("\\\\", "\\")


def test_an_entry_that_was_cut_says_so(here: Here) -> None:
    git("config", "clia.traceEntryMax", "10", cwd=here.root)
    here("trace", "add", "left", "0123456789abcdef")
    assert (
        "  console  cut: it had 16 characters\n  0123456789\n  [cut: 6 more characters]\n" in here("trace", "pending", "left").out
    )


def test_traces_of_a_commit_and_of_all_commits_of_an_agent(here: Here) -> None:
    commits = []
    with here.space() as space:
        for number in ("one", "two"):
            space.trace("left", "console", f"entry {number}{ESCAPE}")
            changes = {"n": number.encode()}
            commits.append(space.commit_with_trace("left", "finding", changes=changes, message=f"did {number}{ESCAPE}"))
        cid = space.trace_cid_for(commits[0])
    one = here.json("trace", "show", commits[0][:12])
    assert one["cid"] == cid
    assert (one["trace"]["commit"], one["trace"]["agent"]) == (commits[0], "left")
    assert [each["text"] for each in one["trace"]["entries"]] == [f"entry one{ESCAPE}"]
    shown = here("trace", "show", commits[0]).out.splitlines()
    assert shown[0] == f"{commits[0][:10]}  left  did one{HARMLESS}"
    assert shown[2] == f"  entry one{HARMLESS}"
    both = here("trace", "show", "left").out
    assert both.index("entry two") < both.index("entry one")
    assert [each["trace"]["commit"] for each in here.json("trace", "show", "left")] == commits[::-1]
    assert [each["trace"]["commit"] for each in here.json("trace", "show", "left", "-n", "1")] == commits[1:]
    with here.space() as space:
        space.archive("left")
    assert len(here.json("trace", "show", "left")) == 2


def test_commits_and_agents_without_a_trace(here: Here) -> None:
    head = git("rev-parse", "agents/right", cwd=here.root).strip()
    assert here("trace", "show", head).out == f"commit {head} has no trace\n"
    assert here.json("trace", "show", head) is None
    assert here("trace", "show", "right").out == "no commit of right has a trace\n"
    assert here.json("trace", "show", "right") == []
    assert here("trace", "history", head).out == f"commit {head} never had a trace\n"
    assert here.error("trace", "show", "nothing-here") == "no-such-object"
    assert here("trace", "show", "right", "-n", "0").code == 2


def test_a_trace_can_be_attached_to_any_commit_and_every_binding_is_remembered(here: Here, tmp_path: Path) -> None:
    head = git("rev-parse", "agents/right", cwd=here.root).strip()
    note = tmp_path / "note.txt"
    note.write_text(f"from a file {ESCAPE} {KEY}")
    first = here.json("trace", "attach", "right", str(note), "--kind", "transcript")
    assert first["commit"] == head
    (entry,) = here.json("trace", "show", head)["trace"]["entries"]
    assert (entry["kind"], entry["redacted"], KEY in entry["text"]) == ("transcript", 1, False)
    second = here.fed("from standard input", "trace", "attach", head)
    assert (second.code, second.out.startswith("attached trace "), second.out.endswith(f" to {head}\n")) == (0, True, True)
    entries = json.dumps([{"text": "a", "kind": "tool-call", "data": {"x": 1}}, {"text": KEY}])
    assert here.fed(entries, "trace", "attach", head, "--entries", "-", "--no-redact").code == 0
    found = here.json("trace", "show", head)["trace"]["entries"]
    assert [(each["kind"], each["text"]) for each in found] == [("tool-call", "a"), ("console", KEY)]
    history = here.json("trace", "history", head)
    assert len(history) == 3
    assert (history[2]["trace"], history[0]["trace"]) == (first["cid"], here.json("trace", "show", head)["cid"])
    assert list(history[0]) == ["notes_commit", "trace", "by", "message"]
    shown = here("trace", "history", head).out
    assert first["cid"][:10] in shown
    assert f"attach: trace of {head}" in shown


def test_attaching_to_a_commit_of_people_needs_an_agent_and_bad_entries_are_refused(here: Here, tmp_path: Path) -> None:
    tree = git("write-tree", cwd=here.root).strip()
    people = git("commit-tree", tree, "-m", "by hand", cwd=here.root).strip()
    git("update-ref", "refs/heads/main", people, cwd=here.root)
    note = tmp_path / "note.txt"
    note.write_text("said")
    assert here.error("trace", "attach", "main", str(note)) == "no-agent"
    assert here.error("trace", "attach", "main", str(note), "--agent", "No Name") == "invalid-name"
    assert here.error("trace", "attach", "main", str(note), "--agent", "nobody") == "no-such-agent"
    assert here.json("trace", "attach", "main", str(note), "--agent", "left")["commit"] == people
    assert here.json("trace", "show", people)["trace"]["agent"] == "left"
    before = here.refs()
    for body in ("{", '{"text": "x"}', '["x"]', '[{"kind": "console"}]', "[" * 100_000):
        note.write_text(body)
        assert here.error("trace", "attach", "left", "--entries", str(note)) == "invalid-entry"
    assert here.error("trace", "attach", "left", "--entries", str(note), "--kind", "x") == "invalid-option"
    assert here("trace", "attach", "left", str(note), "--entries", str(note)).code == 2
    assert here.error("trace", "attach", "nothing-here", str(note)) == "no-such-object"
    assert here.error("trace", "attach", "left", str(tmp_path / "gone"), code=1) == "file-error"
    assert here.error("trace", "add", "nobody", "x") == "no-such-agent"
    assert here.error("trace", "add", "left", "x", "--kind", "No Kind") == "invalid-kind"
    assert here.error("trace", "pending", "nobody") == "no-such-agent"
    assert here.refs() == before


def test_traces_are_searched_bound_and_pending(here: Here) -> None:
    with here.space() as space:
        space.trace("left", "console", f"first line\nthe Needle {ESCAPE}\nlast")
        bound = space.commit_with_trace("left", "finding", changes={"n": b"n"}, message="n")
        space.trace("right", "console", "another needle")
        space.trace("right", "console", "only in data", data={"x": "needle"})
    found = here.json("trace", "search", "needle")
    assert [(each["agent"], each["commit"], each["position"]) for each in found] == [
        ("left", bound, 0),
        ("right", None, 0),
        ("right", None, 1),
    ]
    rows = here("trace", "search", "needle").out.splitlines()
    assert rows[0].split() == ["agent", "commit", "entry", "line"]
    assert rows[1].split(maxsplit=3) == ["left", bound[:10], "0", f"the Needle {HARMLESS}"]
    assert rows[2].split() == ["right", "pending", "0", "another", "needle"]
    assert rows[3].split(maxsplit=3)[3].strip() == "only in data"
    assert [each["agent"] for each in here.json("trace", "search", "n[e]+dle", "--regex")] == ["right", "right"]
    assert [each["agent"] for each in here.json("trace", "search", "needle", "--agent", "left")] == ["left"]
    nothing = here("trace", "search", "n[e]+dle")
    assert (nothing.code, nothing.out) == (0, "nothing found\n")
    assert here.error("trace", "search", "(", "--regex") == "invalid-pattern"
    assert here.error("trace", "search", "") == "empty-search"
    assert here.error("trace", "search", "x", "--agent", "nobody") == "no-such-agent"


def leak(here: Here) -> None:
    with here.space() as space:
        space.trace("left", "console", "the word is hunter2hunter2, they said")
        space.commit_with_trace("left", "finding", changes={"n": b"n"}, message="n")
        space.trace("left", "console", "again hunter2hunter2")


def test_a_leak_is_purged_and_what_may_still_hold_it_is_said(here: Here) -> None:
    leak(here)
    ran = here.fed("hunter2hunter2\n", "trace", "purge", "left")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("removed from 1 trace and 1 pending entry of left; copies may remain in:\n  ")
    assert "clones, backups" in ran.out
    assert "hunter2" not in ran.out
    assert here.json("trace", "search", "hunter2") == []
    assert [each["text"] for each in here.json("trace", "pending", "left")] == ["again [purged]"]
    objects = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", cwd=here.root)
    blobs = [line.split()[0] for line in objects.splitlines() if line.endswith(" blob")]
    assert not [each for each in blobs if "hunter2" in git("cat-file", "blob", each, cwd=here.root)]
    again = here.json("trace", "purge", "left", "--text", "hunter2hunter2")
    assert (again["agent"], again["traces"], again["pending"]) == ("left", 0, 0)
    assert isinstance(again["remaining"], list)
    assert here.error("trace", "purge", "nobody", "--text", "hunter2hunter2") == "no-such-agent"
    assert here.error("trace", "purge", "left", "--text", "abc") == "text-too-short"


def test_at_a_terminal_a_purge_asks_first_and_never_shows_the_text(here: Here) -> None:
    leak(here)
    before = here.refs()
    talk = [("Text to remove (not shown): ", "hunter2hunter2\n"), ("[y/N] ", "n\n")]
    code, out, seen = at_terminal(here, ["trace", "purge", "left"], talk)
    assert (code, out) == (1, "")
    assert "error: not-confirmed: nothing was changed" in seen
    assert "hunter2" not in seen
    assert here.refs() == before
    code, out, _ = at_terminal(here, ["trace", "purge", "left", "--text", "hunter2hunter2", "--json"], [("[y/N] ", "y\n")])
    assert (code, json.loads(out)["traces"]) == (0, 1)
    code, out, seen = at_terminal(here, ["trace", "purge", "left", "--text", "hunter2hunter2", "--yes"], [])
    assert (code, out.startswith("removed from 0 traces"), "[y/N]" in seen) == (0, True, False)


# Upkeep


def test_verify_counts_what_it_saw_and_exits_1_on_findings(here: Here) -> None:
    leak(here)
    ran = here("verify")
    assert (ran.code, ran.out, ran.err) == (0, "3 agents, 5 commits, 1 trace, 2 relations: nothing found\n", "")
    found = here.json("verify")
    assert (found["clean"], found["findings"], found["unseen"]) == (True, [], [])
    assert (found["agents"], found["commits"], found["traces"], found["edges"]) == (3, 5, 1, 2)
    git("update-ref", "-d", "refs/clia/agents/left", cwd=here.root)
    broken = here("verify")
    assert broken.code == 1
    assert broken.out.splitlines()[1].split()[0] == "no-record"
    assert "refs/heads/agents/left" in broken.out
    assert broken.out.endswith(": 1 finding\n")
    told = here.json("verify", code=1)
    assert (told["clean"], told["findings"][0]["code"]) == (False, "no-record")


def test_verify_says_what_a_shallow_clone_cannot_see(here: Here, tmp_path: Path) -> None:
    change(here, "left", more_txt=b"m\n")
    clone = tmp_path / "clone"
    git("init", "-q", str(clone), cwd=tmp_path)
    git("fetch", "-q", "--depth", "1", f"file://{here.root}", "refs/heads/agents/left:refs/heads/agents/left", cwd=clone)
    git("fetch", "-q", "--depth", "1", f"file://{here.root}", "refs/clia/*:refs/clia/*", cwd=clone)
    ran = Here(clone)("verify")
    assert "not in this clone, so not checked:\n  " in ran.out
    assert "genesis" in ran.out


def test_the_index_is_rebuilt_with_a_bar_for_people_at_a_terminal_only(here: Here) -> None:
    ran = here("rebuild")
    assert (ran.code, ran.out, ran.err) == (0, "rebuilt the index: 2 relations\n", "")
    assert here.json("rebuild") == {"edges": 2}
    code, out, seen = at_terminal(here, ["rebuild"], [])
    assert (code, out) == (0, "rebuilt the index: 2 relations\n")
    assert "Reading git" in seen
    for words, said in ((["verify"], "Checking"), (["maintain"], "Packing"), (["trace", "search", "x"], "Searching")):
        code, _, seen = at_terminal(here, words, [])
        assert (code, said in seen) == (0, True)
    assert at_terminal(here, ["verify", "--json"], [])[2] == ""


def test_traces_follow_their_commits_through_a_rebase(here: Here) -> None:
    assert here("relink").out == "nothing to relink: no commit with a trace was squashed or rebased\n"
    with here.space() as space:
        space.trace("left", "console", "why")
        old = space.commit_with_trace("left", "finding", changes={"n.txt": b"n\n"}, message="n")
        base = space.commit("base", "finding", changes={"other.txt": b"o\n"}, message="moved on")
    git("checkout", "-q", "-b", "main", base, cwd=here.root)
    git("cherry-pick", "--no-commit", old, cwd=here.root)
    git("commit", "-q", "-m", "the same change", cwd=here.root)
    new = git("rev-parse", "main", cwd=here.root).strip()
    assert here.json("relink", "--onto", "base") == []
    (found,) = here.json("relink", "--onto", "main")
    assert found == {"commit": new, "sources": [old], "by": "patch-id", "agent": "left"}
    assert here.json("trace", "show", "main")["trace"]["entries"][0]["text"] == "why"
    assert here.error("relink", "--onto", "nothing-here") == "no-such-object"
    git("commit", "-q", "--amend", "-m", "once more", cwd=here.root)
    rows = here("relink").out.splitlines()
    assert rows[0].split() == ["commit", "agent", "trace", "of", "same"]
    assert rows[1].split()[:2] == [git("rev-parse", "main", cwd=here.root)[:10], "left"]


def test_maintain_packs_and_archives_what_is_finished(here: Here) -> None:
    change(here, "right", r_txt=b"r\n")
    here("merge", "left", "right")
    before = here.refs()
    planned = here.json("maintain", "--archive-idle", "0", "--dry-run")
    assert (planned["archived"], planned["dry_run"], planned["before"]) == (["base", "right"], True, planned["after"])
    told = here("maintain", "--archive-idle", "0", "--dry-run").out.splitlines()
    assert told[0] == "would archive: base, right"
    assert told[1].endswith("; nothing was changed")
    assert here.refs() == before
    assert here("maintain", "--archive-idle", "30").out.startswith("archived: no agent\nobjects took ")
    done = here.json("maintain", "--archive-idle", "0")
    assert (done["archived"], done["dry_run"]) == (["base", "right"], False)
    with here.space() as space:
        assert (space.agents(), space.agents(archived=True)) == (["left"], ["base", "right"])
    plain = here("maintain").out
    assert plain.startswith("objects took ")
    assert "archived" not in plain
    assert here.error("maintain", "--archive-idle", "-1") == "invalid-days"
    assert here("maintain", "--archive-idle", "soon").code == 2


def test_an_agent_is_archived_and_brought_back(here: Here) -> None:
    head = git("rev-parse", "agents/right", cwd=here.root)
    ran = here("archive", "right")
    assert (ran.code, ran.out) == (0, "archived right; restore it with: clia archive --restore right\n")
    assert git("branch", "--list", "agents/right", cwd=here.root) == ""
    assert here.error("archive", "right") == "no-such-agent"
    assert here.json("archive", "right", "--restore") == {"agent": "right", "archived": False}
    assert git("rev-parse", "agents/right", cwd=here.root) == head
    assert here.json("archive", "right") == {"agent": "right", "archived": True}
    assert here("archive", "--restore", "right").out == "restored right at agents/right\n"
    assert here.error("archive", "right", "--restore") == "no-such-agent"
    assert here.error("archive", "nobody") == "no-such-agent"


def test_doctor_tells_about_the_space(here: Here, tmp_path: Path) -> None:
    with here.space() as space:
        wanted = {"id": space.id, "agents": 3, "ailments": [], "beside": 0}
    (here.root / "deep").mkdir()
    assert here.json("doctor", "--path", "deep")["space"] == wanted
    assert f"space       {wanted['id']}, 3 active agents" in here("doctor").out
    other = tmp_path / "other"
    git("init", "-q", str(other), cwd=tmp_path)
    assert Here(other).json("doctor")["space"] is None
    assert "none; create one with: clia init" in Here(other)("doctor").out
    assert not (other / ".git" / "clia").exists()
    git("config", "clia.store", "nowhere://x", cwd=here.root)
    broken = here("doctor")
    assert broken.code == 1
    assert "!  space       invalid-store: " in broken.out
    assert here.json("doctor", code=1)["space"]["error"]["code"] == "invalid-store"


def test_every_command_says_where_there_is_no_space(tmp_path: Path) -> None:
    commands = (
        ("merge", "a", "b"),
        ("resolve", "a", "b"),
        ("relate", "a", "reviews", "b"),
        ("relations",),
        ("trace", "add", "a", "x"),
        ("trace", "pending", "a"),
        ("trace", "show", "a"),
        ("trace", "attach", "a", "x"),
        ("trace", "history", "a"),
        ("trace", "search", "x"),
        ("trace", "purge", "a", "--text", "text"),
        ("types",),
        ("verify",),
        ("rebuild",),
        ("relink",),
        ("maintain",),
        ("archive", "a"),
    )
    bare, repository = tmp_path / "bare", tmp_path / "repository"
    bare.mkdir()
    git("init", "-q", str(repository), cwd=tmp_path)
    for words in commands:
        assert Here(repository).error(*words, "--path", str(repository)) == "no-such-space"
    assert Here(bare).error("verify") == "no-such-repository"
    people = Here(repository)("verify")
    assert (people.code, people.out) == (2, "")
    assert "hint: clia init creates one" in people.err
    assert Here(repository)("verify", "--no-such-option").code == 2
    assert Here(repository).error("verify", "--path", str(bare)) == "no-such-repository"
