"""Hooks in the settings of tools: what is written, what stays, what is refused; and what doctor makes of it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.capture import hook_health, hook_settings, hook_tools
from clia.capture import spool as hook_spool
from clia.capture import spool_reader as spool
from clia.capture.hook import TOOLS as SPOKEN
from clia.capture.hook_tools import TOOLS, CliaProgram, hook_in
from clia.errors import AlreadyExists, CliaError, Conflict, FileError, InvalidDocument, InvalidInput, NotFound, UnsafePath
from clia.values import json_text as edits
from clia.values.documents import parse
from support.documents import values, words

if TYPE_CHECKING:
    from pathlib import Path

    from clia.capture.hook_health import HookFinding, HooksHealth
    from support import Tree

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
THEIRS = """{
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


class Desk(NamedTuple):
    """A repository, a home, and a clia that is on PATH."""

    root: Path
    environment: dict[str, str]
    program: CliaProgram

    def plan(self, tool: str = "claude-code", scope: str = "project", *, mcp: bool = False) -> hook_settings.SettingsPlan:
        where = hook_settings.target(scope, str(self.root), self.environment)
        return hook_settings.install([TOOLS[tool]], where, self.program, mcp=mcp)

    def undo(self, tool: str = "claude-code", scope: str = "project") -> hook_settings.SettingsPlan:
        return hook_settings.uninstall([TOOLS[tool]], hook_settings.target(scope, str(self.root), self.environment))

    def install(self, tool: str = "claude-code", scope: str = "project", *, mcp: bool = False) -> None:
        hook_settings.apply(self.plan(tool, scope, mcp=mcp))

    def file(self, name: str, text: str = "") -> Path:
        path = self.root / name
        if text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return path

    def doctor(self, now: datetime = NOW, captured: Any = ()) -> HooksHealth:
        return hook_health.examine(str(self.root), environment=self.environment, program=self.program, now=now, captured=captured)

    def findings(self, **more: Any) -> dict[str, HookFinding]:
        return {each.code: each for each in self.doctor(**more).findings}

    def put(self, tool: str, at: datetime) -> str:
        """An event as a hook puts it down, at a made-up time."""
        folder = self.root / ".git/clia/spool/new"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{int(at.timestamp() * 1e9):020d}-1-00000000"
        (folder / name).write_bytes(hook_spool.head(tool.encode(), os.fsencode(self.root)) + b"{}")
        return name


@pytest.fixture
def desk(tree: Tree) -> Desk:
    program = tree.write("bin/clia", "")
    program.chmod(0o755)
    tree.directory("home")
    return Desk(tree.repository("w"), {"HOME": tree.path("home")}, CliaProgram(str(program), str(program)))


@given(st.data(), st.dictionaries(words, values, max_size=4), st.sampled_from([None, 1, 2, "\t"]), st.sampled_from(["\n", "\r\n"]))
def test_an_edit_of_json_text_says_exactly_what_it_should(data: Any, document: dict[str, Any], style: Any, ending: str) -> None:
    """At any place of any document: what is added is there, what is removed is gone, and nothing else changed its meaning."""
    text = json.dumps(document, indent=style, ensure_ascii=False).replace("\n", ending)
    containers = list(_containers(document))
    path, container = data.draw(st.sampled_from(containers))
    if container and data.draw(st.booleans()):
        step = data.draw(st.sampled_from(sorted(container) if isinstance(container, dict) else range(len(container))))
        made = edits.remove(text, (*path, step))
        del container[step]
    elif isinstance(container, dict):
        key = data.draw(words.filter(lambda word: word not in container))
        container[key] = added = data.draw(values)
        made = edits.add(text, path, added, key)
    else:
        container.append(added := data.draw(values))
        made = edits.add(text, path, added)
    assert parse(made.encode(), "x") == document


def _containers(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    if isinstance(value, (dict, list)):
        yield path, value
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _containers(each, (*path, key))


def test_what_others_wrote_stays_byte_for_byte_and_comes_back_after_uninstall(desk: Desk) -> None:
    for ending, mark in (("\n", ""), ("\r\n", "\ufeff")):
        before = (mark + THEIRS.replace("\n", ending)).encode()
        path = desk.file(".claude/settings.json", "{}")
        path.write_bytes(before)
        path.chmod(0o640)
        desk.install()
        added = path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o640
        kept = [line for line in before.splitlines() if line.strip() not in (b"]", b"],", b"}", b"},")]
        assert [line.rstrip(b",") for line in added.splitlines() if line in kept or line.rstrip(b",") in kept] == [
            line.rstrip(b",") for line in kept
        ]
        assert added.count(b"\n") == added.count(ending.encode())
        settings = parse(added, "x")
        assert settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == "guard.sh"
        assert settings["hooks"]["PreToolUse"][1] == {
            "hooks": [{"type": "command", "command": "clia hook claude-code", "timeout": 10}]
        }
        assert list(settings["hooks"])[:2] == ["PreToolUse", "Notification"]
        assert set(settings["hooks"]) == {*TOOLS["claude-code"].events, "Notification"}
        assert desk.plan().is_empty
        hook_settings.apply(desk.undo())
        assert path.read_bytes() == before


@pytest.mark.parametrize("tool", TOOLS)
def test_a_file_that_we_made_holds_every_event_and_goes_again(desk: Desk, tool: str) -> None:
    home = {"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME", "gemini": "GEMINI_CLI_HOME"}[tool]
    desk.environment[home] = str(desk.root.parent / "elsewhere")
    for scope in TOOLS[tool].files:
        desk.install(tool, scope)
        path = TOOLS[tool].file(scope, str(desk.root), desk.environment) or ""
        if scope == "user":
            folder = "elsewhere/.gemini" if tool == "gemini" else "elsewhere"
            assert os.path.dirname(path) == str(desk.root.parent / folder)
        with open(path, encoding="utf-8") as file:
            assert json.load(file) == {"hooks": TOOLS[tool].hooks(f"clia hook {tool}")}
        assert desk.plan(tool, scope).is_empty
        hook_settings.apply(desk.undo(tool, scope))
        assert not os.path.exists(path)
    assert os.listdir(desk.root) == [".git"]


def test_the_program_is_named_so_that_it_is_found(desk: Desk) -> None:
    """The plain name where that is this program, or where others use the settings; else where this program is."""
    away = desk._replace(program=CliaProgram("/opt/my tools/clia", None))
    command = "'/opt/my tools/clia' hook claude-code"
    assert f'"command": {json.dumps(command)}' in away.plan(scope="user").changes[0].diff()
    shared = away.plan(scope="project")
    assert '"command": "clia hook claude-code"' in shared.changes[0].diff()
    assert any("not on PATH" in note for note in shared.notes)
    hook_settings.apply(away.plan(scope="user"))
    desk.install(scope="user")  # it is on PATH by now
    settings = json.loads((desk.root.parent / "home/.claude/settings.json").read_text())
    assert settings == {"hooks": TOOLS["claude-code"].hooks("clia hook claude-code")}


@pytest.mark.parametrize(
    ("command", "ours", "program"),
    [
        ("clia hook claude-code", True, "clia"),
        ("'/opt/my tools/clia' hook codex", True, "/opt/my tools/clia"),
        ("CLIA_AGENT=scout exec clia hook gemini || true", True, "clia"),
        ("log.sh; clia hook claude-code", False, "clia"),
        ("clia hook claude-code && rm -rf build", False, "clia"),
        ("clia hook install", None, None),
        ("clia hook other-tool", None, None),
        ("echo 'clia hook claude-code'", None, None),
        ("myclia hook claude-code", None, None),
        ("clia hook 'claude-code", None, None),
        (5, None, None),
    ],
)
def test_our_hooks_are_known_by_their_command(command: Any, ours: bool | None, program: str | None) -> None:
    found = hook_in({"type": "command", "command": command})
    assert (found and found.ours, found and found.program) == (ours, program)
    assert hook_in({"type": "prompt", "command": "clia hook codex"}) is None
    assert hook_in({"type": "command", "command": "/x/clia", "args": ["hook", "claude-code"]}) is not None


def test_changed_and_doubled_hooks_end_as_one(desk: Desk) -> None:
    """What people made of our hook stays theirs; copies and narrowed ones go; a longer command is never taken out."""
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
    fresh = TOOLS["claude-code"].hooks("clia hook claude-code")
    assert hooks["Stop"] == [{"hooks": [own]}]
    assert hooks["PreToolUse"] == fresh["PreToolUse"]
    assert hooks["PostToolUse"] == [{"hooks": [mixed]}]
    plan = desk.undo()
    hook_settings.apply(plan)
    assert json.loads(path.read_text()) == {"hooks": {"PostToolUse": [{"hooks": [mixed]}]}}
    assert any("among other commands" in note for note in plan.notes)


def test_a_settings_file_that_was_only_touched_says_nothing(desk: Desk) -> None:
    for before in (b"", b" \n\t\r\n", b"\xef\xbb\xbf\n"):
        path = desk.file(".claude/settings.json", "x")
        path.write_bytes(before)
        desk.file(".claude/settings.local.json", "x").write_bytes(before)
        assert desk.doctor() == hook_health.HooksHealth((), None, ())
        assert [each.kind for each in desk.undo().changes] == ["none", "none"]
        desk.install()
        assert parse(path.read_bytes(), "x") == {"hooks": TOOLS["claude-code"].hooks("clia hook claude-code")}
        hook_settings.apply(desk.undo())
        assert not path.exists()


def test_a_pipe_in_the_place_of_a_file_is_a_finding_and_waited_for_by_nobody(desk: Desk) -> None:
    (desk.root / ".git/clia").mkdir()
    desk.install("codex")
    name = desk.put("codex", NOW - timedelta(minutes=2))
    own, _ = spool.spools(str(desk.root / ".git"), desk.environment)
    os.mkdir(f"{own}/rejected")
    pipes = [desk.root / ".claude/settings.json", desk.root / ".mcp.json", desk.root / ".codex/config.toml"]
    pipes += [desk.root.parent / "home/.claude/settings.json"]
    others = [f"{own}/{each}" for each in (f"new/{name}1", "rejected/x", "rejected/x.why.json", spool.LAST_ERROR)]
    for path in [*map(str, pipes), *others]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkfifo(path)
    health = desk.doctor()
    assert [(each.tool, each.last) for each in health.tools] == [("codex", "2026-11-15T11:58:00Z")]
    assert [each.code for each in health.findings] == ["unreadable-settings", "unreadable-settings", "events-rejected"]
    assert desk.undo("codex").changes[0].kind == "remove"
    for plan, scope in ((desk.plan, "project"), (desk.undo, "project"), (desk.plan, "user")):
        with pytest.raises(FileError, match="not a regular file"):
            plan(scope=scope)
    pipes[0].unlink()
    with pytest.raises(FileError, match=r"\.mcp\.json is not a regular file"):
        desk.plan(mcp=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{ // mine\n}", "not JSON"),
        ("x", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"hooks": null}', "/hooks must be an object, not null"),
        ('{"hooks": {"Stop": "x"}}', "/hooks/Stop must be an array, not a string"),
        ('{"hooks": {"Stop": [1]}}', "/hooks/Stop/0 must be an object, not a number"),
        ('{"hooks": {"Stop": [{"hooks": {}}]}}', "/hooks/Stop/0/hooks must be an array, not an object"),
    ],
)
def test_settings_of_an_unexpected_shape_stop_everything(desk: Desk, text: str, said: str) -> None:
    path = desk.file(".claude/settings.json", "x")
    path.write_text(text)
    with pytest.raises(InvalidDocument, match=said) as caught:
        desk.plan()
    assert caught.value.fields["path"] == str(path)
    assert path.read_text() == text


def test_links_are_followed_only_to_where_the_scope_reaches(desk: Desk) -> None:
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
    for to, error in ((outside, UnsafePath), (desk.root / "gone.json", FileError)):
        link.unlink()
        link.symlink_to(to)
        with pytest.raises(error):
            desk.plan()
    assert outside.read_text() == "{}"


def test_nothing_is_written_where_that_is_not_possible_or_somebody_was_faster(desk: Desk) -> None:
    plan = desk.plan()
    path = desk.file(".claude/settings.json", "{}")
    with pytest.raises(Conflict, match="changed by another program"):
        hook_settings.apply(plan)
    assert path.read_text() == "{}"
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file in the folder's place")
    with pytest.raises(CliaError):
        hook_settings.apply(plan)
    with pytest.raises(InvalidInput, match="no settings of scope"):
        desk.plan("codex", "local")
    bare = desk.root.parent / "bare"
    for each in ("objects", "refs"):
        (bare / each).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(InvalidInput, match="without files"):
        hook_settings.target("project", str(bare), desk.environment)
    with pytest.raises(NotFound):
        hook_settings.target("local", "/", desk.environment)


def test_the_mcp_server_goes_where_each_tool_looks_for_it(desk: Desk) -> None:
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


def test_the_tools_in_use_are_found(desk: Desk) -> None:
    where = hook_settings.target("project", str(desk.root), desk.environment)
    assert hook_settings.tools_here(where, []) == []
    desk.file(".codex/x", "x")
    (desk.root.parent / "home/.gemini").mkdir()
    assert [each.name for each in hook_settings.tools_here(where, ["claude"])] == ["claude-code", "codex", "gemini"]
    mine = hook_settings.target("local", str(desk.root), desk.environment)
    assert [each.name for each in hook_settings.tools_here(mine, ["claude"])] == ["claude-code"]


def test_the_table_names_the_tools_that_hooks_know() -> None:
    assert tuple(TOOLS) == SPOKEN


@pytest.mark.parametrize(
    ("tool", "name", "text", "said"),
    [
        ("claude-code", ".claude/settings.local.json", '{"disableAllHooks": true}', "disableAllHooks: true"),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n", "[features] hooks = false"),
        ("codex", "../home/.codex/config.toml", "[features]\ncodex_hooks = false\n", "[features] codex_hooks = false"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled: false"),
        ("gemini", "../home/.gemini/settings.json", '{"hooksConfig": {"disabled": ["clia"]}}', "hooksConfig.disabled names clia"),
    ],
)
def test_hooks_that_are_switched_off_are_told(desk: Desk, tool: str, name: str, text: str, said: str) -> None:
    """By install, which can only tell, and by doctor, as an error."""
    (desk.root / ".git/clia").mkdir()
    desk.install(tool)
    assert "hooks-switched-off" not in desk.findings()
    path = desk.file(name)
    if path.name == "settings.json" and path.exists():
        path.write_text(json.dumps({**json.loads(path.read_text()), **json.loads(text)}))
    else:
        desk.file(name, text)
    found = desk.findings()["hooks-switched-off"]
    assert (found.severity, found.tool) == ("error", tool)
    assert said in found.message
    assert any(said in note for note in desk.plan(tool).notes)


def test_the_nearer_file_and_whoever_manages_the_machine_decide(desk: Desk) -> None:
    desk.file("../home/.claude/settings.json", '{"disableAllHooks": true}')
    desk.file(".claude/settings.json", '{"disableAllHooks": false}')
    managed = desk.file("managed.json", '{"allowManagedHooksOnly": true}')
    tool = TOOLS["claude-code"]
    assert hook_tools.switched_off(tool, str(desk.root), desk.environment, ()) == []
    (off,) = hook_tools.switched_off(tool, str(desk.root), desk.environment, (str(managed), "/nowhere"))
    assert str(off) == f"{managed} says allowManagedHooksOnly: true"


def test_doctor_tells_what_is_installed_and_when_something_came(desk: Desk) -> None:
    assert desk.doctor() == hook_health.HooksHealth((), None, ())
    (desk.root / ".git/clia").mkdir()
    desk.install("codex")
    (waits,) = desk.doctor().tools
    assert (waits.tool, [each.scope for each in waits.places], waits.last) == ("codex", ["project"], None)
    assert set(desk.findings()) == {"nothing-arrived"}
    desk.put("codex", NOW - timedelta(minutes=2))
    (came,) = desk.doctor().tools
    assert came.last == "2026-11-15T11:58:00Z"
    assert desk.doctor().findings == ()

    class Seen(NamedTuple):
        tool: str
        sub: str
        last: str

    seen = [Seen("codex", "", "2026-11-15T11:59:30.500Z"), Seen("codex", "a1", "")]
    (captured,) = desk.doctor(captured=seen).tools
    assert (captured.last, captured.sessions) == ("2026-11-15T11:59:30Z", 1)


def test_doctor_tells_why_nothing_can_arrive(desk: Desk) -> None:
    desk.install()
    assert desk.findings()["no-space"].severity == "warning"
    (desk.root / ".git/clia").mkdir()
    gone = desk._replace(program=CliaProgram(desk.program.own, None))
    other = desk._replace(program=CliaProgram(desk.program.own, "/usr/bin/clia"))
    assert (gone.findings()["clia-not-on-path"].severity, gone.doctor().sound) == ("error", False)
    assert other.findings()["other-clia"].severity == "warning"
    desk.install(scope="local")
    assert "installed-twice" in desk.findings()
    settings = desk.file(".claude/settings.local.json")
    settings.write_text(settings.read_text().replace("clia hook", "/gone/clia hook").replace('"Stop"', '"Setup"'))
    found = desk.findings()
    assert found["clia-gone"].severity == "error"
    assert found["events-missing"].message.endswith("missing: Stop")
    settings.write_text("{ // mine\n}")
    assert "unreadable-settings" not in desk.findings()
    settings.write_text("{ // clia hook claude-code\n}")
    assert desk.findings()["unreadable-settings"].severity == "warning"
    settings.write_text('{"enabledPlugins": {"clia@clia": true}}')
    assert [each.scope for each in desk.doctor().tools[0].places] == ["project", "plug-in"]


def test_doctor_is_loud_where_claude_code_worked_and_nothing_came(desk: Desk) -> None:
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
    found = desk.findings(now=NOW + timedelta(minutes=9))
    assert found["nothing-arrives"].severity == "error"


def test_doctor_tells_how_the_spool_stands(desk: Desk) -> None:
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
    found = desk.findings()
    assert "invalid-event: 1" in found["events-rejected"].message
    assert found["ingest-failed"].severity == "warning"
    assert "events-wait" not in found
    os.makedirs(f"{other}/new")
    os.rename(f"{own}/rejected/{first}", f"{other}/new/{first}")
    assert "events-elsewhere" in desk.findings()
    health = desk.doctor()
    assert health.spool == hook_health.SpoolHealth(1, "2026-11-15T11:30:00.000Z", 0, 1)
    assert json.loads(json.dumps(health.to_json()))["spool"]["elsewhere"] == 1
    os.rmdir(f"{own}/new")
    desk.file(".git/clia/spool/new", "a file in its place")
    assert desk.findings()["spool-not-writable"].severity == "error"


def test_a_worktree_shares_the_spool_of_its_repository(desk: Desk) -> None:
    main = desk.root / ".git/worktrees/side"
    (desk.root / ".git/clia").mkdir()
    main.mkdir(parents=True)
    (main / "commondir").write_text("../..\n")
    side = desk.root.parent / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {main}\n")
    there = desk._replace(root=side)
    desk.put("gemini", NOW)
    assert [each.tool for each in there.doctor().tools] == ["gemini"]
    (side / ".git").write_text("gitdir: /nowhere\n")
    assert there.doctor().spool is None
