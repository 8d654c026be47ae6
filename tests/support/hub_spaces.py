"""Spaces on several machines that share a hub, and the refs of the hub."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import clia
from clia.facade.config import Config
from clia.facade.setup import set_up
from clia.hub.joining import HubTarget
from clia.hub.model import BRANCHES
from support import git
from support.effects import QUICK, worker_for
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus
    from support.git_hubs import Hub

HEADS, RECORDS, TRACES = "refs/heads/agents/", "refs/clia/agents/", "refs/notes/clia/trace/"
STEP = 'def main(input):\n    return request("step", 1)\n'
PATIENCE = 60.0
"""The timeout in seconds."""
ONCE = QUICK._replace(attempts=1, backoff_seconds=0.01, backoff_max_seconds=0.02)
"""Worker options without retries."""


def machine(root: Path, hub: Hub, store: str | None = None, **more: Any) -> clia.Space:
    """The space of a machine; the hub keeps heads as branches."""
    return set_up(root, settings=settings(store=store, **more), hub=HubTarget(hub.url, BRANCHES)).space


def opened(root: Path, store: str | None = None, **more: Any) -> clia.Space:
    """Open a space again, like another process."""
    return clia.open(root, settings=settings(store=store, **more))


def refs_of(repository: Path, ending: str = "") -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=repository).splitlines()
    return {ref: cid for ref, cid in (line.split() for line in lines) if ref.endswith(ending)}


def at_hub(hub: Hub, ending: str = "") -> dict[str, str]:
    return refs_of(hub.repository, ending)


def owed(space: clia.Space) -> list[str]:
    """The agents with unpublished work on this machine, or on another with the same store."""
    return [key.removeprefix("owed/") for key, _ in space.local.store.scan("owed/")]


def work(space: clia.Space, agent: str, text: str) -> str:
    return space.commit(agent, "finding", changes={f"{text}.txt": text.encode()})


def work_with_trace(space: clia.Space, agent: str, text: str) -> str:
    space.trace(agent, "console", text)
    return space.commit_with_trace(agent, "finding", changes={f"{text}.txt": b"1"})


def more_at_hub(hub: Hub, agent: str) -> str:
    """A commit on top of an agent's head at the hub, without a ref."""
    head = at_hub(hub)[HEADS + agent]
    return git("commit-tree", "-p", head, "-m", "by hand", f"{head}^{{tree}}", cwd=hub.repository).strip()


def run(
    space: clia.Space, root: Path, step: Callable[[Context, Any], Any] | None = None, *, to_the_end: bool = False
) -> WorkerStatus:
    """Run a worker with the built-in effects, once or until it is idle; return its status."""
    handlers = {} if step is None else {"step": step}
    worker = worker_for(space, root, handlers, Config(worker=ONCE), queue=space.local.queue)
    return worker.run(once=not to_the_end, until_idle=to_the_end)


def set_hook(hub: Hub, name: str, lines: str) -> Path:
    hook = hub.repository / "hooks" / name
    hook.write_text(f"#!/bin/sh\n{lines}\n")
    hook.chmod(0o755)
    return hook


def fake_git(folder: Path, then: str = ":") -> tuple[dict[str, str], Path]:
    """A git wrapper on the PATH that logs each push and fetch and runs a script after them; return the environment and the log."""
    folder.mkdir()
    real, notes, path = shutil.which("git"), folder / "notes", os.environ["PATH"]
    case = 'case " $* " in *" push "*) word=push;; *" fetch "*) word=fetch;; *) exec "$git" "$@";; esac'
    lines = [f"PATH={shlex.quote(path)} git={real} notes={notes}", case, "echo $word >>$notes", '"$git" "$@"', "code=$?", then]
    script = folder / "git"
    script.write_text("\n".join(["#!/bin/sh", *lines, "exit $code", ""]))
    script.chmod(0o755)
    notes.touch()
    return {**(settings().environment or {}), "PATH": f"{folder}{os.pathsep}{path}"}, notes
