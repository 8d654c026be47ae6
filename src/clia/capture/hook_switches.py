"""Whether a tool runs hooks at all, as its settings say.

Invariant: only looks. Of several files that say it, the one decides that decides for the tool: what is nearer to the work.
"""

from __future__ import annotations

import os
import tomllib
from typing import NamedTuple

from clia.capture.hook_tools import LOCAL, PROJECT, SERVER, USER, hook_in, placed_in, runs_server
from clia.errors import CliaError
from clia.identities.files import LocalFiles
from clia.values import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.capture.hook_tools import Tool

MANAGED = ("/etc/claude-code/managed-settings.json", "/Library/Application Support/ClaudeCode/managed-settings.json")
"""Where whoever looks after a machine decides for Claude Code, on Linux and on macOS."""


class Off(NamedTuple):
    """What switches hooks off, and where it stands."""

    path: str
    setting: str

    def __str__(self) -> str:
        return f"{self.path} says {self.setting}"


def settings_in(path: str) -> dict[str, Any] | None:
    """What a settings file says; None where there is none. ``CliaError`` where it cannot be read."""
    data = LocalFiles().read(path, documents.MAX_BYTES)
    return None if data is None else documents.parse(data, path)


def installed_in(path: str) -> bool:
    """Whether a settings file has hooks that run clia; one that cannot be read has none."""
    return any(True for _ in placed_in(_tolerant(path)))


def codex_has_server(path: str) -> bool:
    """Whether a config.toml of Codex names our MCP server."""
    servers = _toml(path).get("mcp_servers")
    return isinstance(servers, dict) and runs_server(servers.get(SERVER))


def switched_off(tool: Tool, root: str | None, environment: Mapping[str, str], managed: tuple[str, ...] = MANAGED) -> list[Off]:
    """What keeps the tool from running hooks; empty: nothing that we know of."""
    found = {"claude-code": _claude, "codex": _codex, "gemini": _gemini}[tool.name]
    return [*found(tool, root, environment), *(_managed(managed) if tool.name == "claude-code" else ())]


def _claude(tool: Tool, root: str | None, environment: Mapping[str, str]) -> Iterator[Off]:
    for path, settings in _settings(tool, root, environment):
        if isinstance(settings.get("disableAllHooks"), bool):
            if settings["disableAllHooks"]:
                yield Off(path, "disableAllHooks: true")
            return


def _managed(paths: tuple[str, ...]) -> Iterator[Off]:
    for path in paths:
        settings = _tolerant(path)
        for key in ("disableAllHooks", "allowManagedHooksOnly"):
            if settings.get(key) is True:
                yield Off(path, f"{key}: true")


def _codex(tool: Tool, root: str | None, environment: Mapping[str, str]) -> Iterator[Off]:
    folders = [*([os.path.join(root, tool.folder)] if root else []), tool.user_folder(environment)]
    for path in (os.path.join(folder, "config.toml") for folder in folders):
        features = _toml(path).get("features")
        for key in ("hooks", "codex_hooks"):  # the second is its older name
            if isinstance(features, dict) and isinstance(features.get(key), bool):
                if not features[key]:
                    yield Off(path, f"[features] {key} = false")
                return


def _gemini(tool: Tool, root: str | None, environment: Mapping[str, str]) -> Iterator[Off]:
    decided = False
    for path, settings in _settings(tool, root, environment):
        switches = settings.get("hooksConfig")
        switches = switches if isinstance(switches, dict) else {}
        if isinstance(switches.get("enabled"), bool) and not decided:
            decided = True
            if not switches["enabled"]:
                yield Off(path, "hooksConfig.enabled: false")
        named = switches.get("disabled")  # lists of several files are joined
        for each in named if isinstance(named, list) else ():
            if each == SERVER or hook_in({"command": each}):
                yield Off(path, f"hooksConfig.disabled names {each}")


def _settings(tool: Tool, root: str | None, environment: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tool's files that can be read, nearest first."""
    for scope in (LOCAL, PROJECT, USER):
        path = tool.file(scope, root, environment)
        if path is not None:
            yield path, _tolerant(path)


def _tolerant(path: str) -> dict[str, Any]:
    try:
        return settings_in(path) or {}
    except CliaError:  # whoever must know that it cannot be read asks ``settings_in``
        return {}


def _toml(path: str) -> dict[str, Any]:
    try:
        data = LocalFiles().read(path, documents.MAX_BYTES)
        return {} if data is None else tomllib.loads(data.decode())
    except (CliaError, ValueError):
        return {}
