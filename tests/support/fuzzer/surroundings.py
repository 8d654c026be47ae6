"""What surrounds a space: its disk and its store."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple, Self

from clia.testing import components
from support.disks import fill
from support.fuzzer.place import be_impatient

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from support.fuzzer.place import Place

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


COPY, SWAP, LOSE, LOSE_JOURNAL = "copy", "swap", "lose", "lose journal"
STORE_FAULTS = {COPY: 3, SWAP: 2, LOSE: 1, LOSE_JOURNAL: 1}
"""What happens to the files of a store, and how often: a backup is made, put back; the store or its journal is lost."""


class StoreState(NamedTuple):
    """What only the store has."""

    changes: int | None  # that it has acknowledged; None: there is no store
    pending: tuple[str, ...]  # texts of pending trace entries


def state_of_store(place: Place) -> StoreState:
    """Read the store; for a process of its own."""
    be_impatient()
    with place.open() as space:
        row = components(space).core.store.epoch_row()
        pending = [entry["text"] for name in space.agents() for entry in space.trace_pending(name)]
        pending += [entry["text"] for name in space.agents(archived=True) for entry in space.trace_pending(name)]
        return StoreState(None if row is None else row.number, tuple(pending))


def damage_store(place: Place, how: str) -> bool:
    """Make a backup of a store, or damage it, while no process uses it; False if there is no backup to put back."""
    home, copy = place.root / ".git/clia", place.root.parent / "store-copy"
    files = sorted(home.glob("space.db*"))
    if how == SWAP and not copy.exists():
        return False
    if how == COPY:
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in files:
            shutil.copy(file, copy)
        return True
    for file in files:
        if how != LOSE_JOURNAL or file.suffix != ".db":
            file.unlink()
    for file in copy.iterdir() if how == SWAP else ():
        shutil.copy(file, home)
    return True
