"""Undoing what was recorded: by new commits that restore the files, never by moving a branch back.

Invariant: only what the undone commit changed is restored; later changes of other lines stay. If later commits changed the same
lines, nothing happens (``revert-conflict``).
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import Conflict, InvalidInput
from clia.space.envelope import Intent, RefMove
from clia.space.events import write_event
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.merging import TreeMerging

REVERT_LANDING, LANDING_UNDONE = "revert-landing", "landing-undone"
_LISTED_MAX = 5


class RevertedCommit(NamedTuple):
    """The commit that restores files, and the worktrees that could not be updated."""

    cid: str
    warnings: tuple[str, ...]


class Reverts(NamedTuple):
    core: Core
    envelope: Envelope
    trees: TreeMerging
    check: Callable[[str, str], None]
    """Raises an error if the change from one tree to another needs an approval."""

    def tree(self, tip: str, undone: str, before: str) -> str:
        """The tree of a tip without what a commit changed since another one."""
        core = self.core
        if core.objects.commit(tip).tree == core.objects.commit(undone).tree:
            return core.objects.commit(before).tree
        merged = self.trees.merge(tip, before, undone)
        if merged.conflicts:
            paths = sorted(conflict.path for conflict in merged.conflicts)
            listed = ", ".join(paths[:_LISTED_MAX]) + (", …" if len(paths) > _LISTED_MAX else "")
            message = f"later commits changed what {undone[:12]} changed: {listed}"
            hints = [f"see the change: clia show {undone[:12]}", "undo it by hand, in a commit of its own"]
            raise Conflict(message, code="revert-conflict", hints=hints, fields={"commit": undone, "paths": paths})
        return merged.tree

    def revert_on_branch(self, ref: str, move: tuple[str | None, str], body: Mapping[str, Any]) -> RevertedCommit:
        """Undo the move of a branch of people by a landing, by a new commit. ``body``: the event of the landing."""
        core = self.core
        before, undone = move
        name = str(body["agent"])
        if before is None:
            hints = [f"delete the branch: git branch -D {ref.removeprefix(names.BRANCHES)}"]
            raise InvalidInput("the branch had no commits before", code="not-undoable", hints=hints, fields={"ref": ref})
        with self.envelope.at_work(name), core.locks.hold(branch_lock(ref)):
            tip = core.refs.get(ref)
            if tip is None or not core.contains(tip, undone):
                message = f"{ref.removeprefix(names.BRANCHES)} no longer has {undone[:12]}"
                raise Conflict(message, code="not-undoable", fields={"ref": ref, "commit": undone})
            tree = self.tree(tip, undone, before)
            self.check(core.objects.commit(tip).tree, tree)
            by = core.person_stamp()
            subject = core.read(undone).subject
            text = f'Revert "{subject}"\n\nThis reverts commit {undone}, a landing of agent {name}.\n'
            new = core.objects.write_commit(tree, [tip], by, by, text)
            chain = names.events(name)
            last = core.refs.get(chain)
            fields = {key: value for key, value in body.items() if key != "agent"} | {"by": new, "was": [before, undone]}
            if fields["event"] != LANDING_UNDONE:
                fields["cid"] = new
            event = write_event(core, last, core.agent_stamp(name), fields, f"{fields['event']} on {ref}")
            follow = self.envelope.followers(ref, tip, new)
            intent = Intent(name, REVERT_LANDING, RefMove(ref, tip, new), after=(RefMove(chain, last, event),), follow=follow)
            warnings = self.envelope.carry_out(intent)
        return RevertedCommit(new, tuple(warnings))


def branch_lock(ref: str) -> str:
    """The lock of a branch of people. No agent's name starts with "@"."""
    return f"@branch.{ref.replace('%', '%25').replace('/', '%2F')}"[:200]
