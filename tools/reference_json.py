"""The reference page of JSON shapes: what each command prints with ``--json``.

Invariant: the shapes come from the types of the commands' answers. Every command is run, and output that does not fit its shape
stops the generation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from clia.cli import registry
from clia.cli.main import load
from clia.values.records import ReportedError
from reference_api import field_table, shape_sections, type_text
from reference_examples import ERROR, Example, examples
from reference_markdown import code, fenced, page, prose
from reference_schemas import REF, Schemas, answer_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reference_schemas import Schema

_SHAPE_ONLY = ("completion", "trace export", "agents schema")  # the output is long
_TEXT_MAX = 300


def json_page() -> str:
    schemas = Schemas()
    shapes = command_shapes(schemas)
    error = schemas.of(ReportedError)
    shown = examples()
    check(shapes | {ERROR: error}, schemas, shown)
    own = own_records(shapes, schemas)
    silent = ", ".join(code(f"clia {name}") for name in all_commands() if name not in shapes)
    (failed,) = (example for example in shown if example.command == ERROR)
    return page(
        "# JSON shapes",
        f"What each command prints with `--json`. {silent} print no JSON.",
        "See also: the fields of [documents](documents.md) and their [merge rules](merging.md); the codes of "
        "[diagnostics](diagnostics.md), [errors](errors.md#codes) and [findings](space.md#findings).",
        *(part for name in shapes for part in _section(name, shapes[name], schemas.definitions.get(own.get(name, "")), shown)),
        "## Errors",
        f"An error is one line on standard error: {type_text(error)}. For example, {_command(failed)}:",
        fenced("json", json.dumps(failed.value, indent=2, ensure_ascii=False)),
        "## Shapes",
        "Records of several commands, and records in records. A field that is not always there says so.",
        *shape_sections({name: schema for name, schema in schemas.definitions.items() if name not in own.values()}),
    )


def all_commands(group: registry.Group = registry.TREE, prefix: str = "") -> Iterator[str]:
    for name, entry in group.commands.items():
        if isinstance(entry, registry.Group):
            yield from all_commands(entry, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def command_shapes(schemas: Schemas) -> dict[str, Schema]:
    """The schema of what each command prints, by its name; commands that print no JSON are left out."""
    shapes = {}
    for name in all_commands():
        entry: Any = registry.TREE
        for word in name.split():
            entry = entry.commands[word]
        kinds = [schemas.of(kind) for kind in answer_types(load(entry))]
        if kinds:
            shapes[name] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return shapes


def check(shapes: dict[str, Schema], schemas: Schemas, shown: Sequence[Example]) -> None:
    """Compare what commands printed with their shapes; every command must have been run."""
    components = {"components": {"schemas": schemas.definitions}}
    for example in shown:
        for error in Draft202012Validator(shapes[example.command] | components).iter_errors(example.value):
            place = "/".join(map(str, error.absolute_path))
            raise SystemExit(f"reference: clia {example.words} does not print its shape: {place}: {error.message}")
    untried = shapes.keys() - {example.command for example in shown}
    if untried:
        raise SystemExit(f"reference: no example of {', '.join(sorted(untried))}")


def own_records(shapes: dict[str, Schema], schemas: Schemas) -> dict[str, str]:
    """The names of records that only one command prints, by command; the others need a docstring."""
    places = json.dumps([*shapes.values(), schemas.definitions])
    references = {name: (shape.get("items") or shape).get("$ref", "") for name, shape in shapes.items()}
    own = {name: ref.removeprefix(REF) for name, ref in references.items() if ref and places.count(json.dumps(ref)) == 1}
    for name, schema in schemas.definitions.items():
        if name not in own.values() and not schema["description"]:
            raise SystemExit(f"reference: {name} has no docstring")
    return own


def _section(name: str, shape: Schema, record: Schema | None, shown: Sequence[Example]) -> Iterator[str]:
    yield f"## {name}"
    if record is None:
        yield f"Prints {type_text(shape)}."
    else:
        yield f"Prints {'a list of objects' if 'items' in shape else 'an object'}. {prose(record['description'])}".strip()
        yield field_table(record)
    if name not in _SHAPE_ONLY:
        for example in (example for example in shown if example.command == name):
            yield f"{_command(example)}:"
            yield fenced("json", json.dumps(_shortened(example.value), indent=2, ensure_ascii=False))


def _command(example: Example) -> str:
    before, separator, program = example.words.partition(" -- ")
    return code(f"clia {before} --json{separator}{program}")


def _shortened(value: Any) -> Any:
    """The value with long texts cut."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return f"{value[:_TEXT_MAX]}…" if isinstance(value, str) and len(value) > _TEXT_MAX else value
