"""What surrounds a space: its disk."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Self

from support.disks import fill

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SIZE = "96m"


class Disk:
    """A small disk of its own for a space, where one can be mounted; elsewhere it cannot be filled."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mounted = False
        self.filler: Path | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "clia-fuzz", str(self._directory)]
        self._mounted = not os.geteuid() and not subprocess.run(words, capture_output=True, check=False).returncode
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self._directory)], check=False)

    def fill(self, leave: int) -> str:
        """Fill the disk except for some blocks; say what was done."""
        if not self._mounted:
            return "no disk of its own"
        self.filler = fill(self._directory, leave)
        return f"{leave} blocks are free"

    def free(self) -> None:
        if self.filler is not None:
            self.filler.unlink(missing_ok=True)
            self.filler = None
