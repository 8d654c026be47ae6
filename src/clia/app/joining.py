"""Giving a repository its hub.

Invariant: a repository and its hub hold one space. Nothing of the repository's settings is changed unless the hub was reached
and holds this space or none; a password is never written to a file.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

from clia.errors import Conflict, InvalidInput, NotFound, StaleRef, TransportError
from clia.kernel import refs as names
from clia.kernel.canonical import canonical_bytes
from clia.kernel.messages import compose, parse
from clia.ports.hub import APART, BRANCHES
from clia.space.exchange import Adopted
from clia.space.taking import NEW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.app.wiring import Git
    from clia.backends.git.hub import RemoteHub
    from clia.ports.repository import Stamp

HUB, HUB_HEADS, HUB_SECONDS = "clia.hub", "clia.hubHeads", 60
"""Settings of git: which remote is the hub, and where it keeps agents' heads. So many seconds an exchange with it may take."""
_REMOTE = "hub"
_SECRET = re.compile(r"^\w[\w+.-]*://[^/@]*:[^@]*@|[?&][^=&]*(?:token|password|secret|key)[^=&]*=", re.IGNORECASE)
"""A password before the host, also one with a slash in it; or one of the names that services give to theirs."""
MARK, _TRAILER = "refs/clia/hub", "Clia-Hub"
"""A ref that only hubs have: what the hub is called, and where it keeps agents' heads."""
_NOT_JOINED = "no hub was joined: look at the address, and try again when it can be reached"


class HubWish(NamedTuple):
    """Which hub: the address of a git server's repository, or the name of a remote."""

    address: str
    heads: str | None = None  # branches, published; None: as the hub has it already
    new_store: bool = False  # the store that machines shared before is gone for good


class Mark(NamedTuple):
    """What a hub says of itself to every machine."""

    id: str
    heads: str
    store: str | None = None  # the id of the store that machines share; None: each has its own, as far as the hub knows


def join(git: Git, wish: HubWish, by: Stamp) -> list[Adopted]:
    """Makes a remote the hub; where it holds a space and the repository none, that is this space from now on."""
    check(wish)
    with kept_on_failure(git):
        remote = _remote(git, wish.address)
        config = git.handle.repo.config
        config[HUB] = remote
        hub = _hub(git)
        if not hub.fetch(insist=True) or not hub.read(MARK):
            raise hub.gone()
        taken = _same_space(git, remote)
        config[HUB_HEADS] = _agreed(git, hub, wish.heads, by)
        hub = _hub(git)
        if not hub.fetch(insist=True):
            raise hub.gone()
        ours = git.refs.get(names.SPACE)
        if ours is not None and hub.known(names.SPACE) is None:
            hub.send([(names.SPACE, None, ours)])
    return taken


def mark_of(git: Git) -> Mark | None:
    """What the hub says of itself, as it was read last; its id tells it from any other, also behind another address."""
    remote = git.setting(HUB)
    mark = None if remote is None else git.refs.get(names.tracking(remote, MARK))
    return None if mark is None else _read(git, mark)


def check_heads(git: Git) -> None:
    """``InvalidInput`` where this clone looks for heads elsewhere than the hub keeps them."""
    mark = mark_of(git)
    heads, ours = (None, None) if mark is None else (mark.heads, git.setting(HUB_HEADS))
    if heads != ours:
        raise InvalidInput(
            f"the hub keeps agents' heads as {heads}, and the setting {HUB_HEADS} says {ours}",
            code="other-heads",
            hints=[f"git config {HUB_HEADS} {heads}"],
            fields={"field": HUB_HEADS, "actual": heads},
        )


def agree_on_store(git: Git, store: str, by: Stamp, *, anew: bool) -> str:
    """The store that machines of the hub share: what the hub says; said now where nobody has, or where it is to be another."""
    hub = _hub(git)
    if not hub.read(MARK):
        raise hub.gone()
    mark = hub.known(MARK)
    known = _read(git, mark) if mark else Mark(str(uuid4()), git.setting(HUB_HEADS) or BRANCHES)
    while known.store is None or (anew and known.store != store):  # another machine may have said something else of it
        mark = _marked(git, hub, mark, known._replace(store=store), by)
        known = _read(git, mark)
    return known.store


def _agreed(git: Git, hub: RemoteHub, wished: str | None, by: Stamp) -> str:
    """Where the hub keeps agents' heads: what it says itself, for all machines; said now where nobody has."""
    mark = hub.known(MARK)
    if mark is None:
        mark = _marked(git, hub, None, Mark(str(uuid4()), wished or BRANCHES), by)
    known = _read(git, mark)
    heads = known.heads
    if wished in (None, heads):
        return heads
    git.handle.repo.config[HUB_HEADS] = heads
    if not _hub(git).fetch(insist=True) or _hub(git).known_under(names.HEADS):
        raise Conflict(
            f"the hub keeps agents' heads as {heads}, and has some",
            code="other-heads",
            hints=["where heads are kept is one decision for all machines, made before the first agent is published"],
            fields={"field": "heads", "actual": heads},
        )
    return _read(git, _marked(git, hub, mark, known._replace(heads=wished or heads), by)).heads


def _marked(git: Git, hub: RemoteHub, old: str | None, mark: Mark, by: Stamp) -> str:
    """Writes the hub's own mark; what stands there then: another machine may have been quicker."""
    said = canonical_bytes({key: value for key, value in mark._asdict().items() if value is not None}).decode("utf-8")
    tree = git.objects.update_tree(None, {})
    made = git.objects.write_commit(tree, [old] if old else [], by, by, compose("hub", [(_TRAILER, said)], "hub"))
    hub.probe(made)
    try:
        hub.send([(MARK, old, made)])
    except StaleRef as err:
        there: str = err.fields["actual"]
        return there
    return made


def _read(git: Git, mark: str) -> Mark:
    said = dict(parse(git.objects.commit(mark).message)[1]).get(_TRAILER, "")
    try:
        made = json.loads(said)
        name, heads, store = made["id"], made["heads"], made.get("store")
    except (ValueError, KeyError, TypeError):
        name, heads, store = None, None, None
    if not isinstance(name, str) or heads not in (BRANCHES, APART):
        raise InvalidInput(f"{MARK} at the hub cannot be read", code="invalid-hub", fields={"ref": MARK})
    return Mark(name, str(heads), store if isinstance(store, str) else None)


def _hub(git: Git) -> RemoteHub:
    from clia.app.wiring import hub_of

    made = hub_of(git)
    if made is None:
        raise NotFound("this space has no hub", code="no-hub")
    return made


def offer(git: Git, space: str) -> str:
    """Makes a new space known at the hub, if there is one; the space that counts: another machine may have been quicker."""
    from clia.app.wiring import hub_of

    hub = hub_of(git)
    if hub is None:
        return space
    try:
        hub.send([(names.SPACE, None, space)])
    except StaleRef as err:
        there: str = err.fields["actual"]
        return there
    return space


def check(wish: HubWish) -> None:
    """``InvalidInput`` where a wish cannot be one, whatever is there."""
    if wish.heads not in (None, BRANCHES, APART):
        raise InvalidInput(
            f"agents' heads are kept as {BRANCHES} or {APART}, not {wish.heads!r}", code="invalid-heads", fields={"field": "heads"}
        )
    if not wish.address or wish.address.startswith("-") or not wish.address.isprintable():
        raise InvalidInput(f"{wish.address!r} is no address of a hub", code="invalid-hub", fields={"field": "hub"})
    if _SECRET.search(wish.address):
        raise InvalidInput(
            "the hub's address holds a password, and would be kept in git's settings",
            code="password-in-hub",
            hints=["leave it out, and let git's credential helper keep it"],
            fields={"field": "hub"},
        )


@contextmanager
def kept_on_failure(git: Git) -> Iterator[None]:
    """Puts the repository's own settings, and what is known of remotes, back as they were, where something fails."""
    path = os.path.join(git.handle.common_dir, "config")
    with open(path, "rb") as file:
        before = file.read()
    known = dict(git.refs.under(names.TRACKING))
    try:
        yield
    except BaseException as err:
        with open(path, "wb") as file:
            file.write(before)
        git.handle.renew()
        for ref, cid in git.refs.under(names.TRACKING):
            if known.get(ref) != cid:
                git.refs.move(ref, cid, known.get(ref), "clia: undo")
        if isinstance(err, TransportError) and err.code == "hub-away":
            err.hints = (_NOT_JOINED,)  # nothing is owed to a hub that there is not
        raise


def _remote(git: Git, address: str) -> str:
    """The remote that an address means; made where there is none."""
    remotes = git.workbench.remotes()
    if address in remotes:
        return address
    where = os.path.abspath(address) if os.path.isdir(address) else address
    for remote in remotes:
        if git.workbench.remote_url(remote) in (address, where):
            return remote
    if _REMOTE in remotes:
        if git.setting(HUB) != _REMOTE:
            raise Conflict(
                f"there is a remote {_REMOTE!r} already, at another address",
                code="remote-taken",
                hints=["name the remote that is to be the hub: clia hub set REMOTE", f"git remote rename {_REMOTE} OTHER"],
                fields={"remote": _REMOTE},
            )
        git.command.run("remote", "set-url", _REMOTE, where)
    else:
        git.command.run("remote", "add", _REMOTE, where)
    return _REMOTE


def _same_space(git: Git, remote: str) -> list[Adopted]:
    theirs, ours = git.refs.get(f"{names.TRACKING}{remote}/clia/space"), git.refs.get(names.SPACE)
    if theirs is None or ours == theirs:
        return []
    if ours is not None:
        raise Conflict(
            "the hub holds another space than this repository",
            code="other-space",
            hints=["clone the hub, and init there; or choose an empty repository as the hub"],
            fields={"ours": ours, "theirs": theirs},
        )
    git.refs.move(names.SPACE, None, theirs, "clia: adopt")
    return [Adopted(names.SPACE, NEW, theirs)]
