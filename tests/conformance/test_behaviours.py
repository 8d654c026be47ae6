"""The verbs of behaviours, on each store and over HTTP: versions, observations, suggestions and adoption."""

from __future__ import annotations

import hashlib
import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.values.typed_objects import as_bytes
from support import git
from support.fake_secrets import FAKES
from support.remote import TESS, local_of, remote_session_space, root_of
from support.session_spaces import STORES, SessionSpace, session_space_on, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STRICT = """\
def main(input):
    answer = request("human", {"question": input})
    if answer == "no":
        raise ValueError("it was refused")
    return answer
"""
MILD = """\
def main(input):
    answer = request("human", {"question": input})
    print("they said", answer)
    return answer
"""
CURIOUS = """\
def main(input):
    answer = request("human", {"question": input})
    return request("human", {"question": "sure?", "said": answer})
"""


@pytest.fixture(params=[*STORES, "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SessionSpace:
    """A space on each store, and one over HTTP."""
    if request.param == "remote":
        return remote_session_space(request.getfixturevalue("served"), tmp_path)
    return session_space_on(request, tmp_path, request.param)


@pytest.fixture
def scout(place: SessionSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout")


def refs(space: clia.Space) -> str:
    return git("for-each-ref", cwd=root_of(space))


def told(space: clia.Space) -> dict[str, Any]:
    """The whole state of behaviours, to detect changes; must be equal locally and remotely."""
    answers = {
        "behaviours": space.behaviours(),
        "stats": space.behaviours.stats(over="day"),
        "gaps": space.behaviours.gaps(),
    }
    own = local_of(space)
    assert answers == {"behaviours": own.behaviours(), "stats": own.behaviours.stats(over="day"), "gaps": own.behaviours.gaps()}
    return {**answers, "refs": refs(space)}


def answered(space: clia.Space, flow: str, *answers: str) -> None:
    """Run a session of a flow for each answer."""
    for answer in answers:
        space.start("scout", flow, "well?")
        space.decide("scout", answer)


# A flow's life


def test_a_flow_from_its_first_version_to_the_retirement_of_its_last(scout: clia.Space) -> None:
    first = scout.behaviours.add("review", STRICT, "session-flow", why="the first", notes="asks once")
    assert first == clia.BehaviourVersion(
        *("review", first.cid, "session-flow", "current", STRICT, None, "asks once", TESS, first.at, "the first")
    )
    assert scout.types.read(first.cid) == clia.Behaviour("review", "session-flow", STRICT, notes="asks once")
    answered(scout, "review", "yes", "no", "yes")
    work = scout.commit("scout", "test", {"a": b"1"}, meta={"outcome": "failed"})

    # A proposal is stored and cannot run.
    second = scout.behaviours.propose(
        "review", MILD, evidence=[work, work[:12]], why="no is an answer", notes="mild", agent="scout"
    )
    assert (second.state, second.parent, second.evidence) == ("proposed", first.cid, (work,))
    assert second.by.startswith("scout <")
    before = told(scout)
    assert scout.behaviours.propose("review", MILD, evidence=[work], agent="scout") == second
    assert scout.behaviours.add("review", STRICT) == first
    assert isinstance(refused("not-adopted", lambda: scout.start("scout", second.cid)), errors.CapabilityDenied)
    assert told(scout) == before
    assert scout.start("scout", "review", "?").flow_cid == first.cid
    scout.cancel("scout")

    # On trial it runs by its id; the name still means the current version.
    assert scout.behaviours.adopt("review", second.cid[:8], trial=True, why="let us see").state == "trial"
    answered(scout, second.cid, "no", "yes")
    assert scout.behaviours.version("review").cid == first.cid
    by_version = {stats.cid: stats for stats in scout.behaviours.stats("review")}
    assert [dict(by_version[cid].sessions) for cid in (first.cid, second.cid)] == [
        {"cancelled": 1, "failed": 1, "finished": 2},
        {"finished": 2},
    ]
    assert dict(by_version[second.cid].decisions) == {"approved": 1, "rejected": 1}

    # An adoption with another expected version changes nothing.
    assert scout.behaviours.adopt("review", second.cid, expect=first.cid, evidence=[work], why="milder").state == "current"
    before = told(scout)
    lost = refused("stale-behaviour", lambda: scout.behaviours.adopt("review", first.cid, expect=first.cid[:12]))
    assert isinstance(lost, errors.StaleRef)
    assert (lost.expected, lost.actual) == (first.cid, second.cid)
    refused("stale-behaviour", lambda: scout.behaviours.retire("review", expect=first.cid))
    assert scout.behaviours.adopt("review", second.cid) == scout.behaviours.version("review")
    assert told(scout) == before
    assert scout.start("scout", "review", "?").flow_cid == second.cid

    # A retired version cannot be started; its running sessions continue.
    assert scout.behaviours.retire("review", why="enough").state == "retired"
    assert scout.decide("scout", "yes").session.status == "finished"
    before = told(scout)
    refused("nothing-adopted", lambda: scout.behaviours.version("review"))
    refused("retired", lambda: scout.start("scout", second.cid))
    assert isinstance(refused("nothing-adopted", lambda: scout.start("scout", "review")), errors.NotFound)
    assert scout.behaviours.retire("review", second.cid).state == "retired"
    assert told(scout) == before
    behaviour = scout.behaviours.get("review")
    assert (behaviour.current, [version.state for version in behaviour.versions]) == (None, ["former", "retired"])
    assert [(event.event, event.cid, event.why) for event in behaviour.history] == [
        ("retire", second.cid, "enough"),
        ("adopt", second.cid, "milder"),
        ("trial", second.cid, "let us see"),
        ("propose", second.cid, "no is an answer"),
        ("define", first.cid, "the first"),
    ]
    assert scout.verify().clean


def test_comparing_and_replaying_versions_writes_nothing(scout: clia.Space) -> None:
    first = scout.behaviours.add("review", STRICT, "session-flow")
    answered(scout, "review", "no", "yes")
    mild, curious = (scout.behaviours.propose("review", body) for body in (MILD, CURIOUS))
    before = told(scout)
    patch = scout.behaviours.diff("review", mild.cid).splitlines()
    assert patch[:2] == [f"--- review@{first.cid[:12]}", f"+++ review@{mild.cid[:12]}"]
    assert '+    print("they said", answer)' in patch

    replay = scout.behaviours.replay("scout", mild.cid, "1")
    assert replay == local_of(scout).behaviours.replay("scout", mild.cid, "1")
    assert (replay.agent, replay.session, replay.flow, replay.with_) == ("scout", "1", first.cid, mild.cid)
    assert (replay.same, replay.departs_at, replay.ended, replay.result, replay.printed) == (
        False,
        None,
        True,
        "no",
        "they said no\n",
    )
    assert (replay.recorded_status, replay.recorded_failure) == (
        "failed",
        {"reason": "raised", "message": "ValueError: it was refused"},
    )
    departed = scout.behaviours.replay("scout", curious.cid)
    assert (departed.session, departed.departs_at, departed.ended, departed.unasked) == ("2", 2, False, ())
    assert [(step.payload, step.answered, step.value) for step in departed.steps] == [
        ({"question": "well?"}, True, "yes"),
        ({"question": "sure?", "said": "yes"}, False, None),
    ]
    assert scout.behaviours.replay("scout", first.cid, "2").same

    compared = scout.behaviours.compare(first.cid, mild.cid)
    assert compared == local_of(scout).behaviours.compare(first.cid, mild.cid)
    finished = compared.measures[0]
    assert (finished.measure, finished.before.good, finished.before.n, finished.after.rate) == ("finished", 1, 2, None)
    assert (finished.better, finished.proven) == (None, 0)
    assert 0 < finished.before.low < 0.5 < finished.before.high < 1
    suggested = scout.behaviours.suggest("review")
    assert suggested == local_of(scout).behaviours.suggest("review")
    assert (suggested.action, suggested.cid, suggested.expect, suggested.least) == ("not-enough-data", None, first.cid, 20)
    assert {candidate.cid for candidate in suggested.candidates} == {mild.cid, curious.cid}
    assert scout.behaviours.suggest("review", "approved").measure == "approved"
    assert scout.behaviours.follow_policy("review") is None
    assert told(scout) == before


# Prompts


def test_a_prompt_makes_briefings_and_commits_name_its_version(scout: clia.Space) -> None:
    prompt = scout.behaviours.add("careful", "You are {{agent}}.\n\n{{task}}\n\nBe careful.", "prompt")
    briefing = scout.behaviours.brief("careful", "Look", "Look at {{agent}}.", agent="digger")
    assert briefing == clia.Briefing("Look", "You are digger.\n\nLook at {{agent}}.\n\nBe careful.", prompt.cid)
    spawned = scout.spawn("digger", briefing)
    assert scout.show(spawned.genesis).behaviour == prompt.cid
    work = scout.commit("digger", "test", {"a": b"1"}, meta={"outcome": "passed"})
    assert scout.show(work).behaviour == prompt.cid
    (stats,) = scout.behaviours.stats(prompt.cid)
    assert (stats.name, dict(stats.commits), dict(stats.outcomes)) == ("careful", {"spawn": 1, "test": 1}, {"passed": 1})
    assert [(rate.measure, rate.good, rate.n) for rate in stats.rates] == [("passed", 1, 1)]

    # A proposal cannot be used for briefings; a name means its current version.
    proposal = scout.behaviours.propose("careful", "Be more careful.", parent=prompt.cid, evidence=[work])
    before = told(scout)
    for call in (
        lambda: scout.behaviours.brief(proposal.cid, "Look"),
        lambda: scout.spawn("more", clia.Briefing("Look", behaviour=proposal.cid)),
        lambda: scout.spawn_from("more", clia.Briefing("Look", behaviour=proposal.cid), "digger"),
        lambda: scout.spawn_at("more", clia.Briefing("Look", behaviour=proposal.cid), work),
    ):
        assert isinstance(refused("not-adopted", call), errors.CapabilityDenied)
    assert told(scout) == before
    scout.behaviours.adopt("careful", proposal.cid, expect=prompt.cid)
    assert scout.behaviours.brief("careful", "Look", "There.").text == "Be more careful.\n\nThere."
    assert scout.behaviours.brief(prompt.cid, "Look").behaviour == prompt.cid
    scout.behaviours.retire("careful", prompt.cid)
    refused("retired", lambda: scout.behaviours.brief(prompt.cid, "Look"))
    refused("retired", lambda: scout.spawn("more", briefing))


# Policy


def test_a_better_version_is_suggested_with_evidence_and_adopted_by_the_policy(place: SessionSpace) -> None:
    with place.configured('[behaviours.careful]\nmeasure = "passed"\nleast = 8\nerror = 0.2\nadopt = true\n').open() as space:
        first = space.behaviours.add("careful", "Be careful.", "prompt")
        second = space.behaviours.propose("careful", "Be more careful.")
        space.behaviours.adopt("careful", second.cid, trial=True)
        commits = {}
        for cid, outcome in ((first.cid, "failed"), (second.cid, "passed")):
            agent = f"of-{outcome}"
            space.spawn(agent, space.behaviours.brief(cid, "Look"))
            commits[cid] = [space.commit(agent, "test", {}, meta={"outcome": outcome}) for _ in range(8)]
            if cid == first.cid:
                assert space.behaviours.suggest("careful").action == "not-enough-data"
                assert space.behaviours.follow_policy("careful") is None
        suggestion = space.behaviours.suggest("careful")
        assert (suggestion.action, suggestion.cid, suggestion.expect, suggestion.measure) == (
            "adopt",
            second.cid,
            first.cid,
            "passed",
        )
        (candidate,) = suggestion.candidates
        assert (candidate.compared.proven, candidate.compared.before.good, candidate.compared.after.good) == (1, 0, 8)
        assert set(suggestion.evidence) <= {*commits[first.cid], *commits[second.cid]}
        assert set(suggestion.evidence) & set(commits[first.cid])
        assert set(suggestion.evidence) & set(commits[second.cid])
        adopted = space.behaviours.follow_policy("careful")
        assert adopted == space.behaviours.version("careful")
        assert adopted is not None
        assert (adopted.cid, adopted.evidence) == (second.cid, suggestion.evidence)
        last = space.behaviours.get("careful").history[0]
        assert (last.event, last.measure, last.evidence) == ("adopt", "passed", suggestion.evidence)
        assert space.behaviours.suggest("careful").action == "retire"
        assert space.behaviours.follow_policy("careful") is None


# Bad input


def test_bad_input_is_refused_with_its_code_and_changes_nothing(scout: clia.Space) -> None:
    flow = scout.behaviours.add("review", STRICT, "session-flow")
    prompt = scout.behaviours.add("careful", "Be careful.", "prompt")
    written = scout.types.write(clia.Behaviour("stray", "prompt", "Stray about."))
    object_ = scout.types.write(BRIEFING)
    only = scout.behaviours.propose("later", "Later.", "prompt")
    answered(scout, "review", "yes")
    before = told(scout)
    cases: list[tuple[str, type[errors.CliaError], Callable[[], object]]] = [
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.get("nothing")),
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.get("../x")),
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.suggest("nothing")),
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.follow_policy("nothing")),
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.retire("nothing")),
        ("no-such-behaviour", errors.NotFound, lambda: scout.behaviours.adopt("nothing", flow.cid)),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.version("nothing")),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.version("")),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.stats("nothing")),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.adopt("review", prompt.cid)),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.adopt("review", written)),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.retire("review", "0" * 40)),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.propose("review", MILD, parent=prompt.cid)),
        ("no-such-version", errors.NoSuchObject, lambda: scout.behaviours.adopt("review", flow.cid, expect="abcd")),
        ("no-such-object", errors.NoSuchObject, lambda: scout.behaviours.version("0" * 40)),
        ("no-such-object", errors.NoSuchObject, lambda: scout.spawn("more", clia.Briefing("t", behaviour="0" * 40))),
        ("not-a-behaviour", errors.NoSuchObject, lambda: scout.behaviours.version(object_)),
        ("not-a-behaviour", errors.NoSuchObject, lambda: scout.spawn("more", clia.Briefing("t", behaviour=object_))),
        ("execute-denied", errors.CapabilityDenied, lambda: scout.behaviours.brief(written, "t")),
        ("execute-denied", errors.CapabilityDenied, lambda: scout.spawn("more", clia.Briefing("t", behaviour=written))),
        ("wrong-kind", errors.Conflict, lambda: scout.behaviours.add("review", "Be careful.", "prompt")),
        ("wrong-kind", errors.Conflict, lambda: scout.behaviours.propose("careful", STRICT, "session-flow")),
        ("invalid-kind", errors.InvalidInput, lambda: scout.behaviours.add("other", "Be.", "tool")),
        ("kind-needed", errors.InvalidInput, lambda: scout.behaviours.add("other", "Be.")),
        ("kind-needed", errors.InvalidInput, lambda: scout.behaviours.propose("other", "Be.")),
        ("invalid-name", errors.InvalidInput, lambda: scout.behaviours.add("a/b", "Be.", "prompt")),
        ("already-exists", errors.AlreadyExists, lambda: scout.behaviours.add("ask", STRICT, "session-flow")),
        ("invalid-prompt", errors.InvalidInput, lambda: scout.behaviours.add("careful", " \n")),
        ("invalid-prompt", errors.InvalidInput, lambda: scout.behaviours.propose("careful", f"Use {FAKES[0].text}.")),
        ("invalid-flow", errors.InvalidFlow, lambda: scout.behaviours.add("review", "def other(input):\n    return 1\n")),
        ("invalid-flow", errors.InvalidFlow, lambda: scout.behaviours.propose("review", "def main(input):\n    yield 1\n")),
        ("too-long", errors.InvalidInput, lambda: scout.behaviours.propose("careful", "Be.", notes="n" * 20_000)),
        ("invalid-evidence", errors.InvalidInput, lambda: scout.behaviours.propose("careful", "Be.", evidence=written)),
        ("invalid-evidence", errors.InvalidInput, lambda: scout.behaviours.adopt("careful", prompt.cid, evidence=None)),  # type: ignore[arg-type]
        ("no-such-object", errors.NoSuchObject, lambda: scout.behaviours.propose("careful", "Be.", evidence=["0" * 40])),
        ("no-such-agent", errors.NoSuchAgent, lambda: scout.behaviours.propose("careful", "Be.", agent="nobody")),
        ("stale-behaviour", errors.StaleRef, lambda: scout.behaviours.adopt("review", flow.cid, expect="0" * 40)),
        ("nothing-adopted", errors.NotFound, lambda: scout.behaviours.version("later")),
        ("nothing-adopted", errors.NotFound, lambda: scout.behaviours.brief("later", "t")),
        ("nothing-adopted", errors.NotFound, lambda: scout.behaviours.suggest("later")),
        ("nothing-adopted", errors.NotFound, lambda: scout.behaviours.retire("later")),
        ("not-adopted", errors.CapabilityDenied, lambda: scout.behaviours.brief(only.cid, "t")),
        ("not-a-prompt", errors.InvalidInput, lambda: scout.behaviours.brief("review", "t")),
        ("not-a-prompt", errors.InvalidInput, lambda: scout.spawn("more", clia.Briefing("t", behaviour=flow.cid))),
        ("not-a-flow", errors.InvalidInput, lambda: scout.behaviours.replay("scout", "careful")),
        ("no-such-session", errors.NotFound, lambda: scout.behaviours.replay("scout", "review", "7")),
        ("no-such-agent", errors.NoSuchAgent, lambda: scout.behaviours.replay("nobody", "review")),
        ("no-such-measure", errors.InvalidInput, lambda: scout.behaviours.suggest("review", "luck")),
        ("no-such-span", errors.InvalidInput, lambda: scout.behaviours.stats(over="decade")),
        ("same-version", errors.InvalidInput, lambda: scout.behaviours.compare("review", flow.cid)),
        ("version-needed", errors.InvalidInput, lambda: scout.behaviours.adopt("review")),
        ("no-such-peer", errors.NotFound, lambda: scout.behaviours.adopt("ann/review")),
        ("no-such-peer", errors.NotFound, lambda: scout.behaviours.version("ann/review")),
    ]
    for code, kind, call in cases:
        assert isinstance(refused(code, call), kind), code
    assert told(scout) == before
    assert scout.agents() == ["scout"]


def test_an_unambiguous_abbreviated_id_names_a_version(scout: clia.Space) -> None:
    first_behaviour, second_behaviour = namesakes()
    start = id_of(first_behaviour)[:7]
    first = scout.behaviours.add(first_behaviour.name, first_behaviour.body, first_behaviour.kind)
    assert first.cid[:7] == start
    assert scout.behaviours.version(start) == first
    second = scout.behaviours.add(second_behaviour.name, second_behaviour.body, second_behaviour.kind)
    error = refused("ambiguous", lambda: scout.behaviours.version(start))
    assert error.fields == {"matches": sorted([first.cid, second.cid])}
    refused("ambiguous", lambda: scout.behaviours.diff(first.cid, start))
    assert scout.behaviours.retire(second.name, start).cid == second.cid  # the name distinguishes them


@cache
def namesakes() -> tuple[clia.Behaviour, clia.Behaviour]:
    """Two prompts whose ids start with the same seven digits; about ten thousand candidates contain such a pair."""
    by_start: dict[str, clia.Behaviour] = {}
    candidates = (clia.Behaviour(f"b{number}", "prompt", "Be careful.") for number in itertools.count())
    return next(
        (by_start[start], behaviour)
        for behaviour in candidates
        if by_start.setdefault(start := id_of(behaviour)[:7], behaviour) is not behaviour
    )


def id_of(behaviour: clia.Behaviour) -> str:
    """The id that git gives an object."""
    data = as_bytes(behaviour.to_object())
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()


def test_arguments_of_the_wrong_type_are_clear_errors(scout: clia.Space) -> None:
    flow = scout.behaviours.add("review", STRICT, "session-flow").cid
    before = refs(scout)
    verbs = ("behaviour", "behaviour_version", "behaviour_stats", "suggest_behaviour", "follow_policy", "retire_behaviour")
    calls: list[Callable[[Any], object]] = [
        *(getattr(scout, verb) for verb in verbs),
        lambda bad: scout.behaviours.add(bad, "Be.", "prompt"),
        lambda bad: scout.behaviours.add("review", bad),
        lambda bad: scout.behaviours.add("other", "Be.", bad),
        lambda bad: scout.behaviours.add("review", MILD, why=bad),
        lambda bad: scout.behaviours.add("review", MILD, notes=bad),
        lambda bad: scout.behaviours.propose("review", MILD, parent=bad),
        lambda bad: scout.behaviours.propose("review", MILD, evidence=[bad]),
        lambda bad: scout.behaviours.propose("review", MILD, agent=bad),
        lambda bad: scout.behaviours.adopt(bad, flow),
        lambda bad: scout.behaviours.adopt("review", bad),
        lambda bad: scout.behaviours.adopt("review", flow, trial=bad),
        lambda bad: scout.behaviours.adopt("review", flow, expect=bad),
        lambda bad: scout.behaviours.retire("review", why=bad),
        lambda bad: scout.behaviours.brief(bad, "t"),
        lambda bad: scout.behaviours.diff("review", bad),
        lambda bad: scout.behaviours.compare(bad, "review"),
        lambda bad: scout.behaviours.suggest("review", bad),
        lambda bad: scout.behaviours.stats("review", over=bad),
        lambda bad: scout.behaviours.replay("scout", bad),
        lambda bad: scout.behaviours.replay(bad, "review"),
    ]
    for bad in (3, b"review", ["review"], "\ud800", "a\0b"):
        for number, call in enumerate(calls):
            with pytest.raises((errors.InvalidInput, errors.NotFound)):
                pytest.fail(f"{number} took {bad!r}: {call(bad)}")
    assert refs(scout) == before
