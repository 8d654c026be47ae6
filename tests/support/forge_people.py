"""Users of a forge with a browser and an authenticator."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from clia.trust.statements import question_digest, read_statement
from support.authenticator import SoftAuthenticator
from support.forge import Browser, OpenForge

if TYPE_CHECKING:
    from httpx2 import Response

    import clia

HOST = "clia-0123456789.localhost"
ORIGIN = f"http://{HOST}:8337"


class Person:
    """A user with a browser and an authenticator."""

    def __init__(self, forge: OpenForge, name: str = "ada", role: str = "admin", display: str = "Ada Lovelace") -> None:
        self.forge, self.name = forge, name
        if forge.forge.users.get(name) is None:
            forge.forge.users.add(name, role, display, f"{name}@example.org")
        self.key = SoftAuthenticator(ORIGIN, HOST)
        client = TestClient(forge.app, base_url=ORIGIN, follow_redirects=False)
        assert client.post("/login", data={"key": forge.forge.users.login_link(name)}).status_code == 303
        self.browser = Browser.__new__(Browser)
        self.browser.client = client
        self.browser.csrf = csrf_in(client)

    def options(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.browser.post("/passkeys/options", {"name": ""}).json()
        return answer

    def add(self, key: SoftAuthenticator | None = None, name: str = "blue key", confirm: bool = True, **wrong: Any) -> Response:
        """Add a passkey; the first one of the person confirms, if there is one."""
        options = self.options()
        fields = {"name": name, "_response": (key or self.key).created(options["publicKey"], **wrong)}
        if options["confirm"] and confirm:
            fields["_confirm"] = self.key.answer(options["confirm"]["challenge"])
        return self.browser.post("/passkeys", fields)

    def enrolment(self, other: Person) -> str:
        """The address at which the key of a person is enrolled."""
        return f"/passkeys/{keys_of(self.forge, other.name)[0][0][8:20]}/enrol"

    def enrol(self, other: Person) -> None:
        """Enrol the key of a person, as an owner."""
        path, fields = self.enrolment(other), {"space": "repo", "user": other.name}
        statement = self.browser.post(f"{path}/options", fields).json()["statement"]
        fields |= {"_statement": statement, "_assertion": self.key.answer(read_statement(statement).challenge())}
        assert self.browser.post(path, fields).status_code == 303

    def stated_response(self, request: clia.Request) -> Response:
        fields = {"v": '"yes"', "rationale": "", "_asked": question_digest(request.payload)}
        return self.browser.post(f"/s/repo/inbox/scout/{request.id}/statement", fields)

    def stated(self, request: clia.Request, value: str = "yes", **fields: str) -> Response:
        page = self.browser.get(f"/s/repo/inbox/scout/{request.id}").text
        shown = re.search(r'name="_asked" value="(\w+)"', page)
        assert shown is not None
        posted = {"v": json.dumps(value), "rationale": "It is time.", "_asked": shown[1], **fields}
        return self.browser.post(f"/s/repo/inbox/scout/{request.id}/statement", posted)

    def signed(self, request: clia.Request, statement: str, **wrong: Any) -> Response:
        """Send the answer in a statement, signed."""
        challenge = wrong.pop("over", None) or read_statement(statement).challenge()
        fields = {"_statement": statement, "_assertion": self.key.answer(challenge, **wrong)}
        return self.browser.post(f"/s/repo/inbox/scout/{request.id}", fields)


def csrf_in(client: TestClient) -> str:
    match = re.search(r'<meta name="csrf-token" content="([^"]*)">', client.get("/login").text)
    assert match is not None
    return match[1]


def keys_of(forge: OpenForge, name: str = "ada") -> list[tuple[str, Any]]:
    with forge.forge.home.reading() as view:
        return [(key, row) for key, row in view.values.scan("passkey/") if row["user"] == name]
