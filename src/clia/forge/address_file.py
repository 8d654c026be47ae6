"""The address of the forge that serves a space, for other programs on the same machine.

Invariant: the file names the process; an address of a dead process is ignored.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from clia.store import private_files


def _file(home: str) -> str:
    return os.path.join(home, "forge.json")


def mark(home: str, address: str, peers: str | None = None) -> None:
    """Record that this process serves the space, and where peers reach it; ignored in a read-only directory."""
    path = _file(home)
    with suppress(OSError):
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8", opener=private_files.open_file) as file:
            json.dump({"address": address, "peers": peers, "pid": os.getpid()}, file)
        os.replace(draft, path)


def unmark(home: str) -> None:
    with suppress(OSError):
        if _read(home)[1] == os.getpid():
            os.unlink(_file(home))


def address_of(home: str) -> str | None:
    """Return where the space is served on this machine; None if it is not."""
    address, pid = _read(home)
    return address if pid and _is_alive(pid) else None


def peer_address(home: str) -> str | None:
    """Return where peers reach the forge of a space's directory; None if none serves it."""
    address, pid = _entry(_file(home), "peers")
    return address if pid and _is_alive(pid) else None


def _read(home: str) -> tuple[str | None, int]:
    return _entry(_file(home), "address")


def _entry(path: str, field: str) -> tuple[str | None, int]:
    try:
        with open(path, encoding="utf-8") as file:
            entry = json.load(file)
        address, pid = entry[field], entry["pid"]
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
