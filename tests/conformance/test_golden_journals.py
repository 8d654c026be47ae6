"""Recorded sessions must replay to the same result with every later engine and code.

A journal that no longer replays means that users' sessions cannot continue. Do not record it again to make the test pass.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from clia.errors import Nondeterminism
from clia.sessions import records
from clia.sessions.replay import KeptRuns, Replay
from clia.sessions.transitions import failure_json
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support.flows import FLOWS
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from clia.engine.monty import MontyEngine
    from clia.engine.records import Turn

ROOT = Path(__file__).resolve().parent.parent.parent
JOURNALS = ROOT / "tests" / "golden_journals"
TOOL = ROOT / "tools" / "record_golden.py"
NAMES = sorted(path.stem for path in JOURNALS.glob("*.json"))
FORMAT = 1


class Golden(NamedTuple):
    """A recorded session, with its turn after each answer."""

    source: str
    journal: records.Journal
    turns: list[list[list[Any]]]
    end: dict[str, Any] | None

    def until(self, count: int) -> records.Journal:
        """The journal after some answers."""
        return self.journal._replace(resumes=self.journal.resumes[:count])


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((JOURNALS / f"{name}.json").read_text(encoding="utf-8"))
    assert document["format"] == FORMAT
    return document


def golden(document: dict[str, Any]) -> Golden:
    """Read the events through a store, like an old session."""
    store = MemoryStore()
    with store.writing() as change:
        change.streams.append(records.stream("golden", "1"), document["events"])
    with store.reading() as view:
        journal = records.read_journal(view, "golden", "1")
    return Golden(document["source"], journal, document["turns"], document["end"])


def replay(engine: MontyEngine, journal_case: Golden) -> Replay:
    return Replay(engine, MemoryStore(), lambda _: journal_case.source, KeptRuns(), "here")


def check_turn(turn: Turn, journal_case: Golden, count: int) -> None:
    """Check that a turn equals the recorded one after this number of answers."""
    assert [list(call) for call in turn.pending] == journal_case.turns[count]
    if turn.ended:
        assert count == len(journal_case.turns) - 1
        assert journal_case.end is not None
        assert journal_case.end["status"] == ("finished" if turn.failure is None else "failed")
        assert journal_case.end.get("result") == turn.result
        assert journal_case.end.get("failure") == (None if turn.failure is None else failure_json(turn.failure))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_has_the_same_turn_after_every_answer(engine: MontyEngine, name: str) -> None:
    journal_case = golden(read(name))
    for count in range(len(journal_case.turns)):
        with replay(engine, journal_case).run(journal_case.until(count)) as run:
            check_turn(run.turn, journal_case, count)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_has_the_same_turns_over_dumps(engine: MontyEngine, name: str) -> None:
    """At each answer the run is dumped, closed, and continued from the dump."""
    journal_case = golden(read(name))
    program = replay(engine, journal_case).program(journal_case.journal.origin)
    run = engine.start(program)
    for count, resume in enumerate(journal_case.journal.resumes):
        check_turn(run.turn, journal_case, count)
        with run:
            dump, pending = run.dump(), run.turn.pending
        run = engine.load(program, dump, pending)
        run.answer(resume.call, resume.answer())
    with run:
        check_turn(run.turn, journal_case, len(journal_case.journal.resumes))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_flow_keeps_its_id(name: str) -> None:
    """Commits and checkpoints contain the ids of flows, so these must not change."""
    journal_case = golden(read(name))
    data = as_bytes(Behaviour(journal_case.journal.origin.name, SESSION_FLOW, journal_case.source).to_object())
    assert journal_case.journal.origin.flow == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324  # git's own


@pytest.mark.parametrize("name", [name for name in NAMES if len(read(name)["turns"]) > 1])
def test_a_request_that_differs_from_the_record_is_detected(engine: MontyEngine, name: str) -> None:
    """Shows that the tests above can fail."""
    document = read(name)
    resumed = [event for event in document["events"] if event["event"] == "resumed"]
    resumed[-1]["resume"][1] = "0" * 32
    journal_case = golden(document)
    with pytest.raises(Nondeterminism) as caught:
        replay(engine, journal_case).run(journal_case.journal)
    assert caught.value.fields["position"] == len(resumed) - 1


def test_every_form_of_a_flow_is_recorded() -> None:
    assert len(NAMES) >= 12
    assert not FLOWS.keys() - {name.partition("--")[0] for name in NAMES}
    ends = [read(name)["end"] for name in NAMES]
    assert {end and end["status"] for end in ends} == {"finished", "failed", None}
    answers = [event["resume"] for name in NAMES for event in read(name)["events"] if event["event"] == "resumed"]
    assert any(len(answer) > 3 and answer[3] for answer in answers), "no recorded request was given up"
    assert any(len(answer) > 4 and answer[4] for answer in answers), "no decision is recorded"
    assert len({read(name)["events"][0]["timezone"] for name in NAMES}) >= 3


def record(recipe: dict[str, Any], to: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(TOOL), "-", "--to", str(to)]
    return subprocess.run(words, input=json.dumps(recipe), capture_output=True, text=True, check=False)


def test_the_tool_records_a_replayable_session_and_never_overwrites_one(engine: MontyEngine, tmp_path: Path) -> None:
    recipe = {"name": "fresh", "shows": "anything", "source": FLOWS["plan"], "input": {"goal": "x"}, "answers": [[1, "p"]]}
    assert record(recipe, tmp_path).returncode == 0
    path = tmp_path / "fresh.json"
    before = path.read_bytes()
    journal_case = golden(json.loads(before))
    with replay(engine, journal_case).run(journal_case.journal) as run:
        check_turn(run.turn, journal_case, 1)
    again = record(recipe | {"answers": []}, tmp_path)
    assert again.returncode == 1
    assert "never overwritten" in again.stderr
    assert path.read_bytes() == before


def test_the_tool_writes_nothing_for_an_invalid_flow(tmp_path: Path) -> None:
    refused = record({"name": "bad", "shows": "-", "source": "def main(:", "answers": []}, tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("bad: ")
    assert list(tmp_path.iterdir()) == []
