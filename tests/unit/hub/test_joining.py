"""Joining a hub: a refusal changes nothing on either side, and the hub stays the one that was joined."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

import clia
from clia.errors import CliaError
from clia.facade.setup import set_hub, set_up
from clia.hub.joining import HubTarget
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
    repository = bare(tmp_path / "empty.git")
    return Hub(str(repository), repository)


def rejoin(root: Path, address: str, store: str | None = None, **more: bool) -> None:
    set_hub(root, HubTarget(address, **more), settings=settings(store=store)).close()  # type: ignore[arg-type]


def sync(root: Path, store: str | None = None) -> None:
    with opened(root, store) as space:
        space.hub.sync()


def replace_by_empty(hub: Hub) -> None:
    """Replace a lost repository by an empty one."""
    hub.repository.rename(hub.repository.with_name("lost.git"))
    bare(hub.repository)


def point_to(root: Path, hub: Hub) -> None:
    git("remote", "set-url", "hub", hub.url, cwd=root)


def state_of(root: Path) -> tuple[dict[str, str], str, bool]:
    """What a refusal must not change: refs, settings, and whether the hub counts as unreachable."""
    return refs_of(root), git("config", "--list", "--local", cwd=root), (root / ".git/clia/hub-away.json").exists()


# Refusals


def other_space(top: Path) -> str:
    repository = bare(top / "other.git")
    with machine(top / "stranger", Hub(str(repository), repository)) as stranger:
        stranger.spawn("stranger", BRIEFING)
    return str(repository)


REFUSALS: dict[str, Callable[[Path], str]] = {
    "other-space": other_space,
    "hub-away": lambda top: str(top / "typo.git"),
    "hub-unfit": lambda top: str(bare(top / "hiding.git", uploadpack_hideRefs="refs/clia")),
    "hub-refused": lambda top: str(bare(top / "shut.git", receive_hideRefs="refs/clia")),
    "invalid-hub": lambda top: str(top / "one"),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_hub_leaves_the_current_one_unchanged(tmp_path: Path, hub: Hub, code: str) -> None:
    with machine(tmp_path / "one", hub) as first:
        first.spawn("scout", BRIEFING)
    address = REFUSALS[code](tmp_path)
    before = state_of(tmp_path / "one")
    refused(code, lambda: rejoin(tmp_path / "one", address))
    assert state_of(tmp_path / "one") == before
    with opened(tmp_path / "one") as first:
        assert (first.hub.status().owed, first.hub_status().behind) == ((), ())
        cid = work(first, "scout", "a")  # published at once: the current hub was always reachable
        assert (at_hub(hub)[HEADS + "scout"], owed(first)) == (cid, [])


def test_a_refused_hub_does_not_end_the_outage_of_the_current_one(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    hub.repository.rename(tmp_path / "away.git")
    refused("hub-away", lambda: sync(tmp_path / "one"))
    with opened(tmp_path / "one") as first:
        before = first.hub.status().away_since
    refused("other-space", lambda: rejoin(tmp_path / "one", other_space(tmp_path)))
    with opened(tmp_path / "one") as first:
        assert first.hub.status().away_since == before is not None


def test_a_failed_join_leaves_no_space(tmp_path: Path, hub: Hub, store: str) -> None:
    machine(tmp_path / "one", hub, store).close()
    root = tmp_path / "code"
    git("init", "--quiet", str(root), cwd=tmp_path)
    before = state_of(root)
    refused("other-store", lambda: machine(root, hub))
    assert state_of(root) == before


@pytest.mark.parametrize("address_form", [".git", "", "file"])
def test_a_repository_cannot_be_its_own_hub(tmp_path: Path, hub: Hub, address_form: str) -> None:
    root = tmp_path / "one"
    with machine(root, hub) as first:
        first.spawn("scout", BRIEFING)
    address = f"file://{root}" if address_form == "file" else str(root / address_form)
    refused("invalid-hub", lambda: rejoin(root, address))
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "side"), HEADS + "scout", cwd=root)
    refused("invalid-hub", lambda: rejoin(root, str(tmp_path / "side")))
    refused("hub-away", lambda: rejoin(root, str(root / "typo.git")))  # a path inside the repository is another repository


def test_a_hub_with_another_object_format_is_unfit(tmp_path: Path) -> None:
    repository = tmp_path / "long.git"
    git("init", "--quiet", "--bare", "--object-format=sha256", str(repository), cwd=tmp_path)
    assert "SHA-256" in refused("hub-unfit", lambda: machine(tmp_path / "one", Hub(str(repository), repository))).message


# The store


def read_only(address: str) -> str:
    """The address for a role that may only read the tables of this schema."""
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


@pytest.mark.parametrize("address_of", [lambda _: "postgresql://127.0.0.1:1/x", no_database, read_only])
def test_a_space_whose_store_fails_does_not_mark_the_hub(
    tmp_path: Path, hub: Hub, store: str, address_of: Callable[[str], str]
) -> None:
    assert store
    address = address_of(postgres_url(postgres.fresh()))
    with pytest.raises(CliaError) as caught:
        machine(tmp_path / "one", hub, address)
    assert caught.value.code.startswith("store")
    assert (at_hub(hub), (tmp_path / "one").exists()) == ({}, False)


def test_a_machine_without_the_shared_database_cannot_join(tmp_path: Path, hub: Hub, store: str) -> None:
    machine(tmp_path / "early", hub).close()
    machine(tmp_path / "one", hub, store).close()
    error = refused("other-store", lambda: machine(tmp_path / "two", hub))
    assert any("git config clia.store" in hint for hint in error.hints)
    assert not (tmp_path / "two").exists()
    rejoin(tmp_path / "early", hub.url)  # it joined before the others had a database
    sync(tmp_path / "early")


def test_a_team_can_return_to_sqlite_stores_explicitly(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first:
        first.spawn("scout", BRIEFING)
    rejoin(tmp_path / "one", hub.url, new_store=True)
    with machine(tmp_path / "two", hub) as second:
        assert (second.agents(), second.hub.status().shared_store) == (["scout"], False)


# The hub stays the one that was joined


def test_a_recreated_hub_is_marked_again(tmp_path: Path, hub: Hub, store: str) -> None:
    root = tmp_path / "one"
    set_up = HubTarget(hub.url, "published")
    with clia.init(root, settings=settings(store=store)) as first:
        first.spawn("scout", BRIEFING)
    set_hub(root, set_up, settings=settings(store=store)).close()
    sync(root, store)
    before = at_hub(hub)
    replace_by_empty(hub)
    sync(root, store)
    assert at_hub(hub) == before
    with clia.init(tmp_path / "two", settings=settings(store=store), hub=hub.url) as second:
        assert (second.agents(), second.hub.status().heads) == (["scout"], "published")


def test_a_hub_is_probed_once_by_the_machine_that_marks_it(tmp_path: Path, hub: Hub, store: str) -> None:
    """With a shared database the mark is written twice: the second one adds the id of the database."""
    pushes = tmp_path / "pushes"
    hook = set_hook(hub, "pre-receive", f"cat >>{pushes}")
    for name in ("one", "two"):
        machine(tmp_path / name, hub, store).close()
    hook.unlink()
    refs = [line.split()[2] for line in pushes.read_text("utf-8").splitlines()]
    assert (refs.count("refs/clia/probe"), refs.count(MARK)) == (2, 2)  # the probe is created and removed


def test_a_refused_mark_is_pushed_again(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    mark = at_hub(hub)[MARK]
    replace_by_empty(hub)
    hook = set_hook(hub, "pre-receive", "exit 1")
    refused("hub-refused", lambda: sync(tmp_path / "one"))
    hook.unlink()
    sync(tmp_path / "one")
    assert at_hub(hub)[MARK] == mark


def test_a_hub_that_lost_its_mark_gets_it_back(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as first:
        before = at_hub(hub)
        git("update-ref", "-d", MARK, cwd=hub.repository)
        first.hub.sync()
        assert at_hub(hub) == before


def test_an_empty_hub_is_not_marked_by_machines_with_another_hub(tmp_path: Path, hub: Hub, empty: Hub, store: str) -> None:
    root = tmp_path / "one"
    machine(root, hub, store).close()
    error = refused("other-hub", lambda: rejoin(root, empty.url, store))
    assert at_hub(empty) == {}
    assert any("clia hub sync" in hint for hint in error.hints)
    replace_by_empty(hub)
    refused("other-hub", lambda: rejoin(root, hub.url, store))
    assert at_hub(hub) == {}
    sync(root, store)  # as the hint says
    rejoin(root, hub.url, store)


@pytest.mark.parametrize("shared", [True, False])
def test_an_empty_hub_at_another_address_must_be_confirmed(
    tmp_path: Path, hub: Hub, empty: Hub, request: pytest.FixtureRequest, shared: bool
) -> None:
    store = request.getfixturevalue("store") if shared else None
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        machine(root, hub, store).close()
    with opened(roots[0], store) as first:
        first.spawn("scout", BRIEFING)
    point_to(roots[0], empty)
    refused("other-hub", lambda: sync(roots[0], store))
    assert at_hub(empty) == {}
    rejoin(roots[0], empty.url, store, new_hub=shared)
    sync(roots[0], store)
    assert at_hub(empty)[HEADS + "scout"]
    if shared:  # machines with the old hub are refused
        refused("other-hub", lambda: sync(roots[1], store))
    rejoin(roots[1], empty.url, store)
    sync(roots[1], store)


def test_another_hub_of_the_same_space_must_be_joined_explicitly(tmp_path: Path, hub: Hub, empty: Hub) -> None:
    for name in ("one", "two"):
        machine(tmp_path / name, hub).close()
    rejoin(tmp_path / "two", empty.url)
    point_to(tmp_path / "one", empty)
    refused("other-hub", lambda: sync(tmp_path / "one"))
    rejoin(tmp_path / "one", empty.url)
    sync(tmp_path / "one")


def test_a_verb_publishes_nothing_to_an_empty_hub_at_another_address(tmp_path: Path, hub: Hub, empty: Hub) -> None:
    with machine(tmp_path / "one", hub) as first:
        first.spawn("scout", BRIEFING)
    point_to(tmp_path / "one", empty)
    with opened(tmp_path / "one") as first:
        refused("other-hub", lambda: work(first, "scout", "a"))
    assert at_hub(empty) == {}


def test_a_machine_joins_again_after_another_has_chosen_where_heads_are_kept(tmp_path: Path, hub: Hub) -> None:
    root = tmp_path / "one"
    with (
        set_up(root, settings=settings(), hub=HubTarget(hub.url, "published")).space as first,
        machine(tmp_path / "two", hub) as second,
    ):
        refused("other-heads", lambda: first.spawn("scout", BRIEFING))
        refused("other-heads", first.hub.sync)
        rejoin(root, "hub")
        with opened(root) as first_again:
            first_again.spawn("scout", BRIEFING)
        second.hub.sync()
        assert second.agents() == ["scout"]


def test_a_copied_hub_is_the_same_hub_and_may_be_recreated(tmp_path: Path, hub: Hub, empty: Hub, store: str) -> None:
    root = tmp_path / "one"
    machine(root, hub, store).close()
    git("push", "--quiet", "--mirror", empty.url, cwd=hub.repository)
    point_to(root, empty)
    sync(root, store)
    replace_by_empty(empty)
    sync(root, store)
    of_machine = {ref for ref in refs_of(root) if ref.startswith(("refs/clia/log/", "refs/clia/checkpoints/"))}
    assert len(of_machine) == 2, "the machine's own"
    assert {*at_hub(empty)} == {MARK, SPACE, "refs/clia/keys", *of_machine}
