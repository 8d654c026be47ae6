"""What the pages of agents, commits, sessions and traces share.

Invariant: whatever an agent wrote goes into a template through ``shown`` or a function of ``clia.forge.rendering``, so that nothing
of it acts or hides. A form that was refused is shown again with what was typed, and nothing has changed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import BackendError, CliaError, NoSuchAgent, NotFound
from clia.forge.pages.common import Posted, first, link, redirect, render
from clia.forge.problems import Unauthenticated, status_of
from clia.forge.rendering import jsons
from clia.forge.rendering.texts import escaped
from clia.sessions.questions import is_for_people
from clia.space.behaviour_chains import read_behaviour
from clia.values import refs as names
from clia.values.refs import is_id, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from starlette.responses import Response

    from clia.forge.pages.common import Visit
    from clia.space.core import Core

TEXT_MAX = 20_000
"""Characters of a message or a briefing on a page."""
_NOBODYS_FAULT = (BackendError, Unauthenticated)
"""What no form is at fault for; it has an error page."""


class Refused(NamedTuple):
    """A form that could not be carried out; ``form`` says which of the page's forms it was."""

    form: str
    error: CliaError
    posted: Posted

    def was(self, form: str, field: str) -> str:
        """What was typed in a field of a form."""
        return first(self.posted, field) if self.form == form else ""

    @property
    def status(self) -> int:
        """Something that a form names wrongly is a mistake in the form, and not in the address."""
        return 422 if isinstance(self.error, NotFound) else status_of(self.error)


class Known(NamedTuple):
    """An agent that there is, at work or archived."""

    name: str
    head: str
    archived: bool


def show(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """A page of a record: ``refused`` is there for every form."""

    def address(*parts: str, **query: str | int | None) -> str:
        return link("s", visit.site.name, *parts, **query)

    made: dict[str, Any] = {"shown": shown, "as_json": jsons.to_html, "address": address, "refused": None}
    made |= {"is_name": is_name, "is_id": is_id, "is_for_people": is_for_people, "agent_at": lambda name: agent_at(visit, name)}
    made["behaviour_at"] = lambda cid: _behaviour_at(visit, cid)
    return render(visit, template, status, **(made | context))


def agent_at(visit: Visit, name: object) -> str | None:
    """The page of an agent here, or of ``PEER/AGENT`` as it is tracked here; None where there is none (any more)."""
    refs, text = core_of(visit).refs, name if isinstance(name, str) else ""
    if is_name(text):
        known = refs.get(names.head(text)) or refs.get(names.archived(text))
        return link("s", visit.site.name, "agents", text) if known else None
    named = names.remote_agent(text)
    if named is None or refs.get(names.remote(named[0], f"agents/{named[1]}")) is None:
        return None
    return link("s", visit.site.name, "peers", named[0], "agents", named[1])


def _behaviour_at(visit: Visit, cid: str) -> str | None:
    """The page of a version of a behaviour; None where this clone has not got it, or it is something else."""
    with suppress(CliaError):
        if read_behaviour(core_of(visit).objects, cid) is not None:
            return link("s", visit.site.name, "behaviour-versions", cid)
    return None


def shown(text: str, most: int = TEXT_MAX) -> Any:
    """Foreign text, escaped; what is too long for a page is cut, and that is said."""
    if len(text) <= most:
        return escaped(text)
    return escaped(f"{text[:most]}\n… {len(text) - most:,} more characters")


def core_of(visit: Visit) -> Core:
    """Below the verbs: to list a folder or to walk the graph without reading more than is shown."""
    return visit.site.space._core  # noqa: SLF001  # the verbs give whole worktrees and whole logs


def known_agent(visit: Visit, name: str) -> Known:
    """``NoSuchAgent`` for a name that no agent has, or that none can have. One of another machine comes here, as by any verb."""
    if not is_name(name):
        raise NoSuchAgent(f"there is no agent {name!r} in this space", fields={"agent": name})
    core = core_of(visit)
    core.require_known(name)
    head = core.refs.get(names.head(name))
    return Known(name, head or visit.site.space.find(name), archived=head is None)


def known_source(visit: Visit, name: str) -> Known:
    """What can be merged: an agent here, or ``PEER/AGENT`` as it is tracked here."""
    if names.remote_agent(name) is None:
        return known_agent(visit, name)
    return Known(name, core_of(visit).source_head(name), archived=False)


def carry_out(form: str, posted: Posted, deed: Callable[[], str], again: Callable[[Refused], Response]) -> Response:
    """Does what a form asks for and goes where that leads; else shows the form again."""
    try:
        return redirect(deed())
    except CliaError as err:
        if isinstance(err, _NOBODYS_FAULT):
            raise
        return again(Refused(form, err, posted))


def optional(posted: Posted, field: str) -> str | None:
    """What was typed; None for nothing."""
    return first(posted, field).strip() or None


def text_of(posted: Posted, field: str) -> str:
    """A text of several lines, with the line breaks that it had before a browser sent it."""
    return first(posted, field).replace("\r\n", "\n").replace("\r", "\n")
