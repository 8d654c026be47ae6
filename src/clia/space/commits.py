"""The commit verb.

Invariant: a commit carries the agent, its briefing and its profile, and its parent is the head that the caller expected. A caller
that loses the race gets ``StaleRef``, and nothing it wrote is visible.
"""

from __future__ import annotations

from collections.abc import Mapping

from clia.errors import InvalidInput, StaleRef
from clia.space.envelope import Binding, Intent, RefMove
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, PROFILE, TYPE
from clia.space.snapshots import Snapshots
from clia.values import refs as names
from clia.values.typed_objects import Briefing, as_typed, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._snapshots = Snapshots(core.objects)
        self._prompts: dict[str, str | None] = {}

    def worktree(self, name: str, files: Mapping[str, Content] | None, changes: Mapping[str, Content | None] | None) -> Worktree:
        """A function from the head's tree to the new tree, given all files or only the changes."""
        for contents in (files, changes):
            if contents is not None and not isinstance(contents, Mapping):
                raise InvalidInput("files and changes map paths to contents", code="invalid-content", fields={"field": "files"})
        if files is not None and changes is None:
            return lambda head: self._snapshots.full(name, head, files)
        if changes is not None and files is None:
            return lambda head: self._snapshots.delta(head, changes)
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

    def check_tree(self, old: str, new: str) -> None:
        """Raise the errors that ``commit`` would raise for a tree that git staged."""
        self._snapshots.check_tree(old, new)

    def identity(self, name: str, kind: str, head: str) -> list[tuple[str, str]]:
        """The trailers taken over from the agent's last commit, and the behaviour of its session or briefing."""
        last = self._core.last_own(name, head)
        trailers = [(AGENT, name), (TYPE, kind)]
        trailers += [(BRIEFING, last.briefing)] if last.briefing else []
        trailers += [(PROFILE, last.profile)] if last.profile else []
        behaviour = self._checkpoints.live_flow(name) or self._prompt(last)
        return trailers + ([(BEHAVIOUR, behaviour)] if behaviour else [])

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
        for each in notes:
            self._core.notes.get(each.ref, new)  # fail before anything moves if the notes cannot be read
        follow = self._envelope.followers(move.ref, head, new)
        return Intent(name, verb, move, notes=notes, follow=follow, drain=drain, puts=puts)

    def _prompt(self, last: AgentCommit) -> str | None:
        """The prompt that the agent's briefing was rendered from."""
        if last.briefing is None:
            return None
        if last.briefing not in self._prompts:
            briefing_object = parse(self._core.objects.blob(last.briefing))
            briefing = as_typed(briefing_object) if briefing_object else None
            self._prompts[last.briefing] = briefing.behaviour if isinstance(briefing, Briefing) else None
        return self._prompts[last.briefing]


def stale(name: str, expected: str, actual: str) -> StaleRef:
    return StaleRef(
        f"the agent {name!r} has moved since {expected[:12]}: its head is {actual[:12]}",
        hints=["read the agent's files again, and commit on top of its head"],
        fields={"agent": name, "ref": names.head(name), "expected": expected, "actual": actual},
    )
