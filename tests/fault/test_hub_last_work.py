"""The last work of an agent: no machine continues without it, any machine that has it may publish it, and a server that cannot
write for a while causes no failures."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.testing import components
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


def continue_from(space: clia.Space, verb: str) -> Any:
    if verb == "merge":
        return space.merge("lead", "sub")
    return space.spawn_from("new", BRIEFING, "sub")


@pytest.mark.parametrize("verb", ["merge", "spawn"])
@pytest.mark.parametrize("missing", ["hub", "way"])
def test_no_machine_continues_from_an_agent_without_its_last_work(
    tmp_path: Path, hub: Hub, way: Path, store: str, verb: str, missing: str
) -> None:
    """The work was acknowledged: a merge without it would silently drop it."""
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        for name in ("lead", "sub"):
            machine_one.spawn(name, BRIEFING)
        machine_two.hub.sync()
        way.unlink()
        last = work(machine_one, "sub", "last")
        head = machine_two.head("lead")
        if missing == "hub":
            with away(hub):
                refused("work-elsewhere", partial(continue_from, machine_two, verb))
        refused("work-elsewhere", partial(continue_from, machine_two, verb))
        assert (machine_two.head("lead"), machine_two.agents()) == (head, ["lead", "sub"])
        way.symlink_to(hub.repository)
        machine_one.hub.sync()
        continue_from(machine_two, verb)
        assert components(machine_two).core.graph.descends(machine_two.head("lead" if verb == "merge" else "new"), last)


def test_a_flow_that_merges_waits_for_the_last_work(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        machine_one.sessions.define("merges", MERGES)
        for name in ("lead", "sub"):
            machine_one.spawn(name, BRIEFING)
        machine_two.hub.sync()
        way.unlink()
        last = work(machine_one, "sub", "last")
        machine_two.start("lead", "merges")
        run(machine_two, tmp_path / "two")
        assert machine_two.session("lead").live, "the session is neither failed nor finished"
        way.symlink_to(hub.repository)
        machine_one.hub.sync()
        run(machine_two, tmp_path / "two", to_the_end=True)
        assert machine_two.session("lead").status == "finished"
        assert components(machine_two).core.graph.descends(machine_two.head("lead"), last)


# Machines that have all of it


def test_a_machine_with_all_unpublished_work_of_another_one_may_publish_it(tmp_path: Path, hub: Hub, store: str) -> None:
    """A clone that was restored or moved to another disk is a new machine: it has the unpublished work of the old one."""
    with machine(tmp_path / "one", hub, store) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        with away(hub):
            last = work(machine_one, "scout", "last")
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    shutil.rmtree(tmp_path / "one")
    with opened(tmp_path / "two", store) as machine_two:
        machine_two.hub.sync()
        assert at_hub(hub)[HEADS + "scout"] == last
        assert owed(machine_two) == []
        assert work(machine_two, "scout", "more") == at_hub(hub)[HEADS + "scout"]


def test_a_machine_with_all_of_the_work_may_continue(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        with away(hub):
            work(machine_one, "scout", "last")
            shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
            with opened(tmp_path / "two", store) as machine_two:
                more = work(machine_two, "scout", "more")
                refused("work-elsewhere", lambda: work(machine_one, "scout", "too"))
        with opened(tmp_path / "two", store) as machine_two:
            machine_two.hub.sync()
        assert at_hub(hub)[HEADS + "scout"] == more
        assert owed(machine_one) == []
        assert work(machine_one, "scout", "too") == machine_one.head("scout")


def test_a_copy_from_before_the_hub_is_a_separate_machine(tmp_path: Path, hub: Hub, store: str) -> None:
    clia.init(tmp_path / "one", settings=settings(store=store)).close()
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        assert components(machine_one).core.clone != components(machine_two).core.clone


@pytest.mark.parametrize("method", ["work", "sync"])
def test_work_that_the_hub_has_is_not_waited_for(tmp_path: Path, hub: Hub, store: str, method: str) -> None:
    """Its machine was killed after the push and before it recorded that."""
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        machine_two.hub.sync()
        with away(hub):
            last = work(machine_one, "scout", "last")
        git("push", "--quiet", str(hub.repository), HEADS + "scout", cwd=tmp_path / "one")
        assert owed(machine_two) == ["scout"]
        if method == "sync":
            machine_two.hub.sync()
            assert (owed(machine_two), machine_two.head("scout")) == ([], last)
        assert components(machine_two).core.graph.descends(work(machine_two, "scout", "more"), last)
        assert [synced_ref.what for synced_ref in machine_two.hub.sync()] == []
        assert owed(machine_two) == []


# Giving up


def test_unpublished_work_is_not_given_up_while_the_hub_is_unreachable(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    """A third machine without the published work would continue from an older commit."""
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        machine(tmp_path / "three", hub, store) as machine_three,
    ):
        machine_one.spawn("scout", BRIEFING)
        for other_machine in (machine_two, machine_three):
            other_machine.hub.sync()
        published = work(machine_one, "scout", "published")
        way.unlink()
        work(machine_one, "scout", "lost")
        with away(hub):
            refused("hub-away", lambda: machine_two.hub.sync(abandon=["scout"]))
            assert owed(machine_two) == ["scout"]
            refused("work-elsewhere", lambda: work(machine_three, "scout", "too"))
        refused("nothing-elsewhere", lambda: machine_two.hub.sync(abandon=["scout", "nobody"]))
        assert owed(machine_two) == ["scout"], "all or nothing"
        machine_two.hub.sync(abandon=["scout"])
        with away(hub):
            refused("work-elsewhere", lambda: work(machine_three, "scout", "too"))
            assert components(machine_two).core.graph.descends(work(machine_two, "scout", "next"), published)


# A server that cannot write


def test_work_continues_while_the_server_cannot_write(tmp_path: Path, hub: Hub, store: str) -> None:
    """For example with a full disk: it can be read, and the push is not at fault."""
    server = tmp_path / "receive"
    server.write_text(FULL)
    server.chmod(0o755)
    full = tmp_path / "receive.full"
    with machine(tmp_path / "one", hub, store) as machine_one, closing(machine_one.local.queue):
        git("config", "remote.hub.receivepack", str(server), cwd=tmp_path / "one")
        machine_one.sessions.define("commits", COMMITS)
        machine_one.spawn("scout", BRIEFING)
        before = at_hub(hub)[HEADS + "scout"]
        full.touch()
        work(machine_one, "scout", "alone")
        assert (owed(machine_one), at_hub(hub)[HEADS + "scout"]) == (["scout"], before)
        error = refused("hub-away", machine_one.hub.sync)
        assert "cannot accept pushes now: unable to write" in error.message
        machine_one.start("scout", "commits")
        run(machine_one, tmp_path / "one")
        full.unlink()
        run(machine_one, tmp_path / "one", to_the_end=True)
        assert machine_one.session("scout").status == "finished"
        machine_one.hub.sync()
        assert at_hub(hub)[HEADS + "scout"] == machine_one.head("scout")


def test_a_temporary_refusal_by_the_hub_fails_no_session(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, closing(machine_one.local.queue):
        machine_one.sessions.define("commits", COMMITS)
        machine_one.spawn("scout", BRIEFING)
        machine_one.start("scout", "commits")
        hook = set_hook(hub, "pre-receive", "echo 'closed for today'; exit 1")
        run(machine_one, tmp_path / "one")
        run(machine_one, tmp_path / "one")
        assert machine_one.session("scout").live
        hook.unlink()
        run(machine_one, tmp_path / "one", to_the_end=True)
        assert machine_one.session("scout").status == "finished"


def test_a_step_waits_while_the_branch_is_checked_out(tmp_path: Path, hub: Hub, store: str) -> None:
    """The branch of the merged agent has moved at the hub and is checked out here."""
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_one.sessions.define("step", STEP)
        for name in ("lead", "sub"):
            machine_one.spawn(name, BRIEFING)
        machine_two.hub.sync()
        git("worktree", "add", "--quiet", str(tmp_path / "tree"), "agents/sub", cwd=tmp_path / "two")
        work(machine_one, "sub", "last")
        refused("branch-checked-out", lambda: machine_two.merge("lead", "sub"))
        git("switch", "--quiet", "--detach", cwd=tmp_path / "tree")
        machine_two.merge("lead", "sub")
