"""Ask people for decisions, in a form of the client or in the inbox.

Invariant: the request is written to the space first and stays pending, once, until a person answers it, whatever happens to the
client, the call or this process. A form that is declined, dismissed or lost changes nothing. The first answer wins, from a form or
the inbox, and everyone else learns who answered.

MCP forms are flat: texts, numbers, booleans and enums. A schema that does not fit becomes one text field with JSON. The library
validates what comes back, as it does every answer.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from anyio import create_task_group, current_time, move_on_after, sleep
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from clia.errors import CliaError, Denied, InvalidAnswer, InvalidInput, NotFound, StaleRequest
from clia.mcp import unread_answers
from clia.mcp.toolbox import AgentName, ResultShape, tool
from clia.sessions.answers import schema_problem
from clia.sessions.model import context_of, question_of
from clia.sessions.records import ASK
from clia.verbs import ADMIN, DECIDER, person_answers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.mcp.calls import Exchange, ToolCall
    from clia.sessions.answers import Rule
    from clia.sessions.model import Request

ANSWER, WHY = "answer", "rationale"
CHOICES_MAX, FIELDS_MAX, CONTEXT_MAX = 100, 20, 4000
_ABOUT = ("title", "description", "default")
_KEYWORDS = {
    "string": ("minLength", "maxLength", "format", *_ABOUT),
    "integer": ("minimum", "maximum", *_ABOUT),
    "number": ("minimum", "maximum", *_ABOUT),
    "boolean": _ABOUT,
}
_FORMATS = ("email", "uri", "date", "date-time")
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
_WHY_FIELD = {"type": "string", "title": "Why", "description": "Optional; recorded with the decision."}


class ElicitationForm(NamedTuple):
    message: str
    schema: dict[str, Any]
    labels: Mapping[str, Any]  # value of each choice
    whole: bool  # all fields together are the answer
    parsed: bool  # the only field contains JSON


def form_of(request: Request, rule: Rule) -> ElicitationForm:
    message, labels, parsed = _message(request), {}, False
    field = _field(rule.schema)
    if rule.choices and len(rule.choices) <= CHOICES_MAX:
        labels = _labels(rule.choices)
        field = {"type": "string", "enum": list(labels)}
    elif field is None:
        flat = _flat(rule.schema)
        if flat is not None:
            return ElicitationForm(message, flat, {}, whole=True, parsed=False)
        parsed = rule.schema is not None
        description = f"JSON that matches {json.dumps(rule.schema, ensure_ascii=False)[:1000]}" if parsed else "Your answer."
        field = {"type": "string", "description": description, "minLength": 1}
    return ElicitationForm(message, _object({ANSWER: {"title": "Answer", **field}}, [ANSWER]), labels, whole=False, parsed=parsed)


def _message(request: Request) -> str:
    context = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)}"
        for name, value in context_of(request)
    ]
    text = "\n\n".join([question_of(request), *context])
    shown = text if len(text) <= CONTEXT_MAX else f"{text[:CONTEXT_MAX]}…"
    return f"{request.agent} asks ({request.id}): {shown}"


def _labels(choices: Sequence[Any]) -> dict[str, Any]:
    """Choices by label: text as it is, anything else as JSON; all as JSON if two labels would be equal."""
    exact = {json.dumps(choice, ensure_ascii=False): choice for choice in choices}
    plain = {choice if isinstance(choice, str) and choice else text: choice for text, choice in exact.items()}
    return plain if len(plain) == len(exact) else exact


def _object(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    extra = {} if WHY in fields else {WHY: _WHY_FIELD}
    return {"type": "object", "properties": {**fields, **extra}, "required": required}


def _field(schema: Any) -> dict[str, Any] | None:
    """The form field for a schema of one plain value; None if a field cannot express it."""
    if not isinstance(schema, dict):
        return None
    kind, choices = schema.get("type"), schema.get("enum")
    if isinstance(choices, list) and set(schema) <= {"type", "enum", *_ABOUT}:
        texts = [*choices, *([schema["default"]] if "default" in schema else [])]
        fits = 0 < len(choices) <= CHOICES_MAX and all(isinstance(text, str) for text in texts) and kind in (None, "string")
        return {**schema, "type": "string"} if fits else None
    allowed = _KEYWORDS.get(kind) if isinstance(kind, str) else None
    if allowed is None or not set(schema) <= {"type", *allowed} or not _is_plain(schema, str(kind)):
        return None
    return dict(schema)


def _is_plain(schema: Mapping[str, Any], kind: str) -> bool:
    right = "default" not in schema or isinstance(schema["default"], _TYPES[kind])
    return right and schema.get("format") in (None, *_FORMATS) and all(isinstance(schema.get(key, ""), str) for key in _ABOUT[:2])


def _flat(schema: Any) -> dict[str, Any] | None:
    """The form for a schema of an object of plain values; None if a form cannot express it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    if not set(schema) <= {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}:
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX or not isinstance(required, list):
        return None
    fields = {name: _field(part) for name, part in properties.items()}
    if any(part is None for part in fields.values()) or not set(required) <= set(fields):
        return None
    return _object({name: dict(part or {}) for name, part in fields.items()}, list(required))


def answer_in(form: ElicitationForm, content: Mapping[str, Any] | None, request: Request) -> tuple[Any, str]:
    """The value and the rationale in a filled form; raises ``InvalidAnswer`` if there is no valid one."""
    values = dict(content or {})
    own = form.schema["properties"].get(WHY) is not _WHY_FIELD
    why = "" if form.whole and own else values.pop(WHY, "") or ""
    if form.whole:
        return {key: item for key, item in values.items() if item is not None}, str(why)
    if ANSWER not in values:
        raise _refused(request, "the form has no answer")
    value = values[ANSWER]
    if form.labels:
        if value not in form.labels:
            raise _refused(request, f"{value!r} is not one of the choices")
        return form.labels[value], str(why)
    if not form.parsed:
        return value, str(why)
    try:
        return json.loads(str(value)), str(why)
    except (ValueError, RecursionError) as err:
        raise _refused(request, f"the answer is not JSON: {err}") from None


def _refused(request: Request, problem: str) -> InvalidAnswer:
    fields = {"request": request.id, "kind": request.kind, "problem": problem}
    return InvalidAnswer(f"cannot answer {request.id}: {problem}", fields=fields)


HELD, DECIDED, GIVEN_UP, OVER = "held", "decided", "given-up", "over"
WAIT_MAX = 600.0
FORM_SECONDS = 3600.0
_LOOK = 0.5

Wait = Annotated[float, f"seconds to wait for the answer, at most {WAIT_MAX:g}"]
_TEXTS = ("by", "at", "decision", "rationale", "url", "how", "not_now")
_OUTCOME = ResultShape(status=str, request=str, agent=str, value=Any, **dict.fromkeys(_TEXTS, str | None))


# Outcomes


def outcome(call: ToolCall, agent: str, request_id: str, not_now: str | None = None) -> dict[str, Any]:
    """The state of a request; ``not_now``: why a form did not answer it."""
    result = _state(call, agent, request_id, not_now)
    if result["status"] != HELD:
        unread_answers.read(call, agent, request_id)
    return result


def _state(call: ToolCall, agent: str, request_id: str, not_now: str | None) -> dict[str, Any]:
    space = call.space
    result = dict.fromkeys(_OUTCOME.fields) | {"request": request_id, "agent": agent}
    if any(request.id == request_id for request in space.pending(agent)):
        url = call.place.inbox(agent, request_id)
        where = f"at {url} or " if url else ""
        how = f"a person can answer {where}with: clia decide {agent} --request {request_id}; poll with the decision tool"
        return result | {"status": HELD, "url": url, "how": how, "not_now": not_now}
    session_id, _, number = request_id.rpartition(".")
    session = space.session(agent, session_id) if session_id else None
    for resumed in session.given() if session is not None else ():
        if str(resumed.call) == number:
            answer = {key: getattr(resumed, key) for key in ("value", "by", "at", "decision")}
            if resumed.error is not None:
                return result | answer | {"status": GIVEN_UP, "rationale": resumed.error}
            message = "" if resumed.decision is None else space.show(resumed.decision).message
            generated = not message or message.startswith("decision: ")
            return result | answer | {"status": DECIDED, "rationale": None if generated else message}
    if session is not None and not session.live:
        return result | {"status": OVER, "how": f"session {session.id} is {session.status}, so the request is closed"}
    fields = {"agent": agent, "request": request_id}
    raise NotFound(f"agent {agent!r} has no request {request_id!r}", code="no-such-request", fields=fields)


# Asking


def _payload(question: str, context: Any, choices: Sequence[Any] | None, schema: Any) -> dict[str, Any]:
    if not question.strip():
        raise _invalid("question", "question must not be empty", "empty-question")
    for key in ("question", "choices", "schema"):
        if key in (context or {}):
            raise _invalid("context", f"context must not contain {key!r}; use the argument of that name")
    if choices is not None and not choices:
        raise _invalid("choices", "choices must not be empty")
    problem = None if schema is None else schema_problem(schema)
    if problem is not None:
        raise _invalid("schema", f"schema is not a valid JSON Schema: {problem}")
    rules = {"choices": choices, "schema": schema}
    return {"question": question, **(context or {}), **{key: value for key, value in rules.items() if value is not None}}


def _invalid(field: str, message: str, code: str = "invalid-field") -> InvalidInput:
    return InvalidInput(message, code=code, fields={"field": field})


def ask(call: ToolCall, agent: str, payload: Mapping[str, Any]) -> Request:
    """The pending request with the same payload, else a new one: a retry does not ask twice."""
    space = call.space
    space.sessions.check_question(payload)  # or it could be the pending question of clia itself
    cleaned = space.local.redacted(dict(payload))
    with call.place.asking:
        request = next((held for held in space.pending(agent) if held.session.startswith(ASK) and held.payload == cleaned), None)
        request = request or space.ask(agent, payload)
        unread_answers.note(call, agent, cleaned, request.id)
        return request


def _unread(call: ToolCall, agent: str, payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outcome of a request with the same payload that this session made before it was killed, if it is answered."""
    request_id = unread_answers.find(call, agent, call.space.local.redacted(dict(payload)))
    result = None if request_id is None else outcome(call, agent, request_id)
    return None if result is None or result["status"] == HELD else result


def _decide(call: ToolCall, request: Request, form: ElicitationForm, content: Mapping[str, Any] | None) -> dict[str, Any]:
    """Answer the request with a filled form; an invalid answer leaves it pending."""
    refused = None
    try:
        if not call.caller.still(DECIDER):
            raise InvalidAnswer("you may no longer decide", fields={"request": request.id})
        value, why = answer_in(form, content, request)
        with person_answers("form"):
            call.space.decide(request.agent, value, why, by=call.caller.by, request_id=request.id)
    except InvalidAnswer as err:
        refused = err.message
    except StaleRequest:
        pass  # someone else answered first; their answer is the outcome
    except Denied as err:
        if err.code != "proof-required":
            raise
        refused = f"{err.message}; answer in the inbox"  # no form proves who filled it in
    return outcome(call, request.agent, request.id, refused)


@tool("Ask a person", role=ADMIN, returns=_OUTCOME, idempotent=True, agents=True)
async def request_decision(
    exchange: Exchange,
    question: Annotated[str, "the question, self-contained"],
    context: Annotated[Mapping[str, Any] | None, "further information for the person, by name"] = None,
    choices: Annotated[Sequence[Any] | None, "the answers to choose from"] = None,
    schema: Annotated[Mapping[str, Any] | None, "a JSON Schema for the answer, instead of choices"] = None,
    wait: Wait = 0.0,
    agent: AgentName = None,
) -> dict[str, Any] | InputRequiredResult:
    """Asks people a question and records it first: for an approval, a choice or missing knowledge. Never guess an approval that
    your guardrails require. status is decided (value, by, rationale) or held: not answered yet, so continue with other work and
    poll with decision. Held means neither yes nor no. Asking again creates no second request."""
    call = exchange.call
    payload = _payload(question, context, choices, schema)
    _check_wait(wait)
    # The state that the previous round returned; it comes back sealed.
    state: dict[str, str] = json.loads(exchange.params.request_state or "{}")
    name = state["agent"] if state else await exchange.do(call.agent, agent)
    if state:
        pending = await exchange.do(call.space.pending, name)
        request = next((request for request in pending if request.id == state["request"]), None)
        if request is None:
            return await exchange.do(outcome, call, name, state["request"])  # answered between two rounds
    else:
        unread = await exchange.do(_unread, call, name, payload)
        if unread is not None:
            return unread
        request = await exchange.do(ask, call, name, payload)
    result = await _shown(exchange, request)
    if isinstance(result, InputRequiredResult):
        return result
    return result if result["status"] != HELD else await _waited(exchange, result, wait)


async def _shown(exchange: Exchange, request: Request) -> dict[str, Any] | InputRequiredResult:
    """Show the request as a form if the client supports forms and the caller may decide."""
    call, modern = exchange.call, exchange.context.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not exchange.can_show_forms or not call.caller.may(DECIDER) or not (modern or exchange.context.session.can_send_request):
        return await exchange.do(outcome, call, request.agent, request.id)
    form = form_of(request, await exchange.do(call.space.sessions.rule, request))
    if modern:
        return await _in_rounds(exchange, request, form)
    with call.place.waits.room(call.caller.name) as free:
        if free:
            return await _in_place(exchange, request, form)
    return await exchange.do(outcome, call, request.agent, request.id, "too many calls are already waiting for people")


async def _in_rounds(exchange: Exchange, request: Request, form: ElicitationForm) -> dict[str, Any] | InputRequiredResult:
    """Protocol 2026-07-28 and later: the call returns a form and is repeated with the filled one."""
    answered = (exchange.params.input_responses or {}).get(ANSWER)
    if answered is None:
        params = ElicitRequestFormParams(message=form.message, requested_schema=form.schema)
        state = json.dumps({"agent": request.agent, "request": request.id})
        return InputRequiredResult(input_requests={ANSWER: ElicitRequest(params=params)}, request_state=state)
    return await _taken(exchange, request, form, answered)


async def _in_place(exchange: Exchange, request: Request, form: ElicitationForm) -> dict[str, Any]:
    """Earlier protocols: show the form during the call; an answer in the inbox cancels it."""
    answered: Any = None
    call = exchange.call

    async def watch() -> None:
        while not call.place.stopping and (await exchange.do(_quiet, call, request))["status"] == HELD:
            await sleep(_LOOK)
        group.cancel_scope.cancel()

    with move_on_after(FORM_SECONDS):
        async with create_task_group() as group:
            group.start_soon(watch)
            try:
                answered = await exchange.show(form.message, form.schema)
            except (MCPError, ValidationError) as err:
                answered = f"the client cannot show the form: {err}"
            group.cancel_scope.cancel()
    return await _taken(exchange, request, form, answered)


def _quiet(call: ToolCall, request: Request) -> dict[str, Any]:
    """The outcome after a form that may not have answered the request."""
    try:
        return outcome(call, request.agent, request.id)
    except CliaError:
        return {"status": HELD}


async def _taken(exchange: Exchange, request: Request, form: ElicitationForm, answered: Any) -> dict[str, Any]:
    if isinstance(answered, ElicitResult) and answered.action == "accept":
        return await exchange.do(_decide, exchange.call, request, form, answered.content)
    if isinstance(answered, ElicitResult):
        reason = "the form was declined" if answered.action == "decline" else "the form was dismissed"
    else:
        reason = answered or "the form was not filled in"
    return await exchange.do(outcome, exchange.call, request.agent, request.id, reason)


# Waiting


@tool("Poll a decision", returns=_OUTCOME)
async def decision(
    exchange: Exchange,
    request: Annotated[str, "request id, from request_decision or pending"],
    wait: Wait = 0.0,
    agent: AgentName = None,
) -> dict[str, Any]:
    """Returns the state of a request: held, decided (value, by, rationale), given-up or over (its session ended first)."""
    _check_wait(wait)
    if not agent:
        agent = await exchange.do(exchange.call.agent, None)
    result = await exchange.do(outcome, exchange.call, agent, request)
    return result if result["status"] != HELD else await _waited(exchange, result, wait)


def _check_wait(wait: float) -> None:
    if not 0 <= wait <= WAIT_MAX:
        raise _invalid("wait", f"wait must be between 0 and {WAIT_MAX:g} seconds")


async def _waited(exchange: Exchange, result: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The outcome, as soon as there is one or the time is up. Blocks no thread."""
    until = current_time() + seconds
    call = exchange.call
    with call.place.waits.room(call.caller.name) as free:
        while free and result["status"] == HELD and not call.place.stopping and (left := until - current_time()) > 0:
            await exchange.tell(f"{result['request']} is waiting for a person")
            await sleep(min(_LOOK, left))
            result = await exchange.do(outcome, call, result["agent"], result["request"], result["not_now"])
    return result
