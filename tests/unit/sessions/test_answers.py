"""Rules for answers: choices and schemas, checked with a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.sessions import answers
from clia.sessions import service as session_verbs
from clia.sessions.answers import check_answer, is_quick
from clia.testing import components
from support import git
from support.session_flows import PRODUCT, TALK
from support.session_spaces import SessionSpace, commit_change, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

    import clia
    from clia.sessions.answers import Rule


def test_a_rule_is_checked_without_holding_the_agents_lock(
    place: SessionSpace, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[str] = []

    def slow(rule: Rule, request_id: str, kind: str, value: Any, _: object) -> None:
        check_answer(rule, request_id, kind, value)
        with place.open() as other:
            with components(other).core.locks.attempt("scout") as free:
                assert free, "checking a rule may take arbitrarily long"
            commits.append(commit_change(other))

    monkeypatch.setattr(session_verbs, "check_answer", slow)
    space.start("scout", "talk")
    decision = space.decide("scout", "yes")
    assert commits
    assert git("rev-parse", f"{decision.cid}^", cwd=place.root).strip() == commits[0]
    assert space.verify().clean


def test_an_answer_given_while_the_rule_of_another_is_checked_wins(
    place: SessionSpace, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        monkeypatch.undo()
        with place.open() as other:
            other.decide("scout", "quicker", by="Ann")

    space.start("scout", "talk")
    monkeypatch.setattr(session_verbs, "check_answer", slow)
    error = refused("stale-request", lambda: space.decide("scout", "yes"))
    assert error.message == "request 1.1 of 'scout' has already been answered by Ann: \"quicker\""
    assert space.session("scout").resumes == ["quicker"]
    assert space.head("scout") == space.session("scout").decisions[0][1]


BROKEN_RULES: dict[str, Any] = {
    "empty choices": {"choices": []},
    "an unknown type": {"schema": {"type": "nonsense"}},
    "a text": {"schema": "x"},
    "a list": {"schema": [1]},
    "an enum that is a number": {"schema": {"enum": 5}},
    "an invalid pattern": {"schema": {"type": "string", "pattern": "("}},
    "a reference to another host": {"schema": {"$ref": "https://schemas.invalid/x.json"}},
    "a reference to a file": {"schema": {"$ref": "file:///etc/passwd"}},
    "a reference to nothing": {"schema": {"$ref": "#/nowhere"}},
    "an endless reference": {"schema": {"$ref": "#"}},
    "a reference that is a number": {"schema": {"$ref": 5}},
    "a reference that is not a valid URI": {"schema": {"$ref": "http://[::1"}},
    "an id that is not a valid URI": {"schema": {"$id": "http://[::1", "$ref": "#/x"}},
    "a reference with an invalid escape": {"schema": {"$ref": "#/%zz"}},
    "a reference into a list by a name": {"schema": {"$ref": "#/enum/x", "enum": [2]}},
    "a reference beyond a list": {"schema": {"$ref": "#/enum/9", "enum": [2]}},
    "a reference to a number": {"schema": {"$ref": "#/enum/0", "enum": [2]}},
    "a reference to a text": {"schema": {"$ref": "#/x", "x": "text"}},
    "a missing anchor": {"schema": {"$dynamicRef": "#zz"}},
    "a chain of references": {"schema": {"$id": "urn:x", "$defs": {"a": {"$id": "b", "$ref": "c"}}, "$ref": "b"}},
    "an invalid URI of a meta-schema": {"schema": {"$schema": "http://[::1"}},
}


def test_a_request_with_an_invalid_rule_accepts_any_answer(space: clia.Space) -> None:
    """Otherwise it would block its session forever, because a flow's request cannot be changed."""
    for number, (name, payload) in enumerate(BROKEN_RULES.items(), 1):
        request = space.start("scout", "question", {"payload": payload}).pending[0]
        space.sessions.check_answer(request, 1)
        assert space.decide("scout", number).session.result == number, name


def test_the_choices_apply_even_if_the_schema_is_invalid(space: clia.Space) -> None:
    space.start("scout", "question", {"payload": {"schema": {"type": 3}, "choices": ["yes", "no"]}})
    refused("invalid-answer", lambda: space.decide("scout", "maybe"))
    assert space.sessions.rule(space.pending()[0]).choices == ("yes", "no")


def test_an_invalid_schema_in_the_configuration_is_reported_with_file_and_field(place: SessionSpace) -> None:
    configured = place.configured('[answers.human]\nschema = {type = "nonsense"}\n')
    with configured.open() as space:
        with_agents(space, "scout", talk=TALK, product=PRODUCT)
        (request,) = space.start("scout", "talk").pending
        head = space.head("scout")
        for call in (
            lambda: space.decide("scout", "yes"),
            lambda: space.sessions.rule(request),
            lambda: space.sessions.check_answer(request, "yes"),
        ):
            error = refused("invalid-config", call)
            assert error.fields == {"path": configured.config, "field": "answers.human.schema"}
            assert error.message.startswith(f"{configured.config}: answers.human.schema is not a valid JSON Schema: ")
        assert (space.head("scout"), len(space.pending())) == (head, 1)
        with_agents(space, "other").start("other", "product")
        assert space.resume("other", 1).pending, "other kinds of requests are not affected"


def test_a_configured_schema_with_a_dangling_reference_refuses_answers_with_the_reason(place: SessionSpace) -> None:
    with place.configured('[answers.human]\nschema = {"$ref" = "#/nowhere"}\n').open() as space:
        with_agents(space, "scout", talk=TALK)
        (request,) = space.start("scout", "talk").pending
        for call in (lambda: space.decide("scout", "yes"), lambda: space.sessions.check_answer(request, "yes")):
            error = refused("invalid-answer", call)
            assert error.fields["problem"].startswith("the rule cannot be applied: it has an unresolved reference")
        assert space.session("scout").resumes == []


def test_rules_are_looked_up_by_request_objects_only(space: clia.Space) -> None:
    for bad in (5, None, "1.1", ("scout", "1.1")):
        assert refused("invalid-request", lambda bad=bad: space.sessions.rule(bad)).fields == {"field": "request"}  # type: ignore[misc]
        refused("invalid-request", lambda bad=bad: space.sessions.check_answer(bad, 1))  # type: ignore[misc]


SLOW_SCHEMA = {"type": "string", "pattern": "^(a|a)*$"}


DOUBLING_SCHEMA = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}},
}


@pytest.mark.parametrize("schema", [SLOW_SCHEMA, DOUBLING_SCHEMA], ids=["slow pattern", "doubling references"])
def test_a_rule_that_takes_too_long_does_not_block_an_answer(
    space: clia.Space, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a rule that cannot be applied, it accepts the answer; the process that checked it is ended."""
    monkeypatch.setattr(answers, "CHECK_SECONDS", 1.0)
    request = space.ask("scout", {"question": "Which?", "schema": schema})
    assert space.decide("scout", "a" * 60 + "b", request_id=request.id).value == "a" * 60 + "b"


def test_a_rule_check_does_not_import_modules_from_the_current_directory(
    space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People run commands in the repository, and agents write there."""
    for name in ("json.py", "clia.py", "jsonschema.py", "resource.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    request = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=request.id))
    assert not (tmp_path / "ran").exists()


def test_a_rule_with_a_pattern_is_applied(space: clia.Space) -> None:
    request = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    error = refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=request.id))
    assert "does not match" in error.message
    assert space.decide("scout", "fine", request_id=request.id).value == "fine"


QUICK_RULES = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"enum": [1, 2]}},
    True,
]


SLOW_RULES = [
    SLOW_SCHEMA,
    DOUBLING_SCHEMA,
    {"items": {"patternProperties": {"x": True}}},
    {"properties": {"a": {"not": {}}}},
    {"anyOf": [{"type": "string"}]},
    {"properties": {str(number): {"type": "string"} for number in range(2000)}},
]


def test_schemas_that_may_take_long_are_not_quick() -> None:
    assert all(is_quick(schema) for schema in QUICK_RULES)
    assert not any(is_quick(schema) for schema in SLOW_RULES)
