"""What agents did for the items of an agenda."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError
from clia.identities.agenda import META, items_of
from clia.values.records import EMBED, json_form
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.facade.components import Components
    from clia.identities.agenda import AgendaItem


class PlannedSession(NamedTuple):
    """A session of an agent that works for an item."""

    id: str  # its id
    flow: str  # the name of its flow
    status: str  # `suspended`, or how it ended


class PlannedLanding(NamedTuple):
    """A landing of an agent that works for an item."""

    onto: str  # the branch
    commit: str  # the branch's head after it
    how: str  # merge, squash or fast-forward


class PlannedAgent(NamedTuple):
    """An agent that was spawned for an item."""

    agent: str  # its name
    archived: bool  # whether it is archived
    sessions: tuple[PlannedSession, ...]  # its sessions, live ones first
    landings: tuple[PlannedLanding, ...]  # its landings, newest first


@json_form(item=EMBED)
class PlannedWork(NamedTuple):
    """An item of an agenda, and the agents that were spawned for it."""

    item: AgendaItem  # what is to be done
    agents: tuple[PlannedAgent, ...]  # by name


def work_of(components: Components, slug: str, agenda: Mapping[str, Any]) -> list[PlannedWork]:
    """The items of an agenda with their agents."""
    agents: dict[str, list[PlannedAgent]] = {}
    for item_id, agent in sorted(_spawned(components, slug), key=lambda pair: pair[1].agent):
        agents.setdefault(item_id, []).append(agent)
    return [PlannedWork(item, tuple(agents.get(item.id, ()))) for item in items_of(agenda)]


def _spawned(components: Components, slug: str) -> Iterator[tuple[str, PlannedAgent]]:
    """The agents that were spawned for items of an agenda, with the id of the item."""
    for archived in (False, True):
        for name in components.agents.names(archived=archived):
            with suppress(CliaError):  # a damaged agent; ``verify`` reports it
                briefing = components.agents.record(name).get("briefing.json")
                named = (briefing.meta or {}).get(META) if isinstance(briefing, Briefing) else None
                if isinstance(named, dict) and named.get("identity") == slug:
                    yield str(named.get("item")), _agent(components, name, archived=archived)


def _agent(components: Components, name: str, *, archived: bool) -> PlannedAgent:
    sessions = [PlannedSession(session.id, session.flow, session.status) for session in components.lifecycle.sessions(name)]
    landings = [
        PlannedLanding(str(body["onto"]).removeprefix("refs/heads/"), str(body["cid"]), str(body.get("how", "")))
        for body in components.landing.landings(name)
    ]
    return PlannedAgent(name, archived, tuple(sessions), tuple(landings))
