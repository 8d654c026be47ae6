"""Installing hooks into the settings of tools, and removing them.

Invariant: foreign content stays byte for byte, including other hooks on the same events. All changes are computed and shown before
the first is written; unreadable settings stop everything. A file is replaced atomically, keeps its mode, and is written only if
it is unchanged since. Nothing outside the scope's directory is written, wherever links lead.
"""

from __future__ import annotations

import difflib
import json
import os
from typing import NamedTuple

from clia.capture.installation import hook_tools
from clia.capture.installation.hook_tools import PROJECT, SCOPES, SERVER, TOOLS, USER, command_of, placed_in, runs_server
from clia.capture.installation.installed_tools import spelled
from clia.errors import AlreadyExists, Conflict, FileError, InvalidDocument, InvalidInput, NotFound, UnsafePath
from clia.files import LINK, MISSING, WritableLocalFiles
from clia.git.libgit2 import find_repository
from clia.values import documents
from clia.values import json_text as edits
from clia.values.records import json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.capture.installation.hook_tools import CliaProgram, HookTool, PlacedHook, Version

_BOM = b"\xef\xbb\xbf"
_NEW = "{\n}\n"


class SettingsFile(NamedTuple):
    """The settings to change."""

    scope: str
    root: str | None  # the repository; None: outside of one
    environment: Mapping[str, str]

    def holds(self, path: str) -> bool:
        """Whether a resolved path lies within the scope's directory."""
        tops = [self.root]
        if self.scope == USER:
            tops = [hook_tools.home(self.environment), *(tool.user_folder(self.environment) for tool in TOOLS.values())]
        return any(f"{path}/".startswith(os.path.realpath(top).rstrip("/") + "/") for top in tops if top)


@json_form("tool", "path", "kind", "what", "diff", kind="change")
class SettingsChange(NamedTuple):
    """The change of one file. ``after`` None: the file is removed, because nothing else is in it."""

    tool: str  # the tool
    path: str  # the file
    real: str
    before: bytes | None
    after: bytes | None
    what: tuple[str, ...]  # events, and the MCP server

    @property
    def kind(self) -> str:
        """`create`, `edit`, `remove` or `none`."""
        if self.before == self.after:
            return "none"
        return "remove" if self.after is None else "create" if self.before is None else "edit"

    def diff(self, name: str | None = None) -> str:
        """The change as a unified diff; ``name`` is the file's name in it."""
        contents = (self.before, self.after)
        old, new = ((data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in contents)
        was, becomes = ("/dev/null" if data is None else name or self.path for data in contents)
        lines = difflib.unified_diff(old, new, was, becomes)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)


class SettingsPlan(NamedTuple):
    """All changes, and notes for the user."""

    scope: str  # `project`, `local` or `user`
    changes: tuple[SettingsChange, ...]  # the change of each settings file
    notes: tuple[str, ...] = ()  # notes for the user

    @property
    def is_empty(self) -> bool:
        return all(change.kind == "none" for change in self.changes)


def target(scope: str, path: str, environment: Mapping[str, str]) -> SettingsFile:
    """Raise ``NotFound`` if the scope needs a repository and the path is not in one."""
    root = find_repository(path)
    hints = ["--scope user installs them for all of your repositories"]
    if root is None and scope != USER:
        path = os.path.abspath(path)
        raise NotFound(f"not inside a git repository: {path}", code="no-such-repository", hints=hints, fields={"path": path})
    if root is not None and scope != USER and not os.path.lexists(os.path.join(root, ".git")):
        message = f"{root} is a repository without files: no tool works in it"
        raise InvalidInput(message, code="bare-repository", hints=hints, fields={"path": root})
    return SettingsFile(scope, root, environment)


def tools_here(where: SettingsFile, on_path: Iterable[str]) -> list[HookTool]:
    """The tools in use here, by their folder or program, that have the scope."""
    programs = set(on_path)

    def is_used(tool: HookTool) -> bool:
        project = tool.file(PROJECT, where.root, where.environment)
        folders = [tool.user_folder(where.environment), *([os.path.dirname(project)] if project else [])]
        return tool.program in programs or any(map(os.path.isdir, folders))

    return [tool for tool in TOOLS.values() if where.scope in tool.files and is_used(tool)]


def install(
    tools: Sequence[HookTool],
    where: SettingsFile,
    program: CliaProgram,
    *,
    mcp: bool = False,
    versions: Mapping[str, Version | None] | None = None,
) -> SettingsPlan:
    """The changes that make each event run ``clia hook``; ``mcp`` also adds our MCP server.

    ``versions``: the installed version of each tool. Only events that it knows are written.
    """
    word = program.word(where.scope)
    changes, notes = [], _program_notes(where, program)
    for tool in tools:
        file, version = _file(tool, where), (versions or {}).get(tool.name)
        file.install_hooks(word, version)
        if version is not None and len(tool.known(version)) < len(tool.events):
            unknown = ", ".join(event for event in tool.events if event not in tool.known(version))
            notes.append(f"{tool.title} {spelled(version)} does not know {unknown}: update it, then install again")
        if mcp and tool.has_servers and isinstance(file, _SettingsEdit):
            file.install_server({"command": word, "args": ["mcp"]})
        changes.append(file.change())
        notes += _tool_notes(tool, where)
        if mcp and tool.name == "claude-code" and where.scope == PROJECT:
            servers = _servers(tool, where)
            servers.install_server({"type": "stdio", "command": word, "args": ["mcp"]})
            changes.append(servers.change())
        elif mcp and not tool.has_servers:
            notes.append(_server_note(tool, where, word))
    return SettingsPlan(where.scope, tuple(changes), tuple(notes))


def uninstall(tools: Sequence[HookTool], where: SettingsFile) -> SettingsPlan:
    """The changes that remove everything ``install`` adds, in any form."""
    changes, notes = [], []
    for tool in tools:
        files: list[_SettingsEdit | _PluginEdit] = [_file(tool, where)]
        if tool.name == "claude-code" and where.scope == PROJECT:
            files.append(_servers(tool, where))
        for file in files:
            notes += file.take_out()
            changes.append(file.change())
        config = os.path.join(os.path.dirname(files[0].path), "config.toml")
        if tool.name == "codex" and hook_tools.codex_has_server(config):
            notes.append(f"the MCP server in {config} stays: remove [mcp_servers.clia] from it, or run codex mcp remove clia")
        notes += [f"hooks of {tool.title} stay in {path}" for path in _elsewhere(tool, where)]
    return SettingsPlan(where.scope, tuple(changes), tuple(notes))


def apply(plan: SettingsPlan) -> None:
    files = WritableLocalFiles()
    changes = [change for change in plan.changes if change.kind != "none"]
    for change in changes:
        _check_unchanged(files, change)
    for change in changes:
        directory = os.path.dirname(change.real)
        files.make_directory(directory)
        with files.exclusive(directory):
            _check_unchanged(files, change)
            if change.after is None:
                _remove(change.real, TOOLS[change.tool].folder if plan.scope != USER else None)
            else:
                (files.create if change.before is None else files.replace)(change.real, change.after)


class _SettingsEdit:
    """A settings file being changed."""

    def __init__(self, tool: HookTool, where: SettingsFile, path: str) -> None:
        files = WritableLocalFiles()
        self.tool, self.path, self.real = tool, path, _real(files, where, path)
        self.before = files.read(self.real, documents.MAX_BYTES)
        text = "" if self.before is None else documents.decode(self.before, path)
        self.text = text if text.strip() else _NEW  # rewritten without a difference
        self.what: list[str] = []
        self._read()

    def _read(self) -> dict[str, Any]:
        return documents.parse(self.text.encode(), self.path)

    def install_hooks(self, word: str, version: Version | None = None) -> None:
        settings, known_events = self._read(), self.tool.known(version)
        if "hooks" not in settings:
            self.text = edits.add(self.text, (), self.tool.hooks(command_of(self.tool, word), version), "hooks")
            self.what += known_events
            return
        self._check_shape(settings)
        for event in known_events:
            self._install_event(event, word)
        unknown = [placed for placed in placed_in(self._read()) if placed.event not in known_events and placed.hook.ours]
        self._drop(unknown)
        self.what += dict.fromkeys(placed.event for placed in unknown)

    def _install_event(self, event: str, word: str) -> None:
        settings = self._read()
        entries = [placed for placed in placed_in(settings) if placed.event == event]
        serving = [placed for placed in entries if self._serves(placed, word)]
        keep = next((placed for placed in serving if not placed.hook.ours), serving[0] if serving else None)
        self._drop([placed for placed in entries if placed.hook.ours and placed is not keep], keep_event=keep is None)
        if keep is not None:
            return
        group = {"hooks": [self.tool.handler(event, command_of(self.tool, word))]}
        if event in self._read().get("hooks", {}):
            self.text = edits.add(self.text, ("hooks", event), group)
        else:
            self.text = edits.add(self.text, ("hooks",), [group], event)
        self.what.append(event)

    def _serves(self, placed: PlacedHook, word: str) -> bool:
        """Whether a hook already does what we would add. Changes that people made to it are kept."""
        hook = placed.hook
        ours = hook.program == word and hook.guarded and bool(hook.seconds) == (placed.event in self.tool.asking)
        return placed.matches_all and hook.tool == self.tool.name and (hook.changed or (ours and not placed.flaw))

    def install_server(self, server: dict[str, Any]) -> None:
        settings = self._read()
        servers = settings.get("mcpServers", {})
        self._expect(servers, dict, "/mcpServers")
        current = servers.get(SERVER)
        if current is not None:
            if not runs_server(current):
                message = f"{self.path}: /mcpServers/{SERVER} already exists and is another server"
                fields = {"path": self.path, "pointer": f"/mcpServers/{SERVER}"}
                raise AlreadyExists(message, hints=["rename that server"], fields=fields)
            if current["command"] == server["command"]:
                return
            self.text = edits.remove(self.text, ("mcpServers", SERVER))
        if "mcpServers" in settings:
            self.text = edits.add(self.text, ("mcpServers",), server, SERVER)
        else:
            self.text = edits.add(self.text, (), {SERVER: server}, "mcpServers")
        self.what.append("mcp")

    def take_out(self) -> list[str]:
        """Hooks that are kept, and why."""
        settings = self._read()
        if "hooks" in settings:
            self._expect(settings["hooks"], dict, "/hooks")
        entries = list(placed_in(settings))
        self.what += dict.fromkeys(placed.event for placed in entries if placed.hook.ours)
        self._drop([placed for placed in entries if placed.hook.ours])
        servers = settings.get("mcpServers")
        if isinstance(servers, dict) and runs_server(servers.get(SERVER)):
            self.what.append("mcp")
            self.text = edits.remove(self.text, ("mcpServers",) if len(servers) == 1 else ("mcpServers", SERVER))
        others = [placed.event for placed in entries if not placed.hook.ours]
        return [f"{self.path}: the hook of {event} runs clia among other commands, and stays" for event in others]

    def _drop(self, hooks: Sequence[PlacedHook], *, keep_event: bool = False) -> None:
        """Remove hooks, and containers that become empty."""
        for event, group, item, *_ in reversed(hooks):  # from the end, so earlier indexes stay valid
            events = self._read()["hooks"]
            path: list[str | int] = ["hooks", event, group, "hooks", item]
            if len(events[event][group]["hooks"]) == 1:
                path = path[:3]
                if len(events[event]) == 1 and not keep_event:
                    path = path[: 1 if len(events) == 1 else 2]
            self.text = edits.remove(self.text, path)

    def _check_shape(self, settings: dict[str, Any]) -> None:
        hooks = settings["hooks"]
        self._expect(hooks, dict, "/hooks")
        for event in self.tool.events:
            groups = hooks.get(event, [])
            self._expect(groups, list, f"/hooks/{event}")
            for number, group in enumerate(groups):
                self._expect(group, dict, f"/hooks/{event}/{number}")
                self._expect(group.get("hooks", []), list, f"/hooks/{event}/{number}/hooks")

    def _expect(self, value: Any, kind: type, pointer: str) -> None:
        if isinstance(value, kind):
            return
        expected = "an object" if kind is dict else "an array"
        raise InvalidDocument(
            f"{self.path}: {pointer} must be {expected}, not {documents.type_name(value)}",
            code="unexpected-settings",
            hints=[f"correct it first: {self.tool.title} {self.tool.version} reads it otherwise"],
            fields={"path": self.path, "pointer": pointer},
        )

    def change(self) -> SettingsChange:
        after: bytes | None = self.text.encode()
        if not self.what:
            after = self.before  # also if it is blank or missing
        elif not self._read() and self.path == self.real:
            after = None  # nothing but ours was in it
        elif self.before is not None and self.before.startswith(_BOM):
            after = _BOM + self.text.encode()
        return SettingsChange(self.tool.name, self.path, self.real, self.before, after, tuple(self.what))


class _PluginEdit:
    """A plug-in being installed or removed: a file that is ours alone."""

    def __init__(self, tool: HookTool, where: SettingsFile, path: str) -> None:
        files = WritableLocalFiles()
        self.tool, self.path, self.real = tool, path, _real(files, where, path)
        self.before = files.read(self.real, documents.MAX_BYTES)
        self.after = self.before

    def install_hooks(self, word: str, version: Version | None) -> None:
        del version
        if self.before is not None and not hook_tools.is_our_plugin(self.before):
            hints = ["rename that file"]
            raise AlreadyExists(f"{self.path} already exists and is another plug-in", hints=hints, fields={"path": self.path})
        self.after = hook_tools.plugin_of(self.tool, word)

    def take_out(self) -> list[str]:
        self.after = None if hook_tools.is_our_plugin(self.before) else self.before
        return []

    def change(self) -> SettingsChange:
        what = () if self.after == self.before else ("plug-in",)
        return SettingsChange(self.tool.name, self.path, self.real, self.before, self.after, what)


def _file(tool: HookTool, where: SettingsFile) -> _SettingsEdit | _PluginEdit:
    path = tool.file(where.scope, where.root, where.environment)
    if not tool.files:
        hints = [f"add the command to the hooks of {tool.title} yourself: {command_of(tool, SERVER)}"]
        message = f"clia does not write the settings of {tool.title}"
        raise InvalidInput(message, code="no-such-scope", hints=hints, fields={"tool": tool.name, "scope": where.scope})
    if path is None:
        raise InvalidInput(
            f"{tool.title} has no settings of scope {where.scope!r}",
            code="no-such-scope",
            hints=[f"one of {', '.join(tool.files)}"],
            fields={"tool": tool.name, "scope": where.scope},
        )
    return (_PluginEdit if tool.plugin else _SettingsEdit)(tool, where, path)


def _servers(tool: HookTool, where: SettingsFile) -> _SettingsEdit:
    """A project's MCP servers, which Claude Code keeps in a separate file."""
    return _SettingsEdit(tool, where, os.path.join(where.root or "", ".mcp.json"))


def _real(files: WritableLocalFiles, where: SettingsFile, path: str) -> str:
    real = files.real(path)
    if not where.holds(real):
        raise UnsafePath(
            f"{path} leads to {real}, outside of the scope {where.scope!r}",
            hints=["put a regular file there, or edit the other one"],
            fields={"path": path, "real": real, "scope": where.scope},
        )
    if files.kind(path) == LINK and files.kind(real) == MISSING:
        raise FileError(f"{path} is a broken link", fields={"path": path, "reason": "a broken link"})
    return real


def _check_unchanged(files: WritableLocalFiles, change: SettingsChange) -> None:
    if files.read(change.real, documents.MAX_BYTES) != change.before:
        raise Conflict(
            f"{change.path} was changed by another program; nothing was written to it",
            code="settings-changed",
            hints=["run the command again"],
            fields={"path": change.path},
        )


def _remove(path: str, folder: str | None) -> None:
    """Remove a file, and the folders that become empty, up to the tool's folder."""
    try:
        os.unlink(path)
        above = os.path.dirname(path)
        while folder is not None and f"/{folder}" in above and not os.listdir(above):
            os.rmdir(above)
            above = "" if os.path.basename(above) == folder else os.path.dirname(above)
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def _program_notes(where: SettingsFile, program: CliaProgram) -> list[str]:
    notes = []
    if where.scope != USER and where.root is not None and not hook_tools.is_space(where.root):
        notes.append(f"{where.root} is not a space, and hooks record only in a space: run clia init")
    if where.scope == PROJECT and program.found is None:
        notes.append("clia is not on PATH: nothing is recorded until it is on the PATH of everyone who works on this repository")
    elif where.scope == PROJECT and not program.is_found:
        notes.append(f"the clia on PATH is {program.found}, not this one: the hooks run that")
    elif not program.is_found:
        why = f"the clia on PATH is {program.found}" if program.found else "clia is not on PATH"
        notes.append(f"{why}, so the hooks name {program.own}")
    return notes


def _tool_notes(tool: HookTool, where: SettingsFile) -> list[str]:
    settings = hook_tools.switched_off(tool, where.root, where.environment)
    notes = [f"{off}: {tool.title} runs no hooks until you change that" for off in settings]
    if tool.name == "codex":
        notes.append("Codex runs hooks only after you have reviewed and trusted them: type /hooks in Codex")
    if tool.name in ("gemini", "copilot", "qwen") and where.scope == PROJECT:
        notes.append(f"{tool.title} runs hooks only in trusted folders; it asks once per folder")
    twice = "events would be sent twice; remove one of them"
    return notes + [f"the hooks of {tool.title} are in {path} too: {twice}" for path in _elsewhere(tool, where)]


def _elsewhere(tool: HookTool, where: SettingsFile) -> list[str]:
    """Other scopes that also have our hooks."""
    own_path = tool.file(where.scope, where.root, where.environment)
    paths = (tool.file(scope, where.root, where.environment) for scope in SCOPES)
    return [path for path in dict.fromkeys(paths) if path is not None and path != own_path and hook_tools.installed_in(path)]


def _server_note(tool: HookTool, where: SettingsFile, word: str) -> str:
    if tool.name == "codex" and where.scope == PROJECT:
        path = os.path.join(where.root or "", tool.folder, "config.toml")
        command = json.dumps(word, ensure_ascii=False)
        return f'for the MCP server put into {path}: [mcp_servers.clia] with command = {command} and args = ["mcp"]'
    if tool.name == "codex":
        return f"for the MCP server run: codex mcp add clia -- {word} mcp"
    if tool.name != "claude-code":
        return f"for the MCP server add the command {word} mcp to the MCP servers of {tool.title}"
    return f"for the MCP server run: claude mcp add --scope {where.scope} clia -- {word} mcp"
