"""Stock git reads, keeps and transfers decisions, checkpoints, ends of sessions and flows."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support import git
from support.session_flows import APPROVAL, COUNTING
from support.session_spaces import SessionSpace, ends, pending_requests, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

RATIONALE = "It is a good plan.\n\nShort, and it can be undone.\n---\nA line that looks like a divider."


@pytest.fixture
def space(place: SessionSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        with_agents(opened, "scout", approval=APPROVAL)
        opened.define("approval", APPROVAL + "\n", why="a second version")
        opened.commit("scout", "finding", {"a": b"1\n"})
        yield opened


@pytest.fixture
def decided(space: clia.Space) -> clia.Decision:
    space.start("scout", "approval", {"goal": "tidy", "é": "ü"})
    space.commit_with_trace("scout", "finding", changes={"a": b"2\n"})
    space.resume("scout", "sweep")
    space.commit("scout", "finding", changes={"a": b"3\n"})
    return space.decide("scout", "approve", RATIONALE, by="Ann Öz <ann@example.org>")


def read(*words: str, cwd: Path) -> Any:
    return json.loads(git(*words, cwd=cwd))


def test_git_log_shows_a_decision_with_its_reason_and_trailers(place: SessionSpace, decided: clia.Decision) -> None:
    log_line = git("log", "-1", "--format=%an|%cn|%s", "agents/scout", cwd=place.root).strip()
    assert log_line == "scout|Ann Öz|It is a good plan."
    lines = git("log", "-1", "--format=%(trailers:only,unfold)", "agents/scout", cwd=place.root).splitlines()
    trailers = dict(line.split(": ", 1) for line in lines if line)
    assert {key: trailers[key] for key in ("Clia-Type", "Clia-Request", "Clia-Tag", "Clia-Value", "Clia-By")} == {
        "Clia-Type": "decision",
        "Clia-Request": "1.2",
        "Clia-Tag": "go-on",
        "Clia-Value": '"approve"',
        "Clia-By": "Ann Öz <ann@example.org>",
    }
    message = git("cat-file", "commit", decided.cid, cwd=place.root).split("\n\n", 1)[1]
    words = ["git", "interpret-trailers", "--no-divider", "--parse"]
    parsed = subprocess.run(words, input=message, capture_output=True, text=True, check=True, cwd=place.root).stdout
    assert dict(line.split(": ", 1) for line in parsed.splitlines()) == trailers
    assert git("diff", "--stat", f"{decided.cid}^", decided.cid, cwd=place.root) == ""


def test_git_notes_show_checkpoints_and_traces(place: SessionSpace, decided: clia.Decision) -> None:
    checkpoint = read("notes", "--ref=clia/session/scout", "show", decided.cid, cwd=place.root)
    assert (checkpoint["type"], checkpoint["agent"], checkpoint["session"]) == ("session", "scout", "1")
    commits = git("rev-list", "--max-count=3", "agents/scout", cwd=place.root).split()
    listed = git("notes", "--ref=clia/session/scout", "list", cwd=place.root).split()[1::2]
    assert sorted(listed) == sorted(commits)
    first = read("notes", "--ref=clia/session/scout", "show", commits[2], cwd=place.root)
    assert first["origin"]["input"] == {"goal": "tidy", "é": "ü"}
    trace = read("notes", "--ref=clia/trace/scout", "show", decided.cid, cwd=place.root)
    assert [entry["kind"] for entry in trace["entries"]] == ["session"]
    log = git("log", "agents/scout", "--notes=clia/session/*", "--notes=clia/trace/*", cwd=place.root)
    assert "planning tidy" in log
    assert '"type":"session"' in log


def test_git_shows_flows_with_every_version_and_who_defined_them(place: SessionSpace, space: clia.Space) -> None:
    ref = "refs/clia/behaviours/approval"
    flow = space.flow("approval")
    assert git("show", f"{ref}:current", cwd=place.root).strip() == flow.cid
    listed = git("ls-tree", "--name-only", f"{ref}:versions", cwd=place.root).split()
    assert sorted(listed) == sorted(f"{cid}.json" for cid in flow.versions)
    assert read("show", f"{ref}:versions/{flow.cid}.json", cwd=place.root)["body"] == APPROVAL + "\n"
    assert git("rev-parse", f"{ref}:versions/{flow.cid}.json", cwd=place.root).strip() == flow.cid
    assert git("log", "--format=%an %s", ref, cwd=place.root).splitlines() == ["Tess a second version", "Tess define approval"]


def test_git_shows_how_sessions_ended(place: SessionSpace, decided: clia.Decision) -> None:
    assert decided.session.status == "finished"
    log_line = git("log", "--format=%an|%s", "refs/clia/events/scout", cwd=place.root).strip()
    assert log_line == "scout|session 1 of scout finished: flow approval"
    event = read("log", "-1", "--format=%(trailers:key=Clia-Event,valueonly)", "refs/clia/events/scout", cwd=place.root)
    assert (event["event"], event["status"], event["session"], event["resumes"]) == ("session-ended", "finished", "1", 2)


def test_git_fsck_has_no_findings(place: SessionSpace, space: clia.Space, decided: clia.Decision) -> None:
    space.fork("scout", "other", decided.cid)
    space.decide("other", "reject")
    space.ask("scout", {"question": "?"})
    space.decide("scout", {"any": ["thing", None, 1.5]})
    assert git("fsck", "--strict", "--no-dangling", cwd=place.root) == ""
    assert space.verify().clean


def test_gc_and_pack_refs_keep_what_a_fork_needs(place: SessionSpace, space: clia.Space, decided: clia.Decision) -> None:
    commits = git("rev-list", "--max-count=3", "agents/scout", cwd=place.root).split()
    before = [pending_requests(space.fork("scout", f"before-{number}", commit)) for number, commit in enumerate(commits)]
    git("pack-refs", "--all", cwd=place.root)
    git("reflog", "expire", "--expire=now", "--all", cwd=place.root)
    git("gc", "--quiet", "--prune=now", cwd=place.root)
    assert git("count-objects", cwd=place.root).startswith("0 objects"), "everything was reachable and is packed"
    place.lose_store()
    with place.open() as again:
        assert [pending_requests(again.fork("scout", f"after-{number}", commit)) for number, commit in enumerate(commits)] == before
        assert again.flow("approval") == space.flow("approval")
        assert again.verify().clean


def test_notes_rewritten_by_stock_git_are_read(place: SessionSpace, space: clia.Space) -> None:
    """``git notes add`` flattens the fan-out of the whole tree."""
    space.define("counting", COUNTING)
    space.start("scout", "counting", 9)
    cids = []
    for value in range(6):
        space.resume("scout", value)
        cids.append(space.commit("scout", "finding", changes={"a": str(value).encode()}))
    git("notes", "--ref=clia/session/scout", "add", "-m", "a person's remark", str(space.genesis("scout")), cwd=place.root)
    with place.open() as again:
        for number, commit in enumerate(cids):
            assert again.fork("scout", f"fork-{number}", commit).resumes == [*range(number + 1)]
        again.resume("scout", 6)
        later = again.commit("scout", "finding", changes={"a": b"more"})
        assert again.fork("scout", "later", later).resumes == [*range(7)]


def test_a_mirror_of_the_repository_has_complete_sessions(
    place: SessionSpace, space: clia.Space, decided: clia.Decision, tmp_path: Path
) -> None:
    expected = space.fork("scout", "here", decided.cid)
    git("clone", "--quiet", "--mirror", str(place.root), str(tmp_path / "mirror"), cwd=tmp_path)
    with SessionSpace(tmp_path / "mirror").open() as mirror:
        refused("store-lost", lambda: mirror.fork("scout", "there", decided.cid))
        mirror.doctor(repair=True)
        assert pending_requests(mirror.fork("scout", "there", decided.cid)) == pending_requests(expected)
        assert mirror.decide("there", "reject").session.result == {"status": "rejected"}
        assert mirror.verify().clean


def test_a_decision_on_a_checked_out_branch_does_not_change_the_users_files(
    place: SessionSpace, space: clia.Space, tmp_path: Path
) -> None:
    space.ask("scout", {"question": "?"})
    git("worktree", "add", "--quiet", str(tmp_path / "tree"), "agents/scout", cwd=place.root)
    (tmp_path / "tree/a").write_text("work in progress\n")
    decision = space.decide("scout", "yes")
    assert git("rev-parse", "HEAD", cwd=tmp_path / "tree").strip() == decision.cid
    assert (tmp_path / "tree/a").read_text() == "work in progress\n"
    assert git("status", "--porcelain", cwd=tmp_path / "tree") == " M a\n"


def appended_by_git(place: SessionSpace, ref: str) -> None:
    """Append a commit to a chain with plain git."""
    tip = git("for-each-ref", "--format=%(objectname)", ref, cwd=place.root).split()
    tree = git("rev-parse", f"{tip[0]}^{{tree}}", cwd=place.root).strip()
    cid = git("commit-tree", tree, "-p", tip[0], "-m", "by hand", cwd=place.root).strip()
    git("update-ref", ref, cid, cwd=place.root)


class Meddler:
    """Moves a chain with plain git, once, at a step of a verb."""

    def __init__(self, place: SessionSpace, step: str, ref: str) -> None:
        self._here, self._step, self._ref = place, step, ref
        self.on = False

    def __call__(self, step: str) -> None:
        if self.on and step == self._step:
            self.on = False
            appended_by_git(self._here, self._ref)


@pytest.mark.parametrize("verb", ["resume", "cancel", "decide"])
@pytest.mark.parametrize("step", ["intent-recorded", "objects-written"])
def test_an_end_is_recorded_once_if_plain_git_moves_the_chain(place: SessionSpace, space: clia.Space, verb: str, step: str) -> None:
    space.start("scout", "approval", {"goal": "x"})
    space.cancel("scout")
    meddler = Meddler(place, step, "refs/clia/events/scout")
    with place.open(reached=meddler) as second:
        second.define("one", f"def main(input):\n    return request('{'human' if verb == 'decide' else 'x'}')\n")
        second.start("scout", "one")
        meddler.on = True
        if verb == "resume":
            assert second.resume("scout", 1).status == "finished"
        elif verb == "decide":
            assert second.decide("scout", 1).session.status == "finished"
        else:
            second.cancel("scout")
        assert not meddler.on
        subjects = git("log", "--format=%s", "refs/clia/events/scout", cwd=place.root).splitlines()
        assert subjects.count("by hand") == 1
        status = "cancelled" if verb == "cancel" else "finished"
        assert sorted(ends(place.root, "scout")) == [("1", "cancelled"), ("2", status)]
        assert [event["event"] for event in second.journal("scout")].count("ended") == 1
        assert second.verify().clean


def test_a_flow_is_defined_if_plain_git_moves_its_chain(place: SessionSpace, space: clia.Space) -> None:
    meddler = Meddler(place, "objects-written", "refs/clia/behaviours/approval")
    with place.open(reached=meddler) as second:
        meddler.on = True
        flow = second.define("approval", APPROVAL + "# third\n")
        assert not meddler.on
        assert flow.source == APPROVAL + "# third\n"
        assert len(flow.versions) == 3
        assert "by hand" in git("log", "--format=%s", "refs/clia/behaviours/approval", cwd=place.root)


def test_invalid_refs_of_behaviours_are_reported_and_not_changed(place: SessionSpace, space: clia.Space) -> None:
    odd = ("refs/clia/behaviours/odd", "refs/clia/behaviours/Not-A-Name")
    for ref in odd:
        git("update-ref", ref, "agents/scout", cwd=place.root)
    with place.open() as again:
        assert [flow.name for flow in again.flows()] == ["approval"]
        refused("not-a-flow", lambda: again.flow("odd"))
        findings = again.verify().findings
        assert {(finding.code, finding.ref) for finding in findings} == {("broken-behaviour", ref) for ref in odd}
