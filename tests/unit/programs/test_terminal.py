"""The channels between a program and its user: pipes, and a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING

from clia.programs.runner import UserStreams
from clia.programs.terminal import ProgramChannels
from support.terminal import PATIENCE, no_signals

if TYPE_CHECKING:
    from pathlib import Path

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


def all_output(channels: ProgramChannels) -> list[tuple[str, bytes]]:
    """Pass on output until the program has closed all its ends; the chunks that are not empty."""
    chunks: list[tuple[str, bytes]] = []
    while channels.open:
        channels.pass_on(PATIENCE, lambda name, chunk: chunks.append((name, chunk)) if chunk else None)
    return chunks


def start(channels: ProgramChannels, *words: str) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = channels.far
    program = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
    channels.started()
    return program


def test_every_byte_is_shown_in_order_and_passed_on_with_its_stream(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "data").write_bytes(data)
    with open(tmp_path / "out", "w+b", 0) as out, open(tmp_path / "err", "w+b", 0) as err, open(os.devnull, "rb") as nothing:
        with ProgramChannels(UserStreams(nothing.fileno(), out.fileno(), err.fileno(), False, no_signals)) as channels:
            program = start(channels, "sh", "-c", f"cat {tmp_path}/data; cat {tmp_path}/data >&2")
            chunks = all_output(channels)
        assert program.wait(PATIENCE) == 0
        for name, file in (("stdout", out), ("stderr", err)):
            file.seek(0)
            assert b"".join(chunk for stream, chunk in chunks if stream == name) == file.read() == data


def test_a_reader_that_goes_away_ends_the_program_as_without_clia() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(os.devnull, "r+b", 0) as nothing, open(writer, "wb", 0) as stdout:
        with ProgramChannels(UserStreams(nothing.fileno(), stdout.fileno(), nothing.fileno(), False, no_signals)) as channels:
            program = start(channels, "yes")
            chunks = all_output(channels)
        assert program.wait(PATIENCE) == -signal.SIGPIPE
    assert {name for name, _ in chunks} == {"stdout"}, "what could not be shown must still be recorded"


def test_output_is_recorded_after_the_users_terminal_is_gone() -> None:
    keyboard, screen = pty.openpty()
    chunks: list[tuple[str, bytes]] = []
    with ProgramChannels(UserStreams(screen, screen, screen, True, no_signals)) as channels:
        os.close(keyboard)
        for line in (b"one\n", b"two\n"):
            os.write(channels.far[1], line)
            while not chunks or chunks[-1][1].rstrip() != line.rstrip():
                channels.pass_on(PATIENCE, lambda name, chunk: chunks.append((name, chunk)) if chunk else None)
        assert channels.open
    assert chunks == [("terminal", b"one\r\n"), ("terminal", b"two\r\n")]
    os.close(screen)


def test_typed_input_reaches_the_program_and_the_program_echoes_it() -> None:
    keyboard, screen = pty.openpty()
    with ProgramChannels(UserStreams(screen, screen, screen, True, no_signals)) as channels, channels.raw():
        program = start(channels, "sh", "-c", "read line; echo answer: $line")
        os.write(keyboard, b"yes\r")
        chunks = all_output(channels)
    assert program.wait(PATIENCE) == 0
    assert b"".join(chunk for _, chunk in chunks) == b"yes\r\nanswer: yes\r\n"
    os.close(keyboard)
    os.close(screen)


def test_the_users_terminal_is_raw_meanwhile_and_restored_after_an_error() -> None:
    keyboard, screen = pty.openpty()
    before = termios.tcgetattr(screen)
    interpreted = termios.ICANON | termios.ECHO | termios.ISIG
    with ProgramChannels(UserStreams(screen, screen, screen, True, no_signals)) as channels:
        with suppress(KeyboardInterrupt), channels.raw():
            assert not termios.tcgetattr(screen)[3] & interpreted
            raise KeyboardInterrupt
        assert termios.tcgetattr(screen) == before
    os.close(keyboard)
    os.close(screen)


def test_the_programs_terminal_has_the_settings_and_the_size_of_the_users() -> None:
    keyboard, screen = pty.openpty()
    termios.tcsetwinsize(screen, (30, 90))
    settings = termios.tcgetattr(screen)
    settings[6][termios.VERASE] = b"\x08"
    termios.tcsetattr(screen, termios.TCSANOW, settings)
    with ProgramChannels(UserStreams(screen, screen, screen, True, no_signals)) as channels:
        assert termios.tcgetattr(channels.far[0])[6][termios.VERASE] == b"\x08"
        assert termios.tcgetwinsize(channels.far[1]) == (30, 90)
        termios.tcsetwinsize(screen, (40, 120))
        channels.resize()
        assert termios.tcgetwinsize(channels.far[1]) == (40, 120)
    os.close(keyboard)
    os.close(screen)


def test_at_a_terminal_a_redirected_standard_error_stays_redirected() -> None:
    keyboard, screen = pty.openpty()
    reader, writer = os.pipe()
    with ProgramChannels(UserStreams(screen, screen, writer, True, no_signals)) as channels:
        assert [os.isatty(number) for number in channels.far] == [True, True, False]
        program = start(channels, "sh", "-c", "echo problem >&2")
        assert all_output(channels) == [("stderr", b"problem\n")]
    assert program.wait(PATIENCE) == 0
    os.close(writer)
    with open(reader, "rb") as errors:
        assert errors.read() == b"problem\n"
    os.close(keyboard)
    os.close(screen)
