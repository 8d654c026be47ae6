"""Hooks in the settings files of tools: what is written, what is preserved and what is refused."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest

from clia.capture import spool_reader as spool
from clia.capture.installation import hook_health, hook_settings
from clia.capture.installation.hook_tools import TOOLS, CliaProgram
from clia.errors import AlreadyExists, CliaError, Conflict, FileError, InvalidDocument, InvalidInput, NotFound, UnsafePath
from clia.values.documents import parse
from support.hook_desk import GUARD, NOW, Desk

EXISTING_SETTINGS = """{
\t"permissions": { "allow": ["Bash(ls:*)",   "Read"] },
\t"hooks": {
\t\t"PreToolUse": [
\t\t\t{"matcher": "Bash", "hooks": [{"type": "command", "command": "guard.sh"}]}
\t\t],
\t\t"Notification": [ { "hooks": [ { "type": "command", "command": "beep" } ] } ]
\t},
\t"number": 1.50
}
"""


def test_existing_settings_stay_byte_for_byte_and_uninstall_restores_them(desk: Desk) -> None:
    for ending, mark in (("\n", ""), ("\r\n", "\ufeff")):
        before = (mark + EXISTING_SETTINGS.replace("\n", ending)).encode()
        path = desk.file(".claude/settings.json", "{}")
        path.write_bytes(before)
        path.chmod(0o640)
        desk.install()
        added = path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o640
        lines = [line for line in before.splitlines() if line.strip() not in (b"]", b"],", b"}", b"},")]
        assert [line.rstrip(b",") for line in added.splitlines() if line in lines or line.rstrip(b",") in lines] == [
            line.rstrip(b",") for line in lines
        ]
        assert added.count(b"\n") == added.count(ending.encode())
        settings = parse(added, "x")
        assert settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == "guard.sh"
        assert settings["hooks"]["PreToolUse"][1] == {
            "hooks": [{"type": "command", "command": f"{GUARD}clia hook claude-code 600", "timeout": 600}]
        }
        assert list(settings["hooks"])[:2] == ["PreToolUse", "Notification"]
        assert set(settings["hooks"]) == {*TOOLS["claude-code"].events, "Notification"}
        assert desk.plan().is_empty
        hook_settings.apply(desk.undo())
        assert path.read_bytes() == before


@pytest.mark.parametrize("tool", TOOLS)
def test_a_created_file_has_every_event_and_is_deleted_by_uninstall(desk: Desk, tool: str) -> None:
    desk.environment[TOOLS[tool].home_variable] = str(desk.root.parent / "elsewhere")
    for scope in TOOLS[tool].files:
        desk.install(tool, scope)
        path = TOOLS[tool].file(scope, str(desk.root), desk.environment) or ""
        if scope == "user":
            folder = "elsewhere/.gemini" if tool == "gemini" else "elsewhere"
            assert path == str(desk.root.parent / folder / TOOLS[tool].files[scope])
        with open(path, encoding="utf-8") as file:
            if TOOLS[tool].plugin:
                assert f'spawnSync("clia", ["hook", "{tool}"]' in file.read()
            else:
                assert json.load(file) == {"hooks": TOOLS[tool].hooks(f"{GUARD}clia hook {tool}")}
        assert desk.plan(tool, scope).is_empty
        hook_settings.apply(desk.undo(tool, scope))
        assert not os.path.exists(path)
    assert os.listdir(desk.root) == [".git"]


def test_a_plug_in_replaces_only_itself(desk: Desk) -> None:
    path = desk.file(".opencode/plugins/clia.js", "export const Mine = async () => ({})\n")
    with pytest.raises(AlreadyExists):
        desk.plan("opencode")
    hook_settings.apply(desk.undo("opencode"))
    assert path.exists()
    path.unlink()
    desk.install("opencode")
    path.write_text(path.read_text().replace("timeout: 10000", "timeout: 1"))
    assert "hooks-changed" in desk.findings()
    desk.install("opencode")
    assert "hooks-changed" not in desk.findings()


@pytest.mark.parametrize("tool", ["kimi", "cline"])
def test_settings_that_clia_does_not_write_are_refused_with_the_command(desk: Desk, tool: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        desk.plan(tool)
    assert list(refused.value.hints) == [f"add the command to the hooks of {TOOLS[tool].title} yourself: {GUARD}clia hook {tool}"]


def test_the_command_names_the_program_so_that_it_is_found(desk: Desk) -> None:
    """By its plain name if PATH finds this program or the settings are shared, otherwise by its path."""
    elsewhere = desk._replace(program=CliaProgram("/opt/my tools/clia", None))
    command = "command -v '/opt/my tools/clia' >/dev/null 2>&1 || exit 0; '/opt/my tools/clia' hook claude-code"
    assert f'"command": {json.dumps(command)}' in elsewhere.plan(scope="user").changes[0].diff()
    shared = elsewhere.plan(scope="project")
    assert f'"command": "{GUARD}clia hook claude-code"' in shared.changes[0].diff()
    assert any("not on PATH" in note for note in shared.notes)
    hook_settings.apply(elsewhere.plan(scope="user"))
    desk.install(scope="user")  # now the program is on PATH
    settings = json.loads((desk.root.parent / "home/.claude/settings.json").read_text())
    assert settings == {"hooks": TOOLS["claude-code"].hooks(f"{GUARD}clia hook claude-code")}


def test_changed_and_duplicate_hooks_become_one(desk: Desk) -> None:
    """A hook that a person customized stays; copies and hooks with a matcher are removed; a longer command is never removed."""
    own = {"type": "command", "command": "CLIA_AGENT=scout clia hook claude-code", "timeout": 3}
    plain = {"type": "command", "command": "/old/clia hook claude-code"}
    mixed = {"type": "command", "command": "tee log | clia hook claude-code"}
    path = desk.file(
        ".claude/settings.json",
        json.dumps(
            {
                "hooks": {
                    "Stop": [{"hooks": [plain, own]}],
                    "PreToolUse": [{"matcher": "Bash", "hooks": [plain | {"command": "clia hook claude-code"}]}],
                    "PostToolUse": [{"hooks": [mixed]}],
                }
            },
            indent=2,
        ),
    )
    desk.install()
    hooks = json.loads(path.read_text())["hooks"]
    fresh = TOOLS["claude-code"].hooks(f"{GUARD}clia hook claude-code")
    assert hooks["Stop"] == [{"hooks": [own]}]
    assert hooks["PreToolUse"] == fresh["PreToolUse"]
    assert hooks["PostToolUse"] == [{"hooks": [mixed]}]
    plan = desk.undo()
    hook_settings.apply(plan)
    assert json.loads(path.read_text()) == {"hooks": {"PostToolUse": [{"hooks": [mixed]}]}}
    assert any("among other commands" in note for note in plan.notes)


def test_an_empty_settings_file_counts_as_missing(desk: Desk) -> None:
    for before in (b"", b" \n\t\r\n", b"\xef\xbb\xbf\n"):
        path = desk.file(".claude/settings.json", "x")
        path.write_bytes(before)
        desk.file(".claude/settings.local.json", "x").write_bytes(before)
        assert desk.doctor() == hook_health.HooksHealth((), None, ())
        assert [change.kind for change in desk.undo().changes] == ["none", "none"]
        desk.install()
        assert parse(path.read_bytes(), "x") == {"hooks": TOOLS["claude-code"].hooks(f"{GUARD}clia hook claude-code")}
        hook_settings.apply(desk.undo())
        assert not path.exists()


def test_a_named_pipe_in_place_of_a_settings_file_is_reported_and_never_read(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install("codex")
    name = desk.put("codex", NOW - timedelta(minutes=2))
    own, _ = spool.spools(str(desk.root / ".git"), desk.environment)
    os.mkdir(f"{own}/rejected")
    pipes = [desk.root / ".claude/settings.json", desk.root / ".mcp.json", desk.root / ".codex/config.toml"]
    pipes += [desk.root.parent / "home/.claude/settings.json"]
    others = [f"{own}/{file}" for file in (f"new/{name}1", "rejected/x", "rejected/x.why.json", spool.LAST_ERROR)]
    for path in [*map(str, pipes), *others]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkfifo(path)
    health = desk.doctor()
    assert [(tool.tool, tool.last) for tool in health.tools] == [("codex", "2026-11-15T11:58:00Z")]
    assert [finding.code for finding in health.findings] == ["unreadable-settings", "unreadable-settings", "events-rejected"]
    assert desk.undo("codex").changes[0].kind == "remove"
    for plan, scope in ((desk.plan, "project"), (desk.undo, "project"), (desk.plan, "user")):
        with pytest.raises(FileError, match="not a regular file"):
            plan(scope=scope)
    pipes[0].unlink()
    with pytest.raises(FileError, match=r"\.mcp\.json is not a regular file"):
        desk.plan(mcp=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{ // mine\n}", "not JSON"),
        ("x", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"hooks": null}', "/hooks must be an object, not null"),
        ('{"hooks": {"Stop": "x"}}', "/hooks/Stop must be an array, not a string"),
        ('{"hooks": {"Stop": [1]}}', "/hooks/Stop/0 must be an object, not a number"),
        ('{"hooks": {"Stop": [{"hooks": {}}]}}', "/hooks/Stop/0/hooks must be an array, not an object"),
    ],
)
def test_settings_of_an_unexpected_shape_are_refused_unchanged(desk: Desk, text: str, problem: str) -> None:
    path = desk.file(".claude/settings.json", "x")
    path.write_text(text)
    with pytest.raises(InvalidDocument, match=problem) as caught:
        desk.plan()
    assert caught.value.fields["path"] == str(path)
    assert path.read_text() == text


def test_links_are_followed_only_within_the_reach_of_the_scope(desk: Desk) -> None:
    inside = desk.file("config/claude.json", "{}\n")
    link = desk.file(".claude/settings.json", "x")
    link.unlink()
    link.symlink_to(inside)
    desk.install()
    assert link.is_symlink()
    assert "clia hook" in inside.read_text()
    hook_settings.apply(desk.undo())
    assert inside.read_text().strip() == "{}"
    outside = desk.root.parent / "shared.json"
    outside.write_text("{}")
    for destination, error in ((outside, UnsafePath), (desk.root / "gone.json", FileError)):
        link.unlink()
        link.symlink_to(destination)
        with pytest.raises(error):
            desk.plan()
    assert outside.read_text() == "{}"


def test_nothing_is_written_if_it_is_impossible_or_the_file_changed_meanwhile(desk: Desk) -> None:
    plan = desk.plan()
    path = desk.file(".claude/settings.json", "{}")
    with pytest.raises(Conflict, match="changed by another program"):
        hook_settings.apply(plan)
    assert path.read_text() == "{}"
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file in place of the folder")
    with pytest.raises(CliaError):
        hook_settings.apply(plan)
    with pytest.raises(InvalidInput, match="no settings of scope"):
        desk.plan("codex", "local")
    bare = desk.root.parent / "bare"
    for folder in ("objects", "refs"):
        (bare / folder).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(InvalidInput, match="without files"):
        hook_settings.target("project", str(bare), desk.environment)
    with pytest.raises(NotFound):
        hook_settings.target("local", "/", desk.environment)


def test_the_mcp_server_is_added_where_each_tool_looks_for_it(desk: Desk) -> None:
    desk.install(mcp=True)
    desk.install("gemini", mcp=True)
    assert json.loads(desk.file(".mcp.json").read_text())["mcpServers"]["clia"]["args"] == ["mcp"]
    assert json.loads(desk.file(".gemini/settings.json").read_text())["mcpServers"]["clia"]["command"] == "clia"
    assert desk.plan(mcp=True).is_empty
    assert any("[mcp_servers.clia]" in note for note in desk.plan("codex", mcp=True).notes)
    assert any("claude mcp add --scope user" in note for note in desk.plan(scope="user", mcp=True).notes)
    desk.file(".mcp.json", '{"mcpServers": {"clia": {"command": "/old/clia", "args": ["mcp"]}, "b": {}}}')
    desk.install(mcp=True)
    assert '"command": "clia"' in desk.file(".mcp.json").read_text()
    hook_settings.apply(desk.undo())
    hook_settings.apply(desk.undo("gemini"))
    assert json.loads(desk.file(".mcp.json").read_text()) == {"mcpServers": {"b": {}}}
    assert not desk.file(".gemini").exists()
    desk.file(".mcp.json", '{"mcpServers": {"clia": {"command": "theirs"}}}')
    with pytest.raises(AlreadyExists):
        desk.plan(mcp=True)
    assert desk.undo().is_empty


def test_the_tools_in_use_are_detected(desk: Desk) -> None:
    project = hook_settings.target("project", str(desk.root), desk.environment)
    assert hook_settings.tools_here(project, []) == []
    desk.file(".codex/x", "x")
    (desk.root.parent / "home/.gemini").mkdir()
    assert [tool.name for tool in hook_settings.tools_here(project, ["claude"])] == ["claude-code", "codex", "gemini"]
    local = hook_settings.target("local", str(desk.root), desk.environment)
    assert [tool.name for tool in hook_settings.tools_here(local, ["claude"])] == ["claude-code"]


@pytest.mark.parametrize(
    ("tool", "name", "text", "reason"),
    [
        ("claude-code", ".claude/settings.local.json", '{"disableAllHooks": true}', "disableAllHooks: true"),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n", "[features] hooks = false"),
        ("codex", "../home/.codex/config.toml", "[features]\ncodex_hooks = false\n", "[features] codex_hooks = false"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled: false"),
        ("gemini", "../home/.gemini/settings.json", '{"hooksConfig": {"disabled": ["clia"]}}', "hooksConfig.disabled names clia"),
    ],
)
def test_switched_off_hooks_are_reported_by_install_and_doctor(desk: Desk, tool: str, name: str, text: str, reason: str) -> None:
    """Install adds a note, doctor reports an error."""
    (desk.root / ".git/clia").mkdir()
    desk.install(tool)
    assert "hooks-switched-off" not in desk.findings()
    path = desk.file(name)
    if path.name == "settings.json" and path.exists():
        path.write_text(json.dumps({**json.loads(path.read_text()), **json.loads(text)}))
    else:
        desk.file(name, text)
    finding = desk.findings()["hooks-switched-off"]
    assert (finding.severity, finding.tool) == ("error", tool)
    assert reason in finding.message
    assert any(reason in note for note in desk.plan(tool).notes)


def test_a_hook_without_a_guard_is_replaced(desk: Desk) -> None:
    plain = {"type": "command", "command": "clia hook claude-code", "timeout": 10}
    path = desk.file(".claude/settings.json", json.dumps({"hooks": {"Stop": [{"hooks": [plain]}]}}, indent=2))
    desk.install()
    assert json.loads(path.read_text())["hooks"] == TOOLS["claude-code"].hooks(f"{GUARD}clia hook claude-code")
    assert desk.plan().is_empty
