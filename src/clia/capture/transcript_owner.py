"""Which transcripts ingest may read.

Invariant: a transcript is read only if its own lines name the session (or the sub-agent) of the event, and a directory of this
repository. An event can name any file: that of another project would bring its conversation into this record.
"""

from __future__ import annotations

import os
import stat

from clia.capture.transcripts import first_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.capture.tools import ToolReader

_HEAD, _MORE = 1 << 16, 1 << 20


class OwnTranscripts:
    """The transcripts of one ingest; a positive result is kept."""

    def __init__(self, is_here: Callable[[str], bool]) -> None:
        self._is_here = is_here
        self._own: set[tuple[str, str, str]] = set()

    def is_own(self, tool: ToolReader, path: str, session: str, sub: str = "") -> bool | None:
        """Whether a transcript belongs to a session or its sub-agent; None while the file is missing or empty."""
        key = (path, session, sub)
        if key not in self._own:
            result = self._check(tool, path, {sub, session} if sub else {session})
            if not result:
                return result
            self._own.add(key)
        return True

    def _check(self, tool: ToolReader, path: str, wanted: set[str]) -> bool | None:
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode) or not os.path.isabs(path):
            return False
        if not status.st_size:
            return None
        # The first lines usually have both. Those of a resumed session may name an earlier one.
        for size, offset in ((_HEAD, 0), (_MORE, 0), (_MORE, max(0, status.st_size - _MORE))):
            owners = [tool.owner(line) for line in first_lines(path, size, offset)]
            places = [place for _, place in owners if place]
            if wanted.intersection(name for name, _ in owners) and (places or size == _MORE):
                return all(self._is_here(place) for place in places[:1])
        return False
