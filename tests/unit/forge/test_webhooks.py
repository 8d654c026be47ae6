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
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from clia.forge.forge import Site


BOTH = """\
import asyncio

async def main(input):
    return await asyncio.gather(request("llm", {"prompt": "x"}), request("human", {"question": "Go on?"}), request("clock", {}))
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as made:
        for name in ("scout", "smith"):
            made.space.spawn(name, BRIEFING)
        yield made


def site_of(opened: OpenForge) -> Site:
    return next(iter(opened.forge.sites.values()))


def told(opened: OpenForge) -> list[dict[str, Any]]:
    """Everything that the feed says to a hook."""
    site = site_of(opened)
    return [
        json.loads(each.body)
        for position, entry in site.feed.read(0)
        for each in deliveries(site, "https://forge.example", "ci", position, entry)
    ]


def test_a_hook_hears_of_requests_to_people_only(opened: OpenForge) -> None:
    space = opened.space
    space.define("approval", APPROVAL)
    space.define("both", BOTH)
    space.start("scout", "approval", {"goal": "x"})
    assert told(opened) == [], "a worker answers this one"
    space.resume("scout", "a plan")
    assert [(each["event"], [(one["id"], one["kind"]) for one in each["requests"]]) for each in told(opened)] == [
        ("waiting", [("1.2", "human")])
    ]
    space.start("smith", "both", None)
    assert [(one["id"], one["kind"]) for one in told(opened)[-1]["requests"]] == [("1.2", "human")], "of three at once, this one"


class Line:
    """Where deliveries go: each is kept, and taken."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpResponse:
        del url, headers, seconds, limit
        self.got.put(json.loads(body))
        return HttpResponse(204, {}, b"")


@pytest.mark.parametrize("place", [1000, None, "x", True, 1.0], ids=str)
def test_a_hook_that_was_told_of_another_feed_goes_on_at_the_end_of_this_one(tmp_path: Path, place: Any) -> None:
    """As after a store was lost: what the hook was told up to is nowhere in the feed, or is not known."""
    config = tmp_path / "config.toml"
    config.write_text("[forge.webhooks.ci]\nurl = 'https://ci.example/x'\nsecret_env = 'S'\n")
    with open_forge(tmp_path, config=str(config)) as opened:
        opened.space.spawn("scout", BRIEFING)
        opened.space.ask("scout", QUESTION)
        if place is not None:
            with opened.forge.home.writing() as change:
                change.values.put(f"{ROW}ci", place)
        line = Line()
        hooks = Webhooks(opened.forge, {"S": "secret"}, cast("Any", line))
        hooks.start()
        try:
            asked = [opened.space.ask("scout", QUESTION).id for _ in range(2)]
            got = [line.got.get(timeout=PATIENCE) for _ in asked]
        finally:
            hooks.stop()
    assert [each["requests"][0]["id"] for each in got] == asked
