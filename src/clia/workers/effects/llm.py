"""``llm``: one chat completion from the operator's endpoint.

``{"prompt": …}`` or ``{"messages": […]}``, with ``model`` and other parameters of the endpoint (``temperature``,
``max_tokens``, ``response_format``). Unless the operator switches it off, a system message with the agent's guardrails, identity
and briefing comes first. The value is ``{"text", "model", "finish_reason", "usage"}``.

Invariant: a flow chooses the prompt, never the endpoint: address and key are the operator's. The key appears in no error, trace
or response. Transient failures are retried, refusals are not.
"""

from __future__ import annotations

import json
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from clia.errors import InvalidInput, NotAllowed, TransportError
from clia.workers.effects.context import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Any

    from clia.facade.config import Config, Llm
    from clia.http_client import HttpResponse
    from clia.workers.effects.context import Context

MAX_RESPONSE = 10 * 1024 * 1024
_RESERVED = ("stream", "stream_options")  # they would change the response
_MAX_SHOWN = 300
_MAX_COUNT, _MAX_NAME, _MAX_COUNTS = 2**53 - 1, 64, 32
_MIN_SECRET = 16  # shorter keys (``none``, ``local``) are placeholders


def problem(config: Config, environment: Mapping[str, str]) -> str | None:
    """Return why LLM requests cannot be handled; None if they can."""
    if config.llm is None:
        return "no endpoint is configured: set url in [effects.llm]"
    name, key = config.llm.api_key_env, key_of(config, environment)
    if name is not None and not key:
        return f"the variable {name} is not set (api_key_env in [effects.llm])"
    if not all("!" <= char <= "~" for char in key):
        return f"the variable {name} does not hold a valid key: it has blanks or non-ASCII characters"
    return None


def key_of(config: Config, environment: Mapping[str, str]) -> str:
    """The key of the endpoint; empty if there is none. A trailing line break, as from a file, is removed."""
    name = config.llm.api_key_env if config.llm is not None else None
    return environment.get(name, "").strip() if name is not None else ""


def hide(text: str, key: str) -> str:
    """Remove the key from a text."""
    return text.replace(key, "***") if key else text


def seconds(config: Config, payload: Any) -> float | None:
    """Return the time limit of an attempt."""
    del payload
    return None if config.llm is None else config.llm.timeout_seconds + 10.0


def handle(context: Context, payload: Any) -> dict[str, Any]:
    llm, key = _endpoint(context)
    body = _body(llm, payload)
    if llm.instructions:
        system = {"role": "system", "content": context.space.identities.instructions(context.agent)}
        body["messages"] = [system, *body["messages"]]
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Idempotency-Key": context.key}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    context.progress(f"{body['model']} at {urlsplit(llm.url).hostname}")
    data = json.dumps(body).encode("ascii")
    response = context.tools.http.post(
        f"{llm.url}/chat/completions", headers, data, seconds=llm.timeout_seconds, limit=MAX_RESPONSE
    )
    if response.status != 200:
        raise _error(response, key, context.tools.clock())
    value = _value(response, str(body["model"]), key if len(key) >= _MIN_SECRET else "")
    usage = value["usage"]
    summary = f"{value['model']} answered ({value['finish_reason']}); usage: {json.dumps(usage, sort_keys=True)}"
    context.trace(summary, "llm", {"model": value["model"][:_MAX_SHOWN], "usage": _counts(usage)})
    return value


def _endpoint(context: Context) -> tuple[Llm, str]:
    llm, environment = context.config.llm, context.tools.environment
    reason = problem(context.config, environment)
    if llm is None or reason is not None:
        raise NotAllowed(f"llm: {reason}", code="llm-not-configured", hints=["check the operator's configuration"])
    return llm, key_of(context.config, environment)


def _body(llm: Llm, payload: Any) -> dict[str, Any]:
    request = Payload("llm", payload)
    body = {key: value for key, value in payload.items() if key != "prompt"}
    for field in _RESERVED:
        if field in body:
            raise request.refusal(field, "is not allowed")
    if request.has("prompt") == request.has("messages"):
        raise request.refusal("prompt", "or messages is required, and not both")
    if request.has("prompt"):
        body["messages"] = [{"role": "user", "content": request.text("prompt")}]
    elif not isinstance(body["messages"], list) or not body["messages"]:
        raise request.refusal("messages", "must be a non-empty list")
    body["model"] = request.text("model", llm.model or "")
    if not body["model"]:
        raise request.refusal("model", "is required: neither the request nor the configuration names one")
    return body


def _value(response: HttpResponse, model: str, key: str) -> dict[str, Any]:
    try:
        completion = json.loads(hide(response.body.decode("utf-8"), key))
        choice = completion["choices"][0]
        message = choice["message"]
        text = message.get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TransportError("llm: the endpoint's response is not a chat completion", code="llm-bad-answer") from None
    if text is not None and not isinstance(text, str):
        raise TransportError("llm: the endpoint's response contains no text", code="llm-bad-answer")
    value = {
        "text": text or "",
        "model": str(completion.get("model") or model),
        "finish_reason": choice.get("finish_reason"),
        "usage": completion.get("usage"),
    }
    return {**value, "tool_calls": message["tool_calls"]} if message.get("tool_calls") else value


def _counts(usage: Any) -> dict[str, int]:
    """Return the token counts that a record can hold; anything else is dropped."""
    items = usage.items() if isinstance(usage, dict) else ()
    named = [(key, count) for key, count in items if key.isascii() and key.isprintable() and len(key) <= _MAX_NAME]
    return dict([(key, count) for key, count in named if type(count) is int and 0 <= count <= _MAX_COUNT][:_MAX_COUNTS])


def _error(response: HttpResponse, key: str, now: datetime) -> InvalidInput | NotAllowed | TransportError:
    """Return the error for an HTTP status; its type says whether a retry can help."""
    words = " ".join(
        hide(response.body.decode("utf-8", "replace"), key).split()
    )  # before truncating, so that no part of the key remains
    message = f"llm: HTTP {response.status} from the endpoint: {words[:_MAX_SHOWN]}"
    status = response.status
    if status in (408, 429) or status >= 500:
        return TransportError(message, code="llm-unavailable", fields={"status": status, **_retry_after(response, now)})
    if 300 <= status < 400:
        return NotAllowed(f"llm: HTTP {status} from the endpoint: redirects are not followed", code="llm-redirected")
    if status in (401, 403):
        return NotAllowed(message, code="llm-denied", fields={"status": status})
    return InvalidInput(message, code="llm-refused", fields={"status": status})


def _retry_after(response: HttpResponse, now: datetime) -> dict[str, float]:
    """Return the pause that the server requests by Retry-After."""
    header = response.headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        return {"retry_after": float(header[:9])}
    try:
        until = parsedate_to_datetime(header)
    except (TypeError, ValueError, IndexError):
        return {}
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return {"retry_after": max(0.0, (until - now).total_seconds())}
