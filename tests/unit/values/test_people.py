"""How decisions name people and agents."""

from __future__ import annotations

import pytest

from clia.values.people import is_listed, name_and_email, names_agent


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ada", ("Ada", "")),
        ("Ada <ada@example.org>", ("Ada", "ada@example.org")),
        (" Ada L <a@b", ("Ada L", "a@b")),
        ("<a@b>", ("", "a@b")),
        ("", ("", "")),
    ],
)
def test_a_person_is_a_name_and_an_address(text: str, parts: tuple[str, str]) -> None:
    assert name_and_email(text) == parts


@pytest.mark.parametrize("by", ["scout", "SCOUT", "scout <x@y>", "Ada <any@agents.clia.invalid>", "Ada <any@AGENTS.clia.invalid>"])
def test_an_agent_is_recognized_by_its_name_and_address(by: str) -> None:
    assert names_agent(by, "scout")


@pytest.mark.parametrize("by", ["Ada", "scouting", "Ada <scout@example.org>", "Ada <a@agents.clia.invalid.example.org>"])
def test_others_are_people(by: str) -> None:
    assert not names_agent(by, "scout")


@pytest.mark.parametrize(
    ("by", "people", "listed"),
    [
        ("Ada <ada@example.org>", [], True),
        ("Ada <ada@example.org>", ["ada"], True),
        ("Ada <ada@example.org>", ["ADA@example.org"], True),
        ("Ada <ada@example.org>", ["Ada <ada@example.org>"], True),
        ("Ada <ada@example.org>", ["Bob", "ada@example.com"], False),
        ("", ["ada"], False),
        ("<>", ["", "ada"], False),
    ],
)
def test_a_list_names_people_by_name_or_address(by: str, people: list[str], listed: bool) -> None:
    assert is_listed(by, people) is listed
