"""Journal entries in an agent's branch."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.identities.journal import Note
from clia.identities.writing import NewIdentity, WriteLocation, init, journal
from support import git
from support.fake_secrets import ALNUM
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOME = ".clia/agents/scout"
GITHUB = f"ghp_{ALNUM[:36]}"


def summaries(space: clia.Space, revision: str = "agents/scout") -> list[str]:
    """The entries of the journals in a tree, in the order of the files' names."""
    files: dict[str, Any] = {path: data for path, data in space.files(revision).items() if path.endswith("agency.triad.json")}
    return [entry["summary"] for path in sorted(files) for entry in json.loads(files[path])["entries"]]


@pytest.fixture
def scout(space: clia.Space, repo: Path) -> clia.Space:
    """A space with the identity ``scout`` on ``main``, and an agent that works under it."""
    init("scout", NewIdentity(title="Scout"), WriteLocation(str(repo)))
    os.remove(next((repo / HOME).glob("*.agency.triad.json")))
    git("add", ".", cwd=repo)
    git("commit", "--quiet", "--message=Scout", cwd=repo)
    space.spawn_at("scout", BRIEFING, "main")
    return space


def test_an_entry_is_a_commit_on_the_branch_and_no_directory_is_written(scout: clia.Space, repo: Path) -> None:
    written = scout.agents.journal("scout", "Read the build.", tags=["build"], dirs_touched=["src"], key="one")
    commit = scout.show("agents/scout")
    assert (commit.cid, commit.kind, commit.subject) == (written.commit, "journal-entry", "journal: Read the build.")
    assert written.path == f"{HOME}/scout@{repo.name}.agency.triad.json"
    assert (written.appended, written.created) == (True, True)
    document = json.loads(scout.files("agents/scout")[written.path])  # type: ignore[arg-type]
    assert document["entries"] == [written.entry]
    assert (written.entry["source"], written.entry["signature"]) == (repo.name, "-scout")
    assert written.entry["tags"] == ["build"]
    assert written.entry["extensions"] == {"x-dirsTouched": ["src"], "x-idempotencyKey": "one"}
    assert [change.path for change in scout.history.changed("agents/scout", commit.parents[0])] == [written.path]
    assert git("status", "--porcelain", cwd=repo) == ""


def test_a_key_gives_one_entry_also_if_it_is_in_another_journal_of_the_directory(scout: clia.Space) -> None:
    first = scout.agents.journal("scout", "Once", key="k")
    again = scout.agents.journal("scout", "Twice", key="k")
    assert (again.appended, again.commit, again.entry) == (False, None, first.entry)
    other = json.dumps({"slug": "scout", "entries": [{"summary": "x", "extensions": {"x-idempotencyKey": "z"}}]}).encode()
    scout.commit("scout", "finding", changes={f"{HOME}/z.agency.triad.json": other})
    assert scout.agents.journal("scout", "Again", key="z").appended is False
    assert scout.agents.journal("scout", "More").path == first.path
    assert summaries(scout) == ["Once", "More", "x"]


def test_a_journal_keeps_its_bytes(scout: clia.Space) -> None:
    text = '{"slug": "scout",   "x": 1.50, "entries": [ ]}\n'
    path = f"{HOME}/scout@old.agency.triad.json"
    scout.commit("scout", "finding", changes={path: text.encode()})
    assert scout.agents.journal("scout", "First").path == path
    data = scout.files("agents/scout")[path]
    assert isinstance(data, bytes)
    assert data.decode().startswith('{"slug": "scout",   "x": 1.50, "entries": [')


def test_secrets_are_redacted(scout: clia.Space) -> None:
    written = scout.agents.journal("scout", f"The token is {GITHUB}", tags=[GITHUB])
    assert GITHUB not in json.dumps(written.entry)
    assert GITHUB not in scout.show("agents/scout").message


def test_an_agent_without_an_identity_has_no_journal(space: clia.Space, repo: Path) -> None:
    space.spawn("alone", BRIEFING)
    head = space.head("alone")
    refused("no-identity", lambda: space.agents.journal("alone", "Hello"))
    refused("no-such-agent", lambda: space.agents.journal("nobody", "Hello"))
    assert space.head("alone") == head


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong-type", {f"{HOME}/a.agency.triad.json": b'{"slug": "scout", "entries": 3}'}),
        ("invalid-json", {f"{HOME}/a.agency.triad.json": b"{"}),
        ("unsafe-path", {f"{HOME}/a.agency.triad.json": clia.Link("../../../../etc/passwd")}),
    ],
)
def test_an_unusable_journal_is_refused_and_nothing_is_committed(scout: clia.Space, code: str, changes: Any) -> None:
    head = scout.commit("scout", "finding", changes=changes)
    refused(code, lambda: scout.agents.journal("scout", "Hello"))
    assert scout.head("scout") == head


def test_a_link_in_place_of_the_directory_is_refused(scout: clia.Space) -> None:
    removed = dict.fromkeys((path for path in scout.files("agents/scout") if path.startswith(HOME)), None)
    scout.commit("scout", "finding", changes=removed)
    head = scout.commit("scout", "finding", changes={HOME: clia.Link("../../elsewhere")})
    refused("unsafe-path", lambda: scout.agents.journal("scout", "Hello"))
    assert scout.head("scout") == head


@pytest.mark.parametrize(("code", "note"), [("empty-value", " "), ("invalid-text", "a\0b")])
def test_an_invalid_note_is_refused(scout: clia.Space, code: str, note: str) -> None:
    refused(code, lambda: scout.agents.journal("scout", note))


def test_a_checkout_is_committed_with_the_entries_of_the_branch_and_its_own(scout: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    scout.checkout("scout", place)
    scout.agents.journal("scout", "1 branch")
    journal("scout", Note("2 checkout"), WriteLocation(str(place)))
    (place / "work.txt").write_text("work\n")
    scout.commit_dir("scout", "finding", place)
    assert sorted(summaries(scout)) == ["1 branch", "2 checkout"]
    assert scout.files("agents/scout")["work.txt"] == b"work\n"
    scout.agents.journal("scout", "3 branch")
    scout.commit_dir("scout", "finding", place)
    assert sorted(summaries(scout)) == ["1 branch", "2 checkout", "3 branch"]
    assert git("status", "--porcelain", cwd=place) == ""


def test_a_checkout_whose_branch_got_other_files_is_still_stale(scout: clia.Space, tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    scout.checkout("scout", place)
    scout.agents.journal("scout", "1 branch")
    scout.commit("scout", "finding", changes={"other.txt": b"1\n"})
    (place / "work.txt").write_text("work\n")
    refused("stale-ref", lambda: scout.commit_dir("scout", "finding", place))
    assert not list((place / HOME).glob("*.agency.triad.json"))


def test_a_checkout_that_deleted_the_journal_is_stale(scout: clia.Space, tmp_path: Path) -> None:
    first = scout.agents.journal("scout", "1 branch")
    place = tmp_path / "checkout"
    scout.checkout("scout", place)
    os.remove(place / first.path)
    scout.agents.journal("scout", "2 branch")
    refused("stale-ref", lambda: scout.commit_dir("scout", "finding", place))


def test_two_agents_of_one_identity_keep_every_entry_once(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    """They write to the branch and to a checkout, merge each other and land, in random order."""
    chance = random.Random(11)  # noqa: S311  # not for secrets
    scout.spawn_at("helper", BRIEFING, "main", slug="scout")
    names = ("scout", "helper")
    for name in names:
        scout.checkout(name, tmp_path / name)
    written: list[str] = []
    for number in range(200):
        name, other = chance.sample(names, 2)
        match chance.choice(("branch", "branch", "checkout", "commit", "merge", "land")):
            case "branch":
                written.append(f"{number} {name} branch")
                scout.agents.journal(name, written[-1])
            case "checkout":
                written.append(f"{number} {name} checkout")
                journal("scout", Note(written[-1]), WriteLocation(str(tmp_path / name)))
            case "commit":
                scout.commit_dir(name, "finding", tmp_path / name)
            case "merge":
                scout.commit_dir(name, "finding", tmp_path / name)
                assert not isinstance(scout.merge(name, other), clia.Conflicts)
                scout.checkout(name, tmp_path / name)
            case "land":
                assert not isinstance(scout.land(name, "main"), clia.Conflicts)
    for name in names:
        scout.commit_dir(name, "finding", tmp_path / name)
        assert not isinstance(scout.land(name, "main"), clia.Conflicts)
    assert sorted(summaries(scout, "main")) == sorted(written)


# What the operator wants to have written


@pytest.fixture
def logging(repo: Path, scout: clia.Space, tmp_path: Path) -> Iterator[clia.Space]:
    """The space with a configuration that writes everything to journals."""
    config = tmp_path / "config.toml"
    config.write_text('[journal]\nwrite = ["decisions", "landings", "sessions"]\n')
    with clia.open(repo, settings=settings(config=str(config))) as opened:
        yield opened


FLOW = 'def main(input):\n    return request("human", {"question": "Sell?", "choices": ["yes", "no"]})\n'


def test_a_decision_and_the_end_of_its_session_are_written_with_their_ids(logging: clia.Space) -> None:
    logging.define("sell", FLOW)
    logging.start("scout", "sell")
    decision = logging.decide("scout", "yes")
    assert summaries(logging) == ['Tess <tess@example.org> decided "yes" on request 1.1', "session 1 (sell) is finished"]
    (path,) = (path for path in logging.files("scout") if path.endswith("agency.triad.json"))
    entries = json.loads(logging.files("scout")[path])["entries"]  # type: ignore[arg-type]
    assert [entry["kind"] for entry in entries] == ["decision", "log"]
    about = entries[0]["extensions"]
    assert (about["x-agent"], about["x-decision"], about["x-session"]) == ("scout", decision.cid, "1")


def test_a_landing_is_written_once_and_lands_too(logging: clia.Space) -> None:
    logging.commit("scout", "finding", changes={"new.txt": b"1\n"})
    for _ in range(2):
        logging.land("scout", "main")
    assert summaries(logging, "main") == ["landing on main"]
    assert logging.states()[0].landed == "main"


def test_a_question_is_no_session_and_an_agent_without_an_identity_has_no_journal(logging: clia.Space) -> None:
    logging.ask("scout", {"question": "Which?"})
    logging.decide("scout", "this")
    assert [text.split(" decided ")[1] for text in summaries(logging)] == ['"this" on request ask-1.1']
    logging.spawn("alone", BRIEFING)
    logging.ask("alone", {"question": "Which?"})
    assert logging.decide("alone", "this").cid == logging.head("alone")


def test_nothing_is_written_by_default(scout: clia.Space) -> None:
    scout.ask("scout", {"question": "Which?"})
    decision = scout.decide("scout", "this")
    scout.land("scout", "main")
    assert scout.head("scout") == decision.cid


def test_a_journal_that_cannot_be_written_is_a_notice(repo: Path, scout: clia.Space, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[journal]\nwrite = ["decisions"]\n')
    notices: list[str] = []
    with clia.open(repo, settings=settings(config=str(config), notify=notices.append)) as space:
        space.commit("scout", "finding", changes={f"{HOME}/a.agency.triad.json": b"{"})
        space.ask("scout", {"question": "Which?"})
        assert space.decide("scout", "this").cid == space.head("scout")
    (notice,) = notices
    assert notice.startswith("recorded, but the journal could not be written: ")
