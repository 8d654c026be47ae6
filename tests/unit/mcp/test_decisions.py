"""Asking people over MCP: the request is written first, whatever becomes of the form, and is answered once, whoever answers."""

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
from clia.users.service import User
from support.fake_secrets import FAKES
from support.mcp_client import LEGACY, MODERN, PROTOCOLS, Person, fails, says, talking
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mcp_types import ElicitRequestParams

TESS, VERA = "Tess <tess@example.org>", "Vera <vera@example.org>"
GO = {"question": "Go on?", "choices": ["yes", "no"]}


class Desk(NamedTuple):
    """A space with an agent that has a server, and a second handle, as an inbox would have."""

    space: clia.Space
    inbox: clia.Space
    root: Path

    def server(self, secret: str = "s" * 32) -> Any:
        place = SpaceContext(str(self.root), lambda: self.space, agent="scout", address=lambda _: "http://forge.example/s/repo")
        return server_of(place, "1", lambda _: Caller(), RequestStateSecurity(keys=[secret]))

    def pending(self) -> list[str]:
        return [each.id for each in self.inbox.pending("scout")]

    def decisions(self) -> list[Any]:
        return [(each.by, each.value) for each in self.inbox.session_log("scout") if each.kind == "decision"]

    def ask(self, protocol: str, person: Person | None, **args: Any) -> dict[str, Any]:
        async def main() -> dict[str, Any]:
            async with talking(self.server(), protocol, person) as driver:
                return await driver.do("request_decision", **(args or GO))

        return anyio.run(main)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    root = tmp_path.resolve() / "repo"
    with clia.init(root, settings=settings()) as space, clia.open(root, settings=settings()) as inbox:
        space.spawn("scout", BRIEFING)
        yield Desk(space, inbox, root)


both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_form_that_is_filled_in_is_a_decision_of_the_accountable_person(desk: Desk, protocol: str) -> None:
    person = says({"answer": "no", "rationale": "too early"})
    made = desk.ask(protocol, person, context={"risk": "high"}, **GO)
    assert (made["status"], made["value"], made["by"], made["rationale"]) == ("decided", "no", TESS, "too early")
    (shown,) = person.shown
    assert "Go on?" in shown.message
    assert "risk: high" in shown.message
    assert (desk.pending(), desk.decisions()) == ([], [(TESS, '"no"')])


@both
@pytest.mark.parametrize(("action", "said"), [("decline", "declined"), ("cancel", "dismissed")])
def test_not_now_is_not_no(desk: Desk, protocol: str, action: str, said: str) -> None:
    made = desk.ask(protocol, says(action=action))
    assert (made["status"], made["value"], made["not_now"]) == ("held", None, f"the form was {said}")
    assert (desk.pending(), desk.decisions()) == ([made["request"]], [])


@both
def test_an_answer_that_the_request_does_not_take_is_refused_with_the_reason(desk: Desk, protocol: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}, "required": ["n"]}
    for given, reason in (('{"n": ["x"]}', "is not of type 'integer'"), ("[1", "is not JSON")):
        made = desk.ask(protocol, says({"answer": given}), question="Which?", schema=schema)
        assert made["status"] == "held"
        assert reason in made["not_now"]
    made = desk.ask(protocol, says({"answer": '{"n": [1]}'}), question="Which?", schema=schema)
    assert (made["status"], made["value"]) == ("decided", {"n": [1]})
    assert len(desk.decisions()) == 1


@both
def test_a_client_without_forms_gets_the_inbox_and_polls(desk: Desk, protocol: str) -> None:
    async def main() -> None:
        async with talking(desk.server(), protocol) as driver:
            held = await driver.do("request_decision", **GO)
            assert (held["status"], held["url"]) == ("held", "http://forge.example/s/repo/inbox/scout/ask-1.1")
            assert "clia decide scout --request ask-1.1" in held["how"]
            assert await driver.do("request_decision", **GO) == held, "the same question is not asked twice"
            (waits,) = (await driver.do("pending"))["requests"]
            assert (waits["question"], waits["url"], waits["rule"]["choices"]) == ("Go on?", held["url"], ["yes", "no"])
            assert (await driver.do("decision", request="ask-1.1"))["status"] == "held"
            await driver.refused("human-request", "resume", value="yes", request_id="ask-1.1")
            desk.inbox.decide("scout", "yes", "fine", by=VERA)
            done = await driver.do("decision", request="ask-1.1")
            assert (done["status"], done["value"], done["by"], done["rationale"]) == ("decided", "yes", VERA, "fine")

    anyio.run(main)


@both
def test_who_is_quicker_in_the_inbox_has_answered_and_nothing_is_decided_twice(desk: Desk, protocol: str) -> None:
    async def late(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "no", by=VERA))
        return ElicitResult(action="accept", content={"answer": "yes"})

    made = desk.ask(protocol, Person(late))
    assert (made["status"], made["value"], made["by"]) == ("decided", "no", VERA)
    assert desk.decisions() == [(VERA, '"no"')]


def test_an_answer_in_the_inbox_takes_an_open_form_away(desk: Desk) -> None:
    """In the older protocol the call goes on while the form is open: it must not hang there."""

    async def never(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "no", by=VERA))
        await anyio.sleep_forever()
        raise AssertionError

    assert desk.ask(LEGACY, Person(never))["by"] == VERA


def test_a_form_that_nobody_looks_at_ends_some_day_and_the_request_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "FORM_SECONDS", 0.0)

    async def never(params: ElicitRequestParams) -> ElicitResult:
        del params
        await anyio.sleep_forever()
        raise AssertionError

    made = desk.ask(LEGACY, Person(never))
    assert (made["status"], made["not_now"]) == ("held", "the form was not filled in")
    assert desk.pending() == [made["request"]]


def test_the_rounds_of_one_call_may_go_to_two_processes_and_ask_once(desk: Desk) -> None:
    async def main() -> None:
        async with talking(desk.server(), MODERN, says()) as one, talking(desk.server(), MODERN, says()) as two:
            first = await one.client.session.call_tool("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            assert desk.pending() == ["ask-1.1"]
            given: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
            state = first.request_state
            assert state is not None
            again = await two.client.session.call_tool(
                "request_decision", dict(GO), input_responses=given, request_state=state, allow_input_required=True
            )
            assert not isinstance(again, InputRequiredResult)
            assert getattr(again, "structured_content", {})["value"] == "yes"
            replayed = await two.client.session.call_tool(
                "request_decision", dict(GO), input_responses=given, request_state=state, allow_input_required=True
            )
            assert getattr(replayed, "structured_content", {})["value"] == "yes"

    anyio.run(main)
    assert desk.decisions() == [(TESS, '"yes"')]


def test_what_was_sealed_for_one_space_of_a_forge_is_refused_by_another(desk: Desk) -> None:
    """The spaces of a forge have one secret: only the name that is sealed with it tells them apart."""
    places = {name: SpaceContext(str(desk.root), lambda: desk.space, agent="scout") for name in ("one", "two")}
    options = http.EndpointOptions("http://forge.example", "s" * 32, 1 << 20, "1", lambda name: User(name, "admin"))
    one, two = http.Endpoint(places, options, lambda _: User("tess", "admin")).servers.values()

    async def main() -> None:
        async with talking(one, MODERN, says()) as there, talking(two, MODERN, says()) as here:
            first = await there.client.session.call_tool("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            given: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
            carried: Any = {"input_responses": given, "request_state": first.request_state}
            assert (await fails(here.client.session.call_tool("request_decision", dict(GO), **carried))).code == -32602
            assert desk.decisions() == []
            done = await there.client.session.call_tool("request_decision", dict(GO), **carried)
            assert getattr(done, "structured_content", {})["value"] == "yes"

    anyio.run(main)


class Watched:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self.lock, self.waits = threading.Lock(), waits

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.waits.set()
            self.lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()


def test_two_equal_questions_at_once_are_one_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes when the first has just seen that nobody asked; it waits, or nothing stops it and it is done."""
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout")
    told, pending, asked = threading.Event(), desk.space.pending, []
    monkeypatch.setattr(place, "asking", Watched(told))

    def ask() -> None:
        asked.append(decisions.ask(ToolCall(place, Caller()), "scout", GO).id)
        told.set()

    second = threading.Thread(target=ask)

    def looked(agent: str) -> Any:
        found = pending(agent)
        if second.ident is None:
            second.start()
            assert told.wait(60)
        return found

    monkeypatch.setattr(desk.space, "pending", looked)
    ask()
    second.join(60)
    assert asked == ["ask-1.1", "ask-1.1"]
    assert desk.pending() == ["ask-1.1"]


def test_what_a_client_carries_between_rounds_cannot_be_made_up(desk: Desk) -> None:
    async def main() -> None:
        async with talking(desk.server(), MODERN, says()) as driver, talking(desk.server("o" * 32), MODERN, says()) as other:
            call = other.client.session.call_tool
            first = await call("request_decision", dict(GO), allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            for state in (first.request_state or "", "v1.AAAA", '{"agent": "scout", "request": "ask-1.1"}'):
                given: Any = {"answer": ElicitResult(action="accept", content={"answer": "yes"})}
                sent = driver.client.session.call_tool("request_decision", dict(GO), input_responses=given, request_state=state)
                assert (await fails(sent)).code == -32602

    anyio.run(main)
    assert desk.decisions() == []


@both
def test_waiting_reports_progress_and_ends_with_the_answer(desk: Desk, protocol: str) -> None:
    async def main() -> None:
        async with talking(desk.server(), protocol) as driver, anyio.create_task_group() as group:
            held = await driver.do("request_decision", **GO)

            async def answer() -> None:
                while not driver.progress:
                    await anyio.sleep(0)
                await anyio.to_thread.run_sync(lambda: desk.inbox.decide("scout", "yes", by=VERA))

            group.start_soon(answer)
            done = await driver.do("decision", request=held["request"], wait=600)
            assert (done["status"], done["by"]) == ("decided", VERA)
            assert set(driver.progress) == {"ask-1.1 is waiting for a person"}

    anyio.run(main)


@both
def test_who_waits_is_told_as_soon_as_the_server_is_to_stop(desk: Desk, protocol: str) -> None:
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


def test_where_too_many_wait_already_nobody_waits_longer(desk: Desk) -> None:
    """In either protocol the call ends at once, with the request held: else each would be a connection for ten minutes."""
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
def test_somebody_whose_role_was_taken_away_decides_nothing_in_a_form_that_is_still_open(
    desk: Desk, protocol: str, now: User | None
) -> None:
    place = SpaceContext(str(desk.root), lambda: desk.space, agent="scout")
    caller = Caller(User("tess", "admin"), lambda _: now)
    server = server_of(place, "1", lambda _: caller, RequestStateSecurity.ephemeral())

    async def main() -> None:
        async with talking(server, protocol, says({"answer": "yes"})) as driver:
            made = await driver.do("request_decision", **GO)
            assert made["status"] == "held"
            assert "no longer decide" in made["not_now"]

    anyio.run(main)
    assert desk.decisions() == []


def test_one_user_has_only_a_part_of_the_room_to_wait() -> None:
    waits = WaitSlots(most=3, per_user=2)
    with ExitStack() as stack:
        got = [stack.enter_context(waits.room(who)) for who in ("ada", "ada", "ada", "ben", "cleo")]
        assert got == [True, True, False, True, False]
    with waits.room("ada") as again:
        assert again


def test_a_question_that_was_recorded_without_its_secret_is_not_asked_twice(desk: Desk) -> None:
    secret = FAKES[0].public + FAKES[0].secret
    question = f"Is {secret} still good?"
    held = [desk.ask(MODERN, None, question=question) for _ in range(2)]
    assert held[0] == held[1]
    assert secret not in str(desk.inbox.pending("scout")[0].payload)


def test_what_became_of_requests_that_nobody_decides(desk: Desk) -> None:
    async def main() -> None:
        async with talking(desk.server()) as driver:
            held = await driver.do("request_decision", **GO)
            desk.inbox.cancel("scout", "moot", session_id=held["request"].partition(".")[0])
            over = await driver.do("decision", request=held["request"])
            assert (over["status"], over["value"]) == ("over", None)
            await driver.refused("no-such-request", "decision", request="nonsense")
            await driver.refused("no-such-session", "decision", request="ask-9.1")

    anyio.run(main)


_SILLY: dict[str, Callable[[], dict[str, Any]]] = {
    "question": lambda: {"question": " "},
    "context": lambda: {"question": "?", "context": {"choices": [1]}},
    "choices": lambda: {"question": "?", "choices": []},
    "schema": lambda: {"question": "?", "schema": {"type": "nonsense"}},
    "wait": lambda: {"question": "?", "wait": 1e9},
}


def test_a_question_that_cannot_be_put_names_the_field_and_is_not_asked(desk: Desk) -> None:
    async def main() -> None:
        async with talking(desk.server()) as driver:
            for field, made in _SILLY.items():
                code = "empty-question" if field == "question" else "invalid-field"
                assert (await driver.refused(code, "request_decision", **made()))["fields"]["field"] == field

    anyio.run(main)
    assert desk.pending() == []
