"""Upkeep in the background: a process of its own, started after some ref moves.

Invariant: a verb never waits for it, and at most one runs in a repository. Moves are counted by the length of a file, so that
short-lived processes count together.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from time import time

from clia.facade.opening import COUNT_FILE
from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DONE_FILE = "moves.done"
"""The modification time of this file is the time of the last upkeep."""
MANY_MOVES, SECONDS = 64 * 32, 30
"""Minimum seconds between two runs, unless very many refs moved."""
# The shell does not wait for the process, so it leaves no zombie in ours.
_SCRIPT = '"$@" </dev/null >/dev/null 2>&1 &'


def start_if_due(path: str, home: str, environment: Mapping[str, str], count: int) -> None:
    """Start the upkeep of a repository, unless it ran a moment ago. ``count``: the number of ref moves since the last upkeep."""
    if not sys.executable or (count % MANY_MOVES and _ran_recently(home)):
        return
    variables = {key: value for key, value in environment.items() if not key.startswith("GIT_")}
    words = ("sh", "-c", _SCRIPT, "sh", sys.executable, "-m", __name__, path)
    subprocess.run(words, env=variables, check=False, start_new_session=True)


def _ran_recently(home: str) -> bool:
    try:
        return abs(time() - os.stat(os.path.join(home, _DONE_FILE)).st_mtime) < SECONDS
    except FileNotFoundError:
        return False


def begin(home: str) -> None:
    """Start counting again."""
    with suppress(FileNotFoundError):
        os.truncate(os.path.join(home, COUNT_FILE), 0)
    with open(os.path.join(home, _DONE_FILE), "w", encoding="ascii", opener=private_files.open_file):
        pass


def run(path: str) -> None:
    """Do the upkeep that is due."""
    from clia.facade.opening import open_space

    with open_space(path) as space:
        space.local.upkeep()


if __name__ == "__main__":
    os.nice(5)
    run(sys.argv[1])
