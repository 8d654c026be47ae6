"""Questions in the inbox with very large rules."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from clia.errors import InvalidAnswer
from clia.forge.rendering import forms
from clia.forge.rendering.forms import form_of
from clia.sessions.answers import is_large
from support.forge_server import QUESTION

if TYPE_CHECKING:
    from support.forge import OpenForge


LARGE: dict[str, dict[str, Any]] = {
    "choices": {"choices": [f"c{number}" for number in range(50_000)]},
    "enum": {"schema": {"enum": [f"c{number}" for number in range(20_000)]}},
    "enum of a type": {"schema": {"type": "string", "enum": [f"c{number}" for number in range(20_000)]}},
    "enum in a list": {"schema": {"type": "array", "items": {"enum": [f"c{number}" for number in range(20_000)]}}},
    "properties": {"schema": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(20_000)}}},
    "fewer properties": {"schema": {"type": "object", "properties": {f"p{number}": {} for number in range(4000)}}},
    "fewer choices": {"choices": list(range(1900))},
    "parts within parts": {"schema": {"type": "object", "properties": {f"p{n}": {"enum": [0, n]} for n in range(1000)}}},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_rule_that_is_too_large_gets_a_json_field_and_is_barely_processed(
    forge: OpenForge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An agent may ask such a question, and every view of the inbox would cost time."""
    browser, request = forge.browser("ada"), forge.space.ask("scout", {"question": "Which?", **LARGE[name]})
    forge.space.ask("smith", QUESTION)
    calls: Counter[str] = Counter()

    def count_calls(owner: Any, function: str) -> None:
        real = getattr(owner, function)

        def call(*args: Any, **more: Any) -> Any:
            calls[function] += 1
            return real(*args, **more)

        monkeypatch.setattr(owner, function, call)

    for function in ("check_answer", "FormField", "json_text"):
        count_calls(forms, function)
    count_calls(Draft202012Validator, "check_schema")
    assert form_of(forge.space.sessions.rule(request)).kind == "raw"
    item = f"{forge.base}/inbox/scout/{request.id}"
    for page in (browser.get(f"{forge.base}/inbox"), browser.get(item), browser.get(f"{item}?as=json")):
        assert page.status_code == 200
        assert "Which?" in page.text
        assert len(re.findall(r"<(?:option|input|button|textarea)\b", page.text)) < 50
    assert sum(calls.values()) < 50, calls
    large = "schema" in LARGE[name] and is_large(LARGE[name]["schema"])
    assert calls["check_schema"] <= (0 if large else 4), "at most once a page, to check whether the schema is valid"


def test_a_wrong_answer_to_many_choices_has_a_short_error(forge: OpenForge) -> None:
    request = forge.space.ask("scout", {"question": "Which?", "choices": list(range(50_000))})
    with pytest.raises(InvalidAnswer) as caught:
        forge.space.sessions.check_answer(request, "none of them")
    assert len(str(caught.value.hints)) < 1000
