"""Files beside the package: containers, manual pages, hooks for CI."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clia.cli.command import configure
from clia.cli.main import load, new_parser
from clia.cli.registry import TREE, Command

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import man_pages  # noqa: E402  # a program of this repository


def test_the_services_of_the_compose_file_run_valid_commands() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"postgres", "setup", "forge", "worker"}
    commands = [services[name]["command"] for name in ("forge", "worker")]
    commands.append(services["setup"]["entrypoint"][2].partition("&& clia ")[2].split())
    for name, *words in commands:
        entry = TREE.commands[name]
        assert isinstance(entry, Command)
        parser = new_parser(f"clia {name}", "")
        configure(load(entry), parser)
        parser.parse_intermixed_args(words)


def test_the_image_installs_the_wheel_with_all_extras() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "clia_agents-*.whl)[all]" in lines
    assert "USER clia" in lines


@pytest.mark.parametrize("name", ["clia.1", "clia-land.1", "clia-trace-add.1"])
def test_manual_pages_are_valid(name: str, tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    page = tmp_path / name
    page.write_text(man_pages.pages()[name], encoding="utf-8")
    result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-k", str(page)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "clia manual" in result.stdout


def test_the_pages_that_ci_copies_name_the_distribution() -> None:
    for path in ("action.yml", "docs/how-to/check-in-ci.md", "docs/how-to/gate.md", "README.md"):
        assert "clia-agents" in (ROOT / path).read_text(encoding="utf-8")
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "pip install clia\n" in path.read_text(encoding="utf-8")]
    assert pages == []
