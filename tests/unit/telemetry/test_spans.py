"""Trees of spans: what belongs together, times, ids, content; and the sender against a real collector."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from requests import ConnectionError as NobodyThere

from clia.git.records import Stamp
from clia.sessions.runs import AgentRecord, SessionRun, TracedEntry, nanoseconds
from clia.space.model import AgentCommit
from clia.store.interface import Edge
from clia.telemetry.export import ExportResult, ExportSelection, as_otlp_json, parents_of, resource_of, send, sender_of, trees_of
from clia.telemetry.otlp import CollectorResponse, quietly, recording_session
from clia.telemetry.spans import TOOL_ENDS, Span, SpanBuilder, SpanTree
from support.otlp_collector import Collector, Reply, collecting, partly
from support.spaces import refused
from support.telemetry_scene import MARK, TOOL_SESSION, scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import clia

SPACE = "space-1"
STARTS = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp())


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clia.Space]:
    with scene(tmp_path_factory.mktemp("telemetry").resolve() / "repo") as made:
        yield made


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def by_root(trees: Sequence[SpanTree]) -> dict[tuple[str, str], SpanTree]:
    return {(each.agent, each.session): each for each in trees}


def outline(tree: SpanTree) -> list[tuple[str, str]]:
    """Each span's name below the name of its parent."""
    names = {each.id: each.name for each in tree.spans}
    return sorted((names.get(each.parent or "", ""), each.name) for each in tree.spans)


def named(tree: SpanTree, name: str) -> Span:
    (found,) = [each for each in tree.spans if each.name == name]
    return found


def check_tree(tree: SpanTree) -> None:
    """One connected tree: one root, every other span below one that comes before it and covers it, with its events in it."""
    known: dict[str, Span] = {}
    for span in tree.spans:
        assert span.id not in known
        assert span.start <= span.end
        assert all(span.start <= event.at <= span.end for event in span.events)
        if known:
            above = known[span.parent or ""]
            assert above.start <= span.start
            assert span.end <= above.end
        else:
            assert span.parent is None
        known[span.id] = span
    assert len({span.trace for span in tree.spans}) == 1


# The space of the scene


def test_one_tree_for_each_session_and_one_for_the_agent_itself_with_sub_agents_below(space: clia.Space) -> None:
    trees = by_root(list(trees_of(space, ExportSelection())))
    assert {key: outline(tree) for key, tree in trees.items()} == {
        ("lead", ""): [
            ("", "invoke_agent lead"),
            ("invoke_agent lead", "clia.commit refactor"),
            ("invoke_agent lead", "clia.commit spawn"),
            ("invoke_agent lead", "invoke_agent twin"),
            ("invoke_agent lead", "invoke_agent twin"),
            ("invoke_agent twin", "clia.commit spawn"),
        ],
        ("lead", "1"): [
            ("", "invoke_agent lead"),
            ("invoke_agent aide", "clia.commit spawn"),
            ("invoke_agent lead", "chat m-1"),
            ("invoke_agent lead", "clia.commit decision"),
            ("invoke_agent lead", "clia.commit finding"),
            ("invoke_agent lead", "clia.request human"),
            ("invoke_agent lead", "invoke_agent aide"),
        ],
        ("lead", "2"): [("", "invoke_agent lead"), ("invoke_agent lead", "clia.request number")],
        ("scout", ""): [
            ("", "invoke_agent scout"),
            ("invoke_agent helper", "clia.commit spawn"),
            ("invoke_agent helper", "clia.commit test"),
            ("invoke_agent helper", "execute_tool Write"),
            ("invoke_agent scout", "clia.commit finding"),
            ("invoke_agent scout", "clia.commit spawn"),
            ("invoke_agent scout", "execute_tool Bash"),
            ("invoke_agent scout", "execute_tool Edit"),
            ("invoke_agent scout", "execute_tool Read"),
            ("invoke_agent scout", "invoke_agent helper"),
        ],
    }
    for tree in trees.values():
        check_tree(tree)
    assert len({tree.spans[0].trace for tree in trees.values()}) == len(trees)


def test_a_run_says_who_what_and_how_it_ended_in_the_words_of_the_conventions(space: clia.Space) -> None:
    trees = by_root(list(trees_of(space, ExportSelection())))
    assert trees["scout", ""].spans[0].attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "scout",
        "gen_ai.agent.id": f"{space.id}/scout",
        "gen_ai.conversation.id": TOOL_SESSION,
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-model",
        "clia.agent.tool": "claude-code",
    }
    first = trees["lead", "1"].spans[0]
    assert first.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "lead",
        "gen_ai.agent.id": f"{space.id}/lead",
        "gen_ai.agent.version": space.flow("approval").cid,
        "gen_ai.conversation.id": f"{space.id}/lead/1",
        "clia.session.id": "1",
        "clia.session.status": "finished",
        "clia.session.flow": "approval",
    }
    second = trees["lead", "2"].spans[0]
    assert (first.failed, second.failed, second.attributes["error.type"], second.reason) == (False, True, "failed", "")
    (forked,) = [each for each in trees["lead", ""].spans if each.attributes.get("clia.session.forked_from") == "lead/1"]
    assert forked.start > second.end  # though its flow believes that it began when the first one did
    (told,) = [each for each in trees_of(space, ExportSelection(["lead"], content=True)) if each.session == "2"]
    assert MARK in told.spans[0].reason


def test_the_two_ends_of_a_tool_call_make_one_span(space: clia.Space) -> None:
    tree = by_root(list(trees_of(space, ExportSelection(["scout"], content=True))))["scout", ""]
    whole, half, late = (named(tree, f"execute_tool {name}") for name in ("Bash", "Read", "Edit"))
    bound = named(tree, "clia.commit finding")
    assert whole.end > whole.start
    assert whole.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "Bash",
        "gen_ai.tool.call.id": "t1",
        "gen_ai.agent.name": "scout",
        "clia.tool.outcome": "result",
        "clia.tool.call.length": len(f"Bash {MARK}"),
        "gen_ai.tool.call.arguments": json.dumps({"command": f"grep {MARK}"}),
        "clia.tool.result.length": len(f"Bash {MARK}"),
        "gen_ai.tool.call.result": f"Bash {MARK}",
        "clia.commit.id": bound.attributes["clia.commit.id"],
    }
    assert (half.start, half.failed, half.attributes["clia.tool.outcome"]) == (half.end, False, "unknown")
    assert (late.start, late.failed, late.attributes["clia.tool.outcome"]) == (late.end, True, "failure")
    assert late.attributes["error.type"] == "tool-failure"
    assert [each.name for each in bound.events] == ["clia.trace prompt"]
    assert [each.name for each in tree.spans[0].events] == ["clia.trace said"]
    assert bound.start <= whole.start


def test_a_request_lasts_from_asking_to_answer_and_a_model_says_what_it_took(space: clia.Space) -> None:
    trees = by_root(list(trees_of(space, ExportSelection(["lead"]))))
    asked, chat = (named(trees["lead", "1"], name) for name in ("clia.request human", "chat m-1"))
    decision = named(trees["lead", "1"], "clia.commit decision")
    assert asked.end > asked.start
    assert asked.attributes == {
        "clia.request.id": "1.2",
        "clia.request.kind": "human",
        "clia.request.decision": decision.attributes["clia.commit.id"],
    }
    assert decision.attributes["clia.request.id"] == "1.2"
    assert chat.is_client
    assert {key: value for key, value in chat.attributes.items() if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "m-1",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 5,
    }
    given_up = named(trees["lead", "2"], "clia.request number")
    assert (given_up.failed, given_up.attributes["error.type"]) == (True, "given-up")


def test_no_text_that_somebody_wrote_is_exported_unless_asked_for(space: clia.Space) -> None:
    resource = resource_of(space, "1.0")
    plain, told = (
        "\n".join(as_otlp_json(tree, resource) for tree in trees_of(space, ExportSelection(content=content)))
        for content in (False, True)
    )
    assert MARK not in plain
    assert "Tess" not in plain
    assert told.count(MARK) > 20


def test_the_spans_of_an_agent_are_the_same_whoever_else_is_exported(space: clia.Space) -> None:
    whole = {span.id: span for tree in trees_of(space, ExportSelection()) for span in tree.spans}
    (part,) = trees_of(space, ExportSelection(["helper"]))
    assert {each.name.split()[-1] for each in part.spans} == {"helper", "spawn", "test", "Write"}
    assert [whole[each.id] for each in part.spans] == list(part.spans)
    assert part.spans[0].parent in whole
    assert list(trees_of(space, ExportSelection(["helper", "scout"]))) == list(trees_of(space, ExportSelection(["scout"])))
    refused("no-such-agent", lambda: list(trees_of(space, ExportSelection(["nobody"]))))


def test_since_leaves_out_trees_in_which_nothing_happened_any_more(space: clia.Space) -> None:
    trees = list(trees_of(space, ExportSelection()))
    newest = max(each.end for each in trees)
    assert list(trees_of(space, ExportSelection(since=newest))) == [each for each in trees if each.end == newest]
    assert list(trees_of(space, ExportSelection(since=newest + 1))) == []


def test_names_that_were_used_again_may_make_a_circle_and_hide_nobody() -> None:
    edges = [Edge(src, "sub-agent-of", dst, "c", f"agents/{dst}") for src, dst in (("b", "a"), ("a", "b"), ("b", "c"))]
    stated = Edge("c", "sub-agent-of", "d", "c", "events/c")
    found = parents_of(SimpleNamespace(relations=lambda: [*edges, stated]), {"a", "b", "c", "d"})  # type: ignore[arg-type]  # all it asks
    assert found == {"b": "a", "c": "b"}


# Stories without a space


def commit(number: int, at: int, kind: str = "finding", **more: Any) -> AgentCommit:
    by = Stamp("n", "e", at)
    return AgentCommit(f"{number:040x}", (), "t", "a", kind, "m", by, by, **more)


def entry(at: int, kind: str, text: str = "x", **data: Any) -> dict[str, Any]:
    return {"at": f"2026-05-01T00:{at // 60:02d}:{at % 60:02d}Z", "kind": kind, "text": text, "data": data}


def test_what_only_a_trace_still_knows_of_a_session_has_a_tree_too() -> None:
    started, printed = entry(1, "session", session="7", status="suspended"), entry(1, "flow")
    ended = entry(5, "session", session="7", status="finished")
    entries = [entry(0, "note"), printed, started, entry(2, "note"), ended, entry(9, "note")]
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))]))
    kinds = {session: [each.name for each in tree.spans[0].events] for (_, session), tree in trees.items()}
    assert kinds["7"] == ["clia.trace flow", "clia.trace session", "clia.trace note", "clia.trace session"]
    assert kinds[""] == ["clia.trace note", "clia.trace note"]
    assert trees["a", "7"].spans[0].attributes["clia.session.status"] == "finished"


def test_a_question_beside_a_session_is_told_of_in_it() -> None:
    entries = [
        entry(1, "session", "session 1 started; waits for timer (1.0)", session="1", status="suspended"),
        entry(2, "session", "session ask-1 started; waits for human (ask-1.0)", session="ask-1", status="suspended"),
        entry(8, "session", "session ask-1 resumed; finished", session="ask-1", status="finished", request="ask-1.0"),
        entry(9, "session", "told of twice", session="ask-1", status="finished", request="ask-1.0"),
    ]
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))]))
    assert list(trees) == [("a", "1")]
    waited = named(trees["a", "1"], "clia.request human")
    assert waited.end - waited.start == 6 * 10**9
    assert len(trees["a", "1"].spans[0].events) == 4


def test_a_commit_is_of_the_session_that_it_answered_or_whose_flow_it_carries() -> None:
    one = SessionRun("1", "finished", "2026-05-01T00:01:00Z", "2026-05-01T00:02:00Z", "f", "flow-1")
    two = SessionRun("2", "suspended", "2026-05-01T00:02:00Z", None, "g", "flow-2")
    more: list[dict[str, Any]] = [{"request": "1.0", "behaviour": "flow-2"}, {"behaviour": "flow-1"}, {"behaviour": "flow-2"}, {}]
    commits = tuple(commit(number, STARTS + 120, **each) for number, each in enumerate(more))
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", commits=commits, sessions=(one, two))]))
    found = {
        session: [int(str(each.attributes["clia.commit.id"]), 16) for each in tree.spans[1:]]
        for (_, session), tree in trees.items()
    }
    assert {session: sorted(numbers) for session, numbers in found.items()} == {"": [3], "1": [0, 1], "2": [2]}


def test_times_that_cannot_be_are_made_the_best_of() -> None:
    entries = ({"at": "whenever", "kind": "note", "text": "x"}, {"kind": "note"}, {"at": "9999-12-31T00:00:00Z", "kind": "note"})
    story = AgentRecord("a", commits=(commit(1, -5, "spawn"), commit(2, 2**62)), traced=tuple(map(TracedEntry, entries)))
    (tree,) = SpanBuilder(SPACE).trees([story])
    check_tree(tree)
    assert (tree.spans[0].start, tree.spans[0].end) == (0, 2**63 - 1)
    assert nanoseconds("2026-05-01T00:00:00.5+02:00") == int(datetime(2026, 4, 30, 22, tzinfo=UTC).timestamp()) * 10**9 + 5 * 10**8
    assert [nanoseconds(each) for each in (None, 5, "", "0001-01-01T00:00:00+23:59")][:3] == [None, None, None]


def test_tool_calls_without_an_id_end_in_the_order_they_began() -> None:
    entries = [entry(1, "tool-call", tool="R"), entry(2, "tool-call", tool="R"), entry(3, "tool-call")]
    entries += [entry(5, "tool-result", tool="R"), entry(9, "tool-failure", tool="R"), entry(9, "tool-result")]
    (tree,) = SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))])
    lengths = [((each.end - each.start) // 10**9, each.attributes["clia.tool.outcome"]) for each in tree.spans[1:]]
    assert sorted(lengths) == [(0, "result"), (0, "unknown"), (4, "result"), (7, "failure")]


def test_an_entry_that_comes_in_before_others_changes_no_id() -> None:
    late = [entry(5, "tool-call", tool="R"), entry(7, "tool-call", tool="W", id="t9"), {"key": "k1"} | entry(8, "tool-result")]
    ids = [
        {
            each.id
            for each in SpanBuilder(SPACE)
            .trees([AgentRecord("a", traced=tuple(TracedEntry(dict(each)) for each in entries))])[0]
            .spans
        }
        for entries in (late, [entry(1, "tool-call", tool="R"), *late])
    ]
    assert ids[0] < ids[1]


KINDS = st.sampled_from(["prompt", "said", "flow", "session", "tool-call", "tool-result", "tool-failure"])
DATA = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.sampled_from(["R", "W", 5]),
        "id": st.sampled_from(["t1", "t2", "", None]),
        "session": st.sampled_from(["1", "2", "ask-1", 3]),
        "status": st.sampled_from(["suspended", "finished", "failed"]),
        "request": st.sampled_from(["1.0", "ask-1.0"]),
    },
)
ENTRIES = st.lists(
    st.builds(lambda at, kind, data, bound: (entry(at, kind, **data), bound), st.integers(0, 900), KINDS, DATA, st.integers(0, 3)),
    max_size=16,
)


@st.composite
def families(draw: st.DrawFn) -> list[AgentRecord]:
    """Up to four agents, each below one that comes before it or below none."""
    made: list[AgentRecord] = []
    for number in range(draw(st.integers(1, 4))):
        times = [STARTS + each for each in sorted(draw(st.lists(st.integers(0, 900), min_size=1, max_size=3)))]
        commits = tuple(commit(10 * number + step, at, "finding" if step else "spawn") for step, at in enumerate(times))
        bound = {step + 1: each.cid for step, each in enumerate(commits)}
        traced = tuple(TracedEntry(each, bound.get(which)) for each, which in draw(ENTRIES))
        ran = SessionRun("1", "finished", "2026-05-01T00:01:00Z", "2026-05-01T00:05:00Z")
        sessions = (ran,) if draw(st.booleans()) else ()
        parent = draw(st.sampled_from([None, *(each.agent for each in made)]))
        made.append(AgentRecord(f"agent-{number}", parent, commits, traced, sessions))
    return made


@given(families())
@settings(max_examples=40)
def test_every_entry_is_told_once_in_connected_trees_that_are_always_the_same(stories: list[AgentRecord]) -> None:
    trees = SpanBuilder(SPACE).trees(stories)
    for tree in trees:
        check_tree(tree)
    spans = [span for tree in trees for span in tree.spans]
    assert len({span.id for span in spans}) == len(spans)
    told = Counter(event.attributes["clia.entry.kind"] for span in spans for event in span.events)
    ends = sum(f"clia.tool.{end}.length" in span.attributes for span in spans for end in ("call", "result"))
    kinds = Counter(each.entry["kind"] for story in stories for each in story.traced)
    assert told == Counter({kind: count for kind, count in kinds.items() if kind not in TOOL_ENDS})
    assert ends == sum(kinds[kind] for kind in TOOL_ENDS)
    assert sum("clia.commit.kind" in span.attributes for span in spans) == sum(len(story.commits) for story in stories)
    assert SpanBuilder(SPACE).trees(stories) == trees
    assert {span.id for tree in SpanBuilder("other").trees(stories) for span in tree.spans}.isdisjoint(span.id for span in spans)


# The sender


def sending(collector: Collector, trees: list[SpanTree], **headers: str) -> ExportResult:
    sender = sender_of(collector.address, headers, {"clia.version": "1.0"}, seconds=5)
    try:
        return send(sender, trees)
    finally:
        sender.close()


def many(count: int, text: str = "") -> list[SpanTree]:
    spans = tuple(Span("1" * 32, f"{number:016x}", None, "x", 1, 2, {"a": text}) for number in range(1, count + 1))
    return [SpanTree("a", "", spans)]


def test_many_spans_go_in_several_requests_of_bounded_size(collector: Collector) -> None:
    assert sending(collector, many(1000)) == ExportResult(1, 1000, 0, "")
    assert [len(each.spans) for each in collector.got] == [512, 488]
    collector.got.clear()
    assert sending(collector, many(2, "é" * 1_100_000)).spans == 2
    assert [len(each.spans) for each in collector.got] == [1, 1]


def test_what_a_collector_rejects_is_counted_with_its_reasons(collector: Collector) -> None:
    collector.replies = [partly(2, "too old"), partly(1, "too old")]
    assert sending(collector, many(600)) == ExportResult(1, 600, 3, "too old")
    said = {"partialSuccess": {"rejectedSpans": "4", "errorMessage": "no\nroom"}}
    collector.replies = [Reply(body=json.dumps(said).encode(), headers={"Content-Type": "application/json"})]
    assert sending(collector, many(5)) == ExportResult(1, 5, 4, "no room")
    collector.replies = [Reply(body=b"\xff fine"), Reply(body=b"[]", headers={"Content-Type": "application/json"})]
    assert [sending(collector, many(1)).rejected for _ in range(2)] == [0, 0]


def test_a_refusal_says_why_and_how_far_it_came_and_no_header(collector: Collector) -> None:
    collector.replies = [Reply(), Reply(401, b"who\nare you?", {"Content-Type": "text/plain"})]
    error = refused("collector-refused", lambda: sending(collector, many(600), authorization=f"Bearer {MARK}"))
    assert error.message == f"{collector.address}/v1/traces: HTTP 401: who are you?"
    assert error.fields == {"url": f"{collector.address}/v1/traces", "status": 401, "sent": 512}
    assert collector.got[0].headers["authorization"] == f"Bearer {MARK}"
    assert MARK not in json.dumps(error.to_json())


def test_a_redirect_is_a_refusal_and_nobody_else_gets_our_headers(collector: Collector) -> None:
    with collecting() as other:
        collector.replies = [Reply(307, b"", {"Location": f"{other.address}/v1/traces"})]
        error = refused("collector-refused", lambda: sending(collector, many(1)))
        assert "redirects are not followed" in error.message
        assert other.got == []


def test_a_collector_that_is_not_there_is_told_of(collector: Collector) -> None:
    sender = sender_of("http://127.0.0.1:9", {}, {"clia.version": "1.0"}, seconds=0.2)
    error = refused("collector-unreachable", lambda: send(sender, many(1)))
    assert error.message == "http://127.0.0.1:9/v1/traces: Connection refused"
    sender.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [("", "/v1/traces"), ("/", "/v1/traces"), ("/v1/traces", "/v1/traces"), ("/otlp/?k=s3cret", "/otlp/v1/traces?k=s3cret")],
)
def test_an_address_gets_the_path_for_traces_unless_it_is_there(collector: Collector, url: str, path: str) -> None:
    collector.replies = [Reply(400, b"no")]
    sender = sender_of(collector.address + url, {}, {"clia.version": "1.0"}, seconds=5)
    error = refused("collector-refused", lambda: send(sender, many(1)))
    sender.close()
    assert collector.got[0].path == path
    assert "s3cret" not in error.message


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    error = refused("otlp-extra-missing", lambda: sender_of("http://localhost", {}, {"clia.version": "1"}, seconds=1))
    assert error.hints[0] == "pip install 'clia[otlp]'"


def test_an_attempt_that_no_time_is_left_for_does_not_hide_why_the_one_before_failed() -> None:
    """OpenTelemetry tries again until the time is up, and at last with none: what is told is that nobody listens."""
    responses: list[CollectorResponse] = []
    with quietly():
        session = recording_session(responses)
        for seconds, error in ((1, NobodyThere), (0, ValueError)):
            with pytest.raises(error):
                session.post("http://127.0.0.1:9/v1/traces", timeout=seconds)
    assert [type(each.error) for each in responses] == [NobodyThere]
