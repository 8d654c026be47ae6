"""Attacks on the forge: each is refused with its status and changes nothing."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from secrets import token_hex
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from clia.api.derivation import all_verbs
from clia.facade.config import ForgeOptions
from clia.forge.api.routes import PREFIX
from clia.forge.middleware import CSP
from clia.users.service import Users
from clia.verbs import GET
from support import git
from support.forge import BASE, Browser, OpenForge, open_forge
from support.forge_server import QUESTION, Api
from support.remote import running
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response

ROLES = ("viewer", "decider", "admin")
TRICKS = (
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%2Fetc%2Fpasswd",
    "a%00b",
    "%ff",
    "x" * 3000,
    "%E2%80%AE%F0%9F%A6%8A",
    "-x",
    "@{-1}",
    "a%0Ab",
    "%25",
    "~",
)
"""Parts of an address with a meaning for file systems, git or terminals."""
BESIDE = ("user/", "token/", "login/", "web/", "forge/", "feed/")
"""Keys that tests or plain reads change: the last use of a token, the end of a login."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as forge:
        prepared(forge)
        yield forge


def prepared(forge: OpenForge) -> None:
    forge.space.spawn("scout", BRIEFING)
    forge.space.commit("scout", "finding", {"a.txt": b"one\n"}, message="look")
    forge.space.ask("scout", QUESTION)


def state(opened: OpenForge) -> tuple[str, Any, int]:
    """Everything that an attack could change: refs, rows of the store, entries of the feed."""
    site = next(iter(opened.forge.sites.values()))
    rows = [row for row in opened.forge.home.scan("") if not row[0].startswith(BESIDE)]
    return git("for-each-ref", cwd=site.path), rows, site.feed.end()


def decide_form(opened: OpenForge) -> str:
    request = opened.space.pending()[0]
    return f"{opened.base}/inbox/{request.agent}/{request.id}"


def token(
    opened: OpenForge, role: str = "admin", name: str | None = None, days: int | None = None, narrowed: str | None = None
) -> str:
    user = name or f"a-{role}"
    if opened.forge.users.get(user) is None:
        opened.forge.users.add(user, role)
    return opened.forge.users.make_token(user, role=narrowed, days=days)[0]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


DECISIONS = "/api/v1/spaces/repo/agents/scout/decisions"


# Forms of other sites


@pytest.mark.parametrize("csrf", ["", "0" * 64, "é", "another login's"])
def test_a_form_without_the_token_of_its_login_is_refused(opened: OpenForge, csrf: str) -> None:
    browser, before = opened.browser("ada"), state(opened)
    token_value = opened.browser("bob").csrf if csrf.startswith("another") else csrf
    answer = browser.post(decide_form(opened), {"v": '"yes"', "rationale": "x"}, csrf=token_value)
    assert (answer.status_code, state(opened)) == (403, before), answer.text
    answer = browser.client.post(
        DECISIONS, json={"value": "yes"}, headers={"x-csrf-token": token_value} if token_value.isascii() else {}
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "bad-csrf")
    assert state(opened) == before


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json", ""])
def test_a_form_of_another_kind_is_refused_even_with_the_token(opened: OpenForge, kind: str) -> None:
    browser, before = opened.browser("ada"), state(opened)
    body = f"_csrf={browser.csrf}&v=%22yes%22"
    answer = browser.client.post(decide_form(opened), content=body, headers={"content-type": kind})
    assert (answer.status_code, state(opened)) == (415, before)


def test_the_right_token_decides(opened: OpenForge) -> None:
    """Shows that the refusals above are due to the token."""
    browser = opened.browser("ada")
    answer = browser.client.post(DECISIONS, json={"value": "yes"}, headers={"x-csrf-token": browser.csrf})
    assert (answer.status_code, answer.json()["by"]) == (200, "ada")
    assert opened.space.pending() == []


def test_a_page_of_another_site_cannot_log_in(opened: OpenForge) -> None:
    opened.forge.users.add("ada", "admin")
    key = opened.forge.users.login_link("ada")
    stranger = opened.stranger()
    for site in ("cross-site", "same-site"):
        answer = stranger.client.post("/login", data={"key": key}, headers={"sec-fetch-site": site})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert stranger.client.post("/login", data={"key": key}, headers={"sec-fetch-site": "same-origin"}).status_code == 303


# Authentication and roles


def test_invalid_credentials_are_answered_401_and_change_nothing(opened: OpenForge) -> None:
    users, stranger = opened.forge.users, opened.stranger()
    revoked, expired = token(opened), token(opened, days=1)
    good = token(opened)
    users.revoke_token("a-admin", next(row.id for row in users.all()[0].tokens if row.expires_at is None))
    before = state(opened)
    opened.forge.users = Users(opened.forge.home, lambda: datetime(2027, 1, 1, tzinfo=UTC), token_hex)  # a year later
    session = opened.browser("bob").client.cookies["clia_login"]
    headers: list[dict[str, str]] = [
        {},
        bearer(""),
        bearer("clia_" + "x" * 43),
        bearer(revoked),
        bearer(expired),
        bearer(session),
        bearer(good.upper()),
        {"authorization": good},
        {"authorization": f"Basic {good}"},
        {"cookie": "clia_login="},
        {"cookie": f"clia_login={good}"},
        {"x-user": "ada", "x-forwarded-user": "ada", "remote-user": "ada"},
    ]
    for header in headers:
        answer = stranger.client.post(DECISIONS, json={"value": "yes"}, headers=header)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="clia"'), header
        assert answer.headers["content-type"] == "application/problem+json"
        stranger.client.cookies.clear()
    for query in (f"?token={good}", f"?access_token={good}", f"?authorization=Bearer+{good}", f"?key={good}"):
        assert stranger.client.post(DECISIONS + query, json={"value": "yes"}).status_code == 401
    assert state(opened) == before
    assert stranger.client.post(DECISIONS, json={"value": "yes"}, headers=bearer(good)).status_code == 200


def address_of(path: str, values: dict[str, str] | None = None, default: str = "scout") -> str:
    """An address with every ``{part}`` filled in."""
    address = path
    while "{" in address:
        name = address[address.index("{") + 1 : address.index("}")]
        filled = {"space": "repo", **(values or {})}.get(name.partition(":")[0], default)
        address = address[: address.index("{")] + filled + address[address.index("}") + 1 :]
    return address


def test_every_verb_needs_a_login_and_its_role(opened: OpenForge) -> None:
    tokens = {role: token(opened, role) for role in ROLES}
    narrowed = token(opened, "admin", narrowed="viewer")  # a read-only token of an administrator
    client, before = opened.stranger().client, state(opened)
    for verb in all_verbs():
        address = address_of(PREFIX + verb.path)
        assert client.request(verb.method, address, json={}).status_code == 401, verb.name
        for role in ROLES[: ROLES.index(verb.role)]:
            answer = client.request(verb.method, address, json={}, headers=bearer(tokens[role]))
            assert (answer.status_code, answer.json()["code"]) == (403, "role-too-low"), (verb.name, role)
        if verb.role != "viewer":
            assert client.request(verb.method, address, json={}, headers=bearer(narrowed)).status_code == 403, verb.name
    assert state(opened) == before


def page_routes(opened: OpenForge) -> list[Route]:
    return [route for route in opened.app.app.routes if isinstance(route, Route) and route.path.startswith("/s/")]


def test_forms_need_a_login_and_their_role(opened: OpenForge) -> None:
    viewer, decider = opened.browser("vic", "viewer"), opened.browser("dee", "decider")
    before = state(opened)
    posts = [page_route for page_route in page_routes(opened) if "POST" in (page_route.methods or ())]
    assert len(posts) > 10
    for route in posts:
        address = address_of(route.path)
        assert opened.stranger().post(address).status_code in (401, 403), route.name
        assert viewer.post(address).status_code == 403, route.name
        if route.name != "statement" and not route.name.startswith("decide"):  # deciders may do these
            assert decider.post(address).status_code == 403, route.name
    assert state(opened) == before


# Addresses


def test_no_part_of_an_address_leads_to_other_files(opened: OpenForge, tmp_path: Path) -> None:
    """In the API and in pages: unknown names are not found, and no answer shows a path of the machine."""
    browser, before = opened.browser("ada"), state(opened)
    secret = bearer(token(opened))
    paths = [(PREFIX + verb.path, secret) for verb in all_verbs() if verb.method == GET and "{" in verb.path]
    paths += [(route.path, {}) for route in page_routes(opened) if "GET" in (route.methods or ())]
    for path, headers in paths:
        names = [part.partition("}")[0] for part in path.split("{")[1:]]
        for name in names:
            for trick in TRICKS:
                answer = browser.get(address_of(path, {name.partition(":")[0]: trick}), headers=headers)
                assert answer.status_code in (200, 303, 404, 422), (path, name, trick, answer.status_code)
                assert str(tmp_path) not in answer.text, (path, name, trick)
                assert "root:x:0" not in answer.text
    assert state(opened) == before


@pytest.mark.parametrize("path", ["../x", "..", "/etc/passwd", "a/../../b", ""])
def test_a_path_outside_of_the_worktree_is_refused_without_a_path_of_the_machine(
    opened: OpenForge, tmp_path: Path, path: str
) -> None:
    secret, client = bearer(token(opened)), opened.stranger().client
    for verb, field in (("diff", "paths"), ("changed", "paths"), ("blame", "path")):
        answer = client.get(f"/api/v1/spaces/repo/{verb}", params={"text": "scout", field: path}, headers=secret)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-path"), (verb, answer.text)
        assert str(tmp_path) not in answer.text
    for inside in ("a.txt", "./a.txt", "b/../a.txt"):
        patch = client.get("/api/v1/spaces/repo/diff", params={"text": "scout", "paths": inside}, headers=secret)
        assert "one" in patch.json()
    assert client.get("/api/v1/spaces/repo/agents/%1d/landings", headers=secret).status_code == 422


def raw(address: str, text: str) -> bytes:
    """The server's answer to a request that no client sends."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(text.encode("latin-1"))
        received = b""
        while data := line.recv(65536):
            received += data
        return received


def test_only_the_forges_static_files_are_served(opened: OpenForge) -> None:
    with running(opened.forge) as address:
        assert b" 200 OK" in raw(address, "GET /static/forge.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        names = [
            "../app.py",
            "%2e%2e/app.py",
            "..%2fapp.py",
            "vendor/../../app.py",
            "/etc/passwd",
            "%00",
            "forge.css%00",
            "a" * 5000,
            "",
            ".",
            "vendor",
        ]
        for name in [*names, "%5c..%5capp.py", "forge.css/x", "%ff%fe", "..%c0%afapp.py"]:
            response = raw(address, f"GET /static/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert response.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), (name, response[:200])
            assert b"create_app" not in response


def test_answers_do_not_contain_the_host_of_the_request(opened: OpenForge) -> None:
    browser = opened.browser("ada")
    for path in (
        "/",
        "/s/repo",
        "/s/repo/inbox/",
        "/inbox/",
        "/login?next=/x",
        "/static",
        "/static/",
        "//evil.example/..",
        "/api/v1/spaces/",
    ):
        for host in ("evil.example", "127.0.0.1@evil.example", "a/b", "evil.example:99999", ""):
            answer = browser.get(path, headers={"host": host})
            assert answer.status_code < 500, (path, host)
            assert "evil" not in answer.headers.get("location", "").partition("?")[0], (path, host)
            assert not answer.headers.get("location", "/").startswith(("http", "//"))


def test_invalid_http_is_refused(opened: OpenForge) -> None:
    with running(opened.forge) as address:
        lines = ("GET /%zz HTTP/1.1", "G\x00T / HTTP/1.1", "GET /\xff HTTP/1.1", "GET / HTTP/9.9", "GET  HTTP/1.1", "\x16\x03\x01")
        conflicting = "POST /login HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"
        for line in (*lines, conflicting, f"GET / HTTP/1.1\r\nX: {'y' * 100_000}"):
            response = raw(address, f"{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n0\r\n\r\n")
            assert response.startswith((b"HTTP/1.1 4", b"HTTP/1.1 3")), (line[:50], response[:200])
        assert b" 400 " in raw(address, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), "no Host header"
        assert Api(address)("GET", "/healthz").status == 200


# Bodies


def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(body_max=1000)) as opened:
        prepared(opened)
        api_token, before = token(opened), state(opened)
        client = opened.stranger().client
        large = b'{"value": "' + b"y" * 2000 + b'"}'
        headers = bearer(api_token) | {"content-type": "application/json"}
        declared = client.post(DECISIONS, content=large, headers=headers)
        assert (declared.status_code, declared.json()["fields"]) == (413, {"most": 1000})
        form = opened.browser("ada").post(decide_form(opened), {"v": "y" * 2000})
        assert form.status_code == 413
        with running(opened.forge) as address:
            head = f"POST {DECISIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {api_token}\r\n"
            head += "Content-Type: application/json\r\n"
            chunk = f"{len(large):x}\r\n{large.decode()}\r\n0\r\n\r\n"
            assert b" 413 " in raw(address, f"{head}Transfer-Encoding: chunked\r\n\r\n{chunk}").partition(b"\r\n")[0]
            untrue = raw(address, f"{head}Content-Length: 99999999999999999999\r\n\r\n{{}}")
            assert untrue.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")), untrue[:100]
            look = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            look += f"Content-Length: {len(large)}\r\n\r\n{large.decode()}"
            assert raw(address, look).startswith(b"HTTP/1.1 200 ")  # the server does not read it
        assert state(opened) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"value": NaN}', 400),
        (b'{"value": 1e999}', 400),
        (b'{"value": 1, "value": 2}', 400),
        (b'{"value": "\\ud800"}', 400),
        (b"[" * 100_000, 400),
        (b'{"value": ' + b"9" * 5000 + b"}", 400),
        (b"[]", 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"value": "maybe"}', 422),
        (b'{"value": "yes", "more": 1}', 422),
        (b'{"value": "yes", "by": 7}', 422),
        (b'{"value": "yes", "by": "Somebody Else"}', 403),
        (b'{"value": "yes", "request_id": "nothing"}', 404),
    ],
)
def test_an_invalid_body_is_refused(opened: OpenForge, body: bytes, status: int) -> None:
    secret, before = token(opened), state(opened)
    headers = bearer(secret) | {"content-type": "application/json"}
    answer = opened.stranger().client.post(DECISIONS, content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["status"] == status
    assert state(opened) == before


def test_a_stale_if_match_is_refused_and_unknown_ids_are_not_found(opened: OpenForge) -> None:
    secret, before = bearer(token(opened)), state(opened)
    client = opened.stranger().client
    old = opened.space.agents.genesis("scout")
    for address, body in (
        (DECISIONS, {"value": "yes"}),
        ("/api/v1/spaces/repo/agents/scout/commits", {"kind": "finding", "files": {}}),
    ):
        for stale in (f'"{old}"', old, '"nonsense"', f'W/"{old}"'):
            answer = client.post(address, json=body, headers=secret | {"if-match": stale})
            assert (answer.status_code, answer.json()["code"]) == (412, "stale-if-match"), (address, stale)
    for address in (
        "spaces/other/agents",
        "spaces/repo/agents/ghost/head",
        f"spaces/repo/commits/{'0' * 40}",
        "spaces/repo/nothing",
        "nothing",
    ):
        assert client.get(f"/api/v1/{address}", headers=secret).status_code == 404, address
    assert state(opened) == before


# Methods


def test_other_methods_are_refused(opened: OpenForge) -> None:
    secret, before = bearer(token(opened)), state(opened)
    client = opened.stranger().client
    for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "PROPFIND"):
        answer = client.request(method, DECISIONS, json={"value": "yes"}, headers=secret)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), method
    for header in ("x-http-method-override", "x-method-override", "x-http-method"):
        answer = client.get("/api/v1/spaces/repo/agents/scout/archive", headers=secret | {header: "POST"})
        assert answer.status_code == 405
        assert client.get("/api/v1/spaces/repo/agents", headers=secret | {header: "POST"}).status_code == 200
    browser = opened.browser("ada")
    assert browser.post("/s/repo/agents/scout", {"_method": "DELETE"}).status_code == 405
    for method in ("TRACE", "OPTIONS", "CONNECT", "DELETE"):
        assert browser.client.request(method, "/s/repo/inbox").status_code == 405, method
    head = client.head("/api/v1/spaces/repo/agents/scout/head", headers=secret)
    assert (head.status_code, head.headers["etag"]) == (200, f'"{opened.space.head("scout")}"')
    assert state(opened) == before


# Logging in


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/x\r\nSet-Cookie: a=b",
        "evil.example",
        " //evil.example",
        "/\x00",
    ],
)
def test_a_login_redirects_only_to_pages_of_the_forge(opened: OpenForge, target: str) -> None:
    opened.forge.users.add("ada", "admin")
    stranger = opened.stranger()
    page = stranger.client.get("/login", params={"next": target, "key": "k"})
    assert page.status_code == 200
    assert "evil.example" not in page.text
    assert "javascript:alert" not in page.text
    answer = stranger.client.post("/login", data={"key": opened.forge.users.login_link("ada"), "next": target})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers.get_list("set-cookie")[0].startswith("clia_login=")
    assert len(answer.headers.get_list("set-cookie")) == 1


def test_a_login_redirects_to_the_requested_page(opened: OpenForge) -> None:
    opened.forge.users.add("ada", "admin")
    stranger = opened.stranger()
    redirect = stranger.get("/s/repo/inbox?q=a%26b&page=2")
    assert (redirect.status_code, redirect.headers["location"]) == (303, "/login?next=%2Fs%2Frepo%2Finbox%3Fq%3Da%2526b%26page%3D2")
    answer = stranger.client.post("/login", data={"key": opened.forge.users.login_link("ada"), "next": "/s/repo/inbox?q=a%26b"})
    assert answer.headers["location"] == "/s/repo/inbox?q=a%26b"


def test_a_login_does_not_adopt_an_existing_cookie(opened: OpenForge) -> None:
    opened.forge.users.add("ada", "admin")
    stranger = opened.stranger()
    stranger.client.cookies.set("clia_login", "chosen-by-somebody-else", domain="127.0.0.1")
    answer = stranger.client.post("/login", data={"key": opened.forge.users.login_link("ada")})
    cookie_value = answer.headers["set-cookie"].partition(";")[0].removeprefix("clia_login=")
    assert cookie_value != "chosen-by-somebody-else"
    browser = opened.stranger()
    assert browser.get("/s/repo/inbox", headers={"cookie": "clia_login=chosen-by-somebody-else"}).status_code == 303
    assert browser.get("/s/repo/inbox", headers={"cookie": f"clia_login={cookie_value}"}).status_code == 200
    # A second login in the same browser gets a new cookie.
    again = stranger.client.post("/login", data={"key": opened.forge.users.login_link("ada")})
    assert again.headers["set-cookie"].partition(";")[0] != f"clia_login={cookie_value}"


@pytest.mark.parametrize(("address", "secure"), [("", False), ("https://forge.example", True)])
def test_the_cookie_is_limited_to_this_forge(tmp_path: Path, address: str, secure: bool) -> None:
    with open_forge(tmp_path, options=ForgeOptions(address=address)) as opened:
        opened.forge.users.add("ada", "admin")
        client = TestClient(opened.app, base_url=address or BASE, follow_redirects=False)
        answer = client.post("/login", data={"key": opened.forge.users.login_link("ada")})
        flags = {flag.strip().lower() for flag in answer.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/", "max-age=604800"} <= flags
        assert ("secure" in flags) is secure
        assert not any(flag.startswith("domain") for flag in flags)


def test_a_login_link_works_once_under_a_race_and_survives_being_opened(opened: OpenForge) -> None:
    opened.forge.users.add("ada", "admin")
    key = opened.forge.users.login_link("ada")
    assert [opened.stranger().get(f"/login?key={key}").status_code for _ in range(3)] == [200] * 3
    answers: list[int] = []
    start = Barrier(8)

    def redeem() -> None:
        client = opened.stranger().client
        start.wait()
        answers.append(client.post("/login", data={"key": key}).status_code)

    threads = [Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [303, *[403] * 7]


def test_logging_out_and_removing_a_user_end_every_access(opened: OpenForge) -> None:
    ada, secret = opened.browser("ada"), token(opened, name="ada")
    opened.browser("eve", "admin")
    assert ada.post("/logout", csrf="wrong").status_code == 403
    assert ada.get("/s/repo/inbox").status_code == 200
    cookie = ada.client.cookies["clia_login"]
    assert ada.post("/logout").status_code == 303
    stranger = opened.stranger()
    assert stranger.get("/s/repo/inbox", headers={"cookie": f"clia_login={cookie}"}).status_code == 303
    again = opened.browser("ada")
    opened.forge.users.update("ada", role="viewer")
    assert again.post(decide_form(opened), {"v": '"yes"'}).status_code == 403
    opened.forge.users.remove("ada")
    assert again.get("/s/repo/inbox").status_code == 303
    assert stranger.get("/api/v1/whoami", headers=bearer(secret)).status_code == 401


# Rate limits


def test_too_many_requests_are_refused_with_a_time_to_retry(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(per_minute=6)) as opened:
        prepared(opened)
        admin, viewer = bearer(token(opened, "admin")), bearer(token(opened, "viewer"))
        client, before = opened.stranger().client, state(opened)
        address = "/api/v1/spaces/repo/agents"
        statuses = [client.get(address, headers=admin).status_code for _ in range(8)]
        assert statuses == [200] * 6 + [429] * 2
        refused = client.post(DECISIONS, json={"value": "yes"}, headers=admin)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 11
        assert state(opened) == before
        assert client.get(address, headers=viewer).status_code == 200, "requests of other users are not counted"
        assert client.get("/static/forge.css").status_code == 200


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(logins_per_minute=3)) as opened:
        client, good = opened.stranger().client, bearer(token(opened))
        statuses = [client.get("/api/v1/whoami", headers=bearer(f"clia_{number}")).status_code for number in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert client.get("/api/v1/whoami", headers=good).status_code == 200


# Headers


def assert_guarded(answer: Response) -> None:
    headers = answer.headers
    assert headers["content-security-policy"] == CSP, answer
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"]
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_every_kind_of_answer_has_the_security_headers(opened: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, secret = opened.browser("ada"), bearer(token(opened))
    kinds = {
        "page": (browser.get("/s/repo/inbox"), 200),
        "api": (browser.get("/api/v1/whoami", headers=secret), 200),
        "static": (browser.get("/static/forge.css"), 200),
        "health": (browser.get("/healthz"), 200),
        "metrics": (browser.get("/metrics"), 200),
        "redirect": (opened.stranger().get("/s/repo/inbox"), 303),
        "nothing": (browser.get("/nothing"), 404),
        "no static": (browser.get("/static/nothing"), 404),
        "unauthenticated": (opened.stranger().get("/api/v1/whoami"), 401),
        "forbidden": (browser.post("/logout", csrf="x"), 403),
        "method": (browser.client.delete("/s/repo/inbox"), 405),
        "kind": (browser.client.post("/login", content=b"x", headers={"content-type": "text/plain"}), 415),
        "unprocessable": (browser.get("/api/v1/spaces/repo/agents?x=1", headers=secret), 422),
    }
    for name, (answer, status) in kinds.items():
        assert answer.status_code == status, (name, answer.text[:300])
        assert_guarded(answer)
        assert answer.headers["cache-control"] == "no-store" or name.endswith("static"), name

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the forge")

    monkeypatch.setattr(type(opened.space.sessions), "pending", broken)
    client = TestClient(opened.app, base_url=BASE, raise_server_exceptions=False, cookies=dict(browser.client.cookies))
    for path, headers in (("/s/repo/inbox", {}), ("/api/v1/spaces/repo/pending", secret)):
        failed = client.get(path, headers=headers)
        assert failed.status_code == 500
        assert "a secret of the forge" not in failed.text
        assert "Traceback" not in failed.text
        assert_guarded(failed)


# Proxies


def test_proxy_headers_are_accepted_only_from_the_proxy(tmp_path: Path) -> None:
    options = ForgeOptions(proxy_header="x-user", proxies=("10.0.0.9",))
    with open_forge(tmp_path, options=options) as opened:
        opened.forge.proxy_secret = "the proxy's own secret"  # noqa: S105  # of the test
        prepared(opened)
        opened.forge.users.add("ada", "decider")
        proxy = TestClient(opened.app, base_url=BASE, client=("10.0.0.9", 4000), follow_redirects=False)
        proxy.headers["x-clia-proxy-secret"] = "the proxy's own secret"
        strangers = [TestClient(opened.app, base_url=BASE, client=(host, 4000)) for host in ("10.0.0.8", "127.0.0.1", "testclient")]
        for stranger in strangers:
            lies = {"x-user": "ada", "x-forwarded-for": "10.0.0.9", "forwarded": "for=10.0.0.9", "x-real-ip": "10.0.0.9"}
            assert stranger.get("/api/v1/whoami", headers=lies).status_code == 401
        assert proxy.get("/api/v1/whoami", headers={"x-user": "ada"}).json()["name"] == "ada"
        assert proxy.get("/api/v1/whoami").status_code == 401
        unknown = proxy.get("/api/v1/whoami", headers={"x-user": "nobody-here"})
        assert (unknown.status_code, unknown.json()["code"]) == (403, "unknown-user")
        before = state(opened)
        refused = proxy.post(DECISIONS, json={"value": "yes"}, headers={"x-user": "ada"})
        assert (refused.status_code, refused.json()["code"], state(opened)) == (403, "bad-csrf", before)
        page = proxy.get("/s/repo/inbox", headers={"x-user": "ada"}).text
        csrf = page.partition('name="csrf-token" content="')[2].partition('"')[0]
        other_csrf = Browser(opened.app, opened.forge.users.login_link("ada")).csrf
        assert (
            proxy.post(DECISIONS, json={"value": "yes"}, headers={"x-user": "ada", "x-csrf-token": other_csrf}).status_code == 403
        )
        response = proxy.post(DECISIONS, json={"value": "yes"}, headers={"x-user": "ada", "x-csrf-token": csrf})
        assert (response.status_code, response.json()["by"]) == (200, "ada")
