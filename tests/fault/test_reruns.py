"""Every verb, killed after each rename, link and unlink: a second call with the same arguments succeeds, and does nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.crashes import apart
from support.fuzzer.traced import is_possible
from support.reruns import VERBS, kill_at_each_name, make_template

if TYPE_CHECKING:
    from pathlib import Path

FEW = 3
"""Kills of each verb; a soak kills after every change."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not apart(is_possible):
        pytest.skip("processes cannot be traced here")
    home = str(tmp_path_factory.mktemp("template") / "home")
    apart(make_template, home)
    return home


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_was_killed_can_be_called_again(template: str, tmp_path: Path, name: str, soak: bool) -> None:
    assert apart(kill_at_each_name, template, str(tmp_path), name, None if soak else FEW) > 0
