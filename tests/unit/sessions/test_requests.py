from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.config import Config
from support import git
from support.effects import QUICK, worker_for
from support.fake_secrets import FAKES
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Place, all_of_git, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator


TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""


FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def test_a_question_that_cannot_be_put_is_refused_and_nothing_waits(space: clia.Space) -> None:
    refused("invalid-json", lambda: space.ask("scout", {"question": "x" * 2_000_000}))
    refused("invalid-json", lambda: space.ask("scout", {"question": object()}))
    for text in ("<Foo object>", "<module 'os'>"):
        error = refused("invalid-question", lambda text=text: space.ask("scout", {"question": text}))  # type: ignore[misc]
        assert text in error.message
        assert error.fields["agent"] == "scout"
    assert space.pending() == []
    assert space.ask("scout", {"question": "Really?"}).payload == {"question": "Really?"}


INSIDE_ITSELF = {
    "a list": "x = [1]\n    x.append(x)",
    "a dictionary": "x = {'a': 1}\n    x['b'] = x",
    "one in the other": "y = {}\n    x = [y]\n    y['x'] = x",
}


@pytest.mark.parametrize("name", INSIDE_ITSELF)
@pytest.mark.parametrize("way", ["request('human', x)", "x"])
def test_what_is_inside_itself_cannot_cross(space: clia.Space, name: str, way: str) -> None:
    space.define("loop", f"def main(input):\n    {INSIDE_ITSELF[name]}\n    return {way}\n")
    made = space.start("scout", "loop")
    assert made.failure is not None
    assert made.status == "failed"
    assert "which cannot cross" in made.failure["message"]


def test_whoever_comes_late_is_told_the_value_or_why_it_was_given_up(space: clia.Space) -> None:
    space.start("scout", "careful", "x")
    space.give_up("scout", "no such page", by="worker w1")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.1"))
    assert error.message == "the request 1.1 of 'scout' was answered by worker w1 already: given up: no such page"
    space.resume("scout", {"found": "it", "much": "x" * 100}, by="worker w2")
    error = refused("stale-request", lambda: space.resume("scout", 2, "1.2"))
    assert 'was answered by worker w2 already: {"found": "it", "much": "xxx' in error.message
    assert error.message.endswith("x…")


def test_several_requests_are_told_apart_by_what_they_ask(space: clia.Space) -> None:
    space.start("scout", "parts", 2)
    error = refused("several-requests", lambda: space.resume("scout", 1))
    assert error.hints == ('1.1: part {"n": 0}', '1.2: part {"n": 1}')


SECRET = FAKES[0]


def test_secrets_that_a_flow_puts_into_kind_and_tag_stay_out_of_the_decision(here: Place, space: clia.Space) -> None:
    half = len(SECRET.text) // 2
    put_together = f"{SECRET.text[:half]!r} + {SECRET.text[half:]!r}"
    space.define("leaky", f"def main(input):\n    t = {put_together}\n    return request('human-' + t, {{'q': 1}}, tag=t)\n")
    space.start("scout", "leaky")
    made = space.decide("scout", "yes")
    message = git("log", "-1", "--format=%B", made.cid, cwd=here.root)
    assert "Clia-Tag: " in message
    assert SECRET.secret.encode() not in all_of_git(here.root)


def test_attempts_tell_what_workers_tried_and_what_came_of_it(here: Place) -> None:
    def handle(*_: object) -> Any:
        raise OSError("the line is down")

    with clia.init(here.root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"))) as space:
        with_agents(space, "scout", product=PRODUCT)
        space.start("scout", "product")
        assert space.attempts() == []
        patient = QUICK._replace(attempts=5, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
        worker_for(space, here.root, {"number": handle}, Config(worker=patient)).run(once=True)
        (found,) = space.attempts()
        assert (found.task.agent, found.task.request, found.task.kind) == ("scout", "1.1", "number")
        assert (found.attempts, found.worker, found.error) == (1, None, "OSError: the line is down")
        assert found.next_at is not None
        space.resume("scout", 1)
        worker_for(space, here.root, {}, Config(worker=patient)).run(once=True)
        assert space.attempts() == []


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
def test_whoever_decides_is_the_committer(here: Place, space: clia.Space, by: str | None, name: str, email: str) -> None:
    space.ask("scout", {"question": "?"})
    made = space.decide("scout", 1, by=by)
    assert git("log", "-1", "--format=%an|%cn|%ce", made.cid, cwd=here.root).strip() == f"scout|{name}|{email}"
    git("fsck", "--strict", cwd=here.root)
