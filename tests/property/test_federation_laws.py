"""Laws of announcements between spaces: they arrive unchanged, never raise, and converge in any order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clia.federation.acceptance import Follow, Forget, Learn, Position, Withheld, outstanding
from clia.federation.statements import SNAPSHOT, RefClaim, Statement, claim_of, define_cid, digest, read_statement
from support.federation import HEARER, LIFE, NOW, OWNER, Ear, Speaker, an_id, finding

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
STARTS = ("refs/heads/agents/", "refs/clia/agents/", "refs/notes/clia/trace/", "refs/notes/clia/session/", "refs/clia/behaviours/")
numbers = st.integers(0, 2**53 - 1)
ids = st.integers(0, 5).map(an_id)
agents = st.sampled_from(["ant", "bee", "cat", "dog-2"])
kinds = st.sampled_from(["finding", "spawn", "session-merge", "decision", "agent-commit", "review"])
of_refs = st.builds(lambda start, name, new, kind: claim_of(start + name, new, kind), st.sampled_from(STARTS), agents, ids, kinds)
of_types = st.builds(
    lambda name, parent: RefClaim(f"types/{name}", define_cid(name, parent), name, "type", parent),
    st.sampled_from(["review", "audit"]),
    st.sampled_from(["finding", "review"]),
)
claims = of_refs | of_types
heads = st.lists(claims, max_size=8, unique_by=lambda claim: claim.ref).map(tuple)
texts = st.text("abc-019", min_size=1, max_size=40)
digests = st.none() | st.binary(max_size=4).map(lambda data: digest(data.hex()))
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9) | ids,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)
fields = st.sampled_from(
    ["format", "space", "aud", "seq", "prev", "at", "exp", "trigger", "ref", "old", "new", "type", "heads", "activities"]
)


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    header = (draw(texts), draw(texts), draw(numbers), draw(digests), draw(numbers), draw(numbers))
    if draw(st.booleans()):
        return Statement(*header, SNAPSHOT, draw(heads))
    claim = draw(claims)
    if claim.parent is None and draw(st.booleans()):
        claim = claim._replace(new=None)
    return Statement(*header, claim.trigger, (claim,), draw(st.none() | ids))


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Speaker:
    return Speaker.new(tmp_path_factory.mktemp("keys"))


@given(statements())
def test_a_statement_is_read_unchanged(statement: Statement) -> None:
    assert read_statement(statement.payload()) == statement


@given(place=st.integers(0, 10_000), letter=st.characters(max_codepoint=0x17F))
@example(place=-1, letter="A")
@example(place=0, letter="f")
def test_a_token_with_one_character_changed_is_refused(owner: Speaker, place: int, letter: str) -> None:
    """Any character at any position, and each base64 character at the end of each part."""
    ear = Ear((owner.key,))
    token = owner.snapshot(1, [finding("scout", 1)])
    ends = [at - 1 for at, character in enumerate(token) if character == "."] + [len(token) - 1]
    for at in [place % len(token), *(ends if letter in LETTERS else ())]:
        changed_token = token[:at] + letter + token[at + 1 :]
        acceptance = ear.hear(Position(), changed_token)
        assert (acceptance.refusal is None) == (changed_token == token)
        assert changed_token == token or acceptance.position == Position()


@given(st.text() | st.tuples(*[st.text(LETTERS, max_size=9)] * 3).map(".".join))
def test_no_text_makes_acceptance_raise(owner: Speaker, text: str) -> None:
    acceptance = Ear((owner.key,)).hear(Position(), text)
    assert acceptance.refusal is not None
    assert acceptance.position == Position()


@given(st.dictionaries(fields, jsons, max_size=3) | st.just(...), jsons, st.booleans())
def test_no_payload_signed_with_the_right_key_makes_acceptance_raise(
    owner: Speaker, changes: Any, replacement: Any, as_snapshot: bool
) -> None:
    """A statement with some fields changed, or any JSON, is refused or still valid."""
    statement = Statement(
        OWNER,
        HEARER,
        1,
        None,
        NOW,
        NOW + LIFE,
        *((SNAPSHOT, (finding("a", 1),)) if as_snapshot else ("head-move", (finding("a", 1),))),
    )
    body = replacement if changes is ... else json.loads(statement.payload()) | changes
    payload = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    acceptance = Ear((owner.key,)).hear(Position(), owner.signed(payload))
    if acceptance.refusal is not None:
        assert acceptance.position == Position(forked=acceptance.refusal.code == "chain-forked")
    else:
        assert acceptance.statement is not None
        assert acceptance.statement.payload() == payload


def announced_in_order(owner: Speaker, moves: Sequence[tuple[RefClaim, bool]]) -> list[str]:
    """A valid chain; a marked move is followed by a snapshot."""
    now: dict[str, RefClaim] = {}
    chain = [owner.snapshot(100)]
    for claim, with_snapshot in moves:
        now = {ref: current for ref, current in (now | {claim.ref: claim}).items() if current.new is not None}
        chain.append(owner.moved(100 + len(chain), chain[-1], claim))
        if with_snapshot:
            chain.append(owner.snapshot(100 + len(chain), list(now.values()), chain[-1]))
    return chain


@given(st.data(), st.lists(st.tuples(of_refs, st.booleans()), min_size=1, max_size=8))
def test_any_order_and_repetition_converges_to_the_end_of_the_chain(
    owner: Speaker, data: st.DataObject, moves: list[tuple[RefClaim, bool]]
) -> None:
    """A random delivery, and then the complete chain in order."""
    ear = Ear((owner.key,), tracked={"refs/heads/agents/ant": an_id(0)})
    chain = announced_in_order(owner, moves)
    due = ear.heard(chain)
    position = Position()
    for token in [*data.draw(st.lists(st.sampled_from(chain), max_size=2 * len(chain))), *chain]:
        before, position = position, ear.hear(position, token).position
        assert position.seq >= before.seq
        assert not position.forked
        assert position.seq > before.seq or position == before
    assert position == due


@given(
    heads,
    st.dictionaries(of_refs.map(lambda claim: claim.ref), ids, max_size=6),
    st.sets(st.sampled_from(["finding", "spawn", "behaviour"])),
)
def test_after_a_snapshot_exactly_the_differences_are_outstanding(
    owner: Speaker, announced: tuple[RefClaim, ...], tracked: dict[str, str], granted: set[str]
) -> None:
    position = Ear((owner.key,), tracked=tracked).heard([owner.snapshot(1, announced)])
    todo = outstanding(list(position.waiting.values()), tracked, lambda type_, _: type_ in granted)
    announced_heads = {claim.ref: claim.new for claim in announced}
    different = {claim for claim in announced if tracked.get(claim.ref) != claim.new}
    allowed = {claim for claim in different if (claim.parent or claim.type) in granted}
    assert {action.claim for action in todo if isinstance(action, (Follow, Learn))} == allowed
    assert {action.claim for action in todo if isinstance(action, Withheld)} == different - allowed
    assert {action.claim.ref for action in todo if isinstance(action, Forget)} == tracked.keys() - announced_heads.keys()
    assert len(todo) == len({action.claim.ref for action in todo})
    assert all(action.tracked == tracked.get(action.claim.ref) for action in todo if isinstance(action, (Follow, Forget)))
