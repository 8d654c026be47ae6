"""`verify` finds nothing in random histories that are clean (``support.clean_histories``), in place and in clones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clean_histories import STEPS_OF_HISTORIES, play_histories

if TYPE_CHECKING:
    from pathlib import Path

SHARDS, HISTORIES, SOAK_HISTORIES = 3, 15, 1000
_RARE = 4
"""Kinds of steps that few histories may never have done."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_verify_finds_nothing_in_clean_histories(shard: int, soak: bool, tmp_path: Path) -> None:
    count = (SOAK_HISTORIES if soak else HISTORIES) // SHARDS + 1
    played = play_histories(tmp_path.resolve(), range(shard * count, (shard + 1) * count))
    assert not played.findings, "\n".join(played.findings[:5])
    assert len(STEPS_OF_HISTORIES.keys() - played.done.keys()) <= (0 if soak else _RARE), played.done
