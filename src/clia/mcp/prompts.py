"""Prompts: how to work in a space, and the prompts that a space keeps as behaviours.

Invariant: only the current version of a prompt is one here: what is proposed, on trial or retired is not. It is rendered as a
briefing is; what nobody has said is put in words, as in a skill.
"""

from __future__ import annotations

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from clia.behaviours.rendering import AGENT, TASK, TITLE, in_words, places
from clia.errors import InvalidInput, NotFound
from clia.mcp.behaviours import prompts as kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.behaviours.model import BehaviourVersion
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
6. Where a prompt or a flow that you work by keeps failing, read `behaviour_show` and the evidence that it names, then
   `behaviour_propose` a better version with the commits that show why. It does not run until a person has adopted it.
7. At the end, `journal` what the next session of this agent must know: what was decided, what failed, what is open.
"""


_ARGUMENTS = {
    TASK: "what is to be done; it stands where the prompt has a place for it, else at its end",
    TITLE: "the task in a line",
    AGENT: "who is to do it (default: yourself, where that is known)",
}


def listed(call: Call) -> list[Prompt]:
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
    left = places(version.body)
    return [each for each in _ARGUMENTS if each == TASK or each in left]


def rendered(call: Call, name: str, given: Mapping[str, str]) -> GetPromptResult:
    space = call.space_or_none()
    found = None if name == OWN or space is None else next((each for each in kept(space) if each.name == name), None)
    if found is None and name != OWN:
        raise _unknown(name, [each.name for each in listed(call)])
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
    agent = given.get(AGENT) or (_caller(call) if AGENT in known else "")
    return _prompt(_said(found), in_words(found.body, given.get(TASK, ""), agent=agent, title=given.get(TITLE, "")))


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
