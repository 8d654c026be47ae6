"""``make test-tools``: install the pinned coding tools, then run the tests that use them.

The packages are those of ``tests/tools/packages``. They are installed into a cache, ``$XDG_CACHE_HOME/clia/test-tools``, under the
digest of their locks. Package scripts are off. Where the packages cannot be installed, one line reports it and the exit code is 0;
``--require`` makes that an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import assets

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "tests" / "tools" / "packages"
# Program -> where a package has it. Some packages have a wrapper that only their install script completes.
PROGRAMS = {
    "claude": "current/node_modules/@anthropic-ai/claude-code-*/claude",
    "codex": "current/node_modules/.bin/codex",
    "gemini": "current/node_modules/.bin/gemini",
    "copilot": "current/node_modules/.bin/copilot",
    "qwen": "current/node_modules/.bin/qwen",
    "opencode": "current/node_modules/opencode-*/bin/opencode",
    "claude-older": "older/node_modules/.bin/claude",
    "codex-older": "older/node_modules/.bin/codex",
}
INSTALL_DEADLINE = 900


def main(words: list[str]) -> int:
    os.chdir(ROOT)
    required = "--require" in words
    try:
        folder = installed()
    except (OSError, subprocess.SubprocessError) as err:
        reason = getattr(err, "stderr", None) or err
        print(f"test-tools: skipped: the packages cannot be installed: {str(reason).strip().splitlines()[-1]}", file=sys.stderr)
        return int(required)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), "--dist", "worksteal", "tests/tools"]
    arguments = [word for word in words if word != "--require"]
    return subprocess.run([*command, *arguments], env=os.environ | {"CLIA_TEST_TOOLS": str(folder)}, check=False).returncode


def installed() -> Path:
    """The folder with the packages, installed now if they are not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clia" / "test-tools"
    files = sorted(PACKAGES.rglob("package*.json"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*files, Path(__file__)])).hexdigest()[:16]
    folder = cache / digest
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    print("test-tools: installing the packages", flush=True)
    # Complete or not there: an interrupted installation is repeated.
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as unfinished:
        place = Path(unfinished) / digest
        install(place)
        if not folder.is_dir():
            place.rename(folder)
    return folder


def install(place: Path) -> None:
    shutil.copytree(PACKAGES, place)
    npm = assets.npm_command()
    if not npm:
        raise FileNotFoundError("npm not found")
    node = Path(npm[0])
    (place / "node").mkdir()
    if len(npm) > 1:  # the node of the locked Python package
        (place / "node" / "node").symlink_to(node)
    environment = os.environ | {"PATH": f"{place / 'node'}{os.pathsep}{os.environ.get('PATH', '')}"}
    for packages in (place / "current", place / "older"):
        # Not `ci`: it refuses a lock without the packages of other platforms, and a registry may not have them.
        words = [*npm, "install", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(words, cwd=packages, env=environment, check=True, timeout=INSTALL_DEADLINE, capture_output=True, text=True)
    (place / "bin").mkdir()
    for name, pattern in PROGRAMS.items():
        # Several packages fit where a processor has several: the shortest name is the general one.
        program = min(place.glob(pattern), key=lambda path: len(str(path)), default=None)
        if program is None:
            raise FileNotFoundError(f"{pattern} is not among the packages")
        (place / "bin" / name).symlink_to(Path("..") / program.relative_to(place))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
