"""Sessions that were recorded once are replayed for ever: whatever engine and code stand here, they must come to the same.

A journal that no longer replays is a session somewhere that no longer can go on: it is never recorded again to make it fit.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from clia.engine.monty import MontyEngine
from clia.errors import Nondeterminism
from clia.sessions import records
from clia.sessions.replay import KeptRuns, Replay
from clia.sessions.transitions import failure_json
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support.flows import FLOWS
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.records import Turn

ROOT = Path(__file__).resolve().parent.parent.parent
JOURNALS = ROOT / "tests" / "golden_journals"
TOOL = ROOT / "tools" / "record_golden.py"
NAMES = sorted(path.stem for path in JOURNALS.glob("*.json"))
FORMAT = 1


class Golden(NamedTuple):
    """A recorded session, and how it stood after each answer."""

    source: str
    journal: records.Journal
    turns: list[list[list[Any]]]
    end: dict[str, Any] | None

    def until(self, count: int) -> records.Journal:
        """The session as it was after some answers."""
        return self.journal._replace(resumes=self.journal.resumes[:count])


def read(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((JOURNALS / f"{name}.json").read_text(encoding="utf-8"))
    assert made["format"] == FORMAT
    return made


def golden(made: dict[str, Any]) -> Golden:
    """Through a store, as a session that was recorded then would be read now."""
    store = MemoryStore()
    with store.writing() as change:
        change.streams.append(records.stream("golden", "1"), made["events"])
    with store.reading() as view:
        journal = records.read_journal(view, "golden", "1")
    return Golden(made["source"], journal, made["turns"], made["end"])


@pytest.fixture(scope="module")
def engine() -> Iterator[MontyEngine]:
    made = MontyEngine()
    yield made
    made.close()


def replay(engine: MontyEngine, found: Golden) -> Replay:
    return Replay(engine, MemoryStore(), lambda _: found.source, KeptRuns(), "here")


def check_turn(turn: Turn, found: Golden, count: int) -> None:
    """The run stands where the recorded one stood after so many answers."""
    assert [list(call) for call in turn.pending] == found.turns[count]
    if turn.ended:
        assert count == len(found.turns) - 1
        assert found.end is not None
        assert found.end["status"] == ("finished" if turn.failure is None else "failed")
        assert found.end.get("result") == turn.result
        assert found.end.get("failure") == (None if turn.failure is None else failure_json(turn.failure))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_comes_to_the_same_at_every_answer(engine: MontyEngine, name: str) -> None:
    found = golden(read(name))
    for count in range(len(found.turns)):
        with replay(engine, found).run(found.until(count)) as run:
            check_turn(run.turn, found, count)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_comes_to_the_same_over_dumps(engine: MontyEngine, name: str) -> None:
    """At each answer the run is dumped, let go, and goes on from the dump."""
    found = golden(read(name))
    program = replay(engine, found).program(found.journal.origin)
    run = engine.start(program)
    for count, each in enumerate(found.journal.resumes):
        check_turn(run.turn, found, count)
        with run:
            dump, pending = run.dump(), run.turn.pending
        run = engine.load(program, dump, pending)
        run.answer(each.call, each.answer())
    with run:
        check_turn(run.turn, found, len(found.journal.resumes))


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_flow_has_the_same_id_still(name: str) -> None:
    """The ids of flows are in commits and checkpoints: what they name may not change."""
    found = golden(read(name))
    data = as_bytes(Behaviour(found.journal.origin.name, SESSION_FLOW, found.source).to_object())
    assert found.journal.origin.flow == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324  # git's own


@pytest.mark.parametrize("name", [name for name in NAMES if len(read(name)["turns"]) > 1])
def test_another_request_than_the_recorded_one_is_noticed(engine: MontyEngine, name: str) -> None:
    """Or the tests above would show nothing."""
    made = read(name)
    resumed = [event for event in made["events"] if event["event"] == "resumed"]
    resumed[-1]["resume"][1] = "0" * 32
    found = golden(made)
    with pytest.raises(Nondeterminism) as caught:
        replay(engine, found).run(found.journal)
    assert caught.value.fields["position"] == len(resumed) - 1


def test_every_form_of_a_flow_that_we_know_is_recorded() -> None:
    assert len(NAMES) >= 12
    assert not FLOWS.keys() - {name.partition("--")[0] for name in NAMES}
    ends = [read(name)["end"] for name in NAMES]
    assert {end and end["status"] for end in ends} == {"finished", "failed", None}
    answers = [event["resume"] for name in NAMES for event in read(name)["events"] if event["event"] == "resumed"]
    assert any(len(each) > 3 and each[3] for each in answers), "a request that was given up"
    assert any(len(each) > 4 and each[4] for each in answers), "a decision"
    assert len({read(name)["events"][0]["timezone"] for name in NAMES}) >= 3


def record(recipe: dict[str, Any], to: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(TOOL), "-", "--to", str(to)]
    return subprocess.run(words, input=json.dumps(recipe), capture_output=True, text=True, check=False)


def test_the_tool_records_a_session_that_replays_and_never_writes_one_again(engine: MontyEngine, tmp_path: Path) -> None:
    recipe = {"name": "fresh", "shows": "anything", "source": FLOWS["plan"], "input": {"goal": "x"}, "answers": [[1, "p"]]}
    assert record(recipe, tmp_path).returncode == 0
    path = tmp_path / "fresh.json"
    before = path.read_bytes()
    found = golden(json.loads(before))
    with replay(engine, found).run(found.journal) as run:
        check_turn(run.turn, found, 1)
    again = record(recipe | {"answers": []}, tmp_path)
    assert again.returncode == 1
    assert "never overwritten" in again.stderr
    assert path.read_bytes() == before


def test_the_tool_leaves_nothing_of_a_flow_that_cannot_work(tmp_path: Path) -> None:
    refused = record({"name": "bad", "shows": "-", "source": "def main(:", "answers": []}, tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("bad: ")
    assert list(tmp_path.iterdir()) == []
