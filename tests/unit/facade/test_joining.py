"""Joining a hub: what is refused changes nothing, here and there; and a hub stays the one that was joined."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

import clia
from clia.errors import CliaError
from clia.facade.joining import HubTarget
from clia.facade.setup import set_hub
from clia.store.postgres_store import PostgresStore
from support import git, postgres
from support.git_hubs import Hub, bare
from support.hub_spaces import HEADS, at_hub, machine, opened, owed, refs_of, set_hook, work
from support.space_driver import postgres_url
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK, SPACE = "refs/clia/hub", "refs/clia/space"


@pytest.fixture
def empty(tmp_path: Path) -> Hub:
    made = bare(tmp_path / "empty.git")
    return Hub(str(made), made)


def rejoin(root: Path, address: str, store: str | None = None, **more: bool) -> None:
    set_hub(root, HubTarget(address, **more), settings=settings(store=store)).close()  # type: ignore[arg-type]


def sync(root: Path, store: str | None = None) -> None:
    with opened(root, store) as space:
        space.hub_sync()


def made_anew(hub: Hub) -> None:
    """The repository was lost, and an empty one stands in its place."""
    hub.repository.rename(hub.repository.with_name("lost.git"))
    bare(hub.repository)


def lead_to(root: Path, hub: Hub) -> None:
    git("remote", "set-url", "hub", hub.url, cwd=root)


def all_of(root: Path) -> tuple[dict[str, str], str, bool]:
    """What a refusal must leave as it is: refs, settings, and whether the hub counts as away."""
    return refs_of(root), git("config", "--list", "--local", cwd=root), (root / ".git/clia/hub-away.json").exists()


# What is refused changes nothing


def other_space(top: Path) -> str:
    made = bare(top / "other.git")
    with machine(top / "stranger", Hub(str(made), made)) as stranger:
        stranger.spawn("stranger", BRIEFING)
    return str(made)


REFUSALS: dict[str, Callable[[Path], str]] = {
    "other-space": other_space,
    "hub-away": lambda top: str(top / "typo.git"),
    "hub-unfit": lambda top: str(bare(top / "hiding.git", uploadpack_hideRefs="refs/clia")),
    "hub-refused": lambda top: str(bare(top / "shut.git", receive_hideRefs="refs/clia")),
    "invalid-hub": lambda top: str(top / "one"),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_hub_that_is_refused_changes_nothing_of_the_one_that_there_is(tmp_path: Path, hub: Hub, code: str) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
    address = REFUSALS[code](tmp_path)
    before = all_of(tmp_path / "one")
    refused(code, lambda: rejoin(tmp_path / "one", address))
    assert all_of(tmp_path / "one") == before
    with opened(tmp_path / "one") as one:
        assert (one.hub_status().owed, one.hub_status().behind) == ((), ())
        made = work(one, "scout", "a")  # at once: the hub that there is was never away
        assert (at_hub(hub)[HEADS + "scout"], owed(one)) == (made, [])


def test_a_hub_that_is_away_stays_so_when_another_is_refused(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    hub.repository.rename(tmp_path / "away.git")
    refused("hub-away", lambda: sync(tmp_path / "one"))
    with opened(tmp_path / "one") as one:
        before = one.hub_status().away_since
    refused("other-space", lambda: rejoin(tmp_path / "one", other_space(tmp_path)))
    with opened(tmp_path / "one") as one:
        assert one.hub_status().away_since == before is not None


def test_a_repository_that_could_not_join_holds_no_space(tmp_path: Path, hub: Hub, store: str) -> None:
    machine(tmp_path / "one", hub, store).close()
    root = tmp_path / "code"
    git("init", "--quiet", str(root), cwd=tmp_path)
    before = all_of(root)
    refused("other-store", lambda: machine(root, hub))
    assert all_of(root) == before


@pytest.mark.parametrize("way", [".git", "", "file"])
def test_no_repository_is_its_own_hub(tmp_path: Path, hub: Hub, way: str) -> None:
    root = tmp_path / "one"
    with machine(root, hub) as one:
        one.spawn("scout", BRIEFING)
    address = f"file://{root}" if way == "file" else str(root / way)
    refused("invalid-hub", lambda: rejoin(root, address))
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "side"), HEADS + "scout", cwd=root)
    refused("invalid-hub", lambda: rejoin(root, str(tmp_path / "side")))
    refused("hub-away", lambda: rejoin(root, str(root / "typo.git")))  # in it, and not it


def test_a_hub_with_other_objects_is_told_from_one_that_is_away(tmp_path: Path) -> None:
    made = tmp_path / "long.git"
    git("init", "--quiet", "--bare", "--object-format=sha256", str(made), cwd=tmp_path)
    assert "SHA-256" in refused("hub-unfit", lambda: machine(tmp_path / "one", Hub(str(made), made))).message


# The store comes first


def read_only(address: str) -> str:
    """For somebody who may read the tables of this schema, and nothing else."""
    with closing(PostgresStore(address, "made")) as owner:
        owner.get("tables")
    with psycopg.connect(address, autocommit=True) as server:
        (schema,) = server.execute("SELECT current_schema()").fetchone() or ("",)
        role, place = sql.Identifier(f"reader_{schema}"), sql.Identifier(schema)
        server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        server.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(place, role))
        server.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(place, role))
    return address.replace("//clia@", f"//reader_{schema}@")


def no_database(address: str) -> str:
    return f"{address}&dbname=nothere"


@pytest.mark.parametrize("made", [lambda _: "postgresql://127.0.0.1:1/x", no_database, read_only])
def test_a_hub_is_not_taken_by_a_space_whose_store_fails(tmp_path: Path, hub: Hub, store: str, made: Callable[[str], str]) -> None:
    assert store
    address = made(postgres_url(postgres.fresh()))
    with pytest.raises(CliaError) as caught:
        machine(tmp_path / "one", hub, address)
    assert caught.value.code.startswith("store")
    assert (at_hub(hub), (tmp_path / "one").exists()) == ({}, False)


def test_who_joins_without_the_database_of_the_others_is_told_so(tmp_path: Path, hub: Hub, store: str) -> None:
    machine(tmp_path / "early", hub).close()
    machine(tmp_path / "one", hub, store).close()
    error = refused("other-store", lambda: machine(tmp_path / "two", hub))
    assert any("git config clia.store" in each for each in error.hints)
    assert not (tmp_path / "two").exists()
    rejoin(tmp_path / "early", hub.url)  # it worked so before
    sync(tmp_path / "early")


def test_a_team_goes_back_to_stores_beside_the_repositories_by_a_persons_word(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
    rejoin(tmp_path / "one", hub.url, new_store=True)
    with machine(tmp_path / "two", hub) as two:
        assert (two.agents(), two.hub_status().shared_store) == (["scout"], False)


# The hub stays the one that was joined


def test_a_hub_that_was_made_anew_is_told_again_what_it_is(tmp_path: Path, hub: Hub, store: str) -> None:
    root = tmp_path / "one"
    set_up = HubTarget(hub.url, "published")
    with clia.init(root, settings=settings(store=store)) as one:
        one.spawn("scout", BRIEFING)
    set_hub(root, set_up, settings=settings(store=store)).close()
    sync(root, store)
    before = at_hub(hub)
    made_anew(hub)
    sync(root, store)
    assert at_hub(hub) == before
    with machine(tmp_path / "two", hub, store) as two:
        assert (two.agents(), two.hub_status().heads) == (["scout"], "published")


def test_a_mark_that_the_hub_does_not_take_is_not_forgotten(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    mark = at_hub(hub)[MARK]
    made_anew(hub)
    hook = set_hook(hub, "pre-receive", "exit 1")
    refused("hub-refused", lambda: sync(tmp_path / "one"))
    hook.unlink()
    sync(tmp_path / "one")
    assert at_hub(hub)[MARK] == mark


def test_a_hub_without_a_mark_that_is_full_again_gets_it_back(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        before = at_hub(hub)
        git("update-ref", "-d", MARK, cwd=hub.repository)
        one.hub_sync()
        assert at_hub(hub) == before


def test_an_empty_hub_is_not_marked_by_machines_that_have_another(tmp_path: Path, hub: Hub, empty: Hub, store: str) -> None:
    root = tmp_path / "one"
    machine(root, hub, store).close()
    error = refused("other-hub", lambda: rejoin(root, empty.url, store))
    assert at_hub(empty) == {}
    assert any("clia hub sync" in each for each in error.hints)
    made_anew(hub)
    refused("other-hub", lambda: rejoin(root, hub.url, store))
    assert at_hub(hub) == {}
    sync(root, store)  # as the hint says
    rejoin(root, hub.url, store)


@pytest.mark.parametrize("shared", [True, False])
def test_an_empty_hub_elsewhere_takes_a_persons_word(
    tmp_path: Path, hub: Hub, empty: Hub, request: pytest.FixtureRequest, shared: bool
) -> None:
    store = request.getfixturevalue("store") if shared else None
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        machine(root, hub, store).close()
    with opened(roots[0], store) as one:
        one.spawn("scout", BRIEFING)
    lead_to(roots[0], empty)
    refused("other-hub", lambda: sync(roots[0], store))
    assert at_hub(empty) == {}
    rejoin(roots[0], empty.url, store, new_hub=shared)
    sync(roots[0], store)
    assert at_hub(empty)[HEADS + "scout"]
    if shared:  # who still has the old one is told
        refused("other-hub", lambda: sync(roots[1], store))
    rejoin(roots[1], empty.url, store)
    sync(roots[1], store)


def test_another_hub_of_the_same_space_is_not_taken_for_the_one_that_was_joined(tmp_path: Path, hub: Hub, empty: Hub) -> None:
    for each in ("one", "two"):
        machine(tmp_path / each, hub).close()
    rejoin(tmp_path / "two", empty.url)
    lead_to(tmp_path / "one", empty)
    refused("other-hub", lambda: sync(tmp_path / "one"))
    rejoin(tmp_path / "one", empty.url)
    sync(tmp_path / "one")


def test_a_verb_publishes_nothing_at_an_empty_hub_elsewhere(tmp_path: Path, hub: Hub, empty: Hub) -> None:
    with machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
    lead_to(tmp_path / "one", empty)
    with opened(tmp_path / "one") as one:
        refused("other-hub", lambda: work(one, "scout", "a"))
    assert at_hub(empty) == {}


def test_a_copied_hub_is_the_same_wherever_it_is_and_may_be_made_anew_there(
    tmp_path: Path, hub: Hub, empty: Hub, store: str
) -> None:
    root = tmp_path / "one"
    machine(root, hub, store).close()
    git("push", "--quiet", "--mirror", empty.url, cwd=hub.repository)
    lead_to(root, empty)
    sync(root, store)
    made_anew(empty)
    sync(root, store)
    assert {*at_hub(empty)} == {MARK, SPACE}
