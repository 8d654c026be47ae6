"""What users may build on, and what importing it costs."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import clia

if TYPE_CHECKING:
    from support import Tree


def test_the_exported_names_are_frozen() -> None:
    assert clia.__all__ == ["__version__", "agent_cli", "errors", "lineage"]
    assert dir(clia) == sorted(clia.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = clia.nothing


def test_the_signatures_are_frozen() -> None:
    found = {
        "lineage": str(inspect.signature(clia.lineage)),
        "agent_cli": str(inspect.signature(clia.agent_cli)),
    }
    path = "'str | os.PathLike[str]'"
    assert found == {
        "lineage": f"(path: {path}, slug: 'str', *, ceiling: 'str | os.PathLike[str] | None' = None, "
        "allow_uncontained: 'bool' = False) -> 'Lineage'",
        "agent_cli": "(slug: 'str') -> 'Callable[[Sequence[str] | None], int]'",
    }


def test_a_lineage_answers_by_its_documented_names(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    found = clia.lineage(tree.root / "w", "scout")
    for answer in (found.context(), found.profile(), found.plan(), found.agency()):
        assert answer.diagnostics == ()
    assert found.explain("/title").value == "here"
    assert dict(found.profile())["title"] == found.profile().get("title") == "here"
    assert "title" in found.profile()
    assert len(found.profile()) == len(list(found.profile()))


def modules_after(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules)\n{code}\nimport json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_clia_loads_no_third_party_module_and_hardly_any_other() -> None:
    loaded = modules_after("import clia")
    assert {each.partition(".")[0] for each in loaded} - {"clia"} <= set(sys.stdlib_module_names)
    assert {each for each in loaded if each.startswith("clia")} == {"clia", "clia.errors"}


def test_every_name_works_whatever_was_imported_before() -> None:
    loaded = modules_after(
        "import clia.app.lineage, clia.cli.main, clia\nassert callable(clia.lineage) and callable(clia.agent_cli)"
    )
    assert {"clia.triads.view", "clia.cli.agent_program"} <= loaded


def test_a_read_loads_no_third_party_module_no_clock_and_no_process(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here", inherits=["none"])
    code = f"import clia; found = clia.lineage({tree.path('w')!r}, 'scout'); found.context(); found.profile()"
    loaded = modules_after(code)
    names = {each.partition(".")[0] for each in loaded}
    assert names - {"clia"} <= set(sys.stdlib_module_names)
    assert not names & {"datetime", "time", "random", "subprocess", "dataclasses", "inspect", "pathlib", "socket"}
