"""Forms for rules: their fields, the values read from them, and their accessible markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest

import clia.forge.rendering.forms
from clia.errors import InvalidAnswer
from clia.forge.rendering.form_values import as_posted, initial, value_from
from clia.forge.rendering.forms import MAX_FIELDS, AnswerForm, FormField, form_of, raw_form
from clia.sessions.answers import Rule, check_answer, rule_of

TEMPLATES = Path(clia.forge.rendering.forms.__file__).parent.parent / "templates"
PAGES = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined)


def form(schema: Any) -> AnswerForm:
    return form_of(rule_of({"human": schema}, "human", None))


def with_part(part: Any, *, required: bool = False) -> AnswerForm:
    return form({"type": "object", "properties": {"part": part}, "required": ["part"] if required else []})


def part_of(schema: Any, *, required: bool = False) -> FormField:
    answer_form = with_part(schema, required=required)
    assert answer_form.root is not None
    return answer_form.root.fields[0]


def nested(levels: int, innermost: dict[str, Any]) -> dict[str, Any]:
    return innermost if not levels else {"type": "object", "properties": {"inner": nested(levels - 1, innermost)}}


def page(answer_form: AnswerForm, posted: dict[str, list[str]] | None = None, errors: dict[str, str] | None = None) -> str:
    macros: Any = PAGES.get_template("form_fields.html").module
    return str(macros.form_fields(answer_form, "p1", initial(answer_form) if posted is None else posted, errors or {}))


def problems(answer_form: AnswerForm, data: dict[str, list[str]]) -> dict[str, str]:
    with pytest.raises(InvalidAnswer) as caught:
        value_from(answer_form, data)
    assert caught.value.fields["field"] == next(iter(caught.value.fields["problems"]))
    fields: dict[str, str] = caught.value.fields["problems"]
    return fields


# Choice of the form


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "string"}, "textarea"),
        ({"type": "string", "maxLength": 200}, "text"),
        ({"type": "string", "maxLength": 201}, "textarea"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "text"),
        ({"type": "string", "format": "email"}, "text"),
        ({"type": "string", "format": "uri", "maxLength": 2000}, "url"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date", "maxLength": 10}, "date"),
        ({"type": "string", "format": "date", "maxLength": 9}, "text"),
        ({"type": "string", "format": "date", "minLength": 11}, "text"),
        ({"type": "string", "format": "date", "pattern": "^2"}, "text"),
        ({"type": "string", "enum": ["a", "b"]}, "select"),
        ({"enum": ["a", 1, None, {"x": []}]}, "select"),
        ({"const": 5}, "select"),
        ({"type": "integer"}, "integer"),
        ({"type": "number", "minimum": 0.5}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "boolean", "default": True}, "checkbox"),
        ({"type": "boolean", "default": "yes"}, "boolean"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "checkboxes"),
        ({"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}, "lines"),
        ({"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}, "group"),
    ],
)
def test_a_property_gets_the_field_that_expresses_it_exactly(part: dict[str, Any], kind: str) -> None:
    assert part_of(part).kind == kind


@pytest.mark.parametrize(
    "part",
    [
        True,
        {},
        {"type": ["string", "null"]},
        {"type": "null"},
        {"type": "string", "not": {"const": "x"}},
        {"type": "string", "contentEncoding": "base64"},
        {"type": "string", "minimum": 3},
        {"minLength": 3},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"$ref": "#/properties/other"},
        {"enum": ["a", "b"], "pattern": "^a"},
        {"enum": ["a", "b"], "type": "integer"},
        {"enum": ["a"], "allOf": [{"const": "b"}]},
        {"type": "array"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "string"}, "contains": {"const": "x"}},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 3},
        {"type": "object"},
        {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x", "y"]},
        {"type": "object", "properties": {"x": {"type": "string"}}, "minProperties": 1},
        {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"x": {"type": "string"}}, "patternProperties": {"^y": {}}},
        {"properties": {"x": {"type": "string"}}},
    ],
)
def test_a_rule_that_fields_cannot_express_exactly_is_asked_for_as_json(part: Any) -> None:
    assert form(part).kind == "raw"
    assert with_part(part).kind == "raw"


@pytest.mark.parametrize("schema", [None, False, {"type": "strnig"}, {"type": "object", "properties": []}, "x", {"pattern": "("}])
def test_an_invalid_rule_is_asked_for_as_json(schema: Any) -> None:
    assert form_of(Rule(schema)).kind == "raw"


def test_groups_are_nested_at_most_three_deep() -> None:
    assert form(nested(4, {"type": "string"})).kind == "fields"  # the answer itself and three groups in it
    assert form(nested(5, {"type": "string"})).kind == "raw"


def test_a_form_has_a_maximum_number_of_fields() -> None:
    def wide(count: int) -> dict[str, Any]:
        return {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(count)}}

    assert form(wide(MAX_FIELDS - 1)).kind == "fields"
    assert form(wide(MAX_FIELDS)).kind == "raw"


def test_choices_are_shown_readably_and_posted_as_json() -> None:
    answer_form = form_of(rule_of({}, "human", {"choices": ["ship it", 3, True, None]}))
    assert answer_form.kind == "choices"
    assert [(choice.label, choice.text) for choice in answer_form.choices] == [
        ("ship it", '"ship it"'),
        ("3", "3"),
        ("true", "true"),
        ("null", "null"),
    ]
    assert value_from(answer_form, {"v": ["true"]}) is True


def test_choices_that_look_alike_or_are_invisible_are_shown_as_json() -> None:
    assert [choice.label for choice in form({"enum": ["1", 1]}).choices] == ['"1"', "1"]
    assert [choice.label for choice in form({"enum": ["", "a"]}).choices] == ['""', '"a"']


def test_only_choices_that_satisfy_the_rest_of_the_rule_are_offered() -> None:
    assert [choice.value for choice in form({"type": "integer", "enum": ["a", 1, 2, 2], "minimum": 2}).choices] == [2]
    assert [choice.value for choice in form({"const": "a", "enum": ["a", "b"]}).choices] == ["a"]
    assert [choice.value for choice in form({"type": "boolean"}).choices] == [True, False]


def test_titles_and_descriptions_of_the_rule_are_shown() -> None:
    answer_form = form(
        {"type": "object", "title": "Release", "description": "Of what?", "properties": {"a": {"type": "string", "title": "A!"}}}
    )
    assert answer_form.root is not None
    assert (answer_form.label, answer_form.description, answer_form.root.fields[0].label) == ("Release", "Of what?", "A!")
    assert form({"type": "string", "title": " "}).label == "Answer"


@pytest.mark.parametrize(
    ("part", "limits"),
    [
        ({"type": "integer"}, {"step": "1"}),
        ({"type": "integer", "minimum": 0.5, "maximum": 9.5}, {"step": "1", "min": "1", "max": "9"}),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9}, {"step": "1", "min": "2", "max": "8"}),
        ({"type": "integer", "minimum": 1, "maximum": 10, "multipleOf": 4}, {"step": "4", "min": "4", "max": "8"}),
        ({"type": "integer", "minimum": -9, "exclusiveMinimum": -8, "multipleOf": 4}, {"step": "4", "min": "-4"}),
        ({"type": "integer", "multipleOf": 1.5}, {"step": "1"}),
        ({"type": "number", "exclusiveMinimum": 0.25, "minimum": 0.5}, {"step": "any", "min": "0.5"}),
        ({"type": "number", "multipleOf": 0.1}, {"step": "any"}),
        ({"type": "number", "multipleOf": 2.0, "maximum": 7}, {"step": "2", "max": "6"}),
        ({"type": "number", "minimum": -(10**400), "maximum": 1e300}, {"step": "any"}),
        ({"type": "string", "minLength": 2.0, "maxLength": 9.0}, {"minlength": "2", "maxlength": "18"}),
        ({"type": "string", "format": "email"}, {"inputmode": "email"}),
    ],
)
def test_browser_limits_refuse_nothing_that_the_rule_accepts(part: dict[str, Any], limits: dict[str, str]) -> None:
    assert dict(part_of(part).attributes) == limits


@pytest.mark.parametrize(
    ("part", "required", "must", "mark"),
    [
        ({"type": "string"}, False, False, ""),
        ({"type": "string"}, True, False, "may be empty"),
        ({"type": "string", "pattern": "x"}, True, False, ""),
        ({"type": "string", "minLength": 1}, True, True, "required"),
        ({"type": "string", "format": "date"}, True, True, "required"),
        ({"type": "integer"}, True, True, "required"),
        ({"type": "boolean"}, True, True, "required"),
        ({"enum": ["a"]}, True, True, "required"),
        ({"const": "a"}, True, False, ""),
        ({"type": "array", "items": {"type": "string"}}, True, False, ""),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, True, True, "required"),
    ],
)
def test_a_field_is_required_only_if_an_empty_answer_is_invalid(
    part: dict[str, Any], required: bool, must: bool, mark: str
) -> None:
    field = part_of(part, required=required)
    assert (field.must, field.mark) == (must, mark)


def test_a_field_in_an_optional_group_is_not_required() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (field,) = part_of(inner).fields
    assert (field.must, field.mark) == (False, "required within this group")
    assert part_of(inner, required=True).fields[0].must


def test_notes_describe_the_accepted_values() -> None:
    assert part_of({"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^x"}).notes == (
        "2 to 5 characters",
        "must match ^x",
    )
    assert part_of({"type": "string", "minLength": 1}).notes == ("at least 1 character",)
    assert part_of({"type": "string", "minLength": 4, "maxLength": 4}).notes == ("exactly 4 characters",)
    assert part_of({"type": "number", "exclusiveMinimum": 0, "maximum": 1}).notes == ("more than 0", "at most 1")
    lines = part_of({"type": "array", "items": {"type": "string", "format": "uri"}, "maxItems": 1, "uniqueItems": True})
    assert lines.notes == ("one per line", "at most 1 entry", "no duplicates", "each: format: uri")


# Reading values

RELEASE = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "minLength": 1, "maxLength": 20, "title": "Version"},
        "count": {"type": "integer", "minimum": 1},
        "ratio": {"type": "number"},
        "sure": {"type": "boolean"},
        "loud": {"type": "boolean", "default": False},
        "level": {"enum": ["low", "high"]},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        "kind": {"const": "release"},
        "where": {
            "type": "object",
            "properties": {"host": {"type": "string"}, "port": {"type": "integer"}, "via": {"const": "ssh"}},
            "required": ["host", "via"],
        },
    },
    "required": ["version", "sure", "kind"],
}
LEAST = {"v.version": ["1.0"], "v.sure": ["true"]}
LEAST_VALUE = {"version": "1.0", "sure": True, "kind": "release"}


def test_empty_optional_fields_are_left_out() -> None:
    empty = {"v.count": [""], "v.ratio": [""], "v.level": [""], "v.tags": [""], "v.names": [""], "v.where.host": [""]}
    assert value_from(form(RELEASE), {**LEAST, **empty, "message": ["why"]}) == LEAST_VALUE


def test_a_complete_form_is_read_into_the_value() -> None:
    data = {
        **LEAST,
        "v.count": [" 3 "],
        "v.ratio": ["2.50"],
        "v.loud": ["", "true"],
        "v.level": ['"high"'],
        "v.tags": ["", '"c"', '"a"'],
        "v.names": ["x\r\n\r\nyz\r\n"],
        "v.where.host": ["h"],
        "v.where.port": ["22"],
    }
    value = {
        **LEAST_VALUE,
        "count": 3,
        "ratio": 2.5,
        "loud": True,
        "level": "high",
        "tags": ["c", "a"],
        "names": ["x", "yz"],
        "where": {"host": "h", "port": 22, "via": "ssh"},
    }
    assert value_from(form(RELEASE), data) == value


def test_an_unchecked_box_means_false_only_if_it_was_shown() -> None:
    assert value_from(form(RELEASE), {**LEAST, "v.loud": [""]}) == {**LEAST_VALUE, "loud": False}
    assert value_from(form(RELEASE), LEAST) == LEAST_VALUE


def test_a_group_is_included_if_its_box_is_checked_or_any_field_is_filled_in() -> None:
    answer_form = form(RELEASE)
    assert value_from(answer_form, {**LEAST, "v.where": ["on"], "v.where.host": [""]})["where"] == {"host": "", "via": "ssh"}
    assert problems(answer_form, {**LEAST, "v.where.port": ["1"]}) == {"v.where.host": "required"}


def test_every_invalid_field_is_reported_at_once() -> None:
    messages = problems(
        form(RELEASE),
        {
            "v.version": ["x" * 21],
            "v.sure": ["maybe"],
            "v.count": ["0"],
            "v.ratio": ["1,5"],
            "v.level": ["low"],
            "v.tags": ["z"],
            "v.names": ["long"],
        },
    )
    assert messages == {
        "v.version": "'xxxxxxxxxxxxxxxxxxxxx' is too long",
        "v.sure": "must be true or false",
        "v.count": "0 is less than the minimum of 1",
        "v.ratio": "'1,5' is not a number",
        "v.level": "choose one of the options",
        "v.tags": "choose one of the options",
        "v.names": "at [0]: 'long' is too long",
    }
    with pytest.raises(InvalidAnswer, match="Version: required; sure: required"):
        value_from(form(RELEASE), {"v.version": [""]})


def test_a_reason_does_not_repeat_a_long_answer() -> None:
    assert len(problems(form({"type": "string", "maxLength": 5}), {"v": ["x" * 100_000]})["v"]) < 400


@pytest.mark.parametrize("text", ["nan", "Infinity", "1e999", "1_000", "٣", "0x10", "", "--1", "1e", ".", "9" * 5000])
def test_text_that_is_not_a_json_number_is_refused(text: str) -> None:
    assert problems(form({"type": "number"}), {"v": [text]})
    assert problems(form({"type": "integer"}), {"v": [text]})


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000), ("+4", 4), ("5.0", 5), ("-0", 0), ("9007199254740991", 2**53 - 1)])
def test_a_whole_number_may_be_written_in_several_ways(text: str, value: int) -> None:
    number = value_from(form({"type": "integer"}), {"v": [text]})
    assert (number, type(number)) == (value, int)


@pytest.mark.parametrize("text", ["1.5", "9007199254740992", "1e300"])
def test_a_whole_number_must_be_whole_and_exact(text: str) -> None:
    assert problems(form({"type": "integer"}), {"v": [text]})


def test_a_choice_that_is_not_offered_is_refused() -> None:
    answer_form = form({"enum": ["a", 1]})
    posted: list[dict[str, list[str]]] = [{}, {"v": []}, {"v": [""]}, {"v": ["a"]}, {"v": ["1.0"]}]
    for data in posted:
        assert problems(answer_form, data) == {"v": "choose one of the options"}


def test_keys_with_dots_and_special_characters_do_not_collide() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a.b": {"type": "string"},
            "a%2Eb": {"type": "string"},
            "ü \n<": {"type": "string"},
            "": {"type": "string"},
            "a": {"type": "object", "properties": {"b": {"type": "string"}}},
        },
    }
    answer_form = form(schema)
    value = {"a.b": "1", "a%2Eb": "2", "ü \n<": "3", "": "4", "a": {"b": "5"}}
    posted = as_posted(answer_form, value)
    assert value_from(answer_form, posted) == value
    assert all(re.fullmatch(r"v[A-Za-z0-9%._~-]*", name) for name in posted)


# JSON


def test_raw_json_is_read_unchanged() -> None:
    assert value_from(form(True), {"v": ['{"a": [1, 2.5, null]}']}) == {"a": [1, 2.5, None]}


def test_an_error_in_json_has_its_line_and_column() -> None:
    with pytest.raises(InvalidAnswer) as caught:
        value_from(form(True), {"v": ['{\r\n  "a": x}']})
    assert caught.value.message == "not JSON: Expecting value (line 2, column 8)"
    assert (caught.value.fields["field"], caught.value.fields["line"], caught.value.fields["column"]) == ("v", 2, 8)
    assert "treat it as text" in caught.value.hints[0]


@pytest.mark.parametrize("text", ["", "  ", "NaN", "-Infinity", "1e999", '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5000])
def test_ambiguous_json_is_refused(text: str) -> None:
    assert problems(form(True), {"v": [text]})


def test_text_is_accepted_unchanged_only_if_any_answer_is_valid() -> None:
    typed = {"v": ["not {json}\r\nat all"], "v.as_text": ["on"]}
    for answer_form in (form_of(Rule()), form(True), form({"title": "Why?"})):
        assert value_from(answer_form, typed) == "not {json}\nat all"
    assert value_from(form_of(Rule()), {"v": [""], "v.as_text": ["on"]}) == ""
    assert problems(form({"type": ["object", "null"]}), typed)["v"].startswith("not JSON")


# Rendering


def test_defaults_are_filled_in_if_the_form_can_express_them() -> None:
    part = {"type": "object", "properties": {"x": {"type": "string", "default": "inner"}}}
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "text"},
            "b": {"type": "integer", "default": "not a number"},
            "c": {"type": "boolean", "default": True},
            "d": {"enum": ["x", "y"], "default": "y"},
            "left": part,
            "kept": part,
            "whole": {**part, "default": {"x": "own"}},
        },
        "required": ["kept"],
    }
    posted = {
        "v.a": ["text"],
        "v.c": ["", "true"],
        "v.d": ['"y"'],
        "v.kept.x": ["inner"],
        "v.whole": ["on"],
        "v.whole.x": ["own"],
    }
    assert initial(form(schema)) == posted
    assert initial(form({"enum": [1, 2], "default": 2})) == {"v": ["2"]}
    assert initial(form({"enum": [1, 2], "default": 3})) == {}
    assert initial(form({"oneOf": [{}], "default": {"a": 1}})) == {"v": ['{\n  "a": 1\n}']}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [1]}, True),
        ({"type": "string"}, "a\rb"),
        ({"type": "string"}, "\0"),
        ({"type": "string"}, 5),
        ({"type": "string", "format": "date"}, ""),
        ({"type": "integer"}, True),
        ({"type": "integer"}, 1e300),
        ({"type": "number"}, 10**400),
        ({"type": "boolean", "title": "t"}, 1),
        ({"type": "array", "items": {"type": "string"}}, ["a\nb"]),
        ({"type": "array", "items": {"type": "string"}}, [""]),
        ({"type": "array", "items": {"enum": ["a"]}}, ["b"]),
        ({"type": "array", "items": {"type": "string"}}, "a"),
        (RELEASE, {}),
        (RELEASE, {**LEAST_VALUE, "other": 1}),
        (RELEASE, {**LEAST_VALUE, "tags": []}),
        (RELEASE, {**LEAST_VALUE, "kind": "other"}),
        (RELEASE, [1]),
    ],
)
def test_a_value_that_the_form_cannot_express_is_refused(schema: Any, value: Any) -> None:
    with pytest.raises(InvalidAnswer, match="the form cannot express the value"):
        as_posted(form(schema), value)


def test_every_answer_can_be_expressed_as_json() -> None:
    rule = rule_of({"human": {"type": "array", "items": {"type": "string"}}}, "human", None)
    value = ["", "a\r\nb", "\0"]
    check_answer(rule, "r", "human", value)
    assert value_from(raw_form(rule), as_posted(raw_form(rule), value)) == value


def test_equal_numbers_are_one_choice() -> None:
    assert as_posted(form({"enum": [1, 2]}), 1.0) == {"v": ["1"]}


@pytest.mark.parametrize(
    ("schema", "text", "control"),
    [
        ({"type": "integer"}, "5", "number"),
        ({"type": "integer"}, "", "number"),
        ({"type": "integer"}, "0.5", "text"),
        ({"type": "integer"}, "five", "text"),
        ({"type": "integer", "multipleOf": 2}, "3", "text"),
        ({"type": "number"}, "1e-7", "number"),
        ({"type": "number"}, "1e999", "text"),
        ({"type": "number"}, "+1", "text"),
        ({"type": "string", "format": "date"}, "2026-02-28", "date"),
        ({"type": "string", "format": "date"}, "2026-02-30", "text"),
        ({"type": "string", "format": "date"}, "20260228", "text"),
        ({"type": "string", "format": "uri"}, "https://x", "url"),
        ({"type": "string", "format": "uri"}, " x", "text"),
        ({"type": "string", "maxLength": 9}, "a\nb", "textarea"),
    ],
)
def test_input_that_a_special_control_would_drop_is_shown_in_a_text_field(schema: Any, text: str, control: str) -> None:
    assert part_of(schema).control(text) == control


def test_input_is_shown_again_as_it_was_typed() -> None:
    assert '<input type="text" id="p1-v" name="v" value="five" autocomplete="off" required aria-describedby="p1-v:hint">' in page(
        form({"type": "integer", "minimum": 1}), {"v": ["five"]}
    )
    # A browser drops a line break right after the tag.
    assert ">\n\nx</textarea>" in page(form_of(Rule()), {"v": ["\nx"], "v.as_text": ["on"]})
    assert ">\n\nx</textarea>" in page(form({"type": "string"}), {"v": ["\nx"]})


def test_an_error_is_shown_beside_its_field_and_linked_to_it() -> None:
    markup = page(form(RELEASE), {"v.version": ["<x>"]}, {"v.version": "no <b>", "v.sure": "say it"})
    assert '<p class="form-error" id="p1-v.version:error">no &lt;b&gt;</p>' in markup
    assert re.search(
        r'<input [^>]*id="p1-v.version"[^>]* value="&lt;x&gt;"[^>]* aria-describedby="p1-v.version:hint p1-v.version:error"', markup
    )
    assert re.search(r'<input [^>]*id="p1-v.version"[^>]* aria-invalid="true"', markup)
    assert '<fieldset class="form-boolean" aria-describedby="p1-v.sure:error">' in markup


def test_a_choice_can_be_a_radio_button_or_a_submit_button() -> None:
    answer_form = form({"enum": ["yes", '"><script>'], "title": "Go?", "description": "<i>"})
    macros: Any = PAGES.get_template("form_fields.html").module
    radios, buttons = page(answer_form, {"v": ['"yes"']}), str(macros.choice_buttons(answer_form, "p1"))
    assert '<input type="radio" id="p1-v:0" name="v" value="&#34;yes&#34;" checked required>' in radios
    assert "<legend>Go? " in radios
    assert '<button type="submit" name="v" value="&#34;yes&#34;">yes</button>' in buttons
    for markup in (radios, buttons):
        assert "<script>" not in markup
        assert "<i>" not in markup
        assert 'aria-describedby="p1-v:hint"' in markup


def test_the_checkbox_for_text_is_shown_if_any_answer_is_valid() -> None:
    assert 'name="v.as_text" value="on">' in page(form_of(Rule()))
    assert 'name="v.as_text" value="on" checked>' in page(form_of(Rule()), {"v": ["x"], "v.as_text": ["on"]})
    assert "v.as_text" not in page(form({"oneOf": [{}]}))
