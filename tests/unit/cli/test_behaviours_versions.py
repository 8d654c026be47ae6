from __future__ import annotations

from typing import TYPE_CHECKING

from clia.behaviours.model import BehaviourVersion, KnownBehaviour
from clia.cli import behaviours_versions as lineage
from clia.values.typed_objects import PROMPT

if TYPE_CHECKING:
    import pytest


def test_a_long_branch_of_versions_is_drawn_in_pieces_with_their_origin(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise deep versions would not fit on the screen. A cycle is left as it is."""
    branch = [f"{number:04x}" * 10 for number in range(100)]
    children = {cid: branch[index + 1 : index + 2] for index, cid in enumerate(branch)} | {"a": ["b"], "b": ["a"]}
    pieces, cut = lineage.split_deep_branches(children, children)
    assert cut == {branch[index]: branch[index - 1] for index in range(9, 100, 9)}
    assert pieces == {cid: [child for child in descendants if child not in cut] for cid, descendants in children.items()}
    versions = tuple(BehaviourVersion("review", cid, PROMPT, "former", "", by="Tess <tess@example.org>") for cid in children)
    lineage.show_lineage(KnownBehaviour("review", PROMPT, None, versions, ()), {}, children, ascii_only=True)
    lines = capsys.readouterr().out.splitlines()
    assert [drawn_line.split(" former")[0] for drawn_line in lines[7:11]] == [
        f"{' ' * 24}`-- {branch[7][:10]}",
        f"{' ' * 28}`-- {branch[8][:10]}",
        f"from {branch[8][:10]}: {branch[9][:10]}",
        f"`-- {branch[10][:10]}",
    ]
    assert [cid for cid, drawn in zip(branch, lines, strict=False) if f"{cid[:10]} former" not in drawn] == []
