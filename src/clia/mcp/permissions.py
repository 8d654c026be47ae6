"""The tool for permission prompts of clients: Claude Code calls it with ``--permission-prompt-tool mcp__clia__permission_prompt``.

Invariant: nothing is allowed but by a rule, a grant or a person. Without an answer in time the call is refused.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from clia.capture.permissions.prompts import CallAnswer, PermissionPrompt, PromptedCall
from clia.capture.permissions.ruled_calls import PRE, action_of
from clia.mcp.caller import announced
from clia.mcp.toolbox import AgentName, ResultShape, tool
from clia.rules.evaluation import evaluate, reason
from clia.rules.model import ALLOW, DENY
from clia.verbs import ADMIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.mcp.calls import ToolCall


@tool(
    "Permission prompt",
    role=ADMIN,
    agents=True,
    names={"input_": "input"},
    returns=ResultShape(behavior=str, message=str, updatedInput=dict[str, Any]),
)
def permission_prompt(
    call: ToolCall,
    tool_name: Annotated[str, "name of the tool"],
    input_: Annotated[Mapping[str, Any], "its arguments"],
    tool_use_id: Annotated[str, "id of the call"] = "",
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Asks a person whether a call of a tool may run, and waits for the answer. For clients that delegate their permission prompts;
    agents do not call it themselves."""
    fields = {
        "tool_name": tool_name,
        "tool_input": dict(input_),
        "tool_use_id": tool_use_id,
        "cwd": os.path.abspath(call.place.path),
    }
    fields["session_id"] = announced(call.space, call.origin, call.place.session).session
    answer = _answer(call, call.agent(agent), fields)
    is_allowed = answer.do == ALLOW
    return {"behavior": ALLOW if is_allowed else DENY, "message": answer.reason, "updatedInput": dict(input_)}


def _answer(call: ToolCall, agent: str, fields: Mapping[str, Any]) -> CallAnswer:
    identities, options = call.space.identities, call.space.local.config.prompts
    rules = [identities.shown(rule) for rule in identities.rules_in_force(agent)]
    verdict = evaluate(rules, action_of(fields, call.place.path))
    if verdict.do in (DENY, ALLOW):
        return CallAnswer(verdict.do, reason(verdict))
    with call.place.waits.room(call.caller.name) as free, open(os.devnull, "rb") as nowhere:
        if not free:
            return CallAnswer(DENY, "too many calls are already waiting for people")
        prompted = PromptedCall("claude-code", PRE, fields, agent, is_repeated=True)
        return PermissionPrompt(call.space, prompted, verdict, options.grant_seconds).answer(options.wait_seconds, nowhere.fileno())
