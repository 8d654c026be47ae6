"""Federation and the rest of a space: verify, clones, traces, relations, purging, upkeep and the feed know about peers."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia
from clia.cli.main import main
from clia.store.interface import GateFacts, GrantFact
from clia.testing import components
from support import git
from support.federation import Pair, codes, plumbed
from support.spaces import BRIEFING, refused, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOUT = "refs/clia/remotes/ay/agents/scout"
NOTES = "refs/clia/remotes/ay/notes/trace/scout"
CAPABILITIES = "refs/clia/capabilities"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """The hearer tracks the owner's agent ``scout`` with one trace."""
    made = Pair(tmp_path)
    made.agent(made.owner, "scout", "1")
    made.owner.trace("scout", "console", "a secret word")
    made.owner.commit_with_trace("scout", "finding", {"a.txt": b"theirs\n"})
    made.owner.announce("bee")
    made.grant()
    assert not made.sync().refused
    yield made
    made.owner.close()
    made.hearer.close()


def found(space: clia.Space) -> set[tuple[str, str | None]]:
    return {(each.code, each.ref) for each in space.verify().findings}


def pointed(pair: Pair, side: str, ref: str, to: str) -> None:
    git("update-ref", ref, to, cwd=pair.place(side))


def test_verify_is_clean_and_changes_nothing(pair: Pair) -> None:
    before = pair.state()
    assert (found(pair.owner), found(pair.hearer)) == (set(), set())
    assert pair.state() == before


def test_verify_finds_what_is_tracked_and_is_not_what_its_ref_says(pair: Pair) -> None:
    own = pair.hearer.spawn("mine", BRIEFING).genesis
    blob = "refs/clia/remotes/ay/records/scout"
    chain = git("rev-parse", "refs/clia/peers/ay", cwd=pair.place("hearer")).strip()
    odd, gone = "refs/clia/remotes/ay/odd", "refs/clia/remotes/gone/announce"
    for ref, to in ((SCOUT, own), (blob, own), (NOTES, chain), (odd, own), (gone, own)):
        pointed(pair, "hearer", ref, to)
    assert found(pair.hearer) == {
        ("wrong-agent", SCOUT),
        ("not-a-record", blob),
        ("not-notes", NOTES),
        ("unknown-place", odd),
        ("unknown-peer", gone),
    }
    pair.hearer.maintain()
    assert ("unknown-peer", gone) not in found(pair.hearer)


def test_verify_finds_peers_keys_and_chains_that_cannot_be_read(pair: Pair) -> None:
    where = pair.place("owner")
    head = pair.owner.head("scout")
    pair.append(pair.tokens()[0])  # said again: not what follows
    pointed(pair, "owner", "refs/clia/keys", head)
    pointed(pair, "owner", "refs/clia/peers-removed/x", head)
    os.chmod(next(Path(where, ".git/clia/keys").iterdir()), 0o644)
    assert found(pair.owner) == {
        ("chain-broken", pair.chain_ref),
        ("key-exposed", None),
        ("invalid-peer", "refs/clia/peers-removed/x"),
    }
    link = git("log", "-1", "--format=%B", "refs/clia/announce/" + pair.hearer.id, cwd=where).replace("Announcement", "Key")
    forged = git("commit-tree", plumbed("mktree", cwd=where), "-m", link, cwd=where).strip()
    pointed(pair, "owner", "refs/clia/keys", forged)
    assert any(ref == "refs/clia/keys" for _, ref in found(pair.owner))


def test_verify_finds_capabilities_whose_files_or_compiled_facts_differ(pair: Pair) -> None:
    where, hearer = pair.place("hearer"), pair.hearer
    tip = git("rev-parse", CAPABILITIES, cwd=where).strip()
    empty = git("commit-tree", plumbed("mktree", cwd=where), "-p", tip, "-m", "odd", cwd=where).strip()
    pointed(pair, "hearer", CAPABILITIES, empty)
    assert found(hearer) == {("not-a-capability", CAPABILITIES), ("capabilities-differ", CAPABILITIES)}
    pointed(pair, "hearer", CAPABILITIES, tip)
    assert hearer.allowed("ay", "finding", "head-move")
    with hearer.core.store.writing() as transaction:
        facts = components(hearer).capabilities.facts()
        more = GrantFact("0" * 40, pair.owner.id, "decision", "merge")
        transaction.gate.load(GateFacts((*facts.grants, more), facts.trusted, facts.parents))
    assert found(hearer) == {("gate-differs", CAPABILITIES)}
    hearer.rebuild()
    assert hearer.allowed("ay", "finding", "head-move")
    assert found(hearer) == set()


def cloned(pair: Pair, of: str, tmp_path: Path) -> tuple[Path, clia.Space]:
    """Another clone of a space, with a bare repository between the two."""
    bare, at = tmp_path / "between.git", tmp_path / "clone"
    git("init", "--quiet", "--bare", str(bare), cwd=tmp_path)
    git("remote", "add", "origin", str(bare), cwd=pair.place(of))
    space = pair.owner if of == "owner" else pair.hearer
    space.publish(space.agents())
    git("clone", "--quiet", str(bare), str(at), cwd=tmp_path)
    git("fetch", "--quiet", "origin", "refs/clia/space:refs/clia/space", cwd=at)
    return at, clia.open(at, settings=pair.settings())


def test_keys_and_capabilities_go_to_other_clones_only_where_asked_and_unite(pair: Pair, tmp_path: Path) -> None:
    """A revocation in either clone wins; peers, positions and what is tracked belong to one clone."""
    hearer = pair.hearer
    hearer.spawn("mine", BRIEFING)
    at, clone = cloned(pair, "hearer", tmp_path)
    with clone:
        clone.adopt()
        assert not clone.grants()
        hearer.publish([], federation=True)
        git(
            "push",
            "--quiet",
            "origin",
            "refs/clia/remotes/*:refs/clia/remotes/*",
            "refs/clia/peers/*:refs/clia/peers/*",
            cwd=pair.place("hearer"),
        )
        clone.adopt()
        listed = git("for-each-ref", "--format=%(refname)", "refs/clia/", cwd=at).split()
        assert "refs/clia/keys" in listed
        assert not [each for each in listed if each.startswith(("refs/clia/remotes/", "refs/clia/peers/"))]
        clone.add_peer("ay", pair.owner.key().text, pair.place("owner"))
        refused("no-private-key", lambda: clone.announce("ay"))
        assert clone.sync("ay")[0].moves
        clone.revoke("ay", "briefing", "spawn")
        clone.grant("ay", "session", "note")
        hearer.revoke("ay", "behaviour", "behaviour")
        hearer.publish([], federation=True)
        assert ("refs/clia/capabilities", "united") in [each[:2] for each in clone.adopt()]
        wanted = {("agent-commit", each) for each in ("spawn", "head-move", "merge")} | {
            ("console-trace", "note"),
            ("session", "note"),
        }
        assert {(each.type, each.trigger) for each in clone.grants()} == wanted
        assert clone.verify().clean
        clone.publish([], federation=True)
        hearer.adopt()
        assert {(each.type, each.trigger) for each in hearer.grants()} == wanted


def test_keys_of_another_clone_are_taken_only_where_they_go_on_from_ours(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner
    _, clone = cloned(pair, "owner", tmp_path)
    with clone:
        owner.publish([], federation=True)
        clone.adopt()
        owner.rotate_key()
        owner.publish([], federation=True)
        assert ("refs/clia/keys", "ahead") in [each[:2] for each in clone.adopt()]
        assert clone.key()[1:3] == owner.key()[1:3]
        where = str(tmp_path / "between.git")
        link = git("log", "-1", "--format=%B", "refs/clia/keys", cwd=where)  # the same key once more: ahead, as far as git can tell
        forged = git("commit-tree", plumbed("mktree", cwd=where), "-p", "refs/clia/keys", "-m", link, cwd=where).strip()
        tip = git("rev-parse", "refs/clia/keys", cwd=where).strip()
        git("update-ref", "refs/clia/keys", forged, cwd=where)
        assert ("refs/clia/keys", "diverged") in [each[:2] for each in clone.adopt()]
        git("update-ref", "refs/clia/keys", tip, cwd=where)
        clone.rotate_key(lost=True)
        owner.rotate_key()
        owner.publish([], federation=True)
        mine = clone.key()
        assert ("refs/clia/keys", "diverged") in [each[:2] for each in clone.adopt()]
        assert clone.key() == mine


def test_traces_of_a_peer_are_found_where_the_commit_is_the_peers(pair: Pair) -> None:
    hearer, cid = pair.hearer, pair.owner.head("scout")
    trace = hearer.trace_for(cid)
    assert trace is not None
    assert texts(trace.entries) == ["a secret word"]
    assert hearer.trace_cid_for(cid) == pair.owner.trace_cid_for(cid)
    assert [each.trace.commit for each in hearer.session_traces("ay/scout")] == [cid]
    assert len(hearer.trace_history(cid)) == 1
    assert len(hearer.session_log("ay/scout")) == 3
    assert "theirs" in hearer.diff("ay/scout")
    hearer.spawn("mine", BRIEFING)
    hearer.merge("mine", "ay/scout")
    line = hearer.blame("mine", "a.txt")[0]
    assert (line.agent, line.commit, line.trace) == ("scout", cid, hearer.trace_cid_for(cid))


def test_what_a_peer_binds_to_a_commit_is_shown_whatever_it_is_and_never_for_ours(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    hearer, where = pair.hearer, pair.place("hearer")
    hearer.spawn("scout", BRIEFING)
    own, theirs = hearer.commit("scout", "finding", {"a.txt": b"ours\n"}), pair.owner.head("scout")
    junk = {"agent": "x", "commit": "no commit", "entries": [3, {"kind": 5}, {"text": "\x1b[31m"}], "type": "console-trace"}
    lines = []
    for cid in (own, theirs):
        data = json.dumps(junk, separators=(",", ":"))
        lines.append(f"100644 blob {plumbed('hash-object', '-w', '--stdin', cwd=where, stdin=data)}\t{cid}\n")
    made = git("commit-tree", plumbed("mktree", cwd=where, stdin="".join(lines)), "-m", "notes", cwd=where).strip()
    pointed(pair, "hearer", NOTES, made)
    assert hearer.trace_for(own) is None
    found = hearer.trace_for(theirs)
    assert found is not None
    assert (found.commit, len(found.entries)) == (theirs, 3)
    for more in ([], ["--json"]):
        assert main(["trace", "show", theirs, "--path", where, *more]) == 0
        assert "\x1b[31m" not in capsys.readouterr().out


def test_a_merge_of_a_peers_agent_is_an_edge_like_any_other(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    hearer = pair.hearer
    hearer.spawn("mine", BRIEFING)
    hearer.merge("mine", "ay/scout")
    assert hearer.merged_sessions("mine") == ["ay/scout"]
    assert hearer.merged_into("ay/scout") == ["mine"]
    assert [each.dst for each in hearer.relations("ay/scout")] == ["ay/scout"]
    assert hearer.rebuild() == 1
    assert hearer.verify().clean
    assert hearer.relink() == []
    git("commit", "--quiet", "--allow-empty", "--message=first", cwd=pair.place("hearer"))
    branch = git("branch", "--show-current", cwd=pair.place("hearer")).strip()
    hearer.land("mine", branch, squash=True)
    assert hearer.trace_for(branch) is None
    assert hearer.maintain(archive_idle_days=0, dry_run=True).archived == ("mine",)
    for words in (["tree"], ["graph"], ["graph", "ay/scout"], ["relations", "mine"], ["log", "mine"]):
        assert main([*words, "--path", pair.place("hearer")]) == 0
    assert "ay/scout" in capsys.readouterr().out
    hearer.unrelate("mine", "merges", "ay/scout")
    assert hearer.merged_sessions("mine") == []
    assert hearer.verify().clean


def test_purged_traces_are_told_anew_and_archived_agents_go_on_being_told(pair: Pair) -> None:
    owner, hearer = pair.owner, pair.hearer
    old = git("rev-parse", NOTES, cwd=pair.place("hearer")).strip()
    purged = owner.trace_purge("scout", "secret word")
    assert [each for each in purged.remaining if each.startswith("peers:")]
    owner.archive("scout")
    owner.announce("bee")
    moved = pair.sync()
    assert [(each.place, each.old) for each in moved.moves] == [("notes/trace/scout", old)]
    trace = hearer.trace_for("ay/scout")
    assert trace is not None
    assert texts(trace.entries) == ["a [purged]"]
    hearer.maintain()
    owner.maintain()
    assert not codes(pair.sync().refused)
    assert hearer.files("ay/scout") == {"a.txt": b"theirs\n"}
    assert found(owner) == found(hearer) == set()


def test_a_nothing_new_announcement_repairs_the_view_that_a_killed_one_left(pair: Pair) -> None:
    view = Path(pair.place("owner"), ".git/clia/shared", f"{pair.hearer.id}.git", "packed-refs")
    before = view.read_text()
    view.write_text("# pack-refs with: sorted \n")
    assert pair.owner.announce("bee")[0].statements == 0
    assert view.read_text() == before


def test_the_feed_tells_of_each_peer_once_however_much_of_it_moved(pair: Pair) -> None:
    hearer = pair.hearer
    feed = hearer.local.open_feed()
    feed.look()
    pair.owner.commit("scout", "finding", {"a.txt": b"more\n"})
    pair.owner.announce("bee")
    pair.sync()
    assert feed.look() == 1
    told = feed.read(0)[-1].body
    assert (told["event"], told["peer"], told["places"]) == ("peer", "ay", ["agents/scout", "announce"])
    hearer.remove_peer("ay")
    feed.look()
    assert [feed.read(0)[-1].body[key] for key in ("event", "peer")] == ["gone", "ay"]
    feed.close()


def test_a_peer_that_is_behind_a_rotation_whose_snapshot_was_never_announced_heals(pair: Pair) -> None:
    """Whoever rotates dies before it announces: the next announcement is a snapshot by the new key."""
    owner = pair.owner
    owner.commit("scout", "finding", {"a.txt": b"unheard\n"})
    owner.announce("bee")
    components(owner).keys.rotate()
    told = owner.announce("bee")[0]
    assert told.snapshot
    heard = pair.sync()
    assert (heard.keys, {*codes(heard.refused)} <= {"revoked-key"}) == (1, True)
    assert pair.hearer.find("ay/scout") == owner.head("scout")
    assert not owner.announce("bee")[0].statements


def test_a_snapshot_is_newer_than_what_a_second_writer_has_said(pair: Pair) -> None:
    """A thousand statements of somebody with the key: the owner's next snapshot is heard all the same."""
    pair.forge(seq=pair.hearer.peer("ay").seq + 1000)
    assert pair.sync().accepted == 1
    git("update-ref", pair.chain_ref, f"{pair.chain_ref}~1", cwd=pair.place("owner"))
    pair.clock.at += timedelta(seconds=2)
    (told,) = pair.owner.announce("bee", snapshot=True)
    assert (told.statements, told.snapshot) == (1, True)
    assert pair.sync().accepted == 1
    assert pair.hearer.peer("ay").seq == told.seq
    assert pair.owner.verify().findings == ()


def test_a_peers_flow_does_not_run_because_the_peer_is_gone(pair: Pair) -> None:
    pair.owner.define("hello", "def main(input):\n    return 1\n")
    pair.owner.share("bee", agents=["*"], behaviours=["*"])
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "behaviour", "behaviour")
    pair.sync()
    cid = pair.hearer.flow("ay/hello").cid
    pair.hearer.remove_peer("ay")
    pair.hearer.spawn("mine", BRIEFING)
    refused("execute-denied", lambda: pair.hearer.start("mine", cid))


def test_a_peer_whose_record_cannot_be_read_can_be_removed_and_hides_no_other(pair: Pair) -> None:
    own = pair.hearer.spawn("mine", BRIEFING).genesis
    pointed(pair, "hearer", "refs/clia/peers/odd", own)
    assert [each.name for each in pair.hearer.peers()] == ["ay"]
    assert ("invalid-peer", "refs/clia/peers/odd") in found(pair.hearer)
    pair.hearer.remove_peer("odd")
    assert found(pair.hearer) == set()


FLOW = "def main(input):\n    request('check', 1)\n    return request('check', 2)\n"


def with_flow(pair: Pair) -> str:
    """The hearer tracks a flow of the owner's and may run it; its id."""
    pair.owner.define("hello", FLOW)
    pair.owner.share("bee", agents=["*"], behaviours=["*"])
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    pair.hearer.spawn("mine", BRIEFING)
    return pair.hearer.flow("ay/hello").cid


def test_a_session_of_a_peers_flow_takes_no_step_after_the_grant_is_gone(pair: Pair) -> None:
    """Whether it was started by name or by id, it is known as the peer's; it can be ended."""
    cid = with_flow(pair)
    assert pair.hearer.start("mine", cid).flow == "ay/hello"
    pair.hearer.resume("mine", True)
    pair.hearer.revoke("ay", "behaviour")
    refused("execute-denied", lambda: pair.hearer.resume("mine", True))
    refused("execute-denied", lambda: pair.hearer.give_up("mine", "no"))
    pair.hearer.remove_peer("ay")
    refused("execute-denied", lambda: pair.hearer.resume("mine", True))
    assert pair.hearer.cancel("mine").status == "cancelled"


def test_of_two_peers_with_one_flow_the_one_that_may_run_it_counts(pair: Pair) -> None:
    cid = with_flow(pair)
    tip = git("rev-parse", "refs/clia/remotes/ay/behaviours/hello", cwd=pair.place("hearer")).strip()
    pointed(pair, "hearer", "refs/clia/remotes/aa/behaviours/hello", tip)
    assert pair.hearer.start("mine", cid).flow == "ay/hello"
    assert [(each.peer, each.name, each.cid, each.runs) for each in pair.hearer.remote_behaviours()] == [("ay", "hello", cid, True)]


def test_a_type_that_clashes_is_told_also_where_the_grant_came_late(pair: Pair) -> None:
    """And a commit of it is not let in by what its name means here."""
    pair.owner.register_type("audit", "agent-commit")
    pair.hearer.register_type("audit", "finding")
    pair.owner.commit("scout", "audit", {"a.txt": b"audited\n"})
    pair.owner.announce("bee")
    before = pair.hearer.remotes("ay")[0].head
    assert sorted(codes(pair.sync().refused)) == ["capability-denied", "type-clash"]
    pair.hearer.grant("ay", "agent-commit", "type")
    assert codes(pair.sync().refused) == ["type-clash"]
    assert codes(pair.sync().refused) == []
    assert {(each.place, each.code) for each in pair.hearer.waiting("ay")} == {
        ("agents/scout", "type-clash"),
        ("types/audit", "type-clash"),
    }
    assert pair.hearer.remotes("ay")[0].head == before


def test_the_record_of_a_peers_agent_can_be_read(pair: Pair) -> None:
    assert pair.hearer.briefing_of("ay/scout") == pair.owner.briefing_of("scout")
    assert set(pair.hearer.record_of("ay/scout")) == {"briefing.json"}
    refused("no-such-agent", lambda: pair.hearer.briefing_of("ay/nobody"))


def test_an_agent_whose_branch_plain_git_has_moved_stays_told_where_it_was(pair: Pair) -> None:
    people = git("commit-tree", "refs/heads/agents/scout^{tree}", "-m", "people", cwd=pair.place("owner")).strip()
    pointed(pair, "owner", "refs/heads/agents/scout", people)
    before = pair.hearer.remotes("ay")
    pair.owner.announce("bee", snapshot=True)
    assert pair.sync().moves == ()
    assert pair.hearer.remotes("ay") == before


def test_what_waits_is_counted_and_a_silent_peer_is_known(pair: Pair) -> None:
    pair.hearer.revoke("ay", "agent-commit")
    pair.owner.commit("scout", "finding", {"a.txt": b"more\n"})
    pair.owner.announce("bee")
    assert (pair.sync().waiting, pair.sync().waiting) == (1, 1)
    pair.owner.remove_peer("bee")
    with clia.init(Path(pair.place("hearer")).parent / "third", settings=pair.settings()) as third:
        third.add_peer("ay", pair.owner.key().text, pair.place("owner"))
        assert third.sync("ay")[0].silent
