"""Opening spaces: where the clock, the environment, randomness and the backends come together.

Invariant: opening settles what a dead process left behind, and changes nothing else. ``init`` makes a space once; its id
is the same in every clone.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from clia.app.settings import Settings, check_address, clock_of, person_of
from clia.errors import InvalidInput, NotFound, StaleRef, UnsupportedFormat
from clia.kernel import refs as names
from clia.kernel.canonical import canonical_bytes
from clia.kernel.messages import compose, parse
from clia.ports.repository import FILE, Entry, Stamp
from clia.space.exchange import NEW, Adopted, fetch_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.app.space import Space
    from clia.app.wiring import Git

FORMAT = 1
SPACE = "Clia-Space"


def open_space(path: str | os.PathLike[str] = ".", *, settings: Settings | None = None) -> Space:
    """The space of the repository at or above ``path``."""
    chosen = settings or Settings()
    git = _git(_root(path), chosen)
    tip = git.refs.get(names.SPACE)
    if tip is None:
        raise NotFound(
            f"{git.handle.path} holds no space",
            code="no-such-space",
            hints=["clia init makes one here, or adopts the one of the clone's origin"],
            fields={"path": git.handle.path},
        )
    return _assemble(git, _space_id(git, tip), chosen, path)


def init_space(path: str | os.PathLike[str] = ".", *, settings: Settings | None = None, adopt: bool = True) -> Space:
    """Makes a space, or opens the one that is there. In a clone the space of its origin is adopted.

    An empty or missing directory becomes a git repository first.
    """
    return set_up(path, settings=settings, adopt=adopt).space


class SetUp(NamedTuple):
    """What ``set_up`` did."""

    space: Space
    path: str
    created: bool
    adopted: tuple[Adopted, ...]
    rules: tuple[tuple[str, tuple[str, ...]], ...]  # each remote with what git now fetches from it


def set_up(
    path: str | os.PathLike[str] = ".",
    *,
    settings: Settings | None = None,
    adopt: bool = True,
    news: bool = False,
    keep_store: bool = False,
) -> SetUp:
    """``init_space``, telling what it did. ``news``: ask the remotes again; ``keep_store``: remember the store's address."""
    chosen = settings or Settings()
    check_address(chosen.store)
    git = _git(_root_or_new(path), chosen)
    check_address(chosen.store or git.setting("clia.store"))
    remotes = git.workbench.remotes() if adopt else []
    known = git.refs.get(names.SPACE)
    taken = [found for remote in remotes for found in _fetch_space(git, remote)] if known is None else []
    tip = git.refs.get(names.SPACE) or _create(git, chosen)
    if keep_store and chosen.store:
        git.handle.repo.config["clia.store"] = chosen.store
    space = _assemble(git, _space_id(git, tip), chosen, path)
    for remote in remotes:
        taken += space.adopt(remote, fetch=news and known is not None)
    rules = tuple((remote, tuple(fetch_rules(remote))) for remote in remotes)
    return SetUp(space, git.handle.path, known is None and not _is_adopted(taken), tuple(taken), rules)


def _is_adopted(taken: Sequence[Adopted]) -> bool:
    return any(each.ref == names.SPACE for each in taken)


def _root(path: str | os.PathLike[str]) -> str:
    from clia.backends.git.handle import find_repository

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


def _root_or_new(path: str | os.PathLike[str]) -> str:
    from clia.backends.git.handle import create_repository, find_repository

    where = os.path.abspath(path)
    if os.path.lexists(where) and not os.path.isdir(where):
        raise InvalidInput(f"{where} is not a directory", code="not-a-directory", fields={"path": where})
    found = find_repository(where)
    if found is not None:
        return found
    if os.path.isdir(where) and os.listdir(where):
        return _root(path)  # files that nobody asked us to put under git
    os.makedirs(where, exist_ok=True)
    create_repository(where)
    return where


def _git(root: str, settings: Settings) -> Git:
    from clia.app.wiring import connect

    return connect(root, settings)


def _fetch_space(git: Git, remote: str) -> list[Adopted]:
    """Fetches everything of a remote's space, and takes over which space it is."""
    git.workbench.add_fetch_rules(remote, fetch_rules(remote))
    git.workbench.fetch(remote, fetch_rules(remote))
    theirs = git.refs.get(f"{names.TRACKING}{remote}/clia/space")
    if theirs is None or git.refs.get(names.SPACE) is not None:
        return []
    git.refs.move(names.SPACE, None, theirs, "clia: adopt")
    return [Adopted(names.SPACE, NEW, theirs)]


def _create(git: Git, settings: Settings) -> str:
    from uuid import uuid4

    body = canonical_bytes({"type": "space", "id": str(uuid4()), "format": FORMAT})
    tree = git.objects.update_tree(None, {"space.json": Entry(FILE, git.objects.write_blob(body))})
    person = person_of(settings, git.setting)
    by = Stamp(person.name, person.email, int(clock_of(settings)().timestamp()))
    # In the message too: a partial clone has commits, and no blobs until git is asked for them.
    made = git.objects.write_commit(tree, [], by, by, compose("space", [(SPACE, body.decode("utf-8"))], "space"))
    try:
        git.refs.move(names.SPACE, None, made, "clia: init")
    except StaleRef as err:
        there: str = err.fields["actual"]  # another process was quicker
        return there
    return made


def _space_id(git: Git, tip: str) -> str:
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


def _assemble(git: Git, space_id: str, settings: Settings, path: str | os.PathLike[str]) -> Space:
    from clia.app.wiring import assemble

    return assemble(git, space_id, settings, os.path.abspath(path))
