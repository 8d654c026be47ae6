"""The API's own description, OpenAPI 3.1, from the table of verbs."""

from __future__ import annotations

from importlib.metadata import version

from clia.api.derivation import BODY, PATH, QUERY, all_verbs
from clia.api.shapes import definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.forge.lineages import DOCUMENTS
from clia.values.names import SLUG_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.api.derivation import Param, Verb

_PROBLEMS = {
    "400": "The body is no JSON.",
    "401": "Nobody is logged in, or the token is not good.",
    "403": "The role is too low, or the form is not ours.",
    "404": "Something that was named does not exist.",
    "408": "The body did not come to its end in time.",
    "409": "The world moved, or the name is taken; nothing was written.",
    "412": "The head is not the one that If-Match names.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "Something cannot be used as it is; fields.field names it.",
    "429": "Too many requests; Retry-After says when to come back.",
    "503": "A part below failed; trying again can help.",
}
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457, with the library's error in it.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "kind": {"type": "string"},
        "hints": {"type": "array", "items": {"type": "string"}},
        "fields": {"type": "object"},
    },
    "required": ["type", "title", "status", "detail", "code", "kind", "hints", "fields"],
}


def document(address: str = "") -> dict[str, Any]:
    verbs = all_verbs()
    paths: dict[str, Any] = dict(_FIXED)
    for verb in verbs:
        paths.setdefault(f"/api/v1/spaces/{{space}}{verb.path}", {})[verb.method.lower()] = _operation(verb)
    shapes = [param.shape for verb in verbs for param in verb.params] + [verb.result for verb in verbs if verb.result is not None]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "clia",
            "version": version("clia"),
            "description": "Every verb of the library, over HTTP. Lists come in pages; writes take Idempotency-Key and If-Match.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": address or "/"}],
        "security": [{"token": []}, {"login": []}],
        "paths": paths,
        "components": {
            "schemas": {**definitions(shapes), **EXTRA_SCHEMAS, "ProblemDocument": _PROBLEM},
            "responses": {code: _problem(text) for code, text in _PROBLEMS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": "clia_login"},
            },
        },
    }


def _problem(text: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
    }


def _operation(verb: Verb) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        "tags": [verb.route.tag],
        "x-role": verb.role,
        "parameters": [_SPACE, *(_parameter(each) for each in verb.params if each.where != BODY), *_extra(verb)],
        "responses": {**_success(verb), **{code: {"$ref": f"#/components/responses/{code}"} for code in _PROBLEMS}},
    }
    fields = [each for each in verb.params if each.where == BODY]
    if fields:
        required = [each.key for each in fields if each.required]
        schema = {"type": "object", "properties": {each.key: each.shape.schema() for each in fields}, "additionalProperties": False}
        content = {"application/json": {"schema": schema | ({"required": required} if required else {})}}
        made["requestBody"] = {"required": bool(required), "content": content}
    return made


_SPACE = {"name": "space", "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(param: Param) -> dict[str, Any]:
    made: dict[str, Any] = {"name": param.key, "in": param.where, "required": param.required, "schema": param.shape.schema()}
    if param.where == PATH:
        made["required"] = True
    if param.where == QUERY and "anyOf" in made["schema"]:
        made["schema"] = made["schema"]["anyOf"][0]  # what is left out is none
    return made


def _extra(verb: Verb) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if verb.paged:
        size = {"type": "integer", "minimum": 1, "maximum": 5000, "default": 500}
        made.append({"name": "page_size", "in": "query", "schema": size})
        made.append({"name": "cursor", "in": "query", "schema": {"type": "string"}})
    if verb.changes:
        key = {"type": "string", "minLength": 1, "maxLength": 200}
        made.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    if verb.route.moves:
        made.append({"name": "If-Match", "in": "header", "schema": {"type": "string"}})
    return made


def _success(verb: Verb) -> dict[str, Any]:
    if verb.result is None:
        return {"204": {"description": "Done."}}
    schema = verb.result.schema()
    if verb.paged:
        properties = {"items": schema, "next": {"type": ["string", "null"]}}
        schema = {"type": "object", "properties": properties, "required": ["items", "next"]}
    made = {"200": {"description": "Done.", "content": {"application/json": {"schema": schema}}}}
    return made | ({"304": {"description": "Nothing has changed."}} if verb.route.shows else {})


def _read_only(name: str, summary: str, schema: dict[str, Any], media: str = "application/json", *, space: bool = True) -> Any:
    content = {media: {"schema": schema}}
    responses = {"200": {"description": "Done.", "content": content}}
    problems = {code: {"$ref": f"#/components/responses/{code}"} for code in ("401", "403", "404", "422", "429", "503")}
    made = {"operationId": name, "summary": summary, "tags": ["forge"], "x-role": "viewer", "responses": responses | problems}
    return {"get": made | ({"parameters": [_SPACE]} if space else {})}


_SITE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "id": {"type": "string"}},
    "required": ["name", "id"],
}


def _asked(name: str, where: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}


def _with(read: Any, *params: dict[str, Any]) -> Any:
    """A path that is read only, with more parameters than the space."""
    return {"get": read["get"] | {"tags": ["lineage"], "parameters": [*read["get"]["parameters"], *params]}}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: dict[str, Any] = {"type": "string"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_OF_AGENT = (
    _asked("slug", "path", {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": SLUG_MAX}),
    _asked("document", "path", {"type": "string", "enum": list(DOCUMENTS)}),
)
_MERGED = _object(slug=_TEXT, kind=_TEXT, chain=_OBJECTS, document={"type": "object"}, diagnostics=_OBJECTS)
_STORY = _object(
    pointer=_TEXT,
    value={},
    valueSha256=_TEXT,
    rule=_TEXT,
    story=_TEXT,
    winner={"type": ["object", "null"]},
    contributors=_OBJECTS,
    shadowed=_OBJECTS,
    note=_TEXT,
)
_FIXED: dict[str, Any] = {
    "/api/v1/spaces": _read_only("spaces", "The spaces that are served.", {"type": "array", "items": _SITE}, space=False),
    "/api/v1/spaces/{space}": _read_only("space", "A space's id.", _SITE),
    "/api/v1/spaces/{space}/events": _with(
        _read_only(
            "events",
            "What happens in the space, as server-sent events, without end; goes on after Last-Event-ID.",
            {"type": "string"},
            "text/event-stream",
        ),
        _asked("Last-Event-ID", "header", {"type": "string"}, required=False),
    ),
    "/healthz": _read_only("healthz", "Whether every store and repository answers; for anybody.", {"type": "object"}, space=False),
    "/metrics": _read_only("metrics", "What Prometheus reads.", {"type": "string"}, "text/plain", space=False),
    "/api/v1/whoami": _read_only("whoami", "Who is asking.", {"type": "object"}, space=False),
    "/api/v1/spaces/{space}/lineage": _with(
        _read_only("lineage", "The agents visible from the space's directory.", _object(agents=_OBJECTS, diagnostics=_OBJECTS)),
        _asked("all", "query", {"type": "boolean"}, required=False),
    ),
    "/api/v1/spaces/{space}/lineage/{slug}/{document}": _with(
        _read_only("lineage_document", "A merged document, its chain, and what is wrong with its files.", _MERGED), *_OF_AGENT
    ),
    "/api/v1/spaces/{space}/lineage/{slug}/{document}/explain": _with(
        _read_only("lineage_explain", "Where one value of a merged document comes from.", _STORY),
        *_OF_AGENT,
        _asked("at", "query", {"type": "string", "description": "A JSON pointer into the merged document; empty: all of it."}),
    ),
}
