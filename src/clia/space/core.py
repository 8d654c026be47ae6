"""The components that every verb of a space uses: git, the store, locks, the clock and the accountable person."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple, TypeVar

from clia.errors import GitError, InvalidInput, NoSuchAgent, NoSuchObject, NotAllowed, StaleRef, did_you_mean
from clia.git.records import EXECUTABLE, LINK, SUBMODULE, Stamp
from clia.space.model import META, File, Link, Submodule, agent_commit
from clia.store.interface import FOREIGN, KNOWN
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import check_text, compose
from clia.values.typed_objects import as_typed, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.errors import CliaError
    from clia.git.graph import GitGraph
    from clia.git.notes import GitNotes
    from clia.git.objects import GitObjects
    from clia.git.records import Refs, TreeEntry
    from clia.space.model import AgentCommit, Content
    from clia.store.interface import Locks, Store
    from clia.values.clock import Clock
    from clia.values.typed_objects import TypedObject

T = TypeVar("T")
AGENT_EMAIL = "{}@agents.clia.invalid"
UNREADABLE = (NoSuchObject, GitError)
"""What reading a missing or damaged object raises. Reads about several agents leave it out; ``verify`` reports it."""


class UnapprovedChange(Exception):
    """A commit or landing needs an approval. ``refusal`` asks for it, without any lock held, and returns the error to raise.

    ``reasons``: why, in words, without asking.
    """

    def __init__(self, refusal: Callable[[], CliaError], reasons: tuple[str, ...]) -> None:
        super().__init__()
        self.refusal = refusal
        self.reasons = reasons


class Person(NamedTuple):
    """The person accountable for what agents do here: the committer of their commits."""

    name: str
    email: str


class CommitText(NamedTuple):
    """The message and the open fields of a commit."""

    message: str = ""
    meta: Mapping[str, Any] | None = None


class Core(NamedTuple):
    """The components of an open space, and the reads that every verb needs."""

    space_id: str
    objects: GitObjects
    refs: Refs
    graph: GitGraph
    notes: GitNotes
    store: Store
    locks: Locks
    clock: Clock
    identify: Callable[[], Person]  # who is accountable; ``no-git-identity`` if git does not know it
    clean: Cleaner
    reached: Callable[[str], None]
    notify: Callable[[str], None] = lambda _: None  # tells the person about events that no result contains
    clone: str | None = None  # the id of this clone if the store is shared
    seek: Callable[[str], None] = lambda _: None  # fetch an agent that only another machine may have
    fresh: Callable[[str], None] = lambda _: None  # fetch an agent's changes from other machines; the caller holds no lock
    logged: Callable[[], AbstractContextManager[None]] = nullcontext  # the moves made inside are logged together
    catch_up: Callable[[], bool] = lambda: False  # fetch what all agents share; returns whether anything may be new

    @property
    def person(self) -> Person:
        return self.identify()

    def now(self) -> int:
        return int(self.clock().timestamp())

    def agent_stamp(self, name: str, at: int | None = None) -> Stamp:
        return Stamp(name, AGENT_EMAIL.format(name), self.now() if at is None else at)

    def person_stamp(self, at: int | None = None) -> Stamp:
        return Stamp(self.person.name, self.person.email, self.now() if at is None else at)

    def head(self, name: str) -> str | None:
        """The agent's head, or None."""
        names.check_name(name)
        return self.refs.get(names.head(name))

    def require_head(self, name: str) -> str:
        head = self.head(name)
        if head is None:
            self.seek(name)
            head = self.head(name)
        if head is not None:
            return head
        if self.refs.get(names.archived(name)) is not None:
            current = self.current_name(name)
            if current != name:
                hints = [f"use its present name: {current}"]
                raise NoSuchAgent(f"agent {name!r} was renamed to {current!r}", hints=hints, fields={"agent": name, "now": current})
            hints = [f"it is archived; restore it: clia archive --restore {name}"]
            raise NoSuchAgent(f"no agent {name!r}", hints=hints, fields={"agent": name})
        others = (ref.removeprefix(names.HEADS) for ref, _ in self.refs.under(names.HEADS))
        hints = ["clia list shows the agents of this space"]
        raise NoSuchAgent(f"no agent {name!r}{did_you_mean(name, others)}", hints=hints, fields={"agent": name})

    def current_name(self, name: str) -> str:
        """The present name of an agent that was renamed; the name itself for any other."""
        while self.refs.get(names.head(name)) is None:
            # What is archived under the former name is the first commit under the next one.
            archived = self.refs.get(names.archived(name))
            try:
                renaming = None if archived is None else self.read(archived)
            except UNREADABLE:
                break
            if renaming is None or renaming.formerly != name or renaming.agent in (None, name):
                break
            name = str(renaming.agent)
        return name

    def former_name(self, name: str, head: str) -> tuple[str, str] | None:
        """The former name of a renamed agent, and its last commit under that name; None if it always had this name."""
        own = list(self.own_commits(name, head))
        if not own:  # git created the branch
            return None
        first = own[-1]
        return (first.formerly, first.parents[0]) if first.formerly is not None and first.parents else None

    def sought(self, look: Callable[[], T], missing: type[CliaError]) -> T:
        """Call ``look``; if it misses something, catch up with other machines and call it again."""
        try:
            return look()
        except missing:
            if not self.catch_up():
                raise
        return look()

    def source_head(self, text: str) -> str:
        """The head of something that can be merged: an agent here, or ``PEER/AGENT`` as tracked here."""
        remote = names.remote_agent(check_text(text, "agent"))
        if remote is None:
            return self.require_head(text)
        head = self.refs.get(names.remote(remote[0], f"agents/{remote[1]}"))
        if head is not None:
            return head
        hints = ["clia remotes shows the tracked agents", "clia peer list shows the peers"]
        raise NoSuchAgent(f"no agent {text!r} of a peer is tracked here", hints=hints, fields={"agent": text})

    def require_known(self, name: str) -> None:
        """Raise ``NoSuchAgent`` unless the agent is active or archived."""
        if self.refs.get(names.archived(names.check_name(name))) is None and self.head(name) is None:
            self.seek(name)
            if self.refs.get(names.archived(name)) is None:
                self.require_head(name)

    def own_head(self, name: str) -> str:
        """The head of an agent that may be changed here. An agent of another clone is read-only."""
        head = self.require_head(name)
        # Machines that share a store share the agents: old marks do not count.
        if self.clone is None and self.store.get(FOREIGN + name) is not None:
            message = f"the agent {name!r} belongs to another clone; here it is read-only"
            hints = [f"spawn your own from it: clia spawn NAME --from {name}", f"or move it here: clia init --claim {name}"]
            raise NotAllowed(message, code="foreign-agent", hints=hints, fields={"agent": name})
        self.check_created(name, head)
        return head

    def check_created(self, name: str, head: str) -> None:
        """Raise ``foreign-branch`` if the branch has the name of an agent, but clia did not create it.

        A branch that plain git fetched has no record; then its commits tell.
        """
        if self.refs.get(names.record(name)) is None:
            self.last_own(name, head)

    def mark_foreign(self, name: str) -> None:
        with self.store.writing() as transaction:
            transaction.values.put(FOREIGN + name, True)

    def claim(self, name: str) -> None:
        """Allow work on the agent from this clone."""
        agreed_row = [self.require_head(name), self.refs.get(names.events(name))]
        with self.store.writing() as transaction:
            transaction.values.delete(FOREIGN + name)
            transaction.values.put(KNOWN + name, agreed_row)  # its sessions were those of the other clone

    def read(self, cid: str) -> AgentCommit:
        return agent_commit(self.objects.commit(cid))

    def own_commits(self, name: str, head: str) -> Iterator[AgentCommit]:
        """The agent's own commits from a head down to its genesis: first parents that carry its name."""
        for commit in map(agent_commit, self.graph.first_parents(head)):
            if commit.agent == name and commit.kind is not None:
                yield commit
                if commit.kind == "spawn":
                    return

    def made_by(self, name: str, head: str) -> Iterator[AgentCommit]:
        """The agent's own commits, and those that stand for commits of a program on other branches, which they name."""
        for commit in self.own_commits(name, head):
            yield commit
            yield from self.adopted_with(name, commit)

    def adopted_with(self, name: str, commit: AgentCommit) -> Iterator[AgentCommit]:
        """The commits for those that a program made on other branches before this commit of an agent."""
        for cid in commit.adopted if commit.agent == name else ():
            if self.contains(commit.cid, cid) and (adopted := self.read(cid)).agent == name:
                yield adopted

    def contains(self, tip: str, cid: str) -> bool:
        """Whether a history contains a commit that may be missing here."""
        return self.objects.kind(cid) == "commit" and self.graph.descends(tip, cid)

    def typed(self, cid: str) -> TypedObject | dict[str, Any] | None:
        """The typed object with this id; None for another kind of blob."""
        typed_object = parse(self.objects.blob(cid))
        return None if typed_object is None else as_typed(typed_object)

    def own_root(self, name: str, head: str) -> str:
        """The oldest of the agent's own commits; ``foreign-branch`` if there is none."""
        *_, first = self.last_own(name, head), *self.own_commits(name, head)
        return first.cid

    def last_own(self, name: str, head: str) -> AgentCommit:
        """The commit that names the agent's current briefing and profile."""
        for commit in self.own_commits(name, head):
            return commit
        message = f"the branch agents/{name} was not created by clia; it is left alone"
        hints = [f"rename it: git branch -m agents/{name} NEW-NAME", f"or spawn an agent at it: clia spawn NAME --at agents/{name}"]
        raise NoSuchObject(message, code="foreign-branch", hints=hints, fields={"agent": name, "head": head})

    def write_commit(
        self,
        name: str,
        tree: str,
        parents: Sequence[str],
        text: str,
        trailers: Sequence[tuple[str, str | None]],
        default: str,
        by: Person | None = None,
    ) -> str:
        """Write a commit authored by the agent and committed by a person, by default the accountable one.

        Trailers without a value are left out.
        """
        at = self.now()
        message = compose(text, [(key, value) for key, value in trailers if value], default)
        return self.objects.write_commit(tree, parents, self.agent_stamp(name, at), Stamp(*(by or self.person), at), message)

    def content(self, entry: TreeEntry) -> Content:
        """The content of a path, as ``commit`` accepts it."""
        if entry.mode == SUBMODULE:
            return Submodule(entry.cid)
        data = self.objects.blob(entry.cid)
        if entry.mode == LINK:
            return Link(data.decode("utf-8", "surrogateescape"))
        return File(data, executable=True) if entry.mode == EXECUTABLE else data

    def empty_tree(self) -> str:
        return self.objects.update_tree(None, {})


def stale(name: str, expected: str, actual: str) -> StaleRef:
    message = f"the agent {name!r} has moved since {expected[:12]}: its head is {actual[:12]}"
    hints = ["read the agent's files again, and commit on top of its head"]
    return StaleRef(message, hints=hints, fields={"agent": name, "ref": names.head(name), "expected": expected, "actual": actual})


class Cleaner(NamedTuple):
    """Redacts everything that is about to be recorded, unless the operator switched redaction off."""

    redact_text: Callable[[str], tuple[str, int]]
    redact_value: Callable[[Any], tuple[Any, int]]

    def text(self, text: str, field: str) -> str:
        return self.redact_text(check_text(text, field))[0]

    def value(self, value: Any) -> Any:
        return self.counted(value)[0]

    def counted(self, value: Any) -> tuple[Any, int]:
        """The redacted value, and the number of secrets removed."""
        check_depth(value)
        return self.redact_value(value)

    def words(self, words: CommitText) -> tuple[str, list[tuple[str, str]]]:
        """The message, and a trailer for the open fields if there are any."""
        text = self.text(words.message, "message")
        if not words.meta:
            return text, []
        if not isinstance(words.meta, dict):
            raise InvalidInput("meta must be a JSON object", code="invalid-meta", fields={"field": "meta"})
        try:
            return text, [(META, canonical_bytes(self.value(words.meta)).decode("utf-8"))]
        except (ValueError, TypeError, RecursionError) as err:
            raise InvalidInput(f"meta is not JSON: {err}", code="invalid-meta", fields={"field": "meta"}) from None


def check_depth(value: Any) -> None:
    """Raise ``InvalidInput`` if a value is nested too deeply."""
    from clia.values.documents import MAX_DEPTH  # most commits have no such value

    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidInput(f"a value is nested deeper than {MAX_DEPTH} levels", code="too-deep", fields={"limit": MAX_DEPTH})
        containers = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list, tuple)))
        level = [child for children in containers for child in children]
