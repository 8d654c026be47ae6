"""OTLP over HTTP, using OpenTelemetry's exporter.

Invariant: a request without an error was accepted by the collector, except for the spans it reports as rejected. Redirects
are refused, so that headers go to the collector only. No error contains a header. OpenTelemetry is imported only to send.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from clia.errors import BackendError, InvalidInput, TransportError
from clia.http_client import TOO_SLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan

    from clia.telemetry.spans import Attributes, Span

TRACES = "/v1/traces"
_SHOWN = 300
_HINTS = {
    401: ["authenticate with --header or OTEL_EXPORTER_OTLP_HEADERS"],
    403: ["authenticate with --header or OTEL_EXPORTER_OTLP_HEADERS"],
    404: [f"is it a collector? {TRACES} is appended to its address"],
    405: [f"is it a collector? {TRACES} is appended to its address"],
    413: ["leave out --content, or name some agents"],
}


class SendResult(NamedTuple):
    """How many spans a collector rejected, and why."""

    rejected: int = 0
    reason: str = ""


class CollectorResponse(NamedTuple):
    """The response to the last attempt, or the error that prevented one."""

    status: int | None = None
    body: bytes = b""
    kind: str = ""
    error: Exception | None = None


class OtlpSender:
    """Sends spans to a collector. ``scope``: name and version of the instrumentation."""

    def __init__(
        self, url: str, headers: Mapping[str, str], resource: Attributes, scope: tuple[str, str], *, seconds: float = 10.0
    ) -> None:
        url = endpoint(url)
        self._where = urlsplit(url)._replace(query="").geturl()  # a query may hold a secret
        self._resource, self._scope = dict(resource), scope
        self._responses: list[CollectorResponse] = []
        try:
            from opentelemetry.exporter.otlp.proto.http import Compression
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            message = "sending spans requires OpenTelemetry's exporter"
            hints = ["pip install 'clia-agents[otlp]'", "or write the same spans with --json"]
            raise BackendError(message, code="otlp-extra-missing", hints=hints) from None
        session, gzip = recording_session(self._responses), Compression.Gzip
        self._exporter: Any = OTLPSpanExporter(url, headers=dict(headers), timeout=seconds, compression=gzip, session=session)

    def send(self, spans: Sequence[Span]) -> SendResult:
        """Send spans in one request. ``TransportError`` if the collector refuses all of them or does not answer in time."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._responses.clear()
        with quietly():
            result = self._exporter.export(self._readable(spans))
        last = self._responses[-1] if self._responses else CollectorResponse()
        if result is not SpanExportResult.SUCCESS or last.status is None or not 200 <= last.status < 300:
            raise self._refusal(last)
        return _sent(last)

    def close(self) -> None:
        with quietly():
            self._exporter.shutdown()

    def _readable(self, spans: Sequence[Span]) -> list[ReadableSpan]:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        resource, scope = Resource(self._resource), InstrumentationScope(*self._scope)

        def context(trace_id: str, span_id: str) -> SpanContext:
            return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return [
            ReadableSpan(
                span.name,
                context(span.trace, span.id),
                None if span.parent is None else context(span.trace, span.parent),
                resource,
                span.attributes,
                [Event(event.name, event.attributes, event.at) for event in span.events],
                (),
                SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR, span.reason) if span.failed else Status(),
                start_time=span.start,
                end_time=span.end,
                instrumentation_scope=scope,
            )
            for span in spans
        ]

    def _refusal(self, last: CollectorResponse) -> TransportError:
        where, status, fields = self._where, last.status, {"url": self._where}
        if status is None:
            hints = ["is the collector running, and is this its address?"]
            error = TransportError(f"{where}: {_why(last.error)}", code="collector-unreachable", hints=hints, fields=fields)
        else:
            reason = "redirects are not followed" if 300 <= status < 400 else _error_text(last) or "no reason given"
            message, hints = f"{where}: HTTP {status}: {reason}", _HINTS.get(status, [])
            error = TransportError(message, code="collector-refused", hints=hints, fields={**fields, "status": status})
        error.retryable = status is None or status == 429 or status >= 500
        return error


def recording_session(responses: list[CollectorResponse]) -> Any:
    """Return an HTTP session that records responses: the exporter only reports success or failure."""
    from requests import Session
    from requests.adapters import HTTPAdapter

    class RecordingAdapter(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> Any:
            try:
                response = super().send(*args, **options)
                kind = response.headers.get("content-type", "")
                responses.append(CollectorResponse(response.status_code, response.content, kind))
            except Exception as err:
                # An attempt without time left fails with a ValueError; the one before it says why.
                if not (responses and isinstance(err, ValueError)):
                    responses.append(CollectorResponse(error=err))
                raise
            return response

    session = Session()
    session.max_redirects = 0
    session.auth = lambda request: request  # otherwise ~/.netrc would replace our Authorization header
    for scheme in ("http://", "https://"):
        session.mount(scheme, RecordingAdapter())
    return session


def endpoint(url: str) -> str:
    """Return the address for spans: the collector's, with the standard path appended unless present."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise _no_address("must be http:// or https:// with a host") from None
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise _no_address("must be http:// or https:// with a host")
    if parts.username is not None or parts.password is not None:
        raise _no_address("must not hold credentials: send them as a header")
    path = parts.path.rstrip("/")
    path = path if path.endswith(TRACES) else path + TRACES
    return parts._replace(path=path, fragment="").geturl()


def _no_address(problem: str) -> InvalidInput:
    hints, fields = ["http://localhost:4318"], {"field": "otlp"}
    return InvalidInput(f"a collector's address {problem}", code="invalid-url", hints=hints, fields=fields)


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the exporter's log: the error is raised."""
    logger, silence = logging.getLogger("opentelemetry"), logging.NullHandler()
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(silence)
    try:
        yield
    finally:
        logger.removeHandler(silence)
        logger.propagate = before


def _sent(answer: CollectorResponse) -> SendResult:
    """Return the partial success of an accepted request. An unreadable body counts as full success."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it brings no types
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        if "json" in answer.kind:
            document = json.loads(answer.body)["partialSuccess"]
            rejected, reason = int(document.get("rejectedSpans", 0)), str(document.get("errorMessage", ""))
        else:
            partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
            rejected, reason = partial.rejected_spans, partial.error_message
    except (DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return SendResult()
    return SendResult(max(rejected, 0), _one_line(reason))


def _error_text(answer: CollectorResponse) -> str:
    """Return a collector's error message: from a Status, or the body itself."""
    from google.protobuf.message import DecodeError
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # it brings no types

    if "protobuf" in answer.kind:
        try:
            return _one_line(Status.FromString(answer.body).message)
        except DecodeError:
            return ""
    return _one_line(answer.body.decode("utf-8", "replace"))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]


def _why(error: BaseException | None) -> str:
    """Return the innermost reason of an error of requests and urllib3."""
    from requests.exceptions import SSLError, Timeout

    if isinstance(error, Timeout):
        return TOO_SLOW
    cause = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror and not isinstance(error, SSLError):
            return cause.strerror
        inner = getattr(cause, "reason", None) or (cause.args[0] if cause.args else None)
        cause = inner if isinstance(inner, BaseException) else cause.__cause__ or cause.__context__
    return _one_line(str(error)) if error is not None else TOO_SLOW
