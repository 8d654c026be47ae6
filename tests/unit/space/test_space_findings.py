"""What reviews of the space have found, each once: it must not come back."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.space.envelope import Append, Intent, RefMove
from clia.testing import components
from support import git
from support.spaces import BRIEFING, refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOTES = "refs/notes/clia/trace/scout"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "repo"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as made:
        yield made


@pytest.fixture
def scout(space: clia.Space) -> clia.Space:
    space.spawn("scout", BRIEFING)
    return space


@pytest.fixture
def people(space: clia.Space, repo: Path) -> Path:
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING, "main")
    return repo


class Dies(BaseException):
    """The process ends here, as far as the space is concerned."""


class Hook:
    """Told each step; runs what it is given at one of them, once."""

    def __init__(self, step: str, then: Callable[[], object]) -> None:
        self._step = step
        self._then: Callable[[], object] | None = then

    def __call__(self, step: str) -> None:
        then = self._then
        if step == self._step and then is not None:
            self._then = None
            then()


def die() -> None:
    raise Dies


def bound(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.trace_for(commit)
    assert trace is not None
    return texts(trace.entries)


def traced(space: clia.Space, text: str, **changes: bytes) -> str:
    space.trace("scout", "console", text)
    return space.commit_with_trace("scout", "finding", changes=changes)


def commit_file(where: Path, path: str, text: str) -> str:
    (where / path).write_text(text)
    git("add", path, cwd=where)
    git("commit", "-qm", f"{path}: {text.strip()}", cwd=where)
    return rev(where, "HEAD")


def rev(where: Path, name: str) -> str:
    return git("rev-parse", name, cwd=where).strip()


def fed(where: Path, data: str | bytes, *words: str) -> str:
    """Stock git with something on its standard input."""
    given = data.encode() if isinstance(data, str) else data
    command = ["git", "-c", "user.name=Tess", "-c", "user.email=tess@example.org", *words]
    return subprocess.run(command, cwd=where, input=given, capture_output=True, check=True).stdout.decode().strip()


def commit_tree(where: Path, message: str, *parents: str, tree: str = EMPTY_TREE) -> str:
    """A commit that nobody but plain git has made."""
    fed(where, "", "hash-object", "-t", "tree", "-w", "--stdin")
    return fed(where, message, "commit-tree", tree, *(word for each in parents for word in ("-p", each)), "-F", "-")


def imported(where: Path, ref: str, files: dict[bytes, bytes], parent: str | None = None) -> None:
    """A commit of files under any paths, on top of a parent."""
    lines = [b"commit " + ref.encode(), b"committer Tess <tess@example.org> 1790000000 +0000", b"data 5", b"made\n"]
    lines += [b"from " + parent.encode()] if parent else []
    for path, data in files.items():
        lines += [b"M 100644 inline " + path, b"data %d" % len(data), data]
    fed(where, b"\n".join(lines) + b"\n", "fast-import", "--quiet", "--force")


def recorded(where: Path) -> bytes:
    """Every byte that a space has written, unpacked: all objects, logs and the store's files."""
    listed = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered", cwd=where)
    ids = [line.split()[0] for line in listed.splitlines() if line.endswith(("blob", "commit"))]
    batch = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=where, input="\n".join(ids).encode(), capture_output=True, check=True
    ).stdout
    return batch + b"".join(file.read_bytes() for file in sorted((where / ".git/clia").glob("space.db*")))


def nested(depth: int) -> Any:
    made: Any = "x"
    for _ in range(depth):
        made = [made]
    return made


# Landing


@pytest.mark.parametrize("squash", [False, True])
def test_a_landing_that_was_reset_away_lands_again(space: clia.Space, people: Path, squash: bool) -> None:
    start = rev(people, "main")
    space.commit("scout", "finding", changes={"b": b"1\n"})
    assert isinstance(space.land("scout", "main", squash=squash), clia.Landed)
    assert space.states()[0].landed == "main"
    git("reset", "-q", "--hard", start, cwd=people)
    assert space.states()[0].landed is None
    assert isinstance(space.land("scout", "main", squash=squash), clia.Landed)
    assert space.states()[0].landed == "main"
    assert sorted(space.files("main")) == ["a", "b"]
    assert isinstance(space.land("scout", "main", squash=squash), clia.UpToDate)


@pytest.mark.parametrize("squash", [False, True])
def test_work_that_landed_on_one_branch_lands_on_another(space: clia.Space, people: Path, squash: bool) -> None:
    git("branch", "release", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    space.land("scout", "main", squash=squash)
    assert isinstance(space.land("scout", "release", squash=squash), clia.Landed)
    assert sorted(space.files("release")) == ["a", "b"]


def test_a_locked_index_in_the_worktree_stops_a_landing(space: clia.Space, people: Path) -> None:
    tip = rev(people, "main")
    space.commit("scout", "finding", changes={"b": b"1\n"})
    (people / ".git/index.lock").touch()
    assert isinstance(refused("uncommitted-work", lambda: space.land("scout", "main")), errors.Conflict)
    assert rev(people, "main") == tip
    assert space.landings("scout") == []
    assert not (people / "b").exists()
    (people / ".git/index.lock").unlink()
    assert isinstance(space.land("scout", "main"), clia.Landed)


def test_a_worktree_that_fails_to_go_along_is_a_warning(space: clia.Space, people: Path) -> None:
    for key, value in (("smudge", "false"), ("required", "true")):  # found out only when the file is written
        git("config", f"filter.bad.{key}", value, cwd=people)
    (people / ".git/info").mkdir(exist_ok=True)
    (people / ".git/info/attributes").write_text("b filter=bad\n")
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    done = space.land("scout", "main")
    assert isinstance(done, clia.Landed)
    assert rev(people, "main") == head
    assert len(done.warnings) == 1
    assert str(people) in done.warnings[0]
    assert space.states()[0].landed == "main"
    assert components(space).envelope.unfinished() == []


def test_a_branch_that_is_being_rebased_is_left_alone(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "-b", "topic", cwd=people)
    tip = commit_file(people, "a", "topic\n")
    git("checkout", "-q", "main", cwd=people)
    commit_file(people, "a", "main\n")
    with pytest.raises(subprocess.CalledProcessError):
        git("rebase", "main", "topic", cwd=people)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    refused("branch-busy", lambda: space.land("scout", "topic"))
    assert rev(people, "topic") == tip
    assert space.landings("scout") == []
    git("rebase", "--abort", cwd=people)
    assert isinstance(space.land("scout", "topic"), clia.Landed)


@pytest.mark.parametrize("name", ["", "a b", "../x"])
def test_what_is_no_name_of_a_branch_is_refused(space: clia.Space, people: Path, name: str) -> None:
    refused("invalid-branch", lambda: space.land("scout", name))
    assert space.landings("scout") == []


@pytest.mark.parametrize("how", ["squash", "no_ff"])
def test_a_landing_names_the_decisions_it_brings(space: clia.Space, people: Path, how: str) -> None:
    head = space.commit("scout", "finding", changes={"b": b"1\n"})
    said = "decided\n\nClia-Agent: scout\nClia-Type: decision\n"
    decision = commit_tree(people, said, head, tree=rev(people, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", decision, cwd=people)
    space.commit("scout", "finding", changes={"c": b"1\n"})
    done = space.land("scout", "main", squash=how == "squash", no_ff=how == "no_ff")
    assert isinstance(done, clia.Landed)
    assert space.show(done.cid).decisions == (decision,)


def test_an_event_that_plain_git_adds_during_a_landing_is_kept_beside_it(space: clia.Space, people: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.commit("scout", "finding", changes={"b": b"1\n"})
    said = {"event": "edge", "src": "scout", "kind": "reviews", "dst": "lead"}
    event = commit_tree(people, f"by hand\n\nClia-Event: {json.dumps(said)}\n")
    hook = Hook("committed", lambda: git("update-ref", "refs/clia/events/scout", event, cwd=people))
    with clia.open(people, settings=settings(reached=hook)) as landing:
        assert isinstance(landing.land("scout", "main"), clia.Landed)
    assert [each["onto"] for each in space.landings("scout")] == ["refs/heads/main"]
    assert space.reviewing("scout") == ["lead"]
    assert space.verify().clean


# Purging


@pytest.mark.parametrize("text", ["console", "text", "entries", "scout", "tool-call"])
def test_a_purge_changes_only_what_was_said(scout: clia.Space, text: str) -> None:
    entry = {"kind": "tool-call", "text": f"say {text}!", "data": {"note": f"{text}?"}}
    made = scout.commit("scout", "finding", {"a": b"1"})
    scout.attach_trace(made, [entry, {"text": "other"}])
    scout.trace("scout", "console", f"pending {text}")
    before = scout.trace_for(made)
    done = scout.trace_purge("scout", text)
    after = scout.trace_for(made)
    assert before is not None
    assert after is not None
    assert (done.traces, done.pending) == (1, 1)
    assert (after.commit, after.agent) == (made, "scout")
    purged = {**before.entries[0], "text": "say [purged]!", "data": {"note": "[purged]?"}}
    assert after.entries == (purged, before.entries[1])
    assert [(each["kind"], each["text"]) for each in scout.trace_pending("scout")] == [("console", "pending [purged]")]
    assert scout.verify().clean


def test_a_purge_that_failed_to_sweep_is_finished_by_the_next(
    scout: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = traced(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    bench = components(scout).purging._workbench

    def fails(cids: object) -> list[str]:
        raise errors.GitError(f"no room to drop {cids}")

    with monkeypatch.context() as patch:
        patch.setattr(bench, "drop_objects", fails)
        refused("git-error", lambda: scout.trace_purge("scout", "swordfish"))
    assert b"swordfish" in recorded(repo)
    scout.trace_purge("scout", "swordfish")
    assert b"swordfish" not in recorded(repo)
    assert git("for-each-ref", "refs/clia-tracking", cwd=repo) == ""
    assert not (repo / ".git/logs" / NOTES).exists()
    assert bound(scout, made) == ["the pass phrase is [purged]"]
    assert scout.verify().clean


def test_tracking_refs_go_with_what_is_purged(scout: clia.Space, repo: Path) -> None:
    traced(scout, "the pass phrase is swordfish", a=b"1")
    git("update-ref", "refs/clia-tracking/hub/notes/trace/scout", NOTES, cwd=repo)
    git("update-ref", "refs/clia-tracking/hub/notes/trace/other", "agents/scout", cwd=repo)
    scout.trace_purge("scout", "swordfish")
    assert git("for-each-ref", "--format=%(refname)", "refs/clia-tracking", cwd=repo).split() == [
        "refs/clia-tracking/hub/notes/trace/other"
    ]
    assert b"swordfish" not in recorded(repo)


def test_a_note_that_git_has_added_to_is_purged_too(scout: clia.Space, repo: Path) -> None:
    made = traced(scout, 'the pass phrase is "sword\\fish"', a=b"1")
    git("notes", "--ref=clia/trace/scout", "append", "-m", 'still "sword\\fish"', made, cwd=repo)
    assert scout.trace_purge("scout", "sword\\fish").traces == 2
    held = recorded(repo)
    assert b"sword\\fish" not in held
    assert b"sword\\\\fish" not in held
    assert git("notes", "--ref=clia/trace/scout", "show", made, cwd=repo).count("[purged]") == 2


def test_a_purge_names_the_commits_whose_message_holds_the_text(scout: clia.Space) -> None:
    said = scout.commit("scout", "finding", {"a": b"1"}, message="it is swordfish")
    quiet = scout.commit("scout", "finding", {"a": b"2"}, message="nothing")
    remaining = scout.trace_purge("scout", "swordfish").remaining
    assert any(said in line for line in remaining)
    assert not any(quiet in line for line in remaining)


# Directories


def test_a_plain_directory_needs_a_base_once_the_agent_has_done_something(space: clia.Space, people: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "x").write_text("1")
    first = space.commit_dir("scout", "finding", plain)
    (plain / "x").write_text("2")
    refused("base-needed", lambda: space.commit_dir("scout", "finding", plain))
    assert space.head("scout") == first
    space.commit_dir("scout", "finding", plain, base=first)
    assert space.files("scout") == {"x": b"2"}


def test_a_worktree_that_git_made_commits_from_its_own_head(space: clia.Space, people: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    space.commit("scout", "finding", changes={"b": b"1\n"})
    git("worktree", "add", "-q", "--detach", str(desk), "agents/scout", cwd=people)
    (desk / "c").write_text("mine\n")
    moved = space.commit("scout", "finding", changes={"d": b"another's\n"})
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", desk))
    assert space.head("scout") == moved
    git("checkout", "-q", "--detach", "agents/scout", cwd=desk)
    space.commit_dir("scout", "finding", desk)
    assert sorted(space.files("scout")) == ["a", "b", "c", "d"]


def test_a_worktree_of_people_with_other_files_is_no_base(space: clia.Space, people: Path) -> None:
    (people / "x").write_text("1")
    first = space.commit_dir("scout", "finding", people)  # the same tree still
    refused("stale-ref", lambda: space.commit_dir("scout", "finding", people))
    assert space.head("scout") == first


@pytest.mark.parametrize("checked_out", [True, False])
def test_a_hostile_gitmodules_file_in_a_directory_is_refused(
    space: clia.Space, people: Path, tmp_path: Path, checked_out: bool
) -> None:
    desk = tmp_path / "desk"
    if checked_out:
        space.checkout("scout", desk)
    else:
        desk.mkdir()
    head = space.head("scout")
    (desk / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch x\n')
    refused("unsafe-path", lambda: space.commit_dir("scout", "finding", desk))
    assert space.head("scout") == head


def test_the_agents_branch_that_a_person_has_checked_out_goes_along(space: clia.Space, people: Path) -> None:
    git("checkout", "-q", "agents/scout", cwd=people)
    head = space.commit("scout", "finding", changes={"a": b"2\n"})
    assert (people / "a").read_text() == "2\n"
    assert git("status", "--porcelain", cwd=people) == ""
    (people / "a").write_text("not yet committed\n")
    space.trace("scout", "console", "kept")
    refused("uncommitted-work", lambda: space.commit("scout", "finding", changes={"a": b"3\n"}))
    refused("uncommitted-work", lambda: space.commit_with_trace("scout", "finding", changes={"a": b"3\n"}))
    assert space.head("scout") == head
    assert (people / "a").read_text() == "not yet committed\n"
    assert texts(space.trace_pending("scout")) == ["kept"]
    assert components(space).envelope.unfinished() == []


# Input


@pytest.mark.parametrize("parent", ["decision", "spawn", "session-merge"])
def test_kinds_under_a_reserved_one_are_reserved(scout: clia.Space, parent: str) -> None:
    scout.register_type("mine", parent)
    scout.register_type("mine-too", "mine")
    head = scout.head("scout")
    refused("reserved-kind", lambda: scout.commit("scout", "mine", {}))
    refused("reserved-kind", lambda: scout.commit("scout", "mine-too", {}))
    assert scout.head("scout") == head


@pytest.mark.parametrize("path", ["/".join(["d"] * 1000), "a" * 300, "d/" + "é" * 150], ids=["deep", "long", "long in bytes"])
def test_paths_that_no_disk_could_hold_are_refused(scout: clia.Space, path: str) -> None:
    head = scout.head("scout")
    refused("unsafe-path", lambda: scout.commit("scout", "finding", {path: b"1"}))
    refused("unsafe-path", lambda: scout.commit("scout", "finding", changes={path: b"1"}))
    assert scout.head("scout") == head


def test_a_deep_tree_that_git_made_is_read_and_built_upon(space: clia.Space, repo: Path) -> None:
    path = "/".join(["d"] * 1500)
    imported(repo, "refs/heads/deep", {path.encode(): b"found\n", b"top": b"1\n"})
    assert space.files("deep") == {path: b"found\n", "top": b"1\n"}
    space.spawn_at("scout", BRIEFING, "deep")
    space.commit("scout", "finding", {**space.files("scout"), "top": b"2\n"})
    space.commit("scout", "finding", changes={"new": b"1\n"})
    assert space.files("scout") == {path: b"found\n", "top": b"2\n", "new": b"1\n"}
    assert space.blame("scout", "top")[0].agent == "scout"


DEEP: dict[str, Callable[[clia.Space], object]] = {
    "meta": lambda space: space.commit("scout", "finding", {}, meta={"x": nested(3000)}),
    "data": lambda space: space.trace("scout", "console", "x", data={"x": nested(3000)}),
    "briefing": lambda space: space.spawn("other", clia.Briefing("Deep", meta={"x": nested(3000)})),
    "write": lambda space: space.write({"type": "capability", "x": nested(3000)}),
    "attach": lambda space: space.attach_trace("scout", [{"text": "x", "data": {"x": nested(3000)}}]),
    "merge": lambda space: space.merge("scout", "lead", meta={"x": nested(3000)}),
}


@pytest.mark.parametrize("verb", DEEP)
def test_a_value_nested_too_deeply_is_refused(scout: clia.Space, verb: str) -> None:
    scout.spawn("lead", BRIEFING)
    head = scout.head("scout")
    with pytest.raises(errors.InvalidInput) as caught:
        DEEP[verb](scout)
    assert caught.value.code == "too-deep"
    assert scout.agents() == ["lead", "scout"]
    assert (scout.head("scout"), scout.trace_pending("scout"), scout.trace_for("scout")) == (head, [], None)


WRONG: dict[str, Callable[[Any], object]] = {
    "files as a list": lambda space: space.commit("scout", "finding", ["a"]),
    "changes as a list": lambda space: space.commit("scout", "finding", changes=["a"]),
    "a number as a path to remove": lambda space: space.commit("scout", "finding", changes={5: None}),
    "a number as a path": lambda space: space.commit("scout", "finding", {5: b"1"}),
    "a number as base": lambda space: space.commit("scout", "finding", {}, base=5),
    "a list as meta": lambda space: space.commit("scout", "finding", {}, meta=[1]),
    "a number as message": lambda space: space.commit("scout", "finding", {}, message=5),
    "a number as kind": lambda space: space.commit("scout", 5, {}),
    "a list as data": lambda space: space.trace("scout", "console", "x", data=[1]),
    "a number as text": lambda space: space.trace("scout", "console", 5),
    "nothing as entries": lambda space: space.attach_trace("scout", None),
    "a text as entries": lambda space: space.attach_trace("scout", "x"),
    "a number as an entry": lambda space: space.attach_trace("scout", [5]),
    "nothing as a commit": lambda space: space.spawn_at("other", BRIEFING, None),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_value_of_the_wrong_type_is_refused_clearly(scout: clia.Space, what: str) -> None:
    head = scout.head("scout")
    with pytest.raises(errors.InvalidInput):
        WRONG[what](scout)
    assert scout.agents() == ["scout"]
    assert (scout.head("scout"), scout.trace_pending("scout"), scout.trace_for("scout")) == (head, [], None)


@pytest.mark.parametrize("path", ["f/", "/f", "", "../f"])
def test_what_is_removed_must_be_a_path(scout: clia.Space, path: str) -> None:
    head = scout.commit("scout", "finding", {"f": b"1"})
    refused("unsafe-path", lambda: scout.commit("scout", "finding", changes={path: None}))
    assert scout.head("scout") == head


# What others have written


DEEP_JSON = '{"x":' * 20000 + "1" + "}" * 20000
FORGED = {
    "deep event": f"x\n\nClia-Event: {DEEP_JSON}\n",
    "no origins": 'x\n\nClia-Event: {"event":"retract","origins":5}\n',
    "odd origins": 'x\n\nClia-Event: {"event":"retract","origins":[5,["x"],null]}\n',
    "bad kind": 'x\n\nClia-Event: {"event":"edge","src":"scout","kind":"Not A Kind","dst":"lead"}\n',
    "no kind": 'x\n\nClia-Event: {"event":"edge","src":"scout","kind":["x"],"dst":{"a":1}}\n',
    "bad landing": 'x\n\nClia-Event: {"event":"landed","onto":5,"cid":[],"head":null}\n',
}


def check_readable(space: clia.Space) -> None:
    assert space.agents() == ["lead", "scout"]
    assert len(space.states()) == 2
    assert len(space.log("scout")) >= 1
    assert space.session_log("scout")[-1].kind == "spawn"
    assert [(each.src, each.kind, each.dst) for each in space.relations()] == [("scout", "reviews", "lead")]
    report = space.verify()
    assert report.clean, report.findings
    assert space.rebuild() == 1
    assert space.verify().clean


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_event_says_nothing_and_breaks_nothing(scout: clia.Space, repo: Path, what: str) -> None:
    scout.spawn("lead", BRIEFING)
    scout.reviews("scout", "lead")
    forged = commit_tree(repo, FORGED[what], rev(repo, "refs/clia/events/scout"))
    git("update-ref", "refs/clia/events/scout", forged, cwd=repo)
    check_readable(scout)
    assert isinstance(scout.land("scout", "main"), clia.Landed)


def test_forged_meta_and_notes_say_nothing_and_break_nothing(scout: clia.Space, repo: Path) -> None:
    scout.spawn("lead", BRIEFING)
    scout.reviews("scout", "lead")
    made = traced(scout, "mine", a=b"1")
    said = f"x\n\nClia-Agent: scout\nClia-Type: finding\nClia-Meta: {DEEP_JSON}\n"
    forged = commit_tree(repo, said, made, tree=rev(repo, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", forged, cwd=repo)
    note = fed(repo, DEEP_JSON, "hash-object", "-w", "--stdin")
    git("notes", "--ref=clia/trace/scout", "add", "-C", note, forged, cwd=repo)
    check_readable(scout)
    assert scout.show(forged).meta == {}
    assert scout.trace_for(forged) is None
    assert bound(scout, made) == ["mine"]
    assert [each.entry["text"] for each in scout.trace_search("mine")] == ["mine"]
    assert scout.blame("scout", "a")[0].commit == made
    assert scout.relink() == []


def test_a_missing_notes_tree_stops_a_commit_before_anything_moves(scout: clia.Space, repo: Path) -> None:
    traced(scout, "one", a=b"1")
    tree = rev(repo, f"{NOTES}^{{tree}}")
    (repo / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with clia.open(repo, settings=settings()) as opened:
        head = opened.head("scout")
        opened.trace("scout", "console", "two")
        with pytest.raises(errors.CliaError):
            opened.commit_with_trace("scout", "finding", {"a": b"2"})
        assert opened.head("scout") == head
        assert texts(opened.trace_pending("scout")) == ["two"]
        assert components(opened).envelope.unfinished() == []
        made = opened.commit("scout", "finding", {"a": b"3"})
        assert opened.head("scout") == made


def test_verify_in_a_partial_clone_counts_the_traces_it_cannot_read(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    made = traced(scout, "one", a=b"1")
    blob = scout.trace_cid_for(made)
    scout.land("scout", "main")
    git("config", "uploadpack.allowFilter", "true", cwd=repo)
    git("clone", "-q", "--no-checkout", "--filter=blob:none", repo.as_uri(), "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as clone:
        report = clone.verify()
    assert report.clean, report.findings
    assert report.traces == 1
    assert any(str(blob) in line for line in report.unseen), report.unseen


def test_a_merge_conflict_on_a_path_that_is_no_text_is_an_answer(space: clia.Space, repo: Path) -> None:
    space.spawn("lead", BRIEFING)
    space.spawn_from("scout", BRIEFING, "lead")
    for name, data in (("lead", b"1\n"), ("scout", b"2\n")):
        ref = f"refs/heads/agents/{name}"
        imported(repo, ref, {b"caf\xe9": data}, rev(repo, ref))
    found = space.merge("lead", "scout")
    assert isinstance(found, clia.Conflicts)
    assert [(each.path, each.ours, each.theirs) for each in found.paths] == [("caf\udce9", b"1\n", b"2\n")]
    assert space.last_refused("lead", "scout") == (found.ours, found.theirs)


@pytest.mark.parametrize("how", ["relinked", "attached"])
def test_blame_names_the_agent_and_trace_behind_commits_of_people(space: clia.Space, people: Path, how: str) -> None:
    if how == "relinked":
        source = traced(space, "why", b=b"1\n")
        git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=people)
        git("cherry-pick", source, cwd=people)
        git("commit", "-q", "--amend", "-m", "as people say it", cwd=people)
        assert [each.commit for each in space.relink()] == [rev(people, "main")]
    else:
        space.attach_trace(commit_file(people, "b", "1\n"), [{"text": "why"}], agent="scout")
    (line,) = space.blame("main", "b")
    assert (line.commit, line.agent, line.kind) == (rev(people, "main"), "scout", None)
    assert line.trace == space.trace_cid_for("main") is not None
    (line,) = space.blame("main", "a")
    assert (line.agent, line.trace) == (None, None)


def test_blame_takes_no_notice_of_revisions_that_people_ignore(space: clia.Space, people: Path) -> None:
    made = space.commit("scout", "finding", changes={"a": b"2\n"})
    (people / ".ignored").write_text(f"{made}\n")
    git("config", "blame.ignoreRevsFile", ".ignored", cwd=people)
    assert space.blame("scout", "a")[0].commit == made


def test_relinking_finds_a_rewritten_commit_below_a_newer_traced_one(space: clia.Space, people: Path) -> None:
    first = traced(space, "one", b=b"1\n")
    message = git("log", "-1", "--format=%B", first, cwd=people)
    anew = commit_tree(
        people, message.replace("finding by scout", "reworded"), space.genesis("scout"), tree=rev(people, f"{first}^{{tree}}")
    )
    git("update-ref", "refs/heads/agents/scout", anew, cwd=people)
    second = traced(space, "two", c=b"1\n")
    assert space.trace_for(anew) is None
    assert [(each.commit, each.sources) for each in space.relink()] == [(anew, (first,))]
    assert (bound(space, anew), bound(space, second)) == (["one"], ["two"])
    assert space.relink() == []


# Other clones


class Pair:
    """A space, and a clone of it that has adopted its agents."""

    def __init__(self, origin: clia.Space, at: Path, reached: Callable[[str], None] | None = None) -> None:
        self.origin = origin
        self.at = at / "clone"
        git("clone", "-q", str(at / "repo"), "clone", cwd=at)
        self.clone = clia.init(self.at, settings=settings(reached=reached))


@pytest.fixture
def pair(space: clia.Space, people: Path, tmp_path: Path) -> Iterator[Pair]:
    space.commit("scout", "finding", changes={"b": b"1\n"})
    made = Pair(space, tmp_path)
    with made.clone:
        yield made


FOREIGN: dict[str, Callable[[clia.Space], object]] = {
    "attach_trace": lambda space: space.attach_trace("scout", [{"text": "x"}]),
    "merge": lambda space: space.merge("scout", "mine"),
    "resolve": lambda space: space.resolve("scout", "mine", {}, ours=space.head("scout"), theirs=space.head("mine")),
    "land": lambda space: space.land("scout", "main"),
    "relate": lambda space: space.relate("scout", "reviews", "mine"),
    "commit": lambda space: space.commit("scout", "finding", {}),
    "trace": lambda space: space.trace("scout", "console", "x"),
    "archive": lambda space: space.archive("scout"),
}


@pytest.mark.parametrize("verb", FOREIGN)
def test_an_agent_of_another_clone_is_read_only(pair: Pair, verb: str) -> None:
    pair.clone.spawn("mine", BRIEFING)
    pair.clone.commit("mine", "finding", {"m": b"1"})
    before = git("for-each-ref", cwd=pair.at)
    refused("foreign-agent", lambda: FOREIGN[verb](pair.clone))
    assert git("for-each-ref", cwd=pair.at) == before
    pair.clone.claim("scout")
    FOREIGN[verb](pair.clone)


def test_an_agent_of_another_clone_is_marked_before_it_shows(space: clia.Space, people: Path, tmp_path: Path) -> None:
    marked: list[bool] = []

    def look(step: str) -> None:
        if step == "ref-locked" and (tmp_path / "clone/.git/refs/heads/agents/late.lock").exists():
            with made.clone.core.store.reading() as view:
                marked.append(view.values.get("foreign/late") is not None)
            assert "late" not in made.clone.agents()

    made = Pair(space, tmp_path, look)
    with made.clone:
        space.spawn("late", BRIEFING)
        made.clone.adopt()
        assert "late" in made.clone.agents()
    assert marked == [True]


def test_refs_that_a_remote_makes_up_are_not_adopted(space: clia.Space, people: Path, tmp_path: Path) -> None:
    odd = ["refs/clia/capabilities", "refs/clia/peers/x", "refs/clia/agents/Bad_Name", "refs/notes/clia/odd"]
    for ref in odd:
        git("update-ref", ref, "main", cwd=people)
    made = Pair(space, tmp_path)
    with made.clone as clone:
        refs = git("for-each-ref", "--format=%(refname)", "refs/clia/", "refs/notes/", "refs/heads/", cwd=made.at).split()
        assert not {*odd} & {*refs}
        assert clone.agents() == ["scout"]
        assert clone.adopt() == []
        assert clone.verify().clean


def test_adopting_makes_no_head_beside_an_archive(pair: Pair) -> None:
    pair.clone.claim("scout")
    head = pair.clone.head("scout")
    pair.clone.archive("scout")
    assert "refs/heads/agents/scout" not in {each.ref for each in pair.clone.adopt()}
    pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert (pair.clone.agents(), pair.clone.agents(archived=True)) == ([], ["scout"])
    assert rev(pair.at, "refs/clia/archive/agents/scout") == head


def test_adopting_leaves_an_agents_branch_alone_that_is_checked_out(pair: Pair) -> None:
    git("checkout", "-q", "agents/scout", cwd=pair.at)
    head = pair.clone.head("scout")
    newer = pair.origin.commit("scout", "finding", changes={"b": b"2\n"})
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "diverged"}
    assert pair.clone.head("scout") == head
    assert git("status", "--porcelain", cwd=pair.at) == ""
    git("checkout", "-q", "main", cwd=pair.at)
    assert {each.ref: each.what for each in pair.clone.adopt()} == {"refs/heads/agents/scout": "ahead"}
    assert pair.clone.head("scout") == newer


# Refs


@pytest.mark.parametrize("verb", ["archive", "restore"])
def test_a_ref_that_alone_holds_work_is_never_overwritten(scout: clia.Space, repo: Path, verb: str) -> None:
    other = scout.commit("scout", "finding", {"a": b"theirs"})
    git("update-ref", "refs/heads/agents/scout", scout.genesis("scout"), cwd=repo)
    mine = scout.commit("scout", "finding", {"a": b"mine"})
    act, target = (
        (scout.archive, "refs/clia/archive/agents/scout") if verb == "archive" else (scout.restore, "refs/heads/agents/scout")
    )
    if verb == "restore":
        scout.archive("scout")
    git("update-ref", target, other, cwd=repo)
    before = git("for-each-ref", cwd=repo)
    refused("diverged", lambda: act("scout"))
    assert git("for-each-ref", cwd=repo) == before
    git("update-ref", target, scout.genesis("scout"), cwd=repo)  # which the other holds
    act("scout")
    assert rev(repo, target) == mine


def test_a_branch_below_an_agents_name_is_a_clash(space: clia.Space, people: Path) -> None:
    git("branch", "agents/x/y", "main", cwd=people)
    refused("ref-clash", lambda: space.spawn("x", BRIEFING))
    assert git("for-each-ref", "refs/clia/agents/x", cwd=people) == ""
    assert components(space).envelope.unfinished() == []
    git("branch", "-D", "agents/x/y", cwd=people)
    space.spawn("x", BRIEFING)


# Recovery


def test_a_verb_is_finished_although_someone_went_on_before_it_could_be(scout: clia.Space, repo: Path) -> None:
    scout.trace("scout", "console", "mine")
    with clia.open(repo, settings=settings(reached=Hook("committed", die))) as dying, pytest.raises(Dies):
        dying.commit_with_trace("scout", "finding", {"a": b"1"})
    made = scout.head("scout")
    on_top = commit_tree(repo, "by hand\n", made, tree=rev(repo, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", on_top, cwd=repo)
    with clia.open(repo, settings=settings()) as opened:
        assert opened.head("scout") == on_top
        assert bound(opened, made) == ["mine"]
        assert opened.trace_pending("scout") == []
        assert components(opened).envelope.unfinished() == []


def test_a_verb_that_another_has_finished_is_not_settled_again(scout: clia.Space) -> None:
    head = scout.head("scout")
    new = scout.core.write_commit("scout", scout.show(head).tree, [head], "x", [], "x")
    move = RefMove("refs/heads/agents/scout", head, new)
    intent = Intent("scout", "test", move, appends=(Append("told/scout", ({"said": "once"},)),))
    components(scout).envelope.carry_out(intent)
    components(scout).envelope._finish(intent)
    with scout.core.store.reading() as view:
        assert [each.body for each in view.streams.read("told/scout")] == [{"said": "once"}]


# Notes


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_note_is_read_under_every_fan_out_that_git_uses(scout: clia.Space, repo: Path, depth: int) -> None:
    made = scout.commit("scout", "finding", {"a": b"1"})
    note = scout.write(clia.ConsoleTrace(made, "scout", ({"text": "x", "kind": "console", "at": "now"},)))
    imported(repo, NOTES, {fanned(made, depth): git("cat-file", "blob", note, cwd=repo).encode()})
    assert scout.trace_cid_for(made) == note
    assert [each.cid for each in scout.session_traces("scout")] == [note]
    assert scout.verify().traces == 1


def test_binding_leaves_one_spelling_of_a_note(scout: clia.Space, repo: Path) -> None:
    made = scout.commit("scout", "finding", {"a": b"1"})
    imported(repo, NOTES, {fanned(made, depth): b"%d" % depth for depth in (0, 2)})
    cid = scout.attach_trace(made, [{"text": "x"}])
    listed = [line.split("\t") for line in git("ls-tree", "-r", NOTES, cwd=repo).splitlines()]
    assert [(facts.split()[2], path.replace("/", "")) for facts, path in listed] == [(cid, made)]
    assert git("notes", "--ref=clia/trace/scout", "list", made, cwd=repo).strip() == cid


def fanned(commit: str, depth: int) -> bytes:
    return "/".join([*(commit[2 * each : 2 * each + 2] for each in range(depth)), commit[2 * depth :]]).encode()


# Verify


def test_verify_names_a_trace_of_another_agent(scout: clia.Space, repo: Path) -> None:
    made = scout.commit("scout", "finding", {"a": b"1"})
    note = scout.write(clia.ConsoleTrace(made, "other", ({"text": "x", "kind": "console", "at": "now"},)))
    git("notes", "--ref=clia/trace/scout", "add", "-C", note, made, cwd=repo)
    assert [(each.code, each.cid) for each in scout.verify().findings] == [("misbound", note)]


def test_verify_names_a_record_with_another_briefing(scout: clia.Space, repo: Path) -> None:
    other = scout.write(clia.Briefing("Another one"))
    tree = fed(repo, f"100644 blob {other}\tbriefing.json\n", "mktree")
    git("update-ref", "refs/clia/agents/scout", commit_tree(repo, "record\n", tree=tree), cwd=repo)
    assert [each.code for each in scout.verify().findings] == ["record-differs"]


def test_verify_names_what_plain_git_broke_in_the_chain_of_a_behaviour(scout: clia.Space, repo: Path) -> None:
    made = scout.add_behaviour("look", "Look around.", "prompt").cid
    scout.retire_behaviour("look", scout.propose_behaviour("look", "Look twice.").cid)
    assert scout.verify().clean
    ref, other = "refs/clia/behaviours/look", scout.write(clia.Briefing("no behaviour"))
    whole = git("rev-parse", ref, cwd=repo).strip()
    files = git("ls-tree", "-r", whole, cwd=repo)
    empty = next(line.split()[2] for line in files.splitlines() if "adopted/" in line)
    broken = {
        f"versions/{other}.json": (other, {other}),
        f"versions/{empty}.json": (made, {made}),
        "current": (fed(repo, f"{empty}\n", "hash-object", "-w", "--stdin"), {empty}),
        f"adopted/{other}": (empty, {other}),
        f"retired/{other}": (empty, {other}),
    }
    for path, (blob, named) in broken.items():
        git("read-tree", whole, cwd=repo)
        git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", cwd=repo)
        tree = git("write-tree", cwd=repo).strip()
        git("update-ref", ref, commit_tree(repo, "by hand\n", tree=tree), cwd=repo)
        found = scout.verify().findings
        assert {(each.code, each.ref, each.cid) for each in found} == {("broken-behaviour", ref, cid) for cid in named}, path
    git("update-ref", ref, whole, cwd=repo)
    assert scout.verify().clean


def test_a_wrong_type_is_never_a_bare_python_error(scout: clia.Space) -> None:
    space: Any = scout
    calls: list[Callable[[], object]] = [
        *(
            lambda verb=verb: getattr(space, verb)(None)
            for verb in ("find", "log", "show", "files", "trace_for", "diff", "archive")
        ),
        lambda: space.fork_point("scout", 5),
        lambda: space.land("scout", 5),
        lambda: space.trace_purge("scout", None),
        lambda: space.trace_search(5),
        lambda: space.read(5),
        lambda: space.write(5),
        lambda: space.commit("scout", ["x"], {}),
        lambda: space.is_a(["x"], "finding"),
        lambda: space.register_type("x", ["y"]),
        lambda: space.resolve("scout", "other", {}, ours=None, theirs=None),
        lambda: space.commit_dir("scout", "finding", 5),
        lambda: space.blame("scout", 5),
        lambda: space.maintain(archive_idle_days="x"),
        lambda: space.log("scout", limit="x"),
    ]
    for call in calls:
        with pytest.raises(clia.errors.InvalidInput):
            call()
    assert scout.verify().clean


def test_relink_finds_what_people_picked_below_a_newer_traced_commit(scout: clia.Space, repo: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    scout.spawn_at("picker", clia.Briefing("Pick"), "main")
    scout.trace("picker", "console", "why")
    picked = scout.commit_with_trace("picker", "finding", changes={"a": b"1\n"})
    git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=repo)
    git("cherry-pick", picked, cwd=repo)
    git("commit", "-q", "--allow-empty", "-m", "on top", cwd=repo)
    scout.attach_trace("main", [{"text": "newer"}], agent="picker")
    assert [(each.commit, each.sources) for each in scout.relink()] == [(scout.find("main~1"), (picked,))]


def test_an_old_squash_is_no_base_once_newer_work_is_shared(scout: clia.Space, repo: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=repo)
    scout.spawn_at("first", clia.Briefing("First"), "main")
    scout.commit("first", "finding", {"a": b"one\n"})
    assert isinstance(scout.land("first", "main", squash=True), clia.Landed)
    scout.commit("first", "finding", {"a": b"two\n"})
    assert isinstance(scout.land("first", "main", no_ff=True), clia.Landed)
    git("commit", "-q", "--allow-empty", "-m", "by hand", cwd=repo)
    (repo / "a").write_text("by hand\n")
    git("commit", "-qam", "people changed it", cwd=repo)
    scout.commit("first", "finding", changes={"b": b"new\n"})
    assert isinstance(scout.land("first", "main"), clia.Landed)
    assert scout.files("main") == {"a": b"by hand\n", "b": b"new\n"}


def test_a_forged_purge_does_not_stop_an_adoption(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub.git"
    git("init", "-q", "--bare", str(hub), cwd=tmp_path)
    git("remote", "add", "hub", str(hub), cwd=repo)
    scout.trace("scout", "console", "here")
    scout.commit_with_trace("scout", "finding", {})
    scout.publish(["scout"], "hub")
    for gone in ("5", "null", '["x", 7]'):
        body = f'{{"event":"purge","gone":{gone},"ref":"{NOTES}"}}'
        forged = git("commit-tree", EMPTY_TREE, "-m", f"forged\n\nClia-Event: {body}", cwd=repo).strip()
        git("update-ref", "refs/clia/events/scout", forged, cwd=repo)
        git("update-ref", "-d", NOTES, cwd=repo)
        assert ("refs/notes/clia/trace/scout", "new") in [(each.ref, each.what) for each in scout.adopt("hub")]
