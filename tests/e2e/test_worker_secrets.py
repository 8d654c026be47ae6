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
    Reply,
    asked,
    completion,
    context_for,
    echo,
    model_server,
    tools_for,
    utc,
)
from support.fake_secrets import FAKES
from support.worker_places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.workers.effects.context import Context, Tools


TOKEN = next(each for each in FAKES if each.kind == "github-token")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "space")
    yield made
    made.space.close()


def printing(text: str) -> Config:
    return Config(worker=QUICK, programs={"p": ProgramRule(("python3", "-c", f"import sys; sys.stdout.write({text!r})"))})


@pytest.mark.parametrize("shown", range(0, len(TOKEN.text), 7))
def test_a_secret_across_the_cut_of_a_programs_output_is_in_no_part_of_it(shown: int) -> None:
    """The end of the output begins in the middle of a token, which is not known any more by its rest."""
    tools = tools_for_nothing()
    output = TracedOutput(lambda _: None, tools.cleaning.chunk)
    rest = "\n" + ("x" * 63 + "\n") * 1023
    output.add((TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - shown)).encode())
    output.end()
    assert output.tail().endswith("yyy")
    assert TOKEN.secret[-6:] not in output.tail()


def tools_for_nothing(**how: bool) -> Tools:
    return make_tools(utc, {}, **how)


def test_a_secret_that_comes_in_pieces_is_not_in_the_end_of_the_output() -> None:
    output = TracedOutput(lambda _: None, tools_for_nothing().cleaning.chunk)
    for at in range(0, len(TOKEN.text), 9):
        output.add((" " * 16 * 1024 if not at else "").encode() + TOKEN.text[at : at + 9].encode())
    output.add(b" done\n")
    output.end()
    assert output.tail().endswith(" done\n")
    assert TOKEN.secret[:12] not in output.tail()
    assert TOKEN.secret[-12:] not in output.tail()


def test_what_the_operator_wants_as_it_is_stays_as_it_is() -> None:
    cleaning = tools_for_nothing(redact=False).cleaning
    assert cleaning.text(TOKEN.text) == TOKEN.text
    assert cleaning.chunk(TOKEN.text, START) == (TOKEN.text, START)


def test_no_part_of_a_secret_that_a_program_printed_gets_into_git(place: Place) -> None:
    rest = "\n" + ("x" * 63 + "\n") * 1023
    place.ask("command", {"program": "p"})
    place.work(config=printing(TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - len(TOKEN.secret))))
    assert place.result()["output"].endswith("yyy")
    place.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert place.holds(TOKEN.secret) == []


def test_what_is_held_of_a_programs_output_does_not_grow_with_it() -> None:
    output = TracedOutput(lambda _: None, lambda text, state: (text, state))
    lines = b"x" * 63 + b"\n"
    tracemalloc.start()
    try:
        for _ in range(400):
            output.add(lines * 256)
        output.end()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(output.tail()) == 64 * 1024
    assert held < 200_000
    assert peak < 1_000_000


KEY = "hunter2-Very-Own-Key"


def llm_config(url: str, **more: Any) -> Config:
    return Config(worker=QUICK._replace(**more), llm=Llm(url, "small", "KEY", 10.0))


def test_a_key_that_was_read_with_its_lines_end_is_that_key(place: Place) -> None:
    place.ask("llm", {"prompt": "x"})
    with model_server(completion("yes")) as server:
        place.work(config=llm_config(server.url), tools=tools_for(KEY=f" {KEY}\n"))
    assert place.result()["text"] == "yes"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["two\nlines", "a b", "schlüssel", "\x07", "euro€"])
def test_what_cannot_be_a_key_is_said_without_it_and_nothing_is_tried(place: Place, key: str) -> None:
    place.ask("llm", {"prompt": "x"})
    config, tools = llm_config("http://127.0.0.1:9"), tools_for(KEY=key)
    seen = place.work(config=config, tools=tools)
    assert (seen.retried, seen.given_up) == (0, 0)
    said = dict(seen.problems)["llm"]
    assert "KEY does not hold a valid key" in said
    assert key not in said
    assert "KEY is not set" in str(llm.problem(config, {"KEY": " \n"}))


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {KEY}\nx"}, {"Authorization": f"Bearer {KEY}€"}, {f"{KEY}\n": "x"}])
def test_a_header_that_cannot_be_sent_is_not_in_the_error(headers: dict[str, str]) -> None:
    with model_server(completion()) as server, pytest.raises(InvalidInput) as caught:
        HttpClient().post(server.url, headers, b"{}", seconds=5.0, limit=1000)
    assert caught.value.code == "invalid-request"
    assert KEY not in str(caught.value.to_json())
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("url", ["http://[::1", "http://x:99999999/"])
def test_an_address_that_cannot_be_taken_apart_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        HttpClient().post(url, {}, b"", seconds=1.0, limit=10)
    assert caught.value.code == "invalid-url"


@pytest.mark.parametrize(("attempts", "end"), [(5, "attempt 1 failed"), (1, "given up")])
def test_what_an_attempt_failed_with_is_kept_and_shown_without_secrets(place: Place, attempts: int, end: str) -> None:
    """Neither a secret that is known by its form, nor the key to the endpoint, which has none."""
    place.ask("leaky")

    def leaky(context: Context, payload: Any) -> Any:
        raise OSError(f"refused: {TOKEN.text} {KEY}")

    config = llm_config("http://127.0.0.1:9", attempts=attempts, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
    seen = place.worker({"leaky": leaky}, config=config, tools=tools_for(KEY=f"{KEY}\n")).run(once=True)
    assert seen.last is not None
    assert seen.last.startswith(f"scout 1.1 leaky: {end}: OSError: refused: ")
    assert seen.last.endswith("***")
    assert KEY not in seen.last
    assert TOKEN.secret not in seen.last
    place.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert place.holds(KEY) == place.holds(TOKEN.secret) == []


@pytest.mark.parametrize("error", [clia.errors.InvalidAnswer, clia.errors.CorruptJournal], ids=["refused", "cannot be told"])
def test_why_an_answer_was_not_taken_is_kept_and_shown_without_secrets(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: type[clia.errors.CliaError]
) -> None:
    place.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise error(f"not {TOKEN.text}")

    monkeypatch.setattr(place.space, "resume", refuse)
    config = Config(worker=QUICK._replace(backoff_max_seconds=1000.0))
    seen = place.worker({"echo": echo}, config=config).run(once=True)
    assert seen.last is not None
    assert "not [redacted" in seen.last
    assert place.holds(TOKEN.secret) == []


def test_the_key_is_not_in_an_error_however_far_down_the_answer_it_stands(place: Place) -> None:
    """Nor a part of it: what is shown is cut behind the replacement."""
    answer = b" " * (4 * 300 - 5) + KEY.encode()
    tools = tools_for(KEY=KEY)
    with model_server(Reply(500, answer)) as server:
        context = context_for(place.space, asked("llm", {}), llm_config(server.url), tools)
        with pytest.raises(TransportError) as caught:
            llm.handle(context, {"prompt": "x"})
    assert KEY[:5] not in caught.value.message


def test_an_endpoint_that_says_the_key_back_does_not_bring_it_into_a_record(place: Place) -> None:
    place.ask("llm", {"prompt": "x"})
    with model_server(completion(f"it is {KEY}", model=KEY)) as server:
        place.work(config=llm_config(server.url), tools=tools_for(KEY=KEY))
    assert place.result()["text"] == "it is ***"
    assert place.holds(KEY) == []
