from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from clia.errors import UnknownKind
from clia.identities import merge_rules
from clia.identities.contexts import KINDS
from clia.identities.schemas import problems, schema

AGENT = {
    "schemaVersion": "0.4.0",
    "slug": "release-captain",
    "title": "Release Captain",
    "subtitle": None,
    "updated": "last Tuesday",
    "status": "active",
    "role": "captain",
    "profileType": "operator",
    "handle": "rc",
    "avatarPath": "assets/rc.svg",
    "purpose": "Ships.",
    "responsibilities": ["Ship", {"title": "Watch", "items": ["builds", {"label": "errors"}]}],
    "guardrails": ["Never force-push.", {"id": "g", "text": "Ask first.", "level": "required"}, {"title": "G", "items": ["x"]}],
    "mentors": ["cadence", {"name": "Ada", "since": 2020}],
    "tags": [],
    "links": ["https://example.org", {"title": "a", "url": "b"}, {"href": "c", "weight": 1}],
    "notes": [{"author": "", "date": "", "blocks": [{"kind": "paragraph", "text": ["x"]}, "plain"]}, "plain"],
    "persona": {"profilePath": "p.md", "reveriesPath": None, "tone": ["dry"]},
    "systemInstructions": {"fullPath": "x.md"},
    "contributionMix": {"primary": [{"type": "code", "weight": 2.5}, "doc", {"type": "test"}], "secondary": [], "other": 5},
    "emojiTags": ["🎛️"],
    "focusDomains": [{"identifier": "a", "label": "A", "weight": 1}, "b"],
    "operationModes": ["cloud"],
    "checklists": [{"title": "T", "items": [{"text": "x", "level": "required"}, {"text": "y", "level": "disabled"}]}, "z"],
    "sections": [{"slug": "s", "kind": "bullets", "title": "S", "items": ["x"]}, "flat"],
    "extensions": {"x-badge": "[RC]", "x-emoji": "🚀", "anything": [1, {"goes": None}], "inherits": "x"},
    "inherits": [".clia/agents/root/root@w.agent.triad.json"],
    "rootChain": {
        "mode": "hybrid",
        "roots": [{"kind": "path", "path": "a"}, {"path": "b"}],
        "policy": {"enforceContainment": False},
    },
    "waivers": [{"guardrail": "0" * 64, "approval": "f" * 64, "why": "said so"}],
}
AGENDA = {
    "slug": "a",
    "agent": {"role": "captain"},
    "principles": ["x"],
    "themes": [],
    "horizons": [{"key": "near", "label": "Near"}, "far"],
    "initiatives": [{"title": "x", "expectedContributions": {"types": ["code"]}}],
    "milestones": [{"id": "m-1", "title": "T", "due": "2026-01-01T00:00:00Z", "status": "planned"}, "flat"],
    "backlog": ["x", {"title": "y"}],
    "dependencies": None,
    "risks": [{"title": "r", "severity": 3}],
    "sections": [],
    "notes": "plain",
}
AGENCY = {
    "slug": "a",
    "entries": [
        {
            "kind": "log",
            "timestamp": "2026-01-01T00:00:00Z",
            "summary": "s",
            "details": ["d"],
            "participants": ["a", {"name": "b"}],
            "contributions": [{"by": "a", "types": [{"type": "log", "weight": 1, "evidence": "e"}]}],
            "tags": ["t"],
            "links": [{"href": "h"}],
            "extensions": {"x-dirsTouched": ["src"]},
            "source": {"root": "w"},
        },
        {"kind": "decision", "summary": "no contributions"},
        {"type": "update", "date": "2026-01-01", "id": "U-1", "evidence": [{"href": "x"}], "details": "one line"},
        "a line",
    ],
}
REAL: dict[str, dict[str, Any]] = {"agent": AGENT, "agenda": AGENDA, "agency": AGENCY}


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_follows_the_metaschema_and_is_self_contained(kind: str) -> None:
    document_schema = schema(kind)
    Draft202012Validator.check_schema(document_schema)
    assert document_schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    references = [reference.split('"')[0] for reference in json.dumps(document_schema).split('"$ref": "')[1:]]
    assert references
    assert all(
        reference.startswith("#/$defs/") and reference.split("/")[-1] in document_schema["$defs"] for reference in references
    )


@pytest.mark.parametrize("kind", KINDS)
def test_documents_that_clia_writes_are_accepted(kind: str) -> None:
    assert problems(kind, REAL[kind]) == []
    assert problems(kind, {"slug": "a"}) == []
    assert problems(kind, {**dict.fromkeys(REAL[kind]), "slug": "a", "unknown": {"deep": [None]}}) == []
    assert problems("agent", {"slug": "a", "contributionMix": [{"type": "code", "weight": 5}, "doc"]}) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_slug_is_required(kind: str) -> None:
    assert problems(kind, {"title": "x"}) == [("", "is missing slug")]


@pytest.mark.parametrize(
    ("kind", "field", "value", "pointer"),
    [
        ("agent", "slug", "No Slug", "/slug"),
        ("agent", "slug", "a" * 65, "/slug"),
        ("agent", "schemaVersion", 4, "/schemaVersion"),
        ("agent", "guardrails", ["fine", 5], "/guardrails/1"),
        ("agent", "guardrails", [{"text": "x", "level": 5}], "/guardrails/0/level"),
        ("agent", "guardrails", [{"items": [{"items": [True]}]}], "/guardrails/0/items/0/items/0"),
        ("agent", "checklists", [{"items": [{"text": "x", "level": "off"}]}], "/checklists/0/items/0/level"),
        ("agent", "inherits", ["a", 1], "/inherits/1"),
        ("agent", "links", [{"url": 1}], "/links/0/url"),
        ("agent", "contributionMix", {"primary": [{"type": "code", "weight": "5"}]}, "/contributionMix/primary/0/weight"),
        ("agent", "contributionMix", [{"type": 5}], "/contributionMix/0/type"),
        ("agent", "rootChain", {"mode": "other"}, "/rootChain/mode"),
        ("agent", "rootChain", {"roots": [{"kind": "path"}]}, "/rootChain/roots/0"),
        ("agent", "rootChain", {"roots": [{"kind": "url", "path": "x"}]}, "/rootChain/roots/0/kind"),
        ("agent", "rootChain", {"policy": {"enforceContainment": "no"}}, "/rootChain/policy/enforceContainment"),
        ("agent", "waivers", [{"approval": "0" * 64}], "/waivers/0"),
        ("agent", "waivers", [{"guardrail": "short", "approval": "0" * 64}], "/waivers/0/guardrail"),
        ("agent", "persona", {"profilePath": []}, "/persona/profilePath"),
        ("agent", "extensions", {"x-badge": 5}, "/extensions/x-badge"),
        ("agent", "notes", [{"blocks": "x"}], "/notes/0/blocks"),
        ("agenda", "agent", {"role": 5}, "/agent/role"),
        ("agenda", "milestones", [{"title": 5}], "/milestones/0/title"),
        ("agency", "entries", [{"contributions": "x"}], "/entries/0/contributions"),
        ("agency", "entries", [{"summary": ["x"]}], "/entries/0/summary"),
        ("agency", "entries", [7], "/entries/0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_pointer(kind: str, field: str, value: object, pointer: str) -> None:
    assert [at for at, _ in problems(kind, {"slug": "a", field: value})] == [pointer]


_WRONG = {merge_rules.STRING: 5, merge_rules.LIST: 5, merge_rules.OBJECT: "x", merge_rules.LIST_OR_OBJECT: "x"}


@pytest.mark.parametrize("field", [field for field, rule in merge_rules.RULES.items() if rule.shape])
def test_every_field_with_a_merge_rule_has_the_same_shape_in_the_schemas(field: str) -> None:
    shape = merge_rules.RULES[field].shape
    assert shape is not None
    document = {"slug": "a", field: _WRONG[shape]}
    assert any(f"/{field}" in [at for at, _ in problems(kind, document)] for kind in KINDS)


def test_messages_are_readable_and_short() -> None:
    assert problems("agent", {"slug": "a", "mentors": [None]}) == [("/mentors/0", "must be a string or an object, not null")]
    assert problems("agent", {"slug": "a", "rootChain": {"mode": "x"}})[0][1] == "must be one of default, explicit, hybrid"
    assert len(problems("agent", {"slug": "A" * 100_000})[0][1]) < 300


def test_the_files_are_part_of_the_package() -> None:
    names = {path.name for path in resources.files("clia.identities.schemas").iterdir()}
    assert {f"{kind}.schema.json" for kind in (*KINDS, "common")} <= names


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnknownKind):
        schema("persona")
