"""Waivers: an operator sets a guardrail aside, with a recorded approval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clia import lineage
from clia.identities.guardrails.waivers import check_waivers
from clia.values.canonical import digest, text_digest
from support import clia

if TYPE_CHECKING:
    from support import Tree

RULE = "Never deploy on Fridays."


def approval(by: str | None = "ada") -> dict[str, Any]:
    entry: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00Z", "summary": "Fridays are fine for the docs site."}
    if by:
        entry["contributions"] = [{"by": by, "types": [{"type": "decision", "evidence": "approved"}]}]
    return entry


def with_waiver(tree: Tree, waiver: dict[str, Any], *, entry: dict[str, Any] | None = None, profile_type: str = "operator") -> Any:
    """An outer guardrail, an operator in the same context, and an inner document with a waiver; the outer agency has the entry."""
    tree.repository("w")
    tree.repository("w/in")
    tree.agent("w", guardrails=[RULE, "Keep the tests green."])
    tree.agent("w", "ada", profileType=profile_type, title="Ada")
    if entry is not None:
        tree.agency("w", entries=[entry])
    tree.agent("w/in", waivers=[waiver])
    return lineage(tree.path("w/in"), "scout")


def waiver(entry: dict[str, Any], rule: str = RULE) -> dict[str, Any]:
    return {"guardrail": text_digest(rule), "approval": digest(entry)}


def refused(scout: Any) -> list[str]:
    assert "waivedGuardrails" not in scout.profile()
    return [diagnostic.code for diagnostic in check_waivers(scout.profile(), scout.approvals())[1]]


def test_an_approved_waiver_marks_the_guardrail_and_keeps_it(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval()), entry=approval())
    profile = scout.profile()
    assert profile["guardrails"] == [RULE, "Keep the tests green."]
    (mark,) = profile["waivedGuardrails"]
    assert (mark["text"], mark["guardrail"], mark["approvals"]) == (RULE, text_digest(RULE), [digest(approval())])
    assert mark["declaredIn"].startswith(tree.path("w/in"))
    assert check_waivers(profile, scout.approvals())[1] == []
    assert "/waivedGuardrails/0/text" in profile.origins()


def test_the_hash_that_explain_shows_names_a_guardrail_with_rules(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=[{"text": RULE, "rules": [{"on": "tool", "match": {"command": "deploy *"}, "do": "deny"}]}])
    assert lineage(tree.path("w"), "scout").profile().explain("/guardrails/0").value_sha256 == text_digest(RULE)


def test_an_entry_in_the_operators_own_agency_of_that_context_counts(tree: Tree) -> None:
    entry = approval(by=None)
    scout = with_waiver(tree, waiver(entry))
    tree.agency("w", "ada", entries=[entry])
    assert len(scout.profile()["waivedGuardrails"]) == 1


def test_an_entry_of_an_agent_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval()), entry=approval(), profile_type="agent")) == ["waiver-unapproved"]


def test_an_entry_that_no_operator_signed_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval("scout")), entry=approval("scout"))) == ["waiver-unapproved"]


def test_an_entry_elsewhere_does_not_count(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval()))
    tree.agency("w/in", entries=[approval()])
    tree.agent("w/in", "ada", profileType="operator")
    assert refused(scout) == ["waiver-unapproved"]


def test_a_changed_entry_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval()), entry={**approval(), "summary": "changed"})) == ["waiver-unapproved"]


def test_a_waiver_of_an_unknown_guardrail_is_reported(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval(), "No such rule."), entry=approval())) == ["waiver-unknown-guardrail"]


def test_every_owner_of_a_guardrail_must_approve(tree: Tree) -> None:
    with_waiver(tree, waiver(approval()), entry=approval())
    tree.repository("w/in/deep")
    tree.agent("w/in/deep", waivers=[waiver(approval())])
    tree.agent("w/in", guardrails=[RULE])
    assert refused(lineage(tree.path("w/in/deep"), "scout")) == ["waiver-unapproved"]


def test_repeating_an_outer_guardrail_gives_no_ownership_of_it(tree: Tree) -> None:
    with_waiver(tree, waiver(approval("eve")))
    tree.agent("w/in", guardrails=[{"text": RULE}], waivers=[waiver(approval("eve"))])
    tree.agent("w/in", "eve", profileType="operator")
    tree.agency("w/in", "eve", entries=[approval("eve")])
    assert refused(lineage(tree.path("w/in"), "scout")) == ["waiver-unapproved"]


def test_a_context_that_repeats_and_waives_a_guardrail_needs_only_the_other_owners_approval(tree: Tree) -> None:
    with_waiver(tree, waiver(approval()), entry=approval())
    tree.agent("w/in", guardrails=[RULE], waivers=[waiver(approval())])
    profile = lineage(tree.path("w/in"), "scout").profile()
    assert len(profile["waivedGuardrails"]) == 1
    output = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w/in")).out
    assert f"! {RULE}  waived by an operator" in output


def test_a_linked_agency_approves_nothing(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval()))
    outside = tree.write("outside.json", json.dumps({"entries": [approval()]}))
    (tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json").symlink_to(outside)
    assert refused(scout) == ["waiver-unapproved"]


def test_a_guardrail_inherited_from_a_plain_file_is_owned_by_its_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/policy/rules.json", json.dumps({"guardrails": [RULE]}))
    tree.agent("w", "ada", profileType="operator")
    tree.agency("w", "ada", entries=[approval()])
    tree.agent("w", inherits=["policy/rules.json"], waivers=[waiver(approval())])
    assert len(lineage(tree.path("w"), "scout").profile()["waivedGuardrails"]) == 1


def test_an_operator_with_other_waivers_is_allowed(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval()), entry=approval())
    tree.agent("w", "ada", profileType="operator", guardrails=[RULE], waivers=[waiver(approval())])
    assert len(scout.profile()["waivedGuardrails"]) == 1


def test_an_inherited_guardrail_is_owned_by_the_context_of_its_document(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", guardrails=[RULE])
    tree.agent("w", "ada", profileType="operator")
    tree.agency("w", "root", entries=[approval()])
    tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"], waivers=[waiver(approval())])
    profile = lineage(tree.path("w"), "scout").profile()
    assert json.dumps(profile["waivedGuardrails"]).count(digest(approval())) == 1
