"""Spans to a collector: OTLP over HTTP, through OpenTelemetry's own exporter.

Invariant: a request that came back without an error was taken by the collector, but for the spans that it says it rejected. A
redirect is a refusal: our headers go to nobody else. No header is in an error. OpenTelemetry's packages are loaded by whoever
sends, and by nobody else.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from clia.errors import BackendError, InvalidInput, TransportError
from clia.http_client import TOO_SLOW
from clia.telemetry.records import Sent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from opentelemetry.sdk.trace import ReadableSpan

    from clia.telemetry.records import Attributes, Span

TRACES = "/v1/traces"
_SHOWN = 300
_HINTS = {
    401: ["say who you are: --header, or OTEL_EXPORTER_OTLP_HEADERS"],
    403: ["say who you are: --header, or OTEL_EXPORTER_OTLP_HEADERS"],
    404: [f"is it a collector? spans go to its {TRACES}, unless the address ends with that"],
    405: [f"is it a collector? spans go to its {TRACES}, unless the address ends with that"],
    413: ["leave out --content, or name some agents"],
}


class Answer(NamedTuple):
    """How the last attempt ended: a status and a body, or what went wrong before there was one."""

    status: int | None = None
    body: bytes = b""
    kind: str = ""
    error: Exception | None = None


class OtlpSender:
    """``SpanSender``. ``scope`` is who made the spans, and its version."""

    def __init__(
        self, url: str, headers: Mapping[str, str], resource: Attributes, scope: tuple[str, str], *, seconds: float = 10.0
    ) -> None:
        self._url = endpoint(url)
        self._where = shown(self._url)
        self._resource, self._scope = dict(resource), scope
        self._answers: list[Answer] = []
        with _needed():
            from opentelemetry.exporter.otlp.proto.http import Compression
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        self._exporter: Any = OTLPSpanExporter(
            self._url,
            headers=dict(headers),
            timeout=seconds,
            compression=Compression.Gzip,
            session=self._session(),
        )

    def send(self, spans: Sequence[Span]) -> Sent:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._answers.clear()
        with _quietly():
            result = self._exporter.export(self._readable(spans))
        last = self._answers[-1] if self._answers else Answer()
        if result is not SpanExportResult.SUCCESS or last.status is None or not 200 <= last.status < 300:
            raise self._refusal(last)
        return _sent(last)

    def close(self) -> None:
        with _quietly():
            self._exporter.shutdown()

    def _session(self) -> Any:
        """What the exporter speaks through: it tells no more than whether it went well, and we want to know what was answered."""
        from requests import Session
        from requests.adapters import HTTPAdapter

        answers = self._answers

        class Listening(HTTPAdapter):
            def send(self, *words: Any, **more: Any) -> Any:
                try:
                    response = super().send(*words, **more)
                    answers.append(Answer(response.status_code, response.content, response.headers.get("content-type", "")))
                except Exception as err:
                    # For an attempt that no time is left for, a timeout of nothing is refused: the one before it says why.
                    if not (answers and isinstance(err, ValueError)):
                        answers.append(Answer(error=err))
                    raise
                return response

        session = Session()
        session.max_redirects = 0
        session.auth = lambda request: request  # else ~/.netrc would take the place of our Authorization
        for scheme in ("http://", "https://"):
            session.mount(scheme, Listening())
        return session

    def _readable(self, spans: Sequence[Span]) -> list[ReadableSpan]:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        resource, scope = Resource(self._resource), InstrumentationScope(*self._scope)

        def context(trace: str, span: str) -> SpanContext:
            return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return [
            ReadableSpan(
                each.name,
                context(each.trace, each.id),
                None if each.parent is None else context(each.trace, each.parent),
                resource,
                each.attributes,
                [Event(event.name, event.attributes, event.at) for event in each.events],
                (),
                SpanKind.CLIENT if each.is_client else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR, each.reason) if each.failed else Status(),
                start_time=each.start,
                end_time=each.end,
                instrumentation_scope=scope,
            )
            for each in spans
        ]

    def _refusal(self, last: Answer) -> TransportError:
        fields: dict[str, Any] = {"url": self._where}
        if last.status is None:
            error = TransportError(
                f"{self._where}: {_why(last.error)}",
                code="collector-unreachable",
                hints=["is the collector running, and is this its address?"],
                fields=fields,
            )
            error.retryable = True
            return error
        said = "redirects are not followed" if 300 <= last.status < 400 else _words(last) or "it says no more"
        error = TransportError(
            f"{self._where}: it answers {last.status}: {said}",
            code="collector-refused",
            hints=_HINTS.get(last.status, []),
            fields=fields | {"status": last.status},
        )
        error.retryable = last.status == 429 or last.status >= 500
        return error


def endpoint(url: str) -> str:
    """Where spans go: a collector's address with the path for them, unless it is there."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise _no_address("must be http:// or https:// with a host") from None
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise _no_address("must be http:// or https:// with a host")
    if parts.username is not None or parts.password is not None:
        raise _no_address("holds a name or password: give it as a header")
    path = parts.path.rstrip("/")
    path = path if path.endswith(TRACES) else path + TRACES
    return parts._replace(path=path, fragment="").geturl()


def shown(url: str) -> str:
    """An address without what may be a secret in it."""
    return urlsplit(url)._replace(query="").geturl()


def _no_address(problem: str) -> InvalidInput:
    return InvalidInput(
        f"a collector's address {problem}", code="invalid-url", hints=["http://localhost:4318"], fields={"field": "otlp"}
    )


@contextmanager
def _needed() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise BackendError(
            "sending spans needs OpenTelemetry's exporter",
            code="otlp-extra-missing",
            hints=["pip install 'clia[otlp]'", "--json writes the same spans without it"],
        ) from None


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporter logs what it cannot return; we have heard it ourselves, and say it once."""
    logger, silence = logging.getLogger("opentelemetry"), logging.NullHandler()
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(silence)
    try:
        yield
    finally:
        logger.removeHandler(silence)
        logger.propagate = before


def _sent(answer: Answer) -> Sent:
    """What a collector says to spans that it took: it may have left some out. A body that cannot be read says nothing."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it brings no types
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if "json" in answer.kind:
        return _sent_json(answer.body)
    try:
        said = ExportTraceServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        return Sent()
    return Sent(max(said.rejected_spans, 0), _one_line(said.error_message))


def _sent_json(body: bytes) -> Sent:
    try:
        said = json.loads(body)["partialSuccess"]
        return Sent(max(int(said.get("rejectedSpans", 0)), 0), _one_line(str(said.get("errorMessage", ""))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Sent()


def _words(answer: Answer) -> str:
    """Why a collector refuses: the message of a Status, or the text itself."""
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
    """The reason at the bottom of what requests and urllib3 wrapped around it."""
    from requests.exceptions import SSLError, Timeout

    if isinstance(error, Timeout):
        return TOO_SLOW
    seen = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror and not isinstance(error, SSLError):
            return seen.strerror
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    return _one_line(str(error)) if error is not None else TOO_SLOW
