"""The table of tools: recognizing our hooks, and settings that disable hooks."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture.hook import TOOLS as SPOKEN
from clia.capture.installation import hook_tools
from clia.capture.installation.hook_tools import TOOLS, command_of, hook_in

if TYPE_CHECKING:
    from pathlib import Path

    from support.hook_desk import Desk


@pytest.mark.parametrize(
    ("command", "ours", "program"),
    [
        ("clia hook claude-code", True, "clia"),
        (command_of(TOOLS["codex"], "/opt/my tools/clia"), True, "/opt/my tools/clia"),
        ("command -v other >/dev/null 2>&1 || exit 0; clia hook codex", False, "clia"),
        ("true # clia hook claude-code", None, None),
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
def test_our_hooks_are_recognized_by_their_command(command: Any, ours: bool | None, program: str | None) -> None:
    hook = hook_in({"type": "command", "command": command})
    assert (hook and hook.ours, hook and hook.program) == (ours, program)
    assert hook_in({"type": "prompt", "command": "clia hook codex"}) is None
    assert hook_in({"type": "command", "command": "/x/clia", "args": ["hook", "claude-code"]}) is not None


def test_the_hook_settings_and_the_hook_know_the_same_tools() -> None:
    assert tuple(TOOLS) == SPOKEN


def test_a_nearer_settings_file_wins_and_managed_settings_always_apply(desk: Desk) -> None:
    desk.file("../home/.claude/settings.json", '{"disableAllHooks": true}')
    desk.file(".claude/settings.json", '{"disableAllHooks": false}')
    managed = desk.file("managed.json", '{"allowManagedHooksOnly": true}')
    tool = TOOLS["claude-code"]
    assert hook_tools.switched_off(tool, str(desk.root), desk.environment, ()) == []
    (off,) = hook_tools.switched_off(tool, str(desk.root), desk.environment, (str(managed), "/nowhere"))
    assert str(off) == f"{managed} says allowManagedHooksOnly: true"


def test_an_installed_hook_does_nothing_where_clia_is_missing(tmp_path: Path) -> None:
    for tool in TOOLS.values():
        for program in ("clia", str(tmp_path / "no such" / "clia")):
            done = subprocess.run(
                ["sh", "-c", command_of(tool, program)], env={"PATH": os.defpath}, capture_output=True, check=False, cwd=tmp_path
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
