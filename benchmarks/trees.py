"""The lineage tree of the benchmark: 20 levels, three documents of realistic size each, 200 submodules.

Sizes follow triads in real use: a profile of about 8 KB, an agenda of about 8 KB, and an agency with some 75 entries.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

LEVELS, SUBMODULES, ENTRIES = 20, 200, 78


def plant(root: Path) -> Path:
    """Create the tree and return the innermost directory."""
    (root / ".git").mkdir(parents=True)
    (root / ".gitmodules").write_text(
        "".join(f'[submodule "m{n}"]\n\tpath = modules/m{n}\n\turl = ../m{n}\n' for n in range(SUBMODULES))
    )
    where = root
    for level in range(LEVELS):
        home = where / ".clia/agents/scout"
        home.mkdir(parents=True)
        for kind, document in (("agent", agent(level)), ("agenda", agenda(level)), ("agency", agency(level))):
            (home / f"scout@level{level}.{kind}.triad.json").write_text(json.dumps(document, indent=2, ensure_ascii=False))
        where = where / f"level{level}"
        where.mkdir()
    return where


def _text(kind: str, level: int, number: int, words: int) -> str:
    # Neighbouring levels share most of their content, as real layers do.
    return " ".join(
        [kind, str(number if number % 3 else f"{level}-{number}"), *(f"word{(number * 7 + word) % 97}" for word in range(words))]
    )


def agent(level: int) -> dict[str, Any]:
    return {
        "schemaVersion": "0.4.0",
        "slug": "scout",
        "title": f"Scout at level {level}",
        "role": "Explorer",
        "status": "active",
        "updated": "2026-01-01T00:00:00Z",
        "purpose": _text("purpose", level, 0, 60),
        "guardrails": [_text("guardrail", level, n, 14) for n in range(10)],
        "responsibilities": [_text("responsibility", level, n, 10) for n in range(8)],
        "focusDomains": [{"identifier": f"domain-{n}", "label": _text("domain", level, n, 3), "weight": 1} for n in range(12)],
        "contributionMix": {"primary": [{"type": kind, "weight": level + 1} for kind in ("code", "doc", "test", "review")]},
        "sections": [
            {
                "slug": f"s{n}",
                "title": _text("section", level, n, 3),
                "kind": "bullets",
                "items": [_text("item", level, m, 12) for m in range(5)],
            }
            for n in range(5)
        ],
        "links": [{"title": f"Link {n}", "url": f"docs/{level}/{n}.md"} for n in range(6)],
        "persona": {"profilePath": f"persona-{level}.md", "reveriesPath": "reveries.md"},
        "extensions": {"x-badge": "[SC]", "x-emoji": "🔭"},
        "tags": [f"tag-{n}" for n in range(8)],
    }


def agenda(level: int) -> dict[str, Any]:
    return {
        "schemaVersion": "0.4.0",
        "slug": "scout",
        "title": f"Agenda at level {level}",
        "agent": {"role": "scout", "scope": f"level {level}"},
        "backlog": [{"id": f"b{n}", "title": _text("backlog", level, n, 12)} for n in range(25)],
        "milestones": [
            {"slug": f"m{n}", "title": _text("milestone", level, n, 6), "due": "2026-10-01", "status": "planned"} for n in range(8)
        ],
        "principles": [_text("principle", level, n, 12) for n in range(6)],
        "sections": [
            {"title": _text("section", level, n, 3), "items": [_text("item", level, m, 12) for m in range(5)]} for n in range(4)
        ],
    }


def agency(level: int) -> dict[str, Any]:
    return {
        "schemaVersion": "0.4.0",
        "slug": "scout",
        "entries": [_entry(level, number) for number in range(ENTRIES)],
    }


def _entry(level: int, number: int) -> dict[str, Any]:
    return {
        "timestamp": f"2026-{level % 12 + 1:02}-{number % 28 + 1:02}T0{number % 10}:00:00Z",
        "kind": "log",
        "summary": _text("summary", level, number, 14),
        "signature": "-SC",
        "source": f"level{level}",
        "tags": ["log", f"tag-{number % 9}"],
        "contributions": [
            {"by": "scout", "types": [{"type": "log", "weight": 1, "evidence": _text("evidence", level, number, 14)}]}
        ],
    }
