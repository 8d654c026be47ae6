"""Waivers: an operator sets a guardrail aside, with a recorded approval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clia import lineage
from clia.facade.operator_waivers import decide_waiver
from clia.identities.guardrails.waivers import check_waivers
from clia.values.canonical import digest, text_digest
from support import clia, git
from support.spaces import settings
from support.waivers import about, decided

if TYPE_CHECKING:
    from support import Tree

RULE = "Never deploy on Fridays."


def approval(tree: Tree, by: str | None = "ada", rule: str = RULE) -> dict[str, Any]:
    entry: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00Z", "summary": "Fridays are fine for the docs site."}
    entry["extensions"] = about(tree.root / "w", rule)
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
    scout = with_waiver(tree, waiver(approval(tree)), entry=approval(tree))
    profile = scout.profile()
    assert profile["guardrails"] == [RULE, "Keep the tests green."]
    (mark,) = profile["waivedGuardrails"]
    assert (mark["text"], mark["guardrail"], mark["approvals"]) == (RULE, text_digest(RULE), [digest(approval(tree))])
    assert mark["declaredIn"].startswith(tree.path("w/in"))
    assert check_waivers(profile, scout.approvals())[1] == []
    assert "/waivedGuardrails/0/text" in profile.origins()


def test_the_hash_that_explain_shows_names_a_guardrail_with_rules(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=[{"text": RULE, "rules": [{"on": "tool", "match": {"command": "deploy *"}, "do": "deny"}]}])
    assert lineage(tree.path("w"), "scout").profile().explain("/guardrails/0").value_sha256 == text_digest(RULE)


def test_an_entry_in_the_operators_own_agency_of_that_context_counts(tree: Tree) -> None:
    entry = approval(tree, by=None)
    scout = with_waiver(tree, waiver(entry))
    tree.agency("w", "ada", entries=[entry])
    assert len(scout.profile()["waivedGuardrails"]) == 1


def test_an_entry_of_an_agent_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval(tree)), entry=approval(tree), profile_type="agent")) == ["waiver-unapproved"]


def test_an_entry_that_no_operator_signed_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval(tree, "scout")), entry=approval(tree, "scout"))) == ["waiver-unapproved"]


def test_an_entry_elsewhere_does_not_count(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval(tree)))
    tree.agency("w/in", entries=[approval(tree)])
    tree.agent("w/in", "ada", profileType="operator")
    assert refused(scout) == ["waiver-unapproved"]


def test_a_changed_entry_does_not_count(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval(tree)), entry={**approval(tree), "summary": "changed"})) == [
        "waiver-unapproved"
    ]


def test_a_waiver_of_an_unknown_guardrail_is_reported(tree: Tree) -> None:
    assert refused(with_waiver(tree, waiver(approval(tree), "No such rule."), entry=approval(tree))) == ["waiver-unknown-guardrail"]


FORGED: dict[str, Any] = {
    "no decision": lambda tree, entry: entry["extensions"].pop("x-decision"),
    "no guardrail": lambda tree, entry: entry["extensions"].pop("x-waives"),
    "another guardrail": lambda tree, entry: entry["extensions"].update({"x-waives": [{"guardrail": text_digest("Other.")}]}),
    "a commit that is not there": lambda tree, entry: entry["extensions"].update({"x-decision": "1" * 40}),
    "no commit id": lambda tree, entry: entry["extensions"].update({"x-decision": "HEAD"}),
    "a decision on another guardrail": lambda tree, entry: entry["extensions"].update(
        {"x-decision": decided(tree.root / "w", "Other.")}
    ),
    "an ordinary commit": lambda tree, entry: entry["extensions"].update({"x-decision": plain_commit(tree, RULE)}),
    "a decision of a program": lambda tree, entry: entry["extensions"].update({"x-decision": agents_decision(tree)}),
}


def plain_commit(tree: Tree, message: str) -> str:
    top = tree.root / "w"
    git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message", message, cwd=top)
    return git("rev-parse", "HEAD", cwd=top).strip()


def agents_decision(tree: Tree) -> str:
    """A decision that the committer of an agent made."""
    person = settings()._replace(person=("Scout", "scout@agents.clia.invalid"))
    return decide_waiver(str(tree.root / "w"), RULE, "Mine.", person)


@pytest.mark.parametrize("how", FORGED)
def test_an_entry_written_by_hand_does_not_count_without_a_decision_that_names_the_guardrail(tree: Tree, how: str) -> None:
    entry = approval(tree)
    FORGED[how](tree, entry)
    assert refused(with_waiver(tree, waiver(entry), entry=entry)) == ["waiver-unapproved"]


def test_a_decision_that_was_not_signed_does_not_count_where_keys_are_enrolled(tree: Tree) -> None:
    import clia as library

    entry = approval(tree)
    scout = with_waiver(tree, waiver(entry), entry=entry)
    assert len(scout.profile()["waivedGuardrails"]) == 1
    library.init(tree.root / "w", settings=settings()).close()
    unsigned = refused(lineage(tree.path("w/in"), "scout"))
    signed = {
        **entry,
        "extensions": {**entry["extensions"], "x-decision": decide_waiver(tree.path("w"), RULE, "Fine.", settings())},
    }
    with_waiver(tree, waiver(signed), entry=signed)
    assert unsigned == ["waiver-unapproved"]
    assert len(lineage(tree.path("w/in"), "scout").profile()["waivedGuardrails"]) == 1


def test_an_operator_approves_with_a_journal_entry_that_records_the_decision(tree: Tree) -> None:
    top = tree.root / "w"
    with_waiver(tree, waiver({}), entry=None)
    git("init", "--quiet", cwd=top)
    words = ("agents", "journal", "--slug", "ada", "--write-scope", "workspace", "--note", "Fine.")
    plain_entry = clia(*words, "--json", cwd=tree.path("w/in")).json()
    tree.agent("w/in", waivers=[{"guardrail": text_digest(RULE), "approval": plain_entry["sha256"]}])
    assert refused(lineage(tree.path("w/in"), "scout")) == ["waiver-unapproved"]
    ran = clia(*words, "--waives", text_digest(RULE)[:12], "--json", cwd=tree.path("w/in"))
    assert ran.code == 0, ran.err
    tree.agent("w/in", waivers=[{"guardrail": text_digest(RULE), "approval": ran.json()["sha256"]}])
    (mark,) = lineage(tree.path("w/in"), "scout").profile()["waivedGuardrails"]
    assert mark["text"] == RULE
    assert RULE in git("log", "--format=%B", "refs/clia/waivers", cwd=top)
    wrong = clia(*words, "--waives", "0" * 64, cwd=tree.path("w/in"))
    assert (wrong.code, "no-such-guardrail" in wrong.err) == (2, True), wrong.err
    agent = clia(*words, "--waives", text_digest(RULE), cwd=tree.path("w/in"), env={"CLIA_AGENT": "scout"})
    assert (agent.code, "person-needed" in agent.err) == (1, True), agent.err


def test_every_owner_of_a_guardrail_must_approve(tree: Tree) -> None:
    with_waiver(tree, waiver(approval(tree)), entry=approval(tree))
    tree.repository("w/in/deep")
    tree.agent("w/in/deep", waivers=[waiver(approval(tree))])
    tree.agent("w/in", guardrails=[RULE])
    assert refused(lineage(tree.path("w/in/deep"), "scout")) == ["waiver-unapproved"]


def test_repeating_an_outer_guardrail_gives_no_ownership_of_it(tree: Tree) -> None:
    with_waiver(tree, waiver(approval(tree, "eve")))
    tree.agent("w/in", guardrails=[{"text": RULE}], waivers=[waiver(approval(tree, "eve"))])
    tree.agent("w/in", "eve", profileType="operator")
    tree.agency("w/in", "eve", entries=[approval(tree, "eve")])
    assert refused(lineage(tree.path("w/in"), "scout")) == ["waiver-unapproved"]


def test_a_context_that_repeats_and_waives_a_guardrail_needs_only_the_other_owners_approval(tree: Tree) -> None:
    with_waiver(tree, waiver(approval(tree)), entry=approval(tree))
    tree.agent("w/in", guardrails=[RULE], waivers=[waiver(approval(tree))])
    profile = lineage(tree.path("w/in"), "scout").profile()
    assert len(profile["waivedGuardrails"]) == 1
    output = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w/in")).out
    assert f"! {RULE}  waived by an operator" in output


def test_a_linked_agency_approves_nothing(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval(tree)))
    outside = tree.write("outside.json", json.dumps({"entries": [approval(tree)]}))
    (tree.root / "w/.clia/agents/scout/scout@w.agency.triad.json").symlink_to(outside)
    assert refused(scout) == ["waiver-unapproved"]


def test_a_guardrail_inherited_from_a_plain_file_is_owned_by_its_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/policy/rules.json", json.dumps({"guardrails": [RULE]}))
    tree.agent("w", "ada", profileType="operator")
    tree.agency("w", "ada", entries=[approval(tree)])
    tree.agent("w", inherits=["policy/rules.json"], waivers=[waiver(approval(tree))])
    assert len(lineage(tree.path("w"), "scout").profile()["waivedGuardrails"]) == 1


def test_an_operator_with_other_waivers_is_allowed(tree: Tree) -> None:
    scout = with_waiver(tree, waiver(approval(tree)), entry=approval(tree))
    tree.agent("w", "ada", profileType="operator", guardrails=[RULE], waivers=[waiver(approval(tree))])
    assert len(scout.profile()["waivedGuardrails"]) == 1


def test_an_inherited_guardrail_is_owned_by_the_context_of_its_document(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", guardrails=[RULE])
    tree.agent("w", "ada", profileType="operator")
    tree.agency("w", "root", entries=[approval(tree)])
    tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"], waivers=[waiver(approval(tree))])
    profile = lineage(tree.path("w"), "scout").profile()
    assert json.dumps(profile["waivedGuardrails"]).count(digest(approval(tree))) == 1
