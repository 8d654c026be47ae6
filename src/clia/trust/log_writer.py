"""Appending to the log of this machine: one object for most appends, and one commit for the whole log.

The newest entries are in the commit; once they are many, they become a file of its tree. Files of the same size are joined, so
that a log of any length has few of them, and each entry is written a few times only.

Invariant: the ref moves from one log to a log that continues it, or not at all. An entry whose append returned is durable. A log
that this machine did not sign is never continued, and so never signed: if it replaced ours, ours is continued.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, GitError, StaleRef
from clia.git.records import FILE, TreeEntry
from clia.trust.machine_log import (
    LOG_END,
    LogEnd,
    LogEntry,
    LogSegment,
    end_of,
    first_digest,
    is_prefix,
    line_digest,
    linked_commits,
    linked_lines,
    read_line,
    read_machine_log,
    segments_of,
    write_line,
)
from clia.trust.raw_commits import LOG_HEADER, raw_commit
from clia.trust.ssh_signatures import GIT, verify_signature
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.records import Stamp
    from clia.git.repository import Git
    from clia.trust.machine_keys import MachineKey
    from clia.trust.raw_commits import RawCommit
    from clia.trust.superseded_logs import SupersededLogs

TAIL_ENTRIES, TAIL_BYTES = 8, 16 * 1024
"""The most entries that are in the commit itself, and their most bytes."""
FILES_JOINED = 8
"""This number of files of one size becomes one file."""
FILE_SIZES = (4096, 512, 64, 8)
"""Entries of a file, once it was joined; the largest files are not joined any more."""
_FILE_BYTES = 4 * 1024 * 1024
_NOTED = 64
"""Entries of an older file that may belong to the newest append."""


class _WrittenLog(NamedTuple):
    """A log that ends at a commit, as far as an append needs it."""

    end: LogEnd
    commit: str | None = None  # None: it has no entry yet
    tree: str | None = None
    segments: tuple[LogSegment, ...] = ()
    lines: tuple[bytes, ...] = ()  # the newest, which are in no file


class LogWriter:
    """Appends to the log of this machine. The caller holds the lock of the log."""

    def __init__(self, git: Git, machine: MachineKey, superseded: SupersededLogs) -> None:
        self._git = git
        self._machine = machine
        self._superseded = superseded
        self._log: tuple[str | None, _WrittenLog] | None = None  # the ref's value, and the log that the next append continues
        self._noted: tuple[str | None, frozenset[str]] | None = None  # the ref's value, and the notes of the newest entries
        self._empty_tree: str | None = None

    def append(self, name: str, entries: Sequence[LogEntry], by: Stamp) -> None:
        """Append entries, if any, to the log of this machine with one commit. Nothing is written in a space that does not sign."""
        tip, log = self._current(name)
        digest, lines = log.end.digest, list(log.lines)
        for entry in entries:
            lines.append(write_line(digest, entry))
            digest = line_digest(lines[-1])
        new, unused = self._arranged(log, lines, LogEnd(name, log.end.length + len(entries), digest))
        data = self._signed(new, by)
        if data is None:
            return
        commit = self._git.objects.write_raw_commit(data)
        try:
            self._git.refs.move(names.log(name), tip, commit, "clia: log")
        except StaleRef:
            self._log = None
            ref = names.log(name)
            raise GitError(f"{ref} was moved by another program", code="log-moved", fields={"ref": ref}) from None
        self._log = commit, new._replace(commit=commit)
        self._noted = commit, frozenset(note for entry in entries for note in entry.notes)
        before = log.commit, log.tree if log.tree != new.tree and log.segments else None
        self._superseded.add(name, commit, [cid for cid in (*before, *unused) if cid is not None])

    def tidy(self, name: str, by: Stamp) -> None:
        """Give a log of an earlier version the present form, and remove objects that nothing needs any more."""
        tip, log = self._current(name)
        if log.commit != tip:
            self.append(name, [], by)
        self._superseded.remove(name)

    def noted(self, name: str) -> frozenset[str]:
        """The notes of the newest entries: a process that died may have left them."""
        tip, log = self._current(name)
        if self._noted is not None and self._noted[0] == tip:
            return self._noted[1]
        lines = list(log.lines)
        if len(lines) < TAIL_ENTRIES and log.segments:
            lines += self._git.objects.blob(log.segments[-1].blob).split(b"\n")[:-1][-_NOTED:]
        self._noted = tip, frozenset(note for line in lines for note in read_line(line).notes)
        return self._noted[1]

    # Reading

    def _current(self, name: str) -> tuple[str | None, _WrittenLog]:
        """The ref's value, and the log that the next append continues."""
        tip = self._git.refs.present(names.log(name))
        if self._log is None or self._log[0] != tip or self._log[1].end.machine != name:
            self._log = tip, self._read_current(name, tip)
        return self._log

    def _read_current(self, name: str, tip: str | None) -> _WrittenLog:
        """The log at the ref; ours, if another program replaced it by an older or a foreign one, or removed it."""
        last = self._superseded.last(name)
        try:
            log = self._read(name, tip)
        except CliaError:
            if last is None or not self._continues(name, last, None):
                raise
            return self._read(name, last)
        return self._read(name, last) if last not in (None, tip) and self._continues(name, str(last), log) else log

    def _continues(self, name: str, commit: str, log: _WrittenLog | None) -> bool:
        """Whether the log of a commit is ours, and continues another."""
        try:
            own = self._read(name, commit)
            if log is None or own.end.length <= log.end.length:
                return log is None
            return is_prefix(log.end, read_machine_log(self._git.objects, name, commit))
        except CliaError:
            return False  # for example, its objects were removed

    def _read(self, name: str, tip: str | None) -> _WrittenLog:
        if tip is None:
            return _WrittenLog(LogEnd(name, 0, first_digest(name)))
        objects = self._git.objects
        try:
            commit = raw_commit(tip, objects.raw(tip))
        except ValueError as err:
            raise GitError(str(err), code="corrupt-object", fields={"cid": tip}) from None
        if commit.log is None:
            return self._converted(name, tip)
        self._check_signer(name, commit)
        return _WrittenLog(end_of(name, commit), tip, commit.tree, tuple(segments_of(objects, commit)), commit.log)

    def _converted(self, name: str, tip: str) -> _WrittenLog:
        """The log of an earlier version, which has a commit for each entry, with the same entries in files."""
        commits = linked_commits(self._git.objects, tip)
        for commit in commits:
            self._check_signer(name, commit)
        lines = linked_lines(name, commits)
        end = LogEnd(name, len(lines), line_digest(lines[-1]))
        return self._arranged(_WrittenLog(LogEnd(name, 0, first_digest(name))), lines, end)[0]

    def _check_signer(self, name: str, commit: RawCommit) -> None:
        reason = "it is not signed"
        if commit.signature is not None:
            try:
                signature = verify_signature(commit.signature, commit.signed, GIT)
            except BadSignature as err:
                reason = err.message
            else:
                if signature.certificate is None and signature.key == self._machine.public():
                    return
                reason = "it is signed with another key"
        message = f"{commit.cid} at {names.log(name)} is not of the log of this machine: {reason}"
        hints = ["clia verify says what else was changed", f"bring the log back: git update-ref {names.log(name)} COMMIT"]
        raise GitError(message, code="forged-log", hints=hints, fields={"ref": names.log(name), "cid": commit.cid})

    # Writing

    def _arranged(self, log: _WrittenLog, lines: list[bytes], end: LogEnd) -> tuple[_WrittenLog, list[str]]:
        """A log with these lines after its files; older lines are moved into files. Also the files that were joined."""
        segments, unused = list(log.segments), list[str]()
        start = end.length - len(lines)
        while len(lines) > TAIL_ENTRIES or (len(lines) > 1 and sum(map(len, lines)) > TAIL_BYTES):
            number = next((size for size in FILE_SIZES if size <= len(lines)), len(lines) - 1)
            segments.append(LogSegment(start, self._file(lines[:number])))
            start += number
            lines = lines[number:]
            unused += self._join(segments, start)
        tree = log.tree
        if segments != list(log.segments) or tree is None:
            tree = self._tree(segments)
        return log._replace(end=end, tree=tree, segments=tuple(segments), lines=tuple(lines)), unused

    def _file(self, lines: Sequence[bytes]) -> str:
        return self._git.objects.write_blob(b"".join(line + b"\n" for line in lines))

    def _join(self, segments: list[LogSegment], end: int) -> list[str]:
        """Join the last files while they have one size; returns those that were joined."""
        objects, unused = self._git.objects, list[str]()
        while len(segments) >= FILES_JOINED:
            last = segments[-FILES_JOINED:]
            levels = {_level(after - before) for before, after in pairwise([*(segment.start for segment in last), end])}
            if len(levels) > 1 or max(levels) == len(FILE_SIZES) - 1:
                break
            if sum(objects.size(segment.blob) for segment in last) > _FILE_BYTES:
                break
            blob = objects.write_blob(b"".join(objects.blob(segment.blob) for segment in last))
            unused += [segment.blob for segment in last]
            segments[-FILES_JOINED:] = [LogSegment(last[0].start, blob)]
        return unused

    def _tree(self, segments: Sequence[LogSegment]) -> str:
        if segments or self._empty_tree is None:
            files = {f"{segment.start:09}": TreeEntry(FILE, segment.blob) for segment in segments}
            tree = self._git.objects.update_tree(None, files)
            self._empty_tree = self._empty_tree if segments else tree
            return tree
        return self._empty_tree

    def _signed(self, log: _WrittenLog, by: Stamp) -> bytes | None:
        """The commit of a log; None in a space that does not sign."""
        person = f"{by.name} <{by.email}> {by.at} +0000".encode("utf-8", "surrogateescape")
        entries = b"\n ".join(log.lines)
        head = b"tree %s\nauthor %s\ncommitter %s\n%s %s" % (
            *(str(log.tree).encode("ascii"), person, person),
            *(LOG_HEADER.encode("ascii"), entries),
        )
        subject = f"log of {log.end.machine}: {log.end.length} entries"
        message = f"{subject}\n\n{LOG_END}: {log.end.text}\n".encode()
        signature = self._git.objects.sign(head + b"\n\n" + message)
        if signature is None:
            return None
        return head + b"\ngpgsig " + signature.strip().replace("\n", "\n ").encode("ascii") + b"\n\n" + message


def _level(entries: int) -> int:
    """The size of a file: 0 for the smallest."""
    return sum(entries >= size for size in FILE_SIZES[:-1])
