"""One agent: who it is, what it did, where it stands and whom it works with.

Invariant: an agent that this clone holds only in part is shown as far as it goes. What changes something takes an administrator,
and a merge that has conflicts commits nothing and leads to the page of these conflicts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CorruptJournal, NotFound
from clia.forge.pages import files, merges
from clia.forge.pages.common import ADMIN, Posted, first, form, link, page
from clia.forge.pages.inbox_cards import headline
from clia.forge.pages.records import Refused, carry_out, core_of, known_agent, optional, show, text_of
from clia.sessions.checkpoints import counts_of
from clia.sessions.questions import question_in, question_of
from clia.sessions.records import ASK, COUNTS
from clia.space.model import Conflicts, Merged
from clia.space.relations import MERGES, REVIEWS, SUB_AGENT
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.forge.pages.records import Known
    from clia.sessions.model import Session
    from clia.space.model import AgentCommit

PAGE = 50
"""Commits on a page."""
_CAPTURED = 5  # sessions of tools that are told


class Commits(NamedTuple):
    """Some of an agent's own commits, and where the neighbours start."""

    shown: Sequence[AgentCommit]
    first: int
    newer: int | None
    older: int | None


class Edges(NamedTuple):
    """Whom an agent works with."""

    parent: str | None
    sub_agents: Sequence[str]
    reviewers: Sequence[str]
    reviewing: Sequence[str]
    merged: Sequence[str]
    merged_into: Sequence[str]
    others: Sequence[Any]  # edges of kinds that have no name of their own here

    def __bool__(self) -> bool:
        return any(self._asdict().values())


class Ask(NamedTuple):
    """A question beside the agent's session."""

    id: str
    question: str
    at: str  # since when it waits, else when that ended
    status: str  # of the session that asked nothing else


class Runs(NamedTuple):
    """What the agent runs or ran."""

    session: Session | None
    damaged: bool  # whether there is one whose row cannot be read
    waiting: Sequence[Ask]  # the oldest first
    last: Ask | None  # where there is no session, and nothing waits


class Identity(NamedTuple):
    """Who the agent is; None where this clone does not hold it."""

    genesis: str | None
    briefing: Briefing | None
    profile: dict[str, Any] | None


def routes() -> list[Route]:
    at = "/s/{space}/agents/{agent}"
    return [
        Route(at, _agent, methods=["GET"], name="agent"),
        Route(f"{at}/sub-agents", _spawn, methods=["POST"], name="agent:spawn"),
        Route(f"{at}/forks", _fork, methods=["POST"], name="agent:fork"),
        Route(f"{at}/merges", _merge, methods=["POST"], name="agent:merge"),
        Route(f"{at}/archive", _archive, methods=["POST"], name="agent:archive"),
        Route(f"{at}/restore", _restore, methods=["POST"], name="agent:restore"),
        *merges.routes(at),
        *files.routes(at),
    ]


@page
def _agent(visit: Visit) -> Response:
    return _shown(visit, known_agent(visit, visit.param("agent")))


def _shown(visit: Visit, agent: Known, refused: Refused | None = None) -> Response:
    space, name = visit.site.space, agent.name
    runs = _runs(visit, name)
    return show(
        visit,
        "agent.html",
        refused.status if refused else 200,
        agent=agent,
        identity=_identity(space, name),
        commits=_commits(space, name, visit.number("from", 0)),
        edges=_edges(space, name),
        session=runs.session,
        runs=runs,
        captured=[each for each in space.captures.sessions() if each.agent == name][-_CAPTURED:],
        pending=len(space.trace_pending(name)),
        landings=space.landings(name),
        others=_others(space, name) if visit.may(ADMIN) else [],
        refused=refused,
    )


def _others(space: Space, name: str) -> list[str]:
    """Whose work can be merged: that of agents here, and of those of peers."""
    return [*(each for each in space.agents() if each != name), *(f"{each.peer}/{each.agent}" for each in space.remotes())]


def _identity(space: Space, name: str) -> Identity:
    """A shallow clone, or a branch that plain git made, has less."""
    genesis, briefing, profile = None, None, None
    with suppress(NotFound):
        genesis = space.genesis(name)
    with suppress(NotFound):
        briefing = space.briefing_of(name)
    with suppress(NotFound):
        profile = space.record_of(name).get("profile.json")
    return Identity(genesis, briefing, profile if isinstance(profile, dict) else None)


def _commits(space: Space, name: str, start: int) -> Commits:
    found = space.log(name, own=True, limit=start + PAGE + 1)[start:]
    older = start + PAGE if len(found) > PAGE else None
    return Commits(found[:PAGE], start, max(0, start - PAGE) if start else None, older)


def _edges(space: Space, name: str) -> Edges:
    named = (SUB_AGENT, REVIEWS, MERGES)
    return Edges(
        space.parent_agent(name),
        space.sub_agents(name),
        space.reviewers(name),
        space.reviewing(name),
        space.merged_sessions(name),
        space.merged_into(name),
        [each for each in space.relations(name) if each.kind not in named],
    )


def _runs(visit: Visit, name: str) -> Runs:
    """The live session, else the last one; none can be shown where its row is damaged, which ``clia doctor`` tells."""
    space, session, damaged = visit.site.space, None, False
    try:
        session = space.session(name)
    except NotFound:
        pass  # it never had one
    except CorruptJournal:
        damaged = True
    beside = [each for each in space.pending(name) if each.session.startswith(ASK)]
    waiting = [Ask(each.id, headline(question_of(each)), each.since, "suspended") for each in beside]
    return Runs(session, damaged, waiting, None if session or waiting else _last_ask(visit, name))


def _last_ask(visit: Visit, name: str) -> Ask | None:
    """The newest question that does not wait any more; no verb lists those."""
    counts = core_of(visit).store.get(COUNTS + name)
    number = 0 if counts is None else counts_of(counts.value).get("asks", 0)
    with suppress(NotFound, CorruptJournal):
        found = visit.site.space.session(name, f"{ASK}{number}")
        return Ask(f"{found.id}.1", headline(question_in(found.input)), found.ended_at or found.started_at, found.status)
    return None


# What can be done


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        made = visit.site.space.spawn_from(*new_agent(posted), agent.name, slug=optional(posted, "slug"))
        return _address(visit, made.agent)

    return carry_out("spawn", posted, deed, lambda refused: _shown(visit, agent, refused))


def new_agent(posted: Posted) -> tuple[str, Briefing]:
    """What the fields of a new agent say."""
    return first(posted, "name").strip(), Briefing(first(posted, "title").strip(), text_of(posted, "text"))


def _address(visit: Visit, name: str) -> str:
    return link("s", visit.site.name, "agents", name)


@form(ADMIN)
def _fork(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        made = visit.site.space.fork(agent.name, first(posted, "name").strip())
        return link("s", visit.site.name, "sessions", made.agent, made.id)

    return carry_out("fork", posted, deed, lambda refused: _shown(visit, agent, refused))


@form(ADMIN)
def _merge(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    other = first(posted, "from").strip()

    def deed() -> str:
        found = visit.site.space.merge(agent.name, other, message=text_of(posted, "message"))
        if isinstance(found, Conflicts):
            return link("s", visit.site.name, "agents", agent.name, "merges", other)
        # Also where there was nothing to merge: the head that has it all.
        return link("s", visit.site.name, "commits", found.cid if isinstance(found, Merged) else found.head)

    return carry_out("merge", posted, deed, lambda refused: _shown(visit, agent, refused))


@form(ADMIN)
def _archive(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        visit.site.space.archive(agent.name)
        return _address(visit, agent.name)

    return carry_out("archive", posted, deed, lambda refused: _shown(visit, agent, refused))


@form(ADMIN)
def _restore(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        visit.site.space.restore(agent.name)
        return _address(visit, agent.name)

    return carry_out("archive", posted, deed, lambda refused: _shown(visit, agent, refused))
