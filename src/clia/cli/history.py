"""Commands that read history: log, show, diff, blame, graph, fork-point."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import NamedTuple

from clia.cli.agents import no_agents
from clia.cli.command import ASCII, Answer, arg, command, flag, opt, several
from clia.cli.inputs import positive
from clia.cli.output import console, counted, one_line, write
from clia.cli.rendering import (
    facts_table,
    json_text,
    moment,
    only_ascii,
    short,
    show_block,
    show_entries,
    show_line,
    show_lines,
    show_patch,
)
from clia.errors import NotFound
from clia.sessions.records import ASK
from clia.space.model import as_json
from clia.values.graph_lanes import GraphNode, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from rich.console import RenderableType
    from rich.text import Text

    from clia.facade.space import Space
    from clia.git.records import FileChange, Stamp
    from clia.sessions.model import Request
    from clia.space.model import AgentCommit, BlamedLine
    from clia.values.graph_lanes import GraphRow
    from clia.values.typed_objects import Briefing


@command("log")
def log(
    space: Space,
    name: str = arg("AGENT|COMMIT", "where to start; PEER/AGENT: an agent of a peer"),
    own: bool = flag("only the agent's own commits"),
    number: int = opt("N", "maximum number of commits (default: 30)", "-n --number", type=positive, default=30),
    trace: bool = flag("show the trace of each commit"),
) -> Answer:
    """Show the commits of an agent, newest first."""
    commits = space.log(name, own=own, limit=number)
    traces = {commit.cid: _trace_entries(space, commit) for commit in commits} if trace else {}

    def show() -> None:
        for commit in commits:
            show_line(_log_line(commit))
            show_entries(traces.get(commit.cid, ()))

    return Answer([as_json(commit) | ({"trace": traces[commit.cid]} if trace else {}) for commit in commits], show)


def _trace_entries(space: Space, commit: AgentCommit) -> list[Any]:
    trace = space.traces.of(commit.cid)
    return list(trace.entries) if trace else []


def _log_line(commit: AgentCommit) -> Text:
    from rich.text import Text

    who = (one_line(commit.agent), "bold") if commit.agent else (one_line(commit.author.name), "dim")
    line = Text.assemble((short(commit.cid), "yellow"), "  ", (moment(commit.committer.at), "dim"), "  ", who)
    if commit.kind:
        line.append(f"  {one_line(commit.kind)}", style="cyan")
    return line.append(f"  {one_line(commit.subject)}")


class AgentDetails(NamedTuple):
    """An agent as ``--json`` shows it; None for what this clone does not hold."""

    agent: str
    archived: bool
    branch: str | None
    head: str
    genesis: str | None
    parent: str | None
    sub_agents: Sequence[str]
    briefing: Briefing | None
    profile: dict[str, Any] | None
    pending: int
    landings: Sequence[dict[str, Any]]
    session: dict[str, Any] | None
    asks: Sequence[Request]  # open questions outside its session


@command("show")
def show(space: Space, name: str = arg("AGENT|COMMIT", "agent or commit; PEER/AGENT: the last commit of a peer's agent")) -> Answer:
    """Show an agent or a commit."""
    archived = name in space.agents(archived=True)
    if archived or name in space.agents():
        details = _agent_details(space, name, archived)
        return Answer(details, lambda: _show_agent(details))
    commit = space.show(name)
    files = space.history.changed(commit.cid)
    cid, trace = space.traces.id_of(commit.cid), space.traces.of(commit.cid)
    entries = len(trace.entries) if trace else 0
    value = {**as_json(commit), "files": files, "trace": {"cid": cid, "entries": entries} if trace else None}
    return Answer(value, lambda: _show_commit(commit, files, entries))


def _agent_details(space: Space, name: str, archived: bool) -> AgentDetails:
    genesis, briefing, record, session = None, None, {}, None
    with suppress(NotFound):  # a shallow clone, or a branch made with plain git
        genesis = space.agents.genesis(name)
    with suppress(NotFound):
        briefing = space.agents.briefing(name)
    with suppress(NotFound):
        record = space.agents.record(name)
    with suppress(NotFound):
        session = space.session(name).to_json()
    return AgentDetails(
        agent=name,
        archived=archived,
        branch=None if archived else f"agents/{name}",
        head=space.find(name),
        genesis=genesis,
        parent=space.relations.parent(name),
        sub_agents=space.relations.sub_agents(name),
        briefing=briefing,
        profile=record.get("profile.json"),
        pending=0 if archived else len(space.traces.pending(name)),
        landings=space.history.landings(name),
        session=session,
        asks=[request for request in space.pending(name) if request.session.startswith(ASK)],
    )


def _show_agent(agent: AgentDetails) -> None:
    from rich.text import Text

    terminal = console()
    terminal.print(Text.assemble((one_line(agent.agent), "bold"), ("  archived" if agent.archived else "", "yellow")))
    if agent.profile:
        _show_profile(agent.profile)
    facts: list[tuple[str, object]] = [("head", agent.head), ("genesis", agent.genesis), ("branch", agent.branch)]
    facts += [("parent", agent.parent), ("sub-agents", ", ".join(agent.sub_agents))]
    facts += [("pending", counted(agent.pending, "trace entry", "trace entries") if agent.pending else None)]
    facts += _session_facts(agent)
    facts += [("landed on", f"{each['onto']} as {short(each['cid'])} ({each.get('how')})") for each in agent.landings]
    terminal.print(_facts(facts))
    if agent.briefing:
        terminal.print(Text.assemble(("\nBriefing: ", "cyan"), one_line(agent.briefing.title)))
        show_block(agent.briefing.text)
        if agent.briefing.meta:
            terminal.print(_facts(_meta(agent.briefing.meta)))


def _session_facts(agent: AgentDetails) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    if agent.session is not None:
        pending = ", ".join(f"{request['kind']} ({request['id']})" for request in agent.session["pending"])
        session = f"{agent.session['id']} ({agent.session['flow']}): {agent.session['status']}"
        facts.append(("session", f"{session}, waits for {pending}" if pending else session))
    return facts + [("asks", request.id) for request in agent.asks]


def _show_profile(profile: dict[str, Any]) -> None:
    """Print the identity that the agent works under, guardrails first."""
    from rich.text import Text

    from clia.identities.merge_rules import projected_text

    document = profile.get("document")
    guardrails = document.get("guardrails") if isinstance(document, dict) else None
    for guardrail in guardrails if isinstance(guardrails, list) else ():
        console().print(Text.assemble(("  ! ", "bold red"), (one_line(projected_text(guardrail)), "bold")))
    console().print(_facts([("profile", profile.get("slug"))]))


def _show_commit(commit: AgentCommit, files: Sequence[FileChange], entries: int) -> None:
    from rich.text import Text

    show_line(Text.assemble("commit ", (commit.cid, "yellow")))
    names = ("agent", "kind", "briefing", "profile", "behaviour", "parent", "merged", "landed", "range")
    facts: list[tuple[str, object]] = [(name.replace("_", "-"), getattr(commit, name)) for name in names]
    facts += [(name, getattr(commit, name)) for name in ("forked", "request", "tag", "value", "by")]
    facts += [("decision", decision) for decision in commit.decisions]
    facts += [(role, _stamp(getattr(commit, role))) for role in ("author", "committer")]
    facts += [("on top of", parent) for parent in commit.parents]
    facts += [("trace", counted(entries, "entry", "entries") if entries else None)]
    console().print(_facts([*facts, *_meta(commit.meta)]))
    console().print()
    show_block(commit.message)
    if files:
        console().print()
        console().print(file_table(files))


def _facts(facts: Sequence[tuple[str, object]]) -> RenderableType:
    """Each fact on one line; a value may be the number 0, which means nothing here."""
    return facts_table([(name, one_line(value)) for name, value in facts if value not in (None, "", 0)])


def _meta(fields: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(f"meta {key}", json_text(value)) for key, value in fields.items()]


def _stamp(stamp: Stamp) -> str:
    return f"{stamp.name} <{stamp.email}>  {moment(stamp.at)}"


def file_table(files: Sequence[FileChange]) -> RenderableType:
    """Changed files as in ``git diff --stat``, with numbers instead of bars."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for side in ("left", "left", "right", "right"):
        table.add_column(justify="right" if side == "right" else "left", overflow="fold")
    for file in files:
        path = f"{one_line(file.old_path)} → {one_line(file.path)}" if file.old_path else one_line(file.path)
        added, removed = ("binary", "") if file.added is None else (f"+{file.added}", f"-{file.removed}")
        status = Text(f"  {one_line(file.status)}", style="cyan")
        table.add_row(status, Text(path), Text(added, style="green"), Text(removed, style="red"))
    return table


@command("diff")
def diff(
    space: Space,
    json_output: bool,
    one: str = arg("A", "agent (all its work), commit or PEER/AGENT (its last change), or where to start"),
    other: str | None = arg("B", "agent or commit to compare with", nargs="?"),
    stat: bool = flag("show only which files changed, and by how much"),
    paths: list[str] = several("PATH", "only these files and directories"),
) -> Answer:
    """Show what an agent or a commit changed.

    A terminal gets the patch with colours; a pipe or a file gets a patch that git apply accepts.
    """
    patch = None if stat else space.diff(one, other, paths=paths)
    files = space.history.changed(one, other, paths=paths) if stat or json_output else []
    return Answer(
        {"patch": patch, "files": files}, lambda: console().print(file_table(files)) if patch is None else show_patch(patch)
    )


@command("blame")
def blame(
    space: Space,
    name: str = arg("AGENT|COMMIT", "commit to look at, or an agent for its head"),
    file: str = arg("PATH", "file, relative to the top of the repository"),
) -> Answer:
    """Show who wrote each line of a file: agent, kind of commit and commit.

    A star marks commits that have a trace.
    """
    lines = space.blame(name, file)
    return Answer(lines, lambda: show_lines(_blame_lines(lines)))


def _blame_lines(lines: Sequence[BlamedLine]) -> Iterator[Text]:
    from rich.text import Text

    rows = [(str(line.number), one_line(line.agent or "-"), one_line(line.kind or "")) for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for line, (number, agent, kind) in zip(lines, rows, strict=True):
        yield Text.assemble(
            (number.rjust(widths[0]), "dim"),
            "  ",
            (agent.ljust(widths[1]), "bold" if line.agent else "dim"),
            "  ",
            (kind.ljust(widths[2]), "cyan"),
            "  ",
            (short(line.commit), "yellow"),
            ("*" if line.trace else " ", "green"),
            "  ",
            one_line(line.text),
        )


@command("graph")
def graph(
    space: Space,
    agents: list[str] = arg("AGENT", "agents or branches to draw (default: all agents)", nargs="*"),
    number: int = opt("N", "maximum number of commits (default: 50)", "-n --number", type=positive, default=50),
    ascii_only: bool = ASCII,
) -> Answer:
    """Draw the commit graph of agents."""
    commits = {commit.cid: commit for commit in space.history.window(agents, number)}
    heads: dict[str, list[str]] = {}
    for name in space.agents():
        heads.setdefault(space.head(name), []).append(name)
    rows = layout([GraphNode(commit.cid, commit.parents, commit.agent or "") for commit in commits.values()])
    value = _graph_json(rows, commits, heads)
    if not rows:
        return Answer(value, no_agents(space))
    return Answer(value, lambda: _show_graph(rows, commits, heads, ascii_only=ascii_only or only_ascii()))


def _graph_json(rows: Sequence[GraphRow], commits: Mapping[str, AgentCommit], heads: Mapping[str, list[str]]) -> dict[str, Any]:
    """Nodes newest first; an edge's lane is the one in which its line leaves the child."""
    nodes = []
    for row in rows:
        commit = commits[row.node.id]
        facts = {"agent": commit.agent, "kind": commit.kind, "subject": commit.subject, "at": commit.committer.at}
        nodes.append({"id": commit.cid, "lane": row.lane, **facts, "heads": heads.get(commit.cid, [])})
    edges = [
        {"from": row.node.id, "to": parent, "lane": lane}
        for row in rows
        for parent, lane in zip(row.node.parents, row.edges, strict=True)
    ]
    return {"nodes": nodes, "edges": edges}


def _show_graph(
    rows: Sequence[GraphRow], commits: Mapping[str, AgentCommit], heads: Mapping[str, list[str]], *, ascii_only: bool
) -> None:
    from clia.cli.drawing import graph_lines

    terminal = console()
    for line in graph_lines(rows, lambda node: _graph_label(commits[node.id], heads.get(node.id, ())), ascii=ascii_only):
        terminal.print(line, soft_wrap=not terminal.is_terminal)


def _graph_label(commit: AgentCommit, heads: Sequence[str]) -> Text:
    from rich.text import Text

    label = Text.assemble((short(commit.cid), "yellow"))
    for name in heads:
        label.append(f" [{one_line(name)}]", style="bold")
    if commit.agent and commit.agent not in heads:
        label.append(f" {one_line(commit.agent)}")
    if commit.kind and not commit.subject.startswith(f"{commit.kind}:"):  # generated subjects start with the kind
        label.append(f" {one_line(commit.kind)}", style="cyan")
    return label.append(f" {one_line(commit.subject)}")


@command("fork-point")
def fork_point(
    space: Space, one: str = arg("A", "agent, commit or branch"), other: str = arg("B", "agent, commit or branch")
) -> Answer:
    """Show the newest commit that two agents share.

    Exit code 1 if they share none.
    """
    commit = space.fork_point(one, other)
    if commit is not None:
        return Answer({"fork_point": commit}, commit)
    message = f"{one_line(one)} and {one_line(other)} share no commit\n"
    return Answer({"fork_point": None}, lambda: write(message, sys.stderr), exit_code=1)
