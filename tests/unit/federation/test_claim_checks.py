"""Claims of a peer that are false: each is refused by its code, and no ref moves.

A statement with a valid signature advances the position even if its claims are false: it is not read again, and the claims wait
without effect.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from clia.federation.statements import RefClaim, define_cid
from clia.values.typed_objects import SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.federation import HEADS, USUAL, Pair, an_id, codes, plumbed
from support.spaces import BRIEFING

FLOW = "def main(input):\n    return request('human', input)\n"


TRAILERS = "Clia-Agent: {}\nClia-Type: {}\n"


class FalseClaim(NamedTuple):
    claim: RefClaim
    code: str


def commit_message(message: str, agent: str, kind: str) -> str:
    return f"{message}\n\n{TRAILERS.format(agent, kind)}"


def false_heads(pair: Pair) -> dict[str, FalseClaim]:
    scout = pair.rev("owner", HEADS + "scout")
    spawned = pair.rev("owner", f"{scout}^")
    plain = pair.commit("a commit of people", {"a.txt": "x"})
    judge = pair.commit(commit_message("spawn", "judge", "spawn"), {})
    tag = plumbed("mktag", cwd=pair.place("owner"), stdin=f"object {plain}\ntype commit\ntag t\ntagger T <t@x> 1 +0000\n\nt\n")

    def head_claim(name: str, new: str, code: str, kind: str = "finding") -> FalseClaim:
        return FalseClaim(RefClaim(HEADS + name, new, kind, {"spawn": "spawn"}.get(kind, "head-move")), code)

    return {
        "missing": head_claim("ghost", an_id(7), "missing-object"),
        "a blob": head_claim("blob", pair.blob("x"), "not-a-commit"),
        "a tree": head_claim("tree", pair.rev("owner", f"{scout}^{{tree}}"), "not-a-commit"),
        "a tag": head_claim("tag", tag, "not-a-commit"),
        "a commit of people": head_claim("plain", plain, "not-an-agent-commit"),
        "half an agent-commit": head_claim("half", pair.commit("x\n\nClia-Agent: half", {}), "not-an-agent-commit"),
        "of another agent": head_claim("alias", scout, "wrong-agent"),
        "past the gate": head_claim(
            "judge", pair.commit(commit_message("yes", "judge", "decision"), {}, judge), "type-mismatch"
        ),  # claimed as a finding, which is granted; a decision is not
        "a known history rewritten": head_claim(
            "scout", pair.commit(commit_message("other", "scout", "finding"), {"a.txt": "y"}, spawned), "not-descending"
        ),
        "no genesis": head_claim("orphan", pair.commit(commit_message("x", "orphan", "finding"), {}), "no-genesis"),
        "one of ours": head_claim("mine", pair.rev("owner", HEADS + "mine"), "claims-anothers-agent"),
        "another's": head_claim("owl", pair.rev("owner", HEADS + "owl"), "claims-anothers-agent"),
        "a continuation of ours": head_claim(
            "put-away",
            pair.commit(
                commit_message("x", "put-away", "finding"),
                {},
                pair.rev("owner", HEADS + "put-away"),
            ),
            "claims-anothers-agent",
        ),
    }


def other_false_claims(pair: Pair) -> dict[str, FalseClaim]:
    plain = pair.commit("x", {"evil.txt": "x"})
    flow = as_bytes(Behaviour("hello", SESSION_FLOW, FLOW).to_object()).decode()
    version = pair.blob(flow)
    folder = plumbed("mktree", cwd=pair.place("owner"), stdin=f"100644 blob {version}\t{version}.json\n")
    link_at = f"120000,blob,{pair.blob('/etc/passwd')}"
    note = "ab" * 20

    def notes(new: str) -> FalseClaim:
        return FalseClaim(RefClaim("refs/notes/clia/trace/scout", new, "console-trace", "note"), "not-notes")

    def flows(name: str, new: str) -> FalseClaim:
        return FalseClaim(RefClaim(f"refs/clia/behaviours/{name}", new, "behaviour", "behaviour"), "not-a-behaviour")

    def kind(name: str, parent: str, code: str) -> FalseClaim:
        return FalseClaim(RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent), code)

    wrong = pair.commit("x", {"briefing.json": '{"type":"profile"}'})
    return {
        "not notes": notes(plain),
        "a note that is a link": notes(pair.commit("x", {note: link_at}))._replace(
            claim=RefClaim("refs/notes/clia/trace/other", pair.commit("x", {note: link_at}), "console-trace", "note")
        ),
        "not a record": FalseClaim(RefClaim("refs/clia/agents/scout", plain, "briefing", "spawn"), "not-a-record"),
        "a record of something else": FalseClaim(RefClaim("refs/clia/agents/other", wrong, "briefing", "spawn"), "not-a-record"),
        "not a behaviour": flows("one", plain),
        "a version of another name": flows(
            "two", pair.commit("x", {"current": version + "\n", "versions": f"040000,tree,{folder}"})
        ),
        "no current version": flows("hello", pair.commit("x", {"current": an_id(1), "versions": f"040000,tree,{folder}"})),
        "a type that means another here": kind("security-review", "refactor", "type-clash"),
        "a built-in type with another parent": kind("finding", "refactor", "type-clash"),
        "a type with an unknown parent": kind("odd", "never-heard-of", "capability-denied"),
        "a type of itself": kind("round", "round", "capability-denied"),
    }


FALSE_CLAIMS = (
    """
missing; a blob; a tree; a tag; a commit of people; half an agent-commit; of another agent;
past the gate; a known history rewritten; no genesis; one of ours; another's;
a continuation of ours; not notes; a note that is a link; not a record; a record of something else;
not a behaviour; a version of another name; no current version; a type that means another here;
a built-in type with another parent; a type with an unknown parent; a type of itself
""".replace("\n", " ")
    .strip()
    .split("; ")
)


class SyncOfFalseClaims(NamedTuple):
    claims: dict[str, FalseClaim]
    refused: dict[str, str]  # by ref
    before: Any
    after: Any
    again: Any


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> SyncOfFalseClaims:
    """All false claims in one snapshot with a true one; the results of syncing it, and of syncing again."""
    pair = Pair(tmp_path_factory.mktemp("spaces"))
    hearer, owner = pair.hearer, pair.owner
    third = pair.new_space("third")
    for space, name in ((owner, "scout"), (hearer, "mine"), (hearer, "put-away"), (third, "owl")):
        pair.agent(space, name, "one")
    third.peers.add("bee", hearer.peers.key().text)
    third.peers.share("bee", agents=["*"])
    third.peers.announce("bee")
    hearer.peers.add("cee", third.peers.key().text, pair.place("third"))
    for grant in USUAL[:4]:
        hearer.peers.grant("cee", *grant)
    for grant in (("finding", "head-move"), ("spawn", "spawn"), *USUAL[3:], ("agent-commit", "type")):
        hearer.peers.grant("ay", *grant)
    hearer.types.register("security-review", "finding")
    owner.peers.announce("bee")
    for result in hearer.peers.sync():
        assert codes(result.refused) == []
    for place, name in (("hearer", "mine"), ("hearer", "put-away"), ("third", "owl")):
        git("fetch", "-q", pair.place(place), f"{HEADS}{name}:{HEADS}{name}", cwd=pair.place("owner"))
    hearer.agents.archive("put-away")
    false_claims = false_heads(pair) | other_false_claims(pair)
    owner.spawn("honest", BRIEFING)
    true_claim = RefClaim(HEADS + "honest", pair.rev("owner", HEADS + "honest"), "spawn", "spawn")
    before = pair.state()
    pair.forge(*(false_claim.claim for false_claim in false_claims.values()), true_claim)
    result = pair.sync()
    after = pair.state()
    assert result.accepted == 1
    assert [(move.place, move.new) for move in result.moves] == [("agents/honest", true_claim.new)]
    again = pair.sync()
    assert pair.state() == after
    return SyncOfFalseClaims(false_claims, {refusal.ref or "": refusal.code for refusal in result.refused}, before, after, again)


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_a_false_claim_is_refused(synced: SyncOfFalseClaims, name: str) -> None:
    false_claim = synced.claims[name]
    assert synced.refused[false_claim.claim.ref] == false_claim.code


def test_false_claims_move_nothing_and_do_not_affect_true_ones(synced: SyncOfFalseClaims) -> None:
    """The true claim of the snapshot is tracked, the position advances, and no false claim is fetched again."""
    assert set(synced.claims) == set(FALSE_CLAIMS)
    assert synced.refused.keys() == {false_claim.claim.ref for false_claim in synced.claims.values()}
    (before, seq), (after, later) = synced.before, synced.after
    honest = "refs/clia/remotes/ay/agents/honest"
    assert {ref: cid for ref, cid in after.items() if ref != honest} == before
    assert honest in after
    assert later == (seq[0] + 1, False)
    assert (synced.again.accepted, synced.again.moves) == (0, ())
    assert codes(synced.again.refused) in ([], ["missing-object"])  # only objects that may appear later are requested again


def test_a_built_in_type_is_not_learned_again(pair: Pair) -> None:
    """A statement with one is processed completely."""
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    before, (seq, _) = pair.state()
    pair.forge(RefClaim("types/finding", define_cid("finding", "agent-commit"), "finding", "type", "agent-commit"))
    pair.clock.left = 5000
    assert pair.sync().moves == ()
    assert pair.state() == (before, (seq + 1, False))
