"""Many processes answer the same requests: each request takes one answer, and the losers learn the winner."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import clia
from clia.testing import components
from support import git
from support.machine_logs import superseded_commits
from support.session_flows import PARTS
from support.session_racer import Race, run
from support.session_spaces import STORES, ends
from support.space_driver import BRIEFING, Paper, postgres_url, settings

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES = 8
AGENTS = 10
QUESTIONS = """\
import asyncio

async def main(input):
    return await asyncio.gather(*[request("human", {"question": f"number {n}?"}) for n in range(input)])
"""


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str | None:
    return postgres_url(request.getfixturevalue("postgres_address")) if request.param == "postgresql" else None


@pytest.fixture
def requests(soak: bool) -> int:
    """The number of requests of each agent."""
    return 20 if soak else 6


def prepared(root: Path, store: str | None, source: str, requests: int) -> None:
    with clia.init(root, settings=settings(store=store)) as space:
        space.sessions.define("many", source)
        for agent in range(AGENTS):
            space.spawn(f"a{agent}", BRIEFING)
            space.start(f"a{agent}", "many", requests)


def raced(root: Path, store: str | None, verb: str, requests: int) -> dict[tuple[str, str], str]:
    """Check that each request was won once and that the losers learned the winner; return the winners by request."""
    paper = Paper(str(root.parent / "paper"))
    targets = [[[f"a{agent}", f"1.{call}"] for agent in range(AGENTS)] for call in range(1, requests + 1)]
    run(Race(str(root), store, paper.path, verb, targets), PROCESSES)
    won = {(agent, request): number for agent, request, number in paper.read("won")}
    assert len(paper.read("won")) == len(won) == AGENTS * requests
    lost = Counter((agent, request) for agent, request, *_ in paper.read("lost"))
    assert set(lost.values()) == {PROCESSES - 1}
    assert len(lost) == AGENTS * requests
    for agent, request, number, by, value in paper.read("lost"):
        winner = won[agent, request]
        assert (by, value) == (f"racer {winner}", winner)
        assert number != winner
    return won


def check_nothing_left(space: clia.Space) -> None:
    assert space.pending() == []
    assert not components(space).envelope.unfinished()
    with space.local.store.reading() as view:
        assert view.values.scan("live/") == view.values.scan("snapshot/") == []
    report = space.verify()
    assert report.clean, report.findings


def test_eight_processes_decide_the_same_requests(tmp_path: Path, store: str | None, requests: int) -> None:
    root = tmp_path / "repo"
    prepared(root, store, QUESTIONS, requests)
    won = raced(root, store, "decide", requests)
    with clia.open(root, settings=settings(store=store)) as space:
        for agent in (f"a{number}" for number in range(AGENTS)):
            session = space.session(agent)
            assert session.status == "finished"
            assert session.result == [[int(won[agent, f"1.{call}"]), f"1.{call}"] for call in range(1, requests + 1)]
            decisions = [commit for commit in space.log(agent) if commit.kind == "decision"]
            assert len(decisions) == requests
            assert {decision.request: decision.by for decision in decisions} == {
                request: f"racer {number}" for (winner, request), number in won.items() if winner == agent
            }
            assert [cid for _, cid in session.decisions] == [decision.cid for decision in reversed(decisions)]
            assert ends(root, agent) == [("1", "finished")]
        check_nothing_left(space)
    # The losers did not even write an unreachable commit.
    words = ["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"]
    commits = {cid for kind, cid in (line.split() for line in git(*words, cwd=root).splitlines()) if kind == "commit"}
    former_logs = set(superseded_commits(root))  # each entry of the machine's log replaces its commit
    assert commits - former_logs == set(git("rev-list", "--all", cwd=root).split())


def test_eight_processes_resume_the_same_requests(tmp_path: Path, store: str | None, requests: int) -> None:
    root = tmp_path / "repo"
    prepared(root, store, PARTS, requests)
    won = raced(root, store, "resume", requests)
    with clia.open(root, settings=settings(store=store)) as space:
        for agent in (f"a{number}" for number in range(AGENTS)):
            parts = space.resume(agent, "end").result["parts"]
            assert parts == [[int(won[agent, f"1.{call}"]), f"1.{call}"] for call in range(1, requests + 1)]
            journal = space.sessions.journal(agent)
            assert Counter(event["resume"][0] for event in journal if event["event"] == "resumed") == Counter(
                range(1, requests + 2)
            )
        check_nothing_left(space)


def test_processes_that_start_and_cancel_the_same_sessions_agree_on_each(tmp_path: Path, store: str | None) -> None:
    root, paper = tmp_path / "repo", Paper(str(tmp_path / "paper"))
    with clia.init(root, settings=settings(store=store)) as space:
        space.sessions.define("many", PARTS)
        space.spawn("scout", BRIEFING)
    run(Race(str(root), store, paper.path, "start", [[["scout", ""]]] * 5), PROCESSES)
    begun = sorted(int(session) for (session,) in paper.read("started"))
    over = sorted(int(session) for (session,) in paper.read("cancelled"))
    assert begun == over == [*range(1, len(begun) + 1)]
    assert {code for (code,) in paper.read("refused")} <= {"session-live"}
    assert {code for (code,) in paper.read("late")} <= {"session-over", "no-such-session"}
    with clia.open(root, settings=settings(store=store)) as space:
        assert ends(root, "scout") == [(str(number), "cancelled") for number in begun]
        check_nothing_left(space)
