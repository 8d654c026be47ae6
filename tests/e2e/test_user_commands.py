"""``clia user`` with the installed program."""

from __future__ import annotations

import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.cli.main import main
from clia.users.service import User, users_of
from support import Ran, clia, git
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from pathlib import Path

QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))


class UserCli(NamedTuple):
    """``clia user`` in one space."""

    root: Path

    def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = clia("user", *words, cwd=self.root, env={"COLUMNS": "200"})
        assert ran.code == code, ran
        return ran

    def inside(self, *words: str) -> Ran:
        """Run a command in this process, because starting one takes long."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                exit_code = main(["user", *words, "--path", str(self.root)])
            except SystemExit as leaving:  # as argparse does
                exit_code = int(str(leaving.code))
        return Ran(exit_code, out.getvalue(), err.getvalue())

    def json(self, *words: str) -> Any:
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error of a command, whose standard output must be empty."""
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.out) == (code, ""), ran
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

    def by_token(self, secret: str) -> User | None:
        with library.open(self.root, settings=QUICK) as space:
            return users_of(space).by_token(secret)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserCli:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    root = tmp_path.resolve() / "w"
    library.init(root, settings=QUICK).close()
    git("config", "clia.durable", "false", cwd=root)
    return UserCli(root)


def test_a_user_is_added_listed_and_removed(cli: UserCli) -> None:
    assert cli("list").out == "no users yet; add one with: clia user add NAME\n"
    assert cli.json("list") == []
    output = cli("add", "ada", "--role", "admin", "--name", "Ada Lovelace", "--email", "ada@example.org").out
    assert output == "added ada as admin; decisions are recorded as Ada Lovelace <ada@example.org>\n"
    assert cli.json("add", "bea") == {"name": "bea", "role": "viewer", "display": "", "email": ""}
    listed = cli.json("list")
    assert [list(user) for user in listed] == [["name", "role", "display", "email", "created_at", "tokens"]] * 2
    assert [(user["name"], user["role"], user["tokens"]) for user in listed] == [("ada", "admin", []), ("bea", "viewer", [])]
    lines = [line.split() for line in cli("list").out.splitlines()]
    assert [line[:2] for line in lines] == [["user", "role"], ["ada", "admin"], ["bea", "viewer"]]
    assert lines[1][2:5] == ["Ada", "Lovelace", "ada@example.org"]
    assert cli("remove", "bea").out == "removed bea, with all tokens and logins\n"
    assert [user["name"] for user in cli.json("list")] == ["ada"]


def test_only_the_token_is_printed_and_only_once(cli: UserCli) -> None:
    cli.json("add", "ada", "--role", "decider", "--name", "Ada")
    ran = cli("token", "ada", "--label", "nightly build")
    secret = ran.out.removesuffix("\n")
    assert secret.startswith("clia_")
    assert len(secret) == len("clia_") + 43
    assert secret not in ran.err
    assert cli.by_token(secret) == User("ada", "decider", "Ada")
    (token,) = cli.json("list")[0]["tokens"]
    assert list(token) == ["id", "label", "role", "created_at", "last_used_at", "expires_at"]
    assert (token["label"], token["role"], token["expires_at"]) == ("nightly build", "decider", None)
    assert token["last_used_at"] is not None
    assert ran.err == f"token {token['id']} of ada, decider, valid until it is revoked; it is not shown again\n"
    output = cli("list").out
    assert secret not in output
    assert [line.split()[:5] for line in output.splitlines()[-1:]] == [["ada", token["id"], "nightly", "build", "decider"]]


def test_a_token_with_a_lower_role_and_an_expiry_as_json(cli: UserCli) -> None:
    cli.json("add", "ada", "--role", "admin")
    token = cli.json("token", "ada", "--role", "viewer", "--days", "7")
    assert list(token) == ["token", "user", "id", "label", "role", "created_at", "last_used_at", "expires_at"]
    assert cli.by_token(token["token"]) == User("ada", "viewer")
    assert token["expires_at"] > token["created_at"]
    assert re.fullmatch(r"token \w+ of ada, admin, valid until [\d-]+T[\d:]+Z; .*\n", cli.inside("token", "ada", "--days", "7").err)


def test_a_token_is_revoked_by_its_id(cli: UserCli) -> None:
    cli.json("add", "ada")
    revoked, valid = cli.json("token", "ada"), cli.json("token", "ada")
    assert cli.json("token", "ada", "--revoke", revoked["id"]) == {"user": "ada", "id": revoked["id"], "revoked": True}
    assert cli.by_token(revoked["token"]) is None
    assert cli.by_token(valid["token"]) is not None
    assert cli("token", "ada", "--revoke", valid["id"]).out == f"revoked token {valid['id']} of ada\n"
    assert cli.json("list")[0]["tokens"] == []


def test_removing_a_user_removes_the_tokens(cli: UserCli) -> None:
    cli.json("add", "ada")
    token = cli.json("token", "ada")
    assert cli.json("remove", "ada") == {"user": "ada", "removed": True}
    cli.json("add", "ada", "--role", "admin")
    assert cli.by_token(token["token"]) is None


def test_bad_input_is_refused_and_changes_nothing(cli: UserCli) -> None:
    cli.json("add", "ada", "--role", "admin")
    cli.json("add", "bea", "--role", "decider")
    token = cli.json("token", "bea")
    before = cli.json("list")
    assert cli.refused("add", "Ada L")["code"] == "invalid-name"
    assert cli.refused("add", "ada", code=1)["code"] == "already-exists"
    assert cli.refused("add", "cy", "--name", "two\nlines")["fields"] == {"field": "display"}
    assert cli.refused("add", "cy", "--name", "Ada <ada@example.org>")["fields"] == {"field": "display"}
    assert cli.refused("add", "cy", "--email", "nowhere")["code"] == "invalid-email"
    assert cli.refused("token", "nobody")["code"] == "no-such-user"
    assert cli.refused("token", "bea", "--role", "admin", code=1)["code"] == "role-too-high"
    assert cli.refused("token", "bea", "--label", "\x1b[31m")["fields"] == {"field": "label"}
    assert cli.refused("token", "bea", "--days", "4000")["code"] == "invalid-days"
    assert cli.refused("token", "bea", "--revoke", "none")["code"] == "no-such-token"
    assert cli.refused("token", "ada", "--revoke", token["id"])["code"] == "no-such-token"
    assert cli.refused("token", "bea", "--revoke", token["id"], "--label", "x")["code"] == "invalid-option"
    assert cli.refused("remove", "nobody")["code"] == "no-such-user"
    assert cli.refused("remove", "ada", code=1)["code"] == "last-admin"
    for words in (("add", "cy", "--role", "root"), ("token", "bea", "--days", "0"), ("token", "bea", "--role", "x"), ("add",)):
        assert cli.inside(*words).code == 2
    assert cli.json("list") == before
    assert "hint: --force" in cli("remove", "ada", code=1).err
    assert cli("remove", "ada", "--force").code == 0


def test_users_of_a_space_whose_store_is_postgresql(postgres_address: str, cli: UserCli) -> None:
    store = ("--store", postgres_url(postgres_address))
    cli.json("add", "ada", *store)
    token = cli.json("token", "ada", *store)
    assert [token["id"] for token in cli.json("list", *store)[0]["tokens"]] == [token["id"]]
    other = cli.inside("list", "--json")
    assert other.json() == [], "another store has other users"
    assert "store-lost" in other.err


def test_no_user_command_works_outside_a_space(tmp_path: Path) -> None:
    for words in (("add", "ada"), ("list",), ("token", "ada"), ("remove", "ada")):
        ran = clia("user", *words, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith("error: ")
