"""Exports checked against the tools' own schemas, with profiles that try to break out of them.

The tools' own code checks A2A cards (a2a-sdk 1.3.0, protocol 1.0) and skills (skills-ref 0.1.1). The schemas of Claude Code,
Codex and Cursor are copied here, with their version and source. AGENTS.md, CLAUDE.md and GEMINI.md have no schema: they are
plain Markdown, and ``test_export_formats`` checks that they contain nothing a tool would act on.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from a2a.types import AgentCard
from a2a.utils import TransportProtocol
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf import json_format  # type: ignore[import-untyped]  # protobuf ships no types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skills_ref import parser, validator  # type: ignore[import-untyped]  # it ships no types

import clia
from clia.behaviours.export import skill_target
from clia.behaviours.model import CURRENT, BehaviourVersion
from clia.identities.exports import formats as export_formats
from clia.identities.exports.formats import FORMATS, ExportOptions, ExportSource
from clia.identities.exports.plan import export

if TYPE_CHECKING:
    from support import Tree

URL = "https://agents.example.org/scout"
_SAID = {"type": "string", "pattern": r"\S"}
_NAME = {"type": "string", "pattern": r"^[a-z0-9]+(-[a-z0-9]+)*$"}

# Claude Code 2.1.325, after the type AgentDefinition of its SDK (0.3.325): description, tools, and a model that is an alias, a full
# identifier or "inherit". A file also has a name (lower-case letters and hyphens; ours may have digits), and its tools are
# separated by commas, some with a pattern in brackets. These are only the fields that clia writes.
CLAUDE_AGENT = {
    "type": "object",
    "required": ["name", "description"],
    "properties": {
        "name": _NAME,
        "description": _SAID,
        "tools": {"type": "string", "pattern": r"^[A-Za-z][\w*-]*(\([^()]+\))?(, [A-Za-z][\w*-]*(\([^()]+\))?)*$"},
        "model": {"type": "string", "pattern": r"^[a-z0-9][\w.:/@\[\]-]*$"},
    },
    "additionalProperties": False,
}
# Codex of August 2026, after its loader of agent files: all three are required and must not be blank. Unknown fields are refused,
# and any other known field is a setting that would change how Codex runs.
CODEX_AGENT = {
    "type": "object",
    "required": ["name", "description", "developer_instructions"],
    "properties": {"name": _SAID, "description": _SAID, "developer_instructions": _SAID},
    "additionalProperties": False,
}
# Cursor, summer 2026: there is no published schema, but all descriptions have these three fields. With a description, no glob and
# alwaysApply false, Cursor's agent decides when to read the rule.
CURSOR = {
    "type": "object",
    "required": ["description", "globs", "alwaysApply"],
    "properties": {"description": _SAID, "globs": {"type": ["null", "string"]}, "alwaysApply": {"type": "boolean"}},
    "additionalProperties": False,
}
# The SDK's bindings; its card type accepts any text.
BINDINGS = {protocol.value for protocol in TransportProtocol}


def rendered(tree: Tree, slug: str, content: dict[str, Any], **options: Any) -> tuple[dict[str, str], str]:
    """Return every export of a profile, and its one-line summary."""
    tree.agent("", slug=slug, **content)
    merged = clia.lineage(tree.path(), slug).profile()
    source = ExportSource(merged, lambda path: path, ExportOptions(("all",), URL, **options))
    exports = {name: export_format.render(source) for name, export_format in FORMATS.items()}
    return {
        name: content if isinstance(content, str) else content.decode() for name, content in exports.items()
    }, export_formats.profile_summary(merged)


def front(content: str) -> dict[str, Any]:
    """Return the front matter. Both common ways to find its end must agree."""
    match = re.match(r"\A---\n(.*?\n)---\n(.*)\Z", content, re.DOTALL)  # at a line of dashes
    assert match is not None
    assert content.split("---", 2)[1:] == [f"\n{match.group(1)}", f"\n{match.group(2)}"]  # at the first dashes anywhere
    fields = yaml.safe_load(match.group(1))
    assert isinstance(fields, dict)
    return fields


def check_card(content: str) -> None:
    card = json_format.Parse(content, AgentCard(), ignore_unknown_fields=False)
    validate_proto_required_fields(card)
    assert json_format.MessageToDict(card) == json.loads(content)
    assert {interface.protocol_binding for interface in card.supported_interfaces} <= BINDINGS
    assert {interface.protocol_version for interface in card.supported_interfaces} == {"1.0"}
    texts = [card.name, card.description, *(part for skill in card.skills for part in (skill.name, skill.description, *skill.tags))]
    assert all(text.strip() for text in texts)
    identifiers = [skill.id for skill in card.skills]
    assert len(set(identifiers)) == len(identifiers)


def check_skill(content: str, slug: str, summary: str) -> None:
    fields, body = parser.parse_frontmatter(content)
    assert validator.validate_metadata(fields, Path(slug)) == []
    assert front(content) == fields
    assert body.startswith("<!-- Made by")
    description = fields["description"].removesuffix(f" Use it to work as the agent {slug}.")
    assert description != fields["description"]
    assert not re.search(r"<[A-Za-z/!?]", description)
    plain = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", summary)
    assert description == plain or plain.startswith(description.removesuffix("…"))


def check_all(exports: dict[str, str], slug: str, summary: str) -> None:
    """Check that every export follows its tool's schema and has the profile's summary as description."""
    description = summary.replace("<!--", "&lt;!--")
    claude, cursor = front(exports["claude-agent"]), front(exports["cursor"])
    codex = tomllib.loads(exports["codex-agent"])
    for fields, schema in ((claude, CLAUDE_AGENT), (cursor, CURSOR), (codex, CODEX_AGENT)):
        jsonschema.validate(fields, schema)
        assert fields["description"] == description
        assert fields.get("name", slug) == slug
    check_card(exports["a2a-card"])
    check_skill(exports["skill"], slug, summary)


# Parts of hostile profiles.
FRAGMENTS = [
    "---", "\n---\n", "----------", "...", "\n...\n", "+++", "yes", "1.0", "null", "~", "0x1f", ": ", " #", '"', "'", "\\", "\n",
    "\t", "\r\n", "\nname: evil\n", "\ntools: Bash\n", "<!--", "-->", "<!-- clia:end scout -->", "<system>", "</description>",
    "```", '"""', "'''", "{", "[", "&a ", "*a", "!!python/object:x", "%YAML 1.1", "? ", "|", ">", "- ", "@~/.ssh/id_ed25519",
    "\x00", "\x1b[31m", "\x85", "\u2028", "\u200b", "\u202e", "\ufeff", "\ufffe", "\uffff", "\u200d", "\U0001f469\u200d\U0001f680",
    "探索", "é", "\U0001f469\u200d" * 700, "word " * 400,
]  # fmt: skip
ONE_PARAGRAPH = "".join(FRAGMENTS).replace("\n", " ")  # a description is the first paragraph
TEXT = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), min_size=1, max_size=8).map("".join)
ITEMS = st.lists(TEXT | st.fixed_dictionaries({"name": TEXT}, optional={"description": TEXT}) | st.none(), max_size=3)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "title": TEXT,
        "role": TEXT,
        "purpose": TEXT,
        "guardrails": ITEMS,
        "responsibilities": ITEMS,
        "focusDomains": ITEMS,
        "tags": st.lists(TEXT, max_size=3),
    },
)
# Slugs that YAML would read as another type if they were not quoted, and the longest slug.
SLUGS = st.sampled_from(["scout", "yes", "null", "true", "1", "1e3", "0x1f", "2026-01-01", "a" * 64])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(SLUGS, PROFILES)
def test_no_profile_breaks_out_of_a_schema(tree: Tree, slug: str, content: dict[str, Any]) -> None:
    exports, summary = rendered(tree, slug, content)
    check_all(exports, slug, summary)


@settings(max_examples=100, deadline=None)
@given(SLUGS, TEXT | st.just(" \n"), TEXT)
def test_no_prompt_breaks_out_of_its_skill_or_triggers_a_tool(slug: str, notes: str, body: str) -> None:
    version = BehaviourVersion(slug, "a" * 40, "prompt", CURRENT, f"{body}!`ls`\n```!\n@{body}", notes=notes)
    content = str(skill_target(version).render())
    fields, text = parser.parse_frontmatter(content)
    assert validator.validate_metadata(fields, Path(slug)) == []
    assert front(content) == fields
    assert (fields["name"], fields["metadata"]) == (slug, {"clia-behaviour": "a" * 40})
    assert text.startswith("<!-- Made by")
    assert text.count("<!--") == 1
    assert not re.search(r"!`|```!|~~~!|(?<!\S)@", text)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"title": "  ", "purpose": " ", "role": None, "focusDomains": [], "tags": []},
        {"focusDomains": None, "tags": None},
        {"focusDomains": "search", "tags": "one"},
        {"focusDomains": ["", " ", None, 5, True, {}, [], {"name": ""}, {"name": 5}, {"x": "y"}, ["a", "b"], {"description": "d"}]},
        {"focusDomains": ["a", "a-2", "A", "a!", "a?"], "tags": ["", " ", None, 5, {"a": 1}]},
        {"title": "x" * 50_000, "purpose": "y" * 50_000, "focusDomains": ["z" * 50_000]},
        {"purpose": "\U0001f469\u200d\U0001f680" * 1_000},
        {"title": "".join(FRAGMENTS), "purpose": ONE_PARAGRAPH, "focusDomains": FRAGMENTS, "tags": FRAGMENTS},
    ],
    ids=["bare", "blank", "null", "scalars", "odd-domains", "same-domains", "long", "long-emoji", "everything"],
)
def test_unusual_profiles_have_every_required_field(tree: Tree, content: dict[str, Any]) -> None:
    exports, summary = rendered(tree, "scout", content)
    check_all(exports, "scout", summary)


def test_tools_and_model_of_a_claude_agent_have_their_documented_form(tree: Tree) -> None:
    tools = ("Read", "Grep", "mcp__github__*", "Agent(worker, researcher)", "Bash(git log:*)")
    for model in ("inherit", "haiku", "claude-opus-4-5-20251101", "us.anthropic.claude-sonnet-4-v1:0", "sonnet[1m]"):
        fields = front(rendered(tree, "scout", {}, tools=tools, model=model)[0]["claude-agent"])
        jsonschema.validate(fields, CLAUDE_AGENT)
        assert (fields["tools"], fields["model"]) == (", ".join(tools), model)


def test_the_skill_folder_passes_the_reference_validator(tree: Tree) -> None:
    tree.repository()
    tree.agent("", slug="yes", title="--- yes", purpose="name: evil\n---\n" + "very long " * 200, guardrails=["Never force-push."])
    export(clia.lineage(tree.path(), "yes"), ExportOptions(("skill",)))
    folder = tree.root / ".claude/skills/yes"
    assert validator.validate(folder) == []
    properties = parser.read_properties(folder)
    assert (properties.name, properties.allowed_tools) == ("yes", None)
    assert properties.description.startswith("name: evil --- very long ")
    assert properties.description.endswith(" very… Use it to work as the agent yes.")
    assert 1000 < len(properties.description) <= 1024
