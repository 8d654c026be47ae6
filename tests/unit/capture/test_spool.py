"""The spool: its format and location, and that an event is written completely or not at all."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.capture import spool
from clia.capture import spool_reader as reader
from support.disks import no_file_beyond
from support.hook_spools import events, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATHS = st.binary(min_size=1).filter(lambda path: b"\0" not in path)


@given(cwd=PATHS, agent=PATHS | st.just(b""), payload=st.binary())
def test_a_header_round_trips_any_directory_and_ends_where_the_payload_begins(cwd: bytes, agent: bytes, payload: bytes) -> None:
    expected = {"tool": b"codex", "cwd": cwd} | ({"agent": agent} if agent else {})
    written = spool.head(b"codex", cwd, agent) + payload
    assert parse(written) == (expected, payload)
    assert reader.parse(written) == ({key: os.fsdecode(value) for key, value in expected.items()}, payload)


def test_an_event_is_private_named_by_its_time_and_unchanged(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    for part in (b"first", b"second"):
        stored = spool.put([os.fsencode(place)], [spool.head(b"gemini", b"/x"), part, b"\xff\0\n\n", part])
        assert os.path.dirname(stored) == os.fsencode(place / "new")
    first_event, second_event = events(place)
    assert reader.waiting(str(place)) == [first_event.name, second_event.name]
    assert (first_event.payload, second_event.payload) == (b"first\xff\0\n\nfirst", b"second\xff\0\n\nsecond")
    assert re.fullmatch(rf"\d{{20}}-{os.getpid()}-[0-9a-f]{{8}}", first_event.name)
    assert first_event.name[-8:] != second_event.name[-8:], "the suffix is random"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place / "tmp", place / "new", place / "new" / first_event.name)}
    assert modes == {"tmp": 0o700, "new": 0o700, first_event.name: 0o600}


def test_a_spool_that_fails_at_the_last_moment_hands_the_whole_event_to_the_next(tmp_path: Path) -> None:
    """Standard input cannot be read twice, so the event is read back from the half-written file."""
    failing, other = tmp_path / "one", tmp_path / "other"
    parts = [spool.head(b"codex", b"/x"), b"a" * spool.CHUNK, b"b" * spool.CHUNK, b"c"]

    def chunks() -> Iterator[bytes]:
        yield from parts
        (failing / "new").rmdir()

    assert spool.put([os.fsencode(failing), os.fsencode(other)], chunks()).startswith(os.fsencode(other / "new"))
    (event,) = events(other)
    assert event.payload == b"".join(parts[1:])
    assert os.listdir(failing / "tmp") == []


def test_a_disk_that_fills_up_during_an_event_loses_no_bytes(tmp_path: Path) -> None:
    """Part of the chunk that did not fit is in the half-written file, the rest is not, and more chunks follow."""
    full_disk, other = tmp_path / "one", tmp_path / "other"
    parts = [spool.head(b"codex", b"/x"), b"a" * spool.CHUNK, os.urandom(spool.CHUNK), b"c"]

    def places() -> Iterator[bytes]:
        with no_file_beyond(len(parts[0]) + spool.CHUNK + spool.CHUNK // 3):
            yield os.fsencode(full_disk)
        yield os.fsencode(other)

    assert spool.put(places(), iter(parts)).startswith(os.fsencode(other / "new"))
    (event,) = events(other)
    assert event.payload == b"".join(parts[1:])
    assert os.listdir(full_disk / "tmp") == []


def test_the_last_error_is_raised_if_no_spool_accepts_an_event(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        spool.put([os.fsencode(tmp_path / "file")], [b"x"])
    with pytest.raises(OSError, match="no place"):
        spool.put([], [b"x"])


def test_an_interruption_leaves_no_files_behind(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.put([os.fsencode(tmp_path)], chunks())
    assert (os.listdir(tmp_path / "tmp"), os.listdir(tmp_path / "new")) == ([], [])


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({b"HOME": b"/home/t"}, "/home/t/.local/state"),
        ({b"HOME": b"/home/t", b"XDG_STATE_HOME": b"/state"}, "/state"),
        ({b"XDG_STATE_HOME": b"/state"}, "/state"),
        ({b"HOME": b"/home/t", b"XDG_STATE_HOME": b"relative"}, "/home/t/.local/state"),
        ({b"HOME": b"relative"}, None),
        ({}, None),
    ],
)
def test_the_second_spool_is_in_the_home_directory_and_named_by_the_real_path(
    tmp_path: Path, environment: dict[bytes, bytes], state: str | None
) -> None:
    common, link = tmp_path.resolve() / "common", tmp_path / "link"
    common.mkdir()
    link.symlink_to(common)
    name = hashlib.sha256(os.fsencode(common)).hexdigest()[:16]
    spools = [os.fsdecode(path) for path in spool.spools(os.fsencode(link), environment)]
    assert spools == [f"{link}/clia/spool", *([f"{state}/clia/spool/{name}"] if state else [])]
    assert spools == reader.spools(str(link), {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()})
