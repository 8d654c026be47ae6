"""A hub and what is around it: archives, worktrees, settings, servers, and what others put there. Nothing is lost or mixed."""

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


def test_an_agent_put_away_or_brought_back_without_the_hub_is_so_for_all(tmp_path: Path, hub: Hub) -> None:
    """Who follows has the agent in one place or the other at every moment."""
    places: list[int] = []
    here, both = tmp_path / "two", {HEADS + "scout", "refs/clia/archive/agents/scout"}
    with (
        machine(tmp_path / "one", hub) as one,
        machine(here, hub, reached=lambda _: places.append(len(both & refs_of(here).keys()))) as two,
    ):
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        for verb, at_work in ((one.archive, False), (one.restore, True)):
            with away(hub):
                verb("scout")
            one.hub_sync()
            assert (HEADS + "scout" in at_hub(hub), "scout" in one.agents()) == (at_work, at_work)
            places.clear()
            two.hub_sync()
            assert ("scout" in two.agents(), owed(one)) == (at_work, [])
            assert places
            assert min(places) >= 1


@pytest.mark.parametrize("archived_first", [True, False])
def test_an_agent_archived_here_and_gone_on_elsewhere_keeps_its_work_whoever_syncs_first(
    tmp_path: Path, hub: Hub, archived_first: bool
) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        two.claim("scout")
        with away(hub):
            one.archive("scout")
            made = work(two, "scout", "more")
        for each in (one, two, one) if archived_first else (two, one, two):
            each.hub_sync()
        found = {ref: cid for ref, cid in at_hub(hub, "agents/scout").items() if ref != RECORDS + "scout"}
        assert list(found.values()) == [made]
        for root in ("one", "two"):
            assert found.items() <= refs_of(tmp_path / root).items()
        assert (one.agents(), owed(one), owed(two)) == (two.agents(), [], [])


def test_a_branch_that_people_have_checked_out_is_not_moved_under_them(tmp_path: Path, hub: Hub) -> None:
    """Neither where the hub is found to have moved on, nor where it does so in the middle of a verb."""
    between: list[Callable[[], object]] = []
    with (
        machine(tmp_path / "one", hub) as one,
        machine(tmp_path / "two", hub, reached=lambda step: between and step == "intent-recorded" and between.pop()()) as two,
    ):
        before = one.spawn("scout", BRIEFING).genesis
        two.hub_sync()
        two.claim("scout")
        git("worktree", "add", "--quiet", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "two")
        between.append(lambda: work(one, "scout", "quicker"))
        with pytest.raises(StaleRef):
            work(two, "scout", "mine")
        assert between == []
        refused("branch-checked-out", lambda: work(two, "scout", "mine"))
        assert (HEADS + "scout", "branch-checked-out") in {(each.ref, each.what) for each in two.hub_sync()}
        assert two.head("scout") == before
        assert git("status", "--porcelain", cwd=tmp_path / "work") == ""


def test_what_a_machine_left_unfinished_touches_no_worktree_on_others_nor_their_upkeep(
    tmp_path: Path, hub: Hub, store: str
) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        for name in ("scout", "other"):
            one.spawn(name, BRIEFING)
        work_with_trace(one, "other", "swordfish")
    git("worktree", "add", "--quiet", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "one")

    def die() -> None:
        with opened(tmp_path / "one", store, reached=killed_at("hub-moved")) as one:
            work(one, "scout", "landed")

    machine(tmp_path / "two", hub, store).close()
    assert_killed(die)
    shutil.rmtree(tmp_path / "work")  # on the other machine something else is called so
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "work"), "agents/scout", cwd=tmp_path / "two")
    with FileLocks(str(tmp_path / "two/.git/clia/locks")).hold("scout"):
        space = opened(tmp_path / "two", store)  # it settles whatever is free, and this is not
    with space as two:
        two.maintain()
        two.trace_purge("other", "swordfish")
        assert components(two).envelope.unfinished() == ["scout"]
        work(two, "scout", "next")
        assert components(two).envelope.unfinished() == []
        assert "landed.txt" in two.files("scout")
    assert sorted(each.name for each in (tmp_path / "work").iterdir()) == [".git"]


@pytest.mark.parametrize("cut_off", ["the one that purges", "the other"])
def test_a_purge_reaches_a_machine_that_lags_and_its_own_notes_stay(tmp_path: Path, hub: Hub, way: Path, cut_off: str) -> None:
    ways = [hub._replace(url=str(way)), hub]
    with (
        machine(tmp_path / "one", ways[cut_off == "the other"]) as one,
        machine(tmp_path / "two", ways[cut_off != "the other"]) as two,
    ):
        one.spawn("scout", BRIEFING)
        work_with_trace(one, "scout", "swordfish")
        two.hub_sync()
        two.claim("scout")
        way.unlink()
        work_with_trace(two, "scout", "fine")
        one.trace_purge("scout", "swordfish")
        way.symlink_to(hub.repository)
        for each in (two, one, two):
            each.hub_sync()
        for where in (hub.repository, tmp_path / "one", tmp_path / "two"):
            said = git("log", "-p", "--format=%H", TRACES + "scout", cwd=where)
            assert ('"swordfish"' in said, '"fine"' in said) == (False, True), where
        assert (owed(one), owed(two), one.verify().clean, two.verify().clean) == ([], [], True, True)


# Settings, servers and what others put there


def test_an_address_that_leads_to_the_hub_of_another_space_mixes_nothing(tmp_path: Path, hub: Hub) -> None:
    other = bare(tmp_path / "other.git")
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", Hub(str(other), other)) as two:
        one.spawn("ours", BRIEFING)
        two.spawn("theirs", BRIEFING)
    before = refs_of(other), refs_of(tmp_path / "one", "/ours")
    git("remote", "set-url", "hub", str(other), cwd=tmp_path / "one")
    verbs: list[Callable[[clia.Space], object]] = [
        lambda space: work(space, "ours", "a"),
        lambda space: space.hub_sync(),
        lambda space: space.spawn("new", BRIEFING),
    ]
    for verb in verbs:
        refused("other-space", partial(with_opened, tmp_path / "one", verb))
    assert before[0] == refs_of(other)
    assert {*refs_of(tmp_path / "one", "/theirs")} <= {ref for ref in refs_of(tmp_path / "one") if "clia-tracking" in ref}
    git("remote", "set-url", "hub", hub.url, cwd=tmp_path / "one")
    with opened(tmp_path / "one") as one:
        assert one.agents() == ["ours"]
        made = work(one, "ours", "b")
        assert at_hub(hub)[HEADS + "ours"] == made


def with_opened(root: Path, verb: Callable[[clia.Space], object]) -> None:
    with opened(root) as space:
        verb(space)


def test_where_heads_are_kept_cannot_be_changed_on_one_machine_alone(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
    before = at_hub(hub)
    git("config", "clia.hubHeads", "published", cwd=tmp_path / "one")
    verbs: list[Callable[[clia.Space], object]] = [lambda space: work(space, "scout", "a"), lambda space: space.hub_sync()]
    for verb in verbs:
        refused("other-heads", partial(with_opened, tmp_path / "one", verb))
    assert at_hub(hub) == before


def test_how_a_person_has_set_up_pushes_does_not_matter(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        for key, value in (("push.pushOption", "ci.skip"), ("push.gpgSign", "true"), ("remote.hub.mirror", "true")):
            git("config", key, value, cwd=tmp_path / "one")
            made = work(one, "scout", key)
            assert at_hub(hub)[HEADS + "scout"] == made, key
        with away(hub):
            made = work(one, "scout", "away")
        one.hub_sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (made, [])


def test_who_may_only_read_the_hub_is_told_so(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        before = one.spawn("scout", BRIEFING).genesis
    git("config", "http.receivepack", "false", cwd=hub.repository)
    with serving(stock(tmp_path)) as address:
        git("remote", "set-url", "hub", f"{address}/hub.git", cwd=tmp_path / "one")
        with opened(tmp_path / "one") as one:
            refused("hub-refused", lambda: work(one, "scout", "a"))
            assert (one.head("scout"), owed(one)) == (before, [])


def test_what_is_no_chain_at_the_hub_ends_neither_sync_nor_the_work_of_others(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        one.spawn("scout", BRIEFING)
        two.spawn("zulu", BRIEFING)
        blob = git("hash-object", "-w", os.devnull, cwd=hub.repository).strip()
        for ref in ("types", "objects", "capabilities", "behaviours/bad", "events/bad", "agents/bad"):
            git("update-ref", f"refs/clia/{ref}", blob, cwd=hub.repository)
        git("update-ref", TRACES + "bad", blob, cwd=hub.repository)
        one.hub_sync()
        assert "zulu" in one.agents()
        made = work(one, "scout", "a")
        assert at_hub(hub)[HEADS + "scout"] == made
        with away(hub):
            made = work(one, "scout", "b")
        one.hub_sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (made, [])


def test_no_password_is_kept_with_the_reason_why_the_hub_is_away(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        ssh = tmp_path / "ssh"
        ssh.write_text("#!/bin/sh\necho cannot reach https://tess:sesame@hub.example/hub.git >&2\nexit 128\n")
        ssh.chmod(0o755)
        git("config", "core.sshCommand", str(ssh), cwd=tmp_path / "one")
        git("config", "remote.hub.url", "ssh://tess:sesame@hub.example/hub.git", cwd=tmp_path / "one")
        work(one, "scout", "a")
        kept = (tmp_path / "one/.git/clia/hub-away.json").read_text()
        assert "hub.example" in kept
        assert "sesame" not in f"{kept} {one.hub_status()}"


def test_a_hub_that_is_away_is_not_asked_again_before_a_while_has_passed(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_hub, "BACKOFF_SECONDS", 3600.0)
    environment, notes = fake_git(tmp_path / "bin")
    machine(tmp_path / "one", hub).close()
    with opened(tmp_path / "one", environment=environment) as one:
        one.spawn("scout", BRIEFING)
        with away(hub):
            work(one, "scout", "first")
            asked = notes.read_text()
            assert "fetch" in asked
            work(one, "scout", "second")
            one.register_type("insight", "finding")
            with opened(tmp_path / "one", environment=environment) as other:
                other.spawn("new", BRIEFING)
            assert notes.read_text() == asked


# Beside the verbs


def test_a_clone_that_lags_tells_nothing_old(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        here, there = RefWatcher(one.core), RefWatcher(two.core)
        for each in (here, there):
            each.look()
        one.spawn("scout", BRIEFING)
        here.look()
        two.hub_sync()
        one.archive("scout")
        here.look()
        there.look()  # it still has the agent at work
        two.hub_sync()
        there.look()
        with one.core.store.reading() as view:
            told = [each.body["event"] for each in view.streams.read(FEED) if each.body.get("agent") == "scout"]
        assert told == ["head", "archived"]


def test_a_clone_is_kept_in_step_after_a_failure_and_once_more_at_the_end(tmp_path: Path, hub: Hub) -> None:
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
    waits: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait(_: threading.Event, __: float) -> bool:
        waits.put(None)
        return turns.get(timeout=PATIENCE)

    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        with periodic_sync(one, 1.0, wait):
            waits.get(timeout=PATIENCE)
            with away(hub):
                made = work(one, "scout", "first")
                turns.put(False)
                waits.get(timeout=PATIENCE)  # it has failed
            turns.put(False)
            waits.get(timeout=PATIENCE)
            assert at_hub(hub)[HEADS + "scout"] == made
            with away(hub):
                made = work(one, "scout", "last")
            turns.put(True)
        assert at_hub(hub)[HEADS + "scout"] == made


def test_trying_a_lock_about_one_clone_asks_no_server(tmp_path: Path) -> None:
    locks = PostgresLocks("postgresql://127.0.0.1:1/nowhere", "space", FileLocks(str(tmp_path)))
    for name in CLONE_LOCKS:
        with locks.attempt(name) as ours:
            assert ours


@pytest.mark.parametrize("shared", [True, False], ids=["shared-store", "own-stores"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen-at-work", "never-seen"])
def test_an_agent_that_another_machine_archived_is_restored_without_a_sync(
    tmp_path: Path, hub: Hub, store: str, shared: bool, seen: bool
) -> None:
    address = store if shared else None
    with machine(tmp_path / "one", hub, address) as one, machine(tmp_path / "two", hub, address) as two:
        one.spawn("scout", BRIEFING)
        if seen:
            two.hub_sync()
        head = work(one, "scout", "more")
        one.archive("scout")
        with away(hub):  # whoever knows of it says what is the matter
            refused("work-elsewhere" if shared else "no-such-agent", lambda: two.restore("scout"))
            refused("no-such-agent", lambda: two.restore("nobody"))
        components(two).hub_sync.hub.clear_outage()  # type: ignore[union-attr]  # and not only after a while
        two.restore("scout")
        assert (two.head("scout"), two.agents(archived=True)) == (head, [])
        assert HEADS + "scout" in at_hub(hub)
        refused("no-such-agent", lambda: one.restore("scout"))  # it is at work again, which one has learned by that
        assert one.agents() == ["scout"]


@pytest.mark.parametrize("ended", [False, True], ids=["live", "ended-first"])
def test_a_session_stays_in_its_clone_when_its_agent_is_claimed_and_repair_makes_a_second_one(
    tmp_path: Path, hub: Hub, ended: bool
) -> None:
    """Stores of their own: what the guide says about claiming. Who ended it first finds nothing lost."""
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        one.define("step", STEP)
        one.spawn("scout", BRIEFING)
        one.start("scout", "step")
        work(one, "scout", "more")
        if ended:
            one.cancel("scout")
        two.hub_sync()
        two.claim("scout")
        assert [each.code for each in two.doctor()] == ([] if ended else ["lost-session"])
        two.doctor(repair=True)
        if ended:
            assert two.sessions(live=True) == []
            return
        for space in (one, two):
            assert [each.id for each in space.sessions(live=True)] == ["1"]
            space.resume("scout", str(space is one))
        assert (one.session("scout").result, two.session("scout").result) == ("True", "False")


# Copies of a clone, as an image of a machine is one


@pytest.mark.usefixtures("impatient")
def test_a_copy_of_a_clone_is_a_machine_of_its_own(tmp_path: Path, hub: Hub, store: str) -> None:
    """Else it would pass for the clone that it was copied from: with one cache of refs for two, and one debt for both."""
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
        first = one.core.clone
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with opened(tmp_path / "two", store) as two, opened(tmp_path / "one", store) as one:
        second = two.core.clone
        assert one.core.clone == first != second
        with away(hub):
            work(two, "scout", "alone")
            assert [each["clone"] for _, each in one.core.store.scan("owed/")] == [second]
            refused("work-elsewhere", lambda: work(one, "scout", "too"))
        two.hub_sync()
        assert work(one, "scout", "too") == one.head("scout")
    with opened(tmp_path / "two", store) as two:
        assert two.core.clone == second


def test_a_copy_of_a_whole_disk_is_a_machine_of_its_own_once_it_is_told(tmp_path: Path, hub: Hub, store: str) -> None:
    """Nothing differs there, so a person removes what says who it is, as the guide has it."""
    with machine(tmp_path / "one", hub, store) as one:
        first = one.core.clone
    for name in ("clone", "clone-place"):
        (tmp_path / "one/.git/clia" / name).unlink()
    with opened(tmp_path / "one", store) as copied:
        assert copied.core.clone not in (first, "")


def test_a_clone_that_is_moved_stays_who_it_is(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        first = one.core.clone
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    with opened(tmp_path / "elsewhere", store) as one:
        assert one.core.clone == first


def test_a_copy_of_a_clone_that_shares_nothing_finds_what_it_kept_on_a_server(tmp_path: Path, store: str) -> None:
    """Live state is found by the id. Without it, a clone that is copied to another disk would lose its state."""
    with clia.init(tmp_path / "one", settings=settings(store=store)) as one:
        one.spawn("scout", BRIEFING)
        one.define("step", STEP)
        one.start("scout", "step")
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with opened(tmp_path / "two", store) as two:
        assert [each.id for each in two.sessions(live=True)] == ["1"]
