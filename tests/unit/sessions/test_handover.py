"""Which requests are handed to workers, when they are due, and what follows from a result or an error."""

from __future__ import annotations

from typing import Any

import pytest

from clia.errors import (
    AlreadyExists,
    CliaError,
    Conflict,
    InvalidAnswer,
    InvalidInput,
    NoSuchAgent,
    NotAllowed,
    NotFound,
    StaleRef,
    StaleRequest,
    StoreError,
    TransportError,
)
from clia.sessions import handover as hand_over
from clia.sessions.handover import GiveUp, Gone, Resume, Retry, RetryPolicy
from clia.sessions.model import Request
from clia.store.interface import Task

SINCE = "2026-05-01T12:00:00Z"
AT = 1777636800.0
TASK = Task("scout", "1.3", "llm")


def make_request(kind: str, payload: Any = None, agent: str = "scout", request_id: str = "1.1", since: str = SINCE) -> Request:
    return Request(agent, request_id, kind, None, payload, since, 1, request_id.partition(".")[0], "plan")


def tasks(*requests: Request, kinds: tuple[str, ...] = ("llm", "timer", "session", "human"), live: str = "") -> list[Task]:
    return hand_over.tasks(requests, kinds, live.split().__contains__, AT + 10**6)


def unchanged(text: str) -> str:
    return text


def without_secret(text: str) -> str:
    return text.replace("secret", "")


def test_requests_of_handled_kinds_are_tasks() -> None:
    assert tasks(make_request("llm"), make_request("other"), make_request("suspend")) == [Task("scout", "1.1", "llm", AT)]


def test_a_request_is_due_from_its_creation_and_never_later_than_now() -> None:
    """So the request that has waited longest comes first; the requester's clock may be ahead of ours."""
    request = make_request("llm", since="2026-05-01T12:00:00.250Z")
    assert hand_over.due(request, AT + 60) == AT + 0.25
    assert hand_over.due(request, AT - 60) == AT - 60
    assert hand_over.due(make_request("timer", {"seconds": -1}), AT + 60) == AT
    assert hand_over.due(make_request("timer", {"until": "1970-01-01T00:00:00Z"}), AT + 60) == AT
    assert hand_over.due(make_request("timer", {"seconds": 5}), AT - 60) == AT + 6


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
        hand_over.timer_due(make_request("timer", payload))
    assert caught.value.code == "invalid-payload"


def test_waiting_for_a_live_session_is_not_a_task_until_it_has_ended() -> None:
    wait = make_request("session", {"agent": "helper"})
    assert tasks(wait, live="helper") == []
    assert tasks(wait, live="") == [Task("scout", "1.1", "session", AT)]


def waiting(agent: str, other: str, second: int, **more: Any) -> Request:
    return make_request("session", {"agent": other, **more}, agent=agent, since=f"2026-05-01T12:00:{second:02d}Z")


def test_the_last_request_of_a_circle_of_waiting_sessions_is_a_task() -> None:
    first, second, third = waiting("a", "b", 1), waiting("b", "c", 2), waiting("c", "a", 3)
    assert hand_over.circles([third, first, second]) == {("c", "1.1"): ("c", "a", "b")}
    assert [task.agent for task in tasks(third, first, second, live="a b c")] == ["c"]
    assert hand_over.circles([first, second]) == {}
    assert hand_over.circles([first, second, third._replace(payload={"agent": "a", "wait": False})]) == {}
    assert hand_over.circles([first, second, third._replace(kind="other")]) == {}


def test_circles_are_found_through_any_request_and_each_circle_yields_one_task() -> None:
    requests = [waiting("a", "x", 1), waiting("a", "b", 1)._replace(id="1.2"), waiting("y", "a", 1)]
    assert hand_over.circles([*requests, waiting("b", "a", 2)]) == {("b", "1.1"): ("b", "a")}
    assert hand_over.circles([*requests, waiting("b", "a", 2), waiting("x", "y", 3)]) == {
        ("b", "1.1"): ("b", "a"),
        ("x", "1.1"): ("x", "y", "a"),
    }


def test_the_choice_between_simultaneous_requests_is_deterministic() -> None:
    pair = [waiting("a", "b", 1), waiting("b", "a", 1)]
    assert hand_over.circles(pair) == hand_over.circles(pair[::-1]) == {("b", "1.1"): ("b", "a")}


@pytest.mark.parametrize("payload", [{"agent": "helper", "wait": False}, {"agent": 5}, None, {"agent": "scout"}])
def test_a_request_that_waits_for_no_other_session_is_due(payload: Any) -> None:
    assert len(hand_over.tasks([make_request("session", payload)], ("session",), lambda _: True, AT)) == 1


def test_the_backoff_doubles_up_to_a_limit_and_is_deterministic() -> None:
    policy = RetryPolicy(attempts=9, backoff=1.0, backoff_max=20.0)
    waits = [hand_over.backoff("scout/1.3", attempt, policy) for attempt in range(1, 9)]
    assert waits == [hand_over.backoff("scout/1.3", attempt, policy) for attempt in range(1, 9)]
    for attempt, wait in enumerate(waits, 1):
        longest = min(20.0, 2.0 ** (attempt - 1))
        assert longest / 2 <= wait <= longest
    assert hand_over.backoff("scout/1.3", 10**6, policy) <= 20.0


def test_requests_that_fail_together_are_not_retried_together() -> None:
    waits = {hand_over.backoff(f"scout/1.{number}", 1, RetryPolicy()) for number in range(20)}
    assert len(waits) == 20


@pytest.mark.parametrize("value", [None, 5, 1.5, "text", [1, {"a": [True]}], {"text": "é"}])
def test_any_json_value_is_an_answer(value: Any) -> None:
    assert hand_over.after_value(value) == Resume(value)


def deeply_nested() -> Any:
    value: Any = []
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {1, 2}, b"x", float("nan"), "\ud800", 2**60, "x" * (1024 * 1024 + 1), deeply_nested()]
)
def test_a_value_that_is_not_json_is_given_up_at_once(value: Any) -> None:
    outcome = hand_over.recordable(hand_over.after_value(value), unchanged)
    assert isinstance(outcome, GiveUp)
    assert "the handler's answer cannot be used" in outcome.reason
    assert len(outcome.reason) < 3000


@pytest.mark.parametrize("kind", [InvalidInput, InvalidAnswer, NotAllowed, NoSuchAgent, AlreadyExists])
def test_permanent_errors_are_not_retried(kind: type[CliaError]) -> None:
    assert hand_over.after_error(kind("no"), TASK, 1, AT, RetryPolicy()) == GiveUp("no")


@pytest.mark.parametrize("error", [ValueError("no"), StaleRef("no"), StoreError("no"), TransportError("no"), TimeoutError("no")])
def test_other_errors_are_retried_until_the_attempts_are_used_up(error: Exception) -> None:
    policy = RetryPolicy(attempts=3)
    for attempt in (1, 2):
        outcome = hand_over.after_error(error, TASK, attempt, AT, policy)
        assert isinstance(outcome, Retry)
        assert outcome.at == AT + hand_over.backoff("scout/1.3", attempt, policy)
        assert outcome.error.endswith("no")
    last = hand_over.after_error(error, TASK, 3, AT, policy)
    assert isinstance(last, GiveUp)
    assert last.reason.startswith("given up after 3 attempts: ")


@pytest.mark.parametrize(
    "error",
    [
        NoSuchAgent("no", code="agent-not-here"),
        Conflict("no", code="work-elsewhere"),
        Conflict("no", code="hub-diverged"),
        Conflict("no", code="hub-unsettled"),
        TransportError("no", code="hub-away"),
    ],
)
def test_temporary_errors_of_this_machine_use_up_no_attempt(error: CliaError) -> None:
    outcome = hand_over.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1))
    assert isinstance(outcome, Retry)
    assert (outcome.at > AT, outcome.error, outcome.counts) == (True, "no", False)
    other = hand_over.after_error(TransportError("no"), TASK, 1, AT, RetryPolicy())
    assert isinstance(other, Retry)
    assert other.counts


def test_with_one_attempt_the_error_is_the_reason() -> None:
    assert hand_over.after_error(ValueError("no"), TASK, 1, AT, RetryPolicy(attempts=1)) == GiveUp("ValueError: no")


def test_a_servers_retry_after_is_respected_within_bounds() -> None:
    def pause(retry_after: Any) -> float:
        error = TransportError("busy", fields={"retry_after": retry_after})
        outcome = hand_over.after_error(error, TASK, 1, AT, RetryPolicy())
        assert isinstance(outcome, Retry)
        return outcome.at - AT

    assert pause(120) == 120.0
    assert pause(10**9) == pause(10**400) == 3600.0
    assert pause("soon") <= 1.0
    assert pause(0) >= 0.5


@pytest.mark.parametrize("error", [StaleRequest("late"), NotFound("none", code="no-such-request")])
def test_a_request_that_no_longer_exists_is_dropped(error: CliaError) -> None:
    assert hand_over.after_error(error, TASK, 1, AT, RetryPolicy()) == Gone()
    assert hand_over.after_refusal(error) == Gone()


def test_a_refused_answer_is_given_up_and_an_internal_error_is_not() -> None:
    outcome = hand_over.after_refusal(InvalidAnswer("not a choice"))
    assert outcome == GiveUp("the answer was refused: not a choice")
    assert hand_over.after_refusal(NoSuchAgent("archived")) is None
    assert hand_over.after_refusal(StoreError("away")) is None


def test_a_request_whose_workers_all_died_is_given_up() -> None:
    policy = RetryPolicy(attempts=2)
    assert hand_over.used_up(2, policy) is None
    why = "its workers were lost, or their answers could not be recorded"
    assert hand_over.used_up(3, policy) == GiveUp(f"given up after 2 attempts: {why}")


def test_a_long_error_is_truncated_to_one_line() -> None:
    error = ValueError("a\nb" + "x" * 9000)
    outcome = hand_over.recordable(hand_over.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1)), unchanged)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.startswith("ValueError: a bx")
    assert len(outcome.reason) <= 2001


def test_secrets_are_removed_before_the_text_is_truncated() -> None:
    """Half of a secret would not be recognized."""
    text = "x" * (hand_over.REASON_MAX - 3) + "secret"
    clean = "x" * (hand_over.REASON_MAX - 3)
    assert hand_over.recordable(GiveUp(text), without_secret) == GiveUp(clean)
    assert hand_over.recordable(Retry(AT, text), without_secret) == Retry(AT, clean)
    assert hand_over.recordable(Resume(text), unchanged) == Resume(text)
    assert hand_over.recordable(Gone(), unchanged) == Gone()


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "description"),
    [
        (Unprintable(), "Unprintable, which cannot say what is wrong"),
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("\ud800x"), "ValueError: \\ud800x"),
        (InvalidInput(5), "5"),  # type: ignore[arg-type]  # a caller's mistake
        (InvalidInput(""), "InvalidInput"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_any_error_has_a_recordable_description(error: BaseException, description: str) -> None:
    assert hand_over.describe(error) == description


def test_the_reason_of_a_refused_answer_is_recordable_whatever_its_keys_are() -> None:
    outcome = hand_over.recordable(hand_over.after_value({"\ud800\0": object()}), unchanged)
    assert isinstance(outcome, GiveUp)
    assert "\0" not in outcome.reason
    outcome.reason.encode("utf-8")
