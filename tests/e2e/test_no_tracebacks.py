"""Every command answers or refuses for any content of the documents; none crashes."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

from clia.cli.main import main

if TYPE_CHECKING:
    import pytest

    from support import Tree

FIELDS = [
    "slug",
    "title",
    "purpose",
    "role",
    "status",
    "updated",
    "profileType",
    "emoji",
    "scope",
    "mentors",
    "tags",
    "responsibilities",
    "guardrails",
    "sections",
    "checklists",
    "principles",
    "themes",
    "horizons",
    "initiatives",
    "milestones",
    "backlog",
    "dependencies",
    "risks",
    "entries",
    "emojiTags",
    "focusDomains",
    "operationModes",
    "waivers",
    "contributionMix",
    "links",
    "notes",
    "extensions",
    "rootChain",
    "persona",
    "agent",
    "inherits",
    "x-odd",
]
KEYS = [
    "type",
    "weight",
    "title",
    "text",
    "items",
    "level",
    "url",
    "href",
    "kind",
    "path",
    "roots",
    "mode",
    "policy",
    "by",
    "types",
    "guardrail",
    "approval",
    "due",
    "x-badge",
    "x-emoji",
    "inherits",
    "journalSignature",
    "id",
    "primary",
    "contributions",
    "timestamp",
    "a/b~",
]
TEXTS = [
    "",
    "  ",
    "x",
    "MUST push",
    "Never push",
    "SHOULD push",
    "a\u202eb",
    "\x1b[31m",
    "<!-- x -->",
    "---",
    "\n\n# h",
    "@x",
    "../x",
]
TEXTS += [
    "https://x",
    "🎛️",
    "x" * 500,
    "required",
    "disabled",
    "operator",
    "path",
    "hybrid",
    "explicit",
    "T (due: D)",
    "{slug}",
    "%s",
    "\0",
]
COMMANDS = [
    "profile --slug s",
    "profile --slug s --json --root-chain --show-origin",
    "plan --slug s",
    "agency --slug s --show-origin",
    "context --slug s --explain",
    "explain /guardrails --slug s",
    "list --all",
    "lint",
    "lint --format sarif",
    "lint --format github",
    "smoke",
    "doctor",
    "export --slug s --to all --url https://example.org/a",
    "mirrors --merged",
    "journal --slug s --note n",
    "transfer --slug s --to .. --apply",
    "consolidate s --into root --apply",
]


def value(order: random.Random, depth: int = 0) -> Any:
    kind = order.randrange(14 if depth < 3 else 8)
    if kind < 3:
        return order.choice([None, True, False, 0, 1, -1, 2**80, 10**400, 1.5, 1e300])
    if kind < 8:
        return order.choice(TEXTS)
    if kind < 11:
        return [value(order, depth + 1) for _ in range(order.randrange(4))]
    return {order.choice(KEYS): value(order, depth + 1) for _ in range(order.randrange(5))}


def test_no_document_crashes_a_command(
    tree: Tree, life: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = random.Random(life)  # noqa: S311  # a variety, not a secret
    monkeypatch.setenv("CLIA_DEBUG", "1")  # raise bugs instead of reporting them
    for repository in ("w", "w/in"):
        tree.repository(repository)
        for slug in ("s", "root"):
            for kind in ("agent", "agenda", "agency"):
                document = {field: value(order) for field in order.sample(FIELDS, order.randrange(len(FIELDS)))}
                if order.random() < 0.9:
                    document.pop("rootChain", None)  # nearly all of them would be refused
                tree.write(f"{repository}/.clia/agents/{slug}/{slug}.{kind}.triad.json", json.dumps(document))
    monkeypatch.chdir(tree.root / "w/in")
    for command in COMMANDS:
        code = main(["agents", *command.split()])
        assert code in (0, 1, 2), command
        capsys.readouterr()
    assert os.getcwd() == tree.path("w/in")
