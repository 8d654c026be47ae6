"""What ``accept`` accepts and refuses, with the code and an unchanged position, and the effects that follow."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from clia.federation import acceptance
from clia.federation.acceptance import CLOCK_SKEW, LIFETIME_MAX, Follow, Forget, Learn, Position, Withheld, outstanding, unsettled
from clia.federation.statements import SNAPSHOT, RefClaim, Statement, define_cid, digest
from support.federation import HEADS, HEARER, LIFE, NOW, OTHER, OWNER, Ear, Speaker, an_id, decoded, encoded, finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.federation.acceptance import Effect

START = Position()


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Speaker:
    return Speaker.new(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def ear(owner: Speaker) -> Ear:
    return Ear((owner.key,))


@pytest.fixture(scope="module")
def chain(owner: Speaker) -> list[str]:
    return owner.chain(5)


# The chain


def test_a_chain_is_accepted_in_order(ear: Ear, chain: list[str]) -> None:
    position = ear.heard(chain)
    assert position == Position(1004, digest(chain[-1]), 1, forked=False, waiting={HEADS + "scout": finding("scout", 4)}, at=NOW)


def test_a_replay_is_refused(ear: Ear, chain: list[str]) -> None:
    """Of the last statement, of earlier ones and of the snapshot."""
    position = ear.heard(chain)
    for token in chain:
        ear.refuses(position, token, "replayed")


def test_a_gap_or_a_wrong_order_is_refused_until_the_missing_statement_arrives(ear: Ear, chain: list[str]) -> None:
    position = ear.heard(chain[:2])
    ear.refuses(position, chain[3], "gap")
    ear.refuses(position, chain[4], "gap")
    assert ear.heard(chain[2:], position) == ear.heard(chain)


def test_a_new_chain_must_begin_with_a_snapshot(ear: Ear, chain: list[str]) -> None:
    ear.refuses(START, chain[1], "gap")


def test_a_snapshot_closes_a_gap_and_an_older_one_does_not(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    position = ear.heard(chain[:2])
    later_snapshot = owner.snapshot(2000, [finding("scout", 9)], chain[-1])
    waiting = {HEADS + "scout": finding("scout", 9)}
    assert ear.hear(position, later_snapshot).position == Position(2000, digest(later_snapshot), 1, waiting=waiting, at=NOW)
    ear.refuses(position, owner.snapshot(1000, [finding("scout", 9)]), "replayed")


def test_a_fork_is_refused_until_a_snapshot_resolves_it(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    """Two clones with one key. The fork is recorded and nothing else changes; until then, even the original chain is refused."""
    position = ear.heard(chain[:3])
    twin = owner.moved(1002, chain[1], finding("scout", 99))
    result = ear.hear(position, twin)
    assert result.refusal is not None
    assert result.refusal.code == "chain-forked"
    assert result.position == position._replace(forked=True)
    for token in (chain[3], owner.moved(1003, twin, finding("scout", 98)), twin):
        ear.refuses(result.position, token, "chain-forked")
    # A statement refused for another reason does not resolve it.
    for token, code in ((chain[0], "replayed"), (owner.snapshot(1010, aud=OTHER), "wrong-audience"), ("x", "malformed-token")):
        ear.refuses(result.position, token, code)
    resolved = ear.hear(result.position, owner.snapshot(1010, [finding("scout", 5)], chain[-1]))
    assert resolved.refusal is None
    assert not resolved.position.forked


def test_a_statement_that_does_not_follow_the_accepted_one_is_a_fork(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    position = ear.heard(chain[:3])
    for prev in (chain[0], owner.moved(1002, chain[1], finding("scout", 99)), None):
        result = ear.hear(position, owner.moved(1003, prev, finding("scout", 98)))
        assert result.refusal is not None
        assert result.refusal.code == "chain-forked"
        assert result.position == position._replace(forked=True)


# Keys, audiences and times


def test_another_audience_space_or_key_is_refused(ear: Ear, owner: Speaker, tmp_path: Any) -> None:
    ear.refuses(START, owner.snapshot(1, aud=OTHER), "wrong-audience")
    ear.refuses(START, owner.snapshot(1, aud=OWNER), "wrong-audience")
    ear.refuses(START, owner.snapshot(1, space=OTHER), "wrong-space")
    ear.refuses(START, owner.snapshot(1, space=HEARER), "wrong-space")
    ear.refuses(START, Speaker.new(tmp_path).snapshot(1), "unknown-key")


def test_a_replaced_key_is_refused(ear: Ear, owner: Speaker, chain: list[str], tmp_path: Any) -> None:
    """Even for statements from before its replacement; and a key is refused until it is known."""
    newer = Speaker.new(tmp_path)
    position = ear.heard(chain[:2])
    later = ear._replace(keys=(owner.key, newer.key))
    for token in (chain[2], owner.snapshot(5000), owner.moved(1002, chain[1], finding("scout", 7))):
        later.refuses(position, token, "revoked-key")
    ear.refuses(position, newer.snapshot(5000), "unknown-key")
    assert later.hear(position, newer.moved(1002, chain[1], finding("scout", 7))).refusal is None


def test_an_older_format_is_refused_after_a_newer_one(ear: Ear, owner: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a peer has used a newer format, an older statement is refused, even a snapshot."""
    ear.refuses(START, owner.snapshot(1, format=2), "unsupported-format")
    monkeypatch.setattr("clia.federation.statements.FORMAT", 2)
    position = ear.heard([owner.snapshot(1, format=2)])
    assert position.level == 2
    ear.refuses(position, owner.snapshot(9, format=1), "format-downgrade")
    ear.refuses(START, owner.snapshot(9, format=0), "format-downgrade")


def test_a_sequence_number_ahead_of_the_clock_is_refused(ear: Ear, owner: Speaker) -> None:
    """Otherwise someone who had the key for a moment could use up all numbers."""
    last = (NOW + CLOCK_SKEW) * 1000
    ear.refuses(START, owner.snapshot(last + 1), "from-the-future")
    ear.refuses(START, owner.snapshot(2**53 - 1), "from-the-future")
    assert ear.hear(START, owner.snapshot(last)).position.seq == last


@pytest.mark.parametrize(
    ("at", "end", "code"),
    [
        (NOW + CLOCK_SKEW, NOW + LIFE, None),
        (NOW + CLOCK_SKEW + 1, NOW + LIFE, "from-the-future"),
        (NOW + 86400, NOW + LIFE, "from-the-future"),
        (NOW - LIFE, NOW - CLOCK_SKEW + 1, None),
        (NOW - LIFE, NOW - CLOCK_SKEW, "expired"),
        (NOW - LIFE, NOW - CLOCK_SKEW - 1, "expired"),
        (0, 0, "expired"),
        (NOW, NOW + LIFETIME_MAX, None),
        (NOW, NOW + LIFETIME_MAX + 1, "lives-too-long"),
        (0, NOW + LIFE, "lives-too-long"),
        (NOW, 2**53 - 1, "lives-too-long"),
    ],
)
def test_clocks_may_differ_by_a_limited_time(ear: Ear, owner: Speaker, at: int, end: int, code: str | None) -> None:
    """At the exact limits: a clock that is ahead, one that is behind, and the longest lifetime."""
    token = owner.snapshot(1, at=at, exp=end)
    if code is None:
        assert ear.hear(START, token).refusal is None
    else:
        ear.refuses(START, token, code)


def test_a_snapshot_replaces_statements_that_expired_unheard(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    position = ear.heard(chain[:2])
    late = ear._replace(now=NOW + LIFE + CLOCK_SKEW)
    late.refuses(position, chain[2], "expired")
    fresh = owner.snapshot(1100, [finding("scout", 4)], chain[-1], at=late.now, exp=late.now + LIFE)
    assert late.hear(position, fresh).position.seq == 1100


# Tokens


def test_another_algorithm_is_refused(ear: Ear, owner: Speaker) -> None:
    """None, HMAC with the public key as secret, one of our older names, and another curve, each correctly signed."""
    payload = Statement(OWNER, HEARER, 1, None, NOW, NOW + LIFE, SNAPSHOT, ()).payload()

    def body(alg: Any) -> str:
        return f"{encoded(json.dumps(owner.header(alg=alg), separators=(',', ':')).encode())}.{encoded(payload)}"

    def secret(key: bytes) -> str:
        return f"{body('HS256')}.{encoded(hmac.new(key, body('HS256').encode(), hashlib.sha256).digest())}"

    curve = ec.generate_private_key(ec.SECP256R1()).sign(body("ES256").encode(), ec.ECDSA(hashes.SHA256()))
    forged = [
        f"{body('none')}.",
        f"{body('NONE')}.{encoded(b'x' * 64)}",
        secret(owner.key.encode()),
        secret(decoded(owner.key)),
        f"{body('ES256')}.{encoded(curve)}",
        *(owner.signed(payload, owner.header(alg=alg)) for alg in ("EdDSA", "ed25519", "Ed448", "", None, ["Ed25519"], 7)),
        owner.signed(payload, {"kid": owner.key, "typ": "clia-announcement"}),
    ]
    for token in forged:
        ear.refuses(START, token, "wrong-algorithm")
    assert ear.hear(START, owner.signed(payload)).refusal is None


def test_a_header_with_a_key_or_an_extension_is_refused(ear: Ear, owner: Speaker, tmp_path: Any) -> None:
    """Signed by the right key, and by a foreign key that is in the header."""
    stranger = Speaker.new(tmp_path)
    payload = Statement(OWNER, HEARER, 1, None, NOW, NOW + LIFE, SNAPSHOT, ()).payload()
    key_headers = {
        "jwk": {"kty": "OKP", "crv": "Ed25519", "x": stranger.key},
        "jku": "https://x.example/k",
        "x5u": "https://x.example/c",
    }
    headers: dict[str, Any] = {**key_headers, "x5c": ["AAAA"], "crit": ["exp"], "b64": False, "cty": "x", "zip": "DEF"}
    for name, value in headers.items():
        header = owner.header(**{name: value})
        ear.refuses(START, owner.signed(payload, header), "malformed-token")
        ear.refuses(START, stranger.signed(payload, header), "malformed-token")
        ear.refuses(START, stranger.signed(payload, {**header, "kid": stranger.key}), "unknown-key")
    ear.refuses(START, stranger.signed(payload, owner.header()), "bad-signature")
    for typ in ("clia-key", "clia-pass", "JWT", None):
        ear.refuses(START, owner.signed(payload, owner.header(typ=typ)), "wrong-token-type")


def test_only_the_canonical_header_is_accepted(ear: Ear, owner: Speaker) -> None:
    """Other encodings may mean different things to different parsers."""
    payload = Statement(OWNER, HEARER, 1, None, NOW, NOW + LIFE, SNAPSHOT, ()).payload()
    plain = json.dumps(owner.header(), separators=(",", ":")).encode()
    assert ear.hear(START, owner.signed(payload, plain)).refusal is None
    for header in (
        plain.replace(b'{"alg"', b'{"alg":"none","alg"'),
        plain + b" ",
        plain.replace(b":", b": "),
        json.dumps(dict(reversed(owner.header().items())), separators=(",", ":")).encode(),
        plain.replace(b"alg", b"\\u0061lg"),
    ):
        ear.refuses(START, owner.signed(payload, header), "malformed-token")


def test_a_changed_body_header_or_signature_is_refused(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    head, body, signature = chain[0].split(".")
    other = owner.snapshot(1001, [finding("scout", 1)]).split(".")
    fields = json.loads(decoded(body)) | {"seq": 4000}
    changed = encoded(json.dumps(fields, separators=(",", ":"), sort_keys=True).encode())
    for token in (
        f"{head}.{changed}.{signature}",
        f"{head}.{other[1]}.{signature}",
        f"{head}.{body}.{other[2]}",
        f"{head}.{body}.",
    ):
        ear.refuses(START, token, "bad-signature")


def test_another_encoding_of_a_token_is_refused(ear: Ear, chain: list[str]) -> None:
    """Base64 has several texts for the same bytes, and a statement is identified by its text."""
    head, body, signature = chain[0].split(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    respelled = signature[:-1] + letters[letters.index(signature[-1]) ^ 1]  # 64 bytes leave four unused bits
    assert decoded(respelled) == decoded(signature)
    tokens = [
        f"{head}.{body}.{respelled}",
        f"{head}.{body}.{signature}==",
        f"{head}=.{body}.{signature}",
        f"{chain[0]}\n",
        f" {chain[0]}",
    ]
    for token in tokens:
        result = ear.hear(START, token)
        assert result.refusal is not None, token
        assert result.refusal.code in ("malformed-token", "bad-signature")
        assert result.position == START


def test_only_compact_tokens_are_accepted(ear: Ear, chain: list[str]) -> None:
    """Not the JSON form with one or two signatures, more or fewer parts, or other text."""
    head, body, signature = chain[0].split(".")
    one = {"protected": head, "signature": signature}
    forms = [json.dumps({"payload": body, **one}), json.dumps({"payload": body, "signatures": [one, one]})]
    for token in [
        *forms,
        "",
        ".",
        "..",
        f"{chain[0]}.",
        f"{chain[0]}.{signature}",
        f"{head}.{body}",
        "\udc80.a.b",
        "é.a.b",
        "[" * 10_000,
    ]:
        ear.refuses(START, token, "malformed-token")
    standard = base64.b64encode(b'\xff\xfe{"').decode()
    ear.refuses(START, f"{standard}.{body}.{signature}", "malformed-token")


def test_a_token_that_is_too_large_is_refused_unread(ear: Ear, owner: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    many = owner.snapshot(1, [finding(f"a{number}", number) for number in range(9)])
    monkeypatch.setattr(acceptance, "TOKEN_MAX", len(many) - 1)
    ear.refuses(START, many, "statement-too-large")


def test_the_number_of_refs_of_a_peer_is_limited(ear: Ear, owner: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands in one snapshot are fine; above the limit, no ref is added, and known ones may still move."""
    many = [finding(f"a{number}", number) for number in range(3000)]
    first = owner.snapshot(1, many)
    position = ear.heard([first])
    assert len(position.waiting) == 3000
    monkeypatch.setattr(acceptance, "REFS_MAX", 3000)
    ear.refuses(position, owner.moved(2, first, finding("one-more", 1)), "too-many-refs")
    assert ear.hear(position, owner.moved(2, first, finding("a7", 1))).refusal is None
    few = owner.snapshot(1, many[:1])
    position = ear.heard([few])
    monkeypatch.setattr(acceptance, "REFS_MAX", 2)
    assert ear.hear(position, owner.moved(2, few, finding("one-more", 1))).refusal is None
    tracking = ear._replace(tracked={HEADS + "here": an_id(1)})  # tracked refs count as well as waiting ones
    tracking.refuses(position, owner.moved(2, few, finding("one-more", 1)), "too-many-refs")
    assert tracking.hear(position, owner.moved(2, few, finding("here", 2))).refusal is None


# Effects


def allow_all(type_: str, trigger: str) -> bool:
    return True


def effects(position: Position, tracked: dict[str, str], allowed: Callable[[str, str], bool] = allow_all) -> list[Effect]:
    return outstanding(list(position.waiting.values()), tracked, allowed)


def test_a_denied_statement_is_accepted_and_its_claim_waits(ear: Ear, chain: list[str]) -> None:
    """The position advances without effect; a later grant applies to the waiting claim."""
    position = ear.heard(chain)
    assert effects(position, {}, lambda *_: False) == [Withheld(finding("scout", 4))]
    assert effects(position, {}) == [Follow(finding("scout", 4), None)]
    assert effects(position, {HEADS + "scout": an_id(3)}) == [Follow(finding("scout", 4), an_id(3))]
    assert effects(position, {HEADS + "scout": an_id(4)}) == []


def test_the_gate_checks_the_type_and_trigger_of_the_claim(ear: Ear, owner: Speaker) -> None:
    """For a new type, the parent is checked, because a grant cannot name an unknown type."""
    kind = RefClaim("types/review", define_cid("review", "finding"), "review", "type", "finding")
    spawn = RefClaim(HEADS + "ant", an_id(1), "spawn", "spawn")
    position = ear.heard([owner.snapshot(1, [finding("scout", 1), spawn, kind])])
    questions: list[tuple[str, str]] = []

    def gate(type_: str, trigger: str) -> bool:
        questions.append((type_, trigger))
        return True

    assert effects(position, {}, gate) == [Learn(kind), Follow(spawn, None), Follow(finding("scout", 1), None)]
    assert questions == [("finding", "type"), ("spawn", "spawn"), ("finding", "head-move")]


def test_refs_missing_from_a_snapshot_are_forgotten_even_without_a_grant(ear: Ear, owner: Speaker) -> None:
    """Types stay, because others may derive from them."""
    tracked = {HEADS + "scout": an_id(1), HEADS + "old": an_id(2), "types/review": an_id(3)}
    position = ear._replace(tracked=tracked).heard([owner.snapshot(1, [finding("scout", 1)])])
    assert [type(effect) for effect in effects(position, tracked, lambda *_: False)] == [Forget]
    assert set(position.waiting) == {HEADS + "old"}


def test_a_claim_that_was_applied_waits_no_longer() -> None:
    waiting = {
        claim.ref: claim for claim in (finding("a", 1), finding("b", 2), RefClaim(HEADS + "c", None, "finding", "head-move"))
    }
    assert unsettled(waiting, {HEADS + "a": an_id(1), HEADS + "b": an_id(9)}) == {HEADS + "b": finding("b", 2)}


def test_a_withdrawn_ref_that_was_never_tracked_has_no_effect(ear: Ear, owner: Speaker, chain: list[str]) -> None:
    withdrawal = RefClaim(HEADS + "scout", None, "finding", "head-move")
    last = owner.moved(1005, chain[-1], withdrawal)
    assert effects(ear.heard([*chain, last]), {}) == []
    position = ear._replace(tracked={HEADS + "scout": an_id(2)}).heard([*chain, last])
    assert effects(position, {HEADS + "scout": an_id(2)}) == [Forget(withdrawal, an_id(2))]
    assert effects(position, {}) == []
