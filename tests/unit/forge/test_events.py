"""The live feed: streams, lost stores, tidying and listener limits."""

from __future__ import annotations

import asyncio
import queue
from contextlib import ExitStack
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from clia.facade.config import ForgeOptions
from clia.forge import events
from clia.forge.api.idempotency import PREFIX as KEYS
from clia.forge.api.idempotency import Once
from clia.forge.events import EventBus, FeedMessage, FeedTail
from clia.space.feed import EPOCH, KEPT
from clia.store.interface import FEED
from clia.users.service import Users
from support.forge import OpenForge, open_forge
from support.forge_server import PATIENCE, Api, connect, eventually, receive
from support.remote import running
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    from clia.forge.forge import Site


def test_entries_of_a_lost_store_are_never_served_for_the_new_one() -> None:
    async def check() -> None:
        tail = FeedTail()
        tail.add([FeedMessage(number, f"old {number}") for number in range(1, 6)], 5, "a")
        assert tail.after(3) == [FeedMessage(4, "old 4"), FeedMessage(5, "old 5")]
        tail.add([], 4, "b")
        assert [tail.after(position) for position in range(6)] == [None, None, None, None, [], None]
        tail.add([FeedMessage(5, "new 5")], 5, "b")
        assert tail.after(4) == [FeedMessage(5, "new 5")]
        assert tail.after(3) is None, "a reader behind that reads the store"

    asyncio.run(check())


def test_a_listener_starts_over_when_the_store_is_lost(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT", 0.1)
    feed, home = forge.site.feed, forge.forge.home
    token = forge.bearer()["authorization"].removeprefix("Bearer ")
    with running(forge.forge) as address:
        api = Api(address, token)
        with api.events() as stream:
            stream.decision(api.decide(api.ask()).json()["cid"])
            with home.writing() as change:  # another, empty feed
                change.values.put(EPOCH, "another")
                change.streams.forget(FEED, change.streams.end(FEED))
            event_count = len(stream.seen)
            reset = stream.until(lambda event: event.name not in ("", "change") or len(stream.seen) > event_count + 200)
            assert (reset.name, reset.data) == ("reset", {"space": "repo"})
            assert reset.id == f"another.{feed.end()}"
            with api.events(after="another.0") as late:
                assert late.until(lambda event: bool(event.name)).name == "reset"
            decision = stream.decision(api.decide(api.ask()).json()["cid"])
            assert decision.id.startswith("another."), "the stream continues"


def test_tidying_trims_every_feed_and_deletes_expired_keys_and_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: queue.Queue[str] = queue.Queue()
    tidy = EventBus.tidy

    def tidy_and_report(self: EventBus, site: Site) -> None:
        tidy(self, site)
        tidied.put(site.name)

    monkeypatch.setattr(EventBus, "tidy", tidy_and_report)
    monkeypatch.setattr(events, "SCAN_INTERVAL", 0.001)
    monkeypatch.setattr(events, "TRIM_INTERVAL", 0.001)
    with open_forge(tmp_path, "one", "two") as forge:
        running_forge = forge.forge
        running_forge.users.add("ada", "admin")
        running_forge.users.make_session("ada")
        Once(running_forge.home, running_forge.clock).claim("ada", "old", b"x")
        for site in running_forge.sites.values():
            with site.space.local.store.writing() as change:
                change.streams.append(FEED, [{"event": "head", "agent": "scout"} for _ in range(KEPT + 7)])
        later = running_forge.clock() + timedelta(days=30)
        running_forge.clock = lambda: later
        running_forge.users = Users(running_forge.home, running_forge.clock, token_hex)
        login = running_forge.users.make_session("ada")
        Once(running_forge.home, running_forge.clock).claim("ada", "new", b"x")

        async def served() -> None:
            async with EventBus(running_forge):
                names: set[str] = set()
                while names != {"one", "two"}:
                    names.add(await asyncio.to_thread(tidied.get, timeout=PATIENCE))

        asyncio.run(served())
        assert [(site.feed.oldest(), site.feed.end()) for site in running_forge.sites.values()] == [(8, KEPT + 7)] * 2
        assert len(running_forge.home.scan(KEYS)) == len(running_forge.home.scan("web/")) == 1, "those that have not expired stay"
        assert running_forge.users.session(login.secret) is not None
        assert Once(running_forge.home, running_forge.clock).claim("ada", "old", b"y") is None


@pytest.mark.parametrize("path", ["/events", "/api/v1/spaces/repo/events"])
def test_a_head_request_for_a_stream_ends(forge: OpenForge, path: str) -> None:
    request = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {forge.bearer()['authorization']}\r\n\r\n"
    next_request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with running(forge.forge) as address, connect(address) as connection:
        connection.sendall(f"{request}{next_request}".encode())
        first, _, second = receive(connection).partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert b"text/event-stream" in first
    assert second.startswith(b"HTTP/1.1 200 "), "the next request is answered on the same connection"


def test_one_user_gets_only_a_share_of_the_listener_slots(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(listeners=events.USER_LEAST + 5)) as forge:
        forge.space.spawn("scout", BRIEFING)
        ada_token, bob_token = (forge.bearer(name)["authorization"].removeprefix("Bearer ") for name in ("ada", "bob"))
        second_token = forge.bearer("ada")["authorization"].removeprefix("Bearer ")
        with running(forge.forge) as address:
            ada_api, bob_api = Api(address, ada_token), Api(address, bob_token)
            with ExitStack() as stack:
                for _ in range(events.USER_LEAST):
                    stack.enter_context(ada_api.events())
                for api in (ada_api, Api(address, second_token)):
                    answer = api("GET", "/events")
                    assert (answer.status, answer.json()["code"]) == (503, "too-many-listeners"), "with either token"
                with bob_api.events("/events") as stream:
                    stream.decision(ada_api.decide(ada_api.ask()).json()["cid"])
            eventually(lambda: ada_api("GET", "/events").status == 200)
