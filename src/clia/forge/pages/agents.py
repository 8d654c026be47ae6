"""Agent pages, and the conflicts of a merge.

Invariant: an agent that is only partly in this clone is shown as far as possible. Changes need an administrator. A merge with
conflicts commits nothing and redirects to the conflict page, which shows the current heads and changes nothing.
"""

from __future__ import annotations

import shlex

from clia.errors import CorruptJournal, NotFound
from clia.forge.pages.common import ADMIN, TEXT_MAX, action, commits_page, if_found, known_agent, known_source, page, render
from clia.forge.pages.inbox import headline
from clia.forge.pages.rules import RULES, about
from clia.forge.rendering import diffs
from clia.forge.rendering.texts import escaped, visible
from clia.identities.merge_rules import projected_text
from clia.sessions.model import question_in, question_of
from clia.sessions.records import ASK
from clia.space.model import Conflicts, File, Link, Merged, Submodule
from clia.space.relations import MERGES, REVIEWS, SUB_AGENT
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response
    from starlette.routing import Route

    from clia.facade.space import Space
    from clia.forge.pages.common import RefusedForm, Visit
    from clia.forge.rendering.diffs import FileView
    from clia.identities.profile_drift import AgentIdentity
    from clia.space.model import Content

    Question = tuple[str, str, str, str]  # id, headline, when it was asked or its session ended, status of its session
    Side = tuple[str, str, FileView | None, Markup | None]  # agent, change, its diff, else the content

PAGE = 50
"""Commits per page."""
_CAPTURED = 5  # captured sessions shown
APPROVALS = 50
"""Approvals of guardrail changes per page."""
PATHS_MAX = 100


def routes() -> list[Route]:
    at = "/agents/{agent}"
    return [
        page(at, "agent", _agent),
        action(f"{at}/sub-agents", "agent:spawn", _spawn, _agent),
        action(f"{at}/forks", "agent:fork", _fork, _agent),
        action(f"{at}/merges", "agent:merge", _merge, _agent),
        action(f"{at}/archive", "agent:archive", _archive, _agent),
        action(f"{at}/restore", "agent:restore", _restore, _agent, "archive"),
        page(f"{at}/merges/{{other:path}}", "agent:conflicts", _conflicts),
    ]


def _agent(visit: Visit, refused: RefusedForm | None = None) -> Response:
    agent, space = known_agent(visit), visit.space
    name = agent.name
    record = if_found(space.agents.record, name) or {}
    profile = record.get("profile.json")
    return render(
        visit,
        "agent.html",
        agent=agent,
        genesis=if_found(space.agents.genesis, name),
        briefing=if_found(space.agents.briefing, name),
        profile=profile if isinstance(profile, dict) else None,
        identity=(identity := if_found(space.identities.of_agent, name)),
        guardrails=[] if identity is None else _guardrails(identity),
        rules=(if_found(space.identities.rules_of_agent, name) or [])[:RULES],
        about=about,
        relations=_relations(space, name),
        other_relations=[edge for edge in space.relations(name) if edge.kind not in (SUB_AGENT, REVIEWS, MERGES)],
        captured=[session for session in space.captures.sessions() if session.agent == name][-_CAPTURED:],
        pending=len(space.traces.pending(name)),
        landings=space.history.landings(name),
        approvals=(if_found(space.history.approvals, name) or [])[:APPROVALS],
        others=_others(space, name) if visit.user.may(ADMIN) else [],
        refused=refused,
        **_sessions(visit, name),
        **commits_page(visit, name, PAGE),
    )


def _guardrails(identity: AgentIdentity) -> list[tuple[str, str]]:
    """The text of each guardrail that binds an agent, and how the record and the place differ about it."""

    def mark(item: object) -> str:
        if item in identity.missing:
            return "missing at its place now"
        return "not recorded yet" if item in identity.added else ""

    return [(projected_text(item), mark(item)) for item in identity.guardrails]


def _others(space: Space, name: str) -> list[str]:
    """Merge sources: other local agents and agents of peers."""
    remotes = [f"{remote.peer}/{remote.agent}" for remote in space.peers.remotes()]
    return [agent for agent in space.agents() if agent != name] + remotes


def _relations(space: Space, name: str) -> list[tuple[str, Sequence[str]]]:
    """The related agents, by kind of relation."""
    relations = space.relations
    parent = relations.parent(name)
    by_kind = [
        ("spawned from", [parent] if parent else []),
        ("sub-agents", relations.sub_agents(name)),
        ("reviewed by", relations.reviewers(name)),
        ("reviews", relations.reviewing(name)),
        ("merged from", relations.merged(name)),
        ("merged into", relations.merged_into(name)),
    ]
    return [(kind, agents) for kind, agents in by_kind if agents]


def _sessions(visit: Visit, name: str) -> dict[str, Any]:
    """The live session, else the last one; a damaged row is only flagged. Questions may be asked outside of a session."""
    session, damaged = None, False
    try:
        session = visit.space.session(name)
    except NotFound:
        pass  # it has no session
    except CorruptJournal:
        damaged = True
    questions: list[Question] = [
        (request.id, headline(question_of(request)), request.since, "suspended")
        for request in visit.space.pending(name)
        if request.session.startswith(ASK)
    ]
    last = None if session or questions else _last_question(visit, name)
    return {"session": session, "damaged": damaged, "asked": questions, "last": last}


def _last_question(visit: Visit, name: str) -> Question | None:
    """The newest answered question; no verb lists those."""
    session = visit.space.views.last_question(name)
    if session is None:
        return None
    return f"{session.id}.1", headline(question_in(session.input)), session.ended_at or session.started_at, session.status


# Actions


def _spawn(visit: Visit) -> str:
    parent = known_agent(visit).name
    spawned = visit.space.spawn_from(*new_agent(visit), parent, slug=visit.field("slug").strip() or None)
    return visit.address("agents", spawned.agent)


def new_agent(visit: Visit) -> tuple[str, Briefing]:
    """The name and briefing in the fields of a new agent."""
    return visit.field("name").strip(), Briefing(visit.field("title").strip(), visit.text("text"))


def _fork(visit: Visit) -> str:
    forked = visit.space.fork(known_agent(visit).name, visit.field("name").strip())
    return visit.address("sessions", forked.agent, forked.id)


def _merge(visit: Visit) -> str:
    return merge(visit, known_agent(visit).name, visit.field("from").strip())


def merge(visit: Visit, into: str, other: str) -> str:
    """Merge an agent; returns the URL of the commit or of the conflicts."""
    result = visit.space.merge(into, other, message=visit.text("message"))
    if isinstance(result, Conflicts):
        return visit.address("agents", into, "merges", other)
    # Also if there was nothing to merge: the head contains it.
    return visit.address("commits", result.cid if isinstance(result, Merged) else result.head)


def _archive(visit: Visit) -> str:
    name = known_agent(visit).name
    visit.space.agents.archive(name)
    return visit.address("agents", name)


def _restore(visit: Visit) -> str:
    name = known_agent(visit).name
    visit.space.agents.restore(name)
    return visit.address("agents", name)


# Conflicts


def _conflicts(visit: Visit) -> Response:
    agent = known_agent(visit)
    other = known_source(visit, visit.param("other"))
    conflicts = visit.space.history.conflicts(agent.name, other.name)
    return render(
        visit,
        "agent_merge.html",
        agent=agent,
        other=other,
        conflicts=conflicts,
        clashes=_clashes(visit.space, conflicts) if conflicts else [],
        rest=max(0, len(conflicts.paths) - PATHS_MAX) if conflicts else 0,
        commands=_commands(conflicts) if conflicts else [],
    )


def sides_of(
    space: Space, base: str | None, heads: Sequence[tuple[str, str]], paths: Sequence[str]
) -> list[tuple[str, list[Side]]]:
    """Each path with its changes since the merge base, on each of the named heads."""
    by_head = [(name, _diffs(space, base, head, paths)) for name, head in heads]
    return [
        (visible(path), [(name, "changed" if (diff := of.get(visible(path))) else "unchanged", diff, None) for name, of in by_head])
        for path in paths
    ]


def _clashes(space: Space, conflicts: Conflicts) -> list[tuple[str, list[Side]]]:
    """The conflicting paths with both sides."""
    paths = conflicts.paths[:PATHS_MAX]
    base = space.fork_point(conflicts.ours, conflicts.theirs)
    ours, theirs = (_diffs(space, base, head, [conflict.path for conflict in paths]) for head in (conflicts.ours, conflicts.theirs))
    clashes = []
    for conflict in paths:
        path = visible(conflict.path)
        sides = ((conflicts.into, conflict.ours, ours.get(path)), (conflicts.from_, conflict.theirs, theirs.get(path)))
        clashes.append((path, [_side(agent, conflict.base, content, diff) for agent, content, diff in sides]))
    return clashes


def _diffs(space: Space, base: str | None, head: str, paths: Sequence[str]) -> dict[str, FileView]:
    """The changes of the paths since the merge base; empty without one."""
    if base is None:
        return {}
    return {file.path: file for file in diffs.view(space.diff(base, head, paths=paths)).files}


def _side(agent: str, base: Content | None, content: Content | None, diff: FileView | None) -> Side:
    if content is None:
        return agent, "missing" if base is None else "deleted", diff, None
    change = "added" if base is None else "unchanged" if content == base else "changed"
    return agent, change, diff, None if diff is not None else _text(content)


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
    resolve = f"clia resolve {conflicts.into} {conflicts.from_} --ours {conflicts.ours[:12]} --theirs {conflicts.theirs[:12]}"
    path = shlex.quote(visible(conflicts.paths[0].path))
    return [
        (f"{resolve} --file {path}=FILE", "takes the content of a path from a file; repeat for each path"),
        (f"{resolve} --take ours", f"takes the side of {conflicts.into} for every conflict"),
        (f"{resolve} --take theirs", f"takes the side of {conflicts.from_} for every conflict"),
        (f"{resolve} --dir DIR", "takes the complete result from a directory"),
    ]
