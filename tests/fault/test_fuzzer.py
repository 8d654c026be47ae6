"""Random histories of clia and of a person's git, with faults: what was acknowledged is there once, or a finding names its loss."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.api.derivation import all_verbs
from support import git
from support.crashes import apart
from support.fuzzer import history, oracle, person, verbs
from support.fuzzer.history import Broken
from support.fuzzer.place import WORLDS, Outcome, Place, make
from support.fuzzer.planning import STEPS, plan, world_of
from support.fuzzer.traced import KILL, STOP, Fault, Run, is_possible
from support.machine_logs import LOGS, chained, key_of, log_at, log_refs, write_log
from support.own_postgres import own_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.fuzzer.planning import Step

SOAK_SECONDS, SHORT = 3600, 14

pytestmark = pytest.mark.skipif(not is_possible(), reason="processes cannot be traced here")


def play(seeds: Sequence[str], top: str, steps: int, seconds: float) -> None:
    """Play histories until the time is up, for a process that may fork; a broken promise is reported with a command that replays
    it."""
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        databases = cache(lambda: stack.enter_context(own_server()))
        for seed in seeds:
            planned, directory = plan(seed, steps), Path(top, "history")
            directory.mkdir()
            try:
                history.play(seed, directory, planned, databases=databases)
            except Broken as broken:
                few = history.shortened(seed, Path(top, "shorter"), planned, databases=databases)
                raise AssertionError(f"{broken}\nreplay: {history.replay_command(seed, few, steps)}") from None
            shutil.rmtree(directory)
            if time.monotonic() > end:
                return


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_histories_keep_what_they_acknowledge(tmp_path: Path, world: str) -> None:
    apart(play, [f"{world} test"], str(tmp_path), SHORT, 0)


def test_histories_keep_what_they_acknowledge_for_an_hour(tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("a soak plays them")
    apart(play, [f"soak {os.getpid()} {number}" for number in range(100_000)], str(tmp_path), STEPS, SOAK_SECONDS)


# The fuzzer itself


def place_in(top: Path) -> Place:
    place = Place(str(top), step=1)
    (top / "disk").mkdir()
    apart(make, place)
    return place


def problems_of(place: Place, outcomes: dict[str, Outcome], disturbed: Sequence[str] = ()) -> list[str]:
    expected = oracle.Expected(outcomes, frozenset(disturbed))
    certain, unnamed = apart(oracle.problems, place, expected)
    return [*certain, *unnamed]


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
    assert apart(oracle.accept_store, place, True) == []
    assert problems_of(place, done, ["ada"]) == [], "the log of moves names it"
    log = git("for-each-ref", "--format=%(refname)", "refs/clia/log/*", cwd=place.root).strip()
    git("update-ref", "-d", log, cwd=place.root)
    assert f"ada lost the commit {cid} (<s1>)" in problems_of(place, done, ["ada"])


def test_the_oracle_sees_a_gap_in_the_log_of_moves(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    for number in range(2):
        with place.open() as space:
            space.commit("ada", "finding", changes={"a": b"%d" % number})
    (ref,) = log_refs(place.root)
    machine, entries = ref.removeprefix(LOGS), log_at(place.root).entries
    assert problems_of(place, {}) == []
    del entries[-2]  # with the machine's key: the next append would restore a log that was only moved back
    commit = write_log(place.root, machine, chained(machine, entries), key_of(place.root))
    git("update-ref", ref, commit, cwd=place.root)
    assert [problem for problem in problems_of(place, {}) if problem.startswith("log: TrustFinding(code='log-gap'")]


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

    def broken(seed: str, top: Path, steps: Sequence[Step], databases: object) -> None:
        if {3, 17} <= {step.number for step in steps}:
            raise Broken(["lost"], [])

    monkeypatch.setattr(history, "play", broken)
    few = history.shortened("any", tmp_path, planned)
    assert [step.number for step in few] == [3, 17]
    assert history.replay_command("any", few, 20).endswith("--seed any --steps 20 --only 3,17")


def test_a_plan_depends_on_its_seed_alone() -> None:
    assert plan("a", 30) == plan("a", 40)[:30]
    assert plan("a") != plan("b")
    assert {name: world_of(f"{name} 1") for name in WORLDS} == WORLDS
    assert {world_of(str(number)) for number in range(100)} == set(WORLDS.values())


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


NOT_PLAYED = {
    **dict.fromkeys(("brief", "check_answer", "check_flow", "rule", "state_decision"), "they change nothing"),
    **dict.fromkeys(
        ("add_peer", "announce", "change_peer", "grant", "remove_peer", "revoke", "share", "sync"),
        "they need another space: test_federation_crashes.py",
    ),
    **dict.fromkeys(
        ("decide_with_proofs", "enrol_key", "revoke_key", "set_trust_policy"), "they need the keys of people: tests/unit/trust"
    ),
    "endorse_history": "it needs history from before a space was signed: tests/unit/trust/checkpoints/test_service.py",
    "init_trust": "spaces sign from the start",
    "follow_policy": "it needs a policy of the operator: test_behaviour_faults.py",
    **dict.fromkeys(
        ("accept_loss", "add_journal_entry", "finish_agenda_item", "reprofile"), "they need the documents of an identity"
    ),
    "retry": "it makes the last request of a failed session again, so that request has two answers",
}
OTHER_NAMES = {
    "add_behaviour": "behave",
    "adopt_behaviour": "adopt-version",
    "attach_trace": "attach",
    "commit_with_trace": "commit",
    "decide": "answer",
    "propose_behaviour": "propose",
    "register_type": "register",
    "repair": "doctor",
    "replay_behaviour": "replay",
    "resolve": "merge",
    "resume": "answer",
    "retire_behaviour": "retire",
    "reviews": "review",
    "spawn_at": "spawn",
    "spawn_from": "spawn",
    "trace_purge": "purge",
}


def test_the_fuzzer_plays_every_verb_that_changes_something() -> None:
    names = {verb.route.name for verb in all_verbs() if verb.route.method != "GET"}
    played = {name: OTHER_NAMES.get(name, name.replace("_", "-")) for name in names - NOT_PLAYED.keys()}
    assert {name for name, verb in played.items() if verb not in verbs.VERBS} == set()
    assert names >= NOT_PLAYED.keys() | OTHER_NAMES.keys(), "these are verbs"
