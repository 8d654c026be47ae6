"""Turns of captured tools that are still running: what they changed is not recorded yet."""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import NoSuchObject
from clia.space.attribution.index import FILE_MAX, renamed_from
from clia.space.attribution.line_matching import added_lines, lines_of
from clia.space.attribution.notes import LineAuthor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.line_diff import ChangedFile, GitLineDiffs
    from clia.git.objects import GitObjects

    FoundLines = Callable[[bytes], "set[int] | None"]
    """From the content of a file that git did not track to the lines that it had when a turn started. The result is None if the
    turn has not touched the file."""


def no_lines(_: bytes) -> set[int]:
    return set()


class RunningTurn(NamedTuple):
    """An agent that is at work in the worktree, and one of its files."""

    agent: str
    found: str  # tree of the worktree when the turn started; empty: all changes are the agent's
    found_lines: FoundLines | None = None  # None: git tracked the file, or there was no such file
    others_lines: Callable[[bytes], set[int]] = no_lines  # the lines that others wrote after the turn was broken off


class TurnCommit(NamedTuple):
    """A commit that a tool made in a turn that is still running."""

    agent: str
    found: str  # as of a running turn
    found_lines: Callable[[str], FoundLines | None]  # by the path of a file


def lines_since(objects: GitObjects, path: str, data: bytes, turn: RunningTurn) -> set[int]:
    """The indexes of the lines of a file that a turn wrote: those that the file did not have when it started."""
    all_lines = set(range(len(lines_of(data))))
    if turn.found_lines is not None:
        found_lines = turn.found_lines(data)
        lines = set[int]() if found_lines is None else all_lines - found_lines
    elif not turn.found:
        lines = all_lines
    else:
        try:
            entry = objects.entry(turn.found, path)
            lines = added_lines(data, [] if entry is None else [objects.blob(entry.cid)])
        except NoSuchObject:  # the tree was pruned
            return set()
    return lines - turn.others_lines(data)


def lines_of_turn(objects: GitObjects, diffs: GitLineDiffs, commit: str, turn: TurnCommit) -> dict[str, dict[int, LineAuthor]]:
    """The lines of a tool's commit that its running turn wrote, by path."""
    files: dict[str, dict[int, LineAuthor]] = {}
    for file in diffs.changed_files(commit):
        data = objects.blob(file.blob) if objects.size(file.blob) <= FILE_MAX else b"\0"
        if b"\0" not in data[:8000]:
            old = [None if previous.blob is None else objects.blob(previous.blob) for previous in file.previous]
            added = added_lines(data, old) & _lines_since(objects, file, data, turn)
            files[file.path] = {line + 1: LineAuthor(turn.agent, commit) for line in added}
    return files


def _lines_since(objects: GitObjects, file: ChangedFile, data: bytes, turn: TurnCommit) -> set[int]:
    """The indexes of the lines that a turn wrote to a file, which may have had another name."""
    lines = set(range(len(lines_of(data))))
    for path in (file.path, *renamed_from(file)):
        lines &= lines_since(objects, path, data, RunningTurn(turn.agent, turn.found, turn.found_lines(path)))
    return lines
