"""Exports and mirrors on the local file system.

Invariant: looking and writing happen under one lock on the target root, so that two writers never mix. Of prompts, only what
people let agents use is copied to where tools will use it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clia.errors import InvalidInput, NotAllowed, NotFound
from clia.identities import mirrors as mirroring
from clia.identities.exports import plan as planning
from clia.identities.exports.formats import Source
from clia.identities.exports.profile import check_whole, shown_from
from clia.identities.file_interface import DIRECTORY
from clia.identities.files import WritableLocalFiles
from clia.identities.places import repositories_above
from clia.identities.resolve import place

if TYPE_CHECKING:
    from clia.behaviours.model import BehaviourVersion
    from clia.facade.space import Space
    from clia.identities.exports.formats import Wishes
    from clia.identities.exports.plan import Plan
    from clia.identities.file_interface import WritableFiles
    from clia.identities.mirrors import Mirrors
    from clia.identities.view import Lineage

    Path = str | os.PathLike[str]


def export(lineage: Lineage, wishes: Wishes, *, output_root: Path | None = None, write: bool = True, force: bool = False) -> Plan:
    """Writes the wished copies of an agent's profile; without ``write`` only says how each stands.

    ``output_root`` takes the place of the nearest repository root; ``force`` overwrites clia's own files that were
    edited by hand.
    """
    files = WritableLocalFiles()
    root = _root(files, lineage.place.path, output_root)
    merged = lineage.profile()
    check_whole(merged)
    source = Source(merged, shown_from(root, repositories_above(files, lineage.place.path)[::-1]), wishes)
    if not write:
        return planning.plan(files, root, source)
    with files.exclusive(root):
        planned = planning.plan(files, root, source)
        planning.apply(files, planned, force=force)
    return planned


def export_prompt(
    space: Space, behaviour: str, path: Path, *, output_root: Path | None = None, write: bool = True, force: bool = False
) -> tuple[BehaviourVersion, Plan]:
    """Writes a prompt as a skill: a name's current version, or one that people let run, by its id. Otherwise as ``export``.

    ``path`` is in the repository to write to, unless ``output_root`` names another place.
    """
    from clia.behaviours.rendering import in_words
    from clia.identities.exports import prompt_skill

    version = _exportable(space.behaviour_version(behaviour), behaviour)
    files = WritableLocalFiles()
    root = _root(files, files.real(os.path.abspath(path)), output_root)
    said = version.notes if version.notes.strip() else version.why
    made = prompt_skill.PromptSkill(version.name, version.cid, said, in_words(version.body))
    targets = [prompt_skill.target(made)]
    if not write:
        return version, planning.plan_targets(files, root, version.name, "prompt", targets)
    with files.exclusive(root):
        planned = planning.plan_targets(files, root, version.name, "prompt", targets)
        planning.apply(files, planned, force=force)
    return version, planned


def _exportable(version: BehaviourVersion, given: str) -> BehaviourVersion:
    from clia.behaviours.model import FOREIGN, MAY_RUN
    from clia.values.typed_objects import PROMPT

    fields = {"behaviour": version.name, "cid": version.cid}
    if version.kind != PROMPT:
        raise InvalidInput(f"{version.name!r} is a flow: only a prompt can be a skill", code="not-a-prompt", fields=fields)
    if version.state not in MAY_RUN:
        what = given if version.state == FOREIGN else f"{version.name} {version.cid[:12]}"
        raise NotAllowed(
            f"the version {version.cid[:12]} of {version.name!r} is {version.state}: only what people let run is exported",
            code="not-adopted",
            hints=[f"clia behaviour adopt {what}"],
            fields={**fields, "state": version.state},
        )
    return version


def mirrors(path: Path, slug: str | None = None, *, merged: bool = False, write: bool = True) -> Mirrors:
    """Renders the documents of one agent, or of all, as Markdown; without ``write`` only says how each mirror stands."""
    files = WritableLocalFiles()
    root = mirroring.root_of(files, place(path), slug)
    here = place(root)  # so that the pages do not depend on where in the repository they are made
    if not write:
        return mirroring.plan(files, here, slug, merged=merged)
    with files.exclusive(root):
        planned = mirroring.plan(files, here, slug, merged=merged)
        mirroring.apply(files, planned)
    return planned


def _root(files: WritableFiles, path: str, output_root: Path | None) -> str:
    if output_root is not None:
        root = files.real(os.path.abspath(output_root))
        if files.kind(root) != DIRECTORY:
            raise NotFound(f"{output_root} is no directory", code="no-such-path", fields={"path": str(output_root)})
        return root
    found = repositories_above(files, path)
    if not found:
        raise NotFound(
            f"no repository encloses {path}, so there is no place to write to",
            code="no-repository",
            hints=["run it inside a git repository", "or name the directory to write to: --output-root DIR"],
            fields={"path": path},
        )
    return found[0]
