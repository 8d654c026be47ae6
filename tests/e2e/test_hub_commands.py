"""Machines that meet at a hub, by the commands alone: joining, being in step, a hub that is away, forks, and who settles them."""

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


class Here(Commands):
    """A clone."""

    def commit(self, text: str, agent: str = "scout") -> str:
        with library.open(self.root, settings=library.Settings(durable=False, store=os.environ.get("CLIA_STORE"))) as space:
            return space.commit(agent, "finding", {"a.txt": text.encode()})

    def config(self) -> str:
        return (self.root / ".git/config").read_text()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Tess")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tess@example.org")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("CLIA_AGENT", raising=False)
    made = bare(tmp_path / "hub.git")
    return Hub(str(made), made)


def refs_at(repository: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=repository).splitlines()
    return dict(line.split(" ") for line in lines)


def rows(said: str) -> list[str]:
    """Its lines, with one blank between cells."""
    return [" ".join(line.split()) for line in said.splitlines()]


def meet(ada: Here, bea: Here, hub: Hub) -> None:
    """One chooses a hub, the other joins, and each has what the other did."""
    # No agent is sent before somebody says so. Then all of it is.
    said = ada("hub", "set", hub.url)
    assert "refs owed\n  hint: publish and fetch the rest with: clia hub sync" in said
    assert "restart" not in said, "the store is where it was"
    assert HEAD not in refs_at(hub.repository)
    done = ada.json("hub", "sync")
    assert list(done) == ["synced", "status"]
    assert list(done["status"]) == STATUS
    assert {each["what"] for each in done["synced"]} == {"published"}
    assert {each["ref"]: each["cid"] for each in done["synced"]}.items() <= refs_at(hub.repository).items()
    assert f"hub {hub.url} (remote hub, heads as branches)\nin sync, 3 refs\n" in ada("hub", "sync")

    # Another machine joins, and has what is there.
    joined = bea("init", "--hub", hub.url)
    assert joined.startswith("adopted the space ")
    assert f"  new      {HEAD}  " in joined
    assert joined.endswith("in sync, 3 refs\n")
    bea("init", "--claim", "scout", "--no-adopt")

    # Work of the one is news to the other, once it asks; asking takes over nothing.
    ada.commit("one")
    assert bea.json("hub", "status")["behind"] == []
    assert bea.json("hub", "status", "--fetch")["behind"] == [HEAD]
    asked = bea("hub", "status")
    assert "\n1 ref behind\n" in asked
    assert "\nbehind  refs\nscout      1\n  hint: publish and fetch the rest with: clia hub sync" in asked

    # Where people have its branch checked out it is left, and said where that is.
    tree = bea.root.parent / "tree"
    git("worktree", "add", "--quiet", str(tree), "agents/scout", cwd=bea.root)
    _, left, why, hint, *_ = rows(bea("hub", "sync", code=1))
    assert left == f"branch-checked-out {HEAD} -"
    reason = f"agent 'scout' has moved at the hub, but its branch is checked out in {tree}"
    assert why == f"{HEAD}: {reason}"
    assert hint == f"hint: switch {tree} to another branch than agents/scout, then sync again"
    assert bea.json("hub", "sync", code=1)["synced"] == [{"ref": HEAD, "what": "branch-checked-out", "cid": None, "reason": reason}]
    git("switch", "--quiet", "--detach", cwd=tree)
    assert rows(bea("hub", "sync"))[1] == f"followed {HEAD} {refs_at(hub.repository)[HEAD][:10]}"


def test_two_machines_meet_lose_the_hub_fork_and_are_in_step_again(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story of the guide: every command, what it tells people and programs, and its exit code."""
    ada, bea = Here(tmp_path / "ada"), Here(tmp_path / "bea")
    ada("init")
    ada("spawn", "scout", "--title", "Count", "--empty")

    meet(ada, bea, hub)

    # The hub is away: both go on, and say what they owe.
    base = refs_at(hub.repository)[HEAD]
    with away(hub):
        ours, theirs = bea.commit("two of bea"), ada.commit("two of ada")
        found = bea.json("hub", "status")
        assert found["owed"] == [HEAD]
        assert found["away_since"].endswith("Z")
        assert "does not appear to be a git repository" in found["away_reason"]
        told = bea("hub", "status")
        assert "\naway for " in told
        assert "\nowed   refs\nscout     1\n  hint: you can keep working" in told
        assert bea.refused("hub", "sync", code=1)["code"] == "hub-away"
        assert "away for " in bea("doctor")

    # It is back: the first publishes, for the second there is a fork, which nobody forces.
    assert [each["what"] for each in ada.json("hub", "sync")["synced"]] == ["published"]
    left = bea.json("hub", "sync", code=1)
    fork = {"agent": "scout", "base": base, "ours": ours, "theirs": theirs, "ahead": 1, "behind": 1}
    assert left["status"]["forks"] == [fork]
    assert left["synced"] == [{"ref": HEAD, "what": "fork", "cid": theirs, "reason": ""}]
    shown = bea("hub", "status")
    assert "\n1 fork\n" in shown
    assert f"scout   {base[:10]}      {ours[:10]}          1  {theirs[:10]}           1\n" in shown
    assert "  hint: keep ours under another name: clia hub sync --fork scout=NEW-NAME\n" in shown
    assert bea("list").splitlines()[1].endswith("forked")
    assert "1 fork; see the forks with: clia hub status" in bea("doctor")
    assert bea.json("doctor")["hub"]["forks"] == [fork]

    # A person settles it, and no agent.
    monkeypatch.setenv("CLIA_AGENT", "scout")
    for words in (("--fork", "scout=scout-of-bea"), ("--abandon", "scout")):
        assert bea.refused("hub", "sync", *words, code=1)["code"] == "person-needed"
    monkeypatch.delenv("CLIA_AGENT")
    assert "\nin sync, 5 refs\n" in bea("hub", "sync", "--fork", "scout=scout-of-bea")
    assert "hub" not in bea("list").splitlines()[0]
    there = refs_at(hub.repository)
    assert there[HEAD] == theirs
    assert git("rev-parse", f"{there['refs/heads/agents/scout-of-bea']}^", cwd=hub.repository).strip() == ours
    assert bea.json("doctor")["hub"]["forks"] == []


def test_init_with_a_hub_publishes_the_space_that_is_there_and_says_so(tmp_path: Path, hub: Hub) -> None:
    """Heads go where it was said; whoever joins later puts them there too."""
    ada, bea = Here(tmp_path / "ada"), Here(tmp_path / "bea")
    ada("init")
    ada("spawn", "scout", "--title", "Count", "--empty")
    made = ada.json("init", "--hub", hub.url, "--hub-heads", "published")
    assert {"refs/clia/agents/scout", HEAD} <= set(made["published"])
    assert (made["created"], made["adopted"], made["hub"]["heads"]) == (False, [], "published")
    assert list(made["hub"]) == STATUS
    assert sorted(refs_at(hub.repository)) == [
        "refs/clia/agents-published/scout",
        "refs/clia/agents/scout",
        "refs/clia/hub",
        "refs/clia/space",
    ]
    assert bea.json("init", "--hub", hub.url)["hub"]["heads"] == "published"
    assert bea.refused("init", "--hub-heads", "branches", code=2)["code"] == "invalid-option"


def test_where_machines_share_a_store_it_is_told_whose_work_is_elsewhere_and_a_person_gives_it_up(
    tmp_path: Path, hub: Hub, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bea = Here(tmp_path / "ada"), Here(tmp_path / "bea")
    ada("init")
    before = ada.config()
    assert ada.refused("init", "--hub", "", "--store", postgres_url(postgres_address), code=2)["code"] == "invalid-hub"
    assert ada.config() == before, "nothing was moved to the server"
    monkeypatch.setenv("CLIA_STORE", postgres_url(postgres_address))
    restart = "  hint: restart the workers and forges that run in this clone"
    assert restart in ada("init", "--hub", hub.url)
    assert restart not in ada("init", "--hub", hub.url)
    clone = ada.json("hub", "status")["clone"]
    ada("spawn", "scout", "--title", "Count", "--empty")
    bea("init", "--hub", hub.url)
    ada("spawn", "smith", "--title", "Forge", "--empty")
    assert "spawn: Forge" in bea("log", "smith"), "who asks for an agent by its name gets it from the hub"
    ada("spawn", "tailor", "--title", "Sew", "--empty")
    with away(hub):
        missing = bea.refused("log", "tailor", code=2)
        assert (missing["code"], missing["hints"]) == ("agent-not-here", ["wait until the hub is reachable"])
    bea("hub", "sync")
    text, flow = tmp_path / "one.txt", tmp_path / "go2.py"
    text.write_text("one")
    flow.write_text("def main(input):\n    return input\n")
    with away(hub):
        told = ada.run("commit", "scout", "finding", "--set", f"a.txt={text}")
        assert (told.code, told.err) == (
            0,
            "the hub is unreachable; unpublished work is kept and sent later (see: clia hub status)\n",
        )
        assert ada.run("log", "scout").err == "", "nothing was done"
        ada.json("flow", "define", "go2", str(flow))
    assert f"(unknown) {clone[:8]} no process 0 0 0 owes (behaviours/go2), scout" in rows(bea("fleet"))
    found = bea.json("hub", "status")
    assert (found["shared_store"], found["forks"]) == (True, [])
    assert [(each["agent"], each["clone"]) for each in found["elsewhere"]] == [("scout", clone)]
    assert bea("list").splitlines()[1].endswith("elsewhere")
    synced = bea("hub", "sync")  # waiting for another machine is no failure
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


def test_a_hub_that_cannot_be_one_is_said_and_changes_nothing(tmp_path: Path, hub: Hub) -> None:
    """By init and by hub set alike: git's settings are what they were."""
    ada, bea = Here(tmp_path / "ada"), Here(tmp_path / "bea")
    ada("init", "--hub", hub.url)
    assert ada("list").endswith("; fetch the work of other machines with: clia hub sync\n")
    for verb in ("show", "log", "inbox"):
        assert "fetch the work of other machines with: clia hub sync" in ada.refused(verb, "nobody", code=2)["hints"]
    bea("init")
    assert "hub sync" not in bea("list")
    assert bea.refused("hub", "status", code=2)["code"] == "no-hub"
    git("remote", "add", "hub", "/somewhere/else.git", cwd=bea.root)
    taken = bea.config()
    assert bea.refused("hub", "set", hub.url, code=1)["code"] == "remote-taken"
    assert bea.config() == taken
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
    assert Here(tmp_path / "new").refused("init", "--hub", "", code=2)["code"] == "invalid-hub"
    assert not (tmp_path / "new").exists()


def test_a_hub_that_was_refused_leaves_nothing_behind_that_speaks_against_the_next(tmp_path: Path, hub: Hub) -> None:
    """The hub of another space was tried by mistake; an empty one is fine all the same."""
    ada, bea = Here(tmp_path / "ada"), Here(tmp_path / "bea")
    ada("init", "--hub", hub.url)
    bea("init")
    assert bea.refused("hub", "set", hub.url, code=1)["code"] == "other-space"
    bea("hub", "set", str(bare(tmp_path / "empty.git")))


@pytest.mark.parametrize("known", [True, False])
def test_a_hub_that_refuses_what_is_clias_is_said_and_not_kept(tmp_path: Path, hub: Hub, known: bool) -> None:
    """Its rules allow branches only. A repository that has a space, or none yet, is as it was."""
    hook = hub.repository / "hooks/update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) exit 0;; esac\necho branches only\nexit 1\n')
    hook.chmod(0o755)
    git("init", "--quiet", str(tmp_path / "ada"), cwd=tmp_path)
    ada = Here(tmp_path / "ada")
    if known:
        ada("init")
    before = ada.config()
    error = ada.refused("init", "--hub", hub.url, code=1)
    assert error["code"] == "hub-refused"
    assert "allow pushes below refs/clia" in error["hints"][0]
    assert ada.config() == before


def test_a_sync_tells_in_the_servers_words_why_it_refuses(tmp_path: Path, hub: Hub) -> None:
    """Agents were put away while the hub was away, and it lets nobody delete; then a hook says the same of each."""
    refs = [HEAD, HEAD.replace("scout", "smith")]
    ada = Here(tmp_path / "ada")
    ada("init", "--hub", hub.url)
    for name in ("scout", "smith"):
        ada("spawn", name, "--title", "Count", "--empty")
    with away(hub):
        for name in ("scout", "smith"):
            ada("archive", name)

    git("config", "receive.denyDeletes", "true", cwd=hub.repository)
    done = ada.json("hub", "sync", code=1)
    left = {each["ref"]: each["reason"] for each in done["synced"] if each["what"] == "hub-refused"}
    assert list(left) == refs
    assert all("deletion prohibited" in each for each in left.values())
    assert set(refs) <= set(done["status"]["owed"])
    said = rows(ada("hub", "sync", code=1))
    assert said[1:5] == [*(f"hub-refused {ref} -" for ref in refs), *(f"{ref}: {why}" for ref, why in left.items())]

    git("config", "receive.denyDeletes", "false", cwd=hub.repository)
    hook = hub.repository / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho frozen for the release >&2\nexit 1\n")
    hook.chmod(0o755)
    (why,) = [line for line in rows(ada("hub", "sync", code=1)) if "frozen" in line]
    assert why.startswith(f"{HEAD} and 1 more: ")
    hook.unlink()
    assert {each["reason"] for each in ada.json("hub", "sync")["synced"]} == {""}


@pytest.mark.parametrize("words", [("scout",), ("=new",), ("scout=",), ("scout=a", "--fork", "scout=b")])
def test_a_fork_is_told_as_agent_and_new_name(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert Here(tmp_path).refused("hub", "sync", "--fork", *words, code=2)["code"] == "invalid-option"


def test_a_git_is_too_old_where_it_cannot_fetch_all_refs_at_once() -> None:
    assert [is_old_git(each) for each in ("2.30.9", "1.9.1", "2.31.0", "2.39.5.windows.1", "3.0", None, "?")] == [
        *(True, True),
        *(False, False, False, False, False),
    ]
