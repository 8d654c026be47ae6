"""Work that has not landed: a list of all agents, and the change of one agent with its landing.

Invariant: the pages only read. Landing needs an administrator and names the head that the page showed: work that was recorded after
it is never landed unseen. A landing with conflicts changes nothing, and the page shows both sides.
"""

from __future__ import annotations

from clia.errors import BackendError, CliaError
from clia.forge.pages.agents import sides_of
from clia.forge.pages.commits import changed_files
from clia.forge.pages.common import action, known_agent, page, render
from clia.space.attribution.authorship import in_words
from clia.space.changes import CONFLICTS
from clia.space.landing import FAST_FORWARD, MERGE, SQUASH
from clia.space.model import Conflicts, Landed
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import RefusedForm, Visit
    from clia.space.changes import AgentChange

LISTED_MAX, CLASHES_MAX, COMMITS_MAX, PATHS_MAX = 500, 100, 200, 20
FORMS = ((SQUASH, "one commit"), (MERGE, "a merge commit"), (FAST_FORWARD, "fast-forward"))


def routes() -> list[Route]:
    at = "/changes/{agent}"
    return [
        page("/changes", "changes", _changes),
        page(at, "change", _change),
        action(f"{at}/landings", "change:land", _land, _change),
    ]


def _branch(visit: Visit) -> str:
    """The branch that receives the work: the one in the query or the form, else the default."""
    return visit.query("onto") or visit.field("onto") or visit.space.local.default_branch()


def _changes(visit: Visit) -> Response:
    try:
        onto = _branch(visit)
        changes, clashes, problem = visit.space.changes(onto), visit.space.changes.clashes(onto), None
    except CliaError as err:
        if isinstance(err, BackendError):
            raise
        onto, changes, clashes, problem = visit.query("onto"), [], [], err
    return render(
        visit,
        "changes.html",
        onto=onto,
        changes=changes[:LISTED_MAX],
        total=len(changes),
        clashes=clashes[:CLASHES_MAX],
        more_clashes=max(0, len(clashes) - CLASHES_MAX),
        problem=problem,
    )


def _change(visit: Visit, refused: RefusedForm | None = None) -> Response:
    agent, space = known_agent(visit), visit.space
    change = space.changes.get(agent.name, _branch(visit))
    split = visit.query("view") == "split"
    return render(
        visit,
        "change.html",
        agent=agent,
        change=change,
        forms=FORMS,
        split=split,
        commits=change.commits[:COMMITS_MAX],
        more_commits=max(0, len(change.commits) - COMMITS_MAX),
        tests=[commit for commit in change.commits if commit.kind == "test"],
        decisions=[commit for commit in change.commits if commit.kind == DECISION],
        landings=space.history.landings(agent.name)[:1],
        conflicts=_conflicts(visit, change),
        refused=refused,
        **_files(visit, change, split=split),
    )


def _files(visit: Visit, change: AgentChange, *, split: bool) -> dict[str, Any]:
    if change.base is None or not change.commits:
        return {"files": [], "file_count": 0, "patch": None, "undiffed": 0, "authorship": None, "in_words": in_words}
    files = changed_files(visit.space, change.base, change.head, split=split)
    authorship = visit.space.history.authorship(f"{change.base}..{change.head}", limit=COMMITS_MAX)
    return {**files, "authorship": authorship, "in_words": in_words}


def _conflicts(visit: Visit, change: AgentChange) -> list[tuple[str, list[Any]]]:
    """The conflicting paths with the changes of the branch and of the agent."""
    if change.forecast.outcome != CONFLICTS or change.tip is None:
        return []
    heads = ((change.onto, change.tip), (change.agent, change.head))
    return sides_of(visit.space, change.base, heads, change.forecast.conflicts[:PATHS_MAX])


def _land(visit: Visit) -> str:
    agent, onto = known_agent(visit), _branch(visit)
    landed = visit.space.land(
        agent.name, onto, how=visit.field("how") or None, message=visit.text("message").strip(), head=visit.field("head") or None
    )
    if isinstance(landed, Landed):
        return visit.address("commits", landed.cid)
    return visit.address("changes", agent.name, onto=onto) + ("#conflicts" if isinstance(landed, Conflicts) else "")
