"""What something rests on, for people: commits, and events in words.

Invariant: a link leads to a page that there is. An event is told in words only where it is what it says; whatever else somebody
wrote into a chain is a short id, with all of it at hand.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError
from clia.forge.pages.common import link, short
from clia.forge.pages.records import agent_at, core_of
from clia.forge.rendering.texts import one_line
from clia.sessions.model import STATUSES
from clia.space.events import event_of
from clia.values.refs import is_name, remote_agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from clia.forge.pages.common import Visit

_ID_MAX = 100  # characters of what should be an id


class Cited(NamedTuple):
    """A commit that something rests on. ``words``: what it was, or its short id; ``page``: None where none tells more."""

    id: str
    words: str
    page: str | None
    is_event: bool  # the words are words, and no id


def cited(visit: Visit, cids: Iterable[str]) -> list[Cited]:
    return [_cited(visit, cid) for cid in cids]


def _cited(visit: Visit, cid: str) -> Cited:
    whole, page = one_line(cid)[:_ID_MAX], None
    with suppress(CliaError):  # this clone has it not, or it is no id at all
        body = event_of(core_of(visit).objects.commit(cid))
        if body is None:
            page = link("s", visit.site.name, "commits", cid)
        else:
            found = _session(visit, body) or _refusal(visit, body)
            if found is not None:
                return Cited(whole, *found, is_event=True)
    return Cited(whole, short(whole), page, is_event=False)


def _session(visit: Visit, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The end of a session; where the store has lost it, its agent tells the most."""
    agent, session, status = body.get("agent"), body.get("session"), body.get("status")
    if body.get("event") != "session-ended" or not (is_name(agent) and is_name(session)) or status not in STATUSES:
        return None
    page = agent_at(visit, agent)
    with suppress(CliaError):
        visit.site.space.session(str(agent), str(session))
        page = link("s", visit.site.name, "sessions", str(agent), str(session))
    return f"session {session} of {agent} {status}", page


def _refusal(visit: Visit, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    into, from_ = body.get("into"), body.get("from")
    if body.get("event") != "merge-refused" or not is_name(into) or not (is_name(from_) or remote_agent(str(from_))):
        return None
    return f"merge of {from_} into {into} refused", agent_at(visit, into) or agent_at(visit, from_)
