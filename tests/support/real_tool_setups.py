"""How a person sets up each real tool, how one turn of it runs without a screen, and how its model calls its tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.full_screen import FullScreen
from support.model_server import DEADLINE, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from support.real_tools import Computer, Ended


class RealTool:
    """A tool on a person's computer."""

    name: str  # as clia names it
    program: str  # as a person starts it
    has_server = False  # whether its own settings, which clia does not write, have clia's MCP server
    leave = "/quit"  # ends its full screen
    screen_asks: tuple[str, ...] = ()  # beginnings of hosts that its full screen asks in spite of its settings

    def __init__(self, package: str = "", asks: Iterable[str] = ()) -> None:
        self.package = package or self.program  # the program among the packages
        self.asks = set(asks)  # beginnings of hosts that it asks in spite of its settings

    def __repr__(self) -> str:
        return self.package

    def set_up(self, computer: Computer, *, mcp: bool = False) -> None:
        """Install the tool and its hooks as a person does."""
        computer.add_program(self.program, self.package)
        computer.model.tolerated |= self.asks
        self.configure(computer)
        computer.install(self.name, *(["--mcp"] if mcp or self.has_server else []))

    def configure(self, computer: Computer) -> None:
        """Write the settings of the tool itself: the fake model, no updates, no telemetry."""
        raise NotImplementedError

    def words(self, prompt: str) -> list[str]:
        """The command for one turn."""
        raise NotImplementedError

    def resumed(self, prompt: str) -> list[str]:
        """The command for another turn of the last session."""
        raise NotImplementedError

    def screen(self, computer: Computer) -> FullScreen:
        """Start its full screen."""
        computer.model.tolerated |= set(self.screen_asks)
        return FullScreen(self.screen_words(), computer.root, computer.environment(), DEADLINE)

    def screen_words(self) -> list[str]:
        """The command for the full screen."""
        raise NotImplementedError

    def start_once(self, computer: Computer) -> None:
        """Let the tool create its own files, where two first starts at the same time would fail."""

    def turn(self, computer: Computer, prompt: str) -> Ended:
        return succeeded(computer.run(self.words(prompt)))

    def another_turn(self, computer: Computer, prompt: str) -> Ended:
        return succeeded(computer.run(self.resumed(prompt)))

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        """The model's call that creates a file."""
        raise NotImplementedError

    def shell(self, command: str) -> ToolCall:
        """The model's call that runs a command."""
        raise NotImplementedError

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        """The model's call of a tool of clia's MCP server."""
        raise NotImplementedError


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended
    return ended


class ClaudeCode(RealTool):
    name, program, leave = "claude-code", "claude", "/exit"
    screen_asks = ("downloads.claude.ai", "github.com")
    allowed = ("Bash(wc:*)", "Bash(ls:*)", "Bash(cat:*)", "Bash(echo:*)", "Bash(seq:*)", "Bash(git:*)", "Bash(pwd:*)", "mcp__clia")

    def configure(self, computer: Computer) -> None:
        names = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING")
        computer.variables |= dict.fromkeys(names, "1")
        computer.variables |= {"ANTHROPIC_BASE_URL": computer.model.url, "ANTHROPIC_API_KEY": "dummy"}
        trusted = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["clia"]}
        state = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "projects": {str(computer.root): trusted},
            "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        }
        computer.write(".claude.json", json.dumps(state))
        # What the answer to its question about MCP servers leaves behind, in a file that it has git ignore.
        approved = {"enabledMcpjsonServers": ["clia"]}
        computer.write(".config/git/ignore", "**/.claude/settings.local.json\n")
        (computer.root / ".claude").mkdir(exist_ok=True)
        (computer.root / ".claude" / "settings.local.json").write_text(json.dumps(approved))

    def words(self, prompt: str) -> list[str]:
        options = ["--permission-mode", "acceptEdits", "--output-format", "json", "--allowedTools", ",".join(self.allowed)]
        return [self.program, "-p", prompt, *options]

    def screen_words(self) -> list[str]:
        return [self.program, "--permission-mode", "acceptEdits", "--allowedTools", ",".join(self.allowed)]

    def resumed(self, prompt: str) -> list[str]:
        return [*self.words(prompt), "--continue"]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        return ToolCall("Write", {"file_path": str(computer.root / name), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("Bash", {"command": command, "description": "Run"})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(f"mcp__clia__{tool}", arguments)

    def agent(self, prompt: str, **more: Any) -> ToolCall:
        """The model's call that starts a sub-agent."""
        return ToolCall("Agent", {"description": "Help", "prompt": prompt, "subagent_type": "general-purpose", **more})


class Codex(RealTool):
    """``model`` decides which tools Codex offers: ``gpt-5.1-codex`` sub-agents with ids, ``gpt-6.1-sol`` named ones and scripts."""

    name, program, has_server = "codex", "codex", True
    screen_asks = ("raw.githubusercontent.com",)

    def __init__(self, package: str = "", asks: Iterable[str] = (), model: str = "gpt-5.5") -> None:
        super().__init__(package, asks)
        self.options = ("--dangerously-bypass-hook-trust", "--sandbox", "danger-full-access", "--json", "-m", model)

    def configure(self, computer: Computer) -> None:
        computer.variables |= {"FAKE_KEY": "dummy"}
        computer.write(
            ".codex/config.toml",
            f"""model_provider = "fake"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = "{computer.model.url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
supports_websockets = false
[analytics]
enabled = false
[otel]
exporter = "none"
[features]
apps = false
plugins = false
remote_plugin = false
[projects."{computer.root}"]
trust_level = "trusted"
[mcp_servers.clia]
command = "clia"
args = ["mcp"]
required = {str((computer.programs / "clia").exists()).lower()}
""",
        )

    def words(self, prompt: str) -> list[str]:
        return [self.program, "exec", *self.options, prompt]

    def screen_words(self) -> list[str]:
        return [self.program, *(option for option in self.options if option != "--json")]

    def resumed(self, prompt: str) -> list[str]:
        return [self.program, "exec", *self.options, "resume", "--last", prompt]

    def forked(self, session: str, prompt: str) -> list[str]:
        """The command for the first turn of a fork of a session."""
        return [self.program, "exec", *self.options, "fork", session, prompt]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        return ToolCall("apply_patch", f"*** Begin Patch\n*** Add File: {name}\n{lines}*** End Patch\n")

    def shell(self, command: str) -> ToolCall:
        return ToolCall("exec_command", {"cmd": command})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(tool, arguments, "mcp__clia")


class Gemini(RealTool):
    name, program = "gemini", "gemini"
    screen_asks = ("registry.",)

    def configure(self, computer: Computer) -> None:
        computer.variables |= {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": computer.model.url,
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "NO_BROWSER": "1",
        }
        computer.write(".gemini/settings.json", json.dumps(_quiet_settings("gemini-api-key")))

    def words(self, prompt: str) -> list[str]:
        return [self.program, "-p", prompt, "--approval-mode", "yolo", "--output-format", "json"]

    def screen_words(self) -> list[str]:
        return [self.program, "--approval-mode", "yolo"]

    def resumed(self, prompt: str) -> list[str]:
        return [*self.words(prompt), "--resume", "latest"]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        return ToolCall("write_file", {"file_path": str(computer.root / name), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("run_shell_command", {"command": command, "description": "Run"})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(f"mcp_clia_{tool}", arguments)


def _quiet_settings(authentication: str) -> dict[str, object]:
    """Settings that Gemini CLI and its fork Qwen Code share."""
    return {
        "security": {"auth": {"selectedType": authentication}},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "privacy": {"usageStatisticsEnabled": False},
    }


class Copilot(RealTool):
    name, program, has_server, leave = "copilot", "copilot", True, "/exit"

    def configure(self, computer: Computer) -> None:
        computer.variables |= {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": f"{computer.model.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_MODEL": "claude-sonnet-4.5",
        }
        computer.write(".copilot/config.json", json.dumps({"trustedFolders": [str(computer.root)]}))
        server = {"type": "local", "command": "clia", "args": ["mcp"], "tools": ["*"]}
        computer.write(".copilot/mcp-config.json", json.dumps({"mcpServers": {"clia": server}}))

    def words(self, prompt: str) -> list[str]:
        return [self.program, "-p", prompt, "--allow-all-tools", "--no-color"]

    def screen_words(self) -> list[str]:
        return [self.program, "--allow-all-tools"]

    def resumed(self, prompt: str) -> list[str]:
        return [*self.words(prompt), "--continue"]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        return ToolCall("create", {"path": str(computer.root / name), "file_text": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("bash", {"command": command, "description": "Run"})

    def agent(self, prompt: str) -> ToolCall:
        """The model's call that starts a sub-agent."""
        kind = {"agent_type": "general-purpose", "mode": "sync"}
        return ToolCall("task", {"description": "Help", "name": "helper", "prompt": prompt, **kind})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(f"clia-{tool}", arguments)


class Qwen(RealTool):
    name, program = "qwen", "qwen"

    def configure(self, computer: Computer) -> None:
        computer.variables |= {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"{computer.model.url}/v1",
            "OPENAI_MODEL": "fake-model",
            "QWEN_CODE_TRUST_WORKSPACE": "true",
            "NO_BROWSER": "1",
        }
        computer.write(".qwen/settings.json", json.dumps(_quiet_settings("openai")))

    def words(self, prompt: str) -> list[str]:
        return [self.program, "-p", prompt, "--approval-mode", "yolo", "--output-format", "json"]

    def screen_words(self) -> list[str]:
        return [self.program, "--approval-mode", "yolo"]

    def resumed(self, prompt: str) -> list[str]:
        return [*self.words(prompt), "--continue"]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        return ToolCall("write_file", {"file_path": str(computer.root / name), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("run_shell_command", {"command": command, "description": "Run", "is_background": False})

    def agent(self, prompt: str) -> ToolCall:
        """The model's call that starts a sub-agent."""
        return ToolCall("agent", {"description": "Help", "prompt": prompt, "subagent_type": "general-purpose"})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(f"mcp__clia__{tool}", arguments)


class OpenCode(RealTool):
    name, program, has_server, leave = "opencode", "opencode", True, "/exit"

    def configure(self, computer: Computer) -> None:
        computer.variables |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "true",
            "OPENCODE_DISABLE_MODELS_FETCH": "true",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "true",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "true",
        }
        options = {"baseURL": f"{computer.model.url}/v1", "apiKey": "dummy"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": options,
            "models": {"fake-model": {"name": "Fake"}},
        }
        settings = {
            "model": "fake/fake-model",
            "small_model": "fake/fake-model",
            "provider": {"fake": provider},
            "autoupdate": False,
            "share": "disabled",
            "permission": {"*": "allow"},
            "mcp": {"clia": {"type": "local", "command": ["clia", "mcp"]}},
        }
        computer.write(".config/opencode/opencode.json", json.dumps(settings))
        for folder in (computer.home / ".config/opencode", computer.root / ".opencode"):
            self._provide_plugin_types(computer, folder)

    def start_once(self, computer: Computer) -> None:
        succeeded(computer.run([self.program, "session", "list"]))

    def _provide_plugin_types(self, computer: Computer, folder: Path) -> None:
        """A stand-in for the package with types that it would fetch for each folder with plug-ins, and wait a minute for."""
        version = json.loads((computer.packages / "current/package.json").read_text())["dependencies"]["opencode-ai"]
        name, wanted = "@opencode-ai/plugin", {"dependencies": {"@opencode-ai/plugin": version}}
        package = folder / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"name": name, "version": version}))
        (folder / "package.json").write_text(json.dumps(wanted))
        locked = {"": wanted, f"node_modules/{name}": {"version": version}}
        (folder / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": locked}))
        (folder / ".gitignore").write_text("node_modules\npackage.json\npackage-lock.json\n.gitignore\n")

    def words(self, prompt: str) -> list[str]:
        return [self.program, "run", *prompt.split()]

    def screen_words(self) -> list[str]:
        return [self.program]

    def resumed(self, prompt: str) -> list[str]:
        return [self.program, "run", "--continue", *prompt.split()]

    def write(self, computer: Computer, name: str, text: str) -> ToolCall:
        return ToolCall("write", {"filePath": str(computer.root / name), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("bash", {"command": command, "description": "Run"})

    def agent(self, prompt: str) -> ToolCall:
        """The model's call that starts a sub-agent."""
        return ToolCall("task", {"description": "Help", "prompt": prompt, "subagent_type": "general"})

    def server(self, tool: str, **arguments: Any) -> ToolCall:
        return ToolCall(f"clia_{tool}", arguments)


CLAUDE_CODE, CLAUDE_CODE_OLD = ClaudeCode(), ClaudeCode("claude-older", ["raw.githubusercontent.com"])
CODEX, CODEX_OLD = Codex(), Codex("codex-older")
GEMINI = Gemini()
COPILOT, QWEN, OPENCODE = Copilot(), Qwen(), OpenCode(asks=["registry."])
TOOLS = (CLAUDE_CODE, CODEX, GEMINI, COPILOT, QWEN, OPENCODE)
