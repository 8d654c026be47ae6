"""What is handed to workers, when, and what becomes of what they bring."""

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


def asked(kind: str, payload: Any = None, agent: str = "scout", request: str = "1.1", since: str = SINCE) -> Request:
    return Request(agent, request, kind, None, payload, since, 1, request.partition(".")[0], "plan")


def tasks(*requests: Request, kinds: tuple[str, ...] = ("llm", "timer", "session", "human"), live: str = "") -> list[Task]:
    return hand_over.tasks(requests, kinds, live.split().__contains__, AT + 10**6)


def as_it_is(text: str) -> str:
    return text


def without_secret(text: str) -> str:
    return text.replace("secret", "")


def test_requests_of_the_kinds_that_are_handled_are_tasks() -> None:
    assert tasks(asked("llm"), asked("other"), asked("suspend")) == [Task("scout", "1.1", "llm", AT)]


def test_a_request_is_due_since_it_was_asked_and_never_later_than_now() -> None:
    """So that whatever is longest due comes first; the clock of whoever asked may be ahead of ours."""
    request = asked("llm", since="2026-05-01T12:00:00.250Z")
    assert hand_over.due(request, AT + 60) == AT + 0.25
    assert hand_over.due(request, AT - 60) == AT - 60
    assert hand_over.due(asked("timer", {"seconds": -1}), AT + 60) == AT
    assert hand_over.due(asked("timer", {"until": "1970-01-01T00:00:00Z"}), AT + 60) == AT
    assert hand_over.due(asked("timer", {"seconds": 5}), AT - 60) == AT + 6


@pytest.mark.parametrize("kind", ["human", "human-review"])
def test_a_question_to_people_is_never_handed_over(kind: str) -> None:
    assert tasks(asked(kind), kinds=(kind,)) == []


def test_a_timer_is_due_when_its_seconds_are_over_and_never_before() -> None:
    assert tasks(asked("timer", {"seconds": 90})) == [Task("scout", "1.1", "timer", AT + 91)]  # asked within that second
    assert tasks(asked("timer", {"seconds": 0.25}, since="2026-05-01T12:00:00.500Z"))[0].not_before == AT + 0.75


@pytest.mark.parametrize("until", ["2026-05-01T12:00:00Z", "2026-05-01T14:00:00+02:00"])
def test_a_timer_is_due_at_the_time_it_names(until: str) -> None:
    assert tasks(asked("timer", {"until": until}))[0].not_before == AT


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
def test_a_timer_that_says_nothing_sensible_is_due_at_once_so_that_its_handler_can_say_so(payload: Any) -> None:
    assert tasks(asked("timer", payload))[0].not_before == AT
    with pytest.raises(InvalidInput) as caught:
        hand_over.timer_due(asked("timer", payload))
    assert caught.value.code == "invalid-payload"


def test_waiting_for_a_live_session_is_no_task_until_it_has_ended() -> None:
    waits = asked("session", {"agent": "helper"})
    assert tasks(waits, live="helper") == []
    assert tasks(waits, live="") == [Task("scout", "1.1", "session", AT)]


def waiting(agent: str, other: str, second: int, **more: Any) -> Request:
    return asked("session", {"agent": other, **more}, agent=agent, since=f"2026-05-01T12:00:{second:02d}Z")


def test_of_sessions_that_wait_for_one_another_the_last_to_ask_is_a_task() -> None:
    first, second, third = waiting("a", "b", 1), waiting("b", "c", 2), waiting("c", "a", 3)
    assert hand_over.circles([third, first, second]) == {("c", "1.1"): ("c", "a", "b")}
    assert [each.agent for each in tasks(third, first, second, live="a b c")] == ["c"]
    assert hand_over.circles([first, second]) == {}
    assert hand_over.circles([first, second, third._replace(payload={"agent": "a", "wait": False})]) == {}
    assert hand_over.circles([first, second, third._replace(kind="other")]) == {}


def test_a_circle_is_found_through_any_of_several_requests_and_each_circle_loses_one() -> None:
    both = [waiting("a", "x", 1), waiting("a", "b", 1)._replace(id="1.2"), waiting("y", "a", 1)]
    assert hand_over.circles([*both, waiting("b", "a", 2)]) == {("b", "1.1"): ("b", "a")}
    assert hand_over.circles([*both, waiting("b", "a", 2), waiting("x", "y", 3)]) == {
        ("b", "1.1"): ("b", "a"),
        ("x", "1.1"): ("x", "y", "a"),
    }


def test_of_two_that_ask_in_one_moment_everyone_chooses_the_same() -> None:
    pair = [waiting("a", "b", 1), waiting("b", "a", 1)]
    assert hand_over.circles(pair) == hand_over.circles(pair[::-1]) == {("b", "1.1"): ("b", "a")}


@pytest.mark.parametrize("payload", [{"agent": "helper", "wait": False}, {"agent": 5}, None, {"agent": "scout"}])
def test_a_request_that_waits_for_no_other_session_is_due(payload: Any) -> None:
    assert len(hand_over.tasks([asked("session", payload)], ("session",), lambda _: True, AT)) == 1


def test_the_wait_doubles_up_to_a_limit_and_is_the_same_every_time() -> None:
    patience = RetryPolicy(attempts=9, backoff=1.0, backoff_max=20.0)
    waits = [hand_over.backoff("scout/1.3", attempt, patience) for attempt in range(1, 9)]
    assert waits == [hand_over.backoff("scout/1.3", attempt, patience) for attempt in range(1, 9)]
    for attempt, wait in enumerate(waits, 1):
        longest = min(20.0, 2.0 ** (attempt - 1))
        assert longest / 2 <= wait <= longest
    assert hand_over.backoff("scout/1.3", 10**6, patience) <= 20.0


def test_requests_that_fail_together_do_not_come_back_together() -> None:
    waits = {hand_over.backoff(f"scout/1.{number}", 1, RetryPolicy()) for number in range(20)}
    assert len(waits) == 20


@pytest.mark.parametrize("value", [None, 5, 1.5, "text", [1, {"a": [True]}], {"text": "é"}])
def test_json_is_an_answer(value: Any) -> None:
    assert hand_over.after_value(value) == Resume(value)


def deep() -> Any:
    made: Any = []
    for _ in range(5000):
        made = [made]
    return made


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, b"x", float("nan"), "\ud800", 2**60, "x" * (1024 * 1024 + 1), deep()])
def test_nonsense_is_given_up_at_once(value: Any) -> None:
    found = hand_over.recordable(hand_over.after_value(value), as_it_is)
    assert isinstance(found, GiveUp)
    assert "the handler's answer cannot be used" in found.reason
    assert len(found.reason) < 3000


@pytest.mark.parametrize("kind", [InvalidInput, InvalidAnswer, NotAllowed, NoSuchAgent, AlreadyExists])
def test_what_cannot_change_is_not_tried_again(kind: type[CliaError]) -> None:
    assert hand_over.after_error(kind("no"), TASK, 1, AT, RetryPolicy()) == GiveUp("no")


@pytest.mark.parametrize("error", [ValueError("no"), StaleRef("no"), StoreError("no"), TransportError("no"), TimeoutError("no")])
def test_everything_else_is_tried_again_until_the_attempts_are_used_up(error: Exception) -> None:
    patience = RetryPolicy(attempts=3)
    for attempt in (1, 2):
        found = hand_over.after_error(error, TASK, attempt, AT, patience)
        assert isinstance(found, Retry)
        assert found.at == AT + hand_over.backoff("scout/1.3", attempt, patience)
        assert found.error.endswith("no")
    last = hand_over.after_error(error, TASK, 3, AT, patience)
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
def test_what_this_machine_cannot_do_now_uses_up_no_attempt(error: CliaError) -> None:
    found = hand_over.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1))
    assert isinstance(found, Retry)
    assert (found.at > AT, found.error, found.counts) == (True, "no", False)
    other = hand_over.after_error(TransportError("no"), TASK, 1, AT, RetryPolicy())
    assert isinstance(other, Retry)
    assert other.counts


def test_where_one_attempt_is_all_its_error_is_the_reason() -> None:
    assert hand_over.after_error(ValueError("no"), TASK, 1, AT, RetryPolicy(attempts=1)) == GiveUp("ValueError: no")


def test_a_server_that_asks_for_time_gets_it_within_bounds() -> None:
    def pause(asked_for: Any) -> float:
        error = TransportError("busy", fields={"retry_after": asked_for})
        found = hand_over.after_error(error, TASK, 1, AT, RetryPolicy())
        assert isinstance(found, Retry)
        return found.at - AT

    assert pause(120) == 120.0
    assert pause(10**9) == pause(10**400) == 3600.0
    assert pause("soon") <= 1.0
    assert pause(0) >= 0.5


@pytest.mark.parametrize("error", [StaleRequest("late"), NotFound("none", code="no-such-request")])
def test_a_request_that_is_gone_is_let_go(error: CliaError) -> None:
    assert hand_over.after_error(error, TASK, 1, AT, RetryPolicy()) == Gone()
    assert hand_over.after_refusal(error) == Gone()


def test_an_answer_that_the_session_refuses_is_given_up_and_a_broken_part_is_not() -> None:
    refused = hand_over.after_refusal(InvalidAnswer("not a choice"))
    assert refused == GiveUp("the answer was refused: not a choice")
    assert hand_over.after_refusal(NoSuchAgent("archived")) is None
    assert hand_over.after_refusal(StoreError("away")) is None


def test_a_request_whose_workers_all_died_is_given_up() -> None:
    patience = RetryPolicy(attempts=2)
    assert hand_over.used_up(2, patience) is None
    why = "its workers were lost, or their answers could not be recorded"
    assert hand_over.used_up(3, patience) == GiveUp(f"given up after 2 attempts: {why}")


def test_a_long_error_is_cut_and_put_on_one_line() -> None:
    error = ValueError("a\nb" + "x" * 9000)
    found = hand_over.recordable(hand_over.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1)), as_it_is)
    assert isinstance(found, GiveUp)
    assert found.reason.startswith("ValueError: a bx")
    assert len(found.reason) <= 2001


def test_words_are_cleaned_before_they_are_cut() -> None:
    """A secret that lies across the cut would not be known by its half."""
    text = "x" * (hand_over.REASON_MAX - 3) + "secret"
    clean = "x" * (hand_over.REASON_MAX - 3)
    assert hand_over.recordable(GiveUp(text), without_secret) == GiveUp(clean)
    assert hand_over.recordable(Retry(AT, text), without_secret) == Retry(AT, clean)
    assert hand_over.recordable(Resume(text), as_it_is) == Resume(text)
    assert hand_over.recordable(Gone(), as_it_is) == Gone()


class Mute(Exception):
    """An error that raises when it is asked what it says."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mute(), "Mute, which cannot say what is wrong"),
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("\ud800x"), "ValueError: \\ud800x"),
        (InvalidInput(5), "5"),  # type: ignore[arg-type]  # another's mistake
        (InvalidInput(""), "InvalidInput"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_whatever_an_error_says_can_be_kept(error: BaseException, said: str) -> None:
    assert hand_over.describe(error) == said


def test_what_an_answer_is_refused_for_can_be_kept_whatever_its_keys_are() -> None:
    found = hand_over.recordable(hand_over.after_value({"\ud800\0": object()}), as_it_is)
    assert isinstance(found, GiveUp)
    assert "\0" not in found.reason
    found.reason.encode("utf-8")
