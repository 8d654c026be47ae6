"""The commit verb, and checkouts: an agent's files in a directory.

Invariant: a commit carries the agent, its briefing and its profile, and its parent is the head that the caller expected. A caller
that loses the race gets ``StaleRef``, and nothing it wrote is visible. A checkout is a detached worktree that remembers its base
commit, so a commit made in between is reported as ``StaleRef`` and never shows as deletions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from clia.errors import Conflict, InvalidInput, StaleRef
from clia.space.envelope import Binding, Intent, RefMove
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, PROFILE, TYPE
from clia.space.snapshots import Snapshots
from clia.values import refs as names
from clia.values.typed_objects import Briefing
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.records import Checkout
    from clia.git.workbench import GitWorkbench
    from clia.sessions.checkpoints import Checkpoints
    from clia.space.core import CommitText, Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit, Content
    from clia.space.registry import Registry
    from clia.space.traces import Traces

    Worktree = Callable[[str], str]


class Commits:
    def __init__(self, core: Core, envelope: Envelope, registry: Registry, traces: Traces, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints
        self._envelope = envelope
        self._registry = registry
        self._traces = traces
        self.snapshots = Snapshots(core.objects)
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
        self, name: str, kind: str, worktree: Worktree, words: CommitText, *, base: str | None = None, with_trace: bool = False
    ) -> str:
        core = self._core
        names.check_name(name)
        self._registry.check_kind(kind)
        text, open_fields = core.clean.words(words)
        with self._envelope.at_work(name):
            head = core.own_head(name)
            if base is not None and base != head:
                raise stale(name, base, head)
            tree = worktree(core.objects.commit(head).tree)
            trailers = [*self.identity(name, kind, head), *open_fields]
            new = core.write_commit(name, tree, [head], text, trailers, f"{kind} by {name}")
            self.advance(name, kind, head, new, with_trace)
        return new

    def identity(self, name: str, kind: str, head: str) -> list[tuple[str, str | None]]:
        """The trailers taken over from the agent's last commit, and the behaviour of its session or briefing."""
        last = self._core.last_own(name, head)
        behaviour = self._checkpoints.live_flow(name) or self._prompt(last)
        return [(AGENT, name), (TYPE, kind), (BRIEFING, last.briefing), (PROFILE, last.profile), (BEHAVIOUR, behaviour)]

    def advance(self, name: str, verb: str, head: str, new: str, with_trace: bool) -> None:
        """Move the agent's branch to a new commit; ``with_trace`` also binds its pending trace."""
        intent = self.intent(name, verb, head, new, with_trace=with_trace)
        if not intent.notes and not intent.follow:
            self._core.reached("objects-written")
            self._core.refs.move(*intent.point, f"clia: {verb}")  # one ref and no note: no intent needed
            self._core.reached("committed")
            return
        self._envelope.carry_out(intent)

    def intent(self, name: str, verb: str, head: str, new: str, *, with_trace: bool) -> Intent:
        """The intent that moves the branch to a commit."""
        move = RefMove(names.head(name), head, new)
        bound = self._traces.drained(name, new) if with_trace else None
        notes, puts = self._checkpoints.writes_for(name, new)
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

    def __init__(self, core: Core, commits: Commits, workbench: GitWorkbench) -> None:
        self._core = core
        self._commits = commits
        self._workbench = workbench

    def checkout(self, name: str, directory: str) -> str:
        """Create a worktree with the agent's files, or bring an existing one to the agent's head."""
        core = self._core
        with suppress(Conflict):  # reading files uses what is here; working on the agent fetches first
            core.fresh(name)
        head = core.require_head(name)
        present = self._present(name, directory, head)
        if present is None:
            here = self._workbench.head_of(directory)
            if here is None or not core.graph.descends(head, here):
                self._workbench.add_worktree(directory, name, head)
                return head
            self._workbench.claim_worktree(directory, name)  # its creator died before it recorded the owner
            present = self._present(name, directory, head)
        if present is not None and present.base != head:
            self._workbench.move_worktree(directory, name, head)
        return head

    def _present(self, name: str, directory: str, head: str) -> Checkout | None:
        """The agent's checkout in a directory, after settling a commit that its creator did not finish."""
        checkout = self._workbench.checkout_of(directory)
        if checkout is not None and checkout.agent != name:
            raise Conflict(
                f"{directory} is a checkout of the agent {checkout.agent!r}",
                code="other-checkout",
                hints=["use another directory, or the agent's own name"],
                fields={"directory": directory, "agent": checkout.agent},
            )
        if checkout is None or checkout.tree is None or checkout.base == head:
            return checkout
        own = self._core.own_commits(name, head)
        commit = next((commit for commit in own if commit.parents[:1] == (checkout.base,)), None)
        if commit is None or commit.tree != checkout.tree:
            return checkout
        self._workbench.settle(directory, name, checkout.base, commit.cid)
        return checkout._replace(base=commit.cid, tree=None)

    def checkout_at(self, directory: str) -> Checkout | None:
        """The checkout whose directory contains this one."""
        checkout = None
        while directory and checkout is None:
            checkout = self._workbench.checkout_of(directory)
            directory = directory.rpartition("/")[0]
        return checkout

    def commit_dir(self, name: str, kind: str, directory: str, words: CommitText, *, base: str | None, with_trace: bool) -> str:
        head = self._core.require_head(name)
        present = self._present(name, directory, head)
        start = base or (present.base if present else self._base_of(directory, head))

        def staged(tree: str) -> str:
            new_tree = self._workbench.snapshot(directory, tree)
            self._commits.snapshots.check_tree(tree, new_tree)
            if present is not None:
                self._workbench.record(present.directory, present.agent, present.base, new_tree)
            return new_tree

        commit = self._commits.commit(name, kind, staged, words, base=start, with_trace=with_trace)
        if present is not None:
            self._workbench.settle(directory, name, start, commit)
        return commit

    def _base_of(self, directory: str, head: str) -> str:
        """The commit that the files of a directory came from, if it is not a checkout of ours."""
        core = self._core
        here = self._workbench.head_of(directory)
        if here is not None:
            return head if core.objects.commit(here).tree == core.objects.commit(head).tree else here
        if core.read(head).kind == SPAWN:
            return head  # nothing was done yet
        raise InvalidInput(
            f"which commit do the files of {directory} come from?",
            code="base-needed",
            hints=["work in a checkout, which knows it: clia checkout AGENT DIR", "or name it: --base COMMIT"],
            fields={"directory": directory},
        )


def stale(name: str, expected: str, actual: str) -> StaleRef:
    return StaleRef(
        f"the agent {name!r} has moved since {expected[:12]}: its head is {actual[:12]}",
        hints=["read the agent's files again, and commit on top of its head"],
        fields={"agent": name, "ref": names.head(name), "expected": expected, "actual": actual},
    )
