"""Every verb of a session for crash tests: how to run it, who ran it, and its expected result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clia.sessions.request_rows import INLINE_MAX
from support.session_driver import AT_ONCE, AT_TWO, FINE, WORTH, answers, brought_to_its_end, check_nothing_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    import clia
    from support.session_driver import SessionCrashSpace


class SessionVerb(NamedTuple):
    """A verb to kill, how to see who ran it, and the expected result of the session."""

    agent: str  # whose lock it takes first
    act: Callable[[clia.Space], object]
    done_by: Callable[[clia.Space], set[str]]
    then: Callable[[clia.Space, set[str]], object]
    new_agent: str | None = None  # the agent that it creates
    once: bool = True  # whether only one process can do it


def me(space: clia.Space) -> str:
    return space.local.person.name


def person(text: str) -> str:
    return text.partition(" <")[0]


def answered(agent: str, request: str) -> Callable[[clia.Space], set[str]]:
    return lambda space: {answers(space, agent)[request]} if request in answers(space, agent) else set()


def started_by(agent: str, flow: str) -> Callable[[clia.Space], set[str]]:
    return lambda s: {person(s.journal(agent, session.id)[0]["by"]) for session in s.sessions(agent) if session.flow == flow}


def asked_by(space: clia.Space) -> set[str]:
    return {request.payload["who"] for request in space.pending("idle")}


def committed_by(agent: str, kind: str) -> Callable[[clia.Space], set[str]]:
    return lambda s: {c.committer.name for c in s.session_log(agent) if c.kind == kind and c.subject == "verb"}


def forked_by(space: clia.Space) -> set[str]:
    return {space.show(space.genesis("fresh")).committer.name} if "fresh" in space.agents() else set()


def cancelled_by(space: clia.Space) -> set[str]:
    session = space.session("scout", "1")
    return {person(session.failure["by"])} if session.failure else set()


def retried_by(space: clia.Space) -> set[str]:
    return {person(event["by"]) for event in space.sessions.journal("broken") if event["event"] == "retried"}


def defined_by(space: clia.Space) -> set[str]:
    source = [space.flow(cid).source for name in space.flows() if name.name == "new" for cid in name.versions]
    return {who for who in WORTH if any(who in line for line in source)}


def two(space: clia.Space) -> str:
    return next(commit.cid for commit in space.session_log("scout") if commit.subject == AT_TWO)


def start(space: clia.Space) -> object:
    return space.start("idle", "sum", {"times": 1, "choices": [], "who": me(space)})


def comes_to(agent: str, result: Callable[[str], object]) -> Callable[[clia.Space, set[str]], None]:
    """Check that the finished session has the result that follows from who ran the verb."""

    def check(space: clia.Space, who: set[str]) -> None:
        session = brought_to_its_end(space, agent)
        assert (session.status, session.result) == ("finished", result(next(iter(who))))

    return check


def is_over(agent: str, status: str) -> Callable[[clia.Space, set[str]], None]:
    def check(space: clia.Space, who: set[str]) -> None:
        assert space.session(agent, "1").status == status
        assert not space.pending(agent)

    return check


def summed(total: int, *verdicts: str) -> dict[str, object]:
    return {"total": total, "verdicts": list(verdicts)}


def restarts(space: clia.Space, who: set[str]) -> None:
    space.start("idle", "new", 3)
    assert space.session("idle").result == [3, 3]


VERBS = {
    "start": SessionVerb("idle", start, started_by("idle", "sum"), comes_to("idle", lambda _: {"total": FINE})),
    "start that ends": SessionVerb(
        "idle",
        lambda s: s.start("idle", "at-once", me(s)),
        started_by("idle", "at-once"),
        lambda s, who: [s.session("idle", str(n + 1)).result[0] for n in range(len(who))] == sorted(who, key=[*WORTH].index),
        once=False,
    ),
    "resume": SessionVerb(
        "scout",
        lambda s: s.resume("scout", WORTH[me(s)], "1.4"),
        answered("scout", "1.4"),
        comes_to("scout", lambda who: summed(3 + WORTH[who] + FINE, "fine", "fine")),
    ),
    "resume that ends": SessionVerb(
        "closer",
        lambda s: s.resume("closer", me(s), "1.1"),
        answered("closer", "1.1"),
        comes_to("closer", lambda who: who),
    ),
    "give up": SessionVerb(
        "scout",
        lambda s: s.give_up("scout", "no luck", "1.4"),
        answered("scout", "1.4"),
        comes_to("scout", lambda _: summed(2 + FINE, "fine", "fine")),
    ),
    "give up that ends": SessionVerb(
        "closer", lambda s: s.give_up("closer", "no luck", "1.1"), answered("closer", "1.1"), is_over("closer", "failed")
    ),
    "decide": SessionVerb(
        "judge",
        lambda s: s.decide("judge", me(s), "verb", request_id="1.2"),
        answered("judge", "1.2"),
        comes_to("judge", lambda who: summed(1, who, "fine")),
    ),
    "decide that ends": SessionVerb(
        "chair",
        lambda s: s.decide("chair", me(s), "verb", request_id="1.3"),
        answered("chair", "1.3"),
        comes_to("chair", lambda who: summed(1, "tess", who)),
    ),
    "decide on a question": SessionVerb(
        "asker",
        lambda s: s.decide("asker", me(s), "verb", request_id="ask-1.1"),
        answered("asker", "ask-1.1"),
        lambda s, who: {s.session("asker", "ask-1").result} == who,
    ),
    "resume one of many": SessionVerb(
        "crowd",
        lambda s: s.resume("crowd", WORTH[me(s)], "1.2"),
        answered("crowd", "1.2"),
        comes_to("crowd", lambda who: {"total": WORTH[who] + INLINE_MAX * FINE, "verdict": "fine"}),
    ),
    "decide one of many": SessionVerb(
        "crowd",
        lambda s: s.decide("crowd", me(s), "verb"),
        answered("crowd", f"1.{INLINE_MAX + 2}"),
        comes_to("crowd", lambda who: {"total": (INLINE_MAX + 1) * FINE, "verdict": who}),
    ),
    "ask": SessionVerb(
        "idle",
        lambda s: s.ask("idle", {"question": "May I?", "who": me(s)}),
        asked_by,
        lambda s, who: [s.decide("idle", "yes", request_id=request.id) for request in s.pending("idle")],
        once=False,
    ),
    "fork": SessionVerb(
        "scout",
        lambda s: s.fork("scout", "fresh"),
        forked_by,
        comes_to("fresh", lambda _: summed(3 + 2 * FINE, "fine", "fine")),
        "fresh",
    ),
    "fork at a commit": SessionVerb(
        "scout",
        lambda s: s.fork("scout", "fresh", two(s)),
        forked_by,
        comes_to("fresh", lambda _: summed(2 + 3 * FINE, "fine", "fine")),
        "fresh",
    ),
    "cancel": SessionVerb("scout", lambda s: s.cancel("scout", "enough"), cancelled_by, is_over("scout", "cancelled")),
    "retry": SessionVerb(
        "broken",
        lambda s: s.sessions.retry("broken", "verb"),
        retried_by,
        comes_to("broken", lambda _: FINE),
    ),
    "define": SessionVerb(
        "idle", lambda s: s.define("new", f"# {me(s)}\n{AT_ONCE}", why="verb"), defined_by, restarts, once=False
    ),
    "commit": SessionVerb(
        "scout",
        lambda s: s.commit("scout", "finding", changes={"verb.txt": b"verb\n"}, message="verb"),
        committed_by("scout", "finding"),
        comes_to("scout", lambda _: summed(3 + 2 * FINE, "fine", "fine")),
        once=False,
    ),
    "commit with trace": SessionVerb(
        "scout",
        lambda s: s.commit_with_trace("scout", "finding", changes={"verb.txt": b"verb\n"}, message="verb"),
        committed_by("scout", "finding"),
        comes_to("scout", lambda _: summed(3 + 2 * FINE, "fine", "fine")),
        once=False,
    ),
}  # fmt: skip


def check_done(place: SessionCrashSpace, space: clia.Space, verb: SessionVerb, by: set[str]) -> None:
    """Check that exactly these persons ran the verb, that it can run now otherwise, and the result of the session."""
    check_nothing_lost(place, space)
    assert verb.done_by(space) == by
    winners = by
    if not winners:
        verb.act(space)
        winners = {me(space)}
        assert verb.done_by(space) == winners
    assert verb.then(space, winners) is not False
    check_nothing_lost(place, space)
    assert not list((place.root / ".git/refs").rglob("*.lock"))
