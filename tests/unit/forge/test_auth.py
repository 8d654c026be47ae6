"""Tokens, login forms, proxies and origins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from clia.facade.config import ForgeOptions
from support.forge import BASE, OpenForge, open_forge, problem_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("authorization", ["Bearer clia_nothing", "Bearer", "Bearer ", "bearer x y"])
def test_an_invalid_token_is_refused_even_with_a_valid_cookie(forge: OpenForge, authorization: str) -> None:
    """Otherwise a revoked token would seem to work in a browser."""
    browser = forge.browser("ada")
    assert browser.get("/api/v1/whoami").json()["name"] == "ada"
    answer = browser.get("/api/v1/whoami", headers={"authorization": authorization})
    assert problem_of(answer) == (401, "bad-token")


def test_a_form_of_another_site_cannot_log_in_without_fetch_metadata_headers(forge: OpenForge) -> None:
    """A browser without ``Sec-Fetch-Site`` names the form's site in ``Origin``."""
    forge.forge.users.add("ada", "admin")
    key, client = forge.forge.users.login_link("ada"), forge.stranger().client
    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:9999", "http://", ""):
        answer = client.post("/login", data={"key": key}, headers={"origin": origin})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False), origin
    assert client.post("/login", data={"key": key}, headers={"origin": BASE}).status_code == 303, "the link was not used up"
    for headers in ({"origin": BASE.replace("http:", "https:")}, {}):
        assert client.post("/login", data={"key": forge.forge.users.login_link("ada")}, headers=headers).status_code == 303


def test_credentials_for_a_proxy_are_not_taken_for_a_token(tmp_path: Path) -> None:
    """A proxy with passwords forwards them with its own header; a bearer token beside that header counts."""
    with open_forge(tmp_path, options=ForgeOptions(proxy_header="x-user", proxies=("10.0.0.9",))) as forge:
        forge.forge.proxy_secret = "the proxy's own secret"  # noqa: S105  # of the test
        token = forge.bearer("bob")["authorization"]
        forge.forge.users.add("ada", "viewer")
        proxy = TestClient(forge.app, base_url=BASE, client=("10.0.0.9", 4000))
        other = TestClient(forge.app, base_url=BASE, client=("10.0.0.8", 4000))
        for client in (proxy, other):
            client.headers["x-clia-proxy-secret"] = "the proxy's own secret"
        for credentials in ("Basic eDp5", "Digest username=ada", "Negotiate x"):
            headers = {"x-user": "ada", "authorization": credentials}
            assert proxy.get("/api/v1/whoami", headers=headers).json()["name"] == "ada"
            assert problem_of(other.get("/api/v1/whoami", headers=headers)) == (401, "bad-token"), "it proves nothing alone"
            assert problem_of(proxy.get("/api/v1/whoami", headers={"authorization": credentials})) == (401, "bad-token")
        for credentials in ("Bearer clia_nothing", "bearer x", "BEARER "):
            assert problem_of(proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": credentials})) == (
                401,
                "bad-token",
            )
        assert proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": token}).json()["name"] == "bob"


def test_the_configured_address_is_an_accepted_origin(tmp_path: Path) -> None:
    """A proxy forwards the host name that browsers use, but speaks plain HTTP."""
    options = ForgeOptions(address="https://forge.example")
    with open_forge(tmp_path, options=options) as forge, TestClient(forge.app, base_url="http://forge.example") as client:
        forge.forge.users.add("eve", "viewer")
        for origin, status in (("https://forge.example", 303), ("https://evil.example", 403)):
            secret = forge.forge.users.login_link("eve")
            answer = client.post("/login", data={"key": secret}, headers={"origin": origin}, follow_redirects=False)
            assert answer.status_code == status
