"""Making a space, and giving it a hub or another store.

Invariant: ``init`` makes a space once; its id is the same in every clone.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

from clia.errors import InvalidInput, StaleRef
from clia.facade.backends import connect
from clia.facade.joining import HubWish, kept_on_failure, reach, settle
from clia.facade.opening import FORMAT, SPACE, assemble, open_space, repository_at, space_id_of
from clia.facade.settings import HUB, Settings, check_address, clock_of, person_of
from clia.git.records import FILE, Stamp, TreeEntry
from clia.space.adoption import AHEAD, NEW, UNITED, Adopted, fetch_rules
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.facade.backends import Git
    from clia.facade.joining import Reached
    from clia.facade.space import Space
    from clia.facade.store_migration import Moved

_TAKEN = (NEW, AHEAD, UNITED)


def init_space(
    path: str | os.PathLike[str] = ".", *, settings: Settings | None = None, adopt: bool = True, hub: str | None = None
) -> Space:
    """Makes a space, or opens the one that is there. In a clone the space of its origin is adopted.

    An empty or missing directory becomes a git repository first. ``hub``: a git server's repository, or a remote, where machines
    of the space meet.
    """
    return set_up(path, settings=settings, adopt=adopt, hub=None if hub is None else HubWish(hub)).space


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
    hub: HubWish | None = None,
) -> SetUp:
    """``init_space``, telling what it did. ``news``: ask the remotes again; ``keep_store``: remember the store's address.

    ``hub``: where the machines of the space meet; everything is shared there from now on.
    """
    chosen = settings or Settings()
    check_address(chosen.store)
    with _unmade_on_failure(path):
        return _set_up(path, chosen, hub, adopt=adopt, news=news, keep_store=keep_store)


def _set_up(
    path: str | os.PathLike[str], chosen: Settings, hub: HubWish | None, *, adopt: bool, news: bool, keep_store: bool
) -> SetUp:
    git = connect(_root_or_new(path), chosen)
    check_address(chosen.store or git.setting("clia.store"))
    known = git.refs.get(names.SPACE)
    if keep_store and known is not None:
        _move_store(git, known, chosen)  # before the hub: up to then the store on the server is this clone's alone
    with nullcontext() if hub is None else kept_on_failure(git):
        reached = None if hub is None else reach(git, hub)
        taken = [] if reached is None else reached.taken
        remotes = git.workbench.remotes() if adopt else []
        if git.refs.get(names.SPACE) is None:
            taken += [found for remote in remotes if remote != git.setting(HUB) for found in _fetch_space(git, remote)]
        tip = git.refs.get(names.SPACE) or _create(git, chosen)
        if hub is not None and reached is not None:
            tip = _settle(git, hub, reached, tip, chosen)
        tip = _stand(git, tip)
        if hub is not None:
            _bring_state(git, space_id_of(git, tip), chosen, hub)
    if keep_store and chosen.store:
        git.handle.repo.config["clia.store"] = chosen.store
    space = assemble(git, space_id_of(git, tip), chosen, os.path.abspath(path))
    others = [remote for remote in remotes if remote != git.setting(HUB)]
    for remote in others:
        taken += space.adopt(remote, fetch=news and known is not None)
    if space.has_hub and (hub is not None or news):
        taken += [Adopted(each.ref, each.what, each.cid or "") for each in space.hub.sync() if each.what in _TAKEN]
    rules = tuple((remote, tuple(fetch_rules(remote))) for remote in others)
    return SetUp(space, git.handle.path, known is None and not _is_adopted(taken), tuple(taken), rules)


@contextmanager
def _unmade_on_failure(path: str | os.PathLike[str]) -> Iterator[None]:
    """A repository, and a directory, that were made for a space that could not be made go again."""
    from clia.git.libgit2 import find_repository

    where = os.path.abspath(path)
    there, empty = os.path.isdir(where), os.path.isdir(where) and not os.listdir(where)
    made = (empty or not os.path.lexists(where)) and find_repository(where) is None
    try:
        yield
    except BaseException:
        if made:
            shutil.rmtree(os.path.join(where, ".git"), ignore_errors=True)
            if not there:
                with suppress(OSError):
                    os.rmdir(where)
        raise


def _is_adopted(taken: Sequence[Adopted]) -> bool:
    return any(each.ref == names.SPACE for each in taken)


def _root_or_new(path: str | os.PathLike[str]) -> str:
    from clia.git.libgit2 import create_repository, find_repository

    where = os.path.abspath(path)
    if os.path.lexists(where) and not os.path.isdir(where):
        raise InvalidInput(f"{where} is not a directory", code="not-a-directory", fields={"path": where})
    found = find_repository(where)
    if found is not None:
        return found
    if os.path.isdir(where) and os.listdir(where):
        return repository_at(path)  # files that nobody asked us to put under git
    os.makedirs(where, exist_ok=True)
    create_repository(where)
    return where


def _settle(git: Git, wish: HubWish, reached: Reached, tip: str, settings: Settings) -> str:
    """Writes to the hub what it is, once all else is known to be fit for it; the space that counts."""
    from clia.facade import hub_state

    hub_state.check_state(git, space_id_of(git, tip), settings, wish, reached.before)
    return settle(git, wish, tip, _stamp(git, settings))


def _bring_state(git: Git, space_id: str, settings: Settings, wish: HubWish) -> None:
    """What was live in this clone is the space's from now on, where machines share a store."""
    from clia.facade import hub_state

    hub_state.bring_state(git, space_id, settings, anew=wish.new_store, new_hub=wish.new_hub)


def move_store(path: str | os.PathLike[str], settings: Settings) -> Moved | None:
    """Takes what is live beside the repository to the store that the settings name, and keeps its address; what came along."""
    from clia.git.libgit2 import find_repository

    root = find_repository(os.path.abspath(path))
    git = None if root is None else connect(root, settings)
    tip = None if git is None else git.refs.get(names.SPACE)
    return None if git is None or tip is None else _move_store(git, tip, settings)


def _move_store(git: Git, tip: str, settings: Settings) -> Moved | None:
    from clia.facade import store_migration as moving_store

    return moving_store.move_store(git, space_id_of(git, tip), settings)


def set_hub(path: str | os.PathLike[str], wish: HubWish, *, settings: Settings | None = None) -> Space:
    """Gives the space at or above a path a hub, or another one. Nothing is exchanged yet but which space it is."""
    chosen = settings or Settings()
    git = connect(repository_at(path), chosen)
    tip = git.refs.get(names.SPACE)
    if tip is None:
        return open_space(path, settings=chosen)  # says that there is none
    with kept_on_failure(git):
        _settle(git, wish, reach(git, wish), tip, chosen)
        _bring_state(git, space_id_of(git, tip), chosen, wish)
    return open_space(path, settings=chosen)


def _stamp(git: Git, settings: Settings) -> Stamp:
    """Whoever opens the space, now."""
    person = person_of(settings, git.setting)
    return Stamp(person.name, person.email, int(clock_of(settings)().timestamp()))


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
    """What says which space it is; nothing points at it yet."""
    from uuid import uuid4

    body = canonical_bytes({"type": "space", "id": str(uuid4()), "format": FORMAT})
    tree = git.objects.update_tree(None, {"space.json": TreeEntry(FILE, git.objects.write_blob(body))})
    by = _stamp(git, settings)
    # In the message too: a partial clone has commits, and no blobs until git is asked for them.
    return git.objects.write_commit(tree, [], by, by, compose("space", [(SPACE, body.decode("utf-8"))], "space"))


def _stand(git: Git, tip: str) -> str:
    """Makes a space that of this repository; the one that it is then."""
    if git.refs.get(names.SPACE) == tip:
        return tip
    try:
        git.refs.move(names.SPACE, None, tip, "clia: init")
    except StaleRef as err:
        there: str = err.fields["actual"]  # another process was quicker
        return there
    return tip
