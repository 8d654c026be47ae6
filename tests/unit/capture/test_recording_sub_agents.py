"""Sub-agents of captured sessions: their files, transcripts and merges."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from support import git
from support.captured import (
    END,
    Script,
    agent_of,
    check_once,
    hook,
    ingest_afterwards,
    ingest_live,
    put,
    recorded,
    recorded_entries,
    rehearse,
    run_ingest,
    waiting,
)

if TYPE_CHECKING:
    from pathlib import Path

    import clia


def writing_sub_agent(name: str) -> dict[str, Any]:
    return {"subagent": name, "task": f"Write {name}.txt.", "steps": [{"write": f"{name}.txt", "text": f"{name}\n"}, {"say": name}]}


def authors(space: clia.Space, agent: str, path: str) -> set[str | None]:
    return {line.agent for line in space.blame(agent, path)}


def test_consecutive_sub_agents_are_the_authors_of_their_work(root: Path, space: clia.Space) -> None:
    """The start of the second one commits the present files, so the first one's work is merged before that."""
    agent = ingest_live(
        root, [{"prompt": "Go."}, writing_sub_agent("one"), writing_sub_agent("two"), {"say": "Done."}, {"stop": True}]
    )
    for name in ("one", "two"):
        (author,) = authors(space, agent, f"{name}.txt")
        assert author is not None
        assert author.startswith(f"{agent}-{name}-")
    assert [edge.kind for edge in space.relations(agent) if edge.kind == "offers-merge"] == []


def test_a_sub_agent_stays_the_author_after_the_session_was_killed_and_resumed(root: Path, space: clia.Space) -> None:
    agent = ingest_live(root, [{"prompt": "Go."}, writing_sub_agent("one"), {"say": "Now I die."}])
    ingest_live(root, [{"resume": 1}, {"prompt": "Go on."}, {"say": "Done."}, {"stop": True}])
    (author,) = authors(space, agent, "one.txt")
    assert author is not None
    assert author.startswith(f"{agent}-one-")


def test_a_sub_agent_that_continues_beside_others_commits_only_files_it_named_since(root: Path, space: clia.Space) -> None:
    """A file that it named before and another agent changed since is not committed again."""
    for sub in ("s1", "s2"):
        hook(root, "SubagentStart", agent_id=sub, agent_type="maker")
    for name in ("a.txt", "b.txt"):
        hook(root, "PreToolUse", agent_id="s1", tool_name="Write", tool_use_id=name, tool_input={"file_path": str(root / name)})
        (root / name).write_text("s1\n")
        hook(root, "SubagentStop", agent_id="s1")
        run_ingest(root)
        (root / "a.txt").write_text("another\n")
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert space.files(maker) == {"README.md": b"people\n", "a.txt": b"s1\n", "b.txt": b"s1\n"}


def test_the_last_message_of_a_sub_agent_without_transcript_is_recorded_for_it(root: Path, space: clia.Space) -> None:
    hook(root, "SubagentStart", agent_id="s1", agent_type="maker")
    hook(root, "SubagentStop", agent_id="s1", last_assistant_message="Made it.")
    run_ingest(root)
    maker = agent_of(space, "claude-code", "abcdef12-9", "s1")
    assert [(agent, entry["text"]) for agent, entry in recorded(space) if entry["kind"] == "said"] == [(maker, "Made it.")]


def test_a_sub_agent_started_after_a_resumption_is_not_merged_by_the_earlier_end(root: Path, space: clia.Space) -> None:
    """Its transcript already exists when the first end is ingested."""
    (root / "mine.txt").write_text("mine\n")
    first: list[dict[str, Any]] = [{"prompt": "One."}, {"write": "one.txt", "text": "one\n"}, {"stop": True}, {"end": "other"}]
    agent = ingest_afterwards(
        root, [*first, {"resume": 1}, {"prompt": "Two."}, writing_sub_agent("two"), {"say": "Done."}, {"stop": True}]
    )
    (sub,) = space.sub_agents(agent)
    assert sub.startswith(f"{agent}-two-")
    turn, spawn = space.session_log(sub)
    assert (turn.kind, spawn.kind) == ("turn", "spawn")
    assert {file.path for file in space.changed(spawn.cid, turn.cid)} <= {"two.txt"}
    assert [commit.kind for commit in space.session_log(agent)].count("session-merge") <= 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_others_edited_too_is_not_attributed_to_the_sub_agent(root: Path, space: clia.Space, when: str) -> None:
    """If ingest runs afterwards, the author of each line is unknown, so the file is committed with the session's turn."""
    edits: dict[str, Any] = {"subagent": "alpha", "task": "T.", "steps": [{"edit": "s.txt", "old": "one", "new": "alpha"}]}
    start = {"write": "s.txt", "text": "one\nthree\n"}
    after: list[dict[str, Any]] = [{"edit": "s.txt", "old": "three", "new": "parent"}] if when == "after" else []
    if when == "after":
        (root / "s.txt").write_text("one\nthree\n")
    steps = [edits, *after] if when == "after" else [start, edits]
    agent = ingest_afterwards(root, [{"prompt": "Go."}, *steps, {"say": "Done."}, {"stop": True}])
    assert authors(space, agent, "s.txt") == {agent}


def sub_agent_step(name: str, *steps: dict[str, Any], parallel: bool = False) -> dict[str, Any]:
    return {"subagent": name, "task": f"Be a {name}.", "steps": list(steps), "parallel": parallel}


def subs_of(space: clia.Space, report: dict[str, Any]) -> list[str]:
    return [agent_of(space, report["tool"], report["session"], agent["id"]) for agent in report["agents"]]


def changed(space: clia.Space, agent: str) -> set[str]:
    """The files that an agent added after its start."""
    return set(space.files(agent)) - set(space.files(space.genesis(agent)))


def test_parallel_sub_agents_commit_the_files_they_named_and_a_single_one_commits_all(root: Path, space: clia.Space) -> None:
    make_step = {"bash": "echo made > made.txt"}
    alone = sub_agent_step("maker", make_step, {"write": "..odd.txt", "text": "odd\n"})
    team = [sub_agent_step(kind, {"write": f"{kind}.txt", "text": "x\n"}, make_step, parallel=True) for kind in ("left", "right")]
    first: Script = [{"prompt": "Go."}, alone, {"stop": True}, {"bash": "rm made.txt"}, {"stop": True}]
    report = rehearse(root, first, after=partial(run_ingest, root))
    second_report = rehearse(root, [{"resume": 1}, {"prompt": "Go."}, *team, {"stop": True}, *END], after=partial(run_ingest, root))
    assert [changed(space, sub) for sub in subs_of(space, report)] == [{"made.txt", "..odd.txt"}]
    assert [changed(space, sub) for sub in subs_of(space, second_report)] == [{"left.txt"}, {"right.txt"}]
    agent = agent_of(space, "claude-code", report["session"])
    assert set(space.files(agent)) == {"README.md", "..odd.txt", "left.txt", "right.txt", "made.txt"}
    assert sorted(space.merged_sessions(agent)) == sorted([*subs_of(space, report), *subs_of(space, second_report)])
    assert [edge for edge in space.relations() if edge.kind == "offers-merge"] == []
    name = subs_of(space, report)[0]
    assert name == f"{agent}-maker-{report['agents'][0]['id'][:6]}"
    check_once(root, report, second_report)


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_sub_agent_without_an_end_event_ends_with_the_session(root: Path, space: clia.Space, tool: str) -> None:
    steps: Script = [{"write": "sub.txt", "text": "sub\n"}, {"say": "Helped."}, {"miss": 1}]
    report = rehearse(root, [{"prompt": "Go."}, sub_agent_step("helper", *steps), {"say": "Done."}, *END], tool)
    run_ingest(root)
    (helper,) = subs_of(space, report)
    assert changed(space, helper) == {"sub.txt"}
    assert space.merged_sessions(agent_of(space, tool, report["session"])) == [helper]
    check_once(root, report)


@pytest.mark.parametrize("in_one_pass", [True, False])
def test_a_sub_agent_without_hook_events_is_found_by_its_transcript(root: Path, space: clia.Space, in_one_pass: bool) -> None:
    """In the pass in which the session ends, or while it continues."""
    silent = sub_agent_step("helper", {"write": "sub.txt", "text": "sub\n"}, {"say": "Helped."})
    reports = [rehearse(root, [{"prompt": "Go."}, {"miss": 5}, silent, {"read": "README.md"}, *(END if in_one_pass else [])])]
    run_ingest(root)
    assert changed(space, *subs_of(space, reports[0])) == ({"sub.txt"} if in_one_pass else set())
    if not in_one_pass:
        reports.append(rehearse(root, [{"resume": 1}, {"stop": True}, *END]))
        run_ingest(root)
    check_once(root, *reports)


@pytest.mark.parametrize(("tool", "missed"), [("claude-code", 3), ("codex", 4)])
def test_a_session_whose_first_event_is_its_sub_agents_keeps_them_apart(root: Path, tool: str, missed: int) -> None:
    """The event of Claude Code names the session's transcript, that of Codex the sub-agent's."""
    report = rehearse(root, [{"prompt": "Go."}, sub_agent_step("helper", {"say": "Helped."}), {"say": "Done."}], tool)
    spool = root / ".git/clia/spool/new"
    for name in waiting(root)[:missed]:
        (spool / name).unlink()
    run_ingest(root)
    check_once(root, report)


def test_lines_of_sub_agents_in_the_sessions_transcript_are_recorded_for_them(root: Path, space: clia.Space) -> None:
    """As older versions of Claude Code wrote them, even if ingest dies after reading them."""
    report = rehearse(root, [{"prompt": "Go."}])
    with open(report["transcript"], "a", encoding="utf-8") as file:
        for number, text in enumerate(("Found it.", "Found it.", "Left it.")):
            block = {"content": [{"type": "text", "text": text}], "id": f"m{number}"}
            file.write(json.dumps({"type": "assistant", "agentId": "a1b2c3d4", "message": block}) + "\n")

    reached = Counter[str]()
    for number in (3, 2, 1, 9):  # after the start: the session's entries, and the sub-agent's
        reached.clear()

        def die_at(step: str, number: int = number) -> None:
            reached[step] += 1
            if step == "entries-made" and reached[step] == number:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            run_ingest(root, die_at)
    assert reached["entries-made"] < number
    helper = agent_of(space, "claude-code", report["session"], "a1b2c3d4")
    assert {key: number for key, number in recorded_entries(space).items() if key[0] == helper} == {
        (helper, "said", "Found it."): 2,
        (helper, "said", "Left it."): 1,
    }


def test_a_conflicting_file_of_two_sub_agents_leaves_one_merge_offer(root: Path, space: clia.Space) -> None:
    """Nothing is lost, and the refusal is recorded once, not at the end of each turn."""
    writes: Script = [{"write": "same.txt", "text": "one\n"}, {"write": "same.txt", "text": "two\n"}]
    # The first to start is the last to write: its version remains and is merged.
    team = [sub_agent_step("one", {"read": "README.md"}, writes[0], parallel=True), sub_agent_step("two", writes[1], parallel=True)]
    turns: Script = [{"stop": True}, {"prompt": "Go on."}, {"stop": True}, {"prompt": "Go on."}, {"stop": True}]
    report = rehearse(root, [{"prompt": "Go."}, *team, *turns], after=partial(run_ingest, root))
    agent, (one, two) = agent_of(space, "claude-code", report["session"]), subs_of(space, report)
    assert {space.files(one)["same.txt"], space.files(two)["same.txt"]} == {b"one\n", b"two\n"}
    (edge,) = (relation for relation in space.relations() if relation.kind == "offers-merge")
    assert edge.dst == agent
    refusals = git("log", "--format=%s", f"refs/clia/events/{agent}", cwd=root).splitlines()
    assert sum("refused" in line for line in refusals) == 1
    assert space.files(agent)["same.txt"] == b"one\n"
    check_once(root, report)


def test_a_sub_agent_in_a_separate_worktree_starts_from_its_files(root: Path, space: clia.Space) -> None:
    (root / "mine.txt").write_text("a person's\n")
    hook(root, "SessionStart", source="startup")
    run_ingest(root)
    desk = root / ".claude" / "worktrees" / "agent-a1"
    git("worktree", "add", "--quiet", "-b", "worktree-a1", str(desk), cwd=root)
    sub = {"agent_id": "a1", "agent_type": "writer", "cwd": str(desk)}
    put(root, event("SubagentStart", **sub), cwd=str(desk))
    run_ingest(root)
    (desk / "apart.txt").write_text("apart\n")
    put(root, event("SubagentStop", **sub), cwd=str(desk))
    hook(root, "Stop")
    run_ingest(root)
    session, agent = sorted(space.agents(), key=len)
    assert space.files(agent) == {"README.md": b"people\n", "apart.txt": b"apart\n"}
    assert space.files(session) == {"README.md": b"people\n"}
    assert [line.agent for line in space.blame(agent, "apart.txt")] == [agent]
    assert space.verify().findings == ()


def test_a_sub_agent_in_a_separate_worktree_commits_files_that_it_did_not_name(root: Path, space: clia.Space) -> None:
    """Nobody else works there, so it does not matter what the session calls meanwhile."""
    hook(root, "SessionStart", source="startup")
    hook(root, "PreToolUse", tool_name="Bash", tool_use_id="t1", tool_input={"command": "make"})
    desk = root / ".claude" / "worktrees" / "agent-a1"
    git("worktree", "add", "--quiet", "-b", "worktree-a1", str(desk), cwd=root)
    sub = {"agent_id": "a1", "agent_type": "writer", "cwd": str(desk)}
    put(root, event("SubagentStart", **sub), cwd=str(desk))
    put(root, event("PreToolUse", tool_name="Bash", tool_use_id="t2", **sub), cwd=str(desk))
    (desk / "apart.txt").write_text("apart\n")
    put(root, event("SubagentStop", **sub), cwd=str(desk))
    hook(root, "PreToolUse", tool_name="Bash", tool_use_id="t3", tool_input={"command": "make"})
    hook(root, "Stop")
    run_ingest(root)
    _, agent = sorted(space.agents(), key=len)
    assert space.files(agent) == {"README.md": b"people\n", "apart.txt": b"apart\n"}


def event(name: str, **more: str) -> bytes:
    return json.dumps({"session_id": "abcdef12-9", "hook_event_name": name, **more}).encode()
