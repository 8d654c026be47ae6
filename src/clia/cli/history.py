"""Commands that read history: log, show, diff, blame, authorship, graph, fork-point."""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from clia import __version__
from clia.cli.agents import no_agents
from clia.cli.command import ASCII, NUMBER, PATH, Answer, arg, command, flag, opt, several
from clia.cli.inputs import invalid_option, line_range, positive, present_agent
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.rendering import (
    facts_table,
    json_text,
    line_of,
    moment,
    only_ascii,
    short,
    show_block,
    show_entries,
    show_line,
    show_lines,
    show_patch,
    styled,
)
from clia.errors import InvalidInput, NotFound
from clia.git.libgit2 import find_repository
from clia.git.records import NOT_COMMITTED
from clia.sessions.records import ASK
from clia.space.attribution.authorship import in_words
from clia.values.graph_lanes import GraphNode, layout
from clia.values.paths import printable
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Annotated, Any, TypeVar

    from rich.console import RenderableType
    from rich.text import Text

    from clia.facade.space import Space
    from clia.git.records import FileChange
    from clia.identities.profile_drift import AgentIdentity
    from clia.sessions.model import Request, Session
    from clia.space.attribution.authorship import Authorship
    from clia.space.landing import LandingEvent
    from clia.space.model import AgentCommit, BlamedLine
    from clia.values.graph_lanes import GraphRow
    from clia.values.typed_objects import Briefing, TraceEntry

    T = TypeVar("T")

_TITLE_WIDTH = 30
AGENT_TRACE = "agent-trace"
AUTHORSHIP_FORMATS = ("text", "json", AGENT_TRACE)


@json_form(commit=EMBED)
class TracedCommit(NamedTuple):
    """A commit with its trace."""

    commit: AgentCommit
    trace: list[TraceEntry]  # entries of its trace


@command("log")
def log(
    space: Space,
    name: str = arg("AGENT|COMMIT", "where to start; PEER/AGENT: an agent of a peer"),
    own: bool = flag("only the agent's own commits"),
    number: int = opt("N", "maximum number of commits (default: 30)", NUMBER, type=positive, default=30),
    trace: bool = flag("show the trace of each commit"),
) -> Answer[list[AgentCommit] | list[TracedCommit]]:
    """Show the commits of an agent, newest first."""
    commits = space.log(name, own=own, limit=number)
    traces = {}
    for commit in commits if trace else ():
        bound = space.traces.of(commit.cid)
        traces[commit.cid] = list(bound.entries) if bound else []

    def show() -> None:
        for commit in commits:
            who = (one_line(commit.agent), "bold") if commit.agent else (one_line(commit.author.name), "dim")
            kind = (f"  {one_line(commit.kind)}" if commit.kind else "", "cyan")
            head = (short(commit.cid), "yellow"), "  ", (moment(commit.committer.at), "dim"), "  ", who
            show_line(*head, kind, f"  {one_line(commit.subject)}")
            show_entries(traces.get(commit.cid, ()))

    return Answer([TracedCommit(commit, traces[commit.cid]) for commit in commits] if trace else commits, show)


class TraceSize(NamedTuple):
    """The trace of a commit, in short."""

    cid: str | None  # id of the trace
    entries: int  # number of its entries


@json_form(commit=EMBED)
class ShownCommit(NamedTuple):
    """A commit with the files that it changed."""

    commit: AgentCommit
    files: list[FileChange]  # files that changed
    trace: TraceSize | None  # its trace; null: it has none


class ShownAgent(NamedTuple):
    """An agent. A field is null if this clone does not have the object."""

    agent: str  # the agent
    archived: bool  # whether it is archived
    branch: str | None  # its branch; null: it is archived
    head: str  # its newest commit
    genesis: str | None  # its first commit
    parent: str | None  # the agent whose sub-agent it is
    sub_agents: list[str]  # its own sub-agents
    briefing: Briefing | None  # what it was spawned with
    profile: dict[str, Any] | None  # its identity as recorded
    identity: AgentIdentity | None  # its identity at its place now, and the difference; null: this clone cannot tell
    pending: int  # trace entries since its last commit with a trace
    landings: list[LandingEvent]  # newest first
    session: Session | None  # its live session, else the last one; null: it never had one
    asks: list[Request]  # open questions outside its session


@command("show")
def show(
    space: Space, name: str = arg("AGENT|COMMIT", "agent or commit; PEER/AGENT: the last commit of a peer's agent")
) -> Answer[ShownAgent | ShownCommit]:
    """Show an agent or a commit."""
    name, archived = present_agent(space, name)
    if archived or name in space.agents():
        record = _unless_missing(space.agents.record, name) or {}
        details = ShownAgent(
            name,
            archived,
            None if archived else f"agents/{name}",
            space.find(name),
            _unless_missing(space.agents.genesis, name),
            space.relations.parent(name),
            space.relations.sub_agents(name),
            _unless_missing(space.agents.briefing, name),
            record.get("profile.json"),
            _unless_missing(space.identities.of_agent, name),
            0 if archived else len(space.traces.pending(name)),
            space.history.landings(name),
            _unless_missing(space.sessions.get, name),
            [request for request in space.sessions.pending(name) if request.session.startswith(ASK)],
        )
        return Answer(details, lambda: _show_agent(details))
    commit = space.show(name)
    files = space.history.changed(commit.cid)
    cid, trace = space.traces.id_of(commit.cid), space.traces.of(commit.cid)
    entries = len(trace.entries) if trace else 0
    value = ShownCommit(commit, files, TraceSize(cid, entries) if trace else None)
    return Answer(value, lambda: _show_commit(commit, files, entries))


def _unless_missing(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except NotFound:  # a shallow clone, or a branch made with plain git
        return None


def _show_agent(agent: ShownAgent) -> None:
    terminal = console()
    terminal.print(line_of((one_line(agent.agent), "bold"), ("  archived" if agent.archived else "", "yellow")))
    if agent.profile or agent.identity:
        _show_profile(agent.profile or {}, agent.identity)
    pending = counted(agent.pending, "trace entry", "trace entries") if agent.pending else None
    facts: list[tuple[str, object]] = [(name, getattr(agent, name)) for name in ("head", "genesis", "branch", "parent")]
    facts += [("sub-agents", ", ".join(agent.sub_agents)), ("pending", pending)]
    if (session := agent.session) is not None:
        requests = ", ".join(f"{request.kind} ({request.id})" for request in session.pending)
        state = f"{session.id} ({session.flow}): {session.status}"
        facts.append(("session", f"{state}, waits for {requests}" if requests else state))
    facts += [("asks", request.id) for request in agent.asks]
    for landing in agent.landings:
        facts.append(("landed on", f"{landing['onto']} as {short(landing['cid'])} ({landing.get('how')})"))
    terminal.print(_facts(facts))
    if briefing := agent.briefing:
        terminal.print(line_of(("\nBriefing: ", "cyan"), one_line(briefing.title)))
        show_block(briefing.text)
        if briefing.meta:
            terminal.print(_facts(_meta(briefing.meta)))


def _show_profile(profile: dict[str, Any], identity: AgentIdentity | None) -> None:
    """Print the identity that the agent works under, guardrails first, and how it differs from the recorded one."""
    from clia.identities.agent_places import guardrails_of
    from clia.identities.merge_rules import projected_text

    def show_rules(rules: Iterable[Any], note: str = "") -> None:
        for rule in rules:
            console().print(line_of(("  ! ", "bold red"), (one_line(projected_text(rule)), "bold"), (note, "yellow")))

    missing = () if identity is None else identity.missing
    show_rules(rule for rule in guardrails_of(profile.get("document")) if rule not in missing)
    show_rules(missing, "  missing at its place now")
    incomplete = profile.get("incomplete") or {}
    facts: list[tuple[str, object]] = [("profile", profile.get("slug")), ("incomplete", incomplete.get("reason"))]
    if identity is not None:
        show_rules(identity.added, "  not recorded yet")
        facts += [("place", "/".join(filter(None, (identity.place or ())[1:]))), ("changed", ", ".join(identity.changed))]
        facts += [("unreadable", finding.message) for finding in identity.findings]
        facts += [("record it with", f"clia reprofile {identity.agent}" if identity.drifted else "")]
    console().print(_facts(facts))


def _show_commit(commit: AgentCommit, files: Sequence[FileChange], entries: int) -> None:
    show_line("commit ", (commit.cid, "yellow"))
    names = ("agent", "kind", "briefing", "profile", "behaviour", "parent", "merged", "landed", "range")
    facts: list[tuple[str, object]] = [(name, getattr(commit, name)) for name in names]
    facts += [(name, getattr(commit, name)) for name in ("forked", "request", "tag", "value", "by")]
    facts += [("decision", decision) for decision in commit.decisions]
    for role, stamp in (("author", commit.author), ("committer", commit.committer)):
        facts.append((role, f"{stamp.name} <{stamp.email}>  {moment(stamp.at)}"))
    facts += [("on top of", parent) for parent in commit.parents]
    facts += [("trace", counted(entries, "entry", "entries") if entries else None)]
    console().print(_facts([*facts, *_meta(commit.meta)]))
    console().print()
    show_block(commit.message)
    if files:
        console().print()
        console().print(file_table(files))


def _facts(facts: Sequence[tuple[str, object]]) -> RenderableType:
    """Each fact on one line. A value of 0 is left out."""
    return facts_table([(name, one_line(value)) for name, value in facts if value not in (None, "", 0)])


def _meta(fields: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(f"meta {key}", json_text(value)) for key, value in fields.items()]


def file_table(files: Sequence[FileChange]) -> RenderableType:
    """Changed files as in ``git diff --stat``, with numbers instead of bars."""
    from rich.table import Column, Table

    columns = [Column(justify=side, overflow="fold") for side in ("left", "left", "right", "right")]
    table = Table.grid(*columns, padding=(0, 2))
    for file in files:
        path = f"{file.old_path} → {file.path}" if file.old_path else file.path
        added, removed = ("binary", "") if file.added is None else (f"+{file.added}", f"-{file.removed}")
        table.add_row(styled(f"  {file.status}", "cyan"), styled(path), styled(added, "green"), styled(removed, "red"))
    return table


class Difference(NamedTuple):
    patch: str | None  # the patch; null with `--stat`
    files: list[FileChange]  # files that changed


@command("diff")
def diff(
    space: Space,
    json_output: bool,
    one: str = arg("A", "agent (all its work), commit or PEER/AGENT (its last change), or where to start"),
    other: str | None = arg("B", "agent or commit to compare with", nargs="?"),
    stat: bool = flag("show only which files changed, and by how much"),
    paths: list[str] = several("PATH", "only these files and directories"),
) -> Answer[Difference]:
    """Show what an agent or a commit changed.

    A terminal gets the patch with colours; a pipe or a file gets a patch that git apply accepts.
    """
    patch = None if stat else space.diff(one, other, paths=paths)
    files = space.history.changed(one, other, paths=paths) if stat or json_output else []
    return Answer(Difference(patch, files), lambda: console().print(file_table(files)) if patch is None else show_patch(patch))


@command("blame")
def blame(
    space: Space,
    name: str | None = arg("AGENT|COMMIT", "commit to look at, or an agent for its head (default: the worktree)", nargs="?"),
    file: str = arg("PATH", "file, relative to the current directory"),
    lines: tuple[int, int | None] = opt("START[,END]", "only these lines", "-L --lines", type=line_range, default=(1, None)),
    path: str = PATH,
) -> Answer[list[BlamedLine]]:
    """Show who wrote each line of a file: agent, kind of commit, briefing and commit.

    A star marks commits that have a trace, a plus lines that are not committed yet. People are in parentheses. The author of a line
    is unknown if its commit is too large to compare or parts of it are missing. Lines that people committed keep the agent that
    wrote them.
    """
    start, end = lines
    commit, file = ("", file) if name is None else _in_order(space, name, file)
    place = path_in_commit(path, file)
    try:
        if not commit and has_worktree(path):
            blamed = space.history.blame_worktree(place, space.captures.running_turns(place))[start - 1 : end]
        else:
            limit = None if end is None else end - start + 1
            blamed = space.blame(commit or "HEAD", place, start=start, limit=limit)
    except NotFound as err:
        if err.code == "no-such-path":
            is_commit = not commit and _is_commit(space, file)
            err.hints = (f"name a path: clia blame {file} PATH" if is_commit else "a path is relative to the current directory",)
        raise
    if any("\0" in line.text for line in blamed):
        raise InvalidInput(f"{file!r} is a binary file", code="binary-file", fields={"path": printable(file)})
    return Answer(blamed, lambda: show_lines(_blame_lines(blamed)))


def has_worktree(directory: str) -> bool:
    top = find_repository(directory)
    return top is not None and os.path.lexists(os.path.join(top, ".git"))


def path_in_commit(directory: str, path: str) -> str:
    """A path relative to a directory, as one relative to the top of the worktree. A bare repository has only its top."""
    top = find_repository(directory)
    if top is None or not has_worktree(directory):
        return path
    relative = os.path.relpath(os.path.join(os.path.realpath(directory), path), top)
    if not path or relative.partition("/")[0] in ("..", "."):
        message = f"{path!r} is outside of the repository" if relative.startswith("..") else f"{path!r} is not a file"
        raise InvalidInput(message, code="invalid-path", fields={"path": printable(path)})
    return relative


def _in_order(space: Space, commit: str, path: str) -> tuple[str, str]:
    """The commit and the path, which may be given in the other order."""
    return (path, commit) if not _is_commit(space, commit) and _is_commit(space, path) else (commit, path)


def _is_commit(space: Space, text: str) -> bool:
    try:
        space.find(text)
    except (NotFound, InvalidInput):
        return False
    return True


def _blame_lines(lines: Sequence[BlamedLine]) -> Iterator[Text]:
    authors = {"agent": "{}", "person": "({})", "unknown": "unknown"}
    rows = [
        (str(line.number), authors[line.by].format(one_line(line.author)), one_line(line.kind or ""), _cut(line.title or ""))
        for line in lines
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    width = 2 if any(NOT_COMMITTED in (line.commit, line.via) for line in lines) else 1
    for line, row in zip(lines, rows, strict=True):
        number, author, kind, title = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        place = (f"{number.strip().rjust(widths[0])}  ", "dim"), (f"{author}  ", "bold" if line.by == "agent" else "dim")
        facts = (f"{kind}  ", "cyan"), (f"{title}  " if title else "", "dim")
        marks = ("*" if line.trace else "") + ("+" if NOT_COMMITTED in (line.commit, line.via) else "")
        commit = (short(line.commit), "yellow"), (marks.ljust(width), "green")
        text = line.text.removesuffix("\r")
        yield line_of(*place, *facts, *commit, f"  {one_line(text)}")


def _cut(title: str) -> str:
    text = one_line(title)
    return text if len(text) <= _TITLE_WIDTH else f"{text[: _TITLE_WIDTH - 1]}…"


@command("authorship")
def authorship(
    space: Space,
    json_output: bool,
    text: str = arg("COMMIT|A..B", "history of a branch or commit, or a range (default: HEAD)", nargs="?", default="HEAD"),
    number: int | None = opt("N", "maximum number of commits (default: 1000, for agent-trace all)", NUMBER, type=positive),
    output_format: str | None = opt(None, "output format (default: text)", "--format", choices=AUTHORSHIP_FORMATS),
    forge: str | None = opt("URL", "address of the space on a forge, for links (agent-trace): https://forge.example.org/s/shop"),
) -> Annotated[int, Authorship]:
    """Show how many of the lines that commits add were written by agents.

    The last line is the sum. Lines of a commit that people made are compared with those that agents wrote; see clia blame. The
    format agent-trace prints one Agent Trace record a line for each commit with lines by agents.
    """
    form = output_format or ("json" if json_output else "text")
    if forge is not None and form != AGENT_TRACE:
        raise invalid_option("--forge goes with --format agent-trace", option="--forge")
    if form == AGENT_TRACE:
        from clia.telemetry.agent_trace import AgentTraceExport

        for record in AgentTraceExport(space, __version__, _forge_address(forge)).records(text, number):
            write(json_text(record._asdict()) + "\n")
        return 0
    limit = number or 1000
    summary = space.history.authorship(text, limit=limit)
    if form == "json":
        emit_json(summary)
        return 0
    for commit in summary.commits:
        who = f"{one_line(commit.author)}  {one_line(commit.subject)}"
        show_line((short(commit.commit), "yellow"), f"  {in_words(commit)}  ", (who, "dim"))
    more = f" in the newest {counted(limit, 'commit')}" if summary.more else ""
    show_line((f"{in_words(summary)}{more}", "bold"))
    return 0


def _forge_address(address: str | None) -> str | None:
    if address is None or re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", address):
        return address
    raise invalid_option("--forge takes an http:// or https:// address without a query", option="--forge")


class ShownNode(NamedTuple):
    """A commit in the graph."""

    id: str  # the commit
    lane: int  # its column, from 0
    agent: str | None  # who made it; null: people
    kind: str | None  # its kind
    subject: str  # first line of its message
    at: int  # seconds since the epoch
    heads: list[str]  # agents and branches whose head it is


class ShownEdge(NamedTuple):
    """A line from a commit to its parent."""

    from_: str  # the child
    to: str  # the parent; it may be outside the window
    lane: int  # the column in which the line leaves the child


class Graph(NamedTuple):
    nodes: list[ShownNode]  # commits, newest first
    edges: list[ShownEdge]  # lines between them


@command("graph")
def graph(
    space: Space,
    agents: list[str] = arg("AGENT", "agents or branches to draw (default: all agents)", nargs="*"),
    number: int = opt("N", "maximum number of commits (default: 50)", NUMBER, type=positive, default=50),
    ascii_only: bool = ASCII,
) -> Answer[Graph]:
    """Draw the commit graph of agents."""
    commits = {commit.cid: commit for commit in space.history.window(agents, number)}
    heads: dict[str, list[str]] = {}
    for name in space.agents():
        heads.setdefault(space.head(name), []).append(name)
    rows = layout([GraphNode(commit.cid, commit.parents, commit.agent or "") for commit in commits.values()])
    value = _graph(rows, commits, heads)
    if not rows:
        return Answer(value, no_agents(space))

    def show() -> None:
        from clia.cli.graph_drawing import graph_lines

        terminal = console()
        lines = graph_lines(
            rows, lambda node: _graph_label(commits[node.id], heads.get(node.id, ())), ascii=ascii_only or only_ascii()
        )
        for line in lines:
            terminal.print(line, soft_wrap=not terminal.is_terminal)

    return Answer(value, show)


def _graph(rows: Sequence[GraphRow], commits: Mapping[str, AgentCommit], heads: Mapping[str, list[str]]) -> Graph:
    nodes = []
    for row in rows:
        commit = commits[row.node.id]
        facts = (commit.agent, commit.kind, commit.subject, commit.committer.at)
        nodes.append(ShownNode(commit.cid, row.lane, *facts, heads.get(commit.cid, [])))
    pairs = [(row.node.id, *pair) for row in rows for pair in zip(row.node.parents, row.edges, strict=True)]
    return Graph(nodes, [ShownEdge(*pair) for pair in pairs])


def _graph_label(commit: AgentCommit, heads: Sequence[str]) -> Text:
    label = line_of((short(commit.cid), "yellow"))
    for name in heads:
        label.append(f" [{one_line(name)}]", style="bold")
    if commit.agent and commit.agent not in heads:
        label.append(f" {one_line(commit.agent)}")
    if commit.kind and not commit.subject.startswith(f"{commit.kind}:"):  # generated subjects start with the kind
        label.append(f" {one_line(commit.kind)}", style="cyan")
    return label.append(f" {one_line(commit.subject)}")


class ForkPoint(NamedTuple):
    fork_point: str | None  # the commit; null, and exit code 1: they share none


@command("fork-point")
def fork_point(
    space: Space, one: str = arg("A", "agent, commit or branch"), other: str = arg("B", "agent, commit or branch")
) -> Answer[ForkPoint]:
    """Show the newest commit that two agents share.

    Exit code 1 if they share none.
    """
    commit = space.fork_point(one, other)
    if commit is not None:
        return Answer(ForkPoint(commit), commit)
    message = f"{one_line(one)} and {one_line(other)} share no commit\n"
    return Answer(ForkPoint(None), lambda: write(message, sys.stderr), exit_code=1)
