"""What the ref port promises, over the refs of one repository and over those of clones that share a hub."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from clia.errors import GitError, StaleRef
from clia.hub.model import BRANCHES, PUBLISHED_REFS
from support import git
from support.crashes import run_all
from support.git_hubs import Hub, bare
from support.hub_clones import Clone, alone, sharing
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD, RECORD, EVENTS = "refs/heads/agents/scout", "refs/clia/agents/scout", "refs/clia/events/scout"
NAMES = [HEAD, "refs/notes/clia/trace/scout", "refs/clia/types"]
RACERS, ROUNDS = 4, 3
KINDS = ["local", "hub", "hub, heads apart"]


class Setting(NamedTuple):
    """Where the parties of one test are: clones of their own, or all on one repository."""

    top: Path
    hub: Hub | None
    heads: str

    def party(self, name: str) -> Clone:
        return alone(self.top / "repo") if self.hub is None else sharing(self.top / name, self.hub, self.heads)

    def at_hub(self) -> dict[str, str]:
        """Every ref of the hub."""
        assert self.hub is not None
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=self.hub.repository).splitlines()
        return dict(line.split(" ") for line in lines)


@pytest.fixture(params=KINDS)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    if request.param == "local":
        return Setting(tmp_path, None, BRANCHES)
    made = bare(tmp_path / "hub.git")
    return Setting(tmp_path, Hub(str(made), made), BRANCHES if request.param == "hub" else PUBLISHED_REFS)


with_hub = pytest.mark.parametrize("setting", KINDS[1:], indirect=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_ref_is_made_moved_and_deleted_by_whoever_knows_its_value(setting: Setting, name: str) -> None:
    one = setting.party("one")
    first = one.commit("first")
    second = one.commit("second", first)
    assert one.refs.get(name) is None
    for old, new in ((None, first), (first, second), (second, first), (first, None), (None, second)):
        one.refs.move(name, old, new, "test")
        assert one.refs.get(name) == new
        assert one.refs.under(f"{name.rpartition('/')[0]}/") == ([(name, new)] if new else [])
        if setting.hub is not None:
            assert list(setting.at_hub().values()) == ([new] if new else [])
    assert not one.unpublished.refs


@pytest.mark.parametrize("name", NAMES[:1])
def test_who_expects_another_value_changes_nothing_and_learns_the_actual_one(setting: Setting, name: str) -> None:
    one, other = setting.party("one"), setting.party("other")
    first, wrong = one.commit("first"), other.commit("wrong")
    one.refs.move(name, None, first, "test")
    for party in (other, one):
        mine = party.commit("mine")
        for expected, new in ((None, mine), (wrong, mine), (wrong, None)):
            with pytest.raises(StaleRef) as caught:
                party.refs.move(name, expected, new, "test")
            assert caught.value.fields == {"ref": name, "expected": expected, "actual": first}
            assert party.refs.get(name) == first  # also where it was another clone that had moved it
        assert not party.unpublished.refs


def test_a_name_or_value_that_cannot_be_is_refused_and_nothing_moves(setting: Setting) -> None:
    one = setting.party("one")
    cid = one.commit("first")
    refused("invalid-ref", lambda: one.refs.move("refs/heads/agents/sc..out", None, cid, "test"))
    with pytest.raises(GitError):
        one.refs.move(HEAD, None, "1" * 40, "test")
    one.refs.move(HEAD, None, cid, "test")
    refused("ref-clash", lambda: one.refs.move(f"{HEAD}/inner", None, cid, "test"))
    assert [name for name, _ in one.refs.under("refs/")][:1] == ["refs/clia-tracking/hub/heads/scout" if one.hub else HEAD]
    if setting.hub is not None:
        assert len(setting.at_hub()) == 1


def test_moves_that_belong_together_are_seen_all_or_none(setting: Setting) -> None:
    one, other = setting.party("one"), setting.party("other")
    first = one.commit("first")
    mine = other.commit("mine")
    moved = one.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
    assert moved == one.refs.shared == (setting.hub is not None)
    assert (one.refs.get(HEAD), one.refs.get(RECORD)) == ((first, first) if moved else (None, None))
    if moved:
        with pytest.raises(StaleRef):  # nobody has made the second one, but the first is there
            other.refs.move_together([(EVENTS, None, mine), (HEAD, None, mine)], "test")
        assert sorted(setting.at_hub().values()) == [first, first]
        assert (other.refs.get(HEAD), other.refs.get(EVENTS)) == (first, None)


def test_of_several_processes_that_expect_one_value_one_wins(setting: Setting) -> None:
    """Round after round: one winner, and everyone else is told its value and has it."""
    parties = [setting.party(f"p{number}") for number in range(RACERS)]
    before: str | None = None
    for round_ in range(ROUNDS):
        run_all([_mover(setting, parties[number], number, round_, before) for number in range(RACERS)], RACERS)
        said = [json.loads((setting.top / f"said-{number}").read_text()) for number in range(RACERS)]
        won = {mine for mine, actual in said if actual is None}
        assert len(won) == 1, said
        (before,) = won
        assert {actual for _, actual in said} == {None, before}
        assert {party.refs.get(HEAD) for party in parties} == {before}
    assert not any(party.unpublished.refs for party in parties)


def _mover(setting: Setting, party: Clone, number: int, round_: int, before: str | None) -> Callable[[], None]:
    def move() -> None:
        mine = party.commit(f"{number} in {round_}", *([before] if before else []))
        actual = None
        try:
            party.refs.move(HEAD, before, mine, "test")
        except StaleRef as err:
            actual = err.fields["actual"]
        (setting.top / f"said-{number}").write_text(json.dumps([mine, actual]))

    return move


@with_hub
def test_what_belongs_to_one_clone_or_to_people_never_reaches_the_hub(setting: Setting) -> None:
    one = setting.party("one")
    cid = one.commit("first")
    for name in ("refs/heads/main", "refs/clia/peers/someone", "refs/clia/remotes/someone/agents/scout", "refs/tags/v1"):
        one.refs.move(name, None, cid, "test")
        assert one.refs.get(name) == cid
    assert setting.at_hub() == {}
    assert one.refs.move_together([(HEAD, None, cid), ("refs/heads/main", cid, None)], "test") is False
    assert setting.at_hub() == {}


@with_hub
def test_heads_stand_where_the_setting_says(setting: Setting) -> None:
    one = setting.party("one")
    cid = one.commit("first")
    one.refs.move_together([(HEAD, None, cid), (RECORD, None, cid)], "test")
    place = HEAD if setting.heads == BRANCHES else "refs/clia/agents-published/scout"
    assert setting.at_hub() == {place: cid, RECORD: cid}
    assert one.hub is not None
    assert one.hub.fetch(retry_now=True)
    assert one.hub.all_tracked() == {HEAD: cid, RECORD: cid}


@with_hub
def test_what_the_hub_does_not_allow_is_said_and_nothing_moves(setting: Setting) -> None:
    """Options that servers of git have: hidden refs, hooks of their own, and for branches alone no deletions and no way back."""
    one = setting.party("one")
    assert setting.hub is not None
    first = one.commit("first")
    second = one.commit("second", first)
    one.refs.move_together([(HEAD, None, second), (RECORD, None, second)], "test")
    before = setting.at_hub()
    if setting.heads == BRANCHES:
        for option, new in (("receive.denyDeletes", None), ("receive.denyNonFastForwards", first)):
            git("config", option, "true", cwd=setting.hub.repository)
            refused("hub-refused", partial(one.refs.move, HEAD, second, new, "test"))
    git("config", "transfer.hideRefs", "refs/clia/events", cwd=setting.hub.repository)
    error = refused("hub-refused", lambda: one.refs.move(EVENTS, None, first, "test"))
    assert "hidden" in error.fields["reason"]
    hook = setting.hub.repository / "hooks/update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/clia/agents/scout ]\n')
    hook.chmod(0o755)
    moves = [("refs/clia/types", None, first), (RECORD, second, first)]
    error = refused("hub-refused", lambda: one.refs.move_together(moves, "test"))
    assert "hook" in error.fields["reason"]
    git("config", "receive.advertiseAtomic", "false", cwd=setting.hub.repository)
    refused("hub-unfit", lambda: one.refs.move_together(moves, "test"))
    assert setting.at_hub() == before
    assert dict(one.refs.under("refs/clia/")) | dict(one.refs.under("refs/heads/")) == {HEAD: second, RECORD: second}
    assert not one.unpublished.refs
