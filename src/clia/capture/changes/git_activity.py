"""The activity of git in a repository between the events of a session.

Each hook reports the sizes of the reflogs of HEAD, and the stashes. What was added to a reflog between two events is the tool's if

- a tool call was running, and
- it is the reflog of the session's directory, or that of another worktree which the tool created, works in, or named in a git
  command of the session.

A worktree that a call removes takes its reflog with it. Its commits are then in the reflogs of branches only. A stash is the tool's
if it was made while a call ran, and a command of the session mentions stashes. Everything else is a person's, or another program's.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import NamedTuple

from clia.capture.events import CALL, FAILURE, RESULT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.capture.events import ToolEvent
    from clia.capture.service import CapturedSession
    from clia.capture.spool_reader import SpoolRecord

_STASHES = "stashes"
_NAMED_MAX = 20
_GIT, _STASH, _WORKTREE = (re.compile(rf"\b{word}") for word in (r"git\b", r"(auto)?stash", r"worktree\b"))
# Commands that can write files of another commit to the directory while HEAD stays. A popped stash is missing afterwards, unless
# it conflicts.
_READS_COMMITS = re.compile(r"\bgit\b[^|;&\n]*?\s(checkout|restore|show|diff|merge|cherry-pick|read-tree|archive|format-patch)\b")
_READS_STASH = re.compile(r"\bstash\s+(apply|pop|show)\b(?P<words>[^|;&\n]*)|\bstash@\{(?P<number>\d+)\}")
_REVISION = re.compile(r"[\w@][\w./@{}^~+-]*")
_HEAD = re.compile(r"^(HEAD|@)(?=$|[~^])")


class GitActivity(NamedTuple):
    """The state of a session's repository, as known from its events."""

    looked_at: str = ""  # HEAD of the directory at the last look
    log: str = ""  # the reflog of HEAD in its directory, below the git directory
    sizes: Mapping[str, int] = {}  # the sizes of all reflogs of HEAD at the last event
    stashes: tuple[str, ...] = ()  # the stashes at the last event, the newest first
    reached: tuple[str, ...] = ()  # reflogs of other worktrees that the tool created or named
    uses_stashes: bool = False  # whether one of the tool's commands mentions stashes
    # Since the agent's last commit:
    logged: tuple[tuple[str, int, int, bool], ...] = ()  # parts of reflogs that were written; whether by the tool
    stashed: tuple[str, ...] = ()  # stashes that the tool made
    applied: tuple[str, ...] = ()  # stashes that it may have applied
    named: tuple[str, ...] = ()  # commits that its git commands name, and whose files it may have taken
    worktree_calls: tuple[int, int] | None = None  # when calls that mention worktrees began and ended

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened since the agent's last commit."""
        return not (self.logged or self.stashed or self.applied or self.named or self.worktree_calls)

    def committed(self) -> GitActivity:
        """The state after a commit of the agent."""
        return self._replace(logged=(), stashed=(), applied=(), named=(), worktree_calls=None)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GitActivity:
        fields = {name: tuple(field) if isinstance(field, list) else field for name, field in value.items() if name in cls._fields}
        return cls(**fields | {"logged": tuple(map(tuple, value.get("logged", ())))})


def is_here(captured: CapturedSession, record: SpoolRecord) -> bool:
    """Whether an event is from the session's directory: a tool can change to another worktree."""
    own = record.logs.partition(":")[0]
    return not own or not captured.git.log or own == captured.git.log


def is_in_call(captured: CapturedSession, event: ToolEvent) -> bool:
    """Whether a tool call ran until this event. The hook that announces a call may have been killed, but not the hook with its
    result."""
    return captured.calls > 0 or event.what in (RESULT, FAILURE)


def noticed(
    captured: CapturedSession, event: ToolEvent, record: SpoolRecord, commit_of: Callable[[str], str | None]
) -> CapturedSession:
    """The session, with the state of git as of an event. ``commit_of`` resolves a revision."""
    fields = dict(part.rsplit(":", 1) for part in record.logs.split(" ") if ":" in part)
    stashes = tuple(filter(None, fields.pop(_STASHES, "").split(",")))
    sizes = {name: int(size) for name, size in fields.items() if size.isdecimal()}
    if not sizes:
        return captured
    git, own, in_call = captured.git, next(iter(sizes)), is_in_call(captured, event)
    command = f"{event.text} {event.data.get('input', '')}" if event.what == CALL else ""
    log, reached = git.log or own, {*git.reached}
    if in_call or command:
        reached |= {own} | _named_logs(command, sizes, record)
    if git.sizes and in_call:
        reached |= sizes.keys() - git.sizes.keys()  # created while a call ran
    grown = [
        (name, git.sizes.get(name, 0), size, in_call and (name == log or name in reached))
        for name, size in sizes.items()
        if git.sizes and size > git.sizes.get(name, 0)
    ]
    git = _with_stashes(git, stashes, command, in_call=in_call)
    git = git._replace(
        log=log,
        sizes=sizes,
        logged=(*git.logged, *grown),
        reached=tuple(sorted(reached - {log})),
        named=_unique(git.named, _named_commits(command, record.commit, commit_of))[:_NAMED_MAX],
        worktree_calls=_worktree_calls(captured, command, record),
        looked_at=git.looked_at or (record.commit if own == log else ""),
    )
    return captured._replace(git=git)


def looked(captured: CapturedSession, tree: str) -> CapturedSession:
    """The session, after its directory was committed as it is."""
    return captured._replace(tree=tree, paths=(), wrote={}, git=captured.git._replace(looked_at=captured.head))


def _with_stashes(git: GitActivity, stashes: tuple[str, ...], command: str, *, in_call: bool) -> GitActivity:
    uses = git.uses_stashes or bool(_STASH.search(command))
    new_stashes = tuple(cid for cid in stashes if cid not in git.stashes) if in_call and uses and git.log else ()
    gone = tuple(cid for cid in git.stashes if cid not in stashes) if in_call else ()
    numbers = [0 if match["number"] is None else int(match["number"]) for match in _READS_STASH.finditer(command)]
    numbers += [int(word) for match in _READS_STASH.finditer(command) for word in re.findall(r"\b\d+\b", match["words"] or "")]
    read = tuple(stashes[number] for number in numbers if number < len(stashes))
    return git._replace(
        stashes=stashes,
        uses_stashes=uses,
        stashed=_unique(git.stashed, new_stashes),
        applied=_unique(git.applied, gone, read),
    )


def _named_logs(command: str, logs: Mapping[str, int], record: SpoolRecord) -> set[str]:
    """The reflogs of the worktrees that a git command names."""
    if not _GIT.search(command):
        return set()
    main = os.path.basename(os.path.dirname(os.path.dirname(os.path.dirname(record.spool))))
    names = {log: log.split("/")[1] if log.startswith("worktrees/") else main for log in logs}
    return {log for log, name in names.items() if name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", command)}


def _named_commits(command: str, head: str, commit_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """The commits that are named by a command that can take files from them. HEAD may have moved since."""
    if not _READS_COMMITS.search(command):
        return ()
    words = (word for match in _REVISION.findall(command) for word in match.split(".."))
    revisions = dict.fromkeys(_HEAD.sub(head, word.rstrip(".")) for word in words if word)
    revisions |= dict.fromkeys(f"{revision}@{{1}}" for revision in revisions if "/" in revision)  # it may have been fetched since
    return tuple(filter(None, map(commit_of, filter(None, revisions))))


def _worktree_calls(captured: CapturedSession, command: str, record: SpoolRecord) -> tuple[int, int] | None:
    """When the calls that may have removed a worktree, with its reflog, began and ended."""
    at, before = int(datetime.fromisoformat(record.at).timestamp()), captured.git.worktree_calls
    if before is not None:
        return before[0], at if captured.calls else before[1]
    return (at, at) if _WORKTREE.search(command) else None


def _unique(*ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cid for group in ids for cid in group))
