"""Removal of a text from what captured sessions have."""

from __future__ import annotations

import os

from clia.capture.service import ROWS, as_row, from_row
from clia.capture.spool_reader import holds, purge_spool, spools
from clia.capture.transcripts import TranscriptCursor, read_bytes
from clia.space.purging import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.capture.service import Captures
    from clia.store.interface import Store


def purge_captures(captures: Captures, store: Store, agent: str, text: str, common_dir: str) -> list[str]:
    """Replace a text in the agent's captured sessions and in all waiting events; returns where else it may be."""
    remaining = [line for spool in spools(common_dir, os.environ) for line in purge_spool(spool, text)]
    transcripts = set()
    with store.writing() as transaction:
        for key, row in transaction.values.scan(ROWS):
            captured = from_row(row)
            if captured.agent != agent:
                continue
            transcripts.add(captured.transcript)
            captures.looks.purge(captured, text)
            purged = captured._replace(
                prompt=captured.prompt.replace(text, MARK),
                paths=tuple(path for path in captured.paths if text not in path),
                wrote={path: lines for path, lines in captured.wrote.items() if text not in path},
                standing=TranscriptCursor.from_json(captured.standing).to_json(),
            )
            transaction.values.put(key, as_row(purged))
    for path in sorted(transcripts):
        if path and holds(read_bytes(path, 0) or b"", text):
            remaining.append(f"transcript {path}: it is the tool's own file, and clia will record its unread part")
    return remaining
