"""Sessions under test: flows with known ends, a space to copy on either store, and checks of all records of a session."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

import clia
from clia.sessions import records, request_rows
from clia.sessions.checkpoints import Checkpoints
from clia.sessions.records import ASK, COUNTS, ENDED, LIVE, OVER, RETRIED, SNAPSHOT
from clia.space.events import read_events
from clia.store.interface import FEED
from clia.testing import components
from clia.values import refs as names
from clia.values.typed_objects import parse
from support import git, postgres
from support.space_driver import BRIEFING, Paper, check_commits, postgres_url, settings, trace_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.sessions.model import Session
    from clia.space.model import AgentCommit
    from clia.store.interface import StreamEntry, Transaction

WORTH = {"tess": 1, "victim": 2, "second": 30, "next": 400}
"""The persons, and the value of their answers to a request for work: a sum shows who answered."""
CHOICES = [*WORTH, "fine"]
FINE = 5000
"""The value of every answer that ``brought_to_its_end`` gives."""

SUM = """\
def main(input):
    total = 0
    for number in range(input["times"]):
        try:
            total += request("work", {"total": total, "number": number})
        except RuntimeError as err:
            print("lost:", err)
            total -= 1
    if not input["choices"]:
        return {"total": total}
    verdicts = []
    for question in ("Is it right?", "Is it really?"):
        verdicts.append(request("human", {"question": question, "total": total, "choices": input["choices"]}))
    return {"total": total, "verdicts": verdicts}
"""
MANY = """\
import asyncio

async def main(input):
    works = [request("work", {"number": number}) for number in range(input)]
    question = request("human", {"question": "Which one?", "choices": ["tess", "victim", "second", "next", "fine"]})
    *numbers, verdict = await asyncio.gather(*works, question)
    return {"total": sum(numbers), "verdict": verdict}
"""
"""Waits for enough requests that each has a row of its own."""
STRICT = 'def main(input):\n    return request("work", {"only": input})\n'
NUMBER = 'def main(input):\n    return int(request("work", {"only": input}))\n'
AT_ONCE = "def main(input):\n    return [input, input]\n"
FLOWS = {"sum": SUM, "strict": STRICT, "at-once": AT_ONCE, "many": MANY, "number": NUMBER}
AT_TWO = "after two answers"
"""The message of scout's commit that has a checkpoint after two answers."""


class SessionCrashSpace(NamedTuple):
    """A space, its store if that is a server, and the paper with the acknowledged changes."""

    root: Path
    paper: Paper
    store: str | None = None

    @contextmanager
    def open(self, who: str = "next", reached: Callable[[str], None] | None = None) -> Iterator[clia.Space]:
        chosen = settings(reached=reached, store=self.store, person=(who, f"{who}@example.org"))
        with clia.open(self.root, settings=chosen) as space:
            yield space


class SessionTemplate(NamedTuple):
    """A space to be copied; in PostgreSQL its rows are copied with it."""

    home: Path
    address: str | None = None

    def copied(self, to: Path) -> SessionCrashSpace:
        shutil.copytree(self.home, to, symlinks=True, dirs_exist_ok=True)
        place = SessionCrashSpace(
            to / "space", Paper(str(to / "paper")), None if self.address is None else postgres_url(self.address)
        )
        if self.address is not None:
            _copy_rows(self.address, place.root / ".git/clia/clone")
        return place


def _copy_rows(address: str, clone: Path) -> None:
    """The copy is another clone, so its state is under another name."""
    old, new = clone.read_text(), str(uuid.uuid4())
    columns = {
        "clia_streams": "stream, last",
        "clia_entries": "stream, position, body",
        "clia_values": "key, version, value",
        "clia_edges": "src, kind, dst, origin, source",
        "clia_retractions": "origin, source",
    }
    with psycopg.connect(address) as connection:
        for table, rest in columns.items():
            copy: Any = (
                f"INSERT INTO {table} (space, {rest}) SELECT replace(space, %s, %s), {rest} FROM {table} WHERE space LIKE %s"  # noqa: S608  # constants
            )
            connection.execute(copy, [old, new, f"%{old}"])
    clone.write_text(new)


def make_template(home: str, address: str | None = None) -> None:
    """Agents with sessions in every state that a verb can find."""
    root, store = Path(home) / "space", None if address is None else postgres_url(address)
    root.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    with clia.init(root, settings=settings(store=store, person=("tess", "tess@example.org"))) as space:
        for flow, source in FLOWS.items():
            space.define(flow, source)
        for name in ("idle", "scout", "closer", "judge", "chair", "asker", "crowd", "broken"):
            space.spawn(name, BRIEFING)
        space.start("scout", "sum", {"times": 5, "choices": CHOICES})
        for number in range(3):
            space.resume("scout", WORTH["tess"])
            if number == 1:
                space.commit("scout", "finding", changes={"two.txt": b"2\n"}, message=AT_TWO)
        space.start("closer", "strict", "x")
        for name in ("judge", "chair"):
            space.start(name, "sum", {"times": 1, "choices": CHOICES})
            space.resume(name, WORTH["tess"])
        space.decide("chair", "tess", "so far so good")
        space.ask("asker", {"question": "May I?", "choices": CHOICES})
        space.start("crowd", "many", request_rows.INLINE_MAX + 1)
        space.start("broken", "number")
        space.resume("broken", "not a number")


def postgres_or_fail() -> str:
    try:
        return postgres.fresh()
    except postgres.NoPostgres as err:
        pytest.fail(str(err), pytrace=False)


def brought_to_its_end(space: clia.Space, agent: str) -> Session:
    """Answer every request of a session until it ends."""
    while (session := space.session(agent)).pending:
        for request in session.pending:
            if request.kind == "human":
                space.decide(agent, "fine", request_id=request.id)
            else:
                space.resume(agent, FINE, request.id)
    return session


# Checks


def check_nothing_lost(place: SessionCrashSpace, space: clia.Space) -> None:
    """Check that every acknowledged commit and entry exists once, the space is sound, and all records of a session agree."""
    report = space.verify()
    assert report.clean, report.findings
    assert not components(space).envelope.unfinished()
    check_commits(place.root, place.paper)
    texts = trace_texts(space, "console")
    assert set(texts.values()) <= {1}, texts
    assert not {text for (text,) in place.paper.read("entry")} - texts.keys()
    for agent, request, by in place.paper.read("answer"):
        assert answers(space, agent)[request] == by
    check_sessions(space)


def answers(space: clia.Space, agent: str) -> dict[str, str]:
    """The authors of answers by request."""
    authors: dict[str, str] = {}
    with space.local.store.reading() as view:
        for prefix in (LIVE, ENDED):
            for key, _ in view.values.scan(f"{prefix}{agent}/"):
                session = records.split(key)[1]
                for resume in records.read_journal(view, agent, session).resumes:
                    authors[f"{session}.{resume.call}"] = (resume.by or "").partition(" <")[0]
    return authors


def check_sessions(space: clia.Space, *, store_was_lost: bool = False) -> None:
    """Check for each agent that rows, streams, counts, commits, notes, events and traces agree about its sessions.

    After a store was lost, git has more than the store; events and traces are not compared then.
    """
    with space.local.store.reading() as view:
        by_agent = {agent: list(_sessions(view, agent)) for agent in space.agents()}
        rows = {agent: view.values.get(COUNTS + agent) for agent in by_agent}
        counts = {agent: row.value if row else {"last": 0, "asks": 0} for agent, row in rows.items()}
    for agent, sessions in by_agent.items():
        for session in sessions:
            session.check(space)
        _check_numbers(sessions, counts[agent], store_was_lost)
        own = space.session_log(agent)
        _check_checkpoints(space, agent, own, sessions, store_was_lost)
        if not store_was_lost:
            _check_commits(sessions, own)
            _check_events(space, agent, sessions)
            _check_traces(space, agent, sessions)
    if not store_was_lost:
        _check_feed(space, [session for sessions in by_agent.values() for session in sessions])


class Recorded(NamedTuple):
    """One session in the store."""

    agent: str
    session: str
    live: bool
    row: dict[str, Any]
    entries: list[StreamEntry]
    journal: records.Journal
    has_snapshot: bool

    def check(self, space: clia.Space) -> None:
        row, bodies = self.row, [entry.body for entry in self.entries]
        assert [entry.position for entry in self.entries] == list(range(1, row["end"] + 1))
        assert row["done"] == len(self.journal.resumes)
        calls = [resume.call for resume in self.journal.resumes]
        assert len(set(calls)) == len(calls), "a request was answered twice"
        since_retry = bodies[max((number for number, body in enumerate(bodies) if body["event"] == RETRIED), default=0) :]
        over = [body for body in since_retry if body["event"] == OVER]
        assert over == ([] if self.live else bodies[-1:])
        assert (row["status"] == "suspended") == self.live == bool(row["pending"])
        if not self.live:
            assert not self.has_snapshot
            assert {key: over[0].get(key) for key in ("status", "result", "failure")} == {
                key: row.get(key) for key in ("status", "result", "failure")
            }
        by_limit = (row.get("failure") or {}).get("reason") == "limit"  # which can end it anywhere
        if row["status"] != "diverged" and not by_limit:
            self._replayed(space)

    def _replayed(self, space: clia.Space) -> None:
        """Check that a replay of the recorded answers has the pending requests of the row."""
        with components(space).replay.run(self.journal) as run:
            if self.live:
                assert [list(call) for call in run.turn.pending] == [call[:5] for call in self.row["pending"]]
            elif self.row["status"] == "cancelled":
                assert not run.turn.ended
            elif self.row["status"] == "finished":
                assert (run.turn.failure, run.turn.result) == (None, self.row["result"])
            else:
                assert run.turn.failure is not None
                assert run.turn.failure.message == self.row["failure"]["message"]

    def steps(self, space: clia.Space) -> int:
        """The number of its own steps, without those copied from another run."""
        copied = 0
        if self.row.get("forked"):
            note = components(space).core.notes.get(names.sessions(self.agent), self.row["on"])
            assert note is not None
            checkpoint = parse(components(space).core.objects.blob(note))
            assert checkpoint is not None
            copied = checkpoint["done"]
        dropped = len(self.given()) - self.row["done"]  # answers before a retry
        return int(1 + self.row["done"] - copied + (self.row["status"] in ("cancelled", "diverged")) + 2 * dropped)

    def given(self) -> list[records.Resumed]:
        """Every answer, also those that a retry dropped."""
        return records.resumes_in([entry for entry in self.entries if entry.body["event"] != RETRIED], "")

    def ends(self) -> Iterator[tuple[str, str, int]]:
        """The session, the status and the number of answers of each end; a retried session may have several."""
        for number, entry in enumerate(self.entries):
            if entry.body["event"] == OVER:
                yield self.session, entry.body["status"], len(records.resumes_in(self.entries[:number], ""))


def _sessions(view: Transaction, agent: str) -> Iterator[Recorded]:
    for prefix in (LIVE, ENDED):
        for key, row in view.values.scan(f"{prefix}{agent}/"):
            session = records.split(key)[1]
            entries = view.streams.read(records.stream(agent, session))
            journal = records.read_journal(view, agent, session)
            has_snapshot = view.values.get(records.key(SNAPSHOT, agent, session)) is not None
            whole = request_rows.complete(view.values, agent, session, row)
            yield Recorded(agent, session, prefix == LIVE, whole, entries, journal, has_snapshot)
    rows = [records.split(key.rpartition("/")[0]) for key, _ in view.values.scan(f"{records.REQUEST}{agent}/")]
    of_many = [records.split(key) for key, row in view.values.scan(f"{LIVE}{agent}/") if request_rows.has_own_rows(row)]
    assert set(rows) == set(of_many), "requests have rows only while their session has many"


def _check_numbers(sessions: list[Recorded], counts: dict[str, int], lost: bool) -> None:
    """Check that numbers are unique and without gaps, and that only the last session is live. A lost store may miss the first."""
    plain = sorted(int(session.session) for session in sessions if not session.session.startswith(ASK))
    asks = sorted(int(session.session.removeprefix(ASK)) for session in sessions if session.session.startswith(ASK))
    assert plain == list(range(counts.get("last", 0) - len(plain) + 1 if lost else 1, counts.get("last", 0) + 1))
    assert asks == list(range(counts.get("asks", 0) - len(asks) + 1 if lost else 1, counts.get("asks", 0) + 1))
    assert [session.session for session in sessions if session.live and not session.session.startswith(ASK)] in (
        [],
        [str(counts.get("last", 0))],
    )


def _check_commits(sessions: list[Recorded], own: list[AgentCommit]) -> None:
    """Check that a decision is one commit and one resume of the same request with the same value."""
    resumes = [
        (resume.decision, f"{session.session}.{resume.call}", resume.value, resume.by)
        for session in sessions
        for resume in session.journal.resumes
        if resume.decision is not None and resume.decision in {commit.cid for commit in own}
    ]
    decided = [commit for commit in own if commit.kind == "decision"]
    commits = [(decision.cid, decision.request, json.loads(decision.value or ""), decision.by) for decision in decided]
    assert sorted(resumes, key=str) == sorted(commits, key=str)


def _check_checkpoints(space: clia.Space, agent: str, own: list[AgentCommit], sessions: list[Recorded], lost: bool) -> None:
    """Check that the checkpoint of each commit is a state that its session has passed."""
    checkpoints = Checkpoints(components(space).core)
    by_id = {session.session: session for session in sessions}
    for commit in own:
        if commit.behaviour is None or commit.kind == "spawn":
            continue
        checkpoint = checkpoints.find(agent, commit.cid)
        assert checkpoint.journal.origin.flow == commit.behaviour
        if lost:
            continue
        whole = by_id[checkpoint.session].journal
        count = len(checkpoint.journal.resumes)
        assert checkpoint.journal == records.Journal(whole.origin, whole.resumes[:count])
        if commit.kind == "decision" and not (commit.request or "").startswith(ASK):
            assert whole.resumes[count].decision == commit.cid


def _check_events(space: clia.Space, agent: str, sessions: list[Recorded]) -> None:
    """Check that each end is one event in git, and that a live session has none since it was retried."""
    tip = components(space).core.refs.get(names.events(agent))
    events = [] if tip is None else [dict(event.body) for event in read_events(components(space).core, tip)]
    ends = [(event["session"], event["status"], event["resumes"]) for event in events if event.get("event") == "session-ended"]
    assert sorted(ends) == sorted(end for session in sessions if not session.session.startswith(ASK) for end in session.ends())


def _check_traces(space: clia.Space, agent: str, sessions: list[Recorded]) -> None:
    """Check that each step of a session is one trace entry, bound or pending."""
    bound = [entry for trace in space.session_traces(agent) for entry in trace.trace.entries]
    every = [entry for entry in (*bound, *space.trace_pending(agent)) if entry["kind"] == "session"]
    assert Counter(entry["data"]["session"] for entry in every) == {session.session: session.steps(space) for session in sessions}


def _check_feed(space: clia.Space, sessions: list[Recorded]) -> None:
    """Check that each step of a session is one entry of the feed, consistent with the one before."""
    with space.local.store.reading() as view:
        bodies = [entry.body for entry in view.streams.read(FEED)]
    for session in sessions:
        steps = [body for body in bodies if (body.get("agent"), body.get("session")) == (session.agent, session.session)]
        assert len(steps) == session.steps(space)
        waited: set[str] = set()
        for body in steps:
            answered = body.get("answered", {}).get("request")
            assert answered in (None, *waited)
            waited = waited - {answered} | set(body["asked"]) if body["status"] == "suspended" else set()
            listed = set(body["asked"]) if len(waited) > request_rows.INLINE_MAX else waited
            assert {request["id"] for request in body["waits"]} == listed
            assert body.get("more", 0) == len(waited) - len(listed)
        expected = [(f"{session.session}.{resume.call}", resume.by, resume.decision) for resume in session.given()]
        answers = [body["answered"] for body in steps if "answered" in body]
        assert [(answer["request"], answer["by"], answer.get("decision")) for answer in answers] == expected[
            len(expected) - len(answers) :
        ]
        assert steps[-1]["status"] == session.row["status"]
        assert waited == {f"{session.session}.{call[0]}" for call in session.row["pending"]}
