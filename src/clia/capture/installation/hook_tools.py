"""The tools that clia has hooks for: their settings files, their events, and whether their hooks are enabled.

Invariant: one table determines the settings that are written, the plug-in and what ``clia doctor`` expects. A hook of clia is
recognized by its command alone, because tools drop unknown fields. Of several files that enable or disable hooks, the one nearest
to the project decides, as for the tool.

The formats are those of Claude Code 2.1.325, Codex of August 2026 and Gemini CLI 0.61.0. No hook is asynchronous, although two of
the tools support it: an event must be in the spool before the tool continues, or the order is lost.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from typing import NamedTuple

from clia.errors import CliaError, InvalidInput, did_you_mean
from clia.files import LocalFiles
from clia.values import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Version = tuple[int, ...]

PROJECT, LOCAL, USER = "project", "local", "user"
SCOPES = (PROJECT, LOCAL, USER)
SERVER = "clia"
"""The name of our MCP server in a tool's settings."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_SECONDS = 10
_ANSWER_SECONDS, _DIGITS_MAX = 600, 7
_GUARD = [">", "/dev/null", "2", ">&", "1", "||", "exit", "0", ";"]  # the words of a guard after its program


class HookTool(NamedTuple):
    """A tool and its hook settings."""

    name: str
    title: str
    version: str  # of the documentation that this follows
    program: str
    folder: str
    files: Mapping[str, str]  # scope -> file in that folder
    home_variable: str  # names the user's folder, or its parent for Gemini CLI
    events: Mapping[str, int]  # event -> timeout, in the tool's unit
    named: bool = False  # whether hooks have names that settings can disable
    since: Mapping[str, Version] = {}  # event -> the first version that knows it, if an older one may be in use
    tolerant: Version = ()  # the first version that ignores an unknown event; an older one ignores the whole file
    home: str = ""  # the user's folder, if its name is not that of the project's
    plugin: str = ""  # a file of this package that is installed as it is, in place of settings
    has_servers: bool = False  # whether the same settings have the MCP servers
    asking: tuple[str, ...] = ()  # events whose hook may wait for a person's answer

    def user_folder(self, environment: Mapping[str, str]) -> str:
        chosen = environment.get(self.home_variable)
        if chosen and self.name != "gemini":
            return os.path.abspath(chosen)
        return os.path.join(os.path.abspath(chosen) if chosen else home(environment), self.home or self.folder)

    def file(self, scope: str, root: str | None, environment: Mapping[str, str]) -> str | None:
        """The settings file of a scope; None if the tool lacks the scope or there is no repository."""
        name = self.files.get(scope)
        if name is None:
            return None
        if scope == USER:
            return os.path.join(self.user_folder(environment), name)
        return None if root is None else os.path.join(root, self.folder, name)

    def handler(self, event: str, command: str) -> dict[str, Any]:
        """One hook in the format of the tool's settings. A hook that may ask a person is told how long the tool waits."""
        named = {"name": SERVER} if self.named else {}
        command = f"{command} {_ANSWER_SECONDS}" if event in self.asking else command
        return {**named, "type": "command", "command": command, "timeout": self.events[event]}

    def known(self, version: Version | None) -> list[str]:
        """The events that a version knows; those of the documented one if the version is unknown."""
        return [event for event in self.events if version is None or version >= self.since.get(event, ())]

    def hooks(self, command: str, version: Version | None = None) -> dict[str, Any]:
        """The hooks of all events: the value of ``hooks`` in an otherwise empty file."""
        return {event: [{"hooks": [self.handler(event, command)]}] for event in self.known(version)}


def _timeouts(events: str, unit: int = 1) -> dict[str, int]:
    return dict.fromkeys(events.split(), _SECONDS * unit)


_CLAUDE_CODE = HookTool(
    "claude-code",
    "Claude Code",
    "2.1.325",
    "claude",
    ".claude",
    {PROJECT: "settings.json", LOCAL: "settings.local.json", USER: "settings.json"},
    "CLAUDE_CONFIG_DIR",
    _timeouts(
        "SessionStart UserPromptSubmit PreToolUse PermissionRequest PostToolUse PostToolUseFailure SubagentStart SubagentStop Stop "
        "StopFailure PreCompact SessionEnd"
    )
    | dict.fromkeys(("PreToolUse", "PermissionRequest"), _ANSWER_SECONDS),
    since={
        "SubagentStop": (1, 0, 41),
        "PreCompact": (1, 0, 48),
        "UserPromptSubmit": (1, 0, 54),
        "SessionStart": (1, 0, 62),
        "SessionEnd": (1, 0, 85),
        "SubagentStart": (2, 0, 43),
        "PermissionRequest": (2, 0, 45),
        "PostToolUseFailure": (2, 1, 10),
        "StopFailure": (2, 1, 78),
    },
    tolerant=(2, 1, 80),
    asking=("PreToolUse", "PermissionRequest"),
)
_CODEX = HookTool(
    "codex",
    "Codex",
    "August 2026",
    "codex",
    ".codex",
    {PROJECT: "hooks.json", USER: "hooks.json"},
    "CODEX_HOME",
    _timeouts("SessionStart UserPromptSubmit PreToolUse PermissionRequest PostToolUse SubagentStart SubagentStop Stop PreCompact")
    | dict.fromkeys(("PreToolUse", "PermissionRequest"), _ANSWER_SECONDS)
    | {"SessionEnd": 3},  # the maximum that Codex allows
    asking=("PreToolUse", "PermissionRequest"),
)
_GEMINI = HookTool(
    "gemini",
    "Gemini CLI",
    "0.61.0",
    "gemini",
    ".gemini",
    {PROJECT: "settings.json", USER: "settings.json"},
    "GEMINI_CLI_HOME",
    _timeouts("SessionStart BeforeAgent BeforeTool AfterTool AfterAgent SessionEnd", unit=1000)  # milliseconds
    | {"BeforeTool": _ANSWER_SECONDS * 1000},
    named=True,
    has_servers=True,
    asking=("BeforeTool",),
)
_COMMON = "SessionStart UserPromptSubmit PreToolUse PostToolUse"
_COPILOT = HookTool(
    "copilot",
    "Copilot CLI",
    "1.0.102",
    "copilot",
    ".github",
    {PROJECT: "hooks/clia.json", USER: "hooks/clia.json"},
    "COPILOT_HOME",
    _timeouts(f"{_COMMON} PostToolUseFailure SubagentStart SubagentStop Stop PreCompact SessionEnd"),
    home=".copilot",
)
_QWEN = HookTool(
    "qwen",
    "Qwen Code",
    "0.24.4",
    "qwen",
    ".qwen",
    {PROJECT: "settings.json", USER: "settings.json"},
    "QWEN_HOME",
    _timeouts(f"{_COMMON} PostToolUseFailure SubagentStart SubagentStop Stop StopFailure PreCompact SessionEnd", unit=1000),
    has_servers=True,
)
_OPENHANDS = HookTool(
    "openhands",
    "OpenHands",
    "1.16.0",
    "openhands",
    ".openhands",
    {PROJECT: "hooks.json", USER: "hooks.json"},
    "OH_PERSISTENCE_DIR",
    _timeouts(f"{_COMMON} Stop SessionEnd"),
)
_OPENCODE = HookTool(
    "opencode",
    "opencode",
    "1.18.33",
    "opencode",
    ".opencode",
    {PROJECT: "plugins/clia.js", USER: "plugins/clia.js"},
    "OPENCODE_CONFIG_DIR",
    {},
    home=".config/opencode",
    plugin="opencode.js",
)
_AMP = HookTool(
    "amp",
    "Amp",
    "of November 2026",
    "amp",
    ".amp",
    {PROJECT: "plugins/clia.ts", USER: "plugins/clia.ts"},
    "AMP_HOME",
    {},
    home=".config/amp",
    plugin="amp.ts",
)
# Their hooks are not in JSON: people add the command themselves.
_KIMI = HookTool("kimi", "Kimi CLI", "1.52.0", "kimi", ".kimi", {}, "KIMI_SHARE_DIR", {})
_CLINE = HookTool("cline", "Cline", "3.0.65", "cline", ".cline", {}, "CLINE_DIR", {})
TOOLS = {tool.name: tool for tool in (_CLAUDE_CODE, _CODEX, _GEMINI, _COPILOT, _QWEN, _OPENHANDS, _OPENCODE, _AMP, _KIMI, _CLINE)}


def tool_named(name: str) -> HookTool:
    if name not in TOOLS:
        hints = [f"one of {', '.join(TOOLS)}"]
        raise InvalidInput(
            f"unknown tool {name!r}{did_you_mean(name, TOOLS)}", code="unknown-tool", hints=hints, fields={"tool": name}
        )
    return TOOLS[name]


class CliaProgram(NamedTuple):
    """The running clia, and the program that the name ``clia`` finds."""

    own: str
    found: str | None

    @property
    def is_found(self) -> bool:
        return self.found is not None and os.path.realpath(self.found) == os.path.realpath(self.own)

    def word(self, scope: str) -> str:
        """How settings of a scope name the program. Project settings are shared, so they use the plain name."""
        return SERVER if scope == PROJECT or self.is_found else self.own


MARK = b"// Written by `clia hook install "
"""A comment at the start of our plug-ins."""


def plugin_of(tool: HookTool, word: str) -> bytes:
    """The plug-in of a tool, which runs ``clia hook`` by this program."""
    with open(os.path.join(os.path.dirname(__file__), "plugins", tool.plugin), encoding="utf-8") as file:
        return file.read().replace('"clia", ["hook"', f'{json.dumps(word)}, ["hook"').encode()


def is_our_plugin(content: bytes | None) -> bool:
    return content is not None and any(line.startswith(MARK) for line in content.splitlines()[:2])


def installed_plugin(path: str) -> bytes | None:
    """The content of clia's plug-in; None if it is missing or not clia's."""
    try:
        content = LocalFiles().read(path, documents.MAX_BYTES)
    except CliaError:
        return None
    return content if is_our_plugin(content) else None


def command_of(tool: HookTool, word: str) -> str:
    """The shell command of a hook. Where clia is missing it does nothing: a tool may stop working if a hook fails."""
    program = shlex.quote(word)
    return f"command -v {program} >/dev/null 2>&1 || exit 0; {program} hook {tool.name}"


class InstalledHook(NamedTuple):
    """A hook that runs ``clia hook``."""

    program: str
    tool: str
    changed: bool  # it sets variables or is part of a longer command
    ours: bool  # it does nothing else
    guarded: bool  # it does nothing where clia is missing
    seconds: int = 0  # how long the tool waits for it, as the command says


def hook_in(handler: object) -> InstalledHook | None:
    """The clia hook in a handler of a tool's settings, if any."""
    if not isinstance(handler, dict) or handler.get("type", "command") != "command":
        return None
    words = _words(handler)
    for at in range(len(words) - 2):
        program, verb, tool = words[at : at + 3]
        if verb == "hook" and tool in TOOLS and os.path.basename(program) in ("clia", "clia.exe"):
            before, after = words[:at], words[at + 3 :]
            seconds = int(after.pop(0)) if after and after[0].isdigit() and len(after[0]) < _DIGITS_MAX else 0
            if any(word.startswith("#") for word in before):
                return None  # a comment
            guarded = before == ["command", "-v", program, *_GUARD] and not after
            alone = guarded or all(_ASSIGNMENT.fullmatch(word) or word == "exec" for word in before)
            forgiving = after in (["||", "true"], ["||", ":"])
            changed = bool(before or after) and not guarded
            ours = alone and (forgiving or not after)
            return InstalledHook(program, tool, changed, ours, guarded or forgiving, seconds)
    return None


def _words(handler: Mapping[str, Any]) -> list[str]:
    command, arguments = handler.get("command"), handler.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(arguments, list):  # Claude Code's form without a shell
        return [command, *(word for word in arguments if isinstance(word, str))]
    reader = shlex.shlex(command, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        return list(reader)
    except ValueError:  # an unterminated quote: the shell would refuse it, too
        return []


class PlacedHook(NamedTuple):
    """A hook that runs clia, and its position."""

    event: str
    group: int
    item: int
    hook: InstalledHook
    matches_all: bool
    flaw: str = ""  # `async` or `timeout`, if the tool does not wait until it has run


def placed_in(settings: Mapping[str, Any]) -> Iterator[PlacedHook]:
    """Every hook in a tool's settings that runs clia. Malformed entries are skipped."""
    for event, number, group, item, handler in _handlers(settings):
        hook = hook_in(handler)
        if hook is not None:
            matches_all = group.get("matcher") in (None, "", "*") and "if" not in handler
            yield PlacedHook(event, number, item, hook, matches_all, _flaw(handler, TOOLS[hook.tool]))


def commented_events(settings: Mapping[str, Any], tool: HookTool) -> list[str]:
    """The events with a hook that has the words of clia's, but does not run it."""
    words = re.compile(rf"\bclia(\.exe)?['\"]?\s+hook\s+{re.escape(tool.name)}\b")
    commands = [(event, handler, handler.get("command")) for event, _, _, _, handler in _handlers(settings)]
    stopped = [
        event for event, handler, text in commands if isinstance(text, str) and words.search(text) and hook_in(handler) is None
    ]
    return list(dict.fromkeys(stopped))


def _handlers(settings: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any], int, dict[str, Any]]]:
    """Every hook in a tool's settings: event, number of its group, the group, number in it, and the hook."""
    hooks = settings.get("hooks")
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for number, group in enumerate(groups if isinstance(groups, list) else ()):
            handlers = group.get("hooks") if isinstance(group, dict) else None
            for item, handler in enumerate(handlers if isinstance(handlers, list) else ()):
                if isinstance(handler, dict):
                    yield event, number, group, item, handler


def _flaw(handler: Mapping[str, Any], tool: HookTool) -> str:
    """Why the tool does not wait until a hook has run; empty if it does."""
    second = 1000 if min(tool.events.values(), default=0) > _ANSWER_SECONDS else 1  # in the tool's unit
    timeout = handler.get("timeout")
    if handler.get("async") is True:
        return "async"
    return "timeout" if isinstance(timeout, (int, float)) and timeout < second else ""


def runs_server(server: object) -> bool:
    """Whether an MCP server entry is ours."""
    match server:
        case {"command": str() as command, "args": ["mcp", *_]}:
            return os.path.basename(command) in ("clia", "clia.exe")
    return False


def home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")


def common_dir(root: str) -> str | None:
    """The git directory shared by all worktrees of a repository; None if it is not found."""
    git_dir = os.path.join(root, ".git")
    if not os.path.lexists(git_dir):
        return root  # a bare repository
    if os.path.isfile(git_dir):
        pointed = _line(git_dir).removeprefix("gitdir:").strip()
        git_dir = os.path.join(root, pointed) if pointed else ""
    common = os.path.realpath(os.path.join(git_dir, _line(os.path.join(git_dir, "commondir"))))
    return common if os.path.isdir(common) else None


def is_space(root: str) -> bool:
    """Whether hooks record in a repository: they look for this folder."""
    common = common_dir(root)
    return common is not None and os.path.isdir(os.path.join(common, "clia"))


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline().strip()
    except OSError:
        return ""


MANAGED = ("/etc/claude-code/managed-settings.json", "/Library/Application Support/ClaudeCode/managed-settings.json")
"""Administrator settings of Claude Code, on Linux and macOS."""


class HooksOff(NamedTuple):
    """A setting that disables hooks."""

    path: str
    setting: str

    def __str__(self) -> str:
        return f"{self.path} says {self.setting}"


def settings_in(path: str) -> dict[str, Any] | None:
    """The contents of a settings file; None if it does not exist. ``CliaError`` if it cannot be read."""
    data = LocalFiles().read(path, documents.MAX_BYTES)
    return None if data is None else documents.parse(data, path)


def installed_in(path: str) -> bool:
    """Whether a settings file has hooks that run clia; False if it cannot be read."""
    return any(True for _ in placed_in(readable_settings(path))) or installed_plugin(path) is not None


def codex_has_server(path: str) -> bool:
    """Whether a Codex config.toml has our MCP server."""
    servers = read_toml(path).get("mcp_servers")
    return isinstance(servers, dict) and runs_server(servers.get(SERVER))


def switched_off(
    tool: HookTool, root: str | None, environment: Mapping[str, str], managed: tuple[str, ...] = MANAGED
) -> list[HooksOff]:
    """The known settings that stop the tool from running hooks."""
    if tool.name == "codex":
        return list(_codex(tool, root, environment))
    paths = (tool.file(scope, root, environment) for scope in (LOCAL, PROJECT, USER))  # nearest first
    settings = [(path, readable_settings(path)) for path in paths if path is not None]
    if tool.name == "gemini":
        return list(_gemini(settings))
    decided = [(path, values["disableAllHooks"]) for path, values in settings if isinstance(values.get("disableAllHooks"), bool)]
    off = [HooksOff(path, "disableAllHooks: true") for path, disabled in decided[:1] if disabled]
    keys = ("disableAllHooks", "allowManagedHooksOnly") if tool.name == "claude-code" else ()
    return off + [HooksOff(path, f"{key}: true") for path in managed for key in keys if readable_settings(path).get(key) is True]


def _codex(tool: HookTool, root: str | None, environment: Mapping[str, str]) -> Iterator[HooksOff]:
    folders = [*([os.path.join(root, tool.folder)] if root else []), tool.user_folder(environment)]
    for path in (os.path.join(folder, "config.toml") for folder in folders):
        features = read_toml(path).get("features")
        for key in ("hooks", "codex_hooks"):  # the older name
            if isinstance(features, dict) and isinstance(features.get(key), bool):
                if not features[key]:
                    yield HooksOff(path, f"[features] {key} = false")
                return


def _gemini(settings: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[HooksOff]:
    decided = False
    for path, values in settings:
        switches = values.get("hooksConfig")
        switches = switches if isinstance(switches, dict) else {}
        if isinstance(switches.get("enabled"), bool) and not decided:
            decided = True
            if not switches["enabled"]:
                yield HooksOff(path, "hooksConfig.enabled: false")
        names = switches.get("disabled")  # lists of several files are combined
        for name in names if isinstance(names, list) else ():
            if name == SERVER or hook_in({"command": name}):
                yield HooksOff(path, f"hooksConfig.disabled names {name}")


def readable_settings(path: str) -> dict[str, Any]:
    """The contents of a settings file; empty if it is missing or cannot be read."""
    try:
        return settings_in(path) or {}
    except CliaError:  # ``settings_in`` reports unreadable files
        return {}


def read_toml(path: str) -> dict[str, Any]:
    """The contents of a TOML file; empty if it is missing or cannot be read."""
    try:
        data = LocalFiles().read(path, documents.MAX_BYTES)
        return {} if data is None else tomllib.loads(data.decode())
    except (CliaError, ValueError):
        return {}
