from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.spaces import BRIEFING, settings, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def bound(space: clia.Space, commit: str) -> list[str]:
    """The texts of the trace that a commit has."""
    trace = space.trace_for(commit)
    assert trace is not None
    return texts(trace.entries)


def traced(space: clia.Space, text: str, **changes: bytes) -> str:
    space.trace("scout", "console", text)
    return space.commit_with_trace("scout", "finding", changes=changes)


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
