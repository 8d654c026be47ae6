"""Run parts of a test as another Unix user, which only root can do."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import sys
import tempfile
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pygit2
import pytest
from pygit2.enums import ConfigLevel

import clia

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
FIRST, SECOND, GROUP, STRANGER = 54321, 54322, 54320, 54329
"""Users and a group without names."""


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that every user can enter; those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="clia-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


def give(path: Path, user: int, group: int) -> None:
    """Change the owner of a directory and everything in it."""
    for parent, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.lchown(os.path.join(parent, name), user, group)


def run_as(user: int, group: int, call: Callable[[], Any], groups: Sequence[int] = (), umask: int = 0o077) -> Any:
    """Call a function in a process of another user, and return its result. Its output and errors are shown here."""
    _import_all()
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:  # pragma: no cover  # the process of the other user
        os.close(reader)
        try:
            os.umask(umask)
            os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = os.path.devnull
            for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG):  # libgit2 has read the variables already
                pygit2.settings.search_path[level] = os.path.devnull
            os.setgroups(list(groups))
            os.setgid(group)
            os.setuid(user)
            answer: tuple[str, Any] = ("", call())
        except BaseException:  # noqa: BLE001  # raised again in the test
            answer = (traceback.format_exc(), None)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem, result = pickle.loads(pipe.read())  # noqa: S301  # our own child wrote it
    os.waitpid(child, 0)
    if problem:
        raise AssertionError(problem)
    return result


def _import_all() -> None:
    """Load every module of clia: the other user may not be able to read the interpreter's directory."""
    for module in pkgutil.walk_packages(clia.__path__, "clia."):
        with suppress(ImportError):
            importlib.import_module(module.name)
