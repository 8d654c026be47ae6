"""Scaffolding: three documents for a new agent.

Invariant: an existing document is never touched; where any of the three kinds is there already, nothing is written.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import AlreadyExists
from clia.identities.agency_file import SCHEMA_VERSION
from clia.identities.contexts import AGENCY, AGENDA, AGENT, KINDS, candidates
from clia.identities.directives import ROOT
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.identities.file_interface import WritableFiles
    from clia.identities.targets import Target
    from clia.values.clock import Clock


class Wishes(NamedTuple):
    """What a new agent is told about itself."""

    title: str | None = None
    role: str | None = None
    purpose: str | None = None
    guardrails: Sequence[str] = ()
    inherits: Sequence[str] = ()
    operator: bool = False


def scaffold(files: WritableFiles, target: Target, slug: str, wishes: Wishes, clock: Clock) -> list[str]:
    """Creates the three documents and returns their paths."""
    files.make_directory(target.home)
    with files.exclusive(target.home):
        entries = files.entries(target.home) or ()
        for kind in KINDS:
            taken, _ = candidates(entries, kind)
            if taken:
                raise AlreadyExists(
                    f"{target.home}/{taken[0].name} exists already",
                    hints=["edit it, or choose another slug"],
                    fields={"path": f"{target.home}/{taken[0].name}"},
                )
        paths = []
        for kind, document in _documents(slug, wishes, timestamp(clock())).items():
            path = f"{target.home}/{slug}@{target.prefix}.{kind}.triad.json"
            files.create(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8"))
            paths.append(path)
        return paths


def _documents(slug: str, wishes: Wishes, moment: str) -> dict[str, dict[str, Any]]:
    title = wishes.title or slug.replace("-", " ").capitalize()
    common = {"schemaVersion": SCHEMA_VERSION, "slug": slug}
    agent: dict[str, Any] = {
        **common,
        "title": title,
        "role": wishes.role or slug,
        "status": "active",
        "updated": moment,
        "profileType": "operator" if wishes.operator else "agent",
        "purpose": wishes.purpose or "",
        "inherits": list(wishes.inherits),
        "guardrails": list(wishes.guardrails),
        "responsibilities": [],
        "tags": [],
    }
    if slug == ROOT:
        # Whatever else the directives say, every agent that inherits them would say of itself.
        said = {"title": wishes.title, "role": wishes.role, "purpose": wishes.purpose}
        agent = {**common, **{key: value for key, value in said.items() if value}, "guardrails": list(wishes.guardrails)}
    agenda = {
        **common,
        "title": f"{title}: agenda",
        "status": "active",
        "updated": moment,
        "principles": [],
        "milestones": [],
        "backlog": [],
    }
    agency = {**common, "title": f"{title}: agency", "updated": moment, "entries": []}
    return {AGENT: agent, AGENDA: agenda, AGENCY: agency}
