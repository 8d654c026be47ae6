"""Traces in commits: a commit names its trace by digest, so that the note with the trace cannot be exchanged.

The digest is over the entries of the trace, not over the note: the note names the commit. A trace that was purged has a tombstone:
an event of the agent, signed as every commit, with the digest of what was there and of what remains.
"""

from __future__ import annotations

import json

from clia.errors import CliaError
from clia.values import refs as names
from clia.values.commit_messages import TRACE
from clia.values.typed_objects import trace_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.trust.raw_commits import RawCommit
    from clia.trust.verification import TrustChecks

TOMBSTONES = "traces"
"""The field of a purge's event: for each commit, the digests of its trace before and after."""
_EVENT = "Clia-Event"


class TraceChecks:
    """Compares traces with the digests in commits."""

    def __init__(self, checks: TrustChecks) -> None:
        self._checks = checks
        self._notes: dict[str, dict[str, str]] = {}
        self._tombstones: dict[str, dict[tuple[str, str], str]] = {}

    def check(self, commit: RawCommit) -> None:
        expected, agent = commit.trailer(TRACE), commit.trailer("Clia-Agent")
        if expected is None or agent is None or not names.is_name(agent):
            return
        notes_ref = names.traces(agent)
        actual = self._digest_of(notes_ref, commit.cid)
        seen_digests: set[str] = set()
        while expected not in (actual, None) and expected not in seen_digests:
            seen_digests.add(expected)
            expected = self._purged(agent).get((commit.cid, expected))
        if actual is None and notes_ref not in self._checks.refs:
            self._checks.found("missing-trace", f"the trace of {commit.cid} is missing: {notes_ref}", notes_ref, commit.cid)
        elif actual is None:
            self._checks.found("missing-trace", f"the trace of {commit.cid} is missing", notes_ref, commit.cid)
        elif expected != actual:
            self._checks.found("changed-trace", f"the trace of {commit.cid} is not the one that it names", notes_ref, commit.cid)

    def _digest_of(self, ref: str, commit: str) -> str | None:
        """The digest of the trace that is bound to a commit."""
        blob = self._bound(ref).get(commit)
        try:
            note = None if blob is None else json.loads(self._checks.blob(blob))
        except (CliaError, ValueError, RecursionError):
            return "unreadable"
        if note is None:
            return None
        entries = note.get("entries") if isinstance(note, dict) else None
        return trace_digest(entries)

    def _bound(self, ref: str) -> dict[str, str]:
        if ref not in self._notes:
            self._notes[ref] = self._checks.notes(ref)
        return self._notes[ref]

    def _purged(self, agent: str) -> dict[tuple[str, str], str]:
        """The digests that purges replaced, by commit and former digest."""
        if agent not in self._tombstones:
            table: dict[tuple[str, str], str] = {}
            ref = names.events(agent)
            tip = self._checks.refs.get(ref)
            for commit in self._checks.walk(ref, tip, set()) if tip else ():
                table |= _tombstones_in(commit.trailer(_EVENT))
            self._tombstones[agent] = table
        return self._tombstones[agent]


def _tombstones_in(text: str | None) -> dict[tuple[str, str], str]:
    try:
        body = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return {}
    rows = body.get(TOMBSTONES) if isinstance(body, dict) else None
    if not isinstance(rows, list):
        return {}
    sound = [row for row in rows if isinstance(row, list) and len(row) == 3 and all(isinstance(item, str) for item in row)]
    return {(commit, before): after for commit, before, after in sound}
