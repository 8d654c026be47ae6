from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clia.programs import guard as program_guard

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(("script", "exit_code"), [(IGNORES_SIGTERM, 137), (f"({IGNORES_SIGTERM}) & read ready; exit 3", 3)])
def test_programs_that_ignore_sigterm_are_killed(script: str, exit_code: int) -> None:
    """The program after its grace period, and its children when it has ended; the channel closes with the last process."""
    lock, (control, ours) = os.open(os.devnull, os.O_RDONLY), os.pipe()
    words = [sys.executable, "-I", "-S", program_guard.__file__, str(control), str(lock), "0.05", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(control, lock)) as guard:
        assert guard.stdout is not None
        assert guard.stdout.readline() == b"ready\n"
        os.close(control)
        os.close(lock)
        if exit_code == 137:
            os.close(ours)
        try:
            assert guard.communicate(b"\n", timeout=60)[0] == b""
        finally:
            guard.kill()  # in case it does not end by itself
    assert guard.returncode == exit_code
    if exit_code != 137:
        os.close(ours)
