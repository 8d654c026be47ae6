"""Hooks that are killed, run concurrently, or find a full disk: no event is lost, mixed with another, or stored in part."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import clia
from clia.capture import hook as main
from support import program
from support.captured import new_space as captured_space
from support.captured import run_ingest, texts_of_kind
from support.crashes import run_all
from support.disks import become_nobody, read_only, small_disk
from support.hook_spools import QUIET, environment, events, fire, new_space, spool_of
from support.space_driver import settings

TOOLS = ("claude-code", "codex", "gemini")
AT_ONCE = 8


def fallback(state: Path, root: Path) -> Path:
    return state / "clia/spool" / hashlib.sha256(os.fsencode(root / ".git")).hexdigest()[:16]


def test_eight_concurrent_hooks_lose_and_mix_nothing(tmp_path: Path, soak: bool) -> None:
    """A few events each, or half a minute of them in a soak; some are larger than a pipe, some than the hook's buffer."""
    root = new_space(tmp_path.resolve() / "space")
    env, sent_events, end = environment(None), [], time.monotonic() + 30

    def tool(number: int) -> None:
        for turn in itertools.count():
            if time.monotonic() > end if soak else turn == 4:
                return
            size = (40, 4_000, 200_000, 40, 40, 4_000, 40, 1_500_000)[(turn + number) % 8]
            event = b'{"tool": %d, "turn": %d, "text": "%s"}' % (number, turn, str(number).encode() * size)
            name = TOOLS[number % 3]
            assert fire(root, event, name, env) == QUIET
            sent_events.append((name.encode(), event))

    threads = [threading.Thread(target=tool, args=[number]) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = events(spool_of(root))
    assert len({event.name for event in stored}) == len(stored) >= 4 * AT_ONCE
    assert Counter((event.head["tool"], event.payload) for event in stored) == Counter(sent_events)


def test_a_storm_of_hooks_is_recorded_once(tmp_path: Path, soak: bool) -> None:
    """All hooks are started before any of them is waited for, and an ingest runs among them."""
    root = captured_space(tmp_path.resolve() / "space")
    texts = [f"prompt {number}" for number in range(400 if soak else 40)]
    hooks = []
    for number, text in enumerate(texts):
        process = subprocess.Popen([program(), "hook", "claude-code"], cwd=root, env=environment(None), stdin=subprocess.PIPE)
        body = {"session_id": f"session-{number % 4}", "hook_event_name": "UserPromptSubmit", "prompt": text, "prompt_id": text}
        assert process.stdin is not None
        process.stdin.write(json.dumps(body).encode())
        process.stdin.close()
        hooks.append(process)
    run_ingest(root)
    assert [process.wait() for process in hooks] == [0] * len(hooks)
    report = run_ingest(root)
    assert (report.trouble, report.done.left, report.done.rejected) == ((), 0, 0)
    with clia.open(root, settings=settings()) as space:
        assert sorted(texts_of_kind(space, "prompt")) == sorted(texts)
        assert len(space.agents()) == 4


def test_a_hook_killed_while_writing_leaves_no_event(tmp_path: Path) -> None:
    root = new_space(tmp_path.resolve() / "space")
    with subprocess.Popen([program(), "hook", "codex"], cwd=root, env=environment(None), stdin=subprocess.PIPE, bufsize=0) as hook:
        assert hook.stdin is not None
        unsent = memoryview(bytes(3_000_000))
        while unsent:
            unsent = unsent[hook.stdin.write(unsent) or 0 :]
        hook.kill()
    (draft,) = (spool_of(root) / "tmp").iterdir()
    assert draft.stat().st_size > 1_000_000, "the hook was not writing yet"
    assert os.listdir(spool_of(root) / "new") == []
    assert fire(root, b"the next one") == QUIET
    assert len(os.listdir(spool_of(root) / "new")) == 1


def test_an_event_that_does_not_fit_on_the_disk_goes_to_the_home_directory_completely(tmp_path: Path) -> None:
    """The full disk shows in the middle of an event, which can be read only once."""
    state = tmp_path / "state"
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        root = new_space(disk.resolve() / "space")
        event = os.urandom(4 << 20)
        env = environment(None, XDG_STATE_HOME=str(state))
        assert fire(root, event, env=env) == QUIET
        assert fire(root, b"small", env=env) == QUIET
        assert [stored.payload for stored in events(fallback(state, root))] == [event]
        assert [stored.payload for stored in events(spool_of(root))] == [b"small"]
        fired = fire(root, event)
        assert (fired.code, fired.out, fired.err.count(b"\n")) == (0, b"", 1)
        assert b"No space left" in fired.err
        assert len(events(spool_of(root))) == 1


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_events_of_a_read_only_space_go_to_the_home_directory() -> None:
    """Run as a user who is not root."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o711)  # noqa: S103  # the user "nobody" reads it
        root, state = new_space(Path(directory).resolve() / "space"), Path(directory) / "state"
        state.mkdir()
        state.chmod(0o777)

        def hook(event: bytes) -> None:
            become_nobody()
            os.environ.update(XDG_STATE_HOME=str(state), CLIA_HOOK_INGEST="off")
            os.chdir(root)
            reader, writer = os.pipe()
            os.write(writer, event)
            os.close(writer)
            os.dup2(reader, 0)
            main.record("codex")

        with read_only(root):
            run_all([lambda: hook(b"read-only")])
            assert [stored.payload for stored in events(fallback(state, root))] == [b"read-only"]
            assert not spool_of(root).exists()
