"""A forge over real spaces, and browsers without a screen that are logged in to it."""

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

    from clia.forge.forge import Forge

BASE = "http://127.0.0.1"
SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
ATTACK = SCRIPT + IMAGE
"""What an agent would write to run something in the browser of whoever looks."""

Fields = dict[str, "str | list[str]"]


class Browser:
    """Somebody's browser: keeps the cookie, sends the CSRF token with every form, follows no redirect unless told."""

    def __init__(self, app: Any, key: str | None = None) -> None:
        # Not entered as a context: nothing of the live feed runs, which is tried by itself.
        self.client = TestClient(app, base_url=BASE, follow_redirects=False)
        self.csrf = ""
        if key is not None:
            answer = self.client.post("/login", data={"key": key})
            assert answer.status_code == 303, answer.text
            self.csrf = self._csrf()

    def _csrf(self) -> str:
        found = re.search(r'<meta name="csrf-token" content="([^"]*)">', self.client.get("/login").text)
        assert found is not None
        return found[1]

    def get(self, address: str, **more: Any) -> Response:
        answer: Response = self.client.get(address, **more)
        return answer

    def post(self, address: str, fields: Mapping[str, str | Sequence[str]] | None = None, *, csrf: str | None = None) -> Response:
        """Sends a form; ``csrf``: another token than that of the login."""
        data = {"_csrf": self.csrf if csrf is None else csrf, **(fields or {})}
        body = urlencode([(key, each) for key, value in data.items() for each in ([value] if isinstance(value, str) else value)])
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer: Response = self.client.post(address, content=body, headers=headers)
        return answer


class OpenForge(NamedTuple):
    """A forge that is served to browsers here; closes with what it opened."""

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
        """The browser of a user, who is made where there is none of that name."""
        if self.forge.users.get(name) is None:
            self.forge.users.add(name, role, display, email)
        return Browser(self.app, self.forge.users.login_link(name))

    def stranger(self) -> Browser:
        return Browser(self.app)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stack.close()


def open_forge(tmp_path: Path, *names: str, options: ForgeOptions | None = None, **more: Any) -> OpenForge:
    """A forge over new spaces, one for each name (default: ``repo``); ``more``: of their settings."""
    stack = ExitStack()
    opened = []
    for name in names or ("repo",):
        root = tmp_path.resolve() / name
        opened.append((str(root), clia.init(root, settings=settings(**more))))
    forge = forge_of(opened, options or ForgeOptions())
    stack.callback(forge.close)
    return OpenForge(forge, create_app(forge), stack)


class _Harm(HTMLParser):
    """Finds what could act in a page as a browser would read it, wherever the text came from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.found += [f"{tag} {name}" for name in names if name.startswith("on") or name == "style"]
        inline = tag == "script" and "src" not in names
        foreign = tag == "img" or any((each or "").strip().lower().startswith("javascript:") for each in names.values())
        self.found += [tag] if inline or foreign or tag in ("style", "iframe", "object", "embed", "base") else []


def assert_harmless(page: str) -> None:
    """A page that shows ``ATTACK`` as text only, and holds nothing that a strict policy forbids."""
    harm = _Harm()
    harm.feed(page)
    assert harm.found == []
    assert "<script>alert" not in page
    assert "<img src=x" not in page
