from __future__ import annotations

import os
import select

import pytest

from clia.capture import hook as main


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
def test_the_event_name_is_found_in_the_payload(payload: bytes, name: bytes) -> None:
    assert main.event_name(payload) == name


def test_a_non_blocking_pipe_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may pass such a pipe and write to it later; in this test, while we wait."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    real_select = select.select

    def write_late(read: list[int], write: list[int], odd: list[int]) -> tuple[list[int], list[int], list[int]]:
        os.write(write_end, b"late")
        os.close(write_end)
        return real_select(read, write, odd)

    monkeypatch.setattr(select, "select", write_late)
    assert main.read_input(read_end) == b"late"
    assert main.read_input(read_end) == b""
    os.close(read_end)
