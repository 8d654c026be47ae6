"""Made-up sessions of tools put into a spool, and what ingest made of them: each thing once, with the right agent."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import clia
from clia.capture import spool
from clia.capture.ingest import ingest
from clia.capture.rehearsal import Setting, parse, play
from support import git
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from clia.capture.ingest import Ingested

KINDS = ("prompt", "said", "thinking", "tool-call", "tool-result", "tool-failure")
Thing = tuple[str, str, str]  # an agent, a kind, and the id or the text


def new_space(root: Path, *, commit: bool = True) -> Path:
    """A repository of people that is a space."""
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


def put(root: Path, payload: bytes, tool: str = "claude-code", agent: str = "", cwd: str | None = None) -> str:
    """One event as the hook puts it down; its id."""
    place = spool.spool_of(os.fsencode(common_dir(root)))
    before = set(_names(place))
    spool.put([place], [spool.head(tool.encode(), os.fsencode(cwd or root), agent.encode()), payload])
    (name,) = set(_names(place)) - before
    return os.fsdecode(name)


def _names(place: bytes) -> list[bytes]:
    folder = os.path.join(place, b"new")
    return os.listdir(folder) if os.path.isdir(folder) else []


def rehearse(root: Path, script: Sequence[Mapping[str, Any]], tool: str = "claude-code", **more: Any) -> dict[str, Any]:
    """Plays a session in this process; its events go to the spool, and nothing takes them out. What it told.

    ``agent`` is what $CLIA_AGENT would be, ``hooks=False`` for a tool that has none, ``home`` another place for transcripts,
    ``after`` is called after each event.
    """
    common = common_dir(root)
    head = spool.head(tool.encode(), os.fsencode(root), more.pop("agent", "").encode())
    place = spool.spool_of(os.fsencode(common))

    after, clock = more.pop("after", None), _Clock()

    def send(payload: bytes) -> int:
        clock.catch_up()
        spool.put([place], [head, payload])
        if after is not None:
            after()
        return 0

    environment = dict(os.environ)
    home, hooks = more.pop("home", f"{common}/clia/rehearsal/{tool}"), more.pop("hooks", True)
    setting = Setting(tool, str(root), home, clock(), environment=environment, send=send if hooks else None, clock=clock)
    return play(setting._replace(**more), parse(list(script)))


class _Clock:
    """The real time; lines come quicker here than a tool writes them, and each has a millisecond of its own."""

    def __init__(self) -> None:
        self._last = datetime.now(UTC)

    def __call__(self) -> datetime:
        self._last = max(self._last + timedelta(milliseconds=1), datetime.now(UTC))
        return self._last

    def catch_up(self) -> None:
        """A hook comes after the lines that were written before it."""
        while datetime.now(UTC) <= self._last:
            pass


def take_in(root: Path, reached: Any = None, environment: Mapping[str, str] | None = None, **more: Any) -> Ingested:
    """Ingest in this process."""
    chosen = settings(reached=reached)
    with clia.open(root, settings=chosen) as space:
        return ingest(space, chosen, environment or {}, **more)


def waiting(root: Path) -> list[str]:
    return sorted(os.fsdecode(name) for name in _names(spool.spool_of(os.fsencode(common_dir(root)))))


def recorded(space: clia.Space) -> list[tuple[str, dict[str, Any]]]:
    """Every entry of every agent, bound or pending."""
    return [(hit.agent, dict(hit.entry)) for hit in space.trace_search(".", regex=True)]


def things(space: clia.Space) -> Counter[Thing]:
    """What was recorded, as a rehearsal's list names it."""
    found: Counter[Thing] = Counter()
    for agent, entry in recorded(space):
        if entry["kind"] in KINDS:
            ident = str(entry.get("data", {}).get("id", ""))
            found[agent, entry["kind"], ident if entry["kind"].startswith("tool-") and ident else entry["text"]] += 1
    return found


def agent_of(space: clia.Space, tool: str, session: str, sub: str = "") -> str:
    found = space.captures.get(tool, session, sub)
    assert found is not None, (tool, session, sub)
    return found.agent


def expected(space: clia.Space, told: Mapping[str, Any]) -> Counter[Thing]:
    """What a rehearsal says that a recorder could have seen: by a hook that came whole, or by a line."""
    tool, found = told["tool"], Counter[Thing]()
    for event in told["events"]:
        seen = event["sent"] == "whole" or (event["line"] != "none" and tool != "gemini")
        if event["kind"] in KINDS and seen:
            if tool == "gemini" and event["kind"] in ("said", "thinking"):
                continue  # no hook tells of them, but of what was said last
            agent = agent_of(space, tool, event["session"], event["agent"] if tool != "gemini" else "")
            by_id = event["kind"].startswith("tool-") and tool != "gemini"
            # A rollout does not say that a patch failed, and Codex has no hook for it.
            kind = "tool-result" if tool == "codex" and event["kind"] == "tool-failure" else event["kind"]
            found[agent, kind, event["tool_use_id"] if by_id else _text(tool, event)] += 1
        elif tool == "gemini" and event["kind"] == "turn-end" and event["sent"] == "whole" and event["text"]:
            found[agent_of(space, tool, event["session"]), "said", event["text"]] += 1
    return found


def _text(tool: str, event: Mapping[str, Any]) -> str:
    if tool == "gemini" and event["kind"] == "tool-call":
        from clia.capture.events import call_line

        return call_line(event["tool"], event["input"])
    return str(event["text"])


def check_once(root: Path, *told: Mapping[str, Any]) -> None:
    """Each thing of these sessions is recorded exactly once, of the right agent; nothing else is; and the space is sound."""
    with clia.open(root, settings=settings()) as space:
        wanted = sum((expected(space, each) for each in told), Counter[Thing]())
        found = things(space)
        assert found == wanted, {"twice or too much": found - wanted, "lost": wanted - found}
        check_sound(root, space)


def check_sound(root: Path, space: clia.Space) -> None:
    report = space.verify()
    assert report.clean, report.findings
    git("fsck", "--strict", "--no-dangling", cwd=root)
