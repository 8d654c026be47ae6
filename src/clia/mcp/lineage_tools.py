"""Identity tools; they work in any directory, with or without a space.

Invariant: documents are returned as merged, guardrails first. An unusable document is reported next to the result and hides
nothing else.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, cast

from clia.api.derivation import record_of
from clia.api.shapes import Listed, Optional
from clia.errors import AgentNotFound, CliaError, InvalidInput, NoSuchAgent, NotAllowed
from clia.identities.agent_places import guardrails_of, missing_guardrails
from clia.identities.agent_profiles import joined
from clia.identities.contexts import AGENDA
from clia.identities.diagnostics import Diagnostic
from clia.identities.guardrails.rules import RuleExplanation, rules_in_force, rules_of, rules_of_record
from clia.identities.guardrails.rules import explain_rule as explanation_of
from clia.identities.journal import Note
from clia.identities.lineage import lineage
from clia.identities.service import Reprofiled, RuleOn  # noqa: TC001  # resolved at run time
from clia.identities.writing import WriteLocation
from clia.identities.writing import journal as append
from clia.mcp.toolbox import AgentName, ResultShape, tool
from clia.rules.evaluation import RuledAction
from clia.sessions.model import Session
from clia.values.slugs import is_slug
from clia.values.typed_objects import Briefing
from clia.verbs import ADMIN, Count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.facade.space import Space
    from clia.identities.lineage import Lineage, MergedDocument
    from clia.identities.profile_drift import AgentIdentity
    from clia.mcp.calls import ToolCall

_DIAGNOSTIC = ResultShape(**record_of(Diagnostic).fields)
STANDING = ResultShape(
    head="show",
    trace_pending=Count,
    briefing=Briefing | None,
    parent="parent_agent",
    sub_agents="sub_agents",
    session=Session | None,
    waits_for="pending",
)
_WHO = ResultShape(
    agent=str,
    guardrails=list[Any],
    slug=str | None,
    profile=dict[str, Any] | None,
    contexts=list[str],
    space=str | None,
    standing=Optional(STANDING),
    diagnostics=Listed(_DIAGNOSTIC),
)


def slug_of(space: Space | None, agent: str) -> str:
    """The slug of an agent: the one it was spawned with, else its name."""
    profile = None if space is None else recorded_profile(space, agent)
    return str(profile["slug"]) if profile is not None and isinstance(profile.get("slug"), str) else agent


def recorded_profile(space: Space, agent: str) -> dict[str, Any] | None:
    """The profile that an agent was spawned with."""
    try:
        profile = space.agents.record(agent).get("profile.json")
    except NoSuchAgent:
        return None
    return profile if isinstance(profile, dict) else None


@tool("Who you are here", returns=_WHO)
def whoami(call: ToolCall, agent: AgentName = None) -> Mapping[str, Any]:
    """Call this first. Returns who the agent is here: its guardrails, which are binding, then its merged profile; and its state in
    the space: newest commit, briefing, parent and sub-agents, live session and pending requests."""
    name = call.agent(agent)
    space = call.space_or_none()
    slug = slug_of(space, name)
    merged = _profile(call, name, slug)
    standing = None if space is None else _standing_or_none(space, name, is_known=merged is not None)
    if merged is None and standing is None:
        lineage(call.place.path, slug)  # the error names the searched directories
    identity = None if space is None or standing is None else space.identities.of_agent(name)
    document = {} if merged is None else dict(merged.document)
    findings = [] if merged is None else list(merged.diagnostics)
    rules = guardrails_of(document)
    if identity is not None:
        rules = joined(list(identity.guardrails), rules)
        findings += [item for item in _missing(identity) if item.message not in {other.message for other in findings}]
    return {
        "agent": name,
        "guardrails": rules,
        "slug": None if merged is None else slug,
        "profile": None if merged is None else document,
        "contexts": [] if merged is None else _contexts(call, merged),
        "space": None if space is None else space.id,
        "standing": standing,
        "diagnostics": diagnostics(call, findings),
    }


def _missing(identity: AgentIdentity) -> list[Diagnostic]:
    """What is wrong with the identity of an agent: documents that cannot be read, and guardrails that are gone at its place."""
    return [*identity.findings, *missing_guardrails(identity.agent, identity.missing)]


def _profile(call: ToolCall, name: str, slug: str) -> MergedDocument | None:
    """The identity of an agent, at its place; None for an agent that only the space knows."""
    try:
        return _lineage(call, name, slug).profile()
    except AgentNotFound:
        return None


def _lineage(call: ToolCall, name: str, slug: str) -> Lineage:
    space = call.space_or_none()
    if space is not None and space.views.has_agent(name):
        if not is_slug(slug):
            raise AgentNotFound(f"the agent {name} has no identity", fields={"slug": slug, "path": call.place.path})
        return space.identities.at_place_of(name, slug)
    return lineage(call.place.path, slug)


def _standing_or_none(space: Space, name: str, *, is_known: bool) -> dict[str, Any] | None:
    """The state of an agent in the space; None for one that only has documents."""
    try:
        return standing_of(space, name)
    except NoSuchAgent:
        if is_known:
            return None
        raise


def standing_of(space: Space, name: str) -> dict[str, Any]:
    """The state of an agent in the space."""
    return {
        "head": space.show(space.head(name)),
        "trace_pending": len(space.traces.pending(name)),
        "briefing": _briefing(space, name),
        "parent": space.relations.parent(name),
        "sub_agents": space.relations.sub_agents(name),
        "session": next(iter(space.sessions(name, live=True)), None),
        "waits_for": space.pending(name),
    }


def _briefing(space: Space, name: str) -> Briefing | None:
    try:
        return space.agents.briefing(name)
    except CliaError:  # the clone that recorded it has not pushed
        return None


def _contexts(call: ToolCall, merged: MergedDocument) -> list[str]:
    return cast("list[str]", call.place.in_json([context.directory for context in merged.chain]))


def diagnostics(call: ToolCall, items: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", call.place.in_json([diagnostic._asdict() for diagnostic in items]))


@tool(
    "Your agenda",
    returns=ResultShape(slug=str, agenda=dict[str, Any], contexts=list[str], diagnostics=Listed(_DIAGNOSTIC)),
)
def plan(call: ToolCall, agent: AgentName = None) -> Mapping[str, Any]:
    """Returns the agent's agenda, merged from every enclosing directory and repository: what to do, and in which order."""
    name = call.agent(agent)
    slug = slug_of(call.space_or_none(), name)
    merged = _lineage(call, name, slug).merged(AGENDA)
    return {
        "slug": slug,
        "agenda": dict(merged.document),
        "contexts": _contexts(call, merged),
        "diagnostics": diagnostics(call, merged.diagnostics),
    }


@tool("Record an agent's present profile", role=ADMIN)
def reprofile(call: ToolCall, agent: Annotated[str, "agent name"]) -> Reprofiled:
    """Records the present profile of an agent's identity. Only a person may do this, so agents are refused: ask one."""
    if call.caller.user is None or call.place.agent is not None:
        message, hints = "only a person may record another profile of an agent", ["ask a person to run: clia reprofile AGENT"]
        raise NotAllowed(message, code="person-needed", hints=hints)
    return call.space.identities.reprofile(agent)


@tool("What your rules say about an action")
def explain_rule(
    call: ToolCall,
    on: RuleOn,
    tool: Annotated[str, "name of the tool"] = "",
    command: Annotated[str, "shell command line"] = "",
    paths: Annotated[Sequence[str], "files, relative to the repository"] = (),
    branch: Annotated[str, "target branch"] = "",
    agent: AgentName = None,
) -> RuleExplanation:
    """Returns whether an action is denied, needs a person's answer or something on the record, and which rule from which file says
    so. Ask before work that might be refused."""
    space, name = call.space_or_none(), call.agent(agent)
    slug = slug_of(space, name)
    profile = _profile(call, name, slug)
    record = None if space is None else recorded_profile(space, name)
    recorded = None if record is None else rules_of_record(name, record)
    rules = rules_in_force(() if profile is None else rules_of(profile), recorded)
    shown = [rule._replace(path=call.place.in_json(rule.path)) for rule in rules]
    return explanation_of(slug, shown, RuledAction(on, tool, command or None, tuple(paths), branch=branch))


def _is_own_checkout(call: ToolCall, space: Space, name: str) -> bool:
    """Whether the server runs in a checkout of the agent. Other directories are of people, whose files stay as they are."""
    checkout = space.checkout_at(call.place.path) if call.place.at_hand else None
    return checkout is not None and checkout.agent == name


@tool(
    "Write to your journal",
    role=ADMIN,
    agents=True,
    returns=ResultShape(slug=str, path=str, entry=dict[str, Any], sha256=str, appended=bool),
)
def journal(
    call: ToolCall,
    note: Annotated[str, "what happened, in a few sentences"],
    tags: Annotated[Sequence[str], "search tags"] = (),
    dirs_touched: Annotated[Sequence[str], "directories that the work changed"] = (),
    key: Annotated[str | None, "idempotency key: a second entry with the same key is ignored"] = None,
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Appends an entry to the agent's agency document: as a commit of the agent or, in its own checkout, to the file. Use it for
    what the next session must know: decisions, dead ends, open questions. Using the same key twice adds one entry."""
    space, name = call.space_or_none(), call.agent(agent)
    slug = slug_of(space, name)
    if not note.strip():
        raise InvalidInput("note must not be empty", code="empty-value", fields={"field": "note"})
    if space is not None and name in space.agents(after=name[:-1]) and not _is_own_checkout(call, space, name):
        result = space.agents.journal(name, note, tags=tags, dirs_touched=dirs_touched, key=key)
        return {"slug": slug, **result._asdict()}
    appended, _ = append(slug, Note(note, tags, dirs_touched=dirs_touched, idempotency_key=key), WriteLocation(call.place.path))
    return {"slug": slug, **appended._asdict(), "path": os.path.relpath(appended.path, call.place.path)}
