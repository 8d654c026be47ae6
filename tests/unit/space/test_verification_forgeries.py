"""Forged and damaged events, notes and refs: ignored by the verbs and reported by ``verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.testing import components
from support import git
from support.plain_git import commit_tree, git_with_input, rev
from support.spaces import BRIEFING, commit_with_trace, settings, texts, trace_texts

if TYPE_CHECKING:
    from pathlib import Path


NOTES = "refs/notes/clia/trace/scout"


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
    assert space.history.own("scout")[-1].kind == "spawn"
    assert [(edge.src, edge.kind, edge.dst) for edge in space.relations()] == [("scout", "reviews", "lead")]
    report = space.verify()
    assert report.clean, report.findings
    assert space.rebuild() == 1
    assert space.verify().clean


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_event_is_ignored(scout: clia.Space, repo: Path, forgery: str) -> None:
    scout.spawn("lead", BRIEFING)
    scout.relations.add_review("scout", "lead")
    forged = commit_tree(repo, FORGED[forgery], rev(repo, "refs/clia/events/scout"))
    git("update-ref", "refs/clia/events/scout", forged, cwd=repo)
    check_readable(scout)
    assert isinstance(scout.land("scout", "main"), clia.Landed)


def test_forged_meta_and_notes_are_ignored(scout: clia.Space, repo: Path) -> None:
    scout.spawn("lead", BRIEFING)
    scout.relations.add_review("scout", "lead")
    commit = commit_with_trace(scout, "mine", a=b"1")
    message = f"x\n\nClia-Agent: scout\nClia-Type: finding\nClia-Meta: {DEEP_JSON}\n"
    forged = commit_tree(repo, message, commit, tree=rev(repo, "agents/scout^{tree}"))
    git("update-ref", "refs/heads/agents/scout", forged, cwd=repo)
    note = git_with_input(repo, DEEP_JSON, "hash-object", "-w", "--stdin")
    git("notes", "--ref=clia/trace/scout", "add", "-C", note, forged, cwd=repo)
    check_readable(scout)
    assert scout.show(forged).meta == {}
    assert scout.traces.of(forged) is None
    assert trace_texts(scout, commit) == ["mine"]
    assert [hit.entry["text"] for hit in scout.traces.search("mine")] == ["mine"]
    assert scout.blame("scout", "a")[0].commit == commit
    assert scout.traces.relink() == []


def test_a_missing_notes_tree_stops_a_commit_before_anything_moves(scout: clia.Space, repo: Path) -> None:
    commit_with_trace(scout, "one", a=b"1")
    tree = rev(repo, f"{NOTES}^{{tree}}")
    (repo / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with clia.open(repo, settings=settings()) as opened:
        head = opened.head("scout")
        opened.trace("scout", "console", "two")
        with pytest.raises(errors.CliaError):
            opened.commit_with_trace("scout", "finding", {"a": b"2"})
        assert opened.head("scout") == head
        assert texts(opened.traces.pending("scout")) == ["two"]
        assert components(opened).envelope.unfinished() == []
        commit = opened.commit("scout", "finding", {"a": b"3"})
        assert opened.head("scout") == commit


def test_verify_in_a_partial_clone_counts_the_traces_it_cannot_read(scout: clia.Space, repo: Path, tmp_path: Path) -> None:
    commit = commit_with_trace(scout, "one", a=b"1")
    blob = scout.traces.id_of(commit)
    scout.land("scout", "main")
    git("config", "uploadpack.allowFilter", "true", cwd=repo)
    git("clone", "-q", "--no-checkout", "--filter=blob:none", repo.as_uri(), "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as clone:
        report = clone.verify()
    assert report.clean, report.findings
    assert report.traces == 1
    assert any(str(blob) in line for line in report.unseen), report.unseen


def test_verify_reports_a_trace_of_another_agent(scout: clia.Space, repo: Path) -> None:
    commit = scout.commit("scout", "finding", {"a": b"1"})
    note = scout.types.write(clia.ConsoleTrace(commit, "other", ({"text": "x", "kind": "console", "at": "now"},)))
    git("notes", "--ref=clia/trace/scout", "add", "-C", note, commit, cwd=repo)
    assert [(finding.code, finding.cid) for finding in scout.verify().findings] == [("misbound", note)]


def test_verify_reports_a_record_with_another_briefing(scout: clia.Space, repo: Path) -> None:
    other = scout.types.write(clia.Briefing("Another one"))
    tree = git_with_input(repo, f"100644 blob {other}\tbriefing.json\n", "mktree")
    git("update-ref", "refs/clia/agents/scout", commit_tree(repo, "record\n", tree=tree), cwd=repo)
    assert [finding.code for finding in scout.verify().findings] == ["record-differs"]


def test_verify_reports_what_git_broke_in_the_chain_of_a_behaviour(scout: clia.Space, repo: Path) -> None:
    first_version = scout.behaviours.add("look", "Look around.", "prompt").cid
    scout.behaviours.retire("look", scout.behaviours.propose("look", "Look twice.").cid)
    assert scout.verify().clean
    ref, other = "refs/clia/behaviours/look", scout.types.write(clia.Briefing("not a behaviour"))
    intact = git("rev-parse", ref, cwd=repo).strip()
    files = git("ls-tree", "-r", intact, cwd=repo)
    empty = next(line.split()[2] for line in files.splitlines() if "adopted/" in line)
    broken = {
        f"versions/{other}.json": (other, {other}),
        f"versions/{empty}.json": (first_version, {first_version}),
        "current": (git_with_input(repo, f"{empty}\n", "hash-object", "-w", "--stdin"), {empty}),
        f"adopted/{other}": (empty, {other}),
        f"retired/{other}": (empty, {other}),
    }
    for path, (blob, broken_cids) in broken.items():
        git("read-tree", intact, cwd=repo)
        git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", cwd=repo)
        tree = git("write-tree", cwd=repo).strip()
        git("update-ref", ref, commit_tree(repo, "by hand\n", tree=tree), cwd=repo)
        findings = scout.verify().findings
        assert {(finding.code, finding.ref, finding.cid) for finding in findings} == {
            ("broken-behaviour", ref, cid) for cid in broken_cids
        }, path
    git("update-ref", ref, intact, cwd=repo)
    assert scout.verify().clean
