"""``clia trace``: the traces of agents."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing
from typing import Any, NamedTuple

from clia import __version__
from clia.cli.command import AGENT, NO_REDACT, NUMBER, Answer, arg, command, flag, many, opt
from clia.cli.inputs import invalid_option, positive, read_bytes, read_text, require_agent, require_confirmation
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import moment, progress_bar, short, show_entries, show_line, show_table, spinner
from clia.errors import CliaError, InvalidInput, TransportError
from clia.space.model import BoundTrace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Annotated

    from clia.facade.space import Space
    from clia.space.model import TraceChange, TraceHit
    from clia.space.purging import Purged
    from clia.telemetry.export import ExportSelection
    from clia.telemetry.otlp import OtlpSender
    from clia.values.typed_objects import ConsoleTrace, TraceEntry

COMMIT = arg("COMMIT", "commit, or an agent for its newest commit")
_HEADER_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class AddedEntry(NamedTuple):
    agent: str  # the agent
    kind: str  # kind of the entry
    position: int  # its number among the pending entries


@command("trace add", no_redact=NO_REDACT)
def trace_add(
    space: Space,
    agent: str = AGENT,
    text: str = arg("TEXT", "text of the entry (default, or '-': standard input)", nargs="?", default="-"),
    kind: str = opt("KIND", "console (default), tool-call, or any other word", "-k --kind", default="console"),
) -> Answer[AddedEntry]:
    """Append an entry to an agent's trace."""
    space.head(agent)  # refuse an unknown agent before reading standard input
    position = space.traces.add(agent, kind, read_text("-") if text == "-" else text)
    return Answer(AddedEntry(agent, kind, position), f"added entry {position} to the trace of {agent}")


@command("trace pending")
def trace_pending(space: Space, agent: str = AGENT) -> Answer[Sequence[TraceEntry]]:
    """Show trace entries recorded since the agent's last commit with a trace."""
    entries = space.traces.pending(agent)
    if not entries:
        return Answer(entries, f"no entries since the last commit of {agent} with a trace")
    return Answer(entries, lambda: show_entries(entries))


@command("trace show")
def trace_show(
    space: Space,
    name: str = arg("COMMIT|AGENT", "commit, or an agent for all its traces, newest first"),
    limit: int | None = opt("N", "maximum number of traces of an agent", NUMBER, type=positive),
) -> Answer[Sequence[BoundTrace] | BoundTrace | None]:
    """Show the trace of a commit, or all traces of an agent."""
    if _is_agent(space, name):
        bound = space.traces.of_agent(name)[:limit]
        if not bound:
            return Answer([], f"no commit of {name} has a trace")
        return Answer(bound, lambda: _show_traces(space, [binding.trace for binding in bound]))
    commit = space.find(name)
    trace, cid = space.traces.of(commit), space.traces.id_of(commit)
    if trace is None or cid is None:
        return Answer(None, f"commit {commit} has no trace")
    return Answer(BoundTrace(cid, trace), lambda: _show_traces(space, [trace]))


def _is_agent(space: Space, name: str) -> bool:
    try:
        space.head(name)  # first, because listing all agents is slow in a large space
    except CliaError:
        return name in space.agents(archived=True)
    return True


def _show_traces(space: Space, traces: Sequence[ConsoleTrace]) -> None:
    for trace in traces:
        subject = space.show(trace.commit).subject
        show_line((short(trace.commit), "bold yellow"), one_line(f"  {trace.agent}  {subject}"))
        show_entries(trace.entries)


class AttachedTrace(NamedTuple):
    commit: str  # the commit
    cid: str  # id of the trace


@command("trace attach", no_redact=NO_REDACT)
def trace_attach(
    space: Space,
    commit: str = COMMIT,
    file: str | None = arg("FILE", "text that becomes one entry (default, or '-': standard input)", nargs="?"),
    entries: str | None = opt("FILE", "JSON list of entries, each with a text ('-': standard input)"),
    agent: str | None = opt("AGENT", "agent the trace belongs to, if the commit has none"),
    kind: str | None = opt("KIND", "kind of the entry (default: console)", "-k --kind"),
) -> Answer[AttachedTrace]:
    """Attach a trace to an existing commit."""
    if file is not None and entries is not None:
        raise invalid_option("FILE and --entries exclude each other")
    if kind is not None and entries is not None:
        raise invalid_option("--kind goes with FILE; entries have their own kinds")
    commit = space.find(commit)
    if agent is not None:
        require_agent(space, agent)  # a trace of an unknown agent would never be found again
    text_entries = [{"kind": kind or "console", "text": read_text(file or "-")}] if entries is None else _read_entries(entries)
    cid = space.traces.attach(commit, text_entries, agent=agent)
    return Answer(AttachedTrace(commit, cid), f"attached trace {short(cid)} to {commit}")


def _read_entries(path: str) -> list[dict[str, Any]]:
    try:
        entries = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"{path}: not JSON: {err}", code="invalid-entry", fields={"path": path}) from None
    if not isinstance(entries, list):
        raise InvalidInput(f"{path}: not a list of entries", code="invalid-entry", fields={"path": path})
    return entries


@command("trace history")
def trace_history(space: Space, commit: str = COMMIT) -> Answer[list[TraceChange]]:
    """List every trace that was ever attached to a commit."""
    commit = space.find(commit)
    bindings = space.traces.history(commit)
    if not bindings:
        return Answer([], f"commit {commit} never had a trace")
    rows = [
        (short(binding.notes_commit), short(binding.trace) or "none", moment(binding.by.at), binding.by.name, binding.message)
        for binding in bindings
    ]
    return Answer(bindings, lambda: show_table(("notes commit", "trace", "when", "by", "why"), rows))


@command("trace search")
def trace_search(
    space: Space,
    json_output: bool,
    text: str = arg("TEXT", "text to search for, ignoring case"),
    agent: str | None = opt("AGENT", "search only the traces of this agent"),
    regex: bool = flag("TEXT is a regular expression; case matters"),
) -> Answer[list[TraceHit]]:
    """Search all traces for a text."""
    with spinner("Searching traces", hidden=json_output):
        if agent is not None:
            require_agent(space, agent)
        hits = space.traces.search(text, agent=agent, regex=regex)
    if not hits:
        return Answer([], "nothing found")
    pattern = re.compile(text if regex else re.escape(text), 0 if regex else re.IGNORECASE)
    rows = [(hit.agent, short(hit.commit) or "pending", hit.position, _matching_line(hit, pattern)) for hit in hits]
    return Answer(hits, lambda: show_table(("agent", "commit", "entry", "line"), rows))


def _matching_line(hit: TraceHit, pattern: re.Pattern[str]) -> str:
    """The first line that matches, or the first line if the match spans lines or is in the data."""
    lines = str(hit.entry.get("text", "")).splitlines() or [""]
    return next((line for line in lines if pattern.search(line)), lines[0])


@command("trace purge")
def trace_purge(
    space: Space,
    json_output: bool,
    agent: str = AGENT,
    text: str | None = opt("TEXT", "leaked text (default: standard input, which keeps it out of the shell history)"),
    yes: bool = flag("do not ask for confirmation"),
) -> Answer[Purged]:
    """Remove a leaked text from an agent's traces and their history."""
    require_agent(space, agent)
    if text is None and sys.stdin.isatty():
        from getpass import getpass

        text = getpass("Text to remove (not shown): ", sys.stderr)
    elif text is None:
        text = read_text("-").removesuffix("\n").removesuffix("\r")  # echo and editors add these
    if sys.stdin.isatty() and not yes:
        require_confirmation(f"Remove this text from the traces of {agent} and rewrite their history?", ask=True)
    with spinner("Purging traces", hidden=json_output):
        purged = space.traces.purge(agent, text)

    def show() -> None:
        pending = counted(purged.pending, "pending entry", "pending entries")
        write(f"removed from {counted(purged.traces, 'trace')} and {pending} of {purged.agent}; copies may remain in:\n")
        write("".join(f"  {one_line(place)}\n" for place in purged.remaining))

    return Answer(purged, show)


class SpanExport(NamedTuple):
    """The spans of one session, as OTLP/JSON: an `ExportTraceServiceRequest` on a line."""

    resourceSpans: list[dict[str, Any]]  # noqa: N815
    """As in OpenTelemetry's protocol"""


@command("trace export")
def trace_export(
    space: Space,
    json_output: bool,
    agents: list[str] = arg("AGENT", "agents to export, with their sub-agents (default: all)", nargs="*"),
    since: str | None = opt("WHEN", "only sessions active after a time (2026-05-01, 2026-05-01T10:00Z) or within 7d"),
    otlp: str | None = opt("URL", "send spans to an OTLP/HTTP collector, such as http://127.0.0.1:4318"),
    header: list[str] = many("NAME=VALUE", "HTTP header for the collector (repeatable)"),
    timeout: int = opt("SECONDS", "timeout of each request (default: 10)", type=positive, default=10),
    content: bool = flag("include texts: prompts, output, messages (default: only their lengths)"),
) -> Annotated[int, SpanExport]:
    """Export sessions and traces as OpenTelemetry spans.

    Exit code 1 if the collector rejected some of them.
    """
    from clia.telemetry.export import ExportSelection, as_otlp_json, resource_of, sender_of, trees_of

    if json_output == (otlp is not None):
        raise invalid_option("give --otlp URL to send the spans, or --json to print them", option="--otlp")
    if header and otlp is None:
        raise invalid_option("--header goes with --otlp", option="--header")
    selection = ExportSelection(agents, None if since is None else _nanoseconds(since), content)
    headers = _http_headers(header)
    resource = resource_of(space, __version__)
    if otlp is not None:
        return _send_spans(space, selection, sender_of(otlp, headers, resource, seconds=timeout))
    for tree in trees_of(space, selection):
        write(as_otlp_json(tree, resource) + "\n")
    return 0


def _send_spans(space: Space, selection: ExportSelection, sender: OtlpSender) -> int:
    from clia.telemetry.export import send, trees_of

    with closing(sender), progress_bar("Sending spans", hidden=False) as progress:
        try:
            result = send(sender, trees_of(space, selection, progress))
        except TransportError as err:
            if sent := err.fields.get("sent"):
                hint = f"{counted(sent, 'span was', 'spans were')} sent; sending them again does not duplicate them"
                err.hints = (*err.hints, hint)
            raise
    if not result.spans:
        write("nothing to send\n")
        return 0
    write(f"sent {counted(result.spans, 'span')} of {counted(result.trees, 'session')}\n")
    if not result.rejected:
        if result.reason:
            write(one_line(f"warning: the collector says: {result.reason}") + "\n", sys.stderr)
        return 0
    reason = f": {result.reason}" if result.reason else ""
    write(one_line(f"the collector rejected {result.rejected} of them{reason}") + "\n", sys.stderr)
    return 1


def _http_headers(words: Sequence[str]) -> dict[str, str]:
    """Headers from OpenTelemetry's environment variables, then from the options. Errors never contain a value."""
    from urllib.parse import unquote

    name = next((variable for variable in _HEADER_VARIABLES if os.environ.get(variable)), _HEADER_VARIABLES[-1])
    pairs = [(name, unquote(word.strip())) for word in os.environ.get(name, "").split(",") if word.strip()]
    headers: dict[str, str] = {}
    for source, word in [*pairs, *(("--header", word) for word in words)]:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not _HEADER_NAME.fullmatch(key) or not (value.isascii() and value.isprintable()):
            message = f"{source} takes NAME=VALUE: a header name and a printable ASCII value"
            raise InvalidInput(message, code="invalid-header", fields={"field": source})
        headers[key.lower()] = value
    return headers


def _nanoseconds(text: str) -> int:
    """The value of ``--since``: a date, a time, or how long ago."""
    from datetime import UTC, datetime, timedelta

    from clia.sessions.runs import nanoseconds

    time: str | None = text
    if ago := _AGO.fullmatch(text):
        try:
            time = (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
        except OverflowError:  # before year 1
            time = None
    since = nanoseconds(time)
    if since is None:
        hints = ["2026-05-01, 2026-05-01T10:00:00Z, or how long ago: 90m, 12h, 7d"]
        message = f"--since takes a time, not {text!r}"
        raise InvalidInput(message, code="invalid-time", hints=hints, fields={"field": "since"})
    return since
