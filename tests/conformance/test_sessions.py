"""The verbs of sessions, on each store and over HTTP: flows, requests, answers, forks and decisions."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.fake_secrets import FAKES
from support.remote import local_of, remote_session_space, root_of
from support.session_flows import APPROVAL, CAREFUL, CHANCE, COUNTING, PARTS, PRODUCT, QUESTION, SUSPENDS
from support.session_spaces import MACHINES, STORES, SessionSpace, ends, events, pending_requests, session_space_on, with_agents
from support.spaces import BRIEFING, refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=[*STORES, MACHINES, "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SessionSpace:
    """A space on each store, and one over HTTP."""
    if request.param == "remote":
        return remote_session_space(request.getfixturevalue("served"), tmp_path)
    return session_space_on(request, tmp_path, request.param)


local_only = pytest.mark.parametrize("place", STORES, indirect=True)
"""For tests of local verbs."""


@pytest.fixture
def space(place: SessionSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield opened


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    return with_agents(space, "scout", product=PRODUCT, approval=APPROVAL, parts=PARTS)


def told(space: clia.Space, agent: str = "scout") -> dict[str, Any]:
    """All records of an agent's sessions, to detect changes."""
    return {
        "sessions": [(session.to_json(), session.resumes, session.decisions) for session in space.sessions(agent)],
        "pending": space.pending(),
        "head": space.head(agent),
        "journals": [space.sessions.journal(agent, session.id) for session in space.sessions(agent)],
        "trace": space.traces.pending(agent),
        "refs": git("for-each-ref", cwd=root_of(space)),
    }


# Flows


def test_a_flow_is_stored_under_its_name_with_every_version(space: clia.Space) -> None:
    first = space.sessions.define("product", PRODUCT, why="the first")
    assert (first.name, first.source, first.versions, first.why) == ("product", PRODUCT, (first.cid,), "the first")
    assert first.by == "Tess <tess@example.org>"
    second = space.sessions.define("product", PRODUCT.replace("one * two", "one + two"))
    assert second.versions == (first.cid, second.cid)
    assert space.sessions.flow("product") == second
    assert space.sessions.flow(first.cid).source == PRODUCT
    space.sessions.define("approval", APPROVAL)
    assert [flow.name for flow in space.sessions.flows()] == ["approval", "product"]
    assert space.types.read(first.cid) == clia.Behaviour("product", "session-flow", PRODUCT)


def test_the_current_version_is_not_written_again_and_an_old_one_can_be_restored(place: SessionSpace) -> None:
    with place.open() as space:
        first = space.sessions.define("product", PRODUCT)
        refs = git("for-each-ref", cwd=place.root)
        assert space.sessions.define("product", PRODUCT, why="again") == first
        assert git("for-each-ref", cwd=place.root) == refs
        second = space.sessions.define("product", PRODUCT + "\n")
        assert space.sessions.define("product", PRODUCT).cid == first.cid
        assert set(space.sessions.flow("product").versions) == {first.cid, second.cid}
        assert space.sessions.flow(second.cid).source == PRODUCT + "\n"


INVALID_FLOWS = {
    "syntax": ("def main(input):\n    return (\n", None),
    "no main": ("def other(input):\n    return 1\n", None),
    "empty": ("", None),
    "yield": ("def main(input):\n    yield 1\n", 2),
    "inheritance": ("class A:\n    pass\n\nclass B(A):\n    pass\n\ndef main(input):\n    return 1\n", 4),
    "del": ("def main(input):\n    x = [1]\n    del x[0]\n    return x\n", 3),
    "no input": ("def main():\n    return 1\n", 1),
}


def test_an_invalid_flow_is_not_defined_and_the_line_is_named(scout: clia.Space, subtests: pytest.Subtests) -> None:
    before = git("for-each-ref", cwd=root_of(scout))
    for name, (source, line) in INVALID_FLOWS.items():
        with subtests.test(name):
            error = refused("invalid-flow", lambda source=source: scout.sessions.define("broken", source))  # type: ignore[misc]
            assert isinstance(error, errors.InvalidFlow)
            assert isinstance(error.fields["line"], int)
            assert line in (None, error.fields["line"])
            assert f"broken:{error.fields['line']}:" in error.message
            assert git("for-each-ref", cwd=root_of(scout)) == before
            refused("no-such-flow", lambda: scout.start("scout", "broken"))
            assert [problem.message for problem in scout.sessions.check_flow(source) if problem.severity == "error"]


def test_invalid_names_and_texts_of_flows_are_refused(scout: clia.Space) -> None:
    for name in ("", "Product", "a/b", "../x", "a b", "a" * 101):
        refused("invalid-name", lambda name=name: scout.sessions.define(name, PRODUCT))  # type: ignore[misc]
    refused("already-exists", lambda: scout.sessions.define("ask", PRODUCT))
    refused("invalid-flow", lambda: scout.sessions.define("long", PRODUCT + "#" * 300_000))
    for bad in (3, None, b"def main(input): pass"):
        assert isinstance(refused_with(lambda bad=bad: scout.sessions.define("odd", bad)), errors.InvalidInput)
    assert [flow.name for flow in scout.sessions.flows()] == ["approval", "parts", "product"]


def refused_with(call: Any) -> errors.CliaError:
    with pytest.raises(errors.CliaError) as caught:
        call()
    return caught.value


# The example of the design


def test_one_session_forked_after_a_shared_prefix_ends_with_45_in_one_and_1500_in_the_other(scout: clia.Space) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 15)
    forked = scout.fork("scout", "other")
    assert (forked.agent, forked.status, forked.resumes) == ("other", "suspended", [15])
    assert scout.resume("scout", 3).result == 45
    assert scout.resume("other", 100).result == 1500
    assert [scout.session(name).resumes for name in ("scout", "other")] == [[15, 3], [15, 100]]
    assert scout.verify().clean


# Sessions


def test_a_session_has_its_state(scout: clia.Space) -> None:
    session = scout.start("scout", "approval", {"goal": "tidy up"})
    assert (session.agent, session.id, session.status, session.flow, session.live) == ("scout", "1", "suspended", "approval", True)
    assert session.flow_cid == scout.sessions.flow("approval").cid
    assert session.input == {"goal": "tidy up"}
    (request,) = session.pending
    assert request == clia.Request(
        "scout", "1.1", "llm", None, {"prompt": "tidy up"}, request.since, 3, "1", "approval"
    )  # line 3 has the request
    session = scout.resume("scout", "sweep", "1.1")
    (request,) = session.pending
    assert (request.id, request.kind, request.tag, request.line) == ("1.2", "human", "go-on", 4)
    assert request.payload == {"question": "Go on?", "plan": "sweep", "choices": ["approve", "reject"]}
    session = scout.decide("scout", "approve", "it is a good plan").session
    assert (session.status, session.result, session.pending, session.failure) == (
        "finished",
        {"status": "done", "plan": "sweep"},
        (),
        None,
    )
    assert session.ended_at is not None
    again = scout.session("scout")
    assert again.to_json() == session.to_json()
    assert json.loads(json.dumps(again.to_json()))["result"] == {"status": "done", "plan": "sweep"}
    assert again.resumes == ["sweep", "approve"]


def test_a_fresh_handle_sees_a_suspended_session_and_resumes_it(place: SessionSpace, scout: clia.Space) -> None:
    scout.start("scout", "product")
    with place.open() as second:
        assert second.session("scout").to_json() == scout.session("scout").to_json()
        second.resume("scout", 6)
    with place.open() as third:
        assert third.resume("scout", 7).result == 42
    assert scout.session("scout").result == 42


def test_an_agent_has_one_live_session_and_its_past_ones_stay_readable(scout: clia.Space) -> None:
    scout.start("scout", "product")
    before = told(scout)
    error = refused("session-live", lambda: scout.start("scout", "approval", {"goal": "x"}))
    assert isinstance(error, errors.Conflict)
    assert error.fields == {"agent": "scout", "session": "1"}
    assert told(scout) == before
    scout.resume("scout", 2)
    scout.resume("scout", 3)
    assert scout.start("scout", "product").id == "2"
    scout.cancel("scout")
    assert scout.start("scout", "product").id == "3"
    assert [(session.id, session.status) for session in scout.sessions("scout")] == [
        ("3", "suspended"),
        ("1", "finished"),
        ("2", "cancelled"),
    ]
    assert [session.id for session in scout.sessions(live=True)] == ["3"]
    assert (scout.session("scout", "1").result, scout.session("scout").id) == (6, "3")
    assert [event["event"] for event in scout.sessions.journal("scout", "1")] == ["started", "resumed", "resumed", "ended"]


def test_a_session_record_does_not_change(scout: clia.Space) -> None:
    scout.sessions.define("product", SUSPENDS)
    scout.start("scout", "product")
    before = scout.resume("scout", 2)
    decision = scout.decide("scout", 3)
    assert (before.status, before.resumes, before.decisions) == ("suspended", [2], [])
    assert (decision.session.resumes, decision.session.decisions) == ([2, 3], [(1, decision.cid)])


def test_a_session_keeps_the_flow_version_of_its_start(scout: clia.Space) -> None:
    old = scout.start("scout", "product").flow_cid
    scout.sessions.define("product", PRODUCT.replace("*", "+"))
    scout.resume("scout", 5)
    session = scout.resume("scout", 6)
    assert (session.result, session.flow_cid) == (30, old)
    assert scout.start("scout", "product").flow_cid != old
    scout.cancel("scout")
    assert scout.start("scout", old).flow_cid == old


def test_unknown_names_are_reported(scout: clia.Space) -> None:
    for call in (
        lambda: scout.start("nobody", "product"),
        lambda: scout.session("nobody"),
        lambda: scout.sessions("nobody"),
        lambda: scout.pending("nobody"),
        lambda: scout.sessions.journal("nobody"),
        lambda: scout.resume("nobody", 1),
        lambda: scout.sessions.give_up("nobody", "x"),
        lambda: scout.decide("nobody", 1),
        lambda: scout.ask("nobody", {}),
        lambda: scout.cancel("nobody"),
        lambda: scout.fork("nobody", "new"),
    ):
        assert isinstance(refused("no-such-agent", call), errors.NoSuchAgent)
    for call in (
        lambda: scout.session("scout"),
        lambda: scout.sessions.journal("scout"),
        lambda: scout.cancel("scout"),
        lambda: scout.cancel("scout", session_id="7"),
        lambda: scout.fork("scout", "new"),
        lambda: scout.session("scout", "1"),
        lambda: scout.session("scout", ""),
    ):
        assert isinstance(refused("no-such-session", call), errors.NotFound)
    refused("no-such-flow", lambda: scout.start("scout", "nothing"))
    refused("no-such-object", lambda: scout.start("scout", "0" * 40))
    refused("not-a-flow", lambda: scout.start("scout", scout.types.write(clia.Behaviour("p", "prompt", "be kind"))))
    refused("nothing-pending", lambda: scout.resume("scout", 1))
    for name in ("", "Scout", "a/b", "../a"):
        refused("invalid-name", lambda name=name: scout.start(name, "product"))  # type: ignore[misc]
        refused("invalid-name", lambda name=name: scout.fork("scout", name))  # type: ignore[misc]
    assert scout.sessions() == []
    assert scout.agents() == ["scout"]


def test_names_of_the_wrong_type_are_clear_errors(scout: clia.Space, subtests: pytest.Subtests) -> None:
    scout.start("scout", "product")
    before = told(scout)
    for bad in (3, None, b"1.1", ["1.1"], "\ud800", "a\0b"):
        with subtests.test(ascii(bad)):
            for call in calls_with(scout, bad):
                assert isinstance(refused_with(call), (errors.InvalidInput, errors.NotFound))
            assert told(scout) == before


def calls_with(scout: clia.Space, bad: Any) -> list[Callable[[], object]]:
    """Calls with a bad name or text in each place."""
    calls: list[Callable[[], object]] = [
        lambda: scout.start("scout", bad),
        lambda: scout.sessions.define("x", PRODUCT, why=bad),
        lambda: scout.cancel("scout", bad),
        lambda: scout.sessions.give_up("scout", bad),
        lambda: scout.fork("scout", bad),
        lambda: scout.fork(bad, "new"),
        lambda: scout.resume(bad, 1),
    ]
    if bad is not None:
        calls += [
            lambda: scout.resume("scout", 1, bad),
            lambda: scout.resume("scout", 1, by=bad),
            lambda: scout.session("scout", bad),
            lambda: scout.fork("scout", "new", bad),
            lambda: scout.pending(bad),
        ]
    return calls


def test_sessions_of_an_archived_agent_are_read_only(scout: clia.Space) -> None:
    scout.start("scout", "product")
    error = refused("session-live", lambda: scout.agents.archive("scout"))
    assert isinstance(error, errors.Conflict)
    scout.cancel("scout", "enough")
    question = scout.ask("scout", {"question": "sure?"})
    refused("session-live", lambda: scout.agents.archive("scout"))
    scout.decide("scout", True, request_id=question.id)
    scout.agents.archive("scout")
    assert scout.session("scout").status == "cancelled"
    assert [session.id for session in scout.sessions("scout")] == ["1"]
    for call in (
        lambda: scout.start("scout", "product"),
        lambda: scout.resume("scout", 1),
        lambda: scout.decide("scout", 1),
        lambda: scout.ask("scout", {}),
        lambda: scout.cancel("scout"),
    ):
        refused("no-such-agent", call)
    scout.agents.restore("scout")
    assert scout.start("scout", "product").id == "2"


@pytest.mark.parametrize("place", [*STORES, "remote"], indirect=True)  # machines that share a store share agents
def test_an_agent_of_another_clone_is_read_only(place: SessionSpace, scout: clia.Space) -> None:
    scout.start("scout", "product")
    components(local_of(scout)).core.mark_foreign("scout")
    before = told(scout)
    for call in (
        lambda: scout.start("scout", "product"),
        lambda: scout.resume("scout", 1),
        lambda: scout.sessions.give_up("scout", "x"),
        lambda: scout.decide("scout", 1),
        lambda: scout.ask("scout", {}),
        lambda: scout.cancel("scout"),
    ):
        refused("foreign-agent", call)
    assert told(scout) == before


# Values


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


BAD_VALUES: dict[str, Any] = {
    "nan": math.nan,
    "infinity": math.inf,
    "inner infinity": {"a": [-math.inf]},
    "set": {1, 2},
    "key": {1: "a"},
    "bytes": b"bytes",
    "object": object(),
    "large": 2**53,
    "huge": -(2**70),
    "deep": deep(1000),
    "cycle": endless(),
    "half": "\ud800",
    "half in a key": {"\udfff": 1},
    "long": "x" * (1024 * 1024 + 1),
    "complex": 1j,
}


def test_an_invalid_value_is_refused_everywhere_and_nothing_changes(scout: clia.Space, subtests: pytest.Subtests) -> None:
    for name, bad in BAD_VALUES.items():
        with subtests.test(name):
            refused("invalid-json", lambda bad=bad: scout.start("scout", "product", bad))  # type: ignore[misc]
            assert scout.sessions() == []
    scout.start("scout", "product")
    scout.ask("scout", {"question": "sure?"})
    before = told(scout)
    for name, bad in BAD_VALUES.items():
        with subtests.test(name):
            for call in (
                lambda bad=bad: scout.resume("scout", bad, "1.1"),
                lambda bad=bad: scout.decide("scout", bad, request_id="ask-1.1"),
            ):
                assert isinstance(refused("invalid-answer", call), errors.InvalidAnswer)
            refused("invalid-json", lambda bad=bad: scout.ask("scout", bad))  # type: ignore[misc]
            assert told(scout) == before
    scout.resume("scout", 4)
    assert scout.resume("scout", 5).result == 20


def test_an_invalid_payload_or_result_fails_the_flow_with_its_line(scout: clia.Space, subtests: pytest.Subtests) -> None:
    for expression in ("{1, 2}", "2 ** 60", "float('nan')", "main", "b'x'", "{1: 2}"):
        source = f"def main(input):\n    if input:\n        return {expression}\n    return request('x', {expression})\n"
        scout.sessions.define("odd", source)
        for early, line in ((True, None), (False, 4)):
            with subtests.test(expression, early=early):
                session = scout.start("scout", "odd", early)
                assert session.status == "failed"
                assert session.failure is not None
                assert session.failure.get("line") == line
                assert session.failure["message"]
                assert session.failure["reason"] == ("result" if early else "raised")
    assert ends(root_of(scout), "scout") == [(str(number), "failed") for number in range(1, 13)]


def test_a_flow_can_catch_the_error_of_an_invalid_payload(scout: clia.Space) -> None:
    scout.sessions.define(
        "odd", "def main(input):\n    try:\n        request('x', {1})\n    except TypeError:\n        return request('y')\n"
    )
    (request,) = scout.start("scout", "odd").pending
    assert request.kind == "y"
    assert scout.resume("scout", "fine").result == "fine"


# Limits


LIMITS = {
    "endless": ("def main(input):\n    request('go')\n    while True:\n        pass\n", "limit", "time"),
    "bomb": ("def main(input):\n    request('go')\n    x = [0]\n    while True:\n        x = x + x\n", "limit", "memory"),
    "recursion": (
        "def main(input):\n    request('go')\n    return main(input) + deeper(1)\n\ndef deeper(n):\n    return deeper(n)\n",
        "raised",
        "",
    ),
    "deep": (
        "def deeper(n):\n    return deeper(n + 1)\n\ndef main(input):\n    request('go')\n    return deeper(0)\n",
        "raised",
        "Recursion",
    ),
    "raises": ("def main(input):\n    request('go')\n    raise ValueError('no plan')\n", "raised", "ValueError: no plan"),
}


@pytest.mark.parametrize("name", ["endless", "bomb", "deep", "raises"])
def test_a_failing_flow_ends_with_a_clear_reason_and_affects_no_other(place: SessionSpace, name: str) -> None:
    source, reason, message = LIMITS[name]
    seconds = 0.3 if name == "endless" else 10  # the others must reach their own limit first, even on a busy machine
    with place.configured(f"[flows]\nturn_seconds = {seconds}\nmemory_mb = 16\n").open() as space:
        with_agents(space, "scout", "other", flow=source, product=PRODUCT)
        space.start("other", "product")
        space.resume("other", 6)
        space.start("scout", "flow")
        session = space.resume("scout", None)
        assert session.status == "failed"
        assert session.failure is not None
        assert session.failure["reason"] == reason
        assert message in session.failure["message"]
        assert session.resumes == [None]
        assert space.session("scout").failure == session.failure
        assert space.resume("other", 7).result == 42
        assert ends(place.root, "scout") == [("1", "failed")]
        assert events(place.root, "scout")[0]["reason"] == session.failure["message"]
        assert space.start("scout", "product").id == "2", "the agent can start another session"
        assert space.verify().clean


def test_a_flow_that_fails_before_its_first_request_is_a_failed_session(place: SessionSpace) -> None:
    with place.configured("[flows]\nturn_seconds = 0.3\n").open() as space:
        with_agents(space, "scout", endless="def main(input):\n    while True:\n        pass\n")
        session = space.start("scout", "endless")
        assert (session.status, session.pending) == ("failed", ())
        assert [event["event"] for event in space.sessions.journal("scout")] == ["started", "ended"]
        assert ends(place.root, "scout") == [("1", "failed")]


# Answers


def test_a_request_takes_one_answer_and_later_ones_are_refused_with_its_author(scout: clia.Space) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 5, "1.1", by="the first")
    before = told(scout)
    error = refused("stale-request", lambda: scout.resume("scout", 6, "1.1"))
    assert isinstance(error, errors.StaleRequest)
    assert error.answered_by == "the first"
    assert error.fields["value"] == 5
    assert error.fields["decision"] is None
    assert error.fields["at"] == scout.sessions.journal("scout")[1]["resume"][6]
    assert told(scout) == before
    scout.resume("scout", 7)
    assert refused("stale-request", lambda: scout.resume("scout", 6, "1.1")).fields["answered_by"] == "the first"


def test_ended_and_unknown_requests_are_reported(scout: clia.Space) -> None:
    scout.start("scout", "product")
    for wrong in ("1.2", "2.1", "1", "", ".1", "1.", "1.01", "x.y", "1.1.1", "ask-1.1", " 1.1", "a/1.1"):
        error = refused_with(lambda wrong=wrong: scout.resume("scout", 6, wrong))
        assert (error.code, error.fields["request"]) == ("no-such-request", wrong)
        refused("no-such-request", lambda wrong=wrong: scout.decide("scout", 6, request_id=wrong))  # type: ignore[misc]
    scout.cancel("scout")
    error = refused("stale-request", lambda: scout.resume("scout", 6, "1.1"))
    assert (error.fields["status"], error.fields.get("answered_by")) == ("cancelled", None)
    scout.start("scout", "product")
    assert refused("stale-request", lambda: scout.resume("scout", 6, "1.1")).fields["status"] == "cancelled"
    refused("nothing-pending", lambda: with_agents(scout, "idle").resume("idle", 6))


def test_resume_refuses_requests_for_people(scout: clia.Space) -> None:
    scout.sessions.define("question", QUESTION)
    for kind in ("human", "human-review"):
        scout.start("scout", "question", {"kind": kind, "payload": {"question": "?"}})
        before = told(scout)
        for call in (
            lambda: scout.resume("scout", "yes"),
            lambda: scout.resume("scout", "yes", scout.pending()[0].id),
            lambda: scout.sessions.give_up("scout", "nobody is there"),
        ):
            error = refused("human-request", call)
            assert isinstance(error, errors.NotAllowed)
            assert error.fields["kind"] == kind
        assert told(scout) == before
        assert scout.decide("scout", "yes").session.result == "yes"
    scout.start("scout", "question", {"kind": "humane", "payload": None})
    assert scout.resume("scout", "only a name").result == "only a name"


def test_decide_refuses_requests_that_are_not_for_people(scout: clia.Space, subtests: pytest.Subtests) -> None:
    scout.sessions.define("question", QUESTION)
    for kind in ("timer", "command", "llm", "agent", "humane", "people"):
        (request,) = scout.start("scout", "question", {"kind": kind, "payload": {"seconds": 3}}).pending
        before = told(scout)
        with subtests.test(kind):
            error = refused(
                "not-a-human-request",
                lambda request=request: scout.decide("scout", "yes", "I say so", request_id=request.id),  # type: ignore[misc]
            )
            assert isinstance(error, errors.NotAllowed)
            assert error.hints == (f"clia session resume scout VALUE --request {request.id}",)
            assert error.fields == {"agent": "scout", "request": request.id, "kind": kind}
            assert refused("nothing-pending", lambda: scout.decide("scout", "yes")).hints == error.hints
            assert told(scout) == before
        assert scout.resume("scout", "slept").result == "slept"


def test_decide_answers_a_flow_that_suspended_itself(scout: clia.Space) -> None:
    scout.sessions.define("product", SUSPENDS)
    scout.start("scout", "product")
    decision = scout.decide("scout", 5)
    assert (decision.request, decision.session.decisions) == ("1.1", [(0, decision.cid)])


def test_a_request_that_is_given_up_raises_in_the_flow(place: SessionSpace, scout: clia.Space) -> None:
    scout.sessions.define("careful", CAREFUL)
    scout.start("scout", "careful", "cats")
    session = scout.sessions.give_up("scout", "no network", by="worker 1")
    assert (session.resumes, session.pending[0].payload) == ([{"error": "no network"}], "no network")
    with place.open() as second:  # replayed
        assert second.resume("scout", "done").result == {"found": "no network", "next": "done"}
    scout.start("scout", "product")
    failed = scout.sessions.give_up("scout", "no numbers left")
    assert failed.status == "failed"
    assert failed.failure is not None
    assert (failed.failure["reason"], failed.failure["message"]) == ("raised", "RuntimeError: no numbers left")
    assert failed.failure["line"] == 2
    assert refused("stale-request", lambda: scout.resume("scout", 1, "2.1")).fields["answered_by"] == "Tess <tess@example.org>"


def test_a_sleep_is_a_timer_and_a_suspension_has_a_tag(scout: clia.Space) -> None:
    scout.sessions.define("slow", "import time\n\ndef main(input):\n    time.sleep(2.5)\n    return suspend('later')\n")
    (timer,) = scout.start("scout", "slow").pending
    assert (timer.kind, timer.payload) == ("timer", {"seconds": 2.5})
    (later,) = scout.resume("scout", None).pending
    assert (later.kind, later.tag, later.payload) == ("suspend", "later", None)
    assert scout.resume("scout", "now").result == "now"


def test_cancelling_ends_a_session_once_with_its_reason(place: SessionSpace, scout: clia.Space) -> None:
    scout.start("scout", "product")
    session = scout.cancel("scout", "not needed any more")
    assert (session.status, session.pending, session.live) == ("cancelled", (), False)
    assert session.failure == {"reason": "cancelled", "message": "not needed any more", "by": "Tess <tess@example.org>"}
    error = refused("session-over", lambda: scout.cancel("scout"))
    assert error.fields["status"] == "cancelled"
    refused("session-over", lambda: scout.cancel("scout", session_id="1"))
    assert scout.pending() == []
    (event,) = events(place.root, "scout")
    assert (event["status"], event["reason"], event["resumes"], event["name"]) == ("cancelled", "not needed any more", 0, "product")
    question = scout.ask("scout", {"question": "?"})
    scout.cancel("scout", session_id=question.session)
    assert scout.pending() == []
    assert ends(place.root, "scout") == [("1", "cancelled")], "a question is not a session of the agent"


# Concurrent requests


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])), ids=str)
def test_concurrent_requests_are_answered_in_any_order_with_the_same_result(
    place: SessionSpace, scout: clia.Space, order: tuple[int, ...]
) -> None:
    session = scout.start("scout", "parts", 3)
    assert [(request.id, request.payload) for request in session.pending] == [
        ("1.1", {"n": 0}),
        ("1.2", {"n": 1}),
        ("1.3", {"n": 2}),
    ]
    error = refused("several-requests", lambda: scout.resume("scout", "x"))
    assert isinstance(error, errors.Ambiguous)
    assert error.fields["matches"] == ["1.1", "1.2", "1.3"]
    for number in order:
        with place.open() as second:
            second.resume("scout", f"part {number}", f"1.{number}")
        refused("stale-request", lambda number=number: scout.resume("scout", "again", f"1.{number}"))  # type: ignore[misc]
    session = scout.session("scout")
    assert pending_requests(session) == [("4", "last", ["part 1", "part 2", "part 3"], 5)]
    assert session.resumes == [f"part {number}" for number in order]
    assert scout.resume("scout", "end").result == {"parts": ["part 1", "part 2", "part 3"], "last": "end"}


def test_a_pending_request_keeps_its_time(scout: clia.Space) -> None:
    first = scout.start("scout", "parts", 2).pending
    after = scout.resume("scout", "x", "1.2").pending
    assert after == (first[0],)


# People


def test_pending_lists_every_request_oldest_first(scout: clia.Space) -> None:
    with_agents(scout, "another", "zoe")
    scout.start("zoe", "product")
    scout.start("scout", "parts", 2)
    scout.start("another", "approval", {"goal": "x"})
    question = scout.ask("zoe", {"question": "?"})
    requests = scout.pending()
    assert [(request.agent, request.id) for request in requests] == [
        ("zoe", "1.1"),
        ("scout", "1.1"),
        ("scout", "1.2"),
        ("another", "1.1"),
        ("zoe", "ask-1.1"),
    ]
    assert requests == sorted(requests, key=lambda request: request.since)
    assert [request.id for request in scout.pending("zoe")] == ["1.1", "ask-1.1"]
    assert requests[-1] == question
    scout.resume("zoe", 1)
    assert [(request.agent, request.id) for request in scout.pending()][-1] == ("zoe", "1.2")


def test_an_agent_asks_beside_its_session_and_without_one(place: SessionSpace, scout: clia.Space) -> None:
    first = scout.ask("scout", {"question": "May I?", "choices": ["yes", "no"]})
    assert (first.id, first.kind, first.session, first.flow) == ("ask-1.1", "human", "ask-1", "ask")
    assert first.payload == {"question": "May I?", "choices": ["yes", "no"]}
    assert scout.sessions() == []
    refused("no-such-session", lambda: scout.session("scout"))
    scout.start("scout", "product")
    second = scout.ask("scout", {"question": "And now?"})
    assert [request.id for request in scout.pending()] == ["ask-1.1", "1.1", "ask-2.1"]
    refused("several-requests", lambda: scout.decide("scout", "yes"))
    assert scout.resume("scout", 5).id == "1", "separate questions do not make an answer ambiguous"
    refused("invalid-answer", lambda: scout.decide("scout", "maybe", request_id=first.id))
    decision = scout.decide("scout", "yes", "go", request_id=first.id)
    assert (decision.session.id, decision.session.result, decision.session.status) == ("ask-1", "yes", "finished")
    assert scout.session("scout", "ask-1").decisions == [(0, decision.cid)]
    assert scout.session("scout").id == "1"
    assert scout.resume("scout", 6).result == 30
    assert scout.decide("scout", ["anything"]).request == second.id
    assert ends(place.root, "scout") == [("1", "finished")]


def test_a_decision_is_a_commit_over_the_parents_tree_and_then_a_resume(place: SessionSpace, scout: clia.Space) -> None:
    head = scout.commit("scout", "finding", {"a": b"1", "b/c": b"2"})
    scout.start("scout", "approval", {"goal": "tidy"})
    scout.resume("scout", "sweep")
    scout.trace("scout", "console", "said before")
    decision = scout.decide("scout", "approve", "A good plan.\n\nIt is short.", by="Ann <ann@example.org>")
    assert scout.head("scout") == decision.cid
    assert (decision.agent, decision.request, decision.value, decision.by) == ("scout", "1.2", "approve", "Ann <ann@example.org>")
    assert decision.session.status == "finished"
    commit = scout.show(decision.cid)
    assert (commit.kind, commit.parents, commit.message) == ("decision", (head,), "A good plan.\n\nIt is short.")
    assert (commit.request, commit.tag, commit.value, commit.by) == ("1.2", "go-on", '"approve"', "Ann <ann@example.org>")
    assert commit.behaviour == scout.sessions.flow("approval").cid
    committer = commit.committer
    assert (commit.author.name, committer.name, committer.email) == ("scout", "Ann", "ann@example.org")
    asked = {"question": "Go on?", "plan": "sweep", "choices": ["approve", "reject"]}
    assert commit.meta == {"asked": asked, "kind": "human"}
    assert git("rev-parse", f"{decision.cid}^{{tree}}", cwd=place.root) == git("rev-parse", f"{head}^{{tree}}", cwd=place.root)
    bound = scout.traces.of(decision.cid)
    assert bound is not None
    trace_texts = texts(bound.entries)
    assert trace_texts[-1] == "said before"
    assert [text for text in trace_texts if "waits for human (1.2)" in text]
    (entry,) = scout.traces.pending("scout")
    assert entry["data"] == {"session": "1", "status": "finished", "request": "1.2", "decision": decision.cid}
    assert decision.session.decisions == [(1, decision.cid)]
    assert decision.session.resumes == ["sweep", "approve"]
    assert ends(place.root, "scout") == [("1", "finished")]
    assert scout.verify().clean


@pytest.mark.parametrize(
    ("payload", "asked_for"),
    [
        (
            {"question": "Which?", "choices": [1, "b"], "context": {"a": [None]}},
            {"question": "Which?", "choices": [1, "b"], "context": {"a": [None]}},
        ),
        ({"question": "q" * 2000, "log": "x" * 9000}, {"question": "q" * 1000}),
        ({"question": "Deploy?", "with": FAKES[0].text}, None),
    ],
    ids=["whole", "too long", "with a secret"],
)
def test_a_decision_records_the_question(scout: clia.Space, payload: dict[str, Any], asked_for: Any) -> None:
    """The journal has answers only, and is lost with the store."""
    request = scout.ask("scout", payload)
    commit = scout.show(scout.decide("scout", 1, request_id=request.id).cid)
    if asked_for is None:
        assert commit.meta["asked"]["question"] == "Deploy?"
        assert FAKES[0].secret not in json.dumps(commit.meta)
    else:
        assert commit.meta["asked"] == asked_for
        assert commit.meta.get("cut", False) == (asked_for != payload)


def test_an_answer_is_stored_redacted_and_the_secrets_are_counted(scout: clia.Space) -> None:
    secret = FAKES[0].text
    scout.ask("scout", {"question": "Which key?"})
    decision = scout.decide("scout", {"key": secret})
    assert (decision.value, decision.redacted, decision.session.redacted) == ({"key": "[redacted:github-token]"}, 1, 1)
    assert decision.session.result == decision.value
    started = scout.start("scout", "product", {"note": secret})
    assert (started.redacted, scout.resume("scout", secret).redacted) == (1, 2)


def test_an_answer_to_a_request_with_secret_keep_is_stored_unchanged(scout: clia.Space) -> None:
    secret = FAKES[0].text
    payload = {"question": "Which key?", "secret": "keep"}
    assert scout.ask("scout", payload).payload == payload
    decision = scout.decide("scout", {"key": secret})
    assert (decision.value, decision.redacted, decision.session.result) == ({"key": secret}, 0, {"key": secret})
    assert secret not in scout.show(decision.cid).message


def test_a_decision_without_a_reason_has_a_default_message(scout: clia.Space) -> None:
    scout.ask("scout", {"question": "?"})
    assert scout.show(scout.decide("scout", {"a": 1}).cid).message == 'decision: {"a": 1} (human ask-1.1)'


def test_the_checkpoint_of_a_decision_is_the_state_before_its_answer(scout: clia.Space) -> None:
    scout.start("scout", "approval", {"goal": "tidy"})
    scout.resume("scout", "sweep")
    before = pending_requests(scout.session("scout"))
    decision = scout.decide("scout", "reject")
    assert decision.session.result == {"status": "rejected"}
    forked = scout.fork("scout", "again", decision.cid)
    assert pending_requests(forked) == before
    assert forked.resumes == ["sweep"]
    assert scout.decide("again", "approve").session.result == {"status": "done", "plan": "sweep"}


def test_a_second_decision_is_refused_with_the_first_and_leaves_nothing(scout: clia.Space) -> None:
    scout.start("scout", "approval", {"goal": "tidy"})
    scout.resume("scout", "sweep")
    decision = scout.decide("scout", "approve", by="Ann", request_id="1.2")
    before = told(scout)
    error = refused("stale-request", lambda: scout.decide("scout", "reject", by="Bob", request_id="1.2"))
    assert isinstance(error, errors.StaleRequest)
    assert error.answered_by == "Ann"
    assert (error.fields["value"], error.fields["decision"]) == ("approve", decision.cid)
    assert told(scout) == before


@local_only  # over HTTP it is the logged-in user
@pytest.mark.parametrize("by", ["", "  ", "two\nlines", "a\rb"], ids=repr)
def test_the_author_of_a_decision_is_one_line(scout: clia.Space, by: str) -> None:
    scout.ask("scout", {"question": "?"})
    before = told(scout)
    refused("invalid-by", lambda: scout.decide("scout", 1, by=by))
    assert told(scout) == before


def test_a_decision_without_a_request_id_answers_the_only_question_to_people(scout: clia.Space) -> None:
    source = "import asyncio\n\nasync def main(input):\n    return await asyncio.gather(request('machine'), request('human'))\n"
    scout.sessions.define("both", source)
    scout.start("scout", "both")
    refused("several-requests", lambda: scout.resume("scout", 1))
    assert scout.decide("scout", "yes").request == "1.2"
    assert scout.resume("scout", 1).result == [1, "yes"]


def test_a_question_with_any_tag_can_be_decided(scout: clia.Space, subtests: pytest.Subtests) -> None:
    scout.sessions.define("tagged", "def main(input):\n    return request('human', None, tag=input)\n")
    for tag in (" ", "two\nlines", "a\0b", "\x1b[1m", "\u2028", "é: x", "Clia-Value: forged"):
        with subtests.test(ascii(tag)):
            (request,) = scout.start("scout", "tagged", tag).pending
            assert request.tag == tag
            decision = scout.decide("scout", "yes")
            assert decision.session.result == "yes"
            commit = scout.show(decision.cid)
            assert (commit.value, commit.request) == ('"yes"', request.id)
    assert scout.verify().clean


@local_only  # over HTTP it is the logged-in user
@pytest.mark.parametrize("by", ["Ann\x0bB", "Ann\x85B", "Ann\u2028B", "Ann: B", "é" * 200], ids=ascii)
def test_the_author_of_a_decision_is_read_back_unchanged(scout: clia.Space, by: str) -> None:
    scout.ask("scout", {"question": "?"})
    decision = scout.decide("scout", 1, by=by)
    assert scout.show(decision.cid).by == decision.by == by
    assert scout.verify().clean


DECIDED_VALUES: list[Any] = ["two\nlines", "a\0b", "\u2028\x85\x1b", "---", "x" * 500_000, {"deep": [[[[{"er": []}]]]]}]
DECIDED_VALUES += ["", [], {}, None, False, 0]


def test_any_value_can_be_decided_and_is_read_back_from_the_commit(scout: clia.Space, subtests: pytest.Subtests) -> None:
    for value in DECIDED_VALUES:
        with subtests.test(ascii(value)[:20]):
            scout.ask("scout", {"question": "?"})
            decision = scout.decide("scout", value)
            assert decision.session.result == decision.value == value
            assert json.loads(scout.show(decision.cid).value or "") == value
    assert scout.verify().clean


def test_threads_that_share_a_handle_answer_each_request_once(scout: clia.Space) -> None:
    scout.start("scout", "parts", 12)
    together = threading.Barrier(6)
    losses: set[tuple[int, str | None]] = set()

    def race(number: int) -> list[str]:
        together.wait()
        won = []
        for call in range(1, 13):
            try:
                scout.resume("scout", number, f"1.{call}", by=f"thread {number}")
                won.append(f"1.{call}")
            except errors.StaleRequest as err:
                losses.add((number, err.answered_by))
        return won

    with ThreadPoolExecutor(6) as pool:
        won = [win for wins in pool.map(race, range(6)) for win in wins]
    assert sorted(won) == sorted(f"1.{call}" for call in range(1, 13))
    assert len(scout.session("scout").resumes) == 12
    assert not losses & {(number, f"thread {number}") for number in range(6)}
    assert losses
    assert scout.verify().clean


# Valid answers

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}
LOCAL = {"$defs": {"name": {"type": "string"}}, "$ref": "#/$defs/name"}


ANSWERS: list[tuple[Any, list[Any], list[Any]]] = [  # payload, valid answers, invalid answers
    ({"choices": ["a", "b"]}, ["a", "b"], ["c", None, 0, ["a"], "A", "a "]),
    ({"choices": [1, True, None]}, [1, 1.0, True, None], [False, 0, "1", 2]),
    ({"choices": [0]}, [0], [False, None, ""]),
    ({"choices": [{"a": 1}, []]}, [{"a": 1}, []], [{}, {"a": 1, "b": 2}, {"a": True}]),
    ({"choices": []}, ["anything"], []),
    ({"choices": "ab"}, ["anything"], []),
    ({"schema": SCHEMA}, [{"age": 3}, {"age": 0, "more": "x"}], [{"age": -1}, {}, "3", None, {"age": "3"}, {"age": True}]),
    ({"schema": SCHEMA, "choices": ["a"]}, [{"age": 3}], ["a"]),
    ({"schema": LOCAL}, ["x"], [1]),
    ({"schema": {"enum": ["x"]}}, ["x"], ["y"]),
    ({"schema": {"type": "boolean"}}, [True, False], [1, 0, "true"]),
    ({"schema": True}, ["anything"], []),
    ({"schema": False}, [], ["anything"]),
    ({"schema": {"type": "nonsense"}}, ["anything"], []),
    ({"schema": {"type": 3}}, ["anything"], []),
    ({"schema": "text"}, ["anything"], []),
    ({"schema": {"pattern": "("}}, ["anything"], []),
    ({"schema": {"$ref": "https://schemas.invalid/person.json"}}, ["anything"], []),
    ({"schema": {"$ref": "file:///etc/passwd"}}, ["anything"], []),
    ({"schema": {"$ref": "#/nowhere"}}, ["anything"], []),
    ({"schema": {"$ref": "#"}}, ["anything"], []),
    ({"question": "?"}, ["anything", None, [1, {}]], []),
    (None, ["anything"], []),
    (["choices"], ["anything"], []),
]


@pytest.mark.parametrize("place", [*STORES, "remote"], indirect=True)
def test_an_answer_must_be_valid_for_the_request(scout: clia.Space, subtests: pytest.Subtests) -> None:
    scout.sessions.define("question", QUESTION)
    for row, (payload, good, bad) in enumerate(ANSWERS):
        (request,) = scout.start("scout", "question", {"payload": payload}).pending
        before = told(scout)
        with subtests.test(json.dumps(payload)[:40]):
            for value in bad:
                error = refused("invalid-answer", lambda value=value: scout.decide("scout", value))  # type: ignore[misc]
                assert isinstance(error, errors.InvalidAnswer)
                assert error.fields["request"] == request.id
                assert error.fields["problem"]
            assert told(scout) == before
            for number, value in enumerate(good):
                scout.fork("scout", f"fork-{row}-{number}")
                assert scout.decide(f"fork-{row}-{number}", value).session.result == value
        scout.cancel("scout")


def test_the_operators_schema_has_precedence_over_the_request(place: SessionSpace) -> None:
    text = '[answers.human]\nschema = { enum = ["approve", "reject"] }\n[answers.human-age]\nschema = { type = "integer" }\n'
    with place.configured(text).open() as space:
        with_agents(space, "scout", question=QUESTION)
        space.start("scout", "question", {"payload": {"choices": ["yes", "no"]}})
        error = refused("invalid-answer", lambda: space.decide("scout", "yes"))
        assert '"approve"' in error.hints[0]
        assert space.decide("scout", "approve").session.result == "approve"
        space.start("scout", "question", {"kind": "human-age", "payload": {"schema": {"type": "string"}}})
        refused("invalid-answer", lambda: space.decide("scout", "old"))
        assert space.decide("scout", 40).session.result == 40
        space.start("scout", "question", {"kind": "human-other", "payload": {"choices": ["yes"]}})
        refused("invalid-answer", lambda: space.decide("scout", "approve"))
        assert space.decide("scout", "yes").session.result == "yes"


# Commits, traces, events


def test_commits_of_a_live_session_name_its_flow_and_later_ones_do_not(scout: clia.Space) -> None:
    cid = scout.sessions.flow("product").cid
    assert scout.show(scout.commit("scout", "finding", changes={"a": b"0"})).behaviour is None
    scout.start("scout", "product")
    assert scout.show(scout.commit("scout", "finding", changes={"a": b"1"})).behaviour == cid
    scout.resume("scout", 1)
    assert scout.show(scout.commit_with_trace("scout", "finding", changes={"a": b"2"})).behaviour == cid
    scout.resume("scout", 2)
    assert scout.show(scout.commit("scout", "finding", changes={"a": b"3"})).behaviour is None
    scout.ask("scout", {"question": "?"})
    assert scout.show(scout.commit("scout", "finding", changes={"a": b"4"})).behaviour is None, "a question is not a session"


def test_every_kind_of_commit_writes_a_checkpoint_while_a_session_is_live(place: SessionSpace, scout: clia.Space) -> None:
    scout.commit("scout", "finding", {"a": b"1\n"})
    with_agents(scout)
    scout.spawn_from("helper", BRIEFING, "scout")
    scout.commit("helper", "finding", changes={"b": b"1\n"})
    scout.sessions.define("product", SUSPENDS)
    scout.start("scout", "product")
    commits = {"commit": scout.commit("scout", "finding", changes={"c": b"1\n"})}
    commits["with trace"] = scout.commit_with_trace("scout", "finding", changes={"c": b"2\n"})
    merged = scout.merge("scout", "helper")
    assert isinstance(merged, clia.Merged)
    commits["merge"] = merged.cid
    scout.commit("helper", "finding", changes={"a": b"theirs\n"})
    commits["another"] = scout.commit("scout", "finding", changes={"a": b"ours\n"})
    conflict = scout.merge("scout", "helper")
    assert isinstance(conflict, clia.Conflicts)
    resolved = scout.resolve("scout", "helper", changes={"a": b"both\n"}, ours=conflict.ours, theirs=conflict.theirs)
    commits["resolve"] = resolved.cid
    if local_of(scout) is scout:
        directory = place.root.parent / "directory"
        directory.mkdir()
        (directory / "d").write_text("1\n")
        commits["directory"] = scout.commit_dir("scout", "finding", directory, base=scout.head("scout"))
    commits["decision"] = scout.decide("scout", 5, request_id="1.1").cid
    noted = set(git("notes", "--ref=clia/session/scout", "list", cwd=place.root).split()[1::2])
    assert noted == set(commits.values())
    for number, cid in enumerate(commits.values()):
        forked = scout.fork("scout", f"fork-{number}", cid)
        assert pending_requests(forked) == [("1", "suspend", {"which": "one"}, 2)]
        assert scout.files(f"fork-{number}") == scout.files(cid)


def test_a_trace_has_the_steps_of_a_session_and_the_output_of_its_flow(scout: clia.Space) -> None:
    scout.start("scout", "approval", {"goal": "tidy"})
    scout.resume("scout", "sweep")
    scout.cancel("scout", "enough")
    entries = scout.traces.pending("scout")
    assert [(entry["kind"], entry["text"].split(";")[0]) for entry in entries] == [
        ("flow", "planning tidy\n"),
        ("session", f"session 1 started: flow approval ({scout.sessions.flow('approval').cid[:12]})"),
        ("session", "session 1 resumed: llm (1.1) answered by Tess <tess@example.org>"),
        ("session", "session 1 cancelled by Tess <tess@example.org>"),
    ]
    assert [entry.get("data", {}).get("status") for entry in entries] == [None, "suspended", "suspended", "cancelled"]
    assert entries[-1]["text"].endswith("cancelled: enough")
    commit = scout.commit_with_trace("scout", "finding", changes={"a": b"1"})
    bound = scout.traces.of(commit)
    assert bound is not None
    assert list(bound.entries) == entries


def test_replaying_prints_nothing_again(place: SessionSpace, scout: clia.Space) -> None:
    scout.sessions.define("loud", "def main(input):\n    for n in range(9):\n        print('turn', n)\n        request('go', n)\n")
    scout.start("scout", "loud")
    for _ in range(9):
        with place.open() as second:
            second.resume("scout", None)
    printed = [entry["text"] for entry in scout.traces.pending("scout") if entry["kind"] == "flow"]
    assert printed == [f"turn {n}\n" for n in range(9)]


def test_each_end_of_a_session_is_one_event_in_git(place: SessionSpace) -> None:
    with place.configured("[flows]\nturn_seconds = 0.3\n").open() as space:
        with_agents(space, "scout", product=SUSPENDS, fails="def main(input):\n    return 1 // 0\n")
        space.start("scout", "product")
        space.resume("scout", 1)
        space.resume("scout", 2)
        space.start("scout", "fails")
        space.start("scout", "product")
        space.cancel("scout", "enough")
        space.start("scout", "product")
        space.resume("scout", 1)
        space.decide("scout", 2)
        space.start("scout", "product")
        assert ends(place.root, "scout") == [("1", "finished"), ("2", "failed"), ("3", "cancelled"), ("4", "finished")]
        first, second, *_ = events(place.root, "scout")
        assert {key: first[key] for key in ("event", "agent", "name", "resumes")} == {
            "event": "session-ended",
            "agent": "scout",
            "name": "product",
            "resumes": 2,
        }
        assert first["flow"] == space.sessions.flow("product").cid
        assert first["started_at"] == space.session("scout", "1").started_at
        assert first["ended_at"] == space.session("scout", "1").ended_at
        assert "reason" not in first
        assert "ZeroDivisionError" in second["reason"]


# Forks


def test_a_fork_is_a_separate_agent_in_the_same_state(place: SessionSpace, scout: clia.Space) -> None:
    scout.commit("scout", "finding", {"a": b"1"})
    scout.start("scout", "parts", 2)
    scout.resume("scout", "x", "1.2")
    forked = scout.fork("scout", "other")
    assert pending_requests(forked) == pending_requests(scout.session("scout")) == [("1", "part", {"n": 0}, 4)]
    assert (forked.input, forked.started_at) == (2, scout.session("scout").started_at)
    assert forked.forked is not None
    head = scout.head("scout")
    assert {key: forked.forked[key] for key in ("agent", "session", "commit")} == {"agent": "scout", "session": "1", "commit": head}
    genesis = scout.show(scout.head("other"))
    assert (genesis.kind, genesis.parents, genesis.parent) == ("spawn", (head,), "scout")
    assert genesis.forked == "scout session 1 after 1 resumes"
    assert scout.files("other") == {"a": b"1"}
    assert scout.agents.briefing("other") == BRIEFING
    assert scout.relations.sub_agents("scout") == ["other"]
    scout.resume("other", "y")
    assert pending_requests(scout.session("scout")) == [("1", "part", {"n": 0}, 4)]
    with place.open() as again:
        assert again.session("other").to_json() == scout.session("other").to_json()
        assert again.resume("other", "z").result == {"parts": ["y", "x"], "last": "z"}
    assert scout.verify().clean


def test_forks_and_forks_of_forks_are_independent(scout: clia.Space) -> None:
    scout.sessions.define("counting", COUNTING)
    scout.start("scout", "counting", 7)
    for value in range(5):
        scout.resume("scout", value)
    scout.fork("scout", "a")
    scout.fork("scout", "b")
    scout.resume("a", 100)
    scout.fork("a", "c")
    at = scout.commit("a", "finding", changes={"x": b"1"})
    scout.resume("c", 1000)
    assert scout.resume("a", 1).result == 111
    scout.fork("a", "d", at)
    assert scout.session("d").resumes == [0, 1, 2, 3, 4, 100]
    assert scout.resume("d", 2).result == 112
    scout.resume("b", 0)
    assert scout.resume("b", 0).result == 10
    assert scout.session("c").result == 1110
    assert scout.session("scout").resumes == [0, 1, 2, 3, 4]


def test_a_refused_fork_leaves_nothing(scout: clia.Space) -> None:
    with_agents(scout, "idle")
    early = scout.commit("scout", "finding", changes={"a": b"1"})
    scout.start("scout", "product")
    late = scout.commit("scout", "finding", changes={"a": b"2"})
    other_cid = scout.commit("idle", "finding", changes={"a": b"2"})
    before = told(scout)
    refused("already-exists", lambda: scout.fork("scout", "idle"))
    refused("same-agent", lambda: scout.fork("scout", "scout"))
    refused("no-such-session", lambda: scout.fork("idle", "new"))
    refused("not-in-history", lambda: scout.fork("scout", "new", other_cid))
    refused("no-such-object", lambda: scout.fork("scout", "new", "0" * 40))
    error = refused("no-checkpoint", lambda: scout.fork("scout", "new", scout.agents.genesis("scout")))
    assert error.fields == {"agent": "scout", "commit": scout.agents.genesis("scout")}
    refused("no-checkpoint", lambda: scout.fork("idle", "new", other_cid))
    assert scout.agents() == ["idle", "scout"]
    assert told(scout) == before
    assert scout.fork("scout", "started", early).resumes == [], "the session started on this commit"
    assert scout.fork("scout", "later", late[:12]).resumes == []


def test_an_ended_session_can_be_forked_only_from_its_commits(scout: clia.Space) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 15)
    at = scout.commit("scout", "finding", changes={"a": b"1"})
    scout.resume("scout", 3)
    refused("no-such-session", lambda: scout.fork("scout", "new"))
    assert scout.fork("scout", "other", at).resumes == [15]
    assert scout.resume("other", 100).result == 1500
    scout.agents.archive("scout")
    assert scout.fork("scout", "third", at).resumes == [15], "the history of an archived agent remains"


def random_run(space: clia.Space, turns: int = 3) -> dict[str, list[Any]]:
    """A run with random numbers, clock and concurrent requests, with a commit in every state; the pending requests by commit."""
    space.commit("scout", "finding", changes={"begun": b""})
    stood = {str(space.head("scout")): pending_requests(space.start("scout", "chance", {"turns": turns}))}

    def commit() -> None:
        waits = pending_requests(space.session("scout"))
        stood[space.commit("scout", "finding", changes={"at": str(len(stood)).encode()})] = waits

    while space.session("scout").live:
        commit()
        waits = pending_requests(space.session("scout"))
        number, kind = waits[-1][:2]  # the last one first, not in the order of the requests
        if kind == "human":
            decision = space.decide("scout", answer(kind, number), request_id=f"1.{number}")
            stood[decision.cid] = waits
        else:
            space.resume("scout", answer(kind, number), f"1.{number}")
    return stood


def answer(kind: str, number: str) -> Any:
    return {"kind": kind, "number": number, "share": 0.1 * int(number)}


def finished_the_same_way(space: clia.Space, name: str) -> Any:
    while space.session(name).live:
        number, kind = pending_requests(space.session(name))[-1][:2]
        verb = space.decide if kind == "human" else space.resume
        verb(name, answer(kind, number), request_id=f"1.{number}")
    return space.session(name).result


def test_a_fork_from_every_commit_has_the_original_state_without_store_and_dumps(place: SessionSpace) -> None:
    with place.open() as space:
        with_agents(space, "scout", chance=CHANCE)
        stood = random_run(space)
        result = space.session("scout").result
        assert len(stood) == 1 + 3 * 4
        assert len({json.dumps(waits_at) for waits_at in stood.values()}) == 3 * 3, "it has nine states"
    place.lose_store()
    with place.open() as space:
        assert space.sessions() == []
        for number, (commit, waits) in enumerate(stood.items()):
            forked = space.fork("scout", f"fork-{number}", commit)
            assert pending_requests(forked) == waits
            assert finished_the_same_way(space, f"fork-{number}") == result
        assert space.verify().clean


# Clones


def another_clone(place: SessionSpace, scout: clia.Space, home: Path) -> clia.Space:
    """The space of another user, who cloned the published refs of scout."""
    hub = home / "hub"
    git("init", "-q", "--bare", str(hub), cwd=home)
    git("remote", "add", "origin", str(hub), cwd=place.root)
    scout.publish(["scout"])
    git("clone", "-q", str(hub), str(home / "clone"), cwd=home)
    return clia.init(home / "clone", settings=settings())


def test_a_session_can_be_forked_in_another_clone(place: SessionSpace, scout: clia.Space, tmp_path: Path) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 15)
    at = scout.commit("scout", "finding", changes={"a": b"1"})
    with another_clone(place, scout, tmp_path) as clone:
        assert [flow.name for flow in clone.sessions.flows()] == ["approval", "parts", "product"]
        refused("foreign-agent", lambda: clone.start("scout", "product"))
        forked = clone.fork("scout", "mine", at)
        assert (forked.resumes, pending_requests(forked)) == ([15], pending_requests(scout.session("scout")))
        assert clone.resume("mine", 100).result == 1500
        assert clone.verify().clean
        clone.publish(["mine"])
    assert scout.resume("scout", 3).result == 45
    scout.adopt()
    assert ends(place.root, "mine") == [("1", "finished")]
    assert scout.fork("mine", "back", scout.agents.genesis("mine")).resumes == [15]


def test_session_numbers_continue_when_an_agent_moves_to_another_clone(
    place: SessionSpace, scout: clia.Space, tmp_path: Path
) -> None:
    scout.sessions.define("product", SUSPENDS)
    scout.start("scout", "product")
    scout.cancel("scout")
    scout.start("scout", "product")
    scout.decide("scout", 1)
    scout.cancel("scout")
    with another_clone(place, scout, tmp_path) as clone:
        clone.agents.claim("scout")
        assert clone.sessions("scout") == []
        assert clone.start("scout", "product").id == "3"
        clone.cancel("scout")
        assert [session for session, _ in ends(tmp_path / "clone", "scout")] == ["1", "2", "3"]


def test_pending_requests_can_be_listed_in_a_read_only_space(
    place: SessionSpace, scout: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    scout.start("scout", "product")
    scout.ask("scout", {"question": "?"})
    locks = place.root / ".git/clia/locks"
    shutil.rmtree(locks)
    locks.write_text("nobody can lock anything here")
    assert [request.id for request in scout.pending()] == ["1.1", "ask-1.1"]
    with place.open() as second:
        assert [request.id for request in second.pending()] == ["1.1", "ask-1.1"]
        assert second.session("scout").status == "suspended"
