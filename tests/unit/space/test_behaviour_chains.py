"""Chains of behaviours that two clones changed, and how they are united."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.values.typed_objects import PROMPT, SESSION_FLOW
from support import git
from support.behaviour_walks import CHAINS, check_flow, remove_marks
from support.spaces import refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Clones(NamedTuple):
    """Two clones of a space, with a bare repository between them."""

    first: clia.Space
    second: clia.Space

    def exchange(self) -> None:
        """Publish and adopt in both directions."""
        for giver, taker in ((self.first, self.second), (self.second, self.first)):
            giver.publish([])
            taker.adopt()

    def states(self, name: str) -> list[dict[str, str]]:
        return [
            {version.body: version.state for version in space.behaviours.get(name).versions} for space in (self.first, self.second)
        ]


@pytest.fixture
def clones(tmp_path: Path) -> Iterator[Clones]:
    directory, bare = tmp_path.resolve(), tmp_path / "between.git"
    git("init", "--quiet", "--bare", str(bare), cwd=directory)
    with clia.init(directory / "first", settings=settings()) as first:
        git("remote", "add", "origin", str(bare), cwd=directory / "first")
        for name in ("tone", "voice", "song"):
            first.behaviours.add(name, "a", PROMPT)
            first.behaviours.propose(name, "b")
        first.publish([])
        git("clone", "--quiet", str(bare), str(directory / "second"), cwd=directory)
        git("fetch", "--quiet", "origin", "refs/clia/space:refs/clia/space", cwd=directory / "second")
        with clia.open(directory / "second", settings=settings()) as second:
            second.adopt()
            yield Clones(first, second)


def cid_of(space: clia.Space, name: str, body: str) -> str:
    return next(version.cid for version in space.behaviours.get(name).versions if version.body == body)


def test_a_version_retired_in_one_clone_stays_retired_whatever_the_other_does(clones: Clones) -> None:
    """Retired wins over current, adopted and trial, and over unrelated changes of the other clone."""
    first, second = clones
    first.behaviours.retire("tone")  # the other clone only proposes
    second.behaviours.propose("tone", "c")
    first.behaviours.adopt("voice", cid_of(first, "voice", "b"))  # the other clone retires it
    second.behaviours.retire("voice", cid_of(second, "voice", "b"))
    first.behaviours.retire("song")  # the other clone adopts another version
    second.behaviours.adopt("song", cid_of(second, "song", "b"))
    clones.exchange()
    assert clones.states("tone") == [{"a": "retired", "b": "proposed", "c": "proposed"}] * 2
    assert clones.states("voice") == [{"a": "former", "b": "retired"}] * 2
    assert clones.states("song") == [{"a": "retired", "b": "current"}] * 2
    for space in clones:
        refused("retired", partial(space.behaviours.brief, cid_of(space, "tone", "a"), "Sing"))
        refused("retired", partial(space.behaviours.brief, cid_of(space, "voice", "b"), "Sing"))
        assert space.verify().clean


def test_an_adoption_in_one_clone_counts_in_the_other_and_proposals_stay_proposals(clones: Clones) -> None:
    first, second = clones
    first.behaviours.propose("tone", "c")
    second.behaviours.adopt("tone", cid_of(second, "tone", "b"))  # only one clone set a current version, which wins
    first.behaviours.adopt("voice", cid_of(first, "voice", "b"))
    second.behaviours.add("voice", "c")  # both did: the clone that unites them wins
    clones.exchange()
    assert clones.states("tone") == [{"a": "former", "b": "current", "c": "proposed"}] * 2
    assert clones.states("voice") == [{"a": "former", "b": "former", "c": "current"}] * 2


def test_versions_without_marks_in_another_clone_count_as_adopted(clones: Clones, tmp_path: Path) -> None:
    """An old clone has no proposals: its versions stay adopted, and our proposals stay proposals."""
    first, second = clones
    second.behaviours.add("tone", "b")  # a person adds the proposed version
    second.behaviours.add("tone", "c")
    remove_marks(tmp_path.resolve() / "second", "tone")
    first.behaviours.propose("tone", "d")
    Clones(second, first).exchange()  # united in the first clone
    assert clones.states("tone") == [{"a": "former", "b": "former", "c": "current", "d": "proposed"}] * 2


def test_a_version_adopted_again_is_not_retired_by_an_outdated_clone(clones: Clones) -> None:
    first, second = clones
    first.behaviours.retire("tone")
    clones.exchange()
    first.behaviours.adopt("tone", cid_of(first, "tone", "a"))
    second.behaviours.propose("tone", "c")
    clones.exchange()
    assert clones.states("tone") == [{"a": "current", "b": "proposed", "c": "proposed"}] * 2


def test_the_last_change_of_each_clone_decides_about_retired_and_current_versions(clones: Clones) -> None:
    """Retired and adopted again in either clone; and retired in one while the other adopted another version."""
    first, second = clones
    for space, name in ((first, "tone"), (second, "voice")):
        space.behaviours.retire(name)
        space.behaviours.adopt(name, cid_of(space, name, "a"))
    first.behaviours.propose("voice", "c")
    second.behaviours.propose("tone", "c")
    second.behaviours.retire("song")
    first.behaviours.adopt("song", cid_of(first, "song", "b"))
    clones.exchange()  # united in the second clone
    assert clones.states("tone") == clones.states("voice") == [{"a": "current", "b": "proposed", "c": "proposed"}] * 2
    assert clones.states("song") == [{"a": "retired", "b": "current"}] * 2


def test_chains_of_different_kinds_with_one_name_are_not_united(clones: Clones) -> None:
    first, second = clones
    first.behaviours.add("new", "Sing.", PROMPT)
    second.behaviours.add("new", check_flow(1), SESSION_FLOW)
    second.publish([])
    assert (f"{CHAINS}new", "diverged") in [adoption[:2] for adoption in first.adopt()]
    assert first.behaviours.get("new").kind == PROMPT
