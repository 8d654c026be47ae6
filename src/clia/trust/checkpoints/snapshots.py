"""Snapshots: what a machine saw of the record at one moment. They are the leaves of its checkpoint log.

A snapshot names the ends of all logs and the Merkle root over all shared refs, so it stands for everything that the logs lead to.

Invariant: a snapshot is canonical JSON of a limited length; anything else is refused. What is signed is the Merkle root over the
snapshots, so neither can change later.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import BadSignature
from clia.trust.checkpoints.merkle import leaf_hash, root_hash
from clia.trust.machine_log import LogEnd
from clia.values.canonical import canonical_bytes
from clia.values.refs import LOGS, is_id, is_shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

SNAPSHOT_MAX = 256 * 1024
"""Maximum length of a snapshot in bytes; it grows with the number of machines."""
_TYPE = "snapshot"
_FIELDS = {"type", "space", "machine", "at", "keys", "logs", "refs", "ref_count"}


class RecordSnapshot(NamedTuple):
    """What a machine saw of the record."""

    space: str  # the id of the space
    machine: str  # the machine that saw it
    at: int  # when, by its clock
    keys: str | None  # the commit of the chain of keys
    logs: Mapping[str, LogEnd]  # the ends of all logs, by machine
    refs: str  # the Merkle root over the shared refs, in hex
    ref_count: int  # the number of these refs

    def data(self) -> bytes:
        """The canonical bytes: a leaf."""
        logs = {machine: [end.length, end.digest] for machine, end in self.logs.items()}
        return canonical_bytes({**self._asdict(), "type": _TYPE, "logs": logs})

    @property
    def leaf(self) -> bytes:
        """The hash of the leaf."""
        return leaf_hash(self.data())

    @property
    def moves(self) -> int:
        """The number of entries of all logs."""
        return sum(end.length for end in self.logs.values())

    def shows_same(self, other: RecordSnapshot) -> bool:
        """Whether two snapshots show the same record."""
        return self._replace(at=other.at) == other


def origin_of(space: str, machine: str) -> str:
    """The origin line of a machine's checkpoints: its log has a name of its own in all the world."""
    return f"clia.invalid/{space}/{machine}"


def shared_refs(refs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The refs that a snapshot covers: all that clones share, except the logs, which it names."""
    return {ref: cid for ref, cid in refs if is_shared(ref) and not ref.startswith(LOGS)}


def ref_line(ref: str, cid: str) -> bytes:
    """The leaf of a ref."""
    return f"{cid} {ref}".encode("utf-8", "surrogateescape")


def refs_root(refs: Mapping[str, str]) -> str:
    """The Merkle root over refs, which are sorted by name."""
    return root_hash(leaf_hash(ref_line(ref, refs[ref])) for ref in sorted(refs)).hex()


def read_snapshot(data: bytes) -> RecordSnapshot:
    """Parse a snapshot; ``BadSignature`` (malformed-checkpoint) unless it is complete and canonical."""
    try:
        body: Any = json.loads(data) if len(data) <= SNAPSHOT_MAX else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or body.keys() != _FIELDS or body["type"] != _TYPE or not isinstance(body["logs"], dict):
        raise _malformed()
    numbers = all(type(body[name]) is int and body[name] >= 0 for name in ("at", "ref_count"))
    texts = all(isinstance(body[name], str) for name in ("space", "machine", "refs"))
    ends = [end for end in body["logs"].values() if isinstance(end, list) and len(end) == 2]
    sound = all(type(end[0]) is int and end[0] >= 0 and isinstance(end[1], str) for end in ends)
    if not numbers or not texts or not sound or len(ends) != len(body["logs"]) or not (body["keys"] is None or is_id(body["keys"])):
        raise _malformed()
    logs = {machine: LogEnd(machine, *end) for machine, end in body["logs"].items()}
    snapshot = RecordSnapshot(body["space"], body["machine"], body["at"], body["keys"], logs, body["refs"], body["ref_count"])
    if snapshot.data() != data:
        raise _malformed()
    return snapshot


def _malformed() -> BadSignature:
    return BadSignature("a snapshot of a checkpoint cannot be read", code="malformed-checkpoint")
