from __future__ import annotations

import os
import pty
import select
import tty
from contextlib import suppress
from typing import TYPE_CHECKING

from clia.programs.runner import UserStreams
from clia.programs.terminal import ProgramChannels
from support.terminal import no_signals

if TYPE_CHECKING:
    import pytest


def test_a_full_non_blocking_reader_is_waited_for_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A non-blocking terminal or pipe that is full; in this test it is read only while we wait for it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = 0
    with suppress(BlockingIOError):
        while True:
            before += os.write(writer, bytes(4096))
    chunks: list[tuple[str, bytes]] = []
    output, real_select = bytearray(), select.select

    def read_late(
        read: list[int], write: list[int], exceptional: list[int], *seconds: float
    ) -> tuple[list[int], list[int], list[int]]:
        if writer in write:
            output.extend(os.read(reader, 4096))
        return real_select(read, write, exceptional, *seconds)

    monkeypatch.setattr(select, "select", read_late)
    data = os.urandom(30_000)
    with ProgramChannels(UserStreams(0, writer, writer, False, no_signals)) as channels:
        os.write(channels.far[1], data)
        assert channels.pass_on(60.0, lambda name, chunk: chunks.append((name, chunk)))
        assert chunks == [("stdout", data)]
        os.write(channels.far[1], b"more")
        channels.started()
        assert channels.pass_on(60.0, lambda name, chunk: chunks.append((name, chunk))), "the program can still print"
    os.close(writer)
    with open(reader, "rb", 0) as rest:
        output.extend(rest.read())
    assert bytes(output[before:]) == data + b"more"


def test_a_program_that_does_not_read_its_input_can_still_write() -> None:
    """More is typed than its terminal can hold, so a blocking write would never return."""
    keyboard, screen = pty.openpty()
    tty.setraw(screen)
    output: list[bytes] = []
    with ProgramChannels(UserStreams(screen, screen, screen, True, no_signals)) as channels:
        assert channels.master is not None
        assert not os.get_blocking(channels.master)
        for _ in range(60):
            os.write(keyboard, b"x" * 1000)
            channels.pass_on(0.0, lambda *_: None)
        os.write(channels.far[1], b"busy")
        while not output:
            channels.pass_on(60.0, lambda _, chunk: output.append(chunk) if chunk else None)
        assert os.read(keyboard, 100) == b"busy"
        typed = b""
        while len(typed) < 60_000:  # it starts to read, and nothing is lost
            channels.pass_on(0.0, lambda *_: None)
            typed += os.read(channels.far[0], 4096) if select.select([channels.far[0]], [], [], 0.0)[0] else b""
        assert typed == b"x" * 60_000
    os.close(keyboard)
    os.close(screen)
    assert output == [b"busy"]
