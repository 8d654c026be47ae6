"""Collect a program's output for a trace.

Invariant: the trace has every line in order, several lines per entry, up to a limit that is noted when it is reached. The last
64 kB stay available, redacted before they are cut, because half a secret would not be recognised. Invalid UTF-8 is replaced, and
memory use does not grow with the output.
"""

from __future__ import annotations

import codecs

from clia.redaction.secrets import START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.redaction.secrets import RedactionState

TAIL = 64 * 1024
ENTRY = 16 * 1024
TRACED_MAX = 8 * 1024 * 1024


class TracedOutput:
    def __init__(
        self,
        trace: Callable[[str], None],
        clean: Callable[[str, RedactionState], tuple[str, RedactionState]],
        limit: int = TRACED_MAX,
    ) -> None:
        self._trace = trace
        self._clean = clean
        self._state = START
        self._left = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self._tail = ""

    def add(self, data: bytes) -> None:
        """Add output; an empty chunk means that the program is silent, and flushes whole lines."""
        self._waiting += self._decoder.decode(data)
        whole = self._waiting.rfind("\n") + 1
        if len(self._waiting) >= ENTRY:
            self._flush(whole or len(self._waiting))
        elif whole and not data:
            self._flush(whole)

    def end(self) -> None:
        self.add(self._decoder.decode(b"", final=True).encode("utf-8"))
        self._flush(len(self._waiting))

    def tail(self) -> str:
        return self.tail_of(self._tail)

    @staticmethod
    def tail_of(text: str) -> str:
        """Return the last 64 kB."""
        return text.encode("utf-8", "replace")[-TAIL:].decode("utf-8", "ignore")

    def _flush(self, upto: int) -> None:
        text, self._waiting = self._waiting[:upto], self._waiting[upto:]
        clean, self._state = self._clean(text, self._state)
        self._tail = (self._tail + clean)[-TAIL:]
        if not text or not self._left:
            return
        if len(text) > self._left:
            text = f"{text[: self._left]}\n[cut: the program printed more than is kept]\n"
            self._left = 0
        else:
            self._left -= len(text)
        self._trace(text)
