"""Running and forking behaviours of peers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from support import git
from support.behaviour_walks import CHAINS, check_flow, commit_to_ref
from support.federation import Pair, plumbed
from support.session_spaces import root_of, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    import clia


def test_a_session_of_a_peers_flow_is_not_forked_with_a_version_without_permission(pair: Pair) -> None:
    """Neither with a version that a forged note names, nor with one that was retired here."""
    space, root = pair.hearer, pair.place("hearer")
    theirs = space.behaviours.version("ay/forked").cid
    proposed = space.behaviours.propose("review", check_flow(2), agent="one").cid
    foreign = pair.owner.behaviours.get("forked").versions[1].cid
    space.start("one", "ay/forked")
    head = space.commit("one", "finding", {"a.txt": b"a"})
    assert space.fork("one", "honest", at=head).flow == "ay/forked"
    note = git("notes", "--ref=clia/session/one", "show", head, cwd=root)
    for claimed, code in ((proposed, "not-adopted"), (foreign, "execute-denied")):
        blob = plumbed("hash-object", "-w", "--stdin", cwd=root, stdin=note.replace(theirs, claimed))
        git("notes", "--ref=clia/session/one", "add", "-f", "-C", blob, head, cwd=root)
        refused(code, partial(space.fork, "one", "other", at=head))
    space.behaviours.adopt("ay/forked")
    space.behaviours.retire("forked")
    refused("retired", lambda: space.fork("one", "other"))
    assert "other" not in space.agents()


def test_versions_that_the_peer_does_not_permit_do_not_run(pair: Pair) -> None:
    """An execute grant does not cover the peer's proposals, nor a version that it marks as current and retired."""
    space = pair.hearer
    refused("execute-denied", lambda: space.start("two", pair.owner.behaviours.get("hello").versions[1].cid))
    cid = space.behaviours.version("ay/hello").cid
    commit_to_ref(space, "refs/clia/remotes/ay/behaviours/hello", {f"retired/{cid}": b""})
    refused("retired", lambda: space.behaviours.version("ay/hello"))
    refused("retired", lambda: space.start("two", "ay/hello"))


def test_a_version_retired_under_one_name_runs_by_another_name_that_permits_it(pair: Pair) -> None:
    space, root = pair.hearer, pair.place("hearer")
    space.behaviours.adopt("ay/twice")
    git("update-ref", f"{CHAINS}second", f"{CHAINS}twice", cwd=root)
    space.behaviours.retire("twice")
    assert space.start("two", "ay/twice").status == "suspended"
    space.behaviours.retire("second")
    space.cancel("two")
    refused("retired", lambda: space.start("two", "ay/twice"))


def test_a_ref_below_a_behaviours_ref_is_not_a_behaviour(space: clia.Space) -> None:
    root = root_of(space)
    space.spawn("scout", BRIEFING)
    hidden = space.behaviours.propose("review", check_flow(1), agent="scout").cid
    space.behaviours.adopt("review", hidden, trial=True)
    git("update-ref", f"{CHAINS}deep/er", f"{CHAINS}review", cwd=root)
    space.behaviours.retire("review", hidden)
    assert [behaviour.name for behaviour in space.behaviours()] == ["review"]
    refused("retired", lambda: space.start("scout", hidden))


def test_a_session_can_be_started_by_an_abbreviated_version_id(space: clia.Space) -> None:
    trial = with_agents(space, "scout").behaviours.get("review").versions[1].cid
    refused("no-such-flow", lambda: space.start("scout", "0123abc"))
    assert space.start("scout", trial[:12], 1).status == "suspended"
    assert space.commit("scout", "test", {"a": b"1"})
    assert space.history.own("scout")[0].behaviour == trial
