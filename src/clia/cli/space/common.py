"""What the commands of a space share: opening it, reading options, and showing ids and times."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager

from clia.cli.arguments import add_json
from clia.cli.output import console, one_line, plain
from clia.errors import FileError, InvalidInput, NoSuchAgent, NoSuchObject, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.space.model import Content

SHORT = 10
NEWS = "clia hub sync takes over what other machines made"
_OWING = "the hub is away; what was done is owed to it (clia hub status)"


def add_space(parser: argparse.ArgumentParser) -> None:
    """What every command of a space takes."""
    parser.add_argument("--path", default=".", metavar="DIR", help="a directory of the repository (default: the current one)")
    parser.add_argument(
        "--store", metavar="URL", help="postgresql://… for a store on a server (default: CLIA_STORE, else beside the repository)"
    )
    add_json(parser)


def add_redaction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-redact", action="store_true", help="record secrets as they are: never do this by habit")


def add_message(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="what was done, and why ('-': standard input)")


def add_meta(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--meta", action="append", default=[], metavar="KEY=VALUE", help="an open field (repeatable); VALUE is JSON, or else text"
    )


@contextmanager
def space_of(args: argparse.Namespace) -> Iterator[Space]:
    """The space that the options name; where it has a hub, whoever misses something or owes something is told of that."""
    from clia.facade.opening import open_space

    with open_space(args.path, settings=settings_of(args)) as space:
        try:
            yield space
        except (NoSuchAgent, NoSuchObject) as err:
            if space.has_hub and err.code != "agent-not-here":  # which no sync brings now
                err.hints = (*err.hints, NEWS)
            raise
        if space.has_hub and not args.json:
            _tell_of_debt(space)


def _tell_of_debt(space: Space) -> None:
    from clia.workers.hub_inspection import left_owing

    if left_owing(space):
        console(stderr=True).print(_OWING, style="dim", soft_wrap=True)


def nobody_yet(space: Space) -> str:
    """That there are no agents, and how to come by one."""
    news = f"; {NEWS}" if space.has_hub else ""
    return f"no agents yet; make one: clia spawn NAME --title TITLE{news}\n"


def settings_of(args: argparse.Namespace) -> Any:
    from clia.facade.settings import Settings, check_address

    check_address(args.store)  # an empty variable is one that is not set; an empty option is a mistake
    store = args.store or os.environ.get("CLIA_STORE") or None
    config = getattr(args, "config", None) or os.environ.get("CLIA_CONFIG") or None
    return Settings(store=store, redact=not getattr(args, "no_redact", False), config=config)


def require_person(instead: str) -> None:
    """``NotAllowed`` where an agent is at work: what lets something run, or decides, is a person's. ``instead``: what it can do."""
    agent = os.environ.get("CLIA_AGENT")
    if agent:
        raise NotAllowed(
            f"this is a person's to do; here CLIA_AGENT says that {agent} is at work",
            code="person-needed",
            hints=[instead, "a person does it, outside of clia run and without CLIA_AGENT"],
            fields={"agent": agent},
        )


def message_of(args: argparse.Namespace) -> str:
    if args.message != "-":
        return str(args.message)
    try:
        return read_bytes("-").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("the message is not UTF-8", code="invalid-text", fields={"field": "message"}) from None


def meta_of(args: argparse.Namespace) -> dict[str, Any]:
    """``KEY=VALUE`` options as an object; the last of several wins."""
    found: dict[str, Any] = {}
    for word in args.meta:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"--meta takes KEY=VALUE, not {word!r}", code="invalid-meta", fields={"meta": word})
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def read_text(path: str) -> str:
    """A file's text, or standard input for ``-``; bytes that are not UTF-8 are shown as ``\\xff``."""
    return read_bytes(path).decode("utf-8", "backslashreplace")


def read_bytes(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def short(cid: str | None) -> str:
    return "" if cid is None else cid[:SHORT]


def moment(seconds: int) -> str:
    """A time as people read it, in UTC."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a commit may claim any time
        return str(seconds)


def pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    """``PATH=FILE`` options."""
    found = []
    for word in words:
        path, equals, file = word.partition("=")
        if not equals or not path or not file:
            raise InvalidInput(f"{option} takes PATH=FILE, not {word!r}", code="invalid-option", fields={"value": word})
        found.append((path, file))
    return found


def content_of(file: str) -> Content:
    """What a file of this machine becomes in a tree: a link stays a link, and a program can be run."""
    from clia.space.model import File, Link

    if file != "-" and os.path.islink(file):
        return Link(os.readlink(file))
    data = read_bytes(file)
    return File(data, executable=True) if file != "-" and os.stat(file).st_mode & 0o100 else data


def require_agent(space: Space, name: str) -> None:
    """``NoSuchAgent`` unless there is such an agent, at work or archived."""
    if name not in space.agents(archived=True):
        space.head(name)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table; whatever stands in a cell stays in it."""
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console().print(table)


def show_entries(entries: Iterable[Any]) -> None:
    """Entries of a trace: when and what kind, what was taken out of it, then its text, which cannot pass for a line of ours."""
    from rich.text import Text  # only people see it

    out = console()
    for each in entries:
        entry = each if isinstance(each, dict) else {"text": each}
        head = Text.assemble((one_line(entry.get("at", "")), "dim"), "  ", (one_line(entry.get("kind", "")), "cyan"))
        if entry.get("redacted"):
            head.append(f"  redacted: {one_line(entry['redacted'])}", style="yellow")
        if entry.get("cut"):
            head.append(f"  cut: it had {one_line(entry['cut'])} characters", style="yellow")
        out.print(head, soft_wrap=True)
        text = plain(str(entry.get("text", "")).replace("\r\n", "\n")).rstrip("\n")
        out.print(Text("  " + text.replace("\n", "\n  ")), soft_wrap=True)
        if entry.get("data"):
            out.print(Text("  " + one_line(json.dumps(entry["data"], ensure_ascii=False)), style="dim"), soft_wrap=True)


@contextmanager
def working(args: argparse.Namespace, label: str) -> Iterator[Callable[[str], None] | None]:
    """Shows a person at a terminal, on standard error, that something is going on; what is yielded says what."""
    if args.json or not sys.stderr.isatty():
        yield None
        return
    with console(stderr=True).status(label) as status:
        yield lambda text: status.update(one_line(f"{label}: {text}"))


def positive(text: str) -> int:
    """A number of things, as an option has it."""
    import argparse

    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text!r}")
    return int(text)


def only_ascii() -> bool:
    """Whether the terminal's locale has no box characters; ``LC_ALL=C`` is one."""
    import locale

    try:
        "●│─├╭↻".encode(locale.getencoding())
    except (UnicodeError, LookupError):
        return True
    return False
