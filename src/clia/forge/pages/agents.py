"""One agent: who it is, what it did, where it stands and whom it works with.

Invariant: an agent that this clone holds only in part is shown as far as it goes. What changes something takes an administrator,
and a merge that has conflicts commits nothing and leads to the page of these conflicts.


What a merge of two agents runs into: each path with what both sides did to it, and how to settle it.

Invariant: looking changes nothing; what is shown are the heads as they are now, and the page names both.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CorruptJournal, NotFound
from clia.forge.pages.common import (
    ADMIN,
    TEXT_MAX,
    Posted,
    Refused,
    carry_out,
    core_of,
    first,
    form,
    known_agent,
    known_source,
    link,
    optional,
    page,
    show,
    text_of,
)
from clia.forge.pages.inbox_cards import headline
from clia.forge.rendering import diffs
from clia.forge.rendering.texts import escaped, visible
from clia.sessions.checkpoints import counts_of
from clia.sessions.model import question_in, question_of
from clia.sessions.records import ASK, COUNTS
from clia.space.model import Conflicts, File, Link, Merged, Submodule
from clia.space.relations import MERGES, REVIEWS, SUB_AGENT
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import Known, Visit
    from clia.forge.rendering.diffs import FileView
    from clia.sessions.model import Session
    from clia.space.model import AgentCommit, ConflictPath, Content

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
        Route(f"{at}/merges/{{other:path}}", _conflicts, methods=["GET"], name="agent:conflicts"),
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


PATHS_MAX = 100


class Side(NamedTuple):
    """What one agent did to a path: in a word, as a diff, else as what it has now."""

    agent: str
    deed: str
    diff: FileView | None
    text: Markup | None


class Clash(NamedTuple):
    path: str
    sides: tuple[Side, Side]


@page
def _conflicts(visit: Visit) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    other = known_source(visit, visit.param("other"))
    found = visit.site.space.conflicts(agent.name, other.name)
    clashes = [] if found is None else _clashes(visit.site.space, found)
    return show(
        visit,
        "agent_merge.html",
        agent=agent,
        other=other,
        found=found,
        clashes=clashes,
        rest=0 if found is None else len(found.paths) - len(clashes),
        commands=[] if found is None else _commands(found),
    )


def _clashes(space: Space, found: Conflicts) -> list[Clash]:
    paths = found.paths[:PATHS_MAX]
    base = space.fork_point(found.ours, found.theirs)
    heads = (found.ours, found.theirs)
    made = [_diffs(space, base, head, [each.path for each in paths]) for head in heads]
    return [
        Clash(
            visible(each.path),
            (
                _side(found.into, each, each.ours, made[0].get(visible(each.path))),
                _side(found.from_, each, each.theirs, made[1].get(visible(each.path))),
            ),
        )
        for each in paths
    ]


def _diffs(space: Space, base: str | None, head: str, paths: Sequence[str]) -> dict[str, FileView]:
    """What became of the paths since the two parted; nothing where they never were one."""
    if base is None:
        return {}
    return {each.path: each for each in diffs.view(space.diff(base, head, paths=paths)).files}


def _side(agent: str, path: ConflictPath, side: Content | None, diff: FileView | None) -> Side:
    deed = _deed(path.base, side)
    return Side(agent, deed, diff, None if diff is not None or side is None else _text(side))


def _deed(base: Content | None, side: Content | None) -> str:
    if side is None:
        return "no such file" if base is None else "deleted"
    return "added" if base is None else "unchanged" if side == base else "changed"


def _text(content: Content) -> Markup:
    if isinstance(content, Submodule):
        return escaped(f"submodule at {content.commit}")
    if isinstance(content, Link):
        return escaped(f"link to {content.target}")
    data = content.data if isinstance(content, File) else content
    if b"\0" in data[:8000]:
        return escaped(f"binary, {len(data):,} bytes")
    return escaped(data[:TEXT_MAX].decode("utf-8", "replace") + ("\n…" if len(data) > TEXT_MAX else ""))


def _commands(found: Conflicts) -> list[tuple[str, str]]:
    """What to run, and what it does."""
    words = f"clia resolve {found.into} {found.from_}"
    heads = f"--ours {found.ours[:12]} --theirs {found.theirs[:12]}"
    path = shlex.quote(visible(found.paths[0].path))
    return [
        (f"{words} {heads} --file {path}=FILE", "a path becomes what a file of yours holds; repeat it for each path"),
        (f"{words} {heads} --take ours", f"every conflict as {found.into} has it"),
        (f"{words} {heads} --take theirs", f"every conflict as {found.from_} has it"),
        (f"{words} {heads} --dir DIR", "the whole outcome is what a directory of yours holds"),
    ]
