"""The environment of a run: versions and counts, nothing that identifies a machine, a person or a path."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PEERS = ("langgraph", "dbos", "absurd-sdk")


def facts() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
        "git": _version(["git", "--version"]),
        "libgit2": _libgit2(),
        "SQLite": sqlite3.sqlite_version,
        "PostgreSQL": _postgres(),
        **{name: _package(name) for name in PEERS},
    }


def _processor() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.machine()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(words: list[str]) -> str:
    try:
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "none"
    match = re.search(r"\d+(?:\.\d+)+", output)
    return match[0] if match else "unknown"


def _libgit2() -> str:
    import pygit2

    return str(pygit2.LIBGIT2_VERSION)


def _postgres() -> str:
    """The version of the PostgreSQL server that tests and benchmarks start."""
    tests = str(Path(__file__).resolve().parent.parent / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from support import postgres

    try:
        return _version([str(postgres.binaries() / "postgres"), "--version"])
    except postgres.NoPostgres:
        return "none"


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
