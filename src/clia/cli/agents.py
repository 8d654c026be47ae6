"""Commands about agents: spawn, list, tree, checkout, archive, relations."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from clia.cli.command import (
    AGENT,
    ASCII,
    IDENTITY,
    INCOMPLETE,
    META,
    NO_REDACT,
    NUMBER,
    SYNC_HINT,
    Answer,
    arg,
    command,
    flag,
    opt,
    several,
)
from clia.cli.inputs import invalid_option, meta_fields, positive, read_text, require_agent, require_person, setup_approval
from clia.cli.output import console, one_line, write
from clia.cli.rendering import line_of, moment, only_ascii, short, show_line, show_table, styled
from clia.errors import CliaError, NoSuchObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.text import Text

    from clia.facade.space import Space
    from clia.identities.journal import JournalResult
    from clia.identities.service import Reprofiled
    from clia.space.model import AgentState, Renamed, Spawned
    from clia.store.interface import Edge
    from clia.values.typed_objects import Briefing


def no_agents(space: Space) -> str:
    """The message for a space without agents."""
    hint = f"; {SYNC_HINT}" if space.has_hub else ""
    return f"no agents yet; create one with: clia spawn NAME --title TITLE{hint}"


@command("spawn", no_redact=NO_REDACT)
def spawn(
    space: Space,
    name: str = arg("NAME", "name of the new agent: lower-case letters, digits and hyphens"),
    title: str | None = opt(None, "one-line title (default: with --agenda: the item's)", "-t --title"),
    text: str | None = opt("TEXT", "briefing", "-b --briefing", former="--text", one_of="task"),
    file: str | None = opt("FILE", "file with the briefing ('-': standard input)", one_of="task"),
    from_: str | None = opt("AGENT", "start at another agent's head, as its sub-agent", "--from", one_of="start"),
    at: str | None = opt("COMMIT", "start at any commit (default: your HEAD)", one_of="start"),
    empty: bool = flag("start without files", one_of="start"),
    parent: str | None = opt("AGENT", "with --at: parent agent"),
    slug: str | None = IDENTITY,
    accept_incomplete: str | None = INCOMPLETE,
    agenda: str | None = opt("ITEM", "work for an item of the identity's agenda: its id, or the start of it"),
    behaviour: str | None = opt(
        "PROMPT", "prompt that renders the briefing, with the text as its task: a name or an id", one_of="version"
    ),
    proposal: str | None = opt(
        "VERSION", "version of an identity's document to work with, on trial: an id or a name", one_of="version"
    ),
    meta: list[str] = META,
) -> Answer[Spawned]:
    """Create an agent: a branch that starts from a briefing."""
    if parent is not None and at is None:
        raise invalid_option("--parent goes with --at", ["--from AGENT starts at the parent's head"], option="--parent")
    task = read_text(file) if file is not None else text
    briefing = _briefing(space, name, slug, agenda, title, task, behaviour or proposal)
    briefing = briefing._replace(meta={**(briefing.meta or {}), **meta_fields(meta)} or None)
    start = at
    if at is None and from_ is None and not empty:
        with suppress(NoSuchObject):  # before the first commit
            start = space.find("HEAD")
    if from_ is not None:
        spawned = space.spawn_from(name, briefing, from_, slug=slug, accept_incomplete=accept_incomplete)
    elif start is None:
        spawned = space.spawn(name, briefing, slug=slug, accept_incomplete=accept_incomplete)
    else:
        spawned = space.spawn_at(name, briefing, start, parent, slug=slug, accept_incomplete=accept_incomplete)

    def show() -> None:
        show_line("spawned ", (name, "bold"), " at ", (short(spawned.genesis), "yellow"), f", branch {spawned.branch}")
        show_line(f"briefing {short(spawned.briefing)}" + (f", profile {short(spawned.profile)}" if spawned.profile else ""))
        for warning in spawned.warnings:
            show_line(("warning: ", "yellow"), warning)
        show_line((f"next: clia checkout {name} DIR", "dim"))

    return Answer(spawned, show)


def _briefing(  # one for each option
    space: Space, name: str, slug: str | None, item: str | None, title: str | None, task: str | None, behaviour: str | None
) -> Briefing:
    """The briefing of a new agent: as given, for an item of the agenda, or rendered by a prompt."""
    from clia.values.typed_objects import Briefing

    briefing = None if item is None else space.identities.brief(slug or name, item, title=title, text=task)
    if briefing is None:
        if title is None:
            raise invalid_option("a new agent needs a title", ["--title TITLE", "or --agenda ITEM"], option="--title")
        briefing = Briefing(title, task or "")
    if behaviour is None:
        return briefing
    rendered = space.behaviours.brief(behaviour, briefing.title, briefing.text, agent=name)
    return rendered._replace(meta=briefing.meta)


@command("journal")
def journal(
    space: Space,
    agent: str = AGENT,
    message: str = opt("TEXT", "what happened ('-': standard input)", "-m --message", required=True),
    tags: list[str] = several("TAG", "tags, separated by blanks or commas"),
    dirs_touched: list[str] = several("DIR", "directories that the work touched"),
    key: str | None = opt("KEY", "write only one entry per key"),
) -> Answer[JournalResult]:
    """Write to an agent's journal, as a commit on its branch."""
    text = read_text("-") if message == "-" else message
    words = [tag for word in tags for tag in word.split(",")]
    written = space.agents.journal(agent, text, tags=words, dirs_touched=dirs_touched, key=key)
    if written.commit is None:
        return Answer(written, f"already in {written.path}")
    commit = short(written.commit)

    def show() -> None:
        show_line((commit, "yellow"), f"  {written.path}")
        show_line(f"sha256 {written.sha256}")

    return Answer(written, show)


@command("reprofile")
def reprofile(
    space: Space,
    name: str = arg("AGENT", "agent"),
    accept_incomplete: str | None = INCOMPLETE,
) -> Answer[Reprofiled]:
    """Record the present profile of an agent's identity.

    A loss of guardrails needs a person's approval.
    """
    require_person("an agent can ask a person to do it")
    done = space.identities.reprofile(name, accept_incomplete=accept_incomplete)
    if done.commit is None:
        return Answer(done, f"the profile of {one_line(name)} is up to date")

    def show() -> None:
        from clia.identities.merge_rules import projected_text

        show_line((short(done.commit or ""), "yellow"), f"  profile {short(done.profile or '')}")
        for mark, style, items in (("+", "green", done.added), ("-", "red", done.lost)):
            for item in items:
                show_line((f"  {mark} ", style), one_line(projected_text(item)))

    return Answer(done, show)


@command("list")
def list_agents(
    space: Space,
    json_output: bool,
    archived: bool = flag("list archived agents instead"),
    limit: int | None = opt("N", "maximum number of agents, sorted by name", NUMBER, former="--limit", type=positive),
    after: str = opt("AGENT", "only agents after this name: the next page", default=""),
) -> Answer[list[AgentState]]:
    """List agents and their last commits."""
    states = _archived(space, after, limit) if archived else space.states(after=after, limit=limit)
    if states:
        marks = {}  # agents that cannot be worked on in this clone, with the reason
        if space.has_hub and not json_output:
            hub = space.hub.status()
            marks = {away.agent: "elsewhere" for away in hub.elsewhere} | {fork.agent: "forked" for fork in hub.forks}
        return Answer(states, lambda: _show_states(states, marks))
    if after:
        return Answer([], f"no agents after {after}")
    return Answer([], "no archived agents" if archived else no_agents(space))


def _archived(space: Space, after: str, limit: int | None) -> list[AgentState]:
    from clia.space.model import AgentState

    states = []
    for name in space.agents(archived=True, after=after, limit=limit):
        try:
            commit = space.show(name)
            landed = [str(landing["onto"]) for landing in space.history.landings(name) if landing["head"] == commit.cid]
        except CliaError as err:
            states.append(AgentState(name, space.find(name), None, "", 0, 0, None, err.message))
            continue
        branch = landed[0].removeprefix("refs/heads/") if landed else None
        states.append(AgentState(name, commit.cid, commit.kind, commit.subject, commit.committer.at, 0, branch))
    return states


def _show_states(states: Sequence[AgentState], marks: Mapping[str, str]) -> None:
    rows = [
        (
            styled(state.agent, "bold"),
            state.kind or "",
            state.subject if state.problem is None else styled(state.problem, "red"),
            styled(moment(state.at) if state.at else "", "dim"),
            styled(state.pending or "", "yellow"),
            styled(state.landed or "", "green"),
            *((styled(marks.get(state.agent, ""), "yellow"),) if marks else ()),
        )
        for state in states
    ]
    headings = ("agent", "last", "subject", "when (UTC)", "pending", "landed on", *(("hub",) if marks else ()))
    show_table(headings, rows, right=("pending",))


class TreeMember(NamedTuple):
    agent: str  # the agent
    archived: bool  # whether it is archived
    parents: list[str]  # agents above it
    children: list[str]  # its sub-agents


@command("tree")
def tree(
    space: Space, agent: str | None = arg("AGENT", "show only this agent and its descendants", nargs="?"), ascii_only: bool = ASCII
) -> Answer[list[TreeMember]]:
    """Show agents and their sub-agents as a tree."""
    members = _members(space, agent)
    if not members:
        return Answer([], no_agents(space))

    def show() -> None:
        from clia.cli.graph_drawing import tree_lines

        subjects = {state.agent: state.subject for state in space.states()}

        def label(name: str) -> Text:
            if members[name].archived:
                return styled(f"{name}  archived", "dim")
            return line_of((name, "bold"), (f"  {one_line(subjects.get(name, ''))}", "dim"))

        terminal = console()
        children = {name: member.children for name, member in members.items()}
        for line in tree_lines(members, children, label, ascii=ascii_only or only_ascii()):
            terminal.print(line, soft_wrap=not terminal.is_terminal)

    return Answer(list(members.values()), show)


def _members(space: Space, top: str | None) -> dict[str, TreeMember]:
    """One agent and its descendants; or all active agents and their archived ancestors."""
    edges = [(relation.src, relation.dst) for relation in space.relations() if relation.kind == "sub-agent-of"]
    active, archived = space.agents(), space.agents(archived=True)
    if top is None:
        chosen = _reachable(active, [(child, parent) for parent, child in edges])
    else:
        require_agent(space, top)
        chosen = _reachable([top], edges)
    members = {name: TreeMember(name, name in archived, [], []) for name in sorted(chosen & {*active, *archived})}
    for parent, child in dict.fromkeys(edges):
        if parent in members and child in members:
            members[parent].children.append(child)
            members[child].parents.append(parent)
    return members


def _reachable(start: list[str], edges: list[tuple[str, str]]) -> set[str]:
    targets: dict[str, list[str]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    reached: set[str] = set()
    stack = list(start)
    while stack:
        name = stack.pop()
        if name not in reached:
            reached.add(name)
            stack.extend(targets.get(name, ()))
    return reached


class CheckedOut(NamedTuple):
    agent: str  # the agent
    directory: str  # the worktree
    commit: str  # the commit that is checked out


@command("checkout")
def checkout(
    space: Space,
    agent: str = AGENT,
    directory: str = arg("DIR", "new directory, or an existing checkout of the agent to update"),
    yes: bool = flag("approve the setup command of the configuration"),
) -> Answer[CheckedOut]:
    """Check out an agent's files in a separate directory.

    Submodules are checked out too, and [run] of the configuration applies: files to copy and link, and a setup command.
    """
    from clia.programs.preparation import prepare_checkout

    path = os.path.abspath(directory)
    commit = prepare_checkout(space, agent, path, os.environ, setup_approval(yes=yes), _warn)
    return Answer(CheckedOut(agent, path, commit), f"checked out {agent} at {short(commit)} in {path}")


def _warn(text: str) -> None:
    write(f"clia: {one_line(text)}\n", sys.stderr)


class Archived(NamedTuple):
    agent: str  # the agent
    archived: bool  # false: it was restored


@command("archive")
def archive(space: Space, agent: str = AGENT, restore: bool = flag("restore an archived agent")) -> Answer[Archived]:
    """Archive an agent, or restore it."""
    (space.agents.restore if restore else space.agents.archive)(agent)
    archived = f"archived {agent}; restore it with: clia archive --restore {agent}"
    return Answer(Archived(agent, not restore), f"restored {agent} at agents/{agent}" if restore else archived)


@command("rename")
def rename(
    space: Space,
    agent: str = AGENT,
    new: str = arg("NEW", "new name: lower-case letters, digits and hyphens"),
) -> Answer[Renamed]:
    """Give an agent another name.

    Commits are signed and never rewritten, so those from before keep the former name. It is archived, leads to the new name,
    and cannot be used again.
    """
    renamed = space.agents.rename(agent, new)

    def show() -> None:
        show_line("renamed ", (agent, "bold"), " to ", (new, "bold"), " at ", (short(renamed.commit), "yellow"))
        for directory in renamed.checkouts:
            show_line(f"checkout of {new}: {directory}")

    return Answer(renamed, show)


class Deleted(NamedTuple):
    agent: str  # the agent


@command("delete")
def delete(space: Space, agent: str = AGENT) -> Answer[Deleted]:
    """Delete an agent that did nothing.

    An agent with commits, traces, sessions or relations is not deleted: archive it.
    """
    space.agents.delete(agent)
    return Answer(Deleted(agent), f"deleted {one_line(agent)}, which had done nothing")


class Related(NamedTuple):
    src: str  # the agent that it starts from
    kind: str  # the kind of relation
    dst: str  # the agent that it points to
    origin: str  # the commit that states or retracts it
    retracted: bool  # whether it was retracted


@command("relate")
def relate(
    space: Space,
    src: str = arg("SRC", "agent the relation starts from"),
    kind: str = arg("KIND", "reviews, advises, or any other verb"),
    dst: str = arg("DST", "agent the relation points to"),
    retract: bool = flag("retract the relation"),
) -> Answer[Related]:
    """Record or retract a relation between two agents."""
    origin = (space.relations.retract if retract else space.relate)(src, kind, dst)
    value = Related(src, kind, dst, origin, retract)
    return Answer(value, f"{'retracted' if retract else 'recorded'}: {src} {kind} {dst} ({short(origin)})")


@command("relations")
def relations(space: Space, agent: str | None = arg("AGENT", "only relations of this agent", nargs="?")) -> Answer[list[Edge]]:
    """List relations between agents."""
    edges = space.relations(agent)
    if not edges:
        if agent is not None:
            require_agent(space, agent)
        return Answer([], "no relations; record one with: clia relate SRC reviews DST")
    rows = [(edge.src, edge.kind, edge.dst, short(edge.origin)) for edge in edges]
    return Answer(edges, lambda: show_table(("src", "kind", "dst", "stated by"), rows))
