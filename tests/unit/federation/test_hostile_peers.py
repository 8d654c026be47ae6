"""Two real spaces, one of which lies: each lie is refused by its code, and nothing moves.

Where a statement is rightly signed and only what it says is false, the position goes on, on purpose: what was heard is not
heard again, and the claim waits without effect.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

import clia
from clia.federation.announcing import CLOCK_SKEW, FETCH_TOKEN, NOTIFY_TOKEN, TOKEN_SECONDS
from clia.federation.keys import sign_link
from clia.federation.statements import RefClaim, define_cid
from clia.testing import components, replace_parts
from clia.values.canonical import canonical_bytes
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, HEARER, OTHER, USUAL, Late, Pair, Speaker, an_id, codes, decoded, encoded, plumbed
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable

FLOW = "def main(input):\n    return request('human', input)\n"
TRAILERS = "Clia-Agent: {}\nClia-Type: {}\n"


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """One agent is told and tracked, of two commits."""
    made = Pair(tmp_path)
    made.agent(made.owner, "scout", "one")
    made.owner.announce("bee")
    made.grant()
    assert codes(made.sync().refused) == []
    return made


# What is not what it was said to be: all of it in one snapshot, heard once


class Lie(NamedTuple):
    claim: RefClaim
    code: str


def said_commit(message: str, agent: str, kind: str) -> str:
    return f"{message}\n\n{TRAILERS.format(agent, kind)}"


def of_heads(pair: Pair) -> dict[str, Lie]:
    scout = git("rev-parse", HEADS + "scout", cwd=pair.place("owner")).strip()
    spawned = git("rev-parse", f"{scout}^", cwd=pair.place("owner")).strip()
    plain = pair.commit("a commit of people", {"a.txt": "x"})
    judge = pair.commit(said_commit("spawn", "judge", "spawn"), {})
    tag = plumbed("mktag", cwd=pair.place("owner"), stdin=f"object {plain}\ntype commit\ntag t\ntagger T <t@x> 1 +0000\n\nt\n")

    def at(name: str, new: str, code: str, kind: str = "finding") -> Lie:
        return Lie(RefClaim(HEADS + name, new, kind, {"spawn": "spawn"}.get(kind, "head-move")), code)

    return {
        "missing": at("ghost", an_id(7), "missing-object"),
        "a blob": at("blob", pair.blob("x"), "not-a-commit"),
        "a tree": at("tree", git("rev-parse", f"{scout}^{{tree}}", cwd=pair.place("owner")).strip(), "not-a-commit"),
        "a tag": at("tag", tag, "not-a-commit"),
        "a commit of people": at("plain", plain, "not-an-agent-commit"),
        "half an agent-commit": at("half", pair.commit("x\n\nClia-Agent: half", {}), "not-an-agent-commit"),
        "of another agent": at("alias", scout, "wrong-agent"),
        "past the gate": at(
            "judge", pair.commit(said_commit("yes", "judge", "decision"), {}, judge), "type-mismatch"
        ),  # said to be a finding, which is granted; a decision is not
        "a known history rewritten": at(
            "scout", pair.commit(said_commit("other", "scout", "finding"), {"a.txt": "y"}, spawned), "not-descending"
        ),
        "no genesis": at("orphan", pair.commit(said_commit("x", "orphan", "finding"), {}), "no-genesis"),
        "one of ours": at("mine", git("rev-parse", HEADS + "mine", cwd=pair.place("owner")).strip(), "claims-anothers-agent"),
        "another's": at("owl", git("rev-parse", HEADS + "owl", cwd=pair.place("owner")).strip(), "claims-anothers-agent"),
        "one of ours that went on": at(
            "put-away",
            pair.commit(
                said_commit("x", "put-away", "finding"), {}, git("rev-parse", HEADS + "put-away", cwd=pair.place("owner")).strip()
            ),
            "claims-anothers-agent",
        ),
    }


def of_the_rest(pair: Pair) -> dict[str, Lie]:
    plain = pair.commit("x", {"evil.txt": "x"})
    flow = as_bytes(Behaviour("hello", SESSION_FLOW, FLOW).to_object()).decode()
    version = pair.blob(flow)
    folder = plumbed("mktree", cwd=pair.place("owner"), stdin=f"100644 blob {version}\t{version}.json\n")
    link_at = f"120000,blob,{pair.blob('/etc/passwd')}"
    note = "ab" * 20

    def notes(new: str) -> Lie:
        return Lie(RefClaim("refs/notes/clia/trace/scout", new, "console-trace", "note"), "not-notes")

    def flows(name: str, new: str) -> Lie:
        return Lie(RefClaim(f"refs/clia/behaviours/{name}", new, "behaviour", "behaviour"), "not-a-behaviour")

    def kind(name: str, parent: str, code: str) -> Lie:
        return Lie(RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent), code)

    wrong = pair.commit("x", {"briefing.json": '{"type":"profile"}'})
    return {
        "no notes": notes(plain),
        "a note that is a link": notes(pair.commit("x", {note: link_at}))._replace(
            claim=RefClaim("refs/notes/clia/trace/other", pair.commit("x", {note: link_at}), "console-trace", "note")
        ),
        "no record": Lie(RefClaim("refs/clia/agents/scout", plain, "briefing", "spawn"), "not-a-record"),
        "a record of something else": Lie(RefClaim("refs/clia/agents/other", wrong, "briefing", "spawn"), "not-a-record"),
        "no behaviour": flows("one", plain),
        "a version of another name": flows(
            "two", pair.commit("x", {"current": version + "\n", "versions": f"040000,tree,{folder}"})
        ),
        "no current version": flows("hello", pair.commit("x", {"current": an_id(1), "versions": f"040000,tree,{folder}"})),
        "a type that means another here": kind("security-review", "refactor", "type-clash"),
        "a built-in type with another parent": kind("finding", "refactor", "type-clash"),
        "a type of nothing known": kind("odd", "never-heard-of", "capability-denied"),
        "a type of itself": kind("round", "round", "capability-denied"),
    }


LIES = (
    """
missing; a blob; a tree; a tag; a commit of people; half an agent-commit; of another agent;
past the gate; a known history rewritten; no genesis; one of ours; another's;
one of ours that went on; no notes; a note that is a link; no record; a record of something else;
no behaviour; a version of another name; no current version; a type that means another here;
a built-in type with another parent; a type of nothing known; a type of itself
""".replace("\n", " ")
    .strip()
    .split("; ")
)


class Told(NamedTuple):
    lies: dict[str, Lie]
    refused: dict[str, str]  # by ref
    before: Any
    after: Any
    again: Any


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A peer tells all lies in one snapshot, among true things; what the hearer made of it, and what of hearing it again."""
    pair = Pair(tmp_path_factory.mktemp("spaces"))
    hearer, owner = pair.hearer, pair.owner
    third = pair.made("third")
    for space, name in ((owner, "scout"), (hearer, "mine"), (hearer, "put-away"), (third, "owl")):
        pair.agent(space, name, "one")
    third.add_peer("bee", hearer.key().text)
    third.share("bee", agents=["*"])
    third.announce("bee")
    hearer.add_peer("cee", third.key().text, pair.place("third"))
    for wanted in USUAL[:4]:
        hearer.grant("cee", *wanted)
    for wanted in (("finding", "head-move"), ("spawn", "spawn"), *USUAL[3:], ("agent-commit", "type")):
        hearer.grant("ay", *wanted)
    hearer.register_type("security-review", "finding")
    owner.announce("bee")
    for synced in hearer.sync():
        assert codes(synced.refused) == []
    for place, name in (("hearer", "mine"), ("hearer", "put-away"), ("third", "owl")):
        git("fetch", "-q", pair.place(place), f"{HEADS}{name}:{HEADS}{name}", cwd=pair.place("owner"))
    hearer.archive("put-away")
    lies = of_heads(pair) | of_the_rest(pair)
    owner.spawn("honest", BRIEFING)
    true = RefClaim(HEADS + "honest", git("rev-parse", HEADS + "honest", cwd=pair.place("owner")).strip(), "spawn", "spawn")
    before = pair.state()
    pair.forge(*(each.claim for each in lies.values()), true)
    synced = pair.sync()
    after = pair.state()
    assert synced.accepted == 1
    assert [(each.place, each.new) for each in synced.moves] == [("agents/honest", true.new)]
    again = pair.sync()
    assert pair.state() == after
    return Told(lies, {each.ref or "": each.code for each in synced.refused}, before, after, again)


@pytest.mark.parametrize("name", LIES)
def test_what_is_not_what_it_was_said_to_be_is_refused(told: Told, name: str) -> None:
    lie = told.lies[name]
    assert told.refused[lie.claim.ref] == lie.code


def test_lies_move_nothing_and_spoil_nothing_that_is_true(told: Told) -> None:
    """One agent of the same snapshot is true, and tracked; the position goes on; no lie is fetched again."""
    assert set(told.lies) == set(LIES)
    assert told.refused.keys() == {each.claim.ref for each in told.lies.values()}
    (before, seq), (after, later) = told.before, told.after
    honest = "refs/clia/remotes/ay/agents/honest"
    assert {ref: cid for ref, cid in after.items() if ref != honest} == before
    assert honest in after
    assert later == (seq[0] + 1, False)
    assert (told.again.accepted, told.again.moves) == (0, ())
    assert codes(told.again.refused) in ([], ["missing-object"])  # only what may come to be there is asked for again


def test_a_type_that_is_built_in_is_nothing_to_learn(pair: Pair) -> None:
    """A peer that tells of one is heard to the end."""
    pair.hearer.grant("ay", "agent-commit", "type")
    before, (seq, _) = pair.state()
    pair.forge(RefClaim("types/finding", define_cid("finding", "agent-commit"), "finding", "type", "agent-commit"))
    pair.clock.left = 5000
    assert pair.sync().moves == ()
    assert pair.state() == (before, (seq + 1, False))


# What is not believed: the position stays, too


def unmoved(pair: Pair, code: str) -> None:
    before = pair.state()
    synced = pair.sync()
    assert codes(synced.refused) == [code]
    assert (synced.accepted, synced.moves) == (0, ())
    assert pair.state() == before


def moved_on(pair: Pair, text: str = "more") -> None:
    pair.owner.commit("scout", "finding", {"a.txt": text.encode()})
    pair.owner.announce("bee")


def rewound(pair: Pair, by: int) -> None:
    git("update-ref", pair.chain_ref, f"{pair.chain_ref}~{by}", cwd=pair.place("owner"))


@pytest.mark.parametrize("lost", [False, True], ids=["", "after the store was lost"])
def test_a_replay_is_refused(pair: Pair, lost: bool) -> None:
    """What was heard is kept in git. The old statement comes alone, and on top of the newest."""
    moved_on(pair, "two")
    moved_on(pair, "three")
    old = pair.tokens()[1]
    assert pair.sync().accepted == 2
    if lost:
        pair.hearer.close()
        for each in Path(pair.place("hearer"), ".git", "clia").glob("space.db*"):
            each.unlink()
        pair.hearer = clia.open(pair.place("hearer"), settings=pair.settings())
    rewound(pair, 1)
    unmoved(pair, "replayed")
    pair.append(old)
    unmoved(pair, "replayed")


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("wrong-audience", {"aud": OTHER}),
        ("wrong-space", {"space": HEARER}),
        ("expired", {"at": 1, "exp": 2}),
        ("from-the-future", {"at": 4_000_000_000, "exp": 4_000_000_060}),
        ("lives-too-long", {"exp": 4_000_000_000}),
        ("unsupported-format", {"format": 2}),
        ("format-downgrade", {"format": 0}),
    ],
)
def test_a_snapshot_that_is_not_for_us_or_not_for_now_is_refused(pair: Pair, code: str, change: dict[str, Any]) -> None:
    pair.forge(**change)
    unmoved(pair, code)


def test_a_gap_is_refused_until_a_snapshot(pair: Pair) -> None:
    """A number is left out of the chain: what is behind it is not believed, until the next snapshot says all there is."""
    moved = pair.statement("head-move", [RefClaim(HEADS + "scout", an_id(1), "finding", "head-move")])
    pair.append(pair.speaker().token(moved._replace(seq=moved.seq + 1)))
    unmoved(pair, "gap")
    pair.owner.announce("bee", snapshot=True)
    synced = pair.sync()
    assert (synced.accepted, codes(synced.refused)) == (1, [])  # what was out of place no longer matters
    assert pair.hearer.remotes("ay")[0].head == git("rev-parse", HEADS + "scout", cwd=pair.place("owner")).strip()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda token: token[:-1] + ("A" if token[-1] != "A" else "Q"), "bad-signature"),
        (
            lambda token: ".".join(
                [token.split(".")[0], encoded(decoded(token.split(".")[1]).replace(b"finding", b"refactor")), "AAAA"]
            ),
            "bad-signature",
        ),
        (lambda token: encoded(b'{"alg":"none"}') + "." + token.split(".")[1] + ".", "wrong-algorithm"),
        (lambda token: "x", "malformed-token"),
    ],
    ids=["signature", "body", "algorithm", "no token"],
)
def test_a_spoiled_token_in_the_chain_is_refused(pair: Pair, spoil: Callable[[str], str], code: str) -> None:
    token = pair.speaker().token(pair.statement("snapshot", []))
    pair.append(spoil(token))
    unmoved(pair, code)


def test_a_stranger_who_writes_into_the_repository_is_not_believed(pair: Pair, tmp_path: Path) -> None:
    """Who can push to the owner's repository, and has no key of its own there, moves nothing; nor does a chain of other keys."""
    stranger = Speaker.new(tmp_path / "keys", pair.owner.key().space)
    pair.append(stranger.token(pair.statement("snapshot", [])))
    unmoved(pair, "unknown-key")
    where = pair.place("owner")
    said = sign_link(stranger.ring, stranger.space, 1, stranger.key, stranger.key)
    tree = plumbed("mktree", cwd=where)
    made = git("commit-tree", tree, "-m", f"first key\n\nClia-Key: {said}", cwd=where).strip()
    kept = git("rev-parse", "refs/clia/keys", cwd=where).strip()
    git("update-ref", "refs/clia/keys", made, cwd=where)
    before = pair.state()
    assert codes(pair.sync().refused) == ["key-not-continued", "unknown-key"]
    assert pair.state() == before
    assert len(pair.hearer.peer("ay").keys) == 1
    git("update-ref", "refs/clia/keys", kept, cwd=where)
    rewound(pair, 1)
    moved_on(pair)
    assert codes(pair.sync().refused) == []


def test_a_replaced_key_is_refused_from_then_on(pair: Pair) -> None:
    """The old key was stolen; its owner rotates. Before the hearer knows of it and after: what the new key says counts alone."""
    shutil.copytree(Path(pair.place("owner"), ".git/clia/keys"), pair.root / "stolen")
    thief = Speaker(str(pair.root / "stolen"), pair.owner.key().key, pair.owner.key().space)
    pair.owner.rotate_key()
    synced = pair.sync()
    assert (synced.keys, synced.accepted, codes(synced.refused)) == (1, 1, [])
    pair.append(thief.token(pair.statement("snapshot", [])))
    unmoved(pair, "revoked-key")
    rewound(pair, 1)
    moved_on(pair)
    synced = pair.sync()
    assert (synced.accepted, len(synced.moves)) == (1, 1)


def test_a_lost_key_is_a_new_identity_that_has_to_be_pinned(pair: Pair) -> None:
    shutil.rmtree(Path(pair.place("owner"), ".git/clia/keys"))
    pair.owner.rotate_key(lost=True)
    before = pair.state()
    assert "key-not-continued" in codes(pair.sync().refused)
    assert pair.state() == before
    pair.hearer.remove_peer("ay")
    pair.hearer.add_peer("ay", pair.owner.key().text, pair.place("owner"))
    pair.grant()
    assert codes(pair.sync().refused) == ["unknown-key"]  # what the old key had said is still in the chain
    assert [each.agent for each in pair.hearer.remotes("ay")] == ["scout"]


def test_two_clones_with_one_key_are_refused_until_a_snapshot(pair: Pair) -> None:
    """The second clone's statement has a number that was heard already. That the chain forked is kept, and told."""
    shutil.copytree(pair.place("owner"), pair.place("twin"))
    twin = clia.open(pair.place("twin"), settings=pair.settings())
    moved_on(pair, "of the first")
    assert pair.sync().accepted == 1
    before, (seq, _) = pair.state()
    twin.commit("scout", "finding", {"a.txt": b"of the second"})
    twin.announce("bee")
    pair.hearer.change_peer("ay", url=pair.place("twin"))
    assert codes(pair.sync().refused) == ["chain-forked"]
    assert pair.state() == (before, (seq, True))
    pair.hearer.change_peer("ay", url=pair.place("owner"))
    moved_on(pair, "more of the first")
    assert codes(pair.sync().refused) == ["chain-forked"]
    assert pair.state() == (before, (seq, True))
    pair.owner.announce("bee", snapshot=True)
    assert len(pair.sync().moves) == 1
    assert not pair.hearer.peer("ay").forked


# Revocation


def test_a_revocation_stops_what_was_announced_and_not_yet_heard(pair: Pair) -> None:
    """The position goes on; the claim waits, and is carried out when it is granted again."""
    moved_on(pair)
    pair.hearer.revoke("ay", "agent-commit", "head-move")
    before, (seq, _) = pair.state()
    synced = pair.sync()
    assert (synced.accepted, synced.moves, codes(synced.refused)) == (1, (), ["capability-denied"])
    after, (later, _) = pair.state()
    assert (after, later) == (before, seq + 1)
    pair.hearer.grant("ay", "agent-commit", "head-move")
    assert len(pair.sync().moves) == 1


@pytest.mark.parametrize("instant", ["accepted", "transferred"])
@pytest.mark.parametrize("how", ["revoked", "not trusted"])
def test_a_revocation_in_the_middle_of_a_sync_still_counts(pair: Pair, instant: str, how: str) -> None:
    """By somebody else, when the statement is accepted, and when its objects have been transferred."""
    moved_on(pair)
    other = clia.open(pair.place("hearer"), settings=pair.settings())

    def meanwhile(at: str) -> None:
        if at == instant and how == "revoked":
            other.revoke("ay", "agent-commit", "head-move")
        elif at == instant:
            other.change_peer("ay", trusted=False)

    pair.hearer.close()
    pair.hearer = clia.open(pair.place("hearer"), settings=pair.settings(reached=meanwhile))
    remotes = pair.hearer.remotes("ay")
    synced = pair.sync()
    assert (synced.accepted, synced.moves) == (1, ())
    assert pair.hearer.remotes("ay") == remotes
    assert [each.place for each in pair.hearer.waiting("ay")] == ["agents/scout"]


def test_a_revocation_while_objects_are_on_their_way_still_counts(pair: Pair) -> None:
    moved_on(pair)
    remotes = pair.hearer.remotes("ay")
    syncing = components(pair.hearer).syncing  # the one part of a space that has a transport
    late = cast("Any", Late(syncing.resources.transport, lambda: pair.hearer.revoke("ay")))
    replace_parts(pair.hearer, syncing=syncing._replace(resources=syncing.resources._replace(transport=late)))
    assert pair.sync().moves == ()
    assert pair.hearer.remotes("ay") == remotes


# Running what is another's


def test_a_behaviour_of_a_peer_does_not_run_without_a_grant_to(pair: Pair) -> None:
    """By its name, by the id of its version, and by that of a file of the peer's that was merged; no session begins."""
    flow = pair.owner.define("hello", FLOW).cid
    body = as_bytes(Behaviour("sly", SESSION_FLOW, FLOW).to_object())
    pair.owner.commit("scout", "finding", {"sly.json": body})
    pair.owner.announce("bee")
    pair.agent(pair.hearer, "mine")
    assert codes(pair.sync().refused) == []
    pair.hearer.merge("mine", "ay/scout")
    sly = git("rev-parse", "refs/heads/agents/mine:sly.json", cwd=pair.place("hearer")).strip()
    before = pair.state()
    for text in ("ay/hello", flow, sly):
        refused("execute-denied", partial(pair.hearer.start, "mine", text, {"question": "?"}))
    refused("no-such-flow", lambda: pair.hearer.start("mine", "ay/sly", {"question": "?"}))
    refused("no-such-flow", lambda: pair.hearer.start("mine", "hello", {"question": "?"}))
    assert pair.state() == before
    assert pair.hearer.sessions("mine") == []
    pair.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    refused("execute-denied", lambda: pair.hearer.start("mine", sly, {"question": "?"}))
    assert pair.hearer.start("mine", flow, {"question": "?"}).status == "suspended"


# Passes and knocks


def test_only_a_peer_is_let_in_at_the_door(pair: Pair, tmp_path: Path) -> None:
    """A pass or a knock is of the peer's newest key, for this space, for some minutes; a peer that is not trusted has none."""
    peer_tokens, owner = pair.hearer.peer_tokens, pair.speaker()
    stranger = Speaker.new(tmp_path / "keys", owner.space)
    me, now = pair.hearer.key().space, int(pair.clock.at.timestamp())
    good = {"space": owner.space, "aud": me, "exp": now + TOKEN_SECONDS}

    def token(by: Speaker = owner, typ: str = FETCH_TOKEN, **change: Any) -> str:
        return by.signed(canonical_bytes(good | change), by.header(typ=typ))

    for typ in (FETCH_TOKEN, NOTIFY_TOKEN):
        assert peer_tokens.authenticate(token(typ=typ), typ).name == "ay"
    for code, shown in (
        ("wrong-audience", token(aud=OTHER)),
        ("wrong-audience", token(aud=owner.space)),
        ("wrong-audience", token(space=OTHER)),
        ("wrong-audience", owner.signed(b"[]", owner.header(typ=FETCH_TOKEN))),
        ("wrong-audience", owner.signed(b"[" * 10_000, owner.header(typ=FETCH_TOKEN))),
        ("expired", token(exp=now - CLOCK_SKEW)),
        ("expired", token(exp=now + TOKEN_SECONDS + CLOCK_SKEW + 100)),  # a pass for ever
        ("expired", token(exp=True)),
        ("expired", token(exp=str(now + TOKEN_SECONDS))),
        ("unknown-key", token(by=stranger)),
        ("unknown-key", token(by=pair.speaker("hearer"))),
        ("wrong-token-type", token(typ=NOTIFY_TOKEN)),
        ("wrong-token-type", pair.tokens()[0]),
        ("malformed-token", ""),
        ("malformed-token", "Bearer x"),
        ("bad-signature", token()[:-4] + "AAAA"),
    ):
        refused(code, partial(peer_tokens.authenticate, shown, FETCH_TOKEN))
    old = token(exp=now + TOKEN_SECONDS + 60)
    pair.owner.rotate_key()
    pair.sync()
    refused("unknown-key", lambda: peer_tokens.authenticate(old, FETCH_TOKEN))
    newest = pair.speaker()
    assert peer_tokens.authenticate(token(by=newest), FETCH_TOKEN).name == "ay"
    pair.hearer.change_peer("ay", trusted=False)
    refused("untrusted-peer", lambda: peer_tokens.authenticate(token(by=newest), FETCH_TOKEN))
    pair.hearer.remove_peer("ay")
    refused("unknown-key", lambda: peer_tokens.authenticate(token(by=newest), FETCH_TOKEN))


def test_what_git_says_about_the_hearer_afterwards(pair: Pair) -> None:
    """After lies and truths the repository is whole, and what is kept of a peer is what the space says."""
    pair.forge(RefClaim(HEADS + "ghost", an_id(7), "finding", "head-move"))
    assert codes(pair.sync().refused) == ["missing-object"]
    checked = subprocess.run(["git", "fsck", "--strict"], cwd=pair.place("hearer"), capture_output=True, text=True, check=True)
    assert "missing" not in checked.stdout + checked.stderr
    assert pair.hearer.verify().clean
