"""What surrounds a space: its disk, its store and its hub."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import psycopg

from clia.errors import Conflict
from clia.testing import components
from support.disks import fill
from support.fuzzer.place import be_impatient
from support.swapped_stores import StoreFiles, lose_tables

if TYPE_CHECKING:
    from random import Random
    from types import TracebackType

    from support.fuzzer.place import Place
    from support.own_postgres import Server

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
"""What happens to a store, and how often: a backup is made, put back; the store or its journal is lost."""


class StoreState(NamedTuple):
    """What only the store has."""

    changes: int | None  # that this machine has acknowledged; None: there is no store
    pending: tuple[str, ...]  # texts of pending trace entries


def state_of_store(place: Place) -> StoreState:
    """Read the store; for a process of its own."""
    be_impatient(place)
    try:
        space = place.open()
    except Conflict as err:
        if err.code != "other-store":  # of a store that machines share: it is empty
            raise
        return StoreState(None, ())
    with space:
        row = components(space).core.store.epoch_row()
        pending = [entry["text"] for name in space.agents() for entry in space.trace_pending(name)]
        pending += [entry["text"] for name in space.agents(archived=True) for entry in space.trace_pending(name)]
        return StoreState(None if row is None else row.number, tuple(pending))


def damage_store(place: Place, how: str, server: Server | None) -> bool:
    """Make a backup of a store, or damage it, while no process uses it; False if this store cannot be damaged so."""
    return _damage_files(place, how) if server is None else _damage_server(place, how, server)


def _damage_files(place: Place, how: str) -> bool:
    files, copy = StoreFiles(place.root / ".git/clia"), place.beside("store-copy")
    if how == COPY:
        files.save(copy)
    elif how == LOSE:
        files.lose()
    elif how == LOSE_JOURNAL:
        files.lose_journal()
    elif not copy.exists():
        return False
    else:
        files.put_back(copy)
    return True


def _damage_server(place: Place, how: str, server: Server) -> bool:
    """The journal of a server is not lost alone: instead it is killed, and recovers when it starts again."""
    copy = f"copy-{os.path.basename(place.top)}"
    if how == COPY:
        server.save(copy)
    elif how == LOSE:
        assert place.store is not None
        lose_tables(place.store)
    elif how == LOSE_JOURNAL:
        server.stop("immediate")
        server.start()
    elif not os.path.exists(f"{server.directory}/{copy}"):
        return False
    else:
        server.put_back(copy)
    return True


def new_schema(server: Server, name: str) -> str:
    """Create a schema for a history; return the address of a store in it.

    The server acknowledges a commit when it is written: what it loses when it is killed is not its fault.
    """
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("ALTER ROLE clia SET synchronous_commit = on")
        admin.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())
        admin.execute(f'CREATE SCHEMA "{name}"'.encode())
    return f"{server.url}&options=-c%20search_path%3D{name}"


def clean_up(server: Server, name: str) -> None:
    """Remove the schema and the copies of a history."""
    for copy in Path(server.directory).glob("copy-*"):
        shutil.rmtree(copy)
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())


LOCK, LOCK_ALL, AWAY = "lock", "lock all", "away"
HUB_FAULTS = {LOCK: 3, LOCK_ALL: 2, AWAY: 4, COPY: 2, SWAP: 1}
"""What happens to a hub, and how often: a killed push leaves the lock of a ref or of all refs, the hub goes away or comes back, a
backup of it is made or put back."""


class HubFaults:
    """Faults of a hub that is reached by its path."""

    def __init__(self, place: Place) -> None:
        self._hub = place.hub
        self._away = place.hub.with_suffix(".away")
        self._copy = place.hub.with_suffix(".copy")

    def damage(self, how: str, order: Random) -> str:
        """Damage the hub; say what was done."""
        if how == AWAY:
            return "back" if self.bring_back() else self._take_away()
        if self._away.exists():
            return "it is away"
        if how in (LOCK, LOCK_ALL):
            return self._lock(how, order)
        return self._swap(how)

    def bring_back(self) -> bool:
        """Let a hub that is away be reachable again; False if it is reachable."""
        if not self._away.exists():
            return False
        self._away.rename(self._hub)
        return True

    def _take_away(self) -> str:
        self._hub.rename(self._away)
        return "away"

    def _lock(self, how: str, order: Random) -> str:
        heads = sorted(path.name for path in self._hub.glob("refs/heads/agents/*") if path.suffix != ".lock")
        name = "packed-refs" if how == LOCK_ALL or not heads else f"refs/heads/agents/{order.choice(heads)}"
        (self._hub / f"{name}.lock").touch()
        return f"{name}.lock"

    def _swap(self, how: str) -> str:
        source, to = (self._hub, self._copy) if how == COPY else (self._copy, self._hub)
        if not source.exists():
            return "there is no copy"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(source, to, symlinks=True)
        return how
