"""Permission prompts of coding tools as questions to people: asking, waiting, and grants.

Invariant: a prompt is one request, whichever process dies meanwhile: the request names the call, and a hook that comes again for
this call joins it. An answer is used for one call. Without an answer in time the tool asks in its own way; nothing is allowed by
timeout. A grant is the decision ``always``; it counts for this agent and the same call until it expires or is revoked.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from clia.capture.permissions.call_texts import question_payload, scope_of
from clia.capture.permissions.ruled_calls import PERMISSION
from clia.errors import CliaError, Conflict, NotFound
from clia.git.lock_files import is_locked
from clia.rules.evaluation import reason
from clia.rules.model import ALLOW, ASK, DENY
from clia.sessions.model import INTERNAL
from clia.sessions.records import ASK as ASKED
from clia.store import private_files
from clia.values import refs as names
from clia.values.canonical import digest
from clia.values.clock import timestamp
from clia.verbs import require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.facade.space import Space
    from clia.rules.evaluation import RuleVerdict
    from clia.sessions.model import Request, Session

ALWAYS, REVOKED = "always", "revoked"
YES = (ALLOW, ALWAYS, "approve", "yes", True)
PROMPT = INTERNAL
"""The field of a question's payload that is for clia: which call of which session asked, and what a grant would cover."""
_ROW = "permissions/"
_ROWS_MAX = 200
_LOOK_MS, _LOOK_SECONDS = 20, 1.0


class CallAnswer(NamedTuple):
    """What a tool is told about a call."""

    do: str  # `allow`, `deny`, `ask` (the tool asks in its own way), or empty: nothing
    reason: str


class PromptedCall(NamedTuple):
    """A call that a tool announced."""

    tool: str
    event: str  # name of the hook's event
    fields: Mapping[str, Any]
    agent: str
    is_repeated: bool = False  # whether the call is refused without an answer, so that the model repeats it under another id

    @property
    def key(self) -> str:
        """The call: its id, or what it does in its session if the tool reports no ids."""
        call = self.fields.get("tool_use_id")
        return f"{self.session}/{call if isinstance(call, str) and call else scope_of(self.fields)}"

    @property
    def session(self) -> str:
        return f"{self.tool}/{self.fields.get('session_id')}/{self.fields.get('agent_id') or ''}"


class CallGrant(NamedTuple):
    """A standing permission: a decision to allow the same call of an agent until a time."""

    decision: str  # commit of the decision
    agent: str  # the agent that may do it
    request: str  # request that was answered with `always`
    tool: str  # name of the tool
    command: str  # the command line that may be repeated; empty for other tools
    files: tuple[str, ...]  # the files that may be changed
    by: str  # who granted it
    until: str  # when it expires, RFC 3339
    state: str  # `active`, `expired` or `revoked`
    scope: str  # digest of the call that it allows
    rules: tuple[str, ...] = ()  # digests of the rules that were shown; another rule asks again


def grants(space: Space, agent: str | None = None) -> list[CallGrant]:
    """The grants of an agent or of all, newest first; also expired and revoked ones."""
    now = timestamp(space.local.clock())
    entries = [session for session in space.sessions.questions(agent) if session.result in (ALWAYS, REVOKED)]
    revoked = {_field(session, "revokes") for session in entries if session.result == REVOKED}
    listed = [_grant(session, now, revoked) for session in entries if session.result == ALWAYS]
    return sorted((grant for grant in listed if grant is not None), key=lambda grant: grant.until, reverse=True)


def _field(session: Session, name: str) -> Any:
    payload = session.input
    entries = payload.get(PROMPT) if isinstance(payload, dict) else None
    return entries.get(name) if isinstance(entries, dict) else None


def _grant(session: Session, now: str, revoked: set[Any]) -> CallGrant | None:
    answers, until, scope = session.given(), _field(session, "until"), _field(session, "scope")
    if not answers or answers[-1].decision is None or not isinstance(until, str) or not isinstance(scope, str):
        return None
    decision, payload = answers[-1].decision, session.input
    state = REVOKED if decision in revoked else "active" if until > now else "expired"
    files = tuple(file for file in payload.get("files") or () if isinstance(file, str))
    request = f"{session.id}.{answers[-1].call}"
    command, by = str(payload.get("command") or ""), str(answers[-1].by or "")
    rules = tuple(str(rule) for rule in _field(session, "rules") or ())
    return CallGrant(decision, session.agent, request, str(payload.get("tool")), command, files, by, until, state, scope, rules)


def _rules_in(verdict: RuleVerdict) -> list[str]:
    """What identifies the rules that a verdict follows."""
    rules = (match.rule._replace(path="", pointer="") for match in verdict.matches)
    return sorted({digest(json.loads(json.dumps(rule))) for rule in rules})  # tuples as lists


def revoke(space: Space, grant: CallGrant, why: str, by: str | None) -> str:
    """Revoke a grant: a decision commit of its own, which names the grant's. Returns its id. A refused one asks nothing."""
    require_person(space.local.agent, f"ask a person: clia ask {grant.agent} QUESTION")
    what = grant.command or ", ".join(grant.files) or grant.tool
    payload = {
        "question": f"Revoke the permission of {grant.agent}: {what}?",
        "choices": [REVOKED],
        PROMPT: {"revokes": grant.decision},
    }
    request = space.sessions.ask_for_clia(grant.agent, payload)
    try:
        return space.sessions.decide(grant.agent, REVOKED, why, by=by, request_id=request.id).cid
    except BaseException:
        with suppress(CliaError):
            space.sessions.cancel(grant.agent, "the grant was not revoked", session_id=request.session)
        raise


def grant_named(space: Space, text: str) -> CallGrant:
    """The grant whose decision starts with a text."""
    matches = [grant for grant in grants(space) if grant.decision.startswith(text)] if len(text) >= 4 else []
    if len(matches) != 1:
        hints = ["clia agents grants lists them, with their decisions"]
        raise NotFound(
            f"no grant {text!r}" if not matches else f"several grants start with {text!r}", code="no-such-grant", hints=hints
        )
    return matches[0]


class PermissionPrompt:
    """One call of a tool that needs a person."""

    def __init__(self, space: Space, call: PromptedCall, verdict: RuleVerdict, grant_seconds: float) -> None:
        self._space = space
        self._call = call
        self._verdict = verdict
        self._grant_seconds = grant_seconds
        self.request = ""
        """The request, once people are asked."""

    def answer(self, seconds: float, out: int = 1) -> CallAnswer:
        """Ask, and wait up to ``seconds`` for the answer. ``out``: what the tool reads; it is closed if the tool has died."""
        scope = scope_of(self._call.fields)
        now, rules = timestamp(self._space.local.clock()), set(_rules_in(self._verdict))
        for grant in grants(self._space, self._call.agent) if self._verdict.risk != "high" else ():
            if grant.state == "active" and grant.scope == scope and grant.until > now and rules <= set(grant.rules):
                return CallAnswer(ALLOW, f"granted by {grant.by} until {grant.until} (decision {grant.decision[:12]})")
        with self._locked("asking"):
            self.request = self._request(scope)
        with waiting(self._space, self._call.agent, self.request):
            return self._wait(self.request, time.monotonic() + seconds, out)

    def _request(self, scope: str) -> str:
        """The request for this call: the one that an earlier hook made for it, else a new one."""
        agent, key = self._call.agent, self._call.key
        row = self._space.local.store.get(_ROW + agent)
        entries = {} if row is None else row.value
        for request, entry in entries.items():
            if entry["scope"] != scope:
                continue  # an id alone could be used for another call
            same_call = entry["key"] == key and (not entry["used"] or "/toolu_" in key or "/call_" in key)
            follows = self._call.event == PERMISSION and entry["session"] == self._call.session
            if same_call or (follows and entry["used"] != PERMISSION) or self._repeats(request, entry):
                return str(request)
        request_id = self._unkept_request(key, scope)
        if request_id is None:
            until = timestamp(self._space.local.clock() + timedelta(seconds=self._grant_seconds))
            payload = question_payload(self._call.tool, self._call.fields, self._verdict, until)
            internal = {
                "key": key,
                "scope": scope,
                "until": until,
                "session": self._call.session,
                "rules": _rules_in(self._verdict),
            }
            request_id = self._space.sessions.ask_for_clia(agent, {**payload, PROMPT: internal}).id
        self._note(request_id, scope, "")
        return request_id

    def _unkept_request(self, key: str, scope: str) -> str | None:
        """The request that a hook asked for this call and was killed before it kept that. It may be answered by now."""
        has_id = "/toolu_" in key or "/call_" in key
        for session in self._space.sessions.questions(self._call.agent):
            if (session.live or has_id) and (_field(session, "key"), _field(session, "scope")) == (key, scope):
                return f"{session.id}.1"
        return None

    def _repeats(self, request: str, entry: Mapping[str, Any]) -> bool:
        """Whether this call is a refused one again, whose answer was not used."""
        is_unused = (entry["session"], entry["used"]) == (self._call.session, "")
        return self._call.is_repeated and is_unused and not _is_held(self._space, self._call.agent, request)

    def _note(self, request: str, scope: str, used: str) -> None:
        with self._space.local.store.writing() as transaction:
            row = transaction.values.get(_ROW + self._call.agent)
            entries = dict({} if row is None else row.value)
            entries[request] = {"key": self._call.key, "scope": scope, "session": self._call.session, "used": used}
            transaction.values.put(_ROW + self._call.agent, dict(list(entries.items())[-_ROWS_MAX:]))

    def _wait(self, request: str, until: float, out: int) -> CallAnswer:
        session = request.rpartition(".")[0]
        watched, last_state, looked, moved = self._watched(), (), 0.0, 0.0
        poller = select.poll()
        poller.register(out, 0)  # only errors: the tool closed its end
        while True:
            state, now = _facts(watched), time.monotonic()
            if state != last_state:
                last_state, moved = state, now
            # A decision is a commit first, and then an answer to the session.
            if now - moved < _LOOK_SECONDS or now - looked > _LOOK_SECONDS:
                looked = now
                answer = answer_of(self._space, self._call.agent, session)
                if answer is not None:
                    self._note(request, scope_of(self._call.fields), self._call.event)
                    return answer
            if now >= until:
                break
            if poller.poll(_LOOK_MS):
                return CallAnswer("", "the tool is gone")
        why = f"{request} of {self._call.agent} was not answered in time"
        return CallAnswer(ASK, f"{why}: {reason(self._verdict)}. Repeat the call when it is answered")

    def _watched(self) -> tuple[str, ...]:
        common = os.path.dirname(self._space.home)
        return tuple(os.path.join(common, name) for name in (names.head(self._call.agent), "packed-refs"))

    @contextmanager
    def _locked(self, what: str) -> Iterator[None]:
        """One hook at a time looks for a request and makes it."""
        with _lock_file(self._space, f"{self._call.agent}.{what}") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _facts(paths: tuple[str, ...]) -> tuple[Any, ...]:
    facts: list[Any] = []
    for path in paths:
        try:
            status = os.stat(path)
            facts.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            facts.append(None)
    return tuple(facts)


def answer_of(space: Space, agent: str, session_id: str) -> CallAnswer | None:
    """What people answered; None: nothing yet."""
    session = space.sessions.get(agent, session_id)
    if session.live:
        return None
    answers = session.given()
    if not answers or answers[-1].decision is None:
        return CallAnswer(ASK, f"the question was closed: {(session.failure or {}).get('message') or session.status}")
    value, by = answers[-1].value, answers[-1].by or "a person"
    if value in YES:
        return CallAnswer(ALLOW, f"{by} allowed it (decision {answers[-1].decision[:12]})")
    message = space.show(answers[-1].decision).message
    why = "" if message.startswith("decision: ") else message
    text = why or (str(value) if value not in (DENY, False, None) else "")
    return CallAnswer(DENY, f"{by} refused it{f': {text}' if text else ''}")


# Whether a tool still waits


@contextmanager
def _lock_file(space: Space, name: str) -> Iterator[int]:
    directory = os.path.join(space.home, "prompts")
    private_files.make_directory(directory)
    file = private_files.open_file(os.path.join(directory, name), os.O_RDWR | os.O_CREAT)
    try:
        yield file
    finally:
        os.close(file)  # releases the lock


@contextmanager
def waiting(space: Space, agent: str, request: str) -> Iterator[None]:
    """Hold the mark that a tool waits for a request; the kernel removes it when the process dies."""
    with _lock_file(space, f"{agent}.{request}") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
        with suppress(OSError):
            os.unlink(_prompt_file(space, agent, request))


def is_waited_for(space: Space, request: Request) -> bool | None:
    """Whether a tool on this machine waits for a request; None if it is not a permission prompt."""
    return _is_held(space, request.agent, request.id) if is_prompt(request) else None


def _is_held(space: Space, agent: str, request: str) -> bool:
    return is_locked(_prompt_file(space, agent, request)) is True


def _prompt_file(space: Space, agent: str, request: str) -> str:
    return os.path.join(space.home, "prompts", f"{agent}.{request}")


def is_prompt(request: Request) -> bool:
    """Whether a request is a permission prompt of a tool."""
    return "key" in prompt_of(request)


def prompt_of(request: Request) -> Mapping[str, Any]:
    """What a question says about the prompt that it is for; empty for other requests."""
    payload = request.payload
    entries = payload.get(PROMPT) if request.session.startswith(ASKED) and isinstance(payload, dict) else None
    return entries if isinstance(entries, dict) else {}


def close_abandoned(space: Space) -> list[str]:
    """Close the prompts of tool sessions that have ended; a tool that is gone without a word keeps its prompts open, marked."""
    ended = {f"{row.tool}/{row.session}/{row.sub}" for row in space.captures.sessions() if not row.open}
    closed = []
    for request in space.sessions.pending() if ended else ():
        if is_prompt(request) and prompt_of(request).get("session") in ended and not is_waited_for(space, request):
            with suppress(NotFound, Conflict):
                space.sessions.cancel(request.agent, "the tool's session ended without the answer", session_id=request.session)
                closed.append(request.id)
    return closed
