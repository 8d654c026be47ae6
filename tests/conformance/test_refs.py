"""Refs of one repository, and of clones that share a hub."""

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
    """The parties of a test: separate clones, or all on one repository."""

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
    repository = bare(tmp_path / "hub.git")
    return Setting(tmp_path, Hub(str(repository), repository), BRANCHES if request.param == "hub" else PUBLISHED_REFS)


with_hub = pytest.mark.parametrize("setting", KINDS[1:], indirect=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_ref_is_created_moved_and_deleted_with_its_expected_value(setting: Setting, name: str) -> None:
    first_party = setting.party("one")
    first = first_party.commit("first")
    second = first_party.commit("second", first)
    assert first_party.refs.get(name) is None
    for old, new in ((None, first), (first, second), (second, first), (first, None), (None, second)):
        first_party.refs.move(name, old, new, "test")
        assert first_party.refs.get(name) == new
        assert first_party.refs.under(f"{name.rpartition('/')[0]}/") == ([(name, new)] if new else [])
        if setting.hub is not None:
            assert list(setting.at_hub().values()) == ([new] if new else [])
    assert not first_party.unpublished.refs


@pytest.mark.parametrize("name", NAMES[:1])
def test_a_wrong_expected_value_changes_nothing_and_the_error_has_the_actual_one(setting: Setting, name: str) -> None:
    first_party, second_party = setting.party("one"), setting.party("other")
    first, wrong = first_party.commit("first"), second_party.commit("wrong")
    first_party.refs.move(name, None, first, "test")
    for party in (second_party, first_party):
        cid = party.commit("mine")
        for expected, new in ((None, cid), (wrong, cid), (wrong, None)):
            with pytest.raises(StaleRef) as caught:
                party.refs.move(name, expected, new, "test")
            assert caught.value.fields == {"ref": name, "expected": expected, "actual": first}
            assert party.refs.get(name) == first  # also if another clone moved it
        assert not party.unpublished.refs


def test_an_invalid_name_or_value_is_refused_and_nothing_moves(setting: Setting) -> None:
    first_party = setting.party("one")
    cid = first_party.commit("first")
    refused("invalid-ref", lambda: first_party.refs.move("refs/heads/agents/sc..out", None, cid, "test"))
    with pytest.raises(GitError):
        first_party.refs.move(HEAD, None, "1" * 40, "test")
    first_party.refs.move(HEAD, None, cid, "test")
    refused("ref-clash", lambda: first_party.refs.move(f"{HEAD}/inner", None, cid, "test"))
    assert [name for name, _ in first_party.refs.under("refs/")][:1] == [
        "refs/clia-tracking/hub/heads/scout" if first_party.hub else HEAD
    ]
    if setting.hub is not None:
        assert len(setting.at_hub()) == 1


def test_moves_are_applied_together_or_not_at_all(setting: Setting) -> None:
    first_party, second_party = setting.party("one"), setting.party("other")
    first = first_party.commit("first")
    cid = second_party.commit("mine")
    moved = first_party.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
    assert moved == first_party.refs.shared == (setting.hub is not None)
    assert (first_party.refs.get(HEAD), first_party.refs.get(RECORD)) == ((first, first) if moved else (None, None))
    if moved:
        with pytest.raises(StaleRef):  # the second ref does not exist, but the first does
            second_party.refs.move_together([(EVENTS, None, cid), (HEAD, None, cid)], "test")
        assert sorted(setting.at_hub().values()) == [first, first]
        assert (second_party.refs.get(HEAD), second_party.refs.get(EVENTS)) == (first, None)


def test_one_of_several_processes_with_the_same_expected_value_wins(setting: Setting) -> None:
    """In each round one process wins, and the others get its value and its commit."""
    parties = [setting.party(f"p{number}") for number in range(RACERS)]
    before: str | None = None
    for round_ in range(ROUNDS):
        run_all([_mover(setting, parties[number], number, round_, before) for number in range(RACERS)], RACERS)
        outcomes = [json.loads((setting.top / f"said-{number}").read_text()) for number in range(RACERS)]
        won = {cid for cid, actual in outcomes if actual is None}
        assert len(won) == 1, outcomes
        (before,) = won
        assert {actual for _, actual in outcomes} == {None, before}
        assert {party.refs.get(HEAD) for party in parties} == {before}
    assert not any(party.unpublished.refs for party in parties)


def _mover(setting: Setting, party: Clone, number: int, round_: int, before: str | None) -> Callable[[], None]:
    def move() -> None:
        cid = party.commit(f"{number} in {round_}", *([before] if before else []))
        actual = None
        try:
            party.refs.move(HEAD, before, cid, "test")
        except StaleRef as err:
            actual = err.fields["actual"]
        (setting.top / f"said-{number}").write_text(json.dumps([cid, actual]))

    return move


@with_hub
def test_refs_of_one_clone_or_of_users_never_reach_the_hub(setting: Setting) -> None:
    first_party = setting.party("one")
    cid = first_party.commit("first")
    for name in ("refs/heads/main", "refs/clia/peers/someone", "refs/clia/remotes/someone/agents/scout", "refs/tags/v1"):
        first_party.refs.move(name, None, cid, "test")
        assert first_party.refs.get(name) == cid
    assert setting.at_hub() == {}
    assert first_party.refs.move_together([(HEAD, None, cid), ("refs/heads/main", cid, None)], "test") is False
    assert setting.at_hub() == {}


@with_hub
def test_heads_are_published_where_configured(setting: Setting) -> None:
    first_party = setting.party("one")
    cid = first_party.commit("first")
    first_party.refs.move_together([(HEAD, None, cid), (RECORD, None, cid)], "test")
    place = HEAD if setting.heads == BRANCHES else "refs/clia/agents-published/scout"
    assert setting.at_hub() == {place: cid, RECORD: cid}
    assert first_party.hub is not None
    assert first_party.hub.fetch(retry_now=True)
    assert first_party.hub.all_tracked() == {HEAD: cid, RECORD: cid}


@with_hub
def test_a_refusal_by_the_hub_is_reported_and_nothing_moves(setting: Setting) -> None:
    """Options of git servers: hidden refs, hooks, and denied deletions and non-fast-forwards for branches."""
    first_party = setting.party("one")
    assert setting.hub is not None
    first = first_party.commit("first")
    second = first_party.commit("second", first)
    first_party.refs.move_together([(HEAD, None, second), (RECORD, None, second)], "test")
    before = setting.at_hub()
    if setting.heads == BRANCHES:
        for option, new in (("receive.denyDeletes", None), ("receive.denyNonFastForwards", first)):
            git("config", option, "true", cwd=setting.hub.repository)
            refused("hub-refused", partial(first_party.refs.move, HEAD, second, new, "test"))
    git("config", "transfer.hideRefs", "refs/clia/events", cwd=setting.hub.repository)
    error = refused("hub-refused", lambda: first_party.refs.move(EVENTS, None, first, "test"))
    assert "hidden" in error.fields["reason"]
    hook = setting.hub.repository / "hooks/update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/clia/agents/scout ]\n')
    hook.chmod(0o755)
    moves = [("refs/clia/types", None, first), (RECORD, second, first)]
    error = refused("hub-refused", lambda: first_party.refs.move_together(moves, "test"))
    assert "hook" in error.fields["reason"]
    git("config", "receive.advertiseAtomic", "false", cwd=setting.hub.repository)
    refused("hub-unfit", lambda: first_party.refs.move_together(moves, "test"))
    assert setting.at_hub() == before
    assert dict(first_party.refs.under("refs/clia/")) | dict(first_party.refs.under("refs/heads/")) == {
        HEAD: second,
        RECORD: second,
    }
    assert not first_party.unpublished.refs
