"""Three machines, one hub and one PostgreSQL: every session ends, each step once, despite kills and outages."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from support.crashes import KILLED, exit_code
from support.git_hubs import Hub, away
from support.machines import Machines, endings, fresh, with_sessions
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MACHINES = ("one", "two", "three")
STEPS = 2


class Fleet:
    """A worker on each machine; a killed one is replaced on the same machine."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.at_work = {machine: machines.start(machine, f"{machine}-0") for machine in MACHINES}
        self.killed = 0

    def wait_for_attempts(self, number: int) -> None:
        while len(self.machines.tried()) < number and not self._are_done():
            threading.Event().wait(0.02)

    def _are_done(self) -> bool:
        assert {process.exitcode for process in self.at_work.values()} <= {None, 0}
        return all(process.exitcode == 0 for process in self.at_work.values())

    def kill(self, machine: str) -> None:
        victim = self.at_work[machine]
        victim.kill()
        assert exit_code(victim) == KILLED
        self.killed += 1
        self.at_work[machine] = self.machines.start(machine, f"{machine}-{self.killed}")

    def wait(self) -> set[int | None]:
        return {exit_code(process) for process in self.at_work.values()}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.at_work.values():
            process.kill()
            process.join()


def check_each_step_once(machines: Machines, agents: Iterable[str]) -> None:
    """Check the acknowledged results, git, and a new clone."""
    calls = Counter(range(1, STEPS + 1))
    with machines.open("one") as space:
        space.hub.sync()
        status = space.hub.status()
        assert (status.owed, status.forks, status.elsewhere) == ((), (), ())
        for agent in agents:
            session = space.session(agent)
            expected = ("finished", [number * 10 for number in range(STEPS)])
            assert (session.status, session.result) == expected, (agent, session.failure)
            assert Counter(event["resume"][0] for event in space.sessions.journal(agent) if event["event"] == "resumed") == calls
            assert list(endings(space, agent)) == ["finished"]
        assert space.verify().clean
    with fresh(machines) as clone:
        report = clone.verify()
        assert report.clean, report.findings
        assert clone.agents() == sorted(agents)
        for agent in agents:
            subjects = [commit.subject for commit in clone.history.own(agent) if commit.kind == "finding"]
            assert subjects == [f"step {number}" for number in reversed(range(STEPS))]
            assert list(endings(clone, agent)) == ["finished"]


def test_three_machines_finish_all_sessions_despite_killed_workers_and_an_outage_of_the_hub(
    tmp_path: Path, postgres_address: str, soak: bool
) -> None:
    machines = Machines(str(tmp_path), postgres_url(postgres_address))
    spaces = [machines.join(machine_name) for machine_name in MACHINES]
    sessions = 300 if soak else 18
    agents = with_sessions(spaces[0], sessions, STEPS)
    for opened in spaces:
        opened.close()
    tries = sessions * STEPS
    with Fleet(machines) as fleet:
        for part, machine in enumerate(MACHINES, 1):
            fleet.wait_for_attempts(tries * part // 6)
            fleet.kill(machine)
        with away(Hub(str(machines.hub), machines.hub)):
            fleet.wait_for_attempts(len(machines.tried()) + max(4, tries // 10))
        assert fleet.wait() == {0}
        assert fleet.killed == len(MACHINES)
    check_each_step_once(machines, agents)
