"""The commands for a hub: joining, syncing, an unreachable hub, and forks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import clia as library
from clia.cli.doctor import is_old_git
from support import git
from support.commands import Commands
from support.git_hubs import Hub, away, bare
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from pathlib import Path

STATUS = list(library.HubStatus._fields)
HEAD = "refs/heads/agents/scout"


def as_here(refs: dict[str, str]) -> dict[str, str]:
    """The refs of a hub by their names in a clone."""
    return {ref.replace("refs/clia/agents-published/", "refs/heads/agents/"): cid for ref, cid in refs.items()}


class CloneCli(Commands):
    """The commands of one clone."""

    def commit(self, text: str, agent: str = "scout") -> str:
        with library.open(self.root, settings=library.Settings(durable=False, store=os.environ.get("CLIA_STORE"))) as space:
            return space.commit(agent, "finding", {"a.txt": text.encode()})

    def config(self) -> str:
        return (self.root / ".git/config").read_text()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Tess")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tess@example.org")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("CLIA_AGENT", raising=False)
    repository = bare(tmp_path / "hub.git")
    return Hub(str(repository), repository)


def refs_at(repository: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=repository).splitlines()
    return dict(line.split(" ") for line in lines)


def rows(text: str) -> list[str]:
    """The lines of a text, with single spaces between cells."""
    return [" ".join(line.split()) for line in text.splitlines()]


def meet(ada: CloneCli, bea: CloneCli, hub: Hub) -> None:
    """One machine sets a hub, the other joins, and each gets the work of the other."""
    # Nothing is published before a sync, which then publishes everything.
    output = ada("hub", "set", hub.url)
    assert "refs owed\n  hint: publish and fetch the rest with: clia hub sync" in output
    assert "restart" not in output, "the store does not move"
    assert HEAD not in as_here(refs_at(hub.repository))
    sync = ada.json("hub", "sync")
    assert list(sync) == ["synced", "status"]
    assert list(sync["status"]) == STATUS
    assert {row["what"] for row in sync["synced"]} == {"published"}
    assert {row["ref"]: row["cid"] for row in sync["synced"]}.items() <= as_here(refs_at(hub.repository)).items()
    assert f"hub {hub.url} (remote hub, heads separate from branches)\nin sync, 4 refs\n" in ada("hub", "sync")

    # Another machine joins and gets everything.
    joined = bea("init", "--hub", hub.url)
    assert joined.startswith("adopted the space ")
    assert f"  new      {HEAD}  " in joined
    assert joined.endswith("in sync, 4 refs\n")
    bea("init", "--claim", "scout", "--no-adopt")

    # Status reports new work of the other machine and fetches nothing.
    ada.commit("one")
    assert bea.json("hub", "status")["behind"] == []
    assert bea.json("hub", "status", "--fetch")["behind"] == [HEAD]
    output = bea("hub", "status")
    assert "\n1 ref behind\n" in output
    assert "\nbehind  refs\nscout      1\n  hint: publish and fetch the rest with: clia hub sync" in output

    # A branch that is checked out is left alone, and the directory is reported.
    tree = bea.root.parent / "tree"
    git("worktree", "add", "--quiet", str(tree), "agents/scout", cwd=bea.root)
    _, refusal, explanation, hint, *_ = rows(bea("hub", "sync", code=1))
    assert refusal == f"branch-checked-out {HEAD} -"
    reason = f"agent 'scout' has moved at the hub, but its branch is checked out in {tree}"
    assert explanation == f"{HEAD}: {reason}"
    assert hint == f"hint: switch {tree} to another branch than agents/scout, then sync again"
    assert bea.json("hub", "sync", code=1)["synced"] == [{"ref": HEAD, "what": "branch-checked-out", "cid": None, "reason": reason}]
    git("switch", "--quiet", "--detach", cwd=tree)
    assert rows(bea("hub", "sync"))[1] == f"followed {HEAD} {as_here(refs_at(hub.repository))[HEAD][:10]}"


def test_two_machines_lose_the_hub_fork_and_sync_again(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence of the guide: every command with its text, JSON and exit code."""
    ada, bea = CloneCli(tmp_path / "ada"), CloneCli(tmp_path / "bea")
    ada("init")
    ada("spawn", "scout", "--title", "Count", "--empty")

    meet(ada, bea, hub)

    # The hub is unreachable: both machines continue and report unpublished work.
    base = as_here(refs_at(hub.repository))[HEAD]
    with away(hub):
        own_cid, other_cid = bea.commit("two of bea"), ada.commit("two of ada")
        status = bea.json("hub", "status")
        assert status["owed"] == [HEAD]
        assert status["away_since"].endswith("Z")
        assert "does not appear to be a git repository" in status["away_reason"]
        output = bea("hub", "status")
        assert "\naway for " in output
        assert "\nowed   refs\nscout     1\n  hint: you can keep working" in output
        assert bea.refused("hub", "sync", code=1)["code"] == "hub-away"
        assert "away for " in bea("doctor")

    # The hub is back: the first machine publishes; the second has a fork, which is not forced.
    assert [row["what"] for row in ada.json("hub", "sync")["synced"]] == ["published"]
    sync = bea.json("hub", "sync", code=1)
    fork = {"agent": "scout", "base": base, "ours": own_cid, "theirs": other_cid, "ahead": 1, "behind": 1}
    assert sync["status"]["forks"] == [fork]
    assert sync["synced"] == [{"ref": HEAD, "what": "fork", "cid": other_cid, "reason": ""}]
    output = bea("hub", "status")
    assert "\n1 fork\n" in output
    assert f"scout   {base[:10]}      {own_cid[:10]}          1  {other_cid[:10]}           1\n" in output
    assert "  hint: keep ours under another name: clia hub sync --fork scout=NEW-NAME\n" in output
    assert bea("list").splitlines()[1].endswith("forked")
    assert "1 fork; see the forks with: clia hub status" in bea("doctor")
    assert bea.json("doctor")["hub"]["forks"] == [fork]

    # A person resolves it; an agent cannot.
    monkeypatch.setenv("CLIA_AGENT", "scout")
    for words in (("--fork", "scout=scout-of-bea"), ("--abandon", "scout")):
        assert bea.refused("hub", "sync", *words, code=1)["code"] == "person-needed"
    monkeypatch.delenv("CLIA_AGENT")
    assert "\nin sync, 6 refs\n" in bea("hub", "sync", "--fork", "scout=scout-of-bea")
    assert "hub" not in bea("list").splitlines()[0]
    hub_refs = as_here(refs_at(hub.repository))
    assert hub_refs[HEAD] == other_cid
    assert git("rev-parse", f"{hub_refs['refs/heads/agents/scout-of-bea']}^", cwd=hub.repository).strip() == own_cid
    assert bea.json("doctor")["hub"]["forks"] == []


def test_init_with_a_hub_publishes_an_existing_space(tmp_path: Path, hub: Hub) -> None:
    """Heads are published as configured, also by machines that join later."""
    ada, bea = CloneCli(tmp_path / "ada"), CloneCli(tmp_path / "bea")
    ada("init")
    ada("spawn", "scout", "--title", "Count", "--empty")
    report = ada.json("init", "--hub", hub.url, "--hub-heads", "published")
    assert {"refs/clia/agents/scout", HEAD} <= set(report["published"])
    assert (report["created"], report["adopted"], report["hub"]["heads"]) == (False, [], "published")
    assert list(report["hub"]) == STATUS
    of_machines = ("refs/clia/log/", "refs/clia/checkpoints/")
    assert sorted(ref for ref in refs_at(hub.repository) if not ref.startswith(of_machines)) == [
        "refs/clia/agents-published/scout",
        "refs/clia/agents/scout",
        "refs/clia/hub",
        "refs/clia/keys",
        "refs/clia/space",
    ]
    assert bea.json("init", "--hub", hub.url)["hub"]["heads"] == "published"
    assert bea.refused("init", "--hub-heads", "branches", code=2)["code"] == "invalid-option"


def test_with_a_shared_store_work_of_another_clone_is_reported_until_a_person_gives_it_up(
    tmp_path: Path, hub: Hub, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bea = CloneCli(tmp_path / "ada"), CloneCli(tmp_path / "bea")
    ada("init")
    before = ada.config()
    assert ada.refused("init", "--hub", "", "--store", postgres_url(postgres_address), code=2)["code"] == "invalid-hub"
    assert ada.config() == before, "the store did not move to the server"
    monkeypatch.setenv("CLIA_STORE", postgres_url(postgres_address))
    restart = "  hint: restart the workers and forges that run in this clone"
    assert restart in ada("init", "--hub", hub.url)
    assert restart not in ada("init", "--hub", hub.url)
    clone = ada.json("hub", "status")["clone"]
    ada("spawn", "scout", "--title", "Count", "--empty")
    bea("init", "--hub", hub.url)
    ada("spawn", "smith", "--title", "Forge", "--empty")
    assert "spawn: Forge" in bea("log", "smith"), "an agent that is asked for by name is fetched from the hub"
    ada("spawn", "tailor", "--title", "Sew", "--empty")
    with away(hub):
        missing = bea.refused("log", "tailor", code=2)
        assert (missing["code"], missing["hints"]) == ("agent-not-here", ["wait until the hub is reachable"])
    bea("hub", "sync")
    text, flow = tmp_path / "one.txt", tmp_path / "go2.py"
    text.write_text("one")
    flow.write_text("def main(input):\n    return input\n")
    with away(hub):
        result = ada.run("commit", "scout", "finding", "--set", f"a.txt={text}")
        assert (result.code, result.err) == (
            0,
            "the hub is unreachable; unpublished work is kept and sent later (see: clia hub status)\n",
        )
        assert ada.run("log", "scout").err == "", "the command has nothing to do"
        ada.json("flow", "define", "go2", str(flow))
    assert f"(unknown) {clone[:8]} no process 0 0 0 owes (behaviours/go2), scout" in rows(bea("fleet"))
    status = bea.json("hub", "status")
    assert (status["shared_store"], status["forks"]) == (True, [])
    assert [(row["agent"], row["clone"]) for row in status["elsewhere"]] == [("scout", clone)]
    assert bea("list").splitlines()[1].endswith("elsewhere")
    synced = bea("hub", "sync")  # waiting for another machine is not a failure
    assert f"elsewhere {HEAD} -" in rows(synced)
    assert f"scout      {clone}  " in synced
    assert "if it never will: clia hub sync --abandon AGENT" in synced
    assert bea.refused("hub", "sync", "--abandon", "nobody", code=2)["code"] == "nothing-elsewhere"
    assert bea.json("hub", "sync", "--abandon", "scout")["status"]["elsewhere"] == []
    assert "  other machines: they keep the text until their next sync with the hub" in bea(
        "trace", "purge", "scout", "--text", "secret", "--yes"
    )
    bea("archive", "smith")
    assert "gone refs/heads/agents/smith -" in rows(ada.run("hub", "sync").out)


def test_an_unfit_hub_is_refused_and_changes_nothing(tmp_path: Path, hub: Hub) -> None:
    """By init and by hub set: git's configuration does not change."""
    ada, bea = CloneCli(tmp_path / "ada"), CloneCli(tmp_path / "bea")
    ada("init", "--hub", hub.url)
    assert ada("list").endswith("; fetch the work of other machines with: clia hub sync\n")
    for verb in ("show", "log", "inbox"):
        assert "fetch the work of other machines with: clia hub sync" in ada.refused(verb, "nobody", code=2)["hints"]
    bea("init")
    assert "hub sync" not in bea("list")
    assert bea.refused("hub", "status", code=2)["code"] == "no-hub"
    git("remote", "add", "hub", "/somewhere/else.git", cwd=bea.root)
    config = bea.config()
    assert bea.refused("hub", "set", hub.url, code=1)["code"] == "remote-taken"
    assert bea.config() == config
    git("remote", "rename", "hub", "other", cwd=bea.root)
    before, refs = bea.config(), refs_at(bea.root)
    cases = [
        (str(tmp_path / "none.git"), ("transport-error", "hub-away"), 1),
        ("https://tess:s3cr3t@hub.invalid/hub.git", ("password-in-hub",), 2),
        ("", ("invalid-hub",), 2),
        (hub.url, ("other-space",), 1),
    ]
    for words in (["hub", "set"], ["init", "--hub"]):
        for url, codes, exits in cases:
            error = bea.refused(*words, url, code=exits)
            assert error["code"] in codes
            assert "s3cr3t" not in json.dumps(error)
            assert bea.config() == before
    assert refs_at(bea.root) == refs
    assert CloneCli(tmp_path / "new").refused("init", "--hub", "", code=2)["code"] == "invalid-hub"
    assert not (tmp_path / "new").exists()


def test_after_a_refused_hub_another_one_can_be_set(tmp_path: Path, hub: Hub) -> None:
    """After the hub of another space was refused, an empty one is accepted."""
    ada, bea = CloneCli(tmp_path / "ada"), CloneCli(tmp_path / "bea")
    ada("init", "--hub", hub.url)
    bea("init")
    assert bea.refused("hub", "set", hub.url, code=1)["code"] == "other-space"
    bea("hub", "set", str(bare(tmp_path / "empty.git")))


@pytest.mark.parametrize("via_status", [True, False])
def test_a_hub_that_refuses_refs_of_clia_is_not_configured(tmp_path: Path, hub: Hub, via_status: bool) -> None:
    """Its rules allow branches only. The repository does not change, with or without a space."""
    hook = hub.repository / "hooks/update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) exit 0;; esac\necho branches only\nexit 1\n')
    hook.chmod(0o755)
    git("init", "--quiet", str(tmp_path / "ada"), cwd=tmp_path)
    ada = CloneCli(tmp_path / "ada")
    if via_status:
        ada("init")
    before = ada.config()
    error = ada.refused("init", "--hub", hub.url, code=1)
    assert error["code"] == "hub-refused"
    assert "allow pushes below refs/clia" in error["hints"][0]
    assert ada.config() == before


def test_a_sync_reports_the_servers_reasons_for_a_refusal(tmp_path: Path, hub: Hub) -> None:
    """Agents were archived while the hub was unreachable, and it refuses deletions; then a hook refuses each ref."""
    refs = [HEAD, HEAD.replace("scout", "smith")]
    ada = CloneCli(tmp_path / "ada")
    ada("init", "--hub", hub.url, "--hub-heads", "branches")
    for name in ("scout", "smith"):
        ada("spawn", name, "--title", "Count", "--empty")
    with away(hub):
        for name in ("scout", "smith"):
            ada("archive", name)

    git("config", "receive.denyDeletes", "true", cwd=hub.repository)
    sync = ada.json("hub", "sync", code=1)
    reasons = {row["ref"]: row["reason"] for row in sync["synced"] if row["what"] == "hub-refused"}
    assert list(reasons) == refs
    assert all("deletion prohibited" in reason for reason in reasons.values())
    assert set(refs) <= set(sync["status"]["owed"])
    output_rows = rows(ada("hub", "sync", code=1))
    assert output_rows[1:5] == [*(f"hub-refused {ref} -" for ref in refs), *(f"{ref}: {reason}" for ref, reason in reasons.items())]

    git("config", "receive.denyDeletes", "false", cwd=hub.repository)
    hook = hub.repository / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho frozen for the release >&2\nexit 1\n")
    hook.chmod(0o755)
    (reason,) = [line for line in rows(ada("hub", "sync", code=1)) if "frozen" in line]
    assert reason.startswith(f"{HEAD} and 1 more: ")
    hook.unlink()
    assert {row["reason"] for row in ada.json("hub", "sync")["synced"]} == {""}


@pytest.mark.parametrize("words", [("scout",), ("=new",), ("scout=",), ("scout=a", "--fork", "scout=b")])
def test_a_fork_is_named_by_agent_and_new_name(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert CloneCli(tmp_path).refused("hub", "sync", "--fork", *words, code=2)["code"] == "invalid-option"


def test_a_git_that_cannot_fetch_all_refs_at_once_is_too_old() -> None:
    assert [is_old_git(version) for version in ("2.30.9", "1.9.1", "2.31.0", "2.39.5.windows.1", "3.0", None, "?")] == [
        *(True, True),
        *(False, False, False, False, False),
    ]
