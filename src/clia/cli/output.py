"""Writing to people and to programs.

Invariant: standard output carries the answer and nothing else; diagnostics and errors go to standard error. Text from
documents never reaches a terminal with its control characters alive.
"""

from __future__ import annotations

import io
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TextIO

    from rich.console import Console

    from clia.errors import CliaError
    from clia.identities.diagnostics import Diagnostic


def emit_json(value: Any) -> None:
    """The answer, for a program."""
    write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def speak_utf8() -> None:
    """UTF-8 on both streams, whatever the locale says; what cannot be written is escaped. One that is closed takes nothing."""
    if sys.stderr is None:  # closed by whoever started us: what belongs there must not come with the answer
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def write(text: str, stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    target.write(text)
    target.flush()


def console(*, stderr: bool = False) -> Console:
    """A terminal for people. Colours follow NO_COLOR, FORCE_COLOR and whether it is a terminal."""
    from rich.console import Console  # 35 ms that programs need not pay

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program with an error; main knows that the reader went away

    # rich takes "²" for a number of columns and falls over it.
    usable = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES") or value.isascii()}
    return Terminal(stderr=stderr, highlight=False, soft_wrap=False, emoji=False, markup=False, _environ=usable)


def counted(number: int, one: str, many: str) -> str:
    """``1 entry``, ``2 entries``."""
    return f"{number} {one if number == 1 else many}"


def plain(text: object) -> str:
    """Text that may go to a terminal: control, bidirectional and zero-width characters are made visible."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(char if _harmless(char) else f"\\u{{{ord(char):x}}}" for char in shown)


def one_line(text: object) -> str:
    """Text that can neither act on a terminal nor pass for a line of ours."""
    return plain(text).replace("\n", "\\n")


def _harmless(char: str) -> bool:
    return char.isprintable() or char in "\n\t\u200d\ufe0f"  # emoji are joined and styled with the last two


def show_diagnostics(found: Iterable[Diagnostic], *, as_json: bool) -> None:
    """Findings beside an answer: JSON lines for programs, one line each for people."""
    for item in found:
        if as_json:
            write(json.dumps(item.to_json(), ensure_ascii=False) + "\n", sys.stderr)
        else:
            hint = f" ({item.hint})" if item.hint else ""
            write(one_line(f"{item.severity}: {item.code}: {item.message}{hint}") + "\n", sys.stderr)


def show_error(error: CliaError, *, as_json: bool) -> None:
    if as_json:
        write(json.dumps({"error": error.to_json()}, ensure_ascii=False) + "\n", sys.stderr)
        return
    write(one_line(f"error: {error.code}: {error.message}") + "\n", sys.stderr)
    for hint in error.hints:
        write(one_line(f"  hint: {hint}") + "\n", sys.stderr)
