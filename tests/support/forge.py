"""A forge over real spaces, and simple browsers that are logged in to it."""

from __future__ import annotations

import re
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from starlette.testclient import TestClient

import clia
from clia.facade.config import ForgeOptions
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from httpx2 import Response

    from clia.forge.forge import Forge, Site

BASE = "http://127.0.0.1"
SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
ATTACK = SCRIPT + IMAGE
"""Text with which an agent could try to run a script in a reader's browser."""

AGENTS = "/api/v1/spaces/repo/agents"
"""The address of the agents in the API."""

Fields = dict[str, "str | list[str]"]


class Browser:
    """A user's browser: keeps the cookie, sends the CSRF token with every form, and follows no redirects by default."""

    def __init__(self, app: Any, key: str | None = None) -> None:
        # Not entered as a context, so that the live feed does not run; it has its own tests.
        self.client = TestClient(app, base_url=BASE, follow_redirects=False)
        self.csrf = ""
        if key is not None:
            answer = self.client.post("/login", data={"key": key})
            assert answer.status_code == 303, answer.text
            self.csrf = self._csrf()

    def _csrf(self) -> str:
        token = re.search(r'<meta name="csrf-token" content="([^"]*)">', self.client.get("/login").text)
        assert token is not None
        return token[1]

    def get(self, address: str, **more: Any) -> Response:
        answer: Response = self.client.get(address, **more)
        return answer

    def post(self, address: str, fields: Mapping[str, str | Sequence[str]] | None = None, *, csrf: str | None = None) -> Response:
        """Send a form; ``csrf`` replaces the token of the login."""
        data = {"_csrf": self.csrf if csrf is None else csrf, **(fields or {})}
        values = {key: [value] if isinstance(value, str) else value for key, value in data.items()}
        body = urlencode(values, doseq=True)
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer: Response = self.client.post(address, content=body, headers=headers)
        return answer


class OpenForge(NamedTuple):
    """A forge in this process; closing it closes its spaces."""

    forge: Forge
    app: Any
    stack: ExitStack

    @property
    def space(self) -> clia.Space:
        """The first space."""
        return next(iter(self.forge.sites.values())).space

    @property
    def base(self) -> str:
        """The address of the first space."""
        return f"/s/{next(iter(self.forge.sites))}"

    def browser(self, name: str = "ada", role: str = "admin", display: str = "", email: str = "") -> Browser:
        """The browser of a user, who is added if necessary."""
        if self.forge.users.get(name) is None:
            self.forge.users.add(name, role, display, email)
        return Browser(self.app, self.forge.users.login_link(name))

    def stranger(self) -> Browser:
        """A browser that is not logged in."""
        return Browser(self.app)

    @property
    def site(self) -> Site:
        """The first space as the forge serves it."""
        return next(iter(self.forge.sites.values()))

    def bearer(self, name: str = "ada", role: str = "admin", display: str = "") -> dict[str, str]:
        """The authorization header of a user, who is added if necessary."""
        if self.forge.users.get(name) is None:
            self.forge.users.add(name, role, display)
        return {"authorization": f"Bearer {self.forge.users.make_token(name)[0]}"}

    def post_to_agents(self, path: str, body: Any, **headers: str) -> Response:
        """Send a change to the API below the agents of the space ``repo``; ``_`` in a header's name stands for ``-``."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        answer: Response = self.stranger().client.post(AGENTS + path, json=body, headers=named)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stack.close()


def open_forge(tmp_path: Path, *names: str, options: ForgeOptions | None = None, **more: Any) -> OpenForge:
    """Open a forge with a new space per name (default: ``repo``); ``more`` are settings of the spaces."""
    stack = ExitStack()
    opened = []
    for name in names or ("repo",):
        root = tmp_path.resolve() / name
        opened.append((str(root), clia.init(root, settings=settings(**more))))
    forge = forge_of(opened, options or ForgeOptions())
    stack.callback(forge.close)
    return OpenForge(forge, create_app(forge), stack)


def problem_of(answer: Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


class _Harm(HTMLParser):
    """Finds elements and attributes that a browser would execute or load."""

    def __init__(self) -> None:
        super().__init__()
        self.harmful: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.harmful += [f"{tag} {name}" for name in names if name.startswith("on") or name == "style"]
        inline = tag == "script" and "src" not in names
        foreign = tag == "img" or any((value or "").strip().lower().startswith("javascript:") for value in names.values())
        self.harmful += [tag] if inline or foreign or tag in ("style", "iframe", "object", "embed", "base") else []


def assert_harmless(page: str) -> None:
    """Assert that a page shows ``ATTACK`` as text only and has nothing that a strict content policy forbids."""
    harm = _Harm()
    harm.feed(page)
    assert harm.harmful == []
    assert "<script>alert" not in page
    assert "<img src=x" not in page
