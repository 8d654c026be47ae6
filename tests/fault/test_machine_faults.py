"""Faults of one machine of several: the others continue, and nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from clia.facade import opening
from clia.facade.config import Config
from clia.store.interface import Claim, Task
from clia.store.postgres_server import lock_number
from clia.users.service import users_of
from clia.workers.fleet import WORKER
from clia.workers.heartbeats import HeartbeatWriter, ProcessInfo
from clia.workers.setup import make_tools
from support import git
from support.crashes import apart, exit_code
from support.effects import QUICK, in_background, worker_for
from support.forge_server import Api, ForgeProcess, eventually
from support.held_worker import hold, is_busy, start
from support.machine_crashes import crash_at_each_point, stop_in_each_case
from support.machines import STEPS, Machines, endings, fresh, with_sessions
from support.own_postgres import own_server
from support.partition import partition_of
from support.space_driver import BRIEFING, postgres_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    import clia
    from clia.workers.effects.context import Context
    from clia.workers.worker import Worker

PATIENCE = 120.0
"""Seconds to wait before a test fails."""
FROM_INTENT_ON = ["intent-recorded", "ref-locked", "hub-moved", "notes-bound"]
"""The steps of a verb between its start and its end."""


def test_verb_killed_at_any_step_is_finished_or_undone_by_another_machine(
    tmp_path: Path, postgres_address: str, soak: bool
) -> None:
    store = postgres_url(postgres_address)
    apart(crash_at_each_point, str(tmp_path), store, ["commit", "decide", "end"], None if soak else FROM_INTENT_ON)


def test_stopped_process_finishes_only_what_had_reached_the_hub(tmp_path: Path, postgres_address: str, soak: bool) -> None:
    """It is stopped in the middle of a verb until the server has dropped its locks; another machine continues in the meantime."""
    apart(stop_in_each_case, str(tmp_path), postgres_url(postgres_address), soak)


# Workers


def wait_for(condition: Callable[[], bool], *at_work: BaseProcess) -> None:
    """Wait until a condition holds; none of the processes may end before."""
    never = threading.Event()
    until = monotonic() + PATIENCE
    while not condition():
        assert {process.exitcode for process in at_work} <= {None}
        assert monotonic() < until, "the condition did not hold in time"
        never.wait(0.02)


def send(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


@contextmanager
def kill_if_alive(*processes: BaseProcess) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def check_each_step_once(machines: Machines, agents: Sequence[str], steps: int) -> None:
    with machines.open("one") as space:
        space.hub.sync()
        for agent in agents:
            session = space.session(agent)
            assert (session.status, session.result) == ("finished", [number * 10 for number in range(steps)]), session.failure
            resumed = Counter(event["resume"][0] for event in space.sessions.journal(agent) if event["event"] == "resumed")
            assert resumed == Counter(range(1, steps + 1))
            assert list(endings(space, agent)) == ["finished"]
        report = space.verify()
        assert report.clean, report.findings


def test_workers_of_two_machines_wait_for_a_restarted_server_and_do_each_step_once(tmp_path: Path) -> None:
    with own_server() as server:
        machines = Machines(str(tmp_path), server.url)
        with machines.join("one") as space:
            machines.join("two").close()
            agents = with_sessions(space, 8, 2)
        workers = [machines.start(machine, machine) for machine in ("one", "two")]
        with kill_if_alive(*workers):
            wait_for(lambda: {name for name, *_ in machines.tried()} == {"one", "two"}, *workers)
            server.stop()
            assert any(worker.exitcode is None for worker in workers)
            server.start()
            assert [exit_code(worker, PATIENCE) for worker in workers] == [0, 0]
        check_each_step_once(machines, agents, 2)
        with fresh(machines) as clone:
            assert clone.verify().clean
            for agent in agents:
                assert [commit.subject for commit in clone.history.own(agent) if commit.kind == "finding"] == ["step 1", "step 0"]


@pytest.mark.parametrize("fault", ["silent", "silent for long", "stopped"])
def test_a_worker_cut_off_during_its_lease_learns_that_another_has_answered(
    tmp_path: Path, postgres_address: str, fault: str
) -> None:
    """Its connection becomes silent and recovers or breaks, or the process is stopped."""
    store = postgres_url(postgres_address)
    machines = Machines(str(tmp_path), store)
    with machines.join("one") as space:
        machines.join("two").close()
        agents = with_sessions(space, 1, 1)
    hold_file = hold(machines, "w1")
    with partition_of(store) as way, kill_if_alive(first := start(machines._replace(store=way.store), "one", "w1")):

        def cut_off() -> bool:
            """Not in the middle of a transaction, which would block all others; another test covers that."""
            way.fall_silent() if fault != "stopped" else send(first, signal.SIGSTOP)
            if not is_busy(store, "w1"):
                return True
            reconnect(cut=False)
            return False

        def reconnect(*, cut: bool) -> None:
            way.heal(cut=cut) if fault != "stopped" else send(first, signal.SIGCONT)

        wait_for(lambda: len(machines.tried()) == 1, first)
        wait_for(cut_off, first)
        second = start(machines, "two", "w2")
        with kill_if_alive(second):
            assert exit_code(second, PATIENCE) == 0
        check_each_step_once(machines, agents, 1)
        hold_file.unlink()
        reconnect(cut=fault == "silent for long")
        assert exit_code(first, PATIENCE) == 0
    assert machines.tried() == [("w1", "a0", "1.1"), ("w2", "a0", "1.1")]
    assert machines.paper.read("ended") == [("w2", "1", "0", "0"), ("w1", "0", "1", "0")]  # answered, gone, given up
    check_each_step_once(machines, agents, 1)


# Clocks


NAP = 'def main(input):\n    return request("timer", {"seconds": input})\n'
HOUR = 3600.0
LEASES = (1.0, 6.0, 30.0)
"""Seconds. A busy machine may be too slow to renew a short lease; then a longer one is used."""
LOOKS = 20
"""How often a worker must look for work while another one holds a request."""


def joined_with_clock(machines: Machines, machine: str, ahead: float, monkeypatch: pytest.MonkeyPatch) -> clia.Space:
    """A machine whose clock is this number of seconds ahead."""
    with monkeypatch.context() as patch:
        patch.setattr(opening, "clock_of", lambda _: lambda: datetime.now(UTC) + timedelta(seconds=ahead))
        return machines.join(machine)


def worker_on(space: clia.Space, root: Path, name: str, handlers: dict[str, Any], lease: float = LEASES[-1], **more: Any) -> Worker:
    """A worker with the clock of its space, like ``clia worker``."""
    tools = make_tools(space.local.clock, {})
    config = Config(worker=QUICK._replace(lease_seconds=lease))
    return worker_for(space, root, handlers, config, queue=space.local.queue, tools=tools, name=name, **more)


def done_in_time(worker: Worker) -> None:
    thread = in_background(worker, until_idle=True)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_machines_with_clocks_two_hours_apart_use_one_clock(
    tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is an hour ahead, one behind: timers, leases and commits use the server's clock, and the fleet shows both offsets."""
    machines = Machines(str(tmp_path), postgres_url(postgres_address))
    began = datetime.now(UTC)
    with (
        joined_with_clock(machines, "one", HOUR, monkeypatch) as ahead,
        joined_with_clock(machines, "two", -HOUR, monkeypatch) as behind,
    ):
        ahead.sessions.define("nap", NAP)
        for agent, asks, answers in (("early", behind, ahead), ("late", ahead, behind)):
            asks.spawn(agent, BRIEFING)
            started_at = monotonic()
            asks.start(agent, "nap", 1)
            done_in_time(worker_on(answers, machines.root("one"), f"for {agent}", {}))
            assert monotonic() - started_at >= 1
            assert asks.session(agent).status == "finished"
            answers.commit(agent, "finding", changes={"a.txt": b"1"})
        check_leases(machines, ahead, behind)
        for number, space in enumerate((ahead, behind)):
            HeartbeatWriter(space, ProcessInfo(WORKER, f"w{number}")).beat()
        off = {worker.name: worker.clock_off for worker in behind.fleet().workers}
        behind.hub.sync()
    assert off == {"w0": pytest.approx(HOUR, abs=PATIENCE), "w1": pytest.approx(-HOUR, abs=PATIENCE)}
    refs = ("refs/heads/agents/*", "refs/clia/events/*", "refs/notes/clia/*")
    times = git("log", "--format=%ct", *(f"--glob={ref_prefix}" for ref_prefix in refs), cwd=machines.root("two")).split()
    assert len(times) > 8
    assert all(began.timestamp() - 5 <= int(commit_time) <= datetime.now(UTC).timestamp() + 5 for commit_time in times)


def check_leases(machines: Machines, ahead: clia.Space, behind: clia.Space) -> None:
    """Each holds a request while the other looks for work: a renewed lease is kept, an expired one is taken over."""
    for name, holds, looks in (("one", ahead, behind), ("two", behind, ahead)):
        assert any(lease_is_respected(machines, holds, looks, f"{name}-{number}") for number in range(len(LEASES)))


def lease_is_respected(machines: Machines, holds: clia.Space, looks: clia.Space, prefix: str) -> bool:
    """False if the lease was not renewed in time, so that the other took over."""
    lease = LEASES[int(prefix[-1])]
    agents = [f"{prefix}-{which}" for which in ("kept", "left")]
    holds.sessions.define(f"steps-{prefix}", STEPS)
    for agent in agents:
        holds.spawn(agent, BRIEFING)
        holds.start(agent, f"steps-{prefix}", 1)
    lost_task = Task(agents[1], "1.1", "step")
    assert holds.local.queue.claim([lost_task], "gone", holds.local.clock().timestamp(), 0.6) is not None
    observed, tried = Looks(), list[str]()

    def step(context: Context, payload: Any) -> Any:
        tried.append(context.agent)
        assert context.agent != agents[0] or observed.enough.wait(PATIENCE)
        return payload

    with Renewals(holds.local.queue) as renewals:
        first = worker_on(holds, machines.root("one"), "holds", {"step": step}, lease, kinds=frozenset(["step"]))
        thread = in_background(first, until_idle=True)
        wait_for(lambda: agents[0] in tried)
        observed.until = monotonic() + 1.5 * lease
        done_in_time(worker_on(looks, machines.root("two"), "looks", {"step": step}, tell=observed))
        thread.join(PATIENCE)
    assert [looks.session(agent).status for agent in agents] == ["finished", "finished"]
    if renewals.longest_gap >= lease:
        return False
    assert sorted(tried) == agents
    return True


class Renewals:
    """Measures the longest time between renewals of a claim: an upper bound of what the server saw."""

    _names = ("claim", "keep", "done")

    def __init__(self, queue: Any) -> None:
        self.longest_gap = 0.0
        self._queue, self._renewed = queue, dict[str, float]()

    def __enter__(self) -> Renewals:
        for name in self._names:
            setattr(self._queue, name, self._timed(getattr(self._queue, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            delattr(self._queue, name)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(first: Any, *more: Any) -> Any:
            began = monotonic()
            result = call(first, *more)
            claim = first if isinstance(first, Claim) else result
            if claim is not None:
                agent = claim.task.agent
                self.longest_gap = max(self.longest_gap, monotonic() - self._renewed.get(agent, began))
                self._renewed[agent] = began
            return result

        return timed


class Looks:
    """Counts the looks of a worker for work, and reports when they are enough."""

    def __init__(self) -> None:
        self.left, self.until = LOOKS, 0.0
        self.enough = threading.Event()

    def __call__(self, _: object) -> None:
        self.left -= 1
        if self.left <= 0 and monotonic() >= self.until:
            self.enough.set()


# Forges


HOOK = "[forge.webhooks.ci]\nurl = '{url}'\nsecret_env = 'HOOK_SECRET'\n"
HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s"


@contextmanager
def receiving() -> Iterator[tuple[str, list[str]]]:
    """A receiver of webhooks: its address, and the ids of the deliveries."""
    ids: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            ids.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", ids
        finally:
            server.shutdown()
            thread.join()


def served(machines: Machines, url: str) -> tuple[str, str]:
    """Two machines with the webhook configured; return an admin's token and the id of the space."""
    with machines.join("one") as space:
        space.spawn("scout", BRIEFING)
        users = users_of(space)
        users.add("tess", "admin", "Tess", "tess@example.org")
        token, space_id = users.make_token("tess")[0], space.id
    machines.join("two").close()
    for machine in ("one", "two"):
        git("config", "clia.durable", "false", cwd=machines.root(machine))
        (machines.root(machine) / ".git/clia/config.toml").write_text(HOOK.format(url=url))
    return token, space_id


def lock_moves(store: str, space: str) -> Callable[[], bool]:
    """End the connection of the delivering forge, as a server restart does; return whether another one took over."""
    number = lock_number(f"lock {space} webhooks-ci")
    with psycopg.connect(store, autocommit=True) as connection:
        before = connection.execute(HOLDERS, [number]).fetchall()
        assert len(before) == 1
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", before[0])

    def is_taken() -> bool:
        with psycopg.connect(store, autocommit=True) as connection:
            return len(connection.execute(HOLDERS, [number]).fetchall()) == 1

    return is_taken


def test_forges_on_two_machines_share_everything(tmp_path: Path, postgres_address: str) -> None:
    """Logins are valid at both, decisions appear at both, and a webhook is delivered once, even after an unnoticed lock loss."""
    store = postgres_url(postgres_address)
    machines = Machines(str(tmp_path.resolve()), store)
    with ExitStack() as stack:
        url, delivered = stack.enter_context(receiving())
        token, space = served(machines, url)
        env = {"HOOK_SECRET": "a-secret-of-the-hook-0123456789"}
        forge_one, two = (
            stack.enter_context(ForgeProcess(machines.root(name), "--store", store, env=env)) for name in ("one", "two")
        )
        first, second, second_pages = Api(forge_one.address, token), Api(two.address, token), Api(two.pages)
        cookie = logged_in(forge_one)
        assert [Api(forge.pages)("GET", "/s/repo/inbox", cookie=cookie).status for forge in (forge_one, two)] == [200, 200]
        with second.events() as stream:
            request = first.ask()
            stream.until(lambda event: event.name == "change" and event.data.get("asked") == [request["id"]])
            assert request["id"] in second_pages("GET", "/s/repo/inbox", cookie=cookie).text
            cid = first.decide(request).json()["cid"]
            stream.decision(cid)
        assert second.done("GET", "/api/v1/spaces/repo/pending")["items"] == []
        eventually(lambda: second_pages("GET", f"/s/repo/commits/{cid}", cookie=cookie).status == 200)
        eventually(lambda: len(delivered) >= 2)
        eventually(lock_moves(store, space))
        for api in (first, second, first):
            api.decide(api.ask())
        eventually(lambda: len(set(delivered)) == 8)
        doubled = {delivery: number for delivery, number in Counter(delivered).items() if number > 1}
        assert len(doubled) <= 1, doubled  # in delivery by both when one found that it had lost its lock


def logged_in(forge: ForgeProcess) -> str:
    key = forge.said["link"].partition("?key=")[2]
    answer = Api(forge.pages)("POST", "/login", f"key={key}".encode(), content_type="application/x-www-form-urlencoded")
    assert answer.status == 303
    return answer.headers["set-cookie"].partition(";")[0]
