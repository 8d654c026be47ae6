"""Users, tokens, login links and sessions: who gets access, for how long, and that the store has no secret in clear."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

import clia
from clia.errors import InvalidInput
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from clia.users.fields import ROLES
from clia.users.service import User, Users, users_of
from support.crashes import FORK
from support.memory_store import MemoryStore
from support.spaces import refused, settings
from support.terminal import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.store.interface import Store, Transaction

DAWN = datetime(2026, 5, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HALF_A_CHARACTER = "\ud800"


class UserDesk(NamedTuple):
    """Users in a store, with a clock that only the test moves and numbered secrets."""

    users: Users
    store: Store
    moved: list[timedelta]

    def later(self, by: timedelta) -> None:
        self.moved.append(by)

    def rows(self, prefix: str = "") -> dict[str, Any]:
        return dict(self.store.scan(prefix))

    def damage(self, key: str, value: Any) -> None:
        with self.store.writing() as change:
            change.values.put(key, value)


def desk_on(store: Store) -> UserDesk:
    moved: list[timedelta] = []
    numbers = itertools.count(1)
    return UserDesk(Users(store, lambda: DAWN + sum(moved, timedelta()), lambda: f"secret-{next(numbers):04}"), store, moved)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UserDesk]:
    makers: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(str(tmp_path / "space.db"), "s", durable=False),
        "postgresql": lambda: PostgresStore(request.getfixturevalue("postgres_address"), "s"),
        "memory": MemoryStore,
    }
    store = makers[request.param]()
    yield desk_on(store)
    store.close()


@pytest.fixture
def quick() -> UserDesk:
    """For tests that do not depend on the store."""
    return desk_on(MemoryStore())


def key_of(prefix: str, secret: str) -> str:
    return f"{prefix}/{hashlib.sha256(secret.encode()).hexdigest()}"


# Users


def test_a_user_is_added_once_read_back_changed_and_listed(desk: UserDesk) -> None:
    users = desk.users
    ada = users.add("ada", "admin", " Ada Lovelace ", "ada@example.org")
    assert ada == User("ada", "admin", "Ada Lovelace", "ada@example.org") == users.get("ada")
    assert users.add("bea") == User("bea", "viewer", "", "")
    before = desk.rows()
    assert refused("already-exists", lambda: users.add("bea", "admin")).fields == {"user": "bea"}
    assert desk.rows() == before
    desk.later(HOUR)
    assert users.update("bea", role="decider", email="bea@example.org") == User("bea", "decider", "", "bea@example.org")
    assert users.update("bea", display="Bea") == users.get("bea") == User("bea", "decider", "Bea", "bea@example.org")
    assert users.update("bea", email="") == User("bea", "decider", "Bea", "")
    assert [(info.user.name, info.created_at, info.tokens) for info in users.all()] == [
        ("ada", "2026-05-01T00:00:00Z", []),
        ("bea", "2026-05-01T00:00:00Z", []),
    ]
    assert users.get("nobody") is None


def test_the_first_admin_is_created_once_and_never_takes_an_existing_name(desk: UserDesk) -> None:
    users = desk.users
    assert users.first_admin(" Tess ", "tess@example.org") == User("admin", "admin", "Tess", "tess@example.org")
    before = desk.rows()
    assert users.first_admin("Somebody Else") == users.get("admin")
    assert desk.rows() == before
    users.add("ada", "admin")
    assert users.first_admin().name == "ada"
    users.remove("ada")
    users.remove("admin", force=True)
    users.add("admin", "viewer")
    assert users.first_admin() == User("operator", "admin")
    users.update("admin", role="admin")
    users.remove("operator")
    desk.damage("user/admin", {"role": "none"})
    assert users.first_admin() == User("operator", "admin")
    users.remove("operator", force=True)
    users.add("operator", "viewer")
    assert refused("already-exists", users.first_admin).fields == {"user": "operator"}


@pytest.mark.parametrize(
    ("user", "by"),
    [
        (User("ada", "viewer", "Ada Lovelace", "ada@example.org"), "Ada Lovelace <ada@example.org>"),
        (User("ada", "viewer", "Ada Lovelace"), "Ada Lovelace"),
        (User("ada", "viewer", "", "ada@example.org"), "ada <ada@example.org>"),
        (User("ada", "viewer"), "ada"),
    ],
)
def test_a_decision_records_the_users_name_and_email(user: User, by: str) -> None:
    assert user.by == by


def test_a_role_includes_the_lower_roles() -> None:
    allowed = {role: [needed for needed in ROLES if User("ada", role).may(needed)] for role in ROLES}
    assert allowed == {role: list(ROLES[: position + 1]) for position, role in enumerate(ROLES)}
    assert ROLES == ("viewer", "agent", "decider", "admin")


def test_a_user_with_the_role_agent_acts_for_its_agents(desk: UserDesk) -> None:
    users = desk.users
    bot = users.add("bot", "agent", agents=["scout", "helper", "scout"])
    assert users.get("bot") == bot
    assert (bot.agents, bot.acting) == (("scout", "helper"), "scout, helper")
    bot.require_agent("helper")
    refused("not-your-agent", lambda: bot.require_agent("other"))
    refused("not-your-agent", lambda: bot.require_agent(None))
    refused("role-too-low", lambda: bot.require("decider"))
    secret = users.make_token("bot")[0]
    assert users.by_token(secret) == bot
    assert users.update("bot", agents=["other"]).agents == ("other",)
    assert users.update("bot", display="Bot").agents == ("other",)
    person = users.update("bot", role="admin")
    assert (person.agents, person.acting) == ((), None)
    limited = users.by_token(secret)
    assert limited is not None
    assert (limited.role, limited.agents) == ("agent", ())


@pytest.mark.parametrize(("role", "agents"), [("agent", []), ("viewer", ["scout"]), ("admin", ["scout"]), ("agent", ["../x"])])
def test_only_the_role_agent_has_agents(desk: UserDesk, role: str, agents: list[str]) -> None:
    with pytest.raises(InvalidInput):
        desk.users.add("bot", role, agents=agents)
    assert desk.users.get("bot") is None


def test_a_token_of_a_person_cannot_have_the_role_agent(desk: UserDesk) -> None:
    desk.users.add("ada", "admin")
    refused("role-too-high", lambda: desk.users.make_token("ada", role="agent"))


BAD_LINES = ["two\nlines", "bell\x07", "a\u202eb", "nul\0", HALF_A_CHARACTER, "x" * 101, "Eve <ada@example.org>", None, 7]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", value) for value in ["", "Ada", "a b", "-a", "a--b", "../a", "a/b", "x" * 65, "a\n", HALF_A_CHARACTER, None]),
        *(("role", value) for value in ["", "Admin", "root", None, ["admin"]]),
        *(("display", value) for value in BAD_LINES),
        *(("email", value) for value in [*BAD_LINES, "ada", "@example.org", "ada@", "a da@example.org", f"{'x' * 250}@y.org"]),
    ],
)
def test_an_invalid_user_is_refused_and_the_field_is_named(quick: UserDesk, field: str, value: Any) -> None:
    fields = {"name": "ada", "role": "viewer", "display": "", "email": "", field: value}
    with pytest.raises(clia.errors.InvalidInput) as caught:
        quick.users.add(**fields)
    assert caught.value.fields["field"] == field
    assert quick.rows() == {}
    if field != "name" and value is not None:  # None means unchanged
        quick.users.add("ada")
        with pytest.raises(clia.errors.InvalidInput) as caught:
            quick.users.update("ada", **{field: value})
        assert caught.value.fields["field"] == field
        assert quick.users.get("ada") == User("ada", "viewer")


def test_an_unknown_user_gets_no_token_link_or_session(desk: UserDesk) -> None:
    users = desk.users
    calls: list[Callable[[str], object]] = [
        users.remove,
        users.make_token,
        users.login_link,
        users.make_session,
        lambda name: users.update(name, role="admin"),
        lambda name: users.revoke_token(name, "0" * 12),
    ]
    for name in ("nobody", "No Slug", "a\0", "x" * 1000):
        assert users.get(name) is None
        for call in calls:
            assert refused("no-such-user", partial(call, name)).fields == {"user": name}
    assert desk.rows() == {}


def test_the_last_admin_is_removed_or_demoted_only_by_force(desk: UserDesk) -> None:
    users = desk.users
    for name, role in (("ada", "admin"), ("bea", "decider"), ("cy", "admin")):
        users.add(name, role)
    users.remove("cy")
    before = desk.rows()
    refused("last-admin", lambda: users.remove("ada"))
    refused("last-admin", lambda: users.update("ada", role="decider"))
    assert desk.rows() == before
    users.update("ada", role="admin", display="Ada")
    users.update("bea", role="admin")
    users.update("ada", role="viewer")
    users.remove("ada")
    refused("last-admin", lambda: users.remove("bea"))
    users.remove("bea", force=True)
    assert users.all() == []


def test_removing_a_user_removes_their_tokens_links_and_sessions_only(desk: UserDesk) -> None:
    users = desk.users
    secrets = {}
    for name in ("ada", "bea"):
        users.add(name, "decider")
        secrets[name] = (users.make_token(name)[0], users.login_link(name), users.make_session(name).secret)
    users.remove("ada")
    users.add("ada", "admin")  # a new user with the same name
    token, link, login = secrets["ada"]
    assert (users.by_token(token), users.redeem(link), users.session(login)) == (None, None, None)
    assert {row["user"] for key, row in desk.rows().items() if not key.startswith("user/")} == {"bea"}
    token, link, login = secrets["bea"]
    bea = User("bea", "decider")
    assert users.by_token(token) == bea
    assert [session.user for session in (users.redeem(link), users.session(login)) if session] == [bea, bea]


# Tokens


def test_a_token_identifies_its_user_until_it_is_revoked(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada", "decider", "Ada")
    users.add("bea")
    secret, info = users.make_token("ada", " nightly build ")
    second, _ = users.make_token("ada")
    assert secret.startswith("clia_secret-")
    assert info.id == key_of("token", secret).removeprefix("token/")[:12]
    assert info[1:] == ("nightly build", "decider", "2026-05-01T00:00:00Z", None, None)
    assert users.by_token(secret) == User("ada", "decider", "Ada")
    assert refused("no-such-token", lambda: users.revoke_token("bea", info.id)).fields == {"user": "bea", "token": info.id}
    for wrong_id in ("", "0" * 12, info.id[:11], secret):
        refused("no-such-token", partial(users.revoke_token, "ada", wrong_id))
    assert users.by_token(secret) is not None
    users.revoke_token("ada", info.id)
    assert users.by_token(secret) is None
    assert users.by_token(second) is not None
    refused("no-such-token", lambda: users.revoke_token("ada", info.id))


def test_a_secret_works_only_for_its_own_kind(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    for secret in (
        "",
        "clia_",
        token[:-1],
        f"{token} ",
        token.upper(),
        token[5:],
        link,
        login,
        f"clia_{HALF_A_CHARACTER}",
        "x" * 9999,
    ):
        assert users.by_token(secret) is None
    for secret in ("", token, login, HALF_A_CHARACTER):
        assert users.redeem(secret) is None
    for secret in ("", token, link, HALF_A_CHARACTER):
        assert users.session(secret) is None
        users.end_session(secret)
    assert users.by_token(token)
    assert users.session(login)
    assert users.redeem(link)


def test_a_token_never_has_more_rights_than_its_user(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada", "decider")
    users.add("bea", "admin")
    error = refused("role-too-high", lambda: users.make_token("ada", role="admin"))
    assert error.fields == {"field": "role", "role": "admin", "user": "ada"}
    assert desk.rows("token/") == {}
    viewer_token, full_token = users.make_token("ada", role="viewer")[0], users.make_token("ada")[0]

    def roles() -> list[str]:
        roles_in_use = [user.role for token in (viewer_token, full_token) if (user := users.by_token(token))]
        listed_roles = {info.label or info.id: info.role for info in users.all()[0].tokens}
        assert sorted(listed_roles.values()) == sorted(roles_in_use)
        return roles_in_use

    assert roles() == ["viewer", "decider"]
    users.update("ada", role="admin")
    assert roles() == ["viewer", "decider"], "a token must not gain rights when its user does"
    users.update("ada", role="viewer")
    assert roles() == ["viewer", "viewer"]


def test_a_token_expires_after_its_days(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    secret, info = users.make_token("ada", days=2)
    assert info.expires_at == "2026-05-03T00:00:00Z"
    desk.later(2 * DAY - timedelta(seconds=1))
    assert users.by_token(secret)
    desk.later(timedelta(seconds=1))
    assert users.by_token(secret) is None


def test_the_last_use_of_a_token_is_recorded_at_most_once_a_minute(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    secret, _ = users.make_token("ada")
    key = key_of("token", secret)

    def version() -> int:
        assert users.by_token(secret) == User("ada", "viewer")
        row = desk.store.get(key)
        assert row is not None
        return row.version

    assert [version(), version()] == [2, 2]
    desk.later(MINUTE - timedelta(seconds=1))
    assert version() == 2
    desk.later(timedelta(seconds=1))
    assert version() == 3
    assert users.all()[0].tokens[0].last_used_at == "2026-05-01T00:01:00Z"
    desk.later(-DAY)  # the clock is set back
    assert version() == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("label", value) for value in BAD_LINES),
        *(("role", value) for value in ("", "root", 1)),
        *(("days", value) for value in (0, -1, 3651, 1.5, True, "7")),
    ],
)
def test_an_invalid_token_is_refused_and_the_field_is_named(quick: UserDesk, field: str, value: Any) -> None:
    quick.users.add("ada", "admin")
    with pytest.raises(clia.errors.InvalidInput) as caught:
        quick.users.make_token("ada", **{field: value})
    assert caught.value.fields["field"] == field
    assert quick.rows("token/") == {}


# Logins


def test_a_link_logs_in_once(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada", "decider")
    link = users.login_link("ada")
    login = users.redeem(link)
    assert login is not None
    assert (login.user, login.expires_at) == (User("ada", "decider"), "2026-05-01T12:00:00Z")
    assert login.secret != link
    assert users.redeem(link) is None
    assert users.session(login.secret) == login


def test_a_link_expires_after_its_minutes(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    links = [users.login_link("ada"), users.login_link("ada", minutes=30)]
    desk.later(15 * MINUTE)
    assert [users.redeem(link) is None for link in links] == [True, False]
    minutes: Any
    for minutes in (0, -1, 1441, True, 1.5, "9"):
        assert refused("invalid-minutes", partial(users.login_link, "ada", minutes)).fields == {"field": "minutes"}


def test_a_session_is_extended_by_use_and_ends_after_seven_days(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    idle_login, used_login = users.make_session("ada").secret, users.make_session("ada").secret
    ends = []
    for _ in range(16):
        desk.later(11 * HOUR)
        session = users.session(used_login)
        ends.append(session and session.expires_at)
    assert users.session(idle_login) is None
    assert ends[0] == "2026-05-01T23:00:00Z"
    assert ends[14] == "2026-05-08T00:00:00Z", "after 165 of 168 hours, the end is final"
    assert ends[15] is None


def test_the_use_of_a_session_is_recorded_at_most_once_a_minute(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    login = users.make_session("ada").secret
    key = key_of("web", login)

    def version() -> int:
        assert users.session(login)
        row = desk.store.get(key)
        assert row is not None
        return row.version

    assert version() == 1
    desk.later(MINUTE - timedelta(seconds=1))
    assert version() == 1
    desk.later(timedelta(seconds=1))
    assert [version(), version()] == [2, 2]


def test_an_ended_session_is_not_accepted(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    first, second = users.make_session("ada"), users.make_session("ada")
    users.end_session(first.secret)
    assert users.session(first.secret) is None
    assert users.session(second.secret) == second
    users.end_session(first.secret)


def test_a_session_has_the_current_role_of_its_user(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada", "admin")
    users.add("bea", "admin")
    login = users.make_session("ada").secret
    users.update("ada", role="viewer")
    session = users.session(login)
    assert session is not None
    assert session.user.role == "viewer"


def test_each_session_has_its_own_constant_csrf_token(quick: UserDesk) -> None:
    users = quick.users
    users.add("ada")
    first, second = users.make_session("ada"), users.make_session("ada")
    quick.later(HOUR)
    reread = users.session(first.secret)
    assert reread is not None
    assert reread.csrf == first.csrf != second.csrf
    assert len(first.csrf) == 64
    assert first.csrf not in (first.secret, hashlib.sha256(first.secret.encode()).hexdigest())


def test_only_expired_rows_are_removed(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada")
    assert users.expire() == 0
    for days in (1, 30, None):
        users.make_token("ada", days=days)
    users.login_link("ada")
    users.login_link("ada", minutes=1440)
    users.make_session("ada")
    desk.later(13 * HOUR)
    users.make_session("ada")
    assert users.expire() == 2
    desk.later(12 * HOUR)
    assert users.expire() == 3
    assert users.expire() == 0
    assert [key.partition("/")[0] for key in desk.rows()] == ["token", "token", "user"]


# Stored rows


BAD_VALUES = [7, ["x"], {}, "2026-05-01", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"]


def damaged(row: dict[str, Any], texts: set[str]) -> list[Any]:
    """Every way in which one field of a row can be wrong. A field that may be any text is only given other types."""
    rows: list[Any] = [None, 7, "x", []]
    rows += [{key: value for key, value in row.items() if key != left_out} for left_out in row]
    return rows + [{**row, key: bad} for key in row for bad in BAD_VALUES if key not in texts or not isinstance(bad, str)]


def test_a_damaged_row_gives_no_access_hides_no_other_row_and_is_kept(desk: UserDesk) -> None:
    users = desk.users
    users.add("ada", "admin")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    damaged_rows: dict[str, Any] = {}
    secrets: list[str] = []
    for key, row in desk.rows().items():
        kind = key.partition("/")[0]
        for shape in damaged(row, {"user", "display", "email", "label"}):
            secrets.append(f"clia_damaged-{len(secrets)}")
            damaged_rows[f"user/d{len(secrets)}" if kind == "user" else key_of(kind, secrets[-1])] = shape
    for key, shape in damaged_rows.items():
        desk.damage(key, shape)
    assert len(damaged_rows) > 80
    assert [(info.user.name, len(info.tokens)) for info in users.all()] == [("ada", 1)]
    assert [users.get(key.removeprefix("user/")) for key in damaged_rows if key.startswith("user/d")].count(None) > 15
    for secret in secrets:
        assert (users.by_token(secret), users.redeem(secret), users.session(secret)) == (None, None, None)
    assert users.by_token(token)
    assert users.session(login)
    assert users.redeem(link)
    refused("last-admin", lambda: users.remove("ada"))
    desk.later(30 * DAY)
    assert users.expire() == 2, "both sessions, and no damaged row"
    assert damaged_rows.items() <= desk.rows().items()


@pytest.mark.parametrize("row", [None, 7, {}, {"role": "root", "display": "", "email": "", "created_at": "2026-05-01T00:00:00Z"}])
def test_a_user_with_a_damaged_row_is_unknown_and_can_be_removed(desk: UserDesk, row: Any) -> None:
    users = desk.users
    users.add("ada")
    users.add("bea")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    desk.damage("user/ada", row)
    assert users.get("ada") is None
    assert [info.user.name for info in users.all()] == ["bea"]
    assert (users.by_token(token), users.redeem(link), users.session(login)) == (None, None, None)
    refused("no-such-user", lambda: users.make_token("ada"))
    refused("already-exists", lambda: users.add("ada"))
    users.remove("ada")
    assert list(desk.rows()) == ["user/bea"]


def every_secret(users: Users) -> list[str]:
    """One secret of each kind, each used once."""
    users.add("ada", "admin")
    token, link = users.make_token("ada", "build")[0], users.login_link("ada")
    unused, login, trusted = users.login_link("ada"), users.redeem(link), users.make_session("ada")
    assert login is not None
    assert users.by_token(token)
    assert users.session(login.secret)
    return [token, token.removeprefix("clia_"), link, unused, login.secret, login.csrf, trusted.secret, trusted.csrf]


def check_only_hashes(dump: bytes, secrets: list[str]) -> None:
    assert hashlib.sha256(secrets[0].encode()).hexdigest().encode() in dump, "the dump must be complete"
    for secret in secrets:
        assert secret.encode() not in dump


def test_the_sqlite_file_has_no_secret_in_it(tmp_path: Path) -> None:
    with clia.init(tmp_path / "w", settings=settings()) as space:
        secrets = every_secret(users_of(space))
        files = [path for path in Path(tmp_path).rglob("*") if path.is_file()]
        assert [path for path in files if path.name == "space.db-wal"]
        check_only_hashes(b"".join(path.read_bytes() for path in files), secrets)
        assert len(set(secrets)) == len(secrets)
        assert min(map(len, secrets)) == 43, "256 bits"


def test_no_table_of_postgresql_has_a_secret_in_it(postgres_address: str) -> None:
    store = PostgresStore(postgres_address, "s")
    secrets = every_secret(desk_on(store).users)
    store.close()
    with psycopg.connect(postgres_address) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        rows = [connection.execute(f'SELECT t::text FROM "{name}" t').fetchall() for (name,) in tables]  # noqa: S608  # names of our own tables
    check_only_hashes(repr(rows).encode(), secrets)


def test_a_repeated_secret_is_refused() -> None:
    """With a broken random source, a secret still belongs to its first owner."""
    users = Users(MemoryStore(), lambda: DAWN, lambda: "always the same")
    users.add("ada", "admin")
    users.add("bea")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    for call in (users.make_token, users.login_link, users.make_session):
        refused("stale-value", partial(call, "bea"))
    session = users.session(login)
    assert session is not None
    assert (users.by_token(token), session.user) == (User("ada", "admin"), User("ada", "admin"))
    refused("stale-value", lambda: users.redeem(link))


# Several processes


class Interrupted(MemoryStore):
    """Calls queued functions just before a transaction begins, as a faster process would."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        while self.before:
            self.before.pop()()
        with super().writing() as change:
            yield change


def test_a_row_removed_during_a_read_is_not_restored() -> None:
    """Recording the last use reads and then writes; the row may be removed in between."""
    store = Interrupted()
    desk = desk_on(store)
    users = desk.users
    users.add("ada")
    (token, info), login = users.make_token("ada"), users.make_session("ada").secret
    desk.later(2 * MINUTE)  # reading the session now records its use
    store.before.append(lambda: users.revoke_token("ada", info.id))
    assert users.by_token(token) is None
    store.before.append(lambda: users.end_session(login))
    assert users.session(login) is None
    assert list(desk.rows()) == ["user/ada"]


class SharedDatabase(NamedTuple):
    """A database that several processes open."""

    open: Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> SharedDatabase:
    if request.param == "sqlite":
        return SharedDatabase(lambda: SqliteStore(str(tmp_path / "space.db"), "s", durable=False))
    address = request.getfixturevalue("postgres_address")
    return SharedDatabase(lambda: PostgresStore(address, "s"))


def raced(shared: SharedDatabase, call: Callable[[Users, int, int], bool], rounds: int) -> list[list[bool]]:
    """Run a call in two processes at the same time, and return both results of each round."""
    barrier = FORK.Barrier(2, timeout=PATIENCE)

    def race(me: int, pipe: Any) -> None:
        store, numbers = shared.open(), itertools.count()
        users = Users(store, lambda: DAWN, lambda: f"{me}-{next(numbers)}")
        users.get("nobody")  # connect before the race
        results = []
        for number in range(rounds):
            barrier.wait()
            results.append(call(users, me, number))
        store.close()
        pipe.send(results)

    running = []
    for me in range(2):
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=race, args=(me, theirs))
        process.start()
        theirs.close()  # so that recv() fails if the process dies
        running.append((process, ours))
    results = [pipe.recv() for _, pipe in running]
    for process, _ in running:
        process.join()
    return [list(outcome) for outcome in zip(*results, strict=True)]


def test_two_processes_with_the_same_link_get_one_session(shared: SharedDatabase) -> None:
    store = shared.open()
    users = desk_on(store).users
    users.add("ada")
    links = [users.login_link("ada") for _ in range(40)]
    store.close()
    outcomes = raced(shared, lambda users, _, number: users.redeem(links[number]) is not None, len(links))
    assert [sorted(outcome) for outcome in outcomes] == [[False, True]] * len(links)
    store = shared.open()
    assert len(store.scan("web/")) == len(links)
    store.close()


def test_two_processes_cannot_remove_both_of_the_last_admins(shared: SharedDatabase) -> None:
    store = shared.open()
    users = desk_on(store).users
    users.add("a0", "admin")
    users.add("a1", "admin")
    store.close()

    def removed(users: Users, me: int, number: int) -> bool:
        del number
        try:
            users.remove(f"a{me}")
        except clia.errors.NotAllowed:
            return False
        return True

    assert sorted(raced(shared, removed, 1)[0]) == [False, True]


def test_two_processes_create_one_first_admin(shared: SharedDatabase) -> None:
    def is_creator(users: Users, me: int, number: int) -> bool:
        del number
        return users.first_admin(f"racer {me}").display == f"racer {me}"

    shared.open().close()
    assert sorted(raced(shared, is_creator, 1)[0]) == [False, True]
    store = shared.open()
    assert [(info.user.name, info.user.role) for info in desk_on(store).users.all()] == [("admin", "admin")]
    store.close()


def test_two_processes_cannot_add_the_same_name(shared: SharedDatabase) -> None:
    def added(users: Users, me: int, number: int) -> bool:
        try:
            users.add(f"u{number}", display=f"racer {me}")
        except clia.errors.AlreadyExists:
            return False
        return True

    shared.open().close()
    assert [sorted(outcome) for outcome in raced(shared, added, 20)] == [[False, True]] * 20
