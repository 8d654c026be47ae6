"""``clia show``: an agent, or one commit."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from clia.cli.output import console, counted, emit_json, one_line, plain
from clia.cli.space.common import add_space, moment, short, space_of
from clia.errors import NotFound
from clia.sessions.records import ASK
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from rich.console import RenderableType

    from clia.facade.space import Space
    from clia.git.records import FileChange, Stamp
    from clia.sessions.model import Request
    from clia.space.model import AgentCommit
    from clia.values.typed_objects import Briefing


class _Agent(NamedTuple):
    """What ``--json`` says about an agent; None where this clone does not hold it."""

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
    asks: Sequence[Request]  # questions beside its session


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("what", metavar="AGENT|COMMIT", help="what to show; PEER/AGENT: the last commit of a peer's agent")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        archived = args.what in space.agents(archived=True)
        if archived or args.what in space.agents():
            agent = _agent(space, args.what, archived)
            emit_json(as_json(agent)) if args.json else _show_agent(agent)
        else:
            _commit(space, args)
    return 0


def _agent(space: Space, name: str, archived: bool) -> _Agent:
    genesis, briefing, record = None, None, {}
    with suppress(NotFound):  # a shallow clone, or a branch that plain git made
        genesis = space.genesis(name)
    with suppress(NotFound):
        briefing = space.briefing_of(name)
    with suppress(NotFound):
        record = space.record_of(name)
    return _Agent(
        agent=name,
        archived=archived,
        branch=None if archived else f"agents/{name}",
        head=space.find(name),
        genesis=genesis,
        parent=space.parent_agent(name),
        sub_agents=space.sub_agents(name),
        briefing=briefing,
        profile=record.get("profile.json"),
        pending=0 if archived else len(space.trace_pending(name)),
        landings=space.landings(name),
        session=_session(space, name),
        asks=[each for each in space.pending(name) if each.session.startswith(ASK)],
    )


def _session(space: Space, name: str) -> dict[str, Any] | None:
    """The live session, else the last one."""
    with suppress(NotFound):
        return space.session(name).to_json()
    return None


def _show_agent(agent: _Agent) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    terminal.print(Text.assemble((one_line(agent.agent), "bold"), ("  archived" if agent.archived else "", "yellow")))
    if agent.profile:
        _show_profile(agent.profile)
    facts: list[tuple[str, object]] = [("head", agent.head), ("genesis", agent.genesis), ("branch", agent.branch)]
    facts += [("parent", agent.parent), ("sub-agents", ", ".join(agent.sub_agents))]
    facts += [("pending", agent.pending and counted(agent.pending, "entry of its trace", "entries of its trace"))]
    facts += _session_facts(agent)
    facts += [("landed on", f"{each['onto']} as {short(each['cid'])} ({each.get('how')})") for each in agent.landings]
    terminal.print(_facts(facts))
    if agent.briefing:
        terminal.print(Text.assemble(("\nBriefing: ", "cyan"), one_line(agent.briefing.title)))
        _show_block(agent.briefing.text)
        if agent.briefing.meta:
            terminal.print(_facts(_meta(agent.briefing.meta)))


def _session_facts(agent: _Agent) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    if agent.session is not None:
        waits = ", ".join(f"{each['kind']} ({each['id']})" for each in agent.session["pending"])
        said = f"{agent.session['id']} ({agent.session['flow']}): {agent.session['status']}"
        facts.append(("session", f"{said}, waits for {waits}" if waits else said))
    return facts + [("asks", each.id) for each in agent.asks]


def _show_profile(profile: dict[str, Any]) -> None:
    """Whose profile it works under; its guardrails come before everything else."""
    from rich.text import Text

    from clia.identities.merge_rules import projected_text

    terminal = console()
    document = profile.get("document")
    rules = document.get("guardrails") if isinstance(document, dict) else None
    for each in rules if isinstance(rules, list) else ():
        terminal.print(Text.assemble(("  ! ", "bold red"), (one_line(projected_text(each)), "bold")))
    terminal.print(_facts([("profile", profile.get("slug"))]))


def _commit(space: Space, args: argparse.Namespace) -> None:
    commit = space.show(args.what)
    files = space.changed(commit.cid)
    cid, trace = space.trace_cid_for(commit.cid), space.trace_for(commit.cid)
    entries = len(trace.entries) if trace else 0
    if args.json:
        bound = {"cid": cid, "entries": entries} if trace else None
        emit_json({**as_json(commit), "files": as_json(files), "trace": bound})
    else:
        _show_commit(commit, files, entries)


def _show_commit(commit: AgentCommit, files: Sequence[FileChange], entries: int) -> None:
    from rich.text import Text  # only people see it

    terminal = console()
    terminal.print(Text.assemble("commit ", (commit.cid, "yellow")), soft_wrap=True)
    facts: list[tuple[str, object]] = [
        (name.replace("_", "-"), getattr(commit, name))
        for name in ("agent", "kind", "briefing", "profile", "behaviour", "parent", "merged", "landed", "range")
    ]
    facts += [(name, getattr(commit, name)) for name in ("forked", "request", "tag", "value", "by")]
    facts += [("decision", each) for each in commit.decisions]
    facts += [(role, _stamp(getattr(commit, role))) for role in ("author", "committer")]
    facts += [("on top of", each) for each in commit.parents]
    facts += [("trace", entries and counted(entries, "entry", "entries"))]
    terminal.print(_facts([*facts, *_meta(commit.meta)]))
    terminal.print()
    _show_block(commit.message)
    if files:
        terminal.print()
        terminal.print(file_table(files))


def _meta(fields: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Open fields, their values as JSON: nothing that was said is left out."""
    return [(f"meta {key}", json.dumps(value, ensure_ascii=False)) for key, value in fields.items()]


def _stamp(stamp: Stamp) -> str:
    return f"{stamp.name} <{stamp.email}>  {moment(stamp.at)}"


def _facts(rows: Iterable[tuple[str, object]]) -> RenderableType:
    """Names and values; what is not there is left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", 0):
            table.add_row(Text(f"  {one_line(name)}", style="dim"), Text(one_line(value)))
    return table


def _show_block(projected_text: str) -> None:
    """Text of several lines, indented so that none of them can pass for a line of ours."""
    from rich.padding import Padding
    from rich.text import Text

    if projected_text.strip():
        console().print(Padding(Text(plain(projected_text).strip("\n")), (0, 0, 0, 4), expand=False))


def file_table(files: Sequence[FileChange]) -> RenderableType:
    """Changed files as ``git diff --stat`` would list them, with numbers instead of bars."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for side in ("left", "left", "right", "right"):
        table.add_column(justify="right" if side == "right" else "left", overflow="fold")
    for each in files:
        path = f"{one_line(each.old_path)} → {one_line(each.path)}" if each.old_path else one_line(each.path)
        added, removed = ("binary", "") if each.added is None else (f"+{each.added}", f"-{each.removed}")
        status = Text(f"  {one_line(each.status)}", style="cyan")
        table.add_row(status, Text(path), Text(added, style="green"), Text(removed, style="red"))
    return table
