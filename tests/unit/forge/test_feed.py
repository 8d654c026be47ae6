from __future__ import annotations

import asyncio
import queue
import socket
import threading
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
from support.forge_server import PATIENCE, Api
from support.remote import running
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clia.forge.forge import Site


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as made:
        for name in ("scout", "smith"):
            made.space.spawn(name, BRIEFING)
        yield made


def bearer(opened: OpenForge, name: str = "ada", role: str = "admin", display: str = "") -> dict[str, str]:
    """What proves to be a user, who is made where there is none of that name."""
    if opened.forge.users.get(name) is None:
        opened.forge.users.add(name, role, display)
    return {"authorization": f"Bearer {opened.forge.users.make_token(name)[0]}"}


def site_of(opened: OpenForge) -> Site:
    return next(iter(opened.forge.sites.values()))


def test_entries_of_a_store_that_was_lost_are_never_served_as_those_of_the_new_one() -> None:
    async def tried() -> None:
        tail = FeedTail()
        tail.add([FeedMessage(number, f"old {number}") for number in range(1, 6)], 5, "a")
        assert tail.after(3) == [FeedMessage(4, "old 4"), FeedMessage(5, "old 5")]
        tail.add([], 4, "b")
        assert [tail.after(position) for position in range(6)] == [None, None, None, None, [], None]
        tail.add([FeedMessage(5, "new 5")], 5, "b")
        assert tail.after(4) == [FeedMessage(5, "new 5")]
        assert tail.after(3) is None, "who is behind that reads the store"

    asyncio.run(tried())


def test_who_listens_while_the_store_is_lost_starts_over_and_gets_nothing_of_the_old_one(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEAT", 0.1)
    feed, home = site_of(opened).feed, opened.forge.home
    token = bearer(opened)["authorization"].removeprefix("Bearer ")
    with running(opened.forge) as address:
        api = Api(address, token)
        with api.events() as stream:
            stream.decision(api.decide(api.ask()).json()["cid"])
            with home.writing() as change:  # another feed, in which nothing has happened yet
                change.values.put(EPOCH, "another")
                change.streams.forget(FEED, change.streams.end(FEED))
            before = len(stream.seen)
            reset = stream.until(lambda event: event.name not in ("", "change") or len(stream.seen) > before + 200)
            assert (reset.name, reset.data) == ("reset", {"space": "repo"})
            assert reset.id == f"another.{feed.end()}"
            with api.events(after="another.0") as late:
                assert late.until(lambda event: bool(event.name)).name == "reset"
            made = stream.decision(api.decide(api.ask()).json()["cid"])
            assert made.id.startswith("another."), "and it goes on"


def test_tidying_trims_every_feed_and_forgets_keys_and_logins_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: queue.Queue[str] = queue.Queue()
    tidy = EventBus.tidy

    def watched(self: EventBus, site: Site) -> None:
        tidy(self, site)
        tidied.put(site.name)

    monkeypatch.setattr(EventBus, "tidy", watched)
    monkeypatch.setattr(events, "SCAN_INTERVAL", 0.001)
    monkeypatch.setattr(events, "TRIM_INTERVAL", 0.001)
    with open_forge(tmp_path, "one", "two") as opened:
        forge = opened.forge
        forge.users.add("ada", "admin")
        forge.users.make_session("ada")
        Once(forge.home, forge.clock).claim("ada", "old", b"x")
        for site in forge.sites.values():
            with site.space.core.store.writing() as change:
                change.streams.append(FEED, [{"event": "head", "agent": "scout"} for _ in range(KEPT + 7)])
        then = forge.clock() + timedelta(days=30)
        forge.clock = lambda: then
        forge.users = Users(forge.home, forge.clock, token_hex)
        login = forge.users.make_session("ada")
        Once(forge.home, forge.clock).claim("ada", "new", b"x")

        async def served() -> None:
            async with EventBus(forge):
                names: set[str] = set()
                while names != {"one", "two"}:
                    names.add(await asyncio.to_thread(tidied.get, timeout=PATIENCE))

        asyncio.run(served())
        assert [(site.feed.oldest(), site.feed.end()) for site in forge.sites.values()] == [(8, KEPT + 7)] * 2
        assert len(forge.home.scan(KEYS)) == len(forge.home.scan("web/")) == 1, "those that are not over stay"
        assert forge.users.session(login.secret) is not None
        assert Once(forge.home, forge.clock).claim("ada", "old", b"y") is None


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for another thread to have seen something."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def heard(line: socket.socket, until: bytes | None = None) -> bytes:
    """What comes on a line, to its end or up to a text."""
    found = b""
    while (until is None or until not in found) and (data := line.recv(65536)):
        found += data
    return found


@pytest.mark.parametrize("path", ["/events", "/api/v1/spaces/repo/events"])
def test_the_head_of_a_stream_ends(opened: OpenForge, path: str) -> None:
    head = f"HEAD {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer(opened)['authorization']}\r\n\r\n"
    then = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with running(opened.forge) as address, connected(address) as line:
        line.sendall(f"{head}{then}".encode())
        first, _, second = heard(line).partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert b"text/event-stream" in first
    assert second.startswith(b"HTTP/1.1 200 "), "the next request is answered on the same connection"


def test_one_user_takes_a_part_of_all_places_for_listeners_only(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(listeners=events.USER_LEAST + 5)) as opened:
        opened.space.spawn("scout", BRIEFING)
        ada, bob = (bearer(opened, name)["authorization"].removeprefix("Bearer ") for name in ("ada", "bob"))
        again = bearer(opened, "ada")["authorization"].removeprefix("Bearer ")
        with running(opened.forge) as address:
            hers, his = Api(address, ada), Api(address, bob)
            with ExitStack() as stack:
                for _ in range(events.USER_LEAST):
                    stack.enter_context(hers.events())
                for api in (hers, Api(address, again)):
                    refused = api("GET", "/events")
                    assert (refused.status, refused.json()["code"]) == (503, "too-many-listeners"), "by whichever token"
                with his.events("/events") as stream:
                    stream.decision(hers.decide(hers.ask()).json()["cid"])
            eventually(lambda: hers("GET", "/events").status == 200)
