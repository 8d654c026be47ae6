"""Who may use the forge: people, the tokens of their programs, and their logins.

Invariant: a secret leaves once, when it is made; the store has its SHA-256 only, and what a secret opens is looked up by that.
Nobody gets more than their row says at that moment: a user who is gone, or of a lower role by now, is so for every token and
every login at once. Each change is one transaction, so that of any number of processes one redeems a link. A row that is
damaged opens nothing, hides no other and stays as it is.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import NamedTuple

from clia.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from clia.store.interface import ABSENT
from clia.users.fields import DAYS_MAX, DISPLAY_MAX, LABEL_MAX, MINUTES_MAX, checked_email, checked_name, count, line
from clia.values.clock import timestamp
from clia.values.names import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.space import Space
    from clia.store.interface import Store, Transaction
    from clia.values.clock import Clock

    Row = dict[str, Any]
    Shape = Mapping[str, Callable[[Any], bool]]

VIEWER, DECIDER, ADMIN = ROLES = ("viewer", "decider", "admin")
"""From least to most: who has a role may do what those before it may."""
TOKEN_PREFIX = "clia_"  # noqa: S105  # public: by it people and scanners know a token

_USER, _TOKEN, _LOGIN, _WEB = "user/", "token/", "login/", "web/"
_ID_LENGTH = 12
_IDLE, _WHOLE = timedelta(hours=12), timedelta(days=7)  # a login ends when it was not used, and at the latest
_NEWS = timedelta(minutes=1)  # what a look changes is not written more often
_LAST_YEAR = 9999  # from where nothing can be counted on


class User(NamedTuple):
    """Somebody who may use the forge."""

    name: str
    role: str
    display: str = ""
    email: str = ""

    @property
    def by(self) -> str:
        """As a decision records who made it."""
        shown = self.display or self.name
        return f"{shown} <{self.email}>" if self.email else shown

    def may(self, role: str) -> bool:
        """Whether this user may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


class TokenInfo(NamedTuple):
    """What may be known of a token; times are RFC 3339."""

    id: str
    label: str
    role: str  # what it may do now
    created_at: str
    last_used_at: str | None  # to a minute
    expires_at: str | None


class UserInfo(NamedTuple):
    user: User
    created_at: str
    tokens: list[TokenInfo]  # oldest first


class WebSession(NamedTuple):
    """A login of a browser. ``csrf`` follows from the secret and stands in our own pages only: a form that has it is ours."""

    secret: str
    user: User
    csrf: str
    expires_at: str  # RFC 3339


def users_of(space: Space) -> Users:
    """The users that live in a space's store."""
    from secrets import token_urlsafe

    core = space.core
    return Users(core.store, core.clock, lambda: token_urlsafe(32))


class Users:
    """``token`` gives a secret that nobody can guess, as text for addresses; another one each time."""

    def __init__(self, store: Store, clock: Clock, token: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._token = token

    # People

    def add(self, name: str, role: str = VIEWER, display: str = "", email: str = "") -> User:
        """A new user; ``AlreadyExists`` where the name is taken."""
        user = _checked_user(name, role, display, email)
        with self._store.writing() as change:
            self._put_new(change, user)
        return user

    def first_admin(self, display: str = "", email: str = "") -> User:
        """The first admin by name; where nobody is one, a new one. Of any number of processes that ask at once, one makes it."""
        user = _checked_user("admin", ADMIN, display, email)
        with self._store.writing() as change:
            known = [each.user for each in _known(change.values.scan(_USER)) if each.user.role == ADMIN]
            if known:
                return known[0]
            if change.values.get(_USER + user.name) is not None:
                user = user._replace(name="operator")
            self._put_new(change, user)
        return user

    def update(self, name: str, *, role: str | None = None, display: str | None = None, email: str | None = None) -> User:
        """Changes what is given. Tokens and logins of a user have at most the new role, from now on."""
        given = {
            "role": None if role is None else _checked_role(role),
            "display": None if display is None else line(display, "display", DISPLAY_MAX),
            "email": None if email is None else checked_email(email),
        }
        with self._store.writing() as change:
            row = _user_row(change, name)
            if row is None:
                raise _no_such_user(name)
            user = _as_user(name, row)
            made = user._replace(**{key: value for key, value in given.items() if value is not None})
            if not made.may(ADMIN):
                _check_not_last(change, user)
            change.values.put(_USER + name, {**row, **_row_of(made)})
        return made

    def get(self, name: str) -> User | None:
        with self._store.reading() as view:
            return _user(view, name)

    def all(self) -> list[UserInfo]:
        """Every user, sorted by name, with the tokens they have."""
        with self._store.reading() as view:
            rows, tokens = view.values.scan(_USER), view.values.scan(_TOKEN)
        found = _known(rows)
        by_name = {each.user.name: each for each in found}
        for key, row in tokens:
            if _is_sound(row, _TOKEN_ROW) and row["user"] in by_name:
                owner = by_name[row["user"]]
                owner.tokens.append(_token_info(key, row, owner.user))
        for each in found:
            each.tokens.sort(key=lambda token: (token.created_at, token.id))
        return found

    def remove(self, name: str, *, force: bool = False) -> None:
        """Takes a user away, with every token and login. The last admin stays, unless with ``force``."""
        with self._store.writing() as change:
            if not is_slug(name) or change.values.get(_USER + name) is None:
                raise _no_such_user(name)
            user = _user(change, name)  # None: its row is damaged, and may go
            if user is not None and not force:
                _check_not_last(change, user, hints=["--force removes the last one too"])
            change.values.delete(_USER + name)
            for prefix in (_TOKEN, _LOGIN, _WEB):
                for key, row in change.values.scan(prefix):
                    if isinstance(row, dict) and row.get("user") == name:
                        change.values.delete(key)

    # Tokens of programs

    def make_token(self, name: str, label: str = "", role: str | None = None, days: int | None = None) -> tuple[str, TokenInfo]:
        """A new token: the secret, which nobody can ask for again, and what may be known of it.

        ``role``: at most the user's, and that where it is None. ``days``: how long it is good; None: until it is revoked.
        """
        label = line(label, "label", LABEL_MAX)
        wanted = None if role is None else _checked_role(role)
        now = self._clock()
        until = None if days is None else timestamp(now + timedelta(days=count(days, "days", DAYS_MAX)))
        secret = TOKEN_PREFIX + self._token()
        key = _TOKEN + _hash(secret)
        with self._store.writing() as change:
            user = _required(change, name)
            if wanted is not None and not user.may(wanted):
                raise NotAllowed(
                    f"{name} is a {user.role}; a token cannot be a {wanted}",
                    code="role-too-high",
                    fields={"field": "role", "role": wanted, "user": name},
                )
            row: Row = {"user": name, "label": label, "role": wanted or user.role}
            row |= {"created_at": timestamp(now), "last_used_at": None, "expires_at": until}
            change.values.put(key, row, ABSENT)
        return secret, _token_info(key, row, user)

    def revoke_token(self, name: str, token_id: str) -> None:
        """The token is good for nothing any more."""
        with self._store.writing() as change:
            _required(change, name)
            tokens = change.values.scan(_TOKEN)
            keys = [key for key, row in tokens if _token_id(key) == token_id and isinstance(row, dict) and row.get("user") == name]
            if not keys:
                raise NotFound(
                    f"{name} has no token {token_id!r}",
                    code="no-such-token",
                    hints=["clia user list shows the tokens"],
                    fields={"user": name, "token": token_id},
                )
            for key in keys:
                change.values.delete(key)

    def by_token(self, secret: str) -> User | None:
        """Whose token it is, with the role that it carries; None where it is unknown or over."""
        found = self._seen(_TOKEN + _hash(secret), _TOKEN_ROW, _used)
        return None if found is None else found.user._replace(role=_lesser(found.row["role"], found.user.role))

    # Logins of people

    def login_link(self, name: str, minutes: int = 15) -> str:
        """A secret that logs a user in, once."""
        until = self._clock() + timedelta(minutes=count(minutes, "minutes", MINUTES_MAX))
        secret = self._token()
        with self._store.writing() as change:
            _required(change, name)
            change.values.put(_LOGIN + _hash(secret), {"user": name, "expires_at": timestamp(until)}, ABSENT)
        return secret

    def redeem(self, secret: str) -> WebSession | None:
        """Logs the user in whose link it is; None where it was used, is over or unknown."""
        key = _LOGIN + _hash(secret)
        if self._store.get(key) is None:
            return None  # whoever guesses keeps no writer waiting
        now = self._clock()
        with self._store.writing() as change:
            found = _live(change, key, _LOGIN_ROW, now)
            if found is None:
                return None
            change.values.delete(key)
            return self._log_in(change, found.user, now)

    def make_session(self, name: str) -> WebSession:
        """Logs a user in whom somebody else has recognised: a proxy that is trusted."""
        with self._store.writing() as change:
            return self._log_in(change, _required(change, name), self._clock())

    def session(self, secret: str) -> WebSession | None:
        """Who is logged in; None where nobody is any more. It goes on with each look, up to seven days after the login."""
        found = self._seen(_WEB + _hash(secret), _WEB_ROW, _slid)
        return None if found is None else WebSession(secret, found.user, _csrf(secret), found.row["expires_at"])

    def end_session(self, secret: str) -> None:
        key = _WEB + _hash(secret)
        if self._store.get(key) is not None:
            with self._store.writing() as change:
                change.values.delete(key)

    def expire(self) -> int:
        """Drops links, logins and tokens that are over; how many."""
        now = self._clock()
        with self._store.reading() as view:
            if not _over(view, now):
                return 0  # most often: and no writer is kept waiting for it
        with self._store.writing() as change:
            keys = _over(change, now)
            for key in keys:
                change.values.delete(key)
        return len(keys)

    def _put_new(self, change: Transaction, user: User) -> None:
        if change.values.get(_USER + user.name) is not None:
            raise AlreadyExists(f"there is a user {user.name!r} already", fields={"user": user.name})
        change.values.put(_USER + user.name, {**_row_of(user), "created_at": timestamp(self._clock())})

    def _log_in(self, change: Transaction, user: User, now: datetime) -> WebSession:
        secret, until = self._token(), timestamp(now + _IDLE)
        row = {"user": user.name, "created_at": timestamp(now), "expires_at": until}
        change.values.put(_WEB + _hash(secret), row, ABSENT)
        return WebSession(secret, user, _csrf(secret), until)

    def _seen(self, key: str, shape: Shape, renewed: Callable[[Row, datetime], Row | None]) -> _Live | None:
        """What lives under a key; ``renewed`` says what its row becomes by this look, or None."""
        now = self._clock()
        with self._store.reading() as view:
            found = _live(view, key, shape, now)
        if found is None or renewed(found.row, now) is None:
            return found
        with self._store.writing() as change:
            found = _live(change, key, shape, now)  # it may be gone by now
            row = None if found is None else renewed(found.row, now)
            if found is None or row is None:
                return found
            change.values.put(key, row)
        return found._replace(row=row)


class _Live(NamedTuple):
    """A row that is good now, and whose it is."""

    row: Row
    user: User


def _live(view: Transaction, key: str, shape: Shape, now: datetime) -> _Live | None:
    row = _sound(view, key, shape)
    if row is None or _is_over(row, now):
        return None
    user = _user(view, row["user"])
    return None if user is None else _Live(row, user)


def _over(view: Transaction, now: datetime) -> list[str]:
    """The keys of what is over."""
    found = []
    for prefix, shape in ((_TOKEN, _TOKEN_ROW), (_LOGIN, _LOGIN_ROW), (_WEB, _WEB_ROW)):
        found += [key for key, row in view.values.scan(prefix) if _is_sound(row, shape) and _is_over(row, now)]
    return found


def _is_over(row: Row, now: datetime) -> bool:
    until = row["expires_at"]
    return until is not None and now >= datetime.fromisoformat(until)


def _used(row: Row, now: datetime) -> Row | None:
    last = row["last_used_at"]
    # The clock may have been set back: what lies ahead is as old as what lies behind.
    if last is not None and abs(now - datetime.fromisoformat(last)) < _NEWS:
        return None
    return {**row, "last_used_at": timestamp(now)}


def _slid(row: Row, now: datetime) -> Row | None:
    until = min(now + _IDLE, datetime.fromisoformat(row["created_at"]) + _WHOLE)
    return {**row, "expires_at": timestamp(until)} if until - datetime.fromisoformat(row["expires_at"]) >= _NEWS else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()  # a secret that is nonsense is only unknown


def _csrf(secret: str) -> str:
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"clia csrf", hashlib.sha256).hexdigest()


def _token_id(key: str) -> str:
    """What a token is called: the beginning of its hash, which says nothing of the secret."""
    return key.removeprefix(_TOKEN)[:_ID_LENGTH]


def _token_info(key: str, row: Row, user: User) -> TokenInfo:
    role = _lesser(row["role"], user.role)
    return TokenInfo(_token_id(key), row["label"], role, row["created_at"], row["last_used_at"], row["expires_at"])


def _lesser(role: str, other: str) -> str:
    return min(role, other, key=ROLES.index)


# Rows


def _known(rows: list[tuple[str, Any]]) -> list[UserInfo]:
    """The users that rows tell of, without their tokens; what is damaged tells of nobody."""
    named = [(key.removeprefix(_USER), row) for key, row in rows if _is_sound(row, _USER_ROW)]
    return [UserInfo(_as_user(name, row), row["created_at"], []) for name, row in named if is_slug(name)]


def _user_row(view: Transaction, name: str) -> Row | None:
    return _sound(view, _USER + name, _USER_ROW) if is_slug(name) else None


def _user(view: Transaction, name: str) -> User | None:
    row = _user_row(view, name)
    return None if row is None else _as_user(name, row)


def _required(view: Transaction, name: str) -> User:
    found = _user(view, name)
    if found is None:
        raise _no_such_user(name)
    return found


def _no_such_user(name: str) -> NotFound:
    return NotFound(
        f"there is no user {name!r} here", code="no-such-user", hints=["clia user list shows the users"], fields={"user": name}
    )


def _check_not_last(view: Transaction, user: User, hints: list[str] | None = None) -> None:
    """``NotAllowed`` where nobody else is an admin."""
    others = [row for key, row in view.values.scan(_USER) if key != _USER + user.name and _is_sound(row, _USER_ROW)]
    if user.role == ADMIN and not any(row["role"] == ADMIN for row in others):
        raise NotAllowed(
            f"{user.name} is the last admin",
            code="last-admin",
            hints=["make somebody else an admin first: clia user add NAME --role admin", *(hints or [])],
            fields={"user": user.name},
        )


def _as_user(name: str, row: Row) -> User:
    return User(name, row["role"], row["display"], row["email"])


def _row_of(user: User) -> Row:
    return {"role": user.role, "display": user.display, "email": user.email}


def _sound(view: Transaction, key: str, shape: Shape) -> Row | None:
    found = view.values.get(key)
    return found.value if found is not None and _is_sound(found.value, shape) else None


def _is_sound(row: Any, shape: Shape) -> bool:
    return isinstance(row, dict) and all(key in row and fits(row[key]) for key, fits in shape.items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_role(value: Any) -> bool:
    return value in ROLES


def _is_time(value: Any) -> bool:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return found.tzinfo is not None and 1 < found.year < _LAST_YEAR


def _is_time_or_none(value: Any) -> bool:
    return value is None or _is_time(value)


_USER_ROW: Shape = {"role": _is_role, "display": _is_text, "email": _is_text, "created_at": _is_time}
_TOKEN_ROW: Shape = {
    "user": _is_text,
    "label": _is_text,
    "role": _is_role,
    "created_at": _is_time,
    "last_used_at": _is_time_or_none,
    "expires_at": _is_time_or_none,
}
_LOGIN_ROW: Shape = {"user": _is_text, "expires_at": _is_time}
_WEB_ROW: Shape = {"user": _is_text, "created_at": _is_time, "expires_at": _is_time}


# What is given


def _checked_user(name: str, role: str, display: str, email: str) -> User:
    return User(checked_name(name), _checked_role(role), line(display, "display", DISPLAY_MAX), checked_email(email))


def _checked_role(role: str) -> str:
    if role in ROLES:
        return role
    raise InvalidInput(
        f"{role!r} is not a role", code="invalid-role", hints=[f"the roles are {', '.join(ROLES)}"], fields={"field": "role"}
    )
