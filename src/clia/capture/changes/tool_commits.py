"""Commits that a captured tool makes in a person's repository.

Invariant: the person's branches, HEAD, index, stashes and files are not touched. Each commit that the tool created and that a
branch, tag or worktree still has becomes one commit of the agent: its change, applied to the agent's files, with its message and
author date. A note on the original names it. Commits that the tool left behind (amended, reset, stashed) are kept under
``refs/clia/own``. Files of other authors that the turn brought into the directory are not the agent's
(``clia.capture.changes.brought_files``).
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from itertools import islice

from clia.capture.changes.brought_files import BroughtCommit, BroughtFiles, DirectoryFiles
from clia.errors import NoSuchObject
from clia.git.graph import THEIRS
from clia.git.reflogs import ReflogEntry
from clia.space.model import KEPT, agent_commit
from clia.space.program_commits import ORIGINALS_MAX, REVERTS, AdoptedCommits, written_by
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clia.capture.service import CapturedSession
    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Commit
    from clia.space.commits import Snapshots
    from clia.space.core import Core
    from clia.space.program_commits import Trailer, WrittenBy

_LOOK_BACK = 200
"""Commits of the agent to search for those that the tool replays."""
_VISITED_MAX = 20
"""Maximum number of commits that HEAD was at during a turn and whose files may have stayed."""


class ToolCommits(AdoptedCommits):
    """The commits of one turn. ``directory``: its files; None if it was not looked at."""

    def __init__(
        self,
        core: Core,
        porcelain: GitPorcelain,
        snapshots: Snapshots,
        captured: CapturedSession,
        directory: DirectoryFiles | None,
    ) -> None:
        super().__init__(core, snapshots, captured.agent)
        self._porcelain = porcelain
        self._captured = captured
        self._directory = directory
        self._brought = BroughtFiles(core, porcelain, snapshots, captured)
        self._head = ""  # the agent's, before the turn
        self._stands_for: dict[str, str] = {}  # the agent's commit for each of the tool's
        self._copied: dict[str, str] = {}  # the recorded commit, or another author's, which one of the tool's repeats
        self._stashed = [cid for cid in captured.git.stashed if self._is_here(cid)]
        self._moves = [entry for _, entry in self._logged(by_tool=True)]
        if captured.git.worktree_calls is not None:
            self._moves += porcelain.reflogs.in_removed_worktrees(*captured.git.worktree_calls)
        created = (entry for entry in self._moves if entry.created and entry.old != entry.new)  # amended without a change
        self._made = {entry.new: entry for entry in created if self._is_here(entry.new)}
        self._made |= {} if captured.git.sizes.get(captured.git.log) else self._without_reflog()

    def has_any(self) -> bool:
        """Whether the tool created a commit or a stash that is not recorded yet."""
        kept_tip = self._kept_before(self._core.require_head(self._agent))
        recorded = self._recorded(self._made)
        return any(cid not in recorded and not self._is_kept(kept_tip, cid) for cid in (*self._made, *self._stashed))

    def unrecorded(self) -> list[str]:
        """The tool's commits that would be adopted now."""
        head = self._core.require_head(self._agent)
        self._stands_for = self._recorded(self._made)
        return [commit.cid for commit in self._own(head, self._superseded())]

    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        self._head, self._stands_for = head, self._recorded(self._made)
        superseded = self._superseded()
        own = self._own(head, superseded)
        tip = head
        for commit in own:
            tip = self._stands_for[commit.cid] = self._adopted(commit, tip, superseded, identity)
        left = self._newest({*superseded, *self._stashed}, [head], head)
        self._keep([*left, *self._newest({commit.cid for commit in own}, [], head)], head)
        tip = self._with_others(head, tip, adopted=bool(own))
        return [tip, *self._unstashed(head)], [(KEPT, cid) for cid in left]

    def pending(self, commit: str) -> None:
        """Nothing to record: the person's worktree does not follow."""

    # What the tool made

    def _logged(self, *, by_tool: bool) -> Iterator[tuple[str, ReflogEntry]]:
        for log, start, end, is_tools in self._captured.git.logged:
            if is_tools == by_tool:
                yield from ((log, entry) for entry in self._porcelain.reflogs.part(log, start, end))

    def _is_here(self, cid: str) -> bool:
        return self._core.objects.kind(cid) == "commit"  # git gc may have removed it

    def _is_kept(self, kept_tip: str | None, cid: str) -> bool:
        return kept_tip is not None and self._core.contains(kept_tip, cid)

    def _without_reflog(self) -> dict[str, ReflogEntry]:
        """The tool's commits in the session's directory, if there is no reflog: new commits that no other ref contains."""
        core, captured = self._core, self._captured
        if not captured.moves:
            return {}
        state = self._porcelain.head_state(captured.place, "")
        others = {cid for ref, cid in core.refs.under("refs/") if state is None or ref != state.branch}
        others |= set(self._porcelain.reflogs.fetched())
        hidden = [cid for cid in others if self._is_here(cid)]
        since = int(datetime.fromisoformat(captured.started).timestamp()) if captured.started else 0
        created: dict[str, ReflogEntry] = {}
        for old, new in captured.moves:
            try:
                commits = list(core.graph.walk([new], [old, *hidden]))
            except NoSuchObject:
                continue  # removed since by git gc
            for commit in reversed(commits):
                if commit.committer.at >= since:
                    created[commit.cid] = ReflogEntry(old, commit.cid, commit.committer.at, "commit")
        return created

    def _recorded(self, commits: Iterable[str]) -> dict[str, str]:
        """The agents' commits for those that are adopted already, also by a sub-agent."""
        core, recorded = self._core, dict[str, str]()
        for cid, blob in core.notes.among(names.OWN_NOTES, commits).items():
            agent, _, adopted = core.objects.blob(blob).decode("utf-8", "replace").strip().partition(" ")
            tip = core.refs.get(names.head(agent)) if names.is_name(agent) else None
            if tip is not None and names.is_id(adopted) and core.contains(tip, adopted):  # else its ingest was interrupted
                recorded[cid] = adopted
        return recorded

    def _superseded(self) -> set[str]:
        """The tool's commits that no branch, tag or worktree has any more."""
        refs = (*self._core.refs.under(names.BRANCHES), *self._core.refs.under("refs/tags/"))
        tips = {cid for ref, cid in refs if not ref.startswith(names.HEADS)} | self._porcelain.worktree_heads()
        created = [cid for cid in self._made if cid not in self._stands_for]
        return {commit.cid for commit in self._core.graph.walk(created, sorted(tips))} & set(created) if created else set()

    # The agent's commits

    def _own(self, head: str, superseded: set[str]) -> list[Commit]:
        """The commits to adopt, parents first. A commit that repeats another is adopted if the other was the tool's and is gone, or
        if its lines differ, as after a conflict.
        """
        commits = {cid: self._core.objects.commit(cid) for cid in self._made}
        repeated = {cid for cid, entry in self._made.items() if self._repeats(entry)}
        originals = {cid: commit for cid, commit in commits.items() if cid not in repeated}
        own = {cid: commit for cid, commit in originals.items() if cid not in superseded and cid not in self._stands_for}
        gone = {written_by(commit) for cid, commit in originals.items() if cid in superseded}
        recorded = self._earlier(head) | {written_by(commit): commit for cid, commit in originals.items() if cid not in superseded}
        for cid in (cid for cid in self._made if cid in repeated):
            copy, written = commits[cid], written_by(commits[cid])
            is_new = cid not in superseded and cid not in self._stands_for
            original = recorded.get(written) or (None if written in gone else self._by_others.get(written))
            if written not in gone and written not in recorded:
                superseded.discard(cid)  # it is another author's
            if original is not None:
                self._copied[cid] = original.cid
                own |= {cid: copy} if is_new and self._has_other_lines(copy, original) else {}
            elif is_new and written in gone:
                own[cid] = recorded[written] = copy
        return list(_parents_first(own))

    def _repeats(self, entry: ReflogEntry) -> bool:
        return entry.replayed and not self._amends(entry) and len(self._core.objects.commit(entry.new).parents) < 2

    def _amends(self, entry: ReflogEntry) -> bool:
        """Whether a new commit replaces the old one, as by ``git commit --amend``, or by a squash in a rebase."""
        commit = self._core.objects.commit
        return self._is_here(entry.old) and commit(entry.new).parents == commit(entry.old).parents

    def _earlier(self, head: str) -> dict[WrittenBy, Commit]:
        """The originals of the agent's last commits, by the properties that a copy would share."""
        own = [commit.own for commit in islice(self._core.own_commits(self._agent, head), _LOOK_BACK)]
        originals = [self._core.objects.commit(cid) for cid in own if cid is not None and self._is_here(cid)]
        return {written_by(commit): commit for commit in originals}

    def _has_other_lines(self, copy: Commit, original: Commit) -> bool:
        """Whether a copy of a commit makes another change."""
        core = self._core
        base, ours = (self._tree(*commit.parents[:1]) for commit in (original, copy))
        return core.graph.apply(base, original.tree, ours) != (copy.tree, True)

    @cached_property
    def _by_others(self) -> dict[WrittenBy, Commit]:
        """The newest commits of others, by the properties that a copy shares."""
        refs = (entry for prefix in (names.BRANCHES, names.REMOTES, "refs/tags/") for entry in self._core.refs.under(prefix))
        tips = {cid for ref, cid in refs if not ref.startswith(names.HEADS)}
        tips |= {*self._porcelain.reflogs.fetched(), *(entry.old for entry in self._moves)}
        commits = self._core.graph.newest(sorted(filter(self._is_here, tips)), ORIGINALS_MAX)
        return {written_by(commit): commit for commit in reversed(commits) if commit.cid not in self._made}

    def _adopted(self, commit: Commit, tip: str, superseded: set[str], identity: Sequence[Trailer]) -> str:
        """Write the agent's commit for one of the tool's on top of the agent's work."""
        core = self._core
        base = self._base(commit, superseded)
        ours = core.objects.commit(tip).tree
        tree, is_clean = core.graph.apply(self._tree(base), commit.tree, ours, favor=THEIRS)
        tree = self._brought.without_doubled(tree, ours, commit.tree)
        # Lines of another base than the agent's work are not new. After a conflict, the agent's files have some of them.
        others = [] if base is None or (is_clean and self._is_known(base, tip)) else [base]
        others += [*commit.parents[1:], *filter(None, [self._copied.get(commit.cid)])]
        if len(commit.parents) == 1:
            others += [parent for cid in REVERTS.findall(commit.message) for parent in self._parents(cid)]
        changed = DirectoryFiles(tree, self._brought.changed(core.objects.commit(tip).tree, tree), commit.tree)
        tip = self._brought.while_head_stayed(tip, changed, self._sources(), next(iter(commit.parents), ""), commit.parents)
        others = list(dict.fromkeys(self._stands_for.get(parent, parent) for parent in others))
        tip = self._brought.lines_of_others(tip, changed, self._origins([*commit.parents, self._head]), set(), others)
        parents = dict.fromkeys((tip, *others))
        return self._write(commit, tree, list(parents), identity)

    def _base(self, commit: Commit, superseded: set[str]) -> str | None:
        """The commit whose files a commit changes: the one that it amends, if that is recorded, or its parent."""
        entry = self._made[commit.cid]
        while self._amends(entry) and entry.old in superseded and entry.old not in self._copied:
            entry = self._made[entry.old]
        return entry.old if self._amends(entry) else next(iter(commit.parents), None)

    def _tree(self, cid: str | None = None) -> str:
        return self._core.empty_tree() if cid is None else self._core.objects.commit(cid).tree

    def _is_known(self, cid: str, tip: str) -> bool:
        """Whether the agent's files contain a commit: it is in the agent's history, or was at HEAD before."""
        known_commits = (tip, self._captured.git.looked_at)
        return cid in self._stands_for or any(place and self._core.contains(place, cid) for place in known_commits)

    def _parents(self, cid: str) -> tuple[str, ...]:
        return self._core.objects.commit(cid).parents[:1] if self._is_here(cid) else ()

    # What is not the agent's

    def _with_others(self, head: str, tip: str, *, adopted: bool) -> str:
        """Commit the files of others as the person; return the new tip, whose files are those of the directory."""
        if self._directory is None:  # the files stay those of the last look
            return self._brought.commit(tip, self._tree(head), [], "the files before the commits of the tool")
        now = self._captured.head
        stands_for = self._stands_for.get(now, now)
        own_paths = self._written_by_tool()
        tip = self._brought.at_head(head, tip, stands_for, self._directory, own_paths, adopted=adopted)
        tip = self._brought.while_head_stayed(tip, self._directory, self._sources(), now)
        return self._brought.lines_of_others(tip, self._directory, self._origins([now, head]), own_paths)

    def _sources(self) -> list[BroughtCommit]:
        """The commits of others whose files calls may have taken while HEAD stayed."""
        kept_tip, git = self._core.refs.get(names.own(self._agent)), self._captured.git
        stashes = [cid for cid in git.applied if cid not in git.stashed and not self._is_kept(kept_tip, cid)]
        own = {*self._made, *self._recorded(git.named)}
        visited = [entry.new for log, entry in self._logged(by_tool=True) if log == git.log][-_VISITED_MAX:]
        named = [cid for cid in dict.fromkeys((*git.named, *visited)) if cid not in own and cid != self._captured.head]
        return [
            *(BroughtCommit(cid, is_stash=True) for cid in stashes if self._is_here(cid)),
            *(BroughtCommit(cid, is_pick=not is_merge) for cid, is_merge in self._porcelain.unfinished(self._captured.place)),
            *(BroughtCommit(cid) for cid in named if self._is_here(cid)),
        ]

    def _origins(self, commits: Sequence[str]) -> list[BroughtCommit]:
        """The sources, commits that HEAD was at, and these; in place of the tool's own commits, their first ancestors of others."""
        git = self._captured.git
        visited = [cid for log, entry in self._logged(by_tool=True) if log == git.log for cid in (entry.new, entry.old)]
        level, visited_commits, origins = {*commits, git.looked_at, *git.named, *visited[-_VISITED_MAX:]}, set[str](), set[str]()
        while level and len(visited_commits) < _LOOK_BACK:
            visited_commits |= level
            commits = sorted(filter(self._is_here, level))
            own = {*self._made, *self._recorded(commits)}.intersection(commits)
            origins.update(cid for cid in commits if cid not in self._made)
            parents = {parent for cid in own for parent in self._core.objects.commit(cid).parents}
            level = (parents | {self._copied[cid] for cid in own if cid in self._copied}) - visited_commits
        return [*self._sources(), *map(BroughtCommit, sorted(origins))]

    def _written_by_tool(self) -> set[str]:
        """The files that the tool says it wrote, and that a person committed during the turn."""
        entries = [entry for log, entry in self._logged(by_tool=False) if log == self._captured.git.log and entry.created]
        paths = set[str]()
        for entry in entries:
            if self._captured.paths and self._is_here(entry.new):
                parent = next(iter(self._parents(entry.new)), None)
                paths |= {file.path for file in self._porcelain.changes(parent, entry.new)}
        return paths & set(self._captured.paths)

    def _unstashed(self, head: str) -> list[str]:
        """The agent's files in the turns of the tool's stashes that calls may have applied now; these files may be a person's."""
        stashes = {*self._captured.git.applied} - {*self._captured.git.stashed}
        commits = islice(self._core.graph.first_parents(head), _LOOK_BACK) if stashes else ()
        files, in_turn = list[str](), False
        for commit in map(agent_commit, commits):
            if commit.agent is None:
                files += [commit.cid] if in_turn else []
            elif stashes & {*commit.kept}:
                files, in_turn = [*files, *commit.parents[:1]], True
            elif commit.own is None:
                in_turn = False
        return files


def _parents_first(commits: Mapping[str, Commit]) -> Iterator[Commit]:
    done: set[str] = set()

    def visit(commit: Commit) -> Iterator[Commit]:
        if commit.cid not in done:
            done.add(commit.cid)
            for parent in commit.parents:
                if parent in commits:
                    yield from visit(commits[parent])
            yield commit

    for commit in commits.values():
        yield from visit(commit)
