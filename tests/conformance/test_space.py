"""The verbs of a space, tested against every implementation of the interface."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.git import porcelain
from clia.identities.writing import NewIdentity, WriteLocation, init
from support import git
from support.fake_secrets import FAKES, PEM_KEYS
from support.joined_spaces import joined
from support.spaces import BRIEFING, refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["local", "remote", "hub"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[clia.Space]:
    """A space in this process, one over HTTP, and one with a hub."""
    if request.param == "remote":
        opened = request.getfixturevalue("served").open(tmp_path / "repo")
    else:
        if request.param == "hub":
            joined(tmp_path)
        opened = clia.init(tmp_path / "repo", settings=settings())
    with opened:
        yield opened


local_only = pytest.mark.parametrize("space", ["local"], indirect=True)
"""For tests of local verbs."""


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    space.spawn("scout", BRIEFING)
    return space


# Opening


def test_a_space_keeps_its_id_when_it_is_opened_again(space: clia.Space, tmp_path: Path) -> None:
    inner = tmp_path / "repo/a/b"
    inner.mkdir(parents=True)
    assert clia.open(tmp_path / "repo").id == space.id
    assert clia.open(inner).id == space.id
    assert clia.init(tmp_path / "repo").id == space.id


def test_a_missing_repository_or_space_is_a_clear_error(tmp_path: Path) -> None:
    refused("no-such-repository", lambda: clia.open(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("not under git")
    refused("no-such-repository", lambda: clia.init(tmp_path / "full"))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    (tmp_path / "file").write_text("x")
    refused("not-a-directory", lambda: clia.init(tmp_path / "file"))
    git("init", "-q", "plain", cwd=tmp_path)
    refused("no-such-space", lambda: clia.open(tmp_path / "plain"))


@local_only
def test_a_space_of_a_newer_format_is_refused(space: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "space.json").write_text('{"format":2,"id":"x","type":"space"}')
    git("add", "space.json", cwd=repo)
    git("commit", "-qm", "newer", cwd=repo)
    git("update-ref", "refs/clia/space", "HEAD", cwd=repo)
    refused("unsupported-format", lambda: clia.open(repo))
    (repo / "space.json").write_text("{}")
    git("commit", "-qam", "broken", cwd=repo)
    git("update-ref", "refs/clia/space", "HEAD", cwd=repo)
    refused("invalid-space", lambda: clia.open(repo))


@local_only
def test_an_unknown_kind_of_store_is_refused(space: clia.Space, tmp_path: Path) -> None:
    for store in ("mysql://x", ""):
        refused("invalid-store", partial(clia.open, tmp_path / "repo", settings=settings(store=store)))


# Types and typed objects


def test_types_form_a_tree(space: clia.Space, tmp_path: Path) -> None:
    assert space.is_a("finding", "finding")
    assert space.is_a("finding", "agent-commit")
    assert not space.is_a("agent-commit", "finding")
    assert not space.is_a("nobody", "agent-commit")
    space.register_type("review", "agent-commit")
    space.register_type("security-review", "review")
    assert space.is_a("security-review", "agent-commit")
    assert space.types()["security-review"] == "review"
    assert clia.open(tmp_path / "repo").is_a("security-review", "review")


def test_a_type_is_registered_once_under_a_parent_that_exists(space: clia.Space) -> None:
    before = space.types()
    refused("already-exists", lambda: space.register_type("finding", "agent-commit"))
    refused("no-such-type", lambda: space.register_type("x", "nobody"))
    for name in ("", "Review", "a b", "-a", "a--b", "a" * 65, "a/b"):
        refused("invalid-type", lambda name=name: space.register_type(name, "agent-commit"))  # type: ignore[misc]
    assert space.types() == before


def test_a_registered_kind_can_be_committed(scout: clia.Space) -> None:
    refused("unknown-kind", lambda: scout.commit("scout", "review", {}))
    scout.register_type("review", "agent-commit")
    assert scout.show(scout.commit("scout", "review", {"a": b"1"})).kind == "review"
    scout.register_type("note", "briefing")
    refused("unknown-kind", lambda: scout.commit("scout", "note", {}))


def test_typed_objects_are_read_back_and_have_the_same_id_everywhere(space: clia.Space, tmp_path: Path) -> None:
    objects: list[Any] = [
        clia.Briefing("A title", "Some text", meta={"z": 1, "a": [None, 1.5, "é"]}),
        clia.ConsoleTrace("0" * 40, "scout", ({"text": "x", "kind": "console"},)),
        clia.Behaviour("greet", "prompt", "Say hello."),
        clia.Behaviour("greet", "prompt", "Say hello.", parent="0" * 40, notes="politely"),
        {"type": "capability", "peer": "p", "trigger": "spawn"},
    ]
    cids = [space.write(typed_object) for typed_object in objects]
    assert [space.read(cid) for cid in cids] == objects
    assert [space.write(typed_object) for typed_object in objects] == cids
    with clia.init(tmp_path / "other", settings=settings()) as second:
        assert [second.write(typed_object) for typed_object in objects] == cids
    repo = tmp_path / "repo"
    assert json.loads(git("cat-file", "blob", cids[0], cwd=repo))["title"] == "A title"
    git("gc", "-q", "--prune=now", cwd=repo)
    assert [space.read(cid) for cid in cids] == objects


def test_an_invalid_object_is_refused(space: clia.Space, tmp_path: Path) -> None:
    bad: list[tuple[str, Any]] = [
        ("invalid-object", {"no": "type"}),
        ("unknown-kind", {"type": "nobody"}),
        ("invalid-object", clia.Briefing("")),
        ("invalid-object", {"type": "briefing", "title": 3, "text": ""}),
        ("invalid-object", clia.Behaviour("x", "spell", "abracadabra")),
        ("invalid-object", {"type": "behaviour", "name": "x", "kind": "prompt", "body": "", "parent": 3}),
        ("invalid-object", {"type": "behaviour", "name": "x", "kind": "prompt", "body": "", "notes": None}),
        ("invalid-object", {"type": "capability", "value": float("nan")}),
        ("invalid-object", {"type": "console-trace", "commit": "", "agent": "", "entries": "none"}),
    ]
    for code, typed_object in bad:
        refused(code, lambda typed_object=typed_object: space.write(typed_object))  # type: ignore[misc]
    refused("no-such-object", lambda: space.read("0" * 40))
    for text in ("no json", '{"type": "capability"}'):  # the second is not canonical
        (tmp_path / "blob").write_text(text)
        cid = git("hash-object", "-w", str(tmp_path / "blob"), cwd=tmp_path / "repo").strip()
        refused("not-typed", lambda cid=cid: space.read(cid))  # type: ignore[misc]


# Spawn


def test_a_spawned_agent_is_a_branch_with_a_genesis_and_a_record(space: clia.Space, tmp_path: Path) -> None:
    agent = space.spawn("scout", BRIEFING)
    assert (agent.agent, agent.branch) == ("scout", "agents/scout")
    assert space.agents() == ["scout"]
    assert space.head("scout") == space.genesis("scout") == agent.genesis
    assert space.briefing_of("scout") == BRIEFING == space.read(agent.briefing)
    record = space.record_of("scout")
    assert (sorted(record), record["briefing.json"]) == (["briefing.json", "place.json"], BRIEFING)
    genesis = space.show(agent.genesis)
    assert (genesis.agent, genesis.kind, genesis.briefing, genesis.parents) == ("scout", "spawn", agent.briefing, ())
    assert genesis.message == "spawn: Look around"
    assert (genesis.author.name, genesis.committer.name) == ("scout", "Tess")
    assert space.files("scout") == {}
    assert git("rev-parse", "agents/scout", cwd=tmp_path / "repo").strip() == agent.genesis


def test_an_agent_forks_at_its_parents_head_or_at_any_commit(scout: clia.Space) -> None:
    first = scout.commit("scout", "finding", {"a": b"1"})
    second = scout.commit("scout", "finding", {"a": b"2"})
    deep = scout.spawn_from("deep", BRIEFING, "scout")
    assert scout.show(deep.genesis).parents == (second,)
    assert scout.show(deep.genesis).parent == "scout"
    early = scout.spawn_at("early", BRIEFING, first[:12])
    assert scout.files("early") == {"a": b"1"}
    assert scout.show(early.genesis).parent is None
    scout.spawn_at("child", BRIEFING, first, "deep")
    assert scout.sub_agents("scout") == ["deep"]
    assert scout.sub_agents("deep") == ["child"]
    assert scout.fork_point("deep", "early") == first
    assert scout.fork_point("scout", "deep") == second


def test_a_name_is_used_once(scout: clia.Space) -> None:
    head = scout.commit("scout", "finding", {"a": b"1"})
    error = refused("already-exists", lambda: scout.spawn("scout", BRIEFING))
    assert isinstance(error, errors.Conflict)
    assert error.fields["actual"] == head
    scout.archive("scout")
    refused("already-exists", lambda: scout.spawn("scout", BRIEFING))
    assert scout.agents() == []


@pytest.mark.parametrize("name", ["", "Scout", "-a", "a/b", "a.lock", "..", "a b", "é", "a" * 101, "a\n", "@space", "a\0b"])
def test_names_that_git_does_not_allow_are_refused(space: clia.Space, name: str) -> None:
    refused("invalid-name", lambda: space.spawn(name, BRIEFING))
    refused("invalid-name", lambda: space.commit(name, "finding", {}))
    assert space.agents() == []


def test_a_bad_briefing_or_parent_spawns_nothing(scout: clia.Space) -> None:
    refused("invalid-object", lambda: scout.spawn("a", "just text"))  # type: ignore[arg-type]
    refused("invalid-object", lambda: scout.spawn("a", clia.Briefing("two\nlines")))
    refused("no-such-object", lambda: scout.spawn("a", clia.Briefing("t", behaviour="0" * 40)))
    refused("no-such-agent", lambda: scout.spawn_from("a", BRIEFING, "nobody"))
    refused("no-such-agent", lambda: scout.spawn_at("a", BRIEFING, "scout", "nobody"))
    refused("no-such-object", lambda: scout.spawn_at("a", BRIEFING, "0" * 40))
    assert scout.agents() == ["scout"]
    assert scout.verify().clean


def test_the_merged_profile_is_frozen_into_the_record_and_named_in_the_commits(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    space = clia.init(repo, settings=settings())
    document = repo / ".clia/agents/scout/scout@repo.agent.triad.json"
    document.parent.mkdir(parents=True)
    document.write_text(json.dumps({"slug": "scout", "role": "looks around", "guardrails": ["no force pushes"]}))
    agent = space.spawn("scout", BRIEFING)
    profile = space.record_of("scout")["profile.json"]
    assert profile["document"]["role"] == "looks around"
    assert profile["slug"] == "scout"
    cid = space.commit("scout", "finding", {"a": b"1"})
    assert space.show(cid).profile == space.show(agent.genesis).profile == agent.profile is not None
    document.write_text(json.dumps({"slug": "scout", "role": "sleeps", "guardrails": ["no force pushes"]}))
    assert space.record_of("scout")["profile.json"] == profile
    assert space.spawn("second", BRIEFING, slug="scout").profile not in (None, agent.profile)
    assert space.spawn("third", BRIEFING).profile is None
    refused("agent-not-found", lambda: space.spawn("fourth", BRIEFING, slug="nobody"))
    assert space.verify().clean


def test_the_identity_of_an_agent_can_be_read_and_recorded_again(scout: clia.Space) -> None:
    identity = scout.identities.of_agent("scout")
    assert (identity.agent, identity.slug, identity.guardrails, identity.drifted) == ("scout", None, (), False)
    assert scout.identities.drifted() == []
    assert scout.identities.reprofile("scout").commit is None
    assert scout.identities.search("nothing has this text") == []
    refused("no-such-agent", lambda: scout.identities.of_agent("nobody"))
    refused("no-such-agent", lambda: scout.identities.reprofile("nobody"))


# Commit


def test_a_commit_is_the_whole_worktree_as_a_value(scout: clia.Space) -> None:
    first = scout.commit("scout", "finding", {"src/a.py": b"1", "b": b"\0\xff"}, message="first", meta={"severity": "high"})
    assert scout.files("scout") == {"src/a.py": b"1", "b": b"\0\xff"}
    second = scout.commit("scout", "refactor", {"src/a.py": b"2"}, message="second")
    assert scout.files("scout") == {"src/a.py": b"2"}
    commit = scout.show(first)
    assert (commit.agent, commit.kind, commit.message, commit.meta) == ("scout", "finding", "first", {"severity": "high"})
    assert commit.briefing == scout.show(scout.genesis("scout")).briefing
    assert [commit.cid for commit in scout.session_log("scout")] == [second, first, scout.genesis("scout")]


def test_a_delta_changes_what_it_names(scout: clia.Space) -> None:
    scout.commit("scout", "finding", {"a": b"1", "d/b": b"2", "d/c": b"3"})
    scout.commit("scout", "finding", changes={"a": b"new", "d/b": None, "e/f/g": b"4"})
    assert scout.files("scout") == {"a": b"new", "d/c": b"3", "e/f/g": b"4"}
    scout.commit("scout", "finding", changes={"e": None})
    assert scout.files("scout") == {"a": b"new", "d/c": b"3"}
    scout.commit("scout", "finding", changes={"d/c": None})
    assert scout.files("scout") == {"a": b"new"}


def test_a_file_becomes_a_folder_and_back(scout: clia.Space) -> None:
    for changes in ({"x": b"1"}, {"x": None, "x/y": b"2"}, {"x/y": None, "x": b"3"}):
        scout.commit("scout", "finding", changes=changes)
    assert scout.files("scout") == {"x": b"3"}
    scout.commit("scout", "finding", {"x/y": b"4", "x/z": b"5"})
    scout.commit("scout", "finding", {"x": b"6"})
    assert scout.files("scout") == {"x": b"6"}


def test_modes_links_and_submodules_are_kept(scout: clia.Space, tmp_path: Path) -> None:
    scout.commit(
        "scout",
        "finding",
        {"run": clia.File(b"#!/bin/sh\n", executable=True), "to": clia.Link("run"), "sub": clia.Submodule("1" * 40)},
    )
    listed = git("ls-tree", "agents/scout", cwd=tmp_path / "repo").splitlines()
    assert [line.split()[0] for line in listed] == ["100755", "160000", "120000"]
    value = scout.files("scout")
    assert value == {
        "run": clia.File(b"#!/bin/sh\n", executable=True),
        "sub": clia.Submodule("1" * 40),
        "to": clia.Link("run"),
    }
    assert scout.show(scout.commit("scout", "finding", value)).tree == scout.show("scout~1").tree
    scout.commit("scout", "finding", {"run": clia.File(b"#!/bin/sh\n")})
    assert git("ls-tree", "agents/scout", cwd=tmp_path / "repo").startswith("100644")
    bad: list[Any] = ["text", None, 3, clia.Link(""), clia.Link("a\0b"), clia.Submodule("short"), clia.File("text")]  # type: ignore[arg-type]
    for value in bad:
        refused("invalid-content", lambda value=value: scout.commit("scout", "finding", {"a": value}))  # type: ignore[misc]


def test_a_commit_without_changes_is_allowed(scout: clia.Space) -> None:
    first = scout.commit("scout", "finding", {"a": b"1"})
    second = scout.commit("scout", "test", {"a": b"1"}, message="nothing changed, and that is the finding")
    assert scout.show(second).parents == (first,)
    assert scout.show(second).tree == scout.show(first).tree


def test_a_stale_base_writes_nothing(scout: clia.Space) -> None:
    base = scout.head("scout")
    cid = scout.commit("scout", "finding", {"a": b"1"}, base=base)
    error = refused("stale-ref", lambda: scout.commit("scout", "finding", {"b": b"2"}, base=base))
    assert (error.fields["expected"], error.fields["actual"]) == (base, cid)
    assert isinstance(error, errors.Conflict)
    assert scout.files("scout") == {"a": b"1"}


UNSAFE = ["/abs", "a/../b", "..", ".", "", "a//b", "a/", ".git/config", "x/.GIT/hooks", "git~1", ".git ", "a\0b", "c:/x", "a\ud800"]


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_paths_are_refused_before_anything_is_written(scout: clia.Space, tmp_path: Path, path: str) -> None:
    before = git("count-objects", cwd=tmp_path / "repo")
    for call in (
        lambda: scout.commit("scout", "finding", {"ok": b"content nobody wrote", path: b"1"}),
        lambda: scout.commit("scout", "finding", changes={"ok": b"content nobody wrote", path: b"1"}),
    ):
        refused("unsafe-path", call)
    assert git("count-objects", cwd=tmp_path / "repo") == before


def test_a_file_and_a_folder_of_one_name_are_refused(scout: clia.Space) -> None:
    head = scout.commit("scout", "finding", {"x": b"1", "d/e": b"2"})
    refused("path-clash", lambda: scout.commit("scout", "finding", {"a": b"1", "a/b": b"2"}))
    refused("path-clash", lambda: scout.commit("scout", "finding", {"a/b": b"2", "a": b"1"}))
    refused("path-clash", lambda: scout.commit("scout", "finding", changes={"x/y": b"2"}))
    refused("path-clash", lambda: scout.commit("scout", "finding", changes={"d": b"2"}))
    refused("no-such-path", lambda: scout.commit("scout", "finding", changes={"nothing": None}))
    assert scout.head("scout") == head


def test_bad_input_to_commit_is_refused(scout: clia.Space) -> None:
    head = scout.head("scout")
    refused("unknown-kind", lambda: scout.commit("scout", "nonsense", {}))
    refused("no-such-agent", lambda: scout.commit("nobody", "finding", {}))
    refused("files-or-changes", lambda: scout.commit("scout", "finding"))
    refused("files-or-changes", lambda: scout.commit("scout", "finding", {}, changes={}))
    for kind in ("spawn", "session-merge", "decision"):
        refused("reserved-kind", lambda kind=kind: scout.commit("scout", kind, {}))  # type: ignore[misc]
    for message in ("a\0b", "a\ud800", 3):
        refused("invalid-text", lambda message=message: scout.commit("scout", "finding", {}, message=message))  # type: ignore[misc]
    for meta in ([1], {"a": float("inf")}, {"a": object()}, {"a": "\ud800"}):
        refused("invalid-meta", lambda meta=meta: scout.commit("scout", "finding", {}, meta=meta))  # type: ignore[misc]
    assert scout.head("scout") == head


@pytest.mark.parametrize(
    "text",
    [
        '[submodule "a"]\n\tpath = a\n\turl = -x\n',
        '[submodule "../x"]\n\tpath = a\n\turl = u\n',
        '[submodule "a"]\n\tpath = -a\n\turl = u\n',
        '[submodule "a"]\n\tupdate = !sh\n',
        "[broken",
    ],
)
def test_a_hostile_gitmodules_file_is_refused(scout: clia.Space, text: str) -> None:
    refused("unsafe-path", lambda: scout.commit("scout", "finding", {".gitmodules": text.encode()}))
    refused("unsafe-path", lambda: scout.commit("scout", "finding", {".gitmodules": clia.Link("elsewhere")}))
    scout.commit("scout", "finding", {".gitmodules": b'[submodule "a"]\n\tpath = a\n\turl = https://example.org/a\n'})


def test_trees_that_git_fsck_rejects_are_refused(scout: clia.Space) -> None:
    for bad in ({".gitattributes": b"x" * 3000}, {"a/.gitattributes/x": b""}, {".gitmodules/x": b""}):
        refused("unsafe-path", lambda bad=bad: scout.commit("scout", "finding", bad))  # type: ignore[misc]
    scout.commit("scout", "finding", {".gitattributes": b"*.py text\n", ".gitignore": clia.Link("elsewhere")})
    assert scout.verify().clean


def test_an_empty_message_gets_a_subject(scout: clia.Space) -> None:
    assert scout.show(scout.commit("scout", "finding", {}, message="\n\n")).message == "finding by scout"


def test_the_prompt_of_the_briefing_is_named_as_behaviour(space: clia.Space) -> None:
    prompt = space.add_behaviour("look", "Look around.", "prompt").cid
    agent = space.spawn("scout", clia.Briefing("t", behaviour=prompt))
    assert space.show(agent.genesis).behaviour == prompt
    assert space.show(space.commit("scout", "finding", {})).behaviour == prompt


def test_a_commit_made_by_plain_git_does_not_break_the_agent(scout: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    scout.commit("scout", "finding", {"a": b"1"})
    tree = git("rev-parse", "agents/scout^{tree}", cwd=repo).strip()
    plain = git("commit-tree", tree, "-p", "agents/scout", "-m", "by hand", cwd=repo).strip()
    git("update-ref", "refs/heads/agents/scout", plain, cwd=repo)
    cid = scout.commit("scout", "finding", {"a": b"2"})
    assert scout.show(cid).parents == (plain,)
    assert scout.show(cid).briefing is not None
    assert plain not in [commit.cid for commit in scout.session_log("scout")]
    assert plain in [commit.cid for commit in scout.log("scout")]
    assert scout.verify().clean


# Merge


def two(space: clia.Space) -> None:
    space.spawn("lead", BRIEFING)
    space.commit("lead", "finding", {"a": b"1\n", "b": b"1\n"})
    space.spawn_from("scout", BRIEFING, "lead")


def test_a_merge_is_always_a_commit_with_two_parents(space: clia.Space) -> None:
    two(space)
    their_head = space.commit("scout", "finding", changes={"b": b"2\n"})
    own_head = space.head("lead")
    merge = space.merge("lead", "scout", message="take it", meta={"n": 1})
    assert isinstance(merge, clia.Merged)
    commit = space.show(merge.cid)
    assert (commit.kind, commit.merged, commit.parents, commit.agent) == ("session-merge", "scout", (own_head, their_head), "lead")
    assert (commit.message, commit.meta) == ("take it", {"n": 1})
    assert space.files("lead") == {"a": b"1\n", "b": b"2\n"}
    assert space.merge("lead", "scout") == clia.UpToDate(merge.cid)
    assert space.merged_sessions("lead") == ["scout"]
    assert space.merged_into("scout") == ["lead"]


def test_a_conflict_is_an_answer_and_commits_nothing(space: clia.Space) -> None:
    two(space)
    their_head = space.commit("scout", "finding", changes={"a": b"scout\n", "b": None})
    own_head = space.commit("lead", "finding", changes={"a": b"lead\n", "b": b"lead\n"})
    conflicts = space.merge("lead", "scout")
    assert isinstance(conflicts, clia.Conflicts)
    assert (conflicts.ours, conflicts.theirs) == (own_head, their_head)
    assert [tuple(path) for path in conflicts.paths] == [("a", b"1\n", b"lead\n", b"scout\n"), ("b", b"1\n", b"lead\n", None)]
    assert space.head("lead") == own_head
    assert space.merged_sessions("lead") == []
    assert space.last_refused("lead", "scout") == (own_head, their_head)
    assert space.conflicts("lead", "scout") == conflicts


def test_a_conflict_is_resolved_with_the_whole_worktree_or_just_the_conflicts(space: clia.Space) -> None:
    two(space)
    their_head = space.commit("scout", "finding", changes={"a": b"scout\n", "c": b"new\n"})
    own_head = space.commit("lead", "finding", changes={"a": b"lead\n"})
    error = refused("unresolved", lambda: space.resolve("lead", "scout", changes={}, ours=own_head, theirs=their_head))
    assert error.fields["paths"] == ["a"]
    merge = space.resolve("lead", "scout", changes={"a": b"both\n"}, ours=own_head, theirs=their_head, message="by hand")
    assert space.show(merge.cid).parents == (own_head, their_head)
    assert space.show(merge.cid).kind == "session-merge"
    assert space.files("lead") == {"a": b"both\n", "b": b"1\n", "c": b"new\n"}
    their_head = space.commit("scout", "finding", changes={"a": b"again\n"})
    conflicts = space.merge("lead", "scout")
    assert isinstance(conflicts, clia.Conflicts)
    merge = space.resolve("lead", "scout", {"only": b"this"}, ours=conflicts.ours, theirs=conflicts.theirs)
    assert space.files("lead") == {"only": b"this"}
    assert space.merged_sessions("lead") == ["scout"]


def test_a_side_of_a_conflict_can_be_its_resolution(space: clia.Space) -> None:
    two(space)
    space.commit("scout", "finding", changes={"a": clia.File(b"scout\n", executable=True), "b": clia.Link("a")})
    space.commit("lead", "finding", changes={"a": b"lead\n", "b": b"lead\n"})
    conflicts = space.merge("lead", "scout")
    assert isinstance(conflicts, clia.Conflicts)
    space.resolve(
        "lead", "scout", changes={path.path: path.theirs for path in conflicts.paths}, ours=conflicts.ours, theirs=conflicts.theirs
    )
    assert space.files("lead") == space.files("scout")


def test_a_repeated_call_on_the_same_base_makes_no_second_commit(space: clia.Space) -> None:
    two(space)
    heads = {name: space.head(name) for name in ("lead", "scout")}
    commits = {
        name: [space.commit(name, "finding", changes={"a": name.encode()}, meta={"n": 1}, base=heads[name]) for _ in range(2)]
        for name in heads
    }
    (ours, ours_again), (theirs, theirs_again) = commits["lead"], commits["scout"]
    assert (ours, theirs) == (ours_again, theirs_again)
    merges = [space.resolve("lead", "scout", changes={"a": b"both\n"}, ours=ours, theirs=theirs) for _ in range(2)]
    assert merges[0] == merges[1]
    assert space.head("lead") == merges[0].cid


def test_resolving_after_either_head_moved_is_stale(space: clia.Space) -> None:
    two(space)
    their_head = space.commit("scout", "finding", changes={"a": b"scout\n"})
    own_head = space.commit("lead", "finding", changes={"a": b"lead\n"})
    newer = space.commit("scout", "finding", changes={"b": b"x"})
    error = refused("stale-ref", lambda: space.resolve("lead", "scout", {}, ours=own_head, theirs=their_head))
    assert (error.fields["agent"], error.fields["actual"]) == ("scout", newer)
    space.commit("lead", "finding", changes={"b": b"y"})
    refused("stale-ref", lambda: space.resolve("lead", "scout", {}, ours=own_head, theirs=newer))


def test_renames_are_followed_in_a_merge(space: clia.Space) -> None:
    space.spawn("lead", BRIEFING)
    body = b"".join(b"line %d\n" % number for number in range(50))
    space.commit("lead", "finding", {"old.py": body})
    space.spawn_from("scout", BRIEFING, "lead")
    space.commit("scout", "refactor", {"new.py": body})
    space.commit("lead", "finding", {"old.py": body.replace(b"line 7\n", b"line seven\n")})
    assert isinstance(space.merge("lead", "scout"), clia.Merged)
    assert space.files("lead") == {"new.py": body.replace(b"line 7\n", b"line seven\n")}


def test_agents_without_a_common_ancestor_can_be_merged(space: clia.Space) -> None:
    for name in ("lead", "scout"):
        space.spawn(name, BRIEFING)
        space.commit(name, "finding", {name: b"1"})
    assert space.fork_point("lead", "scout") is None
    assert isinstance(space.merge("lead", "scout"), clia.Merged)
    assert space.files("lead") == {"lead": b"1", "scout": b"1"}


def test_a_merge_needs_two_agents(scout: clia.Space) -> None:
    refused("same-agent", lambda: scout.merge("scout", "scout"))
    refused("no-such-agent", lambda: scout.merge("scout", "nobody"))
    refused("no-such-agent", lambda: scout.merge("nobody", "scout"))


# Relations


def test_edges_are_read_from_actor_to_object(space: clia.Space, tmp_path: Path) -> None:
    space.spawn("root", BRIEFING)
    space.spawn_from("a", BRIEFING, "root")
    space.spawn_from("b", BRIEFING, "a")
    space.spawn_from("c", BRIEFING, "root")
    space.reviews("b", "c")
    space.relate("c", "advises", "root")
    for opened in (space, clia.open(tmp_path / "repo")):
        assert opened.sub_agents("root") == ["a", "c"]
        assert opened.parent_agent("b") == "a"
        assert opened.parent_agent("root") is None
        assert opened.agent_tree("root") == ["a", "b", "c"]
        assert opened.reviewers("c") == ["b"]
        assert opened.reviewing("b") == ["c"]
        assert [(edge.src, edge.kind, edge.dst) for edge in opened.relations("c")] == [
            ("b", "reviews", "c"),
            ("c", "advises", "root"),
            ("root", "sub-agent-of", "c"),
        ]


def test_a_retracted_edge_is_removed_and_can_be_stated_again(space: clia.Space) -> None:
    space.spawn("a", BRIEFING)
    space.spawn_from("b", BRIEFING, "a")
    first = space.reviews("a", "b")
    assert space.reviews("a", "b") == first
    space.unrelate("a", "reviews", "b")
    assert space.reviewers("b") == []
    refused("no-such-edge", lambda: space.unrelate("a", "reviews", "b"))
    assert space.reviews("a", "b") != first
    assert space.reviewers("b") == ["a"]
    space.unrelate("a", "sub-agent-of", "b")
    assert space.parent_agent("b") is None
    before = space.relations()
    space.rebuild()
    assert space.relations() == before
    assert space.verify().clean


def test_a_relation_needs_agents_and_a_kind(scout: clia.Space) -> None:
    refused("no-such-agent", lambda: scout.relate("scout", "reviews", "nobody"))
    refused("no-such-agent", lambda: scout.relate("nobody", "reviews", "scout"))
    refused("invalid-relation", lambda: scout.relate("scout", "Likes a lot", "scout"))
    refused("invalid-name", lambda: scout.sub_agents("../x"))


def test_the_index_follows_what_plain_git_does_to_the_refs(space: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    space.spawn("a", BRIEFING)
    space.spawn_from("b", BRIEFING, "a")
    space.merge("a", "b")
    merged = space.head("a")
    assert space.merged_sessions("a") == ["b"]
    git("update-ref", "refs/heads/agents/a", space.genesis("a"), merged, cwd=repo)
    assert space.merged_sessions("a") == []
    git("update-ref", "refs/heads/agents/a", merged, cwd=repo)
    assert space.merged_sessions("a") == ["b"]
    git("update-ref", "-d", "refs/heads/agents/b", cwd=repo)
    assert space.sub_agents("a") == []
    assert [finding.code for finding in space.verify().findings] == ["no-branch"]


# Traces


def test_a_trace_is_bound_to_the_commit_it_led_to(scout: clia.Space, tmp_path: Path) -> None:
    scout.trace("scout", "console", "one")
    scout.trace("scout", "tool-call", "two", data={"tool": "ls"})
    plain = scout.commit("scout", "finding", {"a": b"1"})
    assert scout.trace_for(plain) is None
    assert texts(scout.trace_pending("scout")) == ["one", "two"]
    cid = scout.commit_with_trace("scout", "test", {"a": b"2"}, message="tested")
    assert scout.trace_pending("scout") == []
    trace = scout.trace_for(cid)
    assert trace is not None
    assert (trace.commit, trace.agent, texts(trace.entries)) == (cid, "scout", ["one", "two"])
    assert trace.entries[1]["data"] == {"tool": "ls"}
    assert scout.read(scout.trace_cid_for(cid) or "") == trace
    assert [row.trace for row in scout.session_traces("scout")] == [trace]
    note = json.loads(git("notes", "--ref=clia/trace/scout", "show", cid, cwd=tmp_path / "repo"))
    assert note["entries"][0]["text"] == "one"
    again = scout.commit_with_trace("scout", "test", {"a": b"3"})
    assert scout.trace_for(again) is None


def test_a_failed_commit_keeps_the_buffer(scout: clia.Space) -> None:
    scout.trace("scout", "console", "one")
    refused("unsafe-path", lambda: scout.commit_with_trace("scout", "test", {"../x": b""}))
    refused("stale-ref", lambda: scout.commit_with_trace("scout", "test", {}, base="0" * 40))
    assert texts(scout.trace_pending("scout")) == ["one"]


def test_the_entries_of_traces_are_counted_by_kind(scout: clia.Space) -> None:
    assert scout.traces.kinds("scout") == {}
    scout.trace("scout", "tool", "pytest")
    scout.trace("scout", "console", "one")
    scout.commit_with_trace("scout", "finding", {"a": b"1"})
    scout.trace("scout", "console", "two")
    assert list(scout.traces.kinds("scout").items()) == [("console", 2), ("tool", 1)]
    refused("no-such-agent", lambda: scout.traces.kinds("nobody"))


def test_a_pending_trace_survives_a_restart(scout: clia.Space, tmp_path: Path) -> None:
    scout.trace("scout", "console", "one")
    scout.close()
    opened = clia.open(tmp_path / "repo", settings=settings())
    opened.trace("scout", "console", "two")
    cid = opened.commit_with_trace("scout", "test", {})
    trace = opened.trace_for(cid)
    assert trace is not None
    assert texts(trace.entries) == ["one", "two"]


def test_attaching_again_keeps_the_history_of_bindings(scout: clia.Space) -> None:
    cid = scout.commit("scout", "finding", {"a": b"1"})
    first = scout.attach_trace(cid, [{"text": "was first"}])
    second = scout.attach_trace(cid, [{"text": "is second", "kind": "note"}])
    assert scout.head("scout") == cid
    trace = scout.trace_for(cid)
    assert trace is not None
    assert texts(trace.entries) == ["is second"]
    assert [binding.trace for binding in scout.trace_history(cid)] == [second, first]
    assert scout.trace_history(scout.genesis("scout")) == []


def keyed(*keys: str) -> list[dict[str, Any]]:
    return [{"kind": "note", "text": f"says {key}", "key": key} for key in keys]


def test_an_entry_with_a_key_counts_once(scout: clia.Space) -> None:
    """In one call, over calls, over commits, and for each agent separately."""
    assert scout.trace_once("scout", [*keyed("a", "b", "a"), {"text": "again", "key": "b"}]) == 2
    assert scout.trace_once("scout", keyed("b", "c")) == 1
    cid = scout.commit_with_trace("scout", "test", {})
    assert scout.trace_once("scout", keyed("a", "b", "c")) == 0
    assert scout.trace_once("scout", keyed("c", "d")) == 1
    scout.trace("scout", "note", "says a")
    trace = scout.trace_for(cid)
    assert trace is not None
    assert [(entry["text"], entry["key"], entry["kind"]) for entry in trace.entries] == [
        ("says a", "a", "note"),
        ("says b", "b", "note"),
        ("says c", "c", "note"),
    ]
    assert texts(scout.trace_pending("scout")) == ["says d", "says a"]
    scout.spawn_from("deep", BRIEFING, "scout")
    assert scout.trace_once("deep", keyed("a", "b")) == 2
    assert scout.trace_once("scout", []) == 0


def test_an_entry_with_a_key_is_stored_without_secrets(scout: clia.Space) -> None:
    secret = FAKES[0].text
    entry = {"kind": "tool-call", "text": f"use {secret}", "key": "call:1", "at": "2026-05-01T00:00:00Z", "data": {"input": secret}}
    assert scout.trace_once("scout", [entry]) == 1
    (stored,) = scout.trace_pending("scout")
    assert (stored["kind"], stored["at"], stored["key"]) == ("tool-call", "2026-05-01T00:00:00Z", "call:1")
    assert secret not in json.dumps(stored)
    assert stored["redacted"] >= 1


@local_only
def test_keys_are_restored_after_the_loss_of_the_store(scout: clia.Space, tmp_path: Path) -> None:
    """From git's notes; pending entries are lost with the store and can be added again."""
    scout.trace_once("scout", keyed("a", "b"))
    scout.commit_with_trace("scout", "test", {})
    scout.trace_once("scout", keyed("c"))
    scout.close()
    for path in (tmp_path / "repo/.git/clia").glob("space.db*"):
        path.unlink()
    with clia.open(tmp_path / "repo", settings=settings()) as again:
        again.doctor(repair=True)
        assert again.trace_once("scout", keyed("a", "b", "c")) == 1
        assert again.trace_once("scout", keyed("a", "c")) == 0
        assert texts(again.trace_pending("scout")) == ["says c"]


def test_entries_with_an_invalid_key_are_refused_and_nothing_is_traced(scout: clia.Space) -> None:
    for key in ("", " ", "a b", "ä", "x" * 257, 3, None):
        refused("invalid-entry", lambda key=key: scout.trace_once("scout", [*keyed("good"), {"text": "x", "key": key}]))  # type: ignore[misc]
    refused("invalid-entry", lambda: scout.trace_once("scout", [{"text": "x"}]))
    refused("invalid-entry", lambda: scout.trace_once("scout", [{"key": "a"}]))
    refused("invalid-kind", lambda: scout.trace_once("scout", [{"text": "x", "key": "a", "kind": "No Kind"}]))
    refused("no-such-agent", lambda: scout.trace_once("nobody", keyed("a")))
    assert scout.trace_pending("scout") == []
    assert scout.trace_once("scout", keyed("good", "x" * 256)) == 2


def test_a_trace_can_be_attached_to_a_users_commit(scout: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git("commit", "-q", "--allow-empty", "-m", "by hand", cwd=repo)
    refused("no-agent", lambda: scout.attach_trace("HEAD", [{"text": "x"}]))
    refused("no-such-agent", lambda: scout.attach_trace("HEAD", [{"text": "x"}], agent="nobody"))
    scout.attach_trace("main", [{"text": "x"}], agent="scout")
    trace = scout.trace_for("main")
    assert trace is not None
    assert trace.agent == "scout"


def test_search_covers_bound_and_pending_traces(scout: clia.Space) -> None:
    scout.trace("scout", "console", "The Needle is here")
    cid = scout.commit_with_trace("scout", "test", {})
    scout.trace("scout", "console", "another needle")
    scout.spawn("other", BRIEFING)
    scout.trace("other", "console", "needle", data={"n": 1})
    hits = scout.trace_search("needle")
    assert [(hit.agent, hit.commit) for hit in hits] == [("other", None), ("scout", cid), ("scout", None)]
    assert len(scout.trace_search("needle", agent="scout")) == 2
    assert len(scout.trace_search("^The.*here", regex=True)) == 1
    assert scout.trace_search("nothing like it") == []
    refused("invalid-pattern", lambda: scout.trace_search("(", regex=True))
    refused("empty-search", lambda: scout.trace_search(""))


def test_huge_entries_are_truncated_and_marked(tmp_path: Path) -> None:
    space = clia.init(tmp_path / "repo", settings=settings(entry_max=10))
    space.spawn("scout", BRIEFING)
    space.trace("scout", "console", "0123456789abc")
    entry = space.trace_pending("scout")[0]
    assert entry["text"] == "0123456789\n[cut: 3 more characters]"
    assert entry["cut"] == 13


def test_bad_entries_are_refused(scout: clia.Space) -> None:
    refused("no-such-agent", lambda: scout.trace("nobody", "console", "x"))
    refused("invalid-kind", lambda: scout.trace("scout", "No Kind", "x"))
    refused("invalid-text", lambda: scout.trace("scout", "console", "\ud800"))
    refused("invalid-text", lambda: scout.trace("scout", "console", 3))  # type: ignore[arg-type]
    refused("invalid-entry", lambda: scout.attach_trace("scout", [{"kind": "console"}]))
    refused("invalid-entry", lambda: scout.attach_trace("scout", [{"text": "x", "redacted": "many"}]))
    refused("invalid-entry", lambda: scout.attach_trace("scout", [{"text": "x", "at": 7}]))
    refused("invalid-kind", lambda: scout.attach_trace("scout", [{"text": "x", "kind": 5}]))
    refused("no-such-agent", lambda: scout.trace_purge("nobody", "a text"))
    assert scout.trace_history("scout") == []
    assert scout.trace_pending("scout") == []
    scout.trace("scout", "console", "a\0b")
    assert texts(scout.trace_pending("scout")) == ["a\0b"]


# Secrets

TOKEN = "ghp_" + "Ab3" * 12


def recorded(repo: Path) -> bytes:
    """Every byte that a space has written, uncompressed: all objects, and the store's files."""
    listed = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered", cwd=repo)
    texts = [line.split()[0] for line in listed.splitlines() if line.endswith(("blob", "commit"))]
    batch = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=repo, input="\n".join(texts).encode(), capture_output=True, check=True
    ).stdout
    return batch + b"".join(file.read_bytes() for file in sorted((repo / ".git/clia").glob("space.db*")))


@local_only
def test_secrets_of_every_kind_never_reach_the_store_or_an_object(space: clia.Space, tmp_path: Path) -> None:
    secrets = [*FAKES, *PEM_KEYS]
    assert len({secret.kind for secret in secrets}) >= 20
    for number, secret in enumerate(secrets):
        text = f"before {secret.text} after"
        title = text.replace("\n", " ") if secret in FAKES else "a key"
        space.spawn(f"a{number}", clia.Briefing(title, text, meta={"said": text, "list": [text]}))
        space.trace(f"a{number}", "console", text, data={"line": text})
        half = len(secret.before + secret.public) + len(secret.secret) // 2
        space.trace(f"a{number}", "console", secret.text[:half])
        space.trace(f"a{number}", "console", secret.text[half:] + "\n")
        space.commit_with_trace(f"a{number}", "finding", {}, message=text, meta={"said": text, "deep": {"er": [text]}})
        space.attach_trace(space.genesis(f"a{number}"), [{"text": text, "data": {"x": text}}])
        space.trace(f"a{number}", "console", text)
        space.write({"type": "capability", "note": text, "number": number})
    written = recorded(tmp_path / "repo")
    leaked = [secret.kind for secret in secrets for line in secret.secret.split("\n") if len(line) > 6 and line.encode() in written]
    assert leaked == []
    assert b"before " in written
    assert space.trace_pending("a0")[0]["redacted"] == 1


def test_a_key_that_is_a_secret_is_redacted_too(scout: clia.Space) -> None:
    cid = scout.commit("scout", "finding", {}, meta={TOKEN: 1, "password": "hunter2-and-more"})
    assert TOKEN not in str(scout.show(cid).meta)
    assert "hunter2" not in str(scout.show(cid).meta)


def test_redaction_is_off_only_on_request(tmp_path: Path) -> None:
    space = clia.init(tmp_path / "repo", settings=settings(redact=False))
    space.spawn("scout", BRIEFING)
    space.trace("scout", "console", TOKEN)
    assert texts(space.trace_pending("scout")) == [TOKEN]
    assert space.show(space.commit("scout", "finding", {}, message=TOKEN)).message == TOKEN


def test_ids_and_digests_survive_redaction(scout: clia.Space) -> None:
    ids = f"{'0123456789abcdef' * 2}01234567 sha256:{'ab' * 32} 123e4567-e89b-12d3-a456-426614174000"
    scout.trace("scout", "console", ids)
    assert texts(scout.trace_pending("scout")) == [ids]


def test_a_leak_is_purged_from_traces_their_history_and_the_buffer(scout: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    leak = "correct horse battery"
    scout.trace("scout", "console", f"pass is {leak}, keep this", data={"also": leak})
    cid = scout.commit_with_trace("scout", "test", {"a": b"1"})
    scout.trace("scout", "console", "innocent")
    second_cid = scout.commit_with_trace("scout", "test", {"a": b"2"})
    scout.attach_trace(cid, [{"text": f"again {leak}"}])
    scout.trace("scout", "console", f"pending {leak}")
    git("gc", "-q", cwd=repo)
    purge = scout.trace_purge("scout", leak)
    assert (purge.traces, purge.pending) == (2, 1)
    assert any("clones" in line for line in purge.remaining)
    assert scout.trace_search(leak) == []
    assert texts(scout.trace_pending("scout")) == ["pending [purged]"]
    trace = scout.trace_for(cid)
    assert trace is not None
    assert texts(trace.entries) == ["again [purged]"]
    assert len(scout.trace_history(cid)) == 2
    assert scout.trace_for(second_cid) is not None
    assert leak.encode() not in recorded(repo)
    assert scout.verify().clean
    refused("text-too-short", lambda: scout.trace_purge("scout", "abc"))


def test_a_purged_history_does_not_come_back_from_another_clone(scout: clia.Space, tmp_path: Path) -> None:
    repo, hub = tmp_path / "repo", tmp_path / "other.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    git("remote", "add", "other", str(hub), cwd=repo)
    scout.trace("scout", "console", "fine")
    scout.commit_with_trace("scout", "test", {"a": b"0"})
    scout.trace("scout", "console", "the pass phrase is swordfish")
    cid = scout.commit_with_trace("scout", "test", {"a": b"1"})
    scout.publish(["scout"], "other")
    assert any("remote other" in line for line in scout.trace_purge("scout", "swordfish").remaining)
    ref = "refs/notes/clia/trace/scout"
    assert [(adopted.ref, adopted.what) for adopted in scout.adopt("other")] == [(ref, "purged")]
    trace = scout.trace_for(cid)
    assert trace is not None
    assert texts(trace.entries) == ["the pass phrase is [purged]"]
    assert "refused" in {published.state for published in scout.publish(["scout"], "other")}
    git("update-ref", "-d", ref, cwd=hub)
    assert "refused" not in {published.state for published in scout.publish(["scout"], "other")}
    assert scout.adopt("other") == []
    assert scout.verify().clean


# Reading


def test_log_show_diff_and_changed(scout: clia.Space) -> None:
    first = scout.commit("scout", "finding", {"a": b"1\n"}, message="first\n\nbody")
    second = scout.commit("scout", "finding", {"a": b"2\n", "b": b"x\n"}, message="second")
    assert [commit.cid for commit in scout.log("scout", limit=2)] == [second, first]
    assert [commit.subject for commit in scout.log("scout", own=True)] == ["second", "first", "spawn: Look around"]
    assert scout.show(first[:10]).message == "first\n\nbody"
    assert "+2" in scout.diff(second)
    assert "-1" in scout.diff(second)
    assert scout.diff(second, paths=["b"]).count("diff --git") == 1
    assert [(change.status, change.path) for change in scout.changed("scout")] == [("A", "a"), ("A", "b")]
    assert [(change.status, change.path, change.added, change.removed) for change in scout.changed(first, second)] == [
        ("M", "a", 1, 1),
        ("A", "b", 1, 0),
    ]
    assert scout.changed(scout.genesis("scout")) == []
    refused("no-such-object", lambda: scout.show("nobody"))
    refused("no-such-object", lambda: scout.log("0" * 40))


def test_blame_names_agent_kind_briefing_and_trace(space: clia.Space) -> None:
    two(space)
    space.trace("scout", "console", "why")
    cid = space.commit_with_trace("scout", "refactor", changes={"a": b"1\nmore\n"})
    space.merge("lead", "scout")
    lines = space.blame("lead", "a")
    assert [(line.number, line.text, line.agent, line.kind) for line in lines] == [
        (1, "1", "lead", "finding"),
        (2, "more", "scout", "refactor"),
    ]
    assert lines[1].commit == cid
    assert lines[1].trace == space.trace_cid_for(cid)
    assert lines[1].briefing == space.show(cid).briefing
    refused("no-such-path", lambda: space.blame("lead", "nothing"))


def test_an_ambiguous_or_unknown_revision_is_reported(scout: clia.Space) -> None:
    refused("no-such-object", lambda: scout.find("main~9"))
    refused("no-such-object", lambda: scout.find("-x"))
    assert scout.find("agents/scout") == scout.head("scout")


# Landing


@pytest.fixture
def people(space: clia.Space, tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    (repo / "a").write_text("1\n")
    git("add", "a", cwd=repo)
    git("commit", "-qm", "start", cwd=repo)
    space.spawn_at("scout", BRIEFING, "main")
    return repo


def test_landing_moves_the_branch_and_its_worktree(space: clia.Space, people: Path) -> None:
    head = space.commit("scout", "finding", changes={"a": b"2\n"})
    assert space.states()[0].landed is None
    assert space.land("scout", "main", how="fast-forward") == clia.Landed(head, "fast-forward")
    assert git("rev-parse", "main", cwd=people).strip() == head
    assert (people / "a").read_text() == "2\n"
    assert git("status", "--porcelain", cwd=people) == ""
    assert space.land("scout", "main") == clia.UpToDate(head)
    assert space.states()[0].landed == "main"
    assert space.landings("scout")[0]["how"] == "fast-forward"
    space.commit("scout", "finding", changes={"a": b"3\n"})
    assert space.states()[0].landed is None


def test_why_explains_a_line_with_its_agent_trace_and_decision(space: clia.Space) -> None:
    space.spawn("lead", BRIEFING)
    space.trace("lead", "said", "I write one")
    cid = space.commit_with_trace("lead", "finding", {"a": b"zero\none\n"})
    space.ask("lead", {"question": "Right?"})
    space.decide("lead", "yes")
    explained = space.why("a", 2, "lead")
    (reason,) = explained.reasons
    assert (reason.start, reason.lines, reason.author, reason.result) == (2, ("one",), "lead", "verified")
    assert reason.origin is not None
    assert reason.trace is not None
    assert (reason.origin.commit, reason.origin.kind, reason.trace.entries) == (cid, "finding", 1)
    assert [(approval.kind, approval.answer, approval.strength) for approval in reason.approvals] == [
        ("decision", "yes", "attested")
    ]
    refused("line-out-of-range", lambda: space.why("a", 3, "lead"))
    refused("no-such-path", lambda: space.why("b", 1, "lead"))


def test_a_squash_names_agent_and_range_and_is_followed_by_blame_and_trace(space: clia.Space, people: Path) -> None:
    base = space.find("main")
    space.trace("scout", "console", "first thought")
    first = space.commit_with_trace("scout", "finding", changes={"b": b"one\n"})
    space.trace("scout", "console", "second thought")
    second = space.commit_with_trace("scout", "refactor", changes={"b": b"one\ntwo\n"})
    landing = space.land("scout", "main", squash=True, message="all of it")
    assert isinstance(landing, clia.Landed)
    commit = space.show(landing.cid)
    assert (commit.message, commit.landed, commit.range, commit.agent) == ("all of it", "scout", f"{base}..{second}", None)
    assert commit.parents == (base,)
    trace = space.trace_for(landing.cid)
    assert trace is not None
    assert texts(trace.entries) == ["first thought", "second thought"]
    assert [(line.commit, line.agent, line.kind) for line in space.blame("main", "b")] == [
        (first, "scout", "finding"),
        (second, "scout", "refactor"),
    ]
    assert space.land("scout", "main", squash=True) == clia.UpToDate(landing.cid)
    assert space.states()[0].landed == "main"
    assert space.verify().clean


def test_rules_refuse_commits_and_landings_until_a_person_decides(space: clia.Space, people: Path) -> None:
    home = people / ".clia/agents/root"
    home.mkdir(parents=True)
    rules = '[{"on": "commit", "match": {"paths": "keys"}, "do": "deny"}, {"on": "land", "match": {"paths": "infra"}, "do": "ask"}]'
    text = f'{{"slug": "root", "guardrails": [{{"text": "Ask.", "rules": {rules}}}]}}'
    (home / "root.agent.triad.json").write_text(text, encoding="utf-8")
    refused("denied-by-rule", lambda: space.commit("scout", "finding", changes={"keys/a": b"1"}))
    refused("denied-by-rule", lambda: space.commit_with_trace("scout", "finding", changes={"keys/a": b"1"}))
    space.commit("scout", "finding", changes={"infra/a": b"1"})
    error = refused("required-by-rule", lambda: space.land("scout", "main"))
    (request,) = space.pending("scout")
    assert error.fields["request"] == request.id
    space.decide("scout", "approve", by="Ada <ada@example.org>", request_id=request.id)
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_work_after_a_squash_lands_without_conflicts(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n", "b": b"1\n"})
    assert isinstance(space.land("scout", "main", squash=True), clia.Landed)
    space.commit("scout", "finding", changes={"a": b"3\n", "b": None})
    assert isinstance(space.land("scout", "main", squash=True), clia.Landed)
    assert space.files("main") == {"a": b"3\n"}
    space.commit("scout", "finding", changes={"a": b"4\n"})
    assert isinstance(space.land("scout", "main"), clia.Landed)
    assert space.files("main") == {"a": b"4\n"}
    git("reset", "-q", "--hard", "main~2", cwd=people)
    space.commit("scout", "finding", changes={"a": b"5\n"})
    assert isinstance(space.land("scout", "main", squash=True), clia.Landed)
    assert space.files("main") == {"a": b"5\n"}


def test_a_landing_that_is_not_a_fast_forward_merges(space: clia.Space, people: Path) -> None:
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    (people / "c").write_text("x\n")
    git("add", "c", cwd=people)
    git("commit", "-qm", "meanwhile", cwd=people)
    tip = space.find("main")
    landing = space.land("scout", "main", how="fast-forward")
    assert isinstance(landing, clia.Landed)
    assert landing.how == "merge"
    assert space.show(landing.cid).parents == (tip, head)
    assert sorted(space.files("main")) == ["a", "b", "c"]
    space.commit("scout", "finding", changes={"d": b"1\n"})
    space.spawn_at("second", BRIEFING, "main")
    space.commit("second", "finding", changes={"e": b"1\n"})
    forced = space.land("second", "main", no_ff=True)
    assert isinstance(forced, clia.Landed)
    assert forced.how == "merge"


def test_a_conflicting_landing_writes_nothing(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"scout\n"})
    (people / "a").write_text("people\n")
    git("commit", "-qam", "meanwhile", cwd=people)
    tip = space.find("main")
    conflicts = space.land("scout", "main")
    assert isinstance(conflicts, clia.Conflicts)
    assert [path.path for path in conflicts.paths] == ["a"]
    assert space.find("main") == tip
    assert space.landings("scout") == []


def test_uncommitted_work_in_the_way_stops_a_landing(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n", "new": b"agent\n"})
    tip = space.find("main")
    (people / "a").write_text("not yet committed\n")
    refused("uncommitted-work", lambda: space.land("scout", "main"))
    git("checkout", "-q", "a", cwd=people)
    (people / "new").write_text("mine\n")
    refused("uncommitted-work", lambda: space.land("scout", "main"))
    assert space.find("main") == tip
    assert (people / "new").read_text() == "mine\n"
    (people / "new").unlink()
    (people / "other").write_text("stays\n")
    assert isinstance(space.land("scout", "main"), clia.Landed)
    assert (people / "other").read_text() == "stays\n"


@pytest.mark.parametrize(("method", "parents"), [("fast-forward", None), ("squash", 0), ("merge", 1)])
def test_the_first_landing_creates_the_branch(scout: clia.Space, tmp_path: Path, method: str, parents: int | None) -> None:
    head = scout.commit("scout", "finding", {"a": b"1\n"})
    (tmp_path / "repo/b").write_text("untracked\n")
    landing = scout.land("scout", "main", how=method)
    assert isinstance(landing, clia.Landed)
    assert landing.how == method
    assert landing.cid == head if parents is None else len(scout.show(landing.cid).parents) == parents
    assert scout.files("main") == {"a": b"1\n"}
    assert git("status", "--porcelain", cwd=tmp_path / "repo") == "?? b\n"
    assert scout.verify().clean


def test_a_landing_is_one_commit_without_the_spawn_by_default(space: clia.Space, people: Path) -> None:
    tip = space.find("main")
    space.commit("scout", "finding", changes={"a": b"2\n"}, message="Count again")
    landing = space.land("scout")
    assert isinstance(landing, clia.Landed)
    assert (landing.how, space.show(landing.cid).parents) == ("squash", (tip,))
    assert space.show("main").subject == "Count again"
    assert "spawn:" not in git("log", "--format=%s", "main", cwd=people)


def test_a_landing_of_several_commits_has_the_title_and_their_subjects(space: clia.Space, people: Path) -> None:
    for number in (2, 3):
        space.commit("scout", "finding", changes={"a": b"%d\n" % number}, message=f"Count {number}")
    space.land("scout", "main")
    assert space.show("main").message == f"{space.briefing_of('scout').title}\n\n- Count 2\n- Count 3"


def test_a_message_that_a_fast_forward_would_lose_is_refused(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n"})
    tip = space.find("main")
    error = refused("message-unused", lambda: space.land("scout", "main", how="fast-forward", message="Counted"))
    assert "--squash" in " ".join(error.hints)
    assert space.find("main") == tip
    refused("invalid-landing", lambda: space.land("scout", "main", how="rebase"))


def test_landing_needs_a_users_branch(space: clia.Space, people: Path) -> None:
    refused("no-such-branch", lambda: space.land("scout", "nowhere"))
    refused("not-a-branch-of-people", lambda: space.land("scout", "agents/scout"))
    refused("no-such-agent", lambda: space.land("nobody", "main"))


# Directories


@local_only
def test_a_checkout_is_a_detached_worktree_that_commits_from_its_base(space: clia.Space, people: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    base = space.checkout("scout", desk)
    assert base == space.head("scout")
    (desk / "b").write_text("from the desk\n")
    (desk / "a").unlink()
    space.trace("scout", "console", "typed")
    cid = space.commit_dir("scout", "finding", desk, message="from a directory", with_trace=True)
    assert space.files("scout") == {"b": b"from the desk\n"}
    assert space.show(cid).parents == (base,)
    assert space.trace_for(cid) is not None
    assert git("status", "--porcelain", cwd=desk) == ""
    space.commit("scout", "finding", changes={"c": b"elsewhere"})
    (desk / "d").write_text("x")
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", desk))
    assert space.checkout("scout", desk) == space.head("scout")
    assert (desk / "d").read_text() == "x"
    assert (desk / "c").read_text() == "elsewhere"
    space.commit_dir("scout", "finding", desk)
    assert sorted(space.files("scout")) == ["b", "c", "d"]


@local_only
def test_a_checkout_belongs_to_one_agent(space: clia.Space, people: Path, tmp_path: Path) -> None:
    space.spawn("other", BRIEFING)
    space.checkout("scout", tmp_path / "desk")
    refused("other-checkout", lambda: space.checkout("other", tmp_path / "desk"))
    refused("other-checkout", lambda: space.commit_dir("other", "finding", tmp_path / "desk"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    refused("directory-in-use", lambda: space.checkout("scout", tmp_path / "full"))


@local_only
def test_any_directory_can_be_committed(space: clia.Space, people: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "sub/x").write_text("1")
    commit = space.commit_dir("scout", "finding", plain)
    assert space.files("scout") == {"sub/x": b"1"}
    assert space.commit_dir("scout", "finding", plain, base=space.genesis("scout")) == commit  # a repeated call
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", plain, message="other", base=space.genesis("scout")))
    refused("file-error", lambda: space.commit_dir("scout", "finding", tmp_path / "missing"))


# Upkeep


def test_archiving_keeps_everything(scout: clia.Space) -> None:
    head = scout.commit("scout", "finding", {"a": b"1"})
    scout.spawn_from("deep", BRIEFING, "scout")
    scout.archive("scout")
    assert scout.agents() == ["deep"]
    assert scout.agents(archived=True) == ["scout"]
    error = refused("no-such-agent", lambda: scout.commit("scout", "finding", {}))
    assert "archived" in error.hints[0]
    assert scout.show("scout").cid == head
    assert scout.sub_agents("scout") == ["deep"]
    assert scout.genesis("scout")
    assert scout.verify().clean
    scout.restore("scout")
    assert scout.head("scout") == head
    refused("no-such-agent", lambda: scout.restore("scout"))
    refused("no-such-agent", lambda: scout.archive("nobody"))


def test_an_agent_whose_branch_is_checked_out_is_not_archived(scout: clia.Space, tmp_path: Path) -> None:
    git("worktree", "add", "-q", str(tmp_path / "wt"), "agents/scout", cwd=tmp_path / "repo")
    refused("branch-checked-out", lambda: scout.archive("scout"))
    assert scout.agents() == ["scout"]


def test_upkeep_of_a_large_space_packs_only_new_objects(space: clia.Space, monkeypatch: pytest.MonkeyPatch, people: Path) -> None:
    def packs() -> set[str]:
        return {path.name for path in (people / ".git/objects/pack").glob("*.pack")}

    for number in range(30):
        space.commit("scout", "finding", changes={f"{number}": b"1"})
    space.maintain()
    before = packs()
    monkeypatch.setattr(porcelain, "LARGE_REPOSITORY", 0)
    cids = [space.commit("scout", "finding", changes={"a": b"%d" % number}) for number in range(3)]
    space.maintain()
    assert before < packs()
    assert git("count-objects", cwd=people).startswith("0 objects")
    space.maintain()
    assert [commit.cid for commit in space.log("scout", limit=3)] == cids[::-1]
    assert space.verify().clean


def test_maintain_packs_and_archives_only_merged_agents(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n"})
    space.spawn("merged", BRIEFING)
    space.commit("merged", "finding", {"m": b"1"})
    space.spawn("lead", BRIEFING)
    space.merge("lead", "merged")
    space.spawn("busy", BRIEFING)
    space.trace("merged", "console", "not yet bound")
    assert space.maintain(archive_idle_days=0, dry_run=True).archived == ()
    space.commit_with_trace("merged", "finding", {"m": b"2"})
    space.merge("lead", "merged")
    assert space.maintain(archive_idle_days=0, dry_run=True).archived == ("merged",)
    report = space.maintain(archive_idle_days=30)
    assert report.archived == ()
    assert report.after < report.before
    assert space.maintain(archive_idle_days=0).archived == ("merged",)
    space.land("scout", "main")
    assert space.maintain(archive_idle_days=0).archived == ("scout",)
    assert space.agents() == ["busy", "lead"]
    assert space.verify().clean
    refused("invalid-days", lambda: space.maintain(archive_idle_days=-1))


def test_traces_follow_a_rebase_and_a_squash_by_plain_git(space: clia.Space, people: Path) -> None:
    space.trace("scout", "console", "one")
    first = space.commit_with_trace("scout", "finding", changes={"b": b"one\n"})
    space.trace("scout", "console", "two")
    second = space.commit_with_trace("scout", "finding", changes={"c": b"two\n"})
    git("checkout", "-q", "-b", "squashed", "main", cwd=people)
    git("merge", "-q", "--squash", "agents/scout", cwd=people)
    git("commit", "-qm", "squashed by hand", cwd=people)
    git("checkout", "-q", "main", cwd=people)
    git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=people)
    git("cherry-pick", first, second, cwd=people)
    relinked = {relink.commit: (relink.by, relink.sources) for relink in space.relink()}
    assert relinked[space.find("squashed")] == ("tree", (first, second))
    assert relinked[space.find("main~1")] == ("patch-id", (first,))
    assert relinked[space.find("main")] == ("patch-id", (second,))
    trace = space.trace_for("squashed")
    assert trace is not None
    assert texts(trace.entries) == ["one", "two"]
    assert space.relink() == []
    assert space.verify().clean


def test_verify_finds_damage(scout: clia.Space, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    scout.trace("scout", "console", "x")
    cid = scout.commit_with_trace("scout", "finding", {"a": b"1"})
    assert scout.verify().clean
    note = scout.trace_cid_for(cid) or ""
    git("notes", "--ref=clia/trace/scout", "add", "-f", "-C", note, scout.genesis("scout"), cwd=repo)
    assert {finding.code for finding in scout.verify().findings} == {"misbound"}
    git("notes", "--ref=clia/trace/scout", "remove", scout.genesis("scout"), cwd=repo)
    assert scout.verify().clean
    git("update-ref", "-d", "refs/clia/agents/scout", cwd=repo)
    assert {finding.code for finding in scout.verify().findings} == {"no-record"}
    briefing = scout.show(cid).briefing or ""
    path = repo / ".git/objects" / briefing[:2] / briefing[2:]
    path.unlink()
    assert "missing-object" in {finding.code for finding in scout.verify().findings}


def test_the_index_is_rebuilt_after_the_loss_of_the_store(space: clia.Space, tmp_path: Path) -> None:
    two(space)
    space.reviews("scout", "lead")
    before = space.relations()
    space.close()
    for file in (tmp_path / "repo/.git/clia").glob("space.db*"):
        file.unlink()
    opened = clia.open(tmp_path / "repo", settings=settings())
    assert opened.relations() == before
    steps: list[tuple[int, int]] = []
    assert opened.rebuild(progress=lambda count, total: steps.append((count, total))) == len(before)
    assert steps[-1][0] == steps[-1][1] > 0
    assert opened.relations() == before


# Identities


def test_identities_are_resolved_from_the_directory_of_the_space(space: clia.Space, tmp_path: Path) -> None:
    home = tmp_path / "repo/.clia/agents/scout"
    home.mkdir(parents=True)
    file = home / "repo.agent.triad.json"
    file.write_text('{"slug": "scout", "title": "Scout", "inherits": ["none.json"]}', encoding="utf-8")
    visible = space.identities()
    assert [(agent.slug, agent.title, agent.directory) for agent in visible.agents] == [("scout", "Scout", ".")]
    merged = space.identities.document("scout", "profile")
    assert (merged.slug, merged.kind, merged.document["title"]) == ("scout", "agent", "Scout")
    (context,) = merged.chain
    assert (context.path, context.documents["agent"], context.link) == (".", ".clia/agents/scout/repo.agent.triad.json", None)
    assert [(finding.code, finding.line) for finding in merged.diagnostics] == [("inherits-missing", 1)]
    explanation = space.identities.explain("scout", "profile", "/title")
    assert explanation.winner is not None
    assert (explanation.value, explanation.winner.path) == ("Scout", ".clia/agents/scout/repo.agent.triad.json")
    assert space.identities.rules("scout") == []
    rules = '[{"on": "tool", "match": {"command": "deploy *"}, "do": "ask"}]'
    file.write_text(f'{{"slug": "scout", "guardrails": [{{"text": "Ask.", "rules": {rules}}}]}}', encoding="utf-8")
    (rule,) = space.identities.rules("scout")
    assert (rule.do, rule.match.command, rule.path) == ("ask", ("deploy *",), ".clia/agents/scout/repo.agent.triad.json")
    verdict = space.identities.explain_rule("scout", "tool", command="env deploy x")
    assert (verdict.do, [match.rule for match in verdict.matches]) == ("ask", [rule])
    assert space.identities.explain_rule("scout", "land", paths=["x"]).do == ""
    refused("unknown-action", lambda: space.identities.explain_rule("scout", "dream"))
    refused("agent-not-found", lambda: space.identities.document("nobody", "profile"))
    refused("no-such-document", lambda: space.identities.document("scout", "diary"))
    refused("no-such-value", lambda: space.identities.explain("scout", "profile", "/none"))


def test_an_entry_of_the_journal_is_a_commit_of_the_agent(space: clia.Space, tmp_path: Path) -> None:
    init("scout", NewIdentity(title="Scout"), WriteLocation(str(tmp_path / "repo")))
    space.spawn("scout", BRIEFING)
    written = space.agents.journal("scout", "Read the build.", tags=["build"], key="one")
    commit = space.show("scout")
    assert (commit.cid, commit.kind) == (written.commit, "journal-entry")
    assert (written.entry["summary"], written.entry["tags"], written.appended) == ("Read the build.", ["build"], True)
    again = space.agents.journal("scout", "Read the build.", key="one")
    assert (again.entry, again.appended, again.commit) == (written.entry, False, None)


def test_the_agents_of_an_item_of_the_agenda_are_listed_and_finish_it(space: clia.Space, tmp_path: Path) -> None:
    init("scout", NewIdentity(title="Scout"), WriteLocation(str(tmp_path / "repo")))
    (path,) = (tmp_path / "repo/.clia/agents/scout").glob("*.agenda.triad.json")
    path.write_text('{"slug": "scout", "backlog": ["Count boxes"]}')
    tree_path = path.relative_to(tmp_path / "repo").as_posix()
    space.spawn("scout", space.identities.brief("scout", "count"))
    space.commit("scout", "finding", changes={tree_path: path.read_bytes()})
    tick = space.agents.finish("scout")
    assert (tick.item, tick.path, tick.commit) == ("count-boxes", tree_path, space.head("scout"))
    (planned,) = space.identities.agenda("scout")
    assert planned.item.title == "Count boxes"
    assert [(agent.agent, agent.archived) for agent in planned.agents] == [("scout", False)]


# Renaming, deleting and undoing


def test_a_renamed_agent_keeps_its_work_and_its_former_name_leads_to_it(scout: clia.Space) -> None:
    scout.spawn("helper", BRIEFING)
    scout.relations.add("scout", "advises", "helper")
    scout.relations.add_review("helper", "scout")
    scout.trace("scout", "console", "bound")
    done = scout.commit_with_trace("scout", "finding", changes={"a": b"1\n"}, message="Looked")
    scout.trace("scout", "console", "pending")
    before = scout.files("scout")
    renamed = scout.agents.rename("scout", "lookout")
    assert renamed[:3] == ("lookout", "scout", scout.head("lookout"))
    assert (scout.agents(), scout.agents(archived=True)) == (["helper", "lookout"], ["scout"])
    assert (scout.find("scout"), scout.files("lookout")) == (scout.head("lookout"), before)
    assert [commit.subject for commit in scout.history.own("lookout")] == [
        "rename: scout to lookout",
        "Looked",
        "spawn: Look around",
    ]
    assert scout.agents.briefing("lookout") == BRIEFING
    assert texts(scout.traces.of(done).entries) == ["bound"]  # type: ignore[union-attr]
    assert texts(scout.traces.pending("lookout")) == ["pending"]
    assert (scout.relations.reviewers("lookout"), scout.relations.reviewing("helper")) == (["helper"], ["scout"])
    assert [edge[:3] for edge in scout.relations("lookout")] == [
        ("lookout", "advises", "helper"),
        ("lookout", "renamed-from", "scout"),
    ]
    assert "a" in scout.diff("lookout")
    error = refused("no-such-agent", lambda: scout.commit("scout", "finding", changes={"b": b""}))
    assert error.message == "agent 'scout' was renamed to 'lookout'"
    refused("no-such-agent", lambda: scout.agents.restore("scout"))
    refused("already-exists", lambda: scout.spawn("scout", BRIEFING))
    scout.commit("lookout", "finding", changes={"b": b"2\n"})
    scout.agents.rename("lookout", "third")
    assert scout.find("scout") == scout.find("lookout") == scout.head("third")
    assert [commit.agent for commit in scout.history.own("scout")] == ["third", "lookout", "lookout", "scout", "scout"]
    assert scout.verify().findings == ()
    scout.rebuild()
    assert scout.verify().findings == ()


def test_a_name_that_is_invalid_or_taken_is_refused(scout: clia.Space) -> None:
    scout.spawn("helper", BRIEFING)
    refused("same-name", lambda: scout.agents.rename("scout", "scout"))
    refused("invalid-name", lambda: scout.agents.rename("scout", "Not A Name"))
    refused("already-exists", lambda: scout.agents.rename("scout", "helper"))
    refused("no-such-agent", lambda: scout.agents.rename("nobody", "somebody"))
    refused("invalid-relation", lambda: scout.relations.add("scout", "renamed-from", "helper"))
    assert scout.agents() == ["helper", "scout"]


def test_an_agent_with_a_live_session_is_not_renamed(scout: clia.Space) -> None:
    scout.ask("scout", {"question": "Which one?", "choices": ["a", "b"]})
    refused("session-live", lambda: scout.agents.rename("scout", "lookout"))
    assert scout.agents() == ["scout"]


def test_a_renamed_agent_lands_only_what_is_new(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n"})
    space.land("scout", "main", squash=True)
    space.agents.rename("scout", "lookout")
    assert [landing["onto"] for landing in space.history.landings("lookout")] == ["refs/heads/main"]
    space.commit("lookout", "finding", changes={"a": b"3\n"})
    landed = space.land("lookout", "main", squash=True)
    assert isinstance(landed, clia.Landed)
    assert git("show", "main:a", cwd=people) == "3\n"


@local_only
def test_an_agent_that_did_nothing_is_deleted_and_its_name_is_free(scout: clia.Space) -> None:
    scout.agents.delete("scout")
    assert scout.agents() == []
    scout.spawn("scout", clia.Briefing(title="Again"))
    assert scout.agents.briefing("scout").title == "Again"
    assert scout.verify().findings == ()
    assert scout.trust.verify().findings == ()


@pytest.mark.parametrize("space", ["local", "remote"], indirect=True)
def test_an_agent_that_did_something_is_not_deleted(scout: clia.Space) -> None:
    deeds: dict[str, Callable[[], object]] = {
        "commit": lambda: scout.commit("commit", "finding", changes={"a": b""}),
        "trace": lambda: scout.trace("trace", "console", "x"),
        "reviewed": lambda: scout.relations.add_review("scout", "reviewed"),
        "reviewer": lambda: scout.relations.add_review("reviewer", "scout"),
        "parent": lambda: scout.spawn_from("child", BRIEFING, "parent"),
    }
    for name, deed in deeds.items():
        scout.spawn(name, BRIEFING)
        deed()
        error = refused("agent-has-work", partial(scout.agents.delete, name))
        assert error.hints[0] == f"put it away: clia archive {name}"
    scout.spawn("question", BRIEFING)
    scout.ask("question", {"question": "Which?"})
    refused("session-live", lambda: scout.agents.delete("question"))
    assert {*deeds} <= {*scout.agents()}


def test_undo_reverts_a_commit_and_undoing_twice_restores_it(scout: clia.Space) -> None:
    scout.commit("scout", "finding", changes={"a": b"1\n", "b": b"1\n"}, message="One")
    one = scout.commit("scout", "finding", changes={"a": b"2\n"}, message="Two")
    last = scout.undoing.last_change()
    assert (last.verb, last.what, last.agent, last.problem) == ("commit", "finding by scout: Two", "scout", None)
    undone = scout.undoing.undo(change=last.change)
    assert (undone.commit, scout.files("scout")) == (scout.head("scout"), {"a": b"1\n", "b": b"1\n"})
    revert = scout.show("scout")
    assert (revert.kind, revert.subject, revert.meta["reverts"]) == ("agent-commit", 'Revert "Two"', one)
    refused("not-the-last-change", lambda: scout.undoing.undo(change=last.change))
    scout.undoing.undo()
    assert scout.files("scout")["a"] == b"2\n"
    assert scout.verify().findings == ()


@pytest.mark.parametrize("space", ["local", "remote"], indirect=True)
def test_undo_of_a_spawn_deletes_the_agent(scout: clia.Space) -> None:
    scout.undoing.undo()
    assert scout.agents() == []
    refused("not-undoable", scout.undoing.undo)


@pytest.mark.parametrize("space", ["hub"], indirect=True)
def test_an_agent_that_other_machines_may_know_is_not_deleted(scout: clia.Space) -> None:
    refused("agent-has-work", scout.undoing.undo)
    refused("agent-has-work", lambda: scout.agents.delete("scout"))
    assert scout.agents() == ["scout"]


def test_undo_reverts_a_merge(scout: clia.Space) -> None:
    scout.spawn("lead", BRIEFING)
    scout.commit("lead", "finding", changes={"lead": b""})
    scout.commit("scout", "finding", changes={"a": b"1\n"})
    scout.merge("lead", "scout")
    assert scout.undoing.undo().what == "merged scout into lead"
    assert [*scout.files("lead")] == ["lead"]


@pytest.mark.parametrize("how", ["squash", "merge", "fast-forward"])
def test_undo_of_a_landing_is_a_commit_on_the_branch_and_the_work_can_land_again(space: clia.Space, people: Path, how: str) -> None:
    before = git("rev-parse", "main", cwd=people).strip()
    space.commit("scout", "finding", changes={"a": b"2\n"}, message="Looked")
    landed = space.land("scout", "main", how=how)
    assert isinstance(landed, clia.Landed)
    git("commit", "-q", "--allow-empty", "-m", "later work of people", cwd=people)
    undone = space.undoing.undo()
    subject = "Merge scout: Look around" if how == "merge" else "Looked"
    assert git("log", "-1", "--format=%H %s", "main", cwd=people) == f'{undone.commit} Revert "{subject}"\n'
    assert git("diff", before, "main", cwd=people) == ""
    assert git("status", "--porcelain", cwd=people) == ""
    assert git("merge-base", "--is-ancestor", landed.cid, "main", cwd=people) == ""
    assert space.history.landings("scout") == []
    again = space.land("scout", "main", how=how)
    assert isinstance(again, clia.Landed)
    assert git("show", "main:a", cwd=people) == "2\n"
    space.undoing.undo()
    space.undoing.undo()
    assert git("show", "main:a", cwd=people) == "2\n"
    assert isinstance(space.land("scout", "main"), clia.UpToDate)
    assert space.verify().findings == ()


def test_undo_is_refused_if_later_work_changed_the_same_lines(space: clia.Space, people: Path) -> None:
    space.commit("scout", "finding", changes={"a": b"2\n"})
    space.land("scout", "main")
    (people / "a").write_text("other\n")
    git("commit", "-qam", "changed", cwd=people)
    head = git("rev-parse", "main", cwd=people)
    assert refused("revert-conflict", space.undoing.undo).fields["paths"] == ["a"]
    assert git("rev-parse", "main", cwd=people) == head


def test_undo_takes_back_archiving_and_relations(scout: clia.Space) -> None:
    scout.spawn("helper", BRIEFING)
    scout.agents.archive("scout")
    scout.undoing.undo()
    assert scout.agents() == ["helper", "scout"]
    scout.undoing.undo()
    assert scout.agents() == ["helper"]
    scout.undoing.undo()
    scout.relations.add("scout", "advises", "helper")
    scout.undoing.undo()
    assert scout.relations("scout") == []
    scout.undoing.undo()
    assert [edge.kind for edge in scout.relations("scout")] == ["advises"]


def test_undo_restores_the_version_of_a_behaviour_that_was_current(scout: clia.Space) -> None:
    first = scout.behaviours.add("look", "Look at {{task}}.", "prompt")
    second = scout.behaviours.add("look", "Look closely at {{task}}.")
    scout.undoing.undo()
    assert scout.behaviours.get("look").current == first.cid
    scout.behaviours.adopt("look", second.cid)
    scout.undoing.undo()
    assert scout.behaviours.get("look").current == first.cid
    scout.behaviours.retire("look")
    scout.undoing.undo()
    assert scout.behaviours.get("look").current == first.cid


def test_what_people_stated_cannot_be_undone(scout: clia.Space) -> None:
    scout.ask("scout", {"question": "Which?", "choices": ["a", "b"]})
    scout.decide("scout", "a")
    assert refused("not-undoable", scout.undoing.undo).hints != ()
    scout.types.register("review", "agent-commit")
    assert "type" in refused("not-undoable", scout.undoing.undo).message
    scout.agents.rename("scout", "lookout")
    assert "clia rename lookout NEW" in refused("not-undoable", scout.undoing.undo).hints[0]
