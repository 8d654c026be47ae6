"""Peer pages: trust, sharing, grants, and what was accepted or refused.

Invariant: viewing changes nothing and creates no key. Changes need an administrator. Everything from a peer is shown as text.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CliaError, InvalidInput, NotFound, TransportError
from clia.federation.statements import SNAPSHOT, TRIGGERS
from clia.forge.pages.common import (
    ADMIN,
    Posted,
    RefusedForm,
    carry_out,
    core_of,
    first,
    form,
    known_source,
    link,
    optional,
    page,
    redirect,
    show,
    text_of,
)
from clia.space.model import Conflicts, Merged
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.federation.model import Explained, Key, Peer, RemoteBehaviour
    from clia.forge.federation import Listening
    from clia.forge.pages.common import Visit
    from clia.values.typed_objects import Briefing

PAGE, REFUSALS, LISTED, SOURCES = 50, 50, 500, 20
ROTATE = "rotate"
"""The word that confirms replacing the key."""
FOLLOW = (
    *(("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge")),
    *(("briefing", "spawn"), ("console-trace", "note")),
)
"""The grants needed to follow a peer's agents."""
_TOLD = [each for each in TRIGGERS if each != SNAPSHOT]


class PeerRow(NamedTuple):
    """A row of the peer list."""

    peer: Peer
    grants: int


class PeerBehaviour(NamedTuple):
    """A behaviour of a peer; ``source`` is None if it is not shown."""

    behaviour: RemoteBehaviour
    source: str | None


class CapabilityQuery(NamedTuple):
    """A capability query."""

    peer: str = ""
    type: str = ""
    trigger: str = ""
    execute: bool = False


class CapabilityAnswer(NamedTuple):
    """The result of a capability query, or its error."""

    found: Explained | None = None
    error: CliaError | None = None


def routes() -> list[Route]:
    at = "/s/{space}/peers"
    deeds = {
        "change": _change,
        "share": _share,
        "grants": _grant,
        "follow": _follow,
        "revoke": _revoke,
        "sync": _sync,
        "announce": _announce,
        "remove": _remove,
    }
    return [
        Route(at, _peers, methods=["GET"], name="peers"),
        Route(at, _add, methods=["POST"], name="peers:add"),
        Route("/s/{space}/peers-key", _key, methods=["POST"], name="peers:key"),
        Route("/s/{space}/peers-key/rotate", _rotate, methods=["POST"], name="peers:rotate"),
        Route(f"{at}/{{peer}}", _peer, methods=["GET"], name="peer"),
        *(Route(f"{at}/{{peer}}/{name}", deed, methods=["POST"], name=f"peer:{name}") for name, deed in deeds.items()),
        Route(f"{at}/{{peer}}/agents/{{agent}}", _agent, methods=["GET"], name="peer:agent"),
        Route(f"{at}/{{peer}}/agents/{{agent}}/merges", _merge, methods=["POST"], name="peer:merge"),
    ]


# List


@page
def _peers(visit: Visit) -> Response:
    return _listed(visit)


def _listed(visit: Visit, refused: RefusedForm | None = None) -> Response:
    space = visit.site.space
    granted = [grant.space for grant in space.grants()]
    query = CapabilityQuery(visit.query("peer"), visit.query("type"), visit.query("trigger"), visit.query("execute") == "on")
    return show(
        visit,
        "peers.html",
        refused.status if refused else 200,
        key=_own_key(visit),
        rows=[PeerRow(peer, granted.count(peer.space)) for peer in space.peers()],
        asked=query,
        story=_story(space, query),
        types=list(space.types()),
        triggers=_TOLD,
        refused=refused,
    )


def _own_key(visit: Visit) -> Key | None:
    """The key of this space; None if there is none, because reading it would create it."""
    return visit.site.space.key() if core_of(visit).refs.get(names.KEYS) is not None else None


def _story(space: Space, query: CapabilityQuery) -> CapabilityAnswer | None:
    if not (query.peer and query.type and query.trigger):
        return None
    try:
        return CapabilityAnswer(found=space.explain(query.peer, query.type, query.trigger, execute=query.execute))
    except CliaError as err:
        return CapabilityAnswer(error=err)


@form(ADMIN)
def _key(visit: Visit, posted: Posted) -> Response:
    """Create the first key."""
    del posted
    visit.site.space.key()
    return redirect(link("s", visit.site.name, "peers"))


@form(ADMIN)
def _rotate(visit: Visit, posted: Posted) -> Response:
    """Replace the key, or create a new identity if the old key is ``lost``."""
    lost = first(posted, "lost") == "on"

    def deed() -> str:
        if first(posted, "word").strip() != ROTATE:
            raise InvalidInput(f"type {ROTATE} to replace the key", code="not-confirmed", fields={"field": "word"})
        visit.site.space.rotate_key(lost=lost)
        return link("s", visit.site.name, "peers")

    return carry_out("lost" if lost else "rotate", posted, deed, lambda refused: _listed(visit, refused))


@form(ADMIN)
def _add(visit: Visit, posted: Posted) -> Response:
    def deed() -> str:
        trusted = first(posted, "trusted") == "on"
        words = first(posted, "name").strip(), "".join(first(posted, "key").split()), optional(posted, "url")
        return _address(visit, visit.site.space.add_peer(*words, trusted=trusted).name)

    return carry_out("add", posted, deed, lambda refused: _listed(visit, refused))


def _address(visit: Visit, peer: str) -> str:
    return link("s", visit.site.name, "peers", peer)


# One peer


@page
def _peer(visit: Visit) -> Response:
    return _shown(visit, visit.site.space.peer(visit.param("peer")))


def _shown(visit: Visit, peer: Peer, refused: RefusedForm | None = None) -> Response:
    space, name = visit.site.space, peer.name
    listening: Listening = visit.request.app.state.listening
    refusals = space.refusals(name)
    waiting = space.waiting(name)
    remotes = space.remotes(name)
    behaviours = space.remote_behaviours(name)
    return show(
        visit,
        "peer.html",
        refused.status if refused else 200,
        peer=peer,
        key=_own_key(visit),
        silent=not peer.seq and not refusals,
        heard=listening.heard(visit.site, name),
        remotes=remotes[:LISTED],
        remote_count=len(remotes),
        behaviours=_readable(space, behaviours[:LISTED]),
        behaviour_count=len(behaviours),
        claims=waiting[:LISTED],
        claim_count=len(waiting),
        refusals=refusals[:REFUSALS],
        refusal_count=len(refusals),
        grants=space.grants(name),
        types=list(space.types()),
        triggers=_TOLD,
        follow=FOLLOW,
        refused=refused,
    )


def _readable(space: Space, behaviours: list[RemoteBehaviour]) -> list[PeerBehaviour]:
    """Behaviours, with the sources of the first few."""
    return [
        PeerBehaviour(behaviour, _source(space, behaviour) if number < SOURCES else None)
        for number, behaviour in enumerate(behaviours)
    ]


def _source(space: Space, behaviour: RemoteBehaviour) -> str | None:
    try:
        return space.flow(f"{behaviour.peer}/{behaviour.name}").source
    except (NotFound, InvalidInput):  # deleted meanwhile, or an invalid ref
        return None


def _deed(visit: Visit, name: str, posted: Posted, deed: Callable[[Peer], object]) -> Response:
    """Run an action and show the peer; an unreachable peer is shown as an error on its page."""
    peer = visit.site.space.peer(visit.param("peer"))

    def done() -> str:
        deed(peer)
        return _address(visit, peer.name)

    def again(refused: RefusedForm) -> Response:
        return _shown(visit, visit.site.space.peer(peer.name), refused)

    try:
        return carry_out(name, posted, done, again)
    except TransportError as err:
        return again(RefusedForm(name, err, posted))


@form(ADMIN)
def _change(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        trusted = {"yes": True, "no": False}.get(first(posted, "trusted"))
        visit.site.space.change_peer(peer.name, url=optional(posted, "url"), trusted=trusted)

    return _deed(visit, "change", posted, deed)


@form(ADMIN)
def _share(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        visit.site.space.share(
            peer.name,
            agents=first(posted, "agents").split(),
            traces=first(posted, "traces") == "on",
            sessions=first(posted, "sessions") == "on",
            behaviours=first(posted, "behaviours").split(),
        )

    return _deed(visit, "share", posted, deed)


@form(ADMIN)
def _grant(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        triggers = posted.get("trigger", [])
        if not triggers:
            raise InvalidInput("select at least one trigger", code="invalid-trigger", fields={"field": "trigger"})
        type_, execute, expires = first(posted, "type").strip(), first(posted, "execute") == "on", _end_of(first(posted, "expires"))
        for trigger in triggers:
            visit.site.space.grant(peer.name, type_, trigger, execute=execute, expires=expires)

    return _deed(visit, "grant", posted, deed)


def _end_of(text: str) -> int | None:
    """The start of a day in UTC, in seconds; None without input."""
    if not text.strip():
        return None
    try:
        return int(datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        hints = ["as 2027-01-31"]
        raise InvalidInput(f"{text!r} is not a date", code="invalid-expiry", hints=hints, fields={"field": "expires"}) from None


@form(ADMIN)
def _follow(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        for type_, trigger in FOLLOW:
            visit.site.space.grant(peer.name, type_, trigger)

    return _deed(visit, "grant", posted, deed)


@form(ADMIN)
def _revoke(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        visit.site.space.revoke(peer.name, cid=first(posted, "cid"))

    return _deed(visit, "revoke", posted, deed)


@form(ADMIN)
def _sync(visit: Visit, posted: Posted) -> Response:
    listening: Listening = visit.request.app.state.listening
    return _deed(visit, "sync", posted, lambda peer: listening.listen(visit.site, peer.name))


@form(ADMIN)
def _announce(visit: Visit, posted: Posted) -> Response:
    def deed(peer: Peer) -> None:
        visit.site.space.announce(peer.name, snapshot=first(posted, "snapshot") == "on")

    return _deed(visit, "announce", posted, deed)


@form(ADMIN)
def _remove(visit: Visit, posted: Posted) -> Response:
    space = visit.site.space
    peer = space.peer(visit.param("peer"))

    def deed() -> str:
        if first(posted, "name").strip() != peer.name:
            raise InvalidInput("type the peer's name to confirm", code="not-confirmed", fields={"field": "name"})
        space.remove_peer(peer.name)
        return link("s", visit.site.name, "peers")

    return carry_out("remove", posted, deed, lambda refused: _shown(visit, peer, refused))


# An agent of a peer


@page
def _agent(visit: Visit) -> Response:
    return _of_agent(visit)


def _of_agent(visit: Visit, refused: RefusedForm | None = None) -> Response:
    space = visit.site.space
    peer, agent = space.peer(visit.param("peer")), visit.param("agent")
    source = known_source(visit, f"{peer.name}/{agent}")
    start = visit.number("from", 0)
    commits = space.log(source.name, own=True, limit=start + PAGE + 1)[start:]
    return show(
        visit,
        "peer_agent.html",
        refused.status if refused else 200,
        peer=peer,
        agent=agent,
        known=source,
        briefing=_briefing(space, source.name),
        commits=commits[:PAGE],
        start=start,
        newer=max(0, start - PAGE) if start else None,
        older=start + PAGE if len(commits) > PAGE else None,
        ours=space.agents() if visit.may(ADMIN) else [],
        refused=refused,
    )


def _briefing(space: Space, name: str) -> Briefing | None:
    """The briefing; None if it is not shared or not granted."""
    with suppress(NotFound):
        return space.briefing_of(name)
    return None


@form(ADMIN)
def _merge(visit: Visit, posted: Posted) -> Response:
    other = f"{visit.param('peer')}/{visit.param('agent')}"

    def deed() -> str:
        into = first(posted, "into")
        result = visit.site.space.merge(into, other, message=text_of(posted, "message"))
        if isinstance(result, Conflicts):
            return link("s", visit.site.name, "agents", into, "merges", other)
        return link("s", visit.site.name, "commits", result.cid if isinstance(result, Merged) else result.head)

    return carry_out("merge", posted, deed, lambda refused: _of_agent(visit, refused))
