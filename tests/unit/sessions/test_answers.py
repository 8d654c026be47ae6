from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from clia.sessions import answers
from clia.sessions import service as session_verbs
from clia.sessions.answers import check_answer, is_quick
from support import git
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Place, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia
    from clia.sessions.answers import Rule


TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""


FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}


_numbers = itertools.count()


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def commit(space: clia.Space, agent: str = "scout") -> str:
    return space.commit(agent, "finding", changes={"n": str(next(_numbers)).encode()})


def test_a_rule_is_applied_while_others_may_go_on_with_the_agent(
    here: Place, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    between: list[str] = []

    def slow(rule: Rule, request_id: str, kind: str, value: Any, _: object) -> None:
        check_answer(rule, request_id, kind, value)
        with here.open() as other:
            with other.core.locks.attempt("scout") as free:
                assert free, "a rule may take for ever to apply"
            between.append(commit(other))

    monkeypatch.setattr(session_verbs, "check_answer", slow)
    space.start("scout", "talk")
    made = space.decide("scout", "yes")
    assert between
    assert git("rev-parse", f"{made.cid}^", cwd=here.root).strip() == between[0]
    assert space.verify().clean


def test_who_was_answered_before_while_a_rule_was_applied_learns_it_and_leaves_nothing(
    here: Place, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        monkeypatch.undo()
        with here.open() as other:
            other.decide("scout", "quicker", by="Ann")

    space.start("scout", "talk")
    monkeypatch.setattr(session_verbs, "check_answer", slow)
    error = refused("stale-request", lambda: space.decide("scout", "yes"))
    assert error.message == "the request 1.1 of 'scout' was answered by Ann already: \"quicker\""
    assert space.session("scout").resumes == ["quicker"]
    assert space.head("scout") == space.session("scout").decisions[0][1]


NO_RULES: dict[str, Any] = {
    "no choices": {"choices": []},
    "an unknown type": {"schema": {"type": "nonsense"}},
    "a text": {"schema": "x"},
    "a list": {"schema": [1]},
    "no enum": {"schema": {"enum": 5}},
    "a pattern that is none": {"schema": {"type": "string", "pattern": "("}},
    "a reference to elsewhere": {"schema": {"$ref": "https://schemas.invalid/x.json"}},
    "a reference to a file": {"schema": {"$ref": "file:///etc/passwd"}},
    "a reference to nothing": {"schema": {"$ref": "#/nowhere"}},
    "a reference without end": {"schema": {"$ref": "#"}},
    "a reference that is a number": {"schema": {"$ref": 5}},
    "a reference that is no address": {"schema": {"$ref": "http://[::1"}},
    "an id that is no address": {"schema": {"$id": "http://[::1", "$ref": "#/x"}},
    "a reference in half an escape": {"schema": {"$ref": "#/%zz"}},
    "a reference into a list by a name": {"schema": {"$ref": "#/enum/x", "enum": [2]}},
    "a reference beyond a list": {"schema": {"$ref": "#/enum/9", "enum": [2]}},
    "a reference to a number": {"schema": {"$ref": "#/enum/0", "enum": [2]}},
    "a reference to a text": {"schema": {"$ref": "#/x", "x": "text"}},
    "an anchor that is not there": {"schema": {"$dynamicRef": "#zz"}},
    "a chain of references": {"schema": {"$id": "urn:x", "$defs": {"a": {"$id": "b", "$ref": "c"}}, "$ref": "b"}},
    "an address of another kind of schema": {"schema": {"$schema": "http://[::1"}},
}


def test_a_request_whose_own_rule_is_none_takes_any_answer(space: clia.Space) -> None:
    """Else it would hold up its session for ever: nobody can change what a flow has asked."""
    for number, (name, payload) in enumerate(NO_RULES.items(), 1):
        request = space.start("scout", "question", {"payload": payload}).pending[0]
        space.check_answer(request, 1)
        assert space.decide("scout", number).session.result == number, name


def test_a_broken_schema_leaves_the_choices_in_force(space: clia.Space) -> None:
    space.start("scout", "question", {"payload": {"schema": {"type": 3}, "choices": ["yes", "no"]}})
    refused("invalid-answer", lambda: space.decide("scout", "maybe"))
    assert space.rule(space.pending()[0]).choices == ("yes", "no")


def test_an_operators_broken_schema_is_named_by_file_and_field_wherever_it_is_met(here: Place) -> None:
    chosen = here.configured('[answers.human]\nschema = {type = "nonsense"}\n')
    with chosen.open() as space:
        with_agents(space, "scout", talk=TALK, product=PRODUCT)
        (request,) = space.start("scout", "talk").pending
        head = space.head("scout")
        for call in (
            lambda: space.decide("scout", "yes"),
            lambda: space.rule(request),
            lambda: space.check_answer(request, "yes"),
        ):
            error = refused("invalid-config", call)
            assert error.fields == {"path": chosen.config, "field": "answers.human.schema"}
            assert error.message.startswith(f"{chosen.config}: answers.human.schema is not a valid JSON Schema: ")
        assert (space.head("scout"), len(space.pending())) == (head, 1)
        with_agents(space, "other").start("other", "product")
        assert space.resume("other", 1).pending, "other kinds of requests are not touched by it"


def test_an_operators_schema_that_refers_to_nothing_refuses_with_the_reason(here: Place) -> None:
    with here.configured('[answers.human]\nschema = {"$ref" = "#/nowhere"}\n').open() as space:
        with_agents(space, "scout", talk=TALK)
        (request,) = space.start("scout", "talk").pending
        for call in (lambda: space.decide("scout", "yes"), lambda: space.check_answer(request, "yes")):
            error = refused("invalid-answer", call)
            assert error.fields["problem"].startswith("the rule cannot be applied: it refers to what is not in it")
        assert space.session("scout").resumes == []


def test_a_rule_is_asked_for_by_a_request(space: clia.Space) -> None:
    for bad in (5, None, "1.1", ("scout", "1.1")):
        assert refused("invalid-request", lambda bad=bad: space.rule(bad)).fields == {"field": "request"}  # type: ignore[misc]
        refused("invalid-request", lambda bad=bad: space.check_answer(bad, 1))  # type: ignore[misc]


_FOREVER = {"type": "string", "pattern": "^(a|a)*$"}


_DOUBLING = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}},
}


@pytest.mark.parametrize("schema", [_FOREVER, _DOUBLING], ids=["a pattern", "references that double"])
def test_a_rule_that_takes_for_ever_holds_up_nobody(
    space: clia.Space, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of the answer then, as a rule that cannot be applied; the process that tried is gone."""
    monkeypatch.setattr(answers, "CHECK_SECONDS", 1.0)
    asked_for = space.ask("scout", {"question": "Which?", "schema": schema})
    assert space.decide("scout", "a" * 60 + "b", request_id=asked_for.id).value == "a" * 60 + "b"


def test_what_lies_in_the_directory_is_not_run_when_a_rule_is_applied(
    space: clia.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People stand in the repository, where agents write."""
    for name in ("json.py", "clia.py", "jsonschema.py", "resource.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    asked_for = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=asked_for.id))
    assert not (tmp_path / "ran").exists()


def test_a_rule_with_a_pattern_still_counts(space: clia.Space) -> None:
    asked_for = space.ask("scout", {"question": "Which?", "schema": {"type": "string", "pattern": "^[a-z]+$"}})
    error = refused("invalid-answer", lambda: space.decide("scout", "A1", request_id=asked_for.id))
    assert "does not match" in error.message
    assert space.decide("scout", "fine", request_id=asked_for.id).value == "fine"


QUICK_RULES = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"enum": [1, 2]}},
    True,
]


SLOW_RULES = [
    _FOREVER,
    _DOUBLING,
    {"items": {"patternProperties": {"x": True}}},
    {"properties": {"a": {"not": {}}}},
    {"anyOf": [{"type": "string"}]},
    {"properties": {str(number): {"type": "string"} for number in range(2000)}},
]


def test_what_is_applied_in_a_process_of_its_own_is_all_that_might_take_long() -> None:
    assert all(is_quick(each) for each in QUICK_RULES)
    assert not any(is_quick(each) for each in SLOW_RULES)
