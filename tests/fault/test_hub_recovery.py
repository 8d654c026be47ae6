"""Corners of a hub: what goes wrong at an awkward moment. Nothing is lost, mixed, told twice or published in parts."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError
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
from support.space_driver import BRIEFING, trace_texts
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# Forks


def test_our_line_of_a_fork_gets_its_name_while_a_session_is_live_and_the_session_stays(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        one.spawn("scout", BRIEFING)
        one.define("step", STEP)
        one.start("scout", "step")
        two.hub_sync()
        two.claim("scout")
        with away(hub):
            ours, theirs = work(one, "scout", "ours"), work(two, "scout", "theirs")
        two.hub_sync()
        one.hub_sync(forks={"scout": "scout-one"})
        assert one.head("scout") == theirs
        assert ours in {each.cid for each in one.log("scout-one")}
        assert [each.agent for each in one.sessions(live=True)] == ["scout"]
        assert one.resume("scout", 7).result == 7
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (theirs, [])


def test_a_name_that_two_machines_gave_while_the_hub_was_away_is_the_hubs_after_the_fork(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        with away(hub):
            one.spawn("scout", clia.Briefing(title="Ours"))
            two.spawn("scout", clia.Briefing(title="Theirs"))
        two.hub_sync()
        one.hub_sync(forks={"scout": "scout-one"})
        assert refs_of(tmp_path / "one")[RECORDS + "scout"] == at_hub(hub)[RECORDS + "scout"]
        assert (one.briefing_of("scout").title, one.briefing_of("scout-one").title) == ("Theirs", "Ours")
        assert one.hub_status().owed == ()
        assert one.verify().clean


# The hub and this clone are not moved together


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("verb", ["commit", "spawn"])
def test_where_the_hub_has_moved_and_this_clone_cannot_the_next_verb_finishes_it(tmp_path: Path, hub: Hub, verb: str) -> None:
    with machine(tmp_path / "one", hub) as one:
        name = "scout" if verb == "commit" else "third"
        one.spawn("scout", BRIEFING)
        one.trace("scout", "console", "precious")
        lock = tmp_path / f"one/.git/refs/heads/agents/{name}.lock"
        (lock / "held").mkdir(parents=True)  # nobody can take it, and nobody can break it
        verbs: dict[str, Callable[[], object]] = {
            "commit": lambda: one.commit_with_trace("scout", "finding", changes={"first.txt": b"1"}, message="first"),
            "spawn": lambda: one.spawn("third", BRIEFING),
        }
        with pytest.raises(CliaError):
            verbs[verb]()
        shutil.rmtree(lock)
        made = one.commit_with_trace(name, "finding", changes={"next.txt": b"1"})
        assert (at_hub(hub)[HEADS + name], RECORDS + name in at_hub(hub)) == (made, True)
        assert verb == "spawn" or [each.subject for each in one.log("scout")].count("first") == 1
        assert trace_texts(one) == {"precious": 1}
        assert (owed(one), one.hub_status().owed, components(one).envelope.unfinished()) == ([], (), [])
        assert one.verify().clean


def test_what_is_known_of_the_hub_may_be_wrong_and_the_next_commit_is_there_at_once(tmp_path: Path, hub: Hub, store: str) -> None:
    """After a purge, which deletes the tracking ref, and after the tracking ref was set back or deleted.

    With a shared store, which says that no other machine has worked, so the hub is not read before the commit.
    """
    with machine(tmp_path / "one", hub, store) as one:
        genesis = one.spawn("scout", BRIEFING).genesis
        work_with_trace(one, "scout", "swordfish")
        one.trace_purge("scout", "swordfish")
        for text, words in (
            ("purged", None),
            ("back", ["refs/clia-tracking/hub/heads/scout", genesis]),
            ("gone", ["-d", "refs/clia-tracking/hub/heads/scout"]),
            ("note", ["-d", "refs/clia-tracking/hub/notes/trace/scout"]),
        ):
            if words is not None:
                git("update-ref", *words, cwd=tmp_path / "one")
            made = work_with_trace(one, "scout", text)
            assert at_hub(hub)[HEADS + "scout"] == made, text
            assert at_hub(hub)[TRACES + "scout"] == refs_of(tmp_path / "one")[TRACES + "scout"], text
            assert (owed(one), one.hub_status().owed) == ([], ()), text


@pytest.mark.usefixtures("impatient")
def test_a_process_killed_after_its_push_is_finished_when_the_hub_can_say_that_it_landed(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        one.trace("scout", "console", "seen")

    def die() -> None:
        with opened(tmp_path / "one", reached=killed_at("hub-moved")) as one:
            one.commit_with_trace("scout", "finding", changes={"a.txt": b"1"}, message="landed")

    assert_killed(die)
    with away(hub), opened(tmp_path / "one") as one:
        refused("hub-unsettled", lambda: work(one, "scout", "next"))
    with opened(tmp_path / "one") as one:
        work(one, "scout", "next")
        assert [each.subject for each in one.log("scout")].count("landed") == 1
        assert (trace_texts(one), components(one).envelope.unfinished(), owed(one)) == ({"seen": 1}, [], [])


def test_sync_publishes_nothing_that_a_killed_process_left_half_done(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)

    def die() -> None:
        with opened(tmp_path / "one", reached=killed_at("secondary-refs")) as one:
            one.spawn("third", BRIEFING)

    with opened(tmp_path / "one") as long:  # it was there before, and has nothing to recover
        with away(hub):
            assert_killed(die)
        long.hub_sync()
        assert at_hub(hub, "/third") == {}
        with machine(tmp_path / "two", hub) as two:
            assert two.verify().clean
            two.spawn("third", BRIEFING)
        long.hub_sync()
        assert long.agents() == ["scout", "third"]
        assert (long.verify().clean, components(long).envelope.unfinished()) == (True, [])


@pytest.mark.usefixtures("impatient")
def test_a_hub_that_comes_back_in_the_middle_of_a_spawn_gets_nothing_in_parts(tmp_path: Path, hub: Hub) -> None:
    """It does not answer at first, and is there again after the first exchange with it, the second, and so on."""
    elsewhere, patience = tmp_path / "away.git", tmp_path / "patience"
    back = f"[ $(wc -l <$notes) -lt $(cat {patience}) ] || [ ! -e {elsewhere} ] || mv {elsewhere} {hub.repository}"
    environment, notes = fake_git(tmp_path / "bin", back)
    machine(tmp_path / "one", hub).close()
    seen: list[int] = []

    def reached(_: str) -> None:
        if hub.repository.exists():
            seen.append(len(at_hub(hub, f"/third-{patience.read_text()}")))

    with opened(tmp_path / "one", environment=environment, reached=reached) as one:
        for exchanges in range(1, 5):
            seen.clear()
            notes.write_text("")
            patience.write_text(str(exchanges))
            hub.repository.rename(elsewhere)
            one.spawn(f"third-{exchanges}", BRIEFING)
            if elsewhere.exists():
                elsewhere.rename(hub.repository)
            one.hub_sync()
            assert {*seen, len(at_hub(hub, f"/third-{exchanges}"))} <= {0, 2}, exchanges
            assert (owed(one), one.hub_status().owed) == ([], ())


# What is owed


def test_one_agent_that_the_hub_refuses_keeps_no_other_from_being_published(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        for name in ("big", "zed"):
            one.spawn(name, BRIEFING)
        with away(hub):
            work(one, "big", "away")
            work(one, "zed", "away")
        hook = set_hook(hub, "update", f'[ "$1" != {HEADS}big ] || {{ echo too large >&2; exit 1; }}')
        one.hub_sync()
        assert at_hub(hub)[HEADS + "zed"] == one.head("zed")
        assert owed(one) == ["big"]
        made = work(one, "big", "here")
        one.spawn("new", BRIEFING)
        assert (one.head("big"), owed(one), HEADS + "new" in at_hub(hub)) == (made, ["big"], True)
        hook.unlink()
        one.hub_sync()
        assert (at_hub(hub)[HEADS + "big"], owed(one)) == (made, [])


def test_of_several_agents_that_are_owed_one_loses_a_race_and_the_others_are_published(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        names = ("ann", "bob", "zed")
        for name in names:
            one.spawn(name, BRIEFING)
        with away(hub):
            made = {name: work(one, name, "away") for name in names}
        quicker = more_at_hub(hub, "bob")
        set_hook(hub, "pre-receive", f'rm "$0"\nenv -u GIT_QUARANTINE_PATH git update-ref {HEADS}bob {quicker}')
        one.hub_sync()
        assert [at_hub(hub)[HEADS + name] for name in names] == [made["ann"], quicker, made["zed"]]
        assert owed(one) == ["bob"]
        one.hub_sync()
        assert [each.agent for each in one.hub_status().forks] == ["bob"]


@pytest.mark.usefixtures("impatient")
def test_a_type_or_flow_of_a_time_without_hub_is_published_with_the_next_one(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        with away(hub):
            one.register_type("insight", "finding")
            one.define("step", STEP)
        assert at_hub(hub, "/types") == at_hub(hub, "/step") == {}
        one.register_type("survey", "finding")
        one.define("step", f"# again\n{STEP}")
        for each in ("refs/clia/types", "refs/clia/behaviours/step"):
            assert at_hub(hub)[each] == refs_of(tmp_path / "one")[each]
        assert (owed(one), one.hub_status().owed) == ([], ())


@pytest.mark.usefixtures("impatient")
def test_with_a_hub_that_can_be_read_and_not_written_every_verb_goes_on_here(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_hub, "TRIES", 2)
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        hook = set_hook(hub, "pre-receive", "kill -9 $PPID")
        for text in ("first", "second"):
            work(one, "scout", text)
        made = work(one, "scout", "third")
        one.spawn("new", BRIEFING)
        one.register_type("insight", "finding")
        assert {"scout", "new", "@types"} <= set(owed(one))
        hook.unlink()
        one.hub_sync()
        assert (at_hub(hub)[HEADS + "scout"], len(at_hub(hub, "/new")), owed(one)) == (made, 2, [])


def test_work_that_came_after_sync_had_sent_is_still_owed(tmp_path: Path, hub: Hub, way: Path) -> None:
    """Another process works on the agent, without the hub, when the hub has taken what it was sent and has not said so yet."""
    with machine(tmp_path / "one", hub._replace(url=str(way))) as one, opened(tmp_path / "one") as other:
        one.spawn("scout", BRIEFING)
        way.unlink()
        sent = work(one, "scout", "sent")
        way.symlink_to(hub.repository)
        for name in ("taken", "go"):
            os.mkfifo(tmp_path / name)
        hook = set_hook(hub, "post-receive", f"rm \"$0\"\necho >'{tmp_path}/taken'\nread _ <'{tmp_path}/go'")
        thread = threading.Thread(target=one.hub_sync)
        thread.start()
        (tmp_path / "taken").read_text()
        way.unlink()
        late = work(other, "scout", "late")
        way.symlink_to(hub.repository)
        (tmp_path / "go").write_text("\n")
        thread.join()
        assert not hook.exists()
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (sent, ["scout"])
        one.hub_sync()
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (late, [])


def test_sync_leaves_alone_what_another_machine_owes(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        before = one.spawn("scout", BRIEFING).genesis
        two.hub_sync()
        way.unlink()
        work(one, "scout", "alone")
        git("update-ref", HEADS + "scout", more_at_hub(hub, "scout"), cwd=hub.repository)
        done = {each.ref: each.what for each in two.hub_sync()}
        assert (done.get(HEADS + "scout"), two.head("scout"), owed(two)) == ("elsewhere", before, ["scout"])
