"""Whether the process of a tool, which its hooks report, still runs.

A process is named by its id, its start time, and the namespace of its id. Of a process in another namespace, such as that of a
container, and where the kernel does not tell, nothing is known: it counts as running.
"""

from __future__ import annotations

import os

_STATE, _START = 0, 19  # fields of /proc/PID/stat after the name


def has_ended(process: str) -> bool:
    """Whether a process has certainly ended."""
    parts = process.split(" ")
    try:
        if len(parts) != 3 or not parts[0].isdecimal() or os.readlink("/proc/self/ns/pid") != parts[2]:
            return False
    except OSError:
        return False
    try:
        with open(f"/proc/{parts[0]}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return len(fields) > _START and (fields[_START] != parts[1] or fields[_STATE] in ("Z", "X"))
