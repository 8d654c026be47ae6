from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import INHERITED, LOST, Turn
from clia.sessions.replay import SNAPSHOT_INTERVAL
from clia.testing import components
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION, SUSPENDS
from support.session_spaces import Liar, Place, SpiedRun, Spy, ends, use_engine, with_agents
from support.spaces import refused

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


def kept(space: clia.Space, key: str) -> Any:
    """What the store has under a key; None: nothing."""
    with space.core.store.reading() as view:
        found = view.values.get(key)
    return None if found is None else found.value


def put(space: clia.Space, key: str, value: Any) -> None:
    with space.core.store.writing() as transaction:
        transaction.values.put(key, value)


def diverged(space: clia.Space) -> None:
    """The session meets an engine that departs from its record, and is over."""
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 99)


def test_a_dump_from_before_a_session_was_opened_again_is_not_even_tried(here: Place, space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL + 2)
    diverged(space)
    with here.open() as honest:
        honest.doctor(repair=True)
        put(honest, "snapshot/scout/1", [SNAPSHOT_INTERVAL, components(honest).session_backend.engine.version, "", "", "", []])
        spy: Spy = use_engine(honest, Spy)
        assert honest.resume("scout", 6).resumes == [*range(SNAPSHOT_INTERVAL + 2), 6]
        assert spy.loaded == 0


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


def test_a_dump_that_waits_for_something_else_is_let_go(space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL)
    found = kept(space, "snapshot/scout/1")
    put(space, "snapshot/scout/1", [*found[:5], [[*found[5][0][:3], {"turn": 99}, found[5][0][4]]]])
    tally: Tally = use_engine(space, Tally)
    space.resume("scout", 4)
    assert (tally.loaded, tally.started, tally.open) == (1, 1, 1)


def test_a_dump_that_says_another_number_of_resumes_is_not_used_though_it_would_load(space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL)
    found = kept(space, "snapshot/scout/1")
    put(space, "snapshot/scout/1", [found[0] + 100, *found[1:]])
    spy: Spy = use_engine(space, Spy)
    assert space.resume("scout", 4).pending[0].payload == {"turn": 5, "total": 10}
    assert (spy.started, spy.loaded) == (1, 0)


def lost(code: str = LOST) -> errors.EngineError:
    return errors.EngineError("the process that ran the flow was lost", code=code)


class LostInDump(Spy):
    """An engine whose workers die when they are to make a dump; nothing can be had of them afterwards."""

    late = 0

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return LostInDumpRun(super().start(program, patient=patient), self)


class LostInDumpRun(SpiedRun):
    _spy: LostInDump
    _dead = False

    def dump(self) -> bytes:
        self._dead = True
        raise lost()

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if self._dead:
            self._spy.late += 1
            raise lost()
        return super().answer(number, answer)


def test_a_worker_that_is_lost_in_the_snapshot_is_not_kept_for_the_next_answer(space: clia.Space) -> None:
    engine: LostInDump = use_engine(space, LostInDump)
    assert counted(space, 9, 9).result == sum(range(9))
    assert engine.late == 0
    assert kept(space, "snapshot/scout/1") is None


class LosesAnswers(Spy):
    """An engine that loses its worker with the next answers to one call, and says so by a code."""

    left = 0
    call = 1
    code = LOST

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return LosesAnswersRun(super().start(program, patient=patient), self)


class LosesAnswersRun(SpiedRun):
    _spy: LosesAnswers

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if self._spy.left and number == self._spy.call:
            self._spy.left -= 1
            raise lost(self._spy.code)
        return super().answer(number, answer)


@pytest.mark.parametrize("code", [LOST, INHERITED])
@pytest.mark.parametrize("verb", ["resume", "decide"])
def test_two_losses_in_a_row_are_made_good_and_a_third_fails_the_session(here: Place, code: str, verb: str) -> None:
    with here.open() as space:
        with_agents(space, "scout", product=SUSPENDS)
        engine: LosesAnswers = use_engine(space, LosesAnswers)
        engine.code = code
        space.start("scout", "product")
        engine.left = 2
        getattr(space, verb)("scout", 5)
        assert space.session("scout").resumes == [5]
        engine.left, engine.call = 3, 2
        getattr(space, verb)("scout", 6)
        made = space.session("scout")
        assert (made.status, made.resumes) == ("failed", [5, 6])
        assert made.failure is not None
        assert made.failure["message"].startswith("engine: 3 workers in a row died of it")
        assert ends(here.root, "scout") == [("1", "failed")]


class LosesStarts(Spy):
    left = 0

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        if self.left:
            self.left -= 1
            raise lost()
        return super().start(program, patient=patient)


def test_losses_on_the_way_to_an_answer_change_nothing_however_many_and_few_are_made_good(space: clia.Space) -> None:
    space.start("scout", "talk")
    before, head = space.journal("scout"), space.head("scout")
    engine: LosesStarts = use_engine(space, LosesStarts)
    engine.left = 100
    refused("engine-lost", lambda: space.decide("scout", "yes"))
    assert (space.journal("scout"), space.head("scout"), space.session("scout").status) == (before, head, "suspended")
    engine.left = 3
    assert space.decide("scout", "yes").session.resumes == ["yes"]


MEMORY = "def main(input):\n    request('x', 0)\n    x = ('a,' * 400000).split(',')\n    return len(x)\n"


def test_a_worker_that_the_memory_limit_ended_is_a_limit_and_no_exception_of_the_flow(here: Place) -> None:
    with here.configured("[flows]\nmemory_mb = 8\n").open() as space:
        with_agents(space, "scout", hungry=MEMORY)
        space.start("scout", "hungry")
        made = space.resume("scout", 1)
        assert made.failure is not None
        assert (made.status, made.failure["reason"]) == ("failed", "limit")
        assert made.failure["message"] == "memory: it took more than 8 MiB"


def test_what_a_lower_limit_no_longer_allows_is_not_a_flow_that_failed(here: Place) -> None:
    """The memory was there once: the machine's limit is in the way of the replay, and the session waits."""
    source = MEMORY.replace("return len(x)", "n = len(x)\n    x = None\n    return request('x', n)")
    with here.configured("[flows]\nmemory_mb = 256\n").open() as space:
        with_agents(space, "scout", hungry=source)
        space.start("scout", "hungry")
        assert space.resume("scout", 1).status == "suspended"
    with here.configured("[flows]\nmemory_mb = 8\n").open() as space:
        refused("replay-too-slow", lambda: space.resume("scout", 2))
        assert space.session("scout").status == "suspended"
