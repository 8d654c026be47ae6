"""Session merges: one agent merges another's work.

Invariant: a merge is always a commit with two parents. A conflict is a result: nothing is committed, and both heads stay.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.space.commits import stale
from clia.space.events import append_event, read_events
from clia.space.model import MERGED, ConflictPath, Conflicts, Merged, UpToDate
from clia.space.snapshots import Snapshots
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.types import SESSION_MERGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.git.records import TreeMerge
    from clia.space.commits import Commits
    from clia.space.core import CommitText, Core
    from clia.space.envelope import Envelope
    from clia.space.model import Content


class Resolution(NamedTuple):
    """How a merge is resolved: the whole worktree, or only the conflicting paths."""

    files: Mapping[str, Content] | None = None
    changes: Mapping[str, Content | None] | None = None


class Merging:
    def __init__(self, core: Core, envelope: Envelope, commits: Commits) -> None:
        self._core = core
        self._envelope = envelope
        self._commits = commits
        self._snapshots = Snapshots(core.objects)

    def merge(self, into: str, from_: str, words: CommitText) -> Merged | UpToDate | Conflicts:
        core = self._core
        _check_two(into, from_)
        said = core.clean.words(words)
        core.fresh(from_)
        with self._envelope.at_work(into):
            ours, theirs = core.own_head(into), core.source_head(from_)
            if core.graph.descends(ours, theirs):
                return UpToDate(ours)
            merged = core.graph.merge(ours, theirs)
            if merged.conflicts:
                found = Conflicts(into, from_, ours, theirs, self.paths(merged))
                self._refused(found)
                return found
            return self._conclude(into, from_, (ours, theirs), merged.tree, said)

    def resolve(self, into: str, from_: str, heads: tuple[str, str], resolution: Resolution, words: CommitText) -> Merged:
        """Resolve a merge of two heads that were reported before."""
        core = self._core
        _check_two(into, from_)
        files, changes = resolution
        if (files is None) == (changes is None):
            raise InvalidInput("give files (the whole worktree) or changes (the conflicts)", code="files-or-changes")
        said = core.clean.words(words)
        for head in heads:
            check_text(head, "head")
        core.fresh(from_)
        with self._envelope.at_work(into):
            core.own_head(into)
            self._check_heads(((into, heads[0]), (from_, heads[1])))
            if files is not None:
                tree = self._snapshots.full(into, core.objects.commit(heads[0]).tree, files)
            else:
                tree = self._settled(core.graph.merge(*heads), changes or {})
            return self._conclude(into, from_, heads, tree, said)

    def conflicts(self, into: str, from_: str) -> Conflicts | None:
        """The conflicts that a merge would have; nothing is recorded."""
        core = self._core
        _check_two(into, from_)
        ours, theirs = core.require_head(into), core.source_head(from_)
        merged = core.graph.merge(ours, theirs)
        return Conflicts(into, from_, ours, theirs, self.paths(merged)) if merged.conflicts else None

    def last_refused(self, into: str, from_: str) -> tuple[str, str] | None:
        """Both heads at the time when a merge of the two was last refused."""
        _check_two(into, from_)
        tip = self._core.refs.get(names.events(into))
        for event in read_events(self._core, tip) if tip else ():
            body = event.body
            if body.get("event") == "merge-refused" and body.get("from") == from_:
                return str(body.get("ours")), str(body.get("theirs"))
        return None

    def _check_heads(self, expected: tuple[tuple[str, str], ...]) -> None:
        for name, head in expected:
            actual = self._core.source_head(name)
            if actual != head:
                raise stale(name, head, actual)

    def _settled(self, merged: TreeMerge, changes: Mapping[str, Content | None]) -> str:
        """The merged tree with every conflict resolved."""
        open_paths = [each.path for each in merged.conflicts if each.path not in changes]
        if open_paths:
            raise InvalidInput(
                f"not every conflict is settled: {', '.join(open_paths)}",
                code="unresolved",
                hints=["say for each path what it becomes, or that it goes"],
                fields={"paths": open_paths},
            )
        there = self._core.objects.entries(merged.tree)
        wanted = {path: value for path, value in changes.items() if value is not None or path in there}
        return self._snapshots.delta(merged.tree, wanted)

    def _conclude(
        self, into: str, from_: str, heads: tuple[str, str], tree: str, said: tuple[str, list[tuple[str, str]]]
    ) -> Merged:
        text, open_fields = said
        if names.remote_agent(from_) is not None:  # files from others get the same checks as commits made here
            self._snapshots.check_tree(self._core.objects.commit(heads[0]).tree, tree)
        trailers = [*self._commits.identity(into, SESSION_MERGE, heads[0]), (MERGED, from_), *open_fields]
        new = self._core.write_commit(into, tree, heads, text, trailers, f"session-merge: {from_} into {into}")
        self._commits.advance(into, SESSION_MERGE, heads[0], new, with_trace=False)
        return Merged(new)

    def paths(self, merged: TreeMerge) -> tuple[ConflictPath, ...]:
        return tuple(
            ConflictPath(each.path, *(self._core.content(side) if side else None for side in (each.base, each.ours, each.theirs)))
            for each in merged.conflicts
        )

    def _refused(self, found: Conflicts) -> None:
        """Record a refused merge."""
        body = {
            "event": "merge-refused",
            "into": found.into,
            "from": found.from_,
            "ours": found.ours,
            "theirs": found.theirs,
            "paths": [each.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for each in found.paths],
        }
        author = self._core.agent_stamp(found.into)
        append_event(self._core, names.events(found.into), author, body, f"merge of {found.from_} refused: conflicts")


def _check_two(into: str, from_: str) -> None:
    names.check_name(into)
    if names.remote_agent(check_text(from_, "from")) is None:
        names.check_name(from_)
    if into == from_:
        raise InvalidInput("an agent cannot merge itself", code="same-agent", fields={"agent": into})
