"""The pager for long output, by git's rules.

Only on a terminal, and only for commands that show what is recorded. ``CLIA_PAGER`` names the pager, else ``git var GIT_PAGER``
does (``GIT_PAGER``, ``core.pager``, ``PAGER``, ``less``); an empty text or ``cat`` means none. ``less`` gets ``FRX``: short output
is printed as it is, and colours and the screen stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from shutil import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NO_PAGER = "--no-pager"
PAGED = frozenset(
    (
        *("log", "show", "diff", "blame", "why", "authorship", "list", "changes", "tree", "graph", "relations", "remotes"),
        *("types", "help"),
        *("trace show", "trace pending", "trace history", "trace search", "flow list", "flow show"),
        *("behaviour list", "behaviour show", "behaviour diff", "behaviour lineage", "behaviour stats", "behaviour compare"),
        *("session list", "session show", "peer show", "cap list", "grant list", "key list", "gate explain"),
        *("agents profile", "agents plan", "agents work", "agents agency", "agents context", "agents explain", "agents list"),
        *("agents search", "agents schema", "agents stats", "agents rules", "agents lint", "agents doctor"),
    )
)
"""Commands whose output can be long. Others ask questions, keep running, or change something."""
_NONE = ("", "cat")
_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
_state = {"off": False}


def turn_off() -> None:
    """Print everything directly in this process (``--no-pager``)."""
    _state["off"] = True


def pager_of(environment: Mapping[str, str]) -> str:
    """The command line of the pager; empty for none."""
    chosen = environment.get("CLIA_PAGER")
    if chosen is None:
        with suppress(OSError):
            words = ("git", "var", "GIT_PAGER")
            chosen = subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stdout.strip()
    if chosen is None or chosen.strip() in _NONE:
        return ""
    return chosen if which(chosen.split()[0], path=environment.get("PATH")) or "=" in chosen.split()[0] else ""


@contextmanager
def paged(name: str) -> Iterator[None]:
    """Send what the block prints to the pager, if the command has one here."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    command = pager_of(os.environ) if is_terminal and name in PAGED and not _state["off"] else ""
    pager = _start(command) if command else None
    if pager is None or pager.stdin is None:
        yield
        return
    own, added = os.dup(1), _as_on_terminal()
    sys.stdout.flush()
    os.dup2(pager.stdin.fileno(), 1)
    pager.stdin.close()
    try:
        with suppress(BrokenPipeError):  # the reader has seen enough
            yield
            sys.stdout.flush()
    finally:
        _restore(own, added)
        _wait(pager)


def _start(command: str) -> subprocess.Popen[bytes] | None:
    """The pager, or None if it cannot be started."""
    environment = {**_DEFAULTS, **os.environ}
    try:
        return subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)  # noqa: S602  # as git does
    except OSError:
        return None


def _as_on_terminal() -> list[str]:
    """Keep colours and width although standard output is a pipe; returns the variables that were added."""
    size = os.get_terminal_size(1)
    wanted = {"COLUMNS": str(size.columns), "FORCE_COLOR": "1"}
    added = [key for key in wanted if key not in os.environ]
    os.environ |= {key: wanted[key] for key in added}
    return added


def _restore(own: int, added: list[str]) -> None:
    """Give the process its standard output back; what the pager did not read is discarded."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout.flush()
    os.dup2(own, 1)
    os.close(own)
    for key in added:
        os.environ.pop(key, None)


def _wait(pager: subprocess.Popen[bytes]) -> None:
    """Wait until the reader leaves the pager; Ctrl-C is for the pager."""
    while True:
        with suppress(KeyboardInterrupt):
            pager.wait()
            return
