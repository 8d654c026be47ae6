"""Passkeys in the forge: adding, removing, logging in, and answers that are signed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from clia.errors import BadSignature
from clia.facade.config import ForgeOptions
from clia.forge.proofs import place_of
from clia.trust.passkeys import Passkey, PasskeyPlace
from clia.trust.statements import read_proof, read_statement, verify_proof
from support.authenticator import PRESENT, VERIFIED, SoftAuthenticator, b64url
from support.forge import OpenForge, assert_harmless, open_forge
from support.forge_people import HOST, ORIGIN, Person, keys_of
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from httpx2 import Response

    import clia

ADA = "Ada Lovelace <ada@example.org>"
QUESTION = {"question": "Go on?", "choices": ["yes", "no"]}


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path, options=ForgeOptions(address=ORIGIN)) as opened:
        opened.space.spawn("scout", BRIEFING)
        yield opened


@pytest.fixture
def ada(forge: OpenForge) -> Person:
    person = Person(forge)
    assert person.add().status_code == 303
    return person


@pytest.fixture
def asked(forge: OpenForge) -> clia.Request:
    return forge.space.ask("scout", QUESTION)


def outsider(forge: OpenForge) -> TestClient:
    return TestClient(forge.app, base_url=ORIGIN, follow_redirects=False)


# Where


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (ORIGIN, PasskeyPlace(HOST, (ORIGIN,))),
        ("https://forge.example.org", PasskeyPlace("forge.example.org", ("https://forge.example.org",))),
        ("https://forge.example.org:443", PasskeyPlace("forge.example.org", ("https://forge.example.org",))),
        ("https://forge.example.org:8443", PasskeyPlace("forge.example.org", ("https://forge.example.org:8443",))),
        ("http://localhost:80", PasskeyPlace("localhost", ("http://localhost",))),
        ("http://forge.example.org", None),
        ("http://127.0.0.1:8337", None),
        ("https://[::1]", None),
        ("", None),
    ],
)
def test_passkeys_belong_to_a_host_name(tmp_path: Path, address: str, place: PasskeyPlace | None) -> None:
    with open_forge(tmp_path, options=ForgeOptions(address=address)) as opened:
        assert place_of(opened.forge) == place


# Adding


def test_a_person_adds_a_passkey_and_sees_it(ada: Person) -> None:
    page = ada.browser.get("/passkeys").text
    assert_harmless(page)
    assert "blue key" in page
    assert HOST in page
    (row,) = [row for _, row in keys_of(ada.forge)]
    assert (row["owner"], row["public"], row["rp_id"], row["origins"]) == (ADA, ada.key.public, HOST, [ORIGIN])
    assert "private" not in json.dumps(row)


def test_a_further_passkey_needs_the_confirmation_of_one_that_is_there(ada: Person) -> None:
    """Otherwise a stolen login would be as strong as a passkey."""
    other = SoftAuthenticator(ORIGIN, HOST)
    refused = ada.add(other, confirm=False)
    assert refused.status_code == 403
    assert "confirm with a passkey" in refused.text
    options = ada.options()
    for confirmation in (
        other.answer(options["confirm"]["challenge"]),
        ada.key.answer(b"\0" * 40),
        ada.key.answer(options["publicKey"]["challenge"]),
        "{}",
        "x",
    ):
        fields = {"name": "x", "_response": other.created(options["publicKey"]), "_confirm": confirmation}
        assert ada.browser.post("/passkeys", fields).status_code == 403
    assert len(keys_of(ada.forge)) == 1
    assert ada.add(other, name="red key").status_code == 303
    assert len(keys_of(ada.forge)) == 2
    assert options["confirm"]["allowCredentials"] == [{"type": "public-key", "id": b64url(ada.key.credential)}]


WRONG: Mapping[str, dict[str, Any]] = {
    "another origin": {"origin": "http://evil.example"},
    "another port": {"origin": f"http://{HOST}:9999"},
    "another scheme": {"origin": f"https://{HOST}:8337"},
    "a host below": {"origin": f"http://x.{HOST}:8337"},
    "another host name": {"rp_id": "localhost"},
    "no verification of the person": {"flags": PRESENT},
    "nobody present": {"flags": VERIFIED},
    "another challenge": {"challenge": b"\1" * 40},
    "a frame of another site": {"crossOrigin": True},
    "a top origin": {"client": {"topOrigin": "https://evil.example"}},
    "another type": {"type": "webauthn.foo"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_passkey_is_not_added_with(forge: OpenForge, name: str) -> None:
    person = Person(forge)
    assert person.add(**WRONG[name]).status_code == 403
    assert keys_of(forge) == []


def test_a_challenge_is_for_one_person_and_one_purpose_and_expires(
    forge: OpenForge, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Person(forge, "bob", "decider", "Bob")
    hers = ada.options()
    bobs = {"name": "x", "_response": bob.key.created(hers["publicKey"])}
    assert bob.browser.post("/passkeys", bobs).status_code == 403, "a challenge of another person"
    login = ada.browser.get("/login/passkey").json()["publicKey"]
    assert bob.browser.post("/passkeys", {"name": "x", "_response": bob.key.created(login)}).status_code == 403
    options = bob.options()
    later = forge.forge.clock() + timedelta(seconds=301)
    monkeypatch.setattr(forge.forge, "clock", lambda: later)
    late = {"name": "x", "_response": bob.key.created(options["publicKey"])}
    assert bob.browser.post("/passkeys", late).status_code == 403
    assert keys_of(forge, "bob") == []


def test_forms_of_other_sites_and_tokens_add_and_remove_nothing(forge: OpenForge, ada: Person) -> None:
    client = ada.browser.client
    for path in ("/passkeys", "/passkeys/options", f"/passkeys/{keys_of(forge)[0][0][8:20]}/remove"):
        assert client.post(path, data={"_csrf": "wrong"}).status_code == 403
        answer = outsider(forge).post(path, data={"name": ""}, headers=forge.bearer("ada"))
        assert answer.status_code in (403, 422), "a token is not a person"
        assert outsider(forge).post(path, data={"name": ""}).status_code in (401, 303, 403)
    assert len(keys_of(forge)) == 1


def test_a_passkey_is_one_persons(forge: OpenForge, ada: Person) -> None:
    bob = Person(forge, "bob", "decider", "Bob")
    assert bob.add(ada.key).status_code == 409


# Removing


def test_a_passkey_is_removed_but_not_the_last_one(forge: OpenForge, ada: Person) -> None:
    ada.add(SoftAuthenticator(ORIGIN, HOST), name="red key")
    first, second = (key[8:20] for key, _ in keys_of(forge))
    bob = Person(forge, "bob", "admin", "Bob")
    assert bob.browser.post(f"/passkeys/{first}/remove").status_code == 404, "each person their own"
    assert ada.browser.post(f"/passkeys/{first}/remove").status_code == 303
    refused = ada.browser.post(f"/passkeys/{second}/remove")
    assert refused.status_code == 403
    assert "clia user passkey ada --remove" in refused.text
    assert len(keys_of(forge)) == 1
    forge.forge.users.remove("ada", force=True)
    assert keys_of(forge) == [], "a user's passkeys go with the user"


# Logging in


def login(forge: OpenForge, key: SoftAuthenticator, browser: TestClient | None = None, **wrong: Any) -> Response:
    browser = browser or outsider(forge)
    options = browser.get("/login/passkey").json()["publicKey"]
    fields = {"_response": key.answer(options["challenge"], **wrong), "next": "/s/repo/inbox"}
    answer: Response = browser.post("/login/passkey", data=fields)
    return answer


def test_a_passkey_logs_in(forge: OpenForge, ada: Person) -> None:
    client = outsider(forge)
    answer = login(forge, ada.key, client)
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/repo/inbox")
    assert client.get("/api/v1/whoami").json()["name"] == "ada"


@pytest.mark.parametrize("name", [name for name in WRONG if name != "another challenge"])
def test_a_passkey_does_not_log_in_with(forge: OpenForge, ada: Person, name: str) -> None:
    answer = login(forge, ada.key, **WRONG[name])
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_an_answer_logs_in_once_and_only_with_our_challenge(forge: OpenForge, ada: Person) -> None:
    client = outsider(forge)
    options = client.get("/login/passkey").json()["publicKey"]
    response = ada.key.answer(options["challenge"])
    assert client.post("/login/passkey", data={"_response": response}).status_code == 303
    again = outsider(forge).post("/login/passkey", data={"_response": response})
    assert (again.status_code, "set-cookie" in again.headers) == (403, False)
    ada.key.count = 0  # an authenticator without a counter
    row_key, row = keys_of(forge)[0]
    with forge.forge.home.writing() as transaction:
        transaction.values.put(row_key, {**row, "count": 0})
    options = client.get("/login/passkey").json()["publicKey"]
    response = ada.key.answer(options["challenge"])
    assert client.post("/login/passkey", data={"_response": response}).status_code == 303
    assert outsider(forge).post("/login/passkey", data={"_response": response}).status_code == 403, "also without a counter"
    for challenge in (b"\0" * 40, b"", ada.options()["confirm"]["challenge"]):
        answer = outsider(forge).post("/login/passkey", data={"_response": ada.key.answer(challenge)})
        assert answer.status_code == 403


def test_a_copied_key_is_found_by_its_counter(forge: OpenForge, ada: Person) -> None:
    assert login(forge, ada.key, count=40).status_code == 303
    for count in (40, 39, 0):
        assert login(forge, ada.key, count=count).status_code == 403
    assert login(forge, ada.key, count=41).status_code == 303


def test_a_removed_or_unknown_key_does_not_log_in(forge: OpenForge, ada: Person) -> None:
    unknown = SoftAuthenticator(ORIGIN, HOST)
    assert login(forge, unknown).status_code == 403
    unknown.credential = ada.key.credential
    assert login(forge, unknown).status_code == 403, "the id of a key, signed with another"
    forge.forge.users.remove("ada", force=True)
    assert login(forge, ada.key).status_code == 403


MALFORMED = ("", "x", "[]", "{}", "null", '{"id": 1, "response": 2}', '{"response": {"clientDataJSON": "e30"}}', "{" * 70_000)


@pytest.mark.parametrize("response", MALFORMED)
def test_malformed_responses_are_refused(forge: OpenForge, response: str) -> None:
    assert outsider(forge).post("/login/passkey", data={"_response": response}).status_code == 403


def test_a_login_from_another_site_is_refused(forge: OpenForge, ada: Person) -> None:
    client = outsider(forge)
    response = ada.key.answer(client.get("/login/passkey").json()["publicKey"]["challenge"])
    answer = client.post("/login/passkey", data={"_response": response}, headers={"origin": "https://evil.example"})
    assert answer.status_code == 403


# Answers


def test_an_answer_is_signed_and_verifies_from_the_commit_alone(ada: Person, asked: clia.Request) -> None:
    reply = ada.stated(asked).json()
    statement = read_statement(reply["statement"])
    assert (statement.person, statement.value, statement.reason) == (ADA, "yes", "It is time.")
    assert reply["publicKey"]["challenge"] == b64url(statement.challenge())
    assert reply["publicKey"]["userVerification"] == "required"
    assert ada.signed(asked, reply["statement"]).status_code == 303
    commit = ada.forge.space.show("scout")
    assert (commit.by, commit.value, commit.channel) == (ADA, '"yes"', "forge")
    key = Passkey(b64url(ada.key.credential), ada.key.public, PasskeyPlace(HOST, (ORIGIN,))).enrolled(ADA)
    assert commit.statement == reply["statement"]
    assert verify_proof(statement, read_proof(commit.proofs[0]), key).strength == "passkey"
    for path in (f"commits/{commit.cid}", f"inbox/scout/{asked.id}", "inbox", f"sessions/scout/{asked.session}"):
        page = ada.browser.get(f"/s/repo/{path}").text
        assert "proof-passkey" in page, path
        assert_harmless(page)


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_is_not_recorded_with(ada: Person, asked: clia.Request, name: str) -> None:
    statement = ada.stated(asked).json()["statement"]
    wrong = dict(WRONG[name])
    refused = ada.signed(asked, statement, **wrong)
    assert refused.status_code == 403, refused.text
    assert ada.forge.space.pending() == [asked]


def test_an_answer_of_another_key_person_or_statement_is_not_recorded(ada: Person, asked: clia.Request) -> None:
    statement = ada.stated(asked).json()["statement"]
    bob = Person(ada.forge, "bob", "decider", "Bob")
    bob.add()
    ada.enrol(bob)
    assert bob.signed(asked, statement).status_code == 403, "Bob's key under Ada's statement"
    own = bob.stated(asked).json()["statement"]
    assert ada.signed(asked, own).status_code == 403, "Ada's key under Bob's statement"
    changed = json.dumps({**json.loads(statement), "value": "no"}, separators=(",", ":"), sort_keys=True)
    over = read_statement(statement).challenge()
    assert ada.signed(asked, changed, over=over).status_code == 403, "another answer than was signed"
    assert ada.signed(asked, json.dumps(json.loads(statement), indent=1), over=b"x" * 32).status_code == 403, "not canonical"
    assert ada.forge.space.pending() == [asked]


def test_a_signed_answer_is_not_replayed_to_another_request_agent_space_or_commit(ada: Person, asked: clia.Request) -> None:
    space = ada.forge.space
    other = space.ask("scout", QUESTION)
    statement = ada.stated(asked).json()["statement"]
    assert ada.signed(other, statement).status_code == 409, "another request"
    for field, value in (("about", "smith"), ("space", "x"), ("parent", "0" * 40), ("question", "0" * 64)):
        changed = read_statement(statement)._replace(**{field: value})  # type: ignore[arg-type]  # texts
        refused = ada.signed(asked, changed.data().decode())
        assert refused.status_code == 409, field
    space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    moved = ada.signed(asked, statement)
    assert moved.status_code == 409
    assert "has made a commit since" in moved.text
    assert len(space.pending()) == 2
    assert ada.signed(asked, ada.stated(asked).json()["statement"]).status_code == 303
    assert ada.signed(asked, statement).status_code == 409, "it has been answered"
    assert space.pending() == [other]


def test_a_question_that_was_swapped_after_it_was_shown_is_not_signed(ada: Person, asked: clia.Request) -> None:
    refused = ada.stated(asked, _asked="0" * 64)
    assert (refused.status_code, refused.json()["code"]) == (409, "question-changed")


def test_the_statement_of_an_answer_that_is_not_accepted_is_not_made(ada: Person, asked: clia.Request) -> None:
    assert ada.stated(asked, "maybe").json()["code"] == "invalid-answer"
    viewer = Person(ada.forge, "eve", "viewer", "Eve")
    assert viewer.browser.post(f"/s/repo/inbox/scout/{asked.id}/statement", {"v": '"yes"'}).status_code == 403


def test_once_keys_are_enrolled_an_answer_without_one_is_refused_and_the_page_warns(ada: Person, asked: clia.Request) -> None:
    address = f"/s/repo/inbox/scout/{asked.id}"
    assert "an answer without your passkey is refused" in ada.browser.get(address).text
    refused = ada.browser.post(address, {"v": '"yes"', "rationale": "It is time."})
    assert refused.status_code == 403
    assert "the policy asks for ssh" in refused.text
    assert "It is time." in refused.text, "the input is still there"
    assert ada.forge.space.pending() == [asked]
    bob = Person(ada.forge, "bob", "decider", "Bob")
    bob.add()
    page = bob.browser.get(address).text
    assert "you have no enrolled passkey here" in page
    assert "data-passkey=" not in page


def test_a_token_proves_nothing_either(ada: Person, asked: clia.Request) -> None:
    body = {"value": "yes", "request_id": asked.id}
    for headers in (ada.forge.bearer("ada"), ada.forge.bearer("carl", "decider", "Carl")):
        answer = outsider(ada.forge).post("/api/v1/spaces/repo/agents/scout/decisions", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "proof-required")
    assert ada.forge.space.pending() == [asked]


def test_before_keys_are_enrolled_the_machine_vouches_for_an_answer(forge: OpenForge, asked: clia.Request) -> None:
    eve = Person(forge, "eve", "decider", "Eve")
    address = f"/s/repo/inbox/scout/{asked.id}"
    assert "is refused" not in eve.browser.get(address).text
    assert eve.browser.post(address, {"v": '"yes"'}).status_code == 303
    assert "proof-attested" in eve.browser.get("/s/repo/inbox").text


# Enrolment


def test_the_first_key_of_an_administrator_becomes_the_owner(forge: OpenForge, ada: Person) -> None:
    (key,) = [key for key in forge.space.trust.keys().keys if key.kind == "passkey"]
    assert (key.owner, list(key.roles), key.current) == (ADA, ["owner"], True)
    assert forge.space.trust.verify().findings == ()
    ada.add(SoftAuthenticator(ORIGIN, HOST), name="red key")
    assert len([key for key in forge.space.trust.keys().keys if key.kind == "passkey"]) == 1, "a second one is not, by itself"


def test_a_decider_cannot_become_the_owner_by_being_first(forge: OpenForge) -> None:
    bob = Person(forge, "bob", "decider", "Bob")
    bob.add()
    assert not forge.space.trust.has_people()
    key = keys_of(forge, "bob")[0][0][8:20]
    fields = {"space": "repo", "user": "bob"}
    for path in (f"/passkeys/{key}/enrol", f"/passkeys/{key}/enrol/options"):
        assert bob.browser.post(path, fields).status_code == 403
    assert not forge.space.trust.has_people()


def test_an_owner_enrols_the_key_of_a_decider_who_then_decides(forge: OpenForge, ada: Person, asked: clia.Request) -> None:
    bob = Person(forge, "bob", "decider", "Bob")
    bob.add()
    assert bob.stated_response(asked).status_code == 422, "his key does not count yet"
    ada.enrol(bob)
    (key,) = [key for key in forge.space.trust.keys().keys if key.kind == "passkey" and key.owner.startswith("Bob")]
    assert list(key.roles) == ["decide"]
    statement = bob.stated(asked).json()["statement"]
    assert bob.signed(asked, statement).status_code == 303
    report = forge.space.trust.verify(strict=False)
    assert report.findings == ()
    assert forge.space.show("scout").by == "Bob <bob@example.org>"


def test_an_enrolment_is_signed_by_an_owner_and_for_that_key_only(forge: OpenForge, ada: Person) -> None:
    bob = Person(forge, "bob", "decider", "Bob")
    bob.add()
    eve = Person(forge, "eve", "admin", "Eve")
    eve.add()
    path = ada.enrolment(bob)
    fields = {"space": "repo", "user": "bob"}
    assert ada.browser.post(path, fields).status_code == 403, "without a statement"
    assert eve.browser.post(f"{path}/options", fields).status_code == 422, "an administrator whose key is not enrolled"
    statement = ada.browser.post(f"{path}/options", fields).json()["statement"]
    signed = {**fields, "_statement": statement}
    challenge = read_statement(statement).challenge()
    wrong = {
        "another key": bob.key.answer(challenge),
        "another statement": ada.key.answer(b"\0" * 32),
        "no verification": ada.key.answer(challenge, flags=PRESENT),
        "another port": ada.key.answer(challenge, origin=f"http://{HOST}:9999"),
    }
    for name, assertion in wrong.items():
        assert ada.browser.post(path, {**signed, "_assertion": assertion}).status_code == 403, name
    other = {"space": "repo", "user": "eve", "_statement": statement, "_assertion": ada.key.answer(challenge)}
    assert ada.browser.post(ada.enrolment(eve), other).status_code == 409, "another person's key"
    answer = ada.browser.client.post(
        "/api/v1/spaces/repo/trust/keys",
        json={"owner": "Bob", "public": bob.key.public, "kind": "passkey"},
        headers={"x-csrf-token": ada.browser.csrf},
    )
    assert answer.status_code == 403, answer.text
    assert len([key for key in forge.space.trust.keys().keys if key.kind == "passkey"]) == 1
    assert ada.browser.post(path, {**signed, "_assertion": ada.key.answer(challenge)}).status_code == 303
    assert ada.browser.post(path, {**signed, "_assertion": ada.key.answer(challenge)}).status_code in (403, 409), "once"


def test_verify_counts_the_passkey(ada: Person, asked: clia.Request) -> None:
    assert ada.signed(asked, ada.stated(asked).json()["statement"]).status_code == 303
    report = ada.forge.space.trust.verify()
    assert report.findings == ()
    assert dict(report.strengths) == {"passkey": 1}


def test_a_forged_statement_in_a_commit_is_shown_as_such(ada: Person, asked: clia.Request) -> None:
    """Everyone with the repository can write trailers; the page checks them."""
    statement = ada.stated(asked).json()["statement"]
    assert ada.signed(asked, statement).status_code == 303
    commit = ada.forge.space.show("scout")
    space = ada.forge.space
    from clia.forge.proofs import shown_proof

    class Visit:
        forge = ada.forge.forge
        space = ada.forge.space

    for change in (
        {"value": '"no"'},
        {"by": "Mallory"},
        {"request": "ask-9.1"},
        {"tree": "0" * 40},
        {"proofs": ()},
        {"statement": "x"},
        {"proofs": (commit.proofs[0].replace('signature":"', 'signature":"AA'),)},
    ):
        proof = shown_proof(Visit(), commit._replace(**change))  # type: ignore[arg-type]  # all that it uses
        assert proof is not None
        assert (proof.strength, bool(proof.problem)) == ("unsigned", True), change
    assert space.verify().findings == ()


def test_verification_needs_the_right_key() -> None:
    key = SoftAuthenticator(ORIGIN, HOST)
    with pytest.raises(BadSignature):
        Passkey("x", "not a key!", PasskeyPlace(HOST, (ORIGIN,))).enrolled(ADA)
    assert Passkey(b64url(key.credential), key.public, PasskeyPlace(HOST, (ORIGIN,))).fingerprint.startswith("SHA256:")
