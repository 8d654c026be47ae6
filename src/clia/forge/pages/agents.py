"""Agent pages, and the conflicts of a merge.

Invariant: an agent that is only partly in this clone is shown as far as possible. Changes need an administrator. A merge with
conflicts commits nothing and redirects to the conflict page, which shows the current heads and changes nothing.
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
    RefusedForm,
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
    from clia.forge.pages.common import KnownAgent, Visit
    from clia.forge.rendering.diffs import FileView
    from clia.sessions.model import Session
    from clia.space.model import AgentCommit, ConflictPath, Content

PAGE = 50
"""Commits per page."""
_CAPTURED = 5  # captured sessions shown


class CommitsPage(NamedTuple):
    """A page of an agent's own commits, and the offsets of its neighbours."""

    shown: Sequence[AgentCommit]
    first: int
    newer: int | None
    older: int | None


class AgentRelations(NamedTuple):
    """The relations of an agent."""

    parent: str | None
    sub_agents: Sequence[str]
    reviewers: Sequence[str]
    reviewing: Sequence[str]
    merged: Sequence[str]
    merged_into: Sequence[str]
    others: Sequence[Any]  # other kinds

    def __bool__(self) -> bool:
        return any(self._asdict().values())


class StandaloneQuestion(NamedTuple):
    """A question asked outside of a flow."""

    id: str
    question: str
    at: str  # when it was asked, or when it ended
    status: str  # of the session created for the question


class AgentSessions(NamedTuple):
    """The sessions of an agent."""

    session: Session | None
    damaged: bool  # whether the session row is unreadable
    waiting: Sequence[StandaloneQuestion]  # oldest first
    last: StandaloneQuestion | None  # only without a session and pending questions


class AgentIdentity(NamedTuple):
    """The identity of an agent; None where it is not in this clone."""

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


def _shown(visit: Visit, agent: KnownAgent, refused: RefusedForm | None = None) -> Response:
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
        captured=[session for session in space.captures.sessions() if session.agent == name][-_CAPTURED:],
        pending=len(space.trace_pending(name)),
        landings=space.landings(name),
        others=_others(space, name) if visit.may(ADMIN) else [],
        refused=refused,
    )


def _others(space: Space, name: str) -> list[str]:
    """Merge sources: other local agents and agents of peers."""
    return [*(agent for agent in space.agents() if agent != name), *(f"{remote.peer}/{remote.agent}" for remote in space.remotes())]


def _identity(space: Space, name: str) -> AgentIdentity:
    """The identity; a shallow clone or a branch made by plain git lacks parts."""
    genesis, briefing, profile = None, None, None
    with suppress(NotFound):
        genesis = space.genesis(name)
    with suppress(NotFound):
        briefing = space.briefing_of(name)
    with suppress(NotFound):
        profile = space.record_of(name).get("profile.json")
    return AgentIdentity(genesis, briefing, profile if isinstance(profile, dict) else None)


def _commits(space: Space, name: str, start: int) -> CommitsPage:
    commits = space.log(name, own=True, limit=start + PAGE + 1)[start:]
    older = start + PAGE if len(commits) > PAGE else None
    return CommitsPage(commits[:PAGE], start, max(0, start - PAGE) if start else None, older)


def _edges(space: Space, name: str) -> AgentRelations:
    named = (SUB_AGENT, REVIEWS, MERGES)
    return AgentRelations(
        space.parent_agent(name),
        space.sub_agents(name),
        space.reviewers(name),
        space.reviewing(name),
        space.merged_sessions(name),
        space.merged_into(name),
        [edge for edge in space.relations(name) if edge.kind not in named],
    )


def _runs(visit: Visit, name: str) -> AgentSessions:
    """The live session, else the last one; a damaged row is only flagged."""
    space, session, damaged = visit.site.space, None, False
    try:
        session = space.session(name)
    except NotFound:
        pass  # it has no session
    except CorruptJournal:
        damaged = True
    beside = [request for request in space.pending(name) if request.session.startswith(ASK)]
    waiting = [StandaloneQuestion(request.id, headline(question_of(request)), request.since, "suspended") for request in beside]
    return AgentSessions(session, damaged, waiting, None if session or waiting else _last_ask(visit, name))


def _last_ask(visit: Visit, name: str) -> StandaloneQuestion | None:
    """The newest answered question; no verb lists those."""
    counts = core_of(visit).store.get(COUNTS + name)
    number = 0 if counts is None else counts_of(counts.value).get("asks", 0)
    with suppress(NotFound, CorruptJournal):
        session = visit.site.space.session(name, f"{ASK}{number}")
        return StandaloneQuestion(
            f"{session.id}.1", headline(question_in(session.input)), session.ended_at or session.started_at, session.status
        )
    return None


# Actions


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        spawned = visit.site.space.spawn_from(*new_agent(posted), agent.name, slug=optional(posted, "slug"))
        return _address(visit, spawned.agent)

    return carry_out("spawn", posted, deed, lambda refused: _shown(visit, agent, refused))


def new_agent(posted: Posted) -> tuple[str, Briefing]:
    """The name and briefing in the fields of a new agent."""
    return first(posted, "name").strip(), Briefing(first(posted, "title").strip(), text_of(posted, "text"))


def _address(visit: Visit, name: str) -> str:
    return link("s", visit.site.name, "agents", name)


@form(ADMIN)
def _fork(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))

    def deed() -> str:
        forked = visit.site.space.fork(agent.name, first(posted, "name").strip())
        return link("s", visit.site.name, "sessions", forked.agent, forked.id)

    return carry_out("fork", posted, deed, lambda refused: _shown(visit, agent, refused))


@form(ADMIN)
def _merge(visit: Visit, posted: Posted) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    other = first(posted, "from").strip()

    def deed() -> str:
        result = visit.site.space.merge(agent.name, other, message=text_of(posted, "message"))
        if isinstance(result, Conflicts):
            return link("s", visit.site.name, "agents", agent.name, "merges", other)
        # Also if there was nothing to merge: the head contains it.
        return link("s", visit.site.name, "commits", result.cid if isinstance(result, Merged) else result.head)

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


class ConflictSide(NamedTuple):
    """One side of a conflict: a summary with a diff or the current content."""

    agent: str
    deed: str
    diff: FileView | None
    text: Markup | None


class ConflictView(NamedTuple):
    path: str
    sides: tuple[ConflictSide, ConflictSide]


@page
def _conflicts(visit: Visit) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    other = known_source(visit, visit.param("other"))
    conflicts = visit.site.space.conflicts(agent.name, other.name)
    clashes = [] if conflicts is None else _clashes(visit.site.space, conflicts)
    return show(
        visit,
        "agent_merge.html",
        agent=agent,
        other=other,
        found=conflicts,
        clashes=clashes,
        rest=0 if conflicts is None else len(conflicts.paths) - len(clashes),
        commands=[] if conflicts is None else _commands(conflicts),
    )


def _clashes(space: Space, conflicts: Conflicts) -> list[ConflictView]:
    paths = conflicts.paths[:PATHS_MAX]
    base = space.fork_point(conflicts.ours, conflicts.theirs)
    heads = (conflicts.ours, conflicts.theirs)
    diffs_by_side = [_diffs(space, base, head, [conflict.path for conflict in paths]) for head in heads]
    return [
        ConflictView(
            visible(conflict.path),
            (
                _side(conflicts.into, conflict, conflict.ours, diffs_by_side[0].get(visible(conflict.path))),
                _side(conflicts.from_, conflict, conflict.theirs, diffs_by_side[1].get(visible(conflict.path))),
            ),
        )
        for conflict in paths
    ]


def _diffs(space: Space, base: str | None, head: str, paths: Sequence[str]) -> dict[str, FileView]:
    """The changes of the paths since the merge base; empty without one."""
    if base is None:
        return {}
    return {file.path: file for file in diffs.view(space.diff(base, head, paths=paths)).files}


def _side(agent: str, path: ConflictPath, side: Content | None, diff: FileView | None) -> ConflictSide:
    deed = _deed(path.base, side)
    return ConflictSide(agent, deed, diff, None if diff is not None or side is None else _text(side))


def _deed(base: Content | None, side: Content | None) -> str:
    if side is None:
        return "missing" if base is None else "deleted"
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


def _commands(conflicts: Conflicts) -> list[tuple[str, str]]:
    """The commands that resolve the conflicts, with descriptions."""
    words = f"clia resolve {conflicts.into} {conflicts.from_}"
    heads = f"--ours {conflicts.ours[:12]} --theirs {conflicts.theirs[:12]}"
    path = shlex.quote(visible(conflicts.paths[0].path))
    return [
        (f"{words} {heads} --file {path}=FILE", "takes the content of a path from a file; repeat for each path"),
        (f"{words} {heads} --take ours", f"takes the side of {conflicts.into} for every conflict"),
        (f"{words} {heads} --take theirs", f"takes the side of {conflicts.from_} for every conflict"),
        (f"{words} {heads} --dir DIR", "takes the complete result from a directory"),
    ]
