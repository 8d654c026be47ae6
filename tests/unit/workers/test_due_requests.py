"""Which requests workers handle, and when they are due."""

from __future__ import annotations

from typing import Any

import pytest

from clia.errors import InvalidInput
from clia.sessions.model import Request
from clia.store.interface import Task
from clia.workers import due_requests

SINCE = "2026-05-01T12:00:00Z"
AT = 1777636800.0


def make_request(kind: str, payload: Any = None, agent: str = "scout", request_id: str = "1.1", since: str = SINCE) -> Request:
    return Request(agent, request_id, kind, None, payload, since, 1, request_id.partition(".")[0], "plan")


def tasks(*requests: Request, kinds: tuple[str, ...] = ("llm", "timer", "session", "human"), live: str = "") -> list[Task]:
    return due_requests.tasks(requests, kinds, live.split().__contains__, AT + 10**6)


def test_requests_of_handled_kinds_are_tasks() -> None:
    assert tasks(make_request("llm"), make_request("other"), make_request("suspend")) == [Task("scout", "1.1", "llm", AT)]


def test_a_request_is_due_from_its_creation_and_never_later_than_now() -> None:
    """So the request that has waited longest comes first; the requester's clock may be ahead of this one."""
    request = make_request("llm", since="2026-05-01T12:00:00.250Z")
    assert due_requests.due(request, AT + 60) == AT + 0.25
    assert due_requests.due(request, AT - 60) == AT - 60
    assert due_requests.due(make_request("timer", {"seconds": -1}), AT + 60) == AT
    assert due_requests.due(make_request("timer", {"until": "1970-01-01T00:00:00Z"}), AT + 60) == AT
    assert due_requests.due(make_request("timer", {"seconds": 5}), AT - 60) == AT + 6


@pytest.mark.parametrize("kind", ["human", "human-review"])
def test_a_question_for_people_is_never_handed_over(kind: str) -> None:
    assert tasks(make_request(kind), kinds=(kind,)) == []


def test_a_timer_is_due_when_its_seconds_have_passed_and_not_before() -> None:
    assert tasks(make_request("timer", {"seconds": 90})) == [Task("scout", "1.1", "timer", AT + 91)]  # created within that second
    assert tasks(make_request("timer", {"seconds": 0.25}, since="2026-05-01T12:00:00.500Z"))[0].not_before == AT + 0.75


@pytest.mark.parametrize("until", ["2026-05-01T12:00:00Z", "2026-05-01T14:00:00+02:00"])
def test_a_timer_is_due_at_the_time_it_names(until: str) -> None:
    assert tasks(make_request("timer", {"until": until}))[0].not_before == AT


@pytest.mark.parametrize(
    "payload",
    [
        None,
        5,
        {},
        {"seconds": "5"},
        {"seconds": -1},
        {"seconds": True},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 1e18},
        {"seconds": 10**400},
        {"until": "soon"},
        {"until": 5},
        {"until": "2026-05-01T12:00:00"},
        {"seconds": 1, "until": SINCE},
    ],
)
def test_a_timer_with_an_invalid_payload_is_due_at_once_so_that_its_handler_can_refuse_it(payload: Any) -> None:
    assert tasks(make_request("timer", payload))[0].not_before == AT
    with pytest.raises(InvalidInput) as caught:
        due_requests.timer_due(make_request("timer", payload))
    assert caught.value.code == "invalid-payload"


def test_waiting_for_a_live_session_is_not_a_task_until_it_has_ended() -> None:
    wait = make_request("session", {"agent": "helper"})
    assert tasks(wait, live="helper") == []
    assert tasks(wait, live="") == [Task("scout", "1.1", "session", AT)]


def waiting(agent: str, other: str, second: int, **more: Any) -> Request:
    return make_request("session", {"agent": other, **more}, agent=agent, since=f"2026-05-01T12:00:{second:02d}Z")


def test_the_last_request_of_a_circle_of_waiting_sessions_is_a_task() -> None:
    first, second, third = waiting("a", "b", 1), waiting("b", "c", 2), waiting("c", "a", 3)
    assert due_requests.circles([third, first, second]) == {("c", "1.1"): ("c", "a", "b")}
    assert [task.agent for task in tasks(third, first, second, live="a b c")] == ["c"]
    assert due_requests.circles([first, second]) == {}
    assert due_requests.circles([first, second, third._replace(payload={"agent": "a", "wait": False})]) == {}
    assert due_requests.circles([first, second, third._replace(kind="other")]) == {}


def test_circles_are_found_through_any_request_and_each_circle_yields_one_task() -> None:
    requests = [waiting("a", "x", 1), waiting("a", "b", 1)._replace(id="1.2"), waiting("y", "a", 1)]
    assert due_requests.circles([*requests, waiting("b", "a", 2)]) == {("b", "1.1"): ("b", "a")}
    assert due_requests.circles([*requests, waiting("b", "a", 2), waiting("x", "y", 3)]) == {
        ("b", "1.1"): ("b", "a"),
        ("x", "1.1"): ("x", "y", "a"),
    }


def test_the_choice_between_simultaneous_requests_is_deterministic() -> None:
    pair = [waiting("a", "b", 1), waiting("b", "a", 1)]
    assert due_requests.circles(pair) == due_requests.circles(pair[::-1]) == {("b", "1.1"): ("b", "a")}


@pytest.mark.parametrize("payload", [{"agent": "helper", "wait": False}, {"agent": 5}, None, {"agent": "scout"}])
def test_a_request_that_waits_for_no_other_session_is_due(payload: Any) -> None:
    assert len(due_requests.tasks([make_request("session", payload)], ("session",), lambda _: True, AT)) == 1
