"""Laws of behaviours: a prompt fills its placeholders once and keeps all other text; a history returns each reason unchanged."""

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

PLACEHOLDERS = ("{{task}}", "{{ task }}", "{{agent}}", "{{ agent}}", "{{title}}", "{{title }}")
WORDS = st.text(alphabet="ab {}\n\\1", max_size=8)
BODIES = st.lists(st.one_of(WORDS, st.sampled_from(PLACEHOLDERS)), max_size=8).map("".join)
REPLACEMENTS = st.one_of(WORDS, st.sampled_from(PLACEHOLDERS), st.just(r"\g<0>"))


def filled(body: str, replacements: dict[str, str]) -> str:
    """The same result by other means: split at the placeholders, and join again."""
    parts = re.split(r"(\{\{ ?(?:task|agent|title) ?\}\})", body)
    return "".join(replacements[part.strip("{} ")] if number % 2 else part for number, part in enumerate(parts))


@given(body=BODIES, task=REPLACEMENTS, agent=REPLACEMENTS, title=REPLACEMENTS)
@example(body="Do {{task}}", task="{{agent}} and {{task}}", agent="a", title="b")
def test_placeholders_are_filled_once_and_all_other_text_is_kept(body: str, task: str, agent: str, title: str) -> None:
    prompt = rendered(body, task, agent=agent, title=title)
    text = filled(body, {"task": task, "agent": agent, "title": title})
    if task and not re.search(r"\{\{ ?task ?\}\}", body):
        assert prompt == f"{text.rstrip()}\n\n{task}"
    else:
        assert prompt == text


def test_a_briefing_names_its_prompt() -> None:
    assert briefing("c" * 40, "{{title}} for {{agent}}", "Dig", "Find it.", "mole") == clia.Briefing(
        "Dig", "Dig for mole\n\nFind it.", "c" * 40
    )


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clia.Space]:
    with clia.init(tmp_path_factory.mktemp("chain").resolve(), settings=quick(redact=False)) as opened:
        opened.behaviours.add("tone", "Sing.", PROMPT)
        opened.behaviours.propose("tone", "Whistle.")
        yield opened


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
REASON = st.one_of(
    st.lists(LINES, max_size=5).map("\n".join), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
)


@given(reason=REASON)
@example(reason="because\n\nClia-Behaviour: " + "d" * 40 + '\nClia-Event: {"cid":"' + "d" * 40 + '","event":"retire"}')
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_the_history_of_a_behaviour_has_each_reason_unchanged(space: clia.Space, reason: str) -> None:
    before = space.behaviours.get("tone")
    other_cid = next(version.cid for version in before.versions if version.cid != before.current)
    space.behaviours.adopt("tone", other_cid, why=reason)
    history = space.behaviours.get("tone").history
    assert history[1:] == before.history
    assert (history[0].event, history[0].cid, history[0].evidence) == ("adopt", other_cid, ())
    assert history[0].why == (reason.strip("\n") if reason.strip(" \t\r\n") else "adopt tone")
