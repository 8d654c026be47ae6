"""The last work of an agent, wherever it is: nobody goes on without it, whoever has it may publish it, and a server that cannot
write for a while fails nothing."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import git
from support.git_hubs import Hub, away
from support.hub_spaces import HEADS, STEP, at_hub, machine, opened, owed, run, set_hook, work
from support.space_driver import BRIEFING, settings
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("impatient")
COMMITS = 'def main(input):\n    return request("commit", {"changes": {"a.txt": "1"}, "message": "One"})["commit"]\n'
MERGES = 'def main(input):\n    return request("merge", {"from": "sub"})\n'
FULL = """#!/bin/sh
[ -e "$0.full" ] || exec git-receive-pack "$@"
trap "" XFSZ
ulimit -f 0
exec git-receive-pack "$@"
"""


def goes_on(space: clia.Space, how: str) -> Any:
    if how == "merge":
        return space.merge("lead", "sub")
    return space.spawn_from("new", BRIEFING, "sub")


@pytest.mark.parametrize("how", ["merge", "spawn"])
@pytest.mark.parametrize("gone", ["hub", "way"])
def test_nobody_goes_on_from_an_agent_without_its_last_work(
    tmp_path: Path, hub: Hub, way: Path, store: str, how: str, gone: str
) -> None:
    """Somebody was told that it is done: a merge without it would leave it out in silence."""
    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        for name in ("lead", "sub"):
            one.spawn(name, BRIEFING)
        two.hub_sync()
        way.unlink()
        last = work(one, "sub", "last")
        head = two.head("lead")
        if gone == "hub":
            with away(hub):
                refused("work-elsewhere", partial(goes_on, two, how))
        refused("work-elsewhere", partial(goes_on, two, how))
        assert (two.head("lead"), two.agents()) == (head, ["lead", "sub"])
        way.symlink_to(hub.repository)
        one.hub_sync()
        goes_on(two, how)
        assert two.core.graph.descends(two.head("lead" if how == "merge" else "new"), last)


def test_a_flow_that_merges_waits_for_the_last_work(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as one,
        machine(tmp_path / "two", hub, store) as two,
        closing(two.running.queue),
    ):
        one.define("merges", MERGES)
        for name in ("lead", "sub"):
            one.spawn(name, BRIEFING)
        two.hub_sync()
        way.unlink()
        last = work(one, "sub", "last")
        two.start("lead", "merges")
        run(two, tmp_path / "two")
        assert two.session("lead").live, "nothing failed, and nothing was merged"
        way.symlink_to(hub.repository)
        one.hub_sync()
        run(two, tmp_path / "two", to_the_end=True)
        assert two.session("lead").status == "finished"
        assert two.core.graph.descends(two.head("lead"), last)


# Whoever has all of it


def test_whoever_has_all_that_another_machine_owes_may_publish_it(tmp_path: Path, hub: Hub, store: str) -> None:
    """A clone that was restored, or brought to another disk, is another machine: it has what its old self owed."""
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
        with away(hub):
            last = work(one, "scout", "last")
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    shutil.rmtree(tmp_path / "one")
    with opened(tmp_path / "two", store) as two:
        two.hub_sync()
        assert at_hub(hub)[HEADS + "scout"] == last
        assert owed(two) == []
        assert work(two, "scout", "more") == at_hub(hub)[HEADS + "scout"]


def test_whoever_has_all_of_it_may_work_on(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
        with away(hub):
            work(one, "scout", "last")
            shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
            with opened(tmp_path / "two", store) as two:
                more = work(two, "scout", "more")
                refused("work-elsewhere", lambda: work(one, "scout", "too"))
        with opened(tmp_path / "two", store) as two:
            two.hub_sync()
        assert at_hub(hub)[HEADS + "scout"] == more
        assert owed(one) == []
        assert work(one, "scout", "too") == one.head("scout")


def test_a_copy_that_was_made_before_anything_was_shared_is_a_machine_of_its_own(tmp_path: Path, hub: Hub, store: str) -> None:
    clia.init(tmp_path / "one", settings=settings(store=store)).close()
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        assert one.core.clone != two.core.clone


@pytest.mark.parametrize("how", ["work", "sync"])
def test_work_that_the_hub_has_is_not_waited_for(tmp_path: Path, hub: Hub, store: str, how: str) -> None:
    """Who owed it died when the hub had it, and before it could say so."""
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        with away(hub):
            last = work(one, "scout", "last")
        git("push", "--quiet", str(hub.repository), HEADS + "scout", cwd=tmp_path / "one")
        assert owed(two) == ["scout"]
        if how == "sync":
            two.hub_sync()
            assert (owed(two), two.head("scout")) == ([], last)
        assert two.core.graph.descends(work(two, "scout", "more"), last)
        assert [each.what for each in two.hub_sync()] == []
        assert owed(two) == []


# Giving up


def test_what_a_machine_owes_is_not_given_up_while_the_hub_is_away(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    """A third machine that has not seen what was published would go on from before it."""
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as one,
        machine(tmp_path / "two", hub, store) as two,
        machine(tmp_path / "three", hub, store) as three,
    ):
        one.spawn("scout", BRIEFING)
        for each in (two, three):
            each.hub_sync()
        published = work(one, "scout", "published")
        way.unlink()
        work(one, "scout", "lost")
        with away(hub):
            refused("hub-away", lambda: two.hub_sync(abandon=["scout"]))
            assert owed(two) == ["scout"]
            refused("work-elsewhere", lambda: work(three, "scout", "too"))
        refused("nothing-elsewhere", lambda: two.hub_sync(abandon=["scout", "nobody"]))
        assert owed(two) == ["scout"], "all or nothing"
        two.hub_sync(abandon=["scout"])
        with away(hub):
            refused("work-elsewhere", lambda: work(three, "scout", "too"))
            assert two.core.graph.descends(work(two, "scout", "next"), published)


# A server that cannot write


def test_a_server_that_cannot_write_for_a_while_is_worked_without(tmp_path: Path, hub: Hub, store: str) -> None:
    """Its disk is full, say: it can be read, and what was sent is not wrong."""
    server = tmp_path / "receive"
    server.write_text(FULL)
    server.chmod(0o755)
    full = tmp_path / "receive.full"
    with machine(tmp_path / "one", hub, store) as one, closing(one.running.queue):
        git("config", "remote.hub.receivepack", str(server), cwd=tmp_path / "one")
        one.define("commits", COMMITS)
        one.spawn("scout", BRIEFING)
        before = at_hub(hub)[HEADS + "scout"]
        full.touch()
        work(one, "scout", "alone")
        assert (owed(one), at_hub(hub)[HEADS + "scout"]) == (["scout"], before)
        error = refused("hub-away", one.hub_sync)
        assert "cannot accept pushes now: unable to write" in error.message
        one.start("scout", "commits")
        run(one, tmp_path / "one")
        full.unlink()
        run(one, tmp_path / "one", to_the_end=True)
        assert one.session("scout").status == "finished"
        one.hub_sync()
        assert at_hub(hub)[HEADS + "scout"] == one.head("scout")


def test_a_hub_that_refuses_for_a_while_fails_no_session(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, closing(one.running.queue):
        one.define("commits", COMMITS)
        one.spawn("scout", BRIEFING)
        one.start("scout", "commits")
        hook = set_hook(hub, "pre-receive", "echo 'closed for today'; exit 1")
        run(one, tmp_path / "one")
        run(one, tmp_path / "one")
        assert one.session("scout").live
        hook.unlink()
        run(one, tmp_path / "one", to_the_end=True)
        assert one.session("scout").status == "finished"


def test_a_step_waits_where_people_have_the_branch(tmp_path: Path, hub: Hub, store: str) -> None:
    """Of the agent that is merged: it has moved at the hub, and its files are open here."""
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        one.define("step", STEP)
        for name in ("lead", "sub"):
            one.spawn(name, BRIEFING)
        two.hub_sync()
        git("worktree", "add", "--quiet", str(tmp_path / "tree"), "agents/sub", cwd=tmp_path / "two")
        work(one, "sub", "last")
        refused("branch-checked-out", lambda: two.merge("lead", "sub"))
        git("switch", "--quiet", "--detach", cwd=tmp_path / "tree")
        two.merge("lead", "sub")
