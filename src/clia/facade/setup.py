"""Create a space, set its hub, or move its store.

Invariant: ``init`` creates a space once; its id is the same in every clone.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import NamedTuple

from clia.errors import InvalidInput, NotFound, StaleRef
from clia.facade.backends import connect, ignore_step
from clia.facade.opening import FORMAT, SPACE, assemble, no_such_space, open_space, repository_at, space_id_of, store_address
from clia.facade.settings import Settings, check_address, clock_of, person_of
from clia.git.lock_files import FOLDER as LOCK_FOLDER
from clia.git.records import FILE, Stamp, TreeEntry
from clia.git.repository import HUB, STORE
from clia.hub.joining import HubTarget, reach, restored_on_failure, settle
from clia.space.remotes import AHEAD, NEW, UNITED, Adopted, fetch_rules
from clia.trust.machine_keys import machine_key_of
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.facade.space import Space
    from clia.git.repository import Git
    from clia.hub.joining import Reached
    from clia.store.sqlite_store import SqliteStore
    from clia.trust.verification import TrustReport

_ADOPTED = (NEW, AHEAD, UNITED)


def init_space(
    path: str | os.PathLike[str] = ".", *, settings: Settings | None = None, adopt: bool = True, hub: str | None = None
) -> Space:
    """Create a space, or open the existing one. In a clone, adopt the space of its origin.

    An empty or missing directory becomes a git repository first. ``hub``: the address of a repository on a git server, or the
    name of a remote, that the machines of the space share.
    """
    return set_up(path, settings=settings, adopt=adopt, hub=None if hub is None else HubTarget(hub)).space


class SetUp(NamedTuple):
    """The result of ``set_up``."""

    space: Space
    path: str
    created: bool
    adopted: tuple[Adopted, ...]
    rules: tuple[tuple[str, tuple[str, ...]], ...]  # each remote, with the refspecs that clia fetches from it


def set_up(
    path: str | os.PathLike[str] = ".",
    *,
    settings: Settings | None = None,
    adopt: bool = True,
    news: bool = False,
    keep_store: bool = False,
    hub: HubTarget | None = None,
) -> SetUp:
    """Like ``init_space``, with a detailed result. ``news``: fetch from the remotes again. ``keep_store``: save the store address.

    ``hub``: the hub to share everything through from now on.
    """
    chosen = settings or Settings()
    check_address(chosen.store)
    with _removed_on_failure(path):
        return _set_up(path, chosen, hub, adopt=adopt, news=news, keep_store=keep_store)


def _set_up(
    path: str | os.PathLike[str], chosen: Settings, hub: HubTarget | None, *, adopt: bool, news: bool, keep_store: bool
) -> SetUp:
    git = connect(_root_or_new(path), chosen)
    check_address(chosen.store or git.setting(STORE))
    existing = git.refs.get(names.SPACE)
    if keep_store and existing is not None:
        _move_store(git, existing, chosen)  # before the hub: until then the store on the server belongs to this clone alone
    with nullcontext() if hub is None else restored_on_failure(git):
        reached = None if hub is None else reach(git, hub)
        adoptions = [] if reached is None else reached.adopted
        remotes = git.porcelain.remotes() if adopt else []
        if git.refs.get(names.SPACE) is None:
            adoptions += [adopted for remote in remotes if remote != git.setting(HUB) for adopted in _fetch_space(git, remote)]
        tip = git.refs.get(names.SPACE) or _create(git, chosen)
        if hub is not None and reached is not None:
            tip = _settle(git, hub, reached, tip, chosen)
        tip = _set_space_ref(git, tip)
        if hub is not None:
            _bring_state(git, space_id_of(git, tip), chosen, hub)
    if keep_store and chosen.store:
        git.handle.repo.config[STORE] = chosen.store
    space = assemble(git, space_id_of(git, tip), chosen, os.path.abspath(path))
    others = [remote for remote in remotes if remote != git.setting(HUB)]
    for remote in others:
        adoptions += space.adopt(remote, fetch=news and existing is not None)
    if space.has_hub and (hub is not None or news):
        adoptions += [Adopted(move.ref, move.what, move.cid or "") for move in space.hub.sync() if move.what in _ADOPTED]
    rules = tuple((remote, tuple(fetch_rules(remote))) for remote in others)
    created = existing is None and all(adopted.ref != names.SPACE for adopted in adoptions)
    return SetUp(space, git.handle.path, created, tuple(adoptions), rules)


@contextmanager
def _removed_on_failure(path: str | os.PathLike[str]) -> Iterator[None]:
    """Remove the repository and the directory again if they were created for a space that could not be created."""
    from clia.git.libgit2 import find_repository

    directory = os.path.abspath(path)
    existed = os.path.isdir(directory)
    empty = existed and not os.listdir(directory)
    creates = (empty or not os.path.lexists(directory)) and find_repository(directory) is None
    try:
        yield
    except BaseException:
        if creates:
            shutil.rmtree(os.path.join(directory, ".git"), ignore_errors=True)
            if not existed:
                with suppress(OSError):
                    os.rmdir(directory)
        raise


def _root_or_new(path: str | os.PathLike[str]) -> str:
    from clia.git.libgit2 import create_repository, find_repository

    directory = os.path.abspath(path)
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise InvalidInput(f"{directory} is not a directory", code="not-a-directory", fields={"path": directory})
    root = find_repository(directory)
    if root is not None:
        return root
    if os.path.isdir(directory) and os.listdir(directory):
        return repository_at(path)  # it has files that the user did not ask to put under git
    os.makedirs(directory, exist_ok=True)
    create_repository(directory)
    return directory


def _settle(git: Git, target: HubTarget, reached: Reached, tip: str, settings: Settings) -> str:
    """Write the hub's mark after all other checks; return the space ref to use."""
    from clia.hub.shared_store import check_state

    check_state(git, space_id_of(git, tip), store_address(git, settings), target, reached.before)
    return settle(git, target, tip, _stamp(git, settings))


def _bring_state(git: Git, space_id: str, settings: Settings, target: HubTarget) -> None:
    """If machines share a store, hand this clone's live state to the space."""
    from clia.hub.shared_store import bring_state

    address, by = store_address(git, settings), _stamp(git, settings)
    bring_state(git, space_id, address, by, replace=target.new_store, new_hub=target.new_hub)


class Moved(NamedTuple):
    """The live state that was moved. History is not counted."""

    sessions: int  # live sessions
    traces: int  # pending entries
    users: int  # users of the forge


def move_store(path: str | os.PathLike[str], settings: Settings) -> Moved | None:
    """Move the live state beside the repository to the PostgreSQL server in the settings, and save its address.

    None if there is nothing to move: the store is already elsewhere, or was never used.
    """
    from clia.git.libgit2 import find_repository

    root = find_repository(os.path.abspath(path))
    git = None if root is None else connect(root, settings)
    tip = None if git is None else git.refs.get(names.SPACE)
    return None if git is None or tip is None else _move_store(git, tip, settings)


def _move_store(git: Git, tip: str, settings: Settings) -> Moved | None:
    from clia.store.sqlite_store import STORE_FILE, SqliteStore
    from clia.store.sqlite_to_postgres import copy_state, is_in_use

    path = os.path.join(git.handle.common_dir, "clia", STORE_FILE)
    if settings.store is None or git.setting(STORE) is not None or not is_in_use(path):
        return None
    from clia.hub.shared_store import bring_state
    from clia.store.clone_ids import clone_id
    from clia.store.postgres_store import PostgresStore

    space_id, shared = space_id_of(git, tip), git.setting(HUB) is not None
    own = f"{space_id}/{clone_id(git.handle.common_dir)}"
    if shared:  # also checks that the machines that share it have this hub
        bring_state(git, space_id, settings.store, _stamp(git, settings))
    with (
        assemble(git, space_id, settings._replace(store=None), git.handle.path) as space,
        space.alone(),
        closing(SqliteStore(path, space_id, durable=git.handle.durable)) as old,
        closing(PostgresStore(settings.store, space_id if shared else own, own=own)) as new,
    ):
        moved = _counted(old)
        copy_state(old, new, settings.reached or ignore_step, shared=shared)
        git.handle.repo.config[STORE] = settings.store
        new.confirm_import()
    return moved


def _counted(store: SqliteStore) -> Moved:
    from clia.sessions.records import LIVE
    from clia.space.traces import stream

    with store.reading() as view:
        traces = sum(len(view.streams.read(name)) for name in view.streams.names(stream("")))
        return Moved(len(view.values.scan(LIVE)), traces, len(view.values.scan("user/")))


def set_hub(path: str | os.PathLike[str], target: HubTarget, *, settings: Settings | None = None) -> Space:
    """Set or replace the hub of the space at or above a path. Only the space's identity is exchanged yet."""
    chosen = settings or Settings()
    git = connect(repository_at(path), chosen)
    tip = git.refs.get(names.SPACE)
    if tip is None:
        return open_space(path, settings=chosen)  # raises no-such-space
    with restored_on_failure(git):
        _settle(git, target, reach(git, target), tip, chosen)
        _bring_state(git, space_id_of(git, tip), chosen, target)
    return open_space(path, settings=chosen)


def hub_address(path: str, settings: Settings) -> str | None:
    """The hub address of the repository at or above a path; None without a hub. Does not open the store."""
    from clia.git.libgit2 import find_repository
    from clia.hub.remote import hub_of

    root = find_repository(os.path.abspath(path))
    try:
        hub = None if root is None else hub_of(connect(root, settings))
    except NotFound:  # the remote was removed
        return None
    return None if hub is None else hub.address()


def _stamp(git: Git, settings: Settings) -> Stamp:
    """The accountable person and the current time."""
    person = person_of(settings, git.setting)
    return Stamp(person.name, person.email, int(clock_of(settings)().timestamp()))


def _fetch_space(git: Git, remote: str) -> list[Adopted]:
    """Fetch everything of a remote's space, and adopt its space ref if there is none here."""
    git.porcelain.fetch(remote, fetch_rules(remote))
    theirs = git.refs.get(f"{names.TRACKING}{remote}/clia/space")
    if theirs is None or git.refs.get(names.SPACE) is not None:
        return []
    git.refs.move(names.SPACE, None, theirs, "clia: adopt")
    return [Adopted(names.SPACE, NEW, theirs)]


def _create(git: Git, settings: Settings) -> str:
    """Write the commit that identifies a new space; no ref points at it yet."""
    from uuid import uuid4

    by, space_id = _stamp(git, settings), str(uuid4())
    if not git.objects.signed_by_git:
        from clia.trust.enrolling import start_chain

        space_id = start_chain(git, machine_key_of(git), space_id, by)
        (settings.reached or ignore_step)("keys-started")
    body = canonical_bytes({"type": "space", "id": space_id, "format": FORMAT})
    tree = git.objects.update_tree(None, {"space.json": TreeEntry(FILE, git.objects.write_blob(body))})
    # Also in the message: a partial clone has the commit but not the blob.
    return git.objects.write_commit(tree, [], by, by, compose("space", [(SPACE, body.decode("utf-8"))], "space"))


def _set_space_ref(git: Git, tip: str) -> str:
    """Point the space ref at a commit; return where it points, which may be another process's commit."""
    if git.refs.get(names.SPACE) == tip:
        return tip
    try:
        git.refs.move(names.SPACE, None, tip, "clia: init")
    except StaleRef as err:
        actual: str = err.fields["actual"]
        return actual
    return tip


def is_plain_clone(path: str) -> bool:
    """Whether the repository at or above a path has no live state of clia, as after ``git clone``."""
    from clia.git.libgit2 import find_repository, repository_at

    root = find_repository(os.path.abspath(path))
    git_dir = None if root is None else repository_at(root)
    if git_dir is None:
        return False
    home = os.path.join(git_dir, "clia")
    return not os.path.isdir(home) or set(os.listdir(home)) <= {LOCK_FOLDER}  # a witness moves its ref there


class CloneChecks(NamedTuple):
    """What ``trust_of_clone`` checks, as ``verify_trust`` takes it."""

    root: str | None = None
    strict: bool = False
    since: str | None = None
    witnesses: tuple[str, ...] = ()
    cache: str | None = None


def trust_of_clone(path: str, settings: Settings, options: CloneChecks) -> TrustReport:
    """Check signatures, statements, logs and checkpoints of the repository at or above a path; it is only read."""
    from clia.trust.verification import verify_trust

    now = int(clock_of(settings)().timestamp())
    report = verify_trust(connect(repository_at(path), settings), **options._asdict(), now=now)
    if report.space is None and not report.commits:
        raise no_such_space(repository_at(path))
    return report
