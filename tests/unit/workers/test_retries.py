"""What follows from a handler's value or error."""

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
from clia.store.interface import Task
from clia.workers import retries
from clia.workers.retries import GiveUp, Gone, Resume, Retry, RetryPolicy

AT = 1777636800.0
TASK = Task("scout", "1.3", "llm")


def unchanged(text: str) -> str:
    return text


def without_secret(text: str) -> str:
    return text.replace("secret", "")


def test_the_backoff_doubles_up_to_a_limit_and_is_deterministic() -> None:
    policy = RetryPolicy(attempts=9, backoff=1.0, backoff_max=20.0)
    waits = [retries.backoff("scout/1.3", attempt, policy) for attempt in range(1, 9)]
    assert waits == [retries.backoff("scout/1.3", attempt, policy) for attempt in range(1, 9)]
    for attempt, wait in enumerate(waits, 1):
        longest = min(20.0, 2.0 ** (attempt - 1))
        assert longest / 2 <= wait <= longest
    assert retries.backoff("scout/1.3", 10**6, policy) <= 20.0


def test_requests_that_fail_together_are_not_retried_together() -> None:
    waits = {retries.backoff(f"scout/1.{number}", 1, RetryPolicy()) for number in range(20)}
    assert len(waits) == 20


@pytest.mark.parametrize("value", [None, 5, 1.5, "text", [1, {"a": [True]}], {"text": "é"}])
def test_any_json_value_is_an_answer(value: Any) -> None:
    assert retries.after_value(value) == Resume(value)


def deeply_nested() -> Any:
    value: Any = []
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {1, 2}, b"x", float("nan"), "\ud800", 2**60, "x" * (1024 * 1024 + 1), deeply_nested()]
)
def test_a_value_that_is_not_json_is_given_up_at_once(value: Any) -> None:
    outcome = retries.recordable(retries.after_value(value), unchanged)
    assert isinstance(outcome, GiveUp)
    assert "the handler's answer cannot be used" in outcome.reason
    assert len(outcome.reason) < 3000


@pytest.mark.parametrize("kind", [InvalidInput, InvalidAnswer, NotAllowed, NoSuchAgent, AlreadyExists])
def test_permanent_errors_are_not_retried(kind: type[CliaError]) -> None:
    assert retries.after_error(kind("no"), TASK, 1, AT, RetryPolicy()) == GiveUp("no")


@pytest.mark.parametrize("error", [ValueError("no"), StaleRef("no"), StoreError("no"), TransportError("no"), TimeoutError("no")])
def test_other_errors_are_retried_until_the_attempts_are_used_up(error: Exception) -> None:
    policy = RetryPolicy(attempts=3)
    for attempt in (1, 2):
        outcome = retries.after_error(error, TASK, attempt, AT, policy)
        assert isinstance(outcome, Retry)
        assert outcome.at == AT + retries.backoff("scout/1.3", attempt, policy)
        assert outcome.error.endswith("no")
    last = retries.after_error(error, TASK, 3, AT, policy)
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
    outcome = retries.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1))
    assert isinstance(outcome, Retry)
    assert (outcome.at > AT, outcome.error, outcome.counts) == (True, "no", False)
    other = retries.after_error(TransportError("no"), TASK, 1, AT, RetryPolicy())
    assert isinstance(other, Retry)
    assert other.counts


def test_with_one_attempt_the_error_is_the_reason() -> None:
    assert retries.after_error(ValueError("no"), TASK, 1, AT, RetryPolicy(attempts=1)) == GiveUp("ValueError: no")


def test_a_servers_retry_after_is_respected_within_bounds() -> None:
    def pause(retry_after: Any) -> float:
        error = TransportError("busy", fields={"retry_after": retry_after})
        outcome = retries.after_error(error, TASK, 1, AT, RetryPolicy())
        assert isinstance(outcome, Retry)
        return outcome.at - AT

    assert pause(120) == 120.0
    assert pause(10**9) == pause(10**400) == 3600.0
    assert pause("soon") <= 1.0
    assert pause(0) >= 0.5


@pytest.mark.parametrize("error", [StaleRequest("late"), NotFound("none", code="no-such-request")])
def test_a_request_that_no_longer_exists_is_dropped(error: CliaError) -> None:
    assert retries.after_error(error, TASK, 1, AT, RetryPolicy()) == Gone()
    assert retries.after_refusal(error) == Gone()


def test_a_refused_answer_is_given_up_and_an_internal_error_is_not() -> None:
    outcome = retries.after_refusal(InvalidAnswer("not a choice"))
    assert outcome == GiveUp("the answer was refused: not a choice")
    assert retries.after_refusal(NoSuchAgent("archived")) is None
    assert retries.after_refusal(StoreError("away")) is None


def test_a_request_whose_workers_all_died_is_given_up() -> None:
    policy = RetryPolicy(attempts=2)
    assert retries.used_up(2, policy) is None
    why = "its workers were lost, or their answers could not be recorded"
    assert retries.used_up(3, policy) == GiveUp(f"given up after 2 attempts: {why}")


def test_a_long_error_is_truncated_to_one_line() -> None:
    error = ValueError("a\nb" + "x" * 9000)
    outcome = retries.recordable(retries.after_error(error, TASK, 1, AT, RetryPolicy(attempts=1)), unchanged)
    assert isinstance(outcome, GiveUp)
    assert outcome.reason.startswith("ValueError: a bx")
    assert len(outcome.reason) <= 2001


def test_secrets_are_removed_before_the_text_is_truncated() -> None:
    """Half of a secret would not be recognized."""
    text = "x" * (retries.REASON_MAX - 3) + "secret"
    clean = "x" * (retries.REASON_MAX - 3)
    assert retries.recordable(GiveUp(text), without_secret) == GiveUp(clean)
    assert retries.recordable(Retry(AT, text), without_secret) == Retry(AT, clean)
    assert retries.recordable(Resume(text), unchanged) == Resume(text)
    assert retries.recordable(Gone(), unchanged) == Gone()


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "description"),
    [
        (Unprintable(), "Unprintable with an unreadable message"),
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("\ud800x"), "ValueError: \\ud800x"),
        (InvalidInput(5), "5"),  # type: ignore[arg-type]  # a caller's mistake
        (InvalidInput(""), "InvalidInput"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_any_error_has_a_recordable_description(error: BaseException, description: str) -> None:
    assert retries.describe(error) == description


def test_the_reason_of_a_refused_answer_is_recordable_whatever_its_keys_are() -> None:
    outcome = retries.recordable(retries.after_value({"\ud800\0": object()}), unchanged)
    assert isinstance(outcome, GiveUp)
    assert "\0" not in outcome.reason
    outcome.reason.encode("utf-8")
