from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.joining import HubTarget
from clia.facade.setup import move_store, set_hub, set_up
from support import git, postgres
from support.git_hubs import Hub, bare
from support.space_driver import postgres_url
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def other_store(store: str) -> str:
    """Another database, as it were: nothing of the first one is in it."""
    assert store
    return postgres_url(postgres.fresh())


def machine(root: Path, hub: Hub, store: str | None = None) -> clia.Space:
    return clia.init(root, settings=settings(store=store), hub=hub.url)


def test_where_heads_are_kept_is_one_decision_for_all_machines(tmp_path: Path, hub: Hub) -> None:
    set_up(tmp_path / "one", settings=settings(), hub=HubTarget(hub.url, "published")).space.close()
    with machine(tmp_path / "two", hub) as two, clia.open(tmp_path / "one", settings=settings()) as one:
        assert two.hub_status().heads == "published"
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        assert two.agents() == ["scout"]
    refused("other-heads", lambda: set_hub(tmp_path / "two", HubTarget(hub.url, "branches"), settings=settings()))
    assert git("config", "clia.hubHeads", cwd=tmp_path / "two").strip() == "published"


def test_machines_that_share_a_store_share_a_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    other = bare(tmp_path / "other.git")
    machine(tmp_path / "one", hub, store).close()
    machine(tmp_path / "two", hub, store).close()
    before = git("config", "--list", "--local", cwd=tmp_path / "two")
    refused("other-hub", lambda: set_hub(tmp_path / "two", HubTarget(str(other)), settings=settings(store=store)))
    assert git("config", "--list", "--local", cwd=tmp_path / "two") == before
    moved = tmp_path / "moved.git"
    git("clone", "--quiet", "--mirror", hub.url, str(moved), cwd=tmp_path)
    set_hub(tmp_path / "two", HubTarget(str(moved)), settings=settings(store=store)).close()  # the same hub, elsewhere


def test_a_space_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    refused("hub-away", lambda: clia.init(tmp_path / "new", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    error = refused("hub-away", lambda: clia.init(tmp_path / "empty", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert error.hints == ("no hub was joined: check the address, and try again when it can be reached",)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_hub_that_is_no_remote_is_said(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    git("remote", "remove", "hub", cwd=tmp_path / "one")
    refused("no-such-remote", lambda: clia.open(tmp_path / "one", settings=settings()))
    set_hub(tmp_path / "one", HubTarget(hub.url), settings=settings()).close()


def test_a_machine_with_another_database_is_told_so_and_joins_nothing(
    tmp_path: Path, hub: Hub, store: str, other_store: str
) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
        assert refused("other-store", lambda: machine(tmp_path / "two", hub, other_store)).fields == {"field": "store"}
        assert not (tmp_path / "two").exists()
    refused("other-store", lambda: clia.open(tmp_path / "one", settings=settings(store=other_store)))
    machine(tmp_path / "two", hub, store).close()


def test_a_database_that_is_gone_for_good_is_replaced_by_a_persons_word(
    tmp_path: Path, hub: Hub, store: str, other_store: str
) -> None:
    machine(tmp_path / "one", hub, store).close()
    wish = HubTarget(str(hub.url), new_store=True)
    with set_hub(tmp_path / "one", wish, settings=settings(store=other_store)) as one:
        one.spawn("scout", BRIEFING)
    with machine(tmp_path / "two", hub, other_store) as two:
        assert two.agents() == ["scout"]
    refused("other-store", lambda: machine(tmp_path / "three", hub, store))


def test_a_machine_that_leaves_its_sqlite_store_goes_to_the_database_of_the_others(
    tmp_path: Path, hub: Hub, store: str, other_store: str
) -> None:
    machine(tmp_path / "two", hub).close()
    machine(tmp_path / "one", hub, store).close()
    refused("other-store", lambda: move_store(tmp_path / "two", settings(store=other_store)))
    clia.open(tmp_path / "two", settings=settings()).close()  # nothing was moved
    assert move_store(tmp_path / "two", settings(store=store)) is not None
