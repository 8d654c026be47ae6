from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.git import refs as git_refs
from clia.git.porcelain import GitPorcelain
from clia.space import purging
from support import git
from support.crashes import assert_killed, kill_before, kill_self
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


TRACKED = "refs/clia-tracking/hub/notes/trace/scout"


LEAK = b"swordfish"


def after(owner: object, name: str, only: Callable[..., bool] = lambda *_: True) -> None:
    """Kill this process after it called a function."""
    call = getattr(owner, name)

    def last(*words: Any, **more: Any) -> Any:
        result = call(*words, **more)
        return kill_self() if only(*words) else result

    setattr(owner, name, last)


DEATHS: dict[str, Callable[[], None]] = {
    "before the event": lambda: kill_before(purging, "append_event"),
    "after the event": lambda: after(purging, "append_event"),
    "after the ref has moved": lambda: after(git_refs.GitRefs, "move", lambda _, ref, *more: ref == NOTES),
    "before the sweep": lambda: kill_before(GitPorcelain, "drop_objects"),
    "after the sweep": lambda: after(GitPorcelain, "drop_objects"),
}


@pytest.mark.parametrize("at", DEATHS)
def test_a_purge_that_was_killed_is_finished_by_the_next(root: Path, at: str) -> None:
    with clia.open(root, settings=settings()) as space:
        space.trace("scout", "console", "fine")
        space.commit_with_trace("scout", "finding", changes={"b": b"0"})
        space.trace("scout", "console", f"it is {LEAK.decode()}")
        cid = space.commit_with_trace("scout", "finding", changes={"b": b"1"})
    git("update-ref", "--create-reflog", TRACKED, NOTES, cwd=root)

    def purge() -> None:
        DEATHS[at]()
        with clia.open(root, settings=settings()) as space:
            space.traces.purge("scout", LEAK.decode())

    assert_killed(purge)
    with clia.open(root, settings=settings()) as space:
        space.traces.purge("scout", LEAK.decode())
        trace = space.traces.of(cid)
        assert trace is not None
        assert [entry["text"] for entry in trace.entries] == ["it is [purged]"]
        assert len(space.traces.of_agent("scout")) == 2
        assert space.verify().clean
    assert LEAK not in every_byte(root)
    assert git("for-each-ref", TRACKED, cwd=root) == ""
    assert not (root / ".git/logs" / NOTES).exists()
    assert not (root / ".git/logs" / TRACKED).exists()


def every_byte(root: Path) -> bytes:
    """All objects, uncompressed, and the store's files."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch"]
    objects = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    return objects + b"".join(file.read_bytes() for file in (root / ".git/clia").glob("space.db*"))
