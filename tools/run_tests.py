"""``make test``, ``make soak`` and ``make coverage``: install what the tests need, then run them.

``--coverage`` runs the tests of the library (not those of the forge, the documentation and the installed program), and fails
below the bar of branch coverage.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
COVERAGE_BAR = 95
COVERED_BY = ("tests/unit", "tests/conformance", "tests/property", "tests/fault", "tests/compat")
MEMORY = Path("/dev/shm")  # noqa: S108  # directories in it get unpredictable names
MEMORY_NEEDED = 3 * 2**30
"""Bytes that the directories of all tests need; those of a soak need more and stay on the disk."""


def main(words: list[str]) -> int:
    os.chdir(ROOT)
    if not shutil.which("git"):
        print("tests: git is required", file=sys.stderr)
        return 1
    if subprocess.run([ROOT / "tools" / "test_services.sh"], check=False).returncode:
        return 1
    environment = dict(os.environ)
    # Without bytecode files each worker compiles all tests, and each process that a test starts compiles clia.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src"], env=environment, check=False)
    compile_tests(environment)
    if "--coverage" in words:
        return run_coverage([word for word in words if word != "--coverage"], environment)
    return run_pytest(words, environment)


def compile_tests(environment: dict[str, str]) -> None:
    """Let pytest compile the tests of a new checkout in two processes; otherwise each worker compiles all of them."""
    tests = ROOT / "tests"
    compiled = {path.name.partition(".")[0] for path in tests.rglob("__pycache__/*-pytest-*.pyc")}
    modules = {path.stem for path in tests.rglob("test_*.py")}
    if 2 * len(modules & compiled) > len(modules):
        return
    folders = {path.name for path in tests.iterdir() if any(path.glob("test_*.py"))}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    halves = (["tests/unit"], sorted(f"tests/{name}" for name in folders))
    running = [subprocess.Popen([*collect, *half], env=environment, stdout=subprocess.DEVNULL) for half in halves]
    for process in running:
        process.wait()


def run_coverage(words: list[str], environment: dict[str, str]) -> int:
    for path in ROOT.glob(".coverage*"):
        path.unlink(missing_ok=True)
    measured = {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}
    failed = run_pytest([*words, *COVERED_BY], environment | measured)
    if failed:
        return failed
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    report = [*coverage, "report", "--skip-covered", f"--fail-under={COVERAGE_BAR}"]
    return subprocess.run(report, check=False).returncode


def run_pytest(words: list[str], environment: dict[str, str]) -> int:
    """Run all tests on all cores. They create and remove many small files, which is twice as fast in memory as on a disk."""
    in_memory = (
        MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED and "--soak" not in words
    )
    workers = (os.cpu_count() or 1) + 2  # many tests wait for a disk or for a killed process
    directory = MEMORY if in_memory else None
    with TemporaryDirectory(prefix="clia-tests-", dir=directory, ignore_cleanup_errors=True) as base:
        command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-q", f"--basetemp={base}/run"]
        return subprocess.run([*command, *words], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
