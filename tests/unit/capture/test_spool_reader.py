"""Reading events from the spool and rejecting invalid ones."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

import pytest

from clia.capture import spool
from clia.capture import spool as writer
from clia.capture import spool_reader as reader
from clia.errors import CliaError

if TYPE_CHECKING:
    from pathlib import Path


def test_ingest_reads_what_the_hook_writes(tmp_path: Path) -> None:
    """The hook cannot import the reader's module, so both implement the format."""
    cwd, payload = b"/a\n%0A%25\xff b", b'\n\nkey=value\n\xff\0{"half'
    stored = writer.put([os.fsencode(tmp_path)], [writer.head(b"codex", cwd, b"scout"), payload])
    (name,) = reader.waiting(str(tmp_path))
    assert stored == os.fsencode(tmp_path / "new" / name)
    record = reader.read(str(tmp_path), name)
    assert record is not None
    assert (record.tool, os.fsencode(record.cwd), record.agent, record.payload) == ("codex", cwd, "scout", payload)
    assert abs(time.time() - int(name.partition("-")[0]) / 1e9) < 3600
    assert record.at.endswith("Z")
    for home, state in (("", ""), ("/h", ""), ("h", ""), ("/h", "/s"), ("/h", "s")):
        environment = {"HOME": home, "XDG_STATE_HOME": state}
        raw = {key.encode(): value.encode() for key, value in environment.items()}
        assert reader.spools("/r/.git", environment) == [os.fsdecode(spool_path) for spool_path in writer.spools(b"/r/.git", raw)]


def test_entries_that_are_not_events_are_rejected_unread(tmp_path: Path) -> None:
    """Pipes, links, folders, sockets and invalid names, including one so long that the name of its reason would be too long."""
    new, place = tmp_path / "new", str(tmp_path)
    new.mkdir()
    names = [f"{number:020d}-1-00000000" for number in range(5)]
    os.mkfifo(new / names[0])
    (new / names[1]).mkdir()
    (new / names[1] / "in it").touch()
    (tmp_path / "event").write_bytes(spool.head(b"codex", b"/x"))
    (new / names[2]).symlink_to(tmp_path / "event")
    (new / names[3]).symlink_to("nowhere")
    os.mknod(new / names[4], 0o600 | stat.S_IFSOCK)
    invalid_names = [b"event", b"\xff", b"n" * 255, b"x.why.json", b".hidden", names[0].encode() + b"\n"]
    for raw in invalid_names:
        (new / os.fsdecode(raw)).write_bytes(spool.head(b"codex", b"/x"))
    codes = []
    for name in reader.waiting(place) * 2:  # the second time, it is no longer there
        try:
            assert reader.read(place, name) is None
        except CliaError as err:
            codes.append(err.code)
            reader.reject(place, name, err.code, f"{err} \udcff")
    assert sorted(codes) == ["invalid-event-name"] * 2 * len(invalid_names) + ["not-a-file"] * len(names)
    assert reader.waiting(place) == []
    rejected = reader.rejected(place)
    assert sorted(event.code for event in rejected) == ["invalid-event-name"] * len(invalid_names) + ["not-a-file"] * len(names)
    assert {event.id for event in rejected} > {*names, "event"}
    assert os.listdir(tmp_path / "rejected" / names[1]) == ["in it"]


def test_a_rejected_event_is_not_replaced_and_a_pipe_in_place_of_its_reason_does_not_block(tmp_path: Path) -> None:
    place, name = str(tmp_path), f"{7:020d}-1-00000000"
    (tmp_path / "new").mkdir()
    for content in ("first", "second"):
        (tmp_path / "new" / name).write_text(content)
        reader.reject(place, name, "odd", content)
    assert [(event.id, event.message) for event in reader.rejected(place)] == [(name, "first"), (f"{name}.1", "second")]
    assert (tmp_path / "rejected" / name).read_text() == "first"
    why = tmp_path / "rejected" / f"{name}.why.json"
    why.unlink()
    os.mkfifo(why)
    assert [event.code for event in reader.rejected(place)] == ["unknown", "odd"]
    (tmp_path / "new" / name).write_text("third")
    os.mkfifo(tmp_path / "rejected" / f"{name}.2.why.json.draft")
    with pytest.raises(CliaError):
        reader.reject(place, name, "odd", "third")
    assert reader.waiting(place) == [name]
