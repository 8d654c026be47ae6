"""``make test`` and ``make soak``: what the tests need, then all of them, then the coverage below ``app``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("triads/*", "space/*", "sessions/*", "capture/*", "ports/*", "kernel/*", "errors.py", "backends/*")
BELOW_APP = ",".join(f"src/clia/{each}" for each in LAYERS)
COVERAGE_BAR = 95


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
    environment = os.environ | measured if whole else os.environ
    workers = (os.cpu_count() or 1) + 1  # many tests wait for a disk or for a process that they killed
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-q", *words], env=environment, check=False
    ).returncode
    if tests or not whole:
        return tests
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    report = ["report", "--skip-covered", f"--include={BELOW_APP}", f"--fail-under={COVERAGE_BAR}"]
    return subprocess.run([*coverage, *report], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
