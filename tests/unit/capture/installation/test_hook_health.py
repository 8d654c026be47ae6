"""What ``doctor`` reports about hooks and the spool."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import pytest

from clia.capture import spool_reader as spool
from clia.capture.installation import hook_health
from clia.capture.installation.hook_tools import CliaProgram
from clia.capture.installation.spool_health import SpoolHealth
from clia.capture.service import CapturedSession
from support.hook_desk import GUARD, NOW, Desk


def captured(tool: str, sub: str = "", **more: Any) -> CapturedSession:
    return CapturedSession(tool, "s1", sub, "scout", "/w", **more)


def test_doctor_reports_installed_tools_and_the_last_event(desk: Desk) -> None:
    assert desk.doctor() == hook_health.HooksHealth((), None, ())
    (desk.root / ".git/clia").mkdir()
    desk.install("codex")
    (before,) = desk.doctor().tools
    assert (before.tool, [place.scope for place in before.places], before.last) == ("codex", ["project"], None)
    assert set(desk.findings()) == {"nothing-arrived"}
    desk.put("codex", NOW - timedelta(minutes=2))
    (after,) = desk.doctor().tools
    assert after.last == "2026-11-15T11:58:00Z"
    assert desk.doctor().findings == ()
    captured_sessions = [captured("codex", last="2026-11-15T11:59:30.500Z"), captured("codex", "a1")]
    (codex,) = desk.doctor(captured=captured_sessions).tools
    assert (codex.last, codex.sessions) == ("2026-11-15T11:59:30Z", 1)


def test_doctor_reports_why_no_event_can_arrive(desk: Desk) -> None:
    desk.install()
    assert desk.findings()["no-space"].severity == "warning"
    (desk.root / ".git/clia").mkdir()
    without_path = desk._replace(program=CliaProgram(desk.program.own, None))
    with_other = desk._replace(program=CliaProgram(desk.program.own, "/usr/bin/clia"))
    assert (without_path.findings()["clia-not-on-path"].severity, without_path.doctor().sound) == ("error", False)
    assert with_other.findings()["other-clia"].severity == "warning"
    desk.install(scope="local")
    assert "installed-twice" in desk.findings()
    settings = desk.file(".claude/settings.local.json")
    settings.write_text(settings.read_text().replace("clia hook", "/gone/clia hook").replace('"Stop"', '"Setup"'))
    findings = desk.findings()
    assert findings["clia-gone"].severity == "error"
    assert findings["events-missing"].message.endswith("missing: Stop")
    settings.write_text("{ // mine\n}")
    assert "unreadable-settings" not in desk.findings()
    settings.write_text("{ // clia hook claude-code\n}")
    assert desk.findings()["unreadable-settings"].severity == "warning"
    settings.write_text('{"enabledPlugins": {"clia@clia": true}}')
    assert [place.scope for place in desk.doctor().tools[0].places] == ["project", "plug-in"]


def test_doctor_reports_an_error_if_claude_code_ran_and_no_event_arrived(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install()
    name = "".join(char if char.isalnum() else "-" for char in str(desk.root))
    transcript = desk.file(f"../home/.claude/projects/{name}/s.jsonl", "{}\n")
    installed = desk.file(".claude/settings.json")
    os.utime(installed, (NOW.timestamp(), NOW.timestamp()))
    for after, codes in ((-60, {"nothing-arrived"}), (600, {"nothing-arrives"})):
        os.utime(transcript, (NOW.timestamp() + after,) * 2)
        assert set(desk.findings()) == codes
    desk.put("claude-code", NOW + timedelta(minutes=9))
    assert desk.findings() == {}
    os.utime(transcript, (NOW.timestamp() + 7200,) * 2)
    findings = desk.findings(now=NOW + timedelta(minutes=9))
    assert findings["nothing-arrives"].severity == "error"


def test_doctor_reports_the_state_of_the_spool(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install()
    own, other = spool.spools(str(desk.root / ".git"), desk.environment)
    first = desk.put("claude-code", NOW - timedelta(minutes=30))
    assert set(desk.findings(now=NOW - timedelta(minutes=25))) == set()
    assert "the oldest since 2026-11-15T11:30:00.000Z" in desk.findings()["events-wait"].message
    spool.note_error(own, "2026-11-15T11:45:00Z", "store-error", "the disk is full")
    failed = desk.findings()["ingest-failed"]
    assert failed.severity == "error"
    assert "store-error: the disk is full" in failed.message
    spool.reject(own, first, "invalid-event", "/session_id is missing")
    findings = desk.findings()
    assert "invalid-event: 1" in findings["events-rejected"].message
    assert findings["ingest-failed"].severity == "warning"
    assert "events-wait" not in findings
    os.makedirs(f"{other}/new")
    os.rename(f"{own}/rejected/{first}", f"{other}/new/{first}")
    assert "events-elsewhere" in desk.findings()
    health = desk.doctor()
    assert health.spool == SpoolHealth(1, "2026-11-15T11:30:00.000Z", 0, 1)
    assert json.loads(json.dumps(health.to_json()))["spool"]["elsewhere"] == 1
    os.rmdir(f"{own}/new")
    desk.file(".git/clia/spool/new", "a file in its place")
    assert desk.findings()["spool-not-writable"].severity == "error"


def test_a_worktree_shares_the_spool_of_its_repository(desk: Desk) -> None:
    git_dir = desk.root / ".git/worktrees/side"
    (desk.root / ".git/clia").mkdir()
    git_dir.mkdir(parents=True)
    (git_dir / "commondir").write_text("../..\n")
    worktree = desk.root.parent / "side"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {git_dir}\n")
    worktree_desk = desk._replace(root=worktree)
    desk.put("gemini", NOW)
    assert [tool.tool for tool in worktree_desk.doctor().tools] == ["gemini"]
    (worktree / ".git").write_text("gitdir: /nowhere\n")
    assert worktree_desk.doctor().spool is None


def test_doctor_reports_hooks_that_are_not_as_clia_writes_them(desk: Desk) -> None:
    desk.install()
    assert not {"hooks-unguarded", "hooks-changed", "events-missing"} & set(desk.findings())
    settings = desk.file(".claude/settings.json")
    written = settings.read_text()
    settings.write_text(written.replace(GUARD, ""))
    assert desk.findings()["hooks-unguarded"].severity == "warning"
    settings.write_text(written.replace(GUARD, "sleep 1; ", 1))
    assert "SessionStart" in desk.findings()["hooks-changed"].message
    settings.write_text(written.replace(GUARD, "true # "))
    assert desk.doctor().tools == ()
    assert desk.findings()["hooks-commented-out"].severity == "error"


def test_doctor_reports_hooks_that_are_all_commented_out_and_how_to_install_them_again(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install()
    settings = desk.file(".claude/settings.json")
    values = json.loads(settings.read_text())
    for groups in values["hooks"].values():
        groups[0]["hooks"][0]["command"] = f"true # {groups[0]['hooks'][0]['command']}"
    settings.write_text(json.dumps(values))
    health = desk.doctor()
    (finding,) = health.findings
    assert (finding.code, health.sound) == ("hooks-commented-out", False)
    assert "SessionStart" in finding.message
    settings.unlink()
    desk.install()
    assert set(desk.findings()) == {"nothing-arrived"}


@pytest.mark.parametrize(
    ("tool", "flaw", "code"),
    [
        ("claude-code", {"async": True}, "hooks-asynchronous"),
        ("claude-code", {"timeout": 0}, "hooks-without-time"),
        ("codex", {"timeout": 0.5}, "hooks-without-time"),
        ("gemini", {"timeout": 10}, "hooks-without-time"),  # milliseconds
    ],
)
def test_doctor_reports_hooks_that_a_tool_does_not_wait_for_and_installation_replaces_them(
    desk: Desk, tool: str, flaw: dict[str, Any], code: str
) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install(tool)
    settings = desk.file(
        {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}[tool]
    )
    written = settings.read_text()
    values = json.loads(written)
    values["hooks"]["SessionStart"][0]["hooks"][0] |= flaw
    settings.write_text(json.dumps(values))
    assert desk.findings()[code].message.endswith(": SessionStart")
    desk.install(tool)
    assert set(desk.findings()) == {"nothing-arrived"}
    assert json.loads(settings.read_text()) == json.loads(written)


def test_doctor_reports_a_settings_file_with_a_syntax_error(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    settings = desk.file(".claude/settings.json", '{"permissions": {')
    assert desk.findings() == {}  # Claude Code is not used here
    desk.put("claude-code", NOW)
    assert desk.findings()["settings-broken"].severity == "error"
    desk.install("codex")
    settings.write_text('{"hooks": [ "clia hook claude-code" }')
    assert "line 1, column" in desk.findings()["settings-broken"].message
    settings.write_text('{"url": "http://clia", /* mine */ "list": [1, 2,], // clia\n}')
    assert "settings-broken" not in desk.findings()
    assert desk.findings()["unreadable-settings"].severity == "warning"
