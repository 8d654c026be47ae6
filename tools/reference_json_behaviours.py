"""What the commands on behaviours print with ``--json``: real output on a small space that is made for it.

Invariant: as of the commands on a space: what differs from run to run is replaced by what does not.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from reference_json_space import made_up, newcomer, plant, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = {
    "name": "the behaviour",
    "cid": "the version",
    "kind": "`session-flow` or `prompt`",
    "state": "`current`, `adopted`, `proposed`, `retired` or `foreign`",
    "parent": "the version that it came from, or null",
    "notes": "what there is to know of it",
    "by": "who brought it here first",
    "at": "seconds since the epoch",
    "why": "and why",
    "evidence": "the commits that it was proposed, tried or adopted on",
    "origin": "the peer whose version it is, or null",
}
_CHANGED = {**_VERSION, "changed": "false: it was so already, and nothing was written"}
_KNOWN = {
    "name": "the behaviour",
    "kind": "`session-flow` or `prompt`",
    "current": "what the name means; null: nothing is adopted, or it was retired",
    "versions": "oldest first",
    **{f"versions[].{key}": told for key, told in _VERSION.items()},
    "history": "what happened, newest first",
    "history[].commit": "the commit on its chain",
    "history[].event": "`define`, `propose`, `trial`, `adopt` or `retire`",
    "history[].cid": "of which version",
    "history[].by": "who did it",
    "history[].at": "seconds since the epoch",
    "history[].why": "and why",
    "history[].evidence": "the commits that it rests on",
    "history[].measure": "what it was judged by, where a policy did it",
}
_RATE = {
    "measure": "of which measure",
    "good": "how many went well",
    "n": "of how many",
    "rate": "the share; null: there were none",
    "low": "lower end of its interval",
    "high": "upper end",
}
_STATS = {
    "cid": "the version",
    "name": "of which behaviour; null: no chain here has it",
    "state": "how it stands, or null",
    "commits": "how many, by kind",
    "sessions": "by how they ended",
    "decisions": "`approved`, `rejected`, `other`",
    "merges": "`merged`, `refused`",
    "outcomes": "`passed`, `failed`",
    "landed": "how many landings",
    "reverted": "how many of them were reverted",
    "merge_seconds": "from the oldest commit to the merge: `n`, `median`, `p90`",
    "land_seconds": "the same for landings",
    "trace": "`entries` and `bytes`",
    "tokens": "`input` and `output`, where traces name them",
    "first": "the day of the first observation, or null",
    "last": "and of the last",
    "rates": "every measure of which there is something",
    **{f"rates[].{key}": told for key, told in _RATE.items()},
    "series": "with `--over`: the rates of each span",
    "series[].start": "its first day",
    "series[].rates": "as above",
    **{f"series[].rates[].{key}": told for key, told in _RATE.items()},
}
_GAPS = {"gaps": "how much of the record could not be told, since this clone has only part of it"}
_STEPS = {
    "kind": "of the request",
    "tag": "its tag, or null",
    "payload": "what it asked",
    "line": "where in the flow",
    "answered": "whether there is an answer",
    "recorded": "which of the recorded requests it is, from 1; null: it is none of them",
    "value": "the answer",
    "error": "or the error that it was answered with",
}
TOLD: dict[str, dict[str, str]] = {
    "Behaviour add": _CHANGED,
    "Behaviour propose": _CHANGED,
    "Behaviour diff": {"before": "a version", "after": "the other", "patch": "what that changes"},
    "Behaviour replay": {
        "agent": "whose session",
        "session": "which",
        "flow": "the version that ran",
        "with": "the version that it was tried with",
        "same": "the same requests in the same order, to the same end",
        "steps": "what that one asked for, in order",
        **{f"steps[].{key}": told for key, told in _STEPS.items()},
        "departs_at": "the first request, from 1, that differs from the recorded one there, or null",
        "recorded": "what the session asked for, in order",
        **{f"recorded[].{key}": told for key, told in _STEPS.items()},
        "unasked": "the recorded requests that were never made",
        "ended": "false: it waits for what nobody has answered",
        "result": "what it returned",
        "failure": "or why it failed: `reason` and `message`",
        "recorded_status": "how the session stands",
        "recorded_result": "what that returned",
        "recorded_failure": "or why that failed",
        "printed": "what it printed",
        "in_part": "whether the store has lost the session, and git has not all of its answers",
    },
    "Behaviour adopt": _CHANGED,
    "Behaviour list": _KNOWN,
    "Behaviour show": {**_KNOWN, "body": "of the current version, or null"},
    "Show a version": {**_VERSION, "body": "the prompt, or the flow's source"},
    "Behaviour lineage": {
        **{key: _KNOWN[key] for key in ("name", "kind", "current", "versions")},
        "measure": "of which the rates are",
        **{f"versions[].{key}": _VERSION[key] for key in ("cid", "state", "parent", "by", "at", "why")},
        "versions[].children": "the versions that came from it",
        "versions[].rate": "as in [stats](#behaviour-stats); null: never observed",
        **_GAPS,
    },
    "Behaviour stats": {
        "measure": "what was asked for, or null",
        "over": "`day`, `week` or `month`, or null",
        **_GAPS,
        "versions": "what was observed of each",
        **{f"versions[].{key}": told for key, told in _STATS.items()},
    },
    "Behaviour compare": {
        "before": "what was observed of the one, as in [stats](#behaviour-stats)",
        "after": "and of the other",
        "measures": "every measure of which either has something",
        "measures[].measure": "which",
        "measures[].before": "the rate of the one",
        "measures[].after": "the rate of the other",
        "measures[].better": "the probability that the later rate is the higher one; null: one was never observed",
        "measures[].low": "what the later has over the other: lower end of the interval",
        "measures[].high": "upper end",
        "measures[].proven": "1: the later is shown to be better, -1: the earlier, 0: neither",
        "measures[].verdict": "`better`, `worse` or `no-difference`, of the later; below 20 of either `not-enough-data`",
        **_GAPS,
    },
    "Behaviour suggest": {
        "name": "the behaviour",
        "action": "`adopt`, `keep`, `retire` or `not-enough-data`",
        "cid": "the version that it is about, or null",
        "measure": "what was judged by",
        "current": "the rate of the current version",
        **{f"current.{key}": told for key, told in _RATE.items()},
        "candidates": "each version that might take its place",
        "candidates[].cid": "the version",
        "candidates[].state": "how it stands",
        "candidates[].compared": "with the current one, as in [compare](#behaviour-compare)",
        "candidates[].needed": "about how many more observations of each would show the difference as it looks now, or null",
        "why": "in a sentence",
        "evidence": "the newest commits that say so",
        "least": "observations of each that a suggestion takes",
        "error": "how probable one may be of versions that are equally good",
        "expect": "what was current",
        "next": "the command that follows, or null",
        **_GAPS,
    },
    "Behaviour retire": {**_CHANGED, "current": "what the name means now, or null"},
}
# What was counted names itself; the others are described once.
CLOSED = {"commits", "sessions", "decisions", "merges", "outcomes", "trace", "tokens", "payload", "compared", "rate"}
CLOSED |= {"before", "after", "failure", "recorded_failure"}
_FIRST = 'def main(input):\n    return int(request("supplier", {"how many": input}))\n'
_BETTER = 'def main(input):\n    return int(request("supplier", {"how many": input}).split()[0])\n'


def examples() -> list[tuple[str, str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        with newcomer(top), chdir(plant(top)):
            (top / "count.py").write_text(_FIRST, encoding="utf-8")
            (top / "better.py").write_text(_BETTER, encoding="utf-8")
            found = [(title, f"clia {words} --json", printed(words)) for title, words in _tour()]
        shown = json.dumps([each for each in found if each[0]], ensure_ascii=False)
    shown = re.sub(r'"\d{4}-\d\d-\d\d"', '"2026-01-31"', made_up(shown))
    # Of a long fraction the last digits are the machine's.
    loaded: list[tuple[str, str, Any]] = json.loads(re.sub(r"\b\d\.\d{5,}\b", lambda found: f"{float(found[0]):.4f}", shown))
    return loaded


def _tour() -> Iterator[tuple[str, str]]:
    """(title, words); what has no title is only done."""
    yield "", "init"
    yield "", "spawn scout --title 'Count the apples'"
    yield "Behaviour add", "behaviour add count ../count.py --message 'Ask, then count'"
    yield "", "session start scout count --input '\"apples\"'"
    yield "", "session resume scout '\"4 boxes\"'"
    yield (
        "Behaviour propose",
        "behaviour propose count --from ../better.py --agent scout --evidence agents/scout --message 'In words, too'",
    )
    with clia.open() as space:
        first, second = (each.cid for each in space.behaviour("count").versions)
    yield "Behaviour diff", "behaviour diff count"
    yield "Behaviour replay", f"behaviour replay --session scout/1 --with {second}"
    yield "Behaviour adopt", f"behaviour adopt count {second} --trial"
    yield "", f"session start scout {second} --input '\"apples\"'"
    yield "", "session resume scout '\"4 boxes\"'"
    yield "Behaviour list", "behaviour list"
    yield "Behaviour show", "behaviour show count"
    yield "Show a version", f"behaviour show {second}"
    yield "Behaviour lineage", "behaviour lineage count"
    yield "Behaviour stats", "behaviour stats count --over week"
    yield "Behaviour compare", f"behaviour compare {first} {second}"
    yield "Behaviour suggest", "behaviour suggest count"
    yield "Behaviour retire", f"behaviour retire count {second}"
