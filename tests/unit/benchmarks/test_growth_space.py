from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import growth_space

import clia
from support import git
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


OWN = (" refs/clia/space", " refs/clia-local/store", " refs/clia-local/bases")
"""Refs that differ between two spaces with the same agents."""


def test_a_generated_space_has_the_refs_that_the_verbs_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_space, "FAMILY", 5)
    with growth_space.replay(tmp_path / "verbs" / "space", 12):
        pass
    growth_space.generate(tmp_path / "packs" / "space", 12)
    generated_refs, verb_refs = (
        {line for line in git("show-ref", cwd=tmp_path / name / "space").splitlines() if not line.endswith(OWN)}
        for name in ("packs", "verbs")
    )
    assert generated_refs == verb_refs
    assert len(verb_refs) == 1 + 12 * 3 + 2
    with clia.open(tmp_path / "packs" / "space", settings=settings()) as space:
        assert space.verify().clean
        edges = space.relations()
        assert (space.rebuild(), space.relations()) == (len(edges), edges)
