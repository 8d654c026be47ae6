"""The inbox shows which guardrails a change takes away, and the page of an agent shows who approved that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.forge import OpenForge, open_forge
from support.plain_git import commit_file
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = ".clia/agents/scout/scout.agent.triad.json"
RULE, WEAKER = "Never deploy <b>it</b> without approval.", "Avoid deploying <b>it</b> without approval."


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    """A forge with an agent that weakens a guardrail, which markup must not hide."""
    with open_forge(tmp_path) as opened:
        repo = tmp_path.resolve() / "repo"
        (repo / PATH).parent.mkdir(parents=True)
        commit_file(repo, PATH, json.dumps({"slug": "scout", "guardrails": [RULE]}))
        opened.space.spawn_at("scout", BRIEFING, "main")
        weaker = json.dumps({"slug": "scout", "guardrails": [WEAKER]}).encode()
        opened.space.commit("scout", "refactor", changes={PATH: weaker})
        yield opened


def test_the_inbox_shows_the_difference(forge: OpenForge) -> None:
    page = forge.browser().get(f"{forge.base}/inbox").text
    assert "<del>Never deploy &lt;b&gt;it&lt;/b&gt; without approval.</del>" in page
    assert "<ins>Avoid deploying &lt;b&gt;it&lt;/b&gt; without approval.</ins>" in page
    assert '<span class="chip">weakened</span>' in page
    assert "scout in ." in page
    assert "<b>it" not in page


def test_the_page_of_the_agent_shows_the_decision(forge: OpenForge) -> None:
    browser = forge.browser("ada", display="Ada")
    assert "Approvals" not in browser.get(f"{forge.base}/agents/scout").text
    (request,) = forge.space.pending("scout")
    browser.post(f"{forge.base}/inbox/scout/{request.id}", {"v": '"approve"', "rationale": "agreed"})
    (approval,) = forge.space.history.approvals("scout")
    assert (approval.approved, approval.by, approval.channel) == (True, "Ada", "forge")
    page = browser.get(f"{forge.base}/agents/scout").text
    assert '<h2 id="approvals-title">Approvals</h2>' in page
    assert '<td data-label="answer">approved</td>' in page
    assert '<td data-label="through">forge</td>' in page
