"""The export formats: the path and content of each file.

Invariant: only complete profiles are exported, guardrails first, and never the agency. Origins are paths inside the tree, never
absolute. Tools and model come from the operator's options; no permission, hook or server is derived from an identity. The
A2A card has every field that version 1.0 of the protocol requires.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import InvalidDocument, InvalidInput, UnknownKind
from clia.identities.contexts import AGENTS
from clia.identities.diagnostics import ERROR
from clia.identities.exports import markdown
from clia.identities.merge_rules import MARKS, label_of, projected_lines
from clia.identities.working_path import depth, inside
from clia.values.canonical import digest
from clia.values.json_text import pretty_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from clia.identities.lineage import MergedDocument

EXPORTED_FIELDS = (
    "guardrails", "role", "purpose", "responsibilities", "principles", "focusDomains", "operationModes", "checklists", "sections",
)  # fmt: skip


def check_complete(merged: MergedDocument) -> None:
    """Refuse a document with an unusable layer: it could be the one with the guardrails."""
    wrong = [diagnostic.message for diagnostic in merged.diagnostics if diagnostic.severity == ERROR]
    if wrong:
        message = f"the {merged.kind} document of {merged['slug']} is incomplete: {wrong[0]}"
        hints = [*wrong[1:], "nothing was written, because guardrails could be missing; see clia agents lint"]
        raise InvalidDocument(message, hints=hints, fields={"slug": merged["slug"], "findings": wrong})


def profile_summary(merged: MergedDocument) -> str:
    """One line: the first paragraph of the purpose, or the role or title."""
    for field in ("purpose", "role", "title"):
        value = merged.get(field)
        if isinstance(value, str) and value.strip():
            return markdown.one_line(markdown.paragraphs(value)[0])
    return f"The agent {merged['slug']}"


def shown_from(root: str, repositories: Sequence[str]) -> Callable[[str], str]:
    """A function that shortens paths for exports: relative to ``root``, without directory names above the tree.

    ``repositories`` enclose the working path, outermost first.
    """
    tree = repositories[0] if repositories else None

    def shown(path: str) -> str:
        if inside(path, root):
            return _relative_below(path, root)
        domain, agents, rest = path.rpartition(f"/{AGENTS}/")
        if agents and inside(root, domain or "/"):
            return "../" * (depth(root) - depth(domain or "/")) + f"{AGENTS}/{rest}"
        if tree is not None and inside(path, tree):
            return os.path.relpath(path, root) if inside(root, tree) else _relative_below(path, tree)
        return f"{AGENTS}/{rest}" if agents else path.rpartition("/")[2]

    return shown


def _relative_below(path: str, root: str) -> str:
    return path.removeprefix(root).removeprefix("/")


A2A_PROTOCOL = "1.0"


def _a2a_card(source: ExportSource) -> bytes:
    """The A2A agent card as JSON; each text is one line, because clients show them as names and descriptions."""
    merged, url = source.merged, check_card_url(source.options.url)
    document: dict[str, Any] = dict(merged.document)
    if MARKS in document:  # the version must not depend on where the tree is checked out
        document[MARKS] = [{key: mark[key] for key in mark if key != "declaredIn"} for mark in document[MARKS]]
    card = {
        "name": markdown.one_line(merged.get("title") or merged["slug"]),
        "description": profile_summary(merged),
        "version": digest(document),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": A2A_PROTOCOL}],
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": _card_skills(merged),
    }
    return pretty_bytes(card)


def check_card_url(url: str | None) -> str:
    """The agent's URL; ``InvalidInput`` if it is missing or invalid."""
    from urllib.parse import urlsplit

    if url is None:
        hints = ["add --url https://…, or omit a2a-card from --to"]
        raise InvalidInput("an a2a-card needs the agent's URL", code="url-needed", hints=hints, fields={"option": "--url"})
    try:
        parts = urlsplit(url)
        has_credentials = parts.username is not None or parts.password is not None  # a card is public
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not has_credentials
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        hints = ["for example https://agents.example.org/scout"]
        message = "--url must be an absolute http or https URL without a user name"
        raise InvalidInput(message, code="invalid-url", hints=hints, fields={"option": "--url"})
    return url


def _card_skills(merged: MergedDocument) -> list[dict[str, Any]]:
    """One skill per focus domain; without domains, the identity itself."""
    tags = [markdown.one_line(tag) for tag in merged.get("tags") or () if isinstance(tag, str)]
    skills: list[dict[str, Any]] = []
    ids: set[str] = set()
    for item in merged.get("focusDomains") or ():
        fields: dict[str, Any] = item if isinstance(item, dict) else {}
        name = markdown.one_line(label_of(fields)) or markdown.one_line(" ".join(projected_lines(item)))
        if name:
            own = _unique_id(name, len(skills) + 1, ids)
            texts = [fields.get(key) for key in ("description", "summary", "notes")]
            description = next((markdown.one_line(text) for text in texts if isinstance(text, str) and text.strip()), name)
            skills.append({"id": own, "name": name, "description": description, "tags": tags or [own]})
    if skills:
        return skills
    slug, name = merged["slug"], markdown.one_line(merged.get("title") or merged["slug"])
    return [{"id": slug, "name": name, "description": profile_summary(merged), "tags": tags or [slug]}]


def _unique_id(name: str, position: int, taken: set[str]) -> str:
    plain = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:64].strip("-") or f"skill-{position}"
    unique, copy = plain, 2
    while unique in taken:
        unique, copy = f"{plain}-{copy}", copy + 1
    taken.add(unique)
    return unique


AGENTS_MD, CLAUDE_MD, GEMINI = "agents-md", "claude-md", "gemini"
CLAUDE_AGENT, SKILL, CODEX_AGENT, CURSOR, A2A_CARD = "claude-agent", "skill", "codex-agent", "cursor", "a2a-card"
ALL_FORMATS = "all"
_NOTE = 'Made by "clia agents export" from the agent\'s lineage. Change its documents, not this copy.'
_SKILL_DESCRIPTION_MAX = 1024  # the limit of the Agent Skills format
# Tools show skill descriptions to the model between tags.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


class ExportOptions(NamedTuple):
    """Formats and options that the operator chose."""

    formats: tuple[str, ...]
    url: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None


class ExportSource(NamedTuple):
    """The input of a format."""

    merged: MergedDocument
    shown: Callable[[str], str]  # shortens paths
    options: ExportOptions


class ExportFormat(NamedTuple):
    path: str  # below the target root
    whole: bool  # a file owned by clia, otherwise a managed block
    render: Callable[[ExportSource], str | bytes]


def _profile_body(source: ExportSource, opening: str = "You are the agent {}.", level: int = 1) -> str:
    """The profile as Markdown."""
    merged, slug = source.merged, source.merged["slug"]
    sections = markdown.merged_sections(merged, EXPORTED_FIELDS, source.shown)
    return markdown.render(merged.get("title") or slug, opening.format(markdown.code_span(slug)), sections, level)


def _managed_block(source: ExportSource) -> str:
    return _profile_body(source, "These instructions apply to work as the agent {}.", 2)


def with_front_matter(fields: Iterable[tuple[str, str]], body: str, note: str = _NOTE) -> str:
    """YAML front matter, then the body."""
    front = "".join(f"{key}: {value}".rstrip() + "\n" for key, value in fields)
    return f"---\n{front}---\n<!-- {note} -->\n\n{body}"


def skill_description(text: str, when: str = "") -> str:
    """A skill description on one line, within the format's limit; ``when`` is never cut."""
    return markdown.shortened(_TAG.sub("&lt;", markdown.one_line(text)), _SKILL_DESCRIPTION_MAX - len(when)) + when


def _description(source: ExportSource) -> str:
    return profile_summary(source.merged).replace("<!--", "&lt;!--")


def _claude_agent(source: ExportSource) -> str:
    fields = {
        "name": source.merged["slug"],
        "description": _description(source),
        "tools": ", ".join(source.options.tools),
        "model": source.options.model,
    }
    return with_front_matter([(key, markdown.quoted_string(text)) for key, text in fields.items() if text], _profile_body(source))


def _skill(source: ExportSource) -> str:
    """The profile in the Agent Skills format; tools are omitted, because listing them would grant them."""
    slug = source.merged["slug"]
    description = skill_description(profile_summary(source.merged), f" Use it to work as the agent {slug}.")
    fields = [("name", markdown.quoted_string(slug)), ("description", markdown.quoted_string(description))]
    return with_front_matter(fields, _profile_body(source, "Use this skill to work as the agent {}."))


def _cursor(source: ExportSource) -> str:
    # Not always applied, because several identities may be exported.
    fields = [("description", markdown.quoted_string(_description(source))), ("globs", ""), ("alwaysApply", "false")]
    return with_front_matter(fields, _profile_body(source))


def _codex_agent(source: ExportSource) -> str:
    import tomli_w

    slug, description = source.merged["slug"], _description(source)
    fields = {"name": slug, "description": description, "developer_instructions": _profile_body(source)}
    return f"# {_NOTE}\n{tomli_w.dumps(fields, multiline_strings=True)}"


FORMATS = {
    AGENTS_MD: ExportFormat("AGENTS.md", False, _managed_block),
    CLAUDE_MD: ExportFormat("CLAUDE.md", False, lambda _: "@AGENTS.md\n"),
    GEMINI: ExportFormat("GEMINI.md", False, _managed_block),
    CLAUDE_AGENT: ExportFormat(".claude/agents/{slug}.md", True, _claude_agent),
    SKILL: ExportFormat(".claude/skills/{slug}/SKILL.md", True, _skill),
    CODEX_AGENT: ExportFormat(".codex/agents/{slug}.toml", True, _codex_agent),
    CURSOR: ExportFormat(".cursor/rules/{slug}.mdc", True, _cursor),
    A2A_CARD: ExportFormat(".clia/exports/{slug}.agent-card.json", True, _a2a_card),
}
# Each option belongs to one format and is rejected without it.
_OPTION_FORMATS = {"url": A2A_CARD, "tools": CLAUDE_AGENT, "model": CLAUDE_AGENT}


def chosen_formats(options: ExportOptions) -> list[str]:
    """The requested formats and those they need, each once; ``InvalidInput`` for invalid options."""
    formats = set(FORMATS) if ALL_FORMATS in options.formats else set(options.formats)
    unknown = sorted(formats - set(FORMATS))
    if unknown or not formats:
        message = f"{', '.join(map(repr, unknown))} is not an export format" if unknown else "no export format given"
        raise UnknownKind(message, hints=[f"one of {', '.join(FORMATS)}, {ALL_FORMATS}"], fields={"formats": unknown})
    if A2A_CARD in formats:
        check_card_url(options.url)
    for option, needed in _OPTION_FORMATS.items():
        value = getattr(options, option)
        if value not in (None, ()) and needed not in formats:
            raise InvalidInput(f"--{option} is only valid with {needed}", code="unused-option", fields={"option": f"--{option}"})
        for item in value if isinstance(value, tuple) else [value] if value is not None else []:
            _check_word(option, item)
    if CLAUDE_MD in formats:
        formats.add(AGENTS_MD)  # which it imports
    return [name for name in FORMATS if name in formats]


def _check_word(option: str, value: str) -> None:
    if not value.strip() or markdown.one_line(value) != value:
        expected = "one line of visible text"
    elif option == "model" and " " in value:
        expected = "a model alias or identifier"
    else:
        return
    raise InvalidInput(f"--{option} must be {expected}, not {value!r}", code="invalid-option", fields={"option": f"--{option}"})
