"""What is in the built wheel beside the code, and where it came from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDOR = "src/clia/forge/static/vendor"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel that is built where git's rules of what to ignore hold, as they do for a release."""
    work = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", work / "tree" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, work / "tree" / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work)]
    subprocess.run(build, cwd=work / "tree", check=True, capture_output=True)
    (built,) = work.glob("*.whl")
    with ZipFile(built) as wheel:
        return set(wheel.namelist())


def test_the_wheel_carries_htmx_and_its_licence_although_git_ignores_them(packed: set[str]) -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{VENDOR}/htmx.min.js"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert {"clia/forge/static/vendor/htmx.min.js", "clia/forge/static/vendor/htmx.LICENSE"} <= packed


def test_the_wheel_carries_every_file_of_the_forge(packed: set[str]) -> None:
    web = ROOT / "src" / "clia" / "web"
    files = {each.relative_to(web.parents[1]).as_posix() for each in web.rglob("*") if each.is_file() and each.suffix != ".pyc"}
    assert files - packed == set()


def test_what_the_tests_and_npm_need_is_not_in_the_wheel(packed: set[str]) -> None:
    assert [name for name in packed if "axe" in Path(name).name or "node_modules" in name or name.endswith("package.json")] == []


def test_the_lock_pins_each_asset_by_its_digest_and_names_no_registry() -> None:
    text = (ROOT / "assets" / "package-lock.json").read_text(encoding="utf-8")
    packages = {name: each for name, each in json.loads(text)["packages"].items() if name}
    assert {"node_modules/htmx.org", "node_modules/axe-core"} <= set(packages)
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert "://" not in text


def test_assets_that_are_in_place_are_not_fetched_again(tmp_path: Path) -> None:
    """In a copy without node_modules a second fetch would have to make one."""
    for name in ("tools/assets.py", "assets/package.json", "assets/package-lock.json", "build/assets.stamp", "build/axe.min.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / VENDOR, tmp_path / VENDOR)
    ran = subprocess.run([sys.executable, "tools/assets.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (tmp_path / "assets" / "node_modules").exists()
