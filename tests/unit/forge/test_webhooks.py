"""Deliveries to webhooks."""

from __future__ import annotations

import json
import queue
from typing import TYPE_CHECKING, Any, cast

import pytest

from clia.forge.webhooks import ROW, Webhooks, deliveries
from clia.http_client import HttpResponse
from support.forge import OpenForge, open_forge
from support.forge_server import PATIENCE, QUESTION
from support.session_flows import APPROVAL
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


BOTH = """\
import asyncio

async def main(input):
    return await asyncio.gather(request("llm", {"prompt": "x"}), request("human", {"question": "Go on?"}), request("clock", {}))
"""


def delivered(forge: OpenForge) -> list[dict[str, Any]]:
    """All deliveries to a webhook."""
    site = forge.site
    return [
        json.loads(delivery.body)
        for position, entry in site.feed.read(0)
        for delivery in deliveries(site, "https://forge.example", "ci", position, entry)
    ]


def test_a_webhook_is_told_only_of_requests_for_people(forge: OpenForge) -> None:
    space = forge.space
    space.sessions.define("approval", APPROVAL)
    space.sessions.define("both", BOTH)
    space.start("scout", "approval", {"goal": "x"})
    assert delivered(forge) == [], "this request is for a worker"
    space.resume("scout", "a plan")
    assert [
        (delivery["event"], [(request["id"], request["kind"]) for request in delivery["requests"]]) for delivery in delivered(forge)
    ] == [("waiting", [("1.2", "human")])]
    space.start("smith", "both", None)
    assert [(request["id"], request["kind"]) for request in delivered(forge)[-1]["requests"]] == [("1.2", "human")], (
        "only this one of three"
    )


class RecordingClient:
    """An HTTP client that records and accepts every delivery."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpResponse:
        del url, headers, seconds, limit
        self.got.put(json.loads(body))
        return HttpResponse(204, {}, b"")


@pytest.mark.parametrize("position", [1000, None, "x", True, 1.0], ids=str)
def test_a_webhook_with_an_invalid_position_continues_at_the_end_of_the_feed(tmp_path: Path, position: Any) -> None:
    """For example, after a store was lost: the webhook's position is not in the feed, or is unknown."""
    config = tmp_path / "config.toml"
    config.write_text("[forge.webhooks.ci]\nurl = 'https://ci.example/x'\nsecret_env = 'S'\n")
    with open_forge(tmp_path, config=str(config)) as forge:
        forge.space.spawn("scout", BRIEFING)
        forge.space.ask("scout", QUESTION)
        if position is not None:
            with forge.forge.home.writing() as change:
                change.values.put(f"{ROW}ci", position)
        client = RecordingClient()
        hooks = Webhooks(forge.forge, {"S": "secret"}, cast("Any", client))
        hooks.start()
        try:
            request_ids = [forge.space.ask("scout", QUESTION).id for _ in range(2)]
            received = [client.got.get(timeout=PATIENCE) for _ in request_ids]
        finally:
            hooks.stop()
    assert [delivery["requests"][0]["id"] for delivery in received] == request_ids
