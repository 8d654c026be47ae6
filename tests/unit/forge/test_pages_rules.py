"""The matrix of rules and identities, and the rules of an agent."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import clia
from clia.capture.permissions.prompts import waiting
from support.forge import ATTACK, OpenForge, assert_harmless

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, slug: str, *rules: Any, text: str = "Ask first.") -> None:
    home = directory / ".clia/agents" / slug
    home.mkdir(parents=True, exist_ok=True)
    document = {"slug": slug, "guardrails": [{"text": text, "rules": list(rules)}] if rules else []}
    (home / f"{slug}@repo.agent.triad.json").write_text(json.dumps(document), encoding="utf-8")


def text_of(forge: OpenForge, page: str) -> str:
    answer = forge.browser().get(f"{forge.base}/{page}")
    assert answer.status_code == 200, answer.text
    assert_harmless(answer.text)
    return answer.text


def test_without_rules_the_page_says_how_to_add_them(empty_forge: OpenForge) -> None:
    assert "No guardrail states rules." in text_of(empty_forge, "rules")


def test_each_rule_is_a_row_with_the_identities_that_it_binds(empty_forge: OpenForge, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    write(root, "root", {"on": ["land", "push"], "match": {"paths": "infra/**"}, "do": "require", "need": ["decision", "tests"]})
    write(root, "scout", {"on": "tool", "match": {"command": f"deploy {ATTACK}"}, "do": "ask", "risk": "high"}, text=ATTACK)
    write(root, "reviewer")
    page = text_of(empty_forge, "rules")
    rows = [re.sub(r"\s+", " ", row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]]
    assert len(rows) == 2
    shared = next(row for row in rows if "require" in row)
    assert "paths infra/**; needs decision, tests" in shared
    assert {"binds scout", "binds reviewer"} <= set(re.findall(r'aria-label="([^"]+)"', shared))
    own = next(row for row in rows if "high risk" in row)
    assert re.findall(r'aria-label="([^"]+)"', own) == ["binds scout"]
    assert "clia/agents/scout" in own


def test_a_rule_that_does_not_parse_and_an_identity_that_does_not_resolve_are_shown(empty_forge: OpenForge, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    write(root, "scout", {"on": "tool", "do": "forbid"})
    home = root / ".clia/agents/broken"
    home.mkdir(parents=True)
    chain = {"mode": "explicit", "roots": [{"path": "nowhere"}]}
    (home / "broken@repo.agent.triad.json").write_text(json.dumps({"slug": "broken", "rootChain": chain}), encoding="utf-8")
    page = text_of(empty_forge, "rules")
    assert "does not parse: must be one of allow" in page
    assert "broken cannot be resolved" in page


def test_the_page_of_an_agent_lists_its_rules(empty_forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "scout", {"on": "tool", "match": {"tool": "Bash"}, "do": "deny"})
    with clia.open(tmp_path / "repo") as space:
        space.spawn("painter", clia.Briefing(title="Paint"), slug="scout")
        space.spawn("free", clia.Briefing(title="x"))
    page = text_of(empty_forge, "agents/painter")
    assert "<summary>Rules</summary>" in page
    assert "tool Bash" in page
    assert "<summary>Rules</summary>" not in text_of(empty_forge, "agents/free")


def test_the_inbox_marks_prompts_for_which_no_tool_waits(empty_forge: OpenForge, tmp_path: Path) -> None:
    payload = {"question": "May Bash run?", "tool": "Bash", "command": "deploy prod", "clia": {"key": "k", "scope": "s"}}
    with clia.open(tmp_path / "repo") as space:
        space.spawn("painter", clia.Briefing(title="Paint"))
        request = space.sessions.ask_for_clia("painter", payload)
        page = f"inbox/painter/{request.id}"
        assert "no tool waits for this answer now" in text_of(empty_forge, page)
        assert "no tool waits for this answer now" in text_of(empty_forge, "inbox")
        with waiting(space, "painter", request.id):
            shown = text_of(empty_forge, page)
        assert "no tool waits" not in shown
        assert "deploy prod" in shown
        assert "scope" not in shown
