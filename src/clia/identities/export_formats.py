"""The merged profile as a prompt: what every Markdown export says.

Invariant: a copy is made only of what could be read whole; only the fields of the table are exported, guardrails first;
origins are paths inside the tree, never of the machine.

=====

The A2A AgentCard, version 1.0 of the protocol.

Invariant: every field that the specification requires is there, and every required list has an item.

=====

The formats: where each one lives, and what it says.

Invariant: tools and model come from the operator's flags alone. No permission, hook or server is ever derived from
lineage. Each file has the fields that its tool documents, and no others.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import InvalidDocument, InvalidInput, UnknownKind
from clia.identities import markdown
from clia.identities.contexts import AGENTS
from clia.identities.diagnostics import ERROR
from clia.identities.merge_rules import label_of, projected_lines
from clia.identities.working_path import depth, inside
from clia.values.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from clia.identities.lineage import MergedDocument

EXPORTED_FIELDS = (
    "guardrails",
    "role",
    "purpose",
    "responsibilities",
    "principles",
    "focusDomains",
    "operationModes",
    "checklists",
    "sections",
)


def check_complete(merged: MergedDocument) -> None:
    """Refuses a document with a layer that could not be used: it could be the one with the guardrails."""
    wrong = [each.message for each in merged.diagnostics if each.severity == ERROR]
    if wrong:
        raise InvalidDocument(
            f"the {merged.kind} document of {merged['slug']} cannot be read whole: {wrong[0]}",
            hints=[*wrong[1:], "a copy could lack guardrails, so nothing was written; see clia agents lint"],
            fields={"slug": merged["slug"], "findings": wrong},
        )


def profile_body(merged: MergedDocument, opening: str, shown: Callable[[str], str], level: int) -> str:
    """The profile as Markdown."""
    title = merged.get("title") or merged["slug"]
    return markdown.render(title, opening, markdown.merged_sections(merged, EXPORTED_FIELDS, shown), level)


def profile_summary(merged: MergedDocument) -> str:
    """The agent in one line: the first paragraph of its purpose, else its role or title."""
    for field in ("purpose", "role", "title"):
        value = merged.get(field)
        if isinstance(value, str) and value.strip():
            return markdown.one_line(markdown.paragraphs(value)[0])
    return f"The agent {merged['slug']}"


def profile_hash(merged: MergedDocument) -> str:
    """SHA-256 of the merged profile; the same wherever the tree is checked out."""
    document: dict[str, Any] = dict(merged.document)
    if "waivedGuardrails" in document:
        marks = document["waivedGuardrails"]
        document["waivedGuardrails"] = [{key: mark[key] for key in mark if key != "declaredIn"} for mark in marks]
    return digest(document)


def shown_from(root: str, repositories: Sequence[str]) -> Callable[[str], str]:
    """How a file is named in an export: relative to ``root``, without a name of any directory above the tree.

    ``repositories`` enclose the working path, outermost first.
    """
    tree = repositories[0] if repositories else None

    def shown(path: str) -> str:
        if inside(path, root):
            return _relative_below(path, root)
        domain, found, rest = path.rpartition(f"/{AGENTS}/")
        if found and inside(root, domain or "/"):
            return "../" * (depth(root) - depth(domain or "/")) + f"{AGENTS}/{rest}"
        if tree is not None and inside(path, tree):
            return _relative(path, root) if inside(root, tree) else _relative_below(path, tree)
        return f"{AGENTS}/{rest}" if found else path.rpartition("/")[2]

    return shown


def _relative_below(path: str, root: str) -> str:
    return path.removeprefix(root).removeprefix("/")


def _relative(path: str, root: str) -> str:
    ours, theirs = root.split("/"), path.split("/")
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
        common += 1
    return "/".join([*[".."] * (len(ours) - common), *theirs[common:]])


A2A_PROTOCOL = "1.0"
_A2A_BINDING = "JSONRPC"
_A2A_MODES = ["text/plain"]


def agent_card(merged: MergedDocument, url: str) -> bytes:
    """The card as JSON; text is one line each, since clients show it as names and descriptions."""
    made = {
        "name": markdown.one_line(merged.get("title") or merged["slug"]),
        "description": profile_summary(merged),
        "version": profile_hash(merged),
        "supportedInterfaces": [{"url": url, "protocolBinding": _A2A_BINDING, "protocolVersion": A2A_PROTOCOL}],
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": _A2A_MODES,
        "defaultOutputModes": _A2A_MODES,
        "skills": _card_skills(merged),
    }
    return (json.dumps(made, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def check_card_url(url: str | None) -> str:
    """The address of the agent, or ``InvalidInput``."""
    from urllib.parse import urlsplit

    if url is None:
        raise InvalidInput(
            "an a2a-card needs the agent's address",
            code="url-needed",
            hints=["add --url https://…; without an address, leave a2a-card out of --to"],
            fields={"option": "--url"},
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        # A card is public: a password in it would be, too.
        usable = usable and parts.username is None and parts.password is None
    if not usable or not url.isprintable() or " " in url:
        raise InvalidInput(
            "--url must be an absolute http or https address without a user name",
            code="invalid-url",
            hints=["for example https://agents.example.org/scout"],
            fields={"option": "--url"},
        )
    return url


def _card_skills(merged: MergedDocument) -> list[dict[str, Any]]:
    """One skill a focus domain; an agent that names none has one skill, itself."""
    tags = [markdown.one_line(each) for each in merged.get("tags") or () if isinstance(each, str)]
    found: list[dict[str, Any]] = []
    taken: set[str] = set()
    for item in merged.get("focusDomains") or ():
        name = markdown.one_line(label_of(item) if isinstance(item, dict) else "") or markdown.one_line(
            " ".join(projected_lines(item))
        )
        if name:
            own = _unique_id(name, len(found) + 1, taken)
            found.append({"id": own, "name": name, "description": _domain_description(item) or name, "tags": tags or [own]})
    if found:
        return found
    slug, name = merged["slug"], markdown.one_line(merged.get("title") or merged["slug"])
    return [{"id": slug, "name": name, "description": profile_summary(merged), "tags": tags or [slug]}]


def _domain_description(item: Any) -> str:
    """What a focus domain says about itself beyond its name."""
    if not isinstance(item, dict):
        return ""
    given = [item[key] for key in ("description", "summary", "notes") if isinstance(item.get(key), str)]
    return next((markdown.one_line(each) for each in given if each.strip()), "")


def _unique_id(name: str, position: int, taken: set[str]) -> str:
    plain = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:64].strip("-") or f"skill-{position}"
    found, copy = plain, 2
    while found in taken:
        found, copy = f"{plain}-{copy}", copy + 1
    taken.add(found)
    return found


AGENTS_MD, CLAUDE_MD, GEMINI = "agents-md", "claude-md", "gemini"
CLAUDE_AGENT, SKILL, CODEX_AGENT, CURSOR, A2A_CARD = "claude-agent", "skill", "codex-agent", "cursor", "a2a-card"
ALL_FORMATS = "all"
_NOTE = 'Made by "clia agents export" from the agent\'s lineage. Change its documents, not this copy.'
_SKILL_DESCRIPTION_MAX = 1024  # the limit of the Agent Skills format
# Tools list the descriptions of skills to the model between tags of their own.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


class ExportOptions(NamedTuple):
    """What the operator asks for."""

    formats: tuple[str, ...]
    url: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None


class ExportSource(NamedTuple):
    """What a format is made from."""

    merged: MergedDocument
    shown: Callable[[str], str]  # how the path of a file is written
    wishes: ExportOptions


class ExportFormat(NamedTuple):
    path: str  # below the target root; {slug} is the agent
    whole: bool  # a file of clia's own, or a managed block in somebody else's
    render: Callable[[ExportSource], str | bytes]


def _managed_block(source: ExportSource) -> str:
    slug = markdown.code_span(source.merged["slug"])
    return profile_body(source.merged, f"This holds for whoever works here as the agent {slug}.", source.shown, 2)


def _import_line(source: ExportSource) -> str:
    del source  # the same for every agent
    return "@AGENTS.md\n"


def _agent_prompt(source: ExportSource) -> str:
    slug = markdown.code_span(source.merged["slug"])
    return profile_body(source.merged, f"You are the agent {slug}.", source.shown, 1)


def with_front_matter(fields: Iterable[tuple[str, str]], body: str, note: str = _NOTE) -> str:
    """YAML front matter, then the body."""
    front = "".join(f"{key}: {value}".rstrip() + "\n" for key, value in fields)
    return f"---\n{front}---\n<!-- {note} -->\n\n{body}"


def skill_description(said: str, when: str = "") -> str:
    """What a skill is for, on a line that its format takes; ``when`` is never cut."""
    return markdown.shortened(_TAG.sub("&lt;", markdown.one_line(said)), _SKILL_DESCRIPTION_MAX - len(when)) + when


def _description(source: ExportSource) -> str:
    return profile_summary(source.merged).replace("<!--", "&lt;!--")


def _claude_agent(source: ExportSource) -> str:
    fields = [
        ("name", markdown.quoted_string(source.merged["slug"])),
        ("description", markdown.quoted_string(_description(source))),
    ]
    if source.wishes.tools:
        fields.append(("tools", markdown.quoted_string(", ".join(source.wishes.tools))))
    if source.wishes.model:
        fields.append(("model", markdown.quoted_string(source.wishes.model)))
    return with_front_matter(fields, _agent_prompt(source))


def _skill(source: ExportSource) -> str:
    """The profile in the Agent Skills format. Its tools are left out: they would be granted, not merely named."""
    slug = source.merged["slug"]
    description = skill_description(profile_summary(source.merged), f" Use it to work as the agent {slug}.")
    opening = f"Whoever uses this skill works as the agent {markdown.code_span(slug)}."
    body = profile_body(source.merged, opening, source.shown, 1)
    return with_front_matter([("name", markdown.quoted_string(slug)), ("description", markdown.quoted_string(description))], body)


def _cursor(source: ExportSource) -> str:
    # Not always applied: several agents may be exported, and each rule is one of them.
    return with_front_matter(
        [("description", markdown.quoted_string(_description(source))), ("globs", ""), ("alwaysApply", "false")],
        _agent_prompt(source),
    )


def _codex_agent(source: ExportSource) -> str:
    import tomli_w

    fields = {
        "name": source.merged["slug"],
        "description": _description(source),
        "developer_instructions": _agent_prompt(source),
    }
    return f"# {_NOTE}\n{tomli_w.dumps(fields, multiline_strings=True)}"


def _a2a_card(source: ExportSource) -> bytes:
    return agent_card(source.merged, check_card_url(source.wishes.url))


FORMATS = {
    AGENTS_MD: ExportFormat("AGENTS.md", False, _managed_block),
    CLAUDE_MD: ExportFormat("CLAUDE.md", False, _import_line),
    GEMINI: ExportFormat("GEMINI.md", False, _managed_block),
    CLAUDE_AGENT: ExportFormat(".claude/agents/{slug}.md", True, _claude_agent),
    SKILL: ExportFormat(".claude/skills/{slug}/SKILL.md", True, _skill),
    CODEX_AGENT: ExportFormat(".codex/agents/{slug}.toml", True, _codex_agent),
    CURSOR: ExportFormat(".cursor/rules/{slug}.mdc", True, _cursor),
    A2A_CARD: ExportFormat(".clia/exports/{slug}.agent-card.json", True, _a2a_card),
}
# An option says something about one format only; asking for it without that format is a mistake.
_OPTION_FORMATS = {"url": A2A_CARD, "tools": CLAUDE_AGENT, "model": CLAUDE_AGENT}


def chosen_formats(wishes: ExportOptions) -> list[str]:
    """The formats that are asked for, each once, with what they need; ``InvalidInput`` where the wishes do not fit."""
    asked = set(FORMATS) if ALL_FORMATS in wishes.formats else set(wishes.formats)
    unknown = sorted(asked - set(FORMATS))
    if unknown or not asked:
        raise UnknownKind(
            f"{', '.join(map(repr, unknown))} is no export format" if unknown else "no export format was named",
            hints=[f"one of {', '.join(FORMATS)}, {ALL_FORMATS}"],
            fields={"formats": unknown},
        )
    if A2A_CARD in asked:
        check_card_url(wishes.url)
    for option, needed in _OPTION_FORMATS.items():
        value = getattr(wishes, option)
        if value not in (None, ()) and needed not in asked:
            raise InvalidInput(
                f"--{option} is for {needed} only, which is not asked for", code="unused-option", fields={"option": f"--{option}"}
            )
        for each in value if isinstance(value, tuple) else [value] if value is not None else []:
            _check_word(option, each)
    if CLAUDE_MD in asked:
        asked.add(AGENTS_MD)  # which it imports
    return [each for each in FORMATS if each in asked]


def _check_word(option: str, value: str) -> None:
    if not value.strip() or markdown.one_line(value) != value:
        wanted = "one line of visible text"
    elif option == "model" and " " in value:
        wanted = "a model's alias or its identifier"
    else:
        return
    raise InvalidInput(f"--{option} must be {wanted}, not {value!r}", code="invalid-option", fields={"option": f"--{option}"})
