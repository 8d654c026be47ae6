"""The action for CI: its steps, run as GitHub runs them, on a checkout of a change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.gate_pushes import POLICY, GateDesk

ACTION: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "action.yml").read_text("utf-8"))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> GateDesk:
    """A server without the hook: the action is the gate."""
    desk = GateDesk(tmp_path_factory.mktemp("action").resolve())
    (desk.bare / "hooks" / "pre-receive").unlink()
    assert "p/*" in POLICY
    return desk


def run_action(desk: GateDesk, directory: Path, head: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Check a commit out as ``actions/checkout`` does, and run the steps of the action."""
    desk.push(f"{head}:refs/heads/change", force=True)
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", desk.bare, directory], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach", head], cwd=directory, check=True)
    values = {name: str(field.get("default", "")) for name, field in ACTION["inputs"].items()} | inputs
    assert all(values.values()), values
    ran = subprocess.CompletedProcess([""], 0, "", "")
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        variables = {
            name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step.get("env", {}).items()
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"].replace("-m pip install", "-c pass")],
            cwd=directory,
            env={**os.environ, **variables, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            break
    return ran


def test_the_action_installs_this_package() -> None:
    installation = ACTION["runs"]["steps"][0]
    assert installation["run"] == 'python3 -m pip install --quiet "$VERSION"'
    assert ACTION["inputs"]["version"]["default"] == "clia-agents"


def test_a_good_change_passes_and_a_bad_one_fails_with_its_reason(tmp_path: Path, desk: GateDesk) -> None:
    good = desk.work_of(desk.base, {"src/app.py": "1\n"})
    passed = run_action(desk, tmp_path / "good", good, base=desk.base, branch="p/x")
    assert (passed.returncode, passed.stdout) == (0, f"{good[:12]} may be pushed to p/x\n"), passed.stderr
    bad = desk.work_of(desk.base, {"infra/main.tf": "two\n"})
    failed = run_action(desk, tmp_path / "bad", bad, base=desk.base, branch="p/x")
    assert failed.returncode == 1
    assert "clia gate: refs/heads/p/x: no-decision: infra/main.tf needs a person's decision" in failed.stdout
    decided = desk.decision(bad)
    assert run_action(desk, tmp_path / "decided", decided, base=desk.base, branch="p/x").returncode == 0


def test_the_action_fetches_what_the_evidence_needs(tmp_path: Path, desk: GateDesk) -> None:
    head = desk.work_of(desk.base, {"core/a.py": "a = 2\n"})
    landing = desk.squash(head, desk.base)
    failed = run_action(desk, tmp_path / "hidden", landing, base=desk.base, branch="p/x")
    assert "hidden-commits" in failed.stdout
    desk.push(f"{head}:refs/heads/agents/scout", f"{desk.trace(head)}:refs/notes/clia/trace/scout", force=True)
    passed = run_action(desk, tmp_path / "kept", landing, base=desk.base, branch="p/x")
    assert passed.returncode == 0, passed.stdout
