"""Rehearsed tool sessions in a spool, and checks that ingest recorded each event once, for the right agent."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import clia
from clia.capture import hook as hook_program
from clia.capture import spool, spool_reader
from clia.capture.ingest import ingest
from clia.capture.rehearsal import Setting, parse, play
from support import git
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from clia.capture.ingest import Ingested

Script = list[dict[str, Any]]

TURN: Script = [{"prompt": "Write."}, {"write": "main.txt", "text": "main\n"}, {"say": "Done."}, {"stop": True}]
END: Script = [{"end": "other"}]
KINDS = ("prompt", "said", "thinking", "tool-call", "tool-result", "tool-failure")
RecordedEntry = tuple[str, str, str]  # the agent, the kind, and the id or the text


def new_space(root: Path, *, commit: bool = True) -> Path:
    """A repository with a person's commit, which is a space."""
    root.mkdir(parents=True)
    git("init", "--quiet", "--initial-branch=main", "--template=", cwd=root)
    if commit:
        (root / "README.md").write_text("people\n")
        git("add", ".", cwd=root)
        git("commit", "--quiet", "--message=first", cwd=root)
    clia.init(root, settings=settings()).close()
    return root


def common_dir(root: Path) -> str:
    return os.path.join(root, git("rev-parse", "--git-common-dir", cwd=root).rstrip("\n"))


def put(
    root: Path, payload: bytes, tool: str = "claude-code", agent: str = "", cwd: str | None = None, git_state: bool = False
) -> str:
    """Put an event into the spool as the hook does; return its id. ``git_state``: with HEAD and the sizes of reflogs."""
    place = spool.spool_of(os.fsencode(common_dir(root)))
    before = set(_names(place))
    dirs = hook_program.git_dirs(os.fsencode(cwd or root)) if git_state else None
    state = {"commit": hook_program.head_commit(*dirs), "logs": hook_program.reflog_state(*dirs)} if dirs else {}
    spool.put([place], [spool.head(tool.encode(), os.fsencode(cwd or root), agent.encode(), **state), payload])
    (name,) = set(_names(place)) - before
    return os.fsdecode(name)


def _names(place: bytes) -> list[bytes]:
    folder = os.path.join(place, b"new")
    return os.listdir(folder) if os.path.isdir(folder) else []


def rehearse(root: Path, script: Sequence[Mapping[str, Any]], tool: str = "claude-code", **more: Any) -> dict[str, Any]:
    """Play a session in this process, with its events left in the spool; return the rehearsal's report.

    ``agent`` is $CLIA_AGENT, ``hooks=False`` means a tool without hooks, ``home`` is the directory of transcripts, ``after`` is
    called after each event, and ``send`` takes the events in place of the spool.
    """
    common = common_dir(root)
    head = spool.head(tool.encode(), os.fsencode(root), more.pop("agent", "").encode())
    place = spool.spool_of(os.fsencode(common))

    after, take, clock = more.pop("after", None), more.pop("send", None), _Clock()

    def send(payload: bytes) -> int:
        clock.catch_up()
        if take is None:
            spool.put([place], [head, payload])
        else:
            take(payload)
        if after is not None:
            after()
        return 0

    environment = dict(os.environ)
    home, hooks = more.pop("home", f"{common}/clia/rehearsal/{tool}"), more.pop("hooks", True)
    setting = Setting(tool, str(root), home, clock(), environment=environment, send=send if hooks else None, clock=clock)
    return play(setting._replace(**more), parse(list(script)))


class _Clock:
    """The real time, in which each line of a transcript has a different millisecond."""

    def __init__(self) -> None:
        self._last = datetime.now(UTC)

    def __call__(self) -> datetime:
        self._last = max(self._last + timedelta(milliseconds=1), datetime.now(UTC))
        return self._last

    def catch_up(self) -> None:
        """Wait until the real time has passed the lines written so far, as it has when a hook runs."""
        while datetime.now(UTC) <= self._last:
            pass


def run_ingest(root: Path, reached: Any = None, environment: Mapping[str, str] | None = None, **more: Any) -> Ingested:
    """Ingest in this process."""
    options = settings(reached=reached)
    with clia.open(root, settings=options) as space:
        return ingest(space, options, environment or {}, **more)


def ingest_live(root: Path, script: Sequence[Mapping[str, Any]]) -> str:
    """Rehearse a session and ingest after each event; return its agent."""
    report = rehearse(root, script, after=lambda: run_ingest(root))
    run_ingest(root)
    return f"claude-{report['session'][:8]}"


def ingest_afterwards(root: Path, script: Sequence[Mapping[str, Any]]) -> str:
    """Rehearse a session and ingest it when it is over; return its agent."""
    report = rehearse(root, script)
    run_ingest(root)
    return f"claude-{report['session'][:8]}"


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> str:
    """Put an event of Claude Code into the spool; return its id."""
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    return put(root, json.dumps(body).encode())


def later_file_time(root: Path) -> None:
    """Wait until the file system gives a new file a later time than the existing ones have."""
    file = root / ".git" / "file-time"
    file.touch()
    first = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == first:
        file.chmod(0o600)


def waiting(root: Path) -> list[str]:
    """The ids of the events in the spool."""
    return sorted(os.fsdecode(name) for name in _names(spool.spool_of(os.fsencode(common_dir(root)))))


def recorded(space: clia.Space) -> list[tuple[str, dict[str, Any]]]:
    """The entries of every agent, bound and pending."""
    return [(hit.agent, dict(hit.entry)) for hit in space.trace_search(".", regex=True)]


def texts_of_kind(space: clia.Space, kind: str) -> list[str]:
    """The texts of all recorded entries of a kind."""
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == kind]


def recorded_entries(space: clia.Space) -> Counter[RecordedEntry]:
    """The recorded entries, identified as in a rehearsal's report."""
    entries: Counter[RecordedEntry] = Counter()
    for agent, entry in recorded(space):
        if entry["kind"] in KINDS:
            ident = str(entry.get("data", {}).get("id", ""))
            kind = _kind(agent, entry["kind"])
            entries[agent, kind, ident if kind.startswith("tool-") and ident else entry["text"]] += 1
    return entries


def _kind(agent: str, kind: str) -> str:
    """Only a rollout of Codex says that a command failed; a hook may have reported its result before."""
    return "tool-result" if kind == "tool-failure" and agent.startswith("codex") else kind


def agent_of(space: clia.Space, tool: str, session: str, sub: str = "") -> str:
    captured = space.captures.get(tool, session, sub)
    assert captured is not None, (tool, session, sub)
    return captured.agent


def expected_entries(space: clia.Space, report: Mapping[str, Any]) -> Counter[RecordedEntry]:
    """The entries of a rehearsal that a recorder could observe: by a complete hook event, or by a line of the transcript."""
    tool, entries = report["tool"], Counter[RecordedEntry]()
    for event in report["events"]:
        in_chat = tool == "gemini" and (event["kind"] == "thinking" or (event["agent"] and event["kind"] in ("prompt", "said")))
        observable = (
            event["line"] != "none" if in_chat else event["sent"] == "whole" or (event["line"] != "none" and tool != "gemini")
        )
        if event["kind"] in KINDS and observable:
            if tool == "gemini" and event["kind"] == "said" and not in_chat:
                continue  # hooks report only the last message
            agent = agent_of(space, tool, event["session"], event["agent"] if tool != "gemini" or in_chat else "")
            by_id = event["kind"].startswith("tool-") and tool != "gemini"
            entries[agent, _kind(agent, event["kind"]), event["tool_use_id"] if by_id else _text(tool, event)] += 1
        elif tool == "gemini" and event["kind"] == "turn-end" and event["sent"] == "whole" and event["text"]:
            entries[agent_of(space, tool, event["session"]), "said", event["text"]] += 1
    return entries


def _text(tool: str, event: Mapping[str, Any]) -> str:
    if tool == "gemini" and event["kind"] == "tool-call":
        from clia.capture.events import call_line

        return call_line(event["tool"], event["input"])
    return str(event["text"])


def check_once(root: Path, *reports: Mapping[str, Any]) -> None:
    """Check that exactly the entries of these sessions are recorded, once, for the right agents, and that the space is sound."""
    with clia.open(root, settings=settings()) as space:
        expected = sum((expected_entries(space, report) for report in reports), Counter[RecordedEntry]())
        actual = recorded_entries(space)
        assert actual == expected, {"unexpected": actual - expected, "missing": expected - actual}
        check_sound(root, space)


def check_sound(root: Path, space: clia.Space) -> None:
    report = space.verify()
    assert report.clean, report.findings
    git("fsck", "--strict", "--no-dangling", cwd=root)


def event(name: str, session: str = "5f0c1f6e-8f3b", **more: Any) -> bytes:
    """The payload of a hook event."""
    return json.dumps({"session_id": session, "hook_event_name": name, **more}).encode()


def rejected_codes(root: Path) -> dict[str, str]:
    """The rejected events of the spool: error codes by id."""
    return {event.id: event.code for event in spool_reader.rejected(spool_reader.spools(common_dir(root), {})[0])}


def subjects(space: clia.Space, agent: str) -> list[str]:
    """The subjects of an agent's own commits, oldest first."""
    return [commit.message.splitlines()[0] for commit in space.log(agent) if commit.agent == agent][::-1]


def only_agent(space: clia.Space) -> str:
    """The one agent with recorded entries."""
    (agent,) = {agent for agent, _ in recorded(space)}
    return agent
