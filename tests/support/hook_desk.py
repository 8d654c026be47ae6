"""A desk for tests of hooks: a repository, a home directory and an installed ``clia``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.capture import spool as hook_spool
from clia.capture.installation import hook_health, hook_settings
from clia.capture.installation.hook_tools import TOOLS, CliaProgram

if TYPE_CHECKING:
    from pathlib import Path

    from clia.capture.installation.findings import HookFinding
    from clia.capture.installation.hook_health import HooksHealth


GUARD = "command -v clia >/dev/null 2>&1 || exit 0; "
"""What a hook's command starts with, so that it does nothing where clia is missing."""
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Desk(NamedTuple):
    """A repository, a home directory, and a ``clia`` program on PATH, with the verbs for hooks in settings files."""

    root: Path
    environment: dict[str, str]
    program: CliaProgram

    def plan(self, tool: str = "claude-code", scope: str = "project", *, mcp: bool = False) -> hook_settings.SettingsPlan:
        scope_target = hook_settings.target(scope, str(self.root), self.environment)
        return hook_settings.install([TOOLS[tool]], scope_target, self.program, mcp=mcp)

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

    def doctor(self, now: datetime = NOW, **more: Any) -> HooksHealth:
        return hook_health.examine(str(self.root), environment=self.environment, program=self.program, now=now, **more)

    def findings(self, **more: Any) -> dict[str, HookFinding]:
        return {finding.code: finding for finding in self.doctor(**more).findings}

    def put(self, tool: str, at: datetime) -> str:
        """Put an event into the spool as a hook does, at this time."""
        folder = self.root / ".git/clia/spool/new"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{int(at.timestamp() * 1e9):020d}-1-00000000"
        (folder / name).write_bytes(hook_spool.head(tool.encode(), os.fsencode(self.root)) + b"{}")
        return name
