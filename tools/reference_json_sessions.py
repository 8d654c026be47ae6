"""What the commands of flows, sessions and decisions print with ``--json``: real output on a small space that is made for it.

Invariant: as in ``reference_json_space``: what differs from run to run is replaced, everything else is as it was printed.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from reference_json_space import made_up, newcomer, plant, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLOW = {
    "name": "the flow",
    "cid": "id of the version that is current, or of the one that was asked for",
    "versions": "ids of every version that was ever current, oldest first",
    "by": "who defined it; empty where one version was asked for",
    "at": "seconds since the epoch",
    "why": "as it was said when it was defined",
}
_REQUEST = {
    "agent": "who asks",
    "id": "names the session and the call",
    "kind": "what is asked for; `human` and `human-…` are questions to people",
    "tag": "what the flow calls it, or null",
    "payload": "as the flow gave it",
    "since": "when it was asked",
    "line": "in the flow's source",
    "session": "which session of the agent",
    "flow": "the flow's name",
}
_ASKED = {
    **_REQUEST,
    "question": "what to show a person: `question`, `prompt` or `title` of the payload, else the tag, else the kind",
    "choices": "the answers to choose from; empty: it cannot be told, or any will do",
    "schema": "the JSON Schema that an answer must meet: the operator's, else the request's own; null: any will do",
    "for_people": "whether nobody but a person answers it",
    "tried": "with `--all`, what workers made of it: `attempts`, `worker` and `until` of who has it, `next_at`, `error`; else null",
}
_SESSION = {
    "agent": "whose session",
    "id": "its number; those of `ask` are `ask-1`, `ask-2`, …",
    "status": "`suspended`, `finished`, `failed`, `diverged` or `cancelled`",
    "flow": "the flow's name",
    "flow_cid": "id of the flow's version",
    "started_at": "when it started; a fork has the time of the run that it copies",
    "ended_at": "when it ended, or null",
    "pending": "the requests that it waits for",
    **{f"pending[].{key}": told for key, told in _REQUEST.items()},
    "result": "what the flow returned, or null",
    "failure": "why it ended otherwise: `reason` and `message`; `line` and `trace` where the flow raised; `by` where it was "
    "cancelled; else null",
    "forked": "of a fork: `agent`, `session` and `commit` that it was copied from, and when (`at`); else null",
}
_ENDED = {key: told for key, told in _SESSION.items() if not key.startswith("pending[]")}
TOLD: dict[str, dict[str, str]] = {
    "Flow define": {**_FLOW, "changed": "false: it was current already, and nothing was written"},
    "Flow list": _FLOW,
    "Flow show": {**_FLOW, "source": "the source"},
    "Flow check": {
        "file": "what was checked",
        "works": "false, and exit code 1: there is an error",
        "problems": "what was found, by line",
        "problems[].code": "a word for the kind of problem",
        "problems[].message": "one sentence for a person",
        "problems[].line": "from 1",
        "problems[].column": "from 1",
        "problems[].severity": "`error`, or `warning` where it may work",
    },
    "Session start": _SESSION,
    "Session resume": _SESSION,
    "Session fork": _SESSION,
    "Inbox": _ASKED,
    "Decide": {
        "cid": "the decision's commit",
        "agent": "who asked",
        "request": "the request that it answers",
        "value": "the answer",
        "by": "who decided",
        "session": "the [session](#session-start) that it led to",
    },
    "Session show": {
        **_ENDED,
        "input": "what `main` was given",
        "resumes": 'the answers so far, in order; `{"error": …}` where a request was given up',
        "decisions": "which of them are decisions",
        "decisions[].position": "in `resumes`, from 0",
        "decisions[].commit": "the decision's commit",
        "journal": "with `--journal`: every event that is recorded. A `resume` is: number of the call, hash of the request, value, "
        "error, decision, by whom, when; without nulls at its end",
    },
    "Session cancel": _ENDED,
    "Session list": _SESSION,
    "Ask": _ASKED,
    "Answer": {
        "agent": "who asked",
        "request": "the request",
        "value": "the answer",
        "decision": "the decision's commit",
    },
    "Worker": {
        "running": "the attempts that run now: objects with `agent`, `request`, `kind`, `attempt` and `said`",
        "waiting": "how many requests wait for it",
        "next_at": "when the next of them can be tried, in seconds since the epoch, or null",
        "answered": "how many it has answered",
        "retried": "how many attempts failed and are made again",
        "given_up": "how many it gave up; the flow got an error",
        "gone": "how many were answered by others, or their session ended",
        "hanging": "how many handlers ran out of time and have not returned",
        "trouble": "why nothing goes on at this moment, or null",
        "last": "what became of the last attempt that brought no answer, or null",
        "problems": "what cannot be answered here",
        "problems[].kind": "the kind of request",
        "problems[].why": "why not",
        "adopted": "versions of behaviours that a policy made current, as `NAME CID`",
    },
}
CLOSED = {"payload", "schema", "tried", "failure", "forked", "session", "journal", "input", "result"}
_FLOW_SOURCE = """\
def main(input):
    plan = request("plan", {"boxes": input["boxes"]})
    verdict = request("human", {"question": "Count so?", "plan": plan, "choices": ["approve", "reject"]}, tag="count-so")
    return {"verdict": verdict, "plan": plan}
"""
_BROKEN = "def main(input):\n    return 1 +\n"
_REFUSED = ("flow check ../broken.py",)
_WAITING = "ask scout 'And now?' --wait"


def examples() -> list[tuple[str, str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        with newcomer(top), chdir(plant(top)):
            (top / "count.py").write_text(_FLOW_SOURCE, encoding="utf-8")
            (top / "broken.py").write_text(_BROKEN, encoding="utf-8")
            found = [(title, f"clia {words} --json", _printed(words)) for title, words in _tour()]
        shown = json.dumps([each for each in found if each[0]], ensure_ascii=False).replace(f"{top}/", "/")
    shown = re.sub(r'"seed": "\w+"', '"seed": "00000000000000000000000000000000"', made_up(shown))
    loaded: list[tuple[str, str, Any]] = json.loads(re.sub(r'"engine": "[^"]*"', '"engine": "engine 1.2.3"', shown))
    return loaded


def _tour() -> Iterator[tuple[str, str]]:
    """(title, words); what has no title is only done."""
    yield "", "init"
    yield "", "spawn scout --title 'Count the apples'"
    yield "Flow define", "flow define count ../count.py --message 'Ask before counting'"
    yield "Flow list", "flow list"
    yield "Flow show", "flow show count"
    yield "Flow check", "flow check ../broken.py"
    yield "Session start", "session start scout count --input '{\"boxes\": 7}'"
    yield "Session resume", "session resume scout 'Box by box'"
    yield "Session fork", "session fork scout other"
    yield "Inbox", "inbox scout"
    yield "Session list", "session list"
    yield "Decide", "decide scout approve --message 'It is sound.'"
    yield "Session show", "session show scout --journal"
    yield "Session cancel", "session cancel other --message 'One is enough.'"
    yield "Ask", "ask scout 'Which box first?' --choices left,right"
    yield "Answer", _WAITING
    yield "Worker", "worker --once"


def _printed(words: str) -> Any:
    if words != _WAITING:
        return printed(words, _REFUSED)
    answering = threading.Thread(target=_answer)
    answering.start()
    try:
        return printed(words, _REFUSED)
    finally:
        answering.join()


def _answer() -> None:
    """Somebody else answers the newest question."""
    with clia.open() as space:
        while len(waiting := space.pending("scout")) < 2:
            pass
        space.decide("scout", "go on", request_id=waiting[-1].id)
