"""Statements that people sign: made for one answer to one question on one commit, and recorded only there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import CliaError
from clia.trust.ssh_signatures import CLIA, signer_of
from clia.trust.statements import StatementProof, question_digest, read_proof, read_statement, recorded_question
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path

    from clia.trust.statements import PersonalStatement

SIGNER = signer_of(b"\x05" * 32)
PERSON = "Ada <ada@example.org>"
QUESTION = {"question": "Go on?", "choices": ["yes", "no"], "cost": 12}


@pytest.fixture
def asked(space: clia.Space) -> clia.Request:
    return space.ask("scout", QUESTION)


def stated(space: clia.Space, request: clia.Request, value: Any = "yes", reason: str = "It is time.") -> PersonalStatement:
    return space.sessions.state(request.agent, value, reason, person=PERSON, by=PERSON, request_id=request.id)


def proved(space: clia.Space, statement: PersonalStatement) -> list[StatementProof]:
    """A proof of a statement by the person's key, which is enrolled if it is not yet."""
    if all(key.public != SIGNER.public.text for key in space.trust.keys().keys):
        space.trust.enrol(PERSON, SIGNER.public.text)
    return [StatementProof("ssh", SIGNER.public.fingerprint, {"signature": SIGNER.sign(statement.data(), CLIA)})]


def test_a_signed_decision_carries_its_statement_and_proof(space: clia.Space, asked: clia.Request, repo: Path) -> None:
    before = space.head("scout")
    statement = stated(space, asked)
    assert space.head("scout") == before, "nothing is recorded yet"
    proofs = proved(space, statement)
    decision = space.sessions.decide_signed(statement, proofs, by=PERSON)
    commit = space.show(decision.cid)
    assert commit.statement is not None
    assert read_statement(commit.statement) == statement
    assert [read_proof(text) for text in commit.proofs] == proofs
    assert (statement.parent, statement.tree, statement.request) == (before, commit.tree, asked.id)
    assert (statement.space, statement.about, statement.person) == (space.id, "scout", PERSON)
    assert statement.question == question_digest(QUESTION) == recorded_question(commit.meta)
    assert (commit.value, commit.message, commit.by) == ('"yes"', "It is time.", PERSON)
    trailers = git("log", "-1", "--format=%(trailers:key=Clia-Statement,valueonly)", decision.cid, cwd=repo).strip()
    assert trailers == commit.statement, "plain git shows it"
    assert space.verify().findings == ()


def test_an_unsigned_decision_carries_none(space: clia.Space, asked: clia.Request) -> None:
    commit = space.show(space.decide("scout", "yes", request_id=asked.id).cid)
    assert (commit.statement, commit.proofs) == (None, ())


CHANGES: dict[str, dict[str, Any]] = {
    "space": {"space": "another"},
    "verb": {"verb": "land"},
    "tree": {"tree": "0" * 40},
    "question": {"question": "0" * 64},
    "reason": {"reason": "   not what was signed"},
    "channel": {"channel": "mcp"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_statement_about_something_else_is_not_recorded(space: clia.Space, asked: clia.Request, name: str) -> None:
    statement = stated(space, asked)._replace(**CHANGES[name])
    head = space.head("scout")
    if name == "reason":  # the statement's own reason is what would be recorded, but it is not in the form that is
        statement = statement._replace(reason="\0")
    with pytest.raises(CliaError) as caught:
        space.sessions.decide_signed(statement, proved(space, statement), by=PERSON)
    if name != "reason":
        assert (caught.value.code, caught.value.fields["fields"]) == ("other-statement", [name])
    assert space.head("scout") == head
    assert [request.id for request in space.pending()] == [asked.id]


def test_a_statement_is_not_recorded_for_another_request_agent_or_space(
    space: clia.Space, asked: clia.Request, tmp_path: Path
) -> None:
    statement = stated(space, asked)
    space.spawn("smith", BRIEFING)
    other = space.ask("smith", QUESTION)
    second = space.ask("scout", {**QUESTION, "cost": 13})
    decide = space.sessions.decide_signed
    proofs = proved(space, statement)
    refused("stale-statement", lambda: decide(statement._replace(about="smith", request=other.id), proofs, by=PERSON))
    refused("other-statement", lambda: decide(statement._replace(request=second.id), proofs, by=PERSON))
    with clia.init(tmp_path / "other", settings=settings()) as another:
        another.spawn("scout", BRIEFING)
        same = another.ask("scout", QUESTION)
        assert same.id == asked.id
        refused("stale-statement", lambda: another.sessions.decide_signed(statement, proved(another, statement), by=PERSON))
        assert another.pending()
    assert len(space.pending()) == 3


def test_a_statement_is_recorded_once(space: clia.Space, asked: clia.Request) -> None:
    statement = stated(space, asked)
    space.sessions.decide_signed(statement, proved(space, statement), by=PERSON)
    refused("stale-request", lambda: space.sessions.decide_signed(statement, proved(space, statement), by=PERSON))


def test_after_a_commit_of_the_agent_the_answer_is_signed_again(space: clia.Space, asked: clia.Request) -> None:
    statement = stated(space, asked)
    moved = space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    err = refused("stale-statement", lambda: space.sessions.decide_signed(statement, proved(space, statement), by=PERSON))
    assert (err.fields["expected"], err.fields["actual"]) == (statement.parent, moved)
    again = stated(space, asked)
    assert space.sessions.decide_signed(again, proved(space, again), by=PERSON).value == "yes"


@pytest.mark.parametrize("seconds", [-16 * 60, 16 * 60, 10**9])
def test_an_old_statement_is_not_recorded(space: clia.Space, asked: clia.Request, seconds: int) -> None:
    statement = stated(space, asked)
    refused(
        "stale-statement",
        lambda: space.sessions.decide_signed(statement._replace(at=statement.at + seconds), proved(space, statement), by=PERSON),
    )


@pytest.mark.parametrize("value", ["", None, 0, False, [], {}, "no"])
def test_every_answer_can_be_signed(space: clia.Space, value: Any) -> None:
    request = space.ask("scout", {"question": "What?"})
    statement = read_statement(stated(space, request, value, "").data().decode())
    decision = space.sessions.decide_signed(statement, proved(space, statement), by=PERSON)
    assert decision.value == value
    assert type(decision.value) is type(value)


def test_an_answer_that_the_request_does_not_accept_cannot_be_stated(space: clia.Space, asked: clia.Request) -> None:
    refused("invalid-answer", lambda: stated(space, asked, "maybe"))


def test_a_long_question_is_stated_whole(space: clia.Space) -> None:
    """The commit has the start of a long question; the statement names all of it."""
    payload = {"question": "Go on?", "log": "x" * 20_000}
    request = space.ask("scout", payload)
    statement = stated(space, request)
    commit = space.show(space.sessions.decide_signed(statement, proved(space, statement), by=PERSON).cid)
    assert commit.meta["cut"] is True
    assert "log" not in commit.meta["asked"]
    assert statement.question == question_digest(payload) == recorded_question(commit.meta)


def test_an_agent_cannot_record_a_statement(space: clia.Space, asked: clia.Request, repo: Path) -> None:
    statement = stated(space, asked)
    with clia.open(repo, settings=settings(agent="scout")) as of_agent:
        refused("person-needed", lambda: of_agent.sessions.decide_signed(statement, proved(space, statement), by=PERSON))
