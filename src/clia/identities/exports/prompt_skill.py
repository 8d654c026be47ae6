"""A prompt as a skill: what people let agents be told, in the Agent Skills format.

Invariant: the copy says which version it is of. What the prompt says stands there line by line; nothing in it acts on whoever opens
the file, and no tool is granted. The name is one that the format takes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.identities.exports import text
from clia.identities.exports.formats import FORMATS, SKILL, fronted, skill_description
from clia.identities.exports.plan import Target

FORMAT = "prompt-skill"
"""As the manifest has it: an agent of the same name may have a skill too, and neither may pass for the other."""
VERSION = "clia-behaviour"
_NAME = re.compile(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*")


class PromptSkill(NamedTuple):
    name: str
    cid: str
    said: str  # what it is for, where anybody has said so
    body: str


def target(skill: PromptSkill) -> Target:
    """The file that it becomes; ``InvalidInput`` where the format takes no such name."""
    if _NAME.fullmatch(skill.name) is None:
        raise InvalidInput(
            f"{skill.name!r} cannot be the name of a skill: at most 64 characters, and single hyphens only between others",
            code="not-a-skill-name",
            hints=["add the prompt under another name"],
            fields={"behaviour": skill.name},
        )
    return Target(FORMATS[SKILL].path.format(slug=skill.name), FORMAT, True, lambda: _rendered(skill))


def _rendered(skill: PromptSkill) -> str:
    note = f'Made by "clia behaviour export" from the prompt {skill.name}. Add a new version of it, and do not change this copy.'
    said = skill.said if skill.said.strip() else f"The prompt {skill.name}, as it is used here."
    fields = [
        ("name", text.quoted(skill.name)),
        ("description", text.quoted(skill_description(said))),
        ("metadata", ""),
        (f"  {VERSION}", text.quoted(skill.cid)),
    ]
    return fronted(fields, text.inert(skill.body), note)
