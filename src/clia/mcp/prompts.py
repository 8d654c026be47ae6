"""Prompts: how to work in a space, and the prompts that a space keeps as behaviours."""

from __future__ import annotations

from mcp_types import GetPromptResult, Prompt, PromptMessage, TextContent

from clia.errors import InvalidInput, NotFound
from clia.mcp.behaviours import prompts as kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.mcp.place import Call

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
6. At the end, `journal` what the next session of this agent must know: what was decided, what failed, what is open.
"""


def listed(call: Call) -> list[Prompt]:
    space = call.space_or_none()
    own = Prompt(name=OWN, title="How to work in a clia space", description="Who you are, how to record, how to ask people.")
    found = [] if space is None else kept(space)
    return [
        own,
        *(Prompt(name=each.name, description=each.why or f"version {each.cid[:10]}") for each in found if each.name != OWN),
    ]


def rendered(call: Call, name: str, given: Mapping[str, str]) -> GetPromptResult:
    for key in given:
        raise InvalidInput(f"the prompt {name!r} takes no argument {key!r}", code="unknown-field", fields={"field": key})
    if name == OWN:
        return _prompt("How to work in a clia space", _HOW)
    space = call.space_or_none()
    for each in [] if space is None else kept(space):
        if each.name == name:
            return _prompt(each.why, each.body)
    known = [each.name for each in listed(call)]
    raise NotFound(
        f"there is no prompt {name!r}", code="no-such-prompt", hints=[f"prompts here: {', '.join(known)}"], fields={"prompt": name}
    )


def _prompt(said: str, text: str) -> GetPromptResult:
    return GetPromptResult(description=said or None, messages=[PromptMessage(role="user", content=TextContent(text=text))])
