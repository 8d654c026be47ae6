"""``clia hook install`` and ``uninstall``, the findings of doctor about hooks, and the plug-in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import skills_ref  # type: ignore[import-untyped]  # it has no types

import clia as library
from clia.capture.installation.hook_tools import TOOLS
from support import git, program
from support import installed as clia
from support.hook_desk import GUARD
from support.terminal import Terminal

if TYPE_CHECKING:
    from support import Tree

ROOT = Path(__file__).resolve().parents[2]
QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))


def test_from_install_to_an_event_that_arrives(tree: Tree) -> None:
    """Runs the installed command as a tool does; doctor first reports that no event arrived, then the time of the last one."""
    root = tree.directory("w")
    git("init", "-q", cwd=root)
    library.init(root, settings=QUICK).close()
    path = os.pathsep.join([os.path.dirname(program()), os.environ["PATH"]])
    env = {"HOME": str(tree.directory("home")), "PATH": path, "COLUMNS": "300", "CLIA_HOOK_INGEST": "off"}
    unconfirmed = clia("hook", "install", "claude-code", cwd=root, env=env)
    assert (unconfirmed.code, "not-confirmed" in unconfirmed.err) == (1, True)
    assert f'+            "command": "{GUARD}clia hook claude-code",' in unconfirmed.out.splitlines()
    assert not (root / ".claude").exists()
    preview = clia("hook", "install", "claude-code", "--json", cwd=root, env=env)
    assert (preview.code, preview.json()["written"], preview.json()["changes"][0]["change"]) == (1, False, "create")
    assert not (root / ".claude").exists()

    installed = clia("hook", "install", "claude-code", "--yes", cwd=root, env=env)
    assert (installed.code, installed.out.splitlines()[-1]) == (0, "created: .claude/settings.json")
    repeated = clia("hook", "install", cwd=root, env=env)  # detected by its folder; no confirmation needed
    assert (repeated.code, repeated.out) == (0, "already installed: Claude Code\n")

    waits = clia("doctor", cwd=root, env=env)
    assert (waits.code, "nothing-arrived" in waits.out) == (0, True)
    settings = json.loads((root / ".claude/settings.json").read_text())
    command = settings["hooks"]["Stop"][0]["hooks"][0]["command"]
    event = json.dumps({"session_id": "s", "hook_event_name": "Stop", "cwd": str(root), "transcript_path": "/none"})
    subprocess.run(["sh", "-c", command], input=event, text=True, cwd=root, env=os.environ | env, check=True)
    healthy = clia("doctor", cwd=root, env=env)
    assert (healthy.code, "nothing-arrived" in healthy.out, "last event 20" in healthy.out) == (0, False, True)
    off_path = clia("doctor", "--json", cwd=root, env={**env, "PATH": os.defpath})
    assert (off_path.code, [finding["code"] for finding in off_path.json()["hooks"]["findings"]]) == (1, ["clia-not-on-path"])

    removed = clia("hook", "uninstall", "--yes", cwd=root, env=env)
    assert (removed.code, removed.out.splitlines()[-1]) == (0, "removed: .claude/settings.json")
    assert not (root / ".claude").exists()


def test_the_first_start_of_an_installed_server_has_its_answers(tree: Tree) -> None:
    root, home = tree.directory("w"), tree.directory("home")
    git("init", "-q", cwd=root)
    library.init(root, settings=QUICK).close()
    env, answers = {"HOME": str(home), "XDG_STATE_HOME": ""}, home / ".local/state/clia/mcp-answers"
    assert clia("hook", "install", "claude-code", "--mcp", "--dry-run", cwd=root, env=env).code == 0
    assert not answers.exists()
    assert clia("hook", "install", "claude-code", "--mcp", "--yes", cwd=root, env=env).code == 0
    assert any(b'"request_decision"' in path.read_bytes() for path in answers.iterdir())


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_install_shows_the_change_and_asks(tree: Tree, answer: str, code: int) -> None:
    root = tree.repository("w")
    with Terminal(root, "hook", "install", "gemini") as terminal:
        assert f'"command": "{GUARD}clia hook gemini"' in terminal.sees("[y/N]")
        terminal.types(answer)
        assert terminal.ends() == code
    assert (root / ".gemini/settings.json").exists() == (code == 0)


def test_impossible_installations_are_refused_with_a_message(tree: Tree) -> None:
    root = tree.repository("w")
    env = {"HOME": str(tree.directory("home")), "PATH": os.defpath}
    settings = tree.write("w/.claude/settings.json", '{\n  // mine\n  "hooks": {}\n}\n')
    before = tree.snapshot()
    for arguments, message in (
        (("install",), f"error: invalid-json: {settings}: not JSON"),
        (("install", "codx"), "error: unknown-tool"),
        (("install", "codex", "--scope", "local"), "error: no-such-scope"),
        (("uninstall", "--path", str(tree.root)), "error: no-such-repository"),
    ):
        ran = clia("hook", *arguments, "--yes", cwd=root, env=env)
        assert (ran.code, ran.out, message in ran.err) == (2, "", True), ran
    assert tree.snapshot() == before
    tree.directory("bare-home")
    none = clia("hook", "install", cwd=tree.repository("other"), env={**env, "HOME": tree.path("bare-home")})
    assert (none.code, "no-tool-found" in none.err, "claude-code (Claude Code)" in none.err) == (2, True, True)


def test_the_plug_in_is_reproducible_and_has_the_hooks_of_install(tree: Tree) -> None:
    from clia.mcp.server import TOOLS as SERVED  # takes a second to import, and only this test needs it

    trees = []
    build = [sys.executable, str(ROOT / "tools/plugin.py")]
    for seed in ("1", "2"):
        variables = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([*build, tree.path(f"build-{seed}")], env=variables, check=True, capture_output=True)
        top = tree.root / f"build-{seed}"
        trees.append({str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()})
    first = trees[0]
    assert trees[1] == first
    (plugin,) = json.loads(first[".claude-plugin/marketplace.json"])["plugins"]
    manifest = json.loads(first[f"{plugin['source'].removeprefix('./')}/.claude-plugin/plugin.json"])
    assert (manifest["name"], manifest["version"]) == (plugin["name"], library.__version__)
    assert json.loads(first["clia/hooks/hooks.json"])["hooks"] == TOOLS["claude-code"].hooks(f"{GUARD}clia hook claude-code")
    assert json.loads(first["clia/.mcp.json"])["mcpServers"]["clia"]["args"] == ["mcp"]
    assert skills_ref.validate(tree.root / "build-1/clia/skills/clia") == []
    rows = re.findall(r"^\| (`.*?) \|", first["clia/skills/clia/SKILL.md"].decode(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named
    assert named <= set(SERVED)
    existing = tree.directory("src/clia")
    refused = subprocess.run([*build, str(existing.parent)], check=False, capture_output=True, text=True)
    assert (refused.returncode, existing.is_dir()) == (1, True)
