"""Accepting what a peer says: a pure function from a position and a token to the next position.

Invariant: a token moves the position only if it is signed by the peer's newest key, speaks to us, is in time, and follows on
what was accepted before: the very next statement, or a snapshot from further on. Everything else is refused with a code and
leaves the position as it was; only that the peer's chain has forked is remembered, until a snapshot decides. What the gate
says plays no part in whether a statement is accepted: a denied one advances the position, and its claim waits.

``outstanding`` says what is still to be done for trackers to be where the owner said: it looks at the claims that wait and asks
the gate about each, now. So a grant that came late, a transfer that failed and a process that died all heal the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import CliaError
from clia.federation.statements import (
    REFS_MAX,
    TOKEN_MAX,
    TOKEN_TYPE,
    TYPES_PREFIX,
    RefClaim,
    Statement,
    digest,
    read_statement,
    refusal,
)
from clia.values import refs as names
from clia.values.types import BUILT_IN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.federation.signing import Ed25519Verifier

if TYPE_CHECKING:
    Allowed = Callable[[str, str], bool]

DENIED, CLASH = "capability-denied", "type-clash"
CLOCK_SKEW = 300
"""Seconds by which the clocks of two spaces may differ."""
LIFETIME_MAX = 400 * 86400
"""A statement that would hold for longer was not meant."""


class Position(NamedTuple):
    """How far a peer was believed: the last statement, and which claims of it and those before are not carried out yet."""

    seq: int = 0
    last: str | None = None
    level: int = 0  # the highest format it has spoken
    forked: bool = False
    waiting: Mapping[str, RefClaim] = {}  # by ref
    at: int = 0  # when the last statement was made, by the peer's own clock


class ListenerContext(NamedTuple):
    """Who hears, whom, and when."""

    me: str
    space: str  # the peer's
    keys: tuple[str, ...]  # its chain, newest last
    now: int
    verifier: Ed25519Verifier


class AcceptResult(NamedTuple):
    """What became of a token. ``refusal`` is None where it was accepted; ``statement`` where it could be read."""

    position: Position
    statement: Statement | None = None
    refusal: CliaError | None = None


class Follow(NamedTuple):
    """A ref is to be tracked where its owner says."""

    claim: RefClaim
    tracked: str | None


class Forget(NamedTuple):
    """A ref is no longer shared."""

    claim: RefClaim
    tracked: str


class Learn(NamedTuple):
    """A type is to be known here too."""

    claim: RefClaim


class Withheld(NamedTuple):
    """It is not let in, for now: the gate denies it, or its type is another one here."""

    claim: RefClaim
    code: str = DENIED


Effect = Follow | Forget | Learn | Withheld


def accept(position: Position, token: str, listener: ListenerContext, tracked: Mapping[str, str]) -> AcceptResult:
    """The next position. ``tracked``: where each ref of the peer is tracked now, by the owner's name of it."""
    statement = None
    try:
        statement = _authentic(position, token, listener)
        _check_addressed(statement, listener)
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
    if len(token) > TOKEN_MAX:
        raise refusal("statement-too-large", f"a statement has at most {TOKEN_MAX} characters, this one {len(token)}")
    signed = listener.verifier.read(token, TOKEN_TYPE, listener.keys)
    if signed.key != listener.keys[-1]:
        raise refusal("revoked-key", "it is signed by a key that the peer has replaced", key=signed.key)
    return read_statement(signed.payload, position.level)


def _check_addressed(statement: Statement, listener: ListenerContext) -> None:
    if statement.space != listener.space:
        message = f"it speaks for the space {statement.space}, not for {listener.space}"
        raise refusal("wrong-space", message, space=statement.space)
    if statement.aud != listener.me:
        raise refusal("wrong-audience", f"it is meant for the space {statement.aud}", aud=statement.aud)


def _check_place(position: Position, statement: Statement, name: str) -> None:
    """Whether a statement follows on the last one accepted."""
    seq, at = statement.seq, {"seq": statement.seq, "accepted": position.seq}
    if seq == position.seq and name != position.last:
        raise refusal("chain-forked", f"the peer has signed two statements with the number {seq}", **at)
    if seq <= position.seq:
        raise refusal("replayed", f"statement {seq} is not newer than {position.seq}, the last one accepted", **at)
    if statement.is_snapshot:
        return
    if position.forked:
        raise refusal("chain-forked", "the peer's chain has forked: only a snapshot decides which statements hold", **at)
    if seq > position.seq + 1:
        raise refusal("gap", f"statement {seq} came before {position.seq + 1}", **at)
    if statement.prev != position.last:
        raise refusal("chain-forked", f"statement {seq} does not follow the one accepted before it", **at)


def _check_time(statement: Statement, now: int) -> None:
    # Numbers are milliseconds of the clock: none can be used up for ever by whoever has had the key for a moment.
    if statement.at > now + CLOCK_SKEW or statement.seq > (now + CLOCK_SKEW) * 1000:
        raise refusal("from-the-future", "it was signed later than now: one of the two clocks is wrong", at=statement.at, now=now)
    if statement.exp <= now - CLOCK_SKEW:
        raise refusal("expired", f"it held until {statement.exp}", exp=statement.exp, now=now)
    if statement.exp - statement.at > LIFETIME_MAX:
        raise refusal("lives-too-long", f"a statement holds for at most {LIFETIME_MAX} seconds", exp=statement.exp)


def _waiting_claims(position: Position, statement: Statement, tracked: Mapping[str, str]) -> dict[str, RefClaim]:
    """The claims that wait after a statement. A snapshot is all there is: what it leaves out is no longer shared."""
    if statement.is_snapshot:
        said = {each.ref: each for each in statement.claims}
        gone = [ref for ref in tracked if ref not in said and not ref.startswith(TYPES_PREFIX)]
        return unsettled(said | {ref: _withdrawal(ref) for ref in gone}, tracked)
    claim = statement.claims[0]
    known = claim.ref in position.waiting or claim.ref in tracked
    if not known and len(position.waiting) + len(tracked) >= REFS_MAX:
        raise refusal("too-many-refs", f"a peer may speak of at most {REFS_MAX} refs")
    return {**position.waiting, claim.ref: claim}


def unsettled(waiting: Mapping[str, RefClaim], tracked: Mapping[str, str]) -> dict[str, RefClaim]:
    """The claims that are not carried out."""
    return {ref: each for ref, each in waiting.items() if each.new != tracked.get(ref)}


def _withdrawal(ref: str) -> RefClaim:
    return RefClaim(ref, None, "agent-commit", "head-move")


def is_clash(claim: RefClaim, tracked: Mapping[str, str]) -> bool:
    """Whether a peer means another type by a name than is meant here; what is built in means the same everywhere."""
    ours = claim.ref.startswith(TYPES_PREFIX) and claim.type not in BUILT_IN
    return ours and tracked.get(claim.ref) not in (None, claim.new)


def outstanding(waiting: Sequence[RefClaim], tracked: Mapping[str, str], allowed: Allowed) -> list[Effect]:
    """What is to be done, in an order in which it can be: parents of types before their subtypes' users.

    What is no longer shared is let go of without asking the gate: it takes nothing in.
    """
    effects: list[Effect] = []
    clashing = {each.type for each in waiting if is_clash(each, tracked)}
    for claim in sorted(waiting, key=lambda each: (not each.ref.startswith(TYPES_PREFIX), each.ref)):
        at = tracked.get(claim.ref)
        if claim.new == at:
            continue
        if claim.new is None:
            effects += [Forget(claim, at)] if at is not None else []
        elif not allowed(claim.parent or claim.type, claim.trigger):  # a new type is judged as what it is a subtype of
            effects.append(Withheld(claim))
        elif claim.type in clashing and claim.ref.startswith(names.HEADS):
            effects.append(Withheld(claim, CLASH))  # the gate was asked about another type than its owner means
        else:
            effects.append(Learn(claim) if claim.ref.startswith(TYPES_PREFIX) else Follow(claim, at))
    return effects
