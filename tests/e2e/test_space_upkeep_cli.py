"""The commands for merges, relations, traces and upkeep."""

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
KEY = "AKIA" + "IOSFODNN7QQQQQQQ"  # in two parts, so that scanners do not report this file
QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))


class UpkeepCli(NamedTuple):
    """A space: ``base``, and ``left`` and ``right`` spawned from it."""

    root: Path

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Ran:
        return clia(*words, cwd=self.root, env={"COLUMNS": "200"} | (env or {}))

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self(*words, "--json")
        assert ran.code == code, ran
        return ran.json()

    def error(self, *words: str, code: int = 2) -> str:
        """The code of the error; standard output must be empty. Runs in this process, because starting one takes long."""
        out, err = StringIO(), StringIO()
        path_option = () if "--path" in words else ("--path", str(self.root))
        with redirect_stdout(out), redirect_stderr(err):
            exit_code = main([*words, *path_option, "--json"])
        assert (exit_code, out.getvalue()) == (code, ""), (words, out.getvalue(), err.getvalue())
        error_code: str = json.loads(err.getvalue())["error"]["code"]
        return error_code

    def fed(self, text: str | bytes, *words: str) -> Ran:
        """Run a command with standard input."""
        data = text.encode() if isinstance(text, str) else text
        result = subprocess.run([warm.program(), *words], cwd=self.root, input=data, capture_output=True, check=False)
        return Ran(result.returncode, result.stdout.decode(), result.stderr.decode())

    def space(self) -> library.Space:
        return library.open(self.root, settings=QUICK)

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


@pytest.fixture
def cli(tmp_path: Path) -> UpkeepCli:
    root = tmp_path.resolve() / "w"
    with library.init(root, settings=QUICK) as space:
        space.spawn("base", library.Briefing("start"))
        space.commit("base", "finding", {"a.txt": b"a\n", "gone.txt": b"1\n", "same.txt": b"same\n"}, message="base")
        space.spawn_from("left", library.Briefing("left"), "base")
        space.spawn_from("right", library.Briefing("right"), "base")
    git("config", "clia.durable", "false", cwd=root)
    return UpkeepCli(root)


def change(cli: UpkeepCli, agent: str, **changes: library.File | bytes | None) -> str:
    with cli.space() as space:
        named = {path.replace("_", "."): value for path, value in changes.items()}
        return space.commit(agent, "finding", changes=named, message=f"by {agent}")


def conflict(cli: UpkeepCli) -> None:
    """``left`` and ``right`` disagree on three paths: both changed, one deleted, both added."""
    with cli.space() as space:
        for agent, content in (("left", None), ("right", b"2\n")):
            changes = {"a.txt": f"{agent}\n".encode(), "gone.txt": content, f"new{ESCAPE}.txt": agent.encode()}
            space.commit(agent, "finding", changes=changes, message=f"by {agent}")


def tree_of(cli: UpkeepCli, agent: str) -> dict[str, str]:
    """Mode and content of every path, read by stock git."""
    entries = {}
    for line in git("ls-tree", "-r", "-z", f"agents/{agent}", cwd=cli.root).split("\0")[:-1]:
        facts, path = line.split("\t")
        mode, kind, cid = facts.split()
        entries[path] = f"{mode} {git('cat-file', 'blob', cid, cwd=cli.root) if kind == 'blob' else cid}"
    return entries


def at_terminal(cli: UpkeepCli, words: Sequence[str], talk: Sequence[tuple[str, str]]) -> tuple[int, str, str]:
    """Run the program with a terminal as standard input and error. ``talk``: pairs of text to wait for and text to type."""
    terminal, inner = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))} | {"TERM": "xterm"}
    # In a new session it has no controlling terminal, so that input comes only from ours.
    with subprocess.Popen(
        [warm.program(), *words],
        cwd=cli.root,
        env=environment,
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=inner,
        start_new_session=True,
        text=True,
    ) as running:
        os.close(inner)
        screen = _talk(terminal, talk)
        out = running.communicate()[0]
    os.close(terminal)
    return running.returncode, out, screen


def _talk(terminal: int, talk: Sequence[tuple[str, str]]) -> str:
    """Everything that was shown until the end."""
    screen, waiting = "", list(talk)
    read = 0
    while True:
        try:
            screen += os.read(terminal, 4096).decode()
        except OSError:
            return screen  # the other side of the terminal is closed
        if waiting and waiting[0][0] in screen[read:]:
            read = len(screen)
            os.write(terminal, waiting.pop(0)[1].encode())


# Merges


def test_a_merge_is_a_commit_with_two_parents_and_a_second_one_does_nothing(cli: UpkeepCli) -> None:
    change(cli, "left", left_txt=b"l\n")
    their_head = change(cli, "right", right_txt=b"r\n")
    merge = cli.json("merge", "left", "right", "-m", "take it", "--meta", "why=review", "--meta", "n=3")
    assert merge["result"] == "merged"
    subject, parents = git("log", "-1", "--format=%s%n%P", "agents/left", cwd=cli.root).splitlines()
    assert (subject, parents.split()[1]) == ("take it", their_head)
    assert git("rev-parse", "agents/left", cwd=cli.root).strip() == merge["cid"]
    with cli.space() as space:
        assert space.show("left").meta == {"why": "review", "n": 3}
    assert cli.json("merge", "left", "right") == {"result": "up-to-date", "head": merge["cid"]}
    again = cli("merge", "left", "right")
    assert (again.code, again.out) == (0, f"left already has all work of right, at {merge['cid'][:10]}\n")
    ran = cli("merge", "right", "left")
    assert (ran.code, ran.out) == (0, f"merged left into right: {cli.json('merge', 'right', 'left')['head']}\n")


def test_conflicts_are_reported_with_their_authors_and_the_next_step(cli: UpkeepCli) -> None:
    conflict(cli)
    heads = git("for-each-ref", "refs/heads", cwd=cli.root)
    ran = cli("merge", "left", "right")
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
    conflicts = cli.json("merge", "left", "right", code=1)
    assert list(conflicts) == ["result", "into", "from", "ours", "theirs", "paths"]
    assert (conflicts["result"], conflicts["into"], conflicts["from"]) == ("conflicts", "left", "right")
    assert conflicts["paths"][1] == {"path": "gone.txt", "base": "1\n", "ours": None, "theirs": "2\n"}
    assert [path["base"] for path in conflicts["paths"]] == ["a\n", "1\n", None]
    assert git("for-each-ref", "refs/heads", cwd=cli.root) == heads


def test_resolve_without_an_answer_lists_the_conflicts_and_commits_nothing(cli: UpkeepCli) -> None:
    assert cli.error("resolve", "left", "right") == "no-conflict"
    conflict(cli)
    assert cli.error("resolve", "left", "right", "--take", "ours") == "no-refused-merge"
    cli("merge", "left", "right")
    before = cli.refs()
    ran = cli("resolve", "left", "right")
    assert ran.code == 2
    assert f"new{HARMLESS}.txt" in ran.out
    assert "error: unresolved" in ran.err
    assert "hint: clia resolve left right --file PATH=FILE" in ran.err
    result = cli("resolve", "left", "right", "--json")
    assert (result.code, result.json()["result"]) == (2, "conflicts")
    assert json.loads(result.err)["error"]["fields"]["paths"][0] == "a.txt"
    (cli.root / "x").write_text("x")
    part = cli("resolve", "left", "right", "--file", "a.txt=x", "--json")
    assert (part.code, json.loads(part.err)["error"]["fields"]["paths"]) == (2, ["gone.txt", f"new{ESCAPE}.txt"])
    assert cli.refs() == before


def test_conflicts_are_resolved_by_files_removals_and_a_side_for_the_rest(cli: UpkeepCli) -> None:
    conflict(cli)
    their_head = git("rev-parse", "agents/right", cwd=cli.root).strip()
    cli("merge", "left", "right")
    tool = cli.root / "tool"
    tool.write_text("both\n")
    tool.chmod(0o755)
    words = ("--file", "a.txt=tool", "--remove", "gone.txt", "--take", "theirs", "-m", "settled", "--meta", "by=hand")
    merge = cli.json("resolve", "left", "right", *words)
    assert merge["result"] == "merged"
    assert tree_of(cli, "left") == {
        "a.txt": "100755 both\n",
        f"new{ESCAPE}.txt": "100644 right",
        "same.txt": "100644 same\n",
    }
    subject, parents = git("log", "-1", "--format=%s%n%P", merge["cid"], cwd=cli.root).splitlines()
    assert (subject, parents.split()[1]) == ("settled", their_head)


def test_taking_a_side_keeps_modes_links_submodules_and_deletions(cli: UpkeepCli) -> None:
    with cli.space() as space:
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
    cli("merge", "left", "right")
    ran = cli("resolve", "left", "right", "--take", "theirs")
    assert (ran.code, ran.out.startswith("merged right into left: ")) == (0, True)
    assert tree_of(cli, "left") == tree_of(cli, "right")
    assert tree_of(cli, "left") == {
        "a.txt": "100755 right\n",
        "gone.txt": "120000 right",
        "link": "120000 right",
        "odd [x]*.txt": "100644 right",
        "run": "100755 run right",
        "sub": f"160000 {'2' * 40}",
    }


def test_taking_ours_keeps_what_the_agent_had(cli: UpkeepCli) -> None:
    conflict(cli)
    change(cli, "right", extra_txt=b"e\n")
    before = tree_of(cli, "left")
    cli("merge", "left", "right")
    assert cli("resolve", "left", "right", "--take", "ours").code == 0
    assert tree_of(cli, "left") == before | {"extra.txt": "100644 e\n"}


def test_a_head_that_moved_since_the_conflict_is_stale_unless_it_is_named(cli: UpkeepCli) -> None:
    conflict(cli)
    cli("merge", "left", "right")
    moved = change(cli, "right", later_txt=b"later\n")
    before = cli.refs()
    assert cli.error("resolve", "left", "right", "--take", "ours", code=1) == "stale-ref"
    assert cli.error("resolve", "left", "right", "--take", "ours", "--theirs", "no-such") == "no-such-object"
    assert cli.refs() == before
    merge = cli.json("resolve", "left", "right", "--take", "ours", "--ours", "left", "--theirs", moved[:12])
    assert merge["result"] == "merged"
    assert tree_of(cli, "left")["later.txt"] == "100644 later\n"


@pytest.mark.parametrize("own", [".git", ".git/config"])
def test_a_directory_can_be_the_whole_result(cli: UpkeepCli, tmp_path: Path, own: str) -> None:
    conflict(cli)
    cli("merge", "left", "right")
    tree = Tree(tmp_path / "out")
    tree.write("deep/in/it.txt", "it")
    tree.write("run", "#!/bin/sh\n").chmod(0o755)
    tree.write(own, "not for the tree")
    (tree.root / "link").symlink_to("run")
    (tree.root / "folder").symlink_to("deep")
    assert cli("resolve", "left", "right", "--dir", tree.path()).code == 0
    assert tree_of(cli, "left") == {
        "deep/in/it.txt": "100644 it",
        "folder": "120000 deep",
        "link": "120000 run",
        "run": "100755 #!/bin/sh\n",
    }


def test_invalid_directories_are_refused(cli: UpkeepCli, tmp_path: Path) -> None:
    conflict(cli)
    cli("merge", "left", "right")
    before = cli.refs()
    tree = Tree(tmp_path / "out")
    tree.write("file", "x")
    assert cli.error("resolve", "left", "right", "--dir", tree.path("file")) == "not-a-directory"
    assert cli.error("resolve", "left", "right", "--dir", tree.path(), "--take", "ours") == "invalid-option"
    os.mkfifo(tree.path("pipe"))
    assert cli.error("resolve", "left", "right", "--dir", tree.path()) == "invalid-content"
    os.unlink(tree.path("pipe"))
    tree.write(".gitmodules", "")
    assert cli.error("resolve", "left", "right", "--dir", tree.path()) == "submodules"
    os.unlink(tree.path(".gitmodules"))
    tree.write("vendored/.git", "gitdir: elsewhere\n")
    assert cli.error("resolve", "left", "right", "--dir", tree.path()) == "submodules"
    assert cli.refs() == before


def test_bad_merges_are_refused_and_change_nothing(cli: UpkeepCli) -> None:
    conflict(cli)
    cli("merge", "left", "right")
    before = cli.refs()
    assert cli.error("merge", "left", "left") == "same-agent"
    assert cli.error("merge", "left", "nobody") == "no-such-agent"
    assert cli.error("merge", "No Name", "right") == "invalid-name"
    assert cli.error("merge", "left", "right", "--meta", "novalue") == "invalid-meta"
    assert cli.error("resolve", "left", "nobody", "--take", "ours") == "no-such-agent"
    assert cli.error("resolve", "left", "right", "--file", "a.txt") == "invalid-option"
    assert cli.error("resolve", "left", "right", "--file", "a.txt=x", "--remove", "a.txt") == "invalid-option"
    assert cli.error("resolve", "left", "right", "--file", "a.txt=gone", code=1) == "file-error"
    assert cli.refs() == before


# Relations and types


def test_relations_are_stated_shown_and_retracted(cli: UpkeepCli) -> None:
    relation = cli.json("relate", "left", "reviews", "right")
    assert list(relation) == ["src", "kind", "dst", "origin", "retracted"]
    assert cli("relate", "left", "reviews", "right").out == f"recorded: left reviews right ({relation['origin'][:10]})\n"
    ran = cli("relations")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["src", "kind", "dst", "stated", "by"]
    assert [row[:3] for row in rows[1:]] == [
        ["base", "sub-agent-of", "left"],
        ["base", "sub-agent-of", "right"],
        ["left", "reviews", "right"],
    ]
    assert rows[3][3] == relation["origin"][:10]
    relations = cli.json("relations", "left")
    assert [(relation["src"], relation["kind"], relation["dst"]) for relation in relations] == [
        ("base", "sub-agent-of", "left"),
        ("left", "reviews", "right"),
    ]
    assert relations[1]["origin"] == relation["origin"]
    retraction = cli.json("relate", "left", "reviews", "right", "--retract")
    assert retraction["retracted"] is True
    assert [relation["kind"] for relation in cli.json("relations", "right")] == ["sub-agent-of"]


def test_relations_of_unknown_agents_and_invalid_relations_are_refused(cli: UpkeepCli) -> None:
    with cli.space() as space:
        space.spawn("alone", library.Briefing("alone"))
        space.spawn("put-away", library.Briefing("put away"))
        space.agents.archive("put-away")
    assert cli("relations", "alone").out == "no relations; record one with: clia relate SRC reviews DST\n"
    assert cli.json("relations", "put-away") == []
    assert cli.error("relations", "nobody") == "no-such-agent"
    assert cli.error("relate", "left", "No Kind", "right") == "invalid-relation"
    assert cli.error("relate", "left", "reviews", "nobody") == "no-such-agent"
    assert cli.error("relate", "left", "reviews", "right", "--retract") == "no-such-edge"


def test_types_are_a_tree_and_can_be_registered(cli: UpkeepCli) -> None:
    assert cli("types", "--add", "review", "--parent", "agent-commit").out == "registered review, a subtype of agent-commit\n"
    types = cli.json("types", "--add", "security-review", "--parent", "review")
    assert (types["security-review"], types["review"], types["agent-commit"]) == ("review", "agent-commit", None)
    output = cli("types").out
    assert "\n│   └── security-review\n" in output or "\n    └── security-review\n" in output
    assert output.index("agent-commit") < output.index("review")
    assert "security-review" in cli("types", env={"LC_ALL": "C", "PYTHONUTF8": "0"}).out
    before = cli.refs()
    assert cli.error("types", "--add", "review", "--parent", "agent-commit", code=1) == "already-exists"
    assert cli.error("types", "--add", "other", "--parent", "nothing") == "no-such-type"
    assert cli.error("types", "--add", "Other", "--parent", "review") == "invalid-type"
    assert cli.error("types", "--parent", "review") == "invalid-option"
    assert cli.refs() == before
    assert cli.json("types", "--add", "top")["top"] is None


# Traces


def test_traced_entries_are_pending_and_shown_escaped(cli: UpkeepCli) -> None:
    assert cli("trace", "pending", "left").out == "no entries since the last commit of left with a trace\n"
    first = cli.fed(f"line one {ESCAPE}\r\nline two, key {KEY}\n", "trace", "add", "left")
    assert (first.code, first.out) == (0, "added entry 1 to the trace of left\n")
    entry = cli.json("trace", "add", "left", "ran a tool", "--kind", "tool-call")
    assert entry == {"agent": "left", "kind": "tool-call", "position": 2}
    assert cli.fed("as it is " + KEY, "trace", "add", "left", "-", "--no-redact").code == 0
    with cli.space() as space:
        space.trace("left", "console", "with data", data={"odd": ESCAPE})
    entries = cli.json("trace", "pending", "left")
    assert [entry["kind"] for entry in entries] == ["console", "tool-call", "console", "console"]
    assert entries[0]["text"].startswith(f"line one {ESCAPE}\r\n")
    assert (entries[0]["redacted"], KEY in entries[0]["text"]) == (1, False)
    assert (entries[2]["text"], "redacted" in entries[2]) == ("as it is " + KEY, False)
    lines = cli("trace", "pending", "left").out.splitlines()
    assert lines[0] == f"{entries[0]['at']}  console  redacted: 1"
    assert lines[1] == f"  line one {HARMLESS}"
    assert lines[2].startswith("  line two, key [redacted:")
    assert lines[3:5] == [f"{entries[1]['at']}  tool-call", "  ran a tool"]
    assert lines[-1] == '  {"odd": "\\\\u001b[31m"}'.replace("\\\\", "\\")


def test_a_truncated_entry_is_marked(cli: UpkeepCli) -> None:
    git("config", "clia.traceEntryMax", "10", cwd=cli.root)
    cli("trace", "add", "left", "0123456789abcdef")
    assert "  console  cut: it had 16 characters\n  0123456789\n  [cut: 6 more characters]\n" in cli("trace", "pending", "left").out


def test_traces_of_a_commit_and_of_all_commits_of_an_agent(cli: UpkeepCli) -> None:
    commits = []
    with cli.space() as space:
        for number in ("one", "two"):
            space.trace("left", "console", f"entry {number}{ESCAPE}")
            changes = {"n": number.encode()}
            commits.append(space.commit_with_trace("left", "finding", changes=changes, message=f"did {number}{ESCAPE}"))
        cid = space.traces.id_of(commits[0])
    bound = cli.json("trace", "show", commits[0][:12])
    assert bound["cid"] == cid
    assert (bound["trace"]["commit"], bound["trace"]["agent"]) == (commits[0], "left")
    assert [entry["text"] for entry in bound["trace"]["entries"]] == [f"entry one{ESCAPE}"]
    output_lines = cli("trace", "show", commits[0]).out.splitlines()
    assert output_lines[0] == f"{commits[0][:10]}  left  did one{HARMLESS}"
    assert output_lines[2] == f"  entry one{HARMLESS}"
    output = cli("trace", "show", "left").out
    assert output.index("entry two") < output.index("entry one")
    assert [row["trace"]["commit"] for row in cli.json("trace", "show", "left")] == commits[::-1]
    assert [row["trace"]["commit"] for row in cli.json("trace", "show", "left", "-n", "1")] == commits[1:]
    with cli.space() as space:
        space.agents.archive("left")
    assert len(cli.json("trace", "show", "left")) == 2


def test_commits_and_agents_without_a_trace(cli: UpkeepCli) -> None:
    head = git("rev-parse", "agents/right", cwd=cli.root).strip()
    assert cli("trace", "show", head).out == f"commit {head} has no trace\n"
    assert cli.json("trace", "show", head) is None
    assert cli("trace", "show", "right").out == "no commit of right has a trace\n"
    assert cli.json("trace", "show", "right") == []
    assert cli("trace", "history", head).out == f"commit {head} never had a trace\n"
    assert cli.error("trace", "show", "nothing-here") == "no-such-object"
    assert cli("trace", "show", "right", "-n", "0").code == 2


def test_a_trace_can_be_attached_to_any_commit_and_every_binding_is_remembered(cli: UpkeepCli, tmp_path: Path) -> None:
    head = git("rev-parse", "agents/right", cwd=cli.root).strip()
    note = tmp_path / "note.txt"
    note.write_text(f"from a file {ESCAPE} {KEY}")
    first = cli.json("trace", "attach", "right", str(note), "--kind", "transcript")
    assert first["commit"] == head
    (entry,) = cli.json("trace", "show", head)["trace"]["entries"]
    assert (entry["kind"], entry["redacted"], KEY in entry["text"]) == ("transcript", 1, False)
    second = cli.fed("from standard input", "trace", "attach", head)
    assert (second.code, second.out.startswith("attached trace "), second.out.endswith(f" to {head}\n")) == (0, True, True)
    entries = json.dumps([{"text": "a", "kind": "tool-call", "data": {"x": 1}}, {"text": KEY}])
    assert cli.fed(entries, "trace", "attach", head, "--entries", "-", "--no-redact").code == 0
    bound = cli.json("trace", "show", head)["trace"]["entries"]
    assert [(bound_entry["kind"], bound_entry["text"]) for bound_entry in bound] == [("tool-call", "a"), ("console", KEY)]
    history = cli.json("trace", "history", head)
    assert len(history) == 3
    assert (history[2]["trace"], history[0]["trace"]) == (first["cid"], cli.json("trace", "show", head)["cid"])
    assert list(history[0]) == ["notes_commit", "trace", "by", "message"]
    output = cli("trace", "history", head).out
    assert first["cid"][:10] in output
    assert f"attach: trace of {head}" in output


def test_attaching_to_a_users_commit_needs_an_agent_and_invalid_entries_are_refused(cli: UpkeepCli, tmp_path: Path) -> None:
    tree = git("write-tree", cwd=cli.root).strip()
    people = git("commit-tree", tree, "-m", "by hand", cwd=cli.root).strip()
    git("update-ref", "refs/heads/main", people, cwd=cli.root)
    note = tmp_path / "note.txt"
    note.write_text("said")
    assert cli.error("trace", "attach", "main", str(note)) == "no-agent"
    assert cli.error("trace", "attach", "main", str(note), "--agent", "No Name") == "invalid-name"
    assert cli.error("trace", "attach", "main", str(note), "--agent", "nobody") == "no-such-agent"
    assert cli.json("trace", "attach", "main", str(note), "--agent", "left")["commit"] == people
    assert cli.json("trace", "show", people)["trace"]["agent"] == "left"
    before = cli.refs()
    for body in ("{", '{"text": "x"}', '["x"]', '[{"kind": "console"}]', "[" * 100_000):
        note.write_text(body)
        assert cli.error("trace", "attach", "left", "--entries", str(note)) == "invalid-entry"
    assert cli.error("trace", "attach", "left", "--entries", str(note), "--kind", "x") == "invalid-option"
    assert cli("trace", "attach", "left", str(note), "--entries", str(note)).code == 2
    assert cli.error("trace", "attach", "nothing-here", str(note)) == "no-such-object"
    assert cli.error("trace", "attach", "left", str(tmp_path / "gone"), code=1) == "file-error"
    assert cli.error("trace", "add", "nobody", "x") == "no-such-agent"
    assert cli.error("trace", "add", "left", "x", "--kind", "No Kind") == "invalid-kind"
    assert cli.error("trace", "pending", "nobody") == "no-such-agent"
    assert cli.refs() == before


def test_search_covers_bound_and_pending_traces(cli: UpkeepCli) -> None:
    with cli.space() as space:
        space.trace("left", "console", f"first line\nthe Needle {ESCAPE}\nlast")
        bound = space.commit_with_trace("left", "finding", changes={"n": b"n"}, message="n")
        space.trace("right", "console", "another needle")
        space.trace("right", "console", "only in data", data={"x": "needle"})
    hits = cli.json("trace", "search", "needle")
    assert [(hit["agent"], hit["commit"], hit["position"]) for hit in hits] == [
        ("left", bound, 0),
        ("right", None, 0),
        ("right", None, 1),
    ]
    rows = cli("trace", "search", "needle").out.splitlines()
    assert rows[0].split() == ["agent", "commit", "entry", "line"]
    assert rows[1].split(maxsplit=3) == ["left", bound[:10], "0", f"the Needle {HARMLESS}"]
    assert rows[2].split() == ["right", "pending", "0", "another", "needle"]
    assert rows[3].split(maxsplit=3)[3].strip() == "only in data"
    assert [hit["agent"] for hit in cli.json("trace", "search", "n[e]+dle", "--regex")] == ["right", "right"]
    assert [hit["agent"] for hit in cli.json("trace", "search", "needle", "--agent", "left")] == ["left"]
    nothing = cli("trace", "search", "n[e]+dle")
    assert (nothing.code, nothing.out) == (0, "nothing found\n")
    assert cli.error("trace", "search", "(", "--regex") == "invalid-pattern"
    assert cli.error("trace", "search", "") == "empty-search"
    assert cli.error("trace", "search", "x", "--agent", "nobody") == "no-such-agent"


def leak(cli: UpkeepCli) -> None:
    with cli.space() as space:
        space.trace("left", "console", "the word is hunter2hunter2, they said")
        space.commit_with_trace("left", "finding", changes={"n": b"n"}, message="n")
        space.trace("left", "console", "again hunter2hunter2")


def test_a_leak_is_purged_and_remaining_copies_are_reported(cli: UpkeepCli) -> None:
    leak(cli)
    ran = cli.fed("hunter2hunter2\n", "trace", "purge", "left")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("removed from 1 trace and 1 pending entry of left; copies may remain in:\n  ")
    assert "clones, backups" in ran.out
    assert "hunter2" not in ran.out
    assert cli.json("trace", "search", "hunter2") == []
    assert [entry["text"] for entry in cli.json("trace", "pending", "left")] == ["again [purged]"]
    objects = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", cwd=cli.root)
    blobs = [line.split()[0] for line in objects.splitlines() if line.endswith(" blob")]
    assert not [blob for blob in blobs if "hunter2" in git("cat-file", "blob", blob, cwd=cli.root)]
    again = cli.json("trace", "purge", "left", "--text", "hunter2hunter2")
    assert (again["agent"], again["traces"], again["pending"]) == ("left", 0, 0)
    assert isinstance(again["remaining"], list)
    assert cli.error("trace", "purge", "nobody", "--text", "hunter2hunter2") == "no-such-agent"
    assert cli.error("trace", "purge", "left", "--text", "abc") == "text-too-short"


def test_at_a_terminal_a_purge_asks_for_confirmation_and_never_shows_the_text(cli: UpkeepCli) -> None:
    leak(cli)
    before = cli.refs()
    talk = [("Text to remove (not shown): ", "hunter2hunter2\n"), ("[y/N] ", "n\n")]
    code, out, screen = at_terminal(cli, ["trace", "purge", "left"], talk)
    assert (code, out) == (1, "")
    assert "error: not-confirmed: nothing was changed" in screen
    assert "hunter2" not in screen
    assert cli.refs() == before
    code, out, _ = at_terminal(cli, ["trace", "purge", "left", "--text", "hunter2hunter2", "--json"], [("[y/N] ", "y\n")])
    assert (code, json.loads(out)["traces"]) == (0, 1)
    code, out, screen = at_terminal(cli, ["trace", "purge", "left", "--text", "hunter2hunter2", "--yes"], [])
    assert (code, out.startswith("removed from 0 traces"), "[y/N]" in screen) == (0, True, False)


# Upkeep


def test_verify_counts_checked_objects_and_exits_1_on_findings(cli: UpkeepCli) -> None:
    leak(cli)
    ran = cli("verify")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 agents, 5 commits, 1 trace, 2 relations: consistent\nsigned by machine-")
    assert ran.out.endswith("signed: everything is signed and logged\n")
    verified = cli.json("verify")
    assert verified["clean"] is True
    report = verified
    assert (report["clean"], report["findings"], report["unseen"]) == (True, [], [])
    assert (report["agents"], report["commits"], report["traces"], report["edges"]) == (3, 5, 1, 2)
    git("update-ref", "-d", "refs/clia/agents/left", cwd=cli.root)
    broken = cli("verify")
    assert broken.code == 1
    assert broken.out.splitlines()[1].split()[0] == "no-record"
    assert "refs/heads/agents/left" in broken.out
    assert broken.out.endswith(": 1 finding\n")
    report = cli.json("verify", code=1)
    assert (report["clean"], report["findings"][0]["code"]) == (False, "no-record")


def test_verify_reports_what_a_shallow_clone_does_not_have(cli: UpkeepCli, tmp_path: Path) -> None:
    change(cli, "left", more_txt=b"m\n")
    clone = tmp_path / "clone"
    git("init", "-q", str(clone), cwd=tmp_path)
    git("fetch", "-q", "--depth", "1", f"file://{cli.root}", "refs/heads/agents/left:refs/heads/agents/left", cwd=clone)
    git("fetch", "-q", "--depth", "1", f"file://{cli.root}", "refs/clia/*:refs/clia/*", cwd=clone)
    ran = UpkeepCli(clone)("verify")
    assert ran.code == 1
    assert "shallow" in ran.out
    assert "missing-commit" in ran.out


def test_rebuild_shows_a_progress_bar_only_at_a_terminal(cli: UpkeepCli) -> None:
    ran = cli("rebuild")
    assert (ran.code, ran.out, ran.err) == (0, "rebuilt the index: 2 relations\n", "")
    assert cli.json("rebuild") == {"edges": 2}
    code, out, screen = at_terminal(cli, ["rebuild"], [])
    assert (code, out) == (0, "rebuilt the index: 2 relations\n")
    assert "Reading git" in screen
    for words, label in ((["verify"], "Checking"), (["maintain"], "Packing"), (["trace", "search", "x"], "Searching")):
        code, _, screen = at_terminal(cli, words, [])
        assert (code, label in screen) == (0, True)
    assert at_terminal(cli, ["verify", "--json"], [])[2] == ""


def test_traces_follow_their_commits_through_a_rebase(cli: UpkeepCli) -> None:
    assert cli("relink").out == "nothing to relink: no commit with a trace or checkpoint was squashed or rebased\n"
    with cli.space() as space:
        space.trace("left", "console", "why")
        old = space.commit_with_trace("left", "finding", changes={"n.txt": b"n\n"}, message="n")
        base = space.commit("base", "finding", changes={"other.txt": b"o\n"}, message="moved on")
    git("checkout", "-q", "-b", "main", base, cwd=cli.root)
    git("cherry-pick", "--no-commit", old, cwd=cli.root)
    git("commit", "-q", "-m", "the same change", cwd=cli.root)
    new = git("rev-parse", "main", cwd=cli.root).strip()
    assert cli.json("relink", "--onto", "base") == []
    (relink,) = cli.json("relink", "--onto", "main")
    assert relink == {"commit": new, "sources": [old], "by": "patch-id", "agent": "left"}
    assert cli.json("trace", "show", "main")["trace"]["entries"][0]["text"] == "why"
    assert cli.error("relink", "--onto", "nothing-here") == "no-such-object"
    git("commit", "-q", "--amend", "-m", "once more", cwd=cli.root)
    rows = cli("relink").out.splitlines()
    assert rows[0].split() == ["commit", "agent", "trace", "of", "same"]
    assert rows[1].split()[:2] == [git("rev-parse", "main", cwd=cli.root)[:10], "left"]


def test_maintain_packs_and_archives_finished_agents(cli: UpkeepCli) -> None:
    change(cli, "right", r_txt=b"r\n")
    cli("merge", "left", "right")
    before = cli.refs()
    planned = cli.json("maintain", "--archive-idle", "0", "--dry-run")
    assert (planned["archived"], planned["dry_run"], planned["before"]) == (["base", "right"], True, planned["after"])
    output_lines = cli("maintain", "--archive-idle", "0", "--dry-run").out.splitlines()
    assert output_lines[0] == "would archive: base, right"
    assert output_lines[1].endswith("; nothing was changed")
    assert cli.refs() == before
    assert cli("maintain", "--archive-idle", "30").out.startswith("archived: no agent\nobjects took ")
    report = cli.json("maintain", "--archive-idle", "0")
    assert (report["archived"], report["dry_run"]) == (["base", "right"], False)
    with cli.space() as space:
        assert (space.agents(), space.agents(archived=True)) == (["left"], ["base", "right"])
    plain = cli("maintain").out
    assert plain.startswith("objects took ")
    assert "archived" not in plain
    assert cli.error("maintain", "--archive-idle", "-1") == "invalid-days"
    assert cli("maintain", "--archive-idle", "soon").code == 2


def test_an_agent_is_archived_and_restored(cli: UpkeepCli) -> None:
    head = git("rev-parse", "agents/right", cwd=cli.root)
    ran = cli("archive", "right")
    assert (ran.code, ran.out) == (0, "archived right; restore it with: clia archive --restore right\n")
    assert git("branch", "--list", "agents/right", cwd=cli.root) == ""
    assert cli.error("archive", "right") == "no-such-agent"
    assert cli.json("archive", "right", "--restore") == {"agent": "right", "archived": False}
    assert git("rev-parse", "agents/right", cwd=cli.root) == head
    assert cli.json("archive", "right") == {"agent": "right", "archived": True}
    assert cli("archive", "--restore", "right").out == "restored right at agents/right\n"
    assert cli.error("archive", "right", "--restore") == "no-such-agent"
    assert cli.error("archive", "nobody") == "no-such-agent"


def test_doctor_describes_the_space(cli: UpkeepCli, tmp_path: Path) -> None:
    with cli.space() as space:
        expected: dict[str, object] = {key: [] for key in ("ailments", "broken_checkouts", "lost", "drifted", "lines")}
        expected |= {"id": space.id, "agents": 3, "beside": 0}
        expected["signing"] = {"signing": True, "code": None, "problem": None, "hints": [], "enrolled": True}
    (cli.root / "deep").mkdir()
    assert cli.json("doctor", "--path", "deep")["space"] == expected
    assert f"space       {expected['id']}, 3 active agents" in cli("doctor").out
    other_repository = tmp_path / "other"
    git("init", "-q", str(other_repository), cwd=tmp_path)
    assert UpkeepCli(other_repository).json("doctor")["space"] is None
    assert "none; create one with: clia init" in UpkeepCli(other_repository)("doctor").out
    assert not (other_repository / ".git" / "clia").exists()
    git("config", "clia.store", "nowhere://x", cwd=cli.root)
    broken = cli("doctor")
    assert broken.code == 1
    assert "!  space       invalid-store: " in broken.out
    assert cli.json("doctor", code=1)["space"]["error"]["code"] == "invalid-store"


def test_every_command_fails_outside_a_space(tmp_path: Path) -> None:
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
        assert UpkeepCli(repository).error(*words, "--path", str(repository)) == "no-such-space"
    assert UpkeepCli(bare).error("verify") == "no-such-repository"
    people = UpkeepCli(repository)("verify")
    assert (people.code, people.out) == (2, "")
    assert "hint: run: clia init" in people.err
    assert UpkeepCli(repository)("verify", "--no-such-option").code == 2
    assert UpkeepCli(repository).error("verify", "--path", str(bare)) == "no-such-repository"
