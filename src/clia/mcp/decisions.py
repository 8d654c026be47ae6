"""A request to people as a form that a client can show, and what was filled in as an answer.

Invariant: forms of the protocol are flat: texts, numbers, yes or no, one of several. What a request takes is asked for in such
fields where it fits into them; else in one field of text that must hold JSON. Whatever comes back is only a value: whether the
request takes it is decided where every answer is.


Asking people: the request is written first, and a form in the client is only a view of it.

Invariant: whatever becomes of the client, the call or this process, the request waits in the space, once, until a person has
answered it. Not now is not no: a form that is declined, dismissed or lost leaves the request as it was. Whoever answers first
has answered, in a form or in an inbox, and everybody else is told who said what.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from anyio import create_task_group, current_time, move_on_after, sleep
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from clia.api.records import MAYBE_STRING
from clia.api.shapes import ANY, NUMBER, OBJECT, STRING, TEXT, Listed, Optional
from clia.api.verbs import ADMIN, DECIDER, VIEWER
from clia.errors import CliaError, InvalidAnswer, InvalidInput, NotFound, StaleRequest
from clia.mcp.toolbox import AGENT, ONCE, Field, Told, Tool
from clia.sessions.answers import schema_problem
from clia.sessions.model import context_of, question_of
from clia.sessions.records import ASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.mcp.calls import Call, Exchange
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
_WHY_FIELD = {"type": "string", "title": "Why", "description": "Recorded with the decision; may be left empty."}


class Form(NamedTuple):
    message: str
    schema: dict[str, Any]
    labels: Mapping[str, Any]  # of choices: what each stands for
    whole: bool  # the fields together are the answer
    parsed: bool  # the one field holds JSON


def form_of(request: Request, rule: Rule) -> Form:
    message = _message(request)
    if rule.choices and len(rule.choices) <= CHOICES_MAX:
        labels = _labels(rule.choices)
        return Form(
            message,
            _object({ANSWER: {"type": "string", "title": "Answer", "enum": list(labels)}}, [ANSWER]),
            labels,
            whole=False,
            parsed=False,
        )
    single = _field(rule.schema)
    if single is not None:
        return Form(message, _object({ANSWER: {"title": "Answer", **single}}, [ANSWER]), {}, whole=False, parsed=False)
    flat = _flat(rule.schema)
    if flat is not None:
        return Form(message, flat, {}, whole=True, parsed=False)
    said = "Your answer." if rule.schema is None else f"JSON that fits {json.dumps(rule.schema, ensure_ascii=False)[:1000]}"
    text = {"type": "string", "title": "Answer", "description": said, "minLength": 1}
    return Form(message, _object({ANSWER: text}, [ANSWER]), {}, whole=False, parsed=rule.schema is not None)


def _message(request: Request) -> str:
    told = [question_of(request)]
    for name, value in context_of(request):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        told.append(f"{name}: {text}")
    text = "\n\n".join(told)
    shown = text if len(text) <= CONTEXT_MAX else f"{text[:CONTEXT_MAX]}…"
    return f"{request.agent} asks ({request.id}): {shown}"


def _labels(choices: Sequence[Any]) -> dict[str, Any]:
    """What each choice is called: a text as it is, anything else as JSON; all as JSON where two would have one name."""
    exact = {json.dumps(each, ensure_ascii=False): each for each in choices}
    plain = {each if isinstance(each, str) and each else text: each for text, each in exact.items()}
    return plain if len(plain) == len(exact) else exact


def _object(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    more = {} if WHY in fields else {WHY: _WHY_FIELD}
    return {"type": "object", "properties": {**fields, **more}, "required": required}


def _field(schema: Any) -> dict[str, Any] | None:
    """A schema of one plain value as a field has it; None where it says what a field cannot."""
    if not isinstance(schema, dict):
        return None
    kind, choices = schema.get("type"), schema.get("enum")
    if isinstance(choices, list) and set(schema) <= {"type", "enum", *_ABOUT}:
        texts = [*choices, *([schema["default"]] if "default" in schema else [])]
        fits = 0 < len(choices) <= CHOICES_MAX and all(isinstance(each, str) for each in texts) and kind in (None, "string")
        return {**schema, "type": "string"} if fits else None
    allowed = _KEYWORDS.get(kind) if isinstance(kind, str) else None
    if allowed is None or not set(schema) <= {"type", *allowed} or not _is_plain(schema, str(kind)):
        return None
    return dict(schema)


def _is_plain(schema: Mapping[str, Any], kind: str) -> bool:
    right = "default" not in schema or isinstance(schema["default"], _TYPES[kind])
    return right and schema.get("format") in (None, *_FORMATS) and all(isinstance(schema.get(key, ""), str) for key in _ABOUT[:2])


def _flat(schema: Any) -> dict[str, Any] | None:
    """A schema of an object of plain values as a form; None where it says what a form cannot."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    if not set(schema) <= {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}:
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX or not isinstance(required, list):
        return None
    fields = {name: _field(each) for name, each in properties.items()}
    if any(each is None for each in fields.values()) or not set(required) <= set(fields):
        return None
    return _object({name: dict(each or {}) for name, each in fields.items()}, list(required))


def answer_in(form: Form, content: Mapping[str, Any] | None, request: Request) -> tuple[Any, str]:
    """The value that was given, and why; ``InvalidAnswer`` where the form holds none."""
    given = dict(content or {})
    own = form.schema["properties"].get(WHY) is not _WHY_FIELD
    why = "" if form.whole and own else given.pop(WHY, "") or ""
    if form.whole:
        return {key: each for key, each in given.items() if each is not None}, str(why)
    if ANSWER not in given:
        raise _refused(request, "the form came back without an answer")
    value = given[ANSWER]
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
    return InvalidAnswer(f"{request.id} is not answered: {problem}", fields=fields)


HELD, DECIDED, GIVEN_UP, OVER = "held", "decided", "given-up", "over"
WAIT_MAX = 600.0
FORM_SECONDS = 3600.0
_LOOK = 0.5
_OWN = ("question", "choices", "schema")

_OUTCOME = Told(
    status=STRING,
    request=STRING,
    agent=STRING,
    value=ANY,
    by=MAYBE_STRING,
    at=MAYBE_STRING,
    decision=MAYBE_STRING,
    rationale=MAYBE_STRING,
    url=MAYBE_STRING,
    how=MAYBE_STRING,
    not_now=MAYBE_STRING,
)


# What became of a request


def outcome(call: Call, agent: str, request_id: str, not_now: str | None = None) -> dict[str, Any]:
    """Whether a request waits, or how it ended; ``not_now`` says why a form did not end it."""
    space = call.space
    made = dict.fromkeys(_OUTCOME.fields) | {"request": request_id, "agent": agent}
    if any(each.id == request_id for each in space.pending(agent)):
        url = call.place.inbox(agent, request_id)
        where = f"at {url} or " if url else ""
        how = f"a person answers {where}with: clia decide {agent} --request {request_id}; poll with the tool decision"
        return made | {"status": HELD, "url": url, "how": how, "not_now": not_now}
    session_id, _, number = request_id.rpartition(".")
    session = space.session(agent, session_id) if session_id else None
    for each in session.given() if session is not None else ():
        if str(each.call) == number:
            said = {"value": each.value, "by": each.by, "at": each.at, "decision": each.decision}
            if each.error is not None:
                return made | said | {"status": GIVEN_UP, "rationale": each.error}
            return made | said | {"status": DECIDED, "rationale": _rationale(call, each.decision)}
    if session is not None and not session.live:
        return made | {"status": OVER, "how": f"session {session.id} is {session.status}: nobody is asked any more"}
    raise NotFound(
        f"{agent!r} has no request {request_id!r}", code="no-such-request", fields={"agent": agent, "request": request_id}
    )


def _rationale(call: Call, decision: str | None) -> str | None:
    """What the person wrote; a decision without words has a subject that we made."""
    message = "" if decision is None else call.space.show(decision).message
    return None if not message or message.startswith("decision: ") else message


# Asking


def _payload(question: str, context: Any, choices: Sequence[Any] | None, schema: Any) -> dict[str, Any]:
    if not question.strip():
        raise InvalidInput("a question needs a text", code="empty-question", fields={"field": "question"})
    for key in _OWN:
        if key in (context or {}):
            raise InvalidInput(
                f"context has no field {key!r}: give it beside it", code="invalid-field", fields={"field": "context"}
            )
    if choices is not None and not choices:
        raise InvalidInput("choices must not be empty", code="invalid-field", fields={"field": "choices"})
    problem = None if schema is None else schema_problem(schema)
    if problem is not None:
        raise InvalidInput(f"schema is no JSON Schema: {problem}", code="invalid-field", fields={"field": "schema"})
    made: dict[str, Any] = {"question": question, **(context or {})}
    made |= {} if choices is None else {"choices": list(choices)}
    return made | ({} if schema is None else {"schema": schema})


def _asked(call: Call, agent: str, payload: Mapping[str, Any]) -> Request:
    """The request: one that waits with the same words already, else a new one. Whoever was cut off asks again, not twice."""
    space = call.space
    kept = space._core.clean.value(dict(payload))  # noqa: SLF001  # as it would be recorded, without secrets
    with call.place.asking:
        for each in space.pending(agent):
            if each.session.startswith(ASK) and each.payload == kept:
                return each
        return space.ask(agent, payload)


def _found(call: Call, agent: str, request_id: str) -> Request | None:
    return next((each for each in call.space.pending(agent) if each.id == request_id), None)


def _decide(call: Call, request: Request, form: Form, content: Mapping[str, Any] | None) -> dict[str, Any]:
    """Makes what was filled in the answer; what the request does not take leaves it waiting."""
    refused = None
    try:
        if not call.caller.still(DECIDER):
            raise InvalidAnswer("whoever filled in the form may not decide any more", fields={"request": request.id})
        value, why = answer_in(form, content, request)
        call.space.decide(request.agent, value, why, by=call.caller.by, request_id=request.id)
    except InvalidAnswer as err:
        refused = err.message
    except StaleRequest:
        pass  # somebody else was quicker; what they said is the outcome
    return outcome(call, request.agent, request.id, refused)


async def _request_decision(
    exchange: Exchange, question: str, context: Any, choices: Any, schema: Any, wait: float, agent: str | None
) -> Any:
    call = exchange.call
    payload = _payload(question, context, choices, schema)
    _check_wait(wait)
    state = _state(exchange.state)
    name = state["agent"] if state else await exchange.do(call.agent, agent)
    request = await exchange.do(_found, call, name, state["request"]) if state else await exchange.do(_asked, call, name, payload)
    if request is None:
        return await exchange.do(outcome, call, name, state["request"])  # answered between two rounds
    made = await _shown(exchange, request)
    if isinstance(made, InputRequiredResult):
        return made
    return made if made["status"] != HELD else await _waited(exchange, made, wait)


async def _shown(exchange: Exchange, request: Request) -> dict[str, Any] | InputRequiredResult:
    """What becomes of the request in a form, where the client has forms and whoever calls may decide."""
    call, modern = exchange.call, exchange.protocol in MODERN_PROTOCOL_VERSIONS
    if not exchange.can_show_forms or not call.caller.may(DECIDER) or not (modern or exchange.can_ask_back):
        return await exchange.do(outcome, call, request.agent, request.id)
    form = form_of(request, await exchange.do(call.space.rule, request))
    if modern:
        return await _in_rounds(exchange, request, form)
    with call.place.waits.room(call.caller.name) as free:
        if free:
            return await _in_place(exchange, request, form)
    return await exchange.do(outcome, call, request.agent, request.id, _NO_ROOM)


def _state(text: str | None) -> dict[str, str]:
    """What we wrote at the end of the round before; it comes back sealed, so that nobody else wrote it."""
    made = json.loads(text) if text else {}
    return made if isinstance(made, dict) and {"agent", "request"} <= made.keys() else {}


async def _in_rounds(exchange: Exchange, request: Request, form: Form) -> dict[str, Any] | InputRequiredResult:
    """From 2026-07-28 on the call ends with a form, and is made again with what was filled in."""
    answered = exchange.answers.get(ANSWER)
    if answered is None:
        params = ElicitRequestFormParams(message=form.message, requested_schema=form.schema)
        state = json.dumps({"agent": request.agent, "request": request.id})
        return InputRequiredResult(input_requests={ANSWER: ElicitRequest(params=params)}, request_state=state)
    return await _taken(exchange, request, form, answered)


async def _in_place(exchange: Exchange, request: Request, form: Form) -> dict[str, Any]:
    """Before that the client is asked while the call goes on; an answer in the inbox takes the form away."""
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
                answered = f"the client could not show the form: {err}"
            group.cancel_scope.cancel()
    return await _taken(exchange, request, form, answered)


def _quiet(call: Call, request: Request) -> dict[str, Any]:
    """As long as nobody knows better, a request waits."""
    try:
        return outcome(call, request.agent, request.id)
    except CliaError:
        return {"status": HELD}


async def _taken(exchange: Exchange, request: Request, form: Form, answered: Any) -> dict[str, Any]:
    if isinstance(answered, ElicitResult) and answered.action == "accept":
        return await exchange.do(_decide, exchange.call, request, form, answered.content)
    why = (
        f"the form was {_WORDS[answered.action]}" if isinstance(answered, ElicitResult) else answered or "nobody filled in the form"
    )
    return await exchange.do(outcome, exchange.call, request.agent, request.id, str(why))


_NO_ROOM = "too many calls wait for people already"
_WORDS = {"decline": "declined", "cancel": "dismissed"}


# Waiting


async def _decision(exchange: Exchange, request: str, wait: float, agent: str | None) -> Any:
    _check_wait(wait)
    name = await exchange.do(exchange.call.agent, agent)
    made = await exchange.do(outcome, exchange.call, name, request)
    return made if made["status"] != HELD else await _waited(exchange, made, wait)


def _check_wait(wait: float) -> None:
    if not 0 <= wait <= WAIT_MAX:
        raise InvalidInput(f"wait is a number of seconds from 0 to {WAIT_MAX:g}", code="invalid-field", fields={"field": "wait"})


async def _waited(exchange: Exchange, made: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The outcome when there is one, or when the time is up; no thread waits meanwhile."""
    until = current_time() + seconds
    call = exchange.call
    with call.place.waits.room(call.caller.name) as free:
        while free and made["status"] == HELD and not call.place.stopping and (left := until - current_time()) > 0:
            await exchange.tell(f"{made['request']} waits for a person")
            await sleep(min(_LOOK, left))
            made = await exchange.do(outcome, call, made["agent"], made["request"], made["not_now"])
    return made


_WAIT = Field("wait", NUMBER, f"wait so many seconds for the answer, at most {WAIT_MAX:g}", 0.0)

DECISION_TOOLS = (
    Tool(
        "request_decision",
        "Ask a person",
        "Puts a question to people and records it before anything else: approval, a choice, missing knowledge. Never guess an"
        " approval that your guardrails ask for. status is decided (value, by, rationale) or held: nobody has answered yet; go on"
        " with other work and poll with decision. Held is neither yes nor no. The same question waits only once.",
        ADMIN,
        (
            Field("question", TEXT, "what is asked, in one text that can be understood alone"),
            Field("context", Optional(OBJECT), "what else the person should see, by name", None),
            Field("choices", Optional(Listed(ANY)), "the answers to choose from", None),
            Field("schema", Optional(OBJECT), "a JSON Schema that the answer must fit, instead of choices", None),
            _WAIT,
            AGENT,
        ),
        _OUTCOME,
        _request_decision,
        ONCE,
        talks=True,
    ),
    Tool(
        "decision",
        "Poll a decision",
        "What became of a request: held, decided (value, by, rationale), given-up or over (its session ended first).",
        VIEWER,
        (Field("request", TEXT, "the request's id, from request_decision or pending"), _WAIT, AGENT),
        _OUTCOME,
        _decision,
        talks=True,
    ),
)
