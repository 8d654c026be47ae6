"""The OpenAPI 3.1 document of the API, from the table of verbs."""

from __future__ import annotations

from re import findall

from clia import __version__
from clia.api.derivation import BODY, PATH, QUERY, all_verbs
from clia.api.shapes import definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.forge.api.idempotency import KEY_MAX
from clia.forge.api.requests import MOST, SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.api.derivation import Param, Verb

_PROBLEMS = {
    "400": "The body is not valid JSON.",
    "401": "Not logged in, or the token is unknown or expired.",
    "403": "The role is too low, or the CSRF token is missing or wrong.",
    "404": "Not found.",
    "408": "The body did not arrive in time.",
    "409": "Conflict: something changed since it was read, or the name is taken. Nothing was written.",
    "412": "The head is not the one in If-Match.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "Invalid input; fields.field names the field.",
    "429": "Too many requests; retry after the time in Retry-After.",
    "503": "A backend failed; retrying may help.",
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _parameter(name: str, where: str, schema: dict[str, Any], about: str = "", *, required: bool = True) -> dict[str, Any]:
    parameter = {"name": name, "in": where, "required": required, "schema": schema}
    return parameter | ({"description": about} if about else {})


_TEXT: dict[str, Any] = {"type": "string"}
_SPACE = "Name of the space at this forge."
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_PROBLEM = _object(
    **dict.fromkeys(("type", "title", "detail", "code", "kind"), _TEXT),
    status={"type": "integer"},
    hints={"type": "array", "items": _TEXT},
    fields=_ANY_OBJECT,
)


def document(address: str = "") -> dict[str, Any]:
    verbs = all_verbs()
    paths: dict[str, Any] = {path: {"get": _read_only(path, *fields)} for path, *fields in _FIXED}
    for verb in verbs:
        paths.setdefault(f"/api/v1/spaces/{{space}}{verb.path}", {})[verb.method.lower()] = _operation(verb)
    shapes = [param.shape for verb in verbs for param in verb.params] + [verb.result for verb in verbs if verb.result is not None]
    problem = _content({"$ref": "#/components/schemas/ProblemDocument"}, "application/problem+json")
    description = "RFC 9457, with the code, kind, hints and fields of the library's error."
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "clia",
            "version": __version__,
            "description": "Every verb of the library, over HTTP. Lists come in pages; writes take Idempotency-Key and If-Match.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": address or "/"}],
        "security": [{"token": []}, {"login": []}],
        "paths": paths,
        "components": {
            "schemas": {**definitions(shapes), **EXTRA_SCHEMAS, "ProblemDocument": {**_PROBLEM, "description": description}},
            "responses": {code: {"description": text, **problem} for code, text in _PROBLEMS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": "clia_login"},
            },
        },
    }


def _content(schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {"content": {media: {"schema": schema}}}


def _problems(*codes: str) -> dict[str, Any]:
    return {code: {"$ref": f"#/components/responses/{code}"} for code in codes}


def _operation(verb: Verb) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        **({"description": verb.description} if verb.description else {}),
        "tags": [verb.route.tag],
        "x-role": verb.role,
        "parameters": [
            _parameter("space", PATH, _TEXT, _SPACE),
            *(_verb_parameter(param) for param in verb.params if param.where != BODY),
            *_extra(verb),
        ],
        "responses": _success(verb) | _problems(*_PROBLEMS),
    }
    fields = [param for param in verb.params if param.where == BODY]
    if fields:
        required = [param.key for param in fields if param.required]
        properties = {param.key: param.shape.schema() | _about(param) for param in fields}
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        operation["requestBody"] = {
            "required": bool(required),
            **_content(schema | ({"required": required} if required else {})),
        }
    return operation


def _verb_parameter(param: Param) -> dict[str, Any]:
    schema = param.shape.schema()
    if param.where == QUERY and "anyOf" in schema:
        schema = schema["anyOf"][0]  # null is sent by leaving the parameter out
    return _parameter(param.key, param.where, schema, param.description, required=param.where == PATH or param.required)


def _about(param: Param) -> dict[str, Any]:
    return {"description": param.description} if param.description else {}


def _extra(verb: Verb) -> list[dict[str, Any]]:
    """Paging and the headers of conditional and repeatable requests."""
    size = {"type": "integer", "minimum": 1, "maximum": MOST, "default": SIZE}
    key = {"type": "string", "minLength": 1, "maxLength": KEY_MAX}
    rows = (
        (verb.paged, "page_size", "query", size, "Items of one page."),
        (verb.paged, "cursor", "query", _TEXT, "`next` of the page before."),
        (verb.changes, "Idempotency-Key", "header", key, "A repeated request with the same key is answered, not executed again."),
        (verb.route.moves, "If-Match", "header", _TEXT, "The expected head; if the agent has another one, nothing is changed."),
    )
    return [_parameter(name, where, schema, about, required=False) for applies, name, where, schema, about in rows if applies]


def _success(verb: Verb) -> dict[str, Any]:
    if verb.result is None:
        return {"204": {"description": "Done."}}
    schema = verb.result.schema()
    if verb.paged:
        schema = _object(items=schema, next={"type": ["string", "null"]})
    responses = {"200": {"description": "Done.", **_content(schema)}}
    return responses | ({"304": {"description": "Not modified."}} if verb.route.shows else {})


# Paths that are not verbs


def _read_only(path: str, name: str, summary: str, schema: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    success = {"description": "Done.", **_content(schema, _MEDIA.get(name, "application/json"))}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["forge"],
        "x-role": "viewer",
        "parameters": [*(_parameter(key, PATH, _TEXT, _SPACE) for key in findall(r"{(\w+)}", path)), *parameters],
        "responses": {"200": success, **_problems("401", "403", "404", "422", "429", "503")},
    }


_MEDIA = {"events": "text/event-stream", "metrics": "text/plain"}
_SITE = _object(name=_TEXT, id=_TEXT)
_LAST_EVENT = _parameter("Last-Event-ID", "header", _TEXT, "Position of the last event that was received.", required=False)
_EVENTS = "Events of the space, as an endless stream of server-sent events; continues after Last-Event-ID."
_ROOT = "/api/v1/spaces/{space}"
_FIXED: tuple[tuple[Any, ...], ...] = (
    ("/api/v1/spaces", "spaces", "The spaces of this forge.", {"type": "array", "items": _SITE}),
    (_ROOT, "space", "The id of a space.", _SITE),
    (f"{_ROOT}/events", "events", _EVENTS, _TEXT, _LAST_EVENT),
    ("/healthz", "healthz", "Whether every store and repository responds. No login needed.", _ANY_OBJECT),
    ("/metrics", "metrics", "Metrics for Prometheus.", _TEXT),
    ("/api/v1/whoami", "whoami", "The user of the request.", _ANY_OBJECT),
)
