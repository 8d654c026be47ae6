"""Landing an agent's work on a branch of people, and binding traces again after rewrites.

Invariant: the branch moves by compare-and-swap or not at all, and a conflict writes nothing. The landing commit's trailers and the
agent's event chain name the landed commits. A worktree with the branch checked out is updated as in a fast-forward; uncommitted
changes in its way stop the landing. Relinking keeps existing traces, and binds one only where the patch or the tree is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import Conflict, InvalidInput, NotFound
from clia.space.envelope import Intent, RefMove
from clia.space.events import read_events, write_event
from clia.space.model import BRIEFING, LANDED, PROFILE, RANGE, Conflicts, Landed, UpToDate, agent_commit
from clia.space.model import DECISION as DECISION_TRAILER
from clia.values import refs as names
from clia.values.typed_objects import parse
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.git.workbench import GitWorkbench
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.merging import Merging
    from clia.space.model import AgentCommit
    from clia.space.traces import Traces

FAST_FORWARD, MERGE, SQUASH = "fast-forward", "merge", "squash"


class Landing:
    def __init__(self, core: Core, envelope: Envelope, merging: Merging) -> None:
        self._core = core
        self._envelope = envelope
        self._merging = merging

    def land(
        self, name: str, onto: str, *, squash: bool = False, no_ff: bool = False, message: str = ""
    ) -> Landed | UpToDate | Conflicts:
        core = self._core
        text = core.clean.text(message, "message")
        ref = self._branch(onto)
        with self._envelope.at_work(name), core.locks.hold(_branch_lock(ref)):
            head, tip = core.own_head(name), self._tip(ref)
            tree = core.objects.commit(head).tree
            if tip is not None:
                if core.graph.descends(tip, head) or self._is_landed(name, ref, tip, head):
                    return UpToDate(tip)
                merged = core.graph.merge(tip, head, self._landed_before(name, ref, tip, head))
                if merged.conflicts:
                    return Conflicts(onto, name, tip, head, self._merging.paths(merged))
                tree = merged.tree
            forward = tip is None or core.graph.descends(head, tip)
            how = SQUASH if squash else FAST_FORWARD if forward and not no_ff else MERGE
            new = head if how == FAST_FORWARD else self._write(name, onto, (tip, head), tree, text, squash)
            warnings = self._move(name, ref, (tip, new, head), how)
        return Landed(new, how, tuple(warnings))

    def _landed_before(self, name: str, ref: str, tip: str, head: str) -> str | None:
        """The head of the agent's last squashed landing, if the branch contains it without git knowing."""
        for body in self.landings(name):
            if body["onto"] == ref and body.get("how") == SQUASH and self._holds(tip, body["cid"]):
                landed = str(body["head"])
                base = self._core.graph.merge_base(tip, head)
                # Only if it is newer than the merge base: the two may have been merged since.
                newer = base is None or (base != landed and self._core.graph.descends(landed, base))
                return landed if newer and self._holds(head, landed) else None
        return None

    def _holds(self, tip: str, cid: str) -> bool:
        return self._core.objects.kind(cid) == "commit" and self._core.graph.descends(tip, cid)

    def _branch(self, onto: str) -> str:
        ref = names.branch(onto)
        if ref.startswith(names.HEADS):
            raise InvalidInput(
                f"{onto!r} is an agent's branch", code="not-a-branch-of-people", hints=["clia merge brings agents together"]
            )
        return ref

    def _tip(self, ref: str) -> str | None:
        """The branch's head; None if it is checked out but has no commit yet."""
        found = self._core.refs.get(ref)
        if found is None and self._core.refs.followed_by(ref) is None:
            branches = [each.removeprefix(names.BRANCHES) for each, _ in self._core.refs.under(names.BRANCHES)]
            people = [each for each in branches if not each.startswith("agents/")]
            raise NotFound(
                f"there is no branch {ref.removeprefix(names.BRANCHES)!r}",
                code="no-such-branch",
                hints=[f"branches here: {', '.join(people) or 'none'}"],
                fields={"ref": ref},
            )
        return found

    def _write(self, name: str, onto: str, heads: tuple[str | None, str], tree: str, text: str, squash: bool) -> str:
        core = self._core
        tip, head = heads
        base = core.graph.merge_base(tip, head) if tip else None
        last = core.last_own(name, head)
        said = [(LANDED, name), (RANGE, f"{base or core.own_root(name, head)}..{head}")]
        said += [(BRIEFING, last.briefing)] if last.briefing else []
        said += [(PROFILE, last.profile)] if last.profile else []
        said += [(DECISION_TRAILER, cid) for cid in self._decisions(tip, head)]
        subject = f"{'squash' if squash else 'land'}: {name} onto {onto}"
        parents = [each for each in ((tip,) if squash else (tip, head)) if each is not None]
        return core.write_commit(name, tree, parents, text or subject, said, subject)

    def _decisions(self, tip: str | None, head: str) -> list[str]:
        walked = map(agent_commit, self._core.graph.walk([head], [tip] if tip else []))
        return [each.cid for each in walked if each.kind == DECISION][::-1]

    def _move(self, name: str, ref: str, ids: tuple[str | None, str, str], how: str) -> list[str]:
        core = self._core
        tip, new, head = ids
        busy = core.refs.busy(ref)
        if busy is not None:
            raise Conflict(f"{ref} cannot be moved now: {busy}", code="branch-busy", fields={"ref": ref, "reason": busy})
        follow = self._envelope.followers(ref, tip or core.empty_tree(), new)
        body: dict[str, Any] = {"event": "landed", "onto": ref, "cid": new, "head": head, "base": tip, "how": how}
        chain = names.events(name)
        last = core.refs.get(chain)
        event = write_event(core, last, core.agent_stamp(name), body, f"landed on {ref}")
        after = (RefMove(chain, last, event),)
        return self._envelope.carry_out(Intent(name, "land", RefMove(ref, tip, new), after=after, follow=follow))

    def _is_landed(self, name: str, ref: str, tip: str, head: str) -> bool:
        """Whether a branch still contains a landing of this head."""
        landed = (body["cid"] for body in self.landings(name) if body["onto"] == ref and body["head"] == head)
        return any(self._holds(tip, cid) for cid in landed)

    def landed_on(self, name: str, head: str) -> str | None:
        """A branch that contains all of the agent's work."""
        for body in self.landings(name):
            tip = self._core.refs.get(body["onto"]) if body["head"] == head else None
            if tip is not None and self._holds(tip, body["cid"]):
                return str(body["onto"])
        return None

    def landings(self, name: str) -> list[dict[str, Any]]:
        """The landings of an agent, newest first."""
        tip = self._core.refs.get(names.events(names.check_name(name)))
        if tip is None:
            return []
        found = (dict(event.body) for event in read_events(self._core, tip))
        keys = ("onto", "cid", "head")
        return [body for body in found if body.get("event") == "landed" and all(isinstance(body.get(key), str) for key in keys)]


def _branch_lock(ref: str) -> str:
    """The lock of a branch; no agent's name starts with "@"."""
    return f"@branch.{ref.replace('%', '%25').replace('/', '%2F')}"[:200]


PATCH, TREE = "patch-id", "tree"


class Relinked(NamedTuple):
    """A commit that was given a trace, and the commits that the trace came from."""

    commit: str
    sources: tuple[str, ...]
    by: str
    agent: str


class Relinking:
    def __init__(self, core: Core, traces: Traces, workbench: GitWorkbench) -> None:
        self._core = core
        self._traces = traces
        self._workbench = workbench

    def relink(self, onto: str | None = None) -> list[Relinked]:
        """Search one branch, or all of them."""
        traced = self._traced()
        known = [cid for cid in traced if self._core.objects.kind(cid) == "commit"]
        candidates = self._candidates(onto, known)
        if not candidates:
            return []
        found = self._by_patch(candidates, known, traced)
        taken = {each.commit for each in found}
        found += self._by_tree([each for each in candidates if each.cid not in taken], known, traced)
        for each in found:
            entries = [entry for source in each.sources for entry in self._entries(traced[source][1])]
            self._traces.attach(each.commit, entries, each.agent)
        return found

    def _traced(self) -> dict[str, tuple[str, str]]:
        """The agent and the trace of each traced commit."""
        found: dict[str, tuple[str, str]] = {}
        for ref, _ in self._core.refs.under(names.TRACES):
            agent = ref.removeprefix(names.TRACES)
            if names.is_name(agent):
                for commit, blob in self._core.notes.all(ref).items():
                    found.setdefault(commit, (agent, blob))
        return found

    def _candidates(self, onto: str | None, known: list[str]) -> list[AgentCommit]:
        """Commits without a trace that are not older than the first traced one, of agents and of people."""
        core = self._core
        if not known:
            return []
        heads = core.refs.under(names.BRANCHES)
        agents = [(ref.removeprefix(names.HEADS), cid) for ref, cid in heads if ref.startswith(names.HEADS)]
        starts = [onto] if onto else [cid for ref, cid in heads if not ref.startswith(names.HEADS)]
        first = min(core.objects.commit(cid).author.at for cid in known)
        found = {each.cid: each for each in map(agent_commit, core.graph.walk(starts)) if each.committer.at >= first}
        if onto is None:
            found |= {each.cid: each for name, cid in agents for each in core.own_commits(name, cid)}
        traced = set(known)
        return [each for each in found.values() if len(each.parents) < 2 and each.kind != "spawn" and each.cid not in traced]

    def _by_patch(self, candidates: list[AgentCommit], known: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        ids = self._workbench.patch_ids([*known, *(each.cid for each in candidates)])
        sources: dict[str, str] = {}
        for cid in known:
            if cid in ids:
                sources.setdefault(ids[cid], cid)
        found = []
        for each in candidates:
            source = sources.get(ids.get(each.cid, ""))
            if source is not None and self._fits(each, traced[source][0]):
                found.append(Relinked(each.cid, (source,), PATCH, traced[source][0]))
        return found

    def _by_tree(self, candidates: list[AgentCommit], known: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        """Find squashes: the tree of the last squashed commit, on a parent with the tree of an earlier one."""
        core = self._core
        ends: dict[str, str] = {}
        for cid in known:
            ends.setdefault(core.objects.commit(cid).tree, cid)
        found = []
        for each in candidates:
            end = ends.get(each.tree)
            if end is None or not each.parents:
                continue
            agent = traced[end][0]
            start = core.objects.commit(each.parents[0]).tree
            sources = [cid for cid in self._since(agent, end, start) if cid in traced]
            if sources and self._fits(each, agent):
                found.append(Relinked(each.cid, tuple(sources), TREE, agent))
        return found

    def _since(self, agent: str, end: str, start: str) -> list[str]:
        """The agent's commits up to ``end`` after the newest one with the tree ``start``, oldest first."""
        found: list[str] = []
        for commit in self._core.own_commits(agent, end):
            if commit.tree == start:
                return found[::-1]
            found.append(commit.cid)
        return found[::-1]

    def _fits(self, commit: AgentCommit, agent: str) -> bool:
        """Whether a commit may get this agent's trace: it is not another agent's, nor a landing."""
        return commit.agent in (None, agent) and commit.landed is None

    def _entries(self, blob: str) -> list[Any]:
        made = parse(self._core.objects.blob(blob))
        return list(made["entries"]) if made is not None and made["type"] == "console-trace" else []
