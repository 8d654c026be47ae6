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
from support.forge import OpenForge, open_forge
from support.forge_server import QUESTION
from support.session_flows import APPROVAL
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response


AGENTS = "/api/v1/spaces/repo/agents"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as made:
        for name in ("scout", "smith"):
            made.space.spawn(name, BRIEFING)
        yield made


def bearer(opened: OpenForge, name: str = "ada", role: str = "admin", display: str = "") -> dict[str, str]:
    """What proves to be a user, who is made where there is none of that name."""
    if opened.forge.users.get(name) is None:
        opened.forge.users.add(name, role, display)
    return {"authorization": f"Bearer {opened.forge.users.make_token(name)[0]}"}


def post(opened: OpenForge, path: str, body: Any, **headers: str) -> Response:
    """Asks the API for a change; a header's name may be written with ``_``."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    answer: Response = opened.stranger().client.post(AGENTS + path, json=body, headers=named)
    return answer


def said(answer: Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(("verb", "body"), [("resume", {"value": "a plan"}), ("give-up", {"reason": "no model"})])
def test_who_answers_for_a_worker_is_recorded_as_the_tokens_user(opened: OpenForge, verb: str, body: dict[str, str]) -> None:
    opened.space.define("approval", APPROVAL)
    opened.space.start("scout", "approval", {"goal": "x"})
    who = bearer(opened, "will", display="Will Worker")
    forged = post(opened, f"/scout/{verb}", {**body, "by": "Ann"}, **who)
    assert (*said(forged), forged.json()["fields"]["by"]) == (403, "not-the-user", "Will Worker")
    assert opened.space.session("scout").given() == []
    assert post(opened, f"/scout/{verb}", body, **who).status_code == 200
    assert [each.by for each in opened.space.session("scout").given()] == ["Will Worker"]
    opened.space.start("smith", "approval", {"goal": "x"})
    assert post(opened, f"/smith/{verb}", {**body, "by": "Will Worker"}, **who).status_code == 200, "their own name is no forgery"


def test_a_decision_on_a_request_for_workers_is_a_conflict(opened: OpenForge) -> None:
    opened.space.define("approval", APPROVAL)
    opened.space.start("scout", "approval", {"goal": "x"})
    refused = post(opened, "/scout/decisions", {"value": "yes", "request_id": "1.1"}, **bearer(opened, "will"))
    assert said(refused) == (409, "not-a-human-request")
    assert (refused.json()["kind"], refused.json()["hints"]) == ("not-allowed", ["clia session resume scout VALUE --request 1.1"])


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
def test_a_rule_that_is_too_large_gets_a_place_for_json_and_is_hardly_looked_at(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An agent asks so, and every look at the inbox would take the forge's time."""
    browser, request = opened.browser("ada"), opened.space.ask("scout", {"question": "Which?", **LARGE[name]})
    opened.space.ask("smith", QUESTION)
    looked: Counter[str] = Counter()

    def counted(where: Any, what: str) -> None:
        real = getattr(where, what)

        def call(*args: Any, **more: Any) -> Any:
            looked[what] += 1
            return real(*args, **more)

        monkeypatch.setattr(where, what, call)

    for what in ("check_answer", "FormField", "json_text"):
        counted(forms, what)
    counted(Draft202012Validator, "check_schema")
    assert form_of(opened.space.rule(request)).kind == "raw"
    item = f"{opened.base}/inbox/scout/{request.id}"
    for page in (browser.get(f"{opened.base}/inbox"), browser.get(item), browser.get(f"{item}?as=json")):
        assert page.status_code == 200
        assert "Which?" in page.text
        assert len(re.findall(r"<(?:option|input|button|textarea)\b", page.text)) < 50
    assert sum(looked.values()) < 50, looked
    large = "schema" in LARGE[name] and is_large(LARGE[name]["schema"])
    assert looked["check_schema"] <= (0 if large else 4), "at most once a page: whether it is a schema at all"


def test_a_wrong_answer_to_many_choices_is_told_in_a_few_words(opened: OpenForge) -> None:
    request = opened.space.ask("scout", {"question": "Which?", "choices": list(range(50_000))})
    with pytest.raises(InvalidAnswer) as caught:
        opened.space.check_answer(request, "none of them")
    assert len(str(caught.value.hints)) < 1000
