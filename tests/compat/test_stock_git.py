"""Stock git reads, keeps, clones and signs a space, and clia does not change the user's own files."""

from __future__ import annotations

import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import CliaError
from clia.testing import components
from support import git

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2025, 1, 1, tzinfo=UTC)
CHOSEN = clia.Settings(durable=False, clock=lambda: NOW, person=("Tess", "tess@example.org"))
REFSPECS = ["refs/clia/*:refs/clia/*", "refs/notes/clia/*:refs/notes/clia/*", "refs/heads/agents/*:refs/heads/agents/*"]
OBJECT = {"type": "capability", "peer": "p", "trigger": "push"}


def repository(directory: Path, *words: str) -> Path:
    """A user's repository with one commit on main."""
    directory.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", "--initial-branch=main", *words, cwd=directory)
    (directory / "README").write_text("read me\n")
    git("add", "README", cwd=directory)
    git("commit", "--quiet", "--message", "people", cwd=directory)
    return directory


def work(space: clia.Space) -> dict[str, str]:
    """Create one of everything in a space; return the ids."""
    ids = {"object": space.types.write(OBJECT), "behaviour": space.behaviours.add("careful", "Be careful.", "prompt").cid}
    space.types.register("review", "agent-commit")
    scout = space.spawn_at("scout", clia.Briefing("explore", "all of it", ids["behaviour"]), "main")
    ids |= {"briefing": scout.briefing, "genesis": scout.genesis}
    space.trace("scout", "console", "looked around")
    ids["traced"] = space.commit_with_trace("scout", "finding", changes={"map": b"here\n"}, message="a map", meta={"score": 1})
    space.spawn_from("helper", clia.Briefing("help"), "scout")
    space.commit("helper", "review", changes={"map": b"there\n", "notes": b"n\n"})
    space.commit("scout", "test", changes={"map": b"nowhere\n"})
    refused = space.merge("scout", "helper")
    assert isinstance(refused, clia.Conflicts)
    merged = space.resolve("scout", "helper", changes={"map": b"both\n"}, ours=refused.ours, theirs=refused.theirs)
    ids["merged"] = merged.cid
    ids["attached"] = space.traces.attach(ids["merged"], [{"text": "why both"}])
    ids["edge"] = space.relations.add_review("helper", "scout")
    ids["kept-edge"] = space.relate("helper", "advises", "scout")
    space.relations.retract("helper", "reviews", "scout")
    space.spawn("idle", clia.Briefing("wait"))
    space.agents.archive("idle")
    return ids


def told(space: clia.Space) -> dict[str, Any]:
    """Everything that a space reports."""
    everyone = [*space.agents(), *space.agents(archived=True)]
    return {
        "id": space.id,
        "agents": (space.agents(), space.agents(archived=True)),
        "logs": {name: space.history.own(name) for name in everyone},
        "files": {name: space.files(name) for name in everyone},
        "records": {name: space.agents.record(name) for name in everyone},
        "traces": {name: space.traces.of_agent(name) for name in everyone},
        "landings": {name: space.history.landings(name) for name in everyone},
        "relations": [(edge.src, edge.kind, edge.dst, edge.origin) for edge in space.relations()],
        "types": space.types(),
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path.resolve() / "root")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.init(root, settings=CHOSEN) as opened:
        yield opened


def refs(directory: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=directory).splitlines()
    return dict(line.split(" ", 1) for line in lines)


# Reading


def test_stock_git_shows_commits_trailers_and_traces(space: clia.Space, root: Path) -> None:
    ids = work(space)
    log = git("log", "agents/scout", "--notes=clia/trace/*", cwd=root)
    assert "looked around" in log
    assert "why both" in log
    assert "Clia-Type: session-merge" in log
    assert '"looked around"' in git("notes", "--ref=clia/trace/scout", "show", ids["traced"], cwd=root)
    listed = git("notes", "--ref=clia/trace/scout", "list", cwd=root).split()
    assert {ids["traced"], ids["merged"], ids["attached"]} <= set(listed)
    authors = git("log", "--format=%an %cn", "agents/scout", "--not", "main", cwd=root).split("\n")
    assert set(filter(None, authors)) == {"scout Tess", "helper Tess"}
    assert git("fsck", "--strict", "--no-dangling", cwd=root) == ""
    assert space.verify().clean


def test_gc_at_rest_loses_nothing(space: clia.Space, root: Path) -> None:
    ids = work(space)
    before = told(space)
    git("reflog", "expire", "--expire=now", "--all", cwd=root)
    git("gc", "--quiet", "--prune=now", cwd=root)
    assert git("count-objects", cwd=root).startswith("0 objects"), "everything was reachable and is packed"
    with clia.open(root, settings=CHOSEN) as again:
        for opened in (space, again):
            assert told(opened) == before
            assert opened.verify().clean
            assert opened.types.read(ids["object"]) == OBJECT
            assert opened.types.read(ids["briefing"]) == clia.Briefing("explore", "all of it", ids["behaviour"])
            assert isinstance(opened.types.read(ids["behaviour"]), clia.Behaviour)
            assert isinstance(opened.types.read(ids["attached"]), clia.ConsoleTrace)
            assert git("cat-file", "-t", ids["edge"], cwd=root) == "commit\n", "a retracted edge is still in the history"
    space.commit("scout", "finding", changes={"after": b"gc\n"})


def test_notes_of_stock_git_beside_ours_are_tolerated_and_kept(space: clia.Space, root: Path) -> None:
    ids = work(space)
    head = space.commit("scout", "finding", changes={"x": b"x\n"})
    git("notes", "--ref=clia/trace/scout", "add", "--message", "a person's note", head, cwd=root)
    assert space.verify().clean
    assert [row.trace.commit for row in space.traces.of_agent("scout")] == [ids["merged"], ids["traced"]]
    space.trace("scout", "console", "after the note")
    last = space.commit_with_trace("scout", "finding", changes={"x": b"y\n"})
    trace = space.traces.of(last)
    assert trace is not None
    assert [entry["text"] for entry in trace.entries] == ["after the note"]
    assert git("notes", "--ref=clia/trace/scout", "show", head, cwd=root) == "a person's note\n"
    assert '"looked around"' in git("notes", "--ref=clia/trace/scout", "show", ids["traced"], cwd=root)
    assert space.verify().clean


def test_commits_of_stock_git_on_an_agents_branch_are_read(space: clia.Space, root: Path) -> None:
    work(space)
    tree, head = space.show("scout").tree, space.head("scout")
    foreign = git("-c", "i18n.commitEncoding=no-such-code", "commit-tree", "-p", head, "-m", "by hand", tree, cwd=root).strip()
    git("update-ref", "refs/heads/agents/scout", foreign, head, cwd=root)
    assert space.show("scout").message.strip() == "by hand"
    assert space.show("scout").agent is None
    last = space.commit("scout", "finding", changes={"more": b"m\n"})
    assert [commit.cid for commit in space.history.own("scout")][:1] == [last]
    assert [commit.cid for commit in space.log("scout", limit=3)] == [last, foreign, head]
    assert space.verify().clean


# Clones


def test_a_clone_with_the_refs_fetched_is_the_same_space(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    space.land("scout", "main", no_ff=True)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as clone_space:
        assert told(clone_space) == told(space)
        report, clone_report = space.verify(), clone_space.verify()
        assert clone_report.clean
        assert report == clone_report


def test_stock_git_fetches_all_of_a_space_into_a_clone_with_live_state(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as clone_space:
        clone_space.spawn("newcomer", clia.Briefing("only there"))
        for opened, agent in ((space, "scout"), (clone_space, "newcomer")):
            opened.trace(agent, "console", "pending")
        components(space).archiving.put_away(["helper", "idle"])
        assert {"refs/clia-local/store", "refs/clia-local/bases"} <= refs(root).keys()
        git("fetch", "--quiet", "origin", *REFSPECS, cwd=clone)
        git("push", "--quiet", "origin", *REFSPECS, cwd=clone)
        assert refs(clone)["refs/clia-local/store"] != refs(root)["refs/clia-local/store"]
    for place in (root, clone):
        with clia.open(place, settings=CHOSEN) as opened:
            assert opened.doctor() == []
            assert opened.verify().clean


def test_init_in_a_clone_adopts_the_space_and_later_changes(space: clia.Space, root: Path, tmp_path: Path) -> None:
    ids = work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as clone_space:
        assert told(clone_space) == told(space)
        assert clone_space.verify().clean
        with pytest.raises(CliaError, match="another clone"):
            clone_space.commit("scout", "finding", {})
        # New work on both sides: separate, on one agent, and in chains that are merged.
        clone_space.agents.claim("helper")
        clone_space.agents.claim("scout")
        helper = clone_space.commit("helper", "finding", changes={"there": b"t\n"})
        clone_space.relate("helper", "knows", "scout")
        clone_space.traces.attach(ids["traced"], [{"text": "seen in the clone"}])
        clone_space.types.register("clone-type", "agent-commit")
        clone_space.spawn("newcomer", clia.Briefing("only there"))
        ahead = space.commit("scout", "finding", changes={"here": b"h\n"})
        space.traces.attach(ids["genesis"], [{"text": "seen at home"}])
        space.commit("helper", "finding", changes={"home": b"h\n"})
        space.relate("helper", "trusts", "scout")
        space.types.register("home-type", "agent-commit")
        adopted = {ref_change.ref: ref_change.what for ref_change in clone_space.adopt("origin")}
        assert adopted == {
            "refs/heads/agents/scout": "ahead",
            "refs/heads/agents/helper": "diverged",
            "refs/notes/clia/trace/scout": "united",
            "refs/clia/events/helper": "united",
            "refs/clia/types": "united",
        }
        assert clone_space.head("scout") == ahead
        assert clone_space.head("helper") == helper, "diverged refs are not changed"
        kinds = {edge.kind for edge in clone_space.relations() if edge.src == "helper"}
        assert kinds == {"knows", "trusts", "advises"}
        assert {"clone-type", "home-type"} <= clone_space.types().keys()
        texts = [clone_space.traces.of(ids[name]) for name in ("genesis", "traced")]
        assert [trace and trace.entries[0]["text"] for trace in texts] == ["seen at home", "seen in the clone"]
        assert clone_space.verify().clean
        assert {ref_change.ref for ref_change in clone_space.adopt("origin")} == {"refs/heads/agents/helper"}, (
            "nothing else to adopt"
        )


def test_a_pruning_fetch_keeps_local_refs(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    git("config", "fetch.prune", "true", cwd=clone)
    with clia.init(clone, settings=CHOSEN) as clone_space:
        clone_space.spawn("newcomer", clia.Briefing("only there"))
        clone_space.trace("newcomer", "console", "only there")
        clone_space.commit_with_trace("newcomer", "finding", {"a": b"a"})
        clone_space.relate("newcomer", "knows", "scout")
        clone_space.types.write({"type": "capability", "only": "there"})
        clone_space.agents.archive("newcomer")
        before, clone_refs = told(clone_space), refs(clone)
        for words in (("fetch", "--quiet"), ("fetch", "--quiet", "--prune", "origin"), ("fetch", "--quiet", "--all", "--prune")):
            git(*words, cwd=clone)
        assert refs(clone) == clone_refs
        assert told(clone_space) == before
        assert clone_space.verify().clean


def test_publish_pushes_agents_to_a_bare_remote_without_force(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    bare = tmp_path / "hub.git"
    git("init", "--quiet", "--bare", str(bare), cwd=tmp_path)
    git("remote", "add", "hub", str(bare), cwd=root)
    git("push", "--quiet", "hub", "main", cwd=root)
    assert "refs/clia/space" not in refs(bare), "nothing is published by default"
    states = {published.ref: published.state for published in space.publish(["scout"], "hub")}
    assert set(states.values()) == {"new"}
    hub_refs = refs(bare)
    assert states.keys() == hub_refs.keys() - {"refs/heads/main"}
    assert "refs/heads/agents/helper" not in hub_refs
    assert hub_refs["refs/notes/clia/trace/scout"] == refs(root)["refs/notes/clia/trace/scout"]
    assert git("fsck", "--strict", "--no-dangling", cwd=bare) == ""
    space.publish(["helper", "idle"], "hub", traces=False)
    assert "refs/clia/archive/agents/idle" in refs(bare)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--branch", "main", str(bare), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as clone_space:
        assert told(clone_space) == told(space)
        # The remote has moved since: everything is refused, and the other work is kept.
        clone_space.agents.claim("scout")
        their_cid = clone_space.commit("scout", "finding", changes={"theirs": b""})
        own_logs = {ref for ref in refs(clone).keys() - refs(bare).keys() if ref.startswith("refs/clia/log/")}
        assert len(own_logs) == 1, "a machine logs its moves in a chain of its own"
        states = {published.ref: published.state for published in clone_space.publish(["scout"])}
        assert {ref for ref, state in states.items() if state == "new"} == own_logs
        assert set(states.values()) <= {"moved", "same", "new"}
    space.commit("scout", "finding", changes={"ours": b""})
    assert "refused" in {published.state for published in space.publish(["scout"], "hub")}
    assert refs(bare)["refs/clia/agents-published/scout"] == their_cid


def test_verify_in_a_partial_clone_reports_missing_objects(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{root}", str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "--filter=blob:none", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as clone_space:
        report = clone_space.verify()
        assert report.findings == ()
        assert report.unseen
        assert clone_space.agents() == space.agents()
        assert [commit.cid for commit in clone_space.history.own("scout")] == [commit.cid for commit in space.history.own("scout")]


def test_a_partial_clone_opens(space: clia.Space, root: Path, tmp_path: Path) -> None:
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    git("clone", "--quiet", "--filter=blob:none", f"file://{root}", str(tmp_path / "clone"), cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=CHOSEN) as clone_space:
        assert clone_space.id == space.id


@pytest.mark.parametrize("is_reachable", [True, False], ids=["remote", "no remote"])
def test_a_partial_clone_fetches_the_files_and_traces_that_a_verb_needs_or_reports_that_they_are_missing(
    space: clia.Space, root: Path, tmp_path: Path, is_reachable: bool
) -> None:
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    space.spawn("scout", clia.Briefing("Look around"))
    space.commit("scout", "finding", changes={"a": b"1\n2\n3\n", "same": b"x\n"})
    git("branch", "people", "agents/scout", cwd=root)
    space.trace("scout", "console", "typed")
    commit = space.commit_with_trace("scout", "finding", changes={"a": b"0\n1\n2\n3\n", "new": b"n\n"})
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{root}", str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as mine:
        mine.spawn_at("me", clia.Briefing("Merge"), "origin/people")
        own = mine.commit("me", "finding", changes={"a": b"1\n2\n3\n4\n"})
        if is_reachable:
            trace = mine.traces.of(commit)
            assert trace is not None
            assert [entry["text"] for entry in trace.entries] == ["typed"]
            assert isinstance(mine.merge("me", "scout"), clia.Merged)
            assert mine.files("me") == {"a": b"0\n1\n2\n3\n4\n", "same": b"x\n", "new": b"n\n"}
            return
        root.rename(tmp_path / "away")
        for verb in (lambda: mine.traces.of(commit), lambda: mine.merge("me", "scout"), lambda: mine.files("scout")):
            with pytest.raises(clia.errors.NotFound) as caught:
                verb()
            assert caught.value.code == "not-fetched"
            assert "partial clone" in caught.value.message
        assert mine.head("me") == own


def test_verify_in_a_shallow_clone_reports_missing_objects(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--depth=1", f"file://{root}", str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "--depth=1", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as clone_space:
        report = clone_space.verify()
        assert report.findings == ()
        assert report.unseen
        assert clone_space.files("scout") == space.files("scout")


# Other shapes of repositories


def test_a_bare_repository_holds_a_space(tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git("clone", "--quiet", "--bare", str(repository(tmp_path / "people")), str(bare), cwd=tmp_path)
    git("remote", "remove", "origin", cwd=bare)
    with clia.init(bare, settings=CHOSEN) as space:
        work(space)
        landed = space.land("scout", "main", squash=True)
        assert isinstance(landed, clia.Landed)
        assert refs(bare)["refs/heads/main"] == landed.cid
        assert space.verify().clean
        before = told(space)
    with clia.open(bare / "refs", settings=CHOSEN) as again:
        assert told(again) == before


def test_a_linked_worktree_shares_the_space(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    linked = tmp_path / "linked"
    git("worktree", "add", "--quiet", "-b", "topic", str(linked), cwd=root)
    with clia.open(linked, settings=CHOSEN) as clone_space:
        assert told(clone_space) == told(space)
        clone_space.trace("scout", "console", "from the linked one")
        assert [entry["text"] for entry in space.traces.pending("scout")] == ["from the linked one"]
        cid = space.commit_with_trace("scout", "finding", changes={"l": b"l\n"})
        assert clone_space.head("scout") == cid
        assert clone_space.traces.pending("scout") == []
        landed = clone_space.land("scout", "topic")
        assert isinstance(landed, clia.Landed)
    assert (linked / "l").read_bytes() == b"l\n", "the user's worktree is updated"
    assert git("status", "--porcelain", cwd=linked) == ""
    assert not (linked / ".git").is_dir()
    assert space.verify().clean


def test_commits_are_signed_as_configured_and_git_verifies_them(root: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "signers").write_text(f"tess@example.org {Path(f'{key}.pub').read_text()}")
    for name, value in {
        "gpg.format": "ssh",
        "commit.gpgsign": "true",
        "user.signingkey": f"{key}.pub",
        "gpg.ssh.allowedSignersFile": str(tmp_path / "signers"),
    }.items():
        git("config", name, value, cwd=root)
    with clia.init(root, settings=CHOSEN) as space:
        ids = work(space)
        hostile = "a subject\n\n---\n# kept\n\ntrailing: line  "
        odd = space.commit("scout", "finding", changes={}, message=hostile, meta={"u": "\u2028"})
        assert (space.show(odd).message, space.show(odd).meta) == (hostile, {"u": "\u2028"})
        landed = space.land("scout", "main", no_ff=True)
        assert isinstance(landed, clia.Landed)
        git("verify-commit", ids["genesis"], ids["traced"], ids["merged"], odd, landed.cid, cwd=root)
        assert set(git("log", "--format=%G?", landed.cid, "--not", "main~1", cwd=root).split()) == {"G"}
        assert space.verify().clean


# The user's files


def test_no_verb_changes_the_users_head_index_worktree_or_hooks(space: clia.Space, root: Path, tmp_path: Path) -> None:
    git("branch", "other", cwd=root)
    (root / "README").write_text("dirty\n")
    (root / "staged").write_text("staged\n")
    git("add", "staged", cwd=root)
    (root / "untracked").write_text("untracked\n")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    names = [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "prepare-commit-msg",
        "reference-transaction",
        "post-checkout",
        "post-merge",
    ]
    names += ["pre-push", "post-rewrite", "pre-auto-gc", "post-index-change", "fsmonitor-watchman", "update", "post-update"]
    for name in names:
        (hooks / name).write_text(f"#!/bin/sh\necho ran > {tmp_path}/ran-{name}\nexit 1\n")
        (hooks / name).chmod(0o755)
    git("init", "--quiet", "--bare", str(tmp_path / "hub.git"), cwd=tmp_path)
    git("remote", "add", "hub", str(tmp_path / "hub.git"), cwd=root)
    user_files = [root / file_name for file_name in ("README", "staged", "untracked", ".git/index", ".git/HEAD")]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns, stat.S_IMODE(path.stat().st_mode)) for path in user_files}
    main = refs(root)["refs/heads/main"]
    ids = work(space)
    assert isinstance(space.land("scout", "other"), clia.Landed)
    space.checkout("scout", tmp_path / "place")
    (tmp_path / "place" / "more").write_text("m\n")
    space.commit_dir("scout", "finding", tmp_path / "place")
    space.blame("scout", "map")
    space.diff("scout")
    space.traces.search("looked")
    space.rebuild()
    space.traces.relink()
    space.publish(["scout"], "hub")
    space.adopt("hub")
    space.maintain(archive_idle_days=0)
    assert space.verify().clean
    assert space.traces.purge("scout", "looked around")
    assert space.show(ids["merged"]).kind == "session-merge"
    clia.init(root, settings=CHOSEN).close()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns, stat.S_IMODE(path.stat().st_mode)) for path in user_files} == before
    assert refs(root)["refs/heads/main"] == main
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ran-")] == []


def test_landing_stops_before_uncommitted_work(space: clia.Space, root: Path) -> None:
    work(space)
    (root / "map").write_text("mine\n")
    before = refs(root), (root / ".git/index").read_bytes()
    with pytest.raises(CliaError) as refused:
        space.land("scout", "main")
    assert refused.value.code == "uncommitted-work"
    assert (refs(root), (root / ".git/index").read_bytes()) == before
    assert (root / "map").read_text() == "mine\n"


def test_a_hostile_environment_is_ignored(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = repository(tmp_path / "trap")
    untouched = refs(trap), sorted(trap.rglob("*"))
    for name, value in {
        "GIT_DIR": trap / ".git",
        "GIT_COMMON_DIR": trap / ".git",
        "GIT_WORK_TREE": trap,
        "GIT_INDEX_FILE": trap / "index",
        "GIT_OBJECT_DIRECTORY": trap / "objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": trap / ".git/objects",
        "GIT_NAMESPACE": "trap",
        "GIT_CEILING_DIRECTORIES": root.parent,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "commit.gpgsign",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_NOTES_REF": "refs/notes/trap",
        "GIT_REPLACE_REF_BASE": "refs/trap/",
    }.items():
        monkeypatch.setenv(name, str(value))
    with clia.init(root, settings=CHOSEN) as space:
        work(space)
        assert isinstance(space.land("scout", "main"), clia.Landed)
        space.checkout("scout", tmp_path / "place")
        space.commit_dir("scout", "finding", tmp_path / "place")
        space.maintain()
        assert space.verify().clean
    assert (refs(trap), sorted(trap.rglob("*"))) == untouched
    assert "refs/heads/agents/scout" in refs(root)


# Refusals


def extended(directory: Path, name: str, value: str) -> Path:
    git("config", "core.repositoryFormatVersion", "1", cwd=directory)
    with (directory / ".git/config").open("a") as file:
        file.write(f"[extensions]\n\t{name} = {value}\n")
    return directory


@pytest.mark.parametrize(
    ("kind", "code"), [("sha256", "unsupported-object-format"), ("reftable", "unsupported-ref-format"), ("unknown", "git-error")]
)
def test_an_unsupported_repository_format_is_refused_and_unchanged(kind: str, code: str, tmp_path: Path) -> None:
    directory = tmp_path / "other"
    if kind == "sha256":
        repository(directory, "--object-format=sha256")
    else:
        extended(repository(directory), *(("refStorage", "reftable") if kind == "reftable" else ("noSuchThing", "true")))
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    for call in (clia.init, clia.open):
        with pytest.raises(CliaError) as refused:
            call(directory, settings=CHOSEN)
        assert refused.value.code == code
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def unlogged(refs: dict[str, str]) -> dict[str, str]:
    """Without the log, which has the moves that were undone, too."""
    return {ref: cid for ref, cid in refs.items() if not ref.startswith("refs/clia/log/")}


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_named_agents_is_a_conflict(space: clia.Space, root: Path, packed: bool) -> None:
    git("branch", "agents", cwd=root)
    if packed:
        git("pack-refs", "--all", cwd=root)
    before = unlogged(refs(root))
    with pytest.raises(CliaError) as refused:
        space.spawn("scout", clia.Briefing("explore"))
    assert refused.value.code == "ref-clash"
    assert refused.value.fields["other"] == "refs/heads/agents"
    assert unlogged(refs(root)) == before, "no record without its branch"
    git("branch", "--delete", "--force", "agents", cwd=root)
    space.spawn("scout", clia.Briefing("explore"))
    assert space.verify().clean
