"""`clia why` and `clia attest` as commands, in a space and in a plain clone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from support import clia, git
from support.plain_git import commit_file

if TYPE_CHECKING:
    from pathlib import Path

FETCH = ("+refs/clia/*:refs/clia/*", "+refs/notes/clia/*:refs/notes/clia/*")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository where `scout` changed a line, a person approved it, and it landed."""
    root = tmp_path / "shop"
    assert clia("init", "shop", cwd=tmp_path).code == 0
    (root / "store").mkdir()
    commit_file(root, "store/stock.txt", "pears 5\napples 3\n")
    assert clia("spawn", "scout", "--title", "Count", "--at", "main", cwd=root).code == 0
    assert clia("trace", "add", "scout", "apples 4 are in box 7", cwd=root).code == 0
    (tmp_path / "new.txt").write_text("pears 5\napples 4\n")
    words = ("--set", f"store/stock.txt={tmp_path}/new.txt", "--trace", "-m", "One more")
    assert clia("commit", "scout", "finding", *words, cwd=root).code == 0
    assert clia("ask", "scout", "Is 4 right?", "--choices", "yes,no", cwd=root).code == 0
    assert clia("decide", "scout", "yes", cwd=root).code == 0
    assert clia("land", "scout", "--onto", "main", cwd=root).code == 0
    return root


@pytest.fixture
def stranger(shop: Path, tmp_path: Path) -> Path:
    """A plain clone, without the record."""
    git("clone", "-q", str(shop), "stranger", cwd=tmp_path)
    return tmp_path / "stranger"


def test_why_shows_a_line_on_one_screen_from_any_directory(shop: Path) -> None:
    ran = clia("why", "stock.txt:2", cwd=shop / "store")
    assert ran.code == 0
    assert len(ran.out.splitlines()) <= 24
    for part in (
        "agent scout",
        "Count",
        "finding  One more",
        "machine-",
        "apples 4 are in box 7",
        "landed on main",
        "'Is 4 right?'",
    ):
        assert part in ran.out, part
    assert "verifies     yes" in ran.out
    (reason,) = clia("why", "store/stock.txt:2", "main", "--json", cwd=shop).json()["reasons"]
    assert (reason["agent"]["name"], reason["result"], reason["trace"]["matched"]) == ("scout", "verified", "line")


def test_why_in_a_plain_clone_says_what_is_missing_and_changes_nothing(stranger: Path) -> None:
    bare = clia("why", "store/stock.txt:2", cwd=stranger)
    assert bare.code == 0
    assert "agent scout" in bare.out
    assert "git fetch origin" in bare.out
    assert "verifies     unknown" in bare.out
    git("fetch", "-q", "origin", *FETCH, cwd=stranger)
    before = git("for-each-ref", cwd=stranger)
    complete = clia("why", "store/stock.txt:2", cwd=stranger)
    assert "verifies     yes" in complete.out
    assert "apples 4 are in box 7" in complete.out
    assert git("for-each-ref", cwd=stranger) == before
    assert not os.path.exists(stranger / ".git" / "clia")


def test_why_exits_with_1_if_something_does_not_verify(shop: Path) -> None:
    git("notes", "--ref", "clia/trace/scout", "remove", "agents/scout~1", cwd=shop)
    ran = clia("why", "store/stock.txt:2", cwd=shop)
    assert ran.code == 1
    assert "missing-trace" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["store/stock.txt"], 2, "does not name a line"),
        (["store/stock.txt:0"], 2, "numbered from 1"),
        (["store/stock.txt:2-1"], 2, "not a range"),
        (["store/stock.txt:9"], 2, "has 2 lines, and no line 9"),
        (["store/none.txt:1"], 2, "no file"),
        (["store:1"], 2, "a directory"),
        (["store/stock.txt:1", "nowhere"], 2, "neither an agent nor a commit"),
        (["store/bin:1"], 2, "is a binary file"),
        (["new.txt:1"], 2, "line 1 of 'new.txt' is not committed yet"),
        (["../outside:1"], 2, "outside of the repository"),
    ],
)
def test_why_refuses_what_it_cannot_explain(shop: Path, words: list[str], code: int, message: str) -> None:
    (shop / "store" / "bin").write_bytes(b"\0\1\n")
    git("reset", "-q", "--hard", cwd=shop)
    git("add", ".", cwd=shop)
    git("commit", "-q", "-m", "More", cwd=shop)
    (shop / "new.txt").write_text("new\n")
    ran = clia("why", *words, cwd=shop)
    assert message in ran.err, ran
    assert ran.code == code


def test_attestations_are_made_written_and_verified_elsewhere(shop: Path, stranger: Path, tmp_path: Path) -> None:
    file = tmp_path / "scout.jsonl"
    assert clia("attest", "agents/scout~2..scout", "-o", str(file), cwd=shop).out == f"wrote 2 attestations to {file}\n"
    assert len(list(map(json.loads, file.read_text().splitlines()))) == 2
    git("fetch", "-q", "origin", *FETCH, cwd=stranger)
    ran = clia("attest", "verify", str(file), cwd=stranger)
    assert (ran.code, ran.out.count("ok  ")) == (0, 2)
    assert not os.path.exists(stranger / ".git" / "clia")
    checked = clia("attest", "verify", str(file), "--json", cwd=shop).json()
    assert (checked["clean"], [attestation["format"] for attestation in checked["attestations"]]) == (True, ["in-toto"] * 2)
    traced = clia("attest", "main", "--format", "agent-trace", "--sign", "-o", str(file), cwd=shop)
    assert traced.code == 0
    assert "agent-trace" in clia("attest", "verify", str(file), cwd=shop).out


def test_a_key_of_ones_own_signs_and_is_trusted_if_it_is_named(shop: Path, tmp_path: Path) -> None:
    import subprocess

    key, file = tmp_path / "key", str(tmp_path / "a.json")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    assert clia("attest", "main", "--key", str(key), "-o", file, cwd=shop).code == 0
    assert clia("attest", "verify", file, cwd=shop).code == 1
    assert clia("attest", "verify", file, "--key", f"{key}.pub", cwd=shop).code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere"], 2, "neither an agent nor a commit"),
        (["main~1"], 1, "not signed by clia"),
        (["main", "--format", "slsa-source"], 2, "--resource"),
        (["main", "--resource", "git+https://shop.example.org"], 2, "--format slsa-source"),
        (["main", "extra"], 2, "unexpected argument"),
        (["verify", "none.json"], 1, "none.json"),
        (["verify", "a.json", "--sign"], 2, "--key only"),
        (["main", "--key", "none"], 1, "none"),
    ],
)
def test_attest_refuses_what_it_cannot_do(shop: Path, words: list[str], code: int, message: str) -> None:
    ran = clia("attest", *words, cwd=shop)
    assert message in ran.err, ran
    assert ran.code == code
