"""``verify``: check that what was recorded is complete and consistent.

Invariant: it changes nothing but the index, which catches up with git first. Every finding names the ref or object it is about;
objects that a shallow or partial clone lacks are reported as unseen, not as damage.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from clia.errors import FileError, GitError, NoSuchObject
from clia.git.records import FOLDER, SUBMODULE
from clia.space.behaviour_chains import VERSIONS, read_behaviour, read_state
from clia.space.core import UNREADABLE
from clia.space.events import event_of
from clia.space.lost_moves import MISSING as REF_MISSING
from clia.space.lost_moves import LostMove
from clia.space.model import COUNTING, question_of
from clia.space.relations import retracted, stated
from clia.values import refs as names
from clia.values.typed_objects import parse
from clia.values.types import AGENT_COMMIT, DECISION, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from typing import Any

    from clia.errors import CliaError
    from clia.git.porcelain import GitPorcelain
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.lost_moves import LostMoves
    from clia.space.model import AgentCommit
    from clia.space.relations import Relations
    from clia.values.types import Types
    from clia.verbs import Count

    Say = Callable[[str], None]
    Question = tuple[str | None, str]


_STATE = f"state which one counts in a commit of the agent (--meta {COUNTING}=COMMIT)"
_OBJECT_ID = re.compile(r"\b[0-9a-f]{40}\b")


class Finding(NamedTuple):
    """A problem of the record."""

    code: str  # one of the codes of findings
    message: str  # one sentence for a person
    ref: str | None = None  # the ref that it is about
    cid: str | None = None  # the object that it is about


class Report(NamedTuple):
    """The result of ``verify``. ``unseen`` lists what this clone could not check."""

    findings: tuple[Finding, ...]  # problems
    agents: Count  # agents that were checked
    commits: Count  # commits that were checked
    traces: Count  # traces that were checked
    edges: Count  # relations that were checked
    unseen: tuple[str, ...]  # what this clone does not hold

    @property
    def clean(self) -> bool:
        return not self.findings

    def joined(self, findings: Iterable[Finding], unseen: Iterable[str]) -> Report:
        """Add the findings of other checks."""
        all_findings = tuple(sorted({*self.findings, *findings}, key=str))
        return self._replace(findings=all_findings, unseen=tuple(sorted({*self.unseen, *unseen})))


class Checks:
    def __init__(
        self, core: Core, envelope: Envelope, relations: Relations, lost_moves: LostMoves, porcelain: GitPorcelain
    ) -> None:
        self._core = core
        self._envelope = envelope
        self._relations = relations
        self._lost_moves = lost_moves
        self._porcelain = porcelain

    def verify(self, types: Types, progress: Say | None = None, *, complete: bool) -> Report:
        """Check all agents, chains and the index; ``complete``: the clone is neither partial nor shallow."""
        say: Say = progress or (lambda _: None)
        refs = self._core.refs
        check = _Check(self._core, types, complete=complete)
        prefixes = (names.HEADS, names.ARCHIVE, names.RECORDS, names.TRACES, names.SESSIONS)
        for name in sorted({ref.removeprefix(prefix) for prefix in prefixes for ref, _ in refs.under(prefix)}):
            say(f"agent {name}")
            check.agent(name)
        for ref, tip in refs.under(names.EVENTS):
            check.attempt(ref, check.chain, ref, tip)
        for ref, tip in refs.under(names.BEHAVIOURS):
            check.attempt(ref, check.versions, ref, tip)
        for name in self._envelope.unfinished():
            # Another process may be finishing it right now.
            if check.at_rest(name) and name in self._envelope.unfinished():
                check.found("unfinished", f"an operation on {name!r} was neither finished nor undone", names.head(name))
        say("index")
        check.attempt(None, self._check_index, check)
        say("reflogs")
        check.attempt(None, self._check_moves, check)
        say("git fsck")
        complaints = self._porcelain.check()
        for complaint in complaints:
            check.found("git-fsck", complaint)
        check.name_owners(complaints)
        findings, unseen = tuple(sorted(set(check.findings), key=str)), tuple(sorted(check.unseen))
        return Report(findings, check.agents, len(check.commits), check.traces, check.edges, unseen)

    def is_whole(self) -> bool:
        """Whether the clone is neither partial nor shallow."""
        return not (self._porcelain.is_partial() or self._porcelain.is_shallow())

    def _check_index(self, check: _Check) -> None:
        """Compare the index with git."""
        rows = {edge[:4] for edge in self._relations.edges()}
        expected = {edge for edge in check.stated if edge[3] not in check.retracted}
        check.edges = len(rows)
        for src, kind, dst, origin in sorted(rows - expected):
            check.found("index-row", f"the index has {src} -{kind}-> {dst}, but git does not", cid=origin)
        for src, kind, dst, origin in sorted(expected - rows):
            check.found("index-gap", f"the index lacks {src} -{kind}-> {dst}", cid=origin)

    def _check_moves(self, check: _Check) -> None:
        """Compare the refs with their former values."""
        for loss in self._lost_moves.find():
            if not isinstance(loss, LostMove):
                check.failed(loss.ref, loss.error)
            elif loss.code == REF_MISSING and names.record(loss.ref.removeprefix(names.HEADS)) in check.branchless:
                check.branchless[names.record(loss.ref.removeprefix(names.HEADS))] = loss.cid
            else:
                check.found(loss.code, loss.message(), loss.ref, loss.cid)
        if check.branchless:
            self._name_heads(check)

    def _name_heads(self, check: _Check) -> None:
        """Name the newest commit of each agent without a branch: the last one that is known, or one that follows it."""
        core = self._core
        dangling: list[AgentCommit] = []
        for cid in self._porcelain.dangling_commits():
            with suppress(NoSuchObject, GitError):  # damaged
                dangling.append(core.read(cid))
        for record, known_head in check.branchless.items():
            name = record.removeprefix(names.RECORDS)
            tips = [commit.cid for commit in dangling if commit.agent == name]
            tips = [cid for cid in tips if known_head is None or core.contains(cid, known_head)]
            newest = max(tips, key=lambda cid: sum(1 for _ in core.own_commits(name, cid)), default=known_head)
            message = f"agent {name!r} has a record but no branch; restore it: git branch agents/{name} {newest or 'COMMIT'}"
            check.found("no-branch", message, record, newest)


class _Check:
    """One run of ``verify``: what was checked, and the findings."""

    def __init__(self, core: Core, types: Types, *, complete: bool) -> None:
        self._core = core
        self._types = types
        self._whole = complete
        self._present: set[str] = set()
        self.branchless: dict[str, str | None] = {}  # records of agents without a branch, and the last known head
        self.stated: set[tuple[str, str, str, str]] = set()
        self.retracted: set[str] = set()
        self.unseen: set[str] = set()
        self.findings: list[Finding] = []
        self.commits: set[str] = set()
        self.trees: dict[str, dict[str, None]] = {}  # of each agent's own commits
        self.agents = self.traces = self.edges = 0

    def found(self, code: str, message: str, ref: str | None = None, cid: str | None = None) -> None:
        self.findings.append(Finding(code, message, ref, cid))

    def at_rest(self, name: str) -> bool:
        """Whether no process is working on the agent right now."""
        try:
            with self._core.locks.attempt(name) as free:
                return free
        except FileError:
            return True  # the repository is read-only

    def agent(self, name: str) -> None:
        if not names.is_name(name):
            self.found("invalid-name", f"{name!r} is not a valid agent name", names.HEADS + name)
            return
        core = self._core
        head = core.refs.get(names.head(name)) or core.refs.get(names.archived(name))
        record = core.refs.get(names.record(name))
        if head is None:
            if record is not None and self.at_rest(name) and core.refs.get(names.head(name)) is None:
                self.branchless[names.record(name)] = None
            return
        self.agents += 1
        if record is None:
            self.found("no-record", f"agent {name!r} has a branch but no record", names.head(name))
        self.attempt(names.head(name), self._history, name, head)
        self.attempt(names.record(name), self._record, name, record)
        self.attempt(names.traces(name), self._notes, name)
        self.attempt(names.sessions(name), self._checkpoints, name)

    def attempt(self, ref: str | None, look: Callable[..., None], *arguments: Any) -> None:
        """Run one check; a missing or damaged object is reported, and ends only this check."""
        try:
            look(*arguments)
        except UNREADABLE as err:
            self.failed(ref, err)

    def failed(self, ref: str | None, err: CliaError) -> None:
        """Report why a check could not be completed."""
        if isinstance(err, NoSuchObject) and not self._whole:
            self.unseen.add(f"{ref}: {err.message}" if ref else err.message)
        else:
            self.found(err.code, err.message, ref, err.fields.get("cid"))

    def name_owners(self, complaints: Iterable[str]) -> None:
        """Report whose files are missing or damaged, if git complains: it names neither each object nor its owner."""
        damaged = {cid for complaint in complaints for cid in _OBJECT_ID.findall(complaint) if not self._is_readable(cid)}
        sound = set[str]()
        for name, trees in self.trees.items() if damaged and self._whole else ():
            cid = next((cid for tree in trees if (cid := self._damage_in(tree, damaged, sound)) is not None), None)
            if cid is not None:
                self.found("damaged-file", f"a file or folder of agent {name!r} cannot be read: {cid}", names.head(name), cid)

    def _is_readable(self, cid: str) -> bool:
        try:
            return self._core.objects.kind(cid) is not None
        except GitError:
            return False

    def _damage_in(self, top: str, damaged: AbstractSet[str], sound: set[str]) -> str | None:
        """A damaged object in a tree; the objects of a tree without one are added to ``sound``."""
        queue, visited = [top], set[str]()
        while queue:
            tree = queue.pop()
            if tree in damaged:
                return tree
            if tree in sound or tree in visited:
                continue
            visited.add(tree)
            try:
                entries = [entry for _, entry in self._core.objects.listing(tree) if entry.mode != SUBMODULE]
            except UNREADABLE:
                return tree
            queue += [entry.cid for entry in entries if entry.mode == FOLDER]
            files = {entry.cid for entry in entries if entry.mode != FOLDER} - sound - visited
            broken = next((cid for cid in sorted(files) if cid in damaged or not self._is_readable(cid)), None)
            if broken is not None:
                return broken
            visited |= files
        sound |= visited
        return None

    def _history(self, name: str, head: str) -> None:
        genesis = None
        decisions: dict[Question, AgentCommit] = {}
        counting: set[str] = set()
        for commit in self._core.own_commits(name, head):
            counting.add(str(commit.meta.get(COUNTING)))
            if commit.kind == DECISION and commit.request is not None:
                self._decided_once(name, commit, decisions, counting)
            self.commits.add(commit.cid)
            self.trees.setdefault(name, {})[commit.tree] = None
            self._commit(name, commit)
            genesis = commit if commit.kind == SPAWN else genesis
        if genesis is None:
            self._missing("no-genesis", f"agent {name!r} has no genesis commit", names.head(name), head)

    def _commit(self, name: str, commit: AgentCommit) -> None:
        ref = names.head(name)
        if not self._types.is_a(commit.kind or "", AGENT_COMMIT):
            self.found("unknown-kind", f"{commit.cid} has the unknown kind {commit.kind!r}", ref, commit.cid)
        for trailer, cid in (("briefing", commit.briefing), ("profile", commit.profile), ("behaviour", commit.behaviour)):
            if cid is not None and not self._exists(cid):
                self._missing("missing-object", f"{commit.cid} names a {trailer} {cid} that does not exist", ref, cid)
        if commit.kind == SPAWN and commit.parent:
            self.stated.add((commit.parent, "sub-agent-of", name, commit.cid))
        elif commit.kind == "session-merge" and commit.merged:
            self.stated.add((name, "merges", commit.merged, commit.cid))
            if len(commit.parents) != 2:
                self._missing("not-a-merge", f"{commit.cid} is a session-merge without two parents", ref, commit.cid)
        elif commit.kind == DECISION:
            self._decision(ref, commit)

    def _decided_once(
        self, name: str, first: AgentCommit, decisions: dict[Question, AgentCommit], counting: AbstractSet[str]
    ) -> None:
        """A request has one decision, or a later commit states which of two counts.

        ``decisions``: the later ones. ``counting``: what later commits state.
        """
        second = decisions.get(question_of(first))
        decisions[question_of(first)] = first
        if second is not None and not {first.cid, second.cid} & counting:
            both = " and ".join(f"{commit.cid} ({commit.value}, by {commit.by})" for commit in (first, second))
            message = f"request {first.request} of {name!r} was decided twice: {both}; {_STATE}"
            self.found("decided-twice", message, names.head(name), second.cid)

    def _decision(self, ref: str, commit: AgentCommit) -> None:
        """A decision names what it answers and changes no file."""
        if commit.request is None or commit.value is None or commit.by is None:
            message = f"decision {commit.cid} lacks the request, the answer or the decider"
            self.found("not-a-decision", message, ref, commit.cid)
        if not commit.parents:
            self._missing("not-a-decision", f"the decision {commit.cid} has no parent", ref, commit.cid)
        elif self._core.objects.commit(commit.parents[0]).tree != commit.tree:
            self.found("not-a-decision", f"the decision {commit.cid} changes files", ref, commit.cid)

    def _exists(self, cid: str) -> bool:
        if cid not in self._present and self._core.objects.kind(cid) is not None:
            self._present.add(cid)
        return cid in self._present

    def _missing(self, code: str, message: str, ref: str, cid: str) -> None:
        """Report a finding, or an unseen object in a shallow or partial clone."""
        if self._whole:
            self.found(code, message, ref, cid)
        else:
            self.unseen.add(message)

    def _record(self, name: str, record: str | None) -> None:
        if record is None:
            return
        core = self._core
        files = core.objects.entries(core.objects.commit(record).tree)
        last = next(core.own_commits(name, core.refs.get(names.head(name)) or core.refs.get(names.archived(name)) or ""), None)
        named = {"briefing.json": last.briefing, "profile.json": last.profile} if last else {}
        for path, cid in named.items():
            if cid is not None and (path not in files or files[path].cid != cid):
                self.found("record-differs", f"the record of {name!r} does not hold the {path} of its commits", names.record(name))
        for path, entry in files.items():
            if parse(core.objects.blob(entry.cid)) is None:
                self.found("not-typed", f"{path} in the record of {name!r} is not a typed object", names.record(name), entry.cid)

    def _notes(self, name: str) -> None:
        core = self._core
        ref = names.traces(name)
        for commit, blob in core.notes.all(ref).items():
            self.traces += 1
            if not self._exists(commit):
                self._missing("missing-object", f"a trace is bound to {commit}, which does not exist", ref, commit)
            self.attempt(ref, self._note, name, commit, blob)

    def _note(self, name: str, commit: str, blob: str) -> None:
        note = parse(self._core.objects.blob(blob)) or {"type": "note of another program"}
        if note["type"] == "console-trace" and (note["commit"], note["agent"]) != (commit, name):
            self.found("misbound", f"the trace of {note['commit']} is bound to {commit}", names.traces(name), blob)

    def _checkpoints(self, name: str) -> None:
        core = self._core
        ref = names.sessions(name)
        bound = core.notes.all(ref)
        notes = {blob: parse(core.objects.blob(blob)) or {} for blob in sorted(set(bound.values()))}
        for commit, blob in bound.items():
            if not self._exists(commit):
                self._missing("missing-object", f"a session's checkpoint is bound to {commit}, which does not exist", ref, commit)
            if notes[blob].get("type") == "session":
                self._checkpoint(ref, blob, notes[blob], bound)

    def _checkpoint(self, ref: str, blob: str, checkpoint: Mapping[str, Any], bound: Mapping[str, str]) -> None:
        """The base of a checkpoint exists: another checkpoint, or the flow."""
        base, origin = checkpoint.get("base"), checkpoint.get("origin")
        if base is not None and base not in bound:
            self._missing("missing-object", f"the checkpoint {blob} builds on that of {base}, which does not exist", ref, blob)
        flow = origin.get("flow") if isinstance(origin, dict) else None
        if base is None and not (isinstance(flow, str) and self._exists(flow)):
            self._missing("missing-object", f"the checkpoint {blob} is of the flow {flow}, which does not exist", ref, blob)

    def chain(self, ref: str, tip: str) -> None:
        name = ref.removeprefix(names.EVENTS)
        for commit in self._core.graph.walk([tip]):
            body = event_of(commit) or {}
            self.stated.update(edge[:4] for edge in stated(name, commit.cid, body))
            self.retracted.update(retracted(body))

    def versions(self, ref: str, tip: str) -> None:
        """Every version of a behaviour is stored under its own id, and the state refers only to existing versions."""
        core, name = self._core, ref.removeprefix(names.BEHAVIOURS)
        entries = core.objects.entries(core.objects.commit(tip).tree)
        if not any(path.startswith(VERSIONS) for path in entries):
            self.found("broken-behaviour", f"the behaviour {name!r} has no version", ref, tip)
        for path, entry in entries.items():
            if not path.startswith(VERSIONS):
                continue
            if path != f"{VERSIONS}{entry.cid}.json":
                self.found("broken-behaviour", f"{path} of behaviour {name!r} is stored as object {entry.cid}", ref, entry.cid)
            elif read_behaviour(core.objects, entry.cid) is None:
                self.found("broken-behaviour", f"the version {entry.cid} of {name!r} is not a behaviour", ref, entry.cid)
        state = read_state(core.objects, tip)
        current = frozenset([state.current] if state.current is not None else [])
        for field, cids in (("current", current), ("adopted", state.adopted), ("retired", state.retired)):
            for cid in sorted(cids - state.versions):
                self.found("broken-behaviour", f"{cid} is {field} in behaviour {name!r} but not a version of it", ref, cid)
