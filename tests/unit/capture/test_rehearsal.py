"""Rehearsed sessions: reproducible, in each tool's own format, and without changes in git."""

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


class Rehearsal(NamedTuple):
    """A rehearsal: its report, the payloads its hooks got, and its directory."""

    report: dict[str, Any]
    sent: list[bytes]
    root: Path

    def kinds(self) -> list[str]:
        return [step["kind"] for step in self.report["events"]]

    def lines(self, path: str | None = None) -> list[Any]:
        return [json.loads(line) for line in Path(path or self.report["transcript"]).read_text(encoding="utf-8").splitlines()]

    def normalized(self) -> str:
        """All output of the rehearsal, without times and paths."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file())
        text = "\n".join([json.dumps(self.report), *(data.decode() for data in self.sent)])
        text += "".join(f"\n{path}\n{path.read_text(encoding='utf-8')}" for path in files)
        project = str(self.root / "project")
        for original, name in (
            (hashlib.sha256(project.encode()).hexdigest(), "HASH"),
            (re.sub(r"[^A-Za-z0-9]", "-", project), "PROJECT"),
            (str(self.root), "ROOT"),
        ):
            text = text.replace(original, name)
        return _TIMES.sub("TIME", text)


def rehearse(root: Path, tool: str, script: list[dict[str, Any]] | None = None, **more: Any) -> Rehearsal:
    (root / "project").mkdir(parents=True, exist_ok=True)
    sent: list[bytes] = []

    def send(payload: bytes) -> int:
        sent.append(payload)
        return 0

    setting = Setting(tool, str(root / "project"), str(root / "home"), START, environment=dict(os.environ), send=send)
    return Rehearsal(play(setting._replace(**more), parse(script or story())), sent, root)


@pytest.fixture(scope="module")
def rehearsals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rehearsal]:
    """The built-in story, played once by each tool."""
    return {tool: rehearse(tmp_path_factory.mktemp(tool).resolve(), tool) for tool in hook_payloads.TOOLS}


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_the_same_seed_gives_the_same_output_and_another_seed_shares_no_id(
    tool: str, rehearsals: dict[str, Rehearsal], tmp_path: Path
) -> None:
    first, later = rehearsals[tool], datetime(2031, 11, 30, 23, 59, 59, tzinfo=UTC)
    repeated = rehearse(tmp_path / "again", tool, start=later)
    assert first.normalized() == repeated.normalized()
    other = rehearse(tmp_path / "other", tool, seed=2, stop_after=10)
    assert other.kinds() == first.kinds()[:10]
    names = ("session", "uuid", "tool_use_id", "prompt_id", "turn_id", "agent")
    ids = [{step[name] for step in played.report["events"] for name in names if step.get(name)} for played in (first, other)]
    assert min(map(len, ids)) >= 5
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_every_payload_has_the_fields_that_the_tool_documents(tool: str, rehearsals: dict[str, Rehearsal]) -> None:
    documented: dict[str, set[str]] = {}
    for payload in hook_payloads.payloads(tool).values():
        documented.setdefault(payload["hook_event_name"], set()).update(payload)
    sent = [json.loads(data) for data in rehearsals[tool].sent]
    for payload in sent:
        event = payload["hook_event_name"]
        assert hook_payloads.required(tool, event) <= set(payload) <= documented[event], event
    events = [step for step in rehearsals[tool].report["events"] if step["hook"]]
    assert [step["hook"] for step in events] == [payload["hook_event_name"] for payload in sent]
    assert [step.get("tool_use_id") for step in events if tool == "claude-code" and step["kind"].startswith("tool-")] == [
        payload["tool_use_id"] for payload in sent if tool == "claude-code" and "tool_use_id" in payload
    ]
    never = {"StopFailure"}  # the story has no failing model
    assert hook_payloads.played(tool) - never == {payload["hook_event_name"] for payload in sent}


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_the_documented_payloads_have_the_required_fields(tool: str) -> None:
    for name, payload in hook_payloads.payloads(tool).items():
        assert hook_payloads.required(tool, payload["hook_event_name"]) <= set(payload), name
        assert name.partition("-")[0] == payload["hook_event_name"]


def test_transcripts_of_claude_code_have_each_event_once_and_valid_parents(rehearsals: dict[str, Rehearsal]) -> None:
    played = rehearsals["claude-code"]
    lines_by_agent = {sub_agent["id"]: played.lines(sub_agent["transcript"]) for sub_agent in played.report["agents"]} | {
        "": played.lines()
    }
    for agent, lines in lines_by_agent.items():
        ids = [line["uuid"] for line in lines if "uuid" in line]
        events = [step for step in played.report["events"] if step["agent"] == agent and "uuid" in step]
        reported_ids = [step["uuid"] for step in events if step["kind"] not in ("start", "turn-end")]
        assert len(set(ids)) == len(ids)
        assert [ident for ident in ids if ident in reported_ids] == reported_ids
        parents = [line["parentUuid"] for line in lines if "uuid" in line]
        boundaries = [index for index, line in enumerate(lines) if line.get("subtype") == "compact_boundary"]
        assert parents.count(None) == 1 + len(boundaries)
        assert all(parent is None or parent in ids[:index] for index, parent in enumerate(parents))
        assert all(line.get("isSidechain", False) == bool(agent) for line in lines)
        blocks = [block for line in lines for block in _blocks(line)]
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert sorted(used) == sorted(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
    assert len(lines_by_agent) == 3


def _blocks(line: dict[str, Any]) -> list[dict[str, Any]]:
    content = line.get("message", {}).get("content")
    return content if isinstance(content, list) else []


def test_two_sub_agents_take_turns_and_only_one_of_them_writes(rehearsals: dict[str, Rehearsal]) -> None:
    played = rehearsals["claude-code"]
    steps = [step["agent"] for step in played.report["events"] if step["agent"] and step["kind"] in ("tool-call", "thinking")]
    assert steps[0] != steps[1] == steps[3] != steps[2]
    writers = {step["agent"] for step in played.report["events"] if step.get("tool") == "Write"}
    assert len(writers - {""}) == 1
    assert sorted(path.name for path in (played.root / "project/durations").iterdir()) == [
        "README.md",
        "parser.py",
        "test_parser.py",
    ]


SHORT: list[dict[str, Any]] = [{"prompt": "Go."}, {"say": "One."}, {"write": "a/b.txt", "text": "x\n"}, {"stop": True}]


def test_faults_in_the_script_are_simulated_and_reported(tmp_path: Path) -> None:
    """A missed hook, a truncated one, a transcript that lags behind, and an unknown event and line."""
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
    played = rehearse(tmp_path, "claude-code", script)
    events = played.report["events"]
    sent = [step["sent"] for step in events if step["hook"]]
    assert sent == ["whole", "missed", "truncated", "whole", "whole", "whole"]
    complete = [data for data in played.sent if data.endswith(b"}")]
    assert [json.loads(data)["hook_event_name"] for data in complete] == [
        "SessionStart",
        "PostToolUse",
        "EventOfTomorrow",
        "StopFailure",
    ]
    assert [step["line"] for step in events if step["kind"].startswith("tool-")] == ["late", "late"]
    raw = Path(played.report["transcript"]).read_text(encoding="utf-8").splitlines()
    assert raw[-1] == '{"type": "torn'
    assert [json.loads(line)["type"] for line in raw[-4:-1]] == ["assistant", "user", "line-of-tomorrow"]


def test_a_lagging_line_is_not_yet_written_when_its_hook_runs(tmp_path: Path) -> None:
    written: list[bool] = []

    def send(payload: bytes) -> int:
        event = json.loads(payload)
        if event["hook_event_name"] == "PreToolUse":
            written.append(event["tool_use_id"] in Path(event["transcript_path"]).read_text(encoding="utf-8"))
        return 0

    rehearse(tmp_path, "claude-code", [{"prompt": "Go."}, {"lag": 1}, {"bash": "true"}, {"bash": "true"}], send=send)
    assert written == [False, True]


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_a_resumed_session_uses_no_id_twice(tool: str, tmp_path: Path) -> None:
    first = rehearse(tmp_path, tool, SHORT)
    before = first.lines()
    second = rehearse(tmp_path, tool, [{"resume": 2}, *SHORT], start=datetime(2026, 5, 2, tzinfo=UTC))
    assert second.report["transcript"] == first.report["transcript"]
    assert second.report["session"] == first.report["session"]
    assert second.lines()[: len(before)] == before
    steps = first.report["events"] + second.report["events"]
    ids = [step["uuid"] for step in steps if step["kind"] in ("prompt", "said") and "uuid" in step]
    ids += [step["tool_use_id"] for step in steps if step["kind"] == "tool-call"]
    assert len(set(ids)) == len(ids) > 1
    assert json.loads(second.sent[0])["source"] == "resume"


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_fork_has_the_history_under_another_id(tool: str, tmp_path: Path) -> None:
    script = [*SHORT, {"fork": 3}, {"prompt": "Go on."}, {"stop": True}]
    played = rehearse(tmp_path, tool, script)
    old, new = played.report["sessions"]
    assert old != new == json.loads(played.sent[-1])["session_id"]
    transcript = Path(played.report["transcript"]).read_text(encoding="utf-8")
    assert "One." in transcript
    assert "Go on." in transcript
    assert old in transcript  # it names its origin


BAD = {
    "not a list": ({"prompt": "x"}, ""),
    "not an object": (["prompt"], "[0]"),
    "no verb": ([{"text": "x"}], "[0]"),
    "two verbs": ([{"say": "x", "think": "y"}], "[0]"),
    "wrong type": ([{"prompt": "x"}, {"say": 7}], "[1]"),
    "a boolean for a number": ([{"miss": True}], "[0]"),
    "unknown field": ([{"say": "x", "loud": True}], "[0]"),
    "missing field": ([{"write": "a"}], "[0]"),
    "outside": ([{"write": "../a", "text": ""}], "[0]"),
    "absolute": ([{"read": "/etc/hostname"}], "[0]"),
    "git's own": ([{"write": ".git/config", "text": ""}], "[0]"),
    "inside a sub-agent": ([{"subagent": "x", "task": "y", "steps": [{"say": "z"}, {"prompt": "p"}]}], "[0].steps[1]"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_script_is_refused_with_the_step(name: str) -> None:
    script, step = BAD[name]
    with pytest.raises(ScriptError) as caught:
        parse(script)
    assert caught.value.where == step


def test_a_command_that_should_fail_and_does_not_is_an_error_of_the_script(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="did not fail"):
        rehearse(tmp_path, "codex", [{"fail": "true"}])


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
    """Any hook command gets each payload, in the tool's working directory; no byte below .git changes."""
    before, received, home = _git_files(repository), tmp_path / "got", str(tmp_path / "home")
    code = "import json,os,sys; print(json.dumps([os.getcwd(), os.environ['CLAUDE_PROJECT_DIR'], json.load(sys.stdin)]))"
    hook = f"{sys.executable} -S -c \"{code}\" >> '{received}'"
    words = ("hook", "rehearse", "--path", ".", "--home", home, "--start", "2026-05-01T09:00:00Z")
    ran = clia(*words, "--hook", hook, "--stop-after", "9", "--json", cwd=repository)
    assert ran.code == 0, ran.err
    report = ran.json()
    assert (report["ended"], len(report["events"]), report["seed"]) == ("stopped", 9, 1)
    lines = [json.loads(line) for line in received.read_text().splitlines()]
    assert [payload["hook_event_name"] for _, _, payload in lines] == [step["hook"] for step in report["events"] if step["hook"]]
    assert {directory for line in lines for directory in line[:2]} == {str(repository)}
    printed = clia(*words, "--no-hooks", cwd=repository)
    assert printed.code == 0, printed.err
    assert "Have it reviewed" in printed.out
    assert _git_files(repository) == before
    assert git("status", "--porcelain", cwd=repository).splitlines() == ["MM kept.txt", "?? durations-2/", "?? durations/"]
    again = clia(*words, "--seed", "2", cwd=repository)
    assert (again.code, "already-rehearsed" in again.err) == (2, True)


def test_a_crash_kills_the_process_after_the_report_is_printed(repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*SHORT[:3], {"crash": True}, {"stop": True}]))
    words = ("--script", str(script), "--home", str(tmp_path / "home"), "--no-hooks", "--json")
    ran = clia("hook", "rehearse", "gemini", "--path", ".", *words, cwd=repository)
    assert ran.code == -signal.SIGKILL
    assert [step["kind"] for step in ran.json()["events"]] == ["start", "prompt", "said", "tool-call", "tool-result"]
    assert (repository / "a/b.txt").read_text() == "x\n"


def test_invalid_input_is_reported_and_changes_nothing(repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"prompt": "x"}, {"dance": true}]')
    before = sorted(repository.iterdir())
    refused = clia(
        "hook", "rehearse", "--path", ".", "--script", str(script), "--home", str(tmp_path / "home"), "--json", cwd=repository
    )
    assert (refused.code, json.loads(refused.err)["error"]["fields"]["step"]) == (2, "[1]")
    script.write_text("[")
    for words, code in ((("--script", str(script)), "invalid-script"), (("--start", "noon"), "invalid-time")):
        ran = clia("hook", "rehearse", "--path", ".", *words, cwd=repository)
        assert (ran.code, code in ran.err) == (2, True)
    outside = clia("hook", "rehearse", "--path", str(tmp_path), cwd=repository)
    assert (outside.code, "no-repository" in outside.err) == (2, True)
    assert sorted(repository.iterdir()) == before


def test_the_command_uses_a_new_repository_unless_a_directory_is_named(repository: Path, tmp_path: Path) -> None:
    before, status = _git_files(repository), git("status", "--porcelain", cwd=repository)
    elsewhere = {"TMPDIR": str(tmp_path), "CLIA_HOOK_INGEST": "", "CLIA_STORE": "postgresql:///not-the-store-of-this-space"}
    ran = clia("hook", "rehearse", "--json", cwd=repository, env=elsewhere)
    assert ran.code == 0, ran.err
    report = ran.json()
    assert report["directory"].startswith(f"{tmp_path}/clia-rehearsal-")
    assert (report["ended"], {event.get("exit", 0) for event in report["events"]}) == ("done", {0})
    agents = [state["agent"] for state in clia("list", "--json", cwd=report["directory"]).json()]
    assert len(agents) == 3
    assert (_git_files(repository), git("status", "--porcelain", cwd=repository)) == (before, status)
    shown = clia("hook", "rehearse", "--stop-after", "3", cwd=repository, env={"TMPDIR": str(tmp_path)})
    assert "it ran in a new repository; look at what was recorded: cd " in shown.out
