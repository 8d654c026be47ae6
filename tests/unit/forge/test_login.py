from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from clia.facade.config import ForgeOptions
from support.forge import BASE, OpenForge, open_forge
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response


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


def said(answer: Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("given", ["Bearer clia_nothing", "Bearer", "Bearer ", "bearer x y"])
def test_a_token_that_is_no_good_is_refused_with_a_good_cookie_beside_it(opened: OpenForge, given: str) -> None:
    """Else whoever revoked a token would see it go on working in a browser."""
    browser = opened.browser("ada")
    assert browser.get("/api/v1/whoami").json()["name"] == "ada"
    refused = browser.get("/api/v1/whoami", headers={"authorization": given})
    assert said(refused) == (401, "bad-token")


def test_a_page_of_another_site_logs_nobody_in_without_the_headers_of_new_browsers(opened: OpenForge) -> None:
    """A browser that sends no ``Sec-Fetch-Site`` says by ``Origin`` whose form it is."""
    opened.forge.users.add("ada", "admin")
    key, client = opened.forge.users.login_link("ada"), opened.stranger().client
    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:9999", "http://", ""):
        answer = client.post("/login", data={"key": key}, headers={"origin": origin})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False), origin
    assert client.post("/login", data={"key": key}, headers={"origin": BASE}).status_code == 303, "the link was not used up"
    for headers in ({"origin": BASE.replace("http:", "https:")}, {}):
        assert client.post("/login", data={"key": opened.forge.users.login_link("ada")}, headers=headers).status_code == 303


def test_what_people_told_a_proxy_is_no_token_of_ours(tmp_path: Path) -> None:
    """A proxy that asks for a password passes it on beside its own word; a token beside that word is a token."""
    with open_forge(tmp_path, options=ForgeOptions(proxy_header="x-user", proxies=("10.0.0.9",))) as opened:
        token = bearer(opened, "bob")["authorization"]
        opened.forge.users.add("ada", "viewer")
        proxy = TestClient(opened.app, base_url=BASE, client=("10.0.0.9", 4000))
        other = TestClient(opened.app, base_url=BASE, client=("10.0.0.8", 4000))
        for given in ("Basic eDp5", "Digest username=ada", "Negotiate x"):
            headers = {"x-user": "ada", "authorization": given}
            assert proxy.get("/api/v1/whoami", headers=headers).json()["name"] == "ada"
            assert said(other.get("/api/v1/whoami", headers=headers)) == (401, "bad-token"), "it proves nothing by itself"
            assert said(proxy.get("/api/v1/whoami", headers={"authorization": given})) == (401, "bad-token")
        for given in ("Bearer clia_nothing", "bearer x", "BEARER "):
            assert said(proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": given})) == (401, "bad-token")
        assert proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": token}).json()["name"] == "bob"


def test_the_address_that_the_operator_gave_is_an_origin_of_ours(tmp_path: Path) -> None:
    """A proxy may not pass on the name that browsers ask for."""
    options = ForgeOptions(address="https://forge.example")
    with open_forge(tmp_path, options=options) as opened, TestClient(opened.app, base_url=BASE) as client:
        opened.forge.users.add("eve", "viewer")
        for origin, status in (("https://forge.example", 303), ("https://evil.example", 403)):
            secret = opened.forge.users.login_link("eve")
            answer = client.post("/login", data={"key": secret}, headers={"origin": origin}, follow_redirects=False)
            assert answer.status_code == status
