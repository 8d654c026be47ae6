"""The reference page of the API: every verb, with what it takes and returns.

Invariant: the page says what the OpenAPI document says, in words; a type that it has no words for stops the generation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clia.api.derivation import all_verbs, local_members
from clia.api.shapes import definitions
from clia.api.special_shapes import EXTRA_SCHEMAS
from clia.forge.api import openapi, requests
from reference_markdown import code, page, prose, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.api.derivation import Param, Verb

ROOT = "/api/v1/spaces/{space}"
_NUMBERS = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text", "null": "null"}


def api_page() -> str:
    verbs = all_verbs()
    document = openapi.document()
    shapes = [param.shape for verb in verbs for param in verb.params] + [verb.result for verb in verbs if verb.result is not None]
    tags = dict.fromkeys(verb.route.tag for verb in verbs)
    return page(
        "# API",
        f"Every verb of the library, below {code(ROOT)}. How to call it: [use the API](../how-to/api.md). A forge also serves this "
        "as an OpenAPI 3.1 document, at `/api/v1/openapi.json`.",
        "A program sends `Authorization: Bearer TOKEN`. Parameters *in the body* are fields of one JSON object, sent as "
        "`application/json`; unknown fields are refused. The last column has the default; a parameter without one is required. "
        "Each verb lists the lowest role that may call it: viewer, decider or admin.",
        f"A *list in pages* is an object with `items` and `next`, the `cursor` of the next page or null. `page_size` is at most "
        f"{requests.MOST} (default: {requests.SIZE}). Each verb that changes something takes `Idempotency-Key`. `If-Match` is the "
        "expected head of the agent.",
        "## Addresses of the forge",
        table(("request", "response"), _fixed(document["paths"])),
        "`/healthz`, `/metrics` and the streams of events are described in [serve a forge](../how-to/forge.md#watch-the-forge) and "
        "[watch what happens](../how-to/watch.md).",
        *(part for tag in tags for part in _section(tag, [verb for verb in verbs if verb.route.tag == tag])),
        "## Verbs that stay local",
        "These have no route. `RemoteSpace` refuses them with `local-only`.",
        table(("verb", "description"), [(code(name), prose(summary)) for name, summary in local_members().items()]),
        "## Problems",
        "Every error response is `application/problem+json` ([RFC 9457](#shape-problemdocument)).",
        table(("status", "what it means"), _statuses(document["components"]["responses"])),
        "## Shapes",
        "Objects in request bodies and responses. Optional fields are marked.",
        *shape_sections(
            {**definitions(shapes), **EXTRA_SCHEMAS, "ProblemDocument": document["components"]["schemas"]["ProblemDocument"]}
        ),
    )


def _fixed(paths: Mapping[str, Any]) -> list[tuple[str, str]]:
    operations = {path: methods["get"] for path, methods in paths.items() if methods.get("get", {}).get("tags") == ["forge"]}
    rows = [(code(f"GET {path}"), prose(operation["summary"])) for path, operation in operations.items()]
    return [*rows, (code("GET /api/v1/openapi.json"), "This page, for programs.")]


def _statuses(responses: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(status, prose(response["description"])) for status, response in responses.items()]


def _section(tag: str, verbs: list[Verb]) -> Iterator[str]:
    yield f"## Verbs of {tag}"
    for verb in verbs:
        yield page(
            f"### {verb.name}",
            f"{code(f'{verb.method} {verb.path}')}, role {verb.role}. {prose(verb.summary)}",
            _params(verb),
            _answer(verb),
        )


def _params(verb: Verb) -> str:
    columns = ("parameter", "where", "type", "default", "description")
    shown = len(columns) if any(param.description for param in verb.params) else len(columns) - 1
    return table(columns[:shown], [_param(param)[:shown] for param in verb.params]) if verb.params else ""


def _param(param: Param) -> tuple[str, ...]:
    places = {"path": "in the path", "query": "in the query", "body": "in the body"}
    default = "" if param.required else code(json.dumps(param.default))
    return code(param.key), places[param.where], type_text(param.shape.schema()), default, prose(param.description)


def _answer(verb: Verb) -> str:
    if verb.result is None:
        answer = "Returns nothing (204)."
    elif verb.paged:
        answer = f"Returns a list in pages: {type_text(verb.result.schema()['items'])}."
    else:
        answer = f"Returns: {type_text(verb.result.schema())}."
    condition = " Takes `If-Match`." if verb.route.moves else ""
    return (
        answer + condition + (" The head is the `ETag`; with `If-None-Match` the response may be 304." if verb.route.shows else "")
    )


def shape_sections(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        description = prose(schema.get("description", ""))
        if "properties" not in schema:
            yield page(f"### Shape: {name}", description)
            continue
        yield page(f"### Shape: {name}", description, field_table(schema))


def field_table(schema: Mapping[str, Any]) -> str:
    """The fields of an object."""
    required = schema.get("required", ())
    rows = [
        (code(key), type_text(child) + ("" if key in required else ", or left out"), prose(child.get("description", "")))
        for key, child in schema["properties"].items()
    ]
    return table(("field", "type", "meaning"), rows)


def type_text(schema: Mapping[str, Any]) -> str:
    """A schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#shape-{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        kinds = dict.fromkeys(type_text(choice) for choice in schema.get("anyOf", schema.get("oneOf", ())))
        return ("; or " if "oneOf" in schema else " or ").join(kinds)
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    kind = schema.get("type")
    if kind is None:
        return "any JSON"
    if isinstance(kind, list):
        return " or ".join(type_text({**schema, "type": name}) for name in kind)
    if kind == "array":
        return f"list of {type_text(schema['items'])}"
    return _object(schema) if kind == "object" else _NUMBERS[kind]


def _object(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_text(schema['additionalProperties'])}"
    if "properties" not in schema:
        return "object"
    return f"object with {', '.join(f'{code(key)} ({type_text(child)})' for key, child in schema['properties'].items())}"
