"""Why lines have no author, or the wrong one, for ``clia doctor``.

Invariant: nothing is fetched or written. The checks look at refs, at marks in the store, and at the notes of the newest commits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.space.attribution.attributions import TIPS, people_tips
from clia.space.attribution.notes import from_bytes
from clia.space.core import UNREADABLE
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.git.line_diff import GitLineDiffs
    from clia.space.attribution.attributions import Attributions
    from clia.space.core import Core

_NOTES_READ = 200
_NAMES_SHOWN = 5


class LineFinding(NamedTuple):
    """A reason why lines have no author, or the wrong one."""

    code: str  # kind of reason
    severity: str  # `warning` or `info`
    message: str  # one sentence for a person
    hint: str  # what to do


class AttributionHealth(NamedTuple):
    core: Core
    attributions: Attributions
    diffs: GitLineDiffs

    def examine(self) -> list[LineFinding]:
        """The reasons that apply to this clone; those that damage hides are left out, because ``clia verify`` reports damage."""
        tips = people_tips(self.core)
        findings: list[LineFinding] = []
        for check in (self._agents, self._cut_off, lambda: self._not_compared(tips), lambda: self._notes(tips)):
            with suppress(*UNREADABLE):
                findings += check()
        return findings

    def _agents(self) -> Iterator[LineFinding]:
        """Agents whose lines are not known here."""
        refs = self.core.refs
        remote = {ref.rpartition("/agents/")[2] for ref, _ in refs.under("refs/remotes/") if "/agents/" in ref}
        missing = sorted(name for name in remote if names.is_name(name) and not self._is_here(name))
        if missing:
            shown = ", ".join(missing[:_NAMES_SHOWN]) + (", …" if len(missing) > _NAMES_SHOWN else "")
            message = f"agents of a remote are not in this clone, so their lines count as people's: {shown}"
            yield LineFinding("agents-not-here", "warning", message, "adopt them with: clia init")
        if self.diffs.is_partial() and self.attributions.unread():
            message = "this partial clone lacks files of agents, so lines of commits without an attribution note are unknown"
            yield LineFinding("partial-clone", "warning", message, "fetch the files with: clia authorship HEAD")

    def _is_here(self, name: str) -> bool:
        return any(self.core.refs.get(ref) is not None for ref in (names.head(name), names.archived(name), names.record(name)))

    def _not_compared(self, tips: Sequence[str]) -> Iterator[LineFinding]:
        core, row = self.core, self.core.store.get(TIPS)
        marks = [] if row is None else [mark for mark in row.value if core.objects.kind(mark) == "commit"]
        new = [tip for tip in tips if not any(core.contains(mark, tip) for mark in marks)]
        if row is not None and new:
            branches = "1 branch has" if len(new) == 1 else f"{len(new)} branches have"
            message = f"{branches} commits that were not compared with the lines of agents yet"
            hint = "clia blame, clia authorship, the next recorded turn or a worker compares them"
            yield LineFinding("lines-not-compared", "info", message, hint)

    def _cut_off(self) -> Iterator[LineFinding]:
        if self.core.graph.cut_off():
            message = "this clone is shallow: the lines of the commits where it ends are unknown"
            yield LineFinding("shallow-clone", "warning", message, "git fetch --unshallow, then clia relink")

    def _notes(self, tips: Sequence[str]) -> Iterator[LineFinding]:
        """What the notes of the newest commits say."""
        core = self.core
        commits = [commit.cid for commit in core.graph.newest(tips, _NOTES_READ)] if tips else []
        blobs = core.notes.among(names.ATTRIBUTION, commits)
        present = {cid: blob for cid, blob in blobs.items() if core.objects.kind(blob) == "blob"}
        notes = {cid: from_bytes(core.objects.blob(blob)) for cid, blob in present.items()}
        unreadable = sorted(cid for cid, note in notes.items() if note is None)
        if unreadable:
            message = f"the note of {unreadable[0][:12]} is damaged, or of a later version of clia ({len(unreadable)} such)"
            yield LineFinding("notes-unreadable", "warning", message, "update clia; write the notes again with: clia relink")
        unknown = sorted(cid for cid, note in notes.items() if note is not None and note.unknown)
        if unknown:
            message = (
                f"files of {unknown[0][:12]} could not be compared ({len(unknown)} such commits): they are binary or too large"
            )
            yield LineFinding("files-not-compared", "info", message, "clia authorship counts their lines as unknown")
