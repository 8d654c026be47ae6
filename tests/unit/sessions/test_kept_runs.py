from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.engine.records import Turn
from clia.sessions.records import SessionRow
from clia.sessions.replay import KEPT_RUNS_MAX, SNAPSHOT_INTERVAL, KeptRuns, RunKey
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Place, SpiedRun, Spy, forget_runs, use_engine, with_agents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clia.engine.records import FlowAnswer, FlowCall, FlowProgram, FlowRun


TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""


FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def counted(space: clia.Space, upto: int, of: int = 20, agent: str = "scout") -> clia.Session:
    made = space.start(agent, "counting", of)
    for value in range(upto):
        made = space.resume(agent, value)
    return made


def test_however_many_spaces_are_open_in_a_process_each_can_go_on(here: Place, space: clia.Space) -> None:
    opened = [here.open() for _ in range(70)]
    try:
        space.start("scout", "counting", 100)
        for value, each in enumerate(opened):
            each.resume("scout", value)
        assert space.resume("scout", 70).resumes == [*range(71)]
        space.define("another", PRODUCT)
        with_agents(opened[0], "other").start("other", "another")
    finally:
        for each in opened:
            each.close()


class Held:
    """A run that only knows whether it was let go."""

    turn = Turn()

    def __init__(self) -> None:
        self.released = 0

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        raise AssertionError((number, answer))

    def dump(self) -> bytes:
        raise AssertionError

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *exc: object) -> None:
        self.released += 1


def standing(end: int = 5, since: str = "2026-01-01T00:00:00.000Z") -> SessionRow:
    return SessionRow("f" * 40, "adds", "suspended", "2026-01-01T00:00:00Z", end - 1, end, (), {1: since})


def shelf_of(*places: str) -> KeptRuns:
    shelf = KeptRuns()
    for place in places:
        shelf.join(place)
    return shelf


def test_a_kept_run_is_there_once_for_every_handle_on_its_place() -> None:
    shelf, run = shelf_of("here", "there"), Held()
    shelf.put(RunKey("here", "scout", "1"), standing(), run)
    assert shelf.take(RunKey("there", "scout", "1"), standing()) is None
    assert shelf.take(RunKey("here", "scout", "2"), standing()) is None
    assert shelf.take(RunKey("here", "other", "1"), standing()) is None
    assert shelf.take(RunKey("here", "scout", "1"), standing()) is run
    assert shelf.take(RunKey("here", "scout", "1"), standing()) is None
    assert run.released == 0, "whoever took it has it"


@pytest.mark.parametrize("elsewhere", [standing(end=6), standing(since="2026-01-01T00:00:00.001Z")])
def test_a_kept_run_that_stands_elsewhere_is_let_go(elsewhere: SessionRow) -> None:
    shelf, run, key = shelf_of("here"), Held(), RunKey("here", "scout", "1")
    shelf.put(key, standing(), run)
    assert shelf.take(key, elsewhere) is None
    assert run.released == 1
    assert shelf.take(key, standing()) is None


def test_a_run_takes_the_place_of_the_one_before_it() -> None:
    shelf, first, second, key = shelf_of("here"), Held(), Held(), RunKey("here", "scout", "1")
    shelf.put(key, standing(5), first)
    shelf.put(key, standing(6), second)
    assert (first.released, second.released) == (1, 0)
    assert shelf.take(key, standing(6)) is second


def test_the_shelf_is_small_and_the_oldest_run_goes_first() -> None:
    shelf, runs = shelf_of("here"), [Held() for _ in range(KEPT_RUNS_MAX + 2)]
    for number, run in enumerate(runs):
        shelf.put(RunKey("here", "scout", str(number)), standing(), run)
    assert [run.released for run in runs] == [1, 1] + [0] * KEPT_RUNS_MAX
    assert KEPT_RUNS_MAX <= 4, "each takes up a worker of the one engine"


def test_the_last_handle_on_a_place_lets_go_what_is_kept_there() -> None:
    shelf, mine, theirs = shelf_of("here", "here", "there"), [Held(), Held()], Held()
    for number, run in enumerate(mine):
        shelf.put(RunKey("here", "scout", str(number)), standing(), run)
    shelf.put(RunKey("there", "scout", "1"), standing(), theirs)
    shelf.leave("here")
    assert [run.released for run in mine] == [0, 0]
    shelf.leave("here")
    assert ([run.released for run in mine], theirs.released) == ([1, 1], 0)
    assert shelf.take(RunKey("there", "scout", "1"), standing()) is theirs


def test_what_comes_after_the_last_handle_has_left_is_not_kept() -> None:
    shelf, run = KeptRuns(), Held()
    shelf.put(RunKey("here", "scout", "1"), standing(), run)
    assert run.released == 1


def test_a_fresh_handle_goes_on_with_the_run_of_another_one(here: Place, space: clia.Space) -> None:
    counted(space, 1)
    with here.open() as fresh:
        spy: Spy = use_engine(fresh, Spy, same_place=True)
        assert fresh.resume("scout", 1).resumes == [0, 1]
        assert (spy.started, spy.loaded) == (0, 0), "it was kept"
    assert space.resume("scout", 2).resumes == [0, 1, 2]


class Tally(Spy):
    """An engine that knows how many of its runs nobody has let go."""

    begun = ended = 0

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return TalliedRun(super().start(program, patient=patient), self)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        return TalliedRun(super().load(program, dump, pending), self)

    @property
    def open(self) -> int:
        return self.begun - self.ended


class TalliedRun(SpiedRun):
    _spy: Tally

    def __init__(self, run: FlowRun, tally: Tally) -> None:
        super().__init__(run, tally)
        tally.begun += 1

    def __exit__(self, *exc: object) -> None:
        self._spy.ended += 1
        super().__exit__(*exc)


class LastDiffers(Tally):
    """An engine whose replay asks for something else where the session is now."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return super().start(
            program._replace(
                source=program.source.replace('"total": total', f'"total": total if turn <= {SNAPSHOT_INTERVAL} else 0')
            ),
            patient=patient,
        )


def test_every_run_is_let_go_also_where_a_replay_ends_at_another_request(space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    tally: Tally = use_engine(space, Tally)
    for value in range(SNAPSHOT_INTERVAL + 1):
        forget_runs(space)
        space.resume("scout", value)
        assert tally.open == 1, "the one that is kept"
    forget_runs(space)
    assert tally.open == 0
    with space.core.store.writing() as transaction:
        transaction.values.delete("snapshot/scout/1")
    tally = use_engine(space, LastDiffers)
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 0)
    assert (tally.begun, tally.open) == (1, 0)
