"""Setting the hub and the store of a space, on machines that share a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.setup import move_store, set_hub, set_up
from clia.hub.joining import HubTarget
from support import git, postgres
from support.git_hubs import Hub, bare
from support.hub_spaces import machine
from support.space_driver import postgres_url
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def other_store(store: str) -> str:
    """An empty schema, which stands for another database."""
    assert store
    return postgres_url(postgres.fresh())


def test_all_machines_keep_heads_at_the_same_refs(tmp_path: Path, hub: Hub) -> None:
    set_up(tmp_path / "one", settings=settings(), hub=HubTarget(hub.url, "published")).space.close()
    joining = clia.init(tmp_path / "two", settings=settings(), hub=hub.url)
    with joining as second, clia.open(tmp_path / "one", settings=settings()) as first:
        assert second.hub.status().heads == "published"
        first.spawn("scout", BRIEFING)
        second.hub.sync()
        assert second.agents() == ["scout"]
    refused("other-heads", lambda: set_hub(tmp_path / "two", HubTarget(hub.url, "branches"), settings=settings()))
    assert git("config", "clia.hubHeads", cwd=tmp_path / "two").strip() == "published"


def test_machines_that_share_a_store_share_a_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    other_hub = bare(tmp_path / "other.git")
    machine(tmp_path / "one", hub, store).close()
    machine(tmp_path / "two", hub, store).close()
    before = git("config", "--list", "--local", cwd=tmp_path / "two")
    refused("other-hub", lambda: set_hub(tmp_path / "two", HubTarget(str(other_hub)), settings=settings(store=store)))
    assert git("config", "--list", "--local", cwd=tmp_path / "two") == before
    moved = tmp_path / "moved.git"
    git("clone", "--quiet", "--mirror", hub.url, str(moved), cwd=tmp_path)
    set_hub(tmp_path / "two", HubTarget(str(moved)), settings=settings(store=store)).close()  # the same hub at another address


def test_a_failed_init_leaves_nothing_behind(tmp_path: Path) -> None:
    refused("hub-away", lambda: clia.init(tmp_path / "new", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    error = refused("hub-away", lambda: clia.init(tmp_path / "empty", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert error.hints == ("no hub was joined: check the address, and try again when it can be reached",)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_missing_remote_is_reported(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    git("remote", "remove", "hub", cwd=tmp_path / "one")
    refused("no-such-remote", lambda: clia.open(tmp_path / "one", settings=settings()))
    set_hub(tmp_path / "one", HubTarget(hub.url), settings=settings()).close()


def test_a_machine_with_another_database_cannot_join(tmp_path: Path, hub: Hub, store: str, other_store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first:
        first.spawn("scout", BRIEFING)
        assert refused("other-store", lambda: machine(tmp_path / "two", hub, other_store)).fields == {"field": "store"}
        assert not (tmp_path / "two").exists()
    refused("other-store", lambda: clia.open(tmp_path / "one", settings=settings(store=other_store)))
    machine(tmp_path / "two", hub, store).close()


def test_a_lost_database_can_be_replaced_explicitly(tmp_path: Path, hub: Hub, store: str, other_store: str) -> None:
    machine(tmp_path / "one", hub, store).close()
    target = HubTarget(str(hub.url), new_store=True)
    with set_hub(tmp_path / "one", target, settings=settings(store=other_store)) as first:
        first.spawn("scout", BRIEFING)
    with machine(tmp_path / "two", hub, other_store) as second:
        assert second.agents() == ["scout"]
    refused("other-store", lambda: machine(tmp_path / "three", hub, store))


def test_a_machine_can_move_its_sqlite_store_only_to_the_shared_database(
    tmp_path: Path, hub: Hub, store: str, other_store: str
) -> None:
    machine(tmp_path / "two", hub).close()
    machine(tmp_path / "one", hub, store).close()
    refused("other-store", lambda: move_store(tmp_path / "two", settings(store=other_store)))
    clia.open(tmp_path / "two", settings=settings()).close()  # nothing was moved
    assert move_store(tmp_path / "two", settings(store=store)) is not None
