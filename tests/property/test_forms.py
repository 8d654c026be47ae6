"""A value survives a form and a browser unchanged, and the browser refuses no value that the rule accepts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from hypothesis import example, given
from hypothesis import strategies as st

import clia.forge.rendering.forms
from clia.errors import InvalidAnswer
from clia.forge.rendering.form_values import as_posted, initial, value_from
from clia.forge.rendering.forms import form_of, raw_form
from clia.sessions.answers import Rule, check_answer, rule_of

if TYPE_CHECKING:
    from clia.forge.rendering.forms import AnswerForm

TEMPLATES = Path(clia.forge.rendering.forms.__file__).parent.parent / "templates"
PAGES = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined)
MACROS: Any = PAGES.get_template("form_fields.html").module

LARGEST = 2**53 - 1
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\0") | st.sampled_from("<>&\"'\n 😀")
TEXTS = st.text(CHARACTERS, max_size=12)
LINES = st.text(CHARACTERS.filter(lambda character: character != "\n"), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

# Rules that fields can express, each with a valid value that the fields can hold


@st.composite
def text_case(draw: st.DrawFn, required: bool) -> tuple[dict[str, Any], Any]:
    form = draw(st.sampled_from([None, None, "date", "uri", "email"]))
    strategies = {
        None: st.text(CHARACTERS, min_size=0 if required else 1, max_size=12),
        "date": st.dates().map(str),
        "uri": st.just("https://x/?a=1&b"),
        "email": st.just("ü@ü.example"),
    }
    value = draw(strategies[form])
    schema: dict[str, Any] = {"type": "string"} if form is None else {"type": "string", "format": form}
    if draw(st.booleans()):
        schema["maxLength"] = len(value) + draw(st.sampled_from([0, 1, 300]))
    if draw(st.booleans()):
        schema["minLength"] = draw(st.integers(0, len(value)))
    if draw(st.booleans()):
        schema["pattern"] = "^[^\r]*$"
    return schema, value


@st.composite
def number_case(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    integral = draw(st.booleans())
    step = draw(st.sampled_from([None, 1, 2, 7, 3.0, 0.5]))
    if integral or step is not None:
        value: Any = draw(st.integers(-(10**9), 10**9)) * (2 if step is None else max(1, int(step)))
    else:
        value = draw(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-LARGEST, LARGEST))
    schema: dict[str, Any] = {"type": "integer" if integral else "number"}
    if step is not None:
        schema["multipleOf"] = step
    gaps = st.sampled_from([0, 0.25, 0.5, 1, 3, 10**20])
    for key, sign, open_end in [("minimum", -1, 0), ("maximum", 1, 0), ("exclusiveMinimum", -1, 1), ("exclusiveMaximum", 1, 1)]:
        if draw(st.booleans()) and abs(value) < 10**12:
            gap = draw(gaps)
            schema[key] = value + sign * (gap or open_end)
    return schema, value


@st.composite
def list_case(draw: st.DrawFn, required: bool) -> tuple[dict[str, Any], Any]:
    least = 0 if required else 1
    if draw(st.booleans()):
        options = draw(st.lists(VALUES, min_size=1, max_size=4, unique_by=json.dumps))
        value = [option for option in options if draw(st.booleans())] or options[: max(least, draw(st.integers(0, 1)))]
        items: dict[str, Any] = {"enum": options}
    else:
        value, items = draw(st.lists(LINES, min_size=least, max_size=4)), {"type": "string", "minLength": 1}
    schema: dict[str, Any] = {"type": "array", "items": items}
    if draw(st.booleans()):
        schema["minItems"] = draw(st.integers(0, len(value)))
    if draw(st.booleans()):
        schema["maxItems"] = len(value) + draw(st.integers(0, 2))
    return schema, value


@st.composite
def choice_case(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    options = draw(st.lists(VALUES, min_size=1, max_size=4))
    if draw(st.booleans()):
        return {"enum": options}, draw(st.sampled_from(options))
    return {"const": options[0]}, options[0]


@st.composite
def boolean_case(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    return {"type": "boolean", "default": draw(st.sampled_from([True, False, "x"]))}, draw(st.booleans())


@st.composite
def group_case(draw: st.DrawFn, depth: int) -> tuple[dict[str, Any], Any]:
    properties, required, value = {}, [], {}
    keys = draw(st.lists(TEXTS | st.sampled_from(["a", "b", "a.b", "a:hint", "as_text"]), min_size=1, max_size=4, unique=True))
    for key in keys:
        needed = draw(st.booleans())
        schema, part_value = draw(part_case(needed, depth + 1))
        properties[key] = schema
        required += [key] if needed else []
        # A checkbox with a default is either true or false and cannot be omitted.
        if needed or isinstance(schema.get("default"), bool) or draw(st.booleans()):
            value[key] = part_value
    return {"type": "object", "properties": properties, "required": required}, value


def part_case(required: bool, depth: int) -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    leaves = text_case(required) | number_case() | list_case(required) | choice_case() | boolean_case()
    parts = leaves | group_case(depth) if depth < 3 else leaves
    return st.builds(with_remarks, parts, st.none() | TEXTS, st.none() | TEXTS)


def with_remarks(part: tuple[dict[str, Any], Any], title: str | None, description: str | None) -> tuple[dict[str, Any], Any]:
    schema = part[0]
    remarks = {"title": title, "description": description}
    return {**schema, **{key: text for key, text in remarks.items() if text is not None}}, part[1]


ROOTS = part_case(required=True, depth=0) | group_case(0) | group_case(0)

# One of each kind of field, with values that are easily changed
OPTIONAL = {
    "select": {"enum": ["", "x", 1]},
    "truth": {"type": "boolean"},
    "box": {"type": "boolean", "default": True},
    "boxes": {"type": "array", "items": {"enum": ["", "x", 1]}},
    "lines": {"type": "array", "items": {"type": "string"}},
    "long": {"type": "string"},
    "short": {"type": "string", "maxLength": 9},
    "const": {"const": None},
    "group": {"type": "object", "properties": {"text": {"type": "string"}, "truth": {"type": "boolean"}}, "required": []},
}
LEFT_OUT = ({"type": "object", "properties": OPTIONAL}, {"box": False})
GIVEN = (
    {"type": "object", "properties": OPTIONAL},
    {
        "select": "",
        "truth": False,
        "box": True,
        "boxes": ["", 1],
        "lines": [" ", "x"],
        "long": "\n\n x\n",
        "short": "a\nb",
        "const": None,
        "group": {},
    },
)
NEEDED = (
    {"type": "object", "properties": OPTIONAL, "required": list(OPTIONAL)},
    {**GIVEN[1], "boxes": [], "lines": [], "long": "", "group": {"truth": True}},
)

# A browser


class FormBrowser(HTMLParser):
    """Parses a form, checks the limits of its controls and posts it, as browsers do; refuses markup that clia does not write."""

    ATTRIBUTES = re.compile(
        r"aria-(describedby|invalid)|auto(capitalize|complete)|(min|max)(length)?|inputmode|spellcheck|step|rows"
        r"|checked|selected|required|class|for|id|name|type|value"
    )

    def __init__(self, page: str) -> None:
        super().__init__()
        self.posted: dict[str, list[str]] = {}
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.labelled: set[str] = set()
        self.controls: list[str] = []
        self.insists: dict[str, bool] = {}
        self._open: list[tuple[str, dict[str, str]]] = []
        self._text: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open
        assert len(set(self.ids)) == len(self.ids)
        assert set(self.refers) <= set(self.ids)
        assert self.labelled >= set(self.controls)
        assert all(self.insists.values()), "a required group of radio buttons has no selection"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        assert all(map(self.ATTRIBUTES.fullmatch, attributes))
        assert tag in ("div", "p", "span", "code", "fieldset", "legend", "label", "input", "textarea", "select", "option")
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.refers += attributes.get("aria-describedby", "").split()
        if tag == "label":
            self.refers.append(attributes["for"])
            self.labelled.add(attributes["for"])
        if tag in ("textarea", "select") or (tag == "input" and attributes["type"] != "hidden"):
            self.controls.append(attributes["id"])
        if tag == "input":
            self._input(attributes)
        else:
            self._open.append((tag, attributes))
            self._text = [] if tag in ("textarea", "select") else self._text
        if tag == "option" and ("selected" in attributes or not self._text):
            self._text = [attributes["value"]]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "textarea":
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        opened, attributes = self._open.pop()
        assert opened == tag
        if tag in ("textarea", "select"):
            text = "".join(self._text)
            self._hold(attributes, text.removeprefix("\n") if tag == "textarea" else text)
            self._post(attributes["name"], (text.removeprefix("\n") if tag == "textarea" else text).replace("\n", "\r\n"))

    def _input(self, attributes: dict[str, str]) -> None:
        if attributes["type"] in ("radio", "checkbox"):
            if "required" in attributes:
                assert attributes["type"] == "radio"
                self.insists[attributes["name"]] = self.insists.get(attributes["name"], False) or "checked" in attributes
            if "checked" in attributes:
                self._post(attributes["name"], attributes["value"])
            return
        text = re.sub("[\r\n]", "", attributes["value"])
        if attributes["type"] == "date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            text = ""
        if attributes["type"] == "number" and not re.fullmatch(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d+)?", text):
            text = ""
        self._hold(attributes, text.strip() if attributes["type"] == "url" else text)
        self._post(attributes["name"], text.strip() if attributes["type"] == "url" else text)

    def _post(self, name: str, text: str) -> None:
        self.posted.setdefault(name, []).append(text)

    @staticmethod
    def _hold(attributes: dict[str, str], text: str) -> None:
        """Check a value as a browser does before it posts."""
        assert text or "required" not in attributes
        if not text:
            return
        units = len(text.encode("utf-16-le")) // 2
        assert int(attributes.get("minlength", 0)) <= units <= int(attributes.get("maxlength", units))
        if attributes.get("type") == "number":
            number = float(text)
            assert float(attributes.get("min", number)) <= number <= float(attributes.get("max", number))
            if attributes["step"] != "any":
                assert (int(text) - int(attributes.get("min", text))) % int(attributes["step"]) == 0


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0 but not true."""
    try:
        check_answer(Rule({"const": left}), "", "", right)
    except InvalidAnswer:
        return False
    return True


@example(LEFT_OUT)
@example(GIVEN)
@example(NEEDED)
@given(ROOTS)
def test_a_value_survives_the_form_and_the_browser(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    rule = rule_of({"human": schema}, "human", None)
    check_answer(rule, "r", "human", value)
    form = form_of(rule)
    assert form.kind == ("choices" if {"enum", "const"} & schema.keys() else "fields")
    posted = as_posted(form, value)
    assert same(value_from(form, posted), value)
    browser = FormBrowser(str(MACROS.form_fields(form, "p", posted, {})))
    assert same(value_from(form, browser.posted), value)


def refusal(rule: Rule, form: AnswerForm, posted: dict[str, list[str]]) -> dict[str, str]:
    """The reasons by field. A form must not accept a value that the rule refuses."""
    try:
        value = value_from(form, posted)
    except InvalidAnswer as err:
        problems: dict[str, str] = err.fields["problems"]
        return {err.fields["field"]: "", **problems}
    check_answer(rule, "r", "human", value)
    return {}


@given(ROOTS, st.data())
def test_any_post_is_an_answer_or_refused_with_the_field_name(case: tuple[dict[str, Any], Any], data: st.DataObject) -> None:
    schema, value = case
    rule = rule_of({"human": schema}, "human", None)
    form = form_of(rule)
    posted = as_posted(form, value)
    bad = TEXTS | st.sampled_from(["", "on", "true", "null", "1", "0.5", "nan", "1e999", "\r\n"])
    for name in data.draw(st.lists(st.sampled_from(sorted({*posted, "v", "v.a"})), max_size=3)):
        posted[name] = data.draw(st.lists(bad, max_size=2))
    problems = refusal(rule, form, posted)
    page = str(MACROS.form_fields(form, "p", posted, problems))
    for name in problems:
        assert f'id="p-{name}:error"' in page


@given(ROOTS, VALUES)
def test_a_value_that_a_form_cannot_hold_is_refused_and_never_changed(case: tuple[dict[str, Any], Any], value: Any) -> None:
    form = form_of(rule_of({"human": case[0]}, "human", None))
    try:
        posted = as_posted(form, value)
        decoded = value_from(form, posted)
    except InvalidAnswer:
        return
    assert same(decoded, value)


@given(VALUES)
def test_the_json_field_accepts_every_value(value: Any) -> None:
    form = raw_form(Rule())
    assert same(value_from(form, as_posted(form, value)), value)
    browser = FormBrowser(str(MACROS.form_fields(form, "p", as_posted(form, value), {})))
    assert same(value_from(form, browser.posted), value)


KEYWORDS = st.sampled_from(
    [
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "uniqueItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "multipleOf",
        "oneOf",
        "$ref",
        "title",
        "default",
    ]
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
SCHEMAS = st.recursive(
    VALUES | TYPES | st.integers(0, 5),
    lambda inner: (
        st.dictionaries(KEYWORDS, inner | TYPES, max_size=5)
        | st.dictionaries(TEXTS, inner, max_size=2)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=12,
)


@given(SCHEMAS | st.builds(lambda case, more: {**case[0], **more}, ROOTS, st.dictionaries(KEYWORDS, SCHEMAS)))
def test_every_rule_gets_a_form_that_can_be_rendered(schema: Any) -> None:
    form = form_of(Rule(schema, operators=True))
    for answer_form in (form, raw_form(Rule(schema))):
        page = str(MACROS.form_fields(answer_form, "p", initial(answer_form), {}))
        assert 'name="v' in page or (answer_form.kind == "fields" and "<code>" in page)  # only constants
