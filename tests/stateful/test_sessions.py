"""Sessions do what a plain model of them says, whatever the order of verbs, crashes, reopenings and losses."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import clia
from clia.errors import CliaError, StaleRequest
from clia.sessions.records import SNAPSHOT
from support.session_driver import check_sessions
from support.session_model import ASK, CHOICES, SOURCES, Agent, Answer, Run, Stand, stand, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay", "gus")


class Crash(BaseException):
    """Sudden death, as far as one process can play it."""


agents = st.integers(0, 5)
flows = st.sampled_from(sorted(SOURCES))
turns = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), min_size=1, max_size=6)
crashes = st.none() | st.none() | st.integers(1, 13)


class SessionMachine(RuleBasedStateMachine):
    """Runs each verb on real sessions, and says in the model what must have come of it."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.seen: list[str] = []
        self.chosen = clia.Settings(durable=False, clock=lambda: NOW, person=("Tess", "tess@example.org"), reached=self.reached)
        self.space = clia.init(self.directory, settings=self.chosen)
        self.agents: dict[str, Agent] = {}
        self.numbers = count(1)
        self.lost = False
        self.known: dict[tuple[int, tuple[Answer, ...]], Any] = {}

    def teardown(self) -> None:
        report = self.space.verify()
        assert report.clean, report.findings
        check_sessions(self.space, store_was_lost=self.lost)
        self.space.close()
        shutil.rmtree(self.directory)

    def reached(self, step: str) -> None:
        self.seen.append(step)
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise Crash

    def reopen(self) -> None:
        self.space.close()
        self.left = None
        self.space = clia.open(self.directory, settings=self.chosen)

    def attempt(self, verb: Callable[[], object], crash: int | None) -> bool:
        """Whether a verb was done. One that dies is done where it died past its point of no return."""
        self.seen, self.left = [], crash
        try:
            verb()
        except Crash:
            past = "committed" in self.seen or "finished" in self.seen
            self.reopen()
            return past
        finally:
            self.left = None
        return True

    def refused(self, code: str, verb: Callable[[], object]) -> CliaError:
        with pytest.raises(CliaError) as found:
            verb()
        assert found.value.code == code, found.value
        return found.value

    def pick(self, number: int) -> str:
        return sorted(self.agents)[number % len(self.agents)]

    def pick_live(self, number: int, *, live: bool = True) -> str:
        """Mostly an agent with a live session, or without one; or little would ever happen."""
        some = sorted(name for name, agent in self.agents.items() if (agent.live is not None) == live)
        return some[number % len(some)] if some and number < 4 else self.pick(number)

    def free(self) -> str | None:
        return next((name for name in NAMES if name not in self.agents), None)

    # Verbs

    @initialize()
    def flows_and_agents(self) -> None:
        for name, source in SOURCES.items():
            self.space.define(name, source)
        for name in NAMES[:2]:
            self.agents[name] = Agent(self.space.spawn(name, clia.Briefing("x")).genesis)

    @rule(flow=flows, crash=crashes)
    def define(self, flow: str, crash: int | None) -> None:
        """Another version: what runs goes on with its own."""
        source = f"{SOURCES[flow]}# {next(self.numbers)}\n"
        before = self.space.flow(flow)
        done = self.attempt(lambda: self.space.define(flow, source), crash)
        assert (self.space.flow(flow).source == source) == done
        assert self.space.flow(before.cid).source == before.source

    @rule(who=agents, flow=flows, given=st.integers(0, 6), crash=crashes)
    def start(self, who: int, flow: str, given: int, crash: int | None) -> None:
        name = self.pick_live(who, live=False)
        agent = self.agents[name]
        if agent.live is not None:
            self.refused("session-live", lambda: self.space.start(name, flow, given))
        elif self.attempt(lambda: self.space.start(name, flow, given), crash):
            agent.last += 1
            run = Run(next(self.numbers), flow, given, began_on=agent.commits[-1])
            agent.sessions[str(agent.last)] = run
            self.ended(agent, str(agent.last))

    def ended(self, agent: Agent, session: str) -> None:
        """An end is an event in git."""
        if agent.sessions[session].status != "suspended":
            agent.in_git.append(int(session))

    @rule(who=agents, flow=flows, given=st.integers(0, 6), turns=turns, crash=crashes)
    def work(self, who: int, flow: str, given: int, turns: list[tuple[int, int, bool]], crash: int | None) -> None:
        """Some turns in a row, with commits in between; only the last may crash, or runs would never be long."""
        name = self.pick_live(who)
        if self.agents[name].live is None:
            self.start(who, flow, given, None)
        for number, (which, value, commits) in enumerate(turns, 1):
            if commits:
                self.commit(who, True, None)
            if self.agents[name].live is not None:
                self.answer_one(name, which, value, crash if number == len(turns) else None)

    def answer_one(self, name: str, which: int, value: int, crash: int | None) -> None:
        """One of the requests that wait; a value below 2 gives it up."""
        agent, session = self.agents[name], self.agents[name].live
        assert session is not None
        run = agent.sessions[session]
        pending = run.stand.pending
        call = sorted(pending)[which % len(pending)]
        request = f"{session}.{call}"
        if pending[call][0] == "human":
            self.decide(name, request, Answer(call, CHOICES[value % 2]), crash)
            return
        answer = Answer(call, value) if value > 1 else Answer(call, None, "no luck")
        if answer.error is None:
            done = self.attempt(lambda: self.space.resume(name, value, request), crash)
        else:
            done = self.attempt(lambda: self.space.give_up(name, "no luck", request), crash)
        if done:
            agent.sessions[session] = run._replace(answers=(*run.answers, answer))
            self.ended(agent, session)

    def decide(self, name: str, request: str, answer: Answer, crash: int | None) -> None:
        """A person's answer, after two that are refused: by the wrong verb, and with a wrong value."""
        agent = self.agents[name]
        self.refused("human-request", lambda: self.space.resume(name, answer.value, request))
        self.refused("invalid-answer", lambda: self.space.decide(name, "perhaps", request_id=request))
        if not self.attempt(lambda: self.space.decide(name, answer.value, "so be it", request_id=request), crash):
            return
        cid = self.space.head(name)
        agent.committed(cid)
        session = request.partition(".")[0]
        if session in agent.asks:
            agent.asks[session] = (agent.asks[session][0], answer.value)
            agent.asks_in_git.append(int(session.removeprefix(ASK)))
            return
        run = agent.sessions[session]
        decided = (*run.decided, (len(run.answers), cid))
        agent.sessions[session] = run._replace(answers=(*run.answers, answer), decided=decided)
        self.ended(agent, session)

    @rule(who=agents, data=st.data())
    def answer_again(self, who: int, data: st.DataObject) -> None:
        name = self.pick(who)
        agent = self.agents[name]
        given = [(session, each) for session, run in agent.sessions.items() for each in run.answers]
        if not given:
            return
        session, old = data.draw(st.sampled_from(given))
        request = f"{session}.{old.call}"
        if data.draw(st.booleans()):
            error = self.refused("stale-request", lambda: self.space.resume(name, 1, request))
        else:
            error = self.refused("stale-request", lambda: self.space.decide(name, 1, request_id=request))
        assert isinstance(error, StaleRequest)
        assert (error.answered_by, error.fields["value"]) == ("Tess <tess@example.org>", old.value)

    @rule(who=agents, which=st.integers(0, 3), answers=st.booleans(), crash=crashes)
    def question(self, who: int, which: int, answers: bool, crash: int | None) -> None:
        """Asked beside the session, or answered."""
        name = self.pick(who)
        agent = self.agents[name]
        still = [session for session, (_, answer) in agent.asks.items() if answer is None]
        if still and answers:
            self.decide(name, f"{still[which % len(still)]}.1", Answer(1, CHOICES[which % 2]), crash)
            return
        question = {"question": f"number {next(self.numbers)}", "choices": CHOICES}
        if self.attempt(lambda: self.space.ask(name, question), crash):
            agent.asked += 1
            agent.asks[f"{ASK}{agent.asked}"] = (question, None)

    @rule(who=agents, crash=crashes)
    def cancel(self, who: int, crash: int | None) -> None:
        name = self.pick(who)
        agent, session = self.agents[name], self.agents[name].live
        if session is None:
            self.refused("session-over" if agent.sessions else "no-such-session", lambda: self.space.cancel(name, "enough"))
        elif self.attempt(lambda: self.space.cancel(name, "enough"), crash):
            agent.sessions[session] = agent.sessions[session]._replace(cancelled=True)
            self.ended(agent, session)

    @rule(who=agents, traced=st.booleans(), crash=crashes)
    def commit(self, who: int, traced: bool, crash: int | None) -> None:
        name = self.pick_live(who)
        verb = self.space.commit_with_trace if traced else self.space.commit
        data = str(next(self.numbers)).encode()
        if self.attempt(lambda: verb(name, "finding", changes={"a": data}), crash):
            self.agents[name].committed(self.space.head(name))

    @rule(who=agents, crash=crashes)
    def fork_now(self, who: int, crash: int | None) -> None:
        name, made = self.pick_live(who), self.free()
        session = self.agents[name].live
        if made is None:
            return
        if session is None:
            self.refused("no-such-session", lambda: self.space.fork(name, made))
        elif self.attempt(lambda: self.space.fork(name, made), crash):
            self.forked(made, self.agents[name].sessions[session])

    @rule(who=agents, data=st.data(), crash=crashes)
    def fork_at(self, who: int, data: st.DataObject, crash: int | None) -> None:
        name, made = self.pick(who), self.free()
        if made is None:
            return
        cid = data.draw(st.sampled_from(self.agents[name].commits))
        candidates = self.agents[name].candidates(cid)
        if not candidates:
            self.refused("no-checkpoint", lambda: self.space.fork(name, made, cid))
        elif self.attempt(lambda: self.space.fork(name, made, cid), crash):
            source = self.space.session(made).flow, self.space.session(made).input, self.space.session(made).resumes
            fits = [run for run in candidates if (run.flow, run.given, values(run)) == source]
            assert fits, (source, candidates)
            # Two starts of the same kind on one commit cannot be told apart by what they are, only by what they draw.
            self.forked(made, fits[0] if len(fits) == 1 else fits[0]._replace(root=next(self.numbers)))

    def forked(self, made: str, run: Run) -> None:
        agent = self.agents[made] = Agent(self.space.head(made))
        agent.last = 1
        agent.sessions["1"] = run._replace(began_on=None)
        agent.checkpoints[agent.commits[0]] = agent.sessions["1"]
        agent.in_git.append(1)

    # What befalls a space

    @rule(what=st.sampled_from(["fresh handle", "fresh handle", "gone", "garbled", "of another engine", "store"]))
    def befalls(self, what: str) -> None:
        if what == "fresh handle":
            self.reopen()
        elif what == "store":
            self.lose_the_store()
        else:
            self.lose_snapshots(what)

    def lose_snapshots(self, how: str) -> None:
        with self.space.core.store.writing() as change:
            for key, made in change.values.scan(SNAPSHOT):
                if how == "gone":
                    change.values.delete(key)
                elif how == "garbled":
                    change.values.put(key, [*made[:4], made[4][::-1], made[5]])
                else:
                    change.values.put(key, [made[0], "another", *made[2:]])

    def lose_the_store(self) -> None:
        """What was not in git is gone; forks from commits must work all the same."""
        self.space.close()
        for file in (self.directory / ".git/clia").glob("space.db*"):
            file.unlink()
        self.lost = True
        for agent in self.agents.values():
            agent.forget()
        self.space = clia.open(self.directory, settings=self.chosen)

    # What must be true

    @invariant()
    def sessions_are_as_the_model_says(self) -> None:
        for name, agent in self.agents.items():
            found = {each.id: each for each in self.space.sessions(name)}
            assert found.keys() == agent.sessions.keys()
            for session, run in agent.sessions.items():
                self.check(found[session], session, run)
        waiting = {(each.agent, each.id) for each in self.space.pending()}
        assert waiting == {(name, request) for name, agent in self.agents.items() for request in agent.waiting()}

    def check(self, found: clia.Session, session: str, run: Run) -> None:
        where = run.stand
        assert (found.status, found.flow, found.input) == (run.status, run.flow, run.given)
        asked = {int(each.id.removeprefix(f"{session}.")): (each.kind, each.tag, each.payload) for each in found.pending}
        assert asked == where.pending
        assert found.result == where.result
        assert found.resumes == values(run)
        assert tuple(found.decisions) == run.decided
        if where.failure is not None:
            assert found.failure is not None
            assert found.failure["message"] == where.failure
        if not run.cancelled:  # what the engine drew, it draws again: after a reopening, and in every fork
            drawn = json.dumps([[each.payload for each in found.pending], found.result])
            assert self.known.setdefault((run.root, run.answers), drawn) == drawn

    @invariant()
    def commits_are_as_the_model_says(self) -> None:
        for name, agent in self.agents.items():
            assert [each.cid for each in reversed(self.space.session_log(name))] == agent.commits


def test_sessions_do_what_the_model_does(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = count()

    class Machine(SessionMachine):
        def __init__(self) -> None:
            self.directory = tmp_path / str(next(numbers))
            super().__init__()

    soak = request.config.getoption("--soak")
    run_state_machine_as_test(Machine, settings=settings(max_examples=400 if soak else 20, stateful_step_count=60 if soak else 25))


def test_the_model_tells_runs_apart() -> None:
    """The model's own runs, on cases decided by hand: a model that says the same of everything would check nothing."""
    assert stand("count", 1, ()) == Stand({1: ("work", None, {"n": 0, "total": 0})})
    assert stand("count", 1, (Answer(1, None, "ouch"),)).pending[2][2]["total"] == -4
    assert stand("count", 0, (Answer(1, "yes"),)) == Stand({}, [0, "yes"])
    assert stand("strict", 7, (Answer(1, 2), Answer(2, "late"))) == Stand({3: ("suspend", "last", {"first": 2})})
    assert stand("strict", 7, (Answer(1, None, "ouch"),)) == Stand({}, failure="RuntimeError: ouch")
    assert stand("at-once", 7, ()) == Stand({}, 7)
    assert stand("gather", 0, (Answer(3, 3), Answer(1, 1))).pending.keys() == {2}
    assert stand("gather", 0, (Answer(3, 3), Answer(1, 1), Answer(2, "no"))).pending == {4: ("last", None, [1, "no", 3])}
