"""The made-up sessions of the tools: the same every time, in the tools' own shapes, and away from git."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clia.capture.rehearsal import ScriptError, Setting, parse, play, story
from support import clia, git, hook_payloads

START = datetime(2026, 5, 1, 9, tzinfo=UTC)
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d(?:[:-]\d\d(?:\.\d+Z)?)?|\d{4}/\d\d/\d\d")


class Session(NamedTuple):
    """What a rehearsal did: what it told, what its hooks got, and where."""

    told: dict[str, Any]
    sent: list[bytes]
    root: Path

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.told["events"]]

    def lines(self, path: str | None = None) -> list[Any]:
        return [json.loads(line) for line in Path(path or self.told["transcript"]).read_text(encoding="utf-8").splitlines()]

    def bare(self) -> str:
        """All that it left, without the times and places that may differ."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file())
        whole = "\n".join([json.dumps(self.told), *(data.decode() for data in self.sent)])
        whole += "".join(f"\n{path}\n{path.read_text(encoding='utf-8')}" for path in files)
        work = str(self.root / "project")
        for text, name in (
            (hashlib.sha256(work.encode()).hexdigest(), "HASH"),
            (re.sub(r"[^A-Za-z0-9]", "-", work), "PROJECT"),
            (str(self.root), "ROOT"),
        ):
            whole = whole.replace(text, name)
        return _TIMES.sub("TIME", whole)


def session(root: Path, tool: str, script: list[dict[str, Any]] | None = None, **more: Any) -> Session:
    (root / "project").mkdir(parents=True, exist_ok=True)
    sent: list[bytes] = []

    def send(payload: bytes) -> int:
        sent.append(payload)
        return 0

    setting = Setting(tool, str(root / "project"), str(root / "home"), START, environment=dict(os.environ), send=send)
    return Session(play(setting._replace(**more), parse(script or story())), sent, root)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Session]:
    """The story, played once by each tool."""
    return {tool: session(tmp_path_factory.mktemp(tool).resolve(), tool) for tool in hook_payloads.TOOLS}


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_the_same_seed_gives_the_same_bytes_but_times_and_another_seed_shares_no_id(
    tool: str, sessions: dict[str, Session], tmp_path: Path
) -> None:
    first, later = sessions[tool], datetime(2031, 11, 30, 23, 59, 59, tzinfo=UTC)
    again = session(tmp_path / "again", tool, start=later)
    assert first.bare() == again.bare()
    other = session(tmp_path / "other", tool, seed=2, stop_after=10)
    assert other.kinds() == first.kinds()[:10]
    names = ("session", "uuid", "tool_use_id", "prompt_id", "turn_id", "agent")
    ids = [{each[name] for each in played.told["events"] for name in names if each.get(name)} for played in (first, other)]
    assert min(map(len, ids)) >= 5
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_every_payload_has_the_fields_that_the_tool_documents(tool: str, sessions: dict[str, Session]) -> None:
    known: dict[str, set[str]] = {}
    for payload in hook_payloads.payloads(tool).values():
        known.setdefault(payload["hook_event_name"], set()).update(payload)
    sent = [json.loads(data) for data in sessions[tool].sent]
    for payload in sent:
        event = payload["hook_event_name"]
        assert hook_payloads.required(tool, event) <= set(payload) <= known[event], event
    events = [each for each in sessions[tool].told["events"] if each["hook"]]
    assert [each["hook"] for each in events] == [payload["hook_event_name"] for payload in sent]
    assert [each.get("tool_use_id") for each in events if tool == "claude-code" and each["kind"].startswith("tool-")] == [
        payload["tool_use_id"] for payload in sent if tool == "claude-code" and "tool_use_id" in payload
    ]
    never = {"StopFailure"}  # the story has no failing model
    assert hook_payloads.played(tool) - never == {payload["hook_event_name"] for payload in sent}


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_the_documented_payloads_have_what_is_required(tool: str) -> None:
    for name, payload in hook_payloads.payloads(tool).items():
        assert hook_payloads.required(tool, payload["hook_event_name"]) <= set(payload), name
        assert name.partition("-")[0] == payload["hook_event_name"]


def test_claude_codes_transcripts_tell_each_thing_once_and_hang_together(sessions: dict[str, Session]) -> None:
    played = sessions["claude-code"]
    of_agent = {each["id"]: played.lines(each["transcript"]) for each in played.told["agents"]} | {"": played.lines()}
    for agent, lines in of_agent.items():
        ids = [line["uuid"] for line in lines if "uuid" in line]
        events = [each for each in played.told["events"] if each["agent"] == agent and "uuid" in each]
        told = [each["uuid"] for each in events if each["kind"] not in ("start", "turn-end")]
        assert len(set(ids)) == len(ids)
        assert [each for each in ids if each in told] == told
        parents = [line["parentUuid"] for line in lines if "uuid" in line]
        boundaries = [place for place, line in enumerate(lines) if line.get("subtype") == "compact_boundary"]
        assert parents.count(None) == 1 + len(boundaries)
        assert all(parent is None or parent in ids[:place] for place, parent in enumerate(parents))
        assert all(line.get("isSidechain", False) == bool(agent) for line in lines)
        blocks = [block for line in lines for block in _blocks(line)]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert sorted(used) == sorted(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
    assert len(of_agent) == 3


def _blocks(line: dict[str, Any]) -> list[dict[str, Any]]:
    content = line.get("message", {}).get("content")
    return content if isinstance(content, list) else []


def test_two_sub_agents_take_turns_and_only_one_of_them_writes(sessions: dict[str, Session]) -> None:
    played = sessions["claude-code"]
    steps = [each["agent"] for each in played.told["events"] if each["agent"] and each["kind"] in ("tool-call", "thinking")]
    assert steps[0] != steps[1] == steps[3] != steps[2]
    writers = {each["agent"] for each in played.told["events"] if each.get("tool") == "Write"}
    assert len(writers - {""}) == 1
    assert sorted(path.name for path in (played.root / "project/durations").iterdir()) == [
        "README.md",
        "parser.py",
        "test_parser.py",
    ]


SHORT: list[dict[str, Any]] = [{"prompt": "Go."}, {"say": "One."}, {"write": "a/b.txt", "text": "x\n"}, {"stop": True}]


def test_trouble_is_made_on_purpose_and_told(tmp_path: Path) -> None:
    """A missed hook, one cut in half, a transcript behind its hooks, and an event and a line that nobody knows."""
    script: list[dict[str, Any]] = [
        {"miss": 1},
        {"prompt": "Go."},
        {"truncated": 1},
        {"lag": 2},
        {"bash": "true"},
        {"unknown-event": "EventOfTomorrow", "fields": {"x": 1}},
        {"unknown-line": {"type": "line-of-tomorrow"}},
        {"unknown-line": '{"type": "torn'},
        {"stop": "overloaded"},
    ]
    played = session(tmp_path, "claude-code", script)
    events = played.told["events"]
    sent = [each["sent"] for each in events if each["hook"]]
    assert sent == ["whole", "missed", "truncated", "whole", "whole", "whole"]
    whole = [data for data in played.sent if data.endswith(b"}")]
    assert [json.loads(data)["hook_event_name"] for data in whole] == [
        "SessionStart",
        "PostToolUse",
        "EventOfTomorrow",
        "StopFailure",
    ]
    assert [each["line"] for each in events if each["kind"].startswith("tool-")] == ["late", "late"]
    raw = Path(played.told["transcript"]).read_text(encoding="utf-8").splitlines()
    assert raw[-1] == '{"type": "torn'
    assert [json.loads(line)["type"] for line in raw[-4:-1]] == ["assistant", "user", "line-of-tomorrow"]


def test_a_lagging_line_is_not_there_when_its_hook_runs(tmp_path: Path) -> None:
    seen: list[bool] = []

    def send(payload: bytes) -> int:
        told = json.loads(payload)
        if told["hook_event_name"] == "PreToolUse":
            seen.append(told["tool_use_id"] in Path(told["transcript_path"]).read_text(encoding="utf-8"))
        return 0

    session(tmp_path, "claude-code", [{"prompt": "Go."}, {"lag": 1}, {"bash": "true"}, {"bash": "true"}], send=send)
    assert seen == [False, True]


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_a_session_is_resumed_without_an_id_twice(tool: str, tmp_path: Path) -> None:
    first = session(tmp_path, tool, SHORT)
    before = first.lines()
    second = session(tmp_path, tool, [{"resume": 2}, *SHORT], start=datetime(2026, 5, 2, tzinfo=UTC))
    assert second.told["transcript"] == first.told["transcript"]
    assert second.told["session"] == first.told["session"]
    assert second.lines()[: len(before)] == before
    both = first.told["events"] + second.told["events"]
    ids = [each["uuid"] for each in both if each["kind"] in ("prompt", "said") and "uuid" in each]
    ids += [each["tool_use_id"] for each in both if each["kind"] == "tool-call"]
    assert len(set(ids)) == len(ids) > 1
    assert json.loads(second.sent[0])["source"] == "resume"


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_fork_has_the_history_under_another_id(tool: str, tmp_path: Path) -> None:
    script = [*SHORT, {"fork": 3}, {"prompt": "Go on."}, {"stop": True}]
    played = session(tmp_path, tool, script)
    old, new = played.told["sessions"]
    assert old != new == json.loads(played.sent[-1])["session_id"]
    whole = Path(played.told["transcript"]).read_text(encoding="utf-8")
    assert "One." in whole
    assert "Go on." in whole
    assert old in whole  # it says where it comes from


BAD = {
    "no list": ({"prompt": "x"}, ""),
    "no object": (["prompt"], "[0]"),
    "no verb": ([{"text": "x"}], "[0]"),
    "two verbs": ([{"say": "x", "think": "y"}], "[0]"),
    "wrong type": ([{"prompt": "x"}, {"say": 7}], "[1]"),
    "a truth for a number": ([{"miss": True}], "[0]"),
    "unknown field": ([{"say": "x", "loud": True}], "[0]"),
    "lacking field": ([{"write": "a"}], "[0]"),
    "outside": ([{"write": "../a", "text": ""}], "[0]"),
    "absolute": ([{"read": "/etc/hostname"}], "[0]"),
    "git's own": ([{"write": ".git/config", "text": ""}], "[0]"),
    "inside a sub-agent": ([{"subagent": "x", "task": "y", "steps": [{"say": "z"}, {"prompt": "p"}]}], "[0].steps[1]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_script_that_cannot_be_played_is_refused_with_its_step(name: str) -> None:
    given, where = BAD[name]
    with pytest.raises(ScriptError) as caught:
        parse(given)
    assert caught.value.where == where


def test_a_command_that_was_to_fail_and_did_not_is_an_error_of_the_script(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="was to fail"):
        session(tmp_path, "codex", [{"fail": "true"}])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "repository"
    root.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=root)
    (root / "kept.txt").write_text("one\n")
    git("add", ".", cwd=root)
    git("commit", "-q", "-m", "first", cwd=root)
    (root / "kept.txt").write_text("two\n")
    git("add", ".", cwd=root)
    (root / "kept.txt").write_text("three\n")
    return root


def _git_files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((root / ".git").rglob("*")) if path.is_file()}


def test_the_command_runs_hooks_leaves_git_alone_and_can_be_repeated(repository: Path, tmp_path: Path) -> None:
    """A stranger's hook gets each payload, in the directory that the tool works in; no byte below .git changes."""
    before, got, home = _git_files(repository), tmp_path / "got", str(tmp_path / "home")
    code = "import json,os,sys; print(json.dumps([os.getcwd(), os.environ['CLAUDE_PROJECT_DIR'], json.load(sys.stdin)]))"
    hook = f"{sys.executable} -S -c \"{code}\" >> '{got}'"
    words = ("hook", "rehearse", "--home", home, "--start", "2026-05-01T09:00:00Z")
    ran = clia(*words, "--hook", hook, "--stop-after", "9", "--json", cwd=repository)
    assert ran.code == 0, ran.err
    told = ran.json()
    assert (told["ended"], len(told["events"]), told["seed"]) == ("stopped", 9, 1)
    lines = [json.loads(line) for line in got.read_text().splitlines()]
    assert [payload["hook_event_name"] for _, _, payload in lines] == [each["hook"] for each in told["events"] if each["hook"]]
    assert {place for line in lines for place in line[:2]} == {str(repository)}
    shown = clia(*words, "--no-hooks", cwd=repository)
    assert shown.code == 0, shown.err
    assert "Have it reviewed" in shown.out
    assert _git_files(repository) == before
    assert git("status", "--porcelain", cwd=repository).splitlines() == ["MM kept.txt", "?? durations-2/", "?? durations/"]
    again = clia(*words, "--seed", "2", cwd=repository)
    assert (again.code, "already-rehearsed" in again.err) == (2, True)


def test_a_crash_is_a_kill_and_tells_first_what_was_done(repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*SHORT[:3], {"crash": True}, {"stop": True}]))
    words = ("--script", str(script), "--home", str(tmp_path / "home"), "--no-hooks", "--json")
    ran = clia("hook", "rehearse", "gemini", *words, cwd=repository)
    assert ran.code == -signal.SIGKILL
    assert [each["kind"] for each in ran.json()["events"]] == ["start", "prompt", "said", "tool-call", "tool-result"]
    assert (repository / "a/b.txt").read_text() == "x\n"


def test_bad_input_is_named_and_changes_nothing(repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"prompt": "x"}, {"dance": true}]')
    before = sorted(repository.iterdir())
    refused = clia("hook", "rehearse", "--script", str(script), "--home", str(tmp_path / "home"), "--json", cwd=repository)
    assert (refused.code, json.loads(refused.err)["error"]["fields"]["step"]) == (2, "[1]")
    script.write_text("[")
    for words, code in ((("--script", str(script)), "invalid-script"), (("--start", "noon"), "invalid-time")):
        ran = clia("hook", "rehearse", *words, cwd=repository)
        assert (ran.code, code in ran.err) == (2, True)
    nowhere = clia("hook", "rehearse", "--path", str(tmp_path), cwd=repository)
    assert (nowhere.code, "no-repository" in nowhere.err) == (2, True)
    assert sorted(repository.iterdir()) == before
