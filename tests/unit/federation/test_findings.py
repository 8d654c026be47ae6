"""What was once found wrong between two spaces, and must not come back: each test is a way that worked before it was closed."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import clia
from clia.errors import BadSignature
from clia.federation.capabilities import is_capability
from clia.federation.peer_tokens import CLOCK_SKEW, FETCH_TOKEN, TOKEN_SECONDS
from clia.federation.statements import RefClaim, define_cid
from clia.forge.federation import asked
from clia.testing import components
from clia.values.canonical import canonical_bytes
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, OTHER, OWNER, USUAL, VERIFIER, Late, Pair, Speaker, an_id, codes, encoded, plumbed
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# A chain holds statements, and nothing beside them


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


# Git over HTTP


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


# Whose an agent is


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


# Types of others


def kind(name: str, parent: str) -> RefClaim:
    return RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent)


def learned(pair: Pair) -> list[str]:
    return [each.place.removeprefix("types/") for each in pair.sync().moves]


def test_a_revocation_between_two_types_stops_the_second(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aa", "bb", "cc"):
        pair.owner.register_type(name, "finding")
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "agent-commit", "type")
    learn = components(pair.hearer).registry.learn

    def then_revoked(*words: str) -> bool:
        found = learn(*words)
        pair.hearer.revoke("ay", "agent-commit", "type")
        return found

    monkeypatch.setattr(components(pair.hearer).registry, "learn", then_revoked)
    assert learned(pair) == ["aa"]
    assert {"aa", "bb", "cc"} & pair.hearer.types().keys() == {"aa"}


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


# What arrives


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


# A peer that becomes another while it is listened to


class Meanwhile(Late):
    """A transport during which something happens once: after the first words, or with the objects."""

    def __init__(self, inner: Any, meanwhile: Callable[[], object], verb: str) -> None:
        super().__init__(inner, meanwhile)
        self._verb = verb

    def __enter__(self) -> Any:
        return Meanwhile(self._inner.__enter__(), self._meanwhile, self._verb)

    def open(self, *words: Any) -> Any:
        return Meanwhile(self._inner.open(*words), self._meanwhile, self._verb)

    def tips(self, *words: Any) -> Any:
        found = self._inner.tips(*words)
        if self._verb == "tips":
            self._meanwhile()
        return found

    def fetch(self, *words: Any) -> Any:
        if self._verb == "fetch":
            self._meanwhile()
        return self._inner.fetch(*words)


@pytest.mark.parametrize("verb", ["tips", "fetch"])
def test_what_was_heard_of_a_peer_counts_for_no_other_that_has_its_name(pair: Pair, verb: str) -> None:
    """It is removed, and another one added; or it is gone. Nothing is written, and once it is back all is as ever."""
    new = moved_on(pair)
    syncing = components(pair.hearer).syncing
    usual = syncing._parts
    before: list[object] = []

    def replaced() -> None:
        pair.hearer.remove_peer("ay")
        pair.hearer.add_peer("ay", f"clia:{OTHER}:{pair.owner.key().key}", pair.place("owner"))
        before.append((components(pair.hearer).peers.get("ay"), pair.state()))

    syncing._parts = usual._replace(transport=cast("Any", Meanwhile(usual.transport, replaced, verb)))
    refused("peer-changed", pair.sync)
    assert before == [(components(pair.hearer).peers.get("ay"), pair.state())]
    syncing._parts = usual
    pair.hearer.remove_peer("ay")
    pair.hearer.add_peer("ay", pair.owner.key().text, pair.place("owner"))
    pair.grant()
    assert codes(pair.sync().refused) == []
    assert tracked(pair) == {"scout": new}
    new = moved_on(pair, "again")
    removing = Meanwhile(usual.transport, lambda: pair.hearer.remove_peer("ay"), verb)
    syncing._parts = usual._replace(transport=cast("Any", removing))
    refused("no-such-peer", pair.sync)
    assert git("for-each-ref", "refs/clia/remotes/", "refs/clia/peers/", cwd=pair.place("hearer")) == ""


def test_a_peer_that_is_added_again_by_an_older_key_goes_on_from_where_it_was(pair: Pair) -> None:
    """Neither its newest key nor what was heard is forgotten; what plain git left under its name is not taken for its own."""
    old = pair.owner.key().text
    pair.owner.rotate_key()
    pair.sync()
    known = pair.hearer.peer("ay")
    assert len(known.keys) == 2
    pair.hearer.remove_peer("ay")
    pointed(pair, "hearer", "refs/clia/remotes/ay/agents/left", pair.hearer.spawn("left", BRIEFING).genesis)
    again = pair.hearer.add_peer("ay", old, pair.place("owner"))
    assert (again.keys, again.seq, again.agents) == (known.keys, known.seq, 0)
    pair.grant()
    assert (pair.sync().accepted, tracked(pair)) == (0, {"scout": pair.owner.head("scout")})


def test_a_space_that_has_had_all_its_keys_goes_on_with_the_last(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.federation.keys.CHAIN_MAX", 3)
    for _ in range(2):
        pair.owner.rotate_key()
    key = pair.owner.key()
    refused("too-many-keys", pair.owner.rotate_key)
    assert (pair.owner.key(), key.mine) == (key, True)
    new = moved_on(pair)
    assert (pair.sync().keys, tracked(pair)) == (2, {"scout": new})
    assert len(pair.owner.rotate_key(lost=True).chain) == 1  # as the hint says


# Answers that hold no longer than what they rest on


@pytest.fixture
def still(pair: Pair) -> Iterator[tuple[clia.Space, list[datetime]]]:
    """The hearer, by a clock that stands; and that clock."""
    clock = [datetime(2027, 1, 1, tzinfo=UTC)]
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=lambda: clock[0])
    with clia.open(pair.place("hearer"), settings=settings) as space:
        yield space, clock


def test_an_answer_of_the_gate_is_not_given_again_once_anything_has_changed(
    still: tuple[clia.Space, list[datetime]],
) -> None:
    """Within one second: a revocation, trust, a new type; and the next second."""
    space, clock = still
    allowed = components(space).capabilities.asking(components(space).peers.get("ay"))

    def answers() -> tuple[bool, bool]:
        return allowed("finding", "head-move"), allowed("audit", "head-move")

    assert answers() == (True, False)
    space.register_type("audit", "finding")
    assert answers() == (True, True)
    space.change_peer("ay", trusted=False)
    assert answers() == (False, False)
    space.change_peer("ay", trusted=True)
    assert answers() == (True, True)
    space.revoke("ay", "agent-commit", "head-move")
    assert answers() == (False, False)
    space.grant("ay", "finding", "head-move", expires=int(clock[0].timestamp()) + 1)
    assert answers() == (True, True)
    clock[0] += timedelta(seconds=1)
    assert answers() == (False, False)


def test_a_pass_is_good_to_the_second_and_is_its_spaces_not_its_keys(pair: Pair, still: tuple[clia.Space, list[datetime]]) -> None:
    """Another peer that is pinned with the same key shuts nobody out."""
    space, clock = still
    now, owner = int(clock[0].timestamp()), pair.speaker()

    def shown(exp: int, of: str = owner.space) -> str:
        said = canonical_bytes({"space": of, "aud": space.id, "exp": exp})
        return space.peer_tokens.authenticate(owner.signed(said, owner.header(typ=FETCH_TOKEN)), FETCH_TOKEN).name

    assert {shown(exp) for exp in (now - CLOCK_SKEW + 1, now + TOKEN_SECONDS + CLOCK_SKEW)} == {"ay"}
    for exp in (now - CLOCK_SKEW, now + TOKEN_SECONDS + CLOCK_SKEW + 1):
        refused("expired", partial(shown, exp))
    for name, of in (("aa", OTHER), ("zz", OWNER)):
        space.add_peer(name, f"clia:{of}:{owner.key}")
        assert (shown(now), shown(now, of)) == ("ay", name)


def test_what_is_no_capability_grants_nothing() -> None:
    good = {"peer": OWNER, "trigger": "spawn", "agentic_type": "finding", "execute": False, "expires": None}
    assert is_capability(good)
    assert is_capability(good | {"execute": True, "expires": 5})
    for change in (
        {"expires": True},
        {"expires": "5"},
        {"expires": 5.0},
        {"execute": 1},
        {"execute": None},
        {"peer": ""},
        {"peer": 5},
        {"peer": "x" * 101},
        {"peer": "a\n"},
        {"trigger": "x"},
        {"agentic_type": None},
    ):
        assert not is_capability(good | change), change


# Tokens


def test_a_token_has_one_spelling(tmp_path: Path) -> None:
    """Base64 has several for the same bytes; a statement is known by its token, and would be heard as another one."""
    speaker = Speaker.new(tmp_path)
    payload = b"{}"  # two bytes: three characters, with bits to spare
    header = encoded(canonical_bytes(speaker.header(typ="x")))

    def signed(*body: str) -> str:
        return f"{'.'.join(body)}.{encoded(speaker.private().sign('.'.join(body).encode()))}"

    def respelled(text: str) -> list[str]:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spare = text[:-1] + letters[letters.index(text[-1]) + 1]
        return [*([spare] if len(text) % 4 else []), text + "=" * (-len(text) % 4 or 4), text + "\n", f"{text[:2]}\n{text[2:]}"]

    good = signed(header, encoded(payload))
    assert VERIFIER.read(good, "x", [speaker.key]).payload == payload
    body, _, signature = good.rpartition(".")
    spelled = [signed(each, encoded(payload)) for each in respelled(header)]
    spelled += [signed(header, each) for each in respelled(encoded(payload))]
    spelled += [f"{body}.{each}" for each in respelled(signature)]
    for token in spelled:
        with pytest.raises(BadSignature):
            VERIFIER.read(token, "x", [speaker.key])
