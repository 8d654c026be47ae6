"""The installed versions of tools."""

from __future__ import annotations

import re
import shutil
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Version = tuple[int, ...]

_VERSION = re.compile(r"(?<![\d.])(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_SECONDS = 10


def installed_version(program: str, environment: Mapping[str, str]) -> Version | None:
    """What ``PROGRAM --version`` prints; None if the program is missing, fails or prints no version."""
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    try:
        result = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, env=dict(environment), check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(result.stdout.decode("utf-8", "replace"))
    return None if match is None else tuple(map(int, match.groups()))


def spelled(version: Version) -> str:
    return ".".join(map(str, version))
