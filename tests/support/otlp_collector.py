"""A trace collector: a real HTTP server that receives OTLP and sends the replies of the test."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

PROTOBUF = "application/x-protobuf"


class CollectorReply(NamedTuple):
    """The reply to a request; by default all spans are accepted."""

    status: int = 200
    body: bytes = ExportTraceServiceResponse().SerializeToString()
    headers: Mapping[str, str] = {"Content-Type": PROTOBUF}


def partly(rejected: int, reason: str) -> CollectorReply:
    """A reply that some spans were rejected."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = reason
    return CollectorReply(body=response.SerializeToString())


class ReceivedRequest(NamedTuple):
    """A request: its path, its headers by lower-case name, and its uncompressed body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def request(self) -> ExportTraceServiceRequest:
        request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(self.body)
        return request

    @property
    def spans(self) -> list[Span]:
        return [span for resource in self.request.resource_spans for scope in resource.scope_spans for span in scope.spans]


class Collector:
    """``replies`` are sent in order, then the default reply."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[ReceivedRequest] = []
        self.replies: list[CollectorReply] = []

    def spans(self) -> list[Span]:
        return [span for request in self.requests for span in request.spans]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data
            collector.requests.append(ReceivedRequest(self.path, {key.lower(): value for key, value in self.headers.items()}, body))
            reply = collector.replies.pop(0) if collector.replies else CollectorReply()
            self.send_response(reply.status)
            for key, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
