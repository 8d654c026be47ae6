"""The APIs of language models that coding tools use: Anthropic Messages, OpenAI Responses and Chat Completions, and Gemini.

Each reads the conversation from a request and writes a scripted reply, at once or as events.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from support.model_server import Reply

    Json = dict[str, Any]

TOKENS = 1000
_TEXTS = ("text", "content", "output", "parts", "response", "result", "arguments", "encrypted_content")


class Message(NamedTuple):
    role: str  # `user`: what a person or a starting agent wrote; `assistant`; `tool`: results
    text: str
    calls: int = 0


class Conversation(NamedTuple):
    messages: list[Message]
    has_tools: bool


class ModelApi(NamedTuple):
    path: tuple[str, ...]  # how its paths end
    conversation: Callable[[Json], Conversation]
    value: Callable[[Json, Reply], Json]
    events: Callable[[Json, Reply], Sequence[Mapping[str, Any] | str]]
    named: bool  # whether events have a name beside their data

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream")) or path.endswith(":streamGenerateContent")


def api_of(path: str) -> ModelApi | None:
    return next((api for api in _APIS if path.endswith(api.path)), None)


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(text_of, content))
    return "\n".join(text_of(content[key]) for key in _TEXTS if key in content) if isinstance(content, dict) else ""


def _id(prefix: str) -> str:
    return prefix + uuid4().hex[:24]


# Anthropic Messages


def _messages_conversation(body: Json) -> Conversation:
    messages = []
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [text_of(block) for block in blocks if block["type"] != "text"]
        calls = sum(block["type"] == "tool_use" for block in blocks)
        if results:
            messages.append(Message("tool", "\n".join(results), calls))
        messages.append(Message(message["role"], text_of([block for block in blocks if block["type"] == "text"])))
    return Conversation(messages, bool(body.get("tools")))


def _messages_value(body: Json, reply: Reply) -> Json:
    blocks: list[Json] = []
    if reply.thought and body.get("thinking"):
        blocks.append({"type": "thinking", "thinking": reply.thought, "signature": "c2lnbmF0dXJl"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    blocks += [{"type": "tool_use", "id": _id("toolu_"), "name": call.tool, "input": call.arguments} for call in reply.calls]
    return {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": TOKENS, "output_tokens": 50, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
    }


def _messages_events(body: Json, reply: Reply) -> list[Json]:
    message = _messages_value(body, reply)
    events: list[Json] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(message["content"]):
        empty, deltas = _block_deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": delta, "usage": message["usage"]}, {"type": "message_stop"}]


def _block_deltas(block: Json) -> tuple[Json, list[Json]]:
    """An empty block, and what fills it."""
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case _:
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


# OpenAI Responses


def _responses_conversation(body: Json) -> Conversation:
    items, tools = body.get("input", []), list(body.get("tools") or [])
    messages = []
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind == "additional_tools":
            tools += item["tools"]
        elif kind == "agent_message":  # how Codex gives a sub-agent its task
            messages.append(Message("user", text_of(item)))
        elif kind.endswith("_output"):
            messages.append(Message("tool", text_of(item)))
        elif kind.endswith("_call"):
            messages.append(Message("assistant", text_of(item), 1))
        else:
            messages.append(Message(item.get("role", "assistant"), text_of(item)))
    return Conversation(messages, bool(tools))


def _responses_value(body: Json, reply: Reply) -> Json:
    items: list[Json] = []
    if reply.thought:
        summary = [{"type": "summary_text", "text": reply.thought}]
        items.append({"type": "reasoning", "id": _id("rs_"), "summary": summary, "content": None, "encrypted_content": None})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        items.append({"type": "message", "id": _id("msg_"), "role": "assistant", "status": "completed", "content": content})
    for call in reply.calls:
        is_text = isinstance(call.arguments, str)
        item: Json = {"id": _id("fc_"), "call_id": _id("call_"), "name": call.tool, "status": "completed"}
        item |= {"type": "custom_tool_call", "input": call.arguments} if is_text else {}
        item |= {"type": "function_call", "arguments": json.dumps(call.arguments)} if not is_text else {}
        items.append(item | ({"namespace": call.namespace} if call.namespace else {}))
    usage: Json = {"input_tokens": TOKENS, "output_tokens": 50, "total_tokens": TOKENS + 50}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    base = {"id": _id("resp_"), "object": "response", "created_at": 1, "status": "completed", "model": body.get("model")}
    return base | {"output": items, "usage": usage, "tools": [], "error": None, "incomplete_details": None}


def _responses_events(body: Json, reply: Reply) -> list[Json]:
    response = _responses_value(body, reply)
    events: list[Json] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": [], "usage": None}}
    ]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item | _begun(item)})
        if item["type"] == "message":
            part = item["content"][0]
            place |= {"content_index": 0}
            events += [
                {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **place, "delta": part["text"]},
                {"type": "response.output_text.done", **place, "text": part["text"]},
                {"type": "response.content_part.done", **place, "part": part},
            ]
        elif item["type"] == "function_call":
            kind = "response.function_call_arguments"
            events += [{"type": f"{kind}.delta", **place, "delta": item["arguments"]}]
            events += [{"type": f"{kind}.done", **place, "arguments": item["arguments"]}]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*events, {"type": "response.completed", "response": response}]


def _begun(item: Json) -> Json:
    return {"status": "in_progress", "content": []} if item["type"] == "message" else {}


# OpenAI Chat Completions


def _chat_conversation(body: Json) -> Conversation:
    messages = [
        Message(message["role"], text_of(message.get("content")), len(message.get("tool_calls") or []))
        for message in body.get("messages", [])
    ]
    return Conversation(messages, bool(body.get("tools")))


def _chat_value(body: Json, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": _id("call_"), "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.arguments)}}
            for call in reply.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
    usage = {"prompt_tokens": TOKENS, "completion_tokens": 50, "total_tokens": TOKENS + 50}
    base = {"id": _id("chatcmpl-"), "object": "chat.completion", "created": 1, "model": body.get("model")}
    return base | {"choices": [choice], "usage": usage}


def _chat_events(body: Json, reply: Reply) -> list[Json | str]:
    value = _chat_value(body, reply)
    (choice,) = value["choices"]
    base = {**value, "object": "chat.completion.chunk", "usage": None}
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    deltas: Iterator[Json] = filter(None, ({"tool_calls": calls} if calls else {}, {"content": reply.text} if reply.text else {}))
    events: list[Json | str] = [_chunk(base, {"role": "assistant", "content": ""}), *(_chunk(base, delta) for delta in deltas)]
    return [*events, _chunk(base, {}, choice["finish_reason"]) | {"usage": value["usage"]}, "[DONE]"]


def _chunk(base: Json, delta: Json, finish: str | None = None) -> Json:
    return base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


# Gemini


def _gemini_conversation(body: Json) -> Conversation:
    messages = []
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        results = [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part]
        text = "\n".join(part["text"] for part in parts if "text" in part)
        if results:
            messages.append(Message("tool", "\n".join(results)))
        role = "user" if content.get("role") == "user" else "assistant"
        messages.append(Message(role, text, sum("functionCall" in part for part in parts)))
    return Conversation(messages, bool(body.get("tools")))


def _gemini_value(body: Json, reply: Reply) -> Json:
    config = body.get("generationConfig") or {}
    schema = config.get("responseSchema") or config.get("responseJsonSchema")
    parts: list[Json] = [{"text": reply.thought, "thought": True}] if reply.thought else []
    if reply.text:
        parts.append({"text": reply.text})
    for call in reply.calls:
        parts.append({"functionCall": {"name": call.tool, "args": call.arguments}, "thoughtSignature": "c2lnbmF0dXJl"})
    if schema:  # a router or a check asks for JSON
        parts = [{"text": json.dumps(_example(schema))}]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": TOKENS, "candidatesTokenCount": 50, "totalTokenCount": TOKENS + 50}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake-model", "responseId": _id("r")}


def _example(schema: Mapping[str, Any]) -> Any:
    """The simplest value that a JSON schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "object")).lower()
    if kind == "object":
        return {name: _example(member) for name, member in (schema.get("properties") or {}).items()}
    number = schema.get("minimum", 1)
    return {"string": "text", "boolean": False, "number": number, "integer": number, "array": []}.get(kind)


_APIS = (
    ModelApi(("/messages",), _messages_conversation, _messages_value, _messages_events, named=True),
    ModelApi(("/responses",), _responses_conversation, _responses_value, _responses_events, named=True),
    ModelApi(("/chat/completions",), _chat_conversation, _chat_value, _chat_events, named=False),
    ModelApi(
        (":generateContent", ":streamGenerateContent"),
        _gemini_conversation,
        _gemini_value,
        lambda body, reply: [_gemini_value(body, reply)],
        named=False,
    ),
)
