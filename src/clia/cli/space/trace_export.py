"""``clia trace export``: what agents did, as spans for a collector of traces."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from clia import __version__
from clia.cli.output import console, counted, one_line, write
from clia.cli.space.common import add_space, positive, space_of
from clia.errors import InvalidInput, TransportError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space
    from clia.telemetry.export import ExportResult, ExportSelection

_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="who, with their sub-agents (default: every agent)")
    parser.add_argument(
        "--since", metavar="WHEN", help="only sessions that went on after a time (2026-05-01, 2026-05-01T10:00Z) or 7d"
    )
    parser.add_argument("--otlp", metavar="URL", help="send them to a collector: OTLP over HTTP, as http://127.0.0.1:4318")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="a header for the collector (repeatable)"
    )
    parser.add_argument("--timeout", type=positive, default=10, metavar="SECONDS", help="for each request (default: 10)")
    parser.add_argument("--content", action="store_true", help="with the texts: prompts, output, messages (default: lengths only)")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where the collector did not want all of it."""
    if bool(args.json) == (args.otlp is not None):
        raise InvalidInput(
            "give --otlp URL to send the spans, or --json to print them", code="invalid-option", fields={"option": "--otlp"}
        )
    if args.header and args.otlp is None:
        raise InvalidInput("--header goes with --otlp", code="invalid-option", fields={"option": "--header"})
    since = None if args.since is None else _since(args.since)
    headers = _headers(args.header)
    with space_of(args) as space:
        from clia.telemetry.export import ExportSelection

        chosen = ExportSelection(args.agents, since, args.content)
        return _print(space, chosen) if args.otlp is None else _send(space, chosen, args, headers)


def _print(space: Space, chosen: ExportSelection) -> int:
    from clia.telemetry.export import as_otlp_json, resource_of, trees_of

    resource = resource_of(space, __version__)
    for tree in trees_of(space, chosen):
        write(as_otlp_json(tree, resource) + "\n")
    return 0


def _send(space: Space, chosen: ExportSelection, args: argparse.Namespace, headers: dict[str, str]) -> int:
    from clia.telemetry.export import resource_of, send, sender_of, trees_of

    sender = sender_of(args.otlp, headers, resource_of(space, __version__), seconds=args.timeout)
    with closing(sender), _progress() as progress:
        try:
            done = send(sender, trees_of(space, chosen, progress))
        except TransportError as err:
            sent = err.fields.get("sent")
            if sent:
                err.hints = (*err.hints, f"{counted(sent, 'span', 'spans')} went before: sent again, they are the same spans")
            raise
    return _report(done)


def _report(done: ExportResult) -> int:
    if not done.spans:
        write("there is nothing to send\n")
        return 0
    write(f"sent {counted(done.spans, 'span', 'spans')} of {counted(done.trees, 'session', 'sessions')}\n")
    if not done.rejected:
        if done.reason:
            write(one_line(f"warning: the collector says: {done.reason}") + "\n", sys.stderr)
        return 0
    why = f": {done.reason}" if done.reason else ""
    write(one_line(f"the collector rejected {done.rejected} of them{why}") + "\n", sys.stderr)
    return 1


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Shows a person at a terminal, on standard error, how far it is."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress  # only people see it

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("Sending spans", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _headers(words: list[str]) -> dict[str, str]:
    """Of the environment, as OpenTelemetry spells them there, then of the options. An error never has the value in it."""
    name = next((each for each in _VARIABLES if os.environ.get(each)), _VARIABLES[-1])
    given = [(name, unquote(each.strip())) for each in os.environ.get(name, "").split(",") if each.strip()]
    found: dict[str, str] = {}
    for source, word in [*given, *(("--header", word) for word in words)]:
        key, equals, value = (each.strip() for each in word.partition("="))
        if not equals or not _HEADER.fullmatch(key) or not (value.isascii() and value.isprintable()):
            raise InvalidInput(
                f"{source} takes NAME=VALUE, a header's name and a value in ASCII",
                code="invalid-header",
                fields={"field": source},
            )
        found[key.lower()] = value
    return found


def _since(text: str) -> int:
    """A time in nanoseconds: a day, a moment, or how long ago."""
    from clia.sessions.runs import nanoseconds

    ago = _AGO.fullmatch(text)
    found = nanoseconds(text) if ago is None else nanoseconds(_before(int(ago[1]), _UNITS[ago[2]]))
    if found is None:
        raise InvalidInput(
            f"--since takes a time, not {text!r}",
            code="invalid-time",
            hints=["2026-05-01, 2026-05-01T10:00:00Z, or how long ago: 90m, 12h, 7d"],
            fields={"field": "since"},
        )
    return found


def _before(count: int, unit: str) -> str | None:
    try:
        return (datetime.now(UTC) - timedelta(**{unit: count})).isoformat()
    except OverflowError:  # before there were years
        return None
