"""What a worker prints: the status line and the log."""

from __future__ import annotations

from clia.cli import workers
from clia.workers.worker import RunningAttempt, WorkerStatus

BUSY = WorkerStatus(
    running=(RunningAttempt("scout", "1.1", "llm", 1, "thinking"), RunningAttempt("lead", "2.1", "timer", 3, "")), waiting=2
)


def test_the_status_line_shows_running_waiting_and_finished_work() -> None:
    line = workers.status_line(BUSY._replace(answered=4, given_up=1, hanging=1))
    assert line == "scout 1.1 llm: thinking; lead 2.1 timer, attempt 3, 2 waiting, 1 hanging  (4 answered, 1 given up)"
    assert workers.status_line(WorkerStatus()) == "nothing to do  (nothing answered)"
    assert workers.status_line(BUSY._replace(trouble="the store is away")) == "waiting: the store is away"


def test_each_event_is_printed_once_and_escaped() -> None:
    first = BUSY._replace(problems=(("llm", "no \x1b[31mendpoint"),))
    assert workers.news(None, first) == ["llm: no \\u{1b}[31mendpoint", "scout 1.1 llm", "lead 2.1 timer, attempt 3"]
    updated = first._replace(running=(BUSY.running[0]._replace(progress="still"), BUSY.running[1]), waiting=9)
    assert workers.news(first, updated) == []
    retried = updated._replace(running=(BUSY.running[0]._replace(attempt=2),), retried=1, trouble="away")
    assert workers.news(updated, retried) == ["scout 1.1 llm, attempt 2", "waiting: away", "1 retried"]
    assert workers.news(retried, retried) == []
