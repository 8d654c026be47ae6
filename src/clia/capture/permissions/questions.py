"""``clia hook answer TOOL``: what a tool is told about a call, where a hook's cache of rules does not say.

Invariant: every failure lets the tool ask in its own way. Without a known agent, the rules of the root directives apply.
"""

from __future__ import annotations

import json
import os
import time

from clia.capture.permissions import answers
from clia.capture.permissions.budgets import budget_refusal
from clia.capture.permissions.prompts import CallAnswer, PermissionPrompt, PromptedCall
from clia.capture.permissions.rule_cache import compile_rules
from clia.capture.permissions.ruled_calls import EVENTS, PERMISSION, action_of
from clia.errors import InvalidInput
from clia.rules.evaluation import RuleVerdict, evaluate, reason
from clia.rules.model import ALLOW, ASK, DENY
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.facade.config import PromptOptions
    from clia.facade.space import Space

_AGENT_SECONDS, _POLL_SECONDS = 3.0, 0.05
_MARGIN = 0.1
_MARGIN_SECONDS = 2.0
"""The tool gets the answer before it stops the hook: a stopped hook answers nothing."""


def event_in(data: bytes) -> dict[str, Any]:
    """The event of a hook."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"the event is not JSON: {err}", code="invalid-event") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("hook_event_name"), str):
        raise InvalidInput("the event has no hook_event_name", code="invalid-event")
    return fields


def answer(space: Space, tool: str, data: bytes, seconds: float, environment: Mapping[str, str]) -> CallAnswer:
    """What the tool is told about a call. ``seconds``: how long it waits for its hook."""
    until = time.monotonic() + max(0.0, min(seconds * (1 - _MARGIN), seconds - _MARGIN_SECONDS))
    fields = event_in(data)
    event = fields["hook_event_name"]
    if event not in EVENTS.get(tool, ()):
        return CallAnswer("", "")
    options = space.local.config.prompts
    agent = agent_of(space, tool, fields, environment)
    where = os.fsencode(os.path.abspath(os.curdir))
    refusal = budget_refusal(space, agent) if agent is not None and event != PERMISSION else None
    if refusal is not None:
        return CallAnswer(DENY, refusal)
    forwarded = forwards(options, environment)
    rules = compile_rules(space, agent, answers.cache_key(tool, where, data), forwards=forwarded).rules
    verdict = evaluate(rules, action_of(fields, os.fsdecode(where)))
    if verdict.do in (DENY, ALLOW) or (not verdict.do and not (event == PERMISSION and forwarded)):
        return CallAnswer(verdict.do, reason(verdict))
    call = PromptedCall(tool, event, fields, agent or "", tool == "codex")
    return _asked(space, call, verdict, options, min(until - time.monotonic(), options.wait_seconds))


def _asked(space: Space, call: PromptedCall, verdict: RuleVerdict, options: PromptOptions, seconds: float) -> CallAnswer:
    if not call.agent:
        call = call._replace(agent=_awaited_agent(space, call) or "")
    if not call.agent:
        return CallAnswer(ASK, f"{reason(verdict)}. This session has no agent whose inbox could ask")
    return PermissionPrompt(space, call, verdict, options.grant_seconds).answer(seconds)


def forwards(options: PromptOptions, environment: Mapping[str, str]) -> bool:
    """Whether the tool's own permission prompts become questions, too."""
    return options.forward == "always" or (options.forward == "run" and bool(environment.get("CLIA_RUN")))


def agent_of(space: Space, tool: str, fields: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """The agent of the session or sub-agent that makes a call; None before it is known."""
    session, sub = fields.get("session_id"), fields.get("agent_id")
    if isinstance(session, str):
        captured = space.captures.get(tool, session, sub if isinstance(sub, str) else "") or space.captures.get(tool, session)
        if captured is not None and captured.agent:
            return captured.agent
    name = environment.get("CLIA_AGENT", "")
    return name if is_name(name) and space.captures.is_ours(name) else None


def _awaited_agent(space: Space, call: PromptedCall) -> str | None:
    """The agent, once the ingest of the session's start has made it."""
    until = time.monotonic() + _AGENT_SECONDS
    while True:
        agent = agent_of(space, call.tool, call.fields, {})
        if agent is not None or time.monotonic() > until:
            return agent
        time.sleep(_POLL_SECONDS)
