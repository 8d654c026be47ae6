"""Reading the bodies of API requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clia.forge.api import requests

if TYPE_CHECKING:
    import pytest

    from support.forge import OpenForge


FINDING = {"kind": "finding", "files": {"a": "1"}}


def test_request_bodies_are_parsed_outside_the_event_loop(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight megabytes of JSON take a while, and would block all other requests."""
    loops: list[asyncio.AbstractEventLoop] = []
    bodies: list[bytes] = []
    parse = requests.parse_body

    def parse_and_record(body: bytes, kind: str) -> dict[str, Any]:
        with suppress(RuntimeError):
            loops.append(asyncio.get_running_loop())
        bodies.append(body)
        return parse(body, kind)

    monkeypatch.setattr(requests, "parse_body", parse_and_record)
    assert forge.post_to_agents("/scout/commits", FINDING, **forge.bearer()).status_code == 200
    assert (len(bodies), loops) == (1, [])
