"""Sessions with many pending requests: each request has its own row, and a step costs the same however many there are."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import FlowCall, Turn
from clia.sessions.records import LIVE, REQUEST, SessionRow
from clia.sessions.replay import SNAPSHOT_BLOCK, SNAPSHOT_INTERVAL
from clia.sessions.request_rows import INLINE_MAX, changes, new_calls, waiting, waiting_after
from clia.space.traces import stream as trace_stream
from clia.store.interface import FEED
from support import git
from support.session_spaces import EngineSpy, SessionSpace, commit_change, forget_runs, put_value, stored, use_engine, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WIDE = """\
import asyncio

async def main(input):
    answers = await asyncio.gather(*[request(input["kind"], {"question": f"number {n}?"}) for n in range(input["count"])])
    return answers
"""
GROWING = """\
import asyncio

async def branch(n, depth):
    answer = await request("number", {"n": n, "depth": depth})
    return [answer, *([] if depth == 0 else await branch(n, depth - 1))]

async def main(input):
    return await asyncio.gather(*[branch(n, n % 3) for n in range(input)])
"""
IMPATIENT = """\
import asyncio

async def first():
    raise ValueError(await request("first"))

async def main(input):
    try:
        await asyncio.gather(first(), *[request("number", n) for n in range(input)])
    except ValueError:
        pass
    return await asyncio.gather(*[request("again", n) for n in range(input)])
"""


@pytest.fixture
def space(place: SessionSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout", wide=WIDE, growing=GROWING, impatient=IMPATIENT)


def wide(space: clia.Space, count: int, kind: str = "number", agent: str = "scout") -> None:
    space.start(agent, "wide", {"count": count, "kind": kind})


def row(space: clia.Space, agent: str = "scout") -> dict[str, Any]:
    value: dict[str, Any] = stored(space, f"{LIVE}{agent}/1")
    return value


def request_keys(space: clia.Space) -> list[str]:
    return [key for key, _ in space.local.store.scan(REQUEST)]


def as_earlier_versions(space: clia.Space) -> None:
    """Store the requests as versions without request rows did."""
    values = row(space)
    pending = [call for _, call in space.local.store.scan(REQUEST)]
    with space.local.store.writing() as transaction:
        transaction.values.discard(REQUEST)
        old = {key: value for key, value in values.items() if key not in ("waits", "at")}
        transaction.values.put(f"{LIVE}scout/1", old | {"pending": pending})


@pytest.mark.parametrize("count", [INLINE_MAX, INLINE_MAX + 1, 3 * INLINE_MAX])
def test_only_sessions_with_many_requests_have_rows_for_them(space: clia.Space, count: int) -> None:
    wide(space, count)
    many = count > INLINE_MAX
    assert len(request_keys(space)) == (count if many else 0)
    assert ("pending" in row(space), row(space).get("waits")) == (not many, count if many else None)
    ids = [f"1.{n}" for n in range(1, count + 1)]
    assert [request.id for request in space.pending()] == ids
    assert [request.id for request in space.session("scout").pending] == ids
    assert [request.id for session in space.sessions() for request in session.pending] == ids
    assert space.pending() == list(space.session("scout").pending)
    assert space.doctor() == []


@pytest.mark.parametrize("forgets", [False, True])
def test_every_answer_is_recorded_once_down_to_the_last(place: SessionSpace, space: clia.Space, *, forgets: bool) -> None:
    count, order = INLINE_MAX + 6, random.Random(1)  # noqa: S311  # an order
    wide(space, count)
    left = list(range(1, count + 1))
    order.shuffle(left)
    session = space.session("scout")
    while left:
        number = left.pop()
        if forgets:
            forget_runs(space)
        session = space.resume("scout", number, f"1.{number}")
        assert [request.id for request in session.pending] == [f"1.{n}" for n in sorted(left)]
        assert space.pending() == list(session.pending)
        assert len(request_keys(space)) == (len(left) if len(left) > INLINE_MAX else 0)
        with pytest.raises(errors.StaleRequest):
            space.resume("scout", 0, f"1.{number}")
    assert session.result == [*range(1, count + 1)]
    assert space.doctor() == []
    with place.open() as again:
        assert again.session("scout").result == session.result


def test_requests_that_follow_others_get_rows_too(space: clia.Space) -> None:
    session = space.start("scout", "growing", 30)
    order = random.Random(2)  # noqa: S311  # an order
    asked_at: dict[str, str] = {}
    while pending := space.pending():
        for request in pending:
            assert asked_at.setdefault(request.id, request.since) == request.since, "a pending request keeps its time"
        request = order.choice(pending)
        session = space.resume("scout", request.payload["depth"], request.id)
        assert space.doctor() == []
    assert session.result == [list(range(n % 3, -1, -1)) for n in range(30)]


def test_many_new_requests_after_one_answer_are_added_to_the_others(space: clia.Space) -> None:
    space.start("scout", "impatient", 20)
    assert len(request_keys(space)) == 21
    session = space.resume("scout", "no", "1.21")
    assert [request.kind for request in session.pending] == ["number"] * 20 + ["again"] * 20
    assert space.pending() == list(session.pending)
    assert len(request_keys(space)) == 40
    assert space.doctor() == []


def bytes_written(space: clia.Space, agent: str, act: Callable[[], object]) -> dict[str, int]:
    """The size of what a step appends, and of the session's row afterwards."""
    streams = {"events": f"session/{agent}/1", "trace": trace_stream(agent), "feed": FEED}
    with space.local.store.reading() as view:
        ends = {name: view.streams.end(stream) for name, stream in streams.items()}
    act()
    with space.local.store.reading() as view:
        appended = {name: [entry.body for entry in view.streams.read(stream, ends[name])] for name, stream in streams.items()}
    return {name: len(json.dumps(bodies)) for name, bodies in appended.items()} | {"row": len(json.dumps(row(space, agent)))}


def test_a_step_writes_the_same_however_many_requests_are_pending(place: SessionSpace, space: clia.Space) -> None:
    """Apart from the digits of numbers."""
    written, notes = [], []
    for agent, count in (("few", 30), ("many", 300)):
        with_agents(space, agent)
        wide(space, count, "human", agent)
        keys = set(request_keys(space))
        steps = [bytes_written(space, agent, lambda: space.decide(agent, "yes", request_id=f"1.{n}")) for n in (1, 2)]  # noqa: B023  # called at once
        assert keys - set(request_keys(space)) == {f"{REQUEST}{agent}/1/{n:012d}" for n in (1, 2)}
        written.append(steps[1])
        head = space.head(agent)
        notes.append(len(git("notes", f"--ref=clia/session/{agent}", "show", head, cwd=place.root)))
    small, large = written
    assert all(large[name] <= small[name] + 4 for name in small), written
    assert notes[1] <= notes[0] + 4


def test_the_feed_and_the_trace_list_new_requests_and_count_the_others(space: clia.Space) -> None:
    count = INLINE_MAX + 2
    wide(space, count)
    space.resume("scout", 1, "1.5")
    space.resume("scout", 1, "1.6")
    with space.local.store.reading() as view:
        started, many, few = [entry.body for entry in view.streams.read(FEED)]
    ids = [f"1.{n}" for n in range(1, count + 1)]
    assert ([request["id"] for request in started["waits"]], started["asked"], started.get("more")) == (ids, ids, None)
    assert (many["waits"], many["asked"], many["more"], many["answered"]["request"]) == ([], [], count - 1, "1.5")
    assert ([request["id"] for request in few["waits"]], few["asked"]) == ([one for one in ids if one not in ("1.5", "1.6")], [])
    assert "more" not in few
    texts = [entry["text"] for entry in space.trace_pending("scout")]
    assert texts[0].endswith(f"waits for {', '.join(f'number ({one})' for one in ids)}")
    assert texts[1].endswith(f"; waits for {count - 1} others")
    assert texts[2].endswith(f"number (1.{count})")


def test_rows_of_earlier_versions_are_read_and_replaced(place: SessionSpace, space: clia.Space) -> None:
    count = INLINE_MAX + 4
    wide(space, count)
    before = space.pending()
    as_earlier_versions(space)
    forget_runs(space)
    assert space.pending() == before
    assert space.doctor() == []
    session = space.resume("scout", 1, "1.2")
    assert [request.id for request in session.pending] == [request.id for request in before if request.id != "1.2"]
    assert [request.since for request in session.pending] == [request.since for request in before if request.id != "1.2"]
    assert len(request_keys(space)) == count - 1
    assert "pending" not in row(space)
    with place.open() as again:
        assert again.pending() == list(session.pending)


@pytest.mark.parametrize("damage", ["missing", "garbled"])
def test_a_damaged_row_of_a_request_is_found_and_repaired(space: clia.Space, damage: str) -> None:
    with_agents(space, "other")
    wide(space, 20)
    wide(space, 2, agent="other")
    key = request_keys(space)[3]
    if damage == "missing":
        with space.local.store.writing() as transaction:
            transaction.values.discard(key)
    else:
        put_value(space, key, ["?"])
    forget_runs(space)
    assert {request.agent for request in space.pending()} == {"scout", "other"}, "other rows are shown"
    assert [session.agent for session in space.sessions()] == ["other"]
    refused("damaged-row", lambda: space.resume("scout", 1, "1.1"))
    refused("damaged-row", lambda: space.session("scout"))
    if damage == "garbled":
        refused("damaged-row", lambda: space.resume("scout", 1, "1.4"))
    findings = space.doctor(repair=True)
    assert [(finding.code, finding.agent, finding.repaired) for finding in findings] == [("row-differs", "scout", True)]
    assert space.doctor() == []
    assert len(space.resume("scout", 1, "1.4").pending) == 19


@pytest.mark.parametrize("number", ["", "x", "01", "+1", "99", "1" * 30, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_an_unknown_request_of_many_is_not_found(space: clia.Space, number: str) -> None:
    wide(space, 20)
    refused("no-such-request", lambda: space.resume("scout", 1, f"1.{number}"))


def test_an_answer_without_a_request_is_ambiguous(space: clia.Space) -> None:
    wide(space, 20)
    error = refused("several-requests", lambda: space.resume("scout", 1))
    assert len(error.fields["matches"]) == 20


def test_ends_and_forks_of_many_requests(place: SessionSpace, space: clia.Space) -> None:
    wide(space, 20)
    space.resume("scout", 1, "1.1")
    commit = commit_change(space)
    space.resume("scout", 1, "1.2")
    for name, at, left in (("now", None, 18), ("then", commit, 19)):
        fork = space.fork("scout", name, at)
        assert len(fork.pending) == len(space.pending(name)) == left
        assert len([key for key in request_keys(space) if key.startswith(f"{REQUEST}{name}/")]) == left
        assert len(space.resume(name, 1, "1.20").pending) == left - 1
    space.cancel("scout")
    assert [key for key in request_keys(space) if key.startswith(f"{REQUEST}scout/")] == []
    assert space.pending("scout") == []
    place.lose_store(rebuild=False)
    with place.open() as again:
        assert [finding.code for finding in again.doctor(repair=True)] == ["store-lost", "lost-session", "lost-session"]
        assert len(again.pending("then")) == 19
        assert again.doctor() == []


def test_snapshots_of_a_large_state_are_rare_and_restore_it(space: clia.Space) -> None:
    spy: EngineSpy = use_engine(space, EngineSpy)
    wide(space, 400)
    blocks: dict[int, int] = {}
    for number in range(1, 60):
        space.resume("scout", 1, f"1.{number}")
        snapshot = stored(space, "snapshot/scout/1")
        if snapshot is not None:
            blocks[snapshot[0]] = len(snapshot[4]) // SNAPSHOT_BLOCK
    assert next(iter(blocks)) == SNAPSHOT_INTERVAL
    assert [later - earlier for earlier, later in pairwise(blocks)] == list(blocks.values())[:-1]
    assert min(blocks.values()) > SNAPSHOT_INTERVAL
    forget_runs(space)
    spy.counts()
    assert len(space.resume("scout", 1, "1.60").pending) == 340
    started, loaded, _ = spy.counts()
    assert (started, loaded) == (0, 1)
    assert space.doctor() == []


# Without a store


def calls(*numbers: int) -> tuple[FlowCall, ...]:
    return tuple(FlowCall(number, "number", None, None, 1) for number in numbers)


def row_with(*numbers: int) -> SessionRow:
    empty = SessionRow("f" * 40, "wide", "suspended", "2026-01-01T00:00:00Z", 0, 1, (), {})
    return waiting(empty, Turn(calls(*numbers)), "t0")


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [((), (1, 2), (1, 2)), ((1, 2), (2,), ()), ((1, 5), (1, 6, 9), (6, 9)), ((1, 5), (5, 7), (7,)), ((3,), (), ())],
)
def test_new_calls_are_those_with_higher_numbers(before: tuple[int, ...], after: tuple[int, ...], new: tuple[int, ...]) -> None:
    assert tuple(new_calls(calls(*before), calls(*after))) == calls(*new)


MANY = range(1, 30)


@pytest.mark.parametrize(
    ("before", "answered", "after"),
    [
        (MANY, 3, {*MANY} - {3}),
        (MANY, 3, {*MANY, 31, 32} - {3}),
        (MANY, 3, {*MANY, 31} - {3, 7, 8}),  # the flow dropped two
        (MANY, 29, {1, 2}),
        ((1, 2), 1, {*MANY} - {1}),
        (MANY, 1, {40}),
    ],
)
def test_the_changes_of_a_step_lead_to_its_rows(before: Iterable[int], answered: int, after: set[int]) -> None:
    old = row_with(*before)
    new = waiting_after(old, old._replace(done=1), answered, Turn(calls(*sorted(after))), "t1")
    assert dict(new.since) == {number: "t0" if number in set(before) else "t1" for number in sorted(after)}
    assert list(new.since) == sorted(after)
    rows: dict[str, Any] = {}
    for step in (changes("scout", "1", None, old), changes("scout", "1", old, new, answered)):
        rows = {key: value for key, value in rows.items() if not key.startswith(step.discards or ("-",))} | dict(step.puts)
    stored_row = rows.pop(f"{LIVE}scout/1")
    listed = stored_row["pending"] if "pending" in stored_row else [rows[key] for key in sorted(rows)]
    assert listed == new.calls()
    assert bool(rows) == (len(after) > INLINE_MAX)
