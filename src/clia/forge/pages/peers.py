"""Peer pages: trust, sharing, grants, and what was accepted or refused.

Invariant: viewing changes nothing and creates no key. Changes need an administrator. Everything from a peer is shown as text.
"""

from __future__ import annotations

from datetime import UTC, datetime

from clia.errors import CliaError, InvalidInput, NotFound
from clia.federation.statements import SNAPSHOT, TRIGGERS
from clia.forge.pages.agents import merge
from clia.forge.pages.common import ADMIN, action, commits_page, form, if_found, known_source, page, redirect, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.facade.space import Space
    from clia.federation.model import Key, Peer, RemoteBehaviour
    from clia.forge.federation import Listening
    from clia.forge.pages.common import RefusedForm, Visit

PAGE, REFUSALS, LISTED, SOURCES = 50, 50, 500, 20
ROTATE = "rotate"
"""The word that confirms replacing the key."""
FOLLOW = (
    *(("agent-commit", "spawn"), ("agent-commit", "head-move"), ("agent-commit", "merge")),
    *(("briefing", "spawn"), ("console-trace", "note")),
)
"""The grants needed to follow a peer's agents."""
_TRIGGERS = [trigger for trigger in TRIGGERS if trigger != SNAPSHOT]


def routes() -> list[Route]:
    at = "/peers/{peer}"
    return [
        page("/peers", "peers", _peers),
        action("/peers", "peers:add", _add, _peers),
        form("/peers-key", "peers:key", _key),
        action("/peers-key/rotate", "peers:rotate", _rotate, _not_rotated),
        page(at, "peer", _peer),
        action(f"{at}/change", "peer:change", _change, _peer),
        action(f"{at}/share", "peer:share", _share, _peer),
        action(f"{at}/grants", "peer:grants", _grant, _peer, "grant"),
        action(f"{at}/follow", "peer:follow", _follow, _peer, "grant"),
        action(f"{at}/revoke", "peer:revoke", _revoke, _peer),
        action(f"{at}/sync", "peer:sync", _sync, _peer),
        action(f"{at}/announce", "peer:announce", _announce, _peer),
        action(f"{at}/remove", "peer:remove", _remove, _peer),
        page(f"{at}/agents/{{agent}}", "peer:agent", _agent),
        action(f"{at}/agents/{{agent}}/merges", "peer:merge", _merge, _agent),
    ]


# List


def _peers(visit: Visit, refused: RefusedForm | None = None) -> Response:
    peers = visit.space.peers
    granted = [grant.space for grant in peers.grants()]
    query = {name: visit.query(name) for name in ("peer", "type", "trigger", "execute")}
    explained, problem = None, None
    if query["peer"] and query["type"] and query["trigger"]:
        try:
            explained = peers.explain(query["peer"], query["type"], query["trigger"], execute=query["execute"] == "on")
        except CliaError as err:
            problem = err
    return render(
        visit,
        "peers.html",
        key=_own_key(visit),
        rows=[(peer, granted.count(peer.space)) for peer in peers()],
        query=query,
        explained=explained,
        problem=problem,
        types=list(visit.space.types()),
        triggers=_TRIGGERS,
        refused=refused,
    )


def _own_key(visit: Visit) -> Key | None:
    """The key of this space; None if there is none, because reading it would create it."""
    return visit.space.peers.key() if visit.space.views.has_key() else None


def _key(visit: Visit) -> Response:
    """Create the first key."""
    visit.space.peers.key()
    return redirect(visit.address("peers"))


def _rotate(visit: Visit) -> str:
    """Replace the key, or create a new identity if the old key is ``lost``."""
    if visit.field("word").strip() != ROTATE:
        raise InvalidInput(f"type {ROTATE} to replace the key", code="not-confirmed", fields={"field": "word"})
    visit.space.peers.rotate_key(lost=visit.field("lost") == "on")
    return visit.address("peers")


def _not_rotated(visit: Visit, refused: RefusedForm) -> Response:
    return _peers(visit, refused._replace(form="lost" if visit.field("lost") == "on" else "rotate"))


def _add(visit: Visit) -> str:
    name, key, url = visit.field("name").strip(), "".join(visit.field("key").split()), visit.field("url").strip() or None
    return visit.address("peers", visit.space.peers.add(name, key, url, trusted=visit.field("trusted") == "on").name)


# One peer


def _named(visit: Visit) -> Peer:
    """The peer in the URL."""
    return visit.space.peers.get(visit.param("peer"))


def _peer(visit: Visit, refused: RefusedForm | None = None) -> Response:
    peer, peers = _named(visit), visit.space.peers
    refusals = peers.refusals(peer.name)
    claims = peers.waiting(peer.name)
    remotes = peers.remotes(peer.name)
    behaviours = peers.behaviours(peer.name)
    return render(
        visit,
        "peer.html",
        peer=peer,
        key=_own_key(visit),
        silent=not peer.seq and not refusals,
        heard=_listening(visit).heard(visit.site, peer.name),
        remotes=remotes[:LISTED],
        remote_count=len(remotes),
        behaviours=[
            (behaviour, _source(visit.space, behaviour) if number < SOURCES else None)
            for number, behaviour in enumerate(behaviours[:LISTED])
        ],
        behaviour_count=len(behaviours),
        claims=claims[:LISTED],
        claim_count=len(claims),
        refusals=refusals[:REFUSALS],
        refusal_count=len(refusals),
        grants=peers.grants(peer.name),
        types=list(visit.space.types()),
        triggers=_TRIGGERS,
        follow=FOLLOW,
        refused=refused,
    )


def _listening(visit: Visit) -> Listening:
    listening: Listening = visit.request.app.state.listening
    return listening


def _source(space: Space, behaviour: RemoteBehaviour) -> str | None:
    try:
        return space.sessions.flow(f"{behaviour.peer}/{behaviour.name}").source
    except (NotFound, InvalidInput):  # deleted meanwhile, or an invalid ref
        return None


def _shown_after(change: Callable[[Visit, str], None]) -> Callable[[Visit], str]:
    """Decorate a change of the peer in the URL, after which its page is shown."""

    def act(visit: Visit) -> str:
        name = _named(visit).name
        change(visit, name)
        return visit.address("peers", name)

    return act


@_shown_after
def _change(visit: Visit, name: str) -> None:
    trusted = {"yes": True, "no": False}.get(visit.field("trusted"))
    visit.space.peers.change(name, url=visit.field("url").strip() or None, trusted=trusted)


@_shown_after
def _share(visit: Visit, name: str) -> None:
    visit.space.peers.share(
        name,
        agents=visit.field("agents").split(),
        traces=visit.field("traces") == "on",
        sessions=visit.field("sessions") == "on",
        behaviours=visit.field("behaviours").split(),
    )


@_shown_after
def _grant(visit: Visit, name: str) -> None:
    triggers = visit.posted.get("trigger", [])
    if not triggers:
        raise InvalidInput("select at least one trigger", code="invalid-trigger", fields={"field": "trigger"})
    execute, expires = visit.field("execute") == "on", _end_of(visit.field("expires").strip())
    for trigger in triggers:
        visit.space.peers.grant(name, visit.field("type").strip(), trigger, execute=execute, expires=expires)


def _end_of(text: str) -> int | None:
    """The start of a day in UTC, in seconds; None without input."""
    if not text:
        return None
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        hints = ["as 2027-01-31"]
        raise InvalidInput(f"{text!r} is not a date", code="invalid-expiry", hints=hints, fields={"field": "expires"}) from None


@_shown_after
def _follow(visit: Visit, name: str) -> None:
    for type_, trigger in FOLLOW:
        visit.space.peers.grant(name, type_, trigger)


@_shown_after
def _revoke(visit: Visit, name: str) -> None:
    visit.space.peers.revoke(name, cid=visit.field("cid"))


@_shown_after
def _sync(visit: Visit, name: str) -> None:
    _listening(visit).listen(visit.site, name)


@_shown_after
def _announce(visit: Visit, name: str) -> None:
    visit.space.peers.announce(name, snapshot=visit.field("snapshot") == "on")


def _remove(visit: Visit) -> str:
    peer = _named(visit)
    if visit.field("name").strip() != peer.name:
        raise InvalidInput("type the peer's name to confirm", code="not-confirmed", fields={"field": "name"})
    visit.space.peers.remove(peer.name)
    return visit.address("peers")


# An agent of a peer


def _agent(visit: Visit, refused: RefusedForm | None = None) -> Response:
    peer, space = _named(visit), visit.space
    source = known_source(visit, f"{peer.name}/{visit.param('agent')}")
    return render(
        visit,
        "peer_agent.html",
        peer=peer,
        agent=visit.param("agent"),
        source=source,
        briefing=if_found(space.agents.briefing, source.name),  # None if it is not shared or not granted
        ours=space.agents() if visit.user.may(ADMIN) else [],
        refused=refused,
        **commits_page(visit, source.name, PAGE),
    )


def _merge(visit: Visit) -> str:
    return merge(visit, visit.field("into"), f"{visit.param('peer')}/{visit.param('agent')}")
