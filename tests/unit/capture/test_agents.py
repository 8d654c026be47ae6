"""The agents of captured sessions: by environment, checkout, resumption and fork."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import clia
from clia.testing import components
from support import git
from support.captured import (
    END,
    TURN,
    agent_of,
    check_once,
    check_sound,
    event,
    new_space,
    only_agent,
    put,
    recorded_entries,
    rehearse,
    rejected_codes,
    run_ingest,
    subjects,
    texts_of_kind,
    waiting,
)
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path


def test_a_session_with_one_event_has_an_agent(root: Path, space: clia.Space) -> None:
    put(root, event("PostToolUse", "One/Event: ü", tool_use_id="t", tool_name="Bash", tool_response="out"))
    assert run_ingest(root).done._replace(unreadable=0) == run_ingest(root).done._replace(events=1, entries=1, agents=1)
    assert only_agent(space) == "claude-oneevent"
    check_sound(root, space)


def write_identity(where: Path, slug: str, guardrail: str) -> None:
    path = where / f".clia/agents/{slug}/{slug}@x.agent.triad.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"slug": slug, "guardrails": [guardrail]}))


def profile_of(space: clia.Space, agent: str) -> tuple[str | None, list[str]]:
    profile = space.record_of(agent).get("profile.json")
    return (None, []) if profile is None else (profile["slug"], profile["document"]["guardrails"])


def test_a_session_works_under_the_identity_that_the_environment_or_the_configuration_names(root: Path, space: clia.Space) -> None:
    for slug, rule in (("scout", "Read first."), ("default", "Ask first."), ("root", "No secrets.")):
        write_identity(root, slug, rule)

    def captured(session: str, agent: str = "") -> tuple[str | None, list[str]]:
        put(root, event("UserPromptSubmit", session, prompt="Look."), agent=agent)
        assert not run_ingest(root).trouble
        return profile_of(space, agent_of(space, "claude-code", session))

    assert captured("first") == (None, ["No secrets."])
    config = root / ".git/clia/config.toml"
    config.write_text('[capture]\nidentity = "default"\n')
    assert captured("named", agent="scout") == ("scout", ["No secrets.", "Read first."])
    assert captured("other") == ("default", ["No secrets.", "Ask first."])
    config.write_text('[capture]\nidentity = "nobody"\n')
    assert captured("last") == (None, ["No secrets."])


def test_a_sub_agent_whose_type_is_an_identity_works_under_it_and_another_under_its_parents(root: Path, space: clia.Space) -> None:
    write_identity(root, "scout", "Read first.")
    write_identity(root, "code-reviewer", "Name the line.")
    report = rehearse(root, [{"prompt": "Look."}], agent="scout")
    for sub, kind in (("s1", "code-reviewer"), ("s2", "Explore"), ("s3", "../up")):
        put(root, event("SubagentStart", report["session"], agent_id=sub, agent_type=kind), agent="scout")
    assert not run_ingest(root).trouble
    profiles = [profile_of(space, agent_of(space, "claude-code", report["session"], sub)) for sub in ("s1", "s2", "s3")]
    assert profiles == [("code-reviewer", ["Name the line."]), ("scout", ["Read first."]), ("scout", ["Read first."])]


def test_the_place_of_a_session_is_the_directory_that_it_runs_in(root: Path, space: clia.Space) -> None:
    where = root / "services/payments"
    where.mkdir(parents=True)
    write_identity(where, "root", "Four eyes.")
    put(root, event("PostToolUse", "One", tool_use_id="t", tool_name="Bash", tool_response="out"), cwd=str(where))
    run_ingest(root)
    (agent,) = space.agents()
    assert space.record_of(agent)["place.json"]["path"] == "services/payments"
    assert profile_of(space, agent) == (None, ["Four eyes."])


@pytest.mark.parametrize(
    ("name", "agent"),
    [("scout", "scout"), ("newcomer", "newcomer"), ("rested", "rested"), ("stranger", None), ("No Name", None), ("../up", None)],
)
def test_the_environment_can_name_the_agent(root: Path, space: clia.Space, name: str, agent: str | None) -> None:
    """An existing, new or archived agent; with an invalid name or one of another clone, the session gets its own agent."""
    for existing in ("scout", "rested", "stranger"):
        space.spawn_at(existing, clia.Briefing(existing), "main")
    space.archive("rested")
    components(space).core.mark_foreign("stranger")
    report = rehearse(root, [*TURN, *END], agent=name)
    assert not run_ingest(root).trouble
    assert only_agent(space) == (agent or f"claude-{report['session'][:8]}")
    assert "main.txt" in space.files(only_agent(space))
    check_once(root, report)


def test_two_sessions_of_one_agent_may_record_the_same_text(root: Path, space: clia.Space) -> None:
    reports = [
        rehearse(root, [*TURN, *END], tool, seed=seed, agent="scout") for tool in ("claude-code", "codex") for seed in (1, 2)
    ]
    run_ingest(root)
    assert only_agent(space) == "scout"
    assert recorded_entries(space)["scout", "said", "Done."] == 4
    check_once(root, *reports)


def test_a_session_in_a_checkout_belongs_to_the_agent_of_the_checkout(root: Path, space: clia.Space) -> None:
    """Afterwards the checkout is based on the new head, so that a manual commit continues from there."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    directory = root.parent / "checkout"
    space.checkout("scout", directory)
    report = rehearse(directory, [*TURN, *END], agent="somebody-else")
    assert not run_ingest(root).trouble
    assert only_agent(space) == "scout"
    assert subjects(space, "scout")[1:] == ["Write."]
    checkout = space.checkout_at(directory)
    assert checkout is not None
    assert checkout.base == space.head("scout")
    (directory / "by-hand.txt").write_text("hand\n")
    space.commit_dir("scout", "finding", directory)
    assert set(space.files("scout")) == {"README.md", "main.txt", "by-hand.txt"}
    check_once(root, report)


def test_an_archived_agent_is_restored_by_the_next_event(root: Path, space: clia.Space) -> None:
    reports = [rehearse(root, TURN)]
    run_ingest(root)
    agent = only_agent(space)
    space.archive(agent)
    reports.append(rehearse(root, [{"resume": 1}, *TURN, *END]))
    assert not run_ingest(root).trouble
    assert space.agents() == [agent]
    check_once(root, *reports)


def test_a_session_continues_as_another_agent_after_its_branch_was_deleted(root: Path, space: clia.Space) -> None:
    """New events are recorded; the old name is not reused."""
    report = rehearse(root, TURN)
    run_ingest(root)
    deleted = only_agent(space)
    git("branch", "--quiet", "--delete", "--force", f"agents/{deleted}", cwd=root)
    rehearse(root, [{"resume": 1}, {"prompt": "Still there?"}, {"say": "Yes."}, {"stop": True}])
    assert not run_ingest(root).trouble
    assert waiting(root) == []
    agent = agent_of(space, "claude-code", report["session"])
    assert agent != deleted
    assert recorded_entries(space)[agent, "prompt", "Still there?"] == 1
    assert recorded_entries(space)[agent, "said", "Yes."] == 1


def test_a_session_whose_worktree_was_removed_keeps_its_messages(root: Path, space: clia.Space) -> None:
    worktree = root.parent / "linked"
    git("worktree", "add", "--quiet", "--detach", str(worktree), cwd=root)
    report = rehearse(worktree, [*TURN, *END])
    git("worktree", "remove", "--force", str(worktree), cwd=root)
    assert not run_ingest(root).trouble
    assert rejected_codes(root) == {}
    check_once(root, report)


def test_a_repository_whose_path_is_not_utf8_is_supported(tmp_path: Path) -> None:
    """The tool's payload has only an approximation of the path; the hook has the bytes."""
    root = new_space(tmp_path.resolve() / os.fsdecode(b"sp\xff%41"))
    for name in ("Hello.", "", "Bye.", ""):
        more = {"prompt": name} if name else {}
        (root / ("found" if name else "turn")).write_text(f"{name}x\n")
        put(root, event("UserPromptSubmit" if name else "Stop", cwd=f"{tmp_path}/sp\N{REPLACEMENT CHARACTER}%41", **more))
        assert (run_ingest(root).trouble, rejected_codes(root)) == ((), {})
    with clia.open(root, settings=settings()) as space:
        assert subjects(space, only_agent(space))[1:] == ["Hello.", "Bye."]
        assert set(space.files(only_agent(space))) == {"README.md", "turn"}


def test_a_session_may_be_resumed_cleared_or_forked(root: Path, space: clia.Space) -> None:
    """Resumed after a kill: the remaining changes are committed. Cleared: a new session. Forked: a sub-agent."""
    reports = [rehearse(root, [*TURN, {"prompt": "Go on."}, {"write": "left.txt", "text": "left\n"}, {"crash": True}])]
    run_ingest(root)
    reports.append(rehearse(root, [{"resume": 1}]))
    run_ingest(root)
    first = agent_of(space, "claude-code", reports[0]["session"])
    assert subjects(space, first)[-1] == "left when the session was interrupted"
    assert "left.txt" in space.files(first)
    reports.append(rehearse(root, [{"fork": 2}, {"prompt": "Another way."}, {"say": "Done."}, {"stop": True}, *END]))
    run_ingest(root)
    fork = agent_of(space, "claude-code", reports[-1]["session"])
    assert space.parent_agent(fork) == first
    assert recorded_entries(space)[fork, "prompt", "Write."] == 0
    put(root, event("SessionStart", "cleared", source="clear"))
    put(root, event("SessionStart", "cleared", source="compact"))
    run_ingest(root)
    starts = [text for text in texts_of_kind(space, "note") if text.endswith((": clear", ": compact"))]
    assert starts == ["session started: clear", "session started: compact"]
    check_once(root, *reports)


def test_a_fork_of_codex_is_a_sub_agent_although_its_source_is_startup(root: Path, space: clia.Space) -> None:
    reports = [rehearse(root, TURN, "codex")]
    run_ingest(root)
    reports.append(rehearse(root, [{"fork": 1}, {"prompt": "Another way."}, {"say": "Done."}, {"stop": True}], "codex"))
    run_ingest(root)
    assert space.parent_agent(agent_of(space, "codex", reports[1]["session"])) == agent_of(space, "codex", reports[0]["session"])
    check_once(root, *reports)
