from __future__ import annotations

from typing import TYPE_CHECKING

import clia

if TYPE_CHECKING:
    from support import Tree


def test_three_nested_contexts_give_the_innermost_title(tree: Tree) -> None:
    tree.repository("w")
    for where, title in (("w", "outer"), ("w/r", "middle"), ("w/r/s", "inner")):
        tree.agent(where, title=title)
    tree.directory("w/r/s/src")
    found = clia.lineage(tree.path("w/r/s/src"), "scout")
    assert found.profile()["title"] == "inner"
