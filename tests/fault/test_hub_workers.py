"""Workers while the hub is away: what a machine cannot do it leaves to others, and no request fails for it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from clia.app.config import Config
from clia.space import ledger
from support.effects import QUICK, worker_for
from support.git_hubs import Hub, away
from support.hub_spaces import STEP, machine, work
from support.space_driver import BRIEFING
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clia
    from clia.app.effects.context import Context
    from clia.app.worker import Status


ONCE = QUICK._replace(attempts=1, backoff_seconds=0.01, backoff_max_seconds=0.02)
"""Whatever fails once has failed for good."""


def run(space: clia.Space, root: Path, step: Callable[[Context, Any], Any]) -> Status:
    return worker_for(space, root, {"step": step}, Config(worker=ONCE), queue=space.running.queue).run(once=True)


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
        assert run(two, tmp_path / "two", step).answered == 1
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
        assert [(each.attempts, "has not seen" in str(each.error)) for each in two.running.queue.waiting()] == [(0, True)]
        gone[0].rename(hub.repository)
        two.hub_sync()
        assert run(two, tmp_path / "two", step).answered == 1
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
            monkeypatch.setattr(ledger, "_MANY", 1)
            assert two.elsewhere(["seen", "unseen", "nobody"]) == {"unseen"}
