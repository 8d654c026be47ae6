"""Users, their tokens and their logins: who gets in, for how long, and that the store could not tell anyone how."""

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
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from clia.users.service import ROLES, User, Users, users_of
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


class Desk(NamedTuple):
    """Users on a store, a clock that stands until it is moved, and secrets that can be told from each other."""

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


def desk_on(store: Store) -> Desk:
    moved: list[timedelta] = []
    numbers = itertools.count(1)
    return Desk(Users(store, lambda: DAWN + sum(moved, timedelta()), lambda: f"secret-{next(numbers):04}"), store, moved)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    makers: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(str(tmp_path / "space.db"), "s", durable=False),
        "postgresql": lambda: PostgresStore(request.getfixturevalue("postgres_address"), "s"),
        "memory": MemoryStore,
    }
    store = makers[request.param]()
    yield desk_on(store)
    store.close()


@pytest.fixture
def quick() -> Desk:
    """For what no store has a part in."""
    return desk_on(MemoryStore())


def key_of(prefix: str, secret: str) -> str:
    return f"{prefix}/{hashlib.sha256(secret.encode()).hexdigest()}"


# People


def test_a_user_is_added_once_read_back_changed_and_listed(desk: Desk) -> None:
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
    assert [(each.user.name, each.created_at, each.tokens) for each in users.all()] == [
        ("ada", "2026-05-01T00:00:00Z", []),
        ("bea", "2026-05-01T00:00:00Z", []),
    ]
    assert users.get("nobody") is None


def test_the_first_admin_is_found_or_made_once_and_takes_nobody_s_name(desk: Desk) -> None:
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
def test_what_a_decision_records_of_a_user(user: User, by: str) -> None:
    assert user.by == by


def test_a_role_may_what_those_before_it_may() -> None:
    may = {role: [each for each in ROLES if User("ada", role).may(each)] for role in ROLES}
    assert may == {"viewer": ["viewer"], "decider": ["viewer", "decider"], "admin": ["viewer", "decider", "admin"]}


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
def test_what_cannot_be_a_user_is_refused_by_the_name_of_its_field(quick: Desk, field: str, value: Any) -> None:
    given = {"name": "ada", "role": "viewer", "display": "", "email": "", field: value}
    with pytest.raises(clia.errors.InvalidInput) as caught:
        quick.users.add(**given)
    assert caught.value.fields["field"] == field
    assert quick.rows() == {}
    if field != "name" and value is not None:  # None: it stays as it was
        quick.users.add("ada")
        with pytest.raises(clia.errors.InvalidInput) as caught:
            quick.users.update("ada", **{field: value})
        assert caught.value.fields["field"] == field
        assert quick.users.get("ada") == User("ada", "viewer")


def test_whoever_is_not_there_can_be_given_nothing(desk: Desk) -> None:
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


def test_the_last_admin_is_neither_removed_nor_made_less_unless_by_force(desk: Desk) -> None:
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


def test_with_a_user_go_all_tokens_links_and_logins_and_nobody_elses(desk: Desk) -> None:
    users = desk.users
    kept = {}
    for name in ("ada", "bea"):
        users.add(name, "decider")
        kept[name] = (users.make_token(name)[0], users.login_link(name), users.make_session(name).secret)
    users.remove("ada")
    users.add("ada", "admin")  # somebody else of that name
    token, link, login = kept["ada"]
    assert (users.by_token(token), users.redeem(link), users.session(login)) == (None, None, None)
    assert {each["user"] for key, each in desk.rows().items() if not key.startswith("user/")} == {"bea"}
    token, link, login = kept["bea"]
    bea = User("bea", "decider")
    assert users.by_token(token) == bea
    assert [each.user for each in (users.redeem(link), users.session(login)) if each] == [bea, bea]


# Tokens


def test_a_token_is_its_users_until_it_is_revoked(desk: Desk) -> None:
    users = desk.users
    users.add("ada", "decider", "Ada")
    users.add("bea")
    secret, made = users.make_token("ada", " nightly build ")
    other, _ = users.make_token("ada")
    assert secret.startswith("clia_secret-")
    assert made.id == key_of("token", secret).removeprefix("token/")[:12]
    assert made[1:] == ("nightly build", "decider", "2026-05-01T00:00:00Z", None, None)
    assert users.by_token(secret) == User("ada", "decider", "Ada")
    assert refused("no-such-token", lambda: users.revoke_token("bea", made.id)).fields == {"user": "bea", "token": made.id}
    for wrong in ("", "0" * 12, made.id[:11], secret):
        refused("no-such-token", partial(users.revoke_token, "ada", wrong))
    assert users.by_token(secret) is not None
    users.revoke_token("ada", made.id)
    assert users.by_token(secret) is None
    assert users.by_token(other) is not None
    refused("no-such-token", lambda: users.revoke_token("ada", made.id))


def test_a_secret_opens_only_what_it_was_made_for(desk: Desk) -> None:
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


def test_a_token_never_may_more_than_its_user(desk: Desk) -> None:
    users = desk.users
    users.add("ada", "decider")
    users.add("bea", "admin")
    error = refused("role-too-high", lambda: users.make_token("ada", role="admin"))
    assert error.fields == {"field": "role", "role": "admin", "user": "ada"}
    assert desk.rows("token/") == {}
    low, same = users.make_token("ada", role="viewer")[0], users.make_token("ada")[0]

    def roles() -> list[str]:
        seen = [each.role for token in (low, same) if (each := users.by_token(token))]
        listed = {each.label or each.id: each.role for each in users.all()[0].tokens}
        assert sorted(listed.values()) == sorted(seen)
        return seen

    assert roles() == ["viewer", "decider"]
    users.update("ada", role="admin")
    assert roles() == ["viewer", "decider"], "a token does not grow with its user"
    users.update("ada", role="viewer")
    assert roles() == ["viewer", "viewer"]


def test_a_token_is_over_when_its_days_are(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    secret, made = users.make_token("ada", days=2)
    assert made.expires_at == "2026-05-03T00:00:00Z"
    desk.later(2 * DAY - timedelta(seconds=1))
    assert users.by_token(secret)
    desk.later(timedelta(seconds=1))
    assert users.by_token(secret) is None


def test_when_a_token_was_used_is_written_at_most_once_a_minute(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    secret, _ = users.make_token("ada")
    key = key_of("token", secret)

    def version() -> int:
        assert users.by_token(secret) == User("ada", "viewer")
        found = desk.store.get(key)
        assert found is not None
        return found.version

    assert [version(), version()] == [2, 2]
    desk.later(MINUTE - timedelta(seconds=1))
    assert version() == 2
    desk.later(timedelta(seconds=1))
    assert version() == 3
    assert users.all()[0].tokens[0].last_used_at == "2026-05-01T00:01:00Z"
    desk.later(-DAY)  # the clock was set back
    assert version() == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("label", value) for value in BAD_LINES),
        *(("role", value) for value in ("", "root", 1)),
        *(("days", value) for value in (0, -1, 3651, 1.5, True, "7")),
    ],
)
def test_what_cannot_be_a_token_is_refused_by_the_name_of_its_field(quick: Desk, field: str, value: Any) -> None:
    quick.users.add("ada", "admin")
    with pytest.raises(clia.errors.InvalidInput) as caught:
        quick.users.make_token("ada", **{field: value})
    assert caught.value.fields["field"] == field
    assert quick.rows("token/") == {}


# Logins


def test_a_link_logs_in_once(desk: Desk) -> None:
    users = desk.users
    users.add("ada", "decider")
    link = users.login_link("ada")
    login = users.redeem(link)
    assert login is not None
    assert (login.user, login.expires_at) == (User("ada", "decider"), "2026-05-01T12:00:00Z")
    assert login.secret != link
    assert users.redeem(link) is None
    assert users.session(login.secret) == login


def test_a_link_is_good_for_its_minutes(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    links = [users.login_link("ada"), users.login_link("ada", minutes=30)]
    desk.later(15 * MINUTE)
    assert [users.redeem(each) is None for each in links] == [True, False]
    wrong: Any
    for wrong in (0, -1, 1441, True, 1.5, "9"):
        assert refused("invalid-minutes", partial(users.login_link, "ada", wrong)).fields == {"field": "minutes"}


def test_a_login_goes_on_while_it_is_used_and_ends_after_seven_days(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    idle, used = users.make_session("ada").secret, users.make_session("ada").secret
    ends = []
    for _ in range(16):
        desk.later(11 * HOUR)
        found = users.session(used)
        ends.append(found and found.expires_at)
    assert users.session(idle) is None
    assert ends[0] == "2026-05-01T23:00:00Z"
    assert ends[14] == "2026-05-08T00:00:00Z", "after 165 of 168 hours, the last that it can have"
    assert ends[15] is None


def test_a_look_at_a_login_writes_at_most_once_a_minute(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    login = users.make_session("ada").secret
    key = key_of("web", login)

    def version() -> int:
        assert users.session(login)
        found = desk.store.get(key)
        assert found is not None
        return found.version

    assert version() == 1
    desk.later(MINUTE - timedelta(seconds=1))
    assert version() == 1
    desk.later(timedelta(seconds=1))
    assert [version(), version()] == [2, 2]


def test_a_login_that_is_ended_is_over(desk: Desk) -> None:
    users = desk.users
    users.add("ada")
    one, other = users.make_session("ada"), users.make_session("ada")
    users.end_session(one.secret)
    assert users.session(one.secret) is None
    assert users.session(other.secret) == other
    users.end_session(one.secret)


def test_a_login_has_the_role_that_its_user_has_now(desk: Desk) -> None:
    users = desk.users
    users.add("ada", "admin")
    users.add("bea", "admin")
    login = users.make_session("ada").secret
    users.update("ada", role="viewer")
    found = users.session(login)
    assert found is not None
    assert found.user.role == "viewer"


def test_each_login_has_a_csrf_of_its_own_that_stays(quick: Desk) -> None:
    users = quick.users
    users.add("ada")
    one, other = users.make_session("ada"), users.make_session("ada")
    quick.later(HOUR)
    again = users.session(one.secret)
    assert again is not None
    assert again.csrf == one.csrf != other.csrf
    assert len(one.csrf) == 64
    assert one.csrf not in (one.secret, hashlib.sha256(one.secret.encode()).hexdigest())


def test_what_is_over_is_dropped_and_nothing_else(desk: Desk) -> None:
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


# What is kept


BAD_VALUES = [7, ["x"], {}, "2026-05-01", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"]


def damaged(row: dict[str, Any], texts: set[str]) -> list[Any]:
    """Every way in which one part of a row can be wrong; of what is any text, only what is none."""
    found: list[Any] = [None, 7, "x", []]
    found += [{key: value for key, value in row.items() if key != left_out} for left_out in row]
    return found + [{**row, key: bad} for key in row for bad in BAD_VALUES if key not in texts or not isinstance(bad, str)]


def test_a_damaged_row_opens_nothing_hides_no_other_and_stays(desk: Desk) -> None:
    users = desk.users
    users.add("ada", "admin")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    planted: dict[str, Any] = {}
    secrets: list[str] = []
    for key, row in desk.rows().items():
        kind = key.partition("/")[0]
        for shape in damaged(row, {"user", "display", "email", "label"}):
            secrets.append(f"clia_damaged-{len(secrets)}")
            planted[f"user/d{len(secrets)}" if kind == "user" else key_of(kind, secrets[-1])] = shape
    for key, shape in planted.items():
        desk.damage(key, shape)
    assert len(planted) > 80
    assert [(each.user.name, len(each.tokens)) for each in users.all()] == [("ada", 1)]
    assert [users.get(key.removeprefix("user/")) for key in planted if key.startswith("user/d")].count(None) > 15
    for secret in secrets:
        assert (users.by_token(secret), users.redeem(secret), users.session(secret)) == (None, None, None)
    assert users.by_token(token)
    assert users.session(login)
    assert users.redeem(link)
    refused("last-admin", lambda: users.remove("ada"))
    desk.later(30 * DAY)
    assert users.expire() == 2, "both logins, and nothing that is damaged"
    assert planted.items() <= desk.rows().items()


@pytest.mark.parametrize("row", [None, 7, {}, {"role": "root", "display": "", "email": "", "created_at": "2026-05-01T00:00:00Z"}])
def test_a_user_whose_row_is_damaged_is_nobody_and_can_be_removed(desk: Desk, row: Any) -> None:
    users = desk.users
    users.add("ada")
    users.add("bea")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    desk.damage("user/ada", row)
    assert users.get("ada") is None
    assert [each.user.name for each in users.all()] == ["bea"]
    assert (users.by_token(token), users.redeem(link), users.session(login)) == (None, None, None)
    refused("no-such-user", lambda: users.make_token("ada"))
    refused("already-exists", lambda: users.add("ada"))
    users.remove("ada")
    assert list(desk.rows()) == ["user/bea"]


def every_secret(users: Users) -> list[str]:
    """One of each sort, all of them used."""
    users.add("ada", "admin")
    token, link = users.make_token("ada", "build")[0], users.login_link("ada")
    unused, login, trusted = users.login_link("ada"), users.redeem(link), users.make_session("ada")
    assert login is not None
    assert users.by_token(token)
    assert users.session(login.secret)
    return [token, token.removeprefix("clia_"), link, unused, login.secret, login.csrf, trusted.secret, trusted.csrf]


def check_only_hashes(dump: bytes, secrets: list[str]) -> None:
    assert hashlib.sha256(secrets[0].encode()).hexdigest().encode() in dump, "the dump is whole"
    for each in secrets:
        assert each.encode() not in dump


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


def test_a_secret_that_comes_twice_takes_over_nothing() -> None:
    """As from a source of chance that is broken: what the first one opens stays the first one's."""
    users = Users(MemoryStore(), lambda: DAWN, lambda: "always the same")
    users.add("ada", "admin")
    users.add("bea")
    token, link, login = users.make_token("ada")[0], users.login_link("ada"), users.make_session("ada").secret
    for call in (users.make_token, users.login_link, users.make_session):
        refused("stale-value", partial(call, "bea"))
    found = users.session(login)
    assert found is not None
    assert (users.by_token(token), found.user) == (User("ada", "admin"), User("ada", "admin"))
    refused("stale-value", lambda: users.redeem(link))


# Several processes


class Interrupted(MemoryStore):
    """Somebody else is quicker, once: what they do is done just before a transaction begins."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        while self.before:
            self.before.pop()()
        with super().writing() as change:
            yield change


def test_what_ends_while_it_is_looked_at_is_not_brought_back() -> None:
    """A look that writes down when it was has read before; in between, the row may go."""
    store = Interrupted()
    desk = desk_on(store)
    users = desk.users
    users.add("ada")
    (token, made), login = users.make_token("ada"), users.make_session("ada").secret
    desk.later(2 * MINUTE)  # so that a look at the login writes
    store.before.append(lambda: users.revoke_token("ada", made.id))
    assert users.by_token(token) is None
    store.before.append(lambda: users.end_session(login))
    assert users.session(login) is None
    assert list(desk.rows()) == ["user/ada"]


class Shared(NamedTuple):
    """A database that several processes open."""

    open: Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    if request.param == "sqlite":
        return Shared(lambda: SqliteStore(str(tmp_path / "space.db"), "s", durable=False))
    address = request.getfixturevalue("postgres_address")
    return Shared(lambda: PostgresStore(address, "s"))


def raced(shared: Shared, call: Callable[[Users, int, int], bool], rounds: int) -> list[list[bool]]:
    """What two processes get in each round, which they begin together."""
    barrier = FORK.Barrier(2, timeout=PATIENCE)

    def race(me: int, pipe: Any) -> None:
        store, numbers = shared.open(), itertools.count()
        users = Users(store, lambda: DAWN, lambda: f"{me}-{next(numbers)}")
        users.get("nobody")  # connected before the race
        said = []
        for number in range(rounds):
            barrier.wait()
            said.append(call(users, me, number))
        store.close()
        pipe.send(said)

    running = []
    for me in range(2):
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=race, args=(me, theirs))
        process.start()
        theirs.close()  # what dies is heard of
        running.append((process, ours))
    said = [pipe.recv() for _, pipe in running]
    for process, _ in running:
        process.join()
    return [list(each) for each in zip(*said, strict=True)]


def test_of_two_processes_with_the_same_link_one_is_logged_in(shared: Shared) -> None:
    store = shared.open()
    users = desk_on(store).users
    users.add("ada")
    links = [users.login_link("ada") for _ in range(40)]
    store.close()
    found = raced(shared, lambda users, _, number: users.redeem(links[number]) is not None, len(links))
    assert [sorted(each) for each in found] == [[False, True]] * len(links)
    store = shared.open()
    assert len(store.scan("web/")) == len(links)
    store.close()


def test_of_the_last_two_admins_only_one_can_be_removed_at_once(shared: Shared) -> None:
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


def test_of_two_processes_that_look_for_an_admin_where_there_is_none_one_makes_one(shared: Shared) -> None:
    def made(users: Users, me: int, number: int) -> bool:
        del number
        return users.first_admin(f"racer {me}").display == f"racer {me}"

    shared.open().close()
    assert sorted(raced(shared, made, 1)[0]) == [False, True]
    store = shared.open()
    assert [(each.user.name, each.user.role) for each in desk_on(store).users.all()] == [("admin", "admin")]
    store.close()


def test_of_two_processes_that_add_the_same_name_one_does(shared: Shared) -> None:
    def added(users: Users, me: int, number: int) -> bool:
        try:
            users.add(f"u{number}", display=f"racer {me}")
        except clia.errors.AlreadyExists:
            return False
        return True

    shared.open().close()
    assert [sorted(each) for each in raced(shared, added, 20)] == [[False, True]] * 20
