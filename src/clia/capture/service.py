"""Captured sessions: the agent of each, and how its files are committed.

Invariant: a session of a tool is one agent, and each of its sub-agents another. The record of a spawned agent names its
session, so a lost store loses nothing. A commit applies what changed in the directory since the last look to the agent's
current head, so other changes stay. The directory, its index and its branch are only read.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote, unquote

from clia.capture.changes.git_activity import GitActivity
from clia.errors import Ambiguous, CliaError, NotAllowed, NotFound, UnsafePath
from clia.space.traces import stream
from clia.values import refs as names
from clia.values.types import AGENT_COMMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.capture.changes.directory_looks import DirectoryLook, DirectoryLooks
    from clia.capture.changes.running_sessions import RunningSessions
    from clia.capture.changes.tool_commits import ToolCommits
    from clia.facade.components import Components
    from clia.git.records import Checkout, Prepared
    from clia.space.attribution.running_turns import RunningTurn, TurnCommit
    from clia.space.core import CommitText

TURN = "turn"
"""The kind of a commit that holds one turn of a tool; registered with the first capture."""
MARK = "capture"
"""The open field that names the event a commit was made for."""
_LOOK_BACK = 5
ROWS, _COMMITTED = "captured/", "captured-commits/"  # the second: sessions in whose turn commits were made


class CapturedSession(NamedTuple):
    """A captured session of a tool, or a sub-agent of one (``sub``)."""

    tool: str
    session: str
    sub: str
    agent: str
    place: str  # top of its worktree
    main: bool = False  # whether that is the repository's main worktree
    open: bool = True
    started: str = ""
    last: str = ""  # time of the last event
    transcript: str = ""
    standing: Mapping[str, Any] = {}  # the transcript's cursor
    tree: str = ""  # the directory's tree at the last look
    prompt: str = ""  # the last prompt, redacted
    heard: Mapping[str, Sequence[str]] = {}  # digest of each text -> events that reported it, while there was no transcript
    since: str = ""  # earlier transcript lines belong to another session
    paths: tuple[str, ...] = ()  # files written since its last commit, as it says
    shared: bool = False  # whether another sub-agent worked in the same directory at the same time
    offered: bool = False  # whether its work is offered to its starter
    head: str = ""  # HEAD of the directory at the last event
    calls: int = 0  # tool calls that have not ended
    writing: int = 0  # those of them that may change files
    turn: str = ""  # `open` after a prompt, `failed` after an error of the model; empty after the turn's end
    wanted: str = ""  # the agent that CLIA_AGENT named, if it could not be used
    refused: str = ""  # a transcript that an event named and that was not read, because it is another's
    base: str = ""  # HEAD of the directory at the last prompt
    prompt_ids: bool = True  # whether its hooks report the ids of prompts; older versions of tools do not
    secret: str = ""  # digest of the secret of the `clia run` that it works in; empty outside of one
    moves: tuple[tuple[str, str], ...] = ()  # HEAD before and after tool calls that moved it, since its last commit
    git: GitActivity = GitActivity()  # what git did in its repository
    left_out: Mapping[str, str] = {}  # files of its directory that are not recorded, by path: the reasons
    begun: int = 0  # when its first event was stored, in nanoseconds, by the clock of the file system
    stored: int = 0  # the same of its last event
    process: str = ""  # the process of its tool
    wrote: Mapping[str, str] = {}  # digests of the lines that calls since its last commit say they write, by path

    @property
    def key(self) -> str:
        return row_key(self.tool, self.session, self.sub)


def row_key(tool: str, session: str, sub: str = "") -> str:
    """The key uses digests: a tool's ids have any length and content."""
    return f"{ROWS}{tool}/{_digest(session)}/{_digest(sub) if sub else ''}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class DirectoryChange(NamedTuple):
    """Two looks at a directory. ``now`` None: not looked at. ``only``: only these paths count."""

    now: str | None
    before: str = ""
    only: tuple[str, ...] | None = None


class Captures:
    """The captured sessions of a space, for ingest. One ingest runs in a clone at a time."""

    def __init__(self, components: Components) -> None:
        self._core = components.core
        self._agents = components.agents
        self._checkouts = components.checkouts
        self._commits = components.commits
        self._components = components
        self._registry = components.registry
        self._porcelain = components.porcelain

    def get(self, tool: str, session: str, sub: str = "") -> CapturedSession | None:
        row = self._core.store.get(row_key(tool, session, sub))
        return None if row is None else from_row(row.value)

    def sessions(self) -> list[CapturedSession]:
        """Every captured session and sub-agent, sorted by tool and session."""
        return [from_row(value) for _, value in self._core.store.scan(ROWS)]

    def subs(self, tool: str, session: str) -> list[CapturedSession]:
        """The sub-agents of a session, in order of start."""
        rows = (from_row(value) for _, value in self._core.store.scan(row_key(tool, session)))
        return sorted((row for row in rows if row.sub), key=lambda row: (row.started, row.sub))

    def running_turns(self, path: str) -> list[RunningTurn]:
        """The agents in this worktree that may be writing a file: those whose calls named it, otherwise all sessions."""
        return self._running.turns(path)

    def running_commits(self) -> dict[str, TurnCommit]:
        """The commits that tools made in turns that are still running, and that no commit of an agent stands for yet."""
        rows = [self.get(*row) for _, row in self._core.store.scan(_COMMITTED)]
        return self._running.commits([row for row in rows if row is not None]) if rows else {}

    @property
    def _running(self) -> RunningSessions:
        from clia.capture.changes.running_sessions import RunningSessions  # most calls of this service show no lines

        return RunningSessions(self._components)

    def clean(self, text: str) -> str:
        """The redacted text, to store or to cut."""
        return self._core.clean.text(text.replace("\0", "\N{REPLACEMENT CHARACTER}"), "text")

    def keep(self, captured: CapturedSession) -> None:
        mark = captured.key.replace(ROWS, _COMMITTED, 1)
        with self._core.store.writing() as transaction:
            transaction.values.put(captured.key, as_row(captured))
            if captured.git.logged:
                transaction.values.put(mark, [captured.tool, captured.session, captured.sub])
            elif transaction.values.get(mark) is not None:
                transaction.values.delete(mark)

    def relocate(self, old: str, new: str) -> None:
        """Record that a worktree was moved."""
        for captured in self.sessions():
            if captured.place == old:
                self.keep(captured._replace(place=new))

    def purge(self, agent: str, text: str, common_dir: str) -> list[str]:
        """Replace a text in the agent's captured sessions and in all waiting events; returns where else it may be."""
        from clia.capture.purging import purge_captures  # rarely needed

        return purge_captures(self, self._core.store, agent, text, common_dir)

    def spawned_for(self, name: str, tool: str, session: str, sub: str = "") -> bool:
        """Whether an agent's record says that it was spawned for this session."""
        if not self.is_ours(name):
            return False
        meta = self._agents.briefing_of(name).meta or {}
        return (meta.get("tool"), meta.get("session"), meta.get("sub", "")) == (tool, session, sub)

    def is_ours(self, name: str) -> bool:
        """Whether the agent is at work here, and not another clone's."""
        try:
            self._core.own_head(name)
        except (NotFound, NotAllowed):
            return False
        return True

    def is_archived(self, name: str) -> bool:
        return self._core.refs.get(names.archived(name)) is not None

    def is_free(self, name: str) -> bool:
        """Whether the name was never used."""
        core = self._core
        return all(core.refs.get(ref) is None for ref in (names.head(name), names.archived(name), names.record(name)))

    def reached(self, step: str) -> None:
        """A named crash point of ingest."""
        self._core.reached(step)

    def top_of(self, path: str) -> str | None:
        """The top of the worktree that contains a path."""
        return self._porcelain.top_of(path)

    def commit_of(self, revision: str) -> str | None:
        """The commit that a revision names; None if it names none, or several."""
        try:
            cid = self._core.objects.expand(revision)
        except Ambiguous:
            return None
        return cid if cid is not None and self._core.objects.kind(cid) == "commit" else None

    def head_at(self, place: str) -> str | None:
        """The commit that a worktree has checked out; None before the first."""
        return self._porcelain.head_of(place)

    def tree_of(self, agent: str) -> str:
        """The tree of an agent's head."""
        return self._core.objects.commit(self._core.require_head(agent)).tree

    def attribute(self) -> None:
        """Find the agents' lines in the new commits of the branches that are checked out where sessions work."""
        heads = {head for place in {session.place for session in self.sessions()} if (head := self.head_at(place)) is not None}
        with suppress(CliaError):  # the next ingest, blame or worker does it
            self._components.attributions.catch_up(sorted(heads))

    @cached_property
    def looks(self) -> DirectoryLooks:
        """What sessions may commit of the files of their directories."""
        from clia.capture.changes.directory_looks import DirectoryLooks  # most calls of this service look at no directory

        return DirectoryLooks(self._components)

    def waiting(self, agent: str) -> bool:
        """Whether trace entries are pending."""
        with self._core.store.reading() as view:
            return bool(view.streams.read(stream(agent), limit=1))

    def has_own_commits(self, directory: str) -> bool:
        """Whether a program made commits in an agent's checkout that the next commit would adopt or keep."""
        checkout = self._porcelain.checkout_of(directory)
        return checkout is not None and self._checkouts.has_own_commits(checkout)

    def adopted(self, commit: str) -> list[str]:
        """The commits of a program that were adopted right before a commit, oldest first."""
        adopted: list[str] = []
        parents = self._core.read(commit).parents
        while parents and ((before := self._core.read(parents[0])).own is not None or before.agent is None):
            adopted = [before.cid, *adopted] if before.own is not None else adopted  # not what the program picked of others
            parents = before.parents
        return adopted

    def adopted_beside(self, commit: str) -> list[str]:
        """The commits of a program on other branches that were adopted with a commit."""
        own = self._core.read(commit)
        return [adopted.cid for adopted in self._core.adopted_with(own.agent or "", own)]

    def watch_programs(self, directory: str, *, running: bool) -> None:
        """Record that a program starts in an agent's worktree, or has ended: worktrees that appear meanwhile are its own."""
        if self._porcelain.checkout_of(directory) is not None:  # else the program removed its worktree
            self._porcelain.watch_programs(directory, running=running)
        self.guard(directory, running=running)

    def guard(self, directory: str, *, running: bool) -> None:
        """Make sure that the commits of a program survive if it removes its worktree."""
        self._porcelain.guard(directory, running=running)

    def offers(self, agent: str) -> bool:
        """Whether an agent's files differ from those it was spawned with."""
        core, head = self._core, self._core.require_head(agent)
        return core.objects.commit(head).tree != core.objects.commit(core.own_root(agent, head)).tree

    def has_recorded(self, agent: str, event: str) -> bool:
        """Whether one of the agent's last commits was made for this event."""
        own = self._core.own_commits(agent, self._core.require_head(agent))
        return any((commit.meta.get(MARK) or {}).get("event") == event for commit in islice(own, _LOOK_BACK))

    def record_baseline(self, captured: CapturedSession, message: str, change: DirectoryChange) -> str | None:
        """Commit the files that existed before a session; returns the commit, or None if there are none."""
        commit = self._commits.baseline(captured.agent, self._worktree(change), message)
        if commit is not None:
            self._follow(captured)
        return commit

    def record_found_lines(self, captured: CapturedSession, look: DirectoryLook, change: DirectoryChange) -> None:
        """Commit the lines that untracked files had before the session changed them, so they are not the agent's."""
        parts = self.looks.found_parts(look, change.now, change.only) if change.now is not None and look.taken else {}
        if parts:
            before = self._before(change) or self.tree_of(captured.agent)
            found_change = DirectoryChange(self._core.objects.update_tree(before, parts), before, tuple(parts))
            self.record_baseline(captured, "the files when the turn started", found_change)

    def merged(self, captured: CapturedSession, sub: CapturedSession) -> None:
        """Record that the directory of a session has the work of a sub-agent, which was merged into the session's agent."""
        parents = self._core.read(self._core.require_head(captured.agent)).parents
        if len(parents) == 2 and parents[1] == self._core.require_head(sub.agent):
            self._follow(captured)

    def _follow(self, captured: CapturedSession) -> None:
        """Rebase the session's checkout on the agent's new head; its files already contain the changes."""
        checkout, head = self._porcelain.checkout_of(captured.place), self._core.require_head(captured.agent)
        is_next = checkout is not None and self._core.read(head).parents[:1] == (checkout.base,)
        if checkout is not None and checkout.agent == captured.agent and is_next:
            self._porcelain.record(checkout.directory, checkout.agent, head, checkout.own or checkout.base)

    def stashes(self) -> list[str]:
        """The stashes of the repository; all worktrees share them."""
        return self._porcelain.reflogs.stashes()

    def keep_dropped_stashes(self, agent: str, before: Sequence[str]) -> None:
        """Keep those of some stashes that are gone: a program may have applied a person's."""
        from clia.space.program_commits import keep_commits

        present = {*self.stashes()}
        gone = [cid for cid in before if cid not in present and self._core.objects.kind(cid) == "commit"]
        keep_commits(self._core, agent, gone)

    def repair(self, directory: str, agent: str) -> str | None:
        """Restore an agent's worktree after a program removed it, or deleted or replaced its ``.git``; returns what was wrong."""
        self._porcelain.restore(directory, agent)
        return self._porcelain.repair(directory, agent, replaced=True)

    def completed(self, checkout: Checkout) -> Checkout | None:
        """A checkout after completing or undoing a commit of a crashed process."""
        return self._checkouts.completed(checkout)

    def user_worktree(self) -> str | None:
        """The user's worktree that files are copied from into those of agents."""
        return self._porcelain.user_worktree()

    def prepared(self, directory: str) -> Prepared:
        """The files that were put into an agent's worktree for its programs."""
        return self._porcelain.prepared(directory)

    def record_prepared(self, directory: str, prepared: Prepared) -> None:
        self._porcelain.record_prepared(directory, prepared)

    def update_submodules(self, directory: str) -> list[str]:
        """Check out the submodules of an agent's worktree; returns warnings."""
        return self._porcelain.update_submodules(directory)

    def keep_submodules(self, directory: str, agent: str) -> None:
        """Keep the commits in the submodules of an agent's worktree, so that they outlive it."""
        self._porcelain.keep_submodules(directory, agent)

    def has_changed(self, agent: str, directory: str, base: str) -> bool:
        """Whether an agent's worktree has files to record that differ from a commit."""
        tree = self._core.objects.commit(base).tree
        return self._staged(agent, directory, tree) != tree

    def commit_worktree(self, agent: str, kind: str, directory: str, text: CommitText, base: str | None) -> str:
        """Commit the files that a program left in its worktree, within the limits, with the trace. ``base``: None for its own."""
        stage = partial(self._staged, agent)
        return self._checkouts.commit_dir(agent, kind, directory, text, base=base, with_trace=True, stage=stage)

    def commit_trace(self, agent: str, kind: str, text: CommitText) -> str:
        """Commit the trace of a program that changed no file."""
        return self._commits.commit(agent, kind, lambda tree: tree, text, with_trace=True)

    def _staged(self, agent: str, directory: str, tree: str) -> str:
        from clia.capture.changes.file_rules import FileRules, not_recorded  # only for what programs changed

        staged = self._porcelain.staged(directory, tree, FileRules(self._components.config.capture))
        if staged.left_out:
            note, head = not_recorded(staged.left_out), self._core.require_head(agent)
            entry = {"kind": note.what, "text": note.text, "key": f"{note.key}:{head}", "data": note.data}  # once a commit
            self._components.traces.add_once(agent, [entry])
        return staged.tree

    def place_of(self, agent: str, path: str) -> str | None:
        """The agent's registered worktree that contains a path, even if its ``.git`` is gone."""
        places = [checkout.directory for checkout in self._porcelain.worktrees_of(agent)]
        return next((place for place in places if f"{path}/".startswith(f"{place}/")), None)

    def forget_secrets(self, agent: str) -> None:
        """Let the agent's sessions continue in a new run, which has another secret."""
        for captured in self.sessions():
            if captured.agent == agent and captured.secret:
                self.keep(captured._replace(secret=""))

    def is_running(self, agent: str) -> bool:
        """Whether ``clia run`` runs a program as the agent: it owns HEAD and index of the worktree."""
        return self._components.run_directories.is_running(agent)

    def _own_commits(self, captured: CapturedSession, change: DirectoryChange) -> ToolCommits | None:
        """The commits that the tool made in a directory of people, and those that HEAD brought there; None without any."""
        has_moved = captured.moves or captured.head != captured.git.looked_at or not captured.git.is_empty
        if not has_moved and not self._porcelain.unfinished(captured.place):
            return None
        from clia.capture.changes.brought_files import DirectoryFiles  # most turns make none
        from clia.capture.changes.tool_commits import ToolCommits

        directory = None if change.now is None else DirectoryFiles(change.now, self._touched(change), change.now)
        return ToolCommits(self._core, self._porcelain, self._commits.snapshots, captured, directory)

    def record(
        self, captured: CapturedSession, text: CommitText, change: DirectoryChange, *, trace_alone: bool = True
    ) -> str | None:
        """Commit the pending trace, and the changes between two looks at the directory; returns the commit.

        None if there is nothing to commit; ``trace_alone``: a trace is enough.
        """
        agent, worktree = captured.agent, self._worktree(change)
        head = self._core.require_head(agent)
        tree = self._core.objects.commit(head).tree
        new_tree = worktree(tree)
        checkout = self._porcelain.checkout_of(captured.place)
        ours = checkout is not None and (checkout.agent, checkout.base) == (agent, head)
        moved = checkout is not None and ours and self._checkouts.has_own_commits(checkout)
        own = None if ours else self._own_commits(captured, change)
        moved = moved or (own is not None and own.has_any())
        if new_tree == tree and not moved and not (trace_alone and self.waiting(agent)):
            return None
        self._commits.snapshots.check_tree(tree, new_tree)
        if TURN not in self._registry.types().known():
            self._registry.register(TURN, AGENT_COMMIT)
        if checkout is None or not ours:
            return self._commits.commit(agent, TURN, worktree, text, with_trace=True, program=own)
        follow = not self.is_running(agent)
        return self._checkouts.commit_worktree(checkout, TURN, worktree, text, base=head, with_trace=True, follow=follow)

    def without_late(self, captured: CapturedSession, change: DirectoryChange) -> DirectoryChange:
        """A change without what people changed after the turn was broken off, because the tool was killed."""
        from clia.capture.changes.late_changes import without_late  # few tools are killed

        if change.now is None:
            return change
        before = self._before(change) or self.tree_of(captured.agent)
        now = without_late(self._core.objects, captured, before, change.now, self._touched(change))
        return change._replace(now=now)

    def without(self, change: DirectoryChange, paths: Sequence[str]) -> DirectoryChange:
        """A change of the whole directory, without these files: they stay as they were."""
        objects, now = self._core.objects, change.now
        if now is None or not paths or not change.before or objects.kind(change.before) != "tree":
            return change
        entries = {path: objects.entry(change.before, path) for path in paths}
        changes = {path: entry for path, entry in entries.items() if entry is not None or objects.entry(now, path) is not None}
        return change._replace(now=objects.update_tree(now, changes)) if changes else change

    def _worktree(self, change: DirectoryChange) -> Callable[[str], str]:
        """A function from the head's tree to the commit's."""
        objects, now = self._core.objects, change.now
        if now is None:
            return lambda tree: tree
        before = self._before(change)
        sessions = self._touched(change)

        def applied(tree: str) -> str:
            if change.only is None and (before is None or tree == before):
                return now
            entries = {path: objects.entry(now, path) for path in sorted(sessions)}
            # A file that is in neither tree needs no removal.
            changes = {path: entry for path, entry in entries.items() if entry is not None or objects.entry(tree, path) is not None}
            try:
                return objects.update_tree(tree, changes) if changes else tree
            except UnsafePath:  # a file and a folder conflict: the directory wins
                return now

        return applied

    def _before(self, change: DirectoryChange) -> str | None:
        return change.before if change.before and self._core.objects.kind(change.before) == "tree" else None

    def _touched(self, change: DirectoryChange) -> set[str]:
        """The files that differ between two looks at a directory."""
        changed = self._porcelain.changes(self._before(change), change.now) if change.now is not None else []
        touched = {path for file in changed for path in (file.path, file.old_path or file.path)}
        return touched if change.only is None else touched & set(change.only)


def paths_inside(place: str, paths: Sequence[str]) -> list[str]:
    """Paths relative to a worktree; those outside of it are dropped."""
    relative = (os.path.relpath(os.path.realpath(os.path.join(place, path)), place) for path in paths if "\0" not in path)
    return [path for path in relative if path.partition("/")[0] not in ("..", ".")]


def as_row(captured: CapturedSession) -> dict[str, Any]:
    """Paths are arbitrary bytes: quoted for JSON."""
    place, *paths = (quote(path, errors="surrogateescape") for path in (captured.place, *captured.paths))
    wrote = {quote(path, errors="surrogateescape"): lines for path, lines in captured.wrote.items()}
    return captured._asdict() | {"place": place, "paths": paths, "git": captured.git._asdict(), "wrote": wrote}


def from_row(value: Mapping[str, Any]) -> CapturedSession:
    fields = {name: field for name, field in value.items() if name in CapturedSession._fields}
    fields["moves"] = tuple((old, new) for old, new in fields.get("moves", ()))
    fields["git"] = GitActivity.from_json(fields.get("git", {}))
    place, *paths = (unquote(path, errors="surrogateescape") for path in (fields["place"], *fields.get("paths", ())))
    wrote = {unquote(path, errors="surrogateescape"): lines for path, lines in fields.get("wrote", {}).items()}
    return CapturedSession(**fields | {"place": place, "paths": tuple(paths), "wrote": wrote})
