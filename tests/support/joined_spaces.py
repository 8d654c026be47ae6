"""Spaces that have joined a hub, copied from one that has: a join runs about twenty git commands.

For tests of anything but joining. The copies made in one process have the same space id; each has its own hub, store and clone id.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import clia
from clia.store.postgres_store import PostgresStore
from support import postgres
from support.git_hubs import bare
from support.space_driver import postgres_url
from support.spaces import settings


class SpaceTemplate(NamedTuple):
    home: Path
    space: str
    values: list[tuple[str, Any]]  # of a store in PostgreSQL


def joined(top: Path, store: str | None = None) -> str:
    """Create ``top/repo`` and ``top/hub.git``, which it has joined; return the hub's address.

    ``store``: the URL of an empty store in PostgreSQL, to be shared with other machines.
    """
    template = _template(shared=store is not None)
    for name in ("hub.git", "repo"):
        shutil.copytree(template.home / name, top / name, symlinks=True)
    config = top / "repo/.git/config"
    config.write_text(config.read_text().replace(str(template.home), str(top)))
    if store is not None:
        with closing(PostgresStore(store, template.space)) as shared, shared.writing() as transaction:
            for key, value in template.values:
                transaction.values.put(key, value)
    return str(top / "hub.git")


@cache
def _template(*, shared: bool) -> SpaceTemplate:
    home = Path(tempfile.mkdtemp(prefix="clia-joined-")).resolve()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    store = postgres_url(postgres.fresh()) if shared else None
    hub = bare(home / "hub.git")
    with clia.init(home / "repo", settings=settings(store=store), hub=str(hub)) as space:
        values = space.local.store.scan("") if shared else []
        template = SpaceTemplate(home, space.id, values)
    for path in [*hub.glob("hooks/*.sample"), *home.glob("repo/.git/clia/clone*")]:
        path.unlink()
    return template
