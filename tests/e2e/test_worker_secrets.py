from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import InvalidInput, TransportError
from clia.facade.config import Config, Llm, ProgramRule
from clia.http_client import HttpClient
from clia.programs.worktree import TracedOutput
from clia.redaction.secrets import START
from clia.workers.effects import llm
from clia.workers.setup import make_tools
from support.effects import (
    QUICK,
    HttpReply,
    asked,
    completion,
    context_for,
    echo,
    model_server,
    tools_for,
    utc,
)
from support.fake_secrets import FAKES

if TYPE_CHECKING:
    from clia.workers.effects.context import Context, Tools
    from support.worker_places import WorkerSpace


TOKEN = next(fake for fake in FAKES if fake.kind == "github-token")


def printing(text: str) -> Config:
    return Config(worker=QUICK, programs={"p": ProgramRule(("python3", "-c", f"import sys; sys.stdout.write({text!r})"))})


@pytest.mark.parametrize("visible", range(0, len(TOKEN.text), 7))
def test_a_secret_across_the_truncation_of_the_output_is_redacted(visible: int) -> None:
    """The end of the output starts in the middle of a token, whose rest has no recognizable form."""
    tools = output_tools()
    output = TracedOutput(lambda _: None, tools.cleaning.chunk)
    rest = "\n" + ("x" * 63 + "\n") * 1023
    output.add((TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - visible)).encode())
    output.end()
    assert output.tail().endswith("yyy")
    assert TOKEN.secret[-6:] not in output.tail()


def output_tools(**options: bool) -> Tools:
    return make_tools(utc, {}, **options)


def test_a_secret_that_arrives_in_pieces_is_redacted_in_the_end_of_the_output() -> None:
    output = TracedOutput(lambda _: None, output_tools().cleaning.chunk)
    for at in range(0, len(TOKEN.text), 9):
        output.add((" " * 16 * 1024 if not at else "").encode() + TOKEN.text[at : at + 9].encode())
    output.add(b" done\n")
    output.end()
    assert output.tail().endswith(" done\n")
    assert TOKEN.secret[:12] not in output.tail()
    assert TOKEN.secret[-12:] not in output.tail()


def test_redaction_can_be_disabled() -> None:
    cleaning = output_tools(redact=False).cleaning
    assert cleaning.text(TOKEN.text) == TOKEN.text
    assert cleaning.chunk(TOKEN.text, START) == (TOKEN.text, START)


def test_no_part_of_a_printed_secret_is_in_git(worker_space: WorkerSpace) -> None:
    rest = "\n" + ("x" * 63 + "\n") * 1023
    worker_space.ask("command", {"program": "p"})
    worker_space.work(config=printing(TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - len(TOKEN.secret))))
    assert worker_space.result()["output"].endswith("yyy")
    worker_space.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert worker_space.holds(TOKEN.secret) == []


def test_memory_for_the_output_is_bounded() -> None:
    output = TracedOutput(lambda _: None, lambda text, state: (text, state))
    lines = b"x" * 63 + b"\n"
    tracemalloc.start()
    try:
        for _ in range(400):
            output.add(lines * 256)
        output.end()
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(output.tail()) == 64 * 1024
    assert current < 200_000
    assert peak < 1_000_000


KEY = "hunter2-Very-Own-Key"


def llm_config(url: str, **more: Any) -> Config:
    return Config(worker=QUICK._replace(**more), llm=Llm(url, "small", "KEY", 10.0))


def test_a_newline_after_the_key_is_ignored(worker_space: WorkerSpace) -> None:
    worker_space.ask("llm", {"prompt": "x"})
    with model_server(completion("yes")) as server:
        worker_space.work(config=llm_config(server.url), tools=tools_for(KEY=f" {KEY}\n"))
    assert worker_space.result()["text"] == "yes"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["two\nlines", "a b", "schlüssel", "\x07", "euro€"])
def test_an_invalid_key_is_reported_without_its_value(worker_space: WorkerSpace, key: str) -> None:
    worker_space.ask("llm", {"prompt": "x"})
    config, tools = llm_config("http://127.0.0.1:9"), tools_for(KEY=key)
    status = worker_space.work(config=config, tools=tools)
    assert (status.retried, status.given_up) == (0, 0)
    problem = dict(status.problems)["llm"]
    assert "KEY does not hold a valid key" in problem
    assert key not in problem
    assert "KEY is not set" in str(llm.problem(config, {"KEY": " \n"}))


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {KEY}\nx"}, {"Authorization": f"Bearer {KEY}€"}, {f"{KEY}\n": "x"}])
def test_an_error_does_not_contain_an_invalid_header(headers: dict[str, str]) -> None:
    with model_server(completion()) as server, pytest.raises(InvalidInput) as caught:
        HttpClient().post(server.url, headers, b"{}", seconds=5.0, limit=1000)
    assert caught.value.code == "invalid-request"
    assert KEY not in str(caught.value.to_json())
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("url", ["http://[::1", "http://x:99999999/"])
def test_an_address_that_cannot_be_parsed_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        HttpClient().post(url, {}, b"", seconds=1.0, limit=10)
    assert caught.value.code == "invalid-url"


@pytest.mark.parametrize(("attempts", "end"), [(5, "attempt 1 failed"), (1, "given up")])
def test_errors_of_attempts_are_stored_without_secrets(worker_space: WorkerSpace, attempts: int, end: str) -> None:
    """Without secrets of a known form, and without the endpoint's key, which has none."""
    worker_space.ask("leaky")

    def leaky(context: Context, payload: Any) -> Any:
        raise OSError(f"refused: {TOKEN.text} {KEY}")

    config = llm_config("http://127.0.0.1:9", attempts=attempts, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
    status = worker_space.worker({"leaky": leaky}, config=config, tools=tools_for(KEY=f"{KEY}\n")).run(once=True)
    assert status.last is not None
    assert status.last.startswith(f"scout 1.1 leaky: {end}: OSError: refused: ")
    assert status.last.endswith("***")
    assert KEY not in status.last
    assert TOKEN.secret not in status.last
    worker_space.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert worker_space.holds(KEY) == worker_space.holds(TOKEN.secret) == []


@pytest.mark.parametrize("error", [clia.errors.InvalidAnswer, clia.errors.CorruptJournal], ids=["refused", "cannot be told"])
def test_reasons_for_refused_answers_are_stored_without_secrets(
    worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch, error: type[clia.errors.CliaError]
) -> None:
    worker_space.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise error(f"not {TOKEN.text}")

    monkeypatch.setattr(worker_space.space, "resume", refuse)
    config = Config(worker=QUICK._replace(backoff_max_seconds=1000.0))
    status = worker_space.worker({"echo": echo}, config=config).run(once=True)
    assert status.last is not None
    assert "not [redacted" in status.last
    assert worker_space.holds(TOKEN.secret) == []


def test_an_error_does_not_contain_the_key_from_anywhere_in_the_answer(worker_space: WorkerSpace) -> None:
    """Or a part of it: the text is truncated after the redaction."""
    answer = b" " * (4 * 300 - 5) + KEY.encode()
    tools = tools_for(KEY=KEY)
    with model_server(HttpReply(500, answer)) as server:
        context = context_for(worker_space.space, asked("llm", {}), llm_config(server.url), tools)
        with pytest.raises(TransportError) as caught:
            llm.handle(context, {"prompt": "x"})
    assert KEY[:5] not in caught.value.message


def test_a_key_echoed_by_the_endpoint_is_not_recorded(worker_space: WorkerSpace) -> None:
    worker_space.ask("llm", {"prompt": "x"})
    with model_server(completion(f"it is {KEY}", model=KEY)) as server:
        worker_space.work(config=llm_config(server.url), tools=tools_for(KEY=KEY))
    assert worker_space.result()["text"] == "it is ***"
    assert worker_space.holds(KEY) == []
