"""Sync with a hub: forks, outages, purges and abandoned work."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.config import ForgeOptions
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from clia.testing import components
from support import git
from support.forge import OpenForge
from support.git_hubs import Hub, away
from support.hub_spaces import machine
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
