"""What users of a hub have run into: each was wrong once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.config import ForgeOptions
from clia.facade.joining import HubWish
from clia.facade.setup import move_store, set_hub, set_up
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from clia.testing import components
from support import git, postgres
from support.forge import OpenForge
from support.git_hubs import Hub, away, bare
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


def at_hub(hub: Hub) -> list[str]:
    return git("for-each-ref", "--format=%(refname)", cwd=hub.repository).split()


def test_our_line_of_a_fork_needs_another_name_and_is_never_given_up(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as one, machine(tmp_path / "two", hub) as two:
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        two.claim("scout")
        with away(hub):
            ours = two.commit("scout", "finding", changes={"a": b"ours"})
            one.commit("scout", "finding", changes={"a": b"theirs"})
        one.hub_sync()
        refused("invalid-name", lambda: two.hub_sync(forks={"scout": "scout"}))
        assert two.head("scout") == ours


def test_who_goes_on_from_an_agent_takes_what_other_machines_did_to_it(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        for name in ("scout", "smith"):
            one.spawn(name, BRIEFING)
        two.hub_sync()
        head = one.commit("scout", "finding", changes={"a": b"1"})
        merged = two.merge("smith", "scout")
        assert isinstance(merged, clia.Merged)
        assert head in two.show(merged.cid).parents
        head = one.commit("scout", "finding", changes={"a": b"2"})
        assert two.checkout("scout", tmp_path / "work") == head
        head = one.commit("scout", "finding", changes={"a": b"3"})
        assert two.show(two.spawn_from("sub", BRIEFING, "scout").genesis).parents == (head,)
        head = one.commit("scout", "finding", changes={"a": b"4"})
        assert two.show(two.spawn_at("other", BRIEFING, "scout").genesis).parents == (head,)


@pytest.mark.parametrize("syncs_first", [True, False])
def test_a_hub_from_an_old_backup_gets_the_newest_work_again_or_it_becomes_the_fork(
    tmp_path: Path, hub: Hub, store: str, syncs_first: bool
) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        old = one.spawn("scout", BRIEFING).genesis
        two.hub_sync()
        newest = one.commit("scout", "finding", changes={"a": b"1"})
        git("update-ref", "refs/heads/agents/scout", old, cwd=hub.repository)
        if syncs_first:
            one.hub_sync()
        made = two.commit("scout", "finding", changes={"a": b"2"})
        assert two.show(made).parents == (newest if syncs_first else old,)
        one.hub_sync()
        assert one.head("scout") == (made if syncs_first else newest)
        assert [each.ours for each in one.hub_status().forks] == ([] if syncs_first else [newest])


def test_where_heads_are_kept_is_one_decision_for_all_machines(tmp_path: Path, hub: Hub) -> None:
    set_up(tmp_path / "one", settings=settings(), hub=HubWish(hub.url, "published")).space.close()
    with machine(tmp_path / "two", hub) as two, clia.open(tmp_path / "one", settings=settings()) as one:
        assert two.hub_status().heads == "published"
        one.spawn("scout", BRIEFING)
        two.hub_sync()
        assert two.agents() == ["scout"]
    refused("other-heads", lambda: set_hub(tmp_path / "two", HubWish(hub.url, "branches"), settings=settings()))
    assert git("config", "clia.hubHeads", cwd=tmp_path / "two").strip() == "published"


def test_machines_that_share_a_store_share_a_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    other = bare(tmp_path / "other.git")
    machine(tmp_path / "one", hub, store).close()
    machine(tmp_path / "two", hub, store).close()
    before = git("config", "--list", "--local", cwd=tmp_path / "two")
    refused("other-hub", lambda: set_hub(tmp_path / "two", HubWish(str(other)), settings=settings(store=store)))
    assert git("config", "--list", "--local", cwd=tmp_path / "two") == before
    moved = tmp_path / "moved.git"
    git("clone", "--quiet", "--mirror", hub.url, str(moved), cwd=tmp_path)
    set_hub(tmp_path / "two", HubWish(str(moved)), settings=settings(store=store)).close()  # the same hub, elsewhere


def test_what_the_hub_refused_keeps_nobody_from_working_while_it_is_away(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one:
        one.spawn("scout", BRIEFING)
        hook = hub.repository / "hooks/pre-receive"
        hook.write_text("#!/bin/sh\necho frozen for the release >&2\nexit 1\n")
        hook.chmod(0o755)
        error = refused("hub-refused", lambda: one.commit("scout", "finding", changes={"a": b"1"}))
        assert "frozen for the release" in error.message
        with away(hub):
            made = one.commit("scout", "finding", changes={"a": b"2"})
        hook.unlink()
        one.hub_sync()
        assert git("rev-parse", "refs/heads/agents/scout", cwd=hub.repository).strip() == made


def test_status_tells_who_has_to_follow_also_where_a_ref_is_gone_or_was_purged(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        for name in ("scout", "smith"):
            one.spawn(name, BRIEFING)
        one.trace("scout", "note", "the word is swordfish")
        one.commit_with_trace("scout", "finding", changes={"a": b"1"})
        two.hub_sync()
        one.archive("smith")
        left = one.trace_purge("scout", "swordfish").remaining
        assert (one.hub_status().owed, one.hub_status().behind) == ((), ())
        assert any("other machines" in each for each in left)
        assert not any(each.startswith("remote hub") for each in left)
        components(two).hub_sync._hub.fetch(retry_now=True)  # type: ignore[union-attr]  # what clia hub status --fetch does
        assert two.hub_status().owed == ()
        assert set(two.hub_status().behind) >= {"refs/heads/agents/smith", "refs/notes/clia/trace/scout"}
        two.hub_sync()
        assert "swordfish" not in str([each.entries for each in [two.trace_for(two.head("scout"))] if each])


def test_a_space_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    refused("hub-away", lambda: clia.init(tmp_path / "new", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    error = refused("hub-away", lambda: clia.init(tmp_path / "empty", settings=settings(), hub=str(tmp_path / "nowhere.git")))
    assert error.hints == ("no hub was joined: look at the address, and try again when it can be reached",)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_hub_that_is_no_remote_is_said(tmp_path: Path, hub: Hub) -> None:
    machine(tmp_path / "one", hub).close()
    git("remote", "remove", "hub", cwd=tmp_path / "one")
    refused("no-such-remote", lambda: clia.open(tmp_path / "one", settings=settings()))
    set_hub(tmp_path / "one", HubWish(hub.url), settings=settings()).close()


def test_what_a_lost_machine_owes_of_a_chain_can_be_given_up(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        with away(hub):
            one.register_type("survey", "finding")
        assert [key for key, _ in two.core.store.scan("owed/")] == ["owed/@types"]
        two.hub_sync(abandon=["types"])
        assert two.core.store.scan("owed/") == []
        refused("nothing-elsewhere", lambda: two.hub_sync(abandon=["types"]))


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
    wish = HubWish(str(hub.url), new_store=True)
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


def test_a_page_of_an_agent_that_has_not_come_here_fetches_it_or_says_that_the_hub_is_away(
    tmp_path: Path, hub: Hub, store: str
) -> None:
    with machine(tmp_path / "one", hub, store) as one, ExitStack() as stack:
        made = forge_of([(str(tmp_path / "two"), machine(tmp_path / "two", hub, store))], ForgeOptions())
        stack.callback(made.close)
        forge = OpenForge(made, create_app(made), stack)
        browser = forge.browser()
        one.spawn("scout", BRIEFING)
        with away(hub):
            answer = browser.get(f"{forge.base}/agents/scout")
            assert answer.status_code == 404
            assert "agent &#39;scout&#39; has not been fetched yet: the hub is unreachable" in answer.text
            assert "wait until the hub is reachable" in answer.text
        components(forge.space).hub_sync._hub._clear_outage()  # type: ignore[union-attr]  # and not only after a while
        assert browser.get(f"{forge.base}/agents/scout").status_code == 200
        assert forge.space.head("scout") == one.head("scout")
        assert "is no agent &#39;nobody&#39; here" in browser.get(f"{forge.base}/agents/nobody").text
