"""What the commands of the forge print with ``--json``: real output on a small space that is made for it.

Invariant: as in ``reference_json_space``: what differs from run to run is replaced, everything else is as it was printed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_json_space import made_up, newcomer, plant, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

_USER = {
    "name": "what the user is called here",
    "role": "`viewer`, `decider` or `admin`",
    "display": "who that is, as decisions record it; empty: the name",
    "email": "recorded beside it, or empty",
}
_TOKEN = {
    "id": "what the token is called: `--revoke` takes it",
    "label": "what it is for",
    "role": "what it may do: never more than its user",
    "created_at": "when it was made",
    "last_used_at": "to a minute, or null",
    "expires_at": "when it is over, or null: when it is revoked",
}
TOLD: dict[str, dict[str, str]] = {
    "User add": _USER,
    "User change": _USER,
    "User link": {"user": "who is to log in", "link": "the link; it works once", "minutes": "how long it is good"},
    "User token": {"token": "the secret; only its hash is kept, and nobody is shown it again", "user": "whose it is", **_TOKEN},
    "User list": {
        **_USER,
        "created_at": "when the user was added",
        "tokens": "those that were not revoked, oldest first",
        **{f"tokens[].{key}": told for key, told in _TOKEN.items()},
    },
    "User token, revoked": {"user": "whose it was", "id": "the token", "revoked": "true"},
    "User remove": {"user": "who is gone, with every token and login", "removed": "true"},
    "Serve": {
        "address": "where the forge is, as browsers reach it",
        "link": "a login link; it works once",
        "user": "whom the link is for",
        "spaces": "the short names of the spaces that are served",
    },
}
CLOSED: set[str] = set()


def examples() -> list[tuple[str, str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        with newcomer(top), chdir(plant(top)):
            printed("init")
            found = [(title, f"clia {words} --json", printed(words)) for title, words in _tour()]
            Path(".git/clia/config.toml").write_text('[forge]\naddress = "https://forge.example.org"\n', encoding="utf-8")
            found.append(("Serve", "clia serve --json", _served()))
    shown = re.sub(r"\b(clia_|key=)[\w-]{43}", r"\g<1>" + "x" * 43, made_up(json.dumps(found, ensure_ascii=False)))
    loaded: list[tuple[str, str, Any]] = json.loads(re.sub(r"\b[0-9a-f]{12}\b", "0a1b2c3d4e5f", shown))
    return loaded


def _served() -> Any:
    """What a forge says when it starts; it is ended then."""
    program = [str(Path(sys.executable).parent / "clia"), "serve", "--port", "0", "--quiet", "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as forge:
        assert forge.stdout is not None  # noqa: S101  # it is a pipe
        lines = []
        for line in forge.stdout:
            lines.append(line)
            if line == "}\n":
                break
        forge.terminate()
    return json.loads("".join(lines))


def _tour() -> Iterator[tuple[str, str]]:
    yield "User add", "user add ada --role admin --name 'Ada Lovelace' --email ada@example.org"
    yield "User token", "user token ada --label 'nightly build' --role viewer"
    yield "User change", "user change ada --name 'Ada King'"
    yield "User link", "user link ada --minutes 30 --address https://forge.example.org"
    yield "User list", "user list"
    token = printed("user list")[0]["tokens"][0]["id"]
    yield "User token, revoked", f"user token ada --revoke {token}"
    yield "User remove", "user remove ada --force"
