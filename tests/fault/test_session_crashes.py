"""Sudden death at every named step of every verb of a session, on either store, and in the middle of recovering from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from clia.space.envelope import STEPS
from support.session_deaths import name_steps, race_and_die, walk, walk_recovering
from support.session_driver import Template, apart, make_template, postgres_or_fail
from support.session_verbs import VERBS

if TYPE_CHECKING:
    from pathlib import Path

ENDING = ("decide that ends", "resume that ends", "fork", "fork at a commit", "decide", "cancel")

AROUND_THE_STORE = ["engine-ran", "intent-recorded", "committed", "notes-bound", "finished"]
"""What another store can make a difference to."""


ALIKE = ("give up", "give up that ends", "decide on a question", "ask", "define", "commit", "commit with trace")
"""Verbs whose steps in the store are those of others."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    home = tmp_path_factory.mktemp("template") / "made"
    made = Template(home, postgres_or_fail() if request.param == "postgres" else None)
    apart(make_template, str(home), made.address)
    return made


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_killed_at_any_step_is_done_or_was_never_begun(template: Template, tmp_path: Path, name: str, soak: bool) -> None:
    """Alone, or beside another process that wants to do the same."""
    where = (str(template.home), template.address, str(tmp_path))
    if soak:
        apart(walk, *where, name, ["beside", "alone"])
    elif template.address is None:
        apart(walk, *where, name, ["beside"])
    else:
        apart(walk, *where, name, ["alone"], AROUND_THE_STORE if name not in ALIKE else ["engine-ran", "committed"])


@pytest.mark.parametrize("template", ["sqlite"], indirect=True)
def test_every_named_step_is_reached_by_some_verb_of_a_session(template: Template, tmp_path: Path) -> None:
    """A crash point that nothing reaches would be walked over by no test."""
    by_verb = json.loads(apart(name_steps, str(template.home), str(tmp_path)))
    assert {step for steps in by_verb.values() for step in steps} == {*STEPS, "engine-ran", "ref-locked"}
    for name in ("start", "resume", "give up", "ask"):  # one transaction, no ref
        assert by_verb[name] == ["locked", "recovered", "engine-ran", "finished"]


@pytest.mark.parametrize("name", ENDING)
def test_a_process_killed_while_it_recovers_leaves_the_rest_to_the_next(
    template: Template, tmp_path: Path, name: str, soak: bool
) -> None:
    only = None if soak else ["committed"]
    if template.address is None:
        only = None if soak or name == "decide that ends" else ["intent-recorded", "committed"]
    apart(walk_recovering, str(template.home), template.address, str(tmp_path), name, only)


def test_racing_processes_killed_at_random_lose_and_double_nothing(template: Template, tmp_path: Path, life: int) -> None:
    """The number in the test's name is the seed."""
    apart(race_and_die, str(template.home), template.address, str(tmp_path / "race"), life)
