"""The hook at a start, prompt or end waits for its ingest, which reads the files as they are before others change any."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

import clia as library
from support import git, program
from support import installed as clia
from support.captured import new_space, waiting
from support.hook_spools import QUIET, Fired, environment, fire, spool_of
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = environment(None, CLIA_HOOK_INGEST="120")
"""The hooks wait for as long as a busy machine needs."""
SUB = {"agent_id": "a1b2c3d4", "agent_type": "general-purpose"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = new_space(tmp_path.resolve() / "space")
    git("config", "user.name", "You", cwd=directory)
    git("config", "user.email", "you@example.org", cwd=directory)
    return directory


def payload(root: Path, name: str, **more: Any) -> bytes:
    return json.dumps({"session_id": "5f0c1f6e-8f3b", "cwd": str(root), "hook_event_name": name, **more}).encode()


def send(root: Path, name: str, **more: Any) -> None:
    """Run the hook of an event, which may start an ingest."""
    assert fire(root, payload(root, name, **more), env=ENVIRONMENT) == QUIET


def test_what_a_tool_writes_right_after_a_start_or_prompt_or_a_sub_agent_is_its_own(root: Path) -> None:
    """It writes as soon as the hook has ended, and reports no call. What people made before is not recorded."""

    def write(name: str) -> None:
        (root / name).write_text(f"{name}\n")

    write("found")
    send(root, "SessionStart", source="startup")
    write("started")
    send(root, "Stop")
    write("between")
    (root / "started").write_text("started\nbetween\n")
    send(root, "UserPromptSubmit", prompt="Go on.", prompt_id="1")
    write("turn")
    send(root, "SubagentStart", **SUB)
    write("delegated")
    send(root, "SubagentStop", **SUB)
    write("after")
    send(root, "Stop")
    (root / "after").write_text("after\nmine\n")
    send(root, "SessionEnd", reason="exit")
    with library.open(root, settings=settings()) as space:
        (session,) = (agent for agent in space.agents() if space.parent_agent(agent) is None)
        (sub,) = space.sub_agents(session)
        authors = {"started": session, "turn": session, "delegated": sub, "after": session}
        assert {name: space.blame(session, name)[0].agent for name in authors} == authors
        assert set(space.files(session)) == {"README.md", *authors}
        assert [line.agent for line in space.blame(session, "started")] == [session, None]


class HeldIngest:
    """Another ingest of the space: it holds the lock and records nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        send(root, "SessionStart", source="startup")
        self._lock = open(spool_of(root) / "ingest.lock", "w")  # noqa: SIM115  # held until it ends
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def waiting_hook(self, limit: str = "120") -> subprocess.Popen[bytes]:
        """A hook that has stored a prompt."""
        words = [program(), "hook", "claude-code"]
        pipe = subprocess.PIPE
        hook = subprocess.Popen(
            words, cwd=self._root, env=ENVIRONMENT | {"CLIA_HOOK_INGEST": limit}, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert hook.stdin is not None
        hook.stdin.write(payload(self._root, "UserPromptSubmit", prompt="Go on.", prompt_id="1"))
        hook.stdin.close()
        hook.stdin = None
        pause = threading.Event()
        while not waiting(self._root):
            pause.wait(0.01)
        return hook

    def end(self) -> None:
        self._lock.close()


def result(hook: subprocess.Popen[bytes]) -> Fired:
    out, err = hook.communicate()
    return Fired(hook.returncode, out, err)


def test_a_hook_starts_an_ingest_if_the_one_that_ran_ended_without_its_event(root: Path) -> None:
    other = HeldIngest(root)
    hook = other.waiting_hook()
    other.end()
    assert result(hook) == QUIET
    assert waiting(root) == []


def test_a_hook_does_not_wait_longer_than_its_limit(root: Path) -> None:
    """The event stays for the next ingest."""
    other = HeldIngest(root)
    assert result(other.waiting_hook(limit="1")) == QUIET
    assert len(waiting(root)) == 1
    other.end()
    assert clia("ingest", cwd=root).code == 0
    assert waiting(root) == []


def test_a_hook_that_is_interrupted_while_it_waits_ends_quietly(root: Path) -> None:
    """The event is stored."""
    other = HeldIngest(root)
    hook = other.waiting_hook()
    hook.send_signal(signal.SIGINT)
    assert result(hook) == QUIET
    assert len(waiting(root)) == 1
    other.end()


def ending_ingest(directory: Path, code: int, times: int) -> dict[str, str]:
    """An environment in which the first ingests end with a code and record nothing. ``starts`` counts all of them."""
    (directory / "site").mkdir()
    script = f"""import os, sys
if "ingest" in sys.orig_argv:
    with open(os.environ["STARTS"], "a+") as starts:
        starts.write("x")
        if starts.tell() <= {times}:
            starts.flush()
            os._exit({code})
"""
    (directory / "site/sitecustomize.py").write_text(script)
    return ENVIRONMENT | {"PYTHONPATH": str(directory / "site"), "STARTS": str(directory / "starts")}


def test_a_hook_does_not_wait_for_an_ingest_that_fails(root: Path, tmp_path: Path) -> None:
    """It is not started again."""
    assert fire(root, payload(root, "SessionStart"), env=ending_ingest(tmp_path, code=3, times=9)) == QUIET
    assert len(waiting(root)) == 1
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_hook_starts_one_more_ingest_if_its_own_ended_without_its_event(
    root: Path, tmp_path: Path, handler: signal.Handlers
) -> None:
    """A tool may ignore the signal about the end of its children; then the hook cannot see how its ingest ended."""
    hook = subprocess.run(
        [program(), "hook", "claude-code"],
        cwd=root,
        env=ending_ingest(tmp_path, code=0, times=1),
        input=payload(root, "SessionStart"),
        capture_output=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, handler),
    )
    assert Fired(hook.returncode, hook.stdout, hook.stderr) == QUIET
    assert (tmp_path / "starts").read_text() == "xx"
    assert waiting(root) == []
