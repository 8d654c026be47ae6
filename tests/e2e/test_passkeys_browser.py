"""Passkeys in a real browser with its virtual authenticator, and the proof of a decision in a fresh clone."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import clia
from clia.trust.passkeys import Passkey, PasskeyPlace
from clia.trust.statements import question_digest, read_proof, read_statement, verify_proof
from clia.users.service import users_of
from support import clia as run_clia
from support import git
from support.browser import Person, chromium, visited
from support.forge_scene import PERSON, people
from support.forge_server import ForgeProcess
from support.spaces import BRIEFING
from support.witnesses import WitnessForTests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, CDPSession, Page

USERS = {"ada": ("admin", "Ada Lovelace", "ada@example.org"), "bob": ("decider", "Bob", "bob@example.org")}
ADA = "Ada Lovelace <ada@example.org>"
QUESTION = {"question": "Go on?", "choices": ["yes", "no"], "cost": 12}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


class PasskeyStage:
    """A space served by a separate process, and people with virtual authenticators."""

    def __init__(self, root: Path, browser: Browser) -> None:
        self._browser = browser
        self._stack = ExitStack()
        self.root = root
        self.space = self._stack.enter_context(clia.init(root, settings=clia.Settings(durable=False, person=PERSON)))
        self.space.spawn("scout", BRIEFING)
        people(root, USERS)
        self.forge = self._stack.enter_context(ForgeProcess(root))
        self.guests: list[Person] = []

    def person(self, name: str | None = "ada", **more: Any) -> Person:
        secret = None if name is None else users_of(self.space).make_session(name).secret
        guest = Person(self._browser, self.forge.pages, secret, **more)
        self.guests.append(guest)
        return guest

    def close(self) -> None:
        for guest in self.guests:
            guest.context.close()
        self._stack.close()
        for guest in self.guests:
            guest.assert_nothing_wrong()


@pytest.fixture
def stage(tmp_path: Path, browser: Browser) -> Iterator[PasskeyStage]:
    opened = PasskeyStage(tmp_path.resolve() / "repo", browser)
    try:
        yield opened
    finally:
        opened.close()


class VirtualAuthenticator:
    """The virtual authenticator of a tab, over the DevTools protocol."""

    def __init__(self, page: Page, *, verifies: bool = True) -> None:
        self._devtools: CDPSession = page.context.new_cdp_session(page)
        self._devtools.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        options |= {"isUserVerified": verifies, "automaticPresenceSimulation": True}
        self.id = self._devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})["authenticatorId"]

    def verifies(self, is_verified: bool) -> None:
        """Whether the person passes the PIN or fingerprint check."""
        self._devtools.send("WebAuthn.setUserVerified", {"authenticatorId": self.id, "isUserVerified": is_verified})

    def credentials(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self._devtools.send("WebAuthn.getCredentials", {"authenticatorId": self.id})["credentials"]
        return listed


def add_passkey(page: Page, name: str = "laptop") -> None:
    visited(page, "/passkeys")
    page.get_by_label(re.compile("^Name")).fill(name)
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.locator("#passkeys")).to_contain_text(name)


def stored_key(stage: PasskeyStage) -> Passkey:
    """The public half of the only passkey, as a stranger would have it from the person."""
    with stage.space.local.store.reading() as view:
        ((_, row),) = view.values.scan("passkey/")
    return Passkey(row["credential"], row["public"], PasskeyPlace(row["rp_id"], tuple(row["origins"])))


def test_a_person_enrols_and_decides_and_the_proof_verifies_in_a_fresh_clone(stage: PasskeyStage, tmp_path: Path) -> None:
    request = stage.space.ask("scout", QUESTION)
    page = stage.person().tab()
    authenticator = VirtualAuthenticator(page)
    add_passkey(page)
    (credential,) = authenticator.credentials()
    assert credential["rpId"] == stage.forge.pages.removeprefix("http://").partition(":")[0]
    visited(page, f"/s/repo/inbox/scout/{request.id}")
    page.get_by_label(re.compile("^Why")).fill("It is time.")
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page).to_have_url(re.compile("decided="))
    expect(page.locator("#decided .proof")).to_have_text("passkey")
    commit = stage.space.show("scout")
    for path in (f"commits/{commit.cid}", f"inbox/scout/{request.id}", f"sessions/scout/{request.session}", "agents/scout"):
        visited(page, f"/s/repo/{path}")
        expect(page.locator(".proof-passkey").first).to_be_visible()
    root, key = stage.space.trust.keys().root, stored_key(stage).enrolled(ADA)
    # A stranger: only the branch, in another place, and no store.
    clone = tmp_path / "elsewhere" / "clone"
    clone.parent.mkdir()
    git("clone", "--quiet", "--branch", "agents/scout", str(stage.root), str(clone), cwd=tmp_path)
    assert not (clone / ".git" / "clia").exists()

    def trailer(name: str) -> str:
        return git("log", "-1", f"--format=%(trailers:key={name},valueonly)", cwd=clone).strip()

    statement = read_statement(trailer("Clia-Statement"))
    assert verify_proof(statement, read_proof(trailer("Clia-Proof")), key).strength == "passkey"
    head, parent, tree = git("log", "-1", "--format=%H %P %T", cwd=clone).split()
    assert (head, statement.parent, statement.tree) == (commit.cid, parent, tree)
    assert (statement.person, statement.about, statement.value, statement.reason) == (ADA, "scout", "yes", "It is time.")
    assert statement.question == question_digest(QUESTION)
    assert statement.request == trailer("Clia-Request")
    assert trailer("Clia-By") == ADA
    # With all refs, everything is checked: who was enrolled by whom, and that nothing is missing.
    mirror = tmp_path / "elsewhere" / "mirror.git"
    stage.space.witnesses.checkpoint()
    git("clone", "--quiet", "--mirror", str(stage.root), str(mirror), cwd=tmp_path)
    witness = WitnessForTests.created(tmp_path / "witness")
    witness.cosign(mirror)
    checked = run_clia("verify", "--root", str(root), "--strict", "--witness", witness.key.text, "--json", "--path", str(mirror))
    assert checked.code == 0, checked
    report = json.loads(checked.out)
    assert (report["findings"], report["strengths"]) == ([], {"passkey": 1})
    other = run_clia("verify", "--root", "SHA256:other", "--json", "--path", str(mirror))
    assert other.code == 1


def test_an_answer_without_verification_or_without_the_key_is_not_sent(stage: PasskeyStage) -> None:
    """The form stays as it is, with a message. The box answers without the passkey, which the policy refuses, as the page warns."""
    request = stage.space.ask("scout", QUESTION)
    page = stage.person().tab()
    authenticator = VirtualAuthenticator(page)
    add_passkey(page)
    authenticator.verifies(False)
    visited(page, f"/s/repo/inbox/scout/{request.id}")
    page.get_by_label(re.compile("^Why")).fill("Hm.")
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was sent")
    assert stage.space.pending() == [request]
    expect(page.get_by_label(re.compile("^Why"))).to_have_value("Hm.")
    expect(page.locator(".weak")).to_contain_text("an answer without your passkey is refused")
    page.get_by_label("answer without my passkey").check()
    stage.guests[0].expects("status of 403")
    page.get_by_role("button", name="no", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("the policy asks for ssh")
    assert stage.space.pending() == [request]
    authenticator.verifies(True)
    page.get_by_role("button", name="no", exact=True).click()
    expect(page.locator("#decided .proof")).to_have_text("passkey")
    assert stage.space.show("scout").value == '"no"'


def test_an_owner_enrols_the_passkey_of_a_decider(stage: PasskeyStage) -> None:
    request = stage.space.ask("scout", QUESTION)
    ada, bob = stage.person().tab(), stage.person("bob").tab()
    VirtualAuthenticator(ada)
    VirtualAuthenticator(bob)
    add_passkey(ada, "laptop")
    add_passkey(bob, "phone")
    expect(bob.locator("#enrolments")).to_contain_text("not enrolled: ask an owner")
    visited(ada, "/passkeys")
    ada.get_by_role("button", name="Enrol phone of bob in repo").click()
    expect(ada.get_by_role("button", name="Enrol phone")).to_have_count(0)
    visited(bob, f"/s/repo/inbox/scout/{request.id}")
    bob.get_by_role("button", name="yes", exact=True).click()
    expect(bob.locator("#decided .proof")).to_have_text("passkey")
    assert stage.space.show("scout").by == "Bob <bob@example.org>"
    assert {finding.code for finding in stage.space.trust.verify(strict=True).findings} == {"no-cosigned-checkpoint"}


def test_a_commit_of_the_agent_between_signing_and_sending_is_noticed(stage: PasskeyStage) -> None:
    request = stage.space.ask("scout", QUESTION)
    page = stage.person().tab()
    VirtualAuthenticator(page)
    add_passkey(page)
    visited(page, f"/s/repo/inbox/scout/{request.id}")
    answers = 0

    def moved(route: Any) -> None:
        nonlocal answers
        answers += 1
        if answers == 1:
            stage.space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        route.continue_()

    page.route(f"**/inbox/scout/{request.id}", lambda route: moved(route) if route.request.method == "POST" else route.continue_())
    stage.guests[0].expects("status of 409")
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("has made a commit since")
    assert stage.space.pending() == [request]
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page.locator("#decided .proof")).to_have_text("passkey")


def test_a_passkey_logs_in_and_a_second_one_needs_the_first(stage: PasskeyStage) -> None:
    person = stage.person()
    page = person.tab()
    VirtualAuthenticator(page)
    add_passkey(page, "laptop")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile("/login$"))
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("banner")).to_contain_text("Ada Lovelace")
    (cookie,) = [cookie for cookie in person.context.cookies() if cookie["name"] == "clia_login"]
    assert (cookie["domain"], cookie["httpOnly"], cookie["sameSite"]) == (stage.forge.pages[7:].partition(":")[0], True, "Strict")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def test_the_login_cookie_is_not_sent_to_other_names_on_this_machine(stage: PasskeyStage) -> None:
    """What a browser sends to another local server: nothing of the forge."""
    person = stage.person()
    page = person.tab("/s/repo/")
    headers: list[dict[str, str]] = []
    person.expects("another place|ERR_|Failed to load")
    for host in ("127.0.0.1", "localhost", "clia-other.localhost"):
        with page.context.expect_event("request", lambda request, host=host: host in request.url) as asked:
            page.goto(f"http://{host}:{stage.forge.port}/healthz", wait_until="commit")
        headers.append(asked.value.all_headers())
    assert [fields.get("cookie") for fields in headers] == [None, None, None]


def test_the_page_of_passkeys_works_without_scripts_but_for_adding(stage: PasskeyStage) -> None:
    with_scripts = stage.person().tab()
    VirtualAuthenticator(with_scripts)
    add_passkey(with_scripts, "laptop")
    page = stage.person(java_script_enabled=False).tab("/passkeys")
    expect(page.locator("#passkeys")).to_contain_text("laptop")
    expect(page.get_by_role("button", name="Add a passkey")).to_be_hidden()
    expect(page.get_by_role("button", name="Remove laptop")).to_be_disabled()
    request = stage.space.ask("scout", QUESTION)
    visited(page, f"/s/repo/inbox/scout/{request.id}")
    expect(page.locator(".weak")).to_contain_text("refused")
    expect(page.get_by_label("answer without my passkey")).to_be_hidden()


def test_without_passkeys_and_scripts_a_decision_is_vouched_for(stage: PasskeyStage) -> None:
    request = stage.space.ask("scout", QUESTION)
    page = stage.person("bob", java_script_enabled=False).tab(f"/s/repo/inbox/scout/{request.id}")
    page.get_by_role("button", name="yes", exact=True).click()
    expect(page.locator("#decided .proof")).to_have_text("attested")
