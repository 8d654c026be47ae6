from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support import Tree, postgres

if TYPE_CHECKING:
    from pathlib import Path

    from support.git_hubs import Hub
    from support.session_spaces import SessionSpace

# Timing belongs to the benchmarks. A run on CI is deterministic, a developer's explores, and a soak does so at length.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("usual", UNTIMED, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.register_profile("soak", UNTIMED, max_examples=3000)

STATE = pytest.StashKey[str]()
"""The directory for the worktrees of all runs of this process's tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the long versions of property, load and fault tests")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["XDG_STATE_HOME"] = config.stash[STATE] = tempfile.mkdtemp(prefix="clia-state-")
    settings.load_profile("soak" if config.getoption("--soak") else "usual")
    if subprocess.run(["git", "config", "user.email"], capture_output=True, check=False).returncode:
        # Machines without a git identity: clia asks for one before it writes.
        os.environ |= {"GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "tess@example.org"}
    # A shell starts background jobs with SIGINT ignored, nohup with SIGHUP; programs inherit that, and tests send both.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        postgres.announce()
    elif os.environ.pop("COVERAGE_PROCESS_START", None):
        # Only this process is measured. Measuring the processes that tests start doubles their time and adds no coverage; a
        # forked process leaves without writing what it covered.
        os.register_at_fork(after_in_child=_stop_tracing)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave all that was imported and collected out of garbage collections: nothing of it is ever freed."""
    gc.collect()
    gc.freeze()


def _stop_tracing() -> None:
    sys.settrace(None)
    threading.settrace(None)


@pytest.fixture(scope="session", autouse=True)
def upkeep_on_request() -> None:
    """Spaces in this process start no upkeep in the background: its time would be a matter of luck."""
    from clia.facade import opening

    opening.MOVES = sys.maxsize


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[STATE], ignore_errors=True)
    if not hasattr(config, "workerinput"):
        postgres.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a parameter ``life`` is repeated: a few times, or many times in a soak."""
    if "life" in metafunc.fixturenames:
        metafunc.parametrize("life", range(300 if metafunc.config.getoption("--soak") else 2))


@pytest.fixture
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether to run the long version of a test."""
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


@pytest.fixture
def place(tmp_path: Path) -> SessionSpace:
    """An empty directory for a space with sessions."""
    from support.session_spaces import SessionSpace  # loads the library, which not every test needs

    return SessionSpace(tmp_path.resolve() / "repo")


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A bare repository that serves as a hub, reached by its path."""
    from support.git_hubs import by_path

    with by_path(tmp_path) as served:
        return served


@pytest.fixture
def store(postgres_address: str) -> str:
    """The URL of an empty store in a real PostgreSQL server."""
    from support.space_driver import postgres_url

    return postgres_url(postgres_address)
