"""Reading a plain clone: a repository without live state of clia, as after ``git clone``.

What needs a store has one in a temporary directory. No ref moves, and nothing is written into the clone except for git objects that
no ref reaches, if at all.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, nullcontext

from clia.errors import NotAllowed
from clia.facade.backends import LiveState, SpaceOptions, connect, ignore_step
from clia.facade.components import Components
from clia.facade.opening import repository_at, space_id_of
from clia.facade.settings import acting_agent, clock_of, person_of
from clia.redaction import secrets
from clia.space.core import Cleaner, Core
from clia.space.traces import ENTRY_MAX
from clia.store.private_files import FileLocks
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from clia.facade.settings import Settings
    from clia.provenance.service import ProvenanceService

FETCH_HINT = 'fetch the record: git fetch origin "+refs/clia/*:refs/clia/*" "+refs/notes/clia/*:refs/notes/clia/*"'


@contextmanager
def provenance_of_clone(path: str, settings: Settings) -> Iterator[ProvenanceService]:
    """Explain lines and commits of the repository at or above a path, as far as the record is in it."""
    from clia.provenance.service import ProvenanceService
    from clia.store.sqlite_store import STORE_FILE, SqliteStore

    git = connect(repository_at(path), settings)
    tip = git.refs.get(names.SPACE)
    space_id = "" if tip is None else space_id_of(git, tip)
    git.refs.log = _RefusedMoves()
    with tempfile.TemporaryDirectory(prefix="clia-clone-") as directory:
        store = SqliteStore(os.path.join(directory, STORE_FILE), space_id, durable=False)
        state = LiveState(store, FileLocks(os.path.join(directory, "locks")))
        core = Core(
            space_id=space_id,
            objects=git.objects,
            refs=git.refs,
            graph=git.graph,
            notes=git.notes,
            store=store,
            locks=state.locks,
            clock=clock_of(settings),
            identify=lambda: person_of(settings, git.setting),
            clean=Cleaner(secrets.redact, secrets.redact_value),
            reached=ignore_step,
        )
        options = SpaceOptions(os.path.abspath(path), secrets.redact_entry, ENTRY_MAX, None, acting_agent(settings))
        components = Components(git, core, state, options, None)
        try:
            yield ProvenanceService(components)
        finally:
            components.close()


class _RefusedMoves:
    """Refuses every move of a ref."""

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def recover(self) -> None:
        """No process died here."""

    def tidy(self) -> None:
        """There is nothing to remove."""

    def begin(self, ref: str, old: str | None, new: str | None, why: str, *, at_hub: bool = False) -> str | None:
        del old, new, why, at_hub
        raise NotAllowed(f"{ref} stays as it is: this clone is only read", code="read-only-clone", fields={"ref": ref})

    def cancel(self, note: str) -> None:
        """No move begins."""

    def end(self, note: str) -> None:
        """No move happens."""

    def doubt(self, note: str) -> None:
        """No move happens."""

    def settle(self, at_hub: Callable[[str], str | None]) -> None:
        """No process moved anything at a hub."""
