"""Processes killed at every crash point of every verb of a session, on either store, and while they recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.space.envelope import STEPS
from clia.trust.move_log import STEPS as LOG_STEPS
from support.crashes import apart
from support.session_crashes import crash_at_each_point, crash_each_recovery, race_twice, steps_by_verb
from support.session_driver import SessionTemplate, make_template, postgres_or_fail
from support.session_verbs import VERBS

if TYPE_CHECKING:
    from pathlib import Path

ENDING = ("decide that ends", "resume that ends", "fork", "fork at a commit", "decide", "cancel", "retry")

NAMED = [*STEPS, "engine-ran", "ref-locked", *LOG_STEPS]
"""All named steps."""
AROUND_THE_STORE = ["engine-ran", "intent-recorded", "committed", "notes-bound", "finished"]
"""The steps at which the store makes a difference."""


ALIKE = (
    "resume one of many",
    "decide one of many",
    "give up",
    "give up that ends",
    "decide on a question",
    "ask",
    "define",
    "commit",
    "commit with trace",
)
"""Verbs whose steps in the store are those of other verbs."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SessionTemplate:
    home = tmp_path_factory.mktemp("template") / "home"
    template = SessionTemplate(home, postgres_or_fail() if request.param == "postgres" else None)
    apart(make_template, str(home), template.address)
    return template


@pytest.mark.parametrize("name", VERBS)
def test_verb_killed_at_any_step_is_either_done_or_undone(template: SessionTemplate, tmp_path: Path, name: str, soak: bool) -> None:
    """Alone, or while another process runs the same verb."""
    location = (str(template.home), template.address, str(tmp_path))
    if soak:
        apart(crash_at_each_point, *location, name, ["beside", "alone"])
    elif template.address is None:
        apart(crash_at_each_point, *location, name, ["beside"], NAMED)
    else:
        apart(
            crash_at_each_point, *location, name, ["alone"], AROUND_THE_STORE if name not in ALIKE else ["engine-ran", "committed"]
        )


@pytest.mark.parametrize("template", ["sqlite"], indirect=True)
def test_session_verbs_reach_every_named_step(template: SessionTemplate, tmp_path: Path) -> None:
    """No test covers a crash point that nothing reaches."""
    by_verb = apart(steps_by_verb, str(template.home), str(tmp_path))
    assert {step for steps in by_verb.values() for step in steps} == {*NAMED}
    for name in ("start", "resume", "give up", "ask"):  # one transaction, no ref
        assert by_verb[name] == ["locked", "recovered", "engine-ran", "finished"]


@pytest.mark.parametrize("name", ENDING)
def test_recovery_that_is_killed_is_finished_by_the_next_process(
    template: SessionTemplate, tmp_path: Path, name: str, soak: bool
) -> None:
    only = None if soak else ["committed"]
    if template.address is None and not soak:
        only = {"decide that ends": NAMED, "fork": ["intent-recorded", "committed"]}.get(name, only)
    apart(crash_each_recovery, str(template.home), template.address, str(tmp_path), name, only)


def test_racing_processes_killed_at_random_lose_and_duplicate_nothing(template: SessionTemplate, tmp_path: Path, life: int) -> None:
    """The number in the test's name is the seed."""
    apart(race_twice, str(template.home), template.address, str(tmp_path / "race"), life)
