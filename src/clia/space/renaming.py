"""Renaming agents, and deleting those that did nothing.

Commits are signed and name their agent, so none is rewritten: a renamed agent is spawned under its new name at its head, with the
same briefing, profile and place, and the former name is archived at that commit. What was done under the former name stays there.

Invariant: the archived former name leads to the new one, and the first commit of the new name to the former one. Files are the same
before and after.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError, Conflict, InvalidInput
from clia.redaction.secrets import check_public_name
from clia.space.envelope import Append, Intent, RefMove
from clia.space.events import read_events, write_event
from clia.space.landing import LANDING_EVENTS
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, FORMERLY, PARENT, PROFILE, TYPE, Renamed
from clia.space.relations import RENAMED_FROM, SUB_AGENT
from clia.space.traces import stream
from clia.values import refs as names
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.git.porcelain import GitPorcelain
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.relations import Relations
    from clia.store.interface import Edge

    Rows = tuple[tuple[str, Any], ...]

RENAME, DELETE = "rename", "delete"


class Renaming(NamedTuple):
    core: Core
    envelope: Envelope
    agents: Agents
    relations: Relations
    porcelain: GitPorcelain

    def rename(self, name: str, new: str, rows: Callable[[], Rows]) -> Renamed:
        """Give an agent another name. ``rows``: rows of the store to put with it, read while the agent is locked."""
        core = self.core
        check_public_name(new, "the agent name", core.clean.redact_text)
        names.check_name(new)
        if new == names.check_name(name):
            raise InvalidInput(f"the agent is already called {new!r}", code="same-name", fields={"agent": name})
        core.own_head(name)
        self.agents.require_free(new)
        edges = [edge for edge in self.relations.edges(name) if name in (edge.src, edge.dst)]
        with self.envelope.at_work(name), core.locks.hold(new):
            head = core.own_head(name)
            self.agents.require_idle(name, head)
            self.agents.require_free(new)
            intent = self._intent(name, new, head, edges)
            self.envelope.carry_out(intent._replace(puts=rows()))
        return Renamed(new, name, str(intent.point.new), tuple(self.adopt_checkouts(name, new)))

    def _intent(self, name: str, new: str, head: str, edges: Sequence[Edge]) -> Intent:
        core = self.core
        last, record = core.last_own(name, head), core.refs.get(names.record(name))
        tree = core.objects.commit(record).tree if record else core.empty_tree()
        new_record = core.write_commit(new, tree, [], f"record of {new}", [(AGENT, new), (TYPE, "record")], "record")
        parent = next((edge.src for edge in edges if edge.kind == SUB_AGENT and edge.dst == name), None)
        trailers = [(AGENT, new), (TYPE, SPAWN), (BRIEFING, last.briefing), (PROFILE, last.profile), (BEHAVIOUR, last.behaviour)]
        trailers += [(PARENT, parent), (FORMERLY, name)]
        first = core.write_commit(new, core.objects.commit(head).tree, [head], f"rename: {name} to {new}", trailers, RENAME)
        with core.store.reading() as view:
            pending = view.streams.read(stream(name))
        return Intent(
            agent=new,
            verb=RENAME,
            point=RefMove(names.head(new), None, first),
            before=(RefMove(names.record(new), None, new_record),),
            after=(
                RefMove(names.events(new), None, self._events(name, new, edges)),
                RefMove(names.archived(name), core.refs.get(names.archived(name)), first),
                RefMove(names.head(name), head, None),
            ),
            appends=(Append(stream(new), tuple(entry.body for entry in pending)),) if pending else (),
            drain=(stream(name), pending[-1].position) if pending else None,
        )

    def _events(self, name: str, new: str, edges: Sequence[Edge]) -> str:
        """The events of the new name: the landings and the relations of the agent, and where it comes from."""
        core = self.core
        events = reversed(list(read_events(core, core.refs.get(names.events(name)))))
        landings = [dict(event.body) for event in events if event.body.get("event") in LANDING_EVENTS]
        bodies = [(f"{body['event']} on {body.get('onto')}", body) for body in landings]
        for edge in edges:
            if (edge.src, edge.source) == (name, f"events/{name}") and edge.kind != RENAMED_FROM:
                bodies.append((f"relate: {new} {edge.kind} {edge.dst}", _edge(new, edge.kind, edge.dst)))
        bodies.append((f"relate: {new} {RENAMED_FROM} {name}", _edge(new, RENAMED_FROM, name)))
        tip: str | None = None
        for subject, body in bodies:
            tip = write_event(core, tip, core.agent_stamp(new), body, subject)
        return str(tip)

    def adopt_checkouts(self, name: str, new: str) -> list[str]:
        """Record that the checkouts of the former name are those of the new one; return their directories.

        A checkout that cannot be changed now is adopted by the next command in it.
        """
        adopted = []
        for checkout in self.porcelain.worktrees_of(name):
            with suppress(CliaError, OSError):
                self.porcelain.record(checkout.directory, *checkout._replace(agent=new).recorded())
                adopted.append(checkout.directory)
        return adopted

    def delete(self, name: str) -> None:
        """Delete an agent that did nothing. Its name can be used again."""
        core = self.core
        names.check_name(name)
        with self.envelope.at_work(name):
            head, record = core.own_head(name), core.refs.get(names.record(name))
            self.agents.require_idle(name, head)
            reason = self._work_of(name, head)
            if reason is not None:
                hints = [f"put it away: clia archive {name}", f"or give it another name: clia rename {name} NEW"]
                raise Conflict(
                    f"agent {name!r} {reason}; it is not deleted", code="agent-has-work", hints=hints, fields={"agent": name}
                )
            after = () if record is None else (RefMove(names.record(name), record, None),)
            self.envelope.carry_out(Intent(name, DELETE, RefMove(names.head(name), head, None), after=after))

    def _work_of(self, name: str, head: str) -> str | None:
        """What an agent did, or what refers to it; None if there is nothing."""
        core = self.core
        first = core.read(head)
        if first.kind != SPAWN or first.agent != name:
            return "has commits"
        if first.formerly is not None:
            return f"was renamed from {first.formerly!r}"
        if any(core.refs.get(ref) for ref in (names.events(name), names.traces(name), names.sessions(name), names.archived(name))):
            return "has recorded events or traces"
        with core.store.reading() as view:
            if view.streams.read(stream(name), limit=1):
                return "has trace entries"
        if self.agents.has_had_sessions(name):
            return "has sessions"
        if any(edge.src == name or edge.kind != SUB_AGENT for edge in self.relations.edges(name)):
            return "has relations to other agents"
        if places := self.porcelain.worktrees_of(name):
            return f"is checked out in {places[0].directory}"
        if core.refs.shared:
            return "may be known to other machines, which share the hub"
        return None


def _edge(src: str, kind: str, dst: str) -> dict[str, Any]:
    return {"event": "edge", "src": src, "kind": kind, "dst": dst}
