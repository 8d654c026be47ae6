"""Installed tools: their versions, and whether they trust the hooks and the MCP server of a repository.

Invariant: read-only, and only what the tool saved about a person's answers counts. A missing file means that no person was asked
yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple

from clia.capture.installation.hook_tools import (
    LOCAL,
    PROJECT,
    SERVER,
    TOOLS,
    USER,
    home,
    read_toml,
    readable_settings,
    runs_server,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.capture.installation.hook_tools import HookTool, Version

_VERSION = re.compile(r"(?<![\d.])(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_SECONDS = 10


def installed_version(program: str, environment: Mapping[str, str]) -> Version | None:
    """What ``PROGRAM --version`` prints; None if the program is missing, fails or prints no version."""
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    try:
        result = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, env=dict(environment), check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(result.stdout.decode("utf-8", "replace"))
    return None if match is None else tuple(map(int, match.groups()))


def spelled(version: Version) -> str:
    return ".".join(map(str, version))


class TrustProblem(NamedTuple):
    reason: str
    hint: str


def distrust(tool: HookTool, root: str, environment: Mapping[str, str]) -> TrustProblem | None:
    """Why a tool does not trust the hooks of a repository; None if its files do not record a reason."""
    match tool.name:
        case "claude-code":
            return _claude(root, environment)
        case "codex":
            return _codex(tool, root, environment)
        case "gemini":
            return _gemini(tool, root, environment)
    return None


def _claude_project(root: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """What Claude Code saved about a repository."""
    folder = environment.get("CLAUDE_CONFIG_DIR") or home(environment)
    projects = readable_settings(os.path.join(folder, ".claude.json")).get("projects")
    project = projects.get(root) if isinstance(projects, dict) else None
    return project if isinstance(project, dict) else {}


def _claude(root: str, environment: Mapping[str, str]) -> TrustProblem | None:
    if _claude_project(root, environment).get("hasTrustDialogAccepted") is not False:
        return None
    return TrustProblem("Claude Code was not told to trust this folder", "start claude here and choose: Yes, I trust this folder")


def _codex(tool: HookTool, root: str, environment: Mapping[str, str]) -> TrustProblem | None:
    config = read_toml(os.path.join(tool.user_folder(environment), "config.toml"))
    projects, hooks = config.get("projects"), config.get("hooks")
    project = projects.get(root) if isinstance(projects, dict) else None
    if isinstance(project, dict) and project.get("trust_level") == "untrusted":
        return TrustProblem("Codex does not trust this folder", "start codex here and choose: Yes, continue")
    states = hooks.get("state") if isinstance(hooks, dict) else None
    files = [path for scope in (PROJECT, USER) if (path := tool.file(scope, root, environment))]
    for key, state in states.items() if isinstance(states, dict) else ():
        if isinstance(state, dict) and state.get("enabled") is False and any(file in key for file in files):
            return TrustProblem("a hook of clia is disabled in Codex", "type /hooks in Codex and enable it")
    return None


def _gemini(tool: HookTool, root: str, environment: Mapping[str, str]) -> TrustProblem | None:
    rules = readable_settings(os.path.join(tool.user_folder(environment), "trustedFolders.json"))
    parts = root.split("/")
    for path in ("/".join(parts[:end]) or "/" for end in range(len(parts), 0, -1)):  # the nearest folder decides
        if rules.get(path) == "DO_NOT_TRUST":
            return TrustProblem(f"Gemini CLI does not trust {path}", "type /permissions in Gemini CLI and trust the folder")
        if path in rules:
            return None
    return None


def mcp_problem(root: str, environment: Mapping[str, str]) -> TrustProblem | None:
    """Why Claude Code does not start our MCP server of a repository's ``.mcp.json``; None if it does, or there is none."""
    servers = readable_settings(os.path.join(root, ".mcp.json")).get("mcpServers")
    if not isinstance(servers, dict) or not runs_server(servers.get(SERVER)):
        return None
    settings = list(_approvals(root, environment))
    if any(_lists(values, "disabledMcpjsonServers") for values in settings):
        return TrustProblem(
            "the MCP server clia of .mcp.json is disabled in Claude Code", "type /mcp in Claude Code and enable the server clia"
        )
    if any(values.get("enableAllProjectMcpServers") is True or _lists(values, "enabledMcpjsonServers") for values in settings):
        return None
    return TrustProblem(
        "the MCP server clia of .mcp.json is not approved in Claude Code",
        "start claude here and choose: Use this MCP server; or put "
        '"enabledMcpjsonServers": ["clia"] into .claude/settings.local.json',
    )


def _approvals(root: str, environment: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    yield _claude_project(root, environment)
    for scope in (LOCAL, PROJECT, USER):
        path = TOOLS["claude-code"].file(scope, root, environment)
        if path is not None:
            yield readable_settings(path)


def _lists(values: Mapping[str, Any], key: str) -> bool:
    names = values.get(key)
    return isinstance(names, list) and SERVER in names
