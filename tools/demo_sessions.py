"""Demo of sessions: two agents run flows and wait for an answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = """\
def main(input):
    version, changes = input["version"], input["changes"]
    text = f"# {version}\\n\\n" + "".join(f"- {each}\\n" for each in changes)
    notes = request("commit", {"changes": {"NEWS.md": text}, "message": f"News of {version}"})
    verdict = request("human", {
        "question": f"Release {version}?",
        "changes": changes,
        "notes": notes["commit"][:10],
        "choices": ["approve", "later", "reject"],
    })
    return {"version": version, "verdict": verdict}
"""
ROUNDING = """\
def main(input):
    wanted = request("human", {
        "question": "Should totals be rounded to cents at the end?",
        "seen": "0.1 + 0.2 is 0.30000000000000004",
        "schema": {"type": "boolean"},
    })
    return {"round": wanted}
"""
_INPUT = '{{"version": "2.1", "changes": ["Prices add up more quickly", "Totals are rounded"]}}'  # the tour is a format

TOUR: tuple[tuple[str, str], ...] = (
    ("A flow is a small program that stops wherever it asks for something. Could this one run?", "flow check {release}"),
    ("It is kept in git, under a name.", "flow define release {release} -m 'Somebody looks at each release'"),
    ("And another.", "flow define rounding {rounding}"),
    ("lead runs the first. It asks for a commit, which is no question to you.", f"session start lead release --input '{_INPUT}'"),
    ("reviewer runs the second. It asks you at once.", "session start reviewer rounding"),
    ("A worker answers what is not for people, and lead's flow goes on.", "worker --once"),
    ("Where are they?", "session list"),
    ("What waits for you?", "inbox"),
)
ANSWERS = (
    ("be shown the question, and asked", "decide lead"),
    (
        "or answer one of several at once, with your reason",
        "decide reviewer true --request 1.1 -m 'Nobody pays a hundredth of a cent'",
    ),
    ("then see what became of it: an answer is a commit", "log reviewer"),
)


def plant(directory: Path) -> dict[str, str]:
    """The files of the flows, beside a repository."""
    flows = directory.parent / "flows"
    flows.mkdir()
    for name, text in (("release", RELEASE), ("rounding", ROUNDING)):
        (flows / f"{name}.py").write_text(text, encoding="utf-8")
    return {name: os.path.relpath(flows / f"{name}.py", directory) for name in ("release", "rounding")}
