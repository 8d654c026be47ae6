"""Sync with a hub: forks, outages, purges and abandoned work."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.config import ForgeOptions
from clia.facade.setup import set_up
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from clia.hub.joining import HubTarget
from clia.space.upkeep import RECENT
from clia.testing import components
from support import git
from support.forge import OpenForge
from support.git_hubs import Hub, away
from support.hub_spaces import at_hub, machine, refs_of, work_with_trace
from support.space_driver import settings
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_a_fork_needs_another_name_and_is_never_discarded(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as first, machine(tmp_path / "two", hub) as second:
        first.spawn("scout", BRIEFING)
        second.hub_sync()
        second.claim("scout")
        with away(hub):
            ours = second.commit("scout", "finding", changes={"a": b"ours"})
            first.commit("scout", "finding", changes={"a": b"theirs"})
        first.hub_sync()
        refused("invalid-name", lambda: second.hub_sync(forks={"scout": "scout"}))
        assert second.head("scout") == ours


def test_a_line_without_commits_of_the_agent_can_be_kept_under_another_name(tmp_path: Path, hub: Hub) -> None:
    """A person moved the branch back behind the agent's first commit, and continued."""
    root = tmp_path / "one"
    with machine(root, hub) as space:
        base = space.spawn("other", BRIEFING).genesis
        spawned = space.spawn_at("scout", BRIEFING, base).genesis
        ours = git("commit-tree", "-p", base, "-m", "by hand", f"{base}^{{tree}}", cwd=root).strip()
        git("update-ref", "refs/heads/agents/scout", ours, cwd=root)
        space.hub_sync(forks={"scout": "by-hand"})
        assert (space.head("scout"), space.hub_status().forks) == (spawned, ())
        assert ours in {commit.cid for commit in space.log("by-hand")}
        assert space.briefing_of("by-hand") == BRIEFING


def test_a_key_that_is_rotated_while_the_hub_is_away_is_published_later(tmp_path: Path, hub: Hub) -> None:
    with machine(tmp_path / "one", hub) as space:
        space.rotate_key()
        with away(hub):
            space.rotate_key()
        assert {synced.what for synced in space.hub.sync()} == {"published"}
        assert at_hub(hub)["refs/clia/keys"] == refs_of(tmp_path / "one")["refs/clia/keys"]


def test_verbs_fetch_the_work_of_other_machines_first(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first, machine(tmp_path / "two", hub, store) as second:
        for name in ("scout", "smith"):
            first.spawn(name, BRIEFING)
        second.hub_sync()
        head = first.commit("scout", "finding", changes={"a": b"1"})
        merged = second.merge("smith", "scout")
        assert isinstance(merged, clia.Merged)
        assert head in second.show(merged.cid).parents
        head = first.commit("scout", "finding", changes={"a": b"2"})
        assert second.checkout("scout", tmp_path / "work") == head
        head = first.commit("scout", "finding", changes={"a": b"3"})
        assert second.show(second.spawn_from("sub", BRIEFING, "scout").genesis).parents == (head,)
        head = first.commit("scout", "finding", changes={"a": b"4"})
        assert second.show(second.spawn_at("other", BRIEFING, "scout").genesis).parents == (head,)


@pytest.mark.parametrize("syncs_first", [True, False])
def test_a_hub_restored_from_a_backup_gets_the_newest_work_again_or_a_fork(
    tmp_path: Path, hub: Hub, store: str, syncs_first: bool
) -> None:
    with machine(tmp_path / "one", hub, store) as first, machine(tmp_path / "two", hub, store) as second:
        old = first.spawn("scout", BRIEFING).genesis
        second.hub_sync()
        newest = first.commit("scout", "finding", changes={"a": b"1"})
        git("update-ref", "refs/heads/agents/scout", old, cwd=hub.repository)
        if syncs_first:
            first.hub_sync()
        cid = second.commit("scout", "finding", changes={"a": b"2"})
        assert second.show(cid).parents == (newest if syncs_first else old,)
        first.hub_sync()
        assert first.head("scout") == (cid if syncs_first else newest)
        assert [fork.ours for fork in first.hub_status().forks] == ([] if syncs_first else [newest])


def test_work_continues_during_an_outage_after_a_refusal(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first:
        first.spawn("scout", BRIEFING)
        hook = hub.repository / "hooks/pre-receive"
        hook.write_text("#!/bin/sh\necho frozen for the release >&2\nexit 1\n")
        hook.chmod(0o755)
        error = refused("hub-refused", lambda: first.commit("scout", "finding", changes={"a": b"1"}))
        assert "frozen for the release" in error.message
        with away(hub):
            cid = first.commit("scout", "finding", changes={"a": b"2"})
        hook.unlink()
        first.hub_sync()
        assert git("rev-parse", "refs/heads/agents/scout", cwd=hub.repository).strip() == cid


def test_status_lists_refs_that_are_behind_even_if_removed_or_purged(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first, machine(tmp_path / "two", hub, store) as second:
        for name in ("scout", "smith"):
            first.spawn(name, BRIEFING)
        first.trace("scout", "note", "the word is swordfish")
        first.commit_with_trace("scout", "finding", changes={"a": b"1"})
        second.hub_sync()
        first.archive("smith")
        remaining = first.trace_purge("scout", "swordfish").remaining
        assert (first.hub_status().owed, first.hub_status().behind) == ((), ())
        assert any("other machines" in place for place in remaining)
        assert not any(place.startswith("remote hub") for place in remaining)
        components(second).hub_sync.hub.fetch(retry_now=True)  # type: ignore[union-attr]  # as clia hub status --fetch does
        assert second.hub_status().owed == ()
        assert set(second.hub_status().behind) >= {"refs/heads/agents/smith", "refs/notes/clia/trace/scout"}
        second.hub_sync()
        assert "swordfish" not in str([trace.entries for trace in [second.trace_for(second.head("scout"))] if trace])


def test_unpublished_types_of_a_lost_machine_can_be_abandoned(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first, machine(tmp_path / "two", hub, store) as second:
        with away(hub):
            first.register_type("survey", "finding")
        assert [key for key, _ in second.local.store.scan("owed/")] == ["owed/@types"]
        second.hub_sync(abandon=["types"])
        assert second.local.store.scan("owed/") == []
        refused("nothing-elsewhere", lambda: second.hub_sync(abandon=["types"]))


def test_the_page_of_an_unknown_agent_fetches_it_or_reports_the_outage(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first, ExitStack() as stack:
        application = forge_of([(str(tmp_path / "two"), machine(tmp_path / "two", hub, store))], ForgeOptions())
        stack.callback(application.close)
        forge = OpenForge(application, create_app(application), stack)
        browser = forge.browser()
        first.spawn("scout", BRIEFING)
        with away(hub):
            answer = browser.get(f"{forge.base}/agents/scout")
            assert answer.status_code == 404
            assert "agent &#39;scout&#39; has not been fetched yet: the hub is unreachable" in answer.text
            assert "wait until the hub is reachable" in answer.text
        components(forge.space).hub_sync.hub.clear_outage()  # type: ignore[union-attr]  # without waiting for the retry
        assert browser.get(f"{forge.base}/agents/scout").status_code == 200
        assert forge.space.head("scout") == first.head("scout")
        assert '<h1 class="wrap">no agent &#39;nobody&#39;</h1>' in browser.get(f"{forge.base}/agents/nobody").text


def test_idle_agents_in_the_archive_repository_follow_the_hub(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as first, machine(tmp_path / "two", hub, store) as second:
        for name in ("scout", "smith"):
            first.spawn(name, BRIEFING)
        second.hub_sync()
        for space in (first, second):
            assert components(space).archiving.put_away(["scout", "smith"]) == ["scout", "smith"]
        head = first.commit("scout", "finding", changes={"a": b"1"})
        assert components(first).archiving.names() == ["smith"]
        second.hub_sync()
        assert second.head("scout") == head
        assert components(second).archiving.names() == ["smith"]
        next_head = second.commit("smith", "finding", changes={"a": b"2"})
        first.hub_sync()
        assert first.head("smith") == next_head
        assert all(space.verify().clean for space in (first, second))


@pytest.mark.parametrize("heads", ["branches", "published"])
def test_tracking_refs_of_idle_agents_are_put_away_with_them(tmp_path: Path, hub: Hub, store: str, heads: str) -> None:
    """A person's git would list them: three for each agent of the hub."""
    root = tmp_path / "one"
    first, second = (
        set_up(tmp_path / name, settings=settings(store=store), hub=HubTarget(hub.url, heads)).space for name in ("one", "two")
    )
    with first, second:
        for name in ("scout", "smith", "idle"):
            first.spawn(name, BRIEFING)
            work_with_trace(first, name, "one")
        first.hub.sync()
        second.hub.sync()
        first.local.put_away(["scout", "smith", "idle"])
        assert agents_in(root) == []
        first.hub.sync()
        assert agents_in(root) == [], "a sync does not bring them back"
        status = first.hub.status()
        assert (status.owed, status.behind, status.forks) == ((), (), ())

        head = work_with_trace(second, "scout", "two")
        second.archive("smith")
        first.hub.sync()
        assert (first.head("scout"), first.agents(archived=True)) == (head, ["smith"])
        assert {name.rpartition("/")[2] for name in agents_in(root)} == {"scout", "smith"}
        first.local.put_away(["scout", "smith"])
        assert agents_in(root) == []
        head = work_with_trace(first, "scout", "three")
        assert at_hub(hub)["refs/heads/agents/scout" if heads == "branches" else "refs/clia/agents-published/scout"] == head
        assert second.head("scout") != head
        second.hub.sync()
        assert second.head("scout") == head
        assert first.verify().clean
        first.local.unarchive_all()
        own = [ref for ref in agents_in(root) if "tracking" not in ref]
        assert len(own) == 9, "three agents, each with a head, a record and traces"
        assert len(agents_in(root)) == 2 * len(own)


def test_tracking_refs_of_resting_agents_are_put_away_and_come_back(tmp_path: Path, hub: Hub) -> None:
    """The agents themselves stay, because they are among the newest."""
    times = [datetime(2026, 5, 1, tzinfo=UTC)]
    with machine(tmp_path / "one", hub, clock=lambda: times[-1]) as space:
        for name in ("scout", "smith"):
            space.spawn(name, BRIEFING)
            work_with_trace(space, name, "one")
        space.local.upkeep()
        assert len(agents_in(tmp_path / "one")) == 12, "they work"
        times.append(times[0] + timedelta(seconds=RECENT))
        space.local.upkeep()
        assert [ref for ref in agents_in(tmp_path / "one") if "tracking" in ref] == []
        assert len(agents_in(tmp_path / "one")) == 6
        head = work_with_trace(space, "scout", "two")
        assert at_hub(hub)["refs/heads/agents/scout"] == head
        space.hub.sync()
        status = space.hub.status()
        assert (status.owed, status.behind, status.forks) == ((), (), ())
        assert space.verify().clean


def is_of_agent(ref: str) -> bool:
    return ref.rpartition("/")[2] in ("scout", "smith", "idle")


def agents_in(root: Path) -> list[str]:
    """The refs about agents that a person's git lists."""
    return [ref for ref in refs_of(root) if is_of_agent(ref)]
