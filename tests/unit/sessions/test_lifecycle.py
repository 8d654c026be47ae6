"""Lists of sessions, configuration files, and maintenance beside live sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.session_spaces import SessionSpace, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    import clia


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
    rows = [(session.agent, session.id) for session in space.sessions()]
    assert rows[:4] == [("last", "1"), ("scout", "11"), ("aide", "1"), ("aide", "2")]
    assert rows[4:] == [("scout", str(number)) for number in range(1, 11)]
    assert [session.id for session in space.sessions("scout")] == ["11", *(str(number) for number in range(1, 11))]


def test_a_configuration_file_that_is_named_must_exist(place: SessionSpace, space: clia.Space) -> None:
    path = str(place.root.parent / "none.toml")
    assert refused("no-such-config", lambda: place._replace(config=path).open()).fields == {"path": path}
    with place.open():
        pass  # the default file need not exist


def test_a_dry_run_of_maintenance_does_not_list_agents_that_wait_for_an_answer(space: clia.Space) -> None:
    with_agents(space, "asker", "aide")
    space.start("scout", "product")
    space.ask("asker", {"question": "Go?"})
    for name in ("scout", "asker", "aide"):
        space.commit_with_trace(name, "finding", changes={"a": b"1"})  # otherwise the pending trace alone would prevent archiving
        space.spawn_from(f"{name}-child", BRIEFING, name)
    dry = space.maintain(archive_idle_days=0, dry_run=True).archived
    assert dry == ("aide",)
    assert space.maintain(archive_idle_days=0).archived == dry
