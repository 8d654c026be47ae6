"""Passkeys of users: for logins, and for answers that a person signs.

Invariant: a passkey is added with a login, and every further one only with the confirmation of one that the user has: a stolen
login adds none. The last one is removed on the command line only. A challenge is sealed with the forge's secret for one purpose and
one user, expires, and logs in once. A counter that does not increase is refused, because the key was copied.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import NamedTuple

from clia.errors import AlreadyExists, BadSignature, InvalidInput, NotAllowed, NotFound
from clia.store.interface import ABSENT
from clia.trust.passkeys import (
    Passkey,
    PasskeyPlace,
    assertion_in,
    bad_assertion,
    check_assertion,
    decoded,
    encoded,
    proof_of,
    registered,
)
from clia.users.fields import checked_line, is_text, is_time, is_time_or_none
from clia.values.clock import timestamp
from clia.verbs import require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.store.interface import Store, Transaction
    from clia.trust.statements import PersonalStatement, StatementProof
    from clia.users.service import User
    from clia.values.clock import Clock

PASSKEY, USED = "passkey/", "used-challenge/"
"""Prefixes of the rows."""
LOGIN, ENROL, CONFIRM = "login", "enrol", "confirm"
"""The purposes of a challenge; that of an answer is its statement."""
MOST = 20
"""Maximum passkeys of a user."""
_SECONDS = 300
_NONCE, _TIME, _SEAL = 16, 8, 16
_NAME_MAX = 60
_RESPONSE_MAX = 64 * 1024
_ID_LENGTH = 12


class UserPasskey(NamedTuple):
    """A passkey of a user. Times are RFC 3339."""

    id: str  # for its removal
    name: str  # as the user called it
    owner: str  # the user as recorded in decisions, when it was added
    fingerprint: str  # of its public key; proofs name it
    host: str  # the host name that it belongs to
    created_at: str  # when it was added
    last_used_at: str | None  # when it was last used


class StoredPasskey(NamedTuple):
    """A passkey and its owner."""

    user: str
    info: UserPasskey
    passkey: Passkey
    counter: int


class Passkeys:
    """The passkeys in a store.

    ``secret`` seals challenges; ``token`` returns unguessable bytes; ``agent``: who acts, if it is not a person.
    """

    def __init__(self, store: Store, clock: Clock, secret: str, token: Callable[[int], bytes], agent: str | None = None) -> None:
        self._store = store
        self._clock = clock
        self._secret = secret.encode("utf-8")
        self._token = token
        self._agent = agent

    # Reading

    def of(self, user: str, rp_id: str | None = None) -> list[StoredPasskey]:
        """The passkeys of a user, oldest first; ``rp_id``: only those of this host name."""
        with self._store.reading() as view:
            return _passkeys(view, user, rp_id)

    def by_fingerprint(self, fingerprint: str) -> StoredPasskey | None:
        """The passkey that a proof names; None if it is not one of this forge."""
        with self._store.reading() as view:
            keys = (_stored(key, row) for key, row in view.values.scan(PASSKEY))
            return next((key for key in keys if key is not None and key.info.fingerprint == fingerprint), None)

    def by_id(self, user: str, passkey_id: str) -> StoredPasskey:
        """A passkey of a user."""
        for key in self.of(user):
            if key.info.id == passkey_id:
                return key
        fields = {"user": user, "passkey": passkey_id}
        raise NotFound(f"{user} has no passkey {passkey_id!r}", code="no-such-passkey", fields=fields)

    # Challenges

    def challenge(self, purpose: str, user: str = "") -> bytes:
        """A new challenge for one purpose and user."""
        until = int(self._clock().timestamp()) + _SECONDS
        head = self._token(_NONCE) + until.to_bytes(_TIME, "big")
        return head + self._seal(purpose, user, head)

    def _seal(self, purpose: str, user: str, head: bytes) -> bytes:
        text = json.dumps(["clia passkey", purpose, user, head.hex()]).encode("ascii")
        return hmac.new(self._secret, text, "sha256").digest()[:_SEAL]

    def _own_challenge(self, response: Mapping[str, Any], purpose: str, user: str = "") -> bytes:
        """The challenge in a browser's response, if this forge issued it for this purpose and user."""
        challenge = _challenge_in(response)
        head, seal = challenge[: _NONCE + _TIME], challenge[_NONCE + _TIME :]
        if len(challenge) != _NONCE + _TIME + _SEAL or not hmac.compare_digest(seal, self._seal(purpose, user, head)):
            raise bad_assertion("the challenge is not from this forge, or for something else")
        if int.from_bytes(head[_NONCE:], "big") < self._clock().timestamp():
            raise bad_assertion("it took longer than five minutes")
        return challenge

    # Adding and removing

    def add(self, user: User, name: str, response: str, place: PasskeyPlace, confirmation: str = "") -> UserPasskey:
        """Add a passkey that a browser created; ``confirmation``: the answer of one that the user has, if any."""
        require_person(self._agent, "a person adds a passkey in the forge")
        label = checked_line(name, "name", _NAME_MAX) or "passkey"
        body = parsed(response)
        passkey, count = registered(body, self._own_challenge(body, ENROL, user.name), place)
        now, key = self._clock(), PASSKEY + _hash(passkey.credential)
        with self._store.writing() as transaction:
            others = _passkeys(transaction, user.name)
            if others:
                self._confirm(transaction, user.name, confirmation)
            if len(others) >= MOST:
                raise InvalidInput(f"a user has at most {MOST} passkeys", code="too-many", fields={"field": "name"})
            if transaction.values.get(key) is not None:
                raise AlreadyExists("this passkey is already in use", code="passkey-exists", fields={"user": user.name})
            row = {
                "user": user.name,
                "name": label,
                "owner": user.by,
                "credential": passkey.credential,
                "public": passkey.public,
                "rp_id": place.rp_id,
                "origins": list(place.origins),
                "count": count,
                "created_at": timestamp(now),
                "last_used_at": None,
            }
            transaction.values.put(key, row, ABSENT)
        stored = _stored(key, row)
        assert stored is not None  # noqa: S101  # for mypy: it was just written
        return stored.info

    def _confirm(self, transaction: Transaction, user: str, confirmation: str) -> None:
        if not confirmation:
            hints = [
                "use a passkey that you have to add another",
                "without it, an administrator runs: clia user passkey NAME --remove ID",
            ]
            raise NotAllowed("confirm with a passkey that you have", code="confirmation-needed", hints=hints)
        body = parsed(confirmation)
        self._use(transaction, body, self._own_challenge(body, CONFIRM, user), user)

    def remove(self, user: str, passkey_id: str, *, last: bool = False) -> None:
        """Remove a passkey; the last one only with ``last``."""
        require_person(self._agent, "ask a person: clia ask AGENT QUESTION")
        with self._store.writing() as transaction:
            keys = [key for key, row in transaction.values.scan(PASSKEY) if isinstance(row, dict) and row.get("user") == user]
            chosen = [key for key in keys if _passkey_id(key) == passkey_id]
            if not chosen:
                fields = {"user": user, "passkey": passkey_id}
                raise NotFound(f"{user} has no passkey {passkey_id!r}", code="no-such-passkey", fields=fields)
            if len(keys) == 1 and not last:
                hints = [f"add another one first, or run: clia user passkey {user} --remove {passkey_id}"]
                raise NotAllowed("the last passkey is removed on the command line", code="last-passkey", hints=hints)
            for key in chosen:
                transaction.values.delete(key)

    # Using

    def log_in(self, response: str) -> str:
        """The user whose passkey answered a challenge for a login. Each challenge logs in once."""
        body = parsed(response)
        challenge = self._own_challenge(body, LOGIN)
        with self._store.writing() as transaction:
            used = USED + hashlib.sha256(challenge).hexdigest()
            if transaction.values.get(used) is not None:
                raise bad_assertion("it has been used")
            stored = self._use(transaction, body, challenge)
            until = timestamp(self._clock() + timedelta(seconds=_SECONDS))
            transaction.values.put(used, {"expires_at": until}, ABSENT)
        return stored.user

    def sign(self, user: str, response: str, statement: PersonalStatement, by: str | None = None) -> StatementProof:
        """The proof that a user made a statement: the answer of a passkey to the statement's digest.

        ``by``: the user as recorded, who may agree with the statement of another person.
        """
        body = parsed(response)
        with self._store.writing() as transaction:
            stored = self._use(transaction, body, statement.challenge(), user)
            if stored.info.owner != (by or statement.person):
                fields = {"person": by or statement.person}
                raise BadSignature("the statement is by another person", code="wrong-person", fields=fields)
        return proof_of(assertion_in(body["response"]), stored.passkey)

    def _use(self, transaction: Transaction, body: Mapping[str, Any], challenge: bytes, user: str | None = None) -> StoredPasskey:
        """Check the answer of a passkey, and record its counter."""
        credential = body.get("id")
        key = PASSKEY + _hash(credential if isinstance(credential, str) else "")
        entry = transaction.values.get(key)
        stored = None if entry is None else _stored(key, entry.value)
        if entry is None or stored is None or (user is not None and stored.user != user):
            raise BadSignature(
                "unknown passkey", code="unknown-passkey", hints=["it was removed, or it is of another user or forge"]
            )
        count = check_assertion(assertion_in(body.get("response")), challenge, stored.passkey, stored.counter)
        transaction.values.put(key, {**entry.value, "count": count, "last_used_at": timestamp(self._clock())})
        return stored


def passkeys_of_space(space: Space) -> Passkeys:
    """The passkeys of a space's users, to list and remove them."""
    from secrets import token_bytes

    return Passkeys(space.local.store, space.local.clock, "", token_bytes, space.local.agent)


def parsed(text: str) -> dict[str, Any]:
    """A browser's response; ``BadSignature`` unless it is a JSON object."""
    try:
        body = json.loads(text) if len(text) <= _RESPONSE_MAX else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise bad_assertion("it is not a JSON object")
    return body


def request_options(challenge: bytes, rp_id: str, keys: Sequence[StoredPasskey] = ()) -> dict[str, Any]:
    """The options with which a browser asks for an answer; without keys, the person chooses one."""
    allowed = [{"type": "public-key", "id": key.passkey.credential} for key in keys]
    options = {"challenge": encoded(challenge), "rpId": rp_id, "userVerification": "required", "timeout": _SECONDS * 1000}
    return {**options, "allowCredentials": allowed}


def creation_options(
    challenge: bytes, place: PasskeyPlace, user: User, keys: Sequence[StoredPasskey], algorithms: Sequence[int]
) -> dict[str, Any]:
    """The options with which a browser creates a passkey."""
    handle = hashlib.sha256(f"clia user {place.rp_id} {user.name}".encode()).digest()
    return {
        "challenge": encoded(challenge),
        "rp": {"id": place.rp_id, "name": "clia"},
        "user": {"id": encoded(handle), "name": user.name, "displayName": user.display or user.name},
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in algorithms],
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "required"},
        "excludeCredentials": [{"type": "public-key", "id": key.passkey.credential} for key in keys],
        "attestation": "none",
        "timeout": _SECONDS * 1000,
    }


def _challenge_in(response: Mapping[str, Any]) -> bytes:
    """The challenge that a browser answered."""
    try:
        fields = json.loads(decoded(response["response"]["clientDataJSON"], "clientDataJSON"))
        return decoded(fields["challenge"], "challenge")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise bad_assertion("it has no challenge") from None


def _passkeys(view: Transaction, user: str, rp_id: str | None = None) -> list[StoredPasskey]:
    stored = (_stored(key, row) for key, row in view.values.scan(PASSKEY))
    keys = [key for key in stored if key is not None and key.user == user and rp_id in (None, key.passkey.place.rp_id)]
    return sorted(keys, key=lambda key: (key.info.created_at, key.info.id))


def _stored(key: str, row: Any) -> StoredPasskey | None:
    """The passkey of a row; None if the row is damaged."""
    if not isinstance(row, dict) or not all(name in row and fits(row[name]) for name, fits in _ROW.items()):
        return None
    passkey = Passkey(row["credential"], row["public"], PasskeyPlace(row["rp_id"], tuple(row["origins"])))
    try:
        fingerprint = passkey.fingerprint
    except BadSignature:
        return None
    times = row["created_at"], row["last_used_at"]
    info = UserPasskey(_passkey_id(key), row["name"], row["owner"], fingerprint, row["rp_id"], *times)
    return StoredPasskey(row["user"], info, passkey, row["count"])


def _passkey_id(key: str) -> str:
    return key.removeprefix(PASSKEY)[:_ID_LENGTH]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_TEXTS = dict.fromkeys(("user", "name", "owner", "credential", "public", "rp_id"), is_text)
_ROW: Mapping[str, Callable[[Any], bool]] = {
    **_TEXTS,
    "origins": _are_texts,
    "count": _is_count,
    "created_at": is_time,
    "last_used_at": is_time_or_none,
}
