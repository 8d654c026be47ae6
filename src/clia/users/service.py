"""Users of the forge: people, API tokens and logins.

Invariant: a secret is returned once, when it is created; the store has only its SHA-256. Permissions follow the user's current
row: removing a user or lowering a role applies to all tokens and logins at once. Each change is one transaction, so one process
redeems a link. A damaged row grants nothing, hides no other row and is left as it is.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import NamedTuple

from clia.errors import AlreadyExists, NotAllowed, NotFound
from clia.store.interface import ABSENT
from clia.users.fields import (
    ADMIN,
    AGENT,
    ROLES,
    VIEWER,
    checked_email,
    checked_line,
    checked_number,
    checked_role,
    invalid,
    is_text,
    is_time,
    is_time_or_none,
    lower_role,
)
from clia.users.passkeys import PASSKEY, USED
from clia.values.clock import timestamp
from clia.values.records import EMBED, json_form
from clia.values.refs import check_name, is_name
from clia.values.slugs import SLUG_MAX, is_slug
from clia.verbs import require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.facade.space import Space
    from clia.store.interface import Store, Transaction
    from clia.values.clock import Clock

    StoredRow = dict[str, Any]
    RowSchema = Mapping[str, Callable[[Any], bool]]

TOKEN_PREFIX = "clia_"  # noqa: S105  # public: identifies a token to people and scanners

_USER, _TOKEN, _LOGIN, _WEB = "user/", "token/", "login/", "web/"
_ID_LENGTH = 12
_IDLE_LOGIN, _MAX_LOGIN = timedelta(hours=12), timedelta(days=7)  # a login ends after inactivity, and at the latest
_TOUCH_INTERVAL = timedelta(minutes=1)  # how often a use is recorded
_DISPLAY_MAX, _LABEL_MAX = 100, 100
_MINUTES_MAX, _DAYS_MAX = 24 * 60, 3650


@json_form(agents="agents?")
class User(NamedTuple):
    """A user of the forge."""

    name: str  # user name
    role: str  # `viewer`, `agent`, `decider` or `admin`
    display: str = ""  # name that decisions record; empty: the user name
    email: str = ""  # e-mail address that decisions record
    agents: tuple[str, ...] = ()  # of a user with the role agent: the agents that it acts for

    @property
    def by(self) -> str:
        """The user as recorded in decisions."""
        shown = self.display or self.name
        return f"{shown} <{self.email}>" if self.email else shown

    def may(self, role: str) -> bool:
        """Whether the user has at least this role."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def acting(self) -> str | None:
        """The agents that the user acts for, for messages; None for a person."""
        return ", ".join(self.agents) if self.role == AGENT else None

    def require_agent(self, name: object) -> None:
        """Raise ``NotAllowed`` unless a user with the role agent acts for this agent."""
        if self.role == AGENT and name not in self.agents:
            message = f"user {self.name!r} acts for {self.acting or 'no agent'}, not for {name!r}"
            hints = [f"ask an administrator to run: clia user change {self.name} --agent NAME"]
            raise NotAllowed(message, code="not-your-agent", hints=hints, fields={"user": self.name, "agent": name})

    def require(self, role: str) -> None:
        """Raise ``NotAllowed`` unless the user has at least this role."""
        if not self.may(role):
            message = f"user {self.name!r} has role {self.role}, but this needs {role}"
            hints = [f"ask an administrator to run: clia user change {self.name} --role {role}"]
            fields = {"user": self.name, "role": self.role, "needed": role}
            raise NotAllowed(message, code="role-too-low", hints=hints, fields=fields)


class TokenInfo(NamedTuple):
    """A token without its secret; times are RFC 3339."""

    id: str  # token id, for `clia user token --revoke`
    label: str  # its purpose
    role: str  # effective role: never more than its user's
    created_at: str  # when it was created
    last_used_at: str | None  # to a minute
    expires_at: str | None  # null: it is valid until it is revoked


@json_form(user=EMBED)
class UserInfo(NamedTuple):
    """A user with all tokens."""

    user: User
    created_at: str  # when the user was added
    tokens: list[TokenInfo]  # oldest first


class WebSession(NamedTuple):
    """A browser login. ``csrf`` derives from the secret; only our own pages contain it."""

    secret: str
    user: User
    csrf: str
    expires_at: str  # RFC 3339


def users_of(space: Space) -> Users:
    """Return the users of a space."""
    from secrets import token_urlsafe

    return Users(space.local.store, space.local.clock, lambda: token_urlsafe(32), space.local.agent)


class Users:
    """The users in a store.

    ``token`` returns a new unguessable, URL-safe secret. ``agent``: the agent that acts, if it is not a person; it can only read.
    """

    def __init__(self, store: Store, clock: Clock, token: Callable[[], str], agent: str | None = None) -> None:
        self._store = store
        self._clock = clock
        self._token = token
        self._agent = agent

    def _managed(self) -> AbstractContextManager[Transaction]:
        """The transaction of a change that only people make."""
        require_person(self._agent, "ask a person: clia ask AGENT QUESTION")
        return self._store.writing()

    # People

    def add(self, name: str, role: str = VIEWER, display: str = "", email: str = "", *, agents: Sequence[str] = ()) -> User:
        """Add a user; ``AlreadyExists`` if the name is taken. ``agents``: those that a user with the role agent acts for."""
        user = _with_agents(_checked_user(name, role, display, email), agents)
        with self._managed() as transaction:
            self._put_new(transaction, user)
        return user

    def first_admin(self, display: str = "", email: str = "") -> User:
        """Return the first admin by name; create one if there is none."""
        user = _checked_user("admin", ADMIN, display, email)
        with self._store.writing() as transaction:
            for info in _user_infos(transaction.values.scan(_USER)):
                if info.user.role == ADMIN:
                    return info.user
            if transaction.values.get(_USER + user.name) is not None:
                user = user._replace(name="operator")
            self._put_new(transaction, user)
        return user

    def update(
        self,
        name: str,
        *,
        role: str | None = None,
        display: str | None = None,
        email: str | None = None,
        agents: Sequence[str] | None = None,
    ) -> User:
        """Change the given fields. The new role limits existing tokens and logins at once."""
        changes = {
            "role": role if role is None else checked_role(role),
            "display": display if display is None else checked_line(display, "display", _DISPLAY_MAX),
            "email": email if email is None else checked_email(email),
        }
        with self._managed() as transaction:
            row = _user_row(transaction, name)
            if row is None:
                raise _no_such_user(name)
            user = _as_user(name, row)
            new: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
            changed = user._replace(**new)
            bound_agents = user.agents if agents is None and changed.role == AGENT else agents or ()
            changed = _with_agents(changed, bound_agents)
            row.pop("agents", None)
            new |= _agents_row(changed)
            if not changed.may(ADMIN):
                _check_not_last_admin(transaction, user)
            transaction.values.put(_USER + name, {**row, **new})
        return changed

    def get(self, name: str) -> User | None:
        with self._store.reading() as view:
            return _user(view, name)

    def all(self) -> list[UserInfo]:
        """Return every user, sorted by name, with their tokens."""
        with self._store.reading() as view:
            rows, tokens = view.values.scan(_USER), view.values.scan(_TOKEN)
        infos = {info.user.name: info for info in _user_infos(rows)}
        for key, row in tokens:
            if _is_valid(row, _TOKEN_ROW) and row["user"] in infos:
                owner = infos[row["user"]]
                owner.tokens.append(_token_info(key, row, owner.user))
        for info in infos.values():
            info.tokens.sort(key=lambda token: (token.created_at, token.id))
        return list(infos.values())

    def remove(self, name: str, *, force: bool = False) -> None:
        """Remove a user with all tokens and logins. The last admin only with ``force``."""
        with self._managed() as transaction:
            if not is_slug(name) or transaction.values.get(_USER + name) is None:
                raise _no_such_user(name)
            user = _user(transaction, name)  # None: damaged, may be removed
            if user is not None and not force:
                _check_not_last_admin(transaction, user, hints=["--force removes the last admin too"])
            transaction.values.delete(_USER + name)
            for prefix in (_TOKEN, _LOGIN, _WEB, PASSKEY):
                for key, row in transaction.values.scan(prefix):
                    if isinstance(row, dict) and row.get("user") == name:
                        transaction.values.delete(key)

    # API tokens

    def make_token(self, name: str, label: str = "", role: str | None = None, days: int | None = None) -> tuple[str, TokenInfo]:
        """Create a token; return its secret, which cannot be retrieved again, and its description.

        ``role``: at most the user's (default). ``days``: lifetime; None: until revoked.
        """
        label = checked_line(label, "label", _LABEL_MAX)
        new_role = role if role is None else checked_role(role)
        now = self._clock()
        until = None if days is None else timestamp(now + timedelta(days=checked_number(days, "days", _DAYS_MAX)))
        secret = TOKEN_PREFIX + self._token()
        key = _TOKEN + _hash(secret)
        with self._managed() as transaction:
            user = _existing_user(transaction, name)
            if new_role is not None and (not user.may(new_role) or (new_role == AGENT and user.role != AGENT)):
                message = f"{name} has the role {user.role}; a token cannot have {new_role}"
                fields = {"field": "role", "role": new_role, "user": name}
                raise NotAllowed(message, code="role-too-high", fields=fields)
            row: StoredRow = {"user": name, "label": label, "role": new_role or user.role}
            row |= {"created_at": timestamp(now), "last_used_at": None, "expires_at": until}
            transaction.values.put(key, row, ABSENT)
        return secret, _token_info(key, row, user)

    def revoke_token(self, name: str, token_id: str) -> None:
        """Revoke a token."""
        with self._managed() as transaction:
            _existing_user(transaction, name)
            tokens = transaction.values.scan(_TOKEN)
            keys = [key for key, row in tokens if _token_id(key) == token_id and isinstance(row, dict) and row.get("user") == name]
            if not keys:
                hints, fields = ["clia user list shows the tokens"], {"user": name, "token": token_id}
                raise NotFound(f"{name} has no token {token_id!r}", code="no-such-token", hints=hints, fields=fields)
            for key in keys:
                transaction.values.delete(key)

    def by_token(self, secret: str) -> User | None:
        """Return the user of a token, with the token's role; None if it is unknown or expired."""
        live = self._look_up(_TOKEN + _hash(secret), _TOKEN_ROW, _touched)
        return None if live is None else live.user._replace(role=lower_role(live.row["role"], live.user.role))

    # Logins

    def login_link(self, name: str, minutes: int = 15) -> str:
        """Return a secret that logs a user in once."""
        until = self._clock() + timedelta(minutes=checked_number(minutes, "minutes", _MINUTES_MAX))
        secret = self._token()
        with self._managed() as transaction:
            _existing_user(transaction, name)
            transaction.values.put(_LOGIN + _hash(secret), {"user": name, "expires_at": timestamp(until)}, ABSENT)
        return secret

    def redeem(self, secret: str) -> WebSession | None:
        """Redeem a login link; None if it was used, expired or is unknown."""
        key = _LOGIN + _hash(secret)
        if self._store.get(key) is None:
            return None  # without a write transaction: guessing must not block writers
        now = self._clock()
        with self._store.writing() as transaction:
            live = _live_row(transaction, key, _LOGIN_ROW, now)
            if live is None:
                return None
            transaction.values.delete(key)
            return self._create_login(transaction, live.user, now)

    def make_session(self, name: str) -> WebSession:
        """Log in a user authenticated by a trusted proxy or a passkey."""
        with self._store.writing() as transaction:
            return self._create_login(transaction, _existing_user(transaction, name), self._clock())

    def session(self, secret: str) -> WebSession | None:
        """Return the login of a secret; None if it expired. Each use extends it, up to seven days."""
        live = self._look_up(_WEB + _hash(secret), _WEB_ROW, _extended)
        return None if live is None else WebSession(secret, live.user, _csrf(secret), live.row["expires_at"])

    def end_session(self, secret: str) -> None:
        key = _WEB + _hash(secret)
        if self._store.get(key) is not None:
            with self._store.writing() as transaction:
                transaction.values.delete(key)

    def expire(self) -> int:
        """Delete expired links, logins and tokens; return how many."""
        now = self._clock()
        with self._store.reading() as view:
            if not _expired_keys(view, now):
                return 0  # the usual case, without a write transaction
        with self._store.writing() as transaction:
            keys = _expired_keys(transaction, now)
            for key in keys:
                transaction.values.delete(key)
        return len(keys)

    def _put_new(self, transaction: Transaction, user: User) -> None:
        if transaction.values.get(_USER + user.name) is not None:
            raise AlreadyExists(f"user {user.name!r} already exists", fields={"user": user.name})
        row = {key: value for key, value in user._asdict().items() if key not in ("name", "agents")} | _agents_row(user)
        transaction.values.put(_USER + user.name, {**row, "created_at": timestamp(self._clock())})

    def _create_login(self, transaction: Transaction, user: User, now: datetime) -> WebSession:
        secret, until = self._token(), timestamp(now + _IDLE_LOGIN)
        row = {"user": user.name, "created_at": timestamp(now), "expires_at": until}
        transaction.values.put(_WEB + _hash(secret), row, ABSENT)
        return WebSession(secret, user, _csrf(secret), until)

    def _look_up(self, key: str, schema: RowSchema, renewed: Callable[[StoredRow, datetime], StoredRow | None]) -> _LiveRow | None:
        """Return the live row of a key. ``renewed`` returns the row as it is after this use, or None if it does not change."""
        now = self._clock()
        with self._store.reading() as view:
            live = _live_row(view, key, schema, now)
        if live is None or renewed(live.row, now) is None:
            return live
        with self._store.writing() as transaction:
            live = _live_row(transaction, key, schema, now)  # it may have been removed
            row = None if live is None else renewed(live.row, now)
            if live is None or row is None:
                return live
            transaction.values.put(key, row)
        return live._replace(row=row)


class _LiveRow(NamedTuple):
    """A valid, unexpired row and its user."""

    row: StoredRow
    user: User


def _live_row(view: Transaction, key: str, schema: RowSchema, now: datetime) -> _LiveRow | None:
    row = _valid_row(view, key, schema)
    if row is None or _is_expired(row, now):
        return None
    user = _user(view, row["user"])
    return None if user is None else _LiveRow(row, user)


def _expired_keys(view: Transaction, now: datetime) -> list[str]:
    """Return the keys of expired rows."""
    return [
        key
        for prefix, schema in ((_TOKEN, _TOKEN_ROW), (_LOGIN, _LOGIN_ROW), (_WEB, _WEB_ROW), (USED, _USED_ROW))
        for key, row in view.values.scan(prefix)
        if _is_valid(row, schema) and _is_expired(row, now)
    ]


def _is_expired(row: StoredRow, now: datetime) -> bool:
    until = row["expires_at"]
    return until is not None and now >= datetime.fromisoformat(until)


def _touched(row: StoredRow, now: datetime) -> StoredRow | None:
    last = row["last_used_at"]
    # abs: the clock may have been set back.
    if last is not None and abs(now - datetime.fromisoformat(last)) < _TOUCH_INTERVAL:
        return None
    return {**row, "last_used_at": timestamp(now)}


def _extended(row: StoredRow, now: datetime) -> StoredRow | None:
    until = min(now + _IDLE_LOGIN, datetime.fromisoformat(row["created_at"]) + _MAX_LOGIN)
    return {**row, "expires_at": timestamp(until)} if until - datetime.fromisoformat(row["expires_at"]) >= _TOUCH_INTERVAL else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()  # an invalid secret is just unknown


def _csrf(secret: str) -> str:
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"clia csrf", hashlib.sha256).hexdigest()


def _token_id(key: str) -> str:
    """Return the id of a token: a prefix of its hash, which does not reveal the secret."""
    return key.removeprefix(_TOKEN)[:_ID_LENGTH]


def _token_info(key: str, row: StoredRow, user: User) -> TokenInfo:
    role = lower_role(row["role"], user.role)
    return TokenInfo(_token_id(key), row["label"], role, row["created_at"], row["last_used_at"], row["expires_at"])


# Rows


def _user_infos(rows: list[tuple[str, Any]]) -> list[UserInfo]:
    """Return the users of valid rows, without tokens."""
    users = [(key.removeprefix(_USER), row) for key, row in rows if _is_valid(row, _USER_ROW)]
    return [UserInfo(_as_user(name, row), row["created_at"], []) for name, row in users if is_slug(name)]


def _user_row(view: Transaction, name: str) -> StoredRow | None:
    return _valid_row(view, _USER + name, _USER_ROW) if is_slug(name) else None


def _user(view: Transaction, name: str) -> User | None:
    row = _user_row(view, name)
    return None if row is None else _as_user(name, row)


def _existing_user(view: Transaction, name: str) -> User:
    user = _user(view, name)
    if user is None:
        raise _no_such_user(name)
    return user


def _no_such_user(name: str) -> NotFound:
    hints = ["clia user list shows the users"]
    return NotFound(f"user {name!r} not found", code="no-such-user", hints=hints, fields={"user": name})


def _check_not_last_admin(view: Transaction, user: User, hints: list[str] | None = None) -> None:
    """``NotAllowed`` if there is no other admin."""
    others = [row for key, row in view.values.scan(_USER) if key != _USER + user.name and _is_valid(row, _USER_ROW)]
    if user.role == ADMIN and not any(row["role"] == ADMIN for row in others):
        hints = ["add another admin first: clia user add NAME --role admin", *(hints or [])]
        raise NotAllowed(f"{user.name} is the last admin", code="last-admin", hints=hints, fields={"user": user.name})


def _as_user(name: str, row: StoredRow) -> User:
    agents = row.get("agents")
    bound = [agent for agent in agents if is_name(agent)] if isinstance(agents, list) else []
    return User(name, row["role"], row["display"], row["email"], tuple(bound) if row["role"] == AGENT else ())


def _valid_row(view: Transaction, key: str, schema: RowSchema) -> StoredRow | None:
    entry = view.values.get(key)
    return entry.value if entry is not None and _is_valid(entry.value, schema) else None


def _is_valid(row: Any, schema: RowSchema) -> bool:
    return isinstance(row, dict) and all(key in row and fits(row[key]) for key, fits in schema.items())


_USER_ROW: RowSchema = {"role": ROLES.__contains__, "display": is_text, "email": is_text, "created_at": is_time}
_USED_ROW: RowSchema = {"expires_at": is_time}
_LOGIN_ROW: RowSchema = {"user": is_text, "expires_at": is_time}
_WEB_ROW: RowSchema = {**_LOGIN_ROW, "created_at": is_time}
_TOKEN_TIMES = dict.fromkeys(("last_used_at", "expires_at"), is_time_or_none)
_TOKEN_ROW: RowSchema = {**_WEB_ROW, **_TOKEN_TIMES, "label": is_text, "role": ROLES.__contains__}


def _agents_row(user: User) -> StoredRow:
    """The field of a row for a user's agents: rows of people have none."""
    return {"agents": list(user.agents)} if user.agents else {}


def _checked_user(name: str, role: str, display: str, email: str) -> User:
    if not is_slug(name):
        hint = f"lower-case letters, digits and single hyphens, at most {SLUG_MAX} characters: ada-lovelace"
        raise invalid("name", f"{name!r} is not a valid user name", "invalid-name", hint)
    return User(name, checked_role(role), checked_line(display, "display", _DISPLAY_MAX), checked_email(email))


def _with_agents(user: User, agents: Sequence[str]) -> User:
    """The user, bound to agents. A user with the role agent has at least one, no other has any."""
    if user.role != AGENT and agents:
        raise invalid("agents", "only a user with the role agent acts for agents", "invalid-agents", "--role agent")
    if user.role == AGENT and not agents:
        raise invalid("agents", "a user with the role agent needs the agents that it acts for", "invalid-agents", "--agent NAME")
    return user._replace(agents=tuple(dict.fromkeys(map(check_name, agents))))
