"""Laws of behaviours: a prompt fills its places once and says the rest word for word; a chain tells what was said to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import clia
from clia.behaviours.prompts import briefing, rendered
from clia.values.typed_objects import PROMPT
from support.spaces import settings as quick

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = ("{{task}}", "{{ task }}", "{{agent}}", "{{ agent}}", "{{title}}", "{{title }}")
WORDS = st.text(alphabet="ab {}\n\\1", max_size=8)
BODIES = st.lists(st.one_of(WORDS, st.sampled_from(PLACES)), max_size=8).map("".join)
GIVEN = st.one_of(WORDS, st.sampled_from(PLACES), st.just(r"\g<0>"))


def filled(body: str, given_: dict[str, str]) -> str:
    """The same by other means: cut at the places, and put together again."""
    parts = re.split(r"(\{\{ ?(?:task|agent|title) ?\}\})", body)
    return "".join(given_[part.strip("{} ")] if number % 2 else part for number, part in enumerate(parts))


@given(body=BODIES, task=GIVEN, agent=GIVEN, title=GIVEN)
@example(body="Do {{task}}", task="{{agent}} and {{task}}", agent="a", title="b")
def test_places_are_filled_once_and_all_else_is_said_word_for_word(body: str, task: str, agent: str, title: str) -> None:
    made = rendered(body, task, agent=agent, title=title)
    text = filled(body, {"task": task, "agent": agent, "title": title})
    if task and not re.search(r"\{\{ ?task ?\}\}", body):
        assert made == f"{text.rstrip()}\n\n{task}"
    else:
        assert made == text


def test_a_briefing_says_which_prompt_it_is_of() -> None:
    assert briefing("c" * 40, "{{title}} for {{agent}}", "Dig", "Find it.", "mole") == clia.Briefing(
        "Dig", "Dig for mole\n\nFind it.", "c" * 40
    )


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clia.Space]:
    with clia.init(tmp_path_factory.mktemp("chain").resolve(), settings=quick(redact=False)) as made:
        made.add_behaviour("tone", "Sing.", PROMPT)
        made.propose_behaviour("tone", "Whistle.")
        yield made


LINES = st.sampled_from(
    [
        "",
        " ",
        "why",
        "---",
        " ---",
        "-- >8 --",
        "Clia-Behaviour: " + "d" * 40,
        'Clia-Event: {"event":"retire"}',
        "Signed-off-by: a",
        "ä",
    ]
)
WHY = st.one_of(
    st.lists(LINES, max_size=5).map("\n".join), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
)


@given(why=WHY)
@example(why="because\n\nClia-Behaviour: " + "d" * 40 + '\nClia-Event: {"cid":"' + "d" * 40 + '","event":"retire"}')
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chain_tells_why_as_it_was_said_whatever_that_looks_like(space: clia.Space, why: str) -> None:
    before = space.behaviour("tone")
    other = next(each.cid for each in before.versions if each.cid != before.current)
    space.adopt_behaviour("tone", other, why=why)
    told = space.behaviour("tone").history
    assert told[1:] == before.history
    assert (told[0].event, told[0].cid, told[0].evidence) == ("adopt", other, ())
    assert told[0].why == (why.strip("\n") if why.strip(" \t\r\n") else "adopt tone")
