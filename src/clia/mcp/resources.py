"""What a client may read by address: agents, traces, lineage, and what was observed of behaviours. Read only.

Invariant: an address names one thing; what is not there is refused with its address, and a list names only what can be read.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from mcp_types import Completion, Resource, ResourceTemplate

from clia.api.behaviour_records import BEHAVIOUR_VERSION
from clia.api.records import BRIEFING, COMMIT, EDGE, REQUEST, SESSION, TRACE
from clia.errors import InvalidInput, NoSuchObject
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.mcp.behaviours import evidence
from clia.mcp.lineage_tools import diagnostics, lineage_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clia.mcp.place import Call

SCHEME = "clia://"
JSON = "application/json"
_LISTED = 500
_DOCUMENTS = {"profile": AGENT, "plan": AGENDA, "agency": AGENCY}
_TEMPLATES = {
    "agents/{name}": ("agent", "An agent", "Where an agent of this space stands: head, briefing, relations, session, requests."),
    "traces/{cid}": ("trace", "A trace", "What an agent said and saw on the way to a commit."),
    "lineage/{slug}": ("lineage", "Who an agent is", "An agent's merged profile, agenda and journal."),
    "behaviours/{name}/evidence": (
        "behaviour-evidence",
        "How a behaviour does",
        "Every version with its rates, what the record speaks for, and the newest commits that went badly: why, and their trace.",
    ),
    "behaviours/{name}/versions/{cid}": ("behaviour-version", "A version of a behaviour", "Its whole body, and how it came here."),
}


def templates() -> list[ResourceTemplate]:
    return [
        ResourceTemplate(uri_template=SCHEME + path, name=name, title=title, description=said, mime_type=JSON)
        for path, (name, title, said) in _TEMPLATES.items()
    ]


def listed(call: Call) -> list[Resource]:
    """Every agent, at work here or known to lineage, and every behaviour."""
    space = call.space_or_none()
    names = [] if space is None else space.agents()[:_LISTED]
    slugs = _slugs(call)[:_LISTED]
    made = [_resource("agents", name, f"The agent {name}: where it stands") for name in names]
    made += [_resource("lineage", slug, f"Who {slug} is, here") for slug in slugs]
    known = [] if space is None else [each.name for each in space.behaviours()][:_LISTED]
    return made + [_resource("behaviours", name, f"How the behaviour {name} does", "/evidence") for name in known]


def _resource(kind: str, name: str, said: str, rest: str = "") -> Resource:
    return Resource(uri=f"{SCHEME}{kind}/{quote(name, safe='')}{rest}", name=name, title=said, mime_type=JSON)


def _slugs(call: Call) -> list[str]:
    return [each.slug for each in checks.roster(call.place.path).agents]


def read(call: Call, uri: str) -> str:
    """What stands at an address, as JSON."""
    found = next((match for match in (_match(path, uri) for path in _TEMPLATES) if match is not None), None)
    if found is None:
        hints = [f"addresses: {', '.join(SCHEME + path for path in _TEMPLATES)}"]
        raise InvalidInput(f"there is no resource {uri!r}", code="no-such-resource", hints=hints, fields={"uri": uri})
    path, values = found
    return json.dumps(_READERS[path](call, *values), ensure_ascii=False, indent=1)


def _match(path: str, uri: str) -> tuple[str, list[str]] | None:
    """What an address has in the places of a template, if it is of that template; a place takes no slash and is never empty."""
    wanted, given = (SCHEME + path).split("/"), uri.split("/")
    if len(wanted) != len(given) or not all(given[3:]):
        return None
    if any(one != other for one, other in zip(wanted, given, strict=True) if not one.startswith("{")):
        return None
    return path, [unquote(other) for one, other in zip(wanted, given, strict=True) if one.startswith("{")]


def _agent(call: Call, name: str) -> dict[str, Any]:
    space = call.space
    live = space.sessions(name, live=True)
    return {
        "agent": name,
        "head": COMMIT.encode(space.show(space.head(name))),
        "briefing": BRIEFING.encode(space.briefing_of(name)),
        "parent": space.parent_agent(name),
        "sub_agents": space.sub_agents(name),
        "relations": [EDGE.encode(each) for each in space.relations(name)],
        "session": SESSION.encode(live[0]) if live else None,
        "waits_for": [REQUEST.encode(each) for each in space.pending(name)],
    }


def _trace(call: Call, cid: str) -> dict[str, Any]:
    found = call.space.trace_for(cid)
    if found is None:
        raise NoSuchObject(f"no trace is bound to {cid!r}", code="no-trace", fields={"commit": cid})
    made: dict[str, Any] = TRACE.encode(found)
    return made


def _lineage(call: Call, slug: str) -> dict[str, Any]:
    found = lineage_here(call, slug)
    merged = {name: found.merged(kind) for name, kind in _DOCUMENTS.items()}
    told = {name: dict(each.document) for name, each in merged.items()}
    return {"slug": slug, **told, "diagnostics": diagnostics(call, found.context().diagnostics)}


def _evidence(call: Call, name: str) -> dict[str, Any]:
    return evidence(call.space, name)


def _version(call: Call, name: str, cid: str) -> dict[str, Any]:
    known = call.space.behaviour(name)
    for each in known.versions:
        if each.cid == cid:
            made: dict[str, Any] = BEHAVIOUR_VERSION.encode(each)
            return made
    raise NoSuchObject(f"there is no version {cid!r} of {name!r}", code="no-such-version", fields={"cid": cid, "behaviour": name})


_READERS: dict[str, Callable[..., dict[str, Any]]] = dict(
    zip(_TEMPLATES, (_agent, _trace, _lineage, _evidence, _version), strict=True)
)


def completed(call: Call, template: str, argument: str, start: str) -> Completion:
    """The names that begin with what was typed."""
    path = template.removeprefix(SCHEME)
    known: list[str] = []
    if (path, argument) == ("lineage/{slug}", "slug"):
        known = _slugs(call)
    elif argument == "name":
        space = call.space_or_none()
        if space is not None and path == "agents/{name}":
            known = space.agents()
        elif space is not None and path.startswith("behaviours/{name}/"):
            known = [each.name for each in space.behaviours()]
    found = [name for name in known if name.startswith(start)]
    return Completion(values=found[:100], total=len(found), has_more=len(found) > 100)
