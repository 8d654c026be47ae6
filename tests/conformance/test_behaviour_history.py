"""Statistics and suggestions on a generated history of 10,000 commits by two versions with known true rates.

One real history, written by git and read by the index, gives exactly the generated counts. The stated error rates are then
checked over 200 seeds of the same generator, through the code that sums and suggests, without git. A soak
writes and reads real histories for many seeds.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import clia
from clia.behaviours.measures import ObservationSum, add_sum, count_of, sum_observations, totals
from clia.behaviours.model import ADOPT, KEEP, RETIRE, BehaviourVersion, KnownBehaviour, Suggestion
from clia.behaviours.observing import OUTCOME, Observation
from clia.behaviours.statistics import ERROR, LEVEL, interval
from clia.behaviours.suggesting import Policy, suggest
from clia.space.model import AGENT, BEHAVIOUR, META, TYPE
from clia.values import commit_messages as messages
from clia.values import refs
from support.behaviour_walks import observed, rebuilt, started
from support.session_spaces import SessionSpace
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SEEDS, COMMITS, AGENTS, DAYS = 200, 10_000, 20, 50
START, DAY = 1_780_000_000, 86400
LOOKS = (0, 1, 2, 3, 5, 10, 20, 35, DAYS)
EQUAL, BETTER = (0.8, 0.8), (0.8, 0.86)
POLICY = Policy(measure="passed")


@cache
def history(seed: int, rates: tuple[float, float]) -> tuple[bool, ...]:
    """Which commits pass: those of the two versions in turn, as in a trial, the same number each day."""
    draw = Random(f"{seed} {rates}").random  # noqa: S311  # the same each time
    return tuple(draw() < rate for _ in range(COMMITS // 2) for rate in rates)


def _day(number: int) -> int:
    return START + number * DAYS // COMMITS * DAY


# Real git


def _stream(passes: Sequence[bool], versions: Sequence[str]) -> Iterator[bytes]:
    """The history for ``git fast-import``: agents in turn, each on its own branch."""
    for number in range(-AGENTS, len(passes)):
        name, at = f"agent-{number % AGENTS}", _day(max(0, number))
        trailers = [(AGENT, name), (TYPE, "spawn")]
        if number >= 0:
            outcome = json.dumps({"outcome": "passed" if passes[number] else "failed"})
            trailers = [(AGENT, name), (TYPE, "test"), (BEHAVIOUR, versions[number % 2]), (META, outcome)]
        text = messages.compose(f"step {number}", trailers, "step").encode()
        by = b"%s <a@example.org> %d +0000" % (name.encode(), at)
        yield b"commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n" % (refs.head(name).encode(), by, by, len(text), text)


def _written(root: Path, passes: Sequence[bool]) -> tuple[clia.Space, list[str]]:
    space = started(root)
    versions = [version.cid for version in space.behaviours.get("review").versions]
    command = ["git", "-C", str(root), "fast-import", "--quiet"]
    subprocess.run(command, input=b"".join(_stream(passes, versions)), check=True)
    return space, versions


def _check_counts(space: clia.Space, passes: Sequence[bool]) -> None:
    for number, stats in enumerate(space.behaviours.stats("review", over="day")):
        passed = sum(passes[number::2])
        assert stats.commits == {"test": COMMITS // 2}
        assert stats.outcomes == {"passed": passed, "failed": COMMITS // 2 - passed}
        assert len(stats.series) == DAYS
        assert sum(rate.n for day in stats.series for rate in day.rates) == COMMITS // 2
    assert space.behaviours.gaps() == 0


def test_a_real_history_gives_the_exact_counts_and_suggestion(tmp_path: Path, soak: bool) -> None:
    """Also after a rebuild; the suggestion equals the one from the same observations without git."""
    for seed in range(20 if soak else 1):
        passes = history(seed, BETTER)
        space, versions = _written(tmp_path / f"{seed}", passes)
        _check_counts(space, passes)
        observations, suggestion = observed(space), space.behaviours.suggest("review", "passed")
        assert rebuilt(space) == observations
        space.close()
        SessionSpace(tmp_path / f"{seed}").lose_store()
        with clia.open(tmp_path / f"{seed}", settings=settings()) as again:
            assert observed(again) == observations
        *_, last = _looks(seed, BETTER)
        played = _suggested(last, versions)
        assert (suggestion.action, suggestion.cid, suggestion.current, suggestion.expect) == (
            ADOPT,
            versions[1],
            played.current,
            versions[0],
        )
        assert [candidate.compared for candidate in suggestion.candidates] == [
            candidate.compared for candidate in played.candidates
        ]
        assert len(suggestion.evidence) == 80  # for each version, the newest 20 that passed and 20 that failed


# Many seeds


def _suggested(sums: tuple[ObservationSum, ObservationSum], versions: Sequence[str] = ("0", "1")) -> Suggestion:
    current, trial = (
        BehaviourVersion("review", cid, "session-flow", state, "")
        for cid, state in zip(versions, ("current", "trial"), strict=True)
    )
    behaviour = KnownBehaviour("review", "session-flow", current.cid, (current, trial), ())
    return suggest(behaviour, current, dict(zip(versions, sums, strict=True)), POLICY)


def _looks(seed: int, rates: tuple[float, float]) -> Iterator[tuple[ObservationSum, ObservationSum]]:
    """The sums after some of the days, mostly early ones, when errors are most likely."""
    passes, a_day = history(seed, rates), COMMITS // DAYS
    sums = ObservationSum({}, {}), ObservationSum({}, {})
    for before, until in pairwise(LOOKS):
        window = passes[before * a_day : until * a_day]
        counts = [(version, sum(window[version::2]), len(window) // 2) for version in (0, 1)]
        at = _day(until * a_day - 1)
        observations = [Observation(str(version), f"{OUTCOME}passed", at, "", passed) for version, passed, _ in counts]
        observations += [Observation(str(version), f"{OUTCOME}failed", at, "", n - passed) for version, passed, n in counts]
        for version, summed in sum_observations(observations).items():
            add_sum(sums[int(version)], summed)
        yield sums


def test_intervals_cover_the_true_rates_at_the_stated_level() -> None:
    """Over 200 seeds, after 10,000 commits and at every earlier look: at least 95 %, less the random error of a share of 400."""
    covered: dict[int, list[bool]] = {}
    for seed in range(SEEDS):
        for look, sums in enumerate(_looks(seed, BETTER)):
            for rate, version_sum in zip(BETTER, sums, strict=True):
                low, high = interval(count_of(totals(version_sum.days), "passed"))
                covered.setdefault(look, []).append(low <= rate <= high)
    shares = [sum(hits) / len(hits) for hits in covered.values()]
    chance = 2.5 * (LEVEL * (1 - LEVEL) / (2 * SEEDS)) ** 0.5
    assert min(shares) >= LEVEL - chance, shares
    assert sum(shares) / len(shares) >= LEVEL - 0.01, shares
    assert max(shares) < 1, shares  # and they are not so wide that they are useless


def test_suggestions_err_no_more_often_than_stated() -> None:
    """Over 200 seeds, with repeated looks.

    For equal versions, an adoption or retirement is suggested in at most 5 % of the histories; a better one is never retired,
    and is adopted in nearly all of them.
    """
    wrong = sum(any(_suggested(sums).action in (ADOPT, RETIRE) for sums in _looks(seed, EQUAL)) for seed in range(SEEDS))
    assert wrong / SEEDS <= ERROR
    actions_by_seed = [[_suggested(sums).action for sums in _looks(seed, BETTER)] for seed in range(SEEDS)]
    assert not any(RETIRE in actions for actions in actions_by_seed)
    assert sum(actions[-1] == ADOPT for actions in actions_by_seed) >= 0.95 * SEEDS
    assert all(actions[0] == KEEP or actions[0] == ADOPT for actions in actions_by_seed)  # a day is enough data, and seldom a proof
