"""Failures at awkward moments of a hub: nothing is lost, mixed up, repeated or published in part."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import clia
from clia.hub import remote as git_hub
from clia.testing import components
from support import git
from support.crashes import assert_killed, killed_at
from support.git_hubs import Hub, away
from support.hub_spaces import (
    HEADS,
    RECORDS,
    STEP,
    TRACES,
    at_hub,
    fake_git,
    machine,
    more_at_hub,
    opened,
    owed,
    refs_of,
    set_hook,
    work,
    work_with_trace,
)
from support.machine_logs import logged_ids
from support.space_driver import BRIEFING, trace_texts
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


# Forks


def test_a_fork_is_resolved_during_a_live_session(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        machine_one.sessions.define("step", STEP)
        machine_one.start("scout", "step")
        machine_two.hub.sync()
        machine_two.agents.claim("scout")
        with away(hub):
            own_cid, other_cid = work(machine_one, "scout", "ours"), work(machine_two, "scout", "theirs")
        machine_two.hub.sync()
        machine_one.hub.sync(forks={"scout": "scout-one"})
        assert machine_one.head("scout") == other_cid
        assert own_cid in {commit.cid for commit in machine_one.log("scout-one")}
        assert [session.agent for session in machine_one.sessions(live=True)] == ["scout"]
        assert machine_one.resume("scout", 7).result == 7
        assert (at_hub(hub)[HEADS + "scout"], owed(machine_one)) == (other_cid, [])


def test_a_name_used_by_two_machines_belongs_to_the_hubs_agent_after_the_fork(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        with away(hub):
            machine_one.spawn("scout", clia.Briefing(title="Ours"))
            machine_two.spawn("scout", clia.Briefing(title="Theirs"))
        machine_two.hub.sync()
        machine_one.hub.sync(forks={"scout": "scout-one"})
        assert refs_of(tmp_path / "one")[RECORDS + "scout"] == at_hub(hub)[RECORDS + "scout"]
        assert (machine_one.agents.briefing("scout").title, machine_one.briefing_of("scout-one").title) == ("Theirs", "Ours")
        assert machine_one.hub.status().owed == ()
        assert machine_one.verify().clean


# The hub has moved and this clone has not


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("verb", ["commit", "spawn"])
def test_the_next_verb_finishes_a_move_that_only_reached_the_hub(tmp_path: Path, hub: Hub, verb: str) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        name = "scout" if verb == "commit" else "third"
        machine_one.spawn("scout", BRIEFING)
        machine_one.trace("scout", "console", "precious")
        lock = tmp_path / f"one/.git/refs/heads/agents/{name}.lock"
        (lock / "held").mkdir(parents=True)  # it can be neither acquired nor broken
        verbs: dict[str, Callable[[], object]] = {
            "commit": lambda: machine_one.commit_with_trace("scout", "finding", changes={"first.txt": b"1"}, message="first"),
            "spawn": lambda: machine_one.spawn("third", BRIEFING),
        }
        verbs[verb]()  # recorded: other machines have it
        shutil.rmtree(lock)
        cid = machine_one.commit_with_trace(name, "finding", changes={"next.txt": b"1"})
        assert (at_hub(hub)[HEADS + name], RECORDS + name in at_hub(hub)) == (cid, True)
        assert verb == "spawn" or [commit.subject for commit in machine_one.log("scout")].count("first") == 1
        assert trace_texts(machine_one) == {"precious": 1}
        assert (owed(machine_one), machine_one.hub.status().owed, components(machine_one).envelope.unfinished()) == ([], (), [])
        assert machine_one.verify().clean


def test_the_next_commit_is_published_even_if_the_tracking_refs_are_wrong(tmp_path: Path, hub: Hub, store: str) -> None:
    """After a purge, which deletes the tracking ref, and after the tracking ref was set back or deleted.

    With a shared store, which says that no other machine has worked, so the hub is not read before the commit.
    """
    with machine(tmp_path / "one", hub, store) as machine_one:
        genesis = machine_one.spawn("scout", BRIEFING).genesis
        work_with_trace(machine_one, "scout", "swordfish")
        machine_one.traces.purge("scout", "swordfish")
        for text, words in (
            ("purged", None),
            ("back", ["refs/clia-tracking/hub/heads/scout", genesis]),
            ("gone", ["-d", "refs/clia-tracking/hub/heads/scout"]),
            ("note", ["-d", "refs/clia-tracking/hub/notes/trace/scout"]),
        ):
            if words is not None:
                git("update-ref", *words, cwd=tmp_path / "one")
            cid = work_with_trace(machine_one, "scout", text)
            assert at_hub(hub)[HEADS + "scout"] == cid, text
            assert at_hub(hub)[TRACES + "scout"] == refs_of(tmp_path / "one")[TRACES + "scout"], text
            assert (owed(machine_one), machine_one.hub.status().owed) == ([], ()), text


@pytest.mark.usefixtures("impatient")
def test_a_process_killed_after_its_push_is_recovered_when_the_hub_is_readable(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        machine_one.trace("scout", "console", "seen")

    def die() -> None:
        with opened(tmp_path / "one", reached=killed_at("hub-moved")) as machine_one:
            machine_one.commit_with_trace("scout", "finding", changes={"a.txt": b"1"}, message="landed")

    assert_killed(die)
    with away(hub), opened(tmp_path / "one") as machine_one:
        refused("hub-unsettled", lambda: work(machine_one, "scout", "next"))
    with opened(tmp_path / "one") as machine_one:
        work(machine_one, "scout", "next")
        assert [commit.subject for commit in machine_one.log("scout")].count("landed") == 1
        assert (trace_texts(machine_one), components(machine_one).envelope.unfinished(), owed(machine_one)) == ({"seen": 1}, [], [])


@pytest.mark.parametrize("pushed", [True, False], ids=["after", "before"])
def test_the_log_has_a_move_at_the_hub_of_a_process_that_died_during_the_push(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, pushed: bool
) -> None:
    root = tmp_path / "one"
    with machine(root, hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        machine_one.commit("scout", "finding", changes={"a.txt": b"0"})

    def push_and_die(
        self: git_hub.RemoteHub, moves: Sequence[tuple[str, str | None, str | None]], *, patient: bool = False
    ) -> None:
        if pushed:
            original(self, moves, patient=patient)
        os.kill(os.getpid(), signal.SIGKILL)

    def die() -> None:
        monkeypatch.setattr(git_hub.RemoteHub, "send", push_and_die)
        with opened(root) as machine_one:
            machine_one.commit("scout", "finding", changes={"a.txt": b"1"})

    original = git_hub.RemoteHub.send
    before = logged_ids(root)
    assert_killed(die)
    tip = at_hub(hub)[HEADS + "scout"]
    with opened(root) as machine_one:
        machine_one.hub.sync()
        assert list((root / ".git/clia/signing/moves").iterdir()) == []
        assert (tip in logged_ids(root)) is True
        assert (logged_ids(root) > before) is pushed
        machine_one.commit("scout", "finding", changes={"a.txt": b"2"})
        machine_one.hub.sync()
        assert machine_one.trust.verify().findings == ()


def test_sync_does_not_publish_the_incomplete_work_of_a_killed_process(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)

    def die() -> None:
        with opened(tmp_path / "one", reached=killed_at("secondary-refs")) as machine_one:
            machine_one.spawn("third", BRIEFING)

    with opened(tmp_path / "one") as long:  # it was open before, and does not recover
        with away(hub):
            assert_killed(die)
        long.hub.sync()
        assert at_hub(hub, "/third") == {}
        with machine(tmp_path / "two", hub) as machine_two:
            assert machine_two.verify().clean
            machine_two.spawn("third", BRIEFING)
        long.hub.sync()
        assert long.agents() == ["scout", "third"]
        assert (long.verify().clean, components(long).envelope.unfinished()) == (True, [])


@pytest.mark.usefixtures("impatient")
def test_a_hub_that_returns_during_a_spawn_gets_all_or_nothing(tmp_path: Path, hub: Hub) -> None:
    """It is unreachable at first, and answers again after the first exchange, the second, and so on."""
    elsewhere, patience = tmp_path / "away.git", tmp_path / "patience"
    back = f"[ $(wc -l <$notes) -lt $(cat {patience}) ] || [ ! -e {elsewhere} ] || mv {elsewhere} {hub.repository}"
    environment, notes = fake_git(tmp_path / "bin", back)
    machine(tmp_path / "one", hub).close()
    counts: list[int] = []

    def reached(_: str) -> None:
        if hub.repository.exists():
            counts.append(len(at_hub(hub, f"/third-{patience.read_text()}")))

    with opened(tmp_path / "one", environment=environment, reached=reached) as machine_one:
        for exchanges in range(1, 5):
            counts.clear()
            notes.write_text("")
            patience.write_text(str(exchanges))
            hub.repository.rename(elsewhere)
            machine_one.spawn(f"third-{exchanges}", BRIEFING)
            if elsewhere.exists():
                elsewhere.rename(hub.repository)
            machine_one.hub.sync()
            assert {*counts, len(at_hub(hub, f"/third-{exchanges}"))} <= {0, 2}, exchanges
            assert (owed(machine_one), machine_one.hub.status().owed) == ([], ())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("with_trace", [False, True])
def test_a_repeated_call_finds_the_commit_that_only_the_hub_had(tmp_path: Path, hub: Hub, with_trace: bool) -> None:
    lock, notices = tmp_path / "one/.git" / f"{HEADS}scout.lock", list[str]()
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        machine_one.trace("scout", "console", "typed")

    def lock_ref(step: str) -> None:
        if step == "hub-moved":
            lock.touch()

    with opened(tmp_path / "one", reached=lock_ref, notify=notices.append) as machine_one:
        base = machine_one.head("scout")
        verb = machine_one.commit_with_trace if with_trace else machine_one.commit
        commit = verb("scout", "finding", changes={"a": b"1"}, base=base)
        assert (machine_one.head("scout"), at_hub(hub)[HEADS + "scout"]) == (base, commit)
        assert [notice.partition(" (")[0] for notice in notices] == ["recorded at the hub, but not here yet"]
        lock.unlink()
    with opened(tmp_path / "one") as machine_one:
        verb = machine_one.commit_with_trace if with_trace else machine_one.commit
        assert verb("scout", "finding", changes={"a": b"1"}, base=base) == commit == machine_one.head("scout")
        assert (machine_one.traces.of(commit) is not None, machine_one.traces.pending("scout") == []) == (with_trace, with_trace)
        assert machine_one.show(work(machine_one, "scout", "next")).parents == (commit,)


# Unpublished work


def test_an_agent_refused_by_the_hub_does_not_block_others(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        for name in ("big", "zed"):
            machine_one.spawn(name, BRIEFING)
        with away(hub):
            work(machine_one, "big", "away")
            work(machine_one, "zed", "away")
        hook = set_hook(hub, "update", f'[ "$1" != {HEADS}big ] || {{ echo too large >&2; exit 1; }}')
        machine_one.hub.sync()
        assert at_hub(hub)[HEADS + "zed"] == machine_one.head("zed")
        assert owed(machine_one) == ["big"]
        cid = work(machine_one, "big", "here")
        machine_one.spawn("new", BRIEFING)
        assert (machine_one.head("big"), owed(machine_one), HEADS + "new" in at_hub(hub)) == (cid, ["big"], True)
        hook.unlink()
        machine_one.hub.sync()
        assert (at_hub(hub)[HEADS + "big"], owed(machine_one)) == (cid, [])


@pytest.mark.usefixtures("impatient")
def test_a_stale_lock_at_the_hub_holds_back_one_agent_and_no_other(
    tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_hub, "TRIES", 2)
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        names = ("ann", "bob", "zed")
        for name in names:
            machine_one.spawn(name, BRIEFING)
        with away(hub):
            cids = {name: work(machine_one, name, "away") for name in names}
        lock = hub.repository / f"{HEADS}bob.lock"
        lock.touch()
        machine_one.hub.sync()
        assert owed(machine_one) == ["bob"]
        assert at_hub(hub)[HEADS + "zed"] == cids["zed"]
        assert machine_two.hub.elsewhere(names) == {"bob"}, "nobody is asked to abandon the work of others"
        assert machine_two.hub.status().away_since is None
        assert machine_two.show(work(machine_two, "zed", "there")).parents == (cids["zed"],)
        assert machine_one.show(work(machine_one, "bob", "here")).parents == (cids["bob"],)
        lock.unlink()
        machine_one.hub.sync()
        assert (owed(machine_one), machine_two.hub.elsewhere(names)) == ([], frozenset())


def test_if_one_unpublished_agent_loses_a_race_the_others_are_published(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        names = ("ann", "bob", "zed")
        for name in names:
            machine_one.spawn(name, BRIEFING)
        with away(hub):
            cids = {name: work(machine_one, name, "away") for name in names}
        quicker = more_at_hub(hub, "bob")
        set_hook(hub, "pre-receive", f'rm "$0"\nenv -u GIT_QUARANTINE_PATH git update-ref {HEADS}bob {quicker}')
        machine_one.hub.sync()
        assert [at_hub(hub)[HEADS + name] for name in names] == [cids["ann"], quicker, cids["zed"]]
        assert owed(machine_one) == ["bob"]
        machine_one.hub.sync()
        assert [fork.agent for fork in machine_one.hub.status().forks] == ["bob"]


@pytest.mark.usefixtures("impatient")
def test_a_type_or_flow_defined_without_the_hub_is_published_with_the_next_one(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        with away(hub):
            machine_one.types.register("insight", "finding")
            machine_one.sessions.define("step", STEP)
        assert at_hub(hub, "/types") == at_hub(hub, "/step") == {}
        machine_one.types.register("survey", "finding")
        machine_one.sessions.define("step", f"# again\n{STEP}")
        for ref in ("refs/clia/types", "refs/clia/behaviours/step"):
            assert at_hub(hub)[ref] == refs_of(tmp_path / "one")[ref]
        assert (owed(machine_one), machine_one.hub.status().owed) == ([], ())


@pytest.mark.usefixtures("impatient")
def test_every_verb_works_with_a_read_only_hub(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_hub, "TRIES", 2)
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        hook = set_hook(hub, "pre-receive", "kill -9 $PPID")
        for text in ("first", "second"):
            work(machine_one, "scout", text)
        cid = work(machine_one, "scout", "third")
        machine_one.spawn("new", BRIEFING)
        machine_one.types.register("insight", "finding")
        assert {"scout", "new", "@types"} <= set(owed(machine_one))
        hook.unlink()
        machine_one.hub.sync()
        assert (at_hub(hub)[HEADS + "scout"], len(at_hub(hub, "/new")), owed(machine_one)) == (cid, 2, [])


def test_work_done_during_a_sync_stays_unpublished(tmp_path: Path, hub: Hub, way: Path) -> None:
    """Another process commits without the hub after the push was accepted and before its answer arrives."""
    with machine(tmp_path / "one", hub._replace(url=str(way))) as machine_one, opened(tmp_path / "one") as other_handle:
        machine_one.spawn("scout", BRIEFING)
        way.unlink()
        sent_cid = work(machine_one, "scout", "sent")
        way.symlink_to(hub.repository)
        for name in ("taken", "go"):
            os.mkfifo(tmp_path / name)
        hook = set_hook(hub, "post-receive", f"rm \"$0\"\necho >'{tmp_path}/taken'\nread _ <'{tmp_path}/go'")
        thread = threading.Thread(target=machine_one.hub.sync)
        thread.start()
        (tmp_path / "taken").read_text()
        way.unlink()
        late = work(other_handle, "scout", "late")
        way.symlink_to(hub.repository)
        (tmp_path / "go").write_text("\n")
        thread.join()
        assert not hook.exists()
        assert (at_hub(hub)[HEADS + "scout"], owed(machine_one)) == (sent_cid, ["scout"])
        machine_one.hub.sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(machine_one)) == (late, [])


def test_sync_does_not_touch_unpublished_work_of_another_machine(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        before = machine_one.spawn("scout", BRIEFING).genesis
        machine_two.hub.sync()
        way.unlink()
        work(machine_one, "scout", "alone")
        git("update-ref", HEADS + "scout", more_at_hub(hub, "scout"), cwd=hub.repository)
        outcomes = {synced_ref.ref: synced_ref.what for synced_ref in machine_two.hub.sync()}
        assert (outcomes.get(HEADS + "scout"), machine_two.head("scout"), owed(machine_two)) == ("elsewhere", before, ["scout"])
