"""Workers while the hub is away: what a machine cannot do it leaves to others, and no request fails for it."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.config import Config
from clia.hub import refs as hub_refs
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
    space.define("step", STEP)
    for name in agents:
        space.spawn(name, BRIEFING)
        space.start(name, "step")


def test_a_worker_leaves_agents_alone_that_are_owed_elsewhere(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    asked: list[str] = []

    def step(context: Context, payload: Any) -> Any:
        asked.append(context.agent)
        return payload

    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        begin(one, "far", "near")
        way.unlink()
        work(one, "far", "alone")
        with closing(two.running.queue):
            run(two, tmp_path / "two", step)
            assert asked == ["near"]
            way.symlink_to(hub.repository)
            one.hub_sync()
            run(two, tmp_path / "two", step)
        assert asked == ["near", "far"]
        assert two.sessions(live=True) == []


@pytest.mark.parametrize("has_come", [False, True], ids=["never-seen", "lags"])
def test_a_request_for_an_agent_that_has_not_come_here_waits_for_the_hub_and_does_not_fail(
    tmp_path: Path, hub: Hub, store: str, has_come: bool
) -> None:
    def step(context: Context, payload: Any) -> Any:
        tried.append(context.space.head(context.agent))
        work(context.space, context.agent, "done")
        return payload

    tried: list[str] = []
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        begin(one, "scout")
        if has_come:
            two.hub_sync()
            work(one, "scout", "more")
        with away(hub):
            for _ in range(3):
                assert run(two, tmp_path / "two", step).given_up == 0
            assert [each.attempts for each in two.running.queue.waiting()] == [0]
            assert two.elsewhere(["scout"]) == {"scout"}  # found out by now: it is not even tried
            count = len(tried)
            assert run(two, tmp_path / "two", step).retried == 0
            assert len(tried) == count
        two.hub_sync()
        assert run(two, tmp_path / "two", step, to_the_end=True).answered == 1
        assert (two.session("scout").status, two.session("scout").result) == ("finished", 1)
        assert "done.txt" in two.files("scout")


def test_an_answer_that_cannot_be_given_here_is_given_when_the_hub_is_back(tmp_path: Path, hub: Hub, store: str) -> None:
    """The hub goes away, and another machine has the agent's last work, while a handler is at it."""
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        begin(one, "scout")
        two.hub_sync()

        def step(_: Context, payload: Any) -> Any:
            if not gone:
                work(one, "scout", "meanwhile")
                gone.append(hub.repository.rename(tmp_path / "gone"))
            return payload

        gone: list[Path] = []
        found = run(two, tmp_path / "two", step)
        assert (found.given_up, found.answered) == (0, 0)
        assert [(each.attempts, "does not have the last work" in str(each.error)) for each in two.running.queue.waiting()] == [
            (0, True)
        ]
        gone[0].rename(hub.repository)
        two.hub_sync()
        assert run(two, tmp_path / "two", step, to_the_end=True).answered == 1
        assert (two.session("scout").status, two.session("scout").result) == ("finished", 1)


def test_an_agent_that_has_not_come_here_is_told_from_one_that_there_is_not(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        one.spawn("scout", BRIEFING)
        with away(hub):
            assert refused("agent-not-here", lambda: two.head("scout")).fields == {"agent": "scout"}
            refused("agent-not-here", lambda: two.log("scout"))
            refused("no-such-agent", lambda: two.head("nobody"))
            refused("no-such-object", lambda: two.log("nobody"))
        two.hub_sync()
        assert two.head("scout") == one.head("scout")


def test_of_many_agents_the_same_ones_are_left_to_others(
    tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        one.spawn("seen", BRIEFING)
        two.hub_sync()
        one.spawn("unseen", BRIEFING)
        assert two.elsewhere(["seen", "unseen"]) == frozenset()  # the hub is there: whoever works on one has it then
        with away(hub):
            refused("agent-not-here", lambda: two.head("unseen"))
            assert two.elsewhere(["seen", "unseen", "nobody"]) == {"unseen"}
            monkeypatch.setattr(hub_refs, "SCAN_FROM", 1)
            assert two.elsewhere(["seen", "unseen", "nobody"]) == {"unseen"}


# A machine that lags, and the hub is there


COMMIT = 'def main(input):\n    return request("commit", {"kind": input, "changes": {"done.txt": "1"}})\n'
SPAWN = 'def main(input):\n    return request("spawn", {"name": "child", "briefing": {"title": "b"}, "flow": "news"})\n'


def test_what_an_attempt_committed_on_another_machine_is_not_committed_again(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        one.define("commits", COMMIT)
        one.spawn("scout", BRIEFING)
        asked = one.start("scout", "commits", "finding").pending[0]
        two.hub_sync()
        # As a worker of machine one leaves it that dies before it can answer.
        mark = {"request": asked.id, "asked": asked.since}
        made = one.commit_with_trace("scout", "finding", changes={"done.txt": b"1"}, meta=mark)
        assert run(two, tmp_path / "two").answered == 1
        assert two.session("scout").result == {"commit": made}
        assert [each.cid for each in two.log("scout", own=True) if each.kind == "finding"] == [made]


def test_an_attempt_that_comes_to_its_end_late_leaves_one_commit(tmp_path: Path, hub: Hub, store: str) -> None:
    """Another machine lost its claim, and commits between our look and our commit."""
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        one.define("commits", COMMIT)
        one.spawn("scout", BRIEFING)
        asked = one.start("scout", "commits", "finding").pending[0]
        two.hub_sync()
        looked = two.log
        late: list[str] = []

        def log(*words: Any, **more: Any) -> Any:
            found = looked(*words, **more)
            if not late:
                mark = {"request": asked.id, "asked": asked.since}
                late.append(one.commit_with_trace("scout", "finding", changes={"done.txt": b"1"}, meta=mark))
            return found

        two.log = log  # type: ignore[method-assign]
        assert run(two, tmp_path / "two").answered == 1
        assert two.session("scout").result == {"commit": late[0]}


def test_types_and_flows_of_another_machine_are_there_when_they_are_needed(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        one.define("commits", COMMIT)
        one.define("spawns", SPAWN)
        for name in ("scout", "other"):
            one.spawn(name, BRIEFING)
        two.hub_sync()
        one.register_type("probe", "finding")
        one.define("news", STEP)
        one.start("scout", "commits", "probe")
        one.start("other", "spawns")
        assert (run(two, tmp_path / "two").answered, two.session("other").status) == (2, "finished")
        assert two.session("child").status == "suspended"


@pytest.mark.parametrize("shared", [True, False], ids=["postgres", "sqlite"])
def test_verbs_find_what_another_machine_has_defined(tmp_path: Path, hub: Hub, postgres_address: str, shared: bool) -> None:
    store = postgres_url(postgres_address) if shared else None
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        two.spawn("scout", BRIEFING)
        one.register_type("probe", "finding")
        two.commit("scout", "probe", changes={"a": b"1"})
        one.register_type("report", "briefing")
        two.register_type("daily", "report")
        one.define("news", STEP)
        assert two.start("scout", "news").pending
        one.define("more", STEP)
        assert two.behaviour("more").name == "more"
        refused("unknown-kind", lambda: two.commit("scout", "nothing", changes={"a": b"2"}))
        refused("no-such-flow", lambda: two.start("scout", "nothing"))


# What cannot be done here


def test_what_has_not_come_here_fails_no_session_while_the_hub_is_away(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        one.define("commits", COMMIT)
        one.spawn("scout", BRIEFING)
        one.start("scout", "commits", "probe")
        two.hub_sync()
        one.register_type("probe", "finding")
        with away(hub):
            found = run(two, tmp_path / "two")
            assert (found.given_up, found.retried >= 1) == (0, True)
            assert "the latest definitions" in str(found.last)
            refused("news-elsewhere", lambda: two.start("scout", "unheard-of"))
        two.hub_sync()
        assert run(two, tmp_path / "two", to_the_end=True).answered == 1
        assert two.session("scout").status == "finished"


def test_a_branch_that_people_have_checked_out_here_is_left_to_another_machine(tmp_path: Path, hub: Hub, store: str) -> None:
    called: list[str] = []

    def step(context: Context, payload: Any) -> Any:
        called.append(context.agent)
        return payload

    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        begin(one, "scout")
        two.hub_sync()
        git("worktree", "add", "--quiet", str(tmp_path / "people"), "agents/scout", cwd=tmp_path / "two")
        work(one, "scout", "more")
        for _ in range(3):
            assert run(two, tmp_path / "two", step).given_up == 0
        assert called == []
        with closing(one.running.queue):
            assert run(one, tmp_path / "one", step, to_the_end=True).answered == 1


def test_a_worker_that_is_to_work_until_nothing_is_left_waits_for_the_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two, closing(two.running.queue):
        begin(one, "scout")
        looks: list[bool] = []

        def wait(event: threading.Event, seconds: float) -> bool:
            if threading.current_thread() is threading.main_thread() and not looks:
                looks.append(True)
                two.hub_sync()
            return event.wait(min(seconds, 0.05))

        hub.repository.rename(tmp_path / "gone")
        refused("agent-not-here", lambda: two.head("scout"))
        (tmp_path / "gone").rename(hub.repository)
        assert two.elsewhere(["scout"]) == {"scout"}
        handlers = {"step": lambda _, payload: payload}
        worker = worker_for(two, tmp_path / "two", handlers, Config(worker=ONCE), queue=two.running.queue, wait=wait)
        assert worker.run(until_idle=True).answered == 1
        assert looks


# The notes of what refs are to be


@pytest.mark.parametrize("how", ["by plain git", "never done", "abandoned"])
def test_whoever_has_all_that_the_hub_has_may_work_while_it_is_away(
    tmp_path: Path, hub: Hub, way: Path, store: str, how: str
) -> None:
    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        if how == "by plain git":
            git("update-ref", HEADS + "scout", more_at_hub(hub, "scout"), cwd=hub.repository)
            two.hub_sync()
        elif how == "never done":
            components(two).hub_sync.unpublished.announce([(TRACES + "scout", None, "1" * 40)])  # type: ignore[union-attr]
            work(two, "scout", "more")
        else:
            way.unlink()
            work(one, "scout", "lost")
            two.hub_sync(abandon=["scout"])
        with away(hub):
            assert work(two, "scout", "goes on")


def test_what_others_do_while_a_machine_syncs_is_not_forgotten(
    tmp_path: Path, hub: Hub, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read is behind by then; with the hub away, work on from there would be a fork."""
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        one.spawn("scout", BRIEFING)
        hub_sync = components(two).hub_sync
        assert hub_sync is not None
        read = hub_sync.hub.fetch

        def fetch(agent: str | None = None, *, retry_now: bool = False) -> bool:
            found = read(agent, retry_now=retry_now)
            work(one, "scout", "meanwhile")
            return found

        with monkeypatch.context() as patched:
            patched.setattr(hub_sync.hub, "fetch", fetch)
            two.hub_sync()
        with away(hub):
            refused("work-elsewhere", lambda: work(two, "scout", "more"))
            assert work(one, "scout", "more")


@pytest.mark.parametrize("chain", ["refs/clia/types", "refs/clia/behaviours/step"])
def test_a_definition_that_never_came_is_not_waited_for(tmp_path: Path, hub: Hub, store: str, chain: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        begin(one, "scout")
        one.register_type("probe", "finding")
        two.hub_sync()
        hub_sync = components(two).hub_sync
        assert hub_sync is not None
        hub_sync.unpublished.announce([(chain, None, "1" * 40)])  # as a process leaves it that dies before its push
        two.hub_sync()
        with away(hub):
            refused("unknown-kind", lambda: two.commit("scout", "nothing", changes={"a": b"1"}))


def test_a_definition_that_another_machine_still_owes_is_not_forgotten(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        two.spawn("scout", BRIEFING)
        way.unlink()
        one.define("late", STEP)
        two.hub_sync()
        with away(hub):
            refused("news-elsewhere", lambda: two.start("scout", "late"))
        way.symlink_to(hub.repository)
        one.hub_sync()
        two.hub_sync()
        assert two.start("scout", "late").pending


def test_a_name_that_two_clones_gave_is_that_of_the_clone_which_keeps_it(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        with away(hub):
            for space, text in ((one, "ours"), (two, "theirs")):
                space.spawn("scout", clia.Briefing(text))
                work(space, "scout", text)
        two.hub_sync()
        one.hub_sync(forks={"scout": "scout-one"})
        refused("foreign-agent", lambda: work(one, "scout", "more"))
        assert work(one, "scout-one", "more")
        assert work(two, "scout", "more")


def test_a_session_of_an_agent_that_has_not_come_here_ails_nothing(tmp_path: Path, hub: Hub, way: Path, store: str) -> None:
    with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
        begin(one, "scout", "smith")
        with away(hub):
            assert two.doctor() == []
            assert two.agents() == []
        way.unlink()
        begin(one, "unsent")
        two.hub_sync()
        assert two.doctor() == []
        refused("agent-not-here", lambda: two.head("unsent"))
        # A branch that no machine has is gone.
        two.hub_sync(abandon=["unsent"])
        assert [(each.code, each.agent) for each in two.doctor()] == [("no-branch", "unsent")]


def test_an_agent_that_the_hub_has_comes_when_its_session_is_examined(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        begin(one, "scout")
        assert two.doctor() == []
        assert two.agents() == ["scout"]
        for repository in (hub.repository, tmp_path / "two"):  # no verb puts one away whose session is live
            git("update-ref", "refs/clia/archive/agents/scout", HEADS + "scout", cwd=repository)
            git("update-ref", "-d", HEADS + "scout", cwd=repository)
        assert [each.code for each in two.doctor()] == ["no-branch"]
