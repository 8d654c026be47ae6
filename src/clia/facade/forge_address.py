"""The address of the forge that serves a space, for other programs on the same machine.

Invariant: the file names the process; an address of a dead process is ignored.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Served(Protocol):
        """A space, of which only the directory matters here."""

        @property
        def home(self) -> str: ...


def _file(space: Served) -> str:
    return os.path.join(space.home, "forge.json")


def mark(space: Served, address: str, peers: str | None = None) -> None:
    """Record that this process serves the space, and where peers reach it. A read-only space is served as well."""
    path = _file(space)
    with suppress(OSError):
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8", opener=private_files.open_file) as file:
            json.dump({"address": address, "peers": peers, "pid": os.getpid()}, file)
        os.replace(draft, path)


def unmark(space: Served) -> None:
    with suppress(OSError):
        if _read(space)[1] == os.getpid():
            os.unlink(_file(space))


def address_of(space: Served) -> str | None:
    """Return where the space is served on this machine; None if it is not."""
    address, pid = _read(space)
    return address if pid and _is_alive(pid) else None


def peer_address(home: str) -> str | None:
    """Return where peers reach the forge of a space's directory; None if none serves it."""
    address, pid = _said(os.path.join(home, "forge.json"), "peers")
    return address if pid and _is_alive(pid) else None


def _read(space: Served) -> tuple[str | None, int]:
    return _said(_file(space), "address")


def _said(path: str, what: str) -> tuple[str | None, int]:
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        address, pid = said[what], said["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0
    sound = isinstance(address, str) and address.startswith(("http://", "https://")) and isinstance(pid, int) and pid > 0
    return (address, pid) if sound else (None, 0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # owned by another account
    return True
