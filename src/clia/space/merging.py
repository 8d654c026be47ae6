"""Merges between agents.

Invariant: a session merge is always a commit with two parents. A file rule only resolves a conflict in a regular file that both
sides have; everything else is as git merges it. A conflict is a result: nothing is committed, and both heads stay.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.git.records import EXECUTABLE, FILE, TreeEntry, TreeMerge
from clia.space.commits import CommitCall
from clia.space.core import stale
from clia.space.events import append_event, read_events
from clia.space.model import (
    MERGED,
    ConflictPath,
    Conflicts,
    Merged,
    UpToDate,
)
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.types import SESSION_MERGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.git.records import PathConflict
    from clia.space.commits import Commits
    from clia.space.core import CommitText, Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit, Content


class FileRule(NamedTuple):
    """A rule that merges conflicting versions of certain files."""

    applies: Callable[[str], bool]
    """Whether the rule is for this path."""
    merge: Callable[[str, bytes | None, bytes, bytes], bytes | None]
    """The merged content of a path's base, ours and theirs; None leaves the conflict."""


class TreeMerging:
    """Merges the trees of two commits."""

    def __init__(self, core: Core, rules: tuple[FileRule, ...] = ()) -> None:
        self._core = core
        self._rules = rules

    def merge(self, ours: str, theirs: str, base: str | None = None) -> TreeMerge:
        """Merge two commits, from their own merge base or from another commit."""
        merged = self._core.graph.merge(ours, theirs, base)
        resolved: dict[str, TreeEntry | None] = {}
        for conflict in merged.conflicts:
            entry = self._resolve(conflict)
            if entry is not None:
                resolved[conflict.path] = entry
        if not resolved:
            return merged
        left = tuple(conflict for conflict in merged.conflicts if conflict.path not in resolved)
        return TreeMerge(self._core.objects.update_tree(merged.tree, resolved), left)

    def _resolve(self, conflict: PathConflict) -> TreeEntry | None:
        path, base, ours, theirs = conflict
        rule = next((rule for rule in self._rules if rule.applies(path)), None)
        if rule is None or ours is None or theirs is None or not all(map(_is_file, (base or ours, ours, theirs))):
            return None
        objects = self._core.objects
        content = rule.merge(path, objects.blob(base.cid) if base else None, objects.blob(ours.cid), objects.blob(theirs.cid))
        return None if content is None else TreeEntry(ours.mode, objects.write_blob(content))


def _is_file(entry: TreeEntry) -> bool:
    return entry.mode in (FILE, EXECUTABLE)


class Merging:
    def __init__(self, core: Core, envelope: Envelope, commits: Commits, trees: TreeMerging) -> None:
        self._core = core
        self._envelope = envelope
        self._commits = commits
        self._trees = trees

    def merge(self, into: str, from_: str, words: CommitText) -> Merged | UpToDate | Conflicts:
        core = self._core
        _check_two(into, from_)
        cleaned = core.clean.words(words)
        core.fresh(from_)
        result = self._merge(into, from_, cleaned)
        if isinstance(result, Merged):
            self._commits.report_identities(into, core.read(result.cid).parents[0], result.cid)
        return result

    def _merge(self, into: str, from_: str, cleaned: tuple[str, list[tuple[str, str]]]) -> Merged | UpToDate | Conflicts:
        core = self._core
        with self._envelope.at_work(into):
            ours, theirs = core.own_head(into), core.source_head(from_)
            if core.graph.descends(ours, theirs):
                return UpToDate(ours)
            merged = self._trees.merge(ours, theirs)
            if merged.conflicts:
                conflicts = Conflicts(into, from_, ours, theirs, conflict_paths(core, merged))
                self._record_refusal(conflicts)
                return conflicts
            return self._conclude(into, from_, (ours, theirs), merged.tree, cleaned)

    def resolve(
        self,
        into: str,
        from_: str,
        heads: tuple[str, str],
        files: Mapping[str, Content] | None,
        changes: Mapping[str, Content | None] | None,
        words: CommitText,
    ) -> Merged:
        """Resolve a merge of two heads that were reported before, by the whole worktree or by the conflicting paths."""
        core = self._core
        _check_two(into, from_)
        if (files is None) == (changes is None):
            raise InvalidInput("give files (the whole worktree) or changes (the conflicts)", code="files-or-changes")
        cleaned = core.clean.words(words)
        for head in heads:
            check_text(head, "head")
        core.fresh(from_)

        def worktree() -> str:
            if files is not None:
                return self._commits.snapshots.full(into, core.objects.commit(heads[0]).tree, files)
            return self._resolved(self._trees.merge(*heads), changes or {})

        with self._envelope.at_work(into):
            earlier = self._concluded(into, from_, heads, cleaned)
            if earlier is not None and earlier.tree == worktree():
                return Merged(earlier.cid)  # a repeated call
            for name, head in zip((into, from_), heads, strict=True):
                actual = core.source_head(name)
                if actual != head:
                    raise stale(name, head, actual)
            merged = self._conclude(into, from_, heads, worktree(), cleaned)
        self._commits.report_identities(into, heads[0], merged.cid)
        return merged

    def _concluded(
        self, into: str, from_: str, heads: tuple[str, str], cleaned: tuple[str, list[tuple[str, str]]]
    ) -> AgentCommit | None:
        """The merge of two heads that an earlier call with the same words made."""
        merge = self._commits.after(heads[0], self._core.own_head(into))
        if merge is None or (merge.parents, merge.merged) != (heads, from_):
            return None
        return merge if self._commits.has_words(merge, _merge_call(into, from_, cleaned)) else None

    def conflicts(self, into: str, from_: str) -> Conflicts | None:
        """The conflicts that a merge would have; nothing is recorded."""
        core = self._core
        _check_two(into, from_)
        ours, theirs = core.require_head(into), core.source_head(from_)
        merged = self._trees.merge(ours, theirs)
        return Conflicts(into, from_, ours, theirs, conflict_paths(core, merged)) if merged.conflicts else None

    def last_refused(self, into: str, from_: str) -> tuple[str, str] | None:
        """Both heads at the time when a merge of the two was last refused."""
        _check_two(into, from_)
        for event in read_events(self._core, self._core.refs.get(names.events(into))):
            body = event.body
            if body.get("event") == "merge-refused" and body.get("from") == from_:
                return str(body.get("ours")), str(body.get("theirs"))
        return None

    def _resolved(self, merged: TreeMerge, changes: Mapping[str, Content | None]) -> str:
        """The merged tree with every conflict resolved."""
        open_paths = [conflict.path for conflict in merged.conflicts if conflict.path not in changes]
        if open_paths:
            message = f"unresolved conflicts: {', '.join(open_paths)}"
            hints = ["give the new content of each path, or its removal"]
            raise InvalidInput(message, code="unresolved", hints=hints, fields={"paths": open_paths})
        present = self._core.objects.entries(merged.tree)
        effective = {path: value for path, value in changes.items() if value is not None or path in present}
        return self._commits.snapshots.delta(merged.tree, effective)

    def _conclude(
        self, into: str, from_: str, heads: tuple[str, str], tree: str, cleaned: tuple[str, list[tuple[str, str]]]
    ) -> Merged:
        call = _merge_call(into, from_, cleaned)
        if names.remote_agent(from_) is not None:  # files from others get the same checks as commits made here
            self._commits.snapshots.check_tree(self._core.objects.commit(heads[0]).tree, tree)
        trailers = [*self._commits.identity(into, SESSION_MERGE, heads[0]), (MERGED, from_), *call.open_fields]
        new = self._core.write_commit(into, tree, heads, call.text, trailers, call.subject)
        self._commits.advance(into, SESSION_MERGE, heads[0], new)
        return Merged(new)

    def _record_refusal(self, conflicts: Conflicts) -> None:
        into, from_, ours, theirs, conflict_list = conflicts
        paths = [conflict.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for conflict in conflict_list]
        body = {"event": "merge-refused", "into": into, "from": from_, "ours": ours, "theirs": theirs, "paths": paths}
        subject = f"merge of {from_} refused: conflicts"
        append_event(self._core, names.events(into), self._core.agent_stamp(into), body, subject)


def _merge_call(into: str, from_: str, cleaned: tuple[str, list[tuple[str, str]]]) -> CommitCall:
    return CommitCall(into, SESSION_MERGE, *cleaned, f"session-merge: {from_} into {into}")


def conflict_paths(core: Core, merged: TreeMerge) -> tuple[ConflictPath, ...]:
    return tuple(ConflictPath(path, *(core.content(side) if side else None for side in sides)) for path, *sides in merged.conflicts)


def _check_two(into: str, from_: str) -> None:
    names.check_name(into)
    if names.remote_agent(check_text(from_, "from")) is None:
        names.check_name(from_)
    if into == from_:
        raise InvalidInput("an agent cannot merge itself", code="same-agent", fields={"agent": into})
