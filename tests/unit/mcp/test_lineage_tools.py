"""What agents learn over MCP about themselves: identity, guardrails and agenda at their place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import git
from support.mcp_server import drive, server_at
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.mcp_client import Driver

OUTER, LOCAL = "Never commit secrets.", "Four eyes on payments."


def write(where: Path, slug: str, kind: str = "agent", **content: Any) -> Path:
    path = where / f".clia/agents/{slug}/{slug}@x.{kind}.triad.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"slug": slug, **content}))
    return path


@pytest.fixture
def payments(tmp_path: Path) -> Iterator[clia.Space]:
    """A space in a repository inside another one, with an agent."""
    acme, inner = tmp_path / "acme", tmp_path / "acme/payments"
    for directory in (acme, inner):
        directory.mkdir()
        git("init", "--quiet", cwd=directory)
    write(acme, "root", guardrails=[OUTER])
    write(inner, "scout", title="Scout", guardrails=[LOCAL])
    write(inner, "scout", "agenda", backlog=["Draw the map"])
    clia.init(inner, settings=settings()).close()
    with clia.open(inner, settings=settings()) as space:
        space.spawn("worker", BRIEFING, slug="scout")
        yield space


def call(space: clia.Space, where: Path, tool: str, **arguments: Any) -> Any:
    results: list[Any] = []

    async def work(driver: Driver) -> None:
        result = await driver.client.call_tool(tool, arguments)
        results.append(result.structured_content)

    drive(server_at(space, where), work)
    return results[0]


def test_an_agent_in_a_checkout_elsewhere_has_all_guardrails(payments: clia.Space, tmp_path: Path) -> None:
    checkout = tmp_path / "away"
    payments.checkout("worker", checkout)
    with clia.open(checkout, settings=settings()) as space:
        who = call(space, checkout, "whoami")
        assert (who["agent"], who["slug"], who["guardrails"], who["diagnostics"]) == ("worker", "scout", [OUTER, LOCAL], [])
        assert call(space, checkout, "plan")["agenda"]["backlog"] == ["Draw the map"]


def test_a_guardrail_that_is_gone_still_binds_and_is_reported(payments: clia.Space, tmp_path: Path) -> None:
    write(tmp_path / "acme", "root", guardrails=["Ask first."])
    for where in (tmp_path / "acme/payments", tmp_path / "acme/payments"):
        who = call(payments, where, "whoami", agent="worker")
        assert who["guardrails"] == [OUTER, "Ask first.", LOCAL]
        assert [item["code"] for item in who["diagnostics"]] == ["guardrails-missing"]


def test_an_agent_without_an_identity_gets_the_root_rules(payments: clia.Space, tmp_path: Path) -> None:
    payments.spawn("nobody", BRIEFING)
    who = call(payments, tmp_path / "acme/payments", "whoami", agent="nobody")
    assert (who["slug"], who["guardrails"]) == (None, [OUTER])


def test_an_agent_cannot_record_another_profile(payments: clia.Space, tmp_path: Path) -> None:
    write(tmp_path / "acme", "root", guardrails=[])
    assert call(payments, tmp_path / "acme/payments", "reprofile", agent="worker")["code"] == "person-needed"
    assert payments.record_of("worker")["profile.json"]["document"]["guardrails"] == [OUTER, LOCAL]
