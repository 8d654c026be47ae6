"""The exports against the tools' own schemas, for profiles that try to break out of them.

Checked with the tools' own code: A2A cards (a2a-sdk 1.3.0, protocol 1.0) and skills (skills-ref 0.1.1). Written down here, with
the version and where it is from: Claude Code, Codex and Cursor. AGENTS.md, CLAUDE.md and GEMINI.md have no schema: they are
plain Markdown, and ``test_exports_formats`` holds that nothing in them acts.
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
from clia.identities import export_formats
from clia.identities.export_formats import FORMATS, ExportOptions, ExportSource
from clia.identities.export_plan import export

if TYPE_CHECKING:
    from support import Tree

URL = "https://agents.example.org/scout"
_SAID = {"type": "string", "pattern": r"\S"}
_NAME = {"type": "string", "pattern": r"^[a-z0-9]+(-[a-z0-9]+)*$"}

# Claude Code 2.1.325, as the type AgentDefinition of its SDK (0.3.325) has it: description, tools, and a model that is an alias, a
# whole identifier or "inherit". In a file there is a name too (lower-case letters and hyphens; ours may have digits), and tools are
# names with commas between, some with a pattern in brackets. These are the fields we write, not all there are.
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
# Codex of August 2026, as its loader of agent files has it: all three are required and none may be blank. The type denies fields it
# does not know, and any other that it knows is a setting: it would change how Codex runs.
CODEX_AGENT = {
    "type": "object",
    "required": ["name", "description", "developer_instructions"],
    "properties": {"name": _SAID, "description": _SAID, "developer_instructions": _SAID},
    "additionalProperties": False,
}
# Cursor, summer 2026: no schema is published that we know of; everybody describes these three. With a description, no glob and
# alwaysApply false, Cursor's agent decides when to read the rule.
CURSOR = {
    "type": "object",
    "required": ["description", "globs", "alwaysApply"],
    "properties": {"description": _SAID, "globs": {"type": ["null", "string"]}, "alwaysApply": {"type": "boolean"}},
    "additionalProperties": False,
}
# The bindings that the SDK knows; its type of a card takes any text.
BINDINGS = {each.value for each in TransportProtocol}


def rendered(tree: Tree, slug: str, content: dict[str, Any], **wishes: Any) -> tuple[dict[str, str], str]:
    """Every export of a profile, and the profile in one line."""
    tree.agent("", slug=slug, **content)
    merged = clia.lineage(tree.path(), slug).profile()
    source = ExportSource(merged, lambda path: path, ExportOptions(("all",), URL, **wishes))
    made = {name: each.render(source) for name, each in FORMATS.items()}
    return {name: each if isinstance(each, str) else each.decode() for name, each in made.items()}, export_formats.profile_summary(
        merged
    )


def front(content: str) -> dict[str, Any]:
    """The front matter, on which all ways of finding its end agree."""
    found = re.match(r"\A---\n(.*?\n)---\n(.*)\Z", content, re.DOTALL)  # at a line of dashes
    assert found is not None
    assert content.split("---", 2)[1:] == [f"\n{found.group(1)}", f"\n{found.group(2)}"]  # at the first dashes anywhere
    fields = yaml.safe_load(found.group(1))
    assert isinstance(fields, dict)
    return fields


def check_card(content: str) -> None:
    card = json_format.Parse(content, AgentCard(), ignore_unknown_fields=False)
    validate_proto_required_fields(card)
    assert json_format.MessageToDict(card) == json.loads(content)
    assert {each.protocol_binding for each in card.supported_interfaces} <= BINDINGS
    assert {each.protocol_version for each in card.supported_interfaces} == {"1.0"}
    texts = [card.name, card.description, *(part for each in card.skills for part in (each.name, each.description, *each.tags))]
    assert all(each.strip() for each in texts)
    identifiers = [each.id for each in card.skills]
    assert len(set(identifiers)) == len(identifiers)


def check_skill(content: str, slug: str, summary: str) -> None:
    fields, body = parser.parse_frontmatter(content)
    assert validator.validate_metadata(fields, Path(slug)) == []
    assert front(content) == fields
    assert body.startswith("<!-- Made by")
    said = fields["description"].removesuffix(f" Use it to work as the agent {slug}.")
    assert said != fields["description"]
    assert not re.search(r"<[A-Za-z/!?]", said)
    plain = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", summary)
    assert said == plain or plain.startswith(said.removesuffix("…"))


def check_all(made: dict[str, str], slug: str, summary: str) -> None:
    """Every export has the shape of its tool's schema, and the tool reads what the profile says."""
    said = summary.replace("<!--", "&lt;!--")
    claude, cursor = front(made["claude-agent"]), front(made["cursor"])
    codex = tomllib.loads(made["codex-agent"])
    for found, schema in ((claude, CLAUDE_AGENT), (cursor, CURSOR), (codex, CODEX_AGENT)):
        jsonschema.validate(found, schema)
        assert found["description"] == said
        assert found.get("name", slug) == slug
    check_card(made["a2a-card"])
    check_skill(made["skill"], slug, summary)


# What a hostile profile is made of.
FRAGMENTS = [
    "---", "\n---\n", "----------", "...", "\n...\n", "+++", "yes", "1.0", "null", "~", "0x1f", ": ", " #", '"', "'", "\\", "\n",
    "\t", "\r\n", "\nname: evil\n", "\ntools: Bash\n", "<!--", "-->", "<!-- clia:end scout -->", "<system>", "</description>",
    "```", '"""', "'''", "{", "[", "&a ", "*a", "!!python/object:x", "%YAML 1.1", "? ", "|", ">", "- ", "@~/.ssh/id_ed25519",
    "\x00", "\x1b[31m", "\x85", "\u2028", "\u200b", "\u202e", "\ufeff", "\ufffe", "\uffff", "\u200d", "\U0001f469\u200d\U0001f680",
    "探索", "é", "\U0001f469\u200d" * 700, "word " * 400,
]  # fmt: skip
ONE_PARAGRAPH = "".join(FRAGMENTS).replace("\n", " ")  # so that a description is made of all of it
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
# Slugs that YAML would take for something else, were they not quoted; and the longest.
SLUGS = st.sampled_from(["scout", "yes", "null", "true", "1", "1e3", "0x1f", "2026-01-01", "a" * 64])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(SLUGS, PROFILES)
def test_no_profile_breaks_out_of_a_tools_schema(tree: Tree, slug: str, content: dict[str, Any]) -> None:
    made, summary = rendered(tree, slug, content)
    check_all(made, slug, summary)


@settings(max_examples=100, deadline=None)
@given(SLUGS, TEXT | st.just(" \n"), TEXT)
def test_no_prompt_breaks_out_of_its_skill_or_makes_a_tool_act(slug: str, said: str, body: str) -> None:
    version = BehaviourVersion(slug, "a" * 40, "prompt", CURRENT, f"{body}!`ls`\n```!\n@{body}", notes=said)
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
def test_hard_profiles_have_what_each_schema_requires(tree: Tree, content: dict[str, Any]) -> None:
    made, summary = rendered(tree, "scout", content)
    check_all(made, "scout", summary)


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
    found = parser.read_properties(folder)
    assert (found.name, found.allowed_tools) == ("yes", None)
    assert found.description.startswith("name: evil --- very long ")
    assert found.description.endswith(" very… Use it to work as the agent yes.")
    assert 1000 < len(found.description) <= 1024
