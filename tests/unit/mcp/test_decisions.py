"""Questions to people over MCP: the request is recorded before the form is shown, and is answered only once."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitResult, InputRequiredResult

import clia
from clia.mcp import decisions, http
from clia.mcp.calls import Caller, SpaceContext, ToolCall, WaitSlots
from clia.mcp.server import server_of
from clia.trust.passkeys import Passkey, PasskeyPlace
from clia.users.service import User
from support.authenticator import SoftAuthenticator, b64url
from support.fake_secrets import FAKES
from support.mcp_client import LEGACY, MODERN, PROTOCOLS, FormUser, fails, says, talking
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mcp_types import ElicitRequestParams

TESS, VERA = "Tess <tess@example.org>", "Vera <vera@example.org>"
GO = {"question": "Go on?", "choices": ["yes", "no"]}


class DecisionDesk(NamedTuple):
    """A space with an agent and its server, and a second handle on the space, as for an inbox."""

    space: clia.Space
    inbox: clia.Space
    root: Path

    def server(self, secret: str = "s" * 32) -> Any:
        place = SpaceContext(str(self.root), lambda: self.space, agent="scout", address=lambda _: "http://forge.example/s/repo")
        return server_of(place, "1", lambda _: Caller(), RequestStateSecurity(keys=[secret]))

    def pending(self) -> list[str]:
        return [request.id for request in self.inbox.pending("scout")]

    def decisions(self) -> list[Any]:
        return [(entry.by, entry.value) for entry in self.inbox.history.own("scout") if entry.kind == "decision"]

    def ask(self, protocol: str, person: FormUser | None, **args: Any) -> dict[str, Any]:
        async def main() -> dict[str, Any]:
            async with talking(self.server(), protocol, person) as driver:
                return await driver.do("request_decision", **(args or GO))

        return anyio.run(main)


@pytest.fixture
def desk(space: clia.Space, repo: Path) -> Iterator[DecisionDesk]:
    with clia.open(repo, settings=settings()) as inbox:
        yield DecisionDesk(space, inbox, repo)


both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_completed_form_is_a_decision_of_the_accountable_person(desk: DecisionDesk, protocol: str) -> None:
    person = says({"answer": "no", "rationale": "too early"})
    outcome = desk.ask(protocol, person, context={"risk": "high"}, **GO)
    assert (outcome["status"], outcome["value"], outcome["by"], outcome["rationale"]) == ("decided", "no", TESS, "too early")
    (form,) = person.shown
    assert "Go on?" in form.message
    assert "risk: high" in form.message
    assert (desk.pending(), desk.decisions()) == ([], [(TESS, '"no"')])


@both
def test_a_form_proves_nothing_where_people_have_enrolled_keys(desk: DecisionDesk, protocol: str) -> None:
    """An agent's own client could fill it in."""
    key = SoftAuthenticator("http://localhost", "localhost")
    passkey = Passkey(b64url(key.credential), key.public, PasskeyPlace("localhost", ("http://localhost",)))
    desk.inbox.trust.enrol_key(passkey.enrolled(TESS, ("owner",)), TESS)
    outcome = desk.ask(protocol, says({"answer": "yes"}))
    assert outcome["status"] == "held"
    assert desk.pending() == ["ask-1.1"]
    assert desk.decisions() == []


@both
@pytest.mark.parametrize(("action", "outcome_text"), [("decline", "declined"), ("cancel", "dismissed")])
def test_a_declined_form_is_not_an_answer(desk: DecisionDesk, protocol: str, action: str, outcome_text: str) -> None:
    outcome = desk.ask(protocol, says(action=action))
    assert (outcome["status"], outcome["value"], outcome["not_now"]) == ("held", None, f"the form was {outcome_text}")
    assert (desk.pending(), desk.decisions()) == ([outcome["request"]], [])


@both
def test_an_invalid_answer_is_refused_with_the_reason(desk: DecisionDesk, protocol: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}, "required": ["n"]}
    for answer, reason in (('{"n": ["x"]}', "is not of type 'integer'"), ("[1", "is not JSON")):
        outcome = desk.ask(protocol, says({"answer": answer}), question="Which?", schema=schema)
        assert outcome["status"] == "held"
        assert reason in outcome["not_now"]
    outcome = desk.ask(protocol, says({"answer": '{"n": [1]}'}), question="Which?", schema=schema)
    assert (outcome["status"], outcome["value"]) == ("decided", {"n": [1]})
    assert len(desk.decisions()) == 1


@both
def test_a_client_without_forms_gets_the_inbox_and_polls(desk: DecisionDesk, protocol: str) -> None:
    async def main() -> None:
        async with talking(desk.server(), protocol) as driver:
            outcome = await driver.do("request_decision", **GO)
            assert (outcome["status"], outcome["url"]) == ("held", "http://forge.example/s/repo/inbox/scout/ask-1.1")
            assert "clia decide scout --request ask-1.1" in outcome["how"]
            assert await driver.do("request_decision", **GO) == outcome, "the same question must not be asked twice"
            (request,) = (await driver.do("pending"))["requests"]
            assert (request["question"], request["url"], request["rule"]["choices"]) == ("Go on?", outcome["url"], ["yes", "no"])
            assert (await driver.do("decision", request="ask-1.1"))["status"] == "held"
            await driver.refused("human-request", "resume", value="yes", request_id="ask-1.1")
            desk.inbox.decide("scout", "yes", "fine", by=VERA)
            decided = await driver.do("decision", request="ask-1.1")
            assert (decided["status"], decided["value"], decided["by"], decided["rationale"]) == ("decided", "yes", VERA, "fine")

    anyio.run(main)


@both
def test_a_faster_answer_in_the_inbox_wins_and_nothing_is_decided_twice(desk: DecisionDesk, protocol: str) -> None:
    async def late(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "no", by=VERA))
        return ElicitResult(action="accept", content={"answer": "yes"})

    outcome = desk.ask(protocol, FormUser(late))
    assert (outcome["status"], outcome["value"], outcome["by"]) == ("decided", "no", VERA)
    assert desk.decisions() == [(VERA, '"no"')]


def test_an_answer_in_the_inbox_closes_an_open_form(desk: DecisionDesk) -> None:
    """In the older protocol the call waits while the form is open: it must not block then."""

    async def never(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "no", by=VERA))
        await anyio.sleep_forever()
        raise AssertionError

    assert desk.ask(LEGACY, FormUser(never))["by"] == VERA


def test_an_ignored_form_times_out_and_the_request_stays_pending(desk: DecisionDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "FORM_SECONDS", 0.0)

    async def never(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.sleep_forever()
        raise AssertionError

    outcome = desk.ask(LEGACY, FormUser(never))
    assert (outcome["status"], outcome["not_now"]) == ("held", "the form was not filled in")
    assert desk.pending() == [outcome["request"]]


def test_the_rounds_of_one_call_may_go_to_two_processes(desk: DecisionDesk) -> None:
    async def main() -> None:
        async with talking(desk.server(), MODERN, says()) as first_client, talking(desk.server(), MODERN, says()) as second_client:
            first = await first_client.client.session.call_tool("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            assert desk.pending() == ["ask-1.1"]
            responses: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
            state = first.request_state
            assert state is not None
            second = await second_client.client.session.call_tool(
                "request_decision", dict(GO), input_responses=responses, request_state=state, allow_input_required=True
            )
            assert not isinstance(second, InputRequiredResult)
            assert getattr(second, "structured_content", {})["value"] == "yes"
            replayed = await second_client.client.session.call_tool(
                "request_decision", dict(GO), input_responses=responses, request_state=state, allow_input_required=True
            )
            assert getattr(replayed, "structured_content", {})["value"] == "yes"

    anyio.run(main)
    assert desk.decisions() == [(TESS, '"yes"')]


def test_state_sealed_for_one_space_of_a_forge_is_refused_by_another(desk: DecisionDesk) -> None:
    """The spaces of a forge share a secret, so the sealed state includes the space's name."""
    places = {name: SpaceContext(str(desk.root), lambda: desk.space, agent="scout") for name in ("one", "two")}
    options = http.EndpointOptions("http://forge.example", "s" * 32, 1 << 20, "1", lambda name: User(name, "admin"))
    first_server, second_server = http.Endpoint(places, options, lambda _: User("tess", "admin")).servers.values()

    async def main() -> None:
        async with talking(first_server, MODERN, says()) as first_client, talking(second_server, MODERN, says()) as second_client:
            first = await first_client.client.session.call_tool("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            responses: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
            carried: Any = {"input_responses": responses, "request_state": first.request_state}
            assert (await fails(second_client.client.session.call_tool("request_decision", dict(GO), **carried))).code == -32602
            assert desk.decisions() == []
            result = await first_client.client.session.call_tool("request_decision", dict(GO), **carried)
            assert getattr(result, "structured_content", {})["value"] == "yes"

    anyio.run(main)


class WatchedLock:
    """A lock that sets an event when a thread has to wait for it."""

    def __init__(self, contended: threading.Event) -> None:
        self.lock, self.waits = threading.Lock(), contended

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.waits.set()
            self.lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()


def test_two_equal_concurrent_questions_are_one_request(desk: DecisionDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call starts when the first has just listed the pending requests; it must wait for the first."""
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout")
    waiting, pending, ids = threading.Event(), desk.space.pending, []
    monkeypatch.setattr(place, "asking", WatchedLock(waiting))

    def ask() -> None:
        ids.append(decisions.ask(ToolCall(place, Caller()), "scout", GO).id)
        waiting.set()

    second = threading.Thread(target=ask)

    def pending_slowly(agent: str) -> Any:
        requests = pending(agent)
        if second.ident is None:
            second.start()
            assert waiting.wait(60)
        return requests

    monkeypatch.setattr(desk.space, "pending", pending_slowly)
    ask()
    second.join(60)
    assert ids == ["ask-1.1", "ask-1.1"]
    assert desk.pending() == ["ask-1.1"]


def test_the_state_between_rounds_cannot_be_forged(desk: DecisionDesk) -> None:
    async def main() -> None:
        async with talking(desk.server(), MODERN, says()) as driver, talking(desk.server("o" * 32), MODERN, says()) as other_client:
            call = other_client.client.session.call_tool
            first = await call("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            for state in (first.request_state or "", "v1.AAAA", '{"agent": "scout", "request": "ask-1.1"}'):
                responses: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
                call_with_state = driver.client.session.call_tool(
                    "request_decision", dict(GO), input_responses=responses, request_state=state
                )
                assert (await fails(call_with_state)).code == -32602

    anyio.run(main)
    assert desk.decisions() == []


@both
def test_waiting_reports_progress_and_ends_with_the_answer(desk: DecisionDesk, protocol: str) -> None:
    async def main() -> None:
        async with talking(desk.server(), protocol) as driver, anyio.create_task_group() as group:
            outcome = await driver.do("request_decision", **GO)

            async def answer() -> None:
                while not driver.progress:
                    await anyio.sleep(0)
                await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "yes", by=VERA))

            group.start_soon(answer)
            decided = await driver.do("decision", request=outcome["request"], wait=600)
            assert (decided["status"], decided["by"]) == ("decided", VERA)
            assert set(driver.progress) == {"ask-1.1 is waiting for a person"}

    anyio.run(main)


@both
def test_a_waiting_call_returns_when_the_server_stops(desk: DecisionDesk, protocol: str) -> None:
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout")
    server = server_of(place, "1", lambda _: Caller(), RequestStateSecurity.ephemeral())

    async def main() -> None:
        async with talking(server, protocol) as driver, anyio.create_task_group() as group:

            async def stop() -> None:
                while not driver.progress:
                    await anyio.sleep(0)
                place.stopping = True

            group.start_soon(stop)
            assert (await driver.do("request_decision", wait=600, **GO))["status"] == "held"

    anyio.run(main)
    assert desk.pending() == ["ask-1.1"]


def test_a_call_does_not_wait_if_too_many_already_do(desk: DecisionDesk) -> None:
    """The call returns at once with the request held; otherwise each would keep a connection for ten minutes."""
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout", waits=WaitSlots(most=0))
    server = server_of(place, "1", lambda _: Caller(), RequestStateSecurity.ephemeral())

    async def main() -> None:
        for protocol, person in ((MODERN, None), (LEGACY, says({"answer": "yes"}))):
            async with talking(server, protocol, person) as driver:
                assert (await driver.do("request_decision", wait=600, **GO))["status"] == "held"
                assert person is None or person.shown == []

    anyio.run(main)
    assert desk.pending() == ["ask-1.1"]


@both
@pytest.mark.parametrize("now", [None, User("tess", "viewer")])
def test_a_user_who_lost_their_role_cannot_decide_in_an_open_form(desk: DecisionDesk, protocol: str, now: User | None) -> None:
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout")
    caller = Caller(User("tess", "admin"), lambda _: now)
    server = server_of(place, "1", lambda _: caller, RequestStateSecurity.ephemeral())

    async def main() -> None:
        async with talking(server, protocol, says({"answer": "yes"})) as driver:
            outcome = await driver.do("request_decision", **GO)
            assert outcome["status"] == "held"
            assert "no longer decide" in outcome["not_now"]

    anyio.run(main)
    assert desk.decisions() == []


def test_one_user_cannot_take_all_wait_slots() -> None:
    slots = WaitSlots(most=3, per_user=2)
    with ExitStack() as stack:
        granted = [stack.enter_context(slots.room(user)) for user in ("ada", "ada", "ada", "ben", "cleo")]
        assert granted == [True, True, False, True, False]
    with slots.room("ada") as slot:
        assert slot


def test_a_question_that_was_recorded_without_its_secret_is_not_asked_twice(desk: DecisionDesk) -> None:
    secret = FAKES[0].public + FAKES[0].secret
    question = f"Is {secret} still good?"
    outcomes = [desk.ask(MODERN, None, question=question) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert secret not in str(desk.inbox.pending("scout")[0].payload)


def test_the_outcome_of_cancelled_and_unknown_requests(desk: DecisionDesk) -> None:
    async def main() -> None:
        async with talking(desk.server()) as driver:
            outcome = await driver.do("request_decision", **GO)
            desk.inbox.cancel("scout", "moot", session_id=outcome["request"].partition(".")[0])
            cancelled = await driver.do("decision", request=outcome["request"])
            assert (cancelled["status"], cancelled["value"]) == ("over", None)
            await driver.refused("no-such-request", "decision", request="nonsense")
            await driver.refused("no-such-session", "decision", request="ask-9.1")

    anyio.run(main)


_INVALID_QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "question": lambda: {"question": " "},
    "context": lambda: {"question": "?", "context": {"choices": [1]}},
    "choices": lambda: {"question": "?", "choices": []},
    "schema": lambda: {"question": "?", "schema": {"type": "nonsense"}},
    "wait": lambda: {"question": "?", "wait": 1e9},
}


def test_an_invalid_question_is_refused_and_the_field_is_named(desk: DecisionDesk) -> None:
    async def main() -> None:
        async with talking(desk.server()) as driver:
            for field, arguments in _INVALID_QUESTIONS.items():
                code = "empty-question" if field == "question" else "invalid-field"
                assert (await driver.refused(code, "request_decision", **arguments()))["fields"]["field"] == field

    anyio.run(main)
    assert desk.pending() == []
