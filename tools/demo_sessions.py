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
    ("A flow is a small program that suspends at each request. Is this one valid?", "flow check {release}"),
    ("It is stored in git, under a name.", "flow define release {release} -m 'A person reviews each release'"),
    ("And another.", "flow define rounding {rounding}"),
    ("lead runs the first. It requests a commit, which needs no person.", f"session start lead release --input '{_INPUT}'"),
    ("reviewer runs the second. It asks you a question.", "session start reviewer rounding"),
    ("A worker handles the request, and lead's flow continues.", "worker --once"),
    ("What is the state of the sessions?", "session list"),
    ("What waits for you?", "inbox"),
)
ANSWERS = (
    ("show the question and ask for an answer", "decide lead"),
    (
        "or answer one of several directly, with your reason",
        "decide reviewer true --request 1.1 -m 'Nobody pays a hundredth of a cent'",
    ),
    ("then see the result: an answer is a commit", "log reviewer"),
)


def plant(directory: Path) -> dict[str, str]:
    """Write the files of the flows next to a repository."""
    flows = directory.parent / "flows"
    flows.mkdir()
    for name, text in (("release", RELEASE), ("rounding", ROUNDING)):
        (flows / f"{name}.py").write_text(text, encoding="utf-8")
    return {name: os.path.relpath(flows / f"{name}.py", directory) for name in ("release", "rounding")}
