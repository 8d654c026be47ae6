"""A hub with archives, worktrees, settings, servers and foreign refs: nothing is lost or mixed up."""

from __future__ import annotations

import os
import queue
import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StaleRef
from clia.hub import remote as git_hub
from clia.hub.service import periodic_sync
from clia.space.feed import RefWatcher
from clia.store.interface import CLONE_LOCKS, FEED
from clia.store.postgres_locks import PostgresLocks
from clia.store.private_files import FileLocks
from clia.testing import components
from support import git
from support.crashes import assert_killed, killed_at
from support.git_hubs import Hub, away, bare
from support.git_servers import serving, stock
from support.hub_spaces import (
    HEADS,
    PATIENCE,
    RECORDS,
    STEP,
    TRACES,
    at_hub,
    fake_git,
    machine,
    opened,
    owed,
    refs_of,
    work,
    work_with_trace,
)
from support.space_driver import BRIEFING, settings
from support.spaces import refused

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path


# Archives, worktrees, purges


def test_an_agent_archived_or_restored_without_the_hub_is_so_on_all_machines(tmp_path: Path, hub: Hub) -> None:
    """A following machine has the agent either as branch or in the archive at every step."""
    places: list[int] = []
    root_two, both_refs = tmp_path / "two", {HEADS + "scout", "refs/clia/archive/agents/scout"}
    with (
        machine(tmp_path / "one", hub) as machine_one,
        machine(root_two, hub, reached=lambda _: places.append(len(both_refs & refs_of(root_two).keys()))) as machine_two,
    ):
        machine_one.spawn("scout", BRIEFING)
        machine_two.hub.sync()
        for verb, at_work in ((machine_one.agents.archive, False), (machine_one.agents.restore, True)):
            with away(hub):
                verb("scout")
            machine_one.hub.sync()
            assert (HEADS + "scout" in at_hub(hub), "scout" in machine_one.agents()) == (at_work, at_work)
            places.clear()
            machine_two.hub.sync()
            assert ("scout" in machine_two.agents(), owed(machine_one)) == (at_work, [])
            assert places
            assert min(places) >= 1


@pytest.mark.parametrize("archived_first", [True, False])
def test_an_agent_archived_here_and_advanced_elsewhere_keeps_its_work_in_any_order_of_syncs(
    tmp_path: Path, hub: Hub, archived_first: bool
) -> None:
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        machine_two.hub.sync()
        machine_two.agents.claim("scout")
        with away(hub):
            machine_one.agents.archive("scout")
            cid = work(machine_two, "scout", "more")
        for syncing in (machine_one, machine_two, machine_one) if archived_first else (machine_two, machine_one, machine_two):
            syncing.hub.sync()
        heads = {ref: cid for ref, cid in at_hub(hub, "agents/scout").items() if ref != RECORDS + "scout"}
        assert list(heads.values()) == [cid]
        for root in ("one", "two"):
            assert heads.items() <= refs_of(tmp_path / root).items()
        assert (machine_one.agents(), owed(machine_one), owed(machine_two)) == (machine_two.agents(), [], [])


def test_a_checked_out_branch_is_not_moved(tmp_path: Path, hub: Hub) -> None:
    """If the hub has moved before a verb or during it."""
    between: list[Callable[[], object]] = []
    with (
        machine(tmp_path / "one", hub) as machine_one,
        machine(
            tmp_path / "two", hub, reached=lambda step: between and step == "intent-recorded" and between.pop()()
        ) as machine_two,
    ):
        before = machine_one.spawn("scout", BRIEFING).genesis
        machine_two.hub.sync()
        machine_two.agents.claim("scout")
        git("worktree", "add", "--quiet", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "two")
        between.append(lambda: work(machine_one, "scout", "quicker"))
        with pytest.raises(StaleRef):
            work(machine_two, "scout", "mine")
        assert between == []
        refused("branch-checked-out", lambda: work(machine_two, "scout", "mine"))
        assert (HEADS + "scout", "branch-checked-out") in {
            (synced_ref.ref, synced_ref.what) for synced_ref in machine_two.hub.sync()
        }
        assert machine_two.head("scout") == before
        assert git("status", "--porcelain", cwd=tmp_path / "work") == ""


def test_an_unfinished_verb_of_a_machine_does_not_affect_worktrees_and_upkeep_of_others(
    tmp_path: Path, hub: Hub, store: str
) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one:
        for name in ("scout", "other"):
            machine_one.spawn(name, BRIEFING)
        work_with_trace(machine_one, "other", "swordfish")
    git("worktree", "add", "--quiet", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "one")

    def die() -> None:
        with opened(tmp_path / "one", store, reached=killed_at("hub-moved")) as machine_one:
            work(machine_one, "scout", "landed")

    machine(tmp_path / "two", hub, store).close()
    assert_killed(die)
    shutil.rmtree(tmp_path / "work")  # the same name means something else on the other machine
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "two")
    with FileLocks(str(tmp_path / "two/.git/clia/locks")).hold("scout"):
        space = opened(tmp_path / "two", store)  # it settles only what is unlocked, and this is locked
    with space as machine_two:
        machine_two.maintain()
        machine_two.traces.purge("other", "swordfish")
        assert components(machine_two).envelope.unfinished() == ["scout"]
        work(machine_two, "scout", "next")
        assert components(machine_two).envelope.unfinished() == []
        assert "landed.txt" in machine_two.files("scout")
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == [".git"]


@pytest.mark.parametrize("cut_off", ["the one that purges", "the other"])
def test_a_purge_reaches_a_lagging_machine_and_keeps_its_own_notes(tmp_path: Path, hub: Hub, way: Path, cut_off: str) -> None:
    ways = [hub._replace(url=str(way)), hub]
    with (
        machine(tmp_path / "one", ways[cut_off == "the other"]) as machine_one,
        machine(tmp_path / "two", ways[cut_off != "the other"]) as machine_two,
    ):
        machine_one.spawn("scout", BRIEFING)
        work_with_trace(machine_one, "scout", "swordfish")
        machine_two.hub.sync()
        machine_two.agents.claim("scout")
        way.unlink()
        work_with_trace(machine_two, "scout", "fine")
        machine_one.traces.purge("scout", "swordfish")
        way.symlink_to(hub.repository)
        for syncing in (machine_two, machine_one, machine_two):
            syncing.hub.sync()
        for repository in (hub.repository, tmp_path / "one", tmp_path / "two"):
            log = git("log", "-p", "--format=%H", TRACES + "scout", cwd=repository)
            assert ('"swordfish"' in log, '"fine"' in log) == (False, True), repository
        assert (owed(machine_one), owed(machine_two), machine_one.verify().clean, machine_two.verify().clean) == (
            [],
            [],
            True,
            True,
        )


# Settings, servers and foreign refs


def test_the_address_of_another_spaces_hub_mixes_nothing(tmp_path: Path, hub: Hub) -> None:
    other_hub = bare(tmp_path / "other.git")
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", Hub(str(other_hub), other_hub)) as machine_two:
        machine_one.spawn("ours", BRIEFING)
        machine_two.spawn("theirs", BRIEFING)
    before = refs_of(other_hub), refs_of(tmp_path / "one", "/ours")
    git("remote", "set-url", "hub", str(other_hub), cwd=tmp_path / "one")
    verbs: list[Callable[[clia.Space], object]] = [
        lambda space: work(space, "ours", "a"),
        lambda space: space.hub.sync(),
        lambda space: space.spawn("new", BRIEFING),
    ]
    for verb in verbs:
        refused("other-space", partial(with_opened, tmp_path / "one", verb))
    assert before[0] == refs_of(other_hub)
    assert {*refs_of(tmp_path / "one", "/theirs")} <= {ref for ref in refs_of(tmp_path / "one") if "clia-tracking" in ref}
    git("remote", "set-url", "hub", hub.url, cwd=tmp_path / "one")
    with opened(tmp_path / "one") as machine_one:
        assert machine_one.agents() == ["ours"]
        cid = work(machine_one, "ours", "b")
        assert at_hub(hub)[HEADS + "ours"] == cid


def with_opened(root: Path, verb: Callable[[clia.Space], object]) -> None:
    with opened(root) as space:
        verb(space)


def test_the_location_of_heads_cannot_be_changed_on_one_machine_only(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
    before = at_hub(hub)
    git("config", "clia.hubHeads", "published", cwd=tmp_path / "one")
    verbs: list[Callable[[clia.Space], object]] = [lambda space: work(space, "scout", "a"), lambda space: space.hub.sync()]
    for verb in verbs:
        refused("other-heads", partial(with_opened, tmp_path / "one", verb))
    assert at_hub(hub) == before


def test_the_users_push_configuration_does_not_matter(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        for key, value in (("push.pushOption", "ci.skip"), ("push.gpgSign", "true"), ("remote.hub.mirror", "true")):
            git("config", key, value, cwd=tmp_path / "one")
            cid = work(machine_one, "scout", key)
            assert at_hub(hub)[HEADS + "scout"] == cid, key
        with away(hub):
            cid = work(machine_one, "scout", "away")
        machine_one.hub.sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(machine_one)) == (cid, [])


def test_read_only_access_to_the_hub_is_reported(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        before = machine_one.spawn("scout", BRIEFING).genesis
    git("config", "http.receivepack", "false", cwd=hub.repository)
    with serving(stock(tmp_path)) as address:
        git("remote", "set-url", "hub", f"{address}/hub.git", cwd=tmp_path / "one")
        with opened(tmp_path / "one") as machine_one:
            refused("hub-refused", lambda: work(machine_one, "scout", "a"))
            assert (machine_one.head("scout"), owed(machine_one)) == (before, [])


def test_an_invalid_chain_at_the_hub_stops_neither_sync_nor_other_work(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        machine_two.spawn("zulu", BRIEFING)
        blob = git("hash-object", "-w", os.devnull, cwd=hub.repository).strip()
        for ref in ("types", "objects", "capabilities", "behaviours/bad", "events/bad", "agents/bad"):
            git("update-ref", f"refs/clia/{ref}", blob, cwd=hub.repository)
        git("update-ref", TRACES + "bad", blob, cwd=hub.repository)
        machine_one.hub.sync()
        assert "zulu" in machine_one.agents()
        cid = work(machine_one, "scout", "a")
        assert at_hub(hub)[HEADS + "scout"] == cid
        with away(hub):
            cid = work(machine_one, "scout", "b")
        machine_one.hub.sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(machine_one)) == (cid, [])


def test_the_recorded_reason_of_an_outage_has_no_password(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        ssh = tmp_path / "ssh"
        ssh.write_text("#!/bin/sh\necho cannot reach https://tess:sesame@hub.example/hub.git >&2\nexit 128\n")
        ssh.chmod(0o755)
        git("config", "core.sshCommand", str(ssh), cwd=tmp_path / "one")
        git("config", "remote.hub.url", "ssh://tess:sesame@hub.example/hub.git", cwd=tmp_path / "one")
        work(machine_one, "scout", "a")
        record = (tmp_path / "one/.git/clia/hub-away.json").read_text()
        assert "hub.example" in record
        assert "sesame" not in f"{record} {machine_one.hub.status()}"


def test_an_unreachable_hub_is_retried_only_after_a_while(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_hub, "BACKOFF_SECONDS", 3600.0)
    environment, notes = fake_git(tmp_path / "bin")
    machine(tmp_path / "one", hub).close()
    with opened(tmp_path / "one", environment=environment) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        with away(hub):
            work(machine_one, "scout", "first")
            requests = notes.read_text()
            assert "fetch" in requests
            work(machine_one, "scout", "second")
            machine_one.types.register("insight", "finding")
            with opened(tmp_path / "one", environment=environment) as second_handle:
                second_handle.spawn("new", BRIEFING)
            assert notes.read_text() == requests


# Beside the verbs


def test_a_lagging_clone_adds_no_outdated_events(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        watcher_one, watcher_two = RefWatcher(components(machine_one).core), RefWatcher(components(machine_two).core)
        for watcher in (watcher_one, watcher_two):
            watcher.look()
        machine_one.spawn("scout", BRIEFING)
        watcher_one.look()
        machine_two.hub.sync()
        machine_one.agents.archive("scout")
        watcher_one.look()
        watcher_two.look()  # its clone still has the agent
        machine_two.hub.sync()
        watcher_two.look()
        with machine_one.local.store.reading() as view:
            feed_events = [entry.body["event"] for entry in view.streams.read(FEED) if entry.body.get("agent") == "scout"]
        assert feed_events == ["head", "archived"]


def test_periodic_sync_continues_after_a_failure_and_runs_once_at_the_end(tmp_path: Path, hub: Hub) -> None:
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
    waits: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait(_: threading.Event, __: float) -> bool:
        waits.put(None)
        return turns.get(timeout=PATIENCE)

    with machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        with periodic_sync(machine_one, 1.0, wait):
            waits.get(timeout=PATIENCE)
            with away(hub):
                cid = work(machine_one, "scout", "first")
                turns.put(False)
                waits.get(timeout=PATIENCE)  # it fails
            turns.put(False)
            waits.get(timeout=PATIENCE)
            assert at_hub(hub)[HEADS + "scout"] == cid
            with away(hub):
                cid = work(machine_one, "scout", "last")
            turns.put(True)
        assert at_hub(hub)[HEADS + "scout"] == cid


def test_trying_a_lock_of_one_clone_does_not_use_the_server(tmp_path: Path) -> None:
    locks = PostgresLocks("postgresql://127.0.0.1:1/nowhere", "space", FileLocks(str(tmp_path)))
    for name in CLONE_LOCKS:
        with locks.attempt(name) as acquired:
            assert acquired


@pytest.mark.parametrize("shared", [True, False], ids=["shared-store", "own-stores"])
@pytest.mark.parametrize("synced_before", [True, False], ids=["seen-at-work", "never-seen"])
def test_an_agent_that_another_machine_archived_is_restored_without_a_sync(
    tmp_path: Path, hub: Hub, store: str, shared: bool, synced_before: bool
) -> None:
    address = store if shared else None
    with machine(tmp_path / "one", hub, address) as machine_one, machine(tmp_path / "two", hub, address) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        if synced_before:
            machine_two.hub.sync()
        head = work(machine_one, "scout", "more")
        machine_one.agents.archive("scout")
        with away(hub):  # a machine that has synced reports the reason
            refused("work-elsewhere" if shared else "no-such-agent", lambda: machine_two.agents.restore("scout"))
            refused("no-such-agent", lambda: machine_two.agents.restore("nobody"))
        components(machine_two).hub_sync.hub.clear_outage()  # type: ignore[union-attr]  # retry now
        machine_two.agents.restore("scout")
        assert (machine_two.head("scout"), machine_two.agents(archived=True)) == (head, [])
        assert HEADS + "scout" in at_hub(hub)
        refused(
            "no-such-agent", lambda: machine_one.agents.restore("scout")
        )  # it is active again, which machine one learned from this
        assert machine_one.agents() == ["scout"]


@pytest.mark.parametrize("ended", [False, True], ids=["live", "ended-first"])
def test_claiming_an_agent_leaves_its_session_in_its_clone_and_a_repair_creates_a_second_one(
    tmp_path: Path, hub: Hub, ended: bool
) -> None:
    """With separate stores. After the end of one session, the other is frozen, so that people are not asked twice."""
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        machine_one.sessions.define("step", STEP)
        machine_one.spawn("scout", BRIEFING)
        machine_one.start("scout", "step")
        work(machine_one, "scout", "more")
        if ended:
            machine_one.cancel("scout")
        machine_two.hub.sync()
        machine_two.agents.claim("scout")
        assert [ailment.code for ailment in machine_two.doctor()] == ([] if ended else ["lost-session"])
        machine_two.doctor(repair=True)
        if ended:
            assert machine_two.sessions(live=True) == []
            return
        for space in (machine_one, machine_two):
            assert [session.id for session in space.sessions(live=True)] == ["1"]
        machine_one.resume("scout", "first")
        assert machine_one.session("scout").result == "first"
        refused("session-behind", lambda: machine_two.resume("scout", "second"))


# Copies of a clone, for example in an image of a machine


@pytest.mark.usefixtures("impatient")
def test_a_copy_of_a_clone_is_a_separate_machine(tmp_path: Path, hub: Hub, store: str) -> None:
    """Otherwise both would share one cache of refs and one record of unpublished work."""
    with machine(tmp_path / "one", hub, store) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        first = components(machine_one).core.clone
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with opened(tmp_path / "two", store) as machine_two, opened(tmp_path / "one", store) as machine_one:
        second = components(machine_two).core.clone
        assert components(machine_one).core.clone == first != second
        with away(hub):
            work(machine_two, "scout", "alone")
            assert [row["clone"] for _, row in machine_one.local.store.scan("owed/")] == [second]
            refused("work-elsewhere", lambda: work(machine_one, "scout", "too"))
        machine_two.hub.sync()
        assert work(machine_one, "scout", "too") == machine_one.head("scout")
    with opened(tmp_path / "two", store) as machine_two:
        assert components(machine_two).core.clone == second


def test_a_copy_of_a_whole_disk_is_a_separate_machine_after_its_id_is_removed(tmp_path: Path, hub: Hub, store: str) -> None:
    """Nothing differs there, so a person removes the id, as the guide says."""
    with machine(tmp_path / "one", hub, store) as machine_one:
        first = components(machine_one).core.clone
    for name in ("clone", "clone-place"):
        (tmp_path / "one/.git/clia" / name).unlink()
    with opened(tmp_path / "one", store) as copied:
        assert components(copied).core.clone not in (first, "")


def test_a_moved_clone_keeps_its_id(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one:
        first = components(machine_one).core.clone
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    with opened(tmp_path / "elsewhere", store) as machine_one:
        assert components(machine_one).core.clone == first


def test_a_copy_of_a_clone_without_a_hub_keeps_its_state_on_the_server(tmp_path: Path, store: str) -> None:
    """Live state is found by the id. Without it, a clone that is copied to another disk would lose its state."""
    with clia.init(tmp_path / "one", settings=settings(store=store)) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        machine_one.sessions.define("step", STEP)
        machine_one.start("scout", "step")
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with opened(tmp_path / "two", store) as machine_two:
        assert [session.id for session in machine_two.sessions(live=True)] == ["1"]
