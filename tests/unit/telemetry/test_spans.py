"""Trees of spans: structure, times, ids and content; and the sender, with a real collector."""

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
from support.otlp_collector import Collector, CollectorReply, collecting, partly
from support.spaces import refused
from support.telemetry_scene import MARK, TOOL_SESSION, scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import clia

SPACE = "space-1"
STARTS = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp())


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clia.Space]:
    with scene(tmp_path_factory.mktemp("telemetry").resolve() / "repo") as opened:
        yield opened


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


def by_root(trees: Sequence[SpanTree]) -> dict[tuple[str, str], SpanTree]:
    return {(tree.agent, tree.session): tree for tree in trees}


def outline(tree: SpanTree) -> list[tuple[str, str]]:
    """Pairs of parent name and span name."""
    names = {span.id: span.name for span in tree.spans}
    return sorted((names.get(span.parent or "", ""), span.name) for span in tree.spans)


def span_named(tree: SpanTree, name: str) -> Span:
    (span,) = [span for span in tree.spans if span.name == name]
    return span


def check_tree(tree: SpanTree) -> None:
    """Check a tree: it has one root; every other span follows its parent and lies within it, as do its events."""
    spans: dict[str, Span] = {}
    for span in tree.spans:
        assert span.id not in spans
        assert span.start <= span.end
        assert all(span.start <= event.at <= span.end for event in span.events)
        if spans:
            parent = spans[span.parent or ""]
            assert parent.start <= span.start
            assert span.end <= parent.end
        else:
            assert span.parent is None
        spans[span.id] = span
    assert len({span.trace for span in tree.spans}) == 1


# The space of the scene


def test_each_session_and_each_agent_has_a_tree_with_its_sub_agents(space: clia.Space) -> None:
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


def test_a_run_has_the_attributes_of_the_semantic_conventions(space: clia.Space) -> None:
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
        "gen_ai.agent.version": space.sessions.flow("approval").cid,
        "gen_ai.conversation.id": f"{space.id}/lead/1",
        "clia.session.id": "1",
        "clia.session.status": "finished",
        "clia.session.flow": "approval",
    }
    second = trees["lead", "2"].spans[0]
    assert (first.failed, second.failed, second.attributes["error.type"], second.reason) == (False, True, "failed", "")
    (fork_span,) = [span for span in trees["lead", ""].spans if span.attributes.get("clia.session.forked_from") == "lead/1"]
    assert fork_span.start > second.end  # although the replayed flow has the start time of the first
    (with_content,) = [tree for tree in trees_of(space, ExportSelection(["lead"], content=True)) if tree.session == "2"]
    assert MARK in with_content.spans[0].reason


def test_start_and_end_of_a_tool_call_are_one_span(space: clia.Space) -> None:
    tree = by_root(list(trees_of(space, ExportSelection(["scout"], content=True))))["scout", ""]
    bash_span, read_span, edit_span = (span_named(tree, f"execute_tool {name}") for name in ("Bash", "Read", "Edit"))
    commit_span = span_named(tree, "clia.commit finding")
    assert bash_span.end > bash_span.start
    assert bash_span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "Bash",
        "gen_ai.tool.call.id": "t1",
        "gen_ai.agent.name": "scout",
        "clia.tool.outcome": "result",
        "clia.tool.call.length": len(f"Bash {MARK}"),
        "gen_ai.tool.call.arguments": json.dumps({"command": f"grep {MARK}"}),
        "clia.tool.result.length": len(f"Bash {MARK}"),
        "gen_ai.tool.call.result": f"Bash {MARK}",
        "clia.commit.id": commit_span.attributes["clia.commit.id"],
    }
    assert (read_span.start, read_span.failed, read_span.attributes["clia.tool.outcome"]) == (read_span.end, False, "unknown")
    assert (edit_span.start, edit_span.failed, edit_span.attributes["clia.tool.outcome"]) == (edit_span.end, True, "failure")
    assert edit_span.attributes["error.type"] == "tool-failure"
    assert [event.name for event in commit_span.events] == ["clia.trace prompt"]
    assert [event.name for event in tree.spans[0].events] == ["clia.trace said"]
    assert commit_span.start <= bash_span.start


def test_a_request_lasts_until_its_answer_and_a_model_call_has_its_usage(space: clia.Space) -> None:
    trees = by_root(list(trees_of(space, ExportSelection(["lead"]))))
    question, chat = (span_named(trees["lead", "1"], name) for name in ("clia.request human", "chat m-1"))
    decision = span_named(trees["lead", "1"], "clia.commit decision")
    assert question.end > question.start
    assert question.attributes == {
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
    given_up = span_named(trees["lead", "2"], "clia.request number")
    assert (given_up.failed, given_up.attributes["error.type"]) == (True, "given-up")


def test_content_is_exported_only_on_request(space: clia.Space) -> None:
    resource = resource_of(space, "1.0")
    plain, with_content = (
        "\n".join(as_otlp_json(tree, resource) for tree in trees_of(space, ExportSelection(content=content)))
        for content in (False, True)
    )
    assert MARK not in plain
    assert "Tess" not in plain
    assert with_content.count(MARK) > 20


def test_the_spans_of_an_agent_do_not_depend_on_the_selection(space: clia.Space) -> None:
    all_spans = {span.id: span for tree in trees_of(space, ExportSelection()) for span in tree.spans}
    (tree,) = trees_of(space, ExportSelection(["helper"]))
    assert {span.name.split()[-1] for span in tree.spans} == {"helper", "spawn", "test", "Write"}
    assert [all_spans[span.id] for span in tree.spans] == list(tree.spans)
    assert tree.spans[0].parent in all_spans
    assert list(trees_of(space, ExportSelection(["helper", "scout"]))) == list(trees_of(space, ExportSelection(["scout"])))
    refused("no-such-agent", lambda: list(trees_of(space, ExportSelection(["nobody"]))))


def test_since_omits_trees_without_later_spans(space: clia.Space) -> None:
    trees = list(trees_of(space, ExportSelection()))
    newest = max(tree.end for tree in trees)
    assert list(trees_of(space, ExportSelection(since=newest))) == [tree for tree in trees if tree.end == newest]
    assert list(trees_of(space, ExportSelection(since=newest + 1))) == []


def test_a_cycle_of_reused_names_hides_no_agent() -> None:
    edges = [Edge(src, "sub-agent-of", dst, "c", f"agents/{dst}") for src, dst in (("b", "a"), ("a", "b"), ("b", "c"))]
    edge = Edge("c", "sub-agent-of", "d", "c", "events/c")
    parents = parents_of(SimpleNamespace(relations=lambda: [*edges, edge]), {"a", "b", "c", "d"})  # type: ignore[arg-type]  # all that it uses
    assert parents == {"b": "a", "c": "b"}


# Records without a space


def commit(number: int, at: int, kind: str = "finding", **more: Any) -> AgentCommit:
    by = Stamp("n", "e", at)
    return AgentCommit(f"{number:040x}", (), "t", "a", kind, "m", by, by, **more)


def entry(at: int, kind: str, text: str = "x", **data: Any) -> dict[str, Any]:
    return {"at": f"2026-05-01T00:{at // 60:02d}:{at % 60:02d}Z", "kind": kind, "text": text, "data": data}


def test_a_session_known_only_from_its_trace_has_a_tree() -> None:
    start_entry, flow_entry = entry(1, "session", session="7", status="suspended"), entry(1, "flow")
    end_entry = entry(5, "session", session="7", status="finished")
    entries = [entry(0, "note"), flow_entry, start_entry, entry(2, "note"), end_entry, entry(9, "note")]
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))]))
    kinds = {session: [event.name for event in tree.spans[0].events] for (_, session), tree in trees.items()}
    assert kinds["7"] == ["clia.trace flow", "clia.trace session", "clia.trace note", "clia.trace session"]
    assert kinds[""] == ["clia.trace note", "clia.trace note"]
    assert trees["a", "7"].spans[0].attributes["clia.session.status"] == "finished"


def test_a_question_during_a_session_belongs_to_it() -> None:
    entries = [
        entry(1, "session", "session 1 started; waits for timer (1.0)", session="1", status="suspended"),
        entry(2, "session", "session ask-1 started; waits for human (ask-1.0)", session="ask-1", status="suspended"),
        entry(8, "session", "session ask-1 resumed; finished", session="ask-1", status="finished", request="ask-1.0"),
        entry(9, "session", "told of twice", session="ask-1", status="finished", request="ask-1.0"),
    ]
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))]))
    assert list(trees) == [("a", "1")]
    request_span = span_named(trees["a", "1"], "clia.request human")
    assert request_span.end - request_span.start == 6 * 10**9
    assert len(trees["a", "1"].spans[0].events) == 4


def test_a_commit_belongs_to_the_session_of_its_request_or_flow() -> None:
    first = SessionRun("1", "finished", "2026-05-01T00:01:00Z", "2026-05-01T00:02:00Z", "f", "flow-1")
    second = SessionRun("2", "suspended", "2026-05-01T00:02:00Z", None, "g", "flow-2")
    more: list[dict[str, Any]] = [{"request": "1.0", "behaviour": "flow-2"}, {"behaviour": "flow-1"}, {"behaviour": "flow-2"}, {}]
    commits = tuple(commit(number, STARTS + 120, **fields) for number, fields in enumerate(more))
    trees = by_root(SpanBuilder(SPACE).trees([AgentRecord("a", commits=commits, sessions=(first, second))]))
    numbers_of = {
        session: [int(str(span.attributes["clia.commit.id"]), 16) for span in tree.spans[1:]]
        for (_, session), tree in trees.items()
    }
    assert {session: sorted(numbers) for session, numbers in numbers_of.items()} == {"": [3], "1": [0, 1], "2": [2]}


def test_invalid_times_are_clamped() -> None:
    entries = ({"at": "whenever", "kind": "note", "text": "x"}, {"kind": "note"}, {"at": "9999-12-31T00:00:00Z", "kind": "note"})
    record = AgentRecord("a", commits=(commit(1, -5, "spawn"), commit(2, 2**62)), traced=tuple(map(TracedEntry, entries)))
    (tree,) = SpanBuilder(SPACE).trees([record])
    check_tree(tree)
    assert (tree.spans[0].start, tree.spans[0].end) == (0, 2**63 - 1)
    assert nanoseconds("2026-05-01T00:00:00.5+02:00") == int(datetime(2026, 4, 30, 22, tzinfo=UTC).timestamp()) * 10**9 + 5 * 10**8
    assert [nanoseconds(value) for value in (None, 5, "", "0001-01-01T00:00:00+23:59")][:3] == [None, None, None]


def test_tool_calls_without_an_id_end_in_the_order_they_began() -> None:
    entries = [entry(1, "tool-call", tool="R"), entry(2, "tool-call", tool="R"), entry(3, "tool-call")]
    entries += [entry(5, "tool-result", tool="R"), entry(9, "tool-failure", tool="R"), entry(9, "tool-result")]
    (tree,) = SpanBuilder(SPACE).trees([AgentRecord("a", traced=tuple(map(TracedEntry, entries)))])
    lengths = [((span.end - span.start) // 10**9, span.attributes["clia.tool.outcome"]) for span in tree.spans[1:]]
    assert sorted(lengths) == [(0, "result"), (0, "unknown"), (4, "result"), (7, "failure")]


def test_an_entry_inserted_earlier_changes_no_id() -> None:
    entries_after = [
        entry(5, "tool-call", tool="R"),
        entry(7, "tool-call", tool="W", id="t9"),
        {"key": "k1"} | entry(8, "tool-result"),
    ]
    ids = [
        {
            span.id
            for span in SpanBuilder(SPACE)
            .trees([AgentRecord("a", traced=tuple(TracedEntry(dict(fields)) for fields in entries))])[0]
            .spans
        }
        for entries in (entries_after, [entry(1, "tool-call", tool="R"), *entries_after])
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
    """Up to four agents, each with an earlier agent or none as parent."""
    records: list[AgentRecord] = []
    for number in range(draw(st.integers(1, 4))):
        times = [STARTS + seconds for seconds in sorted(draw(st.lists(st.integers(0, 900), min_size=1, max_size=3)))]
        commits = tuple(commit(10 * number + step, at, "finding" if step else "spawn") for step, at in enumerate(times))
        commit_of_step = {step + 1: agent_commit.cid for step, agent_commit in enumerate(commits)}
        traced = tuple(TracedEntry(trace_entry, commit_of_step.get(step)) for trace_entry, step in draw(ENTRIES))
        ran = SessionRun("1", "finished", "2026-05-01T00:01:00Z", "2026-05-01T00:05:00Z")
        sessions = (ran,) if draw(st.booleans()) else ()
        parent = draw(st.sampled_from([None, *(record.agent for record in records)]))
        records.append(AgentRecord(f"agent-{number}", parent, commits, traced, sessions))
    return records


@given(families())
@settings(max_examples=40)
def test_every_entry_is_exported_once_in_connected_deterministic_trees(records: list[AgentRecord]) -> None:
    trees = SpanBuilder(SPACE).trees(records)
    for tree in trees:
        check_tree(tree)
    spans = [span for tree in trees for span in tree.spans]
    assert len({span.id for span in spans}) == len(spans)
    event_kinds = Counter(event.attributes["clia.entry.kind"] for span in spans for event in span.events)
    ends = sum(f"clia.tool.{end}.length" in span.attributes for span in spans for end in ("call", "result"))
    kinds = Counter(traced.entry["kind"] for record in records for traced in record.traced)
    assert event_kinds == Counter({kind: count for kind, count in kinds.items() if kind not in TOOL_ENDS})
    assert ends == sum(kinds[kind] for kind in TOOL_ENDS)
    assert sum("clia.commit.kind" in span.attributes for span in spans) == sum(len(record.commits) for record in records)
    assert SpanBuilder(SPACE).trees(records) == trees
    assert {span.id for tree in SpanBuilder("other").trees(records) for span in tree.spans}.isdisjoint(span.id for span in spans)


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
    assert [len(request.spans) for request in collector.requests] == [512, 488]
    collector.requests.clear()
    assert sending(collector, many(2, "é" * 1_100_000)).spans == 2
    assert [len(request.spans) for request in collector.requests] == [1, 1]


def test_rejected_spans_are_counted_with_their_reasons(collector: Collector) -> None:
    collector.replies = [partly(2, "too old"), partly(1, "too old")]
    assert sending(collector, many(600)) == ExportResult(1, 600, 3, "too old")
    response = {"partialSuccess": {"rejectedSpans": "4", "errorMessage": "no\nroom"}}
    collector.replies = [CollectorReply(body=json.dumps(response).encode(), headers={"Content-Type": "application/json"})]
    assert sending(collector, many(5)) == ExportResult(1, 5, 4, "no room")
    collector.replies = [
        CollectorReply(body=b"\xff fine"),
        CollectorReply(body=b"[]", headers={"Content-Type": "application/json"}),
    ]
    assert [sending(collector, many(1)).rejected for _ in range(2)] == [0, 0]


def test_a_refusal_has_the_reason_and_the_progress_but_no_header(collector: Collector) -> None:
    collector.replies = [CollectorReply(), CollectorReply(401, b"who\nare you?", {"Content-Type": "text/plain"})]
    error = refused("collector-refused", lambda: sending(collector, many(600), authorization=f"Bearer {MARK}"))
    assert error.message == f"{collector.address}/v1/traces: HTTP 401: who are you?"
    assert error.fields == {"url": f"{collector.address}/v1/traces", "status": 401, "sent": 512}
    assert collector.requests[0].headers["authorization"] == f"Bearer {MARK}"
    assert MARK not in json.dumps(error.to_json())


def test_a_redirect_is_not_followed(collector: Collector) -> None:
    with collecting() as elsewhere:
        collector.replies = [CollectorReply(307, b"", {"Location": f"{elsewhere.address}/v1/traces"})]
        error = refused("collector-refused", lambda: sending(collector, many(1)))
        assert "redirects are not followed" in error.message
        assert elsewhere.requests == []


def test_an_unreachable_collector_is_reported(collector: Collector) -> None:
    sender = sender_of("http://127.0.0.1:9", {}, {"clia.version": "1.0"}, seconds=0.2)
    error = refused("collector-unreachable", lambda: send(sender, many(1)))
    assert error.message == "http://127.0.0.1:9/v1/traces: Connection refused"
    sender.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [("", "/v1/traces"), ("/", "/v1/traces"), ("/v1/traces", "/v1/traces"), ("/otlp/?k=s3cret", "/otlp/v1/traces?k=s3cret")],
)
def test_the_path_for_traces_is_added_to_an_address_without_it(collector: Collector, url: str, path: str) -> None:
    collector.replies = [CollectorReply(400, b"no")]
    sender = sender_of(collector.address + url, {}, {"clia.version": "1.0"}, seconds=5)
    error = refused("collector-refused", lambda: send(sender, many(1)))
    sender.close()
    assert collector.requests[0].path == path
    assert "s3cret" not in error.message


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    error = refused("otlp-extra-missing", lambda: sender_of("http://localhost", {}, {"clia.version": "1"}, seconds=1))
    assert error.hints[0] == "pip install 'clia-agents[otlp]'"


def test_a_last_attempt_without_time_does_not_hide_the_earlier_failure() -> None:
    """OpenTelemetry retries until the time is up, at last with a timeout of 0: the refused connection must be reported."""
    responses: list[CollectorResponse] = []
    with quietly():
        session = recording_session(responses)
        for seconds, error in ((1, NobodyThere), (0, ValueError)):
            with pytest.raises(error):
                session.post("http://127.0.0.1:9/v1/traces", timeout=seconds)
    assert [type(response.error) for response in responses] == [NobodyThere]
