"""Random histories of clia and of a person's git, with faults: what was acknowledged is there once, or a finding names its loss."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import git
from support.crashes import apart
from support.fuzzer import history, oracle, person
from support.fuzzer.history import Broken, plan
from support.fuzzer.place import Outcome, Place, make
from support.fuzzer.traced import KILL, STOP, Fault, Run, is_possible

if TYPE_CHECKING:
    from collections.abc import Sequence

SOAK_SECONDS, STEPS = 3600, 16

pytestmark = pytest.mark.skipif(not is_possible(), reason="processes cannot be traced here")


def play(seed: str, top: str, steps: int) -> None:
    """Play a history, for a process that may fork; a broken promise is reported with a command that replays it."""
    planned = plan(seed, steps)
    directory = Path(top, "history")
    directory.mkdir()
    try:
        history.play(seed, directory, planned)
    except Broken as broken:
        few = history.shortened(seed, Path(top, "shorter"), planned)
        raise AssertionError(f"{broken}\nreplay: {history.replay_command(seed, few, steps)}") from None


@pytest.mark.parametrize("number", range(2))
def test_histories_keep_what_they_acknowledge(tmp_path: Path, number: int) -> None:
    apart(play, f"test {number}", str(tmp_path), STEPS)


def test_histories_keep_what_they_acknowledge_for_an_hour(tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("a soak plays them")
    end, number = time.monotonic() + SOAK_SECONDS, 0
    while time.monotonic() < end:
        number += 1
        top = tmp_path / str(number)
        top.mkdir()
        apart(play, f"soak {os.getpid()} {number}", str(top), history.STEPS)


# The fuzzer itself


def place_in(top: Path) -> Place:
    place = Place(str(top), step=1)
    (top / "disk").mkdir()
    apart(make, place)
    return place


def problems_of(place: Place, outcomes: dict[str, Outcome], disturbed: Sequence[str] = ()) -> list[str]:
    expected = oracle.Expected(outcomes, frozenset(disturbed))
    return list(apart(oracle.problems, place, expected))


def test_the_oracle_sees_what_is_lost_repeated_or_not_undone(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    with place.open() as space:
        first = space.commit("ada", "finding", changes={"a": b"1"}, message="<s1>")
        space.trace("ada", "console", "<s2>")
    done = {
        "<s1>": Outcome("done", (("commit", "ada", first), ("message", "ada", "<s1>"))),
        "<s2>": Outcome("done", (("trace", "ada", "<s2>"),)),
    }
    assert problems_of(place, done) == []
    assert problems_of(place, done | {"<s3>": Outcome("done", (("trace", "ada", "<s3>"),))}) == [
        "ada has the trace entry <s3> 0 times"
    ]
    assert problems_of(place, {"<s1>": Outcome("refused")}) == ["<s1> was refused, but is there"]
    answer = Outcome("done", (("answer", "bob", "1.1", "<s4>"),))
    assert problems_of(place, {"<s4>": answer}) == ["the request 1.1 of bob has the answers None, not <s4>"]
    with place.open() as space:
        space.commit("ada", "finding", changes={"a": b"2"}, message="<s1>")
    assert problems_of(place, done) == ["ada has <s1> 2 times"]


def test_the_oracle_accepts_a_loss_by_a_person_that_a_finding_names(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    with place.open() as space:
        cid = space.commit("ada", "finding", changes={"a": b"1"}, message="<s1>")
    done = {"<s1>": Outcome("done", (("commit", "ada", cid), ("message", "ada", "<s1>")))}
    git("branch", "--force", "agents/ada", f"{cid}~1", cwd=place.root)
    assert problems_of(place, done, ["ada"]) == []
    assert len(problems_of(place, done)) == 3, "nobody is known to have moved it: two findings and a lost commit"
    git("reflog", "expire", "--expire=now", "--all", cwd=place.root)
    for file in (place.root / ".git/clia").glob("space.db*"):
        file.unlink()
    assert apart(oracle.accept_store, place) == []
    assert problems_of(place, done, ["ada"]) == [f"ada lost the commit {cid} (<s1>)"]


def test_a_run_is_killed_or_stopped_at_its_nth_change(tmp_path: Path) -> None:
    def write() -> str:
        for number in range(5):
            Path(str(number)).touch()
        return "done"

    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for directory in (one, two, three):
        directory.mkdir()
    killed = Run(write, Fault(KILL, 2), str(one)).wait().ended
    assert killed is not None
    assert (killed.result, killed.code, sorted(os.listdir(one))) == (None, -9, ["0", "1"])
    stopped = Run(write, Fault(STOP, 3), str(two)).wait()
    assert stopped.is_stopped
    assert sorted(os.listdir(two)) == ["0", "1", "2"]
    assert stopped.go_on().result == "done"
    assert len(os.listdir(two)) == 5
    whole = Run(write, Fault(KILL, 99), str(three)).wait().ended
    assert whole is not None
    assert (whole.result, whole.changes) == ("done", 5)


def test_a_program_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = "touch one; (touch two; touch three); touch four"
    stopped = Run(["sh", "-c", script], Fault(STOP, 2), str(tmp_path)).wait()
    assert stopped.is_stopped
    assert "three" not in os.listdir(tmp_path)
    assert stopped.go_on().code == 0
    assert sorted(os.listdir(tmp_path)) == ["four", "one", "three", "two"]


def test_a_history_is_shortened_to_the_steps_that_break_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan("any", 20)

    def broken(seed: str, top: Path, steps: Sequence[history.Step]) -> None:
        if {3, 17} <= {step.number for step in steps}:
            raise Broken(["lost"], [])

    monkeypatch.setattr(history, "play", broken)
    few = history.shortened("any", tmp_path, planned)
    assert [step.number for step in few] == [3, 17]
    assert history.replay_command("any", few, 20).endswith("--seed any --steps 20 --only 3,17")


def test_a_plan_depends_on_its_seed_alone() -> None:
    assert plan("a", 30) == plan("a", 40)[:30]
    assert plan("a") != plan("b")


def test_locks_of_killed_gits_are_removed_but_not_those_of_clia(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    own, foreign = (place.root / ".git/refs/heads" / name for name in ("own.lock", "foreign.lock"))
    foreign.touch()
    first = place.root / ".git/clia/ref-locks/1@boot@host@1"
    first.parent.mkdir(exist_ok=True)
    first.touch()
    own.hardlink_to(first)
    assert person.remove_locks(place.root) == [".git/refs/heads/foreign.lock"]
    assert own.exists()
