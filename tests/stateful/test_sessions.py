"""Sessions behave like a simple model under any order of verbs, crashes, reopenings and losses."""

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
from clia.sessions import request_rows
from clia.sessions.records import SNAPSHOT
from clia.sessions.request_rows import INLINE_MAX
from support.session_driver import check_sessions
from support.session_model import ASK, CHOICES, SOURCES, Agent, ModelAnswer, Run, RunState, state_of, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay", "gus")


class SimulatedCrash(BaseException):
    """Simulates a crash within the process."""


agents = st.integers(0, 5)
flows = st.sampled_from(sorted(SOURCES))
turns = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), min_size=1, max_size=6)
crashes = st.none() | st.none() | st.integers(1, 13)


class SessionMachine(RuleBasedStateMachine):
    """Runs each verb on real sessions, and updates the model with the expected result."""

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
        self.random_values: dict[tuple[int, tuple[ModelAnswer, ...]], Any] = {}

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            request_rows.INLINE_MAX = INLINE_MAX
        self.space.close()
        shutil.rmtree(self.directory)

    def check_all(self) -> None:
        report = self.space.verify()
        assert report.clean, report.findings
        check_sessions(self.space, store_was_lost=self.lost)

    def reached(self, step: str) -> None:
        self.seen.append(step)
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise SimulatedCrash

    def reopen(self) -> None:
        self.space.close()
        self.left = None
        self.space = clia.open(self.directory, settings=self.chosen)

    def attempt(self, verb: Callable[[], object], crash: int | None) -> bool:
        """Run a verb and return whether it took effect. One that crashes takes effect after its point of no return."""
        self.seen, self.left = [], crash
        try:
            verb()
        except SimulatedCrash:
            past = "committed" in self.seen or "finished" in self.seen
            self.reopen()
            return past
        finally:
            self.left = None
        return True

    def refused(self, code: str, verb: Callable[[], object]) -> CliaError:
        with pytest.raises(CliaError) as caught:
            verb()
        assert caught.value.code == code, caught.value
        return caught.value

    def pick(self, number: int) -> str:
        return sorted(self.agents)[number % len(self.agents)]

    def pick_live(self, number: int, *, live: bool = True) -> str:
        """Pick mostly an agent with a live session (or without one), so that most verbs succeed."""
        candidates = sorted(name for name, agent in self.agents.items() if (agent.live is not None) == live)
        return candidates[number % len(candidates)] if candidates and number < 4 else self.pick(number)

    def free(self) -> str | None:
        return next((name for name in NAMES if name not in self.agents), None)

    # Verbs

    @initialize(inline=st.sampled_from([INLINE_MAX, 1]))
    def flows_and_agents(self, inline: int) -> None:
        """``inline``: how many pending requests a session's row holds; with more, each has its own row."""
        request_rows.INLINE_MAX = inline
        for name, source in SOURCES.items():
            self.space.define(name, source)
        for name in NAMES[:2]:
            self.agents[name] = Agent(self.space.spawn(name, clia.Briefing("x")).genesis)

    @rule(flow=flows, crash=crashes)
    def define(self, flow: str, crash: int | None) -> None:
        """Define a new version; running sessions keep theirs."""
        source = f"{SOURCES[flow]}# {next(self.numbers)}\n"
        before = self.space.flow(flow)
        completed = self.attempt(lambda: self.space.define(flow, source), crash)
        assert (self.space.flow(flow).source == source) == completed
        assert self.space.flow(before.cid).source == before.source

    @rule(index=agents, flow=flows, flow_input=st.integers(0, 6), crash=crashes)
    def start(self, index: int, flow: str, flow_input: int, crash: int | None) -> None:
        name = self.pick_live(index, live=False)
        agent = self.agents[name]
        if agent.live is not None:
            self.refused("session-live", lambda: self.space.start(name, flow, flow_input))
        elif self.attempt(lambda: self.space.start(name, flow, flow_input), crash):
            agent.last += 1
            run = Run(next(self.numbers), flow, flow_input, began_on=agent.commits[-1])
            agent.sessions[str(agent.last)] = run
            self.ended(agent, str(agent.last))

    def ended(self, agent: Agent, session: str) -> None:
        """The end of a session is an event in git."""
        if agent.sessions[session].status != "suspended":
            agent.in_git.append(int(session))

    @rule(index=agents, flow=flows, flow_input=st.integers(0, 6), turns=turns, crash=crashes)
    def work(self, index: int, flow: str, flow_input: int, turns: list[tuple[int, int, bool]], crash: int | None) -> None:
        """Several turns with commits in between; only the last may crash, so that runs get long."""
        name = self.pick_live(index)
        if self.agents[name].live is None:
            self.start(index, flow, flow_input, None)
        for number, (request_index, value, commits) in enumerate(turns, 1):
            if commits:
                self.commit(index, True, None)
            if self.agents[name].live is not None:
                self.answer_one(name, request_index, value, crash if number == len(turns) else None)

    def answer_one(self, name: str, request_index: int, value: int, crash: int | None) -> None:
        """Answer a pending request; a value below 2 gives it up."""
        agent, session = self.agents[name], self.agents[name].live
        assert session is not None
        run = agent.sessions[session]
        pending = run.state.pending
        call = sorted(pending)[request_index % len(pending)]
        request = f"{session}.{call}"
        if pending[call][0] == "human":
            self.decide(name, request, ModelAnswer(call, CHOICES[value % 2]), crash)
            return
        answer = ModelAnswer(call, value) if value > 1 else ModelAnswer(call, None, "no luck")
        if answer.error is None:
            completed = self.attempt(lambda: self.space.resume(name, value, request), crash)
        else:
            completed = self.attempt(lambda: self.space.give_up(name, "no luck", request), crash)
        if completed:
            agent.sessions[session] = run._replace(answers=(*run.answers, answer))
            self.ended(agent, session)

    def decide(self, name: str, request: str, answer: ModelAnswer, crash: int | None) -> None:
        """A person's answer, after two refused ones: with the wrong verb, and with a wrong value."""
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
        agent.sessions[session] = agent.proved[session] = run._replace(answers=(*run.answers, answer), decided=decided)
        self.ended(agent, session)

    @rule(index=agents, data=st.data())
    def answer_again(self, index: int, data: st.DataObject) -> None:
        name = self.pick(index)
        agent = self.agents[name]
        given_answers = [(session, answer) for session, run in agent.sessions.items() for answer in run.answers]
        if not given_answers:
            return
        session, old = data.draw(st.sampled_from(given_answers))
        request = f"{session}.{old.call}"
        if data.draw(st.booleans()):
            error = self.refused("stale-request", lambda: self.space.resume(name, 1, request))
        else:
            error = self.refused("stale-request", lambda: self.space.decide(name, 1, request_id=request))
        assert isinstance(error, StaleRequest)
        assert (error.answered_by, error.fields["value"]) == ("Tess <tess@example.org>", old.value)

    @rule(index=agents, request_index=st.integers(0, 3), answers=st.booleans(), crash=crashes)
    def question(self, index: int, request_index: int, answers: bool, crash: int | None) -> None:
        """Ask or answer a question outside the session."""
        name = self.pick(index)
        agent = self.agents[name]
        still = [session for session, (_, answer) in agent.asks.items() if answer is None]
        if still and answers:
            self.decide(name, f"{still[request_index % len(still)]}.1", ModelAnswer(1, CHOICES[request_index % 2]), crash)
            return
        question = {"question": f"number {next(self.numbers)}", "choices": CHOICES}
        if self.attempt(lambda: self.space.ask(name, question), crash):
            agent.last_ask += 1
            agent.asks[f"{ASK}{agent.last_ask}"] = (question, None)

    @rule(index=agents, crash=crashes)
    def cancel(self, index: int, crash: int | None) -> None:
        name = self.pick(index)
        agent, session = self.agents[name], self.agents[name].live
        if session is None:
            self.refused("session-over" if agent.sessions else "no-such-session", lambda: self.space.cancel(name, "enough"))
        elif self.attempt(lambda: self.space.cancel(name, "enough"), crash):
            agent.sessions[session] = agent.sessions[session]._replace(cancelled=True)
            self.ended(agent, session)

    @rule(index=agents, traced=st.booleans(), crash=crashes)
    def commit(self, index: int, traced: bool, crash: int | None) -> None:
        name = self.pick_live(index)
        verb = self.space.commit_with_trace if traced else self.space.commit
        data = str(next(self.numbers)).encode()
        if self.attempt(lambda: verb(name, "finding", changes={"a": data}), crash):
            self.agents[name].committed(self.space.head(name))

    @rule(index=agents, crash=crashes)
    def fork_now(self, index: int, crash: int | None) -> None:
        name, fork = self.pick_live(index), self.free()
        session = self.agents[name].live
        if fork is None:
            return
        if session is None:
            self.refused("no-such-session", lambda: self.space.fork(name, fork))
        elif self.attempt(lambda: self.space.fork(name, fork), crash):
            self.forked(fork, self.agents[name].sessions[session])

    @rule(index=agents, data=st.data(), crash=crashes)
    def fork_at(self, index: int, data: st.DataObject, crash: int | None) -> None:
        name, fork = self.pick(index), self.free()
        if fork is None:
            return
        cid = data.draw(st.sampled_from(self.agents[name].commits))
        candidates = self.agents[name].candidates(cid)
        if not candidates:
            self.refused("no-checkpoint", lambda: self.space.fork(name, fork, cid))
        elif self.attempt(lambda: self.space.fork(name, fork, cid), crash):
            source = self.space.session(fork).flow, self.space.session(fork).input, self.space.session(fork).resumes
            fits = [run for run in candidates if (run.flow, run.flow_input, values(run)) == source]
            assert fits, (source, candidates)
            # Two equal starts on one commit differ only in their random numbers.
            self.forked(fork, fits[0] if len(fits) == 1 else fits[0]._replace(root=next(self.numbers)))

    def forked(self, fork: str, run: Run) -> None:
        agent = self.agents[fork] = Agent(self.space.head(fork))
        agent.last = 1
        agent.sessions["1"] = run._replace(began_on=None)
        agent.checkpoints[agent.commits[0]] = agent.proved["1"] = agent.sessions["1"]
        agent.in_git.append(1)

    # Losses

    @rule(event=st.sampled_from(["fresh handle", "fresh handle", "gone", "garbled", "of another engine", "store"]))
    def lose_or_reopen(self, event: str) -> None:
        if event == "fresh handle":
            self.reopen()
        elif event == "store":
            self.lose_the_store()
        else:
            self.lose_snapshots(event)

    def lose_snapshots(self, damage: str) -> None:
        with self.space.local.store.writing() as change:
            for key, row in change.values.scan(SNAPSHOT):
                if damage == "gone":
                    change.values.delete(key)
                elif damage == "garbled":
                    change.values.put(key, [*row[:4], row[4][::-1], row[5]])
                else:
                    change.values.put(key, [row[0], "another", *row[2:]])

    def lose_the_store(self) -> None:
        """Lose everything that is not in git, and rebuild the store; forks from commits must still work."""
        self.space.close()
        for file in (self.directory / ".git/clia").glob("space.db*"):
            file.unlink()
        self.lost = True
        for agent in self.agents.values():
            agent.forget()
        self.space = clia.open(self.directory, settings=self.chosen)
        if self.space.doctor():
            self.refused("store-lost", lambda: self.space.commit(next(iter(self.agents)), "finding", changes={"a": b"1"}))
            self.space.doctor(repair=True)
        assert self.space.doctor() == []

    # Invariants

    @invariant()
    def sessions_are_as_the_model_says(self) -> None:
        for name, agent in self.agents.items():
            records = {record.id: record for record in self.space.sessions(name)}
            assert records.keys() == agent.sessions.keys()
            for session, run in agent.sessions.items():
                self.check(records[session], session, run)
        waiting = {(request.agent, request.id) for request in self.space.pending()}
        assert waiting == {(name, request) for name, agent in self.agents.items() for request in agent.waiting()}

    def check(self, record: clia.Session, session: str, run: Run) -> None:
        state = run.state
        assert (record.status, record.flow, record.input) == (run.status, run.flow, run.flow_input)
        requests = {
            int(request.id.removeprefix(f"{session}.")): (request.kind, request.tag, request.payload) for request in record.pending
        }
        assert requests == state.pending
        assert record.result == state.result
        assert record.resumes == values(run)
        assert tuple(record.decisions) == run.decided
        if state.failure is not None:
            assert record.failure is not None
            assert record.failure["message"] == state.failure
        if not run.cancelled:  # the engine's random numbers are the same after a reopening and in every fork
            drawn = json.dumps([[request.payload for request in record.pending], record.result])
            assert self.random_values.setdefault((run.root, run.answers), drawn) == drawn

    @invariant()
    def commits_are_as_the_model_says(self) -> None:
        for name, agent in self.agents.items():
            assert [entry.cid for entry in reversed(self.space.session_log(name))] == agent.commits


def test_sessions_behave_like_the_model(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = count()

    class Machine(SessionMachine):
        def __init__(self) -> None:
            self.directory = tmp_path / str(next(numbers))
            super().__init__()

    soak = request.config.getoption("--soak")
    run_state_machine_as_test(Machine, settings=settings(max_examples=400 if soak else 20, stateful_step_count=60 if soak else 25))


def test_the_model_distinguishes_runs() -> None:
    """The model itself, on known cases: a model that accepts everything would check nothing."""
    assert state_of("count", 1, ()) == RunState({1: ("work", None, {"n": 0, "total": 0})})
    assert state_of("count", 1, (ModelAnswer(1, None, "ouch"),)).pending[2][2]["total"] == -4
    assert state_of("count", 0, (ModelAnswer(1, "yes"),)) == RunState({}, [0, "yes"])
    assert state_of("strict", 7, (ModelAnswer(1, 2), ModelAnswer(2, "late"))) == RunState({3: ("suspend", "last", {"first": 2})})
    assert state_of("strict", 7, (ModelAnswer(1, None, "ouch"),)) == RunState({}, failure="RuntimeError: ouch")
    assert state_of("at-once", 7, ()) == RunState({}, 7)
    assert state_of("gather", 0, (ModelAnswer(3, 3), ModelAnswer(1, 1))).pending.keys() == {2}
    assert state_of("gather", 0, (ModelAnswer(3, 3), ModelAnswer(1, 1), ModelAnswer(2, "no"))).pending == {
        4: ("last", None, [1, "no", 3])
    }
