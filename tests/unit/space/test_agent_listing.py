"""Agents a page at a time: in the library, on the command line, over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import clia
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_states_come_in_pages_that_leave_none_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The library and the command line, by name; what waits in a trace is counted as in the whole list."""
    from clia.cli.main import main

    with clia.init(tmp_path, settings=settings()) as space:
        for name in ("a0", "a1", "a2", "b"):
            space.spawn(name, BRIEFING)
        space.trace("a1", "console", "waits")
        whole, last, found = space.states(), "", []
        while page := space.states(after=last, limit=3):
            found += page
            last = page[-1].agent
        assert found == whole
        assert [each.pending for each in found] == [0, 1, 0, 0]
        assert space.agents(after="a1") == ["a2", "b"]
    assert main(["list", "--limit", "2", "--after", "a0", "--json", "--path", str(tmp_path)]) == 0
    assert [each["agent"] for each in json.loads(capsys.readouterr().out)] == ["a1", "a2"]
