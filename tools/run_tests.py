"""``make test`` and ``make soak``: what the tests need, then all of them, then the coverage below ``app``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    "triads/*",
    "space/*",
    "sessions/*",
    "capture/*",
    "federation/*",
    "behaviours/*",
    "ports/*",
    "kernel/*",
    "errors.py",
    "backends/*",
)
BELOW_APP = ",".join(f"src/clia/{each}" for each in LAYERS)
COVERAGE_BAR = 95
MEMORY = Path("/dev/shm")  # noqa: S108  # what is made in it has a name that nobody can guess
ROOM = 3 * 2**30
"""Bytes that the directories of all tests have room in; those of a soak take more, and stay on the disk."""


def main(words: list[str]) -> int:
    os.chdir(ROOT)
    if not shutil.which("git"):
        print("tests: git is needed", file=sys.stderr)
        return 1
    if subprocess.run([ROOT / "tools" / "test_services.sh"], check=False).returncode:
        return 1
    whole = not [word for word in words if not word.startswith("-")]
    for old in ROOT.glob(".coverage*"):
        old.unlink(missing_ok=True)
    # The processes that run tests are measured, and not those that tests start: see tests/conftest.py.
    measured = {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}
    environment = {**os.environ, **(measured if whole else {})}
    # Else each worker compiles all the tests, and each process that a test starts what it loads of ours, every time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], env=environment, check=False)
    tests = run_pytest(words, environment)
    if tests or not whole:
        return tests
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    report = ["report", "--skip-covered", f"--include={BELOW_APP}", f"--fail-under={COVERAGE_BAR}"]
    return subprocess.run([*coverage, *report], check=False).returncode


def run_pytest(words: list[str], environment: dict[str, str]) -> int:
    """All tests, on all cores. They make and remove many small files, which is twice as quick in memory as on a disk."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM and "--soak" not in words
    workers = (os.cpu_count() or 1) + 2  # many tests wait for a disk or for a process that they killed
    with TemporaryDirectory(prefix="clia-tests-", dir=MEMORY if roomy else None, ignore_cleanup_errors=True) as directory:
        command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-q", f"--basetemp={directory}/run"]
        return subprocess.run([*command, *words], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
