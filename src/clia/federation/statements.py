"""Statements: what one space announces to another about its refs.

Invariant: a statement is canonical JSON, signed as a JWS. It names its space, its audience, its number in the chain between the
two, the previous statement, its format version and its expiry, so that redirecting, replaying, omitting or downgrading one is
detected. A statement that parses is well-formed; parsing does not make it trusted.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from clia.errors import Denied, UnsupportedFormat
from clia.space.model import json_object
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.types import is_type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeGuard

FORMAT = 1
_FORMAT_FIRST = 1
TOKEN_TYPE = "clia-announcement"  # noqa: S105  # the type of a JWS
TOKEN_MAX = 32 * 1024 * 1024
REFS_MAX = 50_000
"""Maximum number of refs that a peer may announce."""
HEAD_MOVE, SPAWN, MERGE, NOTE, BEHAVIOUR, TYPE, SNAPSHOT = "head-move", "spawn", "merge", "note", "behaviour", "type", "snapshot"
TRIGGERS = (HEAD_MOVE, SPAWN, MERGE, NOTE, BEHAVIOUR, TYPE, SNAPSHOT)
TYPES_PREFIX = "types/"
_SEQ_MAX = 2**53 - 1
# Ref prefix -> prefix below the peer's tracking refs, valid triggers, and the type if it is fixed.
_SHARED_REFS: Mapping[str, tuple[str, tuple[str, ...], str | None]] = {
    names.HEADS: ("agents/", (HEAD_MOVE, SPAWN, MERGE), None),
    names.RECORDS: ("records/", (SPAWN,), "briefing"),
    names.TRACES: ("notes/trace/", (NOTE,), "console-trace"),
    names.SESSIONS: ("notes/session/", (NOTE,), "session"),
    names.BEHAVIOURS: ("behaviours/", (BEHAVIOUR,), "behaviour"),
    TYPES_PREFIX: (TYPES_PREFIX, (TYPE,), None),
}


class RefClaim(NamedTuple):
    """The position of a ref according to its owner. ``new`` is None if it is no longer shared; for a type, its DefineType id."""

    ref: str
    new: str | None
    type: str
    trigger: str
    parent: str | None = None  # for a type: its parent

    @property
    def place(self) -> str:
        """Its path below the peer's tracking refs."""
        return tracking_path(self.ref)


class Statement(NamedTuple):
    space: str
    aud: str
    seq: int
    prev: str | None  # digest of the previous statement; None for the first
    at: int
    exp: int
    trigger: str
    claims: tuple[RefClaim, ...]  # one, or all for a snapshot
    old: str | None = None
    format: int = FORMAT

    @property
    def is_snapshot(self) -> bool:
        return self.trigger == SNAPSHOT

    def payload(self) -> bytes:
        body = self._asdict()
        claims, old = body.pop("claims"), body.pop("old")
        if self.is_snapshot:
            return canonical_bytes({**body, "heads": [_claim_body(claim) for claim in claims]})
        return canonical_bytes({**body, "old": old, **_claim_body(claims[0])})


def digest(token: str) -> str:
    """The digest that the next statement refers to."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_part(token: str, number: int) -> bytes:
    """The header, payload or signature of a token, unverified."""
    text = token.split(".")[number]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def claimed_seq(token: str) -> int | None:
    """The sequence number in a token, unverified."""
    try:
        body = json_object(token_part(token, 1)) or {}
    except (ValueError, IndexError):
        return None
    seq = body.get("seq")
    return seq if _is_number(seq) else None


def tracking_path(ref: str) -> str:
    """The path below the tracking refs for a ref that ``is_shared_ref``."""
    prefix = next(prefix for prefix in _SHARED_REFS if ref.startswith(prefix))
    return _SHARED_REFS[prefix][0] + ref.removeprefix(prefix)


def tracked_ref(place: str) -> str | None:
    """The owner's ref for a tracking path; None if it is not one."""
    for prefix, (start, _, _) in _SHARED_REFS.items():
        if place.startswith(start) and names.is_name(place.removeprefix(start)):
            return prefix + place.removeprefix(start)
    return None


def is_shared_ref(ref: object) -> TypeGuard[str]:
    """Whether a ref is of a kind that is announced, with a valid name."""
    prefix = next((prefix for prefix in _SHARED_REFS if ref.startswith(prefix)), None) if isinstance(ref, str) else None
    if prefix is None or not isinstance(ref, str):
        return False
    name = ref.removeprefix(prefix)
    return is_type_name(name) if prefix == TYPES_PREFIX else names.is_name(name)


def head_trigger(kind: str | None) -> str:
    """The trigger for an agent's head, by the kind of its commit."""
    return {"spawn": SPAWN, "session-merge": MERGE}.get(kind or "", HEAD_MOVE)


def claim_of(ref: str, new: str | None, kind: str | None = None) -> RefClaim:
    """The claim for one of our own refs; ``kind`` is the commit's, for an agent's head."""
    _, triggers, fixed = next(rule for prefix, rule in _SHARED_REFS.items() if ref.startswith(prefix))
    if fixed is not None:
        return RefClaim(ref, new, fixed, triggers[0])
    return RefClaim(ref, new, kind or "agent-commit", head_trigger(kind))


def activities(name: str, parent: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The DefineType and SubtypeOf objects that announce a type."""
    return {"type": "define-type", "name": name, "parent": parent}, {"type": "subtype-of", "name": name, "parent": parent}


def define_cid(name: str, parent: str) -> str:
    """The id of a type's DefineType object, which is the same in every space."""
    data = canonical_bytes(activities(name, parent)[0])
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324  # a git object's id


def _claim_body(claim: RefClaim) -> dict[str, Any]:
    body: dict[str, Any] = {"ref": claim.ref, "new": claim.new, "type": claim.type, "trigger": claim.trigger}
    return body if claim.parent is None else {**body, "activities": list(activities(claim.type, claim.parent))}


def refusal(code: str, message: str, **fields: Any) -> Denied:
    """The error for something refused from a peer."""
    return Denied(message, code=code, fields=fields)


def read_statement(payload: bytes, level: int = FORMAT) -> Statement:
    """Parse a payload; ``level`` is the highest format version that the peer has used."""
    body = json_object(payload)
    if body is None:
        raise malformed("payload", "not a JSON object")
    version, trigger = body.get("format"), body.get("trigger")
    if not _is_number(version) or version > FORMAT:
        hints = ["upgrade clia to understand this peer"]
        raise UnsupportedFormat(f"the statement has format {version!r}; this version of clia supports {FORMAT}", hints=hints)
    if version < max(level, _FORMAT_FIRST):
        raise refusal("format-downgrade", f"the statement has format {version}; at least {max(level, _FORMAT_FIRST)} is required")
    if trigger not in TRIGGERS:
        raise malformed("trigger", f"unknown trigger {trigger!r}")
    claims = tuple(_snapshot_claims(body)) if trigger == SNAPSHOT else (_claim(body, "", withdrawn="old" in body),)
    prev = None if body.get("prev") is None else _text(body, "prev")
    old = None if body.get("old") is None else _id(body, "old")
    for field in ("seq", "at", "exp"):
        if not _is_number(body.get(field)):
            raise malformed(field, f"{body.get(field)!r} is not a number")
    seq, at, exp = body["seq"], body["at"], body["exp"]
    statement = Statement(_text(body, "space"), _text(body, "aud"), seq, prev, at, exp, trigger, claims, old, version)
    if statement.payload() != payload:
        raise malformed("payload", "not in canonical form, or with unknown fields")
    return statement


def _snapshot_claims(body: Mapping[str, Any]) -> Iterator[RefClaim]:
    heads = body.get("heads")
    if not isinstance(heads, list) or len(heads) > REFS_MAX:
        raise malformed("heads", f"must be a list of at most {REFS_MAX} heads")
    refs: set[str] = set()
    for number, head in enumerate(heads):
        if not isinstance(head, dict):
            raise malformed(f"heads/{number}", "not an object")
        claim = _claim(head, f"heads/{number}/")
        if claim.ref in refs:
            raise malformed(f"heads/{number}/ref", f"{claim.ref} is listed twice")
        refs.add(claim.ref)
        yield claim


def _claim(body: Mapping[str, Any], at: str, *, withdrawn: bool = False) -> RefClaim:
    ref, trigger, kind = body.get("ref"), body.get("trigger"), body.get("type")
    if not is_shared_ref(ref):
        raise refusal("invalid-ref", f"{ref!r} is not a ref that can be announced", field=f"{at}ref")
    prefix = next(prefix for prefix in _SHARED_REFS if ref.startswith(prefix))
    _, triggers, fixed = _SHARED_REFS[prefix]
    if trigger not in triggers:
        raise malformed(f"{at}trigger", f"{trigger!r} is not a trigger of {ref}")
    if not isinstance(kind, str) or not is_type_name(kind) or (fixed is not None and kind != fixed):
        raise malformed(f"{at}type", f"{kind!r} is not a type of {ref}")
    new = None if withdrawn and body.get("new") is None else _id(body, "new", at)
    if prefix != TYPES_PREFIX:
        if prefix == names.HEADS and head_trigger(kind) != trigger and new is not None:
            raise malformed(f"{at}trigger", f"{trigger!r} does not match type {kind!r}")
        return RefClaim(ref, new, kind, trigger)
    listed = body.get("activities")
    parent = listed[0].get("parent") if isinstance(listed, list) and listed and isinstance(listed[0], dict) else None
    if ref != TYPES_PREFIX + kind or not isinstance(parent, str) or not is_type_name(parent):
        raise malformed(f"{at}activities", f"do not define the type {kind}")
    if new != define_cid(kind, parent):
        raise malformed(f"{at}new", f"not the id of the definition of {kind}")
    return RefClaim(ref, new, kind, TYPE, parent)


def malformed(field: str, why: str) -> Denied:
    return refusal("malformed-statement", f"the statement's {field}: {why}", field=field)


def _text(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isascii():
        raise malformed(field, "not a text of up to 200 ASCII characters")
    return value


def _id(body: Mapping[str, Any], field: str, at: str = "") -> str:
    value = body.get(field)
    if not isinstance(value, str) or not names.is_id(value) or not value.strip("0"):
        raise malformed(at + field, f"{value!r} is not an object id")
    return value


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _SEQ_MAX
