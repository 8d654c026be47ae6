"""``llm``: one answer of a language model, from the endpoint that the operator configured.

``{"prompt": …}`` or ``{"messages": […]}``, with ``model`` and whatever else the endpoint takes (``temperature``,
``max_tokens``, ``response_format``). The value is ``{"text", "model", "finish_reason", "usage"}``.

Invariant: a flow chooses what is asked, never where: address and key are the operator's. The key is in no error, trace or
answer. What may pass is tried again, what the endpoint refuses is not.
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

ANSWER_MAX = 10 * 1024 * 1024
_OURS = ("stream", "stream_options")  # they would change what comes back
_SHOWN = 300
_LARGEST, _NAME_MAX, _COUNTS_MAX = 2**53 - 1, 64, 32
_KEY_LEAST = 16  # shorter ones (``none``, ``local``) are no secrets, but words that an answer may have


def problem(config: Config, environment: Mapping[str, str]) -> str | None:
    """Why no request of this kind can be answered here."""
    if config.llm is None:
        return "no endpoint is configured: [effects.llm] with a url"
    name, key = config.llm.api_key_env, key_of(config, environment)
    if name is not None and not key:
        return f"the variable {name} is not set: [effects.llm] api_key_env names it"
    if not all("!" <= each <= "~" for each in key):
        return f"the variable {name} holds what cannot be a key: blanks in it, or characters beyond ASCII"
    return None


def key_of(config: Config, environment: Mapping[str, str]) -> str:
    """The key to the endpoint; empty: there is none. A line's end that came along from a file is no part of it."""
    name = config.llm.api_key_env if config.llm is not None else None
    return environment.get(name, "").strip() if name is not None else ""


def hide(text: str, key: str) -> str:
    """A text without the key."""
    return text.replace(key, "***") if key else text


def seconds(config: Config, payload: Any) -> float | None:
    """How long an attempt may take."""
    del payload
    return None if config.llm is None else config.llm.timeout_seconds + 10.0


def handle(context: Context, payload: Any) -> dict[str, Any]:
    llm, key = _endpoint(context)
    body = _body(llm, payload)
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Idempotency-Key": context.key}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    context.progress(f"{body['model']} at {urlsplit(llm.url).hostname}")
    data = json.dumps(body).encode("ascii")
    answer = context.tools.http.post(f"{llm.url}/chat/completions", headers, data, seconds=llm.timeout_seconds, limit=ANSWER_MAX)
    if answer.status != 200:
        raise _refused(answer, key, context.tools.clock())
    value = _value(answer, str(body["model"]), key if len(key) >= _KEY_LEAST else "")
    usage = value["usage"]
    told = f"{value['model']} answered ({value['finish_reason']}); usage: {json.dumps(usage, sort_keys=True)}"
    context.trace(told, "llm", {"model": value["model"][:_SHOWN], "usage": _counts(usage)})
    return value


def _endpoint(context: Context) -> tuple[Llm, str]:
    llm, environment = context.config.llm, context.tools.environment
    why = problem(context.config, environment)
    if llm is None or why is not None:
        raise NotAllowed(f"llm: {why}", code="llm-not-configured", hints=["see the operator's configuration"])
    return llm, key_of(context.config, environment)


def _body(llm: Llm, payload: Any) -> dict[str, Any]:
    said = Payload("llm", payload)
    made = {key: value for key, value in payload.items() if key != "prompt"}
    for field in _OURS:
        if field in made:
            raise said.refusal(field, "cannot be asked for")
    if said.has("prompt") == said.has("messages"):
        raise said.refusal("prompt", "or messages: one of the two is needed")
    if said.has("prompt"):
        made["messages"] = [{"role": "user", "content": said.text("prompt")}]
    elif not isinstance(made["messages"], list) or not made["messages"]:
        raise said.refusal("messages", "is a list, and not empty")
    made["model"] = said.text("model", llm.model or "")
    if not made["model"]:
        raise said.refusal("model", "is needed: neither the request nor the configuration names one")
    return made


def _value(answer: HttpResponse, asked: str, key: str) -> dict[str, Any]:
    try:
        said = json.loads(hide(answer.body.decode("utf-8"), key))
        choice = said["choices"][0]
        message = choice["message"]
        text = message.get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TransportError("llm: the endpoint's answer is no chat completion", code="llm-bad-answer") from None
    if text is not None and not isinstance(text, str):
        raise TransportError("llm: the endpoint's answer holds no text", code="llm-bad-answer")
    made = {
        "text": text or "",
        "model": str(said.get("model") or asked),
        "finish_reason": choice.get("finish_reason"),
        "usage": said.get("usage"),
    }
    return {**made, "tool_calls": message["tool_calls"]} if message.get("tool_calls") else made


def _counts(usage: Any) -> dict[str, int]:
    """What an endpoint says it used, as far as it is counts that a record can hold: an answer is not lost over the rest."""
    found = usage.items() if isinstance(usage, dict) else ()
    named = [(key, each) for key, each in found if key.isascii() and key.isprintable() and len(key) <= _NAME_MAX]
    return dict([(key, each) for key, each in named if type(each) is int and 0 <= each <= _LARGEST][:_COUNTS_MAX])


def _refused(answer: HttpResponse, key: str, now: datetime) -> InvalidInput | NotAllowed | TransportError:
    """The error for a status that is no success: whether trying again can help is what its type says."""
    words = " ".join(hide(answer.body.decode("utf-8", "replace"), key).split())  # whole: half a key would not be known
    message = f"llm: the endpoint answers {answer.status}: {words[:_SHOWN]}"
    status = answer.status
    if status in (408, 429) or status >= 500:
        return TransportError(message, code="llm-unavailable", fields={"status": status, **_pause(answer, now)})
    if 300 <= status < 400:
        return NotAllowed(f"llm: the endpoint answers {status}: redirects are not followed", code="llm-redirected")
    if status in (401, 403):
        return NotAllowed(message, code="llm-denied", fields={"status": status})
    return InvalidInput(message, code="llm-refused", fields={"status": status})


def _pause(answer: HttpResponse, now: datetime) -> dict[str, float]:
    """How long the server asks to be left alone: in seconds, or until a time."""
    said = answer.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return {"retry_after": float(said[:9])}
    try:
        until = parsedate_to_datetime(said)
    except (TypeError, ValueError, IndexError):
        return {}
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return {"retry_after": max(0.0, (until - now).total_seconds())}
