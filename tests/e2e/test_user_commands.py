"""``clia user`` through the installed program, as people and scripts use it."""

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


class Here(NamedTuple):
    """A space; commands run there."""

    root: Path

    def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = clia("user", *words, cwd=self.root, env={"COLUMNS": "200"})
        assert ran.code == code, ran
        return ran

    def inside(self, *words: str) -> Ran:
        """Run in this process: starting takes long."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                done = main(["user", *words, "--path", str(self.root)])
            except SystemExit as left:  # as argparse does
                done = int(str(left.code))
        return Ran(done, out.getvalue(), err.getvalue())

    def json(self, *words: str) -> Any:
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error; there is no answer beside it."""
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.out) == (code, ""), ran
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

    def by_token(self, secret: str) -> User | None:
        with library.open(self.root, settings=QUICK) as space:
            return users_of(space).by_token(secret)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    root = tmp_path.resolve() / "w"
    library.init(root, settings=QUICK).close()
    git("config", "clia.durable", "false", cwd=root)
    return Here(root)


def test_a_user_is_added_listed_and_removed(here: Here) -> None:
    assert here("list").out == "no users yet; add one with: clia user add NAME\n"
    assert here.json("list") == []
    said = here("add", "ada", "--role", "admin", "--name", "Ada Lovelace", "--email", "ada@example.org").out
    assert said == "added ada as admin; decisions are recorded as Ada Lovelace <ada@example.org>\n"
    assert here.json("add", "bea") == {"name": "bea", "role": "viewer", "display": "", "email": ""}
    listed = here.json("list")
    assert [list(each) for each in listed] == [["name", "role", "display", "email", "created_at", "tokens"]] * 2
    assert [(each["name"], each["role"], each["tokens"]) for each in listed] == [("ada", "admin", []), ("bea", "viewer", [])]
    lines = [line.split() for line in here("list").out.splitlines()]
    assert [line[:2] for line in lines] == [["user", "role"], ["ada", "admin"], ["bea", "viewer"]]
    assert lines[1][2:5] == ["Ada", "Lovelace", "ada@example.org"]
    assert here("remove", "bea").out == "removed bea, with all tokens and logins\n"
    assert [each["name"] for each in here.json("list")] == ["ada"]


def test_a_token_stands_alone_on_standard_output_and_is_shown_once(here: Here) -> None:
    here.json("add", "ada", "--role", "decider", "--name", "Ada")
    ran = here("token", "ada", "--label", "nightly build")
    secret = ran.out.removesuffix("\n")
    assert secret.startswith("clia_")
    assert len(secret) == len("clia_") + 43
    assert secret not in ran.err
    assert here.by_token(secret) == User("ada", "decider", "Ada")
    (token,) = here.json("list")[0]["tokens"]
    assert list(token) == ["id", "label", "role", "created_at", "last_used_at", "expires_at"]
    assert (token["label"], token["role"], token["expires_at"]) == ("nightly build", "decider", None)
    assert token["last_used_at"] is not None
    assert ran.err == f"token {token['id']} of ada, decider, valid until it is revoked; it is not shown again\n"
    shown = here("list").out
    assert secret not in shown
    assert [line.split()[:5] for line in shown.splitlines()[-1:]] == [["ada", token["id"], "nightly", "build", "decider"]]


def test_a_token_for_a_program_in_json_lower_and_for_some_days(here: Here) -> None:
    here.json("add", "ada", "--role", "admin")
    made = here.json("token", "ada", "--role", "viewer", "--days", "7")
    assert list(made) == ["token", "user", "id", "label", "role", "created_at", "last_used_at", "expires_at"]
    assert here.by_token(made["token"]) == User("ada", "viewer")
    assert made["expires_at"] > made["created_at"]
    assert re.fullmatch(
        r"token \w+ of ada, admin, valid until [\d-]+T[\d:]+Z; .*\n", here.inside("token", "ada", "--days", "7").err
    )


def test_a_token_is_revoked_by_its_id(here: Here) -> None:
    here.json("add", "ada")
    one, other = here.json("token", "ada"), here.json("token", "ada")
    assert here.json("token", "ada", "--revoke", one["id"]) == {"user": "ada", "id": one["id"], "revoked": True}
    assert here.by_token(one["token"]) is None
    assert here.by_token(other["token"]) is not None
    assert here("token", "ada", "--revoke", other["id"]).out == f"revoked token {other['id']} of ada\n"
    assert here.json("list")[0]["tokens"] == []


def test_with_a_user_go_the_tokens(here: Here) -> None:
    here.json("add", "ada")
    made = here.json("token", "ada")
    assert here.json("remove", "ada") == {"user": "ada", "removed": True}
    here.json("add", "ada", "--role", "admin")
    assert here.by_token(made["token"]) is None


def test_what_cannot_be_is_refused_and_changes_nothing(here: Here) -> None:
    here.json("add", "ada", "--role", "admin")
    here.json("add", "bea", "--role", "decider")
    made = here.json("token", "bea")
    before = here.json("list")
    assert here.refused("add", "Ada L")["code"] == "invalid-name"
    assert here.refused("add", "ada", code=1)["code"] == "already-exists"
    assert here.refused("add", "cy", "--name", "two\nlines")["fields"] == {"field": "display"}
    assert here.refused("add", "cy", "--name", "Ada <ada@example.org>")["fields"] == {"field": "display"}
    assert here.refused("add", "cy", "--email", "nowhere")["code"] == "invalid-email"
    assert here.refused("token", "nobody")["code"] == "no-such-user"
    assert here.refused("token", "bea", "--role", "admin", code=1)["code"] == "role-too-high"
    assert here.refused("token", "bea", "--label", "\x1b[31m")["fields"] == {"field": "label"}
    assert here.refused("token", "bea", "--days", "4000")["code"] == "invalid-days"
    assert here.refused("token", "bea", "--revoke", "none")["code"] == "no-such-token"
    assert here.refused("token", "ada", "--revoke", made["id"])["code"] == "no-such-token"
    assert here.refused("token", "bea", "--revoke", made["id"], "--label", "x")["code"] == "invalid-option"
    assert here.refused("remove", "nobody")["code"] == "no-such-user"
    assert here.refused("remove", "ada", code=1)["code"] == "last-admin"
    for words in (("add", "cy", "--role", "root"), ("token", "bea", "--days", "0"), ("token", "bea", "--role", "x"), ("add",)):
        assert here.inside(*words).code == 2
    assert here.json("list") == before
    assert "hint: --force" in here("remove", "ada", code=1).err
    assert here("remove", "ada", "--force").code == 0


def test_users_of_a_space_whose_store_is_postgresql(postgres_address: str, here: Here) -> None:
    store = ("--store", postgres_url(postgres_address))
    here.json("add", "ada", *store)
    made = here.json("token", "ada", *store)
    assert [each["id"] for each in here.json("list", *store)[0]["tokens"]] == [made["id"]]
    assert here.json("list") == [], "another store, other users"


def test_no_user_command_works_outside_a_space(tmp_path: Path) -> None:
    for words in (("add", "ada"), ("list",), ("token", "ada"), ("remove", "ada")):
        ran = clia("user", *words, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith("error: ")
