"""The error tree."""

from __future__ import annotations

import json

import pytest

from clia import errors


def all_kinds(kind: type[errors.CliaError] = errors.CliaError) -> list[type[errors.CliaError]]:
    return [kind, *(descendant for child in kind.__subclasses__() for descendant in all_kinds(child))]


@pytest.mark.parametrize("kind", all_kinds())
def test_every_error_survives_a_json_round_trip(kind: type[errors.CliaError]) -> None:
    error = kind("what happened", hints=["do this"], fields={"path": "x"})
    restored = errors.CliaError.from_json(json.loads(json.dumps(error.to_json())))
    assert type(restored) is kind
    assert restored.to_json() == error.to_json()


def test_codes_are_unique_and_kebab_case() -> None:
    codes = [kind.code for kind in all_kinds()]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("-", "").isalpha() and code == code.lower() for code in codes)


def test_an_unknown_code_becomes_the_base_class() -> None:
    restored = errors.CliaError.from_json({"code": "from-the-future", "message": "m", "hints": [], "fields": {}})
    assert (type(restored), restored.code) == (errors.CliaError, "from-the-future")


def test_control_flow_is_not_swallowed_by_except_exception() -> None:
    assert not issubclass(errors.Suspended, Exception)
    assert not issubclass(errors.Cancelled, Exception)
