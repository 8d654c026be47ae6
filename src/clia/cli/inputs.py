"""Reading what people give on the command line: files, standard input, numbers, JSON and ``KEY=VALUE`` pairs."""

from __future__ import annotations

import argparse
import json
import os
import sys

from clia.cli.output import one_line, write
from clia.errors import FileError, InvalidInput, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.space.model import Content


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def read_text(path: str) -> str:
    """The text of a file, or of standard input for ``-``; bytes that are not UTF-8 become ``\\xff``."""
    return read_bytes(path).decode("utf-8", "backslashreplace")


def read_source(path: str, field: str) -> str:
    """The UTF-8 text of a file, or of standard input for ``-``, without a byte order mark."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"the {field} is not UTF-8", code="invalid-text", fields={"field": field, "path": path}) from None


def given_text(word: str, field: str) -> str:
    """A word of the command line, or standard input for ``-`` without its final newline."""
    return read_source("-", field).removesuffix("\n").removesuffix("\r") if word == "-" else word


def message_text(message: str) -> str:
    """The value of ``--message``, or standard input for ``-``."""
    if message != "-":
        return message
    try:
        return read_bytes("-").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("the message is not UTF-8", code="invalid-text", fields={"field": "message"}) from None


def meta_fields(words: Sequence[str]) -> dict[str, Any]:
    """The ``KEY=VALUE`` words of ``--meta`` as an object; the last value of a key wins."""
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"--meta takes KEY=VALUE, not {word!r}", code="invalid-meta", fields={"meta": word})
        try:
            fields[key] = json.loads(value)
        except ValueError:
            fields[key] = value
    return fields


def invalid_option(message: str, hints: Sequence[str] = (), **fields: object) -> InvalidInput:
    """The error for options that do not fit together, or a value of the wrong form."""
    return InvalidInput(message, code="invalid-option", hints=hints, fields=fields)


def path_pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    """The ``PATH=FILE`` words of an option."""
    pairs = []
    for word in words:
        path, equals, file = word.partition("=")
        if not equals or not path or not file:
            raise invalid_option(f"{option} takes PATH=FILE, not {word!r}", value=word)
        pairs.append((path, file))
    return pairs


def file_content(file: str) -> Content:
    """A local file as content of a tree: a symbolic link stays a link, an executable stays executable."""
    from clia.space.model import File, Link

    if file != "-" and os.path.islink(file):
        return Link(os.readlink(file))
    data = read_bytes(file)
    return File(data, executable=True) if file != "-" and os.stat(file).st_mode & 0o100 else data


def json_or_text(text: str) -> Any:
    """The value of a JSON text; any other text as it is."""
    try:
        return _load_json(text)
    except (ValueError, RecursionError):
        return text


def json_value(text: str, option: str) -> Any:
    """The value of a JSON option."""
    try:
        return _load_json(text)
    except (ValueError, RecursionError) as err:
        hints = ["put quotes around a text: '\"text\"'"]
        raise InvalidInput(f"{option} is not JSON: {err}", code="invalid-json", hints=hints, fields={"field": option}) from None


def _load_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def positive(text: str) -> int:
    """The value of an option that takes a positive number."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return int(text)


def line_range(text: str) -> tuple[int, int | None]:
    """The value of an option that takes line numbers: the first one and, if given, the last one."""
    start, comma, end = text.partition(",")
    first, last = positive(start), positive(end) if comma else None
    if last is not None and last < first:
        raise argparse.ArgumentTypeError(f"the last line must not be before the first one: {text!r}")
    return first, last


def require_agent(space: Space, name: str) -> None:
    """Raise ``NoSuchAgent`` unless the agent exists, active or archived."""
    if name not in space.agents(archived=True):
        space.head(name)


def require_confirmation(question: str, *, ask: bool) -> None:
    """Raise ``NotAllowed`` unless a person says yes; ``ask``: there is a terminal to ask at."""
    if ask:
        write(f"{question} [y/N] ", sys.stderr)
    if not ask or sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise NotAllowed("nothing was changed", code="not-confirmed", hints=["answer y, or give --yes"])


def setup_approval(*, yes: bool) -> Callable[[str], bool]:
    """A function that asks a person whether a setup command may be run; an agent can approve nothing."""

    from clia.facade.settings import Settings, acting_agent

    def approve(setup: str) -> bool:
        if acting_agent(Settings()) is not None:
            return False
        if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return yes
        write(f"the configuration runs this setup command in new worktrees:\n  {one_line(setup)}\nrun it? [y/N] ", sys.stderr)
        return sys.stdin.readline().strip().casefold() in ("y", "yes")

    return approve


def require_person(alternative: str) -> None:
    """Raise ``NotAllowed`` if an agent runs this command; ``alternative`` is a hint for the agent."""
    from clia.facade.settings import Settings, acting_agent
    from clia.verbs import require_person as require

    require(acting_agent(Settings()), alternative)


def present_agent(space: Space, name: str) -> tuple[str, bool]:
    """The name of an agent, its present one if it was renamed; and whether it is archived."""
    if name not in space.agents(archived=True):
        return name, False
    present = space.show(name).agent or name  # a former name leads to the present agent
    return (present, False) if present != name and present in space.agents() else (name, True)
