"""Workers while the hub is unreachable: a machine leaves what it cannot do to others, and no request fails."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.config import Config
from clia.hub import refs as hub_refs
from clia.hub import remote
from clia.testing import components
from support import git
from support.effects import worker_for
from support.git_hubs import Hub, away
from support.hub_spaces import HEADS, ONCE, STEP, TRACES, machine, more_at_hub, run, work
from support.space_driver import BRIEFING, postgres_url
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clia.workers.effects.context import Context

    Step = Callable[[Context, Any], Any]


def begin(space: clia.Space, *agents: str) -> None:
    space.sessions.define("step", STEP)
    for name in agents:
        space.spawn(name, BRIEFING)
        space.start(name, "step")


def test_a_worker_skips_agents_with_unpublished_work_elsewhere(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    agents: list[str] = []

    def step(context: Context, payload: Any) -> Any:
        agents.append(context.agent)
        return payload

    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        begin(machine_one, "far", "near")
        way.unlink()
        work(machine_one, "far", "alone")
        with closing(machine_two.local.queue):
            run(machine_two, tmp_path / "two", step)
            assert agents == ["near"]
            way.symlink_to(hub.repository)
            machine_one.hub.sync()
            run(machine_two, tmp_path / "two", step)
        assert agents == ["near", "far"]
        assert machine_two.sessions(live=True) == []


@pytest.mark.parametrize("has_come", [False, True], ids=["never-seen", "lags"])
def test_a_request_of_a_missing_agent_waits_for_the_hub(
    tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch, has_come: bool
) -> None:
    def step(context: Context, payload: Any) -> Any:
        tried.append(context.space.head(context.agent))
        work(context.space, context.agent, "done")
        return payload

    tried: list[str] = []
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        begin(machine_one, "scout")
        if has_come:
            machine_two.hub.sync()
            work(machine_one, "scout", "more")
        monkeypatch.setattr(remote, "BACKOFF_SECONDS", 3600.0)  # it does not end during the runs on a slow machine
        with away(hub):
            for _ in range(3):
                assert run(machine_two, tmp_path / "two", step).given_up == 0
            assert [task.attempts for task in machine_two.local.queue.waiting()] == [0]
            assert machine_two.hub.elsewhere(["scout"]) == {"scout"}  # known by now, so it is not attempted
            count = len(tried)
            assert run(machine_two, tmp_path / "two", step).retried == 0
            assert len(tried) == count
        machine_two.hub.sync()
        assert run(machine_two, tmp_path / "two", step, to_the_end=True).answered == 1
        assert (machine_two.session("scout").status, machine_two.session("scout").result) == ("finished", 1)
        assert "done.txt" in machine_two.files("scout")


def test_an_answer_that_cannot_be_recorded_is_recorded_when_the_hub_is_back(tmp_path: Path, hub: Hub, store: str) -> None:
    """During the handler the hub becomes unreachable, and another machine has the agent's last work."""
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        begin(machine_one, "scout")
        machine_two.hub.sync()

        def step(_: Context, payload: Any) -> Any:
            if not moved:
                work(machine_one, "scout", "meanwhile")
                moved.append(hub.repository.rename(tmp_path / "gone"))
            return payload

        moved: list[Path] = []
        status = run(machine_two, tmp_path / "two", step)
        assert (status.given_up, status.answered) == (0, 0)
        assert [
            (task.attempts, "does not have the last work" in str(task.error)) for task in machine_two.local.queue.waiting()
        ] == [(0, True)]
        moved[0].rename(hub.repository)
        machine_two.hub.sync()
        assert run(machine_two, tmp_path / "two", step, to_the_end=True).answered == 1
        assert (machine_two.session("scout").status, machine_two.session("scout").result) == ("finished", 1)


def test_an_agent_that_was_not_fetched_is_distinguished_from_an_unknown_one(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        with away(hub):
            assert refused("agent-not-here", lambda: machine_two.head("scout")).fields == {"agent": "scout"}
            refused("agent-not-here", lambda: machine_two.log("scout"))
            refused("no-such-agent", lambda: machine_two.head("nobody"))
            refused("no-such-object", lambda: machine_two.log("nobody"))
        machine_two.hub.sync()
        assert machine_two.head("scout") == machine_one.head("scout")


def test_a_machine_skips_the_same_agents_each_time(tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_one.spawn("seen", BRIEFING)
        machine_two.hub.sync()
        machine_one.spawn("unseen", BRIEFING)
        assert (
            machine_two.hub.elsewhere(["seen", "unseen"]) == frozenset()
        )  # the hub is reachable, so working on an agent fetches it
        with away(hub):
            refused("agent-not-here", lambda: machine_two.head("unseen"))
            assert machine_two.hub.elsewhere(["seen", "unseen", "nobody"]) == {"unseen"}
            monkeypatch.setattr(hub_refs, "SCAN_FROM", 1)
            assert machine_two.hub.elsewhere(["seen", "unseen", "nobody"]) == {"unseen"}


# A lagging machine with a reachable hub


COMMIT = 'def main(input):\n    return request("commit", {"kind": input, "changes": {"done.txt": "1"}})\n'
SPAWN = 'def main(input):\n    return request("spawn", {"name": "child", "briefing": {"title": "b"}, "flow": "news"})\n'


def test_a_commit_of_an_attempt_on_another_machine_is_not_repeated(tmp_path: Path, hub: Hub, store: str) -> None:
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        machine_one.sessions.define("commits", COMMIT)
        machine_one.spawn("scout", BRIEFING)
        request = machine_one.start("scout", "commits", "finding").pending[0]
        machine_two.hub.sync()
        # As a worker of machine one leaves it when it is killed before its answer.
        mark = {"request": request.id, "asked": request.since}
        cid = machine_one.commit_with_trace("scout", "finding", changes={"done.txt": b"1"}, meta=mark)
        assert run(machine_two, tmp_path / "two").answered == 1
        assert machine_two.session("scout").result == {"commit": cid}
        assert [commit.cid for commit in machine_two.log("scout", own=True) if commit.kind == "finding"] == [cid]


def test_a_late_attempt_leaves_one_commit(tmp_path: Path, hub: Hub, store: str) -> None:
    """Another machine lost its claim, and commits between our read and our commit."""
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        machine_one.sessions.define("commits", COMMIT)
        machine_one.spawn("scout", BRIEFING)
        request = machine_one.start("scout", "commits", "finding").pending[0]
        machine_two.hub.sync()
        looked = machine_two.log
        late: list[str] = []

        def log(*words: Any, **more: Any) -> Any:
            commits = looked(*words, **more)
            if not late:
                mark = {"request": request.id, "asked": request.since}
                late.append(machine_one.commit_with_trace("scout", "finding", changes={"done.txt": b"1"}, meta=mark))
            return commits

        machine_two.log = log  # type: ignore[method-assign]
        assert run(machine_two, tmp_path / "two").answered == 1
        assert machine_two.session("scout").result == {"commit": late[0]}


def test_types_and_flows_of_another_machine_are_fetched_when_needed(tmp_path: Path, hub: Hub, store: str) -> None:
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        machine_one.sessions.define("commits", COMMIT)
        machine_one.sessions.define("spawns", SPAWN)
        for name in ("scout", "other"):
            machine_one.spawn(name, BRIEFING)
        machine_two.hub.sync()
        machine_one.types.register("probe", "finding")
        machine_one.sessions.define("news", STEP)
        machine_one.start("scout", "commits", "probe")
        machine_one.start("other", "spawns")
        assert (run(machine_two, tmp_path / "two").answered, machine_two.session("other").status) == (2, "finished")
        assert machine_two.session("child").status == "suspended"


@pytest.mark.parametrize("shared", [True, False], ids=["postgres", "sqlite"])
def test_verbs_find_definitions_of_another_machine(tmp_path: Path, hub: Hub, postgres_address: str, shared: bool) -> None:
    store = postgres_url(postgres_address) if shared else None
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_two.spawn("scout", BRIEFING)
        machine_one.types.register("probe", "finding")
        machine_two.commit("scout", "probe", changes={"a": b"1"})
        machine_one.types.register("report", "briefing")
        machine_two.types.register("daily", "report")
        machine_one.sessions.define("news", STEP)
        assert machine_two.start("scout", "news").pending
        machine_one.sessions.define("more", STEP)
        assert machine_two.behaviours.get("more").name == "more"
        refused("unknown-kind", lambda: machine_two.commit("scout", "nothing", changes={"a": b"2"}))
        refused("no-such-flow", lambda: machine_two.start("scout", "nothing"))


# Work for other machines


def test_missing_definitions_fail_no_session_while_the_hub_is_unreachable(tmp_path: Path, hub: Hub, store: str) -> None:
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        machine_one.sessions.define("commits", COMMIT)
        machine_one.spawn("scout", BRIEFING)
        machine_one.start("scout", "commits", "probe")
        machine_two.hub.sync()
        machine_one.types.register("probe", "finding")
        with away(hub):
            status = run(machine_two, tmp_path / "two")
            assert (status.given_up, status.retried >= 1) == (0, True)
            assert "the latest definitions" in str(status.last)
            refused("news-elsewhere", lambda: machine_two.start("scout", "unheard-of"))
        machine_two.hub.sync()
        assert run(machine_two, tmp_path / "two", to_the_end=True).answered == 1
        assert machine_two.session("scout").status == "finished"


def test_an_agent_with_a_checked_out_branch_is_left_to_another_machine(tmp_path: Path, hub: Hub, store: str) -> None:
    called: list[str] = []

    def step(context: Context, payload: Any) -> Any:
        called.append(context.agent)
        return payload

    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        begin(machine_one, "scout")
        machine_two.hub.sync()
        git("worktree", "add", "--quiet", str(tmp_path / "people"), "agents/scout", cwd=tmp_path / "two")
        work(machine_one, "scout", "more")
        for _ in range(3):
            assert run(machine_two, tmp_path / "two", step).given_up == 0
        assert called == []
        with closing(machine_one.local.queue):
            assert run(machine_one, tmp_path / "one", step, to_the_end=True).answered == 1


def test_a_worker_that_runs_until_idle_waits_for_the_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    with (
        machine(tmp_path / "one", hub, store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
        closing(machine_two.local.queue),
    ):
        begin(machine_one, "scout")
        looks: list[bool] = []

        def wait(event: threading.Event, seconds: float) -> bool:
            if threading.current_thread() is threading.main_thread() and not looks:
                looks.append(True)
                machine_two.hub.sync()
            return event.wait(min(seconds, 0.05))

        hub.repository.rename(tmp_path / "gone")
        refused("agent-not-here", lambda: machine_two.head("scout"))
        (tmp_path / "gone").rename(hub.repository)
        assert machine_two.hub.elsewhere(["scout"]) == {"scout"}
        handlers = {"step": lambda _, payload: payload}
        worker = worker_for(machine_two, tmp_path / "two", handlers, Config(worker=ONCE), queue=machine_two.local.queue, wait=wait)
        assert worker.run(until_idle=True).answered == 1
        assert looks


# Recorded values of refs


@pytest.mark.parametrize("method", ["by plain git", "never done", "abandoned"])
def test_a_machine_with_everything_of_the_hub_can_work_without_it(
    tmp_path: Path, hub: Hub, way: Path, store: str, method: str
) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        machine_one.spawn("scout", BRIEFING)
        machine_two.hub.sync()
        if method == "by plain git":
            git("update-ref", HEADS + "scout", more_at_hub(hub, "scout"), cwd=hub.repository)
            machine_two.hub.sync()
        elif method == "never done":
            components(machine_two).hub_sync.unpublished.announce([(TRACES + "scout", None, "1" * 40)])  # type: ignore[union-attr]
            work(machine_two, "scout", "more")
        else:
            way.unlink()
            work(machine_one, "scout", "lost")
            machine_two.hub.sync(abandon=["scout"])
        with away(hub):
            assert work(machine_two, "scout", "continues")


def test_work_of_others_during_a_sync_is_remembered(tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sync has read is outdated by then; working from there without the hub would be a fork."""
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        machine_one.spawn("scout", BRIEFING)
        hub_sync = components(machine_two).hub_sync
        assert hub_sync is not None
        read = hub_sync.hub.fetch

        def fetch(agent: str | None = None, *, retry_now: bool = False) -> bool:
            fetched = read(agent, retry_now=retry_now)
            work(machine_one, "scout", "meanwhile")
            return fetched

        with monkeypatch.context() as patched:
            patched.setattr(hub_sync.hub, "fetch", fetch)
            machine_two.hub.sync()
        with away(hub):
            refused("work-elsewhere", lambda: work(machine_two, "scout", "more"))
            assert work(machine_one, "scout", "more")


@pytest.mark.parametrize("chain", ["refs/clia/types", "refs/clia/behaviours/step"])
def test_a_definition_that_was_never_pushed_is_not_waited_for(tmp_path: Path, hub: Hub, store: str, chain: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        begin(machine_one, "scout")
        machine_one.types.register("probe", "finding")
        machine_two.hub.sync()
        hub_sync = components(machine_two).hub_sync
        assert hub_sync is not None
        hub_sync.unpublished.announce([(chain, None, "1" * 40)])  # as a process leaves it that is killed before its push
        machine_two.hub.sync()
        with away(hub):
            refused("unknown-kind", lambda: machine_two.commit("scout", "nothing", changes={"a": b"1"}))


def test_an_unpublished_definition_of_another_machine_is_remembered(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        machine_two.spawn("scout", BRIEFING)
        way.unlink()
        machine_one.sessions.define("late", STEP)
        machine_two.hub.sync()
        with away(hub):
            refused("news-elsewhere", lambda: machine_two.start("scout", "late"))
        way.symlink_to(hub.repository)
        machine_one.hub.sync()
        machine_two.hub.sync()
        assert machine_two.start("scout", "late").pending


def test_a_name_used_by_two_clones_belongs_to_the_one_that_keeps_it(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as machine_one, machine(tmp_path / "two", hub) as machine_two:
        with away(hub):
            for space, text in ((machine_one, "ours"), (machine_two, "theirs")):
                space.spawn("scout", clia.Briefing(text))
                work(space, "scout", text)
        machine_two.hub.sync()
        machine_one.hub.sync(forks={"scout": "scout-one"})
        refused("foreign-agent", lambda: work(machine_one, "scout", "more"))
        assert work(machine_one, "scout-one", "more")
        assert work(machine_two, "scout", "more")


def test_a_session_of_a_missing_agent_is_not_an_ailment(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with (
        machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
        machine(tmp_path / "two", hub, store) as machine_two,
    ):
        begin(machine_one, "scout", "smith")
        with away(hub):
            assert machine_two.doctor() == []
            assert machine_two.agents() == []
        way.unlink()
        begin(machine_one, "unsent")
        machine_two.hub.sync()
        assert machine_two.doctor() == []
        refused("agent-not-here", lambda: machine_two.head("unsent"))
        # A branch that no machine has was deleted.
        machine_two.hub.sync(abandon=["unsent"])
        assert [(ailment.code, ailment.agent) for ailment in machine_two.doctor()] == [("no-branch", "unsent")]


def test_examining_a_session_fetches_its_agent_from_the_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as machine_one, machine(tmp_path / "two", hub, store) as machine_two:
        begin(machine_one, "scout")
        assert machine_two.doctor() == []
        assert machine_two.agents() == ["scout"]
        for repository in (hub.repository, tmp_path / "two"):  # no verb archives an agent with a live session
            git("update-ref", "refs/clia/archive/agents/scout", HEADS + "scout", cwd=repository)
            git("update-ref", "-d", HEADS + "scout", cwd=repository)
        assert [ailment.code for ailment in machine_two.doctor()] == ["no-branch"]
