"""Sessions whose engine process, disk, store or server fails: a clear error or a retry, and nothing incomplete or lost."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.engine import runs
from clia.errors import CliaError, GitError, StoreError
from clia.testing import components
from support import git, postgres
from support.crashes import apart
from support.disks import fill, no_file_beyond, read_only, small_disk
from support.own_postgres import own_server
from support.session_crashes import verbs_refused_without_permissions
from support.session_driver import SessionCrashSpace, SessionTemplate, check_nothing_lost, make_template
from support.session_verbs import VERBS, check_done
from support.space_driver import BRIEFING, Paper, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.own_postgres import Server

DISK = 4 << 20


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SessionTemplate:
    home = tmp_path_factory.mktemp("template") / "made"
    make_template(str(home))
    return SessionTemplate(home)


@pytest.fixture
def place(template: SessionTemplate, tmp_path: Path) -> SessionCrashSpace:
    return template.copied(tmp_path / "here")


def refs(root: Path) -> str:
    return git("for-each-ref", cwd=root)


def everything(place: SessionCrashSpace, space: clia.Space) -> Any:
    """Everything that a verb could change: refs, and every row and stream of the store."""
    with space.local.store.reading() as view:
        values = view.values.scan("")
        streams = {name: view.streams.read(name) for name in view.streams.names("")}
    return refs(place.root), values, streams


# The engine's worker


NOISY = """\
def turn(name, endless):
    print(name)
    n = 0
    while n < 100000 or name == endless:
        n += 1

def main(input):
    turn("start", input)
    first = request("work", 1)
    turn("resume", input)
    second = request("human", {"question": first})
    turn("decide", input)
    return [first, second]
"""


def workers() -> list[int]:
    """The processes that the engine has started for this process."""
    tasks = Path("/proc/self/task")
    children = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in children if b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes()]


class Killer:
    """Kills the worker during a turn, a number of times, when the running flow prints."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.only: str | None = None  # the turn in which it kills; None: in any
        original = runs.PrintBuffer.take

        def take(printed: Any, stream: Any, text: str) -> None:
            original(printed, stream, text)
            if self.left and (self.only is None or text.strip() == self.only):
                self.left -= 1
                pids = workers()
                assert pids
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)

        monkeypatch.setattr(runs.PrintBuffer, "take", take)


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(monkeypatch)


@pytest.fixture
def noisy(tmp_path: Path) -> Iterator[tuple[SessionCrashSpace, clia.Space]]:
    """A space whose flow prints in each turn."""
    place = SessionCrashSpace(tmp_path / "noisy", Paper(str(tmp_path / "paper")))
    with clia.init(place.root, settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        space.define("noisy", NOISY)
        yield place, space


TURNS: dict[str, Callable[[clia.Space, str | None], object]] = {
    "start": lambda s, endless: s.start("scout", "noisy", endless),
    "resume": lambda s, _: s.resume("scout", "one"),
    "decide": lambda s, _: s.decide("scout", "two", "because"),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_verb_whose_worker_is_killed_once_succeeds(
    noisy: tuple[SessionCrashSpace, clia.Space], killer: Killer, name: str
) -> None:
    place, space = noisy
    for turn_name, act in TURNS.items():
        killer.left = 1 if turn_name == name else 0
        act(space, None)
        assert killer.left == 0
    assert space.session("scout").result == ["one", "two"]
    printed = [entry for hit in space.trace_search(".", regex=True) if (entry := hit.entry)["kind"] == "flow"]
    assert sorted(entry["text"] for entry in printed) == ["decide\n", "resume\n", "start\n"]
    check_nothing_lost(place, space)


@pytest.mark.parametrize("name", TURNS)
def test_a_flow_that_kills_every_worker_fails_with_a_complete_record(
    noisy: tuple[SessionCrashSpace, clia.Space], killer: Killer, name: str
) -> None:
    place, space = noisy
    for turn_name, act in TURNS.items():
        components(space).replay.close()  # so that the earlier turns are replayed without a kill
        killer.only = turn_name
        killer.left = 100 if turn_name == name else 0
        act(space, name)  # in this turn the flow never ends by itself
        if turn_name == name:
            break
    session = space.session("scout")
    assert session.status == "failed"
    assert session.failure is not None
    assert session.failure["reason"] == "limit"
    assert "3 workers in a row died of it" in session.failure["message"]
    assert killer.left == 97
    killer.left = 0
    check_nothing_lost(place, space)
    assert space.start("scout", "noisy").status == "suspended"


# A full disk, a read-only repository


def refusal(place: SessionCrashSpace, name: str) -> CliaError | None:
    """The refusal of a verb; None if there was enough space."""
    try:
        with place.open("victim") as space:
            VERBS[name].act(space)
    except CliaError as err:
        return err
    return None


def check_whole(place: SessionCrashSpace, name: str) -> None:
    """With free space again, the verb was applied, or was not and works."""
    with place.open() as space:
        check_done(place, space, VERBS[name], VERBS[name].done_by(space))


@pytest.mark.parametrize("name", VERBS)
def test_on_a_full_disk_a_verb_is_refused_and_leaves_nothing_incomplete(
    template: SessionTemplate, tmp_path: Path, name: str, soak: bool
) -> None:
    refusals = []
    for leave in range(40) if soak else (0, 2, 5, 9):
        with small_disk(tmp_path / str(leave), DISK) as disk:
            place = template.copied(disk)
            filler = fill(disk, leave)
            refusals.append(refusal(place, name))
            filler.unlink()
            check_whole(place, name)
    assert refusals[0] is not None
    for error in filter(None, refusals):
        assert "full" in error.message or "No space left" in error.message, error.to_json()


@pytest.mark.parametrize("name", VERBS)
def test_under_a_file_size_limit_a_verb_is_refused_and_changes_nothing(place: SessionCrashSpace, name: str) -> None:
    with place.open("victim") as space:
        before = everything(place, space)  # the store is open
        with no_file_beyond(0), pytest.raises((GitError, StoreError)):
            VERBS[name].act(space)
        assert everything(place, space) == before
    check_whole(place, name)


def test_a_read_only_repository_shows_its_sessions_and_refuses_every_verb(template: SessionTemplate) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o711)  # noqa: S103  # so that the user "nobody" can enter it
        place = template.copied(Path(home) / "here")
        before = refs(place.root)
        with read_only(place.root.parent):
            apart(verbs_refused_without_permissions, str(place.root))
        assert refs(place.root) == before
        check_whole(place, "resume")


# A short outage of the server


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        with own_server() as new_server:
            yield new_server
    except postgres.NoPostgres as err:
        pytest.fail(str(err), pytrace=False)


OUTAGES = {
    "resume": ("engine-ran", False),
    "decide that ends": ("objects-written", False),
    "decide": ("committed", True),
    "resume that ends": ("committed", True),
    "fork": ("notes-bound", True),
    "cancel": ("intent-recorded", True),
}
"""By verb: the step at which the server stops, and whether the verb is complete when it is back."""


def test_a_server_that_stops_during_a_verb_is_named_and_nothing_is_lost(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "made"
    root = home / "space"
    make_template(str(home), f"host={server.directory} user=clia dbname=postgres options=''")
    place = SessionCrashSpace(root, Paper(str(home / "paper")), server.url)
    for name, (step, past) in OUTAGES.items():
        verb = VERBS[name]
        armed = [True]

        def reached(point: str, step: str = step, armed: list[bool] = armed) -> None:
            if point == step and armed:
                armed.clear()
                server.stop()

        with place.open("victim", reached) as space:
            space.local.store.pool().timeout = 0.5  # type: ignore[attr-defined]  # instead of half a minute
            if past:
                verb.act(space)  # it is recorded
            else:
                with pytest.raises(StoreError) as caught:
                    verb.act(space)
                assert caught.value.retryable, caught.value.to_json()
            assert not armed
        server.start()
        with place.open() as space:
            assert verb.done_by(space) == ({"victim"} if past else set())
            if not past:
                verb.act(space)
            check_nothing_lost(place, space)
