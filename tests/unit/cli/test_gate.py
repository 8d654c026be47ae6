"""Commands of the gate."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from clia.cli.main import main
from support.gate_pushes import RULE, SCOUT, GateDesk, identity

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> GateDesk:
    return GateDesk(tmp_path_factory.mktemp("gate").resolve())


def test_the_hook_is_installed_and_refuses(tmp_path: Path, desk: GateDesk, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", desk.bare, bare], check=True)
    assert main(["gate", "install", str(bare)]) == 0
    hook = bare / "hooks" / "pre-receive"
    assert capsys.readouterr().out == f"installed {hook}\n"
    assert os.access(hook, os.X_OK)
    bad = desk.work_of(desk.base, {SCOUT: identity("scout")})
    desk.run("update-ref", "refs/heads/bad", bad)
    pushed = desk.run("push", str(bare), f"{bad}:refs/heads/p/x")
    assert pushed.code != 0
    assert RULE in pushed.text
    assert main(["gate", "install", str(bare), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"hook": str(hook), "replaced": True, "protected": "main", "exists": True}


def test_a_missing_default_branch_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=trunk", tmp_path / "bare.git"], check=True)
    assert main(["gate", "install", str(tmp_path / "bare.git")]) == 0
    assert "HEAD of the repository names trunk, which does not exist yet" in " ".join(capsys.readouterr().err.split())


def test_another_hook_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "bare.git"], check=True)
    hook = tmp_path / "bare.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 0\n")
    assert main(["gate", "install", str(tmp_path / "bare.git")]) == 1
    assert "-m clia.gate.hook" in capsys.readouterr().err
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize("place", ["missing", "plain"])
def test_the_hook_needs_a_repository(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain").mkdir()
    assert main(["gate", "install", str(tmp_path / place)]) == 2
    assert "no-such-repository" in capsys.readouterr().err


def test_an_agent_does_not_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLIA_AGENT", "scout")
    assert main(["gate", "install", str(tmp_path)]) == 1
    assert "person-needed" in capsys.readouterr().err


def test_a_range_is_checked(desk: GateDesk, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = desk.work_of(desk.base, {SCOUT: identity("scout")}), desk.work_of(desk.base, {"src/app.py": "1\n"})
    where = ["--path", str(desk.work), "--onto", "p/x"]
    assert main(["gate", "check", f"{desk.base}..{good}", *where]) == 0
    assert capsys.readouterr().out == f"{good[:12]} may be pushed to p/x\n"
    assert main(["gate", "check", f"{desk.base}..{bad}", *where]) == 1
    assert "clia gate: refs/heads/p/x: guardrail-loss: guardrails are lost" in capsys.readouterr().out
    assert main(["gate", "check", f"{good}...{bad}", *where, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["base"], result["head"]) == (desk.base, bad)
    assert [refusal["rule"] for refusal in result["refusals"]] == ["guardrail-loss"]


@pytest.mark.parametrize(("words", "code"), [("main", "invalid-range"), ("nowhere..HEAD", "no-such-commit")])
def test_a_wrong_range_is_reported(desk: GateDesk, words: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "check", words, "--path", str(desk.work)]) == 2
    assert code in capsys.readouterr().err


def test_the_requirements_of_a_branch_are_explained(desk: GateDesk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "explain", "--path", str(desk.bare)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "infra/**: decision  (.clia/gate.toml)" in lines
    assert any(line.startswith("deploy/**: decision and tests  (the guardrail") for line in lines)
    assert any(line.startswith("frozen/**: never change  (the guardrail") for line in lines)
    assert lines[-1] == "people who approve: ada@example.org, Bob"
