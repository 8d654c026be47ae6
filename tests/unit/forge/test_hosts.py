"""Host names, the login cookie's reach, proxies that prove themselves, and requests with two lengths."""

from __future__ import annotations

import socket
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

import clia
from clia.facade.config import ForgeOptions
from clia.forge.auth import COOKIE, SECURE_COOKIE
from clia.forge.binding import ServeOptions, bind, proxy_secret, set_addresses
from clia.forge.hosts import HostNames, UnknownHost, checked_host_name, own_name
from support.forge import OpenForge, open_forge, problem_of
from support.forge_server import Api, ForgeProcess, new_forge_space, receive
from support.remote import running
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "http://clia-0123456789.localhost:8337"
SECRET = "a secret of sixteen or more characters"  # noqa: S105  # of the tests
FOREIGN = ("evil.example", "evil.example:8337", "127.0.0.1.evil.example", "localhost.evil.example", "x.clia-0123456789.localhost",
           "clia-0123456789.localhost.evil.example", "a@localhost", "localhost/x", "", "[::1", "localhost:x")  # fmt: skip


def browsing(opened: OpenForge, base: str, client: tuple[str, int] = ("127.0.0.1", 4000)) -> TestClient:
    return TestClient(opened.app, base_url=base, follow_redirects=False, client=client)


@pytest.fixture
def named(tmp_path: Path) -> Iterator[OpenForge]:
    """A forge with a host name of its own."""
    with open_forge(tmp_path, options=ForgeOptions(address=OWN)) as opened:
        opened.space.spawn("scout", BRIEFING)
        yield opened


@pytest.mark.parametrize(
    "path", ["/", "/login", "/api/v1/spaces", "/healthz", "/mcp", "/static/forge.css", "/federation/repo/info/refs"]
)
@pytest.mark.parametrize("host", FOREIGN)
def test_a_request_for_a_foreign_host_reaches_nothing(named: OpenForge, path: str, host: str) -> None:
    """Not even with a token: a domain that an attacker lets resolve to this machine could have tricked its owner."""
    client = browsing(named, "http://127.0.0.1:8337")
    answer = client.get(path, headers={"host": host, **named.bearer()})
    assert answer.status_code == 421, (path, host)
    assert "clia-0123456789.localhost" in answer.text, "it says which name is right"


@pytest.mark.parametrize("base", ["http://127.0.0.1:8337", "http://localhost:8337", "http://[::1]:8337", "http://127.0.0.9"])
def test_pages_under_a_loopback_name_lead_to_the_forges_own_name(named: OpenForge, base: str) -> None:
    client, token = browsing(named, base), named.bearer()
    for path in ("/", "/login?key=a%2Fb", "/s/repo/inbox?q=x%20y", "/s/re%2Fpo"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, OWN + path)
    posted = client.post("/login", data={"key": named.forge.users.login_link("ada")})
    assert posted.status_code == 421
    assert OWN in posted.text
    assert "set-cookie" not in posted.headers
    assert client.get("/api/v1/whoami", headers=token).json()["name"] == "ada", "programs may use it"


def test_the_login_counts_under_the_forges_own_name_only(named: OpenForge) -> None:
    """Browsers send the cookies of 127.0.0.1 to every port, so a cookie that arrives there proves nothing."""
    named.forge.users.add("ada", "admin")
    own = browsing(named, OWN)
    answer = own.post("/login", data={"key": named.forge.users.login_link("ada")})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "domain" not in cookie.lower(), "host-only"
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert own.get("/api/v1/whoami").json()["name"] == "ada"
    secret = cookie.partition("=")[2].partition(";")[0]
    for base in ("http://127.0.0.1:8337", "http://localhost:8337"):
        stolen = browsing(named, base).get("/api/v1/whoami", headers={"cookie": f"{COOKIE}={secret}"})
        assert problem_of(stolen) == (401, "not-authenticated")


def test_over_tls_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(address="https://forge.example.org")) as opened:
        opened.forge.users.add("ada", "admin")
        client = browsing(opened, "https://forge.example.org")
        answer = client.post("/login", data={"key": opened.forge.users.login_link("ada")})
        name, _, rest = answer.headers["set-cookie"].partition("=")
        assert name == SECURE_COOKIE == "__Host-clia_login"
        assert "Secure" in rest
        assert "Path=/;" in f"{rest};"
        assert client.get("/api/v1/whoami").json()["name"] == "ada"
        secret = rest.partition(";")[0]
        plain = browsing(opened, "https://forge.example.org").get("/api/v1/whoami", headers={"cookie": f"{COOKIE}={secret}"})
        assert plain.status_code == 401, "a name that another host could set"
        around = browsing(opened, "http://127.0.0.1:8337").get("/")
        assert around.status_code == 421, "no redirect: a proxy that changes the host would loop"
        assert "proxy_set_header Host" in around.text


def test_a_forge_for_the_network_is_reached_by_address_but_not_by_a_foreign_name() -> None:
    hosts = HostNames("clia-1.localhost", by_ip=True)
    assert hosts.serves_pages(["192.168.1.5:8337"])
    assert hosts.serves_pages(["[fe80::1]:8337"])
    assert not hosts.serves_pages(["127.0.0.1:8337"])
    assert not HostNames("clia-1.localhost").serves_pages(["192.168.1.5"]), "programs only"
    assert hosts.serves_pages(["CLIA-1.Localhost.:1"])
    for headers in (["box.lan"], [], ["clia-1.localhost", "clia-1.localhost"]):
        with pytest.raises(UnknownHost):
            hosts.serves_pages(headers)


def test_the_own_name_is_that_of_the_space_and_the_same_at_each_start(tmp_path: Path) -> None:
    place = new_forge_space(tmp_path.resolve() / "repo")
    with clia.open(place.root) as space:
        name = own_name(space.id)
    with ForgeProcess(place.root) as forge:
        assert forge.pages == f"http://{name}:{forge.port}"
        assert forge.address == f"http://127.0.0.1:{forge.port}"
        assert forge.said["link"].startswith(f"{forge.pages}/login?key=")
        assert Api(forge.pages)("GET", "/login").status == 200
        assert Api(forge.address)("GET", "/login").headers["location"] == f"{forge.pages}/login"
    with ForgeProcess(place.root, "--host-name", "forge.example.org") as forge:
        assert forge.pages == f"http://forge.example.org:{forge.port}"
        assert Api(forge.address)("GET", "/login", host="forge.example.org").status == 200


@pytest.mark.parametrize("name", ["", "http://x", "a b", "127.0.0.1", "::1", "-x.example", "x:80", "x/y", "é.example", "a" * 64])
def test_a_host_name_is_checked(name: str) -> None:
    refused("usage", lambda: checked_host_name(name))


# Lengths


@pytest.mark.parametrize("order", [0, 1])
def test_a_request_with_two_lengths_is_refused_and_its_rest_is_not_a_request(tmp_path: Path, order: int) -> None:
    with open_forge(tmp_path) as opened:
        opened.space.spawn("scout", BRIEFING)
        token = opened.bearer()["authorization"]
        smuggled = f"POST /api/v1/spaces/repo/agents/scout/asks HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        smuggled += 'Content-Type: application/json\r\nContent-Length: 31\r\n\r\n{"payload": {"question": "Hm"}}'
        lengths = [f"Content-Length: {5 + len(smuggled)}", "Transfer-Encoding: chunked"]
        head = "\r\n".join(["POST /api/v1/x HTTP/1.1", "Host: localhost", *(lengths if order else lengths[::-1])])
        with running(opened.forge) as address:
            host, _, port = address.removeprefix("http://").partition(":")
            with socket.create_connection((host, int(port)), timeout=60) as line:
                line.sendall(f"{head}\r\n\r\n0\r\n\r\n{smuggled}".encode())
                answer = receive(line)
        assert answer.startswith(b"HTTP/1.1 400 "), answer[:100]
        assert answer.count(b"HTTP/1.1") == 1
        assert b"ambiguous-length" in answer
        assert opened.space.pending() == []


# Proxies


def proxied(tmp_path: Path, secret: str | None = SECRET) -> OpenForge:
    options = ForgeOptions(proxy_header="x-user", proxies=("10.0.0.9",), proxy_secret_env="PROXY_SECRET")  # noqa: S106  # a name
    opened = open_forge(tmp_path, options=options)
    opened.forge.proxy_secret = secret
    opened.forge.users.add("ada", "viewer")
    return opened


def test_a_proxy_is_believed_only_with_its_secret_from_its_address(tmp_path: Path) -> None:
    name, right = ("x-user", "ada"), ("x-clia-proxy-secret", SECRET)
    with proxied(tmp_path) as opened:
        proxy, other = (browsing(opened, "http://127.0.0.1", (peer, 4000)) for peer in ("10.0.0.9", "10.0.0.8"))
        assert proxy.get("/api/v1/whoami", headers=[name, right]).json()["name"] == "ada"
        for client, headers in (
            (proxy, [name]),
            (proxy, [name, ("x-clia-proxy-secret", "")]),
            (proxy, [name, ("x-clia-proxy-secret", SECRET[:-1])]),
            (proxy, [name, ("x-clia-proxy-secret", SECRET.upper())]),
            (proxy, [name, right, right]),
            (proxy, [name, name, right]),
            (other, [name, right]),
        ):
            assert problem_of(client.get("/api/v1/whoami", headers=headers)) == (401, "not-authenticated"), headers
    with proxied(tmp_path / "two", None) as opened:
        client = browsing(opened, "http://127.0.0.1", ("10.0.0.9", 4000))
        for secret in ("", "None", SECRET):
            assert client.get("/api/v1/whoami", headers=[name, ("x-clia-proxy-secret", secret)]).status_code == 401


def test_a_proxy_that_cannot_prove_itself_keeps_the_forge_from_starting() -> None:
    header = ForgeOptions(proxy_header="x-user", proxies=("127.0.0.1",))
    refused("no-proxy-secret", lambda: proxy_secret(header, None, {}))
    assert proxy_secret(header, "/run/clia.sock", {}) is None
    named = header._replace(proxy_secret_env="PROXY_SECRET")  # noqa: S106  # as above
    for environment in ({}, {"PROXY_SECRET": ""}, {"PROXY_SECRET": "short"}):
        err = refused("no-proxy-secret", partial(proxy_secret, named, None, environment))
        assert err.fields["field"] == "forge.proxy_secret_env"
    assert proxy_secret(named, None, {"PROXY_SECRET": SECRET}) == SECRET
    assert proxy_secret(ForgeOptions(), None, {}) is None


def test_a_proxy_on_the_unix_socket_is_believed_without_a_secret(tmp_path: Path) -> None:
    place = new_forge_space(tmp_path.resolve() / "repo")
    place.configured('[forge]\naddress = "https://forge.example.org"\nproxy_header = "X-User"\n')
    path = tmp_path / "forge.sock"
    with ForgeProcess(place.root, "--socket", str(path)) as forge:
        assert forge.said["address"] == forge.said["api"] == "https://forge.example.org"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660

        def answer(host: str, name: str) -> bytes:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(60)
                line.connect(str(path))
                line.sendall(f"GET /api/v1/whoami HTTP/1.1\r\nHost: {host}\r\nX-User: {name}\r\nConnection: close\r\n\r\n".encode())
                return receive(line)

        assert b'"name":"tess"' in answer("forge.example.org", "tess")
        assert b" 403 " in answer("forge.example.org", "eve").partition(b"\r\n")[0], "an unknown user"
        assert b" 421 " in answer("evil.example", "tess").partition(b"\r\n")[0]


def test_an_abandoned_socket_is_replaced_and_another_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "forge.sock"
    options = ServeOptions((), socket=str(path))
    bind(options).close()
    bound = bind(options)
    refused("address-taken", lambda: bind(options))
    bound.close()
    path.unlink()
    path.write_text("mine")
    refused("address-taken", lambda: bind(options))
    assert path.read_text() == "mine"
    refused("no-such-host", lambda: bind(ServeOptions((), socket=str(tmp_path / ("x" * 200)))))


def test_a_forge_on_a_socket_needs_an_address_for_browsers(tmp_path: Path) -> None:
    options = ServeOptions((), socket=str(tmp_path / "forge.sock"))
    with open_forge(tmp_path) as opened, bind(options) as bound:
        refused("usage", lambda: set_addresses(opened.forge, options, bound))
        addresses = set_addresses(opened.forge, options._replace(host_name="forge.example.org"), bound)
        assert addresses.browsers == "http://forge.example.org"


# Health


def test_strangers_learn_no_names_of_spaces(named: OpenForge) -> None:
    client = browsing(named, "http://127.0.0.1:8337")
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/healthz", headers=named.bearer()).json() == {"status": "ok", "spaces": {"repo": "ok"}}
    key = Path(named.space.home, "signing", "machine")
    key.rename(key.with_suffix(".away"))
    degraded = client.get("/healthz", headers=named.bearer())
    assert (degraded.status_code, degraded.json()) == (200, {"status": "degraded", "spaces": {"repo": "no-signing-key"}})
    assert client.get("/healthz").json() == {"status": "degraded"}
