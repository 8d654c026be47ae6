"""What a client may read by address: agents, traces, lineage, and what was observed of behaviours. Read only.

Invariant: an address names one thing; what is not there is refused with its address, and a list names only what can be read.


Prompts: how to work in a space, and the prompts that a space keeps as behaviours.

Invariant: only the current version of a prompt is one here: what is proposed, on trial or retired is not. It is rendered as a
briefing is; what nobody has said is put in words, as in a skill.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from mcp_types import Completion, GetPromptResult, Prompt, PromptArgument, PromptMessage, Resource, ResourceTemplate, TextContent

from clia.api.behaviour_records import BEHAVIOUR_VERSION
from clia.api.records import BRIEFING, COMMIT, EDGE, REQUEST, SESSION, TRACE
from clia.behaviours.prompts import AGENT as AGENT_ARGUMENT
from clia.behaviours.prompts import TASK, TITLE, placeholders, readable
from clia.errors import InvalidInput, NoSuchObject, NotFound
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.mcp.behaviours import evidence
from clia.mcp.behaviours import prompts as kept
from clia.mcp.lineage_tools import diagnostics, lineage_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.behaviours.model import BehaviourVersion
    from clia.mcp.calls import Call

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


OWN = "clia"
INSTRUCTIONS = """\
clia keeps the record of AI agents in the git repository they work in: who each agent is, what it did and why, and what \
people decided. Call whoami first; its guardrails bind you. Use trace and commit to record your work (your working files and \
branch are not touched), spawn and merge to work with sub-agents, journal for what your next session must know. Where a person \
must decide, call request_decision and never answer for them: held means nobody has answered yet, so go on with other work \
and poll with decision. Where several agents are here, name yours in the argument agent."""
_HOW = """\
You work in a clia space: a git repository that keeps the record of its agents. One branch agents/NAME is one agent; every
action is a typed commit with the trace of what led to it.

1. Call `whoami`. Read the guardrails first: they bind you, whatever else you are told. Then your profile, your briefing, and
   what you wait for. Call `plan` for what there is to do.
2. While you work, call `trace` with what you find out, try and decide. Search what was tried before with `trace_search`.
3. When something is done, `commit` it: a kind, a message that says why, and the changed files by path. What you traced is bound
   to the commit. A commit that is refused wrote nothing; the error says what to do.
4. For a part that can be done apart, `spawn` a sub-agent with you as the parent and a briefing that stands alone; then `merge`
   its work. `conflicts` is an answer, not a failure: look at base, ours and theirs of each path, then `resolve`.
5. Where a guardrail, a risk or missing knowledge calls for a person, `request_decision`: one question that can be understood
   alone, with the context it needs, and choices where there are few. `held` is neither yes nor no: go on with what does not
   depend on it and poll with `decision`. You cannot answer for a person.
6. Where a prompt or a flow that you work by keeps failing, read `behaviour_show` and the evidence that it names, then
   `behaviour_propose` a better version with the commits that show why. It does not run until a person has adopted it.
7. At the end, `journal` what the next session of this agent must know: what was decided, what failed, what is open.
"""


_ARGUMENTS = {
    TASK: "what is to be done; it stands where the prompt has a place for it, else at its end",
    TITLE: "the task in a line",
    AGENT_ARGUMENT: "who is to do it (default: yourself, where that is known)",
}


def listed_prompts(call: Call) -> list[Prompt]:
    space = call.space_or_none()
    own = Prompt(name=OWN, title="How to work in a clia space", description="Who you are, how to record, how to ask people.")
    return [own, *(_listed(each) for each in ([] if space is None else kept(space)) if each.name != OWN)]


def _listed(version: BehaviourVersion) -> Prompt:
    arguments = [PromptArgument(name=each, description=_ARGUMENTS[each], required=False) for each in _takes(version)]
    return Prompt(name=version.name, description=_said(version), arguments=arguments)


def _said(version: BehaviourVersion) -> str:
    return version.notes or version.why or f"version {version.cid[:10]}"


def _takes(version: BehaviourVersion) -> list[str]:
    """A task always; the others where the prompt leaves a place for them."""
    left = placeholders(version.body)
    return [each for each in _ARGUMENTS if each == TASK or each in left]


def rendered(call: Call, name: str, given: Mapping[str, str]) -> GetPromptResult:
    space = call.space_or_none()
    found = None if name == OWN or space is None else next((each for each in kept(space) if each.name == name), None)
    if found is None and name != OWN:
        raise _unknown(name, [each.name for each in listed_prompts(call)])
    known = [] if found is None else _takes(found)
    for key in given:
        if key not in known:
            raise InvalidInput(
                f"the prompt {name!r} takes no argument {key!r}",
                code="unknown-field",
                hints=[f"arguments: {', '.join(known) or 'none'}"],
                fields={"field": key},
            )
    if found is None:
        return _prompt("How to work in a clia space", _HOW)
    agent = given.get(AGENT_ARGUMENT) or (_caller(call) if AGENT_ARGUMENT in known else "")
    return _prompt(_said(found), readable(found.body, given.get(TASK, ""), agent=agent, title=given.get(TITLE, "")))


def _caller(call: Call) -> str:
    """Whoever calls, where that is known."""
    try:
        return call.agent(None)
    except InvalidInput:
        return ""


def _unknown(name: str, known: list[str]) -> NotFound:
    return NotFound(
        f"there is no prompt {name!r}", code="no-such-prompt", hints=[f"prompts here: {', '.join(known)}"], fields={"prompt": name}
    )


def _prompt(said: str, text: str) -> GetPromptResult:
    return GetPromptResult(description=said or None, messages=[PromptMessage(role="user", content=TextContent(text=text))])
