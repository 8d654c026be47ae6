"""A form and a browser between a value and its reading change nothing, and a browser refuses nothing that the rule takes."""

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
LINES = st.text(CHARACTERS.filter(lambda each: each != "\n"), min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

# Rules that fields can tell, each with a value that it takes and that has a place in the fields


@st.composite
def a_text(draw: st.DrawFn, required: bool) -> tuple[dict[str, Any], Any]:
    form = draw(st.sampled_from([None, None, "date", "uri", "email"]))
    known = {
        None: st.text(CHARACTERS, min_size=0 if required else 1, max_size=12),
        "date": st.dates().map(str),
        "uri": st.just("https://x/?a=1&b"),
        "email": st.just("ü@ü.example"),
    }
    value = draw(known[form])
    schema: dict[str, Any] = {"type": "string"} if form is None else {"type": "string", "format": form}
    if draw(st.booleans()):
        schema["maxLength"] = len(value) + draw(st.sampled_from([0, 1, 300]))
    if draw(st.booleans()):
        schema["minLength"] = draw(st.integers(0, len(value)))
    if draw(st.booleans()):
        schema["pattern"] = "^[^\r]*$"
    return schema, value


@st.composite
def a_number(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    whole = draw(st.booleans())
    step = draw(st.sampled_from([None, 1, 2, 7, 3.0, 0.5]))
    if whole or step is not None:
        value: Any = draw(st.integers(-(10**9), 10**9)) * (2 if step is None else max(1, int(step)))
    else:
        value = draw(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-LARGEST, LARGEST))
    schema: dict[str, Any] = {"type": "integer" if whole else "number"}
    if step is not None:
        schema["multipleOf"] = step
    gaps = st.sampled_from([0, 0.25, 0.5, 1, 3, 10**20])
    for key, sign, open_end in [("minimum", -1, 0), ("maximum", 1, 0), ("exclusiveMinimum", -1, 1), ("exclusiveMaximum", 1, 1)]:
        if draw(st.booleans()) and abs(value) < 10**12:
            gap = draw(gaps)
            schema[key] = value + sign * (gap or open_end)
    return schema, value


@st.composite
def a_list(draw: st.DrawFn, required: bool) -> tuple[dict[str, Any], Any]:
    least = 0 if required else 1
    if draw(st.booleans()):
        options = draw(st.lists(VALUES, min_size=1, max_size=4, unique_by=json.dumps))
        value = [each for each in options if draw(st.booleans())] or options[: max(least, draw(st.integers(0, 1)))]
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
def a_choice(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    options = draw(st.lists(VALUES, min_size=1, max_size=4))
    if draw(st.booleans()):
        return {"enum": options}, draw(st.sampled_from(options))
    return {"const": options[0]}, options[0]


@st.composite
def a_truth(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    return {"type": "boolean", "default": draw(st.sampled_from([True, False, "x"]))}, draw(st.booleans())


@st.composite
def a_group(draw: st.DrawFn, depth: int) -> tuple[dict[str, Any], Any]:
    properties, required, value = {}, [], {}
    keys = draw(st.lists(TEXTS | st.sampled_from(["a", "b", "a.b", "a:hint", "as_text"]), min_size=1, max_size=4, unique=True))
    for key in keys:
        needed = draw(st.booleans())
        schema, found = draw(a_part(needed, depth + 1))
        properties[key] = schema
        required += [key] if needed else []
        # A box that stands for false has no third state to be left out in.
        if needed or isinstance(schema.get("default"), bool) or draw(st.booleans()):
            value[key] = found
    return {"type": "object", "properties": properties, "required": required}, value


def a_part(required: bool, depth: int) -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    leaves = a_text(required) | a_number() | a_list(required) | a_choice() | a_truth()
    made = leaves | a_group(depth) if depth < 3 else leaves
    return st.builds(remarked, made, st.none() | TEXTS, st.none() | TEXTS)


def remarked(made: tuple[dict[str, Any], Any], title: str | None, description: str | None) -> tuple[dict[str, Any], Any]:
    schema = made[0]
    said = {"title": title, "description": description}
    return {**schema, **{key: text for key, text in said.items() if text is not None}}, made[1]


ROOTS = a_part(required=True, depth=0) | a_group(0) | a_group(0)

# One of each field, as they are most easily lost
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


class Browser(HTMLParser):
    """Shows a form, holds its controls to their limits and posts it, as browsers do; refuses markup that none of ours is."""

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
        assert all(self.insists.values()), "a group of radio buttons lacks the answer that it needs"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        assert all(map(self.ATTRIBUTES.fullmatch, found))
        assert tag in ("div", "p", "span", "code", "fieldset", "legend", "label", "input", "textarea", "select", "option")
        self.ids += [found["id"]] if "id" in found else []
        self.refers += found.get("aria-describedby", "").split()
        if tag == "label":
            self.refers.append(found["for"])
            self.labelled.add(found["for"])
        if tag in ("textarea", "select") or (tag == "input" and found["type"] != "hidden"):
            self.controls.append(found["id"])
        if tag == "input":
            self._input(found)
        else:
            self._open.append((tag, found))
            self._text = [] if tag in ("textarea", "select") else self._text
        if tag == "option" and ("selected" in found or not self._text):
            self._text = [found["value"]]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "textarea":
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        opened, found = self._open.pop()
        assert opened == tag
        if tag in ("textarea", "select"):
            text = "".join(self._text)
            self._hold(found, text.removeprefix("\n") if tag == "textarea" else text)
            self._post(found["name"], (text.removeprefix("\n") if tag == "textarea" else text).replace("\n", "\r\n"))

    def _input(self, found: dict[str, str]) -> None:
        if found["type"] in ("radio", "checkbox"):
            if "required" in found:
                assert found["type"] == "radio"
                self.insists[found["name"]] = self.insists.get(found["name"], False) or "checked" in found
            if "checked" in found:
                self._post(found["name"], found["value"])
            return
        text = re.sub("[\r\n]", "", found["value"])
        if found["type"] == "date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            text = ""
        if found["type"] == "number" and not re.fullmatch(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d+)?", text):
            text = ""
        self._hold(found, text.strip() if found["type"] == "url" else text)
        self._post(found["name"], text.strip() if found["type"] == "url" else text)

    def _post(self, name: str, text: str) -> None:
        self.posted.setdefault(name, []).append(text)

    @staticmethod
    def _hold(found: dict[str, str], text: str) -> None:
        """What a browser checks before it posts."""
        assert text or "required" not in found
        if not text:
            return
        units = len(text.encode("utf-16-le")) // 2
        assert int(found.get("minlength", 0)) <= units <= int(found.get("maxlength", units))
        if found.get("type") == "number":
            number = float(text)
            assert float(found.get("min", number)) <= number <= float(found.get("max", number))
            if found["step"] != "any":
                assert (int(text) - int(found.get("min", text))) % int(found["step"]) == 0


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0 and not true."""
    try:
        check_answer(Rule({"const": one}), "", "", other)
    except InvalidAnswer:
        return False
    return True


@example(LEFT_OUT)
@example(GIVEN)
@example(NEEDED)
@given(ROOTS)
def test_a_value_survives_the_form_and_the_browser(made: tuple[dict[str, Any], Any]) -> None:
    schema, value = made
    rule = rule_of({"human": schema}, "human", None)
    check_answer(rule, "r", "human", value)
    form = form_of(rule)
    assert form.kind == ("choices" if {"enum", "const"} & schema.keys() else "fields")
    posted = as_posted(form, value)
    assert same(value_from(form, posted), value)
    shown = Browser(str(MACROS.form_fields(form, "p", posted, {})))
    assert same(value_from(form, shown.posted), value)


def refusal(rule: Rule, form: AnswerForm, posted: dict[str, list[str]]) -> dict[str, str]:
    """The reasons by field; fields of themselves let nothing pass that the rule refuses."""
    try:
        value = value_from(form, posted)
    except InvalidAnswer as err:
        found: dict[str, str] = err.fields["problems"]
        return {err.fields["field"]: "", **found}
    check_answer(rule, "r", "human", value)
    return {}


@given(ROOTS, st.data())
def test_whatever_is_posted_is_an_answer_or_refused_by_name(made: tuple[dict[str, Any], Any], data: st.DataObject) -> None:
    schema, value = made
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
def test_what_has_no_place_in_a_form_is_refused_and_nothing_is_bent(made: tuple[dict[str, Any], Any], value: Any) -> None:
    form = form_of(rule_of({"human": made[0]}, "human", None))
    try:
        posted = as_posted(form, value)
        read = value_from(form, posted)
    except InvalidAnswer:
        return
    assert same(read, value)


@given(VALUES)
def test_json_takes_every_value(value: Any) -> None:
    form = raw_form(Rule())
    assert same(value_from(form, as_posted(form, value)), value)
    shown = Browser(str(MACROS.form_fields(form, "p", as_posted(form, value), {})))
    assert same(value_from(form, shown.posted), value)


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


@given(SCHEMAS | st.builds(lambda made, more: {**made[0], **more}, ROOTS, st.dictionaries(KEYWORDS, SCHEMAS)))
def test_any_rule_at_all_gets_a_form_that_can_be_shown(schema: Any) -> None:
    form = form_of(Rule(schema, operators=True))
    for each in (form, raw_form(Rule(schema))):
        page = str(MACROS.form_fields(each, "p", initial(each), {}))
        assert 'name="v' in page or (each.kind == "fields" and "<code>" in page)  # nothing but what is fixed
