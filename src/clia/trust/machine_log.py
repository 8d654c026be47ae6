"""How a machine's log is stored, and how much of it a reader has seen.

``refs/clia/log/MACHINE`` points at one commit without parents, which the machine signs. Plain git, which walks the history of
every ref, finds one commit there. An entry is a line: the digest of the line before, and the entry as canonical JSON. So the digest
of the newest line covers all entries. The newest lines are in the commit's header ``clia-log``, so that an append writes one
object; older ones are in files of the commit's tree, named by the number of their first entry. Files are joined, never split.

Earlier versions wrote a commit for each entry, linked as a history. Both forms are read, and an entry has the same line and digest
in both: what a reader has seen of a log stays comparable when its machine changes the form.

For checkpoints and witnesses: ``read_machine_log(objects, machine, tip)`` reads and checks a log; its ``end`` is a ``LogEnd``, the
triple (machine, length, digest); ``is_prefix(old_end, log)`` tells whether a log continues what a reader has seen before.
``log_end(objects, machine, tip)`` is the end alone, from one commit, and ``continues(objects, machine, new, old)`` compares two.

Invariant: a log that was read without ``malformed-log`` is one unbroken chain from its first entry to its end.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import NamedTuple

from clia.errors import GitError, NoSuchObject
from clia.trust.raw_commits import raw_commit
from clia.values import refs as names
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from clia.git.records import TreeEntry
    from clia.trust.raw_commits import RawCommit

    class LogObjects(Protocol):
        """What is read of a repository's objects: ``GitObjects``."""

        def raw(self, cid: str) -> bytes: ...
        def blob(self, cid: str) -> bytes: ...
        def listing(self, tree: str) -> Iterable[tuple[str, TreeEntry]]: ...


LOG = "Clia-Log"
"""The trailer of an entry, in the commits of earlier versions."""
LOG_END = "Clia-Log-End"
"""The trailer of a log's commit: the number of entries and the digest of the last one."""
MALFORMED = "malformed-log"
_DIGEST = 64
LOG_END_TEXT = re.compile(r"(\d{1,18}) ([0-9a-f]{64})")
"""An end in its text form: the number of entries and the digest."""


class LogEnd(NamedTuple):
    """How far a log goes."""

    machine: str
    length: int  # number of entries
    digest: str  # of the last entry, and with it of all of them

    @property
    def text(self) -> str:
        return f"{self.length} {self.digest}"


class LoggedMove(NamedTuple):
    """A move of a ref."""

    ref: str
    old: str | None
    new: str | None
    why: str

    @property
    def text(self) -> str:
        return json.dumps(self)


class LogEntry(NamedTuple):
    """An entry of a log: the moves of one verb or, under load, of several that finished at the same time."""

    keys: str | None  # the commit of the chain of keys that was current
    at: int
    moves: tuple[LoggedMove, ...]
    notes: tuple[str, ...] = ()  # the notes of the moves, which only the machine reads
    commit: str | None = None  # the commit that had this entry, in the form of earlier versions


class LogSegment(NamedTuple):
    """A file of a log."""

    start: int  # the number of its first entry
    blob: str


class MachineLog:
    """The log of one machine, as far as it was read."""

    def __init__(self, machine: str, lines: Sequence[bytes]) -> None:
        self.machine = machine
        self.lines = lines

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.machine, len(self.lines), self.digest_at(len(self.lines)))

    @cached_property
    def entries(self) -> list[LogEntry]:
        """The entries, oldest first. ``malformed-log`` if one cannot be read."""
        return [read_line(line) for line in self.lines]

    def digest_at(self, count: int) -> str:
        """The digest of the first entries."""
        if count == len(self.lines):
            return line_digest(self.lines[-1]) if self.lines else first_digest(self.machine)
        return self.lines[count][:_DIGEST].decode("ascii", "replace")


def malformed(message: str) -> GitError:
    """The error about a log that is not an unbroken chain of entries."""
    return GitError(message, code=MALFORMED)


def is_prefix(old: LogEnd, log: MachineLog) -> bool:
    """Whether a log begins with the entries that it had when it ended at ``old``."""
    return old.machine == log.machine and old.length <= len(log.lines) and log.digest_at(old.length) == old.digest


def continues(objects: LogObjects, machine: str, new: str, old: str) -> bool:
    """Whether the log that ends at a commit begins with the one that ends at another. No, if one of them cannot be read."""
    try:
        return new == old or is_prefix(log_end(objects, machine, old), read_machine_log(objects, machine, new))
    except (GitError, NoSuchObject):
        return False


def read_machine_log(objects: LogObjects, machine: str, tip: str) -> MachineLog:
    """Read the log that ends at a commit. Whether the machine signed it, is for the caller to check.

    ``malformed-log`` if it is not an unbroken chain; ``GitError`` and ``NoSuchObject`` if objects are damaged or missing.
    """
    commit = _commit(objects, tip)
    if commit.log is None:
        return MachineLog(machine, linked_lines(machine, linked_commits(objects, tip)))
    lines: list[bytes] = []
    for segment in segments_of(objects, commit):
        if segment.start != len(lines):
            raise malformed(f"a file of the log {tip} has another place than its name says")
        lines += objects.blob(segment.blob).split(b"\n")[:-1]
    lines += commit.log
    log = MachineLog(machine, lines)
    _check_chain(log, 0)
    if log.end != end_of(machine, commit):
        raise malformed(f"the log {tip} has another end than it says")
    return log


def log_end(objects: LogObjects, machine: str, tip: str) -> LogEnd:
    """The end of the log that ends at a commit. In the present form, this reads the commit only."""
    commit = _commit(objects, tip)
    return read_machine_log(objects, machine, tip).end if commit.log is None else end_of(machine, commit)


def end_of(machine: str, commit: RawCommit) -> LogEnd:
    """The end of a log as its commit states it."""
    match = LOG_END_TEXT.fullmatch(commit.trailer(LOG_END) or "")
    if match is None:
        raise malformed(f"the log {commit.cid} does not say where it ends")
    return LogEnd(machine, int(match[1]), match[2])


def segments_of(objects: LogObjects, commit: RawCommit) -> list[LogSegment]:
    """The files of a log, oldest first."""
    listing = [(name, entry.cid) for name, entry in objects.listing(commit.tree)]
    if not all(name.isascii() and name.isdecimal() for name, _ in listing):
        raise malformed(f"the tree of the log {commit.cid} has other files than those of a log")
    return [LogSegment(int(name), cid) for name, cid in sorted(listing)]


def _commit(objects: LogObjects, cid: str) -> RawCommit:
    try:
        return raw_commit(cid, objects.raw(cid))
    except ValueError as err:
        raise malformed(str(err)) from None


def _check_chain(log: MachineLog, start: int) -> None:
    digest = log.digest_at(start) if start else first_digest(log.machine)
    for number, line in enumerate(log.lines[start:], start):
        if line[: _DIGEST + 1] != f"{digest} ".encode("ascii"):
            raise malformed(f"entry {number} of the log of {log.machine} does not follow the one before")
        digest = line_digest(line)


# Lines


def first_digest(machine: str) -> str:
    """The digest before the first entry: it differs between machines, so that no entry fits into another machine's log."""
    return hashlib.sha256(f"clia log of {machine}".encode()).hexdigest()


def line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def write_line(digest: str, entry: LogEntry) -> bytes:
    """The line of an entry after the one with this digest."""
    body: dict[str, Any] = {"at": entry.at, "keys": entry.keys, "moves": [list(move) for move in entry.moves]}
    body |= {"notes": list(entry.notes)} if entry.notes else {}
    body |= {"commit": entry.commit} if entry.commit is not None else {}
    return digest.encode("ascii") + b" " + canonical_bytes(body)


def read_line(line: bytes) -> LogEntry:
    """The entry of a line; ``malformed-log`` unless it is exactly one, in its canonical form."""
    data = line[_DIGEST + 1 :]
    try:
        body: Any = json.loads(data)
        if not isinstance(body, dict) or canonical_bytes(body) != data or body.keys() - _FIELDS:
            raise ValueError("not canonical")
        return _entry(body, body["at"], body.get("commit"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise malformed(f"an entry of a log cannot be read: {data[:60].decode('utf-8', 'replace')}") from None


_FIELDS = {"at", "keys", "moves", "notes", "commit"}


def _entry(body: dict[str, Any], at: Any, commit: Any) -> LogEntry:
    moves = tuple(LoggedMove(*move) for move in body["moves"])
    notes = body.get("notes", [])
    ids = [value for move in moves for value in move[1:3]] + [body.get("keys"), commit]
    texts = [text for move in moves for text in (move.ref, move.why)]
    if not moves or not all(isinstance(text, str) for text in texts) or isinstance(at, bool) or not isinstance(at, int):
        raise ValueError("incomplete")
    if not all(value is None or names.is_id(value) for value in ids) or not isinstance(notes, list):
        raise ValueError("malformed")
    return LogEntry(body["keys"], at, moves, tuple(map(str, notes)), commit)


# Logs of earlier versions


def linked_commits(objects: LogObjects, tip: str) -> list[RawCommit]:
    """The commits of a linked log, oldest first."""
    commits: list[RawCommit] = []
    cid: str | None = tip
    while cid is not None:
        commits.append(_commit(objects, cid))
        cid = commits[-1].parents[0] if commits[-1].parents else None
    return commits[::-1]


def linked_lines(machine: str, commits: Iterable[RawCommit]) -> list[bytes]:
    """The lines of a linked log's entries."""
    lines: list[bytes] = []
    digest = first_digest(machine)
    for commit in commits:
        lines.append(write_line(digest, read_linked_entry(commit)))
        digest = line_digest(lines[-1])
    return lines


def read_linked_entry(commit: RawCommit) -> LogEntry:
    """The entry of a commit; ``malformed-log`` unless it is exactly one, in its canonical form."""
    texts = [value for key, value in commit.trailers if key == LOG]
    try:
        body: Any = json.loads(texts[0]) if len(texts) == 1 and len(commit.parents) < 2 else None
        if not isinstance(body, dict) or canonical_bytes(body).decode("utf-8") != texts[0]:
            raise ValueError("not canonical")
        return _entry(body, commit.at, commit.cid)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise malformed(f"the entry {commit.cid} of a log cannot be read") from None
