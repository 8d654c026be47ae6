"""Rules on requests to workers: what guardrails say before a handler runs.

Invariant: a request that a rule asks about has one question, which names the request; every attempt looks for its answer. Until it
is answered the request is postponed, which does not count as a failed attempt.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from clia.errors import Conflict, NotAllowed
from clia.rules.evaluation import RuledAction, evaluate, reason
from clia.rules.model import ALLOW, ASK, COMMAND, DENY, EFFECT
from clia.values.canonical import digest
from clia.workers.retries import WAITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.facade.space import Space
    from clia.rules.evaluation import RuleVerdict
    from clia.sessions.model import Request, Session
    from clia.workers.effects.context import Context

_ROW = "effect-questions/"
_ROWS_MAX = 200
_INPUT_MAX = 20_000


def check_rules(context: Context) -> None:
    """Raise ``NotAllowed`` if a rule or a person refuses a request, and ``Conflict`` while a person is asked."""
    request = context.request
    context.space.budgets.check(request.agent)
    rules = context.space.identities.rules_in_force(request.agent)
    if not rules:
        return
    verdict = evaluate(map(context.space.identities.shown, rules), action_of(context))
    fields = {"agent": request.agent, "request": request.id}
    if verdict.do == DENY:
        raise NotAllowed(f"{request.kind}: denied by a guardrail: {reason(verdict)}", code="denied-by-rule", fields=fields)
    if verdict.do == ASK:
        _check_answer(context, verdict)


def action_of(context: Context) -> RuledAction:
    """A request as rules see it."""
    request = context.request
    payload = request.payload if isinstance(request.payload, dict) else {}
    if request.kind != COMMAND:
        return RuledAction(EFFECT, effect=request.kind)
    name = str(payload.get("program") or "")
    rule, args = context.config.programs.get(name), payload.get("args")
    arguments = [str(word) for word in args] if isinstance(args, list) else []
    words = (*(rule.run if rule is not None else (name,)), *arguments)
    given_text = payload.get("stdin")
    if isinstance(given_text, str) and given_text:  # a program text, if the program is an interpreter
        delimiter = f"END-{digest(given_text)[:12]}"
        return RuledAction(
            COMMAND, command=f"{shlex.join(words)} <<'{delimiter}'\n{given_text}\n{delimiter}", program=name, effect=request.kind
        )
    return RuledAction(COMMAND, command=words, program=name, effect=request.kind)


def _check_answer(context: Context, verdict: RuleVerdict) -> None:
    request, space = context.request, context.space
    question = _question(space, request, verdict, action_of(context))
    fields = {"agent": request.agent, "request": request.id, "question": f"{question.id}.1"}
    if question.live:
        message = f"{request.kind}: a person is asked first: {reason(verdict)}"
        raise Conflict(message, code=WAITS, hints=[f"clia decide {request.agent} --request {question.id}.1"], fields=fields)
    answers = question.given()
    if not answers or answers[-1].value != ALLOW or answers[-1].decision is None:
        by = answers[-1].by if answers else "the question was closed"
        raise NotAllowed(f"{request.kind}: refused by {by}: {reason(verdict)}", code="denied-by-person", fields=fields)


def _question(space: Space, request: Request, verdict: RuleVerdict, action: RuledAction) -> Session:
    """The question about a request: the one that was asked, else a new one."""
    key = f"{request.id}@{request.since}"
    row = space.local.store.get(_ROW + request.agent)
    questions: Mapping[str, str] = {} if row is None else row.value
    if key in questions:
        return space.sessions.get(request.agent, questions[key])
    # A worker that was killed after it asked did not record the question's id; the question may be answered by now.
    known_session = next((one.id for one in space.sessions.questions(request.agent) if _key(one) == key), None)
    session = known_session or space.sessions.ask_for_clia(request.agent, _payload(request, verdict, action, key)).session
    with space.local.store.writing() as transaction:
        stored = transaction.values.get(_ROW + request.agent)
        newest = {**({} if stored is None else stored.value), key: session}
        transaction.values.put(_ROW + request.agent, dict(list(newest.items())[-_ROWS_MAX:]))
    return space.sessions.get(request.agent, session)


def _key(question: Session) -> Any:
    internal = question.input.get("clia") if isinstance(question.input, dict) else None
    return internal.get("effect") if isinstance(internal, dict) else None


def _payload(request: Request, verdict: RuleVerdict, action: RuledAction, key: str) -> dict[str, Any]:
    command = " ".join(action.command or ()) if not isinstance(action.command, str) else action.command
    what = f"run: {command.partition(chr(10))[0]}" if command else f"do: {request.kind}"
    payload: dict[str, Any] = {
        "question": f"May a worker {what[:200]}?",
        "choices": [ALLOW, DENY],
        "for_request": request.id,
        "clia": {"effect": key},
    }
    if command:
        payload["command"] = command
    else:
        payload["input"] = json.dumps(request.payload, ensure_ascii=False)[:_INPUT_MAX]
    if verdict.rule is not None:
        payload["rule"] = {"guardrail": verdict.rule.text, "file": verdict.rule.path, "at": verdict.rule.pointer}
    return payload | ({"risk": verdict.risk} if verdict.risk else {})
