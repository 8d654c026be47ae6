"""Small, full and read-only disks, restored after the test."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pygit2
import pytest
from pygit2.enums import ConfigLevel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 65534
BLOCK = 4096


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    directory.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "clia-test", str(directory)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here; the test with a limit on files stands in")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk except for some blocks."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(BLOCK)):
            pass
    os.truncate(filler, max(0, filler.stat().st_size - leave * BLOCK))
    return filler


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Limit the size of files that this process writes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def read_only(home: Path) -> Iterator[None]:
    """Make a directory tree read-only and owned by the user "nobody"."""
    modes = {path: path.stat().st_mode for path in (home, *home.rglob("*")) if not path.is_symlink()}
    for path, mode in modes.items():
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        path.chmod(mode & ~0o222 | 0o444)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
            if os.geteuid() == 0:
                os.chown(path, 0, 0)


def become_nobody() -> None:
    """Drop the rights of root, which ignore the permissions of files. For a process that the caller started."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.environ["HOME"] = os.devnull  # the user "nobody" cannot read root's configuration
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM):
        pygit2.settings.search_path[level] = os.devnull
