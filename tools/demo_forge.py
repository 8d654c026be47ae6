"""Demo of the forge: a coloured trace, an answered question, and one open question of every kind."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TESTS = (
    "\x1b[1m$ pytest -q\x1b[0m\n\x1b[32m........\x1b[31mF\x1b[32m..\x1b[0m [100%]\n"
    "\x1b[31mFAILED\x1b[0m test_prices.py::\x1b[1mtest_cents\x1b[0m - assert 0.30000000000000004 == 0.3\n"
    "\x1b[33m1 failed\x1b[0m, 10 passed in 0.12s"
)
_FINDING = {
    "seen": "test_cents fails since the last release",
    "schema": {
        "type": "object",
        "properties": {
            "severity": {"enum": ["low", "medium", "high"], "title": "Severity"},
            "note": {"type": "string", "title": "Note", "description": "for the changelog"},
            "urgent": {"type": "boolean", "title": "Urgent"},
        },
        "required": ["severity", "urgent"],
    },
}
TOUR: tuple[tuple[str, str], ...] = (
    ("A test failed for scout; the trace has colours.", f"trace add scout '{_TESTS}' --kind stdout"),
    ("It records the finding.", "commit scout finding --set FINDINGS.md=../drafts/findings.md --trace -m 'Cents do not add up'"),
    ("It asks what to do.", "ask scout 'Shall I mend the test or the code?' --choices code,test"),
    ("You have already decided.", "decide scout code -m 'The test is right.'"),
    (
        "Another question: how bad is it? The forge shows a form for its schema.",
        f"ask scout 'How bad is the finding?' --context {shlex.quote(json.dumps(_FINDING))}",
    ),
    ("A question that takes any answer.", "ask scout 'Where should it look next?'"),
    (
        "Two questions with the same choices: the forge can answer both at once.",
        "ask scout 'May it refactor prices.py?' --choices yes,no",
    ),
    ("And the other.", "ask reviewer 'May it add a test for rounding?' --choices yes,no"),
    ("reviewer reviews scout.", "relate reviewer reviews scout"),
    ("A user who may only read.", "user add grace --name 'Grace Hopper' --email grace@example.org"),
)


def plant(repository: Path) -> None:
    """Write the files that the tour's commands use."""
    findings = "# Findings\n\n- 0.1 + 0.2 is not 0.3: round where money is shown.\n"
    (repository.parent / "drafts" / "findings.md").write_text(findings, encoding="utf-8")
