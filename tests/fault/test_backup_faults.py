"""Backups: processes that are killed, full disks, and many processes at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.facade import backup as backup_module
from clia.facade import restore as restore_module
from support.backup_crashes import back_up_under_load, crash_backups, crash_restores, fill_disks, prepare
from support.crashes import apart
from support.session_driver import postgres_or_fail
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("backed-up")
    apart(prepare, str(place))
    return str(place)


def test_a_backup_killed_at_any_step_leaves_none(home: str, tmp_path: Path) -> None:
    assert set(apart(crash_backups, home, str(tmp_path))) >= set(backup_module.STEPS)


@pytest.mark.parametrize("replace", [False, True])
def test_a_restore_killed_at_any_step_can_be_repeated(home: str, tmp_path: Path, replace: bool) -> None:
    steps = set(apart(crash_restores, home, str(tmp_path), replace))
    assert steps >= {*restore_module.STEPS, *(restore_module.EXCHANGE_STEPS if replace else ())}


def test_a_full_disk_is_named_and_leaves_nothing(home: str, tmp_path: Path) -> None:
    for message in apart(fill_disks, home, str(tmp_path)):
        assert "File too large" in message or "full" in message or "I/O error" in message, message


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_backup_under_load_has_what_was_acknowledged(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    soak = request.config.getoption("--soak")
    address = postgres_url(postgres_or_fail()) if store == "postgresql" else None
    apart(back_up_under_load, str(tmp_path), address, address, 16 if soak else 4, 10 if soak else 2)


def test_a_backup_of_one_store_is_restored_to_the_other(tmp_path: Path) -> None:
    address = postgres_url(postgres_or_fail())
    for name in ("up", "down"):
        (tmp_path / name).mkdir()
    apart(back_up_under_load, str(tmp_path / "up"), None, address, 2, 1)
    apart(back_up_under_load, str(tmp_path / "down"), address, None, 2, 1)
