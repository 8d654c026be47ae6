"""Questions, late answers, attempts of workers, and the authors of decisions."""

from __future__ import annotations

from typing import Any

import pytest

import clia
from clia.facade.config import Config
from support import git
from support.effects import QUICK, worker_for
from support.fake_secrets import FAKES
from support.session_flows import PRODUCT
from support.session_spaces import SessionSpace, all_of_git, with_agents
from support.spaces import refused


def test_an_invalid_question_is_refused_and_nothing_is_pending(space: clia.Space) -> None:
    refused("invalid-json", lambda: space.ask("scout", {"question": "x" * 2_000_000}))
    refused("invalid-json", lambda: space.ask("scout", {"question": object()}))
    for text in ("<Foo object>", "<module 'os'>"):
        error = refused("invalid-question", lambda text=text: space.ask("scout", {"question": text}))  # type: ignore[misc]
        assert text in error.message
        assert error.fields["agent"] == "scout"
    assert space.pending() == []
    assert space.ask("scout", {"question": "Really?"}).payload == {"question": "Really?"}


CYCLES = {
    "a list": "x = [1]\n    x.append(x)",
    "a dictionary": "x = {'a': 1}\n    x['b'] = x",
    "one in the other": "y = {}\n    x = [y]\n    y['x'] = x",
}


@pytest.mark.parametrize("name", CYCLES)
@pytest.mark.parametrize("expression", ["request('human', x)", "x"])
def test_a_cyclic_value_cannot_leave_the_flow(space: clia.Space, name: str, expression: str) -> None:
    space.sessions.define("loop", f"def main(input):\n    {CYCLES[name]}\n    return {expression}\n")
    session = space.start("scout", "loop")
    assert session.failure is not None
    assert session.status == "failed"
    assert "which cannot cross" in session.failure["message"]


def test_a_late_answer_is_told_the_recorded_value_or_failure(space: clia.Space) -> None:
    space.start("scout", "careful", "x")
    space.sessions.give_up("scout", "no such page", by="worker w1")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.1"))
    assert error.message == "request 1.1 of 'scout' has already been answered by worker w1: given up: no such page"
    space.resume("scout", {"found": "it", "much": "x" * 100}, by="worker w2")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.2"))
    assert 'has already been answered by worker w2: {"found": "it", "much": "xxx' in error.message
    assert error.message.endswith("x…")


def test_several_pending_requests_are_listed_with_their_payload(space: clia.Space) -> None:
    space.start("scout", "parts", 2)
    error = refused("several-requests", lambda: space.resume("scout", 1))
    assert error.hints == ('1.1: part {"n": 0}', '1.2: part {"n": 1}')


SECRET = FAKES[0]


def test_secrets_in_the_kind_and_tag_of_a_request_stay_out_of_the_decision(place: SessionSpace, space: clia.Space) -> None:
    half = len(SECRET.text) // 2
    concatenation = f"{SECRET.text[:half]!r} + {SECRET.text[half:]!r}"
    space.sessions.define(
        "leaky", f"def main(input):\n    t = {concatenation}\n    return request('human-' + t, {{'q': 1}}, tag=t)\n"
    )
    space.start("scout", "leaky")
    decision = space.decide("scout", "yes")
    message = git("log", "-1", "--format=%B", decision.cid, cwd=place.root)
    assert "Clia-Tag: " in message
    assert SECRET.secret.encode() not in all_of_git(place.root)


def test_attempts_show_the_tries_of_workers_and_their_errors(place: SessionSpace) -> None:
    def handle(*_: object) -> Any:
        raise OSError("the line is down")

    with clia.init(place.root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"))) as space:
        with_agents(space, "scout", product=PRODUCT)
        space.start("scout", "product")
        assert space.sessions.attempts() == []
        patient = QUICK._replace(attempts=5, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
        worker_for(space, place.root, {"number": handle}, Config(worker=patient)).run(once=True)
        (attempt,) = space.sessions.attempts()
        assert (attempt.task.agent, attempt.task.request, attempt.task.kind) == ("scout", "1.1", "number")
        assert (attempt.attempts, attempt.worker, attempt.error) == (1, None, "OSError: the line is down")
        assert attempt.next_at is not None
        space.resume("scout", 1)
        worker_for(space, place.root, {}, Config(worker=patient)).run(once=True)
        assert space.sessions.attempts() == []


@pytest.mark.parametrize(
    ("by", "name", "email"),
    [
        ("Ann Öz <ann@example.org>", "Ann Öz", "ann@example.org"),
        ("ann", "ann", "ann@people.clia.invalid"),
        ("Ö", "Ö", "somebody@people.clia.invalid"),
        ("<x> y <z", "x y z", "x-y-z@people.clia.invalid"),
        ("a <b@c> d", "a b@c d", "a-b-c-d@people.clia.invalid"),
        (None, "Tess", "tess@example.org"),
    ],
)
def test_the_person_who_decides_is_the_committer(
    place: SessionSpace, space: clia.Space, by: str | None, name: str, email: str
) -> None:
    space.ask("scout", {"question": "?"})
    decision = space.decide("scout", 1, by=by)
    assert git("log", "-1", "--format=%an|%cn|%ce", decision.cid, cwd=place.root).strip() == f"scout|{name}|{email}"
    git("fsck", "--strict", cwd=place.root)


@pytest.mark.parametrize("others", [0, 30])
def test_questions_of_a_deleted_branch_leave_the_inbox_until_it_is_restored(
    place: SessionSpace, space: clia.Space, others: int
) -> None:
    with_agents(space, *(f"a{number}" for number in range(others)))
    for number in range(others):
        space.ask(f"a{number}", {"question": "Me too?"})
    space.ask("scout", {"question": "Go?"})
    space.start("scout", "product")
    head = space.head("scout")
    assert len(space.pending()) == others + 2
    git("branch", "-D", "agents/scout", cwd=place.root)
    assert {request.agent for request in space.pending()} == {f"a{number}" for number in range(others)}
    refused("no-such-agent", lambda: space.pending("scout"))
    findings = space.doctor()
    assert {(finding.code, finding.agent, finding.session) for finding in findings} >= {
        ("no-branch", "scout", "1"),
        ("no-branch", "scout", "ask-1"),
    }
    git("branch", "agents/scout", head, cwd=place.root)
    assert len(space.pending()) == others + 2
    assert space.decide("scout", "yes", request_id="ask-1.1").value == "yes"
