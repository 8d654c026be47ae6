from __future__ import annotations

import os
import re
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support import Tree, postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import coverage

# Timing belongs to the benchmarks; a run on CI is the same every time, a developer's explores, a soak does so at length.
settings.register_profile("usual", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.register_profile("soak", deadline=None, max_examples=3000)

ABOVE = re.compile(
    r"tests/(docs|e2e|stateful)/|/test_(api|drawing|forge|forms|graph_svg|page|rendering|wire)(_|\.py)|\[(hub|machines)\b"
)
"""Tests of what is above the layers whose coverage has a bar, and tests that are run once more on other parts: measuring takes half
as long again, and the others cover nearly as much."""
MEASURED: pytest.StashKey[coverage.Coverage] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the long versions of property, load and fault tests")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("soak" if config.getoption("--soak") else "usual")
    if not hasattr(config, "workerinput"):
        postgres.announce()
    # This process is measured by now. Those that tests start are not: it would double their time, and covers nothing more.
    elif os.environ.pop("COVERAGE_PROCESS_START", None):
        _set_up_measuring(config)


def _set_up_measuring(config: pytest.Config) -> None:
    """What a forked process covers is written nowhere, since it ends without leaving Python: it is not measured either."""
    import coverage  # only where somebody measures

    current = coverage.Coverage.current()
    if current is not None:
        config.stash[MEASURED] = current
        os.register_at_fork(after_in_child=_measure_nothing)


def _measure_nothing() -> None:
    sys.settrace(None)
    threading.settrace(None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured = item.config.stash.get(MEASURED, None)
    if measured is None or not ABOVE.search(item.nodeid):
        return (yield)
    measured.stop()
    try:
        return (yield)
    finally:
        measured.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a ``life`` is repeated: a few times as a rule, for long in a soak."""
    if "life" in metafunc.fixturenames:
        metafunc.parametrize("life", range(300 if metafunc.config.getoption("--soak") else 2))


@pytest.fixture
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether the long version of a test is wanted."""
    return bool(pytestconfig.getoption("--soak"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path.resolve())


@pytest.fixture
def postgres_address() -> str:
    """The address of an empty schema in a real PostgreSQL server."""
    try:
        return postgres.fresh()
    except postgres.NoPostgres as err:
        pytest.fail(str(err), pytrace=False)
