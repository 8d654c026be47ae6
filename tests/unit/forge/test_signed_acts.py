"""Acts that a person signs with a passkey in the forge: adoptions and grants, and decisions of several people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.facade.config import ForgeOptions
from clia.trust.statements import read_statement
from support.forge import OpenForge, assert_harmless, open_forge
from support.forge_people import ORIGIN, Person
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response

    import clia

CHANGE = "/s/repo/behaviours/polite/change"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path, options=ForgeOptions(address=ORIGIN)) as opened:
        space = opened.space
        space.spawn("scout", BRIEFING)
        space.behaviours.propose("polite", "Answer politely.", "prompt", agent="scout")
        space.trust.set_policy({"rules": [{"verbs": ["decide"], "kinds": ["deploy"], "threshold": 2}]})
        yield opened


@pytest.fixture
def ada(forge: OpenForge) -> Person:
    """The owner; with her passkey, people have keys."""
    person = Person(forge)
    assert person.add().status_code == 303
    return person


@pytest.fixture
def bob(forge: OpenForge, ada: Person) -> Person:
    person = Person(forge, "bob", "decider", "Bob")
    person.add()
    ada.enrol(person)
    return person


def adoption(space: clia.Space) -> dict[str, str]:
    version = next(version.cid for behaviour in space.behaviours() for version in behaviour.versions)
    return {"action": "adopt", "version": version, "expect": "none", "why": "for people"}


def signed(person: Person, path: str, fields: dict[str, str]) -> Response:
    """Send a form as the script does: ask what to sign, sign it, send it."""
    options = person.browser.post(path, fields | {"_preview": "1"}).json()
    statement = read_statement(options["statement"])
    assertion = person.key.answer(statement.challenge())
    return person.browser.post(path, fields | {"_statement": options["statement"], "_assertion": assertion})


def test_an_adoption_is_signed_with_a_passkey(forge: OpenForge, ada: Person) -> None:
    space, fields = forge.space, adoption(forge.space)
    page = ada.browser.get("/s/repo/behaviours/polite").text
    assert 'data-passkey="act"' in page
    assert "/static/passkeys.js" in page
    assert_harmless(page)
    assert ada.browser.post(CHANGE, fields).status_code == 403, "without the passkey"
    assert ada.browser.post(CHANGE, fields | {"_preview": "1"}).json()["statement"]
    assert signed(ada, CHANGE, fields).status_code == 303
    report = space.trust.verify()
    assert (report.findings, report.acts["passkey"]) == ((), 1)


def test_a_signed_adoption_is_not_replayed_to_another_act(forge: OpenForge, ada: Person) -> None:
    fields = adoption(forge.space)
    options = ada.browser.post(CHANGE, fields | {"_preview": "1"}).json()
    assertion = ada.key.answer(read_statement(options["statement"]).challenge())
    other = {**fields, "action": "trial", "_statement": options["statement"], "_assertion": assertion}
    assert ada.browser.post(CHANGE, other).status_code == 409
    assert forge.space.trust.verify().acts == {}


def test_an_act_that_needs_no_statement_has_nothing_to_sign(forge: OpenForge, ada: Person) -> None:
    path = "/s/repo/agents/scout/sub-agents"
    fields = {"name": "helper", "title": "Help", "_preview": "1"}
    reply = ada.browser.post(path, fields)
    assert (reply.status_code, reply.json()) == (200, {"statement": None})


def test_two_people_decide_in_the_forge(forge: OpenForge, ada: Person, bob: Person) -> None:
    request = forge.space.ask("scout", {"question": "Deploy?", "choices": ["yes", "no"], "kind": "deploy"})
    assert "This needs 2 people" in ada.browser.get(f"/s/repo/inbox/scout/{request.id}").text
    first = ada.stated(request).json()["statement"]
    assert ada.signed(request, first).status_code == 303
    page = bob.browser.get("/s/repo/inbox").text
    assert "1 of 2" in page
    assert "Ada Lovelace" in page
    assert_harmless(page)
    assert forge.space.pending() == [request]
    own = bob.stated(request, rationale="").json()["statement"]
    assert own == first, "Bob signs what Ada stated"
    assert bob.signed(request, own).status_code == 303
    commit = forge.space.show("scout")
    assert (commit.value, len(commit.proofs), commit.by) == ('"yes"', 2, "Bob <bob@example.org>")
    report = forge.space.trust.verify(strict=True)
    assert ([finding for finding in report.findings if finding.cid == commit.cid], report.strengths) == ([], {"passkey": 1})
    assert "passkey" in ada.browser.get(f"/s/repo/commits/{commit.cid}").text


def test_a_landing_is_signed_with_a_passkey(forge: OpenForge, ada: Person) -> None:
    space = forge.space
    space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    assert 'data-passkey="act"' in ada.browser.get("/s/repo/changes/scout?onto=main").text
    fields = {"onto": "main", "head": space.head("scout"), "message": "Land it"}
    assert signed(ada, "/s/repo/changes/scout/landings", fields).status_code == 303
    report = space.trust.verify()
    assert (report.findings, report.acts["passkey"]) == ((), 1)
