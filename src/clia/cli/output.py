"""Writing to people and to programs.

Invariant: standard output carries the answer and nothing else; diagnostics and errors go to standard error. Control
characters in text from documents never reach a terminal.
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
    """Print a value or a record as JSON."""
    from clia.values.records import as_json  # help does not need it

    write(json.dumps(as_json(value), indent=2, ensure_ascii=False) + "\n")


def use_utf8() -> None:
    """Write UTF-8 to both streams in every locale, escaping what cannot be encoded; write nothing to a closed one."""
    if sys.stderr is None:  # closed by the parent process: errors must not go to standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def write(text: str, stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    target.write(text)
    target.flush()


def console(*, stderr: bool = False) -> Console:
    """A rich console; NO_COLOR and FORCE_COLOR are honoured."""
    from rich.console import Console  # 35 ms that ``--json`` does not pay

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with an error; main handles it

    # rich fails on a COLUMNS such as "²", which isdigit() accepts.
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES") or value.isascii()}
    return Terminal(stderr=stderr, highlight=False, soft_wrap=False, emoji=False, markup=False, _environ=environment)


def counted(number: int, one: str, many: str = "") -> str:
    """``1 ref``, ``2 refs``, ``2 entries``."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def plain(text: object) -> str:
    """Text that is safe for a terminal: control, bidirectional and zero-width characters are escaped."""
    string = str(text)
    if string.isascii() and string.isprintable():
        return string
    harmless = "\n\t\u200d\ufe0f"  # the last two join and style emoji
    return "".join(char if char.isprintable() or char in harmless else f"\\u{{{ord(char):x}}}" for char in string)


def one_line(text: object) -> str:
    """Text that is safe for a terminal and stays on one line."""
    return plain(text).replace("\n", "\\n")


def show_diagnostics(diagnostics: Iterable[Diagnostic], *, as_json: bool) -> None:
    """Print findings on standard error: JSON lines for programs, one line each for people."""
    for item in diagnostics:
        if as_json:
            write(json.dumps(item.to_json(), ensure_ascii=False) + "\n", sys.stderr)
        else:
            hint = f" ({item.hint})" if item.hint else ""
            write(one_line(f"{item.severity}: {item.code}: {item.message}{hint}") + "\n", sys.stderr)


def show_error(error: CliaError, *, as_json: bool) -> None:
    if as_json:
        write(json.dumps({"error": error.to_json()}, ensure_ascii=False) + "\n", sys.stderr)
        return
    for line in (f"error: {error.code}: {error.message}", *(f"  hint: {hint}" for hint in error.hints)):
        write(f"{one_line(line)}\n", sys.stderr)
