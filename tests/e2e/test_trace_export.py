"""``clia trace export`` as installed: to a real collector, and as the lines of a collector's file."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]  # it has no types
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
    path = tmp_path_factory.mktemp("export").resolve() / "repo"
    scene(path).close()
    return path


def run(root: Path, *words: str, code: int = 0, env: dict[str, str] | None = None) -> Ran:
    ran = clia("trace", "export", *words, cwd=root, env=env)
    assert ran.code == code, ran
    return ran


def parsed(line: str) -> ExportTraceServiceRequest:
    """Parse OTLP's JSON, which is protobuf's except for hexadecimal ids."""
    document = json.loads(line)
    for span in _spans(document):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    request = ExportTraceServiceRequest()
    json_format.ParseDict(document, request)
    return request


def _spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for resource in document["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]


def flat(resource_spans: list[ResourceSpans]) -> list[tuple[bytes, bytes, bytes]]:
    """Every span with its resource and scope, as bytes."""
    return [
        (resource.resource.SerializeToString(deterministic=True), scope.scope.SerializeToString(), span.SerializeToString())
        for resource in resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_the_same_spans_are_sent_and_printed_after_a_first_failure_of_the_collector(root: Path) -> None:
    printed = run(root, "--json", "--content").out
    with collecting() as collector:
        collector.replies = [AGAIN]
        words = ("--otlp", collector.address, "--content", "--header", "X-Team=a=b", "--header", "authorization=Bearer two")
        result = run(root, *words, env={"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20one,x-more=c%20d"})
        first, second = collector.requests
    assert first == second
    assert first.path == "/v1/traces"
    assert [first.headers[key] for key in ("content-type", "content-encoding")] == ["application/x-protobuf", "gzip"]
    assert [first.headers[key] for key in ("authorization", "x-team", "x-more")] == ["Bearer two", "a=b", "c d"]
    lines = printed.splitlines()
    expected_spans = [span for line in lines for span in flat(list(parsed(line).resource_spans))]
    assert flat(list(second.request.resource_spans)) == expected_spans
    assert result.out == f"sent {len(expected_spans)} spans of {len(lines)} sessions\n"
    assert result.err == ""
    assert run(root, "--json", "--content").out == printed


class Inside:
    """The program in this process, because starting one takes a second."""

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


def test_content_is_exported_only_on_request(inside: Inside) -> None:
    with collecting() as collector:
        inside.run("--otlp", collector.address)
        inside.run("scout", "--otlp", f"{collector.address}/v1/traces", "--content")
    plain, with_content = (request.body for request in collector.requests)
    assert MARK.encode() not in plain
    assert MARK.encode() in with_content


def test_a_collector_that_rejects_spans_causes_exit_code_1(inside: Inside) -> None:
    with collecting() as collector:
        collector.replies = [
            partly(3, "spans of \x1b[31mlast year"),
            CollectorReply(403, b"no such team", {"Content-Type": "text/plain"}),
        ]
        result = inside.run("--otlp", collector.address, code=1)
        none = inside.run("--otlp", collector.address, "--header", f"authorization={MARK}", code=1)
    assert result.err == "the collector rejected 3 of them: spans of \\u{1b}[31mlast year\n"
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
def test_bad_input_is_refused_by_name_without_its_secrets(inside: Inside, words: tuple[str, ...], code: str, name: str) -> None:
    ran = inside.run(*words, code=2)
    assert ran.out == ""
    assert code in ran.err
    assert name in ran.err
    assert MARK not in ran.err


def test_invalid_headers_in_the_environment_are_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", MARK)
    ran = inside.run("--otlp", "http://127.0.0.1:9", code=2)
    assert "OTEL_EXPORTER_OTLP_TRACES_HEADERS takes NAME=VALUE" in ran.err
    assert MARK not in ran.err
