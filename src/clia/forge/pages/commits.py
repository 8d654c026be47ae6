"""One commit: what it says of itself, what it changed, and what its agent saw on the way to it.

Invariant: every name of a commit leads to the address with its full id, which means the same for ever. Diffs, children and traces
are bounded on the page, and what is left out is said.
"""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CorruptJournal, InvalidInput, NoSuchObject
from clia.forge.pages.agents import new_agent
from clia.forge.pages.common import ADMIN, Posted, first, form, link, page, redirect
from clia.forge.pages.inbox_cards import asked_in
from clia.forge.pages.records import Refused, carry_out, core_of, optional, show
from clia.forge.rendering import diffs, traces
from clia.forge.rendering.texts import visible
from clia.sessions.checkpoints import Checkpoints
from clia.values import refs as names
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.forge.rendering.diffs import PatchView
    from clia.git.workbench_records import FileChange
    from clia.space.model import AgentCommit

LINES_MAX, FILES_MAX, LISTED_MAX = 20_000, 300, 2000
"""Of a diff: lines and files that are rendered, and files that are listed."""
_WALKED, _CHILDREN = 5000, 50
_ENTRIES = 50


class Change(NamedTuple):
    """A changed file in the list; ``anchor`` is where its diff stands on the page."""

    status: str
    path: str
    old_path: str | None
    added: int | None
    removed: int | None
    anchor: str | None


class Changes(NamedTuple):
    files: Sequence[Change]
    total: int
    patch: PatchView
    rest: int  # files whose diff is not shown


class Checkpoint(NamedTuple):
    """Where the agent's session stood at the commit."""

    session: str
    resumes: int


def routes() -> list[Route]:
    at = "/s/{space}/commits/{cid:path}"
    return [
        Route(f"{at}/agents", _spawn, methods=["POST"], name="commit:spawn"),
        Route(f"{at}/forks", _fork, methods=["POST"], name="commit:fork"),
        Route(at, _commit, methods=["GET"], name="commit"),
    ]


@page
def _commit(visit: Visit) -> Response:
    commit = find(visit)
    if commit.cid != visit.param("cid"):
        return redirect(link("s", visit.site.name, "commits", commit.cid))
    return _shown(visit, commit)


def find(visit: Visit) -> AgentCommit:
    """The commit that the address names: by its id, the start of it, an agent or a branch."""
    text = visit.param("cid")
    try:
        return visit.site.space.show(text)
    except InvalidInput:  # a text that no name can be
        raise NoSuchObject(f"{text!r} is no agent and no commit here", fields={"text": text}) from None


def _shown(visit: Visit, commit: AgentCommit, refused: Refused | None = None) -> Response:
    space = visit.site.space
    trace = space.trace_for(commit.cid)
    entries = trace.entries if trace is not None else ()
    asked, peer = asked_in(commit), _peer(visit, commit)
    return show(
        visit,
        "commit.html",
        refused.status if refused else 200,
        commit=commit,
        value=_value(commit),
        asked=asked,
        meta={key: value for key, value in commit.meta.items() if asked is None or key not in ("asked", "cut")},
        children=_children(visit, commit.cid),
        changes=_changes(space, commit.cid),
        entries=traces.view(entries[:_ENTRIES]),
        entry_count=len(entries),
        trace_cid=space.trace_cid_for(commit.cid),
        history=space.trace_history(commit.cid),
        checkpoint=None if peer else _checkpoint(visit, commit),
        owner=commit.agent if commit.agent in space.agents() and not peer else None,
        peer=peer,
        refused=refused,
    )


def _peer(visit: Visit, commit: AgentCommit) -> str | None:
    """The peer whose agent made the commit; None for one that an agent here made, and for one of people."""
    core, agent, cid = core_of(visit), commit.agent, commit.cid
    if agent is None or not is_name(agent):
        return None
    peers = (ref.removeprefix(names.PEERS) for ref, _ in core.refs.under(names.PEERS))
    tips = [(peer, core.refs.get(names.remote(peer, f"agents/{agent}"))) for peer in peers]
    found = next((peer for peer, tip in tips if tip and core.graph.descends(tip, cid)), None)
    head = core.refs.get(names.head(agent)) or core.refs.get(names.archived(agent)) if found else None
    ours = head is not None and any(each.cid == cid for each in core.own_commits(agent, head))
    return None if ours else found


def _value(commit: AgentCommit) -> tuple[Any, ...]:
    """What was decided, where that can be read; as the text it is where not."""
    if commit.value is None:
        return ()
    try:
        return (json.loads(commit.value),)
    except (ValueError, RecursionError):
        return (commit.value,)


def _children(visit: Visit, cid: str) -> tuple[list[str], bool]:
    """The commits on top of it, and whether there may be more: only what is newer is walked, and not for ever."""
    space = visit.site.space
    heads = sorted({space.find(name) for name in (*space.agents(), *space.agents(archived=True))})
    here = [space.find("HEAD")] if _has_head(space) else []
    walked, found = 0, []
    for each in islice(core_of(visit).graph.walk([*heads, *here], [cid]), _WALKED):
        walked += 1
        if cid in each.parents:
            found.append(each.cid)
    return found[:_CHILDREN], walked == _WALKED or len(found) > _CHILDREN


def _has_head(space: Space) -> bool:
    """Whether anything is checked out: before the first commit there is nothing."""
    with suppress(NoSuchObject):
        return bool(space.find("HEAD"))
    return False


def _changes(space: Space, cid: str) -> Changes:
    """The files that were changed; the diffs of the first of them, as far as a page can hold them."""
    every = space.changed(cid)
    chosen = _chosen(every)
    paths = [] if len(chosen) == len(every) else [path for each in chosen for path in (each.path, each.old_path) if path]
    patch = diffs.view(space.diff(cid, paths=paths) if chosen else "")
    anchors = {each.path: f"file-{number}" for number, each in enumerate(patch.files, 1)}
    listed = [
        Change(
            each.status,
            visible(each.path),
            None if each.old_path is None else visible(each.old_path),
            each.added,
            each.removed,
            anchors.get(visible(each.path)),
        )
        for each in every[:LISTED_MAX]
    ]
    return Changes(listed, len(every), patch, len(every) - len(chosen))


def _chosen(every: Sequence[FileChange]) -> list[FileChange]:
    chosen: list[FileChange] = []
    left = LINES_MAX
    for each in every[:FILES_MAX]:
        left -= (each.added or 0) + (each.removed or 0)
        if left < 0 and chosen:
            break
        chosen.append(each)
    return chosen


def _checkpoint(visit: Visit, commit: AgentCommit) -> Checkpoint | None:
    """None where there is none to fork from."""
    if commit.agent is None or not is_name(commit.agent):
        return None
    with suppress(CorruptJournal):
        found = Checkpoints(core_of(visit)).at(commit.agent, commit.cid)
        return None if found is None else Checkpoint(found.session, len(found.journal.resumes))
    return None


# What can be done


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    commit = find(visit)

    def deed() -> str:
        parent = commit.agent if first(posted, "parent") == "on" else None
        name, briefing = new_agent(posted)
        made = visit.site.space.spawn_at(name, briefing, commit.cid, parent, slug=optional(posted, "slug"))
        return link("s", visit.site.name, "agents", made.agent)

    return carry_out("spawn", posted, deed, lambda refused: _shown(visit, commit, refused))


@form(ADMIN)
def _fork(visit: Visit, posted: Posted) -> Response:
    commit = find(visit)

    def deed() -> str:
        if commit.agent is None:
            raise InvalidInput("this commit is no agent's: there is no session to fork", code="no-agent")
        made = visit.site.space.fork(commit.agent, first(posted, "name").strip(), commit.cid)
        return link("s", visit.site.name, "sessions", made.agent, made.id)

    return carry_out("fork", posted, deed, lambda refused: _shown(visit, commit, refused))
