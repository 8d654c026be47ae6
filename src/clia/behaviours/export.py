"""Export of prompts as skills, in the Agent Skills format.

Invariant: only versions that may run are exported. The copy names its version and grants no tools, and its text is inert
Markdown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clia.behaviours.model import FOREIGN, MAY_RUN
from clia.behaviours.prompts import readable
from clia.errors import InvalidInput, NotAllowed
from clia.files import WritableLocalFiles
from clia.identities.exports.formats import FORMATS, SKILL, skill_description, with_front_matter
from clia.identities.exports.markdown import inert_markdown, quoted_string
from clia.identities.exports.plan import ExportTarget, apply_export, output_directory, plan_targets
from clia.values.typed_objects import PROMPT

if TYPE_CHECKING:
    from os import PathLike

    from clia.behaviours.model import BehaviourVersion
    from clia.facade.space import Space
    from clia.identities.exports.plan import ExportPlan

    Path = str | PathLike[str]

FORMAT = "prompt-skill"
"""The format in the manifest; it distinguishes a prompt from an identity with the same name."""
VERSION_KEY = "clia-behaviour"
_SKILL_NAME = re.compile(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*")


def export_prompt(
    space: Space, behaviour: str, path: Path, *, output_root: Path | None = None, write: bool = True, force: bool = False
) -> tuple[BehaviourVersion, ExportPlan]:
    """Write a prompt as a skill below ``output_root``, by default the repository that encloses ``path``.

    ``behaviour`` is a name, for its current version, or the id of a version that may run. Without ``write``, only the plan is
    returned; ``force`` overwrites exported files that were edited.
    """
    version = space.behaviours.version(behaviour)
    _check_exportable(version, behaviour)
    files = WritableLocalFiles()
    root = output_directory(files, path, output_root)
    targets = [skill_target(version)]
    if not write:
        return version, plan_targets(files, root, version.name, "prompt", targets)
    with files.exclusive(root):
        plan = plan_targets(files, root, version.name, "prompt", targets)
        apply_export(files, plan, force=force)
    return version, plan


def skill_target(version: BehaviourVersion) -> ExportTarget:
    """The skill file of a prompt; ``InvalidInput`` if the format does not accept its name."""
    if _SKILL_NAME.fullmatch(version.name) is None:
        raise InvalidInput(
            f"{version.name!r} is not a valid skill name: at most 64 characters, without leading, trailing or double hyphens",
            code="not-a-skill-name",
            hints=["add the prompt under another name"],
            fields={"behaviour": version.name},
        )
    return ExportTarget(FORMATS[SKILL].path.format(slug=version.name), FORMAT, True, lambda: _rendered(version))


def _check_exportable(version: BehaviourVersion, name: str) -> None:
    fields = {"behaviour": version.name, "cid": version.cid}
    if version.kind != PROMPT:
        raise InvalidInput(f"{version.name!r} is a flow: only prompts can be exported", code="not-a-prompt", fields=fields)
    if version.state not in MAY_RUN:
        adopted = name if version.state == FOREIGN else f"{version.name} {version.cid[:12]}"
        raise NotAllowed(
            f"version {version.cid[:12]} of {version.name!r} is {version.state}: only adopted versions can be exported",
            code="not-adopted",
            hints=[f"clia behaviour adopt {adopted}"],
            fields={**fields, "state": version.state},
        )


def _rendered(version: BehaviourVersion) -> str:
    note = f'Made by "clia behaviour export" from the prompt {version.name}. Do not edit; add a new version of the prompt.'
    description = version.notes if version.notes.strip() else version.why
    if not description.strip():
        description = f"The prompt {version.name} of this repository."
    fields = [
        ("name", quoted_string(version.name)),
        ("description", quoted_string(skill_description(description))),
        ("metadata", ""),
        (f"  {VERSION_KEY}", quoted_string(version.cid)),
    ]
    return with_front_matter(fields, inert_markdown(readable(version.body)), note)
