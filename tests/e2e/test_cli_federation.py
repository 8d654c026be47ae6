"""Federation commands between two spaces: keys, peers, grants, announcements, sync, merges and refusals."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.cli.federation import show_moves
from clia.federation.model import Move
from support import git, program
from support.commands import Commands
from support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))
FLOW = "def main(input):\n    return request('human', input)\n"
HEARD_BY = (
    "peers that read this repository receive it at their next sync; for peers that read a server: clia announce --push REMOTE\n"
)
FOLLOWED = [
    ("agent-commit", "spawn"),
    ("agent-commit", "head-move"),
    ("agent-commit", "merge"),
    ("briefing", "spawn"),
    ("console-trace", "note"),
]


class FederationCli(Commands):
    """The commands of one space."""

    def key(self) -> str:
        return self("key", "show").strip()

    def space(self, **more: Any) -> library.Space:
        return library.open(self.root, settings=QUICK._replace(**more))

    def commit(self, agent: str, text: str, kind: str = "finding") -> None:
        with self.space() as space:
            space.commit(agent, kind, {"a.txt": text.encode()})

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


class Two(NamedTuple):
    """Ann's space shares its agents with Bob's, which has Ann's address and has granted nothing yet."""

    ann: FederationCli
    bob: FederationCli


def new_cli(root: Path) -> FederationCli:
    library.init(root, settings=QUICK).close()
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)
    return FederationCli(root)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("CLIA_DEBUG", "1")  # raise bugs instead of reporting them
    ann, bob = new_cli(tmp_path.resolve() / "ann"), new_cli(tmp_path.resolve() / "bob")
    with ann.space() as space:
        space.spawn("scout", library.Briefing("Look around"))
        space.commit("scout", "finding", {"a.txt": b"one\n"})
    ann("peer", "add", "bob", "--key", bob.key())
    bob("peer", "add", "ann", "--key", ann.key(), "--url", str(ann.root))
    ann("peer", "share", "bob", "--agent", "*", "--traces")
    ann("announce")
    return Two(ann, bob)


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


def test_a_space_follows_an_agent_of_a_peer_merges_it_and_revokes_the_grant(two: Two) -> None:
    ann, bob = two
    assert bob("remotes").startswith("no agents of peers are tracked; accept some with: clia cap grant PEER --follow")
    granted = bob.json("cap", "grant", "ann", "--follow")
    assert [(grant["type"], grant["trigger"]) for grant in granted] == FOLLOWED
    assert [grant["cid"] for grant in bob.json("cap", "grant", "ann", "--follow")] == [grant["cid"] for grant in granted]
    output = bob("sync")
    assert output.startswith("ann: 1 statement accepted, 2 moves tracked\n")
    assert ["agents/scout", "-", git("rev-parse", "agents/scout", cwd=ann.root)[:10], "finding", "head-move"] in rows(output)
    assert bob("sync") == "ann: nothing new\n"
    assert [line[:2] for line in rows(bob("remotes", "ann"))] == [["agent", "last"], ["ann/scout", "finding"]]
    (tracked,) = bob.json("remotes")
    assert (tracked["peer"], tracked["agent"], tracked["record"], tracked["traces"]) == ("ann", "scout", True, 0)

    assert [commit["kind"] for commit in bob.json("log", "ann/scout")] == ["finding", "spawn"]
    assert bob.json("show", "ann/scout")["cid"] == tracked["head"]
    assert "+one" in bob("diff", "ann/scout")
    bob("spawn", "mine", "--title", "Go on from there")
    merged = bob.json("merge", "mine", "ann/scout")
    assert bob.json("show", merged["cid"])["merged"] == "ann/scout"
    assert bob("merge", "mine", "ann/scout").startswith("mine already has all work of ann/scout")

    with ann.space() as space:
        space.trace("scout", "note", "seen")
        space.commit_with_trace("scout", "finding", {"a.txt": b"two\n"})
    (announcement,) = ann.json("announce", "bob")
    assert [(move["ref"], move["trigger"]) for move in announcement["moves"]] == [
        ("refs/heads/agents/scout", "head-move"),
        ("refs/notes/clia/trace/scout", "note"),
    ]
    (sync,) = bob.json("sync", "ann")
    assert (sync["accepted"], [move["place"] for move in sync["moves"]]) == (2, ["agents/scout", "notes/trace/scout"])

    output = bob("cap", "revoke", "ann", "agent-commit", "head-move")
    assert output.endswith("revoked 1 grant of ann; what is already tracked stays\n")
    ann.commit("scout", "three\n")
    output = ann("announce")
    assert output.startswith("bob: announced 1 statement\n")
    assert output.endswith(HEARD_BY)
    (sync,) = bob.json("sync")
    assert (sync["accepted"], sync["moves"]) == (1, [])
    assert [(refusal["code"], refusal["ref"]) for refusal in sync["refused"]] == [("capability-denied", "refs/heads/agents/scout")]

    assert ann("peer", "share", "bob", "--nothing") == "shared with bob: nothing\nnext: clia announce bob\n"
    assert "no longer shared" in ann("announce")
    bob("sync")
    assert bob.json("remotes") == []
    assert bob("peer", "remove", "ann") == "removed ann, its grants and what was tracked from it; merged work stays\n"
    assert (bob.json("peer", "list"), bob.json("cap", "list")) == ([], [])
    assert bob.json("show", merged["cid"])["merged"] == "ann/scout"


def test_key_show_prints_only_the_key_and_peers_follow_a_new_one(two: Two) -> None:
    ann, bob = two
    first = ann.run("key", "show")
    key = ann.json("key", "show")
    assert first.out == f"{key['text']}\n"
    root = ann.json("key", "list")["root"]
    assert first.err == f"fingerprint {key['fingerprint']}; the first key of this space\nroot {root}: clia verify --root {root}\n"
    bob("cap", "grant", "ann", "--follow")
    bob("sync")
    ran = ann.run("key", "rotate")
    assert ran.out == f"{ann.json('key', 'show')['text']}\n" != first.out
    assert ran.err.endswith(f"key 2 of this space\n{HEARD_BY}")
    (sync,) = bob.json("sync")
    assert (sync["keys"], sync["accepted"], sync["refused"]) == (1, 1, [])
    output = bob("peer", "show", "ann")
    assert ["replaced", "key", key["key"]] in rows(output)
    assert key["fingerprint"] in output
    assert ann.json("key", "show")["fingerprint"] in output
    assert ann.refused("key", "rotate", "--lost", code=1)["code"] == "key-not-lost"


def test_a_clone_without_the_private_key_is_refused_and_a_new_key_is_a_new_identity(two: Two, tmp_path: Path) -> None:
    ann, bob = two
    git("clone", "-q", str(ann.root), str(tmp_path / "clone"), cwd=tmp_path)
    clone = new_cli(tmp_path / "clone")
    assert (clone.json("key", "show")["mine"], clone.key()) == (False, ann.key())
    warnings = clone.run("key", "show").err
    assert "this clone does not have the private key (another clone may have it, or it is lost)\n" in warnings
    assert "the key of this clone is not enrolled yet: " in warnings
    assert warnings.endswith("  hint: enrol it in a clone that is: clia key enrol NAME --machine KEY\n")
    clone("peer", "add", "bob", "--key", bob.key())
    clone("peer", "share", "bob", "--agent", "*")
    before = clone.refs()
    for words in (("announce", "bob"), ("key", "rotate")):
        assert clone.refused(*words)["code"] == "no-private-key"
    assert clone.refs() == before
    for path in (ann.root / ".git/clia/keys").glob("*.jwk"):
        path.unlink()
    ran = ann.run("key", "rotate", "--lost")
    assert ran.code == 0
    assert "every peer has to remove this space and add it again" in ran.err
    assert {refusal["code"] for refusal in bob.json("sync", code=1)[0]["refused"]} >= {"key-not-continued"}
    bob("peer", "remove", "ann")
    bob("peer", "add", "ann", "--key", ran.out, "--url", str(ann.root))
    (sync,) = bob.json("sync")
    codes = {refusal["code"] for refusal in sync["refused"]}
    assert (sync["accepted"], codes) == (1, {"unknown-key", "capability-denied"}), (
        "statements of the lost key are no longer accepted"
    )
    fresh = new_cli(tmp_path / "fresh")
    assert "this space had no key: its first key was created\n" in fresh.run("key", "rotate").err


def test_claims_are_shown_with_the_reason_and_a_command_that_resolves_them(two: Two) -> None:
    ann, bob = two
    with ann.space() as space:
        space.types.register("security-review", "finding")
        space.sessions.define("hello", FLOW)
    ann.commit("scout", "two\n", "security-review")
    ann("peer", "share", "bob", "--agent", "scout", "--behaviour", "*")
    ann("announce")
    assert "never" in rows(bob("peer", "list"))[1]
    output = bob("sync")
    assert ["capability-denied", "behaviours/hello"] in [line[:2] for line in rows(output)]
    assert "hint: see what waits, and what would accept it: clia peer show ann" in output
    assert "refs/heads" not in output, "the place is shown once"
    output = bob("sync")
    assert output.startswith(
        "ann: nothing new, 4 claims wait\n  hint: see what waits, and what would accept it: clia peer show ann"
    )
    assert "--follow" not in output, "useless before the type of the commit is known"
    claims = {claim["place"]: claim for claim in bob.json("peer", "show", "ann")["claims"]}
    assert set(claims) == {"agents/scout", "records/scout", "behaviours/hello", "types/security-review"}
    assert {claim["code"] for claim in claims.values()} == {"capability-denied"}
    assert claims["behaviours/hello"]["hint"] == "clia cap grant ann behaviour behaviour"
    bob(*shlex.split(claims["behaviours/hello"]["hint"])[1:])
    assert {claim["place"]: claim["code"] for claim in bob.json("peer", "show", "ann")["claims"]}[
        "behaviours/hello"
    ] == "not-synced"
    shown_peer = bob("peer", "show", "ann")
    assert "  hint: clia sync ann\n" in shown_peer
    assert "hint: clia cap grant ann --follow" not in shown_peer, "useless before the type of the commit is known"
    bob("cap", "grant", "ann", "agent-commit", "type")
    bob("cap", "grant", "ann", "--follow")
    bob("sync")
    shown_peer = bob.json("peer", "show", "ann")
    assert (shown_peer["claims"], [tracked_ref["kind"] for tracked_ref in shown_peer["tracked"]]) == ([], ["security-review"])
    assert len(shown_peer["refusals"]) == 4
    row = next(line for line in rows(bob("peer", "show", "ann")) if line[:1] == ["heard"])
    assert row[1] == datetime.now(UTC).strftime("%Y-%m-%d"), "a date, not the statement's number"
    bob("spawn", "mine", "--title", "Run it")
    assert bob.refused("session", "start", "mine", "ann/hello", code=1)["code"] == "execute-denied"
    assert ["ann/hello", bob.json("remotes", "--behaviours")[0]["cid"][:10], "no"] in rows(bob("remotes"))
    bob("cap", "grant", "ann", "behaviour", "behaviour", "--execute")
    assert bob.json("remotes", "ann", "--behaviours")[0]["runs"] is True
    assert [behaviour["name"] for behaviour in bob.json("peer", "show", "ann")["behaviours"]] == ["hello"]
    assert bob.json("session", "start", "mine", "ann/hello", "--input", '"Go?"')["status"] == "suspended"


def test_explain_names_the_grant_trust_and_subtypes_or_the_missing_ones(two: Two) -> None:
    bob = two.bob
    explanation = bob.json("cap", "explain", "ann", "finding", "head-move", code=1)
    assert (explanation["allowed"], [requirement["what"] for requirement in explanation["missing"]]) == (False, ["grant"])
    assert "denied: accept finding by head-move from ann" in bob("cap", "explain", "ann", "finding", "head-move", code=1)
    bob("cap", "grant", "ann", "agent-commit", "head-move", "merge", "--expires", "30d")
    output_rows = rows(bob("cap", "explain", "ann", "finding", "head-move"))
    assert output_rows[0][0] == "allowed:"
    assert ["type", "finding", "→", "agent-commit"] in output_rows
    (grant,) = bob.json("cap", "explain", "ann", "finding", "head-move")["grants"]
    assert ["grant", f"{grant['cid'][:10]}:"] in [line[:2] for line in output_rows]
    month = grant["expires"] - int(datetime.now(UTC).timestamp())
    assert 29 * 86400 < month <= 30 * 86400
    assert bob("peer", "change", "ann", "--no-trust").startswith("ann is not trusted, address ")
    explanation = bob.json("cap", "explain", "ann", "finding", "head-move", code=1)
    assert [(requirement["what"], requirement["hint"]) for requirement in explanation["missing"]] == [
        ("trust", "clia peer change ann --trust")
    ]
    bob(*shlex.split(explanation["missing"][0]["hint"])[1:])
    bob("cap", "explain", "ann", "finding", "head-move")
    with bob.space(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)) as space:
        space.peers.grant("ann", "console-trace", "note", expires=int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()))
    explanation = bob.json("cap", "explain", "ann", "console-trace", "note", code=1)
    assert [requirement["what"] for requirement in explanation["missing"]] == ["expired"]
    listed = bob("cap", "list", "ann")
    assert "2026-02-01 00:00, expired" in listed
    (old,) = (row for row in bob.json("cap", "list") if row["type"] == "console-trace")
    assert bob.json("cap", "revoke", "ann", "--id", old["cid"][:10]) == [old]


def test_a_conflict_with_an_agent_of_a_peer_is_resolved_like_any_other(two: Two) -> None:
    ann, bob = two
    bob("cap", "grant", "ann", "--follow")
    bob("sync")
    with bob.space() as space:
        space.spawn("mine", library.Briefing("Differ"))
        space.commit("mine", "finding", {"a.txt": b"mine\n"})
    error = bob.refused("resolve", "mine", "ann/scout", "--take", "theirs")
    assert error["code"] == "no-refused-merge"
    output = bob("merge", "mine", "ann/scout", code=1)
    assert "clia resolve mine ann/scout --file PATH=FILE" in output
    assert bob.json("merge", "mine", "ann/scout", code=1)["result"] == "conflicts"
    ann.commit("scout", "two\n")
    ann("announce")
    bob("sync")
    assert bob.refused("resolve", "mine", "ann/scout", "--take", "theirs", code=1)["code"] == "stale-ref"
    bob("merge", "mine", "ann/scout", code=1)
    bob("resolve", "mine", "ann/scout", "--take", "theirs")
    with bob.space() as space:
        assert space.files("mine") == {"a.txt": b"two\n"}
    assert bob.refused("merge", "mine", "ann/nobody")["code"] == "no-such-agent"
    assert bob.refused("merge", "mine", "nobody/scout")["code"] == "no-such-agent"


def test_a_peer_that_fails_is_reported_and_the_others_are_synced(two: Two, tmp_path: Path) -> None:
    ann, bob = two
    cy = new_cli(tmp_path / "cy")
    bob("peer", "add", "aaron", "--key", cy.key(), "--url", str(tmp_path / "nowhere"))
    ran = bob.run("sync")
    assert ran.code == 1
    assert ran.err.startswith("aaron: error: transport-error: ")
    assert ran.out.startswith("ann: 1 statement accepted, 2 refused\n")
    syncs = bob.json("sync", code=1)
    assert [(sync["peer"], sync["error"] and sync["error"]["code"]) for sync in syncs] == [
        ("aaron", "transport-error"),
        ("ann", None),
    ]
    assert bob.refused("sync", "aaron", code=1)["code"] == "transport-error"
    assert bob.json("sync", "ann")[0]["error"] is None
    assert ann("sync").startswith("no peer has an address")
    assert ann.refused("sync", "bob")["code"] == "no-url"


def test_hints_name_each_missing_step(two: Two, tmp_path: Path) -> None:
    ann, bob = two
    output = ann("cap", "grant", "bob", "--follow")
    assert output.endswith("next: clia peer change bob --url URL sets its address; then clia sync bob\n")
    ann("peer", "change", "bob", "--url", str(bob.root))
    output = ann("sync")
    assert output.startswith(
        "bob: it has announced nothing to this space yet\n  hint: in the other space: clia peer add NAME --key KEY"
    )
    assert f"if {bob.root} is a server and not their repository: clia announce NAME --push REMOTE\n" in output
    assert bob("announce").startswith("nothing is shared with any peer")
    bob("peer", "share", "ann", "--agent", "*")
    for words in (("announce",), ("announce", "ann")):
        assert bob(*words).startswith("nothing to announce yet"), words
        assert bob.json(*words) == []
    with bob.space() as space:
        space.spawn("mine", library.Briefing("Be told of"))
    bob("announce")
    ann("cap", "revoke", "bob")
    ann("sync")
    assert "  hint: grant everything needed to follow its agents: clia cap grant bob --follow\n" in ann("sync")
    missing = tmp_path / "home" / "later"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(missing.parent))
        ran = ann.run("peer", "change", "bob", "--url", "~/later")
    assert (ran.code, ran.err) == (0, f"note: directory {missing} does not exist yet\n")
    assert ann.json("peer", "show", "bob")["url"] == str(missing)
    assert f"!  peers       1 peer; 2 claims wait; bob: directory {missing} does not exist" in ann("doctor")
    assert ["✓", "peers", "1", "peer"] in rows(bob("doctor"))
    ran = bob.run("cap", "grant", "ann", "finding", "merge", "head-move", "type")
    assert ran.err == "note: merge never carries finding: this grant has no effect\n"


def test_in_80_columns_names_and_ids_are_complete_and_long_tables_are_truncated(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = two
    monkeypatch.setenv("COLUMNS", "80")
    bob("peer", "change", "ann", "--url", f"{ann.root}/{'x' * 90}")
    listed = bob("peer", "list").splitlines()
    assert len(listed) == 2
    assert listed[1].endswith("…")
    bob("peer", "change", "ann", "--url", str(ann.root))
    bob("cap", "grant", "ann", "console-trace", "note", "--expires", "30d")
    grants = {grant["cid"][:10] for grant in bob.json("cap", "list")}
    assert {line[-1] for line in rows(bob("cap", "list"))[1:]} == grants
    with ann.space() as space:
        for number in range(3):
            space.spawn(f"an-agent-whose-name-is-a-long-one-{number}", library.Briefing("Have a name"))
    ann("announce")
    output, shown_peer = bob("sync"), bob("peer", "show", "ann")
    assert shown_peer.count("capability-denied: no grant for spawn by spawn\n") == 1, "three claims with the same reason"
    places = {f"{kind}/an-agent-whose-name-is-a-long-one-{number}" for number in range(3) for kind in ("agents", "records")}
    assert {line[0] for line in rows(shown_peer) if len(line) == 4} >= places
    assert {line[1] for line in rows(output) if line[0] == "capability-denied"} >= places
    with redirect_stdout(StringIO()) as out:
        show_moves([Move(f"agents/a{number}", None, "0" * 40, "finding", "head-move") for number in range(300)])
    assert (len(out.getvalue().splitlines()), out.getvalue().splitlines()[-1]) == (22, "and 280 more")


def test_a_git_remote_carries_announcements(two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = two
    git("init", "-q", "--bare", str(tmp_path / "hub.git"), cwd=tmp_path)
    git("remote", "add", "hub", str(tmp_path / "hub.git"), cwd=ann.root)
    assert ann("announce", "--push", "hub") == "bob: nothing new; pushed to hub\n"
    assert ann.refused("announce", "--push", "nowhere")["code"] == "no-such-remote"
    git("remote", "add", "away", str(tmp_path / "away.git"), cwd=ann.root)
    ann.commit("scout", "two\n")
    ran = ann.run("announce", "bob", "--push", "away")
    assert (ran.code, ran.err.splitlines()[-1]) == (
        1,
        "  hint: push it later with: clia announce bob --push away",
    )
    assert ran.err.startswith("error: transport-error: announced, but not pushed: git could not push to away")
    git("init", "-q", "--bare", str(tmp_path / "away.git"), cwd=tmp_path)
    assert ann("announce", "bob", "--push", "away") == "bob: nothing new; pushed to away\n"
    assert git("for-each-ref", "refs/clia/announce", cwd=tmp_path / "away.git")
    ann("announce", "--push", "hub")
    monkeypatch.chdir(tmp_path)
    changed = bob.json("peer", "change", "ann", "--url", "hub.git")
    assert changed["url"] == str(tmp_path.resolve() / "hub.git"), "a folder is stored with its full path"
    bob("cap", "grant", "ann", "--follow")
    bob("sync")
    assert [remote["agent"] for remote in bob.json("remotes")] == ["scout"]


def test_bad_input_names_what_is_wrong_and_changes_nothing(two: Two) -> None:
    ann, bob = two
    key, own = ann.key(), bob.key()
    bob("cap", "grant", "ann", "finding", "note")
    before = ann.refs(), bob.refs()
    add = ("peer", "add", "other", "--key")
    for code, words in (
        ("invalid-key", (*add, "nonsense")),
        ("invalid-key", (*add, key[:-1])),
        ("same-space", (*add, own)),
        ("invalid-name", ("peer", "add", "No Name", "--key", key)),
        ("invalid-url", ("peer", "change", "ann", "--url", "ext::sh -c true")),
        ("invalid-url", ("peer", "change", "ann", "--url", "--upload-pack=x")),
        ("usage", ("peer", "change", "ann")),
        ("no-such-peer", ("peer", "show", "nobody")),
        ("no-such-peer", ("peer", "share", "nobody", "--agent", "*")),
        ("no-such-peer", ("peer", "remove", "nobody")),
        ("no-such-peer", ("peer", "change", "nobody", "--trust")),
        ("no-such-peer", ("announce", "nobody")),
        ("no-such-peer", ("sync", "nobody")),
        ("no-such-peer", ("remotes", "nobody")),
        ("no-such-peer", ("cap", "list", "nobody")),
        ("no-such-peer", ("cap", "explain", "nobody", "finding", "note")),
        ("no-such-peer", ("cap", "grant", "nobody", "--follow")),
        ("no-such-peer", ("cap", "revoke", "nobody")),
        ("no-such-type", ("cap", "grant", "ann", "unheard-of", "note")),
        ("invalid-trigger", ("cap", "grant", "ann", "finding", "head-move", "moon")),
        ("invalid-trigger", ("cap", "grant", "ann", "finding", "snapshot")),
        ("invalid-trigger", ("cap", "explain", "ann", "finding", "moon")),
        ("invalid-expiry", ("cap", "grant", "ann", "finding", "merge", "--expires", "2020-01-31")),
        ("invalid-expiry", ("cap", "grant", "ann", "finding", "merge", "--expires", "0d")),
        ("invalid-time", ("cap", "grant", "ann", "finding", "merge", "--expires", "soon")),
        ("invalid-time", ("cap", "grant", "ann", "finding", "merge", "--expires", "999999w")),
        ("usage", ("cap", "grant", "ann")),
        ("usage", ("cap", "grant", "ann", "finding")),
        ("invalid-option", ("cap", "grant", "ann", "finding", "note", "--follow")),
        ("invalid-option", ("cap", "grant", "ann", "--follow", "--execute")),
        ("invalid-option", ("cap", "grant", "ann", "finding", "note", "--execute")),
        ("invalid-option", ("cap", "explain", "ann", "finding", "note", "--execute")),
        ("invalid-trigger", ("cap", "revoke", "ann", "finding", "moon")),
        ("no-such-grant", ("cap", "revoke", "ann", "finding", "merge")),
        ("no-such-grant", ("cap", "revoke", "ann", "--id", "0")),
        ("invalid-option", ("cap", "revoke", "ann", "finding", "--id", "0123")),
        ("nothing-shared", ("announce", "ann")),
        ("invalid-option", ("peer", "share", "ann", "--traces")),
        ("invalid-option", ("peer", "share", "ann", "--nothing", "--agent", "*")),
        ("invalid-name", ("peer", "share", "ann", "--agent", "../x")),
    ):
        assert bob.refused(*words)["code"] == code, words
    assert bob.refused(*add, key, code=1)["code"] == "already-exists"
    for words in (("peer", "add", "x"), ("peer", "change", "ann", "--trust", "--no-trust"), ("cap", "explain", "ann", "finding")):
        assert bob.run(*words).code == 2, words
    assert (ann.refs(), bob.refs()) == before
    assert "note: no agent 'scuot' exists yet" in ann.run("peer", "share", "bob", "--agent", "scuot").err


def test_every_command_has_json_output_and_fails_outside_a_space(two: Two, tmp_path: Path) -> None:
    ann, bob = two
    share = {"agents": ["*"], "traces": True, "sessions": False, "behaviours": []}
    assert ann.json("peer", "share", "bob") == share
    assert ann("peer", "share", "bob") == "shared with bob: all agents; traces\n"
    (peer,) = ann.json("peer", "list")
    assert {key: peer[key] for key in ("name", "url", "trusted", "share")} == {
        "name": "bob",
        "url": None,
        "trusted": True,
        "share": share,
    }
    assert list(bob.json("cap", "grant", "ann", "finding", "note")[0]) == list(bob.json("cap", "list")[0])
    assert bob.json("cap", "revoke", "ann")[0]["type"] == "finding"
    assert ann.json("announce") == [
        {"peer": "bob", "seq": ann.json("announce")[0]["seq"], "statements": 0, "snapshot": False, "moves": [], "rung": None}
    ]
    assert ann.json("announce", "--snapshot")[0]["snapshot"] is True
    assert bob.json("peer", "change", "ann", "--no-trust")["trusted"] is False
    assert bob.json("sync")[0]["accepted"] == 2
    assert bob.json("peer", "show", "ann")["waiting"] == 2
    assert len(ann.json("key", "rotate")["chain"]) == 2
    assert bob.json("peer", "remove", "ann") == {"peer": "ann", "removed": True}
    assert bob.json("peer", "add", "ann", "--key", ann.key(), "--no-trust")["trusted"] is False
    outside = FederationCli(tmp_path)
    for words in (
        "key show",
        "key rotate",
        "peer list",
        "peer show x",
        "peer add x --key y",
        "peer change x --trust",
        "peer share x",
    ):
        assert outside.refused(*words.split())["code"] == "no-such-repository", words
    for words in (
        "peer remove x",
        "cap list",
        "cap grant x --follow",
        "cap revoke x",
        "cap explain x y z",
        "announce",
        "sync",
        "remotes",
    ):
        assert outside.refused(*words.split())["code"] == "no-such-repository", words


def test_text_of_a_peer_cannot_control_the_terminal(two: Two) -> None:
    """At a terminal a progress bar is shown."""
    ann, bob = two
    with ann.space() as space:
        space.commit("scout", "finding", {"a.txt": b"x"}, message="\x1b[31mred\x1b[0m")
    ann("announce")
    bob("cap", "grant", "ann", "--follow")
    with Terminal(bob.root, "sync") as terminal:
        terminal.sees("Reading peers")
        terminal.sees("agents/scout")
        assert terminal.ends() == 0
    assert "\\u{1b}[31mred" in bob("remotes")


def test_key_show_prints_only_the_key_with_standard_error_closed(tmp_path: Path) -> None:
    """A shell gets a key from `$(clia key show 2>&-)`."""
    git("init", "-q", str(tmp_path / "one"), cwd=tmp_path)
    words = 'cd one && "$0" init >/dev/null 2>&1 && "$0" key show 2>&-'
    result = subprocess.run(["sh", "-c", words, program()], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"clia:[0-9a-f-]{36}:[A-Za-z0-9_-]{43}\n", result.stdout)
