from __future__ import annotations

import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clia.federation.statements import RefClaim, define_cid
from clia.forge.federation import asked
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, USUAL, Pair, Speaker, an_id, codes, plumbed
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Iterator


SCOUT = HEADS + "scout"


KEPT = "refs/clia/remotes/ay/announce"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """One agent of two commits is told and tracked."""
    made = Pair(tmp_path)
    made.agent(made.owner, "scout", "one")
    made.owner.announce("bee")
    made.grant()
    assert codes(made.sync().refused) == []
    yield made
    made.owner.close()
    made.hearer.close()


def moved_on(pair: Pair, text: str = "more") -> str:
    cid = pair.owner.commit("scout", "finding", {"a.txt": text.encode()})
    pair.owner.announce("bee")
    return cid


def at(pair: Pair, side: str, what: str) -> str:
    return git("rev-parse", what, cwd=pair.place(side)).strip()


def pointed(pair: Pair, side: str, ref: str, to: str) -> None:
    git("update-ref", ref, to, cwd=pair.place(side))


def tracked(pair: Pair) -> dict[str, str]:
    return {each.agent: each.head for each in pair.hearer.remotes("ay")}


def has(pair: Pair, cid: str) -> bool:
    """Whether an object is in the hearer's repository."""
    return plumbed("cat-file", "--batch-check", cwd=pair.place("hearer"), stdin=cid).split()[1] != "missing"


def spawned(name: str) -> str:
    return f"spawn\n\nClia-Agent: {name}\nClia-Type: spawn\n"


@pytest.mark.parametrize(
    ("how", "where"),
    [
        ("no statement", "at the end"),
        ("a tree", "at the end"),
        ("two parents", "at the end"),
        ("heard, with a tree", "at the end"),
        ("a tree", "at the end, while something waits"),
        ("a tree", "below one that holds"),
        ("no statement", "below one that was heard"),
    ],
)
def test_what_a_chain_holds_beside_statements_is_not_let_in(pair: Pair, how: str, where: str) -> None:
    """A peer could fill our repository with anything, and no grant would be asked for."""
    if where.endswith("something waits"):
        (grant,) = pair.hearer.revoke("ay", "agent-commit", "head-move")
        moved_on(pair)
        assert codes(pair.sync().refused) == ["capability-denied"]
        pair.hearer.grant("ay", grant.type, grant.trigger)
    tip, kept = at(pair, "owner", pair.chain_ref), at(pair, "hearer", KEPT)
    filler = pair.blob("filler")
    files = {"load.bin": f"100644,blob,{filler}"}
    heard = pair.tokens()[-1]
    said = f"x\n\nClia-Announcement: {heard if how.startswith('heard') else pair.speaker().token(pair.statement('snapshot', []))}"
    if how == "two parents":
        made = pair.commit(said, {}, tip, pair.commit("load", files))
    else:
        made = pair.commit("x" if how == "no statement" else said, files, tip)
    pointed(pair, "owner", pair.chain_ref, made)
    if where == "below one that was heard":
        pair.append(heard)
    if where.startswith("below"):
        pair.forge(*(RefClaim(HEADS + each, pair.owner.head("scout"), "finding", "head-move") for each in ("scout", "alias")))
    assert "malformed-chain" in codes(pair.sync().refused)
    pair.sync()  # nor later
    assert at(pair, "hearer", KEPT) == kept
    assert not has(pair, filler)
    assert not has(pair, made)


def test_a_chain_is_kept_only_where_it_was_believed_to_its_end(pair: Pair, tmp_path: Path) -> None:
    """One statement of a stranger on top of a true one: the true one is heard, and what is kept is no stranger's."""
    new, kept = moved_on(pair), at(pair, "hearer", KEPT)
    made = pair.append(Speaker.new(tmp_path / "stranger", pair.owner.id).token(pair.statement("snapshot", [])))
    synced = pair.sync()
    assert (synced.accepted, codes(synced.refused), tracked(pair)) == (1, ["unknown-key"], {"scout": new})
    assert at(pair, "hearer", KEPT) == kept
    pointed(pair, "owner", pair.chain_ref, f"{made}^")
    pair.sync()
    assert at(pair, "hearer", KEPT) == at(pair, "owner", f"{made}^")


def packets(*lines: str) -> bytes:
    return b"".join(b"%04x%s" % (len(each) + 5, each.encode() + b"\n") if each else b"0000" for each in lines)


def test_of_a_request_only_ids_that_were_told_are_passed_on() -> None:
    """Git answers to every id it has, and would tell a peer what else is here."""
    told, private = an_id(1), an_id(2)
    want = f"want {told} multi_ack_detailed agent=git/2"
    whole = packets(want, "", f"have {private}", f"have {told}", f"have {private}", "done")
    assert asked(whole, {told}) == packets(want, "", f"have {told}", "done")
    assert asked(packets(want, "deepen 1", ""), {told}) == packets(want, "deepen 1", "")
    assert refused("missing-object", lambda: asked(packets(want, f"want {private}", "", "done"), {told})).message == private
    for odd in (f"shallow {told}", "filter blob:none", "deepen-since 1", "deepen-not main", f"have {told[:39]}", f"WANT {told}"):
        refused("malformed-request", partial(asked, packets(want, odd, "", "done"), {told}))


def test_an_agent_that_another_claimed_first_is_its_owners_once_that_peer_is_gone(pair: Pair) -> None:
    """The refusal is told once, not with each sync; and it does not stand for ever."""
    hearer, third = pair.hearer, pair.made("third")
    pair.agent(third, "owl", "one")
    git("fetch", "-q", pair.place("third"), f"{HEADS}owl:{HEADS}owl", cwd=pair.place("owner"))
    pair.owner.announce("bee")
    assert [each.place for each in pair.sync().moves] == ["agents/owl"]
    third.add_peer("bee", hearer.key().text)
    third.share("bee", agents=["*"])
    third.announce("bee")
    hearer.add_peer("cee", third.key().text, pair.place("third"))
    for wanted in USUAL:
        hearer.grant("cee", *wanted)
    (first,), (again,) = hearer.sync("cee"), hearer.sync("cee")
    assert (codes(first.refused), codes(again.refused)) == (["claims-anothers-agent"], [])
    assert hearer.remotes("cee") == []
    hearer.remove_peer("ay")
    (later,) = hearer.sync("cee")
    assert ([each.place for each in later.moves], codes(later.refused)) == (["agents/owl"], [])
    third.close()


@pytest.mark.parametrize("other", ["older", "of another beginning"])
def test_an_agent_that_was_withdrawn_comes_back_only_where_it_was_or_further_on(pair: Pair, other: str) -> None:
    """Or a peer could take back what it had shown, and show something else under its name."""
    head = pair.owner.head("scout")
    pair.owner.share("bee", agents=[])
    pair.owner.announce("bee")
    pair.sync()
    assert tracked(pair) == {}
    pair.owner.share("bee", agents=["*"])
    new = at(pair, "owner", f"{head}^") if other == "older" else pair.commit(spawned("scout"), {"b.txt": "x"})
    pointed(pair, "owner", SCOUT, new)
    pair.owner.announce("bee")
    assert codes(pair.sync().refused) == ["not-descending"]
    assert tracked(pair) == {}
    pointed(pair, "owner", SCOUT, head)
    if other == "older":
        head = moved_on(pair)
    pair.owner.announce("bee")
    assert codes(pair.sync().refused) == []
    assert tracked(pair) == {"scout": head}


def kind(name: str, parent: str) -> RefClaim:
    return RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent)


def learned(pair: Pair) -> list[str]:
    return [each.place.removeprefix("types/") for each in pair.sync().moves]


def test_no_type_is_learned_below_one_whose_commits_a_verb_makes(pair: Pair) -> None:
    """Whoever may tell findings would then make decisions."""
    pair.hearer.grant("ay", "agent-commit", "type")
    reserved = ("spawn", "session-merge", "decision")
    pair.forge(*(kind(f"my-{each}", each) for each in reserved), kind("my-finding", "finding"))
    synced = pair.sync()
    assert {each.ref: each.code for each in synced.refused} == {f"types/my-{each}": "reserved-kind" for each in reserved}
    assert "types/my-finding" in [each.place for each in synced.moves]
    assert not {f"my-{each}" for each in reserved} & pair.hearer.types().keys()


def test_types_that_rest_on_each_other_are_learned_at_once(pair: Pair) -> None:
    """Their names are in the reverse order of what they rest on."""
    pair.hearer.grant("ay", "agent-commit", "type")
    line = ("finding", "dd", "cc", "bb", "aa")
    for parent, name in pairwise(line):
        pair.owner.register_type(name, parent)
    pair.owner.announce("bee")
    assert learned(pair) == ["dd", "cc", "bb", "aa"]


def test_so_many_types_are_learned_at_a_time_and_the_rest_later(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.hearer.grant("ay", "agent-commit", "type")
    monkeypatch.setattr("clia.federation.syncing.LEARNED_MAX", 2)
    for name in ("va", "vb", "vc", "vd", "ve"):
        pair.owner.register_type(name, "finding")
    pair.owner.announce("bee")
    assert [learned(pair) for _ in range(4)] == [["va", "vb"], ["vc", "vd"], ["ve"], []]


def test_odd_files_are_refused_and_keep_nothing_else_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word in ``current`` is a short file, a version is named by its id, and no record is larger than is read."""

    def claimed(name: str, current: str, path: str = "ID.json") -> RefClaim:
        cid = pair.blob(as_bytes(Behaviour(name, SESSION_FLOW, "def main(input):\n    return 1\n").to_object()).decode())
        folder = plumbed("mktree", cwd=pair.place("owner"), stdin=f"100644 blob {cid}\t{path.replace('ID', cid)}\n")
        made = pair.commit("x", {"current": current.replace("ID", cid), "versions": f"040000,tree,{folder}"})
        return RefClaim(f"refs/clia/behaviours/{name}", made, "behaviour", "behaviour")

    monkeypatch.setattr("clia.federation.claim_checks.OBJECT_MAX", 1000)
    pair.owner.spawn("big", BRIEFING._replace(text="x" * 1000))
    head, next_head = pair.owner.head("big"), pair.owner.commit("scout", "finding", {"a.txt": b"two"})
    pair.forge(
        claimed("linked", f"160000,commit,{head}"),
        claimed("long", "ID" + "\n" * 100),
        claimed("misnamed", an_id(5), f"{an_id(5)}.json"),
        claimed("good", "ID\n"),
        RefClaim("refs/clia/agents/big", at(pair, "owner", "refs/clia/agents/big"), "briefing", "spawn"),
        RefClaim(SCOUT, next_head, "finding", "head-move"),
    )
    synced = pair.sync()
    odd = {f"refs/clia/behaviours/{name}": "not-a-behaviour" for name in ("linked", "long", "misnamed")}
    assert {each.ref: each.code for each in synced.refused} == odd | {"refs/clia/agents/big": "not-a-record"}
    assert {each.place for each in synced.moves if each.new} == {"agents/scout", "behaviours/good"}


@pytest.mark.parametrize("ref", ["keys", "chain"])
def test_a_ref_of_federation_that_is_no_commit_is_refused_like_anything_else(pair: Pair, ref: str) -> None:
    moved_on(pair)
    pointed(pair, "owner", "refs/clia/keys" if ref == "keys" else pair.chain_ref, pair.blob("x"))
    synced = pair.sync()
    assert (codes(synced.refused), synced.accepted) == (["not-a-commit"], 1 if ref == "keys" else 0)


def test_of_a_refusal_only_so_much_is_kept(pair: Pair) -> None:
    """What another side made up would otherwise fill the store."""
    speaker = pair.speaker()
    pair.append(speaker.signed(b"{}", speaker.header(alg="x" * 60_000)))
    assert codes(pair.sync().refused) == ["wrong-algorithm"]
    assert len(pair.hearer.refusals("ay")[0].message) <= 500


def test_what_may_be_different_the_next_time_is_asked_for_again(pair: Pair) -> None:
    """An object that is missing once is no lasting refusal; one that is wrong is, until the peer says something else."""
    other = pair.commit(spawned("scout"), {"b.txt": "x"})
    pair.owner.spawn("late", BRIEFING)
    cid = pair.owner.commit("late", "finding", {"a.txt": b"late"})
    away, there = pair.root / "away", Path(pair.place("owner"), ".git/objects", cid[:2], cid[2:])
    os.rename(there, away)
    scout, late = RefClaim(SCOUT, other, "spawn", "spawn"), RefClaim(HEADS + "late", cid, "finding", "head-move")
    pair.forge(scout, late)
    assert sorted(codes(pair.sync().refused)) == ["missing-object", "not-descending"]
    os.rename(away, there)
    synced = pair.sync()
    assert ([each.place for each in synced.moves], codes(synced.refused)) == (["agents/late"], [])
    true = RefClaim(SCOUT, pair.owner.head("scout"), "finding", "head-move")
    for claim, told in ((true, []), (scout, ["not-descending"]), (late, [])):
        pair.forge(claim, late if claim != late else scout)
        assert codes(pair.sync().refused) == told
