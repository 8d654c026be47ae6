"""Why a line is there: who wrote it, for what, who approved it, and whether all of that verifies.

Invariant: only git is read. The lines are those of ``clia blame``, which follows them through renames, squashed landings and the
attribution of people's commits.
"""

from __future__ import annotations

from itertools import groupby

from clia.errors import InvalidInput, NotFound
from clia.git.records import NOT_COMMITTED
from clia.provenance.matching import match_entries, shortened
from clia.provenance.model import (
    FAILED,
    PERSONS,
    UNCHECKED,
    UNSIGNED,
    VERIFIED,
    ExplainedLines,
    LineReason,
    ShownTrace,
)
from clia.space.traces import trace_in
from clia.trust.commit_checks import NO_KEYS, SIGNED
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.porcelain import GitPorcelain
    from clia.git.records import LineOrigin
    from clia.provenance.model import CommitStory, LineApproval
    from clia.provenance.stories import CommitStories
    from clia.space.attribution.running_turns import RunningTurn
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.model import AgentCommit, BlamedLine
    from clia.space.traces import Traces

LINES_MAX = 200
_BINARY_CHECKED = 8000


class LineExplanations:
    """Explains lines of files."""

    def __init__(self, core: Core, history: History, traces: Traces, porcelain: GitPorcelain, stories: CommitStories) -> None:
        self._core = core
        self._history = history
        self._traces = traces
        self._porcelain = porcelain
        self._stories = stories

    def of_commit(self, text: str, path: str, start: int, end: int | None) -> ExplainedLines:
        """Lines of a file in a commit."""
        limit = _count(start, end)
        cid = self._history.find(text)
        blamed = self._history.blame(cid, path, start=start, limit=limit)
        self._check_binary(self._core.objects.commit(cid).tree, path)
        if len(blamed) < limit:
            raise self._out_of_range(path, len(self._history.blame(cid, path)), start, end)
        origins = self._porcelain.blame(cid, path, start=start, limit=limit)
        return self._explained(path, cid, blamed, origins)

    def of_worktree(self, path: str, start: int, end: int | None, running: Sequence[RunningTurn]) -> ExplainedLines:
        """Lines of a file in the worktree; ``not-committed`` if none of them is committed."""
        limit = _count(start, end)
        every = self._history.blame_worktree(path, running)
        blamed = every[start - 1 : start - 1 + limit]
        if any("\0" in line.text for line in every):
            raise _binary(path)
        if len(blamed) < limit:
            raise self._out_of_range(path, len(every), start, end)
        if all(NOT_COMMITTED in (line.commit, line.via) for line in blamed):
            raise _not_committed(path, blamed)
        origins = self._porcelain.blame(None, path, start=start, limit=limit)
        return self._explained(path, None, blamed, origins)

    def _check_binary(self, tree: str, path: str) -> None:
        entry = self._core.objects.entry(tree, path)
        if entry is not None and b"\0" in self._core.objects.blob(entry.cid)[:_BINARY_CHECKED]:
            raise _binary(path)

    def _out_of_range(self, path: str, count: int, start: int, end: int | None) -> InvalidInput:
        lines = "1 line" if count == 1 else f"{count} lines"
        wanted = f"line {start}" if end in (None, start) else f"lines {start} to {end}"
        fields = {"path": printable(path), "lines": count, "line": start}
        return InvalidInput(f"{path!r} has {lines}, and no {wanted}", code="line-out-of-range", fields=fields)

    def _explained(self, path: str, cid: str | None, blamed: Sequence[BlamedLine], origins: Sequence[LineOrigin]) -> ExplainedLines:
        tip = cid or self._core.objects.expand("HEAD")
        pairs = zip(blamed, origins, strict=True)
        groups = groupby(pairs, key=lambda pair: (pair[0].commit, pair[0].by, pair[0].author, *pair[1][:1], pair[1].path))
        reasons = tuple(self._reason(list(group), path, tip) for _, group in groups)
        return ExplainedLines(printable(path), cid, self._stories.checks.root, reasons)

    def _reason(self, pairs: Sequence[tuple[BlamedLine, LineOrigin]], asked: str, tip: str | None) -> LineReason:
        line, origin = pairs[0]
        texts = tuple(blamed.text.removesuffix("\r") for blamed, _ in pairs)
        if NOT_COMMITTED in (line.commit, line.via):
            return LineReason(line.number, texts, line.by, line.author, False, None, asked, None, None, None, (), UNCHECKED)
        story = self._stories.of(line.commit)
        via = None if line.commit == origin.commit else self._stories.of(origin.commit)
        facts = (line.number, texts, line.by, line.author, True, story, printable(origin.path), via)
        if line.agent is None:
            return LineReason(*facts, None, None, (), PERSONS)
        commit = self._core.read(line.commit)
        if via is not None and self._core.read(via.commit).landed == line.agent:
            self._stories.note_landing(line.agent, via.commit)
        paths = dict.fromkeys([origin.path, asked])
        path = next((name for name in paths if self._core.objects.entry(commit.tree, name) is not None), None)
        approvals = self._stories.approvals(commit, line.agent, path, [] if tip is None else [tip])
        trace = self._trace(commit, [*paths], texts)
        agent = self._stories.agent_of(commit, line.agent)
        return LineReason(*facts, agent, trace, approvals, self._result(story, via, approvals))

    def _trace(self, commit: AgentCommit, paths: Sequence[str], lines: Sequence[str]) -> ShownTrace | None:
        cid = self._traces.cid_for(commit.cid)
        trace = None if cid is None else self._traces.read(cid)
        if cid is None or trace is None:
            return None
        matched = match_entries(trace.entries, paths, lines)
        shown = tuple(shortened(trace.entries[position], lines) for position in matched.positions)
        digest = trace_in(self._core.objects.commit(commit.cid).message)
        return ShownTrace(cid, digest, len(trace.entries), matched.matched, shown, matched.positions)

    def _result(self, story: CommitStory, via: CommitStory | None, approvals: Sequence[LineApproval]) -> str:
        """Whether everything that stands behind a line of an agent holds."""
        behind = [story.findings, *([] if via is None else [via.findings]), *(approval.findings for approval in approvals)]
        if any(behind):
            return FAILED
        if story.state == SIGNED:
            return VERIFIED
        return UNCHECKED if story.state == NO_KEYS and self._stories.checks.space_id is None else UNSIGNED


def _count(start: int, end: int | None) -> int:
    """The number of wanted lines."""
    if start < 1 or (end is not None and end < start):
        message = f"lines are numbered from 1: {start} to {end} is not a range" if end is not None else "lines are numbered from 1"
        raise InvalidInput(message, code="invalid-lines", fields={"field": "line"})
    count = 1 if end is None else end - start + 1
    if count > LINES_MAX:
        hints = ["who wrote each line of a file: clia blame"]
        raise InvalidInput(f"at most {LINES_MAX} lines at once, not {count}", code="too-many-lines", hints=hints)
    return count


def _binary(path: str) -> InvalidInput:
    return InvalidInput(f"{path!r} is a binary file", code="binary-file", fields={"path": printable(path)})


def _not_committed(path: str, blamed: Sequence[BlamedLine]) -> NotFound:
    """An error that says who wrote the lines, as far as that is known."""
    first, last = blamed[0].number, blamed[-1].number
    who = {"agent": f"agent {blamed[0].author!r} wrote it", "person": "you wrote it"}.get(blamed[0].by)
    what = f"line {first} of {path!r} is" if first == last else f"lines {first} to {last} of {path!r} are"
    hints = [f"{who}; ask again when it is committed" if who and len(blamed) == 1 else "ask again when they are committed"]
    fields = {"path": printable(path), "line": first}
    return NotFound(f"{what} not committed yet", code="not-committed", hints=hints, fields=fields)
