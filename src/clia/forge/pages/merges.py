"""What a merge of two agents runs into: each path with what both sides did to it, and how to settle it.

Invariant: looking changes nothing; what is shown are the heads as they are now, and the page names both.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from starlette.routing import Route

from clia.forge.pages.common import page
from clia.forge.pages.records import TEXT_MAX, known_agent, known_source, show
from clia.forge.rendering import diffs
from clia.forge.rendering.texts import escaped, visible
from clia.space.model import File, Link, Submodule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.forge.rendering.diffs import FileView
    from clia.space.model import ConflictPath, Conflicts, Content

PATHS_MAX = 100


class Side(NamedTuple):
    """What one agent did to a path: in a word, as a diff, else as what it has now."""

    agent: str
    deed: str
    diff: FileView | None
    text: Markup | None


class Clash(NamedTuple):
    path: str
    sides: tuple[Side, Side]


def routes(at: str) -> list[Route]:
    return [Route(f"{at}/merges/{{other:path}}", _conflicts, methods=["GET"], name="agent:conflicts")]


@page
def _conflicts(visit: Visit) -> Response:
    agent = known_agent(visit, visit.param("agent"))
    other = known_source(visit, visit.param("other"))
    found = visit.site.space.conflicts(agent.name, other.name)
    clashes = [] if found is None else _clashes(visit.site.space, found)
    return show(
        visit,
        "agent_merge.html",
        agent=agent,
        other=other,
        found=found,
        clashes=clashes,
        rest=0 if found is None else len(found.paths) - len(clashes),
        commands=[] if found is None else _commands(found),
    )


def _clashes(space: Space, found: Conflicts) -> list[Clash]:
    paths = found.paths[:PATHS_MAX]
    base = space.fork_point(found.ours, found.theirs)
    heads = (found.ours, found.theirs)
    made = [_diffs(space, base, head, [each.path for each in paths]) for head in heads]
    return [
        Clash(
            visible(each.path),
            (
                _side(found.into, each, each.ours, made[0].get(visible(each.path))),
                _side(found.from_, each, each.theirs, made[1].get(visible(each.path))),
            ),
        )
        for each in paths
    ]


def _diffs(space: Space, base: str | None, head: str, paths: Sequence[str]) -> dict[str, FileView]:
    """What became of the paths since the two parted; nothing where they never were one."""
    if base is None:
        return {}
    return {each.path: each for each in diffs.view(space.diff(base, head, paths=paths)).files}


def _side(agent: str, path: ConflictPath, side: Content | None, diff: FileView | None) -> Side:
    deed = _deed(path.base, side)
    return Side(agent, deed, diff, None if diff is not None or side is None else _text(side))


def _deed(base: Content | None, side: Content | None) -> str:
    if side is None:
        return "no such file" if base is None else "deleted"
    return "added" if base is None else "unchanged" if side == base else "changed"


def _text(content: Content) -> Markup:
    if isinstance(content, Submodule):
        return escaped(f"submodule at {content.commit}")
    if isinstance(content, Link):
        return escaped(f"link to {content.target}")
    data = content.data if isinstance(content, File) else content
    if b"\0" in data[:8000]:
        return escaped(f"binary, {len(data):,} bytes")
    return escaped(data[:TEXT_MAX].decode("utf-8", "replace") + ("\n…" if len(data) > TEXT_MAX else ""))


def _commands(found: Conflicts) -> list[tuple[str, str]]:
    """What to run, and what it does."""
    words = f"clia resolve {found.into} {found.from_}"
    heads = f"--ours {found.ours[:12]} --theirs {found.theirs[:12]}"
    path = shlex.quote(visible(found.paths[0].path))
    return [
        (f"{words} {heads} --file {path}=FILE", "a path becomes what a file of yours holds; repeat it for each path"),
        (f"{words} {heads} --take ours", f"every conflict as {found.into} has it"),
        (f"{words} {heads} --take theirs", f"every conflict as {found.from_} has it"),
        (f"{words} {heads} --dir DIR", "the whole outcome is what a directory of yours holds"),
    ]
