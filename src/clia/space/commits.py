"""The commit verb, and checkouts: an agent's files in a directory.

Invariant: a commit carries the agent, its briefing and its profile, and its parent is the head that the caller expected. A caller
that loses the race gets ``StaleRef``, and nothing it wrote is visible. A checkout is a detached worktree that remembers its base
commit, so a commit made in between is reported as ``StaleRef`` and never shows as deletions. A tree is written after every path
and content is checked; only what differs from the base tree is hashed and written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from clia.errors import CliaError, Conflict, InvalidInput, UnsafePath
from clia.git.records import EXECUTABLE, FILE, LINK, SUBMODULE, TreeEntry
from clia.space.core import stale
from clia.space.envelope import Binding, Intent, RefMove
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, PROFILE, TYPE, File, Link, Submodule, agent_commit, json_object
from clia.values import paths
from clia.values import refs as names
from clia.values.commit_messages import compose, parse
from clia.values.typed_objects import Briefing
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.objects import GitObjects
    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Checkout
    from clia.sessions.checkpoints import Checkpoints
    from clia.space.agent_journals import AgentJournals
    from clia.space.core import CommitText, Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit, Content
    from clia.space.program_commits import AdoptedCommits, ProgramCommits
    from clia.space.traces import PendingTrace, Traces
    from clia.space.type_registry import Registry

    Worktree = Callable[[str], str]

_REMEMBERED = 4
_ATTRIBUTE_LINE, _ATTRIBUTES_MAX = 2048, 100 * 1024 * 1024
_UPDATES = frozenset(("checkout", "rebase", "merge", "none"))
_IDENTITY_NAMES = (".clia", ".gitmodules")


class CommitCall(NamedTuple):
    """What a caller commits, apart from the files. ``Commits.has_words`` compares it with a commit."""

    agent: str
    kind: str
    text: str  # the message, cleaned
    open_fields: list[tuple[str, str]]  # the trailer of the open fields, if there are any
    subject: str  # the message if none is given
    with_trace: bool = False


class Commits:
    def __init__(
        self,
        core: Core,
        envelope: Envelope,
        registry: Registry,
        traces: Traces,
        checkpoints: Checkpoints,
        identities_changed: Callable[[str, str], None] = lambda name, commit: None,  # noqa: ARG005
    ) -> None:
        """``identities_changed`` is called with the agent and the commit after a commit that may change identities."""
        self._core = core
        self._identities_changed = identities_changed
        self._checkpoints = checkpoints
        self._envelope = envelope
        self._registry = registry
        self._traces = traces
        self.snapshots = Snapshots(core.objects)
        self.next_trace = traces.next_trace
        self._prompts: dict[str, str | None] = {}

    def worktree(self, name: str, files: Mapping[str, Content] | None, changes: Mapping[str, Content | None] | None) -> Worktree:
        """A function from the head's tree to the new tree, given all files or only the changes."""
        for contents in (files, changes):
            if contents is not None and not isinstance(contents, Mapping):
                raise InvalidInput("files and changes map paths to contents", code="invalid-content", fields={"field": "files"})
        if files is not None and changes is None:
            return lambda head: self.snapshots.full(name, head, files)
        if changes is not None and files is None:
            return lambda head: self.snapshots.delta(head, changes)
        raise InvalidInput("give files (the whole worktree) or changes (what is different)", code="files-or-changes")

    def commit(
        self,
        name: str,
        kind: str,
        worktree: Worktree,
        words: CommitText,
        *,
        base: str | None = None,
        with_trace: bool = False,
        program: AdoptedCommits | None = None,
    ) -> str:
        """Commit a tree on the agent's head, or on the commits that a program made itself (``program``)."""
        core = self._core
        names.check_name(name)
        self._registry.check_kind(kind)
        call = CommitCall(name, kind, *core.clean.words(words), f"{kind} by {name}", with_trace)
        with self._envelope.at_work(name):
            head = core.own_head(name)
            if base is not None and base != head:
                recorded = self._recorded(call, base, head, worktree, program)
                if recorded is None:
                    raise stale(name, base, head)
                return recorded
            identity = self.identity(name, kind, head)
            parents, kept_fields = program.adopt(head, identity) if program else ([head], [])
            before = core.objects.commit(parents[0]).tree
            tree = worktree(before)
            is_unchanged = (kept_fields, tree) == ([], before) and all(core.contains(head, parent) for parent in parents)
            if program and program.may_repeat and is_unchanged and self._is_repeated(call, core.read(head), head):
                return head
            trace = self.next_trace(name) if with_trace else None
            trailers = [*identity, *(trace.trailers if trace else ()), *kept_fields, *call.open_fields]
            new = core.write_commit(name, tree, parents, call.text, trailers, call.subject)
            if program:
                program.pending(new)
            self.advance(name, kind, head, new, trace)
        self._report_trees(name, before if parents[0] == head else core.objects.commit(head).tree, tree, new)
        return new

    def _recorded(self, call: CommitCall, base: str, head: str, worktree: Worktree, program: AdoptedCommits | None) -> str | None:
        """The commit that an earlier call with the same content made on a base that is no longer the head."""
        core = self._core
        if program is not None and (not program.may_repeat or program.has_any()):
            return None
        # In a checkout, the base may be that commit itself.
        commits = [core.read(base)] if program is not None and core.contains(head, base) else []
        commits += filter(None, [self.after(base, head)])
        same = [commit for commit in commits if self._is_repeated(call, commit, base)]
        tree = worktree(core.objects.commit(base).tree) if same else None
        return next((commit.cid for commit in same if commit.tree == tree), None)

    def after(self, base: str, head: str) -> AgentCommit | None:
        """The commit of an agent's line that follows a base; None if the base is not part of it, or is the head."""
        if base != head and self._core.contains(head, base):
            for commit in self._core.graph.first_parents(head):
                if commit.parents[:1] == (base,):
                    return agent_commit(commit)
        return None

    def _is_repeated(self, call: CommitCall, commit: AgentCommit, base: str) -> bool:
        """Whether a commit has everything but the files of a call."""
        if not self.has_words(commit, call):
            return False
        if not call.with_trace or self._traces.drained(call.agent, commit.cid) is None:
            return True
        # Entries were recorded since: in a checkout without changes they are what the call commits.
        return commit.cid != base and self._traces.cid_for(commit.cid) is not None

    def has_words(self, commit: AgentCommit, call: CommitCall) -> bool:
        """Whether a commit has the agent, person, kind, message and open fields of a call."""
        text, _ = parse(compose(call.text, [(TYPE, call.kind)], call.subject))
        meta = (json_object(call.open_fields[0][1]) or {}) if call.open_fields else {}
        person = self._core.person
        return (commit.agent, commit.kind, commit.message, commit.meta, commit.committer[:2]) == (
            *(call.agent, call.kind, text, meta),
            (person.name, person.email),
        )

    def report_identities(self, name: str, before: str, new: str) -> None:
        """Report a recorded commit that may change identities. The caller holds no lock."""
        objects = self._core.objects
        with suppress(CliaError):  # it is recorded; landing compares again
            self._report_trees(name, objects.commit(before).tree, objects.commit(new).tree, new)

    def _report_trees(self, name: str, before: str, after: str, new: str) -> None:
        with suppress(CliaError):
            if self._core.objects.differ_in(_IDENTITY_NAMES, before, after):
                self._identities_changed(name, new)

    def baseline(self, name: str, worktree: Worktree, message: str) -> str | None:
        """Commit existing files as a commit of the person; None if the agent's tree already has them.

        The agent's own work starts after it, so ``blame`` gives none of these lines to the agent.
        """
        core = self._core
        text = core.clean.text(message, "message")
        with self._envelope.at_work(name):
            head = core.own_head(name)
            before = core.objects.commit(head).tree
            tree = worktree(before)
            if tree == before:
                return None
            self.snapshots.check_tree(before, tree)
            by = core.person_stamp()
            new = core.objects.write_commit(tree, [head], by, by, f"{text}\n")
            self.advance(name, "baseline", head, new)
        return new

    def identity(self, name: str, kind: str, head: str) -> list[tuple[str, str | None]]:
        """The trailers taken over from the agent's last commit, and the behaviour of its session or briefing."""
        last = self._core.last_own(name, head)
        behaviour = self._checkpoints.live_flow(name) or self._prompt(last)
        return [(AGENT, name), (TYPE, kind), (BRIEFING, last.briefing), (PROFILE, last.profile), (BEHAVIOUR, behaviour)]

    def advance(self, name: str, verb: str, head: str, new: str, trace: PendingTrace | None = None) -> None:
        """Move the agent's branch to a new commit, and bind the pending trace that the commit names, if any."""
        intent = self.intent(name, verb, head, new, trace)
        if not intent.notes and not intent.follow:
            self._core.reached("objects-written")
            self._core.refs.move(*intent.point, f"clia: {verb}")  # one ref and no note: no intent needed
            self._core.reached("committed")
            return
        self._envelope.carry_out(intent)

    def intent(self, name: str, verb: str, head: str, new: str, trace: PendingTrace | None) -> Intent:
        """The intent that moves the branch to a commit and binds a pending trace to it."""
        move = RefMove(names.head(name), head, new)
        bound = self._traces.drained(name, new, trace.until) if trace is not None else None
        notes, puts = self._checkpoints.writes_for(name, head, new, traced=bound is not None)
        drain = None
        if bound is not None:
            notes, drain = (Binding(names.traces(name), new, bound[0]), *notes), bound[1]
        for note in notes:
            self._core.notes.get(note.ref, new)  # fail before anything moves if the notes cannot be read
        follow = self._envelope.followers(move.ref, head, new)
        return Intent(name, verb, move, notes=notes, follow=follow, drain=drain, puts=puts)

    def _prompt(self, last: AgentCommit) -> str | None:
        """The prompt that the agent's briefing was rendered from."""
        if last.briefing is None:
            return None
        if last.briefing not in self._prompts:
            briefing = self._core.typed(last.briefing)
            self._prompts[last.briefing] = briefing.behaviour if isinstance(briefing, Briefing) else None
        return self._prompts[last.briefing]


class CheckoutPlaces:
    """All directories are absolute paths."""

    def __init__(self, core: Core, commits: Commits, porcelain: GitPorcelain, journals: Callable[[], AgentJournals]) -> None:
        self._core = core
        self._commits = commits
        self._porcelain = porcelain
        self._journals = journals

    def checkout(self, name: str, directory: str) -> str:
        """Create a worktree with the agent's files, or bring an existing one to the agent's head."""
        core = self._core
        with suppress(Conflict):  # reading uses the local files; working on the agent fetches first
            core.fresh(name)
        head = core.require_head(name)
        present = self._present(name, directory, head)
        if present is None:
            checked_out = self._porcelain.head_of(directory)
            if checked_out is None or not core.graph.descends(head, checked_out):
                self._porcelain.add_worktree(directory, name, head)
                return head
            self._porcelain.claim_worktree(directory, name)  # its creator died before it recorded the owner
            present = self._present(name, directory, head)
        if present is not None and present.base != head:
            if self._program(present).keep_left():
                message = f"{directory} has commits that are not recorded yet"
                hints = [f"record them first: clia commit {name} KIND --dir {directory}"]
                raise Conflict(message, code="uncommitted-work", hints=hints, fields={"directory": directory, "agent": name})
            self._porcelain.move_worktree(directory, name, head)
        return head

    def _present(self, name: str, directory: str, head: str) -> Checkout | None:
        """The agent's checkout in a directory, after completing or undoing a commit of a crashed process."""
        checkout = self._porcelain.checkout_of(directory)
        if checkout is not None:
            self._porcelain.relink(directory)
        if checkout is not None and checkout.agent != name and self._core.current_name(checkout.agent) == name:
            checkout = checkout._replace(agent=name)  # the process that renamed the agent could not do it
            self._porcelain.record(directory, *checkout.recorded())
        if checkout is not None and checkout.agent != name:
            message = f"{directory} is a checkout of the agent {checkout.agent!r}"
            hints = ["use another directory, or the agent's own name"]
            raise Conflict(message, code="other-checkout", hints=hints, fields={"directory": directory, "agent": checkout.agent})
        if checkout is not None and checkout.moving is not None:  # a process was killed while it changed the files
            self._porcelain.move_worktree(directory, name, checkout.moving)
            checkout = self._porcelain.checkout_of(directory)
        if checkout is None or checkout.pending is None:
            return checkout
        commit, own = checkout.pending
        if not self._core.contains(head, commit):
            return checkout
        self._update(directory, name, own, commit)
        return self._porcelain.checkout_of(directory)

    def completed(self, checkout: Checkout) -> Checkout | None:
        """The agent's checkout, after completing or undoing a commit of a crashed process."""
        agent = self._core.current_name(checkout.agent)
        return self._present(agent, checkout.directory, self._core.require_head(agent))

    def checkout_at(self, directory: str) -> Checkout | None:
        """The checkout whose directory contains this one."""
        checkout = None
        while directory and checkout is None:
            checkout = self._porcelain.checkout_of(directory)
            directory = directory.rpartition("/")[0]
        return checkout

    def commit_dir(
        self,
        name: str,
        kind: str,
        directory: str,
        words: CommitText,
        *,
        base: str | None,
        with_trace: bool,
        stage: Callable[[str, str], str] | None = None,
    ) -> str:
        """Commit the files of a directory. ``stage``: from it and the head's tree to the new tree; by default as git would."""
        head = self._core.require_head(name)
        present = self._present(name, directory, head)
        start = base or (self._brought(present, head) if present else self._base_of(directory, head))

        def staged(tree: str) -> str:
            new_tree = (stage or self._porcelain.snapshot)(directory, tree)
            self._commits.snapshots.check_tree(tree, new_tree)
            return new_tree

        if present is None:
            return self._commits.commit(name, kind, staged, words, base=start, with_trace=with_trace)
        program = self._program(present)
        program.may_repeat = True
        commit = self._commits.commit(name, kind, staged, words, base=start, with_trace=with_trace, program=program)
        self._update(directory, name, program.head, commit)
        return commit

    def commit_worktree(
        self,
        checkout: Checkout,
        kind: str,
        worktree: Worktree,
        words: CommitText,
        *,
        base: str,
        with_trace: bool,
        follow: bool = True,
    ) -> str:
        """Commit the files of an agent's checkout, after the commits that a program made in it.

        ``follow`` false: a program is using HEAD and index of the worktree, so they stay as they are. A checkout that cannot be
        updated is a notice, because the commit is recorded.
        """
        program = self._program(checkout)
        commit = self._commits.commit(checkout.agent, kind, worktree, words, base=base, with_trace=with_trace, program=program)
        self._update(checkout.directory, checkout.agent, program.head, commit, follow=follow)
        return commit

    def _update(self, directory: str, name: str, own: str | None, commit: str, *, follow: bool = True) -> None:
        """Tell a checkout that its files are recorded as a commit."""
        try:
            if follow:
                self._porcelain.settle(directory, name, own, commit)
            else:
                self._porcelain.record(directory, name, commit, own)
        except CliaError as err:
            todo = f"the next 'clia commit' or 'clia checkout {name}' in it does that"
            self._core.notify(f"recorded, but the checkout could not be updated: {err.message}; {todo}")

    def _brought(self, checkout: Checkout, head: str) -> str:
        """The commit that a checkout is based on: the head, if the commits since only added journal entries, which it gets."""
        core, base = self._core, checkout.base
        if base == head or not core.graph.descends(head, base):
            return base
        changes_nothing = core.objects.commit(base).tree == core.objects.commit(head).tree  # for example decisions
        return head if changes_nothing or self._journals().bring(checkout.directory, base, head) else base

    def has_own_commits(self, checkout: Checkout) -> bool:
        """Whether a program made commits in an agent's checkout, or moved its HEAD, since the agent's last commit."""
        return self._program(checkout).has_any()

    def _program(self, checkout: Checkout) -> ProgramCommits:
        from clia.space.program_commits import ProgramCommits  # not needed to commit given files

        return ProgramCommits(self._core, self._porcelain, self._commits.snapshots, checkout)

    def _base_of(self, directory: str, head: str) -> str:
        """The commit that the files of a directory came from, if it is not a checkout of clia."""
        core = self._core
        checked_out = self._porcelain.head_of(directory)
        if checked_out is not None:
            return head if core.objects.commit(checked_out).tree == core.objects.commit(head).tree else checked_out
        if core.read(head).kind == SPAWN:
            return head  # nothing was done yet
        message = f"the base commit of the files in {directory} is unknown"
        hints = ["work in a checkout, which records it: clia checkout AGENT DIR", "or give it: --base COMMIT"]
        raise InvalidInput(message, code="base-needed", hints=hints, fields={"directory": directory})


class Snapshots:
    """Builds trees. Caches the last contents of a few agents, so unchanged files are not hashed."""

    def __init__(self, objects: GitObjects) -> None:
        self._objects = objects
        self._last: OrderedDict[str, tuple[str, dict[str, TreeEntry], dict[str, Content]]] = OrderedDict()
        self._turn = Lock()

    def full(self, agent: str, tree: str, files: Mapping[str, Content]) -> str:
        """The tree of exactly these files; ``tree`` is the agent's current one."""
        last = self._last.get(agent)
        present, values = last[1:] if last is not None and last[0] == tree else (self._objects.entries(tree), {})
        changed: dict[str, Content] = {}
        for path, value in files.items():
            before = values.get(path, ...)
            # A link and a submodule both hold one text: compare their types, too.
            if before is not value and (type(before) is not type(value) or before != value):
                changed[path] = value
        written, removed = self._entries(changed, present), present.keys() - files.keys()
        new = self._objects.update_tree(tree, {**written, **dict.fromkeys(removed)}) if written or removed else tree
        entries = present | written
        for path in removed:
            del entries[path]
        with self._turn:
            self._last[agent] = (new, entries, dict(files))
            self._last.move_to_end(agent)
            while len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
        return new

    def delta(self, tree: str, changes: Mapping[str, Content | None]) -> str:
        """The tree with some paths set, and those with None removed."""
        removed = [path for path, value in changes.items() if value is None]
        for path in removed:
            paths.check_removed(path)
        written = self._entries({path: value for path, value in changes.items() if value is not None}, {})
        return self._objects.update_tree(tree, {**written, **dict.fromkeys(removed)})

    def _entries(self, files: Mapping[str, Content], present: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
        """The entries that must be written: those that differ from the tree."""
        described = {path: _described(path, value) for path, value in files.items()}
        entries: dict[str, TreeEntry] = {}
        blobs: dict[str, tuple[int, bytes]] = {}
        for path, (mode, data) in described.items():
            if path not in present:
                paths.check(path)
            if mode == SUBMODULE:
                entries[path] = TreeEntry(mode, data.decode("ascii"))
            elif present.get(path) != TreeEntry(mode, self._objects.blob_id(data)):
                self._check_special(path, mode, data)
                blobs[path] = (mode, data)
        entries |= {path: TreeEntry(mode, self._objects.write_blob(data)) for path, (mode, data) in blobs.items()}
        return {path: entry for path, entry in entries.items() if present.get(path) != entry}

    def check_tree(self, old: str, new: str) -> None:
        """Check the changed files of a tree that git itself interprets."""
        before = self._objects.entries(old)
        for path, entry in self._objects.entries(new).items():
            special = paths.is_gitmodules(path) or paths.is_gitattributes(path)
            if special and before.get(path) != entry and entry.mode != SUBMODULE:
                self._check_special(path, entry.mode, self._objects.blob(entry.cid))

    def _check_special(self, path: str, mode: int, data: bytes) -> None:
        if paths.is_gitmodules(path):
            self._check_gitmodules(path, mode, data)
        elif paths.is_gitattributes(path) and (
            len(data) > _ATTRIBUTES_MAX or any(len(line) >= _ATTRIBUTE_LINE for line in data.split(b"\n"))
        ):  # git would report it as damage
            raise UnsafePath(f"{path!r}: git does not read attributes this long", fields={"path": path})

    def _check_gitmodules(self, path: str, mode: int, data: bytes) -> None:
        """Refuse a ``.gitmodules`` file that git's own check refuses, because it could run programs in a clone."""
        entries = self._objects.config_entries(data) if mode != LINK else None
        if entries is None:
            raise UnsafePath(f"{path!r}: not a readable .gitmodules file", fields={"path": path})
        for key, value in entries:
            section, _, remainder = key.partition(".")
            name, _, field = remainder.rpartition(".")
            bad_name = not name or ".." in name.replace("\\", "/").split("/")
            bad_value = field in ("url", "path") and value.startswith("-")
            bad_url = field == "url" and ("\n" in value or "::" in value.partition("/")[0])
            bad_update = field == "update" and value not in _UPDATES
            if section == "submodule" and (bad_name or bad_value or bad_url or bad_update):
                raise UnsafePath(f"{path!r}: the value of {key} is unsafe", fields={"path": path, "key": key})


def _described(path: str, value: object) -> tuple[int, bytes]:
    """The mode and data of a content; ``InvalidInput`` names the path."""
    match value:
        case bytes():
            return FILE, value
        case File(bytes() as data, executable):
            return (EXECUTABLE if executable else FILE), data
        case Link(str() as target) if target and "\0" not in target:
            return LINK, target.encode("utf-8", "surrogateescape")
        case Submodule(str() as commit) if names.is_id(commit) and commit.strip("0"):  # git treats all zeros as none
            return SUBMODULE, commit.encode("ascii")
    message = f"the content of {path!r} cannot be stored: {type(value).__name__}"
    hints = ["give bytes, clia.File, clia.Link or clia.Submodule"]
    raise InvalidInput(message, code="invalid-content", hints=hints, fields={"path": path})
