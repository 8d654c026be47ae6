"""Processes that are killed while agents move to the archive repository, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.archive_crashes import ACTIONS, crash_everywhere, put_away_and_back_beside_a_stopped_pack, write_while_put_away
from support.crashes import apart
from support.fuzzer.traced import is_possible
from support.space_crashes import make_template

if TYPE_CHECKING:
    from pathlib import Path

STEPS = {
    "put away": {"bases-kept", "pack-marked", "objects-kept", "refs-archived", "refs-put-away"},
    "commit": {"refs-brought-back", "ref-locked"},
    "bring all back": {"refs-brought-back", "ref-locked"},
    "join packs": {"pack-marked", "packs-joined"},
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("template")
    apart(make_template, str(home))
    return str(home)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_crash_at_any_step_loses_nothing_and_the_next_run_finishes(template: str, tmp_path: Path, action: str) -> None:
    assert set(apart(crash_everywhere, template, str(tmp_path), action)) >= STEPS[action]


def test_agents_commit_while_they_are_put_away(template: str, tmp_path: Path) -> None:
    apart(write_while_put_away, template, str(tmp_path))


@pytest.mark.skipif(not is_possible(), reason="this kernel does not let processes be traced")
def test_an_agent_that_returns_while_git_packs_refs_keeps_its_refs(template: str, tmp_path: Path) -> None:
    assert apart(put_away_and_back_beside_a_stopped_pack, template, str(tmp_path)) > 5
