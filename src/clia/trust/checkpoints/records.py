"""Checkpoints in git.

``refs/clia/checkpoints/MACHINE`` points at one commit without parents: its tree has the newest checkpoint as a signed note, all
snapshots of the machine in files of 256 lines, and the refs that the newest snapshot covers. ``refs/clia/cosignatures/WITNESS``
points at one commit, too: the last checkpoint of each log that the witness cosigned. So a space has as many of these commits as
machines and witnesses, and the former ones are garbage.

Invariant: reading verifies that the snapshots have the root that the note signs. Who signed is for the caller to judge.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from clia.errors import BadSignature, CliaError
from clia.git.records import FILE, Stamp, TreeEntry
from clia.trust.checkpoints.merkle import root_hash
from clia.trust.checkpoints.signed_notes import NOTE_MAX, CheckpointHead, SignedNote, read_head, read_note
from clia.trust.checkpoints.snapshots import RecordSnapshot, read_snapshot
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.git.objects import GitObjects

CHECKPOINT = "Clia-Checkpoint"
"""The trailer of a commit with a checkpoint: its origin, size and root."""
_NOTE, _SNAPSHOTS, _REFS = "checkpoint", "snapshots", "refs"
CHUNK = 256
"""Snapshots of one file."""
_BLOB_MAX = 64 * 1024 * 1024


class CheckpointLog(NamedTuple):
    """The checkpoints of one machine: the newest one, and the snapshots of all."""

    cid: str  # the commit
    tree: str
    note: SignedNote
    head: CheckpointHead
    snapshots: Sequence[RecordSnapshot]

    @property
    def newest(self) -> RecordSnapshot:
        return self.snapshots[-1]

    def leaves(self) -> list[bytes]:
        return [snapshot.leaf for snapshot in self.snapshots]

    def has(self, head: CheckpointHead) -> bool:
        """Whether a checkpoint is one of this log: its tree is a prefix of the log's."""
        if head.origin != self.head.origin or head.size > self.head.size:
            return False
        return head.root == (self.head.root if head.size == self.head.size else root_hash(self.leaves()[: head.size]))


def read_checkpoint_log(objects: GitObjects, cid: str) -> CheckpointLog:
    """Read the checkpoints of a commit; ``BadSignature`` (malformed-checkpoint, malformed-note) if they are incomplete."""
    try:
        tree = objects.commit(cid).tree
        files = {path: entry.cid for path, entry in objects.entries(tree).items() if not path.startswith(f"{_REFS}/")}
        note = _read_note(objects, files.pop(_NOTE))
        chunks = [_blob(objects, files[path], _BLOB_MAX) for path in sorted(files)]
    except (KeyError, CliaError) as err:
        if isinstance(err, BadSignature):
            raise
        raise _malformed(f"{cid} has no readable checkpoint") from None
    lines = [line for chunk in chunks for line in chunk.removesuffix(b"\n").split(b"\n")]
    head = read_head(note.text)
    snapshots = [read_snapshot(line) for line in lines]
    if not snapshots or len(snapshots) != head.size or root_hash(snapshot.leaf for snapshot in snapshots) != head.root:
        raise _malformed(f"the snapshots of {cid} have another root than its checkpoint")
    return CheckpointLog(cid, tree, note, head, snapshots)


def read_covered_refs(objects: GitObjects, log: CheckpointLog) -> dict[str, str]:
    """The refs that the newest snapshot covers."""
    refs = {}
    for path, entry in objects.entries(log.tree).items():
        if path.startswith(f"{_REFS}/"):
            for line in _blob(objects, entry.cid, _BLOB_MAX).decode("utf-8", "surrogateescape").splitlines():
                cid, _, ref = line.partition(" ")
                refs[ref] = cid
    return refs


def write_checkpoint_log(
    objects: GitObjects,
    before: CheckpointLog | None,
    snapshots: Sequence[RecordSnapshot],
    note: SignedNote,
    refs: Mapping[str, str] | None,
    by: Stamp,
) -> str:
    """Write the commit of a checkpoint; no ref points at it yet. ``refs``: those of the newest snapshot; None: as before."""
    present = {} if before is None else objects.entries(before.tree)
    complete = 0 if before is None else len(before.snapshots) // CHUNK
    files = {_NOTE: _entry(objects, str(note).encode("utf-8"))}
    for number in range((len(snapshots) + CHUNK - 1) // CHUNK):
        path = f"{_SNAPSHOTS}/{number:06}"
        lines = [] if number < complete else [snapshot.data() for snapshot in snapshots[number * CHUNK : (number + 1) * CHUNK]]
        files[path] = _entry(objects, b"\n".join(lines) + b"\n") if lines else present[path]
    if refs is None:
        files |= {path: entry for path, entry in present.items() if path.startswith(f"{_REFS}/")}
    else:
        files |= _ref_files(objects, refs, present)
    head = read_head(note.text)
    subject = f"checkpoint {head.size} of {head.origin.rpartition('/')[2]}"
    message = compose(subject, [(CHECKPOINT, head.name)], "checkpoint")
    return objects.write_commit(objects.update_tree(None, files), [], by, by, message)


def read_cosigned(objects: GitObjects, cid: str) -> list[SignedNote]:
    """The checkpoints that a witness cosigned; what cannot be read is left out."""
    notes = []
    try:
        entries = objects.entries(objects.commit(cid).tree).values()
    except CliaError:
        return []
    for entry in entries:
        try:
            notes.append(_read_note(objects, entry.cid))
        except CliaError:
            continue
    return notes


def write_cosigned(objects: GitObjects, notes: Iterable[SignedNote], by: Stamp) -> str:
    """Write the commit with the checkpoints that a witness cosigned: the last one of each log."""
    changes: dict[str, TreeEntry | None] = {
        hashlib.sha256(read_head(note.text).origin.encode("utf-8")).hexdigest(): _entry(objects, str(note).encode("utf-8"))
        for note in notes
    }
    return objects.write_commit(objects.update_tree(None, changes), [], by, by, "cosigned checkpoints\n")


def _ref_files(objects: GitObjects, refs: Mapping[str, str], present: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    """The files with the refs, by a digest of their names: a ref that moves changes one small file. Only that is written."""
    files: dict[str, list[str]] = {}
    for ref in sorted(refs):
        name = hashlib.sha256(ref.encode("utf-8", "surrogateescape")).hexdigest()[:2]
        files.setdefault(f"{_REFS}/{name}", []).append(f"{refs[ref]} {ref}\n")
    texts = {path: "".join(lines).encode("utf-8", "surrogateescape") for path, lines in files.items()}
    same = {path for path, text in texts.items() if path in present and present[path].cid == objects.blob_id(text)}
    return {path: present[path] if path in same else _entry(objects, text) for path, text in texts.items()}


def _entry(objects: GitObjects, data: bytes) -> TreeEntry:
    return TreeEntry(FILE, objects.write_blob(data))


def _read_note(objects: GitObjects, cid: str) -> SignedNote:
    return read_note(_blob(objects, cid, 4 * NOTE_MAX).decode("utf-8", "replace"))


def _blob(objects: GitObjects, cid: str, limit: int) -> bytes:
    if objects.size(cid) > limit:
        raise _malformed(f"the file {cid} of a checkpoint is too large")
    return objects.blob(cid)


def _malformed(message: str) -> BadSignature:
    return BadSignature(message, code="malformed-checkpoint")
