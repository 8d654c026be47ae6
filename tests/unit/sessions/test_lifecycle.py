from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Place, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import clia


TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""


FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def test_sessions_are_listed_live_first_then_by_agent_then_by_number(space: clia.Space) -> None:
    with_agents(space, "aide", "last")
    for _ in range(10):
        space.start("scout", "product")
        space.cancel("scout")
    for _ in range(2):
        space.start("aide", "product")
        space.cancel("aide")
    for name in ("scout", "last"):
        space.start(name, "product")
    listed = [(each.agent, each.id) for each in space.sessions()]
    assert listed[:4] == [("last", "1"), ("scout", "11"), ("aide", "1"), ("aide", "2")]
    assert listed[4:] == [("scout", str(number)) for number in range(1, 11)]
    assert [each.id for each in space.sessions("scout")] == ["11", *(str(number) for number in range(1, 11))]


def test_a_configuration_that_is_named_must_be_there(here: Place, space: clia.Space) -> None:
    path = str(here.root.parent / "none.toml")
    assert refused("no-such-config", lambda: here._replace(config=path).open()).fields == {"path": path}
    with here.open():
        pass  # one that is not named need not


def test_a_dry_run_does_not_promise_to_archive_who_waits_for_an_answer(space: clia.Space) -> None:
    with_agents(space, "asker", "aide")
    space.start("scout", "product")
    space.ask("asker", {"question": "Go?"})
    for name in ("scout", "asker", "aide"):
        space.commit_with_trace(name, "finding", changes={"a": b"1"})  # else the trace alone would keep it
        space.spawn_from(f"{name}-child", BRIEFING, name)
    dry = space.maintain(archive_idle_days=0, dry_run=True).archived
    assert dry == ("aide",)
    assert space.maintain(archive_idle_days=0).archived == dry
