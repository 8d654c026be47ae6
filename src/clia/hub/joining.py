"""Set the hub of a repository.

Invariant: a repository and its hub hold the same space. Settings and tracking refs change only after the new hub was reached and
holds this space or none. All checks precede the first write to the hub. A password is never written to a file.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

from clia.errors import Conflict, InvalidInput, NotFound, StaleRef, TransportError
from clia.git.repository import HUB, HUB_HEADS
from clia.hub.model import BRANCHES, PUBLISHED_REFS
from clia.hub.remote import OUTAGE_FILE, hub_of
from clia.space.remotes import NEW, Adopted
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.records import Stamp
    from clia.git.repository import Git
    from clia.hub.remote import RemoteHub

HUB_ADDRESS = "clia.hubAddress"
"""The git setting with the last known address of the hub."""
_REMOTE = "hub"
_SECRET = re.compile(r"^\w[\w+.-]*://[^/@]*:[^@]*@|[?&][^=&]*(?:token|password|secret|key)[^=&]*=", re.IGNORECASE)
"""A password before the host, which may contain a slash, or a query parameter with a usual name."""
MARK, _TRAILER = names.HUB_MARK, "Clia-Hub"
_NOT_JOINED = "no hub was joined: check the address, and try again when it can be reached"


class HubTarget(NamedTuple):
    """The hub to set: the address of a repository on a git server, or the name of a remote."""

    address: str
    heads: str | None = None  # branches or published; None: keep the setting of the hub
    new_store: bool = False  # the shared store is lost; without a store here, each machine has its own
    new_hub: bool = False  # the previous hub of the machines that share a store is lost


class Mark(NamedTuple):
    """The mark of a hub, which every machine reads."""

    id: str
    heads: str
    store: str | None = None  # the id of the shared store; None: each machine has its own, as far as the hub knows


class Reached(NamedTuple):
    """A repository that was reached and can be the hub; nothing was written there."""

    adopted: list[Adopted]
    before: Mark | None  # mark of the previous hub of this clone


def reach(git: Git, target: HubTarget) -> Reached:
    """Make a remote the hub; a repository without a space adopts the hub's."""
    check(target)
    before = mark_of(git)
    remote = _remote(git, target.address)
    _check_is_another(git, remote)
    git.handle.repo.config[HUB] = remote
    hub = _hub(git)
    if not hub.read(names.SPACE, MARK, retry_now=True):
        raise hub.unreachable()
    return Reached(_same_space(git, remote), before)


def settle(git: Git, target: HubTarget, space: str, by: Stamp) -> str:
    """Write the hub's mark and its space ref if it has none; return its space ref, which another machine may have written."""
    config = git.handle.repo.config
    config[HUB_HEADS] = _agreed(git, _hub(git), target.heads, by)
    hub = _hub(git)
    if not hub.fetch(retry_now=True):
        raise hub.unreachable()
    config[HUB_ADDRESS] = hub.address()
    theirs = hub.tracked(names.SPACE) or _sent(hub, names.SPACE, None, space)
    ours = git.refs.get(names.SPACE)
    if ours not in (None, theirs):
        raise _other_space(ours, theirs)
    return theirs


def mark_of(git: Git) -> Mark | None:
    """Return the mark of the hub at the last fetch; its id identifies the hub, also under another address."""
    remote = git.setting(HUB)
    mark = None if remote is None else git.refs.get(names.tracking(remote, MARK))
    return None if mark is None else _read(git, mark)


def check_heads(git: Git) -> None:
    """``InvalidInput`` if this clone's setting for heads differs from the hub's."""
    mark = mark_of(git)
    heads, ours = (None, None) if mark is None else (mark.heads, git.setting(HUB_HEADS))
    if heads != ours:
        raise InvalidInput(
            f"the hub keeps agents' heads as {heads}, but the setting {HUB_HEADS} is {ours}",
            code="other-heads",
            hints=[f"git config {HUB_HEADS} {heads}"],
            fields={"field": HUB_HEADS, "actual": heads},
        )


def recognize(git: Git, hub: RemoteHub, hub_id: str | None = None) -> None:
    """``Conflict`` (other-hub) if, as of the last read, the remote is not the hub that this clone joined.

    ``Conflict`` (other-heads) if another machine has chosen since where the hub keeps heads: they would not see our agents.
    ``hub_id``: the id of the hub in a shared store. An empty repository at the same address may be the hub, re-created.
    """
    ours, mark = mark_of(git), hub.mark()
    if ours is None:
        return
    if mark is None:
        if git.setting(HUB_ADDRESS) not in (None, hub.address()):
            raise other_hub(f"{hub.address()} is not marked as the hub of this space, and the hub was at another address before")
        return
    current = _read(git, mark)
    if current.id != (hub_id or ours.id):
        raise other_hub(f"{hub.address()} is not the hub of this space")
    if current.heads != ours.heads:
        raise Conflict(
            f"the hub now keeps agents' heads as {current.heads}, not as {ours.heads}",
            code="other-heads",
            hints=[f"join the hub again: clia hub set {hub.remote}"],
            fields={"field": HUB_HEADS, "actual": current.heads},
        )


def keep_mark(git: Git, hub: RemoteHub, hub_id: str | None) -> None:
    """After the hub was read: check that it is the one that was joined, and restore the mark of a re-created one."""
    recognize(git, hub, hub_id)
    ours = git.refs.get(names.tracking(hub.remote, MARK))
    if ours is not None and hub.mark() is None:
        hub.push_mark(ours)
        recognize(git, hub, hub_id)  # another machine may have written a mark first
    if git.setting(HUB_ADDRESS) != hub.address():
        git.handle.repo.config[HUB_ADDRESS] = hub.address()


def other_hub(message: str) -> Conflict:
    return Conflict(
        message,
        code="other-hub",
        hints=[
            "to move a hub, copy it: git push --mirror; then git remote set-url on each machine",
            "if the hub was re-created at the same address, restore it with clia hub sync on a machine that had joined it",
            "if the old hub is lost: clia hub set URL --new-hub, then clia hub set URL on each other machine",
        ],
        fields={"field": "hub"},
    )


def agree_on_store(git: Git, store: str | None, by: Stamp, *, replace: bool) -> str | None:
    """The id of the shared store as recorded by the hub; recorded now if missing or, with ``replace``, if it differs."""
    hub, before = _hub(git), mark_of(git)
    with _settings_restored(git):
        if not hub.read(MARK):
            raise hub.unreachable()
        mark = hub.tracked(MARK)
        current = _read(git, mark) if mark else before or Mark(str(uuid4()), git.setting(HUB_HEADS) or BRANCHES)
        while mark is None or (current.store != store and (current.store is None or replace)):
            mark = _marked(git, hub, mark, current._replace(store=store), by)  # another machine may have written first
            current = _read(git, mark)
    return current.store


def _agreed(git: Git, hub: RemoteHub, requested: str | None, by: Stamp) -> str:
    """Where the hub keeps agents' heads, as its mark records for all machines; recorded now if it has no mark."""
    mark = hub.tracked(MARK)
    if mark is None:
        mark = _marked(git, hub, None, Mark(str(uuid4()), requested or git.setting(HUB_HEADS) or PUBLISHED_REFS), by)
    current = _read(git, mark)
    heads = current.heads
    if requested in (None, heads):
        return heads
    git.handle.repo.config[HUB_HEADS] = heads
    if not _hub(git).fetch(retry_now=True) or _hub(git).tracked_under(names.HEADS):
        raise Conflict(
            f"the hub already has agents' heads, kept as {heads}",
            code="other-heads",
            hints=["choose where heads are kept before the first agent is published; the choice holds for all machines"],
            fields={"field": "heads", "actual": heads},
        )
    return _read(git, _marked(git, hub, mark, current._replace(heads=requested or heads), by)).heads


def _marked(git: Git, hub: RemoteHub, old: str | None, mark: Mark, by: Stamp) -> str:
    """Write the mark of the hub; return the current one, which may be another machine's."""
    text = canonical_bytes({key: value for key, value in mark._asdict().items() if value is not None}).decode("utf-8")
    tree = git.objects.update_tree(None, {})
    commit = git.objects.write_commit(tree, [old] if old else [], by, by, compose("hub", [(_TRAILER, text)], "hub"))
    if old is None:
        hub.probe(commit)  # a hub with a mark can be used
    return _sent(hub, MARK, old, commit)


def _read(git: Git, mark: str) -> Mark:
    text = dict(parse(git.objects.commit(mark).message)[1]).get(_TRAILER, "")
    try:
        body = json.loads(text)
        name, heads, store = body["id"], body["heads"], body.get("store")
    except (ValueError, KeyError, TypeError):
        name, heads, store = None, None, None
    if not isinstance(name, str) or heads not in (BRANCHES, PUBLISHED_REFS):
        raise InvalidInput(f"{MARK} at the hub cannot be read", code="invalid-hub", fields={"ref": MARK})
    return Mark(name, str(heads), store if isinstance(store, str) else None)


def _hub(git: Git) -> RemoteHub:
    hub = hub_of(git)
    if hub is None:
        raise NotFound("this space has no hub", code="no-hub")
    return hub


def _sent(hub: RemoteHub, ref: str, old: str | None, new: str) -> str:
    """Move a ref of the hub; return where it is now, which may be where another machine moved it."""
    try:
        hub.send([(ref, old, new)])
    except StaleRef as err:
        actual: str = err.fields["actual"]
        return actual
    return new


def check(target: HubTarget) -> None:
    """``InvalidInput`` if the address or the kind of heads is invalid."""
    if target.heads not in (None, BRANCHES, PUBLISHED_REFS):
        raise InvalidInput(
            f"agents' heads are kept as {BRANCHES} or {PUBLISHED_REFS}, not {target.heads!r}",
            code="invalid-heads",
            fields={"field": "heads"},
        )
    if not target.address or target.address.startswith("-") or not target.address.isprintable():
        raise InvalidInput(f"{target.address!r} is not a valid hub address", code="invalid-hub", fields={"field": "hub"})
    if _SECRET.search(target.address):
        raise InvalidInput(
            "the hub's address contains a password, which git would keep in its settings",
            code="password-in-hub",
            hints=["leave it out and use git's credential helper"],
            fields={"field": "hub"},
        )


@contextmanager
def restored_on_failure(git: Git) -> Iterator[None]:
    """Restore everything if the hub could not be joined."""
    try:
        with _settings_restored(git):
            yield
    except TransportError as err:
        if err.code == "hub-away":
            err.hints = (_NOT_JOINED,)  # there is no hub to send unpublished work to
        raise


@contextmanager
def _settings_restored(git: Git) -> Iterator[None]:
    """Restore the settings, the space ref, the tracking refs and the outage record on failure."""
    files = [os.path.join(git.handle.common_dir, *parts) for parts in (("config",), ("clia", OUTAGE_FILE))]
    contents, refs_before = [_content(path) for path in files], _shared_refs(git)
    try:
        yield
    except BaseException:
        for path, content in zip(files, contents, strict=True):
            _put_back(path, content)
        git.handle.renew()
        refs_now = _shared_refs(git)
        for ref in sorted({*refs_before, *refs_now}, key=lambda ref: ref in refs_before):  # new refs first: they may be in the way
            with suppress(StaleRef):  # another process fetched from the hub in the meantime
                if refs_before.get(ref) != refs_now.get(ref):
                    git.refs.move(ref, refs_now.get(ref), refs_before.get(ref), "clia: undo")
        raise


def _shared_refs(git: Git) -> dict[str, str]:
    space = git.refs.get(names.SPACE)
    return dict(git.refs.under(names.TRACKING)) | ({} if space is None else {names.SPACE: space})


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _put_back(path: str, content: bytes | None) -> None:
    if content is None:
        with suppress(FileNotFoundError):
            os.unlink(path)
    elif content != _content(path):
        with open(path, "wb") as file:
            file.write(content)


def _remote(git: Git, address: str) -> str:
    """Return the remote of an address; create it if missing."""
    remotes = git.porcelain.remotes()
    if address in remotes:
        return address
    location = os.path.abspath(address) if os.path.isdir(address) else address
    for remote in remotes:
        if git.porcelain.remote_url(remote) in (address, location):
            return remote
    if _REMOTE in remotes:
        if git.setting(HUB) != _REMOTE:
            raise Conflict(
                f"the remote {_REMOTE!r} already exists with another address",
                code="remote-taken",
                hints=["name the remote to use as the hub: clia hub set REMOTE", f"git remote rename {_REMOTE} OTHER"],
                fields={"remote": _REMOTE},
            )
        git.command.run("remote", "set-url", _REMOTE, location)
    else:
        # Without a rule for plain fetches: a push would create a remote branch for each agent, too.
        git.command.run("config", f"remote.{_REMOTE}.url", location)
    return _REMOTE


def _check_is_another(git: Git, remote: str) -> None:
    """``InvalidInput`` if a path leads back to this repository."""
    from clia.git.libgit2 import repository_at

    root = git.handle.work_dir or git.handle.common_dir
    repository = repository_at(os.path.join(root, (git.porcelain.remote_url(remote) or "").removeprefix("file://")))
    if repository is not None and os.path.realpath(repository) == os.path.realpath(git.handle.common_dir):
        raise InvalidInput(
            "this repository cannot be its own hub",
            code="invalid-hub",
            hints=["create a separate repository for the hub: git init --bare"],
            fields={"field": "hub"},
        )


def _same_space(git: Git, remote: str) -> list[Adopted]:
    theirs, ours = git.refs.get(f"{names.TRACKING}{remote}/clia/space"), git.refs.get(names.SPACE)
    if theirs is None or ours == theirs:
        return []
    if ours is not None:
        raise _other_space(ours, theirs)
    git.refs.move(names.SPACE, None, theirs, "clia: adopt")
    return [Adopted(names.SPACE, NEW, theirs)]


def _other_space(ours: str | None, theirs: str) -> Conflict:
    return Conflict(
        "the hub holds a different space",
        code="other-space",
        hints=["clone the hub and run clia init in the clone, or use an empty repository as the hub"],
        fields={"ours": ours, "theirs": theirs},
    )
