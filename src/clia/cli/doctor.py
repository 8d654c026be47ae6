"""``clia doctor``: what clia runs on, how sessions are, whether hooks record, whether peers can be heard and the hub reached, and
everything that ``clia agents doctor`` says.
"""

from __future__ import annotations

import os

from clia import __version__
from clia.cli.agents.doctor import show_report
from clia.cli.arguments import add_json, add_path
from clia.cli.federation.common import is_missing_folder
from clia.cli.hooks.common import this_program
from clia.cli.output import console, counted, emit_json, one_line, plain, write
from clia.errors import CliaError
from clia.identities.diagnostics import has_errors
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.capture.hook_health import HooksHealth, ToolHealth
    from clia.facade.health import HealthReport, SpaceHealth
    from clia.facade.settings import Settings
    from clia.federation.model import Peer
    from clia.hub.records import HubStatus
    from clia.sessions.health import Ailment

    Row = tuple[str, str, bool]


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_path(parser)
    parser.add_argument("--repair", action="store_true", help="put right what is wrong with sessions, as far as that can be done")
    parser.add_argument("--store", metavar="URL", help="postgresql://… for a store on a server (default: CLIA_STORE)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where there is an error, or something about a session is wrong and not repaired."""
    from clia.capture import hook_health
    from clia.facade.health import health
    from clia.facade.settings import Settings, check_address

    check_address(args.store)
    store, config = (os.environ.get(name) or None for name in ("CLIA_STORE", "CLIA_CONFIG"))
    settings = Settings(store=args.store or store, environment=os.environ, config=config)
    found = health(args.path, environment=os.environ, ceiling=args.ceiling, settings=settings, repair=args.repair)
    captured = hook_health.captured_in(args.path, settings) if found.space is not None else ()
    hooks = hook_health.examine(args.path, environment=os.environ, program=this_program(), captured=captured)
    opened = found.space is not None and found.space.error is None
    peers, hub = _others(args.path, settings) if opened else ([], None)
    if args.json:
        about = {"hooks": hooks.to_json(), "peers": _as_json(peers), "hub": _as_json(hub)}
        emit_json({"clia": __version__, **found.to_json(), **about})
    else:
        _show(found, [*_hook_rows(hooks), *_peer_rows(peers), *_hub_rows(hub, found.git)])
        _show_ailments(found.space.ailments if found.space else ())
        _show_hooks(hooks)
        if found.space is not None and not found.space.sound and not found.space.error and not args.repair:
            write("clia doctor --repair puts right what can be\n")
        show_report(found.agents)
    broken = (found.space is not None and not found.space.sound) or not hooks.sound
    return 1 if broken or has_errors(found.agents.all_findings()) else 0


def _others(path: str, settings: Settings) -> tuple[list[Peer] | CliaError, HubStatus | CliaError | None]:
    """Other spaces, and the other machines of this one: how it stands with them, or why that cannot be told."""
    from clia.facade.opening import open_space

    try:
        with open_space(path, settings=settings) as space:
            hub = space.hub_status() if space.has_hub else None
            try:
                return space.peers(), hub
            except CliaError as err:
                return err, hub
    except CliaError as err:
        return err, err


def _as_json(found: object) -> object:
    return {"error": found.to_json()} if isinstance(found, CliaError) else as_json(found)


def _show(found: HealthReport, others: Sequence[Row]) -> None:
    from rich.table import Table  # only people see it
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    rows = (
        ("clia", __version__, True),
        ("python", found.python, True),
        ("git", found.git or "not found: the past of repositories cannot be checked", found.git is not None),
        ("path", found.agents.path, True),
        ("repository", found.agents.repository or "none: the path lies in no repository", found.agents.repository is not None),
        _space_row(found.space),
        *_beside_rows(found.space),
        *others,
    )
    for name, value, good in rows:
        table.add_row(Text("✓" if good else "!", style="green" if good else "yellow"), name, Text(plain(value)))
    console().print(table)


def _show_ailments(ailments: Sequence[Ailment]) -> None:
    """What is wrong with sessions, and what became of it."""
    from rich.text import Text

    for each in ailments:
        mark = ("✓ repaired", "green") if each.repaired else ("✗ wrong", "bold red")
        where = f"{each.agent}, session {each.session}" if each.session else each.agent
        line = Text.assemble(mark, f"  {one_line(where)}: ", (each.code, "bold"), f": {one_line(each.message)}")
        console().print(line, soft_wrap=True)


def _space_row(space: SpaceHealth | None) -> Row:
    if space is None:
        return "space", "none: clia init makes a repository one", True  # a repository need not be one
    if space.error is not None:
        return "space", one_line(f"{space.error.code}: {space.error.message}"), False
    wrong = sum(not each.repaired for each in space.ailments)
    more = f", {counted(wrong, 'thing', 'things')} wrong with sessions" if wrong else ""
    return "space", f"{space.id}, {counted(space.agents, 'agent', 'agents')} at work{more}", not wrong


def _beside_rows(space: SpaceHealth | None) -> list[Row]:
    """A store that is not in use, and has something live."""
    if space is None or not space.beside:
        return []
    said = f"{counted(space.beside, 'live session is', 'live sessions are')} in the SQLite store, and another store is in use"
    return [("store", f"{said}; to take them along: git config --unset clia.store, then clia init --store postgresql://…", False)]


def _hook_rows(hooks: HooksHealth) -> list[Row]:
    """Each tool whose hooks are installed or were: where, and when something came last; then what lies in the spool."""
    rows = [("hooks", _tool_words(each), all(finding.tool != each.tool for finding in hooks.findings)) for each in hooks.tools]
    if not rows:
        rows = [("hooks", "none: clia hook install records what Claude Code, Codex and Gemini CLI do", True)]  # nobody must
    if hooks.spool is not None and (hooks.spool.waiting or hooks.spool.rejected):
        words = f"{counted(hooks.spool.waiting, 'event waits', 'events wait')} for clia ingest, {hooks.spool.rejected} put aside"
        rows.append(("spool", words, all(finding.tool is not None for finding in hooks.findings)))
    return rows


def _peer_rows(peers: list[Peer] | CliaError) -> list[Row]:
    """Other spaces, if there are any, and which of them cannot be followed."""
    if isinstance(peers, CliaError):
        return [("peers", one_line(f"{peers.code}: {peers.message}; clia verify says more"), False)]
    odd = [f"the chain of {each.name} has forked" for each in peers if each.forked]
    odd += [f"{each.name}: there is no folder {each.url}" for each in peers if each.url and is_missing_folder(each.url)]
    waiting = sum(each.waiting for each in peers)
    said = [counted(len(peers), "peer", "peers")] + ([counted(waiting, "claim waits", "claims wait")] if waiting else []) + odd
    return [("peers", one_line("; ".join(said)), not odd)] if peers else []


def _hub_rows(hub: HubStatus | CliaError | None, git: str | None) -> list[Row]:
    """The hub, if there is one: whether it is reached, what it does not have yet, and what waits for a person."""
    from clia.cli.hub.common import besides_forks, is_in_step, standing
    from clia.workers.hub_inspection import LEAST_GIT, is_old_git

    if hub is None:
        return []
    if isinstance(hub, CliaError):
        return [("hub", one_line(f"{hub.code}: {hub.message}"), False)]
    said = [f"{hub.address}: {standing(hub)}"]
    if not hub.away_since and besides_forks(hub, hub.owed):
        said.append("clia hub sync publishes it, or says why the hub does not take it")
    said += ["clia hub status shows the forks, and how to settle them"] if hub.forks else []
    said += [f"{counted(len(hub.elsewhere), 'agent is', 'agents are')} elsewhere"] if hub.elsewhere else []
    old = is_old_git(git)
    said += [f"git {git} is too old for a hub, which takes {'.'.join(map(str, LEAST_GIT))}"] if old else []
    return [("hub", one_line("; ".join(said)), is_in_step(hub) and not old)]


def _tool_words(health: ToolHealth) -> str:
    places = ", ".join(f"{each.path} ({each.scope})" for each in health.places) or "not installed here"
    last = f"last event {health.last}" if health.last else "no event so far"
    return f"{health.tool}: {places}; {last}"


def _show_hooks(hooks: HooksHealth) -> None:
    """Why what tools do does not arrive."""
    from rich.text import Text

    marks = {"error": ("✗ wrong", "bold red"), "warning": ("! look", "bold yellow"), "info": ("· note", "cyan")}
    for each in hooks.findings:
        line = Text.assemble(marks[each.severity], "  hooks: ", (each.code, "bold"), f": {one_line(each.message)}")
        line.append(f"\n         {one_line(each.hint)}", style="dim")
        console().print(line, soft_wrap=True)
