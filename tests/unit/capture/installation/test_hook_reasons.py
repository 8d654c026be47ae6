"""The reasons why nothing or the wrong thing is recorded: ``doctor`` names each, with what to do."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.capture.installation import hook_settings
from clia.capture.installation.hook_tools import TOOLS
from clia.capture.installation.installed_tools import installed_version
from clia.capture.service import CapturedSession
from clia.values.clock import timestamp
from support.captured import put, recorded, run_ingest
from support.hook_desk import NOW, Desk

if TYPE_CHECKING:
    import clia
    from support import Tree

PROJECT = Path(__file__).parents[4]
OLD, TOLERANT, NEW = (2, 1, 70), (2, 1, 80), (2, 1, 325)


@pytest.fixture
def space_desk(desk: Desk) -> Desk:
    (desk.root / ".git/clia").mkdir()
    return desk


def installed_events(desk: Desk, version: tuple[int, ...] | None) -> set[str]:
    target = hook_settings.target("project", str(desk.root), desk.environment)
    versions = {"claude-code": version}
    hook_settings.apply(hook_settings.install([TOOLS["claude-code"]], target, desk.program, versions=versions))
    return set(json.loads(desk.file(".claude/settings.json").read_text())["hooks"])


def test_every_reason_is_in_the_documentation() -> None:
    source = "".join(path.read_text() for path in (PROJECT / "src/clia/capture/installation").glob("*.py"))
    codes = set(re.findall(r'HookFinding\(\s*"([a-z-]+)"', source))
    page = (PROJECT / "docs/how-to/hooks.md").read_text().partition("| code |")[2].partition("\n\n")[0]
    table = [line for line in page.splitlines() if line.startswith("| `")]
    assert {code for line in table for code in re.findall(r"`([a-z-]+)`", line.split("|")[1])} == codes


def test_only_events_that_the_installed_version_knows_are_written(desk: Desk) -> None:
    """Claude Code before 2.1.80 ignores a whole file with an unknown event."""
    current = installed_events(desk, NEW)
    assert current == set(TOOLS["claude-code"].events)
    assert current - installed_events(desk, OLD) == {"StopFailure"}
    assert current - installed_events(desk, (2, 0, 40)) == {
        "StopFailure",
        "PostToolUseFailure",
        "SubagentStart",
        "PermissionRequest",
    }
    assert installed_events(desk, None) == current
    notes = desk.plan().notes
    assert not [note for note in notes if "does not know" in note]
    target = hook_settings.target("project", str(desk.root), desk.environment)
    plan = hook_settings.install([TOOLS["claude-code"]], target, desk.program, versions={"claude-code": OLD})
    assert [note for note in plan.notes if "Claude Code 2.1.70 does not know StopFailure" in note]


def test_an_update_of_gemini_hooks_removes_an_event_that_is_no_longer_used(desk: Desk) -> None:
    desk.install("gemini")
    settings = desk.file(".gemini/settings.json")
    values = json.loads(settings.read_text())
    values["hooks"]["PreCompress"] = values["hooks"]["AfterTool"]
    settings.write_text(json.dumps(values))
    desk.install("gemini")
    assert "PreCompress" not in json.loads(settings.read_text())["hooks"]


def test_the_version_of_a_program_is_what_it_prints(tree: Tree) -> None:
    for name, text in (("claude", "2.1.70 (Claude Code)"), ("codex", "codex-cli 0.166.0"), ("odd", "no version")):
        tree.write(f"bin/{name}", f"#!/bin/sh\necho '{text}'\n").chmod(0o755)
    tree.write("bin/broken", "#!/bin/sh\nexit 3\n").chmod(0o755)
    environment = {"PATH": f"{tree.path('bin')}:/usr/bin:/bin"}
    versions = [installed_version(name, environment) for name in ("claude", "codex", "odd", "broken", "missing")]
    assert versions == [(2, 1, 70), (0, 166, 0), None, None, None]


def test_events_that_the_installed_version_does_not_know(space_desk: Desk) -> None:
    space_desk.install()
    for version, codes in ((OLD, {"events-unknown"}), (TOLERANT, set()), ((1, 0, 50), {"events-unknown", "tool-too-old"})):
        findings = space_desk.findings(version_of=lambda _, version=version: version)
        assert set(findings) - {"nothing-arrived"} == codes
    unknown = space_desk.findings(version_of=lambda _: OLD)["events-unknown"]
    assert unknown.severity == "error"
    assert "2.1.70 does not know StopFailure" in unknown.message
    installed_events(space_desk, OLD)
    assert set(space_desk.findings(version_of=lambda _: OLD)) == {"nothing-arrived"}
    assert "StopFailure" in space_desk.findings(version_of=lambda _: NEW)["events-missing"].message


def test_a_tool_that_works_here_without_hooks(space_desk: Desk) -> None:
    name = "".join(char if char.isalnum() else "-" for char in str(space_desk.root))
    claude = space_desk.file(f"../home/.claude/projects/{name}/s.jsonl", "{}\n")
    meta = {"type": "session_meta", "payload": {"id": "s", "cwd": str(space_desk.root)}}
    codex = space_desk.file("../home/.codex/sessions/2026/11/14/rollout-s.jsonl", json.dumps(meta) + "\n")
    for file in (claude, codex):
        os.utime(file, (NOW.timestamp() - 60,) * 2)
    findings = [finding for finding in space_desk.doctor().findings if finding.code == "hooks-not-installed"]
    assert [(finding.tool, finding.hint) for finding in findings] == [
        ("claude-code", "clia hook install claude-code"),
        ("codex", "clia hook install codex"),
    ]
    assert "hooks-not-installed" not in space_desk.findings(now=NOW + timedelta(days=30))
    space_desk.install("codex")
    os.utime(space_desk.file(".codex/hooks.json"), (NOW.timestamp() - 3600,) * 2)
    assert "/hooks" in space_desk.findings()["nothing-arrives"].hint


@pytest.mark.parametrize(
    ("tool", "file", "text"),
    [
        ("claude-code", ".claude.json", '{{"projects": {{"{root}": {{"hasTrustDialogAccepted": false}}}}}}'),
        ("codex", ".codex/config.toml", '[projects."{root}"]\ntrust_level = "untrusted"\n'),
        ("codex", ".codex/config.toml", '[hooks.state."{root}/.codex/hooks.json:stop:0:0"]\nenabled = false\n'),
        ("gemini", ".gemini/trustedFolders.json", '{{"{root}": "DO_NOT_TRUST"}}'),
    ],
)
def test_a_tool_that_does_not_trust_the_hooks(space_desk: Desk, tool: str, file: str, text: str) -> None:
    space_desk.install(tool)
    assert set(space_desk.findings()) == {"nothing-arrived"}
    space_desk.file(f"../home/{file}", text.format(root=space_desk.root))
    finding = space_desk.findings()["hooks-not-trusted"]
    assert (finding.severity, finding.tool) == ("error", tool)
    space_desk.put(tool, NOW)
    assert space_desk.findings() == {}


def test_the_nearest_folder_decides_whether_gemini_trusts_it(space_desk: Desk) -> None:
    space_desk.install("gemini")
    rules = {str(space_desk.root): "TRUST_FOLDER", str(space_desk.root.parent): "DO_NOT_TRUST"}
    space_desk.file("../home/.gemini/trustedFolders.json", json.dumps(rules))
    assert set(space_desk.findings()) == {"nothing-arrived"}


def test_an_mcp_server_that_claude_code_does_not_start(space_desk: Desk) -> None:
    space_desk.install(mcp=True)
    assert "Use this MCP server" in space_desk.findings()["mcp-not-approved"].hint
    local = space_desk.file(".claude/settings.local.json", '{"enabledMcpjsonServers": ["clia"]}')
    assert "mcp-not-approved" not in space_desk.findings()
    local.write_text('{"enableAllProjectMcpServers": true, "disabledMcpjsonServers": ["clia"]}')
    assert "/mcp" in space_desk.findings()["mcp-not-approved"].hint
    local.unlink()
    projects = {"projects": {str(space_desk.root): {"enabledMcpjsonServers": ["clia"]}}}
    space_desk.file("../home/.claude.json", json.dumps(projects))
    assert "mcp-not-approved" not in space_desk.findings()


def test_transcripts_and_agents_of_recent_sessions(space_desk: Desk, tmp_path: Path) -> None:
    recent = CapturedSession("codex", "s1", "", "scout", "/w", last=timestamp(NOW, "milliseconds"))
    gone = recent._replace(transcript=str(tmp_path / "gone.jsonl"))
    assert space_desk.findings(captured=[gone])["transcript-missing"].severity == "info"
    refused = space_desk.findings(captured=[recent._replace(refused="/other.jsonl")])["transcript-refused"]
    assert "/other.jsonl was not read for scout" in refused.message
    other = space_desk.findings(captured=[recent._replace(wanted="painter")])["agent-not-used"]
    assert "CLIA_AGENT=painter is recorded as scout" in other.message
    old = gone._replace(last=timestamp(NOW - timedelta(days=8), "milliseconds"))
    assert space_desk.findings(captured=[old]) == {}


def test_an_agent_that_cannot_be_used_is_noted(root: Path, space: clia.Space) -> None:
    body = {"hook_event_name": "UserPromptSubmit", "cwd": str(root), "prompt": "Go."}
    for session, agent in (("s-1", "not a name"), ("s-2", "painter")):
        put(root, json.dumps({"session_id": session, **body}).encode(), agent=agent)
    run_ingest(root)
    wanted = {captured.session: captured.wanted for captured in space.captures.sessions()}
    assert wanted == {"s-1": "not a name", "s-2": ""}
    assert [entry["text"] for _, entry in recorded(space) if "is used instead" in entry["text"]] == [
        "CLIA_AGENT is 'not a name', which is not a valid agent name; claude-s1 is used instead"
    ]


def test_a_clock_that_was_ahead_and_a_full_disk(space_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    space_desk.install("codex")
    space_desk.put("codex", NOW + timedelta(hours=2))
    assert "2026-11-15T14:00:00" in space_desk.findings()["clock-skew"].message
    usage = os.statvfs_result((4096, 4096, 1000, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda _: usage)
    assert space_desk.findings()["disk-full"].severity == "error"


def test_a_repository_inside_a_space(space_desk: Desk, tree: Tree) -> None:
    inner = space_desk._replace(root=tree.repository("w/inner"))
    inner.install()
    assert str(space_desk.root) in inner.findings()["no-space"].hint
