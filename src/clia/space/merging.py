"""Merges between agents, landing of an agent's work on other branches, and rebinding of traces after rewrites.

Invariant: a session merge is always a commit with two parents. A file rule only resolves a conflict in a regular file that both
sides have; everything else is as git merges it. A conflict is a result: nothing is committed, and both heads stay.
A branch is moved by compare-and-swap or not at all; the landing commit's trailers and the agent's event chain name the
landed commits. A worktree with the branch checked out is updated as in a fast-forward; uncommitted changes in its way stop the
landing. Relinking keeps existing traces, and binds one only where the patch or the tree is the same.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import Annotated, Any, NamedTuple, TypedDict

from clia.errors import CliaError, Conflict, InvalidInput, NotFound
from clia.git.records import EXECUTABLE, FILE, TreeEntry, TreeMerge
from clia.space.attribution import people_tips
from clia.space.commits import stale
from clia.space.envelope import Intent, RefMove
from clia.space.events import append_event, read_events, write_event
from clia.space.model import (
    BRIEFING,
    LANDED,
    MERGED,
    PROFILE,
    RANGE,
    ConflictPath,
    Conflicts,
    Landed,
    Merged,
    UpToDate,
    agent_commit,
)
from clia.space.model import DECISION as DECISION_TRAILER
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.types import DECISION, SESSION_MERGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.git.porcelain import GitPorcelain
    from clia.git.records import PathConflict
    from clia.space.attribution import Attributions
    from clia.space.commits import Commits
    from clia.space.core import CommitText, Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit, Content
    from clia.space.traces import Traces

FAST_FORWARD, MERGE, SQUASH = "fast-forward", "merge", "squash"
PATCH, TREE = "patch-id", "tree"


class FileRule(NamedTuple):
    """How conflicting versions of certain files are merged."""

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
        with self._envelope.at_work(into):
            core.own_head(into)
            for name, head in zip((into, from_), heads, strict=True):
                actual = core.source_head(name)
                if actual != head:
                    raise stale(name, head, actual)
            if files is not None:
                tree = self._commits.snapshots.full(into, core.objects.commit(heads[0]).tree, files)
            else:
                tree = self._resolved(self._trees.merge(*heads), changes or {})
            return self._conclude(into, from_, heads, tree, cleaned)

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
        text, open_fields = cleaned
        if names.remote_agent(from_) is not None:  # files from others get the same checks as commits made here
            self._commits.snapshots.check_tree(self._core.objects.commit(heads[0]).tree, tree)
        trailers = [*self._commits.identity(into, SESSION_MERGE, heads[0]), (MERGED, from_), *open_fields]
        new = self._core.write_commit(into, tree, heads, text, trailers, f"session-merge: {from_} into {into}")
        self._commits.advance(into, SESSION_MERGE, heads[0], new, with_trace=False)
        return Merged(new)

    def _record_refusal(self, conflicts: Conflicts) -> None:
        into, from_, ours, theirs, conflict_list = conflicts
        paths = [conflict.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for conflict in conflict_list]
        body = {"event": "merge-refused", "into": into, "from": from_, "ours": ours, "theirs": theirs, "paths": paths}
        subject = f"merge of {from_} refused: conflicts"
        append_event(self._core, names.events(into), self._core.agent_stamp(into), body, subject)


def conflict_paths(core: Core, merged: TreeMerge) -> tuple[ConflictPath, ...]:
    return tuple(ConflictPath(path, *(core.content(side) if side else None for side in sides)) for path, *sides in merged.conflicts)


def _check_two(into: str, from_: str) -> None:
    names.check_name(into)
    if names.remote_agent(check_text(from_, "from")) is None:
        names.check_name(from_)
    if into == from_:
        raise InvalidInput("an agent cannot merge itself", code="same-agent", fields={"agent": into})


class LandingFields(TypedDict, total=False):
    """A landing of an agent."""

    event: str  # `landed`
    onto: str  # the branch
    cid: str  # the branch's new head
    head: str  # the agent's head then
    base: str  # the branch's head before
    how: str  # `fast-forward`, `merge` or `squash`


LandingEvent = Annotated[dict[str, Any], LandingFields]


class Landing:
    def __init__(self, core: Core, envelope: Envelope, attributions: Attributions, trees: TreeMerging) -> None:
        self._core = core
        self._envelope = envelope
        self._attributions = attributions
        self._trees = trees

    def land(
        self, name: str, onto: str, *, squash: bool = False, no_ff: bool = False, message: str = ""
    ) -> Landed | UpToDate | Conflicts:
        core = self._core
        text = core.clean.text(message, "message")
        ref = names.branch(onto)
        if ref.startswith(names.HEADS):
            hints = ["use clia merge to merge agents"]
            raise InvalidInput(f"{onto!r} is an agent's branch", code="not-a-branch-of-people", hints=hints)
        branch_lock = f"@branch.{ref.replace('%', '%25').replace('/', '%2F')}"[:200]  # no agent's name starts with "@"
        with self._envelope.at_work(name), core.locks.hold(branch_lock):
            head, tip = core.own_head(name), self._tip(ref)
            tree = core.objects.commit(head).tree
            if tip is not None:
                if core.graph.descends(tip, head) or self._is_landed(name, ref, tip, head):
                    return UpToDate(tip)
                merged = self._trees.merge(tip, head, self._landed_before(name, ref, tip, head))
                if merged.conflicts:
                    return Conflicts(onto, name, tip, head, conflict_paths(core, merged))
                tree = merged.tree
            forward = tip is None or core.graph.descends(head, tip)
            how = SQUASH if squash else FAST_FORWARD if forward and not no_ff else MERGE
            new = head if how == FAST_FORWARD else self._write(name, onto, (tip, head), tree, text, squash)
            warnings = self._move(name, ref, (tip, new, head), how)
        with suppress(CliaError):  # the next blame or worker does it
            self._attributions.catch_up([new])
        return Landed(new, how, tuple(warnings))

    def _landed_before(self, name: str, ref: str, tip: str, head: str) -> str | None:
        """The head of the agent's last squashed landing, if the branch contains it without git knowing."""
        core = self._core
        for body in self.landings(name):
            if body["onto"] == ref and body.get("how") == SQUASH and core.contains(tip, body["cid"]):
                landed = str(body["head"])
                base = core.graph.merge_base(tip, head)
                # Only if it is newer than the merge base: the two may have been merged since.
                newer = base is None or (base != landed and core.graph.descends(landed, base))
                return landed if newer and core.contains(head, landed) else None
        return None

    def _tip(self, ref: str) -> str | None:
        """The branch's head; None if it is checked out but has no commit yet."""
        tip = self._core.refs.get(ref)
        if tip is None and self._core.refs.followed_by(ref) is None:
            branches = [branch.removeprefix(names.BRANCHES) for branch, _ in self._core.refs.under(names.BRANCHES)]
            people = [branch for branch in branches if not branch.startswith("agents/")]
            message = f"no branch {ref.removeprefix(names.BRANCHES)!r}"
            hints = [f"branches here: {', '.join(people) or 'none'}"]
            raise NotFound(message, code="no-such-branch", hints=hints, fields={"ref": ref})
        return tip

    def _write(self, name: str, onto: str, heads: tuple[str | None, str], tree: str, text: str, squash: bool) -> str:
        core = self._core
        tip, head = heads
        base = core.graph.merge_base(tip, head) if tip else None
        last = core.last_own(name, head)
        trailers = [(LANDED, name), (RANGE, f"{base or core.own_root(name, head)}..{head}")]
        walk = map(agent_commit, core.graph.walk([head], [tip] if tip else []))
        decisions = [(DECISION_TRAILER, commit.cid) for commit in walk if commit.kind == DECISION]
        subject = f"{'squash' if squash else 'land'}: {name} onto {onto}"
        parents = [cid for cid in ((tip,) if squash else (tip, head)) if cid is not None]
        all_trailers = [*trailers, (BRIEFING, last.briefing), (PROFILE, last.profile), *reversed(decisions)]
        return core.write_commit(name, tree, parents, text or subject, all_trailers, subject)

    def _move(self, name: str, ref: str, ids: tuple[str | None, str, str], how: str) -> list[str]:
        core = self._core
        tip, new, head = ids
        busy = core.refs.busy(ref)
        if busy is not None:
            raise Conflict(f"{ref} cannot be moved now: {busy}", code="branch-busy", fields={"ref": ref, "reason": busy})
        follow = self._envelope.followers(ref, tip or core.empty_tree(), new)
        body = {"event": "landed", "onto": ref, "cid": new, "head": head, "base": tip, "how": how}
        chain = names.events(name)
        last = core.refs.get(chain)
        event = write_event(core, last, core.agent_stamp(name), body, f"landed on {ref}")
        after = (RefMove(chain, last, event),)
        return self._envelope.carry_out(Intent(name, "land", RefMove(ref, tip, new), after=after, follow=follow))

    def _is_landed(self, name: str, ref: str, tip: str, head: str) -> bool:
        """Whether a branch still contains a landing of this head."""
        landed = (body["cid"] for body in self.landings(name) if body["onto"] == ref and body["head"] == head)
        return any(self._core.contains(tip, cid) for cid in landed)

    def landed_on(self, name: str, head: str) -> str | None:
        """A branch that contains all of the agent's work."""
        for body in self.landings(name):
            tip = self._core.refs.get(body["onto"]) if body["head"] == head else None
            if tip is not None and self._core.contains(tip, body["cid"]):
                return str(body["onto"])
        return None

    def landings(self, name: str) -> list[LandingEvent]:
        """The landings of an agent, newest first."""
        tip = self._core.refs.get(names.events(names.check_name(name)))
        bodies = (dict(event.body) for event in read_events(self._core, tip) if event.body.get("event") == "landed")
        return [body for body in bodies if all(isinstance(body.get(key), str) for key in ("onto", "cid", "head"))]


class Relinked(NamedTuple):
    """A commit that was given a trace, and the commits that the trace came from."""

    commit: str  # the commit
    sources: tuple[str, ...]  # commits whose traces it got
    by: str  # how the commits were matched: `patch-id` or `tree`
    agent: str  # the agent of the traces


class Relinking:
    def __init__(self, core: Core, traces: Traces, porcelain: GitPorcelain, attributions: Attributions) -> None:
        self._core = core
        self._traces = traces
        self._porcelain = porcelain
        self._attributions = attributions

    def relink(self, onto: str | None = None) -> list[Relinked]:
        """Search one branch, or all of them. The lines of its commits are compared with those of agents again."""
        self._attributions.repair([onto] if onto else people_tips(self._core))
        traced = self._traced()
        present = [cid for cid in traced if self._core.objects.kind(cid) == "commit"]
        candidates = self._candidates(onto, present)
        if not candidates:
            return []
        relinked = self._by_patch(candidates, present, traced)
        linked = {link.commit for link in relinked}
        relinked += self._by_tree([commit for commit in candidates if commit.cid not in linked], present, traced)
        for link in relinked:
            traces = (self._traces.read(traced[source][1]) for source in link.sources)
            self._traces.attach(link.commit, [entry for trace in traces if trace for entry in trace.entries], link.agent)
        return relinked

    def _traced(self) -> dict[str, tuple[str, str]]:
        """The agent and the trace of each traced commit."""
        traced: dict[str, tuple[str, str]] = {}
        for ref, _ in self._core.refs.under(names.TRACES):
            agent = ref.removeprefix(names.TRACES)
            if names.is_name(agent):
                for commit, blob in self._core.notes.all(ref).items():
                    traced.setdefault(commit, (agent, blob))
        return traced

    def _candidates(self, onto: str | None, traced: list[str]) -> list[AgentCommit]:
        """Commits without a trace, of agents or others, that are not older than the first traced one."""
        core = self._core
        if not traced:
            return []
        heads = core.refs.under(names.BRANCHES)
        agents = [(ref.removeprefix(names.HEADS), cid) for ref, cid in heads if ref.startswith(names.HEADS)]
        starts = [onto] if onto else [cid for ref, cid in heads if not ref.startswith(names.HEADS)]
        first = min(core.objects.commit(cid).author.at for cid in traced)
        commits = {commit.cid: commit for commit in map(agent_commit, core.graph.walk(starts)) if commit.committer.at >= first}
        if onto is None:
            commits |= {commit.cid: commit for name, cid in agents for commit in core.own_commits(name, cid)}
        for cid in traced:
            commits.pop(cid, None)
        return [commit for commit in commits.values() if len(commit.parents) < 2 and commit.kind != "spawn"]

    def _by_patch(self, candidates: list[AgentCommit], present: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        ids = self._porcelain.patch_ids([*present, *(commit.cid for commit in candidates)])
        sources = {ids[cid]: cid for cid in reversed(present) if cid in ids}  # the first commit with a patch counts
        pairs = ((commit, sources.get(ids.get(commit.cid, ""))) for commit in candidates)
        return [
            Relinked(commit.cid, (source,), PATCH, traced[source][0])
            for commit, source in pairs
            if source is not None and _may_get_trace(commit, traced[source][0])
        ]

    def _by_tree(self, candidates: list[AgentCommit], present: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        """Find squashes: the tree of the last squashed commit, on a parent with the tree of an earlier one."""
        objects = self._core.objects
        ends = {objects.commit(cid).tree: cid for cid in reversed(present)}
        relinked = []
        for commit in candidates:
            end = ends.get(commit.tree)
            if end is None or not commit.parents:
                continue
            agent = traced[end][0]
            sources = [cid for cid in self._since(agent, end, objects.commit(commit.parents[0]).tree) if cid in traced]
            if sources and _may_get_trace(commit, agent):
                relinked.append(Relinked(commit.cid, tuple(sources), TREE, agent))
        return relinked

    def _since(self, agent: str, end: str, start: str) -> list[str]:
        """The agent's commits up to ``end`` after the newest one with the tree ``start``, oldest first."""
        newer = takewhile(lambda commit: commit.tree != start, self._core.own_commits(agent, end))
        return [commit.cid for commit in newer][::-1]


def _may_get_trace(commit: AgentCommit, agent: str) -> bool:
    """Whether a commit may get this agent's trace: it is not another agent's, nor a landing."""
    return commit.agent in (None, agent) and commit.landed is None
