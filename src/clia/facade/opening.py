"""Opening a space.

Invariant: opening settles what a dead process left behind, and changes nothing else.
"""

from __future__ import annotations

import json
import os

from clia.errors import InvalidInput, NotFound, UnsupportedFormat
from clia.facade.settings import Settings
from clia.values import refs as names
from clia.values.commit_messages import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.backends import Git
    from clia.facade.space import Space

FORMAT = 1
SPACE = "Clia-Space"


def open_space(path: str | os.PathLike[str] = ".", *, settings: Settings | None = None) -> Space:
    """The space of the repository at or above ``path``."""
    chosen = settings or Settings()
    git = connected(repository_at(path), chosen)
    tip = git.refs.get(names.SPACE)
    if tip is None:
        raise NotFound(
            f"{git.handle.path} holds no space",
            code="no-such-space",
            hints=["clia init makes one here, or adopts the one of the clone's origin"],
            fields={"path": git.handle.path},
        )
    return assembled(git, space_id_of(git, tip), chosen, path)


def repository_at(path: str | os.PathLike[str]) -> str:
    from clia.git.libgit2 import find_repository

    where = os.path.abspath(path)
    found = find_repository(where)
    if found is None:
        raise NotFound(
            f"{where} is in no git repository",
            code="no-such-repository",
            hints=["git init, then clia init"],
            fields={"path": where},
        )
    return found


def connected(root: str, settings: Settings) -> Git:
    from clia.facade.backends import connect

    return connect(root, settings)


def space_id_of(git: Git, tip: str) -> str:
    try:
        said = json.loads(_space_text(git, tip))
        version, space_id = said["format"], said["id"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{names.SPACE} holds no readable space.json", code="invalid-space", fields={"ref": names.SPACE}
        ) from None
    if version != FORMAT or not isinstance(space_id, str):
        raise UnsupportedFormat(
            f"this space has format {version}; this clia knows format {FORMAT}",
            hints=["upgrade clia"],
            fields={"format": version},
        )
    return space_id


def _space_text(git: Git, tip: str) -> bytes | str:
    commit = git.objects.commit(tip)
    for key, value in parse(commit.message)[1]:
        if key == SPACE:
            return value
    entry = git.objects.entry(commit.tree, "space.json")
    return git.objects.blob(entry.cid) if entry else "{}"


def assembled(git: Git, space_id: str, settings: Settings, path: str | os.PathLike[str]) -> Space:
    from clia.facade.wiring import assemble

    return assemble(git, space_id, settings, os.path.abspath(path))
