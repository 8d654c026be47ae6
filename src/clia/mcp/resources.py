"""MCP resources and prompts.

Resources are read-only: agents, traces, lineage and behaviour evidence. Prompts are the clia guide and the current version of every
prompt behaviour; proposed, trial and retired versions are not offered. Missing prompt arguments are spelled out in words.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from mcp_types import Completion, GetPromptResult, Prompt, PromptArgument, PromptMessage, Resource, ResourceTemplate, TextContent

from clia.api.derivation import record_of
from clia.behaviours.model import BehaviourVersion
from clia.behaviours.prompts import AGENT as AGENT_ARGUMENT
from clia.behaviours.prompts import TASK, TITLE, placeholders, readable
from clia.errors import InvalidInput, NoSuchObject, NotFound
from clia.identities import checks
from clia.identities.contexts import AGENCY, AGENDA, AGENT
from clia.identities.lineage import lineage
from clia.mcp.behaviour_tools import evidence
from clia.mcp.behaviour_tools import prompts as adopted_prompts
from clia.mcp.lineage_tools import STANDING, diagnostics, standing_of
from clia.mcp.toolbox import ResultShape
from clia.values.typed_objects import ConsoleTrace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.mcp.calls import ToolCall

SCHEME = "clia://"
JSON = "application/json"
_LISTED = 500
_DOCUMENTS = {"profile": AGENT, "plan": AGENDA, "agency": AGENCY}
_TEMPLATES = {
    "agents/{name}": ("agent", "An agent", "The state of an agent: head, briefing, relations, session, pending requests."),
    "traces/{cid}": ("trace", "A trace", "The trace of a commit: what the agent said, did and read."),
    "lineage/{slug}": ("lineage", "An identity", "An agent's merged profile, agenda and journal."),
    "behaviours/{name}/evidence": (
        "behaviour-evidence",
        "Behaviour evidence",
        "The rates of every version, the suggestion, and the newest failed commits with reasons and traces.",
    ),
    "behaviours/{name}/versions/{cid}": ("behaviour-version", "A behaviour version", "The full body of a version and its history."),
}


def templates() -> list[ResourceTemplate]:
    return [
        ResourceTemplate(uri_template=SCHEME + path, name=name, title=title, description=description, mime_type=JSON)
        for path, (name, title, description) in _TEMPLATES.items()
    ]


def listed(call: ToolCall) -> list[Resource]:
    """Every active agent, identity and behaviour."""
    space = call.space_or_none()
    names = [] if space is None else space.agents()[:_LISTED]
    slugs = _slugs(call)[:_LISTED]
    resources = [_resource("agents", name, f"State of agent {name}") for name in names]
    resources += [_resource("lineage", slug, f"Identity of {slug}") for slug in slugs]
    behaviours = [] if space is None else [version.name for version in space.behaviours()][:_LISTED]
    return resources + [_resource("behaviours", name, f"Evidence on behaviour {name}", "/evidence") for name in behaviours]


def _resource(kind: str, name: str, title: str, suffix: str = "") -> Resource:
    return Resource(uri=f"{SCHEME}{kind}/{quote(name, safe='')}{suffix}", name=name, title=title, mime_type=JSON)


def _slugs(call: ToolCall) -> list[str]:
    return [agent.slug for agent in checks.roster(call.place.path).agents]


def read(call: ToolCall, uri: str) -> str:
    """The resource at a URI, as JSON."""
    matched = next((match for match in (_match(path, uri) for path in _TEMPLATES) if match is not None), None)
    if matched is None:
        hints = [f"URIs: {', '.join(SCHEME + path for path in _TEMPLATES)}"]
        raise InvalidInput(f"unknown resource {uri!r}", code="no-such-resource", hints=hints, fields={"uri": uri})
    path, values = matched
    return json.dumps(_READERS[path](call, *values), ensure_ascii=False, indent=1)


def _match(path: str, uri: str) -> tuple[str, list[str]] | None:
    """The template and the values of its placeholders if the URI matches; values are not empty and contain no slash."""
    pattern, parts = (SCHEME + path).split("/"), uri.split("/")
    if len(pattern) != len(parts) or not all(parts[3:]):
        return None
    if any(expected != actual for expected, actual in zip(pattern, parts, strict=True) if not expected.startswith("{")):
        return None
    return path, [unquote(actual) for expected, actual in zip(pattern, parts, strict=True) if expected.startswith("{")]


_AGENT = ResultShape(agent=str, **STANDING.fields, relations="relations")


def _agent(call: ToolCall, name: str) -> Any:
    space = call.space
    return _AGENT.encode({"agent": name, **standing_of(space, name), "relations": space.relations(name)})


def _trace(call: ToolCall, cid: str) -> Any:
    trace = call.space.traces.of(cid)
    if trace is None:
        raise NoSuchObject(f"commit {cid!r} has no trace", code="no-trace", fields={"commit": cid})
    return record_of(ConsoleTrace).encode(trace)


def _lineage(call: ToolCall, slug: str) -> Any:
    identity = lineage(call.place.path, slug)
    documents = {name: dict(identity.merged(kind).document) for name, kind in _DOCUMENTS.items()}
    return {"slug": slug, **documents, "diagnostics": diagnostics(call, identity.context().diagnostics)}


def _version(call: ToolCall, name: str, cid: str) -> Any:
    for version in call.space.behaviours.get(name).versions:
        if version.cid == cid:
            return record_of(BehaviourVersion).encode(version)
    raise NoSuchObject(f"behaviour {name!r} has no version {cid!r}", code="no-such-version", fields={"cid": cid, "behaviour": name})


_READERS: dict[str, Callable[..., Any]] = dict(
    zip(_TEMPLATES, (_agent, _trace, _lineage, lambda call, name: evidence(call.space, name), _version), strict=True)
)


def completed(call: ToolCall, template: str, argument: str, start: str) -> Completion:
    """The names with a prefix."""
    path = template.removeprefix(SCHEME)
    names: list[str] = []
    if (path, argument) == ("lineage/{slug}", "slug"):
        names = _slugs(call)
    elif argument == "name":
        space = call.space_or_none()
        if space is not None and path == "agents/{name}":
            names = space.agents()
        elif space is not None and path.startswith("behaviours/{name}/"):
            names = [behaviour.name for behaviour in space.behaviours()]
    matches = [name for name in names if name.startswith(start)]
    return Completion(values=matches[:100], total=len(matches), has_more=len(matches) > 100)


OWN = "clia"
INSTRUCTIONS = """\
clia is the system of record for AI agents in a git repository: who each agent is, what it did and why, and what \
people decided. Call whoami first; its guardrails are binding. Use trace and commit to record your work (your working files and \
branch are not touched), spawn and merge to work with sub-agents, journal for what your next session must know. When a person \
must decide, call request_decision and never answer for them: held means that there is no answer yet, so continue with other \
work and poll with decision. If there are several agents, name yours in the agent argument. More tools (show, diff, files, \
resolve, sessions, behaviours, peers) are listed if the server is started with --tools all."""
_HOW = """\
You work in a clia space: a git repository that records the work of its agents. Each agent is a branch agents/NAME; every
action is a typed commit with a trace of what led to it.

1. Call `whoami`. Read the guardrails first: they are binding, whatever else you are told. Then read your profile, your briefing
   and your pending requests. Call `plan` for what to do.
2. While you work, call `trace` with what you find, try and decide. Search earlier attempts with `trace_search`.
3. When something is done, `commit` it: a kind, a message that says why, and the changed files by path. Your trace is attached
   to the commit. A refused commit writes nothing; the error says what to do.
4. For work that can be done separately, `spawn` a sub-agent with you as the parent and a self-contained briefing; then `merge`
   its work. `conflicts` is a result, not an error: compare base, ours and theirs of each path, then call `resolve`.
5. If a guardrail, a risk or missing knowledge requires a person, call `request_decision`: one self-contained question with the
   necessary context, and choices if there are only a few. `held` means neither yes nor no: continue with work that does not
   depend on it and poll with `decision`. You cannot answer for a person.
6. If a prompt or flow that you use keeps failing, call `behaviour_show`, read the evidence that it names, then call
   `behaviour_propose` with a better version and the commits that show why. It does not run until a person adopts it.
7. At the end, call `journal` with what the next session of this agent must know: decisions, failures, open questions.
"""


_ARGUMENTS = {
    TASK: "the task; inserted at the placeholder, else appended",
    TITLE: "one-line title of the task",
    AGENT_ARGUMENT: "the agent that does the task (default: you, if known)",
}


def listed_prompts(call: ToolCall) -> list[Prompt]:
    space = call.space_or_none()
    own = Prompt(name=OWN, title="How to work in a clia space", description="Who you are, how to record work, how to ask people.")
    return [own, *(_listed(prompt) for prompt in ([] if space is None else adopted_prompts(space)) if prompt.name != OWN)]


def _listed(version: BehaviourVersion) -> Prompt:
    arguments = [PromptArgument(name=argument, description=_ARGUMENTS[argument], required=False) for argument in _takes(version)]
    return Prompt(name=version.name, description=_said(version), arguments=arguments)


def _said(version: BehaviourVersion) -> str:
    return version.notes or version.why or f"version {version.cid[:10]}"


def _takes(version: BehaviourVersion) -> list[str]:
    """The arguments of a prompt: the task, and those that it has placeholders for."""
    left = placeholders(version.body)
    return [argument for argument in _ARGUMENTS if argument == TASK or argument in left]


def rendered(call: ToolCall, name: str, values: Mapping[str, str]) -> GetPromptResult:
    space = call.space_or_none()
    chosen = (
        None
        if name == OWN or space is None
        else next((version for version in adopted_prompts(space) if version.name == name), None)
    )
    if chosen is None and name != OWN:
        hints = [f"prompts: {', '.join(prompt.name for prompt in listed_prompts(call))}"]
        raise NotFound(f"unknown prompt {name!r}", code="no-such-prompt", hints=hints, fields={"prompt": name})
    names = [] if chosen is None else _takes(chosen)
    for key in values:
        if key not in names:
            hints = [f"arguments: {', '.join(names) or 'none'}"]
            raise InvalidInput(f"prompt {name!r} has no argument {key!r}", code="unknown-field", hints=hints, fields={"field": key})
    if chosen is None:
        return _prompt("How to work in a clia space", _HOW)
    agent = values.get(AGENT_ARGUMENT, "")
    if not agent and AGENT_ARGUMENT in names:
        with suppress(InvalidInput):  # the caller's agent is unknown
            agent = call.agent(None)
    return _prompt(_said(chosen), readable(chosen.body, values.get(TASK, ""), agent=agent, title=values.get(TITLE, "")))


def _prompt(description: str, text: str) -> GetPromptResult:
    return GetPromptResult(description=description or None, messages=[PromptMessage(role="user", content=TextContent(text=text))])
