"""``clia trace export`` as installed: to a real collector, and as the lines of a collector's file."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]  # it brings no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from clia.cli.main import main
from support import Ran, clia
from support.otlp_collector import CollectorReply, collecting, partly
from support.telemetry_scene import MARK, scene

if TYPE_CHECKING:
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

AGAIN = CollectorReply(503, b"", {"Retry-After": "0"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export").resolve() / "repo"
    scene(made).close()
    return made


def run(root: Path, *words: str, code: int = 0, env: dict[str, str] | None = None) -> Ran:
    ran = clia("trace", "export", *words, cwd=root, env=env)
    assert ran.code == code, ran
    return ran


def parsed(line: str) -> ExportTraceServiceRequest:
    """A document in the JSON of OTLP: as protobuf's own, but that ids are hexadecimal."""
    document = json.loads(line)
    for each in _spans(document):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in each:
                each[key] = base64.b64encode(bytes.fromhex(each[key])).decode()
    made = ExportTraceServiceRequest()
    json_format.ParseDict(document, made)
    return made


def _spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for each in document["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]


def flat(found: list[ResourceSpans]) -> list[tuple[bytes, bytes, bytes]]:
    """Every span with the resource and the scope that it came under, byte for byte."""
    return [
        (each.resource.SerializeToString(deterministic=True), scope.scope.SerializeToString(), span.SerializeToString())
        for each in found
        for scope in each.scope_spans
        for span in scope.spans
    ]


def test_what_is_sent_and_what_is_printed_are_the_same_spans_whatever_the_collector_says_first(root: Path) -> None:
    printed = run(root, "--json", "--content").out
    with collecting() as collector:
        collector.replies = [AGAIN]
        words = ("--otlp", collector.address, "--content", "--header", "X-Team=a=b", "--header", "authorization=Bearer two")
        sent = run(root, *words, env={"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20one,x-more=c%20d"})
        first, second = collector.requests
    assert first == second
    assert first.path == "/v1/traces"
    assert [first.headers[key] for key in ("content-type", "content-encoding")] == ["application/x-protobuf", "gzip"]
    assert [first.headers[key] for key in ("authorization", "x-team", "x-more")] == ["Bearer two", "a=b", "c d"]
    lines = printed.splitlines()
    wanted = [span for line in lines for span in flat(list(parsed(line).resource_spans))]
    assert flat(list(second.request.resource_spans)) == wanted
    assert sent.out == f"sent {len(wanted)} spans of {len(lines)} sessions\n"
    assert sent.err == ""
    assert run(root, "--json", "--content").out == printed


class Inside:
    """The program inside this process, where many runs of it are wanted: it takes a second to load."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: str, code: int = 0) -> Ran:
        ran = Ran(main(["trace", "export", *words]), *self._capsys.readouterr())
        assert ran.code == code, ran
        return ran


@pytest.fixture
def inside(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.chdir(root)
    return Inside(capsys)


def test_what_people_and_agents_wrote_stays_here_unless_asked_for(inside: Inside) -> None:
    with collecting() as collector:
        inside.run("--otlp", collector.address)
        inside.run("scout", "--otlp", f"{collector.address}/v1/traces", "--content")
    plain, told = (each.body for each in collector.requests)
    assert MARK.encode() not in plain
    assert MARK.encode() in told


def test_a_collector_that_does_not_want_them_ends_it_with_1(inside: Inside) -> None:
    with collecting() as collector:
        collector.replies = [
            partly(3, "spans of \x1b[31mlast year"),
            CollectorReply(403, b"no such team", {"Content-Type": "text/plain"}),
        ]
        some = inside.run("--otlp", collector.address, code=1)
        none = inside.run("--otlp", collector.address, "--header", f"authorization={MARK}", code=1)
    assert some.err == "the collector rejected 3 of them: spans of \\u{1b}[31mlast year\n"
    assert none.err.splitlines() == [
        f"error: collector-refused: {collector.address}/v1/traces: HTTP 403: no such team",
        "  hint: authenticate with --header or OTEL_EXPORTER_OTLP_HEADERS",
    ]
    assert inside.run("--otlp", collector.address, "--since", "2100-01-01").out == "nothing to send\n"


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        ((), "invalid-option", "--otlp"),
        (("--json", "--otlp", "http://x"), "invalid-option", "--otlp"),
        (("--json", "--header", "a=b"), "invalid-option", "--header"),
        (("--json", "--since", "999999w"), "invalid-time", "--since"),
        (("--json", "--since", "yesterday"), "invalid-time", "--since"),
        (("--otlp", "http://x", "--header", f"a b={MARK}"), "invalid-header", "--header"),
        (("--otlp", "http://x", "--header", f"a={MARK}\nb: c"), "invalid-header", "--header"),
        (("--otlp", f"http://u:{MARK}@x"), "invalid-url", "address"),
        (("--otlp", "file:///etc"), "invalid-url", "address"),
        (("--otlp", "http://x:99999"), "invalid-url", "address"),
        (("--json", "nobody"), "no-such-agent", "nobody"),
    ],
)
def test_bad_input_is_refused_by_name_and_without_its_secrets(inside: Inside, words: tuple[str, ...], code: str, name: str) -> None:
    ran = inside.run(*words, code=2)
    assert ran.out == ""
    assert code in ran.err
    assert name in ran.err
    assert MARK not in ran.err


def test_headers_in_the_environment_are_named_where_they_cannot_be_read(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", MARK)
    ran = inside.run("--otlp", "http://127.0.0.1:9", code=2)
    assert "OTEL_EXPORTER_OTLP_TRACES_HEADERS takes NAME=VALUE" in ran.err
    assert MARK not in ran.err
