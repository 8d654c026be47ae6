"""The forge with clients that do not read or disconnect, an unreachable store, and kills."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

import clia as library
from clia.forge import server
from clia.forge.api.idempotency import Once
from clia.forge.binding import Addresses
from clia.forge.server import open_forge
from clia.store.interface import FEED
from clia.testing import components
from clia.users.service import User, UserInfo, Users, users_of
from support.forge_server import PATIENCE, PERSON, Api, ForgeProcess, ForgeSpace, eventually, new_forge_space
from support.own_postgres import own_server

QUICK = library.Settings(durable=False, person=PERSON)
EVENTS = "/api/v1/spaces/repo/events"


def memory(forge: ForgeProcess) -> int:
    """The memory of a process in MiB."""
    status = Path(f"/proc/{forge.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


def _client_that_never_reads(address: str, token: str) -> socket.socket:
    """A client that requests events and never reads them."""
    host, _, port = address.removeprefix("http://").partition(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((host, int(port)))
    line.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    line.recv(1)  # it is accepted
    return line


def test_clients_that_never_read_do_not_block_others_or_use_memory(tmp_path: Path) -> None:
    """40 MB of events for each of ten clients: a reading client gets all of them, and the forge stops on a signal."""
    place = new_forge_space(tmp_path.resolve() / "repo")
    count, large = 400, "x" * 100_000
    with ExitStack() as stack:
        forge = stack.enter_context(ForgeProcess(place.root, cold=True))  # its memory is measured
        api = Api(forge.address, place.token)
        for _ in range(10):
            stack.enter_context(_client_that_never_reads(forge.address, place.token))
        stream = stack.enter_context(api.events())
        before = memory(forge)
        with library.open(place.root, settings=QUICK) as space:
            for number in range(0, count, 20):
                entries = [{"event": "head", "agent": "scout", "number": number + offset, "text": large} for offset in range(20)]
                with space.local.store.writing() as change:
                    change.streams.append(FEED, entries)
        numbers = [stream.until(lambda event: "number" in (event.data or {})).data["number"] for _ in range(count)]
        assert numbers == list(range(count))
        cid = api.decide(api.ask()).json()["cid"]
        stream.decision(cid)
        # The newest entries are kept once for all clients, parsed and serialized; ten copies would be 400 MB.
        assert memory(forge) - before < 300
        assert forge.stop() == 0
        assert "Traceback" not in forge.log()


def test_a_client_that_disconnects_in_a_request_is_not_a_failure(tmp_path: Path) -> None:
    place = new_forge_space(tmp_path.resolve() / "repo")
    with ForgeProcess(place.root) as forge:
        host, _, port = forge.address.removeprefix("http://").partition(":")
        head = f"POST /api/v1/spaces/repo/agents/scout/asks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {place.token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        for partial_request in (head, head + '{"payload"', "GET /s/repo/inbox HTTP/1.1\r\nHo", ""):
            with socket.create_connection((host, int(port))) as line:
                line.sendall(partial_request.encode())
        eventually(lambda: forge.log().count("/asks 400") == 2)
        assert Api(forge.address, place.token).done("GET", "/api/v1/spaces/repo/pending")["items"] == []
        assert forge.stop() == 0
        assert "Traceback" not in forge.log()


def test_a_forge_survives_an_outage_of_its_store_and_its_streams_miss_nothing(tmp_path: Path, soak: bool) -> None:
    """While PostgreSQL is down every answer reports it (checked in a soak); afterwards the forge continues by itself."""
    with own_server() as server:
        place = new_forge_space(tmp_path.resolve() / "repo", store=server.url)
        with ForgeProcess(place.root, "--store", server.url) as forge:
            api = Api(forge.address, place.token)
            with api.events() as stream:
                first = stream.decision(api.decide(api.ask()).json()["cid"]).id
                server.stop()
                if soak:  # each waits half a minute for the store
                    health = Api(forge.address)("GET", "/healthz")
                    assert (health.status, health.json()["status"]) == (503, "failing")
                    answer = api("GET", "/api/v1/spaces/repo/pending")
                    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
                server.start()
            eventually(lambda: Api(forge.address)("GET", "/healthz").status == 200)
            with library.open(place.root, settings=QUICK._replace(store=server.url)) as space:
                request = space.ask("scout", {"question": "Still there?"})
                cid = space.decide("scout", "yes", by="Ada", request_id=request.id).cid
            with api.events(after=first) as stream:
                stream.decision(cid)
                assert "reset" not in [event.name for event in stream.seen]
            assert forge.stop() == 0
            assert "Traceback" not in forge.log()


def test_an_idempotency_key_of_a_killed_request_is_never_used_for_another_change(tmp_path: Path) -> None:
    place: ForgeSpace = new_forge_space(tmp_path.resolve() / "repo")
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        request = api.ask()
        path = f"/api/v1/spaces/repo/agents/{request['agent']}/decisions"
        body = f'{{"value": "yes", "request_id": "{request["id"]}"}}'.encode()
        with library.open(place.root, settings=QUICK) as space:  # as a forge leaves it that was killed during the request
            core = components(space).core
            assert Once(core.store, core.clock).claim("tess", "k", b"\n".join([b"POST", path.encode(), b"", body])) is None
            assert users_of(space).get("tess") is not None
        answer = api("POST", path, body, Idempotency_Key="k", content_type="application/json")
        assert (answer.status, answer.json()["code"]) == (409, "idempotency-in-progress")
        assert len(api.done("GET", "/api/v1/spaces/repo/pending")["items"]) == 1
        assert api("POST", path, body, Idempotency_Key="k-2", content_type="application/json").status == 200


class HubSync(Users):
    """Users that two forges read at the same time: neither continues before the other has read."""

    met: Barrier

    def all(self) -> list[UserInfo]:
        result = super().all()
        self.met.wait()
        return result


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_forges_that_start_together_create_one_admin(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Neither finds a user; one creates the admin, and the other behaves as if it had existed."""
    store = None if kind == "sqlite" else request.getfixturevalue("store")
    root = tmp_path.resolve() / "repo"
    library.init(root, settings=QUICK._replace(store=store)).close()
    met = Barrier(2, timeout=PATIENCE)

    def said(number: int) -> tuple[str | None, str | None]:
        forge = open_forge([str(root)], QUICK)
        try:
            core = components(forge.sites["repo"].space).core
            forge.users = HubSync(core.store, core.clock, lambda: f"secret-{number}")
            forge.users.met = met
            served = server.banner_of(forge, Addresses("", "http://forge", "", ""), None)
            return served.user, served.link
        finally:
            forge.close()

    with ThreadPoolExecutor(2) as pool:
        logins_said = list(pool.map(said, range(2)))
    assert logins_said == [("admin", f"http://forge/login?key=secret-{number}") for number in range(2)]
    with library.open(root, settings=QUICK) as space:
        users = users_of(space)
        assert [record.user for record in users.all()] == [User("admin", "admin", *PERSON)]
        logins = [users.redeem(f"secret-{number}") for number in range(2)]
        assert [login.user.name for login in logins if login is not None] == ["admin", "admin"]
