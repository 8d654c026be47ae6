"""Users of real browsers.

Invariant: everything that a page should not do (a script that fails, a violation of its policy, a request to another
host) is recorded, and fails the test when the user leaves, unless the test expects it.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, ViewportSize

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "build" / "axe.min.js"
IMAGES = ROOT / "docs" / "images"
CHROMIUM = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")
"""The usable browsers; the first needs a third of the processor time."""
PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 800}
PATIENCE = 30_000
"""The timeout in milliseconds, long enough for a busy machine."""
_WATCH = """\
addEventListener("securitypolicyviolation", (event) => {
  console.error("policy: " + event.violatedDirective + " " + event.blockedURI);
});
"""
_WORST = """\
async (rules) => {
  const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const results = await axe.run(document, { preload: false, resultTypes: ["violations"], ...only });  // no rule of ours needs more
  const text = (node) => node.target.join(" ") + " (" + node.any.map((check) => check.message).join("; ") + ")";
  return results.violations.filter((rule) => ["serious", "critical"].includes(rule.impact))
    .map((rule) => rule.id + ": " + rule.nodes.slice(0, 4).map(text).join(" | "));
}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser, for the tests of a module."""
    executable = next((path for path in CHROMIUM if Path(path).exists()), None)
    if executable is None:
        pytest.fail("Chromium is required: tools/test_services.sh installs it", pytrace=False)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=executable, args=args)
        try:
            yield browser
        finally:
            browser.close()


class Person:
    """A user with a separate browser: any number of tabs, one login."""

    def __init__(self, browser: Browser, address: str, secret: str | None = None, **more: Any) -> None:
        self.address = address
        self.context: BrowserContext = browser.new_context(base_url=address, **({"viewport": DESK} | more))
        self.context.set_default_timeout(PATIENCE)
        self.context.add_init_script(_WATCH)
        if secret is not None:
            self.context.add_cookies(
                [{"name": "clia_login", "value": secret, "url": address, "httpOnly": True, "sameSite": "Strict"}]
            )
        self.wrong: list[str] = []
        self.streams: list[str] = []  # requests for events, in order
        self._tolerated: list[re.Pattern[str]] = []

    def tab(self, path: str | None = None) -> Page:
        page = self.context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._note(f"a script failed: {error}"))
        page.on("request", self._asked)
        if path is not None:
            visited(page, path)
        return page

    def expects(self, pattern: str) -> None:
        """Accept messages that look like a failure."""
        self._tolerated.append(re.compile(pattern))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"{message.page.url if message.page else ''} says: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.address}/", "data:")):
            self._note(f"a request to another place: {request.url}")
        if request.resource_type == "eventsource":
            self.streams.append(request.url)

    def _note(self, text: str) -> None:
        if not any(pattern.search(text) for pattern in self._tolerated):
            self.wrong.append(text)

    def leave(self) -> None:
        self.context.close()
        self.assert_nothing_wrong()

    def assert_nothing_wrong(self) -> None:
        assert self.wrong == [], self.wrong


def visited(page: Page, path: str, status: int = 200) -> Response:
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == status, f"{path}: {answer.status} {answer.text()[:2000]}"
    return answer


def with_axe(person: Person) -> Person:
    """Add axe-core to a user's pages; scripts injected in this way bypass the policy of the page."""
    if not AXE.is_file():
        pytest.fail("axe-core is needed: tools/assets.py brings it", pytrace=False)
    person.context.add_init_script(path=AXE)
    return person


def assert_accessible(page: Page, *rules: str) -> None:
    """Check that axe-core has no serious findings, by all or some of its rules."""
    worst = page.evaluate(_WORST, list(rules) or None)
    assert worst == [], f"{page.url}: {worst}"


def assert_fits(page: Page) -> None:
    """Check that the page does not scroll sideways."""
    wide = page.evaluate(
        """() => {
          const most = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= most && document.body.scrollWidth <= most) return [];
          return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > most + 1)
            .slice(0, 5).map((each) => each.tagName + "." + each.className + " " + Math.round(each.getBoundingClientRect().right));
        }"""
    )
    assert wide == [], f"{page.url}: {wide}"


def picture(page: Page, name: str) -> None:
    """Take a screenshot for the documentation, if requested."""
    if os.environ.get("CLIA_SCREENSHOTS") == "1":
        IMAGES.mkdir(exist_ok=True)
        page.screenshot(path=IMAGES / f"forge-{name}.png")
