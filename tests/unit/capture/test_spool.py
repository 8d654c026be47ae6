"""The spool's format, where it lies, and that an event is in it whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import select
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.capture import hook as main
from clia.capture import spool
from clia.capture import spool_reader as reader
from clia.errors import CliaError
from support.disks import no_file_beyond
from support.hook_spools import events, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATHS = st.binary(min_size=1).filter(lambda each: b"\0" not in each)


@given(cwd=PATHS, agent=PATHS | st.just(b""), payload=st.binary())
def test_a_head_gives_back_any_directory_and_ends_where_the_event_begins(cwd: bytes, agent: bytes, payload: bytes) -> None:
    expected = {"tool": b"codex", "cwd": cwd} | ({"agent": agent} if agent else {})
    written = spool.head(b"codex", cwd, agent) + payload
    assert parse(written) == (expected, payload)
    assert reader.parse(written) == ({key: os.fsdecode(value) for key, value in expected.items()}, payload)


def test_an_event_is_private_named_by_its_time_and_byte_for_byte_what_came(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    for part in (b"first", b"second"):
        assert spool.put([os.fsencode(place)], [spool.head(b"gemini", b"/x"), part, b"\xff\0\n\n", part]) == os.fsencode(place)
    one, other = events(place)
    assert reader.waiting(str(place)) == [one.name, other.name]
    assert (one.payload, other.payload) == (b"first\xff\0\n\nfirst", b"second\xff\0\n\nsecond")
    assert re.fullmatch(rf"\d{{20}}-{os.getpid()}-[0-9a-f]{{8}}", one.name)
    assert one.name[-8:] != other.name[-8:], "by chance"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place / "tmp", place / "new", place / "new" / one.name)}
    assert modes == {"tmp": 0o700, "new": 0o700, one.name: 0o600}


def test_a_place_that_fails_at_the_last_moment_hands_the_whole_event_to_the_next(tmp_path: Path) -> None:
    """What came on standard input cannot be read twice: it is taken out of the half-written file."""
    one, other = tmp_path / "one", tmp_path / "other"
    parts = [spool.head(b"codex", b"/x"), b"a" * spool.CHUNK, b"b" * spool.CHUNK, b"c"]

    def chunks() -> Iterator[bytes]:
        yield from parts
        (one / "new").rmdir()

    assert spool.put([os.fsencode(one), os.fsencode(other)], chunks()) == os.fsencode(other)
    (event,) = events(other)
    assert event.payload == b"".join(parts[1:])
    assert os.listdir(one / "tmp") == []


def test_a_disk_that_is_full_in_the_middle_of_an_event_loses_none_of_its_bytes(tmp_path: Path) -> None:
    """Of the piece that did not fit, a part is in the half-written file and a part is not, and more is still to come."""
    one, other = tmp_path / "one", tmp_path / "other"
    parts = [spool.head(b"codex", b"/x"), b"a" * spool.CHUNK, os.urandom(spool.CHUNK), b"c"]

    def places() -> Iterator[bytes]:
        with no_file_beyond(len(parts[0]) + spool.CHUNK + spool.CHUNK // 3):
            yield os.fsencode(one)
        yield os.fsencode(other)

    assert spool.put(places(), iter(parts)) == os.fsencode(other)
    (event,) = events(other)
    assert event.payload == b"".join(parts[1:])
    assert os.listdir(one / "tmp") == []


def test_where_no_place_takes_an_event_the_last_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        spool.put([os.fsencode(tmp_path / "file")], [b"x"])
    with pytest.raises(OSError, match="no place"):
        spool.put([], [b"x"])


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
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
def test_the_second_place_is_in_the_home_and_named_by_the_real_path_of_the_first(
    tmp_path: Path, environment: dict[bytes, bytes], state: str | None
) -> None:
    common, link = tmp_path.resolve() / "common", tmp_path / "link"
    common.mkdir()
    link.symlink_to(common)
    name = hashlib.sha256(os.fsencode(common)).hexdigest()[:16]
    found = [os.fsdecode(each) for each in spool.spools(os.fsencode(link), environment)]
    assert found == [f"{link}/clia/spool", *([f"{state}/clia/spool/{name}"] if state else [])]
    assert found == reader.spools(str(link), {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()})


def test_what_is_no_event_is_put_aside_unopened_and_waited_for_by_nobody(tmp_path: Path) -> None:
    """Pipes, links, folders, sockets, and names that no hook gives, also where the reason's own name would be too long."""
    new, place = tmp_path / "new", str(tmp_path)
    new.mkdir()
    ours = [f"{number:020d}-1-00000000" for number in range(5)]
    os.mkfifo(new / ours[0])
    (new / ours[1]).mkdir()
    (new / ours[1] / "in it").touch()
    (tmp_path / "event").write_bytes(spool.head(b"codex", b"/x"))
    (new / ours[2]).symlink_to(tmp_path / "event")
    (new / ours[3]).symlink_to("nowhere")
    os.mknod(new / ours[4], 0o600 | stat.S_IFSOCK)
    odd = [b"event", b"\xff", b"n" * 255, b"x.why.json", b".hidden", ours[0].encode() + b"\n"]
    for raw in odd:
        (new / os.fsdecode(raw)).write_bytes(spool.head(b"codex", b"/x"))
    codes = []
    for name in reader.waiting(place) * 2:  # the second time, it is gone
        try:
            assert reader.read(place, name) is None
        except CliaError as err:
            codes.append(err.code)
            reader.reject(place, name, err.code, f"{err} \udcff")
    assert sorted(codes) == ["invalid-event-name"] * 2 * len(odd) + ["not-a-file"] * len(ours)
    assert reader.waiting(place) == []
    aside = reader.rejected(place)
    assert sorted(each.code for each in aside) == ["invalid-event-name"] * len(odd) + ["not-a-file"] * len(ours)
    assert {each.id for each in aside} > {*ours, "event"}
    assert os.listdir(tmp_path / "rejected" / ours[1]) == ["in it"]


def test_what_was_put_aside_is_not_replaced_and_a_pipe_for_its_reason_holds_up_nobody(tmp_path: Path) -> None:
    place, name = str(tmp_path), f"{7:020d}-1-00000000"
    (tmp_path / "new").mkdir()
    for content in ("first", "second"):
        (tmp_path / "new" / name).write_text(content)
        reader.reject(place, name, "odd", content)
    assert [(each.id, each.message) for each in reader.rejected(place)] == [(name, "first"), (f"{name}.1", "second")]
    assert (tmp_path / "rejected" / name).read_text() == "first"
    why = tmp_path / "rejected" / f"{name}.why.json"
    why.unlink()
    os.mkfifo(why)
    assert [each.code for each in reader.rejected(place)] == ["unknown", "odd"]
    (tmp_path / "new" / name).write_text("third")
    os.mkfifo(tmp_path / "rejected" / f"{name}.2.why.json.draft")
    with pytest.raises(CliaError):
        reader.reject(place, name, "odd", "third")
    assert reader.waiting(place) == [name]


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b'{"hook_event_name":"Stop"}', b"Stop"),
        (b'{"cwd": "/", "hook_event_name" :\n\t"SubagentStop", "x": 1}', b"SubagentStop"),
        (b'{"prompt": "say \\"hook_event_name\\": \\"Stop\\"", "hook_event_name": "Other"}', b"Other"),
        (b'{"hook_event_name": "Sto', b"Sto"),
        (b'{"hook_event_name": 7}', b"7}"),
        (b'{"hook_event_name"', b""),
        (b"", b""),
    ],
)
def test_an_events_name_is_found_in_its_bytes(payload: bytes, name: bytes) -> None:
    assert main.event_name(payload) == name


def test_a_pipe_that_does_not_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may hand us such a pipe, and write into it only later: here, when we wait."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    waited = select.select

    def write_late(read: list[int], write: list[int], odd: list[int]) -> tuple[list[int], list[int], list[int]]:
        os.write(theirs, b"late")
        os.close(theirs)
        return waited(read, write, odd)

    monkeypatch.setattr(select, "select", write_late)
    assert main.read_input(ours) == b"late"
    assert main.read_input(ours) == b""
    os.close(ours)
