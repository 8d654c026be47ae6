"""Ingest in one process: events made by hand or by a rehearsal become agents, traces, sub-agents and commits, once each."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture import spool as writer
from clia.capture import spool_reader as reader
from clia.errors import BackendError
from support import git, hook_payloads
from support.captured import (
    agent_of,
    check_once,
    check_sound,
    common_dir,
    new_space,
    put,
    recorded,
    rehearse,
    take_in,
    things,
    waiting,
)
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Script = list[dict[str, Any]]

TURN: Script = [{"prompt": "Write."}, {"write": "main.txt", "text": "main\n"}, {"say": "Done."}, {"stop": True}]
END: Script = [{"end": "other"}]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "space")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as made:
        yield made


def event(name: str, session: str = "5f0c1f6e-8f3b", **more: Any) -> bytes:
    return json.dumps({"session_id": session, "hook_event_name": name, **more}).encode()


def rejected(root: Path) -> dict[str, str]:
    return {each.id: each.code for each in reader.rejected(reader.spools(common_dir(root), {})[0])}


def notes(space: clia.Space) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == "note"]


def bound(space: clia.Space, commit: str) -> list[str]:
    trace = space.trace_for(commit)
    return [] if trace is None else [each["text"] for each in trace.entries]


def own(space: clia.Space, agent: str) -> list[str]:
    """The subjects of an agent's own commits, oldest first."""
    return [each.message.splitlines()[0] for each in space.log(agent) if each.agent == agent][::-1]


# The format


def test_what_the_hook_writes_is_what_ingest_reads(tmp_path: Path) -> None:
    """One module may load nothing, the other is part of the application: here they meet."""
    cwd, payload = b"/a\n%0A%25\xff b", b'\n\nkey=value\n\xff\0{"half'
    place = writer.put([os.fsencode(tmp_path)], [writer.head(b"codex", cwd, b"scout"), payload])
    (name,) = reader.waiting(os.fsdecode(place))
    record = reader.read(os.fsdecode(place), name)
    assert record is not None
    assert (record.tool, os.fsencode(record.cwd), record.agent, record.payload) == ("codex", cwd, "scout", payload)
    assert abs(time.time() - int(name.partition("-")[0]) / 1e9) < 3600
    assert record.at.endswith("Z")
    for home, state in (("", ""), ("/h", ""), ("h", ""), ("/h", "/s"), ("/h", "s")):
        environment = {"HOME": home, "XDG_STATE_HOME": state}
        raw = {key.encode(): value.encode() for key, value in environment.items()}
        assert reader.spools("/r/.git", environment) == [os.fsdecode(each) for each in writer.spools(b"/r/.git", raw)]


# Nothing is lost from the spool


def test_what_cannot_be_understood_is_put_aside_with_the_reason(root: Path, space: clia.Space) -> None:
    """Beside each of them a good event is recorded; what a hook is still writing is left alone."""
    good = put(root, event("UserPromptSubmit", prompt="Hello."))
    wrong = {put(root, payload): "invalid-event" for payload in hook_payloads.broken("claude-code").values()}
    wrong[put(root, event("Stop"), tool="cursor")] = "unknown-tool"
    wrong[put(root, event("Stop", "elsewhere", cwd="/"), cwd="/")] = "foreign-event"
    home = root / ".git/clia/spool"
    large, newer, odd = (f"{time.time_ns():020d}-1-0000000{number}" for number in range(3))
    (home / "new" / large).write_bytes(b"clia-hook 1\ntool=codex\n\n")
    os.truncate(home / "new" / large, 70 * 2**20)
    (home / "new" / newer).write_bytes(b"clia-hook 2\ntool=codex\n\n{}")
    (home / "new" / odd).write_bytes(b"clia-hook 1\ntool=codex\n")
    wrong |= {large: "event-too-large", newer: "invalid-spool-file", odd: "invalid-spool-file"}
    for name, age in (("old", 4000), ("young", 60)):
        (home / "tmp" / name).write_bytes(b"clia-hook 1\n")
        os.utime(home / "tmp" / name, (time.time() - age,) * 2)
    wrong["old"] = "unfinished-event"
    kept = {name: path.stat().st_size for name in wrong if (path := home / "new" / name).exists()}
    made = take_in(root)
    assert (made.trouble, made.done.rejected, made.done.events) == ((), len(wrong), 1)
    assert rejected(root) == wrong
    assert {name: (home / "rejected" / name).stat().st_size for name in kept} == kept
    assert waiting(root) == []
    assert os.listdir(home / "tmp") == ["young"]
    assert things(space) == Counter({("claude-5f0c1f6e", "prompt", "Hello."): 1})
    assert good not in rejected(root)
    assert take_in(root).done == take_in(root).done._replace(events=0, rejected=0)


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_what_is_odd_is_recorded_and_in_nobodys_way(root: Path, space: clia.Space, tool: str) -> None:
    """Unknown events, wrong types, paths and ids that are none: each an entry, and the turn after it is committed."""
    given = hook_payloads.a_result(tool)
    more: list[dict[str, Any]] = [
        {"tool_use_id": "a b\n\ud83d"},
        {"tool_input": {"number": float("nan"), "large": 10**40, "\ud83d": "\0"}, "duration_ms": float("inf")},
        {"cwd": "/a\0b", "transcript_path": "/x\0y"},
        {"cwd": "\ud83d", "transcript_path": "\ud83d", "agent_transcript_path": "\ud83d"},
        {"agent_id": "\0 x", "agent_type": "\0\n\ud83d"},
        {"hook_event_name": "SubagentStop", "agent_id": "../../x"},
        {"hook_event_name": "SubagentStop", "agent_id": None, "last_assistant_message": "\ud83d"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "\0\ud83d---", "prompt_id": "ü ü"},
        {"hook_event_name": "BeforeAgent", "prompt": "\0\ud83d---"},
        {"hook_event_name": "Stop", "last_assistant_message": "\0\ud83d"},
        {"hook_event_name": "AfterAgent", "prompt_response": "\0\ud83d"},
        {"hook_event_name": "SessionStart", "source": "\0", "model": "\ud83d"},
        {"hook_event_name": "SessionEnd", "reason": "\0"},
    ]
    payloads = [*hook_payloads.odd(tool).values(), *(json.dumps(given | each).encode() for each in more)]
    for payload in payloads:
        put(root, payload, tool)
        put(root, event("UserPromptSubmit" if tool != "gemini" else "BeforeAgent", "another", prompt="Hello."), tool)
        made = take_in(root)
        assert (made.trouble, rejected(root), waiting(root)) == ((), {}, []), payload
    put(root, event("SessionEnd", str(given["session_id"]), reason="other"), tool)
    assert not take_in(root).trouble
    session = agent_of(space, tool, given["session_id"])
    assert not space.trace_pending(session)
    assert sum(number for (_, kind, text), number in things(space).items() if (kind, text) == ("prompt", "Hello.")) >= 1
    check_sound(root, space)


def test_what_fails_now_stays_and_the_other_sessions_go_on(root: Path, space: clia.Space) -> None:
    """What was read of a transcript before the failure is read again; why it waits is left for doctor, until it no longer does."""
    script: Script = [{"prompt": "Write."}, {"think": "How?"}, *TURN[1:]]
    first, second = rehearse(root, script, seed=1), rehearse(root, TURN, seed=2)
    steps: list[str] = []

    def full(step: str) -> None:
        steps.append(step)
        if step == "entries-made" and steps.count(step) == 2:  # the first is of the start, the second of the turn
            raise BackendError("the disk is full", code="disk-full")

    made = take_in(root, full)
    assert [each.code for each in made.trouble] == ["disk-full"]
    assert made.done.left == len(waiting(root)) > 0
    assert agent_of(space, "claude-code", second["session"]) in {agent for agent, _, _ in things(space)}
    word = root / ".git/clia/spool/last-error.json"
    assert json.loads(word.read_text())["code"] == "disk-full"
    assert not take_in(root).trouble
    assert not word.exists()
    check_once(root, first, second)


# Sessions


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_whatever_hooks_miss_and_however_late_lines_come_each_thing_counts_once(root: Path, tool: str) -> None:
    """Missed, truncated and unknown events, unknown and late lines, a compaction, the same words again and again."""
    script: Script = [
        {"prompt": "Go on."},
        {"miss": 2},
        {"write": "a.txt", "text": "a\n"},
        {"say": "Done."},
        {"unknown-event": "EventOfTomorrow", "fields": {"deep": [1, None]}},
        {"truncated": 2},
        {"bash": "echo hello"},
        {"unknown-line": {"type": "line-of-tomorrow"}},
        {"unknown-line": "broken{\r"},
        {"lag": 3},
        {"think": "Hm."},
        {"say": "Done."},
        {"stop": True},
        {"prompt": "Go on."},
        {"lag": 2},
        {"say": "Done."},
        {"stop": True},
        {"compact": "auto", "summary": "All was done."},
        {"prompt": "Go on."},
        {"think": "Hm."},
        {"say": "Done."},
        {"stop": "rate_limit"},
        {"end": "other"},
    ]
    told = rehearse(root, script, tool)
    made = take_in(root)
    assert made.done.rejected == sum(1 for each in told["events"] if each["sent"] == "truncated") == 2
    assert not made.trouble
    check_once(root, told)
    with clia.open(root, settings=settings()) as space:
        assert "EventOfTomorrow" in notes(space)
        assert not space.trace_pending(agent_of(space, tool, told["session"]))


def _random_script(chance: random.Random) -> Script:
    """Any order of steps and of things that go wrong."""

    def step(*, by_sub: bool = False) -> dict[str, Any]:
        steps: Script = [
            {"say": chance.choice(["Done.", "I look."])},
            {"think": chance.choice(["Hm.", "So."])},
            {"write": f"{chance.choice('abc')}.txt", "text": f"{chance.random()}\n"},
            {"bash": f"echo {chance.random()} > {chance.choice('de')}.txt"},
            {"fail": "exit 2"},
            {chance.choice(["miss", "lag", "truncated"]): chance.randint(1, 3)},
        ]
        if not by_sub:
            team = [step(by_sub=True) for _ in range(chance.randint(0, 3))]
            more: Script = [
                {"prompt": chance.choice(["Go on.", "Write."])},
                {"stop": True},
                {"subagent": "helper", "task": "Help.", "steps": team, "parallel": chance.random() < 0.7},
                {"compact": "auto"},
            ]
            steps += [*more, *more]
        return chance.choice(steps)

    return [{"prompt": "Begin."}, *(step() for _ in range(chance.randint(3, 14)))]


def _now_and_then(root: Path, chance: random.Random) -> None:
    if chance.random() < 0.06:
        assert not take_in(root).trouble


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_any_session_taken_in_at_any_moment_is_recorded_once(root: Path, tool: str, soak: bool) -> None:
    """Ingest comes in between as it likes; each session goes on after it was left, and ends."""
    told = []
    for seed in range(1, 60 if soak else 6):
        chance = random.Random(f"{tool} {seed}")  # noqa: S311  # a script, not a secret
        for script in (_random_script(chance), [{"resume": 1}, *_random_script(chance), *END]):
            told.append(rehearse(root, script, tool, seed=seed, after=partial(_now_and_then, root, chance)))
    assert not take_in(root).trouble
    assert waiting(root) == []
    check_once(root, *told)


def test_each_turn_is_a_commit_with_its_own_trace(root: Path, space: clia.Space) -> None:
    """Also where all of it is taken in afterwards: then the files are those of the last one."""
    more: Script = [{"prompt": "More."}, {"write": "more.txt", "text": "more\n"}, {"say": "Done again."}, {"stop": True}]
    told = rehearse(root, [*TURN, *more, *END])
    take_in(root)
    agent = agent_of(space, "claude-code", told["session"])
    assert agent == f"claude-{told['session'][:8]}"
    assert own(space, agent)[1:] == ["Write.", "More."]
    second, first = (each for each in space.log(agent) if each.kind == "turn")
    assert {"Write.", "Done."} <= set(bound(space, first.cid))
    assert {"More.", "Done again."} <= set(bound(space, second.cid))
    assert not {"More.", "Done again."} & set(bound(space, first.cid))
    assert second.message == "More.\n\nDone again."
    assert set(space.files(agent)) == {"README.md", "main.txt", "more.txt"}


# Which agent it is


def only(space: clia.Space) -> str:
    (agent,) = {agent for agent, _ in recorded(space)}
    return agent


def test_what_a_session_did_is_not_taken_for_what_it_found_when_hooks_were_missed_and_ingest_is_late(
    root: Path, space: clia.Space
) -> None:
    """No hook told of the call, but the transcript does: the files come with the end of the turn."""
    rehearse(root, [{"prompt": "Go."}, {"miss": 2}, {"write": "late.txt", "text": "late\n"}, {"say": "Done."}, {"stop": True}])
    take_in(root)
    (agent,) = space.agents()
    log = [
        (each.message.splitlines()[0], sorted(file.path for file in space.changed(each.cid))) for each in space.session_log(agent)
    ]
    assert log[0] == ("Go.", ["late.txt"])
    assert [subject for subject, _ in log[1:]] == [f"spawn: claude-code session {agent.removeprefix('claude-')}"]


def test_a_session_of_one_event_has_an_agent(root: Path, space: clia.Space) -> None:
    put(root, event("PostToolUse", "One/Event: ü", tool_use_id="t", tool_name="Bash", tool_response="out"))
    assert take_in(root).done._replace(unreadable=0) == take_in(root).done._replace(events=1, entries=1, agents=1)
    assert only(space) == "claude-oneevent"
    check_sound(root, space)


@pytest.mark.parametrize(
    ("wanted", "agent"),
    [("scout", "scout"), ("newcomer", "newcomer"), ("rested", "rested"), ("stranger", None), ("No Name", None), ("../up", None)],
)
def test_the_tool_may_be_told_which_agent_it_is(root: Path, space: clia.Space, wanted: str, agent: str | None) -> None:
    """One that is there, a new one, one that was archived; else, as for another clone's, the session has one of its own."""
    for name in ("scout", "rested", "stranger"):
        space.spawn_at(name, clia.Briefing(name), "main")
    space.archive("rested")
    space.core.mark_foreign("stranger")
    told = rehearse(root, [*TURN, *END], agent=wanted)
    assert not take_in(root).trouble
    assert only(space) == (agent or f"claude-{told['session'][:8]}")
    assert "main.txt" in space.files(only(space))
    check_once(root, told)


def test_two_sessions_of_one_agent_may_say_the_same(root: Path, space: clia.Space) -> None:
    told = [rehearse(root, [*TURN, *END], tool, seed=seed, agent="scout") for tool in ("claude-code", "codex") for seed in (1, 2)]
    take_in(root)
    assert only(space) == "scout"
    assert things(space)["scout", "said", "Done."] == 4
    check_once(root, *told)


def test_a_session_in_a_checkout_is_the_agents_whose_it_is(root: Path, space: clia.Space) -> None:
    """Afterwards the checkout stands on the new head, so that a commit by hand goes on from there."""
    space.spawn_at("scout", clia.Briefing("scout"), "main")
    place = root.parent / "checkout"
    space.checkout("scout", place)
    told = rehearse(place, [*TURN, *END], agent="somebody-else")
    assert not take_in(root).trouble
    assert only(space) == "scout"
    assert own(space, "scout")[1:] == ["Write."]
    found = space.checkout_at(place)
    assert found is not None
    assert found.base == space.head("scout")
    (place / "by-hand.txt").write_text("hand\n")
    space.commit_dir("scout", "finding", place)
    assert set(space.files("scout")) == {"README.md", "main.txt", "by-hand.txt"}
    check_once(root, told)


def test_an_agent_that_was_archived_is_at_work_again_with_the_next_event(root: Path, space: clia.Space) -> None:
    told = [rehearse(root, TURN)]
    take_in(root)
    agent = only(space)
    space.archive(agent)
    told.append(rehearse(root, [{"resume": 1}, *TURN, *END]))
    assert not take_in(root).trouble
    assert space.agents() == [agent]
    check_once(root, *told)


def test_after_its_branch_was_deleted_a_session_goes_on_as_another_agent(root: Path, space: clia.Space) -> None:
    """What comes is kept; the name stays with what was there before."""
    told = rehearse(root, TURN)
    take_in(root)
    gone = only(space)
    git("branch", "--quiet", "--delete", "--force", f"agents/{gone}", cwd=root)
    rehearse(root, [{"resume": 1}, {"prompt": "Still there?"}, {"say": "Yes."}, {"stop": True}])
    assert not take_in(root).trouble
    assert waiting(root) == []
    agent = agent_of(space, "claude-code", told["session"])
    assert agent != gone
    assert things(space)[agent, "prompt", "Still there?"] == 1
    assert things(space)[agent, "said", "Yes."] == 1


def test_a_session_whose_worktree_is_gone_keeps_what_was_said(root: Path, space: clia.Space) -> None:
    place = root.parent / "linked"
    git("worktree", "add", "--quiet", "--detach", str(place), cwd=root)
    told = rehearse(place, [*TURN, *END])
    git("worktree", "remove", "--force", str(place), cwd=root)
    assert not take_in(root).trouble
    assert rejected(root) == {}
    check_once(root, told)


def test_a_repository_whose_path_is_no_text_is_like_any_other(tmp_path: Path) -> None:
    """The tool itself can only say something like it; the hook knows the bytes."""
    root = new_space(tmp_path.resolve() / os.fsdecode(b"sp\xff%41"))
    for name in ("Hello.", "", "Bye.", ""):
        more = {"prompt": name} if name else {}
        put(root, event("UserPromptSubmit" if name else "Stop", cwd=f"{tmp_path}/sp\N{REPLACEMENT CHARACTER}%41", **more))
        (root / (name or "turn")).write_text("x\n")
        assert (take_in(root).trouble, rejected(root)) == ((), {})
    with clia.open(root, settings=settings()) as space:
        assert own(space, only(space))[1:] == ["Hello.", "Bye."]
        assert set(space.files(only(space))) == {"README.md", "Hello.", "turn", "Bye."}


def test_sources_of_a_start(root: Path, space: clia.Space) -> None:
    """Resumed after a kill: what was left is committed as such. Cleared: the tool has a new session. Forked: a sub-agent."""
    told = [rehearse(root, [*TURN, {"prompt": "Go on."}, {"write": "left.txt", "text": "left\n"}, {"crash": True}])]
    take_in(root)
    told.append(rehearse(root, [{"resume": 1}]))
    take_in(root)
    first = agent_of(space, "claude-code", told[0]["session"])
    assert own(space, first)[-1] == "left when the session was interrupted"
    assert "left.txt" in space.files(first)
    told.append(rehearse(root, [{"fork": 2}, {"prompt": "Another way."}, {"say": "Done."}, {"stop": True}, *END]))
    take_in(root)
    fork = agent_of(space, "claude-code", told[-1]["session"])
    assert space.parent_agent(fork) == first
    assert things(space)[fork, "prompt", "Write."] == 0
    put(root, event("SessionStart", "cleared", source="clear"))
    put(root, event("SessionStart", "cleared", source="compact"))
    take_in(root)
    starts = [text for text in notes(space) if text.endswith((": clear", ": compact"))]
    assert starts == ["session started: clear", "session started: compact"]
    check_once(root, *told)


def test_a_fork_of_codex_is_one_though_it_says_that_it_starts(root: Path, space: clia.Space) -> None:
    told = [rehearse(root, TURN, "codex")]
    take_in(root)
    told.append(rehearse(root, [{"fork": 1}, {"prompt": "Another way."}, {"say": "Done."}, {"stop": True}], "codex"))
    take_in(root)
    assert space.parent_agent(agent_of(space, "codex", told[1]["session"])) == agent_of(space, "codex", told[0]["session"])
    check_once(root, *told)


# Sub-agents


def sub(kind: str, *steps: dict[str, Any], parallel: bool = False) -> dict[str, Any]:
    return {"subagent": kind, "task": f"Be a {kind}.", "steps": list(steps), "parallel": parallel}


def subs_of(space: clia.Space, told: dict[str, Any]) -> list[str]:
    return [agent_of(space, told["tool"], told["session"], each["id"]) for each in told["agents"]]


def changed(space: clia.Space, agent: str) -> set[str]:
    """The files that an agent has and the one that started it had not."""
    return set(space.files(agent)) - set(space.files(space.genesis(agent)))


def test_sub_agents_at_work_together_have_the_files_that_they_named_and_one_alone_has_all(root: Path, space: clia.Space) -> None:
    make = {"bash": "echo made > made.txt"}
    alone = sub("maker", make, {"write": "..odd.txt", "text": "odd\n"})
    team = [sub(kind, {"write": f"{kind}.txt", "text": "x\n"}, make, parallel=True) for kind in ("left", "right")]
    first: Script = [{"prompt": "Go."}, alone, {"stop": True}, {"bash": "rm made.txt"}, {"stop": True}]
    told = rehearse(root, first, after=partial(take_in, root))
    more = rehearse(root, [{"resume": 1}, {"prompt": "Go."}, *team, {"stop": True}, *END], after=partial(take_in, root))
    assert [changed(space, each) for each in subs_of(space, told)] == [{"made.txt", "..odd.txt"}]
    assert [changed(space, each) for each in subs_of(space, more)] == [{"left.txt"}, {"right.txt"}]
    agent = agent_of(space, "claude-code", told["session"])
    assert set(space.files(agent)) == {"README.md", "..odd.txt", "left.txt", "right.txt", "made.txt"}
    assert sorted(space.merged_sessions(agent)) == sorted([*subs_of(space, told), *subs_of(space, more)])
    assert [each for each in space.relations() if each.kind == "offers-merge"] == []
    name = subs_of(space, told)[0]
    assert name == f"{agent}-maker-{told['agents'][0]['id'][:6]}"
    check_once(root, told, more)


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_sub_agent_whose_end_no_hook_told_ends_with_the_session(root: Path, space: clia.Space, tool: str) -> None:
    steps: Script = [{"write": "sub.txt", "text": "sub\n"}, {"say": "Helped."}, {"miss": 1}]
    told = rehearse(root, [{"prompt": "Go."}, sub("helper", *steps), {"say": "Done."}, *END], tool)
    take_in(root)
    (helper,) = subs_of(space, told)
    assert changed(space, helper) == {"sub.txt"}
    assert space.merged_sessions(agent_of(space, tool, told["session"])) == [helper]
    check_once(root, told)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_sub_agent_of_which_hooks_told_nothing_is_found_by_its_transcript(root: Path, space: clia.Space, at_once: bool) -> None:
    """In the pass in which the session ends, or while it goes on."""
    silent = sub("helper", {"write": "sub.txt", "text": "sub\n"}, {"say": "Helped."})
    told = [rehearse(root, [{"prompt": "Go."}, {"miss": 5}, silent, {"read": "README.md"}, *(END if at_once else [])])]
    take_in(root)
    assert changed(space, *subs_of(space, told[0])) == ({"sub.txt"} if at_once else set())
    if not at_once:
        told.append(rehearse(root, [{"resume": 1}, {"stop": True}, *END]))
        take_in(root)
    check_once(root, *told)


@pytest.mark.parametrize(("tool", "missed"), [("claude-code", 3), ("codex", 4)])
def test_a_session_whose_first_event_is_its_sub_agents_keeps_the_two_apart(root: Path, tool: str, missed: int) -> None:
    """Claude Code names the session's transcript in it, Codex the sub-agent's."""
    told = rehearse(root, [{"prompt": "Go."}, sub("helper", {"say": "Helped."}), {"say": "Done."}], tool)
    spool = root / ".git/clia/spool/new"
    for name in waiting(root)[:missed]:
        (spool / name).unlink()
    take_in(root)
    check_once(root, told)


def test_lines_of_sub_agents_in_their_sessions_transcript_are_theirs(root: Path, space: clia.Space) -> None:
    """As older versions of Claude Code wrote them; also where ingest dies right after it has read them."""
    told = rehearse(root, [{"prompt": "Go."}])
    with open(told["transcript"], "a", encoding="utf-8") as file:
        for number, text in enumerate(("Found it.", "Found it.", "Left it.")):
            block = {"content": [{"type": "text", "text": text}], "id": f"m{number}"}
            file.write(json.dumps({"type": "assistant", "agentId": "a1b2c3d4", "message": block}) + "\n")

    mortal = Counter[str]()
    for number in (3, 2, 1, 9):  # after the start: the session's entries, and the sub-agent's
        mortal.clear()

        def dies(step: str, number: int = number) -> None:
            mortal[step] += 1
            if step == "entries-made" and mortal[step] == number:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            take_in(root, dies)
    assert mortal["entries-made"] < number
    helper = agent_of(space, "claude-code", told["session"], "a1b2c3d4")
    assert {key: number for key, number in things(space).items() if key[0] == helper} == {
        (helper, "said", "Found it."): 2,
        (helper, "said", "Left it."): 1,
    }


def test_where_two_sub_agents_wrote_the_same_file_the_offer_stays(root: Path, space: clia.Space) -> None:
    """Nothing of either is lost, and that it was refused is recorded once, not at the end of each turn."""
    writes: Script = [{"write": "same.txt", "text": "one\n"}, {"write": "same.txt", "text": "two\n"}]
    # The first to start is the last to write: what it wrote is there in the end, and is taken in.
    team = [sub("one", {"read": "README.md"}, writes[0], parallel=True), sub("two", writes[1], parallel=True)]
    turns: Script = [{"stop": True}, {"prompt": "Go on."}, {"stop": True}, {"prompt": "Go on."}, {"stop": True}]
    told = rehearse(root, [{"prompt": "Go."}, *team, *turns], after=partial(take_in, root))
    agent, (one, two) = agent_of(space, "claude-code", told["session"]), subs_of(space, told)
    assert {space.files(one)["same.txt"], space.files(two)["same.txt"]} == {b"one\n", b"two\n"}
    (edge,) = (each for each in space.relations() if each.kind == "offers-merge")
    assert edge.dst == agent
    refusals = git("log", "--format=%s", f"refs/clia/events/{agent}", cwd=root).splitlines()
    assert sum("refused" in each for each in refusals) == 1
    assert space.files(agent)["same.txt"] == b"one\n"
    check_once(root, told)
