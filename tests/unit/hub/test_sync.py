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
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path


def machine(root: Path, hub: Hub, store: str | None = None) -> clia.Space:
    return clia.init(root, settings=settings(store=store), hub=hub.url)


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
        components(two).hub_sync.hub.fetch(retry_now=True)  # type: ignore[union-attr]  # what clia hub status --fetch does
        assert two.hub_status().owed == ()
        assert set(two.hub_status().behind) >= {"refs/heads/agents/smith", "refs/notes/clia/trace/scout"}
        two.hub_sync()
        assert "swordfish" not in str([each.entries for each in [two.trace_for(two.head("scout"))] if each])


def test_what_a_lost_machine_owes_of_a_chain_can_be_given_up(tmp_path: Path, hub: Hub, store: str) -> None:
    with machine(tmp_path / "one", hub, store) as one, machine(tmp_path / "two", hub, store) as two:
        with away(hub):
            one.register_type("survey", "finding")
        assert [key for key, _ in two.core.store.scan("owed/")] == ["owed/@types"]
        two.hub_sync(abandon=["types"])
        assert two.core.store.scan("owed/") == []
        refused("nothing-elsewhere", lambda: two.hub_sync(abandon=["types"]))


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
        components(forge.space).hub_sync.hub.clear_outage()  # type: ignore[union-attr]  # and not only after a while
        assert browser.get(f"{forge.base}/agents/scout").status_code == 200
        assert forge.space.head("scout") == one.head("scout")
        assert "is no agent &#39;nobody&#39; here" in browser.get(f"{forge.base}/agents/nobody").text
