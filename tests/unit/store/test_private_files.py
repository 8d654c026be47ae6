"""Files of a space are readable by their owner only, with any umask; files with wider permissions are restricted."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from clia.capture.spool import put, spool_of
from clia.facade.opening import open_space
from clia.facade.settings import Settings
from clia.facade.setup import init_space
from clia.forge.address_file import mark
from clia.store import private_files
from clia.store.private_files import FileLocks
from clia.store.sqlite_store import SqliteStore
from support.space_driver import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIDE_FILES = {"space.db", "space.db-wal", "space.db-shm", "space.db.lock"}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): mode(path) for path in (directory, *directory.rglob("*"))}


def open_to_others(directory: Path) -> dict[str, int]:
    return {name: bits for name, bits in modes(directory).items() if bits & 0o077}


def write_value(store: SqliteStore) -> None:
    with store.writing() as transaction:
        transaction.values.put("k", "v")


def test_the_files_of_an_sqlite_store_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "space.db"
    store = SqliteStore(str(path), "one")
    write_value(store)
    mode_of = {file.name: mode(file) for file in path.parent.iterdir()}
    assert mode_of == dict.fromkeys(SIDE_FILES, 0o600)
    assert {mode(path.parent), mode(path.parent.parent)} == {0o700}
    store.close()


def test_the_permissions_of_an_older_sqlite_store_are_restricted(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    keeper = SqliteStore(str(path), "one")
    write_value(keeper)
    for name in SIDE_FILES:
        (tmp_path / name).chmod(0o664)
    with SqliteStore(str(path), "one").reading() as view:
        assert view.values.get("k") == ("v", 1)
    assert {name: mode(tmp_path / name) for name in SIDE_FILES} == dict.fromkeys(SIDE_FILES, 0o600)
    keeper.close()


def test_locks_are_private(tmp_path: Path) -> None:
    with FileLocks(str(tmp_path / "locks")).hold("scout"):
        assert modes(tmp_path / "locks") == {".": 0o700, "scout": 0o600}


def test_all_files_of_a_new_space_are_private(tmp_path: Path) -> None:
    with init_space(tmp_path / "repo", settings=Settings()) as space:
        space.spawn("scout", BRIEFING)
        space.trace("scout", "note", "text")
        assert open_to_others(tmp_path / "repo/.git/clia") == {}


def test_keys_hook_events_and_the_address_of_the_forge_are_private(tmp_path: Path) -> None:
    with init_space(tmp_path / "repo", settings=Settings()) as space:
        space.peers.key()
        mark(space.home, "http://127.0.0.1:8337/s/repo")
        put([spool_of(os.fsencode(tmp_path / "repo" / ".git"))], [b"{}"])
    home = tmp_path / "repo/.git/clia"
    assert {name.partition("/")[0] for name in modes(home)} >= {"keys", "spool", "forge.json", "space.db"}
    assert open_to_others(home) == {}


def test_the_permissions_of_a_space_are_restricted_when_its_owner_opens_it(tmp_path: Path) -> None:
    home = tmp_path / "repo/.git/clia"
    with init_space(tmp_path / "repo", settings=Settings()) as space:
        space.spawn("scout", BRIEFING)
    (home / "config.toml").write_text("")
    (home / "work/scout").mkdir(parents=True)
    (home / "work/scout/run").write_text("#!/bin/sh\n")
    outside = tmp_path / "outside"
    outside.write_text("")
    (home / "link").symlink_to(outside)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.name == "run" else 0o644)
    open_space(tmp_path / "repo", settings=Settings()).close()
    assert open_to_others(home) == {"link": 0o644, "work/scout": 0o755, "work/scout/run": 0o755}, (
        "the file modes in a worktree belong to git"
    )
    assert mode(outside) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_a_file_of_another_user_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.touch(0o644)
    os.chown(path, 65534, 65534)
    private_files.tighten(str(path))
    assert mode(path) == 0o644


def test_permissions_are_never_added(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o444)
    private_files.tighten(str(path))
    assert mode(path) == 0o400
