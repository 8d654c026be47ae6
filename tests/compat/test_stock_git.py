"""A space is plain git: stock git reads it, keeps it, clones it and signs it, and whatever people have in the repository stays."""

from __future__ import annotations

import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import CliaError
from support import git

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2025, 1, 1, tzinfo=UTC)
CHOSEN = clia.Settings(durable=False, clock=lambda: NOW, person=("Tess", "tess@example.org"))
REFSPECS = ["refs/clia/*:refs/clia/*", "refs/notes/clia/*:refs/notes/clia/*", "refs/heads/agents/*:refs/heads/agents/*"]
OBJECT = {"type": "capability", "peer": "p", "trigger": "push"}


def repository(where: Path, *words: str) -> Path:
    """A repository of people with one commit on main."""
    where.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", "--initial-branch=main", *words, cwd=where)
    (where / "README").write_text("read me\n")
    git("add", "README", cwd=where)
    git("commit", "--quiet", "--message", "people", cwd=where)
    return where


def work(space: clia.Space) -> dict[str, str]:
    """Some of everything that a space can hold; the ids to look for."""
    found = {"object": space.write(OBJECT), "behaviour": space.add_behaviour("careful", "Be careful.", "prompt").cid}
    space.register_type("review", "agent-commit")
    scout = space.spawn_at("scout", clia.Briefing("explore", "all of it", found["behaviour"]), "main")
    found |= {"briefing": scout.briefing, "genesis": scout.genesis}
    space.trace("scout", "console", "looked around")
    found["traced"] = space.commit_with_trace("scout", "finding", changes={"map": b"here\n"}, message="a map", meta={"score": 1})
    space.spawn_from("helper", clia.Briefing("help"), "scout")
    space.commit("helper", "review", changes={"map": b"there\n", "notes": b"n\n"})
    space.commit("scout", "test", changes={"map": b"nowhere\n"})
    refused = space.merge("scout", "helper")
    assert isinstance(refused, clia.Conflicts)
    merged = space.resolve("scout", "helper", changes={"map": b"both\n"}, ours=refused.ours, theirs=refused.theirs)
    found["merged"] = merged.cid
    found["attached"] = space.attach_trace(found["merged"], [{"text": "why both"}])
    found["edge"] = space.reviews("helper", "scout")
    found["kept-edge"] = space.relate("helper", "advises", "scout")
    space.unrelate("helper", "reviews", "scout")
    space.spawn("idle", clia.Briefing("wait"))
    space.archive("idle")
    return found


def told(space: clia.Space) -> dict[str, Any]:
    """All that a space says of itself."""
    everyone = [*space.agents(), *space.agents(archived=True)]
    return {
        "id": space.id,
        "agents": (space.agents(), space.agents(archived=True)),
        "logs": {name: space.session_log(name) for name in everyone},
        "files": {name: space.files(name) for name in everyone},
        "records": {name: space.record_of(name) for name in everyone},
        "traces": {name: space.session_traces(name) for name in everyone},
        "landings": {name: space.landings(name) for name in everyone},
        "relations": [(each.src, each.kind, each.dst, each.origin) for each in space.relations()],
        "types": space.types(),
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path.resolve() / "root")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.init(root, settings=CHOSEN) as made:
        yield made


def refs(where: Path) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=where).splitlines()
    return dict(line.split(" ", 1) for line in lines)


# Reading


def test_stock_git_shows_commits_trailers_and_traces(space: clia.Space, root: Path) -> None:
    made = work(space)
    shown = git("log", "agents/scout", "--notes=clia/trace/*", cwd=root)
    assert "looked around" in shown
    assert "why both" in shown
    assert "Clia-Type: session-merge" in shown
    assert '"looked around"' in git("notes", "--ref=clia/trace/scout", "show", made["traced"], cwd=root)
    listed = git("notes", "--ref=clia/trace/scout", "list", cwd=root).split()
    assert {made["traced"], made["merged"], made["attached"]} <= set(listed)
    authors = git("log", "--format=%an %cn", "agents/scout", "--not", "main", cwd=root).split("\n")
    assert set(filter(None, authors)) == {"scout Tess", "helper Tess"}
    assert git("fsck", "--strict", "--no-dangling", cwd=root) == ""
    assert space.verify().clean


def test_gc_at_rest_loses_nothing(space: clia.Space, root: Path) -> None:
    made = work(space)
    before = told(space)
    git("reflog", "expire", "--expire=now", "--all", cwd=root)
    git("gc", "--quiet", "--prune=now", cwd=root)
    assert git("count-objects", cwd=root).startswith("0 objects"), "all of it was reachable, and is packed"
    with clia.open(root, settings=CHOSEN) as again:
        for each in (space, again):
            assert told(each) == before
            assert each.verify().clean
            assert each.read(made["object"]) == OBJECT
            assert each.read(made["briefing"]) == clia.Briefing("explore", "all of it", made["behaviour"])
            assert isinstance(each.read(made["behaviour"]), clia.Behaviour)
            assert isinstance(each.read(made["attached"]), clia.ConsoleTrace)
            assert git("cat-file", "-t", made["edge"], cwd=root) == "commit\n", "what was retracted is still told"
    space.commit("scout", "finding", changes={"after": b"gc\n"})


def test_notes_of_stock_git_beside_ours_are_tolerated_and_kept(space: clia.Space, root: Path) -> None:
    made = work(space)
    head = space.commit("scout", "finding", changes={"x": b"x\n"})
    git("notes", "--ref=clia/trace/scout", "add", "--message", "a person's note", head, cwd=root)
    assert space.verify().clean
    assert [each.trace.commit for each in space.session_traces("scout")] == [made["merged"], made["traced"]]
    space.trace("scout", "console", "after the note")
    last = space.commit_with_trace("scout", "finding", changes={"x": b"y\n"})
    trace = space.trace_for(last)
    assert trace is not None
    assert [each["text"] for each in trace.entries] == ["after the note"]
    assert git("notes", "--ref=clia/trace/scout", "show", head, cwd=root) == "a person's note\n"
    assert '"looked around"' in git("notes", "--ref=clia/trace/scout", "show", made["traced"], cwd=root)
    assert space.verify().clean


def test_commits_of_stock_git_on_an_agents_branch_are_read(space: clia.Space, root: Path) -> None:
    work(space)
    tree, head = space.show("scout").tree, space.head("scout")
    foreign = git("-c", "i18n.commitEncoding=no-such-code", "commit-tree", "-p", head, "-m", "by hand", tree, cwd=root).strip()
    git("update-ref", "refs/heads/agents/scout", foreign, head, cwd=root)
    assert space.show("scout").message.strip() == "by hand"
    assert space.show("scout").agent is None
    last = space.commit("scout", "finding", changes={"more": b"m\n"})
    assert [each.cid for each in space.session_log("scout")][:1] == [last]
    assert [each.cid for each in space.log("scout", limit=3)] == [last, foreign, head]
    assert space.verify().clean


# Clones


def test_a_clone_with_the_refs_fetched_is_the_same_space(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    space.land("scout", "main", no_ff=True)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as other:
        assert told(other) == told(space)
        ours, theirs = space.verify(), other.verify()
        assert theirs.clean
        assert ours == theirs


def test_init_in_a_clone_adopts_the_space_and_what_comes_later(space: clia.Space, root: Path, tmp_path: Path) -> None:
    made = work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as other:
        assert told(other) == told(space)
        assert other.verify().clean
        with pytest.raises(CliaError, match="another clone"):
            other.commit("scout", "finding", {})
        # New work on both sides: some of it apart, some of it of one agent, some in chains that unite.
        other.claim("helper")
        other.claim("scout")
        helper = other.commit("helper", "finding", changes={"there": b"t\n"})
        other.relate("helper", "knows", "scout")
        other.attach_trace(made["traced"], [{"text": "seen in the clone"}])
        other.register_type("clone-type", "agent-commit")
        other.spawn("newcomer", clia.Briefing("only there"))
        ahead = space.commit("scout", "finding", changes={"here": b"h\n"})
        space.attach_trace(made["genesis"], [{"text": "seen at home"}])
        space.commit("helper", "finding", changes={"home": b"h\n"})
        space.relate("helper", "trusts", "scout")
        space.register_type("home-type", "agent-commit")
        found = {each.ref: each.what for each in other.adopt("origin")}
        assert found == {
            "refs/heads/agents/scout": "ahead",
            "refs/heads/agents/helper": "diverged",
            "refs/notes/clia/trace/scout": "united",
            "refs/clia/events/helper": "united",
            "refs/clia/types": "united",
        }
        assert other.head("scout") == ahead
        assert other.head("helper") == helper, "what diverged is left alone"
        kinds = {each.kind for each in other.relations() if each.src == "helper"}
        assert kinds == {"knows", "trusts", "advises"}
        assert {"clone-type", "home-type"} <= other.types().keys()
        texts = [other.trace_for(made[each]) for each in ("genesis", "traced")]
        assert [each and each.entries[0]["text"] for each in texts] == ["seen at home", "seen in the clone"]
        assert other.verify().clean
        assert {each.ref for each in other.adopt("origin")} == {"refs/heads/agents/helper"}, "there is no more to take"


def test_a_pruning_fetch_loses_nothing_that_is_only_here(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    git("config", "fetch.prune", "true", cwd=clone)
    with clia.init(clone, settings=CHOSEN) as other:
        other.spawn("newcomer", clia.Briefing("only there"))
        other.trace("newcomer", "console", "only there")
        other.commit_with_trace("newcomer", "finding", {"a": b"a"})
        other.relate("newcomer", "knows", "scout")
        other.write({"type": "capability", "only": "there"})
        other.archive("newcomer")
        before, kept = told(other), refs(clone)
        for words in (("fetch", "--quiet"), ("fetch", "--quiet", "--prune", "origin"), ("fetch", "--quiet", "--all", "--prune")):
            git(*words, cwd=clone)
        assert refs(clone) == kept
        assert told(other) == before
        assert other.verify().clean


def test_publish_sends_agents_to_a_bare_remote_and_forces_nothing(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    bare = tmp_path / "hub.git"
    git("init", "--quiet", "--bare", str(bare), cwd=tmp_path)
    git("remote", "add", "hub", str(bare), cwd=root)
    git("push", "--quiet", "hub", "main", cwd=root)
    assert "refs/clia/space" not in refs(bare), "nothing is published unless asked"
    sent = {each.ref: each.state for each in space.publish(["scout"], "hub")}
    assert set(sent.values()) == {"new"}
    there = refs(bare)
    assert sent.keys() == there.keys() - {"refs/heads/main"}
    assert "refs/heads/agents/helper" not in there
    assert there["refs/notes/clia/trace/scout"] == refs(root)["refs/notes/clia/trace/scout"]
    assert git("fsck", "--strict", "--no-dangling", cwd=bare) == ""
    space.publish(["helper", "idle"], "hub", traces=False)
    assert "refs/clia/archive/agents/idle" in refs(bare)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--branch", "main", str(bare), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=CHOSEN) as other:
        assert told(other) == told(space)
        # The remote has moved meanwhile: all of it is refused, and nothing of the others' work is lost.
        other.claim("scout")
        theirs = other.commit("scout", "finding", changes={"theirs": b""})
        assert {each.state for each in other.publish(["scout"])} <= {"moved", "same"}
    space.commit("scout", "finding", changes={"ours": b""})
    assert "refused" in {each.state for each in space.publish(["scout"], "hub")}
    assert refs(bare)["refs/heads/agents/scout"] == theirs


def test_verify_in_a_partial_clone_says_what_it_cannot_see(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{root}", str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "--filter=blob:none", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as other:
        report = other.verify()
        assert report.findings == ()
        assert report.unseen
        assert other.agents() == space.agents()
        assert [each.cid for each in other.session_log("scout")] == [each.cid for each in space.session_log("scout")]


def test_a_partial_clone_opens(space: clia.Space, root: Path, tmp_path: Path) -> None:
    git("config", "uploadpack.allowFilter", "true", cwd=root)
    git("clone", "--quiet", "--filter=blob:none", f"file://{root}", str(tmp_path / "clone"), cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=CHOSEN) as other:
        assert other.id == space.id


def test_verify_in_a_shallow_clone_says_what_it_cannot_see(space: clia.Space, root: Path, tmp_path: Path) -> None:
    work(space)
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--depth=1", f"file://{root}", str(clone), cwd=tmp_path)
    git("fetch", "--quiet", "--depth=1", "origin", *REFSPECS, cwd=clone)
    with clia.open(clone, settings=CHOSEN) as other:
        report = other.verify()
        assert report.findings == ()
        assert report.unseen
        assert other.files("scout") == space.files("scout")


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
    with clia.open(linked, settings=CHOSEN) as other:
        assert told(other) == told(space)
        other.trace("scout", "console", "from the linked one")
        assert [each["text"] for each in space.trace_pending("scout")] == ["from the linked one"]
        made = space.commit_with_trace("scout", "finding", changes={"l": b"l\n"})
        assert other.head("scout") == made
        assert other.trace_pending("scout") == []
        landed = other.land("scout", "topic")
        assert isinstance(landed, clia.Landed)
    assert (linked / "l").read_bytes() == b"l\n", "the worktree of people goes along"
    assert git("status", "--porcelain", cwd=linked) == ""
    assert not (linked / ".git").is_dir()
    assert space.verify().clean


def test_commits_are_signed_as_their_owner_has_set_up_and_git_verifies_them(root: Path, tmp_path: Path) -> None:
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
        made = work(space)
        hostile = "a subject\n\n---\n# kept\n\ntrailing: line  "
        odd = space.commit("scout", "finding", changes={}, message=hostile, meta={"u": "\u2028"})
        assert (space.show(odd).message, space.show(odd).meta) == (hostile, {"u": "\u2028"})
        landed = space.land("scout", "main", no_ff=True)
        assert isinstance(landed, clia.Landed)
        git("verify-commit", made["genesis"], made["traced"], made["merged"], odd, landed.cid, cwd=root)
        assert set(git("log", "--format=%G?", landed.cid, "--not", "main~1", cwd=root).split()) == {"G"}
        assert space.verify().clean


# What belongs to people


def test_no_verb_touches_head_index_worktree_or_hooks_of_people(space: clia.Space, root: Path, tmp_path: Path) -> None:
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
    mine = [root / each for each in ("README", "staged", "untracked", ".git/index", ".git/HEAD")]
    before = {each: (each.read_bytes(), each.stat().st_mtime_ns, stat.S_IMODE(each.stat().st_mode)) for each in mine}
    main = refs(root)["refs/heads/main"]
    made = work(space)
    assert isinstance(space.land("scout", "other"), clia.Landed)
    space.checkout("scout", tmp_path / "place")
    (tmp_path / "place" / "more").write_text("m\n")
    space.commit_dir("scout", "finding", tmp_path / "place")
    space.blame("scout", "map")
    space.diff("scout")
    space.trace_search("looked")
    space.rebuild()
    space.relink()
    space.publish(["scout"], "hub")
    space.adopt("hub")
    space.maintain(archive_idle_days=0)
    assert space.verify().clean
    assert space.trace_purge("scout", "looked around")
    assert space.show(made["merged"]).kind == "session-merge"
    clia.init(root, settings=CHOSEN).close()
    assert {each: (each.read_bytes(), each.stat().st_mtime_ns, stat.S_IMODE(each.stat().st_mode)) for each in mine} == before
    assert refs(root)["refs/heads/main"] == main
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("ran-")] == []


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


# What cannot be


def extended(where: Path, name: str, value: str) -> Path:
    git("config", "core.repositoryFormatVersion", "1", cwd=where)
    with (where / ".git/config").open("a") as file:
        file.write(f"[extensions]\n\t{name} = {value}\n")
    return where


@pytest.mark.parametrize(
    ("kind", "code"), [("sha256", "unsupported-object-format"), ("reftable", "unsupported-ref-format"), ("unknown", "git-error")]
)
def test_a_repository_of_a_kind_that_cannot_be_read_is_refused_and_unchanged(kind: str, code: str, tmp_path: Path) -> None:
    where = tmp_path / "other"
    if kind == "sha256":
        repository(where, "--object-format=sha256")
    else:
        extended(repository(where), *(("refStorage", "reftable") if kind == "reftable" else ("noSuchThing", "true")))
    before = {each: each.read_bytes() for each in where.rglob("*") if each.is_file()}
    for call in (clia.init, clia.open):
        with pytest.raises(CliaError) as refused:
            call(where, settings=CHOSEN)
        assert refused.value.code == code
    assert {each: each.read_bytes() for each in where.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_named_agents_is_in_the_way(space: clia.Space, root: Path, packed: bool) -> None:
    git("branch", "agents", cwd=root)
    if packed:
        git("pack-refs", "--all", cwd=root)
    before = refs(root)
    with pytest.raises(CliaError) as refused:
        space.spawn("scout", clia.Briefing("explore"))
    assert refused.value.code == "ref-clash"
    assert refused.value.fields["other"] == "refs/heads/agents"
    assert refs(root) == before, "no record without its branch"
    git("branch", "--delete", "--force", "agents", cwd=root)
    space.spawn("scout", clia.Briefing("explore"))
    assert space.verify().clean
