"""Repairs of sessions from git that are killed at every crash point: the next repair completes them."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import clia
from clia.store.epochs import MARK_FILE
from support.crashes import apart, crash, crash_points
from support.session_spaces import commit_change, with_agents
from support.spaces import settings
from support.swapped_stores import SwappableSpace

if TYPE_CHECKING:
    from pathlib import Path

    from support.crashes import CrashHook

STEPS = """\
def main(input):
    return [request("human", {"question": f"Step {step}?"}) for step in range(input)]
"""
COUNTING = """\
def main(input):
    return int(request("number", None)) + int(request("number", None))
"""


def older(root: Path) -> None:
    """A store that lacks decisions, the end of a session, a retry, and a decision that the branch has lost."""
    place = SwappableSpace(root, None)
    with place.open() as space:
        with_agents(space, "waits", "ends", "retried", steps=STEPS, counting=COUNTING)
        space.start("waits", "steps", 3)
        space.start("ends", "steps", 1)
        space.start("retried", "counting")
        space.resume("retried", 1)
        space.resume("retried", "many")
        place.save("older")
        space.decide("waits", "yes")
        space.decide("ends", "yes")
        space.sessions.retry("retried", "again")
        commit_change(space, "retried")
    place.put_back("older")
    (root / ".git/clia" / MARK_FILE).unlink()


def repair(root: Path, hook: CrashHook) -> None:
    with clia.open(root, settings=settings(reached=hook)) as space:
        hook.armed = True
        space.doctor(repair=True)


def check(root: Path) -> None:
    with clia.open(root, settings=settings()) as space:
        space.doctor(repair=True)
        assert space.doctor() == []
        report = space.verify()
        assert report.clean, report.findings
        sessions = {session.agent: (session.status, session.resumes) for session in space.sessions()}
        assert sessions == {
            "waits": ("suspended", ["yes"]),
            "ends": ("finished", ["yes"]),
            "retried": ("suspended", [1]),
        }
        assert space.decide("waits", "on").request == "1.2"
        assert space.resume("retried", 2).result == 3
        for agent in ("waits", "ends"):
            requests = [commit.request for commit in space.session_log(agent) if commit.kind == "decision"]
            assert len(requests) == len(set(requests)), "one answer per request"


def crash_each(top: Path) -> list[str]:
    template = top / "template"
    apart(older, template / "repo")
    shutil.copytree(template, top / "alive", symlinks=True)
    points = crash_points(partial(repair, top / "alive/repo"))
    for number, point in enumerate(points):
        copy = top / f"copy{number}"
        shutil.copytree(template, copy, symlinks=True)
        crash(partial(repair, copy / "repo"), point)
        apart(check, copy / "repo")
    return [point.step for point in points]


def test_a_repair_that_is_killed_is_completed_by_the_next_one(tmp_path: Path) -> None:
    steps = apart(crash_each, tmp_path)
    assert {"locked", "session-restored", "finished"} <= set(steps)
