"""What reviews of sessions have found, each once: it must not come back."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import INHERITED, LOST, Turn
from clia.facade.config import Config
from clia.sessions import answers
from clia.sessions import service as session_verbs
from clia.sessions.answers import check_answer, is_quick
from clia.sessions.records import SessionRow
from clia.sessions.replay import SIZE, SNAPSHOT_INTERVAL, KeptRuns, RunKey
from clia.testing import components
from support import git
from support.effects import QUICK, worker_for
from support.fake_secrets import FAKES
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION, SUSPENDS
from support.session_spaces import Liar, Place, SpiedRun, Spy, all_of_git, asked, ends, forget_runs, use_engine, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from clia.engine.records import FlowAnswer, FlowCall, FlowProgram, FlowRun
    from clia.sessions.answers import Rule

NOTES = "--ref=clia/session/scout"
TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""
FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}
_numbers = itertools.count()


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def counted(space: clia.Space, upto: int, of: int = 20, agent: str = "scout") -> clia.Session:
    made = space.start(agent, "counting", of)
    for value in range(upto):
        made = space.resume(agent, value)
    return made


def commit(space: clia.Space, agent: str = "scout") -> str:
    return space.commit(agent, "finding", changes={"n": str(next(_numbers)).encode()})


def kept(space: clia.Space, key: str) -> Any:
    """What the store has under a key; None: nothing."""
    with space.core.store.reading() as view:
        found = view.values.get(key)
    return None if found is None else found.value


def put(space: clia.Space, key: str, value: Any) -> None:
    with space.core.store.writing() as transaction:
        transaction.values.put(key, value)


def note(here: Place, at: str) -> dict[str, Any]:
    return dict(json.loads(git("notes", NOTES, "show", at, cwd=here.root)))


def put_note(here: Place, at: str, made: Any) -> None:
    """Puts something in a checkpoint's place, spelled as ours are."""
    file = here.root.parent / "note"
    file.write_text(json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    blob = git("hash-object", "-w", str(file), cwd=here.root).strip()
    git("notes", NOTES, "add", "-f", "-C", blob, at, cwd=here.root)


# A session that diverged, and is opened again


def diverged(space: clia.Space) -> None:
    """The session meets an engine that departs from its record, and is over."""
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 99)


def test_a_session_that_was_opened_again_has_all_resumes_in_its_next_checkpoints(here: Place, space: clia.Space) -> None:
    counted(space, 3)
    commit(space)
    space.resume("scout", 3)
    space.resume("scout", 4)
    diverged(space)
    with here.open() as honest:
        assert [(each.code, each.repaired) for each in honest.doctor(repair=True)] == [("replays-again", True)]
        honest.resume("scout", 5)
        first = commit(honest)
        honest.resume("scout", 6)
        second = commit(honest)
        assert honest.session("scout").resumes == [*range(7)]
        assert honest.doctor() == []
    assert "base" not in note(here, first), "it stands by itself"
    assert note(here, second)["base"] == first
    for lost in (False, True):
        if lost:
            here.lose_store()
        with here.open() as again:
            for at, done in ((first, 6), (second, 7)):
                forked = again.fork("scout", f"fork-{done}-{int(lost)}", at)
                assert forked.resumes == [*range(done)]
                assert asked(forked) == [(str(done + 1), "number", {"turn": done, "total": sum(range(done))}, 4)]


def test_a_delta_counts_resumes_and_not_the_events_between_them(here: Place, space: clia.Space) -> None:
    """The pointer to the last checkpoint may have survived from before the session was opened again."""
    counted(space, 3)
    base = commit(space)
    pointer = kept(space, "checkpoint/scout")
    space.resume("scout", 3)
    diverged(space)
    with here.open() as honest:
        honest.doctor(repair=True)
        put(honest, "checkpoint/scout", pointer)
        honest.resume("scout", 4)
        at = commit(honest)
        made = note(here, at)
        assert (made["base"], [each[2] for each in made["resumes"]]) == (base, [3, 4])
        assert honest.fork("scout", "other", at).resumes == [*range(5)]


def test_a_dump_from_before_a_session_was_opened_again_is_not_even_tried(here: Place, space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL + 2)
    diverged(space)
    with here.open() as honest:
        honest.doctor(repair=True)
        put(honest, "snapshot/scout/1", [SNAPSHOT_INTERVAL, components(honest).session_backend.engine.version, "", "", "", []])
        spy: Spy = use_engine(honest, Spy)
        assert honest.resume("scout", 6).resumes == [*range(SNAPSHOT_INTERVAL + 2), 6]
        assert spy.loaded == 0


# Runs that are kept


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
    shelf, runs = shelf_of("here"), [Held() for _ in range(SIZE + 2)]
    for number, run in enumerate(runs):
        shelf.put(RunKey("here", "scout", str(number)), standing(), run)
    assert [run.released for run in runs] == [1, 1] + [0] * SIZE
    assert SIZE <= 4, "each takes up a worker of the one engine"


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


# Workers that are lost


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


# Rules of answers


def test_a_rule_is_applied_while_others_may_go_on_with_the_agent(
    here: Place, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    between: list[str] = []

    def slow(rule: Rule, request_id: str, kind: str, value: Any, _: object) -> None:
        check_answer(rule, request_id, kind, value)
        with here.open() as other:
            with other.core.locks.attempt("scout") as free:
                assert free, "a rule may take for ever to apply"
            between.append(commit(other))

    monkeypatch.setattr(session_verbs, "check_answer", slow)
    space.start("scout", "talk")
    made = space.decide("scout", "yes")
    assert between
    assert git("rev-parse", f"{made.cid}^", cwd=here.root).strip() == between[0]
    assert space.verify().clean


def test_who_was_answered_before_while_a_rule_was_applied_learns_it_and_leaves_nothing(
    here: Place, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        monkeypatch.undo()
        with here.open() as other:
            other.decide("scout", "quicker", by="Ann")

    space.start("scout", "talk")
    monkeypatch.setattr(session_verbs, "check_answer", slow)
    error = refused("stale-request", lambda: space.decide("scout", "yes"))
    assert error.message == "the request 1.1 of 'scout' was answered by Ann already: \"quicker\""
    assert space.session("scout").resumes == ["quicker"]
    assert space.head("scout") == space.session("scout").decisions[0][1]


NO_RULES: dict[str, Any] = {
    "no choices": {"choices": []},
    "an unknown type": {"schema": {"type": "nonsense"}},
    "a text": {"schema": "x"},
    "a list": {"schema": [1]},
    "no enum": {"schema": {"enum": 5}},
    "a pattern that is none": {"schema": {"type": "string", "pattern": "("}},
    "a reference to elsewhere": {"schema": {"$ref": "https://schemas.invalid/x.json"}},
    "a reference to a file": {"schema": {"$ref": "file:///etc/passwd"}},
    "a reference to nothing": {"schema": {"$ref": "#/nowhere"}},
    "a reference without end": {"schema": {"$ref": "#"}},
    "a reference that is a number": {"schema": {"$ref": 5}},
    "a reference that is no address": {"schema": {"$ref": "http://[::1"}},
    "an id that is no address": {"schema": {"$id": "http://[::1", "$ref": "#/x"}},
    "a reference in half an escape": {"schema": {"$ref": "#/%zz"}},
    "a reference into a list by a name": {"schema": {"$ref": "#/enum/x", "enum": [2]}},
    "a reference beyond a list": {"schema": {"$ref": "#/enum/9", "enum": [2]}},
    "a reference to a number": {"schema": {"$ref": "#/enum/0", "enum": [2]}},
    "a reference to a text": {"schema": {"$ref": "#/x", "x": "text"}},
    "an anchor that is not there": {"schema": {"$dynamicRef": "#zz"}},
    "a chain of references": {"schema": {"$id": "urn:x", "$defs": {"a": {"$id": "b", "$ref": "c"}}, "$ref": "b"}},
    "an address of another kind of schema": {"schema": {"$schema": "http://[::1"}},
}


def test_a_request_whose_own_rule_is_none_takes_any_answer(space: clia.Space) -> None:
    """Else it would hold up its session for ever: nobody can change what a flow has asked."""
    for number, (name, payload) in enumerate(NO_RULES.items(), 1):
        request = space.start("scout", "question", {"payload": payload}).pending[0]
        space.check_answer(request, 1)
        assert space.decide("scout", number).session.result == number, name


def test_a_broken_schema_leaves_the_choices_in_force(space: clia.Space) -> None:
    space.start("scout", "question", {"payload": {"schema": {"type": 3}, "choices": ["yes", "no"]}})
    refused("invalid-answer", lambda: space.decide("scout", "maybe"))
    assert space.rule(space.pending()[0]).choices == ("yes", "no")


def test_an_operators_broken_schema_is_named_by_file_and_field_wherever_it_is_met(here: Place) -> None:
    chosen = here.configured('[answers.human]\nschema = {type = "nonsense"}\n')
    with chosen.open() as space:
        with_agents(space, "scout", talk=TALK, product=PRODUCT)
        (request,) = space.start("scout", "talk").pending
        head = space.head("scout")
        for call in (
            lambda: space.decide("scout", "yes"),
            lambda: space.rule(request),
            lambda: space.check_answer(request, "yes"),
        ):
            error = refused("invalid-config", call)
            assert error.fields == {"path": chosen.config, "field": "answers.human.schema"}
            assert error.message.startswith(f"{chosen.config}: answers.human.schema is no JSON Schema: ")
        assert (space.head("scout"), len(space.pending())) == (head, 1)
        with_agents(space, "other").start("other", "product")
        assert space.resume("other", 1).pending, "other kinds of requests are not touched by it"


def test_an_operators_schema_that_refers_to_nothing_refuses_with_the_reason(here: Place) -> None:
    with here.configured('[answers.human]\nschema = {"$ref" = "#/nowhere"}\n').open() as space:
        with_agents(space, "scout", talk=TALK)
        (request,) = space.start("scout", "talk").pending
        for call in (lambda: space.decide("scout", "yes"), lambda: space.check_answer(request, "yes")):
            error = refused("invalid-answer", call)
            assert error.fields["problem"].startswith("the rule cannot be applied: it refers to what is not in it")
        assert space.session("scout").resumes == []


def test_a_rule_is_asked_for_by_a_request(space: clia.Space) -> None:
    for bad in (5, None, "1.1", ("scout", "1.1")):
        assert refused("invalid-request", lambda bad=bad: space.rule(bad)).fields == {"field": "request"}  # type: ignore[misc]
        refused("invalid-request", lambda bad=bad: space.check_answer(bad, 1))  # type: ignore[misc]


# What is asked, and what is said of it


def test_a_question_that_cannot_be_put_is_refused_and_nothing_waits(space: clia.Space) -> None:
    refused("invalid-json", lambda: space.ask("scout", {"question": "x" * 2_000_000}))
    refused("invalid-json", lambda: space.ask("scout", {"question": object()}))
    for text in ("<Foo object>", "<module 'os'>"):
        error = refused("invalid-question", lambda text=text: space.ask("scout", {"question": text}))  # type: ignore[misc]
        assert text in error.message
        assert error.fields["agent"] == "scout"
    assert space.pending() == []
    assert space.ask("scout", {"question": "Really?"}).payload == {"question": "Really?"}


INSIDE_ITSELF = {
    "a list": "x = [1]\n    x.append(x)",
    "a dictionary": "x = {'a': 1}\n    x['b'] = x",
    "one in the other": "y = {}\n    x = [y]\n    y['x'] = x",
}


@pytest.mark.parametrize("name", INSIDE_ITSELF)
@pytest.mark.parametrize("way", ["request('human', x)", "x"])
def test_what_is_inside_itself_cannot_cross(space: clia.Space, name: str, way: str) -> None:
    space.define("loop", f"def main(input):\n    {INSIDE_ITSELF[name]}\n    return {way}\n")
    made = space.start("scout", "loop")
    assert made.failure is not None
    assert made.status == "failed"
    assert "which cannot cross" in made.failure["message"]


def test_whoever_comes_late_is_told_the_value_or_why_it_was_given_up(space: clia.Space) -> None:
    space.start("scout", "careful", "x")
    space.give_up("scout", "no such page", by="worker w1")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.1"))
    assert error.message == "the request 1.1 of 'scout' was answered by worker w1 already: given up: no such page"
    space.resume("scout", {"found": "it", "much": "x" * 100}, by="worker w2")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.2"))
    assert 'was answered by worker w2 already: {"found": "it", "much": "xxx' in error.message
    assert error.message.endswith("x…")


def test_several_requests_are_told_apart_by_what_they_ask(space: clia.Space) -> None:
    space.start("scout", "parts", 2)
    error = refused("several-requests", lambda: space.resume("scout", 1))
    assert error.hints == ('1.1: part {"n": 0}', '1.2: part {"n": 1}')


def test_sessions_are_listed_live_first_then_by_agent_then_by_number(space: clia.Space) -> None:
    with_agents(space, "aide", "last")
    for _ in range(10):
        space.start("scout", "product")
        space.cancel("scout")
    for _ in range(2):
        space.start("aide", "product")
        space.cancel("aide")
    for name in ("scout", "last"):
        space.start(name, "product")
    listed = [(each.agent, each.id) for each in space.sessions()]
    assert listed[:4] == [("last", "1"), ("scout", "11"), ("aide", "1"), ("aide", "2")]
    assert listed[4:] == [("scout", str(number)) for number in range(1, 11)]
    assert [each.id for each in space.sessions("scout")] == ["11", *(str(number) for number in range(1, 11))]


SECRET = FAKES[0]


def test_secrets_that_a_flow_puts_into_kind_and_tag_stay_out_of_the_decision(here: Place, space: clia.Space) -> None:
    half = len(SECRET.text) // 2
    put_together = f"{SECRET.text[:half]!r} + {SECRET.text[half:]!r}"
    space.define("leaky", f"def main(input):\n    t = {put_together}\n    return request('human-' + t, {{'q': 1}}, tag=t)\n")
    space.start("scout", "leaky")
    made = space.decide("scout", "yes")
    message = git("log", "-1", "--format=%B", made.cid, cwd=here.root)
    assert "Clia-Tag: " in message
    assert SECRET.secret.encode() not in all_of_git(here.root)


# A store whose rows are damaged

_CALL = [1, "number", None, {}, 4, "2026-05-01T00:00:00.000Z"]
ROWS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "something else": lambda _: {"x": 1},
    "a list": lambda _: [],
    "a number": lambda _: 5,
    "nothing": lambda _: None,
    "a text": lambda _: "s",
    "pending is a number": lambda row: {**row, "pending": 5},
    "pending is not there": lambda row: {key: value for key, value in row.items() if key != "pending"},
    "a call that is none": lambda row: {**row, "pending": [[1]]},
    "a place that is a text": lambda row: {**row, "end": "9"},
    "a count that is nothing": lambda row: {**row, "done": None},
    "a dump's count that is a text": lambda row: {**row, "kept": "z"},
    "a name that is a number": lambda row: {**row, "name": 5},
    "a call's number that is a text": lambda row: {**row, "pending": [["1", *_CALL[1:]]]},
    "a call's kind that is a number": lambda row: {**row, "pending": [[1, 5, *_CALL[2:]]]},
    "a call's tag that is a list": lambda row: {**row, "pending": [[*_CALL[:2], [], *_CALL[3:]]]},
    "a call's time that is a number": lambda row: {**row, "pending": [[*_CALL[:5], 7]]},
}


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_hides_no_other_is_named_and_is_derived_anew(space: clia.Space, name: str) -> None:
    with_agents(space, "other")
    counted(space, 5)
    counted(space, 1, agent="other")
    forget_runs(space)
    put(space, "live/scout/1", ROWS[name](kept(space, "live/scout/1")))
    assert [each.agent for each in space.pending()] == ["other"]
    assert [each.agent for each in space.sessions()] == ["other"]
    assert space.maintain(archive_idle_days=0, dry_run=True).archived == ()
    for call in (
        lambda: space.session("scout"),
        lambda: space.resume("scout", 5),
        lambda: space.decide("scout", 5),
        lambda: space.cancel("scout"),
        lambda: space.start("scout", "product"),
        lambda: space.fork("scout", "twin"),
        lambda: commit(space),
    ):
        error = refused("damaged-row", call)
        assert error.fields == {"agent": "scout", "session": "1"}
    assert [(each.code, each.repaired) for each in space.doctor()] == [("row-differs", False)]
    assert [(each.code, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", True)]
    assert space.doctor() == []
    assert space.resume("scout", 5).resumes == [*range(6)]
    assert space.fork("scout", "twin", commit(space)).resumes == [*range(6)]


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_of_a_past_session_hides_no_other_and_is_derived_anew(space: clia.Space, name: str) -> None:
    counted(space, 2, 2)
    before = space.session("scout").to_json()
    space.start("scout", "product")
    put(space, "ended/scout/1", ROWS[name](kept(space, "ended/scout/1")))
    assert [each.id for each in space.sessions()] == ["2"]
    refused("damaged-row", lambda: space.session("scout", "1"))
    refused("damaged-row", lambda: space.resume("scout", 5, "1.1"))
    assert [(each.session, each.code, each.repaired) for each in space.doctor(repair=True)] == [("1", "row-differs", True)]
    assert space.session("scout", "1").to_json() == before
    assert space.session("scout").id == "2", "the numbers that were given out are not taken back"
    assert space.doctor() == []


@pytest.mark.parametrize("counts", [5, [], {}, {"last": "x"}, {"last": None, "asks": 1}, {"last": 1}, "1", None])
@pytest.mark.parametrize("live", [True, False])
def test_damaged_counts_let_no_second_session_live_and_come_back_with_a_repair(space: clia.Space, counts: Any, live: bool) -> None:
    space.start("scout", "product")
    space.cancel("scout")
    counted(space, 2)
    at = commit(space)
    if not live:
        space.cancel("scout")
    put(space, "sessions/scout", counts)
    if live:
        assert space.session("scout").id == "2"
        assert refused("session-live", lambda: space.start("scout", "product")).fields["session"] == "2"
        assert space.resume("scout", 2).resumes == [0, 1, 2]
        assert space.fork("scout", "other", commit(space)).resumes == [0, 1, 2], "a checkpoint is made all the same"
    assert [(each.code, each.session, each.repaired) for each in space.doctor()] == [("row-differs", "2", False)]
    assert [(each.code, each.session, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", "2", True)]
    assert space.doctor() == []
    assert space.session("scout").id == "2"
    if not live:
        assert space.start("scout", "product").id == "3", "no number is given out twice"
    assert space.fork("scout", "twin", at).resumes == [0, 1]


def test_damaged_counts_of_questions_come_back_with_a_repair(space: clia.Space) -> None:
    for _ in range(2):
        space.ask("scout", {"question": "Go?"})
    put(space, "sessions/scout", 5)
    assert [(each.session, each.repaired) for each in space.doctor(repair=True)] == [("ask-2", True)]
    assert space.ask("scout", {"question": "Go?"}).id == "ask-3.1"


@pytest.mark.parametrize("pointer", [5, [1], {}, None, ["1", "zz", 0, 0], ["1", None, 2, 3], ["1", "0" * 40, "x", 0], "text"])
def test_a_damaged_pointer_to_the_last_checkpoint_makes_the_next_one_whole(here: Place, space: clia.Space, pointer: Any) -> None:
    counted(space, 2)
    commit(space)
    put(space, "checkpoint/scout", pointer)
    space.resume("scout", 2)
    at = commit(space)
    assert [each[2] for each in note(here, at)["resumes"]] == [0, 1, 2]
    assert space.fork("scout", "other", at).resumes == [0, 1, 2]


@pytest.mark.parametrize("intent", [5, {}, [], None, {"agent": "scout", "verb": "commit", "point": 5}])
def test_a_damaged_intent_stops_its_agent_by_name_and_nobody_else(space: clia.Space, intent: Any) -> None:
    with_agents(space, "other")
    counted(space, 1)
    counted(space, 1, agent="other")
    put(space, "intent/scout", intent)
    for call in (lambda: space.resume("scout", 1), lambda: commit(space), lambda: space.cancel("scout")):
        assert isinstance(refused("store-corrupt", call), errors.StoreError)
    assert [each.agent for each in space.pending()] == ["scout", "other"]
    assert space.resume("other", 1).resumes == [0, 1]


def test_a_repair_writes_no_row_over_a_session_that_went_on_meanwhile(here: Place, space: clia.Space) -> None:
    counted(space, 2)
    put(space, "live/scout/1", {**kept(space, "live/scout/1"), "name": "another"})
    meddles = [True]

    class Meddled(Spy):
        def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
            if meddles:
                meddles.clear()
                with here.open() as other:
                    other.resume("scout", 2)
            return super().start(program, patient=patient)

    use_engine(space, Meddled)
    assert [(each.code, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", False)]
    assert not meddles
    assert space.pending()[0].id == "1.4"
    assert space.resume("scout", 3).resumes == [0, 1, 2, 3]


# Checkpoints that come from elsewhere


def forged(made: dict[str, Any], **origin: Any) -> dict[str, Any]:
    return {**made, "origin": {**made["origin"], **origin}}


def forging(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda made: forged(made, **{key: value})


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{
        f"{key} is {value!r}": forging(key, value)
        for key, value in (
            *(("flow", [1]), ("flow", None), ("started_at", 5), ("seed", 5), ("seed", None)),
            *(("timezone", 5), ("engine", 5), ("name", 5), ("name", [1])),
        )
    },
    "no seed": lambda made: {**made, "origin": {key: each for key, each in made["origin"].items() if key != "seed"}},
    "a resume that is a number": lambda made: {**made, "resumes": [5]},
    "a resume that is too short": lambda made: {**made, "resumes": [[1]]},
    "a resume that is too long": lambda made: {**made, "resumes": [[*range(9)]]},
    "a call that is a text": lambda made: {**made, "resumes": [["1", made["resumes"][0][1], 3]]},
    "a call that is true": lambda made: {**made, "resumes": [[True, made["resumes"][0][1], 3]]},
    "a hash that is a number": lambda made: {**made, "resumes": [[1, 2, 3]]},
    "an error that is a number": lambda made: {**made, "resumes": [[1, made["resumes"][0][1], None, 5]]},
    "an author that is an object": lambda made: {**made, "resumes": [[1, made["resumes"][0][1], 1, None, None, {}]]},
    "a resume of nothing": lambda made: {**made, "resumes": [[[], {}, 1]]},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_named_and_makes_nothing(here: Place, space: clia.Space, name: str) -> None:
    counted(space, 1)
    at = commit(space)
    put_note(here, at, FORGERIES[name](note(here, at)))
    error = refused("corrupt-journal", lambda: space.fork("scout", "other", at))
    assert error.fields == {"agent": "scout", "commit": at}
    assert space.agents() == ["scout"]
    assert space.resume("scout", 1).resumes == [0, 1], "the live session is not harmed"
    here.lose_store()
    with here.open() as again:
        refused("corrupt-journal", lambda: again.fork("scout", "other", at))
        assert [(each.code, each.repaired) for each in again.doctor(repair=True)] == [("corrupt-journal", False)]
        assert (again.pending(), again.agents()) == ([], ["scout"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("flow", "zz"), ("started_at", "x"), ("timezone", "../../etc/passwd")],
)
def test_a_forged_checkpoint_of_the_right_types_is_no_raw_error_either(
    here: Place, space: clia.Space, key: str, value: str
) -> None:
    counted(space, 1)
    at = commit(space)
    put_note(here, at, forged(note(here, at), **{key: value}))
    with pytest.raises(errors.CliaError):
        space.fork("scout", "other", at)
    assert space.agents() == ["scout"]


@pytest.mark.parametrize("session", ["", "x", "x/../y", "ask-5", "²", "0", "-1", "1" * 5000])
def test_a_checkpoint_of_a_session_that_cannot_be_is_none_of_ours(here: Place, space: clia.Space, session: str) -> None:
    counted(space, 1)
    at = commit(space)
    here.lose_store()
    put_note(here, at, {**note(here, at), "session": session})
    with here.open() as again:
        assert again.doctor(repair=True) == []
        refused("no-checkpoint", lambda: again.fork("scout", "other", at))
        assert again.start("scout", "product").id == "1"


def test_a_forged_note_that_says_where_a_session_started_is_named_too(here: Place, space: clia.Space) -> None:
    start = space.head("scout")
    counted(space, 1)
    at = commit(space)
    here.lose_store()
    put_note(here, at, forged(note(here, at), seed=5))
    with here.open() as again:
        assert refused("corrupt-journal", lambda: again.fork("scout", "other", start)).fields["commit"] == at


def test_a_fork_at_what_plain_git_added_takes_the_checkpoint_of_the_agents_commit_below(here: Place, space: clia.Space) -> None:
    counted(space, 2)
    made = commit(space)
    tree = git("rev-parse", f"{made}^{{tree}}", cwd=here.root).strip()
    tip = made
    for message in ("by hand", "again"):
        tip = git("commit-tree", tree, "-p", tip, "-m", message, cwd=here.root).strip()
    git("update-ref", "refs/heads/agents/scout", tip, made, cwd=here.root)
    forked = space.fork("scout", "other", tip)
    assert (forked.resumes, asked(forked)) == ([0, 1], asked(space.session("scout")))
    assert git("merge-base", "agents/other", tip, cwd=here.root).strip() == tip, "and it has those commits"


# What only git remembers


def test_a_lost_session_comes_back_after_the_decision_at_the_head(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    decided = space.decide("scout", "yes", by="Ann").cid
    here.lose_store()
    with here.open() as again:
        assert [(each.code, each.repaired) for each in again.doctor(repair=True)] == [("lost-session", True)]
        made = again.session("scout")
        assert asked(made) == [("2", "human", {"question": "Second?", "said": "yes"}, 3)]
        assert made.decisions == [(0, decided)]
        assert again.journal("scout")[1]["resumes"][0][4:6] == [decided, "Ann"]
        assert again.doctor() == []
        assert again.decide("scout", "no").session.result == ["yes", "no"]


def test_a_decision_that_ended_its_session_brings_nothing_back(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    space.decide("scout", "yes")
    assert space.decide("scout", "no").session.status == "finished"
    for code in ([], ["lost-session"]):
        here.lose_store()
        with here.open() as again:
            found = again.doctor(repair=True)
            assert [(each.code, each.repaired) for each in found] == [(each, False) for each in code]
            assert (again.pending(), again.sessions()) == ([], [])
        git("update-ref", "-d", "refs/clia/events/scout", cwd=here.root)  # then only the decision itself can tell


# What is remembered of checkpoints and dumps


def test_a_decision_is_what_the_next_checkpoint_stands_on(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    decided = space.decide("scout", "yes").cid
    assert kept(space, "checkpoint/scout") == ["1", decided, 0, 0]
    at = commit(space)
    made = note(here, at)
    assert (made["base"], [each[2] for each in made["resumes"]]) == (decided, ["yes"])


def test_a_fork_remembers_its_first_checkpoint_and_its_dump(here: Place, space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL + 2)
    space.fork("scout", "other")
    genesis = space.genesis("other")
    assert kept(space, "checkpoint/other") == ["1", genesis, SNAPSHOT_INTERVAL + 2, 0]
    space.resume("other", 6)
    assert kept(space, "snapshot/other/1")[0] == SNAPSHOT_INTERVAL, "the copied one is young enough"
    at = commit(space, "other")
    made = json.loads(git("notes", "--ref=clia/session/other", "show", at, cwd=here.root))
    assert (made["base"], [each[2] for each in made["resumes"]]) == (genesis, [6])


# What workers tried, and who is at work


def test_attempts_tell_what_workers_tried_and_what_came_of_it(here: Place) -> None:
    def handle(*_: object) -> Any:
        raise OSError("the line is down")

    with clia.init(here.root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"))) as space:
        with_agents(space, "scout", product=PRODUCT)
        space.start("scout", "product")
        assert space.attempts() == []
        patient = QUICK._replace(attempts=5, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
        worker_for(space, here.root, {"number": handle}, Config(worker=patient)).run(once=True)
        (found,) = space.attempts()
        assert (found.task.agent, found.task.request, found.task.kind) == ("scout", "1.1", "number")
        assert (found.attempts, found.worker, found.error) == (1, None, "OSError: the line is down")
        assert found.next_at is not None
        space.resume("scout", 1)
        worker_for(space, here.root, {}, Config(worker=patient)).run(once=True)
        assert space.attempts() == []


def test_a_configuration_that_is_named_must_be_there(here: Place, space: clia.Space) -> None:
    path = str(here.root.parent / "none.toml")
    assert refused("no-such-config", lambda: here._replace(config=path).open()).fields == {"path": path}
    with here.open():
        pass  # one that is not named need not


def test_a_dry_run_does_not_promise_to_archive_who_waits_for_an_answer(space: clia.Space) -> None:
    with_agents(space, "asker", "aide")
    space.start("scout", "product")
    space.ask("asker", {"question": "Go?"})
    for name in ("scout", "asker", "aide"):
        space.commit_with_trace(name, "finding", changes={"a": b"1"})  # else the trace alone would keep it
        space.spawn_from(f"{name}-child", BRIEFING, name)
    dry = space.maintain(archive_idle_days=0, dry_run=True).archived
    assert dry == ("aide",)
    assert space.maintain(archive_idle_days=0).archived == dry


# A rule that takes for ever


_FOREVER = {"type": "string", "pattern": "^(a|a)*$"}
_DOUBLING = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}},
}


@pytest.mark.parametrize("schema", [_FOREVER, _DOUBLING], ids=["a pattern", "references that double"])
def test_a_rule_that_takes_for_ever_holds_up_nobody(
    space: clia.Space, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of the answer then, as a rule that cannot be applied; the process that tried is gone."""
    monkeypatch.setattr(answers, "CHECK_SECONDS", 1.0)
    asked_for = space.ask("scout", {"question": "Which?", "schema": schema})
    assert space.decide("scout", "a" * 60 + "b", request_id=asked_for.id).value == "a" * 60 + "b"


def test_what_lies_in_the_directory_is_not_run_when_a_rule_is_applied(
    space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People stand in the repository, where agents write."""
    for name in ("json.py", "clia.py", "jsonschema.py", "resource.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    asked_for = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=asked_for.id))
    assert not (tmp_path / "ran").exists()


def test_a_rule_with_a_pattern_still_counts(space: clia.Space) -> None:
    asked_for = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    error = refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=asked_for.id))
    assert "does not match" in error.message
    assert space.decide("scout", "fine", request_id=asked_for.id).value == "fine"


QUICK_RULES = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"enum": [1, 2]}},
    True,
]
SLOW_RULES = [
    _FOREVER,
    _DOUBLING,
    {"items": {"patternProperties": {"x": True}}},
    {"properties": {"a": {"not": {}}}},
    {"anyOf": [{"type": "string"}]},
    {"properties": {str(number): {"type": "string"} for number in range(2000)}},
]


def test_what_is_applied_in_a_process_of_its_own_is_all_that_might_take_long() -> None:
    assert all(is_quick(each) for each in QUICK_RULES)
    assert not any(is_quick(each) for each in SLOW_RULES)


# Who decides, as git has it


@pytest.mark.parametrize(
    ("by", "name", "email"),
    [
        ("Ann Öz <ann@example.org>", "Ann Öz", "ann@example.org"),
        ("ann", "ann", "ann@people.clia.invalid"),
        ("Ö", "Ö", "somebody@people.clia.invalid"),
        ("<x> y <z", "x y z", "x-y-z@people.clia.invalid"),
        ("a <b@c> d", "a b@c d", "a-b-c-d@people.clia.invalid"),
        (None, "Tess", "tess@example.org"),
    ],
)
def test_whoever_decides_is_the_committer(here: Place, space: clia.Space, by: str | None, name: str, email: str) -> None:
    space.ask("scout", {"question": "?"})
    made = space.decide("scout", 1, by=by)
    assert git("log", "-1", "--format=%an|%cn|%ce", made.cid, cwd=here.root).strip() == f"scout|{name}|{email}"
    git("fsck", "--strict", cwd=here.root)
