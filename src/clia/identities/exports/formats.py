"""The formats: where each one lives, and what it says.

Invariant: tools and model come from the operator's flags alone. No permission, hook or server is ever derived from
lineage. Each file has the fields that its tool documents, and no others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import InvalidInput, UnknownKind
from clia.identities.exports import profile, text
from clia.identities.exports.card import card, checked_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from clia.identities.view import MergedDocument

AGENTS_MD, CLAUDE_MD, GEMINI = "agents-md", "claude-md", "gemini"
CLAUDE_AGENT, SKILL, CODEX_AGENT, CURSOR, A2A_CARD = "claude-agent", "skill", "codex-agent", "cursor", "a2a-card"
ALL = "all"
_NOTE = 'Made by "clia agents export" from the agent\'s lineage. Change its documents, not this copy.'
_SKILL_DESCRIPTION_MAX = 1024  # the limit of the Agent Skills format
# Tools list the descriptions of skills to the model between tags of their own.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


class Wishes(NamedTuple):
    """What the operator asks for."""

    formats: tuple[str, ...]
    url: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None


class Source(NamedTuple):
    """What a format is made from."""

    merged: MergedDocument
    shown: Callable[[str], str]  # how the path of a file is written
    wishes: Wishes


class Format(NamedTuple):
    path: str  # below the target root; {slug} is the agent
    whole: bool  # a file of clia's own, or a managed block in somebody else's
    render: Callable[[Source], str | bytes]


def _block(source: Source) -> str:
    slug = text.code(source.merged["slug"])
    return profile.body(source.merged, f"This holds for whoever works here as the agent {slug}.", source.shown, 2)


def _import(source: Source) -> str:
    del source  # the same for every agent
    return "@AGENTS.md\n"


def _prompt(source: Source) -> str:
    slug = text.code(source.merged["slug"])
    return profile.body(source.merged, f"You are the agent {slug}.", source.shown, 1)


def fronted(fields: Iterable[tuple[str, str]], body: str, note: str = _NOTE) -> str:
    """YAML front matter, then the body."""
    front = "".join(f"{key}: {value}".rstrip() + "\n" for key, value in fields)
    return f"---\n{front}---\n<!-- {note} -->\n\n{body}"


def skill_description(said: str, when: str = "") -> str:
    """What a skill is for, on a line that its format takes; ``when`` is never cut."""
    return text.shortened(_TAG.sub("&lt;", text.line(said)), _SKILL_DESCRIPTION_MAX - len(when)) + when


def _description(source: Source) -> str:
    return profile.summary(source.merged).replace("<!--", "&lt;!--")


def _claude_agent(source: Source) -> str:
    fields = [("name", text.quoted(source.merged["slug"])), ("description", text.quoted(_description(source)))]
    if source.wishes.tools:
        fields.append(("tools", text.quoted(", ".join(source.wishes.tools))))
    if source.wishes.model:
        fields.append(("model", text.quoted(source.wishes.model)))
    return fronted(fields, _prompt(source))


def _skill(source: Source) -> str:
    """The profile in the Agent Skills format. Its tools are left out: they would be granted, not merely named."""
    slug = source.merged["slug"]
    description = skill_description(profile.summary(source.merged), f" Use it to work as the agent {slug}.")
    opening = f"Whoever uses this skill works as the agent {text.code(slug)}."
    body = profile.body(source.merged, opening, source.shown, 1)
    return fronted([("name", text.quoted(slug)), ("description", text.quoted(description))], body)


def _cursor(source: Source) -> str:
    # Not always applied: several agents may be exported, and each rule is one of them.
    return fronted([("description", text.quoted(_description(source))), ("globs", ""), ("alwaysApply", "false")], _prompt(source))


def _codex_agent(source: Source) -> str:
    import tomli_w

    fields = {
        "name": source.merged["slug"],
        "description": _description(source),
        "developer_instructions": _prompt(source),
    }
    return f"# {_NOTE}\n{tomli_w.dumps(fields, multiline_strings=True)}"


def _a2a_card(source: Source) -> bytes:
    return card(source.merged, checked_url(source.wishes.url))


FORMATS = {
    AGENTS_MD: Format("AGENTS.md", False, _block),
    CLAUDE_MD: Format("CLAUDE.md", False, _import),
    GEMINI: Format("GEMINI.md", False, _block),
    CLAUDE_AGENT: Format(".claude/agents/{slug}.md", True, _claude_agent),
    SKILL: Format(".claude/skills/{slug}/SKILL.md", True, _skill),
    CODEX_AGENT: Format(".codex/agents/{slug}.toml", True, _codex_agent),
    CURSOR: Format(".cursor/rules/{slug}.mdc", True, _cursor),
    A2A_CARD: Format(".clia/exports/{slug}.agent-card.json", True, _a2a_card),
}
# An option says something about one format only; asking for it without that format is a mistake.
_OPTIONS = {"url": A2A_CARD, "tools": CLAUDE_AGENT, "model": CLAUDE_AGENT}


def chosen(wishes: Wishes) -> list[str]:
    """The formats that are asked for, each once, with what they need; ``InvalidInput`` where the wishes do not fit."""
    asked = set(FORMATS) if ALL in wishes.formats else set(wishes.formats)
    unknown = sorted(asked - set(FORMATS))
    if unknown or not asked:
        raise UnknownKind(
            f"{', '.join(map(repr, unknown))} is no export format" if unknown else "no export format was named",
            hints=[f"one of {', '.join(FORMATS)}, {ALL}"],
            fields={"formats": unknown},
        )
    if A2A_CARD in asked:
        checked_url(wishes.url)
    for option, needed in _OPTIONS.items():
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
    if not value.strip() or text.line(value) != value:
        wanted = "one line of visible text"
    elif option == "model" and " " in value:
        wanted = "a model's alias or its identifier"
    else:
        return
    raise InvalidInput(f"--{option} must be {wanted}, not {value!r}", code="invalid-option", fields={"option": f"--{option}"})
