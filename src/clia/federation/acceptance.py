"""Accepting a peer's statements: a pure function from a position and a token to the next position.

Invariant: a token moves the position only if it is signed by the peer's newest key, addressed to this space, valid now, and
follows the last accepted statement: the next one in sequence, or a later snapshot. Anything else is refused with a code and leaves
the position unchanged, except that a forked chain is remembered until a snapshot. Grants play no part in acceptance: a denied
statement advances the position, and its claim waits.

``outstanding`` lists what is left to do for the waiting claims and asks the gate about each. A late grant, a failed transfer and a
dead process are therefore all recovered in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError
from clia.federation import statements
from clia.federation.statements import REFS_MAX, TOKEN_MAX, TYPES_PREFIX, RefClaim, Statement, digest, read_statement, refusal
from clia.values import refs as names
from clia.values.types import BUILT_IN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.federation.signing import Ed25519Verifier

DENIED, CLASH = "capability-denied", "type-clash"
CLOCK_SKEW = 300
"""Maximum clock difference between two spaces, in seconds."""
LIFETIME_MAX = 400 * 86400
"""Maximum lifetime of a statement, in seconds."""


class Position(NamedTuple):
    """The last accepted statement of a peer, and the claims that are not applied yet."""

    seq: int = 0
    last: str | None = None
    level: int = 0  # the highest format version it has used
    forked: bool = False
    waiting: Mapping[str, RefClaim] = {}  # by ref
    at: int = 0  # time of the last statement, by the peer's clock


class ListenerContext(NamedTuple):
    """The receiving space, the peer and the current time."""

    me: str
    space: str  # the peer's
    keys: tuple[str, ...]  # its key chain, newest last
    now: int
    verifier: Ed25519Verifier


class AcceptResult(NamedTuple):
    """The result for a token. ``refusal`` is None if it was accepted; ``statement`` is None if it could not be read."""

    position: Position
    statement: Statement | None = None
    refusal: CliaError | None = None


class Follow(NamedTuple):
    """Track a ref at the claimed commit."""

    claim: RefClaim
    tracked: str | None


class Forget(NamedTuple):
    """Stop tracking a ref that is no longer shared."""

    claim: RefClaim
    tracked: str


class Learn(NamedTuple):
    """Register a type."""

    claim: RefClaim


class Withheld(NamedTuple):
    """A claim that is not applied, because the gate denies it or its type has another meaning here."""

    claim: RefClaim
    code: str = DENIED


Effect = Follow | Forget | Learn | Withheld


def accept(position: Position, token: str, listener: ListenerContext, tracked: Mapping[str, str]) -> AcceptResult:
    """The next position. ``tracked``: the tracked commit of each of the peer's refs, by the peer's ref name."""
    statement = None
    try:
        statement = _authentic(position, token, listener)
        if statement.space != listener.space:
            message = f"the statement is from space {statement.space}, not {listener.space}"
            raise refusal("wrong-space", message, space=statement.space)
        if statement.aud != listener.me:
            raise refusal("wrong-audience", f"the statement is addressed to space {statement.aud}", aud=statement.aud)
        name = digest(token)
        _check_place(position, statement, name)
        _check_time(statement, listener.now)
        waiting = _waiting_claims(position, statement, tracked)
    except CliaError as err:
        forked = position.forked or err.code == "chain-forked"
        return AcceptResult(position._replace(forked=forked), statement, err)
    level = max(position.level, statement.format)
    return AcceptResult(Position(statement.seq, name, level, forked=False, waiting=waiting, at=statement.at), statement)


def _authentic(position: Position, token: str, listener: ListenerContext) -> Statement:
    """The statement in a token, if the peer's newest key signed it for this space."""
    if len(token) > TOKEN_MAX:
        raise refusal("statement-too-large", f"a statement has at most {TOKEN_MAX} characters; this one has {len(token)}")
    signed = listener.verifier.read(token, statements.TOKEN_TYPE, listener.keys)
    if signed.key != listener.keys[-1]:
        raise refusal("revoked-key", "the statement is signed with a key that the peer has replaced", key=signed.key)
    return read_statement(signed.payload, position.level)


def _check_place(position: Position, statement: Statement, name: str) -> None:
    """Check that a statement follows the last accepted one."""
    seq, at = statement.seq, {"seq": statement.seq, "accepted": position.seq}
    if seq == position.seq and name != position.last:
        raise refusal("chain-forked", f"the peer signed two statements with number {seq}", **at)
    if seq <= position.seq:
        raise refusal("replayed", f"statement {seq} is not newer than {position.seq}, the last accepted one", **at)
    if statement.is_snapshot:
        return
    if position.forked:
        raise refusal("chain-forked", "the peer's chain has forked; only a snapshot resolves this", **at)
    if seq > position.seq + 1:
        raise refusal("gap", f"statement {seq} arrived before {position.seq + 1}", **at)
    if statement.prev != position.last:
        raise refusal("chain-forked", f"statement {seq} does not follow the last accepted one", **at)


def _check_time(statement: Statement, now: int) -> None:
    # Sequence numbers are milliseconds, so that a stolen key cannot exhaust them.
    if statement.at > now + CLOCK_SKEW or statement.seq > (now + CLOCK_SKEW) * 1000:
        message = "the statement is dated in the future: one of the two clocks is wrong"
        raise refusal("from-the-future", message, at=statement.at, now=now)
    if statement.exp <= now - CLOCK_SKEW:
        raise refusal("expired", f"the statement expired at {statement.exp}", exp=statement.exp, now=now)
    if statement.exp - statement.at > LIFETIME_MAX:
        raise refusal("lives-too-long", f"a statement is valid for at most {LIFETIME_MAX} seconds", exp=statement.exp)


def _waiting_claims(position: Position, statement: Statement, tracked: Mapping[str, str]) -> dict[str, RefClaim]:
    """The claims that wait after a statement. Refs missing from a snapshot are no longer shared."""
    if statement.is_snapshot:
        claims = {claim.ref: claim for claim in statement.claims}
        removed = [ref for ref in tracked if ref not in claims and not ref.startswith(TYPES_PREFIX)]
        return unsettled(claims | {ref: RefClaim(ref, None, "agent-commit", "head-move") for ref in removed}, tracked)
    claim = statement.claims[0]
    is_known = claim.ref in position.waiting or claim.ref in tracked
    if not is_known and len(position.waiting) + len(tracked) >= REFS_MAX:
        raise refusal("too-many-refs", f"a peer may announce at most {REFS_MAX} refs")
    return {**position.waiting, claim.ref: claim}


def unsettled(waiting: Mapping[str, RefClaim], tracked: Mapping[str, str]) -> dict[str, RefClaim]:
    """The claims that are not applied yet."""
    return {ref: claim for ref, claim in waiting.items() if claim.new != tracked.get(ref)}


def is_clash(claim: RefClaim, tracked: Mapping[str, str]) -> bool:
    """Whether a peer's type has the name of a different type here; built-in types are the same everywhere."""
    ours = claim.ref.startswith(TYPES_PREFIX) and claim.type not in BUILT_IN
    return ours and tracked.get(claim.ref) not in (None, claim.new)


def outstanding(waiting: Sequence[RefClaim], tracked: Mapping[str, str], allowed: Callable[[str, str], bool]) -> list[Effect]:
    """The effects to apply, types before the refs that use them. Untracking a ref needs no grant."""
    effects: list[Effect] = []
    clashing = {claim.type for claim in waiting if is_clash(claim, tracked)}
    for claim in sorted(waiting, key=lambda claim: (not claim.ref.startswith(TYPES_PREFIX), claim.ref)):
        at = tracked.get(claim.ref)
        if claim.new == at:
            continue
        if claim.new is None:
            effects += [Forget(claim, at)] if at is not None else []
        elif not allowed(claim.parent or claim.type, claim.trigger):  # a new type is judged by its parent
            effects.append(Withheld(claim))
        elif claim.type in clashing and claim.ref.startswith(names.HEADS):
            effects.append(Withheld(claim, CLASH))  # the gate's answer was about another type than the owner's
        else:
            effects.append(Learn(claim) if claim.ref.startswith(TYPES_PREFIX) else Follow(claim, at))
    return effects
