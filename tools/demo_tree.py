"""The demo tree: a monorepo with a submodule and three agents, in real git."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RULE = "Deploys need a person's approval."


def plant(root: Path) -> Path:
    """Create the tree below ``root`` and return a working path deep inside it."""
    payments = root / "upstream" / "payments"
    mono = root / "mono"
    _repository(payments)
    _document(
        payments, "scout", "agent", {"role": "Payments explorer", "guardrails": ["Never log card numbers."], "status": "active"}
    )
    _document(payments, "scout", "agency", {"entries": [_entry("Mapped the refund flow.", "scout", "payments")]})
    (payments / "src").mkdir()
    (payments / "src" / "refunds.py").write_text("def refund(order): ...\n")
    _commit(payments, "payments service")

    _repository(mono)
    _git(mono, "submodule", "add", "--quiet", str(payments), "services/payments")
    documents(mono)
    _commit(mono, "monorepo with agents")
    return mono / "services" / "payments" / "src"


def documents(mono: Path) -> None:
    """The identities of a repository: root directives, and what each identity adds to them."""
    inherits = [f".clia/agents/root/root@{mono.name}.agent.triad.json"]
    _document(mono, "root", "agent", {"title": "Root directives", "guardrails": ["Never commit secrets.", RULE]})
    scout = {
        "title": "Scout",
        "role": "Explorer",
        "status": "active",
        "purpose": "Finds out how things work, and writes it down.",
        "inherits": inherits,
        "guardrails": ["Read before you write."],
        "contributionMix": [{"type": "research", "weight": 5}, {"type": "doc", "weight": 2}],
        "extensions": {"x-badge": "[SC]", "x-emoji": "🔭", "journalSignature": "-SC"},
        "tags": ["explorer"],
    }
    _document(mono, "scout", "agent", scout)
    plan = {
        "title": "Scout's plan",
        "milestones": [{"title": "Map every service", "due": "2027-01-31"}],
        "backlog": ["Explain the build"],
    }
    _document(mono, "scout", "agenda", plan)
    _document(mono, "scout", "agency", {"entries": [_entry("Read the whole build.", "scout", mono.name)]})
    reviewer = {
        "title": "Reviewer",
        "role": "Code reviewer",
        "status": "active",
        "inherits": inherits,
        "guardrails": ["Say why, not only what."],
        "extensions": {"x-badge": "[RV]", "x-emoji": "🧐"},
    }
    _document(mono, "reviewer", "agent", reviewer)
    ada = {"title": "Ada", "role": "Operator", "status": "active", "profileType": "operator", "inherits": inherits, "emoji": "👩"}
    _document(mono, "ada", "agent", ada)


def _entry(summary: str, slug: str, source: str) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-01T09:00:00Z",
        "kind": "log",
        "summary": summary,
        "signature": f"-{slug}",
        "source": source,
        "contributions": [{"by": slug, "types": [{"type": "log", "weight": 1, "evidence": summary}]}],
    }


def _document(root: Path, slug: str, kind: str, content: dict[str, Any]) -> None:
    home = root / ".clia" / "agents" / slug
    home.mkdir(parents=True, exist_ok=True)
    body = {"schemaVersion": "0.4.0", "slug": slug, **content}
    (home / f"{slug}@{root.name}.{kind}.triad.json").write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")


def _repository(root: Path) -> None:
    root.mkdir(parents=True)
    _git(root, "init", "--quiet", "--initial-branch=main")


def _commit(root: Path, message: str) -> None:
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", message)


def _git(root: Path, *words: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    settings = ("user.name=Demo", "user.email=demo@example.org", "protocol.file.allow=always", "commit.gpgsign=false")
    options = [word for setting in settings for word in ("-c", setting)]
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *options, *words], cwd=root, env=environment, check=True)
