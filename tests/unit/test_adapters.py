"""Adapters and tests use the public surface of a space: its verbs and services. Tests may also use ``clia.testing``.

All of clia uses the current names of verbs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import clia
from clia.verbs import alias

SOURCE = Path(clia.__file__).parent
SUSPECT = re.compile(r"\.(core|running|_[a-z])")
ADAPTERS = ("forge", "mcp", "cli", "workers")
PARTS = {"core", "running"}
"""``Space.core`` and ``Space.running`` are for the packages that implement verbs."""
RECORDS = {"BUSY", "before", "machine", "now", "process", "row", "_row", "status", "worker_info"}
"""Variables with a record of the fleet, which has a field ``running``."""
TESTS = Path(__file__).parents[1]
WRITTEN_BY_OLD_CODE = TESTS / "fixtures/first_stores/make.py"
"""It runs with the code of an earlier release."""
PUBLIC = {"_asdict", "_fields", "_make", "_replace", "_exit"}
"""Of named tuples and ``os``."""
STANDARD_LIBRARY = {"parser._actions", "argparse._SubParsersAction", "atexit._run_exitfuncs", "threading._shutdown"}
"""Without a public form."""
CORE_VERBS = {"relate", "trace", "start", "session", "pending", "ask", "decide", "resume", "fork", "cancel"}
"""Aliases that are the main names of their verbs."""
OLD_NAMES = {name for name, member in vars(clia.Space).items() if isinstance(member, alias)} - CORE_VERBS
"""Aliases for callers only: clia itself uses the services."""


def receiver(node: ast.Attribute) -> str:
    """The last name of what an attribute is read from; "" for any other expression."""
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    return owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""


def is_reach_in(node: ast.Attribute) -> bool:
    owner = receiver(node)
    if node.attr.startswith("_") and not node.attr.endswith("__"):
        return owner not in ("self", "cls", "super") and node.attr not in PUBLIC and ast.unparse(node) not in STANDARD_LIBRARY
    allowed = {"_components", "components"} if node.attr == "core" else RECORDS  # a service is built from the components
    return node.attr in PARTS and owner not in allowed


def reach_ins(source: str) -> list[str]:
    if not SUSPECT.search(source):
        return []
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and is_reach_in(node)]


def old_names(source: str) -> list[str]:
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in OLD_NAMES]
    return [ast.unparse(node) for node in attributes if receiver(node) in ("space", "_space")]


@pytest.mark.parametrize("folder", [SOURCE, *(TESTS.parent / name for name in ("tools", "benchmarks"))])
def test_no_module_uses_an_old_name_of_a_verb(folder: Path) -> None:
    modules = sorted(folder.rglob("*.py"))
    assert modules
    assert {str(path): expressions for path in modules if (expressions := old_names(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source", ["space.trace_for(commit)", "self._space.restore", "call.space.rule", "open_space().x.space().flow"]
)
def test_an_old_name_is_recognized(source: str) -> None:
    assert old_names(source)


def test_a_service_and_a_core_verb_are_not_old_names() -> None:
    assert old_names("space.traces.of(commit), space.start(agent, flow), file.read()") == []


@pytest.mark.parametrize("package", ADAPTERS)
def test_no_module_of_an_adapter_uses_the_parts_of_a_space_or_private_names(package: str) -> None:
    modules = sorted((SOURCE / package).rglob("*.py"))
    assert modules
    assert {str(path): expressions for path in modules if (expressions := reach_ins(path.read_text("utf-8")))} == {}


def test_tests_use_the_parts_of_a_space_only_by_the_seam() -> None:
    """The seam is ``clia.testing.components``."""
    modules = [path for path in sorted(TESTS.rglob("*.py")) if path != WRITTEN_BY_OLD_CODE]
    assert {str(path): expressions for path in modules if (expressions := reach_ins(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "space.core",
        "site.space.core.store",
        "spaces[0].core",
        "space.running",
        "opened[0][1].running.config",
        "space().core",
        "space._x",
    ],
)
def test_a_reach_in_is_recognized(source: str) -> None:
    assert reach_ins(source)


@pytest.mark.parametrize(
    "source", ["self._components.core", "process.running", "self._row.running", "row._replace(a=1)", "x.__name__", "super()._x"]
)
def test_records_and_the_components_of_a_service_are_not_reach_ins(source: str) -> None:
    assert reach_ins(source) == []
