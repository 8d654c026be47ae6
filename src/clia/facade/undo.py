"""``undo``: what the person did last in this clone, undone by a new record.

The log of this machine (``clia.trust.move_log``) has every move of a ref, in order and with who made it. The newest move that is
the point of a verb says what is undone; moves that belong to another one (notes, records, events of a landing) do not count, nor
does what tools recorded by themselves.

Invariant: nothing is rewritten, and nothing but the named change is undone. What cannot be undone is an error that says why.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from clia.errors import CliaError, Conflict, InvalidInput, NotFound
from clia.space.behaviour_chains import ADOPT, PROPOSE, RETIRE
from clia.space.core import CommitText
from clia.space.events import event_of
from clia.space.landing import LANDING_EVENTS
from clia.space.reverting import LANDING_UNDONE, RevertedCommit
from clia.trust.machine_log import line_digest, read_line, read_machine_log
from clia.values import refs as names
from clia.values.clock import timestamp_at
from clia.values.commit_messages import parse
from clia.values.typed_objects import as_bytes
from clia.values.types import AGENT_COMMIT, DECISION, REPROFILE, SESSION_MERGE, SPAWN
from clia.verbs import ADMIN, VIEWER, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Annotated, Any

    from clia.facade.components import Components
    from clia.space.model import AgentCommit
    from clia.trust.machine_log import LogEntry, LoggedMove

_CAPTURED = "capture"
"""The open field of commits that tools' sessions made."""
_ENTRIES_MAX = 200
"""How many entries of the log are read to find the last verb of the person."""
_SECONDARY = (names.RECORDS, names.ARCHIVE, names.NOTES, names.OBJECTS, names.OWN)
_PERMANENT = {
    names.SPACE: ("created the space", "every record depends on it", "delete its refs with git, if nothing was recorded yet"),
    names.TYPES: ("registered a type", "commits may use it", "leave it unused, or register another one"),
    names.KEYS: ("changed the keys", "signatures depend on them", "revoke a key: clia key revoke"),
}
"""Refs whose moves cannot be undone: what they are, why, and what to do instead."""


class LastChange(NamedTuple):
    """The last thing that the person did here."""

    change: str  # its entry in the log of this machine
    verb: str  # commit, merge, spawn, land, archive, relate, adopt, …
    what: str  # the change in one line
    agent: str | None  # the agent that it is about; null: none
    at: str  # when, RFC 3339
    undo: str | None  # how undo leaves it; null: it cannot be undone
    problem: str | None  # why it cannot be undone


class UndoneChange(NamedTuple):
    """What undo did."""

    what: str  # the change that was undone
    done: str  # how it is now, in one line
    agent: str | None  # the agent that it was about
    commit: str | None  # the commit or event that undoes it; null: there is none
    warnings: tuple[str, ...] = ()  # worktrees that could not be updated


class _UndoableChange(NamedTuple):
    """A change, and how to undo it: a function, or the error that says why not."""

    verb: str
    what: str
    agent: str | None
    plan: str
    act: Callable[[], object] | CliaError


class _PersonEntry(NamedTuple):
    cid: str  # the digest of the entry
    at: int
    moves: tuple[LoggedMove, ...]


class UndoService:
    """Undoing the last change of the person."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._core = components.core

    @verb("GET", "/last-change", VIEWER, "upkeep")
    def last_change(self) -> LastChange:
        """The last change that the person made in this clone, and how undo would undo it."""
        entry, candidate = self._last()
        problem = candidate.act if isinstance(candidate.act, CliaError) else None
        hints = "" if problem is None else "".join(f"; {hint}" for hint in problem.hints)
        return LastChange(
            *(entry.cid, candidate.verb, candidate.what, candidate.agent, timestamp_at(entry.at)),
            undo=candidate.plan if problem is None else None,
            problem=None if problem is None else f"{problem.message}{hints}",
        )

    @verb("POST", "/undo", ADMIN, "upkeep")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def undo(self, *, change: Annotated[str | None, "undo only this change, by its `change`"] = None) -> UndoneChange:
        """Undo the last change that the person made in this clone, by a new record. Undoing twice restores it, where possible."""
        entry, candidate = self._last()
        if change is not None and change != entry.cid:
            message = f"{change[:12]} is not the last change here; the last one is: {candidate.what}"
            raise Conflict(
                message, code="not-the-last-change", hints=["see it with: clia undo --dry-run"], fields={"change": entry.cid}
            )
        if isinstance(candidate.act, CliaError):
            raise candidate.act
        result = candidate.act()
        commit = getattr(result, "cid", result)  # of a commit or a version; others return nothing, or what was revoked
        warnings = result.warnings if isinstance(result, RevertedCommit) else ()
        return UndoneChange(candidate.what, candidate.plan, candidate.agent, commit if isinstance(commit, str) else None, warnings)

    # The log

    def _last(self) -> tuple[_PersonEntry, _UndoableChange]:
        for entry in self._entries():
            for move in reversed(entry.moves):
                candidate = self._candidate(move, entry)
                if candidate is not None:
                    return entry, candidate
        message = "there is nothing of yours to undo in this clone"
        raise NotFound(message, code="nothing-to-undo", hints=["clia log AGENT shows what was recorded"])

    def _entries(self) -> Iterator[_PersonEntry]:
        """The entries of the person in the log of this machine, newest first."""
        core = self._core
        logs = self._components.trust_keys.own_logs()
        if not logs:
            message = "this clone keeps no log of what was done, so the last change is unknown"
            raise NotFound(message, code="no-log", hints=["start one: clia key init", "undo by hand: git revert, in a checkout"])
        tip = core.refs.get(logs[-1])
        if tip is None:
            return
        log = read_machine_log(self._components.git.objects, logs[-1].removeprefix(names.LOGS), tip)
        for line in reversed(log.lines[-_ENTRIES_MAX:]):
            entry = read_line(line)
            if self._is_persons(entry):
                yield _PersonEntry(line_digest(line), entry.at, entry.moves)

    def _is_persons(self, entry: LogEntry) -> bool:
        """Whether the person is accountable for the moves of an entry, as far as their commits show it."""
        core = self._core
        commits = (move.new for move in entry.moves if move.new is not None and core.objects.kind(move.new) == "commit")
        people = {core.objects.commit(cid).committer.email for cid in commits}
        return not people or core.person.email in people

    def _candidate(self, move: LoggedMove, entry: _PersonEntry) -> _UndoableChange | None:
        """The change that a move is the point of; None if it belongs to another move, or to no verb of the person."""
        verb_name = move.why.removeprefix("clia: ")
        if move.ref.startswith(_SECONDARY) or verb_name in ("follow up", "log") or verb_name.startswith("undo "):
            return None
        if move.ref.startswith(names.HEADS):
            return self._of_agent(move.ref.removeprefix(names.HEADS), move, verb_name)
        if move.ref.startswith(names.EVENTS):
            return self._of_event(move.ref.removeprefix(names.EVENTS), move) if verb_name == "event" else None
        if move.ref.startswith(names.BEHAVIOURS):
            return self._of_behaviour(move.ref.removeprefix(names.BEHAVIOURS), move)
        if move.ref == names.CAPABILITIES:
            return self._of_grant(move)
        if move.ref.startswith(names.BRANCHES):
            return self._of_branch(move, entry)
        other = f"moved {move.ref}", f"clia undo does not know the change {verb_name!r}", "clia log AGENT shows what was recorded"
        what, reason, instead = _PERMANENT.get(move.ref, other)
        return _permanent(verb_name, what, None, reason, instead)

    # Changes of an agent's branch

    def _of_agent(self, name: str, move: LoggedMove, verb_name: str) -> _UndoableChange | None:
        agents = self._components.agents
        if move.new is None:
            if verb_name == "archive":
                return _UndoableChange("archive", f"archived {name}", name, f"{name} is restored", partial(agents.restore, name))
            if verb_name == "delete":
                return _permanent(
                    "delete", f"deleted {name}", name, "the agent is gone", f"spawn it again: clia spawn {name} --title TITLE"
                )
            return None
        if move.old is None and verb_name == "restore":
            return _UndoableChange("restore", f"restored {name}", name, f"{name} is archived", partial(agents.archive, name))
        commit = self._core.read(move.new)
        if commit.agent is None or _CAPTURED in commit.meta:
            return None  # a baseline, or a turn of a tool, which it recorded itself
        if move.old is None:
            return self._of_spawn(name, commit, verb_name)
        return self._of_commit(name, commit, move.old)

    def _of_spawn(self, name: str, commit: AgentCommit, verb_name: str) -> _UndoableChange | None:
        if verb_name == "rename":
            what = f"renamed {commit.formerly} to {name}"
            return _permanent(
                "rename", what, name, "names of agents are not used again", f"choose another name: clia rename {name} NEW"
            )
        if verb_name != SPAWN:
            return _permanent(
                verb_name, f"{verb_name} of {name}", name, f"{verb_name} is not a change of yours alone", f"clia show {name}"
            )
        briefing = self._components.agents.briefing_of(name)
        if "session" in (briefing.meta or {}):
            return None  # spawned for the session of a tool
        delete = self._components.renaming.delete
        return _UndoableChange("spawn", f"spawned {name}", name, f"{name}, which did nothing, is deleted", partial(delete, name))

    def _of_commit(self, name: str, commit: AgentCommit, old: str) -> _UndoableChange:
        what = f"{commit.kind} by {name}: {commit.subject}"
        if commit.kind == DECISION:
            instead = "ask again, or state which answer counts: clia ask, clia commit --meta"
            return _permanent(
                "decide", what, name, "an answer is a statement of a person, and the session has gone on with it", instead
            )
        if commit.kind == REPROFILE:
            instead = f"change the documents, then: clia reprofile {name}"
            return _permanent("reprofile", what, name, "it records the documents as they are", instead)
        is_merge = commit.kind == SESSION_MERGE
        verb_name, what = ("merge", f"merged {commit.merged} into {name}") if is_merge else ("commit", what)
        plan = f"a commit of {name} reverts {commit.cid[:10]}"
        return _UndoableChange(verb_name, what, name, plan, partial(self._revert, name, commit, old))

    def _revert(self, name: str, commit: AgentCommit, old: str) -> str:
        core, reverts = self._core, self._components.reverts
        head = core.own_head(name)
        text = CommitText(f'Revert "{commit.subject}"\n\nThis reverts commit {commit.cid}.', {"reverts": commit.cid})
        tree = reverts.tree(head, commit.cid, old)
        return self._components.commit_tree(name, AGENT_COMMIT, lambda _: tree, text, head)

    # Changes of other refs

    def _of_event(self, name: str, move: LoggedMove) -> _UndoableChange | None:
        relations = self._components.relations
        body = self._event(move)
        kind, src, dst = (str(body.get(key)) for key in ("kind", "src", "dst"))
        if body.get("event") == "edge":
            what = f"recorded: {src} {kind} {dst}"
            return _UndoableChange("relate", what, name, "the relation is retracted", partial(relations.unrelate, src, kind, dst))
        if body.get("event") == "retract":
            what = f"retracted: {src} {kind} {dst}"
            return _UndoableChange(
                "relate", what, name, "the relation is recorded again", partial(relations.relate, src, kind, dst)
            )
        if body.get("event") in (*LANDING_EVENTS, "merge-refused"):
            return None  # part of a landing; or nothing was merged
        event = str(body.get("event") or "event")
        return _permanent(event, f"{event} of {name}", name, "it states what happened", f"clia show {name}")

    def _event(self, move: LoggedMove) -> Mapping[str, Any]:
        return (event_of(self._core.objects.commit(move.new)) if move.new is not None else None) or {}

    def _of_behaviour(self, name: str, move: LoggedMove) -> _UndoableChange:
        body = self._event(move)
        event, cid, was = str(body.get("event")), str(body.get("cid")), body.get("was")
        from clia.behaviours.service import BehaviourService  # few changes are about behaviours

        library = BehaviourService(self._components)
        what = f"{event} {name} {cid[:10]}"
        why = f"undo: {what}"
        if event == RETIRE:
            trial = was != cid
            plan = f"version {cid[:10]} of {name} {'may run' if trial else 'is current'} again"
            return _UndoableChange(event, what, None, plan, partial(library.adopt, name, cid, trial=trial, why=why))
        if isinstance(was, str) and was != cid and event not in (PROPOSE, "trial"):
            plan = f"version {was[:10]} of {name} is current again"
            return _UndoableChange(event, what, None, plan, partial(library.adopt, name, was, why=why))
        if event == ADOPT and was == cid:
            return _permanent(event, what, None, "this version was current before", f"retire it: clia behaviour retire {name}")
        return _UndoableChange(
            event,
            what,
            None,
            f"version {cid[:10]} of {name} is retired",
            partial(library.retire, name, cid, why=why),
        )

    def _of_grant(self, move: LoggedMove) -> _UndoableChange:
        commit = self._core.objects.commit(str(move.new))
        what = parse(commit.message)[0].splitlines()[0]
        if self._event(move).get("event") != "grant":
            return _permanent("revoke", what, None, "a grant is a new record each time", "grant it again: clia cap grant")
        cid = self._core.objects.blob_id(as_bytes(self._event(move)["capability"]))
        grant = next((grant for grant in self._components.capabilities.all() if grant.cid == cid), None)
        if grant is None:
            return _permanent("grant", what, None, "the grant is revoked or expired", "list grants: clia cap list")
        revoke = partial(self._components.capabilities.revoke, grant.peer, cid=grant.cid)
        return _UndoableChange("grant", what, None, "the grant is revoked", revoke)

    def _of_branch(self, move: LoggedMove, entry: _PersonEntry) -> _UndoableChange:
        branch = move.ref.removeprefix(names.BRANCHES)
        # The event that was recorded with the landing names the agent.
        events = [other for other in entry.moves if other.ref.startswith(names.EVENTS)]
        bodies = [{**self._event(other), "agent": other.ref.removeprefix(names.EVENTS)} for other in events]
        body = next((body for body in bodies if body.get("onto") == move.ref), None)
        if body is None or move.new is None:
            return _permanent("branch", f"moved {branch}", None, "no landing was recorded with it", "undo it with git: git revert")
        landed = body.get("event") != LANDING_UNDONE
        body |= {"event": LANDING_UNDONE if landed else "landed"}
        revert = self._components.reverts.revert_on_branch
        agent, ends = body["agent"], (move.old, str(move.new))
        what = f"{'landed' if landed else 'undid the landing of'} {agent} on {branch}"
        plan = f"a commit on {branch} reverts {ends[1][:10]}"
        return _UndoableChange("land", what, agent, plan, partial(revert, move.ref, ends, body))


def _permanent(verb_name: str, what: str, agent: str | None, reason: str, instead: str) -> _UndoableChange:
    """A change that cannot be undone."""
    error = InvalidInput(f"this cannot be undone: {what} ({reason})", code="not-undoable", hints=[instead], fields={"agent": agent})
    return _UndoableChange(verb_name, what, agent, "", error)
