"""Merges of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support.plain_git import fast_import, rev
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path


def test_a_merge_conflict_on_a_path_that_is_not_utf8_is_reported(space: clia.Space, repo: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.spawn_from("scout", BRIEFING, "lead")
    for name, data in (("lead", b"1\n"), ("scout", b"2\n")):
        ref = f"refs/heads/agents/{name}"
        fast_import(repo, ref, {b"caf\xe9": data}, rev(repo, ref))
    conflicts = space.merge("lead", "scout")
    assert isinstance(conflicts, clia.Conflicts)
    assert [(path.path, path.ours, path.theirs) for path in conflicts.paths] == [("caf\udce9", b"1\n", b"2\n")]
    assert space.history.last_refused("lead", "scout") == (conflicts.ours, conflicts.theirs)
