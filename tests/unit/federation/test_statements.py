"""Reading statements: nothing is trusted, and a statement has one encoding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.errors import CliaError
from clia.federation.statements import (
    REFS_MAX,
    RefClaim,
    Statement,
    activities,
    claim_of,
    claimed_seq,
    define_cid,
    digest,
    is_shared_ref,
    read_statement,
    tracked_ref,
    tracking_path,
)
from clia.values.canonical import canonical_bytes
from support.federation import HEADS, HEARER, NOW, OWNER, an_id, encoded, finding

MOVE = Statement(OWNER, HEARER, 7, digest("before"), NOW, NOW + 60, "head-move", (finding("scout", 1),), an_id(0))
HEAD = {"ref": HEADS + "scout", "new": an_id(1), "type": "finding", "trigger": "head-move"}
KIND = RefClaim("types/review", define_cid("review", "finding"), "review", "type", "finding")

INVALID_REFS = [
    "refs/heads/agents/../x",
    "refs/heads/agents/..",
    "refs/heads/agents/",
    "refs/heads/agents/Scout",
    "refs/heads/agents/a/b",
    "refs/heads/agents/a.lock",
    "refs/heads/agents/-a",
    "refs/heads/agents/a\0b",
    "refs/heads/agents/a\n",
    "refs/heads/agents/a b",
    "refs/heads/agents/\uff53cout",  # a letter that looks like an ASCII letter
    "refs/heads/agents/" + "a" * 101,
    "refs/heads/agents/" + "a" * 100_000,
    "refs/heads/main",
    "refs/heads/agents",
    "refs/tags/v1",
    "HEAD",
    "",
    "refs/clia/remotes/ay/agents/scout",
    "refs/clia/peers/ay",
    "refs/clia/keys",
    "refs/clia/capabilities",
    "refs/clia/space",
    "refs/clia/archive/agents/scout",
    f"refs/clia/announce/{HEARER}",
    "refs/clia/agents/../../heads/main",
    "refs/clia/behaviours/../x",
    "refs/notes/clia/trace/../../x",
    "refs/notes/commits",
    "types/../x",
    "types/Upper",
    "types/" + "a" * 100,
]


def payload_with(**changes: Any) -> bytes:
    """A valid statement with some fields changed; ``...`` removes one."""
    body = json.loads(MOVE.payload()) | changes
    return canonical_bytes({key: value for key, value in body.items() if value is not ...})


def snapshot(*heads: Any) -> bytes:
    rest = {"ref": ..., "new": ..., "type": ..., "old": ...}
    return payload_with(trigger="snapshot", heads=list(heads), **rest)


def refusal(payload: bytes, level: int = 1) -> CliaError:
    with pytest.raises(CliaError) as caught:
        read_statement(payload, level)
    return caught.value


def test_a_statement_is_read_as_written() -> None:
    assert read_statement(MOVE.payload()) == MOVE
    snapshot_statement = MOVE._replace(trigger="snapshot", claims=(finding("scout", 1), KIND), old=None, prev=None)
    assert read_statement(snapshot_statement.payload()) == snapshot_statement
    withdrawal = MOVE._replace(claims=(RefClaim(HEADS + "scout", None, "finding", "head-move"),))
    assert read_statement(withdrawal.payload()) == withdrawal
    type_statement = MOVE._replace(trigger="type", claims=(KIND,), old=None)
    assert read_statement(type_statement.payload()) == type_statement


@pytest.mark.parametrize("ref", [*INVALID_REFS, None, 7, ["refs/heads/agents/scout"]], ids=lambda ref: repr(ref)[:60])
def test_a_ref_that_is_not_shared_is_refused(ref: Any) -> None:
    """Alone and in a snapshot."""
    assert not is_shared_ref(ref)
    assert refusal(payload_with(ref=ref)).code == "invalid-ref"
    error = refusal(snapshot(HEAD, {**HEAD, "ref": ref}))
    assert (error.code, error.fields["field"]) == ("invalid-ref", "heads/1/ref")


@pytest.mark.parametrize("place", ["agents/../x", "agents/A", "agents/a/b", "main", "announce", "notes/other/a", "types/", ""])
def test_an_invalid_tracking_path_has_no_ref(place: str) -> None:
    assert tracked_ref(place) is None


@pytest.mark.parametrize(
    "start", [HEADS, "refs/clia/agents/", "refs/notes/clia/trace/", "refs/notes/clia/session/", "refs/clia/behaviours/"]
)
def test_refs_and_tracking_paths_map_one_to_one(start: str) -> None:
    ref = f"{start}scout"
    assert is_shared_ref(ref)
    assert tracked_ref(tracking_path(ref)) == ref
    assert read_statement(
        snapshot({"ref": ref, **dict(zip(("new", "type", "trigger"), claim_of(ref, an_id(1))[1:4], strict=True))})
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trigger": "push"}, "trigger"),
        ({"trigger": None}, "trigger"),
        ({"trigger": ["head-move"]}, "trigger"),
        ({"trigger": "spawn"}, "trigger"),  # a finding is not a spawn
        ({"trigger": "note"}, "trigger"),
        ({"type": "spawn"}, "trigger"),  # a spawn is not a head-move, or a grant for moves would admit agents
        ({"type": "session-merge"}, "trigger"),
        ({"type": "Finding"}, "type"),
        ({"type": 1}, "type"),
        ({"ref": "refs/clia/agents/scout", "trigger": "spawn"}, "type"),
        ({"ref": "refs/notes/clia/trace/scout", "trigger": "note", "type": "session"}, "type"),
        ({"new": "1" * 39}, "new"),
        ({"new": "A" * 40}, "new"),
        ({"new": "0" * 40}, "new"),
        ({"new": 7}, "new"),
        ({"new": None, "old": ...}, "new"),
        ({"old": "x"}, "old"),
        ({"space": None}, "space"),
        ({"space": ""}, "space"),
        ({"space": "s" * 201}, "space"),
        ({"aud": ["x"]}, "aud"),
        ({"prev": 7}, "prev"),
        ({"seq": -1}, "seq"),
        ({"seq": 1.5}, "seq"),
        ({"seq": True}, "seq"),
        ({"seq": "7"}, "seq"),
        ({"seq": 2**53}, "seq"),
        ({"at": None}, "at"),
        ({"exp": ...}, "exp"),
        ({"heads": []}, "payload"),  # unused fields are refused
        ({"more": 1}, "payload"),
        ({"old": ...}, "payload"),
        ({"activities": []}, "payload"),
    ],
    ids=str,
)
def test_an_invalid_field_is_named(changes: dict[str, Any], field: str) -> None:
    error = refusal(payload_with(**changes))
    assert (error.code, error.fields["field"]) == ("malformed-statement", field)


def test_a_lone_surrogate_is_refused() -> None:
    payload = MOVE.payload().replace(OWNER.encode(), b"\\ud800")
    assert refusal(payload).fields["field"] == "space"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b"1" * 100_000,
        MOVE.payload() + b" ",
        MOVE.payload().replace(b":", b": ", 1),
        MOVE.payload().replace(b'"aud"', b'"aud":"x","aud"', 1),  # parsers differ in which one they use
        json.dumps(json.loads(MOVE.payload()), separators=(",", ":"), sort_keys=False).encode()[:-1] + b',"format":1}',
        MOVE.payload().decode().encode("utf-16"),
    ],
    ids=range(11),
)
def test_only_the_canonical_form_is_a_statement(payload: bytes) -> None:
    assert refusal(payload).code == "malformed-statement"


def test_invalid_heads_of_a_snapshot_are_refused() -> None:
    for heads, field in (
        ([HEAD, HEAD], "heads/1/ref"),  # duplicate
        ([HEAD, 7], "heads/1"),
        ([{**HEAD, "new": None}], "heads/0/new"),
        ([{**HEAD, "more": 1}], "payload"),
    ):
        assert refusal(snapshot(*heads)).fields["field"] == field
    assert refusal(payload_with(trigger="snapshot", heads={})).fields["field"] == "heads"
    assert refusal(snapshot(*[7] * (REFS_MAX + 1))).fields["field"] == "heads"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"activities": ...}, "activities"),
        ({"activities": []}, "activities"),
        ({"activities": [7]}, "activities"),
        ({"activities": list(activities("review", "Bad"))}, "activities"),
        ({"activities": list(activities("review", "test"))}, "new"),  # the id belongs to another definition
        ({"activities": list(activities("review", "finding"))[:1]}, "payload"),
        ({"activities": [*activities("review", "finding")][::-1]}, "payload"),
        ({"ref": "types/other"}, "activities"),
        ({"type": "other"}, "activities"),
        ({"new": None}, "new"),
    ],
    ids=str,
)
def test_a_type_must_match_its_definition(changes: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"ref": KIND.ref, "new": KIND.new, "type": "review", "trigger": "type", "old": None}
    good |= {"activities": list(activities("review", "finding"))}
    assert read_statement(payload_with(**good)).claims == (KIND,)
    assert refusal(payload_with(**good | changes)).fields["field"] == field


@pytest.mark.parametrize(
    ("version", "level", "code"),
    [
        *((odd, 1, "unsupported-format") for odd in (2, "1", None, True)),
        *((*old, "format-downgrade") for old in ((1, 2), (0, 1), (0, 0))),
    ],
)
def test_only_known_formats_that_are_not_older_than_before_are_read(version: Any, level: int, code: str) -> None:
    assert refusal(payload_with(format=version), level).code == code


def test_the_sequence_number_is_read_without_verification() -> None:
    assert claimed_seq(f"x.{encoded(MOVE.payload())}.y") == 7
    for token in ("", "a.b", "a.b.c.d", "..", "x.\udc80.y", f"x.{encoded(b'[]')}.y", f"x.{encoded(b'[' * 50_000)}.y"):
        assert claimed_seq(token) is None
    assert claimed_seq(f"x.{encoded(b'{}')}.y") is None
    assert claimed_seq("x." + encoded(b'{"seq":true}') + ".y") is None
