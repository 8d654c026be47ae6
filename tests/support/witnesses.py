"""A witness for tests: it trusts itself into a space, cosigns clones, and serves HTTP."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from clia.facade.witnessing import CosigningResult, WitnessPlace, cosign, create_witness, open_witness, served_logs
from clia.testing import Settings
from clia.trust.checkpoints.witness_server import WitnessServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia
    from clia.trust.checkpoints.signed_notes import NoteKey

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


class WitnessForTests(NamedTuple):
    """A witness with its own directory."""

    place: WitnessPlace
    key: NoteKey
    settings: Settings = SETTINGS

    @classmethod
    def created(cls, directory: Path, name: str = "w.example") -> WitnessForTests:
        place = WitnessPlace(str(directory), None, name)
        return cls(place, create_witness(place))

    def trusted_by(self, space: clia.Space) -> WitnessForTests:
        space.witnesses.trust(self.key.text)
        return self

    def cosign(self, path: Path, root: str | None = None, push: str | None = None) -> CosigningResult:
        return cosign(str(path), self.settings, open_witness(self.place, self.settings), root=root, push=push)

    @contextmanager
    def serving(self, path: Path, *keys: str) -> Iterator[str]:
        logs = served_logs(str(path), self.settings, keys)
        with WitnessServer(("127.0.0.1", 0), open_witness(self.place, self.settings), logs).serving() as url:
            yield url
