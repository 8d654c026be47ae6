"""Peers in the rest of a space: clones, traces, relations, purging, upkeep, sessions and the feed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

import clia
from clia.cli.main import main
from clia.errors import GitError
from clia.federation.announcing import Announcer
from clia.testing import components
from support import git
from support.federation import Pair, codes, plumbed
from support.spaces import BRIEFING, refused, texts

NOTES = "refs/clia/remotes/ay/notes/trace/scout"


@pytest.fixture
def pair(pair_with_trace: Pair) -> Pair:
    return pair_with_trace


def clone_space(pair: Pair, side: str, tmp_path: Path) -> tuple[Path, clia.Space]:
    """Clone a space through a bare repository."""
    bare, clone_path = tmp_path / "between.git", tmp_path / "clone"
    git("init", "--quiet", "--bare", str(bare), cwd=tmp_path)
    git("remote", "add", "origin", str(bare), cwd=pair.place(side))
    space = pair.owner if side == "owner" else pair.hearer
    space.publish(space.agents())
    git("clone", "--quiet", str(bare), str(clone_path), cwd=tmp_path)
    git("fetch", "--quiet", "origin", "refs/clia/space:refs/clia/space", cwd=clone_path)
    return clone_path, clia.open(clone_path, settings=pair.settings())


def test_keys_and_capabilities_reach_other_clones_only_if_requested_and_are_united(pair: Pair, tmp_path: Path) -> None:
    """A revocation in either clone wins; peers, positions and tracked refs belong to one clone."""
    hearer = pair.hearer
    hearer.spawn("mine", BRIEFING)
    clone_path, clone = clone_space(pair, "hearer", tmp_path)
    with clone:
        clone.adopt()
        assert not clone.peers.grants()
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
        refs = git("for-each-ref", "--format=%(refname)", "refs/clia/", cwd=clone_path).split()
        assert "refs/clia/keys" in refs
        assert not [ref for ref in refs if ref.startswith(("refs/clia/remotes/", "refs/clia/peers/"))]
        clone.peers.add("ay", pair.owner.peers.key().text, pair.place("owner"))
        refused("no-private-key", lambda: clone.peers.announce("ay"))
        assert clone.peers.sync("ay")[0].moves
        clone.peers.revoke("ay", "briefing", "spawn")
        clone.peers.grant("ay", "session", "note")
        hearer.peers.revoke("ay", "behaviour", "behaviour")
        hearer.publish([], federation=True)
        assert ("refs/clia/capabilities", "united") in [adoption[:2] for adoption in clone.adopt()]
        expected = {("agent-commit", trigger) for trigger in ("spawn", "head-move", "merge")} | {
            ("console-trace", "note"),
            ("session", "note"),
        }
        assert {(grant.type, grant.trigger) for grant in clone.peers.grants()} == expected
        assert clone.verify().clean
        clone.publish([], federation=True)
        hearer.adopt()
        assert {(grant.type, grant.trigger) for grant in hearer.peers.grants()} == expected


def test_keys_of_another_clone_are_adopted_only_if_they_continue_ours(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner
    _, clone = clone_space(pair, "owner", tmp_path)
    with clone:
        owner.publish([], federation=True)
        clone.adopt()
        owner.peers.rotate_key()
        owner.publish([], federation=True)
        assert ("refs/clia/keys", "ahead") in [adoption[:2] for adoption in clone.adopt()]
        assert clone.peers.key()[1:3] == owner.key()[1:3]
        bare_repo = str(tmp_path / "between.git")
        link = git("log", "-1", "--format=%B", "refs/clia/keys", cwd=bare_repo)  # the same key again, which is a descendant for git
        forged = git("commit-tree", plumbed("mktree", cwd=bare_repo), "-p", "refs/clia/keys", "-m", link, cwd=bare_repo).strip()
        tip = git("rev-parse", "refs/clia/keys", cwd=bare_repo).strip()
        git("update-ref", "refs/clia/keys", forged, cwd=bare_repo)
        assert ("refs/clia/keys", "diverged") in [adoption[:2] for adoption in clone.adopt()]
        git("update-ref", "refs/clia/keys", tip, cwd=bare_repo)
        clone.peers.rotate_key(lost=True)
        owner.peers.rotate_key()
        owner.publish([], federation=True)
        own_key = clone.peers.key()
        assert ("refs/clia/keys", "diverged") in [adoption[:2] for adoption in clone.adopt()]
        assert clone.peers.key() == own_key


def test_a_key_is_replaced_once_although_a_peer_cannot_be_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise GitError("the disk is full")

    notices: list[str] = []
    clock = pair.owner.local.clock
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), notify=notices.append, clock=clock)
    with clia.open(pair.place("owner"), settings=settings) as owner:
        with monkeypatch.context() as patch:
            patch.setattr(Announcer, "announce", full)
            key = owner.peers.rotate_key()
        assert (len(key.chain), key.mine) == (2, True)
        assert notices == [
            "the key is replaced, but not announced to bee (the disk is full); clia announce bee --snapshot does that"
        ]
        owner.peers.announce("bee", snapshot=True)
    assert codes(pair.sync().refused) == []
    assert pair.hearer.peers.get("ay").keys[-1] == key.key


def test_traces_of_a_peer_are_found_by_its_commits(pair: Pair) -> None:
    hearer, cid = pair.hearer, pair.owner.head("scout")
    trace = hearer.traces.of(cid)
    assert trace is not None
    assert texts(trace.entries) == ["a secret word"]
    assert hearer.traces.id_of(cid) == pair.owner.trace_cid_for(cid)
    assert [bound_trace.trace.commit for bound_trace in hearer.traces.of_agent("ay/scout")] == [cid]
    assert len(hearer.traces.history(cid)) == 1
    assert len(hearer.history.own("ay/scout")) == 3
    assert "theirs" in hearer.diff("ay/scout")
    hearer.spawn("mine", BRIEFING)
    hearer.merge("mine", "ay/scout")
    line = hearer.blame("mine", "a.txt")[0]
    assert (line.agent, line.commit, line.trace) == ("scout", cid, hearer.traces.id_of(cid))


def test_invalid_traces_of_a_peer_are_shown_safely_and_only_for_its_commits(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    hearer, repo = pair.hearer, pair.place("hearer")
    hearer.spawn("scout", BRIEFING)
    own, theirs = hearer.commit("scout", "finding", {"a.txt": b"ours\n"}), pair.owner.head("scout")
    junk = {"agent": "x", "commit": "not a commit", "entries": [3, {"kind": 5}, {"text": "\x1b[31m"}], "type": "console-trace"}
    lines = []
    for cid in (own, theirs):
        data = json.dumps(junk, separators=(",", ":"))
        lines.append(f"100644 blob {plumbed('hash-object', '-w', '--stdin', cwd=repo, stdin=data)}\t{cid}\n")
    notes_commit = git("commit-tree", plumbed("mktree", cwd=repo, stdin="".join(lines)), "-m", "notes", cwd=repo).strip()
    pair.update_ref("hearer", NOTES, notes_commit)
    assert hearer.traces.of(own) is None
    trace = hearer.traces.of(theirs)
    assert trace is not None
    assert (trace.commit, len(trace.entries)) == (theirs, 3)
    for options in ([], ["--json"]):
        assert main(["trace", "show", theirs, "--path", repo, *options]) == 0
        assert "\x1b[31m" not in capsys.readouterr().out


def test_a_merge_of_a_peers_agent_is_an_ordinary_relation(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    hearer = pair.hearer
    hearer.spawn("mine", BRIEFING)
    hearer.merge("mine", "ay/scout")
    assert hearer.relations.merged("mine") == ["ay/scout"]
    assert hearer.relations.merged_into("ay/scout") == ["mine"]
    assert [edge.dst for edge in hearer.relations("ay/scout")] == ["ay/scout"]
    assert hearer.rebuild() == 1
    assert hearer.verify().clean
    assert hearer.traces.relink() == []
    git("commit", "--quiet", "--allow-empty", "--message=first", cwd=pair.place("hearer"))
    branch = git("branch", "--show-current", cwd=pair.place("hearer")).strip()
    hearer.land("mine", branch, squash=True)
    assert hearer.traces.of(branch) is None
    assert hearer.maintain(archive_idle_days=0, dry_run=True).archived == ("mine",)
    for command in (["tree"], ["graph"], ["graph", "ay/scout"], ["relations", "mine"], ["log", "mine"]):
        assert main([*command, "--path", pair.place("hearer")]) == 0
    assert "ay/scout" in capsys.readouterr().out
    hearer.relations.retract("mine", "merges", "ay/scout")
    assert hearer.relations.merged("mine") == []
    assert hearer.verify().clean


def test_purged_traces_are_announced_again_and_archived_agents_stay_announced(pair: Pair) -> None:
    owner, hearer = pair.owner, pair.hearer
    old_notes = pair.rev("hearer", NOTES)
    purged = owner.traces.purge("scout", "secret word")
    assert [line for line in purged.remaining if line.startswith("peers:")]
    owner.agents.archive("scout")
    owner.peers.announce("bee")
    synced = pair.sync()
    assert [(move.place, move.old) for move in synced.moves] == [("notes/trace/scout", old_notes)]
    trace = hearer.traces.of("ay/scout")
    assert trace is not None
    assert texts(trace.entries) == ["a [purged]"]
    hearer.maintain()
    owner.maintain()
    assert not codes(pair.sync().refused)
    assert hearer.files("ay/scout") == {"a.txt": b"theirs\n"}
    assert owner.verify().findings == hearer.verify().findings == ()


def test_an_announcement_without_changes_repairs_an_incomplete_view(pair: Pair) -> None:
    view = Path(pair.place("owner"), ".git/clia/shared", f"{pair.hearer.id}.git", "packed-refs")
    before = view.read_text()
    view.write_text("# pack-refs with: sorted \n")
    assert pair.owner.peers.announce("bee")[0].statements == 0
    assert view.read_text() == before


def test_the_feed_has_one_event_per_peer_however_many_refs_moved(pair: Pair) -> None:
    hearer = pair.hearer
    feed = hearer.local.open_feed()
    feed.look()
    pair.owner.commit("scout", "finding", {"a.txt": b"more\n"})
    pair.owner.peers.announce("bee")
    pair.sync()
    assert feed.look() == 1
    event = feed.read(0)[-1].body
    assert (event["event"], event["peer"], event["places"]) == ("peer", "ay", ["agents/scout", "announce"])
    hearer.peers.remove("ay")
    feed.look()
    assert [feed.read(0)[-1].body[key] for key in ("event", "peer")] == ["gone", "ay"]
    feed.close()


def test_a_rotation_without_announcement_is_followed_by_a_snapshot(pair: Pair) -> None:
    """If the process dies between rotation and announcement, the next announcement is a snapshot by the new key."""
    owner = pair.owner
    owner.commit("scout", "finding", {"a.txt": b"unheard\n"})
    owner.peers.announce("bee")
    components(owner).keys.rotate()
    announced = owner.peers.announce("bee")[0]
    assert announced.snapshot
    synced = pair.sync()
    assert (synced.keys, {*codes(synced.refused)} <= {"revoked-key"}) == (1, True)
    assert pair.hearer.find("ay/scout") == owner.head("scout")
    assert not owner.peers.announce("bee")[0].statements


def test_a_snapshot_is_newer_than_statements_of_a_second_writer(pair: Pair) -> None:
    """After a thousand statements by someone else with the key, the owner's next snapshot is accepted."""
    pair.forge(seq=pair.hearer.peers.get("ay").seq + 1000)
    assert pair.sync().accepted == 1
    git("update-ref", pair.chain_ref, f"{pair.chain_ref}~1", cwd=pair.place("owner"))
    pair.clock.at += timedelta(seconds=2)
    (announced,) = pair.owner.peers.announce("bee", snapshot=True)
    assert (announced.statements, announced.snapshot) == (1, True)
    assert pair.sync().accepted == 1
    assert pair.hearer.peers.get("ay").seq == announced.seq
    assert pair.owner.verify().findings == ()


def test_a_peers_flow_stays_denied_after_the_peer_is_removed(pair: Pair) -> None:
    pair.owner.sessions.define("hello", "def main(input):\n    return 1\n")
    pair.owner.peers.share("bee", agents=["*"], behaviours=["*"])
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour")
    pair.sync()
    cid = pair.hearer.sessions.flow("ay/hello").cid
    pair.hearer.peers.remove("ay")
    pair.hearer.spawn("mine", BRIEFING)
    refused("execute-denied", lambda: pair.hearer.start("mine", cid))


FLOW = "def main(input):\n    request('check', 1)\n    return request('check', 2)\n"


def with_flow(pair: Pair) -> str:
    """Let the hearer track and run a flow of the owner; return its id."""
    pair.owner.sessions.define("hello", FLOW)
    pair.owner.peers.share("bee", agents=["*"], behaviours=["*"])
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "behaviour", "behaviour", execute=True)
    pair.sync()
    pair.hearer.spawn("mine", BRIEFING)
    return pair.hearer.sessions.flow("ay/hello").cid


def test_a_session_of_a_peers_flow_stops_when_the_grant_is_revoked(pair: Pair) -> None:
    """Started by name or by id, it belongs to the peer; it can be cancelled."""
    cid = with_flow(pair)
    assert pair.hearer.start("mine", cid).flow == "ay/hello"
    pair.hearer.resume("mine", True)
    pair.hearer.peers.revoke("ay", "behaviour")
    refused("execute-denied", lambda: pair.hearer.resume("mine", True))
    refused("execute-denied", lambda: pair.hearer.sessions.give_up("mine", "no"))
    pair.hearer.peers.remove("ay")
    refused("execute-denied", lambda: pair.hearer.resume("mine", True))
    assert pair.hearer.cancel("mine").status == "cancelled"


def test_if_two_peers_have_a_flow_the_one_with_a_grant_counts(pair: Pair) -> None:
    cid = with_flow(pair)
    tip = pair.rev("hearer", "refs/clia/remotes/ay/behaviours/hello")
    pair.update_ref("hearer", "refs/clia/remotes/aa/behaviours/hello", tip)
    assert pair.hearer.start("mine", cid).flow == "ay/hello"
    assert [(behaviour.peer, behaviour.name, behaviour.cid, behaviour.runs) for behaviour in pair.hearer.peers.behaviours()] == [
        ("ay", "hello", cid, True)
    ]


def test_a_type_clash_is_reported_even_if_the_grant_came_later(pair: Pair) -> None:
    """A commit of that type is not admitted by the local meaning of its name."""
    pair.owner.types.register("audit", "agent-commit")
    pair.hearer.types.register("audit", "finding")
    pair.owner.commit("scout", "audit", {"a.txt": b"audited\n"})
    pair.owner.peers.announce("bee")
    before = pair.hearer.peers.remotes("ay")[0].head
    assert sorted(codes(pair.sync().refused)) == ["capability-denied", "type-clash"]
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    assert codes(pair.sync().refused) == ["type-clash"]
    assert codes(pair.sync().refused) == []
    assert {(claim.place, claim.code) for claim in pair.hearer.peers.waiting("ay")} == {
        ("agents/scout", "type-clash"),
        ("types/audit", "type-clash"),
    }
    assert pair.hearer.peers.remotes("ay")[0].head == before


def test_the_record_of_a_peers_agent_can_be_read(pair: Pair) -> None:
    assert pair.hearer.agents.briefing("ay/scout") == pair.owner.briefing_of("scout")
    assert set(pair.hearer.agents.record("ay/scout")) == {"briefing.json", "place.json"}
    refused("no-such-agent", lambda: pair.hearer.agents.briefing("ay/nobody"))


def test_an_agent_whose_branch_git_moved_stays_announced_at_its_old_head(pair: Pair) -> None:
    unrelated = git("commit-tree", "refs/heads/agents/scout^{tree}", "-m", "people", cwd=pair.place("owner")).strip()
    pair.update_ref("owner", "refs/heads/agents/scout", unrelated)
    before = pair.hearer.peers.remotes("ay")
    pair.owner.peers.announce("bee", snapshot=True)
    assert pair.sync().moves == ()
    assert pair.hearer.peers.remotes("ay") == before


def test_waiting_claims_are_counted_and_a_silent_peer_is_reported(pair: Pair) -> None:
    pair.hearer.peers.revoke("ay", "agent-commit")
    pair.owner.commit("scout", "finding", {"a.txt": b"more\n"})
    pair.owner.peers.announce("bee")
    assert (pair.sync().waiting, pair.sync().waiting) == (1, 1)
    pair.owner.peers.remove("bee")
    with clia.init(Path(pair.place("hearer")).parent / "third", settings=pair.settings()) as third:
        third.peers.add("ay", pair.owner.peers.key().text, pair.place("owner"))
        assert third.peers.sync("ay")[0].silent
