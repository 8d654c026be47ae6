"""`why`: who wrote a line, for what, who approved it, and whether all of it verifies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import clia
from clia.provenance.model import DECISION, FILE, LANDING, LINE, REVIEW
from clia.trust.ssh_signatures import CLIA, signer_of
from clia.trust.statements import StatementProof
from support import git
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from clia.provenance.model import LineReason
    from clia.trust.statements import EnrolledKey, PersonalStatement

PERSON = "Tess <tess@example.org>"
SIGNER = signer_of(b"\7" * 32)


def prove(statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> list[StatementProof]:
    own = SIGNER.public.fingerprint
    if own not in {key.fingerprint for key in keys}:
        return []
    return [StatementProof("ssh", own, {"signature": SIGNER.sign(statement.data(), CLIA)})]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "shop"


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    """A space in which `scout` counted the apples: its commit has a trace."""
    git("init", "-q", "-b", "main", str(repo), cwd=repo.parent)
    commit_file(repo, "stock.txt", "pears 5\napples 3\n")
    with clia.init(repo, settings=settings(prove=prove)) as opened:
        opened.spawn_at("scout", BRIEFING._replace(meta={"tool": "claude-code", "model": "claude-opus-4-5"}), "main")
        opened.trace("scout", "prompt", "Count the apples, please")
        opened.trace("scout", "said", "I look into box 7")
        data = {"tool": "Edit", "input": {"file_path": "/work/shop/stock.txt", "new_string": "apples 4"}}
        opened.traces.add("scout", "tool-call", "Edit stock.txt", data=data)
        opened.trace("scout", "said", "Done, and nothing else to do")
        opened.commit_with_trace("scout", "finding", changes={"stock.txt": b"pears 5\napples 4\n"}, message="One more apple")
        yield opened


def reason_of(space: clia.Space, line: int = 2, commit: str = "main", path: str = "stock.txt") -> LineReason:
    [reason] = space.why(path, line, commit).reasons
    return reason


def test_a_landed_line_has_its_agent_trace_and_approvals(space: clia.Space) -> None:
    space.ask("scout", {"question": "Is 4 right?"})
    space.decide("scout", "yes", "I counted, too")
    space.spawn("checker", BRIEFING)
    space.reviews("checker", "scout")
    landed = space.land("scout", "main")
    reason = reason_of(space)
    origin = space.log("scout", own=True)[1].cid
    assert reason.origin is not None
    assert reason.agent is not None
    assert reason.via is not None
    assert (reason.result, reason.lines, reason.origin.commit) == ("verified", ("apples 4",), origin)
    assert isinstance(landed, clia.Landed)
    assert (reason.via.commit, reason.origin.state, reason.origin.accountable) == (landed.cid, "signed", PERSON)
    assert reason.origin.signer == space.trust.keys().keys[0].owner
    assert (reason.agent.name, reason.agent.program, reason.agent.model) == ("scout", "claude-code", "claude-opus-4-5")
    assert (reason.agent.title, reason.agent.briefing is None) == (BRIEFING.title, False)
    kinds = [(approval.kind, approval.strength) for approval in reason.approvals]
    assert kinds == [(LANDING, "attested"), (DECISION, "attested"), (REVIEW, None)]
    decision = reason.approvals[1]
    assert (decision.by, decision.answer, decision.question, decision.covers) == (PERSON, "yes", "Is 4 right?", True)
    assert (decision.reason, reason.approvals[2].by) == ("I counted, too", "checker")


def test_of_a_decision_and_a_landing_in_one_second_the_landing_is_newer(space: clia.Space, repo: Path) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    with clia.open(repo, settings=settings()._replace(clock=lambda: now)) as opened:
        opened.ask("scout", {"question": "Is 4 right?"})
        opened.decide("scout", "yes")
        opened.land("scout", "main")
        approvals = reason_of(opened).approvals
    at = int(now.timestamp())
    assert [(approval.kind, approval.at) for approval in approvals] == [(LANDING, at), (DECISION, at)]


def test_the_trace_shows_what_wrote_the_line_and_what_was_asked_and_said_before(space: clia.Space) -> None:
    trace = reason_of(space, commit="scout").trace
    assert trace is not None
    assert (trace.matched, trace.entries, trace.positions) == (LINE, 4, (0, 1, 2))
    assert [entry["text"] for entry in trace.shown] == ["Count the apples, please", "I look into box 7", "Edit stock.txt"]
    assert trace.digest is not None


def test_without_the_text_the_entries_that_name_the_file_are_shown(space: clia.Space) -> None:
    space.trace("scout", "console", "$ ./sort stock.txt")
    space.trace("scout", "console", "$ ls")
    space.commit_with_trace("scout", "finding", changes={"stock.txt": b"nuts 9\npears 5\napples 4\n"})
    trace = reason_of(space, 1, "scout").trace
    assert trace is not None
    assert (trace.matched, [entry["text"] for entry in trace.shown]) == (FILE, ["$ ./sort stock.txt"])


def test_a_decision_shows_that_it_is_proved_by_a_persons_key(space: clia.Space) -> None:
    space.trust.enrol(PERSON, SIGNER.public.text)
    space.ask("scout", {"question": "Is 4 right?"})
    space.decide("scout", "yes")
    [decision] = reason_of(space, commit="scout").approvals
    assert (decision.strength, decision.findings) == ("ssh", ())


def test_a_decision_on_another_version_of_the_file_is_told_apart(space: clia.Space) -> None:
    space.commit("scout", "finding", changes={"stock.txt": b"pears 6\napples 4\n"})
    space.ask("scout", {"question": "Is 6 right?"})
    space.decide("scout", "yes")
    assert not reason_of(space, commit="scout").approvals[0].covers
    assert reason_of(space, 1, "scout").approvals[0].covers


def test_a_decision_before_the_commit_is_shown_if_none_came_after_it(space: clia.Space) -> None:
    space.ask("scout", {"question": "May I add nuts?"})
    space.decide("scout", "yes")
    space.commit("scout", "finding", changes={"nuts.txt": b"nuts 9\n"})
    [decision] = reason_of(space, 1, "scout", "nuts.txt").approvals
    assert (decision.before, decision.question) == (True, "May I add nuts?")


def test_a_line_is_explained_after_a_rename_and_a_commit_of_a_person(space: clia.Space, repo: Path) -> None:
    """A person copies the agent's work by hand, then renames the file."""
    commit_file(repo, "stock.txt", "pears 5\napples 4\n")
    git("mv", "stock.txt", "store.txt", cwd=repo)
    git("commit", "-q", "-m", "Rename", cwd=repo)
    reason = reason_of(space, path="store.txt")
    assert reason.via is not None
    assert (reason.by, reason.author, reason.result, reason.via.state) == ("agent", "scout", "verified", "person")
    assert reason.path == "stock.txt"
    assert reason.trace is not None
    assert reason.trace.matched == LINE


def test_a_line_of_a_person_has_its_commit_only(space: clia.Space) -> None:
    reason = reason_of(space, 1)
    assert reason.origin is not None
    assert (reason.by, reason.author, reason.result) == ("person", "Tess", "person")
    assert (reason.agent, reason.trace, reason.approvals, reason.origin.state) == (None, None, (), "person")


def test_lines_with_one_origin_are_explained_together(space: clia.Space) -> None:
    space.land("scout", "main")
    reasons = space.why("stock.txt", 1, "main", end=2).reasons
    assert [(reason.start, reason.end, reason.by) for reason in reasons] == [(1, 1, "person"), (2, 2, "agent")]


def test_a_forged_commit_and_a_replaced_trace_do_not_verify(space: clia.Space, repo: Path) -> None:
    head = space.head("scout")
    git("notes", "--ref", "clia/trace/scout", "add", "-f", "-m", "{}", head, cwd=repo)
    reason = reason_of(space, commit="scout")
    assert reason.origin is not None
    assert (reason.result, [finding.code for finding in reason.origin.findings]) == ("failed", ["changed-trace"])
    text = git("log", "-1", "--format=%B", head, cwd=repo).replace("One more", "No")
    forged = git("commit-tree", "-p", "main", "-m", text, f"{head}^{{tree}}", cwd=repo).strip()
    git("update-ref", "refs/heads/agents/scout", forged, cwd=repo)
    reason = reason_of(space, commit="scout")
    assert reason.origin is not None
    assert reason.result == "failed"
    assert "unsigned-commit" in {finding.code for finding in reason.origin.findings}


def test_a_line_from_before_the_space_was_signed_is_unsigned(space: clia.Space, repo: Path) -> None:
    for ref in git("for-each-ref", "--format=%(refname)", "refs/clia/keys", "refs/clia/log", cwd=repo).split():
        git("update-ref", "-d", ref, cwd=repo)
    with clia.open(repo, settings=settings()) as opened:
        assert reason_of(opened, commit="scout").result == "unsigned"


@pytest.mark.parametrize(
    ("line", "end", "path", "commit", "code"),
    [
        (3, None, "stock.txt", "main", "line-out-of-range"),
        (2, 9, "stock.txt", "main", "line-out-of-range"),
        (0, None, "stock.txt", "main", "invalid-lines"),
        (2, 1, "stock.txt", "main", "invalid-lines"),
        (1, 900, "stock.txt", "main", "too-many-lines"),
        (1, None, "none.txt", "main", "no-such-path"),
        (1, None, "stock.txt", "nowhere", "no-such-object"),
        (1, None, "bin", "main", "binary-file"),
        (1, None, "empty", "main", "line-out-of-range"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    space: clia.Space, repo: Path, line: int, end: int | None, path: str, commit: str, code: str
) -> None:
    (repo / "bin").write_bytes(b"a\0b\n")
    (repo / "empty").touch()
    git("add", ".", cwd=repo)
    git("commit", "-q", "-m", "More", cwd=repo)
    refused(code, lambda: space.why(path, line, commit, end=end))


def test_a_line_of_the_worktree_that_is_not_committed_is_refused(space: clia.Space, repo: Path) -> None:
    (repo / "stock.txt").write_text("pears 5\napples 3\nnuts 9\n")
    refused("not-committed", lambda: space.provenance.why_here("stock.txt", 3))
    reasons = space.provenance.why_here("stock.txt", 2, 3).reasons
    assert [(reason.committed, reason.by) for reason in reasons] == [(True, "person"), (False, "person")]
    refused("line-out-of-range", lambda: space.provenance.why_here("stock.txt", 4))
